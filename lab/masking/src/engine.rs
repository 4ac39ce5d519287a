//! The rows themselves, outside of the framework: in a database that loses updates, or in one that we made lose some.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crosscheck::schedule::SplitMix64;
use tempfile::TempDir;
use turso::{Connection, Database};

/// Rows in the table.
pub const ROWS: u32 = 64;
/// Attempts of one transaction at most. A conflict is the database's right; that many in a row would be a standstill.
const ATTEMPTS: u32 = 1_000_000;
/// How long a seeded race stays open, so that another thread meets it even on few cores.
const WINDOW: Duration = Duration::from_micros(100);
/// Of so many parts a seeded race's probability is given.
const PARTS: u64 = 100_000;

/// A table of counters that several threads change at once.
pub trait Rows: Send + Sync {
    /// Adds 1 to a row. When this returns, the database has said that the addition is committed.
    fn add(&self, row: u32);
    /// A row's value; none if the database says that there is no such row, which is a bug of it.
    fn value(&self, row: u32) -> Option<u64>;
    /// Gives a row a value.
    fn set(&self, row: u32, value: u64);
}

/// A table in turso, in its multi-version mode, in a directory of its own.
pub struct TursoRows {
    database: Database,
    idle: Mutex<Vec<Connection>>,
    /// Deleted with this.
    _directory: TempDir,
}

impl TursoRows {
    /// A table whose rows are 0.
    ///
    /// # Errors
    /// What the database says.
    pub fn new() -> anyhow::Result<Self> {
        // In memory where there is such a file system: nothing here has to survive, and its syncs would take most time.
        let shared = std::path::Path::new("/dev/shm");
        let directory = if shared.is_dir() { tempfile::tempdir_in(shared)? } else { tempfile::tempdir()? };
        let path = directory.path().join("rows.db");
        let database = wait(turso::Builder::new_local(&path.to_string_lossy()).build())?;
        let connection = database.connect()?;
        let mut answer = wait(connection.query("PRAGMA journal_mode = 'experimental_mvcc'", ()))?;
        while wait(answer.next())?.is_some() {}
        drop(answer);
        wait(connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, val INTEGER)", ()))?;
        let rows: Vec<_> = (0..ROWS).map(|row| format!("({row}, 0)")).collect();
        wait(connection.execute(format!("INSERT INTO t VALUES {}", rows.join(", ")), ()))?;
        Ok(TursoRows { database, idle: Mutex::new(vec![connection]), _directory: directory })
    }

    /// Works with a connection that no other thread uses.
    fn with<T>(&self, work: impl FnOnce(&Connection) -> T) -> T {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let connection = taken.unwrap_or_else(|| self.database.connect().expect("one more connection"));
        let result = work(&connection);
        idle().push(connection);
        result
    }

    /// Commits one statement in a concurrent transaction; what the database refuses is tried again.
    fn commit(&self, statement: &str) {
        let once = |connection: &Connection| -> Result<(), turso::Error> {
            wait(connection.execute("BEGIN CONCURRENT", ()))?;
            wait(connection.execute(statement, ()))?;
            wait(connection.execute("COMMIT", ())).map(drop)
        };
        self.with(|connection| {
            for attempt in 0..ATTEMPTS {
                let Err(error) = once(connection) else { return };
                if !connection.is_autocommit().unwrap_or(true) {
                    // It may have been rolled back already, which is an error of its own.
                    let _ = wait(connection.execute("ROLLBACK", ()));
                }
                assert!(attempt + 1 < ATTEMPTS, "{statement}: {error}");
                thread::yield_now();
            }
        });
    }
}

impl Rows for TursoRows {
    fn add(&self, row: u32) {
        self.commit(&format!("UPDATE t SET val = val + 1 WHERE id = {row}"));
    }

    fn value(&self, row: u32) -> Option<u64> {
        let select = format!("SELECT val FROM t WHERE id = {row}");
        let once = |connection: &Connection| -> Result<Option<i64>, turso::Error> {
            let mut found = wait(connection.query(&select, ()))?;
            let value = wait(found.next())?.map(|first| first.get::<i64>(0)).transpose()?;
            while wait(found.next())?.is_some() {}
            Ok(value)
        };
        self.with(|connection| {
            for _ in 0..ATTEMPTS {
                match once(connection) {
                    Ok(value) => return value.map(|value| u64::try_from(value).expect("it only grows")),
                    // Readers, too, are refused at times.
                    Err(_) => thread::yield_now(),
                }
            }
            panic!("{select}: refused {ATTEMPTS} times");
        })
    }

    fn set(&self, row: u32, value: u64) {
        self.commit(&format!("UPDATE t SET val = {value} WHERE id = {row}"));
    }
}

/// Waits for the database, which does its own input and output whenever it is polled.
fn wait<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = work.as_mut().poll(&mut context) {
            return result;
        }
        thread::yield_now();
    }
}

/// A table with a bug of ours, for comparison: with a stated probability an addition loads, waits, and stores.
pub struct SeededRows {
    rows: Vec<AtomicU64>,
    per_100_000: u64,
    random: Mutex<SplitMix64>,
}

impl SeededRows {
    /// A table whose rows are 0; so many of 100,000 additions are racy. Processes draw different ones.
    pub fn new(per_100_000: u64) -> Self {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
        let seed = since ^ u64::from(std::process::id()) << 32;
        SeededRows {
            rows: (0..ROWS).map(|_| AtomicU64::new(0)).collect(),
            per_100_000,
            random: Mutex::new(SplitMix64::new(seed)),
        }
    }
}

impl Rows for SeededRows {
    fn add(&self, row: u32) {
        let row = &self.rows[row as usize];
        let drawn = self.random.lock().unwrap_or_else(PoisonError::into_inner).below(PARTS);
        if drawn >= self.per_100_000 {
            row.fetch_add(1, Ordering::SeqCst);
            return;
        }
        let before = row.load(Ordering::SeqCst);
        thread::sleep(WINDOW);
        row.store(before + 1, Ordering::SeqCst);
    }

    fn value(&self, row: u32) -> Option<u64> {
        Some(self.rows[row as usize].load(Ordering::SeqCst))
    }

    fn set(&self, row: u32, value: u64) {
        self.rows[row as usize].store(value, Ordering::SeqCst);
    }
}
