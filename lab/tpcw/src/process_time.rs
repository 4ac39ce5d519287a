//! Processor time of processes and all of their descendants, by `/proc`.

use std::collections::HashMap;
use std::fs;

use anyhow::Context;

/// Ticks per second in `/proc/PID/stat`: Linux has 100 for programs, whatever the kernel counts by.
const TICKS: f64 = 100.0;

/// Seconds that these processes have used, with their descendants, those that have ended included.
///
/// # Errors
/// One of the processes does not exist.
pub fn seconds(processes: &[u32]) -> anyhow::Result<f64> {
    let all = all_processes();
    let mut left: Vec<u32> = processes.to_vec();
    let mut counted = Vec::new();
    let mut ticks = 0;
    while let Some(process) = left.pop() {
        if counted.contains(&process) {
            continue;
        }
        let stat = all.get(&process).with_context(|| format!("no process {process}"))?;
        ticks += stat.ticks;
        counted.push(process);
        left.extend(all.iter().filter(|(_, stat)| stat.parent == process).map(|(process, _)| process));
    }
    Ok(f64::from(u32::try_from(ticks).context("ticks")?) / TICKS)
}

/// What one line of `/proc/PID/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessStat {
    parent: u32,
    /// Its own, and those of children that it has waited for.
    ticks: u64,
}

impl ProcessStat {
    /// Of such a line. The name, in brackets, may have blanks and brackets.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        // `man 5 proc`: after the name come the state, the parent; user, system, and both of the children at 14 to 17.
        let ticks = (11..15).map(|at| fields.get(at)?.parse::<u64>().ok()).sum::<Option<u64>>()?;
        Some(ProcessStat { parent: fields.get(1)?.parse().ok()?, ticks })
    }
}

fn all_processes() -> HashMap<u32, ProcessStat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stat = |entry: fs::DirEntry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((process, ProcessStat::parse(&line)?))
    };
    entries.filter_map(stat).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_read_whatever_the_name_of_the_process() {
        let line = "77 (a (b) c) S 42 77 77 0 -1 4194560 1 2 3 4 500 60 7 8 20 0 1 0 100 200 300";
        assert_eq!(ProcessStat::parse(line), Some(ProcessStat { parent: 42, ticks: 575 }));
        assert_eq!(ProcessStat::parse("77 (x) S 42 77"), None);
    }

    #[test]
    fn work_of_this_process_is_counted() {
        let own = std::process::id();
        let before = seconds(&[own]).expect("this process");
        let begun = std::time::Instant::now();
        let mut sum = 0_u64;
        while seconds(&[own]).expect("this process") < before + 0.05 {
            assert!(begun.elapsed().as_secs() < 60, "no processor time was counted: {sum}");
            sum = (0..1_000_000).fold(sum, |sum: u64, n| std::hint::black_box(sum.wrapping_add(n)));
        }
        assert!(seconds(&[u32::MAX]).is_err());
    }
}
