//! How much memory this process can have: that of the machine, or less by a control group (cgroup v2).

use std::fs;
use std::path::{Path, PathBuf};

/// Where cgroup v2 is mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// A bound, and what sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemoryBound {
    pub(super) mib: u64,
    /// For messages: `this machine`, or the file with the limit.
    pub(super) of: String,
}

/// The least bound that holds for this process; none where the system does not tell.
pub(super) fn bound() -> Option<MemoryBound> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let machine = machine(&text("/proc/meminfo"));
    machine
        .into_iter()
        .chain(of_groups(Path::new(CGROUPS), &text("/proc/self/cgroup")))
        .min_by_key(|found| found.mib)
}

/// The line `MemTotal:       24683840 kB` of /proc/meminfo.
fn machine(meminfo: &str) -> Option<MemoryBound> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(MemoryBound { mib: kib >> 10, of: "this machine".to_owned() })
}

/// The limits of the group in the line `0::/system.slice/x.service` of /proc/self/cgroup, and of those above it, which
/// hold for it as well.
fn of_groups(mount: &Path, own: &str) -> Vec<MemoryBound> {
    let Some(group) = own.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let group: PathBuf = mount.join(group);
    let levels = group.ancestors().take_while(|level| level.starts_with(mount));
    let limit = |level: &Path| {
        let file = level.join("memory.max");
        // `max`: there is none.
        let bytes: u64 = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        Some(MemoryBound { mib: bytes >> 20, of: file.display().to_string() })
    };
    levels.filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_as_much_as_the_kernel_says() {
        let found = machine("MemTotal:       24683840 kB\nMemFree:  1 kB\n").expect("a line");
        assert_eq!((found.mib, found.of.as_str()), (24_105, "this machine"));
        assert_eq!(machine("MemFree: 1 kB\n"), None);
        assert_eq!(machine("MemTotal: much\n"), None);
        if cfg!(target_os = "linux") {
            assert!(bound().is_some_and(|bound| bound.mib > 0));
        }
    }

    #[test]
    fn a_limit_of_a_group_or_of_one_above_it_holds() {
        let mount = tempfile::tempdir().expect("a directory");
        let group = mount.path().join("system.slice/cache.service");
        fs::create_dir_all(&group).expect("made");
        let limits =
            |own: &str| of_groups(mount.path(), own).into_iter().map(|bound| bound.mib).collect::<Vec<_>>();
        let own = "1:name=systemd:/\n0::/system.slice/cache.service\n";
        assert_eq!(limits(own), [0; 0], "the files are missing");
        fs::write(group.join("memory.max"), "max\n").expect("written");
        assert_eq!(limits(own), [0; 0]);
        fs::write(group.join("memory.max"), "536870912\n").expect("written");
        fs::write(mount.path().join("system.slice/memory.max"), "268435456\n").expect("written");
        assert_eq!(limits(own), [512, 256]);
        assert_eq!(limits("0::/\n"), [0; 0]);
        assert_eq!(limits("4:memory:/other\n"), [0; 0], "cgroup v1 only");
    }
}
