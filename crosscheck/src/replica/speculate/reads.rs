//! Reads of own clients that take no batch (`reads = "local"`).
//!
//! A read passes four steps. It *arrives*. The verifiers are *asked* how far they are, once for all reads that have
//! arrived. Their answers *bind* it: it may run at the version after batch n, or a later one. It *runs*, between two
//! batches of this replica, and its reply leaves when that version is stable here. `verify/src/executor/reads.rs` has
//! the reason why that is linearizable; it asks these things of this host:
//!
//! - *The question comes after the read.* Only reads that have arrived when a question is asked are bound by its
//!   answers. A read may be asked for again, since the batch that bounds it may belong to a view that has ended: each
//!   bound is valid for as long as the read waits, so the lower one counts.
//! - *It runs on a whole version.* The boundary tells after which batch it ran; one that ran too early runs again.
//! - *A version that is taken back takes its reads with it.* [`LocalReads::go_back`] is called wherever batches are to be
//!   taken back, before anything else can become stable under their numbers. Reads that have run on one of them, or are
//!   running, run again.
//!
//! *Order within a connection.* A read behind an unanswered request that was ordered is ordered too, and sees it (the
//! mixer keeps the order of a connection). A request that does not only read, behind reads that have no reply yet, takes
//! them into the order with it, in front of it: else a read that has to run again would see what was sent after it. Reads
//! of one connection run in the order in which they came, on versions that do not go back. So a pipelined connection
//! sees one history, and its own writes; replies keep their places as always (`clients/connection.rs`).
//!
//! *Wrong state.* No other replica computes the reply. A read that meets an object which does not fit its checksum has
//! none (`worker/reads.rs`), is ordered like any other request, and what it finds there is repaired.

use std::collections::VecDeque;

use execute::Speculation;
use order::OrderEngine;
use verify::ExecutorEvent;
use verify::limits::RESEND_US;

use super::{SpeculateStage, Speculator};
use crate::boundary::BoundaryWork;
use crate::clients::{Reply, ReplyTo, Submission};
use crate::hooks::Hooks;
use crate::limits;
use crate::reads::{ReadReply, ReadsDone, RunningReads};
use crate::replica::execution::Execution;
use crate::replica::in_order::ByConnection;
use crate::replica::order_stage::SortsReads;
use crate::service::Service;
use crate::world::{Observation, World};

/// The reads of a replica. As many as its clients have requests in flight.
#[derive(Debug, Default)]
pub(super) struct LocalReads {
    /// Of each connection: how many there are.
    pending: ByConnection,
    /// No question was asked for these yet.
    arrived: VecDeque<LocalRead>,
    /// The last question is for these.
    asked: VecDeque<LocalRead>,
    /// They may run, in the order in which they came.
    bound: VecDeque<LocalRead>,
    /// A boundary has them; none for those that were ordered meanwhile.
    running: Option<(u64, Vec<Option<LocalRead>>)>,
    /// They have run; the versions ascend.
    ran: VecDeque<(u64, LocalRead, ReadReply)>,
    /// Grows when versions are taken back: what began before has seen another state.
    epoch: u64,
    /// When the last question was asked, or answered, in microseconds.
    since_us: u64,
}

/// A read.
#[derive(Debug)]
struct LocalRead {
    submission: Submission,
    /// The first batch that it has to see; none before the verifiers have answered.
    from: Option<u64>,
}

impl LocalReads {
    /// Keeps a request that only reads, or adds it to those that are ordered, behind what has to come before it.
    fn sort(
        &mut self,
        submission: Submission,
        only_reads: bool,
        in_order: &mut ByConnection,
        to_order: &mut VecDeque<Submission>,
    ) {
        let to = submission.to;
        if only_reads && !in_order.has(to) {
            self.pending.begin(to);
            return self.arrived.push_back(LocalRead { submission, from: None });
        }
        self.order_all_of(to, in_order, to_order);
        in_order.begin(to);
        to_order.push_back(submission);
    }

    /// All reads of a connection are ordered, as they came. Returns how many.
    fn order_all_of(
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
        for queue in [&mut self.arrived, &mut self.asked, &mut self.bound] {
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

    /// Whether the verifiers are asked now.
    fn asks(&mut self, now_us: u64) -> bool {
        let is_late = now_us.saturating_sub(self.since_us) >= RESEND_US;
        if !self.asked.is_empty() {
            // Answers were lost, or there is no quorum.
            if !is_late {
                return false;
            }
        } else if is_late && self.running.is_none() && !self.bound.is_empty() {
            // The batch that they wait for may never come.
            self.asked.append(&mut self.bound);
        } else if self.arrived.is_empty() {
            return false;
        }
        self.asked.append(&mut self.arrived);
        self.since_us = now_us;
        true
    }

    /// The verifiers have answered the last question.
    fn bind(&mut self, number: u64, now_us: u64) {
        self.since_us = now_us;
        for mut read in std::mem::take(&mut self.asked) {
            read.from = Some(read.from.map_or(number, |from| from.min(number)));
            self.bound.push_back(read);
        }
    }

    /// Reads that can run where the state is that after batch `version` or a later one; none if there are none, or a
    /// boundary has some.
    fn begin(&mut self, version: u64) -> Option<Vec<order::Request>> {
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
    fn end(&mut self, done: ReadsDone, now_us: u64) -> Vec<ReplyTo> {
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

    /// Batches after `to` are taken back.
    pub(super) fn go_back(&mut self, to: u64) {
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
    fn leave(&mut self, stable: u64) -> Option<(u64, Submission, ReadReply)> {
        let (batch, read, reply) = self.ran.pop_front_if(|(batch, ..)| *batch <= stable)?;
        self.pending.end(read.submission.to);
        Some((batch, read.submission, reply))
    }
}

impl SpeculateStage {
    /// What keeps requests that only read; none where they are ordered.
    pub(in crate::replica) fn sorts<'r, S: Service>(
        &'r mut self,
        execution: &'r Execution<S>,
    ) -> Option<SortsReads<'r>> {
        let reads = self.reads.as_mut()?;
        Some(Box::new(move |submission, in_order, to_order| {
            let decoded = execution.service.decode(&submission.request.bytes);
            let only_reads = decoded.is_ok_and(|request| execution.service.reads_only(&request));
            reads.sort(submission, only_reads, in_order, to_order);
        }))
    }
}

impl<S: Service, E: OrderEngine, W: World> Speculator<'_, S, E, W> {
    /// Asks for reads, and runs those that may. Returns whether there is work for the workers or the orderer.
    pub(in crate::replica) fn advance_reads(&mut self) -> bool {
        let now_us = self.env.world.now_us();
        let Some(reads) = &mut self.stage.reads else { return false };
        if reads.asks(now_us) {
            self.on_executor_event(ExecutorEvent::Read);
        }
        let runs = self.run_reads();
        runs || !self.order.to_order.is_empty()
    }

    /// The verifiers have answered.
    pub(super) fn on_read_from(&mut self, number: u64) {
        let now_us = self.env.world.now_us();
        self.stage.reads.iter_mut().for_each(|reads| reads.bind(number, now_us));
    }

    fn run_reads(&mut self) -> bool {
        let latest_us = self.time.stamp_us(self.env);
        let stage = &mut *self.stage;
        // While the state is repaired, or goes back, none of it is read.
        let is_whole = stage.going_back.is_none() && stage.repairing.is_none();
        let version = stage.speculation.as_ref().filter(|_| is_whole).map(Speculation::version);
        let (Some(version), Some(execution)) = (version, &mut self.executor.running) else { return false };
        let Some(reads) = &mut stage.reads else { return false };
        let Some(requests) = reads.begin(version.number) else { return false };
        let epoch = reads.epoch;
        execution.between_batches(BoundaryWork::Read(RunningReads { epoch, latest_us, requests }));
        true
    }

    /// A boundary has run reads.
    pub(super) fn on_reads_done(&mut self, done: ReadsDone) {
        let now_us = self.env.world.now_us();
        let Some(reads) = &mut self.stage.reads else { return };
        for to in reads.end(done, now_us) {
            let (in_order, to_order) = (&mut self.clients.in_order, &mut self.order.to_order);
            self.env.tally.reads_ordered += reads.order_all_of(to, in_order, to_order);
        }
        self.release_reads();
    }

    /// The replies to reads of versions that are stable leave.
    pub(super) fn release_reads(&mut self) {
        let stable = if self.env.hooks.reads_wait_until_stable() { self.stage.stable() } else { u64::MAX };
        let Some(reads) = &mut self.stage.reads else { return };
        while let Some((batch, Submission { to, request, .. }, reply)) = reads.leave(stable) {
            let ReadReply { bytes, digest } = reply;
            self.env.world.see(Observation::ReadHere { batch, to, reply: &bytes });
            self.env.tally.local_reads += 1;
            self.clients.answer_read(to, Reply { asked: request.checksum, bytes, voted: Some(digest) });
        }
    }
}
