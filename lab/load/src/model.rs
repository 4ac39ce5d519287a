//! The model of a connection's own keys: no other connection writes them, so that every reply has one right value.

use wire::mix;

/// The keys of one connection, the last version of each, and its bytes.
#[derive(Debug)]
pub struct ConnectionModel {
    prefix: String,
    generation: u32,
    values: Vec<StoredVersion>,
    counters: Vec<StoredVersion>,
    size: usize,
}

/// One key: a value that is overwritten, or a counter that is incremented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySlot {
    /// Version v holds bytes that follow from key and version.
    Value(usize),
    /// Version v holds the decimal number v - 1.
    Counter(usize),
}

/// The last version of one key. Version 0 = never stored.
#[derive(Clone, Copy, Debug, Default)]
struct StoredVersion {
    sent: u32,
    acknowledged: u32,
}

impl ConnectionModel {
    /// `keys` values of `size` bytes and as many counters, none stored yet; no other connection has this `name`.
    pub fn new(name: &str, keys: usize, size: usize) -> Self {
        let none = vec![StoredVersion::default(); keys.max(1)];
        ConnectionModel { prefix: name.to_owned(), generation: 0, values: none.clone(), counters: none, size }
    }

    /// Every key.
    pub fn slots(&self) -> impl Iterator<Item = KeySlot> + use<> {
        let keys = self.values.len();
        (0..keys).map(KeySlot::Value).chain((0..keys).map(KeySlot::Counter))
    }

    /// A key's name on the server.
    pub fn name(&self, slot: KeySlot) -> String {
        match slot {
            KeySlot::Value(key) => format!("{}k{key}.{}", self.prefix, self.generation),
            KeySlot::Counter(key) => format!("{}n{key}.{}", self.prefix, self.generation),
        }
    }

    /// The version after all requests that were sent.
    pub fn sent(&self, slot: KeySlot) -> u32 {
        self.known(slot).sent
    }

    /// The last version that the server acknowledged: it can never be lost.
    pub fn acknowledged(&self, slot: KeySlot) -> u32 {
        self.known(slot).acknowledged
    }

    /// Advances to the next version, which is sent now.
    pub fn advance(&mut self, slot: KeySlot) -> u32 {
        let known = self.known_mut(slot);
        known.sent += 1;
        known.sent
    }

    /// Notes that the server acknowledged this version.
    pub fn acknowledge(&mut self, slot: KeySlot, version: u32) {
        let known = self.known_mut(slot);
        known.acknowledged = known.acknowledged.max(version);
    }

    /// Switches to fresh keys: after a broken connection a late request may still change the old ones.
    pub fn renew(&mut self) {
        self.generation += 1;
        self.values.fill(StoredVersion::default());
        self.counters.fill(StoredVersion::default());
    }

    /// Flags and bytes of a version above 0.
    ///
    /// Every byte of a value follows from connection, key, generation and version: a byte of another key, of another
    /// version or from another place in the value is wrong.
    pub fn content(&self, slot: KeySlot, version: u32) -> (u32, Vec<u8>) {
        let key = match slot {
            KeySlot::Counter(_) => return (0, (version - 1).to_string().into_bytes()),
            KeySlot::Value(key) => key as u64,
        };
        let mut state = key << 40 ^ u64::from(self.generation) << 32 ^ u64::from(version);
        state ^= self.prefix.bytes().fold(0, |sum: u64, byte| mix(sum ^ u64::from(byte)));
        let mut value = Vec::with_capacity(self.size + 8);
        while value.len() < self.size {
            state = mix(state);
            // Printable, so that people can read a wrong value.
            value.extend(state.to_le_bytes().map(|byte| b'0' + byte % 75));
        }
        value.truncate(self.size);
        (version, value)
    }

    fn known(&self, slot: KeySlot) -> StoredVersion {
        match slot {
            KeySlot::Value(key) => self.values[key],
            KeySlot::Counter(key) => self.counters[key],
        }
    }

    fn known_mut(&mut self, slot: KeySlot) -> &mut StoredVersion {
        match slot {
            KeySlot::Value(key) => &mut self.values[key],
            KeySlot::Counter(key) => &mut self.counters[key],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_differ_by_key_version_generation_and_connection() {
        let mut first = ConnectionModel::new("a", 2, 100);
        let second = ConnectionModel::new("b", 2, 100);
        let mut seen = vec![
            first.content(KeySlot::Value(0), 1).1,
            first.content(KeySlot::Value(0), 2).1,
            first.content(KeySlot::Value(1), 1).1,
            second.content(KeySlot::Value(0), 1).1,
        ];
        let name = first.name(KeySlot::Value(0));
        first.renew();
        assert_ne!(first.name(KeySlot::Value(0)), name);
        seen.push(first.content(KeySlot::Value(0), 1).1);
        assert!(seen.iter().all(|value| value.len() == 100));
        for (index, value) in seen.iter().enumerate() {
            assert!(!seen[..index].contains(value), "{index} repeats");
        }
    }

    #[test]
    fn what_is_acknowledged_lags_behind_what_is_sent() {
        let mut model = ConnectionModel::new("a", 1, 10);
        let slot = KeySlot::Counter(0);
        assert_eq!((model.advance(slot), model.advance(slot)), (1, 2));
        model.acknowledge(slot, 1);
        assert_eq!((model.sent(slot), model.acknowledged(slot)), (2, 1));
        assert_eq!(model.content(slot, 2), (0, b"1".to_vec()));
        assert_ne!(model.name(slot), model.name(KeySlot::Value(0)));
    }
}
