//! Aggregates and window functions.

use sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, OrderByExpr, WindowFrame, WindowFrameBound, WindowSpec, WindowType,
};

use super::coerce::{Family, family};
use super::expression::Expression;
use super::functions::{list, no_form, no_function};
use super::names::{folded, quoted};
use super::operators::no_exact_arithmetic;
use super::scope::Place;
use super::special::array_of;
use super::translator::Translator;
use crate::error::SqlError;
use crate::types::PgType;

const AGGREGATES: [&str; 15] = [
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "every",
    "string_agg",
    "array_agg",
    "json_agg",
    "jsonb_agg",
    "json_object_agg",
    "jsonb_object_agg",
    "any_value",
];
const WINDOW: [&str; 11] = [
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
];

/// The arguments of an aggregate, as they are written.
struct Arguments<'f> {
    is_star: bool,
    is_distinct: bool,
    values: Vec<&'f Expr>,
    order: &'f [OrderByExpr],
}

fn arguments(function: &Function) -> Result<Arguments<'_>, SqlError> {
    let FunctionArguments::List(list) = &function.args else { return Err(no_form(function)) };
    let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    let mut read = Arguments { is_star: false, is_distinct, values: Vec::new(), order: &[] };
    for argument in &list.args {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => read.is_star = true,
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => read.values.push(expr),
            _ => return Err(no_form(function)),
        }
    }
    for clause in &list.clauses {
        match clause {
            FunctionArgumentClause::OrderBy(order) => read.order = order,
            _ => return Err(no_form(function)),
        }
    }
    Ok(read)
}

impl Translator<'_> {
    /// A call of an aggregate or a window function; none if it is no such.
    pub fn aggregate(&mut self, name: &str, function: &Function) -> Result<Option<Expression>, SqlError> {
        let is_aggregate = AGGREGATES.contains(&name);
        if !is_aggregate && !WINDOW.contains(&name) {
            return Ok(None);
        }
        if !function.within_group.is_empty() || function.null_treatment.is_some() {
            return Err(no_form(function));
        }
        let place = self.scope().place;
        let is_window = function.over.is_some();
        if place == Place::Rows || place == Place::Aggregate && !is_window && is_aggregate {
            let what = if is_window { "window functions" } else { "aggregate functions" };
            let code = if is_window { "42P20" } else { "42803" };
            let where_it_is =
                if place == Place::Rows { "in WHERE, and the like" } else { "within one another" };
            return Err(SqlError::plain(code, format!("{what} are not allowed {where_it_is}")));
        }
        if !is_aggregate && !is_window {
            return Err(SqlError::plain("42P20", format!("window function {name} requires an OVER clause")));
        }
        let read = arguments(function)?;
        if is_window {
            return self.windowed(name, &read, function).map(Some);
        }
        self.scope().has_aggregate = true;
        let mut written = self.placed(Place::Aggregate, |own| {
            let mut call = own.aggregate_call(name, &read)?;
            if let Some(filter) = &function.filter {
                let filter = own.condition(filter, "FILTER")?;
                call.sql.push_str(&format!(" FILTER (WHERE {})", filter.sql));
            }
            Ok(call)
        })?;
        written.sql = null_for_empty(name, written.sql);
        if name != "count" {
            written.is_nullable = true;
        }
        Ok(Some(written))
    }

    fn windowed(
        &mut self,
        name: &str,
        read: &Arguments<'_>,
        function: &Function,
    ) -> Result<Expression, SqlError> {
        if read.is_distinct {
            return Err(SqlError::unsupported(
                "DISTINCT is not implemented for window functions",
                "Use a subquery.",
            ));
        }
        let mut call = match name {
            _ if AGGREGATES.contains(&name) => self.aggregate_call(name, read)?,
            "row_number" | "rank" | "dense_rank" => Expression::constant(format!("{name}()"), PgType::Int8),
            "percent_rank" | "cume_dist" => Expression::constant(format!("{name}()"), PgType::Double),
            _ => {
                let mut values = Vec::new();
                for (at, value) in read.values.iter().enumerate() {
                    let value = self.expression(value)?;
                    let is_count = at == 1 || name == "ntile";
                    values.push(self.typed(value, if is_count { PgType::Int4 } else { PgType::Text })?);
                }
                let of = match (name, values.first()) {
                    ("ntile", Some(_)) => PgType::Int4,
                    (_, Some(first)) => first.known_or_text(),
                    (_, None) => return Err(no_function(name, &values)),
                };
                Expression::new(format!("{name}({})", list(&values)), of)
            }
        };
        if let Some(filter) = &function.filter {
            let filter = self.condition(filter, "FILTER")?;
            call.sql.push_str(&format!(" FILTER (WHERE {})", filter.sql));
        }
        match &function.over {
            Some(WindowType::NamedWindow(name)) => {
                let name = folded(name);
                if !self.scope().windows.contains(&name) {
                    return Err(SqlError::plain("42704", format!("window \"{name}\" does not exist")));
                }
                call.sql.push_str(&format!(" OVER {}", quoted(&name)));
            }
            Some(WindowType::WindowSpec(spec)) => {
                let window = self.window(spec)?;
                call.sql.push_str(&format!(" OVER ({window})"));
            }
            None => {}
        }
        call.sql = null_for_empty(name, call.sql);
        Ok(call)
    }

    fn aggregate_call(&mut self, name: &str, read: &Arguments<'_>) -> Result<Expression, SqlError> {
        if name == "count" && read.is_star && read.values.is_empty() && !read.is_distinct {
            return Ok(Expression::constant("count(*)".to_owned(), PgType::Int8));
        }
        let values = read.values.iter().map(|one| self.expression(one)).collect::<Result<Vec<_>, _>>()?;
        let mut values = values.into_iter().map(|one| self.settled(one)).collect::<Result<Vec<_>, _>>()?;
        if name == "string_agg" && values.len() == 2 && values[0].known_or_text() != PgType::Bytea {
            if read.is_distinct {
                let message = "DISTINCT in string_agg is not supported";
                return Err(SqlError::unsupported(message, "Select distinct values in a subquery first."));
            }
            if !values[0].known_or_text().is_text() {
                return Err(no_function(name, &values));
            }
        }
        let (sqlite, of) = aggregate_type(name, &values)?;
        match name {
            "json_agg" | "jsonb_agg" => {
                let value = values.remove(0);
                values.push(Expression::new(self.json_of(value)?, of));
            }
            "json_object_agg" | "jsonb_object_agg" => {
                let value = values.remove(1);
                values.push(Expression::new(self.json_of(value)?, of));
            }
            _ => {}
        }
        let distinct = if read.is_distinct { "DISTINCT " } else { "" };
        let mut sql = format!("{sqlite}({distinct}{}", list(&values));
        if !read.order.is_empty() {
            let terms = read.order.iter().map(|term| self.order_term(term)).collect::<Result<Vec<_>, _>>()?;
            sql.push_str(&format!(" ORDER BY {}", terms.join(", ")));
        }
        sql.push(')');
        let is_nullable = name != "count";
        Ok(Expression { is_nullable, ..Expression::new(sql, of) })
    }

    /// What stands in the brackets of OVER, or WINDOW.
    pub fn window(&mut self, spec: &WindowSpec) -> Result<String, SqlError> {
        let mut parts = Vec::new();
        if let Some(name) = &spec.window_name {
            parts.push(quoted(&folded(name)));
        }
        if !spec.partition_by.is_empty() {
            let mut by = Vec::new();
            for expr in &spec.partition_by {
                let value = self.expression(expr)?;
                by.push(self.settled(value)?.sql);
            }
            parts.push(format!("PARTITION BY {}", by.join(", ")));
        }
        if !spec.order_by.is_empty() {
            let terms =
                spec.order_by.iter().map(|term| self.order_term(term)).collect::<Result<Vec<_>, _>>()?;
            parts.push(format!("ORDER BY {}", terms.join(", ")));
        }
        if let Some(frame) = &spec.window_frame {
            parts.push(self.frame(frame)?);
        }
        Ok(parts.join(" "))
    }

    fn frame(&mut self, frame: &WindowFrame) -> Result<String, SqlError> {
        let begin = self.bound(&frame.start_bound)?;
        Ok(match &frame.end_bound {
            None => format!("{} {begin}", frame.units),
            Some(end) => format!("{} BETWEEN {begin} AND {}", frame.units, self.bound(end)?),
        })
    }

    fn bound(&mut self, bound: &WindowFrameBound) -> Result<String, SqlError> {
        let (count, word) = match bound {
            WindowFrameBound::CurrentRow => return Ok("CURRENT ROW".to_owned()),
            WindowFrameBound::Preceding(count) => (count, "PRECEDING"),
            WindowFrameBound::Following(count) => (count, "FOLLOWING"),
        };
        let Some(count) = count else { return Ok(format!("UNBOUNDED {word}")) };
        let count = self.expression(count)?;
        Ok(format!("{} {word}", self.typed(count, PgType::Int8)?.sql))
    }
}

/// SQLite's functions of JSON have an empty array for no rows.
fn null_for_empty(name: &str, sql: String) -> String {
    match name {
        "json_object_agg" | "jsonb_object_agg" => format!("nullif({sql}, '{{}}')"),
        "json_agg" | "jsonb_agg" | "array_agg" => format!("nullif({sql}, '[]')"),
        _ => sql,
    }
}

/// What SQLite calls an aggregate, and what it gives.
fn aggregate_type(name: &str, values: &[Expression]) -> Result<(&'static str, PgType), SqlError> {
    let failed = || no_function(name, values);
    let expected = match name {
        "string_agg" | "json_object_agg" | "jsonb_object_agg" => 2,
        _ => 1,
    };
    if values.len() != expected {
        return Err(failed());
    }
    let of = values[0].known_or_text();
    let is_number = family(of) == Family::Number;
    Ok(match name {
        "count" => ("count", PgType::Int8),
        "sum" | "avg" if of.is_numeric() => return Err(no_exact_arithmetic()),
        "sum" if of.is_integer() => ("sum", PgType::Int8),
        "sum" if is_number => ("sum", of),
        "avg" if is_number => ("avg", PgType::Double),
        "min" if of == PgType::Bool => return Err(failed()),
        "max" if of == PgType::Bool => return Err(failed()),
        "min" => ("min", of),
        "max" => ("max", of),
        // Of rows without an order, one of its values: the smallest, at all replicas.
        "any_value" => ("min", of),
        "bool_and" | "every" if of == PgType::Bool => ("min", of),
        "bool_or" if of == PgType::Bool => ("max", of),
        "string_agg" => ("string_agg", PgType::Text),
        "array_agg" => ("json_group_array", array_of(of)),
        "json_agg" => ("json_group_array", PgType::Json),
        "jsonb_agg" => ("json_group_array", PgType::Jsonb),
        "json_object_agg" => ("json_group_object", PgType::Json),
        "jsonb_object_agg" => ("json_group_object", PgType::Jsonb),
        _ => return Err(failed()),
    })
}
