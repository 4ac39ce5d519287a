//! Externalize: this replica's own clients, and which of them is owed the reply to which executed request.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use mio::event::Event;
use vote::Place;

use super::environment::Environment;
use super::in_order::ByConnection;
use super::pending::{PendingReply, Recipient};
use super::waiting_clients::WaitingClients;
use crate::admin::Buffers;
use crate::ascending::Ascending;
use crate::clients::thread::ThreadInput;
use crate::clients::{self, ClientSide, Reply, ReplyTo, Submission};
use crate::counters::ClientCounters;
use crate::hooks::{FaultPoint, Hooks};
use crate::later::{self, ReplyParts};
use crate::mailbox::Mailbox;
use crate::world::{Observation, World};

/// The client side.
pub(crate) enum Frontend {
    /// On threads of its own, which receive answers through these mailboxes ([`ReplyTo::thread`]).
    Threads(Vec<Mailbox<ThreadInput>>),
    /// On the order thread, in a replica with one worker.
    Here(Box<dyn ClientSide>),
}

impl Frontend {
    /// The client side, if this thread runs it.
    fn here(&mut self) -> Option<&mut dyn ClientSide> {
        match self {
            Frontend::Here(clients) => Some(&mut **clients),
            Frontend::Threads(_) => None,
        }
    }

    /// `None` if there is no correct reply.
    fn answer(&mut self, to: ReplyTo, reply: Option<Reply>) {
        match self {
            Frontend::Here(clients) => clients.answer(to, reply),
            Frontend::Threads(threads) => {
                let answer = reply.map_or(ThreadInput::Drop(to), |reply| ThreadInput::Reply(to, reply));
                threads[to.thread(threads.len())].send(answer);
            }
        }
    }

    /// The reply comes later.
    fn owe(&mut self, to: ReplyTo) {
        match self {
            Frontend::Here(clients) => clients.owe(to),
            Frontend::Threads(threads) => threads[to.thread(threads.len())].send(ThreadInput::Owe(to)),
        }
    }

    /// The same as [`Frontend::answer`] after [`Frontend::owe`].
    fn answer_owed(&mut self, to: ReplyTo, reply: Option<Reply>) {
        match self {
            Frontend::Here(clients) => clients.answer_owed(to, reply),
            Frontend::Threads(threads) => {
                threads[to.thread(threads.len())].send(ThreadInput::Owed(to, reply));
            }
        }
    }
}

/// Opens the client side; it gets the order thread's world, with its poll.
pub(crate) type OpenClients<W> = Box<dyn FnOnce(&W) -> io::Result<Frontend> + Send>;

/// This replica's own clients: the order thread's part.
pub(super) struct OwnClients<W: World> {
    /// The receiver of replies, once this replica serves clients.
    front: Option<Frontend>,
    /// The function that starts serving clients, called once this replica takes part.
    open: Option<OpenClients<W>>,
    driven: clients::Driven,
    pub(super) counters: Arc<ClientCounters>,
    /// A buffer for requests of clients served on this thread, empty between rounds.
    submissions: Vec<Submission>,
    /// The replies owed for own batches that are being executed or voted on.
    owed: Ascending<Vec<PendingReply>>,
    /// The clients whose replies come later.
    waiting: WaitingClients,
    /// Where reads take no batch: the requests that take one.
    pub(super) in_order: ByConnection,
    /// Replies for operators, under their tickets, until they are taken; none for one that there is not.
    for_operators: Vec<(u64, Option<Reply>)>,
}

impl<W: World> OwnClients<W> {
    /// No client is served yet.
    pub(super) fn new(counters: Arc<ClientCounters>) -> Self {
        OwnClients {
            front: None,
            open: None,
            driven: clients::Driven::default(),
            counters,
            submissions: Vec::new(),
            owed: Ascending::default(),
            waiting: WaitingClients::default(),
            in_order: ByConnection::default(),
            for_operators: Vec::new(),
        }
    }

    /// Sets the function that starts serving clients once this replica takes part.
    pub(super) fn open_with(&mut self, open: OpenClients<W>) {
        self.open = Some(open);
    }

    /// Whether clients are served.
    pub(super) fn are_served(&self) -> bool {
        self.front.is_some()
    }

    /// Begins to serve clients of this process, which has this incarnation; false if this was tried before.
    ///
    /// # Errors
    /// When their socket cannot be opened.
    pub(super) fn serve(&mut self, world: &W, incarnation: u64) -> io::Result<bool> {
        let Some(open) = self.open.take() else { return Ok(false) };
        self.counters.process.store(incarnation, Ordering::Release);
        self.front = Some(open(world)?);
        Ok(true)
    }

    /// This replica stops: no client is read from any more. Returns the requests that were read and not passed on yet.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Submission> + '_ {
        match &mut self.front {
            Some(Frontend::Here(clients)) => clients.drain(&mut self.submissions),
            Some(Frontend::Threads(threads)) => {
                threads.iter().for_each(|thread| thread.send(ThreadInput::Drain));
            }
            None => {}
        }
        self.submissions.drain(..)
    }

    /// Stops serving clients; ends the threads that do so, if there are some.
    pub(super) fn stop(&mut self) {
        if let Some(Frontend::Threads(threads)) = self.front.take() {
            threads.iter().for_each(|thread| thread.send(ThreadInput::Stop));
        }
    }

    /// Handles a ready socket of a client served on this thread.
    pub(super) fn on_event(&mut self, event: &Event) {
        if let Some(clients) = self.front.as_mut().and_then(Frontend::here) {
            clients.on_event(event, &mut self.submissions);
        }
    }

    /// Continues to read where bytes were left, and returns the requests of clients served on this thread.
    pub(super) fn read_on(&mut self) -> impl Iterator<Item = Submission> + '_ {
        if let Some(clients) = self.front.as_mut().and_then(Frontend::here) {
            clients.read_on(&mut self.submissions);
        }
        self.submissions.drain(..)
    }

    /// Advances time for clients served on this thread; returns the requests that were found meanwhile.
    pub(super) fn tick(&mut self) -> impl Iterator<Item = Submission> + '_ {
        self.waiting.forget_closed(&self.counters);
        if let Some(clients) = self.front.as_mut().and_then(Frontend::here) {
            clients.tick(&mut self.submissions);
        }
        self.submissions.drain(..)
    }

    /// Writes to the sockets of clients served on this thread.
    pub(super) fn flush(&mut self) {
        if let Some(clients) = self.front.as_mut().and_then(Frontend::here) {
            clients.flush();
        }
    }

    /// Whether unread bytes of clients served on this thread are left.
    pub(super) fn have_unread(&self) -> bool {
        matches!(&self.front, Some(Frontend::Here(clients)) if clients.has_unread())
    }

    /// Whether all threads of the client side make progress.
    pub(super) fn are_driven(&mut self) -> bool {
        self.driven.looks_so(&self.counters)
    }

    /// An own batch is about to be executed: `owed` has the recipients of its replies.
    pub(super) fn owe(&mut self, batch: u64, owed: Vec<PendingReply>) {
        self.owed.insert(batch, owed);
    }

    /// The recipient of the reply at `place`; called once per request.
    pub(super) fn owed_at(&mut self, place: Place) -> PendingReply {
        let Some(owed) = self.owed.get_mut(place.batch) else { return PendingReply::NOTHING };
        owed.get_mut(usize::from(place.request))
            .map_or(PendingReply::NOTHING, |owed| std::mem::replace(owed, PendingReply::NOTHING))
    }

    /// There are no replies to requests of any batch that was delivered so far and has none yet.
    pub(super) fn give_up_owed(&mut self) {
        while let Some(owed) = self.owed.pop_first() {
            owed.into_iter().for_each(|owed| self.drop_reply(owed.owner));
        }
        self.give_up_waiting();
    }

    /// Forgets the oldest batches whose replies have all left or never will.
    pub(super) fn forget_answered(&mut self) {
        let is_answered =
            |owed: &Vec<PendingReply>| owed.iter().all(|owed| owed.owner == Recipient::NoClient);
        while self.owed.first().is_some_and(is_answered) {
            self.owed.pop_first();
        }
    }

    /// Releases a reply to the client that waits for it, if it is a client of this replica.
    pub(super) fn release(
        &mut self,
        place: Place,
        reply: Bytes,
        digest: Option<u128>,
        env: &mut Environment<W>,
    ) {
        let owed = self.owed_at(place);
        self.release_to(owed, place, reply, digest, env);
    }

    pub(super) fn release_to(
        &mut self,
        owed: PendingReply,
        mut place: Place,
        mut reply: Bytes,
        digest: Option<u128>,
        env: &mut Environment<W>,
    ) {
        env.hooks.at(FaultPoint::Release(&mut place, &mut reply));
        env.world.see(Observation::Released { place, to: owed.owner.client(), reply: &reply });
        match digest.and_then(|digest| later::split(&reply, digest)) {
            Some(parts) => self.release_parts(owed, place, parts, env),
            None => self.externalize(owed, reply, digest),
        }
    }

    /// Releases a reply that has parts for the clients of other requests.
    fn release_parts(
        &mut self,
        owed: PendingReply,
        place: Place,
        parts: ReplyParts,
        env: &mut Environment<W>,
    ) {
        let ReplyParts { request_checksum, own, later } = parts;
        let owed = PendingReply { request_checksum, ..owed };
        match own {
            Some((bytes, digest)) => self.externalize(owed, bytes, Some(digest)),
            None => self.reply_comes_later(owed, place),
        }
        for (of, bytes) in later.into_iter().filter(|(of, _)| of.is_of(env.settings.me)) {
            let waiting = self.waiting.take(of.place());
            // The vote on the request that owes it may still go on.
            let owed = waiting.unwrap_or_else(|| self.owed_at(of.place()));
            let Some(to) = owed.owner.client() else { continue };
            env.world.see(Observation::AnsweredLater { place: of.place(), to });
            let voted = Some(vote::digest::reply(owed.request_checksum, &bytes));
            let reply = Reply { request_checksum: owed.request_checksum, bytes, voted };
            match waiting {
                Some(_) => self.answer_waiting(to, Some(reply)),
                None => self.answer(owed.owner, Some(reply)),
            }
        }
    }

    /// Releases what a request that the service has started itself has made for clients that wait.
    pub(super) fn release_started(&mut self, reply: &Bytes, digest: u128, env: &mut Environment<W>) {
        if let Some(parts) = later::split(reply, digest) {
            self.release_parts(PendingReply::NOTHING, Place::default(), parts, env);
        }
    }

    /// The request at `place` has run, and its reply comes later.
    fn reply_comes_later(&mut self, owed: PendingReply, place: Place) {
        if let (Some(to), Some(front)) = (owed.owner.client(), &mut self.front) {
            self.in_order.end(to);
            front.owe(to);
            self.waiting.add(place, owed);
        }
    }

    fn answer_waiting(&mut self, to: ReplyTo, reply: Option<Reply>) {
        if let Some(front) = &mut self.front {
            front.answer_owed(to, reply);
        }
    }

    /// Replies that come later may be among those that this replica does not have: closes the connections that wait
    /// for one, whose clients would otherwise wait for ever.
    pub(super) fn give_up_waiting(&mut self) {
        for owed in self.waiting.take_all() {
            if let Some(to) = owed.owner.client() {
                self.answer_waiting(to, None);
            }
        }
    }

    /// There is no correct reply to the request at `place`.
    pub(super) fn give_up_reply(&mut self, place: Place) {
        let owed = self.owed_at(place);
        self.lose_reply(owed.owner);
    }

    /// There is no correct reply to a request that has run, and perhaps none of its parts for others.
    pub(super) fn lose_reply(&mut self, owner: Recipient) {
        self.drop_reply(owner);
        self.give_up_waiting();
    }

    /// The end of the path: a reply goes to its connection, with the digest that was voted on or that its first run
    /// made.
    pub(super) fn externalize(
        &mut self,
        PendingReply { owner, request_checksum }: PendingReply,
        bytes: Bytes,
        voted: Option<u128>,
    ) {
        self.answer(owner, Some(Reply { request_checksum, bytes, voted }));
    }

    /// There is no correct reply: closes the client's connection.
    pub(super) fn drop_reply(&mut self, owner: Recipient) {
        self.answer(owner, None);
    }

    /// The replies for operators that have come.
    pub(super) fn take_for_operators(&mut self) -> Vec<(u64, Option<Reply>)> {
        std::mem::take(&mut self.for_operators)
    }

    fn answer(&mut self, owner: Recipient, reply: Option<Reply>) {
        if let Recipient::Operator(ticket) = owner {
            return self.for_operators.push((ticket, reply));
        }
        if let (Recipient::Client(to), Some(front)) = (owner, &mut self.front) {
            self.in_order.end(to);
            front.answer(to, reply);
        }
    }

    /// The reply to a request that took no batch.
    pub(super) fn answer_read(&mut self, to: ReplyTo, reply: Reply) {
        if let Some(front) = &mut self.front {
            front.answer(to, Some(reply));
        }
    }

    /// The bytes in this replica's buffers, of `limit` bytes: the replies `kept` for the vote, and its `log`.
    pub(super) fn buffers(&self, limit: usize, kept: u64, log: u64) -> Buffers {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Buffers {
            limit: limit as u64,
            held: self.counters.sum(|thread| &thread.held),
            replies: kept,
            log,
            waiting: self.counters.sum(|thread| &thread.waiting),
            evicted: read(&self.counters.evicted),
            idle: read(&self.counters.idle),
            tls_failed: read(&self.counters.tls_failed),
        }
    }
}
