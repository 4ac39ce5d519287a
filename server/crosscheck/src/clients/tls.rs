//! TLS of one client connection: its socket has ciphertext, and the connection looks into, reads and writes plaintext.
//!
//! Where a bit flip is not noticed: between the decryption of a record, which authenticates its ciphertext, and the two
//! copies of its plaintext ([`super::input`]); and in the copy of at most 16 KiB of a reply that the cipher seals in
//! place. Both are inside the TLS library, for some microseconds. What was read for sealing is compared with its digest
//! once more before the ciphertext leaves.

use std::io::{self, BufRead, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use super::socket::ClientSocket;
use crate::limits;

/// The TLS of a connection.
pub(super) struct TlsSession {
    connection: ServerConnection,
    /// The tick at which the client was accepted.
    accepted: u64,
    /// Ciphertext that has come, and gave no plaintext yet: handshakes, and the rest of records.
    overhead: usize,
    /// Bytes that came before the handshake was complete.
    in_handshake: usize,
    /// Plaintext of the ciphertext that waits for the socket.
    sealed: usize,
    /// Plaintext that nobody has taken.
    untaken: usize,
    /// The socket had no more than was read.
    is_drained: bool,
    /// Nothing more leaves, not even what is sealed.
    is_silenced: bool,
}

impl TlsSession {
    /// A client that was accepted at this tick, and has sent nothing yet.
    ///
    /// # Errors
    /// The library refuses the configuration.
    pub fn new(config: Arc<ServerConfig>, tick: u64) -> io::Result<Self> {
        let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(limits::TLS_SEALED));
        Ok(TlsSession {
            connection,
            accepted: tick,
            overhead: 0,
            in_handshake: 0,
            sealed: 0,
            untaken: 0,
            is_drained: false,
            is_silenced: false,
        })
    }

    /// Whether the client has not proved yet that it speaks TLS.
    pub fn is_in_handshake(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the client has not completed its handshake in time, at this tick.
    pub fn is_late(&self, tick: u64) -> bool {
        let ticks = u128::from(tick.saturating_sub(self.accepted));
        self.is_in_handshake() && ticks * limits::TICK.as_micros() > limits::TLS_HANDSHAKE.as_micros()
    }

    /// Whether the client has begun a handshake, and not completed it.
    pub fn has_begun_handshake(&self) -> bool {
        self.is_in_handshake() && self.in_handshake > 0
    }

    /// Whether there may be more to read than was.
    pub fn may_have_more(&self) -> bool {
        self.untaken > 0 || !self.is_drained
    }

    /// Bytes of plaintext that nobody has taken.
    pub fn untaken(&self) -> usize {
        self.untaken
    }

    /// Bytes that are sealed and wait for the socket, handshakes not counted.
    pub fn sealed(&self) -> usize {
        self.sealed
    }

    /// Whether ciphertext waits for the socket.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write() && !self.is_silenced
    }

    /// The bytes that came in addition to plaintext since the last call.
    pub fn take_overhead(&mut self) -> usize {
        std::mem::take(&mut self.overhead)
    }

    /// The decrypted bytes, which stay for the next call; see [`TlsSession::read`].
    pub fn peek(&mut self, socket: &ClientSocket, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.receive(socket)? {
            return Ok(0);
        }
        let plaintext = self.connection.reader().into_first_chunk()?;
        let count = plaintext.len().min(buffer.len());
        buffer[..count].copy_from_slice(&plaintext[..count]);
        Ok(count)
    }

    /// The decrypted bytes; none once the client has sent its last one.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has come, `Interrupted` when a lot has come that held no plaintext, `InvalidData` when
    /// it is no right TLS, and those of the socket.
    pub fn read(&mut self, socket: &ClientSocket, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.receive(socket)? {
            return Ok(0);
        }
        let mut reader = self.connection.reader();
        // No more than was peeked: a piece at a time.
        let there = reader.fill_buf()?.len().min(buffer.len());
        let count = reader.read(&mut buffer[..there])?;
        self.untaken = self.untaken.saturating_sub(count);
        self.overhead = self.overhead.saturating_sub(count);
        Ok(count)
    }

    /// Decrypts until there is plaintext; false when there will be none.
    fn receive(&mut self, socket: &ClientSocket) -> io::Result<bool> {
        let mut taken = 0;
        while self.untaken == 0 {
            if taken >= limits::READ_CHUNK {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let mut ciphertext = Ciphertext { socket, is_drained: false };
            let read = self.connection.read_tls(&mut ciphertext);
            self.is_drained = ciphertext.is_drained;
            let read = read?;
            if read == 0 {
                // Without a close_notify it might be somebody else who ended it: what is complete was authenticated,
                // and the beginning of a request has no effect.
                return Ok(false);
            }
            taken += read;
            self.overhead += read;
            let state = self.connection.process_new_packets();
            if self.connection.is_handshaking() {
                self.in_handshake += read;
            }
            let reported = self.flush(socket);
            let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if reported.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
                return Ok(false);
            }
            if self.in_handshake > limits::TLS_HANDSHAKE_BYTES {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the handshake is too long"));
            }
            self.untaken = state.plaintext_bytes_to_read();
        }
        Ok(true)
    }

    /// Seals these bytes, as far as there is room once what was sealed before has left; returns how many.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room, and those of the socket.
    pub fn seal(&mut self, socket: &ClientSocket, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(socket)?;
        self.sealed = self.connection.writer().write_vectored(slices)?;
        Ok(self.sealed)
    }

    /// Gives the socket what is sealed.
    ///
    /// # Errors
    /// `WouldBlock` when it does not take all of it, and those of the socket.
    pub fn flush(&mut self, socket: &ClientSocket) -> io::Result<()> {
        while self.has_unsent() {
            let mut ciphertext = Ciphertext { socket, is_drained: false };
            match self.connection.write_tls(&mut ciphertext) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sealed = 0;
        Ok(())
    }

    /// What is sealed may be wrong: it does not leave.
    pub fn silence(&mut self) {
        self.is_silenced = true;
    }

    /// Tells the client that nothing was cut off. A socket that does not take it is closed as well.
    pub fn end(&mut self, socket: &ClientSocket) {
        self.connection.send_close_notify();
        let _ = self.flush(socket);
    }
}

/// The socket, as the library reads and writes it.
struct Ciphertext<'s> {
    socket: &'s ClientSocket,
    /// It had no more than was read.
    is_drained: bool,
}

impl Read for Ciphertext<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.socket.read(buffer);
        self.is_drained = !read.as_ref().is_ok_and(|read| *read == buffer.len());
        read
    }
}

impl Write for Ciphertext<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.writev(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.writev(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
