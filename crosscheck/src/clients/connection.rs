//! One client connection: bytes in, requests out; replies in any order in, bytes in request order out.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use mio::Registry;
use mio::net::TcpStream;

use super::input::{Input, Step};
use super::leaving::{Leaving, Vouched};
use super::{Bounds, Reply};
use crate::limits;
use crate::service::{ClientCounters, Protocol};
use crate::world::is_own_fault;

/// What becomes of a connection after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Goes on when its socket or a reply says so.
    Open {
        /// Has input left that nobody will announce again: call `read` again soon.
        unread: bool,
        /// Has replies left that its socket would take: call `write` again soon.
        unsent: bool,
    },
    /// Is over.
    Closed,
}

/// A place in the sequence of replies.
enum Place {
    /// The request with this checksum is on its way.
    Waiting(u32),
    /// The reply waits for those before it.
    Ready(Vouched),
    /// The last reply: after it the connection is closed.
    Last(Vouched),
    /// No correct reply can be had: the connection ends here, without these bytes.
    Broken,
}

/// How long the first reply in turn has been waited for.
#[derive(Clone, Copy)]
struct Wait {
    /// Its number.
    first: u64,
    /// The tick at which it should have been there for long.
    until: u64,
    /// What the log was agreed on up to when the wait began: its entries are at least as many as the batches.
    committed: u64,
    /// So many replies will have come back when all have that were on their way then.
    due: u64,
}

/// What is known at a look of all connections together.
pub(super) struct Now {
    /// Ticks so far.
    pub tick: u64,
    /// Replies that have come back.
    pub answers: u64,
    /// The tick of the last one.
    pub answered_at: u64,
    /// Requests on their way.
    pub outstanding: u64,
    /// Last log entry known to be agreed on.
    pub committed: u64,
    /// Last batch up to which the vote is closed.
    pub validated: u64,
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
    /// The descriptor that `stream` had when it was accepted.
    descriptor: RawFd,
    input: Input<P>,
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
    /// Each with its number in the sequence of replies: a place that is not the one that was meant is not used.
    places: VecDeque<(u64, Place)>,
    /// Number of the first place.
    first: u64,
    leaving: Leaving,
    broken: bool,
    /// The socket was full, and has not said since that it is not.
    blocked: bool,
    wait: Option<Wait>,
}

impl<P: Protocol> Connection<P> {
    pub(super) fn new(stream: TcpStream, protocol: P) -> Self {
        Connection {
            descriptor: stream.as_raw_fd(),
            stream,
            input: Input::new(protocol),
            wanted: 1,
            readable: true,
            ending: false,
            half_closed: false,
            closing: false,
            places: VecDeque::new(),
            first: 0,
            leaving: Leaving::default(),
            broken: false,
            blocked: false,
            wait: None,
        }
    }

    /// The end of it. A socket that is not its own is left alone: once closed, its number would be given to the next client, who
    /// would then be sent somebody else's replies.
    pub(super) fn end(mut self, registry: &Registry, counters: &ClientCounters) {
        if !self.has_own_socket(counters) {
            return std::mem::forget(self);
        }
        // Closing the descriptor would do it as well; an error changes nothing.
        let _ = registry.deregister(&mut self.stream);
    }

    /// Whether its socket is still the one that was accepted. Another one belongs to somebody else, who would lose requests or get replies
    /// that are not for them; and the right one would never be closed, so that its client waits for ever.
    fn has_own_socket(&self, counters: &ClientCounters) -> bool {
        let is_own = self.stream.as_raw_fd() == self.descriptor;
        counters.own_faults.fetch_add(u64::from(!is_own), Relaxed);
        is_own
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
            if !self.has_own_socket(counters) {
                return Fate::Closed;
            }
            match self.input.fill(&mut self.stream, reading.scratch, bounds.twice) {
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
                    self.readable = self.ending || read == Input::<P>::most(reading.scratch, bounds.twice);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return lost(&error, counters),
            }
        }
        let fate = self.write(bounds.twice, counters);
        let cut_short = left == 0 || taken >= limits::READ_PER_TURN;
        match fate {
            Fate::Open { unread, unsent } => {
                Fate::Open { unread: unread || (cut_short && self.may_go_on()), unsent }
            }
            Fate::Closed => Fate::Closed,
        }
    }

    /// Whether input is waiting that no event will announce again.
    fn may_go_on(&self) -> bool {
        !self.closing && !self.is_full() && (self.readable || self.input.len() >= self.wanted)
    }

    fn is_full(&self) -> bool {
        self.places.len() >= limits::PIPELINED_PER_CONNECTION
            || self.leaving.bytes() >= limits::UNSENT_PER_CONNECTION
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
            let there = self.input.len();
            if there < self.wanted {
                return;
            }
            let Some(step) = self.input.next(bounds.twice) else {
                counters.misread.fetch_add(1, Relaxed);
                self.push(Place::Broken);
                self.closing = true;
                return;
            };
            match step {
                Step::NeedMore(wanted) => {
                    self.wanted = wanted.max(there + 1);
                    // By what both decodings came to alone.
                    if wanted > bounds.request {
                        let refusal = Bytes::from_static(b"SERVER_ERROR request too long\r\n");
                        self.push(Place::Last(Vouched::here(refusal, bounds.twice)));
                        self.closing = true;
                    }
                    return;
                }
                Step::Nothing(_) => {}
                Step::Reply(_, reply) => {
                    self.push(Place::Ready(Vouched::here(reply, bounds.twice)));
                }
                Step::Close(_, reply) => {
                    self.push(Place::Last(Vouched::here(reply, bounds.twice)));
                    self.closing = true;
                }
                Step::Order(_, request) => {
                    *left -= 1;
                    let sequence = self.push(Place::Waiting(request.checksum));
                    submit(sequence, request);
                }
            }
            self.wanted = 1;
        }
    }

    /// The last place so far; returns its number.
    fn push(&mut self, place: Place) -> u64 {
        let number = self.first + self.places.len() as u64;
        self.places.push_back((number, place));
        number
    }

    /// A reply takes its place, if it answers the request that waits there; `None` means that no correct one can be had.
    pub(super) fn answer(&mut self, sequence: u64, reply: Option<Reply>) {
        let Some(index) = sequence.checked_sub(self.first) else { return };
        let Some((number, place)) = self.places.get_mut(index as usize) else { return };
        if let Place::Waiting(asked) = *place
            && *number == sequence
        {
            let right = reply.filter(|reply| reply.asked == asked);
            *place = right.map_or(Place::Broken, |reply| {
                Place::Ready(Vouched { bytes: reply.bytes, digest: reply.voted.map(|voted| (asked, voted)) })
            });
        }
    }

    /// Sends the replies whose turn has come, as far as the socket takes them.
    pub(super) fn write(&mut self, twice: bool, counters: &ClientCounters) -> Fate {
        let was_full = self.is_full();
        self.collect(twice);
        let mut taken = 0;
        while !self.blocked {
            if !self.leaving.pass_empty(self.first, twice) {
                counters.withheld.fetch_add(1, Relaxed);
                return Fate::Closed;
            }
            if self.leaving.is_empty() {
                return self.fate(was_full);
            }
            if taken >= limits::WRITE_PER_TURN {
                return self.open(was_full, true);
            }
            let slices = self.leaving.slices(self.first, twice);
            if slices.is_empty() {
                counters.withheld.fetch_add(1, Relaxed);
                return Fate::Closed;
            }
            if !self.has_own_socket(counters) {
                return Fate::Closed;
            }
            // Without libc, which puts what the kernel has taken into memory and reads it back: that has been struck.
            match rustix::io::writev(&self.stream, &slices).map_err(io::Error::from) {
                Ok(0) => return Fate::Closed,
                Ok(sent) => {
                    counters.bytes_out.fetch_add(sent as u64, Relaxed);
                    self.leaving.sent(sent);
                    taken += sent;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.blocked = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return lost(&error, counters),
            }
        }
        self.fate(was_full)
    }

    /// The socket takes more, or is asked whether it does.
    pub(super) fn unblock(&mut self) {
        self.blocked = false;
    }

    fn collect(&mut self, twice: bool) {
        while !self.broken {
            let first = self.first;
            let Some((number, place)) = self.places.front_mut() else { return };
            let (reply, last) = match place {
                // What a queue gave up stays in memory for a while, and looks like a reply.
                _ if *number != first => (Vouched::default(), true),
                Place::Waiting(_) => return,
                Place::Ready(reply) => (std::mem::take(reply), false),
                Place::Last(reply) => (std::mem::take(reply), true),
                Place::Broken => (Vouched::here(Bytes::new(), twice), true),
            };
            self.places.pop_front();
            self.first += 1;
            self.broken = last;
            self.leaving.push(first, reply, twice);
        }
    }

    /// Whether the first reply in turn is lost: it has been waited for since more than [`limits::REPLY_PATIENCE`]; every batch that was agreed
    /// on when that began has had its vote (without a majority nothing has, and a reply that is held back keeps its batch open); and either
    /// more replies have come back than were on their way then, or none any more. A long queue that moves loses nothing.
    pub(super) fn is_overdue(&mut self, now: &Now) -> bool {
        let first = self.first;
        if !matches!(self.places.front(), Some((_, Place::Waiting(_)))) {
            self.wait = None;
            return false;
        }
        let patience = limits::REPLY_PATIENCE.as_micros().div_ceil(limits::TICK.as_micros()) as u64;
        match self.wait {
            Some(wait) if wait.first == first => {
                let passed_over = now.answers > wait.due || now.tick - now.answered_at > patience / 2;
                now.tick > wait.until && now.validated > wait.committed && passed_over
            }
            _ => {
                let due = now.answers + now.outstanding;
                self.wait = Some(Wait { first, until: now.tick + patience, committed: now.committed, due });
                false
            }
        }
    }

    /// Whether nothing more is read because a last reply is on its way, and for no other reason.
    pub(super) fn is_sound(&self) -> bool {
        let last = matches!(self.places.back(), Some((_, Place::Last(_) | Place::Broken)));
        !self.closing || self.broken || last
    }

    /// What the protocol said it wants to see before it is asked again is forgotten.
    pub(super) fn ask_anew(&mut self) {
        self.wanted = 1;
    }

    /// The first reply in turn is waited for from now on.
    #[cfg(test)]
    pub(super) fn forget_wait(&mut self) {
        self.wait = None;
    }

    /// As a struck connection has it: the socket of somebody else, which is given back.
    #[cfg(test)]
    pub(super) fn has_instead(&mut self, stream: TcpStream) -> TcpStream {
        std::mem::replace(&mut self.stream, stream)
    }

    /// As a struck connection has it.
    #[cfg(test)]
    pub(super) fn reads_no_more(&mut self) {
        self.closing = true;
    }

    /// As a struck connection has it.
    #[cfg(test)]
    pub(super) fn wants(&mut self, bytes: usize) {
        self.wanted = bytes;
    }

    fn fate(&self, was_full: bool) -> Fate {
        let all_sent = self.leaving.is_empty();
        if all_sent && (self.broken || (self.half_closed && self.places.is_empty() && !self.has_request())) {
            return Fate::Closed;
        }
        self.open(was_full, false)
    }

    /// What was left unread because of a limit is not announced by the socket again.
    fn open(&self, was_full: bool, unsent: bool) -> Fate {
        Fate::Open { unread: was_full && self.may_go_on(), unsent }
    }

    /// Whether unread input may still hold a whole request.
    fn has_request(&self) -> bool {
        self.input.len() >= self.wanted
    }
}

/// The socket is of no use any more: mostly because of the other end.
fn lost(error: &io::Error, counters: &ClientCounters) -> Fate {
    counters.own_faults.fetch_add(u64::from(is_own_fault(error)), Relaxed);
    Fate::Closed
}
