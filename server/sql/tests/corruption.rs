//! A bit flipped in a page: without the check SQLite gives wrong answers and says nothing.

use crosscheck::object::{Injection, ObjectId};
use crosscheck::testing::{Replica, RequestEnd};
use sql::{PAGE_BYTES, Sql};
use wire::SplitMix64;

use crate::client::{self, encoded, pages, replica, rows};

fn filled() -> Replica<Sql> {
    let mut one = replica();
    rows(
        &mut one,
        "CREATE TABLE account (id INTEGER PRIMARY KEY, k INT NOT NULL, name TEXT UNIQUE, balance INT)",
    );
    rows(&mut one, "CREATE INDEX account_k ON account (k)");
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1999)";
    rows(
        &mut one,
        &format!(
            "{numbers} INSERT INTO account SELECT i, i * 7919 % 2000, 'm' || i || '@x', 1000 + i FROM n"
        ),
    );
    one
}

fn queries() -> Vec<String> {
    let mut chance = SplitMix64::new(3);
    let mut all: Vec<String> = (0..20)
        .flat_map(|_| {
            let number = chance.below(2000);
            [
                format!("SELECT * FROM account WHERE id = {number}"),
                format!("SELECT id, balance FROM account WHERE k = {number}"),
                format!("SELECT balance FROM account WHERE name = 'm{number}@x'"),
            ]
        })
        .collect();
    all.push("SELECT count(*), sum(balance), sum(k) FROM account".to_owned());
    all.push("SELECT count(*) FROM account WHERE k < 1000".to_owned());
    all.push("SELECT * FROM account ORDER BY k LIMIT 200".to_owned());
    all
}

/// The answers of plain SQLite to the same bytes.
fn plain(file: &[u8]) -> Result<Vec<String>, rusqlite::Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.sqlite");
    std::fs::write(&path, file).unwrap();
    // The first file system of SQLite in this process is ours.
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags_and_vfs(path, flags, c"unix")?;
    let mut answers = Vec::new();
    for query in queries() {
        let mut statement = connection.prepare(&query)?;
        let columns = statement.column_count();
        let mut rows = statement.raw_query();
        let mut answer = String::new();
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                answer += &format!("{:?}|", row.get_ref(column)?);
            }
        }
        answers.push(answer);
    }
    Ok(answers)
}

/// Flips a bit of the page's bytes; in front of them is their number.
fn flip(one: &mut Replica<Sql>, page: ObjectId, bit: u64) {
    let injection = Injection::Flip { member: Some(1), bit: Some(32 + bit), seed: 0 };
    one.with_region(0, |region| region.inject(page, &injection)).expect("the page is there");
}

#[test]
fn no_flipped_bit_reaches_an_answer() {
    let flips = if std::env::var_os("CROSSCHECK_LONG").is_some() { 10_000 } else { 200 };
    let mut one = filled();
    let pages = pages(&mut one);
    let mut file = client::file(&mut one);
    let right = plain(&file).expect("it is a file of SQLite's");
    let expected: Vec<Vec<String>> = queries().iter().map(|query| rows(&mut one, query)).collect();

    let mut chance = SplitMix64::new(11);
    let (mut stopped, mut wrong, mut wrong_in_plain) = (0, 0, 0);
    for _ in 0..flips {
        let bit = chance.below(file.len() as u64 * 8) as usize;
        file[bit / 8] ^= 1 << (bit % 8);
        wrong_in_plain += usize::from(plain(&file).is_ok_and(|answers| answers != right));
        file[bit / 8] ^= 1 << (bit % 8);

        let (page, within) = (pages[bit / 8 / PAGE_BYTES], bit as u64 % (8 * PAGE_BYTES as u64));
        flip(&mut one, page, within);
        for (query, expected) in queries().iter().zip(&expected) {
            match one.run(&encoded(query)) {
                RequestEnd::Corrupted(objects) => {
                    assert!(objects.contains(&(0, page)), "the page is named: {objects:?}");
                    stopped += 1;
                    break;
                }
                RequestEnd::Replied(reply) => {
                    wrong += usize::from(crate::client::read(&reply).rows != *expected)
                }
            }
        }
        flip(&mut one, page, within);
    }
    println!(
        "{flips} flips: plain SQLite {wrong_in_plain} wrong answers; here {stopped} stopped, {wrong} wrong"
    );
    assert_eq!(wrong, 0);
    assert!(stopped > flips * 9 / 10, "these queries read nearly all pages: {stopped}");
    assert!(wrong_in_plain * 20 >= flips, "plain SQLite answers wrongly: {wrong_in_plain} of {flips}");
    for (query, expected) in queries().iter().zip(&expected) {
        assert_eq!(rows(&mut one, query), *expected, "the connections are those of before");
    }
}
