//! Many injections on one cluster, one after another, under one client per replica that checks every reply.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};

use crate::group::{Cluster, Group};
use crate::judge::WatchedCluster;
use crate::model::{self, ModelClient, Tally};
use crate::target::{RunPlace, Target};

/// Injections that one cluster takes: clients leave keys behind, and a replica that is replaced receives all of them,
/// each time more.
const RUNS_PER_CLUSTER: u64 = 250;

/// A number of injections, of any kind.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// The target; it has a group.
    pub target: &'a Target,
    /// The campaign's seed.
    pub seed: u64,
    /// How many.
    pub runs: u64,
}

impl Series<'_> {
    /// The description of the cluster in the target's file.
    ///
    /// # Errors
    /// When the target is not a cluster.
    pub fn group(&self) -> anyhow::Result<&Group> {
        self.target.cluster.as_ref().context("the target is no cluster: its file has no [cluster]")
    }

    /// Carries the injections out, until `on_record`, which receives each record, returns `false`. `prepare` prepares
    /// the first cluster under its clients; `one` does one injection, and returns whether its cluster can take another
    /// one.
    ///
    /// # Errors
    /// When no cluster comes up.
    pub fn run<P, R>(
        &self,
        prepare: impl Fn(&WatchedCluster<'_>) -> anyhow::Result<P>,
        mut one: impl FnMut(&WatchedCluster<'_>, &P, u64) -> anyhow::Result<(R, bool)>,
        mut on_record: impl FnMut(&R) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let mut prepared = None;
        let mut number = 0;
        while number < self.runs {
            let begun = number;
            let dir = tempfile::tempdir().context("a directory for the cluster")?;
            let cluster = Cluster::up(self.target, &RunPlace::new(dir.path(), 0))?;
            let go_on = self.with_clients(&cluster, number, |watch| {
                let prepared = match &prepared {
                    Some(prepared) => prepared,
                    None => prepared.insert(prepare(watch)?),
                };
                while number < self.runs {
                    let (record, healthy) = one(watch, prepared, number)?;
                    number += 1;
                    if !on_record(&record)? {
                        return Ok(false);
                    }
                    if !healthy || number - begun >= RUNS_PER_CLUSTER {
                        return Ok(true);
                    }
                }
                Ok(true)
            })?;
            if !go_on {
                break;
            }
            if number == begun {
                bail!("the cluster takes no injection");
            }
        }
        Ok(())
    }

    /// Runs one client per replica while `work` runs.
    fn with_clients<T>(
        &self,
        cluster: &Cluster,
        salt: u64,
        work: impl FnOnce(&WatchedCluster<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let group = self.group()?;
        let clients: Vec<Tally> = cluster.clients.iter().map(|_| Tally::default()).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (number, (address, tally)) in cluster.clients.iter().zip(&clients).enumerate() {
                let client = ModelClient {
                    number: number as u8 + 1,
                    address: *address,
                    protocol: self.target.protocol,
                    seed: self.seed ^ (salt << 32),
                };
                let stop = &stop;
                scope.spawn(move || model::drive(client, tally, stop));
            }
            let done = work(&WatchedCluster { group, cluster, clients: &clients });
            stop.store(true, Ordering::Relaxed);
            done
        })
    }
}
