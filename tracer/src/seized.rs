//! One thread of a running process under ptrace: stopped for the moment in which the fault strikes, and let go.

use std::io;
use std::time::{Duration, Instant};

use crate::sys::{self, Resume, ThreadEvent};

/// How long a site may take to be executed.
const REACHED: Duration = Duration::from_millis(500);
/// `PTRACE_EVENT_STOP`: the stop that an interrupt asked for.
const EVENT_STOP: i32 = 128;

/// A seized thread that runs or stands, let go when this value ends.
#[derive(Debug)]
pub struct Seized {
    thread: i32,
    stopped: bool,
    signal: i32,
}

impl Seized {
    /// Takes hold of it; it runs on.
    ///
    /// # Errors
    /// When tracing is not permitted, or the thread is gone.
    pub fn new(thread: i32) -> io::Result<Self> {
        sys::seize(thread)?;
        Ok(Seized { thread, stopped: false, signal: 0 })
    }

    /// Stops it where it is; false when it ended.
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

    /// One instruction; false when it ended, or got a signal of a crash, which it then has on its way.
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

    /// Runs up to the instruction at `address`; false when that does not come in time.
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
