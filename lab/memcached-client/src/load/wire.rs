//! Compares what a connection receives with the possible replies, and stops at the first wrong byte.

use std::net::SocketAddr;
use std::time::Duration;

use crate::connection::{BufferedStream, is_timeout};
use crate::pattern::{Match, Pattern, shown};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(2);

/// Why an exchange ended without a right reply.
#[derive(Debug)]
pub enum ExchangeFailure {
    /// The connection is lost, or silent for too long: the command may have been executed, or not.
    Lost { timeout: bool },
    /// The server sent `SERVER_ERROR`: no answer, and not a wrong one.
    Refused(String),
    /// A byte that no right reply has.
    Wrong { received: String, expected: String },
}

/// A connection whose replies are compared.
#[derive(Debug)]
pub struct Wire(BufferedStream);

impl Wire {
    /// Connects; every later wait for the server ends after `patience`.
    pub fn connect(server: SocketAddr, patience: Duration) -> std::io::Result<Wire> {
        BufferedStream::open(server, patience.min(CONNECT), patience).map(Wire)
    }

    /// Sends requests.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), ExchangeFailure> {
        self.0.send(bytes).map_err(|error| lost(&error))
    }

    /// Reads until the matching replies are known exactly: their indexes in `alternatives`, and captured numbers.
    /// An empty alternative fits when no other does, and consumes nothing.
    pub fn next(&mut self, alternatives: &[&Pattern]) -> Result<Vec<(usize, Option<u64>)>, ExchangeFailure> {
        loop {
            let unread = self.0.unread();
            let mut fits = Vec::new();
            let mut end = 0;
            let mut open = false;
            for (place, pattern) in alternatives.iter().enumerate() {
                match pattern.compare(unread) {
                    Match::Full(0, _) => {}
                    Match::Full(length, number) => {
                        fits.push((place, number));
                        end = length;
                    }
                    Match::Partial => open = true,
                    Match::No => {}
                }
            }
            if !fits.is_empty() {
                self.0.take(end);
                return Ok(fits);
            }
            // An empty alternative means "nothing more of this kind", so the following bytes must be received first.
            let may_be_empty = alternatives.iter().any(|pattern| pattern.is_empty());
            if !open && may_be_empty && !unread.is_empty() {
                let empty = (0..alternatives.len()).filter(|&place| alternatives[place].is_empty());
                return Ok(empty.map(|place| (place, None)).collect());
            }
            if !open && !unread.is_empty() {
                refused_or_wrong(unread, alternatives)?;
            }
            self.0.fill().map_err(|error| lost(&error))?;
        }
    }

    /// Whether the server has sent bytes that answer no request.
    pub fn has_leftovers(&self) -> bool {
        !self.0.unread().is_empty()
    }
}

fn refused_or_wrong(unread: &[u8], alternatives: &[&Pattern]) -> Result<(), ExchangeFailure> {
    const REFUSAL: &[u8] = b"SERVER_ERROR ";
    let common = REFUSAL.len().min(unread.len());
    if REFUSAL[..common] == unread[..common] {
        let Some(end) = unread.windows(2).position(|pair| pair == b"\r\n") else { return Ok(()) };
        return Err(ExchangeFailure::Refused(String::from_utf8_lossy(&unread[..end]).into_owned()));
    }
    let expected: Vec<String> = alternatives.iter().take(4).map(|pattern| pattern.shown()).collect();
    Err(ExchangeFailure::Wrong { received: shown(unread), expected: expected.join("  or  ") })
}

fn lost(error: &std::io::Error) -> ExchangeFailure {
    ExchangeFailure::Lost { timeout: is_timeout(error) }
}
