//! The service: its lock, its footprints, and the handler.

use bytes::Bytes;
use crosscheck::object::{Members, ObjectId, Reader, RegionId, Shape, from_bytes, genesis, to_bytes};
use crosscheck::schedule::{DetRwLock, Footprint, Lock, Retry};
use crosscheck::{Cx, Malformed, Service};
use xxhash_rust::xxh3::xxh3_64;

use crate::database::Database;
use crate::engine::Engine;
use crate::guest::{Guest, Pages};
use crate::query::{self, Abandoned};
use crate::reply::{ReplyWriter, SqlError};
use crate::request::SqlRequest;

/// Number of the lock behind which the database is.
pub const DATABASE: RegionId = 0;

/// The database behind its lock, and SQLite beside it.
pub struct Sql {
    database: DetRwLock<Database>,
    engine: Engine,
}

impl Sql {
    /// An empty database.
    pub fn new() -> Self {
        Sql { database: DetRwLock::new(DATABASE, genesis(DATABASE, Database::new)), engine: Engine::new() }
    }

    /// The database as a SQLite file.
    ///
    /// # Errors
    /// [`Retry`] without the lock.
    pub fn file(&self, cx: &Cx<'_, Sql>) -> Result<Vec<u8>, Retry> {
        Ok(cx.read(&self.database)?.file())
    }

    fn query(&self, cx: &Cx<'_, Sql>, text: &str, reads: bool, reply: &mut Vec<u8>) -> Result<(), Retry> {
        let begins_at = reply.len();
        if reads {
            let database = cx.read(&self.database)?;
            if self.run(cx, Pages::Shared(&database), text, reply) == QueryEnd::Done {
                return Ok(());
            }
        }
        // What has to write all the same is undone, and runs again with the lock.
        let mut database = cx.write(&self.database)?;
        reply.truncate(begins_at);
        match self.run(cx, Pages::Exclusive(&mut database), text, reply) {
            QueryEnd::Done => Ok(()),
            QueryEnd::Writes => panic!("SQLite cannot write its file"),
        }
    }

    fn run(&self, cx: &Cx<'_, Sql>, pages: Pages<'_>, text: &str, reply: &mut Vec<u8>) -> QueryEnd {
        let inputs = (cx.now_us(), cx.rng(), xxh3_64(text.as_bytes()));
        let mut guest = Guest::new(pages, inputs, self.engine.nonce());
        let result = self.engine.with(&mut guest, |connection| query::run(connection, text, reply));
        match result {
            Ok(Ok(())) => QueryEnd::Done,
            Ok(Err(Abandoned::Reads)) if guest.wants_to_write() => QueryEnd::Writes,
            // The other replicas outvote it.
            Ok(Err(why)) => panic!("no reply of this replica: {why:?}"),
            Err(error) => panic!("SQLite cannot open the database: {error}"),
        }
    }
}

/// What came of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryEnd {
    /// It has its reply.
    Done,
    /// It may only read, and has to write.
    Writes,
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
        match request {
            SqlRequest::Query { reads: true, .. } => footprint.read(DATABASE),
            SqlRequest::Query { reads: false, .. } => footprint.write(DATABASE),
        }
    }

    fn execute(&self, cx: &Cx<'_, Sql>, request: &SqlRequest, reply: &mut Vec<u8>) -> Result<(), Retry> {
        match request {
            SqlRequest::Query { text, reads } => self.query(cx, text, *reads, reply),
        }
    }

    fn locks(&self) -> Vec<&dyn Lock> {
        vec![&self.database]
    }

    fn locks_mut(&mut self) -> Vec<&mut dyn Lock> {
        vec![&mut self.database]
    }

    fn panicked(&self, _: &SqlRequest, reply: &mut Vec<u8>) {
        let mut reply = ReplyWriter::new(reply);
        let message = "internal error; nothing was changed".to_owned();
        reply.error(&SqlError { code: "XX000", message, hint: None });
        reply.ready();
    }

    fn kind(&self, request: &SqlRequest) -> u16 {
        match request {
            SqlRequest::Query { reads: true, .. } => 1,
            SqlRequest::Query { reads: false, .. } => 2,
        }
    }

    fn kind_name(kind: u16) -> Option<&'static str> {
        match kind {
            1 => Some("query"),
            2 => Some("change"),
            _ => None,
        }
    }

    fn name_of(object: &Members<'_>) -> Option<String> {
        let number = |member| Reader::new(object.get(member)?).u32().ok();
        match object.class {
            "Page" => Some(format!("page {}", u64::from(number("number")?) + 1)),
            "Database" => Some(format!("database of {} pages", number("count")?)),
            _ => None,
        }
    }

    fn region_id_of(&self, name: &str) -> Option<RegionId> {
        let is_known = name == "database" || name.starts_with("page:");
        is_known.then_some(DATABASE)
    }

    /// `page:N`, from 1 as in SQLite's messages, or `database`.
    fn find(&self, cx: &Cx<'_, Sql>, name: &str) -> Option<ObjectId> {
        let database = cx.read(&self.database).ok()?;
        match name.split_once(':') {
            Some(("page", number)) => database.object_of(number.parse::<u32>().ok()?.checked_sub(1)?),
            _ => (name == "database").then(|| database.object_id()),
        }
    }
}
