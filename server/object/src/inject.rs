//! Damages objects in memory as a fault would: never compiled into a release `serve`.
//!
//! Checksums stay as they are, except where the fault is one that they do not show. The damage is done through shared
//! code of the members' types, so a fault that no safe value can hold (a `bool` of 3, a length beyond an allocation) is
//! outside of its reach; such faults crash, which the fault model covers.

use crate::any::{AnyObject, AnyStore, Population};
use crate::id::ObjectId;
use crate::member::ChildMut;
use crate::package;
use crate::pieces::Pieces;
use crate::request::Taken;
use crate::summed::Summed;
use wire::{Reader, SplitMix64};

/// A fault to inject into one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// Flips one bit of a member: a chosen one, or chosen by `seed`.
    Flip {
        /// Number of the tracked member.
        member: Option<usize>,
        /// Bit of its packed bytes.
        bit: Option<u64>,
        /// Decides what is not chosen.
        seed: u64,
    },
    /// Flips several bits of one member, chosen by `seed`.
    Bits {
        /// How many.
        count: u32,
        /// Decides which.
        seed: u64,
    },
    /// Changes one byte of a member to another, chosen by `seed`.
    Byte {
        /// Decides which, and to what.
        seed: u64,
    },
    /// Makes a member of variable length one element shorter or longer.
    Length {
        /// Decides which, and whether shorter or longer.
        seed: u64,
    },
    /// The object is removed from its store.
    Lose,
    /// The object is in its store twice.
    Double,
    /// Flips one bit of the checksum in its header.
    Sum {
        /// Which, modulo 64.
        bit: u32,
    },
    /// Flips one bit of the version in its header, where its class has several.
    Version {
        /// Which, modulo 16.
        bit: u32,
    },
    /// Flips one bit of the id in its header.
    Id {
        /// Which, modulo 64.
        bit: u32,
    },
    /// Flips one bit of a member, chosen by `seed`, and seals the object with it.
    Reseal {
        /// Decides which.
        seed: u64,
    },
}

/// The injected fault, for the record that detection is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// Path of the object's type.
    pub class: &'static str,
    /// The member that was damaged, if one was.
    pub member: Option<&'static str>,
    /// The (first) bit that was damaged, if known.
    pub bit: Option<u64>,
}

/// Damage to one member.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    /// Flip the bit with this number, counted over the member's packed bytes.
    Flip(u64),
    /// Remove the last element, or double it.
    Length {
        /// One element more instead of one less.
        longer: bool,
    },
}

/// Attempts to find a bit whose flip the member's type can hold.
const ATTEMPTS: u64 = 64;

pub(crate) fn inject(root: &mut dyn AnyObject, id: ObjectId, injection: &Injection) -> Option<Injected> {
    let _taken = Taken::new();
    let found = package::find(root, id)?;
    let class = found.object.class().of_version(found.object.version());
    let whole = |bit| Some(Injected { class: class.name, member: None, bit });
    let lengths = member_lengths(found.object);
    match *injection {
        Injection::Lose | Injection::Double => {
            let lose = *injection == Injection::Lose;
            with_slot(root, id, &mut |store, slot| {
                if lose {
                    store.discard(slot);
                    true
                } else {
                    store.duplicate(slot)
                }
            })
            .then(|| whole(None))?
        }
        Injection::Sum { bit } => {
            let bit = bit % 64;
            package::with_object(root, id, &mut |object| {
                let sum = object.header().sum() ^ (1 << bit);
                object.header_mut().seal(sum);
            });
            whole(Some(u64::from(bit)))
        }
        Injection::Version { bit } => {
            let (bit, mut is_done) = (bit % 16, false);
            package::with_object(root, id, &mut |object| {
                is_done = object.damage_version(object.version() ^ (1 << bit));
            });
            is_done.then(|| whole(Some(u64::from(bit))))?
        }
        Injection::Id { bit } => {
            let bit = bit % 64;
            package::with_object(root, id, &mut |object| {
                let id = ObjectId::from_bits(object.header().id().to_bits() ^ (1 << bit));
                object.header_mut().rename(id);
            });
            whole(Some(u64::from(bit)))
        }
        Injection::Flip { .. }
        | Injection::Bits { .. }
        | Injection::Byte { .. }
        | Injection::Reseal { .. }
        | Injection::Length { .. } => {
            let mut hit = None;
            package::with_object(root, id, &mut |object| {
                hit = damage(object, injection, &lengths);
                if matches!(injection, Injection::Reseal { .. }) {
                    let sum = object.recompute();
                    object.header_mut().seal(sum);
                }
            });
            let (member, bit) = hit?;
            Some(Injected { class: class.name, member: class.members.get(member).copied(), bit })
        }
    }
}

/// Damages a member; returns which, and the first bit.
fn damage(
    object: &mut dyn AnyObject,
    injection: &Injection,
    lengths: &[usize],
) -> Option<(usize, Option<u64>)> {
    let (seed, count) = match *injection {
        Injection::Flip { seed, .. } => (seed, 1),
        Injection::Bits { seed, count } => (seed, count),
        Injection::Byte { seed } | Injection::Length { seed } | Injection::Reseal { seed } => (seed, 1),
        _ => return None,
    };
    let mut random = SplitMix64::new(seed);
    for _ in 0..ATTEMPTS {
        let (mut member, mut bit) = random_bit(&mut random, lengths)?;
        if let Injection::Flip { member: Some(chosen), .. } = *injection {
            member = chosen;
        }
        match *injection {
            Injection::Flip { bit: Some(chosen), .. } => bit = chosen,
            Injection::Flip { member: Some(chosen), .. } => {
                bit = below(&mut random, *lengths.get(chosen)? as u64 * 8)?;
            }
            _ => {}
        }
        let done = match *injection {
            Injection::Length { .. } => {
                object.damage(member, Damage::Length { longer: random.next_u64() & 1 == 0 })
            }
            Injection::Byte { .. } => flip_byte(object, member, bit, &mut random),
            _ => {
                // A chosen member may be one that is not packed, because it came behind the object's version.
                let bits = lengths.get(member).map_or(0, |length| *length as u64 * 8);
                flip_bits(object, member, bit, count, bits, &mut random)
            }
        };
        if done {
            return Some((member, (!matches!(injection, Injection::Length { .. })).then_some(bit)));
        }
    }
    None
}

/// Flips `bit` and `count - 1` further, different bits.
fn flip_bits(
    object: &mut dyn AnyObject,
    member: usize,
    bit: u64,
    count: u32,
    bits: u64,
    random: &mut SplitMix64,
) -> bool {
    let mut flipped = vec![bit];
    let mut done = object.damage(member, Damage::Flip(bit));
    for _ in 0..ATTEMPTS {
        if flipped.len() >= count as usize {
            break;
        }
        if let Some(next) = below(random, bits)
            && !flipped.contains(&next)
            && object.damage(member, Damage::Flip(next))
        {
            flipped.push(next);
            done = true;
        }
    }
    done
}

fn flip_byte(object: &mut dyn AnyObject, member: usize, bit: u64, random: &mut SplitMix64) -> bool {
    let (first, pattern) = (bit / 8 * 8, random.next_u64() as u8 | 1 << (bit % 8));
    let mut done = false;
    for offset in (0..8).filter(|offset| pattern >> offset & 1 == 1) {
        done |= object.damage(member, Damage::Flip(first + offset));
    }
    done
}

/// A bit of any member, each bit equally likely.
fn random_bit(random: &mut SplitMix64, lengths: &[usize]) -> Option<(usize, u64)> {
    let mut bit = below(random, lengths.iter().sum::<usize>() as u64 * 8)?;
    for (member, length) in lengths.iter().enumerate() {
        match bit.checked_sub(*length as u64 * 8) {
            Some(rest) => bit = rest,
            None => return Some((member, bit)),
        }
    }
    None
}

/// Packed length of each tracked member, in bytes.
fn member_lengths(object: &dyn AnyObject) -> Vec<usize> {
    let mut body = Vec::new();
    object.pack_body(&mut body);
    let mut from = Reader::new(&body);
    let mut lengths = Vec::new();
    while let Ok(length) = from.length32() {
        if from.take(length).is_err() {
            break;
        }
        lengths.push(length);
    }
    lengths
}

/// Finds the store and slot of an object.
fn with_slot(
    object: &mut dyn AnyObject,
    id: ObjectId,
    work: &mut dyn FnMut(&mut dyn AnyStore, u32) -> bool,
) -> bool {
    let mut done = false;
    object.children_mut(&mut |_, child| match child {
        _ if done => {}
        ChildMut::Object(object) => done = with_slot(object, id, work),
        ChildMut::Store(store) => match store.find(id) {
            Some(slot) => done = work(store, slot),
            None if store.nested() => {
                for slot in 0..store.slots() {
                    if !done && let Some(object) = store.slot_mut(slot) {
                        done = with_slot(object, id, work);
                    }
                }
            }
            None => {}
        },
    });
    done
}

/// Damage by way of the packed form, for types that have no closer one.
pub(crate) fn damage_packed<T: Summed>(value: &mut T, damage: Damage) -> bool {
    let Damage::Flip(bit) = damage else { return false };
    let mut bytes = Vec::new();
    value.pack(&mut bytes);
    let Some(byte) = bytes.get_mut((bit / 8) as usize) else { return false };
    *byte ^= 1 << (bit % 8);
    let mut from = Reader::new(&bytes);
    match T::unpack(&mut from) {
        Ok(damaged) if from.end().is_ok() => {
            *value = damaged;
            true
        }
        _ => false,
    }
}

/// Damage to one element, found by the packed lengths of those before it: the others are not touched.
pub(crate) fn damage_elements<'a, T: Summed>(
    elements: impl Iterator<Item = &'a mut T>,
    mut bit: u64,
) -> bool {
    let mut packed = Vec::new();
    for element in elements {
        packed.clear();
        element.pack(&mut packed);
        let bits = packed.len() as u64 * 8;
        if bit < bits {
            return element.damage(Damage::Flip(bit));
        }
        bit -= bits;
    }
    false
}

/// Bits of the count in front of a packed value of variable length.
const COUNT_BITS: u64 = 32;

/// Damage to a growing value: a flip in the packed count is a wrong length.
pub(crate) fn damage_vector<T: Summed>(vector: &mut Vec<T>, damage: Damage) -> bool {
    match damage {
        Damage::Flip(bit) if bit >= COUNT_BITS => damage_elements(vector.iter_mut(), bit - COUNT_BITS),
        Damage::Flip(_) | Damage::Length { longer: false } => vector.pop().is_some(),
        Damage::Length { longer: true } => {
            vector.push(T::blank());
            true
        }
    }
}

/// The same for what can be made from a vector and back.
pub(crate) fn damage_vector_like<T: Summed, V: Summed + From<Vec<T>> + Into<Vec<T>>>(
    value: &mut V,
    damage: Damage,
) -> bool {
    let mut vector: Vec<T> = std::mem::replace(value, V::blank()).into();
    let done = damage_vector(&mut vector, damage);
    *value = vector.into();
    done
}

/// Damage to the bytes or the piece sums of a large value.
pub(crate) fn damage_pieces(
    pieces: &mut Pieces,
    raw: &mut dyn FnMut(&mut Pieces) -> &mut Box<[u8]>,
    damage: Damage,
) -> bool {
    match damage {
        Damage::Flip(bit) if bit >= COUNT_BITS => {
            match raw(pieces).get_mut(((bit - COUNT_BITS) / 8) as usize) {
                Some(byte) => {
                    *byte ^= 1 << (bit % 8);
                    true
                }
                None => false,
            }
        }
        Damage::Flip(_) | Damage::Length { .. } => {
            let longer = matches!(damage, Damage::Length { longer: true });
            let mut bytes = std::mem::take(raw(pieces)).into_vec();
            if longer {
                bytes.push(0);
            } else if bytes.pop().is_none() {
                return false;
            }
            *raw(pieces) = bytes.into_boxed_slice();
            true
        }
    }
}

/// Damage to what a store should hold.
pub(crate) fn damage_population(population: &mut Population, damage: Damage) -> bool {
    match damage {
        Damage::Flip(bit) if bit < 64 => population.count ^= 1 << bit,
        Damage::Flip(bit) => population.fold ^= 1 << (bit % 64),
        Damage::Length { longer: true } => population.count += 1,
        Damage::Length { longer: false } => population.count = population.count.wrapping_sub(1),
    }
    true
}

/// A number below `bound`; `None` if there is none.
fn below(random: &mut SplitMix64, bound: u64) -> Option<u64> {
    random.next_u64().checked_rem(bound)
}
