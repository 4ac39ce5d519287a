//! The states that a replica with its log on disk writes there. One is written at a time, since all have the same file
//! in turn; of those that come meanwhile the newest waits. No clock and no disk: the caller writes what
//! [`DiskStates::next`] returns and reports the result.

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
    /// It is not, and is written again later, unless a newer one comes. The one before it is still there.
    Again,
    /// It is not, and the replica cannot take part without it.
    Lost,
}

/// The states on disk, on their way there, and waiting.
#[derive(Debug, Default)]
pub(super) struct DiskStates {
    /// The one that is being written, and since when, in microseconds.
    writing: Option<(DiskState, u64)>,
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

    /// The state to be written now: none while another one is being written.
    pub(super) fn next(&mut self, now_us: u64) -> Option<DiskState> {
        if self.writing.is_some() || now_us < self.retry_at_us {
            return None;
        }
        let state = self.waiting.take()?;
        self.is_reported = false;
        self.writing = Some((state.clone(), now_us));
        Some(state)
    }

    /// The write of the state after entry `index` has ended.
    pub(super) fn written(&mut self, index: u64, is_kept: bool, now_us: u64) -> Written {
        let Some((state, _)) = self.writing.take_if(|(state, _)| state.index == index) else {
            self.kept_index = if is_kept { index } else { self.kept_index };
            return Written::Kept;
        };
        let is_superseded = self.waiting.as_ref().is_some_and(|waiting| waiting.used == StateUse::Install);
        match (is_kept, state.used) {
            (true, used) => {
                self.kept_index = index;
                let installs = used == StateUse::Install && !is_superseded;
                if installs { Written::Install(state) } else { Written::Kept }
            }
            (false, StateUse::Install) if !is_superseded => Written::Lost,
            (false, _) => {
                if !is_superseded {
                    self.retry_at_us = now_us + limits::KEEP_AGAIN.as_micros() as u64;
                    self.waiting.get_or_insert(state);
                }
                Written::Again
            }
        }
    }

    /// For fault injection: the next state does not wait for the one that is being written.
    pub(super) fn overlook_writing(&mut self) {
        self.writing = None;
    }

    /// Whether a state is on its way to the disk: none needs to be ordered so that the log can be shortened.
    pub(super) fn is_busy(&self) -> bool {
        self.writing.is_some() || self.waiting.is_some()
    }

    /// Whether any state of the peers is on its way to the disk.
    pub(super) fn installs(&self) -> bool {
        let writing = self.writing.iter().map(|(state, _)| state);
        writing.chain(&self.waiting).any(|state| state.used == StateUse::Install)
    }

    /// Whether the peers' state after entry `index` is on its way to the disk.
    pub(super) fn is_installing(&self, index: u64) -> bool {
        let writing = self.writing.as_ref().map(|(state, _)| state);
        writing
            .into_iter()
            .chain(&self.waiting)
            .any(|state| state.used == StateUse::Install && state.index == index)
    }

    /// Log index of the last state on disk: no later part of the log may be dropped.
    pub(super) fn kept_index(&self) -> u64 {
        self.kept_index
    }

    /// The state after entry `index` was found on the disk.
    pub(super) fn set_kept(&mut self, index: u64) {
        self.kept_index = index;
    }

    /// The log index of a state that takes very long to write, once for each.
    pub(super) fn overdue(&mut self, now_us: u64) -> Option<u64> {
        let (state, begun_us) = self.writing.as_ref()?;
        let is_late = now_us.saturating_sub(*begun_us) > limits::KEEP_PATIENCE.as_micros() as u64;
        (is_late && !std::mem::replace(&mut self.is_reported, true)).then_some(state.index)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use bytes::Bytes;
    use order::System;

    use super::*;
    use crate::snapshot::{self, SnapshotError, Unfinished};

    const SECOND: u64 = 1_000_000;

    fn bytes_of(index: u64) -> Bytes {
        vec![index as u8; 1000 + index as usize].into()
    }

    fn state(index: u64, used: StateUse) -> DiskState {
        DiskState { index, state: PackedState::default().behind(bytes_of(index)), used }
    }

    /// A disk of a slow machine: a write that has begun ends when the test says so.
    struct SlowDisk {
        directory: tempfile::TempDir,
        begun: Vec<(u64, Unfinished<File>)>,
        states: DiskStates,
    }

    impl SlowDisk {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            SlowDisk { directory, begun: Vec::new(), states: DiskStates::default() }
        }

        fn begin(&mut self, state: &DiskState) {
            let write = Unfinished::write(&System, self.directory.path(), state.state.pieces()).unwrap();
            self.begun.push((state.index, write));
        }

        /// Another state is made, and what may be written now is begun.
        fn put(&mut self, state: DiskState, now_us: u64) -> Option<u64> {
            let superseded = self.states.put(state);
            self.go_on(now_us);
            superseded
        }

        fn go_on(&mut self, now_us: u64) {
            if let Some(next) = self.states.next(now_us) {
                self.begin(&next);
            }
        }

        /// The oldest write ends.
        fn end(&mut self, now_us: u64) -> (Written, Result<(), SnapshotError>) {
            let (index, unfinished) = self.begun.remove(0);
            let result = unfinished.finish(&System);
            let written = self.states.written(index, result.is_ok(), now_us);
            self.go_on(now_us);
            (written, result)
        }

        /// Log index of the state that a restart would find; the disk must have all of it.
        fn found(&self) -> Option<u64> {
            let bytes = snapshot::read(&System, self.directory.path()).unwrap()?;
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
            assert!(disk.states.is_busy(), "none has to be ordered");
            assert_eq!(disk.end(0).0, Written::Kept);
            assert_eq!((disk.found(), disk.states.kept_index()), (Some(index), index));
        }
        assert!(!disk.states.is_busy() && disk.begun.is_empty());
    }

    /// Without the rule the first write puts the second one's unfinished file in place, and the second finds none.
    #[test]
    fn two_writes_at_a_time_would_lose_the_state() {
        let mut disk = SlowDisk::new();
        for index in [1, 2] {
            disk.begin(&state(index, StateUse::Shorten));
        }
        let (first, second) = (disk.begun.remove(0).1, disk.begun.remove(0).1);
        first.finish(&System).unwrap();
        assert_eq!(disk.found(), Some(2), "the first one's place has the other's file, which is not synced");
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
        assert!(result.is_err() && disk.states.is_busy() && disk.begun.is_empty());
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
        assert_eq!(states.written(1, false, 0), Written::Again);
        states.put(state(4, StateUse::Install));
        assert_eq!(states.next(1), Some(state(4, StateUse::Install)), "it does not wait for the pause");
        states.put(state(5, StateUse::Install));
        assert_eq!(states.written(4, false, 1), Written::Again);
        assert_eq!(states.next(2), Some(state(5, StateUse::Install)));
        assert_eq!(states.written(5, false, 3), Written::Lost);
    }

    #[test]
    fn a_write_that_does_not_end_is_reported_once() {
        let mut states = DiskStates::default();
        states.put(state(7, StateUse::Shorten));
        states.next(SECOND);
        let late_us = 2 * SECOND + limits::KEEP_PATIENCE.as_micros() as u64;
        assert_eq!(states.overdue(late_us - SECOND), None);
        assert_eq!((states.overdue(late_us), states.overdue(late_us)), (Some(7), None));
    }
}
