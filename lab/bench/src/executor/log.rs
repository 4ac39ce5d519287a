//! The generated log: batches of SET or append requests, drawn from a seed and decoded before anything is measured.

use std::sync::Arc;

use bytes::Bytes;
use crosscheck::schedule::{BatchRow, Entry, Footprint};
use crosscheck::{Job, Service};
use memcached::Memcached;
use memcached::command::{Command, Key, StoreMode, encode};
use memcached::limits::{ITEM_BYTES_MIN, LARGEST_ITEMS_PER_SHARD, SHARDS_MAX};
use serde::{Deserialize, Serialize};
use wire::{SplitMix64, derive};

/// Ordered time of the first batch: some second in 2023, in microseconds.
const START_US: u64 = 1_700_000_000_000_000;
/// Different batches of a log; a longer log repeats them. They bound its memory: 65 MB with values of 10 KB.
pub const CYCLE: u64 = 64;
/// Length of a key in bytes.
const KEY_BYTES: usize = 16;

/// What the requests of a log do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogShape {
    /// Requests of a batch.
    pub batch: usize,
    /// Length of a value in bytes.
    pub value_bytes: usize,
    /// Chance that two requests of a batch write the same item; 0 for a log in which none do.
    ///
    /// As in the paper (OSDI 2012, section 7.2), it is 1 divided by the number of items.
    pub conflicts: f64,
    /// Items of a log without conflicts: requests write them in turn. At least two batches of them.
    pub lone_items: usize,
    /// Bytes that a request appends to its item's value, which is written anew: a short request that changes much. 0:
    /// requests are SETs of whole values.
    pub appended_bytes: usize,
}

/// A log of SET requests on items that each have a lock of their own.
pub struct RequestLog {
    /// Stores each item once.
    filling: Vec<Vec<Job<Command>>>,
    /// What is measured, again and again.
    cycle: Vec<Vec<Job<Command>>>,
    seed: u64,
}

impl LogShape {
    /// Items that the log writes.
    pub fn items(&self) -> usize {
        if self.conflicts > 0.0 { (1.0 / self.conflicts).round().max(1.0) as usize } else { self.lone_items }
    }

    /// A service in which each item has a shard of its own, and is never evicted.
    pub fn service(&self) -> memcached::Config {
        let shards = (2 * self.items() as u32).next_power_of_two().min(SHARDS_MAX);
        let item_bytes = (2 * self.value_bytes).max(ITEM_BYTES_MIN);
        let memory = u64::from(shards) * 2 * LARGEST_ITEMS_PER_SHARD * item_bytes as u64;
        memcached::Config { memory, item_bytes, shards }
    }

    /// Most items that a log can have: more would not find a shard each.
    pub const MOST_ITEMS: usize = SHARDS_MAX as usize / 2;
}

impl RequestLog {
    /// Draws the log from a seed.
    ///
    /// # Errors
    /// The service does not decode its own requests, or there are too many items.
    pub fn new(shape: LogShape, service: &Memcached, seed: u64) -> anyhow::Result<RequestLog> {
        anyhow::ensure!(shape.items() <= LogShape::MOST_ITEMS, "{} items are too many", shape.items());
        let keys = keys(shape.items(), service.config().shards);
        let mut random = SplitMix64::new(seed);
        let mut request = |mode: StoreMode, item: usize| {
            let bytes = if mode == StoreMode::Append { shape.appended_bytes } else { shape.value_bytes };
            job(service, mode, &keys[item], value(bytes, &mut random))
        };
        let all: Vec<usize> = (0..keys.len()).collect();
        let mut set = |item: &usize| request(StoreMode::Set, *item);
        let filling = all.chunks(shape.batch).map(|items| items.iter().map(&mut set).collect());
        let filling = filling.collect::<anyhow::Result<_>>()?;
        let mut choice = SplitMix64::new(derive(seed, 1));
        let mut item_of = |request: u64| {
            let drawn = if shape.conflicts > 0.0 { choice.below(keys.len() as u64) } else { request };
            drawn as usize % keys.len()
        };
        let batch = shape.batch as u64;
        let mode = if shape.appended_bytes > 0 { StoreMode::Append } else { StoreMode::Set };
        let cycle = (0..CYCLE)
            .map(|number| (0..batch).map(|at| request(mode, item_of(number * batch + at))).collect())
            .collect::<anyhow::Result<_>>()?;
        Ok(RequestLog { filling, cycle, seed })
    }

    /// Batches at its beginning that only store the items.
    pub fn filling(&self) -> u64 {
        self.filling.len() as u64
    }

    /// Batch `number`, from 1, as an entry of the ordered log, with the footprint of each request.
    pub fn entry(&self, number: u64, service: &Memcached) -> Arc<Entry<Job<Command>>> {
        let place = number.saturating_sub(1);
        let jobs = match self.filling.get(place as usize) {
            Some(jobs) => jobs,
            None => &self.cycle[((place - self.filling()) % CYCLE) as usize],
        };
        let rows = jobs.iter().map(|job| {
            let mut footprint = Footprint::new();
            if let Some(command) = job.request() {
                service.footprint(command, &mut footprint);
            }
            BatchRow { request: job.clone(), footprint, stream: None }
        });
        Arc::new(Entry {
            index: number,
            time_us: START_US + number * 1_000,
            seed: derive(self.seed, number),
            drain: false,
            rows: rows.collect(),
        })
    }
}

/// Keys in shards of their own.
fn keys(count: usize, shards: u32) -> Vec<Key> {
    let mut is_taken = vec![false; shards as usize];
    let names = (0u64..).filter_map(|number| Key::new(format!("{number:0>KEY_BYTES$}").as_bytes()));
    let free = names.filter(|key| {
        let shard = &mut is_taken[key.hash().shard(shards) as usize];
        !std::mem::replace(shard, true)
    });
    free.take(count).collect()
}

fn value(bytes: usize, random: &mut SplitMix64) -> Bytes {
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        value.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    value.truncate(bytes);
    value.into()
}

/// A decoded request, as it comes out of the ordered log.
fn job(service: &Memcached, mode: StoreMode, key: &Key, value: Bytes) -> anyhow::Result<Job<Command>> {
    let key = key.clone();
    let command = Command::Store { mode, key, flags: 0, expiry: 0, unique: 0, value, quiet: false };
    let ordered = Bytes::from(encode(&command));
    let decoded = service.decode(&ordered).map_err(|error| anyhow::anyhow!("a request: {error}"))?;
    Ok(Job::internal(decoded, ordered))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(conflicts: f64) -> (Memcached, RequestLog) {
        let shape = LogShape { batch: 100, value_bytes: 10, conflicts, lone_items: 200, appended_bytes: 0 };
        let service = Memcached::new(shape.service()).expect("settings that work");
        let log = RequestLog::new(shape, &service, 7).expect("a log");
        (service, log)
    }

    /// Pairs of one batch that write the same item, as a share of all pairs.
    fn conflicts((service, log): &(Memcached, RequestLog)) -> f64 {
        let (mut conflicts, mut pairs) = (0, 0);
        for number in (1..=CYCLE).map(|number| number + log.filling()) {
            let entry = log.entry(number, service);
            for (at, one) in entry.rows.iter().enumerate() {
                for other in &entry.rows[..at] {
                    pairs += 1;
                    conflicts += u32::from(one.footprint == other.footprint);
                }
            }
        }
        f64::from(conflicts) / f64::from(pairs)
    }

    #[test]
    fn requests_conflict_as_often_as_they_should() {
        assert_eq!(conflicts(&log(0.0)), 0.0);
        for chance in [0.001, 0.01, 0.1] {
            let found = conflicts(&log(chance));
            assert!((found / chance - 1.0).abs() < 0.15, "{found} instead of {chance}");
        }
    }

    #[test]
    fn each_item_is_stored_first() {
        let (service, log) = log(0.01);
        let of =
            |number| log.entry(number, &service).rows.iter().map(|work| work.footprint.first()).collect();
        let mut stored: Vec<Option<u32>> =
            (1..=log.filling()).flat_map(|number| -> Vec<_> { of(number) }).collect();
        stored.sort_unstable();
        stored.dedup();
        assert_eq!(stored.len(), 100);
        let again: Vec<_> = of(log.filling() + 3);
        assert_eq!(again, of(log.filling() + 3 + CYCLE));
    }
}
