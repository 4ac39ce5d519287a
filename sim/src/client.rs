//! Clients: each sends commands over one connection, a few at a time, and notes when it asked and what it was answered.

use std::collections::VecDeque;

use wire::SplitMix64;

use crate::model::{Command, Mode};

/// Keys that all clients share; few, so that they meet.
const VALUES: u64 = 10;
const COUNTERS: u64 = 5;
/// Keys where memory is short; a value has 60 bytes, or 1 to 3 KB.
const CROWD: u64 = 2_000;
/// Commands that a client sends before it waits.
pub const PIPELINE: u64 = 4;
/// Microseconds after which a client gives up on an answer, as real clients do.
pub const PATIENCE_US: u64 = 4_000_000;

/// A command and what became of it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Who asked.
    pub client: usize,
    /// What.
    pub command: Command,
    /// Highest place that had been answered to anybody when it was sent: its own must be higher.
    pub floor: Option<vote::Place>,
    /// Its own place, once its reply passed the gate.
    pub place: Option<vote::Place>,
    /// Whether its answer reached the client.
    pub answered: bool,
}

/// One client.
#[derive(Debug)]
pub struct Client {
    rng: SplitMix64,
    /// The replica it talks to, or wants to.
    pub replica: u8,
    /// Its connection: slot and generation at the replica, and which life of the replica.
    pub session: Option<(u64, u32)>,
    /// Numbers of what it waits for, in the order it asked.
    pub waiting: VecDeque<usize>,
    /// When it does something next, unless an answer comes before.
    pub next_us: u64,
    /// When it gives up.
    pub deadline_us: u64,
    /// Commands it has still to send.
    pub left: u64,
    /// Goes on when it has sent them all: faults still strike.
    pub goes_on: bool,
    /// Longest time it thinks, in microseconds.
    thinks_us: u64,
    /// Writes more than fits.
    crowds: bool,
    /// Makes written values differ.
    written: u64,
    number: usize,
    /// Last unique it was told.
    pub unique: Option<(String, u64)>,
    /// Keys it has still to read at the end.
    pub reading: Vec<String>,
}

/// Every key there is.
pub fn keys() -> Vec<String> {
    (0..VALUES).map(|key| format!("v{key}")).chain((0..COUNTERS).map(|key| format!("c{key}"))).collect()
}

impl Client {
    /// A client that will send `left` commands; if it `crowds`, more than fits where memory is short.
    pub fn new(number: usize, replica: u8, left: u64, crowds: bool, mut rng: SplitMix64) -> Self {
        let thinks_us = *rng.pick(&[5_000, 20_000, 100_000, 400_000]);
        Client {
            thinks_us,
            crowds,
            goes_on: true,
            rng,
            replica,
            session: None,
            waiting: VecDeque::new(),
            next_us: 0,
            deadline_us: u64::MAX,
            left,
            written: 0,
            number,
            unique: None,
            reading: Vec::new(),
        }
    }

    /// How many commands it sends now, and how long it then thinks when it is answered, in microseconds.
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
    pub fn command(&mut self) -> Option<Command> {
        if self.sends() {
            self.left = self.left.saturating_sub(1);
            let command = if self.crowds { self.crowd() } else { self.draw() };
            let meta = self.rng.chance(300) && crate::meta::text(&command).is_some();
            return Some(if meta { Command::Meta(Box::new(command)) } else { command });
        }
        let key = self.reading.last()?.clone();
        Some(Command::Get { keys: vec![key], unique: false })
    }

    fn value_key(&mut self) -> String {
        format!("v{}", self.rng.modulo(VALUES))
    }

    fn counter_key(&mut self) -> String {
        format!("c{}", self.rng.modulo(COUNTERS))
    }

    fn value(&mut self) -> Vec<u8> {
        self.written += 1;
        let mut value = format!("{}:{}:", self.number, self.written).into_bytes();
        let length = if self.rng.chance(50) { self.rng.within(1000, 3000) } else { self.rng.modulo(120) };
        let fill = b'a' + self.rng.modulo(26) as u8;
        value.extend((0..length).map(|_| fill));
        value
    }

    fn draw(&mut self) -> Command {
        let flags = self.rng.modulo(1 << 16) as u32;
        match self.rng.modulo(100) {
            0..30 => {
                let keys = (0..self.rng.within(1, 4)).map(|_| self.any_key()).collect();
                Command::Get { keys, unique: false }
            }
            30..38 => Command::Get { keys: vec![self.value_key()], unique: true },
            38..44 => match self.unique.take() {
                Some((key, unique)) => Command::Cas { key, flags, unique, value: self.value() },
                None => Command::Get { keys: vec![self.value_key()], unique: true },
            },
            44..62 => {
                let key = self.value_key();
                Command::Store { mode: Mode::Set, key, flags, expiry: self.expiry(), value: self.value() }
            }
            62..70 => {
                let mode = *self.rng.pick(&[Mode::Add, Mode::Replace]);
                let key = self.value_key();
                Command::Store { mode, key, flags, expiry: self.expiry(), value: self.value() }
            }
            70..76 => {
                let mode = *self.rng.pick(&[Mode::Append, Mode::Prepend]);
                let key = self.value_key();
                Command::Store { mode, key, flags, expiry: self.expiry(), value: self.value() }
            }
            76..80 => {
                let key = self.counter_key();
                let value = self.rng.modulo(1000).to_string().into_bytes();
                Command::Store { mode: Mode::Set, key, flags, expiry: 0, value }
            }
            80..92 => {
                let (key, up) = (self.counter_key(), self.rng.chance(700));
                Command::Step { key, up, delta: self.rng.modulo(1 << 40) }
            }
            92..96 => Command::Delete(self.any_key()),
            96..99 => Command::Touch { key: self.any_key(), expiry: self.expiry() },
            _ => Command::Flush,
        }
    }

    /// Much that is large, under many keys: only what a single item tells about itself, since any other may be gone.
    fn crowd(&mut self) -> Command {
        let key = |client: &mut Self| format!("b{}", client.rng.modulo(CROWD));
        match self.rng.modulo(100) {
            0..50 => {
                let flags = self.rng.modulo(1 << 16) as u32;
                let (key, value) = (key(self), self.value());
                Command::Store { mode: Mode::Set, key, flags, expiry: 0, value }
            }
            50..90 => {
                let keys = (0..self.rng.within(1, 4)).map(|_| key(self)).collect();
                Command::Get { keys, unique: false }
            }
            _ => Command::Delete(key(self)),
        }
    }

    /// Few items have a deadline, and reach it within a run.
    fn expiry(&mut self) -> i64 {
        if self.rng.chance(150) { *self.rng.pick(&[-1, 1, 1, 2, 3]) } else { 0 }
    }

    fn any_key(&mut self) -> String {
        if self.rng.chance(700) { self.value_key() } else { self.counter_key() }
    }

    /// Looks for another replica to talk to.
    pub fn move_on(&mut self, replicas: u8) {
        self.replica = (self.replica + 1 + self.rng.modulo(u64::from(replicas) - 1) as u8) % replicas;
        self.session = None;
        self.waiting.clear();
        self.deadline_us = u64::MAX;
    }
}
