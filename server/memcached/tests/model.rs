//! The store against a plain map: random commands, with time passing and uniques compared, give the same answers.

use std::collections::BTreeMap;

use crate::support::Replica;
use memcached::Config;
use proptest::prelude::*;

/// One step of the test.
#[derive(Clone, Debug)]
enum Op {
    /// `set`, `add`, `replace`, `append`, `prepend`, by number.
    Store(usize, u8, u32, i64, Vec<u8>),
    /// `cas`, with the item's unique or an old one.
    Cas(u8, bool, Vec<u8>),
    Delete(u8),
    /// Up or down.
    Step(u8, bool, u64),
    Touch(u8, i64),
    /// `get` of several keys, or `gat` with an expiry time.
    Get(Vec<u8>, Option<i64>),
    /// With a delay.
    Flush(i64),
    /// `md I`.
    Invalidate(u8),
    /// `mg` with all facts and `N`.
    Look(u8, bool),
    /// Milliseconds.
    Wait(u64),
}

#[derive(Clone)]
struct Entry {
    value: Vec<u8>,
    flags: u32,
    /// 0 for never.
    expires_us: u64,
    version: u64,
    stale: bool,
    won: bool,
}

/// A memcached in its simplest form.
#[derive(Default)]
struct Model {
    entries: BTreeMap<u8, Entry>,
    versions: u64,
    flush_us: Option<u64>,
    now_us: u64,
}

const MODES: [&str; 5] = ["set", "add", "replace", "append", "prepend"];

impl Model {
    fn live(&mut self, key: u8) -> Option<&mut Entry> {
        if self.flush_us.is_some_and(|at| at <= self.now_us) {
            self.entries.clear();
            self.flush_us = None;
        }
        let now_us = self.now_us;
        self.entries.retain(|_, entry| entry.expires_us == 0 || entry.expires_us > now_us);
        self.entries.get_mut(&key)
    }

    fn deadline(&self, seconds: i64) -> u64 {
        match seconds {
            0 => 0,
            ..0 => 1,
            1..=2_592_000 => self.now_us + seconds as u64 * 1_000_000,
            _ => seconds as u64 * 1_000_000,
        }
    }

    fn put(&mut self, key: u8, value: Vec<u8>, flags: u32, expires_us: u64) {
        self.versions += 1;
        let entry = Entry { value, flags, expires_us, version: self.versions, stale: false, won: false };
        self.entries.insert(key, entry);
    }

    fn store(&mut self, mode: usize, key: u8, flags: u32, expiry: i64, value: &[u8]) -> &'static str {
        let expires_us = self.deadline(expiry);
        let old = self.live(key).cloned();
        match (mode, old) {
            (0, _) | (1, None) | (2, Some(_)) => self.put(key, value.to_vec(), flags, expires_us),
            (3, Some(old)) => self.put(key, [&old.value, value].concat(), old.flags, old.expires_us),
            (4, Some(old)) => self.put(key, [value, &old.value].concat(), old.flags, old.expires_us),
            _ => return "NOT_STORED\r\n",
        }
        "STORED\r\n"
    }

    fn step(&mut self, key: u8, up: bool, delta: u64) -> String {
        let Some(old) = self.live(key).cloned() else { return "NOT_FOUND\r\n".into() };
        // Bytes behind a space do not count any more: a padded counter may have been appended to.
        let text = String::from_utf8_lossy(&old.value).into_owned();
        let Some(number) = text.split_whitespace().next().and_then(|digits| digits.parse::<u64>().ok())
        else {
            return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".into();
        };
        let number = if up { number.wrapping_add(delta) } else { number.saturating_sub(delta) };
        let grows = number.to_string().len() > old.value.len();
        let value = format!("{number:<width$}", width = old.value.len());
        self.put(key, value.into_bytes(), old.flags, old.expires_us);
        if let (false, Some(entry)) = (grows, self.entries.get_mut(&key)) {
            (entry.stale, entry.won) = (old.stale, old.won);
        }
        format!("{number}\r\n")
    }

    fn look(&mut self, key: u8, vivify: bool) -> String {
        let created = self.live(key).is_none() && vivify;
        if created {
            let expires_us = self.deadline(30);
            self.put(key, Vec::new(), 0, expires_us);
        }
        let now_us = self.now_us;
        let Some(entry) = self.live(key) else { return "EN\r\n".into() };
        let left = match entry.expires_us {
            0 => "-1".into(),
            at => (at - now_us).div_ceil(1_000_000).to_string(),
        };
        let mut answer = format!("VA {} s{} f{} t{left}", entry.value.len(), entry.value.len(), entry.flags);
        let wins = created || (entry.stale && !entry.won);
        answer += if entry.won { " Z" } else { "" };
        answer += if entry.stale { " X" } else { "" };
        answer += if wins { " W" } else { "" };
        entry.won |= wins;
        format!("{answer}\r\n{}\r\n", String::from_utf8_lossy(&entry.value))
    }
}

/// The model, the replica, and the unique that each version was found to have.
struct Pair {
    model: Model,
    replica: Replica,
    uniques: BTreeMap<u64, u64>,
}

impl Pair {
    fn expect(&mut self, question: &str, answer: &str) {
        let got = self.replica.ask(question);
        assert_eq!(got, answer, "to {question:?}");
    }

    fn name(key: u8) -> String {
        // Some long, some short; enough of them to make the table grow.
        format!("k{key}-{}", "x".repeat(usize::from(key) % 50))
    }

    fn run(&mut self, op: &Op) {
        self.model.now_us = self.replica.now_us;
        match op {
            Op::Store(mode, key, flags, expiry, value) => {
                let answer = self.model.store(*mode, *key, *flags, *expiry, value);
                let text = String::from_utf8_lossy(value).into_owned();
                let (name, length) = (Self::name(*key), value.len());
                self.expect(
                    &format!("{} {name} {flags} {expiry} {length}\r\n{text}\r\n", MODES[*mode]),
                    answer,
                );
            }
            Op::Cas(key, right, value) => self.cas(*key, *right, value),
            Op::Delete(key) => {
                let found = self.model.live(*key).is_some();
                self.model.entries.remove(key);
                let answer = if found { "DELETED\r\n" } else { "NOT_FOUND\r\n" };
                self.expect(&format!("delete {}\r\n", Self::name(*key)), answer);
            }
            Op::Step(key, up, delta) => {
                let answer = self.model.step(*key, *up, *delta);
                let name = if *up { "incr" } else { "decr" };
                self.expect(&format!("{name} {} {delta}\r\n", Self::name(*key)), &answer);
            }
            Op::Touch(key, expiry) => {
                let expires_us = self.model.deadline(*expiry);
                let found = self.model.live(*key).map(|entry| entry.expires_us = expires_us).is_some();
                let answer = if found { "TOUCHED\r\n" } else { "NOT_FOUND\r\n" };
                self.expect(&format!("touch {} {expiry}\r\n", Self::name(*key)), answer);
            }
            Op::Get(keys, touch) => self.get(keys, *touch),
            Op::Flush(delay) => {
                self.model.live(0);
                let now_us = self.model.now_us;
                self.model.flush_us = Some(if *delay <= 0 { now_us } else { self.model.deadline(*delay) });
                self.expect(&format!("flush_all {delay}\r\n"), "OK\r\n");
            }
            Op::Invalidate(key) => {
                let versions = self.model.versions + 1;
                let found = self.model.live(*key).map(|entry| {
                    (entry.stale, entry.won, entry.version) = (true, false, versions);
                });
                self.model.versions = versions;
                let answer = if found.is_some() { "HD\r\n" } else { "NF\r\n" };
                self.expect(&format!("md {} I\r\n", Self::name(*key)), answer);
            }
            Op::Look(key, vivify) => {
                let answer = self.model.look(*key, *vivify);
                let vivify = if *vivify { " N30" } else { "" };
                self.expect(&format!("mg {}{vivify} s f t v\r\n", Self::name(*key)), &answer);
            }
            Op::Wait(ms) => {
                self.replica.now_us += ms * 1_000;
            }
        }
    }

    fn get(&mut self, keys: &[u8], touch: Option<i64>) {
        let mut answer = String::new();
        for key in keys {
            let expires_us = touch.map(|expiry| self.model.deadline(expiry));
            let Some(entry) = self.model.live(*key) else { continue };
            entry.expires_us = expires_us.unwrap_or(entry.expires_us);
            let (flags, length) = (entry.flags, entry.value.len());
            let value = String::from_utf8_lossy(&entry.value).into_owned();
            answer += &format!("VALUE {} {flags} {length}\r\n{value}\r\n", Self::name(*key));
        }
        let names: Vec<String> = keys.iter().map(|key| Self::name(*key)).collect();
        let command = touch.map_or("get".into(), |expiry| format!("gat {expiry}"));
        self.expect(&format!("{command} {}\r\n", names.join(" ")), &(answer + "END\r\n"));
    }

    /// Reads the unique first: one version has one unique, which no other version has.
    fn cas(&mut self, key: u8, right: bool, value: &[u8]) {
        let (name, text) = (Self::name(key), String::from_utf8_lossy(value).into_owned());
        let answer = self.replica.ask(&format!("mg {name} c u\r\n"));
        let Some(entry) = self.model.live(key).cloned() else {
            assert_eq!(answer, "EN\r\n");
            self.model.now_us = self.replica.now_us;
            return self.expect(&format!("cas {name} 0 0 1 7\r\nx\r\n"), "NOT_FOUND\r\n");
        };
        let unique: u64 = answer
            .split_whitespace()
            .find_map(|token| token.strip_prefix('c'))
            .and_then(|digits| digits.parse().ok())
            .unwrap_or_else(|| panic!("no unique in {answer:?}"));
        let known = *self.uniques.entry(entry.version).or_insert(unique);
        assert_eq!(known, unique, "the unique of {name} changed without a store");
        let others = self.uniques.iter().filter(|(version, _)| **version != entry.version);
        assert!(
            others.into_iter().all(|(_, other)| *other != unique),
            "two versions share the unique {unique}"
        );
        // The next request is a microsecond later.
        self.model.now_us = self.replica.now_us;
        match self.model.live(key) {
            // `mg` may have been the one to win a stale item's token.
            Some(entry) => entry.won |= entry.stale,
            None => return self.expect(&format!("cas {name} 0 0 1 7\r\nx\r\n"), "NOT_FOUND\r\n"),
        }
        let (asked, stored) = if right { (unique, true) } else { (unique + 1_000_000, false) };
        if stored {
            self.model.put(key, value.to_vec(), 3, 0);
        }
        let answer = if stored { "STORED\r\n" } else { "EXISTS\r\n" };
        self.expect(&format!("cas {name} 3 0 {} {asked}\r\n{text}\r\n", value.len()), answer);
    }
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => "[0-9]{1,20}".prop_map(String::into_bytes),
        3 => "[a-z]{0,40}".prop_map(String::into_bytes),
        1 => (4_000usize..10_000).prop_map(|length| vec![b'v'; length]),
    ]
}

fn expiry() -> impl Strategy<Value = i64> {
    prop_oneof![5 => Just(0i64), 4 => 1i64..5, 1 => Just(-1), 1 => Just(2_592_000), 1 => Just(2_592_001)]
}

fn op(keys: u8) -> impl Strategy<Value = Op> {
    let key = 0..keys;
    prop_oneof![
        8 => (0..5usize, key.clone(), any::<u32>(), expiry(), value())
            .prop_map(|(m, k, f, e, v)| Op::Store(m, k, f, e, v)),
        2 => (key.clone(), any::<bool>(), value()).prop_map(|(k, r, v)| Op::Cas(k, r, v)),
        2 => key.clone().prop_map(Op::Delete),
        4 => (key.clone(), any::<bool>(), prop_oneof![0..20u64, any::<u64>()]).prop_map(|(k, u, d)| Op::Step(k, u, d)),
        2 => (key.clone(), expiry()).prop_map(|(k, e)| Op::Touch(k, e)),
        4 => (prop::collection::vec(key.clone(), 1..24), prop::option::weighted(0.3, expiry()))
            .prop_map(|(k, t)| Op::Get(k, t)),
        1 => prop_oneof![Just(0i64), Just(-1), 1..4i64].prop_map(Op::Flush),
        2 => key.clone().prop_map(Op::Invalidate),
        4 => (key, any::<bool>()).prop_map(|(k, v)| Op::Look(k, v)),
        3 => (1..3_000u64).prop_map(Op::Wait),
    ]
}

fn check(shards: u32, ops: &[Op]) {
    let replica = Replica::new(Config { shards, ..Config::default() });
    let model = Model { now_us: replica.now_us, ..Model::default() };
    let mut pair = Pair { model, replica, uniques: BTreeMap::new() };
    ops.iter().for_each(|op| pair.run(op));
    pair.replica.audit();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn few_keys_collide_all_the_time(ops in prop::collection::vec(op(6), 1..150)) {
        check(2, &ops);
    }

    #[test]
    fn many_keys_make_the_table_grow(ops in prop::collection::vec(op(250), 1..600)) {
        check(1, &ops);
    }
}
