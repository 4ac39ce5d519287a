//! memcached's text protocol, one request and its reply at a time; every byte of a reply is checked.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::history::{Bytes, Compared};

/// Longest line and longest value that are accepted.
const LONGEST: usize = 1 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub enum Trouble {
    /// The connection ended, or no bytes came in time.
    Lost(io::Error),
    /// The server answered with an error.
    Refused(String),
    /// Bytes that are no answer to what was asked.
    Nonsense(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Lost(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Lost(error) => write!(f, "{error}"),
            Trouble::Refused(line) => f.write_str(line),
            Trouble::Nonsense(what) => write!(f, "not an answer: {what}"),
        }
    }
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its bytes.
    pub bytes: Bytes,
    /// Its unique number, which `gets` gives.
    pub unique: u64,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Connects; every later step waits at most `patience`.
    ///
    /// # Errors
    /// The server does not accept in time.
    pub fn open(address: SocketAddr, patience: Duration, reply: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(reply))?;
        stream.set_write_timeout(Some(reply))?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// `gets` of some keys; the values in their order.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub fn gets(&mut self, keys: &[String]) -> Result<Vec<Option<Found>>, Trouble> {
        self.send(format!("gets {}\r\n", keys.join(" ")).as_bytes())?;
        let mut found: Vec<Option<Found>> = vec![None; keys.len()];
        let mut next = 0;
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(found);
            }
            let (key, found_one) = self.value(&line)?;
            // Values come in the order of the keys; what was not found is left out.
            let place = keys[next..].iter().position(|wanted| *wanted == key);
            let Some(place) = place else {
                return Err(Trouble::Nonsense(format!("the value of {key:?}, which was not asked for")));
            };
            found[next + place] = Some(found_one);
            next += place + 1;
        }
    }

    fn value(&mut self, line: &str) -> Result<(String, Found), Trouble> {
        let words: Vec<&str> = line.split(' ').collect();
        let &["VALUE", key, flags, length, unique] = words.as_slice() else { return Err(unexpected(line)) };
        let (Ok(length), Ok(unique), "0") = (length.parse::<usize>(), unique.parse(), flags) else {
            return Err(Trouble::Nonsense(line.to_owned()));
        };
        if length > LONGEST {
            return Err(Trouble::Nonsense(line.to_owned()));
        }
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        if !bytes.ends_with(b"\r\n") {
            return Err(Trouble::Nonsense(format!("{line}, and a value that does not end there")));
        }
        bytes.truncate(length);
        Ok((key.to_owned(), Found { bytes: bytes.into(), unique }))
    }

    /// `set`, `add`, `replace` or `append`: whether it stored.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub fn store(&mut self, verb: &str, key: &str, value: &[u8]) -> Result<bool, Trouble> {
        self.send(&with_value(&format!("{verb} {key} 0 0 {}", value.len()), value))?;
        match self.line()?.as_str() {
            "STORED" => Ok(true),
            "NOT_STORED" if verb != "set" => Ok(false),
            other => Err(unexpected(other)),
        }
    }

    /// `cas` with the number that `gets` gave.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub fn cas(&mut self, key: &str, value: &[u8], unique: u64) -> Result<Compared, Trouble> {
        self.send(&with_value(&format!("cas {key} 0 0 {} {unique}", value.len()), value))?;
        match self.line()?.as_str() {
            "STORED" => Ok(Compared::Stored),
            "EXISTS" => Ok(Compared::Exists),
            "NOT_FOUND" => Ok(Compared::Missing),
            other => Err(unexpected(other)),
        }
    }

    /// `delete`: whether something was there.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub fn delete(&mut self, key: &str) -> Result<bool, Trouble> {
        self.send(format!("delete {key}\r\n").as_bytes())?;
        match self.line()?.as_str() {
            "DELETED" => Ok(true),
            "NOT_FOUND" => Ok(false),
            other => Err(unexpected(other)),
        }
    }

    /// `incr`: the new number; none when nothing was there.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub fn incr(&mut self, key: &str, by: u64) -> Result<Option<u64>, Trouble> {
        self.send(format!("incr {key} {by}\r\n").as_bytes())?;
        match self.line()?.as_str() {
            "NOT_FOUND" => Ok(None),
            other => other.parse().map(Some).map_err(|_| unexpected(other)),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        if !self.stream.buffer().is_empty() {
            let early = String::from_utf8_lossy(self.stream.buffer()).into_owned();
            return Err(Trouble::Nonsense(format!("{early:?} before anything was asked")));
        }
        Ok(self.stream.get_mut().write_all(bytes)?)
    }

    fn line(&mut self) -> Result<String, Trouble> {
        let mut line = Vec::new();
        Read::take(&mut self.stream, LONGEST as u64).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(Trouble::Lost(io::ErrorKind::UnexpectedEof.into()));
        }
        let text = String::from_utf8_lossy(&line);
        match text.strip_suffix("\r\n") {
            Some(whole) => Ok(whole.to_owned()),
            // Cut short by the end of the connection.
            None if !line.ends_with(b"\n") => Err(Trouble::Lost(io::ErrorKind::UnexpectedEof.into())),
            None => Err(Trouble::Nonsense(text.into_owned())),
        }
    }
}

fn with_value(line: &str, value: &[u8]) -> Vec<u8> {
    [line.as_bytes(), b"\r\n", value, b"\r\n"].concat()
}

fn unexpected(line: &str) -> Trouble {
    if line.starts_with("SERVER_ERROR") {
        Trouble::Refused(line.to_owned())
    } else {
        Trouble::Nonsense(line.to_owned())
    }
}
