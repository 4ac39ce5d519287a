//! How many replicas the group has, once that has changed: a part of the order's state, so that a replica that
//! restarts, or takes the state of the others, counts the same votes.
//!
//! A change has two steps, and each takes a number of replicas with the same wish ([`crate::Orderer::want_size`]). It
//! *begins*: those that are added are known from then on, take the state and follow the log, but have no vote. It
//! *ends* with the new size, from the next batch on, or is given up. Wishes are kept by origin, as those of
//! [`crate::Moves`], and end with time.

use std::collections::BTreeMap;

use wire::{Malformed, Put, Reader};

use crate::limits;
use crate::moves::{put_text, take_text};
use crate::wishes::Wishes;

/// What a replica wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SizeWish {
    /// The group is to have so many replicas, two more or two fewer. Those that are added are at these addresses.
    Begin {
        /// The number.
        size: u8,
        /// The addresses, at most [`limits::ADDRESS_BYTES`] each; none for fewer.
        addresses: Vec<String>,
    },
    /// The change with this number ends, with the size that it is to bring.
    End {
        /// The number.
        change: u32,
    },
    /// The change with this number is given up.
    GiveUp {
        /// The number.
        change: u32,
    },
}

impl SizeWish {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            SizeWish::Begin { size, addresses } => put_begin(out.put8(1), *size, addresses),
            SizeWish::End { change } => _ = out.put8(2).put32(*change),
            SizeWish::GiveUp { change } => _ = out.put8(3).put32(*change),
        }
    }

    /// Reads the output of [`SizeWish::encode`].
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are none.
    pub fn decode<W>(reader: &mut Reader<'_, W>) -> Result<Self, Malformed> {
        match reader.u8()? {
            1 => take_begin(reader).map(|(size, addresses)| SizeWish::Begin { size, addresses }),
            2 => Ok(SizeWish::End { change: reader.u32()? }),
            3 => Ok(SizeWish::GiveUp { change: reader.u32()? }),
            _ => Err(Malformed("an unknown wish for a size")),
        }
    }
}

/// A change that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeChange {
    /// Its number.
    pub number: u32,
    /// The size that it is to bring.
    pub size: u8,
    /// The addresses of the replicas that are added; none for fewer.
    pub addresses: Vec<String>,
    /// The host's number of the batch in which it began.
    pub begun_at: u64,
}

/// The present size, a change of it, and who wants which one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupSizes {
    /// How often a change has begun, ended, or was given up.
    count: u32,
    /// The size; 0 before the first change began: then it is that of the configurations.
    size: u8,
    /// The size before the last change that ended, and the host's number of the last batch with it; 0 before that.
    before: (u8, u64),
    /// The addresses of replicas that were added.
    added: BTreeMap<u8, String>,
    change: Option<SizeChange>,
    wishes: Wishes<SizeWish>,
    /// Checksum of all that.
    sum: u32,
}

/// A delivered wish: who has it, when in ordered time, and where in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WishedAt {
    /// The replica.
    pub origin: u8,
    /// The ordered time.
    pub now_us: u64,
    /// The host's number of the batch.
    pub batch: u64,
}

impl GroupSizes {
    /// How often a change has begun, ended, or was given up: of two replicas, the one with the greater number knows
    /// more.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The replicas that vote, where the configurations have so many.
    pub fn voting(&self, configured: u8) -> u8 {
        if self.size == 0 { configured } else { self.size }
    }

    /// The replicas that are in the group, those that a change adds included.
    pub fn known(&self, configured: u8) -> u8 {
        let to_come = self.change.as_ref().map_or(0, |change| change.size);
        self.voting(configured).max(to_come)
    }

    /// The size before the last change, and the last batch with it, if there was a change.
    pub fn before(&self) -> Option<(u8, u64)> {
        (self.before.0 > 0).then_some(self.before)
    }

    /// The change that has begun.
    pub fn change(&self) -> Option<&SizeChange> {
        self.change.as_ref()
    }

    /// Whether all other members than those that are known were let go: no change has begun that has not ended.
    pub fn excludes_others(&self) -> bool {
        self.count > 0 && self.change.is_none()
    }

    /// Where a replica is that was added, or is being added.
    pub fn address_of(&self, replica: u8) -> Option<&str> {
        let coming = self.change.as_ref().and_then(|change| {
            change.addresses.get(usize::from(replica.checked_sub(self.size)?)).map(String::as_str)
        });
        coming.or_else(|| self.added.get(&replica).map(String::as_str))
    }

    /// What other origins, or this one, want at this time, each with its origin.
    pub fn wished(&self, now_us: u64) -> impl Iterator<Item = (u8, &SizeWish)> {
        self.wishes.fresh(now_us)
    }

    /// Whether it is what the last wish has left.
    pub fn is_intact(&self) -> bool {
        self.sum == wire::crc32c(&self.encoded())
    }

    /// Whether this wish can take effect now, in a group whose configurations have so many replicas.
    pub fn can_have(&self, wish: &SizeWish, configured: u8) -> bool {
        match wish {
            SizeWish::Begin { size, addresses } => {
                let now = self.voting(configured);
                let added = if *size == now + 2 { 2 } else { 0 };
                let is_step = *size == now + 2 || *size + 2 == now;
                let are_fit = addresses.iter().all(|address| address.len() <= limits::ADDRESS_BYTES);
                let is_odd = (limits::LEAST_REPLICAS..=limits::MOST_REPLICAS).contains(size) && size % 2 == 1;
                self.change.is_none() && is_step && is_odd && addresses.len() == added && are_fit
            }
            SizeWish::End { change } | SizeWish::GiveUp { change } => {
                self.change.as_ref().is_some_and(|begun| begun.number == *change)
            }
        }
    }

    /// An origin wants this. It takes effect with the `needed`-th that wants the same. Returns whether it does.
    pub fn want(&mut self, at: WishedAt, wish: SizeWish, needed: usize, configured: u8) -> bool {
        let WishedAt { origin, now_us, batch } = at;
        if usize::from(origin) >= limits::SLOTS || !self.can_have(&wish, configured) {
            return false;
        }
        let is_done = self.wishes.add(origin, wish.clone(), now_us) >= needed;
        if is_done {
            self.wishes = Wishes::default();
            self.count = self.count.saturating_add(1);
            self.size = self.voting(configured);
            match wish {
                SizeWish::Begin { size, addresses } => {
                    self.change = Some(SizeChange { number: self.count, size, addresses, begun_at: batch });
                }
                SizeWish::End { .. } => self.end(batch),
                SizeWish::GiveUp { .. } => self.change = None,
            }
        }
        self.sum = wire::crc32c(&self.encoded());
        is_done
    }

    fn end(&mut self, batch: u64) {
        let Some(SizeChange { size, addresses, .. }) = self.change.take() else { return };
        self.before = (self.size, batch);
        self.added.extend((self.size..).zip(addresses));
        self.added.retain(|&replica, _| replica < size);
        self.size = size;
    }

    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Appends it; nothing where there never was a wish, as before there was such a thing.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if self.count > 0 || !self.wishes.is_empty() {
            self.encode_whole(out);
        }
    }

    /// Appends it, also where there never was a wish.
    pub(crate) fn encode_whole(&self, out: &mut Vec<u8>) {
        let GroupSizes { count, size, before, added, change, wishes, sum: _ } = self;
        out.put32(*count).put8(*size).put8(before.0).put64(before.1).put32(added.len() as u32);
        for (&replica, address) in added {
            out.put8(replica);
            put_text(out, address);
        }
        out.put8(change.is_some().into());
        if let Some(SizeChange { number, size, addresses, begun_at }) = change {
            out.put32(*number).put64(*begun_at);
            put_begin(out, *size, addresses);
        }
        wishes.encode(out, |out, wish| wish.encode(out));
    }

    /// Reads what [`GroupSizes::encode`] has written.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (count, size, before) = (reader.u32()?, reader.u8()?, (reader.u8()?, reader.u64()?));
        let mut sizes = GroupSizes { count, size, before, ..GroupSizes::default() };
        for _ in 0..reader.count32(limits::SLOTS, 3)? {
            let replica = reader.u8()?;
            if sizes.added.last_key_value().is_some_and(|(&last, _)| replica <= last) || replica >= size {
                return Err(Malformed("added replicas are not in order"));
            }
            sizes.added.insert(replica, take_text(reader)?);
        }
        if reader.flag()? {
            let (number, begun_at) = (reader.u32()?, reader.u64()?);
            let (size, addresses) = take_begin(reader)?;
            sizes.change = Some(SizeChange { number, size, addresses, begun_at });
        }
        sizes.wishes = Wishes::decode(reader, 3, SizeWish::decode)?;
        let fits = |size: u8| (limits::LEAST_REPLICAS..=limits::MOST_REPLICAS).contains(&size);
        let is_begun = count == 0 || fits(size);
        let is_left_out = count == 0 && sizes.wishes.is_empty() && reader.is_empty();
        if !is_begun || is_left_out || (count == 0 && sizes.change.is_some()) {
            return Err(Malformed("an impossible size"));
        }
        sizes.sum = wire::crc32c(&sizes.encoded());
        Ok(sizes)
    }
}

fn put_begin(out: &mut Vec<u8>, size: u8, addresses: &[String]) {
    out.put8(size).put8(addresses.len() as u8);
    addresses.iter().for_each(|address| put_text(out, address));
}

fn take_begin<W>(reader: &mut Reader<'_, W>) -> Result<(u8, Vec<String>), Malformed> {
    let (size, count) = (reader.u8()?, reader.u8()?);
    if usize::from(count) > limits::SLOTS {
        return Err(Malformed("too many addresses"));
    }
    let addresses: Result<_, _> = (0..count).map(|_| take_text(reader)).collect();
    Ok((size, addresses?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(origin: u8, now_us: u64, batch: u64) -> WishedAt {
        WishedAt { origin, now_us, batch }
    }

    fn grow() -> SizeWish {
        SizeWish::Begin { size: 5, addresses: vec!["d:1".into(), "e:1".into()] }
    }

    fn shrink(size: u8) -> SizeWish {
        SizeWish::Begin { size, addresses: Vec::new() }
    }

    /// The shortest wish is that for fewer replicas.
    #[test]
    fn wishes_that_wait_are_read_again() {
        for wish in [grow(), shrink(3)] {
            let configured = if wish == shrink(3) { 5 } else { 3 };
            let mut sizes = GroupSizes::default();
            assert!(!sizes.want(at(1, 7, 10), wish, 2, configured));
            assert_eq!(GroupSizes::decode(&mut Reader::new(&sizes.encoded())), Ok(sizes));
        }
    }

    #[test]
    fn a_group_grows_in_two_steps_of_two_replicas_each() {
        let mut sizes = GroupSizes::default();
        assert!(!sizes.want(at(0, 1, 10), grow(), 2, 3) && !sizes.want(at(0, 2, 11), grow(), 2, 3));
        assert_eq!((sizes.known(3), sizes.change()), (3, None), "one replica alone");
        assert!(sizes.want(at(1, 3, 12), grow(), 2, 3));
        assert_eq!((sizes.voting(3), sizes.known(3), sizes.count()), (3, 5, 1));
        assert_eq!((sizes.voting(5), sizes.address_of(4)), (3, Some("e:1")), "whatever a file says");
        let end = SizeWish::End { change: 1 };
        assert!(!sizes.want(at(2, 4, 20), end.clone(), 2, 3));
        assert!(!sizes.want(at(2, 4, 20), SizeWish::End { change: 2 }, 1, 3), "another change");
        assert!(sizes.want(at(0, 5, 21), end.clone(), 2, 3));
        assert_eq!((sizes.voting(3), sizes.known(3), sizes.before()), (5, 5, Some((3, 21))));
        assert_eq!((sizes.address_of(3), sizes.address_of(2)), (Some("d:1"), None));
        assert!(!sizes.want(at(1, 6, 22), end, 1, 3), "it has ended");
    }

    #[test]
    fn a_group_shrinks_and_forgets_those_that_it_has_let_go() {
        let mut sizes = GroupSizes::default();
        assert!(sizes.want(at(0, 1, 1), grow(), 1, 3));
        assert!(sizes.want(at(0, 2, 2), SizeWish::End { change: 1 }, 1, 3));
        assert!(sizes.want(at(0, 3, 3), shrink(3), 1, 3));
        assert_eq!((sizes.voting(3), sizes.known(3), sizes.excludes_others()), (5, 5, false));
        assert!(sizes.want(at(0, 4, 9), SizeWish::End { change: 3 }, 1, 3));
        assert_eq!((sizes.voting(5), sizes.known(5), sizes.before()), (3, 3, Some((5, 9))));
        assert!(sizes.excludes_others() && sizes.address_of(3).is_none());
    }

    #[test]
    fn a_change_that_is_given_up_leaves_the_size_as_it_was() {
        let mut sizes = GroupSizes::default();
        assert!(sizes.want(at(0, 1, 1), grow(), 1, 3));
        assert!(!sizes.want(at(0, 1, 1), grow(), 1, 3), "one change at a time");
        assert!(sizes.want(at(0, 2, 2), SizeWish::GiveUp { change: 1 }, 1, 3));
        assert_eq!((sizes.voting(3), sizes.known(3), sizes.before(), sizes.count()), (3, 3, None, 2));
        assert!(sizes.want(at(0, 3, 3), grow(), 1, 3));
        assert!(!sizes.want(at(0, 4, 4), SizeWish::End { change: 1 }, 1, 3), "of the change before");
    }

    #[test]
    fn what_is_no_step_of_two_has_no_effect() {
        let addresses = |count: usize| (0..count).map(|number| format!("h:{number}")).collect::<Vec<_>>();
        for (now, size, added) in
            [(3, 3, 0), (3, 1, 0), (3, 4, 1), (3, 7, 4), (7, 9, 2), (3, 5, 1), (5, 3, 2)]
        {
            let wish = SizeWish::Begin { size, addresses: addresses(added) };
            assert!(!GroupSizes::default().want(at(0, 1, 1), wish, 1, now), "{now} to {size}");
        }
        let long = vec!["a".repeat(limits::ADDRESS_BYTES + 1), "b".into()];
        assert!(!GroupSizes::default().can_have(&SizeWish::Begin { size: 5, addresses: long }, 3));
        assert!(!GroupSizes::default().want(at(16, 1, 1), grow(), 1, 3), "no such replica");
        let mut late = GroupSizes::default();
        late.want(at(0, 1, 1), grow(), 2, 3);
        assert!(
            !late.want(at(1, 1 + limits::WISH.as_micros() as u64, 1), grow(), 2, 3),
            "the wish has ended"
        );
    }

    #[test]
    fn sizes_survive_their_bytes_and_no_change_goes_unnoticed() {
        let mut sizes = GroupSizes::default();
        assert!(sizes.is_intact() && sizes.encoded().is_empty());
        let check = |sizes: &GroupSizes| {
            let bytes = sizes.encoded();
            assert_eq!(GroupSizes::decode(&mut Reader::new(&bytes)), Ok(sizes.clone()));
            for len in 0..bytes.len() {
                assert!(GroupSizes::decode(&mut Reader::new(&bytes[..len])).is_err(), "{len}");
            }
        };
        sizes.want(at(0, 1, 1), grow(), 2, 3);
        check(&sizes);
        sizes.want(at(1, 2, 2), grow(), 2, 3);
        check(&sizes);
        sizes.want(at(1, 3, 3), SizeWish::End { change: 1 }, 2, 3);
        sizes.want(at(0, 3, 3), SizeWish::GiveUp { change: 1 }, 2, 3);
        check(&sizes);
        sizes.want(at(0, 4, 4), SizeWish::End { change: 1 }, 2, 3);
        check(&sizes);
        sizes.size = 3;
        assert!(!sizes.is_intact());
    }
}
