//! Pairs of a set and the get of a key that was set half a round before, while a server is killed.

use crate::{Library, Said, key};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

const KEYS: u64 = 40;
/// Between two pairs: a bounded load.
const PAUSE: Duration = Duration::from_millis(2);
/// Within which every key must be readable after the last pair.
const LAST_READ: Duration = Duration::from_secs(15);

/// Counts what a library did, with a model of its keys.
pub struct Pairs {
    library: Box<dyn Library>,
    stored: HashMap<String, String>,
    /// Values whose set failed: it may have been executed, or be so later.
    attempted: HashMap<String, HashSet<String>>,
    wrong: u64,
    failed: u64,
    gap: Duration,
    last_good: Instant,
}

impl Pairs {
    /// None made yet.
    pub fn new(library: Box<dyn Library>) -> Pairs {
        let (stored, attempted) = (HashMap::new(), HashMap::new());
        Pairs {
            library,
            stored,
            attempted,
            wrong: 0,
            failed: 0,
            gap: Duration::ZERO,
            last_good: Instant::now(),
        }
    }

    /// Makes pairs for so long, reads every key once more, and prints the figures.
    pub fn run(mut self, time: Duration) {
        let end = Instant::now() + time;
        let mut pairs = 0;
        while Instant::now() < end {
            let name = |number: u64| key(&format!("loop{}", number % KEYS));
            let value = format!("{}-{pairs}", std::process::id());
            let good = self.pair(name(pairs), value, name(pairs + KEYS / 2));
            pairs += 1;
            std::thread::sleep(if good { PAUSE } else { 10 * PAUSE });
        }
        self.gap = self.gap.max(self.last_good.elapsed());
        self.read_all();
        println!("loop\t{pairs}\t{}\t{}\t{}", self.wrong, self.failed, self.gap.as_millis());
    }

    fn pair(&mut self, mut name: String, value: String, earlier: String) -> bool {
        match self.library.set(&name, value.as_bytes(), 0) {
            Ok(true) => {
                self.stored.insert(name.clone(), value);
            }
            said => {
                self.fail("set", &said);
                self.attempted.entry(name.clone()).or_default().insert(value);
            }
        }
        if self.stored.contains_key(&earlier) {
            name = earlier;
        }
        let said = self.library.get(&name);
        if said.is_err() || (said == Ok(None) && !self.stored.contains_key(&name)) {
            self.fail("get", &said);
            return false;
        }
        if !self.is_allowed(&name, said.ok().flatten()) {
            return false;
        }
        self.gap = self.gap.max(self.last_good.elapsed());
        self.last_good = Instant::now();
        true
    }

    fn is_allowed(&mut self, name: &str, got: Option<Vec<u8>>) -> bool {
        let got = got.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let attempted = self.attempted.get(name);
        if got.is_some() && got.as_ref() == self.stored.get(name)
            || got.as_ref().is_some_and(|got| attempted.is_some_and(|values| values.contains(got)))
        {
            return true;
        }
        self.wrong += 1;
        println!("# wrong: {name} is {got:?}, stored {:?}", self.stored.get(name));
        false
    }

    fn fail<T: std::fmt::Debug>(&mut self, call: &str, said: &Said<T>) {
        self.failed += 1;
        if self.failed <= 5 {
            println!("# {call}: {said:?}");
        }
    }

    fn read_all(&mut self) {
        let end = Instant::now() + LAST_READ;
        for name in self.stored.keys().cloned().collect::<Vec<_>>() {
            let mut said = self.library.get(&name);
            while !matches!(said, Ok(Some(_))) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(100));
                said = self.library.get(&name);
            }
            self.is_allowed(&name, said.ok().flatten());
        }
    }
}
