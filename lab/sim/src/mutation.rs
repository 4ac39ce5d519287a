//! Shows that each checker can fail: promises broken on purpose, as data, with the checkers that must notice.

use std::collections::BTreeSet;

use crosscheck::faults::Sabotage;
use verify::Rules;

use crate::memcached::OfMemcached;
use crate::plan::Faults;
use crate::run::{Breach, Options, Where, simulate};
use crate::workload::Workload;

/// A promise that is broken on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// Its name.
    pub name: &'static str,
    /// The broken code.
    pub what: &'static str,
    /// Its place, and the change.
    pub sabotage: &'static [(Breach, Where)],
    /// Faults that reveal it, as `--faults` names them.
    pub faults: &'static str,
    /// The checker that has to notice.
    pub expects: &'static str,
    /// Replicas execute first and verify afterwards: mode `R0GV`.
    pub verified: bool,
    /// Batches have many requests.
    pub dense: bool,
    /// Chains of strikes reveal it.
    pub chains: bool,
    /// Strikes at a copy of the state reveal it.
    pub copies: bool,
    /// All machines are busy.
    pub busy: bool,
    /// The group that reveals it has two replicas, and not three.
    pub two: bool,
    /// The first seed: some are revealed rarely.
    pub first: u64,
}

use Breach::Pipeline as P;
use Sabotage as S;
use Where::{All, One};

/// Seeds after which a checker that has noticed nothing has failed. Some are revealed rarely: a write that is torn
/// where a record can look complete shows in one run of eight.
pub const SEEDS: u64 = 60;

/// All of them; each promise is expected at least once.
pub const MUTATIONS: [Mutation; 50] = [
    mutation(
        "unvoted",
        "replies leave when the request has run",
        &[(P(S::ReleasesUnvoted), All)],
        "none",
        "votes",
    ),
    mutation(
        "unvoted-wrong",
        "replies leave when the request has run, and some are rendered wrong",
        &[(P(S::ReleasesUnvoted), All)],
        "reply",
        "replies",
    ),
    mutation(
        "twice",
        "a replica orders every request a second time",
        &[(P(S::SubmitsTwice), One)],
        "none",
        "once",
    ),
    mutation(
        "again",
        "a replica orders what a struck queue gives it a second time",
        &[(P(S::BelievesQueue), All)],
        "queue",
        "once",
    ),
    mutation(
        "stale",
        "a connection is given its last reply again",
        &[(P(S::ReleasesStale), One)],
        "none",
        "linear",
    ),
    mutation("skip", "a replica leaves a batch out", &[(P(S::SkipsBatch), One)], "none", "order"),
    mutation(
        "count",
        "the worker of a replica counts one position too many",
        &[(P(S::LosesCount), One)],
        "none",
        "turns",
    ),
    mutation(
        "clock",
        "replicas stamp with their own clocks, and believe any stamp",
        &[(P(S::BelievesClocks), All)],
        "clock,stamp",
        "time",
    )
    .from(3),
    mutation(
        "clock-verified",
        "the same in mode R0GV: a replica runs a batch whatever its primary's stamp",
        &[(P(S::BelievesClocks), All)],
        "clock,stamp",
        "time",
    )
    .with_v(),
    mutation(
        "misplace",
        "all replicas execute some writes with another last byte",
        &[(P(S::Misplaces), All)],
        "none",
        "survives",
    )
    .from(3),
    mutation(
        "unheard",
        "a replica executes some writes wrong, and neither sends nor hears a CHECK",
        &[(P(S::Misplaces), One), (P(S::MutesVotes), One), (P(S::NeverRepairs), All)],
        "none",
        "equal",
    ),
    mutation(
        "install",
        "a repair writes other bytes than f+1 replicas agreed on",
        &[(P(S::FlipsInstalled), All)],
        "flip",
        "repairs",
    ),
    mutation("blame", "evidence names the next replica", &[(P(S::BlamesNeighbour), All)], "flip", "blame"),
    mutation(
        "alarm",
        "a replica's digests differ although its results do not",
        &[(P(S::DiffersAtTimes), One)],
        "none",
        "alarms",
    ),
    mutation(
        "unrepaired",
        "no repair is ever proposed",
        &[(P(S::NeverRepairs), All)],
        "in-request",
        "progress",
    ),
    mutation(
        "checkpoints-together",
        "replicas write a checkpoint to the disk while they write another one",
        &[(P(S::WritesTogether), All)],
        "disk",
        "disk",
    )
    .from(3),
    mutation(
        "unnamed-changes-on-disk",
        "a checkpoint on disk lacks what requests have changed since the one before",
        &[(P(S::ForgetsChanges), All)],
        "power",
        "alarms",
    ),
    mutation(
        "unsynced",
        "replicas acknowledge what they have not synced",
        &[(Breach::UnsyncedDisk, All)],
        "blackout",
        "disk",
    ),
    mutation(
        "begun",
        "each process of replica 1 is told that the group is to begin",
        &[(Breach::AlwaysReported, All)],
        "memories",
        "founding",
    )
    .from(6),
    mutation(
        "untold",
        "replicas do not tell their peers the settings of the service",
        &[(Breach::UnsentSettings, All)],
        "settings",
        "peers",
    ),
    mutation(
        "open",
        "the group's key is one that strangers have",
        &[(Breach::KnownKey, All)],
        "stranger",
        "peers",
    ),
    mutation(
        "hasty",
        "a watchdog asks nobody whether what takes long takes long elsewhere, too",
        &[(P(S::AsksNobody), All)],
        "slow",
        "patience",
    ),
    mutation(
        "batches",
        "a watchdog looks at batches, and not at the requests in them",
        &[(P(S::CountsBatches), All)],
        "slow-core",
        "progress",
    ),
    mutation(
        "object",
        "evidence names the object behind another lock",
        &[(P(S::BlamesOtherObject), All)],
        "flip",
        "objects",
    ),
    mutation(
        "hoard",
        "a replica never forgets how it ran a batch",
        &[(P(S::Hoards), One)],
        "pause",
        "bounds",
    ),
    mutation(
        "torn",
        "a torn record of the log passes for a whole one",
        &[(Breach::TornBelieved, All)],
        "power,blackout",
        "disk",
    ),
    mutation(
        "unverified",
        "a batch is taken for stable when it has ended",
        &[(P(S::BelievesItself), All)],
        "none",
        "released",
    )
    .with_v(),
    mutation(
        "own-state",
        "a batch is taken for stable when it has ended, and some replica has another state",
        &[(P(S::BelievesItself), All)],
        "in-request",
        "stable",
    )
    .with_v(),
    mutation(
        "sessions",
        "requests of batches that were taken back count as executed",
        &[(P(S::KeepsSessions), All)],
        "in-request",
        "rewound",
    )
    .with_v(),
    mutation(
        "one-record",
        "replicas act on what one verifier has recorded",
        &[(Breach::Verification(Rules { quorum: false, ..Rules::ALL }), All)],
        "crash,loss,view-storm",
        "released",
    )
    .with_v(),
    mutation(
        "unseen",
        "replicas move a number to another machine that none of them has seen",
        &[(P(S::VouchesUnseen), All)],
        "none",
        "progress",
    ),
    mutation(
        "struck",
        "a batch is taken for stable when it has ended, at a replica that a fault has hit",
        &[(P(S::BelievesItself), All)],
        "in-request,skip",
        "valid",
    )
    .with_v(),
    mutation(
        "undo-order",
        "requests are taken back in the order in which they ran",
        &[(P(S::UndoesUnsorted), All)],
        "view-storm",
        "rewound",
    )
    .dense(),
    mutation(
        "lost-changes",
        "of some requests neither the tree nor a rollback knows",
        &[(P(S::LosesKept), All)],
        "view-storm",
        "tree",
    )
    .with_v(),
    mutation(
        "streams",
        "the mixer does not keep the order of a connection's requests",
        &[(P(S::ForgetsStreams), All)],
        "none",
        "linear",
    )
    .with_v(),
    mutation(
        "unsorted",
        "a batch that is to run one request at a time runs as any other",
        &[(P(S::IgnoresSequential), All)],
        "interleave",
        "masked",
    )
    .dense(),
    mutation(
        "one-answer",
        "a read without a batch asks no verifier but the one of its own replica",
        &[(Breach::Verification(Rules { read_quorum: false, ..Rules::ALL }), All)],
        "pause,loss,delay",
        "linear",
    )
    .with_v(),
    mutation(
        "early-reads",
        "the reply to a read without a batch leaves before its version is stable",
        &[(P(S::ReadsUnstable), All)],
        "none",
        "released",
    )
    .with_v(),
    mutation(
        "lost-read",
        "the same, and a client has what is taken back",
        &[(P(S::ReadsUnstable), All)],
        "in-request,skip",
        "replies",
    )
    .with_v(),
    mutation(
        "uncompared-reads",
        "a reply without a batch leaves although others have read another; nothing is repaired",
        &[(P(S::ReadsUncompared), All), (P(S::NeverRepairs), All)],
        "reseal",
        "replies",
    )
    .from(10),
    mutation(
        "two-words",
        "a replica sends a second token for a batch, in place of one that comes later",
        &[(P(S::SendsTwoTokens), One)],
        "none",
        "votes-once",
    )
    .with_v(),
    mutation(
        "boast",
        "the group says that f replicas may fail, whatever has happened to it",
        &[(Breach::Boasts, All)],
        "none",
        "tolerates",
    )
    .with_chains(),
    mutation(
        "ordered-only",
        "a replica that has everything waits until another one can vouch for it",
        &[(P(S::OrdersFirst), All)],
        "none",
        "comes-back",
    )
    .with_chains(),
    mutation(
        "half-joined",
        "of two replicas, one that lags counts as the second copy",
        &[(Breach::Verification(Rules { level: false, ..Rules::ALL }), All)],
        "none",
        "tolerates",
    )
    .of_two()
    .from(14),
    mutation(
        "advice",
        "the operator is advised to go on with the first replica, whatever others have",
        &[(P(S::AdvisesFirst), All)],
        "memories",
        "advice",
    ),
    mutation(
        "impatient",
        "a verifier waits 150 ms for a batch, however long batches take",
        &[(Breach::Verification(Rules { measured_patience: false, ..Rules::ALL }), All)],
        "none",
        "alarms",
    )
    .busy(),
    mutation(
        "accuser",
        "a replica that was just stopped itself says that the leader's clock is wrong",
        &[(P(S::AccusesInDoubt), All)],
        "suspend,in-request",
        "blame",
    )
    .with_v()
    .from(31),
    mutation(
        "one-donor",
        "a replica takes the state that one donor alone offers, while copies of the state are hit",
        &[(P(S::TakesFromOne), All)],
        "none",
        "copies",
    )
    .of_copies()
    .from(22),
    mutation(
        "unnamed-changes",
        "a copy of the state does not learn what requests change while it is made",
        &[(P(S::ForgetsChanges), All)],
        "crash",
        "alarms",
    ),
    mutation(
        "dropped-rest",
        "what is left of a copy of the state at its checkpoint is dropped",
        &[(P(S::DropsRest), All)],
        "crash",
        "alarms",
    ),
];

const fn mutation(
    name: &'static str,
    what: &'static str,
    sabotage: &'static [(Breach, Where)],
    faults: &'static str,
    expects: &'static str,
) -> Mutation {
    Mutation {
        name,
        what,
        sabotage,
        faults,
        expects,
        verified: false,
        dense: false,
        chains: false,
        copies: false,
        busy: false,
        two: false,
        first: 1,
    }
}

impl Mutation {
    const fn with_v(self) -> Self {
        Mutation { verified: true, ..self }
    }

    const fn with_chains(self) -> Self {
        Mutation { chains: true, ..self }
    }

    const fn of_copies(self) -> Self {
        Mutation { copies: true, ..self }
    }

    const fn busy(self) -> Self {
        Mutation { verified: true, busy: true, ..self }
    }

    /// Two replicas on busy machines, and chains of strikes: one that lags does so for a while.
    const fn of_two(self) -> Self {
        Mutation { verified: true, busy: true, two: true, chains: true, ..self }
    }

    /// The first seed is this one.
    const fn from(self, first: u64) -> Self {
        Mutation { first, ..self }
    }

    const fn dense(self) -> Self {
        Mutation { verified: true, dense: true, ..self }
    }
}

/// What came of a mutation.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The checkers that noticed.
    pub broken: BTreeSet<&'static str>,
    /// The last seed that was needed.
    pub seed: u64,
}

/// The promises that broke over the first `seeds` seeds with memcached; it ends early when the expected one has.
pub fn caught(mutation: &Mutation, seeds: u64) -> Caught {
    caught_with(&OfMemcached::default(), mutation, seeds)
}

/// As [`caught`], with another service.
pub fn caught_with<W: Workload>(workload: &W, mutation: &Mutation, seeds: u64) -> Caught {
    let mut caught = Caught { broken: BTreeSet::new(), seed: mutation.first };
    let faults = Faults::parse(mutation.faults).unwrap_or(Faults::None);
    let options = Options {
        requests: 400,
        clients: if mutation.dense { 40 } else { Options::default().clients },
        episodes: 2,
        disk: faults.are_of_disks(),
        verified: mutation.verified,
        dense: mutation.dense,
        chains: mutation.chains,
        copies: mutation.copies,
        busy: mutation.busy,
        replicas: if mutation.two { 2 } else { Options::default().replicas },
        workers: if mutation.verified { 2 } else { 1 },
        faults,
        sabotage: mutation.sabotage.to_vec(),
        until: Some(mutation.expects),
        ..Options::default()
    };
    for seed in mutation.first..mutation.first + seeds {
        caught.seed = seed;
        caught.broken.extend(simulate(workload, seed, &options).broken);
        if caught.broken.contains(mutation.expects) {
            break;
        }
    }
    caught
}
