//! Damaged memory: found before a client sees it, blamed on the right object, and repaired from a twin.

use crate::support::{Ran, Replica};
use crosscheck::object::{Injection, ObjectId, RegionId, ScrubFinding};
use memcached::Config;
use memcached::command::{Command, Key, StoreMode, encode};

/// Small enough to evict, so that both ends of the queues are in use.
const SMALL: Config = Config { memory: 512 << 10, item_bytes: 64 << 10, shards: 1 };

fn set(key: &str, length: usize) -> Vec<u8> {
    encode(&Command::Store {
        mode: StoreMode::Set,
        key: Key::new(key.as_bytes()).expect("a valid key"),
        flags: 7,
        expiry: 0,
        unique: 0,
        value: key.bytes().cycle().take(length).collect(),
        quiet: false,
    })
}

fn get(key: &str) -> Vec<u8> {
    let keys = [Key::new(key.as_bytes()).expect("a valid key")].into();
    encode(&Command::Get { keys, with_unique: true, touch: None })
}

/// A replica with more items than fit, and some that were read.
fn full() -> Replica {
    let mut replica = Replica::new(SMALL);
    for number in 0..1_500 {
        replica.run(&set(&format!("key-{number}"), 100 + number % 300));
        if number % 3 == 0 {
            replica.run(&get(&format!("key-{number}")));
        }
    }
    replica.run(&set("large", 20_000));
    replica.run(&get("key-1497"));
    replica
}

fn inject(replica: &mut Replica, (region_id, id): (RegionId, ObjectId), injection: Injection) -> bool {
    replica.with_region(region_id, |region| region.inject(id, &injection).is_some())
}

/// Copies one object from a healthy replica, as REPAIR does.
fn repair(replica: &mut Replica, twin: &mut Replica, region_id: RegionId, id: ObjectId) {
    let packed = twin.with_region(region_id, |region| region.pack(id));
    replica
        .with_region(region_id, |region| region.replace(id, packed.as_deref()))
        .expect("a packed object fits");
}

/// Damages the object that `name` means, and runs `request`, which needs it. The object is found, blamed and repaired;
/// then the answer and the whole state equal those of an undamaged twin.
fn found_and_repaired(name: &str, request: &[u8], injections: impl Iterator<Item = Injection>) {
    let (mut replica, mut twin) = (full(), full());
    let place = replica.find(name).unwrap_or_else(|| panic!("no object is called {name}"));
    assert_eq!(twin.find(name), Some(place), "names mean the same object everywhere");
    let mut damaged = 0;
    for injection in injections {
        if !inject(&mut replica, place, injection) {
            continue;
        }
        damaged += 1;
        match replica.run(request) {
            Ran::Corrupted(wrong) => {
                assert!(wrong.contains(&place.1), "{name} {injection:?}: blamed {wrong:?}")
            }
            Ran::Replied(reply) => {
                panic!("{name} {injection:?}: answered {:?}", String::from_utf8_lossy(&reply))
            }
        }
        repair(&mut replica, &mut twin, place.0, place.1);
    }
    assert!(damaged > 10, "{name}: only {damaged} injections fitted");
    while twin.position() < replica.position() {
        twin.find(name);
    }
    assert_eq!(replica.run(request), twin.run(request), "{name}");
    assert_eq!(replica.digests(), twin.digests(), "{name}");
}

fn damages() -> impl Iterator<Item = Injection> {
    (0..60).flat_map(|seed| {
        [
            Injection::Flip { member: None, bit: None, seed },
            Injection::Bits { count: 5, seed },
            Injection::Byte { seed },
            Injection::Length { seed },
            Injection::Sum { bit: seed as u32 },
        ]
    })
}

#[test]
fn a_damaged_item_is_found_when_it_is_read() {
    found_and_repaired("item:key-1497", &get("key-1497"), damages());
}

#[test]
fn a_damaged_item_is_found_when_it_is_overwritten() {
    found_and_repaired("item:key-1497", &set("key-1497", 50), damages());
}

#[test]
fn a_damaged_large_value_is_found_when_it_is_read() {
    found_and_repaired("item:large", &get("large"), damages());
}

#[test]
fn a_damaged_table_slot_is_found_when_a_key_is_looked_up() {
    found_and_repaired("slot:key-1497", &get("key-1497"), damages());
}

#[test]
fn a_damaged_table_slot_is_found_when_a_missing_key_is_looked_up() {
    found_and_repaired("slot:no-such-key", &get("no-such-key"), damages());
}

#[test]
fn a_damaged_shard_is_found_by_any_request() {
    found_and_repaired("shard:0", &get("no-such-key"), damages());
}

#[test]
fn a_damaged_queue_is_found_when_something_is_evicted() {
    found_and_repaired("queue:0", &set("new-key", 30_000), damages());
}

#[test]
fn an_object_under_another_name_is_found() {
    for (name, request) in [("item:key-1497", get("key-1497")), ("slot:key-1497", get("key-1497"))] {
        for bit in 0..64 {
            let mut replica = full();
            let place = replica.find(name).expect("it exists");
            assert!(inject(&mut replica, place, Injection::Id { bit }));
            match replica.run(&request) {
                Ran::Corrupted(wrong) => assert!(wrong.contains(&place.1), "{name}, bit {bit}: {wrong:?}"),
                Ran::Replied(reply) => panic!("{name}, bit {bit}: {:?}", String::from_utf8_lossy(&reply)),
            }
        }
    }
}

#[test]
fn a_lost_item_is_missed_and_comes_back() {
    let (mut replica, mut twin) = (full(), full());
    for name in ["item:key-1497", "slot:key-1497"] {
        let place = replica.find(name).expect("it exists");
        assert!(inject(&mut replica, place, Injection::Lose));
        let findings = replica.with_region(place.0, |region| region.scrub(10));
        assert!(findings.contains(&ScrubFinding::Lost(place.1)), "{findings:?}");
        assert_eq!(replica.run(&get("key-1497")), Ran::Corrupted(vec![place.1]));
        repair(&mut replica, &mut twin, place.0, place.1);
        assert!(replica.with_region(place.0, |region| region.scrub(10)).is_empty());
    }
    while twin.position() < replica.position() {
        twin.find("shard:0");
    }
    assert_eq!(replica.run(&get("key-1497")), twin.run(&get("key-1497")));
    assert_eq!(replica.digests(), twin.digests());
}

#[test]
fn a_doubled_item_is_found_by_a_scrub() {
    let mut replica = full();
    let place = replica.find("item:key-1497").expect("it exists");
    assert!(inject(&mut replica, place, Injection::Double));
    let findings = replica.with_region(place.0, |region| region.scrub(10));
    assert!(findings.contains(&ScrubFinding::Extra(place.1)), "{findings:?}");
}

#[test]
fn without_the_check_a_client_sees_the_damage() {
    const CONTENT: usize = 0;
    // The length comes first, and the value last.
    const BEHIND_KEY: u64 = 32 + 8 * "key-1497".len() as u64;
    let (mut replica, mut twin) = (full(), full());
    replica.protect = false;
    let place = replica.find("item:key-1497").expect("it exists");
    let mut wrong = 0;
    for bit in 0..200 {
        let value = Injection::Flip { member: Some(CONTENT), bit: Some(BEHIND_KEY + bit), seed: bit };
        assert!(inject(&mut replica, place, value));
        let answer = replica.run(&get("key-1497"));
        wrong += u32::from(answer != twin.run(&get("key-1497")));
        assert!(inject(&mut replica, place, value), "the same flip again undoes it");
    }
    assert_eq!(wrong, 200, "a flipped value must reach the client when no check is on");
}

#[test]
fn names_that_mean_nothing_are_refused() {
    let mut replica = full();
    for name in ["", "item", "item:", "item:no-such-key", "page:1", "shard:1", "shard:x", "queue:-1"] {
        assert_eq!(replica.find(name), None, "{name}");
    }
    assert!(replica.find("slot:no-such-key").is_some(), "the bucket where it would be");
}

/// The result of a faulty computation fits its checksum, so no check stops the next request. That request must end:
/// otherwise only the watchdog ends the handler, seconds later.
#[test]
fn a_wrong_count_of_bytes_that_nobody_notices_does_not_keep_eviction_busy_for_ever() {
    const BYTES: usize = 1;
    for bit in [32, 40, 62] {
        let mut replica = full();
        replica.protect = false;
        let place = replica.find("shard:0").expect("it exists");
        assert!(inject(
            &mut replica,
            place,
            Injection::Flip { member: Some(BYTES), bit: Some(bit), seed: 0 }
        ));
        let _ = replica.run(&set("key-1497", 30_000));
        let _ = replica.run(&set("key-1497", 60_000));
    }
}
