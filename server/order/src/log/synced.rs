//! The file `synced`: how far the log is known to be durable, so that a log that has lost its end is distinguished from
//! one that ends there.
//!
//! ```text
//! slot (at 0 and at 4096): "XCSYNCED" | count u64 | group u64 | id u64 | record u64 | entry u64 | crc u32 | 0 u32
//! ```
//!
//! Without it, synced records that went bad later look like a write torn by a power failure, and are cut off.
//!
//! *It never claims too much.* A claim covers only records that a returned sync has made durable, and is written after
//! that sync. So after any crash each intact slot of this file names a record that is on the disk. Records are removed
//! from the disk only by [`FileLog::wipe`](crate::log::LogStore::wipe), which deletes this file with them, and marks
//! the directory as discarded before it deletes anything; and a slot names its log, by group and engine id, which no
//! two logs share. A torn slot does not match its checksum and claims nothing. Each claim replaces the older one of the
//! two, in a sector of its own, so a torn write leaves the other.
//!
//! *Its limits.* It is not synced. After a kill the next process finds the last claim. After a power failure it finds
//! the last claim that the kernel wrote by itself (by default, within half a minute). A claim is at most
//! [`limits::SYNCS_PER_CLAIM`] syncs or [`limits::CLAIM_TICKS`] ticks old: records synced after it can be lost
//! unnoticed, as without the file.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use wire::{Put, Reader};

use crate::log::LogError;
use crate::log::disk::{Disk, DiskFile};

const MAGIC: [u8; 8] = *b"XCSYNCED";
/// Bytes of a slot.
const SLOT: usize = 56;
/// Bytes that the checksum of a slot covers, from its beginning.
const SUMMED: usize = 48;
/// From one slot to the next: no disk writes less than both sectors at once, and a torn write of one leaves the other.
const APART: u64 = 4096;
/// Bytes of the whole file.
const BYTES: u64 = 2 * APART;

/// How far a log is known to be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Claim {
    /// Number of claims before this one; the slot with the greater number is the later one.
    pub count: u64,
    /// The log, named by the group and the engine id of this replica in it.
    pub group: u64,
    pub id: u64,
    /// Number of the last durable record.
    pub record: u64,
    /// Index of the last entry up to there.
    pub entry: u64,
}

impl Claim {
    /// The bytes of a slot.
    pub fn encode(&self) -> [u8; SLOT] {
        let mut bytes = Vec::with_capacity(SLOT);
        bytes
            .put(&MAGIC)
            .put64(self.count)
            .put64(self.group)
            .put64(self.id)
            .put64(self.record)
            .put64(self.entry);
        let sum = wire::crc32c(&bytes);
        bytes.put32(sum).put32(0);
        let mut slot = [0; SLOT];
        slot.copy_from_slice(&bytes);
        slot
    }

    /// Reads a slot; `None` when it was never written, or is torn.
    pub fn decode(slot: &[u8]) -> Option<Claim> {
        let sum = wire::crc32c(slot.get(..SUMMED)?);
        let mut reader = Reader::new(slot.get(..SLOT)?);
        if reader.array().ok()? != MAGIC {
            return None;
        }
        let mut field = || reader.u64().ok();
        let claim =
            Claim { count: field()?, group: field()?, id: field()?, record: field()?, entry: field()? };
        (reader.u32().ok()? == sum && reader.u32().ok()? == 0).then_some(claim)
    }
}

/// The file of one log.
#[derive(Debug)]
pub(crate) struct Synced<D: Disk> {
    path: PathBuf,
    file: Option<D::File>,
    /// The later one of the intact slots.
    last: Option<Claim>,
    /// The other slot.
    next: u64,
}

impl<D: Disk> Synced<D> {
    /// Reads the file in `directory`, if there is one. It is not changed before [`Synced::claim`].
    pub fn read(disk: &D, directory: &Path) -> Result<Self, LogError> {
        let path = path(directory);
        let mut synced = Synced { path: path.clone(), file: None, last: None, next: 0 };
        let bytes = match disk.read(&path, BYTES + 1) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(synced),
            Err(error) => return Err(LogError::of(&path)(error)),
        };
        let slots = [0, APART as usize].map(|at| bytes.get(at..).unwrap_or_default());
        let claims = slots.map(Claim::decode);
        let later = claims.iter().enumerate().max_by_key(|(_, claim)| claim.map(|claim| claim.count + 1));
        if let Some((slot, Some(claim))) = later {
            (synced.last, synced.next) = (Some(*claim), 1 - slot as u64);
        }
        if bytes.len() as u64 > BYTES
            || (synced.last.is_none() && !slots.iter().all(|slot| may_be_torn(slot)))
        {
            let why = "neither of its two slots was written by this program".to_owned();
            return Err(LogError::Foreign { file: path, why });
        }
        Ok(synced)
    }

    /// The last claim that was found or made.
    pub fn last(&self) -> Option<Claim> {
        self.last
    }

    /// Claims that a log is durable up to a record, unless that was claimed before. To be called after the
    /// sync has returned.
    pub fn claim(&mut self, disk: &D, claim: Claim) -> Result<(), LogError> {
        if self.last.is_some_and(|last| last.record >= claim.record) {
            return Ok(());
        }
        let fail = LogError::of(&self.path);
        let file = match self.file.take() {
            Some(file) => file,
            None => self.open(disk).map_err(&fail)?,
        };
        let claim = Claim { count: self.last.map_or(0, |last| last.count + 1), ..claim };
        file.write_all_at(&claim.encode(), self.next * APART).map_err(&fail)?;
        (self.file, self.last, self.next) = (Some(file), Some(claim), 1 - self.next);
        Ok(())
    }

    /// Opens the file and gives it its full length: it consists of slots, which are written as a whole.
    fn open(&self, disk: &D) -> io::Result<D::File> {
        let file = disk.open(&self.path)?;
        let end = file.length()?;
        if end < BYTES {
            file.write_all_at(&[0; BYTES as usize][end as usize..], end)?;
        }
        Ok(file)
    }

    /// Deletes the file, because its log is being deleted.
    pub fn remove(&mut self, disk: &D) -> Result<(), LogError> {
        (self.file, self.last, self.next) = (None, None, 0);
        match disk.remove(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(LogError::of(&self.path)(error)),
            _ => Ok(()),
        }
    }
}

/// The path of the file.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join("synced")
}

/// Whether a slot without a claim can be the result of a torn write: nothing, or parts of a claim, in any order.
fn may_be_torn(slot: &[u8]) -> bool {
    slot.iter().zip(MAGIC).all(|(&byte, ours)| byte == ours || byte == 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::log::System;

    fn claim(record: u64) -> Claim {
        Claim { group: 7, id: 0x102, record, entry: record / 2, ..Claim::default() }
    }

    fn found(directory: &Path) -> Option<u64> {
        Synced::read(&System, directory).unwrap().last().map(|claim| claim.record)
    }

    #[test]
    fn the_last_claim_is_found_and_whatever_tears_one_slot_leaves_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let mut synced = Synced::read(&System, directory.path()).unwrap();
        assert_eq!(synced.last(), None);
        let file = path(directory.path());
        let mut before = vec![0; BYTES as usize];
        for record in 1..=5 {
            synced.claim(&System, claim(record)).unwrap();
            assert_eq!(found(directory.path()), Some(record));
            let after = fs::read(&file).unwrap();
            assert_eq!(after.len() as u64, BYTES);
            for torn in (0..=SLOT).flat_map(|at| [at, APART as usize + at]) {
                let bytes = [&after[..torn], &before[torn..]].concat();
                let earlier = if bytes == after { Some(record) } else { (record > 1).then(|| record - 1) };
                fs::write(&file, bytes).unwrap();
                assert_eq!(found(directory.path()), earlier, "torn at {torn}");
            }
            fs::write(&file, &after).unwrap();
            before = after;
        }
        synced.claim(&System, claim(4)).unwrap();
        assert_eq!(found(directory.path()), Some(5), "nothing is taken back");
        // The next process continues, in the slot of the older claim.
        let mut next = Synced::read(&System, directory.path()).unwrap();
        next.claim(&System, claim(6)).unwrap();
        assert_eq!(found(directory.path()), Some(6));
        next.remove(&System).unwrap();
        assert_eq!(found(directory.path()), None);
    }

    #[test]
    fn every_length_of_a_file_that_was_being_made_says_nothing_and_is_gone_on_with() {
        let directory = tempfile::tempdir().unwrap();
        let whole = claim(3).encode();
        for length in 0..=SLOT {
            for bytes in [vec![0; length], whole[..length.min(SLOT - 1)].to_vec()] {
                fs::write(path(directory.path()), bytes).unwrap();
                let mut synced = Synced::read(&System, directory.path()).unwrap();
                assert_eq!(synced.last(), None);
                synced.claim(&System, claim(9)).unwrap();
                assert_eq!(found(directory.path()), Some(9));
            }
        }
    }

    #[test]
    fn a_file_of_somebody_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for foreign in [&b"2026-01-01"[..], &vec![0; BYTES as usize + 1], b"\0\0\0\0\0\0\0x"] {
            fs::write(path(directory.path()), foreign).unwrap();
            let refused = Synced::read(&System, directory.path()).unwrap_err();
            assert!(matches!(refused, LogError::Foreign { .. }), "{refused}");
        }
    }
}
