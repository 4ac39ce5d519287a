//! The verifier: tallies the executors' tokens, records one version after the other, and changes views (Eve, section
//! 6.1, for crashes only).
//!
//! An executor sends one token for each view, batch and parent, so the tokens that a verifier needs can agree on one
//! only, and no phase is needed for uniqueness. What is missing is durability: a quorum has to *record* the version.
//! Three rules make that enough; `tests/explore.rs` shows what happens without each.
//!
//! 1. *View first.* A view starts from the record of the highest view among a quorum, and of those from the one with
//!    the highest number. Installing a view is recording its start in it.
//! 2. *Record again, then act.* An executor acts on RECORDED of a quorum, at a view's start too.
//! 3. *No memory, no vote.* A verifier that lost its memory is another one than before (`verifier/recover.rs`).
//!
//! Then every version that is stable in view w is held by a quorum in records of views >= w. Each later view sees one
//! of them, and by induction on views starts from a version that continues it.

mod change;
mod pair;
mod recover;
mod tally;
mod tick;

use std::collections::BTreeMap;

use crate::config::{Config, Layout};
use crate::message::{AskRound, Here, Lineup, Reason, TokenRecord, VerifyMessage};
use crate::saved::SavedRecord;
use crate::slots::{CrashVector, Slot, Slots};
use crate::version::{StateToken, Version};

use change::Wish;
use pair::PairState;
use recover::Recovery;
use tally::Tallies;
use tick::Times;

/// All events of a verifier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VerifierEvent {
    /// A message arrived. The host gives every message of the stage to both machines of its process, also those that
    /// its own process sends; each ignores what is not for it.
    Message {
        /// The process that sent it, as the link knows it.
        from: Slot,
        /// The message.
        message: VerifyMessage,
    },
    /// A process can be reached (again).
    Connected(Slot),
    /// The connection to a process ended; it may live.
    Disconnected(Slot),
    /// Proof that a process has ended, and with it its memory: its host refuses connections, or a later life greets.
    ProcessGone(Slot),
    /// The host wants another view: the primary orders nothing although requests wait.
    Suspect(Reason),
    /// The operator lets this process of a pair go on alone: its peer will not come back with its memory.
    GoAlone,
    /// A timer has elapsed. [`VerifierEvent::Tick`] finds out by itself; an exploration has no time.
    Elapsed(Timer),
    /// Time passed. Any interval up to a few milliseconds works.
    Tick,
}

/// What waits for time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A batch is known and not recorded, or a view did not begin.
    Patience,
    /// Messages may have been lost.
    Resend,
    /// Extra protection waits for tokens.
    Extra,
    /// The primary of a pair is silent.
    Silence,
}

/// The receivers of a message, the own process included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recipients {
    /// One process.
    One(Slot),
    /// Every process with a verifier.
    Verifiers,
    /// Every process with an executor.
    Executors,
}

/// All commands of a verifier. They are performed in order: what is persisted first is durable before a later message
/// leaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VerifierCommand {
    /// Send a message.
    Send {
        /// Its receivers.
        to: Recipients,
        /// The message.
        message: VerifyMessage,
    },
    /// With `durability = "disk"`: write this and wait until it is durable. Otherwise nothing.
    Persist(SavedRecord),
    /// This verifier takes part from the group's beginning.
    Founded,
    /// This verifier had lost its memory and takes part again.
    Recovered,
    /// A view began at this verifier.
    ViewBegan {
        /// Its start.
        record: TokenRecord,
    },
    /// The batch after `version` ran sequentially and the tokens differ all the same: nobody can tell who is wrong.
    Undecided {
        /// The last version that was agreed on.
        version: Version,
    },
    /// The primary of a pair waits for its peer, or for the operator ([`VerifierEvent::GoAlone`]): its peer may have
    /// gone on without it.
    WaitsForPeer {
        /// The last version that was agreed on.
        version: Version,
    },
}

/// One verifier. It owns no socket, clock or thread: an event and the time go in, commands come out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Verifier {
    config: Config,
    phase: VerifierPhase,
    /// No view before this one is taken part in.
    promised: u64,
    record: TokenRecord,
    /// A verifier that lost its memory leads no view up to this one: its earlier life may have.
    leads_after: Option<u64>,
    crashes: CrashVector,
    tallies: Tallies,
    /// The newest VIEW-CHANGE of each verifier.
    wishes: BTreeMap<Slot, Wish>,
    /// The lives that took part when the group began here.
    founding: BTreeMap<Slot, u64>,
    /// Processes whose connection ended.
    down: Slots,
    extra: ExtraState,
    /// What executors that were left out have reached.
    outsiders: BTreeMap<Slot, Version>,
    /// Sequential tokens differed; reported once.
    undecided: bool,
    pair: PairState,
    times: Times,
}

/// What a verifier may do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum VerifierPhase {
    /// It has no memory.
    Blank(Recovery),
    /// It records in the view of its record.
    Normal,
    /// It promised a later view than that of its record.
    Changing,
}

/// Extra protection (Eve, section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct ExtraState {
    /// Batches in a row with equal tokens of all executors.
    streak: u32,
    /// Executors that sent the recorded token.
    agreeing: Slots,
    /// Silence was forgiven for the batch after the record.
    forgiven: bool,
}

/// Where commands go, and the time.
struct Out<'a> {
    now_us: u64,
    commands: &'a mut Vec<VerifierCommand>,
}

impl Out<'_> {
    fn send(&mut self, to: Recipients, message: VerifyMessage) {
        self.commands.push(VerifierCommand::Send { to, message });
    }
}

impl Verifier {
    /// A verifier without memory. It asks the others once they are connected.
    pub fn new(config: Config) -> Verifier {
        let crashes = CrashVector::new(config.layout.verifiers());
        let record = first_record(&config);
        let pair = PairState::default();
        Verifier {
            phase: VerifierPhase::Blank(Recovery::default()),
            promised: 0,
            record,
            leads_after: None,
            crashes,
            tallies: Tallies::default(),
            wishes: BTreeMap::new(),
            founding: BTreeMap::new(),
            down: Slots::EMPTY,
            extra: ExtraState::default(),
            outsiders: BTreeMap::new(),
            undecided: false,
            pair,
            times: Times::default(),
            config,
        }
    }

    /// A verifier that comes back with its memory from disk.
    pub fn restored(config: Config, saved: &SavedRecord) -> Verifier {
        let mut verifier = Verifier::new(config);
        (verifier.promised, verifier.record) = (saved.promised, saved.record);
        verifier.crashes.join(&saved.crashes);
        verifier.pair_begins(saved.record.view);
        let is_normal = saved.promised == saved.record.view;
        verifier.phase = if is_normal { VerifierPhase::Normal } else { VerifierPhase::Changing };
        verifier
    }

    /// A verifier of a group that has begun, without the messages of a beginning.
    #[cfg(any(test, feature = "unprotected"))]
    pub fn founded(config: Config, lives: &[u64]) -> Verifier {
        let mut verifier = Verifier::new(config);
        verifier.founding = (0..).zip(lives.iter().copied()).collect();
        verifier.phase = VerifierPhase::Normal;
        verifier.pair_begins(0);
        verifier.pair_is_confirmed();
        verifier
    }

    /// Handles one event at `now_us` microseconds of any steady clock and appends its commands.
    pub fn handle(&mut self, event: VerifierEvent, now_us: u64, commands: &mut Vec<VerifierCommand>) {
        let out = &mut Out { now_us, commands };
        match event {
            VerifierEvent::Message { from, message } => self.on_message(from, message, out),
            VerifierEvent::Connected(slot) => self.on_connected(slot, out),
            VerifierEvent::Disconnected(slot) => self.on_disconnected(slot, out),
            VerifierEvent::ProcessGone(slot) => self.on_process_gone(slot, out),
            VerifierEvent::Suspect(reason) => self.suspect(reason, out),
            VerifierEvent::GoAlone => self.on_go_alone(out),
            VerifierEvent::Elapsed(timer) => self.on_elapsed(timer, out),
            VerifierEvent::Tick => self.on_tick(out),
        }
    }

    /// What this verifier keeps; none while it has no memory.
    pub fn record(&self) -> Option<TokenRecord> {
        (!self.is_blank()).then_some(self.record)
    }

    /// The view that it promised: it takes part in no earlier one.
    pub fn promised(&self) -> u64 {
        self.promised
    }

    /// Whether it waits for a view to begin.
    pub fn is_changing(&self) -> bool {
        self.phase == VerifierPhase::Changing
    }

    /// Tokens that wait for others.
    pub fn tokens(&self) -> usize {
        self.tallies.len()
    }

    /// Drops what depends on the time, so that an exploration does not tell states apart by it.
    #[cfg(any(test, feature = "unprotected"))]
    pub fn forget_times(&mut self) {
        self.times = Times::default();
    }

    fn on_message(&mut self, from: Slot, message: VerifyMessage, out: &mut Out<'_>) {
        self.pair_hears(from, out);
        match message {
            VerifyMessage::Verify { view, version, parent, life: _ } => {
                self.on_verify(from, view, version, parent, out)
            }
            VerifyMessage::Recorded { record, crashes: _ } => self.pair_on_recorded(from, record, out),
            VerifyMessage::ViewChange { view, reason, record, crashes } => {
                self.on_view_change(from, Wish { view, reason, record, life: 0 }, &crashes, out)
            }
            VerifyMessage::NewView { record, crashes } => self.on_new_view(from, record, &crashes, out),
            VerifyMessage::Where { life, round, crashes } => self.on_where(from, life, round, &crashes, out),
            VerifyMessage::Here(here) => self.on_here(from, here, out),
        }
    }

    fn on_verify(&mut self, from: Slot, view: u64, version: Version, parent: StateToken, out: &mut Out<'_>) {
        if self.is_blank() || from >= self.config.layout.executors() {
            return;
        }
        self.pair_on_verify(from, view, version);
        if !self.decides() && view <= self.record.view {
            return;
        }
        if view < self.record.view {
            // The executor has missed the start of this view.
            let message = self.recorded();
            return out.send(Recipients::One(from), message);
        }
        if view == self.record.view && !self.record.lineup.executors.contains(from) {
            return self.on_outsider(from, version, out);
        }
        self.count_timely(from, view, version);
        let present = (self.record.view, self.record.version.number);
        if !self.tallies.insert(from, view, version, parent, present) {
            return;
        }
        if view > self.record.view {
            return self.ask_to_catch_up(out);
        }
        self.times.begin_waiting(out.now_us);
        self.step(out);
    }

    /// Records as many versions as the tokens allow, and asks for another view when they cannot agree.
    fn step(&mut self, out: &mut Out<'_>) {
        while self.phase == VerifierPhase::Normal && self.decides() {
            let executors = self.record.lineup.executors;
            let needed = self.config.layout.tokens(executors);
            let count = self.tallies.count(
                self.record.view,
                self.record.version,
                executors,
                self.config.rules.parents,
            );
            let best = count.agreeing.len() as usize;
            let missing = executors.minus(count.received).minus(self.absent());
            let differs = count.received.minus(count.agreeing);
            if let Some(token) = count.token.filter(|_| best >= needed) {
                if self.waits_for_all(count.agreeing) {
                    if differs.is_empty() {
                        return;
                    }
                    if !self.record.lineup.sequential {
                        return self.change(Reason::Extra, out);
                    }
                    // One that differs sequentially too is not one that two requests have interleaved wrongly: it is
                    // outvoted, and repaired.
                    self.end_extra();
                }
                self.advance(token, count.agreeing, out);
            } else if best + (missing.len() as usize) < needed {
                return self.on_hopeless(out);
            } else {
                return;
            }
        }
    }

    /// Records the next version.
    fn advance(&mut self, token: StateToken, agreeing: Slots, out: &mut Out<'_>) {
        self.count_streak();
        self.extra.agreeing = agreeing;
        self.record.version = Version { number: self.record.version.number.saturating_add(1), token };
        self.record.lineup.sequential = false;
        self.record.lineup.extra = self.extra_is_on();
        self.undecided = false;
        self.tallies.drop_until(self.record.view, self.record.version.number);
        let waits_on = self.tallies.knows_more(self.record.view);
        self.times.recorded(waits_on, out.now_us);
        self.announce(out);
        self.welcome_outsiders(out);
    }

    /// Tokens that ran sequentially differ as well: the same again would only be repeated, as fast as messages go. So
    /// it is reported, and the next attempt waits for the patience.
    fn on_hopeless(&mut self, out: &mut Out<'_>) {
        if !self.record.lineup.sequential {
            return self.change(Reason::Diverged, out);
        }
        if !std::mem::replace(&mut self.undecided, true) {
            out.commands.push(VerifierCommand::Undecided { version: self.record.version });
        }
    }

    /// Makes the record durable and tells it to all executors.
    fn announce(&mut self, out: &mut Out<'_>) {
        self.persist(out);
        if self.decides() {
            let message = self.recorded();
            out.send(Recipients::Executors, message);
        }
    }

    fn persist(&self, out: &mut Out<'_>) {
        let (promised, record, crashes) = (self.promised, self.record, self.crashes);
        let saved = SavedRecord { promised, record, crashes, verifier: self.config.me };
        out.commands.push(VerifierCommand::Persist(saved));
    }

    fn recorded(&self) -> VerifyMessage {
        VerifyMessage::Recorded { record: self.record, crashes: self.crashes }
    }

    fn is_blank(&self) -> bool {
        matches!(self.phase, VerifierPhase::Blank(_))
    }

    /// Executors whose token will not come: their connection ended. In a pair only a proof tells.
    fn absent(&self) -> Slots {
        if self.config.layout.leaves_out() { Slots::EMPTY } else { self.down }
    }

    /// Takes over which lives are known. False for a message of a life that its sender has lost.
    fn admit(&mut self, from: Slot, crashes: &CrashVector) -> bool {
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

    fn on_where(&mut self, from: Slot, life: u64, round: AskRound, crashes: &CrashVector, out: &mut Out<'_>) {
        if self.config.rules.crash_vectors && !self.is_blank() {
            self.crashes.join(crashes);
        }
        let memory = (!self.is_blank()).then_some((self.promised, self.record));
        let founding = self.founding.get(&from).copied().unwrap_or(0);
        let (own_life, crashes) = (self.config.life, self.crashes);
        let here = Here { life, round, own_life, founding, memory, crashes };
        out.send(Recipients::One(from), VerifyMessage::Here(here));
    }

    fn on_here(&mut self, from: Slot, here: Here, out: &mut Out<'_>) {
        if from == self.config.me {
            return;
        }
        if self.is_blank() {
            return self.on_answer(from, here, out);
        }
        if here.round == AskRound::Alive && here.life == self.config.life {
            self.pair_on_answer();
        }
        if !self.admit(from, &here.crashes) {
            return;
        }
        let Some((_, record)) = here.memory else { return };
        // The backup of a pair tells nothing that its primary does not know, except to a life that recovers.
        if self.changes_by_quorum() || self.leader(record.view) == from {
            self.catch_up(record, out);
        }
    }

    /// Takes over another verifier's record of the present view or a later one. A view has one start and its executors
    /// send one token for each batch, so that this is what the tokens themselves would lead to.
    fn catch_up(&mut self, record: TokenRecord, out: &mut Out<'_>) {
        let is_newer = (record.view, record.version.number) > self.key();
        if record.view < self.promised || !is_newer {
            return;
        }
        if record.view > self.record.view {
            self.pair_follows();
            return self.install(record, out);
        }
        self.phase = VerifierPhase::Normal;
        self.record = record;
        self.tallies.drop_until(record.view, record.version.number);
        self.times.recorded(self.tallies.knows_more(record.view), out.now_us);
        self.announce(out);
        self.step(out);
    }

    /// View and number of the record.
    fn key(&self) -> (u64, u64) {
        (self.record.view, self.record.version.number)
    }

    /// Asks the others for what this verifier has missed.
    fn ask_to_catch_up(&mut self, out: &mut Out<'_>) {
        if self.times.may_ask(out.now_us) {
            let (life, round, crashes) = (self.config.life, AskRound::CatchUp, self.crashes);
            out.send(Recipients::Verifiers, VerifyMessage::Where { life, round, crashes });
        }
    }
}

/// What every verifier has at the group's beginning.
fn first_record(config: &Config) -> TokenRecord {
    let executors = Slots::first(config.layout.executors());
    let lineup = Lineup { primary: 0, executors, sequential: false, extra: false };
    TokenRecord { view: 0, version: Version { number: 0, token: config.genesis }, lineup }
}

/// Extra protection.
impl Verifier {
    fn extra_is_on(&self) -> bool {
        self.config.extra_after.is_some_and(|after| self.extra.streak >= after)
    }

    fn waits_for_all(&self, agreeing: Slots) -> bool {
        self.extra_is_on() && agreeing != self.record.lineup.executors && !self.extra.forgiven
    }

    /// It begins anew to count.
    fn end_extra(&mut self) {
        self.extra = ExtraState::default();
    }

    /// A token for the recorded version that comes before the next one is recorded.
    fn count_timely(&mut self, executor: Slot, view: u64, version: Version) {
        if self.config.extra_after.is_some() && view == self.record.view && version == self.record.version {
            self.extra.agreeing = self.extra.agreeing.with(executor);
        }
    }

    /// The recorded version is about to be replaced: did all executors have it in time?
    fn count_streak(&mut self) {
        let Some(after) = self.config.extra_after else { return };
        if self.record.lineup.sequential || self.extra.agreeing.is_empty() {
            // The start of a view is no batch.
            return;
        }
        let all = self.extra.agreeing == self.record.lineup.executors && !self.extra.forgiven;
        self.extra.streak = if all { (self.extra.streak + 1).min(after) } else { 0 };
        self.extra.forgiven = false;
    }
}
