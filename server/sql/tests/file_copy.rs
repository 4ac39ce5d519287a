//! The whole file is copied out while others write, and into an empty database, as one moment has it or not at all.

use crosscheck::object::to_bytes;
use crosscheck::testing::{Replica, RequestEnd};
use sql::file_request::{ChangedHead, FileRequest, PAGES_IN, PAGES_OUT};
use sql::request::ClientRun;
use sql::{Dialect, PAGE_BYTES, Sql, SqlRequest};
use wire::SplitMix64;

use crate::client::{ask, bytes, error, file, read, replica, rows};

/// More pages than a reply may have.
fn filled() -> Replica<Sql> {
    let mut one = replica();
    rows(&mut one, "CREATE TABLE t (k INTEGER PRIMARY KEY, v INT, x TEXT); CREATE INDEX tv ON t (v)");
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)";
    rows(&mut one, &format!("{numbers} INSERT INTO t SELECT i, i * 7 % 3000, printf('%0900d', i) FROM n"));
    one
}

fn request(one: &mut Replica<Sql>, request: FileRequest) -> Vec<u8> {
    match one.run(&to_bytes(&SqlRequest::File(request))) {
        RequestEnd::Replied(reply) => reply,
        RequestEnd::Corrupted(wrong) => panic!("{wrong:?}"),
    }
}

/// The tag of a reply, or the code of its error.
fn told(one: &mut Replica<Sql>, sent: FileRequest) -> String {
    let answer = read(&request(one, sent));
    answer.error.map_or_else(|| answer.tags.concat(), |[code, ..]| code)
}

/// Takes one reply into a copy.
fn take(one: &mut Replica<Sql>, since: u64, from: u32, copy: &mut Vec<u8>) -> ChangedHead {
    let reply = request(one, FileRequest::Changed { since, from });
    let (mut rest, mut head, mut pages) = (&reply[..], None, 0);
    while let [kind, a, b, c, d, behind @ ..] = rest {
        let (body, behind) = behind.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize - 4);
        rest = behind;
        match (kind, head) {
            (b'd', None) => head = ChangedHead::parse(body),
            (b'd', Some(_)) => {
                let (number, page) = body.split_first_chunk().expect("a number");
                let start = u32::from_be_bytes(*number) as usize * PAGE_BYTES;
                copy.resize(copy.len().max(start + PAGE_BYTES), 0);
                copy[start..start + PAGE_BYTES].copy_from_slice(page);
                pages += 1;
            }
            _ => {}
        }
    }
    assert!(pages <= PAGES_OUT);
    head.expect("a head")
}

#[test]
fn a_dump_is_the_file_of_one_moment_although_others_write_between_its_replies() {
    let (mut one, mut copy, mut since, mut rounds) = (filled(), Vec::new(), 0, 0);
    let mut chance = SplitMix64::new(4);
    let head = loop {
        let first = take(&mut one, since, 0, &mut copy);
        let (mut next, mut replies) = (first.next, 1);
        while let Some(from) = next {
            // The file changes in front of and behind what is copied; it grows, and becomes shorter.
            let key = chance.below(3000);
            rows(
                &mut one,
                &format!("UPDATE t SET v = v + 1, x = x || 'y' WHERE k BETWEEN {key} AND {key} + 9"),
            );
            rows(&mut one, &format!("DELETE FROM t WHERE k = {}", chance.below(3000)));
            rows(&mut one, "INSERT INTO t SELECT max(k) + 1, 5, printf('%02000d', max(k)) FROM t");
            next = take(&mut one, since, from, &mut copy).next;
            replies += 1;
        }
        rounds += 1;
        if replies == 1 {
            break first;
        }
        since = first.changes;
        rows(&mut one, "UPDATE t SET v = 0 WHERE k < 100");
    };
    assert!(rounds > 1, "others wrote");
    copy.truncate(head.count as usize * PAGE_BYTES);
    assert_eq!(copy.len(), file(&mut one).len());
    assert!(copy == file(&mut one), "the copy is the file");
    assert_eq!(plain(&copy, "PRAGMA integrity_check"), "ok");
}

/// What plain SQLite answers.
fn plain(file: &[u8], query: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plain.sqlite");
    std::fs::write(&path, file).expect("it is written");
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags_and_vfs(path, flags, c"unix")
        .expect("it is a file of SQLite's");
    connection.query_row(query, [], |row| row.get(0)).expect("an answer")
}

/// Sends a file; returns what the last request was told.
fn load(one: &mut Replica<Sql>, load: u64, file: &[u8]) -> String {
    assert_eq!(told(one, FileRequest::Begin { load }), "LOAD 0");
    for (number, bytes) in file.chunks(PAGES_IN * PAGE_BYTES).enumerate() {
        let from = (number * PAGES_IN) as u32;
        let answer = told(one, FileRequest::Pages { load, from, bytes: bytes.to_vec() });
        if !answer.starts_with("LOAD") {
            return answer;
        }
    }
    told(one, FileRequest::End { load, count: (file.len() / PAGE_BYTES) as u32 })
}

#[test]
fn a_loaded_file_answers_like_the_one_it_was_and_changes_like_it() {
    let mut one = filled();
    let copy = file(&mut one);
    let mut other = replica();
    rows(&mut other, "CREATE TABLE gone (a)");
    rows(&mut other, "DROP TABLE gone");
    assert_eq!(load(&mut other, 7, &copy), format!("LOAD {}", copy.len() / PAGE_BYTES));
    for query in [
        "SELECT count(*), sum(v), min(x), max(x) FROM t",
        "SELECT k FROM t WHERE v = 1234",
        "UPDATE t SET v = v + 1 WHERE k % 7 = 0",
        "CREATE INDEX tx ON t (x)",
        "SELECT name, sql FROM sqlite_schema",
        "DELETE FROM t WHERE k > 1000",
    ] {
        assert!(bytes(&mut one, query) == bytes(&mut other, query), "{query}");
    }
    assert!(file(&mut one) == file(&mut other));
    assert_eq!(told(&mut other, FileRequest::Begin { load: 8 }), "55006", "it is not empty now");
    assert_eq!(rows(&mut other, "SELECT count(*) FROM t"), ["1000"]);
}

#[test]
fn while_a_load_is_unfinished_queries_are_refused_and_another_one_starts_over() {
    let copy = file(&mut filled());
    let part = |from: usize| copy[from * PAGE_BYTES..(from + PAGES_IN) * PAGE_BYTES].to_vec();
    let mut one = replica();
    let run = |number: u32, text: &str| SqlRequest::InTransaction {
        session: 1,
        number: Some(number),
        is_open: number > 0,
        run: ClientRun::of_query(Dialect::Sqlite, text),
    };
    one.run(&to_bytes(&run(0, "BEGIN")));
    assert_eq!(told(&mut one, FileRequest::Pages { load: 7, from: 0, bytes: part(0) }), "55000");
    assert_eq!(told(&mut one, FileRequest::Begin { load: 7 }), "LOAD 0");
    assert_eq!(told(&mut one, FileRequest::Pages { load: 7, from: 0, bytes: part(0) }), "LOAD 96");
    assert_eq!(told(&mut one, FileRequest::Pages { load: 7, from: 0, bytes: part(0) }), "55000");
    for query in ["SELECT 1", "CREATE TABLE a (b)"] {
        let [code, _, hint] = ask(&mut one, query).error.expect("it is refused");
        assert_eq!(code, "57P03");
        assert!(hint.contains("crosscheck-sql load"), "{hint}");
    }
    let RequestEnd::Replied(reply) = one.run(&to_bytes(&run(1, "SELECT 1"))) else {
        panic!("no page is corrupted")
    };
    assert_eq!(read(&reply).error.expect("it is refused")[0], "57P03");
    assert_eq!(told(&mut one, FileRequest::Changed { since: 0, from: 0 }), "57P03");

    // Another load: the one before cannot go on.
    assert_eq!(told(&mut one, FileRequest::Begin { load: 8 }), "LOAD 0");
    assert_eq!(told(&mut one, FileRequest::Pages { load: 7, from: 0, bytes: part(0) }), "55000");
    assert_eq!(told(&mut one, FileRequest::Pages { load: 8, from: 0, bytes: part(0) }), "LOAD 96");
    assert_eq!(told(&mut one, FileRequest::End { load: 7, count: 96 }), "55000");
    assert_eq!(load(&mut one, 9, &copy), format!("LOAD {}", copy.len() / PAGE_BYTES));
    assert_eq!(rows(&mut one, "SELECT count(*) FROM t"), ["3000"]);
}

#[test]
fn a_file_that_is_no_whole_database_is_refused_and_leaves_an_empty_one() {
    let copy = file(&mut filled());
    let with = |place: usize, bytes: &[u8]| {
        let mut other = copy.clone();
        other[place..place + bytes.len()].copy_from_slice(bytes);
        other
    };
    let half = copy.len() / PAGE_BYTES / 2 * PAGE_BYTES;
    for (what, file, expected) in [
        ("a part", copy[..half].to_vec(), "XX001"),
        ("a wrong page", with(half, &[7; 200]), "XX001"),
        ("a wrong type", with(half, &[0xff]), "XX001"),
        ("no file of SQLite's", with(0, b"CREATE TABLE"), "22023"),
        ("other pages", with(16, &[2, 0]), "22023"),
        ("a log beside it", with(18, &[2, 2]), "22023"),
        ("another encoding", with(56, &[0, 0, 0, 2]), "22023"),
    ] {
        let mut one = replica();
        assert_eq!(load(&mut one, 7, &file), expected, "{what}");
        assert_eq!(error(&mut one, "SELECT 1"), "57P03", "{what}");
        assert_eq!(told(&mut one, FileRequest::Begin { load: 0 }), "LOAD 0");
        rows(&mut one, "CREATE TABLE t (a)");
        assert_eq!(rows(&mut one, "SELECT count(*) FROM t"), ["0"], "{what}");
    }
}

#[test]
fn a_large_load_is_removed_in_parts_and_refuses_queries_until_then() {
    let mut one = replica();
    assert_eq!(told(&mut one, FileRequest::Begin { load: 7 }), "LOAD 0");
    let page = &file(&mut filled())[..PAGE_BYTES];
    let bytes = page.repeat(PAGES_IN);
    for number in 0..50 {
        let from = number * PAGES_IN as u32;
        told(&mut one, FileRequest::Pages { load: 7, from, bytes: bytes.clone() });
    }
    assert_eq!(told(&mut one, FileRequest::Begin { load: 0 }), "LOAD 704");
    assert_eq!(error(&mut one, "SELECT 1"), "57P03");
    assert_eq!(told(&mut one, FileRequest::Begin { load: 0 }), "LOAD 0");
    rows(&mut one, "CREATE TABLE t (a)");
}
