//! The service: its locks, their footprints, and the handlers.

use std::collections::BTreeMap;

use bytes::Bytes;
use crosscheck::object::{Members, ObjectId, Reader, RegionId, Shape, from_bytes, genesis, to_bytes};
use crosscheck::schedule::{DetMutex, DetRwLock, Footprint, Locks, Retry};
use crosscheck::{Cx, Malformed, ObjectPart, RepairedObject, Service};
use xxhash_rust::xxh3::xxh3_64;

use crate::database::Database;
use crate::engine::{Connected, Engine};
use crate::error::SqlError;
use crate::explain;
use crate::file_copy;
use crate::file_request::FileRequest;
use crate::guest::{Guest, Pages};
use crate::open_transactions::{Drawn, OpenTransactions};
use crate::query::{self, Abandoned};
use crate::reply::{ReplyWriter, TransactionStatus};
use crate::request::{ClientRun, SqlRequest};
use crate::session::{DatabaseUse, database_use, drawn_by};

/// Number of the lock behind which the database is.
pub const DATABASE: RegionId = 0;
/// Locks behind which the open transactions are, by number of the connection; theirs are the next numbers.
const SESSION_LOCKS: RegionId = 16;

/// The database and the open transactions behind their locks, and SQLite beside them.
#[derive(Locks)]
pub struct Sql {
    database: DetRwLock<Database>,
    sessions: Vec<DetMutex<OpenTransactions>>,
    #[locks(skip)]
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

    pub(crate) fn sessions(&self, lock: RegionId) -> &DetMutex<OpenTransactions> {
        &self.sessions[(lock.wrapping_sub(1) % SESSION_LOCKS) as usize]
    }

    pub(crate) fn database(&self) -> &DetRwLock<Database> {
        &self.database
    }

    /// Executes a run outside of a transaction. Returns whether all of it was executed.
    pub(crate) fn alone(
        &self,
        cx: &Cx<'_, Sql>,
        run: &ClientRun,
        reads: bool,
        reply: &mut Vec<u8>,
    ) -> Result<bool, Retry> {
        let (drawn, begins_at) = (drawn_by(cx, run), reply.len());
        let alone = |connected: &Connected, reply: &mut Vec<u8>| query::alone(connected, run, reply);
        if reads {
            let database = cx.read(&self.database)?;
            if let Some(error) = file_copy::refused(&database) {
                ReplyWriter::new(reply).error(&error);
                return Ok(false);
            }
            let done =
                self.shared(Pages::Shared(&database), drawn, true, |connected| alone(connected, reply));
            if let Some(is_done) = done {
                return Ok(is_done);
            }
        }
        // What has to write all the same is undone, and runs again with the lock.
        let mut database = cx.write(&self.database)?;
        reply.truncate(begins_at);
        if let Some(error) = file_copy::refused(&database) {
            ReplyWriter::new(reply).error(&error);
            return Ok(false);
        }
        Ok(self.exclusively(&mut database, drawn, reply, alone))
    }

    /// A connection has ended.
    fn closed(&self, cx: &Cx<'_, Sql>, session: u64) -> Result<(), Retry> {
        let mut sessions = cx.lock(self.sessions(lock_of(session)))?;
        sessions.expire(cx.now_us());
        sessions.end(session);
        Ok(())
    }

    /// Runs with a connection; none if it has to write, and may only read. What `only_reads` changes nothing, not even
    /// to take it back.
    pub(crate) fn shared<R>(
        &self,
        pages: Pages<'_>,
        drawn: Drawn,
        only_reads: bool,
        run: impl FnOnce(&Connected) -> Result<R, Abandoned>,
    ) -> Option<R> {
        let mut guest = Guest::new(pages, drawn);
        match self.engine.with(&mut guest, only_reads, run) {
            Ok(Ok(result)) => Some(result),
            Ok(Err(Abandoned::Reads)) if guest.wants_to_write() => None,
            // The other replicas outvote it.
            Ok(Err(why)) => panic!("no reply of this replica: {why:?}"),
            Err(error) => panic!("SQLite cannot open the database: {error}"),
        }
    }

    /// Runs with a connection that may write.
    pub(crate) fn exclusively<R>(
        &self,
        database: &mut Database,
        drawn: Drawn,
        reply: &mut Vec<u8>,
        run: impl FnOnce(&Connected, &mut Vec<u8>) -> Result<R, Abandoned>,
    ) -> R {
        match self.shared(Pages::Exclusive(database), drawn, false, |connected| run(connected, reply)) {
            Some(result) => result,
            None => panic!("SQLite cannot write its file"),
        }
    }
}

/// What a query draws from the log.
pub(crate) fn drawn(cx: &Cx<'_, Sql>, text: &str) -> Drawn {
    Drawn { now_us: cx.now_us(), seed: cx.rng().next_u64() ^ xxh3_64(text.as_bytes()) }
}

pub(crate) fn lock_of(session: u64) -> RegionId {
    1 + (session % u64::from(SESSION_LOCKS)) as RegionId
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
            SqlRequest::Alone { reads: true, .. } => footprint.read(DATABASE),
            SqlRequest::Alone { reads: false, .. } => footprint.write(DATABASE),
            SqlRequest::InTransaction { session, is_open, ref run, .. } => {
                footprint.write(lock_of(session));
                match database_use(run, is_open) {
                    DatabaseUse::None => {}
                    DatabaseUse::Read => footprint.read(DATABASE),
                    DatabaseUse::Write => footprint.write(DATABASE),
                }
            }
            SqlRequest::Closed { session } => footprint.write(lock_of(session)),
            SqlRequest::File(FileRequest::Changed { .. }) => footprint.read(DATABASE),
            SqlRequest::File(_) => footprint.write(DATABASE),
        }
    }

    fn execute(&self, cx: &Cx<'_, Sql>, request: &SqlRequest, reply: &mut Vec<u8>) -> Result<(), Retry> {
        match *request {
            SqlRequest::Alone { ref run, reads } => {
                self.alone(cx, run, reads, reply)?;
                if run.is_synced() {
                    ReplyWriter::new(reply).ready(TransactionStatus::Idle);
                }
                Ok(())
            }
            SqlRequest::InTransaction { session, number, is_open, ref run } => {
                self.in_transaction(cx, (session, number, is_open), run, reply)
            }
            SqlRequest::Closed { session } => self.closed(cx, session),
            SqlRequest::File(FileRequest::Changed { since, from }) => {
                file_copy::changed(&*cx.read(&self.database)?, since, from, reply);
                Ok(())
            }
            SqlRequest::File(ref request) => {
                let mut database = cx.write(&self.database)?;
                file_copy::load(&mut database, request, drawn(cx, ""), reply);
                Ok(())
            }
        }
    }

    fn panicked(&self, request: &SqlRequest, reply: &mut Vec<u8>) {
        let mut reply = ReplyWriter::new(reply);
        reply.error(&SqlError::plain("XX000", "internal error; nothing was changed"));
        match request {
            SqlRequest::Alone { run, .. } if run.is_synced() => reply.ready(TransactionStatus::Idle),
            SqlRequest::InTransaction { run, .. } if run.is_synced() || run.begins_copy() => {
                reply.ready(TransactionStatus::Failed);
            }
            _ => {}
        }
    }

    fn kind(&self, request: &SqlRequest) -> u16 {
        match request {
            SqlRequest::Alone { reads: true, .. } => 1,
            SqlRequest::Alone { reads: false, .. } => 2,
            SqlRequest::InTransaction { .. } => 3,
            SqlRequest::Closed { .. } => 4,
            SqlRequest::File(FileRequest::Changed { .. }) => 5,
            SqlRequest::File(_) => 6,
        }
    }

    fn kind_name(kind: u16) -> Option<&'static str> {
        const NAMES: [&str; 6] = ["query", "change", "transaction", "close", "dump", "load"];
        NAMES.get(usize::from(kind).checked_sub(1)?).copied()
    }

    /// What clients have asked for that the service lacks.
    fn counts(&self) -> BTreeMap<String, u64> {
        self.engine.refusals().all()
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
