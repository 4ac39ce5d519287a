//! How a replica without a log gets into a group: it takes part in the founding once, and joins later on.
//!
//! A replica that lost its log must not found a group while another group may exist, and must not act under an old id.
//! And a group whose replicas have all lost their logs must not silently begin again: no replica is left that knows
//! whether it held data. So an operator decides when a group begins ([`Boot::allow_founding`]).
//!
//! 1. Every process start without a log draws a *nonce* and sends HELLO(nonce) to all others until it belongs to a
//!    group.
//! 2. The receiver answers FRESH(its own nonce) or MEMBER. FRESH to slot 0's nonce is also a *promise*: the sender
//!    accepts no founding by an earlier incarnation of slot 0 any more.
//! 3. Slot 0 founds a group only on the operator's command, and when **all** others answered FRESH to its current
//!    nonce. FOUND names all nonces; a replica takes part only if its own current nonce is in it. Once slot 0 learns of
//!    a group that has begun, it needs a new command.
//!    A group may begin with a state from elsewhere (a backup): HELLO, FRESH and FOUND name it, and only replicas that
//!    have loaded the same one found a group.
//! 4. A replica that receives MEMBER sends JOIN: the leader removes the slot's old id, adds a new one as a learner and
//!    promotes it when it has caught up. An answer counts until that replica answers something else, or sends HELLO
//!    itself: then its process has lost its membership.
//!
//! Why all and not a majority: with {1,2} founding while 0 is late, then 2 losing its memory while 1 is
//! unreachable, a majority {0,2} would be fresh again and found a second group without what {1,2}
//! acknowledged. With all: if a group ever acknowledged anything, a majority of its founders took part; at most f of
//! them lost their memory, so at least one is left that answers MEMBER, or is silent, and either prevents the founding.
//! Two foundings cannot both take effect: a replica that answered FRESH to the later nonce of slot 0 refuses the
//! earlier founding, and all did. An id is bound to a nonce and engine messages name the group, so no message of an
//! earlier incarnation is counted for a later one.
//!
//! Any member repeats a lost FOUND to a replica that still sends HELLO with the nonce that the founding names: that
//! incarnation never acted, so it may take its place late. More than f replicas losing their memory at once is outside
//! the fault model: the rest answers MEMBER, no replica leads, and the operator has to decide (`Node::take_over`).

use bytes::Bytes;
use wire::{Malformed, Put, Reader};

use crate::engine::Outside;
use crate::limits;

/// The messages between replicas outside the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Control {
    /// The sender has no log and draws this nonce. Its group would begin with the state of this digest, or empty (0).
    Hello { nonce: u64, state: u64 },
    /// Answer to a HELLO: the sender has no log either, and draws this nonce.
    Fresh { to: u64, nonce: u64, state: u64 },
    /// Answer to a HELLO: the sender belongs to this group.
    Member { to: u64, group: u64 },
    /// The incarnations with these nonces found the group, with the state of this digest.
    Found { group: u64, nonces: Vec<u64>, state: u64 },
    /// A request to let this incarnation in.
    Join { nonce: u64 },
    /// That incarnation is in, under this engine id.
    Welcome { nonce: u64, group: u64, id: u64 },
    /// An entry of the receiver's append is corrupt: it should check its log.
    BadEntry { group: u64, index: u64 },
    /// The state of this checkpoint is not available: make another.
    StateLost { group: u64, cut: u64 },
    /// This engine id was replaced by a later incarnation.
    Gone { group: u64, id: u64 },
}

impl Control {
    pub fn encode(&self) -> Bytes {
        let (kind, fields): (u8, [u64; 3]) = match *self {
            Control::Hello { nonce, state } => (1, [nonce, state, 0]),
            Control::Fresh { to, nonce, state } => (2, [to, nonce, state]),
            Control::Member { to, group } => (3, [to, group, 0]),
            Control::Found { group, ref nonces, state } => (4, [group, nonces.len() as u64, state]),
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
            (1, state, 0) => Control::Hello { nonce: a, state },
            (2, nonce, state) => Control::Fresh { to: a, nonce, state },
            (3, group, 0) => Control::Member { to: a, group },
            (4, count, state) if count <= limits::SLOTS as u64 => {
                let nonces: Result<Vec<u64>, Malformed> = (0..count).map(|_| reader.u64()).collect();
                Control::Found { group: a, nonces: nonces?, state }
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

/// A decision of the founding protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// Take part in this founding.
    Founded { group: u64, nonces: Vec<u64> },
    /// Start empty under this engine id; the leader sends the missing entries.
    Joined { group: u64, id: u64 },
}

/// Another replica's answer to our HELLO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HelloAnswer {
    /// It has no log either, and this nonce.
    Fresh(u64),
    /// The same, and its group would begin with another state.
    Differs(u64),
    /// It belongs to a group.
    Member,
}

/// The protocol above, for one replica. Pure: messages in, messages and at most one entrance into a group out.
#[derive(Debug)]
pub(crate) struct Boot {
    slot: u8,
    nonce: u64,
    /// Digest of the state that the group is to begin with; 0 for an empty one.
    state: u64,
    /// The last answer of each other replica to our nonce.
    answers: Vec<Option<HelloAnswer>>,
    /// The group is to begin: slot 0 may found it.
    is_ordered: bool,
    /// The nonce of slot 0 that we answered FRESH to last.
    promised: Option<u64>,
    /// The group we are in, once we are.
    group: Option<u64>,
    /// The founding we took part in, to repeat it to replicas that missed it.
    founding: Option<Vec<u64>>,
}

impl Boot {
    pub fn new(slot: u8, replicas: u8, (nonce, state): (u64, u64)) -> Self {
        let answers = vec![None; usize::from(replicas)];
        Boot { slot, nonce, state, answers, is_ordered: false, promised: None, group: None, founding: None }
    }

    /// The group is to begin, as soon as all replicas are here. Without effect unless this is slot 0.
    pub fn allow_founding(&mut self) {
        self.is_ordered = self.group.is_none();
    }

    /// The group has so many replicas.
    pub fn resize(&mut self, replicas: u8) {
        self.answers.resize(usize::from(replicas), None);
    }

    /// The replicas without a log, and the members of a group, by their last messages.
    pub fn outside(&self) -> Outside {
        let mut outside = Outside { is_ordered: self.is_ordered, ..Outside::default() };
        for (slot, answer) in self.answers.iter().enumerate() {
            match answer {
                Some(HelloAnswer::Fresh(_)) => outside.fresh |= 1 << slot,
                Some(HelloAnswer::Differs(_)) => outside.differ |= 1 << slot,
                Some(HelloAnswer::Member) => outside.members |= 1 << slot,
                None => {}
            }
        }
        outside
    }

    /// The connection to that replica is lost: the next answer may come from another incarnation of it.
    pub fn forget(&mut self, peer: u8) {
        if let Some(answer) = self.answers.get_mut(usize::from(peer)) {
            *answer = None;
        }
    }

    /// This replica belongs to a group: by its own log, or by the entrance just returned.
    pub fn enter(&mut self, group: u64) {
        self.group = Some(group);
    }

    /// The question whether a group is there.
    pub fn hello(&self) -> Control {
        Control::Hello { nonce: self.nonce, state: self.state }
    }

    /// Whether this process has asked with this nonce.
    pub fn asked(&self, nonce: u64) -> bool {
        nonce == self.nonce
    }

    /// The message to send to every reachable peer from time to time.
    pub fn announce(&self) -> Vec<Control> {
        let hello = self.hello();
        match (self.group, self.answers.contains(&Some(HelloAnswer::Member))) {
            (Some(_), _) => vec![],
            (None, false) => vec![hello],
            (None, true) => vec![hello, Control::Join { nonce: self.nonce }],
        }
    }

    /// A replica that is alone has no peer to ask.
    pub fn try_found(&mut self) -> Option<Entrance> {
        if self.slot != 0 || self.group.is_some() || !self.is_ordered {
            return None;
        }
        let nonce = |(slot, answer): (u8, &Option<HelloAnswer>)| match *answer {
            _ if slot == self.slot => Some(self.nonce),
            Some(HelloAnswer::Fresh(nonce)) => Some(nonce),
            Some(HelloAnswer::Differs(_) | HelloAnswer::Member) | None => None,
        };
        let nonces: Vec<u64> = (0u8..).zip(&self.answers).map(nonce).collect::<Option<_>>()?;
        let begun = 0x6367_726f_7570 ^ self.state;
        let group = nonces.iter().fold(begun, |group, &nonce| wire::mix(group ^ nonce));
        self.founding = Some(nonces.clone());
        Some(Entrance::Founded { group, nonces })
    }

    /// Handles HELLO, FRESH, MEMBER, FOUND and WELCOME; the rest is the engine's.
    pub fn on_control(&mut self, from: u8, control: &Control, out: &mut Vec<Control>) -> Option<Entrance> {
        match *control {
            Control::Hello { nonce, state } => self.on_hello(from, (nonce, state), out),
            Control::Fresh { to, nonce, state } if to == self.nonce && self.group.is_none() => {
                let answer = self.fresh(nonce, state);
                *self.answers.get_mut(usize::from(from))? = Some(answer);
                self.try_found()
            }
            Control::Member { to, .. } if to == self.nonce && self.group.is_none() => {
                *self.answers.get_mut(usize::from(from))? = Some(HelloAnswer::Member);
                self.is_ordered = false;
                out.push(Control::Join { nonce: self.nonce });
                None
            }
            Control::Found { group, ref nonces, state } if state == self.state => {
                self.on_found(from, group, nonces)
            }
            Control::Welcome { nonce, group, id } if nonce == self.nonce && self.group.is_none() => {
                Some(Entrance::Joined { group, id })
            }
            _ => None,
        }
    }

    /// FOUND for all others, once this replica founded the group.
    pub fn announce_founding(&self) -> Option<Control> {
        Some(Control::Found { group: self.group?, nonces: self.founding.clone()?, state: self.state })
    }

    /// The answer of a replica without a log, which has this nonce and would begin with this state.
    fn fresh(&self, nonce: u64, state: u64) -> HelloAnswer {
        if state == self.state { HelloAnswer::Fresh(nonce) } else { HelloAnswer::Differs(nonce) }
    }

    fn on_hello(&mut self, from: u8, (nonce, state): (u64, u64), out: &mut Vec<Control>) -> Option<Entrance> {
        let said = self.fresh(nonce, state);
        let Some(group) = self.group else {
            let answer = self.answers.get_mut(usize::from(from))?;
            // The answer of an earlier incarnation of it.
            answer.take_if(|before| *before != said);
            if from == 0 {
                self.promised = Some(nonce);
            }
            out.push(Control::Fresh { to: nonce, nonce: self.nonce, state: self.state });
            return None;
        };
        match self.announce_founding() {
            Some(found) if self.founding.as_ref()?.get(usize::from(from)) == Some(&nonce) => out.push(found),
            _ => {
                // Whatever it would begin with, it joins.
                *self.answers.get_mut(usize::from(from))? = Some(HelloAnswer::Fresh(nonce));
                out.push(Control::Member { to: nonce, group });
            }
        }
        None
    }

    fn on_found(&mut self, from: u8, group: u64, nonces: &[u64]) -> Option<Entrance> {
        let ours =
            nonces.len() == self.answers.len() && nonces.get(usize::from(self.slot)) == Some(&self.nonce);
        // From slot 0 only by the incarnation that we answered last. A member that repeats the founding proves that it
        // took effect.
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

    /// Delivers all messages among `boots` until none is left; returns which replica entered which group.
    fn deliver_all(boots: &mut [(u8, Boot)]) -> Vec<(u8, Entrance)> {
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
            let mut boot = Boot::new(slot, 3, (100 + u64::from(slot), 0));
            boot.allow_founding();
            (slot, boot)
        };
        assert_eq!(deliver_all(&mut [boot(0), boot(1)]), [], "a majority is not enough");
        let entered = deliver_all(&mut [boot(0), boot(1), boot(2)]);
        assert_eq!(entered.len(), 3);
        assert!(entered.iter().all(|(_, entrance)| *entrance == entered[0].1), "all in the same group");
    }

    #[test]
    fn a_replica_that_lost_its_log_joins_and_founds_nothing() {
        let mut boots = [0, 1, 2].map(|slot| (slot, Boot::new(slot, 3, (100 + u64::from(slot), 0))));
        boots[0].1.allow_founding();
        deliver_all(&mut boots);
        boots[0].1 = Boot::new(0, 3, (900, 0));
        assert_eq!(deliver_all(&mut boots), []);
        assert_eq!(boots[0].1.outside().members, 0b110, "it was told that a group lives");
        // Even with all but one member unreachable.
        boots[0].1 = Boot::new(0, 3, (901, 0));
        assert_eq!(deliver_all(&mut boots[..2]), []);
        // Nor when all of them have lost it, one after the other, without an operator's command.
        for slot in 0..3 {
            boots[usize::from(slot)].1 = Boot::new(slot, 3, (910 + u64::from(slot), 0));
        }
        assert_eq!(deliver_all(&mut boots), []);
        assert_eq!(boots[0].1.outside(), Outside { fresh: 0b110, ..Outside::default() });
        boots[0].1.allow_founding();
        assert_eq!(deliver_all(&mut boots).len(), 3);
    }

    /// Memories lost one after the other: a replica that once learned of a group takes part in the next one.
    #[test]
    fn what_is_known_of_a_group_is_forgotten_when_its_last_member_has_lost_it() {
        let mut boots = [0, 1, 2].map(|slot| (slot, Boot::new(slot, 3, (100 + u64::from(slot), 0))));
        boots[0].1.allow_founding();
        assert_eq!(deliver_all(&mut boots).len(), 3);
        boots[0].1 = Boot::new(0, 3, (900, 0));
        boots[0].1.allow_founding();
        boots[1].1 = Boot::new(1, 3, (901, 0));
        assert_eq!(deliver_all(&mut boots), [], "a majority has lost it, and slot 2 has not");
        boots[2].1 = Boot::new(2, 3, (902, 0));
        assert_eq!(
            deliver_all(&mut boots),
            [],
            "what slot 0 was told is not meant for a group that had begun"
        );
        assert_eq!(boots[0].1.outside(), Outside { fresh: 0b110, ..Outside::default() });
        assert!(
            boots.iter().all(|(_, boot)| boot.announce().len() == 1),
            "nobody asks to be let in any more"
        );
        boots[0].1.allow_founding();
        assert_eq!(deliver_all(&mut boots).len(), 3);
    }

    #[test]
    fn a_lost_connection_takes_an_answer_back() {
        let mut boots = [0, 1, 2].map(|slot| (slot, Boot::new(slot, 3, (100 + u64::from(slot), 0))));
        deliver_all(&mut boots);
        boots[0].1.forget(1);
        boots[0].1.allow_founding();
        assert_eq!(boots[0].1.try_found(), None);
        assert_eq!(deliver_all(&mut boots).len(), 3);
    }

    #[test]
    fn an_earlier_founding_is_refused_after_the_promise_to_a_later_incarnation() {
        let mut one = Boot::new(1, 3, (101, 0));
        let mut out = Vec::new();
        one.on_control(0, &Control::Hello { nonce: 1, state: 0 }, &mut out);
        one.on_control(0, &Control::Hello { nonce: 2, state: 0 }, &mut out);
        let old = Control::Found { group: 7, nonces: vec![1, 101, 102], state: 0 };
        assert_eq!(one.on_control(0, &old, &mut out), None);
        let new = Control::Found { group: 8, nonces: vec![2, 101, 102], state: 0 };
        assert!(one.on_control(0, &new, &mut out).is_some());
    }

    #[test]
    fn a_lost_founding_is_repeated_by_any_member_to_the_same_incarnation_only() {
        let mut one = Boot::new(1, 3, (101, 0));
        let mut out = Vec::new();
        one.on_control(0, &Control::Hello { nonce: 1, state: 0 }, &mut out);
        let found = Control::Found { group: 7, nonces: vec![1, 101, 102], state: 0 };
        assert!(one.on_control(0, &found, &mut out).is_some());
        one.enter(7);
        out.clear();
        one.on_control(2, &Control::Hello { nonce: 102, state: 0 }, &mut out);
        one.on_control(2, &Control::Hello { nonce: 999, state: 0 }, &mut out);
        assert_eq!(out, [found, Control::Member { to: 999, group: 7 }]);
    }

    /// A replica that was given another backup, or none, would serve another state.
    #[test]
    fn a_group_begins_with_a_state_only_if_all_have_the_same_one() {
        let boots = |states: [u64; 3]| {
            [0, 1, 2]
                .map(|slot| (slot, Boot::new(slot, 3, (100 + u64::from(slot), states[usize::from(slot)]))))
        };
        for states in [[7, 7, 8], [7, 7, 0], [0, 7, 7], [7, 0, 0]] {
            let mut differing = boots(states);
            differing[0].1.allow_founding();
            assert_eq!(deliver_all(&mut differing), [], "{states:?}");
            let differ = states.map(|state| state != states[0]);
            let outside = differing[0].1.outside();
            assert_eq!(differ, [0, 1, 2].map(|slot| outside.differ >> slot & 1 == 1));
        }
        let mut equal = boots([7, 7, 7]);
        equal[0].1.allow_founding();
        let entered = deliver_all(&mut equal);
        assert_eq!(entered.len(), 3);
        let mut empty = boots([0, 0, 0]);
        empty[0].1.allow_founding();
        assert_ne!(deliver_all(&mut empty)[0].1, entered[0].1, "another state, another group");
    }

    #[test]
    fn a_founding_with_another_state_is_refused() {
        let mut one = Boot::new(1, 3, (101, 7));
        let mut out = Vec::new();
        one.on_control(0, &Control::Hello { nonce: 1, state: 8 }, &mut out);
        let found = |state| Control::Found { group: 7, nonces: vec![1, 101, 102], state };
        assert_eq!(one.on_control(0, &found(8), &mut out), None);
        assert_eq!(one.on_control(0, &found(0), &mut out), None);
        assert!(one.on_control(0, &found(7), &mut out).is_some());
    }
}
