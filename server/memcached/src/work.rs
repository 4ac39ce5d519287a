//! Work without effect: for benchmarks of services whose requests take longer than a cache's (EDCC'16, Fig. 11).

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::time::{ClockId, clock_gettime};

const SPINS: u32 = 16;

/// Microseconds per request.
static WORK_US: AtomicU32 = AtomicU32::new(0);

/// From now on every request of this process uses so much processor time in addition.
pub fn per_request(us: u32) {
    WORK_US.store(us, Ordering::Relaxed);
}

/// Uses the processor time of one request. It touches no state and no reply, so replicas need not agree on its
/// duration; time in which the thread does not run does not count.
pub(crate) fn burn() {
    let us = WORK_US.load(Ordering::Relaxed);
    if us == 0 {
        return;
    }
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
        per_request(2_000);
        burn();
        per_request(0);
        assert!(thread_ns() - before >= 2_000_000);
    }
}
