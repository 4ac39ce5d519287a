//! Makes the requests of all connections from one workload, and judges the replies.

use std::sync::Arc;

use super::connection::Pending;
use super::draw::Draw;
use super::model::{KeyModel, Known, Opinion, Pattern};
use crate::definition::{Op, Workload};
use crate::wire::{Dialect, Reply, WireRequest};

/// Marks the keys of counters, which are separate keys.
const COUNTER: u32 = 1 << 31;
/// Version of the values that are stored before the load.
const FIRST_VERSION: u32 = 1;

/// Draws, writes and judges requests.
#[derive(Debug)]
pub struct Maker {
    dialect: Dialect,
    draw: Draw,
    pattern: Arc<Pattern>,
    /// None: only the form of replies is checked.
    model: Option<KeyModel>,
    connections: u32,
    keys: u32,
    counters: bool,
    stores: bool,
    versions: u32,
    name: KeyName,
}

impl Maker {
    /// For `connections` connections. With `verify`, each of them has keys of its own.
    pub fn new(
        workload: &Workload,
        dialect: Dialect,
        connections: usize,
        verify: bool,
        seed: u64,
        pattern: Arc<Pattern>,
    ) -> Self {
        let own = if verify { (workload.keys / connections).max(1) } else { workload.keys };
        let counts = workload.mix.get(&Op::Incr).is_some_and(|share| *share > 0.0);
        let others = workload.mix.iter().any(|(op, share)| *op != Op::Incr && *share > 0.0);
        Maker {
            dialect,
            draw: Draw::new(workload, own, seed),
            pattern,
            model: verify.then(|| KeyModel::new(workload.ttl_seconds.highest() > 0)),
            connections: connections as u32,
            keys: if verify { (own * connections) as u32 } else { workload.keys as u32 },
            counters: counts,
            stores: others,
            versions: FIRST_VERSION,
            name: KeyName::new(workload.key_bytes),
        }
    }

    /// Every key that is stored before the load.
    pub fn first_keys(&self) -> Vec<u32> {
        let values = (0..self.keys).filter(|key| self.stores && self.draw.is_prefilled(*key));
        let counters = (0..self.keys).filter(|_| self.counters).map(|key| key | COUNTER);
        values.chain(counters).collect()
    }

    /// Appends the request that stores `key` before the load.
    pub fn write_first(&mut self, key: u32, intended: u64, out: &mut Vec<u8>) -> Pending {
        let counter = key & COUNTER != 0;
        let value = if counter {
            &b"0"[..]
        } else {
            self.pattern.value(key, FIRST_VERSION, self.draw.length_of(key, FIRST_VERSION))
        };
        // A counter exists during the whole load, so that `incr` is measured and not its failure.
        let ttl = if counter { 0 } else { self.draw.lifetime() };
        let request = WireRequest { op: Op::Set, key: self.name.of(key), value, ttl, unique: 0 };
        self.dialect.write(&request, out);
        if let Some(model) = &mut self.model {
            model.record(key, if counter { Known::Count(0) } else { Known::Version(FIRST_VERSION) });
        }
        Pending { intended, op: Op::Set, key, version: FIRST_VERSION }
    }

    /// Appends the next request of connection `number`; `last_gets` is the result of its last `gets`.
    pub fn write_next(
        &mut self,
        number: usize,
        last_gets: Option<(u32, u64)>,
        intended: u64,
        out: &mut Vec<u8>,
    ) -> Pending {
        let mut op = self.draw.op();
        let rank = self.draw.rank() as u32;
        let mut key = if self.model.is_some() { rank * self.connections + number as u32 } else { rank };
        let mut unique = 0;
        match (op, last_gets) {
            (Op::Incr, _) => key |= COUNTER,
            (Op::Cas, Some((read, reported))) => (key, unique) = (read, reported),
            // No value was read yet with which `cas` could compare.
            (Op::Cas, None) => op = Op::Gets,
            _ => {}
        }
        let stores = matches!(op, Op::Set | Op::Add | Op::Cas);
        let version = if !stores {
            0
        } else if self.model.is_some() {
            self.versions = self.versions.wrapping_add(1);
            self.versions
        } else {
            self.draw.version()
        };
        let length = if stores { self.draw.length_of(key, version) } else { 0 };
        let value = if stores { self.pattern.value(key, version, length) } else { b"" };
        let ttl = if stores { self.draw.lifetime() } else { 0 };
        let request = WireRequest { op, key: self.name.of(key), value, ttl, unique };
        self.dialect.write(&request, out);
        Pending { intended, op, key, version }
    }

    /// Judges a reply; without a model, every well-formed answer counts as right.
    pub fn judge(&mut self, pending: &Pending, reply: &Reply<'_>) -> Opinion {
        let Some(model) = &mut self.model else { return Opinion::Right };
        // A counter is stored once, before the load, and the model already has its value.
        if pending.op == Op::Set && pending.key & COUNTER != 0 && *reply == Reply::Stored {
            return Opinion::Right;
        }
        if let Reply::Value { key: Some(reported), .. } = reply
            && *reported != self.name.of(pending.key)
        {
            return Opinion::Wrong(Known::Unknown);
        }
        let is_value = |version, bytes: &[u8]| {
            let length = self.draw.length_of(pending.key, version);
            length == bytes.len() && bytes == self.pattern.value(pending.key, version, length)
        };
        model.judge(pending.op, pending.key, pending.version, reply, is_value)
    }

    /// Notes that a request got no reply: it is unknown whether it was or will be executed.
    pub fn give_up(&mut self, pending: &Pending) {
        if let Some(model) = &mut self.model {
            model.give_up(pending.key);
        }
    }

    /// Keys for which any reply is accepted from now on.
    pub fn adrift(&self) -> usize {
        self.model.as_ref().map_or(0, KeyModel::adrift)
    }
}

/// Writes keys: a letter, padding, and the number's digits at the end.
#[derive(Debug)]
pub struct KeyName {
    text: Vec<u8>,
}

impl KeyName {
    /// Writes keys of this many bytes.
    pub fn new(length: usize) -> Self {
        KeyName { text: vec![b'0'; length] }
    }

    /// The key with this number.
    pub fn of(&mut self, key: u32) -> &[u8] {
        self.text[0] = if key & COUNTER == 0 { b'k' } else { b'c' };
        let mut rest = key & !COUNTER;
        for place in self.text[1..].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.clear_before(key);
        &self.text
    }

    /// Zeroes the digits that a longer number left; none has more than ten.
    fn clear_before(&mut self, key: u32) {
        let digits = 1 + (key & !COUNTER).checked_ilog10().unwrap_or(0) as usize;
        let end = self.text.len() - digits.min(self.text.len() - 1);
        let begin = self.text.len().saturating_sub(10).max(1);
        if begin < end {
            self.text[begin..end].fill(b'0');
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::definition::Amount;

    fn workload(mix: &[(Op, f64)]) -> Workload {
        let mix = mix.iter().copied().collect::<BTreeMap<_, _>>();
        Workload { zipf: 0.9, ..Workload::plain("w", 12, Amount::Between { from: 10, to: 20 }, mix, 100) }
    }

    fn maker(mix: &[(Op, f64)], verify: bool) -> Maker {
        Maker::new(&workload(mix), Dialect::Memcached, 4, verify, 1, Arc::new(Pattern::default()))
    }

    #[test]
    fn keys_have_one_length_and_are_all_different() {
        let mut name = KeyName::new(12);
        let numbers = [0, 7, 123_456, 3, 99, 2_000_000_000, 1, COUNTER | 1];
        let texts: Vec<Vec<u8>> = numbers.iter().map(|number| name.of(*number).to_vec()).collect();
        assert_eq!(texts[1], b"k00000000007");
        assert_eq!(texts[3], b"k00000000003");
        assert_eq!(texts[5], b"k02000000000");
        assert_eq!(texts[6], b"k00000000001");
        assert_eq!(texts[7], b"c00000000001");
    }

    #[test]
    fn short_keys_fit_too() {
        let mut name = KeyName::new(4);
        assert_eq!(name.of(999), b"k999");
        assert_eq!(name.of(5), b"k005");
    }

    #[test]
    fn verified_connections_share_no_key() {
        let mut maker = maker(&[(Op::Get, 1.0), (Op::Set, 1.0)], true);
        let mut out = Vec::new();
        for number in 0..4 {
            for _ in 0..1000 {
                let pending = maker.write_next(number, None, 0, &mut out);
                assert_eq!(pending.key % 4, number as u32);
                assert!(pending.key < 100);
            }
        }
    }

    #[test]
    fn the_first_keys_are_known_and_counters_come_only_where_they_are_counted() {
        let mut plain = maker(&[(Op::Get, 1.0)], true);
        assert_eq!(plain.first_keys().len(), 100);
        let mut out = Vec::new();
        let stored = plain.write_first(3, 0, &mut out);
        assert_eq!(plain.judge(&stored, &Reply::Stored), Opinion::Right);
        let read = Pending { op: Op::Get, ..stored };
        assert_eq!(plain.judge(&read, &Reply::Missing), Opinion::Lost);
        let both = maker(&[(Op::Get, 1.0), (Op::Incr, 1.0)], false);
        assert_eq!(both.first_keys().len(), 200);
        let mut counting = maker(&[(Op::Incr, 1.0)], true);
        let stored = counting.write_first(COUNTER | 3, 0, &mut out);
        assert_eq!(counting.judge(&stored, &Reply::Stored), Opinion::Right);
        let counted = Pending { op: Op::Incr, ..stored };
        assert_eq!(counting.judge(&counted, &Reply::Number(1)), Opinion::Right);
    }

    #[test]
    fn a_cas_follows_a_gets() {
        let mut maker = maker(&[(Op::Cas, 1.0)], false);
        let mut out = Vec::new();
        assert_eq!(maker.write_next(0, None, 0, &mut out).op, Op::Gets);
        let cas = maker.write_next(0, Some((42, 7)), 0, &mut out);
        assert_eq!((cas.op, cas.key), (Op::Cas, 42));
    }
}
