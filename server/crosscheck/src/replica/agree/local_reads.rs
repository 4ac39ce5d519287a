//! The reads of a replica's own clients that take no batch, and how far each of them is. A read *arrives*, and waits
//! for the next question to other replicas. Their answers *bind* it: it may run on the state after batch n, or a later
//! one. It *runs* between two batches here, and its reply leaves when the replicas agree on it; `voted/reads.rs` and
//! `verified/reads.rs` have the questions, what agreement is, and why that is linearizable.
//!
//! *Order within a connection.* A read behind an unanswered request that was ordered is ordered too, and sees it. A
//! request that does not only read, behind reads that have no reply yet, takes them into the order with it, in front of
//! it: else a read that has to run again would see what was sent after it. Reads of one connection run in the order in
//! which they came, on states that do not go back. So a pipelined connection sees one history, and its own writes;
//! replies keep their places as always (`clients/connection.rs`).

use std::collections::VecDeque;

use verify::limits::RESEND_US;

use crate::clients::{ReplyTo, Submission};
use crate::limits;
use crate::reads::{ReadReply, ReadsDone};
use crate::replica::execution::Execution;
use crate::replica::in_order::ByConnection;
use crate::replica::order_stage::{ReadOrder, SortsReads};
use crate::service::Service;
use crate::settings::Reads;

/// The reads of a replica. As many as its clients have requests in flight.
#[derive(Debug, Default)]
pub(super) struct LocalReads {
    /// Of each connection: how many there are.
    pub(super) pending: ByConnection,
    /// No question was asked for these yet.
    pub(super) arrived: VecDeque<LocalRead>,
    /// The last question is for these.
    pub(super) queried: VecDeque<LocalRead>,
    /// They may run, in the order in which they came.
    pub(super) bound: VecDeque<LocalRead>,
    /// A boundary has them; none for those that were ordered meanwhile.
    pub(super) running: Option<(u64, Vec<Option<LocalRead>>)>,
    /// They have run; the versions ascend.
    pub(super) ran: VecDeque<(u64, LocalRead, ReadReply)>,
    /// Grows when versions are rolled back: what began before has seen another state.
    pub(super) epoch: u64,
    /// When the last question was asked, or answered, in microseconds.
    pub(super) since_us: u64,
    /// The tag of the first own request that was sorted since all are; none while none is.
    pub(super) sorted_from: Option<u64>,
}

/// A read.
#[derive(Debug)]
pub(super) struct LocalRead {
    pub(super) submission: Submission,
    /// The first batch that it has to see; none before others have answered.
    pub(super) from: Option<u64>,
    /// Where replies are compared: the digests of the replies that others have read; none of one that has no reply.
    pub(super) compared: Vec<Option<u128>>,
}

impl LocalReads {
    /// What keeps requests that only read; none where they are ordered, and none of before is left.
    pub(super) fn sorts<'r, S: Service>(
        &'r mut self,
        execution: &'r Execution<S>,
        order: ReadOrder,
    ) -> Option<SortsReads<'r>> {
        let are_local = self.are_local(order)?;
        Some(Box::new(move |submission, in_order, to_order| {
            let only_reads = are_local && {
                let decoded = execution.service.decode(&submission.request.bytes);
                decoded.is_ok_and(|request| execution.service.reads_only(&request))
            };
            self.sort(submission, only_reads, in_order, to_order);
        }))
    }

    /// Whether reads that come now may be answered without a batch; none if no request has to be sorted.
    ///
    /// From the moment on when the group has set that, requests are sorted: a read behind an unanswered request of its
    /// connection is ordered, too. Of those that were submitted before, the connections are not known, so no read is
    /// answered here until the last of them is. After the group has set the contrary, requests are sorted until the
    /// last read is answered: one that follows such a read takes it into the order.
    pub(super) fn are_local(&mut self, order: ReadOrder) -> Option<bool> {
        let ReadOrder { reads, next_tag, first_tag } = order;
        if reads == Reads::Batch && self.is_empty() {
            self.sorted_from = None;
            return None;
        }
        let sorted_from = *self.sorted_from.get_or_insert(next_tag);
        Some(reads == Reads::Local && first_tag >= sorted_from)
    }

    pub(super) fn is_empty(&self) -> bool {
        let queues = [&self.arrived, &self.queried, &self.bound];
        queues.iter().all(|queue| queue.is_empty()) && self.running.is_none() && self.ran.is_empty()
    }

    /// Keeps a request that only reads, or adds it to those that are ordered, behind what has to come before it.
    pub(super) fn sort(
        &mut self,
        submission: Submission,
        only_reads: bool,
        in_order: &mut ByConnection,
        to_order: &mut VecDeque<Submission>,
    ) {
        let to = submission.to;
        if only_reads && !in_order.has(to) {
            self.pending.begin(to);
            return self.arrived.push_back(LocalRead { submission, from: None, compared: Vec::new() });
        }
        self.order_all_of(to, in_order, to_order);
        in_order.begin(to);
        to_order.push_back(submission);
    }

    /// All reads of a connection are ordered, as they came. Returns how many.
    pub(super) fn order_all_of(
        &mut self,
        to: ReplyTo,
        in_order: &mut ByConnection,
        to_order: &mut VecDeque<Submission>,
    ) -> u64 {
        if !self.pending.has(to) {
            return 0;
        }
        let is_of = |read: &LocalRead| {
            (read.submission.to.slot, read.submission.to.generation) == (to.slot, to.generation)
        };
        let mut found: Vec<LocalRead> = Vec::new();
        for queue in [&mut self.arrived, &mut self.queried, &mut self.bound] {
            let (of_it, others): (Vec<_>, Vec<_>) = std::mem::take(queue).into_iter().partition(is_of);
            found.extend(of_it);
            *queue = others.into();
        }
        let ran = std::mem::take(&mut self.ran).into_iter();
        let (of_it, others): (Vec<_>, Vec<_>) = ran.partition(|(_, read, _)| is_of(read));
        found.extend(of_it.into_iter().map(|(_, read, _)| read));
        self.ran = others.into();
        for place in self.running.iter_mut().flat_map(|(_, reads)| reads) {
            found.extend(place.take_if(|read| is_of(read)));
        }
        found.sort_by_key(|read| read.submission.number);
        for read in &found {
            self.pending.end(read.submission.to);
            in_order.begin(read.submission.to);
        }
        let count = found.len() as u64;
        to_order.extend(found.into_iter().map(|read| read.submission));
        count
    }

    /// All reads are ordered, as they came. Returns how many.
    pub(super) fn order_all(
        &mut self,
        in_order: &mut ByConnection,
        to_order: &mut VecDeque<Submission>,
    ) -> u64 {
        let ran = self.ran.iter().map(|(_, read, _)| read);
        let running = self.running.iter().flat_map(|(_, reads)| reads.iter().flatten());
        let waiting = [&self.arrived, &self.queried, &self.bound].into_iter().flatten();
        let connections: Vec<ReplyTo> =
            waiting.chain(ran).chain(running).map(|read| read.submission.to).collect();
        connections.into_iter().map(|to| self.order_all_of(to, in_order, to_order)).sum()
    }

    /// Moves reads that have arrived to those that the next question is for: so many at most, whose requests have so
    /// many `bytes` together, but at least one. False if there are none.
    pub(super) fn query(&mut self, most: usize, bytes: usize) -> bool {
        let mut room = bytes;
        while self.queried.len() < most
            && let Some(read) = self.arrived.front()
            && (self.queried.is_empty() || read.submission.request.bytes.len() <= room)
        {
            room = room.saturating_sub(read.submission.request.bytes.len());
            self.queried.extend(self.arrived.pop_front());
        }
        !self.queried.is_empty()
    }

    /// The state that reads have run on or wait for is gone: they begin again.
    pub(super) fn begin_again(&mut self) {
        self.epoch += 1;
        let (_, running) = self.running.take().unwrap_or_default();
        let ran = self.ran.drain(..).map(|(_, read, _)| read);
        let mut all: Vec<LocalRead> = running.into_iter().flatten().chain(ran).collect();
        for queue in [&mut self.queried, &mut self.bound, &mut self.arrived] {
            all.extend(queue.drain(..));
        }
        all.sort_by_key(|read| read.submission.number);
        let unbound = |read: LocalRead| LocalRead { from: None, compared: Vec::new(), ..read };
        self.arrived = all.into_iter().map(unbound).collect();
        self.sorted_from = None;
    }

    /// Whether the verifiers are asked now.
    pub(super) fn asks(&mut self, now_us: u64) -> bool {
        let is_late = now_us.saturating_sub(self.since_us) >= RESEND_US;
        if !self.queried.is_empty() {
            // Answers were lost, or there is no quorum.
            if !is_late {
                return false;
            }
        } else if is_late && self.running.is_none() && !self.bound.is_empty() {
            // The batch that they wait for may never come.
            self.queried.append(&mut self.bound);
        } else if self.arrived.is_empty() {
            return false;
        }
        self.queried.append(&mut self.arrived);
        self.since_us = now_us;
        true
    }

    /// The others have answered the last question: its reads may run on the state after this batch. `learns` adds what
    /// else they have said of each.
    pub(super) fn bind(&mut self, number: u64, now_us: u64, mut learns: impl FnMut(&mut LocalRead)) {
        self.since_us = now_us;
        for mut read in std::mem::take(&mut self.queried) {
            read.from = Some(read.from.map_or(number, |from| from.min(number)));
            learns(&mut read);
            self.bound.push_back(read);
        }
    }

    /// Reads that can run where the state is that after batch `version` or a later one; none if there are none, or a
    /// boundary has some.
    pub(super) fn begin(&mut self, version: u64) -> Option<Vec<order::Request>> {
        let may_run = |read: &LocalRead| read.from.is_some_and(|from| from <= version);
        if self.running.is_some() || !self.bound.front().is_some_and(may_run) {
            return None;
        }
        let count = self.bound.iter().take(limits::READS_PER_TURN).take_while(|read| may_run(read)).count();
        let reads: Vec<LocalRead> = self.bound.drain(..count).collect();
        let requests = reads.iter().map(|read| read.submission.request.clone()).collect();
        self.running = Some((self.epoch, reads.into_iter().map(Some).collect()));
        Some(requests)
    }

    /// A boundary has run them. Returns the connections of those that have no reply.
    pub(super) fn end(&mut self, done: ReadsDone, now_us: u64) -> Vec<ReplyTo> {
        let ReadsDone { epoch, batch, replies } = done;
        let Some((begun, reads)) = self.running.take_if(|(begun, _)| *begun == epoch) else {
            return Vec::new();
        };
        self.since_us = now_us;
        let is_void = begun != self.epoch;
        let mut refused = Vec::new();
        for (read, reply) in reads.into_iter().zip(replies) {
            let Some(read) = read else { continue };
            match reply {
                _ if is_void || read.from.is_none_or(|from| from > batch) => self.bound.push_back(read),
                Some(reply) => self.ran.push_back((batch, read, reply)),
                None => {
                    refused.push(read.submission.to);
                    self.bound.push_back(read);
                }
            }
        }
        self.restore_order();
        refused
    }

    /// Batches after `to` are rolled back.
    pub(super) fn roll_back(&mut self, to: u64) {
        self.epoch += 1;
        while let Some((_, read, _)) = self.ran.pop_back_if(|(batch, ..)| *batch > to) {
            self.bound.push_back(read);
        }
        self.restore_order();
    }

    /// They run in the order in which they came.
    fn restore_order(&mut self) {
        self.bound.make_contiguous().sort_by_key(|read| read.submission.number);
    }

    /// The next reply that may leave, where this batch is stable, and the batch after which it was read.
    pub(super) fn leave(&mut self, stable: u64) -> Option<(u64, Submission, ReadReply)> {
        let (batch, read, reply) = self.ran.pop_front_if(|(batch, ..)| *batch <= stable)?;
        self.pending.end(read.submission.to);
        Some((batch, read.submission, reply))
    }

    /// The connections of those that have run and whose replies differ from those of the others.
    pub(super) fn differing(&self) -> Vec<ReplyTo> {
        let differs = |(_, read, reply): &&(u64, LocalRead, ReadReply)| {
            read.compared.is_empty() || read.compared.iter().any(|digest| *digest != Some(reply.digest))
        };
        self.ran.iter().filter(differs).map(|(_, read, _)| read.submission.to).collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Reads of one replica, what is ordered, and what its clients have in the order.
    #[derive(Default)]
    struct Host {
        reads: LocalReads,
        in_order: ByConnection,
        to_order: VecDeque<Submission>,
        now_us: u64,
    }

    impl Host {
        /// Request `number` of the connection in `slot`.
        fn submit(&mut self, slot: u32, number: u64, only_reads: bool) {
            let to = ReplyTo { slot, generation: 1, sequence: number, cost: 0 };
            let request = crate::ordered::summed(Bytes::from_static(b"request"));
            let submission = Submission { number, to, request };
            self.reads.sort(submission, only_reads, &mut self.in_order, &mut self.to_order);
        }

        /// The verifiers are asked, and answer.
        fn bind(&mut self, number: u64) {
            assert!(self.reads.asks(self.now_us));
            self.reads.bind(number, self.now_us, |_| ());
        }

        /// Those that may run at `version` run on the state after batch `at`. Returns how many there were.
        fn run(&mut self, version: u64, at: u64) -> usize {
            let Some(requests) = self.reads.begin(version) else { return 0 };
            self.end(at, requests.len(), self.reads.epoch)
        }

        fn end(&mut self, batch: u64, count: usize, epoch: u64) -> usize {
            let reply = ReadReply { bytes: Bytes::new(), digest: 0 };
            let done = ReadsDone { epoch, batch, replies: vec![Some(reply); count] };
            assert_eq!(self.reads.end(done, self.now_us), []);
            count
        }

        /// The numbers of those whose replies leave.
        fn leave(&mut self, stable: u64) -> Vec<u64> {
            std::iter::from_fn(|| self.reads.leave(stable)).map(|(_, read, _)| read.number).collect()
        }

        fn ordered(&mut self) -> Vec<u64> {
            self.to_order.drain(..).map(|one| one.number).collect()
        }
    }

    #[test]
    fn a_read_waits_for_its_bound_and_until_its_version_is_stable() {
        let mut host = Host::default();
        host.submit(1, 0, true);
        host.bind(5);
        assert_eq!(host.run(4, 4), 0, "batch 5 has not ended");
        assert_eq!(host.run(5, 6), 1);
        assert_eq!(host.leave(5), Vec::<u64>::new(), "it has seen batch 6");
        assert_eq!(host.leave(6), [0]);
        assert!(!host.reads.pending.has(ReplyTo { slot: 1, generation: 1, sequence: 0, cost: 0 }));
    }

    #[test]
    fn a_read_that_arrives_after_the_question_is_not_bound_by_its_answer() {
        let mut host = Host::default();
        host.submit(1, 0, true);
        assert!(host.reads.asks(0));
        host.submit(2, 1, true);
        assert!(!host.reads.asks(1), "one question at a time");
        host.reads.bind(5, 1, |_| ());
        assert_eq!(host.run(9, 9), 1);
        host.bind(7);
        assert_eq!(host.run(6, 6), 0);
        assert_eq!(host.run(7, 7), 1);
    }

    #[test]
    fn what_is_rolled_back_is_read_again_in_the_same_order() {
        let mut host = Host::default();
        host.submit(1, 0, true);
        host.bind(1);
        assert_eq!(host.run(1, 3), 1);
        host.submit(1, 1, true);
        host.bind(1);
        let running = host.reads.begin(4).expect("the second one");
        let before = host.reads.epoch;
        host.reads.roll_back(2);
        assert_eq!(host.leave(9), Vec::<u64>::new(), "batch 3 is another one now");
        assert_eq!(host.run(9, 9), 0, "a boundary still has the second one");
        host.end(4, running.len(), before);
        assert_eq!(host.run(2, 2), 2);
        assert_eq!(host.leave(2), [0, 1]);
    }

    #[test]
    fn a_bound_whose_batch_never_comes_is_asked_for_again() {
        let mut host = Host::default();
        host.submit(1, 0, true);
        host.bind(9);
        assert!(!host.reads.asks(RESEND_US - 1));
        host.now_us = RESEND_US;
        host.bind(7);
        assert_eq!(host.run(7, 7), 1, "a later view began from batch 7");
        host.submit(1, 1, true);
        host.bind(7);
        host.now_us = 2 * RESEND_US;
        host.bind(12);
        assert_eq!(host.run(7, 7), 1, "the first bound stays valid");
    }

    #[test]
    fn a_write_takes_the_reads_before_it_into_the_order() {
        let mut host = Host::default();
        host.submit(1, 0, true);
        host.bind(1);
        assert_eq!(host.run(1, 1), 1);
        host.submit(1, 1, true);
        host.bind(1);
        let running = host.reads.begin(1).expect("the second one");
        host.submit(1, 2, true);
        host.submit(2, 3, true);
        host.submit(1, 4, false);
        assert_eq!(host.ordered(), [0, 1, 2, 4]);
        host.submit(1, 5, true);
        assert_eq!(host.ordered(), [5], "behind an unanswered write");
        host.end(1, running.len(), host.reads.epoch);
        assert_eq!(host.leave(1), Vec::<u64>::new(), "they are answered from the order");
        host.bind(1);
        assert_eq!((host.run(1, 1), host.leave(1)), (1, vec![3]));
    }

    #[test]
    fn a_read_without_a_reply_is_ordered_with_those_of_its_connection() {
        let mut host = Host::default();
        for (slot, number) in [(1, 0), (2, 1), (1, 2)] {
            host.submit(slot, number, true);
        }
        host.bind(1);
        host.reads.begin(1).expect("all of them");
        let reply = Some(ReadReply { bytes: Bytes::new(), digest: 0 });
        let done = ReadsDone { epoch: 0, batch: 1, replies: vec![reply.clone(), reply, None] };
        let refused = host.reads.end(done, 0);
        assert_eq!(refused.iter().map(|to| to.slot).collect::<Vec<_>>(), [1]);
        assert_eq!(host.reads.order_all_of(refused[0], &mut host.in_order, &mut host.to_order), 2);
        assert_eq!((host.ordered(), host.leave(1)), (vec![0, 2], vec![1]));
    }

    /// The connections of requests that were submitted before the group had set reads without a batch are not known: a
    /// read behind one of them would not see it.
    #[test]
    fn no_read_is_answered_here_before_all_requests_of_before_are_and_the_last_reads_are_still_sorted() {
        let of = |reads, next_tag, first_tag| ReadOrder { reads, next_tag, first_tag };
        let mut host = Host::default();
        assert_eq!(host.reads.are_local(of(Reads::Batch, 5, 3)), None, "nothing is sorted");
        assert_eq!(host.reads.are_local(of(Reads::Local, 5, 3)), Some(false), "3 and 4 are of before");
        assert_eq!(host.reads.are_local(of(Reads::Local, 9, 4)), Some(false));
        assert_eq!(host.reads.are_local(of(Reads::Local, 9, 5)), Some(true));
        host.submit(1, 0, true);
        assert_eq!(host.reads.are_local(of(Reads::Batch, 9, 9)), Some(false), "a read is not answered yet");
        host.submit(1, 1, false);
        assert_eq!(host.to_order.len(), 2, "what follows takes it into the order");
        assert_eq!(host.reads.are_local(of(Reads::Batch, 9, 9)), None);
        assert_eq!(host.reads.are_local(of(Reads::Local, 12, 9)), Some(false), "it begins anew");
    }
}
