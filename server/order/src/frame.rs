//! The envelope of every message between replicas: a corrupted byte anywhere in it is detected before the frame is
//! used.
//!
//! ```text
//! len u32 | kind u8 | from u8 | head u16 | crc32c u32 | body (len bytes)
//! ```
//!
//! `head` is the low half of the CRC-32C of the six bytes before it: a corrupted length is found at once,
//! instead of making the receiver wait for bytes that never come. `crc32c` covers everything else. After any
//! error the stream cannot be trusted to be in step, so the connection has to be reset.

use bytes::{Bytes, BytesMut};
use wire::ReplicaId;

use crate::limits;

/// Bytes of the envelope before the body.
pub const HEADER: usize = 12;

/// The content of a frame, which decides the crate that reads its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// A message of the order engine (this crate).
    Order = 1,
    /// A batch on its way from its origin to the leader (this crate).
    Forward = 2,
    /// Founding a group, joining it, reports of corrupted log entries (this crate).
    Control = 3,
    /// Digests and pairs of the vote (opaque here).
    Check = 4,
    /// Packed objects for a faulty replica (opaque here).
    Repair = 5,
    /// Pieces of a replica's whole state (opaque here).
    Transfer = 6,
    /// The pipeline's own messages: heartbeats, administration (opaque here).
    Admin = 7,
    /// Batches of a primary, and requests for them (this crate).
    Batch = 8,
    /// Tokens of executed batches, and the agreement on them (opaque here).
    Verify = 9,
    /// Reads that take no batch (opaque here).
    Read = 10,
}

impl FrameKind {
    /// The kind a byte stands for, if any.
    pub const fn from_byte(byte: u8) -> Option<FrameKind> {
        Some(match byte {
            1 => FrameKind::Order,
            2 => FrameKind::Forward,
            3 => FrameKind::Control,
            4 => FrameKind::Check,
            5 => FrameKind::Repair,
            6 => FrameKind::Transfer,
            7 => FrameKind::Admin,
            8 => FrameKind::Batch,
            9 => FrameKind::Verify,
            10 => FrameKind::Read,
            _ => return None,
        })
    }
}

/// One message between replicas, already verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its kind, which decides the crate that reads it.
    pub kind: FrameKind,
    /// Slot of the sender.
    pub from: u8,
    /// Its body; shares the receive buffer.
    pub body: Bytes,
}

/// Why a byte stream is not frames. Every variant blames the peer at the other end (or the wire to it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The envelope's own check fails: length, kind or sender differ from those that were sent.
    #[error("replica {}: corrupt frame header", ReplicaId(*peer))]
    Header {
        /// Slot at the other end of the connection.
        peer: u8,
    },
    /// The frame's checksum does not match its bytes.
    #[error("replica {}: corrupt frame of {len} bytes", ReplicaId(*peer))]
    Checksum {
        /// Slot at the other end of the connection.
        peer: u8,
        /// Bytes of the body.
        len: u32,
    },
    /// The record that carries frames differs from the one that the other end sealed.
    #[error("replica {}: bytes that it has not sealed", ReplicaId(*peer))]
    Sealed {
        /// Slot at the other end of the connection.
        peer: u8,
    },
    /// The header is intact but the length is above the limit.
    #[error("replica {}: frame of {len} bytes is over the limit", ReplicaId(*peer))]
    TooLong {
        /// Slot at the other end of the connection.
        peer: u8,
        /// Bytes the header announces.
        len: u32,
    },
    /// The header is intact but this kind does not exist.
    #[error("replica {}: unknown frame kind {kind}", ReplicaId(*peer))]
    Kind {
        /// Slot at the other end of the connection.
        peer: u8,
        /// The byte that names the kind.
        kind: u8,
    },
    /// The frame names a sender that is not the connection's peer.
    #[error("replica {}: frame says it is from replica {}", ReplicaId(*peer), ReplicaId(*from))]
    Sender {
        /// Slot at the other end of the connection.
        peer: u8,
        /// Slot the frame names.
        from: u8,
    },
}

impl FrameError {
    /// Slot of the peer whose connection must be reset.
    pub const fn peer(&self) -> u8 {
        match *self {
            FrameError::Header { peer }
            | FrameError::Checksum { peer, .. }
            | FrameError::Sealed { peer }
            | FrameError::TooLong { peer, .. }
            | FrameError::Kind { peer, .. }
            | FrameError::Sender { peer, .. } => peer,
        }
    }
}

/// Appends one frame to `out`.
///
/// # Panics
/// When the body is over [`limits::FRAME_BODY`]: every crate bounds its messages far below.
pub fn encode(kind: FrameKind, from: u8, body: &[u8], out: &mut Vec<u8>) {
    if let Err(error) = encode_parts(kind, from, &[body], out) {
        // panics: tests and tools frame by it; a replica uses `encode_parts`
        panic!("{error}");
    }
}

/// Appends one frame whose body is the parts in order; spares the copy that would join them first.
///
/// # Errors
/// [`FrameError::TooLong`] when the body is over [`limits::FRAME_BODY`]: every crate bounds its messages far below, so
/// a length was corrupted. Nothing is appended.
pub fn encode_parts(kind: FrameKind, from: u8, parts: &[&[u8]], out: &mut Vec<u8>) -> Result<(), FrameError> {
    let len = parts.iter().fold(0usize, |len, part| len.saturating_add(part.len()));
    if len > limits::FRAME_BODY {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        return Err(FrameError::TooLong { peer: from, len });
    }
    let mut head = [0u8; HEADER];
    head[..4].copy_from_slice(&(len as u32).to_le_bytes());
    head[4] = kind as u8;
    head[5] = from;
    let check = wire::crc32c(&head[..6]);
    head[6..8].copy_from_slice(&(check as u16).to_le_bytes());
    let crc = parts.iter().fold(wire::crc32c(&head[..8]), |crc, part| wire::crc32c_append(crc, part));
    head[8..].copy_from_slice(&crc.to_le_bytes());
    out.reserve(HEADER + len);
    out.extend_from_slice(&head);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    Ok(())
}

/// Turns the byte stream of one connection back into frames, however the bytes are cut.
///
/// Feed it with [`Decoder::feed`] and take frames with [`Decoder::next`] until it returns `None`. It holds at most one
/// unfinished frame and grows only by bytes that arrived. After an error it is spent: drop it with its connection.
#[derive(Debug)]
pub struct Decoder {
    peer: u8,
    max_body: usize,
    buffer: BytesMut,
}

impl Decoder {
    /// A decoder for the connection to the replica in slot `peer`; bodies over `max_body` bytes are errors.
    pub fn new(peer: u8, max_body: usize) -> Self {
        Decoder { peer, max_body: max_body.min(limits::FRAME_BODY), buffer: BytesMut::new() }
    }

    /// Bytes that just arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes of memory it holds: the cost of a peer that announces much and sends little.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// The next whole frame, `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`] as soon as no honest peer can have sent the bytes; reset the connection.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot say: not yet")]
    pub fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((kind, len)) = self.header()? else { return Ok(None) };
        if self.buffer.len() < HEADER + len {
            return Ok(None);
        }
        let mut frame = self.buffer.split_to(HEADER + len).freeze();
        let head = frame.split_to(HEADER);
        let crc = wire::crc32c_append(wire::crc32c(&head[..8]), &frame);
        if crc.to_le_bytes() != head[8..12] {
            return Err(FrameError::Checksum { peer: self.peer, len: len as u32 });
        }
        Ok(Some(Frame { kind, from: self.peer, body: frame }))
    }

    /// Kind and body length of the frame at the front, once its header is complete and intact.
    fn header(&self) -> Result<Option<(FrameKind, usize)>, FrameError> {
        let peer = self.peer;
        let Some(head) = self.buffer.first_chunk::<HEADER>() else { return Ok(None) };
        if (wire::crc32c(&head[..6]) as u16).to_le_bytes() != head[6..8] {
            return Err(FrameError::Header { peer });
        }
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let kind = FrameKind::from_byte(head[4]).ok_or(FrameError::Kind { peer, kind: head[4] })?;
        if head[5] != peer {
            return Err(FrameError::Sender { peer, from: head[5] });
        }
        if len as usize > self.max_body {
            return Err(FrameError::TooLong { peer, len });
        }
        Ok(Some((kind, len as usize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_frames() -> Vec<u8> {
        let mut out = Vec::new();
        encode(FrameKind::Order, 2, b"first", &mut out);
        encode_parts(FrameKind::Check, 2, &[b"sec", b"", b"ond"], &mut out).unwrap();
        out
    }

    #[test]
    fn frames_come_out_however_the_stream_is_cut() {
        let bytes = two_frames();
        for cut in 1..bytes.len() {
            let mut decoder = Decoder::new(2, 100);
            let mut seen = Vec::new();
            for chunk in bytes.chunks(cut) {
                decoder.feed(chunk);
                while let Some(frame) = decoder.next().unwrap() {
                    seen.push((frame.kind, frame.body.to_vec()));
                }
            }
            assert_eq!(seen, [(FrameKind::Order, b"first".to_vec()), (FrameKind::Check, b"second".to_vec())]);
        }
    }

    #[test]
    fn every_single_bit_flip_is_noticed_and_blamed() {
        let bytes = two_frames();
        let first = HEADER + 5;
        for bit in 0..first * 8 {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let mut decoder = Decoder::new(2, 1 << 20);
            decoder.feed(&broken);
            assert_eq!(decoder.next().expect_err("a flipped bit passed").peer(), 2);
        }
    }

    #[test]
    fn a_valid_header_over_the_limit_or_from_another_is_refused() {
        let mut decoder = Decoder::new(2, 4);
        decoder.feed(&two_frames());
        assert_eq!(decoder.next(), Err(FrameError::TooLong { peer: 2, len: 5 }));
        let mut decoder = Decoder::new(1, 100);
        decoder.feed(&two_frames());
        assert_eq!(decoder.next(), Err(FrameError::Sender { peer: 1, from: 2 }));
    }
}
