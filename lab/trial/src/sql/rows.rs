//! Rows of a table as keys with values, for the checker of histories.

use std::collections::HashMap;

use memcached_client::{CasReply, Failure, StoreVerb, Value};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::{ToSql, Type};

use super::connection::{SqlClient, column};
use crate::service::KeyStore;

/// The table: `key text PRIMARY KEY, value text`.
pub const TABLE: &str = "kv";

impl KeyStore for SqlClient {
    fn gets(&mut self, keys: &[String]) -> Result<Vec<Option<Value>>, Failure> {
        let places: Vec<String> = (1..=keys.len()).map(|number| format!("${number}")).collect();
        let text = format!("SELECT key, value FROM {TABLE} WHERE key IN ({})", places.join(", "));
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> =
            keys.iter().map(|key| (key as &(dyn ToSql + Sync), Type::TEXT)).collect();
        let mut found = HashMap::new();
        for row in self.query(&text, &parameters)? {
            let (key, value): (String, String) = (column(&row, 0)?, column(&row, 1)?);
            if !keys.contains(&key) || found.insert(key.clone(), value).is_some() {
                return Err(Failure::Malformed(format!("a row with the key {key}")));
            }
        }
        let value =
            |key: &String| Some(Value { flags: 0, bytes: found.get(key)?.clone().into_bytes(), unique: 0 });
        Ok(keys.iter().map(value).collect())
    }

    fn store(&mut self, verb: StoreVerb, key: &str, value: &[u8]) -> Result<bool, Failure> {
        let text = match verb {
            StoreVerb::Set => {
                "INSERT INTO kv VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            }
            StoreVerb::Add => "INSERT INTO kv VALUES ($1, $2) ON CONFLICT (key) DO NOTHING",
            StoreVerb::Replace => "UPDATE kv SET value = $2 WHERE key = $1",
            StoreVerb::Append => "UPDATE kv SET value = value || $2 WHERE key = $1",
            StoreVerb::Prepend => "UPDATE kv SET value = $2 || value WHERE key = $1",
        };
        let value = text_of(value);
        at_most_one(self.execute(text, &[(&key, Type::TEXT), (&value, Type::TEXT)])?)
    }

    fn cas(&mut self, key: &str, expected: &[u8], value: &[u8], _unique: u64) -> Result<CasReply, Failure> {
        // Both statements see one moment: the second one tells another value from none.
        let (key, expected, value) = (quoted(key.as_bytes()), quoted(expected), quoted(value));
        let reply = self.simple(&format!(
            "UPDATE {TABLE} SET value = {value} WHERE key = {key} AND value = {expected};
             SELECT 1 FROM {TABLE} WHERE key = {key}"
        ))?;
        let mut counts = reply.iter().filter_map(|message| match message {
            SimpleQueryMessage::CommandComplete(count) => Some(*count),
            _ => None,
        });
        match (counts.next(), counts.next(), counts.next()) {
            (Some(1), Some(1), None) => Ok(CasReply::Stored),
            (Some(0), Some(1), None) => Ok(CasReply::Exists),
            (Some(0), Some(0), None) => Ok(CasReply::Missing),
            counts => Err(Failure::Malformed(format!("counts of rows {counts:?}"))),
        }
    }

    fn delete(&mut self, key: &str) -> Result<bool, Failure> {
        at_most_one(self.execute("DELETE FROM kv WHERE key = $1", &[(&key, Type::TEXT)])?)
    }

    fn incr(&mut self, key: &str, by: u64) -> Result<Option<u64>, Failure> {
        let text =
            "UPDATE kv SET value = CAST(CAST(value AS bigint) + $2 AS text) WHERE key = $1 RETURNING value";
        let rows = self.query(text, &[(&key, Type::TEXT), (&(by as i64), Type::INT8)])?;
        match &rows[..] {
            [] => Ok(None),
            [row] => {
                let sum: String = column(row, 0)?;
                sum.parse().map(Some).map_err(|_| Failure::Malformed(format!("a sum {sum}")))
            }
            _ => Err(Failure::Malformed(format!("{} rows with one key", rows.len()))),
        }
    }
}

fn at_most_one(count: u64) -> Result<bool, Failure> {
    match count {
        0 | 1 => Ok(count == 1),
        _ => Err(Failure::Malformed(format!("{count} rows with one key"))),
    }
}

/// A value of the trial, which is text.
fn text_of(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// A literal of SQL.
fn quoted(value: &[u8]) -> String {
    format!("'{}'", text_of(value).replace('\'', "''"))
}
