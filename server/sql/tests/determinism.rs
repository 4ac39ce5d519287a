//! Pages are equal wherever the same statements are executed, whatever else a replica has done.

use crosscheck::testing::check_deterministic;
use sql::{Dialect, PgConnection};
use wire::SplitMix64;

use crate::client::{bytes, encoded, message, replica, rows};

const SCHEMA: [&str; 5] = [
    "CREATE TABLE a (id INTEGER PRIMARY KEY, k INT, t TEXT, x REAL)",
    "CREATE TABLE b (p TEXT, q INT, v BLOB, PRIMARY KEY (p, q)) WITHOUT ROWID",
    "CREATE INDEX ak ON a (k)",
    "CREATE TABLE c (id INTEGER PRIMARY KEY AUTOINCREMENT, u INT UNIQUE, CHECK (u > 0))",
    "CREATE TRIGGER gone AFTER DELETE ON a BEGIN INSERT OR IGNORE INTO c (u) VALUES (old.k + 1); END",
];

/// A random statement, or a few: many of them fail, some in the middle.
fn statement(number: u64, chance: &mut SplitMix64) -> String {
    let (k, m) = (chance.below(500), chance.below(5000));
    match chance.below(18) {
        0..4 => format!("INSERT INTO a (k, t, x) VALUES ({k}, '{}', {k}.5)", "t".repeat(m as usize % 300)),
        4 => {
            format!("INSERT OR REPLACE INTO a VALUES ({k}, {m}, '{}', 1e{})", "u".repeat(k as usize), k % 20)
        }
        5 => format!("UPDATE a SET t = t || 'z', k = {m} WHERE k BETWEEN {k} AND {}", k + 3),
        6 => format!("DELETE FROM a WHERE id % {} = {}", 17 + k % 90, k % 17),
        7 | 8 => format!("INSERT OR REPLACE INTO b VALUES ('p{}', {m}, zeroblob({}))", k % 50, m * (k % 4)),
        9 => format!("DELETE FROM b WHERE p = 'p{}'", k % 50),
        10 => format!("INSERT INTO c (u) VALUES ({k}), ({}), ({m})", k + 1),
        11 => format!("UPDATE c SET u = u + {} WHERE id < {k}", m % 7),
        12 => {
            let end = if m % 2 == 0 { "ROLLBACK" } else { "COMMIT" };
            format!("BEGIN; INSERT INTO a (k) VALUES ({k}); DELETE FROM b WHERE q < {m}; {end}")
        }
        13 => format!(
            "BEGIN; SAVEPOINT s; UPDATE a SET x = x + 1 WHERE k < {k}; ROLLBACK TO s; \
                INSERT INTO b VALUES ('n', {number}, random()); COMMIT"
        ),
        14 => format!("INSERT INTO b VALUES ('r', random(), hex(randomblob({}))) ", k % 30),
        15 => format!("CREATE TABLE IF NOT EXISTS d{} (z INT, y DEFAULT CURRENT_TIMESTAMP)", k % 5),
        16 => format!("DROP TABLE IF EXISTS d{}", k % 5),
        _ => format!(
            "INSERT INTO a (k, t) SELECT k + 1, substr(t, 1, {k}) FROM a WHERE k < {m} ORDER BY id LIMIT 20"
        ),
    }
}

fn read(chance: &mut SplitMix64) -> &'static str {
    let reads = [
        "SELECT count(*), sum(k) FROM a",
        "SELECT * FROM a WHERE k = 17",
        "SELECT p, count(*) FROM b GROUP BY p",
        "SELECT * FROM c ORDER BY u DESC LIMIT 5",
    ];
    reads[chance.below(4) as usize]
}

/// One replica executes a log. Another one executes it on a service that is restored from the first one's pages now and
/// then, and so with other connections.
#[test]
fn pages_are_equal_at_replicas_with_different_pasts() {
    let is_long = std::env::var_os("CROSSCHECK_LONG").is_some();
    let seeds = if is_long { 2000 } else { 4 };
    let mut failed = 0;
    for seed in 0..seeds {
        let mut chance = SplitMix64::new(seed);
        let mut past = SplitMix64::new(seed + 1_000_000);
        let (mut one, mut other) = (replica(), replica());
        let log = SCHEMA.iter().map(|query| (*query).to_owned()).collect::<Vec<_>>();
        let random = (0..500).map(|number| statement(number, &mut chance));
        for (number, query) in log.into_iter().chain(random).enumerate() {
            let reply = bytes(&mut one, &query);
            failed += usize::from(reply.contains(&b'E') && crate::client::read(&reply).error.is_some());
            assert_eq!(reply, bytes(&mut other, &query), "seed {seed}, {number}: {query}");
            if number % 50 == 49 {
                assert_eq!(one.digests(), other.digests(), "seed {seed}, {number}: {query}");
            }
            if past.below(40) == 0 && number > 10 {
                let packed = one.with_region(0, |region| region.pack_all());
                other.with_region(0, |region| region.load_all(&packed)).expect("a packed region loads");
                // Requests that have no effect take the same positions at both.
                let query = read(&mut past);
                assert_eq!(bytes(&mut one, query), bytes(&mut other, query));
            }
        }
        assert_eq!(rows(&mut one, "SELECT count(*) > 0 FROM a"), ["1"]);
    }
    assert!(failed > 20, "statements that fail are a part of it: {failed}");
}

/// Also where each handler runs twice, is undone in between, and after a state transfer.
#[test]
fn requests_are_deterministic() {
    let mut chance = SplitMix64::new(7);
    let random = (0..400).map(|number| statement(number, &mut chance)).collect::<Vec<_>>();
    let mut reads = SplitMix64::new(8);
    let queries = SCHEMA.iter().map(|query| (*query).to_owned()).chain(random);
    let log: Vec<_> = queries.flat_map(|query| [encoded(&query), encoded(read(&mut reads))]).collect();
    check_deterministic(sql::Sql::new, &log).unwrap_or_else(|difference| panic!("{difference}"));
}

/// SQLite draws the names of columns that many others have while it compiles, and keeps those of views. In front of
/// every second query the other replica loses its connection.
#[test]
fn what_sqlite_draws_while_it_compiles_is_equal() {
    let (mut one, mut other) = (replica(), replica());
    let many = "SELECT * FROM (SELECT 1 a, 2 a, 3 a, 4 a, 5 a, 6 a, 7 a, 8 a)";
    for dialect in [Dialect::Sqlite, Dialect::Postgres] {
        let mut connections = [1, 1].map(|number| PgConnection::started(number, dialect));
        let parse = [b"\0", many.as_bytes(), b"\0\0\0"].concat();
        let extended =
            [message(b'P', &parse), message(b'B', &[0; 8]), message(b'D', b"P\0"), message(b'E', &[0; 5])]
                .concat();
        let queries = [
            message(b'Q', b"CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v INT)\0"),
            message(b'Q', b"DROP VIEW IF EXISTS w\0"),
            message(b'Q', b"CREATE VIEW w AS SELECT id, id, id, id, id, id, id, id FROM t\0"),
            message(b'Q', b"INSERT INTO t (v) VALUES (1)\0"),
            message(b'Q', b"SELECT * FROM w\0"),
            message(b'Q', b"SELECT * FROM w\0"),
            [&extended[..], &message(b'S', b"")].concat(),
            [&extended[..], &message(b'S', b"")].concat(),
            message(b'Q', b"INSERT INTO t VALUES (9223372036854775807, 2) ON CONFLICT DO NOTHING\0"),
            message(
                b'Q',
                b"INSERT INTO t (v) VALUES (3); INSERT INTO t (v) VALUES (4); SELECT id FROM t ORDER BY v\0",
            ),
        ];
        for round in 0..6 {
            for (number, query) in queries.iter().enumerate() {
                if number % 2 == 1 && round > 0 {
                    bytes(&mut other, "BEGIN; CREATE TABLE gone (a); ROLLBACK");
                    bytes(&mut one, "SELECT 1");
                }
                let replies = [&mut one, &mut other].into_iter().zip(&mut connections);
                let [left, right] = replies
                    .map(|(replica, connection)| replica.talk(connection, query))
                    .collect::<Vec<_>>()
                    .try_into()
                    .expect("two replies");
                let text = query.escape_ascii();
                assert!(left == right, "{round}: {text}\n{}\n{}", left.escape_ascii(), right.escape_ascii());
            }
            assert_eq!(one.digests()[0], other.digests()[0], "{round}");
        }
    }
}
