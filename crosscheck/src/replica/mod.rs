//! The order thread of one replica: it owns the ordering engine, the peers' sockets and the voter, and moves every
//! request along the path `Decode → Order → Schedule → Execute → Vote → Externalize`.

mod calls;
mod clocks;
mod execution;
mod group;
mod pending;
mod refusals;
mod schedule_stage;
mod solo;
pub mod stepped;
mod stepped_workers;
mod vote_stage;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use mio::{Events, Token};
use object::SealedQueue;
use order::{OrderEngine, Orderer};
use vote::{Place, Voter};

use crate::admin::ReplicaPhase;
use crate::admin_server::Call;
use crate::archive::Archive;
use crate::clients::thread::ThreadAnswer;
use crate::clients::{self, ClientSide, Reply, ReplyTo, Submission};
use crate::clock::GroupClock;
use crate::hooks::{self, Hooks};
use crate::job::Runs;
use crate::mailbox::Mailbox;
use crate::peers::probe::Probe;
use crate::peers::{PeerEvent, Peers};
use crate::self_check::{self, Check};
use crate::service::{ClientCounters, Service};
use crate::settings::{Durability, Mode, Settings};
use crate::state::Base;
use crate::transfer::{Donor, Receiver};
use crate::worker::Report;
use crate::world::{Lockstep, Os, World};
use crate::{Corrupted, ReplaceReason, ServeError, Stop, limits};
use execution::Execution;
use group::Group;
use pending::{PendingReplies, PendingReply, Recipient};
pub(crate) use solo::{Judged, Watchdog, WatchdogView};
pub(crate) use stepped_workers::{SteppedWorker, SteppedWorkers};

/// The one token of the order thread's poll that is no socket's.
pub(crate) const MAILBOX: Token = Token(0);

/// What other threads leave for the order thread.
pub(crate) enum Input {
    /// Requests of this replica's clients.
    Submissions(Vec<Submission>),
    /// What a worker has to say.
    Report(Report),
    /// An admin command.
    Call(Call),
    /// The state after this log index rests on disk, or cannot.
    Kept {
        /// Log index of the checkpoint.
        index: u64,
        /// What the disk said.
        result: Result<(), crate::snapshot::SnapshotError>,
    },
    /// Stop cleanly.
    Stop,
}

/// One replica, as its order thread sees it.
pub(crate) struct Replica<S: Service, E, W: World = Os> {
    settings: Settings,
    world: W,
    mailbox: Mailbox<Input>,
    lockstep: Lockstep,
    orderer: Orderer<E>,
    peers: Peers<W::Net>,
    group: Group,
    clock: GroupClock,
    phase: ReplicaPhase,
    /// The service until its workers start.
    service: Option<S>,
    /// What the service's state is as of, when it was read from disk.
    base: Option<Base<S>>,
    execution: Option<Execution<S>>,
    voter: Option<Voter>,
    commands: Vec<vote::Command>,
    /// Where replies go, once this replica serves clients.
    front: Option<Frontend>,
    clients_driven: clients::Driven,
    /// Starts serving clients once this replica takes part.
    open_clients: Option<OpenClients<W>>,
    counters: Arc<ClientCounters>,
    /// Own requests in the order in which they were submitted, which is the order of their delivery.
    pending: PendingReplies,
    /// Own requests that the orderer had no room for yet, under the numbers that they got when they were decoded.
    waiting: SealedQueue<Submission>,
    /// Empty; requests of clients served on this thread pass through it.
    submissions: Vec<Submission>,
    /// Empty; what other threads leave passes through it.
    inputs: Vec<Input>,
    next_tick_us: u64,
    /// Replies that are due for own batches that are executed or voted on.
    owed: BTreeMap<u64, Vec<PendingReply>>,
    /// Bit per replica whose clients wait for what was executed in this round.
    awaited_by: u16,
    donor: Donor,
    receiver: Option<Receiver>,
    calls: calls::Calls,
    /// Of the last batches: how they were run.
    runs: BTreeMap<u64, Runs>,
    evidence: Archive,
    /// What the objects are called that were last in question.
    names: crate::naming::Names,
    /// Classes with large objects, each with the message to the operator.
    large: std::collections::BTreeMap<&'static str, String>,
    refusals: refusals::Refusals,
    waits: waits::Waits,
    tally: PastCounts,
    outcome: Option<Result<Stop, ServeError>>,
    /// Empty; what a single worker has to say passes through it.
    reports: Vec<Report>,
    /// There is more to execute than was executed: no time to sleep.
    is_busy: bool,
    /// What was executed last took so long that a message should not have waited for it.
    is_slow: bool,
    pulse: Arc<WatchdogView>,
    /// Batches up to this log index are executed without a watchdog: the last processes of this replica ended at one.
    unwatched: u64,
    /// Tells this life of the process from earlier ones.
    life: u64,
    hooks: hooks::Active,
}

/// The client side.
pub(crate) enum Frontend {
    /// On a thread of its own, which takes answers here.
    Thread(Mailbox<ThreadAnswer>),
    /// On the order thread, in a replica with one worker.
    Here(Box<dyn ClientSide>),
}

impl Frontend {
    /// The clients, if this thread serves them.
    fn here(&mut self) -> Option<&mut dyn ClientSide> {
        match self {
            Frontend::Here(clients) => Some(&mut **clients),
            Frontend::Thread(_) => None,
        }
    }

    /// `None` if no correct reply can be had.
    fn answer(&mut self, to: ReplyTo, reply: Option<Reply>) {
        match (self, reply) {
            (Frontend::Here(clients), reply) => clients.answer(to, reply),
            (Frontend::Thread(answers), Some(reply)) => answers.send(ThreadAnswer::Reply(to, reply)),
            (Frontend::Thread(answers), None) => answers.send(ThreadAnswer::Drop(to)),
        }
    }
}

/// How a replica ended.
pub(crate) type Ended = Result<Stop, ServeError>;

/// Opens the client side; the order thread's world, with its poll, is offered.
pub(crate) type OpenClients<W> = Box<dyn FnOnce(&W) -> io::Result<Frontend> + Send>;

/// What joins a replica to everything else.
struct Environment<W: World> {
    world: W,
    mailbox: Mailbox<Input>,
    lockstep: Lockstep,
    peers: Peers<W::Net>,
}

/// What `status` tells of the past.
#[derive(Debug, Default)]
struct PastCounts {
    requests: u64,
    executed: u64,
    mismatches: u64,
    repairs: u64,
    failed_checks: u64,
    dropped_frames: u64,
    held: BTreeSet<Place>,
    last_repair_us: u64,
    /// When this replica heard that it was wrong at a place.
    verdicts_us: BTreeMap<Place, u64>,
    /// The same, by the place at which the repair has its turn.
    repairing_us: BTreeMap<Place, u64>,
}

/// Randomness for the stamps of the batches that this replica leads: an input of the order, never a decision.
pub(crate) fn seed() -> u64 {
    crate::world::wall_us().rotate_left(20) ^ u64::from(std::process::id())
}

/// The consensus engine over its log, whose state the pipeline has up to `applied`.
pub(crate) fn raft<L: order::LogStore>(
    settings: &Settings,
    log: L,
    records: Vec<order::Record>,
    applied: u64,
) -> Result<order::RaftEngine<L>, order::LogError> {
    let replicas = settings.peers.len() as u8;
    let ticks = |time: Duration| (time.as_micros() / limits::TICK.as_micros()).max(2) as usize;
    let mut config = order::RaftConfig::new(settings.me, replicas, seed(), seed().rotate_left(7));
    config.found = settings.begins || replicas == 1;
    config.election_ticks =
        (ticks(settings.election.0), ticks(settings.election.1).max(ticks(settings.election.0) + 1));
    order::RaftEngine::new(config, log, records, applied)
}

impl<S: Service, E: OrderEngine> Replica<S, E> {
    /// A replica whose sockets are open and which has yet to find its group.
    ///
    /// # Errors
    /// When a socket cannot be opened.
    pub(crate) fn new(
        settings: Settings,
        service: S,
        base: Option<Base<S>>,
        orderer: Orderer<E>,
        counters: Arc<ClientCounters>,
    ) -> Result<Self, ServeError> {
        let world = Os::new()?;
        let identity = settings.identity(None)?;
        let peers = Peers::bind(identity, settings.peers.clone(), world.poll.registry())?;
        let mailbox = world.mailbox();
        let ties = Environment { world, mailbox, lockstep: Lockstep::default(), peers };
        Ok(Replica::over(ties, settings, service, base, orderer, counters))
    }

    /// Asks the peers, for the watchdog, how far they are.
    ///
    /// # Errors
    /// Those of [`Settings::identity`].
    pub(crate) fn probe(&self) -> Result<Probe, ServeError> {
        Ok(Probe::new(self.settings.identity(None)?, self.settings.peers.clone()))
    }

    /// Batches up to this log index are executed without a watchdog.
    pub(crate) fn leave_unwatched(&mut self, index: u64) {
        self.unwatched = index;
    }

    /// Runs until it is told to stop, or cannot go on, and tells how it ended before anything is given back:
    /// a fault may have made of a lock something that can never be had again.
    pub(crate) fn run(mut self, open_clients: OpenClients<Os>, ended: &mpsc::Sender<Ended>) {
        self.open_clients = Some(open_clients);
        let mut events = Events::with_capacity(1024);
        let mut heard = Vec::new();
        while self.outcome.is_none() {
            let pause = self.pause();
            if let Err(error) = self.world.poll.poll(&mut events, Some(pause))
                && error.kind() != io::ErrorKind::Interrupted
            {
                self.stop_with(Err(error.into()));
                break;
            }
            self.pulse.beat();
            self.hear(&events, &mut heard);
            self.round(&mut heard);
            self.pulse.beat();
        }
        // From here on the pulse is a long one: should even the telling hang, the watchdog knows.
        self.pulse.beat();
        let unknown = || Ok(Stop::Replace(ReplaceReason::Corrupted(Corrupted::MainLoop)));
        // Nobody hears of it when the process is already on its way out.
        let _ = ended.send(self.outcome.take().unwrap_or_else(unknown));
        self.close();
    }

    fn hear(&mut self, events: &Events, heard: &mut Vec<PeerEvent>) {
        self.listen();
        for event in events.iter().filter(|event| event.token() != MAILBOX) {
            if event.token().0 >= clients::FIRST_TOKEN {
                if let Some(clients) = self.front.as_mut().and_then(Frontend::here) {
                    clients.on_event(event, &mut self.submissions);
                }
                continue;
            }
            let (readable, writable) = (event.is_readable() || event.is_read_closed(), event.is_writable());
            self.peers.on_event(event.token(), readable, writable, heard);
        }
        if let Some(clients) = self.front.as_mut().and_then(Frontend::here) {
            clients.read_on(&mut self.submissions);
            self.submissions.drain(..).for_each(|one| self.waiting.push_as(one.number, one));
        }
        self.on_peer_events(heard);
    }
}

impl<S: Service, E: OrderEngine, W: World> Replica<S, E, W> {
    fn over(
        ties: Environment<W>,
        settings: Settings,
        service: S,
        base: Option<Base<S>>,
        orderer: Orderer<E>,
        counters: Arc<ClientCounters>,
    ) -> Self {
        let Environment { world, mailbox, lockstep, mut peers } = ties;
        let (life, hooks) = (world.wall_us(), hooks::Active::default());
        peers.hooks = hooks.clone();
        Replica {
            clock: GroupClock::new(settings.me, settings.peers.len(), world.now_us(), life),
            group: Group::new(settings.peers.len(), orderer.standing().last_index),
            mailbox,
            lockstep,
            world,
            orderer,
            peers,
            phase: ReplicaPhase::Starting,
            service: Some(service),
            base,
            execution: None,
            voter: None,
            commands: Vec::new(),
            front: None,
            clients_driven: clients::Driven::default(),
            open_clients: None,
            counters,
            pending: PendingReplies::default(),
            waiting: SealedQueue::default(),
            submissions: Vec::new(),
            inputs: Vec::new(),
            next_tick_us: 0,
            owed: BTreeMap::new(),
            awaited_by: 0,
            donor: Donor::default(),
            receiver: None,
            calls: calls::Calls::default(),
            runs: BTreeMap::new(),
            evidence: Archive::default(),
            names: crate::naming::Names::default(),
            large: std::collections::BTreeMap::new(),
            refusals: refusals::Refusals::default(),
            waits: waits::Waits::default(),
            tally: PastCounts::default(),
            outcome: None,
            reports: Vec::new(),
            is_busy: false,
            is_slow: false,
            pulse: Arc::default(),
            unwatched: 0,
            life,
            hooks,
            settings,
        }
    }

    /// Where other threads leave their input.
    pub(crate) fn mailbox(&self) -> Mailbox<Input> {
        self.mailbox.clone()
    }

    /// Shows when the order thread is inside handlers.
    pub(crate) fn pulse(&self) -> Arc<WatchdogView> {
        self.pulse.clone()
    }

    /// One look at everything that was left for this thread since the last, after which all that can move has moved.
    fn round(&mut self, heard: &mut Vec<PeerEvent>) {
        let mut inputs = std::mem::take(&mut self.inputs);
        self.mailbox.take(&mut inputs);
        inputs.drain(..).for_each(|input| self.on_input(input));
        self.inputs = inputs;
        if self.world.now_us() >= self.next_tick_us {
            self.next_tick_us = self.world.now_us() + limits::TICK.as_micros() as u64;
            self.on_tick();
        }
        self.advance(heard);
    }

    /// Before the peers are heard: who is missing is dialled.
    fn listen(&mut self) {
        let now_us = self.world.now_us();
        self.group.mind_own_lateness(now_us);
        self.peers.dial(now_us);
        self.peers.pace.slowest_ms = self.pulse.slowest_ms();
    }

    /// Which stamps can be right by now, which is after the frames to be judged were read: this process may
    /// have been stopped before it read them, and their stamps would be ahead of any time that was taken
    /// earlier.
    fn accept_stamps(&mut self) {
        if self.hooks.trusts_any_clock() {
            return self.orderer.accept_stamps(u64::MAX);
        }
        self.orderer.accept_stamps(self.clock.latest_us(self.world.now_us()));
    }

    /// What this replica stamps with, if it leads.
    fn stamp_us(&self) -> u64 {
        let now_us = self.world.now_us();
        if self.hooks.trusts_any_clock() {
            return self.clock.now_us(now_us);
        }
        self.clock.stamp_us(now_us)
    }

    fn pause(&self) -> Duration {
        let has_unread = matches!(&self.front, Some(Frontend::Here(clients)) if clients.has_unread());
        if self.is_busy || has_unread {
            return Duration::ZERO;
        }
        let now_us = self.world.now_us();
        let tick = Duration::from_micros(self.next_tick_us.saturating_sub(now_us));
        self.peers.next_dial(now_us).map_or(tick, |dial| dial.min(tick)).min(limits::IDLE)
    }

    /// One round: everything that can move moves, and every socket is written once.
    fn advance(&mut self, heard: &mut Vec<PeerEvent>) {
        self.submit_waiting();
        let stamp_us = self.stamp_us();
        self.orderer.pump(stamp_us);
        self.perform_outputs();
        if matches!(self.settings.durability, Durability::Memory) {
            // Nothing to wait for: what follows leaves in the same write.
            self.persist();
        }
        self.serve_when_led();
        if self.is_slow {
            // The others need not wait until the handlers have run.
            self.peers.flush(heard);
        }
        self.execute_and_vote(heard);
        if self.orderer.needs_persist() {
            // The peers have the entries while they are synced here.
            self.persist();
            self.execute_and_vote(heard);
        }
        self.on_peer_events(heard);
        if let Some(clients) = self.front.as_mut().and_then(Frontend::here) {
            clients.flush();
        }
        // Batches that were executed in this round make room for those that wait.
        let (collected, in_flight, _) = self.orderer.waiting();
        self.is_busy |= collected > 0 && in_flight < order::limits::OWN_EAGER;
    }

    /// What is in order runs, and what came of it is on its way to the peers.
    fn execute_and_vote(&mut self, heard: &mut Vec<PeerEvent>) {
        self.execute();
        self.flush_votes();
        self.peers.flush(heard);
    }

    fn persist(&mut self) {
        if self.orderer.needs_persist() {
            // A disk takes as long as it takes: that is no loop without an end.
            self.pulse.beat();
            self.orderer.persist();
            self.pulse.beat();
            self.perform_outputs();
        }
    }

    fn on_input(&mut self, input: Input) {
        match input {
            Input::Submissions(submissions) => {
                submissions.into_iter().for_each(|one| self.waiting.push_as(one.number, one));
            }
            Input::Report(report) => self.on_report(report),
            Input::Call(call) => self.on_call(call),
            Input::Kept { index, result } => self.on_kept(index, result),
            Input::Stop => self.stop_with(Ok(Stop::Asked)),
        }
    }

    /// Hands requests to the orderer as far as it has room.
    fn submit_waiting(&mut self) {
        while self.orderer.can_accept() {
            // A queue that thinks it is longer than it is gives what it gave before, and all replicas would
            // agree to run it again.
            let next = self.hooks.next_waiting(&mut self.waiting);
            let Ok(next) = next else { return self.replace(Corrupted::RequestQueue) };
            let Some(Submission { to, request, .. }) = next else { return };
            if self.hooks.submits_twice() {
                self.submit(request.clone(), Recipient::Nobody);
            }
            let request = self.hooks.on_submit(request);
            self.submit(request, Recipient::Client(to));
        }
    }

    fn submit(&mut self, request: order::Request, owner: Recipient) {
        let cost = owner.client().map_or(request.bytes.len(), |to| to.cost as usize);
        match self.orderer.submit_at_cost(request.bytes, request.checksum, self.pending.next_tag(), cost) {
            Ok(()) => self.pending.push(owner),
            Err(_) => self.drop_reply(owner),
        }
    }

    /// Puts a frame on its way with the next flush. A `deferrable` frame waits for company, unless so few
    /// replicas are there that somebody may wait for this one after all.
    fn send(&mut self, to: u8, kind: order::FrameKind, body: &[u8], deferrable: bool) {
        if deferrable && !self.execution.as_ref().is_some_and(Execution::is_alone) {
            self.peers.send_deferred(to, kind, &[body]);
        } else {
            self.peers.send(to, kind, &[body]);
        }
    }

    /// Gives one of the pipeline's own requests a position.
    fn submit_control(&mut self, control: &crate::ordered::Control) {
        self.submit(crate::ordered::summed(control.encode()), Recipient::Nobody);
    }

    fn on_tick(&mut self) {
        self.orderer.tick();
        self.counters.committed.store(self.orderer.standing().commit_index, Ordering::Relaxed);
        self.counters.validated.store(self.validated(), Ordering::Relaxed);
        if let Some(clients) = self.front.as_mut().and_then(Frontend::here) {
            clients.tick(&mut self.submissions);
            self.submissions.drain(..).for_each(|one| self.waiting.push_as(one.number, one));
        }
        self.peers.tick();
        self.poll_transfer();
        self.greet();
        self.say_what_is_waited_for();
        self.compact();
        self.scrub();
        self.watch();
        self.check_oneself();
        let now_us = self.world.now_us();
        if let Some(voter) = &mut self.voter {
            voter.handle(vote::Event::Tick, now_us, &mut self.commands);
            self.perform_commands();
        }
    }

    /// Last batch up to which the vote is closed; without votes, that has run.
    fn validated(&self) -> u64 {
        self.voter.as_ref().map_or(self.tally.executed, vote::Voter::validated)
    }

    /// What is not an object, and no vote can have repaired: what computes everybody's checksums, what this
    /// replica knows of itself, the service's settings, the program. Once that is wrong, the replica is wrong
    /// again and again, however often it is repaired.
    fn check_oneself(&mut self) {
        // Every check is made at every tick: some go on with what they looked at last.
        for check in self_check::at_tick() {
            if !self.holds(check) {
                self.replace(check.corrupted());
            }
        }
    }

    /// Whether what this check of `self_check::GUARDS` covers is as it should be.
    fn holds(&mut self, check: Check) -> bool {
        let Mode { guarded, crosschecked, .. } = self.settings.mode;
        // Something outside may change all replicas' programs at about the same time (a probe that is set on
        // all hosts). The votes cover for this one until the others are there to fill it.
        let can_wait = || !guarded || !self.group.hears_all(self.settings.me, self.world.now_us());
        let execution = self.execution.as_ref();
        match check {
            Check::Checksums => !guarded || object::checksums_are_sound(),
            Check::Digests => !crosschecked || vote::digest::is_sound(),
            Check::Peers => self.peers.is_sound(self.settings.me, &self.settings.peers),
            Check::ClientsDriven => self.clients_driven.looks_so(&self.counters),
            Check::Clients => self.counters.own_faults.load(Ordering::Relaxed) == 0,
            Check::ServiceSettings => {
                can_wait() || execution.is_none_or(|execution| execution.service.is_sound())
            }
            Check::Program => can_wait() || self.world.program_is_sound(),
            Check::Schedule => execution.is_none_or(|execution| !execution.is_corrupted()),
            Check::RequestQueue => self.waiting.is_intact(),
            Check::PendingReplies => self.pending.is_intact(),
        }
    }

    /// The end of the path: a reply that passed the vote goes to its connection, with the digest that was voted on.
    fn externalize(
        &mut self,
        PendingReply { owner, asked }: PendingReply,
        bytes: Bytes,
        voted: Option<u128>,
    ) {
        self.answer(owner, Some(Reply { asked, bytes, voted }));
    }

    /// No correct reply can be had: the client's connection is closed.
    fn drop_reply(&mut self, owner: Recipient) {
        self.answer(owner, None);
    }

    fn answer(&mut self, owner: Recipient, reply: Option<Reply>) {
        if let (Recipient::Client(to), Some(front)) = (owner, &mut self.front) {
            front.answer(to, reply);
        }
    }

    /// Corrupted state that is no object has one remedy: the next incarnation.
    fn replace(&mut self, corrupted: Corrupted) {
        self.stop_with(Ok(Stop::Replace(ReplaceReason::Corrupted(corrupted))));
    }

    fn stop_with(&mut self, outcome: Result<Stop, ServeError>) {
        if self.outcome.is_none() {
            self.outcome = Some(outcome);
        }
    }

    fn close(mut self) {
        self.phase = ReplicaPhase::Stopping;
        if let Some(Frontend::Thread(answers)) = self.front.take() {
            answers.send(ThreadAnswer::Stop);
        }
        drop(self.execution.take());
    }
}
