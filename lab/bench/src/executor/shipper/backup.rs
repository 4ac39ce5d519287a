//! The backup of a page shipper: reads epochs from a connection, applies each as a whole, and acknowledges it.
//!
//! ```text
//! epoch: number u64 | bytes u64 | runs (so many bytes in all)
//! run  : start u64 | pages u32 | kind u8 (0 zeros, 1 contents) | contents
//! ```
//!
//! Little endian. The acknowledgement of an epoch is its number. The connection is that of a benchmark, over loopback,
//! so there is no checksum besides TCP's.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use anyhow::{Context, bail};
use wire::{Put, Reader};

/// Bytes of a page.
pub const PAGE: u64 = 4_096;
/// Longest epoch in bytes: all of a primary's memory.
const EPOCH_BYTES: u64 = 8 << 30;
/// Bytes of an epoch before its runs.
const EPOCH_HEAD: usize = 16;
/// Bytes of a run before its contents.
const RUN_HEAD: usize = 13;
/// Kinds of runs.
const ZEROS: u8 = 0;
const CONTENTS: u8 = 1;

/// What the backup has of the primary's memory. A page that it does not have consists of zeros.
#[derive(Default)]
pub struct BackupCopy {
    pages: BTreeMap<u64, Box<[u8]>>,
}

/// Applies and acknowledges epochs until the connection ends. Returns the copy.
///
/// # Errors
/// The connection failed, or what came is no epoch.
pub fn serve(mut stream: impl Read + Write) -> anyhow::Result<BackupCopy> {
    let mut copy = BackupCopy::default();
    let mut runs = Vec::new();
    loop {
        let mut head = [0; EPOCH_HEAD];
        match stream.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(copy),
            read => read.context("the head of an epoch")?,
        }
        let mut head = Reader::new(&head);
        let (number, bytes) = (head.u64()?, head.u64()?);
        if bytes > EPOCH_BYTES {
            bail!("an epoch of {bytes} bytes");
        }
        runs.clear();
        // Nothing is applied before all is there: an epoch is whole, or it did not happen.
        let read = Read::by_ref(&mut stream).take(bytes).read_to_end(&mut runs)?;
        if read as u64 != bytes {
            bail!("epoch {number} ends after {read} of {bytes} bytes");
        }
        copy.apply(&runs).with_context(|| format!("epoch {number}"))?;
        stream.write_all(&number.to_le_bytes())?;
    }
}

/// An epoch that is being written. Its memory is used again for the next one, and not cleared in between: the primary
/// is stopped meanwhile.
pub struct EpochBuffer {
    bytes: Vec<u8>,
    used: usize,
}

impl EpochBuffer {
    /// An epoch without runs.
    pub fn new() -> EpochBuffer {
        EpochBuffer { bytes: vec![0; EPOCH_HEAD], used: EPOCH_HEAD }
    }

    /// Begins another epoch.
    pub fn clear(&mut self) {
        self.used = EPOCH_HEAD;
    }

    /// Appends a run of pages that consist of zeros.
    pub fn put_zeros(&mut self, start: u64, pages: u32) {
        self.put_run(start, pages, ZEROS);
    }

    /// Appends a run of pages, and returns the room for their contents.
    pub fn put_contents(&mut self, start: u64, pages: u32) -> &mut [u8] {
        self.put_run(start, pages, CONTENTS);
        self.room(pages as usize * PAGE as usize)
    }

    /// The whole epoch as it is sent.
    pub fn finish(&mut self, number: u64) -> &[u8] {
        let bytes = (self.used - EPOCH_HEAD) as u64;
        self.bytes[..8].copy_from_slice(&number.to_le_bytes());
        self.bytes[8..EPOCH_HEAD].copy_from_slice(&bytes.to_le_bytes());
        &self.bytes[..self.used]
    }

    fn put_run(&mut self, start: u64, pages: u32, kind: u8) {
        let mut head = Vec::with_capacity(RUN_HEAD);
        head.put64(start).put32(pages).put8(kind);
        self.room(head.len()).copy_from_slice(&head);
    }

    fn room(&mut self, bytes: usize) -> &mut [u8] {
        let from = self.used;
        self.used += bytes;
        if self.bytes.len() < self.used {
            self.bytes.resize(self.used.next_power_of_two(), 0);
        }
        &mut self.bytes[from..self.used]
    }
}

impl BackupCopy {
    fn apply(&mut self, runs: &[u8]) -> anyhow::Result<()> {
        let mut reader = Reader::new(runs);
        while !reader.is_empty() {
            let (start, pages, kind) = (reader.u64()?, u64::from(reader.u32()?), reader.u8()?);
            let end = pages.checked_mul(PAGE).and_then(|bytes| start.checked_add(bytes));
            let end = end.context("a run beyond all addresses")?;
            match kind {
                ZEROS => {
                    let gone: Vec<u64> = self.pages.range(start..end).map(|(address, _)| *address).collect();
                    gone.iter().for_each(|address| drop(self.pages.remove(address)));
                }
                CONTENTS => {
                    for address in (start..end).step_by(PAGE as usize) {
                        self.store(address, reader.take(PAGE as usize)?);
                    }
                }
                other => bail!("a run of kind {other}"),
            }
        }
        Ok(())
    }

    fn store(&mut self, address: u64, contents: &[u8]) {
        match self.pages.get_mut(&address) {
            Some(page) => page.copy_from_slice(contents),
            None => drop(self.pages.insert(address, contents.into())),
        }
    }

    /// Whether the page at this address is just that.
    pub fn has(&self, address: u64, contents: &[u8]) -> bool {
        self.pages.get(&address).map_or_else(|| is_zero(contents), |page| **page == *contents)
    }

    /// The first page of a range, outside of these ascending runs, that does not consist of zeros.
    pub fn other_than_zeros(&self, start: u64, end: u64, outside: &[(u64, u64)]) -> Option<u64> {
        let mut outside = outside.iter().peekable();
        let mut pages = self.pages.range(start..end).filter(|(address, _)| {
            while outside.next_if(|(_, end)| end <= *address).is_some() {}
            outside.peek().is_none_or(|(start, _)| *address < start)
        });
        pages.find(|(_, page)| !is_zero(page)).map(|(address, _)| *address)
    }
}

fn is_zero(contents: &[u8]) -> bool {
    contents.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> Vec<u8> {
        vec![byte; PAGE as usize]
    }

    fn runs(epoch: &mut EpochBuffer) -> Vec<u8> {
        epoch.finish(1)[EPOCH_HEAD..].to_vec()
    }

    #[test]
    fn runs_are_applied_in_their_order() {
        let mut epoch = EpochBuffer::new();
        epoch.put_contents(0x9000, 3).fill(9);
        epoch.clear();
        epoch.put_contents(0x1000, 2).copy_from_slice(&[page(1), page(2)].concat());
        epoch.put_zeros(0x2000, 7);
        epoch.put_contents(0x4000, 1).copy_from_slice(&page(3));
        let mut copy = BackupCopy::default();
        copy.apply(&runs(&mut epoch)).expect("they are sound");
        for (address, byte) in [(0x1000, 1), (0x2000, 0), (0x3000, 0), (0x4000, 3), (0x9000, 0)] {
            assert!(copy.has(address, &page(byte)) && !copy.has(address, &page(8)), "{address:x}");
        }
        let outside = [(0x1000, 0x2000)];
        assert_eq!(copy.other_than_zeros(0x1000, 0x4000, &outside), None);
        assert_eq!(copy.other_than_zeros(0x1000, 0x4000, &[]), Some(0x1000));
        assert_eq!(copy.other_than_zeros(0x1000, 0x5000, &outside), Some(0x4000));
    }

    #[test]
    fn bytes_that_are_no_run_are_an_error() {
        let mut epoch = EpochBuffer::new();
        epoch.put_contents(0x1000, 1).fill(1);
        let mut good = runs(&mut epoch);
        for length in 1..good.len() {
            assert!(BackupCopy::default().apply(&good[..length]).is_err(), "{length} bytes");
        }
        good[12] = 2;
        assert!(BackupCopy::default().apply(&good).is_err(), "an unknown kind");
        epoch.clear();
        epoch.put_zeros(u64::MAX - PAGE, 9);
        assert!(BackupCopy::default().apply(&runs(&mut epoch)).is_err());
    }
}
