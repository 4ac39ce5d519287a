//! Which verifiers of a group have their memory. Where they decide by majority, and fewer than a majority have it, none
//! of the others can recover: what a replica still has is kept by an operator's word only (`server/verify/src/verifier/
//! operator.rs`).

use std::collections::BTreeMap;

use wire::ReplicaId;

use super::{Speculator, Verified, layout};
use crate::limits;
use crate::replica::environment::Environment;
use crate::replica::group::{Group, OtherVerifier};
use crate::replica::replica_sets::{are, bits, names};
use crate::replica::waits::Wait;
use crate::service::Service;
use crate::world::World;

/// The verifiers of a group that decides by majority, as this replica knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Memories {
    me: u8,
    verifiers: u8,
    quorum: usize,
    /// Whether the own verifier has its memory.
    verifies: bool,
    /// The last stable batch here, if this replica executes.
    has: Option<u64>,
    /// The others that are connected, and were heard just now.
    others: Vec<OtherVerifier>,
}

impl Memories {
    /// Those that have it, as a mask.
    fn with(&self) -> u16 {
        let others = self.others.iter().filter(|other| other.verifies).map(|other| other.replica);
        bits(others) | u16::from(self.verifies) << self.me
    }

    /// Others that are here without, and in which incarnation they told that.
    fn blank(&self) -> BTreeMap<u8, u64> {
        let blank = self.others.iter().filter(|other| !other.verifies);
        blank.map(|other| (other.replica, other.incarnation)).collect()
    }

    /// Those that are not here.
    fn away(&self) -> u16 {
        let all = (1u16 << self.verifiers) - 1;
        all & !bits(self.others.iter().map(|other| other.replica)) & !(1 << self.me)
    }

    /// Whether those that have it cannot decide.
    pub(super) fn are_too_few(&self) -> bool {
        (self.with().count_ones() as usize) < self.quorum
    }

    /// How many more have to be here without memory before the group can go on with what this replica has: else those
    /// that are away may be a majority.
    fn missing_witnesses(&self) -> usize {
        self.quorum.saturating_sub(1 + self.blank().len())
    }

    /// Who has the most of those that have data and memory, and up to which batch. Of two that have the same, the first
    /// one.
    fn has_most(&self) -> Option<(u8, u64)> {
        let others = self.others.iter().filter(|other| other.verifies);
        let others = others.filter_map(|other| Some((other.replica, other.has?)));
        let own = self.has.filter(|_| self.verifies).map(|has| (self.me, has));
        others.chain(own).max_by_key(|(replica, has)| (*has, u8::MAX - replica))
    }

    /// For an operator, when too few have it.
    fn waits(&self) -> Wait {
        let (with, blank, away) = (self.with(), bits(self.blank().into_keys()), self.away());
        let has = if with.count_ones() == 1 { "has" } else { "have" };
        let mut why = vec![format!("only {} {has} it", names(with))];
        if blank != 0 {
            why.push(format!("{} here without, since a process that ends loses it", are(blank)));
        }
        if away != 0 {
            why.push(format!("{} not connected", are(away)));
        }
        let (quorum, verifiers) = (self.quorum, self.verifiers);
        let what = format!("for {quorum} of {verifiers} verifiers with their memory: {}", why.join(", "));
        let Some((replica, has)) = self.has_most() else {
            return Wait::or(
                format!("{what}. No replica that is here has data"),
                "if all data is lost for ever, end all replicas, start them again, and `crosscheck group begin` begins \
                    an empty group"
                    .to_owned(),
            );
        };
        let number = ReplicaId(replica);
        if replica != self.me {
            return Wait::only(format!(
                "{what}. Of those, replica {number} has the most, up to batch {has}: its status says what can be done"
            ));
        }
        let first = match self.missing_witnesses() {
            0 => String::new(),
            more => format!("start {more} more of the others, without data if it is lost for ever; then "),
        };
        Wait::or(
            format!("{what}. Those that are away may still have it: let them run on, or connect them"),
            format!(
                "if it is lost for ever, {first}`crosscheck group keep {number}` goes on with what replica {number} \
                    has, up to batch {has}: no replica that is here has more"
            ),
        )
    }
}

impl Verified {
    /// What is known of the memories of the verifiers; none where a majority does not decide.
    pub(super) fn memories<W: World>(&self, group: &Group, env: &Environment<W>) -> Option<Memories> {
        let layout = layout(&env.settings);
        if env.settings.is_pair() {
            return None;
        }
        let connected = bits(env.peers.connected());
        let others = group.verifiers(env.world.now_us());
        Some(Memories {
            me: env.settings.me,
            verifiers: layout.verifiers(),
            quorum: layout.quorum(),
            verifies: self.verifier.record().is_some(),
            has: (self.speculation.is_some() || self.is_lent || self.rolling_back.is_some())
                .then(|| self.stable()),
            others: others.filter(|other| connected >> other.replica & 1 == 1).collect(),
        })
    }

    /// What this replica waits for where too few verifiers have their memory, and some have.
    pub(super) fn waits_for_memories<W: World>(&self, group: &Group, env: &Environment<W>) -> Option<Wait> {
        let memories = self.memories(group, env)?;
        let lasts = self.lasts_too_long(env.world.now_us());
        (lasts && memories.are_too_few() && memories.with() != 0).then(|| memories.waits())
    }

    /// Whether too few verifiers have had their memory for longer than it takes to recover, or to be connected again.
    fn lasts_too_long(&self, now_us: u64) -> bool {
        let patience_us = limits::MEMORY_PATIENCE.as_micros() as u64;
        self.losses.too_few_since.is_some_and(|since_us| now_us.saturating_sub(since_us) >= patience_us)
    }
}

impl<S: Service, W: World> Speculator<'_, S, W> {
    /// Time passes: notes since when too few verifiers have their memory.
    pub(super) fn record_memory_losses(&mut self) {
        let are_too_few = self
            .stage
            .memories(&self.core.group, &self.core.env)
            .is_some_and(|memories| memories.are_too_few());
        let since_us = self.stage.losses.too_few_since.unwrap_or_else(|| self.core.env.world.now_us());
        self.stage.losses.too_few_since = are_too_few.then_some(since_us);
    }

    /// Whether too few verifiers have their memory, so that an operator may let the group go on with what this replica
    /// has: the incarnations of those that are here without, or why not.
    pub(super) fn lost_memories(&self) -> Result<BTreeMap<u8, u64>, String> {
        let Some(memories) = self.stage.memories(&self.core.group, &self.core.env) else {
            return Ok(BTreeMap::new());
        };
        if !memories.are_too_few() {
            return Err(format!(
                "{} have their memory, and that is a majority: there is nothing to decide",
                names(memories.with())
            ));
        }
        if !self.stage.lasts_too_long(self.core.env.world.now_us()) {
            return Err("a verifier may be about to recover; ask again in a second".to_owned());
        }
        match memories.missing_witnesses() {
            0 => Ok(memories.blank()),
            more => Err(format!(
                "{} not here, and may be a majority with its memory: start {more} of them first, without data if it is \
                    lost for ever",
                are(memories.away())
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(replica: u8, verifies: bool, has: Option<u64>) -> OtherVerifier {
        OtherVerifier { replica, incarnation: 70 + u64::from(replica), verifies, has }
    }

    /// Replica 3 of three, which has batch 17.
    fn third_of_three(others: Vec<OtherVerifier>) -> Memories {
        Memories { me: 2, verifiers: 3, quorum: 2, verifies: true, has: Some(17), others }
    }

    #[test]
    fn one_of_three_with_data_recommends_itself_after_a_minute() {
        let lost = third_of_three(vec![other(0, false, None), other(1, false, None)]);
        assert!(lost.are_too_few() && lost.missing_witnesses() == 0);
        assert_eq!(lost.blank(), BTreeMap::from([(0, 70), (1, 71)]));
        let reported = lost.waits().reported(true);
        assert!(
            reported.starts_with("for 2 of 3 verifiers with their memory: only replica 3 has it"),
            "{reported}"
        );
        assert!(reported.contains("replicas 1 and 2 are here without"), "{reported}");
        assert!(
            reported.contains("`crosscheck group keep 3`") && reported.contains("up to batch 17"),
            "{reported}"
        );
        let early = lost.waits().reported(false);
        assert!(!early.contains("group keep"), "{early}");
    }

    #[test]
    fn a_majority_with_memory_has_nothing_to_decide() {
        let well = third_of_three(vec![other(0, true, Some(17)), other(1, false, None)]);
        assert!(!well.are_too_few());
    }

    /// Nobody that has nothing names itself, and of two the one that has more.
    #[test]
    fn the_one_that_has_the_most_is_named() {
        let blank = Memories {
            me: 0,
            verifies: false,
            has: None,
            ..third_of_three(vec![other(1, false, None), other(2, true, Some(17))])
        };
        let reported = blank.waits().reported(true);
        assert!(reported.contains("replica 3 has the most, up to batch 17"), "{reported}");
        assert!(!reported.contains("group keep"), "{reported}");
        let five = |has| Memories {
            verifiers: 5,
            quorum: 3,
            has: Some(has),
            ..third_of_three(vec![
                other(0, true, Some(17)),
                other(1, false, None),
                other(3, false, None),
                other(4, false, None),
            ])
        };
        assert_eq!(five(16).has_most(), Some((0, 17)));
        assert_eq!(five(17).has_most(), Some((0, 17)), "of two that have the same, the first one");
        assert_eq!(five(18).has_most(), Some((2, 18)));
        assert!(!five(16).waits().reported(true).contains("group keep"));
        let none = third_of_three(vec![other(0, false, None), other(1, false, None)]);
        let none = Memories { has: None, ..none }.waits().reported(true);
        assert!(none.contains("No replica that is here has data") && none.contains("group begin"), "{none}");
    }

    /// Those that are away may be a majority with its memory.
    #[test]
    fn enough_others_have_to_be_here_without_memory() {
        let lost = Memories { verifiers: 5, quorum: 3, ..third_of_three(vec![other(0, false, None)]) };
        assert_eq!((lost.missing_witnesses(), lost.away()), (1, 0b11010));
        let reported = lost.waits().reported(true);
        assert!(reported.contains("start 1 more of the others"), "{reported}");
        let alone = third_of_three(Vec::new());
        assert!(alone.are_too_few() && alone.missing_witnesses() == 1);
        assert!(alone.waits().reported(true).contains("replicas 1 and 2 are not connected"));
    }
}
