//! What the group acts as: which of the behaviors that its builds know all replicas show at a position of the order.
//!
//! A release that computes something else than the one before it numbers what it does as a new behavior, and still
//! knows the old one. While replicas of both run, all act as the old one. A replica that hears that all others have the
//! new release orders a request that says so ([`Control::ActAs`]). With the one of the f+1-th replica, what they act as
//! changes, at its position: one faulty replica alone cannot bring that about. So a group is upgraded one replica after
//! the other, and no reply depends on which of them gave it.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;

use crate::ordered::Control;

/// The behavior of a group that never changed it.
pub const FIRST: u16 = 1;

/// The behaviors that a build can act as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviors {
    /// The oldest one.
    pub oldest: u16,
    /// The newest one.
    pub newest: u16,
}

impl Behaviors {
    /// Those of a service that was never changed.
    pub const FIRST: Behaviors = Behaviors { oldest: FIRST, newest: FIRST };

    /// Those from the first one to this one.
    pub const fn up_to(newest: u16) -> Behaviors {
        Behaviors { oldest: FIRST, newest }
    }

    /// Whether a build can act as this one.
    pub fn include(self, behavior: u16) -> bool {
        (self.oldest..=self.newest).contains(&behavior)
    }

    /// Whether two builds have one in common.
    pub fn meet(self, other: Behaviors) -> bool {
        self.oldest <= other.newest && other.oldest <= self.newest
    }
}

impl Default for Behaviors {
    fn default() -> Self {
        Behaviors::FIRST
    }
}

impl fmt::Display for Behaviors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "{}", self.newest)
        } else {
            write!(f, "{} to {}", self.oldest, self.newest)
        }
    }
}

/// What a replica wants its group to act as, if this ordered request is one that says so.
pub fn wanted_by(request: &Bytes) -> Option<u16> {
    match Control::decode(request) {
        Some(Control::ActAs { behavior }) => Some(behavior),
        _ => None,
    }
}

/// What the group acts as by the order, which has 0 for the first one, as logs of before have it.
pub(crate) fn of_order(acting: order::Acting) -> u16 {
    acting.behavior.max(FIRST)
}

/// What a replica acts as, for all its workers. It changes while one request runs alone, so that every other one finds
/// the value of its position.
#[derive(Debug)]
pub(crate) struct Acting(AtomicU32);

impl Acting {
    /// Acts as this one.
    pub fn new(behavior: u16) -> Self {
        Acting(AtomicU32::new(sealed(behavior)))
    }

    /// From the running request on.
    pub fn set(&self, behavior: u16) {
        self.0.store(sealed(behavior), Ordering::Release);
    }

    /// What a handler acts as.
    pub fn get(&self) -> u16 {
        self.0.load(Ordering::Acquire) as u16
    }

    /// Whether it is as it was set: a wrong one would be wrong in every request.
    pub fn is_intact(&self) -> bool {
        let value = self.0.load(Ordering::Acquire);
        value == sealed(value as u16)
    }
}

fn sealed(behavior: u16) -> u32 {
    u32::from(!behavior) << 16 | u32::from(behavior)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_builds_meet_where_both_can_act_alike() {
        let of = |oldest, newest| Behaviors { oldest, newest };
        assert!(of(1, 1).meet(of(1, 2)) && of(1, 2).meet(of(2, 3)));
        assert!(!of(1, 1).meet(of(2, 3)) && !of(2, 3).meet(of(1, 1)));
        assert!(of(2, 3).include(2) && !of(2, 3).include(1) && !of(2, 3).include(4));
        assert_eq!([of(1, 1), of(1, 3)].map(|one| one.to_string()), ["1", "1 to 3"]);
    }

    #[test]
    fn each_flipped_bit_of_what_a_replica_acts_as_is_found() {
        for bit in 0..32 {
            let acting = Acting::new(2);
            assert!(acting.is_intact() && acting.get() == 2);
            acting.0.fetch_xor(1 << bit, Ordering::AcqRel);
            assert!(!acting.is_intact(), "bit {bit}");
        }
    }
}
