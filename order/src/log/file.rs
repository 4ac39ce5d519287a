//! `durability = "disk"`: the log in segment files, synced once for everything written since the last sync.
//!
//! Files are `NNNNNNNN.log`, zeroed when created and reused when no longer needed: overwriting in place spares the
//! file system's own journal at each sync. Each begins with what a replica must know besides its entries, so any prefix
//! of files may go once the entries in it are superseded. A failure of any write or sync ends this replica.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::log::disk::{Disk, DiskFile, System};
use crate::log::record::Kind;
use crate::log::segment::{self, Ending};
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

/// A log in a directory of its own. One process at a time: the directory is locked.
#[derive(Debug)]
pub struct FileLog<D: Disk = System> {
    disk: D,
    directory: PathBuf,
    options: FileOptions,
    /// Numbers of the files in use, oldest first, with the greatest entry index in each. The last is written to.
    segments: VecDeque<(u64, u64)>,
    spares: Vec<PathBuf>,
    active: Option<D::File>,
    active_len: u64,
    /// Where the next byte goes in the active file.
    at: u64,
    buffer: Vec<u8>,
    dirty: bool,
    next_seq: u64,
    durable: u64,
    next_segment: u64,
    /// The records that every new file begins with.
    essence: Essence,
    _lock: D::File,
}

/// The latest record of each kind but entries.
#[derive(Debug, Default)]
struct Essence {
    identity: Option<Record>,
    start: Option<Record>,
    hard: Option<Record>,
    memberships: BTreeMap<u64, Record>,
}

impl Essence {
    fn note(&mut self, record: &Record) {
        match &record.0 {
            Kind::Identity { .. } => self.identity = Some(record.clone()),
            Kind::Hard(_) => self.hard = Some(record.clone()),
            Kind::Membership { index, .. } => _ = self.memberships.insert(*index, record.clone()),
            Kind::Start { index, keep, .. } => {
                let later = self.memberships.split_off(&(index + 1));
                self.memberships = if *keep { later } else { BTreeMap::new() };
                self.start = Some(record.clone());
            }
            Kind::Entry(_) => {}
        }
    }

    /// As they may stand at the head of a file: a reset would throw away the entries in the files before.
    fn records(&self) -> Vec<Record> {
        let start = self.start.clone().map(|mut record| {
            if let Kind::Start { keep, .. } = &mut record.0 {
                *keep = true;
            }
            record
        });
        let first = [self.identity.clone(), start, self.hard.clone()];
        first.into_iter().flatten().chain(self.memberships.values().cloned()).collect()
    }
}

impl FileLog {
    /// [`FileLog::open_on`] the operating system's files.
    ///
    /// # Errors
    /// Those of [`FileLog::open_on`].
    pub fn open(directory: &Path, options: FileOptions) -> Result<(FileLog, Vec<Record>), LogError> {
        FileLog::open_on(System, directory, options)
    }
}

impl<D: Disk> FileLog<D> {
    /// Opens the log in `directory` (created if missing) and returns it with the records it holds, for `RaftEngine::new`.
    ///
    /// A torn end of the last file is cut off. Nothing that was ever acknowledged is lost by that.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] when synced records are missing: delete the directory to join anew. [`LogError::Io`]
    /// and [`LogError::Full`] when the system refuses.
    pub fn open_on(
        disk: D,
        directory: &Path,
        options: FileOptions,
    ) -> Result<(FileLog<D>, Vec<Record>), LogError> {
        let what = |what: &str| format!("{}: {what}", directory.display());
        disk.create_directory(directory).map_err(|source| LogError::Io { what: what("create"), source })?;
        let lock = lock(&disk, directory)?;
        let mut log = FileLog {
            disk,
            directory: directory.to_owned(),
            options,
            segments: VecDeque::new(),
            spares: Vec::new(),
            active: None,
            active_len: 0,
            at: 0,
            buffer: Vec::new(),
            dirty: false,
            next_seq: 1,
            durable: 0,
            next_segment: 1,
            essence: Essence::default(),
            _lock: lock,
        };
        let mut names: Vec<u64> = Vec::new();
        let listed = log.disk.list(directory);
        for path in listed.map_err(|source| LogError::Io { what: what("list"), source })? {
            let stem =
                path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
            match (path.extension().and_then(|extension| extension.to_str()), stem) {
                (Some("log"), Some(number)) => names.push(number),
                (Some("spare"), _) => log.spares.push(path),
                _ => {}
            }
        }
        names.sort_unstable();
        if names.is_empty() {
            log.remove_spares()?;
        }
        let records = log.read(&names)?;
        Ok((log, records))
    }

    /// Reads all files in order, and goes on writing behind the last good record.
    fn read(&mut self, names: &[u64]) -> Result<Vec<Record>, LogError> {
        let mut records = Vec::new();
        let mut expected = 0;
        for (position, &number) in names.iter().enumerate() {
            let path = self.path(number);
            let last = position + 1 == names.len();
            let read = self.disk.read(&path);
            let bytes = read.map_err(|source| LogError::Io { what: path.display().to_string(), source })?;
            let scan = segment::scan(&Bytes::from(bytes), expected, last);
            let corrupt = |why| LogError::Corrupt { file: path.display().to_string(), at: scan.end, why };
            if let Ending::Corrupt(why) = scan.ending {
                return Err(corrupt(why));
            }
            if position > 0 && (number != names[position - 1] + 1 || (scan.found.is_empty() && !last)) {
                return Err(corrupt("a file of the log is missing"));
            }
            let mut greatest = 0;
            for found in scan.found {
                greatest = greatest.max(found.record.entry_index().unwrap_or(0));
                expected = found.seq + 1;
                self.essence.note(&found.record);
                records.push(found.record);
            }
            self.segments.push_back((number, greatest));
            self.next_segment = number + 1;
            if last {
                self.resume(&path, scan.end)?;
            }
        }
        if expected > 0 {
            self.next_seq = expected;
            self.durable = expected - 1;
        }
        Ok(records)
    }

    /// Overwrites what follows the last good record: a torn one must not come back to life behind new ones.
    fn resume(&mut self, path: &Path, end: u64) -> Result<(), LogError> {
        let fail = io_error(path);
        let file = self.disk.open(path).map_err(&fail)?;
        let len = file.length().map_err(&fail)?;
        zero(&file, end, len).map_err(&fail)?;
        file.sync_data().map_err(&fail)?;
        (self.active, self.active_len, self.at) = (Some(file), len, end);
        Ok(())
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:08}.log"))
    }

    /// Numbers begin anew with a new log: what an earlier one left in a spare could be taken for its continuation.
    fn remove_spares(&mut self) -> Result<(), LogError> {
        while let Some(spare) = self.spares.pop() {
            self.disk.remove(&spare).map_err(io_error(&spare))?;
        }
        Ok(())
    }

    /// Writes out what is buffered; the caller syncs.
    fn flush(&mut self) -> Result<(), LogError> {
        let Some(file) = self.active.as_ref().filter(|_| !self.buffer.is_empty()) else { return Ok(()) };
        file.write_all_at(&self.buffer, self.at).map_err(io_error(&self.directory))?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the active file (synced) and begins the next one with the essence.
    fn roll(&mut self, needed: u64) -> Result<(), LogError> {
        self.flush()?;
        if let Some(file) = &self.active {
            // In a reused file older bytes follow; the end must be plain to see.
            let end = self.active_len.min(self.at + segment::HEADER as u64);
            zero(file, self.at, end).map_err(io_error(&self.directory))?;
            self.dirty = true;
        }
        self.sync()?;
        let number = self.next_segment;
        let path = self.path(number);
        let size = self.options.segment_bytes.max(needed.next_multiple_of(4096));
        let in_use = (self.segments.len() as u64 + 1) * self.options.segment_bytes;
        if in_use > self.options.limit_bytes {
            let limit = self.options.limit_bytes;
            return Err(LogError::Full(format!("{}: {limit} bytes allowed", self.directory.display())));
        }
        let file = self.new_file(&path, size).map_err(io_error(&path))?;
        (self.active, self.active_len, self.at) = (Some(file), size, 0);
        self.segments.push_back((number, 0));
        self.next_segment += 1;
        for record in self.essence.records() {
            self.buffer_record(&record);
        }
        Ok(())
    }

    /// A file of `size` bytes under its final name, its existence durable: an old one if there is, a zeroed one if not.
    fn new_file(&mut self, path: &Path, size: u64) -> io::Result<D::File> {
        if size == self.options.segment_bytes
            && let Some(spare) = self.spares.pop()
        {
            self.disk.rename(&spare, path)?;
        }
        let file = self.disk.open(path)?;
        let present = file.length()?;
        if present < size {
            zero(&file, present, size)?;
        }
        file.sync_all()?;
        self.disk.sync_directory(&self.directory)?;
        Ok(file)
    }

    fn buffer_record(&mut self, record: &Record) {
        segment::encode(record, self.next_seq, self.durable, &mut self.buffer);
        self.next_seq += 1;
        self.dirty = true;
        if let (Some(index), Some(last)) = (record.entry_index(), self.segments.back_mut()) {
            last.1 = last.1.max(index);
        }
    }
}

impl<D: Disk> LogStore for FileLog<D> {
    fn append(&mut self, record: &Record) -> Result<(), LogError> {
        let before = self.buffer.len();
        let seq = self.next_seq;
        self.essence.note(record);
        if self.active.is_some() {
            self.buffer_record(record);
            if self.at + self.buffer.len() as u64 <= self.active_len {
                return Ok(());
            }
        }
        // It does not fit: take it back, and begin a file that holds the essence and it.
        let needed = (self.buffer.len() - before) as u64 + (64 << 10);
        self.buffer.truncate(before);
        self.next_seq = seq;
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
            file.sync_data().map_err(io_error(&self.directory))?;
        }
        self.dirty = false;
        self.durable = self.next_seq - 1;
        Ok(())
    }

    fn release(&mut self, index: u64) -> Result<(), LogError> {
        // The last file stays: it is written to, and its head has all that the others knew.
        let superseded = |log: &Self| log.segments.len() > 1 && log.segments[0].1 <= index;
        if !superseded(self) {
            return Ok(());
        }
        self.sync()?;
        while superseded(self) {
            let Some((number, _)) = self.segments.pop_front() else { break };
            let path = self.path(number);
            let outcome = if self.spares.len() < self.options.spares {
                let spare = self.directory.join(format!("{number:08}.spare"));
                self.spares.push(spare.clone());
                self.disk.rename(&path, &spare)
            } else {
                self.disk.remove(&path)
            };
            outcome.map_err(io_error(&path))?;
        }
        Ok(())
    }

    fn wipe(&mut self) -> Result<(), LogError> {
        self.active = None;
        self.buffer.clear();
        self.dirty = false;
        // Oldest last: a half-wiped log must not look like a whole one.
        while let Some((number, _)) = self.segments.pop_back() {
            let path = self.path(number);
            self.disk.remove(&path).map_err(io_error(&path))?;
        }
        self.remove_spares()?;
        self.essence = Essence::default();
        self.disk.sync_directory(&self.directory).map_err(io_error(&self.directory))
    }
}

fn zero(file: &impl DiskFile, from: u64, to: u64) -> io::Result<()> {
    let zeros = [0u8; 64 << 10];
    let mut at = from;
    while at < to {
        let len = (to - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..len as usize], at)?;
        at += len;
    }
    Ok(())
}

fn lock<D: Disk>(disk: &D, directory: &Path) -> Result<D::File, LogError> {
    let path = directory.join("lock");
    disk.lock(&path).map_err(|source| {
        let taken = || io::Error::new(ErrorKind::ResourceBusy, "another process uses this log");
        io_error(&path)(if source.kind() == ErrorKind::ResourceBusy { taken() } else { source })
    })
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> LogError + use<> {
    let what = path.display().to_string();
    move |source| match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => LogError::Full(format!("{what}: {source}")),
        _ => LogError::Io { what: what.clone(), source },
    }
}
