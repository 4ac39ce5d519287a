//! What a replica does as time passes: heartbeats, the watchdog of the turns, and checks of itself.

use std::sync::atomic::Ordering;

use super::Replica;
use super::agree::Watched;
use super::core::started_replies;
use super::departures;
use super::execution::StallCheck;
use super::group::{LogEnd, OwnProgress};
use crate::Stop;
use crate::admin::ReplicaPhase;
use crate::hooks::{Hooks, Rule};
use crate::self_check::{CHECKS, Check};
use crate::service::Service;
use crate::settings::Mode;
use crate::world::World;

impl<S: Service, W: World> Replica<S, W> {
    /// The clock has ticked. Not inlined: `bench cost` counts the calls, and so what a replica does by itself.
    #[inline(never)]
    pub(super) fn on_tick(&mut self) {
        if !self.core.env.settings.is_witness() {
            self.core.order.orderer.tick();
        }
        let counters = &self.core.clients.counters;
        counters.committed.store(self.core.order.orderer.engine_status().commit_index, Ordering::Relaxed);
        counters.validated.store(self.agreement.progress(&self.core).validated, Ordering::Relaxed);
        self.core.order.queue(self.core.clients.tick());
        self.core.env.peers.tick();
        self.core.transfer.poll(&mut self.core.env);
        // The disk may have room again.
        self.take_pieces();
        if self.core.executor.running.is_some() && !self.agreement.proves_states() {
            let last_index = self.core.order.orderer.engine_status().last_index;
            self.core.transfer.prepare_if_behind(last_index, &mut self.core.env);
        }
        self.copy_rate.note(self.core.env.world.now_us(), || self.core.transfer.received());
        self.core.transfer.give_up_disagreed(&mut self.core.order, &self.core.env);
        self.send_heartbeats();
        let waits_for = self.waits_for();
        self.waits.report(waits_for, &self.core.env);
        self.core.tend_copies();
        let (is_executing, has_kept) = (self.core.executor.running.is_some(), self.core.copies.has_kept());
        self.core.transfer.compact(&mut self.core.order, &mut self.core.env, (is_executing, has_kept));
        self.agreement.pack_unordered(&mut self.core);
        self.watch();
        self.check_oneself();
        self.agreement.tick(&mut self.core);
        self.core.order_newest_behavior();
        self.core.order_founding();
        self.core.compare_configuration();
        self.core.tend_moves();
        self.core.tend_size();
        departures::tend(&mut self.core);
        let (started_replies, around) = started_replies(&mut self.core);
        started_replies.tick(around);
        self.leave_if_let_go();
        self.core.env.peers.seeks = self.core.executor.running.is_none();
        self.drain_if_broken();
        self.stop_when_drained();
        // A witness has no clients: it serves as soon as its verifier takes part.
        if self.core.env.settings.is_witness() && self.agreement.progress(&self.core).verifying.verifies {
            self.phase = ReplicaPhase::Serving;
        }
    }

    /// Checks the state that is not an object and that no vote can have repaired: the computation of checksums, this
    /// replica's knowledge of itself, the service's settings, the program. Once any of them is wrong, the replica is
    /// wrong repeatedly, however often it is repaired.
    fn check_oneself(&mut self) {
        // Every check is made at every tick: some continue where their last run stopped.
        for (check, corrupted) in CHECKS {
            if !self.holds(check) {
                self.core.env.replace(corrupted);
            }
        }
    }

    /// Whether the state that this check covers is correct.
    fn holds(&mut self, check: Check) -> bool {
        let Mode { guarded, .. } = self.core.env.settings.mode;
        // A tool may change all replicas' programs at about the same time (a probe that is set on all hosts). The votes
        // mask this replica's errors until all others are connected and can fill it.
        let can_wait = || !guarded || !self.core.group.receives_all(self.core.env.world.now_us());
        let execution = self.core.executor.running.as_ref();
        match check {
            Check::Checksums => !guarded || object::checksums_are_right(),
            Check::Digests => !self.core.env.settings.mode.compares() || vote::digest::is_valid(),
            Check::Peers => {
                self.core.env.peers.is_valid(self.core.env.settings.me, &self.core.env.settings.peers)
            }
            Check::ClientsDriven => self.core.clients.are_driven(),
            Check::Clients => self.core.clients.counters.own_faults.load(Ordering::Relaxed) == 0,
            Check::ServiceSettings => {
                can_wait() || execution.is_none_or(|execution| execution.service.is_valid())
            }
            Check::Program => can_wait() || self.core.env.world.program_is_valid(),
            Check::Schedule => !self.core.executor.is_corrupted(),
            Check::RequestQueue => self.core.order.requests_are_intact(),
            Check::Behavior => self.core.acts_as_ordered(),
            Check::PendingReplies => self.core.order.replies_are_intact(),
        }
    }

    /// Sends heartbeats from time to time, and informs the agreement about the others.
    pub(super) fn send_heartbeats(&mut self) {
        let own = self.own_progress();
        self.core.group.send_heartbeats(own, &mut self.core.time, &mut self.core.env);
        self.agreement.count_peers(&mut self.core);
    }

    /// What this replica reports of its progress.
    pub(super) fn own_progress(&self) -> OwnProgress {
        let engine_status = self.core.order.orderer.engine_status();
        // One that takes another state votes on nothing before that.
        let is_out = self.core.executor.running.is_some() && self.core.transfer.is_receiving();
        let first = if is_out || self.core.env.is_observer() { 0 } else { self.core.executor.first_batch() };
        let progress = self.agreement.progress(&self.core);
        OwnProgress {
            batches: (first, progress.last_batch),
            log_end: LogEnd { term: engine_status.last_term, index: engine_status.last_index },
            tolerance: progress.tolerance,
            verifying: progress.verifying,
            ending: self.ending(),
        }
    }

    /// The watchdog of the turns (EDCC'16 section IV-C): it detects a handler that never ends. A worker that waits for
    /// a repair has a longer limit: the voter gives up on a repair that does not arrive, and if it does not, this
    /// function does.
    pub(super) fn watch(&mut self) {
        let now_us = self.core.env.world.now_us();
        let Watched::Runs(verified) = self.agreement.watch(&mut self.core) else { return };
        let limit_us = self.core.env.settings.watchdog.as_micros() as u64;
        let others =
            (self.core.env.settings.peers.len() > 1).then(|| self.core.group.others_progress(now_us));
        let others = others.filter(|_| self.core.env.hooks.keeps(Rule::AsksOthers));
        if let Some(why) = self.core.executor.stall(StallCheck { others, verified, now_us, limit_us }) {
            self.core.env.stop_with(Ok(Stop::Replace(why)));
        }
    }
}
