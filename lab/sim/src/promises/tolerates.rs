//! What the group says about its own redundancy holds.

use std::collections::BTreeSet;

use super::{About, Broken};

/// The promise.
pub const TOLERATES: About = About {
    name: "tolerates",
    section: "ARCHITECTURE.md, While replicas are away",
    promise: "At every moment the status of a group says how many further replicas may fail. If it says N, the group \
        serves again after any N of them are killed, paused or cut off at that moment, without an operator, within \
        2 s. When nothing is wrong, N is f.",
    check: "Chains of strikes: as soon as the victim of one has come so far as was drawn (it moves again, lags by so \
        much, is past the log, gets pieces of a state, is let in, ...), other replicas are killed, paused, cut off or \
        lose their memories: no more than the leader's status says at that step. From then on until a reply to a \
        command that was sent later reaches its client, no more than the bound passes. Acknowledged writes are read \
        back at the end. When all has healed, N is f within 30 s; less than f has a reason. After one seed in three \
        the last victims never come back, and the rest answers every client.",
};

/// What holds where the group has not said that a replica may fail.
pub const COMES_BACK: About = About {
    name: "comes-back",
    section: "ARCHITECTURE.md, While replicas are away",
    promise: "A group whose data is there serves again, without an operator: f+1 of its members with their memory, of \
        which one has everything that was acknowledged, are enough, however far the others are behind.",
    check: "In chains of strikes one comes at times although the group says that none may fail, where f+1 voters with \
        their memory are left and one of them has every committed entry. From then on until a reply to a command that \
        was sent later reaches its client, no more than 8 s pass. (Without V.)",
};

/// Microseconds within which the rest of a group serves again after a strike.
const SERVES_WITHIN_US: u64 = 2_000_000;
/// The same for what the simulation adds: clients that find a replica that does not serve try the next one up to 20 ms
/// later, and messages take a fraction of a millisecond.
const ADDED_US: u64 = 250_000;
/// The same for what is left of a group that did not say that a replica may fail.
const COMES_BACK_WITHIN_US: u64 = 8_000_000;
/// Microseconds after which a group without faults says that f may fail.
const WHOLE_WITHIN_US: u64 = 30_000_000;
/// Microseconds for which a group may say that none may fail, without a reason.
const SILENT_US: u64 = 5_000_000;

/// What the group said last, and a strike that it has said it survives.
#[derive(Debug, Default)]
pub struct Tolerates {
    pending: Option<ChainStrike>,
    less_since_us: Option<u64>,
    silent_since_us: Option<u64>,
}

/// A strike of a chain.
#[derive(Debug)]
pub struct ChainStrike {
    /// When.
    pub at_us: u64,
    /// Commands from this number on are sent later.
    pub first: usize,
    /// The victims, from 0.
    pub victims: BTreeSet<u8>,
    /// How many were said to be allowed to fail.
    pub said: u64,
    /// When it came, for the message.
    pub after: String,
}

impl ChainStrike {
    fn within_us(&self) -> u64 {
        ADDED_US + if self.said == 0 { COMES_BACK_WITHIN_US } else { SERVES_WITHIN_US }
    }
}

impl Tolerates {
    /// Replicas were hit, as many as the group had said may fail, or fewer.
    pub fn strike(&mut self, strike: ChainStrike) {
        self.pending = Some(strike);
    }

    /// Whether the group has yet to be seen to serve after a strike.
    pub fn waits(&self) -> bool {
        self.pending.is_some()
    }

    /// The promise that the group has yet to keep.
    pub fn about(&self) -> About {
        if self.pending.as_ref().is_some_and(|strike| strike.said == 0) { COMES_BACK } else { TOLERATES }
    }

    /// A command's answer came from a replica. Returns after how many microseconds the group serves, if that shows it.
    pub fn answered(&mut self, command: usize, replica: u8, now_us: u64) -> Option<u64> {
        let shows = |strike: &mut ChainStrike| command >= strike.first && !strike.victims.contains(&replica);
        self.pending.take_if(shows).map(|strike| now_us - strike.at_us)
    }

    /// Time has passed; `state` describes the replicas.
    ///
    /// # Errors
    /// When the group does not serve again.
    pub fn look(&mut self, now_us: u64, state: impl FnOnce() -> String) -> Broken {
        let is_late = |strike: &mut ChainStrike| now_us > strike.at_us + strike.within_us();
        let Some(strike) = self.pending.take_if(is_late) else { return Ok(()) };
        let within_ms = strike.within_us() / 1000;
        let ChainStrike { victims, said, after, .. } = strike;
        let named: Vec<String> = victims.iter().map(|one| wire::ReplicaId(*one).to_string()).collect();
        Err(format!(
            "the group said that {said} may fail, {after} hit {}, and no command was answered for {within_ms} ms: {}",
            named.join(" and "),
            state()
        ))
    }

    /// What the group says while no fault is left: how many may fail, of f, and why not more.
    ///
    /// # Errors
    /// When it says for too long that it is not whole, or does not say why.
    pub fn observe(&mut self, now_us: u64, (said, f): (u64, u64), why: Option<&str>) -> Broken {
        if said >= f {
            (self.less_since_us, self.silent_since_us) = (None, None);
            return Ok(());
        }
        if why.is_some() {
            self.silent_since_us = None;
        } else if now_us > *self.silent_since_us.get_or_insert(now_us) + SILENT_US {
            return Err(format!("the group says for 5 s that {said} of {f} may fail, without a reason"));
        }
        if now_us > *self.less_since_us.get_or_insert(now_us) + WHOLE_WITHIN_US {
            return Err(format!(
                "no fault is left for 30 s, and the group says that {said} of {f} may fail: {}",
                why.unwrap_or_default()
            ));
        }
        Ok(())
    }

    /// Faults are injected again.
    pub fn disturb(&mut self) {
        (self.less_since_us, self.silent_since_us) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_strike() -> Tolerates {
        let mut promise = Tolerates::default();
        let victims = BTreeSet::from([1]);
        promise.strike(ChainStrike { at_us: 1_000, first: 7, victims, said: 1, after: "kill".into() });
        promise
    }

    #[test]
    fn only_a_later_command_at_another_replica_shows_that_the_group_serves() {
        let mut promise = after_strike();
        assert_eq!(promise.answered(6, 0, 2_000), None, "it was sent before");
        assert_eq!(promise.answered(7, 1, 2_000), None, "the victim answers");
        assert!(promise.look(2_000_000, String::new).is_ok() && promise.waits());
        assert_eq!(promise.answered(7, 0, 2_000), Some(1_000));
        assert!(promise.look(9_000_000, String::new).is_ok());
        assert!(
            after_strike().look(9_000_000, || "hangs".into()).unwrap_err().contains("1 may fail, kill hit 2")
        );
    }

    #[test]
    fn a_group_that_is_whole_reports_it() {
        let mut promise = Tolerates::default();
        assert!(promise.observe(0, (0, 1), Some("replica 2 joins")).is_ok());
        assert!(promise.observe(WHOLE_WITHIN_US, (0, 1), Some("replica 2 joins")).is_ok());
        assert!(promise.observe(WHOLE_WITHIN_US + 1, (0, 1), Some("replica 2 joins")).is_err());
        assert!(promise.observe(WHOLE_WITHIN_US + 2, (1, 1), None).is_ok());
        assert!(promise.observe(WHOLE_WITHIN_US + 3, (0, 1), None).is_ok());
        assert!(
            promise.observe(WHOLE_WITHIN_US + 4 + SILENT_US, (0, 1), None).unwrap_err().contains("reason")
        );
    }
}
