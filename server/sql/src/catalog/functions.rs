//! Functions that the catalogue's queries and clients call, of their arguments alone.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error};

use super::numbers::{TABLES, TYPES};
use super::{DATABASE, USER, VERSION};
use crate::error::SqlError;
use crate::functions::{Args, FunctionResult, Strict, define, define_with_null};
use crate::settings;
use crate::types::PgType;
use crate::values::type_family;

/// Bytes of a name.
const MAX_NAME: usize = 63;

fn text(value: impl Into<String>) -> FunctionResult {
    Ok(Value::Text(value.into()))
}

fn number(value: impl Into<i64>) -> FunctionResult {
    Ok(Value::Integer(value.into()))
}

fn maybe<T: Into<Value>>(value: Option<T>) -> FunctionResult {
    Ok(value.map_or(Value::Null, Into::into))
}

fn yes(_: &Args<'_>) -> FunctionResult {
    number(1)
}

fn none(_: &Args<'_>) -> FunctionResult {
    Ok(Value::Null)
}

/// Functions of which no argument may be NULL.
const FUNCTIONS: &[Strict] = &[
    ("version", 0, |_| text(VERSION)),
    ("current_schema", 0, |_| text("public")),
    ("current_schemas", 1, |args| {
        text(if args.integer(0)? == 0 { "[\"public\"]" } else { "[\"pg_catalog\",\"public\"]" })
    }),
    ("current_database", 0, |_| text(DATABASE)),
    ("current_user", 0, |_| text(USER)),
    ("session_user", 0, |_| text(USER)),
    ("pg_backend_pid", 0, |_| number(1)),
    ("pg_client_encoding", 0, |_| text("UTF8")),
    ("pg_encoding_to_char", 1, |args| text(if args.integer(0)? == 6 { "UTF8" } else { "" })),
    ("pg_is_in_recovery", 0, |_| number(0)),
    ("pg_is_other_temp_schema", 1, |_| number(0)),
    ("pg_my_temp_schema", 0, |_| number(0)),
    ("pg_get_expr", 2, |args| text(args.text(0)?)),
    ("pg_get_expr", 3, |args| text(args.text(0)?)),
    ("pg_get_userbyid", 1, |args| {
        let owner = args.integer(0)?;
        text(if owner == 10 { USER.to_owned() } else { format!("unknown (OID={owner})") })
    }),
    ("pg_table_is_visible", 1, yes),
    ("pg_type_is_visible", 1, yes),
    ("pg_function_is_visible", 1, yes),
    ("pg_collation_is_visible", 1, yes),
    ("pg_opclass_is_visible", 1, yes),
    ("pg_operator_is_visible", 1, yes),
    ("pg_ts_config_is_visible", 1, yes),
    ("pg_statistics_obj_is_visible", 1, yes),
    ("pg_relation_is_publishable", 1, |_| number(0)),
    ("has_table_privilege", -1, yes),
    ("has_any_column_privilege", -1, yes),
    ("has_column_privilege", -1, yes),
    ("has_schema_privilege", -1, yes),
    ("has_database_privilege", -1, yes),
    ("has_function_privilege", -1, yes),
    ("has_sequence_privilege", -1, yes),
    ("has_tablespace_privilege", -1, yes),
    ("has_type_privilege", -1, yes),
    ("pg_has_role", -1, yes),
    ("pg_tablespace_location", 1, |_| text("")),
    ("pg_advisory_unlock_all", 0, |_| text("")),
    ("pg_size_pretty", 1, |args| text(pretty_size(args.integer(0)?))),
    ("current_setting", 1, |args| current_setting(args, false)),
    ("current_setting", 2, |args| current_setting(args, args.integer(1)? != 0)),
    ("txid_current", 0, |_| refused("txid_current()", "Transactions have no numbers.")),
    ("pg_current_xact_id", 0, |_| refused("pg_current_xact_id()", "Transactions have no numbers.")),
    ("pg_advisory_lock", -1, |_| refused("pg_advisory_lock()", "Transactions are serializable.")),
    ("pg_try_advisory_lock", -1, |_| refused("pg_try_advisory_lock()", "Transactions are serializable.")),
    ("pg_advisory_xact_lock", -1, |_| refused("pg_advisory_xact_lock()", "Transactions are serializable.")),
    ("pg_sleep", 1, |_| refused("pg_sleep()", "Wait in the client.")),
    ("type_oid_pg", 1, |args| number(PgType::declared(&args.text(0)?).number())),
    ("type_modifier_pg", 1, |args| number(PgType::declared(&args.text(0)?).modifier())),
    ("type_length_pg", 1, |args| number(PgType::declared(&args.text(0)?).length())),
    ("type_collation_pg", 1, |args| {
        let of = PgType::declared(&args.text(0)?).number();
        number(TYPES.iter().find(|row| row.0 == of).map_or(0, |row| row.9))
    }),
    ("type_part_pg", 2, |args| type_part(PgType::declared(&args.text(0)?), &args.text(1)?)),
    ("relation_name_pg", 1, |args| {
        let parts = name_parts(&args.text(0)?);
        maybe(parts.last().filter(|_| parts.len() == 1 || parts[parts.len() - 2] == "public").cloned())
    }),
    ("digits_pg", 1, |args| match args.value(0) {
        ValueRef::Integer(number) => Ok(Value::Integer(number)),
        _ => maybe(args.text(0)?.parse::<u32>().ok().map(i64::from)),
    }),
    ("catalogue_oid_pg", 1, |args| {
        let parts = name_parts(&args.text(0)?);
        let is_here = parts.len() == 1 || parts.len() == 2 && parts[0] == "pg_catalog";
        let name = parts.last().filter(|_| is_here);
        maybe(
            name.and_then(|name| TABLES.iter().find(|(known, _)| known == name))
                .map(|(_, oid)| i64::from(*oid)),
        )
    }),
    ("catalogue_name_pg", 1, |args| {
        let oid = args.integer(0)?;
        if oid == 0 {
            return text("-");
        }
        maybe(TABLES.iter().find(|(_, known)| i64::from(*known) == oid).map(|(name, _)| (*name).to_owned()))
    }),
    ("to_regtype", 1, |args| maybe(type_number(&args.text(0)?).map(i64::from))),
    ("regtype_in_pg", 1, |args| {
        if let Ok(number) = args.text(0)?.parse::<u32>() {
            return Ok(Value::Integer(number.into()));
        }
        let error = |name| SqlError::plain("42704", format!("type \"{name}\" does not exist"));
        type_number(&args.text(0)?).map_or_else(|| Err(error(args.text(0)?)), number)
    }),
    ("regtype_out_pg", 1, |args| text(type_name(args.integer(0)?, None))),
    ("regnamespace_in_pg", 1, |args| match &*args.text(0)? {
        "pg_catalog" => number(11),
        "public" => number(2200),
        "information_schema" => number(13_000),
        name => Err(SqlError::plain("3F000", format!("schema \"{name}\" does not exist"))),
    }),
    ("regnamespace_out_pg", 1, |args| {
        text(match args.integer(0)? {
            0 => "-".to_owned(),
            11 => "pg_catalog".to_owned(),
            2200 => "public".to_owned(),
            13_000 => "information_schema".to_owned(),
            other => other.to_string(),
        })
    }),
    ("regproc_out_pg", 1, |args| {
        text(match args.integer(0)? {
            0 => "-".to_owned(),
            other => other.to_string(),
        })
    }),
    ("index_part_pg", 2, |args| maybe(index_part(&args.text(0)?, args.integer(1)?))),
    ("view_query_pg", 1, |args| maybe(view_query(&args.text(0)?))),
    ("default_text_pg", 2, |args| text(default_text(&args.text(0)?, PgType::declared(&args.text(1)?)))),
];

/// Functions that take NULL as any other value.
const WITH_NULL: &[Strict] = &[
    ("format_type", 2, |args| match (args.value(0), args.value(1)) {
        (ValueRef::Null, _) => Ok(Value::Null),
        (_, ValueRef::Null) => text(type_name(args.integer(0)?, None)),
        _ => text(type_name(args.integer(0)?, Some(args.integer(1)?))),
    }),
    ("object_name_pg", 3, |args| {
        let second = if args.value(1) == ValueRef::Null { None } else { Some(args.text(1)?) };
        text(object_name(&args.text(0)?, second.as_deref(), &args.text(2)?))
    }),
    ("set_config", 3, set_config),
    ("obj_description", 1, none),
    ("obj_description", 2, none),
    ("col_description", 2, none),
    ("shobj_description", 2, none),
    ("pg_relation_size", -1, none),
    ("pg_table_size", 1, none),
    ("pg_total_relation_size", 1, none),
    ("pg_indexes_size", 1, none),
    ("pg_database_size", 1, none),
    ("pg_get_function_result", 1, none),
    ("pg_get_function_arguments", 1, none),
    ("pg_get_function_identity_arguments", 1, none),
    ("pg_get_functiondef", 1, none),
    ("pg_get_ruledef", -1, none),
    ("pg_get_partkeydef", 1, none),
    ("pg_get_partition_constraintdef", 1, none),
    ("pg_get_statisticsobjdef", 1, none),
    ("pg_get_statisticsobjdef_columns", 1, none),
    ("pg_get_serial_sequence", 2, none),
    ("pg_sequence_last_value", 1, none),
    ("pg_stat_get_numscans", 1, none),
    ("inet_server_addr", 0, none),
    ("inet_client_addr", 0, none),
];

fn refused(what: &str, hint: &str) -> FunctionResult {
    Err(SqlError::unsupported(format!("{what} is not supported"), hint))
}

/// Makes the functions known.
///
/// # Errors
/// Of SQLite.
pub fn register(connection: &Connection) -> Result<(), Error> {
    define(connection, FUNCTIONS)?;
    define_with_null(connection, WITH_NULL)
}

fn current_setting(args: &Args<'_>, is_lenient: bool) -> FunctionResult {
    let name = args.text(0)?;
    match settings::known(&name) {
        None if is_lenient => Ok(Value::Null),
        _ => text(settings::value(&name)?),
    }
}

/// What clients set is answered, and changes nothing: what would change a result is refused.
fn set_config(args: &Args<'_>) -> FunctionResult {
    let (name, value) = (args.text(0)?, args.text(1)?);
    let matters =
        ["datestyle", "intervalstyle", "timezone", "client_encoding", "standard_conforming_strings"];
    match settings::known(&name) {
        None if !name.contains('.') => text(settings::value(&name)?),
        Some(fixed)
            if matters.contains(&&*name.to_ascii_lowercase()) && !fixed.eq_ignore_ascii_case(&value) =>
        {
            let hint = format!("It is {fixed}.");
            Err(SqlError::unsupported(format!("parameter \"{name}\" cannot be changed"), &hint))
        }
        _ => text(value),
    }
}

/// The name that PostgreSQL makes: the longer part is cut until it is no longer than a name may be.
fn object_name(first: &str, second: Option<&str>, label: &str) -> String {
    let rest = label.len() + 1 + second.map_or(0, |_| 1);
    let (mut a, mut b) = (first.len(), second.map_or(0, str::len));
    while a + b > MAX_NAME.saturating_sub(rest) {
        if a > b { a -= 1 } else { b -= 1 }
    }
    let cut = |text: &str, mut end: usize| {
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text[..end].to_owned()
    };
    match second {
        Some(second) => format!("{}_{}_{label}", cut(first, a), cut(second, b)),
        None => format!("{}_{label}", cut(first, a)),
    }
}

/// The parts of a name with its schema, without quotes.
fn name_parts(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = text.trim().chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => part.push('"'),
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => parts.push(std::mem::take(&mut part)),
            other if is_quoted => part.push(other),
            other => part.extend(other.to_lowercase()),
        }
    }
    parts.push(part);
    parts
}

fn type_number(text: &str) -> Option<u32> {
    let lower = text.trim().to_ascii_lowercase();
    let name = lower.strip_prefix("pg_catalog.").unwrap_or(&lower);
    let name = name.split('(').next().unwrap_or(name).trim();
    match name {
        "varchar" | "character varying" => return Some(1043),
        "char" | "character" | "bpchar" => return Some(1042),
        "numeric" | "decimal" => return Some(1700),
        "varchar[]" | "character varying[]" => return Some(1015),
        _ => {}
    }
    let known = PgType::named(name).filter(|_| !name.starts_with("reg")).map(PgType::number);
    let name = match name.strip_suffix("[]") {
        Some(element) => format!("_{element}"),
        None => name.trim_matches('"').to_owned(),
    };
    known.or_else(|| TYPES.iter().find(|row| row.1 == name).map(|row| row.0))
}

/// `format_type`.
fn type_name(number: i64, modifier: Option<i64>) -> String {
    let Some(row) = TYPES.iter().find(|row| i64::from(row.0) == number) else {
        return if number == 0 { "-" } else { "???" }.to_owned();
    };
    if row.1.starts_with('_') {
        return type_name(row.7.into(), modifier) + "[]";
    }
    let behind = modifier.unwrap_or(-1) - 4;
    match row.0 {
        1042 if modifier == Some(-1) => "bpchar".to_owned(),
        1042 if behind >= 0 => format!("character({behind})"),
        1042 => "character".to_owned(),
        1043 if behind >= 0 => format!("character varying({behind})"),
        1043 => "character varying".to_owned(),
        1700 if behind >= 0 => format!("numeric({},{})", behind >> 16, behind & 0xffff),
        1700 => "numeric".to_owned(),
        705 => "unknown".to_owned(),
        number => PgType::of_number(number).map_or(row.1, type_family).to_owned(),
    }
}

/// What `information_schema.columns` says of a type.
fn type_part(of: PgType, part: &str) -> FunctionResult {
    let length = match of {
        PgType::Varchar(length) | PgType::Char(length) => Some(i64::from(length)),
        _ => None,
    };
    let digits: Option<(i64, i64, Option<i64>)> = match of {
        PgType::Int2 => Some((16, 2, Some(0))),
        PgType::Int4 => Some((32, 2, Some(0))),
        PgType::Int8 => Some((64, 2, Some(0))),
        PgType::Real => Some((24, 2, None)),
        PgType::Double => Some((53, 2, None)),
        PgType::Numeric { precision, scale } => Some((precision.into(), 10, Some(scale.into()))),
        _ => None,
    };
    match part {
        "family" if of.element().is_some() => text("ARRAY"),
        "family" => text(type_family(of)),
        "name" => maybe(TYPES.iter().find(|row| row.0 == of.number()).map(|row| row.1.to_owned())),
        "characters" => maybe(length),
        "octets" if of == PgType::Text => number(1_073_741_824),
        "octets" => maybe(length.map(|length| length.saturating_mul(4))),
        "precision" => maybe(digits.map(|digits| digits.0)),
        "radix" => maybe(digits.map(|digits| digits.1)),
        "scale" => maybe(digits.and_then(|digits| digits.2)),
        "fraction" => match of {
            PgType::Date => number(0),
            PgType::Time | PgType::Timestamp | PgType::Timestamptz => number(6),
            _ => Ok(Value::Null),
        },
        _ => Ok(Value::Null),
    }
}

/// Where the words and signs of a statement stand that are not in quotes and not in parentheses.
fn outside(sql: &str) -> Vec<(usize, char)> {
    let (mut out, mut depth, mut quote) = (Vec::new(), 0_i32, None);
    for (at, character) in sql.char_indices() {
        match (quote, character) {
            (Some(end), character) if character == end => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"' | '`') => quote = Some(character),
            (None, '[') => quote = Some(']'),
            (None, '(') => {
                if depth == 0 {
                    out.push((at, '('));
                }
                depth += 1;
            }
            (None, ')') => {
                depth -= 1;
                if depth == 0 {
                    out.push((at, ')'));
                }
            }
            (None, other) if depth == 0 => out.push((at, other)),
            _ => {}
        }
    }
    out
}

/// Where a word ends that stands by itself outside of quotes and parentheses.
fn end_of_word(sql: &str, word: &str) -> Option<usize> {
    let outside = outside(sql);
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let text: String = outside.iter().map(|(_, character)| character.to_ascii_lowercase()).collect();
    let characters: Vec<char> = text.chars().collect();
    let word: Vec<char> = word.chars().collect();
    let found = characters.windows(word.len()).enumerate().position(|(at, window)| {
        let before = at.checked_sub(1).map(|before| characters[before]);
        let after = characters.get(at + word.len());
        let stands_alone = !before.is_some_and(is_word) && !after.copied().is_some_and(is_word);
        // Signs that were skipped between two of them mean that they do not touch.
        let is_whole = outside[at].0 + word.len() == outside[at + word.len() - 1].0 + 1;
        window == word && stands_alone && is_whole
    })?;
    Some(outside[found].0 + word.len())
}

/// Of `CREATE INDEX .. (a, b DESC) WHERE c`: all columns (0), one of them (1, 2, ..), or the condition (-1).
fn index_part(sql: &str, part: i64) -> Option<String> {
    let outside = outside(sql);
    let from = outside.iter().find(|(_, character)| *character == '(')?.0 + 1;
    let to = outside.iter().find(|(_, character)| *character == ')')?.0;
    let columns = sql.get(from..to)?;
    match part {
        0 => Some(shown(columns)),
        -1 => {
            let rest = &sql[to + 1..];
            end_of_word(rest, "where").map(|at| shown(&rest[at..]))
        }
        part => {
            let mut commas: Vec<usize> = self::outside(columns)
                .into_iter()
                .filter(|(_, character)| *character == ',')
                .map(|(at, _)| at)
                .collect();
            commas.push(columns.len());
            let at = usize::try_from(part).ok()?.checked_sub(1)?;
            let to = *commas.get(at)?;
            let from = at.checked_sub(1).map_or(0, |before| commas[before] + 1);
            Some(shown(&columns[from..to]))
        }
    }
}

/// What follows AS in `CREATE VIEW .. AS SELECT ..`.
fn view_query(sql: &str) -> Option<String> {
    end_of_word(sql, "as").map(|at| format!(" {};", shown(&sql[at..])))
}

/// In PostgreSQL's words, as far as these differ by the names of functions.
fn shown(sql: &str) -> String {
    let mut shown = String::new();
    // Names that need no quotes have none. A part of a text literal that looks like one loses them too, which is
    // only shown.
    for (number, part) in sql.trim().replace("_pg(", "(").split('"').enumerate() {
        let is_simple = part.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
            && part
                .chars()
                .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
        match number % 2 {
            1 if is_simple => shown.push_str(part),
            1 => shown.extend(["\"", part, "\""]),
            _ => shown.push_str(part),
        }
    }
    shown
}

/// The value of a column that is given none.
fn default_text(value: &str, of: PgType) -> String {
    let mut text = value.trim();
    while let Some(inner) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'))
        && outside(text).iter().filter(|(_, character)| matches!(character, '(' | ')')).count() == 2
    {
        text = inner.trim();
    }
    match (of, text) {
        (PgType::Bool, "1") => "true".to_owned(),
        (PgType::Bool, "0") => "false".to_owned(),
        (of, text) if text.starts_with('\'') && text.ends_with('\'') => {
            format!("{text}::{}", type_family(of))
        }
        (_, text) => shown(text),
    }
}

/// Bytes in a unit of which there are not too many, as PostgreSQL rounds them.
fn pretty_size(bytes: i64) -> String {
    if bytes.unsigned_abs() < 10 * 1024 {
        return format!("{bytes} bytes");
    }
    // Twice the size in each unit, for rounding.
    let mut twice = bytes / 512;
    let units = ["kB", "MB", "GB", "TB", "PB"];
    for (at, unit) in units.iter().enumerate() {
        if twice.unsigned_abs() < 20 * 1024 - 1 || at + 1 == units.len() {
            return format!("{} {unit}", (twice + twice.signum()) / 2);
        }
        twice /= 1024;
    }
    String::new()
}
