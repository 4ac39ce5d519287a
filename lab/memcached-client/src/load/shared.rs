//! Keys that all clients use at once: counters, each of whose values is returned once, and values that prove their own
//! bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::draw::LoadDraw;

/// Bits of a shared value's flags that number the writer's writes; the rest is the writer.
const WRITE_BITS: u32 = 20;

/// State that all clients of one load share.
#[derive(Debug)]
pub struct Shared {
    /// Name of this load, the beginning of every key.
    pub prefix: String,
    counters: Vec<Mutex<CounterBook>>,
    /// Per session: writes sent so far, and whether one of them was ever lost.
    issued: Vec<(AtomicU64, AtomicBool)>,
}

#[derive(Debug, Default)]
struct CounterBook {
    values: BTreeSet<u64>,
    maybe: u64,
    doubled: Vec<u64>,
}

/// The account of one shared counter.
#[derive(Clone, Debug)]
pub struct CounterAccount {
    /// Its key.
    pub key: String,
    /// Increments that were acknowledged.
    pub acknowledged: u64,
    /// Increments whose reply was lost with the connection.
    pub maybe: u64,
    /// Highest value in a reply.
    pub highest: u64,
    /// Values that were returned twice.
    pub doubled: Vec<u64>,
}

/// The shared values that one session has read: per key and writer, the last write seen.
pub type Seen = BTreeMap<(usize, u32), u64>;

impl Shared {
    /// No command was sent yet.
    pub fn new(prefix: String, counters: usize, sessions: usize) -> Self {
        let counters = (0..counters).map(|_| Mutex::default()).collect();
        Shared { prefix, counters, issued: (0..sessions).map(|_| Default::default()).collect() }
    }

    /// How many counters, and how many shared values, there are.
    pub fn count(&self) -> usize {
        self.counters.len()
    }

    /// Key of a counter.
    pub fn counter_key(&self, counter: usize) -> String {
        format!("{}count{counter}", self.prefix)
    }

    /// Key of a shared value.
    pub fn value_key(&self, value: usize) -> String {
        format!("{}shared{value}", self.prefix)
    }

    /// An increment by one was acknowledged with this value.
    pub fn counted(&self, counter: usize, value: u64) {
        let mut book = self.counters[counter].lock().expect("no panic while it is held");
        if !book.values.insert(value) {
            book.doubled.push(value);
        }
    }

    /// The reply to an increment was lost.
    pub fn maybe_counted(&self, counter: usize) {
        self.counters[counter].lock().expect("no panic while it is held").maybe += 1;
    }

    /// The accounts of all counters.
    pub fn accounts(&self) -> Vec<CounterAccount> {
        let account = |(number, book): (usize, &Mutex<CounterBook>)| {
            let book = book.lock().expect("no panic while it is held");
            CounterAccount {
                key: self.counter_key(number),
                acknowledged: book.values.len() as u64 + book.doubled.len() as u64,
                maybe: book.maybe,
                highest: book.values.last().copied().unwrap_or(0),
                doubled: book.doubled.clone(),
            }
        };
        self.counters.iter().enumerate().map(account).collect()
    }

    /// Flags and bytes of the next shared value of a session; `None` when its numbers are used up.
    pub fn next_value(&self, session: usize) -> Option<(u32, Vec<u8>)> {
        let write = self.issued[session].0.fetch_add(1, Ordering::SeqCst) + 1;
        if write >> WRITE_BITS != 0 {
            return None;
        }
        let flags = (session as u32) << WRITE_BITS | write as u32;
        Some((flags, certified(flags)))
    }

    /// A write of this session was lost: it may take effect late, so that older values may come back.
    pub fn write_lost(&self, session: usize) {
        self.issued[session].1.store(true, Ordering::SeqCst);
    }

    /// The bytes that must belong to these flags, or the error in the flags.
    pub fn expected(&self, key: usize, flags: u64, seen: &mut Seen) -> Result<Vec<u8>, String> {
        let flags = u32::try_from(flags).map_err(|_| format!("flags {flags} are no 32 bits"))?;
        let (writer, write) = (flags >> WRITE_BITS, u64::from(flags & ((1 << WRITE_BITS) - 1)));
        let (issued, lost) =
            self.issued.get(writer as usize).ok_or_else(|| format!("nobody is writer {writer}"))?;
        if write == 0 || write > issued.load(Ordering::SeqCst) {
            return Err(format!("writer {writer} has not written {write} yet"));
        }
        let last = seen.insert((key, writer), write).unwrap_or(0);
        if write < last && !lost.load(Ordering::SeqCst) {
            return Err(format!(
                "write {write} of writer {writer} came back after its write {last} was read"
            ));
        }
        Ok(certified(flags))
    }
}

/// A value that follows from its flags.
fn certified(flags: u32) -> Vec<u8> {
    LoadDraw::new(u64::from(flags)).value(4096)
}
