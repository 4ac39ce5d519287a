//! Reads of own clients that take no batch (`reads = "local"`).
//!
//! A read passes four steps. It *arrives*. The verifiers are *asked* how far they are, once for all reads that have
//! arrived. Their answers *bind* it: it may run at the version after batch n, or a later one. It *runs*, between two
//! batches of this replica, and its reply leaves when that version is stable here.
//! `server/verify/src/executor/reads.rs` has the reason why that is linearizable; it asks these things of this host:
//!
//! - *The question comes after the read.* Only reads that have arrived when a question is asked are bound by its
//!   answers. A read may be asked for again, since the batch that bounds it may belong to a view that has ended: each
//!   bound is valid for as long as the read waits, so the lower one counts.
//! - *It runs on a whole version.* The boundary tells after which batch it ran; one that ran too early runs again.
//! - *A version that is rolled back takes its reads with it.* [`LocalReads::roll_back`] is called wherever batches are
//!   to be rolled back, before anything else can become stable under their numbers. Reads that have run on one of them,
//!   or are running, run again.
//!
//! *Wrong state.* No other replica computes the reply. A read that meets an object which does not fit its checksum has
//! none (`worker/reads.rs`), is ordered like any other request, and what it finds there is repaired.

use execute::Speculation;
use verify::ExecutorEvent;

use super::Speculator;
use crate::boundary::BoundaryWork;
use crate::hooks::{Hooks, Rule};
use crate::reads::{ReadsDone, RunningReads};
use crate::service::Service;
use crate::world::World;

/// What reads without a batch act on.
pub(super) struct ReadStage<'s, 'r, S: Service, W: World>(&'s mut Speculator<'r, S, W>);

impl<'r, S: Service, W: World> Speculator<'r, S, W> {
    /// The reads that take no batch.
    pub(super) fn reads(&mut self) -> ReadStage<'_, 'r, S, W> {
        ReadStage(self)
    }
}

impl<S: Service, W: World> ReadStage<'_, '_, S, W> {
    /// Asks for reads, and runs those that may. Returns whether there is work for the workers or the orderer.
    pub(super) fn advance(&mut self) -> bool {
        let now_us = self.0.core.env.world.now_us();
        let Some(reads) = &mut self.0.stage.reads else { return false };
        if reads.asks(now_us) {
            self.0.on_executor_event(ExecutorEvent::Read);
        }
        let runs = self.run();
        runs || !self.0.core.order.to_order.is_empty()
    }

    /// The verifiers have answered.
    pub(super) fn bind(&mut self, number: u64) {
        let now_us = self.0.core.env.world.now_us();
        self.0.stage.reads.iter_mut().for_each(|reads| reads.bind(number, now_us, |_| ()));
    }

    fn run(&mut self) -> bool {
        let latest_us = self.0.core.time.stamp_us(&self.0.core.env);
        let stage = &mut *self.0.stage;
        // While the state is repaired, or goes back, none of it is read.
        let is_whole = stage.is_whole();
        let version = stage.speculation.as_ref().filter(|_| is_whole).map(Speculation::version);
        let (Some(version), Some(execution)) = (version, &mut self.0.core.executor.running) else {
            return false;
        };
        let Some(reads) = &mut stage.reads else { return false };
        let Some(requests) = reads.begin(version.number) else { return false };
        let (epoch, own) = (reads.epoch, requests.len());
        execution.between_batches(BoundaryWork::Read(RunningReads { epoch, latest_us, requests, own }));
        true
    }

    /// A boundary has run reads.
    pub(super) fn on_done(&mut self, done: ReadsDone) {
        let now_us = self.0.core.env.world.now_us();
        let Some(reads) = &mut self.0.stage.reads else { return };
        for to in reads.end(done, now_us) {
            let (in_order, to_order) = (&mut self.0.core.clients.in_order, &mut self.0.core.order.to_order);
            self.0.core.env.tally.reads.ordered += reads.order_all_of(to, in_order, to_order);
        }
        self.release();
    }

    /// The replies to reads of versions that are stable leave.
    pub(super) fn release(&mut self) {
        let waits = self.0.core.env.hooks.keeps(Rule::ReadsWaitUntilStable);
        let stable = if waits { self.0.stage.stable() } else { u64::MAX };
        let Some(reads) = &mut self.0.stage.reads else { return };
        while let Some((batch, read, reply)) = reads.leave(stable) {
            self.0.core.answer_read(batch, read, reply);
        }
    }
}
