//! Membership: who is there, who votes, and how a replica without state gets it.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use order::{FailStop, FrameKind, OrderEngine, Output};
use vote::{Event, Packed, Place};
use wire::Reader;

use super::execution::{Execution, Stall, WorkerLinks};
use super::{Input, Replica};
use crate::admin::ReplicaPhase;
use crate::clock::ClockWords;
use crate::hooks::Hooks;
use crate::ordered::Control;
use crate::service::Service;
use crate::settings::Durability;
use crate::transfer::{self, Receiver};
use crate::world::World;
use crate::{Corrupted, ReplaceReason, ServeError, Stop, limits, snapshot, state};

/// What is known of the other replicas.
#[derive(Debug)]
pub(super) struct Group {
    others: Vec<Other>,
    /// Workers that hold the turn of a RECOVER until its objects are here.
    pub(super) installs: BTreeMap<Place, Awaited>,
    /// Repairs that did not arrive, since the last that did.
    pub(super) repairs_given_up: u32,
    /// Last entry of the own log when this life began, and the last batch that came from there: what an
    /// earlier life had ordered.
    replayed_index: u64,
    replayed_batch: u64,
    /// Since when a CHECKPOINT is on its way through the order.
    checkpoint_asked_us: Option<u64>,
    /// A state that came from the peers and is on its way to the disk, with its log index.
    installing: Option<(u64, Bytes)>,
    /// Log index of the last checkpoint that rests on disk.
    pub(super) kept_index: u64,
    next_greeting_us: u64,
    next_scrub_us: u64,
    /// Region that is looked at next.
    next_scrub: u32,
    /// When the last one was asked for, until it is done here.
    scrub_asked_us: Option<u64>,
    /// How long the last one took here.
    scrub_took: Duration,
    /// Since when what is delivered is stamped far behind what f+1 clocks have reached.
    pub(super) behind_since_us: Option<u64>,
    /// When the peers were last heard.
    pub(super) listened_us: u64,
}

/// A worker that waits for the right objects.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) install: mpsc::Sender<Vec<Packed>>,
    pub(super) since_us: u64,
}

/// One other replica.
#[derive(Clone, Copy, Debug, Default)]
struct Other {
    heard_us: u64,
    /// What it says of itself, once it executes.
    voting: Option<Heartbeat>,
    /// Last batch that it says it has executed.
    executed: u64,
    /// What the voter was last told: whether to wait for it, and which life of it.
    counted: bool,
    told: Option<Heartbeat>,
    /// Messages of it that were dropped and not told of, and when they may be.
    dropped: u64,
    tells_us: u64,
}

/// What a replica that executes tells its peers now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heartbeat {
    /// First batch it executed in this life.
    since: u64,
    /// Tells this life of the process from earlier ones.
    life: u64,
}

impl Group {
    /// One of so many replicas, whose own log goes as far as `last_index`.
    pub(super) fn new(replicas: usize, last_index: u64) -> Self {
        Group {
            others: vec![Other::default(); replicas],
            installs: BTreeMap::new(),
            repairs_given_up: 0,
            replayed_index: last_index,
            replayed_batch: 0,
            checkpoint_asked_us: None,
            installing: None,
            kept_index: 0,
            next_greeting_us: 0,
            next_scrub_us: 0,
            next_scrub: 0,
            scrub_asked_us: None,
            scrub_took: Duration::ZERO,
            behind_since_us: None,
            listened_us: 0,
        }
    }

    /// A batch is delivered that is entry `index` of the log.
    pub(super) fn on_delivered(&mut self, index: u64, batch: u64) {
        if index <= self.replayed_index {
            self.replayed_batch = batch;
        }
    }

    /// Whether an earlier life of this replica had this batch in its log. A repair there was of objects in
    /// that life's memory: they are gone, nobody keeps the right ones for it any more, and what is executed
    /// again is right without it.
    pub(super) fn is_replayed(&self, batch: u64) -> bool {
        batch <= self.replayed_batch
    }

    /// A SCRUB is done here. A process that was stopped meanwhile did not scrub for all of that time.
    pub(super) fn on_scrub_took(&mut self, time: Duration) {
        self.scrub_asked_us = None;
        self.scrub_took = time.min(limits::SCRUB_PATIENCE);
    }

    pub(super) fn on_up(&mut self, peer: u8, now_us: u64) {
        let other = &mut self.others[usize::from(peer)];
        other.heard_us = now_us;
    }

    /// Last batch that f+1 others have executed, by their own word: one of them is right. 0 unless all of
    /// them were heard just now: who hears only some of the group may be cut off, and its memory may be
    /// needed yet.
    fn others_executed(&self, me: u8, now_us: u64) -> u64 {
        let mut executed: Vec<u64> = self.but(me).map(|other| other.executed).collect();
        executed.sort_unstable_by(|a, b| b.cmp(a));
        executed.get(self.faults()).copied().filter(|_| self.hears_all(me, now_us)).unwrap_or(0)
    }

    /// Whether all others were heard just now, and vote: then this replica's memory is not needed.
    pub(super) fn hears_all(&self, me: u8, now_us: u64) -> bool {
        self.but(me).all(|other| other.voting.is_some() && !other.is_silent(now_us, limits::QUIET))
    }

    fn but(&self, me: u8) -> impl Iterator<Item = &Other> {
        self.others
            .iter()
            .enumerate()
            .filter(move |(peer, _)| *peer != usize::from(me))
            .map(|(_, other)| other)
    }

    /// The peers are heard now. What has waited because this replica was slow itself bears old stamps, and
    /// says nothing against the leader.
    pub(super) fn mind_own_lateness(&mut self, now_us: u64) {
        if now_us - self.listened_us > limits::CLOCK_TOLERANCE.as_micros() as u64 {
            self.behind_since_us = None;
        }
        self.listened_us = now_us;
    }

    /// f, of 2f+1 replicas.
    pub(super) fn faults(&self) -> usize {
        self.others.len() / 2
    }
}

impl Other {
    /// Whether nothing was heard of it for longer than `limit`.
    fn is_silent(&self, now_us: u64, limit: Duration) -> bool {
        now_us.saturating_sub(self.heard_us) > limit.as_micros() as u64
    }
}

impl<S: Service, E: OrderEngine, W: World> Replica<S, E, W> {
    /// Performs what the ordering engine wants.
    pub(super) fn perform_outputs(&mut self) {
        while let Some(output) = self.orderer.poll_output() {
            match output {
                Output::Send { to, kind, body, deferrable } => self.send(to, kind, &body, deferrable),
                Output::LeaderChanged { .. } | Output::Membership { .. } => {
                    self.group.checkpoint_asked_us = None
                }
                Output::Established { joined, .. } => self.on_established(joined),
                Output::CheckpointWanted => self.want_checkpoint(),
                Output::NeedState { index, .. } => self.need_state(index),
                Output::Skipped { tags } => {
                    for tag in tags {
                        match self.pending.take(tag) {
                            Ok(owner) => self.drop_reply(owner),
                            Err(what) => return self.replace(what),
                        }
                    }
                }
                Output::Lacking { from, believed, last } => self.world.say(format_args!(
                    "leader {} expects entries up to {believed} here, and this log ends at {last}: they were \
                        lost on disk, or the leader is faulty. It sends them again",
                    from + 1
                )),
                Output::Distrusted { leader, ahead_us } => {
                    self.distrust(leader, i64::try_from(ahead_us).unwrap_or(i64::MAX));
                }
                Output::LogDropped { begins_after, ends_at, state } => self.world.say(format_args!(
                    "the log on disk has entries {} to {ends_at}, and the state saved beside it is of entry \
                        {state}: {} This replica joins as the next incarnation, and its peers fill it",
                    begins_after + 1,
                    if state > ends_at {
                        "the end of the log was lost."
                    } else {
                        "the entries between them were lost."
                    }
                )),
                Output::Removed => {
                    self.give_up_log(ReplaceReason::LaterIncarnation);
                }
                Output::OlderCopy { index: entry, incarnation: sender, number: batch } => {
                    let directory = match &self.settings.durability {
                        Durability::Memory => None,
                        Durability::Disk(directory) => Some(directory.clone()),
                    };
                    self.give_up_log(ReplaceReason::OlderCopy { entry, sender, batch, directory });
                }
                Output::FailStop(FailStop::Corrupted(part)) => self.replace(Corrupted::Order(part)),
                Output::FailStop(reason) => self.stop_with(Err(ServeError::FailStop(reason))),
            }
        }
    }

    /// This replica belongs to the group. Without a log of its own it waits for its peers' state.
    fn on_established(&mut self, joined: bool) {
        if joined {
            self.phase = ReplicaPhase::Joining;
        } else if self.execution.is_none() {
            match self.base.take() {
                Some((head, dispatcher)) => {
                    self.group.kept_index = head.index;
                    self.start_execution(dispatcher, head.batch + 1);
                }
                None => self.start_execution(schedule::DispatcherState::genesis(), 1),
            }
        }
    }

    pub(super) fn start_execution(
        &mut self,
        dispatcher: schedule::DispatcherState<crate::job::Job<S::Request>>,
        first_batch: u64,
    ) {
        let Some(service) = self.service.take() else { return };
        let ties = WorkerLinks { mailbox: &self.mailbox, lockstep: &self.lockstep, hooks: &self.hooks };
        match Execution::start(&self.settings, service, dispatcher, first_batch, &ties) {
            Ok(execution) => {
                if self.settings.mode.crosschecked {
                    let replicas = self.settings.peers.len() as u8;
                    let buffers = self.settings.buffer_limit;
                    let config =
                        vote::Config::new(replicas, self.settings.me, execution.locks(), first_batch)
                            .with_window_bytes(buffers / 4)
                            .with_kept_reply_bytes(buffers / 8)
                            // The bound of `KeptReplies`, which is the one that they meet.
                            .with_owed_reply_bytes(buffers / 2 + vote::limits::LARGEST_BATCH_BYTES);
                    let config = self.hooks.on_voter(config, self.settings.hold_replies);
                    self.voter = Some(vote::Voter::new(config));
                }
                self.execution = Some(execution);
                self.tally.executed = first_batch - 1;
                self.peers.pace.executed = self.tally.executed;
                self.pulse.execute_done(self.tally.executed);
                self.group.others.iter_mut().for_each(|other| other.counted = false);
                self.group.next_greeting_us = 0;
            }
            Err(error) => self.stop_with(Err(error.into())),
        }
    }

    fn serve_clients(&mut self) {
        let Some(open) = self.open_clients.take() else { return };
        match open(&self.world) {
            Ok(front) => {
                self.front = Some(front);
                self.phase = ReplicaPhase::Serving;
            }
            Err(error) => self.stop_with(Err(error.into())),
        }
    }

    /// A replica needs a state that does not exist yet: the leader gives a CHECKPOINT a position.
    fn want_checkpoint(&mut self) {
        let now_us = self.world.now_us();
        let patience_us = limits::CUT_PATIENCE.as_micros() as u64;
        if self.group.checkpoint_asked_us.is_none_or(|asked_us| now_us > asked_us + patience_us) {
            self.group.checkpoint_asked_us = Some(now_us);
            self.submit_control(&Control::Checkpoint);
        }
    }

    /// The workers made the checkpoint. On disk it has to rest before the log behind it may go.
    pub(super) fn on_checkpoint(&mut self, head: &state::CheckpointHead, bytes: Bytes) {
        self.group.checkpoint_asked_us = None;
        let index = head.index;
        if let Some((manifest, waiting)) = self.donor.offer(index, bytes.clone()) {
            let manifest = manifest.encode();
            waiting.into_iter().for_each(|peer| self.peers.send(peer, FrameKind::Transfer, &[&manifest]));
        }
        if !self.keep_state(index, bytes) {
            self.orderer.state_available(index);
        }
    }

    /// Writes the state after entry `index` to the disk, and hears of it when it rests there; false where
    /// there is none.
    fn keep_state(&mut self, index: u64, bytes: Bytes) -> bool {
        let Durability::Disk(directory) = self.settings.durability.clone() else { return false };
        let mailbox = self.mailbox.clone();
        let done = move |result| mailbox.send(Input::Kept { index, result });
        if let Err(error) = self.world.keep(&directory, bytes, done) {
            self.stop_with(Err(error.into()));
        }
        true
    }

    /// The state after entry `index` rests on disk, or cannot.
    pub(super) fn on_kept(&mut self, index: u64, result: Result<(), snapshot::SnapshotError>) {
        match result {
            Ok(()) => {
                if let Some((index, state)) = self.group.installing.take_if(|(of, _)| *of == index) {
                    self.put_in_place(index, &state);
                }
                self.group.kept_index = index;
                self.orderer.state_available(index);
            }
            Err(error) => self.stop_with(Err(error.into())),
        }
    }

    /// With its log on disk, the leader orders a checkpoint now and then, so that logs stay short.
    fn checkpoint_regularly(&mut self) {
        let disk = matches!(self.settings.durability, Durability::Disk(_));
        let standing = self.orderer.standing();
        let long =
            standing.commit_index.saturating_sub(self.group.kept_index) > self.world.entries_per_snapshot();
        if disk && standing.is_leader && long && self.execution.is_some() {
            self.want_checkpoint();
        }
    }

    /// Stops so that the next process joins anew. A log on disk would lead it to the very same place, and the
    /// one after it.
    pub(super) fn give_up_log(&mut self, why: ReplaceReason) {
        let outcome = self.orderer.forget();
        self.stop_with(match outcome {
            Ok(()) => Ok(Stop::Replace(why)),
            Err(error) => Err(error.into()),
        });
    }

    /// This replica's log begins later than its state ends.
    fn need_state(&mut self, index: u64) {
        if self.execution.is_some() {
            // Its objects are of an older position: it starts again from nothing.
            return self.give_up_log(ReplaceReason::TooFarBehind);
        }
        self.phase = ReplicaPhase::Joining;
        let is_coming = self.receiver.as_ref().is_some_and(|receiver| receiver.wanted() == index);
        if is_coming || self.group.installing.as_ref().is_some_and(|(of, _)| *of == index) {
            return;
        }
        if !self.settings.mode.deterministic {
            self.world.say(format_args!(
                "in mode {} no peer can fill this replica: without determinism the replicas have no common \
                    state. Start the whole group again",
                self.settings.mode
            ));
        }
        let mut receiver = Receiver::new(self.settings.me, self.settings.peers.len() as u8, index);
        self.waits.trusted.iter().for_each(|trusted| receiver.trust(*trusted));
        self.receiver = Some(receiver);
        self.poll_transfer();
    }

    pub(super) fn poll_transfer(&mut self) {
        let now_us = self.world.now_us();
        if let Some(receiver) = &mut self.receiver {
            for (to, message) in receiver.poll(now_us) {
                self.peers.send(to, FrameKind::Transfer, &[&message.encode()]);
            }
        }
    }

    fn on_transfer(&mut self, from: u8, body: Bytes) {
        let Some(message) = transfer::Message::decode(body) else {
            self.tally.dropped_frames += 1;
            return;
        };
        if let Some(answer) = self.donor.on_message(from, &message) {
            return self.peers.send(from, FrameKind::Transfer, &[&answer.encode()]);
        }
        let Some(receiver) = &mut self.receiver else { return };
        let complete = receiver.on_message(from, message);
        if receiver.is_overtaken() {
            // The engine waits for exactly the checkpoint it offered; it is told, and offers the later one.
            let wanted = receiver.wanted();
            self.receiver = None;
            return self.orderer.state_lost(wanted);
        }
        match complete {
            Some((index, bytes)) => self.install_state(index, bytes),
            None => self.poll_transfer(),
        }
    }

    /// The whole state is here and f+1 peers vouch for every piece of it. A log on disk begins behind it, and
    /// this replica will vote about what comes next: so the state has to rest there first, or it would be
    /// gone with the process, and its vote with it.
    fn install_state(&mut self, index: u64, bytes: Bytes) {
        self.receiver = None;
        if self.keep_state(index, bytes.clone()) {
            self.group.installing = Some((index, bytes));
        } else {
            self.put_in_place(index, &bytes);
        }
    }

    fn put_in_place(&mut self, index: u64, bytes: &Bytes) {
        let Some(service) = &mut self.service else { return };
        // A large state takes as long as it takes.
        self.pulse.beat();
        let loaded = state::head(bytes).and_then(|head| {
            // The engine may want another checkpoint by now; it says so, and the fetching begins again.
            let wanted = self.orderer.installed(index, head.order);
            if wanted { state::load::<S>(service, bytes).map(Some) } else { Ok(None) }
        });
        self.pulse.beat();
        match loaded {
            Ok(Some((head, dispatcher))) => self.start_execution(dispatcher, head.batch + 1),
            Ok(None) => {}
            // f+1 replicas gave the same bytes, so this is disagreement about the format: not to be repaired by trying.
            Err(why) => self.stop_with(Err(ServeError::BadState(why))),
        }
    }

    /// A whole frame whose checksum holds.
    pub(super) fn on_frame(&mut self, from: u8, kind: FrameKind, body: Bytes) {
        self.group.others[usize::from(from)].heard_us = self.world.now_us();
        match kind {
            FrameKind::Order | FrameKind::Forward | FrameKind::Control => {
                if let Err(blame) = self.orderer.on_frame(from, kind, body) {
                    self.tally.dropped_frames += 1;
                    self.say_dropped(blame);
                }
            }
            FrameKind::Check | FrameKind::Repair => self.on_vote_message(from, &body),
            FrameKind::Transfer => self.on_transfer(from, body),
            FrameKind::Admin => self.on_greeting(from, body),
        }
    }

    /// A peer's message was dropped. A peer that is wrong again and again is told of once a second.
    fn say_dropped(&mut self, blame: order::Blame) {
        let now_us = self.world.now_us();
        let Some(other) = self.group.others.get_mut(usize::from(blame.peer)) else { return };
        other.dropped += 1;
        if now_us < other.tells_us {
            return;
        }
        other.tells_us = now_us + limits::TOLD_AGAIN.as_micros() as u64;
        match std::mem::take(&mut other.dropped) {
            1 => self.world.say(format_args!("{blame}; the message is dropped")),
            count => self.world.say(format_args!("{blame}; {count} messages from there were dropped")),
        }
    }

    /// Says now and then that this replica is there, since which batch it votes, and how far it is.
    pub(super) fn greet(&mut self) {
        let now_us = self.world.now_us();
        if now_us >= self.group.next_greeting_us {
            self.group.next_greeting_us = now_us + limits::GREETING.as_micros() as u64;
            for peer in 0..self.settings.peers.len() as u8 {
                self.greet_one(peer);
            }
            self.mind_the_clocks();
        }
        for peer in 0..self.group.others.len() as u8 {
            self.count_peer(peer);
        }
        self.mind_absences();
    }

    /// With f+1 replicas a vote shows that one is wrong and not which one: then each has to see to itself.
    fn mind_absences(&mut self) {
        let now_us = self.world.now_us();
        let me = usize::from(self.settings.me);
        let there = |(peer, other): (usize, &Other)| {
            peer == me || (other.voting.is_some() && !other.is_silent(now_us, limits::QUIET))
        };
        let present = self.group.others.iter().enumerate().filter(|other| there(*other)).count();
        if let (Some(execution), true) = (&self.execution, self.voter.is_some()) {
            execution.set_alone(present <= self.group.faults() + 1);
        }
    }

    pub(super) fn greet_one(&mut self, peer: u8) {
        if peer != self.settings.me {
            let since = self.execution.as_ref().map_or(0, |execution| execution.first_batch);
            let executed = self.peers.pace.executed;
            let ClockWords { now_us, sent_us, echo_us, held_us } =
                self.clock.words_for(peer, self.world.now_us());
            let words = [since, self.life, executed, now_us, sent_us, echo_us, held_us].map(u64::to_le_bytes);
            self.peers.send(peer, FrameKind::Admin, &[words.as_flattened()]);
        }
    }

    fn on_greeting(&mut self, from: u8, body: Bytes) {
        let mut reader = Reader::new(&body);
        let mut word = || reader.u64();
        let (Ok(since), Ok(life), Ok(executed)) = (word(), word(), word()) else { return };
        if let (Ok(now_us), Ok(sent_us), Ok(echo_us), Ok(held_us)) = (word(), word(), word(), word()) {
            self.clock.hear(from, ClockWords { now_us, sent_us, echo_us, held_us }, self.world.now_us());
        }
        let other = &mut self.group.others[usize::from(from)];
        (other.voting, other.executed) = ((since > 0).then_some(Heartbeat { since, life }), executed);
        self.count_peer(from);
    }

    /// Whether f+1 others could give this replica a state or a repair.
    pub(super) fn has_donors(&self) -> bool {
        let others = self.group.others.iter().filter(|other| other.counted).count();
        others > self.group.faults()
    }

    /// Tells the voter whom to wait for: whoever executes and was heard not long ago.
    ///
    /// A lost connection alone does not count: it is back in a moment, and a voter that thinks a peer gone finds no
    /// majority where there is one. Nobody's reply waits for this: f+1 are enough.
    fn count_peer(&mut self, peer: u8) {
        let now_us = self.world.now_us();
        let other = &mut self.group.others[usize::from(peer)];
        let counts = other.voting.is_some() && !other.is_silent(now_us, limits::SILENCE);
        if self.voter.is_none() || peer == self.settings.me {
            return;
        }
        let reborn = counts && other.told != other.voting;
        if counts == other.counted && !reborn {
            return;
        }
        other.counted = counts;
        if let (true, Some(greeting)) = (reborn, other.voting) {
            other.told = Some(greeting);
            self.vote(Event::PeerReplaced { replica: peer, first_batch: greeting.since });
        }
        self.vote(if counts { Event::PeerUp(peer) } else { Event::PeerDown(peer) });
    }

    /// The leader has every region looked at in turn, so that errors nobody touches do not add up; large
    /// regions less often.
    pub(super) fn scrub(&mut self) {
        let now_us = self.world.now_us();
        let Some(execution) = &self.execution else { return };
        if self.voter.is_none() || !self.orderer.standing().is_leader || now_us < self.group.next_scrub_us {
            return;
        }
        let patience_us = limits::SCRUB_PATIENCE.as_micros() as u64;
        if self.group.scrub_asked_us.is_some_and(|asked_us| now_us < asked_us + patience_us) {
            return;
        }
        self.group.scrub_asked_us = Some(now_us);
        let home = self.group.next_scrub % execution.locks();
        self.group.next_scrub = home + 1;
        let pause = limits::SCRUB_EVERY.max(self.group.scrub_took * limits::SCRUB_REST);
        self.group.next_scrub_us = now_us + pause.as_micros() as u64;
        self.submit_control(&Control::Scrub { home });
    }

    /// Serves clients as soon as there is a leader to order their requests.
    pub(super) fn serve_when_led(&mut self) {
        if self.execution.is_some() && self.front.is_none() && self.orderer.standing().leader.is_some() {
            self.serve_clients();
        }
    }

    /// Drops log entries that nobody needs, a few at a time.
    pub(super) fn compact(&mut self) {
        self.checkpoint_regularly();
        let floor = self.orderer.compaction_floor();
        for _ in 0..limits::COMPACTIONS_PER_TICK {
            let is_large = self.orderer.standing().log_bytes > self.settings.buffer_limit as u64 / 4;
            let keep_from = match self.settings.durability {
                // A state is being cut for somebody, who will need what follows it.
                Durability::Memory if self.group.checkpoint_asked_us.is_some() => return,
                Durability::Memory if is_large => floor,
                Durability::Memory => floor.saturating_sub(limits::LOG_KEPT),
                Durability::Disk(_) => {
                    let kept = self.world.entries_per_snapshot() / limits::KEPT_SHARE;
                    floor.saturating_sub(kept).min(self.group.kept_index)
                }
            };
            if !self.orderer.compact_to(keep_from) {
                return;
            }
        }
    }

    /// The watchdog of the turns (EDCC'16 section IV-C): a handler that never ends. A worker that waits for a repair is
    /// only watched for longer: the voter gives up on a repair that does not arrive, and if it does not, this does.
    pub(super) fn watch(&mut self) {
        let now_us = self.world.now_us();
        let patience_us = limits::REPAIR_PATIENCE.as_micros() as u64;
        let overdue = |awaited: &Awaited| now_us > awaited.since_us + patience_us;
        let late = self.group.installs.iter().find(|(_, awaited)| overdue(awaited)).map(|(turn, _)| *turn);
        if let Some(turn) = late {
            return self.give_up_repair(turn);
        }
        if !self.group.installs.is_empty() {
            return;
        }
        let limit_us = self.settings.watchdog.as_micros() as u64;
        let others =
            (self.settings.peers.len() > 1).then(|| self.group.others_executed(self.settings.me, now_us));
        let others = others.filter(|_| self.hooks.asks_others());
        match self.execution.as_mut().and_then(|execution| execution.stall(others, now_us, limit_us)) {
            _ if (1..=self.unwatched).contains(&self.pulse.oldest()) => {}
            Some(Stall::Handler(position)) => {
                self.stop_with(Ok(Stop::Replace(ReplaceReason::HandlerHangs { position })));
            }
            Some(Stall::Pipeline) => {
                self.stop_with(Ok(Stop::Replace(ReplaceReason::ExecutionStopped)));
            }
            None => {}
        }
    }
}
