//! The replicas on their hosts: their configuration, and failures that affect one from outside.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crosscheck::Durability;
use node::ServiceOptions;
use node::cluster::{ClusterOptions, ClusterPlan};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::plan::Plan;
use crate::service::TrialService;
use crate::switch;
use crate::testbed::Testbed;

/// The ports of a replica on a host of its own, for clients and for other replicas.
const PORTS: [u16; 2] = [11211, 12211];
/// The directory of the log on a replica's disk.
const LOG: &str = "log";
/// The file that fills a disk.
const BALLAST: &str = "ballast";
/// The file by which a replica with the injector is slow to sync checkpoints.
const SLOW: &str = "slow-disk";
/// Log entries between two checkpoints of a replica that has that file: few, so that one falls due in every trouble.
const ENTRIES_PER_CHECKPOINT: u64 = 500;

/// memcached's limit, which is all that a plan says about the service; SQL has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct MemoryLimit {
    /// In MiB.
    #[arg(skip)]
    pub memory_mb: Option<u64>,
}

impl ServiceOptions for MemoryLimit {
    fn write(&self, file: &mut String) {
        if let Some(memory_mb) = self.memory_mb {
            // Writing to a string cannot fail.
            let _ = writeln!(file, "memory_limit_mb = {memory_mb}");
        }
    }
}

/// The cluster of a plan on these hosts; its files are below `dir`.
///
/// # Errors
/// No such group can be, or there are no free ports.
pub fn cluster(testbed: &Testbed, plan: &Plan, dir: &Path) -> anyhow::Result<ClusterPlan<MemoryLimit>> {
    let wish = ClusterOptions {
        replicas: Some(plan.executors() as u8),
        port: Some(0),
        mode: plan.mode.parse().map_err(anyhow::Error::msg)?,
        workers: Some(plan.workers),
        witness: plan.witness,
        service: MemoryLimit {
            memory_mb: (plan.service == TrialService::Memcached).then_some(plan.memory_mb),
        },
        // Injected faults say nothing about this machine.
        faults_per_10s: Some(0),
        ..ClusterOptions::default()
    };
    let mut cluster = ClusterPlan::within(&wish, dir)?;
    let at = |number: usize, port: u16| SocketAddr::from((switch::address(number), port));
    cluster.adapt(|node| {
        let number = usize::from(node.this_replica) - 1;
        if testbed.switch.is_some() {
            node.listen = at(number, PORTS[0]);
            node.replicas = (0..plan.replicas).map(|number| at(number, PORTS[1]).into()).collect();
        }
        if let Some(disk) = &testbed.disks[number] {
            node.durability = Durability::Disk(disk.join(LOG));
        }
    });
    Ok(cluster)
}

/// Limits the address space of a process to its present size and `more` bytes; none: no limit.
///
/// # Errors
/// It has ended, or may not be limited.
pub fn limit_memory(pid: u32, more: Option<u64>) -> std::io::Result<()> {
    let now = || virtual_bytes(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?);
    let ended = || std::io::Error::other(format!("process {pid} has ended"));
    let current = more.map(|more| now().map(|now| now + more).ok_or_else(ended)).transpose()?;
    let process = Pid::from_raw(pid as i32).ok_or_else(ended)?;
    Ok(prlimit(Some(process), Resource::As, Rlimit { current, maximum: None }).map(drop)?)
}

/// Fills the disk of replica `number` (from 0) to the last byte, or removes the file that filled it. Returns the bytes
/// that were written.
pub fn fill_disk(testbed: &Testbed, number: usize, fill: bool) -> u64 {
    let Some(path) = testbed.disks[number].as_ref().map(|disk| disk.join(BALLAST)) else {
        return 0;
    };
    testbed.hosts[number].run(move || {
        if !fill {
            let _ = fs::remove_file(&path);
            return 0;
        }
        let Ok(mut file) = OpenOptions::new().create(true).append(true).open(&path) else { return 0 };
        let mut written = 0;
        // Ever smaller pieces, until no byte more fits.
        for size in [1 << 20, 1 << 12, 1] {
            let block = vec![0xBA; size];
            while file.write_all(&block).is_ok() {
                written += size as u64;
            }
        }
        written
    })
}

/// From now on the sync of a checkpoint of replica `number` (from 0) takes so much longer, and checkpoints come often.
/// Without a disk nothing changes.
pub fn slow_disk(testbed: &Testbed, number: usize, pause: Duration) {
    let Some(disk) = &testbed.disks[number] else { return };
    let path = disk.join(LOG).join(SLOW);
    testbed.hosts[number].run(move || {
        // A replica that has no directory yet has no checkpoints either.
        let _ = fs::write(path, format!("{} {ENTRIES_PER_CHECKPOINT}\n", pause.as_millis()));
    });
}

/// `VmSize` of a process's status, in bytes.
fn virtual_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmSize:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_process_is_read_in_bytes() {
        assert_eq!(virtual_bytes("Name:\tx\nVmPeak:\t 9 kB\nVmSize:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(virtual_bytes("Name:\tx\n"), None);
        let own = fs::read_to_string("/proc/self/status").expect("this process");
        assert!(virtual_bytes(&own).is_some_and(|bytes| bytes > 1 << 20));
    }
}
