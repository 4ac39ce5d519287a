//! The places where fault injection changes a replica's behaviour: one trait, whose methods change nothing by default.
//!
//! A build without the feature `inject` has [`NoHooks`] for [`Active`], and the compiler removes the calls. With the
//! feature it is `faults::Injector`, which imports what it injects faults into: jobs, the service, the copy of a state.
//! So those files take the answer to a question as an argument, and do not name [`Active`].

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use execute::{KeptRequest, SealHook};
use object::{RegionId, SealBroken, SealedQueue};
use order::{Delivered, Request};
use schedule::{Footprint, Lock, ParallelBatches, Turn};
use verify::{StateToken, VerifyMessage};
use vote::{Message, Packed, Place, RequestResult};

use crate::admin::{EvidenceRecord, Inject, Injected};
use crate::copying::StateCopy;
use crate::job::Job;
use crate::service::Service;

#[cfg(feature = "inject")]
pub(crate) use crate::faults::Injector as Active;
#[cfg(not(feature = "inject"))]
pub(crate) use NoHooks as Active;

/// The thread that runs a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadRole {
    /// One of several workers.
    Worker,
    /// The order thread, which has the only worker.
    Order,
    /// The helper, to which the order thread has lent the only worker.
    Helper,
}

/// The outcome of an operator's command to inject a fault.
#[cfg_attr(
    not(feature = "inject"),
    expect(dead_code, reason = "without an injector all of them are refused")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arming {
    /// Nothing was injected, for this reason.
    Refused(&'static str),
    /// The fault waits for this occasion.
    Armed(&'static str),
    /// It needs an ordered turn on this lock ([`Hooks::arm_at_turn`]).
    NeedsTurn(RegionId),
}

/// The interface of a fault injector. It is a handle: clones share the faults that wait for their occasions.
pub(crate) trait Hooks: Clone + Default + Send + Sync + 'static {
    // The admin socket.

    /// An operator requests a fault. `service` and the number of its locks are present once this replica has a state.
    fn arm<S: Service>(&self, _inject: &Inject, _service: Option<(&S, u32)>) -> Arming {
        Arming::Refused(
            "this build carries no fault injector; build with --features inject (`crosscheck up` of such a \
                build has three replicas to try it on)",
        )
    }

    /// After [`Arming::NeedsTurn`]: the turn on lock `region_id` has this ticket.
    fn arm_at_turn(&self, _ticket: u64, _inject: &Inject, _region_id: RegionId) {}

    /// Number of faults that wait for their occasion.
    fn armed(&self) -> usize {
        0
    }

    // The order thread, along the path of a request.

    /// Whether this replica accepts any time from a leader, and gives any as a leader, without comparing clocks.
    fn trusts_any_clock(&self) -> bool {
        false
    }

    /// Whether a replica that was just stopped itself, or whose own clock was wrong, may say that a leader's is.
    fn accuses_in_doubt(&self) -> bool {
        false
    }

    /// Whether the state is given to a replica without which nothing can be ordered.
    fn gives_unordered(&self) -> bool {
        true
    }

    /// Whether an operator is advised to go on with the first replica, and not with the one that has the most.
    fn advises_first(&self) -> bool {
        false
    }

    /// Takes the next request that waits for the orderer. A faulty replica trusts a queue whose numbers are wrong.
    fn next_waiting<T>(&self, waiting: &mut SealedQueue<T>) -> Result<Option<T>, SealBroken> {
        waiting.pop()
    }

    /// Whether each client request is ordered twice.
    fn submits_twice(&self) -> bool {
        false
    }

    /// A client's request, before it is ordered.
    fn on_submit(&self, request: Request) -> Request {
        request
    }

    /// Whether a batch is left out, at a replica that has executed those up to `executed`.
    fn skips(&self, _delivered: &Delivered, _executed: u64) -> bool {
        false
    }

    /// Another state has taken the place of this replica's: ordered turns that it counts do not come any more.
    fn skip_turns(&self) {}

    /// Batch number `batch` is about to be scheduled.
    fn on_batch(&self, _batch: u64) {}

    /// A request of batch number `batch`, before it is decoded.
    fn on_request(&self, _batch: u64, request: Request) -> Request {
        request
    }

    /// The footprint of a request, of so many locks.
    fn on_footprint(&self, footprint: Footprint, _locks: u32) -> Footprint {
        footprint
    }

    /// A batch has its results. Returns the replies that leave at once, before any vote.
    fn on_executed(&self, _batch: u64, _results: &mut [RequestResult]) -> Vec<(Place, Bytes)> {
        Vec::new()
    }

    /// A piece of a state that a replica fetches here, before it is sent.
    fn on_piece(&self, piece: Bytes) -> Bytes {
        piece
    }

    /// Whether a state is taken that one replica alone has offered.
    fn takes_from_one(&self) -> bool {
        false
    }

    /// Whether the notes on how old batches were run are removed.
    fn forgets_runs(&self) -> bool {
        true
    }

    /// The time for which a checkpoint that is written into this directory waits before it is synced.
    fn sync_pause(_directory: &Path) -> Duration {
        Duration::ZERO
    }

    /// Log entries after which a checkpoint is written into this directory, if not as many as usual.
    fn entries_per_snapshot(_directory: &Path) -> Option<u64> {
        None
    }

    /// Whether a checkpoint waits for the disk until the one before it is written.
    fn writes_in_turn(&self) -> bool {
        true
    }

    /// In verified mode: whether a batch is stable only once verifiers say so.
    fn waits_for_verifiers(&self) -> bool {
        true
    }

    /// In verified mode: whether the reply to a read that took no batch waits until its version is stable.
    fn reads_wait_until_stable(&self) -> bool {
        true
    }

    /// In verified mode: whether the exactly-once rule goes back with the batches that are rolled back.
    fn rewinds_sessions(&self) -> bool {
        true
    }

    /// In verified mode: whether the mixer misses the keys of a request.
    fn overlooks(&self, _place: Place) -> bool {
        false
    }

    /// In verified mode: whether the mixer keeps the order of a connection's requests.
    fn keeps_streams(&self) -> bool {
        true
    }

    /// In verified mode: whether a batch runs one request at a time that is to do so.
    fn runs_sequentially(&self, sequential: bool) -> bool {
        sequential
    }

    /// In verified mode: the mixer's plan.
    fn on_plan(&self, plan: ParallelBatches) -> ParallelBatches {
        plan
    }

    /// In verified mode: a message to the machines of a peer, and its encoding.
    fn on_verify_message(&self, _message: &VerifyMessage, _body: &mut [u8]) {}

    /// In verified mode: another token that is sent after this one.
    fn second_token(&self, _token: StateToken) -> Option<StateToken> {
        None
    }

    /// In verified mode: what takes a request back; none for one that others have started.
    fn on_kept(&self, _place: Option<Place>, kept: KeptRequest) -> KeptRequest {
        kept
    }

    /// In verified mode: the place of a request among those that are rolled back, newest first.
    fn undo_stamp(&self, stamp: u64) -> u64 {
        stamp
    }

    /// Whether the voter receives its peers' messages.
    fn receives_votes(&self) -> bool {
        true
    }

    /// A message of the voter, and its encoding; false if it does not leave.
    fn on_vote_message(&self, _message: &Message, _body: &mut [u8]) -> bool {
        true
    }

    /// A reply that passed the vote.
    fn on_release(&self, place: Place, reply: Bytes) -> (Place, Bytes) {
        (place, reply)
    }

    /// Whether a RECOVER that the voter wants is proposed.
    fn proposes_repairs(&self) -> bool {
        true
    }

    /// Objects that f+1 replicas agree on, before they overwrite this replica's.
    fn on_install(&self, objects: Vec<Packed>) -> Vec<Packed> {
        objects
    }

    /// A record of evidence, before it is kept, in a group of so many replicas.
    fn on_evidence(&self, _record: &mut EvidenceRecord, _replicas: usize) {}

    /// A frame to a peer, before it is sealed.
    fn on_frame(&self, _frame: &mut [u8]) {}

    /// Whether the watchdogs request the progress of other replicas.
    fn asks_others(&self) -> bool {
        true
    }

    /// Requests that have ended, as the watchdog of the turns counts them.
    fn on_progress(&self, requests: u64) -> u64 {
        requests
    }

    // The thread that runs a request.

    /// The time that the service's request at this position still has to take.
    fn delay(&self, _position: u64, _thread: ThreadRole) -> Duration {
        Duration::ZERO
    }

    /// A request has its turn.
    fn on_turn<R>(&self, _turn: &mut Turn<'_, R>) {}

    /// Whether the request's ordered bytes were corrupted between delivery and execution.
    fn damages_request<R>(&self, _turn: &Turn<'_, R>) -> bool {
        false
    }

    /// How often the handler runs, if not once. Only one run gets such a number.
    fn runs<R>(&self, _turn: &Turn<'_, R>) -> Option<u32> {
        None
    }

    /// The hook between the handler and its seal.
    fn seal_hook(&self) -> impl SealHook + '_ {}

    /// A reply, after it was rendered and before it is digested.
    fn on_reply<R>(&self, _turn: &Turn<'_, R>, _reply: &mut [u8]) {}

    /// The bits of the result's digest to invert.
    fn wrong_digest_bits<R>(&self, _turn: &Turn<'_, R>) -> u128 {
        0
    }

    /// Whether a copy that is being made learns what a request has changed.
    fn names_changes(&self) -> bool {
        true
    }

    /// The next objects of a region are about to be packed for a copy.
    fn before_part(&self, _copy: &StateCopy, _region_id: RegionId) {}

    /// Objects that were packed for a copy.
    fn on_part(&self, _packed: &mut [u8]) {}

    /// Whether what is left of a copy at its checkpoint is a part of it.
    fn keeps_rest(&self) -> bool {
        true
    }

    /// The turn of [`Hooks::arm_at_turn`]: returns its outcome; none if another replica requested it.
    fn on_noop<S: Service>(
        &self,
        _service: &S,
        _turn: &mut Turn<'_, Job<S::Request>>,
        _locks: &[&dyn Lock],
        _ticket: u64,
    ) -> Option<Injected> {
        None
    }
}

/// No fault injection, for production builds.
#[cfg(not(feature = "inject"))]
#[derive(Clone, Debug, Default)]
pub(crate) struct NoHooks(());

#[cfg(not(feature = "inject"))]
impl Hooks for NoHooks {}
