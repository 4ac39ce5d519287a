//! SQL as a protected, replicated service: SQLite, whose every page is checked before it is used.
//!
//! - [`database`]: the state, pages as critical objects.
//! - `guest`, `vfs`: what SQLite sees of it, and of time and chance, while a request is executed.
//! - [`engine`]: SQLite's connections, which are no state.
//! - [`protocol`], [`request`]: what clients' bytes ask for, and the requests in the log.
//! - [`service`], `session`, `open_transactions`: the handlers, and transactions over several requests.
//! - `query`, `perform`, `plan`, `postgres`, `rows`, `copy`: the parts of a request, one after the other.
//! - [`dialect`], [`functions`], [`catalog`]: PostgreSQL's statements, functions and catalogue, for SQLite.
//! - [`types`], [`values`], [`error`], [`reply`]: types, values, errors and messages as PostgreSQL's clients know them.
//! - [`file_request`], `file_copy`, [`copy_client`]: the whole file, out of a group and into one.
//! - [`btree`], [`trees`], `explain`: what a page is for, so that evidence names table, key and column.
//!
//! *Why pages and not rows.* A page holds rows, parts of indexes, the schema or the list of free pages. SQLite believes
//! all of them; a wrong one gives wrong answers without any error. And pages are equal at all replicas: what SQLite
//! writes depends on the statements alone, since its time and its random numbers are those of the ordered request, its
//! journal and temporary tables are in memory, and one request at a time writes.

pub mod btree;
pub mod catalog;
mod columns;
mod constraints;
mod copy;
pub mod copy_client;
pub mod database;
pub mod dialect;
pub mod engine;
pub mod error;
mod explain;
mod file_copy;
pub mod file_request;
pub mod functions;
mod guest;
mod open_transactions;
pub mod options;
mod perform;
pub mod pg_client;
mod plan;
mod postgres;
pub mod protocol;
mod query;
mod refusals;
pub mod reply;
pub mod request;
mod rows;
pub mod scram;
pub mod service;
mod session;
mod settings;
pub mod trees;
pub mod types;
pub mod values;
mod vfs;
mod words;

pub use database::PAGE_BYTES;
pub use protocol::PgConnection;
pub use request::{Dialect, SqlRequest};
pub use service::Sql;
