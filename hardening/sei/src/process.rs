//! What the threads of one process share: their numbers, the owners of locks, the barrier's counters, and statistics.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::barrier::Counters;
use crate::copies::SharedCopies;
use crate::fail::Reason;
use crate::guard::StateGuard;
use crate::limits;
use crate::locks::Owners;
use crate::rotate::Topology;

/// The process.
pub struct SharedByThreads {
    /// Who holds which lock.
    pub owners: Owners,
    /// Who runs a handler.
    pub counters: Counters,
    /// Ranges of the state that have a second copy.
    pub copies: SharedCopies,
    /// What the program and its environment ask for.
    pub choices: Choices,
    /// When duplicated state is write-protected, if [`Choices::has_guard`]. Not beside static variables of the program,
    /// whose pages it protects while it is locked.
    pub guard: Box<Mutex<StateGuard>>,
    /// Whether it is now.
    pub is_protected: AtomicBool,
    /// Every so many-th handler of a thread makes its second run on another core; 0: none.
    pub rotate_every: AtomicU32,
    /// It was said why second runs stay on their core.
    pub has_complained: AtomicBool,
    topology: OnceLock<Topology>,
    numbers: Mutex<Numbers>,
    threads: AtomicU64,
    statistics: Box<[Statistics]>,
}

/// What the program and its environment ask for.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    /// Whether replies wait for the checking barrier. Off is the paper's variant without it ("mc-seil").
    pub has_barrier: bool,
    /// Whether duplicated state is write-protected outside of handlers.
    pub has_guard: bool,
    /// What `sei_rotate` would be given.
    pub rotate_every: u32,
}

#[derive(Default)]
struct Numbers {
    next: usize,
    free: Vec<usize>,
}

/// Counters of one thread, in its own cache line. Only their thread writes them.
#[derive(Default)]
#[repr(align(64))]
pub struct Statistics {
    /// Completed.
    pub handlers: AtomicU64,
    /// Messages whose CRC was wrong.
    pub discarded: AtomicU64,
    /// Handlers that began again.
    pub retries: AtomicU64,
    /// Entries of first runs' logs.
    pub entries: AtomicU64,
    /// Calls of the barrier that said "wait".
    pub waits: AtomicU64,
    /// Second runs on another core than the first.
    pub rotations: AtomicU64,
}

/// The process that this library is in; `choices` is asked once.
pub fn process(choices: impl FnOnce() -> Choices) -> &'static SharedByThreads {
    static PROCESS: OnceLock<SharedByThreads> = OnceLock::new();
    PROCESS.get_or_init(|| {
        let choices = choices();
        SharedByThreads {
            owners: Owners::new(limits::OWNERS),
            counters: Counters::new(limits::THREADS),
            copies: SharedCopies::new(),
            rotate_every: AtomicU32::new(choices.rotate_every),
            has_complained: AtomicBool::new(false),
            topology: OnceLock::new(),
            choices,
            guard: Box::new(Mutex::new(StateGuard::new())),
            is_protected: AtomicBool::new(false),
            numbers: Mutex::default(),
            threads: AtomicU64::new(0),
            statistics: (0..limits::THREADS).map(|_| Statistics::default()).collect(),
        }
    })
}

impl SharedByThreads {
    /// A number for a thread that begins its first handler.
    ///
    /// # Errors
    /// All are taken.
    pub fn join(&self) -> Result<usize, Reason> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = numbers.free.pop() {
            return Ok(number);
        }
        if numbers.next == limits::THREADS {
            return Err(Reason::TooManyThreads);
        }
        numbers.next += 1;
        self.threads.store(numbers.next as u64, Ordering::SeqCst);
        Ok(numbers.next - 1)
    }

    /// A thread ends.
    pub fn leave(&self, number: usize) {
        self.counters.end(number);
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).free.push(number);
    }

    /// Numbers given so far.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed) as usize
    }

    /// The counters of this thread.
    pub fn statistics(&self, number: usize) -> &Statistics {
        &self.statistics[number]
    }

    /// Which cores share what computes, as the kernel says.
    pub fn topology(&self) -> &Topology {
        self.topology.get_or_init(|| {
            Topology::read(|core| {
                let list = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
                std::fs::read_to_string(list).ok()
            })
        })
    }

    /// The sum over all threads.
    pub fn sum(&self, counter: impl Fn(&Statistics) -> &AtomicU64) -> u64 {
        self.statistics.iter().map(|of_thread| counter(of_thread).load(Ordering::Relaxed)).sum()
    }
}

/// Adds to a counter that only this thread writes.
pub fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}
