//! The machine and the source to which a figure belongs; no field identifies the owner of the machine.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};

/// The properties of a machine on which a figure depends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor cores that may be used.
    pub cores: usize,
    /// The processor's name for itself.
    pub model: String,
    /// The kernel's release, its numbers only.
    pub kernel: String,
    /// Memory, in MiB.
    pub memory_mb: u64,
    /// Runnable tasks on average over the minute before the run: on a busy machine the figures differ.
    pub load_before: f64,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Machine {
            cores: available_parallelism().map_or(1, usize::from),
            model: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            kernel: numbers_of(&read("/proc/sys/kernel/osrelease")),
            memory_mb: field(&read("/proc/meminfo"), "MemTotal")
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib / 1024),
            load_before: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
        }
    }
}

/// The numbers of a release; the text after them may identify the kernel's builder.
fn numbers_of(release: &str) -> String {
    let release = release.trim();
    let end =
        release.find(|letter: char| !(letter.is_ascii_digit() || letter == '.')).unwrap_or(release.len());
    release[..end].trim_end_matches('.').to_owned()
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The source that was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The commit that is checked out, or `unknown` outside of the repository.
    pub id: String,
    /// Whether tracked files differ from it.
    pub changed: bool,
}

impl Commit {
    /// The state of the repository in the working directory. The binary should have been built from it just before.
    pub fn here() -> Self {
        let git = |arguments: &[&str]| {
            let output = Command::new("git").args(arguments).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let Some(id) = git(&["rev-parse", "--short=12", "HEAD"]) else {
            return Commit { id: "unknown".into(), changed: true };
        };
        let changed =
            git(&["status", "--porcelain", "--untracked-files=no", "--", "*.rs", "*.toml", "*.lock"]);
        Commit { id, changed: changed.is_none_or(|changed| !changed.is_empty()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_its_numbers() {
        assert_eq!(numbers_of("6.12.3-somebody-v1\n"), "6.12.3");
        assert_eq!(numbers_of("6.1.0-13-amd64"), "6.1.0");
        assert_eq!(numbers_of("7.0.custom"), "7.0");
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let this = Machine::this();
        assert!(this.cores >= 1 && this.memory_mb > 0);
        assert!(!this.kernel.contains('-'));
    }
}
