//! Every bound of the library in one place, with what happens at it.

/// Threads with a handler at one time. The next one ends the process with a line that says so.
pub const THREADS: usize = 256;

/// Entries of one run's log: 64 MiB of 16 bytes. memcached writes 65,536 when it divides a page of 1 MiB into chunks.
pub const LOG_ENTRIES: usize = 4 << 20;

/// Old bytes of ranges in one run's log. A reference to them has 32 bits.
pub const ARENA_BYTES: usize = 64 << 20;

/// A log longer than this gives its memory back after the handler: 8 KiB. A thread has two, and their new values. With
/// the next three it keeps 30 KiB at most between handlers.
pub const KEPT_ENTRIES: usize = 512;

/// Bytes that a thread keeps room for between handlers, in each of four places: old and new bytes of ranges, and those
/// of calls.
pub const KEPT_BYTES: usize = 1 << 10;

/// Calls that a thread keeps room for between handlers.
pub const KEPT_CALLS: usize = 32;

/// Words that describe frequent calls, in the same way.
pub const KEPT_WORDS: usize = 256;

/// Writes of more bytes are one entry with their old bytes in the arena; shorter ones are words in the log.
pub const WORDS_BYTES: usize = 64;

/// Calls in one run of a handler: allocations, frees, locks, recorded and deferred ones.
pub const CALLS: usize = 1 << 20;

/// Bytes that one handler may receive or send in recorded and deferred calls.
pub const CALL_BYTES: usize = 64 << 20;

/// Pieces of output in one handler.
pub const OUTPUT_PIECES: usize = 1 << 16;

/// CRCs of replies that wait in one context for `sei_crc_pop`.
pub const WAITING_CRCS: usize = 1 << 16;

/// Ranges that one handler may exclude from comparison.
pub const IGNORED_RANGES: usize = 64;

/// How often a handler that holds a lock tries for another one before it gives up and runs again.
pub const LOCK_TRIES: usize = 200;

/// How often `sei_barrier` asks whether other threads' handlers have been checked before it returns 0.
pub const BARRIER_TRIES: usize = 100;

/// Places in the table of lock owners, and how many of them one lock may be in.
pub const OWNERS: usize = 4096;
/// Places in which the owner of one lock is looked for.
pub const OWNER_PROBES: usize = 4;

/// Stacks of the program's own (`sei_stack`). One more ends the process.
pub const STACKS: usize = 1 << 16;

/// The stack of a main thread whose own bound cannot be read. Linux keeps more than this free below it.
pub const STACK_BYTES: usize = 8 << 20;

/// Registered ranges of duplicated state, the arena included.
pub const STATE_RANGES: usize = 16;

/// Address space reserved for each copy of duplicated state; memory is used as it is touched.
pub const STATE_BYTES: usize = 64 << 30;
