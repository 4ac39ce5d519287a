//! The states that a replica with its log on disk writes there: those that are packed at once as a whole, and copies
//! while they are made or received.

use bytes::Bytes;

use super::Input;
use super::disk_states::{DiskState, DiskStates, StateUse, Written};
use super::environment::Environment;
use crate::hooks::{Hooks, Rule};
use crate::limits;
use crate::packed_state::PackedState;
use crate::settings::Durability;
use crate::snapshot::{Extent, SavedSize, SnapshotError};
use crate::state_writer::{StateSink, WriteEnd};
use crate::world::World;

/// Writes states, one at a time.
#[derive(Default)]
pub(super) struct DiskWriter {
    states: DiskStates,
    /// Takes the pieces of the copy that is being written.
    copy: Option<OpenCopy>,
    /// What the last state takes that was made here, or came from others.
    size: SavedSize,
}

/// A copy that is written while it is made or received.
struct OpenCopy {
    write: u64,
    used: StateUse,
    extent: Extent,
    length: u64,
    sink: Box<dyn StateSink>,
}

/// A state of the peers that is on disk, and is to be put in place.
pub(super) enum KeptState {
    /// This one.
    Whole(u64, PackedState),
    /// The one after this log index, whose pieces were put in place as they came.
    InPlace(u64),
}

impl DiskWriter {
    /// Begins to write a copy. False if that is not possible now: another state is being written.
    pub(super) fn begin<W: World>(
        &mut self,
        (used, extent): (StateUse, Extent),
        env: &mut Environment<W>,
    ) -> bool {
        self.drop_copy();
        if !env.settings.durability.is_disk() {
            return false;
        }
        if !env.hooks.keeps(Rule::WritesInTurn) {
            self.states.overlook_writing();
        }
        let Some(write) = self.states.begin(used, env.world.now_us()) else { return false };
        let sink = open(write, extent, env);
        self.copy = sink.map(|sink| OpenCopy { write, used, extent, length: 0, sink });
        true
    }

    /// The next pieces of the copy.
    pub(super) fn put_all(&mut self, used: StateUse, pieces: &PackedState) {
        pieces.pieces().iter().for_each(|piece| self.put(used, piece.clone()));
    }

    /// The next piece of the copy.
    pub(super) fn put(&mut self, used: StateUse, piece: Bytes) {
        if let Some(copy) = self.copy.as_mut().filter(|copy| copy.used == used) {
            copy.length += piece.len() as u64;
            copy.sink.put(piece);
        }
    }

    /// The copy is whole: the state after entry `index`. False if it is not being written.
    pub(super) fn end(&mut self, used: StateUse, index: u64, now_us: u64) -> bool {
        let Some(copy) = self.copy.take_if(|copy| copy.used == used) else { return false };
        match copy.extent {
            Extent::Whole => self.size = SavedSize { state: copy.length, ..SavedSize::default() },
            Extent::Changes => {
                (self.size.changes, self.size.files) = (self.size.changes + copy.length, self.size.files + 1);
            }
        }
        self.states.end(copy.write, index, now_us);
        copy.sink.end(index);
        true
    }

    /// The copy will not be finished.
    pub(super) fn give_up(&mut self, used: StateUse) {
        if self.is_writing(used) {
            self.drop_copy();
        }
    }

    fn drop_copy(&mut self) {
        if let Some(copy) = self.copy.take() {
            // The next write begins when this one has ended, as `World::keep` promises.
            self.states.given_up(copy.write);
        }
    }

    /// Whether a copy is being written for this.
    pub(super) fn is_writing(&self, used: StateUse) -> bool {
        self.copy.as_ref().is_some_and(|copy| copy.used == used)
    }

    /// Whether the changes behind the last whole state take more room than that, or too many files.
    pub(super) fn changes_outweigh(&self) -> bool {
        self.size.changes > self.size.state || self.size.files >= limits::CHANGES_FILES
    }

    /// The state after entry `index` was found on the disk.
    pub(super) fn set_kept(&mut self, index: u64, size: SavedSize) {
        self.states.set_kept(index);
        self.size = size;
    }

    /// Whether so much of the copy is not written that no more should come.
    pub(super) fn is_behind(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| copy.sink.unwritten() > limits::UNWRITTEN)
    }

    /// Has the state after entry `index` written; false without a disk.
    pub(super) fn keep<W: World>(&mut self, state: DiskState, env: &mut Environment<W>) -> bool {
        if !env.settings.durability.is_disk() {
            return false;
        }
        if state.used == StateUse::Install {
            // The replica does not take part before it is written.
            self.drop_copy();
        }
        self.size = SavedSize { state: state.state.length(), ..SavedSize::default() };
        self.states.put(state);
        self.write_next(env);
        true
    }

    /// Begins to write the state that waits, unless another one is being written.
    fn write_next<W: World>(&mut self, env: &mut Environment<W>) {
        if !env.hooks.keeps(Rule::WritesInTurn) {
            self.states.overlook_writing();
        }
        let Some((write, DiskState { index, state, .. })) = self.states.next(env.world.now_us()) else {
            return;
        };
        if let Some(mut sink) = open(write, Extent::Whole, env) {
            state.pieces().iter().for_each(|piece| sink.put(piece.clone()));
            sink.end(index);
        }
    }

    /// A write has ended. Returns a state that came from the peers and is to be put in place now.
    pub(super) fn on_ended<W: World>(
        &mut self,
        write: u64,
        end: WriteEnd,
        env: &mut Environment<W>,
    ) -> Option<KeptState> {
        self.copy.take_if(|copy| copy.write == write);
        let (index, error) = match end {
            WriteEnd::Kept(index) => (Some(index), None),
            WriteEnd::GivenUp => return None,
            WriteEnd::Failed(error) => (None, Some(error)),
        };
        let written = self.states.written(write, index, env.world.now_us());
        let kept = match (written, error) {
            (Written::Install(DiskState { index, state, .. }), _) => Some(KeptState::Whole(index, state)),
            (Written::InPlace(index), _) => Some(KeptState::InPlace(index)),
            (Written::Lost, Some(error)) => {
                env.stop_with(Err(error.into()));
                return None;
            }
            (_, Some(error)) => {
                env.world.say(format_args!(
                    "a checkpoint could not be written: {error}. The one before it (of log entry {}) and the log \
                        after that are whole, so nothing is lost and this replica goes on, but its log grows. It tries \
                        again with the next one, after {} s at the earliest",
                    self.states.kept_index(),
                    limits::KEEP_AGAIN.as_secs()
                ));
                None
            }
            _ => None,
        };
        self.write_next(env);
        kept
    }

    /// Once per tick: repeats a write that failed some time ago, and reports one that does not end.
    pub(super) fn tend<W: World>(&mut self, env: &mut Environment<W>) {
        self.write_next(env);
        if self.states.is_overdue(env.world.now_us()) {
            env.world.say(format_args!(
                "a checkpoint has been written for {} s and is not on the disk. Until it is, the log after entry {} \
                    is not shortened; this replica goes on. Check the disk of the data directory",
                limits::KEEP_PATIENCE.as_secs(),
                self.states.kept_index()
            ));
        }
    }

    /// The states on disk and on their way there.
    pub(super) fn states(&self) -> &DiskStates {
        &self.states
    }

    /// Bytes of the last whole state.
    pub(super) fn state_bytes(&self) -> u64 {
        self.size.state
    }
}

/// Begins a write; [`Input::Kept`] tells when it has ended.
fn open<W: World>(write: u64, extent: Extent, env: &mut Environment<W>) -> Option<Box<dyn StateSink>> {
    let Durability::Disk(directory) = &env.settings.durability else { return None };
    let mailbox = env.mailbox.clone();
    let done = move |end| mailbox.send(Input::Kept { write, end });
    match env.world.keep(directory, extent, done) {
        Ok(sink) => Some(sink),
        Err(error) => {
            // No thread: the result is known at once.
            let end = WriteEnd::Failed(SnapshotError::no_writer(directory, error));
            env.mailbox.send(Input::Kept { write, end });
            None
        }
    }
}
