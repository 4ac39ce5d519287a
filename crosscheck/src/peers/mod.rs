//! The connections between replicas: one TCP connection a pair, dialled by the higher number, read and written by the
//! order thread. Every frame carries a checksum; a connection that delivers a wrong one is closed and opened again.

mod link;
mod net;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use mio::{Interest, Registry, Token};
use order::{FrameError, Kind};

use crate::admin::{Sent, Traffic};
use crate::limits;
use crate::world::{is_of_one_attempt, is_own_fault, is_own_fault_without_peer};
use link::{Link, Preamble};
pub use net::{Net, Tcp};

/// Tokens from here on belong to the peers' sockets.
pub const FIRST_TOKEN: usize = 1 << 16;
const LISTENER: usize = FIRST_TOKEN;
const LINKS: usize = FIRST_TOKEN + 1;
const GUESTS: usize = FIRST_TOKEN + 1024;
/// Accepted connections that have not yet said who they are.
const MAX_GUESTS: usize = 64;

/// What the peers' sockets have to say.
#[derive(Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// A peer can be talked to.
    Up(u8),
    /// A peer's connection is gone.
    Down(u8),
    /// A whole frame whose checksum holds.
    Frame {
        /// Who sent it.
        from: u8,
        /// Which room reads it.
        kind: Kind,
        /// What it says.
        body: Bytes,
    },
    /// Bytes whose checksum does not hold: nothing of them was used, the connection is reset.
    Corrupt(FrameError),
}

/// All connections of one replica to its peers.
pub struct Peers<N: Net = Tcp> {
    me: u8,
    net: N,
    links: Vec<Option<Link<N>>>,
    guests: Vec<Option<Guest<N>>>,
    /// Connections accepted so far.
    accepted: usize,
    /// When each peer was dialled last.
    dialled_us: Vec<Option<u64>>,
    /// What one socket is read into.
    scratch: Vec<u8>,
    /// The kernel has refused a call that no healthy process makes: it would refuse the next one as well.
    is_refused: bool,
    /// What went out so far.
    pub sent: Sent,
    /// Flips one bit of the next frame on its way out: an injected fault.
    #[cfg(feature = "inject")]
    pub garble_next: Vec<u64>,
}

struct Guest<N: Net> {
    stream: N::Stream,
    preamble: Preamble,
}

impl Peers<Tcp> {
    /// Listens for peers.
    ///
    /// # Errors
    /// When the address cannot be bound; the message names it.
    pub fn bind(me: u8, addresses: Vec<SocketAddr>, registry: &Registry) -> io::Result<Self> {
        let count = addresses.len();
        Ok(Peers::over(me, count, Tcp::bind(me, addresses, registry, Token(LISTENER))?))
    }
}

impl<N: Net> Peers<N> {
    /// The connections of replica `me` of `count` over `net`.
    pub fn over(me: u8, count: usize, net: N) -> Self {
        Peers {
            me,
            net,
            links: (0..count).map(|_| None).collect(),
            guests: (0..MAX_GUESTS).map(|_| None).collect(),
            accepted: 0,
            dialled_us: vec![None; count],
            scratch: vec![0; limits::READ_CHUNK],
            is_refused: false,
            sent: Sent::default(),
            #[cfg(feature = "inject")]
            garble_next: Vec::new(),
        }
    }

    /// Whether what never changes is still what it was for replica `me`: a wrong number, a list that lost a peer, or a buffer that is
    /// elsewhere, would cut this replica off for ever, and it would not know.
    pub fn is_sound(&self, me: u8, addresses: &[SocketAddr]) -> bool {
        !self.is_refused
            && self.me == me
            && self.net.goes_to(addresses)
            && self.links.len() == self.dialled_us.len()
            && self.guests.len() == MAX_GUESTS
            // An empty buffer reads nothing, which looks as if every peer had hung up.
            && self.scratch.len() == limits::READ_CHUNK
    }

    /// Bytes that wait for the peer that most wait for.
    pub fn most_unsent(&self) -> usize {
        self.links.iter().flatten().map(Link::unsent).max().unwrap_or(0)
    }

    /// Peers that can be talked to now.
    pub fn connected(&self) -> impl Iterator<Item = u8> + '_ {
        (0..self.links.len() as u8)
            .filter(|peer| self.links[usize::from(*peer)].as_ref().is_some_and(Link::is_up))
    }

    /// Dials whoever is missing, and whoever was dialled and never answered: the higher number dials the lower.
    pub fn dial(&mut self, now_us: u64) {
        for peer in 0..self.me {
            let index = usize::from(peer);
            let passed = |pause| now_us >= self.dial_at(index, pause);
            let is_mute = self.links[index].as_ref().is_some_and(|link| !link.is_up());
            if is_mute && passed(limits::DIAL_PATIENCE) {
                self.hang_up(peer, &mut Vec::new());
            } else if self.links[index].is_some() || !passed(limits::RECONNECT) {
                continue;
            }
            self.dialled_us[index] = Some(now_us);
            if let Ok(stream) = self.net.connect(peer) {
                let token = Token(LINKS + index);
                let link = Link::dialled(self.me, peer, stream, token, &mut self.net);
                self.links[index] = self.granted(link);
            }
        }
    }

    /// Time until a missing peer is dialled again, if one is missing.
    pub fn next_dial(&self, now_us: u64) -> Option<Duration> {
        (0..usize::from(self.me))
            .filter(|peer| self.links[*peer].is_none())
            .map(|peer| self.dial_at(peer, limits::RECONNECT))
            .map(|at_us| Duration::from_micros(at_us.saturating_sub(now_us)))
            .min()
    }

    /// When `pause` has passed since a peer was dialled; at once, when it never was.
    fn dial_at(&self, peer: usize, pause: Duration) -> u64 {
        self.dialled_us[peer].map_or(0, |at_us| at_us + pause.as_micros() as u64)
    }

    /// Handles what the poll said about a token of this module.
    pub fn on_event(&mut self, token: Token, readable: bool, writable: bool, events: &mut Vec<PeerEvent>) {
        match token.0 {
            LISTENER => self.accept(),
            guest if guest >= GUESTS => self.on_guest(guest - GUESTS, events),
            link => {
                let peer = (link - LINKS) as u8;
                let Some(link) = self.links.get_mut(usize::from(peer)).and_then(Option::as_mut) else {
                    return;
                };
                let mut alive = true;
                if readable {
                    alive = link.read(&mut self.net, &mut self.scratch, events);
                }
                if writable && alive && link.is_urgent {
                    alive = link.write();
                }
                if !alive {
                    self.hang_up(peer, events);
                }
            }
        }
    }

    /// Puts one frame on its way; it leaves with the next [`Peers::flush`]. To a peer that is away it is lost.
    pub fn send(&mut self, to: u8, kind: Kind, parts: &[&[u8]]) {
        self.send_along(to, kind, parts);
        if let Some(link) = self.links.get_mut(usize::from(to)).and_then(Option::as_mut) {
            link.is_urgent = true;
        }
    }

    /// As [`Peers::send`] for what nobody waits for: it leaves with the next frame to that peer that somebody waits for, or
    /// with the next [`Peers::leave_now`], and not later than [`limits::RIDING`] frames after it.
    pub fn send_along(&mut self, to: u8, kind: Kind, parts: &[&[u8]]) {
        let me = self.me;
        if let Some(link) = self.links.get_mut(usize::from(to)).and_then(Option::as_mut)
            && link.is_up()
        {
            link.riding += 1;
            link.is_urgent |= link.riding >= limits::RIDING;
            let start = link.output.len();
            order::frame::encode_parts(kind, me, parts, &mut link.output);
            let traffic = traffic_of(&mut self.sent, kind);
            traffic.messages += 1;
            traffic.bytes += (link.output.len() - start) as u64;
            #[cfg(feature = "inject")]
            if let Some(seed) = self.garble_next.pop() {
                let bits = (link.output.len() - start) as u64 * 8;
                let bit = seed % bits;
                link.output[start + (bit / 8) as usize] ^= 1 << (bit % 8);
            }
        }
    }

    /// What rides along has waited long enough.
    pub fn leave_now(&mut self) {
        self.links.iter_mut().flatten().for_each(|link| link.is_urgent |= link.has_output());
    }

    /// Writes what somebody waits for, one system call per peer.
    pub fn flush(&mut self, events: &mut Vec<PeerEvent>) {
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
            link.close(&mut self.net);
            if was_up {
                events.push(PeerEvent::Down(peer));
            }
        }
    }

    /// What the kernel gave; what it refused a healthy process would not have asked for, or comes again.
    fn granted<T>(&mut self, asked: io::Result<T>) -> Option<T> {
        asked.inspect_err(|error| self.is_refused |= is_own_fault_without_peer(error)).ok()
    }

    fn accept(&mut self) {
        loop {
            let accepted = self.net.accept();
            if accepted.as_ref().is_err_and(is_of_one_attempt) {
                continue;
            }
            let Some(mut stream) = self.granted(accepted) else { return };
            let free = self.guests.iter().position(Option::is_none);
            // With none free, one after the other gives way: it may have been cut off before it could say who it is.
            let place = free.unwrap_or(self.accepted % MAX_GUESTS);
            self.accepted += 1;
            let registered = self.net.register(&mut stream, Token(GUESTS + place), Interest::READABLE);
            if self.granted(registered).is_none() {
                continue;
            }
            self.guests[place] = Some(Guest { stream, preamble: Preamble::default() });
        }
    }

    fn on_guest(&mut self, place: usize, events: &mut Vec<PeerEvent>) {
        let Some(guest) = self.guests.get_mut(place).and_then(Option::as_mut) else { return };
        let read = guest.preamble.read(&mut guest.stream);
        self.is_refused |= read.as_ref().is_err_and(is_own_fault);
        let peer = match read.ok() {
            Some(None) => return,
            Some(Some(peer)) if peer > self.me && usize::from(peer) < self.links.len() => peer,
            // Not a replica of this group, or gone: forget it.
            Some(Some(_)) | None => {
                self.guests[place] = None;
                return;
            }
        };
        let Some(Guest { stream, .. }) = self.guests[place].take() else { return };
        // A peer that dials again has lost its old connection.
        self.hang_up(peer, events);
        let token = Token(LINKS + usize::from(peer));
        let link = Link::accepted(self.me, peer, stream, token, &mut self.net);
        if let Some(mut link) = self.granted(link) {
            events.push(PeerEvent::Up(peer));
            // The peer may have sent frames right behind its preamble, before the socket changed its token.
            let alive = link.read(&mut self.net, &mut self.scratch, events) && link.write();
            self.links[usize::from(peer)] = Some(link);
            if !alive {
                self.hang_up(peer, events);
            }
        }
    }
}

fn traffic_of(sent: &mut Sent, kind: Kind) -> &mut Traffic {
    match kind {
        Kind::Order | Kind::Forward => &mut sent.order,
        Kind::Check => &mut sent.check,
        Kind::Repair => &mut sent.repair,
        Kind::Control | Kind::Transfer | Kind::Admin => &mut sent.other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};

    struct Node {
        poll: Poll,
        peers: Peers,
        seen: Vec<PeerEvent>,
    }

    impl Node {
        fn new(me: u8, addresses: &[SocketAddr]) -> Node {
            let poll = Poll::new().unwrap();
            let peers = Peers::bind(me, addresses.to_vec(), poll.registry()).unwrap();
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

    fn addresses() -> Vec<SocketAddr> {
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listeners = [free(), free()];
        listeners.iter().map(|listener| listener.local_addr().unwrap()).collect()
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
    fn a_replica_that_mistakes_itself_or_forgets_a_peer_is_not_sound() {
        let mut known = addresses();
        let mut peers = Node::new(1, &known).peers;
        assert!(peers.is_sound(1, &known) && !peers.is_sound(0, &known));
        let link = peers.links.pop();
        assert!(!peers.is_sound(1, &known));
        peers.links.extend(link);
        known[0].set_port(1);
        assert!(!peers.is_sound(1, &known), "it dials another address than it was told");
        known = peers.net.addresses.clone();
        let dialled = peers.dialled_us.pop();
        assert!(!peers.is_sound(1, &known));
        peers.dialled_us.extend(dialled);
        assert!(peers.is_sound(1, &known));
        peers.scratch.clear();
        assert!(!peers.is_sound(1, &known), "it reads nothing");
    }

    #[test]
    fn a_pair_meets_talks_and_meets_again() {
        let addresses = addresses();
        let mut nodes = vec![Node::new(0, &addresses), Node::new(1, &addresses)];
        run_until(&mut nodes, |nodes| nodes.iter().all(|node| !node.seen.is_empty()));
        assert_eq!(nodes[0].seen, [PeerEvent::Up(1)]);
        assert_eq!(nodes[1].seen, [PeerEvent::Up(0)]);
        let large = vec![7u8; 3 << 20];
        nodes[0].peers.send(1, Kind::Check, &[b"he", b"llo"]);
        nodes[1].peers.send(0, Kind::Transfer, &[&large]);
        run_until(&mut nodes, |nodes| nodes.iter().all(|node| node.seen.len() >= 2));
        let hello = PeerEvent::Frame { from: 0, kind: Kind::Check, body: Bytes::from_static(b"hello") };
        assert_eq!(nodes[1].seen[1], hello);
        assert_eq!(nodes[0].seen[1], PeerEvent::Frame { from: 1, kind: Kind::Transfer, body: large.into() });
        let (check, other) = (nodes[0].peers.sent.check, nodes[1].peers.sent.other);
        assert_eq!((check.messages, other.messages), (1, 1));
        assert!(check.bytes > 5 && other.bytes > 3 << 20, "bodies and headers: {check:?} {other:?}");
        // The same replica after a crash: its sockets are closed, then opened anew.
        drop(nodes.pop());
        nodes.push(Node::new(1, &addresses));
        run_until(&mut nodes, |nodes| nodes[0].seen.len() >= 4 && !nodes[1].seen.is_empty());
        assert_eq!(nodes[0].seen[2..], [PeerEvent::Down(1), PeerEvent::Up(1)]);
    }

    #[test]
    fn a_peer_that_never_says_who_it_is_is_dialled_again() {
        let addresses = addresses();
        // The kernel takes the connection, nobody reads it.
        let mute = std::net::TcpListener::bind(addresses[0]).unwrap();
        let mut nodes = vec![Node::new(1, &addresses)];
        nodes[0].step(0);
        let _held = mute.accept().unwrap();
        drop(mute);
        nodes.insert(0, Node::new(0, &addresses));
        run_until(&mut nodes, |nodes| nodes.iter().all(|node| !node.seen.is_empty()));
    }

    #[test]
    fn what_nobody_waits_for_leaves_with_what_somebody_waits_for() {
        let addresses = addresses();
        let mut nodes = vec![Node::new(0, &addresses), Node::new(1, &addresses)];
        run_until(&mut nodes, |nodes| nodes.iter().all(|node| !node.seen.is_empty()));
        nodes[0].peers.send_along(1, Kind::Check, &[b"first"]);
        (0..20).for_each(|step| nodes.iter_mut().for_each(|node| node.step(step * 2000)));
        assert_eq!(nodes[1].seen.len(), 1, "nobody waits for it: {:?}", nodes[1].seen);
        nodes[0].peers.send(1, Kind::Order, &[b"second"]);
        run_until(&mut nodes, |nodes| nodes[1].seen.len() == 3);
        let body = |event: &PeerEvent| match event {
            PeerEvent::Frame { body, .. } => body.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(nodes[1].seen[1..].iter().map(body).collect::<Vec<_>>(), ["first", "second"]);
        nodes[0].peers.send_along(1, Kind::Check, &[b"third"]);
        nodes[0].peers.leave_now();
        run_until(&mut nodes, |nodes| nodes[1].seen.len() == 4);
    }

    #[cfg(feature = "inject")]
    #[test]
    fn a_garbled_frame_resets_the_connection_and_nothing_of_it_is_used() {
        let addresses = addresses();
        let mut nodes = vec![Node::new(0, &addresses), Node::new(1, &addresses)];
        run_until(&mut nodes, |nodes| nodes.iter().all(|node| !node.seen.is_empty()));
        nodes[0].peers.garble_next = vec![123];
        nodes[0].peers.send(1, Kind::Check, &[b"these bytes are not what they were"]);
        run_until(&mut nodes, |nodes| nodes[1].seen.len() >= 4);
        let blamed = match &nodes[1].seen[1] {
            PeerEvent::Corrupt(error) => error.peer(),
            other => panic!("{other:?}"),
        };
        assert_eq!(blamed, 0);
        assert_eq!(nodes[1].seen[2..], [PeerEvent::Down(0), PeerEvent::Up(0)]);
    }
}
