//! A replica that a simulation steps: the shipped pipeline without a thread, a socket or a clock of its own. The
//! simulation decides with one seed when each event happens.

#[cfg(feature = "inject")]
mod faults;

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use mio::Token;
use order::{EngineStatus, LogStore, Orderer, PrimaryConfig, PrimaryEngine, RaftConfig, RaftEngine, Record};
pub use vote::limits::Occupancy;

use super::agree::AgreementMarks;
use super::environment::Environment;
use super::execution::Execution;
use super::{Engine, Frontend, Input, Judged, Replica, Watchdog};
use crate::admin::{AdminCommand, Status};
use crate::admin_server::Call;
pub use crate::clients::ReplyTo;
use crate::clients::thread::ThreadInput;
use crate::hooks::{Hooks, Rule};
use crate::mailbox::Mailbox;
pub use crate::peers::Net;
pub use crate::peers::probe::PeerProgress;
use crate::peers::{Identity, PeerEvent, Peers};
use crate::snapshot::Saved;
pub use crate::state_writer::{StateSink, WriteEnd};
pub use crate::traced::{StartedRequest, TracedRun};
pub use crate::world::{Observation, World};
use crate::{ClientCounters, ServeError, Service, Settings, Stop, clients, limits, state};

/// The initial data of one process of a replica.
pub struct Startup {
    /// The configuration of its ordering engine; the simulation sets the seed and the nonce.
    pub engine: RaftConfig,
    /// In verified mode: counts the processes of this replica, from 1.
    pub incarnation: u32,
    /// The store of its log.
    pub log: Box<dyn LogStore>,
    /// The records of the log when it was opened.
    pub records: Vec<Record>,
    /// The state of the last checkpoint, if it is on a disk ([`crate::snapshot`]).
    pub state: Option<Saved>,
}

/// The readiness of one stream of this replica.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The token that the stream was registered under.
    pub token: Token,
    /// There are bytes to read, or the end of the stream.
    pub readable: bool,
    /// It accepts bytes.
    pub writable: bool,
}

/// How far a replica has come in ordering, in executing, and with states ([`Stepped::marks`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Of its ordering engine.
    pub engine_status: EngineStatus,
    /// The last batch that was executed.
    pub executed: u64,
    /// Log index of the state that can be fetched from it.
    pub offered: Option<u64>,
    /// Pieces that have arrived of a state that it fetches, and all pieces of it.
    pub arrived: Option<(usize, usize)>,
    /// Session of the copy of the state that is being made here in parts, and its parts so far.
    pub copied: Option<(u64, u32)>,
    /// In verified mode: the executors of the view that its verifier knows, a bit for each.
    pub executors: u16,
    /// In verified mode: its verifier knows a later view than the one that its executor follows.
    pub has_promised: bool,
}

/// The token of connections that others open ([`Net::accept`]).
pub const LISTENER: Token = Token(crate::peers::FIRST_TOKEN);

/// One replica, stepped from outside: its workers too, one at a time. Dropping it is a crash.
pub struct Stepped<S: Service, W: World> {
    replica: Replica<S, W>,
    /// Receives the input that other threads would send.
    mailbox: Mailbox<Input>,
    answers: Mailbox<ThreadInput>,
    /// Checksums of the waiting requests, as a connection would keep them.
    request_checksums: BTreeMap<(u32, u32, u64), u32>,
    /// The number of client requests so far.
    submitted: u64,
    last: Option<clients::Submission>,
    received: Vec<PeerEvent>,
    watchdog: Watchdog,
    /// Last batch that was executed before the last step.
    executed_before: u64,
}

impl<S: Service, W: World> Stepped<S, W> {
    /// A replica that has not found its group yet. The addresses in `settings` are unused.
    ///
    /// # Errors
    /// When the log cannot be used.
    pub fn new(
        settings: Settings,
        service: S,
        world: W,
        net: W::Net,
        birth: Startup,
    ) -> Result<Self, ServeError> {
        // panics: a simulation that is set up wrongly
        assert!(
            settings.is_solo() || settings.mode.deterministic || settings.mode.verified,
            "ordinary locks come in the order of the threads"
        );
        let (me, replicas) = (settings.me, settings.peers.len());
        let ordering = settings.ordering();
        let verified = settings.mode.verified;
        let config = order::Config::new(me, ordering, birth.engine.seed);
        let config = order::Config { rewinds: verified, streams: verified, ..config };
        let mut service = service;
        let load = |saved: Saved| state::load_saved(&mut service, saved).map_err(ServeError::BadState);
        let base = birth.state.map(load).transpose()?;
        let order_state =
            base.as_ref().map_or_else(order::State::default, |((head, _), _)| head.order.clone());
        let seed = birth.engine.seed;
        let lockstep = crate::world::Lockstep::strict(settings.workers, seed);
        let engine = if verified {
            let config =
                PrimaryConfig { slot: me, replicas: ordering, incarnation: birth.incarnation, start: 1 };
            let engine = PrimaryEngine::new(config, order_state.index).with_scale(birth.engine.scale);
            Engine::Primary(Box::new(engine))
        } else {
            let engine = RaftEngine::new(birth.engine, birth.log, birth.records, order_state.index)?;
            Engine::Raft(Box::new(engine))
        };
        let orderer = Orderer::new(config, engine, order_state);
        let peers = Peers::over(Identity::of(&settings, Some(seed))?, replicas, net);
        let watchdog = settings.watchdog;
        let env = Environment::new(settings, world, Mailbox::silent(), lockstep, peers);
        let counters = Arc::new(ClientCounters::default());
        let mut replica = Replica::over(env, service, base, orderer, counters);
        // A step lasts until the next one begins: the simulated duration of the step passes between them.
        replica.core.executor.watchdog_view.begin_or_end_work();
        let answers = Mailbox::silent();
        let front = answers.clone();
        replica.core.clients.open_with(Box::new(move |_| Ok(Frontend::Threads(vec![front]))));
        Ok(Stepped {
            watchdog: Watchdog::new(replica.watchdog_view(), watchdog, 0),
            executed_before: 0,
            mailbox: replica.mailbox(),
            replica,
            answers,
            request_checksums: BTreeMap::new(),
            submitted: 0,
            last: None,
            received: Vec::new(),
        })
    }

    /// One round of the order thread, which first handles the streams that are `ready`. Call it when
    /// [`Stepped::is_busy`], when a stream is ready, after [`Stepped::submit`] and [`Stepped::call`], and else every
    /// `limits::IDLE`. While time passes, call [`Stepped::is_hung`].
    pub fn step(&mut self, ready: &[Ready]) {
        if self.replica.core.env.outcome().is_some() {
            return;
        }
        // The last step ends here, however long it took: another stretch of work begins.
        self.moves();
        self.executed_before = self.replica.core.executor.watchdog_view.executed();
        if let Some(workers) = self.replica.core.env.lockstep.stepped_workers() {
            workers.set_now(self.replica.core.env.world.now_us());
        }
        self.replica.listen();
        for Ready { token, readable, writable } in ready.iter().copied() {
            self.replica.core.env.peers.on_event(token, readable, writable, &mut self.received);
        }
        self.replica.on_peer_events(&mut self.received);
        self.replica.round(&mut self.received);
    }

    /// Records that the order thread was not in the same stretch of work since the last [`Stepped::is_hung`].
    pub fn moves(&self) {
        self.replica.core.executor.watchdog_view.begin_or_end_work();
        self.replica.core.executor.watchdog_view.begin_or_end_work();
    }

    /// A check of the watchdog's thread, every `limits::WATCH`: whether the replica is to be replaced. `others`
    /// requests the peers' progress, combined as by [`PeerProgress::of_others`].
    pub fn is_hung(&mut self, others: impl FnOnce() -> PeerProgress) -> bool {
        if !self.watchdog.is_hung() {
            return false;
        }
        let others = Some(others());
        let others = others.filter(|_| self.replica.core.env.hooks.keeps(Rule::AsksOthers));
        self.watchdog.judge(others, self.executed_before) == Judged::Hangs
    }

    /// The progress that a peer's watchdog receives on request.
    pub fn progress(&self) -> PeerProgress {
        PeerProgress {
            slowest_ms: self.replica.core.executor.watchdog_view.slowest_ms(),
            ..self.replica.core.env.peers.progress
        }
    }

    /// Whether there is work that can be done at once.
    pub fn is_busy(&self) -> bool {
        self.replica.core.executor.is_busy || !self.mailbox.is_empty()
    }

    /// Why it has stopped, once it has.
    pub fn outcome(&self) -> Option<&Result<Stop, ServeError>> {
        self.replica.core.env.outcome()
    }

    /// The incarnation of its process, which names of its clients' connections have.
    pub fn process(&self) -> u64 {
        self.replica.core.order.orderer.engine_status().incarnation.unwrap_or_default()
    }

    /// Whether clients are served.
    pub fn serves(&self) -> bool {
        self.replica.core.clients.are_served()
    }

    /// A client's request, in the service's encoding, as [`crate::Action::Order`] gives it.
    pub fn submit(&mut self, to: ReplyTo, request: Vec<u8>) {
        let request = crate::ordered::summed(request.into());
        self.request_checksums.insert((to.slot, to.generation, to.sequence), request.checksum);
        let submission = clients::Submission { number: self.submitted, to, request };
        self.submitted += 1;
        self.last = Some(submission.clone());
        self.mailbox.send(Input::Submissions(vec![submission]));
    }

    /// Takes the answers that left since the last call; `None` if there is no correct reply.
    pub fn take_answers(&mut self) -> Vec<(ReplyTo, Option<Bytes>)> {
        let mut answers = Vec::new();
        self.answers.take(&mut answers);
        let request_checksums = &mut self.request_checksums;
        let mut waited = |to: ReplyTo| request_checksums.remove(&(to.slot, to.generation, to.sequence));
        let answer = |answer| match answer {
            ThreadInput::Reply(to, reply) | ThreadInput::Owed(to, Some(reply)) => {
                let right = waited(to) == Some(reply.request_checksum);
                Some((to, right.then_some(reply.bytes)))
            }
            ThreadInput::Drop(to) | ThreadInput::Owed(to, None) => {
                waited(to);
                Some((to, None))
            }
            ThreadInput::Owe(_) | ThreadInput::Serve(_) | ThreadInput::Drain | ThreadInput::Stop => None,
        };
        answers.into_iter().filter_map(answer).collect()
    }

    /// An admin command; its answer comes once it is known.
    pub fn call(&mut self, command: AdminCommand) -> mpsc::Receiver<serde_json::Value> {
        let (answer, answered) = mpsc::channel();
        self.mailbox.send(Input::Call(Call { command, answer }));
        answered
    }

    /// Its answer to `crosscheck status`.
    pub fn status(&self) -> Status {
        self.replica.status()
    }

    /// How far it has come, for a simulation that strikes by progress; cheap to read at any time.
    pub fn marks(&self) -> Marks {
        let (offered, arrived) = self.replica.core.transfer.marks();
        let AgreementMarks { executors, has_promised } = self.replica.agreement.marks();
        Marks {
            engine_status: self.replica.core.order.orderer.engine_status(),
            executed: self.replica.core.executor.watchdog_view.executed(),
            offered,
            arrived,
            copied: self.replica.core.copies.marks(),
            executors,
            has_promised,
        }
    }

    /// A description of what is unfinished in the batches before `batch`: a vote, a reply to fetch, or any repair. None
    /// when all are finished.
    pub fn open_below(&self, batch: u64) -> Option<String> {
        self.replica.agreement.open_below(batch)
    }

    /// Its clock, in microseconds since 1970.
    pub fn clock_us(&self) -> u64 {
        self.replica.core.time.clock.now_us(self.replica.core.env.world.now_us())
    }

    /// How full this replica's queues and buffers are, with their bounds from the `limits` of each crate.
    pub fn loads(&self) -> Vec<Occupancy> {
        let replica = &self.replica;
        let (collected, in_flight, led) = replica.core.order.orderer.waiting();
        let in_execution = replica.core.executor.running.as_ref().map_or(0, Execution::in_flight);
        let load =
            |what, holds: usize, bound: usize| Occupancy { what, holds: holds as u64, bound: bound as u64 };
        let mut loads = vec![
            load("requests that wait for a batch", collected, order::limits::COLLECTED_REQUESTS),
            load("own batches in flight", in_flight, order::limits::OWN_IN_FLIGHT),
            load("batches that wait at the leader", led, order::limits::LEADER_QUEUE),
            load("batches in execution", in_execution, limits::ENTRIES_IN_EXECUTION),
            load(
                "requests that wait for the orderer",
                replica.core.order.waiting(),
                limits::OUTSTANDING_PER_CLIENT_THREAD * replica.core.clients.counters.threads().len(),
            ),
            load("evidence records", replica.core.env.evidence.len(), limits::EVIDENCE_KEPT),
            load("batches with known runs", replica.core.executor.runs_kept(), limits::RUNS_KEPT),
            load("unsent bytes of a peer", replica.core.env.peers.most_unsent(), limits::UNSENT_PER_PEER),
        ];
        loads.extend(
            replica.core.executor.running.iter().map(|execution| {
                load("bytes of long replies", execution.kept.bytes(), execution.kept.bound())
            }),
        );
        loads.extend(replica.agreement.loads());
        loads
    }

    /// The world that was given to [`Stepped::new`].
    pub fn world(&mut self) -> &mut W {
        &mut self.replica.core.env.world
    }
}
