//! PostgreSQL's protocol, version 3, as far as queries without parameters: what a connection's bytes ask for
//! (PostgreSQL's documentation, *Frontend/Backend Protocol*).
//!
//! The parser is total and bounded. What is not supported is answered by an error that says what to do instead, and the
//! connection goes on at the next `Sync`, as PostgreSQL's does.

use crosscheck::object::{from_bytes, to_bytes};
use crosscheck::{Action, Progress, Protocol};

use crate::file_request::FileRequest;
use crate::query::{TransactionChange, changes_transaction};
use crate::reply::{ReplyWriter, SqlError, TransactionStatus};
use crate::request::SqlRequest;

/// Bytes of a message at most, with its length.
pub const MAX_MESSAGE_BYTES: usize = (1 << 20) - 64;
/// Bytes of a client's first message at most.
const MAX_STARTUP_BYTES: usize = 10_000;
/// What a client's first message may ask for.
const VERSION_3: u32 = 3 << 16;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// What clients are told about the server.
const PARAMETERS: [(&str, &str); 8] = [
    ("server_version", "15.0"),
    ("server_encoding", "UTF8"),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "UTC"),
    ("integer_datetimes", "on"),
    ("standard_conforming_strings", "on"),
    ("IntervalStyle", "postgres"),
];

/// One client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgConnection {
    phase: ConnectionPhase,
    /// Its number, which no other connection of the group has.
    session: u64,
    /// How many queries it has sent of the transaction that it has begun, and not ended.
    transaction: Option<u32>,
    /// A message of the transaction was refused here, so it has failed.
    is_refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    /// The client has yet to say what it wants.
    Startup,
    /// Queries are expected.
    Ready,
    /// A message was refused: what follows is skipped up to `Sync`.
    Skipping,
}

impl PgConnection {
    /// A connection that was just accepted, with a number that no other one has.
    pub fn new(session: u64) -> Self {
        PgConnection { phase: ConnectionPhase::Startup, session, transaction: None, is_refused: false }
    }

    /// A connection whose client was let in: for simulations, whose clients only send queries.
    pub fn started(session: u64) -> Self {
        PgConnection { phase: ConnectionPhase::Ready, ..PgConnection::new(session) }
    }

    /// A client's first message: its length, what it asks for, and more.
    fn startup(&mut self, input: &[u8]) -> Progress {
        let Some((length, code)) = input.first_chunk::<8>().map(|head| {
            let [a, b, c, d, e, f, g, h] = *head;
            (u32::from_be_bytes([a, b, c, d]) as usize, u32::from_be_bytes([e, f, g, h]))
        }) else {
            return Progress::NeedMore(8);
        };
        if !(8..=MAX_STARTUP_BYTES).contains(&length) {
            return fatal(input.len(), "08P01", "this is no client of PostgreSQL's protocol", None);
        }
        if input.len() < length {
            return Progress::NeedMore(length);
        }
        let action = match code {
            // Encryption is not offered: the client goes on without, or ends, as it was told to.
            SSL_REQUEST | GSS_REQUEST => Action::Reply(b"N".to_vec()),
            CANCEL_REQUEST => Action::Close(Vec::new()),
            code if code >> 16 == VERSION_3 >> 16 => {
                self.phase = ConnectionPhase::Ready;
                let mut reply = Vec::new();
                let mut out = ReplyWriter::new(&mut reply);
                if code != VERSION_3 {
                    out.only_version(VERSION_3);
                }
                out.welcome(&PARAMETERS);
                out.ready(TransactionStatus::Idle);
                Action::Reply(reply)
            }
            _ => {
                let hint = Some("Use a client that speaks version 3: every one since PostgreSQL 7.4 does.");
                return fatal(length, "08P01", "unknown version of the protocol", hint);
            }
        };
        Progress::Done { used: length, action }
    }

    /// What a query asks for. It is the client's word that a transaction is open: one that was given up meanwhile must
    /// not go on as queries of their own.
    fn query(&mut self, text: &str) -> Action {
        if let Some(request) = FileRequest::parse(text).filter(|_| self.transaction.is_none()) {
            return Action::Order(to_bytes(&SqlRequest::File(request)));
        }
        let session = self.session;
        let change = changes_transaction(text);
        let request = match (change, self.transaction) {
            (Some(TransactionChange::Begin), None) => {
                self.transaction = Some(0);
                SqlRequest::Begin { session }
            }
            (Some(TransactionChange::Commit | TransactionChange::RollBack), Some(number)) => {
                let commits = change == Some(TransactionChange::Commit) && !self.is_refused;
                (self.transaction, self.is_refused) = (None, false);
                SqlRequest::End { session, number, commits }
            }
            (_, Some(_)) if self.is_refused => {
                return self.refuse(&SqlError::aborted());
            }
            (_, Some(number)) => {
                self.transaction = Some(number.saturating_add(1));
                SqlRequest::Step { session, number, text: text.to_owned() }
            }
            (_, None) => SqlRequest::query(text),
        };
        Action::Order(to_bytes(&request))
    }

    /// An error, and the end of a reply. A transaction has failed with it.
    fn refuse(&mut self, why: &SqlError) -> Action {
        self.is_refused = self.transaction.is_some();
        let mut reply = error(why);
        reply.extend_from_slice(&ready(self.status()));
        Action::Reply(reply)
    }

    /// What the end of a reply says that needs no request.
    fn status(&self) -> TransactionStatus {
        match self.transaction {
            None => TransactionStatus::Idle,
            Some(_) if self.is_refused => TransactionStatus::Failed,
            Some(_) => TransactionStatus::Open,
        }
    }

    fn message(&mut self, kind: u8, body: &[u8]) -> Action {
        match kind {
            b'X' => Action::Close(Vec::new()),
            b'S' => {
                self.phase = ConnectionPhase::Ready;
                Action::Reply(ready(self.status()))
            }
            // Flush: every reply leaves at once.
            b'H' => Action::Nothing,
            _ if self.phase == ConnectionPhase::Skipping => Action::Nothing,
            b'Q' => match query(body) {
                Ok(text) => self.query(text),
                Err(message) => {
                    self.refuse(&SqlError { code: "22021", message: message.to_owned(), hint: None })
                }
            },
            b'P' | b'B' | b'D' | b'E' | b'C' => {
                self.phase = ConnectionPhase::Skipping;
                self.is_refused = self.transaction.is_some();
                let hint =
                    "Send queries without parameters, by the simple protocol: psycopg2, `pgbench -M simple`.";
                Action::Reply(error(&SqlError::new("0A000", "prepared statements are not supported", hint)))
            }
            b'F' => {
                self.refuse(&SqlError::new("0A000", "calls of functions are not supported", "Use SELECT."))
            }
            _ => Action::Close(error(&SqlError {
                code: "08P01",
                message: "unknown kind of message".to_owned(),
                hint: None,
            })),
        }
    }
}

impl Protocol for PgConnection {
    fn next(&mut self, input: &[u8]) -> Progress {
        if self.phase == ConnectionPhase::Startup {
            return self.startup(input);
        }
        let [kind, a, b, c, d, ..] = *input else { return Progress::NeedMore(5) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if !(4..=MAX_MESSAGE_BYTES).contains(&length) {
            let message = format!("a message has {length} bytes, and may have {MAX_MESSAGE_BYTES}");
            return fatal(input.len(), "54000", &message, Some("Send less at a time."));
        }
        match input.get(5..1 + length) {
            Some(body) => Progress::Done { used: 1 + length, action: self.message(kind, body) },
            None => Progress::NeedMore(1 + length),
        }
    }

    /// A query, in front of what it was decoded to. Those that begin and end transactions have many forms.
    fn rendered(&self, input: &[u8], ordered: &[u8]) -> Option<usize> {
        let (text, is_same) = match from_bytes(ordered).ok()? {
            SqlRequest::Query { text, reads } => {
                let is_same = self.transaction.is_none() && reads == crate::query::only_reads(&text);
                (text, is_same)
            }
            SqlRequest::Step { session, number, text } => {
                (text, self.transaction == Some(number) && session == self.session && !self.is_refused)
            }
            SqlRequest::Begin { .. }
            | SqlRequest::End { .. }
            | SqlRequest::Expire { .. }
            | SqlRequest::File(_) => return None,
        };
        let used = text.len() + 6;
        let rest = input.get(..used)?.strip_prefix(b"Q")?.strip_prefix(&(used as u32 - 1).to_be_bytes())?;
        let is_query = rest.strip_suffix(b"\0")? == text.as_bytes() && changes_transaction(&text).is_none();
        (is_same && is_query && self.phase == ConnectionPhase::Ready).then_some(used)
    }
}

/// The text of a query: it ends with a zero, and has none before.
fn query(body: &[u8]) -> Result<&str, &'static str> {
    let text = body.strip_suffix(b"\0").filter(|text| !text.contains(&0));
    let text = text.ok_or("a query ends with its only zero byte")?;
    std::str::from_utf8(text).map_err(|_| "a query is text in UTF-8")
}

fn ready(status: TransactionStatus) -> Vec<u8> {
    let mut reply = Vec::new();
    ReplyWriter::new(&mut reply).ready(status);
    reply
}

fn error(error: &SqlError) -> Vec<u8> {
    let mut reply = Vec::new();
    ReplyWriter::new(&mut reply).error(error);
    reply
}

/// Where the next message begins is not known any more.
fn fatal(used: usize, code: &'static str, message: &str, hint: Option<&str>) -> Progress {
    let why = SqlError { code, message: message.to_owned(), hint: hint.map(str::to_owned) };
    Progress::Done { used, action: Action::Close(error(&why)) }
}
