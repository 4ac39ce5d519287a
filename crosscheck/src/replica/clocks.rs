//! Ordered time needs the agreement of f+1 clocks: what is done about a clock, or a leader's stamps, that
//! contradict them.

use order::OrderEngine;

use super::Replica;
use crate::clock::ClockFault;
use crate::service::Service;
use crate::world::World;
use crate::{evidence, limits};

impl<S: Service, E: OrderEngine, W: World> Replica<S, E, W> {
    /// One clock is one fault: this replica's own is set by what f+1 others agree on, and whose is wrong is told.
    pub(super) fn mind_the_clocks(&mut self) {
        let faults = self.clock.discipline(self.world.now_us());
        for fault in faults {
            match fault {
                ClockFault::Own(ahead_us) => self.world.say(format_args!(
                    "the clock of this replica was {} those of {} others, and follows theirs now. Is this \
                        machine's clock synchronised?",
                    apart(ahead_us),
                    self.group.faults() + 1
                )),
                ClockFault::Other(replica, ahead_us) => self.world.say(format_args!(
                    "the clock of replica {} is {} those of the others. The group clock does not follow it; \
                        check that machine's clock",
                    replica + 1,
                    apart(ahead_us)
                )),
            }
            let (replica, ahead_us) = match fault {
                ClockFault::Own(ahead_us) => (self.settings.me, ahead_us),
                ClockFault::Other(replica, ahead_us) => (replica, ahead_us),
            };
            self.keep_evidence(evidence::clock(
                replica,
                &format!("its clock is {} f+1 others", apart(ahead_us)),
            ));
        }
        let stepped_us = self.clock.wall_stepped(self.world.now_us(), self.world.wall_us());
        if let Some(stepped_us) = stepped_us {
            self.world.say(format_args!(
                "the wall clock of this machine jumped: it is {} where it was. The group clock uses the \
                    monotonic clock and does not follow it",
                apart(stepped_us)
            ));
        }
    }

    /// A leader that orders, and whose stamps stand still, lets nothing expire: it is deposed. `time_us` is
    /// that of a batch that was just delivered, the last one there is.
    pub(super) fn mind_ordered_time(&mut self, time_us: u64) {
        // It was stamped before the peers were last heard, however long a handler or a disk has taken since.
        let now_us = self.group.listened_us;
        let reached_us = self.clock.reached_us(now_us);
        let tolerance_us = limits::CLOCK_TOLERANCE.as_micros() as u64;
        let standing = self.orderer.standing();
        if standing.is_leader || time_us + 2 * tolerance_us >= reached_us {
            self.group.behind_since_us = None;
            return;
        }
        let since_us = *self.group.behind_since_us.get_or_insert(now_us);
        if let Some(leader) = standing.leader
            && now_us - since_us > 2 * tolerance_us
        {
            self.group.behind_since_us = None;
            self.distrust(leader, -((reached_us - time_us).min(1 << 62) as i64));
            self.orderer.call_election();
        }
    }

    /// The leader's stamps are that far ahead of f+1 clocks, or behind them.
    pub(super) fn distrust(&mut self, leader: u8, ahead_us: i64) {
        self.world.say(format_args!(
            "leader {} stamps batches {} f+1 clocks. This replica calls an election against it",
            leader + 1,
            apart(ahead_us)
        ));
        let what = format!("its stamps are {} f+1 clocks", apart(ahead_us));
        self.keep_evidence(evidence::clock(leader, &what));
    }
}

/// A difference between clocks in words.
fn apart(ahead_us: i64) -> String {
    let seconds = ahead_us.unsigned_abs() as f64 / 1e6;
    format!("{seconds:.3} s {}", if ahead_us < 0 { "behind" } else { "ahead of" })
}
