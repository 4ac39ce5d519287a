//! One connection to one peer: who is at the other end, frames in, frames out.

use std::io::{self, Read, Write};

use mio::{Interest, Token};
use order::frame::Decoder;

use super::PeerEvent;
use super::net::Net;
use crate::limits;
use crate::world::is_own_fault;

/// The first 8 bytes in either direction: magic, version, sender, CRC-32C (low half) of the six before.
const PREAMBLE: usize = 8;
/// The last byte is the version of what peers say to each other: those of another version are not understood.
const MAGIC: [u8; 5] = *b"XCHK\x03";

fn preamble_of(me: u8) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..5].copy_from_slice(&MAGIC);
    bytes[5] = me;
    let check = order::batch::checksum(&bytes[..6]) as u16;
    bytes[6..].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Collects the other end's first bytes.
#[derive(Debug, Default)]
pub(super) struct Preamble {
    bytes: [u8; PREAMBLE],
    filled: usize,
}

impl Preamble {
    /// Reads towards a whole preamble; says who is there once it is complete.
    ///
    /// # Errors
    /// When the connection ended or what it sent is no preamble of this version.
    pub(super) fn read(&mut self, stream: &mut impl Read) -> io::Result<Option<u8>> {
        while self.filled < PREAMBLE {
            match stream.read(&mut self.bytes[self.filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let from = self.bytes[5];
        if self.bytes == preamble_of(from) { Ok(Some(from)) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

pub(super) struct Link<N: Net> {
    peer: u8,
    stream: N::Stream,
    /// The other end's preamble, while it is still expected.
    expected: Option<Preamble>,
    decoder: Decoder,
    pub(super) output: Vec<u8>,
    written: usize,
    /// Somebody waits for some of `output`.
    pub(super) is_urgent: bool,
    /// Frames in `output`.
    pub(super) riding: usize,
    /// The kernel has refused a call that no healthy process makes.
    pub(super) is_refused: bool,
}

impl<N: Net> Link<N> {
    /// A connection that this replica opened: it speaks first and waits for the answer.
    pub(super) fn dialled(
        me: u8,
        peer: u8,
        stream: N::Stream,
        token: Token,
        net: &mut N,
    ) -> io::Result<Self> {
        let mut link = Link::new(me, peer, stream);
        link.expected = Some(Preamble::default());
        net.register(&mut link.stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(link)
    }

    /// A connection whose other end has said who it is.
    pub(super) fn accepted(
        me: u8,
        peer: u8,
        stream: N::Stream,
        token: Token,
        net: &mut N,
    ) -> io::Result<Self> {
        let mut link = Link::new(me, peer, stream);
        net.tune(&link.stream);
        net.reregister(&mut link.stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(link)
    }

    fn new(me: u8, peer: u8, stream: N::Stream) -> Self {
        let decoder = Decoder::new(peer, order::limits::FRAME_BODY);
        Link {
            peer,
            stream,
            expected: None,
            decoder,
            output: preamble_of(me).to_vec(),
            written: 0,
            is_urgent: true,
            riding: 0,
            is_refused: false,
        }
    }

    /// Whether frames may be sent: both ends know each other.
    pub(super) fn is_up(&self) -> bool {
        self.expected.is_none()
    }

    /// Bytes that wait to be written.
    pub(super) fn unsent(&self) -> usize {
        self.output.len() - self.written
    }

    pub(super) fn has_output(&self) -> bool {
        self.written < self.output.len()
    }

    pub(super) fn close(mut self, net: &mut N) {
        net.deregister(&mut self.stream);
    }

    /// Reads all there is, through `scratch`; returns whether the connection is still good.
    pub(super) fn read(&mut self, net: &mut N, scratch: &mut [u8], events: &mut Vec<PeerEvent>) -> bool {
        if let Some(expected) = &mut self.expected {
            match expected.read(&mut self.stream) {
                Ok(None) => return true,
                Ok(Some(peer)) if peer == self.peer => {
                    self.expected = None;
                    net.tune(&self.stream);
                    events.push(PeerEvent::Up(peer));
                }
                Ok(Some(_)) => return false,
                Err(error) => return self.lost(&error),
            }
        }
        loop {
            match self.stream.read(scratch) {
                Ok(0) => return false,
                Ok(read) => {
                    self.decoder.feed(&scratch[..read]);
                    if !self.take_frames(events) {
                        return false;
                    }
                    if read < scratch.len() {
                        return true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.lost(&error),
            }
        }
    }

    /// The connection is of no use any more.
    fn lost(&mut self, error: &io::Error) -> bool {
        self.is_refused |= is_own_fault(error);
        false
    }

    fn take_frames(&mut self, events: &mut Vec<PeerEvent>) -> bool {
        loop {
            match self.decoder.next() {
                Ok(Some(frame)) => {
                    events.push(PeerEvent::Frame { from: frame.from, kind: frame.kind, body: frame.body });
                }
                Ok(None) => return true,
                Err(error) => {
                    events.push(PeerEvent::Corrupt(error));
                    return false;
                }
            }
        }
    }

    /// Writes what waits; returns whether the connection is still good.
    pub(super) fn write(&mut self) -> bool {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return false,
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The connection is still being opened; the socket says when it is.
                Err(error) if error.kind() == io::ErrorKind::NotConnected && !self.is_up() => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.lost(&error),
            }
        }
        if self.written == self.output.len() {
            (self.is_urgent, self.riding) = (false, 0);
            self.output.clear();
            self.written = 0;
            if self.output.capacity() > 2 * limits::PEER_FRAME {
                self.output = Vec::new();
            }
        } else if self.written > limits::PEER_FRAME {
            self.output.drain(..self.written);
            self.written = 0;
        }
        self.output.len() - self.written <= limits::UNSENT_PER_PEER
    }
}
