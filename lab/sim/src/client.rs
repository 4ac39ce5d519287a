//! Clients: each sends commands over one connection, a few at a time, and records the times and replies of its
//! commands.

use std::collections::VecDeque;

use wire::SplitMix64;

use crate::workload::CommandSource;

/// Commands that a client sends before it waits.
pub const PIPELINE: u64 = 4;
/// Longest times that clients think, in microseconds.
const THINKS_US: [u64; 4] = [5_000, 20_000, 100_000, 400_000];
/// The same where batches have many requests.
const DENSE_US: [u64; 4] = [200, 500, 1_000, 2_000];
/// Microseconds after which a client gives up on an answer, as real clients do.
pub const PATIENCE_US: u64 = 4_000_000;

/// A command and its outcome.
#[derive(Clone, Copy, Debug)]
pub struct SentCommand {
    /// The client that sent it.
    pub client: usize,
    /// Its number among all commands.
    pub command: usize,
    /// Highest place of any command answered when it was sent: its own must be higher.
    pub floor: Option<vote::Place>,
    /// Its own place, once its reply passed the gate.
    pub place: Option<vote::Place>,
    /// Whether its answer reached the client.
    pub answered: bool,
}

/// One client.
#[derive(Debug)]
pub struct Client<S: CommandSource> {
    rng: SplitMix64,
    /// The source of its commands.
    pub source: S,
    /// The replica it uses, or tries to reach.
    pub replica: u8,
    /// Its connection: slot and generation at the replica, and the replica's process.
    pub session: Option<(u64, u32)>,
    /// Numbers of the commands it waits for, in the order it sent them.
    pub waiting: VecDeque<usize>,
    /// When it acts next, unless an answer comes before.
    pub next_us: u64,
    /// When it acts next, as far as is planned.
    pub acts_us: u64,
    /// When it gives up.
    pub deadline_us: u64,
    /// Commands that it still has to send.
    pub left: u64,
    /// Continues when it has sent them all: faults are still injected.
    pub goes_on: bool,
    /// Longest time it thinks, in microseconds.
    thinks_us: u64,
    /// Commands with which it still has to read all data at the end, the next one last.
    pub reading: Vec<S::Command>,
}

impl<S: CommandSource> Client<S>
where
    S::Command: Clone + PartialEq,
{
    /// A client that will send `left` commands from `source`, after a moment only if it `is_dense`.
    pub fn new(replica: u8, left: u64, is_dense: bool, source: S, mut rng: SplitMix64) -> Self {
        let thinks_us = *rng.pick(&if is_dense { DENSE_US } else { THINKS_US });
        Client {
            thinks_us,
            goes_on: true,
            rng,
            source,
            replica,
            session: None,
            waiting: VecDeque::new(),
            next_us: 0,
            acts_us: 0,
            deadline_us: u64::MAX,
            left,
            reading: Vec::new(),
        }
    }

    /// How many commands it sends now, and how long it then waits after the answer, in microseconds.
    pub fn burst(&mut self) -> (u64, u64) {
        (self.rng.within(1, PIPELINE), self.rng.within(100, self.thinks_us))
    }

    /// Whether it has nothing more to do.
    pub fn is_done(&self) -> bool {
        !self.sends() && self.reading.is_empty() && self.waiting.is_empty()
    }

    fn sends(&self) -> bool {
        self.left > 0 || self.goes_on
    }

    /// Its next command; none when it is done.
    pub fn command(&mut self) -> Option<S::Command> {
        if self.sends() {
            self.left = self.left.saturating_sub(1);
            return Some(self.source.draw(&mut self.rng));
        }
        self.reading.last().cloned()
    }

    /// It has this reply to `command`.
    pub fn learn(&mut self, command: &S::Command, reply: &[u8]) {
        self.source.learn(command, reply);
        if self.reading.last() == Some(command) {
            self.reading.pop();
        }
    }

    /// Moves to another replica.
    pub fn move_on(&mut self, replicas: u8) {
        self.replica = (self.replica + 1 + self.rng.modulo(u64::from(replicas) - 1) as u8) % replicas;
        self.session = None;
        self.waiting.clear();
        self.deadline_us = u64::MAX;
    }
}
