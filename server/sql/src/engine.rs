//! SQLite's connections to the database: made outside of the protected state, and dropped whenever in doubt.
//!
//! What a connection keeps between two requests is derived from pages: the parsed schema. It holds for one digest of
//! the schema ([`Database::schema`]). The pages themselves are read anew, and so checked, by each request.
//!
//! [`Database::schema`]: crate::database::Database::schema

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization, TransactionOperation};
use rusqlite::limits::Limit;
use rusqlite::{CachedStatement, Connection, Error, OpenFlags, StatementStatus};
use xxhash_rust::xxh3::xxh3_64;

use crate::catalog;
use crate::database::MAX_PAGES;
use crate::dialect::{KnownTables, PresentTables};
use crate::error::SqlError;
use crate::functions;
use crate::guest::Guest;
use crate::plan::Plan;
use crate::query::QueryFailure;
use crate::refusals::Refusals;
use crate::vfs;
use crate::words::TransactionChange;

/// Steps of SQLite's machine that a request may take: some seconds. All replicas count alike.
pub const MAX_STEPS: u64 = 50_000_000;
/// Steps between two looks at their number.
const STEPS: i32 = 1000;
/// Bytes of one value, of a row, and of a statement.
const MAX_BYTES: i32 = 1 << 20;
/// Bytes of a pattern of LIKE: it is matched in one step.
const MAX_PATTERN: i32 = 1000;
/// A connection that has read or written more parts of the file is dropped: SQLite's table of pages grows with them,
/// does not shrink, and is gone through at the beginning of each request.
const MANY_USES: u64 = 300;
/// Prepared statements whose meaning a connection keeps, at most.
const MAX_PLANS: usize = 256;
/// Statements that SQLite has compiled and that a connection keeps, at most.
const MAX_COMPILED: usize = 128;
/// Functions whose results depend on what a connection has done before, or that reach outside.
const REFUSED: [&str; 6] =
    ["changes", "total_changes", "last_insert_rowid", "load_extension", "sqlite_offset", "fts3_tokenizer"];
/// Tables with statistics begin so: a connection reads them once, and plans by them.
const STATISTICS: &str = "sqlite_stat";
/// What tells of the schema, and changes nothing.
const PRAGMAS: [&str; 5] = ["table_xinfo", "index_list", "index_info", "index_xinfo", "foreign_key_list"];
/// What only steps of a change of the schema may ask for; the connection is dropped afterwards.
const CHANGING: [&str; 2] = ["writable_schema", "defer_foreign_keys"];
/// Journal and temporary tables in memory, no page written before the transaction is committed, and pages read where
/// they lie, if the file system has them so.
const SETTINGS: &str = "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY; \
    PRAGMA cache_spill = OFF; PRAGMA cache_size = -65536; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; \
    PRAGMA mmap_size = 1073741824;";

/// Where functions have the time and random numbers from.
const OF_REQUEST: functions::Sources = functions::Sources { now_us: vfs::now_us, fill: vfs::fill_random };

/// All connections of a replica that no request uses just now.
#[derive(Default)]
pub struct Engine {
    idle: Mutex<Vec<Connected>>,
    refusals: Arc<Refusals>,
}

/// A connection, and what its hooks have seen.
pub struct Connected {
    connection: Connection,
    /// What prepared statements mean, by a digest of what the client prepared. It holds for the schema that the
    /// connection knows.
    plans: RefCell<BTreeMap<u128, Arc<Plan>>>,
    /// What the schema that the connection knows says of tables.
    tables: KnownTables,
    refusals: Arc<Refusals>,
    seen: Arc<HookRecord>,
    /// The digest of the schema that it knows, and SQLite's number of it: with another number, SQLite would read the
    /// schema again, which counts as steps.
    schema: (u64, u32),
}

/// What the hooks of a connection see.
#[derive(Default)]
struct HookRecord {
    /// Looks at the number of steps that the request may still take.
    looks: AtomicU64,
    /// What the statement that was prepared last does to a transaction.
    change: Mutex<Option<TransactionChange>>,
    /// A statement of this request creates, alters or drops something.
    defines: AtomicBool,
    /// A compilation of this request has drawn random numbers, or counted as steps.
    is_of_request: AtomicBool,
    /// The statement that is prepared is a step that a change of the schema was translated to.
    is_of_change: AtomicBool,
}

impl Connected {
    /// SQLite's connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Where it is counted what clients ask for in vain.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// What the statement that was prepared since the last call does to a transaction, as SQLite has read it.
    pub fn take_change(&self) -> Option<TransactionChange> {
        self.seen.change.lock().take()
    }

    /// Compiles something, which must come to the same where a replica has compiled it before. So SQLite's generator
    /// begins anew for it; and a connection for which it has drawn, or counted steps, is not used again: the next
    /// request draws and counts as on all other replicas.
    pub fn compile<'c, R>(&'c self, work: impl FnOnce(&'c Connection) -> R) -> R {
        let _generator = vfs::own_generator();
        vfs::begin_generator();
        let left = self.seen.looks.load(Ordering::Relaxed);
        let result = work(&self.connection);
        let is_costly = self.seen.looks.load(Ordering::Relaxed) != left;
        self.seen.is_of_request.fetch_or(is_costly || vfs::has_drawn(), Ordering::Relaxed);
        vfs::begin_generator();
        result
    }

    /// A statement that is executed next, as it was compiled before or now.
    ///
    /// # Errors
    /// SQLite's.
    pub fn prepare(&self, sql: &str) -> Result<CachedStatement<'_>, Error> {
        let statement = self.compile(|connection| connection.prepare_cached(sql))?;
        // SQLite looks at the number of steps where those of earlier executions end.
        statement.reset_status(StatementStatus::VmStep);
        vfs::begin_statement();
        Ok(statement)
    }

    /// Executes what begins or ends a transaction, or a savepoint: it counts as no steps, so that it never fails since
    /// the request has none left.
    ///
    /// # Errors
    /// SQLite's.
    pub fn execute(&self, sql: &str) -> Result<(), Error> {
        let left = self.seen.looks.swap(u64::MAX, Ordering::Relaxed);
        let result = self.prepare(sql).and_then(|mut statement| statement.raw_execute());
        self.seen.looks.store(left, Ordering::Relaxed);
        result.map(|_| ())
    }

    /// What a prepared statement means: as it was found before, or by `make`.
    ///
    /// # Errors
    /// Of `make`.
    pub fn plan(
        &self,
        digest: u128,
        make: impl FnOnce() -> Result<Plan, QueryFailure>,
    ) -> Result<Arc<Plan>, QueryFailure> {
        // A statement of this request has changed the schema; the connection is not used again.
        if self.seen.defines.load(Ordering::Relaxed) {
            return make().map(Arc::new);
        }
        if let Some(known) = self.plans.borrow().get(&digest) {
            return Ok(known.clone());
        }
        let plan = Arc::new(make()?);
        let mut plans = self.plans.borrow_mut();
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert(digest, plan.clone());
        Ok(plan)
    }

    /// The statements that are prepared from now on are steps of a change of the schema, or not any more.
    pub fn change_schema(&self, is_of_change: bool) {
        if is_of_change {
            // SQLite would compile a known one again while it is executed, where it is permitted no more.
            self.connection.flush_prepared_statement_cache();
        }
        self.seen.is_of_change.store(is_of_change, Ordering::Relaxed);
    }

    /// Lets `work` look at the tables. Its statements count as no steps: other replicas may know the answers already.
    ///
    /// # Errors
    /// Of a look-up, or of `work`.
    pub fn look_up<R>(
        &self,
        work: impl FnOnce(&PresentTables<'_>) -> Result<R, SqlError>,
    ) -> Result<R, QueryFailure> {
        let left = self.seen.looks.swap(u64::MAX, Ordering::Relaxed);
        let known = (!self.seen.defines.load(Ordering::Relaxed)).then_some(&self.tables);
        let tables = PresentTables::new(&self.connection, known);
        let result = self.compile(|_| work(&tables));
        self.seen.looks.store(left, Ordering::Relaxed);
        match tables.into_error() {
            Some(error) => {
                self.tables.forget();
                Err(error.into())
            }
            None => Ok(result?),
        }
    }
}

/// A digest of all that the schema says.
fn digest(connection: &Connection) -> Result<u64, Error> {
    let mut statement =
        connection.prepare("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema ORDER BY rowid")?;
    let (mut rows, mut bytes) = (statement.raw_query(), Vec::new());
    while let Some(row) = rows.next()? {
        for column in 0..5 {
            bytes.extend_from_slice(format!("{:?};", row.get_ref(column)?).as_bytes());
        }
    }
    Ok(xxh3_64(&bytes))
}

impl Engine {
    /// No connections yet.
    pub fn new() -> Self {
        vfs::register();
        Engine::default()
    }

    /// What clients have asked for in vain.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Lets `work` use a connection to what `guest` sees. If a page fails its check, this unwinds, and the connection
    /// is dropped. What `only_reads` runs beside others that do, but for what it compiles.
    ///
    /// # Errors
    /// If none can be opened.
    pub fn with<R>(
        &self,
        guest: &mut Guest<'_>,
        only_reads: bool,
        work: impl FnOnce(&Connected) -> R,
    ) -> Result<R, Error> {
        let cookie = guest.schema_cookie();
        let schema = (guest.schema(), cookie);
        let known = self.idle.lock().pop().filter(|idle| idle.schema == schema);
        let _generator = (!only_reads).then(vfs::own_generator);
        let (connected, result) = vfs::with(guest, || {
            let connected = match known {
                Some(connected) => connected,
                None => {
                    let _generator = vfs::own_generator();
                    open(schema, self.refusals.clone())?
                }
            };
            connected.seen.looks.store(MAX_STEPS / STEPS as u64, Ordering::Relaxed);
            let result = work(&connected);
            // No statement is open any more, so it has none. It must not read them once the database is let go.
            let connected = Some(connected).filter(|_| !vfs::has_fetched());
            Ok::<_, Error>((connected, result))
        })?;
        let Some(mut connected) = connected else { return Ok(result) };
        if guest.schema_cookie() != cookie {
            connected.seen.looks.store(u64::MAX, Ordering::Relaxed);
            let digest = vfs::with(guest, || digest(&connected.connection))?;
            guest.set_schema(digest);
            connected.schema = (digest, guest.schema_cookie());
        }
        // What is still open was given up: its transaction ends with the connection. And a connection that has defined
        // something, perhaps to take it back, would read the schema again, which counts as steps.
        let is_of_use = connected.connection.is_autocommit() && guest.uses() <= MANY_USES;
        let is_of_request = connected.seen.is_of_request.load(Ordering::Relaxed);
        if is_of_use && !is_of_request && !connected.seen.defines.load(Ordering::Relaxed) {
            self.idle.lock().push(connected);
        }
        Ok(result)
    }
}

/// What is wrong with a whole file, by SQLite's own check; otherwise the digest of its schema.
///
/// # Errors
/// If SQLite cannot say.
pub fn check(guest: &mut Guest<'_>) -> Result<Result<u64, String>, Error> {
    let _generator = vfs::own_generator();
    vfs::with(guest, || {
        vfs::begin_generator();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags_and_vfs("database", flags, vfs::NAME)?;
        connection.execute_batch(SETTINGS)?;
        functions::register(&connection, OF_REQUEST)?;
        catalog::register(&connection)?;
        let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        if found != "ok" {
            return Ok(Err(found));
        }
        let is_virtual = "SELECT name FROM sqlite_schema \
            WHERE sql LIKE 'CREATE VIRTUAL%' OR name LIKE 'sqlite_stat%' LIMIT 1";
        match connection.query_row(is_virtual, [], |row| row.get::<_, String>(0)) {
            Ok(name) => Ok(Err(format!("{name} is a virtual table, or of ANALYZE: drop it"))),
            Err(Error::QueryReturnedNoRows) => Ok(Ok(digest(&connection)?)),
            Err(error) => Err(error),
        }
    })
}

fn open(schema: (u64, u32), refusals: Arc<Refusals>) -> Result<Connected, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags_and_vfs("database", flags, vfs::NAME)?;
    connection.execute_batch(SETTINGS)?;
    connection.execute_batch(&format!("PRAGMA max_page_count = {MAX_PAGES}"))?;
    for limit in [Limit::SQLITE_LIMIT_LENGTH, Limit::SQLITE_LIMIT_SQL_LENGTH] {
        connection.set_limit(limit, MAX_BYTES)?;
    }
    connection.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN)?;
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
    functions::register(&connection, OF_REQUEST)?;
    catalog::register(&connection)?;
    connection.set_prepared_statement_cache_capacity(MAX_COMPILED);
    // Otherwise SQLite compiles statements with `LIMIT ?` again while they are executed.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Reads the schema now, when no steps are counted.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    let seen = Arc::new(HookRecord::default());
    let counting = seen.clone();
    connection.progress_handler(
        STEPS,
        Some(move || {
            let before = counting.looks.load(Ordering::Relaxed);
            counting.looks.store(before.saturating_sub(1), Ordering::Relaxed);
            before == 0
        }),
    )?;
    let reading = seen.clone();
    connection.authorizer(Some(move |context: AuthContext<'_>| permit(&context, &reading)))?;
    let (plans, tables) = Default::default();
    Ok(Connected { connection, plans, tables, refusals, seen, schema })
}

/// What would outlive its request in the connection, or reach outside of the database, is refused.
fn permit(context: &AuthContext<'_>, seen: &HookRecord) -> Authorization {
    let is_refused = match context.action {
        AuthAction::Function { function_name } => {
            REFUSED.iter().any(|name| name.eq_ignore_ascii_case(function_name))
        }
        AuthAction::Transaction { operation } => {
            *seen.change.lock() = Some(match operation {
                TransactionOperation::Begin => TransactionChange::Begin,
                TransactionOperation::Rollback => TransactionChange::RollBack,
                // COMMIT, for which the crate has no name.
                _ => TransactionChange::Commit,
            });
            false
        }
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => table_name.to_ascii_lowercase().starts_with(STATISTICS),
        AuthAction::CreateIndex { .. }
        | AuthAction::CreateTable { .. }
        | AuthAction::CreateTrigger { .. }
        | AuthAction::CreateView { .. }
        | AuthAction::DropIndex { .. }
        | AuthAction::DropTable { .. }
        | AuthAction::DropTrigger { .. }
        | AuthAction::DropView { .. }
        | AuthAction::AlterTable { .. } => {
            seen.defines.store(true, Ordering::Relaxed);
            false
        }
        AuthAction::Pragma { pragma_name, .. } => {
            let is_of_change = seen.is_of_change.load(Ordering::Relaxed);
            seen.defines.fetch_or(is_of_change, Ordering::Relaxed);
            !(PRAGMAS.contains(&pragma_name) || is_of_change && CHANGING.contains(&pragma_name))
        }
        AuthAction::Attach { .. }
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

#[cfg(test)]
mod tests {
    use crosscheck::object::genesis;

    use super::*;
    use crate::database::Database;
    use crate::guest::Pages;
    use crate::open_transactions::Drawn;

    /// SQLite goes on counting a statement's steps where its last execution has ended.
    #[test]
    fn a_kept_statement_counts_as_a_new_one() {
        let (engine, database) = (Engine::new(), genesis(0, Database::new));
        let counted = |times: usize| {
            let mut guest = Guest::new(Pages::Shared(&database), Drawn { now_us: 1, seed: 1 });
            let counted = engine.with(&mut guest, true, |connected| {
                let before = connected.seen.looks.load(Ordering::Relaxed);
                let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) \
                    SELECT i FROM n";
                for _ in 0..times {
                    let mut statement = connected.prepare(sql).expect("it is valid");
                    assert_eq!(statement.raw_query().mapped(|_| Ok(())).count(), 60);
                    connected
                        .execute("SAVEPOINT s")
                        .and_then(|()| connected.execute("RELEASE s"))
                        .expect("both");
                }
                before - connected.seen.looks.load(Ordering::Relaxed)
            });
            counted.expect("a connection")
        };
        let once = counted(1);
        assert_eq!((1..6).map(|_| counted(1)).collect::<Vec<_>>(), [once; 5]);
        assert_eq!(counted(300), 300 * once, "fewer than {STEPS} steps are none");
    }
}
