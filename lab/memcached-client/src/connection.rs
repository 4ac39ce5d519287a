//! A connection, and what was received on it but not taken yet.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Bytes that are read at a time.
const PIECE: usize = 16 << 10;

/// A blocking connection.
#[derive(Debug)]
pub struct BufferedStream {
    stream: TcpStream,
    received: Vec<u8>,
    taken: usize,
}

impl BufferedStream {
    /// Connects within `connect`; every later wait ends after `reply`.
    ///
    /// # Errors
    /// The server does not accept in time.
    pub fn open(address: SocketAddr, connect: Duration, reply: Duration) -> io::Result<Self> {
        BufferedStream::over(TcpStream::connect_timeout(&address, connect)?, reply)
    }

    /// Over this stream.
    ///
    /// # Errors
    /// It is closed.
    pub fn over(stream: TcpStream, reply: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(reply))?;
        stream.set_write_timeout(Some(reply))?;
        Ok(BufferedStream { stream, received: Vec::new(), taken: 0 })
    }

    /// Sends all bytes.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// What was received and not taken.
    pub fn unread(&self) -> &[u8] {
        &self.received[self.taken..]
    }

    /// Takes so many bytes off the front.
    pub fn take(&mut self, count: usize) {
        self.taken += count;
        if self.taken == self.received.len() {
            self.received.clear();
            self.taken = 0;
        }
    }

    /// Waits for more bytes.
    ///
    /// # Errors
    /// The connection is lost, or none came in time.
    pub fn fill(&mut self) -> io::Result<()> {
        let mut piece = [0; PIECE];
        match self.stream.read(&mut piece)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the server")),
            count => {
                self.received.drain(..self.taken);
                self.taken = 0;
                self.received.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }
}

/// Whether no byte came in time.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
