//! The service: its locks, their footprints, and the handlers.

use bytes::Bytes;
use crosscheck::object::{Members, ObjectId, Reader, RegionId, Shape, from_bytes, genesis, to_bytes};
use crosscheck::schedule::{DetMutex, DetRwLock, Footprint, Lock, Retry};
use crosscheck::{Cx, Malformed, ObjectPart, RepairedObject, Service};
use xxhash_rust::xxh3::xxh3_64;

use crate::database::Database;
use crate::engine::{Connected, Engine};
use crate::explain;
use crate::file_copy;
use crate::file_request::FileRequest;
use crate::guest::{Guest, Pages};
use crate::open_transactions::{Drawn, IDLE_US, MAX_QUERIES, OpenTransaction, OpenTransactions, Replayed};
use crate::query::{self, Abandoned, StepEnd};
use crate::reply::{ReplyWriter, SqlError, TransactionStatus};
use crate::request::SqlRequest;

/// Number of the lock behind which the database is.
pub const DATABASE: RegionId = 0;
/// Locks behind which the open transactions are, by number of the connection; theirs are the next numbers.
const SESSION_LOCKS: RegionId = 16;

/// The database and the open transactions behind their locks, and SQLite beside them.
pub struct Sql {
    database: DetRwLock<Database>,
    sessions: Vec<DetMutex<OpenTransactions>>,
    engine: Engine,
}

impl Sql {
    /// An empty database.
    pub fn new() -> Self {
        let sessions = |lock| DetMutex::new(lock, genesis(lock, OpenTransactions::new));
        Sql {
            database: DetRwLock::new(DATABASE, genesis(DATABASE, Database::new)),
            sessions: (1..=SESSION_LOCKS).map(sessions).collect(),
            engine: Engine::new(),
        }
    }

    fn sessions(&self, lock: RegionId) -> &DetMutex<OpenTransactions> {
        &self.sessions[(lock.wrapping_sub(1) % SESSION_LOCKS) as usize]
    }

    fn query(&self, cx: &Cx<'_, Sql>, text: &str, reads: bool, reply: &mut Vec<u8>) -> Result<(), Retry> {
        let drawn = drawn(cx, text);
        let run = |connected: &Connected, reply: &mut Vec<u8>| query::run(connected, text, reply);
        if reads {
            let database = cx.read(&self.database)?;
            if file_copy::refused(&database, TransactionStatus::Idle, reply) {
                return Ok(());
            }
            if self.with(Pages::Shared(&database), drawn, |connected| run(connected, reply)).is_some() {
                return Ok(());
            }
        }
        // What has to write all the same is undone, and runs again with the lock.
        let mut database = cx.write(&self.database)?;
        reply.clear();
        if !file_copy::refused(&database, TransactionStatus::Idle, reply) {
            self.alone(&mut database, drawn, |connected| run(connected, reply));
        }
        Ok(())
    }

    fn begin(&self, cx: &Cx<'_, Sql>, session: u64, reply: &mut Vec<u8>) -> Result<(), Retry> {
        let lock = lock_of(session);
        let mut sessions = cx.lock(self.sessions(lock))?;
        let is_begun = sessions.begin(session, cx.now_us());
        if let Some(time_us) = sessions.alarm(cx.now_us()) {
            cx.at(time_us, SqlRequest::Expire { lock });
        }
        let mut reply = ReplyWriter::new(reply);
        if is_begun {
            reply.complete("BEGIN");
            reply.ready(TransactionStatus::Open);
        } else {
            let message = "too many transactions are open";
            reply.error(&SqlError::new("53300", message, "Roll back, and try again later."));
            reply.ready(TransactionStatus::Failed);
        }
        Ok(())
    }

    fn step(
        &self,
        cx: &Cx<'_, Sql>,
        (session, number): (u64, u32),
        text: &str,
        reply: &mut Vec<u8>,
    ) -> Result<(), Retry> {
        let mut sessions = cx.lock(self.sessions(lock_of(session)))?;
        let Some(open) = sessions.get(session) else {
            no_transaction(reply, TransactionStatus::Failed);
            return Ok(());
        };
        if let Err(error) = may_go_on(open, number, text) {
            let mut reply = ReplyWriter::new(reply);
            reply.error(&error);
            reply.ready(TransactionStatus::Failed);
            sessions.get_mut(session).iter_mut().for_each(|open| open.fail(cx.now_us()));
            return Ok(());
        }
        let drawn = drawn(cx, text);
        let run = |connected: &Connected, reply: &mut Vec<u8>| {
            query::step(connected, open.queries(), (text, drawn), reply)
        };
        let database = cx.read(&self.database)?;
        if file_copy::refused(&database, TransactionStatus::Failed, reply) {
            sessions.get_mut(session).iter_mut().for_each(|open| open.fail(cx.now_us()));
            return Ok(());
        }
        let end = self.with(Pages::Shared(&database), drawn, |connected| run(connected, reply));
        drop(database);
        let end = match end {
            Some(end) => end,
            None => {
                let mut database = cx.write(&self.database)?;
                reply.clear();
                self.alone(&mut database, drawn, |connected| run(connected, reply))
            }
        };
        let Some(open) = sessions.get_mut(session) else { return Ok(()) };
        match end {
            StepEnd::Ran(digest) => open.add(Replayed { text: text.to_owned(), drawn, digest }),
            StepEnd::Failed => open.fail(cx.now_us()),
        }
        Ok(())
    }

    fn end(
        &self,
        cx: &Cx<'_, Sql>,
        (session, number): (u64, u32),
        commits: bool,
        reply: &mut Vec<u8>,
    ) -> Result<(), Retry> {
        let mut sessions = cx.lock(self.sessions(lock_of(session)))?;
        match sessions.get(session) {
            None if commits => no_transaction(reply, TransactionStatus::Idle),
            Some(open) if commits && !open.has_failed() && open.queries().len() != number as usize => {
                let mut reply = ReplyWriter::new(reply);
                reply.error(&not_executed());
                reply.ready(TransactionStatus::Idle);
            }
            Some(open) if commits && !open.has_failed() => {
                let mut database = cx.write(&self.database)?;
                let drawn = drawn(cx, "COMMIT");
                if !file_copy::refused(&database, TransactionStatus::Idle, reply) {
                    self.alone(&mut database, drawn, |connected| {
                        query::commit(connected, open.queries(), reply)
                    });
                }
            }
            _ => {
                let mut reply = ReplyWriter::new(reply);
                reply.complete("ROLLBACK");
                reply.ready(TransactionStatus::Idle);
            }
        }
        sessions.end(session);
        Ok(())
    }

    fn expire(&self, cx: &Cx<'_, Sql>, lock: RegionId) -> Result<(), Retry> {
        let next_us = cx.lock(self.sessions(lock))?.ring(cx.now_us());
        next_us.into_iter().for_each(|time_us| cx.at(time_us, SqlRequest::Expire { lock }));
        Ok(())
    }

    /// Runs with a connection; none if it has to write, and may only read.
    fn with<R>(
        &self,
        pages: Pages<'_>,
        drawn: Drawn,
        run: impl FnOnce(&Connected) -> Result<R, Abandoned>,
    ) -> Option<R> {
        let mut guest = Guest::new(pages, drawn);
        match self.engine.with(&mut guest, run) {
            Ok(Ok(result)) => Some(result),
            Ok(Err(Abandoned::Reads)) if guest.wants_to_write() => None,
            // The other replicas outvote it.
            Ok(Err(why)) => panic!("no reply of this replica: {why:?}"),
            Err(error) => panic!("SQLite cannot open the database: {error}"),
        }
    }

    /// Runs with a connection that may write.
    fn alone<R>(
        &self,
        database: &mut Database,
        drawn: Drawn,
        run: impl FnOnce(&Connected) -> Result<R, Abandoned>,
    ) -> R {
        match self.with(Pages::Exclusive(database), drawn, run) {
            Some(result) => result,
            None => panic!("SQLite cannot write its file"),
        }
    }
}

/// What a query draws from the log.
fn drawn(cx: &Cx<'_, Sql>, text: &str) -> Drawn {
    Drawn { now_us: cx.now_us(), seed: cx.rng().next_u64() ^ xxh3_64(text.as_bytes()) }
}

fn lock_of(session: u64) -> RegionId {
    1 + (session % u64::from(SESSION_LOCKS)) as RegionId
}

/// The client believes that its transaction is open.
fn no_transaction(reply: &mut Vec<u8>, status: TransactionStatus) {
    let mut reply = ReplyWriter::new(reply);
    let message = format!("the transaction was rolled back: it had no query for {} s", IDLE_US / 1_000_000);
    reply.error(&SqlError::new("25P03", message, "Run it again from its beginning."));
    reply.ready(status);
}

/// A replica has answered a query of the transaction with an error of its own.
fn not_executed() -> SqlError {
    let message = "the transaction is rolled back: one of its queries was not executed";
    SqlError::new("40000", message, "Run it again from its beginning.")
}

/// Whether another query may join a transaction.
fn may_go_on(open: &OpenTransaction, number: u32, text: &str) -> Result<(), SqlError> {
    if open.has_failed() {
        return Err(SqlError::aborted());
    }
    if open.queries().len() != number as usize {
        return Err(not_executed());
    }
    if !open.has_room(text.len()) {
        let message = format!("a transaction has {MAX_QUERIES} queries at most, of 256 KiB in all");
        return Err(SqlError::new("54000", message, "Commit more often."));
    }
    Ok(())
}

impl Default for Sql {
    fn default() -> Self {
        Self::new()
    }
}

impl Service for Sql {
    type Request = SqlRequest;

    fn decode(&self, ordered: &Bytes) -> Result<SqlRequest, Malformed> {
        from_bytes(ordered)
    }

    fn encode(&self, request: &SqlRequest) -> Vec<u8> {
        to_bytes(request)
    }

    fn shape_of_requests(shape: &mut Shape) {
        shape.add::<SqlRequest>();
    }

    fn footprint(&self, request: &SqlRequest, footprint: &mut Footprint) {
        match *request {
            SqlRequest::Query { reads: true, .. } => footprint.read(DATABASE),
            SqlRequest::Query { reads: false, .. } => footprint.write(DATABASE),
            SqlRequest::Begin { session } | SqlRequest::End { session, commits: false, .. } => {
                footprint.write(lock_of(session));
            }
            SqlRequest::Step { session, .. } => {
                footprint.read(DATABASE);
                footprint.write(lock_of(session));
            }
            SqlRequest::End { session, commits: true, .. } => {
                footprint.write(DATABASE);
                footprint.write(lock_of(session));
            }
            SqlRequest::File(FileRequest::Changed { .. }) => footprint.read(DATABASE),
            SqlRequest::File(_) => footprint.write(DATABASE),
            SqlRequest::Expire { lock } => footprint.write(1 + lock.wrapping_sub(1) % SESSION_LOCKS),
        }
    }

    fn execute(&self, cx: &Cx<'_, Sql>, request: &SqlRequest, reply: &mut Vec<u8>) -> Result<(), Retry> {
        match *request {
            SqlRequest::Query { ref text, reads } => self.query(cx, text, reads, reply),
            SqlRequest::Begin { session } => self.begin(cx, session, reply),
            SqlRequest::Step { session, number, ref text } => self.step(cx, (session, number), text, reply),
            SqlRequest::End { session, number, commits } => self.end(cx, (session, number), commits, reply),
            SqlRequest::File(FileRequest::Changed { since, from }) => {
                file_copy::changed(&*cx.read(&self.database)?, since, from, reply);
                Ok(())
            }
            SqlRequest::File(ref request) => {
                let mut database = cx.write(&self.database)?;
                file_copy::load(&mut database, request, drawn(cx, ""), reply);
                Ok(())
            }
            SqlRequest::Expire { lock } => self.expire(cx, lock),
        }
    }

    fn locks(&self) -> Vec<&dyn Lock> {
        let sessions = self.sessions.iter().map(|sessions| sessions as &dyn Lock);
        [&self.database as &dyn Lock].into_iter().chain(sessions).collect()
    }

    fn locks_mut(&mut self) -> Vec<&mut dyn Lock> {
        let sessions = self.sessions.iter_mut().map(|sessions| sessions as &mut dyn Lock);
        [&mut self.database as &mut dyn Lock].into_iter().chain(sessions).collect()
    }

    fn panicked(&self, request: &SqlRequest, reply: &mut Vec<u8>) {
        let mut reply = ReplyWriter::new(reply);
        let message = "internal error; nothing was changed".to_owned();
        reply.error(&SqlError { code: "XX000", message, hint: None });
        reply.ready(match request {
            SqlRequest::Begin { .. } | SqlRequest::Step { .. } => TransactionStatus::Failed,
            _ => TransactionStatus::Idle,
        });
    }

    fn kind(&self, request: &SqlRequest) -> u16 {
        match request {
            SqlRequest::Query { reads: true, .. } => 1,
            SqlRequest::Query { reads: false, .. } => 2,
            SqlRequest::Begin { .. } => 3,
            SqlRequest::Step { .. } => 4,
            SqlRequest::End { commits: true, .. } => 5,
            SqlRequest::End { commits: false, .. } => 6,
            SqlRequest::Expire { .. } => 7,
            SqlRequest::File(FileRequest::Changed { .. }) => 8,
            SqlRequest::File(_) => 9,
        }
    }

    fn kind_name(kind: u16) -> Option<&'static str> {
        const NAMES: [&str; 9] =
            ["query", "change", "begin", "step", "commit", "rollback", "expire", "dump", "load"];
        NAMES.get(usize::from(kind).checked_sub(1)?).copied()
    }

    fn name_of(object: &Members<'_>) -> Option<String> {
        let number = |member| Reader::new(object.get(member)?).u32().ok();
        match object.class {
            "Page" => Some(format!("page {}", u64::from(number("number")?) + 1)),
            "Database" => Some(format!("database of {} pages", number("count")?)),
            "OpenTransaction" => Some("open transaction".to_owned()),
            "OpenTransactions" => Some("open transactions".to_owned()),
            _ => None,
        }
    }

    fn region_id_of(&self, name: &str) -> Option<RegionId> {
        let is_known = name == "database" || name.starts_with("page:") || name.starts_with("row:");
        is_known.then_some(DATABASE)
    }

    fn explain(repaired: &RepairedObject<'_>) -> Option<String> {
        explain::page(repaired)
    }

    /// `page:N`, from 1 as in SQLite's messages, `row:TABLE:KEY`, or `database`.
    fn find(&self, cx: &Cx<'_, Sql>, name: &str) -> Option<ObjectId> {
        let database = cx.read(&self.database).ok()?;
        match name.split_once(':') {
            Some(("page", number)) => database.object_of(number.parse::<u32>().ok()?.checked_sub(1)?),
            Some(("row", row)) => database.object_of(explain::row(&database, row)?.number.checked_sub(1)?),
            _ => (name == "database").then(|| database.object_id()),
        }
    }

    fn part_of(&self, cx: &Cx<'_, Sql>, name: &str) -> Option<ObjectPart> {
        let database = cx.read(&self.database).ok()?;
        explain::part_of_row(&database, name.strip_prefix("row:")?)
    }
}
