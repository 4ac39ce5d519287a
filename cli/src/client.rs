//! A small memcached client, for the load and the demonstration: it says what it expects next and looks at every byte.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest line a server may send here: a `VALUE` line with a 250-byte key fits easily.
const LONGEST_LINE: u64 = 4096;
/// Longest value that is believed, in bytes.
const LONGEST_VALUE: usize = 128 << 20;

/// Why there is no proper answer.
#[derive(Debug)]
pub enum Trouble {
    /// The connection broke or stayed silent: whether the request was done is unknown.
    Connection(io::Error),
    /// The server said that it could not: the line it sent.
    Refused(String),
    /// Bytes that are no answer to what was asked.
    Nonsense(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Connection(error) => write!(f, "connection: {error}"),
            Trouble::Refused(line) => write!(f, "server: {line}"),
            Trouble::Nonsense(what) => write!(f, "not an answer: {what}"),
        }
    }
}

impl std::error::Error for Trouble {}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Connection(error)
    }
}

/// A value with its flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The client flags it was stored with.
    pub flags: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// One connection. Requests are queued, sent together by [`Client::flush`], and answered in their order.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
    queued: Vec<u8>,
}

impl Client {
    /// Connects; every later step waits at most `patience`.
    ///
    /// # Errors
    /// Nobody accepts.
    pub fn connect(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Client { stream: BufReader::with_capacity(16 << 10, stream), queued: Vec::new() })
    }

    /// Queues `set`, without expiry.
    pub fn queue_set(&mut self, key: &str, flags: u32, value: &[u8]) {
        // Writing into a vector cannot fail.
        let _ = write!(self.queued, "set {key} {flags} 0 {}\r\n", value.len());
        self.queued.extend_from_slice(value);
        self.queued.extend_from_slice(b"\r\n");
    }

    /// Queues `get` of one key.
    pub fn queue_get(&mut self, key: &str) {
        let _ = write!(self.queued, "get {key}\r\n");
    }

    /// Queues `incr`.
    pub fn queue_incr(&mut self, key: &str, by: u64) {
        let _ = write!(self.queued, "incr {key} {by}\r\n");
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// The connection broke.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.get_mut().write_all(&self.queued);
        self.queued.clear();
        sent
    }

    /// Takes the answer to a `set`.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub fn take_stored(&mut self) -> Result<(), Trouble> {
        let line = self.line()?;
        if line == "STORED" { Ok(()) } else { Err(unexpected(line)) }
    }

    /// Takes the answer to an `incr`: the new number, or none when there was no such key.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub fn take_number(&mut self) -> Result<Option<u64>, Trouble> {
        let line = self.line()?;
        if line == "NOT_FOUND" {
            return Ok(None);
        }
        line.parse().map(Some).map_err(|_| unexpected(line))
    }

    /// Takes the answer to a `get` of `key`.
    ///
    /// # Errors
    /// See [`Trouble`]; another key's value is [`Trouble::Nonsense`].
    pub fn take_value(&mut self, key: &str) -> Result<Option<Value>, Trouble> {
        let line = self.line()?;
        if line == "END" {
            return Ok(None);
        }
        let words: Vec<&str> = line.split(' ').collect();
        let head = match words.as_slice() {
            ["VALUE", name, flags, length] if *name == key => flags.parse().ok().zip(length.parse().ok()),
            _ => None,
        };
        let Some((flags, length)) = head.filter(|(_, length)| *length <= LONGEST_VALUE) else {
            return Err(unexpected(line));
        };
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        for expected in ["", "END"] {
            let line = self.line()?;
            if line != expected {
                return Err(unexpected(line));
            }
        }
        Ok(Some(Value { flags, bytes }))
    }

    /// `set`, there and back.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub fn set(&mut self, key: &str, flags: u32, value: &[u8]) -> Result<(), Trouble> {
        self.queue_set(key, flags, value);
        self.flush()?;
        self.take_stored()
    }

    /// `get`, there and back.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub fn get(&mut self, key: &str) -> Result<Option<Value>, Trouble> {
        self.queue_get(key);
        self.flush()?;
        self.take_value(key)
    }

    fn line(&mut self) -> Result<String, Trouble> {
        let mut line = Vec::new();
        Read::take(&mut self.stream, LONGEST_LINE).read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(content) => Ok(String::from_utf8_lossy(content).into_owned()),
            None if line.is_empty() => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the server").into())
            }
            None => Err(unexpected(String::from_utf8_lossy(&line).into_owned())),
        }
    }
}

fn unexpected(line: String) -> Trouble {
    let refused = ["ERROR", "SERVER_ERROR", "CLIENT_ERROR"].iter().any(|word| line.starts_with(word));
    if refused { Trouble::Refused(line) } else { Trouble::Nonsense(line) }
}

#[cfg(test)]
pub mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that answers any input with the given bytes, and then closes.
    pub fn server_that_says(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer);
        });
        address
    }

    fn client_of(answer: &'static [u8]) -> Client {
        Client::connect(server_that_says(answer), Duration::from_secs(5)).expect("connected")
    }

    #[test]
    fn a_value_is_taken_with_every_byte() {
        let mut client = client_of(b"VALUE k 7 4\r\na\r\nb\r\nEND\r\n");
        let value = client.get("k").expect("an answer").expect("a value");
        assert_eq!(value, Value { flags: 7, bytes: b"a\r\nb".to_vec() });
        assert_eq!(client_of(b"END\r\n").get("k").expect("an answer"), None);
    }

    #[test]
    fn wrong_bytes_are_nonsense_and_never_a_value() {
        for answer in [
            &b"VALUE j 0 1\r\na\r\nEND\r\n"[..],
            b"VALUE k 0 1\r\nab\r\nEND\r\n",
            b"VALUE k 0 1\r\na\r\nENE\r\n",
            b"VALUE k 0 x\r\na\r\nEND\r\n",
            b"STORED\r\n",
        ] {
            let trouble = client_of(answer).get("k").expect_err("not a value");
            assert!(matches!(trouble, Trouble::Nonsense(_)), "{answer:?}: {trouble}");
        }
    }

    #[test]
    fn refusals_and_broken_connections_are_told_apart() {
        let refused = client_of(b"SERVER_ERROR out of memory\r\n").set("k", 0, b"v").expect_err("refused");
        assert!(matches!(refused, Trouble::Refused(_)), "{refused}");
        let broken = client_of(b"STOR").set("k", 0, b"v").expect_err("half a line");
        assert!(matches!(broken, Trouble::Nonsense(_)), "{broken}");
        let broken = client_of(b"").set("k", 0, b"v").expect_err("closed");
        assert!(matches!(broken, Trouble::Connection(_)), "{broken}");
    }
}
