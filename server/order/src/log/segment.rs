//! One file of the log: records behind each other in a zeroed file of fixed size, so that a sync writes data and no
//! metadata.
//!
//! ```text
//! file:   "XCHKLOG2" | length u64 (of the whole file) | 0 u32 | crc u32 | records | zeros
//! record: crc u32 | len u32 | seq u64 | durable u64 | body (len bytes) | zeros up to a multiple of 8
//! ```
//!
//! The header is durable before the file is called `NNNNNNNN.log`, and is never written again. So a file of
//! that name without one is not ours (or was made by a release that knew no headers: its records begin at 0),
//! and one that is shorter than the length in its header was truncated.
//!
//! `seq` counts records over all segments: a stale record in a reused file never has the next number.
//! `durable` is the last number known to be on the disk when the record was written: it distinguishes a torn tail from
//! corruption (see `scan`).

use bytes::Bytes;
use wire::{Put, Reader};

use crate::limits;
use crate::log::Record;

/// How a file begins.
pub(crate) const MAGIC: [u8; 8] = *b"XCHKLOG2";
/// Bytes before the first record.
pub(crate) const FILE_HEADER: usize = 24;
/// Bytes before a record's body.
pub(crate) const HEADER: usize = 24;
/// Body bytes of the longest record: a log entry with the largest request.
const BODY: usize = limits::REQUEST_BYTES + (64 << 10);
/// Records between two syncs at most, to distinguish records from other bytes.
const MAX_GROUP: u64 = 1 << 32;
/// Bytes of the longest file of a release that knew no headers, unless files are longer as a rule: one with
/// the longest record.
pub(crate) const LONGEST_WITHOUT_HEADER: u64 = (BODY + HEADER + (128 << 10)) as u64;

/// A record as found in a file.
#[derive(Debug)]
pub(crate) struct FoundRecord {
    pub seq: u64,
    pub record: Record,
}

/// How a file ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Zeros (or an earlier use of the file) follow the last record.
    Clean,
    /// A record was cut off; no synced record is missing.
    Torn,
    /// A synced record differs from the one that was written.
    Corrupt(&'static str),
}

/// The contents of a file.
#[derive(Debug)]
pub(crate) struct Scan {
    pub found: Vec<FoundRecord>,
    /// Offset behind the last good record.
    pub end: u64,
    pub ending: Ending,
}

/// The header of a file of so many bytes.
pub(crate) fn file_header(length: u64) -> [u8; FILE_HEADER] {
    let mut bytes = Vec::with_capacity(FILE_HEADER);
    bytes.put(&MAGIC).put64(length).put32(0);
    let sum = wire::crc32c(&bytes);
    bytes.put32(sum);
    let mut header = [0; FILE_HEADER];
    header.copy_from_slice(&bytes);
    header
}

/// The length that a file was made with, by its header; `None` when it has no intact one.
pub(crate) fn made_with(bytes: &[u8]) -> Option<u64> {
    let header = bytes.get(..FILE_HEADER)?;
    let length = Reader::new(&header[MAGIC.len()..]).u64().ok()?;
    (header == file_header(length)).then_some(length)
}

/// Whether these bytes, fewer than a header, are the beginning of one.
pub(crate) fn begins_as_header(head: &[u8]) -> bool {
    head.iter().zip(MAGIC).all(|(&byte, ours)| byte == ours)
}

/// Whether a file was being made when the power failed: it has a part of its header or none of it, and nothing else.
pub(crate) fn is_unfinished(bytes: &[u8]) -> bool {
    let begins = bytes.iter().zip(MAGIC).all(|(&byte, ours)| byte == ours || byte == 0);
    begins && bytes.iter().skip(FILE_HEADER).all(|&byte| byte == 0)
}

/// Whether bytes hold an intact record anywhere: then they are from a log file.
pub(crate) fn has_record(bytes: &Bytes) -> bool {
    (0..bytes.len())
        .step_by(8)
        .any(|at| read(bytes, at, 0).is_some_and(|(.., body)| Record::decode(body).is_ok()))
}

/// Appends a record's bytes to `out`.
pub(crate) fn encode(record: &Record, seq: u64, durable: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.put64(0).put64(seq).put64(durable);
    record.encode(out);
    let len = out.len() - start - HEADER;
    out[start + 4..start + 8].copy_from_slice(&(len as u32).to_le_bytes());
    let crc = wire::crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    out.resize(start + (HEADER + len).next_multiple_of(8), 0);
}

/// Reads a file whose records begin at `start`, with record `first` (0: with any record).
///
/// At the first bad record the log ends, if that can be a torn write: records of one unsynced group reach the
/// disk in any order, so later good records may follow it, but none that was written *after* the bad one was
/// known to be durable. If there is one, or the file is not the last (`last`), synced bytes were lost.
pub(crate) fn scan(bytes: &Bytes, start: usize, first: u64, last: bool) -> Scan {
    let mut found = Vec::new();
    let mut at = start;
    let mut expected = first;
    while let Some((seq, _, body)) = read(bytes, at, 0) {
        if expected != 0 && seq != expected {
            break;
        }
        let size = (HEADER + body.len()).next_multiple_of(8);
        let Ok(record) = Record::decode(body) else { break };
        found.push(FoundRecord { seq, record });
        expected = seq + 1;
        at += size;
    }
    let ending = ending(bytes, at, expected, last);
    Scan { found, end: at as u64, ending }
}

fn ending(bytes: &Bytes, at: usize, expected: u64, last: bool) -> Ending {
    let head = bytes.get(at..bytes.len().min(at + HEADER)).unwrap_or_default();
    let clean = head.iter().all(|&byte| byte == 0);
    // A file that was used before holds whole records with smaller numbers.
    let stale = read(bytes, at, 0).is_some_and(|(seq, ..)| seq < expected);
    // With no record found the first number is unknown; but once anything was durable, the first record was.
    let missed = expected.max(1);
    let proof = (at..bytes.len().saturating_sub(HEADER))
        .step_by(8)
        .any(|later| read(bytes, later, missed).is_some_and(|(_, durable, _)| durable >= missed));
    match () {
        () if proof => Ending::Corrupt("a record that had been synced is missing"),
        () if clean || stale => Ending::Clean,
        () if !last => Ending::Corrupt("a bad record before the last file"),
        () => Ending::Torn,
    }
}

/// Number, durable mark and body of the record at `at`, if it is after number `after` and its checksum matches.
fn read(bytes: &Bytes, at: usize, after: u64) -> Option<(u64, u64, Bytes)> {
    let head = bytes.get(at..)?.first_chunk::<HEADER>()?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let (len, seq, durable) = (word(4) as usize, long(8), long(16));
    // Cheap tests first: the search for a later record tries every eighth byte of a file.
    let plausible = seq > after && durable < seq && seq - durable < MAX_GROUP;
    if !plausible || len == 0 || len > BODY || at + HEADER + len > bytes.len() {
        return None;
    }
    let intact = wire::crc32c(&bytes[at + 4..at + HEADER + len]) == word(0);
    intact.then(|| (seq, durable, bytes.slice(at + HEADER..at + HEADER + len)))
}
