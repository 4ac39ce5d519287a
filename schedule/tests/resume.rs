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
