//! Literals: numbers, strings in all their forms, intervals.

use sqlparser::ast::{DateTimeField, Expr, Interval, Value};

use super::coerce::integer_literal;
use super::expression::{Expression, Of};
use super::translator::Translator;
use crate::error::SqlError;
use crate::types::PgType;

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

/// A length of time, as PostgreSQL keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Whole months.
    pub months: i64,
    /// Whole days.
    pub days: i64,
    /// The rest.
    pub microseconds: i64,
}

/// What is no length of time that is supported.
pub fn no_interval(text: &str) -> SqlError {
    SqlError::unsupported(
        format!("this use of an interval is not supported: {text}"),
        "Add or subtract a literal such as INTERVAL '1 day 2 hours', or compute with extract(epoch from x).",
    )
}

/// A literal of INTERVAL.
pub fn span(interval: &Interval) -> Result<Span, SqlError> {
    let Expr::Value(value) = interval.value.as_ref() else { return Err(no_interval(&interval.to_string())) };
    let (Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) = &value.value else {
        return Err(no_interval(&interval.to_string()));
    };
    match &interval.leading_field {
        None => span_of_text(text),
        Some(field) if interval.last_field.is_none() => {
            span_of_text(&format!("{text} {}", unit_name(field).ok_or_else(|| no_interval(text))?))
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

/// From `1 day -02:30`, `3 months ago`.
pub fn span_of_text(text: &str) -> Result<Span, SqlError> {
    let failed = || no_interval(&format!("'{text}'"));
    let (mut span, mut words, mut is_ago) = (Span::default(), text.split_whitespace().peekable(), false);
    if words.peek().is_none() {
        return Err(SqlError::plain("22007", format!("invalid input syntax for type interval: \"{text}\"")));
    }
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case("ago") {
            is_ago = words.peek().is_none();
            continue;
        }
        if word.contains(':') {
            span.microseconds += clock(word).ok_or_else(failed)?;
            continue;
        }
        // `1day` and `1 day`.
        let digits = word.find(|c: char| c.is_alphabetic()).unwrap_or(word.len());
        let (amount, unit) = word.split_at(digits);
        let unit = if unit.is_empty() { words.next().unwrap_or("second") } else { unit };
        let amount: f64 = amount.parse().map_err(|_| failed())?;
        let (months, days, microseconds) = unit_size(&unit.to_ascii_lowercase()).ok_or_else(failed)?;
        let is_whole = amount.fract() == 0.0 && amount.abs() < 1e9;
        if !is_whole && microseconds == 0 {
            return Err(failed());
        }
        span.months += months * amount as i64;
        span.days += days * amount as i64;
        span.microseconds += (microseconds as f64 * amount).round() as i64;
    }
    if is_ago {
        span = Span { months: -span.months, days: -span.days, microseconds: -span.microseconds };
    }
    Ok(span)
}

fn clock(word: &str) -> Option<i64> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, word.trim_start_matches('+')),
    };
    let mut parts = digits.split(':');
    let hours: i64 = parts.next()?.parse().ok()?;
    let minutes: i64 = parts.next()?.parse().ok()?;
    let seconds: f64 = parts.next().map_or(Some(0.0), |seconds| seconds.parse().ok())?;
    let is_time = hours < 1_000_000 && (0..60).contains(&minutes) && (0.0..60.0).contains(&seconds);
    let whole = (hours * 60 + minutes) * 60 * 1_000_000;
    (is_time && parts.next().is_none()).then(|| sign * (whole + (seconds * 1e6).round() as i64))
}

fn unit_size(unit: &str) -> Option<(i64, i64, i64)> {
    const SECOND: i64 = 1_000_000;
    Some(match unit {
        "y" | "yr" | "yrs" | "year" | "years" => (12, 0, 0),
        "mon" | "mons" | "month" | "months" => (1, 0, 0),
        "w" | "week" | "weeks" => (0, 7, 0),
        "d" | "day" | "days" => (0, 1, 0),
        "h" | "hr" | "hrs" | "hour" | "hours" => (0, 0, 3_600 * SECOND),
        "m" | "min" | "mins" | "minute" | "minutes" => (0, 0, 60 * SECOND),
        "s" | "sec" | "secs" | "second" | "seconds" => (0, 0, SECOND),
        "ms" | "msec" | "millisecond" | "milliseconds" => (0, 0, SECOND / 1_000),
        "us" | "usec" | "microsecond" | "microseconds" => (0, 0, 1),
        _ => return None,
    })
}
