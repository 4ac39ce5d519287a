//! The system calls that find the pages a process wrote, behind safe functions: the only file of this crate with
//! `unsafe`.
//!
//! No crate that this workspace uses, or could build without libclang, wraps these calls. A userfaultfd object in
//! asynchronous write-protect mode changes no contents and hands over no faults: the kernel lifts the protection of a
//! page at its first write, and remembers that. The scan writes into buffers of this file and nowhere else.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Updater, ioctl, opcode};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Where the kernel makes userfaultfd objects, for who may open it (Linux 6.1).
const DEVICE: &str = "/dev/userfaultfd";
/// What a link to such an object looks like.
const OBJECT: &str = "anon_inode:[userfaultfd]";
/// `UFFD_API`.
const API: u64 = 0xAA;
/// `UFFD_FEATURE_PAGEFAULT_FLAG_WP`, `_WP_UNPOPULATED` and `_WP_ASYNC` (Linux 6.7).
const FEATURES: u64 = 1 | 1 << 13 | 1 << 15;
/// `UFFDIO_REGISTER_MODE_WP`.
const MODE_WRITE_PROTECT: u64 = 1 << 1;
/// Flags `O_CLOEXEC` and none else for the new object.
const CLOSE_ON_EXEC: usize = 0o2_000_000;

/// `PAGE_IS_WRITTEN`: written since it was last protected, or never protected.
pub const WRITTEN: u64 = 1 << 1;
/// `PAGE_IS_PRESENT`.
pub const PRESENT: u64 = 1 << 3;
/// `PAGE_IS_SWAPPED`.
pub const SWAPPED: u64 = 1 << 4;
/// `PAGE_IS_PFNZERO`: the kernel's page of zeros.
pub const ZEROS: u64 = 1 << 5;

/// `PM_SCAN_WP_MATCHING` and `PM_SCAN_CHECK_WPASYNC`.
const PROTECT_FOUND: u64 = 1 | 1 << 1;
/// Runs of pages that one call returns at most.
const RUNS: usize = 4_096;

#[repr(C)]
struct ApiArgument {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct RegisterArgument {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    runs: u64,
    runs_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_of: u64,
    return_mask: u64,
}

/// `struct page_region`: pages with the same categories.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageRun {
    /// Address of its first byte.
    pub start: u64,
    /// Address behind it.
    pub end: u64,
    /// What is known of its pages, of what was asked.
    pub categories: u64,
}

/// An object that tracks writes to pages of the process that made it.
pub struct WriteTracker(OwnedFd);

impl WriteTracker {
    /// One for the calling process.
    ///
    /// # Errors
    /// It is not permitted, or the kernel is older than 6.7.
    pub fn new() -> io::Result<WriteTracker> {
        const NEW: Opcode = opcode::none(API as u8, 0x00);
        const HANDSHAKE: Opcode = opcode::read_write::<ApiArgument>(API as u8, 0x3F);
        let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        // SAFETY: `USERFAULTFD_IOC_NEW` takes flags by value and returns a new descriptor that nothing else owns.
        let object = unsafe { ioctl(&device, NewDescriptor::<NEW>(CLOSE_ON_EXEC)) }?;
        let mut argument = ApiArgument { api: API, features: FEATURES, ioctls: 0 };
        // SAFETY: the argument has the layout of `struct uffdio_api`, which this call reads and writes.
        unsafe { ioctl(&object, Updater::<HANDSHAKE, ApiArgument>::new(&mut argument)) }?;
        Ok(WriteTracker(object))
    }

    /// The number of its descriptor, by which another process takes a copy.
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// A copy of the object that another process made for itself.
    ///
    /// # Errors
    /// The process is gone, or the descriptor is something else.
    pub fn of_process(pid: Pid, number: i32) -> io::Result<WriteTracker> {
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let object = pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?;
        let link = std::fs::read_link(format!("/proc/self/fd/{}", object.as_raw_fd()))?;
        if link.as_os_str() == OBJECT {
            Ok(WriteTracker(object))
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    /// Tracks these pages from now on. Twice is the same as once.
    ///
    /// # Errors
    /// They are not one mapping of the process, or of a kind that cannot be tracked.
    pub fn track(&self, start: u64, end: u64) -> io::Result<()> {
        const REGISTER: Opcode = opcode::read_write::<RegisterArgument>(API as u8, 0x00);
        let mut argument = RegisterArgument {
            start,
            length: end.saturating_sub(start),
            mode: MODE_WRITE_PROTECT,
            ioctls: 0,
        };
        // SAFETY: the argument has the layout of `struct uffdio_register`. Pages of the object's process are only
        // protected against writes, and lose that at their first one without anybody's help.
        Ok(unsafe { ioctl(&self.0, Updater::<REGISTER, RegisterArgument>::new(&mut argument)) }?)
    }
}

/// The page tables of a process.
pub struct PageTables {
    file: File,
    runs: Vec<PageRun>,
}

impl PageTables {
    /// Of a process that this one may look into.
    ///
    /// # Errors
    /// It may not, or the process is gone.
    pub fn open(pid: Pid) -> io::Result<PageTables> {
        let file = File::open(format!("/proc/{}/pagemap", pid.as_raw_pid()))?;
        Ok(PageTables { file, runs: vec![PageRun::default(); RUNS] })
    }

    /// Pages of a mapping that were written since they were protected. `protects` protects them again at once.
    ///
    /// # Errors
    /// The kernel is older than 6.7, or the mapping is not tracked.
    pub fn written(
        &mut self,
        start: u64,
        end: u64,
        protects: bool,
        found: &mut Vec<PageRun>,
    ) -> io::Result<()> {
        let flags = if protects { PROTECT_FOUND } else { 0 };
        self.scan((start, end), flags, [WRITTEN, 0], found)
    }

    /// Pages of a mapping that are in memory or swapped out, and untouched ones that were protected. The others were
    /// never written, or given back.
    ///
    /// # Errors
    /// The kernel is older than 6.7.
    pub fn populated(&mut self, start: u64, end: u64, found: &mut Vec<PageRun>) -> io::Result<()> {
        self.scan((start, end), 0, [0, PRESENT | SWAPPED], found)
    }

    fn scan(
        &mut self,
        (mut start, end): (u64, u64),
        flags: u64,
        [all_of, any_of]: [u64; 2],
        found: &mut Vec<PageRun>,
    ) -> io::Result<()> {
        while start < end {
            let argument = ScanArgument {
                size: size_of::<ScanArgument>() as u64,
                flags,
                start,
                end,
                walk_end: 0,
                runs: self.runs.as_mut_ptr() as u64,
                runs_len: self.runs.len() as u64,
                max_pages: 0,
                category_inverted: 0,
                category_mask: all_of,
                category_any_of: any_of,
                return_mask: PRESENT | SWAPPED | ZEROS,
            };
            // SAFETY: the file is a `pagemap`, so the call is `PAGEMAP_SCAN`. It writes at most `runs_len` elements
            // of `self.runs`, whose layout is that of `struct page_region`, and the argument itself.
            let (count, walk_end) = unsafe { ioctl(&self.file, Scan(argument)) }?;
            found.extend_from_slice(self.runs.get(..count).unwrap_or_default());
            if walk_end <= start {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            start = walk_end;
        }
        Ok(())
    }
}

/// A call whose result is a new descriptor.
struct NewDescriptor<const OPCODE: Opcode>(usize);

// SAFETY: the argument is passed by value, so nothing is written; the result is a descriptor, as `new` says.
unsafe impl<const OPCODE: Opcode> Ioctl for NewDescriptor<OPCODE> {
    type Output = OwnedFd;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        std::ptr::without_provenance_mut(self.0)
    }

    unsafe fn output_from_ptr(
        out: IoctlOutput,
        _argument: *mut core::ffi::c_void,
    ) -> rustix::io::Result<OwnedFd> {
        // SAFETY: the call succeeded, and has returned a descriptor that nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

/// `PAGEMAP_SCAN`: returns how many runs it has written, and where it ended.
struct Scan(ScanArgument);

// SAFETY: the opcode is the one of `struct pm_scan_arg`, to which `as_ptr` points.
unsafe impl Ioctl for Scan {
    type Output = (usize, u64);

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<ScanArgument>(b'f', 16)
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(
        out: IoctlOutput,
        argument: *mut core::ffi::c_void,
    ) -> rustix::io::Result<(usize, u64)> {
        // SAFETY: it is the pointer of `as_ptr`, whose target lives as long as the call.
        let argument = unsafe { *argument.cast::<ScanArgument>() };
        Ok((out.max(0) as usize, argument.walk_end))
    }
}

// The kernel's sizes.
const _: () = assert!(size_of::<ScanArgument>() == 96 && size_of::<PageRun>() == 24);
