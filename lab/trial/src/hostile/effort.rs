//! Whether other programs used the machine during a test: then long waits are weaker evidence against the replicas.

use std::fs;

/// Load of other programs below this part of a processor delays no client.
const LITTLE: f64 = 0.1;

/// Processor time since the machine was booted, in ticks of its clock.
pub struct Effort {
    pids: Vec<u32>,
    spent: Spent,
}

#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    /// Used or idle, on all processors together.
    total: u64,
    /// Used by all programs.
    busy: u64,
    /// Used by this process and the watched ones.
    own: u64,
}

impl Effort {
    /// The processor time until now.
    pub fn of(pids: &[u32]) -> Self {
        let pids: Vec<u32> = pids.iter().copied().chain([std::process::id()]).collect();
        Effort { spent: spent(&pids), pids }
    }

    /// Processor time of other programs since then, as text; none if there was hardly any.
    pub fn of_others(&self) -> Option<String> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let taken = others(self.spent, spent(&self.pids)) * processors as f64;
        (taken >= LITTLE)
            .then(|| format!("other programs on this machine used {taken:.1} of {processors} processors"))
    }
}

/// The part of all processors that was neither idle nor used by us.
fn others(before: Spent, now: Spent) -> f64 {
    let [total, busy, own] = [(before.total, now.total), (before.busy, now.busy), (before.own, now.own)]
        .map(|(before, now)| now.saturating_sub(before));
    if total == 0 { 0.0 } else { busy.saturating_sub(own) as f64 / total as f64 }
}

fn spent(pids: &[u32]) -> Spent {
    let (total, busy) = of_all(&fs::read_to_string("/proc/stat").unwrap_or_default());
    // The time of a process that has ended is no longer counted.
    let own =
        pids.iter().map(|pid| of_one(&fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default()));
    Spent { total, busy, own: own.sum() }
}

/// From the first line of `/proc/stat`: user, nice, system, idle, waiting for disks, interrupts (twice),
/// stolen. The following fields are included in user.
fn of_all(stat: &str) -> (u64, u64) {
    let words = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
    let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
    let total: u64 = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (total, total - idle)
}

/// From `/proc/PID/stat`, after the name, which may contain any character: the 12th and 13th word are user and system.
fn of_one(stat: &str) -> u64 {
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    behind.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_took_is_what_was_busy_and_not_ours() {
        assert_eq!(of_all("cpu  10 1 5 80 4 1 2 3 7 0\ncpu0 1 1 1 1"), (106, 22));
        assert_eq!(of_one("77 (a ) b) S 1 77 77 0 -1 4194560 100 0 0 0 250 50 9 9 20 0 1 0"), 300);
        let before = Spent { total: 1_000, busy: 500, own: 100 };
        let now = Spent { total: 1_400, busy: 800, own: 200 };
        assert!((others(before, now) - 0.5).abs() < 1e-9);
        assert!(others(now, before).abs() < 1e-9, "nothing is less than nothing");
    }
}
