//! The functions of `sei.h`, and locks in handlers.
//!
//! `unsafe` here rests on the same three points as in [`abi`](crate::abi).

use std::collections::VecDeque;
use std::ffi::{CStr, c_int, c_void};
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::abi::{
    ARENA, Line, ON_DETECT, OwnMemory, RUN_AGAIN, STACKS, TOKEN, Thread, add_shared, copy_to_second, fail,
    me, resume, second, set_errno, sure, the_process,
};
use crate::barrier::Snapshot;
use crate::calls::Kind;
use crate::copies::Copies;
use crate::fail::Reason;
use crate::guard::{PAGE_BYTES, PageAccess, StateGuard, pages};
use crate::handler::Phase;
use crate::limits;
use crate::memory::ProgramMemory;
use crate::mutate::{Protection, kept};
use crate::process::{SharedByThreads, add};
use crate::rotate::{Complaint, CoreSet, NextCore, Rotation};

// What is called, in the record of calls; the first four stand above an address.
const LOCK: u64 = 1 << 60;
const TRY_LOCK: u64 = 2 << 60;
const UNLOCK: u64 = 3 << 60;
const READ_WORD: u64 = 4 << 60;
const ADD: usize = 5;
const NEW_CONTEXT: usize = 6;
const FREE_CONTEXT: usize = 7;

/// As `struct sei_counters` in `sei.h`.
#[repr(C)]
pub struct SeiCounters {
    handlers: u64,
    discarded: u64,
    retries: u64,
    entries: u64,
    waits: u64,
    rotations: u64,
}

/// A CRC-32C, continued from `seed`.
///
/// # Safety
/// `bytes` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_crc(seed: u32, bytes: *const c_void, length: usize) -> u32 {
    crc32c::crc32c_append(seed, OwnMemory.bytes(second(bytes as usize), length))
}

/// Bytes of the reply.
///
/// # Safety
/// `bytes` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_output_append(bytes: *const c_void, length: usize) {
    sure(me().handler.output_append(&OwnMemory, bytes as usize, length));
}

/// Bytes of the reply whose CRC is stored beside them.
#[unsafe(no_mangle)]
pub extern "C" fn sei_output_append_crc(crc: u32, length: usize) {
    sure(me().handler.output_append_crc(crc, length));
}

/// The reply is complete.
#[unsafe(no_mangle)]
pub extern "C" fn sei_output_done() {
    sure(me().handler.output_done());
}

/// The CRC of the oldest reply that was not taken yet.
#[unsafe(no_mangle)]
pub extern "C" fn sei_crc_pop() -> u32 {
    let Thread { own, context, .. } = me();
    match with_context(*context, own, |waiting| waiting.crcs.pop_front()) {
        Some(crc) => crc,
        None if kept(Protection::EmptyPop) => fail(Reason::NoCrc),
        None => 0,
    }
}

/// Whether replies of this thread continue the CRC of their request.
#[unsafe(no_mangle)]
pub extern "C" fn sei_bind_replies(bind: c_int) {
    me().binds_replies = bind != 0;
}

/// 0: do not send yet.
#[unsafe(no_mangle)]
pub extern "C" fn sei_barrier() -> c_int {
    let Thread { own, context, process, number, .. } = me();
    // A handler takes a few microseconds, less than the way through the caller's event loop and back.
    for _ in 0..limits::BARRIER_TRIES {
        if with_context(*context, own, |waiting| process.counters.has_passed(&mut waiting.snapshot)) {
            return 1;
        }
        std::hint::spin_loop();
    }
    add(&process.statistics(*number).waits, 1);
    0
}

/// CRCs of replies, and the barrier's snapshot: of a connection, or of a thread (`sei_context`).
#[derive(Default)]
pub struct Context(Mutex<Waiting>);

/// What waits to be sent.
#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) crcs: VecDeque<u32>,
    pub(crate) snapshot: Snapshot,
}

/// Works on the connection's context, or on the thread's own. A handler of another thread may reply to it meanwhile.
pub(crate) fn with_context<R>(
    context: *mut Context,
    own: &mut Context,
    work: impl FnOnce(&mut Waiting) -> R,
) -> R {
    // SAFETY: made by `sei_context_new`, and the program frees none that it works on or replies to.
    match unsafe { context.as_ref() } {
        Some(context) => work(&mut context.0.lock().unwrap_or_else(PoisonError::into_inner)),
        None => work(own.0.get_mut().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// The CRCs of the replies go to their connections, where they wait with the barrier.
pub(crate) fn deliver(thread: &mut Thread) {
    let Thread { handler, process, own, context, number, .. } = thread;
    let threads = process.threads();
    let has_barrier = threads > 1 && process.choices.has_barrier && kept(Protection::Barrier);
    if !has_barrier && handler.replies().is_empty() {
        return;
    }
    let snapshot = |waiting: &mut Waiting| {
        if has_barrier {
            process.counters.snapshot(*number, threads, &mut waiting.snapshot);
        }
    };
    with_context(*context, own, snapshot);
    for reply in handler.replies() {
        let to = if reply.context == 0 { *context } else { reply.context as *mut Context };
        with_context(to, own, |waiting| {
            if waiting.crcs.len() >= limits::WAITING_CRCS {
                fail(Reason::TooManyCrcs);
            }
            waiting.crcs.push_back(reply.crc);
            if reply.context != 0 {
                snapshot(waiting);
            }
        });
    }
}

/// Output CRCs and barrier snapshot of a connection. In a handler the second run is given the first one's.
#[unsafe(no_mangle)]
pub extern "C" fn sei_context_new() -> *mut Context {
    let made = || Box::into_raw(Box::<Context>::default());
    let thread = me();
    if thread.handler.phase() == Phase::Idle {
        return made();
    }
    let call = thread.handler.call(Kind::Taken, NEW_CONTEXT, [0; 3], || (made() as usize as u64, 0));
    sure(call).0 as usize as *mut Context
}

/// Frees it, with the CRCs of replies that were never sent; a thread that works on it goes on with its own. In a
/// handler it happens when both runs agree.
///
/// # Safety
/// It was made by [`sei_context_new`], and no other thread works on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_context_free(context: *mut Context) {
    let thread = me();
    if context.is_null() {
        return;
    }
    if thread.handler.phase() != Phase::Idle {
        let arguments = [context as usize as u64, 0, 0];
        sure(thread.handler.call(Kind::FreeContext, FREE_CONTEXT, arguments, || (0, 0)));
        return;
    }
    free_context(&mut thread.context, context);
}

/// Those that the handler has freed.
pub(crate) fn free_contexts(thread: &mut Thread) {
    for call in thread.handler.calls.of(Kind::FreeContext) {
        free_context(&mut thread.context, call.arguments[0] as usize as *mut Context);
    }
}

fn free_context(current: &mut *mut Context, context: *mut Context) {
    if *current == context {
        *current = std::ptr::null_mut();
    }
    // SAFETY: made by `sei_context_new`, and the program works on it no longer.
    drop(unsafe { Box::from_raw(context) });
}

/// What the handler appends from here on is a reply to that connection; null: to the one that it began with.
#[unsafe(no_mangle)]
pub extern "C" fn sei_output_to(context: *mut Context) {
    let thread = me();
    let is_own = context == thread.context;
    sure(thread.handler.output_to(if is_own { 0 } else { context as usize }));
}

/// This thread goes on with that connection.
///
/// # Safety
/// It was made by [`sei_context_new`], or is null, and no other thread works on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_shift(context: *mut Context) {
    me().context = context;
}

/// What is written there is not compared in this handler.
///
/// # Safety
/// None: the address is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_ignore_addr(bytes: *const c_void, length: usize) {
    sure(me().handler.ignore(bytes as usize, length));
}

/// Adds to a counter that threads share, after both runs agree.
///
/// # Safety
/// `counter` is an aligned word that lives until the handler ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_add_u64(counter: *mut u64, delta: i64) {
    let arguments = [counter as usize as u64, delta as u64, 0];
    let handler = &mut me().handler;
    sure(handler.call(Kind::Add, ADD, arguments, || (0, 0)));
    if !kept(Protection::DeferredAdd) {
        add_shared(&handler.copies, counter as usize, delta as u64);
    }
}

macro_rules! shared_words {
    ($($name:ident $word:ty;)+) => {$(
        /// Reads a word that other threads, or signal handlers, write without a lock.
        ///
        /// # Safety
        /// `word` is an aligned word.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(word: *const $word) -> $word {
            // SAFETY: as above.
            let read = || unsafe { word.read_volatile() } as u64;
            let thread = me();
            if thread.handler.phase() == Phase::Idle {
                return read() as $word;
            }
            sure(thread.handler.call_word(READ_WORD | word as usize as u64, read)) as $word
        }
    )+};
}

shared_words! {
    sei_read_u32 u32;
    sei_read_u64 u64;
    sei_read_ptr usize;
}

/// Handlers may run on this stack, too, from any thread. 0 bytes: no longer.
#[unsafe(no_mangle)]
pub extern "C" fn sei_stack(begin: *const c_void, bytes: usize) {
    let mut stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    let added = stacks.add(begin as usize, bytes);
    drop(stacks);
    sure(added);
}

/// Every n-th handler of each thread makes its second run on another core; 0: none.
#[unsafe(no_mangle)]
pub extern "C" fn sei_rotate(n: u32) {
    the_process().rotate_every.store(n, Ordering::Relaxed);
}

/// The first run has ended: the second one is to be on another core, if the thread may run on one.
#[cold]
#[inline(never)]
pub(crate) fn leave_core(thread: &mut Thread) {
    let mut permitted = CoreSet::new();
    // SAFETY: the set has as many bytes as are passed, and is this thread's own.
    let (read, now) = unsafe {
        (libc::sched_getaffinity(0, size_of::<CoreSet>(), (&raw mut permitted).cast()), libc::sched_getcpu())
    };
    let process = thread.process;
    if read != 0 || now < 0 {
        return complain(process, Complaint::Refused);
    }
    let from = now as usize;
    let to = match process.topology().next(&permitted, from) {
        NextCore::Other(core) => core,
        NextCore::Shared(core) => {
            complain(process, Complaint::SharedCore);
            core
        }
        NextCore::None => return complain(process, Complaint::OneCore),
    };
    if !run_on(&CoreSet::one(to)) {
        return complain(process, Complaint::Refused);
    }
    thread.rotation = Some(Rotation { from, to, permitted });
    add(&process.statistics(thread.number).rotations, 1);
}

/// The handler has ended: the thread may run where it might before, and so it goes on where it is.
#[cold]
#[inline(never)]
pub(crate) fn return_cores(thread: &mut Thread, rotation: &Rotation) {
    if !run_on(&rotation.permitted) {
        complain(thread.process, Complaint::Refused);
    }
}

fn run_on(cores: &CoreSet) -> bool {
    // SAFETY: the set has as many bytes as are passed.
    unsafe { libc::sched_setaffinity(0, size_of::<CoreSet>(), std::ptr::from_ref(cores).cast()) == 0 }
}

fn complain(process: &SharedByThreads, complaint: Complaint) {
    if !process.has_complained.swap(true, Ordering::Relaxed) {
        let mut line = Line::new();
        let _ = writeln!(line, "{}", complaint.text());
        line.write_stderr();
    }
}

/// A check of the program's own has failed: the process ends as if the library had detected the fault.
#[unsafe(no_mangle)]
pub extern "C" fn sei_detected() -> ! {
    fail(Reason::ByProgram)
}

/// A function that is called before the process ends.
#[unsafe(no_mangle)]
pub extern "C" fn sei_on_detect(function: usize) {
    ON_DETECT.store(function, Ordering::Release);
}

/// Counters of all threads.
///
/// # Safety
/// `to` is a `struct sei_counters`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_counters_read(to: *mut SeiCounters) {
    let process = the_process();
    let counters = SeiCounters {
        handlers: process.sum(|of_thread| &of_thread.handlers),
        discarded: process.sum(|of_thread| &of_thread.discarded),
        retries: process.sum(|of_thread| &of_thread.retries),
        entries: process.sum(|of_thread| &of_thread.entries),
        waits: process.sum(|of_thread| &of_thread.waits),
        rotations: process.sum(|of_thread| &of_thread.rotations),
    };
    // SAFETY: as above.
    unsafe { to.write(counters) };
}

// ---------------------------------------------------------------------------------------------------------------------
// Duplicated state

/// The second copy of the arena lies this far behind the first, in a build that has one.
const DISTANCE: usize = limits::STATE_BYTES;

/// Memory of the state that has a second copy, zeroed; null if there is no more. It is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn sei_state_alloc(bytes: usize) -> *mut c_void {
    let mut state = ARENA.lock().unwrap_or_else(PoisonError::into_inner);
    if state.begin == 0 {
        let reserved = if cfg!(feature = "dup") { 2 * limits::STATE_BYTES } else { limits::STATE_BYTES };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory, anywhere.
        let arena = unsafe {
            libc::mmap(std::ptr::null_mut(), reserved, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if arena == libc::MAP_FAILED {
            return std::ptr::null_mut();
        }
        state.begin = arena as usize;
        sure(the_process().copies.add(state.begin, limits::STATE_BYTES, DISTANCE));
    }
    guard_state(the_process(), StateGuard::add);
    let room = bytes.checked_next_multiple_of(64).filter(|&room| room <= limits::STATE_BYTES - state.used);
    let Some(room) = room else {
        set_errno(libc::ENOMEM);
        return std::ptr::null_mut();
    };
    let block = state.begin + state.used;
    state.used += room;
    block as *mut c_void
}

/// Static variables of the state are to have a second copy.
///
/// # Safety
/// `begin` has `bytes` bytes that live as long as the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_state_add(begin: *mut c_void, bytes: usize) {
    if !cfg!(feature = "dup") || bytes == 0 {
        return;
    }
    // SAFETY: new memory, which is never freed.
    let copy = unsafe { libc::calloc(1, bytes) } as usize;
    if copy == 0 {
        fail(Reason::StateMemory);
    }
    let _one_at_a_time = ARENA.lock().unwrap_or_else(PoisonError::into_inner);
    sure(the_process().copies.add(begin as usize, bytes, copy.wrapping_sub(begin as usize)));
    guard_state(the_process(), StateGuard::add);
}

/// Code outside of handlers has written to the state: the second copy becomes what the first is.
#[unsafe(no_mangle)]
pub extern "C" fn sei_state_sync() {
    if !cfg!(feature = "dup") {
        return;
    }
    let state = ARENA.lock().unwrap_or_else(PoisonError::into_inner);
    let mut copies = Copies::new();
    sure(the_process().copies.refresh(&mut copies));
    for (begin, length) in copies.iter() {
        let used = if begin == state.begin { state.used } else { length };
        // Page by page, and only what differs: memory that nothing was written to stays unused.
        for offset in (0..used).step_by(PAGE_BYTES) {
            let bytes = PAGE_BYTES.min(used - offset);
            let second = copies.second(begin + offset);
            if OwnMemory.bytes(begin + offset, bytes) != OwnMemory.bytes(second, bytes) {
                copy_to_second(&copies, begin + offset, bytes);
            }
        }
    }
    drop(state);
    guard_state(the_process(), StateGuard::sync);
}

/// Code outside of handlers has written to these bytes of the state, while handlers may run that do not read them.
///
/// # Safety
/// `begin` has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sei_state_copy(begin: *mut c_void, bytes: usize) {
    if !cfg!(feature = "dup") {
        return;
    }
    let mut copies = Copies::new();
    sure(the_process().copies.refresh(&mut copies));
    copy_to_second(&copies, begin as usize, bytes);
}

/// With SEI_STATE_GUARD, `step` decides whether the pages of the state may be written to from now on.
pub(crate) fn guard_state(process: &SharedByThreads, step: impl FnOnce(&mut StateGuard) -> PageAccess) {
    if !cfg!(feature = "dup") || !process.choices.has_guard {
        return;
    }
    // Held until the pages are as it says.
    let mut guard = process.guard.lock().unwrap_or_else(PoisonError::into_inner);
    let is_protected = match step(&mut guard) {
        PageAccess::Unchanged => return,
        PageAccess::Writable => false,
        PageAccess::Protected => true,
    };
    catch_writes();
    process.is_protected.store(is_protected, Ordering::SeqCst);
    let mut copies = Copies::new();
    sure(process.copies.refresh(&mut copies));
    for (begin, length) in copies.iter() {
        protect(pages(begin, length), is_protected);
    }
}

fn protect((begin, bytes): (usize, usize), is_protected: bool) {
    let access = if is_protected { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
    // SAFETY: pages of variables, which can be read and written; a write while they cannot is `on_write`'s.
    unsafe { libc::mprotect(begin as *mut c_void, bytes, access) };
}

/// The action of SIGSEGV before this library's.
static FORMER_ACTION: OnceLock<libc::sigaction> = OnceLock::new();

fn catch_writes() {
    FORMER_ACTION.get_or_init(|| {
        // SAFETY: plain structures; the function has the type that SA_SIGINFO says.
        unsafe {
            let (mut action, mut former): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
            action.sa_sigaction = on_write as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGSEGV, &action, &mut former);
            former
        }
    });
}

/// A write to a protected page, or another wrong access. To return is to try it again.
///
/// # Safety
/// The kernel calls it for SIGSEGV.
unsafe extern "C" fn on_write(_: c_int, info: *const libc::siginfo_t, machine: *const libc::ucontext_t) {
    // SAFETY: as above.
    let (address, instruction) = unsafe {
        ((*info).si_addr() as usize, (*machine).uc_mcontext.gregs[libc::REG_RIP as usize] as usize)
    };
    let process = the_process();
    let mut copies = Copies::new();
    let _ = process.copies.refresh(&mut copies);
    let is_in = |(begin, length): (usize, usize)| address.wrapping_sub(begin) < length;
    if copies.iter().any(is_in) {
        // Where a handler has begun since, the write can happen.
        if !process.is_protected.load(Ordering::SeqCst) {
            return;
        }
        report_write(address, instruction);
    } else if copies.iter().any(|(begin, length)| is_in(pages(begin, length))) {
        // Another variable on a page of the state.
        return protect(pages(address, 1), false);
    }
    if let Some(former) = FORMER_ACTION.get() {
        // SAFETY: the action that the process had; it ends by the same access.
        unsafe { libc::sigaction(libc::SIGSEGV, former, std::ptr::null_mut()) };
    }
}

fn report_write(address: usize, instruction: usize) {
    // SAFETY: a plain structure, which `dladdr` fills with strings that live as long as the file is loaded.
    let (file, base) = unsafe {
        let mut place: libc::Dl_info = std::mem::zeroed();
        let is_known =
            libc::dladdr(instruction as *const c_void, &mut place) != 0 && !place.dli_fname.is_null();
        let file = if is_known { CStr::from_ptr(place.dli_fname) } else { c"?" };
        (file, place.dli_fbase as usize)
    };
    let mut line = Line::new();
    let _ = writeln!(
        line,
        "sei: SEI_STATE_GUARD: code outside of handlers writes to duplicated state at {address:#x}. \
         Move the write into a handler, or in front of sei_state_sync. Who writes: addr2line -f -e {} {:#x}",
        file.to_str().unwrap_or("?"),
        instruction.wrapping_sub(base),
    );
    line.write_stderr();
}

// ---------------------------------------------------------------------------------------------------------------------
// Locks

macro_rules! locks {
    ($($name:ident($at:ident: $of:ty), $kind:expr, $how:ident;)+) => {$(
        /// The function of this name, in a handler.
        ///
        /// # Safety
        /// As for the function that it stands for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($at: *mut $of) -> c_int {
            $how($at as usize | $kind)
        }
    )+};
}

// A lock as one word: what it is stands in the two low bits of its address.
const MUTEX: usize = 0;
const READ_WRITE: usize = 1;
const SPIN: usize = 2;

locks! {
    sei_call_pthread_mutex_lock(at: libc::pthread_mutex_t), MUTEX, lock;
    sei_call_pthread_mutex_trylock(at: libc::pthread_mutex_t), MUTEX, try_lock;
    sei_call_pthread_mutex_unlock(at: libc::pthread_mutex_t), MUTEX, unlock;
    sei_call_pthread_rwlock_rdlock(at: libc::pthread_rwlock_t), READ_WRITE, lock;
    sei_call_pthread_rwlock_wrlock(at: libc::pthread_rwlock_t), READ_WRITE, lock;
    sei_call_pthread_rwlock_tryrdlock(at: libc::pthread_rwlock_t), READ_WRITE, try_lock;
    sei_call_pthread_rwlock_trywrlock(at: libc::pthread_rwlock_t), READ_WRITE, try_lock;
    sei_call_pthread_rwlock_unlock(at: libc::pthread_rwlock_t), READ_WRITE, unlock;
    sei_call_pthread_spin_lock(at: libc::pthread_spinlock_t), SPIN, lock;
    sei_call_pthread_spin_trylock(at: libc::pthread_spinlock_t), SPIN, try_lock;
    sei_call_pthread_spin_unlock(at: libc::pthread_spinlock_t), SPIN, unlock;
}

fn lock(key: usize) -> c_int {
    let thread = me();
    let is_new = !thread.handler.held.has(key);
    let result = if is_new && (thread.handler.phase() == Phase::First || !kept(Protection::DeferredRelease)) {
        take(thread, key)
    } else {
        0
    };
    let result = sure(thread.handler.call_word(LOCK | key as u64, || result as u64));
    if result == 0 {
        locked(thread, key, is_new);
    }
    result as c_int
}

fn try_lock(key: usize) -> c_int {
    let thread = me();
    let is_new = !thread.handler.held.has(key);
    let is_locked = thread.handler.held.is_locked(key);
    let result = sure(thread.handler.call_word(TRY_LOCK | key as u64, || {
        let result = match (is_locked, is_new) {
            (true, _) => libc::EBUSY,
            (false, false) => 0,
            (false, true) => try_real(key),
        };
        result as u64
    }));
    if result == 0 {
        locked(thread, key, is_new);
    }
    result as c_int
}

/// The lock stays taken until both runs agree.
fn unlock(key: usize) -> c_int {
    let thread = me();
    sure(thread.handler.call_word(UNLOCK | key as u64, || 0));
    let released = thread.handler.held.release(&thread.process.owners, key, thread.number);
    sure(released.map_err(|reason| reason.at(key)));
    if !kept(Protection::DeferredRelease) {
        unlock_all(thread);
    }
    0
}

fn try_real(key: usize) -> c_int {
    let at = (key & !3) as *mut c_void;
    // SAFETY: the program would have taken this lock itself.
    unsafe {
        match key & 3 {
            READ_WRITE => libc::pthread_rwlock_trywrlock(at.cast()),
            SPIN => libc::pthread_spin_trylock(at.cast()),
            _ => libc::pthread_mutex_trylock(at.cast()),
        }
    }
}

fn wait_for_real(key: usize) -> c_int {
    let at = (key & !3) as *mut c_void;
    // SAFETY: the program would have waited for this lock itself.
    unsafe {
        match key & 3 {
            READ_WRITE => libc::pthread_rwlock_wrlock(at.cast()),
            SPIN => libc::pthread_spin_lock(at.cast()),
            _ => libc::pthread_mutex_lock(at.cast()),
        }
    }
}

fn unlock_real(key: usize) {
    let at = (key & !3) as *mut c_void;
    // SAFETY: this thread locked it.
    unsafe {
        match key & 3 {
            READ_WRITE => libc::pthread_rwlock_unlock(at.cast()),
            SPIN => libc::pthread_spin_unlock(at.cast()),
            _ => libc::pthread_mutex_unlock(at.cast()),
        }
    };
}

fn locked(thread: &mut Thread, address: usize, is_new: bool) {
    match (is_new, thread.handler.phase()) {
        (false, _) => thread.handler.held.again(address),
        (true, Phase::First) => hold(thread, address),
        // The first run took it, so the handler holds it, unless a fault removed it.
        (true, _) if kept(Protection::DeferredRelease) => fail(Reason::LockNotHeld.at(address)),
        (true, _) => hold(thread, address),
    }
}

fn hold(thread: &mut Thread, address: usize) {
    let added = thread.handler.held.add(&thread.process.owners, address, thread.number);
    sure(added.map_err(|reason| reason.at(address)));
}

/// Gets the real lock, or begins the handler again: without a lock hierarchy two handlers could wait for each other.
fn take(thread: &mut Thread, key: usize) -> c_int {
    let may_wait = thread.handler.held.is_empty()
        || thread.has_token
        || thread.handler.calls.of(Kind::Taken).next().is_some()
        || !kept(Protection::Retry);
    for _ in 0..if may_wait { 1 } else { limits::LOCK_TRIES } {
        let result = try_real(key);
        if result != libc::EBUSY {
            return result;
        }
        std::hint::spin_loop();
    }
    if may_wait {
        return wait_for_real(key);
    }
    begin_again(thread)
}

/// Undoes the first run, and begins it again with the token.
#[cold]
fn begin_again(thread: &mut Thread) -> ! {
    let blocks: Vec<u64> = thread.handler.calls.of(Kind::Allocate).map(|call| call.result).collect();
    sure(thread.handler.retry(&mut OwnMemory));
    for block in blocks {
        // SAFETY: the first run allocated it, and what it wrote about it is undone.
        unsafe { libc::free(block as usize as *mut c_void) };
    }
    unlock_all(thread);
    add(&thread.process.statistics(thread.number).retries, 1);
    // SAFETY: a mutex of this library.
    unsafe { libc::pthread_mutex_lock(TOKEN.0.get()) };
    thread.has_token = true;
    set_errno(thread.errno);
    // SAFETY: the frame that began the handler is a caller of this one; (3).
    unsafe { resume(&thread.jump, RUN_AGAIN) }
}

#[inline(always)]
pub(crate) fn unlock_all(thread: &mut Thread) {
    if thread.handler.held.is_empty() && !thread.has_token {
        return;
    }
    unlock_held(thread);
}

#[inline(never)]
fn unlock_held(thread: &mut Thread) {
    while let Some(key) = sure(thread.handler.held.pop(&thread.process.owners, thread.number)) {
        unlock_real(key);
    }
    if thread.has_token {
        thread.has_token = false;
        // SAFETY: a mutex of this library, locked by this thread.
        unsafe { libc::pthread_mutex_unlock(TOKEN.0.get()) };
    }
}
