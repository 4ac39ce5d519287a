//! The database in a simulated group: ten seeds with flipped bits, and a few with every kind of fault.

use std::collections::BTreeMap;
use std::sync::Arc;

use crosscheck::MakeProtocol;
use sim::testing::{all_faults_keep_every_promise, flips_are_repaired, short};
use sim::{CommandSource, Options, ReferenceModel, Turn, Workload, same_bytes, simulate};
use sql::error::SqlError;
use sql::reply::{ReplyWriter, TransactionStatus};
use sql::types::PgType;
use sql::{Dialect, PgConnection, Sql};
use vote::Place;
use wire::SplitMix64;

/// Keys that clients use.
const KEYS: u64 = 40;

/// A client's command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Command {
    Put { key: u64, value: u64 },
    Add { key: u64, value: u64 },
    Move { from: u64, to: u64, value: u64 },
    Delete { key: u64 },
    Get { key: u64 },
    Sum,
}

impl Command {
    fn text(&self) -> String {
        match self {
            Command::Put { key, value } => format!(
                "CREATE TABLE IF NOT EXISTS t (k INTEGER PRIMARY KEY, v INT CHECK (v < 1000000000), x TEXT); \
                    CREATE INDEX IF NOT EXISTS tv ON t (v); \
                    INSERT INTO t VALUES ({key}, {value}, printf('%0500d', {key})) \
                    ON CONFLICT (k) DO UPDATE SET v = excluded.v"
            ),
            Command::Add { key, value } => {
                format!("UPDATE t SET v = v + {value} WHERE k = {key} RETURNING v")
            }
            Command::Move { from, to, value } => format!(
                "UPDATE t SET v = v - {value} WHERE k = {from}; UPDATE t SET v = v + {value} WHERE k = {to}"
            ),
            Command::Delete { key } => format!("DELETE FROM t WHERE k = {key}"),
            Command::Get { key } => format!("SELECT v FROM t WHERE k = {key}"),
            Command::Sum => "SELECT count(*), sum(v) FROM t WHERE v > -1000000000".to_owned(),
        }
    }
}

#[derive(Clone)]
struct OfSql;

impl Workload for OfSql {
    type Service = Sql;
    type Protocol = PgConnection;
    type Command = Command;
    type Source = Customer;
    type Model = Table;

    fn start(&self) -> Result<(Sql, MakeProtocol<PgConnection>), String> {
        Ok((Sql::new(), Arc::new(|_| PgConnection::started(7, Dialect::Sqlite))))
    }

    fn bytes(&self, command: &Command) -> Vec<u8> {
        let text = command.text();
        [b"Q", &(text.len() as u32 + 5).to_be_bytes()[..], text.as_bytes(), b"\0"].concat()
    }

    fn source(&self, client: usize) -> Customer {
        Customer { client: client as u64, drawn: 0 }
    }

    fn model(&self) -> Table {
        Table::default()
    }

    fn final_reads(&self) -> Vec<Command> {
        (0..KEYS).map(|key| Command::Get { key }).chain([Command::Sum]).collect()
    }

    fn object(&self, draws: &mut SplitMix64) -> Option<String> {
        let page = format!("page:{}", 1 + draws.modulo(8));
        Some(if draws.modulo(8) == 0 { "database".to_owned() } else { page })
    }
}

/// A client that writes values that no other client writes.
struct Customer {
    client: u64,
    drawn: u64,
}

impl CommandSource for Customer {
    type Command = Command;

    fn draw(&mut self, draws: &mut SplitMix64) -> Command {
        let mut key = || draws.modulo(KEYS);
        let (from, to) = (key(), key());
        self.drawn += 1;
        let value = self.drawn << 6 | self.client;
        match draws.modulo(16) {
            0..=4 => Command::Put { key: to, value },
            5..=6 => Command::Add { key: to, value },
            7..=8 => Command::Move { from, to, value },
            9 => Command::Delete { key: to },
            10 => Command::Sum,
            _ => Command::Get { key: to },
        }
    }
}

/// The rows of the table, once there is one.
#[derive(Clone, Default)]
struct Table(Option<BTreeMap<u64, i64>>);

impl ReferenceModel for Table {
    type Command = Command;
    type Expected = Vec<u8>;

    fn apply(&mut self, command: &Command, _turn: Turn) -> Vec<u8> {
        let mut expected = Vec::new();
        let mut reply = ReplyWriter::new(&mut expected);
        if let Command::Put { .. } = command {
            self.0.get_or_insert_default();
        }
        let Some(rows) = &mut self.0 else {
            reply.error(&SqlError::plain("42P01", "no such table: t"));
            reply.ready(TransactionStatus::Idle);
            return expected;
        };
        let select = |names: &[&'static str], row: Option<Vec<i64>>, reply: &mut ReplyWriter<'_>| {
            reply.row_description(names.iter().map(|name| (*name, PgType::Int8)), &[]);
            if let Some(row) = row {
                let value = |column: usize| Ok(rusqlite::types::ValueRef::Integer(row[column]));
                assert!(reply.data_row(&vec![PgType::Int8; row.len()], &[], value).is_ok());
            }
        };
        match *command {
            Command::Put { key, value } => {
                rows.insert(key, value as i64);
                reply.complete("CREATE TABLE");
                reply.complete("CREATE INDEX");
                reply.complete("INSERT 0 1");
            }
            Command::Add { key, value } => {
                let found = rows.get_mut(&key);
                let is_found = found.is_some();
                let now = found.map(|found| {
                    *found += value as i64;
                    vec![*found]
                });
                select(&["v"], now, &mut reply);
                reply.complete(if is_found { "UPDATE 1" } else { "UPDATE 0" });
            }
            Command::Move { from, to, value } => {
                for (key, change) in [(from, -(value as i64)), (to, value as i64)] {
                    let found = rows.get_mut(&key).map(|found| *found += change);
                    reply.complete(if found.is_some() { "UPDATE 1" } else { "UPDATE 0" });
                }
            }
            Command::Delete { key } => {
                reply.complete(if rows.remove(&key).is_some() { "DELETE 1" } else { "DELETE 0" });
            }
            Command::Get { key } => {
                let row = rows.get(&key).map(|value| vec![*value]);
                let tag = if row.is_some() { "SELECT 1" } else { "SELECT 0" };
                select(&["v"], row, &mut reply);
                reply.complete(tag);
            }
            Command::Sum if rows.is_empty() => {
                let columns = [("count(*)", PgType::Int8), ("sum(v)", PgType::Text)];
                reply.row_description(columns.into_iter(), &[]);
                let values = [rusqlite::types::ValueRef::Integer(0), rusqlite::types::ValueRef::Null];
                assert!(reply.data_row(&columns.map(|(_, of)| of), &[], |column| Ok(values[column])).is_ok());
                reply.complete("SELECT 1");
            }
            Command::Sum => {
                let row = vec![rows.len() as i64, rows.values().sum()];
                select(&["count(*)", "sum(v)"], Some(row), &mut reply);
                reply.complete("SELECT 1");
            }
        }
        reply.ready(TransactionStatus::Idle);
        expected
    }

    fn compare(&mut self, expected: &Vec<u8>, _place: Place, reply: &[u8]) -> Result<(), String> {
        same_bytes(expected, reply)
    }

    fn clear(&mut self) {
        *self = Table::default();
    }
}

/// How many seeds: 2,000 in all where time does not matter.
fn seeds(few: u64, many: u64) -> u64 {
    if std::env::var_os("CROSSCHECK_LONG").is_some() { many } else { few }
}

#[test]
fn flipped_bits_in_pages_are_repaired() {
    flips_are_repaired(&OfSql, 1..=seeds(10, 200));
}

#[test]
fn every_kind_of_fault_leaves_every_promise_kept() {
    all_faults_keep_every_promise(&OfSql, 1..=seeds(4, 1000));
}

#[test]
fn verified_mode_keeps_every_promise() {
    for seed in 1..=seeds(3, 800) {
        let options = Options { verified: true, workers: 2, ..short("all") };
        assert_eq!(simulate(&OfSql, seed, &options).violation, None, "seed {seed}");
    }
}
