//! The orderer, driven by the pipeline: requests enter at any replica, and each leaves once at every replica, in one
//! order.

mod views;

use std::collections::VecDeque;

use bytes::Bytes;

use crate::batch::{Batch, Encoded, Request};
use crate::batcher::{Batcher, Batching, Refused};
use crate::engine::{
    Blame, Committed, CorruptPart, Decision, DecisionError, EngineOut, EngineStatus, FailStop, GroupSize,
    Leadership, OrderEngine, Output, Tolerance,
};
use crate::frame::FrameKind;
use crate::gone::ReplicaProcess;
use crate::limits;
use crate::log::LogError;
use crate::moves::Move;
use crate::queue::LeaderQueue;
use crate::sessions::{HostSetting, Rule, State};
use crate::sizes::{SizeWish, WishedAt};
use crate::timeouts::BatchTimeouts;

/// The settings of an orderer; equal on all replicas except for `slot` and `seed`.
#[derive(Debug, Clone)]
pub struct Config {
    /// This replica's slot, from 0.
    pub slot: u8,
    /// Replicas in the group.
    pub replicas: u8,
    /// Randomness for the stamps of batches this replica leads, and to distinguish its batches from those of other
    /// processes in its place.
    pub seed: u64,
    /// The settings of the batcher.
    pub batching: Batching,
    /// Ticks without the delivery of a batch of this replica after which all of them are handed to the leader again.
    pub resend_ticks: u64,
    /// Ticks without the delivery of a batch of this replica, under another leader, after which this replica campaigns
    /// although that leader sends heartbeats: a leader that orders nothing is as bad as none. Twice as long after each
    /// failed attempt.
    pub leader_timeout_ticks: u64,
    /// Entries the leader may be ahead of the slowest live replica.
    pub window: u64,
    /// Deliveries may be rolled back ([`Orderer::rewind`]): with [`crate::PrimaryEngine`] only. A batch of this replica
    /// is kept until it is stable, and the end of each number is delivered.
    pub rewinds: bool,
    /// Batches of this replica have the streams of their requests ([`Request::stream`]).
    pub streams: bool,
}

impl Config {
    /// The defaults for the replica in `slot` of `replicas`.
    pub fn new(slot: u8, replicas: u8, seed: u64) -> Self {
        // panics: the configuration at the start, which the operator chose
        assert!(slot < replicas && usize::from(replicas) <= limits::SLOTS);
        Config {
            slot,
            replicas,
            seed,
            batching: Batching::default(),
            resend_ticks: 20,
            // One after the other, or they would take each other's votes.
            leader_timeout_ticks: 80 + 4 * u64::from(slot),
            window: limits::WINDOW_ENTRIES,
            rewinds: false,
            streams: false,
        }
    }
}

/// One batch at its position, the same at every replica.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivered {
    /// Position in the log; grows from delivery to delivery, with gaps. A checkpoint is named by such an index, where
    /// `ends` is true.
    pub index: u64,
    /// Number of the primary's batch that this is a part of; without a primary the index.
    pub number: u64,
    /// Whether this is the last part of that number.
    pub ends: bool,
    /// Whether the requests of that number are to run one after the other.
    pub sequential: bool,
    /// The batch, verified; its `time_us` is strictly greater than that of the delivery before. Without requests only
    /// where the last part of a primary's batch was delivered before: then it says that the number ends.
    pub batch: Batch,
    /// For a batch of this incarnation of this replica: the tags its requests were submitted with, in order. Else
    /// empty.
    pub tags: Vec<u64>,
}

/// Counters for status and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OrderCounters {
    /// Committed batches that the exactly-once rule dropped.
    pub dropped: u64,
    /// Times this replica campaigned against a leader that ordered none of its batches.
    pub impatient: u64,
    /// Frames refused, by the slot of their sender.
    pub blamed: [u64; limits::SLOTS],
}

/// Total order for one replica, around any [`OrderEngine`].
///
/// Drive it from one thread: pass all input to `submit`, `on_frame`, `peer_up`, `peer_down`
/// and `tick`; then call [`Orderer::pump`]; perform every [`Orderer::poll_output`]; write the sockets; if
/// [`Orderer::needs_persist`], call [`Orderer::persist`] and perform the outputs again; take [`Orderer::poll_delivery`]
/// as far as the executors have space.
// large: the only entrance to the log, with a method for each event of the thread that drives it
pub struct Orderer<E> {
    config: Config,
    engine: E,
    batcher: Batcher,
    queue: LeaderQueue,
    state: State,
    out: EngineOut,
    followed: (Option<u8>, u64),
    peers_up: u16,
    timeouts: BatchTimeouts,
    stopped: bool,
    counters: OrderCounters,
}

impl<E: OrderEngine> Orderer<E> {
    /// An orderer that delivers from the entry after `state.index` on: a default [`State`] for a new group,
    /// the exported one of the local snapshot after a restart with a log.
    pub fn new(config: Config, engine: E, state: State) -> Self {
        Orderer {
            batcher: Batcher::of(&config, engine.hands_on()),
            queue: LeaderQueue::new(config.seed),
            config,
            engine,
            state,
            out: EngineOut::default(),
            followed: (None, 0),
            peers_up: 0,
            timeouts: BatchTimeouts::default(),
            stopped: false,
            counters: OrderCounters::default(),
        }
    }

    /// Whether [`Orderer::submit`] has space; while not, stop reading from clients.
    pub fn can_accept(&self) -> bool {
        !self.stopped && self.batcher.can_accept()
    }

    /// A client's request, with the result of `batch::checksum` when it was decoded. `tag` is returned with its
    /// delivery. It takes `cost` bytes while it is on its way, with its expected reply. Its stream is in the batch if
    /// [`Config::streams`].
    ///
    /// # Errors
    /// [`Refused`] when the queue is full or the request too long; it was then not taken.
    pub fn submit(&mut self, request: Request, tag: u64, cost: usize) -> Result<(), Refused> {
        if self.stopped { Err(Refused::Full) } else { self.batcher.submit(request, tag, cost) }
    }

    /// A frame of one of this crate's kinds (Order, Forward, Control, Batch) from the replica in slot `from`.
    ///
    /// # Errors
    /// [`Blame`] when no healthy peer sends this; it was dropped and counted.
    pub fn on_frame(&mut self, from: u8, kind: FrameKind, body: Bytes) -> Result<(), Blame> {
        if self.stopped {
            return Ok(());
        }
        let outcome = if from >= self.config.replicas || from == self.config.slot {
            Err(Blame::new(from, "sender is not another replica of the group"))
        } else if kind == FrameKind::Forward {
            self.on_forward(from, body)
        } else {
            self.engine.on_frame(from, kind, body)
        };
        if let Err(blame) = outcome
            && let Some(count) = self.counters.blamed.get_mut(usize::from(blame.peer))
        {
            *count += 1;
        }
        outcome
    }

    /// One tick of the clock passed (25 ms suggested).
    pub fn tick(&mut self) {
        self.engine.tick();
        let waits = self.batcher.undelivered() > 0;
        if self.timeouts.hands_over_again(waits, self.config.resend_ticks) {
            self.send_again();
        }
        // A leader that is up and orders nothing, or receives nothing from this replica, is replaced. It is not to
        // blame for ordered batches that wait here for the executors.
        let engine_status = self.engine.engine_status();
        let follows = engine_status.leader.is_some() && !engine_status.is_leader;
        let is_owed = follows && waits && self.out.committed.is_empty();
        if self.timeouts.is_over(is_owed, self.config.leader_timeout_ticks) {
            self.counters.impatient += 1;
            self.engine.campaign();
        }
    }

    /// The connection to a peer is usable in both directions.
    pub fn peer_up(&mut self, peer: u8) {
        self.peers_up |= 1 << peer;
        if self.engine.leadership().leader == Some(peer) {
            self.send_again();
        }
        self.engine.peer_up(peer);
    }

    /// The connection to a peer is gone. If the peer leads, this replica may campaign soon.
    pub fn peer_down(&mut self, peer: u8) {
        self.peers_up &= !(1 << peer);
        self.engine.peer_down(peer);
    }

    /// Forms batches, hands them to the leader (or proposes them), and pumps the engine. `now_us` stamps the batches
    /// that this replica leads.
    pub fn pump(&mut self, now_us: u64) {
        if self.stopped {
            return;
        }
        self.engine.pump(&mut self.out);
        follow(self);
        let leadership = self.engine.leadership();
        if let Some(incarnation) = leadership.incarnation
            && self.state_is_of_this_process(incarnation)
        {
            let formed = self.batcher.form(self.config.slot, incarnation);
            if let Err(part) = formed.and_then(|()| self.hand_over(leadership, incarnation)) {
                return self.stop(FailStop::Corrupted(part));
            }
        }
        if leadership.is_leader {
            self.queue.propose(&mut self.engine, now_us, self.config.window);
        }
        self.engine.pump(&mut self.out);
        self.engine.rest();
    }

    /// Whether the log waits for the disk. Write the sockets before answering with [`Orderer::persist`].
    #[inline]
    pub fn needs_persist(&self) -> bool {
        !self.stopped && self.engine.needs_persist()
    }

    /// Syncs the log (one fdatasync for everything since the last) and releases the outputs that waited for it.
    pub fn persist(&mut self) {
        self.engine.persist(&mut self.out);
    }

    /// The next thing to perform, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.out.outputs.pop_front()?;
        self.stopped |= matches!(output, Output::FailStop(_) | Output::Removed | Output::OlderCopy { .. });
        Some(output)
    }

    /// The next batch in the order. Stop taking them while the executors are full: the leader slows down for it.
    pub fn poll_delivery(&mut self) -> Option<Delivered> {
        while let Some(committed) = self.out.committed.pop_front() {
            if let Some(delivered) = self.deliver(committed) {
                return Some(delivered);
            }
        }
        None
    }

    /// The state that delivery depends on, as of the last delivery taken: that of the service is as of the same index
    /// right after the delivery was executed.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// A delivered request of this origin says what the group is to act as. Once `needed` origins have wanted the same,
    /// and it is a later one, the group does.
    pub fn act_as(&mut self, origin: u8, behavior: u16, needed: usize) {
        self.state.acting.want(origin, behavior, needed as u32);
    }

    /// A delivered request sets a setting of the host.
    pub fn set(&mut self, number: u8, setting: HostSetting) {
        self.state.settings.insert(number, setting);
    }

    /// A delivered request of this origin says where a replica is to be from now on. Once `needed` origins have said
    /// the same at about the same ordered time, it is there; returns whether that is so now.
    pub fn want_move(&mut self, origin: u8, wish: Move, needed: usize) -> bool {
        let now_us = self.state.time_us;
        self.state.moves.want(origin, wish, needed, now_us)
    }

    /// A delivered request of this origin says that a process of a replica is gone. Once `needed` origins have said the
    /// same at about the same ordered time, it is; returns whether that is so now.
    pub fn want_gone(&mut self, origin: u8, process: ReplicaProcess, needed: usize) -> bool {
        let now_us = self.state.time_us;
        self.state.gone.want(origin, process, needed, now_us)
    }

    /// A delivered request of this origin, in the host's batch `batch`, says how many replicas the group is to have, in
    /// which the configurations say `configured`. Once `needed` origins have said the same at about the same ordered
    /// time, it is so; returns whether that is so now.
    pub fn want_size(
        &mut self,
        (origin, batch): (u8, u64),
        wish: SizeWish,
        needed: usize,
        configured: u8,
    ) -> bool {
        let at = WishedAt { origin, now_us: self.state.time_us, batch };
        let is_done = self.state.sizes.want(at, wish, needed, configured);
        if is_done && self.state.sizes.excludes_others() {
            self.state.moves.forget_from(self.state.sizes.voting(configured));
        }
        is_done
    }

    /// The group has this size: who is in it, and who votes. To be said again from time to time.
    pub fn resize(&mut self, size: GroupSize) {
        self.config.replicas = size.known;
        self.engine.resize(size);
    }

    /// The state after entry `cut` can be fetched from this replica; entries up to it may be compacted away.
    pub fn state_available(&mut self, cut: u64) {
        self.engine.state_available(cut);
    }

    /// The state after entry `cut` cannot be fetched from this replica any more: whoever needs one asks for a later
    /// one.
    pub fn state_freed(&mut self, cut: u64) {
        self.engine.state_freed(cut);
    }

    /// This replica takes part in the founding of a group that begins with a state from elsewhere: the next delivery is
    /// the one after it. Before the first delivery.
    pub fn begin_after(&mut self, state: State) {
        self.state = state;
    }

    /// The answer to [`Output::NeedState`]: service state and `state` (as exported at `cut`) are available. Call it
    /// before the service's state is replaced: if it returns false, the log caught up meanwhile or another checkpoint
    /// is wanted by now, and the fetched state must be dropped. If true, the next delivery
    /// is the one after the checkpoint. A state of another checkpoint ends this replica.
    #[must_use]
    pub fn installed(&mut self, cut: u64, state: State) -> bool {
        if state.index != cut {
            self.stop(FailStop::Corrupted(CorruptPart::Delivery));
            return false;
        }
        if cut <= self.state.index || !self.engine.installed(cut) {
            return false;
        }
        self.out.committed.retain(|committed| committed.index > cut);
        self.state = state;
        let own = self.state.sessions.get(&self.config.slot).copied();
        if let Some(session) = own.filter(|own| self.engine.leadership().incarnation == Some(own.incarnation))
        {
            match self.batcher.skip_to(session.number) {
                Ok(tags) if tags.is_empty() => {}
                Ok(tags) => self.out.outputs.push_back(Output::Skipped { tags }),
                Err(part) => {
                    self.stop(FailStop::Corrupted(part));
                    return false;
                }
            }
        }
        self.engine.delivered(cut);
        true
    }

    /// The state after `cut` is not available any more: the engine requests a later one.
    pub fn state_lost(&mut self, cut: u64) {
        self.engine.state_lost(cut);
    }

    /// The group has continued without this replica, and its log is of no use any more: deletes it, so that the next
    /// process joins as a new incarnation. This orderer does nothing afterwards.
    ///
    /// # Errors
    /// [`LogError`] when a file would be left behind.
    pub fn forget(&mut self) -> Result<(), LogError> {
        self.stopped = true;
        self.out = EngineOut::default();
        self.engine.forget()
    }

    /// Drops at most [`limits::COMPACT_STEP`] log entries up to `index`; returns whether another call would drop more.
    pub fn compact_to(&mut self, index: u64) -> bool {
        !self.stopped && self.engine.compact_to(index)
    }

    /// At a leader: how many further replicas may fail. None where that is not found from the log.
    pub fn tolerance(&self) -> Option<Tolerance> {
        self.engine.tolerance()
    }

    /// No replica needs entries up to here.
    pub fn compaction_floor(&self) -> u64 {
        self.engine.compaction_floor()
    }

    /// The engine's progress.
    #[inline]
    pub fn engine_status(&self) -> EngineStatus {
        self.engine.engine_status()
    }

    /// Requests that wait for a batch, this replica's batches in flight (where deliveries may be rolled back: until
    /// they are stable), batches that wait at this leader.
    pub fn waiting(&self) -> (usize, usize, usize) {
        let (collected, in_flight) = self.batcher.waiting();
        (collected, in_flight, self.queue.len())
    }

    /// Counters since the start.
    pub fn counters(&self) -> &OrderCounters {
        &self.counters
    }

    /// Entries with later stamps than this are refused from now on: see [`OrderEngine::accept_stamps`].
    pub fn accept_stamps(&mut self, until_us: u64) {
        self.engine.accept_stamps(until_us);
    }

    /// Carries out an operator's decision: see [`OrderEngine::decide`].
    ///
    /// # Errors
    /// [`DecisionError`] when that is not possible here.
    pub fn decide(&mut self, decision: Decision) -> Result<(), DecisionError> {
        if self.stopped { Err(DecisionError::Stopped) } else { self.engine.decide(decision) }
    }

    /// Follower only: calls an election against a faulty leader.
    pub fn call_election(&mut self) {
        if !self.stopped {
            self.engine.campaign();
        }
    }

    /// Flips bits of the next stamp of this replica as a leader, for tests and fault injection.
    #[cfg(feature = "inject")]
    pub fn corrupt_stamp(&mut self, bits: u64) {
        self.queue.wrong_stamp = Some(bits);
    }

    /// The engine itself, for fault injection and tests.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    fn on_forward(&mut self, from: u8, body: Bytes) -> Result<(), Blame> {
        let encoded = Encoded::split(body).map_err(Blame::malformed(from))?;
        let batch = Batch::decode(&encoded).map_err(Blame::malformed(from))?;
        if batch.origin != from || batch.incarnation == 0 || batch.number == 0 || batch.number == u64::MAX {
            return Err(Blame::new(from, "a forwarded batch names another origin"));
        }
        if !self.state.can_follow(from, batch.incarnation, self.engine.admitted_incarnation(from)) {
            return Err(Blame::new(from, "a forwarded batch names an incarnation that was never let in"));
        }
        // At a follower it is only late: the origin itself hands it to the new leader.
        if self.engine.leadership().is_leader {
            follow(self);
            self.queue.push(&batch, encoded, &self.state);
        }
        Ok(())
    }

    fn send_again(&mut self) {
        self.timeouts.handed_over();
        if self.batcher.undelivered() > 0 {
            self.batcher.send_again();
        }
    }

    fn hand_over(&mut self, leadership: Leadership, incarnation: u64) -> Result<(), CorruptPart> {
        let Some(leader) = leadership.leader else { return Ok(()) };
        if !leadership.is_leader && self.peers_up >> leader & 1 == 0 {
            return Ok(());
        }
        let slot = self.config.slot;
        let next = self.state.next_number(slot, incarnation);
        while let Some((batch, encoded)) = self.batcher.take_unsent(slot, incarnation, next)? {
            if leadership.is_leader {
                self.queue.push(&batch, encoded, &self.state);
            } else {
                self.engine.handed_over(&encoded);
                self.out.send(leader, FrameKind::Forward, encoded.into_frame());
            }
        }
        Ok(())
    }

    fn deliver(&mut self, committed: Committed) -> Option<Delivered> {
        let Committed { index, entry, number, ends, sequential } = committed;
        if index <= self.state.index {
            return None; // part of an installed state; the log came by another way as well
        }
        let Ok(mut batch) = Batch::decode_to_execute(&entry) else {
            self.stop(FailStop::LogCorrupt { index });
            return None;
        };
        let incarnation = self.engine.leadership().incarnation.filter(|_| batch.origin == self.config.slot);
        if incarnation.is_some_and(|own| batch.incarnation > own)
            || (incarnation == Some(batch.incarnation) && !self.batcher.is_ours(batch.mark))
        {
            self.stop(older_copy(index, batch.incarnation, batch.number));
            return None;
        }
        let own = incarnation == Some(batch.incarnation);
        let name = (batch.origin, batch.incarnation, batch.number);
        let Some((rule, time_us)) = self.state.admit(index, name, batch.time_us) else {
            self.stop(FailStop::Corrupted(CorruptPart::Delivery));
            return None;
        };
        self.engine.delivered(index);
        batch.time_us = time_us;
        match rule {
            Rule::Next => {}
            Rule::Repeated | Rule::Gap => {
                self.counters.dropped += 1;
                if own && rule == Rule::Gap {
                    self.send_again();
                }
                // An executor runs a primary's batch as a whole, and has to know that it ends, also without this part.
                let (batch, tags) = (batch.emptied(), Vec::new());
                let is_reported = self.config.rewinds && ends;
                return is_reported.then_some(Delivered { index, number, ends, sequential, batch, tags });
            }
        }
        let mut tags = Vec::new();
        if own {
            self.timeouts.served();
            match self.batcher.delivered(batch.number, number) {
                Ok(delivered) => tags = delivered,
                Err(part) => {
                    self.stop(FailStop::Corrupted(part));
                    return None;
                }
            }
        }
        Some(Delivered { index, number, ends, sequential, batch, tags })
    }

    /// Whether all batches of this incarnation or a later one that are part of the state were sent by this process. A
    /// state has no marks; a delivery does.
    fn state_is_of_this_process(&mut self, incarnation: u64) -> bool {
        let Some(session) = self.state.sessions.get(&self.config.slot).copied() else { return true };
        let known = session.incarnation == incarnation && self.batcher.has_formed(session.number);
        if session.incarnation < incarnation || known {
            return true;
        }
        self.stop(older_copy(self.state.index, session.incarnation, session.number));
        false
    }

    fn stop(&mut self, reason: impl Into<Output>) {
        self.stopped = true;
        self.out.committed = VecDeque::new();
        self.out.outputs.push_back(reason.into());
    }
}

fn older_copy(index: u64, incarnation: u64, number: u64) -> Output {
    let incarnation = ((incarnation >> 32) as u32, incarnation as u32);
    Output::OlderCopy { index, incarnation, number }
}

/// Notices another leader or term: everything in flight is handed over again, and the leader's queue starts empty.
fn follow<E: OrderEngine>(orderer: &mut Orderer<E>) {
    let Leadership { leader, term, .. } = orderer.engine.leadership();
    if orderer.followed != (leader, term) {
        orderer.followed = (leader, term);
        orderer.queue.clear();
        orderer.send_again();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{MemberSet, NotNow};

    /// An engine that follows a leader that orders nothing, and wins no election.
    #[derive(Default)]
    struct Unserved {
        campaigns: u64,
    }

    impl OrderEngine for Unserved {
        fn propose(&mut self, _entry: Encoded) -> Result<(), NotNow> {
            Err(NotNow)
        }
        fn on_frame(&mut self, _from: u8, _kind: FrameKind, _body: Bytes) -> Result<(), Blame> {
            Ok(())
        }
        fn tick(&mut self) {}
        fn peer_up(&mut self, _peer: u8) {}
        fn peer_down(&mut self, _peer: u8) {}
        fn pump(&mut self, _out: &mut EngineOut) {}
        fn campaign(&mut self) {
            self.campaigns += 1;
        }
        fn engine_status(&self) -> EngineStatus {
            let members = MemberSet { voters: 0b111, learners: 0 };
            EngineStatus {
                leader: Some(1),
                term: 1,
                incarnation: Some(1),
                members,
                ..EngineStatus::default()
            }
        }
    }

    /// An executor runs a primary's batch as a whole. It has to know that the batch ends, even if another one brought
    /// its last part before.
    #[test]
    fn a_number_ends_also_when_its_last_part_was_delivered_before() {
        let config = |rewinds| Config { rewinds, ..Config::new(0, 1, 1) };
        let view = crate::PrimaryView { number: 1, primary: 0, executors: 1, next: 1, sequential: false };
        for rewinds in [true, false] {
            let engine = crate::PrimaryEngine::new(
                crate::PrimaryConfig { slot: 0, replicas: 1, incarnation: 1, start: 1 },
                0,
            );
            let mut orderer = Orderer::new(config(rewinds), engine, State::default());
            orderer.begin_view(view);
            let request = Request { checksum: 0, stream: 0, bytes: Bytes::from_static(b"r") };
            // Of a process before this one, under its name.
            let batch = Batch::new(0, 1, 1, &[request]).encode();
            (0..2).for_each(|_| orderer.engine.propose(batch.clone()).unwrap());
            orderer.pump(5);
            let delivered: Vec<(u64, u64, bool, usize)> = std::iter::from_fn(|| orderer.poll_delivery())
                .map(|part| (part.index, part.number, part.ends, part.batch.len()))
                .collect();
            let end = Some((17, 1, true, 0)).filter(|_| rewinds);
            assert_eq!(delivered, Vec::from_iter([Some((16, 1, false, 1)), end].into_iter().flatten()));
            assert_eq!(orderer.counters().dropped, 1);
        }
    }

    /// The delivery at a lone replica of a batch with one request, in which a bit of this byte of the body changes
    /// after it was formed; and whether the replica stops.
    fn delivered_changed(streams: bool, at: Option<usize>) -> (Option<Batch>, bool) {
        let engine = crate::SingleEngine::new(0, 1, 0);
        let mut orderer = Orderer::new(Config { streams, ..Config::new(0, 1, 1) }, engine, State::default());
        let bytes = Bytes::from_static(b"request");
        let request = Request { checksum: crate::batch::checksum(&bytes), stream: 3, bytes };
        orderer.submit(request, 1, 7).unwrap();
        orderer.batcher.form(0, 1).unwrap();
        if let Some(at) = at {
            orderer.batcher.corrupt_first(at);
        }
        orderer.pump(5);
        let batch = orderer.poll_delivery().map(|delivered| delivered.batch);
        let stops = |output| matches!(output, Output::FailStop(FailStop::LogCorrupt { .. }));
        (batch, std::iter::from_fn(|| orderer.poll_output()).any(stops))
    }

    /// A body is not summed when it is delivered, since each request is compared with its own checksum a step later,
    /// when it is decoded. So one that has changed is delivered, and says that it has; or its table does not fill
    /// it, and nothing is delivered.
    #[test]
    fn a_batch_that_changes_at_a_replica_alone_has_no_request_that_fits_its_checksum() {
        let fits = |batch: &Batch| batch.requests().next().unwrap().is_intact();
        let (intact, stops) = delivered_changed(false, None);
        assert!(!stops && intact.is_some_and(|batch| batch.is_intact() && fits(&batch)));
        for at in 0..8 + 7 {
            let (changed, stops) = delivered_changed(false, Some(at));
            assert_eq!((changed.is_none(), stops), (at < 4, at < 4), "its length is in the first four bytes");
            assert!(changed.is_none_or(|batch| !batch.is_intact() && !fits(&batch)), "{at}");
        }
    }

    /// No request's checksum covers the connection that it came over.
    #[test]
    fn a_batch_with_streams_that_has_changed_is_not_delivered() {
        assert!(!delivered_changed(true, None).1);
        for at in 0..12 + 7 {
            assert_eq!(delivered_changed(true, Some(at)), (None, true), "{at}");
        }
    }

    #[test]
    fn who_is_served_by_nobody_disturbs_the_others_less_and_less() {
        let mut orderer = Orderer::new(Config::new(0, 3, 1), Unserved::default(), State::default());
        let ticks = |orderer: &mut Orderer<Unserved>, count: u32| {
            for _ in 0..count {
                orderer.tick();
                orderer.pump(0);
            }
            orderer.engine.campaigns
        };
        assert_eq!(ticks(&mut orderer, 10_000), 0, "nothing is waited for");
        let request = Request { checksum: 0, stream: 0, bytes: Bytes::from_static(b"request") };
        orderer.submit(request, 1, 7).unwrap();
        assert_eq!(ticks(&mut orderer, 79), 0);
        assert_eq!(ticks(&mut orderer, 80), 1);
        assert_eq!(ticks(&mut orderer, 160), 2);
        assert_eq!(
            ticks(&mut orderer, 80 * 1_000),
            2 + 3 + 30,
            "after 4, 8 and 16 times as long, then 32 times"
        );
    }
}
