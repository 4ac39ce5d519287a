//! SQLite's connections to the database: made outside of the protected state, and dropped whenever in doubt.
//!
//! What a connection keeps between two requests is derived from pages: the parsed schema. It holds for one value of
//! [`Database::schema`], which no two schemas share, also where a request was undone and another one took its place.
//! The pages themselves are read anew, and so checked, by each request.
//!
//! [`Database::schema`]: crate::database::Database::schema

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, Error, OpenFlags};

use crate::database::MAX_PAGES;
use crate::guest::Guest;
use crate::vfs;

/// Steps of SQLite's machine that a request may take: some seconds. All replicas count alike.
pub const MAX_STEPS: u64 = 50_000_000;
/// Steps between two looks at their number.
const STEPS: i32 = 1000;
/// Bytes of one value, of a row, and of a statement.
const MAX_BYTES: i32 = 1 << 20;
/// A connection that has read or written more parts of the file is dropped: SQLite's table of pages grows with them,
/// does not shrink, and is gone through at the beginning of each request.
const MANY_USES: u64 = 300;
/// Functions whose results depend on what a connection has done before, or that reach outside.
const REFUSED: [&str; 5] =
    ["changes", "total_changes", "last_insert_rowid", "load_extension", "sqlite_offset"];
/// Journal and temporary tables in memory, and no page written before the transaction is committed.
const SETTINGS: &str = "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY; \
    PRAGMA cache_spill = OFF; PRAGMA cache_size = -65536; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;";

/// All connections of a replica that no request uses just now.
#[derive(Default)]
pub struct Engine {
    idle: Mutex<Vec<Idle>>,
    /// Requests so far.
    used: AtomicU64,
}

struct Idle {
    connection: Connection,
    /// Looks at the number of steps that the request may still take.
    looks: Arc<AtomicU64>,
    /// The schema that it knows.
    schema: u64,
}

impl Engine {
    /// No connections yet.
    pub fn new() -> Self {
        vfs::register();
        Engine::default()
    }

    /// Another number for each request at this replica.
    pub fn nonce(&self) -> u64 {
        self.used.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Lets `work` use a connection to what `guest` sees, and says whether it may insert rows, also to roll them back.
    /// If a page fails its check, this unwinds, and the connection is dropped.
    ///
    /// # Errors
    /// If none can be opened.
    pub fn with<R>(
        &self,
        (guest, inserts): (&mut Guest<'_>, bool),
        work: impl FnOnce(&Connection) -> R,
    ) -> Result<R, Error> {
        let schema = guest.schema();
        let known = self.idle.lock().pop().filter(|idle| idle.schema == schema);
        let cookie = guest.schema_cookie();
        let _generator = inserts.then(vfs::own_generator);
        let (idle, result) = vfs::with(guest, || {
            let idle = match known {
                Some(idle) => idle,
                None => open(schema)?,
            };
            idle.looks.store(MAX_STEPS / STEPS as u64, Ordering::Relaxed);
            let result = work(&idle.connection);
            Ok::<_, Error>((idle, result))
        })?;
        if guest.schema_cookie() != cookie {
            guest.renew_schema();
        }
        // What is still open was given up: its transaction ends with the connection.
        if idle.connection.is_autocommit() && guest.uses() <= MANY_USES {
            self.idle.lock().push(Idle { schema: guest.schema(), ..idle });
        }
        Ok(result)
    }
}

fn open(schema: u64) -> Result<Idle, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags_and_vfs("database", flags, vfs::NAME)?;
    connection.execute_batch(SETTINGS)?;
    connection.execute_batch(&format!("PRAGMA max_page_count = {MAX_PAGES}"))?;
    for limit in [Limit::SQLITE_LIMIT_LENGTH, Limit::SQLITE_LIMIT_SQL_LENGTH] {
        connection.set_limit(limit, MAX_BYTES)?;
    }
    for limit in [Limit::SQLITE_LIMIT_ATTACHED, Limit::SQLITE_LIMIT_WORKER_THREADS] {
        connection.set_limit(limit, 0)?;
    }
    let of_request = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("random", 0, of_request, |_| {
        let mut bytes = [0; 8];
        vfs::fill_random(&mut bytes);
        Ok(i64::from_le_bytes(bytes))
    })?;
    connection.create_scalar_function("randomblob", 1, of_request, |context| {
        let length = context.get::<i64>(0)?.clamp(1, i64::from(MAX_BYTES));
        let mut bytes = vec![0; length as usize];
        vfs::fill_random(&mut bytes);
        Ok(bytes)
    })?;
    let looks = Arc::new(AtomicU64::new(0));
    let left = looks.clone();
    connection.progress_handler(
        STEPS,
        Some(move || {
            let before = left.load(Ordering::Relaxed);
            left.store(before.saturating_sub(1), Ordering::Relaxed);
            before == 0
        }),
    )?;
    connection.authorizer(Some(permit))?;
    Ok(Idle { connection, looks, schema })
}

/// What would outlive its request in the connection, or reach outside of the database, is refused.
#[allow(clippy::needless_pass_by_value, reason = "as SQLite's hook has it")]
fn permit(context: AuthContext<'_>) -> Authorization {
    let is_refused = match context.action {
        AuthAction::Function { function_name } => {
            REFUSED.iter().any(|name| name.eq_ignore_ascii_case(function_name))
        }
        AuthAction::Pragma { .. }
        | AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::Analyze { .. }
        | AuthAction::CreateVtable { .. }
        | AuthAction::DropVtable { .. }
        | AuthAction::CreateTempIndex { .. }
        | AuthAction::CreateTempTable { .. }
        | AuthAction::CreateTempTrigger { .. }
        | AuthAction::CreateTempView { .. } => true,
        _ => false,
    };
    if is_refused { Authorization::Deny } else { Authorization::Allow }
}
