//! A clean stop: the replica gives up the leadership, so that the others need no election; it reads no more requests,
//! answers those that it has read, and ends when its clients have their replies. A request that was executed and not
//! answered would leave its client without knowing whether to send it again.
//!
//! If a whole group is stopped at once, each replica stays as long as the clients of another one wait: their replies
//! take a majority.

use order::OrderEngine;

use super::Replica;
use super::replica_sets::bits;
use super::tolerance::StopNews;
use crate::service::Service;
use crate::world::World;
use crate::{Stop, limits};

/// A stop that has begun.
#[derive(Debug)]
pub(super) struct Stopping {
    /// How the replica ends.
    outcome: Stop,
    began_us: u64,
}

impl<S: Service, W: World> Replica<S, W> {
    /// Begins to stop. Asked for a second time, it stops at once.
    pub(super) fn begin_stop(&mut self, outcome: Stop) {
        if self.stopping.is_some() || !self.core.clients.are_served() {
            return self.core.env.stop_with(Ok(outcome));
        }
        self.stopping = Some(Stopping { outcome, began_us: self.core.env.world.now_us() });
        self.core.order.queue(self.core.clients.drain());
        self.hand_over();
        self.core.group.hurry();
    }

    /// What this replica tells the others of its end.
    pub(super) fn ending(&self) -> StopNews {
        let stops = self.stopping.is_some();
        StopNews { stops, owes: stops && self.core.clients.counters.sum(|thread| &thread.unanswered) > 0 }
    }

    /// As a leader: hands the leadership to the connected replica that lacks the least. False if it has none to hand
    /// over, or no replica to hand it to: one that stops as well would only hand it on.
    fn hand_over(&mut self) -> bool {
        let (stop, _) = self.core.group.ending();
        let others = bits(self.core.env.peers.connected()) & !stop;
        let engine = self.core.order.orderer.engine_mut();
        let successor = engine.successor(others);
        successor.into_iter().for_each(|next| engine.transfer_leader(next));
        successor.is_some()
    }

    /// Stops once no client waits for a reply, here or at another replica that stops, and another one leads; or when
    /// this has taken too long.
    pub(super) fn stop_when_drained(&mut self) {
        let Some(Stopping { outcome, began_us }) = &self.stopping else { return };
        let (outcome, took_us) = (outcome.clone(), self.core.env.world.now_us().saturating_sub(*began_us));
        self.core.group.hurry();
        let hands_over = self.hand_over();
        let (_, owe) = self.core.group.ending();
        let connected = bits(self.core.env.peers.connected());
        let may_be_needed = connected != 0 && took_us < limits::STAY.as_micros() as u64;
        let counters = &self.core.clients.counters;
        let is_drained = counters.open() == 0 && !hands_over && !may_be_needed && owe & connected == 0;
        let is_over = took_us >= limits::DRAIN.as_micros() as u64;
        let unanswered = counters.sum(|thread| &thread.unanswered);
        if is_over && unanswered > 0 {
            self.core.env.world.say(format_args!(
                "{unanswered} client connections are closed before all their requests were answered: that takes longer \
                    than {} s. Their clients cannot know whether these requests were executed",
                limits::DRAIN.as_secs()
            ));
        }
        if is_drained || is_over {
            self.core.env.stop_with(Ok(outcome));
        }
    }
}
