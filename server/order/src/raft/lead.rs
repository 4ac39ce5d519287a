//! A leader's duties to others: letting lost replicas back in, waiting for slow ones, keeping the log they still need.

use std::collections::BTreeMap;

use ::raft::{Progress, ProgressState, SnapshotStatus};

use crate::engine::{Blame, MemberSet, Output, Tolerance};
use crate::frame::FrameKind;
use crate::limits;
use crate::log::LogStore;
use crate::raft::boot::Control;
use crate::raft::codec::Envelope;
use crate::raft::members::{Change, engine_id, slot_of};
use crate::raft::node::Node;

/// Ticks without an answer after which a snapshot is offered again, or a checkpoint is requested again.
const RETRY_TICKS: u64 = 40;
/// Ticks without a commit in its term after which a leader that is itself what a lagging voter waits for offers its
/// state without ordering a checkpoint: another member may be back by then, and vouch for it.
const STUCK_TICKS: u64 = 40;
/// Ticks for which clients are slowed down for a voter that catches up while the log is near its bound.
const PUSHBACK_TICKS: u64 = 40;

/// A leader's pending work for others; empty at a follower.
#[derive(Debug, Default)]
pub(crate) struct Lead {
    /// Incarnations that asked to join, by slot.
    joins: BTreeMap<u8, u64>,
    /// Tick at which a checkpoint was requested last.
    checkpoint_requested: Option<u64>,
    /// Tick at which the log came near the bound of what is kept for others; none while it is well below it.
    full_since: Option<u64>,
}

impl Lead {
    pub fn begin_term(&mut self) {
        *self = Lead::default();
    }
}

impl<L: LogStore> Node<L> {
    /// An incarnation of the replica in `slot` asks to join.
    ///
    /// # Errors
    /// [`Blame`] when the incarnation that is in has sent messages over the same connection: a process asks before it
    /// is in, and not afterwards.
    pub fn on_join(&mut self, slot: u8, nonce: u64) -> Result<(), Blame> {
        if self.peers[usize::from(slot)].spoke {
            return Err(Blame::new(slot, "asks to be let in although it is in"));
        }
        if self.is_leader() {
            self.lead.joins.insert(slot, nonce);
            self.welcome();
        }
        Ok(())
    }

    /// The holder of an id cannot get the state that we offered.
    pub fn on_state_lost(&mut self, slot: u8, cut: u64) {
        let Some(id) = self.configuration.in_slot(slot).filter(|_| self.is_leader()) else { return };
        if self.mirror().offers.get(&id).is_some_and(|offer| offer.index == cut) {
            self.raw.mut_store().offers.remove(&id);
            if self.mirror().cut.as_ref().is_some_and(|latest| latest.index == cut) {
                self.ask_for_checkpoint();
            }
            self.finish_ready();
            self.guard(|node| node.raw.report_snapshot(id, SnapshotStatus::Failure));
        }
    }

    /// Sends incarnations that are in their ids.
    pub fn welcome(&mut self) {
        let mut welcome = Vec::new();
        self.lead.joins.retain(|&slot, &mut nonce| {
            let Some(latest) = self.configuration.incarnations.get(&slot) else { return true };
            let id = engine_id(slot, latest.incarnation);
            let is_in = latest.nonce == nonce && self.configuration.contains(id);
            if is_in {
                welcome.push((slot, nonce, id));
            }
            !is_in
        });
        for (slot, nonce, id) in welcome {
            let control = Control::Welcome { nonce, group: self.group(), id };
            self.out.send(slot, FrameKind::Control, control.encode());
        }
    }

    /// Performs the steps that lost replicas wait for, as soon as each is due: one membership change at a time, and a
    /// checkpoint to begin with. Returns whether a change was proposed.
    pub fn let_in(&mut self) -> bool {
        let is_idle = self.lead.joins.is_empty()
            && self.configuration.learners.is_empty()
            && self.renamed.is_none()
            && !self.has_member_beyond();
        if is_idle || !self.is_leader() || self.failed.is_some() {
            return false;
        }
        self.hand_on_if_let_go();
        let change = self.next_change();
        if let Some(change) = change {
            self.propose_change(change);
        }
        self.checkpoint_if_wanted();
        change.is_some()
    }

    fn checkpoint_if_wanted(&mut self) {
        if self.mirror().wanted.take().is_some() {
            self.ask_for_checkpoint();
        }
    }

    /// The pipeline has a checkpoint: it is offered to waiting replicas now, and not with the next heartbeat.
    pub fn checkpoint_made(&mut self) {
        self.lead.checkpoint_requested = None;
        // Usually it was requested more than once while it was made. A replica that needs a later one asks again.
        self.mirror().wanted.take();
        if self.is_leader() {
            self.finish_ready();
            self.guard(|node| node.raw.ping());
        }
    }

    /// Once per tick, at the leader: repeats whatever was left unanswered.
    pub fn lead_on(&mut self) {
        if !self.is_leader() || self.failed.is_some() {
            return;
        }
        self.retry_snapshots();
        self.checkpoint_if_wanted();
        self.record_fullness();
        let ticks = self.ticks;
        let (peers, offer_ticks) = (self.peers, self.config.scale.offer_ticks);
        // Until the log flows again: the entries behind the checkpoint are sent a moment after it is acknowledged.
        let flows = |pr: &Progress| pr.state == ProgressState::Replicate;
        let matched: BTreeMap<u64, (u64, bool)> =
            self.raw.raft.prs().iter().map(|(&id, pr)| (id, (pr.matched, flows(pr)))).collect();
        self.raw.mut_store().offers.retain(|&id, cut| {
            let peer = slot_of(id).map(|slot| peers[usize::from(slot)]).unwrap_or_default();
            let waits = matched.get(&id).is_some_and(|&(matched, flows)| matched < cut.index || !flows);
            // A replica that loads a large state is silent meanwhile.
            waits && (peer.up || peer.last_received + offer_ticks > ticks)
        });
    }

    /// Notes since when the log has been near the bound of what is kept for others.
    fn record_fullness(&mut self) {
        let (bytes, bound) = (self.mirror().bytes(), self.config.scale.kept_bytes);
        self.lead.full_since = match self.lead.full_since {
            None if bytes > bound / 4 * 3 => Some(self.ticks),
            Some(_) if bytes < bound / 2 => None,
            since => since,
        };
    }

    /// Whether the log is about to be dropped although a voter that takes entries still needs it: for a moment, clients
    /// wait instead.
    fn pushes_back(&self) -> bool {
        self.lead.full_since.is_some_and(|since| self.ticks.saturating_sub(since) < PUSHBACK_TICKS)
    }

    /// Entries that the slowest live voter, once close to us, has not delivered. One that takes nothing although there
    /// are entries to take is not slow but stuck: the leader does not wait for it.
    pub fn backlog(&self) -> u64 {
        let last = self.last_index();
        let members = self.configuration.members();
        let slowest = (0..self.config.replicas)
            .filter(|&slot| slot != self.config.slot && members.is_voter(slot))
            .filter(|&slot| self.is_live(slot))
            .filter(|&slot| self.peers[usize::from(slot)].in_sync || self.pushes_back())
            .filter(|&slot| {
                self.ticks.saturating_sub(self.peers[usize::from(slot)].moved) <= limits::STUCK_TICKS
            })
            .map(|slot| self.peers[usize::from(slot)].delivered)
            .chain([self.delivered()])
            .min();
        last.saturating_sub(slowest.unwrap_or(last))
    }

    /// No member needs entries up to here: neither one that reads the log, heard lately or not, nor one that receives a
    /// state, which needs the entries after it. Where the log has come to its bound, only members that were heard
    /// lately count: one that lacks entries then is not level any more ([`Node::tolerance`]).
    pub fn leading_floor(&self) -> u64 {
        let is_full = self.mirror().bytes() > self.config.scale.kept_bytes;
        let offered = self.mirror().offers.values().map(|cut| cut.index);
        (0..self.config.replicas)
            .filter(|&slot| slot != self.config.slot)
            .filter(|&slot| self.reads_the_log(slot) && (!is_full || self.keeps_pace(slot)))
            .map(|slot| self.peers[usize::from(slot)].delivered)
            .chain(offered)
            .chain([self.delivered()])
            .min()
            .unwrap_or(0)
    }

    /// Whether the member in this slot continues with entries of the log: it neither waits for a state, nor has none.
    fn reads_the_log(&self, slot: u8) -> bool {
        let Some(id) = self.configuration.in_slot(slot) else { return false };
        let Some(progress) = self.raw.raft.prs().get(id) else { return false };
        let is_empty = progress.matched == 0 && self.configuration.learners.contains(&id);
        progress.state != ProgressState::Snapshot && !is_empty && progress.next_idx > self.mirror().start()
    }

    /// Whether it was heard lately, and takes entries. One that was close and has lost a message is probed for a
    /// moment, and needs the log then, but not for ever.
    fn keeps_pace(&self, slot: u8) -> bool {
        let peer = &self.peers[usize::from(slot)];
        let state = self.configuration.in_slot(slot).and_then(|id| self.raw.raft.prs().get(id));
        let is_probed = state.is_some_and(|progress| progress.state == ProgressState::Probe);
        let is_patient =
            peer.in_sync && self.ticks.saturating_sub(peer.moved) <= self.config.scale.probed_ticks;
        self.is_live(slot) && (!is_probed || is_patient)
    }

    /// Whether too few voters can take the next entry: those that are heard and continue with entries of this log are
    /// no majority. Then nothing can be ordered, no CHECKPOINT either.
    fn cannot_order(&self) -> bool {
        let voters = self.configuration.members().voters;
        let able = (0..self.config.replicas).filter(|&slot| {
            let is_me = slot == self.config.slot;
            voters >> slot & 1 == 1 && (is_me || (self.is_live(slot) && self.reads_the_log(slot)))
        });
        able.count() <= voters.count_ones() as usize / 2
    }

    /// Whether there has been a leader for a while and nothing was committed in its term.
    pub fn is_stuck(&self) -> bool {
        self.leader_slot().is_some() && self.uncommitted_ticks >= STUCK_TICKS
    }

    /// As a leader: how many further replicas may fail now.
    ///
    /// A voter counts as level if it was heard lately, is a few entries behind at most, and can continue from the log
    /// of *any* other level one: each of them may be the one that is left.
    pub fn tolerance(&self) -> Option<Tolerance> {
        if !self.is_leader() || self.failed.is_some() {
            return None;
        }
        let me = self.config.slot;
        let members = self.configuration.members();
        let lag = self.config.window / 8;
        let committed = self.raw.raft.raft_log.committed;
        let mut found = Tolerance::default();
        let mut first = self.mirror().start() + 1;
        for slot in (0..self.config.voting).filter(|&slot| slot != me) {
            let (peer, bit) = (&self.peers[usize::from(slot)], 1u16 << slot);
            if !members.is_voter(slot) {
                let is_in = members.is_learner(slot) || self.lead.joins.contains_key(&slot);
                *(if is_in { &mut found.joining } else { &mut found.away }) |= bit;
            } else if !self.is_live(slot) || !peer.spoke {
                found.away |= bit;
            } else if !self.reads_the_log(slot) || peer.delivered + lag < committed {
                found.behind |= bit;
            } else {
                found.level |= bit;
                first = first.max(peer.first);
            }
        }
        let close = found.level;
        for slot in (0..self.config.replicas).filter(|&slot| close >> slot & 1 == 1) {
            let matched = self.configuration.in_slot(slot).and_then(|id| self.raw.raft.prs().get(id));
            if matched.is_none_or(|progress| progress.matched + 1 < first) {
                found.level &= !(1 << slot);
                found.behind |= 1 << slot;
            }
        }
        found.level |= 1 << me;
        found.unproven = !self.has_committed_in_term() || self.renamed.is_some();
        let quorum = members.voters.count_ones() / 2 + 1;
        let needed = quorum.max(u32::from(self.config.voting) / 2 + 1);
        let spare = found.level.count_ones().saturating_sub(needed) as u8;
        found.failures = if found.unproven { 0 } else { spare.min((self.config.voting - 1) / 2) };
        Some(found)
    }

    /// As a leader: of the voters in these slots, the one that can lead next with the shortest pause.
    pub fn successor(&self, among: u16) -> Option<u8> {
        if !self.is_leader() || self.failed.is_some() {
            return None;
        }
        let voters = among & self.configuration.members().voters & !(1 << self.config.slot);
        let known = (0..self.config.replicas).filter(|&slot| voters >> slot & 1 == 1).filter_map(|slot| {
            let id = self.configuration.in_slot(slot)?;
            // Another choice would break off the hand-over that has begun.
            let is_begun = self.raw.raft.lead_transferee == Some(id);
            Some((is_begun, self.raw.raft.prs().get(id)?.matched, !slot))
        });
        known.max().map(|(_, _, slot)| !slot)
    }

    /// Whether an entry of the present term is committed: before that, a leader does not know what is.
    pub fn has_committed_in_term(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        log.term(log.committed).is_ok_and(|term| term == self.raw.raft.term)
    }

    pub fn note_peer(&mut self, slot: u8, envelope: &Envelope) {
        let last = self.last_index();
        let peer = &mut self.peers[usize::from(slot)];
        (peer.last_received, peer.spoke, peer.is_elsewhere, peer.far_term) = (self.ticks, true, false, 0);
        if envelope.delivered > peer.delivered || envelope.delivered >= last {
            peer.moved = self.ticks;
        }
        peer.delivered = peer.delivered.max(envelope.delivered.min(last));
        peer.first = envelope.floor;
        peer.in_sync |= last.saturating_sub(peer.delivered) <= self.config.window / 2;
    }

    pub fn lost_follower(&mut self, slot: u8) {
        self.peers[usize::from(slot)].in_sync = false;
        let Some(id) = self.configuration.in_slot(slot) else { return };
        self.raw.report_unreachable(id);
        self.raw.report_snapshot(id, SnapshotStatus::Failure);
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(id) {
            progress.recent_active = false;
        }
    }

    fn is_live(&self, slot: u8) -> bool {
        let peer = &self.peers[usize::from(slot)];
        peer.up && peer.last_received + self.config.election_ticks.0 as u64 > self.ticks
    }

    /// The next of these steps that is due: remove the old incarnation, add the new one, promote one that has caught
    /// up.
    fn next_change(&self) -> Option<Change> {
        if self.raw.raft.has_pending_conf() || self.raw.raft.lead_transferee.is_some() {
            return None;
        }
        self.next_take_over()
            .or_else(|| self.next_departure())
            .or_else(|| self.next_replacement())
            .or_else(|| self.next_promotion())
    }

    /// Whether there is a member that the group, as the state here says, has let go.
    fn has_member_beyond(&self) -> bool {
        let MemberSet { voters, learners } = self.configuration.members();
        self.config.excludes_others && (voters | learners) >> self.config.replicas != 0
    }

    /// The members that the group has let go, the last one first. A leader that has not delivered all that earlier
    /// leaders have ordered may not know that they were added again.
    fn members_let_go(&self) -> Option<u64> {
        let log = &self.raw.raft.raft_log;
        if !self.has_member_beyond() || log.term(self.delivered()).ok() != Some(self.raw.raft.term) {
            return None;
        }
        let slots = (self.config.replicas..limits::SLOTS as u8).rev();
        slots.filter_map(|slot| self.configuration.in_slot(slot)).next()
    }

    fn next_departure(&self) -> Option<Change> {
        self.members_let_go().filter(|id| *id != self.id()).map(|id| Change::Remove { id })
    }

    /// A leader that the group has let go hands the leadership to one that stays; the others remove it then.
    fn hand_on_if_let_go(&mut self) {
        let is_over = self.config.slot >= self.config.replicas && self.members_let_go().is_some();
        if !is_over || self.raw.raft.lead_transferee.is_some() {
            return;
        }
        let staying = (1u16 << self.config.replicas) - 1;
        let next = self.successor(staying).and_then(|slot| self.configuration.in_slot(slot));
        if let Some(id) = next {
            self.finish_ready();
            self.guard(|node| node.raw.transfer_leader(id));
        }
    }

    fn next_replacement(&self) -> Option<Change> {
        self.lead.joins.iter().find_map(|(&slot, &nonce)| {
            let Some(id) = self.configuration.in_slot(slot) else {
                let incarnation =
                    self.configuration.incarnations.get(&slot).map_or(1, |latest| latest.incarnation + 1);
                return Some(Change::AddLearner { id: engine_id(slot, incarnation), nonce });
            };
            // A late JOIN of an earlier incarnation must not remove the one that works.
            let works = self.raw.raft.prs().get(id).is_some_and(|progress| progress.recent_active);
            (!works).then_some(Change::Remove { id })
        })
    }

    fn next_promotion(&self) -> Option<Change> {
        let committed = self.raw.raft.raft_log.committed;
        self.configuration.learners.iter().copied().find_map(|id| {
            let slot = slot_of(id).filter(|slot| *slot < self.config.voting)?;
            let progress = self.raw.raft.prs().get(id)?;
            let close = |index: u64| index + self.config.learner_lag >= committed;
            // A replica that has acknowledged the last entry is probed until there is another one; one that has
            // acknowledged nothing has no state.
            let caught_up = progress.state != ProgressState::Snapshot
                && progress.matched > 0
                && close(progress.matched)
                && close(self.peers[usize::from(slot)].delivered);
            (caught_up && self.is_live(slot)).then_some(Change::Promote { id })
        })
    }

    fn retry_snapshots(&mut self) {
        let waiting: Vec<u64> = (self.raw.raft.prs().iter())
            .filter(|(_, progress)| progress.state == ProgressState::Snapshot)
            .map(|(&id, _)| id)
            .collect();
        for slot in 0..self.config.replicas {
            if !waiting.iter().any(|&id| slot_of(id) == Some(slot)) {
                self.peers[usize::from(slot)].snapshot_ticks = 0;
            }
        }
        for id in waiting {
            let Some(slot) = slot_of(id) else { continue };
            let peer = &mut self.peers[usize::from(slot)];
            peer.snapshot_ticks += 1;
            if peer.snapshot_ticks >= RETRY_TICKS {
                peer.snapshot_ticks = 0;
                self.finish_ready();
                self.guard(|node| node.raw.report_snapshot(id, SnapshotStatus::Failure));
            }
        }
    }

    /// A replica lacks entries that nobody has any more. The state that replaces them is ordered as a CHECKPOINT, so
    /// that f+1 replicas have it alike. Where nothing can be ordered without that replica, this one gives the state
    /// that it has.
    fn ask_for_checkpoint(&mut self) {
        if self.lead.checkpoint_requested.is_none_or(|asked| asked + RETRY_TICKS <= self.ticks) {
            let cannot_order = self.cannot_order();
            if cannot_order && !self.is_stuck() {
                return;
            }
            self.lead.checkpoint_requested = Some(self.ticks);
            self.out.outputs.push_back(Output::CheckpointWanted { ordered: !cannot_order });
        }
    }
}
