//! What a violated constraint is called: SQLite names columns, and PostgreSQL's clients ask for the constraint's name.

use crate::dialect::Tables;
use crate::error::{ErrorField, SqlError};

/// An error as PostgreSQL words it, with the table, the column and the constraint, as far as they are known.
pub fn named(error: SqlError, tables: &dyn Tables) -> SqlError {
    let Some((kind, what)) = error.message.split_once(" constraint failed: ") else { return error };
    let what = what.to_owned();
    match kind {
        "UNIQUE" => match what.strip_prefix("index '").and_then(|rest| rest.strip_suffix('\'')) {
            Some(index) => unique(error, tables.table_of_index(index), index.to_owned()),
            None => match columns(&what) {
                Some((table, columns)) => {
                    let constraint = name_of(tables, &table, &columns);
                    unique(error, Some(table), constraint)
                }
                None => error,
            },
        },
        "NOT NULL" => match columns(&what) {
            Some((table, columns)) => {
                let column = columns.join(", ");
                let message = format!(
                    "null value in column \"{column}\" of relation \"{table}\" violates not-null constraint"
                );
                SqlError { message, about: about(Some(table), Some(column), None), ..error }
            }
            None => error,
        },
        "CHECK" => {
            let is_name = what.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
            let message = format!("new row violates check constraint \"{what}\"");
            SqlError { message, about: about(None, None, is_name.then_some(what)), ..error }
        }
        _ => error,
    }
}

fn unique(error: SqlError, table: Option<String>, constraint: String) -> SqlError {
    let message = format!("duplicate key value violates unique constraint \"{constraint}\"");
    SqlError { message, about: about(table, None, Some(constraint)), ..error }
}

fn about(table: Option<String>, column: Option<String>, constraint: Option<String>) -> Vec<ErrorField> {
    let schema = table.as_ref().map(|_| "public".to_owned());
    let all = [(b's', schema), (b't', table), (b'c', column), (b'n', constraint)];
    all.into_iter().filter_map(|(letter, name)| Some(ErrorField { letter, name: name? })).collect()
}

/// The table and the columns of `t.a, t.b`.
fn columns(what: &str) -> Option<(String, Vec<String>)> {
    let mut parts = what.split(", ").map(|part| part.split_once('.'));
    let (table, first) = parts.next()??;
    let mut columns = vec![first.to_owned()];
    for part in parts {
        let (other, column) = part?;
        (other == table).then(|| columns.push(column.to_owned()))?;
    }
    Some((table.to_owned(), columns))
}

/// The name of the index with these columns. What a constraint of the table has made is called as PostgreSQL does.
fn name_of(tables: &dyn Tables, table: &str, columns: &[String]) -> String {
    let indexes = tables.indexes(table);
    let has_all = |index: &&crate::dialect::Index| index.is_unique && index.columns == columns;
    let made = indexes.iter().filter(has_all).find(|index| index.definition.is_some());
    if let Some(index) = made {
        return index.name.clone();
    }
    let all = tables.columns(table).unwrap_or_default();
    let key: Vec<&str> =
        all.iter().filter(|column| column.is_key).map(|column| column.name.as_str()).collect();
    if key.len() == columns.len() && columns.iter().all(|column| key.contains(&column.as_str())) {
        return format!("{table}_pkey");
    }
    format!("{table}_{}_key", columns.join("_"))
}
