//! A client's socket, TCP or Unix: both are read, looked into and written to by the same system calls.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::net::{RecvFlags, Shutdown};

/// A connected stream socket that does not block.
///
/// Called without libc, which stores the kernel's result in memory and reads it back (V19 in docs/vulnerabilities.md).
#[derive(Debug)]
pub(super) struct ClientSocket(OwnedFd);

impl From<OwnedFd> for ClientSocket {
    fn from(descriptor: OwnedFd) -> Self {
        ClientSocket(descriptor)
    }
}

impl AsRawFd for ClientSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl ClientSocket {
    /// The received bytes, which stay in the kernel for the next call.
    #[inline]
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(&self.0, buffer, RecvFlags::PEEK)?.0)
    }

    /// The received bytes; none once the other end has sent its last one.
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(&self.0, buffer, RecvFlags::empty())?.0)
    }

    /// Gives the kernel these bytes, as far as it takes them.
    #[inline]
    pub fn writev(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(&self.0, slices)?)
    }

    /// Nothing more is written: the client reads the end after the last byte.
    pub fn end_writing(&self) {
        // An error means that the client has gone.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Write);
    }

    /// Small replies leave at once. An error is harmless: a Unix socket has no such delay.
    pub fn leaves_at_once(&self) {
        let _ = rustix::net::sockopt::set_tcp_nodelay(&self.0, true);
    }
}

impl Source for ClientSocket {
    fn register(&mut self, registry: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).register(registry, token, interest)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).reregister(registry, token, interest)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).deregister(registry)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// The second reading of a request depends on it.
    #[test]
    fn what_was_looked_at_on_a_unix_socket_is_what_is_read() {
        let (mut client, served) = UnixStream::pair().unwrap();
        served.set_nonblocking(true).unwrap();
        let served = ClientSocket::from(OwnedFd::from(served));
        let mut sent = Vec::new();
        let mut read = Vec::new();
        // Pieces of many sizes: the kernel keeps each write for itself, and a read goes over several of them.
        for round in 0..100_usize {
            for piece in 0..round % 5 {
                let bytes = vec![(round + piece) as u8; 1 + (round * 37 + piece * 11) % 300];
                client.write_all(&bytes).unwrap();
                sent.extend(bytes);
            }
            let (mut first, mut second) = (vec![0; 1 + round * 13 % 900], [0; 1024]);
            match served.peek(&mut first) {
                Ok(peeked) => {
                    let taken = served.read(&mut second[..peeked]).unwrap();
                    assert_eq!(second[..taken], first[..peeked], "round {round}");
                    read.extend_from_slice(&second[..taken]);
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        drop(client);
        let mut rest = [0; 4096];
        while let taken @ 1.. = served.read(&mut rest).unwrap() {
            read.extend_from_slice(&rest[..taken]);
        }
        assert_eq!(read, sent);
        assert_eq!(served.peek(&mut rest).unwrap(), 0, "the end shows in both");
    }
}
