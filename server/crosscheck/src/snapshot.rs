//! The last checkpoint on disk, for `durability = "disk"`: the log before it can then be dropped, and a restarted
//! replica begins there. It is a whole state, `DATA/state.cut`, and behind it what later checkpoints have changed:
//! `DATA/state.cut.1` and so on. So a checkpoint writes in proportion to what has changed. Each file is trusted only as
//! a whole: its digest covers every byte. Each one after the first names the digest of the one that it follows; one
//! that follows another is left over from before a new whole state, and is not read.
//!
//! `DATA/state.cut` belongs to this program if it begins with the magic number. So does `DATA/state.cut.new`, which a
//! crash may leave while a checkpoint is being written, if it begins with a part of that number, or with zeros. Other
//! files of these names are not changed.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use order::{Disk, DiskFile};
use xxhash_rust::xxh3::Xxh3;

use crate::{founding, moved_note, slow};

/// Magic and version, length of the state, its digest.
const HEAD: usize = 8 + 8 + 16;
const MAGIC: [u8; 8] = *b"XCHKCUT1";
/// Of what has changed since an earlier checkpoint. Behind the same head, and part of what is digested, is the digest
/// of the file that it follows.
const MAGIC_OF_CHANGES: [u8; 8] = *b"XCHKCHG1";
const FOLLOWED: usize = 16;
const NAME: &str = "state.cut";
/// Its name while it is being written.
const UNFINISHED: &str = "state.cut.new";
/// Bytes after which what was written is made durable: a sync of all of it would hold up the log on the same disk.
const SYNCED_BYTES: u64 = 4 << 20;
/// Bytes that are read at a time: each is freed once its objects are loaded.
const READ_BYTES: u64 = 1 << 20;

/// What is written of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it, in place of what was there.
    Whole,
    /// What has changed since the last checkpoint on disk.
    Changes,
}

/// The last checkpoint on disk.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The whole state, in pieces, and then what each later checkpoint has changed.
    pub files: Vec<Vec<Bytes>>,
}

impl Saved {
    /// What it takes on the disk.
    pub fn size(&self) -> SavedSize {
        let mut lengths = self.files.iter().map(|pieces| pieces.iter().map(|piece| piece.len() as u64).sum());
        let state = lengths.next().unwrap_or(0);
        SavedSize { state, changes: lengths.sum(), files: self.files.len().saturating_sub(1) }
    }
}

/// What the last checkpoint takes on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedSize {
    /// Bytes of the whole state.
    pub state: u64,
    /// Bytes of all changes behind it.
    pub changes: u64,
    /// Files with changes.
    pub files: usize,
}

/// A file of a checkpoint that was written as a whole, as far as its head tells.
#[derive(Clone, Copy, Debug)]
struct Head {
    length: u64,
    digest: [u8; 16],
    /// Of one with changes: the digest of the file before it.
    follows: Option<[u8; 16]>,
}

impl Head {
    fn bytes(&self) -> u64 {
        head_bytes(self.follows.is_some())
    }
}

fn head_bytes(has_changes: bool) -> u64 {
    HEAD as u64 + if has_changes { FOLLOWED as u64 } else { 0 }
}

/// The reason why a snapshot's file is not usable. The text of each is complete: none has a source.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The operating system refused.
    #[error("{}: {error}{}", path.display(), with_remedy(error))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The bytes are not those that were written: the replica must drop its data and join again.
    #[error("{} is corrupt: {why}; {}", path.display(), refill(path))]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The rule that it breaks.
        why: String,
    },
    /// This program did not write the file, and leaves it as it is.
    #[error(
        "{} is not a file of this program (it does not begin as one does), and it is left as it is: move \
            that file away and start again",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is intact, but was written by another version of this program or with other settings.
    #[error(
        "{} cannot be loaded ({why}): another version of the program wrote it, or one with other settings. It is \
            intact, and left as it is: start the program that wrote it, with its settings. Do not delete or move it: \
            other replicas that were given the same program cannot load theirs either",
        path.display()
    )]
    Unloadable {
        /// The file.
        path: PathBuf,
        /// The part that cannot be read.
        why: String,
    },
}

impl SnapshotError {
    /// Whether only an operator can help: to start again changes nothing.
    pub fn is_operators(&self) -> bool {
        match self {
            SnapshotError::Io { error, .. } => order::operators_remedy(error.kind()).is_some(),
            SnapshotError::Corrupt { .. }
            | SnapshotError::Foreign { .. }
            | SnapshotError::Unloadable { .. } => true,
        }
    }

    /// The state that was read from `directory` cannot be loaded, for this reason.
    pub fn unloadable(directory: &Path, why: String) -> Self {
        SnapshotError::Unloadable { path: directory.join(NAME), why }
    }

    /// No thread could be started that writes into `directory`.
    pub(crate) fn no_writer(directory: &Path, error: io::Error) -> Self {
        let error = io::Error::new(error.kind(), format!("no thread to write it: {error}"));
        SnapshotError::Io { path: directory.join(NAME), error }
    }

    fn of(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| SnapshotError::Io { path: path.clone(), error }
    }
}

/// A snapshot that is being written, under another name. A crash at any moment leaves it, or the one before it, whole.
/// One write at a time: all have the same file in turn.
pub struct Unfinished<F> {
    file: F,
    directory: PathBuf,
    /// Number of the file with changes, and the digest of the one that it follows; none for a whole state.
    follows: Option<(u32, [u8; 16])>,
    /// Bytes of the state so far, and the digest.
    length: u64,
    digest: Xxh3,
    /// How many of them are durable.
    synced: u64,
}

impl<F: DiskFile> Unfinished<F> {
    /// Begins a snapshot.
    ///
    /// # Errors
    /// When the disk refuses (full, broken): the snapshot before is still there, and so is the log that it needs. The
    /// room that the unfinished file took is free again, as far as the disk permits. The same when there is no whole
    /// state that the changes could follow.
    pub fn begin(
        disk: &impl Disk<File = F>,
        directory: &Path,
        extent: Extent,
    ) -> Result<Self, SnapshotError> {
        let fresh = directory.join(UNFINISHED);
        if is_ours(disk, &fresh)? {
            disk.remove(&fresh).map_err(SnapshotError::of(&fresh))?;
        }
        let follows = match extent {
            Extent::Whole => None,
            Extent::Changes => Some(last_of(disk, directory)?),
        };
        let file = disk.create(&fresh).map_err(SnapshotError::of(&fresh))?;
        let mut digest = Xxh3::new();
        follows.iter().for_each(|(_, follows)| digest.update(follows));
        let directory = directory.to_owned();
        Ok(Unfinished { file, directory, follows, length: 0, digest, synced: 0 })
    }

    /// Appends the next bytes of the state.
    ///
    /// # Errors
    /// As [`Unfinished::begin`]; nothing can be appended then, nor finished.
    pub fn append(&mut self, disk: &impl Disk<File = F>, bytes: &[u8]) -> Result<(), SnapshotError> {
        let begins_at = head_bytes(self.follows.is_some());
        let mut written = self.file.write_all_at(bytes, begins_at + self.length);
        self.length += bytes.len() as u64;
        self.digest.update(bytes);
        if written.is_ok() && self.length - self.synced >= SYNCED_BYTES {
            self.synced = self.length;
            written = self.file.sync_data();
        }
        written.map_err(|error| self.failed(disk, error))
    }

    /// The state is complete: from here on a restart begins with this snapshot.
    ///
    /// # Errors
    /// As [`Unfinished::begin`].
    pub fn finish(self, disk: &impl Disk<File = F>) -> Result<(), SnapshotError> {
        let path = path_of(&self.directory, self.follows.map_or(0, |(number, _)| number));
        let (magic, followed) = match &self.follows {
            None => (MAGIC, &[][..]),
            Some((_, follows)) => (MAGIC_OF_CHANGES, &follows[..]),
        };
        let digest = self.digest.digest128().to_le_bytes();
        let head = [&magic[..], &self.length.to_le_bytes(), &digest, followed].concat();
        let written = self.file.write_all_at(&head, 0).and_then(|()| self.file.sync_all());
        let fresh = self.directory.join(UNFINISHED);
        written.and_then(|()| disk.rename(&fresh, &path)).map_err(|error| self.failed(disk, error))?;
        // The rename itself is part of the directory.
        disk.sync_directory(&self.directory).map_err(SnapshotError::of(&path))?;
        if self.follows.is_none() {
            // Changes to the state before are not read any more.
            (1..)
                .map(|number| path_of(&self.directory, number))
                .take_while(|path| disk.remove(path).is_ok())
                .count();
        }
        Ok(())
    }

    /// The state will not be complete.
    pub fn give_up(self, disk: &impl Disk<File = F>) {
        let _ = disk.remove(&self.directory.join(UNFINISHED));
    }

    /// Removes the file, so that the log gets its room. This process made it: that it is absent is nobody's mistake in
    /// the settings.
    fn failed(&self, disk: &impl Disk, error: io::Error) -> SnapshotError {
        let path = self.directory.join(UNFINISHED);
        let _ = disk.remove(&path);
        let error = match error.kind() {
            ErrorKind::NotFound => io::Error::other("it was removed while it was being written"),
            _ => error,
        };
        SnapshotError::Io { path, error }
    }
}

/// The file with this number: 0 for the whole state.
fn path_of(directory: &Path, number: u32) -> PathBuf {
    directory.join(if number == 0 { NAME.to_owned() } else { format!("{NAME}.{number}") })
}

/// The number of the file that would follow the last one, and the digest of that.
fn last_of(disk: &impl Disk, directory: &Path) -> Result<(u32, [u8; 16]), SnapshotError> {
    let mut last = None;
    while let Some(head) = head_of(disk, directory, last)? {
        last = Some((last.map_or(0, |(number, _)| number + 1), head.digest));
    }
    let absent = || {
        let error = io::Error::other("it is absent, and nothing can be written behind it");
        SnapshotError::Io { path: directory.join(NAME), error }
    };
    last.map(|(number, digest)| (number + 1, digest)).ok_or_else(absent)
}

/// The head of the file behind `last`, which has this number and digest; none if there is no such file, or it follows
/// another one.
fn head_of(
    disk: &impl Disk,
    directory: &Path,
    last: Option<(u32, [u8; 16])>,
) -> Result<Option<Head>, SnapshotError> {
    let path = path_of(directory, last.map_or(0, |(number, _)| number + 1));
    let (magic, size) = match last {
        None => (MAGIC, HEAD),
        Some(_) => (MAGIC_OF_CHANGES, HEAD + FOLLOWED),
    };
    let io = SnapshotError::of(&path);
    let bytes = match disk.read(&path, size as u64) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    if bytes.iter().zip(magic).any(|(&byte, ours)| byte != ours) {
        return Err(SnapshotError::Foreign { path });
    }
    let length = disk.length(&path).map_err(&io)?;
    let corrupt = |why| SnapshotError::Corrupt { path: path.clone(), why };
    if bytes.len() < size {
        return Err(corrupt(format!("it was truncated to {length} bytes")));
    }
    let follows = last.map(|(_, digest)| digest);
    if follows.is_some_and(|digest| bytes[HEAD..] != digest) {
        return Ok(None);
    }
    let mut state = [0; 8];
    state.copy_from_slice(&bytes[8..16]);
    let mut head = Head { length: u64::from_le_bytes(state), digest: [0; 16], follows };
    head.digest.copy_from_slice(&bytes[16..HEAD]);
    let written = head.length.saturating_add(head.bytes());
    if length != written {
        return Err(corrupt(format!("it has {length} bytes and was written with {written}")));
    }
    Ok(Some(head))
}

/// Reads the snapshot; `None` if there never was one.
///
/// # Errors
/// When a file cannot be read, or has changed since it was written.
pub fn read(disk: &impl Disk, directory: &Path) -> Result<Option<Saved>, SnapshotError> {
    is_ours(disk, &directory.join(UNFINISHED))?;
    let (mut saved, mut last) = (Saved::default(), None);
    while let Some(head) = head_of(disk, directory, last)? {
        let number = last.map_or(0, |(number, _)| number + 1);
        saved.files.push(read_file(disk, &path_of(directory, number), &head)?);
        last = Some((number, head.digest));
    }
    Ok(last.map(|_| saved))
}

/// The bytes of a file whose length is the one that its head tells.
fn read_file(disk: &impl Disk, path: &Path, head: &Head) -> Result<Vec<Bytes>, SnapshotError> {
    let (mut digest, mut pieces, mut at) = (Xxh3::new(), Vec::new(), head.bytes());
    head.follows.iter().for_each(|follows| digest.update(follows));
    while at < head.bytes() + head.length {
        let most = READ_BYTES.min(head.bytes() + head.length - at);
        let piece = disk.read_from(path, at, most).map_err(SnapshotError::of(path))?;
        if piece.is_empty() {
            break;
        }
        digest.update(&piece);
        at += piece.len() as u64;
        pieces.push(Bytes::from(piece));
    }
    if digest.digest128().to_le_bytes() != head.digest {
        let why = "its digest is not that of its bytes".to_owned();
        return Err(SnapshotError::Corrupt { path: path.to_owned(), why });
    }
    Ok(pieces)
}

/// The snapshot for the log in the same directory. If the log is `empty`, a snapshot belongs to a log that was given
/// up: no entry follows it, and it is deleted.
///
/// # Errors
/// Those of [`read`]; and when such a snapshot cannot be deleted.
pub fn for_log(disk: &impl Disk, directory: &Path, empty: bool) -> Result<Option<Saved>, SnapshotError> {
    if !empty {
        return read(disk, directory);
    }
    // The whole state last: without it, nothing else is read.
    let changes = (1..).map(|number| path_of(directory, number));
    let changes: Vec<PathBuf> = changes.take_while(|path| disk.length(path).is_ok()).collect();
    for path in changes.into_iter().rev().chain([directory.join(UNFINISHED), directory.join(NAME)]) {
        if is_ours(disk, &path)? {
            disk.remove(&path).map_err(SnapshotError::of(&path))?;
            disk.sync_directory(directory).map_err(SnapshotError::of(&path))?;
        }
    }
    Ok(None)
}

/// Restricts the files that this crate writes into the data directory to their owner, and the directory too if it has
/// no other files: then it was made for this replica alone.
///
/// # Errors
/// When the system refuses.
pub fn restrict(disk: &impl Disk, directory: &Path) -> Result<(), SnapshotError> {
    let listed = disk.list(directory).map_err(SnapshotError::of(directory))?;
    let is_one_of = |path: &PathBuf, names: &[&str]| names.iter().any(|name| path.ends_with(name));
    let is_changes = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.strip_prefix(NAME)?.strip_prefix('.')?.parse::<u32>().ok()).is_some()
    };
    let is_ours = |path: &PathBuf| {
        let notes = [slow::NAMES, moved_note::NAMES, [founding::NAME, founding::UNFINISHED]];
        is_one_of(path, &[NAME, UNFINISHED])
            || is_changes(path)
            || notes.iter().any(|names| is_one_of(path, names))
    };
    let is_alone = listed.iter().all(|path| is_ours(path) || is_one_of(path, &order::NAMES));
    let mut paths: Vec<PathBuf> = listed.into_iter().filter(is_ours).collect();
    paths.extend(is_alone.then(|| directory.to_owned()));
    for path in paths {
        disk.restrict(&path).map_err(|error| {
            let text = format!("other users have rights to it, and they cannot be taken away: {error}");
            SnapshotError::Io { error: io::Error::new(error.kind(), text), path }
        })?;
    }
    Ok(())
}

/// Whether the file is a snapshot, or a first part of one that a crash left, or zeros in its place.
fn is_ours(disk: &impl Disk, path: &Path) -> Result<bool, SnapshotError> {
    match disk.read(path, MAGIC.len() as u64) {
        Ok(head) => {
            let begins =
                |magic: [u8; 8]| head.iter().zip(magic).all(|(&byte, ours)| byte == ours || byte == 0);
            if begins(MAGIC) || begins(MAGIC_OF_CHANGES) {
                Ok(true)
            } else {
                Err(SnapshotError::Foreign { path: path.to_owned() })
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(SnapshotError::of(path)(error)),
    }
}

/// The remedy for data that cannot be used.
fn refill(path: &Path) -> String {
    let directory = path.parent().unwrap_or(path);
    format!(
        "move {} away (keep it until all replicas serve) and start again: the peers fill this replica",
        directory.display()
    )
}

fn with_remedy(error: &io::Error) -> String {
    order::operators_remedy(error.kind()).map_or_else(String::new, |remedy| format!("; {remedy}"))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use order::System;

    use super::*;

    /// Writes a state in pieces of three bytes.
    fn write(disk: &System, directory: &Path, state: &[u8]) -> Result<(), SnapshotError> {
        write_extent(disk, directory, Extent::Whole, state)
    }

    fn write_extent(
        disk: &System,
        directory: &Path,
        extent: Extent,
        state: &[u8],
    ) -> Result<(), SnapshotError> {
        let mut unfinished = Unfinished::begin(disk, directory, extent)?;
        state.chunks(3).try_for_each(|piece| unfinished.append(disk, piece))?;
        unfinished.finish(disk)
    }

    /// The bytes of each file that is read.
    fn read_all(directory: &Path) -> Result<Vec<Vec<u8>>, SnapshotError> {
        let saved = read(&System, directory)?.unwrap_or_default();
        Ok(saved.files.iter().map(|pieces| pieces.concat()).collect())
    }

    #[test]
    fn what_was_written_last_is_read_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(&System, directory.path()).unwrap().is_none());
        write(&System, directory.path(), b"first").unwrap();
        write(&System, directory.path(), b"second, and longer").unwrap();
        assert_eq!(read_all(directory.path()).unwrap(), [b"second, and longer"]);
    }

    /// The log was given up. A new group must not begin with the state that its members had in the group before.
    #[test]
    fn a_snapshot_without_its_log_is_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        write(&System, path, b"state").unwrap();
        assert_eq!(for_log(&System, path, false).unwrap().unwrap().size().state, 5);
        write_extent(&System, path, Extent::Changes, b"changes").unwrap();
        assert_eq!(
            for_log(&System, path, false).unwrap().unwrap().size(),
            SavedSize { state: 5, changes: 7, files: 1 }
        );
        fs::write(path.join(UNFINISHED), b"").unwrap();
        assert_eq!(for_log(&System, path, true).unwrap(), None);
        assert_eq!(fs::read_dir(path).unwrap().count(), 0);
        fs::write(path.join(NAME), b"somebody else's").unwrap();
        assert!(matches!(for_log(&System, path, true), Err(SnapshotError::Foreign { .. })));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let directory = tempfile::tempdir().unwrap();
        write(&System, directory.path(), b"state").unwrap();
        let path = directory.path().join(NAME);
        let good = fs::read(&path).unwrap();
        let refused = || {
            let error = read(&System, directory.path()).unwrap_err();
            let text = error.to_string();
            assert_eq!(text.matches("start again").count(), 1, "{text}");
            assert!(error.is_operators() && text.starts_with(&path.display().to_string()), "{text}");
            text
        };
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, bad).unwrap();
            refused();
        }
        for cut in 0..good.len() {
            fs::write(&path, &good[..cut]).unwrap();
            let text = refused();
            assert!(text.contains(&format!("{cut} bytes")), "{text}");
        }
        fs::write(&path, [&good[..], b"more"].concat()).unwrap();
        assert!(refused().contains("it has 41 bytes and was written with 37"));
    }

    #[test]
    fn changes_are_read_behind_the_state_that_they_follow_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let changes = |bytes: &[u8]| write_extent(&System, path, Extent::Changes, bytes);
        assert!(matches!(changes(b"x"), Err(SnapshotError::Io { .. })), "there is nothing to follow");
        write(&System, path, b"one").unwrap();
        changes(b"two").unwrap();
        changes(b"three").unwrap();
        assert_eq!(read_all(path).unwrap(), [&b"one"[..], b"two", b"three"]);
        let left: Vec<Vec<u8>> =
            [1, 2].iter().map(|number| fs::read(path_of(path, *number)).unwrap()).collect();
        write(&System, path, b"four").unwrap();
        assert_eq!(fs::read_dir(path).unwrap().count(), 1, "nobody needs the changes any more");
        // A crash may leave them.
        (1..).zip(&left).for_each(|(number, bytes)| fs::write(path_of(path, number), bytes).unwrap());
        assert_eq!(read_all(path).unwrap(), [b"four"]);
        changes(b"five").unwrap();
        assert_eq!(read_all(path).unwrap(), [&b"four"[..], b"five"]);
    }

    /// A flipped bit never gives another state. In the digest of the file before, it makes a stranger of the file: then
    /// entries are missing between the state and the log, which the log finds.
    #[test]
    fn every_flipped_bit_of_changes_is_found_or_drops_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        write(&System, path, b"state").unwrap();
        write_extent(&System, path, Extent::Changes, b"changes").unwrap();
        let file = path_of(path, 1);
        let good = fs::read(&file).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(&file, bad).unwrap();
            let is_followed = (HEAD..HEAD + FOLLOWED).contains(&(bit / 8));
            match read_all(path) {
                Ok(files) => assert!(is_followed && files == [b"state"], "bit {bit}"),
                Err(error) => assert!(!is_followed && error.is_operators(), "bit {bit}: {error}"),
            }
        }
    }

    /// Its length field is as large as all memory: no memory is allocated for it.
    #[test]
    fn a_length_is_believed_only_if_the_file_has_it() {
        let directory = tempfile::tempdir().unwrap();
        for length in [u64::MAX, 1 << 60] {
            let head = [&MAGIC[..], &length.to_le_bytes(), &[0; 16]].concat();
            fs::write(directory.path().join(NAME), head).unwrap();
            assert!(matches!(read(&System, directory.path()), Err(SnapshotError::Corrupt { .. })));
        }
    }

    #[test]
    fn what_a_crash_left_is_replaced_and_what_somebody_else_wrote_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let (path, fresh) = (directory.path().join(NAME), directory.path().join(UNFINISHED));
        for left in
            [&b""[..], b"XCH", b"XCH\0\0\0\0\0\0\0", &[0; 5000], b"XCHKCUT1 and more than what follows it"]
        {
            fs::write(&fresh, left).unwrap();
            read(&System, directory.path()).unwrap();
            write(&System, directory.path(), b"state").unwrap();
            assert_eq!(read_all(directory.path()).unwrap(), [b"state"]);
            assert!(!fresh.exists());
        }
        let good = fs::read(&path).unwrap();
        for (file, content) in [(&path, "mine"), (&fresh, "my notes")] {
            fs::write(file, content).unwrap();
            let error = read(&System, directory.path()).unwrap_err();
            assert!(matches!(error, SnapshotError::Foreign { .. }), "{error}");
            assert_eq!(fs::read_to_string(file).unwrap(), content);
            fs::write(&path, &good).unwrap();
        }
        assert!(matches!(write(&System, directory.path(), b"x"), Err(SnapshotError::Foreign { .. })));
        assert_eq!(fs::read_to_string(&fresh).unwrap(), "my notes");
    }

    #[test]
    fn nobody_else_reads_it_and_a_directory_that_others_use_is_theirs() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        write(&System, data, b"state").unwrap();
        assert_eq!(mode(&data.join(NAME)), 0o600);
        let widen = || {
            fs::set_permissions(data, Permissions::from_mode(0o755)).unwrap();
            fs::set_permissions(data.join(NAME), Permissions::from_mode(0o644)).unwrap();
        };
        fs::create_dir(data.join(order::NAMES[3])).unwrap();
        widen();
        restrict(&System, data).unwrap();
        assert_eq!((mode(data), mode(&data.join(NAME))), (0o700, 0o600));
        fs::write(data.join("notes"), "mine").unwrap();
        widen();
        restrict(&System, data).unwrap();
        assert_eq!((mode(data), mode(&data.join(NAME))), (0o755, 0o600));
    }

    /// All replicas may have been given the same other program: no peer could fill one that has given its data up.
    #[test]
    fn the_message_of_a_state_of_another_build_advises_nothing_that_loses_it() {
        let reported = SnapshotError::unloadable(Path::new("/data"), "another class".into()).to_string();
        assert!(reported.starts_with("/data/state.cut cannot be loaded (another class)"), "{reported}");
        assert!(
            reported.contains("start the program that wrote it") && reported.contains("Do not delete"),
            "{reported}"
        );
        assert!(!reported.contains("away") && !reported.contains("fill"), "{reported}");
    }
}
