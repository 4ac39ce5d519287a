//! Aggregates of PostgreSQL's that SQLite lacks.

use rusqlite::functions::{Aggregate, Context, SubType};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error};

use super::documents::{MARK, MARKED, finish, to_json};
use super::{Args, MAX_BYTES, PURE, raise, too_long};
use crate::values::quote_json;

/// `bool_and` and `bool_or`: whether all are true, or any; NULL counts for neither.
struct OfBooleans {
    is_all: bool,
}

impl Aggregate<Option<bool>, Option<bool>> for OfBooleans {
    fn init(&self, _: &mut Context<'_>) -> Result<Option<bool>, Error> {
        Ok(None)
    }

    fn step(&self, context: &mut Context<'_>, so_far: &mut Option<bool>) -> Result<(), Error> {
        let args = Args::new(context);
        if args.value(0) == ValueRef::Null {
            return Ok(());
        }
        let value = args.integer(0).map_err(raise)? != 0;
        *so_far = Some(match so_far {
            None => value,
            Some(before) if self.is_all => *before && value,
            Some(before) => *before || value,
        });
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, so_far: Option<Option<bool>>) -> Result<Option<bool>, Error> {
        Ok(so_far.flatten())
    }
}

/// `array_agg`, `json_agg`, `jsonb_agg`, and with keys `json_object_agg`: NULL if there is no row.
struct OfDocuments {
    is_jsonb: bool,
    has_keys: bool,
    /// An array of PostgreSQL's, which is no document.
    is_array: bool,
}

impl Aggregate<String, (Value, SubType)> for OfDocuments {
    fn init(&self, _: &mut Context<'_>) -> Result<String, Error> {
        Ok(String::new())
    }

    fn step(&self, context: &mut Context<'_>, so_far: &mut String) -> Result<(), Error> {
        if !so_far.is_empty() {
            so_far.push_str(", ");
        }
        let at = usize::from(self.has_keys);
        if self.has_keys {
            let key = Args::new(context).text(0).map_err(raise)?;
            so_far.push_str(&quote_json(&key));
            so_far.push_str(" : ");
        }
        let is_document = context.get_subtype(at) == MARK;
        so_far.push_str(&to_json(context.get_raw(at), is_document).map_err(raise)?);
        if so_far.len() > MAX_BYTES { Err(raise(too_long())) } else { Ok(()) }
    }

    fn finalize(&self, _: &mut Context<'_>, so_far: Option<String>) -> Result<(Value, SubType), Error> {
        let Some(so_far) = so_far else { return Ok((Value::Null, None)) };
        let text = if self.has_keys { format!("{{ {so_far} }}") } else { format!("[{so_far}]") };
        if self.is_array { Ok((Value::Text(text), None)) } else { finish(text, self.is_jsonb).map_err(raise) }
    }
}

/// Squares of the distances to the mean, of a sample or of all, summed as PostgreSQL sums them
/// (E. A. Youngs and E. M. Cramer).
struct Spread {
    is_sample: bool,
    has_root: bool,
}

#[derive(Default)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Aggregate<Moments, Option<f64>> for Spread {
    fn init(&self, _: &mut Context<'_>) -> Result<Moments, Error> {
        Ok(Moments::default())
    }

    fn step(&self, context: &mut Context<'_>, so_far: &mut Moments) -> Result<(), Error> {
        let args = Args::new(context);
        if args.value(0) == ValueRef::Null {
            return Ok(());
        }
        let number = args.real(0).map_err(raise)?;
        so_far.count += 1.0;
        so_far.sum += number;
        if so_far.count > 1.0 {
            let distance = number * so_far.count - so_far.sum;
            so_far.squares += distance * distance / (so_far.count * (so_far.count - 1.0));
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, so_far: Option<Moments>) -> Result<Option<f64>, Error> {
        let so_far = so_far.unwrap_or_default();
        let count = if self.is_sample { so_far.count - 1.0 } else { so_far.count };
        if count <= 0.0 {
            return Ok(None);
        }
        let variance = so_far.squares / count;
        Ok(Some(if self.has_root { variance.sqrt() } else { variance }))
    }
}

/// Makes the aggregates known.
pub fn register(connection: &Connection) -> Result<(), Error> {
    for (name, is_all) in [("bool_and", true), ("every", true), ("bool_or", false)] {
        connection.create_aggregate_function(name, 1, PURE, OfBooleans { is_all })?;
    }
    for (name, is_jsonb, has_keys, is_array) in [
        ("array_agg", false, false, true),
        ("json_agg", false, false, false),
        ("jsonb_agg", true, false, false),
        ("json_object_agg", false, true, false),
        ("jsonb_object_agg", true, true, false),
    ] {
        let arguments = if has_keys { 2 } else { 1 };
        let act = OfDocuments { is_jsonb, has_keys, is_array };
        connection.create_aggregate_function(name, arguments, MARKED, act)?;
    }
    for (name, is_sample, has_root) in [
        ("variance", true, false),
        ("var_samp", true, false),
        ("var_pop", false, false),
        ("stddev", true, true),
        ("stddev_samp", true, true),
        ("stddev_pop", false, true),
    ] {
        connection.create_aggregate_function(name, 1, PURE, Spread { is_sample, has_root })?;
    }
    Ok(())
}
