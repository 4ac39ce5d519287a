//! Whether a group that has its data always comes back: pairs of strikes on real processes, the second one as soon as
//! the group's `tolerates` permits it, in every kind of group, under clients that record the replies they get.
//!
//! The cluster, its clients, the checker and the troubles are those of a [`crate::run`]; [`driver`] decides when to
//! strike and when a group counts as hung, [`outcome`] has the results. A group that hangs is replaced by a fresh one,
//! so that a campaign shows how often it happens.

mod driver;
pub mod outcome;

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::plan::{Plan, Sequence, TroubleKind};
use crate::replica::slow_disk;
use crate::run::{Options, TrialCluster, TrialLoad};

use driver::{Driver, Stop, Terms};
use outcome::{Hang, Recovered};

/// The troubles, clients and values of every configuration.
const PLAN: &str = include_str!("../../plans/recovery.toml");
/// Its name.
pub const NAME: &str = "recovery";
/// Pairs per configuration.
pub const PAIRS: usize = 100;
/// Pairs per configuration of a quick run.
pub const QUICK_PAIRS: usize = 3;
/// Longest pause and cut of a quick run, in seconds.
const QUICK_SECONDS: f64 = 0.8;
/// Requests per second of a quick run, for builds that are not optimised.
const QUICK_RATE: f64 = 300.0;
/// How long a group that is wronged on purpose may take: it is not expected to come back.
const BLIND_HEAL_SECONDS: f64 = 8.0;
/// Pairs that may hang before a configuration is given up.
const MOST_HUNG: usize = 3;
/// How long a group may take until it serves for the first time.
const START: Duration = Duration::from_secs(60);

/// One kind of group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Its name on the command line.
    pub name: &'static str,
    /// The group in a few words.
    pub title: &'static str,
    mode: &'static str,
    replicas: usize,
    witness: bool,
    disk: bool,
}

const fn of(name: &'static str, title: &'static str, mode: &'static str, replicas: usize) -> Configuration {
    Configuration { name, title, mode, replicas, witness: false, disk: false }
}

/// All of them.
pub const CONFIGURATIONS: [Configuration; 7] = [
    of("rdgx", "RDGX, three replicas, log in memory", "RDGX", 3),
    Configuration { disk: true, ..of("rdgx-disk", "RDGX, three replicas, log on disk", "RDGX", 3) },
    of("r0gv", "R0GV, three replicas", "R0GV", 3),
    of("r00v", "R00V, three replicas", "R00V", 3),
    of("pair", "R0GV, two replicas", "R0GV", 2),
    Configuration { witness: true, ..of("witness", "R0GV, two replicas and a witness", "R0GV", 3) },
    of("five", "RDGX, five replicas, log in memory", "RDGX", 5),
];

impl Configuration {
    /// The plan of this configuration.
    fn plan(&self, wish: &Wish) -> anyhow::Result<Plan> {
        let mut plan = Plan::parse(NAME, PLAN)?;
        plan.mode = self.mode.to_owned();
        (plan.replicas, plan.witness) = (self.replicas, self.witness);
        if !self.disk {
            plan.disk_mb = None;
            plan.troubles.retain(|trouble| trouble.kind != TroubleKind::SlowDisk);
        }
        if wish.quick {
            plan.value_bytes.truncate(1);
            plan.requests_per_second = plan.requests_per_second.min(QUICK_RATE);
            for trouble in &mut plan.troubles {
                trouble.seconds = trouble.seconds.map(|seconds| seconds.min(QUICK_SECONDS));
            }
        }
        if wish.blindly {
            // Two memories that are lost at once: more than any group of three can bear.
            plan.troubles.retain(|trouble| trouble.kind == TroubleKind::Kill);
            plan.heal_seconds = BLIND_HEAL_SECONDS;
        }
        plan.check()?;
        Ok(plan)
    }

    /// How many replicas may fail when all are well: of two, one that has ended.
    fn most(&self) -> u8 {
        ((self.replicas - 1) / 2).max(1) as u8
    }

    fn terms(&self, plan: &Plan, wish: &Wish) -> Terms {
        Terms {
            most: self.most(),
            // Of two, one that is silent may still serve: the other one waits.
            outlives_silence: self.replicas > 2,
            blindly: wish.blindly,
            heal: Duration::from_secs_f64(plan.heal_seconds),
        }
    }
}

/// What is wished for, beside a run's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Pairs per configuration.
    pub pairs: usize,
    /// Short values, pauses and cuts.
    pub quick: bool,
    /// The second strike falls at once, whatever the group says: a group that is wronged on purpose, to see that this
    /// is noticed.
    pub blindly: bool,
}

/// Runs the pairs of one configuration; `options.plan` is not used. `ending` ends it early; `progress` receives lines
/// of progress.
///
/// # Errors
/// When a cluster does not come up, or results cannot be written. A group that hangs is a result.
pub fn run(
    configuration: &Configuration,
    options: &Options,
    wish: &Wish,
    ending: &AtomicBool,
    progress: &dyn Fn(&str),
) -> anyhow::Result<Recovered> {
    let plan = configuration.plan(wish)?;
    let mut strokes = plan.sequence(options.seed);
    let mut found = Recovered::new(configuration, wish.pairs);
    for group in 1.. {
        // A group that is never whole shows nothing more when it is started again.
        let never_whole = found.hung.last().is_some_and(|hang| hang.pair.strikes.is_empty());
        let is_done = found.pairs.len() + found.hung.len() >= wish.pairs || found.hung.len() >= MOST_HUNG;
        if is_done || never_whole || ending.load(Ordering::Relaxed) {
            break;
        }
        let out = options.out.join(format!("{}-{group}", configuration.name));
        let seed = options.seed.wrapping_add(group << 20);
        let options = Options { plan: plan.clone(), out, seed, ..options.clone() };
        let terms = configuration.terms(&plan, wish);
        strike_one_group(&options, terms, &mut strokes, &mut found, ending, progress)?;
    }
    found.conclude();
    Ok(found)
}

/// Brings pairs to one fresh group until all are done, or it hangs.
fn strike_one_group(
    options: &Options,
    terms: Terms,
    strokes: &mut Sequence<'_>,
    found: &mut Recovered,
    ending: &AtomicBool,
    progress: &dyn Fn(&str),
) -> anyhow::Result<()> {
    let cluster = TrialCluster::start(options, progress)?;
    cluster.until_well(START, ending)?;
    // From the first checkpoint on they come often, at all replicas.
    (0..cluster.keeper.size()).for_each(|number| slow_disk(&cluster.testbed, number, Duration::ZERO));
    let load = TrialLoad::start(&cluster, options)?;
    let mut driver = Driver::new(&cluster, &load, terms, ending);
    let mut is_hung = false;
    while found.pairs.len() + found.hung.len() < found.requested {
        let number = found.pairs.len() + found.hung.len() + 1;
        match driver.pair(number, strokes) {
            Ok(pair) => {
                cluster.report_progress(&pair.line());
                cluster.record("pair", &pair)?;
                found.pairs.push(pair);
            }
            Err((_, Stop::Ended)) => break,
            Err((pair, Stop::Hung(why))) => {
                is_hung = true;
                let hang = Hang::of(pair, why, &cluster);
                cluster.report_progress(&hang.line());
                cluster.record("hung", &hang)?;
                found.hung.push(hang);
                break;
            }
        }
    }
    drop(driver);
    if is_hung {
        load.shared.hopeless.store(true, Ordering::Relaxed);
    } else if let Err(why) = cluster.final_digest() {
        found.unequal.push(why);
    }
    let shared = std::sync::Arc::clone(&load.shared);
    let (checked, findings, _) = load.stop(&cluster, &|_| ())?;
    for finding in &findings {
        cluster.record("finding", finding)?;
    }
    let gaps = shared.gaps.lock().unwrap_or_else(PoisonError::into_inner).clone();
    found.take_gaps(&gaps, &cluster.announcer.windows());
    found.take_checked(&checked);
    found.deaths.extend(cluster.keeper.deaths());
    found.answered += shared.answered.load(Ordering::Relaxed);
    found.confined = cluster.testbed.confined.clone();
    cluster.stop();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_has_a_right_plan_and_only_those_with_disks_have_slow_ones() {
        for configuration in CONFIGURATIONS {
            for quick in [false, true] {
                let wish = Wish { pairs: 1, quick, blindly: false };
                let plan = configuration.plan(&wish).expect("right");
                let has = |kind| plan.troubles.iter().any(|trouble| trouble.kind == kind);
                assert!(has(TroubleKind::Kill) && has(TroubleKind::Pause) && has(TroubleKind::Partition));
                assert_eq!(has(TroubleKind::SlowDisk), configuration.name == "rdgx-disk");
                assert_eq!(plan.executors(), if configuration.witness { 2 } else { plan.replicas });
                let longest = plan.troubles.iter().map(|trouble| trouble.seconds[1]).fold(0.0, f64::max);
                assert_eq!(longest, if quick { QUICK_SECONDS } else { 30.0 });
            }
        }
        assert_eq!(CONFIGURATIONS.map(|one| one.most()), [1, 1, 1, 1, 1, 1, 2]);
    }
}
