//! The services that a trial can have, and what its clients ask of each: values under keys, so that one checker judges
//! the histories of all.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use memcached_client::history::Key;
use memcached_client::{CasReply, Client, Failure, StoreVerb, Value};
use serde::{Deserialize, Serialize};
use wire::SplitMix64;

use crate::client::KEYS;
use crate::sql::{self, SqlClient};

/// The program of the SQL service, beside this one.
const SQL_PROGRAM: &str = "crosscheck-sql";
/// Pages of the database that faults are placed in by their number: the first ones, which are there from the beginning
/// and have the schema, the accounts and the roots of all trees.
const FIRST_PAGES: u64 = 24;

/// The service that the replicas of a trial run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialService {
    /// memcached: this program is its server.
    #[default]
    Memcached,
    /// SQL: rows of a table are its keys, and there is a bank beside.
    Sql,
}

/// One connection of a client to values under keys.
pub trait KeyStore: Debug + Send {
    /// The values of these keys, all of one moment.
    ///
    /// # Errors
    /// There is no answer, or one that no correct server gives.
    fn gets(&mut self, keys: &[String]) -> Result<Vec<Option<Value>>, Failure>;

    /// Stores a value; returns whether it did.
    ///
    /// # Errors
    /// As for [`KeyStore::gets`].
    fn store(&mut self, verb: StoreVerb, key: &str, value: &[u8]) -> Result<bool, Failure>;

    /// Stores `value` where `expected` is, which had the number `unique` if the service numbers values.
    ///
    /// # Errors
    /// As for [`KeyStore::gets`].
    fn cas(&mut self, key: &str, expected: &[u8], value: &[u8], unique: u64) -> Result<CasReply, Failure>;

    /// Deletes a key; returns whether it was there.
    ///
    /// # Errors
    /// As for [`KeyStore::gets`].
    fn delete(&mut self, key: &str) -> Result<bool, Failure>;

    /// The behavior as which the group acts, of a service whose releases have several.
    ///
    /// # Errors
    /// As for [`KeyStore::gets`].
    fn behavior(&mut self) -> Result<u16, Failure> {
        Ok(0)
    }

    /// Adds to a number; returns the sum, or none where nothing is there.
    ///
    /// # Errors
    /// As for [`KeyStore::gets`].
    fn incr(&mut self, key: &str, by: u64) -> Result<Option<u64>, Failure>;
}

impl KeyStore for Client {
    fn gets(&mut self, keys: &[String]) -> Result<Vec<Option<Value>>, Failure> {
        Client::gets(self, keys)
    }

    fn store(&mut self, verb: StoreVerb, key: &str, value: &[u8]) -> Result<bool, Failure> {
        Client::store(self, verb, key, value)
    }

    fn cas(&mut self, key: &str, _expected: &[u8], value: &[u8], unique: u64) -> Result<CasReply, Failure> {
        Client::cas(self, key, value, unique)
    }

    fn delete(&mut self, key: &str) -> Result<bool, Failure> {
        Client::delete(self, key)
    }

    fn behavior(&mut self) -> Result<u16, Failure> {
        Client::behavior(self)
    }

    fn incr(&mut self, key: &str, by: u64) -> Result<Option<u64>, Failure> {
        Client::incr(self, key, by)
    }
}

impl TrialService {
    /// Connects to values under keys.
    ///
    /// # Errors
    /// The replica does not accept in time.
    pub fn connect(
        self,
        address: SocketAddr,
        connect: Duration,
        reply: Duration,
    ) -> Result<Box<dyn KeyStore>, Failure> {
        Ok(match self {
            TrialService::Memcached => Box::new(Client::connect_within(address, connect, reply)?),
            TrialService::Sql => Box::new(SqlClient::connect_within(address, connect, reply)?),
        })
    }

    /// The program whose `serve` is a replica; none: this one. `given` is the operator's.
    ///
    /// # Errors
    /// There is none, or it was built without the injector.
    pub fn program(self, given: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
        if self == TrialService::Memcached {
            if let Some(given) = given {
                bail!("--server {}: memcached's server is this program; leave it out", given.display());
            }
            return Ok(None);
        }
        let path = match given {
            Some(given) => std::path::absolute(given)?,
            None => std::env::current_exe()?.with_file_name(SQL_PROGRAM),
        };
        if !path.is_file() {
            let build = "cargo build --release -p sql --features inject";
            bail!("{} does not exist: build it ({build}), or name it with --server", path.display());
        }
        let help = std::process::Command::new(&path).args(["inject", "--help"]).output();
        if !help.with_context(|| format!("running {}", path.display()))?.status.success() {
            bail!("{} has no injector: build it with `--features inject`", path.display());
        }
        Ok(Some(path))
    }

    /// An object that clients use: the item of a key of this generation, or what has a row of the bank.
    pub fn object(self, draw: &mut SplitMix64, (generation, run): (u32, u64), accounts: u32) -> String {
        let number = draw.below(u64::from(KEYS.0 + KEYS.1)) as u16;
        let key = Key { generation, number }.name(run);
        match self {
            TrialService::Memcached => format!("item:{key}"),
            TrialService::Sql => match draw.below(4) {
                0 => format!("row:{}:{key}", sql::ROWS),
                1 if accounts > 0 => format!("row:accounts:{}", 1 + draw.below(u64::from(accounts))),
                2 => format!("page:{}", 1 + draw.below(FIRST_PAGES)),
                _ => format!("row:transfers:{}", 1 + draw.below(500)),
            },
        }
    }
}
