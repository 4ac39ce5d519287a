//! Tests for an author's own [`Summed`] types: the rules for a hand-written implementation, checked on examples.

use crate::checksum::Summer;
use crate::id::ObjectId;
use crate::summed::Summed;
use std::fmt::Debug;
use wire::Reader;

/// Checks the law of [`Summed`] on `values`, which should be few and differ in every part of the type:
///
/// - two values are equal exactly if they pack to the same bytes, and exactly if they have the same checksum;
/// - packed bytes unpack to an equal value, also with other bytes behind them, and no shorter bytes unpack;
/// - `behaviour` of the unpacked value is that of the original. It uses the value as handlers do and returns, in order,
///   everything that they could see, such as all elements in the order of `pop`. A replica that was repaired has the
///   unpacked value, and is wrong in every request from then on if it behaves otherwise.
///
/// ```
/// use object::testing::check_summed;
/// use std::collections::VecDeque;
/// check_summed(vec![VecDeque::new(), VecDeque::from([1u8, 2]), VecDeque::from([2, 1])], |mut queue| {
///     std::iter::from_fn(move || queue.pop_front()).collect::<Vec<_>>()
/// });
/// ```
///
/// # Panics
/// With the first value that breaks the law, and the reason.
pub fn check_summed<T, O>(values: Vec<T>, behaviour: impl Fn(T) -> O)
where
    T: Summed + PartialEq + Debug,
    O: PartialEq + Debug,
{
    check_round_trip(&T::blank());
    values.iter().for_each(check_round_trip);
    for (number, one) in values.iter().enumerate() {
        values[..=number].iter().for_each(|other| check_pair(one, other));
    }
    for value in values {
        let (text, copy) = (format!("{value:?}"), unpacked(&value));
        let (before, after) = (behaviour(value), behaviour(copy));
        assert!(
            before == after,
            "{text} behaves otherwise once it was packed and unpacked: {before:?}, then {after:?}"
        );
    }
}

fn check_pair<T: Summed + PartialEq + Debug>(one: &T, other: &T) {
    let (equal, packs_alike, sums_alike) = (one == other, bytes(one) == bytes(other), sum(one) == sum(other));
    assert!(
        equal == packs_alike,
        "{one:?} and {other:?}: equal is {equal}, equal packed bytes is {packs_alike}"
    );
    assert!(equal == sums_alike, "{one:?} and {other:?}: equal is {equal}, equal checksums is {sums_alike}");
}

fn check_round_trip<T: Summed + PartialEq + Debug>(value: &T) {
    let packed = bytes(value);
    let copy = unpacked(value);
    assert!(copy == *value, "{value:?} unpacks to {copy:?}");
    assert!(bytes(&copy) == packed, "{value:?} packs to other bytes once it was packed and unpacked");
    assert!(sum(&copy) == sum(value), "{value:?} has another checksum once it was packed and unpacked");
    assert!(value.is_intact(), "{value:?} is not intact, although nothing has damaged it");
    for length in 0..packed.len() {
        let shorter = T::unpack(&mut Reader::new(&packed[..length]));
        assert!(shorter.is_err(), "the first {length} of {} bytes of {value:?} unpack", packed.len());
    }
}

fn unpacked<T: Summed + Debug>(value: &T) -> T {
    let mut packed = bytes(value);
    let length = packed.len();
    packed.extend_from_slice(&[0xA5; 9]);
    let mut reader = Reader::new(&packed);
    let copy = T::unpack(&mut reader).unwrap_or_else(|error| panic!("{value:?} does not unpack: {error}"));
    let used = packed.len() - reader.remaining();
    assert!(used == length, "{value:?} packs to {length} bytes and unpacks from {used}");
    copy
}

fn bytes<T: Summed>(value: &T) -> Vec<u8> {
    crate::summed::to_bytes(value)
}

fn sum<T: Summed>(value: &T) -> u64 {
    let mut summer = Summer::new(0, ObjectId::NONE);
    value.sum(&mut summer);
    summer.finish()
}
