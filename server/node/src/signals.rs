//! Signals as flags: the loops of `up`, `top`, `evidence --follow`, `demo` and `load` read them and end cleanly;
//! `serve` does not end with its terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether the operator requested the end of the command.
#[derive(Clone, Debug)]
pub struct Ending(Arc<AtomicBool>);

impl Ending {
    /// From now on, catches SIGINT, SIGTERM and SIGHUP: for a command that ends with its terminal.
    ///
    /// A second SIGINT or SIGTERM ends the process at once with exit code 1, in case the clean end hangs. A second
    /// SIGHUP does not: shell and kernel each send one when a terminal goes away. Nor does a first signal after
    /// [`Ending::ask`]: it may have the same cause, a supervisor that signals every process of a service.
    ///
    /// # Errors
    /// The operating system refuses to install a signal handler.
    pub fn catch() -> std::io::Result<Self> {
        let ending = Self::catch_of_service()?;
        flag::register(SIGHUP, Arc::clone(&ending.0))?;
        Ok(ending)
    }

    /// As [`Ending::catch`], without SIGHUP: for a server, which continues without a terminal.
    ///
    /// # Errors
    /// The operating system refuses to install a signal handler.
    pub fn catch_of_service() -> std::io::Result<Self> {
        let (asked, signalled) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: at the first signal the flag is still false, and is then set.
            flag::register_conditional_shutdown(signal, 1, Arc::clone(&signalled))?;
            flag::register(signal, Arc::clone(&signalled))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Ending(asked))
    }

    /// Whether the end was requested.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Requests the end from inside the program. Any number of calls are one request, and no signal.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The flag itself, for crates that do not handle signals.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Sleeps for `pause`, or less if the end is requested; returns whether it was.
    pub fn sleep(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        while !self.asked() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
        true
    }
}

/// Set by SIGHUP, which asks a server to read its configuration again.
#[derive(Debug)]
pub struct Hangups(Arc<AtomicBool>);

impl Hangups {
    /// From now on, catches SIGHUP, which then no longer ends the process.
    ///
    /// # Errors
    /// The operating system refuses to install a signal handler.
    pub fn catch() -> std::io::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        flag::register(SIGHUP, Arc::clone(&came))?;
        Ok(Hangups(came))
    }

    /// Whether a SIGHUP was received since the last call.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    /// In either order: a supervisor may signal a process before or after it has ended the one that asks.
    #[test]
    fn one_signal_besides_a_request_from_inside_does_not_end_the_process_at_once() {
        let ending = Ending::catch_of_service().unwrap();
        ending.ask();
        kill_process(getpid(), Signal::TERM).unwrap();
        // At once would be here.
        std::thread::sleep(Duration::from_millis(50));
        ending.ask();
        assert!(ending.asked());
    }

    #[test]
    fn sleep_ends_early_when_asked() {
        let ending = Ending(Arc::new(AtomicBool::new(false)));
        assert!(!ending.sleep(Duration::from_millis(1)));
        ending.ask();
        let before = Instant::now();
        assert!(ending.sleep(Duration::from_secs(60)));
        assert!(before.elapsed() < Duration::from_secs(1));
    }
}
