//! `durability = "disk"`: the log in segment files, synced once for everything written since the last sync.
//!
//! Files are `NNNNNNNN.log`, zeroed when created and reused when no longer needed: overwriting in place spares the
//! file system's own journal at each sync. Each begins with the records that a replica needs besides its entries, so
//! any prefix of files may be deleted once the entries in it are superseded. A failure of any write or sync ends this
//! replica.
//!
//! ```text
//! DATA/identity            whose directory it is (`owner.rs`)
//! DATA/log/lock            empty; locked while a process uses the directory
//! DATA/log/NNNNNNNN.log    the segments (`segment.rs`)
//! DATA/log/NNNNNNNN.spare  files of the same form that hold nothing any more, or nothing yet
//! DATA/log/synced          how far the log is known to be durable (`synced.rs`)
//! ```
//!
//! Files of these names that this program did not write are never changed: see `open.rs` for how they are
//! distinguished.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::limits;
use crate::log::disk::{Disk, DiskFile, System};
use crate::log::owner::Owner;
use crate::log::record::RecordKind;
use crate::log::segment;
use crate::log::synced::{Claim, Synced};
use crate::log::{LogError, LogStore, Record};

/// How the log uses its directory.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    /// Bytes of one file; longer only when a single record is.
    pub segment_bytes: u64,
    /// Bytes of all files together, beyond which the log reports that it is full.
    pub limit_bytes: u64,
    /// Files kept zeroed or used up for reuse.
    pub spares: usize,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions { segment_bytes: 16 << 20, limit_bytes: 8 << 30, spares: 2 }
    }
}

/// A log in a data directory of its own. One process at a time: the directory is locked.
#[derive(Debug)]
pub struct FileLog<D: Disk = System> {
    pub(super) disk: D,
    /// The data directory.
    pub(super) data: PathBuf,
    /// The one in it that the log's files are in.
    pub(super) directory: PathBuf,
    pub(super) options: FileOptions,
    pub(super) owner: Owner,
    /// Files in use, oldest first. The last is written to.
    pub(super) segments: VecDeque<Segment>,
    /// Files to be reused, and the length of each.
    pub(super) spares: Vec<(PathBuf, u64)>,
    pub(super) active: Option<D::File>,
    pub(super) active_len: u64,
    /// The place of the next byte in the active file.
    pub(super) at: u64,
    pub(super) buffer: Vec<u8>,
    pub(super) dirty: bool,
    pub(super) next_seq: u64,
    /// Index of the entry that was appended last.
    pub(super) last_entry: u64,
    /// Number of the last record that is known to be on the disk, and index of the last entry up to it.
    pub(super) durable: (u64, u64),
    pub(super) synced: Synced<D>,
    /// Syncs since the last claim.
    pub(super) syncs: u64,
    pub(super) next_segment: u64,
    /// The records that every new file begins with.
    pub(super) essence: Essence,
    pub(super) _lock: D::File,
}

/// A file in use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub number: u64,
    /// The greatest entry index in it.
    pub greatest: u64,
    /// Bytes of the file.
    pub length: u64,
}

/// The latest record of each kind but entries.
#[derive(Debug, Default)]
pub(super) struct Essence {
    identity: Option<Record>,
    start: Option<Record>,
    hard: Option<Record>,
    memberships: BTreeMap<u64, Record>,
}

impl Essence {
    pub(super) fn note(&mut self, record: &Record) {
        match &record.0 {
            RecordKind::Identity { .. } => self.identity = Some(record.clone()),
            RecordKind::Hard(_) => self.hard = Some(record.clone()),
            RecordKind::Membership { index, .. } => _ = self.memberships.insert(*index, record.clone()),
            RecordKind::Start { index, keep, .. } => {
                let later = self.memberships.split_off(&(index + 1));
                self.memberships = if *keep { later } else { BTreeMap::new() };
                self.start = Some(record.clone());
            }
            RecordKind::Entry(_) => {}
        }
    }

    /// Group and engine id of the log, if it has them.
    pub(super) fn names(&self) -> Option<(u64, u64)> {
        match self.identity.as_ref()?.0 {
            RecordKind::Identity { group, id, .. } => Some((group, id)),
            _ => None,
        }
    }

    /// These records in the form in which they may begin a file: a reset would discard the entries in the files before.
    fn records(&self) -> Vec<Record> {
        let start = self.start.clone().map(|mut record| {
            if let RecordKind::Start { keep, .. } = &mut record.0 {
                *keep = true;
            }
            record
        });
        let first = [self.identity.clone(), start, self.hard.clone()];
        first.into_iter().flatten().chain(self.memberships.values().cloned()).collect()
    }
}

impl<D: Disk> FileLog<D> {
    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:08}.log"))
    }

    pub(super) fn spare_path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:08}.spare"))
    }

    /// Numbers begin again with a new log: records that an earlier one left in a spare could be taken for its
    /// continuation.
    pub(super) fn remove_spares(&mut self) -> Result<(), LogError> {
        while let Some((spare, _)) = self.spares.pop() {
            self.disk.remove(&spare).map_err(LogError::of(&spare))?;
        }
        Ok(())
    }

    /// Records the owner of the directory, unless it is recorded already.
    pub(super) fn own(&mut self, owner: Owner) -> Result<(), LogError> {
        if self.owner != owner {
            owner.write(&self.disk, &self.data)?;
            self.owner = owner;
        }
        Ok(())
    }

    /// Writes the buffered bytes; the caller syncs.
    fn flush(&mut self) -> Result<(), LogError> {
        let Some(file) = self.active.as_ref().filter(|_| !self.buffer.is_empty()) else { return Ok(()) };
        file.write_all_at(&self.buffer, self.at).map_err(LogError::of(&self.directory))?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the active file (synced) and begins the next one with the essence.
    fn roll(&mut self, needed: u64) -> Result<(), LogError> {
        self.flush()?;
        if let Some(file) = &self.active {
            // In a reused file older bytes follow; the end must be unambiguous.
            let end = self.active_len.min(self.at + segment::HEADER as u64);
            zero(file, self.at, end).map_err(LogError::of(&self.directory))?;
            self.dirty = true;
        }
        self.sync()?;
        let size = self.options.segment_bytes.max(needed.next_multiple_of(4096));
        let in_use = (self.segments.len() as u64 + 1) * self.options.segment_bytes;
        if in_use > self.options.limit_bytes {
            let limit = self.options.limit_bytes;
            return Err(LogError::Full(format!("{}: {limit} bytes allowed", self.directory.display())));
        }
        let number = self.next_segment;
        let (file, length) = self.new_file(number, size)?;
        (self.active, self.active_len, self.at) = (Some(file), length, segment::FILE_HEADER as u64);
        self.segments.push_back(Segment { number, greatest: 0, length });
        self.next_segment += 1;
        for record in self.essence.records() {
            self.buffer_record(&record);
        }
        Ok(())
    }

    /// File `number` with at least `size` bytes, its existence durable, and its length: an old one if there
    /// is, a zeroed one if not.
    fn new_file(&mut self, number: u64, size: u64) -> Result<(D::File, u64), LogError> {
        let path = self.path(number);
        let fits = self.spares.iter().position(|(_, length)| *length >= size);
        let (spare, length) = match fits {
            Some(position) => self.spares.swap_remove(position),
            None => {
                let spare = self.spare_path(number);
                self.make_spare(&spare, size).map_err(LogError::of(&spare))?;
                (spare, size)
            }
        };
        self.expect_vacant(&path)?;
        let renamed = || -> io::Result<D::File> {
            self.disk.rename(&spare, &path)?;
            let file = self.disk.open(&path)?;
            file.sync_all()?;
            self.disk.sync_directory(&self.directory)?;
            Ok(file)
        };
        Ok((renamed().map_err(LogError::of(&path))?, length))
    }

    /// A new file with only its header; its contents are durable, its name is not.
    fn make_spare(&self, path: &Path, size: u64) -> io::Result<()> {
        let file = self.disk.create(path)?;
        zero(&file, 0, size)?;
        file.write_all_at(&segment::file_header(size), 0)?;
        file.sync_all()
    }

    /// No file of this name was made since the directory was read: renaming another one to it would delete it.
    fn expect_vacant(&self, path: &Path) -> Result<(), LogError> {
        match self.disk.length(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(LogError::of(path)(error)),
            Ok(_) => {
                let why = "it was made while this replica was running".to_owned();
                Err(LogError::Foreign { file: path.to_owned(), why })
            }
        }
    }

    fn buffer_record(&mut self, record: &Record) {
        segment::encode(record, self.next_seq, self.durable.0, &mut self.buffer);
        self.next_seq += 1;
        self.dirty = true;
        if let (Some(index), Some(last)) = (record.entry_index(), self.segments.back_mut()) {
            last.greatest = last.greatest.max(index);
            self.last_entry = index;
        }
    }

    /// Records how far the log is durable.
    fn claim(&mut self) -> Result<(), LogError> {
        self.syncs = 0;
        let Some((group, id)) = self.essence.names() else { return Ok(()) };
        let (record, entry) = self.durable;
        if record == 0 {
            return Ok(());
        }
        self.synced.claim(&self.disk, Claim { count: 0, group, id, record, entry })
    }

    /// Deletes a file of the log, unless another one has taken its place.
    fn remove_segment(&self, number: u64) -> Result<(), LogError> {
        let path = self.path(number);
        let has_header = number >= self.owner.headers_from;
        let head = self.disk.read(&path, segment::MAGIC.len() as u64).map_err(LogError::of(&path))?;
        if has_header && head != segment::MAGIC {
            let why = "it took the place of a file of the log while this replica was running".to_owned();
            return Err(LogError::Foreign { file: path, why });
        }
        self.disk.remove(&path).map_err(LogError::of(&path))
    }
}

impl<D: Disk> LogStore for FileLog<D> {
    fn append(&mut self, record: &Record) -> Result<(), LogError> {
        if let RecordKind::Identity { group, .. } = record.0 {
            self.own(Owner { group: Some(group), ..self.owner })?;
        }
        let before = self.buffer.len();
        let (seq, last_entry) = (self.next_seq, self.last_entry);
        self.essence.note(record);
        if self.active.is_some() {
            self.buffer_record(record);
            if self.at + self.buffer.len() as u64 <= self.active_len {
                return Ok(());
            }
        }
        // It does not fit: remove it, and begin a file that holds the essence and it.
        let needed = (self.buffer.len() - before) as u64 + (64 << 10);
        self.buffer.truncate(before);
        (self.next_seq, self.last_entry) = (seq, last_entry);
        self.roll(needed)?;
        self.buffer_record(record);
        Ok(())
    }

    fn needs_sync(&self) -> bool {
        self.dirty
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.flush()?;
        if let Some(file) = self.active.as_ref().filter(|_| self.dirty) {
            file.sync_data().map_err(LogError::of(&self.directory))?;
        }
        self.dirty = false;
        self.durable = (self.next_seq - 1, self.last_entry);
        self.syncs += 1;
        if self.syncs >= limits::SYNCS_PER_CLAIM { self.claim() } else { Ok(()) }
    }

    fn tick(&mut self) -> Result<(), LogError> {
        self.claim()
    }

    fn release(&mut self, index: u64) -> Result<(), LogError> {
        // The last file stays: it is written to, and its head has all records that the others had.
        let superseded = |log: &Self| log.segments.len() > 1 && log.segments[0].greatest <= index;
        if !superseded(self) {
            return Ok(());
        }
        self.sync()?;
        while superseded(self) {
            let Some(Segment { number, length, .. }) = self.segments.pop_front() else { break };
            if self.spares.len() < self.options.spares && number >= self.owner.headers_from {
                let (path, spare) = (self.path(number), self.spare_path(number));
                self.expect_vacant(&spare)?;
                self.disk.rename(&path, &spare).map_err(LogError::of(&path))?;
                self.spares.push((spare, length));
            } else {
                self.remove_segment(number)?;
            }
        }
        Ok(())
    }

    fn wipe(&mut self) -> Result<(), LogError> {
        self.active = None;
        self.buffer.clear();
        self.dirty = false;
        if !self.segments.is_empty() || !self.spares.is_empty() || self.synced.last().is_some() {
            // A process that ends in the middle of this must not leave a log that looks whole and lacks its end.
            if !self.owner.discarded {
                Owner::discard(&self.disk, &self.data)?;
                self.owner.discarded = true;
            }
        }
        while let Some(Segment { number, .. }) = self.segments.pop_back() {
            self.remove_segment(number)?;
        }
        self.remove_spares()?;
        self.synced.remove(&self.disk)?;
        self.essence = Essence::default();
        (self.syncs, self.last_entry) = (0, 0);
        self.disk.sync_directory(&self.directory).map_err(LogError::of(&self.directory))?;
        self.own(Owner { group: None, headers_from: 1, discarded: false, ..self.owner })
    }
}

pub(super) fn zero(file: &impl DiskFile, from: u64, to: u64) -> io::Result<()> {
    let zeros = [0u8; 64 << 10];
    let mut at = from;
    while at < to {
        let len = (to - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..len as usize], at)?;
        at += len;
    }
    Ok(())
}
