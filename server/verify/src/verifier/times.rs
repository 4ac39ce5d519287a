//! Since when a verifier waits, and how long its patience lasts.

use crate::config::Layout;
use crate::limits::{
    RESEND_US, SLOW_PATIENCE_OF_TWO_US, SLOW_PATIENCE_US, SLOWNESS_KEPT_US, VIEW_PATIENCE_FACTOR,
    VIEW_PATIENCE_MAX_US, VIEW_PATIENCE_US, WAITED_PER_TICK_US,
};

/// Since when a verifier waits, in microseconds of the host's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Times {
    /// Views in a row in which nothing was recorded.
    in_vain: u32,
    /// How long the slowest of the last batches took, and when that was.
    slowest: Option<(u64, u64)>,
    /// Since when it waits for a batch or a view.
    pub(super) waiting: Option<u64>,
    /// When time passed last.
    ticked: Option<u64>,
    /// Since when the primary's connection is gone.
    pub(super) primary_gone: Option<u64>,
    /// Since when a sufficient number of tokens waits for the others.
    pub(super) extra: Option<u64>,
    /// When it last asked or repeated.
    pub(super) asked: Option<u64>,
}

impl Times {
    pub(super) fn begin_waiting(&mut self, now_us: u64) {
        self.waiting.get_or_insert(now_us);
    }

    /// A version was recorded; `waits_on` if a later batch is known.
    pub(super) fn recorded(&mut self, waits_on: bool, now_us: u64) {
        if let Some(since_us) = self.waiting {
            let took_us = now_us.saturating_sub(since_us);
            let slowest =
                self.slowest.filter(|(_, at_us)| !has_passed(Some(*at_us), SLOWNESS_KEPT_US, now_us));
            self.slowest =
                slowest.filter(|(slowest_us, _)| *slowest_us > took_us).or(Some((took_us, now_us)));
        }
        self.in_vain = 0;
        (self.waiting, self.extra) = (waits_on.then_some(now_us), None);
    }

    /// How long it waits for a batch or a view: longer where batches take long, so that a slow one is not rolled back
    /// and repeated for ever.
    pub(super) fn patience_us(&self, layout: Layout, now_us: u64) -> u64 {
        let most_us = match layout {
            Layout::Crash { .. } => SLOW_PATIENCE_US,
            Layout::Pair | Layout::PairWithWitness => SLOW_PATIENCE_OF_TWO_US,
        };
        let slowest = self.slowest.filter(|(_, at_us)| !has_passed(Some(*at_us), SLOWNESS_KEPT_US, now_us));
        let slow_us =
            slowest.map_or(0, |(took_us, _)| took_us.saturating_mul(VIEW_PATIENCE_FACTOR).min(most_us));
        self.doubled(VIEW_PATIENCE_US.max(slow_us))
    }

    /// The same, however long batches take.
    pub(super) fn fixed_patience_us(&self) -> u64 {
        self.doubled(VIEW_PATIENCE_US)
    }

    fn doubled(&self, patience_us: u64) -> u64 {
        patience_us.saturating_mul(1 << self.in_vain.min(8)).min(VIEW_PATIENCE_MAX_US)
    }

    /// Time passes. What passed while this process did not run is not waited.
    pub(super) fn tick(&mut self, now_us: u64) {
        let passed_us = now_us.saturating_sub(self.ticked.replace(now_us).unwrap_or(now_us));
        let lost_us = passed_us.saturating_sub(WAITED_PER_TICK_US);
        self.waiting = self.waiting.map(|since_us| since_us.saturating_add(lost_us).min(now_us));
    }

    pub(super) fn promised(&mut self, now_us: u64) {
        self.in_vain = self.in_vain.saturating_add(1);
        (self.waiting, self.extra, self.asked) = (Some(now_us), None, Some(now_us));
    }

    pub(super) fn installed(&mut self, waits_on: bool, primary_is_down: bool, now_us: u64) {
        (self.waiting, self.extra) = (waits_on.then_some(now_us), None);
        self.primary_gone = primary_is_down.then_some(now_us);
    }

    /// Whether half of the patience is gone.
    pub(super) fn is_impatient(&self, layout: Layout, now_us: u64) -> bool {
        let half_us = self.patience_us(layout, now_us) / 2;
        self.waiting.is_some_and(|since| now_us.saturating_sub(since) >= half_us)
    }

    /// Whether a question may be asked now; it is not asked more often than messages are repeated.
    pub(super) fn may_ask(&mut self, now_us: u64) -> bool {
        let may = has_passed(self.asked, RESEND_US, now_us) || self.asked.is_none();
        if may {
            self.asked = Some(now_us);
        }
        may
    }
}

pub(super) fn has_passed(since: Option<u64>, interval_us: u64, now_us: u64) -> bool {
    since.is_some_and(|since| now_us.saturating_sub(since) >= interval_us)
}
