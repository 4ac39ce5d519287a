//! One member of a group: the engine, stepped by hand, and its log. Input that could make the engine panic is stopped
//! here.

mod finality;
mod guard;
mod numbers;
mod own;
mod sending;

use std::panic::{AssertUnwindSafe, catch_unwind};

use ::raft::eraftpb::{Entry, EntryType, Message, MessageType};
use ::raft::{Config, RawNode, Ready, StateRole};
use bytes::Bytes;
use object::Code;
use slog::{Discard, Logger, o};
use wire::mix;

use crate::batch::Encoded;
use crate::engine::{Blame, Committed, CorruptPart, EngineOut, FailStop, NotNow, Output};
use crate::frame::FrameKind;
use crate::limits;
use crate::log::{Hard, LogError, LogStore};
use crate::raft::RaftConfig;
use crate::raft::boot::Control;
use crate::raft::check::{self, Implausible, View};
use crate::raft::codec::{self, Received};
use crate::raft::lead::Lead;
use crate::raft::members::{Change, Configuration, incarnation_of, slot_of};
use crate::raft::storage::{GENESIS, Mirror};
use crate::stamps::RefusedStamps;
use numbers::Critical;
use own::OwnBatches;

/// A member's knowledge of the replica in another slot.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Peer {
    pub up: bool,
    /// Tick of its last message.
    pub last_received: u64,
    /// The index up to which its pipeline took delivery.
    pub delivered: u64,
    /// Tick at which it last took an entry, or had taken all of them.
    pub moved: u64,
    /// First entry of its log, as a follower told it.
    pub first: u64,
    /// It was close to the leader once and bounds the proposals since.
    pub in_sync: bool,
    /// Ticks since it was offered a snapshot without an answer.
    pub snapshot_ticks: u64,
    /// It has sent messages as a member over this connection: its process is the one that is in.
    pub spoke: bool,
    /// It has sent messages as a member of another group over this connection.
    pub is_elsewhere: bool,
    /// A term that it claims, and that was not accepted.
    pub far_term: u64,
    /// Its own batches up to this entry are sent to it with their requests.
    pub whole_to: u64,
}

/// A member of a group. `raw` is changed only inside [`Node::guard`].
// large: the rules of Raft all read and write the same numbers, which one seal covers
pub(crate) struct Node<L: LogStore> {
    pub config: RaftConfig,
    pub raw: RawNode<Mirror<L>>,
    pub configuration: Configuration,
    pub peers: [Peer; limits::SLOTS],
    pub lead: Lead,
    pub ticks: u64,
    /// Ticks since there was a leader.
    pub leaderless: u64,
    /// Ticks without a commit since the present term began.
    pub uncommitted_ticks: u64,
    pub out: EngineOut,
    pub failed: Option<FailStop>,
    removed: bool,
    proposals: Vec<Entry>,
    /// A `Ready` whose entries were written and wait for the sync, with the messages that wait with it.
    pending: Option<(Ready, Vec<Message>)>,
    /// Clients of the leader wait for the last write.
    leader_waits: bool,
    /// Index of the last batch handed to the pipeline, and of the last it took.
    handed: u64,
    taken: u64,
    applied: u64,
    /// A snapshot that waits until the pipeline has the state in place.
    held: Option<Message>,
    installed: u64,
    leaders_floor: u64,
    campaigns: u64,
    followed: (u64, u64),
    gone: u16,
    /// Latest stamp of an entry that is accepted, in microseconds since 1970; the pipeline advances it.
    pub latest_us: u64,
    refused_stamps: RefusedStamps,
    /// Batches of this replica that were handed to the leader.
    pub own: OwnBatches,
    /// The group's future name, while an operator's decision is on its way into the log (`takeover`).
    pub renamed: Option<u64>,
    /// The code of the engine's numbers as the last round left them. The numbers are in the engine's own structs.
    sealed: Code,
    /// Within a round: what must be found as the last call of the engine has left it.
    left: Option<Critical>,
}

impl<L: LogStore> Node<L> {
    /// A member that continues after entry `applied` of `mirror`.
    pub fn new(config: RaftConfig, mirror: Mirror<L>, applied: u64) -> Result<Self, FailStop> {
        let applied = applied.max(mirror.start());
        let settings = Config {
            id: mirror.identity.id,
            election_tick: config.election_ticks.0,
            min_election_tick: config.election_ticks.0,
            max_election_tick: config.election_ticks.1,
            heartbeat_tick: config.heartbeat_ticks,
            applied,
            max_size_per_msg: limits::APPEND_BYTES as u64,
            max_inflight_msgs: limits::APPENDS_IN_FLIGHT,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: limits::UNCOMMITTED_BYTES,
            ..Config::default()
        };
        let configuration = mirror.configuration_at(u64::MAX);
        let logger = Logger::root(Discard, o!());
        let built = catch_unwind(AssertUnwindSafe(|| RawNode::new(&settings, mirror, &logger)));
        let raw = match built {
            Ok(Ok(raw)) => raw,
            Ok(Err(error)) => return Err(FailStop::Engine(error.to_string())),
            Err(_) => return Err(FailStop::Engine("the log contradicts itself".into())),
        };
        let mut node = Node {
            config,
            raw,
            configuration,
            peers: [Peer::default(); limits::SLOTS],
            lead: Lead::default(),
            ticks: 0,
            leaderless: 0,
            uncommitted_ticks: 0,
            out: EngineOut::default(),
            failed: None,
            removed: false,
            proposals: Vec::new(),
            pending: None,
            leader_waits: true,
            handed: applied,
            taken: applied,
            applied,
            held: None,
            installed: applied,
            leaders_floor: 0,
            campaigns: 0,
            followed: (0, 0),
            gone: 0,
            latest_us: u64::MAX,
            refused_stamps: RefusedStamps::default(),
            own: OwnBatches::default(),
            renamed: None,
            sealed: Code::new(),
            left: None,
        };
        node.update_commit_messages();
        node.seal();
        Ok(node)
    }

    pub fn mirror(&self) -> &Mirror<L> {
        self.raw.store()
    }

    pub fn id(&self) -> u64 {
        self.mirror().identity.id
    }

    /// The name of the group.
    pub fn group(&self) -> u64 {
        self.renamed.or(self.configuration.group).unwrap_or(self.mirror().identity.group)
    }

    /// Replicas that have sent messages as members over the present connections, as a set of slots.
    pub fn spoken(&self) -> u16 {
        (0..).zip(&self.peers).filter(|(_, peer)| peer.spoke).fold(0, |slots, (slot, _)| slots | 1 << slot)
    }

    /// Ticks within which each replica that is up has sent a message, when there is no leader.
    pub fn two_elections(&self) -> u64 {
        2 * self.config.election_ticks.1 as u64
    }

    /// Whether this replica has no vote, and no leader of its group has sent anything for two elections. Its group may
    /// go on without it, under another name, by an operator's decision: no replica counts it there, or sends it a
    /// message. And as it stands for no election, it sends none that would be answered. So it has to ask.
    pub fn may_be_forgotten(&self) -> bool {
        let has_vote = self.configuration.voters.contains(&self.id());
        !has_vote && self.ticks > self.two_elections() && !self.is_led()
    }

    /// Whether the leader, if there is one, has sent a message within two elections.
    fn is_led(&self) -> bool {
        let since = self.ticks.saturating_sub(self.two_elections());
        let leader = self.leader_slot().and_then(|leader| self.peers.get(usize::from(leader)));
        leader.is_some_and(|leader| leader.last_received >= since)
    }

    /// That replica's answer to the question of [`Node::may_be_forgotten`] names another group. A replica that has
    /// nothing of its own gives nothing up and asks to be let in there. One that has a state, with which an operator
    /// could have its own group go on, needs the word of f+1: one may be wrong.
    pub fn is_forgotten_by(&mut self, from: u8) {
        self.is_elsewhere(from);
        let is_empty = (self.mirror().start(), self.mirror().last()) == (0, 0);
        let many = self.elsewhere().count_ones() > u32::from(self.config.voting) / 2;
        if self.may_be_forgotten() && (is_empty || many) {
            self.remove();
        }
    }

    /// Those of them that have done so within two elections.
    pub fn present(&self) -> u16 {
        let since = self.ticks.saturating_sub(self.two_elections());
        let is_present = |peer: &Peer| peer.up && peer.spoke && peer.last_received >= since;
        (0..)
            .zip(&self.peers)
            .filter(|(_, peer)| is_present(peer))
            .fold(0, |slots, (slot, _)| slots | 1 << slot)
    }

    /// Replicas that have sent messages as members of another group.
    pub fn elsewhere(&self) -> u16 {
        let slots = (0..).zip(&self.peers).filter(|(_, peer)| peer.is_elsewhere);
        slots.fold(0, |slots, (slot, _)| slots | 1 << slot)
    }

    /// That replica's message names this group, which is not this replica's.
    pub fn is_elsewhere(&mut self, from: u8) {
        if let Some(peer) = self.peers.get_mut(usize::from(from)) {
            peer.is_elsewhere = true;
        }
    }

    pub fn is_removed(&self) -> bool {
        self.removed
    }

    pub fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    pub fn leader_slot(&self) -> Option<u8> {
        slot_of(self.raw.raft.leader_id)
    }

    /// Log length with the entries that are about to be appended.
    pub fn last_index(&self) -> u64 {
        self.raw.raft.raft_log.last_index() + self.proposals.len() as u64
    }

    /// The pipeline has taken all entries up to here, counting entries it never sees.
    pub fn delivered(&self) -> u64 {
        if self.taken >= self.handed { self.applied } else { self.taken }
    }

    pub fn floor(&self) -> u64 {
        if self.is_leader() { self.leading_floor() } else { self.leaders_floor.min(self.delivered()) }
    }

    pub fn take_delivery(&mut self, index: u64) {
        self.taken = self.taken.max(index);
    }

    pub fn needs_persist(&self) -> bool {
        self.failed.is_none() && self.pending.is_some()
    }

    pub fn fail(&mut self, reason: FailStop) {
        if self.failed.is_none() {
            self.failed = Some(reason.clone());
            self.out.committed.clear();
            self.out.outputs.push_back(Output::FailStop(reason));
        }
    }

    pub fn propose(&mut self, encoded: Encoded) -> Result<(), NotNow> {
        if self.failed.is_some() || !self.is_leader() || self.raw.raft.lead_transferee.is_some() {
            return Err(NotNow);
        }
        self.proposals.push(Entry { context: encoded.head, data: encoded.body, ..Entry::default() });
        Ok(())
    }

    /// Proposes one membership change; the caller made sure that none is pending.
    pub fn propose_change(&mut self, change: Change) {
        let mut entry = Entry::default();
        entry.set_entry_type(EntryType::EntryConfChange);
        entry.context = change.encode();
        self.finish_ready();
        self.guard(|node| _ = node.raw.step(proposal(vec![entry])));
    }

    /// Proceeds as far as possible without the disk.
    pub fn pump(&mut self) {
        self.begin_round();
        self.move_on();
        if self.pending.is_none() && self.let_in() {
            self.move_on();
        }
    }

    fn move_on(&mut self) {
        self.guard(|node| {
            loop {
                node.flush_proposals();
                if node.pending.is_some() || !node.raw.has_ready() {
                    break;
                }
                node.begin();
                if node.failed.is_some() || node.mirror().store.needs_sync() {
                    break;
                }
                node.finish();
            }
            node.announce_leader();
        });
    }

    /// Syncs the writes that wait for the disk, and continues.
    pub fn persist(&mut self) {
        self.finish_ready();
        self.pump();
    }

    /// The engine accepts no input while a `Ready` is open.
    pub fn finish_ready(&mut self) {
        if self.pending.is_some() {
            self.guard(Self::finish);
        }
    }

    pub fn tick(&mut self) {
        self.ticks += 1;
        self.leaderless = if self.leader_slot().is_some() { 0 } else { self.leaderless + 1 };
        self.uncommitted_ticks = if self.has_committed_in_term() { 0 } else { self.uncommitted_ticks + 1 };
        self.finish_ready();
        self.guard(|node| {
            node.raw.tick();
            if node.may_be_forgotten() {
                // The engine of a replica without a vote would believe in its leader for ever.
                node.raw.raft.leader_id = ::raft::INVALID_ID;
            }
            let candidate = matches!(node.raw.raft.state, StateRole::Candidate | StateRole::PreCandidate);
            if candidate && node.raw.raft.election_elapsed == 0 {
                node.campaigns += 1;
            }
            if node
                .held
                .as_ref()
                .is_some_and(|m| node.raw.raft.raft_log.committed >= m.get_snapshot().get_metadata().index)
            {
                node.held = None;
            }
        });
    }

    /// The log's periodic writes.
    pub fn tick_store(&mut self) {
        if self.failed.is_none()
            && let Err(error) = self.raw.mut_store().store.tick()
        {
            self.fail(FailStop::of_log(&error));
        }
    }

    /// Calls an election against a leader whose stamps have been refused for a while.
    pub fn replace_leader_of_refused_stamps(&mut self) {
        let leader = self.raw.raft.leader_id;
        if self.is_leader() || !self.refused_stamps.is_due(leader, self.ticks) {
            return;
        }
        if let Some(leader) = slot_of(leader) {
            let ahead_us = self.refused_stamps.ahead_us;
            self.out.outputs.push_back(Output::StampsRefused { leader, ahead_us });
        }
        self.campaign();
    }

    pub fn peer_up(&mut self, peer: u8) {
        self.send_whole(peer);
        let known = &mut self.peers[usize::from(peer)];
        (known.up, known.spoke, known.far_term) = (true, false, 0);
        self.finish_ready();
        self.guard(|node| node.raw.ping());
    }

    pub fn peer_down(&mut self, peer: u8) {
        let known = &mut self.peers[usize::from(peer)];
        (known.up, known.spoke) = (false, false);
        self.finish_ready();
        self.guard(|node| {
            if node.is_leader() {
                node.lost_follower(peer);
            } else if node.leader_slot() == Some(peer) {
                node.lost_leader(peer);
            }
        });
    }

    /// Stands for election as if the leader had handed over: the others vote although they receive the leader's
    /// heartbeats. A replica that lacks a committed entry is still refused.
    pub fn campaign(&mut self) {
        let mut now = Message::default();
        now.set_msg_type(MessageType::MsgTimeoutNow);
        now.to = self.id();
        self.finish_ready();
        self.guard(|node| _ = node.raw.step(now));
    }

    pub fn on_message(&mut self, from: u8, body: Bytes) -> Result<(), Blame> {
        let mut received = codec::decode(body).map_err(Blame::malformed(from))?;
        if self.failed.is_some() {
            return Ok(());
        }
        if received.envelope.group != self.group() {
            self.is_elsewhere(from);
            // No other replica informs it: this group does not count it as a member.
            let control = Control::Gone { group: self.group(), id: received.message.from };
            self.out.send(from, FrameKind::Control, control.encode());
            return Ok(());
        }
        let sender = received.message.from;
        let latest = self.configuration.incarnations.get(&from).map_or(0, |latest| latest.incarnation);
        if slot_of(sender) == Some(from) && incarnation_of(sender) < latest {
            let gone = Control::Gone { group: self.group(), id: sender };
            self.out.send(from, FrameKind::Control, gone.encode());
            return Ok(());
        }
        if slot_of(received.message.to) == Some(self.config.slot) && received.message.to != self.id() {
            return Ok(()); // meant for another incarnation of ours
        }
        self.begin_round();
        if self.failed.is_some() {
            return Ok(());
        }
        self.finish_ready();
        if !self.is_term_plausible(from, received.message.term) {
            return Err(Blame::new(from, "its term is far beyond any that f+1 others have come to"));
        }
        let raft = &self.raw.raft;
        let view = View {
            id: raft.id,
            term: raft.term,
            last_index: raft.raft_log.last_index(),
            committed: raft.raft_log.committed,
            leader: raft.leader_id,
            latest_us: self.latest_us,
        };
        if let Some(believed) = check::leave_out_what_we_lack(&view, &mut received.message) {
            self.out.outputs.push_back(Output::Lacking { from, believed, last: view.last_index });
        }
        self.own.complete(self.config.slot, &mut received.message);
        match check::check(&view, from, &received) {
            Ok(()) => {
                if !received.message.entries.is_empty() {
                    self.refused_stamps.believed();
                }
                self.take_message(from, received);
            }
            Err(Implausible::Field(why)) => return Err(Blame::new(from, why)),
            Err(Implausible::Entry(index)) if self.own.is_at_fault(index, &received.message) => {
                if !self.config.own_entries.compared {
                    self.take_message(from, received);
                    return Ok(());
                }
                self.own.forget();
                return Err(Blame::new(self.config.slot, "a batch of its own changed while it was kept"));
            }
            Err(Implausible::Future(ahead_us)) => {
                self.refused_stamps.refused(sender, ahead_us, self.ticks);
                return Err(Blame::new(from, "an entry is stamped later than f+1 clocks allow"));
            }
            Err(Implausible::Entry(index)) => {
                let bad = Control::BadEntry { group: self.group(), index };
                self.out.send(from, FrameKind::Control, bad.encode());
                return Err(Blame::new(from, "an entry does not match its checksum"));
            }
        }
        Ok(())
    }

    /// Elections take single steps: a term far ahead is a corrupted one, unless f+1 others have reached such a term. A
    /// replica that has no log yet cannot decide this.
    fn is_term_plausible(&mut self, from: u8, term: u64) -> bool {
        let own = self.raw.raft.term;
        let is_far = |term: u64| term > own + limits::TERM_STEP;
        if own == 0 || !is_far(term) {
            return true;
        }
        self.peers[usize::from(from)].far_term = term;
        let others = self.peers.iter().filter(|peer| is_far(peer.far_term)).count();
        others > usize::from(self.config.voting) / 2
    }

    /// Whether the incarnation that a batch names was let into the group: every replica sees the same changes before
    /// it.
    fn is_of_known_incarnation(&self, head: &[u8]) -> bool {
        let Some((origin, incarnation)) = Encoded::claimed_incarnation(head) else { return true };
        let latest = self.configuration.incarnations.get(&origin);
        latest.is_none_or(|latest| incarnation >> 32 <= u64::from(latest.incarnation))
    }

    /// The pipeline has the state after `cut` in place: the snapshot that names it may take effect.
    pub fn installed(&mut self, cut: u64) -> bool {
        let Some(message) = self.held.take_if(|m| m.get_snapshot().get_metadata().index == cut) else {
            return false;
        };
        self.finish_ready();
        if self.raw.raft.raft_log.committed >= cut {
            return false;
        }
        self.installed = cut;
        self.taken = self.taken.max(cut);
        self.handed = self.handed.max(cut);
        self.guard_received(message.term, |node| _ = node.raw.step(message));
        true
    }

    /// The state after `cut` is not available: the leader should offer another.
    pub fn state_lost(&mut self, cut: u64) {
        self.held = None;
        if let Some(leader) = self.leader_slot() {
            let lost = Control::StateLost { group: self.group(), cut };
            self.out.send(leader, FrameKind::Control, lost.encode());
        }
    }

    /// A peer reports that our id was replaced. One peer may be wrong; f+1 are not.
    pub fn on_gone(&mut self, from: u8, id: u64) {
        if id == self.id() {
            self.gone |= 1 << from;
        }
        if self.gone.count_ones() > u32::from(self.config.voting) / 2 {
            self.remove();
        }
    }

    fn take_message(&mut self, from: u8, received: Received) {
        let Received { envelope, message, .. } = received;
        self.note_peer(from, &envelope);
        if message.reject && message.get_msg_type() == MessageType::MsgAppendResponse {
            self.send_whole(from);
        }
        if message.get_msg_type() == MessageType::MsgSnapshot && self.hold(from, &message) {
            return;
        }
        self.guard_received(message.term, |node| _ = node.raw.step(message));
        if self.leader_slot() == Some(from) {
            self.leaders_floor = envelope.floor;
        }
    }

    /// A snapshot is only a promise: it takes effect when the state that it names is in place.
    fn hold(&mut self, from: u8, message: &Message) -> bool {
        let index = message.get_snapshot().get_metadata().index;
        let raft = &self.raw.raft;
        let nothing_to_fetch =
            index == GENESIS || index == self.installed || index <= raft.raft_log.committed;
        if nothing_to_fetch || message.term < raft.term {
            return false;
        }
        let known = self.held.as_ref().is_some_and(|held| held.get_snapshot().get_metadata().index == index);
        self.held = Some(message.clone());
        if !known {
            self.out.outputs.push_back(Output::NeedState { index, from });
        }
        true
    }

    fn flush_proposals(&mut self) {
        if self.proposals.is_empty() || self.pending.is_some() {
            return;
        }
        let entries = std::mem::take(&mut self.proposals);
        if self.raw.step(proposal(entries.clone())).is_err() && self.is_leader() {
            // A hand-over is in progress, or too much is uncommitted: tried again with the next pump.
            self.proposals = entries;
        }
    }

    /// Takes a `Ready` as far as the sync: the leader's immediate messages, the writes, the committed entries.
    fn begin(&mut self) {
        let mut ready = self.raw.ready();
        let messages = ready.take_messages();
        self.send(messages);
        let written = self.write(&ready);
        let committed = ready.take_committed_entries();
        let persisted = ready.take_persisted_messages();
        match written {
            Ok(()) if self.failed.is_some() => {}
            Ok(()) => {
                self.commit(committed);
                self.pending = Some((ready, persisted));
            }
            Err(error) => self.fail(FailStop::of_log(&error)),
        }
    }

    fn write(&mut self, ready: &Ready) -> Result<(), LogError> {
        if !ready.snapshot().is_empty() {
            let snapshot = ready.snapshot();
            let (index, term) = (snapshot.get_metadata().index, snapshot.get_metadata().term);
            let mut reader = wire::Reader::new(&snapshot.data);
            // It was decoded when it arrived.
            let Ok(configuration) = Configuration::decode(&mut reader) else {
                self.fail(FailStop::Corrupted(CorruptPart::Membership));
                return Ok(());
            };
            self.raw.mut_store().reset(index, term, configuration.clone())?;
            self.applied = self.applied.max(index);
            self.configure(index, configuration);
        }
        let leader = self.leader_slot();
        let leaders = |entry: &Entry| {
            let origin = Encoded::claimed_origin(&entry.context);
            entry.get_entry_type() != EntryType::EntryNormal || origin.is_none() || origin == leader
        };
        self.leader_waits = ready.entries().is_empty() || ready.entries().iter().any(leaders);
        self.raw.mut_store().append(ready.entries())?;
        let Some(hard) = ready.hs() else { return Ok(()) };
        if ready.must_sync() {
            self.raw.mut_store().set_hard(Hard::from(hard))
        } else {
            self.raw.mut_store().set_commit(hard.commit);
            Ok(())
        }
    }

    /// After the sync: acknowledges, and learns which entries became committed by it.
    fn finish(&mut self) {
        let Some((ready, persisted)) = self.pending.take() else { return };
        if self.mirror().store.needs_sync()
            && let Err(error) = self.raw.mut_store().store.sync()
        {
            return self.fail(FailStop::of_log(&error));
        }
        self.send(persisted);
        self.commit_early();
        let mut light = self.raw.advance_append(ready);
        if let Some(commit) = light.commit_index() {
            self.raw.mut_store().set_commit(commit);
        }
        self.send(light.take_messages());
        self.commit(light.take_committed_entries());
        self.raw.advance_apply();
    }

    fn commit(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.applied = entry.index;
            match entry.get_entry_type() {
                EntryType::EntryNormal if entry.context.is_empty() => {}
                // Otherwise the replica in that slot would never be served again: its batches would be those of an
                // earlier incarnation.
                EntryType::EntryNormal if !self.is_of_known_incarnation(&entry.context) => {}
                EntryType::EntryNormal => {
                    self.handed = entry.index;
                    self.own.forget_to(self.config.slot, &entry.context);
                    let encoded = Encoded { head: entry.context, body: entry.data };
                    self.out.committed.push_back(Committed::whole(entry.index, encoded));
                }
                EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => self.commit_change(&entry),
            }
        }
    }

    fn commit_change(&mut self, entry: &Entry) {
        let Ok(change) = Change::decode(&entry.context) else {
            return self.fail(FailStop::LogCorrupt { index: entry.index });
        };
        // Every replica finds the same changes impossible, and skips them.
        let Some(next) = self.configuration.after(change) else { return };
        if let Err(error) = self.raw.apply_conf_change(&change.conf_change()) {
            return self.fail(FailStop::Engine(error.to_string()));
        }
        if let Change::TakeOver { id, group } = change {
            self.count_only(id);
            self.renamed.take_if(|renamed| *renamed == group);
        } else if self.renamed.is_some() {
            // An earlier change was proposed before the takeover: still no other replica counts.
            self.count_only(self.id());
        }
        if let Err(error) = self.raw.mut_store().set_membership(entry.index, next.clone()) {
            return self.fail(FailStop::of_log(&error));
        }
        self.configure(entry.index, next);
        self.welcome();
    }

    fn configure(&mut self, index: u64, configuration: Configuration) {
        let members = configuration.members();
        for slot in 0..limits::SLOTS as u8 {
            if configuration.in_slot(slot) != self.configuration.in_slot(slot) {
                let peer = &mut self.peers[usize::from(slot)];
                *peer = Peer { up: peer.up, ..Peer::default() };
                self.send_whole(slot);
            }
        }
        let was_member = self.configuration.contains(self.id());
        self.configuration = configuration;
        self.update_commit_messages();
        self.out.outputs.push_back(Output::Membership { index, members });
        if was_member && !self.configuration.contains(self.id()) {
            self.remove();
        }
    }

    pub fn remove(&mut self) {
        if !self.removed {
            self.removed = true;
            self.out.outputs.push_back(Output::Removed);
        }
    }

    fn announce_leader(&mut self) {
        let now = (self.raw.raft.leader_id, self.raw.raft.term);
        if now != self.followed {
            self.followed = now;
            self.uncommitted_ticks = 0;
            self.proposals.clear();
            self.lead.begin_term();
            if !self.is_leader() {
                // Another leader offers its own: the log is not kept for these any more.
                self.raw.mut_store().offers.clear();
            }
            self.out.outputs.push_back(Output::LeaderChanged { leader: slot_of(now.0), term: now.1 });
        }
    }

    /// The connection to the leader broke: campaign soon, one after the other, instead of after the whole timeout. A
    /// replica that still receives the leader's heartbeats ignores the campaign (pre-vote and lease), so a broken cable
    /// alone deposes no leader.
    fn lost_leader(&mut self, leader: u8) {
        let voters = self.configuration.members().voters & !(1 << leader);
        let before_us = (voters & ((1 << self.config.slot) - 1)).count_ones() as usize;
        self.raw.raft.leader_id = ::raft::INVALID_ID;
        self.raw.raft.election_elapsed = self.election_timeout().saturating_sub(1 + 2 * before_us);
    }

    /// A function of seed, id, term and failed campaigns: the engine's own would be the only random thing in
    /// a simulation.
    fn election_timeout(&self) -> usize {
        let (min, max) = self.config.election_ticks;
        let seed =
            [self.id(), self.raw.raft.term, self.campaigns].iter().fold(self.config.seed, |s, &x| mix(s ^ x));
        min + (seed % (max - min) as u64) as usize
    }
}

fn proposal(entries: Vec<Entry>) -> Message {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgPropose);
    message.set_entries(entries.into());
    message
}
