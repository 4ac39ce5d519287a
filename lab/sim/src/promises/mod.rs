//! One file per promise: what CrossCheck claims to happen never, or always, as code that checks it after every step.

mod alarms;
mod blame;
mod bounds;
mod copies;
mod disk;
mod equal;
mod founding;
mod linear;
mod masked;
mod objects;
mod once;
mod order;
mod released;
mod repairs;
mod replies;
mod rewound;
mod stable;
mod survives;
mod time;
pub mod tolerates;
mod tree;
mod turns;
mod valid;
mod votes;
mod votes_once;

use crosscheck::stepped::Occupancy;

use crate::client::SentCommand;
use crate::facts::Facts;
use crate::log::Reopened;
use crate::reference::Reference;
use crate::world::Observed;

/// The name of a promise, and its source.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name in reports.
    pub name: &'static str,
    /// The section of the paper (EDCC'16), or of ARCHITECTURE.md, that states it.
    pub section: &'static str,
    /// The promise.
    pub promise: &'static str,
    /// How it is checked.
    pub check: &'static str,
}

/// A broken promise: how.
pub type Broken = Result<(), String>;

/// The checker of one promise.
pub trait Promise {
    /// The promise that it checks.
    fn about(&self) -> About;

    /// An action of a replica.
    ///
    /// # Errors
    /// How the promise was broken.
    fn see(&mut self, _observed: &Observed, _facts: &Facts) -> Broken {
        Ok(())
    }

    /// A replica made a step, and has this much state now.
    ///
    /// # Errors
    /// How the promise was broken.
    fn stepped(&mut self, _replica: u8, _loads: &[Occupancy]) -> Broken {
        Ok(())
    }

    /// A client got an answer; the model knows the right one.
    ///
    /// # Errors
    /// How the promise was broken.
    fn answered(
        &mut self,
        _sent: &SentCommand,
        _reply: &[u8],
        _facts: &Facts,
        _model: &mut dyn Reference,
    ) -> Broken {
        Ok(())
    }

    /// A replica's process opened its log on disk.
    ///
    /// # Errors
    /// How the promise was broken.
    fn reopened(&mut self, _replica: u8, _reopened: &Reopened<'_>) -> Broken {
        Ok(())
    }

    /// All faults are over, everything has healed, and every client has read every key.
    ///
    /// # Errors
    /// How the promise was broken.
    fn at_end(&mut self, _facts: &Facts, _end: &RunEnd, _model: &mut dyn Reference) -> Broken {
        Ok(())
    }
}

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub struct RunEnd {
    /// Digest of the whole state, per replica, at one position.
    pub digests: Vec<u128>,
    /// Requests that are held, per replica.
    pub held: Vec<u64>,
    /// Disagreements, repairs and failed checks since its start, per replica.
    pub alarms: Vec<u64>,
    /// Evidence records of the whole run.
    pub evidence: u64,
}

/// All checkers, the most important first.
pub fn all() -> Vec<Box<dyn Promise>> {
    vec![
        Box::new(votes::Votes),
        Box::new(replies::Replies),
        Box::new(stable::Stable::default()),
        Box::new(released::Released::default()),
        Box::new(rewound::Rewound::default()),
        Box::new(valid::Valid::default()),
        Box::new(votes_once::VotesOnce::default()),
        Box::new(tree::Tree),
        Box::new(masked::Masked::default()),
        Box::new(order::Order),
        Box::new(turns::Turns::default()),
        Box::new(time::Time::default()),
        Box::new(once::Once),
        Box::new(linear::Linear::default()),
        Box::new(survives::Survives),
        Box::new(founding::Founding::default()),
        Box::new(disk::Disk),
        Box::new(equal::Equal),
        Box::new(copies::TakenStates::default()),
        Box::new(repairs::PackedRepairs::default()),
        Box::new(blame::Blame),
        Box::new(objects::Objects),
        Box::new(bounds::Bounds),
        Box::new(alarms::Alarms),
    ]
}

/// The promise with this name, where the simulation itself finds that it is broken.
pub fn about(name: &str) -> About {
    all().iter().map(|promise| promise.about()).find(|about| about.name == name).unwrap_or(PROGRESS)
}

/// The promises that the simulation itself checks, because it knows all connections and durations.
pub const OF_THE_RUN: [About; 6] =
    [PEERS, PATIENCE, tolerates::TOLERATES, tolerates::COMES_BACK, ADVICE, PROGRESS];

/// The permitted connections.
pub const PEERS: About = About {
    name: "peers",
    section: "server/crosscheck/src/peers (Noise with the group's key; what has to be equal)",
    promise: "A replica talks only to replicas that have the group's key and the same settings. Whoever has \
        not comes into nobody's place, and nothing that he sends gets further; he is counted, or his \
        setting named at both ends, and none of it is taken for corruption.",
    check: "Strangers call replicas with noise, with what peers have said before, and as peers with another \
        key. No such connection ever becomes a peer's, and each that says what no peer says is counted. A \
        process that is started with another setting is connected to nobody and serves nobody; when it has \
        run for 3 s, both ends name the setting.",
};

/// The processes that a watchdog ends.
pub const PATIENCE: About = About {
    name: "patience",
    section: "EDCC'16 section IV-C (watchdog); ARCHITECTURE.md, While replicas are away",
    promise: "No replica ends itself for a slowness that f others share, nor while its requests end, \
        however slowly; a replica whose handler hangs is replaced.",
    check: "Simulated time passes while handlers run. When a watchdog ends a process, its handler hangs, or \
        another fault than slowness has struck it since all was equal. A handler that hangs never ends: \
        without its watchdog the replica does not heal.",
};

/// What the operator of a group that cannot go on is advised to do.
pub const ADVICE: About = About {
    name: "advice",
    section: "docs/operations.md (group keep)",
    promise: "Where the status of a group that cannot go on by itself names a replica with whose data it can, no \
        replica that is there has more.",
    check: "More memories are lost than the group survives. The operator, who looks when all replicas are there again, \
        does what their status says: the log of the replica that is named ends where the longest one ends that any \
        of them has.",
};

/// The run's own knowledge.
pub const PROGRESS: About = About {
    name: "progress",
    section: "EDCC'16 section IV-C; ARCHITECTURE.md, Recovery of one object and State transfer",
    promise: "When the faults are over, everything heals and every command is answered.",
    check: "After every fault, and at the end, all replicas serve, hold nothing and have equal digests \
        within a bounded simulated time; then every client reads every key. In mode R0GV: within 30 s the \
        batch of the digest is stable at every replica, every verifier has a memory, and no client gives up \
        on a command that it sent when the faults had been over for a second.",
};
