//! Translates statements of PostgreSQL to SQLite's: clients speak the one, the engine the other.
//!
//! A statement is parsed to a tree, and SQLite's statement is written from that tree. What has no arm in this module is
//! not written, so nothing passes that is not known to mean the same: it is refused, with what to do instead. Types of
//! columns and parameters are found on the way, since clients want them before anything is executed.
//!
//! The result depends on the text, the tables and the types of parameters alone: replicas translate alike.
//!
//! SQLite's dialect lacks functions that raise PostgreSQL's errors; [`functions`] lists those that have to be there.

mod aggregates;
mod alter;
mod coerce;
mod copy;
mod data_type;
mod definition;
mod expression;
pub mod functions;
mod grouping;
mod insert;
mod literals;
mod names;
mod operators;
mod parse;
mod present;
mod query;
mod relations;
mod schema;
mod scope;
mod select;
mod sequences;
mod session;
mod special;
mod statement;
mod table;
mod translator;
mod update;

// What callers name it.
pub use StatementKind as Kind;
pub use parse::{ParsedStatement, statements};
pub use present::{KnownTables, PresentTables};
pub use schema::view_types;
pub use statement::translate;

use crate::types::PgType;

/// What is known of the tables of the database.
pub trait Tables {
    /// The columns of a table or view; none if there is no such.
    fn columns(&self, table: &str) -> Option<Vec<Column>>;

    /// The statement of SQLite's that made a table or view.
    fn definition(&self, table: &str) -> Option<String>;

    /// Indexes of a table, in the order of their names.
    fn indexes(&self, table: &str) -> Vec<Index>;

    /// The table that an index is of.
    fn table_of_index(&self, index: &str) -> Option<String>;

    /// Tables whose foreign keys refer to this one, in the order of their names.
    fn referring(&self, table: &str) -> Vec<String>;

    /// Views in the order of their names, with the statements of SQLite's that made them.
    fn views(&self) -> Vec<(String, String)>;

    /// A table of `pg_catalog` or `information_schema`: a query of SQLite's, and its columns.
    fn catalogue(&self, schema: &str, name: &str) -> Option<(String, Vec<Column>)>;
}

/// A column of a table or view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// As it is written.
    pub name: String,
    /// Its type.
    pub of: PgType,
    /// Whether it takes no NULL.
    pub is_not_null: bool,
    /// Whether it is a part of the primary key.
    pub is_key: bool,
    /// The expression of SQLite's that is its default.
    pub default: Option<String>,
    /// Whether it is given an id where an INSERT has none: it was a `serial` or an identity.
    pub gives_ids: bool,
}

/// An index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// As it is written.
    pub name: String,
    /// The columns in order; an expression is empty.
    pub columns: Vec<String>,
    /// Whether no two rows have the same key.
    pub is_unique: bool,
    /// The statement of SQLite's that made it; none if a constraint of the table did.
    pub definition: Option<String>,
}

/// A statement for SQLite.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    /// For SQLite, with parameters as `?1`; empty if SQLite has nothing to do.
    pub sql: String,
    /// Of parameters, which SQLite is given as these types are kept.
    pub parameters: Vec<PgType>,
    /// Of the rows that it returns, as PostgreSQL names them; none if it returns no rows.
    pub columns: Option<Vec<(String, PgType)>>,
    /// What it does.
    pub kind: StatementKind,
}

/// What a statement does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// Returns rows: `SELECT n`.
    Select,
    /// `INSERT 0 n`
    Insert,
    /// `UPDATE n`
    Update,
    /// `DELETE n`
    Delete,
    /// Fills a table that was just created: `SELECT n`.
    CreateTableAs,
    /// Changes the schema, or is a part of such a change. It completes with this tag.
    Schema(&'static str),
    /// Does nothing here, which is no loss. It completes with this tag.
    Nothing(&'static str),
    /// Begins a transaction.
    Begin {
        /// Whether it may only read.
        is_read_only: bool,
    },
    /// Commits the transaction; with `AND CHAIN` it begins another.
    Commit {
        /// Whether another one begins.
        is_chained: bool,
    },
    /// Undoes the transaction.
    Rollback {
        /// Whether another one begins.
        is_chained: bool,
    },
    /// Makes a savepoint of this name.
    Savepoint(String),
    /// Forgets a savepoint.
    Release(String),
    /// Goes back to a savepoint.
    RollbackTo(String),
    /// Sets what the transaction may do.
    SetTransaction {
        /// `READ ONLY` or `READ WRITE`, if it says so.
        is_read_only: Option<bool>,
        /// Whether it is for transactions to come.
        is_for_session: bool,
    },
    /// Sets a parameter of the session.
    Set {
        /// In lower case.
        name: String,
        /// None is the default.
        value: Option<String>,
        /// Whether it lasts until the end of the transaction.
        is_local: bool,
    },
    /// Sets a parameter of the session, or all, to the default.
    Reset(Option<String>),
    /// Shows a parameter of the session, or all.
    Show(Option<String>),
    /// Forgets all that a session has.
    DiscardAll,
    /// Forgets a prepared statement, or all.
    Deallocate(Option<String>),
    /// Opens a cursor on the query.
    Declare {
        /// Of the cursor.
        name: String,
        /// Whether it stays open when its transaction commits.
        is_held: bool,
    },
    /// Reads on from a cursor.
    Fetch {
        /// Of the cursor.
        name: String,
        /// None is all that is left.
        count: Option<u64>,
        /// Whether rows are passed over instead of returned: `MOVE`.
        is_move: bool,
    },
    /// Closes a cursor, or all.
    CloseCursor(Option<String>),
    /// Rows from the client: `sql` is an INSERT with a parameter for each field.
    CopyIn(CopyFormat),
    /// Rows to the client: `sql` is the query.
    CopyOut(CopyFormat),
    /// Tells how SQLite would run a statement; the query's columns are made by the caller from SQLite's.
    Explain,
}

/// How rows are written in `COPY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFormat {
    /// Whether it is CSV; text otherwise.
    pub is_csv: bool,
    /// Whether the first line has names.
    pub has_header: bool,
    /// Between fields.
    pub delimiter: char,
    /// What stands for NULL.
    pub null: String,
    /// Around fields of CSV.
    pub quote: char,
    /// Before a quote within a field of CSV.
    pub escape: char,
}
