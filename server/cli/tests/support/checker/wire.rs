//! One client connection that compares replies with the possible ones, and stops at the first wrong byte.

use super::pattern::{Match, Pattern, shown};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Why an exchange ended without a right reply.
#[derive(Debug)]
pub enum Failure {
    /// The connection is lost, or silent for too long: the command may have been executed, or not.
    Lost { timeout: bool },
    /// The server sent `SERVER_ERROR`: no answer, and not a wrong one.
    Refused(String),
    /// A byte that no right reply has.
    Wrong { received: String, expected: String },
}

/// A connection and what was received on it but not yet judged.
pub struct Wire {
    stream: TcpStream,
    received: Vec<u8>,
    at: usize,
}

impl Wire {
    /// Connects; every later wait for the server ends after `patience`.
    pub fn connect(server: SocketAddr, patience: Duration) -> std::io::Result<Wire> {
        let stream = TcpStream::connect_timeout(&server, patience.min(Duration::from_secs(2)))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Wire { stream, received: Vec::new(), at: 0 })
    }

    /// Sends requests.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(bytes).map_err(|error| lost(&error))
    }

    /// Reads until the matching replies are known exactly: their indexes in `alternatives`, and captured numbers.
    /// An empty alternative fits when no other does, and consumes nothing.
    pub fn next(&mut self, alternatives: &[&Pattern]) -> Result<Vec<(usize, Option<u64>)>, Failure> {
        loop {
            let unread = &self.received[self.at..];
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
                self.at += end;
                return Ok(fits);
            }
            // An empty alternative means "nothing more of this kind", so the following bytes must be received first.
            let may_be_empty = alternatives.iter().any(|pattern| pattern.is_empty());
            if !open && may_be_empty && !unread.is_empty() {
                let empty = (0..alternatives.len()).filter(|&place| alternatives[place].is_empty());
                return Ok(empty.map(|place| (place, None)).collect());
            }
            if !open && !unread.is_empty() {
                self.refused_or_wrong(alternatives)?;
            }
            self.fill()?;
        }
    }

    /// Whether the server has sent bytes that answer no request.
    pub fn has_leftovers(&self) -> bool {
        self.at < self.received.len()
    }

    fn refused_or_wrong(&self, alternatives: &[&Pattern]) -> Result<(), Failure> {
        const REFUSAL: &[u8] = b"SERVER_ERROR ";
        let unread = &self.received[self.at..];
        let common = REFUSAL.len().min(unread.len());
        if REFUSAL[..common] == unread[..common] {
            let Some(end) = unread.windows(2).position(|pair| pair == b"\r\n") else { return Ok(()) };
            return Err(Failure::Refused(String::from_utf8_lossy(&unread[..end]).into_owned()));
        }
        let expected: Vec<String> = alternatives.iter().take(4).map(|pattern| pattern.shown()).collect();
        Err(Failure::Wrong { received: shown(unread), expected: expected.join("  or  ") })
    }

    fn fill(&mut self) -> Result<(), Failure> {
        if self.at == self.received.len() {
            self.received.clear();
            self.at = 0;
        }
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Failure::Lost { timeout: false }),
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) => Err(lost(&error)),
        }
    }
}

fn lost(error: &std::io::Error) -> Failure {
    let timeout = matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
    Failure::Lost { timeout }
}
