//! Requests that are rolled back after their end, as Eve does with a batch (OSDI 2012, 4.1): the state is that of
//! before, and the tree over its objects never differs from them.

use std::sync::atomic::Ordering::Relaxed;

use crosscheck::object::{Change, ObjectId, RegionId};
use memcached::Config;
use tree::{Tree, TreeShape};
use wire::SplitMix64;

use crate::support::Replica;

/// Little memory, so that requests evict and reclaim.
const SMALL: Config = Config { memory: 256 << 10, item_bytes: 32 << 10, shards: 2 };

/// A random request on few or many keys.
fn ask(replica: &mut Replica, random: &mut SplitMix64) {
    let few = random.below(2) == 0;
    let key = format!("key-{}", random.below(if few { 20 } else { 4_000 }));
    let length = if random.below(40) == 0 { random.below(30_000) } else { random.below(900) } as usize;
    let value = "v".repeat(length);
    replica.now_us += random.below(200_000);
    let request = match random.below(12) {
        0..=3 => format!("set {key} {} {} {length}\r\n{value}\r\n", random.below(9), random.below(9) / 8),
        4 => format!("append {key} 0 0 {length}\r\n{value}\r\n"),
        5 => format!("delete {key}\r\n"),
        6 => format!("ma {key} N0 J5\r\n"),
        7 => format!("touch {key} {}\r\n", random.below(3)),
        8 => format!("gat 1 {key} key-1\r\n"),
        9 if random.below(100) == 0 => format!("flush_all {}\r\n", random.below(2)),
        _ => format!("get {key} key-2 key-3\r\n"),
    };
    replica.ask(&request);
}

/// The objects of a shard with their checksums.
fn objects(replica: &mut Replica, region_id: RegionId) -> Vec<(ObjectId, u64)> {
    let mut objects = Vec::new();
    replica.with_region(region_id, |region| {
        region.objects(&mut |listed| objects.push((listed.id, listed.recomputed)));
    });
    objects
}

fn leaves_that_differ(replica: &mut Replica, tree: &Tree) -> Vec<u32> {
    (0..SMALL.shards)
        .flat_map(|region_id| tree.differing(region_id, objects(replica, region_id), []))
        .collect()
}

#[test]
fn any_number_of_requests_is_rolled_back() {
    let mut random = SplitMix64::new(3);
    let mut replica = Replica::new(SMALL);
    let mut tree = Tree::new(TreeShape::even(SMALL.shards, 4_096));
    (0..SMALL.shards).for_each(|region_id| tree.recompute(region_id, objects(&mut replica, region_id)));
    replica.kept = Some(Vec::new());
    // How many requests have run, and the state behind them: one request of the protocol may be several of the log.
    let mut versions = vec![(0, replica.digests(), tree.root())];
    for _ in 0..8_000 {
        if random.below(40) > 0 {
            let before = replica.kept.as_ref().map_or(0, Vec::len);
            ask(&mut replica, &mut random);
            let kept = replica.kept.as_ref().expect("requests are kept");
            kept[before..].iter().flat_map(|request| request.changes()).for_each(|change| tree.apply(change));
            versions.push((kept.len(), replica.digests(), tree.root()));
        } else {
            let back = random.below(versions.len().min(40) as u64) as usize;
            versions.truncate(versions.len() - back);
            let (left, digests, root) = versions.last().expect("the first version");
            let newest = replica.kept.as_mut().expect("requests are kept").split_off(*left);
            for mut request in newest.into_iter().rev() {
                let changes = request.changes();
                for region_id in request.region_ids() {
                    replica.with_region(region_id, |region| region.roll_back(&mut request));
                }
                assert!(request.is_rolled_back(), "{request:?}");
                changes.into_iter().for_each(|change| tree.apply(change.inverse()));
            }
            assert_eq!((&replica.digests(), tree.root()), (digests, *root));
            assert_eq!(leaves_that_differ(&mut replica, &tree), [] as [u32; 0]);
        }
    }
    assert!(versions.len() > 100, "{} requests stay", versions.len());
    let evictions = replica.service.stats().counters.evictions.load(Relaxed);
    assert!(evictions > 50, "{evictions} evictions");
}

/// The regions of a request that wrote nothing are none: it costs nothing to roll back.
#[test]
fn a_miss_leaves_nothing_to_roll_back() {
    let mut replica = Replica::new(SMALL);
    replica.kept = Some(Vec::new());
    replica.ask("get nothing\r\n");
    let kept = replica.kept.take().expect("requests are kept");
    assert_eq!(kept[0].region_ids(), [] as [RegionId; 0]);
    assert_eq!(kept[0].changes(), [] as [Change; 0]);
}
