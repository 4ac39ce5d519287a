//! Parameters of a session: `SHOW` and `SET`. A session keeps none: each has one value here, and what sets another one
//! is refused unless it makes no difference.

use crate::error::SqlError;

/// Names and values of the parameters whose value makes a difference.
const FIXED: [(&str, &str); 15] = [
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("datestyle", "ISO, MDY"),
    ("timezone", "UTC"),
    ("intervalstyle", "postgres"),
    ("bytea_output", "hex"),
    ("standard_conforming_strings", "on"),
    ("integer_datetimes", "on"),
    ("transaction_isolation", "serializable"),
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_read_only", "off"),
    ("transaction_read_only", "off"),
    ("search_path", "public"),
    ("server_version", "15.0"),
    ("server_version_num", "150000"),
];

/// Parameters that make no difference here, and what they are by default.
const IDLE: [(&str, &str); 17] = [
    ("application_name", ""),
    ("extra_float_digits", "1"),
    ("client_min_messages", "notice"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "60s"),
    ("jit", "off"),
    ("synchronous_commit", "on"),
    ("row_security", "on"),
    ("max_identifier_length", "63"),
    ("geqo", "off"),
    ("check_function_bodies", "on"),
    ("xmloption", "content"),
    ("default_table_access_method", "heap"),
    ("default_tablespace", ""),
    ("is_superuser", "on"),
    ("session_authorization", "postgres"),
];

/// All parameters and their values, by name.
pub fn all() -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = FIXED.into_iter().chain(IDLE).collect();
    all.sort_unstable();
    all
}

/// The value of a parameter.
///
/// # Errors
/// 42704 if there is no such.
pub fn value(name: &str) -> Result<&'static str, SqlError> {
    let name = canonical(name);
    let known = FIXED.iter().chain(&IDLE).find(|(known, _)| *known == name).map(|(_, value)| *value);
    known.ok_or_else(|| SqlError::plain("42704", format!("unrecognized configuration parameter \"{name}\"")))
}

/// Sets a parameter, which changes nothing; `None` is the default.
///
/// # Errors
/// If it would make a difference.
pub fn set(name: &str, value: Option<&str>) -> Result<(), SqlError> {
    let name = canonical(name);
    let Some(value) = value else { return Ok(()) };
    let Some((_, fixed)) = FIXED.iter().find(|(known, _)| *known == name) else {
        // One with a point in its name is an extension's or the client's own.
        return if name.contains('.') { Ok(()) } else { self::value(&name).map(|_| ()) };
    };
    if is_same(&name, value, fixed) {
        return Ok(());
    }
    let hint = format!("It is {fixed} here, for every session: leave it so.");
    Err(SqlError::unsupported(format!("parameter {name} cannot be set to {value}"), &hint))
}

fn canonical(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "time zone" => "timezone".to_owned(),
        "transaction isolation level" => "transaction_isolation".to_owned(),
        "names" => "client_encoding".to_owned(),
        _ => name,
    }
}

/// Whether a value means the one that holds.
fn is_same(name: &str, value: &str, fixed: &str) -> bool {
    let plain = |text: &str| -> String {
        text.chars().filter(|letter| letter.is_ascii_alphanumeric()).collect::<String>().to_ascii_lowercase()
    };
    let value = plain(value);
    match name {
        "client_encoding" | "server_encoding" => value == "utf8" || value == "unicode",
        "timezone" => {
            ["utc", "gmt", "etcutc", "default", "zulu", "0", "00", "0000"].contains(&value.as_str())
        }
        "datestyle" => value == "iso" || value == "isomdy",
        "search_path" => {
            ["public", "userpublic", "pgcatalogpublic", "publicpgcatalog", ""].contains(&value.as_str())
        }
        // Weaker levels allow what this one does not do.
        "default_transaction_isolation" | "transaction_isolation" => true,
        "default_transaction_read_only" | "transaction_read_only" => {
            ["off", "false", "0", "no"].contains(&value.as_str())
        }
        "standard_conforming_strings" => ["on", "true", "1", "yes"].contains(&value.as_str()),
        _ => value == plain(fixed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_makes_no_difference_is_set() {
        for (name, value) in [
            ("client_encoding", Some("'utf-8'")),
            ("TIME ZONE", Some("UTC")),
            ("DateStyle", Some("ISO")),
            ("application_name", Some("x")),
            ("myapp.user", Some("7")),
            ("timezone", None),
        ] {
            assert_eq!(set(name, value), Ok(()), "{name}");
        }
        for (name, value) in
            [("timezone", "Europe/Berlin"), ("search_path", "other"), ("datestyle", "German")]
        {
            assert_eq!(set(name, Some(value)).unwrap_err().code, "0A000");
        }
        assert_eq!(set("unheard_of", Some("1")).unwrap_err().code, "42704");
        assert_eq!(value("Transaction_Isolation").unwrap(), "serializable");
    }
}
