//! `watch`: each kind of event is told once, to those who watch it, and costs nothing when nobody does.

use crosscheck::Protocol;
use memcached::Config;

use crate::support::Replica;

/// The news without time and number.
fn news(connection: &mut memcached::Connection) -> Vec<String> {
    let text = String::from_utf8(connection.unsolicited(1 << 20)).unwrap();
    let without_time = |line: &str| line.split_once(" type=").map_or(line, |(_, rest)| rest).to_owned();
    text.lines().map(without_time).collect()
}

#[test]
fn each_kind_is_reported_to_those_who_watch_it() {
    let mut replica = Replica::new(Config::with_memory(64 << 20));
    let mut reads = replica.connect();
    let mut writes = replica.connect();
    assert_eq!(replica.talk(&mut reads, b"watch\r\n").0, b"OK\r\n");
    assert_eq!(replica.talk(&mut writes, b"watch mutations deletions\r\n").0, b"OK\r\n");
    assert_eq!(replica.talk(&mut replica.connect(), b"watch everything\r\n").0, b"ERROR\r\n");
    replica.ask("get k\r\nset k 0 0 3\r\nabc\r\nget k\r\nadd k 0 5 1\r\nx\r\nmg k v\r\n");
    replica.ask("set k 0 1 2\r\nab\r\ndelete k\r\ndelete k\r\nset k 0 1 2\r\nab\r\n");
    replica.now_us += 2_000_000;
    replica.ask("get k\r\n");
    assert_eq!(
        news(&mut reads),
        [
            "item_get key=k status=not_found clsid=1 size=0",
            "item_get key=k status=found clsid=1 size=3",
            "item_get key=k status=found clsid=1 size=3",
            "item_get key=k status=expired clsid=1 size=0",
        ]
    );
    assert_eq!(
        news(&mut writes),
        [
            "item_store key=k status=stored cmd=set ttl=0 clsid=1 size=3",
            "item_store key=k status=not_stored cmd=add ttl=5 clsid=1 size=1",
            "item_store key=k status=stored cmd=set ttl=1 clsid=1 size=2",
            "deleted key=k cmd=delete clsid=1 size=2",
            "item_store key=k status=stored cmd=set ttl=1 clsid=1 size=2",
        ]
    );
    assert!(news(&mut reads).is_empty() && news(&mut writes).is_empty());
}

#[test]
fn evictions_are_reported_and_a_watcher_that_left_is_forgotten() {
    let mut replica = Replica::new(Config { memory: 64 << 10, item_bytes: 4 << 10, shards: 1 });
    let mut watcher = replica.connect();
    replica.talk(&mut watcher, b"watch evictions\r\n");
    for number in 0..200 {
        replica.ask(&format!("set key-{number} 0 0 1000\r\n{}\r\n", "v".repeat(1000)));
    }
    let reported = news(&mut watcher);
    let evicted = replica.service.stats().counters.evictions.load(std::sync::atomic::Ordering::Relaxed);
    assert!(evicted > 100 && reported.len() as u64 == evicted, "{evicted} evicted, {} told", reported.len());
    assert_eq!(reported[0], "eviction key=key-0 fetch=no ttl=-1 la=0 clsid=1 size=1000");
    assert!(replica.service.stats().watch.watched().is_some());
    drop(watcher);
    assert!(replica.service.stats().watch.watched().is_none());
}
