//! A group whose machines are driven as a host drives them, message by message, and which tells what happened.
//!
//! A batch has a letter for what it did, and a token is the word of all letters so far: replicas that ran the same have
//! the same word.

use std::collections::VecDeque;

use verify::{
    Config, Executor, ExecutorCommand, ExecutorEvent, Layout, Recipients, SavedRecord, Slot, StateToken,
    Verifier, VerifierCommand, VerifierEvent, VerifyMessage, Version,
};

/// A process: none of its machines is there while it is down. A witness has no executor.
pub struct Member {
    /// Its verifier.
    pub verifier: Option<Verifier>,
    /// Its executor.
    pub executor: Option<Executor>,
    /// What its verifier has persisted.
    pub saved: Option<SavedRecord>,
}

/// A group.
pub struct Cluster {
    /// Who executes and verifies.
    pub layout: Layout,
    /// Changes every configuration.
    pub with: fn(Config) -> Config,
    /// Its processes.
    pub members: Vec<Member>,
    /// Microseconds.
    pub now_us: u64,
    /// Messages between two processes that are lost.
    pub cut: Vec<(Slot, Slot)>,
    /// What was told so far.
    pub reported: Vec<String>,
    /// What every executor said is stable.
    pub stable: Vec<(Slot, Version)>,
    /// The present or last incarnation of each process.
    pub incarnations: Vec<u64>,
    queue: VecDeque<(Slot, Slot, VerifyMessage)>,
    incarnation: u64,
}

impl Cluster {
    /// A group that has begun.
    pub fn founded(layout: Layout, with: fn(Config) -> Config) -> Cluster {
        let mut cluster = Cluster::down(layout, with);
        let incarnations: Vec<u64> = (1..=layout.verifiers().into()).collect();
        for slot in 0..layout.verifiers() {
            let config = cluster.config(slot, incarnations[slot as usize]);
            let verifier = Verifier::founded(config.clone(), &incarnations);
            cluster.members[slot as usize] = Member {
                executor: (slot < layout.executors()).then(|| Executor::founded(config)),
                verifier: Some(verifier),
                saved: None,
            };
        }
        for slot in 0..layout.verifiers() {
            let verifier = cluster.members[slot as usize].verifier.as_ref();
            let Some(record) = verifier.and_then(Verifier::record) else { continue };
            let crashes = verify::CrashVector::new(layout.verifiers());
            cluster.send(slot, Recipients::Executors, VerifyMessage::Recorded { record, crashes });
        }
        cluster.deliver();
        cluster.reported.clear();
        cluster
    }

    /// A group of which no process runs.
    pub fn down(layout: Layout, with: fn(Config) -> Config) -> Cluster {
        let none = |_| Member { verifier: None, executor: None, saved: None };
        Cluster {
            layout,
            with,
            members: (0..layout.verifiers()).map(none).collect(),
            now_us: 0,
            cut: Vec::new(),
            reported: Vec::new(),
            stable: Vec::new(),
            incarnations: (1..=layout.verifiers().into()).collect(),
            queue: VecDeque::new(),
            incarnation: 100,
        }
    }

    fn config(&self, slot: Slot, incarnation: u64) -> Config {
        (self.with)(Config::new(self.layout, slot, incarnation, StateToken(0)).with_extra_protection(None))
    }

    /// Starts a process without memory, and connects it.
    pub fn start(&mut self, slot: Slot, with: fn(Config) -> Config) {
        self.incarnation += 1;
        self.incarnations[slot as usize] = self.incarnation;
        let config = with(self.config(slot, self.incarnation));
        let executor = (slot < self.layout.executors()).then(|| Executor::new(config.clone()));
        self.members[slot as usize] = Member { verifier: Some(Verifier::new(config)), executor, saved: None };
        for other in (0..self.layout.verifiers()).filter(|other| *other != slot) {
            self.verifier(slot, VerifierEvent::Connected(other));
            self.verifier(other, VerifierEvent::Connected(slot));
        }
    }

    /// Starts a process whose verifier has its memory on disk.
    pub fn start_from_disk(&mut self, slot: Slot, saved: &SavedRecord) {
        self.start(slot, self.with);
        let config = (self.with)(self.config(slot, self.incarnation));
        self.members[slot as usize].verifier = Some(Verifier::restored(config, saved));
    }

    /// Ends a process: its connections end.
    pub fn end(&mut self, slot: Slot) {
        self.members[slot as usize] = Member { verifier: None, executor: None, saved: None };
        self.queue.retain(|(_, to, _)| *to != slot);
        for other in 0..self.layout.verifiers() {
            self.verifier(other, VerifierEvent::Disconnected(slot));
        }
    }

    /// Executors run their next batch, which does this. None of their messages is delivered yet.
    pub fn run(&mut self, slots: &[Slot], letter: char) {
        for &slot in slots {
            let Some(executor) = &self.members[slot as usize].executor else { continue };
            let (Some(view), parent) = (executor.view(), executor.newest()) else { continue };
            let token = StateToken(parent.token.0 | (letter as u128) << (8 * parent.number));
            let version = Version { number: parent.number + 1, token };
            self.executor(slot, ExecutorEvent::Executed { view, version, parent: parent.token });
        }
    }

    /// The same, and delivers everything.
    pub fn batch(&mut self, slots: &[Slot], letter: char) {
        self.run(slots, letter);
        self.deliver();
    }

    /// Executors that want a version from another one get it.
    pub fn install(&mut self) {
        for slot in 0..self.layout.executors() {
            // No process has the batches that it lacks.
            self.executor(slot, ExecutorEvent::BatchGone);
            let executor = self.members[slot as usize].executor.as_ref();
            if let Some(version) = executor.and_then(Executor::wanted) {
                self.executor(slot, ExecutorEvent::Installed(version));
            }
        }
        self.deliver();
    }

    /// Delivers all messages, in the order in which they were sent.
    pub fn deliver(&mut self) {
        let mut steps = 0;
        while let Some((from, to, message)) = self.queue.pop_front() {
            steps += 1;
            assert!(steps < 100_000, "messages without end");
            if self.cut.contains(&(from, to)) || self.cut.contains(&(to, from)) {
                continue;
            }
            self.verifier(to, VerifierEvent::Message { from, message: message.clone() });
            self.executor(to, ExecutorEvent::Message { from, message });
        }
    }

    /// Discards all messages that are on their way.
    pub fn lose(&mut self) {
        self.queue.clear();
    }

    /// Time passes, a millisecond at a time.
    pub fn pass_ms(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.now_us += 1_000;
            for slot in 0..self.layout.verifiers() {
                self.verifier(slot, VerifierEvent::Tick);
                self.executor(slot, ExecutorEvent::Tick);
            }
            self.deliver();
        }
    }

    /// An event of one verifier.
    pub fn verifier(&mut self, slot: Slot, event: VerifierEvent) {
        let mut commands = Vec::new();
        let member = &mut self.members[slot as usize];
        let Some(verifier) = &mut member.verifier else { return };
        verifier.handle(event, self.now_us, &mut commands);
        for command in commands {
            let line = match command {
                VerifierCommand::Send { to, message } => {
                    self.send(slot, to, message);
                    continue;
                }
                VerifierCommand::Persist(saved) => {
                    self.members[slot as usize].saved = Some(saved);
                    continue;
                }
                VerifierCommand::Founded => "takes part from the beginning".to_owned(),
                VerifierCommand::Recovered => "has recovered".to_owned(),
                VerifierCommand::ViewBegan { record } => {
                    let how = if record.lineup.sequential { ", sequentially" } else { "" };
                    let (view, primary) = (record.view, record.lineup.primary);
                    let executors: Vec<String> =
                        record.lineup.executors.iter().map(|slot| slot.to_string()).collect();
                    let executors = executors.join(" ");
                    let from = word(record.version);
                    format!("is in view {view} from {from}{how}: primary {primary} of {executors}")
                }
                VerifierCommand::Differed { version, executors } => {
                    let executors: Vec<String> = executors.iter().map(|slot| slot.to_string()).collect();
                    let who = if executors.is_empty() { "tokens".to_owned() } else { executors.join(" ") };
                    format!("sees {who} differ after {}", word(version))
                }
                VerifierCommand::Undecided { version } => {
                    format!("cannot tell who is wrong after {}", word(version))
                }
                VerifierCommand::WaitsForPeer { version } => {
                    format!("waits for its peer after {}", word(version))
                }
            };
            self.reported.push(format!("verifier {slot} {line}"));
        }
    }

    /// An event of one executor.
    pub fn executor(&mut self, slot: Slot, event: ExecutorEvent) {
        let mut commands = Vec::new();
        let Some(executor) = &mut self.members[slot as usize].executor else { return };
        executor.handle(event, self.now_us, &mut commands);
        for command in commands {
            let line = match command {
                ExecutorCommand::Send { to, message } => {
                    self.send(slot, to, message);
                    continue;
                }
                ExecutorCommand::Stable(version) => {
                    self.stable.push((slot, version));
                    format!("has {} stable", word(version))
                }
                ExecutorCommand::Diverged { version, .. } => {
                    format!("has diverged, and needs {}", word(version))
                }
                ExecutorCommand::Behind { version, .. } => format!("is behind, and needs {}", word(version)),
                ExecutorCommand::Rewind { to, view, .. } => {
                    format!("goes back to {} for view {view}", word(to))
                }
                ExecutorCommand::ReadFrom { number } => format!("may read from batch {number} on"),
                ExecutorCommand::Contradiction { stable, .. } => {
                    format!("hears what contradicts {}", word(stable))
                }
            };
            self.reported.push(format!("executor {slot} {line}"));
        }
    }

    fn send(&mut self, from: Slot, to: Recipients, message: VerifyMessage) {
        let all = match to {
            Recipients::One(slot) => slot..slot + 1,
            Recipients::Verifiers => 0..self.layout.verifiers(),
            Recipients::Executors => 0..self.layout.executors(),
        };
        self.queue.extend(all.map(|to| (from, to, message.clone())));
    }

    /// What was told since the last time, line by line.
    pub fn tells(&mut self, expected: &str) {
        let reported = std::mem::take(&mut self.reported).join("\n");
        let expected: Vec<&str> = expected.trim().lines().map(str::trim).collect();
        assert_eq!(reported, expected.join("\n"), "the story has changed:\n{reported}\n");
    }

    /// The version that an executor has stable.
    pub fn version_at(&self, slot: Slot) -> Version {
        self.members[slot as usize].executor.as_ref().map(Executor::stable).unwrap_or_default()
    }

    /// The word that an executor has stable.
    pub fn stable_at(&self, slot: Slot) -> String {
        let executor = self.members[slot as usize].executor.as_ref();
        executor.map_or("-".to_owned(), |executor| word(executor.stable()))
    }

    /// The executors that a verifier counts as copies, as a mask, and the view of its record.
    pub fn copies_at(&self, slot: Slot) -> (u16, u64) {
        let verifier = self.members[slot as usize].verifier.as_ref();
        let view = verifier.and_then(Verifier::record).map_or(0, |record| record.view);
        (verifier.map_or(0, |verifier| verifier.copies().0), view)
    }

    /// Whether all that was ever stable anywhere is one chain.
    pub fn is_one_chain(&self) -> bool {
        let longest = self.stable.iter().map(|(_, version)| *version).max().unwrap_or_default();
        self.stable
            .iter()
            .all(|(_, version)| word(longest).starts_with(&word(*version)) || version.number == 0)
    }
}

/// What the batches of a version did.
pub fn word(version: Version) -> String {
    let letters = (0..version.number).map(|batch| (version.token.0 >> (8 * batch)) as u8 as char);
    if version.number == 0 { "the start".to_owned() } else { letters.collect() }
}

/// The configuration as it is.
pub fn as_is(config: Config) -> Config {
    config
}
