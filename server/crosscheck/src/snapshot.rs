//! The last checkpoint on disk, for `durability = "disk"`: the log before it can then be dropped, and a restarted
//! replica begins there. The file is trusted only as a whole: its checksum covers every byte.
//!
//! `DATA/state.cut` belongs to this program if it begins with the magic number. So does `DATA/state.cut.new`, which a
//! crash may leave while a checkpoint is being written, if it begins with a part of that number, or with zeros. Other
//! files of these names are not changed.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use order::{Disk, DiskFile};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::slow;

/// Magic and version, length of the state, its digest.
const HEAD: usize = 8 + 8 + 16;
const MAGIC: [u8; 8] = *b"XCHKCUT1";
const NAME: &str = "state.cut";
/// Its name while it is being written.
const UNFINISHED: &str = "state.cut.new";
/// Bytes after which what was written is made durable: a sync of all of it would hold up the log on the same disk.
const SYNCED_BYTES: u64 = 4 << 20;

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
    /// Bytes of the state so far, and their digest.
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
    /// room that the unfinished file took is free again, as far as the disk permits.
    pub fn begin(disk: &impl Disk<File = F>, directory: &Path) -> Result<Self, SnapshotError> {
        let fresh = directory.join(UNFINISHED);
        if is_ours(disk, &fresh)? {
            disk.remove(&fresh).map_err(SnapshotError::of(&fresh))?;
        }
        let file = disk.create(&fresh).map_err(SnapshotError::of(&fresh))?;
        Ok(Unfinished { file, directory: directory.to_owned(), length: 0, digest: Xxh3::new(), synced: 0 })
    }

    /// Appends the next bytes of the state.
    ///
    /// # Errors
    /// As [`Unfinished::begin`]; nothing can be appended then, nor finished.
    pub fn append(&mut self, disk: &impl Disk<File = F>, bytes: &[u8]) -> Result<(), SnapshotError> {
        let mut written = self.file.write_all_at(bytes, HEAD as u64 + self.length);
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
        let (path, fresh) = (self.directory.join(NAME), self.directory.join(UNFINISHED));
        let length = self.length.to_le_bytes();
        let head = [&MAGIC[..], &length, &self.digest.digest128().to_le_bytes()].concat();
        let written = self.file.write_all_at(&head, 0).and_then(|()| self.file.sync_all());
        written.and_then(|()| disk.rename(&fresh, &path)).map_err(|error| self.failed(disk, error))?;
        // The rename itself is part of the directory.
        disk.sync_directory(&self.directory).map_err(SnapshotError::of(&path))
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

/// Reads the snapshot; `None` if there never was one.
///
/// # Errors
/// When the file cannot be read, or has changed since it was written.
pub fn read(disk: &impl Disk, directory: &Path) -> Result<Option<Bytes>, SnapshotError> {
    is_ours(disk, &directory.join(UNFINISHED))?;
    let path = directory.join(NAME);
    let io = SnapshotError::of(&path);
    let head = match disk.read(&path, HEAD as u64) {
        Ok(head) => head,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let length = disk.length(&path).map_err(&io)?;
    let corrupt = |why| SnapshotError::Corrupt { path: path.clone(), why };
    if head.iter().zip(MAGIC).any(|(&byte, ours)| byte != ours) {
        return Err(SnapshotError::Foreign { path });
    }
    let Some((head, digest)) = head.split_first_chunk::<16>().filter(|(_, digest)| digest.len() == 16) else {
        return Err(corrupt(format!("it was truncated to {length} bytes")));
    };
    let mut state = [0; 8];
    state.copy_from_slice(&head[8..]);
    let written = u64::from_le_bytes(state).saturating_add(HEAD as u64);
    if length != written {
        return Err(corrupt(format!("it has {length} bytes and was written with {written}")));
    }
    // The length is that of the file, so this takes no more memory than the file.
    let bytes = Bytes::from(disk.read(&path, written).map_err(&io)?);
    let state = bytes.slice(HEAD.min(bytes.len())..);
    if *digest != xxh3_128(&state).to_le_bytes() {
        return Err(corrupt("its digest is not that of its bytes".to_owned()));
    }
    Ok(Some(state))
}

/// The snapshot for the log in the same directory. If the log is `empty`, a snapshot belongs to a log that was given
/// up: no entry follows it, and it is deleted.
///
/// # Errors
/// Those of [`read`]; and when such a snapshot cannot be deleted.
pub fn for_log(disk: &impl Disk, directory: &Path, empty: bool) -> Result<Option<Bytes>, SnapshotError> {
    if !empty {
        return read(disk, directory);
    }
    for path in [directory.join(NAME), directory.join(UNFINISHED)] {
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
    let is_ours = |path: &PathBuf| is_one_of(path, &[NAME, UNFINISHED]) || is_one_of(path, &slow::NAMES);
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
        Ok(head) if head.iter().zip(MAGIC).all(|(&byte, ours)| byte == ours || byte == 0) => Ok(true),
        Ok(_) => Err(SnapshotError::Foreign { path: path.to_owned() }),
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
        let mut unfinished = Unfinished::begin(disk, directory)?;
        state.chunks(3).try_for_each(|piece| unfinished.append(disk, piece))?;
        unfinished.finish(disk)
    }

    #[test]
    fn what_was_written_last_is_read_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(&System, directory.path()).unwrap().is_none());
        write(&System, directory.path(), b"first").unwrap();
        write(&System, directory.path(), b"second, and longer").unwrap();
        assert_eq!(read(&System, directory.path()).unwrap().unwrap(), &b"second, and longer"[..]);
    }

    /// The log was given up. A new group must not begin with the state that its members had in the group before.
    #[test]
    fn a_snapshot_without_its_log_is_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        write(&System, path, b"state").unwrap();
        assert_eq!(for_log(&System, path, false).unwrap().unwrap(), &b"state"[..]);
        fs::write(path.join(UNFINISHED), b"").unwrap();
        assert_eq!(for_log(&System, path, true).unwrap(), None);
        assert!(!path.join(NAME).exists() && !path.join(UNFINISHED).exists());
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
            assert_eq!(read(&System, directory.path()).unwrap().unwrap(), &b"state"[..]);
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
