//! Decode → Order: this replica's own requests on their way into the log, and the recipients of their replies.

use std::collections::VecDeque;

use object::SealedQueue;
use order::Orderer;

use super::engine::Engine;
use super::environment::Environment;
use super::in_order::ByConnection;
use super::own_clients::OwnClients;
use super::pending::{PendingReplies, Recipient};
use crate::clients::Submission;
use crate::hooks::{self, FaultPoint, Hooks, Rule};
use crate::ordered::{self, Control};
use crate::pipeline_settings::ordered_reads;
use crate::settings::Reads;
use crate::world::World;
use crate::{Corrupted, ReplaceReason, Stop};

/// The ordering engine, and the requests that this replica submits to it.
pub(super) struct OrderStage {
    pub(super) orderer: Orderer<Engine>,
    /// Own requests in the order in which they were submitted, which is the order of their delivery.
    pending: PendingReplies,
    /// Own requests that the orderer had no room for yet, of each client thread, under the numbers that they got when
    /// they were decoded.
    waiting: Vec<SealedQueue<Submission>>,
    /// The client thread whose requests are next.
    turn: usize,
    /// Where reads take no batch: those that do after all, and what is behind them. They come before all in `waiting`.
    pub(super) to_order: VecDeque<Submission>,
}

/// Where reads take no batch: keeps a request, or adds it to those that are ordered, with what has to come before it.
pub(super) type SortsReads<'r> =
    Box<dyn FnMut(Submission, &mut ByConnection, &mut VecDeque<Submission>) + 'r>;

/// What decides whether reads take no batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOrder {
    /// What the group has set.
    pub(super) reads: Reads,
    /// The tag of the next own request that is submitted.
    pub(super) next_tag: u64,
    /// The tag of the first own request that has no reply.
    pub(super) first_tag: u64,
}

impl OrderStage {
    /// What decides whether reads take no batch, as of now.
    pub(super) fn read_order(&self) -> ReadOrder {
        ReadOrder {
            reads: if self.is_resizing() {
                Reads::Batch
            } else {
                ordered_reads(&self.orderer.state().settings)
            },
            next_tag: self.pending.next_tag(),
            first_tag: self.pending.first_tag(),
        }
    }

    /// Whether a change of the group's size has begun: reads take a batch until it has ended.
    pub(super) fn is_resizing(&self) -> bool {
        self.orderer.state().sizes.change().is_some()
    }

    /// A stage whose orderer has no request of this replica yet; requests will come from so many client threads.
    pub(super) fn new(orderer: Orderer<Engine>, client_threads: usize) -> Self {
        OrderStage {
            orderer,
            pending: PendingReplies::default(),
            waiting: vec![SealedQueue::default(); client_threads.max(1)],
            turn: 0,
            to_order: VecDeque::new(),
        }
    }

    /// Adds requests of this replica's clients, which wait for room in the orderer.
    pub(super) fn queue(&mut self, submissions: impl IntoIterator<Item = Submission>) {
        let threads = self.waiting.len();
        for one in submissions {
            self.waiting[one.to.thread(threads)].push_as(one.number, one);
        }
    }

    /// The number of requests that wait for room.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.iter().map(SealedQueue::len).sum::<usize>() + self.to_order.len()
    }

    /// Hands requests to the orderer as far as it has room.
    ///
    /// # Errors
    /// When the queue of requests is corrupted.
    pub(super) fn submit_waiting<W: World>(
        &mut self,
        hooks: &hooks::Active,
        clients: &mut OwnClients<W>,
        mut reads: Option<SortsReads<'_>>,
    ) -> Result<(), Corrupted> {
        while self.orderer.can_accept() {
            let Submission { to, mut request, .. } = match self.to_order.pop_front() {
                Some(next) => next,
                None => {
                    let Some(next) = self.next_waiting(hooks)? else { return Ok(()) };
                    if let Some(reads) = &mut reads {
                        reads(next, &mut clients.in_order, &mut self.to_order);
                        continue;
                    }
                    next
                }
            };
            if !hooks.keeps(Rule::SubmitsOnce) {
                let _ = self.submit(request.clone(), Recipient::NoClient);
            }
            hooks.at(FaultPoint::Submit(&mut request));
            if let Err(owner) = self.submit(request, Recipient::Client(to)) {
                clients.drop_reply(owner);
            }
        }
        // The others' requests are first when there is room again: a thread that never runs out keeps none of them.
        self.pass_turn();
        Ok(())
    }

    fn pass_turn(&mut self) {
        self.turn = (self.turn + 1) % self.waiting.len();
    }

    /// Takes a request of the client thread whose turn it is; the turn passes on when that thread has no more.
    fn next_waiting(&mut self, hooks: &hooks::Active) -> Result<Option<Submission>, Corrupted> {
        for _ in 0..self.waiting.len() {
            // A queue with a length that is too large returns a request that it returned before, and all replicas would
            // agree to run it again.
            let next = hooks.next_waiting(&mut self.waiting[self.turn]);
            if let Some(next) = next.map_err(|_| Corrupted::RequestQueue)? {
                return Ok(Some(next));
            }
            self.pass_turn();
        }
        Ok(None)
    }

    /// Gives one of the pipeline's own requests a position, if there is room.
    pub(super) fn submit_control(&mut self, control: &Control) {
        // The caller submits a control request again if it is lost: no reply is owed.
        let _ = self.submit(ordered::summed(control.encode()), Recipient::NoClient);
    }

    /// Gives a request of the service a position whose reply goes to an operator. False if there is no room.
    pub(super) fn submit_for_operator(&mut self, request: order::Request, ticket: u64) -> bool {
        self.orderer.can_accept() && self.submit(request, Recipient::Operator(ticket)).is_ok()
    }

    /// # Errors
    /// When the orderer does not accept it: the recipient, which will get no reply.
    fn submit(&mut self, request: order::Request, owner: Recipient) -> Result<(), Recipient> {
        let cost = owner.client().map_or(request.bytes.len(), |to| to.cost as usize);
        // From 1: a request of the pipeline itself has none.
        let stream = owner.client().map_or(0, |to| to.slot + 1);
        match self.orderer.submit(order::Request { stream, ..request }, self.pending.next_tag(), cost) {
            Ok(()) => {
                self.pending.push(owner);
                Ok(())
            }
            Err(_) => Err(owner),
        }
    }

    /// The recipients of the replies to delivered requests with these tags; none for a batch of another replica.
    ///
    /// # Errors
    /// When this replica cannot know any more which reply belongs to which recipient.
    pub(super) fn recipients(&mut self, tags: &[u64]) -> Result<Vec<Recipient>, Corrupted> {
        tags.iter().map(|tag| self.pending.take(*tag)).collect()
    }

    /// Requests with these tags are not ordered after all.
    ///
    /// # Errors
    /// Those of [`OrderStage::recipients`].
    pub(super) fn skip<W: World>(
        &mut self,
        tags: impl IntoIterator<Item = u64>,
        clients: &mut OwnClients<W>,
    ) -> Result<(), Corrupted> {
        tags.into_iter().try_for_each(|tag| {
            clients.lose_reply(self.pending.take(tag)?);
            Ok(())
        })
    }

    /// Whether the queues of requests have the lengths that they have recorded.
    pub(super) fn requests_are_intact(&self) -> bool {
        self.waiting.iter().all(SealedQueue::is_intact)
    }

    /// Whether as many recipients wait as there are own requests in the orderer.
    pub(super) fn replies_are_intact(&self) -> bool {
        self.pending.is_intact()
    }

    /// Whether own requests wait and there is room for a batch of them.
    pub(super) fn can_go_on(&self) -> bool {
        let (collected, in_flight, _) = self.orderer.waiting();
        collected > 0 && in_flight < order::limits::OWN_EAGER
    }

    /// Stops so that the next process joins without this log. A log on disk would lead it, and each later process, to
    /// the same error.
    pub(super) fn give_up_log<W: World>(&mut self, why: ReplaceReason, env: &mut Environment<W>) {
        let outcome = self.orderer.forget();
        env.stop_with(match outcome {
            Ok(()) => Ok(Stop::Replace(why)),
            Err(error) => Err(error.into()),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use order::{Config, SingleEngine, State};

    use super::*;
    use crate::clients::ReplyTo;
    use crate::counters::ClientCounters;
    use crate::world::Os;

    /// A stage for requests of two client threads, at the only replica.
    fn stage() -> OrderStage {
        let orderer =
            Orderer::new(Config::new(0, 1, 1), Engine::Single(SingleEngine::new(0, 1, 0)), State::default());
        OrderStage::new(orderer, 2)
    }

    /// Request `number` of a client thread, which ends with both numbers.
    fn submission(thread: u32, number: u64, bytes: &Bytes) -> Submission {
        let to = ReplyTo { slot: 2 * 7 + thread, generation: 0, sequence: number, cost: 0 };
        let text = [bytes, &[thread as u8, number as u8][..]].concat();
        Submission { number, to, request: ordered::summed(text.into()) }
    }

    fn submit(stage: &mut OrderStage) -> Result<(), Corrupted> {
        let mut clients = OwnClients::<Os>::new(Arc::new(ClientCounters::with_threads(2)));
        stage.submit_waiting(&hooks::Active::default(), &mut clients, None)
    }

    /// Orders what was submitted; returns the threads and numbers of the requests, in their order.
    fn ordered_now(stage: &mut OrderStage) -> Vec<(u8, u8)> {
        let mut all = Vec::new();
        loop {
            stage.orderer.pump(1);
            let Some(delivered) = stage.orderer.poll_delivery() else { return all };
            all.extend(delivered.batch.requests().map(|request| match &request.bytes[..] {
                [.., thread, number] => (*thread, *number),
                _ => panic!("a request has two numbers"),
            }));
        }
    }

    #[test]
    fn each_threads_requests_keep_their_order_and_a_busy_thread_lets_the_other_in() {
        let mut stage = stage();
        // So long that few of them fill the orderer.
        let long = Bytes::from(vec![b'x'; order::limits::REQUEST_BYTES - 2]);
        stage.queue((0..20).map(|number| submission(0, number, &long)));
        submit(&mut stage).unwrap();
        let first = stage.waiting();
        assert!((1..20).contains(&first), "{first} still wait");
        stage.queue((0..2).map(|number| submission(1, number, &Bytes::new())));
        let mut order = ordered_now(&mut stage);
        assert_eq!(order, (0..20 - first as u8).map(|number| (0, number)).collect::<Vec<_>>());
        order.clear();
        while stage.waiting() > 0 {
            submit(&mut stage).unwrap();
            order.extend(ordered_now(&mut stage));
        }
        assert_eq!(order[..2], [(1, 0), (1, 1)], "the other thread was first");
        assert!(order[2..].is_sorted() && order.len() == 2 + first);
    }

    #[test]
    fn a_request_in_the_queue_of_another_thread_is_found_by_its_number() {
        let mut stage = stage();
        let none = Bytes::new();
        stage.queue((0..3).map(|number| submission(0, number, &none)));
        // The slot was corrupted: it looks like one of thread 1, which has sent none.
        stage.queue([Submission { to: submission(1, 3, &none).to, ..submission(0, 3, &none) }]);
        assert_eq!(submit(&mut stage), Err(Corrupted::RequestQueue));
    }
}
