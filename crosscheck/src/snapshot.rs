//! The last cut on disk, for `durability = "disk"`: the log before it can then be dropped, and a restarted replica begins
//! there. The file is believed only as a whole: its checksum covers every byte.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use order::{Disk, DiskFile};
use xxhash_rust::xxh3::xxh3_128;

/// Magic and version, length of the state, its digest.
const HEAD: usize = 8 + 8 + 16;
const MAGIC: [u8; 8] = *b"XCHKCUT1";

/// Why there is no usable snapshot although there is a file.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes are not what was written: the replica must lose its data and join anew.
    #[error("{path} is corrupt ({why}); move the data directory away, and the replica joins its group anew")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Which rule it breaks.
        why: &'static str,
    },
}

fn file_of(directory: &Path) -> PathBuf {
    directory.join("state.cut")
}

/// Writes `state` in place of the snapshot before it; a crash at any moment leaves one of the two whole.
///
/// # Errors
/// When the disk refuses (full, broken): the snapshot before is still there, and so is the log that it needs.
pub fn write(disk: &impl Disk, directory: &Path, state: &[u8]) -> Result<(), SnapshotError> {
    let path = file_of(directory);
    let fresh = path.with_extension("cut.new");
    let io = |source| SnapshotError::Io { path: path.clone(), source };
    let mut head = Vec::with_capacity(HEAD);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&(state.len() as u64).to_le_bytes());
    head.extend_from_slice(&xxh3_128(state).to_le_bytes());
    let file = disk.open(&fresh).map_err(io)?;
    // An earlier attempt may have left a longer one.
    file.set_length(0).map_err(io)?;
    file.write_all_at(&head, 0).map_err(io)?;
    file.write_all_at(state, HEAD as u64).map_err(io)?;
    file.sync_all().map_err(io)?;
    disk.rename(&fresh, &path).map_err(io)?;
    // The rename itself rests in the directory.
    disk.sync_directory(directory).map_err(io)
}

/// Reads the snapshot; `None` if there never was one.
///
/// # Errors
/// When the file cannot be read, or is not what was written.
pub fn read(disk: &impl Disk, directory: &Path) -> Result<Option<Bytes>, SnapshotError> {
    let path = file_of(directory);
    let corrupt = |why| SnapshotError::Corrupt { path: path.clone(), why };
    let bytes = match disk.read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(SnapshotError::Io { path, source }),
    };
    let Some((head, state)) = bytes.split_at_checked(HEAD) else { return Err(corrupt("it is too short")) };
    if head[..8] != MAGIC {
        return Err(corrupt("it is no snapshot of this version"));
    }
    if head[8..16] != (state.len() as u64).to_le_bytes() {
        return Err(corrupt("its length is wrong"));
    }
    if head[16..] != xxh3_128(state).to_le_bytes() {
        return Err(corrupt("its digest is wrong"));
    }
    Ok(Some(Bytes::from(bytes).slice(HEAD..)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use order::System;

    use super::*;

    #[test]
    fn what_was_written_last_is_read_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(&System, directory.path()).unwrap().is_none());
        write(&System, directory.path(), b"first").unwrap();
        write(&System, directory.path(), b"second, and longer").unwrap();
        assert_eq!(read(&System, directory.path()).unwrap().unwrap(), &b"second, and longer"[..]);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let directory = tempfile::tempdir().unwrap();
        write(&System, directory.path(), b"state").unwrap();
        let path = file_of(directory.path());
        let good = fs::read(&path).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, bad).unwrap();
            assert!(read(&System, directory.path()).is_err(), "bit {bit} passed");
        }
        for cut in 0..good.len() {
            fs::write(&path, &good[..cut]).unwrap();
            assert!(read(&System, directory.path()).is_err(), "{cut} bytes passed");
        }
    }
}
