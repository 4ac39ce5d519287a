//! Puts a value into the form of a type: where it is assigned, compared, or cast.

use super::Column;
use super::expression::{Expression, Of};
use super::names::text_literal;
use super::translator::Translator;
use crate::catalog;
use crate::error::SqlError;
use crate::types::PgType;
use crate::values::type_family;

/// Types between which values are compared and assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `boolean`
    Truth,
    /// Integers and other numbers.
    Number,
    /// Text.
    Text,
    /// Dates and points in time.
    Moment,
    /// `time`
    TimeOfDay,
    /// `json` and `jsonb`
    Json,
    /// `uuid`
    Uuid,
    /// `bytea`
    Bytes,
    /// Arrays.
    Array,
}

/// The family of a type.
pub fn family(of: PgType) -> Family {
    use PgType as P;
    match of {
        P::Bool => Family::Truth,
        P::Int2 | P::Int4 | P::Int8 | P::Oid | P::Real | P::Double | P::Numeric { .. } => Family::Number,
        P::Text | P::Varchar(_) | P::Char(_) | P::Name | P::Letter => Family::Text,
        P::Date | P::Timestamp | P::Timestamptz => Family::Moment,
        P::Time => Family::TimeOfDay,
        P::Json | P::Jsonb => Family::Json,
        P::Uuid => Family::Uuid,
        P::Bytea => Family::Bytes,
        P::BoolArray
        | P::Int4Array
        | P::Int8Array
        | P::OidArray
        | P::DoubleArray
        | P::TextArray
        | P::UuidArray => Family::Array,
    }
}

/// A type as messages name it.
pub fn type_name(of: PgType) -> String {
    type_family(of).to_owned()
}

/// A call of the function that puts a value into the form of a type, or raises PostgreSQL's error.
pub fn call(of: PgType, sql: &str) -> String {
    use PgType as P;
    let name = match of {
        P::Bool => "cast_bool",
        P::Int2 => "cast_int2",
        P::Int4 => "cast_int4",
        P::Int8 | P::Oid => "cast_int8",
        P::Real => "cast_real",
        P::Double => "cast_double",
        P::Numeric { precision, scale } => return format!("cast_numeric({sql}, {precision}, {scale})"),
        P::Varchar(length) => return format!("assign_varchar({sql}, {length})"),
        P::Char(length) => return format!("assign_char({sql}, {length})"),
        P::Text | P::Name | P::Letter => "cast_text",
        P::Bytea => "cast_bytea",
        P::Date => "cast_date",
        P::Time => "cast_time",
        P::Timestamp => "cast_timestamp",
        P::Timestamptz => "cast_timestamptz",
        P::Uuid => "cast_uuid",
        P::Json => "cast_json",
        P::Jsonb => "cast_jsonb",
        P::BoolArray
        | P::Int4Array
        | P::Int8Array
        | P::OidArray
        | P::DoubleArray
        | P::TextArray
        | P::UuidArray => {
            let element = match of {
                P::BoolArray => "bool",
                P::Int4Array => "int4",
                P::Int8Array | P::OidArray => "int8",
                P::DoubleArray => "double",
                P::UuidArray => "uuid",
                _ => "text",
            };
            return format!("cast_{element}_array({sql})");
        }
    };
    format!("{name}({sql})")
}

/// The error of PostgreSQL's for text that is no value of a type.
pub fn invalid_text(of: PgType, text: &str) -> SqlError {
    SqlError::plain("22P02", format!("invalid input syntax for type {}: \"{text}\"", type_name(of)))
}

/// A string without a type, as a value of this type.
fn literal(text: &str, of: PgType) -> Result<Expression, SqlError> {
    use PgType as P;
    let trimmed = text.trim();
    let is_present =
        ["now", "today", "tomorrow", "yesterday"].contains(&trimmed.to_ascii_lowercase().as_str());
    if is_present && matches!(family(of), Family::Moment | Family::TimeOfDay) {
        let message = format!("'{trimmed}' as a point in time is not supported");
        return Err(SqlError::unsupported(message, "Use now() or current_date."));
    }
    let sql = match of {
        P::Bool => match trimmed.to_ascii_lowercase().as_str() {
            "t" | "tr" | "tru" | "true" | "y" | "ye" | "yes" | "on" | "1" => "1".to_owned(),
            "f" | "fa" | "fal" | "fals" | "false" | "n" | "no" | "of" | "off" | "0" => "0".to_owned(),
            _ => return Err(invalid_text(of, text)),
        },
        P::Int2 | P::Int4 | P::Int8 => match trimmed.parse::<i64>() {
            Ok(number) if in_range(number, of) => integer_literal(number),
            // The function names what is wrong.
            _ => call(of, &text_literal(text)),
        },
        P::Text | P::Name => text_literal(text),
        P::Varchar(length) | P::Char(length)
            if text.chars().count() <= length as usize && !text.ends_with(' ') =>
        {
            text_literal(text)
        }
        P::Letter => text_literal(text.get(..1).unwrap_or("")),
        P::Oid => match trimmed.parse::<u32>() {
            Ok(number) => number.to_string(),
            Err(_) => relation_number(&text_literal(text)),
        },
        other => call(other, &text_literal(text)),
    };
    Ok(Expression::constant(sql, of))
}

/// The number of a table in the catalogue, by its name.
pub fn relation_number(name: &str) -> String {
    let number = catalog::expression("regclass_in", 1).unwrap_or("NULL").replace("?1", name);
    let message = format!("'relation \"' || trim({name}, '\"') || '\" does not exist'");
    format!("CASE WHEN {name} IS NOT NULL THEN ifnull({number}, raise_pg('42P01', {message})) END")
}

/// An integer for SQLite, which reads the smallest one without its sign, and too large.
pub fn integer_literal(number: i64) -> String {
    match number {
        i64::MIN => "(-9223372036854775807 - 1)".to_owned(),
        number if number < 0 => format!("({number})"),
        number => number.to_string(),
    }
}

/// Whether an integer is of this type.
pub fn in_range(number: i64, of: PgType) -> bool {
    match of {
        PgType::Int2 => i16::try_from(number).is_ok(),
        PgType::Int4 => i32::try_from(number).is_ok(),
        PgType::Oid => u32::try_from(number).is_ok(),
        _ => true,
    }
}

impl Translator<'_> {
    /// Gives an expression without a type this one. What has a type stays as it is.
    pub fn typed(&mut self, expression: Expression, of: PgType) -> Result<Expression, SqlError> {
        match &expression.of {
            Of::Known(_) => Ok(expression),
            Of::Literal(None) => Ok(Expression { of: Of::Known(of), ..expression }),
            Of::Literal(Some(text)) => literal(text, of),
            Of::Parameter(index) => {
                let of = self.set_parameter(*index, of);
                Ok(Expression { of: Of::Known(of), ..expression })
            }
        }
    }

    /// Gives an expression that has no type the type of text.
    pub fn settled(&mut self, expression: Expression) -> Result<Expression, SqlError> {
        self.typed(expression, PgType::Text)
    }

    /// A value for a column, as `INSERT` and `UPDATE` convert it.
    pub fn assigned(&mut self, expression: Expression, column: &Column) -> Result<Expression, SqlError> {
        let value = self.typed(expression, column.of)?;
        if value.is_null() || value.sql == "NULL" {
            return Ok(value);
        }
        let from = value.known_or_text();
        if !may_assign(from, column.of) {
            let (name, to) = (&column.name, type_name(column.of));
            let message =
                format!("column \"{name}\" is of type {to} but expression is of type {}", type_name(from));
            return Err(SqlError::new("42804", message, "You will need to rewrite or cast the expression."));
        }
        Ok(converted(value, column.of))
    }

    /// A value of an explicit cast.
    pub fn cast(&mut self, expression: Expression, of: PgType) -> Result<Expression, SqlError> {
        if let Of::Literal(Some(text)) = &expression.of
            && let PgType::Varchar(length) | PgType::Char(length) = of
        {
            // A cast cuts what is too long.
            let cut: String = text.chars().take(length as usize).collect();
            return literal(&cut, of);
        }
        let value = self.typed(expression, of)?;
        let from = value.known_or_text();
        if value.is_null() || value.sql == "NULL" {
            return Ok(Expression { of: Of::Known(of), ..value });
        }
        if !may_cast(from, of) {
            let message = format!("cannot cast type {} to {}", type_name(from), type_name(of));
            return Err(SqlError::plain("42846", message));
        }
        if let PgType::Varchar(length) | PgType::Char(length) = of {
            let text = converted(value, PgType::Text);
            let sql = format!("substr({}, 1, {length})", text.sql);
            let sql = if matches!(of, PgType::Char(_)) { format!("rtrim({sql}, ' ')") } else { sql };
            return Ok(Expression { is_nullable: text.is_nullable, ..Expression::new(sql, of) });
        }
        Ok(converted(value, of))
    }
}

fn may_assign(from: PgType, to: PgType) -> bool {
    let (from, to) = (family(from), family(to));
    from == to || to == Family::Text
}

fn may_cast(from: PgType, to: PgType) -> bool {
    let (source, target) = (family(from), family(to));
    let is_pair = |one: PgType, other: PgType| from == one && to == other || from == other && to == one;
    source == target
        || source == Family::Text
        || target == Family::Text
        || is_pair(PgType::Bool, PgType::Int4)
        || source == Family::Moment && target == Family::TimeOfDay && from != PgType::Date
        || source == Family::Json && matches!(target, Family::Number | Family::Truth)
}

/// A value of a known type in the form of another one; as it is, where SQLite keeps both alike.
pub fn converted(value: Expression, to: PgType) -> Expression {
    let from = value.known_or_text();
    if is_kept_alike(&value, from, to) {
        return Expression { of: Of::Known(to), is_exact: true, ..value };
    }
    if family(from) == Family::Number
        && let Some(sql) = literal_number(&value.sql, to)
    {
        return Expression::constant(sql, to);
    }
    let sql = match (from, to) {
        (PgType::Bool, to) if to.is_text() => {
            let text = format!("CASE {} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END", value.atom());
            return Expression { is_nullable: value.is_nullable, ..Expression::operation(text, to) };
        }
        (PgType::Bytea, to) if to.is_text() => format!("cast_text({})", value.sql),
        (PgType::Numeric { scale, .. }, PgType::Text) if scale > 0 => {
            format!("format('%.{scale}f', {})", value.sql)
        }
        (PgType::Json | PgType::Jsonb, PgType::Bool) => format!("json_extract({}, '$')", value.sql),
        (_, PgType::Double) if family(from) == Family::Number => format!("CAST({} AS REAL)", value.sql),
        (PgType::Bool, PgType::Int4) => return Expression { of: Of::Known(to), ..value },
        (PgType::Int4, PgType::Bool) => format!("({} <> 0)", value.atom()),
        _ => call(to, &value.sql),
    };
    Expression { is_nullable: value.is_nullable, ..Expression::new(sql, to) }
}

/// A literal of a number, which needs no function to be of a type.
fn literal_number(sql: &str, to: PgType) -> Option<String> {
    let plain = sql.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).unwrap_or(sql);
    let digits = plain.strip_prefix('-').unwrap_or(plain);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain =
        !whole.is_empty() && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    match to {
        PgType::Double if is_plain && !digits.contains('.') => {
            Some(sql.replace(digits, &format!("{digits}.0")))
        }
        PgType::Numeric { precision, scale } if is_plain => {
            let is_short = whole.len() + usize::from(scale) <= usize::from(precision);
            (is_short && fraction.len() <= usize::from(scale)).then(|| sql.to_owned())
        }
        _ => None,
    }
}

/// Whether a value of one type is kept as the other one has it.
fn is_kept_alike(value: &Expression, from: PgType, to: PgType) -> bool {
    use PgType as P;
    if from == to || matches!((from, to), (P::Numeric { .. }, P::Numeric { .. })) {
        // A parameter's type has no modifier.
        return value.is_exact && !to.is_numeric()
            || from == to && value.is_exact && !value.sql.starts_with('?');
    }
    let is_wider = match (from, to) {
        (P::Int2, P::Int4 | P::Int8) | (P::Int4 | P::Oid, P::Int8) => true,
        (P::Real, P::Double) => return true,
        (P::Varchar(own), P::Varchar(length)) | (P::Char(own), P::Char(length) | P::Varchar(length)) => {
            own <= length
        }
        (P::Varchar(_) | P::Char(_) | P::Name | P::Letter, P::Text | P::Name) => true,
        (P::Text, P::Name) | (P::Jsonb, P::Json) => true,
        // Kept as the text that PostgreSQL writes.
        (P::Date | P::Time | P::Timestamp | P::Timestamptz | P::Uuid | P::Json | P::Jsonb, P::Text) => true,
        _ => false,
    };
    is_wider && value.is_exact
}
