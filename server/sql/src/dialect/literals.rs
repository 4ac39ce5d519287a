//! Literals: numbers, strings in all their forms, intervals.

use sqlparser::ast::{DateTimeField, Expr, Interval as IntervalLiteral, Value};

use super::coerce::integer_literal;
use super::expression::{Expression, Of};
use super::translator::Translator;
use crate::error::SqlError;
use crate::types::PgType;
use crate::values::Interval;

/// A string without a type.
pub fn string(text: &str) -> Expression {
    let sql = super::names::text_literal(text);
    Expression { of: Of::Literal(Some(text.to_owned())), ..Expression::constant(sql, PgType::Text) }
}

/// NULL without a type.
pub fn null() -> Expression {
    Expression { of: Of::Literal(None), ..Expression::new("NULL".to_owned(), PgType::Text) }
}

/// A boolean.
pub fn boolean(value: bool) -> Expression {
    Expression::constant(if value { "1" } else { "0" }.to_owned(), PgType::Bool)
}

/// A number, with its sign if it has one.
pub fn number(digits: &str) -> Result<Expression, SqlError> {
    let plain = digits.replace('_', "");
    let integer = match plain.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => i64::from_str_radix(&plain[2..], 16).ok(),
        Some("0o") => i64::from_str_radix(&plain[2..], 8).ok(),
        Some("0b") => i64::from_str_radix(&plain[2..], 2).ok(),
        _ => plain.parse::<i64>().ok(),
    };
    if let Some(integer) = integer {
        let of = if i32::try_from(integer).is_ok() { PgType::Int4 } else { PgType::Int8 };
        return Ok(Expression::constant(integer_literal(integer), of));
    }
    let is_finite = plain.parse::<f64>().is_ok_and(f64::is_finite);
    let has_point = plain.contains(['.', 'e', 'E']);
    if !is_finite || !has_point {
        return Err(SqlError::new(
            "22003",
            format!("the number {digits} is out of range"),
            "Integers have 64 bits here, and other numbers are of double precision.",
        ));
    }
    let sql = if plain.starts_with('-') { format!("({plain})") } else { plain };
    Ok(Expression::constant(sql, PgType::Double))
}

impl Translator<'_> {
    /// A literal or a parameter.
    pub fn value(&mut self, value: &Value) -> Result<Expression, SqlError> {
        match value {
            Value::Number(digits, false) => number(digits),
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text)
            | Value::NationalStringLiteral(text) => without_zero(text),
            Value::DollarQuotedString(text) => without_zero(&text.value),
            Value::Boolean(value) => Ok(boolean(*value)),
            Value::Null => Ok(null()),
            Value::Placeholder(name) => self.parameter(name),
            other => Err(SqlError::unsupported(
                format!("a literal of this form is not supported: {other}"),
                "Write a string as '..' or E'..', and bytes as '\\x..'.",
            )),
        }
    }
}

fn without_zero(text: &str) -> Result<Expression, SqlError> {
    if text.contains('\0') {
        return Err(SqlError::plain("22021", "invalid byte sequence for encoding \"UTF8\": 0x00"));
    }
    Ok(string(text))
}

/// What is no length of time that is supported.
pub fn no_interval(text: &str) -> SqlError {
    SqlError::unsupported(
        format!("this use of an interval is not supported: {text}"),
        "Add or subtract a literal such as INTERVAL '1 day 2 hours', or compute with extract(epoch from x).",
    )
}

/// A literal of INTERVAL.
pub fn interval(interval: &IntervalLiteral) -> Result<Interval, SqlError> {
    let Expr::Value(value) = interval.value.as_ref() else { return Err(no_interval(&interval.to_string())) };
    let (Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) = &value.value else {
        return Err(no_interval(&interval.to_string()));
    };
    match &interval.leading_field {
        None => Interval::parse(text),
        Some(field) if interval.last_field.is_none() => {
            Interval::parse(&format!("{text} {}", unit_name(field).ok_or_else(|| no_interval(text))?))
        }
        Some(_) => Err(no_interval(&interval.to_string())),
    }
}

fn unit_name(field: &DateTimeField) -> Option<&'static str> {
    use DateTimeField as F;
    Some(match field {
        F::Year | F::Years => "year",
        F::Month | F::Months => "month",
        F::Week(None) | F::Weeks => "week",
        F::Day | F::Days => "day",
        F::Hour | F::Hours => "hour",
        F::Minute | F::Minutes => "minute",
        F::Second | F::Seconds => "second",
        _ => return None,
    })
}
