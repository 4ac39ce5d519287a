//! The files that a log and a snapshot rest in: the operating system's, or those of a simulation that decides what a power
//! failure leaves of them. Dispatched statically, so that the shipped path is what it would be without this trait.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Directories and files, as far as a replica uses them. What is not synced may be lost, whole or in part, when the power fails.
pub trait Disk: Clone + fmt::Debug + Send + 'static {
    /// An open file.
    type File: DiskFile;

    /// Creates a directory and those above it, unless they are there.
    ///
    /// # Errors
    /// What the system says.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// The files in a directory, in any order.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;

    /// The whole of a file.
    ///
    /// # Errors
    /// What the system says; `NotFound` when there is none.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Opens a file for writing at any place; creates it if it is missing.
    ///
    /// # Errors
    /// What the system says.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file for this process alone, until it is dropped; creates it if it is missing.
    ///
    /// # Errors
    /// `ResourceBusy` when another process has it.
    fn lock(&self, path: &Path) -> io::Result<Self::File>;

    /// Gives a file another name, in place of one that had it.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns when names that were given and taken in a directory are durable.
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
    /// What the system says; part of it may have been written.
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Its length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn length(&self) -> io::Result<u64>;

    /// Makes it `length` bytes long, with zeros behind what it has.
    ///
    /// # Errors
    /// What the system says.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Returns when what was written, and the length it needs, is durable.
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
        fs::create_dir_all(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
    }

    fn lock(&self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
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

impl DiskFile for File {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, at)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }
}
