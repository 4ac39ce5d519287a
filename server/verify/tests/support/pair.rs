//! The model of two processes without a third verifier. A process is one part: what its machines send to each other is
//! delivered at once, as its host does, so that they are never seen apart.
//!
//! Time stands still here too. The silence of the primary is a step, possible at any time. A proof that a process has
//! ended comes at any time after its end. It comes in time only if the process has not taken over: a proof counts for
//! 200 ms after a question that the process answered, and it takes over 250 ms after the last message it heard.

use std::collections::HashMap;

use verify::{
    AskRound, Config, Executor, ExecutorCommand, ExecutorEvent, Here, Layout, Reason, Recipients, Rules,
    Slot, StateToken, Timer, Verifier, VerifierCommand, VerifierEvent, VerifyMessage, Version,
    limits::PAIR_PROOF_US,
};

use super::search::{AsBytes, Model};
use super::table::{Messages, Table, after, prefix, reported};

/// Lives that begin without memory have numbers beyond this.
const NEW_INCARNATIONS: u64 = 10;

/// What is explored of a pair, and how much of it.
pub struct Pair {
    /// The rules that are kept.
    pub rules: Rules,
    /// Views up to this number may begin.
    pub views: u64,
    /// Batches that may run.
    pub batches: u64,
    /// How often a process may end. It is started again, without memory.
    pub ends: u8,
    /// Which process does.
    pub ending: Slot,
    /// How often an executor may produce another token, all together.
    pub divergences: u8,
    processes: Table<Process>,
    messages: Table<(Slot, Recipients, VerifyMessage)>,
    names: Table<PairStep>,
    memo: HashMap<(u32, PairStep), PairDone>,
}

/// Both machines of a process; none while it is down.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Process {
    slot: Slot,
    incarnation: u64,
    machines: Option<(Verifier, Executor)>,
    /// Whether the last incarnation had taken over or begun to go alone, so that a proof of its end is late.
    was_alone: bool,
}

#[derive(Clone)]
struct PairDone {
    process: u32,
    posted: Vec<u32>,
    stable: Vec<Version>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PairStep {
    slot: u8,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Deliver(u32),
    Silence,
    Suspect,
    Repeat,
    ProofInTime,
    ProofLate,
    Run(u8),
    Install,
    End,
    Start,
}

/// One state.
#[derive(Clone, Copy)]
pub struct PairWorldState {
    processes: [u32; 2],
    messages: Messages,
    acted: Version,
    ends: u8,
    divergences: u8,
    broken: bool,
}

impl AsBytes for PairWorldState {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.processes.iter().for_each(|process| bytes.extend(process.to_le_bytes()));
        self.messages.write(bytes);
        bytes.extend(self.acted.token.0.to_le_bytes());
        bytes.extend([self.acted.number as u8, self.ends, self.divergences, u8::from(self.broken)]);
    }
}

impl Pair {
    /// A pair with all rules.
    pub fn new(views: u64, batches: u64) -> Pair {
        Pair {
            rules: Rules::ALL,
            views,
            batches,
            ends: 0,
            ending: 1,
            divergences: 0,
            processes: Table::default(),
            messages: Table::default(),
            names: Table::default(),
            memo: HashMap::new(),
        }
    }

    fn config(&self, slot: Slot, incarnation: u64) -> Config {
        Config::new(Layout::Pair, slot, incarnation, StateToken(0))
            .with_rules(self.rules)
            .with_extra_protection(None)
    }

    fn perform(&mut self, process: &Process, what: What) -> PairDone {
        let slot = process.slot;
        let mut run = Run { process: process.clone(), stable: Vec::new(), sent: Vec::new() };
        match what {
            What::Deliver(message) => {
                let (from, _, message) = self.messages.value(message).clone();
                run.receive(from, message);
            }
            What::Silence => run.verifier(VerifierEvent::Elapsed(Timer::Silence), 0),
            What::Suspect => run.verifier(VerifierEvent::Suspect(Reason::Diverged), 0),
            What::Repeat => {
                run.verifier(VerifierEvent::Elapsed(Timer::Resend), 0);
                run.executor(ExecutorEvent::Elapsed(Timer::Resend));
            }
            What::ProofInTime => run.verifier(VerifierEvent::ProcessGone(1 - slot), 0),
            What::ProofLate => run.verifier(VerifierEvent::ProcessGone(1 - slot), 2 * PAIR_PROOF_US),
            What::Run(flavour) => run.run_batch(flavour),
            What::Install => {
                let wanted = run.process.machines.as_ref().and_then(|(_, executor)| executor.wanted());
                wanted.into_iter().for_each(|version| run.executor(ExecutorEvent::Installed(version)));
            }
            What::End => {
                run.process.was_alone = run.is_alone();
                run.process.machines = None;
            }
            What::Start => {
                run.process.incarnation += NEW_INCARNATIONS;
                let config = self.config(slot, run.process.incarnation);
                run.process.machines = Some((Verifier::new(config.clone()), Executor::new(config)));
            }
        }
        let Run { mut process, stable, sent } = run;
        if let Some((verifier, executor)) = &mut process.machines {
            verifier.forget_times();
            executor.forget_times();
        }
        let sent = sent.into_iter().filter_map(|(to, message)| Some((slot, to, projected(message)?)));
        let posted = sent.map(|sent| self.messages.number(sent)).collect();
        PairDone { process: self.processes.number(process), posted, stable }
    }

    fn own_steps(&self, state: &PairWorldState, slot: Slot) -> Vec<What> {
        let process = self.processes.value(state.processes[slot as usize]);
        let peer = self.processes.value(state.processes[1 - slot as usize]);
        let Some((verifier, executor)) = &process.machines else { return vec![What::Start] };
        let mut steps = Vec::new();
        // Messages persist. Only who has no memory, or is left out, has something new to say.
        let counts = verifier.record().is_some_and(|record| record.lineup.executors.contains(slot));
        if process.incarnation > NEW_INCARNATIONS || !counts {
            steps.push(What::Repeat);
        }
        let more_views = verifier.record().is_some_and(|record| record.view + 3 <= self.views);
        if more_views {
            steps.extend([What::Silence, What::Suspect]);
        }
        // The peer has ended at least once: one proof for each incarnation would be the same again.
        if more_views && (peer.machines.is_none() || peer.incarnation > NEW_INCARNATIONS) {
            steps.push(What::ProofLate);
            if !peer.was_alone {
                steps.push(What::ProofInTime);
            }
        }
        if executor.wanted().is_some() {
            steps.push(What::Install);
        } else if executor.may_begin_after(executor.newest().number)
            && executor.newest().number < self.batches
        {
            steps.push(What::Run(0));
            if state.divergences < self.divergences {
                steps.push(What::Run(1));
            }
        }
        if state.ends < self.ends && slot == self.ending {
            steps.push(What::End);
        }
        steps
    }

    fn take(&mut self, state: &PairWorldState, step: PairStep, next: &mut Vec<(u32, PairWorldState)>) {
        let number = state.processes[step.slot as usize];
        if !self.memo.contains_key(&(number, step)) {
            let process = self.processes.value(number).clone();
            let done = self.perform(&process, step.what);
            self.memo.insert((number, step), done);
        }
        let Some(done) = self.memo.get(&(number, step)) else { return };
        let mut after = *state;
        after.processes[step.slot as usize] = done.process;
        for version in &done.stable {
            let shorter = version.number.min(after.acted.number);
            after.broken |= prefix(version.token, shorter) != prefix(after.acted.token, shorter);
            if version.number > after.acted.number {
                after.acted = *version;
            }
        }
        done.posted.iter().for_each(|message| after.messages.add(*message));
        match step.what {
            What::End => after.ends += 1,
            What::Run(flavour) if flavour > 0 => after.divergences += 1,
            _ => {}
        }
        next.push((self.names.number(step), after));
    }
}

/// Of an answer only what its receiver uses, so that the rest does not tell states apart. The first round of a recovery
/// uses the incarnations. An executor uses the promise: what it abstains from is a window, which is larger than all
/// batches here. RECORDED has records too, so a process that has a memory needs no answer.
fn projected(message: VerifyMessage) -> Option<VerifyMessage> {
    match message {
        VerifyMessage::Here(here) if here.incarnation < NEW_INCARNATIONS => None,
        VerifyMessage::Here(here) if here.round != AskRound::Adopt => {
            let config = Config::new(Layout::Pair, 0, 1, StateToken(0));
            let first = Verifier::founded(config, &[]).record();
            let known = if here.round == AskRound::Incarnations {
                Some(0)
            } else {
                here.memory.map(|memory| memory.0)
            };
            let memory = here.memory.and(known).zip(first);
            Some(VerifyMessage::Here(Here { memory, ..here }))
        }
        VerifyMessage::Where { incarnation, round: AskRound::Stalled, crashes } => {
            Some(VerifyMessage::Where { incarnation, round: AskRound::CatchUp, crashes })
        }
        message => Some(message),
    }
}

/// A process while it performs one step.
struct Run {
    process: Process,
    stable: Vec<Version>,
    sent: Vec<(Recipients, VerifyMessage)>,
}

impl Run {
    fn receive(&mut self, from: Slot, message: VerifyMessage) {
        self.verifier(VerifierEvent::Message { from, message: message.clone() }, 0);
        self.executor(ExecutorEvent::Message { from, message });
    }

    fn verifier(&mut self, event: VerifierEvent, now_us: u64) {
        let Some((verifier, _)) = &mut self.process.machines else { return };
        let mut commands = Vec::new();
        verifier.handle(event, now_us, &mut commands);
        for command in commands {
            if let VerifierCommand::Send { to, message } = command {
                self.send(to, message);
            }
        }
    }

    fn executor(&mut self, event: ExecutorEvent) {
        let Some((_, executor)) = &mut self.process.machines else { return };
        let mut commands = Vec::new();
        executor.handle(event, 0, &mut commands);
        for command in commands {
            match command {
                ExecutorCommand::Send { to, message } => self.send(to, message),
                ExecutorCommand::Stable(version) => self.stable.push(version),
                ExecutorCommand::Contradiction { received, .. } => self.stable.push(received.version),
                _ => {}
            }
        }
    }

    /// The own process gets it at once, the other one at some time.
    fn send(&mut self, to: Recipients, message: VerifyMessage) {
        let slot = self.process.slot;
        if to != Recipients::One(1 - slot) {
            self.receive(slot, message.clone());
        }
        if to != Recipients::One(slot) {
            self.sent.push((Recipients::One(1 - slot), message));
        }
    }

    fn run_batch(&mut self, flavour: u8) {
        let Some((_, executor)) = &self.process.machines else { return };
        let (Some(view), parent) = (executor.view(), executor.newest()) else { return };
        let version = after(parent, view, flavour);
        self.executor(ExecutorEvent::Executed { view, version, parent: parent.token });
    }

    fn is_alone(&self) -> bool {
        let record = self.process.machines.as_ref().and_then(|(verifier, _)| verifier.record());
        record.is_some_and(|record| {
            record.lineup.primary == self.process.slot && record.lineup.executors.len() == 1
        })
    }
}

impl Model for Pair {
    type State = PairWorldState;

    fn initial(&mut self) -> PairWorldState {
        let mut state = PairWorldState {
            processes: [0; 2],
            messages: Messages::default(),
            acted: Version::default(),
            ends: 0,
            divergences: 0,
            broken: false,
        };
        for slot in 0..2 {
            let config = self.config(slot, u64::from(slot) + 1);
            let verifier = Verifier::founded(config.clone(), &[1, 2]);
            let machines = Some((verifier, Executor::founded(config)));
            let mut run = Run {
                process: Process { slot, incarnation: u64::from(slot) + 1, machines, was_alone: false },
                stable: Vec::new(),
                sent: Vec::new(),
            };
            run.verifier(VerifierEvent::Elapsed(Timer::Resend), 0);
            let record = run.process.machines.as_ref().and_then(|(verifier, _)| verifier.record());
            if let Some(record) = record.filter(|_| slot == 0) {
                let crashes = verify::CrashVector::new(2);
                run.send(Recipients::Executors, VerifyMessage::Recorded { record, crashes });
            }
            state.processes[slot as usize] = self.processes.number(run.process);
            for (to, message) in run.sent {
                state.messages.add(self.messages.number((slot, to, message)));
            }
        }
        state
    }

    fn steps(&mut self, state: &PairWorldState, next: &mut Vec<(u32, PairWorldState)>) {
        for slot in 0..2 {
            for message in state.messages.iter() {
                let to = self.messages.value(message).1;
                if to == Recipients::One(slot) {
                    self.take(state, PairStep { slot, what: What::Deliver(message) }, next);
                }
            }
            for what in self.own_steps(state, slot) {
                self.take(state, PairStep { slot, what }, next);
            }
        }
    }

    fn broken(&self, state: &PairWorldState) -> bool {
        state.broken
    }

    fn name(&self, step: u32) -> String {
        let PairStep { slot, what } = *self.names.value(step);
        let what = match what {
            What::Deliver(message) => {
                let (from, _, message) = self.messages.value(message);
                format!("receives from {from}: {}", reported(message))
            }
            What::Suspect => "asks for another view".to_owned(),
            What::Silence => "hears nothing of its peer".to_owned(),
            What::Repeat => "repeats what may be lost".to_owned(),
            What::ProofInTime => "has a proof in time that its peer has ended".to_owned(),
            What::ProofLate => "has a late proof that its peer has ended".to_owned(),
            What::Run(0) => "runs the next batch".to_owned(),
            What::Run(_) => "runs the next batch and diverges".to_owned(),
            What::Install => "gets the agreed version from its peer".to_owned(),
            What::End => "ends".to_owned(),
            What::Start => "starts without memory".to_owned(),
        };
        format!("process {slot} {what}")
    }
}
