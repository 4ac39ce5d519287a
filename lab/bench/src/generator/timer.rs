//! A timer that wakes the poll between its milliseconds, so that an open loop sends at its intended times.

use std::io;

use mio::{Registry, Token};

#[cfg(target_os = "linux")]
pub use linux::Timer;

/// Where there is no such timer, the poll's timeout wakes the generator up to a millisecond late.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub struct Timer;

#[cfg(not(target_os = "linux"))]
impl Timer {
    /// Does nothing.
    ///
    /// # Errors
    /// None.
    pub fn new(_registry: &Registry, _token: Token) -> io::Result<Self> {
        Ok(Timer)
    }

    /// Does nothing.
    ///
    /// # Errors
    /// None.
    pub fn set(&self, _nanoseconds: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::{AsRawFd, OwnedFd};

    use mio::Interest;
    use mio::unix::SourceFd;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    use super::{Registry, Token, io};

    /// A timer of the kernel.
    #[derive(Debug)]
    pub struct Timer(OwnedFd);

    impl Timer {
        /// A timer that is not set; its events come under `token`.
        ///
        /// # Errors
        /// There are no more file descriptors.
        pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            registry.register(&mut SourceFd(&descriptor.as_raw_fd()), token, Interest::READABLE)?;
            Ok(Timer(descriptor))
        }

        /// Wakes once, `nanoseconds` from now; at once when that is 0. An earlier setting and its expiry are discarded.
        ///
        /// # Errors
        /// The kernel refuses, which it does not for these values.
        pub fn set(&self, nanoseconds: u64) -> io::Result<()> {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            // A value of zero would switch the timer off.
            let nanoseconds = nanoseconds.max(1);
            let value = Timespec {
                tv_sec: (nanoseconds / 1_000_000_000) as i64,
                tv_nsec: (nanoseconds % 1_000_000_000) as i64,
            };
            let once = Itimerspec { it_interval: zero, it_value: value };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
            Ok(())
        }
    }
}
