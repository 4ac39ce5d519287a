//! PostgreSQL's binary forms, as its `send` and `receive` functions have them: most significant byte first, times as
//! microseconds since 2000.

use rusqlite::types::{Value, ValueRef};

use super::number::not_nan;
use super::{
    DAY_US, Decimal, array, date_text, json, misfit, moment, put_plain, stored_boolean, stored_decimal,
    stored_integer, stored_real, stored_text, time_text, timestamp_text, timestamptz_text, utf8, uuid,
};
use crate::error::SqlError;
use crate::types::PgType;

fn malformed(of: PgType) -> SqlError {
    SqlError::plain("22P03", format!("incorrect binary data format for type {}", super::type_family(of)))
}

fn fixed<const N: usize>(bytes: &[u8], of: PgType) -> Result<[u8; N], SqlError> {
    bytes.try_into().map_err(|_| malformed(of))
}

/// A value that a client sends.
pub fn read(bytes: &[u8], of: PgType) -> Result<Value, SqlError> {
    let integer = |number: i64| Ok(Value::Integer(number));
    match of {
        PgType::Bool => integer(i64::from(fixed::<1>(bytes, of)? != [0])),
        PgType::Int2 => integer(i16::from_be_bytes(fixed(bytes, of)?).into()),
        PgType::Int4 => integer(i32::from_be_bytes(fixed(bytes, of)?).into()),
        PgType::Int8 => integer(i64::from_be_bytes(fixed(bytes, of)?)),
        PgType::Oid => integer(u32::from_be_bytes(fixed(bytes, of)?).into()),
        PgType::Real => not_nan(f32::from_be_bytes(fixed(bytes, of)?).into()).map(Value::Real),
        PgType::Double => not_nan(f64::from_be_bytes(fixed(bytes, of)?)).map(Value::Real),
        PgType::Numeric { .. } => read_decimal(bytes, of)?.value(),
        PgType::Text | PgType::Varchar(_) | PgType::Name => Ok(Value::Text(utf8(bytes)?.to_owned())),
        PgType::Char(_) => Ok(Value::Text(utf8(bytes)?.trim_end_matches(' ').to_owned())),
        PgType::Letter => match utf8(bytes)? {
            text if bytes.len() == 1 => Ok(Value::Text(text.to_owned())),
            _ => Err(malformed(of)),
        },
        PgType::Bytea => Ok(Value::Blob(bytes.to_owned())),
        PgType::Date | PgType::Time | PgType::Timestamp | PgType::Timestamptz => {
            read_moment(bytes, of).map(Value::Text)
        }
        PgType::Uuid => {
            let digits = fixed::<16>(bytes, of)?.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            uuid(&digits).map(Value::Text)
        }
        PgType::Json => super::input(utf8(bytes)?, of),
        PgType::Jsonb => match bytes.split_first() {
            Some((1, text)) => super::input(utf8(text)?, of),
            _ => Err(malformed(of)),
        },
        _ => read_array(bytes, of).map(Value::Text),
    }
}

fn read_moment(bytes: &[u8], of: PgType) -> Result<String, SqlError> {
    let out_of_range = |what| move || SqlError::plain("22008", format!("{what} out of range"));
    let number = match of {
        PgType::Date => i32::from_be_bytes(fixed(bytes, of)?).into(),
        _ => i64::from_be_bytes(fixed(bytes, of)?),
    };
    let is_infinite = match of {
        PgType::Date => number == i64::from(i32::MAX) || number == i64::from(i32::MIN),
        _ => number == i64::MAX || number == i64::MIN,
    };
    if is_infinite && of != PgType::Time {
        let message = format!("{} infinity is not supported", super::type_family(of));
        return Err(SqlError::unsupported(message, "Use NULL, or the year 9999."));
    }
    match of {
        PgType::Date => date_text(number).ok_or_else(out_of_range("date")),
        PgType::Time if (0..=DAY_US).contains(&number) => Ok(time_text(number)),
        PgType::Time => Err(out_of_range("time")()),
        PgType::Timestamptz => timestamptz_text(number).ok_or_else(out_of_range("timestamp")),
        _ => timestamp_text(number).ok_or_else(out_of_range("timestamp")),
    }
}

/// Groups of four digits: their number, the weight of the first, the sign, digits behind the point, the groups.
fn read_decimal(bytes: &[u8], of: PgType) -> Result<Decimal, SqlError> {
    if bytes.len() < 8 || !bytes.len().is_multiple_of(2) {
        return Err(malformed(of));
    }
    let words: Vec<u16> = bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    let (weight, sign, places, groups) = (i32::from(words[1] as i16), words[2], words[3], &words[4..]);
    if groups.len() != usize::from(words[0]) || groups.iter().any(|group| *group > 9999) || places > 16_383 {
        return Err(malformed(of));
    }
    let negative = match sign {
        0 => false,
        0x4000 => true,
        0xc000 | 0xd000 | 0xf000 => return Decimal::input("NaN"),
        _ => return Err(malformed(of)),
    };
    let mut digits = Vec::with_capacity(groups.len() * 4);
    for group in groups {
        digits.extend([group / 1000, group / 100 % 10, group / 10 % 10, group % 10].map(|digit| digit as u8));
    }
    // Behind the point are the groups after the one of weight 0, which may be missing.
    let behind = 4 * (groups.len() as i32 - 1 - weight);
    if behind < 0 && !groups.is_empty() {
        digits.resize(digits.len() + behind.unsigned_abs() as usize, 0);
    }
    Ok(Decimal::from_digits(negative, digits, behind.max(0) as usize).rounded(places.into()))
}

/// Dimensions, whether it has NULL, the elements' type, each dimension's length and first index, the elements.
fn read_array(bytes: &[u8], of: PgType) -> Result<String, SqlError> {
    let element = of.element().unwrap_or(PgType::Text);
    let mut rest = bytes;
    let mut word = || {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(|| malformed(of))?;
        rest = tail;
        Ok::<_, SqlError>(i32::from_be_bytes(*head))
    };
    let (dimensions, flags, number) = (word()?, word()?, word()? as u32);
    // The same bytes are sent for text, varchar, char and unknown.
    let is_text = element == PgType::Text && matches!(number, 25 | 1043 | 1042 | 705 | 19);
    if number != element.number() && !is_text {
        return Err(SqlError::plain("42804", format!("wrong element type for {}", super::type_family(of))));
    }
    let length = match dimensions {
        0 => 0,
        1 => {
            let (length, _first) = (word()?, word()?);
            length
        }
        _ => return Err(array::one_dimension()),
    };
    // Each element has a length of four bytes.
    if !matches!(flags, 0 | 1) || length < 0 || length as usize > rest.len() / 4 {
        return Err(malformed(of));
    }
    let mut values = Vec::with_capacity(length as usize);
    for _ in 0..length {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(|| malformed(of))?;
        rest = tail;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*head)) else {
            values.push(None);
            continue;
        };
        let (item, tail) = rest.split_at_checked(length).ok_or_else(|| malformed(of))?;
        rest = tail;
        values.push(Some(read(item, element)?));
    }
    if rest.is_empty() { Ok(array::json_of(&values, element)) } else { Err(malformed(of)) }
}

/// A value that SQLite has, for a client.
pub fn write(value: ValueRef<'_>, of: PgType, out: &mut Vec<u8>) -> Result<(), SqlError> {
    match of {
        PgType::Bool => out.push(stored_boolean(value)?.into()),
        PgType::Int2 => out.extend((stored_integer(value, of)? as i16).to_be_bytes()),
        PgType::Int4 => out.extend((stored_integer(value, of)? as i32).to_be_bytes()),
        PgType::Int8 => out.extend(stored_integer(value, of)?.to_be_bytes()),
        PgType::Oid => out.extend((stored_integer(value, of)? as u32).to_be_bytes()),
        PgType::Real => out.extend((stored_real(value, of)? as f32).to_be_bytes()),
        PgType::Double => out.extend(stored_real(value, of)?.to_be_bytes()),
        PgType::Numeric { scale, .. } => stored_decimal(value, of, scale)?.put_binary(scale, out),
        PgType::Text | PgType::Varchar(_) | PgType::Char(_) | PgType::Name | PgType::Letter => {
            put_plain(value, out)?;
        }
        PgType::Bytea => match value {
            ValueRef::Blob(bytes) => out.extend_from_slice(bytes),
            value => return Err(misfit(value, of)),
        },
        PgType::Date => {
            let days = moment::stored(value, of)?.days.unwrap_or(0);
            out.extend((days as i32).to_be_bytes());
        }
        PgType::Time => out.extend(moment::stored(value, of)?.time_us.unwrap_or(0).to_be_bytes()),
        PgType::Timestamp | PgType::Timestamptz => {
            out.extend(moment::stored(value, of)?.since_epoch_us("", of)?.to_be_bytes());
        }
        PgType::Uuid => {
            let digits = uuid(stored_text(value, of)?)?.replace('-', "");
            let bytes = u128::from_str_radix(&digits, 16).map_err(|_| misfit(value, of))?;
            out.extend(bytes.to_be_bytes());
        }
        PgType::Json => out.extend_from_slice(json::stored(value, of)?.as_bytes()),
        PgType::Jsonb => {
            out.push(1);
            out.extend_from_slice(json::stored(value, of)?.as_bytes());
        }
        _ => return write_array(stored_text(value, of)?, of, out),
    }
    Ok(())
}

fn write_array(json: &str, of: PgType, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let element = of.element().unwrap_or(PgType::Text);
    let values = array::elements(json, of)?;
    let has_null = values.iter().any(Option::is_none);
    let dimensions = i32::from(!values.is_empty());
    let head = [dimensions, has_null.into(), element.number() as i32];
    head.iter().for_each(|word| out.extend(word.to_be_bytes()));
    if values.is_empty() {
        return Ok(());
    }
    [values.len() as i32, 1].iter().for_each(|word| out.extend(word.to_be_bytes()));
    for value in values {
        let at = out.len();
        out.extend([0xff; 4]);
        if let Some(value) = value {
            write((&value).into(), element, out)?;
            let length = (out.len() - at - 4) as u32;
            out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(())
}
