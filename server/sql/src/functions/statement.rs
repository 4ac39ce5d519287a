//! Functions that the translation of a statement needs around what a client wrote: errors, counts, members of JSON.

use rusqlite::functions::{Aggregate, Context};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error};

use super::documents::to_json;
use super::times::moved;
use super::{Args, FunctionResult, OF_REQUEST, PURE, Strict, raise};
use crate::error::SqlError;
use crate::types::PgType;
use crate::values::{Interval, Json, parse_json};

/// For all of these NULL gives NULL.
pub const FUNCTIONS: &[Strict] = &[
    ("xor_pg", 2, |args| Ok(Value::Integer(args.integer(0)? ^ args.integer(1)?))),
    ("json_get_pg", 2, |args| member(args, false)),
    ("json_text_pg", 2, |args| member(args, true)),
    ("add_interval_pg", 4, |args| {
        let (months, days, us) = (args.integer(1)?, args.integer(2)?, args.integer(3)?);
        moved(args, Interval { months, days, us })
    }),
];

/// These take NULL as any other value.
pub const WITH_NULL: &[Strict] = &[
    ("limit_pg", 1, |args| count(args, -1, "2201W", "LIMIT")),
    ("json_of_pg", 2, |args| match (args.value(0), args.integer(1)?) {
        (ValueRef::Integer(truth), 1) => Ok(Value::Text((truth != 0).to_string())),
        (value, _) => to_json(value, false).map(Value::Text),
    }),
    ("offset_pg", 1, |args| count(args, 0, "2201X", "OFFSET")),
];

/// These fail where they are reached: SQLite must not take them for constants, and compute them before.
const WHERE_REACHED: [Strict; 2] = [
    ("raise_pg", 2, |args| Err(SqlError::plain(&args.text(0)?, args.text(1)?))),
    ("required_pg", 3, |args| match args.value(0) {
        ValueRef::Null => {
            let (column, table) = (args.text(1)?, args.text(2)?);
            let message = format!(
                "null value in column \"{column}\" of relation \"{table}\" violates not-null constraint"
            );
            Err(SqlError::plain("23502", message))
        }
        value => Ok(value.try_into().unwrap_or(Value::Null)),
    }),
];

/// How many rows, or this number if it is NULL.
fn count(args: &Args<'_>, otherwise: i64, code: &str, clause: &str) -> FunctionResult {
    if args.value(0) == ValueRef::Null {
        return Ok(Value::Integer(otherwise));
    }
    match args.integer(0)? {
        count if count < 0 => Err(SqlError::plain(code, format!("{clause} must not be negative"))),
        count => Ok(Value::Integer(count)),
    }
}

/// A member of an object by its name, or an element of an array by its number, as JSON or as text.
fn member(args: &Args<'_>, is_text: bool) -> FunctionResult {
    let document = parse_json(&args.text(0)?).map_err(|error| error.into_sql(PgType::Json))?;
    let found = match (&document, args.value(1)) {
        (Json::Array(elements), ValueRef::Integer(number)) => {
            let at = if number < 0 { number.saturating_add(elements.len() as i64) } else { number };
            usize::try_from(at).ok().and_then(|at| elements.get(at))
        }
        (Json::Object(members), ValueRef::Text(_)) => {
            let name = args.text(1)?;
            members.iter().rev().find(|(key, _)| *key == *name).map(|(_, value)| value)
        }
        _ => None,
    };
    Ok(match found {
        None => Value::Null,
        Some(Json::Null) if is_text => Value::Null,
        Some(Json::Text(text)) if is_text => Value::Text(text.clone()),
        Some(found) => {
            let mut text = String::new();
            found.normal(&mut text)?;
            Value::Text(text)
        }
    })
}

/// The value of the only row: a query in the place of a value.
struct Single;

impl Aggregate<Option<Value>, Value> for Single {
    fn init(&self, _: &mut Context<'_>) -> Result<Option<Value>, Error> {
        Ok(None)
    }

    fn step(&self, context: &mut Context<'_>, only: &mut Option<Value>) -> Result<(), Error> {
        if only.is_some() {
            let message = "more than one row returned by a subquery used as an expression";
            return Err(raise(SqlError::plain("21000", message)));
        }
        *only = Some(Args::new(context).value(0).try_into().unwrap_or(Value::Null));
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, only: Option<Option<Value>>) -> Result<Value, Error> {
        Ok(only.flatten().unwrap_or(Value::Null))
    }
}

/// Makes the other ones known.
///
/// # Errors
/// Of SQLite.
pub fn register(connection: &Connection) -> Result<(), Error> {
    for (name, arguments, act) in WHERE_REACHED {
        connection.create_scalar_function(name, arguments, OF_REQUEST, move |context| {
            act(&Args::new(context)).map_err(raise)
        })?;
    }
    connection.create_aggregate_function("single_pg", 1, PURE, Single)
}
