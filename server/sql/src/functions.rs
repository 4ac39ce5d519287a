//! Functions of PostgreSQL's that SQLite lacks, or has with another meaning. Statements call them after translation.
//!
//! Each result depends on the arguments alone, but for the time and the random numbers of the request, which are the
//! same at all replicas: not on what a connection did before, nor on the host's language or time zone.
//!
//! An error's text is its SQLSTATE, a colon, and the message; a line that begins with `HINT: ` may follow.

mod aggregates;
mod casts;
mod digest;
mod documents;
mod logarithm;
mod math;
mod pattern;
mod regex;
mod statement;
mod text;
mod times;

use std::borrow::Cow;
use std::ffi::c_int;

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error};

use crate::error::SqlError;
use crate::values::real;

pub use digest::md5_hex;
pub use pattern::LikePattern;
pub use regex::Regex;
pub use text::quote_identifier;

/// Where functions have the time and random numbers from: the request that is executed.
#[derive(Clone, Copy)]
pub struct Sources {
    /// Microseconds since 1970.
    pub now_us: fn() -> u64,
    /// Fills bytes with random ones.
    pub fill: fn(&mut [u8]),
}

/// Bytes of a text that a function makes.
pub const MAX_BYTES: usize = 1 << 20;

/// What SQLite may assume of a function that depends on its arguments alone.
pub const PURE: FunctionFlags = FunctionFlags::SQLITE_UTF8
    .union(FunctionFlags::SQLITE_INNOCUOUS)
    .union(FunctionFlags::SQLITE_DETERMINISTIC);
/// What it may assume of one that depends on the request too.
const OF_REQUEST: FunctionFlags = FunctionFlags::SQLITE_UTF8.union(FunctionFlags::SQLITE_INNOCUOUS);

/// What a function answers.
pub type FunctionResult = Result<Value, SqlError>;

/// A function: its name, how many arguments it takes (-1 for any number), and what it does. NULL for an argument gives
/// NULL, and it is not called.
pub type Strict = (&'static str, c_int, fn(&Args<'_>) -> FunctionResult);

/// The arguments of a call.
pub struct Args<'a>(&'a Context<'a>);

impl<'a> Args<'a> {
    /// Those of a call.
    pub fn new(context: &'a Context<'a>) -> Self {
        Args(context)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// One of them; NULL if there are fewer.
    pub fn value(&self, at: usize) -> ValueRef<'a> {
        if at < self.0.len() { self.0.get_raw(at) } else { ValueRef::Null }
    }

    /// One as text.
    ///
    /// # Errors
    /// If it is text in another encoding.
    pub fn text(&self, at: usize) -> Result<Cow<'a, str>, SqlError> {
        text_of(self.value(at))
    }

    /// One as an integer.
    ///
    /// # Errors
    /// If it is none.
    pub fn integer(&self, at: usize) -> Result<i64, SqlError> {
        match self.value(at) {
            ValueRef::Integer(number) => Ok(number),
            ValueRef::Real(number) if number.fract() == 0.0 && number.abs() < 1e15 => Ok(number as i64),
            value => Err(wrong_argument("an integer", value)),
        }
    }

    /// One as a real number.
    ///
    /// # Errors
    /// If it is none.
    pub fn real(&self, at: usize) -> Result<f64, SqlError> {
        match self.value(at) {
            ValueRef::Integer(number) => Ok(number as f64),
            ValueRef::Real(number) => Ok(number),
            value => Err(wrong_argument("a number", value)),
        }
    }
}

/// A value as text.
fn text_of(value: ValueRef<'_>) -> Result<Cow<'_, str>, SqlError> {
    Ok(match value {
        ValueRef::Null => Cow::Borrowed(""),
        ValueRef::Integer(number) => Cow::Owned(number.to_string()),
        ValueRef::Real(number) => Cow::Owned(real(number)),
        ValueRef::Text(bytes) => Cow::Borrowed(std::str::from_utf8(bytes).map_err(|_| not_utf8())?),
        ValueRef::Blob(_) => return Err(wrong_argument("text", value)),
    })
}

fn not_utf8() -> SqlError {
    SqlError::plain("22021", "invalid byte sequence for encoding \"UTF8\"")
}

fn wrong_argument(expected: &str, value: ValueRef<'_>) -> SqlError {
    let found = match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => real(number),
        ValueRef::Text(bytes) => format!("\"{}\"", String::from_utf8_lossy(bytes)),
        ValueRef::Blob(_) => "bytea".to_owned(),
    };
    let hint = "No function matches the argument types. You might need to add explicit type casts.";
    SqlError::new("42883", format!("{expected} is expected, not {found}"), hint)
}

/// What a function makes would be longer than a value may be.
fn too_long() -> SqlError {
    SqlError::new("54000", "requested length too large", "A value has at most 1 MiB.")
}

/// An error as SQLite passes it on.
pub fn raise(error: SqlError) -> Error {
    let hint = error.hint.map_or_else(String::new, |hint| format!("\nHINT: {hint}"));
    Error::UserFunctionError(format!("{}: {}{hint}", error.code, error.message).into())
}

/// Makes functions known that depend on their arguments alone.
///
/// # Errors
/// Of SQLite.
pub fn define(connection: &Connection, functions: &[Strict]) -> Result<(), Error> {
    for (name, arguments, act) in functions {
        let act = *act;
        connection.create_scalar_function(*name, *arguments, PURE, move |context| {
            let args = Args::new(context);
            if (0..args.count()).any(|at| args.value(at) == ValueRef::Null) {
                return Ok(Value::Null);
            }
            act(&args).map_err(raise)
        })?;
    }
    Ok(())
}

/// The same of functions that take NULL as any other value.
///
/// # Errors
/// Of SQLite.
pub fn define_with_null(connection: &Connection, functions: &[Strict]) -> Result<(), Error> {
    for (name, arguments, act) in functions {
        let act = *act;
        connection.create_scalar_function(*name, *arguments, PURE, move |context| {
            act(&Args::new(context)).map_err(raise)
        })?;
    }
    Ok(())
}

/// Makes all functions known to a connection.
///
/// # Errors
/// Of SQLite.
pub fn register(connection: &Connection, sources: Sources) -> Result<(), Error> {
    casts::register(connection)?;
    pattern::register(connection)?;
    define(connection, text::FUNCTIONS)?;
    define(connection, math::FUNCTIONS)?;
    define(connection, times::FUNCTIONS)?;
    define(connection, documents::FUNCTIONS)?;
    define(connection, statement::FUNCTIONS)?;
    define_with_null(connection, statement::WITH_NULL)?;
    statement::register(connection)?;
    define_with_null(connection, math::WITH_NULL)?;
    define_with_null(connection, text::WITH_NULL)?;
    documents::register(connection)?;
    aggregates::register(connection)?;
    register_of_request(connection, sources)
}

fn register_of_request(connection: &Connection, sources: Sources) -> Result<(), Error> {
    connection.create_scalar_function("now_pg", 0, OF_REQUEST, move |_| {
        times::now((sources.now_us)()).map_err(raise)
    })?;
    connection.create_scalar_function("random_pg", 0, OF_REQUEST, move |_| {
        let mut bytes = [0; 8];
        (sources.fill)(&mut bytes);
        // 53 bits: a real number between 0 and 1 has them exactly.
        Ok((u64::from_le_bytes(bytes) >> 11) as f64 / (1_u64 << 53) as f64)
    })?;
    connection.create_scalar_function("gen_random_uuid_pg", 0, OF_REQUEST, move |_| {
        let mut bytes = [0; 16];
        (sources.fill)(&mut bytes);
        // Version 4, the variant of RFC 4122.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let mut text = String::with_capacity(36);
        for (at, byte) in bytes.iter().enumerate() {
            text.push_str(if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" });
            text.push_str(&format!("{byte:02x}"));
        }
        Ok(text)
    })
}

#[cfg(test)]
mod tests;
