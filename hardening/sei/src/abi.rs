//! The functions that compiled handlers call: GCC's transactional-memory interface; begin and end, detection, memory.
//!
//! All `unsafe` of the crate is here, in `api` and in `shims`. What makes it sound is the same everywhere. (1) An
//! address comes from the compiled program, which would have used it itself, or from this library's log of such
//! addresses. (2) A [`Thread`] is used by its own thread alone, by one function of these files at a time. (3) Where a
//! function does not return to its caller but to the begin of the handler ([`resume`]), no frame between holds anything
//! to drop.

use std::arch::{asm, naked_asm};
use std::ffi::{c_char, c_int, c_void};
use std::fmt::Write as _;
use std::mem::offset_of;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::api::{
    Context, deliver, free_contexts, guard_state, leave_core, return_cores, unlock_all, with_context,
};
use crate::calls::Kind;
use crate::copies::Copies;
use crate::fail::{FailedCheck, Reason};
use crate::guard::StateGuard;
use crate::handler::{Handler, Next};
use crate::limits;
use crate::memory::{ProgramMemory, Size};
use crate::message::InputMessage;
use crate::mutate::{Protection, kept};
use crate::process::{Choices, SharedByThreads, add, process};
use crate::rotate::{self, Rotation};
use crate::stacks::Stacks;

/// Exit status of a process that detected a fault.
const EXIT_DETECTED: c_int = 86;

// What `_ITM_beginTransaction` is told and answers (libitm's interface, section 5.3 there).
const INSTRUMENTED: u32 = 1;
const GOES_IRREVOCABLE: u32 = 0x40;
const RUN_INSTRUMENTED: u32 = 1;
pub(crate) const RUN_AGAIN: u32 = 9; // run the instrumented code, restore live variables

/// The memory of this process.
pub(crate) struct OwnMemory;

impl ProgramMemory for OwnMemory {
    #[inline(always)]
    fn load(&self, address: usize, size: Size) -> u64 {
        // SAFETY: (1). Unaligned reads, since the program may have packed structures.
        unsafe {
            match size {
                Size::B1 => u64::from((address as *const u8).read()),
                Size::B2 => u64::from((address as *const u16).read_unaligned()),
                Size::B4 => u64::from((address as *const u32).read_unaligned()),
                Size::B8 => (address as *const u64).read_unaligned(),
            }
        }
    }

    #[inline(always)]
    fn store(&mut self, address: usize, size: Size, value: u64) {
        // SAFETY: (1), as for `load`.
        unsafe {
            match size {
                Size::B1 => (address as *mut u8).write(value as u8),
                Size::B2 => (address as *mut u16).write_unaligned(value as u16),
                Size::B4 => (address as *mut u32).write_unaligned(value as u32),
                Size::B8 => (address as *mut u64).write_unaligned(value),
            }
        }
    }

    #[inline]
    fn bytes(&self, address: usize, length: usize) -> &[u8] {
        if length == 0 {
            return &[];
        }
        // SAFETY: (1). The slice is used at once, by the thread whose handler owns these bytes.
        unsafe { std::slice::from_raw_parts(address as *const u8, length) }
    }

    #[inline]
    fn overwrite(&mut self, address: usize, bytes: &[u8]) {
        // SAFETY: (1). `bytes` is memory of this library, so both do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) }
    }
}

/// A thread that runs handlers.
pub(crate) struct Thread {
    pub(crate) handler: Handler,
    pub(crate) jump: JumpBuffer,
    pub(crate) number: usize,
    /// The thread's own stack.
    pub(crate) stack: Range<usize>,
    /// `errno` at the begin of the handler.
    pub(crate) errno: c_int,
    /// It may wait for locks while it holds some.
    pub(crate) has_token: bool,
    pub(crate) binds_replies: bool,
    pub(crate) process: &'static SharedByThreads,
    pub(crate) own: Context,
    /// Handlers since the last one whose second run was on another core.
    pub(crate) since_rotation: u32,
    /// The runs of this handler are on different cores.
    pub(crate) rotation: Option<Rotation>,
    /// The connection's, or null for `own`.
    pub(crate) context: *mut Context,
}

thread_local! {
    static END: EndOfThread = const { EndOfThread };
}

// The block of the running thread, in a variable that C defines (shims/io.c): a thread-local one of Rust in a static
// library is found by a call, around which every write of a handler would save registers.
#[inline(always)]
fn block() -> *mut Thread {
    let block;
    // SAFETY: reads a variable of this thread, at the offset that linker or loader has put there.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + sei_rt_thread@gottpoff]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) block,
            options(nostack, readonly, preserves_flags),
        );
    }
    block
}

fn set_block(block: *mut Thread) {
    // SAFETY: as in `block`; only these two functions use the variable.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + sei_rt_thread@gottpoff]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) block,
            options(nostack, preserves_flags),
        );
    }
}

/// Frees a thread's block when the thread ends.
struct EndOfThread;

impl Drop for EndOfThread {
    fn drop(&mut self) {
        let thread = block();
        set_block(null_mut());
        if !thread.is_null() {
            // SAFETY: made by `Box::into_raw` in `join`, and nothing else has it.
            let thread = unsafe { Box::from_raw(thread) };
            thread.process.leave(thread.number);
        }
    }
}

pub(crate) static ON_DETECT: AtomicUsize = AtomicUsize::new(0);
static CLONES: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
/// What a handler holds that may wait for a lock while it holds others.
pub(crate) static TOKEN: Token = Token(std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

pub(crate) struct Token(pub(crate) std::cell::UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex of the C library is made to be used by several threads.
unsafe impl Sync for Token {}

unsafe extern "C" {
    /// 1, or what the program defines instead: whether replies wait for the checking barrier.
    safe static sei_barrier_default: c_int;
}

/// As `struct sei_report` in `sei.h`.
#[repr(C)]
pub struct SeiReport {
    reason: *const c_char,
    phase: *const c_char,
    thread: u32,
    handlers: u64,
    address: u64,
}

pub(crate) fn the_process() -> &'static SharedByThreads {
    let is_set = |name: &str, default: bool| std::env::var(name).map_or(default, |value| value != "0");
    process(|| Choices {
        has_barrier: is_set("SEI_BARRIER", sei_barrier_default != 0),
        has_guard: cfg!(feature = "dup") && is_set("SEI_STATE_GUARD", false),
        rotate_every: std::env::var("SEI_ROTATE").ok().and_then(|every| every.parse().ok()).unwrap_or(0),
    })
}

/// Memory of the state that has a second copy. Its lock is held while ranges are registered, never by a handler.
pub(crate) struct Arena {
    /// Its first address, or 0.
    pub(crate) begin: usize,
    pub(crate) used: usize,
}

pub(crate) static ARENA: Mutex<Arena> = Mutex::new(Arena { begin: 0, used: 0 });

/// The second copy of these bytes becomes what the first is.
pub(crate) fn copy_to_second(copies: &Copies, address: usize, length: usize) {
    let second = copies.second(address);
    if second != address {
        // SAFETY: (1); a range and its copy do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, second as *mut u8, length) };
    }
}

/// The block of the running thread.
#[inline(always)]
pub(crate) fn me<'a>() -> &'a mut Thread {
    let thread = block();
    if thread.is_null() {
        return join();
    }
    // SAFETY: (2).
    unsafe { &mut *thread }
}

#[cold]
#[inline(never)]
fn join<'a>() -> &'a mut Thread {
    let process = the_process();
    let number = match process.join() {
        Ok(number) => number,
        Err(reason) => fail_as(reason.into(), c"I", 0, 0, None),
    };
    END.with(|_| ());
    let mut handler = Handler::default();
    // SAFETY: no memory is touched.
    handler.ignore_always(unsafe { libc::__errno_location() } as usize, size_of::<c_int>());
    let thread = Box::into_raw(Box::new(Thread {
        handler,
        jump: JumpBuffer::default(),
        number,
        stack: own_stack(),
        errno: 0,
        has_token: false,
        binds_replies: true,
        process,
        own: Context::default(),
        since_rotation: 0,
        rotation: None,
        context: null_mut(),
    }));
    set_block(thread);
    // SAFETY: (2); made here.
    unsafe { &mut *thread }
}

/// This thread's stack. The main thread's is read from /proc, which a program that has changed its root may lack: then
/// the bytes below here are its stack, as many as Linux gives a program by default, and whatever lies above.
fn own_stack() -> Range<usize> {
    let (mut low, mut bytes) = (null_mut(), 0);
    // SAFETY: the attributes are initialised by `pthread_getattr_np` and destroyed once.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) == 0 {
            libc::pthread_attr_getstack(&attributes, &mut low, &mut bytes);
            libc::pthread_attr_destroy(&mut attributes);
        }
    }
    if low.is_null() {
        return (&raw const low as usize).saturating_sub(limits::STACK_BYTES)..usize::MAX;
    }
    low as usize..low as usize + bytes
}

/// Stacks that the program has told of.
pub(crate) static STACKS: Mutex<Stacks> = Mutex::new(Stacks::new());

/// The lowest address that the stack of a handler may reach, which begins at this one.
#[inline(always)]
fn stack_limit(own: &mut Range<usize>, at: usize) -> usize {
    if own.contains(&at) { own.start } else { limit_of_other_stack(own, at) }
}

#[cold]
#[inline(never)]
fn limit_of_other_stack(own: &mut Range<usize>, at: usize) -> usize {
    // The main thread's reaches further down if the program has raised its limit since.
    let now = own_stack();
    if now.contains(&at) {
        *own = now;
        return own.start;
    }
    let stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    match stacks.of(at) {
        Some(stack) => stack.start,
        None => fail(Reason::UnknownStack.at(at)),
    }
}

#[inline(always)]
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library's own, of this thread.
    unsafe { *libc::__errno_location() }
}

#[inline(always)]
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the C library's own, of this thread.
    unsafe { *libc::__errno_location() = value }
}

// ---------------------------------------------------------------------------------------------------------------------
// Detection

#[cold]
#[inline(never)]
pub(crate) fn fail(detected: impl Into<FailedCheck>) -> ! {
    let thread = me();
    let handlers = thread.process.statistics(thread.number).handlers.load(Ordering::Relaxed);
    fail_as(detected.into(), thread.handler.phase().name(), thread.number, handlers, thread.rotation)
}

/// Ends the process: one line by a raw `write`, never standard I/O or `exit`, which both can emit output of the
/// program.
fn fail_as(
    detected: FailedCheck,
    phase: &std::ffi::CStr,
    thread: usize,
    handlers: u64,
    rotation: Option<Rotation>,
) -> ! {
    let mut line = Line::new();
    let _ = writeln!(
        line,
        "sei: fault detected: {}. Thread {thread}, phase {}, after {handlers} handlers, address {:#x}. \
         The process ends with status {EXIT_DETECTED}; nothing of this handler has left it.",
        detected.reason.text(),
        phase.to_str().unwrap_or("?"),
        detected.address,
    );
    line.write_stderr();
    if let Some(Rotation { from, to, .. }) = rotation {
        let mut line = Line::new();
        let _ = writeln!(
            line,
            "sei: the first run was on core {from}, the second on core {to} (sei_rotate): if it happens again with \
             one of both, that core computes wrongly. Take it out of use."
        );
        line.write_stderr();
    }
    let mut reason = Line::new();
    let _ = write!(reason, "{}\0", detected.reason.text());
    // SAFETY: the reason is bytes of this frame; the function was given by the program for this purpose.
    unsafe {
        let on_detect = ON_DETECT.load(Ordering::Acquire);
        if on_detect != 0 {
            let report = SeiReport {
                reason: reason.bytes.as_ptr().cast(),
                phase: phase.as_ptr(),
                thread: thread as u32,
                handlers,
                address: detected.address as u64,
            };
            let function: extern "C" fn(*const SeiReport) = std::mem::transmute(on_detect);
            function(&report);
        }
        libc::_exit(EXIT_DETECTED)
    }
}

pub(crate) struct Line {
    bytes: [u8; 400],
    length: usize,
}

impl Line {
    /// Writes it to standard error.
    pub(crate) fn write_stderr(&self) {
        // SAFETY: bytes of this value.
        unsafe { libc::write(2, self.bytes.as_ptr().cast(), self.length) };
    }

    pub(crate) const fn new() -> Self {
        Self { bytes: [0; 400], length: 0 }
    }
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = &mut self.bytes[self.length..];
        let taken = text.len().min(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}

/// The value, or the end of the process.
#[inline(always)]
pub(crate) fn sure<T>(checked: Result<T, impl Into<FailedCheck>>) -> T {
    match checked {
        Ok(value) => value,
        Err(detected) => fail(detected),
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Begin and end

/// What a second return from `_ITM_beginTransaction` restores.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct JumpBuffer {
    rbx: u64,
    rbp: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rsp: u64,
    rip: u64,
    mxcsr: u32,
    x87_control: u16,
}

/// Phase I: `sei.h` has the macros in front of it.
///
/// # Safety
/// `message` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_prepare(message: *const c_void, length: usize, crc: u32, input: c_int) -> c_int {
    let thread = me();
    let input = (input != 0).then_some(InputMessage {
        address: message as usize,
        length,
        crc,
        is_edited: input == 2,
    });
    let statistics = thread.process.statistics(thread.number);
    if cfg!(feature = "dup") {
        sure(thread.process.copies.refresh(&mut thread.handler.copies));
    }
    if !sure(thread.handler.prepare(&OwnMemory, input, thread.binds_replies)) {
        add(&statistics.discarded, 1);
        return 0;
    }
    guard_state(thread.process, StateGuard::begin);
    if let Some(input) = input {
        copy_to_second(&thread.handler.copies, input.address, input.length);
    }
    thread.process.counters.enter(thread.number);
    1
}

/// The begin of a handler: returns twice.
///
/// # Safety
/// Called by code that GCC compiled with `-fgnu-tm`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn _ITM_beginTransaction(properties: u32) -> u32 {
    naked_asm!(
        "mov rsi, [rip + sei_rt_thread@gottpoff]",
        "mov rsi, fs:[rsi]",
        "test rsi, rsi",
        "jz {no_message}",
        "mov [rsi + {jump}], rbx",
        "mov [rsi + {jump} + 8], rbp",
        "mov [rsi + {jump} + 16], r12",
        "mov [rsi + {jump} + 24], r13",
        "mov [rsi + {jump} + 32], r14",
        "mov [rsi + {jump} + 40], r15",
        "lea rax, [rsp + 8]",
        "mov [rsi + {jump} + 48], rax",
        "mov rdx, [rsp]",
        "mov [rsi + {jump} + 56], rdx",
        "stmxcsr [rsi + {jump} + 64]",
        "fnstcw [rsi + {jump} + 68]",
        "jmp {begin}",
        jump = const offset_of!(Thread, jump),
        no_message = sym no_message,
        begin = sym begin,
    )
}

/// A handler begins in a thread that has prepared none.
#[cold]
extern "C" fn no_message() -> ! {
    fail(Reason::BeginWithoutMessage)
}

/// The thread's `jump` is filled.
unsafe extern "C" fn begin(properties: u32, thread: *mut Thread) -> u32 {
    // SAFETY: (2); it is this thread's own, and not null.
    let thread = unsafe { &mut *thread };
    if properties & INSTRUMENTED == 0 || properties & GOES_IRREVOCABLE != 0 {
        fail(Reason::Irrevocable);
    }
    thread.errno = errno();
    let at = thread.jump.rsp as usize;
    sure(thread.handler.begin(stack_limit(&mut thread.stack, at), at));
    RUN_INSTRUMENTED
}

/// The first call in each run: without it GCC compiles a handler that touches no memory of its own to plain code.
#[unsafe(export_name = "_ZGTt9sei_enter")]
pub extern "C" fn enter_instrumented() -> c_int {
    1
}

/// The plain copy of a handler is never to run.
#[unsafe(no_mangle)]
pub extern "C" fn sei_enter() -> c_int {
    fail(Reason::Irrevocable)
}

/// Returns a second time from `_ITM_beginTransaction`.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn resume(jump: *const JumpBuffer, answer: u32) -> ! {
    naked_asm!(
        "ldmxcsr [rdi + 64]",
        "fldcw [rdi + 68]",
        "mov eax, esi",
        "mov rbx, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov r12, [rdi + 16]",
        "mov r13, [rdi + 24]",
        "mov r14, [rdi + 32]",
        "mov r15, [rdi + 40]",
        "mov rsp, [rdi + 48]",
        "jmp qword ptr [rdi + 56]",
    )
}

/// The end of a run: the second one begins, or the effects happen.
#[unsafe(no_mangle)]
pub extern "C" fn _ITM_commitTransaction() {
    let thread = me();
    match sure(thread.handler.commit(&mut OwnMemory, &thread.process.owners, thread.number)) {
        Next::RunAgain => {
            if rotate::is_due(&mut thread.since_rotation, thread.process.rotate_every.load(Ordering::Relaxed))
            {
                leave_core(thread);
            }
            set_errno(thread.errno);
            // SAFETY: the frame that began the handler is the one that ends it, so it is still there; (3).
            unsafe { resume(&thread.jump, RUN_AGAIN) }
        }
        Next::Release => release(thread),
    }
}

/// Both runs agree: what others see happens now, once.
fn release(thread: &mut Thread) {
    let has_calls = !thread.handler.calls.is_empty();
    if let Some(rotation) = thread.rotation.take() {
        return_cores(thread, &rotation);
    }
    if has_calls && kept(Protection::DeferredAdd) {
        for call in thread.handler.calls.of(Kind::Add) {
            add_shared(&thread.handler.copies, call.arguments[0] as usize, call.arguments[1]);
        }
    }
    let entries = thread.handler.entries() as u64;
    unlock_all(thread);
    let process = thread.process;
    process.counters.leave(thread.number);
    deliver(thread);
    let statistics = process.statistics(thread.number);
    add(&statistics.handlers, 1);
    add(&statistics.entries, entries);
    if has_calls {
        free_blocks(thread);
        make_deferred_calls(thread);
        free_contexts(thread);
    }
    sure(thread.handler.end());
    guard_state(thread.process, StateGuard::end);
}

/// Blocks that the handler has freed.
fn free_blocks(thread: &mut Thread) {
    for call in thread.handler.calls.of(Kind::Free) {
        // SAFETY: the program called `free` for it, and both runs agree.
        unsafe { libc::free(call.arguments[0] as usize as *mut c_void) };
    }
}

/// Calls of shims, each as a function of its arguments and bytes.
fn make_deferred_calls(thread: &mut Thread) {
    let Thread { handler, process, own, context, .. } = thread;
    for deferred in handler.calls.deferred() {
        while !with_context(*context, own, |waiting| process.counters.has_passed(&mut waiting.snapshot)) {
            std::thread::yield_now();
        }
        let (call, sent) = sure(deferred);
        let [a, b, c] = call.arguments;
        // SAFETY: the shim that deferred the call passed a function of this type.
        let function: extern "C" fn(u64, u64, u64, *const u8, usize) =
            unsafe { std::mem::transmute(call.function) };
        function(a, b, c, sent.as_ptr(), sent.len());
    }
}

/// Adds to a counter that threads share, and to its second copy where it has one.
pub(crate) fn add_shared(copies: &Copies, address: usize, delta: u64) {
    let second = copies.second(address);
    for at in [address, second].into_iter().take(if second == address { 1 } else { 2 }) {
        // SAFETY: (1); the program declared it a counter that threads share.
        unsafe { AtomicU64::from_ptr(at as *mut u64) }.fetch_add(delta, Ordering::Relaxed);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Accesses

macro_rules! accesses {
    ($($word:ty, $size:expr; read $($read:ident)+; write $($write:ident)+; local $local:ident;)+) => {$(
        $(
            /// Reads a word of the program.
            ///
            /// # Safety
            /// As for the access that it stands for.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $read(from: *const $word) -> $word {
                // SAFETY: (1).
                unsafe { (second(from as usize) as *const $word).read_unaligned() }
            }
        )+
        $(
            /// Overwrites a word of the program, whose old value is kept.
            ///
            /// # Safety
            /// As for the access that it stands for.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $write(to: *mut $word, value: $word) {
                // SAFETY: (2).
                let thread = unsafe { block().as_mut() };
                match thread.and_then(|it| it.handler.before_usual_write(&OwnMemory, to as usize, $size)) {
                    // SAFETY: (1).
                    Some(at) => unsafe { (at as *mut $word).write_unaligned(value) },
                    None => write_at_length(to, value, $size),
                }
            }
        )+
        /// Keeps the value of a local that is about to be overwritten.
        ///
        /// # Safety
        /// As for the access that it stands for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $local(at: *const $word) {
            log_local(at as usize, size_of::<$word>());
        }
    )+};
}

accesses! {
    u8, Size::B1; read _ITM_RU1 _ITM_RaRU1 _ITM_RaWU1 _ITM_RfWU1; write _ITM_WU1 _ITM_WaRU1 _ITM_WaWU1; local _ITM_LU1;
    u16, Size::B2; read _ITM_RU2 _ITM_RaRU2 _ITM_RaWU2 _ITM_RfWU2; write _ITM_WU2 _ITM_WaRU2 _ITM_WaWU2; local _ITM_LU2;
    u32, Size::B4; read _ITM_RU4 _ITM_RaRU4 _ITM_RaWU4 _ITM_RfWU4; write _ITM_WU4 _ITM_WaRU4 _ITM_WaWU4; local _ITM_LU4;
    u64, Size::B8; read _ITM_RU8 _ITM_RaRU8 _ITM_RaWU8 _ITM_RfWU8; write _ITM_WU8 _ITM_WaRU8 _ITM_WaWU8; local _ITM_LU8;
    f32, Size::B4; read _ITM_RF _ITM_RaRF _ITM_RaWF _ITM_RfWF; write _ITM_WF _ITM_WaRF _ITM_WaWF; local _ITM_LF;
    f64, Size::B8; read _ITM_RD _ITM_RaRD _ITM_RaWD _ITM_RfWD; write _ITM_WD _ITM_WaRD _ITM_WaWD; local _ITM_LD;
}

/// The log needs more room, or no handler runs. What is done here costs the usual write nothing: as a function of C it
/// unwinds to no caller, and is the last thing that the write does.
#[cold]
#[inline(never)]
extern "C" fn write_at_length<T>(to: *mut T, value: T, size: Size) {
    let at = sure(me().handler.before_write(&OwnMemory, to as usize, size));
    // SAFETY: (1).
    unsafe { (at as *mut T).write_unaligned(value) }
}

#[inline(always)]
pub(crate) fn second(address: usize) -> usize {
    if cfg!(feature = "dup") { me().handler.read_at(address) } else { address }
}

fn log_local(address: usize, length: usize) {
    let thread = me();
    if thread.handler.is_dead_stack(address) && kept(Protection::StackFilterOfLocals) {
        return;
    }
    sure(thread.handler.before_range(&OwnMemory, address, length));
}

/// Keeps the value of a local of any length.
///
/// # Safety
/// As for the access that it stands for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ITM_LB(at: *const c_void, length: usize) {
    log_local(at as usize, length);
}

macro_rules! ranges {
    ($($copy:ident $reads:expr, $writes:expr;)+) => {$(
        /// Copies bytes of the program, as `memmove`.
        ///
        /// # Safety
        /// As for the call that it stands for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $copy(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void {
            let from = if $reads { second(from as usize) } else { from as usize };
            let at = if $writes { range(to as usize, length) } else { to as usize };
            // SAFETY: (1); both may overlap.
            unsafe { std::ptr::copy(from as *const u8, at as *mut u8, length) };
            to
        }
    )+};
}

ranges! {
    _ITM_memcpyRtWt true, true;
    _ITM_memcpyRnWt false, true;
    _ITM_memcpyRtWn true, false;
    _ITM_memmoveRtWt true, true;
}

/// Fills bytes of the program.
///
/// # Safety
/// As for the call that it stands for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ITM_memsetW(to: *mut c_void, byte: c_int, length: usize) -> *mut c_void {
    let at = range(to as usize, length);
    // SAFETY: (1).
    unsafe { std::ptr::write_bytes(at as *mut u8, byte as u8, length) };
    to
}

pub(crate) fn range(address: usize, length: usize) -> usize {
    if length == 0 { address } else { sure(me().handler.before_range(&OwnMemory, address, length)) }
}

/// The instrumented copies of functions, by their plain ones.
///
/// # Safety
/// Called by start-up code with a table of `pairs` pairs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ITM_registerTMCloneTable(table: *const (usize, usize), pairs: usize) {
    let mut clones = CLONES.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: as above.
    clones.extend((0..pairs).map(|at| unsafe { table.add(at).read() }));
    clones.sort_unstable();
}

/// A library is unloaded: its pairs stay, and nothing calls them.
///
/// # Safety
/// Called by start-up code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ITM_deregisterTMCloneTable(_table: *const (usize, usize)) {}

/// The instrumented copy of a function that is called through a pointer.
#[unsafe(no_mangle)]
pub extern "C" fn _ITM_getTMCloneSafe(function: usize) -> usize {
    let clones = CLONES.lock().unwrap_or_else(PoisonError::into_inner);
    match clones.binary_search_by_key(&function, |pair| pair.0) {
        Ok(at) => clones[at].1,
        Err(_) => fail(Reason::NoClone.at(function)),
    }
}
