//! Chains of strikes: while the victim of one still recovers, the next one hits another replica. Each hits no more
//! replicas than the group says at that moment that may fail (`run/chain.rs`).

use wire::SplitMix64;

use crate::rng::stream;
use crate::run::Options;

/// When a strike comes: by the progress of the victim before, and not by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trigger {
    /// At once.
    AtOnce,
    /// The victim before moves again.
    Resumed,
    /// It lags by so many batches at most.
    Lags(u64),
    /// It lacks entries that the leader has dropped.
    PastLog,
    /// A state is offered.
    Offered,
    /// The first pieces of a state have arrived, and not the last one.
    Pieces,
    /// A whole state has arrived.
    Installed,
    /// The earlier incarnation of the victim before is no member any more.
    Removed,
    /// Its new incarnation is a learner.
    Learner,
    /// Its new incarnation is a voter, or an executor of a view.
    Joined,
    /// A verifier knows a later view than its executor follows.
    Promised,
    /// Another replica leads.
    NewLeader,
    /// The group says that a replica may fail.
    Tolerated,
}

impl Trigger {
    /// All that a group of this kind may come to.
    const ALL: [Trigger; 14] = [
        Trigger::AtOnce,
        Trigger::Resumed,
        Trigger::Lags(64),
        Trigger::Lags(8),
        Trigger::Lags(1),
        Trigger::PastLog,
        Trigger::Offered,
        Trigger::Pieces,
        Trigger::Installed,
        Trigger::Removed,
        Trigger::Learner,
        Trigger::Joined,
        Trigger::NewLeader,
        Trigger::Promised,
    ];

    /// In a trace, and in the summary of a campaign.
    pub fn name(self) -> &'static str {
        match self {
            Trigger::AtOnce => "at-once",
            Trigger::Resumed => "resumed",
            Trigger::Lags(0..=1) => "lags-1",
            Trigger::Lags(2..=8) => "lags-8",
            Trigger::Lags(_) => "lags-window",
            Trigger::PastLog => "past-log",
            Trigger::Offered => "offered",
            Trigger::Pieces => "pieces",
            Trigger::Installed => "installed",
            Trigger::Removed => "removed",
            Trigger::Learner => "learner",
            Trigger::Joined => "joined",
            Trigger::Promised => "promised",
            Trigger::NewLeader => "new-leader",
            Trigger::Tolerated => "tolerated",
        }
    }
}

/// What a strike does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// The process ends, and starts again only when the group was seen to serve without it.
    Kill,
    /// It ends, its disk is empty, and it starts again at once.
    Lose,
    /// It stops for a while.
    Pause,
    /// No message arrives or leaves for a while.
    Cut,
}

/// Which replicas a strike prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The leader, or primary.
    Leader,
    /// One that does not lead.
    Follower,
    /// The victim before.
    Before,
}

/// A strike of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// When.
    pub after: Trigger,
    /// So much later, in microseconds.
    pub delay_us: u64,
    /// What it does.
    pub blow: Blow,
    /// To whom.
    pub whom: Whom,
    /// As many as may fail; else one.
    pub all: bool,
    /// For how long, in microseconds: of a killed one, from the moment on when the group was seen to serve.
    pub lasts_us: u64,
}

/// The chain of episode `number` of a seed.
pub fn chain(seed: u64, number: u64, options: &Options) -> Vec<Strike> {
    let mut rng = stream(seed, 2000 + number);
    let count = rng.within(2, 4);
    (0..count).map(|index| strike(index == 0, options, &mut rng)).collect()
}

fn strike(is_first: bool, options: &Options, rng: &mut SplitMix64) -> Strike {
    let after = if is_first { Trigger::AtOnce } else { *rng.pick(&Trigger::ALL) };
    // One of two that is silent may be followed by one that goes on alone, or not: an operator decides.
    let blow = match options.replicas {
        2 => *rng.pick(&[Blow::Kill, Blow::Kill, Blow::Lose]),
        _ => *rng.pick(&[Blow::Kill, Blow::Kill, Blow::Pause, Blow::Pause, Blow::Lose, Blow::Cut]),
    };
    let (short, some) = (rng.within(50_000, 1_000_000), rng.within(1_200_000, 5_000_000));
    let long = if rng.chance(150) { rng.within(5_000_000, 20_000_000) } else { some };
    Strike {
        after,
        delay_us: rng.modulo(5_001),
        blow,
        whom: *rng.pick(&[Whom::Leader, Whom::Leader, Whom::Follower, Whom::Before]),
        all: rng.chance(500),
        lasts_us: match blow {
            Blow::Kill => *rng.pick(&[0, short, some]),
            Blow::Lose => 0,
            Blow::Pause | Blow::Cut => *rng.pick(&[short + 250_000, long, long]),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trigger_and_every_blow_is_drawn() {
        let options = Options::default();
        let strikes: Vec<Strike> = (0..400).flat_map(|seed| chain(seed, 0, &options)).collect();
        for trigger in Trigger::ALL {
            assert!(strikes.iter().any(|strike| strike.after == trigger), "{trigger:?}");
        }
        for blow in [Blow::Kill, Blow::Lose, Blow::Pause, Blow::Cut] {
            assert!(strikes.iter().any(|strike| strike.blow == blow), "{blow:?}");
        }
        let two = Options { replicas: 2, verified: true, ..options };
        assert!((0..100).flat_map(|seed| chain(seed, 0, &two)).all(|strike| strike.blow != Blow::Pause));
    }
}
