//! What the database really did, beside what it says: the additions that it has committed and lost, as ground truth.
//!
//! Nothing here reaches a reply or the state. A loss is seen when a row is copied while no addition to it is under way:
//! then it has to have as many as were committed. Each is written to a file with the time of its batch, which is equal
//! at all replicas, so that one can tell which replicas a batch was hit at, and how.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::ROWS;

/// In the place of a number of additions: the database said that there is no such row.
pub const MISSING: i64 = i64::MAX;

/// A row that lost additions, or (negative) has more than were committed, in one replica's run of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// The ordered time of the batch, in microseconds.
    pub batch_us: u64,
    /// The row.
    pub row: u32,
    /// So many additions, or [`MISSING`].
    pub lost: i64,
}

/// What is known of one row.
#[derive(Debug, Default)]
struct KnownRow {
    /// Its value by all that was committed.
    due: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
}

/// What is known of all rows.
#[derive(Debug)]
pub struct Witnessed {
    rows: Vec<KnownRow>,
    file: Option<Arc<File>>,
}

impl Witnessed {
    /// Of a table whose rows are 0. `file` gets a line per loss; none: nobody asks.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn new(file: Option<&Path>) -> std::io::Result<Self> {
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        Ok(Witnessed::of(file.map(open).transpose()?.map(Arc::new)))
    }

    /// Of another such table, which writes to the same file.
    pub fn of_next(&self) -> Self {
        Witnessed::of(self.file.clone())
    }

    fn of(file: Option<Arc<File>>) -> Self {
        Witnessed { rows: (0..ROWS).map(|_| KnownRow::default()).collect(), file }
    }

    /// Around an addition.
    pub fn adding(&self, row: u32, add: impl FnOnce()) {
        let known = &self.rows[row as usize];
        known.begun.fetch_add(1, Ordering::SeqCst);
        add();
        known.due.fetch_add(1, Ordering::SeqCst);
        known.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// The row was given a value.
    pub fn set(&self, row: u32, value: u64) {
        self.rows[row as usize].due.store(value, Ordering::SeqCst);
    }

    /// Reads a row with `read` in a batch of this time, and notes what it lacks. The caller keeps others from reading
    /// it so.
    pub fn reading(&self, batch_us: u64, row: u32, read: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let known = &self.rows[row as usize];
        let ended = known.ended.load(Ordering::SeqCst);
        let begun = known.begun.load(Ordering::SeqCst);
        let due = known.due.load(Ordering::SeqCst);
        let Some(value) = read() else {
            self.write(Loss { batch_us, row, lost: MISSING });
            return None;
        };
        let is_quiet = begun == ended && known.begun.load(Ordering::SeqCst) == begun;
        if is_quiet && value != due {
            known.due.store(value, Ordering::SeqCst);
            self.write(Loss { batch_us, row, lost: due.wrapping_sub(value) as i64 });
        }
        Some(value)
    }

    fn write(&self, loss: Loss) {
        let Some(mut file) = self.file.as_deref() else { return };
        // One write per line: several workers write.
        let line = format!("{} {} {}\n", loss.batch_us, loss.row, loss.lost);
        file.write_all(line.as_bytes()).expect("the file of losses can be written");
    }
}

/// The losses in such a file; none if there is no file, since it had none.
pub fn read(file: &Path) -> Vec<Loss> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split(' ');
        let batch_us = words.next()?.parse().ok()?;
        Some(Loss { batch_us, row: words.next()?.parse().ok()?, lost: words.next()?.parse().ok()? })
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_noted_once_and_with_its_batch() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("losses");
        let witnessed = Witnessed::new(Some(&file)).expect("a file");
        witnessed.adding(3, || ());
        assert_eq!(witnessed.reading(10, 3, || Some(1)), Some(1));
        witnessed.adding(3, || ());
        witnessed.adding(3, || ());
        // While another addition is under way nothing is certain.
        witnessed.adding(3, || assert_eq!(witnessed.reading(20, 3, || Some(1)), Some(1)));
        assert_eq!(read(&file), []);
        assert_eq!(witnessed.reading(20, 3, || Some(2)), Some(2));
        assert_eq!(witnessed.reading(30, 3, || Some(2)), Some(2));
        assert_eq!(witnessed.reading(40, 4, || None), None);
        let missing = Loss { batch_us: 40, row: 4, lost: MISSING };
        assert_eq!(read(&file), [Loss { batch_us: 20, row: 3, lost: 2 }, missing]);
    }
}
