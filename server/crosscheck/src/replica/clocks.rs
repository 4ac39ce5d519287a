//! Ordered time needs the agreement of f+1 clocks. This module handles a clock, or a leader's stamps, that contradict
//! them.

use wire::ReplicaId;

use super::environment::Environment;
use super::order_stage::OrderStage;
use crate::clock::{ClockFault, GroupClock, apart};
use crate::hooks::{Hooks, Rule};
use crate::world::World;
use crate::{evidence, limits};

/// The group's time as this replica knows it.
#[derive(Debug)]
pub(super) struct Timekeeper {
    pub(super) clock: GroupClock,
    /// The time since when delivered batches have stamps far behind f+1 clocks.
    behind_since_us: Option<u64>,
    /// When frames of the peers were last read.
    listened_us: u64,
    /// When this replica was last stopped for a while, or its own clock was wrong.
    doubted_us: Option<u64>,
}

impl Timekeeper {
    /// That of a replica that has received nothing from its peers.
    pub(super) fn new(clock: GroupClock) -> Self {
        Timekeeper { clock, behind_since_us: None, listened_us: 0, doubted_us: None }
    }

    /// Frames of the peers are read now. Frames that waited because this replica was slow have old stamps, which prove
    /// nothing against the leader.
    pub(super) fn check_own_lateness(&mut self, now_us: u64) {
        if now_us - self.listened_us > limits::CLOCK_TOLERANCE.as_micros() as u64 {
            self.behind_since_us = None;
            self.doubted_us = Some(now_us);
        }
        self.listened_us = now_us;
    }

    /// Whether this replica may say that the stamps of a leader are wrong: it was not stopped itself and its clock was
    /// right for a while, and f+1 clocks agree.
    pub(super) fn may_accuse(&self, leader: u8, now_us: u64, hooks: &impl Hooks) -> bool {
        if !hooks.keeps(Rule::AccusesWhenSure) {
            return true;
        }
        let doubt_us = limits::CLOCK_DOUBT.as_micros() as u64;
        self.doubted_us.is_none_or(|doubted_us| now_us >= doubted_us + doubt_us)
            && self.clock.can_judge(leader, now_us)
    }

    /// The time at which the peers' frames were last read.
    pub(super) fn listened_us(&self) -> u64 {
        self.listened_us
    }

    /// The latest stamp that can be right now. Now is after the frames to be judged were read: this process may have
    /// been stopped before it read them, and their stamps would be ahead of any time that was taken earlier.
    pub(super) fn latest_stamp_us<W: World>(&self, env: &Environment<W>) -> u64 {
        if env.hooks.keeps(Rule::ComparesClocks) {
            self.clock.latest_us(env.world.now_us())
        } else {
            u64::MAX
        }
    }

    /// The stamp that this replica gives, if it leads.
    pub(super) fn stamp_us<W: World>(&self, env: &Environment<W>) -> u64 {
        let now_us = env.world.now_us();
        if !env.hooks.keeps(Rule::ComparesClocks) {
            return self.clock.now_us(now_us);
        }
        self.clock.stamp_us(now_us)
    }

    /// A wrong clock is a single fault: this replica's own clock is set to the time that f+1 others agree on. A wrong
    /// clock is reported, with its replica.
    pub(super) fn correct_clocks<W: World>(&mut self, faults: usize, env: &mut Environment<W>) {
        for fault in self.clock.discipline(env.world.now_us()) {
            if let ClockFault::Own(_) = fault {
                self.doubted_us = Some(env.world.now_us());
            }
            match fault {
                ClockFault::Own(ahead_us) => env.world.say(format_args!(
                    "the clock of this replica was {} those of {} others, and follows theirs now. Is this \
                        machine's clock synchronised?",
                    apart(ahead_us),
                    faults + 1
                )),
                ClockFault::Other(replica, ahead_us) => env.world.say(format_args!(
                    "the clock of replica {} is {} those of the others. The group clock does not follow it; \
                        check that machine's clock",
                    ReplicaId(replica),
                    apart(ahead_us)
                )),
            }
            let (replica, ahead_us) = match fault {
                ClockFault::Own(ahead_us) => (env.settings.me, ahead_us),
                ClockFault::Other(replica, ahead_us) => (replica, ahead_us),
            };
            env.keep_evidence(evidence::clock(
                replica,
                &format!("its clock is {} f+1 others", apart(ahead_us)),
            ));
        }
        let stepped_us = self.clock.wall_stepped(env.world.now_us(), env.world.wall_us());
        if let Some(stepped_us) = stepped_us {
            env.world.say(format_args!(
                "the wall clock of this machine jumped: it is {} where it was. The group clock uses the \
                    monotonic clock and does not follow it",
                apart(stepped_us)
            ));
        }
    }

    /// Deposes a leader that orders batches whose stamps stand still: nothing would expire. `time_us` is the stamp of
    /// the batch that was just delivered, the last one so far. Returns whether to ask for another primary, in verified
    /// mode.
    pub(super) fn check_ordered_time<W: World>(
        &mut self,
        time_us: u64,
        order: &mut OrderStage,
        env: &mut Environment<W>,
    ) -> bool {
        // The batch was stamped before the peers' frames were last read, however long a handler or a disk has taken
        // since.
        let now_us = self.listened_us;
        let reached_us = self.clock.reached_us(now_us);
        let tolerance_us = limits::CLOCK_TOLERANCE.as_micros() as u64;
        let engine_status = order.orderer.engine_status();
        if engine_status.is_leader || time_us + 2 * tolerance_us >= reached_us {
            self.behind_since_us = None;
            return false;
        }
        let since_us = *self.behind_since_us.get_or_insert(now_us);
        if let Some(leader) = engine_status.leader
            && now_us - since_us > 2 * tolerance_us
        {
            self.behind_since_us = None;
            // Stamps are old, too, where the leader, the network or a disk is slow: only its clock tells that it is
            // wrong.
            let accuses = self.may_accuse(leader, now_us, &env.hooks) && self.clock.is_behind(leader, now_us);
            env.report_refused_stamps(leader, -((reached_us - time_us).min(1 << 62) as i64), accuses);
            order.orderer.call_election();
            return true;
        }
        false
    }
}
