//! Scrubs: a check of every region in turn, so that errors in objects that no request enters do not accumulate. The
//! leader orders them; in verified mode each replica makes its own, between two batches.

use std::time::Duration;

use super::order_stage::OrderStage;
use crate::limits;
use crate::ordered::Control;

/// The region that is checked next, and when.
#[derive(Debug, Default)]
pub(super) struct Scrubs {
    next_us: u64,
    /// The region that is checked next.
    next: u32,
    /// When the last scrub was requested, until it is done here.
    requested_us: Option<u64>,
    /// How long the last scrub took here.
    took: Duration,
}

impl Scrubs {
    /// If this replica leads and a scrub is due, orders a SCRUB of the next of so many regions.
    pub(super) fn order_next(&mut self, regions: u32, order: &mut OrderStage, now_us: u64) {
        if order.orderer.engine_status().is_leader
            && let Some(region_id) = self.next_due(regions, now_us)
        {
            order.submit_control(&Control::Scrub { region_id });
        }
    }

    /// The next of so many regions, if its scrub is due. Large regions are checked less often.
    pub(super) fn next_due(&mut self, regions: u32, now_us: u64) -> Option<u32> {
        let patience_us = limits::SCRUB_PATIENCE.as_micros() as u64;
        if now_us < self.next_us
            || self.requested_us.is_some_and(|requested_us| now_us < requested_us + patience_us)
        {
            return None;
        }
        self.requested_us = Some(now_us);
        let region_id = self.next % regions;
        self.next = region_id + 1;
        let pause = limits::SCRUB_EVERY.max(self.took * limits::SCRUB_PAUSE_FACTOR);
        self.next_us = now_us + pause.as_micros() as u64;
        Some(region_id)
    }

    /// A SCRUB is done here. If the process was stopped meanwhile, it did not scrub for all of that time.
    pub(super) fn on_done(&mut self, time: Duration) {
        self.requested_us = None;
        self.took = time.min(limits::SCRUB_PATIENCE);
    }
}
