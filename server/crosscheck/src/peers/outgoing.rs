//! What waits for the socket of one peer: frames, and the sealed records of the earliest of them. Frames that fit into
//! one record are sealed where they were written.

use super::records::{HEADER, PLAIN};
use super::secure::Channel;
use crate::limits;

/// The bytes that wait for one peer.
pub struct Outgoing {
    /// Space for the head of a record, and then the frames.
    waiting: Vec<u8>,
    /// Bytes of the frames that are sealed already.
    taken: usize,
    /// Sealed records, and how many of their bytes are written.
    records: Vec<u8>,
    written: usize,
}

impl Default for Outgoing {
    fn default() -> Self {
        Outgoing { waiting: vec![0; HEADER], taken: 0, records: Vec::new(), written: 0 }
    }
}

impl Outgoing {
    /// Nothing but this record of a handshake.
    pub fn of(record: Vec<u8>) -> Self {
        Outgoing { records: record, ..Outgoing::default() }
    }

    /// Where frames are appended; what is in it must stay.
    pub fn frames(&mut self) -> &mut Vec<u8> {
        &mut self.waiting
    }

    /// Bytes that wait to be written.
    pub fn unsent(&self) -> usize {
        self.waiting.len() - HEADER - self.taken + self.unwritten().len()
    }

    /// The sealed bytes that are not written yet.
    pub fn unwritten(&self) -> &[u8] {
        &self.records[self.written..]
    }

    /// So many of these bytes have been written.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.records.len() {
            self.written = 0;
            self.records.clear();
        }
    }

    /// Seals a message without bytes.
    pub fn seal_nothing(&mut self, channel: &mut Channel) {
        channel.seal(&[], &mut self.records);
    }

    /// Seals the next frames; false if there are none.
    pub fn seal_some(&mut self, channel: &mut Channel) -> bool {
        let rest = &self.waiting[HEADER + self.taken..];
        if rest.is_empty() {
            self.reset();
            return false;
        }
        if self.taken == 0 && rest.len() <= PLAIN && self.records.is_empty() {
            channel.seal_in_place(&mut self.waiting, 0);
            std::mem::swap(&mut self.waiting, &mut self.records);
            self.reset();
            return true;
        }
        let now = rest.len().min(limits::SEALED_AT_ONCE);
        channel.seal(&rest[..now], &mut self.records);
        self.taken += now;
        true
    }

    /// All frames are sealed.
    fn reset(&mut self) {
        self.taken = 0;
        self.waiting.clear();
        if self.waiting.capacity() > 2 * limits::PEER_FRAME {
            self.waiting = Vec::new();
        }
        self.waiting.resize(HEADER, 0);
    }

    /// Frees the memory of many sealed frames.
    pub fn forget_sealed(&mut self) {
        if self.taken > limits::PEER_FRAME {
            self.waiting.drain(HEADER..HEADER + self.taken);
            self.taken = 0;
        }
    }
}
