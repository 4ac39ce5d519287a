//! Draws the next commands of a client from its seed: every command of both protocols, small and large values.

use std::borrow::Cow;

use wire::SplitMix64;

use crate::model::{Cas, States};
use crate::request::{KeyCommand, KeyRequest, StoreVerb, Syntax};

/// The draws of one client: its seed repeats a failing run.
#[derive(Clone, Debug)]
pub struct LoadDraw(SplitMix64);

impl LoadDraw {
    /// A generator of the same draws for the same seed.
    pub fn new(seed: u64) -> Self {
        LoadDraw(SplitMix64::new(seed))
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.modulo(bound)
    }

    /// True once in `n`.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.0.once_in(n)
    }

    /// A value: mostly short, sometimes up to `longest`, any bytes, line ends included.
    pub fn value(&mut self, longest: usize) -> Vec<u8> {
        let length = match self.below(20) {
            0 => 0,
            1..=14 => self.below(100),
            15..=18 => self.below(1024),
            _ => self.below(longest as u64 + 1),
        } as usize;
        let mut value = Vec::with_capacity(length + 8);
        while value.len() < length {
            value.extend_from_slice(&self.bits().to_le_bytes());
        }
        value.truncate(length);
        value
    }

    /// A request for a key that holds text.
    pub fn text_request(&mut self, key: &States, longest: usize) -> KeyRequest<'static> {
        let meta = self.once_in(3);
        let flags = if self.once_in(2) { 0 } else { self.bits() as u32 };
        let expiry = self.expiry();
        match self.below(20) {
            0..=5 => self.read(),
            6..=10 => {
                let silent = !meta && self.once_in(6);
                written(self.store(StoreVerb::Set, flags, expiry, longest), meta, silent, "")
            }
            11 => written(self.store(StoreVerb::Add, flags, expiry, longest), meta, false, ""),
            12 => written(self.store(StoreVerb::Replace, flags, expiry, longest), meta, false, ""),
            13 if !is_long(key, longest) => written(self.extension(StoreVerb::Append), meta, false, ""),
            14 if !is_long(key, longest) => written(self.extension(StoreVerb::Prepend), meta, false, ""),
            13..=16 => self.cas(key, longest, meta),
            17 => written(KeyCommand::Touch { expiry }, meta, false, ""),
            18 => written(KeyCommand::Delete, meta, !meta && self.once_in(4), "O77 k"),
            _ => KeyCommand::Read { unique: self.once_in(2), touch: Some(expiry) }.classic(),
        }
    }

    /// A request for a key that holds numbers.
    pub fn number_request(&mut self, huge: bool) -> KeyRequest<'static> {
        let meta = self.once_in(3);
        let by = match self.below(10) {
            0 => {
                let number =
                    if huge && self.once_in(8) { u64::MAX - self.below(50) } else { self.below(2000) };
                let value = if self.once_in(10) { "no number".into() } else { number.to_string() };
                let value = Cow::Owned(value.into_bytes());
                return written(
                    KeyCommand::Store { verb: StoreVerb::Set, flags: 5, expiry: 0, value },
                    meta,
                    false,
                    "",
                );
            }
            1..=2 => return self.read(),
            3 if self.once_in(3) => return written(KeyCommand::Delete, meta, false, "O77 k"),
            3..=7 => KeyCommand::Count { up: true, by: self.below(1000) },
            _ => KeyCommand::Count { up: false, by: self.below(1000) },
        };
        written(by, meta, false, "v")
    }

    fn read(&mut self) -> KeyRequest<'static> {
        if self.once_in(3) {
            let value = if self.once_in(2) { " v" } else { "" };
            let unique = if self.once_in(2) { " c" } else { "" };
            return KeyCommand::GET.meta(format!("s{value}{unique} f k O{}", self.bits() as u32));
        }
        KeyCommand::Read { unique: self.once_in(2), touch: None }.classic()
    }

    fn store(&mut self, verb: StoreVerb, flags: u32, expiry: i64, longest: usize) -> KeyCommand<'static> {
        KeyCommand::Store { verb, flags, expiry, value: Cow::Owned(self.value(longest)) }
    }

    fn extension(&mut self, verb: StoreVerb) -> KeyCommand<'static> {
        KeyCommand::Store { verb, flags: 9, expiry: 0, value: Cow::Owned(self.value(64)) }
    }

    /// Mostly the right unique number, if a reply contained one.
    fn cas(&mut self, key: &States, longest: usize, meta: bool) -> KeyRequest<'static> {
        let known = key.states.iter().find_map(|state| match state.item.as_ref()?.cas {
            Cas::Known(unique) => Some(unique),
            Cas::Not(_) => None,
        });
        // The high bit makes a unique number that no server has used.
        let Some(unique) = known.map(|unique| if self.once_in(4) { unique ^ (1 << 62) } else { unique })
        else {
            return KeyCommand::GETS.classic();
        };
        let value = Cow::Owned(self.value(longest));
        written(KeyCommand::Cas { unique, flags: 3, expiry: 0, value }, meta, false, "k")
    }

    /// Never, in a day, or in the past. The conformance table covers items that expire during a test.
    fn expiry(&mut self) -> i64 {
        match self.below(10) {
            0 => -1,
            1..=2 => 86_400,
            _ => 0,
        }
    }
}

fn written(
    command: KeyCommand<'static>,
    meta: bool,
    silent: bool,
    flags: &'static str,
) -> KeyRequest<'static> {
    match (meta, silent) {
        (true, _) => command.meta(flags),
        (false, true) => KeyRequest { command, syntax: Syntax::Silent },
        (false, false) => command.classic(),
    }
}

fn is_long(key: &States, longest: usize) -> bool {
    key.states.iter().filter_map(|state| state.item.as_ref()).any(|item| item.value.len() > longest)
}
