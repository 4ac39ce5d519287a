//! One replica's process on its host: its configuration, its start, its end, and what else can be done to it
//! from outside.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use crosscheck::GroupKey;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::ground::Ground;
use crate::plan::Plan;

/// The flag of `serve` that ties a replica's life to its standard input.
const TETHER: &str = "--until-stdin-closes";
/// Has replica 1 begin the group.
const BEGINS: &str = "--begin-group";
/// What fills a disk.
const BALLAST: &str = "ballast";

/// A replica's file, log and process.
#[derive(Debug)]
pub struct Replica {
    /// From 0.
    pub number: usize,
    ground: Arc<Ground>,
    program: PathBuf,
    config: PathBuf,
    log: PathBuf,
    has_started: bool,
    child: Option<(Child, Option<ChildStdin>)>,
}

impl Replica {
    /// Writes the configuration of replica `number` (from 0) below `dir`; nothing is started. What it says
    /// goes to `log`.
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
        fs::write(&config, configuration(number, ground, plan, &key))
            .with_context(|| format!("writing {}", config.display()))?;
        File::create(&log).with_context(|| format!("making {}", log.display()))?;
        Ok(Replica {
            number,
            ground: Arc::clone(ground),
            program: program.to_owned(),
            config,
            log,
            has_started: false,
            child: None,
        })
    }

    /// Starts its process on its host.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(&mut self) -> anyhow::Result<u32> {
        let (program, config) = (self.program.clone(), self.config.clone());
        // The group begins once: replicas that have all lost their memory are a finding.
        let begins = self.number == 0 && !std::mem::replace(&mut self.has_started, true);
        let log = OpenOptions::new().append(true).open(&self.log).context("the replica's log")?;
        let mut child = self.ground.hosts[self.number]
            .run(move || {
                let mut command = Command::new(program);
                command.arg("serve").arg(TETHER).arg("--config").arg(config);
                if begins {
                    command.arg(BEGINS);
                }
                // Ctrl-C at a terminal is for us: replicas are stopped by us, in order.
                std::os::unix::process::CommandExt::process_group(&mut command, 0);
                command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn()
            })
            .with_context(|| format!("starting replica {}", self.number + 1))?;
        let (pid, tether) = (child.id(), child.stdin.take());
        self.child = Some((child, tether));
        Ok(pid)
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(|(child, _)| child.id())
    }

    /// How it ended, if it has since the last question.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.0.try_wait().ok().flatten()?;
        self.child = None;
        Some(status)
    }

    /// Ends it without warning.
    pub fn kill(&mut self) {
        if let Some((mut child, _)) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Asks it to stop, as an operator would, and waits at most `patience`; then it is killed.
    pub fn stop(&mut self, patience: Duration) {
        let Some((child, tether)) = &mut self.child else { return };
        *tether = None;
        let deadline = Instant::now() + patience;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }

    /// Stops its process where it is, or lets it go on.
    pub fn freeze(&self, freeze: bool) {
        let signal = if freeze { Signal::STOP } else { Signal::CONT };
        if let Some(pid) = self.process() {
            // Gone already: then there is nothing to stop.
            let _ = kill_process(pid, signal);
        }
    }

    /// Lets it have no more address space than it has now and `more` bytes; none: as much as it likes.
    pub fn limit_memory(&self, more: Option<u64>) {
        let Some(pid) = self.process() else { return };
        let now =
            || virtual_bytes(&fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?);
        let current = match more {
            Some(more) => now().map(|now| now + more),
            None => None,
        };
        let _ = prlimit(Some(pid), Resource::As, Rlimit { current, maximum: None });
    }

    /// Fills its disk to the last byte, or frees what was filled. Returns the bytes that were written.
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
            // Ever smaller pieces, until not one byte more fits.
            for size in [1 << 20, 1 << 12, 1] {
                let block = vec![0xBA; size];
                while file.write_all(&block).is_ok() {
                    written += size as u64;
                }
            }
            written
        })
    }

    /// Lines it wrote that contain `word`.
    pub fn said(&self, word: &str) -> Vec<String> {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
    }

    /// The last lines it wrote.
    pub fn last_words(&self) -> String {
        let lines = self.said("");
        lines[lines.len().saturating_sub(6)..].join("\n")
    }

    fn process(&self) -> Option<Pid> {
        Pid::from_raw(self.pid()? as i32)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `VmSize` of a process's status, in bytes.
fn virtual_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmSize:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// The file of `serve`.
fn configuration(number: usize, ground: &Ground, plan: &Plan, key: &Path) -> String {
    let place = &ground.places[number];
    let durability = match &ground.disks[number] {
        Some(path) => {
            let path = toml::Value::String(path.join("log").to_string_lossy().into_owned());
            format!("durability = \"disk\"\ndata_dir = {path}")
        }
        None => "durability = \"memory\"".to_owned(),
    };
    let replicas: String = (1..)
        .zip(&ground.places)
        .map(|(number, place): (usize, _)| {
            format!("[[replica]]\nnumber = {number}\naddress = \"{}\"\n", place.peers)
        })
        .collect();
    format!(
        "this_replica = {}\nlisten = \"{}\"\nadmin = {}\ngroup_key = {}\nmode = \"{}\"\nworkers = {}\n{durability}\n\
         memory_limit_mb = {}\n{replicas}",
        number + 1,
        place.clients,
        toml::Value::String(place.admin.to_string()),
        toml::Value::String(key.to_string_lossy().into_owned()),
        plan.mode,
        plan.workers,
        plan.memory_mb,
    )
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
