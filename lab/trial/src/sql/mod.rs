//! Clients of the SQL service: one connection with a time limit for every reply, rows as keys with values, and a bank.

mod bank;
mod connection;
mod ledger;
mod rows;

pub use bank::{Bank, BankReport, Comparison};
pub use connection::SqlClient;
pub use ledger::{Ledger, LedgerFaults, Transfer, TransferState};
pub use rows::TABLE as ROWS;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::client::{CONNECT, RECONNECT};

/// What each account has in the beginning.
const FIRST_BALANCE: i64 = 1_000_000;
/// How long the tables may take until they are there.
const PREPARED: Duration = Duration::from_secs(30);

/// Makes the tables, and so many accounts.
///
/// # Errors
/// The service refuses it, or does not answer.
pub fn prepare(address: SocketAddr, accounts: u32, patience: Duration) -> anyhow::Result<()> {
    let values: Vec<String> = (1..=accounts).map(|id| format!("({id}, {FIRST_BALANCE})")).collect();
    // One query is one transaction: what did not answer is asked once more, and has happened or has not.
    let mut query = format!(
        "CREATE TABLE IF NOT EXISTS {ROWS} (key text PRIMARY KEY, value text NOT NULL);
         CREATE TABLE IF NOT EXISTS accounts (id integer PRIMARY KEY, balance bigint NOT NULL);
         CREATE TABLE IF NOT EXISTS transfers (id bigserial PRIMARY KEY, name text NOT NULL,
             source integer NOT NULL, target integer NOT NULL, amount bigint NOT NULL);
         CREATE INDEX IF NOT EXISTS transfers_by_name ON transfers (name);"
    );
    if accounts > 0 {
        query += &format!("INSERT INTO accounts VALUES {} ON CONFLICT (id) DO NOTHING", values.join(", "));
    }
    let deadline = Instant::now() + PREPARED;
    loop {
        let made = SqlClient::connect_within(address, CONNECT, patience)
            .and_then(|mut client| client.simple(&query).map(drop));
        match made {
            Ok(()) => return Ok(()),
            Err(why) if Instant::now() > deadline => bail!("the tables cannot be made: {why}"),
            Err(_) => std::thread::sleep(RECONNECT),
        }
    }
}
