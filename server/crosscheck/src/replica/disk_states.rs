//! The states that a replica with its log on disk writes there. One is written at a time, since all have the same file
//! in turn; of those that come meanwhile the newest waits. A copy is written while it is made or received: it waits for
//! no other one, or is not written. No clock and no disk: the caller writes what [`DiskStates::next`] returns or
//! [`DiskStates::begin`] permits, and reports the result.

use crate::limits;
use crate::packed_state::PackedState;

/// What a state on disk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateUse {
    /// The log before it can be dropped.
    Shorten,
    /// It came from the peers and is put in place once it is on disk. No state made here takes its place.
    Install,
}

/// A state to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiskState {
    /// Log index of the checkpoint.
    pub(super) index: u64,
    pub(super) state: PackedState,
    pub(super) used: StateUse,
}

/// The result of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It is on disk, and nothing waits for it.
    Kept,
    /// It is on disk and is to be put in place now.
    Install(DiskState),
    /// The state after this log index is on disk, and its pieces are in place.
    InPlace(u64),
    /// It is not. Another one is written later. The one before it is still there.
    Again,
    /// It is not, and the replica cannot take part without it.
    Lost,
}

/// A state that is being written.
#[derive(Debug)]
struct Writing {
    /// Number of the write.
    write: u64,
    used: StateUse,
    /// Its log index, once that is known.
    index: Option<u64>,
    /// The state, if it was there as a whole when its write began.
    whole: Option<DiskState>,
    /// Since when, in microseconds; for one that comes in pieces, since it is complete.
    begun_us: u64,
}

/// The states on disk, on their way there, and waiting.
#[derive(Debug, Default)]
pub(super) struct DiskStates {
    writing: Option<Writing>,
    /// Number of the last write.
    last: u64,
    /// The next one.
    waiting: Option<DiskState>,
    /// Log index of the last one that is on disk, synced and under its name.
    kept_index: u64,
    /// After a failure no write begins before this time, in microseconds.
    retry_at_us: u64,
    /// The duration of this write has been reported.
    is_reported: bool,
}

impl DiskStates {
    /// A state to be written next. Returns the log index of one that is not written any more: the one that waited, or
    /// this one.
    pub(super) fn put(&mut self, state: DiskState) -> Option<u64> {
        let takes_precedence = |waiting: &DiskState| match (waiting.used, state.used) {
            (StateUse::Install, StateUse::Shorten) => true,
            (StateUse::Shorten, StateUse::Install) => false,
            _ => waiting.index >= state.index,
        };
        if self.waiting.as_ref().is_some_and(takes_precedence) {
            return Some(state.index);
        }
        if state.used == StateUse::Install {
            // The replica does not take part before it is written.
            self.retry_at_us = 0;
        }
        self.waiting.replace(state).map(|before| before.index)
    }

    /// The state to be written now, and the number of its write: none while another one is being written.
    pub(super) fn next(&mut self, now_us: u64) -> Option<(u64, DiskState)> {
        if self.writing.is_some() || now_us < self.retry_at_us {
            return None;
        }
        let state = self.waiting.take()?;
        let write = self.start(state.used, Some(state.index), Some(state.clone()), now_us);
        Some((write, state))
    }

    /// Begins to write a state whose pieces come later. Returns the number of the write: none while another one is
    /// being written, or is to be written first.
    pub(super) fn begin(&mut self, used: StateUse, now_us: u64) -> Option<u64> {
        let may_begin = used == StateUse::Install || (self.waiting.is_none() && now_us >= self.retry_at_us);
        (self.writing.is_none() && may_begin).then(|| self.start(used, None, None, now_us))
    }

    fn start(&mut self, used: StateUse, index: Option<u64>, whole: Option<DiskState>, now_us: u64) -> u64 {
        self.last += 1;
        self.is_reported = false;
        self.writing = Some(Writing { write: self.last, used, index, whole, begun_us: now_us });
        self.last
    }

    /// All pieces of the state have come: it is the one after entry `index`.
    pub(super) fn end(&mut self, write: u64, index: u64, now_us: u64) {
        if let Some(writing) = self.writing.as_mut().filter(|writing| writing.write == write) {
            (writing.index, writing.begun_us) = (Some(index), now_us);
        }
    }

    /// This write was given up, and nothing of it is on the disk any more.
    pub(super) fn given_up(&mut self, write: u64) {
        self.writing.take_if(|writing| writing.write == write);
    }

    /// This write has ended: the state after entry `kept` is on disk, or none.
    pub(super) fn written(&mut self, write: u64, kept: Option<u64>, now_us: u64) -> Written {
        self.kept_index = kept.unwrap_or(self.kept_index);
        let Some(Writing { used, whole, .. }) = self.writing.take_if(|writing| writing.write == write) else {
            return Written::Kept;
        };
        let is_superseded = self.waiting.as_ref().is_some_and(|waiting| waiting.used == StateUse::Install);
        match (kept, used) {
            (Some(index), StateUse::Install) if !is_superseded => {
                whole.map_or(Written::InPlace(index), Written::Install)
            }
            (Some(_), _) => Written::Kept,
            (None, StateUse::Install) if !is_superseded => Written::Lost,
            (None, _) => {
                if !is_superseded {
                    self.retry_at_us = now_us + limits::KEEP_AGAIN.as_micros() as u64;
                    self.waiting = self.waiting.take().or(whole);
                }
                Written::Again
            }
        }
    }

    /// For fault injection: the next state does not wait for the one that is being written.
    pub(super) fn overlook_writing(&mut self) {
        self.writing = None;
    }

    /// Whether a state that is there as a whole is on its way to the disk, or none may be before a while: none needs to
    /// be ordered so that the log can be shortened.
    pub(super) fn is_busy(&self, now_us: u64) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.index.is_some())
            || self.waiting.is_some()
            || now_us < self.retry_at_us
    }

    /// Whether a whole state of the peers is on its way to the disk.
    pub(super) fn installs(&self) -> bool {
        self.installed().next().is_some()
    }

    /// Whether the peers' state after entry `index` is on its way to the disk.
    pub(super) fn is_installing(&self, index: u64) -> bool {
        self.installed().any(|installed| installed == index)
    }

    /// Log indices of the peers' states that are on their way to the disk, and have come as a whole.
    fn installed(&self) -> impl Iterator<Item = u64> {
        let writing = self.writing.iter().filter(|writing| writing.used == StateUse::Install);
        let waiting = self.waiting.iter().filter(|waiting| waiting.used == StateUse::Install);
        writing.filter_map(|writing| writing.index).chain(waiting.map(|waiting| waiting.index))
    }

    /// Log index of the last state on disk: no later part of the log may be dropped.
    pub(super) fn kept_index(&self) -> u64 {
        self.kept_index
    }

    /// The state after entry `index` was found on the disk.
    pub(super) fn set_kept(&mut self, index: u64) {
        self.kept_index = index;
    }

    /// Whether a state that is there as a whole takes very long to write; true once for each.
    pub(super) fn is_overdue(&mut self, now_us: u64) -> bool {
        let Some(writing) = self.writing.as_ref().filter(|writing| writing.index.is_some()) else {
            return false;
        };
        let is_late = now_us.saturating_sub(writing.begun_us) > limits::KEEP_PATIENCE.as_micros() as u64;
        is_late && !std::mem::replace(&mut self.is_reported, true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use bytes::Bytes;
    use order::System;

    use super::*;
    use crate::snapshot::{self, Extent, SnapshotError, Unfinished};

    const SECOND: u64 = 1_000_000;

    fn bytes_of(index: u64) -> Bytes {
        vec![index as u8; 1000 + index as usize].into()
    }

    fn state(index: u64, used: StateUse) -> DiskState {
        DiskState { index, state: PackedState::default().before(bytes_of(index)), used }
    }

    /// A disk of a slow machine: a write that has begun ends when the test says so.
    struct SlowDisk {
        directory: tempfile::TempDir,
        begun: Vec<(u64, u64, Unfinished<File>)>,
        states: DiskStates,
    }

    impl SlowDisk {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            SlowDisk { directory, begun: Vec::new(), states: DiskStates::default() }
        }

        fn begin(&mut self, write: u64, state: &DiskState) {
            let mut unfinished = Unfinished::begin(&System, self.directory.path(), Extent::Whole).unwrap();
            for piece in state.state.pieces() {
                unfinished.append(&System, piece).unwrap();
            }
            self.begun.push((write, state.index, unfinished));
        }

        /// Another state is made, and what may be written now is begun.
        fn put(&mut self, state: DiskState, now_us: u64) -> Option<u64> {
            let superseded = self.states.put(state);
            self.go_on(now_us);
            superseded
        }

        fn go_on(&mut self, now_us: u64) {
            if let Some((write, next)) = self.states.next(now_us) {
                self.begin(write, &next);
            }
        }

        /// The oldest write ends.
        fn end(&mut self, now_us: u64) -> (Written, Result<(), SnapshotError>) {
            let (write, index, unfinished) = self.begun.remove(0);
            let result = unfinished.finish(&System);
            let written = self.states.written(write, result.is_ok().then_some(index), now_us);
            self.go_on(now_us);
            (written, result)
        }

        /// Log index of the state that a restart would find; the disk must have all of it.
        fn found(&self) -> Option<u64> {
            let saved = snapshot::read(&System, self.directory.path()).unwrap()?;
            let bytes = saved.files.concat().concat();
            let index = u64::from(bytes[0]);
            assert_eq!(bytes, bytes_of(index));
            Some(index)
        }
    }

    #[test]
    fn one_is_written_at_a_time_and_the_newest_waits() {
        let mut disk = SlowDisk::new();
        assert_eq!(disk.put(state(1, StateUse::Shorten), 0), None);
        assert_eq!(disk.put(state(2, StateUse::Shorten), 0), None);
        assert_eq!(disk.put(state(3, StateUse::Shorten), 0), Some(2), "an older one is not written any more");
        assert_eq!(disk.put(state(2, StateUse::Shorten), 0), Some(2), "and not after a newer one");
        assert_eq!((disk.begun.len(), disk.states.kept_index()), (1, 0));
        for index in [1, 3] {
            assert!(disk.states.is_busy(0), "none has to be ordered");
            assert_eq!(disk.end(0).0, Written::Kept);
            assert_eq!((disk.found(), disk.states.kept_index()), (Some(index), index));
        }
        assert!(!disk.states.is_busy(0) && disk.begun.is_empty());
    }

    /// Without the rule the first write puts the second one's unfinished file in place, and the second finds none.
    #[test]
    fn two_writes_at_a_time_would_lose_the_state() {
        let mut disk = SlowDisk::new();
        for index in [1, 2] {
            disk.begin(index, &state(index, StateUse::Shorten));
        }
        let (first, second) = (disk.begun.remove(0).2, disk.begun.remove(0).2);
        first.finish(&System).unwrap();
        let read = snapshot::read(&System, disk.directory.path());
        assert!(read.is_err(), "the first one's place has the other's file, which is not finished");
        let error = second.finish(&System).unwrap_err();
        assert!(error.to_string().contains("state.cut.new: it was removed while"), "{error}");
        assert!(!error.is_operators(), "our own file: no setting is wrong");
    }

    #[test]
    fn the_state_of_the_peers_is_not_delayed_by_those_made_here() {
        let mut disk = SlowDisk::new();
        disk.put(state(1, StateUse::Shorten), 0);
        disk.put(state(2, StateUse::Shorten), 0);
        assert_eq!(disk.put(state(1, StateUse::Install), 0), Some(2), "it is the next one");
        assert_eq!(disk.put(state(9, StateUse::Shorten), 0), Some(9), "and stays it");
        assert!(disk.states.is_installing(1) && !disk.states.is_installing(2));
        assert_eq!(disk.end(0).0, Written::Kept);
        assert_eq!(disk.end(0).0, Written::Install(state(1, StateUse::Install)));
        assert!(!disk.states.is_installing(1));
    }

    #[test]
    fn only_the_last_state_of_the_peers_is_put_in_place() {
        let mut disk = SlowDisk::new();
        disk.put(state(4, StateUse::Install), 0);
        disk.put(state(5, StateUse::Install), 0);
        assert_eq!(disk.put(state(6, StateUse::Install), 0), Some(5));
        assert_eq!(disk.end(0).0, Written::Kept, "a later one is on its way");
        assert_eq!(disk.end(0).0, Written::Install(state(6, StateUse::Install)));
    }

    /// The checkpoint before, and with it the log after that, stay until another one is there.
    #[test]
    fn a_failed_write_is_repeated_and_costs_nothing() {
        let mut disk = SlowDisk::new();
        disk.put(state(1, StateUse::Shorten), 0);
        assert_eq!(disk.end(0).0, Written::Kept);
        disk.put(state(2, StateUse::Shorten), 0);
        std::fs::remove_file(disk.directory.path().join("state.cut.new")).unwrap();
        let (written, result) = disk.end(SECOND);
        assert_eq!((written, disk.states.kept_index(), disk.found()), (Written::Again, 1, Some(1)));
        assert!(result.is_err() && disk.states.is_busy(SECOND) && disk.begun.is_empty());
        let again_us = SECOND + limits::KEEP_AGAIN.as_micros() as u64;
        disk.go_on(again_us - 1);
        assert!(disk.begun.is_empty());
        disk.go_on(again_us);
        assert_eq!(disk.end(again_us).0, Written::Kept);
        assert_eq!((disk.found(), disk.states.kept_index()), (Some(2), 2));
    }

    #[test]
    fn without_the_peers_state_a_replica_cannot_go_on_but_a_later_one_will_do() {
        let mut states = DiskStates::default();
        states.put(state(1, StateUse::Shorten));
        states.next(0);
        assert_eq!(states.written(1, None, 0), Written::Again);
        states.put(state(4, StateUse::Install));
        assert_eq!(states.next(1), Some((2, state(4, StateUse::Install))), "it does not wait for the pause");
        states.put(state(5, StateUse::Install));
        assert_eq!(states.written(2, None, 1), Written::Again);
        assert_eq!(states.next(2), Some((3, state(5, StateUse::Install))));
        assert_eq!(states.written(3, None, 3), Written::Lost);
    }

    #[test]
    fn a_copy_that_comes_in_pieces_waits_for_no_other_and_is_not_repeated() {
        let mut states = DiskStates::default();
        states.put(state(1, StateUse::Shorten));
        assert_eq!(states.begin(StateUse::Shorten, 0), None, "another one is to be written first");
        states.next(0);
        assert_eq!(states.begin(StateUse::Shorten, 0), None, "the file has one writer");
        states.written(1, Some(1), 0);
        assert_eq!(states.begin(StateUse::Shorten, 0), Some(2));
        assert!(!states.is_busy(0) && !states.is_overdue(u64::MAX), "its pieces take as long as they take");
        states.end(2, 9, SECOND);
        assert!(states.is_busy(SECOND));
        assert_eq!(states.written(2, Some(9), SECOND), Written::Kept);
        assert_eq!(states.kept_index(), 9);

        states.begin(StateUse::Shorten, SECOND);
        assert_eq!(states.written(3, None, SECOND), Written::Again);
        assert!(states.is_busy(SECOND), "none is ordered at once");
        assert_eq!((states.begin(StateUse::Shorten, SECOND), states.next(SECOND)), (None, None));
        let again_us = SECOND + limits::KEEP_AGAIN.as_micros() as u64;
        assert!(!states.is_busy(again_us) && states.kept_index() == 9);
        assert_eq!(states.begin(StateUse::Shorten, again_us), Some(4));
        states.given_up(4);
        assert!(!states.is_busy(again_us));
    }

    #[test]
    fn a_copy_of_the_peers_is_installed_once_it_is_on_disk() {
        let mut states = DiskStates::default();
        states.begin(StateUse::Shorten, 0);
        states.written(1, None, 0);
        assert_eq!(states.begin(StateUse::Install, 0), Some(2), "it does not wait for the pause");
        assert!(!states.installs(), "its pieces are still coming");
        states.end(2, 7, 0);
        assert!(states.installs() && states.is_installing(7));
        assert_eq!(states.written(2, Some(7), 0), Written::InPlace(7));
        assert_eq!(states.begin(StateUse::Install, 0), Some(3));
        assert_eq!(states.written(3, None, 0), Written::Lost);
    }

    #[test]
    fn a_write_that_does_not_end_is_reported_once() {
        let mut states = DiskStates::default();
        states.put(state(7, StateUse::Shorten));
        states.next(SECOND);
        let late_us = 2 * SECOND + limits::KEEP_PATIENCE.as_micros() as u64;
        assert!(!states.is_overdue(late_us - SECOND));
        assert_eq!((states.is_overdue(late_us), states.is_overdue(late_us)), (true, false));
    }
}
