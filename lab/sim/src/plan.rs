//! The faults of a run: drawn from its seed, one episode after the other.
//!
//! *Why a correct copy still exists.* The victims of a plan's episodes are at most f of 2f+1 replicas at a
//! time: an episode begins only when all effects of the one before have healed, which the run establishes from outside
//! (all replicas serve, no armed fault is left, and the digests of all states at one position are
//! equal, with objects that do not fit their checksums counted as different). So at every moment f+1 replicas
//! have not been touched since they were last known to be equal.
//!
//! Chains of strikes (`strikes.rs`) are another kind of episode. They corrupt nothing, and do not wait until all has
//! healed: a strike hits no more replicas than the group says at that step that may fail, and never more than f are
//! away at a time. That a copy is left which carries the group on is what the group said, and what is checked.
//!
//! Two faults affect more replicas, and no other fault is injected in their episodes. After a blackout no memory is
//! left and no disk is damaged, so the entries that a majority had synced are the correct copy. Where the memories of
//! more than f replicas are lost, an operator decides which copy is the correct one (`run/operator.rs`).

use std::collections::BTreeSet;

use crosscheck::{Behaviors, Reads};
use wire::SplitMix64;

use crate::fault::{CATALOGUE, SimFault, rests};
use crate::rng::stream;
use crate::run::Options;
use crate::world::RunScale;

/// With more faults than this in an episode, they follow each other closely.
const STORM: u64 = 20;

/// The faults that a run may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Faults {
    /// None: the run must go as without observation.
    None,
    /// Every kind.
    All,
    /// These.
    Only(Vec<SimFault>),
}

impl Faults {
    /// Reads `none`, `all`, `network`, `memory` and its parts `at-rest` and `mended`, `disk`, or names of the
    /// catalogue with commas between.
    ///
    /// # Errors
    /// The unknown name, and the known ones.
    pub fn parse(text: &str) -> Result<Self, String> {
        let only = |fits: fn(&SimFault) -> bool| {
            Faults::Only(CATALOGUE.iter().map(|entry| entry.fault).filter(fits).collect())
        };
        match text {
            "none" => return Ok(Faults::None),
            "all" => return Ok(Faults::All),
            "network" => return Ok(only(|fault| !fault.is_of_memory() && !fault.needs_disk())),
            "disk" => return Ok(only(|fault| fault.needs_disk())),
            "memory" => return Ok(only(|fault| fault.is_of_memory())),
            "at-rest" => {
                return Ok(only(|fault| matches!(fault, SimFault::Corruption(kind) if rests(*kind))));
            }
            "mended" => return Ok(only(|fault| fault.is_mended())),
            _ => {}
        }
        let find = |name: &str| CATALOGUE.iter().find(|entry| entry.name == name).map(|entry| entry.fault);
        let names: Vec<&str> = CATALOGUE.iter().map(|entry| entry.name).collect();
        let unknown = |name| {
            format!(
                "no fault is called `{name}`; use none, all, network, memory, at-rest, mended, disk, or {}",
                names.join(", ")
            )
        };
        let faults: Result<Vec<SimFault>, String> =
            text.split(',').map(|name| find(name.trim()).ok_or_else(|| unknown(name))).collect();
        faults.map(Faults::Only)
    }

    /// Whether these are faults of disks, and no other.
    pub fn are_of_disks(&self) -> bool {
        matches!(self, Faults::Only(faults) if faults.iter().all(|fault| fault.needs_disk()))
    }

    /// Whether this kind is among them.
    pub fn has(&self, fault: SimFault) -> bool {
        match self {
            Faults::None => false,
            Faults::All => true,
            Faults::Only(faults) => faults.contains(&fault),
        }
    }

    /// Those that can be injected, with logs on disk or in memory.
    fn kinds(&self, on_disk: bool) -> Vec<SimFault> {
        let mut kinds = match self {
            Faults::None => Vec::new(),
            Faults::All => CATALOGUE.iter().map(|entry| entry.fault).collect(),
            Faults::Only(faults) => faults.clone(),
        };
        kinds.retain(|fault| (on_disk || !fault.needs_disk()) && *fault != SimFault::Founding);
        kinds
    }

    /// Whether faults are injected into the founding of the group in the run of `seed`: one in four times, where all
    /// faults are mixed.
    fn strikes_founding(&self, draws: &mut SplitMix64) -> bool {
        self.has(SimFault::Founding) && (*self != Faults::All || draws.chance(250))
    }
}

/// Some faults at one set of at most f replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// Its number in the plan: with the seed it decides everything else.
    pub number: u64,
    /// Microseconds after everything has healed.
    pub after_us: u64,
    /// Duration of lasting faults.
    pub lasts_us: u64,
    /// The faults with their victims and times, in microseconds from the beginning of the episode.
    pub strokes: Vec<Stroke>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stroke {
    /// Its time.
    pub at_us: u64,
    /// Its victim.
    pub victim: u8,
    /// Its kind.
    pub fault: SimFault,
    /// Decides all details.
    pub seed: u64,
}

impl Episode {
    /// The replicas that it may corrupt.
    pub fn victims(&self, replicas: u8) -> BTreeSet<u8> {
        if self.strokes.iter().any(|stroke| stroke.fault.is_of_all()) {
            return (0..replicas).collect();
        }
        self.strokes.iter().map(|stroke| stroke.victim).collect()
    }
}

/// How replicas answer reads in the run of a seed: without a batch in every second pair of seeds in verified mode, and
/// in one seed of four where at least three replicas compare replies.
pub fn reads(seed: u64, options: &Options) -> Reads {
    let Options { verified, twice, replicas, .. } = options;
    let is_local = match verified {
        true => seed / 2 % 2 == 1,
        false => seed % 4 == 2 && *replicas > 2 && !twice,
    };
    if is_local { Reads::Local } else { Reads::Batch }
}

/// What a replica's process can act as, of all that its service knows: processes of a release before, in three of four
/// seeds, until the replica is started with this one. It never goes back. In one seed of eight, all are of a release
/// that knows only the newest.
pub fn behaviors(seed: u64, (replica, incarnation): (u8, u64), all: Behaviors) -> Behaviors {
    if seed % 8 == 5 {
        return Behaviors { oldest: all.newest, ..all };
    }
    let upgraded_at = match seed % 4 {
        0 => 1,
        _ => stream(seed, 200 + u64::from(replica)).within(1, 3),
    };
    if incarnation >= upgraded_at { all } else { Behaviors { newest: all.oldest, ..all } }
}

/// The bounds of logs and states in the run of a seed: small ones, but for one seed in eight.
pub fn scale(seed: u64, options: &Options) -> RunScale {
    if options.real_sizes || seed % 8 == 7 { RunScale::real() } else { RunScale::small() }
}

/// The episode `number` of a seed, with logs on disk or in memory.
pub fn episode(seed: u64, number: u64, options: &Options) -> Option<Episode> {
    let Options { replicas, faults, disk: on_disk, strokes: most, twice, verified, .. } = options;
    // A node that compares with itself masks one fault per request (SEI, NSDI'15, section 3).
    let (replicas, on_disk, most) = (*replicas, *on_disk, if *twice { 1 } else { *most });
    let mut kinds = faults.kinds(on_disk);
    kinds.retain(|fault| !twice || fault.is_masked_by_a_second_run());
    kinds.retain(
        |fault| if *verified { fault.is_survived_by_verification() } else { !fault.needs_verification() },
    );
    kinds.retain(|fault| replicas != 2 || fault.is_survived_by_two());
    kinds.retain(|fault| {
        !verified || reads(seed, options) == Reads::Batch || fault.is_survived_by_local_reads()
    });
    if kinds.is_empty() {
        return None;
    }
    let mut rng = stream(seed, 1000 + number);
    let mut all: Vec<u8> = (0..replicas).collect();
    let count = rng.within(1, u64::from(replicas / 2).max(1)) as usize;
    let victims: Vec<u8> = (0..count).map(|_| all.remove(rng.modulo(all.len() as u64) as usize)).collect();
    let lasts_us = rng.within(5_000, 1_500_000);
    let most = if rng.chance(300) { most } else { most.div_ceil(3) };
    // A storm is one throughout.
    let strokes = rng.within(if most > STORM { most / 2 } else { 1 }, most).max(count as u64);
    let stroke = |index: u64| Stroke {
        at_us: rng.modulo(lasts_us),
        victim: victims[index as usize % count],
        fault: *rng.pick(&kinds),
        seed: rng.next_u64(),
    };
    let mut strokes: Vec<Stroke> = (0..strokes).map(stroke).collect();
    strokes.sort_by_key(|stroke| stroke.at_us);
    if let Some(alone) = strokes.iter().find(|stroke| stroke.fault.comes_alone()).cloned() {
        strokes =
            if alone.fault == SimFault::Memories { lost_memories(&mut rng, replicas) } else { vec![alone] };
    }
    // No fault of one episode falls into the next, which has other victims.
    let lasts_us = strokes.last().map_or(lasts_us, |last| lasts_us.max(last.at_us));
    Some(Episode { number, after_us: rng.within(0, 200_000), lasts_us, strokes })
}

/// More than f memories that are lost, one after the other or at once; one time in three all memories.
fn lost_memories(rng: &mut SplitMix64, replicas: u8) -> Vec<Stroke> {
    let all = u64::from(replicas);
    let lost = if rng.chance(333) { all } else { rng.within(all / 2 + 1, all - 1) };
    let within_us = *rng.pick(&[1_000, 100_000, 3_000_000]);
    let mut left: Vec<u8> = (0..replicas).collect();
    let mut stroke = |_| Stroke {
        at_us: rng.modulo(within_us),
        victim: left.remove(rng.modulo(left.len() as u64) as usize),
        fault: SimFault::Memories,
        seed: rng.next_u64(),
    };
    let mut strokes: Vec<Stroke> = (0..lost).map(&mut stroke).collect();
    strokes.sort_by_key(|stroke| stroke.at_us);
    strokes
}

/// The faults during the founding of the group, in microseconds from the start.
pub fn founding(seed: u64, options: &Options) -> Vec<Stroke> {
    let mut rng = stream(seed, 999);
    if options.verified || !options.faults.strikes_founding(&mut rng) {
        return Vec::new();
    }
    let replicas = u64::from(options.replicas);
    // From the first start to a moment after the first leader; or all of them at one moment of that.
    let moment_us = rng.modulo(1_500_000);
    let (from_us, within_us) = *rng.pick(&[(0, 1_500_000), (moment_us, 50_000)]);
    let count = rng.within(1, 3 * replicas);
    let stroke = |_| Stroke {
        at_us: from_us + rng.modulo(within_us),
        victim: rng.modulo(replicas) as u8,
        fault: SimFault::Founding,
        seed: rng.next_u64(),
    };
    (0..count).map(stroke).collect()
}
