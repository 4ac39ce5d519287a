//! A request of a delivered batch, decoded as often as it takes: a fault may hit its bytes or a decoding.

use order::Delivered;
use schedule::Footprint;
use vote::Place;

use super::environment::Environment;
use super::execution::Execution;
use crate::evidence;
use crate::hooks::{FaultPoint, Hooks};
use crate::job::Work;
use crate::service::Service;
use crate::world::World;

/// A request of a delivered batch.
pub(super) struct Decoded<R> {
    /// Its checksum, as its client's replica recorded it.
    pub(super) request_checksum: u32,
    pub(super) request: order::Request,
    pub(super) work: Work<R>,
    pub(super) footprint: Footprint,
}

/// Decodes the request at `place`, which is the one with number `at` of what was delivered. A request that was
/// corrupted is copied from there once more.
pub(super) fn decode_delivered<S: Service, W: World>(
    execution: &Execution<S>,
    delivered: &Delivered,
    (place, at, mut request): (Place, usize, order::Request),
    env: &mut Environment<W>,
) -> Decoded<S::Request> {
    let mut request_checksum = request.checksum;
    env.hooks.at(FaultPoint::Request(place.batch, &mut request));
    let (mut work, mut footprint) = execution.decode(&request);
    if matches!(work, Work::Damaged)
        && let Some(again) = delivered.batch.requests().nth(at)
    {
        (request_checksum, request) = (again.checksum, again);
        (work, footprint) = execution.decode_again(&request, &delivered.batch);
    }
    env.hooks.at(FaultPoint::Footprint(&mut footprint, execution.locks()));
    if env.settings.mode.twice && execution.decode(&request).1 != footprint {
        // With wrong locks every run would ask for the right ones, and the request would run again at another position.
        // A third decoding decides: a fault hits one of three.
        (work, footprint) = execution.decode(&request);
        env.tally.failed_checks += 1;
        env.keep_evidence(evidence::decoded_wrong(env.settings.me, place));
    }
    Decoded { request_checksum, request, work, footprint }
}
