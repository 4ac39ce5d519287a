//! `cast_T(x, ..)` and `assign_T(x, ..)`: a value as one of type T, as a cast and as a column of that type take it.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error};

use super::{Args, FunctionResult, PURE, Strict, define, raise};
use crate::error::SqlError;
use crate::types::{MAX_PRECISION, PgType};
use crate::values::{Coercion, Decimal, coerce, real_single, round_half_even};

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

/// Casts whose source has a type that its value does not show.
const OF_TYPES: &[Strict] = &[
    ("bool_text_pg", 1, |args| {
        Ok(Value::Text(if args.integer(0)? == 0 { "false" } else { "true" }.to_owned()))
    }),
    ("numeric_text_pg", 2, |args| {
        let scale = u8::try_from(args.integer(1)?).map_err(|_| modifier())?;
        let decimal = match args.value(0) {
            ValueRef::Integer(number) => Decimal::from(number),
            _ => Decimal::from_real(args.real(0)?, scale)?,
        };
        Ok(Value::Text(decimal.text(scale)))
    }),
    ("real_text_pg", 1, |args| Ok(Value::Text(real_single(args.real(0)? as f32)))),
    ("double_int2_pg", 1, |args| whole(args, PgType::Int2)),
    ("double_int4_pg", 1, |args| whole(args, PgType::Int4)),
    ("double_int8_pg", 1, |args| whole(args, PgType::Int8)),
];

/// The type that the arguments behind the first one say.
type Modified = fn(&Args<'_>) -> Result<PgType, SqlError>;

fn whole(args: &Args<'_>, of: PgType) -> FunctionResult {
    round_half_even(args.real(0)?, of).map(Value::Integer)
}

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
    define(connection, OF_TYPES)?;
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
