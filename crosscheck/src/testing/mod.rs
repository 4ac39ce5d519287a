//! Test tools for a service's author: one replica in the test's process, and a search for nondeterminism.
//!
//! Behind the feature `testing`, for `[dev-dependencies]`. Neither needs a socket, a peer or a clock.

mod determinism;
mod replica;

pub use determinism::{Difference, check_deterministic};
pub use replica::{Replica, RequestEnd};

use execute::{End, Protection, Runner};
use schedule::{Lock, Outcome, Turn};

use crate::Cx;

use crate::job::{Job, Work};
use crate::service::Service;

/// Ordered time at which a log begins here: some second in 2023, in microseconds since 1970.
pub const START_US: u64 = 1_700_000_000_000_000;

/// How often a handler runs in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Once,
    /// Twice, as while replicas are absent: the effects of the first run are undone.
    Twice,
}

/// Runs a request of the service as a worker does, up to the point where its turn can be finished.
fn handle<S: Service>(
    service: &S,
    locks: &[&dyn Lock],
    turn: &mut Turn<'_, Job<S::Request>>,
    runs: Runs,
    reply: &mut Vec<u8>,
) -> (End, Outcome) {
    let runner = Runner { locks, protection: Protection { guard: true, undo: true }, between: &() };
    let handler = |cx: &schedule::Cx<'_, Job<S::Request>>, job: &Job<S::Request>, reply: &mut Vec<u8>| {
        match &job.work {
            Work::Service(request) => service.execute(&Cx::new(*cx, service), request, reply),
            Work::Control(_) | Work::Unsound | Work::Invalid | Work::Checkpoint(_) => Ok(()),
        }
    };
    let (end, outcome) = match runs {
        Runs::Once => runner.once(turn, reply, handler),
        Runs::Twice => {
            let (end, outcome, _) = runner.reproduced(turn, reply, handler);
            (end, outcome)
        }
    };
    if let (End::Panicked, Work::Service(request)) = (&end, &turn.request().work) {
        service.panicked(request, reply);
    }
    (end, outcome)
}
