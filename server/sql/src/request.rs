//! The requests of the service, as they are in the log.

use crosscheck::object::Summed;

/// A request in the log.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub enum SqlRequest {
    /// A query of one or more statements, without parameters.
    Query {
        /// The statements.
        text: String,
        /// It certainly changes nothing.
        reads: bool,
    },
}

impl SqlRequest {
    /// The request for a client's query.
    pub fn query(text: &str) -> Self {
        SqlRequest::Query { text: text.to_owned(), reads: crate::query::only_reads(text) }
    }
}
