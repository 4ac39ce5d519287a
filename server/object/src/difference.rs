//! The differences between two packed objects of one class, member by member: the core of an evidence record.

use crate::class::Class;
use crate::package::Package;
use wire::{Malformed, Reader};

/// A member that two replicas hold differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDifference {
    /// Name of the member.
    pub member: &'static str,
    /// Its packed length on the left, in bytes.
    pub left_length: usize,
    /// Its packed length on the right, in bytes.
    pub right_length: usize,
    /// How many bits differ in the bytes that both sides have.
    pub bits: u32,
    /// The first bit that differs, counted from the lowest bit of the member's first packed byte; `None` if the one
    /// side only continues the other.
    pub first_bit: Option<u64>,
    /// The last bit that differs, likewise.
    pub last_bit: Option<u64>,
    /// Exclusive or of the eight bytes from the first that differs, as a little-endian number: the bit pattern.
    pub pattern: u64,
}

/// A packed object taken apart, in the order in which the class declares its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members<'a> {
    /// Name of the class, without its path.
    pub class: &'static str,
    /// Name and packed bytes of each member.
    pub members: Vec<(&'static str, &'a [u8])>,
}

impl<'a> Members<'a> {
    /// A member that is a string of bytes; `None` if the class has none of that name, or its packed bytes are not one.
    pub fn byte_string(&self, name: &str) -> Option<&'a [u8]> {
        let mut from = Reader::new(self.get(name)?);
        let length = from.length32().ok()?;
        let bytes = from.take(length).ok()?;
        from.end().ok().map(|()| bytes)
    }

    /// The packed bytes of a member; `None` if the class has none of that name.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.members.iter().find(|(member, _)| *member == name).map(|(_, bytes)| *bytes)
    }
}

/// Takes a packed object apart. `classes` shows the classes that it can be of.
pub(crate) fn members<'a>(
    classes: impl FnOnce(&mut dyn FnMut(&'static Class) -> bool),
    packed: &'a [u8],
) -> Result<Members<'a>, Malformed> {
    let package = Package::parse(packed)?;
    let class = lookup(classes, package.class).ok_or(Malformed("a class that this region does not have"))?;
    let mut from = Reader::new(package.body);
    let mut members = Vec::with_capacity(class.members.len());
    for member in class.members {
        let length = from.length32()?;
        members.push((*member, from.take(length)?));
    }
    from.end()?;
    Ok(Members { class: class.short_name(), members })
}

/// Compares two packed objects. `classes` shows the classes that they can be of.
pub(crate) fn between(
    classes: impl FnOnce(&mut dyn FnMut(&'static Class) -> bool),
    left: &[u8],
    right: &[u8],
) -> Result<Vec<MemberDifference>, Malformed> {
    let (left, right) = (Package::parse(left)?, Package::parse(right)?);
    if left.class != right.class {
        return Err(Malformed("another class or version than the one it is compared with"));
    }
    let class = lookup(classes, left.class).ok_or(Malformed("a class that this region does not have"))?;
    let (mut left, mut right) = (Reader::new(left.body), Reader::new(right.body));
    let mut differences = Vec::new();
    for member in class.members {
        let (left_length, right_length) = (left.length32()?, right.length32()?);
        let (left, right) = (left.take(left_length)?, right.take(right_length)?);
        if left != right {
            differences.push(compare(member, left, right));
        }
    }
    left.end()?;
    right.end()?;
    Ok(differences)
}

fn lookup(classes: impl FnOnce(&mut dyn FnMut(&'static Class) -> bool), tag: u32) -> Option<&'static Class> {
    let mut seen: Vec<u32> = Vec::new();
    let mut found = None;
    classes(&mut |class| {
        // A class may hold itself in a store.
        let new = !seen.contains(&class.tag);
        seen.push(class.tag);
        found = found.or_else(|| class.of_tag(tag));
        new
    });
    found
}

fn compare(member: &'static str, left: &[u8], right: &[u8]) -> MemberDifference {
    let xor = || left.iter().zip(right).map(|(left, right)| left ^ right);
    let first = xor().position(|byte| byte != 0);
    let last = xor().enumerate().rfind(|(_, byte)| *byte != 0);
    let mut pattern = [0; 8];
    if let Some(first) = first {
        xor().skip(first).zip(&mut pattern).for_each(|(byte, to)| *to = byte);
    }
    let pattern = u64::from_le_bytes(pattern);
    MemberDifference {
        member,
        left_length: left.len(),
        right_length: right.len(),
        bits: xor().map(u8::count_ones).sum(),
        first_bit: first.map(|byte| byte as u64 * 8 + u64::from(pattern.trailing_zeros())),
        last_bit: last.map(|(byte, xor)| byte as u64 * 8 + u64::from(xor.ilog2())),
        pattern,
    }
}
