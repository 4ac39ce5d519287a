//! Functions: those of PostgreSQL that are supported, what they take and give, and what SQLite calls them.

use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName};

use super::coerce::{Family, converted, family, type_name};
use super::expression::Expression;
use super::names;
use super::operators::{bare, no_exact_arithmetic};
use super::query::Want;
use super::scope::Place;
use super::special::{array_of, array_of_query};
use super::translator::Translator;
use crate::catalog;
use crate::error::SqlError;
use crate::types::PgType;

/// A function that SQLite calls so, with the arguments as they are.
struct Plain {
    name: &'static str,
    sqlite: &'static str,
    takes: &'static [PgType],
    /// How many arguments there are at least.
    least: usize,
    gives: PgType,
}

const fn plain(
    name: &'static str,
    sqlite: &'static str,
    takes: &'static [PgType],
    least: usize,
    gives: PgType,
) -> Plain {
    Plain { name, sqlite, takes, least, gives }
}

const T: PgType = PgType::Text;
const I: PgType = PgType::Int4;
const L: PgType = PgType::Int8;
const D: PgType = PgType::Double;
const O: PgType = PgType::Oid;

/// In the order of their names.
const PLAIN: &[Plain] = &[
    plain("array_to_string", "array_to_string", &[PgType::TextArray, T, T], 2, T),
    plain("ascii", "ascii", &[T], 1, I),
    plain("bit_length", "8 * octet_length", &[T], 1, I),
    plain("btrim", "trim", &[T, T], 1, T),
    plain("char_length", "length", &[T], 1, I),
    plain("character_length", "length", &[T], 1, I),
    plain("chr", "chr", &[I], 1, T),
    plain("col_description", "col_description", &[O, I], 2, T),
    plain("current_catalog", "current_database", &[], 0, PgType::Name),
    plain("current_database", "current_database", &[], 0, PgType::Name),
    plain("current_role", "current_user", &[], 0, PgType::Name),
    plain("current_schema", "current_schema", &[], 0, PgType::Name),
    plain("current_schemas", "current_schemas", &[PgType::Bool], 1, PgType::TextArray),
    plain("current_setting", "current_setting", &[T, PgType::Bool], 1, T),
    plain("current_user", "current_user", &[], 0, PgType::Name),
    plain("decode", "decode", &[T, T], 2, PgType::Bytea),
    plain("degrees", "degrees", &[D], 1, D),
    plain("encode", "encode", &[PgType::Bytea, T], 2, T),
    plain("exp", "exp", &[D], 1, D),
    plain("format_type", "format_type", &[O, I], 2, T),
    plain("gen_random_uuid", "gen_random_uuid_pg", &[], 0, PgType::Uuid),
    plain("has_any_column_privilege", "has_any_column_privilege", &[T, T], 2, PgType::Bool),
    plain("has_column_privilege", "has_column_privilege", &[T, T, T], 3, PgType::Bool),
    plain("has_database_privilege", "has_table_privilege", &[T, T, T], 2, PgType::Bool),
    plain("has_schema_privilege", "has_table_privilege", &[T, T, T], 2, PgType::Bool),
    plain("has_sequence_privilege", "has_sequence_privilege", &[T, T], 2, PgType::Bool),
    plain("has_table_privilege", "has_table_privilege", &[T, T, T], 2, PgType::Bool),
    plain("initcap", "initcap", &[T], 1, T),
    plain("json_typeof", "json_typeof", &[PgType::Json], 1, T),
    plain("jsonb_typeof", "jsonb_typeof", &[PgType::Jsonb], 1, T),
    plain("left", "left", &[T, I], 2, T),
    plain("ln", "ln", &[D], 1, D),
    plain("log", "log", &[D], 1, D),
    plain("log10", "log", &[D], 1, D),
    plain("lower", "lower_pg", &[T], 1, T),
    plain("ltrim", "ltrim", &[T, T], 1, T),
    plain("make_date", "make_date", &[I, I, I], 3, PgType::Date),
    plain("md5", "md5", &[T], 1, T),
    plain("obj_description", "obj_description", &[O, T], 1, T),
    plain("pg_advisory_unlock_all", "pg_advisory_unlock_all", &[], 0, T),
    plain("pg_backend_pid", "pg_backend_pid", &[], 0, I),
    plain("pg_client_encoding", "pg_client_encoding", &[], 0, PgType::Name),
    plain("pg_collation_is_visible", "pg_collation_is_visible", &[O], 1, PgType::Bool),
    plain("pg_database_size", "pg_database_size", &[O], 1, L),
    plain("pg_encoding_to_char", "pg_encoding_to_char", &[I], 1, PgType::Name),
    plain("pg_function_is_visible", "pg_function_is_visible", &[O], 1, PgType::Bool),
    plain("pg_get_constraintdef", "pg_get_constraintdef", &[O, PgType::Bool], 1, T),
    plain("pg_get_expr", "pg_get_expr", &[T, O, PgType::Bool], 2, T),
    plain("pg_get_function_arguments", "pg_get_function_arguments", &[O], 1, T),
    plain("pg_get_function_identity_arguments", "pg_get_function_identity_arguments", &[O], 1, T),
    plain("pg_get_function_result", "pg_get_function_result", &[O], 1, T),
    plain("pg_get_functiondef", "pg_get_functiondef", &[O], 1, T),
    plain("pg_get_indexdef", "pg_get_indexdef", &[O, I, PgType::Bool], 1, T),
    plain("pg_get_partition_constraintdef", "pg_get_partition_constraintdef", &[O], 1, T),
    plain("pg_get_partkeydef", "pg_get_partkeydef", &[O], 1, T),
    plain("pg_get_serial_sequence", "pg_get_serial_sequence", &[T, T], 2, T),
    plain("pg_get_statisticsobjdef_columns", "pg_get_statisticsobjdef_columns", &[O], 1, T),
    plain("pg_get_triggerdef", "pg_get_triggerdef", &[O, PgType::Bool], 1, T),
    plain("pg_get_userbyid", "pg_get_userbyid", &[O], 1, PgType::Name),
    plain("pg_get_viewdef", "pg_get_viewdef", &[O, PgType::Bool], 1, T),
    plain("pg_indexes_size", "pg_indexes_size", &[O], 1, L),
    plain("pg_is_in_recovery", "pg_is_in_recovery", &[], 0, PgType::Bool),
    plain("pg_is_other_temp_schema", "pg_is_other_temp_schema", &[O], 1, PgType::Bool),
    plain("pg_my_temp_schema", "pg_my_temp_schema", &[], 0, O),
    plain("pg_opclass_is_visible", "pg_opclass_is_visible", &[O], 1, PgType::Bool),
    plain("pg_operator_is_visible", "pg_operator_is_visible", &[O], 1, PgType::Bool),
    plain("pg_partition_ancestors", "cast_int8", &[O], 1, O),
    plain("pg_relation_is_publishable", "pg_relation_is_publishable", &[O], 1, PgType::Bool),
    plain("pg_relation_size", "pg_relation_size", &[O, T], 1, L),
    plain("pg_size_pretty", "pg_size_pretty", &[L], 1, T),
    plain("pg_statistics_obj_is_visible", "pg_statistics_obj_is_visible", &[O], 1, PgType::Bool),
    plain("pg_table_is_visible", "pg_table_is_visible", &[O], 1, PgType::Bool),
    plain("pg_table_size", "pg_relation_size", &[O], 1, L),
    plain("pg_tablespace_location", "pg_tablespace_location", &[O], 1, T),
    plain("pg_total_relation_size", "pg_relation_size", &[O], 1, L),
    plain("pg_ts_config_is_visible", "pg_ts_config_is_visible", &[O], 1, PgType::Bool),
    plain("pg_type_is_visible", "pg_table_is_visible", &[O], 1, PgType::Bool),
    plain("pow", "power", &[D, D], 2, D),
    plain("power", "power", &[D, D], 2, D),
    plain("quote_ident", "quote_ident", &[T], 1, T),
    plain("quote_literal", "quote_literal", &[T], 1, T),
    plain("quote_nullable", "quote_nullable", &[T], 1, T),
    plain("radians", "radians", &[D], 1, D),
    plain("random", "random_pg", &[], 0, D),
    plain("repeat", "repeat", &[T, I], 2, T),
    plain("replace", "replace", &[T, T, T], 3, T),
    plain("reverse", "reverse", &[T], 1, T),
    plain("right", "right", &[T, I], 2, T),
    plain("rtrim", "rtrim", &[T, T], 1, T),
    plain("session_user", "current_user", &[], 0, PgType::Name),
    plain("set_config", "set_config", &[T, T, PgType::Bool], 3, T),
    plain("shobj_description", "obj_description", &[O, T], 2, T),
    plain("split_part", "split_part", &[T, T, I], 3, T),
    plain("sqrt", "sqrt", &[D], 1, D),
    plain("starts_with", "starts_with", &[T, T], 2, PgType::Bool),
    plain("string_to_array", "string_to_array", &[T, T], 2, PgType::TextArray),
    plain("strpos", "instr", &[T, T], 2, I),
    plain("to_hex", "to_hex", &[L], 1, T),
    plain("to_regclass", "to_regclass", &[T], 1, O),
    plain("to_regtype", "to_regtype", &[T], 1, O),
    plain("to_timestamp", "to_timestamp", &[D], 1, PgType::Timestamptz),
    plain("translate", "translate", &[T, T, T], 3, T),
    plain("upper", "upper_pg", &[T], 1, T),
    plain("user", "current_user", &[], 0, PgType::Name),
    plain("version", "version", &[], 0, T),
];

/// A text with `?1`, `?2` in place of arguments, and these put there.
fn with_arguments(text: &str, arguments: &[Expression]) -> String {
    let mut parts = text.split('?');
    let mut sql = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let number = part.as_bytes().first().map_or(0, |digit| usize::from(digit.wrapping_sub(b'1')));
        match arguments.get(number) {
            Some(argument) => sql.extend([&argument.sql, &part[1..]]),
            None => sql.extend(["?", part]),
        }
    }
    sql
}

/// A function that does not exist.
pub fn no_function(name: &str, arguments: &[Expression]) -> SqlError {
    let types = arguments.iter().map(|one| one.known().map_or("unknown".to_owned(), type_name));
    let types = types.collect::<Vec<_>>().join(", ");
    let hint =
        "No function matches the given name and argument types. You might need to add explicit type casts.";
    SqlError::new("42883", format!("function {name}({types}) does not exist"), hint)
}

/// The name of a function in lower case.
pub fn function_name(name: &ObjectName) -> Result<String, SqlError> {
    match names::parts(name)? {
        (None, name) => Ok(name),
        (Some(schema), name) if schema == "pg_catalog" => Ok(name),
        (Some(schema), name) => {
            Err(SqlError::plain("42883", format!("function {schema}.{name} does not exist")))
        }
    }
}

/// The arguments, if they are plain ones.
pub fn arguments(function: &Function) -> Result<Vec<&Expr>, SqlError> {
    let list = match &function.args {
        FunctionArguments::None => return Ok(Vec::new()),
        FunctionArguments::List(list) => list,
        FunctionArguments::Subquery(_) => return Err(no_form(function)),
    };
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return Err(no_form(function));
    }
    let plain = |argument| match argument {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Ok(expr),
        _ => Err(no_form(function)),
    };
    list.args.iter().map(plain).collect()
}

/// A call of a form that is not supported.
pub fn no_form(function: &Function) -> SqlError {
    let text: String = function.to_string().chars().take(60).collect();
    SqlError::unsupported(
        format!("a call of this form is not supported: {text}"),
        "Use positional arguments only.",
    )
}

impl Translator<'_> {
    /// A call of a function.
    pub fn function(&mut self, function: &Function) -> Result<Expression, SqlError> {
        if let Some(query) = array_of_query(function) {
            let rows = self.query(query, &Want::default())?;
            let [column] = &rows.columns[..] else {
                return Err(SqlError::plain("42601", "subquery must return only one column"));
            };
            let sql =
                format!("(SELECT json_group_array({}) FROM ({}))", names::quoted(&column.name), rows.sql);
            return Ok(Expression::new(sql, array_of(column.of)));
        }
        let name = function_name(&function.name)?;
        if let Some(value) = self.aggregate(&name, function)? {
            return Ok(value);
        }
        if function.over.is_some() || function.filter.is_some() || !function.within_group.is_empty() {
            return Err(no_form(function));
        }
        let arguments = arguments(function)?;
        self.named_call(&name, &arguments)
    }

    /// A call of a function by its name.
    pub fn named_call(&mut self, name: &str, arguments: &[&Expr]) -> Result<Expression, SqlError> {
        let at = PLAIN.binary_search_by(|known| known.name.cmp(name));
        if let Ok(at) = at
            && (PLAIN[at].least..=PLAIN[at].takes.len()).contains(&arguments.len())
        {
            return self.plain_call(&PLAIN[at], arguments);
        }
        match name {
            "now"
            | "transaction_timestamp"
            | "statement_timestamp"
            | "clock_timestamp"
            | "current_timestamp"
            | "current_date"
            | "localtimestamp"
            | "localtime"
            | "current_time" => self.present(name, arguments),
            "unnest" if arguments.len() == 1 && self.scope().place == Place::Groups => {
                self.unnested_item(arguments[0], false)
            }
            "generate_subscripts" if arguments.len() == 2 && self.scope().place == Place::Groups => {
                self.unnested_item(arguments[0], true)
            }
            "nextval" | "setval" => self.sequence_call(name, arguments),
            "extract" | "date_part" => match arguments {
                [field, value] => match self.constant_text(field) {
                    Some(field) => self.extract(&field.to_ascii_lowercase(), value),
                    None => {
                        Err(SqlError::unsupported("the field of date_part has to be a literal", "Write one."))
                    }
                },
                _ => Err(no_function(name, &[])),
            },
            _ => {
                let values =
                    arguments.iter().map(|one| self.expression(one)).collect::<Result<Vec<_>, _>>()?;
                self.call_of_values(name, values)
            }
        }
    }

    fn plain_call(&mut self, known: &Plain, arguments: &[&Expr]) -> Result<Expression, SqlError> {
        let mut values = Vec::with_capacity(arguments.len());
        for (argument, takes) in arguments.iter().zip(known.takes) {
            let value = self.expression(argument)?;
            values.push(self.typed(value, *takes)?);
        }
        let is_taken = |(value, takes): (&Expression, &PgType)| {
            family(value.known_or_text()) == family(*takes)
                && (!takes.is_integer() || value.known_or_text().is_integer())
        };
        let is_checked = !["pg_get_expr", "has_table_privilege"].contains(&known.sqlite);
        if is_checked && !values.iter().zip(known.takes).all(is_taken) {
            return Err(no_function(known.name, &values));
        }
        let gives = known.gives;
        if let Some(looked_up) = catalog::expression(known.sqlite, values.len()) {
            let sql = with_arguments(looked_up, &values);
            return Ok(Expression::new(sql, gives));
        }
        let list = values.iter().map(|value| value.sql.as_str()).collect::<Vec<_>>().join(", ");
        let is_nullable = arguments.is_empty() || values.iter().any(|value| value.is_nullable);
        let written = Expression::new(format!("{}({list})", known.sqlite), gives);
        Ok(Expression { is_nullable, is_atom: !known.sqlite.contains(' '), ..written })
    }

    fn constant_text(&mut self, expr: &Expr) -> Option<String> {
        let Expr::Value(value) = bare(expr) else { return None };
        value.value.clone().into_string()
    }

    fn present(&mut self, name: &str, arguments: &[&Expr]) -> Result<Expression, SqlError> {
        let sql = "now_pg()".to_owned();
        if !arguments.is_empty() {
            let message = format!("{name} with a precision is not supported");
            return Err(SqlError::unsupported(message, "Leave the precision out, or use date_trunc."));
        }
        let now = Expression::constant(sql, PgType::Timestamptz);
        Ok(match name {
            "current_date" => converted(now, PgType::Date),
            "localtimestamp" => converted(now, PgType::Timestamp),
            "localtime" => converted(now, PgType::Time),
            "current_time" => {
                return Err(SqlError::unsupported("time with time zone is not supported", "Use localtime."));
            }
            _ => now,
        })
    }

    /// `extract(field FROM x)`.
    pub fn extract(&mut self, field: &str, value: &Expr) -> Result<Expression, SqlError> {
        const FIELDS: [&str; 17] = [
            "year",
            "month",
            "day",
            "hour",
            "minute",
            "second",
            "dow",
            "doy",
            "isodow",
            "isoyear",
            "week",
            "quarter",
            "epoch",
            "century",
            "decade",
            "microseconds",
            "milliseconds",
        ];
        let value = self.expression(value)?;
        let value = self.typed(value, PgType::Timestamptz)?;
        let of = value.known_or_text();
        if !FIELDS.contains(&field) || !matches!(family(of), Family::Moment | Family::TimeOfDay) {
            let message = format!("unit \"{field}\" not supported for type {}", type_name(of));
            return Err(SqlError::plain("0A000", message));
        }
        // SQLite divides integers as such, and the field is a real number.
        let sql = format!("CAST(extract_pg('{field}', {}) AS REAL)", value.sql);
        Ok(Expression::new(sql, PgType::Double).nullable_as(&[&value]))
    }

    /// Functions whose types depend on those of their arguments.
    fn call_of_values(&mut self, name: &str, values: Vec<Expression>) -> Result<Expression, SqlError> {
        let integers =
            |values: &[Expression]| values.iter().all(|one| one.known().is_none_or(PgType::is_integer));
        match (name, values.len()) {
            ("coalesce", 1..) => self.alternatives(values, "COALESCE", "coalesce"),
            ("greatest", 1..) => self.alternatives(values, "GREATEST", "greatest_pg"),
            ("least", 1..) => self.alternatives(values, "LEAST", "least_pg"),
            ("nullif", 2) => {
                let [left, right] = two(values);
                let (left, right) = self.comparable(left, "=", right)?;
                Ok(Expression::new(format!("nullif({}, {})", left.sql, right.sql), left.known_or_text()))
            }
            ("generate_series" | "unnest" | "json_array_elements" | "jsonb_array_elements", _) => {
                let message = format!("{name} in a list of results is not supported");
                Err(SqlError::unsupported(message, "Call it in FROM."))
            }
            ("pi", 0) => Ok(Expression::constant("3.141592653589793".to_owned(), PgType::Double)),
            ("abs", 1) => self.of_number(name, "abs", values),
            ("ceil" | "ceiling", 1) => self.of_number(name, "ceil", values),
            ("floor", 1) => self.of_number(name, "floor", values),
            ("trunc", 1) => self.of_number(name, "trunc", values),
            ("sign", 1) => self.of_number(name, "sign", values),
            ("round", 1) => self.of_number(name, "round_double_pg", values),
            ("round", 2) => self.rounded(values),
            ("mod", 2) if integers(&values) => {
                let [left, right] = two(values);
                self.arithmetic(left, &sqlparser::ast::BinaryOperator::Modulo, right)
            }
            ("length" | "octet_length", 1) => {
                let [value] = one(values);
                let value = self.settled(value)?;
                let of = value.known_or_text();
                if !of.is_text() && of != PgType::Bytea {
                    return Err(no_function(name, &[value]));
                }
                let sql = if of == PgType::Bytea { "octet_length" } else { name };
                Ok(Expression::new(format!("{sql}({})", value.sql), PgType::Int4).nullable_as(&[&value]))
            }
            ("substring" | "substr", 2 | 3) => self.substring(name, values),
            ("lpad" | "rpad", 2 | 3) => self.padded(name, values),
            ("concat", 1..) | ("concat_ws", 2..) => {
                let values =
                    values.into_iter().map(|one| self.text_of(one)).collect::<Result<Vec<_>, _>>()?;
                Ok(Expression::new(format!("{name}({})", list(&values)), PgType::Text))
            }
            ("currval" | "lastval", _) => Err(SqlError::unsupported(
                format!("function {name} is not supported"),
                "Read the number that was given with INSERT .. RETURNING, or keep that of nextval.",
            )),
            ("pg_advisory_lock" | "pg_try_advisory_lock" | "pg_advisory_xact_lock" | "pg_sleep", _) => {
                let message = format!("function {name} is not supported");
                Err(SqlError::unsupported(message, "Transactions here are serializable without locks."))
            }
            _ => self.call_of_structures(name, values),
        }
    }

    /// The same, of points in time, JSON and arrays.
    fn call_of_structures(&mut self, name: &str, values: Vec<Expression>) -> Result<Expression, SqlError> {
        match (name, values.len()) {
            ("date_trunc", 2) => {
                let [field, value] = two(values);
                let value = self.typed(value, PgType::Timestamptz)?;
                let of = match value.known_or_text() {
                    PgType::Date => PgType::Timestamptz,
                    of @ (PgType::Timestamp | PgType::Timestamptz) => of,
                    _ => return Err(no_function(name, &[field, value])),
                };
                let (field, value) = (self.settled(field)?, converted(value, of));
                Ok(Expression::new(format!("date_trunc_pg({}, {})", field.sql, value.sql), of)
                    .nullable_as(&[&value]))
            }
            ("date", 1) => self.cast(one(values)[0].clone(), PgType::Date),
            ("starts_with", 2) => {
                let [value, start] = two(values);
                let (value, start) = (self.typed(value, T)?, self.typed(start, T)?);
                let sql = format!("substr({}, 1, length({})) = {}", value.sql, start.sql, start.atom());
                Ok(Expression::operation(sql, PgType::Bool))
            }
            ("json_build_object" | "jsonb_build_object", _) if values.len().is_multiple_of(2) => {
                self.json_object(name, values)
            }
            ("json_build_array" | "jsonb_build_array", _) => {
                let values =
                    values.into_iter().map(|one| self.json_of(one)).collect::<Result<Vec<_>, _>>()?;
                Ok(Expression::new(format!("json_array({})", values.join(", ")), json_type(name)))
            }
            ("to_json" | "to_jsonb", 1) => {
                let [value] = one(values);
                Ok(Expression::new(self.json_of(value)?, json_type(name)))
            }
            ("json_array_length" | "jsonb_array_length", 1) => {
                let [value] = one(values);
                let value = self.typed(value, PgType::Json)?;
                Ok(Expression::new(format!("json_array_length_pg({})", value.sql), PgType::Int4))
            }
            ("cardinality", 1) => {
                let [array] = one(values);
                let array = self.typed(array, PgType::TextArray)?;
                Ok(Expression::new(format!("cardinality({})", array.sql), PgType::Int4))
            }
            ("array_length" | "array_upper", 2) => {
                let [array, dimension] = two(values);
                let array = self.typed(array, PgType::TextArray)?;
                let dimension = self.typed(dimension, PgType::Int4)?;
                let sql = format!("array_length_pg({}, {})", array.sql, dimension.sql);
                Ok(Expression::new(sql, PgType::Int4))
            }
            ("array_to_string", 2) => {
                let [array, by] = two(values);
                let (array, by) = (self.typed(array, PgType::TextArray)?, self.settled(by)?);
                let sql = format!("(SELECT string_agg(value, {}) FROM json_each({}))", by.sql, array.sql);
                Ok(Expression::new(sql, PgType::Text))
            }
            _ => Err(no_function(name, &values)),
        }
    }

    fn alternatives(
        &mut self,
        values: Vec<Expression>,
        what: &str,
        sqlite: &str,
    ) -> Result<Expression, SqlError> {
        let (values, of) = self.unified(values, what)?;
        let is_nullable = values.iter().all(|value| value.is_nullable);
        let is_exact = values.iter().all(|value| value.is_exact);
        // SQLite's coalesce takes two arguments at least.
        let sql = match &values[..] {
            [only] => only.atom(),
            values => format!("{sqlite}({})", list(values)),
        };
        Ok(Expression { is_nullable, is_exact, ..Expression::new(sql, of) })
    }

    fn of_number(
        &mut self,
        name: &str,
        sqlite: &str,
        values: Vec<Expression>,
    ) -> Result<Expression, SqlError> {
        let [value] = one(values);
        let value = self.typed(value, PgType::Double)?;
        let of = value.known_or_text();
        if family(of) != Family::Number {
            return Err(no_function(name, &[value]));
        }
        if of.is_numeric() && name != "abs" {
            return Err(no_exact_arithmetic());
        }
        let is_kept = name == "abs" || of == PgType::Double;
        let gives = if is_kept { of } else { PgType::Double };
        let sql = if is_kept { value.sql.clone() } else { format!("CAST({} AS REAL)", value.sql) };
        let sql =
            if name == "sign" { format!("CAST(sign({sql}) AS REAL)") } else { format!("{sqlite}({sql})") };
        Ok(Expression::new(sql, gives).nullable_as(&[&value]))
    }

    fn rounded(&mut self, values: Vec<Expression>) -> Result<Expression, SqlError> {
        let [value, digits] = two(values);
        let (value, digits) = (self.typed(value, PgType::Double)?, self.typed(digits, PgType::Int4)?);
        if family(value.known_or_text()) != Family::Number || !digits.known_or_text().is_integer() {
            return Err(no_function("round", &[value, digits]));
        }
        let sql = format!("round_pg({}, {})", value.sql, digits.sql);
        Ok(Expression::new(sql, PgType::Double).nullable_as(&[&value, &digits]))
    }

    fn substring(&mut self, name: &str, values: Vec<Expression>) -> Result<Expression, SqlError> {
        let mut values = values.into_iter();
        let value = values.next().unwrap_or_else(super::literals::null);
        let value = self.typed(value, T)?;
        let rest = values.map(|one| self.typed(one, I)).collect::<Result<Vec<_>, _>>()?;
        let of = value.known_or_text();
        let is_counted = rest.iter().all(|one| one.known_or_text().is_integer());
        if !of.is_text() && of != PgType::Bytea || !is_counted {
            return Err(no_function(name, &[value]));
        }
        let is_plain = rest.iter().all(|one| one.sql.parse::<u32>().is_ok_and(|number| number > 0));
        let function = if is_plain { "substr" } else { "substring_pg" };
        let sql = format!("{function}({}, {})", value.sql, list(&rest));
        Ok(Expression::new(sql, if of.is_text() { T } else { of }))
    }

    fn padded(&mut self, name: &str, values: Vec<Expression>) -> Result<Expression, SqlError> {
        let mut typed = Vec::new();
        for (value, of) in values.into_iter().zip([T, I, T]) {
            typed.push(self.typed(value, of)?);
        }
        if typed.len() == 2 {
            typed.push(super::literals::string(" "));
        }
        Ok(Expression::new(format!("{name}({})", list(&typed)), T))
    }

    fn json_object(&mut self, name: &str, values: Vec<Expression>) -> Result<Expression, SqlError> {
        let mut written = Vec::new();
        for (at, value) in values.into_iter().enumerate() {
            written.push(if at % 2 == 0 { self.text_of(value)?.sql } else { self.json_of(value)? });
        }
        Ok(Expression::new(format!("json_object({})", written.join(", ")), json_type(name)))
    }

    /// A value as an argument of SQLite's functions that make JSON.
    pub fn json_of(&mut self, value: Expression) -> Result<String, SqlError> {
        let value = self.settled(value)?;
        Ok(match family(value.known_or_text()) {
            Family::Json | Family::Array => format!("json({})", value.sql),
            Family::Truth => format!("json(json_of_pg({}, 1))", value.sql),
            _ => format!("json(json_of_pg({}, 0))", value.sql),
        })
    }
}

fn json_type(name: &str) -> PgType {
    if name.contains("jsonb") { PgType::Jsonb } else { PgType::Json }
}

/// Values with commas.
pub fn list(values: &[Expression]) -> String {
    values.iter().map(|value| value.sql.as_str()).collect::<Vec<_>>().join(", ")
}

fn one(values: Vec<Expression>) -> [Expression; 1] {
    let mut values = values.into_iter();
    [values.next().unwrap_or_else(super::literals::null)]
}

fn two(values: Vec<Expression>) -> [Expression; 2] {
    let mut values = values.into_iter();
    [(); 2].map(|()| values.next().unwrap_or_else(super::literals::null))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_for_the_search() {
        assert!(PLAIN.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}
