//! The order thread of one replica: it owns the ordering engine, the peers' sockets and the voter, and moves every
//! request along the path `Decode → Order → Schedule → Execute → Vote → Externalize`.

mod barrier;
mod calls;
mod clocks;
mod copies;
mod copy_rate;
mod digests;
mod disk_states;
mod disk_writer;
mod engine;
mod environment;
mod execute_stage;
mod execution;
mod group;
mod in_order;
mod joining;
mod order_stage;
mod own_clients;
mod pending;
mod refusals;
mod repairs;
mod schedule_stage;
mod scrubs;
mod solo;
mod speculate;
mod state_transfer;
pub mod stepped;
mod ticks;
mod tolerance;
mod vote_stage;
mod waits;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use mio::Events;
use order::Orderer;

use crate::admin::ReplicaPhase;
use crate::admin_server::Call;
use crate::clients::{self, Submission};
use crate::clock::GroupClock;
use crate::counters::ClientCounters;
use crate::mailbox::{MAILBOX, Mailbox};
use crate::peers::{Identity, PeerEvent, Peers};
use crate::self_check::{CHECKS, Check};
use crate::service::Service;
use crate::settings::{Mode, Settings};
use crate::state::SavedBase;
use crate::state_writer::WriteEnd;
use crate::worker::Report;
use crate::world::{Lockstep, Os, World};
use crate::{Corrupted, ReplaceReason, ServeError, Stop, limits};
use clocks::Timekeeper;
use copies::Copies;
use copy_rate::CopyRate;
pub(crate) use engine::Engine;
use environment::Environment;
use execute_stage::ExecuteStage;
use group::Group;
use order_stage::OrderStage;
use own_clients::OwnClients;
pub(crate) use own_clients::{Frontend, OpenClients};
use scrubs::Scrubs;
pub(crate) use solo::{Judged, Watchdog, WatchdogView};
use speculate::{SpeculateStage, Speculator};
use state_transfer::StateTransfer;
use tolerance::Tolerates;
use vote_stage::VoteStage;

/// Input that other threads pass to the order thread.
pub(crate) enum Input {
    /// Requests of this replica's clients.
    Submissions(Vec<Submission>),
    /// A worker's report.
    Report(Report),
    /// An admin command.
    Call(Call),
    /// The write of a state has ended.
    Kept {
        /// Number of the write.
        write: u64,
        /// How it ended.
        end: WriteEnd,
    },
    /// Stop cleanly.
    Stop,
}

/// One replica: the state of its order thread.
// large: the order thread, where the stages, which are types of their own, meet
pub(crate) struct Replica<S: Service, W: World = Os> {
    env: Environment<W>,
    order: OrderStage,
    clients: OwnClients<W>,
    executor: ExecuteStage<S>,
    votes: VoteStage,
    /// In verified mode.
    speculate: Option<SpeculateStage>,
    group: Group,
    time: Timekeeper,
    transfer: StateTransfer,
    copies: Copies,
    copy_rate: CopyRate,
    scrubs: Scrubs,
    ticks: ticks::Ticks,
    calls: calls::Calls,
    waits: waits::Waits,
    phase: ReplicaPhase,
    /// A buffer for the input of other threads, empty between rounds.
    inputs: Vec<Input>,
    next_tick_us: u64,
}

/// How a replica ended.
pub(crate) type Ended = Result<Stop, ServeError>;

/// Randomness for the stamps of the batches that this replica leads: an input of the order, never a decision.
pub(crate) fn seed() -> u64 {
    crate::world::wall_us().rotate_left(20) ^ u64::from(std::process::id())
}

impl<S: Service> Replica<S> {
    /// A replica whose sockets are open and which has not found its group yet. It executes batches up to log index
    /// `unwatched` without a watchdog.
    ///
    /// # Errors
    /// When a socket cannot be opened.
    pub(crate) fn new(
        settings: Settings,
        service: S,
        base: Option<SavedBase<S>>,
        orderer: Orderer<Engine>,
        counters: Arc<ClientCounters>,
        unwatched: u64,
    ) -> Result<Self, ServeError> {
        let world = Os::new()?;
        let identity = Identity::of(&settings, None)?;
        let peers = Peers::bind(identity, settings.peers.clone(), world.poll.registry())?;
        let mailbox = world.mailbox();
        let env = Environment::new(settings, world, mailbox, Lockstep::default(), peers);
        let mut replica = Replica::over(env, service, base, orderer, counters);
        replica.executor.unwatched = unwatched;
        Ok(replica)
    }

    /// Runs until it is asked to stop, or cannot continue. Reports how it ended before it releases anything: a fault
    /// may have corrupted a lock so that it can never be taken again.
    pub(crate) fn run(mut self, open_clients: OpenClients<Os>, ended: &mpsc::Sender<Ended>) {
        self.clients.open_with(open_clients);
        let mut events = Events::with_capacity(1024);
        let mut received = Vec::new();
        while self.env.outcome().is_none() {
            let pause = self.pause();
            if let Err(error) = self.env.world.poll.poll(&mut events, Some(pause))
                && error.kind() != io::ErrorKind::Interrupted
            {
                self.env.stop_with(Err(error.into()));
                break;
            }
            self.executor.watchdog_view.begin_or_end_work();
            self.receive(&events, &mut received);
            self.round(&mut received);
            self.executor.watchdog_view.begin_or_end_work();
        }
        // A long stretch of work begins here: if even the report hangs, the watchdog detects it.
        self.executor.watchdog_view.begin_or_end_work();
        let unknown = || Ok(Stop::Replace(ReplaceReason::Corrupted(Corrupted::MainLoop)));
        // There is no receiver if the process is already ending.
        let _ = ended.send(self.env.take_outcome().unwrap_or_else(unknown));
        self.clients.stop();
        drop(self.executor.running.take());
    }

    fn receive(&mut self, events: &Events, received: &mut Vec<PeerEvent>) {
        self.listen();
        for event in events.iter().filter(|event| event.token() != MAILBOX) {
            if event.token().0 >= clients::FIRST_TOKEN {
                self.clients.on_event(event);
                continue;
            }
            let (readable, writable) = (event.is_readable() || event.is_read_closed(), event.is_writable());
            self.env.peers.on_event(event.token(), readable, writable, received);
        }
        self.order.queue(self.clients.read_on());
        self.on_peer_events(received);
    }
}

impl<S: Service, W: World> Replica<S, W> {
    fn over(
        env: Environment<W>,
        service: S,
        base: Option<SavedBase<S>>,
        orderer: Orderer<Engine>,
        counters: Arc<ClientCounters>,
    ) -> Self {
        let (me, replicas) = (env.settings.me, env.settings.peers.len());
        let incarnation = env.world.wall_us();
        Replica {
            time: Timekeeper::new(GroupClock::new(me, replicas, env.world.now_us(), incarnation)),
            group: Group::new(
                me,
                (replicas, env.settings.executors()),
                incarnation,
                orderer.engine_status().last_index,
            ),
            order: OrderStage::new(orderer, counters.threads().len()),
            clients: OwnClients::new(counters),
            executor: ExecuteStage::new(service, base),
            votes: VoteStage::default(),
            speculate: env.settings.mode.verified.then(|| SpeculateStage::new(&env.settings, incarnation)),
            transfer: StateTransfer::default(),
            copies: Copies::default(),
            copy_rate: CopyRate::default(),
            scrubs: Scrubs::default(),
            ticks: ticks::Ticks::default(),
            calls: calls::Calls::default(),
            waits: waits::Waits::default(),
            phase: ReplicaPhase::Starting,
            inputs: Vec::new(),
            next_tick_us: 0,
            env,
        }
    }

    /// The mailbox for the input of other threads.
    pub(crate) fn mailbox(&self) -> Mailbox<Input> {
        self.env.mailbox.clone()
    }

    /// Shows the watchdog when the order thread is inside handlers.
    pub(crate) fn watchdog_view(&self) -> Arc<WatchdogView> {
        self.executor.watchdog_view.clone()
    }

    /// One round: takes all input that arrived since the last round, then advances every stage as far as possible.
    fn round(&mut self, received: &mut Vec<PeerEvent>) {
        let mut inputs = std::mem::take(&mut self.inputs);
        self.env.mailbox.take(&mut inputs);
        inputs.drain(..).for_each(|input| self.on_input(input));
        self.inputs = inputs;
        // The sockets were polled a moment ago: no clock needs to be read again.
        let now_us = self.time.listened_us();
        if now_us >= self.next_tick_us {
            self.next_tick_us = now_us + limits::TICK.as_micros() as u64;
            self.on_tick();
        }
        self.advance(received);
    }

    /// Connects to missing peers, before frames are read.
    fn listen(&mut self) {
        let now_us = self.env.world.now_us();
        self.time.check_own_lateness(now_us);
        self.env.peers.dial(now_us);
        self.env.peers.progress.slowest_ms = self.executor.watchdog_view.slowest_ms();
    }

    fn pause(&self) -> Duration {
        if self.executor.is_busy || self.clients.have_unread() {
            return Duration::ZERO;
        }
        // A tick may be late by the time of one round: no clock needs to be read for it.
        let now_us = self.time.listened_us();
        let tick = Duration::from_micros(self.next_tick_us.saturating_sub(now_us));
        let copy = self
            .copies
            .due_us()
            .map_or(tick, |due_us| tick.min(Duration::from_micros(due_us.saturating_sub(now_us))));
        self.env.peers.next_dial(now_us).map_or(copy, |dial| dial.min(copy)).min(limits::IDLE)
    }

    /// Advances every stage as far as possible, and writes every socket once.
    fn advance(&mut self, received: &mut Vec<PeerEvent>) {
        let running = self.executor.running.as_ref();
        let reads =
            self.speculate.as_mut().zip(running).and_then(|(stage, execution)| stage.sorts(execution));
        if let Err(what) = self.order.submit_waiting(&self.env.hooks, &mut self.clients, reads) {
            self.env.replace(what);
        }
        self.order.orderer.pump(self.time.stamp_us(&self.env));
        self.perform_outputs();
        if !self.env.settings.durability.is_disk() {
            // There is nothing to wait for: the frames of the following stages leave in the same write.
            self.persist();
        }
        self.replace_state();
        self.serve_when_led();
        if self.executor.is_slow {
            // The peers need not wait until the handlers have run.
            self.env.peers.flush(received);
        }
        self.execute_and_vote(received);
        if self.order.orderer.needs_persist() {
            // The peers receive the entries while they are synced to disk here.
            self.persist();
            self.execute_and_vote(received);
        }
        self.order_copy();
        self.on_peer_events(received);
        self.clients.flush();
        // Batches that were executed in this round make room for waiting ones.
        self.executor.is_busy |= self.order.can_go_on();
    }

    /// Executes ordered batches, and sends the votes on them to the peers.
    fn execute_and_vote(&mut self, received: &mut Vec<PeerEvent>) {
        self.execute();
        self.flush_votes();
        if let Some(mut speculator) = Speculator::of(self) {
            speculator.flush_verify();
        }
        self.env.peers.flush(received);
    }

    fn persist(&mut self) {
        if self.order.orderer.needs_persist() {
            // A slow disk is not an endless loop.
            self.executor.watchdog_view.begin_or_end_work();
            self.order.orderer.persist();
            self.executor.watchdog_view.begin_or_end_work();
            self.perform_outputs();
        }
    }

    fn on_input(&mut self, input: Input) {
        match input {
            Input::Submissions(submissions) => self.order.queue(submissions),
            Input::Report(report) => self.on_report(report),
            Input::Call(call) => self.on_call(call),
            Input::Kept { write, end } => self.on_kept(write, end),
            Input::Stop => self.env.stop_with(Ok(Stop::Asked)),
        }
    }

    fn on_tick(&mut self) {
        if !self.env.settings.is_witness() {
            self.order.orderer.tick();
        }
        let counters = &self.clients.counters;
        counters.committed.store(self.order.orderer.engine_status().commit_index, Ordering::Relaxed);
        counters
            .validated
            .store(validated(self.speculate.as_ref(), &self.votes, &self.env), Ordering::Relaxed);
        self.order.queue(self.clients.tick());
        self.env.peers.tick();
        self.transfer.poll(&mut self.env);
        // The disk may have room again.
        self.take_pieces();
        if self.executor.running.is_some() && !self.env.settings.mode.verified {
            let last_index = self.order.orderer.engine_status().last_index;
            self.transfer.prepare_if_behind(last_index, &mut self.env);
        }
        self.copy_rate.note(self.env.world.now_us(), || self.transfer.received());
        self.transfer.give_up_disagreed(&mut self.order, &self.env);
        self.send_heartbeats();
        let waits_for = waits_for(self);
        self.waits.report(waits_for, &self.env);
        self.tend_copies();
        let (is_executing, has_kept) = (self.executor.running.is_some(), self.copies.has_kept());
        self.transfer.compact(&mut self.order, &mut self.env, (is_executing, has_kept));
        self.pack_unordered();
        if let (Some(execution), true) = (&self.executor.running, self.votes.voter.is_some()) {
            self.scrubs.order_next(execution.locks(), &mut self.order, self.env.world.now_us());
        } else if let Some(execution) = &self.executor.running {
            let times_us = (self.time.stamp_us(&self.env), self.env.world.now_us());
            self.ticks.order_due(execution.first_deadline_us(), times_us, &mut self.order);
        }
        self.pass_barrier();
        self.watch();
        self.check_oneself();
        self.vote(vote::Event::Tick);
        if let Some(mut speculator) = Speculator::of(self) {
            speculator.tick_verify();
        }
        // A witness has no clients: it serves as soon as its verifier takes part.
        let record = self.speculate.as_ref().and_then(SpeculateStage::record);
        if self.env.settings.is_witness() && record.is_some() {
            self.phase = ReplicaPhase::Serving;
        }
    }

    /// Checks the state that is not an object and that no vote can have repaired: the computation of checksums, this
    /// replica's knowledge of itself, the service's settings, the program. Once any of them is wrong, the replica is
    /// wrong repeatedly, however often it is repaired.
    fn check_oneself(&mut self) {
        // Every check is made at every tick: some continue where their last run stopped.
        for (check, corrupted) in CHECKS {
            if !self.holds(check) {
                self.env.replace(corrupted);
            }
        }
    }

    /// Whether the state that this check covers is correct.
    fn holds(&mut self, check: Check) -> bool {
        let Mode { guarded, .. } = self.env.settings.mode;
        // A tool may change all replicas' programs at about the same time (a probe that is set on all hosts). The votes
        // mask this replica's errors until all others are connected and can fill it.
        let can_wait = || !guarded || !self.group.receives_all(self.env.world.now_us());
        let execution = self.executor.running.as_ref();
        match check {
            Check::Checksums => !guarded || object::checksums_are_right(),
            Check::Digests => !self.env.settings.mode.compares() || vote::digest::is_valid(),
            Check::Peers => self.env.peers.is_valid(self.env.settings.me, &self.env.settings.peers),
            Check::ClientsDriven => self.clients.are_driven(),
            Check::Clients => self.clients.counters.own_faults.load(Ordering::Relaxed) == 0,
            Check::ServiceSettings => {
                can_wait() || execution.is_none_or(|execution| execution.service.is_valid())
            }
            Check::Program => can_wait() || self.env.world.program_is_valid(),
            Check::Schedule => !self.executor.is_corrupted(),
            Check::RequestQueue => self.order.requests_are_intact(),
            Check::PendingReplies => self.order.replies_are_intact(),
        }
    }
}

/// What this replica waits for and cannot go on without, with the remedy.
fn waits_for<S: Service, W: World>(replica: &Replica<S, W>) -> Option<String> {
    let Replica { speculate, group, order, transfer, env, .. } = replica;
    let of_operator = speculate.as_ref().and_then(|stage| stage.waits_for_operator(group, env));
    waits::waits_for(order, (group, of_operator), transfer, env)
}

/// How many further replicas may fail, as far as this replica knows.
fn tolerates<S: Service, W: World>(replica: &Replica<S, W>) -> Tolerates {
    let Replica { group, env, .. } = replica;
    let replicas = env.settings.peers.len();
    if !env.settings.mode.replicated || replicas < 2 {
        return Tolerates { failures: 0, why: None, is_level: Some(true) };
    }
    let most = (replicas as u8 - 1).div_ceil(2);
    match (own_tolerance(replica), leader(replica)) {
        (Some(found), _) => Tolerates::of(&found, env.settings.me, most),
        (None, None) => Tolerates::unknown("there is no leader"),
        (None, leader) => match group.reported_tolerance(leader, env.world.now_us()) {
            Some(reported) => Tolerates::of(reported, env.settings.me, most),
            None => Tolerates::unknown("the leader is not heard"),
        },
    }
}

/// The leader that this replica follows, from 0; in verified mode the primary.
fn leader<S: Service, W: World>(replica: &Replica<S, W>) -> Option<u8> {
    match &replica.speculate {
        Some(stage) if replica.env.settings.is_witness() => {
            stage.record().map(|record| record.lineup.primary)
        }
        _ => replica.order.orderer.engine_status().leader,
    }
}

/// As the leader, in verified mode the primary: how many further replicas may fail.
fn own_tolerance<S: Service, W: World>(replica: &Replica<S, W>) -> Option<order::Tolerance> {
    let Replica { speculate, group, order, env, .. } = replica;
    match speculate {
        None => order.orderer.tolerance(),
        Some(stage) => {
            let now_us = env.world.now_us();
            stage.tolerance(&env.settings, now_us, |copies| group.of_view(copies, now_us))
        }
    }
}

/// Last batch up to which replies have left, or never will.
fn validated<W: World>(speculate: Option<&SpeculateStage>, votes: &VoteStage, env: &Environment<W>) -> u64 {
    speculate.map_or_else(|| votes.validated(env), SpeculateStage::stable)
}
