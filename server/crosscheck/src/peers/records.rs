//! Where one record of a connection ends and the next one begins.
//!
//! ```text
//! record: length u16 | check u16 | number u64 | sealed bytes (length)
//! ```
//!
//! `check` is the low half of the CRC-32C of length and number: a corrupted length is detected at once, instead of
//! making the receiver wait for bytes that never come.

use std::io::{self, Read};

use super::secure::Untrusted;
use crate::limits;

/// Bytes before the sealed ones.
pub const HEADER: usize = 12;
/// Bytes that sealing adds.
pub const TAG: usize = 16;
/// Most bytes that one record carries.
pub const PLAIN: usize = 65_535 - TAG;

/// One whole record.
pub struct SealedRecord<'a> {
    /// Its place in its direction.
    pub number: u64,
    /// The sealed bytes, which are opened in their place.
    pub sealed: &'a mut [u8],
}

/// Turns the bytes of one direction back into records, however they are cut. It holds at most one incomplete record and
/// the bytes that came with it.
#[derive(Default)]
pub struct Records {
    /// Received bytes are in `start..end`; the rest is space.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Records {
    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Reads from `stream`; returns how many bytes came, and whether more may be there.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn read_from(&mut self, stream: &mut impl Read) -> io::Result<(usize, bool)> {
        let space = self.space(limits::READ_CHUNK);
        let read = stream.read(space)?;
        let may_have_more = read == space.len();
        self.end += read;
        Ok((read, may_have_more))
    }

    /// Space behind the received bytes, for at least so many more.
    fn space(&mut self, bytes: usize) -> &mut [u8] {
        if self.buffer.len() - self.end < bytes {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.buffer.len() - self.end < bytes {
                self.buffer.resize(self.end + bytes, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// Bytes that it holds.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// The next whole record; none while it is incomplete.
    ///
    /// # Errors
    /// When no record begins here.
    pub fn next(&mut self) -> Result<Option<SealedRecord<'_>>, Untrusted> {
        let rest = &self.buffer[self.start..self.end];
        let Some(head) = rest.first_chunk::<HEADER>() else {
            if rest.is_empty() {
                (self.start, self.end) = (0, 0);
            }
            return Ok(None);
        };
        let [l0, l1, c0, c1, number @ ..] = *head;
        let (length, number) = (u16::from_le_bytes([l0, l1]), u64::from_le_bytes(number));
        if check(number, length) != u16::from_le_bytes([c0, c1]) || number == u64::MAX {
            return Err(Untrusted::Record);
        }
        let end = HEADER + usize::from(length);
        if rest.len() < end {
            return Ok(None);
        }
        let body = self.start + HEADER;
        self.start += end;
        Ok(Some(SealedRecord { number, sealed: &mut self.buffer[body..self.start] }))
    }
}

fn check(number: u64, length: u16) -> u16 {
    let [l0, l1] = length.to_le_bytes();
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&[l0, l1]);
    order::batch::checksum(&bytes) as u16
}

/// The head of record number `number`, of `length` sealed bytes.
pub fn header(number: u64, length: usize) -> [u8; HEADER] {
    let length = length as u16;
    let mut header = [0; HEADER];
    header[..2].copy_from_slice(&length.to_le_bytes());
    header[2..4].copy_from_slice(&check(number, length).to_le_bytes());
    header[4..].copy_from_slice(&number.to_le_bytes());
    header
}
