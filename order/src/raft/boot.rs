//! How a replica without a log gets into a group: founding it once, joining it ever after.
//!
//! A replica that lost its log must not found a group while another group may live, and must not act under an
//! old id. And a group whose replicas have all lost their logs must not begin anew as if nothing had been:
//! whether it ever held data, nobody is left to know. So an operator says when a group is to begin
//! ([`Boot::tell`]).
//!
//! 1. Every process start without a log draws a *nonce* and says HELLO(nonce) to everybody until it belongs to a group.
//! 2. Who is asked answers FRESH(its own nonce) or MEMBER. FRESH to slot 0's nonce is also a *promise*: a
//!    founding by an earlier life of slot 0 will not be accepted from it any more.
//! 3. Slot 0 founds a group only when it was told to and **all** others answered FRESH to its current nonce.
//!    FOUND names everybody's nonce; a replica takes part only if its own current nonce is in it. Slot 0 was
//!    told of a group that is to begin: once it hears of one that has begun, it has to be told again.
//! 4. Whoever hears MEMBER asks to JOIN: the leader removes the slot's old id, adds a new one as a learner
//!    and promotes it when it has caught up. What somebody answered holds until that replica answers
//!    something else, or says HELLO itself: then its process has lost what it was a member of.
//!
//! Why all and not a majority: with {1,2} founding while 0 is late, then 2 losing its memory while 1 is
//! unreachable, a majority {0,2} would be fresh again and found a second group without what {1,2}
//! acknowledged. With all: if a group ever acknowledged anything, a majority of its founders took part; at
//! most f of them lost their memory, so at least one is left that answers MEMBER, or is silent, and either
//! prevents the founding. Two foundings cannot both come to life: whoever answered FRESH to the later nonce
//! of slot 0 refuses the earlier founding, and all did. An id is bound to a nonce and engine messages name
//! the group, so no message of an earlier life is counted for a later one.
//!
//! A FOUND that got lost is repeated by any member to a replica that still says HELLO with the nonce the
//! founding names: that life never acted, so it may take its place late. More than f replicas losing their
//! memory at once is outside the fault model: the rest answers MEMBER, nobody leads, and the operator has to
//! decide (`Node::take_over`).

use bytes::Bytes;
use wire::{Malformed, Put, Reader};

use crate::engine::Outside;
use crate::limits;

/// What replicas say to each other outside the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Control {
    /// I have no log and call myself this.
    Hello { nonce: u64 },
    /// Answer to a HELLO: neither have I, and I call myself this.
    Fresh { to: u64, nonce: u64 },
    /// Answer to a HELLO: I belong to this group.
    Member { to: u64, group: u64 },
    /// These lives found the group.
    Found { group: u64, nonces: Vec<u64> },
    /// Let this life in.
    Join { nonce: u64 },
    /// That life is in, under this engine id.
    Welcome { nonce: u64, group: u64, id: u64 },
    /// An entry of your append is corrupt: look at your log.
    BadEntry { group: u64, index: u64 },
    /// The state at this cut cannot be had: make another.
    StateLost { group: u64, cut: u64 },
    /// This engine id was replaced by a later life.
    Gone { group: u64, id: u64 },
}

impl Control {
    pub fn encode(&self) -> Bytes {
        let (kind, fields): (u8, [u64; 3]) = match *self {
            Control::Hello { nonce } => (1, [nonce, 0, 0]),
            Control::Fresh { to, nonce } => (2, [to, nonce, 0]),
            Control::Member { to, group } => (3, [to, group, 0]),
            Control::Found { group, ref nonces } => (4, [group, nonces.len() as u64, 0]),
            Control::Join { nonce } => (5, [nonce, 0, 0]),
            Control::Welcome { nonce, group, id } => (6, [nonce, group, id]),
            Control::BadEntry { group, index } => (7, [group, index, 0]),
            Control::StateLost { group, cut } => (8, [group, cut, 0]),
            Control::Gone { group, id } => (9, [group, id, 0]),
        };
        let mut out = Vec::with_capacity(64);
        out.put8(kind);
        fields.iter().for_each(|&field| _ = out.put64(field));
        if let Control::Found { nonces, .. } = self {
            nonces.iter().for_each(|&nonce| _ = out.put64(nonce));
        }
        out.into()
    }

    pub fn decode(body: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(&body);
        let kind = reader.u8()?;
        let [a, b, c] = [reader.u64()?, reader.u64()?, reader.u64()?];
        let control = match (kind, b, c) {
            (1, 0, 0) => Control::Hello { nonce: a },
            (2, nonce, 0) => Control::Fresh { to: a, nonce },
            (3, group, 0) => Control::Member { to: a, group },
            (4, count, 0) if count <= limits::SLOTS as u64 => {
                let nonces: Result<Vec<u64>, Malformed> = (0..count).map(|_| reader.u64()).collect();
                Control::Found { group: a, nonces: nonces? }
            }
            (5, 0, 0) => Control::Join { nonce: a },
            (6, group, id) => Control::Welcome { nonce: a, group, id },
            (7, index, 0) => Control::BadEntry { group: a, index },
            (8, cut, 0) => Control::StateLost { group: a, cut },
            (9, id, 0) => Control::Gone { group: a, id },
            _ => return Err(Malformed("unknown control message")),
        };
        reader.end()?;
        Ok(control)
    }
}

/// What the founding protocol decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// Take part in this founding.
    Founded { group: u64, nonces: Vec<u64> },
    /// Start empty under this engine id; the leader sends what is missing.
    Joined { group: u64, id: u64 },
}

/// What another replica answers to our HELLO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HelloAnswer {
    /// It has no log either, and this nonce.
    Fresh(u64),
    /// It belongs to a group.
    Member,
}

/// The protocol above, for one replica. Pure: messages in, messages and at most one entrance out.
#[derive(Debug)]
pub(crate) struct Boot {
    slot: u8,
    nonce: u64,
    /// What each of the others said last in answer to our nonce.
    answers: Vec<Option<HelloAnswer>>,
    /// The group is to begin: slot 0 may found it.
    told: bool,
    /// The nonce of slot 0 that we answered FRESH to last.
    promised: Option<u64>,
    /// The group we are in, once we are.
    group: Option<u64>,
    /// The founding we took part in, to repeat it to those who missed it.
    founding: Option<Vec<u64>>,
}

impl Boot {
    pub fn new(slot: u8, replicas: u8, nonce: u64) -> Self {
        let answers = vec![None; usize::from(replicas)];
        Boot { slot, nonce, answers, told: false, promised: None, group: None, founding: None }
    }

    /// The group is to begin, as soon as everybody is here. Without effect unless this is slot 0.
    pub fn tell(&mut self) {
        self.told = self.group.is_none();
    }

    /// Who has no log, and who belongs to a group, by what they said last.
    pub fn outside(&self) -> Outside {
        let mut outside = Outside { told: self.told, ..Outside::default() };
        for (slot, answer) in self.answers.iter().enumerate() {
            match answer {
                Some(HelloAnswer::Fresh(_)) => outside.fresh |= 1 << slot,
                Some(HelloAnswer::Member) => outside.members |= 1 << slot,
                None => {}
            }
        }
        outside
    }

    /// The connection to that replica is lost: who answers next may be another life of it.
    pub fn forget(&mut self, peer: u8) {
        if let Some(answer) = self.answers.get_mut(usize::from(peer)) {
            *answer = None;
        }
    }

    /// This replica belongs to a group: by its own log, or by the entrance just returned.
    pub fn enter(&mut self, group: u64) {
        self.group = Some(group);
    }

    /// What to say to every reachable peer from time to time.
    pub fn announce(&self) -> Vec<Control> {
        let hello = Control::Hello { nonce: self.nonce };
        match (self.group, self.answers.contains(&Some(HelloAnswer::Member))) {
            (Some(_), _) => vec![],
            (None, false) => vec![hello],
            (None, true) => vec![hello, Control::Join { nonce: self.nonce }],
        }
    }

    /// A replica that is alone need not ask anybody.
    pub fn try_found(&mut self) -> Option<Entrance> {
        if self.slot != 0 || self.group.is_some() || !self.told {
            return None;
        }
        let nonce = |(slot, answer): (u8, &Option<HelloAnswer>)| match *answer {
            _ if slot == self.slot => Some(self.nonce),
            Some(HelloAnswer::Fresh(nonce)) => Some(nonce),
            Some(HelloAnswer::Member) | None => None,
        };
        let nonces: Vec<u64> = (0u8..).zip(&self.answers).map(nonce).collect::<Option<_>>()?;
        let group = nonces.iter().fold(0x6367_726f_7570, |group, &nonce| wire::mix(group ^ nonce));
        self.founding = Some(nonces.clone());
        Some(Entrance::Founded { group, nonces })
    }

    /// Handles HELLO, FRESH, MEMBER, FOUND and WELCOME; the rest is the engine's.
    pub fn on_control(&mut self, from: u8, control: &Control, out: &mut Vec<Control>) -> Option<Entrance> {
        match *control {
            Control::Hello { nonce } => self.on_hello(from, nonce, out),
            Control::Fresh { to, nonce } if to == self.nonce && self.group.is_none() => {
                *self.answers.get_mut(usize::from(from))? = Some(HelloAnswer::Fresh(nonce));
                self.try_found()
            }
            Control::Member { to, .. } if to == self.nonce && self.group.is_none() => {
                *self.answers.get_mut(usize::from(from))? = Some(HelloAnswer::Member);
                self.told = false;
                out.push(Control::Join { nonce: self.nonce });
                None
            }
            Control::Found { group, ref nonces } => self.on_found(from, group, nonces),
            Control::Welcome { nonce, group, id } if nonce == self.nonce && self.group.is_none() => {
                Some(Entrance::Joined { group, id })
            }
            _ => None,
        }
    }

    /// FOUND for everybody, once this replica founded.
    pub fn announce_founding(&self) -> Option<Control> {
        Some(Control::Found { group: self.group?, nonces: self.founding.clone()? })
    }

    fn on_hello(&mut self, from: u8, nonce: u64, out: &mut Vec<Control>) -> Option<Entrance> {
        let Some(group) = self.group else {
            let answer = self.answers.get_mut(usize::from(from))?;
            // What an earlier life of it answered.
            answer.take_if(|before| *before != HelloAnswer::Fresh(nonce));
            if from == 0 {
                self.promised = Some(nonce);
            }
            out.push(Control::Fresh { to: nonce, nonce: self.nonce });
            return None;
        };
        match self.announce_founding() {
            Some(found) if self.founding.as_ref()?.get(usize::from(from)) == Some(&nonce) => out.push(found),
            _ => {
                *self.answers.get_mut(usize::from(from))? = Some(HelloAnswer::Fresh(nonce));
                out.push(Control::Member { to: nonce, group });
            }
        }
        None
    }

    fn on_found(&mut self, from: u8, group: u64, nonces: &[u64]) -> Option<Entrance> {
        let ours =
            nonces.len() == self.answers.len() && nonces.get(usize::from(self.slot)) == Some(&self.nonce);
        // From slot 0 only by the life we answered last; a member that repeats it proves by being one that it
        // came to life.
        let accepted = from != 0 || self.promised == nonces.first().copied();
        if self.group.is_some() || !ours || !accepted {
            return None;
        }
        self.founding = Some(nonces.to_vec());
        Some(Entrance::Founded { group, nonces: nonces.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delivers everything everybody says among `boots` until nothing is said; returns who entered what.
    fn settle(boots: &mut [(u8, Boot)]) -> Vec<(u8, Entrance)> {
        let mut wire: Vec<(u8, u8, Control)> = Vec::new();
        let mut entered = Vec::new();
        let slots: Vec<u8> = boots.iter().map(|(slot, _)| *slot).collect();
        for (slot, boot) in boots.iter() {
            for control in boot.announce() {
                wire.extend(slots.iter().filter(|to| *to != slot).map(|to| (*slot, *to, control.clone())));
            }
        }
        while let Some((from, to, control)) = wire.pop() {
            let control = Control::decode(control.encode()).unwrap();
            let (_, boot) = boots.iter_mut().find(|(slot, _)| *slot == to).unwrap();
            let mut out = Vec::new();
            if let Some(entrance) = boot.on_control(from, &control, &mut out) {
                let (Entrance::Founded { group, .. } | Entrance::Joined { group, .. }) = entrance;
                boot.enter(group);
                entered.push((to, entrance));
                if to == 0 {
                    let found = boot.announce_founding().unwrap();
                    wire.extend(
                        slots.iter().filter(|&&peer| peer != 0).map(|&peer| (0, peer, found.clone())),
                    );
                }
            }
            wire.extend(out.into_iter().map(|control| (to, from, control)));
        }
        entered
    }

    #[test]
    fn three_fresh_replicas_found_one_group_and_two_do_not() {
        let boot = |slot: u8| {
            let mut boot = Boot::new(slot, 3, 100 + u64::from(slot));
            boot.tell();
            (slot, boot)
        };
        assert_eq!(settle(&mut [boot(0), boot(1)]), [], "a majority is not enough");
        let entered = settle(&mut [boot(0), boot(1), boot(2)]);
        assert_eq!(entered.len(), 3);
        assert!(entered.iter().all(|(_, entrance)| *entrance == entered[0].1), "all in the same group");
    }

    #[test]
    fn a_replica_that_lost_its_log_joins_and_founds_nothing() {
        let mut boots = [0, 1, 2].map(|slot| (slot, Boot::new(slot, 3, 100 + u64::from(slot))));
        boots[0].1.tell();
        settle(&mut boots);
        boots[0].1 = Boot::new(0, 3, 900);
        assert_eq!(settle(&mut boots), []);
        assert_eq!(boots[0].1.outside().members, 0b110, "it was told that a group lives");
        // Even with everybody else but one member unreachable.
        boots[0].1 = Boot::new(0, 3, 901);
        assert_eq!(settle(&mut boots[..2]), []);
        // Nor when all of them have lost it, one after the other, unless an operator says so.
        for slot in 0..3 {
            boots[usize::from(slot)].1 = Boot::new(slot, 3, 910 + u64::from(slot));
        }
        assert_eq!(settle(&mut boots), []);
        assert_eq!(boots[0].1.outside(), Outside { fresh: 0b110, ..Outside::default() });
        boots[0].1.tell();
        assert_eq!(settle(&mut boots).len(), 3);
    }

    /// Memories lost one after the other: whoever once heard of a group takes part in the next one.
    #[test]
    fn what_was_heard_of_a_group_is_taken_back_when_its_last_member_has_lost_it() {
        let mut boots = [0, 1, 2].map(|slot| (slot, Boot::new(slot, 3, 100 + u64::from(slot))));
        boots[0].1.tell();
        assert_eq!(settle(&mut boots).len(), 3);
        boots[0].1 = Boot::new(0, 3, 900);
        boots[0].1.tell();
        boots[1].1 = Boot::new(1, 3, 901);
        assert_eq!(settle(&mut boots), [], "a majority has lost it, and slot 2 has not");
        boots[2].1 = Boot::new(2, 3, 902);
        assert_eq!(settle(&mut boots), [], "what slot 0 was told is not meant for a group that had begun");
        assert_eq!(boots[0].1.outside(), Outside { fresh: 0b110, ..Outside::default() });
        assert!(
            boots.iter().all(|(_, boot)| boot.announce().len() == 1),
            "nobody asks to be let in any more"
        );
        boots[0].1.tell();
        assert_eq!(settle(&mut boots).len(), 3);
    }

    #[test]
    fn a_lost_connection_takes_an_answer_back() {
        let mut boots = [0, 1, 2].map(|slot| (slot, Boot::new(slot, 3, 100 + u64::from(slot))));
        settle(&mut boots);
        boots[0].1.forget(1);
        boots[0].1.tell();
        assert_eq!(boots[0].1.try_found(), None);
        assert_eq!(settle(&mut boots).len(), 3);
    }

    #[test]
    fn an_earlier_founding_is_refused_after_the_promise_to_a_later_life() {
        let mut one = Boot::new(1, 3, 101);
        let mut out = Vec::new();
        one.on_control(0, &Control::Hello { nonce: 1 }, &mut out);
        one.on_control(0, &Control::Hello { nonce: 2 }, &mut out);
        let old = Control::Found { group: 7, nonces: vec![1, 101, 102] };
        assert_eq!(one.on_control(0, &old, &mut out), None);
        let new = Control::Found { group: 8, nonces: vec![2, 101, 102] };
        assert!(one.on_control(0, &new, &mut out).is_some());
    }

    #[test]
    fn a_lost_founding_is_repeated_by_any_member_to_the_same_life_only() {
        let mut one = Boot::new(1, 3, 101);
        let mut out = Vec::new();
        one.on_control(0, &Control::Hello { nonce: 1 }, &mut out);
        let found = Control::Found { group: 7, nonces: vec![1, 101, 102] };
        assert!(one.on_control(0, &found, &mut out).is_some());
        one.enter(7);
        out.clear();
        one.on_control(2, &Control::Hello { nonce: 102 }, &mut out);
        one.on_control(2, &Control::Hello { nonce: 999 }, &mut out);
        assert_eq!(out, [found, Control::Member { to: 999, group: 7 }]);
    }
}
