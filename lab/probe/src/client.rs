//! A blocking memcached client (text protocol). Every byte of a reply is checked against what the request
//! allows; a reply that no memcached server gives is a [`Failure::Malformed`], never a value.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest line that is accepted, in bytes: a `VALUE` line with a 250-byte key is far shorter.
const LONGEST_LINE: u64 = 4096;
/// Longest value that is accepted, in bytes.
const LONGEST_VALUE: usize = 128 << 20;

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

/// Commands that store a value regardless of its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreVerb {
    /// `set`
    Set,
    /// `add`
    Add,
    /// `replace`
    Replace,
    /// `append`
    Append,
}

impl StoreVerb {
    const fn word(self) -> &'static str {
        match self {
            StoreVerb::Set => "set",
            StoreVerb::Add => "add",
            StoreVerb::Replace => "replace",
            StoreVerb::Append => "append",
        }
    }
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
    stream: BufReader<TcpStream>,
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
        let stream = TcpStream::connect_timeout(&address, connect)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(reply))?;
        stream.set_write_timeout(Some(reply))?;
        Ok(Client { stream: BufReader::with_capacity(16 << 10, stream), queued: Vec::new() })
    }

    /// Queues `set`, without expiry.
    pub fn queue_set(&mut self, key: &str, flags: u32, value: &[u8]) {
        self.queue_with_value(format_args!("set {key} {flags} 0 {}", value.len()), value);
    }

    /// Queues `get` of one key.
    pub fn queue_get(&mut self, key: &str) {
        self.queue_line(format_args!("get {key}"));
    }

    /// Queues `incr`.
    pub fn queue_incr(&mut self, key: &str, by: u64) {
        self.queue_line(format_args!("incr {key} {by}"));
    }

    fn queue_line(&mut self, line: fmt::Arguments<'_>) {
        // Writing into a vector cannot fail.
        let _ = write!(self.queued, "{line}\r\n");
    }

    fn queue_with_value(&mut self, line: fmt::Arguments<'_>, value: &[u8]) {
        self.queue_line(line);
        self.queued.extend_from_slice(value);
        self.queued.extend_from_slice(b"\r\n");
    }

    /// Sends the queued requests.
    ///
    /// # Errors
    /// [`Failure::Connection`] when the connection broke, [`Failure::Malformed`] when the server has already sent bytes
    /// that answer no request.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let unread = self.stream.buffer();
        if !unread.is_empty() {
            let unread = String::from_utf8_lossy(unread).into_owned();
            return Err(Failure::Malformed(format!("{unread:?} before any request")));
        }
        let sent = self.stream.get_mut().write_all(&self.queued);
        self.queued.clear();
        Ok(sent?)
    }

    /// Takes the reply to a `set`.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn take_stored(&mut self) -> Result<(), Failure> {
        let line = self.line()?;
        if line == "STORED" { Ok(()) } else { Err(unexpected(line)) }
    }

    /// Takes the reply to an `incr`: the new number, or `None` when there is no such key.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn take_number(&mut self) -> Result<Option<u64>, Failure> {
        let line = self.line()?;
        if line == "NOT_FOUND" {
            return Ok(None);
        }
        line.parse().map(Some).map_err(|_| unexpected(line))
    }

    /// Takes the reply to a `get` of `key`.
    ///
    /// # Errors
    /// See [`Failure`]; the value of another key is [`Failure::Malformed`].
    pub fn take_value(&mut self, key: &str) -> Result<Option<Value>, Failure> {
        let mut values = self.take_values(&[key])?;
        Ok(values.pop().flatten())
    }

    /// Takes the values of `keys`, in their order, up to the line `END`.
    fn take_values<K: AsRef<str>>(&mut self, keys: &[K]) -> Result<Vec<Option<Value>>, Failure> {
        let mut values: Vec<Option<Value>> = vec![None; keys.len()];
        let mut next = 0;
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(values);
            }
            let (key, value) = self.value_after(line)?;
            // Values come in the order of the keys; a key that has none is left out.
            let Some(place) = keys[next..].iter().position(|asked| asked.as_ref() == key) else {
                return Err(Failure::Malformed(format!("the value of {key:?}, which was not asked for")));
            };
            values[next + place] = Some(value);
            next += place + 1;
        }
    }

    /// The value whose head is `line`: `VALUE key flags length [unique]`.
    fn value_after(&mut self, line: String) -> Result<(String, Value), Failure> {
        let words: Vec<&str> = line.split(' ').collect();
        let (key, flags, length, unique) = match words.as_slice() {
            ["VALUE", key, flags, length] => (*key, flags, length, "0"),
            ["VALUE", key, flags, length, unique] => (*key, flags, length, *unique),
            _ => return Err(unexpected(line)),
        };
        let (Ok(flags), Ok(length), Ok(unique)) = (flags.parse(), length.parse(), unique.parse()) else {
            return Err(unexpected(line));
        };
        if length > LONGEST_VALUE {
            return Err(Failure::Malformed(format!("{line}: longer than any value")));
        }
        let key = key.to_owned();
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        if !bytes.ends_with(b"\r\n") {
            return Err(Failure::Malformed(format!("{line}, and a value of another length")));
        }
        bytes.truncate(length);
        Ok((key, Value { flags, bytes, unique }))
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
    /// See [`Failure`].
    pub fn get(&mut self, key: &str) -> Result<Option<Value>, Failure> {
        self.queue_get(key);
        self.flush()?;
        self.take_value(key)
    }

    /// `gets` of some keys; the values in the order of the keys.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn gets(&mut self, keys: &[String]) -> Result<Vec<Option<Value>>, Failure> {
        self.queue_line(format_args!("gets {}", keys.join(" ")));
        self.flush()?;
        self.take_values(keys)
    }

    /// Stores a value with flags 0 and without expiry; whether the server stored it.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn store(&mut self, verb: StoreVerb, key: &str, value: &[u8]) -> Result<bool, Failure> {
        self.queue_with_value(format_args!("{} {key} 0 0 {}", verb.word(), value.len()), value);
        self.flush()?;
        let line = self.line()?;
        match line.as_str() {
            "STORED" => Ok(true),
            "NOT_STORED" if verb != StoreVerb::Set => Ok(false),
            _ => Err(unexpected(line)),
        }
    }

    /// `cas` with the number from [`Client::gets`].
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn cas(&mut self, key: &str, value: &[u8], unique: u64) -> Result<CasReply, Failure> {
        self.queue_with_value(format_args!("cas {key} 0 0 {} {unique}", value.len()), value);
        self.flush()?;
        let line = self.line()?;
        match line.as_str() {
            "STORED" => Ok(CasReply::Stored),
            "EXISTS" => Ok(CasReply::Exists),
            "NOT_FOUND" => Ok(CasReply::Missing),
            _ => Err(unexpected(line)),
        }
    }

    /// `delete`: whether there was such a key.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn delete(&mut self, key: &str) -> Result<bool, Failure> {
        self.queue_line(format_args!("delete {key}"));
        self.flush()?;
        let line = self.line()?;
        match line.as_str() {
            "DELETED" => Ok(true),
            "NOT_FOUND" => Ok(false),
            _ => Err(unexpected(line)),
        }
    }

    /// `incr`: the new number, or `None` when there is no such key.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn incr(&mut self, key: &str, by: u64) -> Result<Option<u64>, Failure> {
        self.queue_incr(key, by);
        self.flush()?;
        self.take_number()
    }

    /// One line without its end. A line that the end of the connection cuts short is no reply: the server
    /// may have been killed while it wrote.
    fn line(&mut self) -> Result<String, Failure> {
        let mut line = Vec::new();
        Read::take(&mut self.stream, LONGEST_LINE).read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(content) => Ok(String::from_utf8_lossy(content).into_owned()),
            None if line.ends_with(b"\n") || line.len() as u64 >= LONGEST_LINE => {
                Err(Failure::Malformed(String::from_utf8_lossy(&line).into_owned()))
            }
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the server").into()),
        }
    }
}

fn unexpected(line: String) -> Failure {
    if line.starts_with("SERVER_ERROR") { Failure::Refused(line) } else { Failure::Malformed(line) }
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
    fn outcomes_of_writes_are_told_apart() {
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
    fn refusals_and_broken_connections_are_told_apart() {
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
