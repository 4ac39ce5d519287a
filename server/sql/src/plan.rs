//! What a prepared statement means: the statements of SQLite's that do it, and the types of its parameters and columns.

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::{Batch, Statement as SqliteStatement};
use xxhash_rust::xxh3::xxh3_128;

use crate::dialect::{self, Kind, Translated};
use crate::engine::Connected;
use crate::error::SqlError;
use crate::query::QueryFailure;
use crate::request::{Dialect, Statement};
use crate::rows;
use crate::types::PgType;

/// What a prepared statement means.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Of its parameters.
    pub parameters: Vec<PgType>,
    /// What is done, in order. None at all if the text is empty.
    pub steps: Vec<PlanStep>,
}

/// A statement for SQLite.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanStep {
    /// In SQLite's dialect, as the client wrote it.
    Sqlite {
        /// Its text.
        text: String,
        /// Names and types of columns; none if it returns no rows.
        columns: Option<Vec<(String, PgType)>>,
    },
    /// Translated from PostgreSQL's.
    Postgres(Translated),
}

impl Plan {
    /// Names and types of the columns of the rows that it returns, if it returns rows.
    pub fn columns(&self) -> Option<&[(String, PgType)]> {
        match self.steps.last()? {
            PlanStep::Sqlite { columns, .. } => columns.as_deref(),
            PlanStep::Postgres(translated) => translated.columns.as_deref(),
        }
    }

    /// Whether it is a query, which may run again for its later rows.
    pub fn is_query(&self) -> bool {
        match self.steps.last() {
            Some(PlanStep::Sqlite { text, .. }) => crate::words::only_reads(text),
            // One that draws from a sequence has a step in front of it.
            Some(PlanStep::Postgres(translated)) => translated.kind == Kind::Select && self.steps.len() == 1,
            None => false,
        }
    }
}

/// Tells what a client has prepared from everything else.
pub fn digest(dialect: Dialect, statement: &Statement) -> u128 {
    let types: Vec<u8> = statement.types.iter().flat_map(|of| of.to_le_bytes()).collect();
    let count = (statement.types.len() as u32).to_le_bytes();
    let dialect = [u8::from(dialect == Dialect::Sqlite)];
    xxh3_128(&[&dialect, &count[..], &types, statement.text.as_bytes()].concat())
}

/// Of a statement in SQLite's dialect.
///
/// # Errors
/// If SQLite cannot prepare it.
pub fn of_sqlite(connected: &Connected, statement: &Statement) -> Result<Plan, QueryFailure> {
    let mut batch = Batch::new(connected.connection(), &statement.text);
    connected.take_change();
    let Some(prepared) = connected.compile(|_| batch.next())? else {
        return Ok(Plan { parameters: Vec::new(), steps: Vec::new() });
    };
    refuse(&prepared)?;
    let parameters = (0..parameters(&prepared)?).map(|number| {
        let given = statement.types.get(number).copied().unwrap_or(0);
        PgType::of_number(given).unwrap_or(PgType::Text)
    });
    let types = rows::declared(&prepared);
    let names = prepared.column_names().map(str::to_owned);
    let columns = (!types.is_empty()).then(|| names.zip(types).collect());
    let steps = vec![PlanStep::Sqlite { text: statement.text.clone(), columns }];
    let plan = Plan { parameters: parameters.collect(), steps };
    drop(prepared);
    match connected.compile(|_| batch.next())? {
        None => Ok(plan),
        Some(_) => Err(several()),
    }
}

/// How many parameters there are, which are numbered: `?1` or `$1`.
fn parameters(prepared: &SqliteStatement<'_>) -> Result<usize, QueryFailure> {
    let number = |index| match prepared.parameter_name(index) {
        None => Ok(index),
        Some(name) => name[1..].parse().map_err(|_| {
            SqlError::new(
                "42P02",
                format!("a parameter is called {name}"),
                "Call parameters $1, $2 and so on.",
            )
        }),
    };
    (1..=prepared.parameter_count()).try_fold(0, |most, index| Ok(number(index)?.max(most)))
}

/// Binds a value to each parameter.
///
/// # Errors
/// Of SQLite.
pub fn bind(
    prepared: &mut SqliteStatement<'_>,
    values: &[rusqlite::types::Value],
) -> Result<(), QueryFailure> {
    for index in 1..=prepared.parameter_count() {
        let number = prepared.parameter_name(index).map_or(Ok(index), |name| name[1..].parse());
        if let Some(value) = number.ok().and_then(|number| values.get(number.checked_sub(1)?)) {
            prepared.raw_bind_parameter(index, value)?;
        }
    }
    Ok(())
}

/// Statements that SQLite would run, and that clients would get a wrong answer to.
///
/// # Errors
/// For such a one.
pub fn refuse(statement: &SqliteStatement<'_>) -> Result<(), QueryFailure> {
    if statement.is_explain() == 1 {
        let message = "the program of a statement depends on the connection";
        return Err(SqlError::unsupported(message, "EXPLAIN QUERY PLAN is supported.").into());
    }
    Ok(())
}

fn several() -> QueryFailure {
    let message = "cannot insert multiple commands into a prepared statement";
    SqlError::new("42601", message, "Prepare each statement on its own.").into()
}

/// Of a statement in PostgreSQL's dialect.
///
/// # Errors
/// If it cannot be translated.
pub fn of_postgres(connected: &Connected, statement: &Statement) -> Result<Plan, QueryFailure> {
    let parsed = dialect::statements(&statement.text)?;
    let [parsed] = &parsed[..] else {
        return if parsed.is_empty() {
            Ok(Plan { parameters: Vec::new(), steps: Vec::new() })
        } else {
            Err(several())
        };
    };
    let types: Vec<_> = statement.types.iter().map(|number| PgType::of_number(*number)).collect();
    let translated = connected.look_up(|tables| dialect::translate(parsed, tables, &types))?;
    let parameters = translated.first().map_or_else(Vec::new, |first| first.parameters.clone());
    Ok(Plan { parameters, steps: translated.into_iter().map(PlanStep::Postgres).collect() })
}
