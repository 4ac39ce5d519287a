//! Who gets what other threads pass to the order thread.

use super::Replica;
use super::input::Input;
use crate::service::{Service, kind_in_words};
use crate::worker::Report;
use crate::world::{Observation, World};
use crate::{Corrupted, ReplaceReason, Stop, evidence};

impl<S: Service, W: World> Replica<S, W> {
    /// Takes all input that arrived since the last round.
    pub(super) fn take_inputs(&mut self) {
        let mut inputs = std::mem::take(&mut self.inputs);
        self.core.env.mailbox.take(&mut inputs);
        inputs.drain(..).for_each(|input| self.on_input(input));
        self.inputs = inputs;
    }

    fn on_input(&mut self, input: Input) {
        match input {
            Input::Submissions(submissions) => self.core.order.queue(submissions),
            Input::Report(report) => self.on_report(report),
            Input::Call(call) => self.on_call(call),
            Input::Kept { write, end } => self.on_kept(write, end),
            Input::Stop => self.begin_stop(Stop::Asked),
        }
    }

    /// Handles a worker's report.
    pub(super) fn on_report(&mut self, report: Report) {
        if self.core.executor.is_retiring() {
            // Of workers on a state that another one is about to replace.
            return;
        }
        let env = &mut self.core.env;
        match report {
            report @ (Report::CopyPart { .. } | Report::TooMuchLeft { .. }) => self.core.on_copied(report),
            Report::Digest { position, region_id, digest } => {
                self.core.on_region_digest(position, region_id, digest);
            }
            Report::Nudged { ticket, injected } => self.core.calls.on_nudged(ticket, injected),
            Report::Returned => {
                if let Some(execution) = &mut self.core.executor.running {
                    execution.on_returned();
                }
            }
            Report::Corrupted(what) => env.replace(what),
            // A worker that found the schedule corrupted ends as well.
            Report::Ended if self.core.executor.is_corrupted() => env.replace(Corrupted::Schedule),
            // Workers end when the replica stops. One that ends before was hit by a fault that no check could catch.
            Report::Ended if env.outcome().is_none() && self.core.executor.running.is_some() => {
                env.stop_with(Ok(Stop::Replace(ReplaceReason::WorkerEnded)));
            }
            Report::Ended => {}
            Report::Traced(run) => env.world.see(Observation::Traced(&run)),
            Report::ScrubTook(time) => self.core.scrubs.on_done(env.world.measured(time)),
            Report::Masked { place, core, kind } => {
                env.tally.failed_checks += 1;
                env.tally.own_faults += 1;
                let kind = kind_in_words::<S>(kind);
                env.keep_evidence(evidence::masked(env.settings.me, place, core, kind));
            }
            Report::StartedReplyLost => self.core.clients.give_up_waiting(),
            Report::Named(names) => env.learn_names(names),
            Report::Large { region_id: at, objects } => objects.iter().for_each(|one| env.on_large(at, one)),
            report => {
                let has_packed = matches!(report, Report::Checkpoint { .. } | Report::Damaged { .. });
                if let (Some(execution), true) = (&mut self.core.executor.running, has_packed) {
                    execution.has_packed();
                }
                self.agreement.on_report(report, &mut self.core);
            }
        }
    }
}
