//! A model of turn passing: loom tries every interleaving and every reordering that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test -p schedule --lib --release model`

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::board::{Board, Tickets, Want};

/// What a lock guards: loom reports accesses to `touched` that are not ordered against each other, and `value` tells
/// their order (relaxed: whatever orders it is the turns).
#[derive(Default)]
struct Guarded {
    touched: UnsafeCell<()>,
    value: AtomicU64,
}

impl Guarded {
    fn append(&self, digit: u64) {
        self.touched.with_mut(|_| self.value.store(self.look() * 10 + digit, Ordering::Relaxed));
    }

    fn read(&self) -> u64 {
        self.touched.with(|_| self.look())
    }

    fn look(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// Waits for the turn, works as the owner, passes the turn and wakes sleepers, as a worker does.
fn write(board: &Board, worker: usize, ticket: u64, cell: &Guarded, then: u64) {
    take(board, worker, ticket, false);
    cell.append(then);
    pass(board, worker, ticket, false);
}

fn read(board: &Board, worker: usize, ticket: u64, cell: &Guarded) -> u64 {
    take(board, worker, ticket, true);
    let seen = cell.read();
    pass(board, worker, ticket, true);
    seen
}

fn take(board: &Board, worker: usize, ticket: u64, shared: bool) {
    if !board.is_turn(0, ticket, shared) {
        assert!(board.wait(worker, Want::Turn { lock: 0, ticket, shared }));
    }
}

fn pass(board: &Board, worker: usize, ticket: u64, shared: bool) {
    board.pass(0, ticket, shared);
    board.publish(worker, 2);
    board.wake();
}

#[test]
fn model_writers_follow_their_tickets_and_no_wake_is_lost() {
    loom::model(|| {
        let board = Arc::new(Board::new(1, 2, 1, 0));
        let cell = Arc::new(Guarded::default());
        let mut tickets = Tickets::new(1);
        let (first, second, third) = (tickets.take(0, false), tickets.take(0, false), tickets.take(0, false));
        let other = {
            let (board, cell) = (Arc::clone(&board), Arc::clone(&cell));
            thread::spawn(move || write(&board, 1, second, &cell, 2))
        };
        write(&board, 0, first, &cell, 1);
        write(&board, 0, third, &cell, 3);
        other.join().unwrap();
        assert_eq!(cell.read(), 123);
    });
}

#[test]
fn model_readers_come_between_their_writers() {
    loom::model(|| {
        let board = Arc::new(Board::new(1, 2, 1, 0));
        let cell = Arc::new(Guarded::default());
        let mut tickets = Tickets::new(1);
        let first = tickets.take(0, false);
        let (left, right) = (tickets.take(0, true), tickets.take(0, true));
        let last = tickets.take(0, false);
        let other = {
            let (board, cell) = (Arc::clone(&board), Arc::clone(&cell));
            thread::spawn(move || {
                assert_eq!(read(&board, 1, right, &cell), 1);
                write(&board, 1, last, &cell, 2);
            })
        };
        write(&board, 0, first, &cell, 1);
        assert_eq!(read(&board, 0, left, &cell), 1);
        other.join().unwrap();
        assert_eq!(cell.read(), 12);
    });
}

#[test]
fn model_a_watermark_carries_what_came_before_it() {
    loom::model(|| {
        let board = Arc::new(Board::new(0, 2, 1, 0));
        let outcome = Arc::new(Guarded::default());
        let other = {
            let (board, outcome) = (Arc::clone(&board), Arc::clone(&outcome));
            thread::spawn(move || {
                outcome.append(7);
                board.publish(1, 5);
                board.wake();
            })
        };
        board.publish(0, 5);
        assert!(board.wait(0, Want::Resolved { below: 5 }));
        assert_eq!(outcome.read(), 7);
        other.join().unwrap();
    });
}

#[test]
fn model_a_sleeper_hears_of_an_entry_of_the_end_and_of_an_abort() {
    for end in [Board::count_append as fn(&Board), Board::close, Board::abort] {
        loom::model(move || {
            let board = Arc::new(Board::new(0, 1, 1, 0));
            let other = {
                let board = Arc::clone(&board);
                thread::spawn(move || end(&board))
            };
            board.wait(0, Want::Appended { seen: 0 });
            other.join().unwrap();
        });
    }
}
