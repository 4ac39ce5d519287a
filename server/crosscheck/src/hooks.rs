//! The places where fault injection changes a replica's behaviour: one trait, whose methods change nothing by default.
//!
//! Three of them are enough for nearly all places. A rule that a replica keeps is a [`Rule`], and the code asks whether
//! it does. A value that a fault may hit is a [`FaultPoint`], or a [`TurnPoint`] where a request has its turn, and the
//! code passes there with it. What remains is generic, or returns what no other place does.
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

/// A rule that a replica keeps, unless a simulation makes it break its promise (`faults::Sabotage`). Each is named for
/// what a healthy replica does, so that without fault injection the answer is always yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A leader's time is accepted, and given as a leader, only as f+1 clocks permit.
    ComparesClocks,
    /// A replica that was just stopped itself, or whose own clock was wrong, does not say that a leader's is.
    AccusesWhenSure,
    /// The state is given to a replica without which nothing can be ordered.
    GivesUnordered,
    /// An operator is advised to go on with the replica that has the most, and not with the first one.
    AdvisesMost,
    /// Each client request is ordered once.
    SubmitsOnce,
    /// A state is taken only if f+1 replicas have offered it.
    NeedsTwoOffers,
    /// The behavior changes only when all replicas can act as the new one.
    AllActAlike,
    /// A replica vouches for a move to another machine only if it has seen that for itself.
    SeesMoved,
    /// The notes on how old batches were run are removed.
    ForgetsRuns,
    /// A checkpoint waits for the disk until the one before it is written.
    WritesInTurn,
    /// The voter receives its peers' messages.
    ReceivesVotes,
    /// A RECOVER that the voter wants is proposed.
    ProposesRepairs,
    /// The watchdogs request the progress of other replicas.
    AsksOthers,
    /// A copy that is being made learns what a request has changed.
    NamesChanges,
    /// What is left of a copy at its checkpoint is a part of it.
    KeepsRest,
    /// In verified mode: a batch is stable only once verifiers say so.
    WaitsForVerifiers,
    /// In verified mode: the reply to a read that took no batch waits until its version is stable.
    ReadsWaitUntilStable,
    /// The reply to a read that took no batch is the one that f others have read.
    ComparesReads,
    /// In verified mode: the exactly-once rule goes back with the batches that are rolled back.
    RewindsSessions,
    /// In verified mode: the mixer keeps the order of a connection's requests.
    KeepsStreams,
    /// A reply that a timer makes leaves once f other replicas have made the same.
    ConfirmsStarted,
}

#[cfg(all(test, feature = "inject"))]
impl Rule {
    /// All of them.
    pub const ALL: [Rule; 21] = [
        Rule::ComparesClocks,
        Rule::AccusesWhenSure,
        Rule::GivesUnordered,
        Rule::AdvisesMost,
        Rule::SubmitsOnce,
        Rule::NeedsTwoOffers,
        Rule::AllActAlike,
        Rule::SeesMoved,
        Rule::ForgetsRuns,
        Rule::WritesInTurn,
        Rule::ReceivesVotes,
        Rule::ProposesRepairs,
        Rule::AsksOthers,
        Rule::NamesChanges,
        Rule::KeepsRest,
        Rule::WaitsForVerifiers,
        Rule::ReadsWaitUntilStable,
        Rule::ComparesReads,
        Rule::RewindsSessions,
        Rule::KeepsStreams,
        Rule::ConfirmsStarted,
    ];
}

/// A place on the path of a request, or of a state, with what a fault may hit there.
#[cfg_attr(not(feature = "inject"), expect(dead_code, reason = "without an injector nothing looks at them"))]
pub(crate) enum FaultPoint<'a> {
    // The order thread, along the path of a request.
    /// A client's request, before it is ordered.
    Submit(&'a mut Request),
    /// A delivered batch, at a replica that has executed those up to this one. False if it is left out.
    Delivered(&'a Delivered, u64),
    /// The batch with this number is about to be scheduled.
    Batch(u64),
    /// A request of this batch, before it is decoded.
    Request(u64, &'a mut Request),
    /// The footprint of a request, of so many locks.
    Footprint(&'a mut Footprint, u32),
    /// A batch has its results. Replies that are added leave at once, before any vote.
    Executed(u64, &'a mut [RequestResult], &'a mut Vec<(Place, Bytes)>),
    /// A reply that passed the vote.
    Release(&'a mut Place, &'a mut Bytes),
    /// Another state has taken the place of this replica's: ordered turns that it counts do not come any more.
    TurnsSkipped,
    /// Requests that have ended, as the watchdog of the turns counts them.
    Progress(&'a mut u64),

    // State transfer.
    /// A piece of a state that a replica fetches here, before it is sent.
    Piece(&'a mut Bytes),
    /// The next objects of a region are about to be packed for a copy.
    Copy(&'a StateCopy, RegionId),
    /// Objects that were packed for a copy.
    Part(&'a mut [u8]),

    // Where replicas vote.
    /// A message of the voter, and its encoding. False if it does not leave.
    VoteMessage(&'a Message, &'a mut [u8]),
    /// Objects that f+1 replicas agree on, before they overwrite this replica's.
    Install(&'a mut Vec<Packed>),

    // In verified mode.
    /// The mixer gets the keys of the request at this place. False if it misses them.
    Keys(Place),
    /// The mixer's plan.
    Plan(&'a mut ParallelBatches),
    /// Whether a batch runs one request at a time.
    Sequential(&'a mut bool),
    /// A message to the machines of a peer, and its encoding.
    VerifyMessage(&'a VerifyMessage, &'a mut [u8]),
    /// This token is sent, and after it another one if there is one.
    Token(StateToken, &'a mut Option<StateToken>),
    /// What takes a request back; no place for one that others have started.
    Kept(Option<Place>, &'a mut KeptRequest),
    /// The place of a request among those that are rolled back, newest first.
    UndoStamp(&'a mut u64),

    // What leaves.
    /// A record of evidence, before it is kept, in a group of so many replicas.
    Evidence(&'a mut EvidenceRecord, usize),
    /// A frame to a peer, before it is sealed.
    Frame(&'a mut [u8]),
}

/// A place in the turn of a request, with what a fault may hit there.
#[cfg_attr(not(feature = "inject"), expect(dead_code, reason = "without an injector nothing looks at them"))]
pub(crate) enum TurnPoint<'a> {
    /// The turn begins.
    Begins,
    /// Whether the request's ordered bytes were corrupted between delivery and execution.
    Bytes(&'a mut bool),
    /// The handler is about to run: how often, if not once. Only one run gets such a number.
    Runs(&'a mut Option<u32>),
    /// A reply, after it was rendered and before it is digested.
    Reply(&'a mut [u8]),
    /// The bits of the result's digest to invert.
    Digest(&'a mut u128),
    /// The request has run. What it has started comes into the schedule next.
    Ends,
}

/// How a disk is slow on purpose.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlowDisk {
    /// The time for which a checkpoint waits before it is synced.
    pub sync_pause: Duration,
    /// Log entries after which a checkpoint is written, instead of as many as usual.
    pub entries_per_snapshot: u64,
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

    // All threads.

    /// Whether this replica keeps a rule.
    #[inline]
    fn keeps(&self, _rule: Rule) -> bool {
        true
    }

    /// This replica passes a place where a fault may hit. False if what the place is about does not happen.
    #[inline]
    fn at(&self, _point: FaultPoint<'_>) -> bool {
        true
    }

    /// The same in a request's turn.
    #[inline]
    fn at_turn<R>(&self, _turn: &mut Turn<'_, R>, _point: TurnPoint<'_>) {}

    /// Takes the next request that waits for the orderer. A faulty replica trusts a queue whose numbers are wrong.
    fn next_waiting<T>(&self, waiting: &mut SealedQueue<T>) -> Result<Option<T>, SealBroken> {
        waiting.pop()
    }

    /// How the disk of this directory is slow, if it is.
    fn slow_disk(_directory: &Path) -> Option<SlowDisk> {
        None
    }

    // The thread that runs a request.

    /// The time that the service's request at this position still has to take.
    fn delay(&self, _position: u64, _thread: ThreadRole) -> Duration {
        Duration::ZERO
    }

    /// The hook between the handler and its seal.
    fn seal_hook(&self) -> impl SealHook + '_ {}

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
