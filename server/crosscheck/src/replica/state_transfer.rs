//! State transfer and checkpoints: which replica sends its state to which, when the state is on disk, and how far the
//! log may then be dropped.

use bytes::Bytes;
use order::FrameKind;
use wire::ReplicaId;

use super::disk_states::{DiskState, StateUse};
use super::disk_writer::DiskWriter;
use super::environment::Environment;
use super::order_stage::OrderStage;
use crate::admin::CopyProgress;
use crate::hooks::{self, FaultPoint, Hooks, Rule};
use crate::ordered::Control;
use crate::packed_state::{self, PackedState};
use crate::settings::Durability;
use crate::snapshot::Extent;
use crate::transfer::{Donor, Message, Offer, Progress, Receiver, StateEnd, TakenPiece};
use crate::world::{Observation, World};
use crate::{evidence, limits, state};

/// The states that this replica sends, receives, and has on disk.
#[derive(Default)]
pub(super) struct StateTransfer {
    pub(super) donor: Donor,
    receiver: Option<Receiver>,
    /// When the receiver began, or a piece came.
    received_us: u64,
    /// The pieces of a state that cannot be put in place as they come.
    collected: Vec<Bytes>,
    /// The copy that donors have begun last, and when that was heard here.
    begun_elsewhere: Option<(u64, u64)>,
    /// The replica, from 0, whose state an operator decided to take without the agreement of others.
    trusted: Option<u8>,
    /// A copy of the state is wanted, or of what has changed, which the leader begins.
    wants_copy: Option<Extent>,
    /// When this replica has last had it ordered that it lacks a copy on its disk.
    lacked_us: Option<u64>,
    /// A CHECKPOINT is being ordered.
    is_checkpoint_ordered: bool,
    /// The states on the disk, and on their way there.
    pub(super) disk: DiskWriter,
    /// A replica without which nothing can be ordered, no CHECKPOINT either, needs the state as it is: it is packed as
    /// soon as nothing is in execution, and no batch is delivered before.
    pub(super) wants_unordered: bool,
    /// In verified mode: the replica whose state was taken last without the agreement of others.
    alone: Option<u8>,
    /// In verified mode: the replica whose state was the wrong one.
    distrusted: Option<u8>,
}

/// A whole state that has come from others.
pub(super) struct Arrived {
    /// Its log index.
    pub(super) index: u64,
    pub(super) state: PackedState,
}

impl StateTransfer {
    /// A replica needs a state that does not exist yet: the leader orders a copy.
    pub(super) fn want_checkpoint<W: World>(&mut self, env: &Environment<W>) {
        // Without determinism replicas have no common state, and turns no order to pack one in.
        self.wants_copy = env.settings.mode.has_common_state().then_some(Extent::Whole);
    }

    /// Whether a copy of the state is wanted since the last call.
    pub(super) fn take_wanted_copy(&mut self) -> Option<Extent> {
        self.wants_copy.take()
    }

    /// What has changed since the last checkpoint on disk is being packed, to be written behind that. False if it
    /// cannot be written now.
    pub(super) fn begin_changes<W: World>(&mut self, env: &mut Environment<W>) -> bool {
        self.disk.begin((StateUse::Shorten, Extent::Changes), env)
    }

    /// The changes are whole: with them, the state after entry `index` is on disk.
    pub(super) fn end_changes<W: World>(&mut self, index: u64, last: &PackedState, env: &Environment<W>) {
        self.is_checkpoint_ordered = false;
        self.disk.put_all(StateUse::Shorten, last);
        self.disk.end(StateUse::Shorten, index, env.world.now_us());
    }

    /// The CHECKPOINT at the end of a copy is being ordered: the log after it will be needed.
    pub(super) fn on_checkpoint_ordered(&mut self) {
        self.is_checkpoint_ordered = true;
    }

    /// Whether this replica waits for a state, or receives one.
    pub(super) fn is_receiving(&self) -> bool {
        self.receiver.is_some() || self.disk.states().installs()
    }

    /// The leader or the members have changed: a requested checkpoint may have been lost.
    pub(super) fn forget_requested(&mut self) {
        self.is_checkpoint_ordered = false;
        self.wants_unordered = false;
    }

    /// The workers made the checkpoint. With a disk, it has to be there before the log up to it may be dropped.
    pub(super) fn on_checkpoint<W: World>(
        &mut self,
        head: &state::CheckpointHead,
        state: PackedState,
        order: &mut OrderStage,
        env: &mut Environment<W>,
    ) {
        self.is_checkpoint_ordered = false;
        self.offer(head.index, state, order, env);
    }

    /// Log index of the state that can be fetched from here, and the pieces of the one that is fetched: those that have
    /// come, and all as far as that is known.
    pub(super) fn marks(&self) -> (Option<u64>, Option<(usize, usize)>) {
        let pieces = |receiver: &Receiver| match receiver.progress() {
            Some(progress) => {
                let all = progress.end.map_or(progress.pieces + 1, |end| end.pieces);
                (progress.pieces as usize, all as usize)
            }
            None => (0, 0),
        };
        (self.donor.offered(), self.receiver.as_ref().map(pieces))
    }

    /// A copy of the state is being made here: receivers can begin with it, and peers learn of it that do not know yet
    /// that they will need one.
    pub(super) fn begin_copy<W: World>(
        &mut self,
        copy: u64,
        order: &mut OrderStage,
        env: &mut Environment<W>,
    ) {
        self.disk.begin((StateUse::Shorten, Extent::Whole), env);
        if let Some(index) = self.donor.begin(copy, env.world.now_us()) {
            order.orderer.state_freed(index);
        }
        let offer = Offer { copy, alone: false, end: None, first: 0, digests: Vec::new() };
        let offer = Message::Offer(offer).encode();
        let peers: Vec<u8> = env.peers.connected().collect();
        peers.into_iter().for_each(|peer| env.peers.send(peer, FrameKind::Transfer, &[&offer]));
    }

    /// The next pieces of the copy.
    pub(super) fn add_to_copy<W: World>(&mut self, copy: u64, pieces: PackedState, env: &mut Environment<W>) {
        if pieces.pieces().is_empty() {
            return;
        }
        let announced = self.donor.add(copy, &pieces, env.world.now_us());
        send_all(announced, env);
        self.disk.put_all(StateUse::Shorten, &pieces);
    }

    /// The copy is whole: the state after entry `index`.
    pub(super) fn end_copy<W: World>(
        &mut self,
        (copy, index): (u64, u64),
        rest: PackedState,
        order: &mut OrderStage,
        env: &mut Environment<W>,
    ) {
        self.is_checkpoint_ordered = false;
        let announced = self.donor.end(copy, index, &rest, env.world.now_us());
        send_all(announced, env);
        env.world.see(Observation::StateMade { index, digests: self.donor.digests() });
        // Peers fetch it from memory, and wait for no disk. The log is kept until the state is on this replica's own.
        order.orderer.state_available(index);
        self.disk.put_all(StateUse::Shorten, &rest);
        self.disk.end(StateUse::Shorten, index, env.world.now_us());
    }

    /// The copy will not be finished here.
    pub(super) fn abandon_copy(&mut self, copy: u64) {
        self.donor.abandon(copy);
        self.disk.give_up(StateUse::Shorten);
    }

    /// Bytes that have arrived of the state that is being received.
    pub(super) fn received(&self) -> Option<u64> {
        let receiver = self.receiver.as_ref()?;
        Some(receiver.progress().map_or(0, |progress| progress.bytes))
    }

    /// How far the state is that this replica receives, at this rate, or writes to its disk to put it in place.
    pub(super) fn receiving(&self, bytes_per_second: u64) -> Option<CopyProgress> {
        let Some(receiver) = &self.receiver else {
            let bytes = self.disk.state_bytes();
            let (from, received, total) = (Vec::new(), bytes, Some(bytes));
            return self.disk.states().installs().then_some(CopyProgress {
                from,
                received,
                total,
                bytes_per_second,
            });
        };
        let Some(Progress { from, bytes, end, .. }) = receiver.progress() else {
            return Some(CopyProgress { bytes_per_second, ..CopyProgress::default() });
        };
        let from = from.into_iter().map(|donor| donor + 1).collect();
        let total = end.map(|end| end.length);
        Some(CopyProgress { from, received: bytes, total, bytes_per_second })
    }

    /// The state after entry `index` may be fetched from here.
    fn offer<W: World>(
        &mut self,
        index: u64,
        state: PackedState,
        order: &mut OrderStage,
        env: &mut Environment<W>,
    ) {
        env.world.see(Observation::StateMade { index, digests: state.digests() });
        let announced = self.donor.offer(index, &state, env.world.now_us());
        send_all(announced, env);
        // Peers fetch it from memory, and wait for no disk. The log is kept until the state is on this replica's own.
        order.orderer.state_available(index);
        self.disk.keep(DiskState { index, state, used: StateUse::Shorten }, env);
    }

    /// This replica's log begins later than its state ends: entry `index` is the last before it.
    pub(super) fn need<W: World>(&mut self, index: u64, env: &mut Environment<W>) {
        let is_coming = self.receiver.as_ref().is_some_and(|receiver| receiver.wanted() == index);
        if is_coming || self.disk.states().is_installing(index) {
            return;
        }
        if !env.settings.mode.has_common_state() {
            env.world.say(format_args!(
                "in mode {} no peer can fill this replica: without determinism the replicas have no common \
                    state. Start the whole group again",
                env.settings.mode
            ));
        }
        match &mut self.receiver {
            Some(receiver) => receiver.need(index),
            None => self.begin_receiving(index, env),
        }
        self.poll(env);
    }

    /// This replica has no state, or lacks entries that others may not have any more: it will need a state of log index
    /// `floor` or later, and takes the one that is being packed while it is not known yet which one it will be.
    pub(super) fn prepare<W: World>(&mut self, floor: u64, env: &mut Environment<W>) {
        let has_state = env.settings.mode.has_common_state() && !env.settings.is_witness();
        if self.receiver.is_none() && has_state {
            self.begin_receiving(0, env);
        }
        self.receiver.iter_mut().for_each(|receiver| receiver.raise_floor(floor));
    }

    fn begin_receiving<W: World>(&mut self, index: u64, env: &Environment<W>) {
        let givers = env.members.voting - u8::from(env.settings.witness);
        let mut receiver = Receiver::new(env.settings.me, givers, index);
        if env.settings.mode.verified {
            receiver.believe_one(self.distrusted);
        }
        self.trusted.iter().for_each(|trusted| receiver.trust(*trusted));
        self.receiver = Some(receiver);
        self.received_us = env.world.now_us();
        self.collected = Vec::new();
    }

    /// Once per tick, at a replica that executes: it lacks the entries before a copy that began elsewhere a while ago.
    pub(super) fn prepare_if_behind<W: World>(&mut self, last_index: u64, env: &mut Environment<W>) {
        let lacks = |(copy, _): &(u64, u64)| *copy > last_index;
        let now_us = env.world.now_us();
        let patience_us = limits::BEHIND_PATIENCE.as_micros() as u64;
        match self.begun_elsewhere.filter(lacks) {
            Some((_, heard_us)) if now_us > heard_us + patience_us => self.prepare(0, env),
            Some(_) => {}
            None => {
                self.begun_elsewhere = None;
                // It was not far behind after all.
                self.receiver.take_if(|receiver| receiver.wanted() == 0);
            }
        }
    }

    /// Sends the requests that are due to the peers.
    pub(super) fn poll<W: World>(&mut self, env: &mut Environment<W>) {
        let now_us = env.world.now_us();
        if let Some(receiver) = &mut self.receiver {
            let before = receiver.believes();
            for (to, message) in receiver.poll(now_us) {
                env.peers.send(to, FrameKind::Transfer, &[&message.encode()]);
            }
            if let Some(donor) = receiver.believes().filter(|donor| before != Some(*donor)) {
                let (index, donor_id) = (receiver.wanted(), ReplicaId(donor));
                if env.settings.mode.verified {
                    return env.world.say(format_args!(
                        "this replica takes a state from replica {donor_id} alone: no other one has offered the same. \
                            It has to fit the token that the verifiers have recorded"
                    ));
                }
                env.world.say(format_args!(
                    "this replica takes the state after entry {index} on the word of replica {donor_id} alone: too \
                        few other replicas are there with their data, and without this one nothing can be ordered. \
                        Its objects are checked when they are used; nobody else could vouch for it"
                ));
                env.keep_evidence(evidence::believed(donor, index));
            }
        }
    }

    /// Gives up a state that the others do not offer alike: objects were corrupted when they packed it, or they do not
    /// keep it any more. A later one is requested: until then they repair theirs.
    pub(super) fn give_up_disagreed<W: World>(&mut self, order: &mut OrderStage, env: &Environment<W>) {
        // All make it at the same position, and a slow one of them takes longer.
        let patience_us = limits::OFFER_KEPT.as_micros() as u64;
        let now_us = env.world.now_us();
        let is_over = now_us.saturating_sub(self.received_us) > patience_us;
        // What one replica alone has may have ended with it.
        let is_of_one = |receiver: &Receiver| {
            env.settings.mode.verified && receiver.believes().is_some() && receiver.ended().is_none()
        };
        let is_lost = |receiver: &&mut Receiver| !receiver.is_agreed() || is_of_one(receiver);
        let Some(receiver) = self.receiver.as_mut().filter(|_| is_over).filter(is_lost) else { return };
        self.received_us = now_us;
        let wanted = receiver.wanted();
        receiver.give_up();
        if wanted > 0 {
            self.receiver = None;
            order.orderer.state_lost(wanted);
        }
        self.prepare_again(env);
    }

    /// In verified mode: the state that has come, or that comes, is the wrong one. Another one is asked for, if
    /// possible from another replica. Returns the one that had it alone.
    pub(super) fn refuse<W: World>(
        &mut self,
        order: &mut OrderStage,
        env: &Environment<W>,
        (index, is_wrong): (Option<u64>, bool),
    ) -> Option<u8> {
        let receiver = self.receiver.take();
        let alone = receiver.as_ref().map_or(self.alone, Receiver::believes);
        if is_wrong {
            self.distrusted = alone;
        }
        let index = index.or(receiver.map(|receiver| receiver.wanted())).filter(|index| *index > 0);
        index.into_iter().for_each(|index| order.orderer.state_lost(index));
        self.prepare_again(env);
        alone
    }

    /// In verified mode: the next state is taken while it is made, too.
    fn prepare_again<W: World>(&mut self, env: &Environment<W>) {
        if self.receiver.is_none() && env.settings.mode.verified {
            self.begin_receiving(0, env);
        }
    }

    /// A peer connected, which may have the requested state.
    pub(super) fn on_peer_up<W: World>(&mut self, env: &mut Environment<W>) {
        if let Some(receiver) = &mut self.receiver {
            receiver.on_up();
            self.poll(env);
        }
    }

    /// A receiver that is no replica has sent a message. What to answer; none if there is no answer to it.
    pub(super) fn on_other_receiver<W: World>(
        &mut self,
        receiver: u8,
        message: &Message,
        env: &mut Environment<W>,
    ) -> Option<Message> {
        let now_us = env.world.now_us();
        self.answer(receiver | limits::OTHER_RECEIVERS, message, (false, now_us), env)
    }

    fn answer<W: World>(
        &mut self,
        from: u8,
        message: &Message,
        (alone, now_us): (bool, u64),
        env: &mut Environment<W>,
    ) -> Option<Message> {
        Some(match self.donor.on_message(from, message, alone, now_us)? {
            Message::Piece { copy, piece, mut bytes } => {
                env.hooks.at(FaultPoint::Piece(&mut bytes));
                Message::Piece { copy, piece, bytes }
            }
            answer => answer,
        })
    }

    /// Handles a peer's message about a state.
    pub(super) fn on_message<W: World>(
        &mut self,
        from: u8,
        message: Message,
        order: &mut OrderStage,
        env: &mut Environment<W>,
    ) {
        let engine_status = order.orderer.engine_status();
        let alone = engine_status.is_leader && engine_status.stuck;
        let now_us = env.world.now_us();
        if let Some(answer) = self.answer(from, &message, (alone, now_us), env) {
            return env.peers.send(from, FrameKind::Transfer, &[&answer.encode()]);
        }
        let Some(receiver) = &mut self.receiver else {
            if let Message::Offer(Offer { copy, end: None, .. }) = message
                && self.begun_elsewhere.is_none_or(|(known, _)| known != copy)
            {
                self.begun_elsewhere = Some((copy, now_us));
            }
            return;
        };
        if !env.hooks.keeps(Rule::NeedsTwoOffers) && self.trusted.is_none() {
            self.trusted = Some(from);
            receiver.trust(from);
        }
        receiver.on_message(from, message, engine_status.leader == Some(from));
        if let Some(index) = receiver.overtaken_by() {
            // The engine waits for exactly the checkpoint it requested. It is informed, and requests the later one.
            let wanted = receiver.wanted();
            receiver.need(index);
            order.orderer.state_lost(wanted);
        }
        self.poll(env);
    }

    /// The next piece of the state that is fetched. All pieces are taken in turn. With a disk, those of a copy that are
    /// put in place at once are written there as they come; while the disk cannot take one, none is taken.
    pub(super) fn take_piece<W: World>(
        &mut self,
        in_place: bool,
        env: &mut Environment<W>,
    ) -> Option<TakenPiece> {
        let receiver = self.receiver.as_mut()?;
        let (number, is_packed_at_once) = receiver.next_piece()?;
        let is_on_disk = env.settings.durability.is_disk();
        let is_written = in_place && is_on_disk && !is_packed_at_once;
        if is_written && number == 0 && !self.disk.begin((StateUse::Install, Extent::Whole), env) {
            return None;
        }
        if is_written && self.disk.is_behind() {
            return None;
        }
        let piece = receiver.take_piece()?;
        self.received_us = env.world.now_us();
        if is_written {
            self.disk.put(StateUse::Install, piece.bytes.clone());
        }
        Some(piece)
    }

    /// All pieces of the needed state are in place. Whether it has to be durable first: a log on disk begins after it,
    /// and this replica will vote on later entries. With the process, the state would be lost, and its vote with it.
    pub(super) fn end_in_place<W: World>(&mut self, index: u64, env: &Environment<W>) -> bool {
        self.end_receiving();
        self.disk.end(StateUse::Install, index, env.world.now_us())
    }

    /// Keeps a piece until all have come.
    pub(super) fn collect(&mut self, TakenPiece { number, bytes, .. }: TakenPiece) {
        if number == 0 {
            self.collected.clear();
        }
        self.collected.push(bytes);
    }

    /// Log index of the needed state, if all of its pieces were taken.
    pub(super) fn arrived<W: World>(&mut self, env: &mut Environment<W>) -> Option<u64> {
        let receiver = self.receiver.as_ref()?;
        let StateEnd { index, .. } = receiver.ended().filter(|end| end.index == receiver.wanted())?;
        env.world.see(Observation::StateTaken { index, digests: receiver.digests() });
        // An operator's word is for one state.
        self.trusted = None;
        Some(index)
    }

    /// The state that has arrived is in place, or was of no use.
    pub(super) fn end_receiving(&mut self) {
        self.alone = self.receiver.take().and_then(|receiver| receiver.believes());
        self.collected = Vec::new();
    }

    /// In verified mode: the replica, from 0, that had the state alone which has arrived; none if f+1 had the same.
    pub(super) fn arrived_from(&self) -> Option<u8> {
        self.alone
    }

    /// The collected state, which has arrived, unless it has to be on disk first.
    pub(super) fn take_collected<W: World>(
        &mut self,
        index: u64,
        env: &mut Environment<W>,
    ) -> Option<Arrived> {
        let pieces = std::mem::take(&mut self.collected);
        self.end_receiving();
        let digests = pieces.iter().map(|piece| packed_state::digest(piece)).collect();
        let state = PackedState::of(pieces, digests);
        // As in `end_in_place`.
        let is_kept_first =
            self.disk.keep(DiskState { index, state: state.clone(), used: StateUse::Install }, env);
        (!is_kept_first).then_some(Arrived { index, state })
    }

    /// An operator decided to take the state of this replica, from 0, without the agreement of others.
    pub(super) fn trust(&mut self, replica: u8) {
        self.trusted = Some(replica);
        self.receiver.iter_mut().for_each(|receiver| receiver.trust(replica));
    }

    /// The state that this replica waits for and that lacks agreement: its log entry, and the replicas that have
    /// offered one.
    pub(super) fn awaited(&self) -> Option<(u64, u16)> {
        let receiver = self.receiver.as_ref();
        let receiver = receiver.filter(|receiver| receiver.wanted() > 0 && !receiver.is_agreed())?;
        Some((receiver.wanted(), super::replica_sets::bits(receiver.named())))
    }

    /// With its log on disk, the leader orders a checkpoint from time to time, so that logs stay short. Then entries
    /// that no replica needs are dropped, a few at a time.
    pub(super) fn compact<W: World>(
        &mut self,
        order: &mut OrderStage,
        env: &mut Environment<W>,
        (is_executing, has_kept): (bool, bool),
    ) {
        self.disk.tend(env);
        if let Some(index) = self.donor.free_unused(env.world.now_us()) {
            order.orderer.state_freed(index);
        }
        let disk = env.settings.durability.is_disk();
        let engine_status = order.orderer.engine_status();
        let entries = engine_status.commit_index.saturating_sub(self.disk.states().kept_index());
        // What is before the last checkpoint is dropped as soon as no other replica needs it.
        let all = (engine_status.commit_index + 1).saturating_sub(engine_status.first_index);
        let log_bytes = (engine_status.log_bytes / all.max(1)).saturating_mul(entries.min(all));
        let long = entries > entries_per_snapshot(env) || self.is_full(log_bytes, has_kept, env);
        let of_changes = has_kept && !self.disk.changes_outweigh();
        // One that is being written counts: its log index is not known to be kept before it is on the disk. And a whole
        // one would take the place of one that a peer fetches, which would begin again.
        let is_of_use =
            !self.disk.states().is_busy(env.world.now_us()) && (of_changes || !self.donor.is_fetched());
        if disk && engine_status.is_leader && long && is_executing && is_of_use {
            self.wants_copy.get_or_insert(if of_changes { Extent::Changes } else { Extent::Whole });
        } else if disk && !engine_status.is_leader && is_executing {
            self.report_lacking(entries, order, env);
        }
        let (floor, scale) = (order.orderer.compaction_floor(), env.world.scale());
        for _ in 0..limits::COMPACTIONS_PER_TICK {
            let log_bytes = order.orderer.engine_status().log_bytes;
            let is_large = log_bytes > env.settings.buffer_limit as u64 / scale.log_share;
            let keep_from = match env.settings.durability {
                // A state is being packed for a peer, which will need the entries after it.
                Durability::Memory if self.is_checkpoint_ordered => return,
                Durability::Memory if is_large => floor,
                Durability::Memory => floor.saturating_sub(scale.log_kept),
                Durability::Disk(_) if self.is_full(log_bytes, has_kept, env) => {
                    floor.min(self.disk.states().kept_index())
                }
                Durability::Disk(_) => {
                    let kept = entries_per_snapshot(env) / limits::KEPT_SHARE;
                    floor.saturating_sub(kept).min(self.disk.states().kept_index())
                }
            };
            if !order.orderer.compact_to(keep_from) {
                return;
            }
        }
    }

    /// A replica whose disk has none of the group's last checkpoints, because they could not be written there, needs a
    /// copy of the whole state. It has that ordered, so that the leader learns of it.
    fn report_lacking<W: World>(&mut self, entries: u64, order: &mut OrderStage, env: &Environment<W>) {
        let now_us = env.world.now_us();
        let is_lacking = entries > 2 * entries_per_snapshot(env) && !self.disk.states().is_busy(now_us);
        let pause_us = limits::COPY_PAUSE.as_micros() as u64;
        if is_lacking && self.lacked_us.is_none_or(|lacked_us| now_us > lacked_us + pause_us) {
            self.lacked_us = Some(now_us);
            order.submit_control(&Control::CopyWanted);
        }
    }

    /// Whether a log on disk, which is in memory too, takes its half of the buffers: then a checkpoint of what has
    /// changed costs no more writes than the log has cost. Where that cannot be had, it has to take more than the last
    /// state.
    fn is_full<W: World>(&self, log_bytes: u64, has_kept: bool, env: &Environment<W>) -> bool {
        let least = if has_kept { 0 } else { self.disk.state_bytes() };
        log_bytes > least.max(env.settings.buffer_limit as u64 / 2)
    }
}

fn send_all<W: World>(messages: Vec<(u8, Message)>, env: &mut Environment<W>) {
    for (peer, message) in messages {
        env.peers.send(peer, FrameKind::Transfer, &[&message.encode()]);
    }
}

/// Log entries after which a checkpoint is written to the disk.
fn entries_per_snapshot<W: World>(env: &Environment<W>) -> u64 {
    let injected = match &env.settings.durability {
        Durability::Disk(directory) => <hooks::Active as Hooks>::slow_disk(directory),
        Durability::Memory => None,
    };
    injected.map_or_else(|| env.world.entries_per_snapshot(), |slow| slow.entries_per_snapshot)
}
