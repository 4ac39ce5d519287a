//! The stages of a replica, without how the replicas agree on what was executed (`agree/`), which acts on them.

use order::{Move, ReplicaProcess, SizeWish};

use super::acting::AskedBehavior;
use super::calls::Calls;
use super::clocks::Timekeeper;
use super::copies::Copies;
use super::environment::Environment;
use super::execute_stage::ExecuteStage;
use super::group::Group;
use super::order_stage::OrderStage;
use super::own_clients::OwnClients;
use super::own_wishes::OwnWishes;
use super::scrubs::Scrubs;
use super::settings::OwnSettings;
use super::started_replies::{Around, StartedReplies};
use super::state_transfer::StateTransfer;
use super::ticks::Ticks;
use crate::clients::{Reply, Submission};
use crate::hooks::{FaultPoint, Hooks};
use crate::reads::ReadReply;
use crate::running::{Executed, Runs};
use crate::service::Service;
use crate::state::CheckpointHead;
use crate::world::{Observation, World};

/// The stages of one replica, in the order in which a request meets them, and what they share.
pub(super) struct Core<S: Service, W: World> {
    pub(super) env: Environment<W>,
    pub(super) clients: OwnClients<W>,
    pub(super) order: OrderStage,
    pub(super) executor: ExecuteStage<S>,
    pub(super) group: Group,
    pub(super) time: Timekeeper,
    pub(super) transfer: StateTransfer,
    pub(super) copies: Copies,
    pub(super) scrubs: Scrubs,
    pub(super) ticks: Ticks,
    pub(super) asked_behavior: AskedBehavior,
    pub(super) moving: OwnWishes<Move>,
    pub(super) sizing: OwnWishes<SizeWish>,
    pub(super) departures: OwnWishes<ReplicaProcess>,
    pub(super) started_replies: StartedReplies,
    pub(super) calls: Calls,
    pub(super) own_settings: OwnSettings,
}

impl<S: Service, W: World> Core<S, W> {
    /// Records that a batch has all its results, and how it was run.
    pub(super) fn on_executed(&mut self, executed: &mut Executed) {
        let Executed { batch, origin, results, runs } = executed;
        let (batch, origin, env) = (*batch, *origin, &mut self.env);
        let mut unvoted = Vec::new();
        env.hooks.at(FaultPoint::Executed(batch, results, &mut unvoted));
        for (place, reply) in unvoted {
            self.clients.release(place, reply, None, env);
        }
        env.world.see(Observation::Executed { batch, results });
        self.executor.keep_runs(batch, Runs { origin, of_requests: std::mem::take(runs) }, &env.hooks);
        env.tally.requests += results.len() as u64;
        env.tally.executed = env.tally.executed.max(batch);
        env.tally.failed_checks += results.iter().filter(|result| result.failure.is_some()).count() as u64;
        if let Some(executed) = self.executor.on_executed(batch) {
            env.peers.progress.executed = executed;
        }
    }

    /// The reply to a read leaves that took no batch; it was read on the state after this one.
    pub(super) fn answer_read(&mut self, batch: u64, read: Submission, reply: ReadReply) {
        let (Submission { to, request, .. }, ReadReply { bytes, digest }) = (read, reply);
        self.env.world.see(Observation::ReadHere { batch, to, reply: &bytes });
        self.env.tally.reads.local += 1;
        let reply = Reply { request_checksum: request.checksum, bytes, voted: Some(digest) };
        self.clients.answer_read(to, reply);
    }

    /// If this replica leads and a timer is due, orders a request that only passes time.
    pub(super) fn order_due_timer(&mut self) {
        if let Some(execution) = &self.executor.running {
            let times_us = (self.time.stamp_us(&self.env), self.env.world.now_us());
            self.ticks.order_due(execution.first_deadline_us(), times_us, &mut self.order);
        }
    }

    /// Packs the state as it is, for a replica without which nothing can be ordered, as soon as nothing is in
    /// execution.
    pub(super) fn pack_unordered(&mut self) {
        let Some(execution) = &mut self.executor.running else { return };
        if self.transfer.wants_unordered && execution.is_idle() {
            let order = self.order.orderer.state().clone();
            self.transfer.wants_unordered = false;
            let head = CheckpointHead { index: order.index, batch: execution.executed_to(), order };
            execution.pack_now(head);
        }
    }
}

/// The replies of requests that the service has started itself, and what they need of other stages.
pub(super) fn started_replies<S: Service, W: World>(
    core: &mut Core<S, W>,
) -> (&mut StartedReplies, Around<'_, W>) {
    let Core { started_replies, clients, order, env, group, .. } = core;
    (started_replies, Around { clients, order, env, needed: group.faults() + 1 })
}
