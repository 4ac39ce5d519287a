//! A model of turn passing: loom tries every interleaving and every reordering that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test -p schedule --lib --release model`

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::turn_state::{Tickets, TurnState, Want};

/// The value behind a lock: loom reports accesses to `touched` that are not ordered against each other, and `value`
/// shows their order (relaxed, so only the turns can order it).
#[derive(Default)]
pub(crate) struct Guarded {
    touched: UnsafeCell<()>,
    value: AtomicU64,
}

impl Guarded {
    pub(crate) fn append(&self, digit: u64) {
        self.touched.with_mut(|_| self.value.store(self.look() * 10 + digit, Ordering::Relaxed));
    }

    pub(crate) fn read(&self) -> u64 {
        self.touched.with(|_| self.look())
    }

    fn look(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// Waits for the turn, works as the owner, passes the turn and wakes sleepers, as a worker does.
fn write(turns: &TurnState, worker: usize, ticket: u64, cell: &Guarded, then: u64) {
    take(turns, worker, ticket, false);
    cell.append(then);
    pass(turns, worker, ticket, false);
}

fn read(turns: &TurnState, worker: usize, ticket: u64, cell: &Guarded) -> u64 {
    take(turns, worker, ticket, true);
    let seen = cell.read();
    pass(turns, worker, ticket, true);
    seen
}

fn take(turns: &TurnState, worker: usize, ticket: u64, shared: bool) {
    if !turns.is_turn(0, ticket, shared) {
        assert!(turns.wait(worker, Want::Turn { lock: 0, ticket, shared }));
    }
}

fn pass(turns: &TurnState, worker: usize, ticket: u64, shared: bool) {
    turns.pass(0, ticket, shared);
    turns.publish(worker, 2);
    turns.wake();
}

#[test]
fn model_writers_follow_their_tickets_and_no_wake_is_lost() {
    loom::model(|| {
        let turns = Arc::new(TurnState::new(1, 2, 1, 0));
        let cell = Arc::new(Guarded::default());
        let mut tickets = Tickets::new(1);
        let (first, second, third) = (tickets.take(0, false), tickets.take(0, false), tickets.take(0, false));
        let other = {
            let (turns, cell) = (Arc::clone(&turns), Arc::clone(&cell));
            thread::spawn(move || write(&turns, 1, second, &cell, 2))
        };
        write(&turns, 0, first, &cell, 1);
        write(&turns, 0, third, &cell, 3);
        other.join().unwrap();
        assert_eq!(cell.read(), 123);
    });
}

#[test]
fn model_readers_come_between_their_writers() {
    loom::model(|| {
        let turns = Arc::new(TurnState::new(1, 2, 1, 0));
        let cell = Arc::new(Guarded::default());
        let mut tickets = Tickets::new(1);
        let first = tickets.take(0, false);
        let (left, right) = (tickets.take(0, true), tickets.take(0, true));
        let last = tickets.take(0, false);
        let other = {
            let (turns, cell) = (Arc::clone(&turns), Arc::clone(&cell));
            thread::spawn(move || {
                assert_eq!(read(&turns, 1, right, &cell), 1);
                write(&turns, 1, last, &cell, 2);
            })
        };
        write(&turns, 0, first, &cell, 1);
        assert_eq!(read(&turns, 0, left, &cell), 1);
        other.join().unwrap();
        assert_eq!(cell.read(), 12);
    });
}

#[test]
fn model_a_watermark_carries_what_came_before_it() {
    loom::model(|| {
        let turns = Arc::new(TurnState::new(0, 2, 1, 0));
        let outcome = Arc::new(Guarded::default());
        let other = {
            let (turns, outcome) = (Arc::clone(&turns), Arc::clone(&outcome));
            thread::spawn(move || {
                outcome.append(7);
                turns.publish(1, 5);
                turns.wake();
            })
        };
        turns.publish(0, 5);
        assert!(turns.wait(0, Want::Resolved { below: 5 }));
        assert_eq!(outcome.read(), 7);
        other.join().unwrap();
    });
}

#[test]
fn model_a_sleeper_wakes_for_an_entry_the_end_and_an_abort() {
    for end in [TurnState::count_append as fn(&TurnState), TurnState::close, TurnState::abort] {
        loom::model(move || {
            let turns = Arc::new(TurnState::new(0, 1, 1, 0));
            let other = {
                let turns = Arc::clone(&turns);
                thread::spawn(move || end(&turns))
            };
            turns.wait(0, Want::Appended { seen: 0 });
            other.join().unwrap();
        });
    }
}

/// The checking barrier of mode `00GT`. A fault lets a request read what another one wrote and has not checked. When
/// the progress that is noted afterwards lets its reply leave, the other one has checked.
#[test]
fn model_who_read_an_unchecked_value_waits_for_its_check() {
    loom::model(|| {
        let turns = Arc::new(TurnState::new(0, 2, 1, 0));
        let (value, checked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let reader = {
            let (turns, value, checked) = (Arc::clone(&turns), Arc::clone(&value), Arc::clone(&checked));
            thread::spawn(move || {
                turns.begin(1, 8);
                let read = value.load(Ordering::Relaxed);
                turns.end(1);
                // The order thread, which has the result from a mailbox.
                let noted = turns.progress(0);
                let may_leave = noted.has_ended(&turns.progress(0));
                if may_leave && read == 1 {
                    assert_eq!(checked.load(Ordering::Relaxed), 1, "the reply left before the check");
                }
                noted
            })
        };
        turns.begin(0, 7);
        value.store(1, Ordering::Relaxed);
        checked.store(1, Ordering::Relaxed);
        turns.end(0);
        let noted = reader.join().unwrap();
        assert!(noted.has_ended(&turns.progress(0)), "the reply leaves in the end");
    });
}
