//! The model of all explorations: the real machines, and a set of messages.
//!
//! A message that was sent once stays in the set and can be delivered at any time, any number of times, or never: that
//! covers loss, delay, duplication and reordering. Time stands still; a suspicion is a step, possible at any time.
//! Crashes and restarts are steps.
//!
//! Machines and messages are kept once and named by numbers, and what a machine does with a message is computed once.
//! So a state is a few numbers, although the machines are the ones that ship.
//!
//! A token is the list of what ran in its batches: a byte for each, the view and a flavour. Batches that ran in one
//! view on one version are equal, except where an executor is let diverge.

mod act;
mod reads;
mod together;

use std::collections::HashMap;
use std::hash::Hash;

use verify::{
    AskRound, Config, CrashVector, Executor, ExecutorCommand, ExecutorEvent, Layout, Reason, Recipients,
    Rules, Slot, StateToken, Timer, Verifier, VerifierCommand, VerifierEvent, VerifyMessage, Version,
    limits::WINDOW,
};

use act::act;
use together::has_effect;

use super::search::{AsBytes, Model, Outcome, search};
use super::table::{Messages, Table, after, reported};

/// Machines in a world at most.
const PARTS: usize = 6;
/// Lives that begin without memory have numbers beyond this.
const NEW_INCARNATIONS: u64 = 100;

/// What is explored, and how much of it.
#[derive(Clone)]
pub struct World {
    /// Who executes and verifies.
    pub layout: Layout,
    /// The rules that are kept.
    pub rules: Rules,
    /// Views that may begin: 0 up to this number, without it.
    pub views: u64,
    /// Batches that may run.
    pub batches: u64,
    /// How executors take part.
    pub executors: Executors,
    /// How often verifiers may lose their memory, all together.
    pub verifier_restarts: u8,
    /// How often executors may lose their memory, all together.
    pub executor_restarts: u8,
    /// How often an executor may produce another token than the others, all together.
    pub divergences: u8,
    /// Batches after which extra protection begins.
    pub extra_after: Option<u32>,
    /// Verifiers that are behind ask what they have missed.
    pub catch_up: bool,
    /// Real machines receive messages that count together in one step, once there are enough of them for an effect.
    /// Fewer of them would only be noted. Messages persist, so noting them can be put off until the one arrives with
    /// which they have an effect; what happens in between at this machine does not depend on them.
    pub together: bool,
    /// A read may ask at any time: whatever quorum answers, its newest record continues all that was acted on.
    pub reads: bool,
    tables: Tables,
}

/// How executors take part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Executors {
    /// As real machines.
    Real,
    /// As everything that executors may do: once a quorum has started a view, its executors have sent every token of
    /// it. That is more than real ones can do, since messages persist: a real one that leaves the view may have sent
    /// its tokens before. Tokens of a view without divergence are equal, so a verifier is given all that it needs for
    /// the next batch in one step: without divergence a smaller number changes nothing that can be observed. Whatever
    /// a quorum of RECORDED tells is acted on.
    Any,
}

/// Machines, messages and steps that were met, by their numbers.
#[derive(Clone, Default)]
struct Tables {
    machines: Table<Machine>,
    messages: Table<Posted>,
    /// By machine and event: the result and its index in `results`.
    memo: Vec<HashMap<u32, u32>>,
    results: Vec<Done>,
    names: Table<Step>,
    bundles: Table<Vec<u32>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Machine {
    Verifier(Box<Verifier>),
    Executor(Box<Executor>),
}

/// A message that was sent.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Posted {
    from: Slot,
    to: Recipients,
    message: VerifyMessage,
}

/// What a machine has done.
#[derive(Clone)]
struct Done {
    machine: u32,
    posted: Vec<u32>,
    stable: Vec<Version>,
}

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Step {
    part: u8,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Deliver(u32),
    /// Several messages at once, by the number of their list.
    Together(u32),
    Suspect,
    Elapsed(Timer),
    /// The tokens that a verifier needs for its next batch.
    Tokens,
    /// The token of one executor for it, where it matters who is late.
    TokenOf(Slot),
    /// The report of an executor that is left out: it has reached the record.
    Report(Slot),
    /// An executor runs its next batch with this flavour.
    Run(u8),
    Install,
    Restart,
}

/// One state.
#[derive(Clone, Copy)]
pub struct WorldState {
    parts: [u32; PARTS],
    messages: Messages,
    /// The longest version that an executor has acted on.
    acted: Version,
    /// Restarts of verifiers, of executors, and divergences so far.
    spent: [u8; 3],
    broken: bool,
}

impl AsBytes for WorldState {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.parts.iter().for_each(|part| bytes.extend(part.to_le_bytes()));
        self.messages.write(bytes);
        bytes.extend(self.acted.token.0.to_le_bytes());
        bytes.extend(self.spent);
        bytes.push(self.acted.number as u8);
        bytes.push(u8::from(self.broken));
    }
}

impl World {
    /// Verifiers of this layout, and whatever executors may do.
    pub fn of_verifiers(layout: Layout, views: u64, batches: u64) -> World {
        World {
            layout,
            rules: Rules::ALL,
            views,
            batches,
            executors: Executors::Any,
            verifier_restarts: 0,
            executor_restarts: 0,
            divergences: 0,
            extra_after: None,
            catch_up: false,
            together: true,
            reads: false,
            tables: Tables::default(),
        }
    }

    /// Verifiers and executors of this layout.
    pub fn of_all(layout: Layout, views: u64, batches: u64) -> World {
        World { executors: Executors::Real, ..World::of_verifiers(layout, views, batches) }
    }

    /// Explores at most so many states.
    pub fn search(&mut self, most: usize) -> Outcome {
        search(self, most)
    }

    fn config(&self, slot: Slot, incarnation: u64) -> Config {
        Config::new(self.layout, slot, incarnation, StateToken(0))
            .with_rules(self.rules)
            .with_extra_protection(self.extra_after)
    }

    fn verifiers(&self) -> usize {
        self.layout.verifiers() as usize
    }

    /// The machines of a state: verifiers first.
    fn parts(&self) -> usize {
        let executors = if self.executors == Executors::Real { self.layout.executors() } else { 0 };
        self.verifiers() + executors as usize
    }

    fn slot(&self, part: usize) -> Slot {
        (part % self.verifiers()) as Slot
    }

    /// The step's result, computed once for each machine.
    fn done(&mut self, machine: u32, step: Step) -> u32 {
        let name = self.tables.names.number(step);
        let memo = &mut self.tables.memo;
        if memo.len() <= machine as usize {
            memo.resize_with(machine as usize + 1, HashMap::new);
        }
        if let Some(done) = memo[machine as usize].get(&name) {
            return *done;
        }
        let done = self.perform(machine, step);
        let index = self.tables.results.len() as u32;
        self.tables.results.push(done);
        self.tables.memo[machine as usize].insert(name, index);
        index
    }

    fn perform(&mut self, machine: u32, step: Step) -> Done {
        let slot = self.slot(step.part as usize);
        match self.tables.machines.value(machine).clone() {
            Machine::Verifier(verifier) => self.perform_verifier(slot, *verifier, step.what),
            Machine::Executor(executor) => self.perform_executor(slot, *executor, step.what),
        }
    }

    fn perform_verifier(&mut self, slot: Slot, mut verifier: Verifier, what: What) -> Done {
        let mut commands = Vec::new();
        match what {
            What::Deliver(message) => {
                let Posted { from, message, .. } = self.tables.messages.value(message).clone();
                verifier.handle(VerifierEvent::Message { from, message }, 0, &mut commands);
            }
            What::Together(bundle) => {
                for message in self.tables.bundles.value(bundle).clone() {
                    let Posted { from, message, .. } = self.tables.messages.value(message).clone();
                    verifier.handle(VerifierEvent::Message { from, message }, 0, &mut commands);
                }
            }
            What::Suspect => {
                // In a pair those who are late are left out. Elsewhere the reason decides nothing but who is primary.
                let is_pair = self.layout == Layout::PairWithWitness;
                let reason = if is_pair { Reason::Late } else { Reason::Diverged };
                verifier.handle(VerifierEvent::Suspect(reason), 0, &mut commands);
            }
            What::Elapsed(timer) => verifier.handle(VerifierEvent::Elapsed(timer), 0, &mut commands),
            What::Tokens => {
                let Some(record) = verifier.record() else { unreachable!("it has a record") };
                let (view, parent) = (record.view, record.version.token);
                let version = after(record.version, view, 0);
                let executors = record.lineup.executors;
                for from in executors.iter().take(self.layout.tokens(executors)) {
                    let message = VerifyMessage::Verify { view, version, parent, incarnation: 1 };
                    verifier.handle(VerifierEvent::Message { from, message }, 0, &mut commands);
                }
            }
            What::TokenOf(from) | What::Report(from) => {
                let Some(record) = verifier.record() else { unreachable!("it has a record") };
                let (view, parent) = (record.view, record.version.token);
                let is_report = matches!(what, What::Report(_));
                let version = if is_report { record.version } else { after(record.version, view, 0) };
                let message = VerifyMessage::Verify { view, version, parent, incarnation: 1 };
                verifier.handle(VerifierEvent::Message { from, message }, 0, &mut commands);
            }
            What::Restart => {
                let incarnation = u64::from(slot) + NEW_INCARNATIONS + 1;
                verifier = Verifier::new(self.config(slot, incarnation));
            }
            What::Run(_) | What::Install => unreachable!("a step of executors"),
        }
        verifier.forget_times();
        let mut done = Done { machine: 0, posted: Vec::new(), stable: Vec::new() };
        for command in commands {
            if let VerifierCommand::Send { to, message } = command
                && self.is_received(&message)
            {
                let message = self.projected(message);
                done.posted.push(self.tables.messages.number(Posted { from: slot, to, message }));
            }
        }
        done.machine = self.tables.machines.number(Machine::Verifier(Box::new(verifier)));
        done
    }

    fn perform_executor(&mut self, slot: Slot, mut executor: Executor, what: What) -> Done {
        let mut commands = Vec::new();
        match what {
            What::Deliver(message) => {
                let Posted { from, message, .. } = self.tables.messages.value(message).clone();
                executor.handle(ExecutorEvent::Message { from, message }, 0, &mut commands);
            }
            What::Together(bundle) => {
                for message in self.tables.bundles.value(bundle).clone() {
                    let Posted { from, message, .. } = self.tables.messages.value(message).clone();
                    executor.handle(ExecutorEvent::Message { from, message }, 0, &mut commands);
                }
            }
            What::Run(flavour) => {
                let (Some(view), parent) = (executor.view(), executor.newest()) else {
                    unreachable!("it follows a view")
                };
                let version = after(parent, view, flavour);
                let event = ExecutorEvent::Executed { view, version, parent: parent.token };
                executor.handle(event, 0, &mut commands);
            }
            What::Install => {
                let Some(version) = executor.wanted() else { unreachable!("it wants a version") };
                executor.handle(ExecutorEvent::Installed(version), 0, &mut commands);
            }
            What::Elapsed(timer) => executor.handle(ExecutorEvent::Elapsed(timer), 0, &mut commands),
            What::Restart => {
                executor = Executor::new(self.config(slot, u64::from(slot) + NEW_INCARNATIONS + 1))
            }
            What::Suspect | What::Tokens | What::TokenOf(_) | What::Report(_) => {
                unreachable!("a step of verifiers")
            }
        }
        executor.forget_times();
        let mut done = Done { machine: 0, posted: Vec::new(), stable: Vec::new() };
        for command in commands {
            match command {
                ExecutorCommand::Send { to, message } => {
                    let message = self.projected(message);
                    done.posted.push(self.tables.messages.number(Posted { from: slot, to, message }))
                }
                ExecutorCommand::Stable(version) => done.stable.push(version),
                ExecutorCommand::Contradiction { received, .. } => done.stable.push(received.version),
                _ => {}
            }
        }
        done.machine = self.tables.machines.number(Machine::Executor(Box::new(executor)));
        done
    }

    /// Adds the state after a step, if it is another one.
    fn take(&mut self, state: &WorldState, step: Step, next: &mut Vec<(u32, WorldState)>) {
        let part = step.part as usize;
        let done = self.done(state.parts[part], step);
        let done = &self.tables.results[done as usize];
        let machine = |number: u32| self.tables.machines.value(number);
        if matches!(step.what, What::Together(_))
            && done.posted.is_empty()
            && !has_effect(machine(state.parts[part]), machine(done.machine))
        {
            return;
        }
        let new = done.posted.iter().any(|message| !state.messages.has(*message));
        let restarts = step.what == What::Restart;
        if done.machine == state.parts[part] && !new && done.stable.is_empty() && !restarts {
            return;
        }
        let is_verifier = part < self.layout.verifiers() as usize;
        let mut after = *state;
        after.parts[part] = done.machine;
        match step.what {
            What::Restart if is_verifier => after.spent[0] += 1,
            What::Restart => after.spent[1] += 1,
            What::Run(flavour) if flavour > 0 => after.spent[2] += 1,
            _ => {}
        }
        let posted = done.posted.clone();
        done.stable.iter().for_each(|version| act(&mut after, *version));
        for message in posted {
            if self.executors == Executors::Any && !after.messages.has(message) {
                after.messages.add(message);
                self.act_on_quorum(&mut after, message);
            } else {
                after.messages.add(message);
            }
        }
        after.broken |= self.reads && self.reads_may_be_stale(&after);
        next.push((self.tables.names.number(step), after));
    }
}

impl Model for World {
    type State = WorldState;

    fn initial(&mut self) -> WorldState {
        let mut state = WorldState {
            parts: [0; PARTS],
            messages: Messages::default(),
            acted: Version::default(),
            spent: [0; 3],
            broken: false,
        };
        let incarnations: Vec<u64> = (1..=self.layout.verifiers().into()).collect();
        for part in 0..self.parts() {
            let slot = self.slot(part);
            let config = self.config(slot, incarnations[slot as usize]);
            let machine = if part < self.verifiers() {
                let mut verifier = Verifier::founded(config, &incarnations);
                verifier.forget_times();
                let Some(record) = verifier.record() else { unreachable!("it was founded") };
                let crashes = CrashVector::new(self.layout.verifiers());
                let message = VerifyMessage::Recorded { record, crashes };
                let posted = Posted { from: slot, to: Recipients::Executors, message };
                state.messages.add(self.tables.messages.number(posted));
                Machine::Verifier(Box::new(verifier))
            } else {
                Machine::Executor(Box::new(self.started(config)))
            };
            state.parts[part] = self.tables.machines.number(machine);
        }
        state
    }

    fn steps(&mut self, state: &WorldState, next: &mut Vec<(u32, WorldState)>) {
        for part in 0..self.parts() {
            let step = |what| Step { part: part as u8, what };
            for message in state.messages.iter() {
                if self.concerns(part, message) && !self.counts(message) {
                    self.take(state, step(What::Deliver(message)), next);
                }
            }
            for bundle in self.bundles(state, part) {
                let bundle = self.tables.bundles.number(bundle);
                self.take(state, step(What::Together(bundle)), next);
            }
            for what in self.own_steps(state, part) {
                self.take(state, step(what), next);
            }
        }
    }

    fn broken(&self, state: &WorldState) -> bool {
        state.broken
    }

    fn name(&self, step: u32) -> String {
        let Step { part, what } = *self.tables.names.value(step);
        let slot = self.slot(part as usize);
        let who = if (part as usize) < self.verifiers() { "verifier" } else { "executor" };
        let what = match what {
            What::Deliver(message) => {
                let Posted { from, message, .. } = self.tables.messages.value(message);
                format!("receives from {from}: {}", reported(message))
            }
            What::Together(bundle) => {
                let bundle = self.tables.bundles.value(bundle);
                let of = |message: &u32| self.tables.messages.value(*message);
                let all = bundle
                    .iter()
                    .map(|message| format!("from {}: {}", of(message).from, reported(&of(message).message)));
                format!("receives {}", all.collect::<Vec<_>>().join("; "))
            }
            What::Suspect => "asks for another view".to_owned(),
            What::Elapsed(timer) => format!("has waited ({timer:?})"),
            What::Tokens => "receives equal tokens for the next batch".to_owned(),
            What::TokenOf(from) => format!("receives the token of executor {from} for the next batch"),
            What::Report(from) => format!("hears that executor {from} has caught up"),
            What::Run(0) => "runs the next batch".to_owned(),
            What::Run(_) => "runs the next batch and diverges".to_owned(),
            What::Install => "gets the agreed version from a donor".to_owned(),
            What::Restart => "loses its memory".to_owned(),
        };
        format!("{who} {slot} {what}")
    }
}

impl World {
    /// An executor that follows view 0. One that does so later is one that has not run anything yet.
    fn started(&self, config: Config) -> Executor {
        let mut executor = Executor::founded(config);
        for number in 0..self.verifiers() as u32 {
            let Posted { from, message, .. } = self.tables.messages.value(number).clone();
            executor.handle(ExecutorEvent::Message { from, message }, 0, &mut Vec::new());
        }
        executor.forget_times();
        executor
    }

    fn concerns(&self, part: usize, message: u32) -> bool {
        let Posted { from, to, message } = self.tables.messages.value(message);
        let (slot, is_verifier) = (self.slot(part), part < self.verifiers());
        let is_for = match message {
            VerifyMessage::Verify { .. } | VerifyMessage::Where { .. } | VerifyMessage::ReadWhere { .. } => {
                is_verifier
            }
            VerifyMessage::ViewChange { .. } | VerifyMessage::NewView { .. } => is_verifier && *from != slot,
            VerifyMessage::Recorded { .. } | VerifyMessage::ReadHere { .. } => !is_verifier,
            VerifyMessage::Here(_) => true,
        };
        is_for
            && match to {
                Recipients::One(one) => *one == slot,
                Recipients::Verifiers => is_verifier,
                Recipients::Executors => !is_verifier,
            }
    }

    /// An executor that is stalled asks like any other, but for the time. And with crash vectors, the first round of a
    /// recovery uses nothing of an answer but that there is a memory, and the incarnations. An executor uses the
    /// promise: what it abstains from is a window, which is larger than all batches here, and RECORDED has the record
    /// anyway. The rest would only tell states apart.
    fn projected(&self, message: VerifyMessage) -> VerifyMessage {
        match message {
            VerifyMessage::Here(here) if here.round == AskRound::Incarnations && self.rules.crash_vectors => {
                let first = Verifier::founded(self.config(0, 1), &[]).record();
                let memory = here.memory.and(first).map(|record| (0, record));
                VerifyMessage::Here(verify::Here { memory, ..here })
            }
            VerifyMessage::Here(here)
                if here.round == AskRound::CatchUp && here.incarnation > NEW_INCARNATIONS =>
            {
                assert!(self.batches <= WINDOW, "what an executor abstains from is larger");
                let first = Verifier::founded(self.config(0, 1), &[]).record();
                let memory = here.memory.zip(first).map(|((promised, _), record)| (promised, record));
                VerifyMessage::Here(verify::Here { memory, ..here })
            }
            VerifyMessage::Where { incarnation, round: AskRound::Stalled, crashes } => {
                VerifyMessage::Where { incarnation, round: AskRound::CatchUp, crashes }
            }
            message => message,
        }
    }

    /// Without `catch_up` the messages by which verifiers and executors catch up are lost.
    fn is_received(&self, message: &VerifyMessage) -> bool {
        let catches_up = match message {
            VerifyMessage::Where { round, .. } => matches!(round, AskRound::CatchUp | AskRound::Stalled),
            VerifyMessage::Here(here) => matches!(here.round, AskRound::CatchUp | AskRound::Stalled),
            _ => false,
        };
        let of_new_executor = match message {
            VerifyMessage::Where { incarnation, .. }
            | VerifyMessage::Here(verify::Here { incarnation, .. }) => {
                self.executor_restarts > 0 && *incarnation > NEW_INCARNATIONS
            }
            _ => false,
        };
        !catches_up || self.catch_up || of_new_executor
    }

    /// What a machine may do by itself.
    fn own_steps(&self, state: &WorldState, part: usize) -> Vec<What> {
        let mut steps = Vec::new();
        match self.tables.machines.value(state.parts[part]) {
            Machine::Verifier(verifier) => {
                let Some(record) = verifier.record() else { return vec![What::Elapsed(Timer::Resend)] };
                if verifier.promised() + 1 < self.views {
                    steps.push(What::Suspect);
                }
                if self.extra_after.is_some() {
                    steps.push(What::Elapsed(Timer::Extra));
                }
                let may_record = !verifier.is_changing() && record.version.number < self.batches;
                if self.executors == Executors::Any && may_record && self.has_begun(state, record.view) {
                    steps.push(What::Tokens);
                }
                if self.executors == Executors::Any && self.layout == Layout::PairWithWitness {
                    let has_begun = may_record && self.has_begun(state, record.view);
                    let stable = self.is_recorded(state, record.view, record.version, self.layout.quorum());
                    let more_views = verifier.promised() + 1 < self.views;
                    for slot in 0..self.layout.executors() {
                        match record.lineup.executors.contains(slot) {
                            true if has_begun => steps.push(What::TokenOf(slot)),
                            false if stable && more_views => steps.push(What::Report(slot)),
                            _ => {}
                        }
                    }
                }
                if state.spent[0] < self.verifier_restarts {
                    steps.push(What::Restart);
                }
            }
            Machine::Executor(executor) => {
                if executor.wanted().is_some() {
                    steps.push(What::Install);
                } else if executor.may_begin_after(executor.newest().number)
                    && executor.newest().number < self.batches
                {
                    steps.push(What::Run(0));
                    if state.spent[2] < self.divergences {
                        steps.push(What::Run(1));
                    }
                }
                // Executors differ in nothing but their numbers, and no machine prefers one: it may be the first.
                let may_restart = state.spent[1] < self.executor_restarts && self.slot(part) == 0;
                if may_restart {
                    steps.push(What::Restart);
                }
                // Messages persist. Only who has no memory, or is left out, has something new to say.
                let asks = !executor.knows_its_incarnation() && self.rules.abstention;
                if asks || self.layout == Layout::PairWithWitness {
                    steps.push(What::Elapsed(Timer::Resend));
                }
            }
        }
        steps
    }
}
