//! A model of parallel batches and boundaries, under every interleaving that loom tries: see `model.rs` beside.
//!
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test -p schedule --lib --release model`

use loom::sync::Arc;
use loom::thread;

use super::gate::{Entering, Gate, Wanted};
use super::planned::OpenPlaces;
use crate::model::Guarded;
use crate::turn_state::{TurnState, Want};

#[test]
fn model_a_parallel_batch_sees_all_of_the_one_before() {
    loom::model(|| {
        let shared = Arc::new((OpenPlaces::new(), [Guarded::default(), Guarded::default()]));
        shared.0.open_to(2);
        let work = |shared: &(OpenPlaces, [Guarded; 2])| {
            let (progress, cells) = shared;
            while let Some(place) = progress.claim() {
                if place < 2 {
                    cells[place as usize].append(1);
                } else {
                    assert_eq!((cells[0].read(), cells[1].read()), (1, 1));
                    cells[0].append(3);
                }
                if progress.resolve() && place < 2 {
                    progress.open_to(3);
                }
            }
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || work(&shared))
        };
        work(&shared);
        other.join().unwrap();
        // One of the two has run the last place, unless it looked before that was open and the other one was last.
        work(&shared);
        assert_eq!(shared.1[0].read(), 13);
    });
}

#[test]
fn model_a_boundary_has_the_state_alone() {
    loom::model(|| {
        let shared = Arc::new((Gate::new(), Guarded::default()));
        let request = |shared: &(Gate, Guarded)| {
            let (gate, state) = shared;
            if gate.enter(Entering::Request) {
                state.append(1);
                gate.leave();
            }
        };
        let boundary = |shared: &(Gate, Guarded)| {
            let (gate, state) = shared;
            if let Some(wanted) = gate.wanted_alone()
                && gate.enter_alone(wanted)
            {
                state.append(2);
                gate.still_wanted(Wanted::default());
                gate.leave();
            }
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                request(&shared);
                boundary(&shared);
            })
        };
        shared.0.want(Wanted { at_once: true, between: false });
        boundary(&shared);
        other.join().unwrap();
        boundary(&shared);
        let state = shared.1.read();
        assert!([2, 12, 21].contains(&state), "{state}");
        assert!(shared.0.wanted_alone().is_none(), "the boundary has run");
    });
}

#[test]
fn model_a_worker_that_found_nothing_is_woken_by_the_step_after() {
    loom::model(|| {
        let shared = Arc::new((TurnState::new(1, 2, 1, 0), OpenPlaces::new(), Guarded::default()));
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (turns, progress, cell) = &*shared;
                loop {
                    let seen = turns.steps();
                    if progress.claim().is_some() {
                        return cell.append(2);
                    }
                    assert!(turns.wait(1, Want::Step { seen }));
                }
            })
        };
        let (turns, progress, cell) = &*shared;
        cell.append(1);
        progress.open_to(1);
        turns.step();
        other.join().unwrap();
        assert_eq!(cell.read(), 12);
    });
}

#[test]
fn model_locks_of_mixed_batches_exclude_and_wake() {
    loom::model(|| {
        let shared = Arc::new((TurnState::new(1, 2, 1, 0), Guarded::default()));
        let work = |worker: usize, shared: &(TurnState, Guarded)| {
            let (turns, cell) = shared;
            while !turns.try_lock(0, false) {
                assert!(turns.wait(worker, Want::Lock { lock: 0, shared: false }));
            }
            cell.append(worker as u64 + 1);
            turns.unlock(0, false);
            turns.wake();
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || work(1, &shared))
        };
        work(0, &shared);
        other.join().unwrap();
        assert!([12, 21].contains(&shared.1.read()));
    });
}
