//! Connections that somebody opened to this replica, and whose other end has not proved who it is: few, for a
//! short time, and believed in nothing.

use std::io::{self, Read, Write};

use mio::{Interest, Token};

use super::hello::{HELLO_BYTES, Purpose};
use super::link::refusal_of;
use super::net::Net;
use super::probe::PeerProgress;
use super::secure::{self, Answered, Channel, Records};
use super::{GUESTS, Identity, PeerEvent, Refusal};
use crate::limits;
use crate::socket_errors::{is_of_one_attempt, is_own_fault, is_own_fault_without_peer};

/// How many there may be at a time.
const MOST: usize = 64;
/// Ticks that one may take.
const TICKS: u32 = limits::HANDSHAKE.as_millis().div_ceil(limits::TICK.as_millis()) as u32;

/// One of them.
struct PendingHandshake<N: Net> {
    stream: N::Stream,
    /// Where it calls from, for messages.
    remote: String,
    records: Records,
    /// It has said a hello that was answered; its next record proves that it is no recording.
    answered: Option<(u8, Purpose, Box<Channel>)>,
    ticks: u32,
}

/// All of them.
pub(super) struct PendingHandshakes<N: Net> {
    places: Vec<Option<PendingHandshake<N>>>,
    /// Connections accepted so far.
    accepted: usize,
    answered: Answered,
    /// Where those called from that went without having proved anything, until that is told.
    gone: Vec<String>,
}

/// A peer that has proved who it is.
pub(super) struct Arrival<N: Net> {
    pub peer: u8,
    pub stream: N::Stream,
    pub channel: Channel,
    /// What came behind its proof.
    pub records: Records,
}

impl<N: Net> Default for PendingHandshakes<N> {
    fn default() -> Self {
        PendingHandshakes {
            places: (0..MOST).map(|_| None).collect(),
            accepted: 0,
            answered: Answered::default(),
            gone: Vec::new(),
        }
    }
}

impl<N: Net> PendingHandshakes<N> {
    /// Whether there is room for as many as there should be.
    pub fn is_sound(&self) -> bool {
        self.places.len() == MOST
    }

    /// Whether nobody is here.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    /// Takes in who waits. Tells whether the kernel refused a call that no healthy process makes.
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

    /// A free place; with none, one after the other gives way, those first who have not shown that they have
    /// the key: a crowd of strangers keeps no peer out.
    fn place(&mut self) -> usize {
        self.accepted += 1;
        let free = self.places.iter().position(Option::is_none);
        let mut next = (0..MOST).map(|step| (self.accepted + step) % MOST);
        let gives_way =
            |place: &usize| self.places[*place].as_ref().is_some_and(|guest| guest.answered.is_none());
        free.or_else(|| next.find(gives_way)).unwrap_or(self.accepted % MOST)
    }

    /// A tick has passed: who has taken too long goes.
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

    /// Whoever has this place goes, without having proved who it is.
    fn go(&mut self, place: usize) {
        self.gone.extend(self.places[place].take().map(|guest| guest.remote));
    }

    /// Tells of those that went.
    pub fn tell(&mut self, events: &mut Vec<PeerEvent>) {
        let silent = |remote| Refusal::Unsound(secure::Unsound::Silent, Some(remote));
        events
            .extend(self.gone.drain(..).map(|remote| PeerEvent::Refused { peer: None, why: silent(remote) }));
    }

    /// The guest at this place has something to say; a peer that has proved itself leaves this place.
    pub fn on_event(
        &mut self,
        place: usize,
        identity: &mut Identity,
        scratch: &mut [u8],
        pace: PeerProgress,
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
        match guest.take_records(identity, pace, &mut self.answered) {
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
            Ok(Took::Proved) => {
                let PendingHandshake { stream, records, answered, .. } = self.places[place].take()?;
                let (peer, _, channel) = answered?;
                Some(Arrival { peer, stream, channel: *channel, records })
            }
            Err((peer, why)) => {
                self.places[place] = None;
                events.push(PeerEvent::Refused { peer, why });
                None
            }
        }
    }
}

/// How far a guest has come.
enum Took {
    /// It has more to say.
    More,
    /// It had one question, and has the answer.
    Done,
    /// It is the peer that it says it is.
    Proved,
}

impl<N: Net> PendingHandshake<N> {
    /// Reads what has come, no more than a handshake has; tells whether the other end has hung up.
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
        pace: PeerProgress,
        answered: &mut Answered,
    ) -> Result<Took, (Option<u8>, Refusal)> {
        let stranger = |unsound| (None, Refusal::Unsound(unsound, Some(self.remote.clone())));
        loop {
            let Some(record) = self.records.next().map_err(stranger)? else {
                let is_long = self.answered.is_none() && self.records.len() >= 2 * HELLO_BYTES;
                return if is_long { Err(stranger(secure::Unsound::Hello)) } else { Ok(Took::More) };
            };
            match &mut self.answered {
                None => {
                    let mut out = Vec::new();
                    answered.is_new(record.sealed).map_err(stranger)?;
                    let answer =
                        secure::answer(&mut identity.secret, &identity.hello, record.sealed, &mut out);
                    let (theirs, channel) = answer.map_err(stranger)?;
                    answered.note(record.sealed);
                    // Whoever is refused is told who is here, and finds the difference for itself.
                    let is_told = self.stream.write(&out).is_ok_and(|written| written == out.len());
                    let peer = theirs.replica;
                    if let Some(why) = refusal_of(&identity.hello, &theirs, None) {
                        return Err((Some(peer), why));
                    }
                    let is_expected = theirs.purpose == Purpose::Progress || peer > identity.hello.replica;
                    if !is_expected || !is_told {
                        return Err((Some(peer), Refusal::Number(peer)));
                    }
                    self.answered = Some((peer, theirs.purpose, Box::new(channel)));
                }
                Some((_, purpose, channel)) => {
                    let mut plain = vec![0; record.sealed.len()];
                    let opened = channel.open(&record, &mut plain).map_err(stranger)?;
                    // A record that is older than this connection proves nothing.
                    opened.ok_or_else(|| stranger(secure::Unsound::Key))?;
                    if *purpose == Purpose::Link {
                        return Ok(Took::Proved);
                    }
                    let out = channel.sealed(&pace.encode());
                    // Without an answer it learns nothing, and asks again.
                    let _ = self.stream.write(&out);
                    return Ok(Took::Done);
                }
            }
        }
    }
}
