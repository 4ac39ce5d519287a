//! The load against servers that send wrong replies: a comparison that cannot fail would prove nothing.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::{Load, LoadCounts, Shape};

type Items = Arc<Mutex<BTreeMap<String, (String, Vec<u8>)>>>;

/// The error of the test server, given the count of replies so far.
#[derive(Clone, Copy)]
enum Lie {
    Nothing,
    FlipsABitOfAValue,
    ForgetsASet,
    CountsTwice,
    ClosesWithoutAnswer,
}

/// The commands of memcached that the load needs; it sends one kind of wrong reply, first at its thousandth reply, and
/// then in the same way every time.
fn little_server(lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let items = Items::default();
    let count = Arc::new(Mutex::new(0u64));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (items, count) = (items.clone(), count.clone());
            thread::spawn(move || serve(&stream.expect("a connection"), &items, &count, lie));
        }
    });
    address
}

fn serve(stream: &TcpStream, items: &Items, count: &Mutex<u64>, lie: Lie) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut input = BufReader::new(stream);
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut items = items.lock().expect("items");
        let mut count = count.lock().expect("count");
        *count += 1;
        let lies = count.is_multiple_of(1000);
        if lies && matches!(lie, Lie::ClosesWithoutAnswer) {
            return None;
        }
        let reply = match words.as_slice() {
            ["set", key, flags, _, length] => {
                let mut value = vec![0; length.parse::<usize>().ok()? + 2];
                input.read_exact(&mut value).ok()?;
                value.truncate(value.len() - 2);
                if !(lies && matches!(lie, Lie::ForgetsASet)) {
                    items.insert((*key).to_owned(), ((*flags).to_owned(), value));
                }
                b"STORED\r\n".to_vec()
            }
            ["incr", key, by] => {
                let twice = u64::from(lies && matches!(lie, Lie::CountsTwice));
                let (_, value) = items.get_mut(*key)?;
                let number: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
                let number = number + by.parse::<u64>().ok()? + twice;
                *value = number.to_string().into_bytes();
                format!("{number}\r\n").into_bytes()
            }
            ["get", key] => match items.get(*key) {
                None => b"END\r\n".to_vec(),
                Some((flags, value)) => {
                    let mut value = value.clone();
                    if lies && matches!(lie, Lie::FlipsABitOfAValue) {
                        value[3] ^= 1;
                    }
                    let mut reply = format!("VALUE {key} {flags} {}\r\n", value.len()).into_bytes();
                    reply.extend_from_slice(&value);
                    reply.extend_from_slice(b"\r\nEND\r\n");
                    reply
                }
            },
            _ => b"ERROR\r\n".to_vec(),
        };
        drop((items, count));
        let mut output = stream;
        output.write_all(&reply).ok()?;
    }
}

/// Runs a checked load until it detects an error or receives `replies` replies.
fn seen_of(lie: Lie, replies: u64) -> LoadCounts {
    let shape = Shape { keys: 5, value_size: 20, sets: 300, incrs: 300, pipeline: 3, check: true };
    let load = Load::start(&shape, 2, &[little_server(lie)], 1).expect("started");
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let seen = load.tally.seen();
        if seen.wrong > 0 || seen.answered >= replies || Instant::now() > deadline {
            let tally = Arc::clone(&load.tally);
            load.end();
            return tally.seen();
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_honest_server_is_never_accused() {
    let seen = seen_of(Lie::Nothing, 5_000);
    assert!(seen.answered >= 5_000 && seen.refused == 0, "{seen:?}");
    assert_eq!((seen.wrong, seen.broken), (0, 0), "{seen:?}");
}

#[test]
fn a_flipped_bit_a_lost_set_and_a_doubled_incr_are_seen() {
    for lie in [Lie::FlipsABitOfAValue, Lie::ForgetsASet, Lie::CountsTwice] {
        let seen = seen_of(lie, 50_000);
        assert!(seen.wrong > 0, "{seen:?}");
    }
}

#[test]
fn broken_connections_lose_nothing_that_was_acknowledged() {
    let seen = seen_of(Lie::ClosesWithoutAnswer, 8_000);
    assert!(seen.broken > 0, "{seen:?}");
    assert_eq!(seen.wrong, 0, "{seen:?}");
}
