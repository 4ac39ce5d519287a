//! What this replica acts as (`behavior.rs`): it follows the order, and says there which is the newest behavior that
//! all replicas have.

use order::Delivered;
use schedule::BatchRow;

use super::core::Core;
use super::environment::Environment;
use super::execution::Execution;
use super::order_stage::OrderStage;
use crate::behavior::{self, Behaviors};
use crate::hooks::{Hooks, Rule};
use crate::job::{Job, Work};
use crate::ordered::Control;
use crate::service::Service;
use crate::world::World;
use crate::{Corrupted, ServeError, limits};

/// The last behavior that this replica has asked for.
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
    /// If this replica and all others can act as a newer behavior than the group does, orders a request that says so.
    /// One that cannot act as the group does waits for no other one: it has met none in its handshakes that cannot act
    /// as its oldest behavior.
    pub(super) fn order_newest_behavior(&mut self) {
        let Behaviors { oldest, newest: own } = self.env.settings.behaviors;
        let now_us = self.env.world.now_us();
        if self.executor.running.is_none() || !self.order.orderer.can_accept() {
            return;
        }
        let newest = match self.env.hooks.keeps(Rule::AllActAlike) {
            true => self.group.newest_of_others(now_us).map(|others| others.min(own)),
            false => Some(own),
        };
        let acts_as = behavior::of_order(self.order.orderer.state().acting);
        let newest = newest.or((acts_as < oldest).then_some(oldest));
        if let Some(newest) = newest.filter(|newest| *newest > acts_as)
            && self.asked_behavior.is_due(newest, now_us)
        {
            self.order.submit_control(&Control::ActAs { behavior: newest });
        }
    }

    /// The state changed to one that the order has: this replica acts as the order says there.
    pub(super) fn act_as_ordered(&mut self) {
        let behavior = behavior::of_order(self.order.orderer.state().acting);
        if let Some(execution) = &mut self.executor.running {
            execution.act_as(behavior);
        }
        self.env.peers.act_as(behavior);
    }

    /// Whether this replica acts as the order says, as far as it has executed it.
    pub(super) fn acts_as_ordered(&self) -> bool {
        let behavior = behavior::of_order(self.order.orderer.state().acting);
        self.executor.running.as_ref().is_none_or(|execution| execution.may_act_as(behavior))
    }
}

/// A row of the next batch that says what the group is to act as; what was delivered, and its number there.
pub(super) type WantingRow<'d> = (usize, &'d Delivered, usize);

/// The next batch has these `rows`, and some of them say what the group is to act as, which takes `needed` replicas, or
/// set a setting. Whether this build can run them; if not, this replica ends.
pub(super) fn delivered<S: Service, W: World>(
    rows: &mut [BatchRow<Job<S::Request>>],
    (wanting, needed): (&[WantingRow<'_>], usize),
    execution: &mut Execution<S>,
    (order, env): (&mut OrderStage, &mut Environment<W>),
) -> bool {
    let mut acts_as = behavior::of_order(order.orderer.state().acting);
    // One that has dropped a behavior may have a log from the time before.
    let can_run = env.settings.behaviors.include(acts_as)
        || rows.iter().all(|row| row.request.request().is_none())
        || env.can_act_as(acts_as);
    for (row, delivered, at) in wanting.iter().filter(|_| can_run) {
        let Some(Work::Control(control)) = rows.get_mut(*row).map(|row| &mut row.request.work) else {
            continue;
        };
        // A replica that acts as another one is wrong in every request, so what was decoded is not believed alone.
        let again = delivered.batch.requests().nth(*at).filter(order::Request::is_intact);
        if again.and_then(|request| Control::decode(&request.bytes)).as_ref() != Some(control) {
            env.replace(Corrupted::Behavior);
            return false;
        }
        if let Control::Set { number, value, founds } = *control {
            set(order, (number, value, founds), execution.next_batch - 1);
        }
        let Control::ActAs { behavior } = control else { continue };
        let before = acts_as;
        order.orderer.act_as(delivered.batch.origin, *behavior, needed);
        acts_as = behavior::of_order(order.orderer.state().acting);
        *behavior = acts_as;
        if acts_as != before {
            execution.changes_behavior();
            if !env.can_act_as(acts_as) {
                return false;
            }
            env.peers.act_as(acts_as);
            env.world.say(format_args!("the group acts as behavior {acts_as} of its service from here on"));
        }
    }
    can_run
}

/// A setting of the pipeline itself is set by batch `batch`.
fn set(order: &mut OrderStage, (number, value, founds): (u8, u8, bool), batch: u64) {
    let is_there = order.orderer.state().settings.contains_key(&number);
    let setting = order::HostSetting { value, set_at: if founds { 0 } else { batch } };
    if !(founds && is_there) {
        order.orderer.set(number, setting);
    }
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
