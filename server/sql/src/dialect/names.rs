//! Names: PostgreSQL folds them to lower case unless they are quoted; SQLite gets each one quoted.

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

use crate::error::SqlError;

/// A name as PostgreSQL knows it.
pub fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// A name for SQLite.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Names for SQLite, with commas.
pub fn quoted_list<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    names.into_iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

/// Text as a literal for SQLite.
pub fn text_literal(text: &str) -> String {
    // SQLite ends a statement at a zero byte, which PostgreSQL does not allow in text either.
    format!("'{}'", text.replace('\0', "").replace('\'', "''"))
}

/// The schema, if it is named, and the name.
pub fn parts(name: &ObjectName) -> Result<(Option<String>, String), SqlError> {
    let mut parts = Vec::new();
    for part in &name.0 {
        let ObjectNamePart::Identifier(part) = part else { return Err(unknown_form(name)) };
        parts.push(folded(part));
    }
    let last = parts.pop().ok_or_else(|| unknown_form(name))?;
    match parts.len() {
        0 => Ok((None, last)),
        1 => Ok((parts.pop(), last)),
        _ => Err(SqlError::unsupported(
            format!("references to other databases are not supported: \"{name}\""),
            "Leave the database's name out.",
        )),
    }
}

fn unknown_form(name: &ObjectName) -> SqlError {
    SqlError::unsupported(format!("a name of this form is not supported: {name}"), "Write a plain name.")
}

/// The name of a table, view or index, which is in the schema `public`.
pub fn object(name: &ObjectName) -> Result<String, SqlError> {
    match parts(name)? {
        (_, name) if is_reserved(&name) => Err(SqlError::new(
            "42939",
            format!("the name \"{name}\" is reserved"),
            "Names that begin with sqlite_ are SQLite's own: use another one.",
        )),
        (None, name) => Ok(name),
        (Some(schema), name) if schema == "public" => Ok(name),
        (Some(schema), _) => Err(other_schema(&schema)),
    }
}

/// Whether SQLite keeps names that begin so for itself.
pub fn is_reserved(name: &str) -> bool {
    name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("sqlite_"))
}

/// There is one schema.
pub fn other_schema(schema: &str) -> SqlError {
    SqlError::new(
        "3F000",
        format!("schema \"{schema}\" does not exist"),
        "All tables are in the schema public.",
    )
}

/// The name of a column, without a table before it.
pub fn column(name: &ObjectName) -> Result<String, SqlError> {
    match parts(name)? {
        (None, name) => Ok(name),
        (Some(_), name) => Err(SqlError::unsupported(
            format!("a part of column \"{name}\" cannot be set"),
            "Columns here have no parts: set the whole column.",
        )),
    }
}
