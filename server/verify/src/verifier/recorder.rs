//! What a verifier keeps, and how it records the next version.

use std::collections::BTreeMap;

use crate::config::{Config, Layout};
use crate::limits::{JOIN_LAG_BATCHES, VIEW_PATIENCE_MAX_US};
use crate::message::{AskRound, Lineup, Reason, TokenRecord, VerifyMessage};
use crate::saved::SavedRecord;
use crate::slots::{CrashVector, Slot, Slots};
use crate::version::{StateToken, Version};

use super::events::{Out, Recipients, VerifierCommand};
use super::extra::ExtraState;
use super::tally::{Count, Tallies};
use super::times::Times;

/// The record of a verifier, its promise, and the tokens that lead further.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recorder {
    pub(super) config: Config,
    pub(super) phase: VerifierPhase,
    /// No view before this one is taken part in.
    pub(super) promised: u64,
    pub(super) record: TokenRecord,
    /// A verifier that lost its memory leads no view up to this one: its earlier incarnation may have.
    pub(super) leads_after: Option<u64>,
    /// In a pair: the view that this incarnation has begun last. Elsewhere the one that an operator has begun here.
    pub(super) began: Option<u64>,
    pub(super) crashes: CrashVector,
    pub(super) tallies: Tallies,
    pub(super) extra: ExtraState,
    /// What executors that were left out, or of which it is not known that they have the record, have reached since
    /// they were connected.
    reached: BTreeMap<Slot, Version>,
    /// With a witness: executors of the view whose connection has ended. They may have lost their memory.
    unsure: Slots,
    /// While any are: the last versions that were recorded.
    recent: BTreeMap<u64, StateToken>,
    /// Processes whose connection ended.
    pub(super) down: Slots,
    /// Sequential tokens differed; reported once.
    undecided: bool,
    pub(super) times: Times,
}

/// What a verifier may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum VerifierPhase {
    /// It has no memory.
    Blank,
    /// It records in the view of its record.
    Normal,
    /// It promised a later view than that of its record.
    Changing,
}

impl Recorder {
    /// Without memory.
    pub(super) fn new(config: Config) -> Recorder {
        let executors = Slots::first(config.layout.executors());
        let joining = Slots::EMPTY;
        let lineup = Lineup { primary: 0, executors, joining, sequential: false, extra: false };
        let version = Version { number: 0, token: config.genesis };
        Recorder {
            phase: VerifierPhase::Blank,
            promised: 0,
            record: TokenRecord { view: 0, version, lineup },
            leads_after: None,
            began: None,
            crashes: CrashVector::new(config.layout.verifiers()),
            tallies: Tallies::default(),
            extra: ExtraState::new(config.extra_after),
            reached: BTreeMap::new(),
            unsure: Slots::EMPTY,
            recent: BTreeMap::new(),
            down: Slots::EMPTY,
            undecided: false,
            times: Times::default(),
            config,
        }
    }

    /// From disk.
    pub(super) fn restore(&mut self, saved: &SavedRecord) {
        self.crashes.join(&saved.crashes);
        if !self.is_by_quorum() {
            self.leads_after = Some(saved.promised);
        }
        self.remember(saved.promised, saved.record);
    }

    /// Has a memory from now on.
    pub(super) fn remember(&mut self, promised: u64, record: TokenRecord) {
        (self.promised, self.record) = (promised, record);
        let is_normal = record.view == promised;
        self.phase = if is_normal { VerifierPhase::Normal } else { VerifierPhase::Changing };
    }

    pub(super) fn is_blank(&self) -> bool {
        self.phase == VerifierPhase::Blank
    }

    /// Whether views begin by a quorum of verifiers.
    pub(super) fn is_by_quorum(&self) -> bool {
        self.config.layout != Layout::Pair
    }

    /// Whether this verifier records. In a pair only the primary's does, and not in a view that an earlier incarnation
    /// of it has begun: late messages may tell of such a view at any time.
    pub(super) fn decides(&self) -> bool {
        let is_own = self.began == Some(self.record.view) || !self.config.rules.own_views;
        let leads = self.record.lineup.primary == self.config.me && is_own;
        !self.is_blank() && (self.is_by_quorum() || leads)
    }

    /// The verifier that starts a view.
    pub(super) fn leader(&self, view: u64) -> Slot {
        (view % u64::from(self.config.layout.verifiers())) as Slot
    }

    /// Whether this view makes no progress without this process: it is the primary, or one of two executors.
    pub(super) fn needs(&self, slot: Slot) -> bool {
        let lineup = self.record.lineup;
        slot == lineup.primary || (self.config.layout.leaves_out() && lineup.executors.contains(slot))
    }

    /// View and number of the record.
    pub(super) fn key(&self) -> (u64, u64) {
        (self.record.view, self.record.version.number)
    }

    /// Rule 1: by view, then by number. The paper says by number, which is wrong where batches are recorded before a
    /// quorum has those before.
    pub(super) fn rank(&self, record: &TokenRecord) -> (u64, u64) {
        let (view, number) = (record.view, record.version.number);
        if self.config.rules.view_first { (view, number) } else { (number, view) }
    }

    /// Takes over which incarnations are known. False for a message of an incarnation that its sender has lost.
    pub(super) fn admit(&mut self, from: Slot, crashes: &CrashVector) -> bool {
        if from >= self.config.layout.verifiers() || crashes.counts().len() != self.crashes.counts().len() {
            return false;
        }
        if !self.config.rules.crash_vectors {
            return true;
        }
        let is_old = crashes.of_slot(from) < self.crashes.of_slot(from);
        self.crashes.join(crashes);
        !is_old
    }

    /// The tokens for the batch after the record.
    pub(super) fn count(&self) -> Count {
        let TokenRecord { view, version, lineup } = self.record;
        self.tallies.count(view, version, lineup.executors, self.config.rules.parents)
    }

    /// Why nothing was recorded for long. Where tokens differ and the one that would decide does not come, the batch
    /// has to run sequentially: in parallel they may differ again, in every view. If they differ even then, the primary
    /// may be the cause, and the next one takes its place.
    pub(super) fn why_late(&self, out: &mut Out<'_>) -> Reason {
        let differs = self.phase == VerifierPhase::Normal && self.count().differs;
        if differs && self.runs_sequentially_next(out) { Reason::Diverged } else { Reason::Late }
    }

    /// Whether tokens that differ may agree once the batch runs sequentially. If so, it tells that they differ.
    fn runs_sequentially_next(&self, out: &mut Out<'_>) -> bool {
        let may_agree = !self.record.lineup.sequential;
        if may_agree {
            self.report_differed(Slots::EMPTY, out);
        }
        may_agree
    }

    /// Records as many versions as the tokens allow. Returns why another view is wanted, if it is.
    pub(super) fn step(&mut self, out: &mut Out<'_>) -> Option<Reason> {
        while self.phase == VerifierPhase::Normal && self.decides() {
            let executors = self.record.lineup.executors;
            let needed = self.config.layout.tokens(executors);
            let count = self.count();
            let best = count.agreeing.len() as usize;
            if let Some(token) = count.token.filter(|_| best >= needed) {
                if self.extra.waits(count.agreeing, executors) {
                    if count.received == count.agreeing {
                        return None;
                    }
                    if !self.record.lineup.sequential {
                        self.report_differed(count.received.minus(count.agreeing), out);
                        return Some(Reason::Extra);
                    }
                    // One that differs sequentially too is not one that two requests have interleaved wrongly: it is
                    // outvoted, and repaired.
                    self.extra.end();
                }
                self.advance(token, count.agreeing, out);
                if self.welcomes() {
                    return Some(Reason::Joined);
                }
            } else if self.is_hopeless(&count, needed) {
                return self.on_hopeless(out);
            } else {
                return None;
            }
        }
        None
    }

    /// Whether no sufficient number of tokens can become equal any more. Those whose connection ended may come back;
    /// but enough others that differ need not wait for them. In a pair only a proof tells that a process is gone.
    fn is_hopeless(&self, count: &Count, needed: usize) -> bool {
        let down = if self.config.layout.leaves_out() { Slots::EMPTY } else { self.down };
        let silent = self.record.lineup.executors.minus(count.received);
        let best = count.agreeing.len() as usize;
        let with = |others: Slots| best + others.len() as usize;
        let enough_differ = count.received.len() as usize >= needed;
        with(silent) < needed || (with(silent.minus(down)) < needed && enough_differ)
    }

    /// Tokens that ran sequentially differ as well: the same again would only be repeated, as fast as messages go. So
    /// it is reported, and the next attempt waits for the patience.
    fn on_hopeless(&mut self, out: &mut Out<'_>) -> Option<Reason> {
        if self.runs_sequentially_next(out) {
            return Some(Reason::Diverged);
        }
        if !std::mem::replace(&mut self.undecided, true) {
            out.commands.push(VerifierCommand::Undecided { version: self.record.version });
        }
        None
    }

    fn report_differed(&self, executors: Slots, out: &mut Out<'_>) {
        out.commands.push(VerifierCommand::Differed { version: self.record.version, executors });
    }

    /// Records the next version.
    fn advance(&mut self, token: StateToken, agreeing: Slots, out: &mut Out<'_>) {
        self.extra.advance(&self.record.lineup, agreeing);
        let mut record = self.record;
        record.version = Version { number: record.version.number.saturating_add(1), token };
        (record.lineup.sequential, record.lineup.extra) = (false, self.extra.is_on());
        // Of two executors both have sent the token that continues the start.
        record.lineup.joining = Slots::EMPTY;
        self.undecided = false;
        if record.lineup.executors != Slots::first(self.config.layout.executors()) {
            self.recent.insert(record.version.number, record.version.token);
            while self.recent.len() > JOIN_LAG_BATCHES as usize {
                self.recent.pop_first();
            }
        }
        self.follow(record, out);
    }

    /// Records a later version of the present view.
    pub(super) fn follow(&mut self, record: TokenRecord, out: &mut Out<'_>) {
        self.phase = VerifierPhase::Normal;
        self.record = record;
        self.tallies.drop_until(record.view, record.version.number);
        self.times.recorded(self.tallies.knows_more(record.view), out.now_us);
        self.announce(out);
    }

    /// Takes part in a view. That is recording its start in it.
    pub(super) fn enter(&mut self, record: TokenRecord, out: &mut Out<'_>) {
        let TokenRecord { view, version, lineup } = record;
        self.promised = view;
        self.record = record;
        self.phase = VerifierPhase::Normal;
        self.undecided = false;
        self.extra.begin(lineup.extra);
        self.reached.clear();
        self.recent.clear();
        self.tallies.drop_until(view, version.number);
        let needed_is_down = self.down.iter().any(|slot| self.needs(slot));
        self.times.installed(self.tallies.knows_more(view), needed_is_down, out.now_us);
        out.commands.push(VerifierCommand::ViewBegan { record });
        self.announce(out);
    }

    /// Makes the record durable and tells it to all executors.
    pub(super) fn announce(&mut self, out: &mut Out<'_>) {
        self.persist(out);
        if self.decides() {
            let message = self.recorded();
            out.send(Recipients::Executors, message);
        }
    }

    pub(super) fn persist(&self, out: &mut Out<'_>) {
        let (promised, record, crashes) = (self.promised, self.record, self.crashes);
        let saved = SavedRecord { promised, record, crashes, verifier: self.config.me };
        out.commands.push(VerifierCommand::Persist(saved));
    }

    pub(super) fn recorded(&self) -> VerifyMessage {
        VerifyMessage::Recorded { record: self.record, crashes: self.crashes }
    }

    /// Asks the others for what this verifier has missed.
    pub(super) fn ask_to_catch_up(&mut self, out: &mut Out<'_>) {
        if self.times.may_ask(out.now_us) {
            let (incarnation, round, crashes) = (self.config.incarnation, AskRound::CatchUp, self.crashes);
            out.send(Recipients::Verifiers, VerifyMessage::Where { incarnation, round, crashes });
        }
    }

    /// Whether an executor that was left out has come near the record, or one that joins has reached it.
    pub(super) fn welcomes(&self) -> bool {
        let may = self.phase == VerifierPhase::Normal && self.decides();
        may && !self.caught_up(self.record.version).is_empty()
    }

    /// Executors that were left out and have reached this version, or one of the last before it: under load one that
    /// keeps pace may never be level. And those that join and have reached it.
    pub(super) fn caught_up(&self, version: Version) -> Slots {
        let Lineup { executors, joining, .. } = self.record.lineup;
        let is_recent = |reached: &Version| {
            let lag = version.number.checked_sub(reached.number);
            lag.is_some_and(|lag| lag <= JOIN_LAG_BATCHES)
                && self.recent.get(&reached.number) == Some(&reached.token)
        };
        let is_near = |slot: &Slot, reached: &Version| match executors.contains(*slot) {
            true => joining.contains(*slot) && *reached == version,
            false => *reached == version || is_recent(reached),
        };
        let near = self.reached.iter().filter(|(slot, reached)| is_near(slot, reached));
        near.fold(Slots::EMPTY, |slots, (slot, _)| slots.with(*slot)).minus(self.down)
    }

    /// Those of `executors` that have the version of this record in their present incarnation, as far as is known here.
    /// Only they may number batches from there, or be kept alone.
    pub(super) fn copies(&self, base: &TokenRecord, executors: Slots) -> Slots {
        if !self.config.rules.level || !self.config.layout.leaves_out() {
            return executors;
        }
        let level = self.reached.iter().filter(|(_, reached)| **reached == base.version);
        let level = level.fold(Slots::EMPTY, |slots, (slot, _)| slots.with(*slot));
        let Lineup { executors: counted, joining, .. } = base.lineup;
        counted.minus(joining).minus(self.unsure).or(level).and(executors)
    }

    /// Whether what an executor sends tells how far it is, beside what it counts.
    pub(super) fn is_doubtful(&self, executor: Slot) -> bool {
        let Lineup { executors, joining, .. } = self.record.lineup;
        !executors.contains(executor) || joining.or(self.unsure).contains(executor)
    }

    /// A token of the present view tells how far an executor is. A token of one that counts which continues the record
    /// tells that it has the record.
    pub(super) fn note_reached(&mut self, executor: Slot, version: Version, parent: StateToken) {
        let TokenRecord { version: recorded, lineup, .. } = self.record;
        let counts = lineup.executors.contains(executor);
        let continues = version.number == recorded.number.saturating_add(1) && parent == recorded.token;
        let reached = if counts && continues { recorded } else { version };
        if counts && self.reached.get(&executor) == Some(&recorded) {
            return;
        }
        self.reached.insert(executor, reached);
        if reached == recorded {
            self.unsure = self.unsure.without(executor);
        }
    }

    /// A connection has ended, or another one begun: the process may have lost what it had reached.
    pub(super) fn doubt(&mut self, slot: Slot) {
        if self.config.rules.reports_end {
            self.reached.remove(&slot);
        }
        if self.config.layout == Layout::PairWithWitness && slot < self.config.layout.executors() {
            self.unsure = self.unsure.with(slot);
        }
    }

    /// How long this verifier waits before it asks for another view. Where no executor can be left out, another view
    /// does not help while the primary's token for the next batch is there, and none that differs: the others are slow.
    /// But where one is gone, an executor that came back may send tokens only in the next view.
    pub(super) fn patience_us(&self, now_us: u64) -> u64 {
        if !self.config.rules.measured_patience {
            return self.times.fixed_patience_us();
        }
        let count = self.count();
        let has_primarys = count.agreeing.contains(self.record.lineup.primary) && !count.differs;
        let is_changing = self.phase != VerifierPhase::Normal;
        let all_are_there = self.down.and(self.record.lineup.executors).is_empty();
        if self.config.layout.leaves_out() || is_changing || !has_primarys || !all_are_there {
            return self.times.patience_us(self.config.layout, now_us);
        }
        VIEW_PATIENCE_MAX_US
    }

    /// Whether enough tokens agree and extra protection waits for the rest.
    pub(super) fn waits_for_extra(&self) -> bool {
        let executors = self.record.lineup.executors;
        let agreeing = self.count().agreeing;
        self.phase == VerifierPhase::Normal
            && agreeing.len() as usize >= self.config.layout.tokens(executors)
            && self.extra.waits(agreeing, executors)
    }
}
