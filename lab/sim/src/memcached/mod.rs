//! memcached under simulation: its settings, its clients and its model.

mod memory;
mod model;
mod source;

use std::sync::Arc;

use ::memcached::{Config, Connection, Memcached};
use crosscheck::{MakeProtocol, NewConnection};
use wire::SplitMix64;

use crate::run::{Options, RunSummary, simulate};
use crate::workload::Workload;
use model::{Model, ModelCommand};
use source::{Source, VALUES, keys};

/// Locks of the service: few, so that clients conflict and every region is scrubbed soon.
const SHARDS: u32 = 4;
/// Memory of the whole service in bytes.
const MEMORY: u64 = 64 << 20;
/// Longest item in bytes at a replica whose peers have the usual limit.
const OTHER_ITEM_BYTES: usize = 4 << 10;

/// The settings of a simulated memcached.
#[derive(Clone, Copy, Debug)]
pub struct OfMemcached {
    config: Config,
    is_short: bool,
}

impl Default for OfMemcached {
    fn default() -> Self {
        OfMemcached { config: Config { shards: SHARDS, ..Config::with_memory(MEMORY) }, is_short: false }
    }
}

/// Runs `seed` with memcached.
pub fn run(seed: u64, options: &Options) -> RunSummary {
    simulate(&OfMemcached::default(), seed, options)
}

impl Workload for OfMemcached {
    type Service = Memcached;
    type Protocol = Connection;
    type Command = ModelCommand;
    type Source = Source;
    type Model = Model;

    fn start(&self) -> Result<(Memcached, MakeProtocol<Connection>), String> {
        let service = Memcached::new(self.config).map_err(|error| error.to_string())?;
        let stats = service.stats().clone();
        let make = move |accepted: &NewConnection| Connection::new(stats.clone(), accepted.counters.clone());
        Ok((service, Arc::new(make)))
    }

    fn bytes(&self, command: &ModelCommand) -> Vec<u8> {
        command.text()
    }

    fn source(&self, client: usize) -> Source {
        Source::new(client, self.is_short)
    }

    fn model(&self) -> Model {
        Model::new(self.is_short)
    }

    fn final_reads(&self) -> Vec<ModelCommand> {
        keys().into_iter().map(|key| ModelCommand::Get { keys: vec![key], unique: false }).collect()
    }

    fn object(&self, draws: &mut SplitMix64) -> Option<String> {
        match draws.modulo(8) {
            0 | 1 => Some(format!("item:v{}", draws.modulo(VALUES))),
            2 => Some(format!("slot:v{}", draws.modulo(VALUES))),
            3 => Some(format!("shard:{}", draws.modulo(u64::from(SHARDS)))),
            4 => Some(format!("queue:{}", draws.modulo(u64::from(SHARDS)))),
            _ => None,
        }
    }

    fn worn_object(&self, draws: &mut SplitMix64) -> Option<String> {
        Some(format!("item:v{}", draws.modulo(VALUES)))
    }

    fn request_bytes(&self) -> usize {
        Config::request_bytes()
    }

    fn settings(&self) -> Vec<(String, String)> {
        let Config { memory, item_bytes, .. } = self.config;
        let reported = [("memory_limit_mb", memory >> 10), ("item_size_max", item_bytes as u64)];
        reported.map(|(name, value)| (name.to_owned(), value.to_string())).into()
    }

    fn variants(&self) -> Vec<(String, Self)> {
        let with = |config| OfMemcached { config, ..*self };
        // Where memory is short, half of it would not even hold the largest items.
        let other = if self.is_short { self.config.memory * 2 } else { self.config.memory / 2 };
        let memory = Config { memory: other, ..self.config };
        let item = Config { item_bytes: OTHER_ITEM_BYTES, ..self.config };
        vec![("memory_limit_mb".to_owned(), with(memory)), ("item_size_max".to_owned(), with(item))]
    }

    fn short_of_memory(&self) -> Self {
        let config = Config { memory: memory::SHORT, item_bytes: memory::ITEM_BYTES, ..self.config };
        OfMemcached { config, is_short: true }
    }
}
