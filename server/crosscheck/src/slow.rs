//! A note, for a replica with its log on disk, on the batch that its last processes were executing when they ended.
//!
//! A batch that ends the process that executes it (the watchdog takes it for a hang, or the kernel refuses the memory
//! it needs) stays in the log, and the next process executes it again: without a note on it, every process of the
//! replica would end at it. So the watchdog's thread writes a note on a batch that takes long, before it can end the
//! process, and removes the note when the batch is done. A replica that finds notes of two processes on the same batch
//! executes it without a watchdog.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::limits;

/// The files in the data directory: the note, and the note while it is being written.
pub(crate) const NAMES: [&str; 2] = ["slow-batch", "slow-batch.new"];

/// The number of processes that ended at one batch after which it is executed without a watchdog.
const PROCESSES: u32 = 2;

/// The note of one process of the replica for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlowNote {
    /// Log index of the batch.
    index: u64,
    /// Processes in a row that ended while they executed it.
    processes: u32,
}

/// The note of the processes before, and the one that this process may leave.
#[derive(Debug, Default)]
pub(crate) struct SlowBatch {
    /// None where no log survives the process.
    path: Option<PathBuf>,
    before: Option<SlowNote>,
    noted: Option<u64>,
    /// Log index of the oldest batch in execution at the last check, and how many checks have found it.
    seen: u64,
    looks: u32,
}

impl SlowBatch {
    /// Reads the note of earlier processes in `directory`. A note that cannot be read counts as none: its only effect
    /// is to switch a watchdog off.
    pub fn open(directory: &Path) -> Self {
        let path = directory.join(NAMES[0]);
        let before = fs::read_to_string(&path).ok().and_then(|text| parse(&text));
        SlowBatch { path: Some(path), before, ..SlowBatch::default() }
    }

    /// Log index of the batch at which the last processes ended; 0 for none. Batches up to it have no watchdog.
    pub fn unwatched(&self) -> u64 {
        self.before.filter(|note| note.processes >= PROCESSES).map_or(0, |note| note.index)
    }

    /// The message to the operator at the start.
    pub fn reported(&self) -> Option<String> {
        let note = self.before.filter(|note| note.processes >= PROCESSES)?;
        Some(format!(
            "the last {} processes of this replica ended while they executed the batch of log entry {}; it \
                is executed without a watchdog this time. If this process ends too, look at how: a memory \
                limit that is too small for its replies?",
            note.processes, note.index
        ))
    }

    /// Called every [`limits::WATCH`] with the log index of the oldest batch in execution, 0 for none.
    pub fn look(&mut self, oldest: u64) {
        self.looks = if oldest == self.seen { self.looks.saturating_add(1) } else { 0 };
        self.seen = oldest;
        let is_slow = oldest > 0 && self.looks >= limits::SLOW_BATCH_LOOKS;
        match self.noted {
            None if is_slow => self.write(oldest),
            Some(noted) if noted != oldest => self.erase(),
            _ => {}
        }
        // The batch at which earlier processes ended is done.
        if self.noted.is_none() && self.before.is_some_and(|note| oldest > note.index) {
            self.before = None;
            self.erase();
        }
    }

    /// Errors of the disk are ignored: the note is an aid, and no promise depends on it.
    fn write(&mut self, index: u64) {
        let Some(path) = &self.path else { return };
        self.noted = Some(index);
        let processes =
            self.before.filter(|note| note.index == index).map_or(1, |note| note.processes.saturating_add(1));
        let fresh = path.with_file_name(NAMES[1]);
        let options = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&fresh);
        let written = options.and_then(|mut file| writeln!(file, "{index} {processes}"));
        let _ = written.and_then(|()| fs::rename(&fresh, path));
    }

    fn erase(&mut self) {
        self.noted = None;
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

fn parse(text: &str) -> Option<SlowNote> {
    let (index, processes) = text.trim_end().split_once(' ')?;
    Some(SlowNote { index: index.parse().ok()?, processes: processes.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_long(slow: &mut SlowBatch, index: u64) {
        (0..=limits::SLOW_BATCH_LOOKS).for_each(|_| slow.look(index));
    }

    #[test]
    fn a_batch_that_ended_two_processes_is_not_watched_in_the_third() {
        let directory = tempfile::tempdir().unwrap();
        for process in 0..3 {
            let mut slow = SlowBatch::open(directory.path());
            assert_eq!(slow.unwatched(), if process < 2 { 0 } else { 77 }, "process {process}");
            assert_eq!(slow.reported().is_some(), process == 2);
            look_long(&mut slow, 77);
        }
        let mut slow = SlowBatch::open(directory.path());
        look_long(&mut slow, 77);
        slow.look(78);
        assert_eq!(SlowBatch::open(directory.path()).unwatched(), 0, "it was executed at last");
    }

    #[test]
    fn batches_that_pass_leave_nothing_and_another_one_counts_anew() {
        let directory = tempfile::tempdir().unwrap();
        let mut slow = SlowBatch::open(directory.path());
        (1..100).for_each(|index| slow.look(index));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        look_long(&mut slow, 5);
        let mut slow = SlowBatch::open(directory.path());
        look_long(&mut slow, 6);
        assert_eq!(SlowBatch::open(directory.path()).unwatched(), 0);
        fs::write(directory.path().join("slow-batch"), "nonsense").unwrap();
        assert_eq!(SlowBatch::open(directory.path()).unwatched(), 0);
    }

    /// The third process executes the batch between two checks: the fourth needs no note of it.
    #[test]
    fn a_note_of_a_batch_that_passed_quickly_is_rolled_back() {
        let directory = tempfile::tempdir().unwrap();
        (0..2).for_each(|_| look_long(&mut SlowBatch::open(directory.path()), 77));
        let mut third = SlowBatch::open(directory.path());
        assert_eq!(third.unwatched(), 77);
        [70, 77].into_iter().for_each(|index| third.look(index));
        assert_eq!(SlowBatch::open(directory.path()).unwatched(), 77);
        third.look(78);
        assert_eq!(third.unwatched(), 0);
        let fourth = SlowBatch::open(directory.path());
        assert_eq!((fourth.unwatched(), fourth.reported()), (0, None));
    }
}
