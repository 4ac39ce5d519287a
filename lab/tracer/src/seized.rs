//! One thread of a running process under ptrace: stopped while the fault is injected, and then released.

use std::io;
use std::time::{Duration, Instant};

use crate::sys::{self, Resume, ThreadEvent};

/// How long a site may take to be executed.
const REACHED: Duration = Duration::from_millis(500);
/// `PTRACE_EVENT_STOP`: the stop that an interrupt requested.
const EVENT_STOP: i32 = 128;

/// A seized thread, running or stopped, released when this value is dropped.
#[derive(Debug)]
pub struct Seized {
    thread: i32,
    stopped: bool,
    signal: i32,
}

impl Seized {
    /// Seizes it; it continues to run.
    ///
    /// # Errors
    /// When tracing is not permitted, or the thread has ended.
    pub fn new(thread: i32) -> io::Result<Self> {
        sys::seize(thread)?;
        Ok(Seized { thread, stopped: false, signal: 0 })
    }

    /// Stops it where it is; false when it has ended.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn interrupt(&mut self) -> io::Result<bool> {
        sys::interrupt(self.thread)?;
        loop {
            match sys::wait(Some(self.thread), true)? {
                Some(ThreadEvent::Stopped { event: EVENT_STOP, .. }) => {
                    self.stopped = true;
                    return Ok(true);
                }
                Some(ThreadEvent::Stopped { signal, .. }) => {
                    sys::resume(self.thread, Resume::Freely, signal)?
                }
                _ => return Ok(false),
            }
        }
    }

    /// Executes one instruction; false when the thread ended, or received a signal of a crash, which is then pending.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn step(&mut self) -> io::Result<bool> {
        self.stopped = false;
        sys::resume(self.thread, Resume::Step, 0)?;
        loop {
            match sys::wait(Some(self.thread), true)? {
                Some(ThreadEvent::Stopped { signal: libc::SIGTRAP, .. }) => {
                    self.stopped = true;
                    return Ok(true);
                }
                Some(ThreadEvent::Stopped { signal, .. })
                    if signal == libc::SIGSEGV || signal == libc::SIGBUS =>
                {
                    self.stopped = true;
                    self.signal = signal;
                    return Ok(false);
                }
                Some(ThreadEvent::Stopped { signal, .. }) => sys::resume(self.thread, Resume::Step, signal)?,
                _ => return Ok(false),
            }
        }
    }

    /// Runs up to the instruction at `address`; false when that is not reached in time.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn run_to(&mut self, address: u64) -> io::Result<bool> {
        sys::set_breakpoint(self.thread, Some(address))?;
        sys::resume(self.thread, Resume::Freely, 0)?;
        self.stopped = false;
        let begun = Instant::now();
        while begun.elapsed() < REACHED {
            match sys::wait(Some(self.thread), false)? {
                None => std::thread::sleep(Duration::from_micros(100)),
                Some(ThreadEvent::Stopped { signal: libc::SIGTRAP, event: 0, .. }) => {
                    self.stopped = true;
                    sys::set_breakpoint(self.thread, None)?;
                    return Ok(sys::instruction_pointer(self.thread)? == address);
                }
                Some(ThreadEvent::Stopped { signal, event, .. }) => {
                    sys::resume(self.thread, Resume::Freely, if event == 0 { signal } else { 0 })?;
                }
                Some(_) => return Ok(false),
            }
        }
        if self.interrupt()? {
            sys::set_breakpoint(self.thread, None)?;
        }
        Ok(false)
    }
}

impl Drop for Seized {
    fn drop(&mut self) {
        if self.stopped || self.interrupt().unwrap_or(false) {
            let _ = sys::detach(self.thread, self.signal);
        }
    }
}
