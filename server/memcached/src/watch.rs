//! `watch`: what this replica executes, told to clients that ask for it, as stock memcached's logger tells it.
//!
//! Events are no part of the state or of replies to ordered requests: a watcher sees those of the replica that it is
//! connected to. They are noted only while somebody watches. The log is bounded: a watcher that is too slow is told how
//! many events it has missed.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::limits::{WATCHED_BYTES, WATCHED_KEPT};
use crate::protocol::numbers::push_decimal;

/// Kinds of events, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchKinds(u8);

impl WatchKinds {
    /// Items that are read, and reads that find nothing.
    pub const FETCHERS: WatchKinds = WatchKinds(1);
    /// Items that are stored.
    pub const MUTATIONS: WatchKinds = WatchKinds(1 << 1);
    /// Items that are evicted while they are valid.
    pub const EVICTIONS: WatchKinds = WatchKinds(1 << 2);
    /// Items that are deleted.
    pub const DELETIONS: WatchKinds = WatchKinds(1 << 3);
    /// None.
    pub const NONE: WatchKinds = WatchKinds(0);

    /// The kind of that name in a `watch` command.
    pub fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"fetchers" => Self::FETCHERS,
            b"mutations" => Self::MUTATIONS,
            b"evictions" => Self::EVICTIONS,
            b"deletions" => Self::DELETIONS,
            _ => return None,
        })
    }

    /// Both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        WatchKinds(self.0 | other.0)
    }

    fn has(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }
}

/// The events of one replica that somebody watches.
#[derive(Debug, Default)]
pub struct WatchLog {
    /// Watchers per kind.
    watchers: [AtomicU32; 4],
    /// All watchers.
    all: AtomicU32,
    events: Mutex<WatchedEvents>,
}

#[derive(Debug, Default)]
struct WatchedEvents {
    /// Number of the next event.
    next: u64,
    kept: VecDeque<WatchedEvent>,
    /// Bytes of those.
    bytes: usize,
}

#[derive(Debug)]
struct WatchedEvent {
    kind: WatchKinds,
    line: Box<[u8]>,
}

impl WatchLog {
    /// The log, if anybody watches.
    pub fn watched(&self) -> Option<&Self> {
        if self.all.load(Relaxed) == 0 { None } else { Some(self) }
    }

    /// Notes an event of an item: its kind, its name and its key, and `rest`, what stock tells besides.
    pub fn note(&self, kind: WatchKinds, name: &str, key: &[u8], rest: std::fmt::Arguments<'_>) {
        if self.watchers[kind.0.trailing_zeros() as usize].load(Relaxed) == 0 {
            return;
        }
        let time = crosscheck::host_time().unix;
        let mut events = self.events.lock();
        let mut line = Vec::with_capacity(96 + key.len());
        // Writing to a vector cannot fail.
        let (s, us, number) = (time.as_secs(), time.subsec_micros(), events.next);
        let _ = write!(line, "ts={s}.{us:06} gid={number} type={name} key=");
        push_escaped(key, &mut line);
        let _ = writeln!(line, " {rest}");
        events.next += 1;
        events.bytes += line.len();
        events.kept.push_back(WatchedEvent { kind, line: line.into_boxed_slice() });
        while events.bytes > WATCHED_BYTES || events.kept.len() > WATCHED_KEPT {
            let Some(oldest) = events.kept.pop_front() else { break };
            events.bytes -= oldest.line.len();
        }
    }

    fn count(&self, kinds: WatchKinds, change: impl Fn(&AtomicU32)) {
        change(&self.all);
        let counters = self.watchers.iter().enumerate();
        counters.filter(|(bit, _)| kinds.0 & (1 << bit) != 0).for_each(|(_, counter)| change(counter));
    }
}

/// One watcher, as long as it is kept.
#[derive(Debug)]
pub struct Watcher {
    log: Arc<WatchLog>,
    kinds: WatchKinds,
    /// Number of the next event that it has not been told.
    next: Mutex<u64>,
}

impl Watcher {
    /// Watches from now on.
    pub fn new(log: &Arc<WatchLog>, kinds: WatchKinds) -> Self {
        log.count(kinds, |counter| _ = counter.fetch_add(1, Relaxed));
        let next = log.events.lock().next;
        Watcher { log: log.clone(), kinds, next: Mutex::new(next) }
    }

    /// What it watches.
    pub fn kinds(&self) -> WatchKinds {
        self.kinds
    }

    /// The lines of the events since the last call, at most `room` bytes; the others follow with the next call, or are
    /// counted as skipped when they are kept no longer.
    pub fn news(&self, room: usize) -> Vec<u8> {
        let events = self.log.events.lock();
        let mut next = self.next.lock();
        let first = events.next - events.kept.len() as u64;
        let mut lines = Vec::new();
        if *next < first && room > 0 {
            lines.extend_from_slice(b"skipped=");
            push_decimal(&mut lines, first - *next);
            lines.push(b'\n');
            *next = first;
        }
        for event in events.kept.range(next.saturating_sub(first) as usize..) {
            if event.kind == WatchKinds::NONE || !self.kinds.has(event.kind) {
                *next += 1;
                continue;
            }
            if lines.len() + event.line.len() > room {
                break;
            }
            *next += 1;
            lines.extend_from_slice(&event.line);
        }
        lines
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.log.count(self.kinds, |counter| _ = counter.fetch_sub(1, Relaxed));
        if self.log.watched().is_none() {
            let mut events = self.log.events.lock();
            (events.kept, events.bytes) = (VecDeque::new(), 0);
        }
    }
}

/// Appends a key in the form of a URI, as in stock memcached's lists and events.
pub(crate) fn push_escaped(key: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
            out.extend_from_slice(&[b'%', DIGITS[high], DIGITS[low]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(log: &WatchLog, kind: WatchKinds, key: &[u8]) {
        log.note(kind, "test", key, format_args!("x=1"));
    }

    #[test]
    fn a_watcher_sees_its_kinds_from_its_beginning_on() {
        let log = Arc::new(WatchLog::default());
        note(&log, WatchKinds::FETCHERS, b"before");
        assert!(log.watched().is_none());
        let watcher = Watcher::new(&log, WatchKinds::FETCHERS.and(WatchKinds::EVICTIONS));
        note(&log, WatchKinds::FETCHERS, b"a b");
        note(&log, WatchKinds::MUTATIONS, b"other");
        note(&log, WatchKinds::EVICTIONS, b"c");
        let news = String::from_utf8(watcher.news(10_000)).unwrap();
        let lines: Vec<&str> = news.lines().collect();
        assert_eq!(lines.len(), 2, "{news}");
        assert!(
            lines[0].starts_with("ts=") && lines[0].ends_with(" gid=0 type=test key=a%20b x=1"),
            "{news}"
        );
        assert!(lines[1].contains("key=c "), "{news}");
        assert!(watcher.news(10_000).is_empty());
        drop(watcher);
        assert!(log.watched().is_none() && log.events.lock().kept.is_empty());
    }

    #[test]
    fn a_slow_watcher_gets_what_it_missed_and_memory_is_bounded() {
        let log = Arc::new(WatchLog::default());
        let watcher = Watcher::new(&log, WatchKinds::FETCHERS);
        let many = 3 * WATCHED_KEPT;
        (0..many).for_each(|_| note(&log, WatchKinds::FETCHERS, &[b'k'; 250]));
        {
            let events = log.events.lock();
            assert!(events.bytes <= WATCHED_BYTES && events.kept.len() <= WATCHED_KEPT);
        }
        assert!(watcher.news(0).is_empty());
        let mut reported = 0;
        let first = String::from_utf8(watcher.news(1000)).unwrap();
        let skipped: usize = first.lines().next().unwrap().strip_prefix("skipped=").unwrap().parse().unwrap();
        reported += first.lines().count() - 1;
        assert!(first.len() <= 1000 && reported > 0);
        loop {
            let news = watcher.news(1000);
            assert!(news.len() <= 1000);
            if news.is_empty() {
                break;
            }
            reported += news.iter().filter(|byte| **byte == b'\n').count();
        }
        assert_eq!(skipped + reported, many);
    }
}
