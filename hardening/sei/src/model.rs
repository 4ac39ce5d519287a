//! Models of the barrier, of the owner table, and of the ranges of duplicated state: loom tries every interleaving and
//! reordering that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p sei --lib model`

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::barrier::{Counters, Snapshot};
use crate::copies::{Copies, SharedCopies};
use crate::fail::Reason;
use crate::locks::{Held, Owners};

const MUTEX: usize = 0x1000;

/// A fault lets the second thread read what the first has written and not checked. Then the second thread's barrier
/// must wait until the first has checked: it sees the first one's counter odd, or the check is over.
#[test]
fn who_read_an_unchecked_value_waits_for_its_check() {
    loom::model(|| {
        let counters = Arc::new(Counters::new(2));
        let (value, checked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let writer = {
            let (counters, value, checked) = (counters.clone(), value.clone(), checked.clone());
            thread::spawn(move || {
                counters.enter(0);
                value.store(1, Ordering::Relaxed);
                checked.store(1, Ordering::Relaxed);
                counters.leave(0);
            })
        };
        counters.enter(1);
        let read = value.load(Ordering::Relaxed);
        counters.leave(1);
        let mut snapshot = Snapshot::new();
        counters.snapshot(1, 2, &mut snapshot);
        if counters.has_passed(&mut snapshot) && read == 1 {
            assert_eq!(checked.load(Ordering::Relaxed), 1, "sent before the other has checked");
        }
        writer.join().unwrap();
        assert!(counters.has_passed(&mut snapshot));
    });
}

/// Threads that take turns by a real lock never find another owner; the lock is modelled by a compare and exchange.
#[test]
fn owners_that_take_turns_are_right() {
    loom::model(|| {
        let owners = Arc::new(Owners::new(2));
        let lock = Arc::new(AtomicU64::new(0));
        let turn = |owners: &Owners, lock: &AtomicU64, number: usize| {
            if lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                let mut held = Held::default();
                held.add(owners, MUTEX, number).unwrap();
                held.validate(owners, number).unwrap();
                assert_eq!(held.pop(owners, number), Ok(Some(MUTEX)));
                lock.store(0, Ordering::Release);
            }
        };
        let other = {
            let (owners, lock) = (owners.clone(), lock.clone());
            thread::spawn(move || turn(&owners, &lock, 0))
        };
        turn(&owners, &lock, 1);
        other.join().unwrap();
    });
}

/// A fault lets two threads into one section. Both cannot end their handlers as owners.
#[test]
fn of_two_threads_in_one_section_at_least_one_finds_out() {
    loom::model(|| {
        let owners = Arc::new(Owners::new(2));
        let inside = Arc::new(AtomicU64::new(0));
        let enter = |owners: &Owners, inside: &AtomicU64, number: usize| -> Result<bool, Reason> {
            let mut held = Held::default();
            held.add(owners, MUTEX, number)?;
            let together = inside.fetch_add(1, Ordering::AcqRel) == 1;
            held.validate(owners, number)?;
            Ok(together)
        };
        let other = {
            let (owners, inside) = (owners.clone(), inside.clone());
            thread::spawn(move || enter(&owners, &inside, 0))
        };
        let mine = enter(&owners, &inside, 1);
        let others = other.join().unwrap();
        // Neither has left, so both were inside.
        assert!(mine.is_err() || others.is_err());
    });
}

/// A thread that begins handlers while another one registers ranges has a prefix of them, each one complete.
#[test]
fn a_threads_ranges_are_complete_ones() {
    const RANGES: [(usize, usize, usize); 2] = [(0x1000, 64, 0x10_0000), (0x2000, 128, 0x20_0000)];
    fn first(count: usize) -> Copies {
        let mut copies = Copies::new();
        for &(begin, length, distance) in &RANGES[..count] {
            copies.add(begin, length, distance).unwrap();
        }
        copies
    }
    loom::model(|| {
        let shared = Arc::new(SharedCopies::new());
        // Loom looks for another order at the last access of an atomic only, so the thread that also reads is this one.
        let handlers = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut own = Copies::new();
                for _ in 0..2 {
                    shared.refresh(&mut own).unwrap();
                    assert_eq!(own, first(own.iter().count()));
                }
                own
            })
        };
        for (begin, length, distance) in RANGES {
            shared.add(begin, length, distance).unwrap();
        }
        let mut own = handlers.join().unwrap();
        shared.refresh(&mut own).unwrap();
        assert_eq!(own, first(2));
    });
}
