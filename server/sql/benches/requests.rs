//! What a request costs on one thread: through the service, with checks and undo, and in plain SQLite in memory.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use crosscheck::object::to_bytes;
use crosscheck::testing::Replica;
use rusqlite::{Connection, OpenFlags};
use sql::{Sql, SqlRequest};
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
        group.bench_function("service", |bencher| {
            let request = || to_bytes(&SqlRequest::query(&query(what, 1 + keys.below(ROWS))));
            bencher.iter_batched(request, |request| replica.run(&request), BatchSize::SmallInput);
        });
        let mut keys = SplitMix64::new(1);
        group.bench_function("plain", |bencher| {
            let text = || query(what, 1 + keys.below(ROWS));
            bencher.iter_batched(
                text,
                |text| {
                    let mut statement = plain.prepare(&text).expect("it is valid");
                    let mut rows = statement.raw_query();
                    let mut bytes = 0;
                    while let Some(row) = rows.next().expect("it runs") {
                        bytes += row.get_ref(0).map_or(0, |value| value.as_bytes().map_or(8, <[u8]>::len));
                    }
                    bytes
                },
                BatchSize::SmallInput,
            );
        });
        group.finish();
    }
}

criterion_group!(benches, costs);
criterion_main!(benches);
