//! The tables of a database that is open, as SQLite's own catalogue has them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rusqlite::{Connection, Row, params};
use sqlparser::dialect::SQLiteDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

use super::schema::{is_view, view_types};
use super::{Column, Index, Tables};
use crate::catalog;
use crate::types::PgType;

/// SQLite forgets the case of its own words for types: `integer` comes back as `INTEGER`. The statement has it.
fn small_types(definition: &str) -> Vec<(String, PgType)> {
    let tokens = Tokenizer::new(&SQLiteDialect {}, definition).tokenize().unwrap_or_default();
    let tokens: Vec<Token> =
        tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let (mut depth, mut found) = (0, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        let is_start = depth == 1 && matches!(token, Token::LParen | Token::Comma);
        if let (true, Some(Token::Word(name)), Some(Token::Word(of))) =
            (is_start, tokens.get(at + 1), tokens.get(at + 2))
        {
            match of.value.as_str() {
                "integer" => found.push((name.value.clone(), PgType::Int4)),
                "real" => found.push((name.value.clone(), PgType::Real)),
                _ => {}
            }
        }
    }
    found
}

/// Names of which something is known, at most.
const MAX_KNOWN: usize = 1024;

/// What was found of tables. It holds as long as the schema does.
#[derive(Default)]
pub struct KnownTables {
    columns: RefCell<BTreeMap<String, Option<Vec<Column>>>>,
    definitions: RefCell<BTreeMap<String, Option<String>>>,
    indexes: RefCell<BTreeMap<String, Vec<Index>>>,
}

impl KnownTables {
    /// Forgets all of it: a look-up has failed.
    pub fn forget(&self) {
        self.columns.borrow_mut().clear();
        self.definitions.borrow_mut().clear();
        self.indexes.borrow_mut().clear();
    }
}

/// What is known of a name, or what `find` finds.
fn known<T: Clone>(all: Option<&RefCell<BTreeMap<String, T>>>, name: &str, find: impl FnOnce() -> T) -> T {
    let Some(all) = all else { return find() };
    if let Some(found) = all.borrow().get(name) {
        return found.clone();
    }
    let found = find();
    let mut all = all.borrow_mut();
    if all.len() >= MAX_KNOWN {
        all.clear();
    }
    all.insert(name.to_owned(), found.clone());
    found
}

/// The tables of a connection's database.
pub struct PresentTables<'c> {
    /// It reads the schema through the same pages as statements do.
    connection: &'c Connection,
    /// What was found of the same schema before.
    known: Option<&'c KnownTables>,
    /// The first error that a look-up had: what was found then counts for nothing.
    error: RefCell<Option<rusqlite::Error>>,
}

/// A column, and its place in the primary key.
fn column(row: &Row<'_>) -> rusqlite::Result<(Column, i64)> {
    let (declared, default): (String, Option<String>) = (row.get(1)?, row.get(3)?);
    let place: i64 = row.get(4)?;
    let column = Column {
        name: row.get(0)?,
        of: PgType::declared(&declared),
        is_not_null: row.get::<_, bool>(2)? || place > 0,
        is_key: place > 0,
        default,
        gives_ids: false,
    };
    Ok((column, place))
}

impl<'c> PresentTables<'c> {
    /// Those that a connection sees, of whose schema this is known.
    pub fn new(connection: &'c Connection, known: Option<&'c KnownTables>) -> Self {
        PresentTables { connection, known, error: RefCell::new(None) }
    }

    /// The first error that a look-up had.
    pub fn into_error(self) -> Option<rusqlite::Error> {
        self.error.into_inner()
    }

    fn list<T>(&self, sql: &str, table: &str, read: impl Fn(&Row<'_>) -> rusqlite::Result<T>) -> Vec<T> {
        let listed = self.connection.prepare(sql).and_then(|mut statement| {
            let rows = statement.query_map(params![table], |row| read(row))?;
            rows.collect::<rusqlite::Result<Vec<T>>>()
        });
        listed.unwrap_or_else(|error| {
            self.error.borrow_mut().get_or_insert(error);
            Vec::new()
        })
    }
}

impl PresentTables<'_> {
    fn find_columns(&self, table: &str) -> Option<Vec<Column>> {
        let sql = "SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_xinfo(?1)";
        let definition = self.definition(table)?;
        let mut columns: Vec<Column> =
            self.list(sql, table, column).into_iter().map(|(column, _)| column).collect();
        if is_view(&definition) {
            for (column, of) in columns.iter_mut().zip(view_types(&definition).unwrap_or_default()) {
                column.of = of;
            }
            return Some(columns);
        }
        let small = small_types(&definition);
        for column in &mut columns {
            column.of = small.iter().find(|(name, _)| *name == column.name).map_or(column.of, |(_, of)| *of);
        }
        let has_key = columns.iter().any(|column| column.is_key);
        if has_key && definition.contains("AUTOINCREMENT") {
            columns.iter_mut().filter(|column| column.is_key).for_each(|column| column.gives_ids = true);
        }
        if !has_key {
            // A primary key that was added later is an index of this name.
            let name = format!("{table}_pkey");
            if let Some(index) = self.indexes(table).into_iter().find(|index| index.name == name) {
                let is_key = |column: &&mut Column| index.columns.contains(&column.name);
                columns.iter_mut().filter(is_key).for_each(|column| column.is_key = true);
            }
        }
        Some(columns)
    }

    fn find_definition(&self, table: &str) -> Option<String> {
        let sql = "SELECT sql FROM sqlite_schema WHERE name = ?1 AND type IN ('table', 'view')";
        self.list(sql, table, |row| row.get(0)).pop()
    }

    fn find_indexes(&self, table: &str) -> Vec<Index> {
        let sql = "SELECT l.name, l.\"unique\" AND l.partial = 0, s.sql FROM pragma_index_list(?1) AS l \
                   LEFT JOIN sqlite_schema AS s ON s.type = 'index' AND s.name = l.name ORDER BY l.name";
        let index = |row: &Row<'_>| {
            let (is_unique, definition) = (row.get(1)?, row.get(2)?);
            Ok(Index { name: row.get(0)?, columns: Vec::new(), is_unique, definition })
        };
        let mut indexes = self.list(sql, table, index);
        for index in &mut indexes {
            let sql = "SELECT coalesce(name, '') FROM pragma_index_info(?1) ORDER BY seqno";
            index.columns = self.list(sql, &index.name, |row| row.get(0));
        }
        indexes
    }
}

impl Tables for PresentTables<'_> {
    fn columns(&self, table: &str) -> Option<Vec<Column>> {
        known(self.known.map(|known| &known.columns), table, || self.find_columns(table))
    }

    fn definition(&self, table: &str) -> Option<String> {
        known(self.known.map(|known| &known.definitions), table, || self.find_definition(table))
    }

    fn indexes(&self, table: &str) -> Vec<Index> {
        known(self.known.map(|known| &known.indexes), table, || self.find_indexes(table))
    }

    fn table_of_index(&self, index: &str) -> Option<String> {
        let sql = "SELECT tbl_name FROM sqlite_schema WHERE name = ?1 AND type = 'index'";
        self.list(sql, index, |row| row.get(0)).pop()
    }

    fn referring(&self, table: &str) -> Vec<String> {
        let sql = "SELECT DISTINCT m.name FROM sqlite_schema AS m, pragma_foreign_key_list(m.name) AS k \
                   WHERE m.type = 'table' AND k.\"table\" = ?1 COLLATE NOCASE ORDER BY m.name";
        self.list(sql, table, |row| row.get(0))
    }

    fn views(&self) -> Vec<(String, String)> {
        let sql = "SELECT name, sql FROM sqlite_schema WHERE type = ?1 ORDER BY name";
        self.list(sql, "view", |row| Ok((row.get(0)?, row.get(1)?)))
    }

    fn catalogue(&self, schema: &str, name: &str) -> Option<(String, Vec<Column>)> {
        let relation = catalog::relation(Some(schema), name)?;
        let column = |(name, of): &(&str, _)| Column {
            name: (*name).to_owned(),
            of: *of,
            is_not_null: false,
            is_key: false,
            default: None,
            gives_ids: false,
        };
        Some((relation.select.to_owned(), relation.columns.iter().map(column).collect()))
    }
}
