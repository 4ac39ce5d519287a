//! Requests on keys that one connection has for itself, so that each has one right reply, and a client that checks
//! every reply. What is right says the model of `memcached-client`, which shares no code with the server under test.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use memcached_client::request::{letters, write_get};
use memcached_client::{BufferedStream, CachedItem, KeyCommand, StoreVerb};
use wire::SplitMix64;

use crate::draw;
use crate::protocol::{Protocol, ReplyFrame, Wrong};
use crate::rows::RowsModel;

/// Requests that a client sends before it waits for replies.
const BATCH: usize = 8;
/// Keys of a connection.
const KEYS: u64 = 40;
/// Longest value, in bytes.
const LONGEST: u64 = 300;
/// A reply that takes longer counts as lack of progress.
pub const PATIENCE: Duration = Duration::from_secs(8);
/// How long a server may take to accept.
const CONNECT: Duration = Duration::from_millis(500);
/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);

/// The keys of one connection.
#[derive(Debug)]
pub struct TraceModel {
    prefix: String,
    items: BTreeMap<String, CachedItem>,
}

/// A request with the only right reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The bytes that are sent.
    pub request: Vec<u8>,
    /// Keys that it requests.
    pub keys: Vec<Vec<u8>>,
    /// The right reply.
    pub reply: Vec<u8>,
    /// The CRC from which that of its reply is continued; 0 where replies have none.
    pub seed: u32,
}

impl Expected {
    /// The same request in `protocol`.
    fn in_protocol(self, protocol: Protocol) -> Self {
        let (request, seed) = protocol.request(self.request);
        Expected { request, keys: self.keys, reply: protocol.reply(seed, self.reply), seed }
    }
}

impl TraceModel {
    /// Keys that begin with `prefix`, none stored.
    pub fn new(prefix: String) -> Self {
        TraceModel { prefix, items: BTreeMap::new() }
    }

    /// Draws a request and applies it.
    pub fn next(&mut self, stream: &mut SplitMix64) -> Expected {
        let key = self.key(stream);
        match stream.below(100) {
            0..40 => self.get(&[key]),
            40..48 => {
                let other = self.key(stream);
                self.get(&[key, other])
            }
            48..72 => self.store(StoreVerb::Set, key, stream),
            72..76 => self.store(StoreVerb::Add, key, stream),
            76..80 => self.store(StoreVerb::Replace, key, stream),
            80..84 => self.append(key, stream),
            84..94 => self.increment(stream),
            _ => self.one(key, KeyCommand::Delete),
        }
    }

    fn key(&self, stream: &mut SplitMix64) -> String {
        format!("{}k{}", self.prefix, stream.below(KEYS))
    }

    fn get(&self, keys: &[String]) -> Expected {
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        write_get(false, keys, &mut request);
        for key in keys {
            let value = self.items.get(key).and_then(|item| item.rendered(key, false).bytes());
            reply.extend(value.unwrap_or_default());
        }
        reply.extend_from_slice(b"END\r\n");
        Expected { request, keys: keys.iter().map(|key| key.clone().into_bytes()).collect(), reply, seed: 0 }
    }

    /// Applies a command on one key.
    fn one(&mut self, key: String, command: KeyCommand<'_>) -> Expected {
        let request = command.classic();
        let (after, reply) = request.apply(&key, &self.items.remove(&key));
        let expected = Expected {
            request: request.bytes(key.as_bytes()),
            keys: vec![key.clone().into_bytes()],
            // Nothing that is sent here asks for a number that only the server knows.
            reply: reply.bytes().unwrap_or_default(),
            seed: 0,
        };
        self.items.extend(after.map(|item| (key, item)));
        expected
    }

    fn store(&mut self, verb: StoreVerb, key: String, stream: &mut SplitMix64) -> Expected {
        let flags = stream.below(1 << 16) as u32;
        let value = Cow::Owned(letters(1 + stream.below(LONGEST), stream));
        self.one(key, KeyCommand::Store { verb, flags, expiry: 0, value })
    }

    fn append(&mut self, key: String, stream: &mut SplitMix64) -> Expected {
        let tail = letters(1 + stream.below(20), stream);
        if self.items.get(&key).is_some_and(|item| item.value.len() >= 2_000) {
            return self.get(&[key]);
        }
        self.one(key, KeyCommand::store(StoreVerb::Append, &tail))
    }

    fn increment(&mut self, stream: &mut SplitMix64) -> Expected {
        let key = format!("{}n{}", self.prefix, stream.below(8));
        let by = stream.below(1_000_000);
        if self.items.contains_key(&key) {
            self.one(key, KeyCommand::Count { up: true, by })
        } else {
            self.one(key, KeyCommand::store(StoreVerb::Set, b"10000000"))
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A wrong reply.
#[derive(Clone, Debug)]
pub struct WrongReply {
    /// How it deviates.
    pub wrong: Wrong,
    /// The replica that sent it.
    pub replica: u8,
    /// The request and its right reply.
    pub expected: Expected,
    /// The request, the right reply and the received reply, as text.
    pub details: String,
}

/// The observations of one replica's client so far.
#[derive(Debug, Default)]
pub struct Tally {
    /// Batches whose replies were all right.
    pub batches: AtomicU64,
    /// Connections that ended or timed out.
    pub breaks: AtomicU64,
    /// Replies that were wrong.
    pub wrong: Mutex<Vec<WrongReply>>,
}

/// A client's server, and how it talks to it.
#[derive(Clone, Copy, Debug)]
pub struct ModelClient {
    /// The client's number, that of its replica.
    pub number: u8,
    /// Where the server listens.
    pub address: SocketAddr,
    /// memcached's text protocol, with or without CRCs, or PostgreSQL's.
    pub protocol: Protocol,
    /// Decides its requests.
    pub seed: u64,
}

/// Drives one replica until `stop`, with new keys after every break, because the effect of requests without a reply is
/// unknown.
pub fn drive(client: ModelClient, tally: &Tally, stop: &AtomicBool) {
    let ModelClient { number: replica, address, protocol, seed } = client;
    let mut stream = draw::stream(seed, 100 + u64::from(replica), 0);
    let mut generation = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        generation += 1;
        let model = RequestModel::new(format!("{seed:x}c{replica}g{generation}"), protocol);
        if let Ok(connection) = BufferedStream::open(address, CONNECT, PATIENCE) {
            match talk(connection, model, &mut stream, tally, stop) {
                Ok(None) => {}
                Ok(Some((wrong, expected, details))) => {
                    let wrong = WrongReply { wrong, replica, expected, details };
                    tally.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(wrong);
                }
                Err(_) => {
                    tally.breaks.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        std::thread::sleep(RETRY);
    }
}

/// Sends requests until the first wrong reply, a break, or `stop`.
fn talk(
    mut connection: BufferedStream,
    mut model: RequestModel,
    stream: &mut SplitMix64,
    tally: &Tally,
    stop: &AtomicBool,
) -> io::Result<Option<(Wrong, Expected, String)>> {
    let protocol = model.protocol();
    for request in model.opening() {
        connection.send(&request)?;
        read_one(&mut connection, protocol)?;
    }
    while !stop.load(Ordering::Relaxed) {
        let batch: Vec<Expected> = (0..BATCH).map(|_| model.next(stream)).collect();
        let requests: Vec<u8> = batch.iter().flat_map(|one| one.request.iter().copied()).collect();
        connection.send(&requests)?;
        for one in &batch {
            let (got, malformed) = read_one(&mut connection, protocol)?;
            let wrong = match malformed {
                true => Some(Wrong::Malformed),
                false => protocol.difference(&one.keys, one.seed, &one.reply, &got),
            };
            if let Some(wrong) = wrong {
                let show = |bytes: &[u8]| text(&bytes[..bytes.len().min(400)]).escape_debug().to_string();
                let details =
                    format!("{} | right: {} | got: {}", show(&one.request), show(&one.reply), show(&got));
                return Ok(Some((wrong, one.clone(), details)));
            }
        }
        tally.batches.fetch_add(1, Ordering::Relaxed);
    }
    Ok(None)
}

/// The requests of one connection, in the protocol of its server.
#[derive(Debug)]
enum RequestModel {
    /// Of a cache.
    Items(TraceModel, Protocol),
    /// Of a table.
    Rows(RowsModel),
}

impl RequestModel {
    fn new(prefix: String, protocol: Protocol) -> Self {
        match protocol {
            Protocol::Postgres => RequestModel::Rows(RowsModel::new(prefix)),
            _ => RequestModel::Items(TraceModel::new(prefix), protocol),
        }
    }

    fn protocol(&self) -> Protocol {
        match self {
            RequestModel::Items(_, protocol) => *protocol,
            RequestModel::Rows(_) => Protocol::Postgres,
        }
    }

    /// What is sent before the first request, and answered, but not compared.
    fn opening(&self) -> Vec<Vec<u8>> {
        match self {
            RequestModel::Items(..) => Vec::new(),
            RequestModel::Rows(_) => RowsModel::opening().into(),
        }
    }

    fn next(&mut self, stream: &mut SplitMix64) -> Expected {
        match self {
            RequestModel::Items(model, protocol) => model.next(stream).in_protocol(*protocol),
            RequestModel::Rows(model) => model.next(stream),
        }
    }
}

/// The reply to one request on a connection of its own.
///
/// # Errors
/// When there is none.
pub fn ask_once(address: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut connection = BufferedStream::open(address, CONNECT, PATIENCE)?;
    connection.send(request)?;
    Ok(read_one(&mut connection, Protocol::Memcached)?.0)
}

/// One reply, and whether it violates the protocol.
fn read_one(connection: &mut BufferedStream, protocol: Protocol) -> io::Result<(Vec<u8>, bool)> {
    loop {
        let unread = connection.unread();
        let (length, malformed) = match protocol.frame(unread) {
            ReplyFrame::Whole(length) => (length, false),
            ReplyFrame::Malformed => (unread.len(), true),
            ReplyFrame::Part => {
                connection.fill()?;
                continue;
            }
        };
        let reply = unread[..length].to_vec();
        connection.take(length);
        return Ok((reply, malformed));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn the_model_remembers_what_was_stored() {
        let mut model = TraceModel::new("x".into());
        let mut stream = draw::stream(1, 0, 0);
        let stored = model.store(StoreVerb::Set, "xk1".into(), &mut stream);
        assert_eq!(stored.reply, b"STORED\r\n");
        let reply = model.get(&["xk1".into(), "xk2".into()]).reply;
        assert!(reply.starts_with(b"VALUE xk1 ") && reply.ends_with(b"\r\nEND\r\n"));
        assert_eq!(model.store(StoreVerb::Add, "xk1".into(), &mut stream).reply, b"NOT_STORED\r\n");
    }

    /// Sends a right reply, then one with a changed letter.
    #[test]
    fn a_server_that_lies_is_caught() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a client");
            let _ = connection.read(&mut [0; 65536]);
            let _ = connection.write_all(&b"VALUE foreign 0 1\r\nx\r\nEND\r\n".repeat(BATCH));
            let _ = connection.read(&mut [0; 1]);
        });
        let tally = Tally::default();
        let connection = BufferedStream::open(address, CONNECT, PATIENCE).expect("connected");
        let model = RequestModel::new("x".into(), Protocol::Memcached);
        let found = talk(connection, model, &mut draw::stream(1, 0, 0), &tally, &AtomicBool::new(false));
        assert!(found.expect("an answer").is_some());
    }

    /// Recorded campaigns depend on these requests, and on what is right for them; both were recorded before the
    /// laboratory's models became one.
    #[test]
    fn a_known_seed_keeps_its_requests_and_replies() {
        let (mut model, mut stream) = (TraceModel::new("x".into()), draw::stream(7, 0, 0));
        let mut bytes = Vec::new();
        for _ in 0..20_000 {
            let one = model.next(&mut stream);
            bytes.extend([one.request, one.keys.concat(), one.reply].concat());
        }
        assert_eq!(xxhash_rust::xxh3::xxh3_64(&bytes), 9_147_326_541_041_175_705);
    }
}
