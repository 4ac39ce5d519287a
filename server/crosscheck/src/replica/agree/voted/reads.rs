//! Checked reads (`reads = "local"` in a mode with X): a request that only reads takes no batch. The replica of its
//! client reads, f others read the same, and the reply leaves if all f+1 have made the same one. What differs, is late,
//! or comes while a replica is away is ordered like any other request. So a read costs f+1 executions and no entry of
//! the log, in place of 2f+1 with one.
//!
//! # Why the reply is right, and not an old one
//!
//! At most f replicas are wrong, so one of the f+1 with the same reply is right, and its reply is that of the state
//! after the batch on which it has read. What remains is that this batch is late enough (linearizability): that a write
//! whose reply left before the read came is in that state.
//!
//! - The reply to such a write left because f+1 replicas had executed it. One of them, A, is right.
//! - If A is among those whose replies are compared, then it has read on a state that has the write, since it got the
//!   question later, and its reply is the one that leaves.
//! - Otherwise A was asked how far it is, after the read had come, and has answered with a batch that has the write or
//!   a later one: *all* others are asked, not a majority. A reply counts only if it was read on the state after the
//!   latest batch of these answers, or after a later one ([`ReadQuestion::bound`]).
//!
//! A batch counts as soon as it was delivered: one that is executed out of order, by several workers, is not missed.
//! That each has read on another state does no harm. If what was read has changed between them, the replies differ.
//!
//! Time: an item that expires is gone when a batch says so. Each replica compares with its own time whether one would
//! (`Service::read`), and has no reply then.

use std::collections::BTreeMap;

use order::Request;
use verify::limits::RESEND_US;

use super::super::local_reads::LocalReads;
use super::Voted;
use super::read_message::ReadMessage;
use crate::hooks::{Hooks, Rule};
use crate::limits;
use crate::reads::{ReadReply, ReadsDone, RunningReads};
use crate::replica::core::Core;
use crate::service::Service;
use crate::world::World;

/// The reads of own clients, and those that other replicas want compared.
pub(super) struct CheckedReads {
    pub(super) own: LocalReads,
    place: InGroup,
    /// One at a time: the reads that come meanwhile share the next one.
    question: Option<ReadQuestion>,
    /// Questions so far.
    asked: u64,
    /// The replica, from 0, that has compared last.
    compared_last: u8,
    /// Of each other replica: what it wants read, once the state is that after its batch.
    wanted: BTreeMap<u8, WantedReads>,
    /// What runs between two batches now, in its order, and how many reads each is.
    running: Vec<(Running, usize)>,
    /// Reads have run just now: batches that wait come first.
    have_run: bool,
    /// Reads may run as soon as nothing is in execution, so no batch is delivered.
    pub(super) waits_for_end: bool,
    /// Answers were late: reads are ordered until then.
    ordered_until_us: u64,
}

/// A replica's place in its group.
#[derive(Clone, Copy, Debug)]
struct InGroup {
    /// This replica, from 0.
    me: u8,
    replicas: u8,
}

/// Reads of own clients for which others were asked.
#[derive(Debug)]
struct ReadQuestion {
    number: u64,
    asked_us: u64,
    /// A bit for each replica that has not said how far it is.
    awaited: u16,
    /// The latest batch of which this replica, or one that was asked, has said that it was delivered there.
    bound: u64,
    /// The numbers of the reads, in their order.
    reads: Vec<u64>,
    requests: Vec<Request>,
    /// The answers of those that read the same; none of one that has to read again, or for the first time.
    answers: BTreeMap<u8, Option<ReadElsewhere>>,
}

/// Another replica has read the same.
#[derive(Debug)]
struct ReadElsewhere {
    /// On the state after this batch.
    batch: u64,
    digests: Vec<Option<u128>>,
}

/// What another replica wants read.
#[derive(Debug)]
struct WantedReads {
    number: u64,
    from: u64,
    requests: Vec<Request>,
}

/// Whose reads run.
#[derive(Clone, Copy, Debug)]
enum Running {
    Own,
    /// Of this replica's question.
    Of(u8, u64),
}

/// When reads run that may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadTurn {
    /// In this round.
    Now,
    /// In the next one: reads have run just now, and batches that wait come first.
    BehindBatches,
    /// When nothing is in execution any more; no batch is delivered until then.
    AtEnd,
    /// There are none, or some run.
    Nothing,
}

/// Messages and their receivers.
type Messages = Vec<(u8, ReadMessage)>;

impl CheckedReads {
    pub(super) fn new(me: u8, replicas: u8) -> Self {
        CheckedReads {
            own: LocalReads::default(),
            place: InGroup { me, replicas },
            question: None,
            asked: 0,
            compared_last: me,
            wanted: BTreeMap::new(),
            running: Vec::new(),
            have_run: false,
            waits_for_end: false,
            ordered_until_us: 0,
        }
    }

    /// The group has so many replicas. While that changes, reads take a batch.
    pub(super) fn resize(&mut self, replicas: u8) {
        self.place.replicas = replicas;
    }

    /// Another state has taken the place of this replica's.
    pub(super) fn begin_again(&mut self) {
        self.own.begin_again();
        self.question = None;
        self.wanted.clear();
        self.running.clear();
        (self.have_run, self.waits_for_end) = (false, false);
    }

    /// Whether nothing is to be done.
    fn is_idle(&self) -> bool {
        self.own.is_empty() && self.wanted.is_empty()
    }

    /// Whether the reads of own clients wait for too long: answers were lost, or the batch that bounds them does not
    /// come.
    fn is_late(&self, now_us: u64) -> bool {
        let asked_us = self.question.as_ref().map(|question| question.asked_us);
        let since_us = asked_us.or((!self.own.bound.is_empty()).then_some(self.own.since_us));
        since_us.is_some_and(|since_us| now_us.saturating_sub(since_us) >= RESEND_US)
    }

    /// Asks for the reads that have arrived, unless a question is open. `delivered` is the last batch here.
    fn ask(&mut self, delivered: u64, now_us: u64) -> Messages {
        if self.question.is_some() || !self.own.query(limits::READS_PER_TURN, order::limits::BATCH_BYTES) {
            return Vec::new();
        }
        let InGroup { me, replicas } = self.place;
        self.asked += 1;
        let queried = self.own.queried.iter();
        let (reads, requests) =
            queried.map(|read| (read.submission.number, read.submission.request.clone())).unzip();
        let mut question = ReadQuestion {
            number: self.asked,
            asked_us: now_us,
            awaited: 0,
            bound: delivered,
            reads,
            requests,
            answers: BTreeMap::new(),
        };
        // Those that compare take turns.
        let last = self.compared_last;
        let others = (1..=replicas).map(|after| (last + after) % replicas).filter(|to| *to != me);
        for to in others.take(usize::from(replicas - 1) / 2) {
            question.answers.insert(to, None);
            self.compared_last = to;
        }
        question.awaited = (0..replicas)
            .filter(|to| *to != me && !question.answers.contains_key(to))
            .fold(0, |awaited, to| awaited | 1 << to);
        let ask = |to| (to, ReadMessage::Ask { number: question.number });
        let mut messages: Messages =
            (0..replicas).filter(|to| question.awaited >> to & 1 == 1).map(ask).collect();
        messages.extend(question.read_again());
        self.question = Some(question);
        messages
    }

    /// A new round: what waits in it is decided anew, because reads may have been ordered meanwhile, and then they keep
    /// no batch back. Returns whether there are reads.
    fn begin_round(&mut self) -> bool {
        self.waits_for_end = false;
        !self.is_idle()
    }

    /// Whether reads run in this round, on the state after batch `delivered`; `is_idle` if nothing is in execution.
    fn turn(&mut self, delivered: u64, is_idle: bool) -> ReadTurn {
        let waits = self.running.is_empty() && self.has_next(delivered);
        match (waits, std::mem::take(&mut self.have_run)) {
            (false, _) => ReadTurn::Nothing,
            (true, true) => ReadTurn::BehindBatches,
            (true, false) if is_idle => ReadTurn::Now,
            (true, false) => {
                self.waits_for_end = true;
                ReadTurn::AtEnd
            }
        }
    }

    /// Handles a message of another replica. `delivered` is the last batch here; none while this replica executes
    /// nothing.
    fn on_message(
        &mut self,
        from: u8,
        message: ReadMessage,
        delivered: Option<u64>,
        now_us: u64,
    ) -> Messages {
        match message {
            ReadMessage::Ask { number } => {
                let at = delivered.map(|batch| (from, ReadMessage::At { number, batch }));
                at.into_iter().collect()
            }
            ReadMessage::Read { number, from: batch, requests } => {
                if delivered.is_some() {
                    // Of each replica one: it asks the next question when it has given this one up.
                    self.wanted.insert(from, WantedReads { number, from: batch, requests });
                }
                Vec::new()
            }
            answer => {
                self.question.iter_mut().for_each(|question| question.receive(from, &answer));
                self.bind(now_us)
            }
        }
    }

    /// All have answered: the reads may run here. Those that have read too early read again.
    fn bind(&mut self, now_us: u64) -> Messages {
        let Some(question) = &mut self.question else { return Vec::new() };
        if question.awaited != 0 || question.answers.values().any(Option::is_none) {
            return Vec::new();
        }
        let bound = question.bound;
        for answer in question.answers.values_mut() {
            answer.take_if(|answer| answer.batch < bound);
        }
        let again = question.read_again();
        if !again.is_empty() {
            return again;
        }
        let Some(ReadQuestion { reads, answers, .. }) = self.question.take() else { return Vec::new() };
        let mut asked = reads.into_iter().enumerate();
        self.own.bind(bound, now_us, |read| {
            // Some were ordered meanwhile.
            let at = asked.find(|(_, number)| *number == read.submission.number);
            let digest = |answer: &Option<ReadElsewhere>| *answer.as_ref()?.digests.get(at?.0)?;
            read.compared = answers.values().map(digest).collect();
        });
        Vec::new()
    }

    /// The reads that may run on the state after batch `delivered`, own ones first, and how many of them are own.
    fn next(&mut self, delivered: u64) -> (Vec<Request>, usize) {
        let mut requests = self.own.begin(delivered).unwrap_or_default();
        let own = requests.len();
        if own > 0 {
            self.running.push((Running::Own, own));
        }
        self.wanted.retain(|of, wanted| {
            let is_due = wanted.from <= delivered;
            if is_due {
                self.running.push((Running::Of(*of, wanted.number), wanted.requests.len()));
                requests.append(&mut wanted.requests);
            }
            !is_due
        });
        (requests, own)
    }

    /// Whether there are such reads.
    fn has_next(&self, delivered: u64) -> bool {
        let is_due = |from: u64| from <= delivered;
        let own = self.own.bound.front().and_then(|read| read.from);
        own.is_some_and(is_due) || self.wanted.values().any(|wanted| is_due(wanted.from))
    }
}

impl ReadQuestion {
    /// Another replica's answer, if it is one to this question.
    fn receive(&mut self, from: u8, answer: &ReadMessage) {
        match answer {
            ReadMessage::At { number, batch } if *number == self.number && self.awaited >> from & 1 == 1 => {
                self.awaited &= !(1 << from);
                self.bound = self.bound.max(*batch);
            }
            ReadMessage::Were { number, batch, digests }
                if *number == self.number && digests.len() == self.reads.len() =>
            {
                if let Some(answer) = self.answers.get_mut(&from) {
                    *answer = Some(ReadElsewhere { batch: *batch, digests: digests.clone() });
                }
            }
            _ => {}
        }
    }

    /// To those that have not read, or too early: what to read.
    fn read_again(&self) -> Messages {
        let read = |(to, _): (&u8, _)| {
            let requests = self.requests.clone();
            (*to, ReadMessage::Read { number: self.number, from: self.bound, requests })
        };
        self.answers.iter().filter(|(_, answer)| answer.is_none()).map(read).collect()
    }
}

impl Voted {
    /// Asks for reads, and runs those that may. Returns whether there is more to do at once.
    pub(super) fn advance_reads<S: Service, W: World>(&mut self, core: &mut Core<S, W>) -> bool {
        let Some(reads) = &mut self.reads else { return false };
        if !reads.begin_round() {
            return false;
        }
        let Some(execution) = &core.executor.running else { return false };
        let (now_us, delivered) = (core.time.listened_us(), execution.delivered());
        if !reads.own.is_empty() {
            let is_late = reads.is_late(now_us);
            if is_late {
                reads.ordered_until_us = now_us + limits::READS_ORDERED.as_micros() as u64;
            }
            let is_resizing = core.order.is_resizing();
            if now_us < reads.ordered_until_us || is_resizing || !core.group.receives_all(now_us) {
                self.order_reads(core);
                return true;
            }
            send(reads.ask(delivered, now_us), core);
        }
        self.run_next_reads(delivered, core)
    }

    /// Runs reads between two batches, as soon as nothing is in execution.
    fn run_next_reads<S: Service, W: World>(&mut self, delivered: u64, core: &mut Core<S, W>) -> bool {
        let (Some(reads), Some(execution)) = (&mut self.reads, &mut core.executor.running) else {
            return false;
        };
        match reads.turn(delivered, execution.is_idle()) {
            ReadTurn::Now => {}
            ReadTurn::BehindBatches => return true,
            ReadTurn::AtEnd | ReadTurn::Nothing => return false,
        }
        let (requests, own) = reads.next(delivered);
        let latest_us = core.time.stamp_us(&core.env);
        execution.read(RunningReads { epoch: reads.own.epoch, latest_us, requests, own });
        true
    }

    /// Reads have run.
    pub(super) fn on_reads_done<S: Service, W: World>(&mut self, done: ReadsDone, core: &mut Core<S, W>) {
        if let Some(execution) = &mut core.executor.running {
            execution.has_read();
        }
        let Some(reads) = &mut self.reads else { return };
        reads.have_run = true;
        let ReadsDone { epoch, batch, replies } = done;
        let mut replies = replies.into_iter();
        for (of, count) in std::mem::take(&mut reads.running) {
            let replies: Vec<Option<ReadReply>> = replies.by_ref().take(count).collect();
            match of {
                Running::Own => self.answer_reads(ReadsDone { epoch, batch, replies }, core),
                Running::Of(to, number) => {
                    let digests = replies.iter().map(|reply| Some(reply.as_ref()?.digest)).collect();
                    send(vec![(to, ReadMessage::Were { number, batch, digests })], core);
                }
            }
        }
    }

    /// The replies on which f+1 replicas agree leave, and the other reads are ordered.
    fn answer_reads<S: Service, W: World>(&mut self, done: ReadsDone, core: &mut Core<S, W>) {
        let Some(CheckedReads { own, .. }) = &mut self.reads else { return };
        let mut ordered = own.end(done, core.time.listened_us());
        if core.env.hooks.keeps(Rule::ComparesReads) {
            ordered.extend(own.differing());
        }
        for to in ordered {
            core.env.tally.reads.ordered +=
                own.order_all_of(to, &mut core.clients.in_order, &mut core.order.to_order);
        }
        while let Some((batch, read, reply)) = own.leave(u64::MAX) {
            core.answer_read(batch, read, reply);
        }
    }

    /// A replica is away, or does not answer: all reads of own clients are ordered.
    pub(super) fn order_reads<S: Service, W: World>(&mut self, core: &mut Core<S, W>) {
        let Some(reads) = &mut self.reads else { return };
        reads.question = None;
        core.env.tally.reads.ordered +=
            reads.own.order_all(&mut core.clients.in_order, &mut core.order.to_order);
    }

    /// Another replica's message about reads.
    pub(super) fn on_read_message<S: Service, W: World>(
        &mut self,
        from: u8,
        message: ReadMessage,
        core: &mut Core<S, W>,
    ) {
        let now_us = core.time.listened_us();
        let delivered = core.executor.running.as_ref().map(|execution| execution.delivered());
        if let Some(reads) = &mut self.reads {
            send(reads.on_message(from, message, delivered, now_us), core);
        }
    }
}

fn send<S: Service, W: World>(messages: Messages, core: &mut Core<S, W>) {
    for (to, message) in messages {
        core.env.send(to, order::FrameKind::Read, &message.encode(), false);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bytes::Bytes;

    use super::*;
    use crate::clients::{ReplyTo, Submission};
    use crate::replica::in_order::ByConnection;

    /// Replica 1 of a group, with reads of clients that have a connection each.
    struct Host {
        reads: CheckedReads,
        in_order: ByConnection,
        to_order: VecDeque<Submission>,
    }

    impl Host {
        fn of(replicas: u8) -> Self {
            let (in_order, to_order) = <(ByConnection, VecDeque<Submission>)>::default();
            Host { reads: CheckedReads::new(0, replicas), in_order, to_order }
        }

        /// Reads with these numbers arrive.
        fn submit(&mut self, numbers: std::ops::Range<u64>) {
            for number in numbers {
                let to = ReplyTo { slot: number as u32, generation: 1, sequence: 0, cost: 0 };
                let request = crate::ordered::summed(Bytes::from_static(b"get key"));
                let submission = Submission { number, to, request };
                self.reads.own.sort(submission, true, &mut self.in_order, &mut self.to_order);
            }
        }

        /// Replica `from`, from 0, says this.
        fn receive(&mut self, from: u8, message: ReadMessage) -> Messages {
            self.reads.on_message(from, message, Some(4), 0)
        }

        /// The reads run on the state after batch `at`, with a reply of this digest. The numbers of those whose replies
        /// leave.
        fn run(&mut self, at: u64, digest: u128) -> Vec<u64> {
            let (requests, _) = self.reads.next(at);
            self.reads.running.clear();
            let replies = requests.iter().map(|_| Some(ReadReply { bytes: Bytes::new(), digest })).collect();
            let refused =
                self.reads.own.end(ReadsDone { epoch: self.reads.own.epoch, batch: at, replies }, 0);
            for to in refused.into_iter().chain(self.reads.own.differing()) {
                self.reads.own.order_all_of(to, &mut self.in_order, &mut self.to_order);
            }
            std::iter::from_fn(|| self.reads.own.leave(u64::MAX)).map(|(_, read, _)| read.number).collect()
        }

        fn ordered(&mut self) -> Vec<u64> {
            self.to_order.drain(..).map(|one| one.number).collect()
        }
    }

    /// The receivers of questions and of reads.
    fn receivers(messages: &Messages) -> (Vec<u8>, Vec<u8>) {
        let (ask, read): (Messages, Messages) =
            messages.iter().cloned().partition(|(_, message)| matches!(message, ReadMessage::Ask { .. }));
        let to = |messages: Messages| messages.into_iter().map(|(to, _)| to).collect();
        (to(ask), to(read))
    }

    fn were(number: u64, batch: u64, digests: &[Option<u128>]) -> ReadMessage {
        ReadMessage::Were { number, batch, digests: digests.to_vec() }
    }

    #[test]
    fn a_reply_leaves_when_as_many_as_may_fail_have_read_the_same_and_the_others_have_answered() {
        let mut host = Host::of(5);
        host.submit(0..2);
        assert_eq!(receivers(&host.reads.ask(4, 0)), (vec![3, 4], vec![1, 2]));
        host.submit(2..3);
        assert_eq!(receivers(&host.reads.ask(4, 0)), (vec![], vec![]), "one question at a time");
        for (from, message) in [
            (1, were(1, 4, &[Some(7), Some(7)])),
            (3, ReadMessage::At { number: 1, batch: 4 }),
            (2, were(1, 5, &[Some(7), Some(7)])),
        ] {
            host.receive(from, message);
            assert_eq!(host.run(9, 7), Vec::<u64>::new());
        }
        host.receive(4, ReadMessage::At { number: 1, batch: 3 });
        assert_eq!(host.run(4, 7), [0, 1]);
        assert_eq!(receivers(&host.reads.ask(4, 0)), (vec![1, 2], vec![3, 4]), "they take turns");
    }

    #[test]
    fn what_was_read_too_early_is_read_again_and_waits_here_for_its_batch() {
        let mut host = Host::of(3);
        host.submit(0..1);
        assert_eq!(receivers(&host.reads.ask(4, 0)), (vec![2], vec![1]));
        host.receive(1, were(1, 8, &[Some(7)]));
        let again = host.receive(2, ReadMessage::At { number: 1, batch: 9 });
        assert!(matches!(&again[..], [(1, ReadMessage::Read { number: 1, from: 9, .. })]), "{again:?}");
        assert_eq!(host.receive(1, were(1, 9, &[Some(7)])), []);
        assert_eq!(host.run(8, 7), Vec::<u64>::new(), "another replica has batch 9");
        assert_eq!(host.run(9, 7), [0]);
    }

    #[test]
    fn a_reply_that_another_has_not_read_is_ordered_and_so_is_one_that_it_does_not_have() {
        let mut host = Host::of(3);
        host.submit(0..3);
        host.reads.ask(4, 0);
        host.receive(2, ReadMessage::At { number: 1, batch: 4 });
        host.receive(1, were(1, 4, &[Some(7), Some(8), None]));
        assert_eq!((host.run(4, 7), host.ordered()), (vec![0], vec![1, 2]));
    }

    #[test]
    fn what_answers_no_open_question_counts_for_nothing() {
        let mut host = Host::of(3);
        host.submit(0..1);
        host.reads.ask(4, 0);
        for (from, message) in [
            (1, were(0, 4, &[Some(7)])),
            (1, were(1, 4, &[])),
            (2, were(1, 4, &[Some(7)])),
            (1, ReadMessage::At { number: 1, batch: 4 }),
            (2, ReadMessage::At { number: 2, batch: 4 }),
        ] {
            host.receive(from, message);
        }
        assert_eq!(host.run(9, 7), Vec::<u64>::new());
        assert!(!host.reads.is_late(RESEND_US - 1) && host.reads.is_late(RESEND_US));
        host.receive(1, were(1, 4, &[Some(7)]));
        host.receive(2, ReadMessage::At { number: 1, batch: u64::MAX });
        assert_eq!(host.run(9, 7), Vec::<u64>::new(), "that batch does not come");
        assert!(host.reads.is_late(RESEND_US));
    }

    #[test]
    fn a_read_that_was_ordered_meanwhile_is_passed_over_in_the_answers() {
        let mut host = Host::of(3);
        host.submit(0..3);
        host.reads.ask(4, 0);
        let to = ReplyTo { slot: 1, generation: 1, sequence: 0, cost: 0 };
        host.reads.own.order_all_of(to, &mut host.in_order, &mut host.to_order);
        host.receive(1, were(1, 4, &[Some(7), Some(8), Some(7)]));
        host.receive(2, ReadMessage::At { number: 1, batch: 4 });
        assert_eq!((host.run(4, 7), host.ordered()), (vec![0, 2], vec![1]));
    }

    #[test]
    fn reads_wait_until_nothing_is_in_execution_and_keep_no_batch_back_once_they_were_ordered() {
        let mut host = Host::of(3);
        host.submit(0..1);
        host.reads.ask(4, 0);
        host.receive(1, were(1, 4, &[Some(7)]));
        host.receive(2, ReadMessage::At { number: 1, batch: 4 });
        assert_eq!(host.reads.turn(4, false), ReadTurn::AtEnd);
        assert!(host.reads.begin_round() && !host.reads.waits_for_end);
        assert_eq!(host.reads.turn(4, true), ReadTurn::Now);
        assert_eq!(host.reads.turn(4, false), ReadTurn::AtEnd);
        assert!(host.reads.waits_for_end);
        host.reads.own.order_all(&mut host.in_order, &mut host.to_order);
        assert!(!host.reads.begin_round());
        assert!(
            !host.reads.waits_for_end,
            "a peer has left: the reads are ordered, and batches have to be delivered"
        );
    }

    #[test]
    fn batches_that_wait_come_before_the_next_reads() {
        let mut host = Host::of(3);
        let requests = vec![crate::ordered::summed(Bytes::from_static(b"get key"))];
        host.receive(1, ReadMessage::Read { number: 1, from: 4, requests });
        host.reads.have_run = true;
        assert_eq!(host.reads.turn(4, true), ReadTurn::BehindBatches);
        assert!(!host.reads.waits_for_end);
        assert_eq!(host.reads.turn(4, true), ReadTurn::Now);
    }

    #[test]
    fn reads_of_others_run_together_once_their_batches_are_there() {
        let mut host = Host::of(3);
        let requests = vec![crate::ordered::summed(Bytes::from_static(b"get key"))];
        let read = |number, from| ReadMessage::Read { number, from, requests: requests.clone() };
        host.receive(1, read(3, 9));
        host.receive(1, read(4, 5));
        host.receive(2, read(1, 5));
        assert!(!host.reads.has_next(4) && host.reads.has_next(5));
        assert_eq!(host.reads.next(5).0.len(), 2);
        let running = std::mem::take(&mut host.reads.running);
        assert!(matches!(running[..], [(Running::Of(1, 4), 1), (Running::Of(2, 1), 1)]), "{running:?}");
        assert!(!host.reads.has_next(9), "the first question was given up");
        assert_eq!(
            host.reads.on_message(1, ReadMessage::Ask { number: 5 }, None, 0),
            [],
            "it executes nothing"
        );
    }

    #[test]
    fn reads_begin_again_on_another_state() {
        let mut host = Host::of(3);
        host.submit(0..2);
        host.reads.ask(4, 0);
        host.receive(1, were(1, 4, &[Some(7), Some(7)]));
        host.receive(2, ReadMessage::At { number: 1, batch: 4 });
        assert_eq!(host.reads.next(4).1, 2);
        host.submit(2..3);
        host.reads.begin_again();
        assert_eq!(host.run(4, 7), Vec::<u64>::new());
        assert_eq!(receivers(&host.reads.ask(4, 0)), (vec![1], vec![2]));
        host.receive(2, were(2, 4, &[Some(7); 3]));
        host.receive(1, ReadMessage::At { number: 2, batch: 4 });
        assert_eq!(host.run(4, 7), [0, 1, 2]);
    }
}
