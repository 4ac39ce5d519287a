//! What an operator sees of a replica: its phase, its counts, what it waits for, and how many more replicas may fail.

use super::Replica;
use super::agree::Progress;
use super::tolerance::Tolerates;
use super::waits;
use crate::admin::{ReplicaPhase, Status};
use crate::hooks::Hooks;
use crate::service::Service;
use crate::world::World;

impl<S: Service, W: World> Replica<S, W> {
    /// The phase as operators see it. One that lacks acknowledged batches, or cannot vote, replaces no other one: an
    /// operator who wants to stop the next replica has to wait.
    fn shown_phase(&self, engine_status: &order::EngineStatus, tolerates: &Tolerates) -> ReplicaPhase {
        let is_voted = self.core.env.settings.mode.replicated && self.core.env.settings.peers.len() > 1;
        match self.phase {
            _ if self.stopping.is_some() => ReplicaPhase::Stopping,
            ReplicaPhase::Serving if engine_status.members.is_learner(self.core.env.settings.me) => {
                ReplicaPhase::Joining
            }
            ReplicaPhase::Serving if is_voted && engine_status.stuck => ReplicaPhase::Waiting,
            ReplicaPhase::Serving if is_voted => match tolerates.is_level {
                None => ReplicaPhase::Waiting,
                Some(false) => ReplicaPhase::CatchingUp,
                Some(true) => ReplicaPhase::Serving,
            },
            phase => phase,
        }
    }

    pub(super) fn status(&self) -> Status {
        let engine_status = self.core.order.orderer.engine_status();
        let (env, counters) = (&self.core.env, &self.core.clients.counters);
        let execution = self.core.executor.running.as_ref();
        let progress = self.agreement.progress(&self.core);
        let tolerates = self.tolerates(&progress);
        let kept = execution.map_or(0, |execution| execution.kept.bytes() as u64);
        let mut status = Status {
            replica: env.settings.me + 1,
            pid: std::process::id(),
            phase: self.shown_phase(&engine_status, &tolerates),
            mode: env.settings.mode.to_string(),
            leader: progress.leader.map(|leader| leader + 1),
            incarnation: engine_status.incarnation.unwrap_or(0),
            logged: engine_status.last_index,
            committed: engine_status.commit_index,
            executed: env.tally.executed,
            validated: progress.validated,
            verification: None,
            reads: env.tally.reads,
            requests: env.tally.requests,
            connections: counters.open(),
            peers: env.peers.connected().map(|peer| peer + 1).collect(),
            mismatches: env.tally.mismatches,
            repairs: env.tally.repairs,
            failed_checks: env.tally.failed_checks + counters.failed_checks(),
            dropped_frames: env.tally.dropped_frames,
            refused: env.refusals.seen(),
            tolerates: tolerates.failures,
            tolerates_why: tolerates.why,
            waits_for: self.waits_for(),
            buffers: self.core.clients.buffers(env.settings.buffer_limit, kept, engine_status.log_bytes),
            held: 0,
            armed: env.hooks.armed() as u64,
            alone: self.core.executor.is_alone(),
            last_repair_us: 0,
            last_evidence: env.evidence.last().as_ref().map(crate::evidence::line),
            large: env.large(),
            sent: env.peers.sent,
            behavior: crate::behavior::of_order(self.core.order.orderer.state().acting),
            newest_behavior: env.settings.behaviors.newest,
            moved: self.core.moved_replicas(),
            replacing: self.core.replacing(),
            replicas: env.members.voting,
            adding: (env.settings.peers.len() as u8).saturating_sub(env.members.voting),
            resizing: self.core.resizing(),
            counts: execution.map(|execution| execution.service.counts()).unwrap_or_default(),
            giving: execution.and_then(|execution| self.core.copies.given(execution.locks())),
            receiving: self.core.transfer.receiving(self.copy_rate.bytes_per_second()),
        };
        self.agreement.status(&self.core, &mut status);
        status
    }

    /// What this replica waits for and cannot go on without, with the remedy.
    pub(super) fn waits_for(&self) -> Option<String> {
        let of_operator = self.agreement.waits_for_operator(&self.core);
        let core = &self.core;
        waits::waits_for(&core.order, (&core.group, of_operator), &core.transfer, &core.env)
    }

    /// How many further replicas may fail, as far as this replica knows.
    pub(super) fn tolerates(&self, progress: &Progress) -> Tolerates {
        let (env, leader) = (&self.core.env, progress.leader);
        let replicas = usize::from(env.members.voting);
        if !env.settings.mode.replicated || replicas < 2 {
            return Tolerates { failures: 0, why: None, is_level: Some(true) };
        }
        let most = (replicas as u8 - 1).div_ceil(2);
        match (&progress.tolerance, leader) {
            (Some(found), _) => Tolerates::of(found, env.settings.me, most),
            (None, None) => Tolerates::unknown("there is no leader"),
            (None, leader) => match self.core.group.reported_tolerance(leader, env.world.now_us()) {
                Some(reported) => Tolerates::of(reported, env.settings.me, most),
                None => Tolerates::unknown("the leader is not heard"),
            },
        }
    }
}
