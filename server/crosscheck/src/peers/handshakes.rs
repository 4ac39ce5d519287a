//! Connections to this replica whose other end has not proved its identity: their number and duration are bounded, and
//! nothing from them is trusted.

use std::io::{self, Read, Write};

use mio::{Interest, Token};

use super::hello::{HELLO_BYTES, Hello, KnownPlace, Purpose};
use super::net::Net;
use super::probe::PeerProgress;
use super::records::Records;
use super::secure::{self, Answered, Channel};
use super::whereabouts::ConnectionEnd;
use super::{GUESTS, Identity, PeerEvent, Refusal};
use crate::limits;
use crate::socket_errors::{is_of_one_attempt, is_own_fault, is_own_fault_without_peer};

/// Most such connections at a time.
const MOST: usize = 64;
/// Connections without a proof that are excused each time a peer that dials this replica starts or leaves: it may be
/// killed or stopped in its handshake, and dials again. All further ones are of strangers.
pub(super) const EXCUSED: usize = 2;
/// Ticks that a handshake may take.
const TICKS: u32 = limits::ticks(limits::HANDSHAKE) as u32;

/// One such connection.
struct PendingHandshake<N: Net> {
    stream: N::Stream,
    /// The address of the other end, for messages.
    remote: String,
    records: Records,
    /// Set once its hello was answered; its next record proves that the hello is no recording.
    answered: Option<Box<(Hello, Channel)>>,
    ticks: u32,
}

/// All such connections.
pub(super) struct PendingHandshakes<N: Net> {
    places: Vec<Option<PendingHandshake<N>>>,
    /// Connections accepted so far.
    accepted: usize,
    answered: Answered,
    /// Addresses of other ends that left without a proof, until this is reported.
    gone: Vec<String>,
    /// How many of them are taken for peers.
    excused: usize,
}

/// A peer that has proved its identity.
pub(super) struct Arrival<N: Net> {
    pub peer: u8,
    /// Where it is, as it says.
    pub at: Option<KnownPlace>,
    pub stream: N::Stream,
    pub channel: Channel,
    /// The records after its proof.
    pub records: Records,
}

impl<N: Net> Default for PendingHandshakes<N> {
    fn default() -> Self {
        PendingHandshakes {
            places: (0..MOST).map(|_| None).collect(),
            accepted: 0,
            answered: Answered::default(),
            gone: Vec::new(),
            excused: 0,
        }
    }
}

impl<N: Net> PendingHandshakes<N> {
    /// Whether the table has the right number of places.
    pub fn is_valid(&self) -> bool {
        self.places.len() == MOST
    }

    /// Whether there is no such connection.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    /// So many peers that dial this replica start now, or have left: the next connections that end without a proof may
    /// be theirs.
    pub fn await_dials(&mut self, peers: usize) {
        self.excused = (self.excused + peers * EXCUSED).min(MOST / 8);
    }

    /// Accepts waiting connections. Returns whether the kernel refused a call that no healthy process makes.
    pub fn accept(&mut self, net: &mut N) -> bool {
        loop {
            let mut stream = match net.accept() {
                Ok(stream) => stream,
                Err(error) if is_of_one_attempt(&error) => continue,
                Err(error) => return is_own_fault_without_peer(&error),
            };
            let place = self.place();
            if let Err(error) = net.register(&mut stream, Token(GUESTS + place), Interest::READABLE) {
                return is_own_fault_without_peer(&error);
            }
            let (remote, records) = (net.remote(&stream), Records::default());
            self.go(place);
            self.places[place] = Some(PendingHandshake { stream, remote, records, answered: None, ticks: 0 });
        }
    }

    /// A free place. If there is none, connections are replaced in turn, first those that have not shown that they have
    /// the key: many strangers cannot keep a peer out.
    fn place(&mut self) -> usize {
        self.accepted += 1;
        let free = self.places.iter().position(Option::is_none);
        let mut next = (0..MOST).map(|step| (self.accepted + step) % MOST);
        let gives_way =
            |place: &usize| self.places[*place].as_ref().is_some_and(|guest| guest.answered.is_none());
        free.or_else(|| next.find(gives_way)).unwrap_or(self.accepted % MOST)
    }

    /// A tick has passed: ends connections that have taken too long.
    pub fn tick(&mut self) {
        for place in 0..self.places.len() {
            if let Some(guest) = &mut self.places[place] {
                guest.ticks += 1;
                if guest.ticks > TICKS {
                    self.go(place);
                }
            }
        }
    }

    /// Ends the connection at this place, which has not proved its identity.
    fn go(&mut self, place: usize) {
        self.gone.extend(self.places[place].take().map(|guest| guest.remote));
    }

    /// Reports the connections that ended.
    pub fn report(&mut self, events: &mut Vec<PeerEvent>) {
        let excused = self.excused.min(self.gone.len());
        self.excused -= excused;
        self.gone.drain(..excused);
        let silent = |remote| Refusal::Untrusted(secure::Untrusted::Silent, Some(remote));
        events
            .extend(self.gone.drain(..).map(|remote| PeerEvent::Refused { peer: None, why: silent(remote) }));
    }

    /// Handles an event of the connection at this place; a peer that has proved its identity leaves the table.
    pub fn on_event(
        &mut self,
        place: usize,
        identity: &mut Identity,
        scratch: &mut [u8],
        progress: PeerProgress,
        events: &mut Vec<PeerEvent>,
    ) -> Option<Arrival<N>> {
        let guest = self.places.get_mut(place).and_then(Option::as_mut)?;
        let is_over = match guest.read(scratch) {
            Ok(is_over) => is_over,
            Err(_) => {
                self.places[place] = None;
                return None;
            }
        };
        match guest.take_records(identity, progress, &mut self.answered, events) {
            Ok(Took::More) => {
                if is_over {
                    self.go(place);
                }
                None
            }
            Ok(Took::Done) => {
                self.places[place] = None;
                None
            }
            Ok(Took::Announcement(hello)) => {
                self.places[place] = None;
                let at = hello.here.map(|here| here.address);
                events.extend(at.map(|at| PeerEvent::Announced { peer: hello.replica, at }));
                None
            }
            Ok(Took::Proved) => {
                let PendingHandshake { stream, records, answered, .. } = self.places[place].take()?;
                let (hello, channel) = *answered?;
                Some(Arrival { peer: hello.replica, at: hello.here, stream, channel, records })
            }
            Err((peer, why)) => {
                self.places[place] = None;
                events.push(PeerEvent::Refused { peer, why });
                None
            }
        }
    }
}

/// The progress of a handshake.
enum Took {
    /// More records are needed.
    More,
    /// It requested the progress, and has the answer.
    Done,
    /// It has announced where it is, and has the answer.
    Announcement(Box<Hello>),
    /// It has proved that it is this peer.
    Proved,
}

impl<N: Net> PendingHandshake<N> {
    /// Reads the received bytes, no more than a handshake has; returns whether the other end has hung up.
    fn read(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        let most = scratch.len().min(2 * HELLO_BYTES);
        while self.records.len() < 2 * HELLO_BYTES {
            match self.stream.read(&mut scratch[..most]) {
                Ok(0) => return Ok(true),
                Ok(read) => self.records.feed(&scratch[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_own_fault(&error) => return Err(error),
                Err(_) => return Ok(true),
            }
        }
        Ok(false)
    }

    fn take_records(
        &mut self,
        identity: &mut Identity,
        progress: PeerProgress,
        answered: &mut Answered,
        events: &mut Vec<PeerEvent>,
    ) -> Result<Took, (Option<u8>, Refusal)> {
        let stranger = |untrusted| (None, Refusal::Untrusted(untrusted, Some(self.remote.clone())));
        loop {
            let Some(record) = self.records.next().map_err(stranger)? else {
                let is_long = self.answered.is_none() && self.records.len() >= 2 * HELLO_BYTES;
                return if is_long { Err(stranger(secure::Untrusted::Hello)) } else { Ok(Took::More) };
            };
            match &mut self.answered {
                None => {
                    let mut out = Vec::new();
                    answered.is_new(record.sealed).map_err(stranger)?;
                    let Identity { secret, hello, places } = &mut *identity;
                    let complete = |theirs: &Hello| places.complete(hello, theirs.replica);
                    let answer = secure::answer(secret, complete, record.sealed, &mut out);
                    let (theirs, channel) = answer.map_err(stranger)?;
                    answered.note(record.sealed);
                    // A process that is refused gets this replica's hello, and finds the difference itself.
                    let is_reported = self.stream.write(&out).is_ok_and(|written| written == out.len());
                    let peer = theirs.replica;
                    let learned = identity.learns_from(&theirs);
                    events.extend(learned.map(PeerEvent::OtherSize));
                    if let Some(why) = identity.refusal_of(&theirs, None, ConnectionEnd::Accepted) {
                        return Err((Some(peer), why));
                    }
                    if theirs.purpose == Purpose::Announcement {
                        return Ok(Took::Announcement(Box::new(theirs)));
                    }
                    // One that has moved is not found by those who do not know it: it dials all.
                    let has_moved = theirs.here.as_ref().is_some_and(|here| here.number > 0);
                    let is_expected =
                        theirs.purpose == Purpose::Progress || peer > identity.hello.replica || has_moved;
                    if !is_expected || !is_reported {
                        return Err((Some(peer), Refusal::Number(peer)));
                    }
                    self.answered = Some(Box::new((theirs, channel)));
                }
                Some(answered) => {
                    let (hello, channel) = &mut **answered;
                    let opened = channel.open(record).map_err(stranger)?;
                    // A record from before this connection proves nothing.
                    opened.ok_or_else(|| stranger(secure::Untrusted::Key))?;
                    if hello.purpose == Purpose::Link {
                        return Ok(Took::Proved);
                    }
                    let out = channel.sealed(&progress.encode());
                    // If the answer is lost, the peer sends its request again.
                    let _ = self.stream.write(&out);
                    return Ok(Took::Done);
                }
            }
        }
    }
}
