//! Clients that send incomplete requests, never read, or never stop sending: the memory that a replica uses for them is
//! bounded, and other clients are not delayed.

use std::thread;
use std::time::{Duration, Instant};

use super::lab::{HostileRun, Lab, REPLICAS, Setup};
use super::outcome::Case;
use super::watch::HostileWatch;
use super::wire;
use node::view::grouped;

/// Length of the requested value.
pub(super) const VALUE: usize = 1_048_000;
/// Duration of each experiment.
pub(super) const LASTS: Duration = Duration::from_secs(6);
/// Values that were acknowledged before.
pub(super) const KEPT: usize = 200;
/// The behaviour of clients of replica 1 until then; returns a description of the result.
type Act = fn(&Lab<'_>, Instant) -> anyhow::Result<String>;

/// The experiments: a description with the number in the review, whether the address space is limited to little more
/// than the limits, and the behaviour of the clients.
const EXPERIMENTS: [(&str, bool, Act); 16] = [
    ("1 connection sends `get` of a 1 MB value as fast as it can, and reads nothing", false, |lab, until| {
        gets(lab, until, 1)
    }),
    ("4 connections do", false, |lab, until| gets(lab, until, 4)),
    ("8 connections send sets of 1 MB as fast as they can, and read nothing", false, |lab, until| {
        sets(lab, until, 8)
    }),
    ("1,000 connections with a few bytes of a command each", false, |lab, until| {
        halves(lab, until, 1_000, b"set k 0 0 5\r\nab".to_vec())
    }),
    ("1,000 connections with a set of 1 MB each that lacks its last 48,000 bytes", false, |lab, until| {
        let mut half = format!("set k 0 0 {VALUE}\r\n").into_bytes();
        half.resize(half.len() + VALUE - 48_000, b'v');
        halves(lab, until, 1_000, half)
    }),
    ("1,000 connections with 255 kB of a `get` line each, without its end", false, |lab, until| {
        halves(lab, until, 1_000, format!("get{}", " key".repeat(63_000)).into_bytes())
    }),
    ("300 connections with a receive buffer of 4 kB ask for 4 MB each, and read slowly", false, slow_readers),
    (
        "100 connections ask for 60 MB each and reset in the middle of the reply, again and again",
        false,
        resets,
    ),
    (
        "4 connections send binary `get` packets for a 1 MB value as fast as they can, and read nothing",
        false,
        |lab, until| pour(lab, until, 4, &wire::packet(0x00, b"", b"b-0", 0).repeat(1_024)),
    ),
    (
        "1,000 connections with a binary set of 1 MB each that lacks its last 48,000 bytes",
        false,
        |lab, until| {
            let mut half = wire::packet(0x01, &[0; 8], b"k", VALUE);
            half.truncate(half.len() - 48_000);
            halves(lab, until, 1_000, half)
        },
    ),
    ("200 connections watch all events and read nothing, while 8 others write", false, watchers),
    ("1,000 idle connections", false, |lab, until| halves(lab, until, 1_000, Vec::new())),
    (
        "address space for no more than the limits: 1 connection sends 1,024 `get` of a 1 MB value, and reads nothing",
        true,
        |lab, until| halves(lab, until, 1, "get b-0\r\n".repeat(1_024).into_bytes()),
    ),
    (
        "address space for no more than the limits: 12 requests for 60 MB each, nothing is read",
        true,
        |lab, until| halves(lab, until, 1, format!("get{}\r\n", " b-0".repeat(60)).repeat(12).into_bytes()),
    ),
    (
        "address space for no more than the limits: 8 connections send sets of 1 MB as fast as they can",
        true,
        |lab, until| sets(lab, until, 8),
    ),
    (
        "address space for no more than the limits: 1,000 connections with a set of 1 MB each that lacks its end",
        true,
        |lab, until| {
            let mut half = format!("set k 0 0 {VALUE}\r\n").into_bytes();
            half.resize(half.len() + VALUE - 48_000, b'v');
            halves(lab, until, 1_000, half)
        },
    ),
];

/// Runs the attack.
pub fn run(run: &HostileRun<'_>) -> anyhow::Result<()> {
    for (what, is_limited, act) in EXPERIMENTS {
        let mut case = Case::new(what);
        let lab = run.cluster(Setup::default())?;
        if is_limited {
            REPLICAS.iter().try_for_each(|number| lab.fence(*number))?;
        }
        lab.store(1, "kept", KEPT, 100)?;
        lab.store(1, "b", 4, VALUE)?;
        let watch = HostileWatch::start(&lab)?;
        let note = act(&lab, Instant::now() + LASTS)?;
        run.sleep(Duration::ZERO)?;
        let watched = watch.finish();
        case.add_note(note);
        lab.check_alive(&mut case);
        watched.check_waits(&mut case, &REPLICAS);
        watched.check_memory(&mut case);
        lab.check_stored(&mut case, &REPLICAS, "kept", KEPT, 100);
        let closed = lab.status(1).map_or(0, |status| status.buffers.evicted);
        case.add_note(format!("{closed} connections were closed to make room"));
        run.record_case(case);
    }
    Ok(())
}

/// Connections that subscribe to all events and never read, while others cause events.
fn watchers(lab: &Lab<'_>, until: Instant) -> anyhow::Result<String> {
    let mut held = wire::connect_all(lab.clients(1), 200);
    let subscribe = b"watch fetchers mutations evictions deletions\r\n";
    held.iter_mut().for_each(|stream| _ = wire::send(stream, subscribe, until));
    let requests = "set w 0 0 1\r\nx\r\nget w\r\ndelete w noreply\r\n".repeat(1_024);
    let poured = pour(lab, until, 8, requests.as_bytes())?;
    Ok(format!("{} watchers; of the writers {poured}", held.len()))
}

/// Some connections send the same bytes repeatedly, and read nothing.
fn pour(lab: &Lab<'_>, until: Instant, connections: usize, bytes: &[u8]) -> anyhow::Result<String> {
    let address = lab.clients(1);
    let poured = thread::scope(|scope| {
        let pour = || -> std::io::Result<(usize, bool)> {
            let mut stream = wire::connect(address)?;
            let poured = wire::pour(&mut stream, bytes, until);
            // The connections stay open to the end.
            wire::pause_until(until);
            Ok(poured)
        };
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(pour)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()?.ok()).collect::<Vec<_>>()
    });
    let sum: usize = poured.iter().map(|(bytes, _)| bytes).sum();
    let closed = poured.iter().filter(|(_, closed)| *closed).count();
    Ok(format!(
        "{} bytes were taken of {connections} connections, of which {closed} were closed",
        grouped(sum as u64)
    ))
}

fn gets(lab: &Lab<'_>, until: Instant, connections: usize) -> anyhow::Result<String> {
    pour(lab, until, connections, "get b-0\r\n".repeat(1_024).as_bytes())
}

fn sets(lab: &Lab<'_>, until: Instant, connections: usize) -> anyhow::Result<String> {
    let mut request = format!("set s 0 0 {VALUE}\r\n").into_bytes();
    request.resize(request.len() + VALUE, b's');
    request.extend_from_slice(b"\r\n");
    pour(lab, until, connections, &request)
}

/// Connections that each send these bytes once, and then nothing.
pub(super) fn halves(
    lab: &Lab<'_>,
    until: Instant,
    connections: usize,
    bytes: Vec<u8>,
) -> anyhow::Result<String> {
    let mut held = wire::connect_all(lab.clients(1), connections);
    held.iter().try_for_each(|stream| stream.set_nonblocking(true))?;
    let mut sent = vec![0; held.len()];
    while Instant::now() < until {
        for (stream, sent) in held.iter_mut().zip(&mut sent) {
            // Bytes that are not accepted now are sent in the next round; a closed connection accepts none.
            *sent += std::io::Write::write(stream, &bytes[*sent..]).unwrap_or(0);
        }
        thread::sleep(Duration::from_millis(5));
    }
    let sum: usize = sent.iter().sum();
    Ok(format!("{} bytes were taken of {} connections", grouped(sum as u64), held.len()))
}

fn slow_readers(lab: &Lab<'_>, until: Instant) -> anyhow::Result<String> {
    let request = b"get b-0 b-1 b-2 b-3\r\n";
    let connect = |_| wire::connect_narrow(lab.clients(1), 4 << 10);
    let mut held: Vec<_> = (0..300).map(connect).collect::<std::io::Result<_>>()?;
    held.iter_mut().for_each(|stream| _ = wire::send(stream, request, until));
    held.iter().try_for_each(|stream| stream.set_nonblocking(true))?;
    let (mut buffer, mut taken) = (vec![0; 4 << 10], 0);
    while Instant::now() < until {
        for stream in &mut held {
            taken += std::io::Read::read(stream, &mut buffer).unwrap_or(0);
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(format!("{} bytes were read by {} connections", grouped(taken as u64), held.len()))
}

fn resets(lab: &Lab<'_>, until: Instant) -> anyhow::Result<String> {
    let request = format!("get{}\r\n", " b-0".repeat(60));
    let mut count = 0;
    while Instant::now() < until {
        let mut held = wire::connect_all(lab.clients(1), 100);
        held.iter_mut().for_each(|stream| _ = wire::send(stream, request.as_bytes(), until));
        held.iter_mut().for_each(|stream| {
            wire::drain(stream, 100_000, Instant::now() + Duration::from_millis(20));
        });
        count += held.len();
        held.into_iter().for_each(wire::reset);
    }
    Ok(format!("{} connections were reset", grouped(count as u64)))
}
