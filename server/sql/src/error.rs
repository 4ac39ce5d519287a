//! Errors as PostgreSQL's clients know them: a code, what happened, and what to do.

use crosscheck::object::Summed;
use rusqlite::{Error, ffi};

/// An error for a client.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub struct SqlError {
    /// SQLSTATE: five letters or digits.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do instead.
    pub hint: Option<String>,
    /// Where in the query: the number of the character, from 1.
    pub position: Option<u32>,
    /// The objects of the schema that it is about, as far as they are known.
    pub about: Vec<ErrorField>,
}

/// An object of the schema that an error is about.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub struct ErrorField {
    /// What it is, by PostgreSQL's letter: `s` a schema, `t` a table, `c` a column, `n` a constraint.
    pub letter: u8,
    /// Its name.
    pub name: String,
}

impl SqlError {
    /// An error with what to do instead.
    pub fn new(code: &str, message: impl Into<String>, hint: &str) -> Self {
        SqlError { hint: Some(hint.to_owned()), ..SqlError::plain(code, message) }
    }

    /// An error whose message says enough.
    pub fn plain(code: &str, message: impl Into<String>) -> Self {
        let (code, message) = (code.to_owned(), message.into());
        SqlError { code, message, hint: None, position: None, about: Vec::new() }
    }

    /// The same, at a place in the query.
    #[must_use]
    pub fn at(self, position: Option<u32>) -> Self {
        SqlError { position, ..self }
    }

    /// What the dialect lacks.
    pub fn unsupported(what: impl Into<String>, hint: &str) -> Self {
        SqlError::new("0A000", what, hint)
    }

    /// Of a query in a transaction that has failed.
    pub fn aborted() -> Self {
        let message = "current transaction is aborted, commands ignored until end of transaction block";
        SqlError::plain("25P02", message)
    }

    /// An error of SQLite's as PostgreSQL names it. One of our own functions' brings its code: `22P02: invalid ..`.
    pub fn of_sqlite(error: &Error) -> Self {
        let message = match error {
            Error::SqliteFailure(_, Some(message)) => message.clone(),
            Error::SqlInputError { msg, .. } => msg.clone(),
            error => error.to_string(),
        };
        if let Some((code, rest)) = message.split_once(": ")
            && code.len() == 5
            && code.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
        {
            return match rest.split_once("\nHINT: ") {
                Some((message, hint)) => SqlError::new(code, message, hint),
                None => SqlError::plain(code, rest),
            };
        }
        let extended = error.sqlite_error().map_or(ffi::SQLITE_ERROR, |error| error.extended_code);
        let (code, hint) = code_and_hint(extended, &message);
        SqlError { hint: hint.map(str::to_owned), ..SqlError::plain(code, message) }
    }
}

fn code_and_hint(extended: i32, message: &str) -> (&'static str, Option<&'static str>) {
    match extended {
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
        _ => (of_message(message), None),
    }
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
        () if has("no such savepoint") => "3B001",
        () if has("syntax error") || has("incomplete input") || has("unrecognized token") => "42601",
        () => "42000",
    }
}
