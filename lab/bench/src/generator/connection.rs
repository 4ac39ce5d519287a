//! One connection of the generator: bytes out, bytes in, and the requests that have no reply yet.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::definition::Op;

/// How long a server may take to accept.
const PATIENCE: Duration = Duration::from_secs(5);
/// Input buffer at first; it grows for longer values.
const INPUT: usize = 16 << 10;

/// A request without a reply.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// When it was sent, or in an open loop should have been sent, in nanoseconds of the generator's clock.
    pub intended: u64,
    /// The operation.
    pub op: Op,
    /// The key.
    pub key: u32,
    /// The version of the value that was sent.
    pub version: u32,
}

/// One connection.
#[derive(Debug)]
pub struct GeneratorConnection {
    stream: TcpStream,
    address: SocketAddr,
    /// Bytes to send; [`GeneratorConnection::flush`] sends them.
    pub out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Requests in progress, in the order in which their replies must come.
    pub pending: VecDeque<Pending>,
    /// Open loop: intended times of requests that wait because too many are in progress.
    pub backlog: VecDeque<u64>,
    /// The key of the last `gets` and the unique number in its reply.
    pub last_gets: Option<(u32, u64)>,
}

impl GeneratorConnection {
    /// Connects and registers for events under `token`.
    ///
    /// # Errors
    /// No process accepts.
    pub fn open(address: SocketAddr, registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(GeneratorConnection {
            stream: connect(address, registry, token)?,
            address,
            out: Vec::with_capacity(INPUT),
            sent: 0,
            input: vec![0; INPUT],
            start: 0,
            end: 0,
            pending: VecDeque::new(),
            backlog: VecDeque::new(),
            last_gets: None,
        })
    }

    /// Reconnects after the connection broke, to the next of `others` that accepts, or to the same address where there
    /// are none; returns the requests whose replies will never come.
    ///
    /// # Errors
    /// No process accepts any more.
    pub fn reopen(
        &mut self,
        others: &[SocketAddr],
        registry: &Registry,
        token: Token,
    ) -> io::Result<Vec<Pending>> {
        // Deregistration fails only for a socket that the kernel no longer knows.
        let _ = registry.deregister(&mut self.stream);
        let next = others.iter().position(|other| *other == self.address).map_or(0, |place| place + 1);
        let mut opened = Err(io::ErrorKind::ConnectionRefused.into());
        for step in 0..others.len().max(1) {
            self.address = others.get((next + step) % others.len().max(1)).copied().unwrap_or(self.address);
            opened = connect(self.address, registry, token);
            if opened.is_ok() {
                break;
            }
        }
        self.stream = opened?;
        self.out.clear();
        (self.sent, self.start, self.end) = (0, 0, 0);
        self.last_gets = None;
        Ok(self.pending.drain(..).collect())
    }

    /// Sends as much as the socket accepts; the rest is sent when it becomes writable. Returns the bytes that were
    /// sent.
    ///
    /// # Errors
    /// The connection broke.
    pub fn flush(&mut self) -> io::Result<usize> {
        let before = self.sent;
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(self.sent - before),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let went = self.sent - before;
        self.out.clear();
        self.sent = 0;
        Ok(went)
    }

    /// Reads until the socket is empty. Returns the number of bytes.
    ///
    /// # Errors
    /// The connection broke or was closed.
    pub fn fill(&mut self) -> io::Result<usize> {
        let mut came = 0;
        loop {
            self.make_room();
            let space = self.input.len() - self.end;
            match self.stream.read(&mut self.input[self.end..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.end += count;
                    came += count;
                    // A short read has emptied the socket: the next bytes cause their own event.
                    if count < space {
                        return Ok(came);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(came),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The bytes that were received and not taken yet.
    pub fn received(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    /// Takes `count` bytes from the front of [`GeneratorConnection::received`].
    pub fn take(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    fn make_room(&mut self) {
        if self.end < self.input.len() {
            return;
        }
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        } else {
            let longer = self.input.len() * 2;
            self.input.resize(longer, 0);
        }
    }
}

fn connect(address: SocketAddr, registry: &Registry, token: Token) -> io::Result<TcpStream> {
    let stream = std::net::TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut stream = TcpStream::from_std(stream);
    registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
    Ok(stream)
}
