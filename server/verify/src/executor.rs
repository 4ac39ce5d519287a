//! The executor's side of the verification stage: sends tokens, learns which versions are stable, and which view to
//! follow (Eve, section 6.1).
//!
//! It runs batches in one view at a time, on one chain of versions. What it has run and a quorum of verifiers has
//! recorded is stable. Where they have recorded another token, or another view, its host takes batches back.

mod incarnation;
mod reads;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::config::{Config, Layout};
use crate::limits::{IDENTITY_VIEWS, RESEND_US, TALLY_BATCHES, WINDOW};
use crate::message::{AskRound, Here, Lineup, TokenRecord, VerifyMessage};
use crate::slots::{CrashVector, Slot, Slots};
use crate::verifier::{Recipients, Timer};
use crate::version::{StateToken, Version};

use incarnation::Incarnation;
use reads::ReadRound;

/// All events of an executor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExecutorEvent {
    /// A message arrived. The host gives every message of the stage to both machines of its process, also those that
    /// its own process sends; each ignores what is not for it.
    Message {
        /// The process that sent it, as the link knows it.
        from: Slot,
        /// The message.
        message: VerifyMessage,
    },
    /// The host has run the batch after the executor's newest version. One that the host began before a
    /// [`ExecutorCommand::Rewind`], [`ExecutorCommand::Diverged`] or [`ExecutorCommand::Behind`] is ignored.
    Executed {
        /// The view in which it ran.
        view: u64,
        /// The state after it.
        version: Version,
        /// Token of the state before it.
        parent: StateToken,
    },
    /// The state is now this version, which came from another executor.
    Installed(Version),
    /// Reads wait at the host, and are to be answered without a batch. The verifiers are asked;
    /// [`ExecutorCommand::ReadFrom`] follows. A question that was asked before is given up: this one is for its reads
    /// too. In a pair nothing follows ([`Layout::reads_locally`]).
    Read,
    /// The host cannot get a batch that it should run: no process has it any more.
    BatchGone,
    /// A timer has elapsed: only [`Timer::Resend`] concerns executors.
    Elapsed(Timer),
    /// Time passed. Any interval up to a few milliseconds works.
    Tick,
}

/// All commands of an executor, to be performed in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExecutorCommand {
    /// Send a message.
    Send {
        /// Its receivers.
        to: Recipients,
        /// The message.
        message: VerifyMessage,
    },
    /// The own version of this batch, and with it those of all before, stay: their replies may leave.
    Stable(Version),
    /// The own state after a batch up to `version` is not the agreed one. Take back every batch that is not stable, get
    /// this version from one of the donors, and report [`ExecutorEvent::Installed`]. No batch runs before that.
    Diverged {
        /// The agreed version.
        version: Version,
        /// Executors that may have it. Whatever a donor sends has to have this token.
        donors: Slots,
    },
    /// The same, where the own state has not come so far and the batches are not to be had.
    Behind {
        /// The agreed version.
        version: Version,
        /// Executors that may have it.
        donors: Slots,
    },
    /// Follow this view: roll back every batch after `to`, and run the next one as the first of this view. If the own
    /// state has not come to `to`, roll back every batch that is not known to be one that the view continues
    /// ([`Executor::newest`] tells the last that is): it may be of a view in which nothing was agreed on. A
    /// [`ExecutorCommand::Diverged`] follows if it has come so far and is another.
    Rewind {
        /// The version from which the view continues here.
        to: Version,
        /// The view.
        view: u64,
        /// The executor that numbers its batches.
        primary: Slot,
        /// The executors whose tokens count.
        executors: Slots,
        /// The next batch runs sequentially.
        sequential: bool,
    },
    /// The answer to the last [`ExecutorEvent::Read`]: reads that waited then may run at the version after batch
    /// `number`, or a later one. A reply may leave once the version at which it was read is stable here. If that
    /// version is rolled back before, the read runs again, under the same bound.
    ReadFrom {
        /// The batch.
        number: u64,
    },
    /// A quorum of verifiers contradicts what was stable here, and the executor does not act on it. Within one identity
    /// of the group ([`IDENTITY_VIEWS`](crate::limits::IDENTITY_VIEWS)) the rules exclude it: something is broken. If
    /// the view is of a later one, an operator has decided: what this executor has need not be a part of what the group
    /// goes on with.
    Contradiction {
        /// What is stable here.
        stable: Version,
        /// What the verifiers have recorded.
        received: TokenRecord,
    },
}

/// One executor. It owns no socket, clock or thread: an event and the time go in, commands come out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Executor {
    config: Config,
    incarnation: Incarnation,
    /// The view that it follows, and how it works.
    view: Option<(u64, Lineup)>,
    stable: Version,
    /// Its own versions beyond the stable one.
    own: BTreeMap<u64, StateToken>,
    /// The token that it has sent in this view for each batch and parent.
    sent: BTreeMap<(u64, StateToken), StateToken>,
    /// What a quorum has recorded in this view beyond the stable version.
    agreed: BTreeMap<u64, StateToken>,
    /// The version that has to come from another executor.
    wanted: Option<Version>,
    /// RECORDED of each verifier by view and number.
    received: BTreeMap<(Slot, u64, u64), ReceivedRecord>,
    crashes: CrashVector,
    reads: ReadRound,
    /// When something was last sent or learned, in microseconds.
    quiet_since: Option<u64>,
    /// When it last asked which incarnation of its process this is: also while batches come, since it sends no token
    /// before.
    incarnation_asked_us: Option<u64>,
    /// The stable version came from others, who may have agreed on it in a later view than the one followed here.
    is_ahead_of_view: bool,
}

/// What a verifier has recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ReceivedRecord {
    token: StateToken,
    /// The verifier's incarnation.
    incarnation: u16,
}

/// Where commands go, and the time.
struct Out<'a> {
    now_us: u64,
    commands: &'a mut Vec<ExecutorCommand>,
}

impl Out<'_> {
    fn send(&mut self, to: Recipients, message: VerifyMessage) {
        self.commands.push(ExecutorCommand::Send { to, message });
    }
}

impl Executor {
    /// An executor whose state is the one before the first batch. Until the verifiers have told it which incarnation of
    /// its process this is, it sends no token.
    pub fn new(config: Config) -> Executor {
        let stable = Version { number: 0, token: config.genesis };
        let crashes = CrashVector::new(config.layout.verifiers());
        Executor {
            config,
            incarnation: Incarnation::default(),
            view: None,
            stable,
            own: BTreeMap::new(),
            sent: BTreeMap::new(),
            agreed: BTreeMap::new(),
            wanted: None,
            received: BTreeMap::new(),
            crashes,
            reads: ReadRound::default(),
            quiet_since: None,
            incarnation_asked_us: None,
            is_ahead_of_view: false,
        }
    }

    /// An executor in its first incarnation, without the messages of a beginning.
    #[cfg(any(test, feature = "unprotected"))]
    pub fn founded(config: Config) -> Executor {
        Executor { incarnation: Incarnation::First, ..Executor::new(config) }
    }

    /// Handles one event at `now_us` microseconds of any steady clock and appends its commands.
    pub fn handle(&mut self, event: ExecutorEvent, now_us: u64, commands: &mut Vec<ExecutorCommand>) {
        let out = &mut Out { now_us, commands };
        match event {
            ExecutorEvent::Message { from, message } => self.on_message(from, message, out),
            ExecutorEvent::Executed { view, version, parent } => self.on_executed(view, version, parent, out),
            ExecutorEvent::Installed(version) => self.on_installed(version, out),
            ExecutorEvent::Read => self.ask_for_reads(out),
            ExecutorEvent::BatchGone => self.fall_behind(out),
            ExecutorEvent::Elapsed(Timer::Resend) => self.repeat(out),
            ExecutorEvent::Elapsed(_) => {}
            ExecutorEvent::Tick => self.on_tick(out),
        }
    }

    /// The view that it follows; none before the first.
    pub fn view(&self) -> Option<u64> {
        self.view.map(|(view, _)| view)
    }

    /// The newest version that stays.
    pub fn stable(&self) -> Version {
        self.stable
    }

    /// The newest version that it has run.
    pub fn newest(&self) -> Version {
        let newest = self.own.last_key_value();
        newest.map_or(self.stable, |(number, token)| Version { number: *number, token: *token })
    }

    /// Whether this version is one that stays here, the newest such, or a later one that it has run.
    pub fn has(&self, version: Version) -> bool {
        version == self.stable || self.own.get(&version.number) == Some(&version.token)
    }

    /// The last version that a quorum is known to have recorded; the stable one if there is no later one.
    pub fn agreed(&self) -> Version {
        let agreed = self.agreed.last_key_value();
        agreed.map_or(self.stable, |(number, token)| Version { number: *number, token: *token })
    }

    /// Whether a quorum of verifiers is known to have recorded this version.
    pub fn is_agreed(&self, version: Version) -> bool {
        let is_recorded = self.agreed.get(&version.number) == Some(&version.token);
        is_recorded || self.wanted == Some(version) || self.stable == version
    }

    /// The version that has to come from another executor before any batch runs.
    pub fn wanted(&self) -> Option<Version> {
        self.wanted
    }

    /// Whether it would send no token for the next batch: an earlier incarnation of its process may have sent one.
    pub fn abstains(&self) -> bool {
        let next = self.newest().number.saturating_add(1);
        self.view().is_none_or(|view| !self.incarnation.may_vote(view, next, true))
    }

    /// Whether it knows which incarnation of its process this is. Before that it sends no token.
    pub fn knows_its_incarnation(&self) -> bool {
        self.incarnation.is_known()
    }

    /// Whether the batch after `newest`, the last one that was begun, may begin: fewer than [`WINDOW`] are beyond the
    /// stable one. An executor that lags has no such bound, up to what is known to be agreed on: the token of that
    /// stands for all batches before.
    pub fn may_begin_after(&self, newest: u64) -> bool {
        let is_within = newest.saturating_sub(self.stable.number) < WINDOW;
        let is_known = newest < self.agreed().number;
        self.view.is_some() && self.wanted.is_none() && (is_within || is_known)
    }

    /// Messages of verifiers that wait for others.
    pub fn remembered(&self) -> usize {
        self.received.len()
    }

    /// Removes rules, to show their effect.
    #[cfg(any(test, feature = "unprotected"))]
    pub fn set_rules(&mut self, rules: crate::config::Rules) {
        self.config.rules = rules;
    }

    /// Drops what depends on the time, so that an exploration does not tell states apart by it.
    #[cfg(any(test, feature = "unprotected"))]
    pub fn forget_times(&mut self) {
        (self.quiet_since, self.incarnation_asked_us) = (None, None);
    }

    fn on_message(&mut self, from: Slot, message: VerifyMessage, out: &mut Out<'_>) {
        match message {
            VerifyMessage::Recorded { record, crashes } => self.on_recorded(from, record, &crashes, out),
            VerifyMessage::Here(here) => self.on_here(from, here, out),
            VerifyMessage::ReadHere { incarnation, round, view, number, crashes } => {
                self.on_read_here(from, (incarnation, round), (view, number), &crashes, out)
            }
            VerifyMessage::Verify { .. }
            | VerifyMessage::ViewChange { .. }
            | VerifyMessage::NewView { .. }
            | VerifyMessage::Where { .. }
            | VerifyMessage::ReadWhere { .. } => {}
        }
    }

    fn on_executed(&mut self, view: u64, version: Version, parent: StateToken, out: &mut Out<'_>) {
        let newest = self.newest();
        let is_next = version.number == newest.number.saturating_add(1) && parent == newest.token;
        if self.view() != Some(view) || self.wanted.is_some() || !is_next {
            return;
        }
        self.own.insert(version.number, version.token);
        self.vote(version, parent, out);
        self.judge(out);
    }

    /// Sends the token, the same one for ever.
    fn vote(&mut self, version: Version, parent: StateToken, out: &mut Out<'_>) {
        let Some((view, lineup)) = self.view else { return };
        let counts = lineup.executors.contains(self.config.me);
        if counts && !self.incarnation.may_vote(view, version.number, self.config.rules.abstention) {
            return;
        }
        let first = *self.sent.entry((version.number, parent)).or_insert(version.token);
        if first == version.token {
            self.quiet_since = Some(out.now_us);
            let incarnation = self.config.incarnation as u32;
            out.send(Recipients::Verifiers, VerifyMessage::Verify { view, version, parent, incarnation });
        }
    }

    /// Sends the tokens of the newest own versions that are not stable again. One that does not lag has no others, and
    /// verifiers need no others: what they have recorded decides on the older ones of one that lags.
    fn vote_again(&mut self, out: &mut Out<'_>) {
        let newest = self.own.iter().rev().take(WINDOW as usize).map(|(number, token)| (*number, *token));
        for (number, token) in newest.collect::<Vec<_>>().into_iter().rev() {
            let parent = self.own.get(&(number - 1)).unwrap_or(&self.stable.token);
            self.vote(Version { number, token }, *parent, out);
        }
    }

    fn on_recorded(&mut self, from: Slot, record: TokenRecord, crashes: &CrashVector, out: &mut Out<'_>) {
        let verifiers = self.config.layout.verifiers();
        if from >= verifiers || crashes.counts().len() != verifiers as usize {
            return;
        }
        let leads = (record.view % u64::from(verifiers)) as Slot == from;
        if self.config.layout == Layout::Pair && !leads {
            return;
        }
        self.crashes.join(crashes);
        let (view, number) = (record.view, record.version.number);
        let known = self.view.map_or((0, 0), |(view, _)| (view, self.stable.number));
        let old = self.view.is_some() && (view, number) <= known;
        let done = self.agreed.contains_key(&number) && self.view() == Some(view);
        if old || done {
            return;
        }
        let received = ReceivedRecord { token: record.version.token, incarnation: crashes.of_slot(from) };
        self.received.insert((from, view, number), received);
        self.bound_received(from);
        if self.has_quorum(&record) {
            self.received.retain(|key, _| (key.1, key.2) != (view, number));
            self.act(record, out);
        }
    }

    /// Of each verifier the newest are kept.
    fn bound_received(&mut self, from: Slot) {
        let of_verifier = || (from, 0, 0)..=(from, u64::MAX, u64::MAX);
        while self.received.range(of_verifier()).count() > TALLY_BATCHES as usize {
            let Some(oldest) = self.received.range(of_verifier()).next().map(|(key, _)| *key) else { return };
            self.received.remove(&oldest);
        }
    }

    /// Whether a quorum has recorded exactly this, none of which has lost its memory since as far as is known here.
    fn has_quorum(&self, record: &TokenRecord) -> bool {
        let (view, number) = (record.view, record.version.number);
        let agrees = |verifier: &Slot| {
            let received = self.received.get(&(*verifier, view, number));
            received.is_some_and(|received| {
                received.token == record.version.token
                    && received.incarnation >= self.crashes.of_slot(*verifier)
            })
        };
        let agreeing = (0..self.config.layout.verifiers()).filter(agrees).count();
        let starts = self.view() != Some(view);
        let rules = &self.config.rules;
        let one_is_enough = !rules.quorum || (starts && !rules.quorum_at_start);
        agreeing >= if one_is_enough { 1 } else { self.config.layout.quorum() }
    }

    /// A quorum has recorded this.
    fn act(&mut self, record: TokenRecord, out: &mut Out<'_>) {
        let is_same_identity =
            self.view.is_none_or(|(view, _)| view / IDENTITY_VIEWS == record.view / IDENTITY_VIEWS);
        if self.is_ahead_of_view && is_same_identity && record.version.number < self.stable.number {
            // The view began before the state that this executor has got since. A later record of it follows.
            return;
        }
        self.quiet_since = Some(out.now_us);
        if self.contradicts(&record) {
            let command = ExecutorCommand::Contradiction { stable: self.stable, received: record };
            return out.commands.push(command);
        }
        let version = record.version;
        if self.view() != Some(record.view) {
            self.follow(record, out);
        }
        if version.number > self.stable.number {
            self.agreed.insert(version.number, version.token);
            self.bound_agreed();
        }
        self.judge(out);
        self.received.retain(|key, _| (key.1, key.2) > (record.view, 0));
        let stable = self.stable.number;
        self.received.retain(|key, _| key.1 > record.view || key.2 > stable);
    }

    /// In a later identity even one that has less is not known to have the beginning of what the group has.
    fn contradicts(&self, record: &TokenRecord) -> bool {
        let (version, stable) = (record.version, self.stable);
        let is_later_identity =
            self.view.is_some_and(|(view, _)| view / IDENTITY_VIEWS < record.view / IDENTITY_VIEWS);
        version.number < stable.number
            || (version.number == stable.number && version.token != stable.token)
            || (is_later_identity && !self.has(version))
    }

    /// The newest agreed version is always remembered: it decides in the end. So is the oldest one, which an executor
    /// that lags reaches first: what it has run up to there is stable then, however far the others are.
    fn bound_agreed(&mut self) {
        while self.agreed.len() > TALLY_BATCHES as usize {
            let Some(second) = self.agreed.keys().nth(1).copied() else { return };
            self.agreed.remove(&second);
        }
    }

    /// Leaves the present view for another one.
    fn follow(&mut self, record: TokenRecord, out: &mut Out<'_>) {
        let TokenRecord { view, version: to, lineup } = record;
        let ran_so_far = self.newest().number;
        let has_it = self.has(to);
        let agreed = self.agreed.last_key_value().map_or(0, |(number, _)| *number);
        self.view = Some((view, lineup));
        self.is_ahead_of_view = false;
        self.sent.clear();
        self.agreed.clear();
        self.wanted = None;
        if has_it {
            let _ = self.own.split_off(&to.number.saturating_add(1));
        } else {
            // A view has one batch under each number, so those up to what was agreed on in the view that is left are
            // the batches that this one continues, whatever they led to here: the token at `to` tells. Later ones may
            // be of a view in which nothing was agreed on.
            let _ = self.own.split_off(&agreed.min(to.number).saturating_add(1));
        }
        let Lineup { primary, executors, sequential, .. } = lineup;
        out.commands.push(ExecutorCommand::Rewind { to, view, primary, executors, sequential });
        // One that is only slower runs the batches up to there, and is judged then.
        if !has_it && ran_so_far >= to.number {
            self.want(to, true, out);
        }
    }

    /// Compares what was agreed on with the own versions.
    fn judge(&mut self, out: &mut Out<'_>) {
        if self.wanted.is_some() {
            return;
        }
        let own = |number: &u64| self.own.get(number);
        let ran = self.agreed.range(..=self.newest().number);
        let same = ran.clone().take_while(|(number, token)| own(number) == Some(token)).last();
        let stable = same.map(|(number, token)| Version { number: *number, token: *token });
        let differs = ran.clone().any(|(number, token)| own(number) != Some(token));
        if let Some(stable) = stable {
            self.stay(stable, out);
        }
        if differs && let Some((number, token)) = self.agreed.last_key_value() {
            let version = Version { number: *number, token: *token };
            self.want(version, true, out);
        }
    }

    fn stay(&mut self, version: Version, out: &mut Out<'_>) {
        self.stable = version;
        self.is_ahead_of_view = false;
        let later = version.number.saturating_add(1);
        self.own = self.own.split_off(&later);
        self.agreed = self.agreed.split_off(&later);
        self.sent.retain(|key, _| key.0 > version.number);
        out.commands.push(ExecutorCommand::Stable(version));
    }

    fn fall_behind(&mut self, out: &mut Out<'_>) {
        let Some((number, token)) = self.agreed.last_key_value() else { return };
        let version = Version { number: *number, token: *token };
        if self.wanted.is_none() && version.number > self.newest().number {
            self.want(version, false, out);
        }
    }

    fn want(&mut self, version: Version, diverged: bool, out: &mut Out<'_>) {
        let executors = self.view.map_or(Slots::EMPTY, |(_, lineup)| lineup.executors);
        let donors = executors.without(self.config.me);
        self.wanted = Some(version);
        self.own.clear();
        out.commands.push(if diverged {
            ExecutorCommand::Diverged { version, donors }
        } else {
            ExecutorCommand::Behind { version, donors }
        });
    }

    fn on_installed(&mut self, version: Version, out: &mut Out<'_>) {
        if version.number < self.stable.number {
            return;
        }
        // It may be another version than the wanted one: an older one, from which batches run, or a newer one. What was
        // sent stays known: this incarnation goes on sending one token for each batch and parent (`incarnation.rs`).
        let is_ahead_of_view = self.agreed.get(&version.number) != Some(&version.token);
        self.wanted = None;
        self.own.clear();
        self.stay(version, out);
        self.is_ahead_of_view = is_ahead_of_view;
        self.judge(out);
    }

    fn on_tick(&mut self, out: &mut Out<'_>) {
        let since = *self.quiet_since.get_or_insert(out.now_us);
        if out.now_us.saturating_sub(since) >= RESEND_US {
            self.repeat(out);
        }
        let asked = *self.incarnation_asked_us.get_or_insert(out.now_us);
        if !self.incarnation.is_known() && out.now_us.saturating_sub(asked) >= RESEND_US {
            self.incarnation_asked_us = Some(out.now_us);
            self.ask(AskRound::CatchUp, out);
        }
    }

    /// Asks where the verifiers are, and with that for its incarnation.
    fn ask(&self, round: AskRound, out: &mut Out<'_>) {
        let (incarnation, crashes) = (self.config.incarnation, self.crashes);
        out.send(Recipients::Verifiers, VerifyMessage::Where { incarnation, round, crashes });
    }

    /// Sends again what is not stable, and asks where the verifiers are. Not only the oldest token: a verifier that
    /// lacks a later one would stop there.
    fn repeat(&mut self, out: &mut Out<'_>) {
        self.quiet_since = Some(out.now_us);
        self.vote_again(out);
        let counts = self.view.is_none_or(|(_, lineup)| lineup.executors.contains(self.config.me));
        let waits = !self.own.is_empty() || self.wanted.is_some() || !counts || self.is_ahead_of_view;
        if waits || self.view.is_none() || !self.incarnation.is_known() {
            let round = if self.own.is_empty() { AskRound::CatchUp } else { AskRound::Stalled };
            self.ask(round, out);
        }
        let is_level = self.own.is_empty() && self.wanted.is_none();
        if let Some((view, _)) = self.view.filter(|(_, lineup)| is_level && self.is_doubted(lineup)) {
            // No parent is compared for that.
            let (version, parent, incarnation) =
                (self.stable, self.stable.token, self.config.incarnation as u32);
            out.send(Recipients::Verifiers, VerifyMessage::Verify { view, version, parent, incarnation });
        }
    }

    /// Whether this executor reports how far it is: where it is left out, or has been taken in before it was level.
    /// Beside a witness always, since verifiers do not count on one whose connection has ended meanwhile.
    fn is_doubted(&self, lineup: &Lineup) -> bool {
        let me = self.config.me;
        let joins = !lineup.executors.contains(me) || lineup.joining.contains(me);
        joins || self.config.layout == Layout::PairWithWitness
    }

    fn on_here(&mut self, from: Slot, here: Here, out: &mut Out<'_>) {
        let Some((promised, record)) = here.memory else { return };
        // One that has promised a later view does not record in this one any more. If it has recovered, it only adopted
        // the record: the later view may begin from promises of its earlier incarnation, which did not have it.
        if promised == record.view || !self.config.rules.adopted_apart {
            self.on_recorded(from, record, &here.crashes, out);
        }
        self.learn_incarnation(from, &here, out);
    }
}
