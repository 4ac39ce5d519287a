//! The file `identity`: the replica and the group that a data directory belongs to, so that no other one takes
//! it for its own.
//!
//! ```text
//! crosscheck data directory 1
//! replica 2
//! group 00c0ffee00c0ffee            (`none` before the replica is in one)
//! files with headers from 1         (earlier ones were made before log files had headers)
//! crc32c 89abcdef                   (of everything above)
//! ```
//!
//! It is written under another name, synced and renamed, so it is always complete. Its group is never older than that
//! of the log: it is written before the first record of a log. Before the first file of a log is deleted, it
//! is renamed to `identity.discarded`, which takes no space on a disk that is full: a process that finds it under that
//! name finishes the deletion.

use std::fmt::Write;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use wire::Malformed;

use crate::limits;
use crate::log::LogError;
use crate::log::disk::{Disk, DiskFile};

/// The file's name.
pub(crate) const NAME: &str = "identity";
/// Its name while the log is being deleted.
pub(crate) const DISCARDED: &str = "identity.discarded";
/// Its name while it is being written.
pub(crate) const UNFINISHED: &str = "identity.new";
/// How every version of the file begins.
const BEGINS: &[u8] = b"crosscheck";
/// First line, with the version of the format.
const FIRST_LINE: &str = "crosscheck data directory 1\n";
/// Bytes that such a file has at most.
const BYTES: u64 = 256;

/// The owner of a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The replica's slot. (People count from 1, and so does the file.)
    pub slot: u8,
    /// The group of its log, once there is a log.
    pub group: Option<u64>,
    /// Number of the first log file that was made with a header ([`crate::log::segment`]).
    pub headers_from: u64,
    /// The log was discarded: the remaining files have to be deleted.
    pub discarded: bool,
}

impl Owner {
    /// Reads the file that [`Owner::write`] or [`Owner::discard`] left in `data`; `None` when there is no such file.
    pub fn read(disk: &impl Disk, data: &Path) -> Result<Option<Owner>, LogError> {
        if let Some(owner) = Owner::read_file(disk, data, path(data))? {
            return Ok(Some(owner));
        }
        let discarded = Owner::read_file(disk, data, data.join(DISCARDED))?;
        Ok(discarded.map(|owner| Owner { discarded: true, ..owner }))
    }

    fn read_file(disk: &impl Disk, data: &Path, file: PathBuf) -> Result<Option<Owner>, LogError> {
        let bytes = match disk.read(&file, BYTES + 1) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LogError::of(&file)(error)),
        };
        if !bytes.starts_with(BEGINS) {
            return Err(foreign(&file));
        }
        let read = Owner::decode(&bytes);
        read.map(Some).map_err(|Malformed(why)| LogError::Corrupt {
            file,
            at: 0,
            why,
            directory: data.to_owned(),
        })
    }

    /// Writes the file in place of the one before; a crash at any moment leaves one of the two.
    pub fn write(&self, disk: &impl Disk, data: &Path) -> Result<(), LogError> {
        let (file, fresh) = (path(data), unfinished(data));
        remove_unfinished(disk, &fresh)?;
        let written = || -> io::Result<()> {
            let new = disk.create(&fresh)?;
            new.write_all_at(self.encode().as_bytes(), 0)?;
            new.sync_all()?;
            disk.rename(&fresh, &file)?;
            disk.sync_directory(data)
        };
        written().map_err(LogError::of(&file))?;
        Owner::remove_discarded(disk, data)
    }

    /// Marks the log as one that is to be deleted; from here on a crash cannot prevent that.
    pub fn discard(disk: &impl Disk, data: &Path) -> Result<(), LogError> {
        let renamed = || {
            disk.rename(&path(data), &data.join(DISCARDED))?;
            disk.sync_directory(data)
        };
        renamed().map_err(LogError::of(&path(data)))
    }

    /// Deletes the mark, where a crash left it behind: the log has been deleted, and another one may be there.
    pub fn remove_discarded(disk: &impl Disk, data: &Path) -> Result<(), LogError> {
        let file = data.join(DISCARDED);
        match disk.remove(&file) {
            Ok(()) => disk.sync_directory(data).map_err(LogError::of(data)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(LogError::of(&file)(error)),
        }
    }

    /// The file's text.
    pub fn encode(&self) -> String {
        let mut text = String::from(FIRST_LINE);
        let group = self.group.map_or_else(|| "none".to_owned(), |group| format!("{group:016x}"));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "replica {}\ngroup {group}\nfiles with headers from {}\n",
            self.slot + 1,
            self.headers_from
        );
        let sum = wire::crc32c(text.as_bytes());
        let _ = writeln!(text, "crc32c {sum:08x}");
        text
    }

    /// Reads the output of [`Owner::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Owner, Malformed> {
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed("it is not text"))?;
        let rest = text.strip_prefix(FIRST_LINE).ok_or(Malformed("it is no such file of this version"))?;
        let mut lines = rest.lines();
        let mut value =
            |name: &str| lines.next().and_then(|line| line.strip_prefix(name)).unwrap_or_default();
        let (replica, group, headers_from) =
            (value("replica "), value("group "), value("files with headers from "));
        let owner = Owner {
            slot: replica.parse::<u8>().ok().and_then(|replica| replica.checked_sub(1)).unwrap_or(u8::MAX),
            group: if group == "none" { None } else { u64::from_str_radix(group, 16).ok() },
            headers_from: headers_from.parse().unwrap_or(0),
            discarded: false,
        };
        if usize::from(owner.slot) >= limits::SLOTS {
            return Err(Malformed("it names no replica"));
        }
        // One owner has one text, checksum included.
        if owner.encode().as_bytes() == bytes {
            Ok(owner)
        } else {
            Err(Malformed("it does not match its checksum"))
        }
    }
}

/// The path of the file.
pub(crate) fn path(data: &Path) -> PathBuf {
    data.join(NAME)
}

/// Its path while it is being written.
pub(crate) fn unfinished(data: &Path) -> PathBuf {
    data.join(UNFINISHED)
}

/// Deletes the remains of a file that was being written at a crash: its first part, or zeros.
fn remove_unfinished(disk: &impl Disk, path: &Path) -> Result<(), LogError> {
    let bytes = match disk.read(path, BYTES + 1) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(LogError::of(path)(error)),
    };
    let begins = bytes.iter().zip(FIRST_LINE.bytes()).all(|(&byte, ours)| byte == ours || byte == 0);
    if !begins || bytes.len() as u64 > BYTES {
        return Err(foreign(path));
    }
    disk.remove(path).map_err(LogError::of(path))
}

fn foreign(file: &Path) -> LogError {
    LogError::Foreign {
        file: file.to_owned(),
        why: format!("it does not begin with \"{}\"", FIRST_LINE.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::log::System;

    const OWNER: Owner = Owner { slot: 1, group: Some(0xc0ffee), headers_from: 7, discarded: false };

    #[test]
    fn it_reads_back_and_every_other_text_is_refused() {
        for owner in [OWNER, Owner { group: None, headers_from: 1, ..OWNER }] {
            let text = owner.encode();
            assert_eq!(Owner::decode(text.as_bytes()), Ok(owner), "{text}");
            assert!((text.len() as u64) < BYTES);
            for cut in 0..text.len() {
                assert!(Owner::decode(&text.as_bytes()[..cut]).is_err());
            }
            for bit in 0..text.len() * 8 {
                let mut broken = text.clone().into_bytes();
                broken[bit / 8] ^= 1 << (bit % 8);
                assert!(Owner::decode(&broken).is_err(), "bit {bit} passed");
            }
        }
        let far = Owner { slot: limits::SLOTS as u8, ..OWNER };
        assert!(Owner::decode(far.encode().as_bytes()).is_err(), "no group is so large");
    }

    #[test]
    fn a_log_stays_discarded_until_it_is_somebodys_again() {
        let data = tempfile::tempdir().unwrap();
        OWNER.write(&System, data.path()).unwrap();
        Owner::discard(&System, data.path()).unwrap();
        assert_eq!(Owner::read(&System, data.path()).unwrap(), Some(Owner { discarded: true, ..OWNER }));
        OWNER.write(&System, data.path()).unwrap();
        assert_eq!(Owner::read(&System, data.path()).unwrap(), Some(OWNER));
        assert!(!data.path().join(DISCARDED).exists());
        // A crash before that.
        fs::copy(path(data.path()), data.path().join(DISCARDED)).unwrap();
        assert_eq!(Owner::read(&System, data.path()).unwrap(), Some(OWNER));
    }

    #[test]
    fn what_a_crash_left_is_replaced_and_what_somebody_else_wrote_is_not() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(Owner::read(&System, data.path()).unwrap(), None);
        let whole = OWNER.encode().into_bytes();
        for left in [&b""[..], &whole[..5], &[0; 100], &whole] {
            fs::write(unfinished(data.path()), left).unwrap();
            OWNER.write(&System, data.path()).unwrap();
            assert_eq!(Owner::read(&System, data.path()).unwrap(), Some(OWNER));
        }
        fs::write(unfinished(data.path()), "notes").unwrap();
        let refused = OWNER.write(&System, data.path()).unwrap_err();
        assert!(matches!(refused, LogError::Foreign { .. }), "{refused}");
        assert_eq!(fs::read(unfinished(data.path())).unwrap(), b"notes");
        fs::write(path(data.path()), "ssh-rsa").unwrap();
        let refused = Owner::read(&System, data.path()).unwrap_err();
        assert!(matches!(refused, LogError::Foreign { .. }), "{refused}");
    }
}
