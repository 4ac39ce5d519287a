//! The byte-checking load itself: it agrees with stock memcached, and it detects every wrong reply of a proxy.

use crate::support::stock::Stock;
use memcached_client::load::{CheckedLoad, LoadDraw};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn agrees_with_stock_memcached() {
    let Some(stock) = Stock::start() else { return };
    let load = CheckedLoad { commands: Some(4_000), ..on(&[stock.server]) };
    let report = load.start().join_and_audit(&[stock.server]);
    println!("{report}");
    report.assert_undisturbed();
    assert!(report.answered > 23 * 4_000, "commands without reply are the rest: {report}");
    for counter in &report.counters {
        assert!(counter.acknowledged > 100, "{counter:?}");
        assert_eq!(counter.acknowledged, counter.highest, "an undisturbed counter is exact");
    }
}

/// One flipped bit anywhere in the replies must be detected, whichever it is.
#[test]
fn sees_every_single_flip() {
    let Some(stock) = Stock::start() else { return };
    let mut draw = LoadDraw::new(7);
    for round in 0..40 {
        let proxy =
            Proxy::start(stock.server, Lie::FlipBit { at: draw.below(40_000), bit: draw.below(8) as u8 });
        let load = CheckedLoad {
            clients: 1,
            keys: 9,
            shared: 0,
            commands: Some(600),
            patience: Duration::from_secs(1),
            prefix: format!("r{round}-"),
            seed: round,
            ..on(&[proxy.address])
        };
        let report = load.start().join_and_audit(&[stock.server]);
        assert!(
            proxy.reported.load(Ordering::SeqCst),
            "round {round}: the reply stream was too short to lie in"
        );
        let stalled = report.timeouts > 0; // the flip made the beginning of a line that never ends
        assert!(!report.wrong.is_empty() || stalled, "round {round}: the flip went unnoticed: {report}");
    }
}

/// With several clients and the shared keys, the load still detects wrong replies.
#[test]
fn sees_a_flip_among_many_clients() {
    let Some(stock) = Stock::start() else { return };
    let proxy = Proxy::start(stock.server, Lie::FlipBit { at: 300_000, bit: 2 });
    let report = CheckedLoad { prefix: "many-".into(), ..on(&[proxy.address]) }.start().join_and_audit(&[]);
    println!("{report}: {}", report.wrong[0]);
    assert!(proxy.reported.load(Ordering::SeqCst));
}

/// Lost replies are not wrong, but a lost acknowledged write is.
#[test]
fn survives_cut_connections_and_misses_lost_writes() {
    let Some(stock) = Stock::start() else { return };
    let proxy = Proxy::start(stock.server, Lie::Cut { every: 20_000 });
    let running = CheckedLoad { prefix: "cut-".into(), ..on(&[proxy.address]) }.start();
    assert!(running.wait_for(20_000, Duration::from_secs(60)), "no progress through a proxy that cuts");
    let report = running.stop_and_audit(&[stock.server]);
    println!("{report}");
    report.assert_right();
    assert!(report.disconnects > 20, "the proxy cut nothing: {report}");

    let proxy = Proxy::start(stock.server, Lie::Cut { every: 20_000 });
    let running = CheckedLoad { prefix: "gone-".into(), ..on(&[proxy.address]) }.start();
    assert!(running.wait_for(5_000, Duration::from_secs(60)));
    command(stock.server, "flush_all\r\n");
    let report = running.stop_and_audit(&[stock.server]);
    assert!(!report.wrong.is_empty(), "every write was thrown away and nobody noticed: {report}");
}

/// An increment that was counted twice is detected, although every reply looks right.
#[test]
fn sees_a_doubled_increment() {
    let Some(stock) = Stock::start() else { return };
    let running = CheckedLoad { prefix: "twice-".into(), ..on(&[stock.server]) }.start();
    assert!(running.wait_for(2_000, Duration::from_secs(60)));
    command(stock.server, "incr twice-count0 1\r\n");
    let report = running.stop_and_audit(&[stock.server]);
    assert!(!report.wrong.is_empty(), "a doubled increment went unnoticed: {report}");
}

fn on(servers: &[SocketAddr]) -> CheckedLoad {
    CheckedLoad { huge_numbers: false, ..CheckedLoad::on(servers) }
}

fn command(server: SocketAddr, line: &str) {
    let mut stream = TcpStream::connect(server).expect("the server accepts");
    stream.write_all(line.as_bytes()).expect("the server reads");
    let mut reply = [0; 64];
    let count = stream.read(&mut reply).expect("the server answers");
    assert!(count > 0);
}

/// The proxy's change to replies.
#[derive(Clone, Copy)]
enum Lie {
    /// Flips one bit of byte `at` of all bytes that the server sends.
    FlipBit { at: u64, bit: u8 },
    /// Cuts the connection after about this many bytes.
    Cut { every: u64 },
}

/// A proxy between client and server that changes replies.
struct Proxy {
    address: SocketAddr,
    reported: Arc<AtomicBool>,
}

impl Proxy {
    fn start(server: SocketAddr, lie: Lie) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let reported = Arc::new(AtomicBool::new(false));
        let (passed, reported_too) = (Arc::new(AtomicU64::new(0)), reported.clone());
        // The threads end with their connections, the listener with the test process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(server) else { return };
                let (up, back) = (upstream.try_clone().expect("clone"), client.try_clone().expect("clone"));
                std::thread::spawn(move || copy(client, up));
                let (passed, reported) = (passed.clone(), reported_too.clone());
                std::thread::spawn(move || copy_lying(upstream, back, lie, &passed, &reported));
            }
        });
        Proxy { address, reported }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

fn copy_lying(mut from: TcpStream, mut to: TcpStream, lie: Lie, passed: &AtomicU64, reported: &AtomicBool) {
    let mut chunk = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let start = passed.fetch_add(count as u64, Ordering::SeqCst);
        let end = start + count as u64;
        let mut length = count;
        match lie {
            Lie::FlipBit { at, bit } if (start..end).contains(&at) => {
                chunk[(at - start) as usize] ^= 1 << bit;
                reported.store(true, Ordering::SeqCst);
            }
            Lie::Cut { every } if start / every != end / every => {
                length = count / 2;
                reported.store(true, Ordering::SeqCst);
            }
            _ => {}
        }
        if to.write_all(&chunk[..length]).is_err() || length < count {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
