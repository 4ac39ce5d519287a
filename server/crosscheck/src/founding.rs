//! The file `founding` of a data directory: the settings of the group that this replica's configuration had before it
//! had data. A log without a checkpoint is executed from the beginning, on the state that these settings make, whatever
//! the configuration says by then.
//!
//! ```text
//! crosscheck founding 1
//! memory_limit_mb 64
//! crc32c 89abcdef                   (of everything above)
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use order::{Disk, DiskFile};

use crate::snapshot::SnapshotError;

/// Names and values.
type Founding = Vec<(String, String)>;

/// The file's name.
pub(crate) const NAME: &str = "founding";
/// Its name while it is being written.
pub(crate) const UNFINISHED: &str = "founding.new";
/// The first line, with the version of the format.
const FIRST_LINE: &str = "crosscheck founding 1\n";
/// Most bytes of such a file.
const BYTES: u64 = 4096;

/// The name under which the number of replicas stands among them.
pub(crate) const REPLICAS: &str = "replicas";

/// The name under which the entry of the log stands among them behind which the group began, if it began with a backup.
pub(crate) const BEGUN_AFTER: &str = "begun_after";

/// How many replicas the group had at its founding, by this; as many as the configuration has, where it does not say.
pub(crate) fn size_of(founding: &[(String, String)], configured: usize) -> u8 {
    let noted = founding.iter().find(|(name, _)| name == REPLICAS);
    noted.and_then(|(_, count)| count.parse().ok()).unwrap_or(configured as u8)
}

/// The sizes in a state after this entry of the log. Those of a backup are of another group: one that begins with it
/// has the size of its configurations.
pub(crate) fn sizes_at(
    index: u64,
    founding: &[(String, String)],
    sizes: order::GroupSizes,
) -> order::GroupSizes {
    let noted = founding.iter().find(|(name, _)| name == BEGUN_AFTER);
    let begun_after = noted.and_then(|(_, index)| index.parse::<u64>().ok()).unwrap_or(0);
    if index <= begun_after { order::GroupSizes::default() } else { sizes }
}

/// What the file in this directory says; none where an earlier release made the data.
///
/// # Errors
/// When it cannot be read, is not of this program, or has changed since it was written.
pub(crate) fn read(disk: &impl Disk, directory: &Path) -> Result<Option<Founding>, SnapshotError> {
    let path = directory.join(NAME);
    let bytes = match disk.read(&path, BYTES + 1) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(SnapshotError::Io { path, error }),
    };
    is_ours(&path, &bytes)?;
    match decode(&bytes) {
        Some(founding) => Ok(Some(founding)),
        None => Err(SnapshotError::Corrupt { path, why: "it does not match its checksum".to_owned() }),
    }
}

/// Writes the file, before there is data.
///
/// # Errors
/// When the disk refuses, or there is a file that this program did not write.
pub(crate) fn write(
    disk: &impl Disk,
    directory: &Path,
    founding: &[(String, String)],
) -> Result<(), SnapshotError> {
    let (path, fresh) = (directory.join(NAME), directory.join(UNFINISHED));
    let of = |path: &PathBuf| {
        let path = path.clone();
        move |error| SnapshotError::Io { path, error }
    };
    for file in [&path, &fresh] {
        match disk.read(file, BYTES + 1) {
            Ok(bytes) => {
                is_ours(file, &bytes)?;
                disk.remove(file).map_err(of(file))?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(of(file)(error)),
        }
    }
    let file = disk.create(&fresh).map_err(of(&fresh))?;
    file.write_all_at(encode(founding).as_bytes(), 0).and_then(|()| file.sync_all()).map_err(of(&fresh))?;
    disk.rename(&fresh, &path).and_then(|()| disk.sync_directory(directory)).map_err(of(&path))
}

/// A crash may leave the first part of a file, or zeros in its place.
fn is_ours(path: &Path, bytes: &[u8]) -> Result<(), SnapshotError> {
    let begins = bytes.iter().zip(FIRST_LINE.bytes()).all(|(&byte, ours)| byte == ours || byte == 0);
    match begins && bytes.len() as u64 <= BYTES {
        true => Ok(()),
        false => Err(SnapshotError::Foreign { path: path.to_owned() }),
    }
}

fn encode(founding: &[(String, String)]) -> String {
    let mut text = FIRST_LINE.to_owned();
    founding.iter().for_each(|(name, value)| text.extend([name, " ", value, "\n"]));
    let sum = wire::crc32c(text.as_bytes());
    text + &format!("crc32c {sum:08x}\n")
}

fn decode(bytes: &[u8]) -> Option<Founding> {
    let lines = std::str::from_utf8(bytes).ok()?.strip_prefix(FIRST_LINE)?;
    let lines = lines.lines().take_while(|line| !line.starts_with("crc32c "));
    let pair = |line: &str| line.split_once(' ').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let founding = lines.map(pair).collect::<Option<Founding>>()?;
    // One founding has one text, checksum included.
    (encode(&founding).as_bytes() == bytes).then_some(founding)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use order::System;

    use super::*;

    #[test]
    fn it_reads_back_and_every_flipped_bit_is_found() {
        let data = tempfile::tempdir().unwrap();
        let founding =
            vec![("memory_limit_mb".to_owned(), "64".to_owned()), ("other".to_owned(), "x".to_owned())];
        assert_eq!(read(&System, data.path()).unwrap(), None);
        for founding in [founding, Vec::new()] {
            write(&System, data.path(), &founding).unwrap();
            assert_eq!(read(&System, data.path()).unwrap(), Some(founding.clone()));
            let bytes = encode(&founding).into_bytes();
            assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_none()));
            for bit in 0..bytes.len() * 8 {
                let mut wrong = bytes.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(&wrong), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn what_a_crash_left_is_replaced_and_another_file_is_not() {
        let data = tempfile::tempdir().unwrap();
        for left in [&b""[..], b"crosscheck f", &[0; 100]] {
            fs::write(data.path().join(UNFINISHED), left).unwrap();
            write(&System, data.path(), &[]).unwrap();
        }
        fs::write(data.path().join(NAME), "my notes").unwrap();
        assert!(matches!(read(&System, data.path()), Err(SnapshotError::Foreign { .. })));
        assert!(matches!(write(&System, data.path(), &[]), Err(SnapshotError::Foreign { .. })));
        assert_eq!(fs::read(data.path().join(NAME)).unwrap(), b"my notes");
    }
}
