//! Opening a log: the owner of the directory, which files are ours, and whether all synced records are there.
//!
//! Nothing is changed before all of that is known, so that a refusal leaves every file as the evidence it is.
//!
//! *Which files are ours.* A segment or spare begins with an intact header, which is durable before the file
//! has its name. One that a release without headers made (`owner.headers_from`) holds an intact record, or
//! nothing but zeros. A spare that was being made when the power failed begins with a part of a header and
//! holds zeros otherwise. `lock` is empty. Any other file of these names is foreign.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::log::disk::{Disk, DiskFile, System};
use crate::log::file::{Essence, FileLog, FileOptions, Segment, zero};
use crate::log::owner::{self, Owner};
use crate::log::record::RecordKind;
use crate::log::segment::{self, Ending, FILE_HEADER};
use crate::log::synced::{self, Synced};
use crate::log::{LogError, LogStore, Record};
use crate::raft::members::slot_of;

/// The names that a log puts into its data directory; all others there are the caller's.
pub const NAMES: [&str; 4] = [owner::NAME, owner::UNFINISHED, owner::DISCARDED, LOG];

/// The directory of the log's files in its data directory.
const LOG: &str = "log";
/// The file in it that is locked.
const LOCK: &str = "lock";

impl FileLog {
    /// [`FileLog::open_on`] the operating system's files.
    ///
    /// # Errors
    /// Those of [`FileLog::open_on`].
    pub fn open(data: &Path, slot: u8, options: FileOptions) -> Result<(FileLog, Vec<Record>), LogError> {
        FileLog::open_on(System, data, slot, options)
    }
}

impl<D: Disk> FileLog<D> {
    /// Opens the log of the replica in `slot`, in the directory `log` of its data directory `data` (both
    /// created if missing), and returns it with the records it holds, for `RaftEngine::new`.
    ///
    /// A torn end of the last file is cut off. Nothing that was ever acknowledged is lost by that.
    ///
    /// # Errors
    /// An error of the directory, as [`LogError`] lists them. Some have only a remedy for the operator
    /// ([`LogError::is_operators`]); no file was changed then.
    pub fn open_on(
        disk: D,
        data: &Path,
        slot: u8,
        options: FileOptions,
    ) -> Result<(FileLog<D>, Vec<Record>), LogError> {
        let directory = data.join(LOG);
        disk.create_directory(&directory).map_err(LogError::of(&directory))?;
        // A process of its owner may be using it, but the wrong owner is the more helpful message.
        read_owner(&disk, data, slot)?;
        let lock = lock(&disk, data, &directory.join(LOCK))?;
        let found = read_owner(&disk, data, slot)?;
        let (names, spares) = list(&disk, &directory)?;
        let headers_from = names.last().map_or(1, |last| last + 1);
        let mut log = FileLog {
            owner: found.unwrap_or(Owner { slot, group: None, headers_from, discarded: false }),
            synced: Synced::read(&disk, &directory)?,
            disk,
            data: data.to_owned(),
            directory,
            options,
            segments: Default::default(),
            spares: Vec::new(),
            active: None,
            active_len: 0,
            at: 0,
            buffer: Vec::new(),
            dirty: false,
            next_seq: 1,
            last_entry: 0,
            durable: (0, 0),
            syncs: 0,
            next_segment: 1,
            essence: Essence::default(),
            _lock: lock,
        };
        let useless = log.sort_spares(spares)?;
        let records = log.read(&names)?;
        match found {
            None => log.owner.write(&log.disk, &log.data)?,
            Some(_) => Owner::remove_discarded(&log.disk, &log.data)?,
        }
        if let Some((group, _)) = log.essence.names() {
            log.own(Owner { group: Some(group), ..log.owner })?;
        }
        for spare in useless {
            log.disk.remove(&spare).map_err(LogError::of(&spare))?;
        }
        if names.is_empty() {
            log.remove_spares()?;
        }
        log.restrict()?;
        Ok((log, records))
    }

    /// Reads all files in order, and continues writing behind the last good record.
    fn read(&mut self, names: &[u64]) -> Result<Vec<Record>, LogError> {
        if self.owner.discarded {
            return self.finish_wipe(names);
        }
        let mut records = Vec::new();
        let (mut expected, mut end) = (0, 0);
        for (position, &number) in names.iter().enumerate() {
            let path = self.path(number);
            let last = position + 1 == names.len();
            let (bytes, start) = self.read_segment(number)?;
            let scan = segment::scan(&bytes, start, expected, last);
            if let Ending::Corrupt(why) = scan.ending {
                return Err(self.corrupt(path, scan.end, why));
            }
            if position > 0 && (number != names[position - 1] + 1 || (scan.found.is_empty() && !last)) {
                return Err(self.corrupt(path, scan.end, "a file of the log before it is missing, or empty"));
            }
            let mut greatest = 0;
            for found in scan.found {
                self.check_names(&path, &found.record)?;
                if let Some(index) = found.record.entry_index() {
                    (greatest, self.last_entry) = (greatest.max(index), index);
                }
                expected = found.seq + 1;
                self.essence.note(&found.record);
                records.push(found.record);
            }
            self.segments.push_back(Segment { number, greatest, length: bytes.len() as u64 });
            (self.next_segment, end) = (number + 1, scan.end);
        }
        self.check_end(expected.saturating_sub(1), end)?;
        if let Some(last) = names.last() {
            self.resume(&self.path(*last), end)?;
        }
        if expected > 0 {
            self.next_seq = expected;
            self.durable = (expected - 1, self.last_entry);
        }
        Ok(records)
    }

    /// An earlier process gave the log up and ended before all of it was deleted.
    fn finish_wipe(&mut self, names: &[u64]) -> Result<Vec<Record>, LogError> {
        for &number in names {
            let (bytes, _) = self.read_segment(number)?;
            self.segments.push_back(Segment { number, greatest: 0, length: bytes.len() as u64 });
        }
        self.wipe()?;
        Ok(Vec::new())
    }

    /// The bytes of file `number`, and where its records begin.
    fn read_segment(&self, number: u64) -> Result<(Bytes, usize), LogError> {
        let path = self.path(number);
        let fail = LogError::of(&path);
        let length = self.disk.length(&path).map_err(&fail)?;
        let head = self.disk.read(&path, FILE_HEADER as u64).map_err(&fail)?;
        if let Some(made) = segment::made_with(&head) {
            return match length {
                _ if length < made => Err(self.truncated(path, length, made)),
                _ if length > made => Err(self.corrupt(path, made, "it is longer than it was made")),
                _ => Ok((self.disk.read(&path, made).map_err(&fail)?.into(), FILE_HEADER)),
            };
        }
        let has_header = number >= self.owner.headers_from;
        if has_header && head.len() < FILE_HEADER && segment::begins_as_header(&head) {
            return Err(self.truncated(path, length, self.options.segment_bytes));
        }
        if head.starts_with(&segment::MAGIC) {
            return Err(self.corrupt(path, 0, "its header does not match its checksum"));
        }
        let bytes = self.read_bounded(&path, length)?;
        let is_zero = bytes.iter().all(|&byte| byte == 0);
        let has_record = !is_zero && segment::has_record(&bytes);
        match (is_zero || has_record, has_header) {
            (true, true) => Err(self.corrupt(path, 0, "its header is missing")),
            (true, false) if has_record && length < self.options.segment_bytes => {
                Err(self.truncated(path, length, self.options.segment_bytes))
            }
            // A file of zeros alone is left by a crash while a release without headers was making it.
            (true, false) => Ok((bytes, 0)),
            (false, _) => Err(foreign(path, "it has neither a header nor a record of a log")),
        }
    }

    /// A file without a valid header, if its length is possible for one.
    fn read_bounded(&self, path: &Path, length: u64) -> Result<Bytes, LogError> {
        let longest = self.options.segment_bytes.max(segment::LONGEST_WITHOUT_HEADER);
        if length > longest {
            let why =
                format!("it has no header and {length} bytes, and a file of the log has {longest} at most");
            return Err(LogError::Foreign { file: path.to_owned(), why });
        }
        Ok(self.disk.read(path, length).map_err(LogError::of(path))?.into())
    }

    /// Keeps the usable spares, and returns those of ours that are not usable.
    fn sort_spares(&mut self, paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, LogError> {
        let mut useless = Vec::new();
        for path in paths {
            let fail = LogError::of(&path);
            let length = self.disk.length(&path).map_err(&fail)?;
            let head = self.disk.read(&path, FILE_HEADER as u64).map_err(&fail)?;
            if segment::made_with(&head) == Some(length) {
                self.spares.push((path, length));
                continue;
            }
            if !head.starts_with(&segment::MAGIC) {
                let bytes = self.read_bounded(&path, length)?;
                if !segment::is_unfinished(&bytes) && !segment::has_record(&bytes) {
                    return Err(foreign(path, "it has neither a header nor a record of a log"));
                }
            }
            useless.push(path);
        }
        Ok(useless)
    }

    /// All files are of one log: of this replica, and of the group that the directory is of.
    fn check_names(&self, path: &Path, record: &Record) -> Result<(), LogError> {
        let RecordKind::Identity { group, id, .. } = record.0 else { return Ok(()) };
        let (this, directory) = (self.owner.slot, self.data.clone());
        let other_log = |why| LogError::OtherLog { file: path.to_owned(), why, directory: directory.clone() };
        match slot_of(id) {
            Some(slot) if slot == this => {}
            Some(holds) => return Err(LogError::OtherReplica { directory, holds, this }),
            None => return Err(other_log(format!("no replica has the engine id {id:x}"))),
        }
        if let Some(owned) = self.owner.group.filter(|&owned| owned != group) {
            return Err(other_log(format!(
                "it is of group {group:016x}, and the directory is of group {owned:016x}"
            )));
        }
        match self.essence.names() {
            Some(before) if before != (group, id) => Err(other_log(format!(
                "it is of engine id {id:x} of group {group:016x}, and the records before are of {:x} of {:016x}",
                before.1, before.0
            ))),
            _ => Ok(()),
        }
    }

    /// All records known to be durable are there: the log's last record is `last`, and it ends at byte `at` of
    /// its last file.
    fn check_end(&self, last: u64, at: u64) -> Result<(), LogError> {
        let Some(claim) = self.synced.last() else { return Ok(()) };
        let names = (claim.group, claim.id);
        if self.essence.names().is_some_and(|found| found != names) {
            let why = format!("it is about engine id {:x} of group {:016x}", claim.id, claim.group);
            let file = synced::path(&self.directory);
            return Err(LogError::OtherLog { file, why, directory: self.data.clone() });
        }
        if last >= claim.record {
            return Ok(());
        }
        let file = self.segments.back().map_or(self.directory.clone(), |segment| self.path(segment.number));
        let (synced, entry) = (claim.record, claim.entry);
        Err(LogError::EndLost { file, at, last, synced, entry, directory: self.data.clone() })
    }

    /// Overwrites what follows the last good record: a torn one must not become valid again behind new ones.
    fn resume(&mut self, path: &Path, end: u64) -> Result<(), LogError> {
        let resumed = || -> io::Result<(D::File, u64)> {
            let file = self.disk.open(path)?;
            let length = file.length()?;
            zero(&file, end, length)?;
            file.sync_data()?;
            Ok((file, length))
        };
        let (file, length) = resumed().map_err(LogError::of(path))?;
        (self.active, self.active_len, self.at) = (Some(file), length, end);
        Ok(())
    }

    /// Only this user may read clients' data, also where an earlier release allowed more. A directory that also
    /// contains other files was not made for the log alone: its owner decides who may list it.
    fn restrict(&self) -> Result<(), LogError> {
        let fixed = [self.directory.join(LOCK), synced::path(&self.directory)];
        let listed = self.disk.list(&self.directory).map_err(LogError::of(&self.directory))?;
        let is_ours = |path: &PathBuf| {
            fixed.contains(path) || number_of(path, "log").is_some() || number_of(path, "spare").is_some()
        };
        let all_ours = listed.iter().all(is_ours);
        let mut paths: Vec<PathBuf> = listed.into_iter().filter(is_ours).collect();
        paths.push(owner::path(&self.data));
        paths.extend(all_ours.then(|| self.directory.clone()));
        for path in paths {
            self.disk.restrict(&path).map_err(|error| {
                let text = format!("other users have rights to it, and they cannot be taken away: {error}");
                LogError::Io { error: io::Error::new(error.kind(), text), path }
            })?;
        }
        Ok(())
    }

    fn corrupt(&self, file: PathBuf, at: u64, why: &'static str) -> LogError {
        LogError::Corrupt { file, at, why, directory: self.data.clone() }
    }

    fn truncated(&self, file: PathBuf, length: u64, made: u64) -> LogError {
        LogError::Truncated { file, length, made, directory: self.data.clone() }
    }
}

fn foreign(file: PathBuf, why: &str) -> LogError {
    LogError::Foreign { file, why: why.to_owned() }
}

/// The owner of the directory, if it is this replica's or has no owner yet.
fn read_owner(disk: &impl Disk, data: &Path, this: u8) -> Result<Option<Owner>, LogError> {
    match Owner::read(disk, data)? {
        Some(Owner { slot: holds, .. }) if holds != this => {
            Err(LogError::OtherReplica { directory: data.to_owned(), holds, this })
        }
        owner => Ok(owner),
    }
}

fn lock<D: Disk>(disk: &D, data: &Path, path: &Path) -> Result<D::File, LogError> {
    let file = disk.lock(path).map_err(|error| match error.kind() {
        ErrorKind::ResourceBusy => LogError::InUse { directory: data.to_owned() },
        _ => LogError::of(path)(error),
    })?;
    match file.length().map_err(LogError::of(path))? {
        0 => Ok(file),
        length => Err(foreign(path.to_owned(), &format!("it has {length} bytes, and the lock has none"))),
    }
}

/// The numbers of the segments in order, and the spares. Other names are ignored.
fn list(disk: &impl Disk, directory: &Path) -> Result<(Vec<u64>, Vec<PathBuf>), LogError> {
    let listed = disk.list(directory).map_err(LogError::of(directory))?;
    let mut numbers: Vec<u64> = listed.iter().filter_map(|path| number_of(path, "log")).collect();
    numbers.sort_unstable();
    let spares = listed.into_iter().filter(|path| number_of(path, "spare").is_some()).collect();
    Ok((numbers, spares))
}

/// The number of a file whose name this program gives.
fn number_of(path: &Path, extension: &str) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let number: u64 = name.strip_suffix(extension)?.strip_suffix('.')?.parse().ok()?;
    (number < u64::MAX && name == format!("{number:08}.{extension}")).then_some(number)
}
