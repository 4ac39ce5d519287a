//! Test tools for a service's author: one replica in the test's process, and a search for nondeterminism.
//!
//! Behind the feature `testing`, for `[dev-dependencies]`. Neither needs a socket, a peer or a clock.

mod determinism;
mod replica;

pub use determinism::{Difference, check_deterministic};
pub use replica::{Replica, RequestEnd};

use std::cell::Cell;

use execute::{End, Protection, Repeat, Runner};
use object::Protect;
use schedule::{Lock, Origin, Outcome, Turn};
use vote::Place;

use crate::Cx;

use crate::job::{Job, Work};
use crate::later::{HasParts, Owed};
use crate::service::Service;
use crate::worker::{ScheduleCx, decode_again};

/// Ordered time at which a log begins here: some second in 2023, in microseconds since 1970.
pub const START_US: u64 = 1_700_000_000_000_000;

/// How often a handler runs in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Once,
    /// Twice, as while replicas are absent: the effects of the first run are undone.
    Twice,
}

/// Runs a request of the service as a worker does, while the group acts as `behavior`, up to the point where its turn
/// can be finished.
fn handle<S: Service>(
    (service, behavior): (&S, u16),
    locks: &[&dyn Lock],
    turn: &mut Turn<'_, Job<S::Request>>,
    runs: Runs,
    reply: &mut Vec<u8>,
) -> (End, Outcome, HasParts) {
    let runner =
        Runner { locks, protection: Protection { protect: Protect::Check, undo: true }, seal_hook: &() };
    let parts = Cell::new(HasParts::default());
    let execute =
        |cx: &ScheduleCx<'_, S>, job: &Job<S::Request>, request: &S::Request, reply: &mut Vec<u8>| {
            // Every client is one of replica 0.
            let own = match cx.origin() {
                Origin::Entry { index, request } => Some(Owed::to(0, Place::new(index, request as u16))),
                Origin::Spawned { .. } | Origin::Timer { .. } => None,
            };
            let cx = Cx::acting_as(*cx, service, behavior).answering(own);
            service.execute(&cx, request, reply)?;
            parts.set(cx.end(0, job.checksum, reply));
            Ok(())
        };
    let (end, outcome) = match runs {
        Runs::Once => runner.once(turn, reply, |cx, job, reply| match job.request() {
            Some(request) => execute(cx, job, request, reply),
            None => Ok(()),
        }),
        Runs::Twice => {
            let handler = |run: u8, cx: &ScheduleCx<'_, S>, job: &Job<S::Request>, reply: &mut Vec<u8>| {
                match job.request() {
                    Some(request) if run == 1 => execute(cx, job, request, reply)?,
                    Some(_) => execute(cx, job, &decode_again(service, job)?, reply)?,
                    None => {}
                }
                Ok(job.checksum)
            };
            let repeat = Repeat { handler, started: Job::bytes };
            let (end, outcome, ..) = runner.reproduced(turn, reply, &repeat);
            (end, outcome)
        }
    };
    if let (End::Panicked, Work::Service(request)) = (&end, &turn.request().work) {
        service.panicked(request, reply);
    }
    (end, outcome, parts.get())
}
