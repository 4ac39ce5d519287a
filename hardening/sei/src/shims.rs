//! What the shims in C need (`sei/shim.h`): a call is recorded, deferred or refused; and memory, for them and for the
//! compiler.
//!
//! `unsafe` here rests on the same three points as in [`abi`](crate::abi).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write as _;

use crate::abi::{Line, OwnMemory, errno, fail, me, range, second, set_errno, sure};
use crate::calls::Kind;
use crate::fail::Reason;
use crate::handler::Phase;
use crate::memory::ProgramMemory;
use crate::mutate::{Protection, kept};

/// Exit status of a process whose file could not be changed as a handler was told: EX_IOERR of sysexits.h.
const EXIT_FAILED: c_int = 74;

/// Begins a recorded call. 1: the shim makes it; 0: the second run, which is given the result.
#[unsafe(no_mangle)]
pub extern "C" fn sei_rt_runs_first() -> c_int {
    let is_second = sure(me().handler.is_second_run());
    c_int::from(!is_second || !kept(Protection::ReplayValue))
}

/// Ends a recorded call: `result` and errno are kept, or those of the first run are returned. `taken` says that the
/// call took something from outside.
///
/// # Safety
/// `name` is a constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_rt_recorded(
    name: *const c_char,
    taken: c_int,
    a: u64,
    b: u64,
    c: u64,
    result: i64,
) -> i64 {
    let kind = if taken != 0 { Kind::Taken } else { Kind::Recorded };
    let error = errno();
    let call = me().handler.call(kind, name as usize, [a, b, c], || (result as u64, error));
    let (result, error) = sure(call);
    set_errno(error);
    result as i64
}

/// How many calls by this name with this first argument the handler has recorded so far; `sum` becomes that of their
/// results.
///
/// # Safety
/// `name` is a constant, and `sum` a word.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_rt_earlier(name: *const c_char, a: u64, sum: *mut i64) -> usize {
    let calls = me().handler.calls.of(Kind::Recorded);
    let same = calls.filter(|call| call.function == name as usize && call.arguments[0] == a);
    let (count, total) =
        same.fold((0, 0_i64), |(count, total), call| (count + 1, total.saturating_add(call.result as i64)));
    // SAFETY: as above.
    unsafe { sum.write(total) };
    count
}

/// The `length` bytes at `to`, which the recorded call wrote: kept, or overwritten with those of the first run. `skip`
/// bytes of the same call came before.
///
/// # Safety
/// `to` has `length` bytes, which `sei_rt_will_write` was told of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_rt_bytes(to: *mut c_void, skip: usize, length: usize) {
    let handler = &mut me().handler;
    if handler.phase() == Phase::First {
        return sure(handler.calls.keep_bytes(OwnMemory.bytes(to as usize, length)));
    }
    if kept(Protection::ReplayBytes) {
        let at = handler.read_at(to as usize);
        OwnMemory.overwrite(at, sure(handler.calls.kept_bytes(skip, length)));
    }
}

/// The shim is about to overwrite these bytes. Returns where this run writes them.
///
/// # Safety
/// `to` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_rt_will_write(to: *mut c_void, length: usize) -> *mut c_void {
    range(to as usize, length) as *mut c_void
}

/// Where this run reads what the program knows at `from`.
#[unsafe(no_mangle)]
pub extern "C" fn sei_rt_read_at(from: *const c_void) -> *const c_void {
    second(from as usize) as *const c_void
}

/// A call that is made after both runs agree, by `function(a, b, c, bytes, length)`.
///
/// # Safety
/// `sent` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_rt_defer(
    function: extern "C" fn(u64, u64, u64, *const u8, usize),
    a: u64,
    b: u64,
    c: u64,
    sent: *const c_void,
    length: usize,
) {
    let thread = me();
    let bytes = OwnMemory.bytes(second(sent as usize), length);
    if !kept(Protection::DeferredSend) && thread.handler.phase() == Phase::First {
        function(a, b, c, bytes.as_ptr(), length);
    }
    sure(thread.handler.defer(function as usize, [a, b, c], bytes));
}

/// Whether the handler has deferred a call with this key so far ([`crate::calls::Calls::waits`]).
#[unsafe(no_mangle)]
pub extern "C" fn sei_rt_waits(key: u64) -> c_int {
    let handler = &me().handler;
    c_int::from(handler.calls.waits(key, handler.phase() == Phase::Second))
}

/// A call that was deferred has failed, and errno says why: who was told that it succeeds must not go on.
///
/// # Safety
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_rt_failed(name: *const c_char) -> ! {
    let error = std::io::Error::from_raw_os_error(errno());
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("?");
    let mut line = Line::new();
    let _ = writeln!(
        line,
        "sei: {name} failed, after its handler was told that it would succeed: {error}. The process ends with status \
         {EXIT_FAILED}; replies that were to follow have not left it. Remove the cause, and start it again."
    );
    line.write_stderr();
    // SAFETY: ends the process.
    unsafe { libc::_exit(EXIT_FAILED) }
}

/// A handler called a function that cannot run twice.
///
/// # Safety
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_rt_refuse(name: *const c_char) -> ! {
    // SAFETY: as above.
    unsafe {
        libc::write(2, c"sei: ".as_ptr().cast(), 5);
        libc::write(2, name.cast(), libc::strlen(name));
        libc::write(2, c" was called in a handler\n".as_ptr().cast(), 25);
    }
    fail(Reason::Refused)
}

// ---------------------------------------------------------------------------------------------------------------------
// Allocation

const ALLOCATE: usize = 1;
const ALLOCATE_ZEROED: usize = 2;
const ALLOCATE_ALIGNED: usize = 3;
const FREE: usize = 4;

fn allocate(function: usize, arguments: [u64; 3], run: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let before = errno();
    let call = me().handler.call(Kind::Allocate, function, arguments, || (run() as usize as u64, errno()));
    let (result, error) = sure(call);
    // An allocation that succeeds may leave any errno (one that has to find a new heap does); the second run has none.
    set_errno(if result == 0 { error } else { before });
    result as usize as *mut c_void
}

/// `malloc` in a handler: the second run is given the block of the first.
///
/// # Safety
/// As for `malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ITM_malloc(bytes: usize) -> *mut c_void {
    // SAFETY: a plain call.
    allocate(ALLOCATE, [bytes as u64, 0, 0], || unsafe { libc::malloc(bytes) })
}

/// `calloc` in a handler. R leaves the block zeroed, since every write to it is undone.
///
/// # Safety
/// As for `calloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ITM_calloc(count: usize, bytes: usize) -> *mut c_void {
    // SAFETY: a plain call.
    allocate(ALLOCATE_ZEROED, [count as u64, bytes as u64, 0], || unsafe { libc::calloc(count, bytes) })
}

/// An aligned block for the shims; `posix_memalign` checks the alignment.
///
/// # Safety
/// The alignment is a power of two and a multiple of a pointer's size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_rt_memalign(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: a plain call.
    allocate(ALLOCATE_ALIGNED, [alignment as u64, bytes as u64, 0], || unsafe {
        libc::memalign(alignment, bytes)
    })
}

/// `free` in a handler: it happens after both runs agree.
///
/// # Safety
/// As for `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ITM_free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    let thread = me();
    if !kept(Protection::DeferredFree) && thread.handler.phase() == Phase::First {
        // SAFETY: as for `free`; a test looks at what follows.
        unsafe { libc::free(block) };
    }
    sure(thread.handler.call(Kind::Free, FREE, [block as usize as u64, 0, 0], || (0, 0)));
}
