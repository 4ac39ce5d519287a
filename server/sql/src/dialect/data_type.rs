//! Types as statements name them: as the type of a column, or of a cast.

use sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, ObjectName, TimezoneInfo, TypeModifier,
};

use super::names;
use crate::error::SqlError;
use crate::types::{MAX_PRECISION, PgType};

/// What to do about amounts of money.
pub const NUMERIC_REMEDY: &str =
    "Declare numeric(p, s) with p at most 15, or keep amounts as bigint in the smallest unit.";

/// How a column gets its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// It is given values.
    Plain(PgType),
    /// `serial` and its like.
    Serial(PgType),
}

fn refused(of: &DataType, hint: &str) -> SqlError {
    SqlError::unsupported(format!("type {} is not supported", of.to_string().to_lowercase()), hint)
}

/// The type of a column.
pub fn of_column(of: &DataType) -> Result<ColumnType, SqlError> {
    if let DataType::Custom(name, _) = of {
        match names::parts(name)?.1.as_str() {
            "serial" | "serial4" => return Ok(ColumnType::Serial(PgType::Int4)),
            "bigserial" | "serial8" => return Ok(ColumnType::Serial(PgType::Int8)),
            "smallserial" | "serial2" => return Ok(ColumnType::Serial(PgType::Int2)),
            _ => {}
        }
    }
    if is_bare_numeric(of) {
        return Err(SqlError::unsupported(
            "numeric without a precision keeps any number of digits",
            NUMERIC_REMEDY,
        ));
    }
    let kept = of_cast(of)?;
    if kept.element().is_some() {
        return Err(refused(of, "Keep the elements in a table of their own, or in a column of type jsonb."));
    }
    Ok(ColumnType::Plain(kept))
}

/// Whether it is `numeric` alone.
pub fn is_bare_numeric(of: &DataType) -> bool {
    use DataType::{Dec, Decimal, Numeric};
    matches!(of, Numeric(ExactNumberInfo::None) | Decimal(ExactNumberInfo::None) | Dec(ExactNumberInfo::None))
}

/// The type of a cast.
pub fn of_cast(of: &DataType) -> Result<PgType, SqlError> {
    use DataType as D;
    Ok(match of {
        D::Bool | D::Boolean => PgType::Bool,
        D::SmallInt(None) | D::Int2(None) => PgType::Int2,
        D::Int(None) | D::Integer(None) | D::Int4(None) => PgType::Int4,
        D::BigInt(None) | D::Int8(None) => PgType::Int8,
        D::Real | D::Float4 => PgType::Real,
        D::Float(ExactNumberInfo::Precision(bits)) if *bits <= 24 => PgType::Real,
        D::Double(ExactNumberInfo::None) | D::DoublePrecision | D::Float8 | D::Float(_) => PgType::Double,
        D::Numeric(digits) | D::Decimal(digits) | D::Dec(digits) => numeric(of, digits)?,
        D::Text => PgType::Text,
        D::Varchar(length) | D::CharacterVarying(length) | D::CharVarying(length) => match length {
            None => PgType::Text,
            Some(length) => PgType::Varchar(characters(of, length)?),
        },
        D::Char(length) | D::Character(length) => match length {
            None => PgType::Char(1),
            Some(length) => PgType::Char(characters(of, length)?),
        },
        D::Bytea => PgType::Bytea,
        D::Date => PgType::Date,
        D::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => PgType::Time,
        D::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => PgType::Timestamp,
        D::Timestamp(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => PgType::Timestamptz,
        D::Uuid => PgType::Uuid,
        D::JSON => PgType::Json,
        D::JSONB => PgType::Jsonb,
        D::Regclass => PgType::Oid,
        D::Array(ArrayElemTypeDef::SquareBracket(element, _)) => array(of, element)?,
        D::Custom(name, modifiers) => custom(of, name, modifiers)?,
        D::Interval { .. } => {
            return Err(refused(of, "Keep a duration as a number of seconds: double precision."));
        }
        D::Time(..) => return Err(refused(of, "Use timestamptz, or time without a zone.")),
        _ => return Err(refused(of, "The documentation lists the types there are.")),
    })
}

fn numeric(of: &DataType, digits: &ExactNumberInfo) -> Result<PgType, SqlError> {
    let (precision, scale) = match *digits {
        // A cast: as many digits as there are.
        ExactNumberInfo::None => return Ok(PgType::Double),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let precision = u8::try_from(precision).ok().filter(|digits| (1..=MAX_PRECISION).contains(digits));
    let scale = u8::try_from(scale).ok();
    match (precision, scale) {
        (Some(precision), Some(scale)) if scale <= precision => Ok(PgType::Numeric { precision, scale }),
        _ => Err(refused(of, NUMERIC_REMEDY)),
    }
}

fn characters(of: &DataType, length: &CharacterLength) -> Result<u32, SqlError> {
    match length {
        CharacterLength::IntegerLength { length, .. } if (1..=10_485_760).contains(length) => {
            Ok(*length as u32)
        }
        _ => Err(refused(of, "Its length is from 1 to 10485760.")),
    }
}

fn array(of: &DataType, element: &DataType) -> Result<PgType, SqlError> {
    Ok(match of_cast(element)? {
        PgType::Bool => PgType::BoolArray,
        PgType::Int2 | PgType::Int4 => PgType::Int4Array,
        PgType::Int8 => PgType::Int8Array,
        PgType::Real | PgType::Double => PgType::DoubleArray,
        PgType::Oid => PgType::OidArray,
        PgType::Uuid => PgType::UuidArray,
        text if text.is_text() => PgType::TextArray,
        PgType::Date | PgType::Time | PgType::Timestamp | PgType::Timestamptz => PgType::TextArray,
        _ => return Err(refused(of, "Cast the array to text[].")),
    })
}

fn custom(of: &DataType, name: &ObjectName, modifiers: &[TypeModifier]) -> Result<PgType, SqlError> {
    let (schema, name) = names::parts(name)?;
    let is_plain = modifiers.is_empty() && schema.is_none_or(|schema| schema == "pg_catalog");
    let known = match name.as_str() {
        // Quoted, the type of one letter; the parser knows the other one itself.
        "char" => Some(PgType::Letter),
        "bpchar" => Some(PgType::Text),
        "regnamespace" | "regrole" | "regprocedure" | "regoper" | "xid" | "cid" => Some(PgType::Oid),
        name => PgType::named(name),
    };
    known.filter(|_| is_plain).ok_or_else(|| match name.as_str() {
        "money" => refused(of, NUMERIC_REMEDY),
        _ => {
            let hint = "The documentation lists the types there are; of an enum, keep the label as text with a CHECK.";
            SqlError::new("42704", format!("type \"{name}\" does not exist"), hint)
        }
    })
}
