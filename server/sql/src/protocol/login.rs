//! What happens before a client is let in: TLS, if there is a certificate, and the proof of its password, if there is a
//! password file.

use std::sync::Arc;

use crosscheck::{Action, Progress};

use super::messages::{Fields, Framed, framed};
use super::{ConnectionPhase, PgConnection, SQLITE, VERSION_3, error, fatal, parameter, welcome};
use crate::error::SqlError;
use crate::request::Dialect;
use crate::scram::{Challenge, MECHANISM, Users};

/// Bytes of a client's first message at most.
const MAX_STARTUP_BYTES: usize = 10_000;
/// Bytes of a message of the exchange at most: nobody has proved anything yet.
const MAX_LOGIN_BYTES: usize = 2048;
/// What a client's first message may ask for, besides a version.
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// What a client has to do before it is let in.
#[derive(Clone)]
pub(super) struct Guard {
    /// Who may come in; everybody if there are none.
    users: Option<Arc<Users>>,
    /// This side's part of the challenge.
    nonce: [u8; 18],
    /// A client must ask for TLS first.
    with_tls: bool,
    /// It has.
    has_tls: bool,
}

impl Guard {
    /// Who connects is let in.
    pub fn open() -> Self {
        Guard { users: None, nonce: [0; 18], with_tls: false, has_tls: false }
    }
}

impl PartialEq for Guard {
    fn eq(&self, other: &Self) -> bool {
        (self.nonce, self.with_tls, self.has_tls) == (other.nonce, other.with_tls, other.has_tls)
    }
}

impl Eq for Guard {}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("has_tls", &self.has_tls).finish_non_exhaustive()
    }
}

/// A client that has said who it is, and what else it has proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    user: String,
    /// The version of the protocol that it asked for.
    version: u32,
    challenge: Option<Challenge>,
}

impl PgConnection {
    /// Lets only these users in, whose challenge has a nonce that no other one has.
    #[must_use]
    pub fn guarded_by(mut self, users: Arc<Users>, nonce: [u8; 18]) -> Self {
        (self.guard.users, self.guard.nonce) = (Some(users), nonce);
        self
    }

    /// Lets only clients in that speak TLS.
    #[must_use]
    pub fn only_with_tls(mut self) -> Self {
        self.guard.with_tls = true;
        self
    }

    /// A client's first message: its length, what it asks for, and more.
    pub(super) fn startup(&mut self, input: &[u8]) -> Progress {
        let Some((length, code)) = input.first_chunk::<8>().map(|head| {
            let [a, b, c, d, e, f, g, h] = *head;
            (u32::from_be_bytes([a, b, c, d]) as usize, u32::from_be_bytes([e, f, g, h]))
        }) else {
            return Progress::NeedMore(8);
        };
        if !(8..=MAX_STARTUP_BYTES).contains(&length) {
            return fatal(
                input.len(),
                &SqlError::plain("08P01", "this is no client of PostgreSQL's protocol"),
            );
        }
        let Some(parameters) = input.get(8..length) else { return Progress::NeedMore(length) };
        let action = match code {
            SSL_REQUEST if self.guard.with_tls && !self.guard.has_tls => {
                self.guard.has_tls = true;
                Action::StartTls(b"S".to_vec())
            }
            // What is not offered: the client goes on without, or ends, as it was told to.
            SSL_REQUEST | GSS_REQUEST => Action::Reply(b"N".to_vec()),
            CANCEL_REQUEST => Action::Close(Vec::new()),
            code if code >> 16 == VERSION_3 >> 16 => self.begin(code, parameters),
            _ => {
                let hint = "Use a client that speaks version 3: every one since PostgreSQL 7.4 does.";
                return fatal(length, &SqlError::new("08P01", "unknown version of the protocol", hint));
            }
        };
        Progress::Done { used: length, action }
    }

    /// The client says who it is.
    fn begin(&mut self, version: u32, parameters: &[u8]) -> Action {
        if self.guard.with_tls && !self.guard.has_tls {
            let hint = "Connect with sslmode=require, or verify-full and the certificate's authority; \
                `dump` and `load` with --tls-ca.";
            return refuse(&SqlError::new("28000", "this port only serves clients with TLS", hint));
        }
        if parameter(parameters, "database") == Some(SQLITE) {
            self.dialect = Dialect::Sqlite;
        }
        if self.guard.users.is_none() {
            self.phase = ConnectionPhase::Ready;
            return Action::Reply(welcome(version));
        }
        let Some(user) = parameter(parameters, "user") else {
            return refuse(&SqlError::plain("28000", "no user name was given"));
        };
        let login = Login { user: user.to_owned(), version, challenge: None };
        self.phase = ConnectionPhase::Login(Box::new(login));
        Action::Reply(asking(10, &[MECHANISM.as_bytes(), b"\0\0"].concat()))
    }

    /// A message of the exchange.
    pub(super) fn log_in(&mut self, input: &[u8]) -> Progress {
        let (body, used) = match framed(input) {
            Framed::NeedMore(bytes) if bytes <= MAX_LOGIN_BYTES => return Progress::NeedMore(bytes),
            Framed::Message { kind: b'p', body, used } if used <= MAX_LOGIN_BYTES => (body, used),
            Framed::Message { kind, used, .. } if kind != b'p' => {
                return fatal(used, &SqlError::plain("08P01", "a password was expected"));
            }
            Framed::NeedMore(_) | Framed::TooLong(_) | Framed::Message { .. } => {
                return fatal(input.len(), &SqlError::plain("08P01", "the message is too long"));
            }
        };
        let action = match self.step(body) {
            Ok(reply) => Action::Reply(reply),
            Err(error) => refuse(&error),
        };
        Progress::Done { used, action }
    }

    fn step(&mut self, body: &[u8]) -> Result<Vec<u8>, SqlError> {
        let malformed = || SqlError::plain("08P01", "malformed SCRAM message");
        let (ConnectionPhase::Login(login), Some(users)) = (&mut self.phase, &self.guard.users) else {
            return Err(malformed());
        };
        let Some(challenge) = &login.challenge else {
            let mut fields = Fields::of(body);
            if fields.text()? != MECHANISM {
                let hint = "Use a client that knows SCRAM-SHA-256: libpq does since version 10.";
                return Err(SqlError::new("28000", "unknown way of logging in", hint));
            }
            let first = fields.value()?.and_then(|first| std::str::from_utf8(first).ok());
            let keys = users.keys(&login.user);
            let challenge = first.and_then(|first| Challenge::new(first, keys, &self.guard.nonce));
            let challenge = challenge.ok_or_else(malformed)?;
            let reply = asking(11, challenge.text().as_bytes());
            login.challenge = Some(challenge);
            return Ok(reply);
        };
        let last = std::str::from_utf8(body).map_err(|_| malformed())?;
        let Some(last) = challenge.accept(last) else {
            let message = format!("password authentication failed for user \"{}\"", login.user);
            return Err(SqlError::plain("28P01", message));
        };
        let reply = [asking(12, last.as_bytes()), welcome(login.version)].concat();
        self.phase = ConnectionPhase::Ready;
        Ok(reply)
    }
}

fn refuse(why: &SqlError) -> Action {
    Action::Close(error(why))
}

/// A step of logging in: 10 names the ways, 11 is a challenge, and 12 the end.
fn asking(step: u32, text: &[u8]) -> Vec<u8> {
    let length = (text.len() + 8) as u32;
    [b"R", &length.to_be_bytes()[..], &step.to_be_bytes(), text].concat()
}
