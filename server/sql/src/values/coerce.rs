//! PostgreSQL's casts, on values whose type only SQLite knows: an integer, a real number, text or bytes.

use rusqlite::types::{Value, ValueRef};

use super::number::{in_range, not_nan, out_of_range};
use super::{
    Coercion, Decimal, array, boolean, cut_characters, input, limited, number, put_hex, real, type_family,
    utf8,
};
use crate::error::SqlError;
use crate::types::PgType;

/// A value as one of the type. Text is read as [`input`] reads it, NULL stays NULL.
///
/// # Errors
/// 42846 and 42804 if there is no such cast; 22003, 22001, and those of [`input`].
pub fn coerce(value: ValueRef<'_>, of: PgType, how: Coercion) -> Result<Value, SqlError> {
    match value {
        ValueRef::Null => Ok(Value::Null),
        ValueRef::Integer(number) => from_integer(number, of, how),
        ValueRef::Real(number) => from_real(number, of, how),
        ValueRef::Text(bytes) => from_text(utf8(bytes)?, of, how),
        ValueRef::Blob(bytes) => from_bytes(bytes, of, how),
    }
}

fn no_cast(from: &str, of: PgType, how: Coercion) -> SqlError {
    let to = type_family(of);
    match how {
        Coercion::Explicit => SqlError::plain("42846", format!("cannot cast type {from} to {to}")),
        Coercion::Assignment => {
            let message = format!("column is of type {to} but expression is of type {from}");
            SqlError::new("42804", message, "You will need to rewrite or cast the expression.")
        }
    }
}

fn from_integer(value: i64, of: PgType, how: Coercion) -> Result<Value, SqlError> {
    match of {
        PgType::Bool if how == Coercion::Explicit => Ok(Value::Integer(i64::from(value != 0))),
        // SQLite's own booleans.
        PgType::Bool if matches!(value, 0 | 1) => Ok(Value::Integer(value)),
        PgType::Int2 | PgType::Int4 | PgType::Int8 | PgType::Oid => in_range(value, of).map(Value::Integer),
        PgType::Real => Ok(Value::Real(f64::from(value as f32))),
        PgType::Double => Ok(Value::Real(value as f64)),
        PgType::Numeric { precision, scale } => Decimal::from(value).fit(precision, scale)?.value(),
        of if of.is_text() => from_text(&value.to_string(), of, how),
        PgType::Json | PgType::Jsonb if how == Coercion::Assignment => Ok(Value::Text(value.to_string())),
        of => Err(no_cast("bigint", of, how)),
    }
}

fn from_real(value: f64, of: PgType, how: Coercion) -> Result<Value, SqlError> {
    match of {
        PgType::Int2 | PgType::Int4 | PgType::Int8 => {
            let whole = if value.abs() < 1e15 {
                Decimal::from_real(value, 0)?.rounded(0).whole()
            } else {
                exact(value.round())
            };
            in_range(whole.ok_or_else(|| out_of_range(of))?, of).map(Value::Integer)
        }
        PgType::Real => single(value).map(Value::Real),
        PgType::Double => not_nan(value).map(Value::Real),
        PgType::Numeric { precision, scale } => Decimal::from_real(value, 0)?.fit(precision, scale)?.value(),
        of if of.is_text() => from_text(&real(value), of, how),
        PgType::Json | PgType::Jsonb if how == Coercion::Assignment && value.is_finite() => {
            Ok(Value::Text(real(value)))
        }
        of => Err(no_cast("double precision", of, how)),
    }
}

/// A real number without a fraction as an integer.
fn exact(number: f64) -> Option<i64> {
    // The bounds are powers of two, which a real number has exactly.
    (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number).then_some(number as i64)
}

/// How PostgreSQL makes an integer of a `double precision`: half goes to the even neighbour.
///
/// # Errors
/// 22003.
pub fn round_half_even(value: f64, of: PgType) -> Result<i64, SqlError> {
    in_range(exact(value.round_ties_even()).ok_or_else(|| out_of_range(of))?, of)
}

fn single(value: f64) -> Result<f64, SqlError> {
    let single = f64::from(value as f32);
    if single.is_infinite() && value.is_finite() {
        return Err(SqlError::plain("22003", "value out of range: overflow"));
    }
    if single == 0.0 && value != 0.0 {
        return Err(SqlError::plain("22003", "value out of range: underflow"));
    }
    not_nan(single)
}

fn from_text(text: &str, of: PgType, how: Coercion) -> Result<Value, SqlError> {
    match of {
        PgType::Varchar(length) if how == Coercion::Explicit => {
            Ok(Value::Text(cut_characters(text, length).0.to_owned()))
        }
        PgType::Char(length) if how == Coercion::Explicit => {
            Ok(Value::Text(cut_characters(text, length).0.trim_end_matches(' ').to_owned()))
        }
        PgType::Varchar(length) => limited(text, length, of).map(Value::Text),
        PgType::Bool => boolean(text).map(|value| Value::Integer(value.into())),
        PgType::Real | PgType::Double => number::float(text, of).map(Value::Real),
        // What SQLite has already.
        of if of.element().is_some() && text.starts_with('[') => {
            let values = array::elements(text, of)?;
            Ok(Value::Text(array::json_of(&values, of.element().unwrap_or(PgType::Text))))
        }
        of => input(text, of),
    }
}

fn from_bytes(bytes: &[u8], of: PgType, how: Coercion) -> Result<Value, SqlError> {
    if of == PgType::Bytea {
        return Ok(Value::Blob(bytes.to_owned()));
    }
    if !of.is_text() {
        return Err(no_cast("bytea", of, how));
    }
    let mut out = Vec::with_capacity(bytes.len() * 2 + 2);
    put_hex(bytes, &mut out);
    from_text(&String::from_utf8_lossy(&out), of, how)
}
