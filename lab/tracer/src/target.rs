//! The target of fault injection, as its file describes it.

use std::collections::BTreeMap;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use memcached_client::hardened;
use serde::Deserialize;
use xxhash_rust::xxh3::Xxh3;

use crate::authority;
use crate::group::Group;
use crate::protocol::Protocol;
use crate::threads::WorkerThreads;
use crate::trace::{Recipe, Trace};
use crate::user_io::TargetIo;

/// The placeholder in `argv` for the running program.
pub const CROSSCHECK: &str = "{crosscheck}";
/// The placeholder for the folder in which `crosscheck harden build` leaves programs.
const HARDEN: &str = "{harden}/";
/// The placeholder in `argv` for the SQL service, which is beside the running program.
const SQL: &str = "{crosscheck-sql}";

/// A target file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Name in reports.
    pub title: String,
    /// Program and arguments. `{dir}` is replaced by a fresh directory, `{host}` by a loopback address that no other
    /// run has, `{zone}` by that of the servers of the trace's zone, `{crosscheck}` by the program that runs this,
    /// `{crosscheck-sql}` by that of the SQL service beside it, `{harden}` by the folder of `crosscheck harden build`.
    pub argv: Vec<String>,
    /// Environment; only PATH is inherited.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Files written into the directory before the start.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The address on which it listens: `unix:PATH`, `tcp:HOST:PORT` or `udp:HOST:PORT`. It is ready when it accepts
    /// and answers the warm-up.
    #[serde(default)]
    pub connect: String,
    /// Name of the traced thread, as it names itself; the kernel keeps 15 bytes.
    pub thread: String,
    /// Number of the system call in which the thread waits for requests: 232 epoll_wait, 281 epoll_pwait, 7
    /// poll, 0 read.
    #[serde(default = "epoll_wait")]
    pub waits_in: u64,
    /// Stop the clock from the beginning of the measured part up to the fault, so that every run takes the same path.
    #[serde(default = "yes")]
    pub stop_clock: bool,
    /// Stop all other threads while the golden run is stepped. Not for a target whose traced thread waits for others.
    #[serde(default)]
    pub hold_others: bool,
    /// The format of its replies.
    #[serde(default)]
    pub protocol: Protocol,
    /// What moves its input and output.
    #[serde(default)]
    pub io: TargetIo,
    /// Beginnings of replies by which the target itself reports that it detected an error.
    #[serde(default)]
    pub detected_replies: Vec<String>,
    /// Exit codes by which it does.
    #[serde(default)]
    pub detected_exits: Vec<i32>,
    /// Longest time from start to the end of the warm-up, in milliseconds.
    #[serde(default = "start_ms")]
    pub start_ms: u64,
    /// The target hangs if all threads sleep and no byte comes for this long after the fault.
    #[serde(default = "stall_ms")]
    pub stall_ms: u64,
    /// The target hangs if no byte comes for this long after the fault, asleep or not.
    #[serde(default = "hang_ms")]
    pub hang_ms: u64,
    /// The requests.
    #[serde(default)]
    pub trace: Recipe,
    /// Set for a cluster: then `argv` starts all of its replicas.
    pub cluster: Option<Group>,
    /// Set for one process whose worker threads are all under load, and hit by faults.
    pub threads: Option<WorkerThreads>,
}

fn epoll_wait() -> u64 {
    232
}
fn yes() -> bool {
    true
}
fn start_ms() -> u64 {
    10_000
}
fn stall_ms() -> u64 {
    60
}
fn hang_ms() -> u64 {
    400
}

impl Target {
    /// Reads a target file.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("target file {}", path.display()))?;
        let mut target: Target =
            toml::from_str(&text).with_context(|| format!("target file {}", path.display()))?;
        if target.argv.is_empty() {
            bail!("target file {}: argv is empty: it begins with the program", path.display());
        }
        if target.thread.len() > 15 {
            bail!("target file {}: the kernel keeps 15 bytes of a thread's name", path.display());
        }
        if target.cluster.is_some() && target.threads.is_some() {
            bail!("target file {}: it has [cluster] or [threads], not both", path.display());
        }
        if target.trace.sum {
            if target.protocol != Protocol::Memcached || target.trace.lines.is_some() {
                bail!(
                    "target file {}: `sum` adds CRCs to memcached's requests; this target has others",
                    path.display()
                );
            }
            target.protocol = Protocol::MemcachedSummed;
        }
        if target.trace.mqtt {
            let trace = &target.trace;
            if trace.sum || trace.lines.is_some() || trace.zone.is_some() || target.is_sampled() {
                bail!(
                    "target file {}: `mqtt` goes with no sums, lines, zone, cluster or threads",
                    path.display()
                );
            }
            target.protocol = Protocol::Mqtt;
        }
        if target.trace.sql {
            let trace = &target.trace;
            if trace.sum || trace.lines.is_some() || trace.zone.is_some() || trace.mqtt {
                bail!("target file {}: `sql` goes with no sums, lines, zone or mqtt", path.display());
            }
            target.protocol = Protocol::Postgres;
        }
        if target.trace.zone.is_some() {
            target.of_zone().with_context(|| format!("target file {}", path.display()))?;
        }
        Ok(target)
    }

    /// Sets what follows from a trace of queries for a zone.
    fn of_zone(&mut self) -> anyhow::Result<()> {
        let trace = &self.trace;
        if trace.sum || trace.lines.is_some() || self.cluster.is_some() || self.threads.is_some() {
            bail!("`zone` asks one resolver for names: it goes with no sums, lines, cluster or threads");
        }
        if trace.zone.as_ref().is_some_and(|names| names.hosts == 0 || names.zones == 0)
            || trace.requests == 0
        {
            bail!("a trace of a zone needs hosts, zones and requests");
        }
        if self.connect.starts_with("unix:") {
            bail!("a resolver listens on udp:HOST:PORT or tcp:HOST:PORT");
        }
        self.protocol = Protocol::Dns;
        Ok(())
    }

    /// Whether the file leaves open which program this is: it names one by a placeholder.
    pub fn has_open_program(&self) -> bool {
        [CROSSCHECK, SQL].contains(&self.argv[0].as_str()) || self.argv[0].starts_with(HARDEN)
    }

    /// Whether its sites are sampled under load: no run of it repeats another one.
    pub fn is_sampled(&self) -> bool {
        self.cluster.is_some() || self.threads.is_some()
    }

    /// The program's file.
    ///
    /// # Errors
    /// When there is none.
    pub fn program(&self) -> anyhow::Result<PathBuf> {
        let name = &self.argv[0];
        if name == CROSSCHECK {
            return Ok(std::env::current_exe()?);
        }
        if name == SQL {
            let file = std::env::current_exe()?.with_file_name("crosscheck-sql");
            if !file.is_file() {
                let build = "cargo build --release -p sql --features inject";
                bail!("{} does not exist: build it ({build}), or name it with --program", file.display());
            }
            return Ok(file);
        }
        if let Some(program) = name.strip_prefix(HARDEN) {
            let file = hardened::folder().join(program);
            if !file.is_file() {
                bail!(
                    "{} does not exist: build it with `crosscheck harden build`, or name the folder in {}",
                    file.display(),
                    hardened::FOLDER_VARIABLE
                );
            }
            return Ok(std::path::absolute(file)?);
        }
        if name.contains('/') {
            return Ok(PathBuf::from(name));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file())
            .ok_or_else(|| anyhow!("{name} is not installed: no folder of PATH has it"))
    }

    /// Identifies the program and everything that decides its path: a profile is valid for one identity.
    ///
    /// # Errors
    /// When the program cannot be read.
    pub fn identity(&self) -> anyhow::Result<String> {
        let program = self.program()?;
        let bytes = fs::read(&program).with_context(|| format!("program {}", program.display()))?;
        let mut hasher = Xxh3::new();
        hasher.write(&bytes);
        hasher.write(format!("{:?}{:?}{:?}", self.argv, self.env, self.files).as_bytes());
        let trace = Trace::new(&self.trace);
        for request in trace.warmup.iter().chain([&trace.poke]).chain(&trace.measured) {
            hasher.write(&request.bytes);
        }
        // Profiles from before these choices existed stay valid.
        let io = if self.io == TargetIo::User { "user" } else { "" };
        let holds = if self.hold_others { "held" } else { "" };
        hasher.write(format!("{}{}{}{io}{holds}", self.thread, self.waits_in, self.stop_clock).as_bytes());
        Ok(format!("{:016x}", hasher.finish()))
    }
}

/// The directory and address of one run of a target.
#[derive(Clone, Debug)]
pub struct RunPlace {
    /// Its directory.
    pub dir: PathBuf,
    /// Its loopback address.
    pub host: String,
}

impl RunPlace {
    /// A directory in `dir` that no other run of this process has at the same time: `number` is different for each.
    pub fn new(dir: &Path, number: u64) -> Self {
        // Two campaigns at the same time have different processes; 127.0 to 127.63 is left to other programs.
        let process = u64::from(std::process::id());
        let (high, middle, low) =
            (64 + process % 128, (process / 128 + number / 250) % 250, 1 + number % 250);
        RunPlace { dir: dir.to_owned(), host: format!("127.{high}.{middle}.{low}") }
    }

    /// `text` with the placeholders replaced.
    pub fn fill(&self, text: &str) -> String {
        text.replace("{dir}", &self.dir.display().to_string())
            .replace("{host}", &self.host)
            .replace("{zone}", &authority::addresses()[0].to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_targets_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets");
        let files: Vec<_> =
            fs::read_dir(folder).expect("targets").map(|file| file.expect("a file").path()).collect();
        assert!(files.len() >= 3, "{files:?}");
        for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "toml")) {
            Target::load(file).unwrap_or_else(|error| panic!("{error:#}"));
        }
    }

    #[test]
    fn the_traces_sums_decide_the_protocol() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("t.toml");
        let load = |more: &str| {
            let text = format!("title = 't'\nargv = ['{{harden}}/none/none/none']\nthread = 't'\n{more}");
            fs::write(&file, text).expect("written");
            Target::load(&file)
        };
        let target = load("[trace]\nsum = true").expect("a target");
        assert_eq!(target.protocol, Protocol::MemcachedSummed);
        let error = target.program().expect_err("no such program").to_string();
        let looked_for = hardened::program("none", "none", "none").display().to_string();
        assert!(error.contains(&looked_for) && error.contains("crosscheck harden build"), "{error}");
        assert_eq!(load("").expect("a target").protocol, Protocol::Memcached);
        let of_zone = "connect = 'udp:{host}:53'\n[trace]\nzone = { hosts = 9, zones = 1 }";
        assert_eq!(load(of_zone).expect("a target").protocol, Protocol::Dns);
        let error = load(&format!("{of_zone}\nsum = true")).expect_err("memcached's sums");
        assert!(format!("{error:#}").contains("sum"), "{error:#}");
        let error = load("protocol = 'lines'\n[trace]\nsum = true").expect_err("lines have no sums");
        assert!(error.to_string().contains("memcached's requests"), "{error:#}");
    }

    #[test]
    fn places_differ_and_are_loopback() {
        let (one, two) = (RunPlace::new(Path::new("/x"), 1), RunPlace::new(Path::new("/x"), 2));
        assert_ne!(one.host, two.host);
        assert!(one.host.parse::<std::net::Ipv4Addr>().is_ok_and(|host| host.is_loopback()));
        assert_eq!(one.fill("{dir}/s"), "/x/s");
    }
}
