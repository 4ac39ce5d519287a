//! The process of one replica on its host: its configuration, its start, its end, and failures that affect it from
//! outside.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use crosscheck::{Durability, GroupKey};
use node::cluster::{Process, serve};
use node::config::NodeConfig;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::ground::Ground;
use crate::plan::Plan;

/// The directory of the log on a replica's disk.
const LOG: &str = "log";
/// The file that fills a disk.
const BALLAST: &str = "ballast";
/// The file by which a replica with the injector is slow to sync checkpoints.
const SLOW: &str = "slow-disk";
/// Log entries between two checkpoints of a replica that has that file: few, so that one falls due in every trouble.
const ENTRIES_PER_CHECKPOINT: u64 = 500;

/// A replica's file, log and process.
#[derive(Debug)]
pub struct ReplicaProcess {
    /// From 0.
    pub number: usize,
    /// Whether it executes requests and has clients; a witness does not.
    pub executes: bool,
    ground: Arc<Ground>,
    program: PathBuf,
    config: PathBuf,
    log: PathBuf,
    has_started: bool,
    process: Option<Process>,
}

impl ReplicaProcess {
    /// Writes the configuration of replica `number` (from 0) below `dir`; nothing is started. Its output goes to `log`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(
        number: usize,
        ground: &Arc<Ground>,
        plan: &Plan,
        program: &Path,
        dir: &Path,
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        let config = dir.join(format!("replica-{}.toml", number + 1));
        let key = dir.join("group.key");
        GroupKey::keep(&key).with_context(|| format!("writing {}", key.display()))?;
        fs::write(&config, configuration(number, ground, plan, key)?)
            .with_context(|| format!("writing {}", config.display()))?;
        File::create(&log).with_context(|| format!("making {}", log.display()))?;
        Ok(ReplicaProcess {
            number,
            executes: number < plan.executors(),
            ground: Arc::clone(ground),
            program: program.to_owned(),
            config,
            log,
            has_started: false,
            process: None,
        })
    }

    /// Starts its process on its host.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(&mut self) -> anyhow::Result<u32> {
        let (program, config) = (self.program.clone(), self.config.clone());
        // The group begins once: if all replicas lose their memories later, that is a finding.
        let begins = self.number == 0 && !std::mem::replace(&mut self.has_started, true);
        let log = OpenOptions::new().append(true).open(&self.log).context("the replica's log")?;
        let process = self.ground.hosts[self.number]
            .run(move || {
                let mut command = Command::new(program);
                serve(&mut command, &config, begins);
                Process::spawn(command, Stdio::null(), log)
            })
            .with_context(|| format!("starting replica {}", self.number + 1))?;
        Ok(self.process.insert(process).pid())
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// How it ended, if it has since the last call.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.process.as_mut()?.ended()?;
        self.process = None;
        Some(status)
    }

    /// Ends it without warning.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Requests a stop, as an operator would, waits at most `patience`, and then kills the process.
    pub fn stop(&mut self, patience: Duration) {
        if let Some(mut process) = self.process.take() {
            process.stop(patience);
        }
    }

    /// Stops its process where it is, or lets it continue.
    pub fn freeze(&self, freeze: bool) {
        let signal = if freeze { Signal::STOP } else { Signal::CONT };
        if let Some(pid) = self.process_id() {
            // If it has ended already, there is no process to stop.
            let _ = kill_process(pid, signal);
        }
    }

    /// Limits its address space to its present size and `more` bytes; none: no limit.
    pub fn limit_memory(&self, more: Option<u64>) {
        let Some(pid) = self.process_id() else { return };
        let now =
            || virtual_bytes(&fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?);
        let current = match more {
            Some(more) => now().map(|now| now + more),
            None => None,
        };
        let _ = prlimit(Some(pid), Resource::As, Rlimit { current, maximum: None });
    }

    /// Fills its disk to the last byte, or removes the file that filled it. Returns the bytes that were written.
    pub fn fill_disk(&self, fill: bool) -> u64 {
        let Some(path) = self.ground.disks[self.number].as_ref().map(|disk| disk.join(BALLAST)) else {
            return 0;
        };
        self.ground.hosts[self.number].run(move || {
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

    /// From now on the sync of a checkpoint takes so much longer, and checkpoints come often. Without a disk nothing
    /// changes.
    pub fn slow_disk(&self, pause: Duration) {
        let Some(disk) = &self.ground.disks[self.number] else { return };
        let path = disk.join(LOG).join(SLOW);
        self.ground.hosts[self.number].run(move || {
            // A replica that has no directory yet has no checkpoints either.
            let _ = fs::write(path, format!("{} {ENTRIES_PER_CHECKPOINT}\n", pause.as_millis()));
        });
    }

    /// Lines of its output that contain `word`.
    pub fn said(&self, word: &str) -> Vec<String> {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
    }

    /// The last lines of its output.
    pub fn last_words(&self) -> String {
        self.last_lines(6).join("\n")
    }

    /// The last `count` lines of its output.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let mut lines = self.said("");
        lines.split_off(lines.len().saturating_sub(count))
    }

    fn process_id(&self) -> Option<Pid> {
        Pid::from_raw(self.pid()? as i32)
    }
}

impl Drop for ReplicaProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `VmSize` of a process's status, in bytes.
fn virtual_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmSize:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// The file of `serve`: the fields of every service, and memcached's limit.
fn configuration(number: usize, ground: &Ground, plan: &Plan, key: PathBuf) -> anyhow::Result<String> {
    let place = &ground.places[number];
    let peers = ground.places.iter().map(|place| place.peers).collect();
    let mut config = NodeConfig::<()>::new(number as u8 + 1, peers, place.clients, place.admin.clone());
    config.group_key_file = Some(key);
    config.mode = plan.mode.parse().map_err(anyhow::Error::msg)?;
    config.workers = plan.workers;
    config.witness = plan.witness;
    if let Some(disk) = &ground.disks[number] {
        config.durability = Durability::Disk(disk.join(LOG));
    }
    Ok(format!("memory_limit_mb = {}\n{}", plan.memory_mb, config.to_toml()))
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
