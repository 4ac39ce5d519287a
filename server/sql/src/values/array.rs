//! Arrays of one dimension: `{1,NULL,"a b"}` for clients, an array in JSON for SQLite, whose `json_each` goes through
//! it.

use rusqlite::types::{Value, ValueRef};

use super::json::{Json, JsonError, parse_json, quote_json};
use super::number::real;
use super::{Format, input as input_of, is_space, misfit, to_result};
use crate::error::SqlError;
use crate::types::PgType;

fn element_of(of: PgType) -> PgType {
    of.element().unwrap_or(PgType::Text)
}

fn malformed(text: &str) -> SqlError {
    SqlError::plain("22P02", format!("malformed array literal: \"{text}\""))
}

/// More than one is not kept.
pub fn one_dimension() -> SqlError {
    SqlError::unsupported("arrays of several dimensions are not supported", "Use one dimension, or jsonb.")
}

/// PostgreSQL's text of an array, as JSON.
pub fn input(text: &str, of: PgType) -> Result<String, SqlError> {
    let element = element_of(of);
    let values = elements_text(text)?.into_iter().map(|item| match item {
        Some(item) => input_of(&item, element).map(Some),
        None => Ok(None),
    });
    Ok(json_of(&values.collect::<Result<Vec<_>, _>>()?, element))
}

/// The elements of PostgreSQL's text of an array; none for NULL.
///
/// # Errors
/// 22P02; 0A000 for several dimensions.
pub fn elements_text(text: &str) -> Result<Vec<Option<String>>, SqlError> {
    let trimmed = text.trim_matches(is_space);
    if trimmed.starts_with('[') {
        let hint = "Begin with the first element: {1,2}.";
        return Err(SqlError::unsupported("bounds of arrays are not supported", hint));
    }
    let inner = trimmed.strip_prefix('{').ok_or_else(|| malformed(text))?;
    let mut rest = inner.trim_start_matches(is_space);
    let mut out = Vec::new();
    if rest.starts_with('}') {
        return if rest == "}" { Ok(out) } else { Err(malformed(text)) };
    }
    loop {
        let (item, after) = element(rest.trim_start_matches(is_space)).ok_or_else(|| {
            if rest.trim_start_matches(is_space).starts_with('{') { one_dimension() } else { malformed(text) }
        })?;
        out.push(item);
        rest = after.trim_start_matches(is_space);
        match rest {
            "}" => return Ok(out),
            _ => rest = rest.strip_prefix(',').ok_or_else(|| malformed(text))?,
        }
    }
}

/// One element and what follows it.
fn element(text: &str) -> Option<(Option<String>, &str)> {
    let mut out = String::new();
    let mut characters = text.char_indices();
    if text.starts_with('"') {
        characters.next();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => return Some((Some(out), &text[at + 1..])),
                '\\' => out.push(characters.next()?.1),
                other => out.push(other),
            }
        }
        return None;
    }
    // Blanks at the end belong to it only if they are escaped.
    let (mut kept, mut is_escaped) = (0, false);
    while let Some((at, character)) = characters.next() {
        match character {
            ',' | '}' => {
                out.truncate(kept);
                let is_null = !is_escaped && out.eq_ignore_ascii_case("null");
                let found = if is_null { None } else { Some(out) };
                return (found.as_ref().is_none_or(|item| !item.is_empty())).then_some((found, &text[at..]));
            }
            '"' | '{' => return None,
            '\\' => {
                is_escaped = true;
                out.push(characters.next()?.1);
                kept = out.len();
            }
            other => {
                out.push(other);
                if !is_space(other) {
                    kept = out.len();
                }
            }
        }
    }
    None
}

/// Values of the type as an array in JSON.
pub fn json_of(values: &[Option<Value>], element: PgType) -> String {
    let mut out = String::from("[");
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        match value {
            None | Some(Value::Null | Value::Blob(_)) => out.push_str("null"),
            Some(Value::Integer(number)) if element == PgType::Bool => {
                out.push_str(if *number == 0 { "false" } else { "true" });
            }
            Some(Value::Integer(number)) => out.push_str(&number.to_string()),
            // SQLite reads 9e999 as infinity.
            Some(Value::Real(number)) if number.is_infinite() => {
                out.push_str(if *number > 0.0 { "9e999" } else { "-9e999" });
            }
            Some(Value::Real(number)) => out.push_str(&real(*number)),
            Some(Value::Text(text)) => out.push_str(&quote_json(text)),
        }
    }
    out.push(']');
    out
}

/// The elements of an array that SQLite has, as values of the type; none for NULL.
///
/// # Errors
/// If it is no array of such elements.
pub fn elements(json: &str, of: PgType) -> Result<Vec<Option<Value>>, SqlError> {
    let error = || misfit(ValueRef::Text(json.as_bytes()), of);
    let items = match parse_json(json) {
        Ok(Json::Array(items)) => items,
        Err(JsonError::Depth) => return Err(JsonError::Depth.into_sql(of)),
        _ => return Err(error()),
    };
    let element = element_of(of);
    let value = |item: Json| -> Result<Option<Value>, SqlError> {
        Ok(Some(match item {
            Json::Null => return Ok(None),
            Json::Bool(value) if element == PgType::Bool => Value::Integer(value.into()),
            Json::Bool(value) if element == PgType::Text => Value::Text(value.to_string()),
            Json::Number(number) => match element {
                PgType::Text => Value::Text(number),
                PgType::Double => Value::Real(number.parse().map_err(|_| error())?),
                _ => Value::Integer(number.parse().map_err(|_| error())?),
            },
            Json::Text(text) => input_of(&text, element)?,
            Json::Array(_) => return Err(one_dimension()),
            _ => return Err(error()),
        }))
    };
    items.into_iter().map(value).collect()
}

/// Whether an element is written in quotes.
fn needs_quotes(text: &str) -> bool {
    let special = |character| matches!(character, '{' | '}' | ',' | '"' | '\\') || is_space(character);
    text.is_empty() || text.eq_ignore_ascii_case("null") || text.contains(special)
}

/// An array in JSON as PostgreSQL's text.
pub fn to_text(json: &str, of: PgType) -> Result<String, SqlError> {
    let mut out = String::from("{");
    for (at, value) in elements(json, of)?.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        let Some(value) = value else {
            out.push_str("NULL");
            continue;
        };
        let mut bytes = Vec::new();
        to_result(value.into(), element_of(of), Format::Text, &mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        if !needs_quotes(&text) {
            out.push_str(&text);
            continue;
        }
        out.push('"');
        for character in text.chars() {
            if matches!(character, '"' | '\\') {
                out.push('\\');
            }
            out.push(character);
        }
        out.push('"');
    }
    out.push('}');
    Ok(out)
}
