//! Each checker is seen to fail: promises broken on purpose, as data, and which checkers notice.

use std::collections::BTreeSet;

use crosscheck::stepped::Sabotage;

use crate::plan::Faults;
use crate::run::{Breach, Options, Where, run};

/// A promise that is broken on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// Its name.
    pub name: &'static str,
    /// What is broken.
    pub what: &'static str,
    /// Where, and how.
    pub sabotage: &'static [(Breach, Where)],
    /// Faults that bring it to light, as `--faults` names them.
    pub faults: &'static str,
    /// The checker that has to notice.
    pub expects: &'static str,
}

use Breach::Pipeline as P;
use Sabotage as S;
use Where::{All, One};

/// Seeds after which a checker that has noticed nothing has failed. What brings it to light is rare for some: a write that is torn where a
/// record can be taken for whole shows in one run of eight.
pub const SEEDS: u64 = 60;

/// All of them; each promise is expected at least once.
pub const MUTATIONS: [Mutation; 18] = [
    Mutation {
        name: "unvoted",
        what: "replies leave when the request has run",
        sabotage: &[(P(S::ReleasesUnvoted), All)],
        faults: "none",
        expects: "votes",
    },
    Mutation {
        name: "unvoted-wrong",
        what: "replies leave when the request has run, and some are rendered wrong",
        sabotage: &[(P(S::ReleasesUnvoted), All)],
        faults: "reply",
        expects: "replies",
    },
    Mutation {
        name: "twice",
        what: "a replica orders every request a second time",
        sabotage: &[(P(S::SubmitsTwice), One)],
        faults: "none",
        expects: "once",
    },
    Mutation {
        name: "again",
        what: "a replica orders what a struck queue gives it a second time",
        sabotage: &[(P(S::BelievesQueue), All)],
        faults: "queue",
        expects: "once",
    },
    Mutation {
        name: "stale",
        what: "a connection is given its last reply again",
        sabotage: &[(P(S::ReleasesStale), One)],
        faults: "none",
        expects: "linear",
    },
    Mutation {
        name: "skip",
        what: "a replica leaves a batch out",
        sabotage: &[(P(S::SkipsBatch), One)],
        faults: "none",
        expects: "order",
    },
    Mutation {
        name: "count",
        what: "the worker of a replica counts one position too many",
        sabotage: &[(P(S::LosesCount), One)],
        faults: "none",
        expects: "turns",
    },
    Mutation {
        name: "clock",
        what: "replicas stamp with their own clocks, and believe any stamp",
        sabotage: &[(P(S::BelievesClocks), All)],
        faults: "clock,stamp",
        expects: "time",
    },
    Mutation {
        name: "misplace",
        what: "all replicas execute some writes with another last byte",
        sabotage: &[(P(S::Misplaces), All)],
        faults: "none",
        expects: "survives",
    },
    Mutation {
        name: "unheard",
        what: "a replica executes some writes wrong, and neither sends nor hears a CHECK",
        sabotage: &[(P(S::Misplaces), One), (P(S::MutesVotes), One), (P(S::NeverRepairs), All)],
        faults: "none",
        expects: "equal",
    },
    Mutation {
        name: "install",
        what: "a repair writes other bytes than f+1 replicas agreed on",
        sabotage: &[(P(S::FlipsInstalled), All)],
        faults: "flip",
        expects: "repairs",
    },
    Mutation {
        name: "blame",
        what: "evidence names the next replica",
        sabotage: &[(P(S::BlamesNeighbour), All)],
        faults: "flip",
        expects: "blame",
    },
    Mutation {
        name: "alarm",
        what: "a replica's digests differ although its results do not",
        sabotage: &[(P(S::DiffersAtTimes), One)],
        faults: "none",
        expects: "alarms",
    },
    Mutation {
        name: "unrepaired",
        what: "no repair is ever proposed",
        sabotage: &[(P(S::NeverRepairs), All)],
        faults: "in-request",
        expects: "progress",
    },
    Mutation {
        name: "unsynced",
        what: "replicas acknowledge what they have not synced",
        sabotage: &[(Breach::UnsyncedDisk, All)],
        faults: "blackout",
        expects: "disk",
    },
    Mutation {
        name: "object",
        what: "evidence names the object behind another lock",
        sabotage: &[(P(S::BlamesOtherObject), All)],
        faults: "flip",
        expects: "objects",
    },
    Mutation {
        name: "hoard",
        what: "a replica never forgets how it ran a batch",
        sabotage: &[(P(S::Hoards), One)],
        faults: "pause",
        expects: "bounds",
    },
    Mutation {
        name: "torn",
        what: "a torn record of the log passes for a whole one",
        sabotage: &[(Breach::TornBelieved, All)],
        faults: "power,blackout",
        expects: "disk",
    },
];

/// Which promises broke over the first `seeds` seeds; it ends early when the expected one has.
pub fn caught(mutation: &Mutation, seeds: u64) -> BTreeSet<&'static str> {
    let mut broken = BTreeSet::new();
    let faults = Faults::parse(mutation.faults).unwrap_or(Faults::None);
    let options = Options {
        requests: 400,
        episodes: 2,
        disk: faults.are_of_disks(),
        faults,
        sabotage: mutation.sabotage.to_vec(),
        until: Some(mutation.expects),
        ..Options::default()
    };
    for seed in 1..=seeds {
        broken.extend(run(seed, &options).broken);
        if broken.contains(mutation.expects) {
            break;
        }
    }
    broken
}
