//! Processor time and memory of a process, from /proc.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

/// Processor time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// In user mode.
    pub user_s: f64,
    /// In the kernel, on behalf of the process.
    pub system_s: f64,
}

impl Cpu {
    /// The time used since `before`.
    pub fn since(self, before: Cpu) -> Cpu {
        Cpu {
            user_s: (self.user_s - before.user_s).max(0.0),
            system_s: (self.system_s - before.system_s).max(0.0),
        }
    }
}

/// Processor time of a process with all its threads; none when there is no such process.
pub fn cpu_of(pid: u32) -> Option<Cpu> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&stat, rustix::param::clock_ticks_per_second() as f64)
}

/// Processor time of the threads of a process, those of one kind together: their names without numbers at the end.
pub fn threads_of(pid: u32) -> BTreeMap<String, Cpu> {
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    let mut kinds = BTreeMap::<String, Cpu>::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        // One that has ended meanwhile has no file.
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        if let (Some(name), Some(cpu)) = (kind_of(&stat), parse_stat(&stat, ticks_per_s)) {
            let sum = kinds.entry(name).or_default();
            *sum = Cpu { user_s: sum.user_s + cpu.user_s, system_s: sum.system_s + cpu.system_s };
        }
    }
    kinds
}

fn kind_of(stat: &str) -> Option<String> {
    let (_, name) = stat.rsplit_once(')')?.0.split_once('(')?;
    Some(name.trim_end_matches(|last: char| last.is_ascii_digit()).trim_end_matches('-').to_owned())
}

fn parse_stat(stat: &str, ticks_per_s: f64) -> Option<Cpu> {
    // The name is in parentheses and may contain any character, even parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / ticks_per_s);
    Some(Cpu { user_s: seconds()?, system_s: seconds()? })
}

/// Most memory that a process has had resident, in bytes.
pub fn peak_memory_of(pid: u32) -> Option<u64> {
    memory_of(pid, "VmHWM:")
}

/// Memory that a process has resident now, in bytes.
pub fn resident_of(pid: u32) -> Option<u64> {
    memory_of(pid, "VmRSS:")
}

fn memory_of(pid: u32, line: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|other| other.strip_prefix(line))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_do_not_shift_the_fields() {
        let stat = "42 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 250 75 0 0 20 0";
        assert_eq!(parse_stat(stat, 100.0), Some(Cpu { user_s: 2.5, system_s: 0.75 }));
        assert_eq!(kind_of(stat).as_deref(), Some("a) b) (c"));
        assert_eq!(kind_of("7 (worker-12) S 1").as_deref(), Some("worker"));
    }

    #[test]
    fn this_process_uses_time_and_memory() {
        let own = std::process::id();
        assert!(cpu_of(own).is_some());
        assert!(peak_memory_of(own).is_some_and(|bytes| bytes > 100_000));
        assert!(resident_of(own).is_some_and(|bytes| bytes > 100_000));
        assert_eq!(cpu_of(u32::MAX), None);
        assert!(!threads_of(own).is_empty() && threads_of(u32::MAX).is_empty());
    }
}
