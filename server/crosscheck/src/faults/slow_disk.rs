//! A disk that is slow on purpose, at a real replica and all its later processes: the file `DATA/slow-disk` has the
//! milliseconds that the sync of a checkpoint takes longer, and the log entries after which one is written.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::hooks::SlowDisk;

/// What the file says; none without it.
pub(super) fn read(directory: &Path) -> Option<SlowDisk> {
    let text = fs::read_to_string(directory.join("slow-disk")).ok()?;
    let (pause_ms, entries) = text.trim().split_once(' ')?;
    Some(SlowDisk {
        sync_pause: Duration::from_millis(pause_ms.parse().ok()?),
        entries_per_snapshot: entries.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_slow_as_its_file_says() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()), None);
        fs::write(directory.path().join("slow-disk"), "250 3000\n").unwrap();
        let slow = SlowDisk { sync_pause: Duration::from_millis(250), entries_per_snapshot: 3000 };
        assert_eq!(read(directory.path()), Some(slow));
    }
}
