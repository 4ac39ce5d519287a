//! `cast_T(x, ..)` and `assign_T(x, ..)`: a value as one of type T, as a cast and as a column of that type take it.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error};

use super::{Args, FunctionResult, PURE, raise};
use crate::error::SqlError;
use crate::types::{MAX_PRECISION, PgType};
use crate::values::{Coercion, Decimal, coerce};

/// Types without a modifier.
const PLAIN: [(&str, PgType); 24] = [
    ("bool", PgType::Bool),
    ("int2", PgType::Int2),
    ("int4", PgType::Int4),
    ("int8", PgType::Int8),
    ("real", PgType::Real),
    ("double", PgType::Double),
    ("text", PgType::Text),
    ("bytea", PgType::Bytea),
    ("date", PgType::Date),
    ("time", PgType::Time),
    ("timestamp", PgType::Timestamp),
    ("timestamptz", PgType::Timestamptz),
    ("uuid", PgType::Uuid),
    ("json", PgType::Json),
    ("jsonb", PgType::Jsonb),
    ("name", PgType::Name),
    ("oid", PgType::Oid),
    ("letter", PgType::Letter),
    ("bool_array", PgType::BoolArray),
    ("int4_array", PgType::Int4Array),
    ("int8_array", PgType::Int8Array),
    ("double_array", PgType::DoubleArray),
    ("text_array", PgType::TextArray),
    ("uuid_array", PgType::UuidArray),
];

/// The type that the arguments behind the first one say.
type Modified = fn(&Args<'_>) -> Result<PgType, SqlError>;

fn modifier() -> SqlError {
    SqlError::plain("22023", "invalid type modifier")
}

/// The length of `varchar(n)` or `char(n)`.
fn length(args: &Args<'_>) -> Result<u32, SqlError> {
    u32::try_from(args.integer(1)?).map_err(|_| modifier())
}

fn numeric(args: &Args<'_>) -> Result<PgType, SqlError> {
    let digits = |at| u8::try_from(args.integer(at)?).map_err(|_| modifier());
    Ok(PgType::Numeric { precision: digits(1)?, scale: digits(2)? })
}

/// Without a modifier: what has at most 15 digits stays as it is.
fn any_numeric(value: ValueRef<'_>, how: Coercion) -> FunctionResult {
    match value {
        ValueRef::Text(_) => Decimal::input(&super::text_of(value)?)?.value(),
        ValueRef::Integer(number) => Decimal::from(number).value(),
        ValueRef::Real(number) => Decimal::from_real(number, 0)?.value(),
        value => coerce(value, PgType::Numeric { precision: MAX_PRECISION, scale: 0 }, how),
    }
}

/// Makes the functions known.
pub fn register(connection: &Connection) -> Result<(), Error> {
    for (verb, how) in [("cast", Coercion::Explicit), ("assign", Coercion::Assignment)] {
        for (name, of) in PLAIN {
            connection.create_scalar_function(
                format!("{verb}_{name}").as_str(),
                1,
                PURE,
                move |context| coerce(context.get_raw(0), of, how).map_err(raise),
            )?;
        }
        connection.create_scalar_function(format!("{verb}_numeric").as_str(), 1, PURE, move |context| {
            any_numeric(context.get_raw(0), how).map_err(raise)
        })?;
        let with_modifier: [(&str, i32, Modified); 3] = [
            ("numeric", 3, numeric),
            ("varchar", 2, |args| length(args).map(PgType::Varchar)),
            ("char", 2, |args| length(args).map(PgType::Char)),
        ];
        for (name, arguments, of) in with_modifier {
            let name = format!("{verb}_{name}");
            connection.create_scalar_function(name.as_str(), arguments, PURE, move |context| {
                let of = of(&Args::new(context)).map_err(raise)?;
                coerce(context.get_raw(0), of, how).map_err(raise)
            })?;
        }
    }
    Ok(())
}
