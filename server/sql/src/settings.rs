//! Parameters of a session: `SHOW` and `SET`. A session keeps none: each has one value here, and what sets another one
//! is refused unless it makes no difference.

use crate::catalog::USER;
use crate::error::SqlError;

/// Parameters by name, without regard to case, and the value of each. What makes a difference when it is set to another
/// one is fixed.
const PARAMETERS: [(&str, &str, Setting); 42] = [
    ("application_name", "", Setting::Idle),
    ("bytea_output", "hex", Setting::Fixed),
    ("check_function_bodies", "on", Setting::Idle),
    ("client_encoding", "UTF8", Setting::Fixed),
    ("client_min_messages", "notice", Setting::Idle),
    ("DateStyle", "ISO, MDY", Setting::Fixed),
    ("default_table_access_method", "heap", Setting::Idle),
    ("default_tablespace", "", Setting::Idle),
    ("default_transaction_deferrable", "off", Setting::Fixed),
    ("default_transaction_isolation", "serializable", Setting::Fixed),
    ("default_transaction_read_only", "off", Setting::Fixed),
    ("extra_float_digits", "1", Setting::Idle),
    ("geqo", "off", Setting::Idle),
    ("idle_in_transaction_session_timeout", "60s", Setting::Idle),
    ("in_hot_standby", "off", Setting::Fixed),
    ("integer_datetimes", "on", Setting::Fixed),
    ("IntervalStyle", "postgres", Setting::Fixed),
    ("is_superuser", "on", Setting::Idle),
    ("jit", "off", Setting::Idle),
    ("lc_collate", "C", Setting::Fixed),
    ("lc_ctype", "C", Setting::Fixed),
    ("lc_messages", "C", Setting::Idle),
    ("lock_timeout", "0", Setting::Idle),
    ("max_connections", "100", Setting::Fixed),
    ("max_identifier_length", "63", Setting::Fixed),
    ("max_index_keys", "32", Setting::Fixed),
    ("password_encryption", "scram-sha-256", Setting::Fixed),
    ("row_security", "on", Setting::Idle),
    ("search_path", "\"$user\", public", Setting::Fixed),
    ("server_encoding", "UTF8", Setting::Fixed),
    ("server_version", "15.0", Setting::Fixed),
    ("server_version_num", "150000", Setting::Fixed),
    ("session_authorization", USER, Setting::Idle),
    ("standard_conforming_strings", "on", Setting::Fixed),
    ("statement_timeout", "0", Setting::Idle),
    ("synchronous_commit", "on", Setting::Idle),
    ("TimeZone", "UTC", Setting::Fixed),
    ("transaction_deferrable", "off", Setting::Fixed),
    ("transaction_isolation", "serializable", Setting::Fixed),
    ("transaction_read_only", "off", Setting::Fixed),
    ("vacuum_cost_delay", "0", Setting::Idle),
    ("xmloption", "content", Setting::Idle),
];

/// What setting a parameter to another value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// It would make a difference, and is refused.
    Fixed,
    /// It makes none.
    Idle,
}

/// All parameters and their values, by name.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    PARAMETERS.iter().map(|(name, value, _)| (*name, *value))
}

/// The value of a parameter; none if there is no such.
pub fn known(name: &str) -> Option<&'static str> {
    find(&canonical(name)).map(|(_, value, _)| value)
}

fn find(name: &str) -> Option<(&'static str, &'static str, Setting)> {
    PARAMETERS.into_iter().find(|(known, ..)| known.eq_ignore_ascii_case(name))
}

/// The value of a parameter.
///
/// # Errors
/// 42704 if there is no such.
pub fn value(name: &str) -> Result<&'static str, SqlError> {
    let message = || format!("unrecognized configuration parameter \"{name}\"");
    known(name).ok_or_else(|| SqlError::plain("42704", message()))
}

/// Sets a parameter, which changes nothing; `None` is the default.
///
/// # Errors
/// If it would make a difference.
pub fn set(name: &str, value: Option<&str>) -> Result<(), SqlError> {
    let name = canonical(name);
    let Some(value) = value else { return Ok(()) };
    let fixed = match find(&name) {
        Some((_, _, Setting::Idle)) => return Ok(()),
        Some((_, fixed, Setting::Fixed)) => fixed,
        // One with a point in its name is an extension's or the client's own.
        None if name.contains('.') => return Ok(()),
        None => return self::value(&name).map(|_| ()),
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
