//! The requests of the service, as they are in the log.

use crosscheck::object::Summed;

use crate::file_request::FileRequest;

/// A request in the log.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub enum SqlRequest {
    /// A query outside of a transaction.
    Query {
        /// Its statements.
        text: String,
        /// It certainly changes nothing.
        reads: bool,
    },
    /// A connection begins a transaction.
    Begin {
        /// The connection's number.
        session: u64,
    },
    /// A query in the transaction of a connection.
    Step {
        /// The connection's number.
        session: u64,
        /// How many queries of the transaction were sent before.
        number: u32,
        /// Its statements.
        text: String,
    },
    /// A connection ends its transaction.
    End {
        /// The connection's number.
        session: u64,
        /// How many queries the transaction has.
        number: u32,
        /// What it has changed counts.
        commits: bool,
    },
    /// Copies pages out of the database, or a file into it.
    File(FileRequest),
    /// Gives up transactions behind a lock that were idle for too long.
    Expire {
        /// Number of the lock.
        lock: u32,
    },
}

impl SqlRequest {
    /// The request for a client's query outside of a transaction.
    pub fn query(text: &str) -> Self {
        SqlRequest::Query { text: text.to_owned(), reads: crate::query::only_reads(text) }
    }
}
