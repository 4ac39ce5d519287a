//! What a connection reads and writes: the socket itself, or what TLS makes of it.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use mio::Registry;
use mio::event::Source;
use rustls::ServerConfig;

use super::socket::ClientSocket;
use super::tls::TlsSession;
use crate::limits;

/// The bytes of a client, in both directions.
pub(super) struct ClientStream {
    socket: ClientSocket,
    tls: Option<Box<TlsSession>>,
    /// The client may ask for TLS.
    offered: Option<Arc<ServerConfig>>,
    /// The tick at which it was accepted.
    accepted: u64,
}

impl From<ClientSocket> for ClientStream {
    fn from(socket: ClientSocket) -> Self {
        ClientStream { socket, tls: None, offered: None, accepted: 0 }
    }
}

impl AsRawFd for ClientStream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl ClientStream {
    /// A client that speaks TLS.
    pub fn with_tls(socket: ClientSocket, tls: TlsSession) -> Self {
        ClientStream { tls: Some(Box::new(tls)), ..socket.into() }
    }

    /// A client that may ask for TLS.
    pub fn offering_tls(socket: ClientSocket, config: Arc<ServerConfig>) -> Self {
        ClientStream { offered: Some(config), ..socket.into() }
    }

    /// A client that was accepted at this tick.
    pub fn since(self, accepted: u64) -> Self {
        ClientStream { accepted, ..self }
    }

    /// Tells the client that TLS begins, and goes on with it. False if it was not offered, or has begun already, or the
    /// socket does not take the few bytes.
    pub fn start_tls(&mut self, consent: &[u8], tick: u64) -> bool {
        let Some(session) = self.offered.take().and_then(|config| TlsSession::new(config, tick).ok()) else {
            return false;
        };
        let is_told = self.socket.writev(&[IoSlice::new(consent)]).is_ok_and(|sent| sent == consent.len());
        self.tls = Some(Box::new(session));
        is_told
    }

    /// The received bytes, which stay for the next call.
    ///
    /// # Errors
    /// Those of [`ClientStream::read`].
    #[inline]
    pub fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.peek(buffer),
            Some(tls) => tls.peek(&self.socket, buffer),
        }
    }

    /// The received bytes; none once the client has sent its last one.
    ///
    /// # Errors
    /// Those of the socket; `WouldBlock` when nothing has come, `InvalidData` when it is no right TLS.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(buffer),
            Some(tls) => tls.read(&self.socket, buffer),
        }
    }

    /// Whether there may be more to read, where a read `was_full`.
    #[inline]
    pub fn may_have_more(&self, was_full: bool) -> bool {
        self.tls.as_ref().map_or(was_full, |tls| tls.may_have_more())
    }

    /// The bytes that came in addition to those that were read since the last call.
    #[inline]
    pub fn take_overhead(&mut self) -> usize {
        self.tls.as_mut().map_or(0, |tls| tls.take_overhead())
    }

    /// Bytes that have come and that were not read.
    #[inline]
    pub fn unread(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.untaken())
    }

    /// Takes these bytes, as far as there is room; returns how many. With TLS they are sealed, and leave when the
    /// caller has seen that they are still right: with [`ClientStream::flush`].
    ///
    /// # Errors
    /// Those of the socket; `WouldBlock` when there is no room.
    #[inline]
    pub fn writev(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.writev(slices),
            Some(tls) => tls.seal(&self.socket, slices),
        }
    }

    /// Whether bytes were taken that have not left.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_unsent())
    }

    /// Bytes of replies that were taken and have not left.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.sealed())
    }

    /// Lets leave what was taken.
    ///
    /// # Errors
    /// Those of the socket; `WouldBlock` when it does not take all of it.
    #[inline]
    pub fn flush(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&self.socket))
    }

    /// Whether the bytes that were just taken may leave: where they were sealed and not sent, `are_right` looks at them
    /// again, since the cipher has read them after they were compared. If they are not, nothing leaves any more.
    pub fn may_leave(&mut self, are_right: impl FnOnce() -> bool) -> bool {
        match &mut self.tls {
            Some(tls) if !are_right() => {
                tls.silence();
                false
            }
            _ => true,
        }
    }

    /// Whether the client has to complete a handshake before its first request.
    #[cfg(test)]
    pub fn is_in_handshake(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_in_handshake())
    }

    /// Whether the client has not completed its handshake in time, at this tick.
    #[inline]
    pub fn is_late(&self, tick: u64) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_late(tick))
    }

    /// Whether a client that is not let in yet should have been, at this tick.
    pub fn is_late_with_login(&self, tick: u64) -> bool {
        let ticks = u128::from(tick.saturating_sub(self.accepted));
        ticks * limits::TICK.as_micros() > limits::LOGIN.as_micros()
    }

    /// Whether the client has begun a handshake, and not completed it.
    pub fn has_begun_handshake(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_begun_handshake())
    }

    /// Says goodbye: nothing more is written, and what has come is dropped, up to `most` bytes. Returns whether more
    /// may come.
    pub fn end_gently(&mut self, most: usize) -> bool {
        if let Some(tls) = &mut self.tls {
            tls.end(&self.socket);
        }
        self.socket.end_writing();
        let (mut dropped, mut buffer) = (0, [0; 4096]);
        while dropped < most {
            match self.socket.read(&mut buffer) {
                Ok(0) => return false,
                Ok(read) => dropped += read,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Says goodbye, and takes the socket from the poll.
    pub fn end(&mut self, registry: &Registry) {
        if let Some(tls) = &mut self.tls {
            tls.end(&self.socket);
        }
        // Closing the descriptor has the same effect; an error is harmless.
        let _ = self.socket.deregister(registry);
    }
}
