//! Lists of what is stored, and a memory limit that is changed while the cache is used.

use crosscheck::SettingsReply;
use memcached::Config;
use memcached::command::{Command, encode};

use crate::support::{Ran, Replica, START_US};

fn with_items(count: usize) -> Replica {
    let mut replica = Replica::new(Config::with_memory(64 << 20));
    for number in 0..count {
        assert_eq!(replica.ask(&format!("set key-{number} 7 0 5\r\nvalue\r\n")), "STORED\r\n");
    }
    replica
}

#[test]
fn metadump_names_every_live_item_once() {
    let mut replica = with_items(300);
    assert_eq!(replica.ask("set a%b/\u{e4} 0 100 3\r\nabc\r\n"), "STORED\r\n");
    assert_eq!(replica.ask("set gone 0 1 3\r\nabc\r\n"), "STORED\r\n");
    replica.now_us += 2_000_000;
    let unique = replica.ask("gets key-5\r\n");
    let unique = unique.split([' ', '\r']).nth(4).unwrap();
    let list = replica.ask("lru_crawler metadump all\r\n");
    let lines: Vec<&str> = list.strip_suffix("END\r\n").unwrap().lines().collect();
    assert_eq!(lines.len(), 301);
    let second = START_US / 1_000_000;
    let of = |key: &str| {
        let mut found = lines.iter().filter(|line| line.starts_with(&format!("key={key} ")));
        let line = found.next().unwrap_or_else(|| panic!("{key}: {list}"));
        assert_eq!(found.next(), None);
        (*line).to_owned()
    };
    let accessed = second + 2;
    assert_eq!(of("key-5"), format!("key=key-5 exp=-1 la={accessed} cas={unique} fetch=yes cls=1 size=73"));
    let escaped = of("a%25b%2F%C3%A4");
    assert!(escaped.contains(&format!(" exp={} la={second} ", second + 100)), "{escaped}");
    assert!(escaped.contains(" fetch=no "), "{escaped}");
    for every in ["hash", "1", "3,1"] {
        assert_eq!(replica.ask(&format!("lru_crawler metadump {every}\r\n")), list);
    }
    assert_eq!(replica.ask("lru_crawler metadump 5\r\n"), "END\r\n");
    assert_eq!(replica.ask("lru_crawler metadump\r\n"), "ERROR\r\n");
    assert_eq!(replica.ask("flush_all\r\nlru_crawler metadump all\r\n"), "OK\r\nEND\r\n");
}

#[test]
fn a_long_list_is_made_in_parts_whose_lines_are_those_of_the_whole() {
    let mut replica = Replica::new(Config { shards: 64, ..Config::default() });
    for number in 0..45_000 {
        assert_eq!(replica.ask(&format!("set key-{number} 0 0 1\r\nx\r\n")), "STORED\r\n");
    }
    let before = replica.position();
    let list = replica.ask("lru_crawler metadump all\r\nget key-5\r\n");
    assert_eq!(replica.position() - before, 4 + 1, "four parts, and what follows the line");
    let (list, after) = list.split_once("END\r\n").unwrap();
    assert_eq!(after, "VALUE key-5 0 1\r\nx\r\nEND\r\n");
    let keys: std::collections::BTreeSet<&str> =
        list.lines().map(|line| line.strip_prefix("key=").unwrap().split(' ').next().unwrap()).collect();
    assert_eq!((keys.len(), list.lines().count()), (45_000, 45_000));
}

#[test]
fn cachedump_lists_keys_as_tools_expect_them() {
    let mut replica = with_items(20);
    let all = replica.ask("stats cachedump 1 0\r\n");
    assert_eq!(all.matches("ITEM key-").count(), 20);
    assert!(all.contains("ITEM key-7 [5 b; 0 s]\r\n") && all.ends_with("END\r\n"), "{all}");
    assert_eq!(replica.ask("stats cachedump 1 3\r\n").matches("ITEM ").count(), 3);
    assert_eq!(replica.ask("stats cachedump 2 0\r\n"), "END\r\n");
    assert_eq!(replica.ask("stats cachedump 64 0\r\n"), "CLIENT_ERROR Illegal slab id\r\n");
    assert_eq!(replica.ask("stats cachedump 1\r\n"), "CLIENT_ERROR bad command line\r\n");
}

#[test]
fn a_long_cachedump_ends_where_stocks_does() {
    let mut replica = Replica::new(Config::with_memory(64 << 20));
    for number in 0..12_000 {
        replica.ask(&format!("set {number:0200} 0 0 1\r\nx\r\n"));
    }
    let some = replica.ask("stats cachedump 1 0\r\n");
    assert!((2 << 20..(2 << 20) + 300).contains(&some.len()), "{}", some.len());
    assert!(some.ends_with("s]\r\nEND\r\n"));
}

#[test]
fn sizes_are_counted_in_steps_of_32_bytes() {
    let mut replica = with_items(10);
    replica.ask(&format!("set large 0 0 1000\r\n{}\r\n", "x".repeat(1000)));
    assert_eq!(replica.ask("stats sizes\r\n"), "STAT 96 10\r\nSTAT 1088 1\r\nEND\r\n");
}

#[test]
fn the_memory_limit_can_be_changed_and_is_kept_after_a_while() {
    let mut replica = Replica::new(Config { memory: 32 << 20, shards: 2, ..Config::default() });
    let value = "v".repeat(1000);
    let store = |replica: &mut Replica, number: usize| {
        assert_eq!(replica.ask(&format!("set {number} 0 0 1000\r\n{value}\r\n")), "STORED\r\n");
    };
    (0..20_000).for_each(|number| store(&mut replica, number));
    assert!(replica.service.stats().bytes() > 20 << 20);
    for (line, answer) in [
        ("cache_memlimit 1\r\n", "MEMLIMIT_TOO_SMALL"),
        ("cache_memlimit 33554432\r\n", "MEMLIMIT_ADJUST_FAILED"),
        ("cache_memlimit x\r\n", "ERROR"),
        ("cache_memlimit\r\n", "ERROR"),
    ] {
        let reported = replica.ask(line);
        assert!(reported.starts_with(answer), "{line}: {reported}");
    }
    assert_eq!(replica.ask("cache_memlimit 8\r\n"), "OK\r\n");
    assert!(replica.ask("stats\r\n").contains("STAT limit_maxbytes 8388608\r\n"));
    let before = replica.service.stats().items();
    store(&mut replica, 20_000);
    let after = replica.service.stats().items();
    assert!(after < before && before - after < 40, "one request does a bounded part: {before} {after}");
    (20_001..22_000).for_each(|number| store(&mut replica, number));
    assert!(replica.service.stats().bytes() <= 8 << 20);
    replica.audit();
    assert_eq!(replica.ask("cache_memlimit 64 noreply\r\n"), "");
    let Ran::Replied(reply) = replica.run(&encode(&Command::Settings { change: None })) else {
        panic!("intact")
    };
    let SettingsReply { refused: None, settings } = SettingsReply::read(&reply).expect("a list") else {
        panic!()
    };
    let listed: Vec<_> = settings.iter().map(|one| (one.name.as_str(), one.value.as_str())).collect();
    assert_eq!(listed, [("memory_limit_mb", "64"), ("item_size_max", "1048576")]);
    assert!(settings[0].set_at > 20_000 && settings[1].set_at == 0, "a client has set the first one");
    (30_000..60_000).for_each(|number| store(&mut replica, number));
    assert!(replica.service.stats().bytes() > 32 << 20);
    replica.audit();
}
