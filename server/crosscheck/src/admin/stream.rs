//! An open admin connection, over either kind of socket.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::Endpoint;

/// A connection to an [`Endpoint`], at either end.
#[derive(Debug)]
pub enum AdminStream {
    /// To a socket file.
    Unix(UnixStream),
    /// To a port.
    Tcp(TcpStream),
}

impl AdminStream {
    /// Connects; waits at most `patience` for a listener that accepts nothing.
    ///
    /// # Errors
    /// No process listens there, or this user has no access.
    pub(super) fn dial(endpoint: &Endpoint, patience: Duration) -> io::Result<Self> {
        match endpoint {
            Endpoint::Unix(path) => {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                // The kernel uses it as the bound of connecting as well: a stopped process leaves its queue full.
                socket.set_write_timeout(Some(patience))?;
                socket.connect(&SockAddr::unix(path)?)?;
                Ok(AdminStream::Unix(UnixStream::from(OwnedFd::from(socket))))
            }
            Endpoint::Tcp { address, .. } => {
                let stream = TcpStream::connect_timeout(address, patience)?;
                stream.set_nodelay(true)?;
                Ok(AdminStream::Tcp(stream))
            }
        }
    }

    /// A second handle of the connection, to end it while another thread reads from it.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            AdminStream::Unix(stream) => AdminStream::Unix(stream.try_clone()?),
            AdminStream::Tcp(stream) => AdminStream::Tcp(stream.try_clone()?),
        })
    }

    /// Ends the connection: a thread that reads from it gets its end.
    ///
    /// # Errors
    /// When it has ended.
    pub fn end(&self) -> io::Result<()> {
        match self {
            AdminStream::Unix(stream) => stream.shutdown(Shutdown::Both),
            AdminStream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    /// Bounds each read.
    ///
    /// # Errors
    /// Those of the socket; a bound of zero is one.
    pub fn set_read_timeout(&self, bound: Duration) -> io::Result<()> {
        match self {
            AdminStream::Unix(stream) => stream.set_read_timeout(Some(bound)),
            AdminStream::Tcp(stream) => stream.set_read_timeout(Some(bound)),
        }
    }

    /// Bounds each write.
    ///
    /// # Errors
    /// Those of the socket; a bound of zero is one.
    pub fn set_write_timeout(&self, bound: Duration) -> io::Result<()> {
        match self {
            AdminStream::Unix(stream) => stream.set_write_timeout(Some(bound)),
            AdminStream::Tcp(stream) => stream.set_write_timeout(Some(bound)),
        }
    }

    /// Makes reads and writes return at once, or wait.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            AdminStream::Unix(stream) => stream.set_nonblocking(nonblocking),
            AdminStream::Tcp(stream) => stream.set_nonblocking(nonblocking),
        }
    }
}

impl Read for AdminStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            AdminStream::Unix(stream) => stream.read(buffer),
            AdminStream::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for AdminStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            AdminStream::Unix(stream) => stream.write(bytes),
            AdminStream::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
