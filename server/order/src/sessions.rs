//! The exactly-once rule: every replica drops the same batches, because the rule depends on nothing but the log.

use std::collections::BTreeMap;

use bytes::Bytes;
use wire::{Malformed, Put, Reader};

use crate::gone::GoneProcesses;
use crate::limits;
use crate::moves::Moves;
use crate::sizes::GroupSizes;

/// The state that delivery depends on besides the log itself, as of one index. State transfer sends it to a joiner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// The log index whose entry was the last to change this.
    pub index: u64,
    /// Time of the last delivered batch.
    pub time_us: u64,
    /// Per origin: its incarnation, and the number of its last batch.
    pub sessions: BTreeMap<u8, Session>,
    /// What the group acts as, and who wants that to change.
    pub acting: Acting,
    /// Settings of the host, under its numbers; only those that were set.
    pub settings: BTreeMap<u8, HostSetting>,
    /// Where the replicas are whose machines were replaced.
    pub moves: Moves,
    /// How many replicas there are, once that has changed.
    pub sizes: GroupSizes,
    /// Which processes replicas hold for gone.
    pub gone: GoneProcesses,
}

/// A setting of the host, in its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSetting {
    /// Its value.
    pub value: u8,
    /// The position that the host gives for it.
    pub set_at: u64,
}

/// What the group acts as, in the host's numbers, which only grow. One replica alone may be wrong about what all can
/// act as, so it takes a number of them to change it ([`crate::Orderer::act_as`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Acting {
    /// What it acts as; 0 before the first change.
    pub behavior: u16,
    /// What it is to act as; 0 for nothing else.
    pub wanted: u16,
    /// The origins that want that, as a set.
    pub by: u16,
}

impl Acting {
    /// A replica wants this one. It takes effect with the `needed`-th that wants the same.
    pub fn want(&mut self, origin: u8, behavior: u16, needed: u32) {
        if behavior <= self.behavior {
            return;
        }
        if behavior != self.wanted {
            (self.wanted, self.by) = (behavior, 0);
        }
        self.by |= 1 << (origin % 16);
        if self.by.count_ones() >= needed {
            *self = Acting { behavior, ..Acting::default() };
        }
    }
}

/// The progress of one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The origin's latest incarnation in the log.
    pub incarnation: u64,
    /// Number of the last batch of that incarnation which was delivered.
    pub number: u64,
}

/// The rule's decision about a committed batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Deliver it.
    Next,
    /// It was delivered before, or it is of an earlier incarnation: drop it.
    Repeated,
    /// A batch before it is missing: drop it; its origin proposes both again.
    Gap,
}

impl State {
    /// The greatest incarnation, as a member, of a replica that has had a batch delivered; 0 before the first one.
    pub fn last_incarnation(&self) -> u32 {
        self.sessions.values().map(|session| (session.incarnation >> 32) as u32).max().unwrap_or(0)
    }

    /// The number that a batch of this incarnation of the origin needs to be delivered next; `None` when the
    /// incarnation is over.
    pub fn next_number(&self, origin: u8, incarnation: u64) -> Option<u64> {
        match self.sessions.get(&origin) {
            None => Some(1),
            Some(session) if incarnation > session.incarnation => Some(1),
            Some(session) if incarnation == session.incarnation => Some(session.number + 1),
            Some(_) => None,
        }
    }

    /// The rule's decision about a batch, without applying it.
    pub fn rule(&self, origin: u8, incarnation: u64, number: u64) -> Rule {
        match self.next_number(origin, incarnation) {
            Some(next) if number == next => Rule::Next,
            Some(next) if number > next => Rule::Gap,
            _ => Rule::Repeated,
        }
    }

    /// Whether a replica can have batches of this incarnation: of the one that was let in last, if that is known, with
    /// a plausible number of starts.
    pub(crate) fn can_follow(&self, slot: u8, incarnation: u64, admitted: Option<u32>) -> bool {
        let (named, boots) = ((incarnation >> 32) as u32, incarnation as u32);
        let last = self.sessions.get(&slot).map_or(0, |session| session.incarnation);
        let last_boots = if (last >> 32) as u32 == named { last as u32 } else { 0 };
        admitted.is_none_or(|known| known == named) && boots <= last_boots.saturating_add(limits::BOOTS_STEP)
    }

    /// Applies the rule to the batch at `index`; on [`Rule::Next`] the batch counts as delivered at the returned time.
    /// None when the index does not go forward.
    pub(crate) fn admit(
        &mut self,
        index: u64,
        (origin, incarnation, number): (u8, u64, u64),
        time_us: u64,
    ) -> Option<(Rule, u64)> {
        if index <= self.index {
            return None;
        }
        self.index = index;
        let rule = self.rule(origin, incarnation, number);
        if rule == Rule::Next {
            self.sessions.insert(origin, Session { incarnation, number });
            // A new leader's clock may be behind the old one's; ordered time never is.
            self.time_us = time_us.max(self.time_us + 1);
        }
        Some((rule, self.time_us))
    }

    /// The state as bytes for a state transfer; equal states give equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(20 + self.sessions.len() * 17);
        out.put64(self.index).put64(self.time_us).put32(self.sessions.len() as u32);
        for (&origin, session) in &self.sessions {
            out.put8(origin).put64(session.incarnation).put64(session.number);
        }
        // As before there was such a number, where none was ever wanted; the same holds for the moves.
        let Acting { behavior, wanted, by } = self.acting;
        let has_gone = !self.gone.is_empty();
        let has_sizes = self.sizes != GroupSizes::default() || has_gone;
        let has_more = !self.settings.is_empty() || self.moves != Moves::default() || has_sizes;
        if self.acting != Acting::default() || has_more {
            out.put16(behavior).put16(wanted).put16(by);
        }
        if has_more {
            out.put8(self.settings.len() as u8);
            for (&number, HostSetting { value, set_at }) in &self.settings {
                out.put8(number).put8(*value).put64(*set_at);
            }
            match has_sizes {
                true => self.moves.encode_whole(&mut out),
                false => self.moves.encode(&mut out),
            }
            if has_gone {
                self.sizes.encode_whole(&mut out);
                self.gone.encode(&mut out);
            } else {
                self.sizes.encode(&mut out);
            }
        }
        out
    }

    /// Reads the output of [`State::encode`].
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not such an encoding.
    pub fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(&bytes);
        let mut state = State { index: reader.u64()?, time_us: reader.u64()?, ..State::default() };
        for _ in 0..reader.count32(limits::SLOTS, 17)? {
            let origin = reader.u8()?;
            if state.sessions.last_key_value().is_some_and(|(&last, _)| origin <= last) {
                return Err(Malformed("origins are not in order"));
            }
            let session = Session { incarnation: reader.u64()?, number: reader.u64()? };
            state.sessions.insert(origin, session);
        }
        if !reader.is_empty() {
            state.acting = Acting { behavior: reader.u16()?, wanted: reader.u16()?, by: reader.u16()? };
            if state.acting == Acting::default() && reader.is_empty() {
                return Err(Malformed("numbers that are left out are not written"));
            }
        }
        if !reader.is_empty() {
            for _ in 0..reader.u8()? {
                let number = reader.u8()?;
                if state.settings.last_key_value().is_some_and(|(&last, _)| number <= last) {
                    return Err(Malformed("settings are not in order"));
                }
                let setting = HostSetting { value: reader.u8()?, set_at: reader.u64()? };
                state.settings.insert(number, setting);
            }
            if !reader.is_empty() {
                state.moves = Moves::decode(&mut reader)?;
                if !reader.is_empty() {
                    state.sizes = GroupSizes::decode(&mut reader)?;
                }
                if !reader.is_empty() {
                    state.gone = GoneProcesses::decode(&mut reader)?;
                }
            } else if state.settings.is_empty() {
                return Err(Malformed("settings that are left out are not written"));
            }
        }
        reader.end()?;
        if state.time_us == u64::MAX || state.sessions.values().any(|session| session.number == u64::MAX) {
            return Err(Malformed("a counter is at its end"));
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gone::ReplicaProcess;
    use crate::moves::Move;
    use crate::sizes::{SizeWish, WishedAt};

    #[test]
    fn each_batch_counts_once_in_its_incarnation_and_in_order() {
        let mut state = State::default();
        let mut admit =
            |index, incarnation, number| state.admit(index, (3, incarnation, number), 0).unwrap().0;
        assert_eq!(admit(1, 5, 1), Rule::Next);
        assert_eq!(admit(2, 5, 1), Rule::Repeated);
        assert_eq!(admit(3, 5, 3), Rule::Gap);
        assert_eq!(admit(4, 5, 2), Rule::Next);
        assert_eq!(admit(5, 6, 3), Rule::Gap, "a new incarnation starts at 1");
        assert_eq!(admit(6, 6, 1), Rule::Next);
        assert_eq!(admit(7, 5, 3), Rule::Repeated, "the old incarnation is over");
    }

    #[test]
    fn what_does_not_go_forward_changes_nothing() {
        let mut state = State { index: 7, ..State::default() };
        for index in [0, 6, 7] {
            assert_eq!(state.admit(index, (3, 5, 1), 0), None);
        }
        assert_eq!(state, State { index: 7, ..State::default() });
    }

    #[test]
    fn ordered_time_grows_whatever_the_leaders_clocks_say() {
        let mut state = State::default();
        let times: Vec<u64> = [(1, 100), (2, 40), (3, 100), (4, 500)]
            .map(|(number, clock)| state.admit(number, (0, 1, number), clock).unwrap().1)
            .into();
        assert_eq!(times, [100, 101, 102, 500]);
    }

    #[test]
    fn the_state_survives_its_transfer_and_refuses_other_bytes() {
        let mut state = State::default();
        for origin in 0..3 {
            assert!(state.admit(u64::from(origin) + 1, (origin, 9, 1), 77).is_some());
        }
        let before = state.encode();
        assert_eq!(State::decode(before.clone().into()), Ok(state.clone()));
        let mut set = state.clone();
        for number in [3, 7] {
            set.settings.insert(number, HostSetting { value: 1, set_at: u64::from(number) });
            let bytes = Bytes::from(set.encode());
            assert_eq!(State::decode(bytes.clone()), Ok(set.clone()));
            (1..10).for_each(|cut| assert!(State::decode(bytes.slice(..bytes.len() - cut)).is_err()));
        }
        state.acting.want(1, 2, 2);
        let bytes = state.encode();
        assert_eq!(State::decode(bytes.clone().into()), Ok(state.clone()));
        for len in (0..bytes.len()).filter(|len| *len != before.len()) {
            assert!(State::decode(Bytes::copy_from_slice(&bytes[..len])).is_err());
        }
        assert!(State::decode([&before[..], &[0; 6]].concat().into()).is_err());
        // Moves alone, and both, and sizes with and without them.
        for acting in [Acting::default(), state.acting] {
            let mut moved = State { acting, ..state.clone() };
            moved.moves.want(1, Move { replica: 2, address: "a:1".into() }, 1, 5);
            let bytes = moved.encode();
            assert_eq!(State::decode(bytes.clone().into()), Ok(moved.clone()));
            assert!(State::decode(Bytes::copy_from_slice(&bytes[..bytes.len() - 1])).is_err());
            for with_gone in [State { acting, ..state.clone() }, moved.clone()] {
                let mut gone = State { settings: set.settings.clone(), ..with_gone };
                gone.gone.want(1, ReplicaProcess { replica: 2, incarnation: 7 }, 2, 5);
                let bytes = gone.encode();
                assert_eq!(State::decode(bytes.clone().into()), Ok(gone));
                assert!(State::decode(Bytes::copy_from_slice(&bytes[..bytes.len() - 1])).is_err());
            }
            for mut sized in [State { acting, ..state.clone() }, moved] {
                let at = WishedAt { origin: 1, now_us: 5, batch: 3 };
                sized.sizes.want(at, SizeWish::Begin { size: 3, addresses: vec![] }, 1, 5);
                let bytes = sized.encode();
                assert_eq!(State::decode(bytes.clone().into()), Ok(sized));
                assert!(State::decode(Bytes::copy_from_slice(&bytes[..bytes.len() - 1])).is_err());
            }
        }
    }

    #[test]
    fn a_behavior_takes_effect_once_enough_replicas_want_the_same_later_one() {
        let mut acting = Acting::default();
        let mut want = |origin, behavior| {
            acting.want(origin, behavior, 2);
            acting.behavior
        };
        assert_eq!([want(0, 2), want(0, 2)], [0, 0], "one replica");
        assert_eq!([want(1, 77), want(0, 2)], [0, 0], "who wants another one");
        assert_eq!(want(2, 2), 2);
        assert_eq!([want(0, 1), want(1, 1), want(1, 2)], [2, 2, 2], "it does not go back");
        assert_eq!([want(1, 4), want(2, 4)], [2, 4]);
    }
}
