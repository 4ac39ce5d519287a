//! A replica that starts from another one's state continues as if it had run from the beginning
//! (docs/determinism.md, section 10).

use crate::support::{Names, oracle, random_log, run_from};
use schedule::{Config, LockRules, SplitMix64};

#[test]
fn resuming_from_any_checkpoint_gives_the_same_future() {
    let (mut resumed, mut kinds) = (0, 0);
    for seed in 0..60 {
        let mut rng = SplitMix64::new(5_000 + seed);
        let locks = [3, 16][rng.below(2) as usize];
        let lag = [1, 8, 32][rng.below(3) as usize];
        let log = random_log(&mut rng, 100, locks);
        let expected = oracle::run(&log, locks, lag);
        let config = |workers| Config { mode: LockRules::Turns, workers, lag, locks, spins: 30 };
        let names = Names::default();
        let alone = run_from(&log, config(1), 1, &names, None);
        let mut origin = run_from(&log, config(3), rng.next_u64(), &names, None);
        origin.cuts.sort_by_key(|cut| cut.position);
        assert_eq!(origin.cuts.len(), alone.cuts.len());
        for (cut, same) in origin.cuts.iter().zip(&alone.cuts) {
            assert_eq!(cut.position, same.position, "seed {seed}");
            assert_eq!(
                cut.state, same.state,
                "the state depends on the workers: seed {seed}, {}",
                cut.position
            );
            assert_eq!(cut.cells, same.cells, "seed {seed}, position {}", cut.position);
            let workers = 1 + rng.below(3) as usize;
            let after = run_from(&log, config(workers), rng.next_u64(), &names, Some(cut));
            let place = format!("seed {seed}, cut at {}, {workers} workers, lag {lag}", cut.position);
            let future = expected.records.range(cut.position + 1..);
            assert!(future.eq(after.summary.records.iter()), "{place}");
            assert_eq!(after.summary.values, expected.values, "{place}");
            assert_eq!(after.summary.histories, expected.histories, "{place}");
            assert_eq!(after.summary.reads, expected.reads, "{place}");
            assert_eq!(after.summary.positions, expected.positions, "{place}");
            assert!(
                after.randoms.iter().all(|(at, random)| alone.randoms.get(at) == Some(random)),
                "{place}"
            );
            resumed += 1;
            kinds += usize::from(cut.kinds > 1);
        }
    }
    assert!(resumed > 50, "only {resumed} cuts");
    assert!(kinds > 50, "only {kinds} cuts have kinds of requests in their state");
}

type Numbers = schedule::Worker<u64>;

/// Runs what can run; returns the positions and the requests, and the state that request 0 sees.
fn run_out(workers: &mut [Numbers]) -> (Vec<(u64, u64)>, Option<schedule::DispatcherState<u64>>) {
    let (mut ran, mut state) = (Vec::new(), None);
    loop {
        let before = ran.len();
        for worker in workers.iter_mut() {
            while let schedule::Step::Run(turn) = worker.next() {
                ran.push((turn.position(), *turn.request()));
                state = turn.dispatcher_state().or(state);
                turn.finish(schedule::Outcome::Done);
            }
        }
        if ran.len() == before {
            ran.sort();
            return (ran, state);
        }
    }
}

fn numbers(index: u64, requests: std::ops::Range<u64>) -> std::sync::Arc<schedule::Entry<u64>> {
    let row = |request| schedule::BatchRow { request, footprint: schedule::Footprint::new(), stream: None };
    let rows = requests.map(row).collect();
    std::sync::Arc::new(schedule::Entry { index, time_us: index, seed: index, drain: index == 2, rows })
}

/// A replica may have to give its state at once, where no other one makes the same: what follows has the same
/// positions there as everywhere else, and at the replica that takes the state.
#[test]
fn what_runs_between_two_entries_has_no_position_and_sees_the_state_after_the_first() {
    for workers in 1..=3 {
        let config = Config { mode: LockRules::Turns, workers, lag: 8, locks: 4, spins: 30 };
        let open = |state| schedule::resume(config, |_: &u64, _: &mut schedule::Footprint| {}, state);
        let (schedule, mut plain) = open(schedule::DispatcherState::genesis());
        [numbers(1, 1..5), numbers(2, 5..6), numbers(3, 6..20)]
            .into_iter()
            .for_each(|one| schedule.append(one));
        let (expected, _) = run_out(&mut plain);
        let (schedule, mut own) = open(schedule::DispatcherState::genesis());
        schedule.append(numbers(1, 1..5));
        schedule.append(numbers(2, 5..6));
        let (first, _) = run_out(&mut own);
        schedule.between_batches(100);
        let (between, state) = run_out(&mut own);
        let state = state.expect("it has the state alone");
        assert_eq!(between.iter().map(|(_, request)| *request).collect::<Vec<_>>(), [100]);
        schedule.append(numbers(3, 6..20));
        let (rest, _) = run_out(&mut own);
        assert_eq!([&first[..], &rest[..]].concat(), expected, "{workers} workers");
        assert_eq!((state.entry_index(), state.position()), (3, rest[0].0));
        let (schedule, mut taken) = open(state);
        schedule.append(numbers(3, 6..20));
        assert_eq!(run_out(&mut taken).0, rest, "{workers} workers");
    }
}
