//! Functions that make JSON. A document within another one is known by SQLite's mark for results of its own JSON
//! functions, `json(x)` among them; text without the mark becomes a string.

use std::collections::BTreeMap;

use rusqlite::functions::{Context, FunctionFlags, SubType};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error};

use super::{FunctionResult, MAX_BYTES, PURE, Strict, raise, text_of, too_long};
use crate::error::SqlError;
use crate::types::PgType;
use crate::values::{Coercion, Json, JsonError, coerce, elements, parse_json, quote_json, real};

/// SQLite's mark for JSON (json.c, `JSON_SUBTYPE`).
pub const MARK: u32 = 74;
/// What reads and writes the mark.
pub const MARKED: FunctionFlags =
    PURE.union(FunctionFlags::SQLITE_SUBTYPE).union(FunctionFlags::SQLITE_RESULT_SUBTYPE);

/// Parts of documents that are compared with each other at most.
const MAX_COMPARED: u32 = 1_000_000;

/// Functions of which no argument may be NULL. Arrays are JSON here.
pub const FUNCTIONS: &[Strict] = &[
    ("array_length_pg", 2, |args| match (items(&args.text(0)?)?.len(), args.integer(1)?) {
        (length @ 1.., 1) => Ok(Value::Integer(length as i64)),
        _ => Ok(Value::Null),
    }),
    ("cardinality", 1, |args| Ok(Value::Integer(items(&args.text(0)?)?.len() as i64))),
    ("json_typeof", 1, |args| type_of(&args.text(0)?)),
    ("jsonb_typeof", 1, |args| type_of(&args.text(0)?)),
    ("json_array_length_pg", 1, |args| match parse(&args.text(0)?)? {
        Json::Array(items) => Ok(Value::Integer(items.len() as i64)),
        Json::Object(_) => Err(SqlError::plain("22023", "cannot get array length of a non-array")),
        _ => Err(SqlError::plain("22023", "cannot get array length of a scalar")),
    }),
    ("jsonb_contains_pg", 2, |args| {
        let (whole, part) = (parse(&args.text(0)?)?, parse(&args.text(1)?)?);
        let mut left = MAX_COMPARED;
        let is_element = match &whole {
            Json::Array(items) if !matches!(part, Json::Array(_) | Json::Object(_)) => {
                items.iter().any(|item| equal(item, &part))
            }
            _ => contains(&whole, &part, &mut left)?,
        };
        Ok(Value::Integer(is_element.into()))
    }),
    ("jsonb_exists_pg", 2, |args| {
        let (whole, key) = (parse(&args.text(0)?)?, args.text(1)?);
        let found = match whole {
            Json::Object(items) => items.iter().any(|(known, _)| *known == key),
            Json::Array(items) => items.contains(&Json::Text(key.into_owned())),
            Json::Text(text) => text == key,
            _ => false,
        };
        Ok(Value::Integer(found.into()))
    }),
    ("string_to_array", 2, |args| {
        let (whole, separator) = (args.text(0)?, args.text(1)?);
        let parts: Vec<String> = match (whole.is_empty(), separator.is_empty()) {
            (true, _) => Vec::new(),
            (_, true) => vec![quote_json(&whole)],
            _ => whole.split(&*separator).map(quote_json).collect(),
        };
        Ok(Value::Text(format!("[{}]", parts.join(","))))
    }),
];

fn items(text: &str) -> Result<Vec<Option<Value>>, SqlError> {
    elements(text, PgType::TextArray)
}

fn parse(text: &str) -> Result<Json, SqlError> {
    parse_json(text).map_err(|error: JsonError| error.into_sql(PgType::Jsonb))
}

fn type_of(text: &str) -> FunctionResult {
    let name = match parse(text)? {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::Text(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    Ok(Value::Text(name.to_owned()))
}

fn equal(one: &Json, other: &Json) -> bool {
    match (one, other) {
        (Json::Number(a), Json::Number(b)) => a == b || a.parse::<f64>().is_ok_and(|a| b.parse() == Ok(a)),
        (one, other) => one == other,
    }
}

/// PostgreSQL's `@>`: each part is in the whole, at the same depth. So many comparisons may still be made.
fn contains(whole: &Json, part: &Json, left: &mut u32) -> Result<bool, SqlError> {
    let Some(fewer) = left.checked_sub(1) else {
        return Err(SqlError::new("54000", "documents are too large to compare", "Compare smaller parts."));
    };
    *left = fewer;
    match (whole, part) {
        (Json::Object(whole), Json::Object(part)) => {
            // Of equal keys the last counts.
            let whole: BTreeMap<&str, &Json> =
                whole.iter().map(|(key, value)| (key.as_str(), value)).collect();
            for (key, value) in part {
                let Some(known) = whole.get(key.as_str()) else { return Ok(false) };
                if !contains(known, value, left)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Json::Array(whole), Json::Array(part)) => {
            for value in part {
                let mut is_there = false;
                for known in whole {
                    if contains(known, value, left)? {
                        is_there = true;
                        break;
                    }
                }
                if !is_there {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (whole, part) => Ok(equal(whole, part)),
    }
}

/// A value as JSON.
pub fn to_json(value: ValueRef<'_>, is_document: bool) -> Result<String, SqlError> {
    Ok(match value {
        ValueRef::Null => "null".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) if number.is_finite() => real(number),
        ValueRef::Real(number) => quote_json(&real(number)),
        ValueRef::Text(_) if is_document => text_of(value)?.into_owned(),
        ValueRef::Text(_) => quote_json(&text_of(value)?),
        ValueRef::Blob(_) => match coerce(value, PgType::Text, Coercion::Explicit)? {
            Value::Text(text) => quote_json(&text),
            _ => "null".to_owned(),
        },
    })
}

fn argument(context: &Context<'_>, at: usize) -> Result<String, SqlError> {
    to_json(context.get_raw(at), context.get_subtype(at) == MARK)
}

/// A document, marked; of `jsonb` in its normal form.
pub fn finish(text: String, is_jsonb: bool) -> Result<(Value, SubType), SqlError> {
    if text.len() > MAX_BYTES {
        return Err(too_long());
    }
    let value = match is_jsonb {
        true => crate::values::input(&text, PgType::Jsonb)?,
        false => Value::Text(text),
    };
    Ok((value, Some(MARK)))
}

fn build_object(context: &Context<'_>) -> Result<String, SqlError> {
    if !context.len().is_multiple_of(2) {
        let hint = "The arguments consist of alternating keys and values.";
        return Err(SqlError::new("22023", "argument list must have even number of elements", hint));
    }
    let mut parts = Vec::with_capacity(context.len() / 2);
    for at in (0..context.len()).step_by(2) {
        let key = match context.get_raw(at) {
            ValueRef::Null => {
                return Err(SqlError::plain("22023", format!("argument {}: key must not be null", at + 1)));
            }
            key => text_of(key)?,
        };
        parts.push(format!("{} : {}", quote_json(&key), argument(context, at + 1)?));
    }
    Ok(format!("{{{}}}", parts.join(", ")))
}

fn build_array(context: &Context<'_>) -> Result<String, SqlError> {
    let parts: Result<Vec<_>, _> = (0..context.len()).map(|at| argument(context, at)).collect();
    Ok(format!("[{}]", parts?.join(", ")))
}

fn one(context: &Context<'_>) -> Result<String, SqlError> {
    argument(context, 0)
}

/// Makes the functions known that read or write the mark.
pub fn register(connection: &Connection) -> Result<(), Error> {
    type Make = fn(&Context<'_>) -> Result<String, SqlError>;
    let functions: [(&str, i32, Make, bool); 6] = [
        ("json_build_object", -1, build_object, false),
        ("jsonb_build_object", -1, build_object, true),
        ("json_build_array", -1, build_array, false),
        ("jsonb_build_array", -1, build_array, true),
        ("to_json", 1, one, false),
        ("to_jsonb", 1, one, true),
    ];
    for (name, arguments, make, is_jsonb) in functions {
        connection.create_scalar_function(name, arguments, MARKED, move |context| {
            make(context).and_then(|text| finish(text, is_jsonb)).map_err(raise)
        })?;
    }
    Ok(())
}
