//! The command line's end of the admin protocol: one JSON line out, one JSON line back, with a deadline on every step.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crosscheck::admin::{Command, Refused};
use serde::de::DeserializeOwned;

/// Longest answer line that is believed, in bytes: evidence lists are the longest there are.
const LONGEST_ANSWER: u64 = 16 << 20;
/// A loopback listener that does not accept in this time is stopped or gone.
const CONNECT: Duration = Duration::from_millis(500);

/// Why a replica gave no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// Nobody listens, or it stopped answering: the replica is down, starting, or stopped by a signal.
    Silent(io::Error),
    /// The replica answered that it will not.
    Refused(String),
    /// The answer is not what this version of the protocol says.
    Garbled(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A read that timed out has the name of a socket that would block.
            NoAnswer::Silent(error) if error.kind() == io::ErrorKind::WouldBlock => {
                f.write_str("no answer in time")
            }
            NoAnswer::Silent(error) => write!(f, "no answer ({error})"),
            NoAnswer::Refused(why) => f.write_str(why),
            NoAnswer::Garbled(what) => write!(f, "an answer of another version: {what}"),
        }
    }
}

impl std::error::Error for NoAnswer {}

/// A connection to one replica's admin address, made when first needed and again after it broke.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Link {
    /// Connects nowhere yet.
    pub fn new(address: SocketAddr) -> Self {
        Link { address, stream: None }
    }

    /// Asks and waits at most `patience` for the answer.
    ///
    /// # Errors
    /// See [`NoAnswer`]; the connection is dropped, so that a late answer is never taken for the next one.
    pub fn ask<T: DeserializeOwned>(&mut self, command: &Command, patience: Duration) -> Result<T, NoAnswer> {
        let line = match self.exchange(command, patience) {
            Ok(line) => line,
            Err(error) => {
                self.stream = None;
                return Err(NoAnswer::Silent(error));
            }
        };
        if let Ok(Refused { error }) = serde_json::from_str(&line) {
            return Err(NoAnswer::Refused(error));
        }
        serde_json::from_str(&line).map_err(|error| {
            self.stream = None;
            NoAnswer::Garbled(error.to_string())
        })
    }

    fn exchange(&mut self, command: &Command, patience: Duration) -> io::Result<String> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(TcpStream::connect_timeout(&self.address, CONNECT.min(patience))?),
        };
        let stream = self.stream.insert(stream);
        stream.get_ref().set_nodelay(true)?;
        stream.get_ref().set_read_timeout(Some(patience))?;
        stream.get_ref().set_write_timeout(Some(patience))?;
        let mut question = serde_json::to_string(command)?;
        question.push('\n');
        stream.get_mut().write_all(question.as_bytes())?;
        let mut answer = String::new();
        Read::take(&mut *stream, LONGEST_ANSWER).read_line(&mut answer)?;
        if !answer.ends_with('\n') {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer"));
        }
        Ok(answer)
    }
}

/// Asks once, over a connection of its own.
///
/// # Errors
/// See [`NoAnswer`].
pub fn ask<T: DeserializeOwned>(
    address: SocketAddr,
    command: &Command,
    patience: Duration,
) -> Result<T, NoAnswer> {
    Link::new(address).ask(command, patience)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use crosscheck::admin::{Position, StateDigest};

    use super::*;

    /// Answers each line it is sent with the next of `answers`; an empty one closes the connection.
    fn replica_that_says(answers: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        thread::spawn(move || {
            let mut answers = answers.iter();
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.expect("a connection"));
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
                    match answers.next() {
                        Some(&"") | None => break,
                        Some(answer) => writeln!(stream.get_mut(), "{answer}").expect("sent"),
                    }
                }
            }
        });
        address
    }

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn answers_refusals_and_nonsense_are_told_apart() {
        let address = replica_that_says(&[
            r#"{"index":7,"ticket":2,"digest":"ab","objects":3}"#,
            r#"{"error":"not now"}"#,
            r#"{"index":"seven"}"#,
        ]);
        let mut link = Link::new(address);
        let digest: StateDigest = link.ask(&Command::Digest { at: None }, PATIENCE).expect("a digest");
        assert_eq!(
            digest,
            StateDigest { position: Position { index: 7, ticket: 2 }, digest: "ab".into(), objects: 3 }
        );
        let refused = link.ask::<StateDigest>(&Command::Digest { at: None }, PATIENCE).unwrap_err();
        assert!(matches!(&refused, NoAnswer::Refused(why) if why == "not now"), "{refused}");
        let garbled = link.ask::<StateDigest>(&Command::Digest { at: None }, PATIENCE).unwrap_err();
        assert!(matches!(garbled, NoAnswer::Garbled(_)), "{garbled}");
    }

    #[test]
    fn a_broken_connection_is_made_again() {
        let address = replica_that_says(&["", r#"{"index":1,"ticket":1,"digest":"","objects":0}"#]);
        let mut link = Link::new(address);
        let silent = link.ask::<StateDigest>(&Command::Digest { at: None }, PATIENCE).unwrap_err();
        assert!(matches!(silent, NoAnswer::Silent(_)), "{silent}");
        link.ask::<StateDigest>(&Command::Digest { at: None }, PATIENCE)
            .expect("the second connection answers");
    }

    #[test]
    fn a_replica_that_hangs_costs_only_the_patience() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let silent = ask::<StateDigest>(address, &Command::Digest { at: None }, Duration::from_millis(50))
            .unwrap_err();
        assert_eq!(silent.to_string(), "no answer in time");
    }
}
