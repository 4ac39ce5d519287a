//! The requests of the service, as they are in the log.
//!
//! A client of the extended protocol sends many messages, and waits at `Sync`. All of them up to there are one request,
//! a [`ClientRun`]: so they are executed together, and the service knows what to skip when one of them fails.

use crosscheck::object::Summed;

use crate::error::SqlError;
use crate::file_request::FileRequest;

/// A request in the log.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub enum SqlRequest {
    /// Outside of a transaction.
    Alone {
        /// What the client asks for.
        run: ClientRun,
        /// It certainly changes nothing.
        reads: bool,
    },
    /// Of a connection that begins a transaction, or may have begun one.
    InTransaction {
        /// The connection's number.
        session: u64,
        /// How many runs it has sent since the transaction began, if it knows when that was.
        number: Option<u32>,
        /// The transaction is certainly open. If it is not, it was given up.
        is_open: bool,
        /// What the client asks for.
        run: ClientRun,
    },
    /// A connection has ended, and with it its transaction.
    Closed {
        /// The connection's number.
        session: u64,
    },
    /// Copies pages out of the database, or a file into it.
    File(FileRequest),
}

impl SqlRequest {
    /// The request for a query in SQLite's dialect, outside of a transaction.
    pub fn query(text: &str) -> Self {
        let run = ClientRun::of_query(Dialect::Sqlite, text);
        SqlRequest::Alone { reads: run.only_reads(), run }
    }
}

/// The language of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Summed)]
pub enum Dialect {
    /// PostgreSQL's, translated ([`crate::dialect`]).
    Postgres,
    /// SQLite's, as it is.
    Sqlite,
}

/// Messages of a client up to the one where it waits, in the order in which they are executed.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub struct ClientRun {
    /// The language of its statements.
    pub dialect: Dialect,
    /// What its portals and parts refer to.
    pub statements: Vec<Statement>,
    /// What its parts refer to.
    pub portals: Vec<Portal>,
    /// What is done. A [`RunPart::Sync`] is the last one, and a [`RunPart::Query`] the only one.
    pub parts: Vec<RunPart>,
}

/// A statement that a client has prepared, or the text of a query.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub struct Statement {
    /// Its text.
    pub text: String,
    /// Numbers of its first parameters' types in `pg_type`; 0 where the client does not say.
    pub types: Vec<u32>,
}

/// A prepared statement with values for its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub struct Portal {
    /// Which of [`ClientRun::statements`].
    pub statement: u16,
    /// One for each parameter.
    pub parameters: Vec<Parameter>,
    /// Which columns of results are binary: none said is none, one said is all.
    pub are_binary: Vec<bool>,
}

/// A value for a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub struct Parameter {
    /// It is in the binary form of its type.
    pub is_binary: bool,
    /// None is NULL.
    pub bytes: Option<Vec<u8>>,
}

/// One of a client's messages.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub enum RunPart {
    /// Run all statements of the text, and say that the next query may come.
    Query {
        /// Which of [`ClientRun::statements`].
        statement: u16,
    },
    /// Check a statement.
    Parse {
        /// Which of [`ClientRun::statements`].
        statement: u16,
    },
    /// Check values for parameters.
    Bind {
        /// Which of [`ClientRun::portals`].
        portal: u16,
    },
    /// Tell types of parameters and columns.
    DescribeStatement {
        /// Which of [`ClientRun::statements`].
        statement: u16,
    },
    /// Tell types of columns.
    DescribePortal {
        /// Which of [`ClientRun::portals`].
        portal: u16,
    },
    /// Tell types of a cursor's columns.
    DescribeCursor(String),
    /// Run a statement.
    Execute {
        /// Which of [`ClientRun::portals`].
        portal: u16,
        /// Rows that the client has already.
        skip: u64,
        /// Rows that it wants at most; 0 for all.
        limit: u32,
    },
    /// Begin a COPY from the client.
    CopyBegin {
        /// Which of [`ClientRun::statements`].
        statement: u16,
    },
    /// Lines of a COPY; the last one may go on in the next part.
    CopyData {
        /// Which of [`ClientRun::statements`].
        statement: u16,
        /// The lines.
        data: Vec<u8>,
    },
    /// All lines of a COPY were sent, and the next query may come.
    CopyEnd {
        /// Which of [`ClientRun::statements`].
        statement: u16,
    },
    /// A statement or portal was forgotten.
    Close,
    /// The message cannot be executed.
    Refused(SqlError),
    /// The next query may come.
    Sync,
}

impl ClientRun {
    /// A query of the simple protocol.
    pub fn of_query(dialect: Dialect, text: &str) -> Self {
        ClientRun {
            dialect,
            statements: vec![Statement { text: text.to_owned(), types: Vec::new() }],
            portals: Vec::new(),
            parts: vec![RunPart::Query { statement: 0 }],
        }
    }

    /// The statement that a part is about.
    pub fn statement_of(&self, part: &RunPart) -> Option<&Statement> {
        let statement = match *part {
            RunPart::Query { statement }
            | RunPart::Parse { statement }
            | RunPart::DescribeStatement { statement }
            | RunPart::CopyBegin { statement }
            | RunPart::CopyData { statement, .. }
            | RunPart::CopyEnd { statement } => statement,
            RunPart::Bind { portal }
            | RunPart::DescribePortal { portal }
            | RunPart::Execute { portal, .. } => self.portal(portal)?.statement,
            RunPart::DescribeCursor(_) | RunPart::Close | RunPart::Refused(_) | RunPart::Sync => return None,
        };
        self.statements.get(usize::from(statement))
    }

    /// One of its portals.
    pub fn portal(&self, number: u16) -> Option<&Portal> {
        self.portals.get(usize::from(number))
    }

    /// Whether it certainly changes nothing.
    pub fn only_reads(&self) -> bool {
        let is_reading = |part| match part {
            &RunPart::Query { .. } | &RunPart::Execute { .. } | &RunPart::CopyBegin { .. } => {
                self.statement_of(part).is_some_and(|statement| crate::words::only_reads(&statement.text))
            }
            _ => true,
        };
        self.parts.iter().all(is_reading)
    }

    /// Whether the client waits behind it for the word that the next query may come.
    pub fn is_synced(&self) -> bool {
        matches!(self.parts.last(), Some(RunPart::Sync | RunPart::Query { .. } | RunPart::CopyEnd { .. }))
    }

    /// Whether it begins a COPY from the client.
    pub fn begins_copy(&self) -> bool {
        matches!(self.parts.first(), Some(RunPart::CopyBegin { .. }))
    }

    /// Whether it is lines of a COPY, whose beginning was another run.
    pub fn is_copied(&self) -> bool {
        matches!(self.parts.first(), Some(RunPart::CopyData { .. } | RunPart::CopyEnd { .. }))
    }

    /// Its parts from `first` to before `end`, as a run of their own.
    pub fn part(&self, first: usize, end: usize) -> ClientRun {
        ClientRun { parts: self.parts.get(first..end).unwrap_or_default().to_vec(), ..self.clone() }
    }

    /// Bytes that it holds, about.
    pub fn bytes(&self) -> usize {
        let statements = self.statements.iter().map(|statement| statement.text.len() + 16).sum::<usize>();
        let values = |portal: &Portal| -> usize {
            portal
                .parameters
                .iter()
                .map(|value| value.bytes.as_ref().map_or(1, |bytes| bytes.len() + 2))
                .sum()
        };
        let lines = self.parts.iter().map(|part| match part {
            RunPart::CopyData { data, .. } => data.len(),
            _ => 8,
        });
        statements
            + lines.sum::<usize>()
            + self.portals.iter().map(|portal| 8 + values(portal)).sum::<usize>()
    }
}
