//! The model of what goes on after a process has ended: two executors, with or without a witness. One of them was left
//! out, and comes back while the other one goes on.
//!
//! Links keep the order and lose nothing while both ends live; what an ended process has sent may still arrive, until
//! its peer learns of the end. That is what connections do: here it is not asked whether something wrong can happen,
//! but whether something can happen at all. From each state in which the machines count two copies, either of the two,
//! or the witness, may end. Then some way must lead to a further version. It is looked for backwards, from all states
//! in which there is one.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};

use verify::{
    Config, Executor, ExecutorCommand, ExecutorEvent, Layout, Recipients, Rules, Slot, Slots, StateToken,
    Timer, Verifier, VerifierCommand, VerifierEvent, VerifyMessage, Version,
};

use super::table::{Table, after, reported};

const PROCESSES: usize = 3;
const LINKS: usize = PROCESSES * PROCESSES;

/// What is explored, and how much of it.
pub struct Live {
    /// Who executes and verifies.
    pub layout: Layout,
    /// The rules that are kept.
    pub rules: Rules,
    /// Batches that may run before the end.
    pub batches: u64,
    /// No view beyond this one begins before the end.
    pub views: u64,
    processes: Table<Process>,
    messages: Table<VerifyMessage>,
    links: Table<Vec<u32>>,
}

/// Both machines of a process.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Process {
    slot: Slot,
    verifier: Verifier,
    executor: Option<Executor>,
}

/// One state.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct LiveState {
    processes: [u32; PROCESSES],
    /// What is on its way from one process to another one.
    links: [u32; LINKS],
    /// The process that has ended, and the newest version that anyone had then.
    ended: Option<(Slot, u64)>,
    /// Who has not learned of it.
    unaware: Slots,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Deliver(Slot, Slot),
    Run(Slot),
    Resend(Slot),
    Wait(Slot),
    End(Slot),
    Learn(Slot),
}

/// What was found.
pub struct Liveness {
    /// Different states, and those in which a process has ended.
    pub states: (usize, usize),
    /// The shortest way to a state from which nothing goes on any more.
    pub stuck: Option<Vec<String>>,
}

impl Liveness {
    /// One line: what was explored, its states and the result; then the way.
    pub fn print(&self, what: &str) {
        let (all, ended) = self.states;
        let found =
            self.stuck.as_ref().map_or("none".to_owned(), |way| format!("stuck after {} steps", way.len()));
        println!("| {what} | {all} | {ended} after an end | {found} |");
        for (index, step) in self.stuck.iter().flatten().enumerate() {
            println!("  {:>2}. {step}", index + 1);
        }
    }
}

impl Live {
    /// With all rules.
    pub fn new(layout: Layout, views: u64, batches: u64) -> Live {
        Live {
            layout,
            rules: Rules::ALL,
            batches,
            views,
            processes: Table::default(),
            messages: Table::default(),
            links: Table::default(),
        }
    }

    fn count(&self) -> Slot {
        self.layout.verifiers()
    }

    fn config(&self, slot: Slot, incarnation: u64) -> Config {
        Config::new(self.layout, slot, incarnation, StateToken(0))
            .with_rules(self.rules)
            .with_extra_protection(None)
    }

    /// Messages of a link that arrive in one step. With three processes all of them do, so that there are fewer states.
    fn at_once(&self) -> usize {
        if self.layout == Layout::Pair { 1 } else { usize::MAX }
    }

    /// A step, and then all that the witness hears and answers: there are too many states otherwise.
    fn take(&mut self, state: &LiveState, step: Step) -> LiveState {
        let mut next = self.take_alone(state, step);
        let with_witness = |(from, to): &(Slot, Slot)| *from == 2 || *to == 2;
        let links: Vec<_> =
            (0..3).flat_map(|from| (0..3).map(move |to| (from, to))).filter(with_witness).collect();
        while let Some((from, to)) = links.iter().find(|(from, to)| !self.link(&next, *from, *to).is_empty())
        {
            next = self.take_alone(&next, Step::Deliver(*from, *to));
        }
        next
    }

    fn process(&self, state: &LiveState, slot: Slot) -> &Process {
        self.processes.value(state.processes[slot as usize])
    }

    fn is_live(state: &LiveState, slot: Slot) -> bool {
        state.ended.is_none_or(|(ended, _)| ended != slot)
    }

    fn link(&self, state: &LiveState, from: Slot, to: Slot) -> &Vec<u32> {
        self.links.value(state.links[at(from, to)])
    }

    /// Executor 1 has ended while the group was idle, executor 0 goes on alone and has run one batch, and the new
    /// process of executor 1 has just found the group.
    fn initial(&mut self) -> LiveState {
        let incarnations = [1, 2, 3];
        let empty = self.links.number(Vec::new());
        let mut state = LiveState {
            processes: [0; PROCESSES],
            links: [empty; LINKS],
            ended: None,
            unaware: Slots::EMPTY,
        };
        for slot in 0..self.count() {
            let config = self.config(slot, incarnations[slot as usize]);
            let verifier = Verifier::founded(config.clone(), &incarnations);
            let executor = (slot < 2).then(|| Executor::founded(config));
            state.processes[slot as usize] = self.processes.number(Process { slot, verifier, executor });
        }
        let process = |slot: Slot| slot as usize;
        // It ends. The others learn of it, and go on without it.
        let others: Vec<Slot> = (0..self.count()).filter(|slot| *slot != 1).collect();
        for slot in &others {
            state = self.with(&state, *slot, |run| run.verifier(VerifierEvent::ProcessGone(1)));
        }
        if self.layout != Layout::Pair {
            state = self.with(&state, 0, |run| run.verifier(VerifierEvent::Elapsed(Timer::ViewChange)));
        }
        state = self.run_until_idle(state, &others);
        state = self.with(&state, 0, Run::run_batch);
        state = self.run_until_idle(state, &others);
        // Its new process.
        let config = self.config(1, 12);
        let (verifier, executor) = (Verifier::new(config.clone()), Some(Executor::new(config)));
        state.processes[process(1)] = self.processes.number(Process { slot: 1, verifier, executor });
        (0..self.count()).for_each(|slot| {
            state.links[at(1, slot)] = empty;
            state.links[at(slot, 1)] = empty;
        });
        for slot in others {
            state = self.with(&state, slot, |run| run.verifier(VerifierEvent::Connected(1)));
            state = self.with(&state, 1, |run| run.verifier(VerifierEvent::Connected(slot)));
        }
        state
    }

    /// All messages between these arrive.
    fn run_until_idle(&mut self, mut state: LiveState, among: &[Slot]) -> LiveState {
        loop {
            let pairs = among.iter().flat_map(|from| among.iter().map(move |to| (*from, *to)));
            let busy = pairs.into_iter().find(|(from, to)| !self.link(&state, *from, *to).is_empty());
            let Some((from, to)) = busy else { return state };
            state = self.take(&state, Step::Deliver(from, to));
        }
    }

    fn with(&mut self, state: &LiveState, slot: Slot, act: impl FnOnce(&mut Run)) -> LiveState {
        let process = self.process(state, slot).clone();
        let mut run = Run { process, sent: Vec::new(), layout: self.layout };
        act(&mut run);
        let Run { mut process, sent, .. } = run;
        process.verifier.forget_times();
        process.executor.iter_mut().for_each(Executor::forget_times);
        let mut next = *state;
        next.processes[slot as usize] = self.processes.number(process);
        for (to, message) in sent {
            if Self::is_live(state, to) {
                let message = self.messages.number(message);
                let mut link = self.link(&next, slot, to).clone();
                // The same twice in a row is a repetition.
                if link.last() != Some(&message) {
                    link.push(message);
                }
                next.links[at(slot, to)] = self.links.number(link);
            }
        }
        next
    }

    fn take_alone(&mut self, state: &LiveState, step: Step) -> LiveState {
        match step {
            Step::Deliver(from, to) => {
                let mut link = self.link(state, from, to).clone();
                let later = link.split_off(self.at_once().min(link.len()));
                let messages = link.iter().map(|message| self.messages.value(*message).clone());
                let messages: Vec<_> = messages.collect();
                let mut next = *state;
                next.links[at(from, to)] = self.links.number(later);
                self.with(&next, to, |run| {
                    messages.into_iter().for_each(|message| run.receive(from, message))
                })
            }
            Step::Run(slot) => self.with(state, slot, Run::run_batch),
            Step::Resend(slot) => self.with(state, slot, |run| {
                run.verifier(VerifierEvent::Elapsed(Timer::Resend));
                run.executor(ExecutorEvent::Elapsed(Timer::Resend));
            }),
            Step::Wait(slot) => {
                let timer = if self.layout == Layout::Pair { Timer::Silence } else { Timer::ViewChange };
                self.with(state, slot, |run| run.verifier(VerifierEvent::Elapsed(timer)))
            }
            Step::End(slot) => {
                let newest = (0..2).filter_map(|slot| self.process(state, slot).executor.as_ref());
                let newest = newest.map(|executor| executor.newest().number).max().unwrap_or(0);
                let mut next = *state;
                next.ended = Some((slot, newest));
                next.unaware = Slots::first(self.count()).without(slot);
                let empty = self.links.number(Vec::new());
                (0..self.count()).for_each(|from| next.links[at(from, slot)] = empty);
                next
            }
            Step::Learn(slot) => {
                let Some((ended, _)) = state.ended else { return *state };
                let mut next = *state;
                next.unaware = next.unaware.without(slot);
                next.links[at(ended, slot)] = self.links.number(Vec::new());
                self.with(&next, slot, |run| run.verifier(VerifierEvent::ProcessGone(ended)))
            }
        }
    }

    /// Whether the machines count so many copies that one process may end. A host adds what it knows of connections.
    fn tolerates(&self, state: &LiveState) -> bool {
        let record = |slot| self.process(state, slot).verifier.record();
        let together =
            record(0).filter(|_| (1..self.count()).all(|slot| view_of(record(slot)) == view_of(record(0))));
        let Some(together) = together else { return false };
        let changing = (0..self.count()).any(|slot| self.process(state, slot).verifier.is_changing());
        !changing && self.process(state, together.lineup.primary).verifier.copies().len() == 2
    }

    /// Whether this executor can run the batch after its newest: it numbers it, or another one has its body.
    fn has_body(&self, state: &LiveState, slot: Slot) -> bool {
        let process = self.process(state, slot);
        let (Some(executor), Some(record)) = (&process.executor, process.verifier.record()) else {
            return false;
        };
        let next = executor.newest().number + 1;
        let others = (0..2).filter(|other| *other != slot && Self::is_live(state, *other));
        let others = others.filter_map(|other| self.process(state, other).executor.as_ref());
        let is_held = others.into_iter().any(|other| other.newest().number >= next);
        let numbers = record.lineup.primary == slot && executor.view() == Some(record.view);
        is_held || (numbers && next > record.version.number)
    }

    fn steps(&self, state: &LiveState) -> Vec<Step> {
        let mut steps = Vec::new();
        let is_quiet = (0..LINKS).all(|link| self.links.value(state.links[link]).is_empty());
        for slot in (0..self.count()).filter(|slot| Self::is_live(state, *slot)) {
            let process = self.process(state, slot);
            let links = |slot| (0..self.count()).map(move |other| (other, slot));
            let arriving = links(slot).filter(|(from, to)| !self.link(state, *from, *to).is_empty());
            steps.extend(arriving.map(|(from, to)| Step::Deliver(from, to)));
            let most = state.ended.map_or(self.batches, |(_, newest)| newest + 1);
            let runs = process.executor.as_ref().is_some_and(|executor| {
                let newest = executor.newest().number;
                executor.may_begin_after(newest) && newest < most
            });
            if runs && self.has_body(state, slot) {
                steps.push(Step::Run(slot));
            }
            // Messages are faster than what is repeated, or waited for.
            if is_quiet {
                steps.push(Step::Resend(slot));
            }
            let has_memory = process.verifier.record().is_some();
            let may_wait = has_memory && process.verifier.promised() <= self.views + 6;
            if state.ended.is_some() && may_wait && is_quiet {
                steps.push(Step::Wait(slot));
            }
            if state.unaware.contains(slot) {
                steps.push(Step::Learn(slot));
            }
        }
        if state.ended.is_none() && self.tolerates(state) {
            steps.extend((0..self.count()).map(Step::End));
        }
        steps
    }

    /// Whether a version beyond all that there were at the end is stable.
    fn has_gone_on(&self, state: &LiveState) -> bool {
        let Some((ended, newest)) = state.ended else { return false };
        let stable =
            |slot| self.process(state, slot).executor.as_ref().map_or(0, |executor| executor.stable().number);
        (0..2).any(|slot| slot != ended && stable(slot) > newest)
    }

    fn is_within(&self, state: &LiveState) -> bool {
        let view = |slot| view_of(self.process(state, slot).verifier.record());
        state.ended.is_some() || (0..self.count()).all(|slot| view(slot) <= Some(self.views))
    }

    /// Finds a state after an end from which no way leads to a further version.
    pub fn explore(&mut self, most: usize) -> Liveness {
        let first = self.initial();
        let mut numbers: HashMap<LiveState, u32> = [(first, 0)].into();
        let mut ways = vec![(0, Step::Resend(0))];
        let mut edges: Vec<(u32, u32)> = Vec::new();
        let (mut goes_on, mut is_end) = (vec![false], vec![false]);
        let mut open = VecDeque::from([first]);
        while let Some(state) = open.pop_front() {
            let from = numbers[&state];
            if goes_on[from as usize] {
                continue;
            }
            for step in self.steps(&state) {
                let next = self.take(&state, step);
                if !self.is_within(&next) {
                    continue;
                }
                let to = match numbers.entry(next) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => *new.insert(ways.len() as u32),
                };
                edges.push((to, from));
                if to as usize == ways.len() {
                    ways.push((from, step));
                    goes_on.push(self.has_gone_on(&next));
                    is_end.push(next.ended.is_some());
                    open.push_back(next);
                    assert!(ways.len() < most, "too many states");
                }
            }
        }
        let reaches = backwards(edges, goes_on);
        let stuck = (0..ways.len()).find(|at| is_end[*at] && !reaches[*at]);
        let ended = is_end.iter().filter(|end| **end).count();
        let stuck = stuck.map(|at| self.way_to(first, at as u32, &ways));
        Liveness { states: (ways.len(), ended), stuck }
    }

    fn way_to(&mut self, first: LiveState, mut at: u32, ways: &[(u32, Step)]) -> Vec<String> {
        let mut steps = Vec::new();
        while at != 0 {
            let (from, step) = ways[at as usize];
            steps.push(step);
            at = from;
        }
        let mut state = first;
        let mut reported = |step: Step| {
            let name = self.name(&state, step);
            state = self.take(&state, step);
            name
        };
        steps.into_iter().rev().map(&mut reported).collect()
    }

    fn name(&self, state: &LiveState, step: Step) -> String {
        match step {
            Step::Deliver(from, to) => {
                let messages = self.link(state, from, to).iter().take(self.at_once());
                let messages: Vec<String> =
                    messages.map(|message| reported(self.messages.value(*message))).collect();
                format!("{to} receives from {from}: {}", messages.join("; "))
            }
            Step::Run(slot) => format!("{slot} runs the next batch"),
            Step::Resend(slot) => format!("{slot} repeats what may be lost"),
            Step::Wait(slot) => format!("{slot} has waited"),
            Step::End(slot) => format!("{slot} ends, though two copies were counted"),
            Step::Learn(slot) => format!("{slot} learns that it has ended"),
        }
    }
}

fn at(from: Slot, to: Slot) -> usize {
    from as usize * PROCESSES + to as usize
}

fn view_of(record: Option<verify::TokenRecord>) -> Option<u64> {
    record.map(|record| record.view)
}

/// Marks all states from which a way leads to a marked one. Each edge is told from its end.
fn backwards(mut edges: Vec<(u32, u32)>, mut marked: Vec<bool>) -> Vec<bool> {
    edges.sort_unstable();
    let mut open: Vec<u32> = (0..).zip(&marked).filter(|(_, good)| **good).map(|(at, _)| at).collect();
    while let Some(state) = open.pop() {
        let begin = edges.partition_point(|(to, _)| *to < state);
        for (_, from) in edges[begin..].iter().take_while(|(to, _)| *to == state) {
            if !std::mem::replace(&mut marked[*from as usize], true) {
                open.push(*from);
            }
        }
    }
    marked
}

/// A process while it performs one step.
struct Run {
    process: Process,
    sent: Vec<(Slot, VerifyMessage)>,
    layout: Layout,
}

impl Run {
    fn receive(&mut self, from: Slot, message: VerifyMessage) {
        self.verifier(VerifierEvent::Message { from, message: message.clone() });
        self.executor(ExecutorEvent::Message { from, message });
    }

    fn verifier(&mut self, event: VerifierEvent) {
        let mut commands = Vec::new();
        self.process.verifier.handle(event, 0, &mut commands);
        for command in commands {
            if let VerifierCommand::Send { to, message } = command {
                self.send(to, message);
            }
        }
    }

    fn executor(&mut self, event: ExecutorEvent) {
        let Some(executor) = &mut self.process.executor else { return };
        let mut commands = Vec::new();
        executor.handle(event, 0, &mut commands);
        for command in commands {
            if let ExecutorCommand::Send { to, message } = command {
                self.send(to, message);
            }
        }
    }

    fn send(&mut self, to: Recipients, message: VerifyMessage) {
        let me = self.process.slot;
        let receivers = match to {
            Recipients::One(slot) => slot..slot + 1,
            Recipients::Verifiers => 0..self.layout.verifiers(),
            Recipients::Executors => 0..self.layout.executors(),
        };
        for slot in receivers {
            if slot == me {
                self.receive(me, message.clone());
            } else {
                self.sent.push((slot, message.clone()));
            }
        }
    }

    fn run_batch(&mut self) {
        let Some(executor) = &self.process.executor else { return };
        let (Some(view), parent) = (executor.view(), executor.newest()) else { return };
        // Whoever runs it comes to the same, in whatever view.
        let version: Version = after(parent, 0, 0);
        self.executor(ExecutorEvent::Executed { view, version, parent: parent.token });
    }
}
