//! The engine of a mode that executes first and agrees afterwards: a primary numbers batches, without
//! an agreement on them.
//!
//! Eve (Kapritsos et al., OSDI 2012, section 4.1): in a view, one executor is the primary. It numbers batches n = 1, 2,
//! ... and sends each to all executors, which run it at once. Whether their states agree after it is decided outside of
//! this crate; if they do not, or the primary is gone, a later view begins after the last batch that was agreed on, and
//! this engine forgets the batches after it ([`OrderEngine::begin_view`]). The origins still have their requests.
//!
//! *Indices.* A batch of the primary joins batches of several origins, its parts. Each is an entry of its own, with
//! index `n << 4 | part`; the last of them says that it `ends` the number.
//!
//! *Which batches are held.* When a view begins, a replica's delivered batches are those that the view continues: the
//! host rewinds first if they are not. So what it has delivered, and what the primary of the view sends, is right to
//! hand to others. What was not delivered may be of a view that this replica missed, so it is dropped and asked for.
//!
//! *Bounds.* Numbers up to [`limits::PRIMARY_WINDOW`] beyond the last one delivered here are accepted. The rest is
//! dropped, and asked for when its turn comes (`asking.rs`).

mod asking;
pub(crate) mod control;
mod held;
mod joining;
pub(crate) mod message;

use bytes::Bytes;

use crate::batch::Encoded;
use crate::engine::{
    Blame, Committed, EngineOut, EngineStatus, FailStop, MemberSet, NotNow, OrderEngine, Output, Outside,
    PrimaryView,
};
use crate::frame::FrameKind;
use crate::limits;
use crate::stamps::StampLimit;
use asking::Asking;
use control::{PrimaryControl, Progress};
use held::{EarlyBatches, HeldBatches};
use joining::{Offers, WantedState};
use message::{BatchMessage, PrimaryBatch};

/// Bits of an index that number the parts of a batch.
const PART_BITS: u32 = limits::PRIMARY_PARTS.trailing_zeros();

/// Number of the primary's batch that the entry with this index is a part of.
const fn number_of(index: u64) -> u64 {
    index >> PART_BITS
}

/// The largest index that an entry of this batch can have.
const fn end_of(number: u64) -> u64 {
    number << PART_BITS | (limits::PRIMARY_PARTS as u64 - 1)
}

/// The slots of a set.
fn slots(set: u16) -> impl Iterator<Item = u8> {
    (0..16).filter(move |slot| set >> slot & 1 == 1)
}

/// The settings of one replica's engine. The caller defines the ticks; the defaults suit ticks of 25 ms.
#[derive(Debug, Clone)]
pub struct PrimaryConfig {
    /// This replica's slot, from 0.
    pub slot: u8,
    /// Replicas in the group.
    pub replicas: u8,
    /// Identifies this process in its slot, from 1: not less than that of any earlier one, such as the time of its
    /// start in seconds.
    pub incarnation: u32,
    /// From 1, at most 2^20: greater than that of every earlier process with the same `incarnation`, such as the
    /// microsecond of that second. Otherwise its requests would pass for repeats of the earlier one's.
    pub start: u32,
}

/// What is known of another replica.
#[derive(Debug, Clone, Copy, Default)]
struct PeerReport {
    /// Its last report. Without a connection only the stable batch of it is left.
    progress: Progress,
    /// Tick at which the connection to it was lost.
    lost: Option<u64>,
    /// The batch of the checkpoint that it was offered.
    offered: u64,
    /// It asked for batches in this view, so it is sent those that follow although it may be no executor.
    follows: bool,
    /// Bytes of answers that it was sent since the last tick.
    answered: usize,
}

/// Batches of origins on their way into the next batch of this primary.
#[derive(Debug, Default)]
struct OpenBatch {
    parts: Vec<Encoded>,
    requests: usize,
    bytes: usize,
}

impl OpenBatch {
    /// Whether another batch of an origin is accepted.
    fn has_room(&self, requests: usize, bytes: usize) -> bool {
        self.parts.is_empty()
            || (self.parts.len() < limits::PRIMARY_PARTS
                && self.requests + requests <= limits::PRIMARY_REQUESTS
                && self.bytes + bytes <= limits::PRIMARY_BYTES)
    }
}

/// A primary, or a replica that follows one. See the module for what it does, and [`OrderEngine`] for how it is driven.
///
/// It does nothing before the host has begun a view. A new connection to a peer must be reported as `peer_down` and
/// then `peer_up`.
#[derive(Debug)]
pub struct PrimaryEngine {
    config: PrimaryConfig,
    scale: limits::EngineScale,
    view: Option<PrimaryView>,
    /// The primary is known to have begun the view, too: before that it would drop the batches of others.
    is_led: bool,
    /// The next batch that is numbered here runs sequentially.
    sequential: bool,
    open: OpenBatch,
    held: HeldBatches,
    early: EarlyBatches,
    /// The last batch that exists, as far as this replica knows.
    last: u64,
    /// Number of the next batch that is handed to the orderer.
    due: u64,
    /// The last batch that was delivered here whole.
    delivered: u64,
    /// Index of the last entry that was delivered here.
    taken: u64,
    /// The last batch that was agreed on, as far as this replica knows.
    stable: u64,
    asking: Asking,
    /// The state that this replica waits for.
    wanted: Option<WantedState>,
    offers: Offers,
    /// Its state came from others.
    joined: bool,
    /// The view is the first one of this process, and did not begin with it.
    returned: bool,
    peers: Vec<PeerReport>,
    peers_up: u16,
    ticks: u64,
    /// What the others were told last.
    last_reported: Progress,
    stamps: StampLimit,
    failed: bool,
    ready: EngineOut,
}

impl PrimaryEngine {
    /// An engine that continues after entry `applied`, the index of the state at hand (0 for none).
    pub fn new(config: PrimaryConfig, applied: u64) -> Self {
        let at = number_of(applied);
        PrimaryEngine {
            peers: vec![PeerReport::default(); usize::from(config.replicas)],
            config,
            scale: limits::EngineScale::default(),
            view: None,
            is_led: false,
            sequential: false,
            open: OpenBatch::default(),
            held: HeldBatches::default(),
            early: EarlyBatches::default(),
            last: at,
            due: at + 1,
            delivered: at,
            taken: applied,
            stable: at,
            asking: Asking::default(),
            wanted: None,
            offers: Offers::default(),
            joined: false,
            returned: false,
            peers_up: 0,
            ticks: 0,
            last_reported: Progress::default(),
            stamps: StampLimit::default(),
            failed: false,
            ready: EngineOut::default(),
        }
    }

    /// With other bounds, for a simulation.
    pub fn with_scale(mut self, scale: limits::EngineScale) -> Self {
        self.held.set_bound(scale.held_bytes);
        self.scale = scale;
        self
    }

    fn is_primary(&self) -> bool {
        !self.failed && self.view.is_some_and(|view| view.primary == self.config.slot)
    }

    fn batch_incarnation(&self) -> u64 {
        u64::from(self.config.incarnation) << 32 | u64::from(self.config.start)
    }

    fn is_up(&self, slot: u8) -> bool {
        self.peers_up >> slot & 1 == 1
    }

    /// Connected replicas that get the batches of this view: its executors, and who asked for one.
    fn receivers(&self, view: &PrimaryView) -> u16 {
        let follows = |slot: &u8| self.peers.get(usize::from(*slot)).is_some_and(|peer| peer.follows);
        let followers = slots(self.peers_up).filter(follows).fold(0, |set, slot| set | 1 << slot);
        (view.executors | followers) & self.peers_up
    }

    /// Whether the primary numbers another batch now. Not before it has delivered what the view begins after: until
    /// then its orderer does not know which batches of the origins are due. And not in a view that an earlier process
    /// in its place may have led: two batches would get the same number.
    fn can_number(&self) -> bool {
        let Some(view) = self.view.filter(|_| self.is_primary() && !self.returned) else { return false };
        self.delivered + 1 >= view.next
            && self.last.saturating_sub(self.delivered) < limits::PRIMARY_AHEAD
            && !self.held.is_full()
    }

    /// Numbers the open batch, and sends it to the executors.
    fn close(&mut self) {
        let Some(view) = self.view.filter(|_| !self.open.parts.is_empty()) else { return };
        let open = std::mem::take(&mut self.open);
        let sequential = std::mem::take(&mut self.sequential);
        match PrimaryBatch::new(view.number, self.last + 1, sequential, &open.parts) {
            Ok(batch) => {
                self.last += 1;
                for to in slots(self.receivers(&view)) {
                    self.ready.send(to, FrameKind::Batch, batch.message.clone());
                }
                self.hold(batch);
            }
            Err(error) => self.fail(error.0.to_owned()),
        }
    }

    /// Takes a batch that is right to deliver.
    fn hold(&mut self, batch: PrimaryBatch) {
        self.held.insert(batch);
        self.hand_on();
        self.forget();
    }

    /// Hands the orderer the batches that are due, as far as deliveries have come.
    fn hand_on(&mut self) {
        while self.due <= self.delivered + self.scale.primary_window {
            let Some(batch) = self.held.get(self.due) else { break };
            let ends = batch.parts.len() - 1;
            for (part, entry) in batch.parts.iter().enumerate() {
                self.ready.committed.push_back(Committed {
                    index: self.due << PART_BITS | part as u64,
                    entry: entry.clone(),
                    number: self.due,
                    ends: part == ends,
                    sequential: batch.sequential,
                });
            }
            self.due += 1;
            self.last = self.last.max(self.due - 1);
            self.wanted.take_if(|wanted| wanted.is_over_at(0));
            self.asking.moved(self.ticks);
        }
    }

    /// Forgets batches that no live replica needs; beyond the bound of memory, also such that one may need.
    fn forget(&mut self) {
        if self.view.is_none() {
            return;
        }
        // One that the view leaves out will be taken in again once it has these batches.
        let is_late =
            |peer: &PeerReport| peer.lost.is_some_and(|lost| lost + self.scale.lost_ticks > self.ticks);
        let needs = |slot: u8, peer: &PeerReport| self.is_up(slot) || is_late(peer);
        let others = (0..).zip(&self.peers).filter(|(slot, peer)| needs(*slot, peer));
        let reported = others.map(|(_, peer)| peer.progress.stable.max(peer.offered)).min();
        let stable = self.stable.min(self.delivered);
        self.held.forget(reported.unwrap_or(stable).min(stable), stable);
    }

    fn on_batch_message(&mut self, from: u8, body: &Bytes) -> Result<(), Blame> {
        match BatchMessage::decode(body).map_err(Blame::malformed(from))? {
            BatchMessage::Execute(batch) => self.on_execute(from, batch),
            BatchMessage::Ask { view, number } => {
                self.on_ask(from, view, number);
                Ok(())
            }
            BatchMessage::Gone { view, number } => self.on_gone(from, view, number),
        }
    }

    /// EXECUTE-BATCH: of the primary, or another executor's answer to a request.
    fn on_execute(&mut self, from: u8, batch: PrimaryBatch) -> Result<(), Blame> {
        let verified = batch.verify(self.config.replicas).map_err(Blame::malformed(from));
        let Some(view) = self.view.filter(|view| batch.view <= view.number) else {
            verified?;
            self.early.keep(from, batch);
            return Ok(());
        };
        let was_asked = self.asking.was_asked(from);
        if batch.view < view.number {
            if batch.number >= view.next || !was_asked {
                return Ok(()); // it is late: of a view that is over
            }
        } else if view.primary == self.config.slot || (from != view.primary && !was_asked) {
            return Err(Blame::new(from, "a batch of a view that another replica leads"));
        }
        let stamp_us = verified?;
        if from == view.primary && batch.view == view.number {
            if !self.stamps.accepts(from, stamp_us, self.ticks) {
                return Err(Blame::new(from, "a batch is stamped later than f+1 clocks allow"));
            }
            self.is_led = true;
            self.last = self.last.max(batch.number);
        }
        let is_due = batch.number == self.due;
        let is_within = batch.number <= self.delivered + self.scale.primary_window;
        if batch.number >= self.due && is_within && (is_due || !self.held.is_full()) {
            self.hold(batch);
        }
        self.ask_missing();
        Ok(())
    }

    /// PROGRESS of a peer.
    fn on_progress(&mut self, from: u8, progress: Progress) -> Result<(), Blame> {
        let report = &mut self.peers[usize::from(from)];
        if report.progress.incarnation != 0 && report.progress.incarnation != progress.incarnation {
            return Err(Blame::new(from, "another incarnation over the same connection"));
        }
        report.progress = progress;
        self.offers.moved(from, progress.last);
        if let Some(view) = self.view
            && view.primary == from
            && view.number == progress.view
        {
            self.is_led = true;
            // Only the primary is believed: one that claims more makes others ask for what no replica has.
            self.last = self.last.max(progress.last);
            self.ask_missing();
        }
        self.forget();
        Ok(())
    }

    fn progress(&self) -> Progress {
        let (view, last) = (self.view.map_or(0, |view| view.number), self.due - 1);
        Progress { incarnation: self.config.incarnation, view, last, stable: self.stable.min(last) }
    }

    /// Tells the others how far this replica has come.
    fn report(&mut self, deferrable: bool) {
        self.last_reported = self.progress();
        let body = PrimaryControl::Progress(self.last_reported).encode();
        for to in slots(self.peers_up) {
            let body = body.clone();
            self.ready.outputs.push_back(Output::Send {
                to,
                kind: FrameKind::Control,
                body: body.into(),
                deferrable,
            });
        }
    }

    /// The last number of which nothing comes after this index. One that is not held is part of a state as a whole.
    fn whole_up_to(&self, index: u64) -> u64 {
        let number = number_of(index);
        let parts = self.held.get(number).map_or(0, |batch| batch.parts.len() as u64);
        if (index & ((1 << PART_BITS) - 1)) + 1 < parts { number - 1 } else { number }
    }

    /// Index of the last entry of this batch, as far as it is known.
    fn last_entry(&self, number: u64) -> u64 {
        let parts = self.held.get(number).map_or(limits::PRIMARY_PARTS, |batch| batch.parts.len()) as u64;
        if number == 0 { 0 } else { number << PART_BITS | (parts - 1) }
    }

    /// Reports a primary whose stamps have been refused for a while: the host asks for another view.
    fn replace_leader_of_refused_stamps(&mut self) {
        let Some(view) = self.view.filter(|view| view.primary != self.config.slot) else { return };
        if let Some(ahead_us) = self.stamps.is_due(view.primary, self.ticks) {
            self.ready.outputs.push_back(Output::StampsRefused { leader: view.primary, ahead_us });
        }
    }

    fn fail(&mut self, why: String) {
        self.failed = true;
        self.ready.outputs.push_back(Output::FailStop(FailStop::Engine(why)));
    }

    /// Why the host cannot begin this view now, if so.
    fn hinders(&self, view: &PrimaryView) -> Option<String> {
        let is_possible = view.number > 0
            && view.next > 0
            && view.next < limits::TERM_LIMIT
            && view.number < limits::TERM_LIMIT;
        if !is_possible || view.primary >= self.config.replicas || !view.has(view.primary) {
            return Some(format!("view {} is impossible: {view:?}", view.number));
        }
        // A process may have taken the state before it learned of a view, which may have begun before that state.
        let is_stable = self.view.is_none() && number_of(self.taken) <= self.stable;
        (number_of(self.taken) >= view.next && !is_stable).then(|| {
            let (number, next, taken) = (view.number, view.next, number_of(self.taken));
            format!("view {number} begins with batch {next}, and batch {taken} was delivered and not rewound")
        })
    }
}

#[cfg(feature = "inject")]
impl crate::EngineFaults for PrimaryEngine {
    fn lose_entries(&mut self) -> bool {
        let had = self.held.first_number().is_some_and(|first| first <= self.delivered);
        self.held.forget(self.delivered, self.delivered);
        had
    }
}

impl OrderEngine for PrimaryEngine {
    fn propose(&mut self, entry: Encoded) -> Result<(), NotNow> {
        let (requests, _) = Encoded::claimed_size(&entry.head).ok_or(NotNow)?;
        if !self.can_number() {
            return Err(NotNow);
        }
        if !self.open.has_room(requests, entry.len()) {
            self.close();
            if !self.can_number() {
                return Err(NotNow);
            }
        }
        self.open.requests += requests;
        self.open.bytes += entry.len();
        self.open.parts.push(entry);
        Ok(())
    }

    fn on_frame(&mut self, from: u8, kind: FrameKind, body: Bytes) -> Result<(), Blame> {
        if from >= self.config.replicas || from == self.config.slot {
            return Err(Blame::new(from, "sender is not another replica of the group"));
        }
        match kind {
            FrameKind::Batch => self.on_batch_message(from, &body),
            FrameKind::Control => match PrimaryControl::decode(&body).map_err(Blame::malformed(from))? {
                PrimaryControl::Progress(progress) => self.on_progress(from, progress),
                PrimaryControl::AskState { above } => {
                    self.on_ask_state(from, above);
                    Ok(())
                }
                PrimaryControl::OfferState { index } => {
                    self.on_offer(from, index);
                    Ok(())
                }
            },
            _ => Err(Blame::new(from, "a frame kind that the engine does not know")),
        }
    }

    fn tick(&mut self) {
        self.ticks += 1;
        self.peers.iter_mut().for_each(|peer| peer.answered = 0);
        if self.last_reported != self.progress() || self.ticks.is_multiple_of(limits::PROGRESS_TICKS) {
            self.report(true);
        }
        self.ask_another();
        self.tick_states();
        self.replace_leader_of_refused_stamps();
    }

    fn peer_up(&mut self, peer: u8) {
        if peer >= self.config.replicas || peer == self.config.slot {
            return;
        }
        self.peers_up |= 1 << peer;
        // The peer learns which batches exist, and that a primary is in its view.
        self.ready.send(peer, FrameKind::Control, PrimaryControl::Progress(self.progress()).encode());
        self.ask_missing();
    }

    fn peer_down(&mut self, peer: u8) {
        self.peers_up &= !(1 << peer);
        if let Some(report) = self.peers.get_mut(usize::from(peer)) {
            let stable = report.progress.stable;
            let lost = Some(self.ticks).filter(|_| report.progress.incarnation != 0).or(report.lost);
            let progress = Progress { stable, ..Progress::default() };
            *report = PeerReport { progress, lost, ..PeerReport::default() };
        }
        self.offers.forget(peer);
        if self.view.is_some_and(|view| view.primary == peer) {
            self.is_led = false;
        }
        self.forget();
    }

    fn accept_stamps(&mut self, until_us: u64) {
        self.stamps.latest_us = until_us;
    }

    fn pump(&mut self, out: &mut EngineOut) {
        if self.can_number() {
            self.close();
        }
        out.take_over(&mut self.ready);
    }

    /// The leader is known once it is heard of in this view, so that the orderer hands over its batches when they are
    /// accepted, and not before.
    fn engine_status(&self) -> EngineStatus {
        let Some(view) = self.view else { return EngineStatus::default() };
        let first = self.held.first_number().unwrap_or(self.due);
        EngineStatus {
            leader: Some(view.primary).filter(|_| self.is_led),
            is_leader: self.is_primary(),
            term: view.number,
            incarnation: Some(self.batch_incarnation()),
            members: MemberSet { voters: view.executors, learners: 0 },
            last_index: self.last_entry(self.last),
            last_term: view.number,
            commit_index: self.last_entry(self.due - 1),
            first_index: first << PART_BITS,
            log_bytes: self.held.bytes() as u64,
            stuck: false,
            outside: Outside::default(),
        }
    }

    /// All or nothing: [`crate::Orderer`] proposes while this is less than its window, and a primary either accepts
    /// batches or waits until one of its own was delivered. What waits meanwhile stays in the orderer's queue, without
    /// a stamp, and becomes one large batch.
    fn backlog(&self) -> u64 {
        if self.can_number() { 0 } else { u64::MAX }
    }

    fn delivered(&mut self, index: u64) {
        self.taken = self.taken.max(index);
        let delivered = self.whole_up_to(index);
        if delivered > self.delivered {
            self.delivered = delivered;
            self.hand_on();
            self.ask_missing();
        }
    }

    fn state_available(&mut self, checkpoint: u64) {
        self.offer_to_waiting(checkpoint);
    }

    fn state_freed(&mut self, checkpoint: u64) {
        self.withdraw(checkpoint);
    }

    fn installed(&mut self, checkpoint: u64) -> bool {
        self.install(checkpoint)
    }

    fn state_lost(&mut self, checkpoint: u64) {
        self.lose_state(checkpoint);
    }

    fn admitted_incarnation(&self, slot: u8) -> Option<u32> {
        self.peers
            .get(usize::from(slot))
            .map(|peer| peer.progress.incarnation)
            .filter(|incarnation| *incarnation != 0)
    }

    fn want_state_after(&mut self, number: u64) {
        self.want_state_in_place(number);
    }

    fn begin_view(&mut self, view: PrimaryView) -> bool {
        if self.failed || self.view.is_some_and(|current| current.number >= view.number) {
            return false;
        }
        if let Some(why) = self.hinders(&view) {
            self.fail(why);
            return false;
        }
        let is_first = self.view.is_none();
        self.ready.committed.clear();
        self.held.cut_after(self.delivered);
        self.open = OpenBatch::default();
        (self.due, self.last) = (self.delivered + 1, self.delivered.max(view.next - 1));
        self.sequential = view.sequential;
        self.returned = is_first && view.next > 1;
        let primary = &self.peers[usize::from(view.primary)];
        self.is_led = view.primary == self.config.slot || primary.progress.view == view.number;
        self.peers.iter_mut().for_each(|peer| peer.follows = false);
        self.asking = Asking::begin(self.ticks);
        self.offers.begin_view();
        self.view = Some(view);
        if is_first {
            let is_empty = self.taken == 0 && view.next > 1;
            let (incarnation, joined) = (self.batch_incarnation(), self.joined || is_empty);
            self.ready.outputs.push_back(Output::Established { incarnation, joined });
            if is_empty {
                self.wanted = Some(WantedState::above(0, self.ticks));
            }
        }
        // The primary of this view may order a checkpoint.
        self.ask_for_state();
        let (leader, term) = (Some(view.primary), view.number);
        self.ready.outputs.push_back(Output::LeaderChanged { leader, term });
        self.report(false);
        for batch in self.early.take(view.number, view.primary) {
            // They were verified when they arrived.
            let _ = self.on_execute(view.primary, batch);
        }
        self.ask_missing();
        true
    }

    fn rewind_to(&mut self, index: u64) {
        let number = self.whole_up_to(index);
        if number < self.stable {
            let stable = self.stable;
            return self.fail(format!("batch {stable} is stable, and rewound to batch {number}"));
        }
        self.ready.committed.clear();
        (self.taken, self.delivered, self.due) = (index, number, number + 1);
        self.last = self.last.max(number);
        self.wanted.take_if(|wanted| wanted.is_over_at(index));
        self.asking.restart();
        self.hand_on();
        self.ask_missing();
    }

    fn stable(&mut self, number: u64) {
        let stable = self.stable.max(number.min(self.delivered));
        if stable > std::mem::replace(&mut self.stable, stable) {
            self.offers.on_stable();
        }
        self.forget();
    }
}

#[cfg(test)]
mod tests;
