//! The file system that SQLite sees: its one file is the [`Database`] of the request that this thread executes.
//!
//! This is the only unsafe file of the crate: SQLite calls its functions. They decide nothing; what they do is safe
//! code on [`Guest`].
//!
//! *Why it is sound.* (1) A pointer to the database is in [`CURRENT`] only while [`with`] runs, which borrows the
//! database for that long, and only this thread reads it. The functions below are not re-entered: the database calls
//! nothing back. (2) SQLite promises what its documentation of sqlite3_vfs and sqlite3_io_methods says of each
//! argument: buffers have the lengths that are given with them, names end with a zero; it only reads what it fetches,
//! until it gives it back, and [`crate::engine`] sees to that before the database is let go. (3) No panic passes
//! through SQLite: it is caught here, and goes on in [`with`] once SQLite has returned. (4) A file has no members of
//! ours, so there is nothing to free. (5) SQLite reads behind the end of a page only if the page is none of its own: a
//! wrong one is found by its checksum first, and a file is checked as a whole, in copies, before it is loaded.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Once;

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use rusqlite::ffi;

use crate::guest::{Fault, Guest};
use crate::open_transactions::Drawn;

/// The name under which SQLite knows this file system.
pub const NAME: &CStr = c"crosscheck";

/// The database that this thread's SQLite sees.
struct Current {
    guest: *mut Guest<'static>,
    /// What a function caught: a page that failed its check.
    caught: Option<Box<dyn Any + Send>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Runs `run`, in which this thread's SQLite sees `guest`. A page that fails its check unwinds from here.
///
/// # Panics
/// If this thread is in such a call already.
pub fn with<R>(guest: &mut Guest<'_>, run: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.with(|current| current.borrow_mut().take());
        }
    }
    let guest = ptr::from_mut(guest).cast::<Guest<'static>>();
    CURRENT.with(|current| {
        let mut current = current.borrow_mut();
        assert!(current.is_none(), "two requests at a time in one thread");
        *current = Some(Current { guest, caught: None });
    });
    let leave = Leave;
    let result = run();
    let caught =
        CURRENT.with(|current| current.borrow_mut().as_mut().and_then(|current| current.caught.take()));
    drop(leave);
    match caught {
        Some(caught) => std::panic::resume_unwind(caught),
        None => result,
    }
}

/// Lets a function of SQLite's use the database. The code is SQLite's result.
fn use_guest(act: impl FnOnce(&mut Guest<'_>) -> Result<(), Fault>) -> c_int {
    CURRENT.with(|current| {
        let Ok(mut current) = current.try_borrow_mut() else { return ffi::SQLITE_IOERR };
        let Some(current) = current.as_mut().filter(|current| current.caught.is_none()) else {
            return ffi::SQLITE_IOERR;
        };
        // SAFETY: `with` has put the pointer here from a reference that it holds until it has removed it, and no other
        // code uses that meanwhile: (1) above.
        let guest: &mut Guest<'static> = unsafe { &mut *current.guest };
        match catch_unwind(AssertUnwindSafe(|| act(guest))) {
            Ok(Ok(())) => ffi::SQLITE_OK,
            Ok(Err(Fault::ShortRead)) => ffi::SQLITE_IOERR_SHORT_READ,
            Ok(Err(Fault::Shared)) => ffi::SQLITE_READONLY,
            Ok(Err(Fault::Full)) => ffi::SQLITE_FULL,
            Ok(Err(Fault::Unaligned)) => ffi::SQLITE_IOERR,
            Err(caught) => {
                current.caught = Some(caught);
                ffi::SQLITE_IOERR_DATA
            }
        }
    })
}

/// Random bytes of the request that this thread executes; zeros outside of one.
pub fn fill_random(out: &mut [u8]) {
    out.fill(0);
    use_guest(|guest| {
        guest.fill_random(out);
        Ok(())
    });
}

/// The time of the request that this thread executes, in microseconds since 1970; 0 outside of one.
pub fn now_us() -> u64 {
    let mut now_us = 0;
    use_guest(|guest| {
        now_us = guest.now_us();
        Ok(())
    });
    now_us
}

/// Whether SQLite has pages that it was given where they lie.
pub fn has_fetched() -> bool {
    let mut has_fetched = false;
    use_guest(|guest| {
        has_fetched = guest.has_fetched();
        Ok(())
    });
    has_fetched
}

/// Whether SQLite's generator was used since it began anew.
pub fn has_drawn() -> bool {
    let mut has_drawn = false;
    use_guest(|guest| {
        has_drawn = guest.has_drawn();
        Ok(())
    });
    has_drawn
}

/// The next statement of the request is executed: what it draws is something else than what those before have drawn.
pub fn begin_statement() {
    use_guest(|guest| {
        guest.begin_statement();
        Ok(())
    });
    begin_generator();
}

/// From now on the query of a transaction runs that draws this.
pub fn draw(drawn: Drawn) {
    begin_generator();
    use_guest(|guest| {
        guest.draw(drawn);
        Ok(())
    });
}

/// Makes the file system known to SQLite, as its first one, so that SQLite takes its random numbers from here.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: nothing else calls SQLite before; a zeroed sqlite3_vfs is a valid one without functions; it is
        // leaked, so SQLite may keep the pointer for ever.
        unsafe {
            ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0 as c_int);
            ffi::sqlite3_config(ffi::SQLITE_CONFIG_MULTITHREAD);
            // Time zones are the host's: the modifiers `localtime` and `utc` fail.
            ffi::sqlite3_test_control(ffi::SQLITE_TESTCTRL_LOCALTIME_FAULT as c_int, 1 as c_int);
            let mut vfs: ffi::sqlite3_vfs = std::mem::zeroed();
            vfs.iVersion = 2;
            vfs.szOsFile = size_of::<ffi::sqlite3_file>() as c_int;
            vfs.mxPathname = 64;
            vfs.zName = NAME.as_ptr();
            vfs.xOpen = Some(open);
            vfs.xDelete = Some(delete);
            vfs.xAccess = Some(access);
            vfs.xFullPathname = Some(full_pathname);
            vfs.xRandomness = Some(randomness);
            vfs.xSleep = Some(sleep);
            vfs.xCurrentTimeInt64 = Some(current_time_ms);
            vfs.xGetLastError = Some(last_error);
            ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 1);
        }
    });
}

/// Lets the thread that holds it draw from SQLite's generator of random numbers.
///
/// There is one for the whole process. SQLite draws from it where it changes something (a row id if the largest one is
/// taken), compiles (names of columns that many others have), or opens a connection. So one thread at a time does that,
/// from [`begin_generator`] on; reading draws nothing.
pub fn own_generator() -> ReentrantMutexGuard<'static, ()> {
    static GENERATOR: ReentrantMutex<()> = ReentrantMutex::new(());
    GENERATOR.lock()
}

/// SQLite's own generator of random numbers begins anew, from [`Guest::fill_seed`].
pub fn begin_generator() {
    // SAFETY: with 0 bytes SQLite resets its generator, under its own lock, and writes nowhere.
    unsafe { ffi::sqlite3_randomness(0, ptr::null_mut()) };
    use_guest(|guest| {
        guest.begin_generator();
        Ok(())
    });
}

unsafe extern "C" fn read(_: *mut ffi::sqlite3_file, out: *mut c_void, length: c_int, offset: i64) -> c_int {
    // SAFETY: (2): SQLite's buffer has `length` bytes.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), length as usize) };
    use_guest(|guest| guest.read(offset as u64, out))
}

unsafe extern "C" fn write(
    _: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: (2): SQLite's buffer has `length` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length as usize) };
    use_guest(|guest| guest.write(offset as u64, bytes))
}

/// A page where it lies, without a copy. Only of a database that nobody changes meanwhile: pages do not move then.
unsafe extern "C" fn fetch(
    _: *mut ffi::sqlite3_file,
    offset: i64,
    length: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: (2): a place for the result.
    let out = unsafe { &mut *out };
    *out = ptr::null_mut();
    use_guest(|guest| {
        if let Some(page) = guest.fetch(offset as u64, length as usize) {
            *out = page.as_ptr().cast_mut().cast();
        }
        Ok(())
    })
}

unsafe extern "C" fn unfetch(_: *mut ffi::sqlite3_file, _: i64, page: *mut c_void) -> c_int {
    if page.is_null() {
        return ffi::SQLITE_OK;
    }
    CURRENT.with(|current| {
        if let Ok(mut current) = current.try_borrow_mut()
            && let Some(current) = current.as_mut()
        {
            // SAFETY: as in `use_guest`. Pages are given back also behind one that has failed its check.
            unsafe { (*current.guest).unfetch() };
        }
    });
    ffi::SQLITE_OK
}

unsafe extern "C" fn truncate(_: *mut ffi::sqlite3_file, size: i64) -> c_int {
    use_guest(|guest| guest.truncate(size as u64))
}

unsafe extern "C" fn file_size(_: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    use_guest(|guest| {
        // SAFETY: (2): a place for the result.
        unsafe { *size = guest.size() as i64 };
        Ok(())
    })
}

unsafe extern "C" fn close(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn sync(_: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

/// The lock of the schedule has this file already.
unsafe extern "C" fn lock(_: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_: *mut ffi::sqlite3_file, is_locked: *mut c_int) -> c_int {
    // SAFETY: (2): a place for the result.
    unsafe { *is_locked = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    crate::PAGE_BYTES as c_int
}

/// A request is undone as a whole if it does not come to its end.
unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
        | ffi::SQLITE_IOCAP_SAFE_APPEND
        | ffi::SQLITE_IOCAP_SEQUENTIAL
        | ffi::SQLITE_IOCAP_ATOMIC
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 3,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};

/// Only the main file is opened: journals and temporary tables are in memory.
unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    _: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let is_main = flags & ffi::SQLITE_OPEN_MAIN_DB != 0;
    // SAFETY: (2): SQLite's memory for a file of `szOsFile` bytes; without methods it does not close it.
    unsafe { (*file).pMethods = if is_main { &METHODS } else { ptr::null() } };
    if !is_main {
        return ffi::SQLITE_CANTOPEN;
    }
    if !out.is_null() {
        // SAFETY: (2): a place for the result.
        unsafe { *out = flags };
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, _: *const c_char, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

/// No other file exists: there is no journal to roll back.
unsafe extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    _: *const c_char,
    _: c_int,
    exists: *mut c_int,
) -> c_int {
    // SAFETY: (2): a place for the result.
    unsafe { *exists = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    length: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: (2): a name that ends with a zero.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if name.len() > length as usize {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: (2): a buffer of `length` bytes, which is no part of the name.
    unsafe { ptr::copy_nonoverlapping(name.as_ptr().cast(), out, name.len()) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(_: *mut ffi::sqlite3_vfs, length: c_int, out: *mut c_char) -> c_int {
    // SAFETY: (2): a buffer of `length` bytes.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), length as usize) };
    out.fill(0);
    use_guest(|guest| {
        guest.fill_seed(out);
        Ok(())
    });
    length
}

unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    microseconds
}

unsafe extern "C" fn current_time_ms(_: *mut ffi::sqlite3_vfs, time: *mut i64) -> c_int {
    use_guest(|guest| {
        // SAFETY: (2): a place for the result.
        unsafe { *time = guest.julian_ms() };
        Ok(())
    })
}

unsafe extern "C" fn last_error(_: *mut ffi::sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}
