//! Values by number, sets of messages, and tokens that tell what ran.

use std::collections::HashMap;
use std::hash::Hash;

use verify::{StateToken, VerifyMessage, Version};

/// Words of the set of messages.
const WORDS: usize = 8;

/// Values by number.
#[derive(Clone)]
pub struct Table<T> {
    values: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { values: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    /// The number of a value.
    pub fn number(&mut self, value: T) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let number = self.values.len() as u32;
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    /// The value of a number.
    pub fn value(&self, number: u32) -> &T {
        &self.values[number as usize]
    }
}

/// A set of messages, by number.
#[derive(Clone, Copy, Default)]
pub struct Messages([u64; WORDS]);

impl Messages {
    /// Whether it is there.
    pub fn has(&self, message: u32) -> bool {
        self.0[message as usize / 64] & (1 << (message % 64)) != 0
    }

    /// Adds one.
    pub fn add(&mut self, message: u32) {
        assert!((message as usize) < WORDS * 64, "more messages than a set has room for");
        self.0[message as usize / 64] |= 1 << (message % 64);
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        (0u32..).zip(self.0).flat_map(|(index, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(index * 64 + bit)
            })
        })
    }

    /// Its bytes.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        self.0.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    }
}

/// The token of this number's version, of which a token is the continuation.
pub fn prefix(token: StateToken, number: u64) -> u128 {
    if number >= 16 { token.0 } else { token.0 & ((1 << (8 * number)) - 1) }
}

/// The version after a batch that ran in this view.
pub fn after(version: Version, view: u64, flavour: u8) -> Version {
    let code = 1 + view as u128 * 8 + flavour as u128;
    let token = StateToken(version.token.0 | code << (8 * version.number));
    Version { number: version.number + 1, token }
}

/// A message in a line.
pub fn reported(message: &VerifyMessage) -> String {
    match message {
        VerifyMessage::Verify { view, version, .. } => {
            format!("VERIFY in view {view}, batch {}, {}", version.number, batches(*version))
        }
        VerifyMessage::Recorded { record, .. } => {
            format!("RECORDED in view {}, {}", record.view, batches(record.version))
        }
        VerifyMessage::ViewChange { view, record, .. } => {
            let kept = batches(record.version);
            format!("VIEW-CHANGE to {view}, its record is of view {}, {kept}", record.view)
        }
        VerifyMessage::NewView { record, .. } => {
            format!("NEW-VIEW {} from {}", record.view, batches(record.version))
        }
        VerifyMessage::Where { round, .. } => format!("WHERE ({round:?})"),
        VerifyMessage::ReadWhere { .. } => "WHERE for reads".to_owned(),
        VerifyMessage::ReadHere { view, number, .. } => {
            format!("HERE for reads: batch {number} of view {view}")
        }
        VerifyMessage::Here(here) => match here.memory {
            Some((promised, record)) => format!(
                "HERE ({:?}): promised {promised}, record of view {}, {}",
                here.round,
                record.view,
                batches(record.version)
            ),
            None => format!("HERE ({:?}): no memory", here.round),
        },
    }
}

/// In which views the batches of a version ran.
fn batches(version: Version) -> String {
    let codes = (0..version.number).map(|batch| (version.token.0 >> (8 * batch)) as u8 - 1);
    let list: Vec<String> = codes
        .map(|code| match code % 8 {
            0 => format!("{}", code / 8),
            flavour => format!("{}.{flavour}", code / 8),
        })
        .collect();
    format!("batches [{}]", list.join(" "))
}
