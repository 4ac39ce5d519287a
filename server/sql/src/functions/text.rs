//! Functions of text. Characters are Unicode's code points, as in PostgreSQL; what is made is at most 1 MiB.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::types::{Value, ValueRef};

use super::{Args, FunctionResult, MAX_BYTES, Strict, md5_hex, text_of, too_long};
use crate::error::SqlError;
use crate::types::PgType;
use crate::values::elements;

/// Words that are no names without quotes (PostgreSQL's documentation, *SQL Key Words*: reserved, and those that can
/// be names of columns only).
const RESERVED: &str = " all analyse analyze and any array as asc asymmetric authorization between bigint binary bit \
    boolean both case cast char character check coalesce collate collation column concurrently constraint create \
    cross current_catalog current_date current_role current_schema current_time current_timestamp current_user dec \
    decimal default deferrable desc distinct do else end except exists extract false fetch float for foreign freeze \
    from full grant greatest group grouping having ilike in initially inner inout int integer intersect interval \
    into is isnull join lateral leading least left like limit localtime localtimestamp national natural nchar none \
    normalize not notnull null nullif numeric offset on only or order out outer overlaps overlay placing position \
    precision primary real references returning right row select session_user setof similar smallint some substring \
    symmetric table tablesample then time timestamp to trailing treat trim true union unique user using values \
    varchar variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest \
    xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable ";

fn text(value: impl Into<String>) -> FunctionResult {
    let value = value.into();
    if value.len() > MAX_BYTES { Err(too_long()) } else { Ok(Value::Text(value)) }
}

fn integer(value: i64) -> FunctionResult {
    Ok(Value::Integer(value))
}

/// A character in lower case, where that is one character.
pub fn fold(character: char) -> char {
    let mut lower = character.to_lowercase();
    if lower.len() == 1 { lower.next().unwrap_or(character) } else { character }
}

/// A character in upper case, where that is one character.
fn raised(character: char) -> char {
    let mut upper = character.to_uppercase();
    if upper.len() == 1 { upper.next().unwrap_or(character) } else { character }
}

/// Functions of which no argument may be NULL.
pub const FUNCTIONS: &[Strict] = &[
    ("lower_pg", 1, |args| text(args.text(0)?.chars().map(fold).collect::<String>())),
    ("upper_pg", 1, |args| text(args.text(0)?.chars().map(raised).collect::<String>())),
    ("initcap", 1, |args| text(initcap(&args.text(0)?))),
    ("char_length", 1, |args| integer(args.text(0)?.chars().count() as i64)),
    ("character_length", 1, |args| integer(args.text(0)?.chars().count() as i64)),
    ("bit_length", 1, |args| integer(bytes(args, 0)?.len() as i64 * 8)),
    ("md5", 1, |args| text(md5_hex(&bytes(args, 0)?))),
    ("lpad", 2, |args| pad(args, true)),
    ("lpad", 3, |args| pad(args, true)),
    ("rpad", 2, |args| pad(args, false)),
    ("rpad", 3, |args| pad(args, false)),
    ("btrim", 1, |args| text(args.text(0)?.trim_matches(' '))),
    ("btrim", 2, |args| {
        let cut: BTreeSet<char> = args.text(1)?.chars().collect();
        text(args.text(0)?.trim_matches(|character| cut.contains(&character)))
    }),
    ("split_part", 3, split_part),
    ("left", 2, |args| {
        let (whole, count) = (args.text(0)?, args.integer(1)?);
        let kept = if count < 0 { characters(&whole) + count } else { count };
        text(&whole[..place(&whole, kept)])
    }),
    ("right", 2, |args| {
        let (whole, count) = (args.text(0)?, args.integer(1)?);
        let cut = if count < 0 { -count } else { characters(&whole) - count };
        text(&whole[place(&whole, cut)..])
    }),
    ("substring_pg", 2, |args| substring(args, None)),
    ("substring_pg", 3, |args| substring(args, Some(args.integer(2)?))),
    ("strpos", 2, |args| {
        let (whole, part) = (args.text(0)?, args.text(1)?);
        integer(whole.find(&*part).map_or(0, |at| characters(&whole[..at]) + 1))
    }),
    ("starts_with", 2, |args| integer(args.text(0)?.starts_with(&*args.text(1)?).into())),
    ("repeat", 2, |args| {
        let (part, count) = (args.text(0)?, args.integer(1)?.max(0) as usize);
        if part.len().saturating_mul(count) > MAX_BYTES { Err(too_long()) } else { text(part.repeat(count)) }
    }),
    ("reverse", 1, |args| text(args.text(0)?.chars().rev().collect::<String>())),
    ("translate", 3, translate),
    ("to_hex", 1, |args| {
        let number = args.integer(0)?;
        // An integer, which has 32 bits in PostgreSQL, if it is as small as one.
        text(if i32::try_from(number).is_ok() {
            format!("{:x}", number as i32)
        } else {
            format!("{number:x}")
        })
    }),
    ("chr", 1, |args| {
        let number = args.integer(0)?;
        if number == 0 {
            return Err(SqlError::plain("54000", "null character not permitted"));
        }
        let character = u32::try_from(number).ok().and_then(char::from_u32);
        let error =
            || SqlError::plain("54000", format!("requested character not valid for encoding: {number}"));
        text(character.ok_or_else(error)?)
    }),
    ("ascii", 1, |args| {
        integer(args.text(0)?.chars().next().map_or(0, |character| u32::from(character).into()))
    }),
    ("quote_ident", 1, |args| text(quote_identifier(&args.text(0)?))),
    ("quote_literal", 1, |args| text(quote_literal(&args.text(0)?))),
    ("encode", 2, |args| text(encode(&bytes(args, 0)?, &args.text(1)?)?)),
    ("decode", 2, |args| decode(&args.text(0)?, &args.text(1)?).map(Value::Blob)),
];

/// Functions that take NULL as any other value.
pub const WITH_NULL: &[Strict] = &[
    ("quote_nullable", 1, |args| match args.value(0) {
        ValueRef::Null => text("NULL"),
        _ => text(quote_literal(&args.text(0)?)),
    }),
    ("format", -1, format),
    ("array_to_string", 2, array_to_string),
    ("array_to_string", 3, array_to_string),
];

/// The bytes of text or bytes.
fn bytes(args: &Args<'_>, at: usize) -> Result<Vec<u8>, SqlError> {
    match args.value(at) {
        ValueRef::Blob(bytes) => Ok(bytes.to_owned()),
        value => Ok(text_of(value)?.as_bytes().to_owned()),
    }
}

fn characters(text: &str) -> i64 {
    text.chars().count() as i64
}

/// Where so many characters end.
fn place(text: &str, count: i64) -> usize {
    let Ok(count) = usize::try_from(count) else { return 0 };
    text.char_indices().nth(count).map_or(text.len(), |(at, _)| at)
}

fn initcap(text: &str) -> String {
    let mut is_inside = false;
    let one = |character: char| {
        let changed = if is_inside { fold(character) } else { raised(character) };
        is_inside = character.is_alphanumeric();
        changed
    };
    text.chars().map(one).collect()
}

fn pad(args: &Args<'_>, on_left: bool) -> FunctionResult {
    let (whole, length) = (args.text(0)?, args.integer(1)?.max(0));
    let fill = if args.count() == 3 { args.text(2)? } else { " ".into() };
    let missing = length - characters(&whole);
    if missing <= 0 || fill.is_empty() {
        return text(&whole[..place(&whole, length)]);
    }
    if length > MAX_BYTES as i64 {
        return Err(too_long());
    }
    let filled: String = fill.chars().cycle().take(missing as usize).collect();
    text(if on_left { filled + &whole } else { whole.into_owned() + &filled })
}

fn split_part(args: &Args<'_>) -> FunctionResult {
    let (whole, separator, at) = (args.text(0)?, args.text(1)?, args.integer(2)?);
    if at == 0 {
        return Err(SqlError::plain("22023", "field position must not be zero"));
    }
    if separator.is_empty() {
        return text(if at.abs() == 1 { whole.into_owned() } else { String::new() });
    }
    let skip = (at.unsigned_abs() - 1) as usize;
    let found = if at > 0 {
        whole.split(&*separator).nth(skip)
    } else {
        let parts: Vec<&str> = whole.split(&*separator).collect();
        parts.len().checked_sub(skip + 1).map(|at| parts[at])
    };
    text(found.unwrap_or(""))
}

/// From a character, counted from 1, of which there may be fewer: characters before the first count, too.
fn substring(args: &Args<'_>, length: Option<i64>) -> FunctionResult {
    let from = args.integer(1)?;
    let end = match length {
        Some(length) if length < 0 => {
            return Err(SqlError::plain("22011", "negative substring length not allowed"));
        }
        Some(length) => from.saturating_add(length),
        None => i64::MAX,
    };
    let (skip, end) = (from.max(1) - 1, end.max(1) - 1);
    if let ValueRef::Blob(bytes) = args.value(0) {
        let at = |place: i64| (place as usize).min(bytes.len());
        return Ok(Value::Blob(bytes[at(skip)..at(end).max(at(skip))].to_owned()));
    }
    let whole = args.text(0)?;
    let (from, to) = (place(&whole, skip), place(&whole, end));
    text(&whole[from..to.max(from)])
}

fn translate(args: &Args<'_>) -> FunctionResult {
    let (whole, from, to) = (args.text(0)?, args.text(1)?, args.text(2)?);
    let mut changes = BTreeMap::new();
    let mut others = to.chars();
    // Of a character that is named twice the first one counts.
    for character in from.chars() {
        let other = others.next();
        changes.entry(character).or_insert(other);
    }
    let one = |character| changes.get(&character).copied().unwrap_or(Some(character));
    text(whole.chars().filter_map(one).collect::<String>())
}

/// A name as a statement has it.
pub fn quote_identifier(name: &str) -> String {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit();
    let is_plain = name.bytes().all(is_word) && !name.bytes().next().is_none_or(|byte| byte.is_ascii_digit());
    if is_plain && !RESERVED.contains(&format!(" {name} ")) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if text.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

fn encode(bytes: &[u8], format: &str) -> Result<String, SqlError> {
    match format.to_ascii_lowercase().as_str() {
        "hex" => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        "escape" => Ok(bytes.iter().fold(String::new(), |mut out, byte| {
            match byte {
                b'\\' => out.push_str("\\\\"),
                0 | 0x80.. => out.push_str(&format!("\\{byte:03o}")),
                other => out.push((*other).into()),
            }
            out
        })),
        _ => Err(no_encoding(format)),
    }
}

fn decode(text: &str, format: &str) -> Result<Vec<u8>, SqlError> {
    let escaped = match format.to_ascii_lowercase().as_str() {
        "hex" => format!("\\x{text}"),
        "escape" if !text.starts_with("\\x") => text.to_owned(),
        _ => return Err(no_encoding(format)),
    };
    match crate::values::input(&escaped, PgType::Bytea)? {
        Value::Blob(bytes) => Ok(bytes),
        _ => Ok(Vec::new()),
    }
}

fn no_encoding(format: &str) -> SqlError {
    SqlError::new("22023", format!("unrecognized encoding: \"{format}\""), "Use hex or escape.")
}

/// `format('%s %I %L %2$s %%', ..)`, without widths.
fn format(args: &Args<'_>) -> FunctionResult {
    if args.count() == 0 || args.value(0) == ValueRef::Null {
        return Ok(Value::Null);
    }
    let pattern = args.text(0)?;
    let (mut out, mut next, mut rest) = (String::new(), 1, &*pattern);
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let mut specifier = after;
        if digits > 0 {
            let (number, tail) = after.split_at(digits);
            let Some(tail) = tail.strip_prefix('$') else {
                return Err(SqlError::unsupported(
                    "widths in format() are not supported",
                    "Use lpad or rpad.",
                ));
            };
            next = number.parse().unwrap_or(usize::MAX);
            specifier = tail;
        }
        let mut characters = specifier.chars();
        let kind = characters.next();
        rest = characters.as_str();
        if kind == Some('%') {
            out.push('%');
            continue;
        }
        if next == 0 || next >= args.count() {
            return Err(SqlError::plain("22023", "too few arguments for format()"));
        }
        let is_null = args.value(next) == ValueRef::Null;
        match kind {
            Some('s') => out.push_str(&args.text(next)?),
            Some('I') if is_null => {
                return Err(SqlError::plain("22004", "null values cannot be formatted as an SQL identifier"));
            }
            Some('I') => out.push_str(&quote_identifier(&args.text(next)?)),
            Some('L') if is_null => out.push_str("NULL"),
            Some('L') => out.push_str(&quote_literal(&args.text(next)?)),
            other => {
                let message = format!("unrecognized format() type specifier \"{}\"", other.unwrap_or(' '));
                return Err(SqlError::plain("22023", message));
            }
        }
        next += 1;
        if out.len() > MAX_BYTES {
            return Err(too_long());
        }
    }
    out.push_str(rest);
    text(out)
}

/// The elements of an array, which is kept in JSON, with a text between them, and one for NULL.
fn array_to_string(args: &Args<'_>) -> FunctionResult {
    if args.value(0) == ValueRef::Null || args.value(1) == ValueRef::Null {
        return Ok(Value::Null);
    }
    let (separator, of_null) = (args.text(1)?, args.value(2));
    let mut parts = Vec::new();
    for item in elements(&args.text(0)?, PgType::TextArray)? {
        match item {
            Some(Value::Text(item)) => parts.push(item),
            _ if of_null == ValueRef::Null => {}
            _ => parts.push(text_of(of_null)?.into_owned()),
        }
    }
    text(parts.join(&separator))
}
