//! What a request costs on one thread: through the service, with checks and undo, and in plain SQLite in memory.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use crosscheck::object::to_bytes;
use crosscheck::testing::Replica;
use crosscheck::{Action, Progress, Protocol};
use rusqlite::{Connection, OpenFlags, Statement};
use sql::{Dialect, PgConnection, Sql, SqlRequest};
use wire::SplitMix64;

/// Rows of the table.
const ROWS: u64 = 100_000;

fn setup() -> [String; 3] {
    [
        "CREATE TABLE t (id INTEGER PRIMARY KEY, k INT, v TEXT)".to_owned(),
        "CREATE INDEX tk ON t (k)".to_owned(),
        format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) \
                INSERT INTO t SELECT i, i * 7919 % {ROWS}, printf('%0100d', i) FROM n"
        ),
    ]
}

/// A request for a key, by its name.
fn query(what: &str, key: u64) -> String {
    match what {
        "select by key" => format!("SELECT v FROM t WHERE id = {key}"),
        "select by index" => format!("SELECT v FROM t WHERE k = {key}"),
        "update by key" => format!("UPDATE t SET v = '{key:0100}' WHERE id = {key}"),
        "sum of 100 rows" => format!("SELECT sum(k) FROM t WHERE id BETWEEN {key} AND {}", key + 99),
        _ => "SELECT 1".to_owned(),
    }
}

/// The same with a parameter in the place of the key.
fn prepared(what: &str) -> &'static str {
    match what {
        "select by key" => "SELECT v FROM t WHERE id = $1",
        "select by index" => "SELECT v FROM t WHERE k = $1",
        "update by key" => "UPDATE t SET v = lpad($1::text, 100, '0') WHERE id = $1::int",
        "sum of 100 rows" => "SELECT sum(k) FROM t WHERE id BETWEEN $1 AND $1 + 99",
        _ => "SELECT $1",
    }
}

/// A client's connection with a prepared statement.
fn connection(what: &str) -> PgConnection {
    let mut connection = PgConnection::started(1, Dialect::Postgres);
    let types = if what == "update by key" { &[0, 0][..] } else { &[0, 1, 0, 0, 0, 20][..] };
    let parse = [b"s\0", prepared(what).as_bytes(), b"\0", types].concat();
    let ordered = order(&mut connection, &[message(b'P', &parse), message(b'S', b"")].concat());
    assert!(!ordered.is_empty());
    connection
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// The request for some messages.
fn order(connection: &mut PgConnection, input: &[u8]) -> Vec<u8> {
    match connection.next(input) {
        Progress::Done { action: Action::Order(ordered), .. } => ordered,
        other => panic!("no request: {other:?}"),
    }
}

/// The prepared statement with a key.
fn bound(connection: &mut PgConnection, key: u64) -> Vec<u8> {
    let key = key.to_string();
    let length = (key.len() as u32).to_be_bytes();
    let bind = [b"\0s\0\0\0\0\x01", &length[..], key.as_bytes(), b"\0\0"].concat();
    let execute = b"\0\0\0\0\0";
    order(connection, &[message(b'B', &bind), message(b'E', execute), message(b'S', b"")].concat())
}

fn costs(criterion: &mut Criterion) {
    let mut replica = Replica::new(Sql::new());
    // The first file system of SQLite in this process is ours; one in memory needs none, but for its name.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let plain = Connection::open_with_flags_and_vfs(":memory:", flags, c"unix").expect("SQLite opens");
    for text in setup() {
        replica.run(&to_bytes(&SqlRequest::query(&text)));
        plain.execute_batch(&text).expect("it is valid");
    }
    for what in ["nothing", "select by key", "select by index", "sum of 100 rows", "update by key"] {
        let mut group = criterion.benchmark_group(what);
        let mut keys = SplitMix64::new(1);
        group.bench_function("service, text", |bencher| {
            let request = || to_bytes(&SqlRequest::query(&query(what, 1 + keys.below(ROWS))));
            bencher.iter_batched(request, |request| replica.run(&request), BatchSize::SmallInput);
        });
        let mut keys = SplitMix64::new(1);
        group.bench_function("plain, text", |bencher| {
            let text = || query(what, 1 + keys.below(ROWS));
            bencher.iter_batched(
                text,
                |text| read(&mut plain.prepare(&text).expect("it is valid")),
                BatchSize::SmallInput,
            );
        });
        let (mut keys, mut connection) = (SplitMix64::new(1), connection(what));
        group.bench_function("service, prepared", |bencher| {
            let request = || bound(&mut connection, 1 + keys.below(ROWS));
            bencher.iter_batched(request, |request| replica.run(&request), BatchSize::SmallInput);
        });
        let mut keys = SplitMix64::new(1);
        let sql = match what {
            "update by key" => "UPDATE t SET v = printf('%0100d', ?1) WHERE id = ?1".to_owned(),
            _ => prepared(what).replace('$', "?"),
        };
        group.bench_function("plain, prepared", |bencher| {
            bencher.iter_batched(
                || 1 + keys.below(ROWS),
                |key| {
                    let mut statement = plain.prepare_cached(&sql).expect("it is valid");
                    statement.raw_bind_parameter(1, key as i64).expect("it has one");
                    read(&mut statement)
                },
                BatchSize::SmallInput,
            );
        });
        group.finish();
    }
}

/// Reads all rows.
fn read(statement: &mut Statement<'_>) -> usize {
    let mut rows = statement.raw_query();
    let mut bytes = 0;
    while let Some(row) = rows.next().expect("it runs") {
        bytes += row.get_ref(0).map_or(0, |value| value.as_bytes().map_or(8, <[u8]>::len));
    }
    bytes
}

criterion_group!(benches, costs);
criterion_main!(benches);
