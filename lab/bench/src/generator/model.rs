//! The content of values, and the expected next reply when each connection has keys of its own.

use std::collections::HashMap;

use wire::scramble;

use crate::definition::Op;
use crate::wire::Reply;

/// Bytes from which every value is cut: longer than the longest value by as much as offsets may differ.
const PATTERN: usize = (1 << 20) + OFFSETS;
/// Different places where a value may begin.
const OFFSETS: usize = 1 << 16;

/// Incompressible bytes; a value is a piece of them at an offset that follows from key and version, so that it can be
/// compared without building it.
#[derive(Debug)]
pub struct Pattern(Vec<u8>);

impl Default for Pattern {
    fn default() -> Self {
        Pattern((0..PATTERN as u64 / 8).flat_map(|number| scramble(number + 1).to_le_bytes()).collect())
    }
}

impl Pattern {
    /// The bytes of this version of this key's value.
    pub fn value(&self, key: u32, version: u32, length: usize) -> &[u8] {
        let bits = scramble((u64::from(key) << 32) ^ u64::from(version) ^ 0xABCD);
        let offset = (bits % OFFSETS as u64) as usize;
        &self.0[offset..offset + length]
    }
}

/// The known state of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Unknown: a request for it was refused.
    Unknown,
    /// Unknown for ever: a connection broke with a request in progress, which may still be executed at any time.
    Adrift,
    /// It does not exist.
    Absent,
    /// It has this version.
    Version(u32),
    /// The counter's value.
    Count(u64),
}

/// How a reply compares with the known state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// As expected, or the state was unknown.
    Right,
    /// A stored value is missing. Eviction and expiry may remove it, so it is counted and does not count as wrong.
    Lost,
    /// A reply that no correct server gives in this known state.
    Wrong(Known),
}

/// The keys of all connections; a connection's requests are answered in their order, so replies can be judged in that
/// order.
#[derive(Debug, Default)]
pub struct KeyModel {
    known: HashMap<u32, Known>,
    expires: bool,
}

impl KeyModel {
    /// `expires`: values have a lifetime, so that a value may be added again after it was added.
    pub fn new(expires: bool) -> Self {
        KeyModel { known: HashMap::new(), expires }
    }

    /// The known state of `key`.
    pub fn known(&self, key: u32) -> Known {
        self.known.get(&key).copied().unwrap_or(Known::Absent)
    }

    /// Notes that a request for `key` got no answer, and may be executed at any time from now on.
    pub fn give_up(&mut self, key: u32) {
        self.known.insert(key, Known::Adrift);
    }

    /// Keys whose state stays unknown.
    pub fn adrift(&self) -> usize {
        self.known.values().filter(|known| **known == Known::Adrift).count()
    }

    /// Judges a reply to `op` and records the state that it shows. `version` is the one that was sent; `is_value`
    /// compares bytes with those of a version.
    pub fn judge(
        &mut self,
        op: Op,
        key: u32,
        version: u32,
        reply: &Reply<'_>,
        is_value: impl Fn(u32, &[u8]) -> bool,
    ) -> Opinion {
        let before = self.known(key);
        let (after, opinion) = self.judged(op, before, version, reply, is_value);
        self.known.insert(key, after);
        opinion
    }

    fn judged(
        &self,
        op: Op,
        before: Known,
        version: u32,
        reply: &Reply<'_>,
        is_value: impl Fn(u32, &[u8]) -> bool,
    ) -> (Known, Opinion) {
        use Opinion::{Lost, Right};
        let wrong = Opinion::Wrong(before);
        let sent = Known::Version(version);
        match (op, reply, before) {
            (_, _, Known::Adrift) => (before, Right),
            (_, Reply::Refused(_), _) => (Known::Unknown, Right),
            (Op::Set, Reply::Stored, _) | (Op::Cas, Reply::Stored, Known::Version(_) | Known::Unknown) => {
                (sent, Right)
            }
            (Op::Add, Reply::Stored, Known::Absent | Known::Unknown) => (sent, Right),
            // It was evicted or has expired; a client cannot distinguish these.
            (Op::Add, Reply::Stored, _) => (sent, Lost),
            (Op::Add, Reply::NotStored, Known::Absent) => (Known::Unknown, wrong),
            (Op::Add | Op::Cas, Reply::NotStored, _) => (before, Right),
            (Op::Get | Op::Gets, Reply::Value { bytes, .. }, Known::Version(version)) => {
                (before, if is_value(version, bytes) { Right } else { wrong })
            }
            (Op::Get | Op::Gets, Reply::Value { .. }, Known::Unknown) => (before, Right),
            (Op::Delete, Reply::Deleted, Known::Version(_) | Known::Unknown) => (Known::Absent, Right),
            (Op::Incr, Reply::Number(number), Known::Count(count)) => {
                (Known::Count(*number), if *number == count + 1 { Right } else { wrong })
            }
            (Op::Incr, Reply::Number(number), Known::Unknown) => (Known::Count(*number), Right),
            (
                Op::Get | Op::Gets | Op::Delete | Op::Incr | Op::Cas,
                Reply::Missing,
                Known::Version(_) | Known::Count(_),
            ) => (Known::Absent, if self.expires { Right } else { Lost }),
            (Op::Get | Op::Gets | Op::Delete | Op::Incr | Op::Cas, Reply::Missing, _) => {
                (Known::Absent, Right)
            }
            _ => (Known::Unknown, wrong),
        }
    }

    /// Notes a value that was stored before the load.
    pub fn record(&mut self, key: u32, known: Known) {
        self.known.insert(key, known);
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn value(bytes: &[u8]) -> Reply<'_> {
        Reply::Value { key: None, bytes: Cow::Borrowed(bytes), unique: 0 }
    }

    #[test]
    fn values_differ_between_keys_and_versions_and_are_the_same_again() {
        let pattern = Pattern::default();
        assert_eq!(pattern.value(1, 1, 100), pattern.value(1, 1, 100));
        assert_ne!(pattern.value(1, 1, 100), pattern.value(1, 2, 100));
        assert_ne!(pattern.value(1, 1, 100), pattern.value(2, 1, 100));
        assert_eq!(pattern.value(9, 9, 1 << 20).len(), 1 << 20);
    }

    #[test]
    fn an_old_value_is_wrong_and_a_lost_one_is_reported() {
        let mut model = KeyModel::new(false);
        let is_value = |version: u32, bytes: &[u8]| bytes == version.to_string().as_bytes();
        assert_eq!(model.judge(Op::Set, 5, 1, &Reply::Stored, is_value), Opinion::Right);
        assert_eq!(model.judge(Op::Set, 5, 2, &Reply::Stored, is_value), Opinion::Right);
        assert_eq!(model.judge(Op::Get, 5, 0, &value(b"2"), is_value), Opinion::Right);
        assert_eq!(model.judge(Op::Get, 5, 0, &value(b"1"), is_value), Opinion::Wrong(Known::Version(2)));
        assert_eq!(model.judge(Op::Get, 5, 0, &Reply::Missing, is_value), Opinion::Lost);
        assert_eq!(
            model.judge(Op::Get, 5, 0, &value(b"2"), is_value),
            Opinion::Wrong(Known::Absent),
            "it cannot come back"
        );
    }

    #[test]
    fn counters_count_each_request_once() {
        let mut model = KeyModel::new(false);
        model.record(1, Known::Count(0));
        assert_eq!(model.judge(Op::Incr, 1, 0, &Reply::Number(1), |_, _| false), Opinion::Right);
        assert_eq!(
            model.judge(Op::Incr, 1, 0, &Reply::Number(3), |_, _| false),
            Opinion::Wrong(Known::Count(1))
        );
    }

    #[test]
    fn what_broke_on_its_way_may_still_be_done() {
        let mut model = KeyModel::new(false);
        let is_value = |version: u32, bytes: &[u8]| bytes == version.to_string().as_bytes();
        model.judge(Op::Set, 1, 4, &Reply::Stored, is_value);
        model.give_up(1);
        assert_eq!(model.judge(Op::Set, 1, 6, &Reply::Stored, is_value), Opinion::Right);
        assert_eq!(
            model.judge(Op::Get, 1, 0, &value(b"5"), is_value),
            Opinion::Right,
            "the one that broke, late"
        );
        assert_eq!(model.adrift(), 1);
    }

    #[test]
    fn a_refusal_leaves_nothing_known() {
        let mut model = KeyModel::new(false);
        model.judge(Op::Set, 1, 4, &Reply::Stored, |_, _| false);
        model.judge(Op::Set, 1, 5, &Reply::Refused(Cow::Borrowed(b"busy")), |_, _| false);
        assert_eq!(model.known(1), Known::Unknown);
        assert_eq!(model.judge(Op::Get, 1, 0, &Reply::Missing, |_, _| false), Opinion::Right);
    }
}
