//! Work without effect: for benchmarks of services whose requests take longer than a cache's (EDCC'16, Fig. 11).

use rustix::time::{ClockId, clock_gettime};

const SPINS: u32 = 16;

/// Uses this much processor time of the calling thread. It touches no state and no reply, so replicas need not agree on
/// its duration; time in which the thread does not run does not count.
pub fn burn(us: u32) {
    let end = thread_ns() + i128::from(us) * 1000;
    while thread_ns() < end {
        // Between two readings of the clock, which is a system call: well below a microsecond.
        for _ in 0..SPINS {
            std::hint::spin_loop();
        }
    }
}

fn thread_ns() -> i128 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_so_much_is_burnt() {
        let before = thread_ns();
        burn(2_000);
        assert!(thread_ns() - before >= 2_000_000);
    }
}
