//! A client's socket, TCP or Unix: both are read and written to by the same system calls.

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
