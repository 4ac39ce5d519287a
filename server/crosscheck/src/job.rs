//! The unit of scheduling: one request, and its place in its batch.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use vote::{Place, RequestInfo};

use crate::boundary::BoundaryWork;
use crate::checkpoint::CheckpointHead;
use crate::copying::StateCopy;
use crate::later::Owed;
use crate::ordered::Control;
use crate::running::RunningBatch;

/// One request, for the workers.
#[derive(Clone)]
pub struct Job<R> {
    pub(crate) work: Work<R>,
    /// The request as ordered bytes, for a state transfer that finds it still waiting.
    pub(crate) ordered: Bytes,
    /// Checksum of the ordered bytes, made before they were decoded.
    pub(crate) checksum: u32,
    /// Its place in its batch; none for a request that the service started itself.
    pub(crate) place: Option<InBatch>,
}

/// The work of a job.
#[derive(Clone)]
pub(crate) enum Work<R> {
    /// A client's request, or one that the service started itself.
    Service(R),
    /// A request of the pipeline itself.
    Control(Control),
    /// The ordered bytes have changed since they were ordered: this replica cannot run them.
    Damaged,
    /// The ordered bytes are no request: no replica can run them.
    Invalid,
    /// A part of a copy of the state: a request of the pipeline itself.
    CopyPart(Arc<StateCopy>, Control),
    /// Runs after a batch that requested a checkpoint: packs what is left of a copy, as of that batch, unless these are
    /// more objects.
    Cut(Arc<CheckpointHead>, Arc<StateCopy>, usize),
    /// The same without a copy: packs the whole state.
    Checkpoint(Arc<CheckpointHead>),
    /// In verified mode: has the state alone and no position. Empty once it has run.
    Boundary(Arc<Mutex<Option<BoundaryWork>>>),
}

/// The place of a request in its batch, and what the log says of it.
#[derive(Clone)]
pub(crate) struct InBatch {
    /// The batch, which gets the result.
    pub batch: Arc<RunningBatch>,
    /// Number of the request in it.
    pub number: u16,
    /// The replica that ordered it, whose client waits for the reply if one does.
    pub origin: u8,
    /// Whether this replica owes a client the reply.
    pub mine: bool,
    /// Whether a client sent it, and not the pipeline itself.
    pub of_client: bool,
    /// Checksum of the ordered request, as its client's replica recorded it.
    pub checksum: u32,
    /// Position at which it is to run first. In verified mode 0: there the plan decides.
    pub position: u64,
}

impl InBatch {
    /// The request that a result answers which was made at `position`, at the ordered time `time_us`; the service
    /// determines its kind.
    pub fn request_info(&self, position: u64, time_us: u64) -> RequestInfo {
        let InBatch { checksum, mine, of_client, .. } = *self;
        RequestInfo { position, time_us, checksum, mine, of_client, kind: 0 }
    }

    /// Its reply, if that comes later.
    pub fn owed(&self) -> Option<Owed> {
        self.of_client.then(|| Owed::to(self.origin, self.of_vote()))
    }

    /// The place that the vote counts by.
    pub fn of_vote(&self) -> Place {
        Place::new(self.batch.batch, self.number)
    }
}

impl<R> Job<R> {
    /// A request that the service starts itself, with the bytes that [`crate::Service::decode`] accepts. Its effects
    /// are compared when a client's request next touches them. [`crate::Cx::spawn`] and [`crate::Cx::at`] make it; a
    /// test that has a schedule of its own makes it here.
    pub fn internal(request: R, ordered: Bytes) -> Self {
        Job::new(Work::Service(request), crate::ordered::summed(ordered), None)
    }

    /// A job of these ordered bytes.
    pub(crate) fn new(work: Work<R>, ordered: order::Request, place: Option<InBatch>) -> Self {
        Job { work, ordered: ordered.bytes, checksum: ordered.checksum, place }
    }

    /// A job of the pipeline itself, without ordered bytes.
    pub(crate) fn unordered(work: Work<R>) -> Self {
        Job { work, ordered: Bytes::new(), checksum: order::batch::checksum(&[]), place: None }
    }

    /// In verified mode: a boundary.
    pub(crate) fn boundary(work: BoundaryWork) -> Self {
        Job::unordered(Work::Boundary(Arc::new(Mutex::new(Some(work)))))
    }

    /// In verified mode: nothing, for a batch without requests.
    pub(crate) fn nothing() -> Self {
        Job::unordered(Work::Boundary(Arc::default()))
    }

    /// The request as ordered bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.ordered
    }

    /// Checksum of the ordered bytes, made before they were decoded: the one that the digest of an answer covers.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// The service's request; `None` if it is one of the pipeline itself.
    pub fn request(&self) -> Option<&R> {
        match &self.work {
            Work::Service(request) => Some(request),
            Work::Control(_)
            | Work::Damaged
            | Work::Invalid
            | Work::CopyPart(..)
            | Work::Cut(..)
            | Work::Checkpoint(_)
            | Work::Boundary(_) => None,
        }
    }
}
