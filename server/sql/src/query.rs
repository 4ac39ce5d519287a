//! Runs the statements of a query, on its own or as a part of a transaction.

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::{Batch, Connection, Error, Statement, ffi};
use xxhash_rust::xxh3::xxh3_128;

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
    SqlError {
        code: "40001",
        message: "could not serialize access: what the transaction has read was changed by another one"
            .to_owned(),
        hint: Some("Run the transaction again from its beginning.".to_owned()),
    }
}

/// Runs a query outside of a transaction, and appends its reply. As PostgreSQL's simple protocol has it, several
/// statements are one transaction, unless they say otherwise.
///
/// # Errors
/// If there can be no reply of this replica.
pub fn run(connection: &Connection, text: &str, out: &mut Vec<u8>) -> Result<(), Abandoned> {
    let mut reply = ReplyWriter::new(out);
    let result = match statements(connection, text, TransactionRules::Own, &mut reply) {
        Ok(()) if !connection.is_autocommit() => Err(QueryFailure::Refused(SqlError {
            code: "0A000",
            message: "a transaction begins among other statements, and does not end there".to_owned(),
            hint: Some("Send BEGIN as a query of its own, or COMMIT with the rest.".to_owned()),
        })),
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
    connection: &Connection,
    before: &[Replayed],
    (text, drawn): (&str, Drawn),
    out: &mut Vec<u8>,
) -> Result<StepEnd, Abandoned> {
    let begins_at = out.len();
    let mut reply = ReplyWriter::new(out);
    let result = replay(connection, before).and_then(|()| {
        vfs::draw(drawn);
        statements(connection, text, TransactionRules::None, &mut reply)
    });
    roll_back(connection)?;
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
pub fn commit(connection: &Connection, queries: &[Replayed], out: &mut Vec<u8>) -> Result<(), Abandoned> {
    let mut reply = ReplyWriter::new(out);
    let committed = |()| connection.execute_batch("COMMIT").map_err(QueryFailure::from);
    let result = replay(connection, queries).and_then(committed);
    roll_back(connection)?;
    if !failed(result, &mut reply)? {
        reply.complete("COMMIT");
    }
    reply.ready(TransactionStatus::Idle);
    Ok(())
}

/// Begins a transaction, and runs queries that clients have replies to.
fn replay(connection: &Connection, queries: &[Replayed]) -> Result<(), QueryFailure> {
    connection.execute_batch("BEGIN")?;
    let mut again = Vec::new();
    for Replayed { text, drawn, digest } in queries {
        again.clear();
        vfs::draw(*drawn);
        statements(connection, text, TransactionRules::None, &mut ReplyWriter::new(&mut again)).map_err(
            |failure| match failure {
                QueryFailure::Sqlite(error) if abandoned(&error).is_some() => QueryFailure::Sqlite(error),
                // It has not failed before.
                _ => QueryFailure::Refused(conflict()),
            },
        )?;
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
    connection: &Connection,
    text: &str,
    rules: TransactionRules,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), QueryFailure> {
    let mut rest = Batch::new(connection, text);
    let mut next = rest.next()?;
    if next.is_none() {
        reply.empty();
        return Ok(());
    }
    let is_together = !is_single(text);
    let mut is_implicit = false;
    while let Some(mut statement) = next {
        let sql = statement.expanded_sql().unwrap_or_default();
        let changes = transaction_change(&sql);
        match changes {
            Some(TransactionChange::Begin) if is_implicit || rules == TransactionRules::None => {
                reply.complete("BEGIN")
            }
            Some(_) if rules == TransactionRules::None => {
                return Err(QueryFailure::Refused(SqlError {
                    code: "0A000",
                    message: "COMMIT or ROLLBACK stands among other statements of a transaction".to_owned(),
                    hint: Some("Send it as a query of its own.".to_owned()),
                }));
            }
            // PostgreSQL warns that there is none.
            Some(TransactionChange::Commit) if connection.is_autocommit() => reply.complete("COMMIT"),
            Some(TransactionChange::RollBack) if connection.is_autocommit() => reply.complete("ROLLBACK"),
            _ => {
                if is_together && changes.is_none() && connection.is_autocommit() {
                    connection.execute_batch("BEGIN")?;
                    is_implicit = true;
                }
                run_one(connection, &mut statement, &leading_words(&sql).0, reply)?;
            }
        }
        is_implicit &= changes.is_none();
        drop(statement);
        next = rest.next()?;
    }
    if is_implicit {
        connection.execute_batch("COMMIT")?;
    }
    Ok(())
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

/// The same of a query, if it is a single statement of this kind.
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
    let is_end = rest.chars().all(|letter| letter == ';' || letter.is_whitespace());
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
    words: &[String],
    reply: &mut ReplyWriter<'_>,
) -> Result<(), QueryFailure> {
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
        if reply.length() > MAX_REPLY_BYTES {
            return Err(QueryFailure::Refused(SqlError {
                code: "54000",
                message: format!("the reply has more than {} MiB", MAX_REPLY_BYTES >> 20),
                hint: Some("Ask for fewer rows at a time, with LIMIT.".to_owned()),
            }));
        }
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

/// Whether an error is of this replica only, so that no client may get it.
fn abandoned(error: &Error) -> Option<Abandoned> {
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
