//! The list of connections over real sockets: peers, what each does, for how long it has done nothing.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::tests::{Lines, give, look_until, unheard};
use super::*;
use crate::clients::listing::{ClientAddress, ConnectionInfo, ConnectionState};

/// The entry of this client, if there is one.
fn entry(counters: &ClientCounters, client: &TcpStream) -> Option<ConnectionInfo> {
    let peer = ClientAddress::Tcp(client.local_addr().unwrap());
    counters.connections().into_iter().find(|info| info.peer == peer)
}

/// Ticks until the client is listed so.
fn until(
    clients: &mut Clients<Lines>,
    submissions: &mut Vec<Submission>,
    client: &TcpStream,
    state: ConnectionState,
) {
    let begun = Instant::now();
    while entry(&clients.counters, client).is_none_or(|info| info.state != state) {
        clients.tick(submissions);
        clients.flush();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", entry(&clients.counters, client));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_connection_is_listed_with_its_peer_its_state_and_its_silence() {
    let (mut clients, address, counters, _poll) = unheard();
    let mut submissions = Vec::new();
    let connect = || TcpStream::connect(address).unwrap();
    let (mut first, mut second) = (connect(), connect());
    until(&mut clients, &mut submissions, &first, ConnectionState::Idle);
    until(&mut clients, &mut submissions, &second, ConnectionState::Idle);
    let ids = counters.connections().iter().map(|info| info.id).collect::<Vec<_>>();
    assert_eq!(ids, [0, 1], "each has its own");

    first.write_all(b"par").unwrap();
    until(&mut clients, &mut submissions, &first, ConnectionState::Reading);
    first.write_all(b"t\n").unwrap();
    look_until(&mut clients, &mut submissions, 1);
    until(&mut clients, &mut submissions, &first, ConnectionState::Executing);
    let ticks_per_s = Duration::from_secs(1).as_micros() / limits::TICK.as_micros();
    for _ in 0..3 * ticks_per_s {
        clients.tick(&mut submissions);
    }
    // A client that waits for a reply is not idle; the other one has sent nothing yet.
    assert_eq!(entry(&counters, &first).unwrap().idle_s, 0);
    assert!(entry(&counters, &second).unwrap().idle_s >= 3);

    // Nobody reads: more than the socket takes.
    give(&mut clients, &submissions[0], vec![b'x'; 64 << 20]);
    until(&mut clients, &mut submissions, &first, ConnectionState::Writing);
    second.write_all(b"end\n").unwrap();
    drop(first);
    let begun = Instant::now();
    while counters.open() > 0 {
        clients.tick(&mut submissions);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", counters.connections());
    }
    assert_eq!(counters.connections(), []);
}

#[test]
fn a_list_has_a_bound_and_takes_from_every_thread() {
    let counters = ClientCounters::with_threads(2);
    let peer = ClientAddress::Tcp(([127, 0, 0, 1], 1).into());
    for (thread, count) in [(0, limits::LISTED_CONNECTIONS as u32 - 1), (1, 5)] {
        (0..count).for_each(|id| {
            counters.threads()[thread].connections.opened((2 * id + thread as u32, 0), peer, 0)
        });
    }
    let listed = counters.connections();
    assert_eq!(listed.len(), limits::LISTED_CONNECTIONS);
    assert_eq!(listed.iter().filter(|info| info.id % 2 == 1).count(), 1);
    counters.threads()[1].looks.store(400, Relaxed);
    assert_eq!(counters.connections().last().unwrap().idle_s, 10);
}
