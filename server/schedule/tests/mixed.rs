//! Mixed batches: the order inside of a parallel batch is left to chance, and no effect shows it unless a plan has
//! overlooked a conflict.

use std::sync::{Arc, Mutex};

use schedule::{
    BatchRow, Config, Cx, DetMutex, Entry, Footprint, Keys, LockRules, Mixed, Mixer, Outcome,
    ParallelBatches, Retry, Schedule, SplitMix64, Step, Turn, Worker,
};

use crate::support::program::Program;
use crate::support::{Log, Names, Ran, Request, random_log, run_from, run_with};

const PROGRAMS_PER_LOG: u64 = 140;

fn config(workers: usize, locks: u32) -> Config {
    Config { mode: LockRules::Mixed, spins: 20, ..Config::new(workers, locks) }
}

/// The plan of an entry, by keys that a program has.
fn plan(entry: &Entry<Request>, keys_of: &dyn Fn(&Program, &mut Keys)) -> ParallelBatches {
    let keys: Vec<Keys> = entry
        .rows
        .iter()
        .map(|row| {
            let mut keys = Keys::new();
            keys_of(&row.request, &mut keys);
            keys
        })
        .collect();
    let mixed: Vec<Mixed<'_>> = keys.iter().map(|keys| Mixed { keys, stream: None }).collect();
    Mixer::new().mix(&mixed)
}

/// Every lock that the program may take.
fn complete(program: &Program, keys: &mut Keys) {
    match program.may_take() {
        _ if program.ops.is_empty() => keys.alone(),
        None => keys.alone(),
        Some(locks) => {
            locks.iter().for_each(|lock| keys.write(u64::from(*lock)));
            keys.of_footprint(&without_kind(&program.footprint));
        }
    }
}

fn without_kind(footprint: &Footprint) -> Footprint {
    if footprint.is_all() { Footprint::all() } else { footprint.iter().map(|(lock, _)| lock).collect() }
}

fn run(log: &Log, workers: usize, locks: u32, chance: u64, keys_of: &dyn Fn(&Program, &mut Keys)) -> Ran {
    run_with(log, config(workers, locks), chance, (&Names::default(), None), &mut |schedule, entry| {
        let plan = plan(&entry, keys_of);
        schedule.append_mixed(entry, plan);
    })
}

/// What replicas must agree on: how many attempts a forecast needs is each replica's own.
fn agreed(ran: &Ran) -> impl PartialEq + std::fmt::Debug {
    let records = ran.summary.records.iter();
    let records: Vec<_> = records
        .map(|(position, record)| (*position, record.origin, record.entry, record.now, record.end))
        .collect();
    (ran.summary.values.clone(), records, ran.randoms.clone())
}

#[test]
fn any_number_of_workers_has_the_effects_of_one_at_a_time() {
    let (mut again, mut alone) = (0, 0);
    for seed in 0..120 {
        let mut rng = SplitMix64::new(seed);
        let locks = [3, 6, 16, 64][rng.below(4) as usize];
        let log = random_log(&mut rng, PROGRAMS_PER_LOG, locks);
        let alike = |entry: &Entry<Request>| plan(entry, &complete).sequential();
        let one = config(1, locks);
        let expected = run_with(&log, one, seed, (&Names::default(), None), &mut |schedule, entry| {
            let plan = alike(&entry);
            schedule.append_mixed(entry, plan);
        });
        for workers in [1, 2, 3, 4] {
            let ran = run(&log, workers, locks, rng.next_u64(), &complete);
            assert_eq!(agreed(&expected), agreed(&ran), "seed {seed}, {workers} workers");
            again += ran.summary.records.values().filter(|record| record.attempt > 0).count();
            alone += ran.summary.records.values().filter(|record| record.alone).count();
        }
    }
    assert!(again > 0 && alone > 0, "the logs do not reach what they are for");
}

#[test]
fn negative_control_overlooked_conflicts_diverge() {
    let (mut diverged, logs) = (0, 12);
    for seed in 0..logs {
        let mut rng = SplitMix64::new(1_000 + seed);
        let log = random_log(&mut rng, PROGRAMS_PER_LOG, 6);
        let none = |program: &Program, keys: &mut Keys| {
            if program.ops.is_empty() {
                keys.alone();
            }
        };
        let runs: Vec<Vec<u64>> =
            (0..4).map(|_| run(&log, 4, 6, rng.next_u64(), &none).summary.values).collect();
        diverged += u64::from(runs.iter().any(|values| *values != runs[0]));
    }
    assert!(diverged >= logs / 2, "only {diverged} of {logs}: nothing would notice a wrong plan");
}

#[test]
fn a_checkpoint_continues_as_the_original_does() {
    for seed in 0..40 {
        let mut rng = SplitMix64::new(seed);
        let locks = [3, 16][rng.below(2) as usize];
        // A checkpoint is the last request of its batch, as the pipeline orders it.
        let log: Log = random_log(&mut rng, PROGRAMS_PER_LOG, locks)
            .into_iter()
            .filter(|entry| !entry.rows.is_empty())
            .map(|entry| {
                let is_cut = |row: &&BatchRow<Request>| row.request.ops.is_empty();
                let copy = |row: &BatchRow<Request>| BatchRow {
                    request: Arc::clone(&row.request),
                    footprint: row.footprint,
                    stream: None,
                };
                let (cuts, others): (Vec<_>, Vec<_>) = entry.rows.iter().partition(is_cut);
                let rows = others.into_iter().chain(cuts.into_iter().take(1)).map(copy).collect();
                Arc::new(Entry {
                    index: entry.index,
                    time_us: entry.time_us,
                    seed: entry.seed,
                    drain: entry.drain,
                    rows,
                })
            })
            .collect();
        let names = Names::default();
        let from = |cut| run_from(&log, config(1, locks), seed, &names, cut);
        let whole = from(None);
        for cut in &whole.cuts {
            let rest: Log = {
                let entry = whole.summary.records[&cut.position].entry;
                log.iter().filter(|one| one.index > entry).cloned().collect()
            };
            let resumed = run_from(&rest, config(1, locks), seed, &names, Some(cut));
            assert_eq!(whole.summary.values, resumed.summary.values, "seed {seed} from {}", cut.position);
            for (position, record) in &resumed.summary.records {
                assert_eq!(whole.summary.records[position].end, record.end, "seed {seed}, {position}");
            }
        }
    }
}

/// What a request of the tests below does.
type Act = Arc<dyn Fn(&Cx<'_, Job>) -> Result<(), Retry> + Send + Sync>;

#[derive(Clone)]
struct Job(Act, Footprint);

fn job(footprint: Footprint, act: impl Fn(&Cx<'_, Job>) -> Result<(), Retry> + Send + Sync + 'static) -> Job {
    Job(Arc::new(act), footprint)
}

fn open(workers: usize) -> (Schedule<Job>, Vec<Worker<Job>>) {
    schedule::open(config(workers, 4), |job: &Job, footprint| *footprint = job.1)
}

fn entry(index: u64, jobs: Vec<Job>) -> Arc<Entry<Job>> {
    let rows =
        jobs.into_iter().map(|job| BatchRow { footprint: job.1, request: job, stream: None }).collect();
    Arc::new(Entry { index, time_us: index * 10, seed: index, drain: false, rows })
}

fn perform(turn: Turn<'_, Job>) -> (u64, Outcome, Option<schedule::EntryEnd>) {
    let outcome = match (turn.request().0)(&turn.cx()) {
        Ok(()) => Outcome::Done,
        Err(retry) => Outcome::Mispredicted(retry),
    };
    let position = turn.position();
    (position, outcome, turn.finish(outcome))
}

/// Runs what there is; returns positions, and the ends of entries.
fn run_out(worker: &mut Worker<Job>) -> (Vec<u64>, Vec<schedule::EntryEnd>) {
    let (mut positions, mut ends) = (Vec::new(), Vec::new());
    while let Step::Run(turn) = worker.next() {
        let (position, _, ended) = perform(turn);
        positions.push(position);
        ends.extend(ended);
    }
    (positions, ends)
}

#[test]
fn a_retry_keeps_its_position_and_runs_next() {
    let lock = Arc::new(DetMutex::bare(1, 0u64));
    let (schedule, mut workers) = open(1);
    let miss = {
        let lock = Arc::clone(&lock);
        job(Footprint::one(0), move |cx| {
            *cx.lock(&lock)? += cx.position();
            Ok(())
        })
    };
    schedule.append(entry(1, vec![miss, job(Footprint::one(2), |_| Ok(()))]));
    let (positions, ends) = run_out(&mut workers[0]);
    assert_eq!(positions, [1, 1, 2]);
    assert_eq!(ends.iter().map(|ended| ended.index).collect::<Vec<_>>(), [1]);
    drop((schedule, workers));
    assert_eq!(Arc::into_inner(lock).expect("one owner").into_inner(), 1);
}

#[test]
fn parallel_batches_wait_for_each_other_and_a_boundary_for_the_batch() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let tell = |what: &'static str| {
        let reported = Arc::clone(&reported);
        job(Footprint::new(), move |_| {
            reported.lock().unwrap().push(what);
            Ok(())
        })
    };
    let (schedule, mut workers) = open(2);
    let plan = ParallelBatches { order: vec![0, 2, 1], ends: vec![2, 3] };
    schedule.append_mixed(entry(1, vec![tell("a"), tell("b"), tell("c")]), plan);
    schedule.append(entry(2, vec![tell("d")]));
    let [first, second] = &mut workers[..] else { unreachable!("two workers") };
    let Step::Run(a) = first.next() else { panic!("a runs") };
    schedule.between_batches(tell("boundary"));
    let Step::Run(c) = second.next() else { panic!("c runs beside a") };
    perform(c);
    assert!(matches!(second.next(), Step::Idle), "b waits for a");
    perform(a);
    let Step::Run(b) = second.next() else { panic!("the boundary waits for the batch, and b is in it") };
    assert!(matches!(first.next(), Step::Idle), "nothing runs beside b");
    let ended = perform(b).2.expect("b is the last one");
    assert_eq!(ended.index, 1);
    let Step::Run(boundary) = first.next() else { panic!("the boundary") };
    assert!(boundary.is_exclusive());
    let state = boundary.dispatcher_state().expect("a boundary has the state alone");
    assert_eq!((state.entry_index(), state.digest()), (2, ended.schedule), "the state after batch 1");
    assert_eq!((boundary.entry_index(), boundary.position()), (1, 4), "it sees all of batch 1");
    assert!(matches!(second.next(), Step::Idle), "d waits for the boundary");
    perform(boundary);
    run_out(second);
    assert_eq!(*reported.lock().unwrap(), ["c", "a", "b", "boundary", "d"]);
}

#[test]
fn rolling_back_drops_what_runs_and_gives_positions_time_and_started_requests_again() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let tell = |what: &'static str, starts: bool| {
        let reported = Arc::clone(&reported);
        job(Footprint::new(), move |cx| {
            reported.lock().unwrap().push((what, cx.position(), cx.now_us()));
            if starts {
                let reported = Arc::clone(&reported);
                let started = move |cx: &Cx<'_, Job>| {
                    reported.lock().unwrap().push(("started", cx.position(), cx.now_us()));
                    Ok(())
                };
                cx.spawn(job(Footprint::new(), started.clone()));
                cx.at(cx.now_us() + 10, job(Footprint::new(), started));
            }
            Ok(())
        })
    };
    let (schedule, mut workers) = open(2);
    schedule.append(entry(1, vec![tell("first", true)]));
    let (_, first_end) = run_out(&mut workers[0]);
    let mut second_ends = Vec::new();
    for _ in 0..2 {
        schedule.append(entry(2, vec![tell("second", true)]));
        second_ends.extend(run_out(&mut workers[0]).1);
        schedule.append(entry(3, vec![tell("third", false), tell("fourth", false)]));
        let [one, other] = &mut workers[..] else { unreachable!("two workers") };
        let Step::Run(spawned) = one.next() else { panic!("the third entry has begun") };
        schedule.roll_back(1, tell("boundary", false));
        assert!(matches!(other.next(), Step::Idle), "the boundary waits for what runs");
        perform(spawned);
        let Step::Run(boundary) = other.next() else { panic!("the boundary is next") };
        assert!(matches!(one.next(), Step::Idle));
        perform(boundary);
        assert!(
            matches!((one.next(), other.next()), (Step::Idle, Step::Idle)),
            "all later entries are dropped"
        );
    }
    assert_eq!(first_end[0].index, 1);
    let states = [second_ends[0], second_ends[1]].map(|ended| (ended.index, ended.schedule));
    assert_eq!(states[0], states[1], "the same state of the schedule both times");
    assert_eq!([second_ends[0].number, second_ends[1].number], [1, 3], "of two entries");
    let reported = std::mem::take(&mut *reported.lock().unwrap());
    assert_eq!(reported[0], ("first", 1, 10));
    let rounds: Vec<_> = reported[1..].chunks(5).collect();
    assert_eq!(rounds[0], rounds[1]);
    let expected =
        [("started", 2, 20), ("started", 3, 20), ("second", 4, 20), ("started", 5, 30), ("boundary", 2, 10)];
    assert_eq!(rounds[0], expected, "spawned, then the timer that is due, then the batch");
}

#[test]
fn what_was_forgotten_cannot_be_gone_back_to() {
    let nothing = || job(Footprint::new(), |_| Ok(()));
    let (schedule, mut workers) = open(1);
    for index in 1..4 {
        schedule.append(entry(index, vec![nothing()]));
    }
    run_out(&mut workers[0]);
    schedule.forget(2);
    schedule.roll_back(2, nothing());
    assert_eq!(run_out(&mut workers[0]).0.len(), 1, "the boundary alone");
    schedule.roll_back(1, nothing());
    assert!(matches!(workers[0].next(), Step::Closed));
    assert!(schedule.is_corrupted());
}

/// A replica takes the state of another one in place: batches that it has appended do not run, and the next one gets
/// the position, the time and the started requests that it gets there.
#[test]
fn a_state_from_elsewhere_takes_the_place_of_what_was_appended() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let tell = |what: &'static str| {
        let reported = Arc::clone(&reported);
        job(Footprint::new(), move |cx| {
            reported.lock().unwrap().push((what, cx.position(), cx.now_us()));
            Ok(())
        })
    };
    let starts = {
        let started = tell("started");
        job(Footprint::new(), move |cx| {
            cx.spawn(Job(Arc::clone(&started.0), Footprint::new()));
            Ok(())
        })
    };
    let (donor, mut of_donor) = open(1);
    donor.append(entry(1, vec![tell("one")]));
    donor.append(entry(2, vec![starts, job(Footprint::all(), |_| Ok(()))]));
    let mut state = None;
    while let Step::Run(mut turn) = of_donor[0].next() {
        turn.take_all();
        state = turn.dispatcher_state().filter(|_| turn.position() == 3).or(state);
        perform(turn);
    }
    let state = state.expect("the last request of the second entry is alone");
    let (schedule, mut workers) = open(1);
    schedule.append(entry(1, vec![tell("wrong")]));
    run_out(&mut workers[0]);
    schedule.append(entry(2, vec![tell("dropped")]));
    schedule.continue_at(&state, tell("boundary"));
    assert!(run_out(&mut workers[0]).1.is_empty(), "the boundary alone");
    donor.append(entry(3, vec![tell("three")]));
    schedule.append(entry(3, vec![tell("three")]));
    let ends = [run_out(&mut of_donor[0]).1[0], run_out(&mut workers[0]).1[0]];
    assert_eq!((ends[0].index, ends[0].schedule), (ends[1].index, ends[1].schedule));
    let reported = reported.lock().unwrap();
    let after = [("started", 4, 30), ("three", 5, 30)];
    assert_eq!(
        reported[..],
        [[("one", 1, 10), ("wrong", 1, 10), ("boundary", 4, 20)].as_slice(), &after, &after].concat()
    );
}

#[test]
fn a_release_is_no_release_here() {
    let lock = Arc::new(DetMutex::new(0, object::genesis(0, || crate::support::Cell::new(0, 0, 0))));
    let (schedule, mut workers) = open(2);
    let releases = {
        let lock = Arc::clone(&lock);
        job(Footprint::one(0), move |cx| {
            drop(cx.lock(&lock)?);
            cx.release_early(&*lock);
            drop(cx.lock(&lock)?);
            Ok(())
        })
    };
    schedule.append(entry(1, vec![releases]));
    let (positions, _) = run_out(&mut workers[0]);
    assert_eq!(positions, [1]);
}

#[test]
fn a_boundary_shows_one_region_of_those_that_it_holds() {
    let cell = |region_id| {
        DetMutex::new(region_id, object::genesis(region_id, || crate::support::Cell::new(0, 0, 0)))
    };
    let cells = [cell(0), cell(1), cell(2), cell(3)];
    let locks: Vec<&dyn schedule::Lock> = cells.iter().map(|cell| cell as &dyn schedule::Lock).collect();
    let (schedule, mut workers) = open(1);
    schedule.between_batches(job(Footprint::new(), |_| Ok(())));
    let Step::Run(mut boundary) = workers[0].next() else { panic!("the boundary") };
    let shown = |turn: &mut Turn<'_, Job>, lock| {
        let mut shown = Vec::new();
        turn.visit_region(&locks, lock, |access| {
            if let schedule::Access::Exclusive(region) = access {
                shown.push(region.root());
            }
        });
        shown
    };
    assert_eq!(shown(&mut boundary, 1), []);
    boundary.take_all();
    let mut all = Vec::new();
    boundary.visit_regions(&locks, |_, access| {
        if let schedule::Access::Exclusive(region) = access {
            all.push(region.root());
        }
    });
    let one_by_one: Vec<_> = (0..4).flat_map(|lock| shown(&mut boundary, lock)).collect();
    assert_eq!(one_by_one, all);
    assert_eq!(shown(&mut boundary, 4), []);
    boundary.finish(Outcome::Done);
}
