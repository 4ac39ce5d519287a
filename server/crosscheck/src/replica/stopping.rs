//! A clean stop: the replica gives up the leadership first, so that the others need no election; then it reads no more
//! requests, answers those that it has read, and ends when its clients have their replies. A request that was executed
//! and not answered would leave its client without knowing whether to send it again.

use order::OrderEngine;

use super::Replica;
use crate::service::Service;
use crate::world::World;
use crate::{Stop, limits};

impl<S: Service, W: World> Replica<S, W> {
    /// Begins to stop. Asked for a second time, it stops at once.
    pub(super) fn begin_stop(&mut self) {
        if self.stops_at_us.is_some() || !self.core.clients.are_served() {
            return self.core.env.stop_with(Ok(Stop::Asked));
        }
        self.stops_at_us = Some(self.core.env.world.now_us() + limits::DRAIN.as_micros() as u64);
        self.give_up_leadership();
        self.core.order.queue(self.core.clients.drain());
    }

    /// The leadership goes to a connected replica. If that fails, the others elect one when this process has ended.
    fn give_up_leadership(&mut self) {
        let status = self.core.order.orderer.engine_status();
        let me = self.core.env.settings.me;
        let is_voter = |peer: &u8| *peer != me && !status.members.is_learner(*peer);
        if status.is_leader
            && let Some(next) = self.core.env.peers.connected().find(is_voter)
        {
            self.core.order.orderer.engine_mut().transfer_leader(next);
        }
    }

    /// Stops once no client waits for a reply, or has waited for too long.
    pub(super) fn stop_when_drained(&mut self) {
        let Some(stops_at_us) = self.stops_at_us else { return };
        let open = self.core.clients.counters.open();
        let is_over = self.core.env.world.now_us() >= stops_at_us;
        if open > 0 && is_over {
            self.core.env.world.say(format_args!(
                "{open} client connections are closed before all their requests were answered: that takes longer \
                    than {} s. Their clients cannot know whether these requests were executed",
                limits::DRAIN.as_secs()
            ));
        }
        if open == 0 || is_over {
            self.core.env.stop_with(Ok(Stop::Asked));
        }
    }
}
