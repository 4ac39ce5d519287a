//! What this replica acts as (`behavior.rs`): it follows the order, and as the leader it asks for the newest behavior
//! that all replicas have.

use order::Delivered;
use schedule::BatchRow;

use super::core::Core;
use super::environment::Environment;
use super::execution::Execution;
use super::order_stage::OrderStage;
use crate::behavior;
use crate::hooks::{Hooks, Rule};
use crate::job::Job;
use crate::ordered::Control;
use crate::service::Service;
use crate::world::World;
use crate::{Corrupted, ServeError, limits};

/// The last change that this replica asked for as the leader.
#[derive(Debug, Default)]
pub(super) struct AskedBehavior {
    asked: Option<(u16, u64)>,
}

impl AskedBehavior {
    /// Whether to ask for this one now: an order of it may be on its way, or lost.
    fn is_due(&mut self, behavior: u16, now_us: u64) -> bool {
        let patience_us = limits::TIMER_PATIENCE.as_micros() as u64;
        let is_asked = self.asked.is_some_and(|(of, at_us)| of == behavior && now_us < at_us + patience_us);
        if !is_asked {
            self.asked = Some((behavior, now_us));
        }
        !is_asked
    }
}

impl<S: Service, W: World> Core<S, W> {
    /// If this replica leads, and every other one can act as a newer behavior than the group does, orders the change.
    pub(super) fn order_newest_behavior(&mut self) {
        let (now_us, own) = (self.env.world.now_us(), self.env.settings.behaviors.newest);
        if self.executor.running.is_none() || !self.order.orderer.engine_status().is_leader {
            return;
        }
        let newest = match self.env.hooks.keeps(Rule::AllActAlike) {
            true => self.group.newest_of_others(now_us).map(|others| others.min(own)),
            false => Some(own),
        };
        let acts_as = behavior::of_order(self.order.orderer.state().behavior);
        if let Some(newest) = newest.filter(|newest| *newest > acts_as)
            && self.asked_behavior.is_due(newest, now_us)
        {
            self.order.submit_control(&Control::ActAs { behavior: newest });
        }
    }

    /// The state changed to one that the order has: this replica acts as the order says there.
    pub(super) fn act_as_ordered(&mut self) {
        let behavior = behavior::of_order(self.order.orderer.state().behavior);
        if let Some(execution) = &mut self.executor.running {
            execution.act_as(behavior);
        }
        self.env.peers.act_as(behavior);
    }

    /// Whether this replica acts as the order says, as far as it has executed it.
    pub(super) fn acts_as_ordered(&self) -> bool {
        let behavior = behavior::of_order(self.order.orderer.state().behavior);
        self.executor.running.as_ref().is_none_or(|execution| execution.may_act_as(behavior))
    }
}

/// The next batch has these `rows`; request number `at` of what was `delivered` may say what the group acts as from
/// then on. Whether this build can run them; if not, this replica ends.
pub(super) fn delivered<S: Service, W: World>(
    rows: &[BatchRow<Job<S::Request>>],
    change: Option<(u16, &Delivered, usize)>,
    execution: &mut Execution<S>,
    (order, env): (&mut OrderStage, &mut Environment<W>),
) -> bool {
    let acts_as = behavior::of_order(order.orderer.state().behavior);
    // One that has dropped a behavior may have a log from the time before.
    let can_run = env.settings.behaviors.include(acts_as)
        || rows.iter().all(|row| row.request.request().is_none())
        || env.can_act_as(acts_as);
    let (Some((behavior, delivered, at)), true) = (change, can_run) else { return can_run };
    execution.changes_behavior();
    // A replica that acts as another one is wrong in every request, so what was decoded is not believed alone.
    let again = delivered.batch.requests().nth(at).filter(|request| request.is_intact());
    if again.and_then(|request| Control::decode(&request.bytes)) != Some(Control::ActAs { behavior }) {
        env.replace(Corrupted::Behavior);
        return false;
    }
    if !env.can_act_as(behavior) {
        return false;
    }
    order.orderer.act_as(behavior);
    env.peers.act_as(behavior);
    env.world.say(format_args!("the group acts as behavior {behavior} of its service from here on"));
    true
}

impl<W: World> Environment<W> {
    /// Whether this build can act as `behavior`; if not, this replica ends.
    pub(super) fn can_act_as(&mut self, behavior: u16) -> bool {
        let behaviors = self.settings.behaviors;
        if behaviors.include(behavior) {
            return true;
        }
        let remedy = if behavior < behaviors.oldest {
            "start an earlier release of it, which can, on all replicas, and then this one"
        } else {
            "start a release of it that can: that of the other replicas"
        };
        self.stop_with(Err(ServeError::Operator(format!(
            "the group acts as behavior {behavior} of its service, and this build of the program can act as \
                {behaviors}; {remedy}"
        ))));
        false
    }
}
