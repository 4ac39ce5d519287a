//! One run of a single server under the tracer: from its start until it waits for requests, over the measured part, to
//! its end.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::authority;
use crate::client::{ClientOutcome, RunPhase, RunProgress, TraceClient};
use crate::clock::Clock;
use crate::memory::Memory;
use crate::sys::{self, Resume, ThreadEvent};
use crate::target::{RunPlace, Target};
use crate::trace::Trace;
use crate::user_io::{self, TargetIo};

/// A stop at a system call, with `PTRACE_O_TRACESYSGOOD`.
const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// `getrandom` in the kernel's table.
const SYS_GETRANDOM: u64 = 318;
/// The value that the kernel puts into rax before a system call is made.
const NOT_YET: u64 = -38_i64 as u64;
/// `AT_RANDOM`: address of 16 random bytes that the kernel gives each program.
const AT_RANDOM: u64 = 25;
/// How long a thread is held before its wait for requests, for the reply of the poke to arrive.
const POKE_ARRIVES: Duration = Duration::from_millis(2);
/// Signals of a processor fault or an abort.
const CRASHES: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// By itself.
    Exited(i32),
    /// By a signal.
    Killed(i32),
}

/// A server under the tracer.
#[derive(Debug)]
pub struct TracedServer {
    /// Its address space.
    pub memory: Memory,
    /// Its threads.
    pub threads: TracedThreads,
    /// Whether the other threads stand still while the worker is stepped through the golden run.
    pub holds_others: bool,
    clock: Option<Clock>,
    waits_in: u64,
    name: String,
    _child: Child,
}

/// The threads of the traced process, and what happened to them.
#[derive(Debug)]
pub struct TracedThreads {
    process: i32,
    known: Vec<i32>,
    /// The thread that faults are injected into, once it is known.
    pub worker: i32,
    /// How the process ended.
    pub ended: Option<ProcessEnd>,
    /// The first signal of a crash.
    pub crashed: Option<i32>,
    to_syscall: bool,
    /// Threads that stand still until the worker is released.
    held: Vec<i32>,
}

/// The result of a run: the client's observations, the replies, how the server ended, and the result of the tracer's
/// part.
#[derive(Debug)]
pub struct RunResult<T> {
    /// The client's observations.
    pub seen: ClientOutcome,
    /// All whole replies of the measured part.
    pub replies: Vec<Vec<u8>>,
    /// None when the client ended it.
    pub ended: Option<ProcessEnd>,
    /// The first signal of a crash.
    pub crashed: Option<i32>,
    /// From the start to the beginning of the measured part.
    pub start: Duration,
    /// Duration of the whole run.
    pub total: Duration,
    /// The result of the tracer's part.
    pub part: T,
}

/// Starts the target, brings it to the beginning of the measured part, and calls `part` there, with the
/// traced thread stopped at the exit of the system call in which it waits.
///
/// # Errors
/// When the server does not start, or tracing is not permitted.
pub fn run<T>(
    target: &Target,
    trace: &Trace,
    golden: Option<&[Vec<u8>]>,
    place: &RunPlace,
    part: impl FnOnce(&mut TracedServer, &RunProgress) -> io::Result<T>,
) -> anyhow::Result<RunResult<T>> {
    let begun = Instant::now();
    let progress = RunProgress::default();
    let (hold, held) = mpsc::channel();
    let (queue, queued) = mpsc::channel();
    let mut session = TracedServer::start(target, place)?;
    let process = session.pidfd()?;
    let id = session.threads.process;
    let address = place.fill(&target.connect);
    let client =
        TraceClient { target, trace, golden, address, process, id, progress: &progress, held, queued: queue };
    std::thread::scope(|scope| {
        let client = scope.spawn(|| client.run());
        let mut start = Duration::ZERO;
        let done = (|| {
            session.until_held(&progress)?;
            session.begin(&hold, &queued)?;
            start = begun.elapsed();
            let done = part(&mut session, &progress)?;
            Ok::<T, anyhow::Error>(done)
        })();
        drop(hold);
        progress.enter_injected();
        session.run_out();
        let total = begun.elapsed();
        let (seen, replies) = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let TracedThreads { ended, crashed, .. } = session.threads;
        Ok(RunResult { seen, replies, ended, crashed, start, total, part: done? })
    })
}

impl RunProgress {
    /// Enters the phase after the injection, unless the run is complete already.
    pub fn enter_injected(&self) {
        if !self.reached(RunPhase::Injected) {
            self.enter(RunPhase::Injected);
        }
    }
}

impl TracedServer {
    fn start(target: &Target, place: &RunPlace) -> anyhow::Result<Self> {
        if target.trace.zone.is_some() {
            authority::start()?;
        }
        for (name, content) in &target.files {
            let file = place.dir.join(name);
            fs::create_dir_all(file.parent().context("a file in a folder")?)?;
            fs::write(file, place.fill(content))?;
        }
        let child = sys::spawn_traced(&mut command(target, place)?)
            .context("starting the target under the tracer")?;
        let process = child.id() as i32;
        match sys::wait(Some(process), true)? {
            Some(ThreadEvent::Stopped { signal: libc::SIGTRAP, .. }) => {}
            other => bail!("the target did not stop at its beginning: {other:?}"),
        }
        sys::follow_threads(process)?;
        let memory = Memory::open(process)?;
        let clock = if target.stop_clock { Clock::install(&memory)? } else { None };
        if let Some(address) = memory.auxiliary(AT_RANDOM)? {
            memory.write(address, &[0x5a; 16])?;
        }
        sys::resume(process, Resume::ToSyscall, 0)?;
        let threads = TracedThreads {
            process,
            known: vec![process],
            worker: 0,
            ended: None,
            crashed: None,
            to_syscall: true,
            held: Vec::new(),
        };
        let name = target.thread.clone();
        let (holds_others, waits_in) = (target.hold_others, target.waits_in);
        Ok(TracedServer { memory, threads, holds_others, clock, waits_in, name, _child: child })
    }

    fn pidfd(&self) -> anyhow::Result<OwnedFd> {
        let id = Pid::from_raw(self.threads.process).context("a process without a number")?;
        Ok(pidfd_open(id, PidfdFlags::empty())?)
    }

    /// Lets the target start and serve the warm-up, until the traced thread is about to wait for requests and none is
    /// pending.
    fn until_held(&mut self, progress: &RunProgress) -> anyhow::Result<()> {
        while let Some((thread, signal)) = self.threads.next_stop()? {
            if signal != SYSCALL_STOP {
                self.threads.go_on(thread, signal);
                continue;
            }
            let registers = sys::registers(thread)?;
            let entering = registers.rax == NOT_YET;
            if !entering && registers.orig_rax == SYS_GETRANDOM {
                // Hash seeds and cookies decide paths: every run gets the same ones.
                let length = (registers.rax as usize).min(4096);
                let _ = self.memory.write(registers.rdi, &vec![0x5a; length]);
            }
            let waits = entering && registers.orig_rax == self.waits_in;
            if waits && progress.reached(RunPhase::Poking) && self.is_ours(thread) {
                let since = Instant::now();
                while !progress.reached(RunPhase::Poked) && since.elapsed() < POKE_ARRIVES {
                    std::thread::yield_now();
                }
                if progress.reached(RunPhase::Poked) {
                    self.threads.worker = thread;
                    return Ok(());
                }
            }
            self.threads.go_on(thread, 0);
        }
        bail!("the target ended before it was warm: {:?}", self.threads.ended)
    }

    fn is_ours(&self, thread: i32) -> bool {
        let path = format!("/proc/{}/task/{thread}/comm", self.threads.process);
        fs::read_to_string(path).is_ok_and(|name| name.trim_end() == self.name)
    }

    /// Queues all requests while the thread is held, and lets it enter and leave its wait.
    fn begin(&mut self, hold: &mpsc::Sender<()>, queued: &mpsc::Receiver<()>) -> anyhow::Result<()> {
        if let Some(clock) = self.clock {
            clock.stop(&self.memory, sys::registers(self.threads.worker)?.fs_base)?;
        }
        hold.send(()).context("the client is gone")?;
        queued.recv().context("the client is gone")?;
        self.threads.to_syscall = false;
        let worker = self.threads.worker;
        sys::resume(worker, Resume::ToSyscall, 0)?;
        while let Some((thread, signal)) = self.threads.next_stop()? {
            if thread == worker && signal == SYSCALL_STOP {
                return Ok(());
            }
            self.threads.go_on(thread, if signal == SYSCALL_STOP { 0 } else { signal });
        }
        bail!("the target ended at the beginning of the measured part: {:?}", self.threads.ended)
    }

    /// Releases the clock and the traced thread; delivers `signal` if the thread has one pending.
    ///
    /// # Errors
    /// When the process has ended without an event.
    pub fn release(&mut self) -> io::Result<()> {
        if let Some(clock) = self.clock {
            // A process that crashed a moment ago has no clock.
            let _ = clock.go(&self.memory);
        }
        self.threads.release();
        Ok(())
    }

    fn run_out(&mut self) {
        self.threads.to_syscall = false;
        while let Ok(Some((thread, signal))) = self.threads.next_stop() {
            self.threads.go_on(thread, if signal == SYSCALL_STOP { 0 } else { signal });
        }
    }
}

impl TracedThreads {
    /// The next stop of a thread that the caller must handle: `(thread, signal)`. None when the process has ended.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn next_stop(&mut self) -> io::Result<Option<(i32, i32)>> {
        while let Some(event) = sys::wait(None, true)? {
            match event {
                ThreadEvent::Exited { thread, code } if thread == self.process => {
                    self.ended = Some(ProcessEnd::Exited(code))
                }
                ThreadEvent::Killed { thread, signal } if thread == self.process => {
                    self.ended = Some(ProcessEnd::Killed(signal))
                }
                ThreadEvent::Exited { .. } | ThreadEvent::Killed { .. } => {}
                ThreadEvent::Stopped { thread, signal, event } => {
                    let is_new = !self.known.contains(&thread);
                    if is_new {
                        self.known.push(thread);
                    }
                    if event != 0 || (is_new && signal == libc::SIGSTOP) {
                        self.go_on(thread, 0);
                        continue;
                    }
                    return Ok(Some((thread, signal)));
                }
            }
        }
        Ok(None)
    }

    /// Resumes a thread that [`TracedThreads::next_stop`] returned, with its signal.
    pub fn go_on(&mut self, thread: i32, signal: i32) {
        let how = if self.to_syscall { Resume::ToSyscall } else { Resume::Freely };
        let signal = if signal == SYSCALL_STOP { 0 } else { signal };
        if CRASHES.contains(&signal) && self.crashed.is_none() {
            self.crashed = Some(signal);
        }
        // If the thread was killed meanwhile, its next event reports that.
        let _ = sys::resume(thread, how, signal);
    }

    /// Runs the worker until it stops by a trap: one step, or a breakpoint. False when it stopped otherwise.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn until_trap(&mut self, how: Resume) -> io::Result<bool> {
        if sys::resume(self.worker, how, 0).is_err() {
            return Ok(false);
        }
        while let Some((thread, signal)) = self.next_stop()? {
            match signal {
                libc::SIGTRAP if thread == self.worker => return Ok(true),
                signal if thread == self.worker && CRASHES.contains(&signal) => {
                    self.go_on(thread, signal);
                    return Ok(false);
                }
                // Another signal must not end the step.
                signal if thread == self.worker => {
                    if sys::resume(self.worker, how, signal).is_err() {
                        return Ok(false);
                    }
                }
                signal => self.go_on(thread, signal),
            }
        }
        Ok(false)
    }

    /// Stops all threads but the worker until it is released. While it is stepped, ten thousand times slower, they
    /// would otherwise do what they do every second, and it would take another path than in a run at full speed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn hold_others(&mut self) -> io::Result<()> {
        let others: Vec<i32> = self.known.iter().copied().filter(|thread| *thread != self.worker).collect();
        for thread in others {
            // A thread that has ended needs no stop.
            if sys::stop_thread(self.process, thread).is_err() {
                continue;
            }
            while let Some(ThreadEvent::Stopped { signal, event, .. }) = sys::wait(Some(thread), true)? {
                if signal == libc::SIGSTOP && event == 0 {
                    self.held.push(thread);
                    break;
                }
                self.go_on(thread, if event == 0 { signal } else { 0 });
            }
        }
        Ok(())
    }

    fn release(&mut self) {
        let _ = sys::set_breakpoint(self.worker, None);
        for thread in self.held.drain(..).chain([self.worker]) {
            let _ = sys::resume(thread, Resume::Freely, 0);
        }
    }
}

/// The command that starts a target in a directory.
///
/// # Errors
/// When its program is missing.
pub fn command(target: &Target, place: &RunPlace) -> anyhow::Result<Command> {
    let mut command = Command::new(target.program()?);
    command.args(target.argv[1..].iter().map(|word| place.fill(word)));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    if target.io == TargetIo::User {
        command.env("LD_PRELOAD", user_io::library()?);
    }
    command.envs(target.env.iter().map(|(name, value)| (name, place.fill(value))));
    command.current_dir(&place.dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}
