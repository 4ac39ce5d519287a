//! The requests that drive a single server: the same bytes on every run.

use std::collections::BTreeSet;

use memcached_client::request::{letters, write_get};
use memcached_client::{KeyCommand, StoreVerb};
use serde::{Deserialize, Serialize};
use wire::SplitMix64;
use zone::{A, CNAME, MX, Question, TXT};

use crate::draw;
use crate::model::Expected;
use crate::mqtt;
use crate::protocol::Protocol;
use crate::rows::RowsModel;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// The bytes that are sent.
    pub bytes: Vec<u8>,
    /// The keys in it, in their order.
    pub keys: Vec<Vec<u8>>,
    /// The CRC from which that of its reply is continued; 0 where replies have none.
    pub seed: u32,
}

/// How the requests are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Decides keys, kinds and contents.
    #[serde(default = "one")]
    pub seed: u64,
    /// Different keys.
    #[serde(default = "keys")]
    pub keys: u64,
    /// `set` requests before the measured part; each key gets its share.
    #[serde(default = "warmup")]
    pub warmup: u64,
    /// Mixed requests of the measured part; a `get` of every key follows, so that damaged state becomes visible.
    #[serde(default = "requests")]
    pub requests: u64,
    /// Shortest and longest value in bytes.
    #[serde(default = "value")]
    pub value: [u64; 2],
    /// Requests and replies have CRCs, as the option `sei_crc` of memcached from `crosscheck harden` adds them.
    #[serde(default)]
    pub sum: bool,
    /// Literal requests instead of generated ones, for services of other protocols.
    #[serde(default)]
    pub lines: Option<Lines>,
    /// Queries for names of a DNS zone instead, whose servers run beside the target.
    #[serde(default)]
    pub zone: Option<ZoneNames>,
    /// Messages to a broker instead, at every quality of service, and retained ones; `keys` topics of each.
    #[serde(default)]
    pub mqtt: bool,
    /// Statements on rows of one table instead, as simple queries of PostgreSQL's protocol; `keys` keys.
    #[serde(default)]
    pub sql: bool,
}

/// The names of a zone that are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneNames {
    /// Hosts of each zone.
    pub hosts: u64,
    /// Zones.
    pub zones: u64,
}

/// Literal requests, each a line without its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    /// Before the measured part.
    pub warmup: Vec<String>,
    /// The measured part.
    pub requests: Vec<String>,
    /// A request without effect, sent between warm-up and measured part.
    pub poke: String,
}

fn one() -> u64 {
    1
}
fn keys() -> u64 {
    36
}
fn warmup() -> u64 {
    108
}
fn requests() -> u64 {
    422
}
fn value() -> [u64; 2] {
    [8, 220]
}

impl Default for Recipe {
    fn default() -> Self {
        Recipe {
            seed: one(),
            keys: keys(),
            warmup: warmup(),
            requests: requests(),
            value: value(),
            sum: false,
            lines: None,
            zone: None,
            mqtt: false,
            sql: false,
        }
    }
}

/// The requests, in their parts.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Sent and answered before the measured part.
    pub warmup: Vec<TraceRequest>,
    /// A request without effect: brings the server back to its event loop.
    pub poke: TraceRequest,
    /// The measured part.
    pub measured: Vec<TraceRequest>,
}

impl Trace {
    /// Makes the requests.
    pub fn new(recipe: &Recipe) -> Self {
        if let Some(lines) = &recipe.lines {
            let request = |line: &String| plain(format!("{line}\n").into_bytes(), Vec::new());
            return Trace {
                warmup: lines.warmup.iter().map(request).collect(),
                poke: request(&lines.poke),
                measured: lines.requests.iter().map(request).collect(),
            };
        }
        if let Some(names) = &recipe.zone {
            return Trace::of_zone(recipe, names);
        }
        if recipe.mqtt {
            return Trace::of_messages(recipe);
        }
        if recipe.sql {
            return Trace::of_statements(recipe);
        }
        let mut maker = Maker { stream: draw::stream(recipe.seed, 0, 0), recipe };
        // One item of every size first: a slab allocator then has its pages, which are long work, before the
        // measured part.
        let mut warmup: Vec<TraceRequest> = (0..SIZES).map(|number| maker.sized(number)).collect();
        warmup
            .extend((0..recipe.warmup).map(|number| maker.store(StoreVerb::Set, &key(number % recipe.keys))));
        let mut measured: Vec<TraceRequest> = (0..recipe.requests).map(|_| maker.mixed()).collect();
        measured.extend((0..recipe.keys).map(|number| maker.get(false, &[key(number)])));
        let noop = plain(b"mn\r\n".to_vec(), Vec::new());
        measured.push(noop.clone());
        let mut trace = Trace { warmup, poke: noop, measured };
        if recipe.sum {
            trace.sum();
        }
        trace
    }

    /// Queries for a zone: of the measured ones, those for new names make the target ask the zone's servers. At the end
    /// each is asked again, from the target's cache.
    fn of_zone(recipe: &Recipe, names: &ZoneNames) -> Self {
        let mut stream = draw::stream(recipe.seed, 0, 0);
        let mut any = || loop {
            // A resolver tries the servers of a delegated zone in an order that differs with each of its runs: only
            // zones of the first server, which have an even number.
            let zone = 2 * stream.below(names.zones);
            let question = Question {
                host: stream.below(names.hosts),
                zone,
                kind: *stream.pick(&[A, A, A, MX, TXT, CNAME]),
            };
            // Longer ones are asked for again over a stream.
            if question.fits() {
                return question;
            }
        };
        let warmup: Vec<Question> = (0..recipe.warmup).map(|_| any()).collect();
        let poke = any();
        let mut measured: Vec<Question> = (0..recipe.requests).map(|_| any()).collect();
        let questions: BTreeSet<Question> = measured.iter().chain(&warmup).copied().collect();
        measured.extend(questions);
        let mut id = 0;
        let mut query = |question: Question| {
            id += 1;
            let query = question.query(id);
            // As over a stream: the length first.
            plain([&(query.len() as u16).to_be_bytes(), &query[..]].concat(), vec![question.name()])
        };
        Trace {
            warmup: warmup.into_iter().chain([poke]).map(&mut query).collect(),
            poke: query(poke),
            measured: measured.into_iter().map(&mut query).collect(),
        }
    }

    /// Messages that come back to the client that publishes them, and retained ones, which are asked for at the end.
    fn of_messages(recipe: &Recipe) -> Self {
        let mut maker = Messages { stream: draw::stream(recipe.seed, 0, 0), recipe, id: 0, theirs: 0 };
        let mut warmup = vec![mqtt::connect("trace", true)];
        warmup.extend((0..3).map(|qos| mqtt::subscribe(1, &format!("{qos}/#"), qos)));
        warmup.extend((0..recipe.keys).map(|topic| maker.retain(topic)));
        warmup.extend((0..recipe.warmup).map(|_| maker.mixed()));
        let mut measured: Vec<Vec<u8>> = (0..recipe.requests).map(|_| maker.mixed()).collect();
        measured.extend((0..recipe.keys).map(|topic| maker.retained(topic)));
        let request = |packets: Vec<u8>| plain([&packets[..], &mqtt::PING].concat(), Vec::new());
        Trace {
            warmup: warmup.into_iter().map(request).collect(),
            poke: request(Vec::new()),
            measured: measured.into_iter().map(request).collect(),
        }
    }

    /// Statements of one connection: a row for each key first, mixed ones, and then every row and their sum.
    fn of_statements(recipe: &Recipe) -> Self {
        let mut stream = draw::stream(recipe.seed, 0, 0);
        let mut model = RowsModel::new("t".to_owned()).with_keys(recipe.keys);
        let request = |one: Expected| plain(one.request, Vec::new());
        let mut warmup: Vec<TraceRequest> =
            RowsModel::opening().into_iter().map(|bytes| plain(bytes, Vec::new())).collect();
        warmup.extend((0..recipe.keys).map(|number| request(model.insert(number, &mut stream))));
        warmup.extend((0..recipe.warmup).map(|_| request(model.next(&mut stream))));
        let mut measured: Vec<TraceRequest> =
            (0..recipe.requests).map(|_| request(model.next(&mut stream))).collect();
        measured.extend((0..recipe.keys).map(|number| request(model.select(number))));
        measured.push(request(model.sum()));
        Trace { warmup, poke: plain(RowsModel::nothing(), Vec::new()), measured }
    }

    /// Adds CRCs to all requests.
    fn sum(&mut self) {
        for request in self.warmup.iter_mut().chain([&mut self.poke]).chain(&mut self.measured) {
            let plain = std::mem::take(&mut request.bytes);
            (request.bytes, request.seed) = Protocol::MemcachedSummed.request(plain);
        }
    }

    /// All bytes of the measured part.
    pub fn measured_bytes(&self) -> Vec<u8> {
        self.measured.iter().flat_map(|request| request.bytes.iter().copied()).collect()
    }
}

fn key(number: u64) -> String {
    // Counters have keys of their own, so that incr and decr always find numbers.
    format!("key-{number:04}")
}

fn plain(bytes: Vec<u8>, keys: Vec<Vec<u8>>) -> TraceRequest {
    TraceRequest { bytes, keys, seed: 0 }
}

/// Items of different sizes, each a sixth longer than the last: up to 2.5 KiB.
const SIZES: u32 = 38;

/// Makes requests to a broker.
struct Messages<'a> {
    stream: SplitMix64,
    recipe: &'a Recipe,
    /// Of the last packet with an id.
    id: u16,
    /// Of the last message that the broker has sent with an id: it counts them.
    theirs: u16,
}

impl Messages<'_> {
    fn payload(&mut self) -> Vec<u8> {
        let [least, most] = self.recipe.value;
        (0..least + self.stream.below(most - least + 1)).map(|_| self.stream.next_u64() as u8).collect()
    }

    fn mixed(&mut self) -> Vec<u8> {
        let topic = self.stream.below(self.recipe.keys);
        match self.stream.below(6) {
            4 => self.retain(topic),
            5 => self.retained(topic),
            kind => self.message(topic, kind.min(2) as u8),
        }
    }

    /// A message, all acknowledgements of it, and those of its copy, which the broker sends back.
    fn message(&mut self, topic: u64, qos: u8) -> Vec<u8> {
        let payload = self.payload();
        self.id += 1;
        let mut bytes = mqtt::publish(self.id, &format!("{qos}/{topic}"), &payload, qos, false);
        if qos > 0 {
            self.theirs += 1;
        }
        match qos {
            0 => {}
            1 => bytes.extend(mqtt::acknowledge(mqtt::PUBACK, self.theirs)),
            _ => {
                bytes.extend(mqtt::acknowledge(mqtt::PUBREL, self.id));
                bytes.extend(mqtt::acknowledge(mqtt::PUBREC, self.theirs));
                bytes.extend(mqtt::acknowledge(mqtt::PUBCOMP, self.theirs));
            }
        }
        bytes
    }

    /// A message that the broker keeps.
    fn retain(&mut self, topic: u64) -> Vec<u8> {
        let payload = self.payload();
        self.id += 1;
        mqtt::publish(self.id, &format!("r/{topic}"), &payload, 1, true)
    }

    /// Asks for one that it keeps.
    fn retained(&mut self, topic: u64) -> Vec<u8> {
        self.id += 2;
        let topic = format!("r/{topic}");
        [mqtt::subscribe(self.id - 1, &topic, 0), mqtt::unsubscribe(self.id, &topic)].concat()
    }
}

struct Maker<'a> {
    stream: SplitMix64,
    recipe: &'a Recipe,
}

impl Maker<'_> {
    fn mixed(&mut self) -> TraceRequest {
        let one = self.any_key();
        match self.stream.below(100) {
            0..35 => self.get(false, &[one]),
            35..43 => self.get(true, &[one]),
            43..51 => {
                let keys = [one, self.any_key(), self.any_key()];
                self.get(false, &keys)
            }
            51..68 => self.store(StoreVerb::Set, &one),
            68..72 => {
                let unique = 1 + self.stream.below(200);
                let (value, flags) = self.value();
                on(&one, KeyCommand::Cas { unique, flags, expiry: 0, value: value.into() })
            }
            72..75 => self.store(StoreVerb::Append, &one),
            75..78 => self.store(StoreVerb::Add, &one),
            78..82 => self.store(StoreVerb::Replace, &one),
            82..85 => {
                let key = self.counter();
                let number = self.stream.below(1_000_000).to_string();
                on(&key, KeyCommand::store(StoreVerb::Set, number.as_bytes()))
            }
            85..90 => self.count(true),
            90..94 => self.count(false),
            94..97 => on(&one, KeyCommand::Delete),
            _ => on(&one, KeyCommand::Touch { expiry: 0 }),
        }
    }

    fn any_key(&mut self) -> String {
        key(self.stream.below(self.recipe.keys))
    }

    fn counter(&mut self) -> String {
        format!("count-{}", self.stream.below(4))
    }

    fn get(&mut self, unique: bool, keys: &[String]) -> TraceRequest {
        let mut bytes = Vec::new();
        write_get(unique, keys, &mut bytes);
        plain(bytes, keys.iter().map(|key| key.clone().into_bytes()).collect())
    }

    /// A value and flags.
    fn value(&mut self) -> (Vec<u8>, u32) {
        let [low, high] = self.recipe.value;
        let length = low + self.stream.below(high.saturating_sub(low) + 1);
        (letters(length, &mut self.stream), self.stream.below(8) as u32)
    }

    fn store(&mut self, verb: StoreVerb, key: &str) -> TraceRequest {
        let (value, flags) = self.value();
        on(key, KeyCommand::Store { verb, flags, expiry: 0, value: value.into() })
    }

    fn sized(&mut self, number: u32) -> TraceRequest {
        let length = (8.0 * (7.0_f64 / 6.0).powi(number as i32)) as usize;
        on(&format!("size-{number}"), KeyCommand::store(StoreVerb::Set, &vec![b's'; length]))
    }

    fn count(&mut self, up: bool) -> TraceRequest {
        let key = self.counter();
        on(&key, KeyCommand::Count { up, by: self.stream.below(1000) })
    }
}

fn on(key: &str, command: KeyCommand<'_>) -> TraceRequest {
    plain(command.classic().bytes(key.as_bytes()), vec![key.as_bytes().to_vec()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_recipe_makes_the_same_bytes_and_another_seed_others() {
        let bytes = |seed| Trace::new(&Recipe { seed, ..Recipe::default() }).measured_bytes();
        assert_eq!(bytes(1), bytes(1));
        assert_ne!(bytes(1), bytes(2));
        let text = String::from_utf8(bytes(1)).expect("text");
        for word in [
            "get ", "gets ", "set ", "cas ", "append ", "add ", "replace ", "incr ", "decr ", "delete ",
            "touch ",
        ] {
            assert!(text.contains(&format!("\r\n{word}")), "{word}");
        }
        assert!(text.ends_with("mn\r\n"));
    }

    #[test]
    fn queries_have_ids_of_their_own_and_each_is_asked_again() {
        let names = Some(ZoneNames { hosts: 20, zones: 3 });
        let recipe = Recipe { zone: names, warmup: 10, requests: 30, ..Recipe::default() };
        let trace = Trace::new(&recipe);
        assert_eq!(trace.measured, Trace::new(&recipe).measured);
        assert_ne!(trace.measured, Trace::new(&Recipe { seed: 2, ..recipe }).measured);
        let all: Vec<&TraceRequest> =
            trace.warmup.iter().chain([&trace.poke]).chain(&trace.measured).collect();
        let ids: BTreeSet<_> = all.iter().map(|request| zone::id(&request.bytes[2..])).collect();
        assert_eq!(ids.len(), all.len());
        let question = |request: &TraceRequest| Question::of(&request.bytes[2..]).expect("a query");
        let last: BTreeSet<Question> = trace.measured[30..].iter().map(question).collect();
        assert!(
            trace.measured[..30].iter().chain(&trace.warmup[..10]).all(|one| last.contains(&question(one)))
        );
        assert!(
            trace.measured[..30]
                .iter()
                .any(|one| !trace.warmup.iter().any(|two| question(one) == question(two)))
        );
        assert!(trace.measured.iter().all(|one| question(one).zone % 2 == 0));
    }

    #[test]
    fn sums_precede_the_same_requests() {
        let trace = |sum| Trace::new(&Recipe { sum, ..Recipe::default() });
        let (without, with) = (trace(false), trace(true));
        assert_eq!(without.measured.len(), with.measured.len());
        for (plain, summed) in without.measured.iter().zip(&with.measured) {
            assert_eq!(summed.bytes[20..], plain.bytes, "a line of 20 bytes and the request");
            assert!(summed.bytes.starts_with(b"@") && summed.seed != 0 && plain.seed == 0);
        }
        assert!(with.poke.bytes.starts_with(b"@") && with.warmup[0].bytes.starts_with(b"@"));
    }

    #[test]
    fn statements_open_the_connection_and_end_with_every_row() {
        let recipe = Recipe { sql: true, keys: 5, warmup: 9, requests: 20, ..Recipe::default() };
        let trace = Trace::new(&recipe);
        assert_eq!((trace.warmup.len(), trace.measured.len()), (2 + 5 + 9, 20 + 5 + 1));
        assert_eq!(trace.warmup[0].bytes[4..8], 196_608_u32.to_be_bytes());
        assert!(trace.measured.iter().all(|request| request.bytes.starts_with(b"Q")));
        assert_eq!(trace.measured, Trace::new(&recipe).measured);
        assert_ne!(trace.measured, Trace::new(&Recipe { seed: 2, ..recipe }).measured);
    }

    /// Recorded campaigns depend on these bytes, which were recorded before the laboratory's clients became one.
    #[test]
    fn a_known_seed_keeps_its_requests() {
        let hashes = [false, true].map(|sum| {
            let trace = Trace::new(&Recipe { seed: 7, requests: 3_000, sum, ..Recipe::default() });
            let warmup = trace.warmup.iter().flat_map(|request| request.bytes.iter().copied());
            xxhash_rust::xxh3::xxh3_64(&warmup.chain(trace.measured_bytes()).collect::<Vec<u8>>())
        });
        assert_eq!(hashes, [3_863_825_262_942_629_627, 16_326_420_685_849_822_814]);
    }
}
