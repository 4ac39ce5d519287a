//! JSON as PostgreSQL reads it, and the normal form of `jsonb`: keys sorted and each once, blanks in fixed places.

use std::collections::BTreeMap;
use std::fmt::Write;

use rusqlite::types::ValueRef;

use super::number::{Decimal, real};
use super::{misfit, type_family, utf8};
use crate::error::SqlError;
use crate::types::PgType;

/// How deep arrays and objects may be in each other, as in SQLite.
const MAX_DEPTH: u32 = 1000;

/// A value in JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// As it is written.
    Number(String),
    /// Without its quotes and escapes.
    Text(String),
    /// `[..]`
    Array(Vec<Json>),
    /// `{..}`, as it is written.
    Object(Vec<(String, Json)>),
}

/// Why a text is no JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// It is not written so.
    Syntax,
    /// Deeper than 1000.
    Depth,
    /// Half of a pair of escapes, which no text has.
    Pair,
    /// `\u0000`, which no text of PostgreSQL's has.
    Zero,
}

impl JsonError {
    /// The error of a value of the type.
    pub fn into_sql(self, of: PgType) -> SqlError {
        match self {
            JsonError::Depth => {
                SqlError::new("54001", "stack depth limit exceeded", "Use a flatter document.")
            }
            JsonError::Syntax | JsonError::Pair => {
                SqlError::plain("22P02", format!("invalid input syntax for type {}", type_family(of)))
            }
            JsonError::Zero => SqlError::plain("22P05", "unsupported Unicode escape sequence"),
        }
    }
}

/// Reads a text.
///
/// # Errors
/// If it is no JSON.
pub fn parse_json(text: &str) -> Result<Json, JsonError> {
    read(text, false)
}

/// Whether it is a value of `json`, which PostgreSQL keeps as it is written, escapes that are no characters too.
///
/// # Errors
/// If not.
pub fn check(text: &str) -> Result<(), JsonError> {
    read(text, true).map(drop)
}

fn read(text: &str, is_lenient: bool) -> Result<Json, JsonError> {
    let mut reader = Reader { rest: text.as_bytes(), depth: 0, is_lenient };
    let value = reader.value()?;
    reader.blanks();
    if reader.rest.is_empty() { Ok(value) } else { Err(JsonError::Syntax) }
}

struct Reader<'a> {
    rest: &'a [u8],
    depth: u32,
    /// Takes any escape for a character.
    is_lenient: bool,
}

impl Reader<'_> {
    fn blanks(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.blanks();
        let found = self.rest.first() == Some(&byte);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, JsonError> {
        self.rest = self.rest.strip_prefix(word.as_bytes()).ok_or(JsonError::Syntax)?;
        Ok(value)
    }

    fn value(&mut self) -> Result<Json, JsonError> {
        self.blanks();
        match self.rest.first() {
            Some(b'n') => self.word("null", Json::Null),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'"') => self.text().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number().map(Json::Number),
            Some(b'[' | b'{') => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(JsonError::Depth);
                }
                let value = if self.take(b'[') { self.array() } else { self.object() };
                self.depth -= 1;
                value
            }
            _ => Err(JsonError::Syntax),
        }
    }

    fn array(&mut self) -> Result<Json, JsonError> {
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value()?);
            if self.take(b']') {
                return Ok(Json::Array(items));
            }
            if !self.take(b',') {
                return Err(JsonError::Syntax);
            }
        }
    }

    fn object(&mut self) -> Result<Json, JsonError> {
        let mut items = Vec::new();
        if !self.take(b'{') {
            return Err(JsonError::Syntax);
        }
        if self.take(b'}') {
            return Ok(Json::Object(items));
        }
        loop {
            self.blanks();
            let key = self.text()?;
            if !self.take(b':') {
                return Err(JsonError::Syntax);
            }
            items.push((key, self.value()?));
            if self.take(b'}') {
                return Ok(Json::Object(items));
            }
            if !self.take(b',') {
                return Err(JsonError::Syntax);
            }
        }
    }

    fn number(&mut self) -> Result<String, JsonError> {
        let all = self.rest;
        let digits = |rest: &mut &[u8]| {
            let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            *rest = &rest[count..];
            count
        };
        let mut rest = all.strip_prefix(b"-").unwrap_or(all);
        let leading_zero = rest.first() == Some(&b'0');
        let count = digits(&mut rest);
        if count == 0 || leading_zero && count > 1 {
            return Err(JsonError::Syntax);
        }
        if let [b'.', after @ ..] = rest {
            rest = after;
            if digits(&mut rest) == 0 {
                return Err(JsonError::Syntax);
            }
        }
        if let [b'e' | b'E', after @ ..] = rest {
            rest = after.strip_prefix(b"+").or_else(|| after.strip_prefix(b"-")).unwrap_or(after);
            if digits(&mut rest) == 0 {
                return Err(JsonError::Syntax);
            }
        }
        // A word that goes on is no number.
        if rest.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
            return Err(JsonError::Syntax);
        }
        self.rest = rest;
        Ok(String::from_utf8_lossy(&all[..all.len() - rest.len()]).into_owned())
    }

    fn text(&mut self) -> Result<String, JsonError> {
        self.rest = self.rest.strip_prefix(b"\"").ok_or(JsonError::Syntax)?;
        let mut out = Vec::new();
        loop {
            let (byte, rest) = self.rest.split_first().ok_or(JsonError::Syntax)?;
            self.rest = rest;
            match byte {
                b'"' => return String::from_utf8(out).map_err(|_| JsonError::Syntax),
                b'\\' => {
                    let mut buffer = [0; 4];
                    out.extend_from_slice(self.escape()?.encode_utf8(&mut buffer).as_bytes());
                }
                0..0x20 => return Err(JsonError::Syntax),
                byte => out.push(*byte),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let (byte, rest) = self.rest.split_first().ok_or(JsonError::Syntax)?;
        self.rest = rest;
        Ok(match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(JsonError::Syntax),
        })
    }

    fn unicode(&mut self) -> Result<char, JsonError> {
        let first = self.four_digits()?;
        if self.is_lenient {
            return Ok('\u{fffd}');
        }
        let code = match first {
            0 => return Err(JsonError::Zero),
            0xd800..0xdc00 => {
                self.rest = self.rest.strip_prefix(b"\\u").ok_or(JsonError::Pair)?;
                let second = self.four_digits()?;
                if !(0xdc00..0xe000).contains(&second) {
                    return Err(JsonError::Pair);
                }
                0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            first => first,
        };
        char::from_u32(code).ok_or(JsonError::Pair)
    }

    fn four_digits(&mut self) -> Result<u32, JsonError> {
        let (digits, rest) = self.rest.split_at_checked(4).ok_or(JsonError::Syntax)?;
        self.rest = rest;
        digits.iter().try_fold(0, |sum, byte| {
            char::from(*byte).to_digit(16).map(|digit| sum << 4 | digit).ok_or(JsonError::Syntax)
        })
    }
}

/// A text in quotes.
pub fn quote_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

impl Json {
    /// As PostgreSQL writes `jsonb`.
    ///
    /// # Errors
    /// 22003 for a number that PostgreSQL's `numeric` does not hold.
    pub fn normal(&self, out: &mut String) -> Result<(), SqlError> {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Text(text) => out.push_str(&quote_json(text)),
            Json::Number(number) => out.push_str(&normal_number(number)?),
            Json::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    item.normal(out)?;
                }
                out.push(']');
            }
            Json::Object(items) => {
                // Shorter keys first; of equal ones the last counts.
                let sorted: BTreeMap<(usize, &str), &Json> =
                    items.iter().map(|(key, value)| ((key.len(), key.as_str()), value)).collect();
                out.push('{');
                for (at, ((_, key), value)) in sorted.into_iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    out.push_str(&quote_json(key));
                    out.push_str(": ");
                    value.normal(out)?;
                }
                out.push('}');
            }
        }
        Ok(())
    }
}

/// Without an exponent, and with the digits behind the point that are written.
fn normal_number(number: &str) -> Result<String, SqlError> {
    let exponent =
        number.split_once(['e', 'E']).map(|(_, exponent)| exponent.parse::<i32>().unwrap_or(i32::MAX));
    let Some(exponent) = exponent else {
        let is_zero = number.bytes().all(|byte| matches!(byte, b'-' | b'0' | b'.'));
        return Ok(if is_zero { number.trim_start_matches('-') } else { number }.to_owned());
    };
    if exponent.unsigned_abs() > 1000 {
        return Err(SqlError::plain("22003", "value overflows numeric format"));
    }
    Ok(Decimal::input(number)?.written())
}

/// The normal form of a text in JSON.
pub fn normal(text: &str) -> Result<String, SqlError> {
    let value = parse_json(text).map_err(|error| error.into_sql(PgType::Jsonb))?;
    let mut out = String::with_capacity(text.len());
    value.normal(&mut out)?;
    Ok(out)
}

/// A stored value of `json` or `jsonb`. SQLite's functions give numbers of their own.
pub fn stored(value: ValueRef<'_>, of: PgType) -> Result<String, SqlError> {
    match value {
        ValueRef::Text(bytes) => {
            let text = utf8(bytes)?;
            let result = if of == PgType::Jsonb { normal(text) } else { Ok(text.to_owned()) };
            result.map_err(|_| misfit(value, of))
        }
        ValueRef::Integer(number) => Ok(number.to_string()),
        ValueRef::Real(number) if number.is_finite() => Ok(real(number)),
        value => Err(misfit(value, of)),
    }
}
