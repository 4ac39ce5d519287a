//! Clients that transfer amounts between accounts in transactions of several queries, one that reads the sum of all
//! accounts all the time, and the comparison of what the tables have with what was acknowledged.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use memcached_client::Failure;
use serde::Serialize;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;
use wire::SplitMix64;

use super::FIRST_BALANCE;
use super::connection::{SqlClient, column, has_code};
use super::ledger::{Ledger, LedgerFaults, Transfer, TransferState};
use crate::client::{CONNECT, RECONNECT, SharedRun};
use crate::draw::stream;
use crate::place::ClientPlace;

/// The code of a transaction that has to be run again.
const AGAIN: &str = "40001";
/// The highest amount of a transfer.
const MOST: u64 = 100;
/// Wrong sums that are listed one by one.
const MOST_SHOWN: usize = 20;
/// How long a comparison is tried.
const COMPARED: Duration = Duration::from_secs(30);
/// How long the reply with all rows may take.
const ALL_ROWS: Duration = Duration::from_secs(20);

/// One comparison of the tables with the ledger.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// When, in seconds of the run.
    pub at: f64,
    /// The replica that was asked, from 1.
    pub replica: u8,
    /// What came before it.
    pub after: String,
    /// Whether that was a kill.
    pub is_kill: bool,
    /// Transfers that were acknowledged before: each was looked for.
    pub acknowledged: u64,
    /// Rows of the table.
    pub rows: u64,
    /// The differences; none where no replica gave both tables.
    pub faults: Result<LedgerFaults, String>,
}

/// What the bank shows of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BankReport {
    /// Transfers whose COMMIT was acknowledged.
    pub acknowledged: u64,
    /// Transfers whose COMMIT had no answer.
    pub unknown: u64,
    /// Transfers that were given up before COMMIT.
    pub void: u64,
    /// Transactions that were begun again, because another one had changed what they read (40001).
    pub begun_again: u64,
    /// Sums that were read.
    pub sums: u64,
    /// Of these, sums that were wrong.
    pub wrong_sums: u64,
    /// Replies that no correct server gives.
    pub impossible: u64,
    /// The first wrong sums and replies, as text.
    pub shown: Vec<String>,
    /// Comparisons of all rows.
    pub comparisons: Vec<Comparison>,
}

/// What all clients of the bank know.
#[derive(Debug)]
pub struct Bank {
    accounts: u32,
    known: Mutex<BankKnowledge>,
}

#[derive(Debug, Default)]
struct BankKnowledge {
    ledger: Ledger,
    begun_again: u64,
    sums: u64,
    wrong_sums: u64,
    impossible: u64,
    shown: Vec<String>,
    comparisons: Vec<Comparison>,
}

impl Bank {
    /// A bank with so many accounts.
    pub fn new(accounts: u32) -> Arc<Self> {
        Arc::new(Bank { accounts, known: Mutex::default() })
    }

    /// Transfers amounts as client `number` until the run is over, with `interval` between two transfers on average.
    pub fn transfer(self: Arc<Self>, number: u16, shared: Arc<SharedRun>, interval: Duration) {
        BankClient::new(number, shared, self).run(interval, BankClient::transfer_once);
    }

    /// Reads the sum of all accounts as client `number` until the run is over.
    pub fn audit(self: Arc<Self>, number: u16, shared: Arc<SharedRun>, interval: Duration) {
        BankClient::new(number, shared, self).run(interval, BankClient::read_sum);
    }

    /// Compares all rows, as a replica has them, with the ledger; `first` (from 0) is asked first. Clients go on
    /// meanwhile.
    pub fn compare(&self, shared: &SharedRun, first: usize, (after, is_kill): (&str, bool)) -> Comparison {
        let deadline = Instant::now() + COMPARED;
        let mut at = first % shared.replicas.len();
        let due = self.known().ledger.acknowledged();
        let read = loop {
            let read = SqlClient::connect_within(shared.replicas[at], CONNECT, ALL_ROWS)
                .and_then(|mut client| tables(&mut client));
            if read.is_ok() || Instant::now() > deadline {
                break read;
            }
            at = (at + 1) % shared.replicas.len();
            thread::sleep(RECONNECT);
        };
        let mut known = self.known();
        let (rows, faults) = match read {
            Ok((balances, rows)) => {
                let accounts = (self.accounts, FIRST_BALANCE);
                (rows.len() as u64, Ok(known.ledger.compare(&due, &rows, &balances, accounts)))
            }
            Err(why) => (0, Err(why.to_string())),
        };
        let comparison = Comparison {
            at: shared.announcer.now() as f64 / 1e9,
            replica: at as u8 + 1,
            after: after.to_owned(),
            is_kill,
            acknowledged: due.len() as u64,
            rows,
            faults,
        };
        known.comparisons.push(comparison.clone());
        comparison
    }

    /// What the bank shows.
    pub fn report(&self) -> BankReport {
        let known = self.known();
        BankReport {
            acknowledged: known.ledger.count(TransferState::Acknowledged),
            unknown: known.ledger.count(TransferState::Unknown),
            void: known.ledger.count(TransferState::Void),
            begun_again: known.begun_again,
            sums: known.sums,
            wrong_sums: known.wrong_sums,
            impossible: known.impossible,
            shown: known.shown.clone(),
            comparisons: known.comparisons.clone(),
        }
    }

    fn known(&self) -> MutexGuard<'_, BankKnowledge> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, what: String, count: impl Fn(&mut BankKnowledge) -> &mut u64) {
        let mut known = self.known();
        *count(&mut known) += 1;
        if known.shown.len() < MOST_SHOWN {
            known.shown.push(what);
        }
    }

    /// Records a sum; `count` accounts were there.
    fn on_sum(&self, sum: i64, count: i64, (replica, at): (u8, u64)) {
        self.known().sums += 1;
        let accounts = i64::from(self.accounts);
        if (sum, count) != (accounts * FIRST_BALANCE, accounts) {
            let seconds = at as f64 / 1e9;
            let what = format!("at {seconds:.3} s replica {replica}: {count} accounts with {sum} in all");
            self.show(what, |known| &mut known.wrong_sums);
        }
    }
}

impl Comparison {
    /// The comparison in a line.
    pub fn line(&self) -> String {
        let found = match &self.faults {
            Ok(faults) if faults.count() == 0 => "all are there, once each, and no other".to_owned(),
            Ok(faults) => format!("WRONG: {}", faults.shown.join("; ")),
            Err(why) => format!("NOT READ: {why}"),
        };
        format!(
            "     after {}: {} acknowledged transfers, {} rows at replica {}: {found}",
            self.after, self.acknowledged, self.rows, self.replica
        )
    }
}

impl BankReport {
    /// Wrong replies, and rows and balances that are not as they must be.
    pub fn wrong(&self) -> u64 {
        let faults = |comparison: &Comparison| comparison.faults.as_ref().map_or(0, LedgerFaults::count);
        self.wrong_sums + self.impossible + self.comparisons.iter().map(faults).sum::<u64>()
    }

    /// Whether something was transferred, all rows were compared in the end, and nothing was wrong.
    pub fn holds(&self) -> bool {
        self.wrong() == 0
            && self.acknowledged > 0
            && self.sums > 0
            && !self.comparisons.is_empty()
            && self.comparisons.iter().all(|comparison| comparison.faults.is_ok())
    }

    /// Comparisons after kills.
    pub fn after_kills(&self) -> usize {
        self.comparisons.iter().filter(|comparison| comparison.is_kill).count()
    }

    /// The report in some lines.
    pub fn lines(&self) -> Vec<String> {
        let mut all = LedgerFaults::default();
        let unread = self.comparisons.iter().filter(|comparison| comparison.faults.is_err()).count();
        for faults in self.comparisons.iter().filter_map(|comparison| comparison.faults.as_ref().ok()) {
            all.missing += faults.missing;
            all.doubled += faults.doubled;
            all.changed += faults.changed;
            all.foreign += faults.foreign;
            all.balances += faults.balances;
        }
        let rows: u64 = self.comparisons.iter().map(|comparison| comparison.acknowledged).sum();
        vec![
            format!(
                "bank                    {} transfers acknowledged, {} of unknown outcome, {} given up, {} begun \
                 again (40001); {} sums read, {} wrong; impossible replies {}",
                self.acknowledged,
                self.unknown,
                self.void,
                self.begun_again,
                self.sums,
                self.wrong_sums,
                self.impossible
            ),
            format!(
                "compared row by row     {} times, {} of them after a kill, {rows} acknowledged transfers looked for: \
                 {} missing, {} doubled, {} changed, {} foreign, {} wrong balances; {unread} not read",
                self.comparisons.len(),
                self.after_kills(),
                all.missing,
                all.doubled,
                all.changed,
                all.foreign,
                all.balances
            ),
        ]
    }
}

/// Both tables of one moment: balances, and transfers by their names.
type BankTables = (Vec<(u32, i64)>, Vec<(String, Transfer)>);

/// Reads both tables in one transaction.
fn tables(client: &mut SqlClient) -> Result<BankTables, Failure> {
    let reply = client.simple(
        "SELECT id, balance FROM accounts ORDER BY id; SELECT name, source, target, amount FROM transfers ORDER BY id",
    )?;
    let (mut balances, mut rows) = (Vec::new(), Vec::new());
    for message in &reply {
        let SimpleQueryMessage::Row(row) = message else { continue };
        match row.len() {
            2 => balances.push((number(row.get(0))?, number(row.get(1))?)),
            4 => {
                let name = row.get(0).unwrap_or_default().to_owned();
                let (source, target) = (number(row.get(1))?, number(row.get(2))?);
                rows.push((name, Transfer { source, target, amount: number(row.get(3))? }));
            }
            count => return Err(Failure::Malformed(format!("a row of {count} columns"))),
        }
    }
    Ok((balances, rows))
}

fn number<T: std::str::FromStr>(text: Option<&str>) -> Result<T, Failure> {
    let malformed = || Failure::Malformed(format!("{text:?} instead of a number"));
    text.ok_or_else(malformed)?.parse().map_err(|_| malformed())
}

/// One client of the bank.
struct BankClient {
    place: ClientPlace,
    bank: Arc<Bank>,
    draw: SplitMix64,
    connection: Option<SqlClient>,
    sequence: u64,
}

/// How far a transaction came when it failed.
struct Broken {
    why: Failure,
    /// Whether its COMMIT had been sent.
    was_sent: bool,
}

impl From<Failure> for Broken {
    fn from(why: Failure) -> Self {
        Broken { why, was_sent: false }
    }
}

impl BankClient {
    fn new(number: u16, shared: Arc<SharedRun>, bank: Arc<Bank>) -> Self {
        let draw = stream(shared.seed, 0xBA4C + u64::from(number));
        BankClient { place: ClientPlace::new(number, shared), bank, draw, connection: None, sequence: 0 }
    }

    fn run(mut self, interval: Duration, mut once: impl FnMut(&mut Self)) {
        let mut generation = 0;
        while !self.place.shared.over.load(Ordering::Relaxed) {
            // All clients move home with each generation of keys, whether they use keys or not.
            let now = self.place.shared.generation_now();
            if std::mem::replace(&mut generation, now) != now && self.place.move_home() {
                self.connection = None;
            }
            if self.connection.is_none() && !self.connect() {
                thread::sleep(RECONNECT);
                continue;
            }
            once(&mut self);
            thread::sleep(interval.mul_f64(2.0 * self.draw.unit()));
        }
        // A client that waits when the run ends counts its wait until then.
        self.place.record_gap(self.place.now());
    }

    fn connect(&mut self) -> bool {
        let shared = &self.place.shared;
        match SqlClient::connect_within(self.place.address(), CONNECT, shared.patience) {
            Ok(connection) => {
                shared.connected.fetch_add(1, Ordering::Relaxed);
                self.connection = Some(connection);
            }
            Err(_) => self.place.move_on(),
        }
        self.connection.is_some()
    }

    /// One transfer, begun again until it is done or has failed otherwise.
    fn transfer_once(&mut self) {
        self.sequence += 1;
        let accounts = u64::from(self.bank.accounts);
        let source = 1 + self.draw.below(accounts) as u32;
        let target = 1 + (source - 1 + 1 + self.draw.below(accounts - 1) as u32) % self.bank.accounts;
        let transfer = Transfer { source, target, amount: 1 + self.draw.below(MOST) as i64 };
        let name = format!("b{}.{}", self.place.number, self.sequence);
        let note = |bank: &Bank, state| bank.known().ledger.note(&name, transfer, state);
        note(&self.bank, TransferState::Unknown);
        while !self.place.shared.over.load(Ordering::Relaxed) {
            match self.attempt(|client, was_sent| transaction(client, &name, transfer, was_sent)) {
                Ok(()) => return note(&self.bank, TransferState::Acknowledged),
                Err(Broken { why, .. }) if has_code(&why, AGAIN) => self.bank.known().begun_again += 1,
                Err(Broken { was_sent: true, .. }) => return,
                Err(Broken { was_sent: false, .. }) => break,
            }
        }
        note(&self.bank, TransferState::Void);
    }

    /// Reads the sum, in one statement or in a transaction of two.
    fn read_sum(&mut self) {
        self.sequence += 1;
        let half = (self.bank.accounts / 2) as i32;
        let read = match self.sequence % 2 {
            0 => self.attempt(|client, _| sum(client, "true", &[])),
            _ => self.attempt(|client, was_sent| {
                client.simple("BEGIN READ ONLY")?;
                let below = sum(client, "id <= $1", &[(&half, Type::INT4)])?;
                let above = sum(client, "id > $1", &[(&half, Type::INT4)])?;
                *was_sent = true;
                client.simple("COMMIT")?;
                Ok((below.0 + above.0, below.1 + above.1))
            }),
        };
        match read {
            Ok((sum, count)) => {
                self.bank.on_sum(sum, count, (self.place.replica(), self.place.now()));
            }
            Err(Broken { why, .. }) if has_code(&why, AGAIN) => self.bank.known().begun_again += 1,
            Err(_) => {}
        }
    }

    /// Runs a transaction, and records its answer. After a failure that is not 40001 the connection is given up.
    fn attempt<T>(
        &mut self,
        transaction: impl FnOnce(&mut SqlClient, &mut bool) -> Result<T, Failure>,
    ) -> Result<T, Broken> {
        let closed = || Failure::from(std::io::Error::from(std::io::ErrorKind::NotConnected));
        let connection = self.connection.as_mut().ok_or_else(closed)?;
        self.place.shared.sent.fetch_add(1, Ordering::Relaxed);
        let (sent, mut was_sent) = (self.place.now(), false);
        let result = transaction(connection, &mut was_sent);
        let ended = self.place.now();
        let why = match result {
            Ok(value) => {
                self.place.answered(ended);
                return Ok(value);
            }
            Err(why) => why,
        };
        if has_code(&why, AGAIN) && connection.simple("ROLLBACK").is_ok() {
            self.place.answered(ended);
            return Err(Broken { why, was_sent: false });
        }
        if let Failure::Malformed(what) = &why {
            let (replica, seconds) = (self.place.replica(), ended as f64 / 1e9);
            self.bank
                .show(format!("at {seconds:.3} s replica {replica}: {what}"), |known| &mut known.impossible);
        }
        self.place.failed(sent, ended, why.to_string());
        self.connection = None;
        self.place.move_on();
        // The transaction that 40001 undid is over, wherever the next one begins.
        Err(Broken { was_sent: was_sent && !has_code(&why, AGAIN), why })
    }
}

/// One transfer: reads both balances, and writes what it computed from them, so that a stale read loses an update.
/// `was_sent` becomes true before COMMIT is.
fn transaction(
    client: &mut SqlClient,
    name: &str,
    transfer: Transfer,
    was_sent: &mut bool,
) -> Result<(), Failure> {
    let Transfer { source, target, amount } = transfer;
    let (source, target) = (source as i32, target as i32);
    client.simple("BEGIN")?;
    let rows = client.query(
        "SELECT id, balance FROM accounts WHERE id = $1 OR id = $2",
        &[(&source, Type::INT4), (&target, Type::INT4)],
    )?;
    let mut balances = BTreeMap::new();
    for row in &rows {
        balances.insert(column::<i32>(row, 0)?, column::<i64>(row, 1)?);
    }
    let (Some(paying), Some(paid), 2) = (balances.get(&source), balances.get(&target), rows.len()) else {
        return Err(Failure::Malformed(format!("accounts {source} and {target}: {balances:?}")));
    };
    for (account, balance) in [(source, paying - amount), (target, paid + amount)] {
        let changed = client.execute(
            "UPDATE accounts SET balance = $2 WHERE id = $1",
            &[(&account, Type::INT4), (&balance, Type::INT8)],
        )?;
        exactly_one(changed)?;
    }
    let inserted = client.execute(
        "INSERT INTO transfers (name, source, target, amount) VALUES ($1, $2, $3, $4)",
        &[(&name, Type::TEXT), (&source, Type::INT4), (&target, Type::INT4), (&amount, Type::INT8)],
    )?;
    exactly_one(inserted)?;
    *was_sent = true;
    client.simple("COMMIT").map(drop)
}

fn exactly_one(count: u64) -> Result<(), Failure> {
    if count == 1 { Ok(()) } else { Err(Failure::Malformed(format!("{count} rows changed, not one"))) }
}

/// The sum of the balances of some accounts, and how many there are.
fn sum(
    client: &mut SqlClient,
    which: &str,
    parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)],
) -> Result<(i64, i64), Failure> {
    let text = format!("SELECT CAST(sum(balance) AS bigint), count(*) FROM accounts WHERE {which}");
    match &client.query(&text, parameters)?[..] {
        [row] => Ok((column::<Option<i64>>(row, 0)?.unwrap_or_default(), column(row, 1)?)),
        rows => Err(Failure::Malformed(format!("{} rows of sums", rows.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_differs_or_lacks_an_account_is_wrong() {
        let bank = Bank::new(3);
        bank.on_sum(3 * FIRST_BALANCE, 3, (1, 5));
        assert_eq!((bank.report().sums, bank.report().wrong()), (1, 0));
        bank.on_sum(3 * FIRST_BALANCE - 1, 3, (2, 6));
        bank.on_sum(3 * FIRST_BALANCE, 2, (2, 7));
        let report = bank.report();
        assert_eq!((report.sums, report.wrong_sums, report.wrong(), report.holds()), (3, 2, 2, false));
    }

    #[test]
    fn a_bank_that_was_not_compared_or_not_read_does_not_hold() {
        let bank = Bank::new(2);
        let one = Transfer { source: 1, target: 2, amount: 7 };
        bank.known().ledger.note("a", one, TransferState::Acknowledged);
        bank.on_sum(2 * FIRST_BALANCE, 2, (1, 5));
        assert!(!bank.report().holds(), "no comparison");
        let comparison = |faults| Comparison {
            at: 1.0,
            replica: 1,
            after: "kill".to_owned(),
            is_kill: true,
            acknowledged: 1,
            rows: 1,
            faults,
        };
        bank.known().comparisons.push(comparison(Ok(LedgerFaults::default())));
        assert!(bank.report().holds());
        bank.known().comparisons.push(comparison(Ok(LedgerFaults { missing: 1, ..LedgerFaults::default() })));
        assert_eq!((bank.report().wrong(), bank.report().holds()), (1, false));
        bank.known().comparisons[1].faults = Err("no answer".to_owned());
        assert!(!bank.report().holds(), "not read");
        assert_eq!(bank.report().after_kills(), 2);
    }
}
