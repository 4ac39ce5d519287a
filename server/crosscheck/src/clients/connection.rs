//! One client connection: it turns bytes into requests, and replies in any order into bytes in the order of the
//! requests.

pub(super) mod ending;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use object::{Sealed, SealedQueue};

use super::budget::{Budget, Cost, Usage, Wait};
use super::input::{Input, InputStep};
use super::leaving::{Leaving, VerifiedReply};
use super::listing::ConnectionState;
use super::stream::ClientStream;
use super::{Bounds, Reply};
use crate::counters::{ClientCounters, ThreadCounters};
use crate::limits;
use crate::service::Protocol;
use crate::socket_errors::is_own_fault;

/// The state of a connection after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// Continues with the next event of its socket or the next reply.
    Open {
        /// Has input left that no event will announce again: call `read` again soon.
        unread: bool,
        /// Has replies left that its socket would accept: call `write` again soon.
        unsent: bool,
        /// Waits for budget, and is not read from meanwhile: call `go_on` when there is some.
        waits: Option<Wait>,
    },
    /// The client sends nothing more, and all replies have left.
    Ended,
    /// Ended otherwise.
    Closed,
}

/// A place in the sequence of replies.
enum ReplySlot {
    /// The request with this checksum is in flight.
    Waiting(u32, Cost),
    /// The request with this checksum has run, and its reply comes later ([`crate::Cx::owe_reply`]).
    Owed(u32),
    /// The reply waits for those before it.
    Ready(VerifiedReply),
    /// The last reply: after it the connection is closed.
    Last(VerifiedReply),
    /// There is no correct reply: the connection ends here, without these bytes.
    Broken,
}

/// The wait for the first reply in turn.
#[derive(Clone, Copy)]
struct Overdue {
    /// Its number.
    first: u64,
    /// The tick after which it is overdue.
    until: u64,
    /// The commit index when the wait began: there are at least as many entries as batches.
    committed: u64,
    /// The number of replies that will have come once all those have that were in flight when the wait began.
    due: u64,
}

/// The counts for all connections together at the time of a check.
pub(super) struct Now {
    /// Ticks so far.
    pub tick: u64,
    /// Replies that have come back.
    pub answers: u64,
    /// The tick of the last one.
    pub answered_at: u64,
    /// Requests in flight.
    pub outstanding: u64,
    /// The known commit index.
    pub committed: u64,
    /// Last batch up to which the vote is closed.
    pub validated: u64,
}

/// Data that all connections of a client thread share when they read.
pub(super) struct Reading<'a> {
    /// The limits on requests.
    pub bounds: Bounds,
    /// The counters of all clients.
    pub counters: &'a ClientCounters,
    /// Those of this thread: bytes in and out.
    pub own: &'a ThreadCounters,
    /// Ticks so far.
    pub tick: u64,
    /// The buffer for reads of a socket.
    pub scratch: &'a mut [u8],
    /// The holdings of others, and the cost in execution.
    pub budget: &'a mut Budget,
    /// The number of requests that may still be taken.
    pub left: usize,
    /// This replica stops: nothing more is read from any socket, as if each client had sent its last byte.
    pub drains: bool,
}

/// What a client has to do before its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LateWith {
    /// The handshake of TLS.
    Handshake,
    /// Proving who it is.
    Login,
}

/// The budget that a connection waits for.
enum Wants {
    Nothing,
    /// Budget for the rest of a long request, which has not been read.
    Input,
    /// Budget for a request that is complete.
    Order(order::Request, Cost, Wait),
}

pub(super) struct Connection<P> {
    stream: ClientStream,
    /// The descriptor that `stream` had when it was accepted.
    descriptor: Sealed<RawFd>,
    input: Input<P>,
    /// Bytes of `input` that the protocol needs before it is called again.
    wanted: usize,
    /// Bytes of `input` for which there is budget: 0 while its requests are short.
    reserved: usize,
    /// Most bytes that the next read takes: it grows as long as the input has short requests.
    chunk: usize,
    wants: Wants,
    /// It was not read to the end because of its requests in flight.
    paused: bool,
    /// It is in a queue of [`Budget`].
    queued: bool,
    /// The socket may have more input than was read.
    readable: bool,
    /// The client has sent its last byte, which may still be unread.
    ending: bool,
    /// The client's last byte has been read (the client may still read).
    half_closed: bool,
    /// The protocol decided that no further input is read.
    closing: bool,
    /// The places, under their numbers in the sequence of replies: a place with another number than the expected one is
    /// not used.
    places: SealedQueue<ReplySlot>,
    /// Cost of its requests in flight.
    on_its_way: usize,
    /// Bytes of replies that wait for those before them.
    ready: usize,
    /// Bytes of requests in flight and of replies at which no more input is read.
    share: usize,
    leaving: Leaving,
    broken: bool,
    /// The socket was full, and no event since has reported room.
    blocked: bool,
    wait: Option<Overdue>,
    /// Bytes that it has sent and received, and their number at the last mark.
    moved: u64,
    marked: u64,
    /// The same at the last check, and the tick at which progress was last observed.
    seen_moved: u64,
    active: u64,
}

impl<P: Protocol> Connection<P> {
    /// A client that was accepted at this tick, and may have `share` bytes in flight.
    pub(super) fn new(stream: ClientStream, protocol: P, share: usize, tick: u64) -> Self {
        Connection {
            descriptor: Sealed::new(stream.as_raw_fd()),
            stream,
            input: Input::new(protocol),
            wanted: 1,
            reserved: 0,
            chunk: limits::FREE_INPUT,
            wants: Wants::Nothing,
            paused: false,
            queued: false,
            readable: true,
            ending: false,
            half_closed: false,
            closing: false,
            places: SealedQueue::default(),
            on_its_way: 0,
            ready: 0,
            share,
            leaving: Leaving::default(),
            broken: false,
            blocked: false,
            wait: None,
            moved: 0,
            marked: 0,
            seen_moved: 0,
            active: tick,
        }
    }

    /// Whether its socket is still the one that was accepted. Another socket belongs to another connection, whose
    /// client would lose requests or get wrong replies. The right one would never be closed, so that its client waits
    /// for ever.
    fn has_own_socket(&self, counters: &ClientCounters) -> bool {
        let is_own = self.descriptor.get() == Ok(&self.stream.as_raw_fd());
        counters.own_faults.fetch_add(u64::from(!is_own), Relaxed);
        is_own
    }

    /// Reads the received bytes and passes on as many requests as there is budget for. `ending` means that the client
    /// has sent its last byte.
    pub(super) fn read(
        &mut self,
        ending: bool,
        reading: &mut Reading<'_>,
        mut submit: impl FnMut(u64, order::Request, u32),
    ) -> StepOutcome {
        let twice = reading.bounds.twice;
        self.readable = true;
        self.ending |= ending;
        if reading.drains {
            ending::read_no_further(self);
        }
        self.paused = false;
        let mut taken = 0;
        loop {
            self.decode(reading, &mut submit);
            self.paused = self.is_full();
            let is_kept = self.closing || self.half_closed || self.paused || self.is_waiting();
            if is_kept || reading.left == 0 || !self.readable || taken >= limits::READ_PER_TURN {
                break;
            }
            if !self.has_own_socket(reading.counters) {
                return StepOutcome::Closed;
            }
            let Some(most) = self.may_read(reading) else { break };
            let filled = self.input.fill(&mut self.stream, reading.scratch, most, twice);
            let overhead = self.stream.take_overhead();
            taken += overhead;
            self.moved += overhead as u64;
            self.blocked |= self.stream.has_unsent();
            match filled {
                Ok(0) => {
                    self.half_closed = true;
                    self.readable = false;
                    break;
                }
                Ok(read) => {
                    taken += read;
                    self.moved += read as u64;
                    reading.own.bytes_in.fetch_add(read as u64, Relaxed);
                    // A short read has emptied the socket, and a new event announces later bytes. (No new event
                    // announces an end that came with this one.)
                    self.readable = self.ending || self.stream.may_have_more(read == most);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return lost(&error, reading.counters),
            }
        }
        self.input.tidy(self.reserved > 0);
        let cut_short = reading.left == 0 || taken >= limits::READ_PER_TURN;
        // Behind a reply that comes later nothing can leave; what is left of earlier ones leaves with the next flush.
        let waits = matches!(self.places.front(), Ok(Some(ReplySlot::Waiting(..) | ReplySlot::Owed(_))));
        let is_early = !self.broken && waits;
        let outcome =
            if is_early { self.outcome() } else { self.write(twice, reading.counters, reading.own) };
        match outcome {
            StepOutcome::Open { unread, unsent, waits } => {
                StepOutcome::Open { unread: unread || (cut_short && self.may_go_on()), unsent, waits }
            }
            ended => ended,
        }
    }

    /// The number of bytes that the next read may take from its socket; none if there is no budget for the rest of a
    /// long request.
    fn may_read(&mut self, reading: &mut Reading<'_>) -> Option<usize> {
        let twice = reading.bounds.twice;
        let half = Input::<P>::most(reading.scratch, twice);
        let there = self.input.len();
        if self.wanted <= limits::FREE_INPUT {
            let chunk = self.chunk.min(half);
            let ahead = self.input_held() + (1 + usize::from(twice)) * chunk;
            return Some(if reading.budget.may_read_ahead(ahead) {
                chunk
            } else {
                limits::FREE_INPUT.min(half)
            });
        }
        if self.reserved < self.wanted {
            let is_first = self.queued || reading.budget.head(Wait::Input).is_none();
            if !is_first || !reading.budget.may_read(self.with_whole(&reading.bounds), 0) {
                self.wants = Wants::Input;
                return None;
            }
            self.queued = false;
            self.reserved = self.whole(reading.bounds.request);
            self.input.reserve(self.reserved, twice);
        }
        Some((self.reserved - there).clamp(1, half))
    }

    /// Bytes of input that need budget. The final length of a line without an end is unknown: the estimate doubles.
    fn whole(&self, longest: usize) -> usize {
        self.wanted.max((2 * self.input.len()).min(longest))
    }

    /// Memory that its input takes with these bytes.
    fn with_whole(&self, bounds: &Bounds) -> usize {
        let lacking = self.whole(bounds.request).saturating_sub(self.input.len());
        self.input_held() + lacking * (1 + usize::from(bounds.twice))
    }

    /// Whether it waits for budget.
    fn is_waiting(&self) -> bool {
        !matches!(self.wants, Wants::Nothing)
    }

    /// The budget that it waits for, if any.
    pub(super) fn waits(&self) -> Option<Wait> {
        match &self.wants {
            Wants::Nothing => None,
            Wants::Input => Some(Wait::Input),
            Wants::Order(_, _, wait) => Some(*wait),
        }
    }

    /// Whether there is now the budget that it waits for. It is the first in its queue, and its own holding is counted.
    pub(super) fn would_fit(&self, budget: &Budget, bounds: &Bounds) -> bool {
        let held = self.held();
        match &self.wants {
            Wants::Nothing => true,
            Wants::Input => budget.may_read(self.with_whole(bounds), held.long),
            Wants::Order(_, cost, _) => self.would_take(*cost, budget, held.outgoing),
        }
    }

    /// There is the budget that it waited for: submits its request, or reads its input.
    pub(super) fn go_on(
        &mut self,
        reading: &mut Reading<'_>,
        mut submit: impl FnMut(u64, order::Request, u32),
    ) -> StepOutcome {
        if let Wants::Order(request, cost, _) = std::mem::replace(&mut self.wants, Wants::Nothing) {
            reading.left = reading.left.saturating_sub(1);
            self.take(request, cost, reading.budget, &mut submit);
            // One request at a time: its next one waits behind those of others.
            self.queued = false;
        }
        let outcome = self.read(false, reading, submit);
        self.queued = false;
        outcome
    }

    /// Marks it as queued; false if it was queued before.
    pub(super) fn enqueue(&mut self) -> bool {
        !std::mem::replace(&mut self.queued, true)
    }

    /// Whether input is waiting that no event will announce again.
    fn may_go_on(&self) -> bool {
        !self.closing
            && !self.is_full()
            && !self.is_waiting()
            && (self.readable || self.input.len() >= self.wanted)
    }

    fn is_full(&self) -> bool {
        self.places.len() >= limits::PIPELINED_PER_CONNECTION || self.outgoing() >= self.share
    }

    /// Bytes of requests in flight and of replies.
    fn outgoing(&self) -> usize {
        self.on_its_way + self.ready + self.leaving.held() + self.stream.unsent()
    }

    /// Bytes of input, without the small amount that each connection may have.
    fn input_held(&self) -> usize {
        self.input.capacity().saturating_sub(2 * limits::KEPT_INPUT)
    }

    /// Bytes that the replica holds for this client, without the small amount that each connection may have.
    pub(super) fn held(&self) -> Usage {
        let waits = match &self.wants {
            Wants::Order(request, ..) => request.bytes.len(),
            Wants::Nothing | Wants::Input => 0,
        };
        let input = self.input_held();
        let (ahead, long) = if self.reserved > 0 { (0, input) } else { (input, 0) };
        Usage { ahead, long: long + waits, outgoing: self.outgoing() }
    }

    /// Whether it holds budget of the kind that others wait for, only its client keeps it from progress, and it has
    /// made hardly any since the last mark. Sets the mark.
    pub(super) fn is_stalled(&mut self, wait: Wait) -> bool {
        let has_moved = self.moved - self.marked >= limits::LEAST_MOVED;
        self.marked = self.moved;
        let takes_nothing = || self.blocked && self.leaving.bytes() + self.stream.unsent() > 0;
        let sends_nothing = || self.reserved > 0 && !self.readable && self.input.len() < self.wanted;
        !has_moved && if wait == Wait::Input { sends_nothing() } else { takes_nothing() }
    }

    /// Records progress, if there was any. Returns for how many ticks there was none with nothing in flight.
    pub(super) fn idle_ticks(&mut self, tick: u64) -> u64 {
        let is_busy = !self.places.is_empty() || self.has_unsent() || self.is_waiting();
        if is_busy || self.moved != self.seen_moved {
            (self.seen_moved, self.active) = (self.moved, tick);
        }
        tick - self.active
    }

    /// What it does, for operators.
    pub(super) fn state(&self) -> ConnectionState {
        if self.broken || self.closing {
            ConnectionState::Closing
        } else if self.blocked && self.has_unsent() {
            ConnectionState::Writing
        } else if !self.places.is_empty() || self.has_unsent() {
            ConnectionState::Executing
        } else if self.is_waiting() {
            ConnectionState::WaitsForMemory
        } else if self.input.len() > 0 {
            ConnectionState::Reading
        } else {
            ConnectionState::Idle
        }
    }

    /// The first stage: bytes become requests, each with a checksum from here on.
    fn decode(&mut self, reading: &mut Reading<'_>, submit: &mut impl FnMut(u64, order::Request, u32)) {
        let bounds = reading.bounds;
        while !self.closing && reading.left > 0 && !self.is_full() && !self.is_waiting() {
            let there = self.input.len();
            if there < self.wanted {
                return;
            }
            let Some(step) = self.input.next(bounds.twice) else {
                reading.counters.misread.fetch_add(1, Relaxed);
                self.push(ReplySlot::Broken);
                self.closing = true;
                return;
            };
            match step {
                InputStep::NeedMore(wanted) => {
                    self.wanted = wanted.max(there + 1);
                    // This depends only on the result of both decodings.
                    if wanted > bounds.request {
                        let refusal = Bytes::from_static(b"SERVER_ERROR request too long\r\n");
                        self.push_here(refusal, bounds.twice, true);
                    }
                    return;
                }
                InputStep::Nothing(_) => {}
                InputStep::Reply(_, reply) => self.push_here(reply.into(), bounds.twice, false),
                InputStep::Close(_, reply) => self.push_here(reply.into(), bounds.twice, true),
                InputStep::Order(_, request) => self.order(request, reading, submit),
                InputStep::StartTls(_, consent) => {
                    if !starts_tls(self, &consent, reading.tick, reading.counters) {
                        reading.counters.tls_failed.fetch_add(1, Relaxed);
                        self.push_here(Bytes::new(), bounds.twice, true);
                    }
                }
            }
            self.wanted = 1;
            // Input was consumed: a short request, or a long one to its end.
            self.chunk = (2 * self.chunk).min(limits::READ_CHUNK);
            self.release_input();
        }
    }

    /// Submits a request, or keeps it until there is budget for it.
    fn order(
        &mut self,
        request: order::Request,
        reading: &mut Reading<'_>,
        submit: &mut impl FnMut(u64, order::Request, u32),
    ) {
        let cost = Cost::new(request.bytes.len(), self.input.reply_bytes());
        let wait = reading.budget.wait_of(cost, self.outgoing());
        let is_first = self.queued || reading.budget.head(wait).is_none();
        if is_first && self.would_take(cost, reading.budget, 0) {
            reading.left -= 1;
            self.take(request, cost, reading.budget, submit);
        } else {
            self.wants = Wants::Order(request, cost, wait);
        }
    }

    fn would_take(&self, cost: Cost, budget: &Budget, counted: usize) -> bool {
        budget.may_execute(cost) && budget.may_send(self.outgoing() + cost.bytes(), counted)
    }

    fn take(
        &mut self,
        request: order::Request,
        cost: Cost,
        budget: &mut Budget,
        submit: &mut impl FnMut(u64, order::Request, u32),
    ) {
        self.on_its_way += cost.bytes();
        let sequence = self.push(ReplySlot::Waiting(request.checksum, cost));
        submit(sequence, request, budget.begin(cost));
    }

    /// Releases the budget of a long request once it is decoded.
    fn release_input(&mut self) {
        if self.reserved > 0 {
            self.reserved = 0;
            self.input.release();
        }
    }

    /// A reply of the connection itself, to a command that is not ordered; the last one if no more input is to be read.
    fn push_here(&mut self, reply: Bytes, twice: bool, is_last: bool) {
        self.ready += reply.len();
        let reply = VerifiedReply::here(reply, twice);
        self.push(if is_last { ReplySlot::Last(reply) } else { ReplySlot::Ready(reply) });
        self.closing |= is_last;
    }

    /// Sends what its protocol sends without a request: a little at a time, as far as there is budget for it.
    pub(super) fn push_unsolicited(&mut self, budget: &Budget, twice: bool) {
        let room = limits::UNASKED.saturating_sub(self.outgoing());
        if room == 0 || self.closing || self.is_full() || !budget.may_send(limits::UNASKED, 0) {
            return;
        }
        let news = self.input.unsolicited(room);
        if !news.is_empty() {
            self.push_here(news.into(), twice, false);
        }
    }

    /// Adds a place at the end; returns its number.
    fn push(&mut self, place: ReplySlot) -> u64 {
        self.places.push(place)
    }

    /// A reply takes its place, if it answers the request that waits there; `None` means that there is no correct one.
    pub(super) fn answer(&mut self, sequence: u64, reply: Option<Reply>) {
        let Ok(Some(place)) = self.places.get_mut(sequence) else { return };
        let waits = match *place {
            ReplySlot::Waiting(request_checksum, cost) => Some((request_checksum, cost.bytes())),
            ReplySlot::Owed(request_checksum) => Some((request_checksum, 0)),
            ReplySlot::Ready(_) | ReplySlot::Last(_) | ReplySlot::Broken => None,
        };
        if let Some((request_checksum, cost)) = waits {
            let right = reply.filter(|reply| reply.request_checksum == request_checksum);
            self.on_its_way = self.on_its_way.saturating_sub(cost);
            self.ready += right.as_ref().map_or(0, |reply| reply.bytes.len());
            *place = right.map_or(ReplySlot::Broken, |reply| {
                ReplySlot::Ready(VerifiedReply {
                    bytes: reply.bytes,
                    digest: reply.voted.map(|voted| (request_checksum, voted)),
                })
            });
        }
    }

    /// Sends the replies whose turn has come, as far as the socket takes them.
    pub(super) fn write(
        &mut self,
        twice: bool,
        counters: &ClientCounters,
        own: &ThreadCounters,
    ) -> StepOutcome {
        self.collect(twice);
        let mut taken = 0;
        while !self.blocked {
            if !self.leaving.pass_empty(self.places.first_number(), twice) {
                counters.withheld.fetch_add(1, Relaxed);
                return StepOutcome::Closed;
            }
            if self.leaving.is_empty() {
                if self.stream.has_unsent() && !self.has_own_socket(counters) {
                    return StepOutcome::Closed;
                }
                match self.stream.flush() {
                    Ok(()) => return self.outcome(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.blocked = true,
                    Err(error) => return lost(&error, counters),
                }
                break;
            }
            if taken >= limits::WRITE_PER_TURN {
                return self.open(true);
            }
            let slices = self.leaving.slices(self.places.first_number(), twice);
            if slices.is_empty() {
                counters.withheld.fetch_add(1, Relaxed);
                return StepOutcome::Closed;
            }
            if !self.has_own_socket(counters) {
                return StepOutcome::Closed;
            }
            match self.stream.writev(&slices) {
                Ok(0) => return StepOutcome::Closed,
                Ok(sent)
                    if !self
                        .stream
                        .may_leave(|| self.leaving.is_right(sent, self.places.first_number(), twice)) =>
                {
                    counters.withheld.fetch_add(1, Relaxed);
                    return StepOutcome::Closed;
                }
                Ok(sent) => {
                    own.bytes_out.fetch_add(sent as u64, Relaxed);
                    self.moved += sent as u64;
                    self.leaving.sent(sent);
                    taken += sent;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.blocked = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return lost(&error, counters),
            }
        }
        self.leaving.set_apart();
        self.outcome()
    }

    /// Whether replies have not left as a whole.
    fn has_unsent(&self) -> bool {
        !self.leaving.is_empty() || self.stream.has_unsent()
    }

    /// What its client has not completed in time.
    pub(super) fn is_late_with(&self, tick: u64) -> Option<LateWith> {
        if self.stream.is_late(tick) {
            return Some(LateWith::Handshake);
        }
        let is_late = !self.input.is_let_in() && self.stream.is_late_with_login(tick);
        is_late.then_some(LateWith::Login)
    }

    /// The socket accepts more, or a write will show whether it does. Returns whether it did not before.
    pub(super) fn unblock(&mut self) -> bool {
        std::mem::replace(&mut self.blocked, false)
    }

    fn collect(&mut self, twice: bool) {
        while !self.broken {
            let first = self.places.first_number();
            let (reply, last) = match self.places.front_mut() {
                Ok(None) => return,
                // An entry that a queue has removed stays in memory for a while, and looks like a reply.
                Err(_) => {
                    self.broken = true;
                    return self.leaving.push(first, VerifiedReply::default(), twice);
                }
                Ok(Some(place)) => match place {
                    ReplySlot::Waiting(..) | ReplySlot::Owed(_) => return,
                    ReplySlot::Ready(reply) => (std::mem::take(reply), false),
                    ReplySlot::Last(reply) => (std::mem::take(reply), true),
                    ReplySlot::Broken => (VerifiedReply::here(Bytes::new(), twice), true),
                },
            };
            self.broken = last | self.places.pop().is_err();
            self.ready = self.ready.saturating_sub(reply.bytes.len());
            self.leaving.push(first, reply, twice);
        }
    }

    /// Whether the first reply in turn is lost. This is so if the wait for it has been longer than
    /// [`limits::REPLY_PATIENCE`]; every batch that was committed when the wait began has had its vote (without a
    /// majority none has, and a reply that is held back keeps its batch open); and either more replies have come than
    /// were in flight then, or no more come. So a long queue that makes progress does not count as lost.
    pub(super) fn is_overdue(&mut self, now: &Now) -> bool {
        let first = self.places.first_number();
        if !matches!(self.places.front(), Ok(Some(ReplySlot::Waiting(..)))) {
            self.wait = None;
            return false;
        }
        let patience = limits::ticks(limits::REPLY_PATIENCE);
        match self.wait {
            Some(wait) if wait.first == first => {
                let passed_over = now.answers > wait.due || now.tick - now.answered_at > patience / 2;
                now.tick > wait.until && now.validated > wait.committed && passed_over
            }
            _ => {
                let due = now.answers + now.outstanding;
                self.wait =
                    Some(Overdue { first, until: now.tick + patience, committed: now.committed, due });
                false
            }
        }
    }

    /// Whether the data that controls its reading is consistent, where a connection may have `share` bytes in flight.
    /// Reading may have ended only because of a last reply, and its bytes in flight must be those of its places.
    pub(super) fn is_valid(&self, share: usize) -> bool {
        let last = matches!(self.places.back(), Some(ReplySlot::Last(_) | ReplySlot::Broken));
        let (mut on_its_way, mut ready) = (0, 0);
        for place in self.places.as_is() {
            match place {
                ReplySlot::Waiting(_, cost) => on_its_way += cost.bytes(),
                ReplySlot::Ready(reply) | ReplySlot::Last(reply) => ready += reply.bytes.len(),
                ReplySlot::Owed(_) | ReplySlot::Broken => {}
            }
        }
        (!self.closing || self.broken || last)
            && (self.broken || self.places.is_intact())
            && (self.on_its_way, self.ready) == (on_its_way, ready)
            && self.share == share
            && (limits::FREE_INPUT..=limits::READ_CHUNK).contains(&self.chunk)
            && self.reserved <= self.input.capacity()
    }

    /// Forgets how many bytes the protocol needs before it is called again.
    pub(super) fn ask_anew(&mut self) {
        if !self.is_waiting() {
            self.wanted = 1;
        }
    }

    /// Restarts the wait for the first reply in turn.
    #[cfg(test)]
    pub(super) fn forget_wait(&mut self) {
        self.wait = None;
    }

    /// Injects a fault.
    #[cfg(test)]
    pub(super) fn inject_fault(&mut self, share: usize, on_its_way: usize, chunk: usize) {
        self.share ^= share;
        self.on_its_way ^= on_its_way;
        self.chunk ^= chunk;
    }

    /// Injects a fault: the socket of another connection. Returns the right one.
    #[cfg(test)]
    pub(super) fn has_instead(&mut self, stream: ClientStream) -> ClientStream {
        std::mem::replace(&mut self.stream, stream)
    }

    /// Injects a fault.
    #[cfg(test)]
    pub(super) fn reads_no_more(&mut self) {
        self.closing = true;
    }

    /// Injects a fault.
    #[cfg(test)]
    pub(super) fn wants(&mut self, bytes: usize) {
        self.wanted = bytes;
    }

    fn outcome(&self) -> StepOutcome {
        let all_sent = !self.has_unsent();
        if all_sent && self.broken {
            return StepOutcome::Closed;
        }
        if all_sent && self.half_closed {
            // Unread input may still hold a whole request.
            let may_order = self.is_waiting() || self.input.len() >= self.wanted;
            // A client that sends no more is most likely gone: it waits for no reply that may never come.
            let owes = || matches!(self.places.front(), Ok(Some(ReplySlot::Owed(_))));
            if !may_order && (self.places.is_empty() || owes()) {
                return StepOutcome::Ended;
            }
        }
        self.open(false)
    }

    /// The socket does not announce input again that was left unread because of a limit.
    fn open(&self, unsent: bool) -> StepOutcome {
        StepOutcome::Open { unread: self.paused && self.may_go_on(), unsent, waits: self.waits() }
    }
}

/// The reply to a request that has run comes later.
pub(super) fn owe<P: Protocol>(connection: &mut Connection<P>, sequence: u64) {
    let Ok(Some(place)) = connection.places.get_mut(sequence) else { return };
    if let ReplySlot::Waiting(request_checksum, cost) = *place {
        connection.on_its_way = connection.on_its_way.saturating_sub(cost.bytes());
        *place = ReplySlot::Owed(request_checksum);
    }
}

/// Goes on with TLS; false if that is not possible: nothing may have come or be on its way without it.
fn starts_tls<P: Protocol>(
    connection: &mut Connection<P>,
    consent: &[u8],
    tick: u64,
    counters: &ClientCounters,
) -> bool {
    let is_quiet = connection.places.is_empty() && !connection.has_unsent() && connection.input.len() == 0;
    is_quiet && connection.has_own_socket(counters) && connection.stream.start_tls(consent, tick)
}

/// The socket is not usable any more, mostly because of the other end.
fn lost(error: &io::Error, counters: &ClientCounters) -> StepOutcome {
    counters.own_faults.fetch_add(u64::from(is_own_fault(error)), Relaxed);
    counters.tls_failed.fetch_add(u64::from(error.kind() == io::ErrorKind::InvalidData), Relaxed);
    StepOutcome::Closed
}
