//! In verified mode: a batch is executed first and verified afterwards (Eve, OSDI 2012). Replies leave when a quorum of
//! verifiers has recorded a token that is this replica's; where it is not, batches are rolled back.
//!
//! The primary of the view numbers batches (`order::PrimaryEngine`). Each is mixed and executed (`deliver.rs`), folded
//! into a token (`fold.rs`), and judged by the machines of the crate `verify`, which this file drives. What they decide
//! is performed in `outcome.rs`; `repair.rs` replaces objects that are corrupted at rest, and `whole_state.rs` a state
//! that is beyond that. Two executors that differ check themselves (`undecided.rs`), and one of two gives up its state
//! only if the other one's is right (`yielding.rs`).

mod agreement;
mod checkpoint;
mod deliver;
mod difference;
mod differences;
mod fold;
mod memories;
mod operator;
mod other_health;
mod outcome;
mod reads;
mod repair;
mod repairing;
mod self_doubt;
mod taking;
mod undecided;
mod unserved;
mod whole_state;
mod yielding;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use execute::{Speculation, TokenParts};
use object::{ObjectId, RegionId};
use order::{Delivered, FrameKind, PrimaryView};
use schedule::{EntryEnd, Mixer};
use verify::{
    Executor, ExecutorEvent, Layout, Reason, Recipients, Slot, Verifier, VerifierEvent, VerifyMessage,
    Version,
};
use vote::{Packed, RequestResult};

use difference::Difference;
use other_health::OtherHealth;
use repairing::Repairing;
use self_doubt::SelfDoubt;
use taking::{RecordedVersions, TakenStates, TakingState};
use unserved::Unserved;

use super::local_reads::LocalReads;
use crate::admin::VerificationStatus;
use crate::hooks::{FaultPoint, Hooks};
use crate::limits;
use crate::ordered::Control;
use crate::replica::core::Core;
use crate::replica::environment::{Environment, PastCounts};
use crate::replica::execution::VerifiedProgress;
use crate::replica::tolerance::{self, OtherProcess, Verifying};
use crate::running::RunningBatch;
use crate::service::Service;
use crate::settings::Settings;
use crate::state::StateProof;
use crate::world::{Observation, World};

/// The state of a replica that verifies after execution.
// large: what a replica in verified mode knows, which all parts of its stage ask for
pub(super) struct Verified {
    verifier: Verifier,
    executor: Executor,
    /// Whether this process is an executor, and no witness.
    executes: bool,
    /// The batches that have ended, with what takes them back. None before this replica executes, and while a boundary
    /// has it.
    speculation: Option<Speculation>,
    /// A boundary has it that takes nothing back.
    is_lent: bool,
    /// Batches beyond the stable one that were scheduled, oldest first.
    unstable: VecDeque<UnstableBatch>,
    /// The parts of the batch that is delivered next, so far.
    parts: Vec<Delivered>,
    /// The state of the order after the stable batch.
    stable_order: order::State,
    /// What the token after it is computed from.
    stable_parts: TokenParts,
    /// What follows when a boundary has taken batches back.
    rolling_back: Option<RollingBack>,
    /// The view in which batches are run here.
    view: u64,
    /// An agreed version that this replica does not have. It runs the batches up to there again.
    repairing: Option<Repairing>,
    /// The own state is wrong, and that of the others takes its place.
    taking: Option<TakingState>,
    past: RepairHistory,
    recorded: RecordedVersions,
    /// A peer's answer that came while a boundary had the batches.
    answer: Option<(u8, u64, Vec<Packed>)>,
    /// What peers have asked for: each its last question.
    questions: BTreeMap<u8, (u64, Vec<(RegionId, ObjectId)>)>,
    /// The replicas differ after this batch, and it is unknown which one is right.
    undecided: Option<u64>,
    losses: Losses,
    /// An operator has permitted to begin a group where no replica has one.
    begins: bool,
    mixer: Mixer,
    /// A state of others that has proved itself, until this replica begins on it.
    proven: Option<Speculation>,
    /// Reads that take no batch; none where they take one.
    reads: Option<LocalReads>,
    /// How long the primary has ordered nothing although requests wait here.
    unserved: Unserved,
    own_messages: OwnMessages,
    /// Per peer: the messages of this round, and how many there are.
    outgoing: Vec<(Vec<u8>, usize)>,
}

/// Messages of this process to itself.
#[derive(Default)]
struct OwnMessages {
    /// Those that were not handled yet.
    waiting: VecDeque<VerifyMessage>,
    /// They are being handled: what they cause waits in the same queue.
    are_handled: bool,
}

/// A scheduled batch.
struct UnstableBatch {
    number: u64,
    /// The number by which the schedule tells its end.
    appended: u64,
    running: Arc<RunningBatch>,
    /// The state of the order after it.
    order: order::State,
    /// This replica's requests in it: their numbers, and the tags under which they were submitted.
    tags: Vec<(u16, u64)>,
    /// Once all of its requests have them.
    results: Option<Vec<RequestResult>>,
    /// Once it has ended.
    ended: Option<EntryEnd>,
    /// Replies that requests made which the service had started itself.
    started_replies: Vec<(Bytes, u128)>,
    /// Corrupted objects that were to be packed behind it.
    damaged: Vec<(RegionId, ObjectId)>,
    /// Once all before have ended too: the state after it.
    version: Option<Version>,
    /// What its token is computed from.
    parts: TokenParts,
}

/// What earlier repairs came to.
#[derive(Clone, Copy, Debug, Default)]
struct RepairHistory {
    /// The batch before the last one in which failed requests were found here, and how often that one was.
    found_wrong: (u64, u32),
    /// Repairs in a row that have repaired nothing.
    in_vain: u32,
    /// Whole states that were taken.
    taken: TakenStates,
    /// Of one of two executors.
    doubt: SelfDoubt,
    /// And of what it knows of the other one.
    other_health: OtherHealth,
    /// Of two executors: the batch after which they differ.
    difference: Option<Difference>,
}

/// What is known of others that are gone, or have lost their memory.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    /// The other one of two replicas has ended, and may have gone on alone before.
    peer_has_ended: bool,
    /// Since when too few verifiers have their memory.
    too_few_since: Option<u64>,
}

/// Batches are being rolled back.
#[derive(Clone, Copy, Debug)]
struct RollingBack {
    /// Number of the batch after which this replica continues.
    to: u64,
    /// The view that begins then; none if batches of the present one run again.
    view: Option<PrimaryView>,
}

/// Who executes and verifies in a group of so many replicas.
pub(super) fn layout(settings: &Settings) -> Layout {
    match settings.peers.len() {
        _ if settings.witness => Layout::PairWithWitness,
        0..3 => Layout::Pair,
        replicas => Layout::Crash { failures: (replicas as u8 - 1) / 2 },
    }
}

/// Whether the group has two executors.
fn are_two(settings: &Settings) -> bool {
    settings.executors() == 2
}

/// Whether a replica of this group takes a state in place. Of two replicas without a third verifier, none does.
fn takes_states(settings: &Settings) -> bool {
    !settings.is_pair()
}

/// The other one of two replicas.
fn other_than(me: u8) -> u8 {
    1 - me.min(1)
}

/// The token of the state before the first batch: services start alike.
const GENESIS: verify::StateToken = verify::StateToken(0);

/// The batch with this number. A replica that lags has thousands of them.
fn unstable(batches: &mut VecDeque<UnstableBatch>, number: u64) -> Option<&mut UnstableBatch> {
    let at = batches.binary_search_by_key(&number, |one| one.number).ok()?;
    batches.get_mut(at)
}

impl Verified {
    /// The stage of a replica that has not found its group yet. `incarnation` distinguishes this process from all
    /// others.
    pub(super) fn new(settings: &Settings, incarnation: u64) -> Self {
        let mut config = verify::Config::new(layout(settings), settings.me, incarnation.max(1), GENESIS);
        if settings.begins {
            config = config.that_begins();
        }
        if !settings.extra_protection {
            config = config.with_extra_protection(None);
        }
        let reads = settings.group_reads_locally() && !settings.is_witness();
        Verified {
            verifier: Verifier::new(config.clone()),
            executor: Executor::new(config),
            executes: !settings.is_witness(),
            speculation: None,
            is_lent: false,
            unstable: VecDeque::new(),
            parts: Vec::new(),
            stable_order: order::State::default(),
            stable_parts: TokenParts::default(),
            rolling_back: None,
            view: 0,
            repairing: None,
            taking: None,
            past: RepairHistory::default(),
            recorded: RecordedVersions::default(),
            answer: None,
            questions: BTreeMap::new(),
            undecided: None,
            losses: Losses::default(),
            begins: settings.begins,
            mixer: Mixer::new(),
            proven: None,
            reads: reads.then(LocalReads::default),
            unserved: Unserved::default(),
            own_messages: OwnMessages::default(),
            outgoing: vec![(Vec::new(), 0); settings.peers.len()],
        }
    }

    /// The tree over the objects, for fault injection.
    #[cfg(feature = "inject")]
    pub(super) fn tree_mut(&mut self) -> Option<&mut tree::Tree> {
        self.speculation.as_mut().map(Speculation::tree)
    }

    /// Its verifier has lost its memory: an injected fault.
    #[cfg(feature = "inject")]
    pub(super) fn forget_verifier(&mut self, settings: &Settings, incarnation: u64) {
        let config = verify::Config::new(layout(settings), settings.me, incarnation.max(1), GENESIS);
        self.verifier = Verifier::new(config);
    }

    /// Both machines are without some rules from now on.
    #[cfg(feature = "inject")]
    pub(super) fn weaken(&mut self, rules: verify::Rules) {
        self.verifier.set_rules(rules);
        self.executor.set_rules(rules);
    }

    /// What the verifier keeps; none while it has no memory.
    pub(super) fn record(&self) -> Option<verify::TokenRecord> {
        self.verifier.record()
    }

    /// The view that the executor follows.
    pub(super) fn view(&self) -> Option<u64> {
        self.executor.view()
    }

    /// What an operator keeps if the group goes on with this replica: all that it has run in the view in which its
    /// verifier records, as long as that continues the record. Some of it may have been agreed on unknown to this
    /// replica.
    fn to_keep(&self) -> Version {
        let (stable, newest) = (self.executor.stable(), self.executor.newest());
        let Some(record) = self.verifier.record() else { return stable };
        let continues = record.version.number <= stable.number || self.executor.has(record.version);
        match continues && self.executor.view() == Some(record.view) {
            true => newest,
            false if self.executor.has(record.version) => record.version,
            false => stable,
        }
    }

    /// The newest version that stays.
    pub(super) fn stable(&self) -> u64 {
        self.executor.stable().number
    }

    /// What the others are told of both machines.
    pub(super) fn verifying(&self) -> Verifying {
        let abstains = self.executes && self.executor.abstains();
        Verifying { verifies: self.record().is_some(), abstains }
    }

    /// What counts as executed here.
    pub(super) fn executed(&self) -> VerifiedProgress {
        let stable = self.stable();
        VerifiedProgress { stable, reached: self.folded().min(self.executor.agreed().number).max(stable) }
    }

    /// The newest batch that was folded, or else the stable one.
    fn folded(&self) -> u64 {
        let last = self.folded_len().checked_sub(1).and_then(|last| self.unstable.get(last));
        last.map_or(self.stable(), |batch| batch.number)
    }

    /// How many of the unstable batches were folded: the oldest.
    fn folded_len(&self) -> usize {
        self.unstable.partition_point(|batch| batch.version.is_some())
    }

    /// How many batches the others have agreed on that were not folded here; 0 before this replica executes.
    fn behind(&self) -> u64 {
        if self.speculation.is_none() && !self.is_lent && self.rolling_back.is_none() {
            return 0;
        }
        self.executor.agreed().number.saturating_sub(self.folded())
    }

    /// Whether the state is that of the newest batch, without objects that are known to be wrong.
    fn is_whole(&self) -> bool {
        self.rolling_back.is_none() && self.repairing.is_none()
    }

    /// The scheduled batches that were not folded, oldest first.
    fn running(&self) -> Vec<Arc<RunningBatch>> {
        let running = self.unstable.range(self.folded_len()..);
        running.map(|batch| batch.running.clone()).collect()
    }

    /// As the primary of the view that is recorded: how many further processes may fail. `others` gives what is known
    /// of the others, of which some have what is recorded.
    pub(super) fn tolerance(
        &self,
        settings: &Settings,
        now_us: u64,
        others: impl FnOnce(verify::Slots) -> Vec<(u8, OtherProcess)>,
    ) -> Option<order::Tolerance> {
        let record = self.verifier.record()?;
        let leads = record.lineup.primary == settings.me && self.executor.view() == Some(record.view);
        if !leads || self.taking.is_some() {
            return None;
        }
        let is_sure = self.verifier.is_sure_of_peer(now_us);
        let is_changing = self.verifier.is_changing() || self.rolling_back.is_some() || !is_sure;
        let others = others(self.verifier.copies());
        Some(tolerance::of_view(layout(settings), settings.me, &others, is_changing))
    }

    /// Number of the newest batch that was scheduled, or else of the stable one.
    fn newest(&self) -> u64 {
        self.unstable.back().map_or(self.stable(), |batch| batch.number)
    }

    /// For an operator.
    pub(super) fn verification_status(&self, tally: &PastCounts) -> VerificationStatus {
        VerificationStatus {
            view: match self.executes {
                true => self.executor.view().unwrap_or(0),
                false => self.verifier.record().map_or(0, |record| record.view),
            },
            executors: self.verifier.record().map_or_else(Vec::new, |record| {
                record.lineup.executors.iter().map(|slot| slot + 1).collect()
            }),
            witness: !self.executes,
            unstable: self.unstable.len() as u64,
            behind: self.behind(),
            rollbacks: tally.rollbacks,
            states_taken: tally.states_taken,
            waits_for: self.waits_for(),
            verifies: self.verifier.record().is_some(),
        }
    }

    /// What the next batch waits for, beside its arrival.
    fn waits_for(&self) -> Option<String> {
        if !self.executes {
            None
        } else if let Some(awaited) = self.awaited_state() {
            Some(awaited.into())
        } else if self.rolling_back.is_some() {
            Some("until batches are taken back".into())
        } else if let Some(repaired) = self.repairing.as_ref().and_then(Repairing::waits_for) {
            Some(repaired.into())
        } else if let Some(wanted) = self.executor.wanted() {
            Some(format!("until this replica has the agreed state after batch {}", wanted.number))
        } else if self.executor.view().is_none() {
            Some("for a view".into())
        } else if self.behind() > verify::limits::WINDOW {
            Some(format!("until {} batches have run here that the others have agreed on", self.behind()))
        } else {
            (!self.may_deliver()).then(|| format!("until a batch up to {} is stable", self.newest()))
        }
    }

    /// The state of a replica that executes from the batch after `stable` on.
    pub(super) fn start(&mut self, speculation: Speculation, order: order::State, parts: TokenParts) {
        self.speculation = Some(speculation);
        (self.stable_order, self.stable_parts) = (order, parts);
    }

    /// What proves the stable state.
    fn stable_proof(&self) -> StateProof {
        StateProof { token: self.executor.stable().token, parts: self.stable_parts }
    }

    /// Whether the next batch may be delivered: fewer than a window are beyond the stable one, and none is being taken
    /// back. One that lags delivers no more than it runs soon: when a view begins, what runs is given up.
    pub(super) fn may_deliver(&self) -> bool {
        let is_due = match &self.repairing {
            Some(repairing) => repairing.may_run(self.newest()),
            None => self.executor.may_begin_after(self.newest()),
        };
        let bytes = self.speculation.as_ref().map_or(0, Speculation::bytes);
        let is_in_use = self.rolling_back.is_none() && self.taking.is_none();
        let running = self.unstable.len() - self.folded_len();
        let has_room = bytes < limits::UNSTABLE_BYTES && running < limits::RUNNING_BATCHES;
        is_due && has_room && is_in_use
    }

    /// Puts a message in the frames of its receivers. A frame that is full leaves at once.
    fn send<W: World>(&mut self, to: Recipients, message: &VerifyMessage, env: &mut Environment<W>) {
        let (me, layout) = (env.settings.me, layout(&env.settings));
        let processes = match to {
            Recipients::One(slot) => slot..slot.saturating_add(1),
            Recipients::Verifiers => 0..layout.verifiers(),
            Recipients::Executors => 0..layout.executors(),
        };
        for slot in processes {
            if slot == me {
                self.own_messages.waiting.push_back(message.clone());
            } else if let Some((body, messages)) = self.outgoing.get_mut(usize::from(slot)) {
                let from = body.len();
                message.encode(body);
                env.hooks.at(FaultPoint::VerifyMessage(message, &mut body[from..]));
                *messages += 1;
                if *messages == verify::limits::MESSAGES_PER_BODY {
                    env.send(slot, FrameKind::Verify, body, false);
                    body.clear();
                    *messages = 0;
                }
            }
        }
    }

    /// Sends a message of the own executor.
    fn send_of_executor<W: World>(
        &mut self,
        to: Recipients,
        message: &VerifyMessage,
        env: &mut Environment<W>,
    ) {
        if let VerifyMessage::Verify { view, version, parent, .. } = *message {
            env.world.see(Observation::Voted { view, version, parent });
        }
        self.send(to, message, env);
    }

    /// The end of a round: all messages to a peer share a frame.
    fn flush<W: World>(&mut self, env: &mut Environment<W>) {
        for (peer, (body, messages)) in self.outgoing.iter_mut().enumerate() {
            if *messages > 0 {
                env.send(peer as u8, FrameKind::Verify, body, false);
                body.clear();
                *messages = 0;
            }
        }
    }
}

/// The agreement with the stages of its replica that it acts on.
// large: where the decisions of both machines are performed on all that they act on
pub(super) struct Speculator<'r, S: Service, W: World> {
    stage: &'r mut Verified,
    core: &'r mut Core<S, W>,
}

impl<S: Service, W: World> Speculator<'_, S, W> {
    /// A frame of another process's machines.
    pub(super) fn on_verify_message(&mut self, from: u8, body: &[u8]) {
        match VerifyMessage::decode_all(body) {
            Ok(messages) => messages.into_iter().for_each(|message| self.receive_verify(from, message)),
            Err(error) => {
                let blame = order::Blame { peer: from, why: error.0 };
                self.core.group.on_dropped(blame, &mut self.core.env);
            }
        }
    }

    /// Gives a message to both machines.
    fn receive_verify(&mut self, from: Slot, message: VerifyMessage) {
        self.on_verifier_event(VerifierEvent::Message { from, message: message.clone() });
        self.on_executor_event(ExecutorEvent::Message { from, message });
    }

    /// Passes an event to the verifier and performs its commands.
    pub(super) fn on_verifier_event(&mut self, event: VerifierEvent) {
        let now_us = self.core.env.world.now_us();
        let stage = &mut *self.stage;
        let mut commands = Vec::new();
        stage.verifier.handle(event, now_us, &mut commands);
        commands.into_iter().for_each(|command| self.perform_of_verifier(command));
        self.receive_own();
    }

    /// Passes an event to the executor and performs its commands.
    fn on_executor_event(&mut self, event: ExecutorEvent) {
        if !self.stage.executes {
            return;
        }
        let now_us = self.core.env.world.now_us();
        let stage = &mut *self.stage;
        let mut commands = Vec::new();
        stage.executor.handle(event, now_us, &mut commands);
        if self.core.transfer.is_receiving() {
            stage.recorded.add(stage.executor.agreed());
        }
        commands.into_iter().for_each(|command| self.perform_of_executor(command));
        self.receive_own();
    }

    /// Handles the messages of this process to itself, one after the other: however many there are, the stack does not
    /// grow with them.
    fn receive_own(&mut self) {
        if std::mem::replace(&mut self.stage.own_messages.are_handled, true) {
            return;
        }
        let me = self.core.env.settings.me;
        while let Some(message) = self.stage.own_messages.waiting.pop_front() {
            self.receive_verify(me, message);
        }
        self.stage.own_messages.are_handled = false;
    }

    /// This replica asks for a view with another primary.
    pub(super) fn suspect_primary(&mut self) {
        self.on_verifier_event(VerifierEvent::Suspect(Reason::Late));
    }

    /// Time passes for both machines.
    pub(super) fn tick_verify(&mut self) {
        let (_, own_in_flight, _) = self.core.order.orderer.waiting();
        let now_us = self.core.env.world.now_us();
        let stage = &mut *self.stage;
        let is_level =
            stage.unstable.is_empty() && stage.rolling_back.is_none() && stage.executor.wanted().is_none();
        let executes = self.core.executor.running.is_some() && stage.taking.is_none();
        let waits = own_in_flight > 0 && is_level && executes;
        let primary = stage.verifier.record().map(|record| record.lineup.primary);
        let received_us = match primary {
            Some(primary) if primary == self.core.env.settings.me => now_us,
            primary => primary.map_or(0, |primary| self.core.group.received_us(primary)),
        };
        let stable = stage.stable();
        if stage.unserved.is_over(waits, stable, received_us, now_us) {
            self.suspect_primary();
        }
        self.record_memory_losses();
        self.on_verifier_event(VerifierEvent::Tick);
        self.on_executor_event(ExecutorEvent::Tick);
        self.end_abstention();
        if let Some(to) = self.repair().seek_again() {
            self.roll_back(RollingBack { to, view: None });
        }
        self.repair().tick();
        self.whole_state().ask();
        self.undecided().doubt_oneself();
    }

    /// An executor that came back abstains for some batches. If no client sends any, the primary orders some that only
    /// pass: until then the group would survive no further failure.
    fn end_abstention(&mut self) {
        let is_idle = self.stage.unstable.is_empty() && self.core.order.orderer.waiting().1 == 0;
        let leads = self.core.order.orderer.engine_status().is_leader;
        let goes_on = matches!(layout(&self.core.env.settings), Layout::Crash { .. });
        if goes_on && leads && is_idle && self.core.group.is_any_abstaining(self.core.env.world.now_us()) {
            self.core.order.submit_control(&Control::PASS_TIME);
        }
    }
}
