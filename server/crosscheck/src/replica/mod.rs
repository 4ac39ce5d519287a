//! The order thread of one replica: it owns the ordering engine, the peers' sockets and the voter, and moves every
//! request along the path `Decode → Order → Schedule → Execute → Agree → Externalize` ([`Replica::round`]).

mod acting;
mod agree;
mod backups;
mod calls;
mod clocks;
mod copies;
mod copy_rate;
mod core;
mod departures;
mod digests;
mod disk_states;
mod disk_writer;
mod dispatch;
mod engine;
mod environment;
mod execute_stage;
mod execution;
mod frames;
mod group;
mod hardware;
mod housekeeping;
mod in_order;
mod input;
mod joining;
mod members;
mod moving;
mod on_call;
mod order_copy;
mod order_stage;
mod own_clients;
mod own_wishes;
mod pending;
mod refusals;
mod replica_sets;
mod rows;
mod schedule_stage;
mod scrubs;
mod settings;
mod sizing;
mod solo;
mod started_replies;
mod state_transfer;
mod status;
pub mod stepped;
mod stopping;
mod ticks;
mod tolerance;
mod waiting_clients;
mod waits;

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use mio::Events;
use order::Orderer;

use crate::admin::ReplicaPhase;
use crate::clients;
use crate::clock::GroupClock;
use crate::counters::ClientCounters;
use crate::hooks::{FaultPoint, Hooks};
use crate::mailbox::{MAILBOX, Mailbox};
use crate::peers::{Identity, PeerEvent, Peers};
use crate::service::Service;
use crate::settings::{Durability, Settings};
use crate::state::SavedBase;
use crate::world::{Lockstep, Os, World};
use crate::{Corrupted, ReplaceReason, ServeError, Stop, limits};
use acting::AskedBehavior;
use agree::Agreement;
use calls::Calls;
use clocks::Timekeeper;
use copies::Copies;
use copy_rate::CopyRate;
use core::Core;
pub(crate) use engine::{Engine, seed};
pub(crate) use environment::Ended;
use environment::Environment;
use execute_stage::ExecuteStage;
use group::Group;
use hardware::OwnFaults;
pub(crate) use input::Input;
use order_stage::OrderStage;
use own_clients::OwnClients;
pub(crate) use own_clients::{Frontend, OpenClients};
use own_wishes::OwnWishes;
use scrubs::Scrubs;
pub(crate) use solo::{Judged, Watchdog, WatchdogView};
use started_replies::StartedReplies;
use state_transfer::StateTransfer;
use stopping::Stopping;
use ticks::Ticks;
use waits::Waits;

/// One replica: the state of its order thread.
// large: the order thread, where the stages, which are types of their own, meet
pub(crate) struct Replica<S: Service, W: World = Os> {
    core: Core<S, W>,
    /// How it agrees with the others, chosen once.
    agreement: Box<dyn Agreement<S, W>>,
    copy_rate: CopyRate,
    waits: Waits,
    phase: ReplicaPhase,
    /// A buffer for the input of other threads, empty between rounds.
    inputs: Vec<Input>,
    next_tick_us: u64,
    /// Once it stops: how.
    stopping: Option<Stopping>,
    own_faults: OwnFaults,
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
        let mut peers = Peers::bind(identity, settings.peers.clone(), world.poll.registry())?;
        if let Durability::Disk(directory) = &settings.durability {
            peers.remember(directory);
        }
        let mailbox = world.mailbox();
        let env = Environment::new(settings, world, mailbox, Lockstep::default(), peers);
        moving::report_moved(&env, &[]);
        let mut replica = Replica::over(env, service, base, orderer, counters);
        replica.core.executor.unwatched = unwatched;
        Ok(replica)
    }

    /// Runs until it is asked to stop, or cannot continue. Reports how it ended before it releases anything: a fault
    /// may have corrupted a lock so that it can never be taken again.
    pub(crate) fn run(mut self, open_clients: OpenClients<Os>, ended: &mpsc::Sender<Ended>) {
        self.core.clients.open_with(open_clients);
        let mut events = Events::with_capacity(1024);
        let mut received = Vec::new();
        while self.core.env.outcome().is_none() {
            let pause = self.pause();
            if let Err(error) = self.core.env.world.poll.poll(&mut events, Some(pause))
                && error.kind() != io::ErrorKind::Interrupted
            {
                self.core.env.stop_with(Err(error.into()));
                break;
            }
            self.core.executor.watchdog_view.begin_or_end_work();
            self.receive(&events, &mut received);
            self.round(&mut received);
            self.core.executor.watchdog_view.begin_or_end_work();
        }
        // A long stretch of work begins here: if even the report hangs, the watchdog detects it.
        self.core.executor.watchdog_view.begin_or_end_work();
        let unknown = || Ok(Stop::Replace(ReplaceReason::Corrupted(Corrupted::MainLoop)));
        // There is no receiver if the process is already ending.
        let _ = ended.send(self.core.env.take_outcome().unwrap_or_else(unknown));
        self.core.clients.stop();
        drop(self.core.executor.running.take());
    }

    fn receive(&mut self, events: &Events, received: &mut Vec<PeerEvent>) {
        self.listen();
        for event in events.iter().filter(|event| event.token() != MAILBOX) {
            if event.token().0 >= clients::FIRST_TOKEN {
                self.core.clients.on_event(event);
                continue;
            }
            let (readable, writable) = (event.is_readable() || event.is_read_closed(), event.is_writable());
            self.core.env.peers.on_event(event.token(), readable, writable, received);
        }
        self.core.order.queue(self.core.clients.read_on());
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
        let last_index = orderer.engine_status().last_index;
        let core = Core {
            clients: OwnClients::new(counters.clone()),
            order: OrderStage::new(orderer, counters.threads().len()),
            executor: ExecuteStage::new(service, base),
            group: Group::new(me, (replicas, env.settings.executors()), incarnation, last_index),
            time: Timekeeper::new(GroupClock::new(me, replicas, env.world.now_us(), incarnation)),
            transfer: StateTransfer::default(),
            copies: Copies::default(),
            scrubs: Scrubs::default(),
            ticks: Ticks::default(),
            asked_behavior: AskedBehavior::default(),
            moving: OwnWishes::default(),
            sizing: OwnWishes::default(),
            departures: OwnWishes::default(),
            started_replies: StartedReplies::default(),
            calls: Calls::default(),
            own_settings: settings::OwnSettings::default(),
            env,
        };
        Replica {
            agreement: agree::choice::of(&core.env.settings, incarnation),
            core,
            copy_rate: CopyRate::default(),
            waits: Waits::default(),
            phase: ReplicaPhase::Starting,
            inputs: Vec::new(),
            next_tick_us: 0,
            stopping: None,
            own_faults: OwnFaults::default(),
        }
    }

    /// The mailbox for the input of other threads.
    pub(crate) fn mailbox(&self) -> Mailbox<Input> {
        self.core.env.mailbox.clone()
    }

    /// Replicas that are elsewhere from now on: the watchdog asks them from another thread.
    pub(crate) fn redirections(&mut self) -> mpsc::Receiver<crate::peers::probe::PlaceNews> {
        self.core.env.peers.redirections()
    }

    /// Shows the watchdog when the order thread is inside handlers.
    pub(crate) fn watchdog_view(&self) -> Arc<WatchdogView> {
        self.core.executor.watchdog_view.clone()
    }

    /// One round: the whole path of a request, in its order. What arrived since the last round is taken, every stage
    /// advances as far as it can, and every socket is written once.
    fn round(&mut self, received: &mut Vec<PeerEvent>) {
        self.take_inputs();
        // The sockets were polled a moment ago: no clock needs to be read again.
        let now_us = self.core.time.listened_us();
        if now_us >= self.next_tick_us {
            self.next_tick_us = now_us + limits::TICK.as_micros() as u64;
            self.on_tick();
        }
        self.submit_and_order();
        if self.core.executor.is_slow {
            // The peers need not wait until the handlers have run.
            self.core.env.peers.flush(received);
        }
        self.execute_and_agree(received);
        if self.core.order.orderer.needs_persist() {
            // The peers receive the entries while they are synced to disk here.
            self.persist();
            self.execute_and_agree(received);
        }
        self.core.order_copy();
        self.on_peer_events(received);
        self.core.answer_operators();
        self.core.clients.flush();
        // Batches that were executed in this round make room for waiting ones.
        self.core.executor.is_busy |= self.core.order.can_go_on();
    }

    /// Order: requests of own clients go to the leader, and what is ordered comes back.
    fn submit_and_order(&mut self) {
        let core = &mut self.core;
        let order = core.order.read_order();
        let reads = core.executor.running.as_ref();
        let reads = reads.and_then(|execution| self.agreement.sorts(execution, order));
        if let Err(what) = core.order.submit_waiting(&core.env.hooks, &mut core.clients, reads) {
            core.env.replace(what);
        }
        core.order.orderer.pump(core.time.stamp_us(&core.env));
        self.perform_outputs();
        if !self.core.env.settings.durability.is_disk() {
            // There is nothing to wait for: the frames of the following stages leave in the same write.
            self.persist();
        }
        self.replace_state();
        self.serve_when_led();
    }

    /// Schedule, execute, agree: ordered batches are scheduled and run as far as the workers have room, and the
    /// messages on their results leave.
    fn execute_and_agree(&mut self, received: &mut Vec<PeerEvent>) {
        self.schedule();
        self.agreement.run_reads(&mut self.core);
        if let Some(mut reports) = self.core.executor.run_slice(&self.core.env.world) {
            reports.drain(..).for_each(|report| self.on_report(report));
            self.core.executor.reports = reports;
            // What was handed over now runs in the next round.
            self.core.executor.is_busy |= self.agreement.run_reads(&mut self.core);
        }
        self.agreement.flush(&mut self.core);
        self.core.env.peers.flush(received);
    }

    /// Takes batches from the log as far as the workers have room.
    fn schedule(&mut self) {
        while self.core.executor.has_room()
            && !self.core.transfer.wants_unordered
            && !self.core.env.members.is_let_go()
            && self.agreement.may_deliver()
        {
            let Some(delivered) = self.core.order.orderer.poll_delivery() else { return };
            if self.core.env.hooks.at(FaultPoint::Delivered(&delivered, self.core.env.tally.executed)) {
                self.agreement.plan(delivered, &mut self.core);
            }
        }
    }

    /// Connects to missing peers, before frames are read.
    fn listen(&mut self) {
        let now_us = self.core.env.world.now_us();
        self.core.time.check_own_lateness(now_us);
        self.core.env.peers.dial(now_us);
        self.core.env.peers.progress.slowest_ms = self.core.executor.watchdog_view.slowest_ms();
    }

    fn pause(&self) -> Duration {
        if self.core.executor.is_busy || self.core.clients.have_unread() {
            return Duration::ZERO;
        }
        // A tick may be late by the time of one round: no clock needs to be read for it.
        let now_us = self.core.time.listened_us();
        let tick = Duration::from_micros(self.next_tick_us.saturating_sub(now_us));
        let copy = self
            .core
            .copies
            .due_us()
            .map_or(tick, |due_us| tick.min(Duration::from_micros(due_us.saturating_sub(now_us))));
        self.core.env.peers.next_dial(now_us).map_or(copy, |dial| dial.min(copy)).min(limits::IDLE)
    }

    fn persist(&mut self) {
        if self.core.order.orderer.needs_persist() {
            // A slow disk is not an endless loop.
            self.core.executor.watchdog_view.begin_or_end_work();
            self.core.order.orderer.persist();
            self.core.executor.watchdog_view.begin_or_end_work();
            self.perform_outputs();
        }
    }
}
