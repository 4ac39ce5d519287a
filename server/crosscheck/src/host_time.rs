//! What a service may ask of its host, for statistics: neither is the same at every replica.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Processor time that all threads of this process have used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessorTime {
    /// In the program.
    pub user: Duration,
    /// In the kernel, for the program.
    pub system: Duration,
}

/// Processor time of this process, for statistics: it differs from replica to replica. Zero where the system does not
/// report it.
pub fn processor_time() -> ProcessorTime {
    use nix::sys::resource::{UsageWho, getrusage};
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return ProcessorTime::default() };
    let time = |time: nix::sys::time::TimeVal| {
        #[allow(clippy::useless_conversion, reason = "microseconds have 32 bits on macOS")]
        let us = i64::from(time.tv_sec()) * 1_000_000 + i64::from(time.tv_usec());
        Duration::from_micros(u64::try_from(us).unwrap_or(0))
    };
    ProcessorTime { user: time(usage.user_time()), system: time(usage.system_time()) }
}

/// This host's time, for statistics: it differs from replica to replica.
#[derive(Clone, Copy, Debug)]
pub struct HostTime {
    /// Since 1970, by the host's clock.
    pub unix: Duration,
    /// Since this process asked for the first time.
    pub running: Duration,
}

/// This host's time, for statistics. A service asks once when it is made, so that `running` counts from there.
pub fn host_time() -> HostTime {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    let running = BEGUN.get_or_init(Instant::now).elapsed();
    HostTime { unix: Duration::from_micros(crate::world::wall_us()), running }
}
