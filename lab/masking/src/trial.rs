//! One run: a group is started, asked to add, and compared with what its clients know and with what its databases lost.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use crosscheck::Mode;
use node::cluster::{ClusterOptions, ClusterPlan, Dress, Keeper, ReplicaRow, SupervisorEvent, once};
use node::signals::Ending;
use serde::{Deserialize, Serialize};

use crate::load::{self, AddLoad};
use crate::options::{Bug, LOSSES, MaskingOptions};
use crate::service::Mix;
use crate::witnessed::{self, Loss, MISSING};

/// A group has so long to come up.
const START: Duration = Duration::from_secs(30);
/// A server that is gone has told why after this time.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Threads per replica that execute: more than this machine's cores, so that they interrupt each other.
pub const WORKERS: usize = 4;

/// The servers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BugGroup {
    /// One server without protection.
    Alone,
    /// Three replicas in `R0GV`.
    Three,
    /// Two replicas and a witness in `R0GV`.
    Pair,
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BugConfiguration {
    /// Whose bug it is.
    pub bug: Bug,
    /// With a seeded bug: so many of 100,000 additions are racy.
    pub seeded: u64,
    /// The servers.
    pub group: BugGroup,
    /// Which additions the mixer keeps apart.
    pub mix: Mix,
    /// Whether a batch waits for the results of all replicas.
    pub extra: bool,
}

/// How a batch was hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HitBatches {
    /// At one replica.
    pub one: u64,
    /// At several, and not at all alike.
    pub several: u64,
    /// At all replicas alike: nothing differs, so nothing is seen.
    pub alike: u64,
}

/// What a run has shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Additions that were acknowledged.
    pub additions: u64,
    /// Additions that a database has said to have committed, and has lost: of all replicas, those taken back included.
    pub lost: u64,
    /// Reads in which a database did not find a row that is there.
    pub missing: u64,
    /// Values that clients read and that cannot be right.
    pub wrong: u64,
    /// Requests without a reply.
    pub unanswered: u64,
    /// The batches that were hit, by the ground truth of the replicas.
    pub batches: HitBatches,
    /// How often batches were taken back, of all replicas.
    pub rollbacks: u64,
    /// Processes that ended during the run.
    pub died: u64,
    /// What replicas said to their operator, each with its number.
    pub said: Vec<String>,
    /// How long the load took.
    pub seconds: f64,
}

impl RunOutcome {
    /// Whether the bug showed anywhere, or anything else was wrong.
    pub fn is_hit(&self) -> bool {
        self.batches != HitBatches::default() || self.wrong > 0
    }

    /// Whether every reply that came, and every counter, was right all the same.
    pub fn is_right(&self) -> bool {
        self.wrong == 0
    }
}

impl BugConfiguration {
    fn options(&self) -> ClusterOptions<MaskingOptions> {
        let is_plain = self.group == BugGroup::Alone;
        let letters = if is_plain { "0000" } else { "R0GV" };
        let mode: Mode = letters.parse().expect("a mode");
        ClusterOptions {
            replicas: Some(match self.group {
                BugGroup::Alone => 1,
                BugGroup::Three => 3,
                BugGroup::Pair => 2,
            }),
            port: Some(0),
            mode,
            workers: Some(WORKERS),
            witness: self.group == BugGroup::Pair,
            extra_protection: Some(self.extra).filter(|_| !is_plain),
            service: MaskingOptions { bug: self.bug, seeded: self.seeded, mix: self.mix, plain: is_plain },
            // Injected faults say nothing about this machine.
            faults_per_10s: Some(0),
            ..ClusterOptions::default()
        }
    }

    /// Runs it once.
    ///
    /// # Errors
    /// The group does not come up, or does not answer.
    pub fn run(&self, load: AddLoad, ending: &Ending) -> anyhow::Result<RunOutcome> {
        let directory = tempfile::tempdir()?;
        let file = |number: u8| directory.path().join(format!("losses-{number}"));
        let mut plan = ClusterPlan::within(&self.options(), directory.path())?;
        for replica in plan.replicas() {
            let path = file(replica.number).to_string_lossy().into_owned();
            // A replica that prints a backtrace stands still meanwhile, and is left behind.
            let quiet = ("RUST_BACKTRACE".to_owned(), "0".to_owned());
            let environment = vec![(LOSSES.to_owned(), path), quiet];
            plan.set_dress(replica.number, Dress { environment, ..Dress::default() });
        }
        let keeper = Keeper::start(&plan, node::up::STOP_PATIENCE)?;
        keeper.until_ready(START, ending)?;
        keeper.events.take();
        let executors: Vec<_> = keeper.replicas.iter().filter(|replica| replica.clients.is_some()).collect();
        let addresses: Vec<_> = executors.iter().filter_map(|replica| replica.clients).collect();
        let begun = Instant::now();
        // Why a server is gone, it has said itself.
        let told = || {
            thread::sleep(LAST_WORDS);
            format!("{:?}", keeper.events.take())
        };
        let seen = load::run(&addresses, load).with_context(told)?;
        let seconds = begun.elapsed().as_secs_f64();
        let of_row = |row: ReplicaRow| row.seen.ok()?.verification.map(|verification| verification.rollbacks);
        let rollbacks = once(&keeper.replicas).into_iter().filter_map(of_row).sum();
        let (mut died, mut said) = (0, Vec::new());
        for event in keeper.events.take() {
            match event {
                SupervisorEvent::Said { replica, line } => said.push(format!("{replica}: {line}")),
                SupervisorEvent::Died { .. }
                | SupervisorEvent::Drained { .. }
                | SupervisorEvent::Hopeless { .. } => died += 1,
                SupervisorEvent::Started { .. } => {}
            }
        }
        let losses: Vec<_> = executors.iter().map(|replica| witnessed::read(&file(replica.number))).collect();
        let all = || losses.iter().flatten().map(|loss| loss.lost);
        drop(keeper);
        plan.layout.clean();
        Ok(RunOutcome {
            additions: seen.additions,
            lost: all().filter(|lost| *lost != MISSING).map(i64::unsigned_abs).sum(),
            missing: all().filter(|lost| *lost == MISSING).count() as u64,
            wrong: seen.wrong,
            unanswered: seen.unanswered,
            batches: batches(&losses),
            rollbacks,
            died,
            said,
            seconds,
        })
    }
}

/// Sorts the batches by where they were hit; `losses` has those of each replica that executes.
fn batches(losses: &[Vec<Loss>]) -> HitBatches {
    let mut hit: BTreeMap<u64, Vec<Vec<(u32, i64)>>> = BTreeMap::new();
    for (at, losses) in losses.iter().enumerate() {
        for loss in losses {
            let of_batch = hit.entry(loss.batch_us).or_insert_with(|| vec![Vec::new(); at + 1]);
            of_batch.resize(at + 1, Vec::new());
            of_batch[at].push((loss.row, loss.lost));
        }
    }
    let mut counted = HitBatches::default();
    for mut replicas in hit.into_values() {
        replicas.resize(losses.len(), Vec::new());
        replicas.iter_mut().for_each(|losses| losses.sort_unstable());
        match replicas.iter().filter(|losses| !losses.is_empty()).count() {
            1 if losses.len() > 1 => counted.one += 1,
            _ if replicas.windows(2).all(|pair| pair[0] == pair[1]) => counted.alike += 1,
            _ => counted.several += 1,
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_told_apart_by_where_they_were_hit() {
        let loss = |batch_us, row| Loss { batch_us, row, lost: 1 };
        let losses =
            [vec![loss(1, 5), loss(2, 5), loss(3, 1), loss(3, 2)], vec![loss(2, 6), loss(3, 2), loss(3, 1)]];
        assert_eq!(batches(&losses), HitBatches { one: 1, several: 1, alike: 1 });
        assert_eq!(batches(&losses[..1]), HitBatches { one: 0, several: 0, alike: 3 });
        let third = [losses[0].clone(), losses[1].clone(), Vec::new()];
        assert_eq!(batches(&third), HitBatches { one: 1, several: 2, alike: 0 });
    }
}
