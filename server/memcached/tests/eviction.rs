//! Eviction: within its memory always, the same on every replica, and sparing used items.

use std::sync::atomic::Ordering::Relaxed;

use crate::support::{Ran, Replica};
use memcached::Config;
use wire::SplitMix64;

const SMALL: Config = Config { memory: 2 << 20, item_bytes: 64 << 10, shards: 2 };

fn set(replica: &mut Replica, key: &str, length: usize) {
    let answer = replica.ask(&format!("set {key} 0 0 {length}\r\n{}\r\n", "v".repeat(length)));
    assert_eq!(answer, "STORED\r\n");
}

fn has(replica: &mut Replica, key: &str) -> bool {
    replica.ask(&format!("mg {key} u\r\n")) == "HD\r\n"
}

fn churn(replica: &mut Replica, seed: u64, steps: u64) {
    let mut numbers = SplitMix64::new(seed);
    for _ in 0..steps {
        let key = format!("key-{}", numbers.below(4_000));
        replica.now_us += numbers.below(2_000);
        match numbers.below(20) {
            0..8 => {
                let length = if numbers.below(50) == 0 { numbers.below(60_000) } else { numbers.below(900) };
                set(replica, &key, length as usize);
            }
            8..16 => {
                replica.ask(&format!("get {key}\r\n"));
            }
            16 => {
                replica.ask(&format!("delete {key}\r\n"));
            }
            17 => {
                replica.ask(&format!("append {key} 0 0 300\r\n{}\r\n", "a".repeat(300)));
            }
            18 => {
                replica.ask(&format!("touch {key} 1\r\n"));
            }
            _ => {
                replica.ask(&format!("ma {key} N0\r\n"));
            }
        }
        let stats = replica.service.stats();
        assert!(stats.bytes() <= SMALL.memory, "{} bytes of {}", stats.bytes(), SMALL.memory);
    }
}

#[test]
fn the_same_requests_leave_the_same_state_within_the_limit() {
    let (mut one, mut other) = (Replica::new(SMALL), Replica::new(SMALL));
    churn(&mut one, 7, 30_000);
    churn(&mut other, 7, 30_000);
    assert_eq!(one.digests(), other.digests());
    let counters = &one.service.stats().counters;
    assert!(counters.evictions.load(Relaxed) > 1_000, "the workload must overflow the memory");
    assert!(counters.reclaimed.load(Relaxed) > 0);
    set(&mut other, "one-more", 1);
    assert_ne!(one.digests(), other.digests(), "the digest sees the state");
}

#[test]
fn nothing_is_wrong_inside_after_much_churn() {
    let mut replica = Replica::new(SMALL);
    for seed in 21..31 {
        churn(&mut replica, seed, 2_000);
        replica.audit();
    }
    replica.ask("flush_all\r\n");
    churn(&mut replica, 31, 2_000);
    replica.audit();
    for region_id in 0..SMALL.shards {
        let findings = replica.with_region(region_id, |region| region.scrub(10));
        assert!(findings.is_empty(), "{findings:?}");
    }
}

#[test]
fn a_scan_does_not_push_out_what_is_used() {
    let mut replica = Replica::new(SMALL);
    for hot in 0..200 {
        set(&mut replica, &format!("hot-{hot}"), 500);
    }
    for round in 0..40 {
        for hot in 0..200 {
            replica.ask(&format!("get hot-{hot}\r\n"));
        }
        for cold in 0..400 {
            set(&mut replica, &format!("cold-{round}-{cold}"), 500);
        }
    }
    let kept = (0..200).filter(|hot| has(&mut replica, &format!("hot-{hot}"))).count();
    // One request passes over a bounded number of items, so one or two in a row of used ones may go.
    assert!(kept >= 195, "16,000 items read once displaced {} of 200 that are read all the time", 200 - kept);
}

#[test]
fn an_item_that_comes_back_soon_stays_longer() {
    let mut replica = Replica::new(Config { shards: 1, ..SMALL });
    for filler in 0..2_500 {
        set(&mut replica, &format!("filler-{filler}"), 500);
        replica.ask(&format!("get filler-{filler}\r\n"));
    }
    let mut next = 0;
    let mut fresh = |replica: &mut Replica, count: usize| {
        for _ in 0..count {
            next += 1;
            set(replica, &format!("fresh-{next}"), 500);
        }
    };
    set(&mut replica, "again", 500);
    while has(&mut replica, "again") {
        fresh(&mut replica, 10);
    }
    set(&mut replica, "again", 500);
    set(&mut replica, "control", 500);
    while has(&mut replica, "control") {
        fresh(&mut replica, 10);
    }
    assert!(has(&mut replica, "again"), "the ghost was not recognised");
}

#[test]
fn one_large_item_makes_room_for_itself() {
    let mut replica = Replica::new(Config { shards: 1, ..SMALL });
    for small in 0..10_000 {
        set(&mut replica, &format!("small-{small}"), 20);
    }
    let before = replica.service.stats().items();
    set(&mut replica, "large", 60_000);
    assert!(has(&mut replica, "large"));
    assert!(replica.service.stats().items() < before);
    // Growing in place counts too, and does not evict the item that grows.
    for _ in 0..20 {
        assert_eq!(replica.ask(&format!("append large 0 0 200\r\n{}\r\n", "a".repeat(200))), "STORED\r\n");
    }
    assert!(has(&mut replica, "large"));
    assert!(replica.service.stats().bytes() <= SMALL.memory);
}

#[test]
fn a_state_loaded_elsewhere_goes_on_alike() {
    let (mut one, mut other) = (Replica::new(SMALL), Replica::new(SMALL));
    churn(&mut one, 5, 5_000);
    for region_id in 0..SMALL.shards {
        let packed = one.with_region(region_id, |region| region.pack_all());
        other.with_region(region_id, |region| region.load_all(&packed)).expect("a packed region loads");
    }
    assert_eq!(one.digests(), other.digests());
    // Positions name new objects: let the second replica's log be as long.
    let looks = memcached::command::encode(&memcached::command::Command::Get {
        keys: memcached::command::Keys::new(),
        with_unique: false,
        touch: None,
    });
    while other.position() < one.position() {
        assert_eq!(other.run(&looks), Ran::Replied(b"END\r\n".to_vec()));
    }
    other.now_us = one.now_us;
    churn(&mut one, 6, 5_000);
    churn(&mut other, 6, 5_000);
    assert_eq!(one.digests(), other.digests());
}

fn items_and_bytes(replica: &Replica) -> (u64, u64) {
    (replica.service.stats().items(), replica.service.stats().bytes())
}

/// Fills the memory with items of 500 bytes that were read, so that they are in the main queue.
fn warm(replica: &mut Replica, expiry: u64) {
    for item in 0..3_000 {
        let stored = replica.ask(&format!("set old-{item} 0 {expiry} 500\r\n{}\r\n", "v".repeat(500)));
        assert_eq!(stored, "STORED\r\n");
        replica.ask(&format!("get old-{item}\r\n"));
    }
}

/// The second pass over a working set of 30 % of the memory; `dead` makes what was there before dead.
fn second_pass(expiry: u64, dead: impl FnOnce(&mut Replica)) -> (usize, u64) {
    let mut replica = Replica::new(SMALL);
    warm(&mut replica, expiry);
    dead(&mut replica);
    let evictions = replica.service.stats().counters.evictions.load(Relaxed);
    for item in 0..900 {
        set(&mut replica, &format!("new-{item}"), 500);
    }
    let hits = (0..900).filter(|item| has(&mut replica, &format!("new-{item}"))).count();
    replica.audit();
    (hits, replica.service.stats().counters.evictions.load(Relaxed) - evictions)
}

#[test]
fn dead_items_go_before_live_ones() {
    let flushed = second_pass(0, |replica| assert_eq!(replica.ask("flush_all\r\n"), "OK\r\n"));
    assert_eq!(flushed, (900, 0), "after a flush");
    let expired = second_pass(5, |replica| replica.now_us += 6_000_000);
    assert_eq!(expired, (900, 0), "after an expiry");
}

/// Stores the same small item so many times.
fn store_again(replica: &mut Replica, times: usize) {
    (0..times).for_each(|_| set(replica, "again", 1));
}

#[test]
fn what_is_dead_is_counted_no_longer() {
    for dead in ["expired", "flushed", "flushed later"] {
        let mut replica = Replica::new(Config { shards: 1, ..SMALL });
        warm(&mut replica, if dead == "expired" { 2 } else { 0 });
        match dead {
            "flushed" => assert_eq!(replica.ask("flush_all\r\n"), "OK\r\n"),
            "flushed later" => assert_eq!(replica.ask("flush_all 3\r\n"), "OK\r\n"),
            _ => {}
        }
        assert!(items_and_bytes(&replica).0 > 2_000);
        replica.now_us += 4_000_000;
        // Requests that store something remove the dead, and requests that read do, more slowly.
        if dead == "flushed later" {
            (0..16_000).for_each(|_| _ = replica.ask("get lasting\r\n"));
        }
        store_again(&mut replica, if dead == "flushed later" { 1 } else { 1_000 });
        let (items, bytes) = items_and_bytes(&replica);
        assert_eq!(items, 1, "{dead}");
        assert!(bytes < SMALL.memory / 10, "{dead}: {bytes} bytes");
        replica.audit();
    }
}

#[test]
fn a_shard_is_swept_as_long_as_items_can_die() {
    let mut replica = Replica::new(Config { shards: 1, ..SMALL });
    for item in 0..100 {
        replica.ask(&format!("set soon-{item} 0 3 1\r\nx\r\nset late-{item} 0 20 1\r\nx\r\n"));
    }
    set(&mut replica, "lasting", 1);
    replica.now_us += 4_000_000;
    store_again(&mut replica, 200);
    assert_eq!(items_and_bytes(&replica).0, 102);
    // One that gets a deadline after the hand has passed it.
    replica.ask("touch lasting 10\r\n");
    replica.now_us += 20_000_000;
    store_again(&mut replica, 200);
    assert_eq!(items_and_bytes(&replica).0, 1);
}
