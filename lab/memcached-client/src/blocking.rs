//! A blocking memcached client (text protocol). Every byte of a reply is checked against what the request
//! allows; a reply that no memcached server gives is a [`Failure::Malformed`], never a value.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::connection::BufferedStream;
use crate::reply::{self, LONGEST, TakenReply, TextReply, ValueRead};
use crate::request::{KeyCommand, StoreVerb, write_get};

/// Why a request has no reply that counts.
#[derive(Debug)]
pub enum Failure {
    /// The connection broke or timed out, perhaps within a reply: whether the request was executed is unknown.
    Connection(io::Error),
    /// The server answered `SERVER_ERROR`; the whole line.
    Refused(String),
    /// Bytes that are no reply to this request.
    Malformed(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connection(error) => write!(f, "connection: {error}"),
            Failure::Refused(line) => write!(f, "server: {line}"),
            Failure::Malformed(what) => write!(f, "malformed reply: {what}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Connection(error)
    }
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The client flags it was stored with.
    pub flags: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The number for `cas`; 0 in the reply to a `get`, which has none.
    pub unique: u64,
}

/// The reply to a `cas`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum CasReply {
    /// The number was the current one: stored.
    Stored,
    /// The value has changed since.
    Exists,
    /// There is no such key.
    Missing,
}

/// One connection. Requests are queued, sent together by [`Client::flush`], and answered in their order.
#[derive(Debug)]
pub struct Client {
    connection: BufferedStream,
    queued: Vec<u8>,
}

impl Client {
    /// Connects; this and every later step wait at most `timeout`.
    ///
    /// # Errors
    /// The server does not accept in time.
    pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        Client::connect_within(address, timeout, timeout)
    }

    /// Connects within `connect`; every reply is waited for at most `reply`.
    ///
    /// # Errors
    /// The server does not accept in time.
    pub fn connect_within(address: SocketAddr, connect: Duration, reply: Duration) -> io::Result<Self> {
        Ok(Client { connection: BufferedStream::open(address, connect, reply)?, queued: Vec::new() })
    }

    /// Queues a request in its classic syntax.
    pub fn queue(&mut self, key: impl AsRef<[u8]>, command: KeyCommand<'_>) {
        command.classic().write(key.as_ref(), &mut self.queued);
    }

    /// Sends the queued requests.
    ///
    /// # Errors
    /// [`Failure::Connection`] when the connection broke, [`Failure::Malformed`] when the server has already sent bytes
    /// that answer no request.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let unread = self.connection.unread();
        if !unread.is_empty() {
            let unread = String::from_utf8_lossy(unread).into_owned();
            return Err(Failure::Malformed(format!("{unread:?} before any request")));
        }
        let sent = self.connection.send(&self.queued);
        self.queued.clear();
        Ok(sent?)
    }

    /// Takes the next reply, and makes of it what `read` says; none is a reply to another request. A reply that the end
    /// of the connection cuts short is none: the server may have been killed while it wrote.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn take<T>(
        &mut self,
        read: impl FnOnce(TextReply<'_>) -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        loop {
            let unread = self.connection.unread();
            match reply::take(unread, LONGEST) {
                TakenReply::Incomplete => self.connection.fill()?,
                TakenReply::Malformed(why) => {
                    let head = String::from_utf8_lossy(&unread[..unread.len().min(200)]);
                    return Err(Failure::Malformed(format!("{head:?}: {why}")));
                }
                TakenReply::Whole(length, whole) => {
                    let taken = match (read(whole)?, whole) {
                        (Some(taken), _) => Ok(taken),
                        (None, TextReply::Error(line)) => Err(unexpected(line)),
                        (None, _) => Err(unexpected(&unread[..length])),
                    };
                    self.connection.take(length);
                    return taken;
                }
            }
        }
    }

    /// Sends one request, and takes its reply.
    fn once<T>(
        &mut self,
        key: &str,
        command: KeyCommand<'_>,
        read: impl FnOnce(TextReply<'_>) -> Option<T>,
    ) -> Result<T, Failure> {
        self.queue(key, command);
        self.flush()?;
        self.take(|reply| Ok(read(reply)))
    }

    /// Takes the values of `keys`, in their order.
    fn take_values<K: AsRef<str>>(&mut self, keys: &[K]) -> Result<Vec<Option<Value>>, Failure> {
        self.take(|reply| {
            let TextReply::Values(found) = reply else { return Ok(None) };
            let mut values: Vec<Option<Value>> = vec![None; keys.len()];
            let mut next = 0;
            for read in found {
                // Values come in the order of the keys; a key that has none is left out.
                let wanted = keys[next..].iter().position(|wanted| wanted.as_ref().as_bytes() == read.key);
                let (Some(place), Some(value)) = (wanted, Value::of(&read)) else {
                    let key = String::from_utf8_lossy(read.key);
                    return Err(Failure::Malformed(format!("the value of {key:?}, which was not asked for")));
                };
                values[next + place] = Some(value);
                next += place + 1;
            }
            Ok(Some(values))
        })
    }

    /// Takes the reply to a `set`.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn take_stored(&mut self) -> Result<(), Failure> {
        self.take(|reply| Ok(reply.is("STORED").then_some(())))
    }

    /// Takes the reply to a `get` of `key`.
    ///
    /// # Errors
    /// See [`Failure`]; the value of another key is [`Failure::Malformed`].
    pub fn take_value(&mut self, key: &str) -> Result<Option<Value>, Failure> {
        Ok(self.take_values(&[key])?.pop().flatten())
    }

    /// Queues `set`, without expiry.
    pub fn queue_set(&mut self, key: &str, flags: u32, value: &[u8]) {
        let value = Cow::Borrowed(value);
        self.queue(key, KeyCommand::Store { verb: StoreVerb::Set, flags, expiry: 0, value });
    }

    /// `set`, with its reply.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn set(&mut self, key: &str, flags: u32, value: &[u8]) -> Result<(), Failure> {
        self.queue_set(key, flags, value);
        self.flush()?;
        self.take_stored()
    }

    /// `get`, with its reply.
    ///
    /// # Errors
    /// See [`Failure`]; the value of another key is [`Failure::Malformed`].
    pub fn get(&mut self, key: &str) -> Result<Option<Value>, Failure> {
        self.queue(key, KeyCommand::GET);
        self.flush()?;
        self.take_value(key)
    }

    /// `gets` of some keys; the values in the order of the keys.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn gets(&mut self, keys: &[String]) -> Result<Vec<Option<Value>>, Failure> {
        write_get(true, keys, &mut self.queued);
        self.flush()?;
        self.take_values(keys)
    }

    /// Stores a value with flags 0 and without expiry; whether the server stored it.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn store(&mut self, verb: StoreVerb, key: &str, value: &[u8]) -> Result<bool, Failure> {
        self.once(key, KeyCommand::store(verb, value), |reply| match reply {
            TextReply::Word(b"STORED") => Some(true),
            TextReply::Word(b"NOT_STORED") if verb != StoreVerb::Set => Some(false),
            _ => None,
        })
    }

    /// `cas` with the number from [`Client::gets`].
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn cas(&mut self, key: &str, value: &[u8], unique: u64) -> Result<CasReply, Failure> {
        let command = KeyCommand::Cas { unique, flags: 0, expiry: 0, value: Cow::Borrowed(value) };
        self.once(key, command, |reply| match reply {
            TextReply::Word(b"STORED") => Some(CasReply::Stored),
            TextReply::Word(b"EXISTS") => Some(CasReply::Exists),
            TextReply::Word(b"NOT_FOUND") => Some(CasReply::Missing),
            _ => None,
        })
    }

    /// `delete`: whether there was such a key.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn delete(&mut self, key: &str) -> Result<bool, Failure> {
        self.once(key, KeyCommand::Delete, |reply| match reply {
            TextReply::Word(b"DELETED") => Some(true),
            TextReply::Word(b"NOT_FOUND") => Some(false),
            _ => None,
        })
    }

    /// `stats behavior`, which servers of the laboratory know: the behavior as which their group acts.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn behavior(&mut self) -> Result<u16, Failure> {
        self.queued.extend_from_slice(b"stats behavior\r\n");
        self.flush()?;
        self.take(|reply| match reply {
            TextReply::Number(digits) => {
                Ok(reply::number(digits).and_then(|number| u16::try_from(number).ok()))
            }
            _ => Ok(None),
        })
    }

    /// `incr`: the new number, or `None` when there is no such key.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn incr(&mut self, key: &str, by: u64) -> Result<Option<u64>, Failure> {
        self.once(key, KeyCommand::Count { up: true, by }, |reply| match reply {
            TextReply::Number(digits) => reply::number(digits).map(Some),
            TextReply::Word(b"NOT_FOUND") => Some(None),
            _ => None,
        })
    }
}

impl Value {
    /// None where a number is larger than the protocol's.
    fn of(read: &ValueRead<'_>) -> Option<Self> {
        Some(Value {
            flags: u32::try_from(reply::number(read.flags)?).ok()?,
            bytes: read.data.to_vec(),
            unique: read.unique.map_or(Some(0), reply::number)?,
        })
    }
}

fn unexpected(line: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(line).into_owned();
    if line.starts_with(b"SERVER_ERROR") { Failure::Refused(text) } else { Failure::Malformed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::server_that_answers;

    fn client_of(answer: &'static [u8]) -> Client {
        Client::connect(server_that_answers(answer), Duration::from_secs(5)).expect("connected")
    }

    #[test]
    fn a_value_is_read_with_every_byte() {
        let mut client = client_of(b"VALUE k 7 4\r\na\r\nb\r\nEND\r\n");
        let value = client.get("k").expect("a reply").expect("a value");
        assert_eq!(value, Value { flags: 7, bytes: b"a\r\nb".to_vec(), unique: 0 });
        assert_eq!(client_of(b"END\r\n").get("k").expect("a reply"), None);
    }

    #[test]
    fn several_values_are_assigned_to_their_keys() {
        let keys = ["a", "b", "c"].map(str::to_owned);
        let mut client = client_of(b"VALUE a 0 1 7\r\nx\r\nVALUE c 0 0 9\r\n\r\nEND\r\n");
        let values = client.gets(&keys).expect("a reply");
        let uniques: Vec<_> = values.iter().map(|value| value.as_ref().map(|value| value.unique)).collect();
        assert_eq!(uniques, [Some(7), None, Some(9)]);
        for answer in [
            &b"VALUE c 0 1 7\r\nx\r\nVALUE a 0 1 7\r\nx\r\nEND\r\n"[..],
            b"VALUE a 0 1 7\r\nx\r\nVALUE a 0 1 7\r\nx\r\nEND\r\n",
            b"VALUE d 0 1 7\r\nx\r\nEND\r\n",
        ] {
            let failure = client_of(answer).gets(&keys).expect_err("not the values asked for");
            assert!(matches!(failure, Failure::Malformed(_)), "{answer:?}: {failure}");
        }
    }

    #[test]
    fn wrong_bytes_are_malformed_and_never_a_value() {
        for answer in [
            &b"VALUE j 0 1\r\na\r\nEND\r\n"[..],
            b"VALUE k 0 1\r\nab\r\nEND\r\n",
            b"VALUE k 0 1\r\na\r\nENE\r\n",
            b"VALUE k 0 x\r\na\r\nEND\r\n",
            b"STORED\r\n",
            b"END\n",
            b"ERROR\r\n",
        ] {
            let failure = client_of(answer).get("k").expect_err("not a value");
            assert!(matches!(failure, Failure::Malformed(_)), "{answer:?}: {failure}");
        }
    }

    #[test]
    fn outcomes_of_writes_are_distinguished() {
        assert!(client_of(b"STORED\r\n").store(StoreVerb::Add, "k", b"v").expect("a reply"));
        assert!(!client_of(b"NOT_STORED\r\n").store(StoreVerb::Add, "k", b"v").expect("a reply"));
        client_of(b"NOT_STORED\r\n").store(StoreVerb::Set, "k", b"v").expect_err("no reply to a set");
        for (answer, reply) in [
            (&b"STORED\r\n"[..], CasReply::Stored),
            (b"EXISTS\r\n", CasReply::Exists),
            (b"NOT_FOUND\r\n", CasReply::Missing),
        ] {
            assert_eq!(client_of(answer).cas("k", b"v", 3).expect("a reply"), reply);
        }
        assert!(client_of(b"DELETED\r\n").delete("k").expect("a reply"));
        assert_eq!(client_of(b"12\r\n").incr("k", 1).expect("a reply"), Some(12));
        assert_eq!(client_of(b"NOT_FOUND\r\n").incr("k", 1).expect("a reply"), None);
    }

    #[test]
    fn refusals_and_broken_connections_are_distinguished() {
        let refused = client_of(b"SERVER_ERROR out of memory\r\n").set("k", 0, b"v").expect_err("refused");
        assert!(matches!(refused, Failure::Refused(_)), "{refused}");
        for answer in [&b"STOR"[..], b""] {
            let broken = client_of(answer).set("k", 0, b"v").expect_err("the connection ends");
            assert!(matches!(broken, Failure::Connection(_)), "{broken}");
        }
    }

    #[test]
    fn bytes_before_a_request_are_malformed() {
        let mut client = client_of(b"STORED\r\nSTORED\r\n");
        client.set("k", 0, b"v").expect("stored");
        let failure = client.get("k").expect_err("a reply too many");
        assert!(matches!(failure, Failure::Malformed(_)), "{failure}");
    }
}
