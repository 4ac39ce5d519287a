//! The client of the admin protocol: one JSON line out, one JSON line back, with a deadline on every step.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::{AdminCommand, AdminStream, Endpoint, Refused, line};
use crate::limits;

/// Longest answer line that is accepted, in bytes: evidence lists are the longest.
const LONGEST_ANSWER: u64 = 16 << 20;
/// A listener on this machine that does not accept in this time is stopped or has ended.
const CONNECT: Duration = Duration::from_millis(500);

/// The reason why a replica gave no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// No process listens, or it stopped answering: the replica is down, starting, or stopped by a signal.
    Silent(io::Error),
    /// The replica refused the command.
    Refused(String),
    /// The answer does not follow this version of the protocol.
    Garbled(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A read that timed out has the error kind of a socket that would block.
            NoAnswer::Silent(error) if error.kind() == io::ErrorKind::WouldBlock => {
                f.write_str("no answer in time")
            }
            NoAnswer::Silent(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "no answer ({error}); ask as the user that the replica runs as")
            }
            NoAnswer::Silent(error) => write!(f, "no answer ({error})"),
            NoAnswer::Refused(why) => f.write_str(why),
            NoAnswer::Garbled(what) => write!(f, "an answer of another version: {what}"),
        }
    }
}

impl std::error::Error for NoAnswer {}

/// Connects, and presents the endpoint's secret if it has one: the next line is a command. For callers that do not wait
/// for each answer; others use [`Link`].
///
/// # Errors
/// No process listens there, or this user has no access.
pub fn connect(endpoint: &Endpoint, patience: Duration) -> io::Result<AdminStream> {
    let mut stream = AdminStream::dial(endpoint, CONNECT.min(patience))?;
    stream.set_write_timeout(patience)?;
    if let Endpoint::Tcp { token, .. } = endpoint {
        stream.write_all(line::of_token(token).as_bytes())?;
    }
    Ok(stream)
}

/// A connection to one replica's admin endpoint, made when first needed and again after it broke.
#[derive(Debug)]
pub struct Link {
    endpoint: Endpoint,
    stream: Option<(BufReader<AdminStream>, Instant)>,
}

impl Link {
    /// A link that is not connected yet.
    pub fn new(endpoint: Endpoint) -> Self {
        Link { endpoint, stream: None }
    }

    /// Sends a command and waits at most `patience` for the answer.
    ///
    /// # Errors
    /// See [`NoAnswer`]; the connection is dropped, so that a late answer is never taken for the next one.
    pub fn ask<T: DeserializeOwned>(
        &mut self,
        command: &AdminCommand,
        patience: Duration,
    ) -> Result<T, NoAnswer> {
        let answer = self.exchange(&line::of_command(command), patience).map_err(NoAnswer::Silent)?;
        if let Ok(Refused { error }) = serde_json::from_str(&answer) {
            // After some refusals the replica ends the connection.
            self.stream = None;
            return Err(NoAnswer::Refused(error));
        }
        serde_json::from_str(&answer).map_err(|error| {
            self.stream = None;
            NoAnswer::Garbled(error.to_string())
        })
    }

    /// Sends one line, which ends with a newline, and waits at most `patience` for the line that answers it.
    ///
    /// # Errors
    /// No whole line comes; the connection is dropped.
    pub fn exchange(&mut self, line: &str, patience: Duration) -> io::Result<String> {
        // The replica will soon close a connection that was idle for so long.
        let kept = self.stream.take().filter(|(_, used)| used.elapsed() < limits::ADMIN_IDLE / 2);
        let mut stream = match kept {
            Some((stream, _)) => stream,
            None => BufReader::new(connect(&self.endpoint, patience)?),
        };
        stream.get_ref().set_read_timeout(patience)?;
        stream.get_ref().set_write_timeout(patience)?;
        let sent = stream.get_mut().write_all(line.as_bytes());
        if sent.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe) {
            sent?;
        }
        // A replica that closed the connection before the command may have sent the reason.
        let mut answer = String::new();
        Read::take(&mut stream, LONGEST_ANSWER).read_line(&mut answer)?;
        if !answer.ends_with('\n') {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer"));
        }
        self.stream = Some((stream, Instant::now()));
        Ok(answer)
    }
}

/// Sends one command over a connection of its own.
///
/// # Errors
/// See [`NoAnswer`].
pub fn ask<T: DeserializeOwned>(
    endpoint: &Endpoint,
    command: &AdminCommand,
    patience: Duration,
) -> Result<T, NoAnswer> {
    Link::new(endpoint.clone()).ask(command, patience)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use socket2::{Domain, SockAddr, Socket, Type};

    use super::*;
    use crate::admin::{Position, StateDigest};

    const PATIENCE: Duration = Duration::from_secs(5);
    const DIGEST: AdminCommand = AdminCommand::Digest { at: None };

    /// Answers each received line with the next of `answers`; an empty one closes the connection.
    fn replica_that_says(folder: &tempfile::TempDir, answers: &'static [&'static str]) -> Endpoint {
        let path = folder.path().join("admin.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
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
        Endpoint::unix(path).expect("a short path")
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a directory")
    }

    #[test]
    fn answers_refusals_and_nonsense_are_distinguished() {
        let folder = folder();
        let endpoint = replica_that_says(
            &folder,
            &[
                r#"{"index":7,"ticket":2,"digest":"ab","objects":3}"#,
                r#"{"error":"not now"}"#,
                r#"{"index":"seven"}"#,
            ],
        );
        let mut link = Link::new(endpoint);
        let digest: StateDigest = link.ask(&DIGEST, PATIENCE).expect("a digest");
        assert_eq!(
            digest,
            StateDigest { position: Position { index: 7, ticket: 2 }, digest: "ab".into(), objects: 3 }
        );
        let refused = link.ask::<StateDigest>(&DIGEST, PATIENCE).unwrap_err();
        assert!(matches!(&refused, NoAnswer::Refused(why) if why == "not now"), "{refused}");
        let garbled = link.ask::<StateDigest>(&DIGEST, PATIENCE).unwrap_err();
        assert!(matches!(garbled, NoAnswer::Garbled(_)), "{garbled}");
    }

    #[test]
    fn a_broken_connection_is_made_again() {
        let folder = folder();
        let endpoint = replica_that_says(&folder, &["", r#"{"index":1,"ticket":1,"digest":"","objects":0}"#]);
        let mut link = Link::new(endpoint);
        let silent = link.ask::<StateDigest>(&DIGEST, PATIENCE).unwrap_err();
        assert!(matches!(silent, NoAnswer::Silent(_)), "{silent}");
        link.ask::<StateDigest>(&DIGEST, PATIENCE).expect("the second connection answers");
    }

    #[test]
    fn a_replica_that_hangs_costs_only_the_patience() {
        let folder = folder();
        let path = folder.path().join("admin.sock");
        let _accepts_nothing = UnixListener::bind(&path).expect("a socket");
        let endpoint = Endpoint::unix(path).expect("a short path");
        let silent = ask::<StateDigest>(&endpoint, &DIGEST, Duration::from_millis(50)).unwrap_err();
        assert_eq!(silent.to_string(), "no answer in time");
    }

    #[test]
    fn a_full_queue_of_connections_costs_only_the_patience() {
        let folder = folder();
        let path = folder.path().join("admin.sock");
        let accepts_nothing = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        accepts_nothing.bind(&SockAddr::unix(&path).expect("an address")).expect("bound");
        accepts_nothing.listen(1).expect("a queue of one or two");
        let endpoint = Endpoint::unix(path).expect("a short path");
        let mut queued = Vec::new();
        let refused = loop {
            match connect(&endpoint, Duration::from_millis(20)) {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
            assert!(queued.len() < 8, "the queue has no bound");
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock, "{refused}");
    }
}
