//! An independent model of memcached for one connection that has its keys for itself, and a client that checks every
//! reply against it. It shares no code with the server under test.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use wire::SplitMix64;

use crate::draw;
use crate::protocol::{Protocol, ReplyFrame, Wrong};

/// Requests that a client sends before it waits for replies.
const BATCH: usize = 8;
/// Keys of a connection.
const KEYS: u64 = 40;
/// Longest value, in bytes.
const LONGEST: u64 = 300;
/// A reply that takes longer counts as lack of progress.
pub const PATIENCE: Duration = Duration::from_secs(8);
/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);

/// The item stored under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TraceItem {
    flags: u64,
    data: Vec<u8>,
}

/// The keys of one connection.
#[derive(Debug)]
pub struct TraceModel {
    prefix: String,
    items: BTreeMap<String, TraceItem>,
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
            48..72 => self.store("set", key, stream),
            72..76 => self.store("add", key, stream),
            76..80 => self.store("replace", key, stream),
            80..84 => self.append(&key, stream),
            84..94 => self.increment(stream),
            _ => {
                let gone = self.items.remove(&key).is_some();
                let reply = if gone { "DELETED\r\n" } else { "NOT_FOUND\r\n" };
                expected(format!("delete {key}\r\n"), &[key], reply.into())
            }
        }
    }

    fn key(&self, stream: &mut SplitMix64) -> String {
        format!("{}k{}", self.prefix, stream.below(KEYS))
    }

    fn get(&self, keys: &[String]) -> Expected {
        let mut reply = Vec::new();
        for key in keys {
            if let Some(item) = self.items.get(key) {
                reply.extend_from_slice(
                    format!("VALUE {key} {} {}\r\n", item.flags, item.data.len()).as_bytes(),
                );
                reply.extend_from_slice(&item.data);
                reply.extend_from_slice(b"\r\n");
            }
        }
        reply.extend_from_slice(b"END\r\n");
        expected(format!("get {}\r\n", keys.join(" ")), keys, reply)
    }

    fn store(&mut self, word: &str, key: String, stream: &mut SplitMix64) -> Expected {
        let item =
            TraceItem { flags: stream.below(1 << 16), data: letters(1 + stream.below(LONGEST), stream) };
        let fits = match word {
            "add" => !self.items.contains_key(&key),
            "replace" => self.items.contains_key(&key),
            _ => true,
        };
        let line = format!("{word} {key} {} 0 {}\r\n{}\r\n", item.flags, item.data.len(), text(&item.data));
        if fits {
            self.items.insert(key.clone(), item);
        }
        expected(line, &[key], if fits { b"STORED\r\n".to_vec() } else { b"NOT_STORED\r\n".to_vec() })
    }

    fn append(&mut self, key: &str, stream: &mut SplitMix64) -> Expected {
        let tail = letters(1 + stream.below(20), stream);
        let line = format!("append {key} 0 0 {}\r\n{}\r\n", tail.len(), text(&tail));
        let reply = match self.items.get_mut(key) {
            Some(item) if item.data.len() < 2_000 => {
                item.data.extend_from_slice(&tail);
                b"STORED\r\n".to_vec()
            }
            Some(_) => return self.get(&[key.to_owned()]),
            None => b"NOT_STORED\r\n".to_vec(),
        };
        expected(line, &[key.to_owned()], reply)
    }

    fn increment(&mut self, stream: &mut SplitMix64) -> Expected {
        let key = format!("{}n{}", self.prefix, stream.below(8));
        let by = stream.below(1_000_000);
        let Some(item) = self.items.get_mut(&key) else {
            self.items.insert(key.clone(), TraceItem { flags: 0, data: b"10000000".to_vec() });
            return expected(format!("set {key} 0 0 8\r\n10000000\r\n"), &[key], b"STORED\r\n".to_vec());
        };
        let number = text(&item.data).parse::<u64>().unwrap_or(0) + by;
        item.data = number.to_string().into_bytes();
        expected(format!("incr {key} {by}\r\n"), &[key], format!("{number}\r\n").into_bytes())
    }
}

fn expected(request: String, keys: &[String], reply: Vec<u8>) -> Expected {
    let keys = keys.iter().map(|key| key.clone().into_bytes()).collect();
    Expected { request: request.into_bytes(), keys, reply, seed: 0 }
}

fn letters(count: u64, stream: &mut SplitMix64) -> Vec<u8> {
    (0..count).map(|_| b'a' + stream.below(26) as u8).collect()
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
    pub told: String,
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
    /// memcached's text protocol, with or without CRCs.
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
        let model = TraceModel::new(format!("{seed:x}c{replica}g{generation}"));
        if let Ok(connection) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
            match talk(connection, (model, protocol), &mut stream, tally, stop) {
                Ok(None) => {}
                Ok(Some((wrong, expected, told))) => {
                    let wrong = WrongReply { wrong, replica, expected, told };
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
    mut connection: TcpStream,
    (mut model, protocol): (TraceModel, Protocol),
    stream: &mut SplitMix64,
    tally: &Tally,
    stop: &AtomicBool,
) -> io::Result<Option<(Wrong, Expected, String)>> {
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    let mut bytes = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let batch: Vec<Expected> = (0..BATCH).map(|_| model.next(stream).in_protocol(protocol)).collect();
        let requests: Vec<u8> = batch.iter().flat_map(|one| one.request.iter().copied()).collect();
        connection.write_all(&requests)?;
        for one in &batch {
            let (got, malformed) = read_one(&mut connection, protocol, &mut bytes)?;
            let wrong = match malformed {
                true => Some(Wrong::Malformed),
                false => protocol.difference(&one.keys, one.seed, &one.reply, &got),
            };
            if let Some(wrong) = wrong {
                let show = |bytes: &[u8]| text(&bytes[..bytes.len().min(400)]).escape_debug().to_string();
                let told =
                    format!("{} | right: {} | got: {}", show(&one.request), show(&one.reply), show(&got));
                return Ok(Some((wrong, one.clone(), told)));
            }
        }
        tally.batches.fetch_add(1, Ordering::Relaxed);
    }
    Ok(None)
}

/// The reply to one request on a connection of its own.
///
/// # Errors
/// When there is none.
pub fn ask_once(address: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut connection = TcpStream::connect_timeout(&address, Duration::from_millis(500))?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(request)?;
    Ok(read_one(&mut connection, Protocol::Memcached, &mut Vec::new())?.0)
}

/// One reply, and whether it violates the protocol.
fn read_one(
    connection: &mut TcpStream,
    protocol: Protocol,
    bytes: &mut Vec<u8>,
) -> io::Result<(Vec<u8>, bool)> {
    loop {
        match protocol.frame(bytes) {
            ReplyFrame::Whole(length) => return Ok((bytes.drain(..length).collect(), false)),
            ReplyFrame::Malformed => return Ok((std::mem::take(bytes), true)),
            ReplyFrame::Part => {}
        }
        let mut buffer = [0; 8192];
        match connection.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_remembers_what_was_stored() {
        let mut model = TraceModel::new("x".into());
        let mut stream = draw::stream(1, 0, 0);
        let stored = model.store("set", "xk1".into(), &mut stream);
        assert_eq!(stored.reply, b"STORED\r\n");
        let reply = model.get(&["xk1".into(), "xk2".into()]).reply;
        assert!(reply.starts_with(b"VALUE xk1 ") && reply.ends_with(b"\r\nEND\r\n"));
        assert_eq!(model.store("add", "xk1".into(), &mut stream).reply, b"NOT_STORED\r\n");
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
        let connection = TcpStream::connect(address).expect("connected");
        let model = (TraceModel::new("x".into()), Protocol::Memcached);
        let told = talk(connection, model, &mut draw::stream(1, 0, 0), &tally, &AtomicBool::new(false));
        assert!(told.expect("an answer").is_some());
    }
}
