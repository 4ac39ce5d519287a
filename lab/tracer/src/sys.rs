//! The system calls of a debugger behind safe functions: the only file of this crate with `unsafe`.
//!
//! All of them name their thread by its kernel id and fail with an [`io::Error`] when it is gone, is not traced by the
//! calling thread, or is not stopped. None of them can touch the memory of *this* process, except through the buffers
//! that this file itself hands to the kernel.

use std::io;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// The general registers, as the kernel hands them over.
pub type Registers = libc::user_regs_struct;

/// `note` of the extended state (x87, SSE, AVX) in `PTRACE_GETREGSET`.
const NT_X86_XSTATE: usize = 0x202;
/// More than the extended state of today's processors takes: 11,008 bytes with AMX, whose tiles are 8 KiB of it.
const XSTATE_BYTES: usize = 32 << 10;

/// How a stopped thread continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Until the next event.
    Freely,
    /// For one instruction.
    Step,
    /// Until a system call begins or ends.
    ToSyscall,
}

/// An event of a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadEvent {
    /// It stopped.
    Stopped {
        /// The thread.
        thread: i32,
        /// The signal.
        signal: i32,
        /// Number of the ptrace event that it is, 0 for none.
        event: i32,
    },
    /// It ended by itself.
    Exited {
        /// The thread.
        thread: i32,
        /// The exit code.
        code: i32,
    },
    /// It was killed.
    Killed {
        /// The thread.
        thread: i32,
        /// The signal.
        signal: i32,
    },
}

impl ThreadEvent {
    /// The thread of the event.
    pub fn thread(self) -> i32 {
        match self {
            ThreadEvent::Stopped { thread, .. }
            | ThreadEvent::Exited { thread, .. }
            | ThreadEvent::Killed { thread, .. } => thread,
        }
    }
}

/// Starts `command` so that it stops, traced by the calling thread, before its first instruction, without randomized
/// addresses.
///
/// # Errors
/// When it cannot be started or tracing is not permitted.
pub fn spawn_traced(command: &mut Command) -> io::Result<Child> {
    let prepare = || {
        fixed_addresses()?;
        request(libc::PTRACE_TRACEME, 0, 0, 0).map(drop)
    };
    // SAFETY: between fork and exec `prepare` makes two system calls and allocates nothing, as pre_exec asks.
    unsafe { command.pre_exec(prepare) }.spawn()
}

/// Makes the process of `command`, and those that it starts, have no randomized addresses.
pub fn fix_addresses(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec one system call is made and nothing is allocated, as pre_exec asks.
    unsafe { command.pre_exec(fixed_addresses) }
}

fn fixed_addresses() -> io::Result<()> {
    // SAFETY: personality takes a number and touches no memory.
    match unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Requests that new threads are traced too, that system call stops are distinguishable, and that the tracees end with
/// the tracer.
///
/// # Errors
/// See the file's comment.
pub fn follow_threads(thread: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SETOPTIONS, thread, 0, options as usize).map(drop)
}

/// Attaches to one running thread without stopping it.
///
/// # Errors
/// See the file's comment; EPERM when tracing is not permitted.
pub fn seize(thread: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, thread, 0, 0).map(drop)
}

/// Stops a seized thread soon.
///
/// # Errors
/// See the file's comment.
pub fn interrupt(thread: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, thread, 0, 0).map(drop)
}

/// Sends a thread of another process the signal that stops it; a tracer sees the stop.
///
/// # Errors
/// See the file's comment.
pub fn stop_thread(process: i32, thread: i32) -> io::Result<()> {
    // SAFETY: tgkill takes three numbers and touches no memory.
    match unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGSTOP) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Releases a stopped thread, delivering `signal` (0: none).
///
/// # Errors
/// See the file's comment.
pub fn detach(thread: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, thread, 0, signal as usize).map(drop)
}

/// Resumes a stopped thread, delivering `signal` (0: none).
///
/// # Errors
/// See the file's comment.
pub fn resume(thread: i32, how: Resume, signal: i32) -> io::Result<()> {
    let what = match how {
        Resume::Freely => libc::PTRACE_CONT,
        Resume::Step => libc::PTRACE_SINGLESTEP,
        Resume::ToSyscall => libc::PTRACE_SYSCALL,
    };
    request(what, thread, 0, signal as usize).map(drop)
}

/// The general registers of a stopped thread.
///
/// # Errors
/// See the file's comment.
pub fn registers(thread: i32) -> io::Result<Registers> {
    let mut registers = MaybeUninit::<Registers>::zeroed();
    request(libc::PTRACE_GETREGS, thread, 0, registers.as_mut_ptr() as usize)?;
    // SAFETY: all fields are integers, for which zero bytes are valid, and the kernel has filled them.
    Ok(unsafe { registers.assume_init() })
}

/// Sets the general registers of a stopped thread.
///
/// # Errors
/// See the file's comment.
pub fn set_registers(thread: i32, registers: &Registers) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, thread, 0, std::ptr::from_ref(registers) as usize).map(drop)
}

/// The next instruction of a stopped thread: cheaper than all registers.
///
/// # Errors
/// See the file's comment.
pub fn instruction_pointer(thread: i32) -> io::Result<u64> {
    let mut word: libc::c_ulong = 0;
    let at = offset_of!(libc::user, regs) + offset_of!(Registers, rip);
    // SAFETY: PTRACE_PEEKUSER as a raw system call stores one word at its last argument, which is ours.
    let done = unsafe {
        libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKUSER as libc::c_long, thread, at, &raw mut word)
    };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(word) }
}

/// The extended state in its standard format (Intel SDM volume 1, 13.4).
///
/// # Errors
/// See the file's comment; also when it is larger than the buffer of this crate: an incomplete state could not be set
/// again.
pub fn extended_state(thread: i32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; XSTATE_BYTES];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    request(libc::PTRACE_GETREGSET, thread, NT_X86_XSTATE, &raw mut vector as usize)?;
    if vector.iov_len == XSTATE_BYTES {
        return Err(io::Error::other("the processor's extended state is larger than expected"));
    }
    bytes.truncate(vector.iov_len);
    Ok(bytes)
}

/// Sets the extended state to a result of [`extended_state`].
///
/// # Errors
/// See the file's comment.
pub fn set_extended_state(thread: i32, bytes: &mut [u8]) -> io::Result<()> {
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    request(libc::PTRACE_SETREGSET, thread, NT_X86_XSTATE, &raw mut vector as usize).map(drop)
}

/// Makes a stopped thread stop before the instruction at `address`, by the first debug register; with none, clears it.
///
/// # Errors
/// See the file's comment; also where the machine or its sandbox has no debug registers.
pub fn set_breakpoint(thread: i32, address: Option<u64>) -> io::Result<()> {
    let register = |number: usize| offset_of!(libc::user, u_debugreg) + number * size_of::<u64>();
    // Bit 0 of DR7 switches breakpoint 0 on; its kind and length fields are 0 for the execution of an instruction.
    request(libc::PTRACE_POKEUSER, thread, register(7), 0)?;
    if let Some(address) = address {
        request(libc::PTRACE_POKEUSER, thread, register(0), address as usize)?;
        request(libc::PTRACE_POKEUSER, thread, register(7), 1)?;
    }
    Ok(())
}

/// Waits for the next event of `thread`, or of any thread that the calling thread traces or started. None when there is
/// no such thread, or, without `patiently`, when no event has occurred.
///
/// # Errors
/// When the wait itself fails.
pub fn wait(thread: Option<i32>, patiently: bool) -> io::Result<Option<ThreadEvent>> {
    let mut status = 0;
    let flags = libc::__WALL | libc::__WNOTHREAD | if patiently { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: waitpid writes one integer, which is ours.
        let id = unsafe { libc::waitpid(thread.unwrap_or(-1), &raw mut status, flags) };
        return match id {
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => continue,
                error if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
                error => Err(error),
            },
            0 => Ok(None),
            thread => Ok(Some(event_of(thread, status))),
        };
    }
}

fn event_of(thread: i32, status: i32) -> ThreadEvent {
    if libc::WIFEXITED(status) {
        ThreadEvent::Exited { thread, code: libc::WEXITSTATUS(status) }
    } else if libc::WIFSIGNALED(status) {
        ThreadEvent::Killed { thread, signal: libc::WTERMSIG(status) }
    } else {
        ThreadEvent::Stopped { thread, signal: libc::WSTOPSIG(status), event: status >> 16 }
    }
}

fn request(what: libc::c_uint, thread: i32, address: usize, data: usize) -> io::Result<libc::c_long> {
    // SAFETY: every caller is in this file. `data` is a number, or the address of a live buffer of the size that the
    // request writes or reads, held by the caller across the call; `address` is never an address of this process.
    match unsafe { libc::ptrace(what, thread, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}
