//! What evidence says of a page's byte is what plain SQLite reads differently when that byte is another one.

use std::collections::BTreeMap;

use crosscheck::object::Injection;
use crosscheck::testing::Replica;
use proptest::prelude::*;
use sql::trees::Catalog;
use sql::{PAGE_BYTES, Sql};
use wire::SplitMix64;

use crate::client::{file, replica, rows};

/// Every kind of table, index and page.
fn filled() -> Replica<Sql> {
    let mut one = replica();
    for statement in [
        "CREATE TABLE account (id INTEGER PRIMARY KEY, k INT, name TEXT, twice INT AS (k * 2), balance INT)",
        "CREATE INDEX account_k ON account (k)",
        "CREATE TABLE person (name TEXT PRIMARY KEY, age INT, note BLOB)",
        "CREATE TABLE city (land TEXT, name TEXT, people INT, PRIMARY KEY (name, land)) WITHOUT ROWID",
        "CREATE TABLE plain (a, b)",
        "CREATE VIEW seen AS SELECT * FROM plain",
        "CREATE TABLE gone (a)",
    ] {
        rows(&mut one, statement);
    }
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)";
    for insert in [
        "account SELECT i, i * 7919 % 3000, 'm' || i || '@x', 100000 + i FROM n",
        "person SELECT 'p' || i, i, zeroblob(CASE i WHEN 77 THEN 20000 ELSE i % 9 END) FROM n",
        "city SELECT 'land' || (i % 7), 'city' || i, 1000 + i FROM n",
        "plain SELECT i, i || 'b' FROM n WHERE i < 20",
        "gone SELECT printf('%0900d', i) FROM n WHERE i < 60",
    ] {
        rows(&mut one, &format!("{numbers} INSERT INTO {insert}"));
    }
    rows(&mut one, "DROP TABLE gone");
    one
}

/// What the byte at this place of a file means, and how many pages were read for it.
fn meaning(file: &[u8], place: usize) -> (String, u32) {
    let reads = std::cell::Cell::new(0);
    let page = |number: u32| {
        reads.set(reads.get() + 1);
        let start = (number as usize).checked_sub(1)?.checked_mul(PAGE_BYTES)?;
        file.get(start..start + PAGE_BYTES).map(<[u8]>::to_vec)
    };
    let number = place / PAGE_BYTES;
    let bytes = &file[number * PAGE_BYTES..(number + 1) * PAGE_BYTES];
    let Some(catalog) = Catalog::of(&page) else { return ("no file".to_owned(), reads.get()) };
    (catalog.meaning(number as u32 + 1, bytes, place % PAGE_BYTES), reads.get())
}

/// All values of all tables as plain SQLite reads them, by the words for their places. None if it finds the file
/// malformed.
fn values(path: &std::path::Path) -> Option<BTreeMap<String, String>> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags_and_vfs(path, flags, c"unix").ok()?;
    let mut values = BTreeMap::new();
    for (table, key, columns) in [
        ("account", "id", &["k", "name", "balance"][..]),
        ("person", "quote(name)", &["name", "age", "note"]),
        ("city", "quote(name) || ', ' || quote(land)", &["name", "land", "people"]),
        ("plain", "rowid", &["a", "b"]),
    ] {
        let list = columns.join(", ");
        let query = format!("SELECT {key}, {list} FROM {table} NOT INDEXED");
        let mut statement = connection.prepare(&query).ok()?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().ok()? {
            let key = match row.get_ref(0).ok()? {
                rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                other => other.as_str().ok()?.to_owned(),
            };
            let word = if table == "plain" { "rowid" } else { "key" };
            for (at, column) in columns.iter().enumerate() {
                let value = format!("{:?}", row.get_ref(at + 1).ok()?);
                values.insert(format!("table {table}, {word} {key}, column {column}"), value);
            }
        }
    }
    Some(values)
}

#[test]
fn the_value_that_is_named_is_the_one_that_plain_sqlite_reads_differently() {
    let tries = if std::env::var_os("CROSSCHECK_LONG").is_some() { 5000 } else { 120 };
    let mut file = file(&mut filled());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plain.sqlite");
    std::fs::write(&path, &file).expect("it is written");
    let right = values(&path).expect("it is a file of SQLite's");
    let (mut chance, mut named) = (SplitMix64::new(5), 0);
    for _ in 0..tries {
        let place = chance.below(file.len() as u64) as usize;
        let (text, _) = meaning(&file, place);
        let is_value = right.contains_key(&text);
        let is_unread = ["index ", "a free page"].iter().any(|start| text.starts_with(start))
            || text.contains("unused space");
        if !is_value && !is_unread {
            continue;
        }
        // The lowest bit: a length or a type would be another one, a value stays one.
        file[place] ^= 1;
        std::fs::write(&path, &file).expect("it is written");
        file[place] ^= 1;
        let Some(wrong) = values(&path) else {
            assert!(!is_value, "{text}, and plain SQLite reads nothing at all");
            continue;
        };
        if is_value {
            let others = right.iter().filter(|(name, value)| wrong.get(*name) != Some(*value));
            let others: Vec<&String> = others.map(|(name, _)| name).collect();
            // Values are found by the keys of their rows here: with another key the whole row is another one.
            let is_key = ["land", "name"].iter().any(|column| text.ends_with(&format!("column {column}")))
                && !text.starts_with("table account");
            assert!(
                if is_key { !others.is_empty() } else { others == [&text] },
                "{text}, and not {others:?}"
            );
            named += 1;
        } else {
            assert_eq!(wrong, right, "{text}");
        }
    }
    assert!(named * 5 > tries, "values have many bytes: {named} of {tries}");
}

/// The words for the bytes of a file, with their numbers of bytes; keys are left out.
fn kinds(file: &[u8]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    // Some everywhere, and of each page the first and the last ones.
    let is_drawn = |place: &usize| {
        let within = place % PAGE_BYTES;
        place.is_multiple_of(499) || within < 16 && within.is_multiple_of(4) || within > PAGE_BYTES - 7
    };
    for place in (0..file.len()).filter(is_drawn) {
        let letters = meaning(file, place).0;
        let text: String =
            letters.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
        *kinds.entry(text.replace("00", "0").replace("00", "0").replace("00", "0")).or_default() += 1;
    }
    kinds
}

#[test]
fn every_part_of_a_file_has_its_words() {
    let kinds = kinds(&file(&mut filled()));
    for expected in [
        "the header of the file",
        "the schema, the entry of account, column sql",
        "the schema, unused space of the page",
        "table account, key 0, column name",
        "table account, the place of key 0",
        "table account, key 0, the key itself",
        "table account, key 0, the type of column name",
        "table account, an inner page, the way to rows up to 0",
        "index account_k, an entry of key 0",
        "index account_k, an inner page, an entry of key 0",
        "index account_k, an inner page, the header of the page",
        "table person, key 'p0', column age",
        "table person, key 'p0', a part of a long value",
        "index sqlite_autoindex_person_0, an entry of rowid 0",
        "table city, key 'city0', 'land0', column people",
        "table city, an inner page, key 'city0', 'land0', column name",
        "table plain, rowid 0, column b",
        "a free page",
    ] {
        assert!(kinds.contains_key(expected), "{expected} is not among {kinds:#?}");
    }
    let unknown = kinds.keys().find(|text| text.contains("unknown"));
    assert_eq!(unknown, None);
}

#[test]
fn a_repaired_row_is_named_with_its_key_and_column() {
    let mut one = filled();
    for (name, expected) in [
        ("row:account:1717", "(table account, key 1717, column "),
        ("row:ACCOUNT:3000", "(table account, key 3000, column "),
        ("row:person:p77", "(table person, key 'p77', column "),
        ("row:person:p3000", "(table person, key 'p3000', column "),
        ("row:city:city5", "(table city, key 'city5', 'land5', column "),
        ("row:plain:7", "(table plain, rowid 7, column "),
    ] {
        let (_, id) = one.find(name).unwrap_or_else(|| panic!("{name} is not found"));
        let part = one.part_of(name).expect("it has a part");
        let right = one.with_region(0, |region| region.pack(id)).expect("the page is there");
        let injection =
            Injection::Flip { member: Some(usize::from(part.member)), bit: Some(part.bits.start), seed: 0 };
        one.with_region(0, |region| region.inject(id, &injection)).expect("the page is there");
        let notes = one.repair(0, &[(id, right)]);
        assert!(notes[0].contains(expected), "{notes:?}");
    }
    for name in ["row:account:3001", "row:nobody:1", "row:person:7", "row:account", "row:account:x"] {
        assert_eq!(one.find(name), None, "{name}");
    }
}

#[test]
fn a_row_whose_page_is_lost_is_not_found_and_nothing_else_happens() {
    let mut one = filled();
    let (_, id) = one.find("row:account:17").expect("it is there");
    one.with_region(0, |region| region.inject(id, &Injection::Lose)).expect("the page was there");
    assert_eq!(one.find("row:account:17"), None);
    assert!(one.find("row:account:2999").is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever the pages are, something is said, and no more pages are read than the file has, twice and a few.
    #[test]
    fn any_file_is_looked_at_to_an_end(seed: u64, changes in 0..200_u64, place: usize) {
        let mut file = damaged().clone();
        let mut chance = SplitMix64::new(seed);
        for _ in 0..changes {
            // Near the beginnings of pages, where their structure is.
            let bound = if chance.below(3) == 0 { PAGE_BYTES as u64 } else { 64 };
            let within = chance.below(bound);
            let page = chance.below((file.len() / PAGE_BYTES) as u64);
            file[page as usize * PAGE_BYTES + within as usize] = chance.below(256) as u8;
        }
        let count = (file.len() / PAGE_BYTES) as u32;
        file[28..32].copy_from_slice(&count.to_be_bytes());
        let (text, reads) = meaning(&file, place % file.len());
        prop_assert!(!text.is_empty());
        prop_assert!(reads <= 2 * count + 17, "{reads} reads of {count} pages");
    }
}

/// A file for tests that change it.
fn damaged() -> &'static Vec<u8> {
    static FILE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    FILE.get_or_init(|| file(&mut filled()))
}
