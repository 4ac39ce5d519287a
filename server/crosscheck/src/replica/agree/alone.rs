//! Without the word of other replicas: a reply leaves when its request has run, in mode `00GT` if both of its runs left
//! the same (SEI, NSDI'15).

use bytes::Bytes;
use order::FrameKind;
use vote::{Failure, Place, RequestResult, Withheld};

use super::barrier::CheckingBarrier;
use super::{Agreement, PeerNews, Progress, on_state_report};
use crate::replica::core::Core;
use crate::replica::environment::Environment;
use crate::replica::own_clients::OwnClients;
use crate::replica::pending::{PendingReply, Recipient};
use crate::running::Executed;
use crate::service::{Service, kind_in_words};
use crate::settings::Mode;
use crate::worker::Report;
use crate::world::World;
use crate::{Corrupted, ReplaceReason, Stop, evidence};

/// A replica that answers by itself.
#[derive(Default)]
pub(super) struct Alone {
    /// With several workers, in mode `00GT`: replies that wait for other requests' checks.
    barrier: CheckingBarrier,
}

impl<S: Service, W: World> Agreement<S, W> for Alone {
    fn on_report(&mut self, report: Report, core: &mut Core<S, W>) {
        match on_state_report(report, core) {
            Some(Report::Executed(mut executed)) => {
                core.on_executed(&mut executed);
                if core.env.settings.mode.twice && !core.env.settings.is_solo() {
                    self.barrier.hold(core.executor.progress(), executed);
                    self.pass_barrier(core);
                } else {
                    externalize(executed, core);
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
            externalize(executed, core);
        }
        core.executor.report_ends(self.barrier.is_holding());
    }
}

/// A reply leaves when its request has run; with the letter T only if both runs of it left the same. A request that
/// failed a check has no reply, or with T one that says so.
fn externalize<S: Service, W: World>(executed: Executed, core: &mut Core<S, W>) {
    let Executed { batch, origin, results, .. } = executed;
    let Core { clients, env, .. } = core;
    for (number, result) in results.into_iter().enumerate() {
        let place = Place::new(batch, number as u16);
        let owed = if result.request_info.mine { clients.owed_at(place) } else { PendingReply::NOTHING };
        match result.failure {
            None => {}
            Some(Failure::Invalid) => {
                // No replica runs it, so all replicas have the same state without it.
                env.keep_evidence(evidence::void(Some(origin), place));
            }
            Some(failure) => {
                let kind = kind_in_words::<S>(result.request_info.kind);
                let outcome = if result.has_reply() { "answered with an error" } else { "reply withheld" };
                env.keep_evidence(evidence::unchecked(env.settings.me, place, &failure, kind, outcome));
                let Mode { replicated, guarded, .. } = env.settings.mode;
                let is_lost = guarded || failure == Failure::Request;
                if (replicated && is_lost) || env.ends_on_detection() {
                    // In a replica, the changes that the request should have made are unknown here: only peers have
                    // a correct state.
                    env.stop_with(Ok(Stop::Replace(ReplaceReason::RequestFailed { place, failure })));
                }
            }
        }
        leave::<S, W>(place, owed, result, (&mut *clients, &mut *env));
    }
    clients.forget_answered();
}

/// The reply of a result leaves, if this mode allows it and a client waits for it.
fn leave<S: Service, W: World>(
    place: Place,
    owed: PendingReply,
    result: RequestResult,
    (clients, env): (&mut OwnClients<W>, &mut Environment<W>),
) {
    let (Recipient::Client(_), true) = (owed.owner, env.settings.mode.twice) else {
        return match result.reply {
            // It has parts, and nothing else is digested.
            Some(reply) if result.reply_digest != 0 => {
                clients.release_to(owed, place, reply, Some(result.reply_digest), env);
            }
            Some(reply) => clients.externalize(owed, reply, None),
            None => clients.lose_reply(owed.owner),
        };
    };
    match (vote::twice_may_leave(&result), result.reply) {
        (Ok(digest), Some(reply)) => clients.release_to(owed, place, reply, Some(digest), env),
        (Err(Withheld::Corrupt), _) => {
            clients.lose_reply(owed.owner);
            env.tally.failed_checks += 1;
            let kind = kind_in_words::<S>(result.request_info.kind);
            env.keep_evidence(evidence::changed_after_runs(env.settings.me, place, kind));
            if env.ends_on_detection() {
                env.replace(Corrupted::Reply);
            }
        }
        _ => clients.lose_reply(owed.owner),
    }
}
