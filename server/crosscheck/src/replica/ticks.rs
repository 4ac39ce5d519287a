//! Ordered time while nothing is ordered: a timer fires when a batch has its time, so an idle node makes one.

use super::order_stage::OrderStage;
use crate::limits;
use crate::ordered::Control;

/// The last batch that was requested because a timer was due.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    /// The deadline of the timer, and when.
    asked: Option<(u64, u64)>,
}

impl Ticks {
    /// If this replica leads and a timer is due at `stamp_us`, orders a request that only passes time.
    pub(super) fn order_due(
        &mut self,
        deadline_us: u64,
        (stamp_us, now_us): (u64, u64),
        order: &mut OrderStage,
    ) {
        let patience_us = limits::TIMER_PATIENCE.as_micros() as u64;
        let is_asked =
            self.asked.is_some_and(|(of, at_us)| of == deadline_us && now_us < at_us + patience_us);
        if stamp_us >= deadline_us && !is_asked && order.orderer.engine_status().is_leader {
            self.asked = Some((deadline_us, now_us));
            order.submit_control(&Control::PASS_TIME);
        }
    }
}
