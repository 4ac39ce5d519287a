//! Values between clients and SQLite: PostgreSQL's text and binary forms of each type, and its casts.
//!
//! What comes from a client may be any bytes, and what SQLite keeps may be anything too, since its columns take what
//! they are given. Both are checked here: a value that its type does not have is an error, never another value.

mod array;
mod binary;
mod coerce;
mod interval;
mod json;
mod moment;
mod number;

use rusqlite::types::{Value, ValueRef};

use crate::error::SqlError;
use crate::types::PgType;

pub use array::{elements, elements_text};
pub use coerce::{coerce, round_half_even};
pub use interval::Interval;
pub use json::{Json, JsonError, parse_json, quote_json};
pub use moment::{
    DAY_US, Moment, date_of, date_text, days_of_date, time_text, timestamp_of, timestamp_text,
    timestamptz_text,
};
pub use number::{Decimal, not_nan, real, real_single};

/// How a value is written between a client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// As people write it.
    Text,
    /// As PostgreSQL's `send` functions write it.
    Binary,
}

/// Why a value takes another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coercion {
    /// It is stored in a column of that type.
    Assignment,
    /// The statement says so: `CAST(x AS t)`, `x::t`.
    Explicit,
}

/// What the type is called in PostgreSQL's messages, and by `format_type`.
pub fn type_name(of: PgType) -> String {
    match of {
        PgType::Numeric { precision, scale } => format!("numeric({precision},{scale})"),
        PgType::Varchar(length) => format!("character varying({length})"),
        PgType::Char(length) => format!("character({length})"),
        of => type_family(of).to_owned(),
    }
}

/// The same without a modifier.
pub fn type_family(of: PgType) -> &'static str {
    match of {
        PgType::Bool => "boolean",
        PgType::Int2 => "smallint",
        PgType::Int4 => "integer",
        PgType::Int8 => "bigint",
        PgType::Real => "real",
        PgType::Double => "double precision",
        PgType::Numeric { .. } => "numeric",
        PgType::Text => "text",
        PgType::Varchar(_) => "character varying",
        PgType::Char(_) => "character",
        PgType::Bytea => "bytea",
        PgType::Date => "date",
        PgType::Time => "time without time zone",
        PgType::Timestamp => "timestamp without time zone",
        PgType::Timestamptz => "timestamp with time zone",
        PgType::Uuid => "uuid",
        PgType::Json => "json",
        PgType::Jsonb => "jsonb",
        PgType::Name => "name",
        PgType::Oid => "oid",
        PgType::Letter => "\"char\"",
        PgType::BoolArray => "boolean[]",
        PgType::Int4Array => "integer[]",
        PgType::Int8Array => "bigint[]",
        PgType::DoubleArray => "double precision[]",
        PgType::TextArray => "text[]",
        PgType::OidArray => "oid[]",
        PgType::UuidArray => "uuid[]",
    }
}

/// Text that is no value of the type.
fn bad_syntax(code: &'static str, of: PgType, text: &str) -> SqlError {
    SqlError::plain(code, format!("invalid input syntax for type {}: \"{text}\"", type_family(of)))
}

/// A stored value that the type does not have.
fn misfit(value: ValueRef<'_>, of: PgType) -> SqlError {
    let what = match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => real(number),
        ValueRef::Text(bytes) => format!("\"{}\"", String::from_utf8_lossy(bytes)),
        ValueRef::Blob(bytes) => format!("of {} bytes", bytes.len()),
    };
    let hint = "Cast it to its type where it is computed.";
    SqlError::new("XX000", format!("value {what} is none of type {}", type_name(of)), hint)
}

/// Text without zeros: PostgreSQL has none in its text.
fn utf8(bytes: &[u8]) -> Result<&str, SqlError> {
    let wrong = match std::str::from_utf8(bytes) {
        Ok(text) if !bytes.contains(&0) => return Ok(text),
        Ok(_) => 0,
        Err(error) => bytes[error.valid_up_to()],
    };
    Err(SqlError::plain("22021", format!("invalid byte sequence for encoding \"UTF8\": 0x{wrong:02x}")))
}

/// PostgreSQL's text input of a type: what a literal means, a parameter in text, or a field of COPY.
///
/// # Errors
/// If the text is no value of the type: 22P02, 22003, 22007, 22008, 22001, 0A000 for what SQLite cannot keep.
pub fn input(text: &str, of: PgType) -> Result<Value, SqlError> {
    utf8(text.as_bytes())?;
    match of {
        PgType::Bool => boolean(text).map(|value| Value::Integer(value.into())),
        PgType::Int2 | PgType::Int4 | PgType::Int8 | PgType::Oid => {
            number::integer(text, of).map(Value::Integer)
        }
        PgType::Real | PgType::Double => number::float(text, of).map(Value::Real),
        PgType::Numeric { precision, scale } => Decimal::input(text)?.fit(precision, scale)?.value(),
        PgType::Text => Ok(Value::Text(text.to_owned())),
        PgType::Varchar(length) => limited(text, length, of).map(Value::Text),
        PgType::Char(length) => limited(text.trim_end_matches(' '), length, of).map(Value::Text),
        PgType::Name => Ok(Value::Text(cut_bytes(text, 63).to_owned())),
        PgType::Letter => Ok(Value::Text(cut_bytes(text, 1).to_owned())),
        PgType::Bytea => bytea(text).map(Value::Blob),
        PgType::Date | PgType::Time | PgType::Timestamp | PgType::Timestamptz => {
            Moment::parse(text, of)?.text(text, of).map(Value::Text)
        }
        PgType::Uuid => uuid(text).map(Value::Text),
        PgType::Json => {
            json::check(text).map_err(|error| error.into_sql(of))?;
            Ok(Value::Text(text.to_owned()))
        }
        PgType::Jsonb => json::normal(text).map(Value::Text),
        PgType::BoolArray
        | PgType::Int4Array
        | PgType::Int8Array
        | PgType::DoubleArray
        | PgType::TextArray
        | PgType::OidArray
        | PgType::UuidArray => array::input(text, of).map(Value::Text),
    }
}

/// A parameter as a client sends it. Parameters have no modifier: that of `of` does not count.
///
/// # Errors
/// As [`input`]; 22P03 for a binary form that is none, 22021 for text in another encoding.
pub fn from_parameter(bytes: &[u8], format: Format, of: PgType) -> Result<Value, SqlError> {
    if format == Format::Binary {
        return binary::read(bytes, of);
    }
    let text = utf8(bytes)?;
    match of {
        PgType::Numeric { .. } => Decimal::input(text)?.value(),
        PgType::Varchar(_) => Ok(Value::Text(text.to_owned())),
        PgType::Char(_) => Ok(Value::Text(text.trim_end_matches(' ').to_owned())),
        of => input(text, of),
    }
}

/// Appends a value, without its length, as a client reads it.
///
/// # Errors
/// If the type does not have the value, which SQLite's columns and expressions may have all the same: 22003, XX000.
pub fn to_result(value: ValueRef<'_>, of: PgType, format: Format, out: &mut Vec<u8>) -> Result<(), SqlError> {
    match format {
        Format::Text => write_text(value, of, out),
        Format::Binary => binary::write(value, of, out),
    }
}

/// An integer that the type has, out of what SQLite has computed.
fn stored_integer(value: ValueRef<'_>, of: PgType) -> Result<i64, SqlError> {
    let number = match value {
        ValueRef::Integer(number) => number,
        // SQLite's sums and divisions of what it takes for numbers.
        ValueRef::Real(number) if number.fract() == 0.0 && number.abs() < 1e15 => number as i64,
        value => return Err(misfit(value, of)),
    };
    number::in_range(number, of)
}

/// A boolean that SQLite has computed.
fn stored_boolean(value: ValueRef<'_>) -> Result<bool, SqlError> {
    match value {
        ValueRef::Integer(0) => Ok(false),
        ValueRef::Integer(1) => Ok(true),
        value => Err(misfit(value, PgType::Bool)),
    }
}

/// A decimal that SQLite has computed.
fn stored_decimal(value: ValueRef<'_>, of: PgType, scale: u8) -> Result<Decimal, SqlError> {
    match value {
        ValueRef::Integer(number) => Ok(Decimal::from(number)),
        ValueRef::Real(number) => Decimal::from_real(number, scale),
        value => Err(misfit(value, of)),
    }
}

fn stored_real(value: ValueRef<'_>, of: PgType) -> Result<f64, SqlError> {
    match value {
        ValueRef::Integer(number) => Ok(number as f64),
        ValueRef::Real(number) => Ok(number),
        value => Err(misfit(value, of)),
    }
}

fn stored_text<'a>(value: ValueRef<'a>, of: PgType) -> Result<&'a str, SqlError> {
    match value {
        ValueRef::Text(bytes) => utf8(bytes),
        value => Err(misfit(value, of)),
    }
}

/// Whatever SQLite has, as text.
fn put_plain(value: ValueRef<'_>, out: &mut Vec<u8>) -> Result<(), SqlError> {
    match value {
        ValueRef::Null => {}
        ValueRef::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        ValueRef::Real(number) => out.extend_from_slice(real(number).as_bytes()),
        ValueRef::Text(bytes) => out.extend_from_slice(utf8(bytes)?.as_bytes()),
        ValueRef::Blob(bytes) => put_hex(bytes, out),
    }
    Ok(())
}

fn put_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

fn write_text(value: ValueRef<'_>, of: PgType, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let text = match of {
        PgType::Bool => if stored_boolean(value)? { "t" } else { "f" }.to_owned(),
        PgType::Int2 | PgType::Int4 | PgType::Int8 | PgType::Oid => stored_integer(value, of)?.to_string(),
        PgType::Real => real_single(stored_real(value, of)? as f32),
        PgType::Double => real(stored_real(value, of)?),
        PgType::Numeric { scale, .. } => stored_decimal(value, of, scale)?.text(scale),
        PgType::Text | PgType::Varchar(_) | PgType::Char(_) | PgType::Name | PgType::Letter => {
            return put_plain(value, out);
        }
        PgType::Bytea => match value {
            ValueRef::Blob(bytes) => {
                put_hex(bytes, out);
                return Ok(());
            }
            value => return Err(misfit(value, of)),
        },
        PgType::Date | PgType::Time | PgType::Timestamp | PgType::Timestamptz => {
            moment::stored(value, of)?.text("", of)?
        }
        PgType::Uuid => uuid(stored_text(value, of)?)?,
        PgType::Json | PgType::Jsonb => json::stored(value, of)?,
        _ => array::to_text(stored_text(value, of)?, of)?,
    };
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// The first bytes of a text, without a part of a character.
fn cut_bytes(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The first characters of a text, and what follows.
fn cut_characters(text: &str, most: u32) -> (&str, &str) {
    let end = text.char_indices().nth(most as usize).map_or(text.len(), |(at, _)| at);
    text.split_at(end)
}

/// Text of at most so many characters, of which only blanks may be cut.
fn limited(text: &str, most: u32, of: PgType) -> Result<String, SqlError> {
    let (kept, cut) = cut_characters(text, most);
    if cut.bytes().any(|byte| byte != b' ') {
        return Err(SqlError::plain("22001", format!("value too long for type {}", type_name(of))));
    }
    Ok(kept.to_owned())
}

/// Any beginning of `true`, `false`, `yes`, `no`, and `on`, `off`, 1, 0.
fn boolean(text: &str) -> Result<bool, SqlError> {
    let word = text.trim_matches(is_space).to_ascii_lowercase();
    let begins = |whole: &str| !word.is_empty() && whole.starts_with(&word);
    match word.as_str() {
        "on" | "1" => Ok(true),
        "off" | "of" | "0" => Ok(false),
        _ if begins("true") || begins("yes") => Ok(true),
        _ if begins("false") || begins("no") => Ok(false),
        _ => Err(bad_syntax("22P02", PgType::Bool, text)),
    }
}

/// What C's `isspace` takes for blanks.
fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t'..='\r')
}

/// 32 digits, in braces or not, with hyphens between groups of four or without; written in the usual form.
fn uuid(text: &str) -> Result<String, SqlError> {
    let error = || bad_syntax("22P02", PgType::Uuid, text);
    let inner = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}').ok_or_else(error)?,
        None => text,
    };
    let mut digits = String::with_capacity(36);
    let mut count = 0;
    let mut may_be_hyphen = false;
    for byte in inner.bytes() {
        if byte == b'-' && may_be_hyphen && count < 32 {
            may_be_hyphen = false;
            continue;
        }
        if !byte.is_ascii_hexdigit() || count == 32 {
            return Err(error());
        }
        if matches!(count, 8 | 12 | 16 | 20) {
            digits.push('-');
        }
        digits.push(byte.to_ascii_lowercase().into());
        count += 1;
        may_be_hyphen = count % 4 == 0;
    }
    if count == 32 && !inner.ends_with('-') { Ok(digits) } else { Err(error()) }
}

/// `\x` and hexadecimal digits, or characters and `\ooo`.
fn bytea(text: &str) -> Result<Vec<u8>, SqlError> {
    let Some(hex) = text.strip_prefix("\\x") else {
        return escaped_bytea(text);
    };
    let (mut out, mut high) = (Vec::with_capacity(hex.len() / 2), None);
    for character in hex.chars() {
        if high.is_none() && matches!(character, ' ' | '\n' | '\t' | '\r') {
            continue;
        }
        let Some(digit) = character.to_digit(16) else {
            return Err(SqlError::plain("22023", format!("invalid hexadecimal digit: \"{character}\"")));
        };
        match high.take() {
            None => high = Some(digit),
            Some(first) => out.push((first << 4 | digit) as u8),
        }
    }
    match high {
        Some(_) => Err(SqlError::plain("22023", "invalid hexadecimal data: odd number of digits")),
        None => Ok(out),
    }
}

fn escaped_bytea(text: &str) -> Result<Vec<u8>, SqlError> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            (b'\\', [b'\\', rest @ ..]) => {
                out.push(b'\\');
                rest
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest
            }
            (b'\\', _) => return Err(SqlError::plain("22P02", "invalid input syntax for type bytea")),
            (byte, rest) => {
                out.push(*byte);
                rest
            }
        };
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
