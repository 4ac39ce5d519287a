//! One client connection: bytes in, requests out; replies in any order in, bytes in request order out.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::sync::atomic::Ordering::Relaxed;

use bytes::{Buf, Bytes};
use mio::Registry;
use mio::net::TcpStream;

use super::{Bounds, Reply};
use crate::limits;
use crate::service::{Action, ClientCounters, Progress, Protocol};

/// What becomes of a connection after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Goes on when its socket or a reply says so.
    Open,
    /// Has input left that nobody will announce again: call `read` again soon.
    Unread,
    /// Is over.
    Closed,
}

/// A place in the sequence of replies.
enum Place {
    /// The request with this checksum is on its way.
    Waiting(u32),
    /// The reply waits for those before it; with its digest, if it was voted on.
    Ready(Bytes, Option<u128>),
    /// The last reply: after it the connection is closed.
    Last(Bytes),
    /// No correct reply can be had: the connection ends here, without these bytes.
    Broken,
}

/// What all connections of a client thread share when they read.
pub(super) struct Reading<'a> {
    /// What may be asked.
    pub bounds: Bounds,
    /// Bytes in and out.
    pub counters: &'a ClientCounters,
    /// What a socket is read into.
    pub scratch: &'a mut [u8],
}

pub(super) struct Connection<P> {
    stream: TcpStream,
    protocol: P,
    input: Vec<u8>,
    /// Bytes of `input` that are done with.
    consumed: usize,
    /// Bytes of `input` that the protocol wants to see before it is asked again.
    wanted: usize,
    /// The socket may have more input than was read.
    readable: bool,
    /// The client has sent its last byte, which may not have been read yet.
    ending: bool,
    /// The client's last byte has been read (it may still read).
    half_closed: bool,
    /// The protocol said that what follows is not to be read.
    closing: bool,
    places: VecDeque<Place>,
    /// Sequence number of the first place.
    first: u64,
    unsent: VecDeque<Bytes>,
    unsent_bytes: usize,
    broken: bool,
}

impl<P: Protocol> Connection<P> {
    pub(super) fn new(stream: TcpStream, protocol: P) -> Self {
        Connection {
            stream,
            protocol,
            input: Vec::new(),
            consumed: 0,
            wanted: 1,
            readable: true,
            ending: false,
            half_closed: false,
            closing: false,
            places: VecDeque::new(),
            first: 0,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            broken: false,
        }
    }

    pub(super) fn deregister(&mut self, registry: &Registry) {
        // Closing the descriptor would do it as well; an error changes nothing.
        let _ = registry.deregister(&mut self.stream);
    }

    /// Reads what has come and hands on at most `room` requests. `ending` says that the client has sent its last byte.
    pub(super) fn read(
        &mut self,
        ending: bool,
        room: usize,
        reading: &mut Reading<'_>,
        mut submit: impl FnMut(u64, order::Request),
    ) -> Fate {
        let Reading { bounds, counters, .. } = *reading;
        self.readable = true;
        self.ending |= ending;
        let mut left = room;
        let mut taken = 0;
        loop {
            self.decode(&mut left, bounds, counters, &mut submit);
            let stop = self.closing || self.is_full() || left == 0 || !self.readable;
            if stop || taken >= limits::READ_PER_TURN {
                break;
            }
            match self.fill(reading.scratch, bounds.twice) {
                Ok(0) => {
                    self.half_closed = true;
                    self.readable = false;
                    break;
                }
                Ok(read) => {
                    taken += read;
                    counters.bytes_in.fetch_add(read as u64, Relaxed);
                    // A short read has emptied the socket, and what comes from now on is announced by a new event. (An end
                    // that came with this event is not.)
                    self.readable = self.ending || read == reading.scratch.len();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Fate::Closed,
            }
        }
        let fate = self.write(counters);
        let cut_short = left == 0 || taken >= limits::READ_PER_TURN;
        if fate == Fate::Open && cut_short && self.may_go_on() { Fate::Unread } else { fate }
    }

    /// Whether input is waiting that no event will announce again.
    fn may_go_on(&self) -> bool {
        !self.closing && !self.is_full() && (self.readable || self.input.len() - self.consumed >= self.wanted)
    }

    fn is_full(&self) -> bool {
        self.places.len() >= limits::PIPELINED_PER_CONNECTION
            || self.unsent_bytes >= limits::UNSENT_PER_CONNECTION
    }

    fn fill(&mut self, scratch: &mut [u8], twice: bool) -> io::Result<usize> {
        if self.consumed > 0 {
            self.input.drain(..self.consumed);
            self.consumed = 0;
        }
        if self.input.is_empty() && self.input.capacity() > limits::READ_PER_TURN {
            self.input = Vec::new();
        }
        let read = self.stream.read(scratch)?;
        let before = self.input.len();
        self.input.extend_from_slice(&scratch[..read]);
        // The copy is what requests are decoded from, both times.
        if twice && self.input[before..] != scratch[..read] {
            return Err(io::Error::other("what was read changed while it was copied"));
        }
        Ok(read)
    }

    /// The first stage: bytes become requests, each with a checksum from here on.
    fn decode(
        &mut self,
        left: &mut usize,
        bounds: Bounds,
        counters: &ClientCounters,
        submit: &mut impl FnMut(u64, order::Request),
    ) {
        while !self.closing && *left > 0 && !self.is_full() {
            let rest = &self.input[self.consumed..];
            if rest.len() < self.wanted {
                return;
            }
            let before = bounds.twice.then(|| self.protocol.clone());
            let (used, action) = match self.protocol.next(rest) {
                Progress::NeedMore(wanted) => {
                    self.wanted = wanted.max(rest.len() + 1);
                    if self.wanted > bounds.request {
                        self.places
                            .push_back(Place::Last(Bytes::from_static(b"SERVER_ERROR request too long\r\n")));
                        self.closing = true;
                    }
                    return;
                }
                Progress::Done { used, action } => (used, action),
            };
            assert!(used > 0 && used <= rest.len(), "a protocol consumes what it has seen, and something");
            let start = self.consumed;
            self.consumed += used;
            self.wanted = 1;
            match action {
                Action::Nothing => {}
                Action::Reply(reply) => self.places.push_back(Place::Ready(reply.into(), None)),
                Action::Close(reply) => {
                    self.places.push_back(Place::Last(reply.into()));
                    self.closing = true;
                }
                Action::Order(request) => {
                    let request = crate::ordered::summed(request.into());
                    if before
                        .is_some_and(|protocol| !comes_to(protocol, &self.input[start..], used, &request))
                    {
                        counters.misread.fetch_add(1, Relaxed);
                        self.places.push_back(Place::Broken);
                        self.closing = true;
                        return;
                    }
                    *left -= 1;
                    let sequence = self.first + self.places.len() as u64;
                    self.places.push_back(Place::Waiting(request.checksum));
                    submit(sequence, request);
                }
            }
        }
    }

    /// A reply takes its place, if it answers the request that waits there; `None` means that no correct one can be had.
    pub(super) fn answer(&mut self, sequence: u64, reply: Option<Reply>) {
        let Some(index) = sequence.checked_sub(self.first) else { return };
        let Some(place) = self.places.get_mut(index as usize) else { return };
        if let Place::Waiting(asked) = *place {
            let right = reply.filter(|reply| reply.asked == asked);
            *place = right.map_or(Place::Broken, |reply| Place::Ready(reply.bytes, reply.voted));
        }
    }

    /// Sends the replies whose turn has come, as far as the socket takes them.
    pub(super) fn write(&mut self, counters: &ClientCounters) -> Fate {
        let was_full = self.is_full();
        self.collect(counters);
        while !self.unsent.is_empty() {
            let slices: Vec<IoSlice<'_>> =
                self.unsent.iter().take(64).map(|bytes| IoSlice::new(bytes)).collect();
            match self.stream.write_vectored(&slices) {
                Ok(0) => return Fate::Closed,
                Ok(sent) => {
                    counters.bytes_out.fetch_add(sent as u64, Relaxed);
                    self.sent(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.fate(was_full),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Fate::Closed,
            }
        }
        self.fate(was_full)
    }

    fn collect(&mut self, counters: &ClientCounters) {
        while !self.broken {
            let (bytes, last) = match self.places.front_mut() {
                None | Some(Place::Waiting(_)) => return,
                Some(Place::Ready(bytes, voted)) => {
                    // The last look: after this line only the kernel reads them.
                    let is_right = voted.is_none_or(|voted| vote::digest::reply(bytes) == voted);
                    counters.withheld.fetch_add(u64::from(!is_right), Relaxed);
                    if is_right { (std::mem::take(bytes), false) } else { (Bytes::new(), true) }
                }
                Some(Place::Last(bytes)) => (std::mem::take(bytes), true),
                Some(Place::Broken) => (Bytes::new(), true),
            };
            self.places.pop_front();
            self.first += 1;
            self.broken = last;
            if !bytes.is_empty() {
                self.unsent_bytes += bytes.len();
                self.unsent.push_back(bytes);
            }
        }
    }

    fn sent(&mut self, mut count: usize) {
        self.unsent_bytes -= count;
        while let Some(front) = self.unsent.front_mut() {
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.unsent.pop_front();
        }
    }

    fn fate(&self, was_full: bool) -> Fate {
        let all_sent = self.unsent.is_empty();
        if all_sent && (self.broken || (self.half_closed && self.places.is_empty() && !self.has_request())) {
            return Fate::Closed;
        }
        // What was left unread because of a limit is not announced by the socket again.
        if was_full && self.may_go_on() { Fate::Unread } else { Fate::Open }
    }

    /// Whether unread input may still hold a whole request.
    fn has_request(&self) -> bool {
        self.input.len() - self.consumed >= self.wanted
    }
}

/// Whether `input` comes to the same request when it is decoded once more from the state before.
fn comes_to<P: Protocol>(mut protocol: P, input: &[u8], used: usize, request: &order::Request) -> bool {
    match protocol.next(input) {
        Progress::Done { used: again, action: Action::Order(bytes) } => {
            again == used && crate::ordered::summed(bytes.into()).checksum == request.checksum
        }
        _ => false,
    }
}
