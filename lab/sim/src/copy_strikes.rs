//! Strikes at the steps of a copy of the state: one replica needs a state, and while the others make it in parts, and
//! while it arrives, they are hit (`run/copies.rs`).

use crosscheck::admin::Corruption;
use wire::SplitMix64;

use crate::rng::stream;
use crate::run::Options;

/// The step of a copy at which a strike comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMoment {
    /// A replica has made so many parts, and not the checkpoint.
    Parts(u32),
    /// The checkpoint was made.
    Made,
    /// Some pieces of the state have arrived at the receiver, and not the last one.
    Arriving,
    /// The receiver has the state, and is no voter yet.
    Joining,
}

impl CopyMoment {
    /// In a trace, and in the summary of a campaign.
    pub fn name(self) -> &'static str {
        match self {
            CopyMoment::Parts(_) => "parts",
            CopyMoment::Made => "made",
            CopyMoment::Arriving => "arriving",
            CopyMoment::Joining => "joining",
        }
    }
}

/// Whom a strike hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyVictim {
    /// The leader, which orders the parts.
    Leader,
    /// A replica that makes the parts and does not lead.
    Follower,
    /// A replica that needs the state.
    Receiver,
}

/// What a strike does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyBlow {
    /// The process ends, and starts again; without a disk it needs a state then, too.
    Kill,
    /// The process ends, its disk is empty, and it starts again: it needs a state then, too.
    Lose,
    /// It stops for so many microseconds.
    Pause(u64),
    /// What it makes of the copy, or an object, is corrupted.
    Corrupt(Corruption),
}

impl CopyBlow {
    /// In a trace, and in the summary of a campaign.
    pub fn name(self) -> String {
        match self {
            CopyBlow::Kill => "kill".to_owned(),
            CopyBlow::Lose => "lose".to_owned(),
            CopyBlow::Pause(_) => "pause".to_owned(),
            CopyBlow::Corrupt(kind) => kind.to_string(),
        }
    }
}

/// A strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyStrike {
    /// When.
    pub at: CopyMoment,
    /// So much later, in microseconds.
    pub delay_us: u64,
    /// Whom.
    pub whom: CopyVictim,
    /// What.
    pub blow: CopyBlow,
    /// Decides all details.
    pub seed: u64,
}

/// An episode: how a replica comes to need a state, and what happens then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyEpisode {
    /// Decides which replica needs the state.
    pub receiver: u64,
    /// How it comes to that.
    pub first: CopyBlow,
    /// The strikes, one after the other.
    pub strikes: Vec<CopyStrike>,
}

/// The corruptions of a copy, and of an object while it is copied.
const CORRUPTIONS: [Corruption; 6] = [
    Corruption::Unnamed,
    Corruption::Cursor,
    Corruption::Part,
    Corruption::Piece,
    Corruption::Flip,
    Corruption::Lost,
];

/// In verified mode also faults in a request: batches are rolled back, of which parts were packed.
const IN_A_REQUEST: [Corruption; 3] = [Corruption::Skip, Corruption::Skip, Corruption::Twice];

/// The episode `number` of a seed.
pub fn episode(seed: u64, number: u64, options: &Options) -> CopyEpisode {
    let mut rng = stream(seed, 5000 + number);
    // As long as it takes until the others have dropped the log that it lacks.
    let away = CopyBlow::Pause(rng.within(1_500_000, 4_000_000));
    let first = match options.disk {
        false => *rng.pick(&[CopyBlow::Kill, CopyBlow::Kill, CopyBlow::Kill, away]),
        true => *rng.pick(&[CopyBlow::Lose, CopyBlow::Lose, CopyBlow::Lose, away]),
    };
    let count = *rng.pick(&[1, 1, 2, 3]);
    let strikes = (0..count).map(|_| strike(options, &mut rng)).collect();
    CopyEpisode { receiver: rng.next_u64(), first, strikes }
}

fn strike(options: &Options, rng: &mut SplitMix64) -> CopyStrike {
    let parts = CopyMoment::Parts(*rng.pick(&[1, 1, 2, 3, 5]));
    let at = *rng.pick(&[parts, parts, parts, CopyMoment::Made, CopyMoment::Arriving, CopyMoment::Joining]);
    let end = if options.disk && rng.chance(400) { CopyBlow::Lose } else { CopyBlow::Kill };
    let pause = CopyBlow::Pause(rng.within(50_000, 3_000_000));
    let more: &[Corruption] = if options.verified { &IN_A_REQUEST } else { &[] };
    let corrupts = CopyBlow::Corrupt(*rng.pick(&[&CORRUPTIONS, more].concat()));
    let blow = *rng.pick(&[end, end, pause, corrupts, corrupts, corrupts]);
    let donors = [CopyVictim::Leader, CopyVictim::Follower];
    let whom = match blow {
        CopyBlow::Corrupt(_) => *rng.pick(&donors),
        _ => *rng.pick(&[donors[0], donors[1], CopyVictim::Receiver]),
    };
    // Within a step of the copy, or between two.
    let delay_us = *rng.pick(&[0, 0, 1_000, 5_000]);
    CopyStrike { at, delay_us: rng.modulo(delay_us + 1), whom, blow, seed: rng.next_u64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strike_is_drawn() {
        let options = Options::default();
        let strikes: Vec<_> = (0..400).flat_map(|seed| episode(seed, 0, &options).strikes).collect();
        for name in ["parts", "made", "arriving", "joining"] {
            assert!(strikes.iter().any(|strike| strike.at.name() == name), "{name}");
        }
        let blows = CORRUPTIONS.map(CopyBlow::Corrupt).into_iter().chain([CopyBlow::Kill]);
        for blow in blows {
            assert!(strikes.iter().any(|strike| strike.blow == blow), "{blow:?}");
        }
        let on_disk = Options { disk: true, ..options.clone() };
        assert!((0..9).any(|seed| episode(seed, 0, &on_disk).first == CopyBlow::Lose));
        let verified = Options { verified: true, ..options };
        let strikes: Vec<_> = (0..400).flat_map(|seed| episode(seed, 0, &verified).strikes).collect();
        for kind in CORRUPTIONS.into_iter().chain(IN_A_REQUEST) {
            assert!(strikes.iter().any(|strike| strike.blow == CopyBlow::Corrupt(kind)), "{kind:?}");
        }
    }
}
