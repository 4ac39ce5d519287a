//! Where replicas are whose machines were replaced: a part of the order's state, so that a replica which lost its
//! memory gets it with the state of the others.
//!
//! One replica alone may be wrong, or faulty: its wish to move a number counts once a number of them have the same
//! ([`crate::Orderer::want_move`]). Wishes are kept by origin, so that no replica displaces the wish of another one,
//! and they end: a replica that had the same wish long ago does not count.

use std::collections::BTreeMap;

use wire::{Malformed, Put, Reader};

use crate::limits;
use crate::wishes::Wishes;

/// A replica, and the address of its new machine, as the host writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The replica.
    pub replica: u8,
    /// Its address, at most [`limits::ADDRESS_BYTES`].
    pub address: String,
}

/// The replicas that have moved, and who wants which one to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moves {
    /// How many there were: the number of the last one.
    count: u32,
    /// Per replica that has moved: the number of the move, and its address since.
    moved: BTreeMap<u8, (u32, String)>,
    wishes: Wishes<Move>,
    /// Checksum of all that: nothing else shows that it has changed.
    sum: u32,
}

impl Moves {
    /// Where a replica is since it has moved, with the number of that move.
    pub fn of(&self, replica: u8) -> Option<(u32, &str)> {
        self.moved.get(&replica).map(|(number, address)| (*number, address.as_str()))
    }

    /// The replicas that have moved, each with the number of its last move and its address since.
    pub fn all(&self) -> impl Iterator<Item = (u8, u32, &str)> {
        self.moved.iter().map(|(&replica, (number, address))| (replica, *number, address.as_str()))
    }

    /// How many moves there were; those of a number that moved again count.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// What other origins, or this one, want at this time, each with its origin.
    pub fn wished(&self, now_us: u64) -> impl Iterator<Item = (u8, &Move)> {
        self.wishes.fresh(now_us)
    }

    /// Whether it is what the last change has left.
    pub fn is_intact(&self) -> bool {
        self.sum == wire::crc32c(&self.encoded())
    }

    /// An origin wants this at the ordered time `now_us`. It takes effect with the `needed`-th that wants the same.
    /// Returns whether it does.
    pub fn want(&mut self, origin: u8, wish: Move, needed: usize, now_us: u64) -> bool {
        if wish.address.len() > limits::ADDRESS_BYTES
            || [usize::from(origin), wish.replica.into()].into_iter().any(|slot| slot >= limits::SLOTS)
        {
            return false;
        }
        let is_done = self.wishes.add(origin, wish.clone(), now_us) >= needed;
        if is_done {
            let replica = wish.replica;
            self.wishes.retain(|other| other.replica != replica);
            self.count = self.count.saturating_add(1);
            self.moved.insert(replica, (self.count, wish.address));
        }
        self.sum = wire::crc32c(&self.encoded());
        is_done
    }

    /// Bytes of its encoding; none where there never was a wish.
    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Replicas from this one on are not in the group any more.
    pub(crate) fn forget_from(&mut self, size: u8) {
        self.moved.retain(|&replica, _| replica < size);
        self.wishes.retain(|wish| wish.replica < size);
        self.sum = wire::crc32c(&self.encoded());
    }

    /// Appends it; nothing where there never was a wish, as before there was such a thing.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if self.count > 0 || !self.wishes.is_empty() {
            self.encode_whole(out);
        }
    }

    /// Appends it, also where there never was a wish.
    pub(crate) fn encode_whole(&self, out: &mut Vec<u8>) {
        let Moves { count, moved, wishes, sum: _ } = self;
        out.put32(*count).put32(moved.len() as u32);
        for (&replica, (number, address)) in moved {
            out.put8(replica).put32(*number);
            put_text(out, address);
        }
        wishes.encode(out, |out, Move { replica, address }| put_text(out.put8(*replica), address));
    }

    /// Reads what [`Moves::encode`] has written.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut moves = Moves { count: reader.u32()?, ..Moves::default() };
        for _ in 0..reader.count32(limits::SLOTS, 7)? {
            let (replica, number) = (reader.u8()?, reader.u32()?);
            let is_next = moves.moved.last_key_value().is_none_or(|(&last, _)| replica > last);
            if !is_next || number == 0 || number > moves.count {
                return Err(Malformed("moves are not in order"));
            }
            moves.moved.insert(replica, (number, take_text(reader)?));
        }
        moves.wishes = Wishes::decode(reader, 3, |reader| {
            Ok(Move { replica: reader.u8()?, address: take_text(reader)? })
        })?;
        if moves.count == 0 && moves.wishes.is_empty() && reader.is_empty() {
            return Err(Malformed("moves that are left out are not written"));
        }
        moves.sum = wire::crc32c(&moves.encoded());
        Ok(moves)
    }
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.put16(text.len() as u16).put(text.as_bytes());
}

pub(crate) fn take_text<W>(reader: &mut Reader<'_, W>) -> Result<String, Malformed> {
    let length = usize::from(reader.u16()?);
    if length > limits::ADDRESS_BYTES {
        return Err(Malformed("an address is too long"));
    }
    let text = reader.take(length)?.to_vec();
    String::from_utf8(text).map_err(|_| Malformed("an address is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(replica: u8, address: &str) -> Move {
        Move { replica, address: address.into() }
    }

    #[test]
    fn a_move_takes_effect_once_enough_replicas_want_the_same_at_about_the_same_time() {
        let mut moves = Moves::default();
        let later_us = limits::WISH.as_micros() as u64;
        assert!(!moves.want(0, to(2, "a:1"), 2, 5) && !moves.want(0, to(2, "a:1"), 2, 6), "one replica");
        assert!(
            !moves.want(1, to(2, "b:1"), 2, 7) && !moves.want(1, to(1, "a:1"), 2, 8),
            "who wants another one"
        );
        assert_eq!(moves.of(2), None);
        assert!(!moves.want(1, to(2, "a:1"), 2, 6 + later_us), "that wish has ended");
        assert!(moves.want(0, to(2, "a:1"), 2, 7 + later_us));
        assert_eq!((moves.of(2), moves.wished(8).count()), (Some((1, "a:1")), 0));
        assert!(moves.want(0, to(0, "c:1"), 1, 9) && moves.want(0, to(2, "d:1"), 1, 9));
        assert_eq!(moves.all().collect::<Vec<_>>(), [(0, 2, "c:1"), (2, 3, "d:1")]);
        assert!(
            !moves.want(16, to(0, "c:1"), 1, 9) && !moves.want(0, to(16, "c:1"), 1, 9),
            "no such replica"
        );
        assert!(!moves.want(0, to(0, &"c".repeat(limits::ADDRESS_BYTES + 1)), 1, 9));
    }

    #[test]
    fn the_wish_of_one_replica_displaces_that_of_no_other() {
        let mut moves = Moves::default();
        moves.want(0, to(2, "a:1"), 2, 5);
        moves.want(1, to(2, "elsewhere:1"), 2, 6);
        assert!(moves.want(3, to(2, "a:1"), 2, 7));
        assert_eq!(moves.wished(7).count(), 0, "those for the same replica are over");
    }

    #[test]
    fn moves_survive_their_bytes_and_no_bit_changes_unnoticed() {
        let mut moves = Moves::default();
        assert!(moves.is_intact() && moves.encoded().is_empty());
        moves.want(0, to(2, "a:1"), 1, 5);
        moves.want(1, to(0, "b:1"), 2, 6);
        let bytes = moves.encoded();
        assert_eq!(Moves::decode(&mut Reader::new(&bytes)), Ok(moves.clone()));
        for len in 0..bytes.len() {
            assert!(Moves::decode(&mut Reader::new(&bytes[..len])).is_err());
        }
        moves.moved.insert(2, (1, "c:1".into()));
        assert!(!moves.is_intact());
    }
}
