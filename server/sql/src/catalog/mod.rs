//! PostgreSQL's catalogue, which clients ask about tables: as queries over SQLite's schema, so there is no second copy
//! that could differ from it.
//!
//! *Numbers of objects.* A table, view or index has the number 16384 + 4096 n, where n is its row in `sqlite_schema`;
//! it keeps it as long as it exists. The numbers up to the next one belong to its parts: 1 is the index of a primary
//! key that SQLite needs none for, 2 the primary key, or the constraint of a unique index, from 16 on are the default
//! values of its columns, from 2048 on its foreign keys. Types have PostgreSQL's numbers.
//!
//! *Names of constraints* are those that PostgreSQL gives when none is said: `t_pkey`, `t_a_b_key`, `t_a_fkey`.
//! Constraints of the kind `CHECK` are missing: SQLite lists none.
//!
//! *Functions* that look something up cannot be functions of SQLite, which may not query: they are expressions,
//! [`expression`], that are put in place of the call.
//!
//! *Views.* SQLite cannot tell the columns of a view whose table is gone, and then no query of the catalogue works. So
//! a table must not be dropped while a view uses it, as PostgreSQL has it, too.
//!
//! The queries use `pragma_table_xinfo`, `pragma_index_list`, `pragma_index_xinfo` and `pragma_foreign_key_list`, so an
//! authorizer must permit these four to them.

mod empty;
mod fragments;
mod functions;
mod information;
mod numbers;
mod system;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::types::PgType;

pub use functions::register;

/// Who owns everything.
pub const USER: &str = "postgres";
/// The name of the database.
pub const DATABASE: &str = "postgres";
/// What the names of tables begin with that belong to the service and are not shown.
pub const INTERNAL: &str = "crosscheck_internal_";
/// What `version()` answers.
pub const VERSION: &str = "PostgreSQL 15.0 (CrossCheck over SQLite)";

/// A table of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Relation {
    /// A query in SQLite's words that gives its rows.
    pub select: &'static str,
    /// Its columns, in the order of the query.
    pub columns: &'static [(&'static str, PgType)],
}

/// How a table of the catalogue is made: columns with their types and expressions, and what follows FROM. Words in
/// braces stand for fragments.
struct Definition {
    name: &'static str,
    columns: &'static [(&'static str, PgType, &'static str)],
    from: &'static str,
}

struct Built {
    select: String,
    columns: Vec<(&'static str, PgType)>,
}

type Schema = BTreeMap<&'static str, Built>;

static SYSTEM: LazyLock<Schema> = LazyLock::new(|| {
    let with_rows = system::DEFINITIONS.iter().map(build);
    let without = empty::DEFINITIONS.iter().map(|(name, words)| (*name, without_rows(words)));
    with_rows.chain(without).collect()
});
static INFORMATION: LazyLock<Schema> = LazyLock::new(|| information::DEFINITIONS.iter().map(build).collect());
static EXPRESSIONS: LazyLock<BTreeMap<(&'static str, usize), String>> = LazyLock::new(|| {
    let one = |(name, count, text): &(&'static str, usize, &str)| ((*name, *count), fragments::expand(text));
    fragments::EXPRESSIONS.iter().map(one).collect()
});

fn build(definition: &Definition) -> (&'static str, Built) {
    let parts: Vec<String> = definition
        .columns
        .iter()
        .map(|(column, _, expression)| format!("{expression} AS \"{column}\""))
        .collect();
    let select = fragments::expand(&format!("SELECT {} FROM {}", parts.join(", "), definition.from));
    (
        definition.name,
        Built { select, columns: definition.columns.iter().map(|(name, of, _)| (*name, *of)).collect() },
    )
}

/// A table without rows, from its columns' names and types.
fn without_rows(words: &'static str) -> Built {
    let columns: Vec<_> = words.split(", ").filter_map(|column| column.split_once(' ')).collect();
    let of = |word| if word == "char" { PgType::Letter } else { PgType::named(word).unwrap_or(PgType::Text) };
    let columns: Vec<_> = columns.into_iter().map(|(name, word)| (name, of(word))).collect();
    let parts: Vec<String> = columns.iter().map(|(name, _)| format!("NULL AS \"{name}\"")).collect();
    Built { select: format!("SELECT {} WHERE 0", parts.join(", ")), columns }
}

/// A table of the catalogue. Those of `information_schema` must be called with it.
pub fn relation(schema: Option<&str>, name: &str) -> Option<Relation> {
    let tables: &'static Schema = match schema {
        None | Some("pg_catalog") => &SYSTEM,
        Some("information_schema") => &INFORMATION,
        Some(_) => return None,
    };
    let built = tables.get(name)?;
    Some(Relation { select: &built.select, columns: &built.columns })
}

/// The tables that [`relation`] knows, with their schemas.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of = |schema: &'static str, tables: &'static LazyLock<Schema>| {
        tables.keys().map(move |name| (schema, *name))
    };
    of("pg_catalog", &SYSTEM).chain(of("information_schema", &INFORMATION))
}

/// What stands in SQLite's words for a call of a function that looks something up, with `?1`, `?2` in place of its
/// arguments; none if it is no such function. Conversions are called `regclass_in`, from text to a number or an error
/// of the caller's if it is NULL, and `regclass_out`.
pub fn expression(function: &str, arguments: usize) -> Option<&'static str> {
    let found = EXPRESSIONS.iter().find(|((name, count), _)| *name == function && *count == arguments);
    found.map(|(_, text)| text.as_str())
}

#[cfg(test)]
mod tests;
