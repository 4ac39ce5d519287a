//! Executes runs on their own, or as parts of a transaction, whose runs before are executed again.

use rusqlite::{Error, ffi};
use xxhash_rust::xxh3::xxh3_128;

use crate::constraints;
use crate::engine::Connected;
use crate::error::SqlError;
use crate::open_transactions::{Drawn, Replayed};
use crate::perform::{Performer, TransactionContext, TransactionRules};
use crate::reply::ReplyWriter;
use crate::request::ClientRun;
use crate::vfs;

/// Why a query has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// It has to write, and may only read.
    Reads,
    /// A page failed its check.
    Corrupted,
    /// This replica lacks memory.
    Memory,
}

/// What came of a query in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepEnd {
    /// It was run, and its reply has this digest.
    Ran(u128),
    /// It has failed, and the transaction with it. So many of its parts were executed before, with a reply of this
    /// digest: among them may be the savepoint to which the client goes back.
    Failed(usize, u128),
}

/// A transaction whose queries would have other replies by now.
fn conflict() -> SqlError {
    let message = "could not serialize access: what the transaction has read was changed by another one";
    SqlError::new("40001", message, "Run the transaction again from its beginning.")
}

/// Executes a run outside of a transaction, and appends its reply. Several statements are one transaction, unless they
/// say otherwise. Returns whether all parts were executed.
///
/// # Errors
/// If there can be no reply of this replica.
pub fn alone(connected: &Connected, run: &ClientRun, out: &mut Vec<u8>) -> Result<bool, Abandoned> {
    let connection = connected.connection();
    let mut reply = ReplyWriter::new(out);
    let mut context = TransactionContext::default();
    let result = match Performer::new(connected, &mut context, TransactionRules::Own).run(run, &mut reply) {
        Ok(()) if !connection.is_autocommit() => {
            let message = "a transaction begins among other statements, and does not end there";
            Err(SqlError::unsupported(message, "Send BEGIN as a query of its own, or COMMIT with the rest.")
                .into())
        }
        result => result,
    };
    roll_back(connected)?;
    Ok(!failed(connected, result, &mut reply)?)
}

/// Executes a run after those of its transaction so far, appends its reply, and rolls all of it back.
///
/// # Errors
/// If there can be no reply of this replica.
pub fn step(
    connected: &Connected,
    (before, is_read_only): (&[Replayed], bool),
    (run, drawn): (&ClientRun, Drawn),
    out: &mut Vec<u8>,
) -> Result<StepEnd, Abandoned> {
    let begins_at = out.len();
    let mut reply = ReplyWriter::new(out);
    let mut context = TransactionContext { is_read_only, ..TransactionContext::default() };
    let mut done = (0, begins_at);
    let result = replay(connected, before, &mut context).and_then(|()| {
        vfs::draw(drawn);
        let mut performer = Performer::new(connected, &mut context, TransactionRules::None);
        let result = performer.run(run, &mut reply);
        done = performer.done();
        result
    });
    roll_back(connected)?;
    if failed(connected, result, &mut reply)? {
        let (parts, end) = done;
        return Ok(StepEnd::Failed(parts, xxh3_128(out.get(begins_at..end).unwrap_or_default())));
    }
    Ok(StepEnd::Ran(xxh3_128(&out[begins_at..])))
}

/// Executes the runs of a transaction, and commits them. If that fails, appends the error, and returns false.
///
/// # Errors
/// If there can be no reply of this replica.
pub fn commit(connected: &Connected, runs: &[Replayed], out: &mut Vec<u8>) -> Result<bool, Abandoned> {
    let committed = |()| connected.execute("COMMIT").map_err(QueryFailure::from);
    let result = replay(connected, runs, &mut TransactionContext::default()).and_then(committed);
    roll_back(connected)?;
    Ok(!failed(connected, result, &mut ReplyWriter::new(out))?)
}

/// Begins a transaction, and executes runs that clients have replies to.
fn replay(
    connected: &Connected,
    runs: &[Replayed],
    context: &mut TransactionContext,
) -> Result<(), QueryFailure> {
    connected.execute("BEGIN")?;
    let mut again = Vec::new();
    for Replayed { run, drawn, digest } in runs {
        again.clear();
        vfs::draw(*drawn);
        let mut performer = Performer::new(connected, context, TransactionRules::None);
        performer.run(run, &mut ReplyWriter::new(&mut again)).map_err(|failure| match failure {
            QueryFailure::Sqlite(error) if abandoned(&error).is_some() || is_too_long(&error) => error.into(),
            // It has not failed before.
            _ => QueryFailure::Refused(conflict()),
        })?;
        if xxh3_128(&again) != *digest {
            return Err(QueryFailure::Refused(conflict()));
        }
    }
    Ok(())
}

fn roll_back(connected: &Connected) -> Result<(), Abandoned> {
    if connected.connection().is_autocommit() {
        return Ok(());
    }
    connected.execute("ROLLBACK").map_err(|error| abandoned(&error).unwrap_or(Abandoned::Memory))
}

/// Appends the error of what has failed; false if it has not.
fn failed(
    connected: &Connected,
    result: Result<(), QueryFailure>,
    reply: &mut ReplyWriter<'_>,
) -> Result<bool, Abandoned> {
    let error = match result {
        Ok(()) => return Ok(false),
        Err(QueryFailure::Refused(error)) => error,
        Err(QueryFailure::Sqlite(error)) => match abandoned(&error) {
            Some(why) => return Err(why),
            None => in_words(connected, SqlError::of_sqlite(&error)),
        },
    };
    connected.refusals().count(&error);
    reply.error(&error);
    Ok(true)
}

/// The error of a violated constraint as PostgreSQL words it.
fn in_words(connected: &Connected, error: SqlError) -> SqlError {
    if !error.code.starts_with("23") {
        return error;
    }
    let plain = error.clone();
    connected.look_up(|tables| Ok(constraints::named(error, tables))).unwrap_or(plain)
}

/// Why a statement has failed.
pub enum QueryFailure {
    /// SQLite says so. Some of its errors are of this replica only.
    Sqlite(Error),
    /// It is refused.
    Refused(SqlError),
}

impl From<Error> for QueryFailure {
    fn from(error: Error) -> Self {
        QueryFailure::Sqlite(error)
    }
}

impl From<SqlError> for QueryFailure {
    fn from(error: SqlError) -> Self {
        QueryFailure::Refused(error)
    }
}

/// Whether a statement has taken too many steps.
fn is_too_long(error: &Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_INTERRUPT)
}

/// Whether an error is of this replica only, so that no client may get it.
pub(crate) fn abandoned(error: &Error) -> Option<Abandoned> {
    match error.sqlite_error()?.extended_code & 0xff {
        ffi::SQLITE_READONLY => Some(Abandoned::Reads),
        ffi::SQLITE_IOERR => Some(Abandoned::Corrupted),
        ffi::SQLITE_NOMEM => Some(Abandoned::Memory),
        _ => None,
    }
}
