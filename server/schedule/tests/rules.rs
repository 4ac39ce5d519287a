//! Each rule of lagged ordered turns alone (docs/determinism.md, sections 3 and 4), one test per rule.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use schedule::{
    BatchRow, Config, Cx, DetMutex, DetRwLock, Entry, Footprint, LockRules, Origin, Outcome, Retry, Schedule,
    Step, Turn, Waiters, Worker,
};

/// A request of these tests is the handler itself.
#[derive(Clone)]
struct Job {
    footprint: Footprint,
    handler: Arc<Handler>,
}

type Handler = dyn Fn(&Cx<'_, Job>) -> Result<(), Retry> + Send + Sync;

fn job(
    footprint: Footprint,
    handler: impl Fn(&Cx<'_, Job>) -> Result<(), Retry> + Send + Sync + 'static,
) -> Job {
    Job { footprint, handler: Arc::new(handler) }
}

fn nothing() -> Job {
    job(Footprint::new(), |_| Ok(()))
}

fn entry(index: u64, time_us: u64, drain: bool, jobs: Vec<Job>) -> Arc<Entry<Job>> {
    let row = |job: Job| BatchRow { footprint: job.footprint, request: job, stream: None };
    let rows = jobs.into_iter().map(row).collect();
    Arc::new(Entry { index, time_us, seed: index * 1_000 + 7, drain, rows })
}

fn open(config: Config) -> (Schedule<Job>, Vec<Worker<Job>>) {
    schedule::open(config, |job: &Job, footprint: &mut Footprint| *footprint = job.footprint)
}

fn config(workers: usize, lag: u64) -> Config {
    Config { lag, spins: 20, ..Config::new(workers, 64) }
}

fn locks() -> Arc<Vec<DetMutex<u64>>> {
    Arc::new((0..64).map(|id| DetMutex::bare(id, 0)).collect())
}

/// Runs the request and finishes its turn; returns position, attempt, whether it ran alone, and the outcome.
fn perform(turn: Turn<'_, Job>) -> (u64, u32, bool, Outcome) {
    let handler = Arc::clone(&turn.request().handler);
    let outcome = match handler(&turn.cx()) {
        Ok(()) => Outcome::Done,
        Err(retry) => Outcome::Mispredicted(retry),
    };
    let reported = (turn.position(), turn.attempt(), turn.is_exclusive(), outcome);
    turn.finish(outcome);
    reported
}

/// Everything a worker may run now.
fn perform_all(worker: &mut Worker<Job>) -> Vec<(u64, u32, bool, Outcome)> {
    let mut reported = Vec::new();
    while let Step::Run(turn) = worker.next() {
        reported.push(perform(turn));
    }
    reported
}

/// Appends the entries to a single worker and runs them all.
fn run_alone(lag: u64, entries: Vec<Arc<Entry<Job>>>) -> Vec<(u64, u32, bool, Outcome)> {
    let (schedule, mut workers) = open(config(1, lag));
    entries.into_iter().for_each(|entry| schedule.append(entry));
    schedule.close();
    perform_all(&mut workers[0])
}

fn positions(reported: &[(u64, u32, bool, Outcome)]) -> Vec<u64> {
    reported.iter().map(|one| one.0).collect()
}

#[test]
fn a_miss_runs_again_lag_positions_later_with_the_lock() {
    let locks = locks();
    let misses = job(Footprint::one(1), move |cx| {
        *cx.lock(&locks[1])? += 1;
        *cx.lock(&locks[2])? += 1;
        Ok(())
    });
    let reported = run_alone(8, vec![entry(1, 1, true, vec![nothing(), misses, nothing()])]);
    assert_eq!(positions(&reported), [1, 2, 3, 10]);
    assert!(matches!(reported[1].3, Outcome::Mispredicted(retry) if retry.lock() == 2));
    assert_eq!(reported[3], (10, 1, false, Outcome::Done));
}

#[test]
fn the_third_miss_runs_alone_and_a_retry_sees_the_same_time_and_numbers() {
    let (locks, seen) = (locks(), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&seen);
    let misses = job(Footprint::new(), move |cx| {
        noted.lock().unwrap().push((cx.now_us(), cx.rng().next_u64(), cx.rng().next_u64(), cx.origin()));
        (0..10).try_for_each(|lock| cx.lock(&locks[lock]).map(|mut value| *value += 1))
    });
    let reported = run_alone(4, vec![entry(1, 50, true, vec![misses]), entry(2, 60, true, vec![nothing()])]);
    let attempts: Vec<_> = reported.iter().map(|one| (one.0, one.1, one.2)).collect();
    assert_eq!(attempts, [(1, 0, false), (5, 1, false), (9, 2, false), (13, 3, true), (18, 0, false)]);
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|one| *one == seen[0]) && seen.len() == 4);
    assert!(seen[0].0 == 50 && seen[0].1 != seen[0].2, "each call of rng() gives another stream");
}

#[test]
fn footprints_of_none_sixteen_and_seventeen_locks() {
    let locks = locks();
    let takes = |count: usize| {
        let locks = Arc::clone(&locks);
        job((0..count as u32).collect(), move |cx| {
            (0..count).try_for_each(|lock| cx.lock(&locks[lock]).map(|mut value| *value += 1))
        })
    };
    for workers in [1, 2] {
        let (schedule, mut workers) = open(config(workers, 8));
        schedule.append(entry(1, 1, false, vec![takes(0), takes(16), takes(17), takes(16)]));
        schedule.close();
        let mut reported = Vec::new();
        // One thread acts as all workers: its requests never wait, because positions are taken in order.
        while reported.len() < 4 {
            workers.iter_mut().for_each(|worker| {
                if let Step::Run(turn) = worker.next() {
                    reported.push(perform(turn));
                }
            });
        }
        reported.sort_by_key(|one| one.0);
        assert_eq!(reported.iter().map(|one| one.2).collect::<Vec<_>>(), [false, false, true, false]);
        assert!(reported.iter().all(|one| one.3 == Outcome::Done));
    }
}

#[test]
fn a_footprint_beyond_the_schedule_runs_alone_and_a_lock_beyond_it_is_refused() {
    let far = Arc::new(DetMutex::bare(64, 0u64));
    let reach = job(Footprint::one(64), move |cx| {
        let refused = catch_unwind(AssertUnwindSafe(|| cx.lock(&far).is_ok()));
        assert!(refused.is_err());
        Ok(())
    });
    assert_eq!(run_alone(8, vec![entry(1, 1, false, vec![reach])]), [(1, 0, true, Outcome::Done)]);
}

#[test]
fn a_drained_batch_is_followed_by_lag_empty_positions() {
    let reported = run_alone(
        8,
        vec![
            entry(1, 1, true, vec![nothing(), nothing()]),
            entry(2, 2, false, vec![nothing()]),
            entry(3, 3, true, vec![nothing()]),
            entry(4, 4, true, vec![]),
            entry(5, 5, false, vec![nothing()]),
        ],
    );
    // An empty batch after a drained one has nothing to wait for.
    assert_eq!(positions(&reported), [1, 2, 11, 12, 21]);
}

#[test]
fn without_drain_a_retry_waits_for_further_positions() {
    let locks = locks();
    let misses = move || {
        let locks = Arc::clone(&locks);
        job(Footprint::new(), move |cx| cx.lock(&locks[0]).map(|_| ()))
    };
    let (schedule, mut workers) = open(config(1, 4));
    schedule.append(entry(1, 1, false, vec![misses()]));
    assert_eq!(positions(&perform_all(&mut workers[0])), [1]);
    schedule.append(entry(2, 2, false, (0..3).map(|_| nothing()).collect()));
    assert_eq!(positions(&perform_all(&mut workers[0])), [2, 3, 4, 5], "the retry is the fourth");
    schedule.append(entry(3, 3, true, vec![misses()]));
    assert_eq!(positions(&perform_all(&mut workers[0])), [6, 10], "drained without a further entry");
}

#[test]
fn nothing_runs_more_than_lag_positions_ahead_of_an_unresolved_one() {
    let (schedule, workers) = open(config(2, 8));
    schedule.append(entry(1, 1, false, (0..40).map(|_| nothing()).collect()));
    let [mut even, mut odd] = <[Worker<Job>; 2]>::try_from(workers).ok().unwrap();
    let Step::Run(first) = odd.next() else { panic!("position 1 falls to worker 1") };
    assert_eq!(first.position(), 1);
    assert_eq!(positions(&perform_all(&mut even)), [2, 4, 6, 8], "9 waits for the outcome of 1");
    first.finish(Outcome::Done);
    let Step::Run(third) = odd.next() else { panic!("position 3 falls to worker 1") };
    assert_eq!(positions(&perform_all(&mut even)), [10], "11 waits for the outcome of 3");
    third.finish(Outcome::Done);
    assert_eq!(
        positions(&perform_all(&mut odd)),
        [5, 7, 9, 11, 13, 15, 17],
        "19 waits for the outcome of 12"
    );
}

#[test]
fn an_exclusive_request_waits_for_all_before_and_holds_all_after() {
    let (schedule, workers) = open(config(2, 8));
    let alone = job(Footprint::all(), |_| Ok(()));
    schedule.append(entry(1, 1, false, vec![nothing(), alone, nothing(), nothing()]));
    let [mut even, mut odd] = <[Worker<Job>; 2]>::try_from(workers).ok().unwrap();
    let Step::Run(first) = odd.next() else { panic!("position 1") };
    assert!(matches!(even.next(), Step::Idle), "position 2 waits for 1");
    first.finish(Outcome::Done);
    assert!(matches!(odd.next(), Step::Idle), "position 3 waits for 2");
    let Step::Run(second) = even.next() else { panic!("position 2") };
    assert!(second.is_exclusive());
    assert!(matches!(odd.next(), Step::Idle), "position 3 still waits");
    second.finish(Outcome::Done);
    assert_eq!(positions(&perform_all(&mut odd)), [3]);
    assert_eq!(positions(&perform_all(&mut even)), [4]);
}

#[test]
fn a_spawn_storm_runs_in_order_whatever_the_workers() {
    const STORM: u64 = 20_000;
    let run = |workers: usize| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let lock = Arc::new(DetMutex::bare(0, 0u64));
        let noted = Arc::clone(&order);
        let storm = job(Footprint::new(), move |cx| {
            for number in 0..STORM {
                let (noted, lock) = (Arc::clone(&noted), Arc::clone(&lock));
                cx.spawn(job(Footprint::one(0), move |cx| {
                    let mut value = cx.lock(&lock)?;
                    *value += 1;
                    noted.lock().unwrap().push((cx.position(), number, *value));
                    Ok(())
                }));
            }
            Ok(())
        });
        let (schedule, workers) = open(config(workers, 256));
        schedule.append(entry(1, 1, true, vec![storm]));
        schedule.close();
        run_on_threads(workers);
        order.lock().unwrap().clone()
    };
    let alone = run(1);
    assert_eq!(alone.len() as u64, STORM);
    assert!(alone.iter().zip(0..).all(|(one, number)| *one == (257 + number, number, number + 1)));
    assert_eq!(alone, run(3));
}

fn run_on_threads(workers: Vec<Worker<Job>>) {
    std::thread::scope(|scope| {
        for mut worker in workers {
            scope.spawn(move || {
                while let Some(turn) = worker.next_blocking() {
                    perform(turn);
                }
            });
        }
    });
}

#[test]
fn timers_fire_with_the_batch_that_reaches_them_by_deadline_then_by_id() {
    let fired = Arc::new(Mutex::new(Vec::new()));
    let sets = |deadlines: Vec<u64>| {
        let fired = Arc::clone(&fired);
        job(Footprint::new(), move |cx| {
            for &deadline in &deadlines {
                let fired = Arc::clone(&fired);
                cx.at(
                    deadline,
                    job(Footprint::new(), move |cx| {
                        fired.lock().unwrap().push((deadline, cx.now_us(), cx.origin()));
                        Ok(())
                    }),
                );
            }
            Ok(())
        })
    };
    run_alone(
        4,
        vec![
            entry(1, 100, true, vec![sets(vec![300, 200, 201]), sets(vec![200, 9_999])]),
            entry(2, 199, true, vec![]),
            entry(3, 201, true, vec![]),
            entry(4, 150, true, vec![]), // A clock that went back: time advances by one.
            entry(5, 400, true, vec![]),
        ],
    );
    let timer = |position, number| Origin::Timer { position, number };
    assert_eq!(
        *fired.lock().unwrap(),
        [(200, 201, timer(1, 1)), (200, 201, timer(2, 0)), (201, 201, timer(1, 2)), (300, 400, timer(1, 0))]
    );
}

/// With ordinary locks too: a session that expired before a request came is gone for it. The first deadline is told, so
/// that an idle node can order time forward.
#[test]
fn a_timer_runs_before_a_request_that_comes_after_it_is_due() {
    for mode in [LockRules::Sequential, LockRules::Locks] {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let notes = |name: &'static str| {
            let ran = Arc::clone(&ran);
            job(Footprint::new(), move |cx| {
                ran.lock().unwrap().push((name, cx.now_us()));
                Ok(())
            })
        };
        let timer = notes("timer");
        let sets = job(Footprint::new(), move |cx| {
            cx.at(200, timer.clone());
            Ok(())
        });
        let (schedule, mut workers) = open(Config { mode, ..config(1, 4) });
        assert_eq!(schedule.first_deadline_us(), u64::MAX);
        schedule.append(entry(1, 100, true, vec![sets, notes("first")]));
        schedule.append(entry(2, 300, true, vec![notes("second"), notes("third")]));
        let Step::Run(turn) = workers[0].next() else { panic!("a request is there") };
        perform(turn);
        let deadline_us = schedule.first_deadline_us();
        assert_eq!(deadline_us, if mode == LockRules::Locks { 200 } else { u64::MAX }, "{mode:?}");
        schedule.close();
        perform_all(&mut workers[0]);
        assert_eq!(
            *ran.lock().unwrap(),
            [("first", 100), ("timer", 300), ("second", 300), ("third", 300)],
            "{mode:?}"
        );
        assert_eq!(schedule.first_deadline_us(), u64::MAX);
    }
}

#[test]
fn a_panic_abandons_the_request_and_the_log_goes_on() {
    let locks = locks();
    let bumps = {
        let locks = Arc::clone(&locks);
        job(Footprint::one(0), move |cx| {
            *cx.lock(&locks[0])? += 1;
            Ok(())
        })
    };
    let panics = {
        let locks = Arc::clone(&locks);
        job(Footprint::one(0), move |cx| {
            let _guard = cx.lock(&locks[0])?;
            cx.spawn(nothing());
            std::panic::resume_unwind(Box::new("on purpose"))
        })
    };
    for workers in [1, 2, 3] {
        let (schedule, workers) = open(config(workers, 8));
        schedule.append(entry(
            1,
            1,
            true,
            vec![bumps.clone(), panics.clone(), bumps.clone(), panics.clone()],
        ));
        schedule.close();
        let ran = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for mut worker in workers {
                let ran = &ran;
                scope.spawn(move || {
                    while let Some(turn) = worker.next_blocking() {
                        ran.fetch_add(1, Ordering::Relaxed);
                        // The turn is dropped by the unwinding.
                        let _ = catch_unwind(AssertUnwindSafe(|| perform(turn)));
                    }
                });
            }
        });
        assert_eq!(ran.into_inner(), 4, "what a panicking request spawned does not run");
    }
    drop((bumps, panics));
    let mut locks = Arc::into_inner(locks).unwrap();
    assert_eq!(*locks[0].get_mut(), 6);
}

#[test]
fn readers_between_two_writers_overlap() {
    let lock = Arc::new(DetRwLock::bare(0, 0u64));
    let both_inside = Arc::new(Barrier::new(2));
    let writes = {
        let lock = Arc::clone(&lock);
        move || {
            let lock = Arc::clone(&lock);
            job(Footprint::one(0), move |cx| {
                *cx.write(&lock)? += 1;
                Ok(())
            })
        }
    };
    let reads = |other: u32| {
        let (lock, both_inside) = (Arc::clone(&lock), Arc::clone(&both_inside));
        let mut footprint = Footprint::new();
        footprint.read(0);
        footprint.write(other);
        job(footprint, move |cx| {
            let value = cx.read(&lock)?;
            both_inside.wait();
            assert_eq!(*value, 1);
            Ok(())
        })
    };
    // After two windows in which lock 0 is hot its requests go to all workers in rotation.
    let (schedule, workers) = open(config(2, 16));
    schedule.append(entry(
        1,
        1,
        false,
        (0..32)
            .map(|_| {
                let mut footprint = Footprint::new();
                footprint.read(0);
                job(footprint, |_| Ok(()))
            })
            .collect(),
    ));
    schedule.append(entry(2, 2, true, vec![writes(), reads(2), reads(4), writes()]));
    schedule.close();
    run_on_threads(workers);
    drop((schedule, writes, reads));
    let mut lock = Arc::into_inner(lock).unwrap();
    assert_eq!(*lock.get_mut(), 2);
}

#[test]
fn writing_what_was_forecast_for_reading_is_a_miss() {
    let lock = Arc::new(DetRwLock::bare(3, 0u64));
    let mut footprint = Footprint::new();
    footprint.read(3);
    let upgrades = job(footprint, move |cx| {
        let seen = *cx.read(&lock)?;
        *cx.write(&lock)? = seen + 1;
        Ok(())
    });
    let reported = run_alone(4, vec![entry(1, 1, true, vec![upgrades])]);
    assert_eq!(reported[1], (5, 1, false, Outcome::Done));
}

#[test]
fn a_second_guard_on_a_lock_panics_as_a_refcell_would() {
    let locks = locks();
    let twice = job(Footprint::one(0), move |cx| {
        let first = cx.lock(&locks[0])?;
        assert!(catch_unwind(AssertUnwindSafe(|| cx.lock(&locks[0]).is_ok())).is_err());
        drop(first);
        cx.lock(&locks[0]).map(|_| ())
    });
    assert_eq!(run_alone(4, vec![entry(1, 1, false, vec![twice])])[0].3, Outcome::Done);
}

#[test]
fn one_lock_cannot_serve_two_living_schedules() {
    let locks = locks();
    let take = {
        let locks = Arc::clone(&locks);
        move || {
            let locks = Arc::clone(&locks);
            job(Footprint::one(0), move |cx| cx.lock(&locks[0]).map(|_| ()))
        }
    };
    let (first, mut first_workers) = open(config(1, 4));
    first.append(entry(1, 1, false, vec![take()]));
    perform_all(&mut first_workers[0]);
    let (second, mut second_workers) = open(config(1, 4));
    second.append(entry(1, 1, false, vec![take(), take()]));
    let both = catch_unwind(AssertUnwindSafe(|| perform_all(&mut second_workers[0])));
    assert!(both.is_err());
    drop((first, first_workers));
    assert_eq!(perform_all(&mut second_workers[0]).len(), 1, "the first schedule has ended");
}

#[test]
fn a_footprint_function_that_panics_does_not_pass_a_turn_twice() {
    let lock = Arc::new(DetMutex::bare(0, 0u64));
    let bumps = {
        let lock = Arc::clone(&lock);
        move |spawns: bool| {
            let lock = Arc::clone(&lock);
            job(Footprint::one(0), move |cx| {
                *cx.lock(&lock)? += 1;
                if spawns {
                    cx.spawn(job(Footprint::all(), |_| Ok(())));
                }
                Ok(())
            })
        }
    };
    let (schedule, mut workers) = schedule::open(config(2, 4), |job: &Job, _: &mut Footprint| {
        assert!(!job.footprint.is_all(), "on purpose");
    });
    schedule.append(entry(1, 1, true, vec![bumps(false), bumps(true), bumps(false)]));
    schedule.close();
    let even = &mut workers[0];
    assert_eq!(even.next_blocking().map(perform).unwrap().0, 1);
    let panicked = catch_unwind(AssertUnwindSafe(|| even.next_blocking().map(perform)));
    assert!(panicked.is_err());
    assert_eq!(even.next_blocking().map(perform).unwrap().0, 3, "lock 0 is served to the third in line");
    drop((schedule, workers, bumps));
    assert_eq!(Arc::into_inner(lock).unwrap().into_inner(), 3);
}

#[test]
fn an_abort_ends_every_wait() {
    let locks = locks();
    let takes = |lock: u32| {
        let locks = Arc::clone(&locks);
        // Lock 0 or 1 comes first and decides on the worker; lock 9 is the one in common.
        job([lock, 9].into_iter().collect(), move |cx| cx.lock(&locks[9]).map(|_| ()))
    };
    let (schedule, workers) = open(config(2, 8));
    schedule.append(entry(1, 1, false, vec![takes(0), takes(1)]));
    let [mut even, mut odd] = <[Worker<Job>; 2]>::try_from(workers).ok().unwrap();
    let Step::Run(first) = even.next() else { panic!("position 1") };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| odd.next_blocking().map(perform)));
            assert!(ended.is_err(), "the wait unwinds");
            assert!(odd.next_blocking().is_none());
        });
        while schedule.progress(1).running == 0 {
            std::thread::yield_now();
        }
        schedule.abort();
        assert!(waiting.join().is_ok());
        first.finish(Outcome::Done);
    });
    assert!(even.next_blocking().is_none());
}

#[test]
fn a_dropped_worker_aborts_instead_of_leaving_the_others_waiting() {
    let (schedule, mut workers) = open(config(2, 4));
    schedule.append(entry(1, 1, false, (0..40).map(|_| nothing()).collect()));
    drop(workers.remove(0));
    assert!(schedule.is_aborted());
    assert!(workers[0].next_blocking().is_none());
}

#[test]
fn progress_tells_a_turn_that_does_not_end() {
    let (schedule, mut workers) = open(config(1, 4));
    schedule.append(entry(1, 1, false, vec![nothing(), nothing()]));
    assert_eq!(schedule.progress(0).running, 0);
    let Step::Run(turn) = workers[0].next() else { panic!("position 1") };
    let stuck = schedule.progress(0);
    assert_eq!((stuck.running, stuck.resolved), (1, 0));
    turn.finish(Outcome::Done);
    assert_eq!(
        (schedule.progress(0).running, schedule.progress(0).resolved, schedule.progress(0).watermark),
        (0, 1, 2)
    );
}

#[test]
fn waiting_for_a_condition_is_a_request_that_comes_later() {
    let queue: Arc<DetMutex<(u64, Waiters<Job>)>> = Arc::new(DetMutex::bare(0, (0, Waiters::new())));
    let served = Arc::new(Mutex::new(Vec::new()));
    let waits = |name: u64| {
        let (queue, served) = (Arc::clone(&queue), Arc::clone(&served));
        let goes_on = job(Footprint::one(0), {
            let queue = Arc::clone(&queue);
            move |cx| {
                cx.lock(&queue)?.0 -= 1;
                served.lock().unwrap().push(name);
                Ok(())
            }
        });
        job(Footprint::one(0), move |cx| {
            cx.lock(&queue)?.1.wait(goes_on.clone());
            Ok(())
        })
    };
    let signals = {
        let queue = Arc::clone(&queue);
        job(Footprint::one(0), move |cx| {
            let mut queue = cx.lock(&queue)?;
            queue.0 += 1;
            queue.1.notify_one(cx);
            Ok(())
        })
    };
    run_alone(4, vec![entry(1, 1, true, vec![waits(1), waits(2), signals.clone(), waits(3), signals])]);
    assert_eq!(*served.lock().unwrap(), [1, 2]);
}

#[test]
fn entries_are_freed_when_all_workers_have_passed_them() {
    let (schedule, mut workers) = open(config(2, 4));
    let entries: Vec<_> = (1..=500).map(|index| entry(index, index, false, vec![nothing()])).collect();
    entries.iter().for_each(|entry| schedule.append(Arc::clone(entry)));
    for _ in 0..500 {
        workers.iter_mut().for_each(|worker| {
            perform_all(worker);
        });
    }
    let held = entries.iter().filter(|entry| Arc::strong_count(entry) > 1).count();
    assert!(held <= 64, "{held} of 500 entries are still held");
}

#[test]
fn ordinary_locks_run_everything_too() {
    let locks = locks();
    let misses = {
        let locks = Arc::clone(&locks);
        job(Footprint::one(1), move |cx| {
            (0..8).try_for_each(|lock| cx.lock(&locks[lock]).map(|_| ()))?;
            *cx.lock(&locks[1])? += 1;
            cx.spawn(nothing());
            Ok(())
        })
    };
    let (schedule, workers) = open(Config { mode: LockRules::Locks, ..config(3, 4) });
    for index in 1..=50 {
        schedule.append(entry(index, index, true, vec![misses.clone(), misses.clone()]));
    }
    schedule.close();
    run_on_threads(workers);
    assert_eq!((0..3).map(|worker| schedule.progress(worker).resolved).sum::<u64>(), 100 * 4 + 100);
    drop((schedule, misses));
    let mut locks = Arc::into_inner(locks).unwrap();
    assert_eq!(*locks[1].get_mut(), 100);
}

/// What a request stores with its position is the same whether its footprint was right or too small.
#[test]
fn a_retry_keeps_its_position_with_ordinary_locks() {
    let locks = locks();
    let misses = job(Footprint::one(1), move |cx| {
        (0..3).try_for_each(|lock| cx.lock(&locks[lock]).map(|mut value| *value = cx.position()))
    });
    let (schedule, mut workers) = open(Config { mode: LockRules::Locks, ..config(1, 4) });
    schedule.append(entry(1, 1, true, vec![nothing(), misses, nothing()]));
    schedule.close();
    let reported = perform_all(&mut workers[0]);
    let attempts: Vec<_> = reported.iter().map(|one| (one.0, one.1)).collect();
    assert_eq!(attempts, [(1, 0), (2, 0), (2, 1), (2, 2), (3, 0)]);
}

#[test]
fn a_stream_keeps_its_order_with_ordinary_locks() {
    let ran = Arc::new(Mutex::new(vec![Vec::new(); 4]));
    let request = |stream: u64, number: u64| {
        let ran = Arc::clone(&ran);
        let job = job(Footprint::one(stream as u32), move |_| {
            ran.lock().unwrap()[stream as usize].push(number);
            Ok(())
        });
        BatchRow { footprint: job.footprint, request: job, stream: Some(stream) }
    };
    let (schedule, workers) = open(Config { mode: LockRules::Locks, ..config(3, 4) });
    for index in 1..=500 {
        let rows = (0..8).map(|place| request(place % 4, index * 8 + place)).collect();
        schedule.append(Arc::new(Entry { index, time_us: index, seed: index, drain: false, rows }));
    }
    schedule.close();
    run_on_threads(workers);
    for (stream, numbers) in ran.lock().unwrap().iter().enumerate() {
        assert_eq!(numbers.len(), 1_000, "stream {stream}");
        assert!(numbers.is_sorted(), "stream {stream} ran out of its order");
    }
}
