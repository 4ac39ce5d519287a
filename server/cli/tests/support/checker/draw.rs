//! Draws the next commands of a client from its seed: every command of both protocols, small and large values.

use wire::SplitMix64;

use super::model::{Act, Cas, Key, Verb};

/// The draws of one client: its seed repeats a failing run.
#[derive(Clone, Debug)]
pub struct Draw(SplitMix64);

impl Draw {
    /// A generator of the same draws for the same seed.
    pub fn new(seed: u64) -> Self {
        Draw(SplitMix64::new(seed))
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

    /// A command for a key that holds text.
    pub fn text_act(&mut self, key: &Key, longest: usize) -> Act {
        let meta = self.once_in(3);
        let flags = if self.once_in(2) { 0 } else { self.bits() as u32 };
        let exptime = self.exptime();
        match self.below(20) {
            0..=5 => self.read(),
            6..=10 => {
                let noreply = !meta && self.once_in(6);
                Act::Store { verb: Verb::Set, flags, exptime, value: self.value(longest), meta, noreply }
            }
            11 => Act::Store {
                verb: Verb::Add,
                flags,
                exptime,
                value: self.value(longest),
                meta,
                noreply: false,
            },
            12 => Act::Store {
                verb: Verb::Replace,
                flags,
                exptime,
                value: self.value(longest),
                meta,
                noreply: false,
            },
            13 if !is_long(key, longest) => self.extend(Verb::Append, meta),
            14 if !is_long(key, longest) => self.extend(Verb::Prepend, meta),
            13..=16 => self.cas(key, longest, meta),
            17 => Act::Touch { exptime, meta },
            18 => Act::Delete { meta, noreply: !meta && self.once_in(4) },
            _ => Act::Get { cas: self.once_in(2), touch: Some(exptime) },
        }
    }

    /// A command for a key that holds numbers.
    pub fn number_act(&mut self, huge: bool) -> Act {
        let meta = self.once_in(3);
        match self.below(10) {
            0 => {
                let number =
                    if huge && self.once_in(8) { u64::MAX - self.below(50) } else { self.below(2000) };
                let value = if self.once_in(10) { "no number".into() } else { number.to_string() };
                let (verb, value) = (Verb::Set, value.into_bytes());
                Act::Store { verb, flags: 5, exptime: 0, value, meta, noreply: false }
            }
            1..=2 => self.read(),
            3 if self.once_in(3) => Act::Delete { meta, noreply: false },
            3..=7 => Act::Count { up: true, delta: self.below(1000), meta },
            _ => Act::Count { up: false, delta: self.below(1000), meta },
        }
    }

    fn read(&mut self) -> Act {
        if self.once_in(3) {
            return Act::MetaGet { value: self.once_in(2), cas: self.once_in(2), opaque: self.bits() as u32 };
        }
        Act::Get { cas: self.once_in(2), touch: None }
    }

    fn extend(&mut self, verb: Verb, meta: bool) -> Act {
        Act::Store { verb, flags: 9, exptime: 0, value: self.value(64), meta, noreply: false }
    }

    /// Mostly the right unique number, if a reply contained one.
    fn cas(&mut self, key: &Key, longest: usize, meta: bool) -> Act {
        let known = key.states.iter().find_map(|state| match state.item.as_ref()?.cas {
            Cas::Known(unique) => Some(unique),
            Cas::Not(_) => None,
        });
        match known {
            // The high bit makes a unique number that no server has used.
            Some(unique) => {
                let unique = if self.once_in(4) { unique ^ (1 << 62) } else { unique };
                Act::Cas { unique, flags: 3, value: self.value(longest), meta }
            }
            None => Act::Get { cas: true, touch: None },
        }
    }

    /// Never, in a day, or in the past. The conformance table covers items that expire during a test.
    fn exptime(&mut self) -> i32 {
        match self.below(10) {
            0 => -1,
            1..=2 => 86_400,
            _ => 0,
        }
    }
}

fn is_long(key: &Key, longest: usize) -> bool {
    key.states.iter().filter_map(|state| state.item.as_ref()).any(|item| item.value.len() > longest)
}
