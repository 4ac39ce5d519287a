//! The commands of one memcached client: classic and meta, on a few keys that all clients share.

use memcached_client::{KeyCommand, StoreVerb};
use wire::SplitMix64;

use super::model::ModelCommand;
use crate::workload::CommandSource;

/// Keys that all clients share; few, so that they conflict.
pub const VALUES: u64 = 10;
const COUNTERS: u64 = 5;
/// Keys where memory is short; a value has 60 bytes, or 1 to 3 KB.
const CROWD: u64 = 2_000;

/// Draws the commands of one client.
#[derive(Clone, Debug)]
pub struct Source {
    number: usize,
    /// Writes more than fits.
    crowds: bool,
    /// Makes written values differ.
    written: u64,
    /// The last unique that a reply gave.
    unique: Option<(String, u64)>,
}

/// Every key there is.
pub fn keys() -> Vec<String> {
    (0..VALUES).map(|key| format!("v{key}")).chain((0..COUNTERS).map(|key| format!("c{key}"))).collect()
}

impl CommandSource for Source {
    type Command = ModelCommand;

    fn draw(&mut self, draws: &mut SplitMix64) -> ModelCommand {
        let command = if self.crowds { self.crowd(draws) } else { self.any(draws) };
        if draws.chance(300) { command.meta() } else { command }
    }

    fn learn(&mut self, command: &ModelCommand, reply: &[u8]) {
        let ModelCommand::Get { keys, unique: true } = command else { return };
        let line = reply.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let last =
            line.split(|byte| *byte == b' ').nth(4).and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(unique) = last.and_then(|digits| digits.parse().ok()) {
            self.unique = Some((keys[0].clone(), unique));
        }
    }

    fn forget(&mut self) {
        self.unique = None;
    }
}

impl Source {
    /// Of the client with this number; if it `crowds`, it writes more than fits where memory is short.
    pub fn new(number: usize, crowds: bool) -> Self {
        Source { number, crowds, written: 0, unique: None }
    }

    fn value(&mut self, draws: &mut SplitMix64) -> Vec<u8> {
        self.written += 1;
        let mut value = format!("{}:{}:", self.number, self.written).into_bytes();
        let length = if draws.chance(50) { draws.within(1000, 3000) } else { draws.modulo(120) };
        let fill = b'a' + draws.modulo(26) as u8;
        value.extend((0..length).map(|_| fill));
        value
    }

    fn any(&mut self, draws: &mut SplitMix64) -> ModelCommand {
        let flags = draws.modulo(1 << 16) as u32;
        match draws.modulo(100) {
            0..30 => {
                let keys = (0..draws.within(1, 4)).map(|_| any_key(draws)).collect();
                ModelCommand::Get { keys, unique: false }
            }
            30..38 => ModelCommand::Get { keys: vec![value_key(draws)], unique: true },
            38..44 => match self.unique.take() {
                Some((key, unique)) => {
                    one(key, KeyCommand::Cas { unique, flags, expiry: 0, value: self.value(draws).into() })
                }
                None => ModelCommand::Get { keys: vec![value_key(draws)], unique: true },
            },
            44..62 => self.store(StoreVerb::Set, flags, draws),
            62..70 => self.store(*draws.pick(&[StoreVerb::Add, StoreVerb::Replace]), flags, draws),
            70..76 => self.store(*draws.pick(&[StoreVerb::Append, StoreVerb::Prepend]), flags, draws),
            76..80 => {
                let key = counter_key(draws);
                let value = draws.modulo(1000).to_string().into_bytes().into();
                one(key, KeyCommand::Store { verb: StoreVerb::Set, flags, expiry: 0, value })
            }
            80..92 => {
                let (key, up) = (counter_key(draws), draws.chance(700));
                one(key, KeyCommand::Count { up, by: draws.modulo(1 << 40) })
            }
            92..96 => one(any_key(draws), KeyCommand::Delete),
            96..98 => one(any_key(draws), KeyCommand::Touch { expiry: expiry(draws) }),
            98 => ModelCommand::Behavior,
            _ => ModelCommand::Flush,
        }
    }

    fn store(&mut self, verb: StoreVerb, flags: u32, draws: &mut SplitMix64) -> ModelCommand {
        let (key, expiry) = (value_key(draws), expiry(draws));
        one(key, KeyCommand::Store { verb, flags, expiry, value: self.value(draws).into() })
    }

    /// Many large values, under many keys, with commands about single items only, since any other may be gone.
    fn crowd(&mut self, draws: &mut SplitMix64) -> ModelCommand {
        let key = |draws: &mut SplitMix64| format!("b{}", draws.modulo(CROWD));
        match draws.modulo(100) {
            0..50 => {
                let flags = draws.modulo(1 << 16) as u32;
                let (key, value) = (key(draws), self.value(draws));
                one(key, KeyCommand::Store { verb: StoreVerb::Set, flags, expiry: 0, value: value.into() })
            }
            50..90 => {
                let keys = (0..draws.within(1, 4)).map(|_| key(draws)).collect();
                ModelCommand::Get { keys, unique: false }
            }
            _ => one(key(draws), KeyCommand::Delete),
        }
    }
}

fn one(key: String, command: KeyCommand<'static>) -> ModelCommand {
    ModelCommand::One(key, command.classic())
}

fn value_key(draws: &mut SplitMix64) -> String {
    format!("v{}", draws.modulo(VALUES))
}

fn counter_key(draws: &mut SplitMix64) -> String {
    format!("c{}", draws.modulo(COUNTERS))
}

/// Few items have a deadline, and reach it within a run.
fn expiry(draws: &mut SplitMix64) -> i64 {
    if draws.chance(150) { *draws.pick(&[-1, 1, 1, 2, 3]) } else { 0 }
}

fn any_key(draws: &mut SplitMix64) -> String {
    if draws.chance(700) { value_key(draws) } else { counter_key(draws) }
}
