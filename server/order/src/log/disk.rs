//! The files of a log and a snapshot: the operating system's, or those of a simulation that decides what a power
//! failure leaves of them. Dispatched statically, so that this trait costs nothing in the shipped code.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Mode of the files that hold data: clients' values are in them.
const FILE_MODE: u32 = 0o600;
/// Mode of the directories that are made for data.
const DIRECTORY_MODE: u32 = 0o700;
/// The part of a mode that [`Disk::restrict`] keeps: the owner's rights, and the bits above them.
const OWNERS_BITS: u32 = 0o7700;

/// Directories and files, as far as a replica uses them. Unsynced data may be lost, whole or in part, when the power
/// fails.
///
/// Directories and files that it creates can be used by their owner alone (modes 0700 and 0600).
pub trait Disk: Clone + fmt::Debug + Send + 'static {
    /// An open file.
    type File: DiskFile;

    /// Creates a directory and those above it, unless they are there. Their names are durable when it returns.
    ///
    /// # Errors
    /// The system's error.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes all rights to a file or directory but its owner's, if that is this user. A file of another user is left
    /// unchanged: that user decided who may read it.
    ///
    /// # Errors
    /// The system's error.
    fn restrict(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }

    /// The files in a directory, in any order.
    ///
    /// # Errors
    /// The system's error.
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;

    /// Length of a file in bytes.
    ///
    /// # Errors
    /// The system's error; `NotFound` when there is none.
    fn length(&self, path: &Path) -> io::Result<u64>;

    /// The first bytes of a file: `most` at most, fewer when it is shorter. Takes no more memory than that.
    ///
    /// # Errors
    /// The system's error; `NotFound` when there is none.
    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        self.read_from(path, 0, most)
    }

    /// The same from byte `from` on.
    ///
    /// # Errors
    /// As [`Disk::read`].
    fn read_from(&self, path: &Path, from: u64, most: u64) -> io::Result<Vec<u8>>;

    /// Creates a new file, and opens it for writing at any place.
    ///
    /// # Errors
    /// The system's error; `AlreadyExists` when there is one.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file for writing at any place; creates it if it is missing.
    ///
    /// # Errors
    /// The system's error.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file for this process alone, until it is dropped; creates it if it is missing.
    ///
    /// # Errors
    /// `ResourceBusy` when another process has it.
    fn lock(&self, path: &Path) -> io::Result<Self::File>;

    /// Gives a file another name, in place of one that had it.
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns when creations, renames and deletions in a directory are durable.
    ///
    /// # Errors
    /// When that is not certain.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// An open file of a [`Disk`].
pub trait DiskFile: fmt::Debug + Send {
    /// Writes all of `bytes` from byte `at` on.
    ///
    /// # Errors
    /// The system's error; part of it may have been written.
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn length(&self) -> io::Result<u64>;

    /// Returns when the written bytes, and the length they need, are durable.
    ///
    /// # Errors
    /// When that is not certain.
    fn sync_data(&self) -> io::Result<()>;

    /// Returns when everything about the file is durable.
    ///
    /// # Errors
    /// When that is not certain.
    fn sync_all(&self) -> io::Result<()>;
}

/// The operating system's.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Disk for System {
    type File = File;

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.is_dir()).collect();
        for directory in missing.into_iter().rev().filter(|directory| !directory.as_os_str().is_empty()) {
            match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
                Ok(()) => self.sync_directory(above(directory))?,
                // Another process created it meanwhile, or another file has its name.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && directory.is_dir() => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    return Err(ErrorKind::NotADirectory.into());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn restrict(&self, path: &Path) -> io::Result<()> {
        let metadata = fs::metadata(path)?;
        let mode = metadata.permissions().mode();
        if metadata.uid() != rustix::process::geteuid().as_raw() || mode & 0o077 == 0 {
            return Ok(());
        }
        fs::set_permissions(path, Permissions::from_mode(mode & OWNERS_BITS))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        let metadata = fs::metadata(path)?;
        // Reading a pipe would block.
        if metadata.is_file() {
            Ok(metadata.len())
        } else {
            Err(io::Error::new(ErrorKind::InvalidData, "it is not a regular file"))
        }
    }

    fn read_from(&self, path: &Path, from: u64, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.length(path)?.saturating_sub(from).min(most) as usize);
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(from))?;
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)
    }

    fn lock(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(fs::TryLockError::WouldBlock) => Err(ErrorKind::ResourceBusy.into()),
            Err(fs::TryLockError::Error(source)) => Err(source),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// The directory that contains a path's name.
fn above(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl DiskFile for File {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, at)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }
}
