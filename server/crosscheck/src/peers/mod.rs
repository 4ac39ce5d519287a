//! The connections between replicas: one TCP connection a pair, dialled by the higher number, read and written by the
//! order thread. Both ends prove that they have the group's key before either trusts any bytes (`secure.rs`), and
//! exchange the settings that have to be equal (`hello.rs`). Every frame carries a checksum; a connection that delivers
//! a wrong one is closed and opened again.

mod dial;
mod ends;
pub mod fuzzing;
mod handshakes;
pub(crate) mod hello;
mod identity;
mod link;
mod names;
mod net;
mod outgoing;
pub(crate) mod probe;
pub(crate) mod records;
mod refusal;
pub(crate) mod secure;

use std::io;

use bytes::Bytes;
use mio::{Registry, Token};
use order::{FrameError, FrameKind};

use crate::address::Address;
use crate::admin::{Sent, Traffic};
use crate::hooks::{self, FaultPoint, Hooks};
use crate::limits;
use crate::socket_errors::is_own_fault_without_peer;
use dial::Dialled;
use ends::PeerEnd;
use handshakes::PendingHandshakes;
pub use identity::Identity;
pub(crate) use identity::in_common;
use link::{Link, Reading};
pub use net::{Net, Tcp};
use probe::PeerProgress;
pub use refusal::Refusal;

/// Tokens from here on belong to the peers' sockets.
pub const FIRST_TOKEN: usize = 1 << 16;
const LISTENER: usize = FIRST_TOKEN;
const LINKS: usize = FIRST_TOKEN + 1;
const ENDS: usize = FIRST_TOKEN + 512;
const GUESTS: usize = FIRST_TOKEN + 1024;

/// Events of the peers' sockets.
#[derive(Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// A peer is connected.
    Up(u8),
    /// A peer's connection is gone.
    Down(u8),
    /// Proof that the process of a peer whose connection is gone has ended: its host refuses connections. Told only
    /// after [`Peers::look_for_ends`].
    Ended(u8),
    /// A whole frame whose checksum is right.
    Frame {
        /// Its sender.
        from: u8,
        /// The crate that reads it.
        kind: FrameKind,
        /// Its body.
        body: Bytes,
    },
    /// Bytes whose checksum is wrong: none of them was used, and the connection is reset.
    Corrupt(FrameError),
    /// A connection was refused.
    Refused {
        /// The replica at its other end, as far as that is known.
        peer: Option<u8>,
        /// Why.
        why: Refusal,
    },
    /// A peer's host name does not resolve, for this reason; or it resolves again.
    Unresolved {
        /// The peer that cannot be dialled.
        peer: u8,
        /// The name and the reason; none once it resolves again.
        why: Option<String>,
    },
}

/// All connections of one replica to its peers.
pub struct Peers<N: Net = Tcp> {
    me: u8,
    identity: Identity,
    /// Checksum of the secret, which a fault may corrupt like any data.
    sum: u32,
    net: N,
    links: Vec<Option<Link<N>>>,
    handshakes: PendingHandshakes<N>,
    /// When each peer was dialled last, and whether it or this replica refused the connection.
    dialled: Vec<Dialled>,
    /// Events of attempts to connect, at most one per attempt, until the next [`Peers::flush`].
    of_dials: Vec<PeerEvent>,
    /// Per peer: whether its process has ended. Empty unless it is asked for.
    ends: Vec<PeerEnd<N>>,
    /// The buffer for reads of a handshake.
    scratch: Vec<u8>,
    /// The kernel has refused a call that no healthy process makes, and would refuse the next one as well; or a frame
    /// was longer than the largest possible one.
    is_refused: bool,
    /// This replica's progress, and how slow it has been: sent to other replicas' watchdogs.
    pub progress: PeerProgress,
    /// The counts of sent frames.
    pub sent: Sent,
    /// Hooks that may corrupt a frame before it is sent.
    pub hooks: hooks::Active,
}

impl Peers<Tcp> {
    /// Listens for peers.
    ///
    /// # Errors
    /// When the address cannot be bound; the message names it.
    pub fn bind(identity: Identity, addresses: Vec<Address>, registry: &Registry) -> io::Result<Self> {
        let (me, count) = (identity.hello.replica, addresses.len());
        Ok(Peers::over(identity, count, Tcp::bind(me, addresses, registry, Token(LISTENER))?))
    }
}

impl<N: Net> Peers<N> {
    /// The connections of a replica of `count` over `net`.
    pub fn over(identity: Identity, count: usize, net: N) -> Self {
        let mut handshakes = PendingHandshakes::default();
        handshakes.await_dials(count.saturating_sub(usize::from(identity.hello.replica) + 1));
        Peers {
            me: identity.hello.replica,
            sum: order::batch::checksum(&identity.secret.key),
            identity,
            net,
            links: (0..count).map(|_| None).collect(),
            handshakes,
            dialled: vec![Dialled::default(); count],
            of_dials: Vec::new(),
            ends: Vec::new(),
            scratch: vec![0; limits::READ_CHUNK],
            is_refused: false,
            progress: PeerProgress::default(),
            sent: Sent::default(),
            hooks: hooks::Active::default(),
        }
    }

    /// Whether constant data is still right for replica `me`: a wrong number, a list that lost a peer, or a buffer at
    /// another address would cut this replica off for ever without any sign.
    pub fn is_valid(&self, me: u8, addresses: &[Address]) -> bool {
        !self.is_refused
            && self.me == me
            && self.identity.hello.replica == me
            && order::batch::checksum(&self.identity.secret.key) == self.sum
            && self.net.goes_to(addresses)
            && self.links.len() == self.dialled.len()
            && self.handshakes.is_valid()
            // With an empty buffer, reads return nothing, as if every peer had hung up.
            && self.scratch.len() == limits::READ_CHUNK
    }

    /// The group acts as this: a replica that cannot is kept out.
    pub fn act_as(&mut self, behavior: u16) {
        self.identity.hello.acts_as = behavior;
    }

    /// The bytes that wait for one peer, at most over all peers.
    pub fn most_unsent(&self) -> usize {
        self.links.iter().flatten().map(Link::unsent).max().unwrap_or(0)
    }

    /// Peers that are connected now.
    pub fn connected(&self) -> impl Iterator<Item = u8> + '_ {
        (0..self.links.len() as u8)
            .filter(|peer| self.links[usize::from(*peer)].as_ref().is_some_and(Link::is_up))
    }

    /// Handles an event of the poll for a token of this module.
    pub fn on_event(&mut self, token: Token, readable: bool, writable: bool, events: &mut Vec<PeerEvent>) {
        match token.0 {
            LISTENER => self.is_refused |= self.handshakes.accept(&mut self.net),
            guest if guest >= GUESTS => self.on_guest(guest - GUESTS, events),
            end if end >= ENDS => self.on_end((end - ENDS) as u8, events),
            link => {
                let peer = (link - LINKS) as u8;
                let Some(link) = self.links.get_mut(usize::from(peer)).and_then(Option::as_mut) else {
                    return;
                };
                let mut alive = true;
                let before = events.len();
                if readable {
                    let mut reading = Reading { hello: &self.identity.hello, events };
                    alive = link.read(&mut self.net, &mut reading);
                }
                if writable && alive && link.is_urgent {
                    alive = link.write();
                }
                if let Some(dialled) = self.dialled.get_mut(usize::from(peer)) {
                    let refuses = |event: &PeerEvent| matches!(event, PeerEvent::Refused { .. });
                    // A peer that is refused here has answered.
                    let is_refused = events[before..].iter().any(refuses);
                    dialled.was_refused |= is_refused;
                    // A host without a listener has not left anything unanswered.
                    let is_answered = link.is_up() || is_refused || link.is_refused_by_host;
                    dialled.unanswered = if is_answered { 0 } else { dialled.unanswered + u32::from(!alive) };
                    if dialled.unanswered == limits::UNANSWERED {
                        (dialled.unanswered, dialled.was_refused) = (0, true);
                        events.push(PeerEvent::Refused { peer: Some(peer), why: Refusal::HungUp });
                    }
                }
                if events[before..].contains(&PeerEvent::Up(peer)) {
                    self.note_link(peer, true);
                }
                if !alive {
                    self.hang_up(peer, events);
                }
            }
        }
    }

    /// Sends one frame; it leaves with the next [`Peers::flush`]. To a peer that is not connected it is lost.
    pub fn send(&mut self, to: u8, kind: FrameKind, parts: &[&[u8]]) {
        self.send_deferred(to, kind, parts);
        if let Some(link) = self.links.get_mut(usize::from(to)).and_then(Option::as_mut) {
            link.is_urgent = true;
        }
    }

    /// As [`Peers::send`] for a frame that is not urgent: it leaves with the next urgent frame to that peer, or with
    /// the next [`Peers::leave_now`], and not later than [`limits::DEFERRED`] frames after it.
    pub fn send_deferred(&mut self, to: u8, kind: FrameKind, parts: &[&[u8]]) {
        let me = self.me;
        if let Some(link) = self.links.get_mut(usize::from(to)).and_then(Option::as_mut)
            && link.is_up()
        {
            link.deferred += 1;
            link.is_urgent |= link.deferred >= limits::DEFERRED;
            let frames = link.output.frames();
            let start = frames.len();
            if order::frame::encode_parts(kind, me, parts, frames).is_err() {
                self.is_refused = true;
                return;
            }
            let traffic = traffic_of(&mut self.sent, kind);
            traffic.messages += 1;
            traffic.bytes += (frames.len() - start) as u64;
            self.hooks.at(FaultPoint::Frame(&mut frames[start..]));
        }
    }

    /// A tick has passed: sends deferred frames, and ends handshakes that have taken too long.
    pub fn tick(&mut self) {
        self.links.iter_mut().flatten().for_each(|link| link.is_urgent |= link.has_output());
        self.handshakes.tick();
    }

    /// Writes urgent frames, one system call per peer.
    pub fn flush(&mut self, events: &mut Vec<PeerEvent>) {
        events.append(&mut self.of_dials);
        self.handshakes.report(events);
        for peer in 0..self.links.len() as u8 {
            let alive = match self.links[usize::from(peer)].as_mut() {
                Some(link) if link.is_urgent => link.write(),
                _ => true,
            };
            if !alive {
                self.hang_up(peer, events);
            }
        }
    }

    fn hang_up(&mut self, peer: u8, events: &mut Vec<PeerEvent>) {
        if let Some(link) = self.links[usize::from(peer)].take() {
            let was_up = link.is_up();
            self.is_refused |= link.is_refused;
            if link.is_refused_by_host {
                self.note_refused_by_host(peer);
            }
            link.close(&mut self.net);
            if was_up {
                events.push(PeerEvent::Down(peer));
                self.note_link(peer, false);
                self.handshakes.await_dials(usize::from(peer > self.me));
            }
        }
    }

    /// The result of a call to the kernel. A call that it refused is one that a healthy process would not make, or an
    /// event that will be repeated.
    fn granted<T>(&mut self, asked: io::Result<T>) -> Option<T> {
        asked.inspect_err(|error| self.is_refused |= is_own_fault_without_peer(error)).ok()
    }

    fn on_guest(&mut self, place: usize, events: &mut Vec<PeerEvent>) {
        let Some(arrival) =
            self.handshakes.on_event(place, &mut self.identity, &mut self.scratch, self.progress, events)
        else {
            return;
        };
        let peer = arrival.peer;
        // A peer that dials again has lost its old connection. The new one has proved its identity.
        self.hang_up(peer, events);
        let token = Token(LINKS + usize::from(peer));
        let known = (arrival.channel, arrival.records);
        let link = Link::accepted(peer, arrival.stream, known, token, &mut self.net);
        if let Some(mut link) = self.granted(link) {
            events.push(PeerEvent::Up(peer));
            self.note_link(peer, true);
            // The peer may have sent frames directly after its proof, before the socket changed its token.
            let mut reading = Reading { hello: &self.identity.hello, events };
            let alive = link.read(&mut self.net, &mut reading) && link.write();
            self.links[usize::from(peer)] = Some(link);
            if !alive {
                self.hang_up(peer, events);
            }
        }
    }
}

fn traffic_of(sent: &mut Sent, kind: FrameKind) -> &mut Traffic {
    match kind {
        FrameKind::Order | FrameKind::Forward | FrameKind::Batch => &mut sent.order,
        FrameKind::Check | FrameKind::Verify => &mut sent.check,
        FrameKind::Repair => &mut sent.repair,
        FrameKind::Control | FrameKind::Transfer | FrameKind::Admin => &mut sent.other,
    }
}

#[cfg(test)]
mod tests {
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
                let (readable, writable) =
                    (event.is_readable() || event.is_read_closed(), event.is_writable());
                self.peers.on_event(event.token(), readable, writable, &mut self.seen);
            }
        }
    }

    fn identity(me: u8, key: u8) -> Identity {
        let hello = Hello {
            protocol: hello::PROTOCOL,
            purpose: hello::Purpose::Link,
            replica: me,
            replicas: 2,
            cluster: "tests".into(),
            release: "1".into(),
            behaviors: crate::Behaviors::FIRST,
            acts_as: 1,
            settings: vec![("memory_limit_mb".into(), "64".into())],
        };
        Identity { hello, secret: Secret { key: [key; 32], seed: None } }
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
        assert!(!peers.is_valid(1, &known), "it dials another address than it was told");
        known = of_all(&addresses);
        let dialled = peers.dialled.pop();
        assert!(!peers.is_valid(1, &known));
        peers.dialled.extend(dialled);
        assert!(peers.is_valid(1, &known));
        peers.scratch.clear();
        assert!(!peers.is_valid(1, &known), "it reads nothing");
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
        assert_eq!(
            nodes[0].seen[1],
            PeerEvent::Frame { from: 1, kind: FrameKind::Transfer, body: large.into() }
        );
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
            "each is told of but what may be the peer"
        );
    }

    /// A peer that is killed in its handshake is no stranger; strangers are told of as before.
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
        assert_eq!(nodes[0].seen.iter().filter(is_recording).count(), 99, "all but the first are told apart");
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
}
