//! PostgreSQL's protocol, version 3: what a connection's bytes ask for (PostgreSQL's documentation, *Frontend/Backend
//! Protocol*).
//!
//! The parser is total and bounded. Messages of the extended protocol are collected up to `Sync` or `Flush`, where the
//! client waits, and are one request then ([`crate::request::ClientRun`]). The connection sees no replies: whether a
//! message has failed, and the transaction with it, is known where the request is executed.

mod collect;
mod login;
mod messages;
mod prepared;

use std::sync::Arc;

use crosscheck::object::{from_bytes, to_bytes};
use crosscheck::{Action, Progress, Protocol};

use crate::error::SqlError;
use crate::file_request::FileRequest;
use crate::reply::{ReplyWriter, TransactionStatus};
use crate::request::{ClientRun, Dialect, RunPart, SqlRequest};
use crate::words::{TransactionChange, changes_transaction, copies_from_client, deallocated, only_reads};
use login::{Guard, Login};
pub use messages::MAX_MESSAGE_BYTES;
use messages::{Fields, Framed, framed};
use prepared::PreparedNames;

/// Bytes of messages without a `Sync` at most: more become a request without it, and those after them another one.
const MAX_RUN_BYTES: usize = 1 << 20;
/// Bytes of a request at most, with the prepared statements and portals that it refers to.
const MAX_ORDERED_BYTES: usize = 3 << 20;
/// The version of the protocol.
const VERSION_3: u32 = 3 << 16;
/// Clients of a database that is called so speak SQLite's dialect.
const SQLITE: &str = "sqlite";

/// What clients are told about the server.
const PARAMETERS: [(&str, &str); 9] = [
    ("server_version", "15.0"),
    ("server_encoding", "UTF8"),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "UTC"),
    ("integer_datetimes", "on"),
    ("standard_conforming_strings", "on"),
    ("IntervalStyle", "postgres"),
    ("is_superuser", "on"),
];

/// One client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgConnection {
    guard: Guard,
    phase: ConnectionPhase,
    /// Its number, which no other connection of the group has.
    session: u64,
    dialect: Dialect,
    transaction: TransactionBelief,
    /// How many runs of the transaction it has sent.
    number: u32,
    /// The client has waited at a Sync.
    is_synced: bool,
    prepared: PreparedNames,
    /// The COPY whose lines the client sends, if it was not refused.
    copy: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    /// The client has yet to say what it wants.
    Startup,
    /// It has said who it is.
    Login(Box<Login>),
    /// Messages are expected.
    Ready,
}

/// Whether a transaction is open, as far as what the client has sent tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransactionBelief {
    /// None is.
    Closed,
    /// It is, unless it was given up meanwhile: then what the client sends must not run as requests of their own.
    Open,
    /// One is for messages without a Sync, and ends there.
    Implicit,
    /// It depends on whether messages have failed.
    Unknown,
}

impl PgConnection {
    /// A connection that was just accepted, with a number that no other one has.
    pub fn new(session: u64) -> Self {
        PgConnection {
            guard: Guard::open(),
            phase: ConnectionPhase::Startup,
            session,
            dialect: Dialect::Postgres,
            transaction: TransactionBelief::Closed,
            number: 0,
            is_synced: true,
            prepared: PreparedNames::default(),
            copy: None,
        }
    }

    /// A connection whose client was let in and speaks SQLite's dialect: for simulations, whose clients only send
    /// queries.
    pub fn started(session: u64, dialect: Dialect) -> Self {
        PgConnection { phase: ConnectionPhase::Ready, dialect, ..PgConnection::new(session) }
    }

    /// A client that sends something else than lines knows that its COPY has failed, and what was open for it is not
    /// any more.
    fn leave_copy(&mut self) {
        if self.copy.take().is_some() && self.transaction == TransactionBelief::Implicit {
            (self.transaction, self.is_synced) = (TransactionBelief::Closed, true);
        }
    }

    /// The run of a query of the simple protocol.
    fn simple(&mut self, text: &str) -> ClientRun {
        let mut run = ClientRun::of_query(self.dialect, text);
        self.leave_copy();
        match deallocated(text) {
            Some(None) => self.prepared.forget_all(),
            Some(Some(name)) => self.prepared.forget(&name),
            None => {}
        }
        if !only_reads(text) {
            self.prepared.change_tables();
        }
        if copies_from_client(text) {
            run.parts = vec![RunPart::CopyBegin { statement: 0 }];
            self.copy = Some(text.into());
        }
        run
    }

    /// The request for what a client has sent up to where it waits.
    fn order(&mut self, mut run: ClientRun) -> Action {
        if run.bytes() > MAX_ORDERED_BYTES {
            let message = format!(
                "prepared statements and values up to a Sync have more than {MAX_ORDERED_BYTES} bytes"
            );
            run = refused(self.dialect, SqlError::new("54000", message, "Send a Sync more often."));
        }
        let before = self.transaction;
        self.transaction = self.look_ahead(&run);
        self.is_synced = run.is_synced();
        let request = if before == TransactionBelief::Closed && self.transaction == TransactionBelief::Closed
        {
            SqlRequest::Alone { reads: run.only_reads(), run }
        } else {
            let is_new = self.transaction == TransactionBelief::Open && before == TransactionBelief::Unknown;
            if before == TransactionBelief::Closed || is_new {
                self.number = 0;
            }
            let number = (before != TransactionBelief::Unknown).then_some(self.number);
            self.number = self.number.saturating_add(1);
            let is_open = matches!(before, TransactionBelief::Open | TransactionBelief::Implicit);
            SqlRequest::InTransaction { session: self.session, number, is_open, run }
        };
        if self.transaction == TransactionBelief::Closed {
            self.prepared.close_all();
        }
        Action::Order(to_bytes(&request))
    }

    /// What is to be believed of the transaction once a run is executed.
    fn look_ahead(&self, run: &ClientRun) -> TransactionBelief {
        use TransactionBelief::{Closed, Implicit, Open, Unknown};
        let mut belief = self.transaction;
        // A part that fails lets those behind it be skipped, up to the Sync.
        let mut is_certain = self.is_synced;
        for part in &run.parts {
            let text = run.statement_of(part).map_or("", |statement| &statement.text);
            let change = changes_transaction(text);
            if let RunPart::Query { .. } | RunPart::Execute { .. } = part {
                belief = match (change, belief) {
                    (Some(TransactionChange::Begin), Closed | Unknown) if is_certain => Open,
                    (Some(TransactionChange::Begin), Closed | Implicit) => Unknown,
                    (Some(TransactionChange::Commit | TransactionChange::RollBack), Open | Unknown)
                        if is_certain =>
                    {
                        Closed
                    }
                    (Some(TransactionChange::Commit | TransactionChange::RollBack), Open) => Unknown,
                    (_, belief) => belief,
                };
            }
            let cannot_fail = change.is_some_and(|change| change != TransactionChange::Commit)
                || matches!(part, RunPart::Close | RunPart::Sync);
            // Of COMMIT only its execution fails, and then no transaction is open.
            let is_prepared =
                change.is_some() && !matches!(part, RunPart::Query { .. } | RunPart::Execute { .. });
            is_certain &= cannot_fail || is_prepared;
        }
        match belief {
            Closed if !run.is_synced() => Implicit,
            Implicit if run.is_synced() => Closed,
            belief => belief,
        }
    }
}

impl Protocol for PgConnection {
    const ASKS_FOR_TLS: bool = true;
    /// A FATAL error, 53300.
    const TOO_MANY_CLIENTS: &'static [u8] =
        b"E\0\0\0\x3bSFATAL\0VFATAL\0C53300\0Msorry, too many clients already\0\0";

    fn next(&mut self, input: &[u8]) -> Progress {
        match self.phase {
            ConnectionPhase::Startup => return self.startup(input),
            ConnectionPhase::Login(_) => return self.log_in(input),
            ConnectionPhase::Ready => {}
        }
        let (kind, body, used) = match framed(input) {
            Framed::NeedMore(bytes) => return Progress::NeedMore(bytes),
            Framed::TooLong(bytes) => return too_long(input.len(), bytes),
            Framed::Message { kind, body, used } => (kind, body, used),
        };
        let action = match kind {
            b'X' => Action::Close(Vec::new()),
            b'Q' => {
                let is_closed = self.transaction == TransactionBelief::Closed;
                if let Some(request) = Fields::of(body).only_text().ok().and_then(FileRequest::parse)
                    && is_closed
                {
                    return Progress::Done {
                        used,
                        action: Action::Order(to_bytes(&SqlRequest::File(request))),
                    };
                }
                let run = match Fields::of(body).only_text() {
                    Ok(text) => self.simple(text),
                    Err(error) => refused(self.dialect, error),
                };
                self.order(run)
            }
            b'F' => {
                let error = SqlError::unsupported("calls of functions are not supported", "Use SELECT.");
                self.order(refused(self.dialect, error))
            }
            // PostgreSQL ignores both within a COPY.
            b'S' | b'H' if self.copy.is_some() => Action::Nothing,
            b'P' | b'B' | b'D' | b'E' | b'C' | b'S' | b'H' => {
                self.leave_copy();
                return self.collect(input);
            }
            b'd' | b'c' | b'f' => match self.copy.clone() {
                Some(text) => return self.collect_lines(&text, input),
                // Of a COPY that was refused.
                None => Action::Nothing,
            },
            _ => Action::Close(error(&SqlError::plain("08P01", "unknown kind of message"))),
        };
        Progress::Done { used, action }
    }

    fn is_let_in(&self) -> bool {
        self.phase == ConnectionPhase::Ready
    }

    /// A transaction that is open, or may be, ends with its connection.
    fn closed(&mut self) -> Option<Vec<u8>> {
        let may_be_open = self.transaction != TransactionBelief::Closed;
        may_be_open.then(|| to_bytes(&SqlRequest::Closed { session: self.session }))
    }

    /// A query, in front of what it was decoded to. Those that begin and end transactions have many forms.
    fn rendered(&self, input: &[u8], ordered: &[u8]) -> Option<usize> {
        let (run, is_same) = match from_bytes(ordered).ok()? {
            SqlRequest::Alone { run, reads } => {
                let is_same = self.transaction == TransactionBelief::Closed && reads == run.only_reads();
                (run, is_same)
            }
            SqlRequest::InTransaction { session, number, is_open, run } => {
                let is_same = (session, number) == (self.session, Some(self.number));
                (run, is_same && is_open && self.transaction == TransactionBelief::Open)
            }
            SqlRequest::Closed { .. } | SqlRequest::File(_) => return None,
        };
        let text = &run.statements.first()?.text;
        let used = text.len() + 6;
        let rest = input.get(..used)?.strip_prefix(b"Q")?.strip_prefix(&(used as u32 - 1).to_be_bytes())?;
        let is_query = rest.strip_suffix(b"\0")? == text.as_bytes() && changes_transaction(text).is_none();
        let is_query = is_query && deallocated(text).is_none() && self.copy.is_none();
        let is_same = is_same && run == ClientRun::of_query(self.dialect, text);
        (is_same && is_query && self.phase == ConnectionPhase::Ready).then_some(used)
    }
}

/// A run that is only an error.
fn refused(dialect: Dialect, error: SqlError) -> ClientRun {
    let parts = vec![RunPart::Refused(error), RunPart::Sync];
    ClientRun { dialect, statements: Vec::new(), portals: Vec::new(), parts }
}

/// The value of one of a client's parameters.
fn parameter<'a>(parameters: &'a [u8], name: &str) -> Option<&'a str> {
    let mut fields = Fields::of(parameters);
    loop {
        match (fields.text().ok()?, fields.text().ok()?) {
            (known, value) if known == name => return Some(value),
            _ => {}
        }
    }
}

fn welcome(code: u32) -> Vec<u8> {
    let mut reply = Vec::new();
    let mut out = ReplyWriter::new(&mut reply);
    if code != VERSION_3 {
        out.only_version(VERSION_3);
    }
    out.welcome(&PARAMETERS);
    out.ready(TransactionStatus::Idle);
    reply
}

fn error(error: &SqlError) -> Vec<u8> {
    let mut reply = Vec::new();
    ReplyWriter::new(&mut reply).error(error);
    reply
}

/// Where the next message begins is not known any more.
fn fatal(used: usize, why: &SqlError) -> Progress {
    Progress::Done { used, action: Action::Close(error(why)) }
}

fn too_long(used: usize, bytes: usize) -> Progress {
    let message = format!("a message has {bytes} bytes, and may have {MAX_MESSAGE_BYTES}");
    fatal(used, &SqlError::new("54000", message, "Send less at a time."))
}
