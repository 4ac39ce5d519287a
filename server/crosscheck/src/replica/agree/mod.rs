//! Agreement: how replicas come to answer only with what is right. There are three ways, and a replica has one of them:
//! replies wait for the votes of others (`voted.rs`, CrossCheck), a batch is executed first and verified afterwards
//! (`verified/`, Eve), or a replica answers by itself, after one or two runs of a request (`alone.rs`, SEI).
//!
//! The pipeline (`replica/mod.rs`) is the same for all: it hands each an ordered batch to schedule, what the workers
//! report, and what the other replicas send. Decisions are values (`vote::Command`, and `VerifierCommand` and
//! `ExecutorCommand` of `verify`), which each way performs on the stages of its replica ([`Core`]).

mod alone;
mod barrier;
pub(super) mod choice;
mod local_reads;
mod verified;
mod voted;

use bytes::Bytes;
use order::{Delivered, FrameKind, Tolerance};
use vote::limits::Occupancy;

use super::copies::WholeCopy;
use super::core::{Core, started_replies};
use super::disk_states::StateUse;
use super::execution::{Execution, VerifiedProgress};
use super::order_stage::{ReadOrder, SortsReads};
use super::tolerance::Verifying;
use super::waits::{self, Wait};
use crate::admin::Status;
use crate::admin_server::Call;
use crate::copying::is_of_changes;
use crate::packed_state::PackedState;
use crate::service::Service;
use crate::state::{Base, CheckpointHead, StateProof};
use crate::transfer::Message;
use crate::worker::Report;
use crate::world::World;

/// How the replicas of a group agree.
pub(super) trait Agreement<S: Service, W: World>: Send {
    /// Whether the next delivered batch may be scheduled, beside that workers have room.
    fn may_deliver(&self) -> bool {
        true
    }

    /// Schedules a delivered batch.
    fn plan(&mut self, delivered: Delivered, core: &mut Core<S, W>) {
        core.deliver(&delivered);
    }

    /// What keeps requests that only read from being ordered; none where all requests are ordered.
    fn sorts<'r>(&'r mut self, _execution: &'r Execution<S>, _order: ReadOrder) -> Option<SortsReads<'r>> {
        None
    }

    /// Runs requests that are not ordered. Returns whether there is more to do at once.
    fn run_reads(&mut self, _core: &mut Core<S, W>) -> bool {
        false
    }

    /// A worker's report about requests or the state.
    fn on_report(&mut self, report: Report, core: &mut Core<S, W>);

    /// A frame of another replica's agreement, whose checksum is right.
    fn on_message(&mut self, from: u8, kind: FrameKind, body: &Bytes, core: &mut Core<S, W>);

    /// A message about the state; returns it if it is not for the agreement.
    fn on_transfer(&mut self, _from: u8, message: Message, _core: &mut Core<S, W>) -> Option<Message> {
        Some(message)
    }

    /// What is known of another replica has changed.
    fn on_peer(&mut self, event: PeerNews, core: &mut Core<S, W>);

    /// Heartbeats were sent: it is known anew who is silent.
    fn count_peers(&mut self, _core: &mut Core<S, W>) {}

    /// Time has passed.
    fn tick(&mut self, core: &mut Core<S, W>);

    /// The end of a round: messages of the round share a frame.
    fn flush(&mut self, _core: &mut Core<S, W>) {}

    /// How far the group is.
    fn progress(&self, core: &Core<S, W>) -> Progress;

    /// Adds to what an operator sees.
    fn status(&self, _core: &Core<S, W>, _status: &mut Status) {}

    /// What this replica waits for and does not get without an operator, with the remedy.
    fn waits_for_operator(&self, _core: &Core<S, W>) -> Option<Wait> {
        None
    }

    /// An operator has decided what the group cannot decide by itself.
    fn decide(&mut self, call: Call, core: &mut Core<S, W>) {
        let is_executing = core.executor.running.is_some();
        waits::decide(call, is_executing, &mut core.order, &mut core.transfer, &mut core.env);
    }

    /// Before the watchdog of the turns looks: what it has to know.
    fn watch(&mut self, _core: &mut Core<S, W>) -> Watched {
        Watched::Runs(None)
    }

    /// What is unfinished in the batches before `batch`; none when all are finished.
    fn open_below(&self, _batch: u64) -> Option<String> {
        None
    }

    /// What a simulation strikes by.
    fn marks(&self) -> AgreementMarks {
        AgreementMarks::default()
    }

    /// How full queues and buffers are.
    fn loads(&self) -> Vec<Occupancy> {
        Vec::new()
    }

    /// Injects a fault; false if there is nothing that it could hit.
    #[cfg(feature = "inject")]
    fn inject(&mut self, _fault: AgreementFault, _core: &mut Core<S, W>) -> bool {
        false
    }

    /// Whether a state that comes from others has a proof with it, and may be refused.
    fn proves_states(&self) -> bool {
        false
    }

    /// Whether the state of the others takes the place of the own one while this replica runs.
    fn takes_state(&self) -> bool {
        false
    }

    /// The log has no entries any more that this replica needs. Returns whether it handles that by itself.
    fn gives_up_state(&mut self, _core: &mut Core<S, W>) -> bool {
        false
    }

    /// The state of the others has come, which takes the place of the own one while this replica runs.
    ///
    /// # Errors
    /// When it does not prove itself.
    fn take_in_place(
        &mut self,
        _index: u64,
        _state: PackedState,
        _core: &mut Core<S, W>,
    ) -> Result<(), NotProven> {
        Ok(())
    }

    /// The service has a state of others, after entry `index`, from which this replica is about to continue.
    ///
    /// # Errors
    /// When it does not prove itself.
    fn prove(
        &mut self,
        _index: u64,
        _base: &Base<S>,
        _proof: Option<StateProof>,
        _core: &mut Core<S, W>,
    ) -> Result<(), NotProven> {
        Ok(())
    }

    /// This replica continues after `head`: the first state, or one that was proven.
    ///
    /// # Errors
    /// When the service's first state cannot be read.
    fn begin(&mut self, _head: &CheckpointHead, _core: &mut Core<S, W>) -> Result<(), String> {
        Ok(())
    }

    /// The workers run, from batch `first_batch` on; on a state `from_others`, or on the first or a saved one.
    fn started(&mut self, _first_batch: u64, _from_others: bool, _core: &mut Core<S, W>) {}

    /// The workers end: another state is about to replace theirs.
    fn retired(&mut self) {}

    /// Packs the state as it is, for a replica without which nothing can be ordered.
    fn pack_unordered(&mut self, core: &mut Core<S, W>) {
        core.pack_unordered();
    }
}

/// What is known of another replica has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerNews {
    /// It is connected.
    Connected(u8),
    /// It is not connected any more.
    Disconnected(u8),
    /// Its process has ended.
    Ended(u8),
    /// A frame of it was corrupted on its way.
    Garbled(u8),
    /// It has sent a heartbeat.
    Heartbeat(u8),
    /// The leader does not do its work.
    LeaderFails,
}

/// How far the group is, as this replica knows it.
pub(super) struct Progress {
    /// Last batch up to which replies have left, or never will.
    pub(super) validated: u64,
    /// The last batch that shows progress of the group: executed here, in verified mode stable.
    pub(super) last_batch: u64,
    /// The replica that orders, from 0; in verified mode the primary.
    pub(super) leader: Option<u8>,
    /// As the leader: how many further replicas may fail.
    pub(super) tolerance: Option<Tolerance>,
    /// In verified mode: what this replica reports of verifier and executor.
    pub(super) verifying: Verifying,
}

impl Progress {
    /// Where the log is the group's memory, and this batch is the last one that was validated.
    fn of_log<S: Service, W: World>(validated: u64, core: &Core<S, W>) -> Self {
        Progress {
            validated,
            last_batch: core.env.peers.progress.executed,
            leader: core.order.orderer.engine_status().leader,
            tolerance: core.order.orderer.tolerance(),
            verifying: Verifying::default(),
        }
    }
}

/// What the watchdog of the turns has to know of the agreement.
pub(super) enum Watched {
    /// Workers wait for other replicas, which has a limit of its own.
    Waits,
    /// Workers run; in verified mode, what counts as executed.
    Runs(Option<VerifiedProgress>),
}

/// What a simulation strikes by.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AgreementMarks {
    /// The executors of the recorded view, as a set.
    pub(super) executors: u16,
    /// The verifier has promised a view that the executor does not follow yet.
    pub(super) has_promised: bool,
}

/// A fault in the state of verified mode.
#[cfg(feature = "inject")]
#[derive(Clone, Copy, Debug)]
pub(super) enum AgreementFault {
    /// A bit of a token that the verifier has counted flips.
    Tally { seed: u64 },
    /// A bit of a leaf of the tree over the objects flips, or of a node above the leaves.
    Tree { of_leaves: bool, seed: u64 },
    /// The verifier has lost its memory, and continues as another one.
    ForgetVerifier { incarnation: u64 },
    /// Verifier and executor go on without some rules.
    Weaken(verify::Rules),
}

/// Why a state from the others is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotProven {
    /// It is not the state of the version that its proof is of.
    #[error("{0}")]
    Wrong(String),
    /// This may be known later.
    #[error("it is of no version that verifiers are known here to have recorded")]
    Unrecorded,
}

/// Where a state is right as soon as f+1 replicas have packed the same: handles reports about it, and returns others.
fn on_state_report<S: Service, W: World>(report: Report, core: &mut Core<S, W>) -> Option<Report> {
    match report {
        Report::Checkpoint { head, state } => {
            core.transfer.on_checkpoint(&head, state, &mut core.order, &mut core.env);
        }
        Report::Cut { session, head, rest, end } => {
            core.on_cut((session, &head), &rest, Some(end));
            let Some(execution) = &core.executor.running else { return None };
            let is_written = core.transfer.disk.is_writing(StateUse::Shorten);
            match core.copies.on_stable(head.batch, is_written, &execution.copy) {
                Some(WholeCopy { copy: (session, index), last }) if is_of_changes(session) => {
                    core.transfer.end_changes(index, &last, &core.env);
                }
                Some(WholeCopy { copy, last }) => {
                    core.transfer.end_copy(copy, last, &mut core.order, &mut core.env);
                }
                None => {
                    core.transfer.abandon_copy(session);
                    core.transfer.forget_requested();
                }
            }
        }
        Report::StartedReply { reply, digest, .. } => {
            let (replies, around) = started_replies(core);
            replies.on_made(reply, digest, around);
        }
        other => return Some(other),
    }
    None
}
