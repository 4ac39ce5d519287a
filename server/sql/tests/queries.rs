//! What queries do, and how they fail.

use crate::client::{ask, bytes, error, replica, rows};

#[test]
fn rows_are_written_and_read() {
    let mut one = replica();
    assert_eq!(
        ask(&mut one, "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, x REAL, b BLOB)").tags,
        ["CREATE TABLE"]
    );
    let inserted = ask(&mut one, "INSERT INTO t VALUES (1, 'a', 0.5, x'01ff'), (2, NULL, 1e20, NULL)");
    assert_eq!(inserted.tags, ["INSERT 0 2"]);
    let all = ask(&mut one, "SELECT id, name, x, b AS bytes FROM t ORDER BY id");
    assert_eq!((all.columns.as_str(), all.types.as_str()), ("id|name|x|bytes", "20|25|701|17"));
    assert_eq!(
        ask(&mut one, "SELECT id, x, b, name, count(*) FROM t WHERE id > 9 GROUP BY id").types,
        "20|701|17|25|25"
    );
    assert_eq!(ask(&mut one, "VALUES (1, NULL, 'a'), (2.5, NULL, 'b')").types, "25|25|25");
    assert_eq!(all.rows, ["1|a|0.5|\\x01ff", "2|NULL|1e+20|NULL"]);
    assert_eq!(all.tags, ["SELECT 2"]);
    assert_eq!(ask(&mut one, "UPDATE t SET x = x + 1").tags, ["UPDATE 2"]);
    assert_eq!(rows(&mut one, "/* all */ DELETE FROM t WHERE id = 2 RETURNING name"), ["NULL"]);
    assert_eq!(rows(&mut one, "SELECT count(*) FROM t"), ["1"]);
    assert!(ask(&mut one, " -- nothing\n").tags.is_empty());
    assert_eq!(ask(&mut one, "DROP TABLE t").tags, ["DROP TABLE"]);
    assert_eq!(error(&mut one, "SELECT * FROM t"), "42P01");
}

#[test]
fn errors_have_the_codes_that_clients_know() {
    let mut one = replica();
    rows(&mut one, "CREATE TABLE t (id INTEGER PRIMARY KEY, u TEXT NOT NULL UNIQUE, n INT CHECK (n > 0))");
    rows(&mut one, "CREATE TABLE o (t INTEGER REFERENCES t (id))");
    rows(&mut one, "INSERT INTO t VALUES (1, 'a', 1)");
    let cases = [
        ("INSERT INTO t VALUES (1, 'b', 1)", "23505"),
        ("INSERT INTO t VALUES (2, 'a', 1)", "23505"),
        ("INSERT INTO t VALUES (2, NULL, 1)", "23502"),
        ("INSERT INTO t VALUES (2, 'b', 0)", "23514"),
        ("INSERT INTO o VALUES (9)", "23503"),
        ("SELECT x FROM t", "42703"),
        ("SELEC 1", "42601"),
        ("SELECT unheard_of(1)", "42883"),
        ("CREATE TABLE t (a)", "42P07"),
    ];
    for (query, code) in cases {
        assert_eq!(error(&mut one, query), code, "{query}");
    }
    assert_eq!(rows(&mut one, "SELECT * FROM t"), ["1|a|1"]);
}

#[test]
fn statements_of_one_query_are_one_transaction() {
    let mut one = replica();
    rows(&mut one, "CREATE TABLE t (id INTEGER PRIMARY KEY)");
    let failed =
        ask(&mut one, "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); INSERT INTO t VALUES (1)");
    assert_eq!((failed.tags.len(), failed.error.is_some()), (2, true));
    assert!(rows(&mut one, "SELECT * FROM t").is_empty(), "nothing of it is left");
    rows(&mut one, "INSERT INTO t VALUES (1); BEGIN; INSERT INTO t VALUES (2); COMMIT");
    rows(&mut one, "BEGIN; INSERT INTO t VALUES (3); ROLLBACK; INSERT INTO t VALUES (4)");
    assert_eq!(rows(&mut one, "SELECT * FROM t"), ["1", "2", "4"]);
    assert_eq!(error(&mut one, "BEGIN; INSERT INTO t VALUES (5)"), "0A000");
    assert_eq!(error(&mut one, "SAVEPOINT s"), "0A000");
    assert_eq!(rows(&mut one, "SELECT count(*) FROM t; SELECT max(id) FROM t"), ["3", "4"]);
}

#[test]
fn time_and_chance_are_those_of_the_log() {
    let query = "SELECT datetime('now'), unixepoch(), random() <> random(), random(), hex(randomblob(4)), \
        CURRENT_TIMESTAMP = datetime('now')";
    let (mut one, mut other) = (replica(), replica());
    bytes(&mut other, "SELECT 1");
    other.now_us = one.now_us;
    let seen = rows(&mut one, query);
    let values: Vec<&str> = seen[0].split('|').collect();
    assert_eq!(values[1].parse::<u64>().unwrap(), (one.now_us - 1) / 1_000_000);
    assert_eq!((values[2], values[5]), ("1", "1"));
    assert_ne!(seen, rows(&mut one, query), "another request, another number");
    let mut third = replica();
    assert_eq!(seen, rows(&mut third, query), "the same request of the log");
    assert_eq!(rows(&mut other, "SELECT datetime('now')")[0], values[0]);
}

/// Where the largest row id is taken, SQLite tries random ones; and it draws names for columns that many others have.
/// One replica opens a connection for each request, since it is given the state again.
#[test]
fn what_sqlite_draws_itself_is_equal_at_replicas_with_different_pasts() {
    let mut two = [replica(), replica()].map(|mut one| {
        rows(&mut one, "CREATE TABLE t (id INTEGER PRIMARY KEY, x)");
        rows(&mut one, "INSERT INTO t VALUES (9223372036854775807, 0)");
        one
    });
    let define = "CREATE TABLE IF NOT EXISTS passing (x); DROP TABLE passing";
    let mut ids = Vec::new();
    for _ in 0..5 {
        let packed = two[0].with_region(0, |region| region.pack_all());
        // The second one's connection learns another schema, and then is given the first one's state.
        assert_eq!(ask(&mut two[1], define).error, None);
        two[1].with_region(0, |region| region.load_all(&packed)).expect("a packed region loads");
        two[1].now_us = two[0].now_us;
        bytes(&mut two[0], "SELECT 1");
        two[1].now_us = two[0].now_us;
        let drawn = two.each_mut().map(|one| {
            let names = ask(one, "SELECT * FROM (SELECT 1 a, 1 a, 1 a, 1 a, 1 a, 1 a)").columns;
            (names, rows(one, "INSERT INTO t (x) VALUES (1) RETURNING id"))
        });
        assert_eq!(drawn[0], drawn[1]);
        ids.push(drawn[0].clone());
    }
    ids.dedup();
    assert_eq!(ids.len(), 5, "they are drawn");
}

#[test]
fn what_depends_on_a_connection_or_reaches_outside_is_refused() {
    let mut one = replica();
    rows(&mut one, "CREATE TABLE t (id INTEGER PRIMARY KEY)");
    let refused = [
        "PRAGMA journal_mode = WAL",
        "ATTACH 'other' AS other",
        "ANALYZE",
        "SELECT changes()",
        "SELECT last_insert_rowid()",
        "CREATE TEMP TABLE x (y)",
        "SELECT load_extension('x')",
        "CREATE VIRTUAL TABLE f USING fts5(x)",
        "EXPLAIN SELECT * FROM t",
    ];
    for query in refused {
        assert_eq!(error(&mut one, query), "0A000", "{query}");
    }
    assert!(ask(&mut one, "VACUUM").error.is_some());
    assert!(ask(&mut one, "SELECT datetime('now', 'localtime')").error.is_some(), "the host's time zone");
    assert_eq!(
        error(&mut one, "CREATE TABLE d (a, b DEFAULT (last_insert_rowid()))"),
        "0A000",
        "not later either"
    );
    assert_eq!(error(&mut one, "INSERT INTO t VALUES ($1)"), "42P02");
    assert_eq!(rows(&mut one, "SELECT count(*) FROM t"), ["0"]);
}

#[test]
fn statements_and_replies_have_limits() {
    let (mut one, mut other) = (replica(), replica());
    rows(&mut other, "SELECT 1");
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    for one in [&mut one, &mut other] {
        rows(one, "CREATE TABLE t (i)");
        assert_eq!(error(one, &format!("{endless} SELECT sum(i) FROM n")), "57014");
        assert_eq!(
            error(one, &format!("{endless} INSERT INTO t SELECT i FROM n WHERE i % 100000 = 0")),
            "57014"
        );
        assert_eq!(rows(one, "SELECT count(*) FROM t"), ["0"]);
        assert_eq!(error(one, &format!("{endless} SELECT printf('%1000d', i) FROM n LIMIT 100000")), "54000");
        assert_eq!(error(one, "SELECT zeroblob(2000000)"), "54000");
        rows(one, "CREATE TABLE large (id INTEGER PRIMARY KEY, b)");
        rows(one, &format!("{endless} INSERT INTO large SELECT i, zeroblob(1000000) FROM n LIMIT 12"));
        assert_eq!(error(one, "UPDATE large SET id = id + 100 RETURNING *"), "54000");
        assert_eq!(rows(one, "SELECT max(id) FROM large"), ["12"], "what has no reply is not committed");
        assert_eq!(error(one, "SELECT 'a' LIKE printf('%02000d', 1)"), "42000");
    }
}

/// A query that was taken for one that only reads is undone, and runs with the lock.
#[test]
fn a_query_that_writes_all_the_same_runs_again() {
    let mut one = replica();
    rows(&mut one, "CREATE TABLE t (i)");
    let run = sql::request::ClientRun::of_query(sql::Dialect::Sqlite, "INSERT INTO t VALUES (1)");
    let request = sql::SqlRequest::Alone { run, reads: true };
    one.run(&crosscheck::object::to_bytes(&request));
    assert_eq!(rows(&mut one, "SELECT count(*) FROM t"), ["1"]);
}
