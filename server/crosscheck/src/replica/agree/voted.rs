//! Agreement by votes (CrossCheck): each replica's results go into the voter, which compares them with the others', and
//! its commands are performed.

mod read_message;
mod reads;
mod repairs;
mod repeats;

use std::collections::BTreeSet;

use bytes::Bytes;
use order::{Delivered, FrameKind};
use vote::limits::Occupancy;
use vote::{Command, Event, Message, Place, Reexecution, To, Voter};
use wire::ReplicaId;

use super::{Agreement, PeerNews, Progress, Watched, on_state_report};
use crate::admin::Status;
use crate::boundary::BoundaryDone;
use crate::hooks::{FaultPoint, Hooks, Rule};
use crate::ordered::Control;
use crate::replica::core::Core;
use crate::replica::environment::Environment;
use crate::replica::execute_stage::ExecuteStage;
use crate::replica::execution::Execution;
use crate::replica::members::Resized;
use crate::replica::order_stage::{ReadOrder, SortsReads};
use crate::running::Executed;
use crate::service::{Service, kind_in_words};
use crate::settings::Settings;
use crate::worker::Report;
use crate::world::{Observation, World};
use crate::{ReplaceReason, Stop, evidence, limits};
use read_message::ReadMessage;
use reads::CheckedReads;
use repairs::Repairs;
use repeats::{Repeated, Repeats};

/// The voter, and the state that its commands need.
#[derive(Default)]
pub(super) struct Voted {
    /// The voter, once this replica executes.
    voter: Option<Voter>,
    /// A buffer for the voter's commands, empty between events.
    commands: Vec<Command>,
    /// A bit per replica whose clients wait for a batch that was executed in this round.
    awaited_by: u16,
    /// Requests whose replies are held.
    held: BTreeSet<Place>,
    repairs: Repairs,
    repeats: Repeats,
    /// Reads that take no batch; none in a group in which they take one.
    reads: Option<CheckedReads>,
    /// The first batch on which this replica votes.
    votes_from: u64,
}

/// Where a worker waits for the objects of a RECOVER.
type Install = std::sync::mpsc::Sender<Vec<vote::Packed>>;

impl Voted {
    /// The agreement of a replica that has not found its group yet.
    pub(super) fn new(settings: &Settings) -> Self {
        let reads = || CheckedReads::new(settings.me, settings.peers.len() as u8);
        Voted { reads: settings.group_reads_locally().then(reads), ..Voted::default() }
    }

    /// Creates the voter of a replica that executes from batch `first_batch` on, with a service of so many `locks`.
    fn start<W: World>(&mut self, locks: u32, first_batch: u64, env: &Environment<W>) {
        let replicas = env.members.voting;
        self.reads.iter_mut().for_each(|reads| reads.resize(replicas));
        self.votes_from = first_batch;
        if env.is_observer() {
            self.voter = None;
            return;
        }
        let buffers = env.settings.buffer_limit;
        let config = vote::Config::new(replicas, env.settings.me, locks, first_batch)
            .with_window_bytes(buffers / 4)
            .with_kept_reply_bytes(buffers / 8)
            // Replies meet the bound of `KeptReplies` first.
            .with_owed_reply_bytes(buffers / 2 + vote::limits::LARGEST_BATCH_BYTES);
        #[cfg(feature = "lab")]
        let config = crate::lab::on_voter(config);
        self.voter = Some(Voter::new(config));
    }

    /// Last batch up to which the vote is closed; the last executed one before there is a voter.
    fn validated<W: World>(&self, env: &Environment<W>) -> u64 {
        self.voter.as_ref().map_or(env.tally.executed, Voter::validated)
    }

    /// Sends the voter's messages to its peers. Where this replica `is_alone`, a peer may wait for any of them.
    fn send<W: World>(&self, to: To, message: &Message, is_alone: bool, env: &mut Environment<W>) {
        let mut body = Vec::new();
        message.encode(&mut body);
        if !env.hooks.at(FaultPoint::VoteMessage(message, &mut body)) {
            return;
        }
        let kind = match message {
            Message::Repair { .. } => order::FrameKind::Repair,
            _ => order::FrameKind::Check,
        };
        match to {
            To::One(peer) => env.send(peer, kind, &body, false),
            To::All => {
                let me = env.settings.me;
                for peer in (0..env.settings.peers.len() as u8).filter(|peer| *peer != me) {
                    // A digest is urgent where a client waits for it; otherwise it leaves with the next frame to that
                    // peer.
                    let deferrable =
                        matches!(message, Message::Check { .. }) && self.awaited_by >> peer & 1 == 0;
                    env.send(peer, kind, &body, deferrable && !is_alone);
                }
            }
        }
    }

    /// No client gets the reply to `request`, which is the one at `place`: reports this, the reason, and the remedy.
    fn hold<W: World>(&mut self, place: Place, why: vote::Held, request: &str, env: &Environment<W>) {
        self.held.insert(place);
        match why {
            vote::Held::EverybodyStands => env.world.say(format_args!(
                "the reply to {request} is held: no f+1 replicas agree ({why}). {NOT_DETERMINISTIC} \
                    `crosscheck evidence` names the objects that differ. The client that waits for the reply gets none"
            )),
            vote::Held::TooFewLive | vote::Held::VoteLost => env
                .world
                .say(format_args!("the reply to {request} is held: no f+1 replicas agree ({why})")),
        }
    }

    fn on_evidence<S: Service, W: World>(
        &mut self,
        record: &vote::Evidence,
        executor: &ExecuteStage<S>,
        env: &mut Environment<W>,
    ) {
        env.tally.mismatches += 1;
        let void = executor.void(record);
        if record.replica == env.settings.me && void.is_none() {
            let place = Place::new(record.batch, record.request.unwrap_or_default());
            self.repairs.note_verdict(place, env.world.now_us());
        }
        let mut reported = match void {
            Some((origin, place)) => evidence::void(origin, place),
            None => evidence::record(record, kind_in_words::<S>(record.kind)),
        };
        // For a fault of another replica, its core is not known here.
        let is_own = reported.replica == Some(env.settings.me + 1);
        if let (true, Some((batch, request))) = (is_own, reported.request) {
            reported.core = executor.ran(Place::new(batch, request as u16)).map(|ran| ran.core);
        }
        let place = record.request.map(|request| Place::new(record.batch, request));
        let of_kind = place.and_then(|place| executor.number_of_kind(place, record.kind));
        let repeated = Repeated { evidence: record, of_kind, record: env.next_evidence() };
        if let Some(earlier) = self.repeats.note(repeated) {
            evidence::repeats(&mut reported);
            env.amend_evidence(&earlier, evidence::repeats);
        }
        env.keep_evidence(reported);
    }
}

impl<S: Service, W: World> Agreement<S, W> for Voted {
    /// While reads wait until nothing is in execution, nothing is delivered.
    fn may_deliver(&self) -> bool {
        self.reads.as_ref().is_none_or(|reads| !reads.waits_for_end)
    }

    fn plan(&mut self, delivered: Delivered, core: &mut Core<S, W>) {
        core.deliver(&delivered);
        if let Some(resized) = core.env.members.resized.take() {
            self.resize(resized, core);
        }
    }

    fn sorts<'r>(&'r mut self, execution: &'r Execution<S>, order: ReadOrder) -> Option<SortsReads<'r>> {
        self.reads.as_mut()?.own.sorts(execution, order)
    }

    fn run_reads(&mut self, core: &mut Core<S, W>) -> bool {
        let has_more = self.advance_reads(core);
        has_more || (!core.order.to_order.is_empty() && core.order.orderer.can_accept())
    }

    fn on_report(&mut self, report: Report, core: &mut Core<S, W>) {
        match report {
            Report::Executed(mut executed) => {
                core.on_executed(&mut executed);
                let Executed { batch, origin, results, .. } = executed;
                self.awaited_by |= 1 << origin;
                if batch < self.votes_from {
                    return;
                }
                self.vote(Event::Executed { batch, requests: results }, core);
            }
            Report::RecoverTurn { turn, time_us, recover, packed, install } => {
                self.on_recover_turn(
                    install,
                    turn,
                    Event::RecoverTurn { turn, time_us, recover, packed },
                    core,
                );
            }
            Report::Installed { turn, overwritten } => {
                let has_donors = core.group.has_donors();
                self.repairs.on_installed(turn, overwritten, has_donors, &mut core.env);
            }
            Report::Rechecked { place, corrupt } => self.vote(Event::Rechecked { place, corrupt }, core),
            Report::Scrubbed { place, region_id, findings } => {
                let recover = self.repairs.on_scrubbed(place, region_id, &findings, &mut core.env);
                core.order.submit_control(&recover);
            }
            Report::Boundary(BoundaryDone::Read(done)) => self.on_reads_done(done, core),
            other => {
                on_state_report(other, core);
            }
        }
    }

    /// Receives a CHECK, a REPAIR, another message between voters, or one about reads.
    fn on_message(&mut self, from: u8, kind: FrameKind, body: &Bytes, core: &mut Core<S, W>) {
        if kind == FrameKind::Read {
            match ReadMessage::decode(body) {
                Ok(message) => self.on_read_message(from, message, core),
                Err(_) => self.vote(Event::Garbled { from }, core),
            }
            return;
        }
        if kind == FrameKind::Verify || !core.env.hooks.keeps(Rule::ReceivesVotes) {
            return;
        }
        match Message::decode(body) {
            Ok(message) => self.vote(Event::Message { from, message }, core),
            Err(_) => self.vote(Event::Garbled { from }, core),
        }
    }

    fn on_peer(&mut self, event: PeerNews, core: &mut Core<S, W>) {
        match event {
            PeerNews::Garbled(from) => self.vote(Event::Garbled { from }, core),
            PeerNews::Heartbeat(peer) => self.count_peer(peer, core),
            PeerNews::Disconnected(_) | PeerNews::Ended(_) => self.order_reads(core),
            PeerNews::Connected(_) | PeerNews::LeaderFails => {}
        }
    }

    fn count_peers(&mut self, core: &mut Core<S, W>) {
        for peer in 0..core.env.members.voting {
            self.count_peer(peer, core);
        }
        if let (Some(execution), true) = (&core.executor.running, self.voter.is_some()) {
            execution.set_alone(core.group.is_alone(core.env.world.now_us()));
        }
    }

    fn tick(&mut self, core: &mut Core<S, W>) {
        if let (Some(execution), true) = (&core.executor.running, self.voter.is_some()) {
            core.scrubs.order_next(execution.locks(), &mut core.order, core.env.world.now_us());
        }
        core.order_due_timer();
        self.vote(Event::Tick, core);
    }

    /// The end of a round: CHECKs of all batches of the round share a message.
    fn flush(&mut self, core: &mut Core<S, W>) {
        let now_us = core.env.world.now_us();
        if let Some(voter) = &mut self.voter {
            voter.flush(now_us, &mut self.commands);
            self.perform_commands(core);
            core.clients.forget_answered();
        }
        self.awaited_by = 0;
    }

    fn progress(&self, core: &Core<S, W>) -> Progress {
        Progress::of_log(self.validated(&core.env), core)
    }

    fn status(&self, _: &Core<S, W>, status: &mut Status) {
        status.held = self.held.len() as u64;
        status.last_repair_us = self.repairs.last_us();
    }

    fn watch(&mut self, core: &mut Core<S, W>) -> Watched {
        if let Some(turn) = self.repairs.overdue(core.env.world.now_us()) {
            self.repairs.give_up(turn, core.group.has_donors(), &mut core.env);
            return Watched::Waits;
        }
        if self.repairs.are_awaited() { Watched::Waits } else { Watched::Runs(None) }
    }

    fn open_below(&self, batch: u64) -> Option<String> {
        self.voter.as_ref().map_or_else(|| Some("no voter yet".into()), |voter| voter.open_below(batch))
    }

    fn loads(&self) -> Vec<Occupancy> {
        let (verdicts, repairs) = self.repairs.timed();
        let timed =
            |what, holds: usize| Occupancy { what, holds: holds as u64, bound: limits::REPAIRS_TIMED as u64 };
        let mut loads =
            vec![timed("verdicts with their times", verdicts), timed("repairs with their times", repairs)];
        loads.extend(self.voter.iter().flat_map(Voter::loads));
        loads
    }

    fn started(&mut self, first_batch: u64, _: bool, core: &mut Core<S, W>) {
        if let Some(execution) = &core.executor.running {
            self.start(execution.locks(), first_batch, &core.env);
        }
    }

    fn retired(&mut self) {
        let mut reads = self.reads.take();
        reads.iter_mut().for_each(CheckedReads::begin_again);
        *self = Voted { reads, ..Voted::default() };
    }
}

impl Voted {
    /// The RECOVER at `turn` has its turn here; the objects that it is to get are sent through `install`.
    fn on_recover_turn<S: Service, W: World>(
        &mut self,
        install: Option<Install>,
        turn: Place,
        event: Event,
        core: &mut Core<S, W>,
    ) {
        let Event::RecoverTurn { recover, packed, .. } = &event else { return };
        let env = &mut core.env;
        let is_replayed = core.group.is_replayed(turn.batch);
        match install {
            Some(install) if is_replayed => repairs::stop_waiting(install, env),
            Some(install) => {
                let now_us = env.world.now_us();
                self.repairs.wait_for(turn, recover.cause, install, now_us);
            }
            None => {}
        }
        env.world.see(Observation::Packed { turn, objects: packed });
        // An earlier process knew which objects were undecided. This one does not, and cannot judge the RECOVER that
        // settled them.
        if turn.batch >= self.votes_from
            && !(is_replayed && matches!(recover.scope, vote::Scope::SettleOn(_)))
        {
            self.vote(event, core);
        }
    }

    /// The group has another size behind this batch. One that was added votes from there on; one that was let go does
    /// not, and stays until its last votes are not needed.
    fn resize<S: Service, W: World>(&mut self, Resized { after, before }: Resized, core: &mut Core<S, W>) {
        let (now_us, replicas) = (core.env.world.now_us(), core.env.members.voting);
        if core.env.members.is_let_go() {
            return;
        }
        self.reads.iter_mut().for_each(|reads| reads.resize(replicas));
        if core.env.settings.me >= before {
            core.group.begin();
            if let Some(execution) = &core.executor.running {
                self.start(execution.locks(), after + 1, &core.env);
            }
        } else if let Some(voter) = &mut self.voter {
            voter.resize(after, replicas, now_us, &mut self.commands);
            self.perform_commands(core);
        }
    }

    /// Informs the voter whether to wait for this peer.
    fn count_peer<S: Service, W: World>(&mut self, peer: u8, core: &mut Core<S, W>) {
        if self.voter.is_some() && peer < core.env.members.voting {
            let news: [Option<Event>; 2] = core.group.news_of(peer, core.env.world.now_us());
            news.into_iter().flatten().for_each(|event| self.vote(event, core));
        }
    }

    /// Passes one event to the voter and performs its commands.
    fn vote<S: Service, W: World>(&mut self, event: Event, core: &mut Core<S, W>) {
        let now_us = core.env.world.now_us();
        if let Some(voter) = &mut self.voter {
            voter.handle(event, now_us, &mut self.commands);
            self.perform_commands(core);
        }
    }

    /// Performs the voter's commands.
    fn perform_commands<S: Service, W: World>(&mut self, core: &mut Core<S, W>) {
        let mut commands = std::mem::take(&mut self.commands);
        for command in commands.drain(..) {
            self.perform(command, core);
        }
        if self.commands.is_empty() {
            self.commands = commands;
        }
    }

    fn perform<S: Service, W: World>(&mut self, command: Command, core: &mut Core<S, W>) {
        let env = &mut core.env;
        match command {
            Command::Send { to, message } => self.send(to, &message, core.executor.is_alone(), env),
            Command::Release { place, reply, digest } | Command::ReplyRepaired { place, reply, digest } => {
                self.held.remove(&place);
                core.clients.release(place, reply, Some(digest), env);
            }
            Command::DropReply { place, .. } => {
                self.held.remove(&place);
                core.clients.give_up_reply(place);
            }
            Command::ProposeRecover(_) if !env.hooks.keeps(Rule::ProposesRepairs) => {}
            Command::ProposeRecover(recover) => core.order.submit_control(&Control::Recover(recover)),
            Command::Install { turn, mut objects } => {
                env.hooks.at(FaultPoint::Install(&mut objects));
                self.repairs.install(turn, objects, env);
            }
            Command::RecheckObjects { place, objects } => {
                core.order.submit_control(&Control::Recheck { by: env.settings.me, place, objects });
            }
            Command::Reexecute { place } => {
                // While a replica is absent, every request is run again when its turn comes (`Runner::reproduced`).
                let reproduced = core.executor.ran(place).is_some_and(|ran| ran.reproduced);
                let outcome = if reproduced { Reexecution::Reproduced } else { Reexecution::NotKept };
                self.vote(Event::Reexecuted { place, outcome }, core);
            }
            Command::Evidence(record) => self.on_evidence(&record, &core.executor, env),
            Command::Held { place, why } => self.hold(place, why, &core.executor.asked_at(place), env),
            Command::Resumed { place } => {
                self.held.remove(&place);
            }
            Command::GiveUpRepair { turn } => self.repairs.give_up(turn, core.group.has_donors(), env),
            Command::PassTurn { turn } => self.repairs.pass(turn, env),
            Command::NotSettled { place, region_id, id } => {
                let object = env.with_names(&format!("object {region_id}:{id}"));
                let request = core.executor.asked_at(place);
                env.world.say(format_args!(
                    "replicas differ in {object} again at {request}, although they settled on one version of it \
                        several times. It stays as it is. {NOT_DETERMINISTIC}"
                ));
            }
            Command::ManyRepairs { replica } => env.world.say(format_args!(
                "replica {} had to be repaired more than {} times within {} s: its hardware is broken. Move it to \
                    another machine, and test the memory and the processor of this one. `crosscheck evidence` shows \
                    what was wrong. Until it ends, it goes on being repaired",
                ReplicaId(replica),
                vote::limits::REPAIRS_BEFORE_REPORT,
                vote::limits::REPAIR_RATE_US / 1_000_000
            )),
            Command::ReplaceSelf(why) => env.stop_with(Ok(Stop::Replace(ReplaceReason::Vote(why)))),
            Command::PeerBeyondRepair { replica, why } => {
                env.world.say(format_args!(
                    "replica {} cannot be repaired in place and replaces itself: {why}",
                    ReplicaId(replica)
                ));
            }
        }
    }
}

/// The reason why healthy replicas differ, and the remedy.
const NOT_DETERMINISTIC: &str = "The handler of this kind of request is not deterministic: look in it for a clock, \
    randomness, a HashMap, an address, or state that is in no object, correct it, and restart all replicas with the \
    corrected program.";
