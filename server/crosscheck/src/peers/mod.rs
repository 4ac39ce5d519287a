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
mod whereabouts;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use bytes::Bytes;
use mio::{Registry, Token};
use order::{FrameError, FrameKind};

use crate::address::Address;
use crate::admin::{Sent, Traffic};
use crate::hooks::{self, FaultPoint, Hooks};
use crate::limits;
use crate::moved_note;
use crate::socket_errors::is_own_fault_without_peer;
use dial::Dialled;
use ends::PeerEnd;
use handshakes::PendingHandshakes;
pub(crate) use hello::KnownSize;
pub use identity::Identity;
pub(crate) use identity::in_common;
use link::{Link, Reading};
pub use net::{Net, Tcp};
use probe::{PeerProgress, PlaceNews};
pub(crate) use refusal::Outsider;
pub use refusal::Refusal;
pub use whereabouts::{Misplaced, Whereabouts};

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
    /// A replica that has no connection says where it is.
    Announced {
        /// Its number.
        peer: u8,
        /// Its address.
        at: String,
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
    /// A peer knows of a later change of the group's size: how many changes there were, how many replicas it knows, and
    /// how many of them vote.
    OtherSize((u32, u8, u8)),
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
    /// Since when no peer is connected; none while one is.
    lone_since_us: Option<u64>,
    /// Where the moves are noted, if the log is on disk.
    note: Option<PathBuf>,
    /// Replicas that are elsewhere now, for the watchdog, which asks them from another thread.
    redirected: Option<mpsc::Sender<PlaceNews>>,
    /// Events of attempts to connect, at most one per attempt, until the next [`Peers::flush`].
    of_dials: Vec<PeerEvent>,
    /// Per peer: whether its process has ended. Empty unless it is asked for.
    ends: Vec<PeerEnd<N>>,
    /// The buffer for reads of a handshake.
    scratch: Vec<u8>,
    /// The kernel has refused a call that no healthy process makes, and would refuse the next one as well; or a frame
    /// was longer than the largest possible one.
    is_refused: bool,
    /// This replica has no state yet: it announces itself to those that do not dial it, since they may look for it
    /// elsewhere.
    pub seeks: bool,
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
        let identity = Identity { places: Whereabouts::new(me, addresses.clone()), ..identity };
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
            lone_since_us: None,
            note: None,
            redirected: None,
            of_dials: Vec::new(),
            ends: Vec::new(),
            scratch: vec![0; limits::READ_CHUNK],
            is_refused: false,
            seeks: true,
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
            && self.identity.places.is_valid(me, addresses)
            && self.net.goes_to(&self.identity.places.all())
            && self.links.len() == self.dialled.len()
            && self.handshakes.is_valid()
            // With an empty buffer, reads return nothing, as if every peer had hung up.
            && self.scratch.len() == limits::READ_CHUNK
    }

    /// The group acts as this: a replica that cannot is kept out.
    pub fn act_as(&mut self, behavior: u16) {
        self.identity.hello.acts_as = behavior;
    }

    /// Where the replicas are.
    pub fn places(&self) -> &Whereabouts {
        &self.identity.places
    }

    /// Where a connected peer is, as it says; none if it is not connected, or says nothing.
    pub fn place_of(&self, peer: u8) -> Option<&str> {
        let link = self.links.get(usize::from(peer))?.as_ref().filter(|link| link.is_up())?;
        link.at.as_ref().map(|at| at.address.as_str())
    }

    /// The group has moved these replicas, and no others; each has the number of its move and its address. A connection
    /// to a process that is elsewhere ends.
    pub fn follow_moves(&mut self, moves: BTreeMap<u8, (u32, Address)>) {
        if let Some(note) = &self.note {
            // The others know it, too: without the note, this replica may have to be given the new address.
            let _ = moved_note::write(note, &moves);
        }
        for peer in self.identity.places.follow(moves) {
            let Some(address) = self.identity.places.of(peer).cloned() else { continue };
            self.net.redirect(peer, &address);
            // Without a receiver, the watchdog has ended.
            let _ = self.redirected.as_ref().map(|to| to.send(PlaceNews::Moved(peer, address.clone())));
            if self.place_of(peer).is_some_and(|at| at != address.to_string()) {
                let mut events = std::mem::take(&mut self.of_dials);
                self.hang_up(peer, &mut events);
                self.of_dials = events;
            }
        }
    }

    /// There are these replicas from now on (index = replica), of a group whose size has changed so often.
    pub fn resize(&mut self, addresses: Vec<Address>, size: KnownSize) {
        let hello = &mut self.identity.hello;
        (hello.replicas, hello.size) = (addresses.len() as u8, size);
        let (before, now) = (self.links.len(), addresses.len());
        let mut events = std::mem::take(&mut self.of_dials);
        (now..before).for_each(|peer| self.hang_up(peer as u8, &mut events));
        self.of_dials = events;
        self.links.resize_with(now, || None);
        self.dialled.resize(now, Dialled::default());
        if !self.ends.is_empty() {
            self.ends.resize_with(now, PeerEnd::default);
        }
        self.handshakes.await_dials(now.saturating_sub(before));
        self.identity.places.resize(addresses);
        let all = self.identity.places.all();
        self.net.resize(&all);
        let voting = all.into_iter().take(usize::from(size.voting)).collect();
        // Without a receiver, the watchdog has ended.
        let _ = self.redirected.as_ref().map(|to| to.send(PlaceNews::Resized(voting)));
    }

    /// The size of the group, as this replica tells the others.
    pub(crate) fn size(&self) -> KnownSize {
        self.identity.hello.size
    }

    /// Looks for a replica that is not connected at this address, too: a process says there that it is this replica. As
    /// soon as that is gone, it is looked for where the configuration has it.
    pub fn try_at(&mut self, peer: u8, at: &str) {
        let is_connected = self.connected().any(|connected| connected == peer);
        if let (false, Ok(address)) = (is_connected, at.parse::<Address>()) {
            self.net.redirect(peer, &address);
            self.identity.places.try_at(peer, Some(address));
        }
    }

    /// Begins with the moves that an earlier process has noted in this data directory, and notes later ones there.
    pub fn remember(&mut self, directory: &Path) {
        if let Some(moves) = moved_note::read(directory) {
            self.follow_moves(moves);
        }
        self.note = Some(directory.to_owned());
    }

    /// From now on, the replicas that are elsewhere, each with its address.
    pub(crate) fn redirections(&mut self) -> mpsc::Receiver<PlaceNews> {
        let (redirected, receiver) = mpsc::channel();
        self.redirected = Some(redirected);
        receiver
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
                    let mut reading = Reading { identity: &self.identity, events };
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
                    let is_answered =
                        link.is_up() || is_refused || link.is_refused_by_host || link.is_announced;
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
                if peer > self.me {
                    self.dialled[usize::from(peer)].lost();
                }
                if self.identity.places.try_at(peer, None)
                    && let Some(address) = self.identity.places.of(peer)
                {
                    self.net.redirect(peer, address);
                }
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
        if usize::from(peer) >= self.links.len() {
            let mut stream = arrival.stream;
            return self.net.deregister(&mut stream);
        }
        let number = |at: &Option<hello::KnownPlace>| at.as_ref().map_or(0, |at| at.number);
        let present = self.links[usize::from(peer)].as_ref().filter(|link| link.is_up());
        if present.is_some_and(|link| number(&link.at) > number(&arrival.at)) {
            // The machine that was replaced, at a replica that does not know it yet.
            let mut stream = arrival.stream;
            return self.net.deregister(&mut stream);
        }
        // A peer that dials again has lost its old connection. The new one has proved its identity.
        self.hang_up(peer, events);
        let token = Token(LINKS + usize::from(peer));
        let known = (arrival.channel, arrival.records);
        let link = Link::accepted((peer, arrival.at), arrival.stream, known, token, &mut self.net);
        if let Some(mut link) = self.granted(link) {
            events.push(PeerEvent::Up(peer));
            self.note_link(peer, true);
            // The peer may have sent frames directly after its proof, before the socket changed its token.
            let mut reading = Reading { identity: &self.identity, events };
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
        FrameKind::Check | FrameKind::Verify | FrameKind::Read => &mut sent.check,
        FrameKind::Repair => &mut sent.repair,
        FrameKind::Control | FrameKind::Transfer | FrameKind::Admin => &mut sent.other,
    }
}

#[cfg(test)]
mod size_tests;
#[cfg(test)]
mod tests;
