//! Each rule of predicted footprints alone (docs/determinism.md, section 8), one test per rule.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use schedule::{
    BatchRow, Config, Cx, DetMutex, DetRwLock, DispatcherState, Entry, Footprint, LockRules, Outcome,
    PREDICTED_KINDS, Retry, Schedule, Turn, Worker,
};

const LAG: u64 = 4;
const LOCKS: u32 = 64;
const KIND: u32 = 9;

/// A request of these tests is the handler itself.
#[derive(Clone)]
struct Job {
    footprint: Footprint,
    handler: Arc<Handler>,
}

type Handler = dyn Fn(&Cx<'_, Job>) -> Result<(), Retry> + Send + Sync;

/// One position: its number, attempt, whether it ran alone, its forecast (lock, reading only), and whether it was done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reported {
    position: u64,
    attempt: u32,
    alone: bool,
    forecast: Vec<(u32, bool)>,
    done: bool,
}

fn job(
    footprint: Footprint,
    handler: impl Fn(&Cx<'_, Job>) -> Result<(), Retry> + Send + Sync + 'static,
) -> Job {
    Job { footprint, handler: Arc::new(handler) }
}

/// The declared locks and a kind.
fn of_kind(kind: u32, declared: &[u32]) -> Footprint {
    let mut footprint: Footprint = declared.iter().copied().collect();
    footprint.predict(kind);
    footprint
}

struct Locks(Vec<DetMutex<u64>>);

impl Locks {
    fn new() -> Arc<Self> {
        Arc::new(Locks((0..LOCKS).map(|id| DetMutex::bare(id, 0)).collect()))
    }

    /// A request that takes these locks in this order.
    fn takes(self: &Arc<Self>, footprint: Footprint, locks: &[u32]) -> Job {
        let (all, locks) = (Arc::clone(self), locks.to_vec());
        job(footprint, move |cx| {
            locks.iter().try_for_each(|&lock| cx.lock(&all.0[lock as usize]).map(|mut value| *value += 1))
        })
    }

    /// A request that is done in its first attempt, because it runs alone, and has these locks as its lesson.
    fn teaches(self: &Arc<Self>, kind: u32, locks: &[u32]) -> Job {
        let mut footprint = Footprint::all();
        footprint.predict(kind);
        self.takes(footprint, locks)
    }
}

fn nothing() -> Job {
    job(Footprint::new(), |_| Ok(()))
}

fn entry(index: u64, drain: bool, jobs: Vec<Job>) -> Arc<Entry<Job>> {
    let row = |job: Job| BatchRow { footprint: job.footprint, request: job, stream: None };
    let rows = jobs.into_iter().map(row).collect();
    Arc::new(Entry { index, time_us: index, seed: index, drain, rows })
}

fn open_from(
    mode: LockRules,
    workers: usize,
    state: DispatcherState<Job>,
) -> (Schedule<Job>, Vec<Worker<Job>>) {
    let config = Config { mode, lag: LAG, spins: 20, ..Config::new(workers, LOCKS) };
    schedule::resume(config, |job: &Job, footprint: &mut Footprint| *footprint = job.footprint, state)
}

/// Runs the request; a panic abandons it.
fn perform(turn: Turn<'_, Job>) -> Reported {
    let handler = Arc::clone(&turn.request().handler);
    let outcome = match catch_unwind(AssertUnwindSafe(|| handler(&turn.cx()))) {
        Ok(Ok(())) => Outcome::Done,
        Ok(Err(retry)) => Outcome::Mispredicted(retry),
        Err(_) => Outcome::Abandoned,
    };
    let reported = Reported {
        position: turn.position(),
        attempt: turn.attempt(),
        alone: turn.is_exclusive(),
        forecast: turn.footprint().iter().collect(),
        done: outcome == Outcome::Done,
    };
    turn.finish(outcome);
    reported
}

/// Runs a whole log; returns its positions in their order.
fn run_from(
    mode: LockRules,
    workers: usize,
    state: DispatcherState<Job>,
    log: &[Arc<Entry<Job>>],
    perform: impl Fn(Turn<'_, Job>) -> Reported + Sync,
) -> Vec<Reported> {
    let (schedule, workers) = open_from(mode, workers, state);
    log.iter().for_each(|entry| schedule.append(Arc::clone(entry)));
    schedule.close();
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for mut worker in workers {
            let (all, perform) = (&all, &perform);
            scope.spawn(move || {
                while let Some(turn) = worker.next_blocking() {
                    let reported = perform(turn);
                    all.lock().unwrap().push(reported);
                }
            });
        }
    });
    let mut all = all.into_inner().unwrap();
    all.sort();
    all
}

/// Runs batches, each drained, under every deterministic scheduler; all must give the same result.
fn run(batches: impl Fn() -> Vec<Vec<Job>>) -> Vec<Reported> {
    let under = |mode, workers| {
        let log: Vec<_> = (1..).zip(batches()).map(|(index, jobs)| entry(index, true, jobs)).collect();
        run_from(mode, workers, DispatcherState::genesis(), &log, perform)
    };
    let reported = under(LockRules::Sequential, 1);
    for workers in 1..=3 {
        assert_eq!(under(LockRules::Turns, workers), reported, "{workers} workers");
    }
    reported
}

fn forecasts(reported: &[Reported]) -> Vec<Vec<u32>> {
    reported.iter().map(|one| one.forecast.iter().map(|&(lock, _)| lock).collect()).collect()
}

/// Attempts of each request that was done, in the order in which they were done.
fn attempts(reported: &[Reported]) -> Vec<u32> {
    reported.iter().filter(|one| one.done).map(|one| one.attempt).collect()
}

/// Another kind with the place of `kind` among [`PREDICTED_KINDS`].
fn rival(kind: u32) -> u32 {
    let place = |kind: u32| kind.wrapping_mul(0x9e37_79b9) >> (32 - PREDICTED_KINDS.ilog2());
    (kind + 1..).find(|&other| place(other) == place(kind)).unwrap()
}

#[test]
fn the_first_run_misses_and_a_later_one_does_not() {
    let locks = Locks::new();
    let reported = run(|| {
        let takes = locks.takes(of_kind(KIND, &[]), &[5, 6]);
        vec![vec![takes.clone()], vec![takes]]
    });
    assert_eq!(forecasts(&reported), [vec![], vec![5], vec![5, 6], vec![5, 6]]);
    assert_eq!(reported.iter().map(|one| one.position).collect::<Vec<_>>(), [1, 5, 9, 14]);
    assert_eq!(attempts(&reported), [2, 0]);
}

#[test]
fn what_is_learned_counts_exactly_lag_positions_later() {
    let locks = Locks::new();
    let reported = run(|| {
        let mut batch = vec![locks.teaches(KIND, &[7])];
        // These take no lock, so their lesson is empty.
        batch.extend((0..2 * LAG).map(|_| job(of_kind(KIND, &[]), |_| Ok(()))));
        vec![batch]
    });
    let known: Vec<u64> =
        reported.iter().filter(|one| one.forecast == [(7, false)]).map(|one| one.position).collect();
    assert_eq!(known, [1 + LAG], "not before, and after that the lesson of position 2 counts");
}

/// A replica that abandons a request which others finish has another forecast, until a request makes all forget.
#[test]
fn what_all_have_forgotten_is_the_same_where_one_has_learned_something_else() {
    let forgets_at = |forgets: Option<u64>| {
        move |mut turn: Turn<'_, Job>| {
            if Some(turn.position()) == forgets {
                turn.forget_lessons();
            }
            perform(turn)
        }
    };
    let forecasts_of = |taught: &[u32], workers, forgets| {
        let locks = Locks::new();
        let mut batch = vec![locks.teaches(KIND, taught), nothing(), nothing()];
        batch.extend((0..2 * LAG).map(|_| job(of_kind(KIND, &[9]), |_| Ok(()))));
        // Those teach nothing: they do not succeed.
        batch.iter_mut().skip(3).for_each(|job| job.handler = Arc::new(|_| panic!("abandoned")));
        let log = [entry(1, true, batch)];
        let genesis = DispatcherState::genesis();
        let perform = forgets_at(forgets);
        forecasts(&run_from(LockRules::Turns, workers, genesis, &log, perform))
    };
    for workers in 1..=3 {
        let of = |taught: &[u32], forgets| forecasts_of(taught, workers, forgets);
        assert_ne!(of(&[7], None)[10], of(&[8], None)[10], "{workers} workers");
        let (one, other) = (of(&[7], Some(2)), of(&[8], Some(2)));
        assert_ne!(one[4], other[4], "position 5, before what is forgotten at position 2 takes effect");
        assert_eq!(one[5..], other[5..], "{workers} workers");
        assert_eq!(one[5..], vec![vec![9]; 6], "{workers} workers");
    }
}

#[test]
fn the_latest_of_two_lessons_counts_from_its_own_position_on() {
    let locks = Locks::new();
    let reported = run(|| {
        let mut batch = vec![locks.teaches(KIND, &[7]), nothing(), locks.teaches(KIND, &[8]), nothing()];
        batch.extend((0..LAG).map(|_| locks.takes(of_kind(KIND, &[]), &[])));
        vec![batch]
    });
    assert_eq!(forecasts(&reported)[4..], [vec![7], vec![7], vec![8], vec![8]]);
}

#[test]
fn a_wrong_forecast_is_corrected() {
    let locks = Locks::new();
    let reported = run(|| {
        let second = locks.takes(of_kind(KIND, &[]), &[2]);
        vec![vec![locks.teaches(KIND, &[1])], vec![second.clone()], vec![second]]
    });
    assert_eq!(forecasts(&reported)[1..], [vec![1], vec![1, 2], vec![2]]);
    assert_eq!(attempts(&reported), [0, 1, 0]);
}

#[test]
fn the_declared_part_is_always_there_and_is_not_taught() {
    let locks = Locks::new();
    let reported = run(|| {
        let takes = |own| locks.takes(of_kind(KIND, &[own]), &[own, 30]);
        vec![vec![takes(10)], vec![takes(11)], vec![locks.takes(of_kind(KIND, &[12]), &[])]]
    });
    assert_eq!(forecasts(&reported), [vec![10], vec![10, 30], vec![11, 30], vec![12, 30]]);
    let other = run(|| vec![vec![locks.teaches(KIND, &[30])], vec![locks.takes(of_kind(3, &[11]), &[11])]]);
    assert_eq!(forecasts(&other)[1], [11], "another kind knows nothing of it");
}

#[test]
fn reading_is_learned_as_reading_and_writing_as_writing() {
    let lock = Arc::new(DetRwLock::bare(3, 0u64));
    let reported = run(|| {
        let reads = {
            let lock = Arc::clone(&lock);
            job(of_kind(KIND, &[]), move |cx| cx.read(&lock).map(|_| ()))
        };
        let both = {
            let lock = Arc::clone(&lock);
            job(of_kind(KIND, &[]), move |cx| {
                let seen = *cx.read(&lock)?;
                *cx.write(&lock)? = seen + 1;
                Ok(())
            })
        };
        vec![
            vec![reads.clone()],
            vec![reads.clone()],
            vec![both.clone()],
            vec![both],
            vec![reads.clone()],
            vec![reads],
        ]
    });
    let forecasts: Vec<_> = reported.into_iter().map(|one| one.forecast).collect();
    let (none, read, write) = (vec![], vec![(3, true)], vec![(3, false)]);
    assert_eq!(
        forecasts,
        [&none, &read, &read, &read, &write, &write, &write, &read].map(Clone::clone),
        "nothing and its retry, reading, a miss of writing and its retry, writing, reading as if for writing, reading"
    );
}

#[test]
fn more_locks_than_fit_are_learned_as_all_of_them_until_there_are_fewer() {
    let locks = Locks::new();
    let many: Vec<u32> = (0..17).collect();
    let reported = run(|| {
        let takes = |taken: &[u32]| vec![locks.takes(of_kind(KIND, &[]), taken)];
        vec![takes(&many), takes(&many), takes(&many[..3]), takes(&many[..3])]
    });
    let done: Vec<_> = reported.iter().filter(|one| one.done).map(|one| (one.attempt, one.alone)).collect();
    assert_eq!(done, [(3, true), (0, true), (0, true), (0, false)]);
    assert_eq!(*forecasts(&reported).last().unwrap(), [0, 1, 2]);
}

#[test]
fn a_kind_that_lost_its_place_begins_anew() {
    let locks = Locks::new();
    let reported = run(|| {
        let asks = |kind, lock| vec![locks.takes(of_kind(kind, &[]), &[lock])];
        vec![asks(KIND, 1), asks(rival(KIND), 2), asks(rival(KIND), 2), asks(KIND, 1), asks(KIND, 1)]
    });
    assert_eq!(attempts(&reported), [1, 1, 0, 1, 0]);
}

#[test]
fn what_was_abandoned_or_missed_teaches_nothing() {
    let locks = Locks::new();
    let reported = run(|| {
        let panics = {
            let locks = Arc::clone(&locks);
            job(of_kind(KIND, &[4]), move |cx| {
                let _guard = cx.lock(&locks.0[4])?;
                cx.lock(&locks.0[5])?;
                std::panic::resume_unwind(Box::new("on purpose"))
            })
        };
        vec![vec![locks.teaches(KIND, &[1])], vec![panics], vec![locks.takes(of_kind(KIND, &[]), &[])]]
    });
    assert_eq!(forecasts(&reported)[1..], [vec![1, 4], vec![1, 4, 5], vec![1]]);
}

#[test]
fn what_a_request_released_early_it_took_and_what_it_only_waited_for_it_did_not() {
    let locks = Locks::new();
    let reported = run(|| {
        let releases = {
            let locks: Arc<Vec<DetMutex<Shelf>>> =
                Arc::new((20..23).map(|id| DetMutex::new(id, object::genesis(id, Shelf::new))).collect());
            let mut footprint = Footprint::all();
            footprint.predict(KIND);
            job(footprint, move |cx| {
                drop(cx.lock(&locks[0])?);
                cx.release_early(&locks[0]);
                cx.release_early(&locks[1]);
                Ok(())
            })
        };
        vec![vec![releases], vec![locks.takes(of_kind(KIND, &[]), &[20])]]
    });
    assert_eq!(forecasts(&reported)[1], [20]);
}

/// A region: only regions can be released early.
#[object::critical]
struct Shelf {
    books: u64,
}

#[object::critical]
impl Shelf {
    fn new() -> Self {
        Self { books: 0 }
    }
}

#[test]
fn a_request_that_is_run_twice_teaches_what_its_last_run_took() {
    let locks = Locks::new();
    let first = Mutex::new(true);
    let log = [
        entry(1, true, vec![locks.teaches(KIND, &[1, 2])]),
        entry(2, true, vec![locks.takes(of_kind(KIND, &[]), &[2])]),
        entry(3, true, vec![locks.takes(of_kind(KIND, &[]), &[])]),
    ];
    let reported = run_from(LockRules::Turns, 1, DispatcherState::genesis(), &log, |mut turn| {
        if turn.entry_index() == 2 && std::mem::take(&mut *first.lock().unwrap()) {
            turn.repeat(false);
            assert!(turn.cx().lock(&locks.0[1]).is_ok());
            turn.repeat(true);
        }
        perform(turn)
    });
    assert_eq!(forecasts(&reported)[2], [2]);
}

#[test]
fn what_a_request_starts_is_predicted_too() {
    let locks = Locks::new();
    let reported = run(|| {
        let started = locks.takes(of_kind(KIND, &[]), &[8]);
        let starts = job(Footprint::new(), move |cx| {
            cx.spawn(started.clone());
            cx.at(3, started.clone());
            Ok(())
        });
        vec![vec![starts], vec![], vec![]]
    });
    assert_eq!(attempts(&reported), [0, 1, 0], "the spawned one has taught the timer");
}

#[test]
fn ordinary_locks_learn_at_once() {
    let locks = Locks::new();
    let batch = (0..3).map(|_| locks.takes(of_kind(KIND, &[2]), &[2, 3])).collect();
    let reported =
        run_from(LockRules::Locks, 1, DispatcherState::genesis(), &[entry(1, false, batch)], perform);
    // The first one's retry keeps its position.
    assert_eq!(attempts(&reported), [1, 0, 0]);
    assert_eq!(forecasts(&reported), [vec![2], vec![2, 3], vec![2, 3], vec![2, 3]]);
}

#[test]
fn lessons_retries_and_what_is_known_survive_a_state_transfer() {
    let locks = Locks::new();
    let jobs = || {
        let asks = |kind, lock: u32| locks.takes(of_kind(kind, &[40 + lock]), &[40 + lock, lock]);
        vec![
            locks.teaches(1, &[1]),
            nothing(),
            locks.teaches(2, &[2]), // Known long before the checkpoint.
            nothing(),
            nothing(),
            asks(3, 3),             // Misses and is under way as a retry.
            locks.teaches(4, &[4]), // Under way as a lesson.
            job(Footprint::all(), |_| Ok(())),
            nothing(),
            asks(1, 1),
            asks(2, 2),
            asks(4, 4),
            asks(3, 3),
        ]
    };
    let cut = Mutex::new(Vec::new());
    let log = [entry(1, true, jobs()), entry(2, true, vec![jobs()[12].clone()])];
    let whole = run_from(LockRules::Turns, 2, DispatcherState::genesis(), &log, |turn| {
        if turn.position() == 8 {
            let state = turn.dispatcher_state().unwrap();
            assert_eq!(state.kinds(), 2);
            // Retries of the one request that is under way are its only ones.
            state.encode(&mut cut.lock().unwrap(), |_, out| out.push(5));
        }
        perform(turn)
    });
    assert_eq!(attempts(&whole).last(), Some(&0), "kind 3 is known in the end");
    let state = cut.into_inner().unwrap();
    for workers in 1..=3 {
        let state = DispatcherState::decode(&state, |name| Some(jobs()[name[0] as usize].clone())).unwrap();
        let rest = run_from(LockRules::Turns, workers, state, &log, perform);
        assert_eq!(whole[8..], rest, "{workers} workers");
    }
}
