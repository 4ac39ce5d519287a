//! Transactions over several queries: what others see of them, and when they must run again.

use crosscheck::testing::Replica;
use sql::{Dialect, PgConnection, Sql};

use crate::client::{Answer, read, replica};

/// A client's connection.
struct Client(PgConnection);

impl Client {
    fn new(session: u64) -> Self {
        Client(PgConnection::started(session, Dialect::Sqlite))
    }

    /// The answer to a query, and the status behind it.
    fn ask(&mut self, one: &mut Replica<Sql>, text: &str) -> (Answer, char) {
        let query = [b"Q", &(text.len() as u32 + 5).to_be_bytes()[..], text.as_bytes(), b"\0"].concat();
        let reply = one.talk(&mut self.0, &query);
        (read(&reply), *reply.last().expect("a status") as char)
    }

    fn rows(&mut self, one: &mut Replica<Sql>, text: &str) -> Vec<String> {
        let (answer, _) = self.ask(one, text);
        assert_eq!(answer.error, None, "{text}");
        answer.rows
    }

    fn error(&mut self, one: &mut Replica<Sql>, text: &str) -> (String, char) {
        let (answer, status) = self.ask(one, text);
        let [code, ..] = answer.error.unwrap_or_else(|| panic!("{text} must fail: {:?}", answer.rows));
        (code, status)
    }
}

fn bank() -> (Replica<Sql>, Client, Client) {
    let (mut one, mut first) = (replica(), Client::new(1));
    first.rows(&mut one, "CREATE TABLE t (id INTEGER PRIMARY KEY, v INT)");
    first.rows(&mut one, "INSERT INTO t VALUES (1, 100), (2, 100)");
    (one, first, Client::new(17))
}

#[test]
fn own_changes_are_seen_and_no_other_ones_before_they_are_committed() {
    let (mut one, mut first, mut second) = bank();
    assert_eq!(first.ask(&mut one, "begin;").1, 'T');
    assert_eq!(first.ask(&mut one, "UPDATE t SET v = v + 1 WHERE id = 1").0.tags, ["UPDATE 1"]);
    assert_eq!(first.rows(&mut one, "SELECT v FROM t WHERE id = 1"), ["101"]);
    assert_eq!(second.rows(&mut one, "SELECT v FROM t WHERE id = 1"), ["100"], "no dirty read");
    assert_eq!(first.rows(&mut one, "INSERT INTO t (v) VALUES (random()) RETURNING id"), ["3"]);
    let drawn = first.rows(&mut one, "SELECT v, datetime('now') FROM t WHERE id = 3");
    let (answer, status) = first.ask(&mut one, "COMMIT");
    assert_eq!((answer.tags.as_slice(), status), (&["COMMIT".to_owned()][..], 'I'));
    let number = |rows: &[String]| rows[0].split('|').next().map(str::to_owned);
    let kept = second.rows(&mut one, "SELECT v FROM t WHERE id = 3");
    assert_eq!(number(&kept), number(&drawn), "it has not drawn again");
    first.rows(&mut one, "BEGIN");
    first.rows(&mut one, "DELETE FROM t");
    assert_eq!(first.ask(&mut one, "ROLLBACK").0.tags, ["ROLLBACK"]);
    assert_eq!(second.rows(&mut one, "SELECT count(*) FROM t"), ["3"]);
}

#[test]
fn what_was_read_must_hold_when_it_is_committed() {
    // Lost update, write skew, phantom: what the client does after it has read.
    let cases = [
        (
            "SELECT v FROM t WHERE id = 1",
            "UPDATE t SET v = 101 WHERE id = 1",
            "UPDATE t SET v = 150 WHERE id = 1",
        ),
        ("SELECT sum(v) FROM t", "UPDATE t SET v = -100 WHERE id = 1", "UPDATE t SET v = -100 WHERE id = 2"),
        ("SELECT id FROM t WHERE v > 50", "INSERT INTO t VALUES (9, 0)", "INSERT INTO t VALUES (3, 70)"),
    ];
    for (reads, writes, other) in cases {
        let (mut one, mut first, mut second) = bank();
        first.rows(&mut one, "BEGIN");
        first.rows(&mut one, reads);
        first.rows(&mut one, writes);
        second.rows(&mut one, other);
        assert_eq!(first.error(&mut one, "COMMIT"), ("40001".to_owned(), 'I'), "{reads}");
        assert!(first.rows(&mut one, "SELECT * FROM t WHERE id = 9 OR v IN (101)").is_empty());
        first.rows(&mut one, "BEGIN");
        first.rows(&mut one, reads);
        second.rows(&mut one, "UPDATE t SET v = v + 1000");
        if reads.contains("sum") {
            assert_eq!(first.error(&mut one, "SELECT 1"), ("40001".to_owned(), 'E'), "at once");
            assert_eq!(first.error(&mut one, "SELECT 1"), ("25P02".to_owned(), 'E'));
            assert_eq!(first.ask(&mut one, "COMMIT").0.tags, ["ROLLBACK"]);
        }
    }
}

#[test]
fn changes_that_have_read_nothing_go_together() {
    let (mut one, mut first, mut second) = bank();
    for client in [&mut first, &mut second] {
        client.rows(&mut one, "BEGIN");
        client.rows(&mut one, "UPDATE t SET v = v + 10 WHERE id = 1");
    }
    first.rows(&mut one, "COMMIT");
    second.rows(&mut one, "COMMIT");
    assert_eq!(first.rows(&mut one, "SELECT v FROM t WHERE id = 1"), ["120"], "none is lost");
    for client in [&mut first, &mut second] {
        client.rows(&mut one, "BEGIN");
        client.rows(&mut one, "INSERT INTO t VALUES (5, 0)");
    }
    first.rows(&mut one, "COMMIT");
    assert_eq!(second.error(&mut one, "COMMIT").0, "40001");
    assert_eq!(second.error(&mut one, "INSERT INTO t VALUES (5, 0)").0, "23505");
}

#[test]
fn a_failed_query_ends_all_but_the_end_and_savepoints_hold_within() {
    let (mut one, mut first, mut second) = bank();
    first.rows(&mut one, "START TRANSACTION ISOLATION LEVEL SERIALIZABLE");
    first.rows(&mut one, "SAVEPOINT s");
    first.rows(&mut one, "UPDATE t SET v = 0");
    first.rows(&mut one, "ROLLBACK TO s");
    first.rows(&mut one, "UPDATE t SET v = 1");
    first.rows(&mut one, "ROLLBACK TRANSACTION TO SAVEPOINT s");
    first.rows(&mut one, "UPDATE t SET v = 7 WHERE id = 2");
    first.rows(&mut one, "RELEASE s");
    assert_eq!(first.ask(&mut one, "END").0.tags, ["COMMIT"]);
    assert_eq!(second.rows(&mut one, "SELECT v FROM t ORDER BY id"), ["100", "7"]);
    first.rows(&mut one, "BEGIN");
    first.rows(&mut one, "UPDATE t SET v = 0");
    assert_eq!(first.error(&mut one, "INSERT INTO t VALUES (1, 1)"), ("23505".to_owned(), 'E'));
    assert_eq!(first.error(&mut one, "SELECT 1"), ("25P02".to_owned(), 'E'));
    assert_eq!(first.ask(&mut one, "COMMIT").0.tags, ["ROLLBACK"], "as PostgreSQL answers");
    assert_eq!(second.rows(&mut one, "SELECT sum(v) FROM t"), ["107"]);
    first.rows(&mut one, "BEGIN");
    assert_eq!(first.error(&mut one, "UPDATE t SET v = 0; COMMIT").0, "0A000");
    first.rows(&mut one, "ROLLBACK");
    assert_eq!(first.ask(&mut one, "ROLLBACK").0.tags, ["ROLLBACK"], "without one, as a warning");
    first.rows(&mut one, "BEGIN");
    assert_eq!(first.error(&mut one, "COMMIT AND CHAIN"), ("42601".to_owned(), 'E'), "not a plain COMMIT");
    assert_eq!(first.ask(&mut one, "/* end */ abort work ; ").0.tags, ["ROLLBACK"]);
}

#[test]
fn a_transaction_that_was_left_is_given_up_and_says_so() {
    let (mut one, mut first, mut second) = bank();
    first.rows(&mut one, "BEGIN");
    first.rows(&mut one, "UPDATE t SET v = 0");
    one.pass_time(40_000_000);
    first.rows(&mut one, "SELECT 1");
    one.pass_time(40_000_000);
    first.rows(&mut one, "SELECT 1");
    one.pass_time(61_000_000);
    one.pass_time(1);
    assert_eq!(
        first.error(&mut one, "UPDATE t SET v = 0"),
        ("25P03".to_owned(), 'E'),
        "not as a query of its own"
    );
    assert_eq!(first.error(&mut one, "COMMIT"), ("25P03".to_owned(), 'I'));
    assert_eq!(first.rows(&mut one, "SELECT sum(v) FROM t"), ["200"]);
    second.rows(&mut one, "BEGIN");
    for _ in 0..256 {
        second.rows(&mut one, "SELECT 1");
    }
    assert_eq!(second.error(&mut one, "SELECT 1"), ("54000".to_owned(), 'E'));
    second.rows(&mut one, "ROLLBACK");
}

/// Forms of COMMIT that are not recognised by their words must not reach SQLite within a transaction either.
#[test]
fn no_other_form_of_commit_commits_in_a_transaction() {
    let forms = [
        "COMMIT TRANSACTION x",
        ";COMMIT",
        "SELECT 1; ;COMMIT",
        "\u{feff}COMMIT",
        "ROLLBACK TRANSACTION x; SELECT 1",
    ];
    for hidden in forms {
        let (mut one, mut first, mut second) = bank();
        first.rows(&mut one, "BEGIN");
        first.rows(&mut one, "UPDATE t SET v = v - 10 WHERE id = 1");
        assert_eq!(first.error(&mut one, hidden).1, 'E', "{hidden}");
        assert_eq!(second.rows(&mut one, "SELECT v FROM t WHERE id = 1"), ["100"], "{hidden}");
        assert_eq!(first.ask(&mut one, "COMMIT; -- done").0.tags, ["ROLLBACK"]);
        assert_eq!(second.rows(&mut one, "SELECT v FROM t WHERE id = 1"), ["100"], "{hidden}");
    }
}

/// A query that did not run, for whatever reason, must not be missing from what is committed.
#[test]
fn a_transaction_that_lacks_a_query_is_not_committed() {
    let (mut one, mut first, _) = bank();
    first.rows(&mut one, "BEGIN");
    first.rows(&mut one, "UPDATE t SET v = v - 10 WHERE id = 1");
    let lost = first.0.clone();
    first.rows(&mut one, "UPDATE t SET v = v + 10 WHERE id = 2");
    first.0 = lost;
    assert_eq!(first.error(&mut one, "COMMIT"), ("40000".to_owned(), 'I'));
    assert_eq!(first.rows(&mut one, "SELECT v FROM t ORDER BY id"), ["100", "100"]);

    first.rows(&mut one, "BEGIN");
    first.rows(&mut one, "UPDATE t SET v = v - 10 WHERE id = 1");
    let broken = [b"Q", &6_u32.to_be_bytes()[..], b"\xff\0"].concat();
    assert_eq!(one.talk(&mut first.0, &broken).last(), Some(&b'E'), "not text");
    assert_eq!(first.error(&mut one, "SELECT 1"), ("25P02".to_owned(), 'E'));
    assert_eq!(first.ask(&mut one, "COMMIT").0.tags, ["ROLLBACK"]);
    assert_eq!(first.rows(&mut one, "SELECT v FROM t ORDER BY id"), ["100", "100"]);
}
