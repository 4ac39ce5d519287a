//! Connections between replicas over real sockets: who gets in, who is refused, and what is used of what they send.

use super::*;
use hello::Hello;
use mio::{Events, Poll};
use secure::{Dialling, Secret, Untrusted};
use std::net::SocketAddr;
use std::time::Duration;

struct Node {
    poll: Poll,
    peers: Peers,
    seen: Vec<PeerEvent>,
}

impl Node {
    fn new(me: u8, addresses: &[SocketAddr]) -> Node {
        Node::with(identity(me, 7), addresses)
    }

    fn with(identity: Identity, addresses: &[SocketAddr]) -> Node {
        let poll = Poll::new().unwrap();
        let peers = Peers::bind(identity, of_all(addresses), poll.registry()).unwrap();
        Node { poll, peers, seen: Vec::new() }
    }

    fn step(&mut self, now_us: u64) {
        self.peers.dial(now_us);
        self.peers.flush(&mut self.seen);
        let mut events = Events::with_capacity(16);
        self.poll.poll(&mut events, Some(Duration::from_millis(2))).unwrap();
        for event in events.iter() {
            let (readable, writable) = (event.is_readable() || event.is_read_closed(), event.is_writable());
            self.peers.on_event(event.token(), readable, writable, &mut self.seen);
        }
    }
}

fn identity(me: u8, key: u8) -> Identity {
    let hello =
        Hello { replicas: 2, settings: vec![("memory_limit_mb".into(), "64".into())], ..Hello::sample(me) };
    Identity { hello, secret: Secret { key: [key; 32], seed: None }, places: Whereabouts::default() }
}

fn addresses() -> Vec<SocketAddr> {
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners = [free(), free()];
    listeners.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

fn of_all(addresses: &[SocketAddr]) -> Vec<Address> {
    addresses.iter().map(|address| Address::from(*address)).collect()
}

fn run_until(nodes: &mut [Node], done: impl Fn(&[Node]) -> bool) {
    for step in 0..2000 {
        if done(nodes) {
            return;
        }
        nodes.iter_mut().for_each(|node| node.step(step * 2000));
    }
    panic!("never happened: {:?}", nodes.iter().map(|node| &node.seen).collect::<Vec<_>>());
}

#[test]
fn a_replica_that_mistakes_itself_or_forgets_a_peer_is_not_valid() {
    let addresses = addresses();
    let mut peers = Node::new(1, &addresses).peers;
    let mut known = of_all(&addresses);
    assert!(peers.is_valid(1, &known) && !peers.is_valid(0, &known));
    let link = peers.links.pop();
    assert!(!peers.is_valid(1, &known));
    peers.links.extend(link);
    known[0] = Address::Named { host: "localhost".into(), port: addresses[0].port() };
    assert!(!peers.is_valid(1, &known), "it dials another address than the configured one");
    known = of_all(&addresses);
    let dialled = peers.dialled.pop();
    assert!(!peers.is_valid(1, &known));
    peers.dialled.extend(dialled);
    assert!(peers.is_valid(1, &known));
    peers.scratch.clear();
    assert!(!peers.is_valid(1, &known), "it reads nothing");
}

/// The group moves replica 1 to another machine: the connection to the old one ends, and whichever of the two dials is
/// refused. The new one was refused before, and is connected then.
#[test]
fn a_replica_that_moves_is_found_where_it_is_and_its_old_machine_is_refused() {
    for moves in [0u8, 1] {
        let addresses = addresses();
        let mut at_new = addresses.clone();
        at_new[usize::from(moves)] = self::addresses()[0];
        let mut nodes = vec![Node::new(1 - moves, &addresses), Node::new(moves, &addresses)];
        run_until(&mut nodes, |nodes| nodes.iter().all(is_up));
        nodes.push(Node::new(moves, &at_new));
        run_until(&mut nodes, |nodes| {
            refusals(&nodes[2]).iter().any(|why| why.contains("this one waits for it"))
        });
        assert!(refusals(&nodes[0]).iter().any(|why| why.contains("`crosscheck group replace")));
        nodes.iter_mut().for_each(|node| node.seen.clear());
        let new = Address::from(at_new[usize::from(moves)]);
        nodes[0].peers.follow_moves(BTreeMap::from([(moves, (1, new.clone()))]));
        run_until(&mut nodes, |nodes| {
            let found = nodes[0].peers.place_of(moves) == Some(new.to_string().as_str());
            found && is_up(&nodes[2]) && !refusals(&nodes[1]).is_empty()
        });
        let reported = refusals(&nodes[1]);
        assert!(
            reported.iter().all(|why| why.contains("the group has replaced this machine")),
            "{reported:?}"
        );
    }
}

#[test]
fn a_peer_is_dialled_by_its_name_and_one_whose_name_does_not_resolve_is_tried_again() {
    let addresses = addresses();
    let named = |host: &str| Address::Named { host: host.into(), port: addresses[0].port() };
    let configured = || vec![named("localhost"), addresses[1].into()];
    let mut nodes = vec![Node::new(0, &addresses), Node::new(1, &addresses)];
    let fails = |address: &Address| Err(format!("`{address}` does not resolve: a test"));
    nodes[1].peers.net.names = names::Names::resolved_by(fails, configured());
    let failed = |node: &Node| {
        let is_failure =
            |event: &&PeerEvent| matches!(event, PeerEvent::Unresolved { peer: 0, why: Some(_) });
        node.seen.iter().filter(is_failure).count()
    };
    run_until(&mut nodes, |nodes| failed(&nodes[1]) == 2);
    let PeerEvent::Unresolved { why: Some(why), .. } = &nodes[1].seen[0] else {
        panic!("{:?}", nodes[1].seen)
    };
    assert!(why.starts_with("`localhost:") && why.ends_with("does not resolve: a test"), "{why}");
    nodes[1].peers.net.names = names::Names::new(configured());
    nodes[1].seen.clear();
    run_until(&mut nodes, |nodes| nodes.iter().all(is_up));
    assert!(nodes[1].seen.contains(&PeerEvent::Unresolved { peer: 0, why: None }), "{:?}", nodes[1].seen);
}

#[test]
fn a_pair_meets_talks_and_meets_again() {
    let addresses = addresses();
    let mut nodes = vec![Node::new(0, &addresses), Node::new(1, &addresses)];
    run_until(&mut nodes, |nodes| nodes.iter().all(|node| !node.seen.is_empty()));
    assert_eq!(nodes[0].seen, [PeerEvent::Up(1)]);
    assert_eq!(nodes[1].seen, [PeerEvent::Up(0)]);
    let large = vec![7u8; 3 << 20];
    nodes[0].peers.send(1, FrameKind::Check, &[b"he", b"llo"]);
    nodes[1].peers.send(0, FrameKind::Transfer, &[&large]);
    run_until(&mut nodes, |nodes| nodes.iter().all(|node| node.seen.len() >= 2));
    let hello = PeerEvent::Frame { from: 0, kind: FrameKind::Check, body: Bytes::from_static(b"hello") };
    assert_eq!(nodes[1].seen[1], hello);
    assert_eq!(nodes[0].seen[1], PeerEvent::Frame { from: 1, kind: FrameKind::Transfer, body: large.into() });
    let (check, other) = (nodes[0].peers.sent.check, nodes[1].peers.sent.other);
    assert_eq!((check.messages, other.messages), (1, 1));
    assert!(check.bytes > 5 && other.bytes > 3 << 20, "bodies and headers: {check:?} {other:?}");
    // The same replica after a crash: its sockets are closed, then opened again.
    drop(nodes.pop());
    nodes.push(Node::new(1, &addresses));
    run_until(&mut nodes, |nodes| nodes[0].seen.len() >= 4 && !nodes[1].seen.is_empty());
    assert_eq!(nodes[0].seen[2..], [PeerEvent::Down(1), PeerEvent::Up(1)]);
}

#[test]
fn a_peer_that_never_says_who_it_is_is_dialled_again() {
    let addresses = addresses();
    // The kernel accepts the connection, but no process reads from it.
    let mute = std::net::TcpListener::bind(addresses[0]).unwrap();
    let mut nodes = vec![Node::new(1, &addresses)];
    nodes[0].step(0);
    let _held = mute.accept().unwrap();
    drop(mute);
    nodes.insert(0, Node::new(0, &addresses));
    run_until(&mut nodes, |nodes| nodes.iter().all(|node| !node.seen.is_empty()));
}

fn refusals(node: &Node) -> Vec<String> {
    let reported = |event: &PeerEvent| match event {
        PeerEvent::Refused { why, .. } => Some(why.to_string()),
        _ => None,
    };
    node.seen.iter().filter_map(reported).collect()
}

fn is_up(node: &Node) -> bool {
    node.peers.connected().next().is_some()
}

/// A replica of another group, or with the wrong files: both ends report it, and neither sends frames.
#[test]
fn a_replica_with_another_key_is_refused_at_both_ends() {
    let addresses = addresses();
    let mut nodes = vec![Node::new(0, &addresses), Node::with(identity(1, 8), &addresses)];
    run_until(&mut nodes, |nodes| nodes.iter().all(|node| !refusals(node).is_empty()));
    assert!(refusals(&nodes[0])[0].starts_with("it does not have this group's key (from 127.0.0.1:"));
    assert!(refusals(&nodes[1])[0].contains("the same group_key"));
    assert!(!nodes.iter().any(is_up));
}

#[test]
fn settings_that_differ_are_named_at_both_ends() {
    let addresses = addresses();
    let mut other = identity(1, 7);
    other.hello.settings[0].1 = "32".into();
    let mut nodes = vec![Node::new(0, &addresses), Node::with(other, &addresses)];
    run_until(&mut nodes, |nodes| nodes.iter().all(|node| !refusals(node).is_empty()));
    assert!(refusals(&nodes[0])[0].starts_with("memory_limit_mb is 64 here and 32 there"));
    assert!(refusals(&nodes[1])[0].starts_with("memory_limit_mb is 32 here and 64 there"));
    assert!(!nodes.iter().any(is_up));
    // The reason stays the same, however often they connect.
    let times = 2 * limits::UNANSWERED as usize;
    let part_us = limits::REFUSED_PAUSE.as_micros() as u64 / 20;
    for part in 1..100 * times as u64 {
        nodes.iter_mut().for_each(|node| node.step(part * part_us));
        if refusals(&nodes[1]).len() > times {
            break;
        }
    }
    let reported = refusals(&nodes[1]);
    assert!(
        reported.len() > times && reported.iter().all(|why| why.starts_with("memory_limit_mb is")),
        "{reported:?}"
    );
}

#[test]
fn a_replica_with_the_number_of_another_is_refused() {
    let addresses = addresses();
    let mut double = identity(1, 7);
    double.hello.replica = 0;
    let mut nodes = vec![Node::new(0, &addresses), Node::new(1, &addresses)];
    run_until(&mut nodes, |nodes| nodes.iter().all(is_up));
    let mut first = Vec::new();
    Dialling::begin(&mut double.secret, &double.hello, &mut first).unwrap();
    io::Write::write_all(&mut std::net::TcpStream::connect(addresses[0]).unwrap(), &first).unwrap();
    run_until(&mut nodes, |nodes| !refusals(&nodes[0]).is_empty());
    assert!(refusals(&nodes[0])[0].contains("calls itself replica 1"));
    assert!(is_up(&nodes[0]));
}

/// A stranger displaces no peer, whatever it sends: garbage, a browser's request, the preamble of an earlier
/// release, half a record, and a first message that it has recorded.
#[test]
fn strangers_displace_no_connection_and_leave_a_trace() {
    let addresses = addresses();
    let mut recorded = Vec::new();
    let mut peer = identity(1, 7);
    Dialling::begin(&mut peer.secret, &peer.hello, &mut recorded).unwrap();
    let mut nodes = vec![Node::new(0, &addresses), Node::new(1, &addresses)];
    run_until(&mut nodes, |nodes| nodes.iter().all(is_up));
    let says: [&[u8]; 5] = [
        &[0x5A; 4000],
        b"GET / HTTP/1.1\r\n\r\n",
        b"XCHK\x02\x01\x12\x34 and more",
        &recorded[..20],
        &recorded,
    ];
    let mut strangers: Vec<std::net::TcpStream> =
        (0..10).map(|_| std::net::TcpStream::connect(addresses[0]).unwrap()).collect();
    for (stranger, says) in strangers.iter_mut().zip(says.iter().cycle()) {
        io::Write::write_all(stranger, says).unwrap();
    }
    for step in 0..50 {
        nodes.iter_mut().for_each(|node| node.step(step * 2000));
    }
    // Two were incomplete; the recorded message is answered once, and recognized from then on.
    assert_eq!(refusals(&nodes[0]).len(), 7, "{:?}", nodes[0].seen);
    // The following records are not sealed with this connection's keys.
    for stranger in &mut strangers {
        let _ = io::Write::write_all(stranger, &recorded);
    }
    for step in 0..50 {
        nodes.iter_mut().for_each(|node| node.step(step * 2000));
    }
    assert_eq!(refusals(&nodes[0]).len(), 10);
    nodes[1].peers.send(0, FrameKind::Check, &[b"still here"]);
    run_until(&mut nodes, |nodes| matches!(nodes[0].seen.last(), Some(PeerEvent::Frame { .. })));
    assert!(!nodes[0].seen.contains(&PeerEvent::Down(1)));
}

#[test]
fn a_crowd_of_silent_strangers_keeps_no_peer_out_and_is_let_go() {
    let addresses = addresses();
    let mut nodes = vec![Node::new(0, &addresses)];
    let _crowd: Vec<_> = (0..200)
        .map(|step| {
            let stranger = std::net::TcpStream::connect(addresses[0]).unwrap();
            nodes[0].step(step);
            stranger
        })
        .collect();
    nodes.push(Node::new(1, &addresses));
    run_until(&mut nodes, |nodes| nodes.iter().all(is_up));
    let ticks = limits::HANDSHAKE.as_millis() / limits::TICK.as_millis();
    (0..=ticks).for_each(|_| nodes[0].peers.tick());
    assert!(nodes[0].peers.handshakes.is_empty() && is_up(&nodes[0]));
    nodes[0].step(0);
    assert_eq!(
        refusals(&nodes[0]).len(),
        200 - handshakes::EXCUSED,
        "each is reported but what may be the peer"
    );
}

/// A peer that is killed in its handshake is no stranger; strangers are reported as before.
#[test]
fn a_peer_that_ends_in_its_handshake_is_no_stranger() {
    let addresses = addresses();
    let mut nodes = vec![Node::new(0, &addresses), Node::new(1, &addresses)];
    run_until(&mut nodes, |nodes| nodes.iter().all(is_up));
    let hangs_up = |nodes: &mut Vec<Node>| {
        drop(std::net::TcpStream::connect(addresses[0]).unwrap());
        (0..20).for_each(|step| nodes.iter_mut().for_each(|node| node.step(step * 2000)));
    };
    (0..handshakes::EXCUSED).for_each(|_| hangs_up(&mut nodes));
    assert_eq!(refusals(&nodes[0]), [""; 0], "it may be the other one, which has just started");
    hangs_up(&mut nodes);
    assert_eq!(refusals(&nodes[0]).len(), 1, "it is connected: this is another process");
    drop(nodes.pop());
    run_until(&mut nodes, |nodes| !is_up(&nodes[0]));
    (0..handshakes::EXCUSED).for_each(|_| hangs_up(&mut nodes));
    assert_eq!(refusals(&nodes[0]).len(), 1, "it was killed again before it said who it is");
    hangs_up(&mut nodes);
    assert_eq!(refusals(&nodes[0]).len(), 2);
}

/// A watchdog requests the progress of the others, separately from the links, and gets it; the link is not
/// affected.
#[test]
fn a_watchdog_gets_the_progress_of_the_others() {
    let addresses = addresses();
    let mut nodes = vec![Node::new(0, &addresses), Node::new(1, &addresses)];
    run_until(&mut nodes, |nodes| nodes.iter().all(is_up));
    nodes[1].peers.progress = PeerProgress { executed: 77, slowest_ms: 1200 };
    let mut probe = probe::Probe::new(identity(0, 7), of_all(&addresses));
    let asked = std::thread::spawn(move || probe.others(Duration::from_secs(10)));
    while !asked.is_finished() {
        nodes.iter_mut().for_each(|node| node.step(0));
    }
    assert_eq!(asked.join().unwrap().unwrap().executed, 77, "of two replicas the other one decides");
    let mut probe = probe::Probe::new(identity(0, 7), of_all(&addresses));
    let asked = std::thread::spawn(move || probe.ask(1, addresses[1], Duration::from_secs(10)));
    while !asked.is_finished() {
        nodes.iter_mut().for_each(|node| node.step(0));
    }
    assert_eq!(asked.join().unwrap(), Some(PeerProgress { executed: 77, slowest_ms: 1200 }));
    assert!(nodes.iter().all(is_up) && !nodes[1].seen.contains(&PeerEvent::Down(0)));
}

#[test]
fn what_nobody_waits_for_leaves_with_what_somebody_waits_for() {
    let addresses = addresses();
    let mut nodes = vec![Node::new(0, &addresses), Node::new(1, &addresses)];
    run_until(&mut nodes, |nodes| nodes.iter().all(|node| !node.seen.is_empty()));
    nodes[0].peers.send_deferred(1, FrameKind::Check, &[b"first"]);
    (0..20).for_each(|step| nodes.iter_mut().for_each(|node| node.step(step * 2000)));
    assert_eq!(nodes[1].seen.len(), 1, "nobody waits for it: {:?}", nodes[1].seen);
    nodes[0].peers.send(1, FrameKind::Order, &[b"second"]);
    run_until(&mut nodes, |nodes| nodes[1].seen.len() == 3);
    let body = |event: &PeerEvent| match event {
        PeerEvent::Frame { body, .. } => body.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(nodes[1].seen[1..].iter().map(body).collect::<Vec<_>>(), ["first", "second"]);
    nodes[0].peers.send_deferred(1, FrameKind::Check, &[b"third"]);
    nodes[0].peers.tick();
    run_until(&mut nodes, |nodes| nodes[1].seen.len() == 4);
}

/// A stranger has recorded one first message, sends it repeatedly, and never continues: no peer has to wait because
/// of that.
#[test]
fn recorded_first_messages_keep_no_peer_out() {
    let addresses = addresses();
    let mut recorded = Vec::new();
    let mut peer = identity(1, 7);
    Dialling::begin(&mut peer.secret, &peer.hello, &mut recorded).unwrap();
    let mut nodes = vec![Node::new(0, &addresses)];
    let _crowd: Vec<_> = (0..100)
        .map(|step| {
            let mut stranger = std::net::TcpStream::connect(addresses[0]).unwrap();
            io::Write::write_all(&mut stranger, &recorded).unwrap();
            (0..2).for_each(|_| nodes[0].step(step));
            stranger
        })
        .collect();
    let is_recording = |event: &&PeerEvent| {
        matches!(event, PeerEvent::Refused { why: Refusal::Untrusted(Untrusted::Recorded, _), .. })
    };
    assert_eq!(nodes[0].seen.iter().filter(is_recording).count(), 99, "all but the first are recognized");
    nodes.push(Node::new(1, &addresses));
    run_until(&mut nodes, |nodes| nodes.iter().all(is_up));
}

/// It has recorded many, each of which is answered once: their connections replace one another, and peers replace
/// them.
#[test]
fn many_recorded_first_messages_keep_no_peer_out() {
    let addresses = addresses();
    let mut peer = identity(1, 7);
    let mut nodes = vec![Node::new(0, &addresses)];
    let _crowd: Vec<_> = (0..80)
        .map(|step| {
            let mut recorded = Vec::new();
            Dialling::begin(&mut peer.secret, &peer.hello, &mut recorded).unwrap();
            let mut stranger = std::net::TcpStream::connect(addresses[0]).unwrap();
            io::Write::write_all(&mut stranger, &recorded).unwrap();
            (0..2).for_each(|_| nodes[0].step(step));
            stranger
        })
        .collect();
    nodes.push(Node::new(1, &addresses));
    run_until(&mut nodes, |nodes| nodes.iter().all(is_up));
}

/// A fault hits a record number, at either end, up or down: the connection is opened again, and later frames
/// arrive.
#[test]
fn a_corrupted_number_of_records_does_not_silence_a_connection() {
    for (takes, sends) in [(1 << 40, 0), (1 << 9, 0), (0, 1 << 40), (0, 0x1ff)] {
        let addresses = addresses();
        let mut nodes = vec![Node::new(0, &addresses), Node::new(1, &addresses)];
        run_until(&mut nodes, |nodes| nodes.iter().all(is_up));
        let mut round = 0;
        let mut talk = |nodes: &mut Vec<Node>, rounds: u64| {
            for _ in 0..rounds {
                round += 1;
                nodes[1].peers.send(0, FrameKind::Check, &[b"hello"]);
                nodes.iter_mut().for_each(|node| node.step(round * 2000));
            }
        };
        talk(&mut nodes, 300);
        if let Some(link) = nodes[0].peers.links[1].as_mut() {
            link.inject_fault(takes, 0);
        }
        if let Some(link) = nodes[1].peers.links[0].as_mut() {
            link.inject_fault(0, sends);
        }
        nodes[0].seen.clear();
        talk(&mut nodes, 300);
        let received = |event: &&PeerEvent| matches!(event, PeerEvent::Frame { .. });
        let received = nodes[0].seen.iter().filter(received).count();
        assert!(received > 150, "{takes:x} {sends:x}: {received} of 300");
    }
}

#[test]
fn a_garbled_frame_resets_the_connection_and_nothing_of_it_is_used() {
    let addresses = addresses();
    let mut nodes = vec![Node::new(0, &addresses), Node::new(1, &addresses)];
    run_until(&mut nodes, |nodes| nodes.iter().all(|node| !node.seen.is_empty()));
    nodes[0].peers.send(1, FrameKind::Check, &[b"these bytes are not what they were"]);
    let link = nodes[0].peers.links[1].as_mut().expect("it is up");
    *link.output.frames().last_mut().expect("a frame waits") ^= 1 << 3;
    run_until(&mut nodes, |nodes| nodes[1].seen.len() >= 4);
    let blamed = match &nodes[1].seen[1] {
        PeerEvent::Corrupt(error) => error.peer(),
        other => panic!("{other:?}"),
    };
    assert_eq!(blamed, 0);
    assert_eq!(nodes[1].seen[2..], [PeerEvent::Down(0), PeerEvent::Up(0)]);
}
