//! The generator against small servers of our own: it keeps its window, detects a wrong reply, and does not omit
//! requests that a stall delays.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::definition::Amount;

/// How a test server misbehaves.
#[derive(Clone, Copy, PartialEq)]
enum Vice {
    None,
    /// Answers the n-th read with a flipped bit.
    Lies(usize),
    /// Stops all work once for this long, after the first second.
    Stalls(Duration),
}

/// A memcached of a few lines, with a thread per connection.
fn server(vice: Vice) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let stalled = Arc::new(AtomicBool::new(false));
    let begin = Instant::now();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let stalled = Arc::clone(&stalled);
            thread::spawn(move || serve(stream, vice, begin, &stalled));
        }
    });
    address
}

fn serve(stream: TcpStream, vice: Vice, begin: Instant, stalled: &AtomicBool) {
    // Verified connections share no key, so each may have its own store once the filling is over; reads of unknown keys
    // find the filler's values through this store.
    /// Values by port of the server and key.
    type Kept = HashMap<(u16, String), Vec<u8>>;
    static STORE: std::sync::Mutex<Option<Kept>> = std::sync::Mutex::new(None);
    let port = stream.local_addr().expect("an address").port();
    let mut out = stream.try_clone().expect("a second handle");
    let mut input = BufReader::new(stream);
    let mut line = String::new();
    let mut reads = 0;
    while {
        line.clear();
        input.read_line(&mut line).is_ok_and(|count| count > 0)
    } {
        if let Vice::Stalls(pause) = vice
            && begin.elapsed() > Duration::from_secs(1)
            && !stalled.swap(true, Ordering::Relaxed)
        {
            thread::sleep(pause);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut guard = STORE.lock().expect("no panic");
        let store = guard.get_or_insert_default();
        let key = (port, words[1].to_owned());
        let answer = match words[0] {
            "set" => {
                let mut value = vec![0; words[4].parse::<usize>().expect("a length") + 2];
                input.read_exact(&mut value).expect("the value");
                value.truncate(value.len() - 2);
                store.insert(key, value);
                b"STORED\r\n".to_vec()
            }
            "get" => match store.get(&key) {
                Some(value) => {
                    let mut value = value.clone();
                    reads += 1;
                    if vice == Vice::Lies(reads) {
                        value[3] ^= 0x10;
                    }
                    [format!("VALUE {} 0 {}\r\n", words[1], value.len()).as_bytes(), &value, b"\r\nEND\r\n"]
                        .concat()
                }
                None => b"END\r\n".to_vec(),
            },
            other => panic!("not asked here: {other}"),
        };
        drop(guard);
        if out.write_all(&answer).is_err() {
            return;
        }
    }
}

fn setup(address: SocketAddr) -> Setup {
    let mix = BTreeMap::from([(Op::Get, 3.0), (Op::Set, 1.0)]);
    Setup {
        dialect: Dialect::Memcached,
        addresses: vec![address],
        workload: Workload {
            zipf: 0.9,
            ..Workload::plain("w", 20, Amount::Between { from: 4, to: 300 }, mix, 200)
        },
        connections: 4,
        pipeline: 1,
        rate: None,
        verify: true,
        seed: 5,
        timeline: false,
        restarts: false,
    }
}

fn measured(setup: Setup, seconds: f64) -> MeasuredCounts {
    let mut generator = Generator::prepare(setup, &Arc::new(Pattern::default())).expect("prepared");
    generator.warm_up(Duration::from_millis(50)).expect("warm");
    generator.measure(Duration::from_secs_f64(seconds)).expect("measured");
    generator.finish().expect("finished")
}

#[test]
fn an_honest_server_is_found_right_in_both_loops() {
    for (pipeline, rate) in [(1, None), (8, None), (4, Some(500.0))] {
        let seen = measured(Setup { pipeline, rate, ..setup(server(Vice::None)) }, 0.5);
        assert!(seen.completed > 50, "{seen:?}");
        assert_eq!((seen.wrong, seen.lost, seen.refused, seen.broken, seen.unanswered), (0, 0, 0, 0, 0));
        assert_eq!(seen.misses, 0, "everything was stored before");
    }
}

#[test]
fn a_flipped_bit_is_seen() {
    let seen = measured(setup(server(Vice::Lies(5))), 0.3);
    assert!((1..=4).contains(&seen.wrong), "one per connection that read five times: {}", seen.wrong);
}

#[test]
fn an_open_loop_sends_at_its_rate() {
    let seen = measured(Setup { rate: Some(1000.0), ..setup(server(Vice::None)) }, 2.0);
    // 2,000 are expected, with a standard deviation of 45; a busy machine may lose some at the end.
    assert!((1700..2250).contains(&seen.completed), "{}", seen.completed);
}

#[test]
fn a_stall_shows_in_all_requests_that_it_delayed_and_in_a_closed_loop_only_in_few() {
    let stall = Vice::Stalls(Duration::from_millis(800));
    let one = |rate| Setup { connections: 1, rate, verify: false, ..setup(server(stall)) };
    let slow = |seen: &MeasuredCounts| {
        let long = seen.latencies.count_between(100_000_000, u64::MAX);
        (long, long as f64 / seen.latencies.len() as f64)
    };
    let (_, open) = slow(&measured(one(Some(500.0)), 2.0));
    assert!(open > 0.2, "of two seconds, about 0.7 were spent with over 100 ms to wait; seen in {open}");
    let (closed, _) = slow(&measured(one(None), 2.0));
    assert!(closed <= 2, "a closed loop omits what it could not send; seen in {closed} requests");
}
