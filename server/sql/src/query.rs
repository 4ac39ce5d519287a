//! Runs the statements of a query, on its own or as a part of a transaction.

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::{Batch, Connection, Error, Statement, ffi};
use xxhash_rust::xxh3::xxh3_128;

use crate::engine::Connected;
use crate::open_transactions::{Drawn, Replayed};
use crate::reply::{ColumnType, ReplyWriter, SqlError, TransactionStatus};
use crate::vfs;

/// Bytes of a reply at most.
const MAX_REPLY_BYTES: usize = 16 << 20;

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
    /// It has failed, and the transaction with it.
    Failed,
}

/// A transaction whose queries would have other replies by now.
fn conflict() -> SqlError {
    let message = "could not serialize access: what the transaction has read was changed by another one";
    SqlError::new("40001", message, "Run the transaction again from its beginning.")
}

/// Runs a query outside of a transaction, and appends its reply. As PostgreSQL's simple protocol has it, several
/// statements are one transaction, unless they say otherwise.
///
/// # Errors
/// If there can be no reply of this replica.
pub fn run(connected: &Connected, text: &str, out: &mut Vec<u8>) -> Result<(), Abandoned> {
    let connection = connected.connection();
    let mut reply = ReplyWriter::new(out);
    let result = match statements(connected, text, TransactionRules::Own, &mut reply) {
        Ok(()) if !connection.is_autocommit() => {
            let message = "a transaction begins among other statements, and does not end there";
            Err(refused("0A000", message, "Send BEGIN as a query of its own, or COMMIT with the rest."))
        }
        result => result,
    };
    roll_back(connection)?;
    failed(result, &mut reply)?;
    reply.ready(TransactionStatus::Idle);
    Ok(())
}

/// Runs a query after those of its transaction so far, appends its reply, and rolls all of it back.
///
/// # Errors
/// If there can be no reply of this replica.
pub fn step(
    connected: &Connected,
    before: &[Replayed],
    (text, drawn): (&str, Drawn),
    out: &mut Vec<u8>,
) -> Result<StepEnd, Abandoned> {
    let begins_at = out.len();
    let mut reply = ReplyWriter::new(out);
    let result = replay(connected, before).and_then(|()| {
        vfs::draw(drawn);
        statements(connected, text, TransactionRules::None, &mut reply)
    });
    roll_back(connected.connection())?;
    if failed(result, &mut reply)? {
        reply.ready(TransactionStatus::Failed);
        return Ok(StepEnd::Failed);
    }
    let digest = xxh3_128(&out[begins_at..]);
    ReplyWriter::new(out).ready(TransactionStatus::Open);
    Ok(StepEnd::Ran(digest))
}

/// Runs the queries of a transaction, commits them, and appends the reply.
///
/// # Errors
/// If there can be no reply of this replica.
pub fn commit(connected: &Connected, queries: &[Replayed], out: &mut Vec<u8>) -> Result<(), Abandoned> {
    let connection = connected.connection();
    let mut reply = ReplyWriter::new(out);
    let committed = |()| connection.execute_batch("COMMIT").map_err(QueryFailure::from);
    let result = replay(connected, queries).and_then(committed);
    roll_back(connection)?;
    if !failed(result, &mut reply)? {
        reply.complete("COMMIT");
    }
    reply.ready(TransactionStatus::Idle);
    Ok(())
}

/// Begins a transaction, and runs queries that clients have replies to.
fn replay(connected: &Connected, queries: &[Replayed]) -> Result<(), QueryFailure> {
    connected.connection().execute_batch("BEGIN")?;
    let mut again = Vec::new();
    for Replayed { text, drawn, digest } in queries {
        again.clear();
        vfs::draw(*drawn);
        let result = statements(connected, text, TransactionRules::None, &mut ReplyWriter::new(&mut again));
        result.map_err(|failure| match failure {
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

fn roll_back(connection: &Connection) -> Result<(), Abandoned> {
    if connection.is_autocommit() {
        return Ok(());
    }
    connection.execute_batch("ROLLBACK").map_err(|error| abandoned(&error).unwrap_or(Abandoned::Memory))
}

/// Appends the error of a query that has failed; false if it has not.
fn failed(result: Result<(), QueryFailure>, reply: &mut ReplyWriter<'_>) -> Result<bool, Abandoned> {
    match result {
        Ok(()) => return Ok(false),
        Err(QueryFailure::Refused(error)) => reply.error(&error),
        Err(QueryFailure::Sqlite(error)) => match abandoned(&error) {
            Some(why) => return Err(why),
            None => reply.error(&in_words(&error)),
        },
    }
    Ok(true)
}

enum QueryFailure {
    Sqlite(Error),
    Refused(SqlError),
}

impl From<Error> for QueryFailure {
    fn from(error: Error) -> Self {
        QueryFailure::Sqlite(error)
    }
}

/// Which statements that begin and end transactions a query may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransactionRules {
    /// Its own.
    Own,
    /// None: it is a part of one.
    None,
}

fn statements(
    connected: &Connected,
    text: &str,
    rules: TransactionRules,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), QueryFailure> {
    let connection = connected.connection();
    let mut rest = Batch::new(connection, text);
    let is_together = !is_single(text);
    let (mut is_implicit, mut is_empty) = (false, true);
    loop {
        // What a statement does to a transaction is as SQLite reads it, whatever its words are.
        connected.take_change();
        let Some(mut statement) = rest.next()? else { break };
        let change = connected.take_change();
        is_empty = false;
        refuse(&statement)?;
        match change {
            Some(TransactionChange::Begin) if is_implicit || rules == TransactionRules::None => {
                reply.complete("BEGIN");
            }
            Some(_) if rules == TransactionRules::None => {
                let message = "the end of a transaction stands among other statements";
                return Err(refused("0A000", message, "Send COMMIT or ROLLBACK as a query of its own."));
            }
            // PostgreSQL warns that there is none.
            Some(TransactionChange::Commit) if connection.is_autocommit() => reply.complete("COMMIT"),
            Some(TransactionChange::RollBack) if connection.is_autocommit() => reply.complete("ROLLBACK"),
            _ => {
                // What changes something is a transaction that can be rolled back when its reply has an error.
                let is_part = change.is_none() && (is_together || !statement.readonly());
                if is_part && connection.is_autocommit() {
                    connection.execute_batch("BEGIN")?;
                    is_implicit = true;
                }
                run_one(connection, &mut statement, reply)?;
            }
        }
        is_implicit &= change.is_none();
    }
    if is_implicit {
        connection.execute_batch("COMMIT")?;
    }
    if is_empty {
        reply.empty();
    }
    Ok(())
}

/// Statements that SQLite would run, and that clients would get a wrong answer to.
fn refuse(statement: &Statement<'_>) -> Result<(), QueryFailure> {
    if statement.parameter_count() > 0 {
        let hint = "Put values into the text of the query: parameters are not supported.";
        return Err(refused("42P02", "there is no value for a parameter", hint));
    }
    if statement.is_explain() == 1 {
        let hint = "EXPLAIN QUERY PLAN is supported.";
        return Err(refused("0A000", "the program of a statement depends on the connection", hint));
    }
    Ok(())
}

fn refused(code: &'static str, message: &str, hint: &str) -> QueryFailure {
    QueryFailure::Refused(SqlError::new(code, message, hint))
}

/// What a statement does to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionChange {
    /// It begins.
    Begin,
    /// It ends, and counts.
    Commit,
    /// It ends, and does not count.
    RollBack,
}

/// The same of a query, by its words, if it is a single statement of this kind, and certainly means that.
pub fn changes_transaction(text: &str) -> Option<TransactionChange> {
    is_single(text).then(|| transaction_change(text)).flatten()
}

/// Only whole statements that mean just this: `ROLLBACK TO`, `COMMIT AND CHAIN` and `COMMIT PREPARED` are others.
fn transaction_change(sql: &str) -> Option<TransactionChange> {
    let (words, rest) = leading_words(sql);
    let is_whole = || match &words[1..] {
        [] => true,
        [word] => ["WORK", "TRANSACTION"].contains(&word.as_str()),
        _ => false,
    };
    let is_end = without_blanks(rest.strip_prefix(';').unwrap_or(rest)).is_empty();
    match words.first()?.as_str() {
        "BEGIN" | "START" => Some(TransactionChange::Begin),
        "COMMIT" | "END" if is_end && is_whole() => Some(TransactionChange::Commit),
        "ROLLBACK" | "ABORT" if is_end && is_whole() => Some(TransactionChange::RollBack),
        _ => None,
    }
}

/// Whether a query is certainly a single statement.
fn is_single(text: &str) -> bool {
    text.split_once(';').is_none_or(|(_, behind)| without_blanks(behind).is_empty())
}

/// Whether a query certainly changes nothing. One that does not look so may still change nothing.
pub fn only_reads(text: &str) -> bool {
    is_single(text)
        && leading_words(text).0.first().is_some_and(|word| ["SELECT", "VALUES"].contains(&word.as_str()))
}

fn run_one(
    connection: &Connection,
    statement: &mut Statement<'_>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), QueryFailure> {
    let sql = statement.expanded_sql().unwrap_or_default();
    let (words, _) = leading_words(&sql);
    let columns = statement.column_count();
    let mut places = Vec::new();
    if columns > 0 {
        places = reply.row_description(&statement.column_names().collect::<Vec<_>>());
    }
    // A column of SQLite's may have values of any type: that of all of them, or `text`.
    let mut types = vec![None; columns];
    let declared: Vec<_> =
        statement.columns().map(|column| column.decl_type().map(ColumnType::declared)).collect();
    let mut count = 0_u64;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        count += 1;
        let length =
            |column| row.get_ref(column).map_or(0, |value| 2 * value.as_bytes().map_or(16, <[u8]>::len));
        if reply.length() + (0..columns).map(length).sum::<usize>() > MAX_REPLY_BYTES {
            let message = format!("the reply has more than {} MiB", MAX_REPLY_BYTES >> 20);
            return Err(refused("54000", &message, "Ask for fewer rows at a time, with LIMIT."));
        }
        reply.data_row(columns, |column| {
            let value = row.get_ref(column)?;
            if let Some(found) = ColumnType::of(value) {
                let known = types[column].get_or_insert(found);
                if *known != found {
                    *known = ColumnType::Text;
                }
            }
            Ok(value)
        })?;
    }
    drop(rows);
    for ((place, found), declared) in places.into_iter().zip(types).zip(declared) {
        reply.set_type(place, found.or(declared).unwrap_or(ColumnType::Text));
    }
    let changed = connection.changes();
    let word = |number: usize| words.get(number).map_or("", String::as_str);
    let (first, second) = (word(0), word(1));
    reply.complete(&match first {
        "INSERT" | "REPLACE" => format!("INSERT 0 {changed}"),
        "UPDATE" | "DELETE" => format!("{first} {changed}"),
        "SELECT" | "VALUES" | "WITH" | "EXPLAIN" => format!("SELECT {count}"),
        "CREATE" if second == "UNIQUE" => format!("CREATE {}", word(2)),
        "CREATE" | "DROP" | "ALTER" => format!("{first} {second}"),
        "END" => "COMMIT".to_owned(),
        _ => first.to_owned(),
    });
    Ok(())
}

/// The words with which a statement begins, four at most, in capitals, and what is behind them.
fn leading_words(sql: &str) -> (Vec<String>, &str) {
    let (mut words, mut rest) = (Vec::new(), without_blanks(sql));
    while words.len() < 4 {
        let end = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
        if end == 0 {
            break;
        }
        words.push(rest[..end].to_ascii_uppercase());
        rest = without_blanks(&rest[end..]);
    }
    (words, rest)
}

fn without_blanks(mut sql: &str) -> &str {
    loop {
        sql = sql.trim_start();
        if let Some(comment) = sql.strip_prefix("--") {
            sql = comment.split_once('\n').map_or("", |(_, behind)| behind);
        } else if let Some(comment) = sql.strip_prefix("/*") {
            sql = comment.split_once("*/").map_or("", |(_, behind)| behind);
        } else {
            return sql;
        }
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

/// An error as PostgreSQL names it.
fn in_words(error: &Error) -> SqlError {
    let message = match error {
        Error::SqliteFailure(_, Some(message)) => message.clone(),
        Error::SqlInputError { msg, .. } => msg.clone(),
        error => error.to_string(),
    };
    let extended = error.sqlite_error().map_or(ffi::SQLITE_ERROR, |error| error.extended_code);
    let (code, hint) = match extended {
        ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_ROWID => {
            ("23505", None)
        }
        ffi::SQLITE_CONSTRAINT_NOTNULL => ("23502", None),
        ffi::SQLITE_CONSTRAINT_CHECK => ("23514", None),
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => ("23503", None),
        _ if message.contains("not authorized") => {
            ("0A000", Some("It would depend on the connection, or reach outside of the database."))
        }
        ffi::SQLITE_FULL => ("53100", Some("The database has reached its largest size: delete rows.")),
        ffi::SQLITE_TOOBIG => ("54000", None),
        ffi::SQLITE_INTERRUPT => {
            ("57014", Some("The statement took too many steps: let it do less, or add an index."))
        }
        ffi::SQLITE_MISMATCH => ("42804", None),
        ffi::SQLITE_CORRUPT => ("XX001", None),
        extended if extended & 0xff == ffi::SQLITE_CONSTRAINT => ("23000", None),
        _ => (of_message(&message), None),
    };
    SqlError { code, message, hint: hint.map(str::to_owned) }
}

/// SQLite has one code for everything that is wrong with a statement; its words differ.
fn of_message(message: &str) -> &'static str {
    let has = |words: &str| message.contains(words);
    match () {
        () if has("no such table") || has("no such view") => "42P01",
        () if has("no such column") || has("has no column named") => "42703",
        () if has("no such function") || has("wrong number of arguments") => "42883",
        () if has("no such index") => "42704",
        () if has("already exists") => "42P07",
        () if has("ambiguous column name") => "42702",
        () if has("within a transaction") || has("no transaction is active") => "25000",
        () if has("syntax error") || has("incomplete input") || has("unrecognized token") => "42601",
        () => "42000",
    }
}
