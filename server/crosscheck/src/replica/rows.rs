//! Order → Schedule: each request of a delivered batch becomes a row: what it is, the locks that it may take, and its
//! place in the batch. It is decoded as often as it takes: a fault may hit its bytes or a decoding.

use std::sync::Arc;

use order::Delivered;
use schedule::{BatchRow, Footprint};
use vote::Place;

use super::environment::Environment;
use super::execution::Execution;
use crate::evidence;
use crate::hooks::{FaultPoint, Hooks};
use crate::job::{InBatch, Job, Work};
use crate::ordered::Control;
use crate::running::RunningBatch;
use crate::service::Service;
use crate::world::World;

/// A batch while it gets its rows.
pub(super) struct BatchRows<R> {
    /// The batch, which is to get the results.
    pub(super) batch: Arc<RunningBatch>,
    pub(super) rows: Vec<BatchRow<Job<R>>>,
    /// A request of it may wait or take long.
    pub(super) is_long: bool,
}

impl<R> BatchRows<R> {
    /// No rows of `batch` yet, which has so many requests.
    pub(super) fn new(batch: Arc<RunningBatch>, requests: usize) -> Self {
        // One more, for a checkpoint behind it.
        BatchRows { batch, rows: Vec::with_capacity(requests + 1), is_long: false }
    }

    /// Adds a request, which is the one with number `at` of what was delivered, and is to run first at `position`;
    /// `mine` if this replica owes a client the reply. One that was corrupted is copied from there once more.
    pub(super) fn add<S: Service<Request = R>, W: World>(
        &mut self,
        (delivered, at, mut request): (&Delivered, usize, order::Request),
        (mine, position): (bool, u64),
        execution: &Execution<S>,
        env: &mut Environment<W>,
    ) -> &mut BatchRow<Job<R>> {
        let number = self.rows.len() as u16;
        let mut checksum = request.checksum;
        env.hooks.at(FaultPoint::Request(self.batch.batch, &mut request));
        let (mut work, mut footprint) = execution.decode(&request);
        if matches!(work, Work::Damaged)
            && let Some(again) = delivered.batch.requests().nth(at)
        {
            (checksum, request) = (again.checksum, again);
            (work, footprint) = execution.decode_again(&request, &delivered.batch);
        }
        env.hooks.at(FaultPoint::Footprint(&mut footprint, execution.locks()));
        if env.settings.mode.twice && execution.decode(&request).1 != footprint {
            // With wrong locks every run would ask for the right ones, and the request would run again at another
            // position. A third decoding decides: a fault hits one of three.
            (work, footprint) = execution.decode(&request);
            env.tally.failed_checks += 1;
            let place = Place::new(self.batch.batch, number);
            env.keep_evidence(evidence::decoded_wrong(env.settings.me, place));
        }
        self.is_long |= matches!(&work, Work::Control(control) if control.is_long(env.settings.me));
        let of_client = !Control::is_control(&request.bytes);
        let (batch, origin) = (self.batch.clone(), delivered.batch.origin);
        let place = InBatch { batch, number, origin, mine, of_client, checksum, position };
        let row = BatchRow { request: Job::new(work, request, Some(place)), footprint, stream: None };
        self.rows.push_mut(row)
    }

    /// Adds a request of the pipeline itself, which no replica has ordered.
    pub(super) fn add_unordered(&mut self, job: Job<R>, footprint: Footprint) {
        self.rows.push(BatchRow { request: job, footprint, stream: None });
    }
}
