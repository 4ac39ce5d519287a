//! A note, for a replica with its log on disk, on where the group has moved replicas to.
//!
//! The log has that too, but only a group can say how much of a log counts. A replica whose configuration has old
//! addresses might not find the others, and so not learn where they are.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::address::Address;

/// The files in the data directory: the note, and the note while it is being written.
pub(crate) const NAMES: [&str; 2] = ["addresses", "addresses.new"];

/// The replicas that have moved: the number of the move, and the address since.
pub(crate) type Moved = BTreeMap<u8, (u32, Address)>;

/// Reads the note in a data directory; none if there is no right one. The others say it again then.
pub(crate) fn read(directory: &Path) -> Option<Moved> {
    let text = fs::read_to_string(directory.join(NAMES[0])).ok()?;
    let (lines, sum) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
    (sum == sum_of(lines)).then_some(())?;
    lines.lines().map(parse).collect()
}

/// Replaces the note in a data directory.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(directory: &Path, moved: &Moved) -> io::Result<()> {
    let lines: Vec<String> =
        moved.iter().map(|(replica, (number, address))| format!("{replica} {number} {address}")).collect();
    let lines = lines.join("\n");
    let path = |name| -> PathBuf { directory.join(name) };
    let mut file =
        File::options().create(true).truncate(true).write(true).mode(0o600).open(path(NAMES[1]))?;
    writeln!(file, "{lines}\n{}", sum_of(&lines))?;
    file.sync_all()?;
    fs::rename(path(NAMES[1]), path(NAMES[0]))?;
    File::open(directory)?.sync_all()
}

fn parse(line: &str) -> Option<(u8, (u32, Address))> {
    let mut words = line.splitn(3, ' ');
    let (replica, number) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((replica, (number, words.next()?.parse().ok()?)))
}

fn sum_of(lines: &str) -> String {
    format!("{:08x}", wire::crc32c(lines.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_a_changed_one_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(read(directory.path()), None);
        for texts in [&[][..], &["db-3:7"], &["10.0.0.1:7", "[::1]:80"]] {
            let moved: Moved = (0..)
                .zip(texts)
                .map(|(replica, text)| (replica, (u32::from(replica) + 1, text.parse().expect("an address"))))
                .collect();
            write(directory.path(), &moved).expect("written");
            assert_eq!(read(directory.path()), Some(moved));
        }
        let path = directory.path().join(NAMES[0]);
        let text = fs::read(&path).expect("it is there");
        for at in 0..text.len() - 1 {
            let mut changed = text.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).expect("written");
            assert_eq!(read(directory.path()), None, "byte {at}");
        }
    }
}
