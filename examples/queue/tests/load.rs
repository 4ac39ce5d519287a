//! Load for a queue, ours or beanstalkd: cycles of put, reserve and delete, to compare their throughput.
//!
//!     cargo run --release -p queue --example load -- ADDRESS [CONNECTIONS [REQUESTS-ON-THEIR-WAY [SECONDS]]]
//!
//! Each connection has a thread and a tube of its own, and so many cycles on their way. Every reply is checked.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a client may do what a handler may not"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const BODY: [u8; 100] = [b'x'; 100];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().and_then(|text| text.parse().ok()).expect("an address");
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (connections, window, seconds) = (number(8), number(16), number(5));
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let cycles: u64 = thread::scope(|scope| {
        let all: Vec<_> =
            (0..connections).map(|tube| scope.spawn(move || drive(address, tube, window, end))).collect();
        all.into_iter().map(|one| one.join().expect("replies are right")).sum()
    });
    let each_second = cycles as f64 / begin.elapsed().as_secs_f64();
    println!("{each_second:.0} cycles/s, {:.0} requests/s", 3.0 * each_second);
}

/// Runs cycles on one connection; returns how many.
fn drive(address: SocketAddr, tube: u64, window: u64, end: Instant) -> u64 {
    let mut stream = TcpStream::connect(address).expect("the server accepts clients");
    stream.set_nodelay(true).expect("it can be set");
    let mut replies = BufReader::with_capacity(1 << 16, stream.try_clone().expect("a second handle"));
    let mut requests = format!("use tube-{tube}\r\nwatch tube-{tube}\r\nignore default\r\n").into_bytes();
    let (mut cycles, mut on_their_way) = (0, 3);
    (0..window).for_each(|_| put(&mut requests));
    on_their_way += window;
    let (mut line, mut body) = (String::new(), vec![0; BODY.len() + 2]);
    while on_their_way > 0 {
        if replies.buffer().is_empty() {
            stream.write_all(&requests).expect("the server takes requests");
            requests.clear();
        }
        line.clear();
        replies.read_line(&mut line).expect("the server answers");
        on_their_way -= 1;
        let mut words = line.trim_end().split(' ');
        match (words.next(), words.next()) {
            (Some("USING" | "WATCHING"), _) => continue,
            (Some("INSERTED"), Some(_)) => requests.extend(b"reserve-with-timeout 0\r\n"),
            (Some("RESERVED"), Some(id)) => {
                replies.read_exact(&mut body).expect("the server answers");
                assert_eq!(body[..BODY.len()], BODY);
                requests.extend(format!("delete {id}\r\n").as_bytes());
            }
            (Some("DELETED"), None) => {
                cycles += 1;
                if Instant::now() > end {
                    continue;
                }
                put(&mut requests);
            }
            _ => panic!("{line}"),
        }
        on_their_way += 1;
    }
    cycles
}

fn put(requests: &mut Vec<u8>) {
    requests.extend(format!("put 5 0 60 {}\r\n", BODY.len()).as_bytes());
    requests.extend(BODY);
    requests.extend(b"\r\n");
}
