//! Statements on rows that one connection has for itself, so that each has one right reply: what is right says a map.

use std::collections::BTreeMap;

use memcached_client::request::letters;
use wire::SplitMix64;

use crate::model::Expected;
use crate::postgres::{self, ColumnType};

/// Keys of a connection.
const KEYS: u64 = 40;
/// Longest value, in bytes.
const LONGEST: u64 = 200;
/// The table of all connections.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS kv (k text PRIMARY KEY, v text NOT NULL, n bigint NOT NULL)";

/// The rows of one connection: those whose keys begin with its prefix.
#[derive(Debug)]
pub struct RowsModel {
    prefix: String,
    keys: u64,
    rows: BTreeMap<String, (String, i64)>,
}

impl RowsModel {
    /// Keys that begin with `prefix`, none stored.
    pub fn new(prefix: String) -> Self {
        RowsModel { prefix, keys: KEYS, rows: BTreeMap::new() }
    }

    /// The same with so many keys.
    pub fn with_keys(self, keys: u64) -> Self {
        RowsModel { keys, ..self }
    }

    /// What a connection sends first: the message that opens it, and the statement that makes the table. Each has one
    /// reply, which is not compared: it contains what the server is free to choose.
    pub fn opening() -> [Vec<u8>; 2] {
        [postgres::startup(), postgres::query(TABLE)]
    }

    /// A statement without effect.
    pub fn nothing() -> Vec<u8> {
        postgres::query("SELECT 1")
    }

    /// Draws a statement and applies it.
    pub fn next(&mut self, stream: &mut SplitMix64) -> Expected {
        let number = stream.below(self.keys);
        match stream.below(100) {
            0..38 => self.select(number),
            38..46 => self.sum(),
            46..52 => self.list(),
            52..68 => self.insert(number, stream),
            68..80 => self.update(number, stream),
            80..94 => self.add(number, stream),
            _ => self.delete(number),
        }
    }

    fn key(&self, number: u64) -> String {
        format!("{}k{number:02}", self.prefix)
    }

    /// The row of a key.
    pub fn select(&self, number: u64) -> Expected {
        let key = self.key(number);
        let row = |(v, n): &(String, i64)| vec![Some(v.clone()), Some(n.to_string())];
        let found: Vec<_> = self.rows.get(&key).map(row).into_iter().collect();
        let columns = [("v", ColumnType::Text), ("n", ColumnType::Bigint)];
        expected(format!("SELECT v, n FROM kv WHERE k = '{key}'"), postgres::rows(&columns, &found))
    }

    /// All numbers of the connection, added by the service.
    pub fn sum(&self) -> Expected {
        let sum: i64 = self.rows.values().map(|(_, n)| n).sum();
        let row = vec![Some(self.rows.len().to_string()), (!self.rows.is_empty()).then(|| sum.to_string())];
        let columns = [("count", ColumnType::Bigint), ("sum", ColumnType::Bigint)];
        let text = format!("SELECT count(*), sum(n) FROM kv WHERE {}", self.range());
        expected(text, postgres::rows(&columns, &[row]))
    }

    /// The first rows in the order of their keys.
    fn list(&self) -> Expected {
        let row = |(k, (_, n)): (&String, &(String, i64))| vec![Some(k.clone()), Some(n.to_string())];
        let found: Vec<_> = self.rows.iter().take(5).map(row).collect();
        let columns = [("k", ColumnType::Text), ("n", ColumnType::Bigint)];
        let text = format!("SELECT k, n FROM kv WHERE {} ORDER BY k LIMIT 5", self.range());
        expected(text, postgres::rows(&columns, &found))
    }

    fn range(&self) -> String {
        format!("k >= '{0}k' AND k < '{0}l'", self.prefix)
    }

    /// A new row, or none where one is.
    pub fn insert(&mut self, number: u64, stream: &mut SplitMix64) -> Expected {
        let (key, value, n) = (self.key(number), value(stream), stream.below(1_000_000) as i64);
        let text = format!("INSERT INTO kv VALUES ('{key}', '{value}', {n}) ON CONFLICT (k) DO NOTHING");
        let is_new = !self.rows.contains_key(&key);
        self.rows.entry(key).or_insert((value, n));
        expected(text, postgres::done(&format!("INSERT 0 {}", u8::from(is_new))))
    }

    fn update(&mut self, number: u64, stream: &mut SplitMix64) -> Expected {
        let (key, value) = (self.key(number), value(stream));
        let text = format!("UPDATE kv SET v = '{value}' WHERE k = '{key}'");
        let found = self.rows.get_mut(&key).map(|row| row.0 = value);
        expected(text, postgres::done(&format!("UPDATE {}", u8::from(found.is_some()))))
    }

    fn add(&mut self, number: u64, stream: &mut SplitMix64) -> Expected {
        let (key, by) = (self.key(number), stream.below(1_000) as i64);
        let text = format!("UPDATE kv SET n = n + {by} WHERE k = '{key}'");
        let found = self.rows.get_mut(&key).map(|row| row.1 += by);
        expected(text, postgres::done(&format!("UPDATE {}", u8::from(found.is_some()))))
    }

    fn delete(&mut self, number: u64) -> Expected {
        let key = self.key(number);
        let found = self.rows.remove(&key);
        let text = format!("DELETE FROM kv WHERE k = '{key}'");
        expected(text, postgres::done(&format!("DELETE {}", u8::from(found.is_some()))))
    }
}

fn expected(text: String, reply: Vec<u8>) -> Expected {
    Expected { request: postgres::query(&text), keys: Vec::new(), reply, seed: 0 }
}

fn value(stream: &mut SplitMix64) -> String {
    // Letters: none of them ends a literal.
    letters(1 + stream.below(LONGEST), stream).into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw;
    use crate::protocol::{Protocol, Wrong};

    #[test]
    fn the_model_remembers_rows_and_their_sum() {
        let (mut model, mut stream) = (RowsModel::new("x".into()), draw::stream(1, 0, 0));
        assert_eq!(model.insert(1, &mut stream).reply, postgres::done("INSERT 0 1"));
        assert_eq!(model.insert(1, &mut stream).reply, postgres::done("INSERT 0 0"), "it is there");
        let before = model.sum().reply;
        assert_eq!(model.add(1, &mut stream).reply, postgres::done("UPDATE 1"));
        let wrong = Protocol::Postgres.difference(&[], 0, &model.sum().reply, &before);
        assert_eq!(wrong, Some(Wrong::Value), "a sum that lost an update is wrong");
        assert_eq!(model.delete(1).reply, postgres::done("DELETE 1"));
        assert_eq!(model.update(1, &mut stream).reply, postgres::done("UPDATE 0"));
    }

    #[test]
    fn a_seed_repeats_its_statements() {
        let bytes = |seed| {
            let (mut model, mut stream) = (RowsModel::new("x".into()), draw::stream(seed, 0, 0));
            (0..500).flat_map(|_| model.next(&mut stream).request).collect::<Vec<u8>>()
        };
        assert_eq!(bytes(3), bytes(3));
        assert_ne!(bytes(3), bytes(4));
        let text = String::from_utf8_lossy(&bytes(3)).into_owned();
        for word in ["SELECT v", "sum(n)", "ORDER BY", "INSERT", "SET v", "SET n", "DELETE"] {
            assert!(text.contains(word), "{word}");
        }
    }
}
