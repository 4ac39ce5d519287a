//! Arithmetic as PostgreSQL has it: no division by zero, no integer that silently becomes a real number.

use std::cmp::Ordering;

use rusqlite::types::{Value, ValueRef};

use super::logarithm::{exp, ln, log, power};
use super::{Args, FunctionResult, Strict};
use crate::error::SqlError;
use crate::values::{Decimal, real};

/// Functions of which no argument may be NULL.
pub const FUNCTIONS: &[Strict] = &[
    ("add_pg", 2, |args| calculate(args, i64::checked_add, |a, b| a + b)),
    ("subtract_pg", 2, |args| calculate(args, i64::checked_sub, |a, b| a - b)),
    ("multiply_pg", 2, |args| calculate(args, i64::checked_mul, |a, b| a * b)),
    ("divide_pg", 2, |args| {
        not_zero(args)?;
        calculate(args, i64::checked_div, |a, b| a / b)
    }),
    ("div", 2, |args| {
        not_zero(args)?;
        calculate(args, i64::checked_div, |a, b| (a / b).trunc())
    }),
    ("mod", 2, |args| {
        not_zero(args)?;
        // The smallest integer by -1 leaves nothing.
        calculate(args, |a, b| Some(a.wrapping_rem(b)), |a, b| decimal(a % b))
    }),
    ("ceil", 1, |args| whole(args, f64::ceil)),
    ("ceiling", 1, |args| whole(args, f64::ceil)),
    ("floor", 1, |args| whole(args, f64::floor)),
    ("trunc", 1, |args| whole(args, f64::trunc)),
    ("trunc", 2, |args| at_place(args, true)),
    ("round_pg", 1, |args| match args.value(0) {
        ValueRef::Integer(number) => Ok(Value::Integer(number)),
        _ => rounded(args.real(0)?, 0),
    }),
    ("round_pg", 2, |args| at_place(args, false)),
    ("round_double_pg", 1, |args| Ok(Value::Real(args.real(0)?.round_ties_even()))),
    ("sqrt", 1, |args| match args.real(0)? {
        number if number < 0.0 => {
            Err(SqlError::plain("2201F", "cannot take square root of a negative number"))
        }
        number => Ok(Value::Real(number.sqrt())),
    }),
    ("exp", 1, |args| in_range(exp(args.real(0)?))),
    ("ln", 1, |args| logarithm(args, 0).map(|number| Value::Real(ln(number)))),
    ("log", 1, |args| logarithm(args, 0).map(|number| Value::Real(log(10.0, number)))),
    ("log10", 1, |args| logarithm(args, 0).map(|number| Value::Real(log(10.0, number)))),
    ("log", 2, |args| {
        let (base, number) = (logarithm(args, 0)?, logarithm(args, 1)?);
        if base == 1.0 { Err(division_by_zero()) } else { Ok(Value::Real(log(base, number))) }
    }),
    ("power", 2, to_the_power),
    ("pow", 2, to_the_power),
    ("pi", 0, |_| Ok(Value::Real(std::f64::consts::PI))),
    ("degrees", 1, |args| Ok(Value::Real(args.real(0)? / (std::f64::consts::PI / 180.0)))),
    ("radians", 1, |args| Ok(Value::Real(args.real(0)? * (std::f64::consts::PI / 180.0)))),
];

/// Functions that ignore NULL.
pub const WITH_NULL: &[Strict] = &[
    ("greatest_pg", -1, |args| extreme(args, Ordering::Greater)),
    ("least_pg", -1, |args| extreme(args, Ordering::Less)),
];

fn division_by_zero() -> SqlError {
    SqlError::plain("22012", "division by zero")
}

fn not_zero(args: &Args<'_>) -> Result<(), SqlError> {
    if args.real(1)? == 0.0 { Err(division_by_zero()) } else { Ok(()) }
}

fn in_range(number: f64) -> FunctionResult {
    if number.is_finite() {
        return Ok(Value::Real(number));
    }
    Err(SqlError::plain("22003", "value out of range: overflow"))
}

fn calculate(
    args: &Args<'_>,
    exact: fn(i64, i64) -> Option<i64>,
    any: fn(f64, f64) -> f64,
) -> FunctionResult {
    if let (ValueRef::Integer(a), ValueRef::Integer(b)) = (args.value(0), args.value(1)) {
        let out_of_range = || SqlError::plain("22003", "bigint out of range");
        return exact(a, b).map(Value::Integer).ok_or_else(out_of_range);
    }
    let (a, b) = (args.real(0)?, args.real(1)?);
    let number = any(a, b);
    if a.is_finite() && b.is_finite() {
        in_range(number)
    } else {
        crate::values::not_nan(number).map(Value::Real)
    }
}

/// Without the noise behind the fifteenth digit.
fn decimal(number: f64) -> f64 {
    Decimal::from_real(number, 0).ok().and_then(|decimal| decimal.text(0).parse().ok()).unwrap_or(number)
}

fn whole(args: &Args<'_>, act: fn(f64) -> f64) -> FunctionResult {
    match args.value(0) {
        ValueRef::Integer(number) => Ok(Value::Integer(number)),
        _ => Ok(Value::Real(act(args.real(0)?))),
    }
}

/// Rounded as a decimal, half away from zero.
fn rounded(number: f64, places: u8) -> FunctionResult {
    // Such a number has no digits behind the point that count.
    if !number.is_finite() || number.abs() >= 1e15 {
        return Ok(Value::Real(number));
    }
    let text = Decimal::from_real(number, 0)?.rounded(places.into()).text(0);
    text.parse().map(Value::Real).map_err(|_| SqlError::plain("22003", "value out of range"))
}

/// Rounded or cut at a place behind the point, or before it.
fn at_place(args: &Args<'_>, is_cut: bool) -> FunctionResult {
    let places = args.integer(1)?.clamp(-20, 30);
    let is_integer = matches!(args.value(0), ValueRef::Integer(_));
    if places < 0 {
        let unit = power(10.0, -places as f64);
        let parts = args.real(0)? / unit;
        let kept = if is_cut { parts.trunc() } else { parts.round() };
        let number = kept * unit;
        return Ok(if is_integer && number.abs() < 9e18 {
            Value::Integer(number as i64)
        } else {
            Value::Real(number)
        });
    }
    if is_integer {
        return Ok(Value::Integer(args.integer(0)?));
    }
    if !is_cut {
        return rounded(args.real(0)?, places as u8);
    }
    let number = args.real(0)?;
    if !number.is_finite() || number.abs() >= 1e15 {
        return Ok(Value::Real(number));
    }
    let text = Decimal::from_real(number, 0)?.text(0);
    let end = text.find('.').map_or(text.len(), |point| (point + 1 + places as usize).min(text.len()));
    text[..end].parse().map(Value::Real).map_err(|_| SqlError::plain("22003", "value out of range"))
}

fn logarithm(args: &Args<'_>, at: usize) -> Result<f64, SqlError> {
    match args.real(at)? {
        0.0 => Err(SqlError::plain("2201E", "cannot take logarithm of zero")),
        number if number < 0.0 => Err(SqlError::plain("2201E", "cannot take logarithm of a negative number")),
        number => Ok(number),
    }
}

fn to_the_power(args: &Args<'_>) -> FunctionResult {
    let (base, exponent) = (args.real(0)?, args.real(1)?);
    if base == 0.0 && exponent < 0.0 {
        return Err(SqlError::plain("2201F", "zero raised to a negative power is undefined"));
    }
    if base == 0.0 {
        return Ok(Value::Real(if exponent == 0.0 { 1.0 } else { 0.0 }));
    }
    if base < 0.0 && exponent.fract() != 0.0 {
        let message = "a negative number raised to a non-integer power yields a complex result";
        return Err(SqlError::plain("2201F", message));
    }
    let size = power(base.abs(), exponent);
    in_range(if base < 0.0 && exponent % 2.0 != 0.0 { -size } else { size })
}

/// Compares two values of one type. Integers and real numbers are compared as numbers.
fn compare(one: ValueRef<'_>, other: ValueRef<'_>) -> Result<Ordering, SqlError> {
    let numbers = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or(Ordering::Equal);
    Ok(match (one, other) {
        (ValueRef::Integer(a), ValueRef::Integer(b)) => a.cmp(&b),
        (ValueRef::Real(a), ValueRef::Real(b)) => numbers(a, b),
        (ValueRef::Integer(a), ValueRef::Real(b)) => numbers(a as f64, b),
        (ValueRef::Real(a), ValueRef::Integer(b)) => numbers(a, b as f64),
        (ValueRef::Text(a), ValueRef::Text(b)) | (ValueRef::Blob(a), ValueRef::Blob(b)) => a.cmp(b),
        (one, other) => {
            let shown = |value| match value {
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Real(number) => real(number),
                ValueRef::Text(_) => "text".to_owned(),
                _ => "bytea".to_owned(),
            };
            let message = format!("{} and {} have no type in common", shown(one), shown(other));
            return Err(SqlError::new("42804", message, "Cast the arguments to one type."));
        }
    })
}

fn extreme(args: &Args<'_>, wanted: Ordering) -> FunctionResult {
    let mut found = ValueRef::Null;
    for value in (0..args.count()).map(|at| args.value(at)).filter(|value| *value != ValueRef::Null) {
        if found == ValueRef::Null || compare(value, found)? == wanted {
            found = value;
        }
    }
    found.try_into().map_err(|_| SqlError::plain("22021", "invalid byte sequence for encoding \"UTF8\""))
}
