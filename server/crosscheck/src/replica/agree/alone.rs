//! Without the word of other replicas: a reply leaves when its request has run, in mode `00GT` if both of its runs left
//! the same (SEI, NSDI'15).

use bytes::Bytes;
use order::FrameKind;

use super::barrier::CheckingBarrier;
use super::{Agreement, PeerNews, Progress, on_state_report};
use crate::replica::core::Core;
use crate::service::Service;
use crate::worker::Report;
use crate::world::World;

/// A replica that answers by itself.
#[derive(Default)]
pub(super) struct Alone {
    /// With several workers, in mode `00GT`: replies that wait for other requests' checks.
    barrier: CheckingBarrier,
}

impl<S: Service, W: World> Agreement<S, W> for Alone {
    fn on_report(&mut self, report: Report, core: &mut Core<S, W>) {
        match on_state_report(report, core) {
            Some(Report::Executed(executed)) => {
                let executed = core.on_executed(executed);
                if core.env.settings.mode.twice && !core.env.settings.is_solo() {
                    self.barrier.hold(core.executor.progress(), executed);
                    self.pass_barrier(core);
                } else {
                    core.externalize(executed);
                }
            }
            Some(Report::TurnEnded) => self.pass_barrier(core),
            _ => {}
        }
    }

    fn on_message(&mut self, _: u8, _: FrameKind, _: &Bytes, _: &mut Core<S, W>) {}

    fn on_peer(&mut self, _: PeerNews, _: &mut Core<S, W>) {}

    fn tick(&mut self, core: &mut Core<S, W>) {
        core.order_due_timer();
        self.pass_barrier(core);
    }

    fn progress(&self, core: &Core<S, W>) -> Progress {
        Progress::of_log(core.env.tally.executed, core)
    }
}

impl Alone {
    /// Lets the replies leave that waited for requests which have ended meanwhile.
    fn pass_barrier<S: Service, W: World>(&mut self, core: &mut Core<S, W>) {
        if !self.barrier.is_holding() {
            return;
        }
        // First this, so that each request that is found running reports its end.
        core.executor.report_ends(true);
        let progress = core.executor.progress();
        while let Some(executed) = self.barrier.pass(&progress) {
            core.externalize(executed);
        }
        core.executor.report_ends(self.barrier.is_holding());
    }
}
