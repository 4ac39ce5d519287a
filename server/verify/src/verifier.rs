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
mod events;
mod extra;
mod operator;
mod pair;
mod recorder;
mod recover;
mod tally;
mod tick;
mod times;

use std::collections::BTreeMap;

use crate::config::Config;
use crate::message::{AskRound, Here, Reason, TokenRecord, VerifyMessage};
use crate::saved::SavedRecord;
use crate::slots::{CrashVector, Slot, Slots};
use crate::version::{StateToken, Version};

pub use events::{Recipients, Timer, VerifierCommand, VerifierEvent};

use change::{Wish, Wishes};
use events::Out;
use pair::PairState;
use recorder::{Recorder, VerifierPhase};
use recover::Recovery;

/// One verifier. It owns no socket, clock or thread: an event and the time go in, commands come out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
// large: the only entrance to the verifier's rules, which its events call
pub struct Verifier {
    recorder: Recorder,
    /// The questions of a verifier without memory.
    recovery: Recovery,
    wishes: Wishes,
    /// The incarnations that took part when the group began here.
    founding: BTreeMap<Slot, u64>,
    pair: PairState,
}

impl Verifier {
    /// A verifier without memory. It asks the others once they are connected.
    pub fn new(config: Config) -> Verifier {
        Verifier {
            recorder: Recorder::new(config),
            recovery: Recovery::default(),
            wishes: Wishes::default(),
            founding: BTreeMap::new(),
            pair: PairState::default(),
        }
    }

    /// A verifier that comes back with its memory from disk. That of a pair follows its peer or waits for the operator:
    /// which tokens its executor has sent is not on disk.
    pub fn restored(config: Config, saved: &SavedRecord) -> Verifier {
        let mut verifier = Verifier::new(config);
        verifier.recorder.restore(saved);
        verifier
    }

    /// A verifier of a group that has begun, without the messages of a beginning.
    #[cfg(any(test, feature = "unprotected"))]
    pub fn founded(config: Config, incarnations: &[u64]) -> Verifier {
        let mut verifier = Verifier::new(config);
        verifier.founding = (0..).zip(incarnations.iter().copied()).collect();
        verifier.recorder.phase = VerifierPhase::Normal;
        verifier.recorder.began = Some(0).filter(|_| !verifier.recorder.is_by_quorum());
        verifier.pair.is_confirmed();
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
            VerifierEvent::Begin => self.recorder.config.begins = true,
            VerifierEvent::GoAlone { has, blank } => self.on_go_alone(has, &blank, out),
            VerifierEvent::Elapsed(timer) => self.on_elapsed(timer, out),
            VerifierEvent::Tick => self.on_tick(out),
        }
    }

    /// What this verifier keeps; none while it has no memory.
    pub fn record(&self) -> Option<TokenRecord> {
        (!self.recorder.is_blank()).then_some(self.recorder.record)
    }

    /// The view that it promised: it takes part in no earlier one.
    pub fn promised(&self) -> u64 {
        self.recorder.promised
    }

    /// Whether it waits for a view to begin.
    pub fn is_changing(&self) -> bool {
        self.recorder.phase == VerifierPhase::Changing
    }

    /// The executors that have the record, as far as is known here: each can carry the group on if the others end.
    /// None while this verifier records nothing.
    pub fn copies(&self) -> Slots {
        let recorder = &self.recorder;
        if recorder.phase != VerifierPhase::Normal || !recorder.decides() {
            return Slots::EMPTY;
        }
        recorder.copies(&recorder.record, recorder.record.lineup.executors)
    }

    /// Whether this process goes on at `now_us` when its peer ends: that a pair's primary knows of its backup from the
    /// answers to its questions. Everywhere else a majority decides.
    pub fn is_sure_of_peer(&self, now_us: u64) -> bool {
        self.recorder.is_by_quorum() || self.pair.is_sure(now_us)
    }

    /// Tokens that wait for others.
    pub fn tokens(&self) -> usize {
        self.recorder.tallies.len()
    }

    /// Flips a bit of a token that was counted; false while there is none: an injected fault.
    #[cfg(any(test, feature = "unprotected"))]
    pub fn corrupt_tally(&mut self, seed: u64) -> bool {
        self.recorder.tallies.corrupt(seed)
    }

    /// Removes rules, to show their effect.
    #[cfg(any(test, feature = "unprotected"))]
    pub fn set_rules(&mut self, rules: crate::config::Rules) {
        self.recorder.config.rules = rules;
    }

    /// Drops what depends on the time, so that an exploration does not tell states apart by it.
    #[cfg(any(test, feature = "unprotected"))]
    pub fn forget_times(&mut self) {
        self.recorder.times = times::Times::default();
    }

    fn on_message(&mut self, from: Slot, message: VerifyMessage, out: &mut Out<'_>) {
        if from != self.recorder.config.me && !self.recorder.is_by_quorum() {
            self.pair.receives(out.now_us);
        }
        match message {
            VerifyMessage::Verify { view, version, parent, incarnation: _ } => {
                self.on_verify(from, view, version, parent, out)
            }
            VerifyMessage::Recorded { record, crashes: _ } => self.on_recorded(from, record, out),
            VerifyMessage::ViewChange { view, reason, record, crashes } => {
                let incarnation = crashes.of_slot(from);
                self.on_view_change(from, Wish { view, reason, record, incarnation }, &crashes, out)
            }
            VerifyMessage::NewView { record, crashes } => self.on_new_view(from, record, &crashes, out),
            VerifyMessage::Where { incarnation, round, crashes } => {
                self.on_where(from, incarnation, round, &crashes, out)
            }
            VerifyMessage::Here(here) => self.on_here(from, here, out),
            VerifyMessage::ReadWhere { incarnation, round } => {
                self.on_read_where(from, incarnation, round, out)
            }
            VerifyMessage::ReadHere { .. } => {}
        }
    }

    fn on_verify(&mut self, from: Slot, view: u64, version: Version, parent: StateToken, out: &mut Out<'_>) {
        let recorder = &mut self.recorder;
        if recorder.is_blank() || from >= recorder.config.layout.executors() {
            return;
        }
        if from == recorder.config.me && !recorder.is_by_quorum() {
            self.pair.sends(&recorder.record, view, version, parent);
        }
        let present = recorder.record.view;
        if !recorder.decides() && view <= present {
            return;
        }
        if view < present {
            // The executor has missed the start of this view. Who has promised a later one may only have adopted it.
            if recorder.phase == VerifierPhase::Normal || !recorder.config.rules.adopted_apart {
                let message = recorder.recorded();
                out.send(Recipients::One(from), message);
            }
            return;
        }
        if view == present && recorder.is_doubtful(from) {
            recorder.note_reached(from, version, parent);
            let counts = recorder.record.lineup.executors.contains(from);
            if recorder.phase == VerifierPhase::Changing && recorder.is_by_quorum() {
                // A view may wait for an executor that has its start.
                self.try_to_lead(out);
            } else if !counts || version == recorder.record.version {
                self.welcome_outsiders(out);
            }
            if !counts || self.recorder.record.view != view {
                return;
            }
        }
        let recorder = &mut self.recorder;
        if view == present && version == recorder.record.version {
            recorder.extra.note(from);
        }
        if !recorder.tallies.insert(from, view, version, parent, recorder.key()) {
            return;
        }
        if view > present {
            return recorder.ask_to_catch_up(out);
        }
        recorder.times.begin_waiting(out.now_us);
        self.step(out);
    }

    /// Records what the tokens allow, and asks for another view if they ask for one.
    fn step(&mut self, out: &mut Out<'_>) {
        if let Some(reason) = self.recorder.step(out) {
            self.change(reason, out);
        }
    }

    /// Takes executors in again that were left out and have reached the record, by another view.
    fn welcome_outsiders(&mut self, out: &mut Out<'_>) {
        if self.recorder.welcomes() {
            self.change(Reason::Joined, out);
        }
    }

    fn on_where(
        &mut self,
        from: Slot,
        incarnation: u64,
        round: AskRound,
        crashes: &CrashVector,
        out: &mut Out<'_>,
    ) {
        let recorder = &mut self.recorder;
        if recorder.config.rules.crash_vectors && !recorder.is_blank() {
            recorder.crashes.join(crashes);
        }
        if round == AskRound::Stalled && recorder.phase == VerifierPhase::Normal {
            // Its tokens may be lost, or an earlier incarnation of it may have sent some, so that it sends none.
            recorder.times.begin_waiting(out.now_us);
        }
        let memory = (!recorder.is_blank()).then_some((recorder.promised, recorder.record));
        let founding = self.founding.get(&from).copied().unwrap_or(0);
        let (own_incarnation, crashes) = (recorder.config.incarnation, recorder.crashes);
        let here = Here { incarnation, round, own_incarnation, founding, memory, crashes };
        out.send(Recipients::One(from), VerifyMessage::Here(here));
    }

    /// A reader's question. A verifier without memory cannot tell what its earlier incarnation has recorded, and is
    /// silent.
    fn on_read_where(&self, from: Slot, incarnation: u64, round: u64, out: &mut Out<'_>) {
        let recorder = &self.recorder;
        if recorder.is_blank() || !recorder.config.layout.reads_locally() {
            return;
        }
        let TokenRecord { view, version, .. } = recorder.record;
        let (number, crashes) = (version.number, recorder.crashes);
        out.send(
            Recipients::One(from),
            VerifyMessage::ReadHere { incarnation, round, view, number, crashes },
        );
    }

    fn on_here(&mut self, from: Slot, here: Here, out: &mut Out<'_>) {
        let recorder = &mut self.recorder;
        if from == recorder.config.me {
            return;
        }
        if recorder.is_blank() {
            let (founder, crashes) = (here.memory.map(|(_, record)| record), here.crashes);
            if let Some(incarnations) = self.recovery.on_answer(recorder, from, here, out) {
                self.found_with(incarnations, founder, &crashes, out);
            }
            return;
        }
        if here.round == AskRound::Alive && here.incarnation == recorder.config.incarnation {
            self.pair.is_answered();
        }
        if !recorder.admit(from, &here.crashes) {
            return;
        }
        let Some((_, record)) = here.memory else { return };
        // The backup of a pair tells nothing that its primary does not know, except to an incarnation that recovers.
        if recorder.is_by_quorum() || recorder.leader(record.view) == from {
            self.catch_up(record, out);
        }
    }

    /// Becomes a verifier of a group that begins. `incarnations` took part.
    fn found(&mut self, incarnations: BTreeMap<Slot, u64>, out: &mut Out<'_>) {
        self.founding = incarnations;
        out.commands.push(VerifierCommand::Founded);
        if !self.recorder.is_by_quorum() {
            self.recorder.began = Some(0);
        }
        self.recorder.enter(self.recorder.record, out);
    }

    /// Takes over another verifier's record of the present view or a later one. A view has one start and its executors
    /// send one token for each batch, so that this is what the tokens themselves would lead to.
    fn catch_up(&mut self, record: TokenRecord, out: &mut Out<'_>) {
        let recorder = &mut self.recorder;
        let is_newer = (record.view, record.version.number) > recorder.key();
        if record.view < recorder.promised || !is_newer {
            return;
        }
        if record.view > recorder.record.view {
            self.pair.leaves();
            return self.install(record, out);
        }
        recorder.follow(record, out);
        self.step(out);
    }
}
