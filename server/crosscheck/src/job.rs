//! The unit of scheduling: one request of one batch, and the slot of its result in the batch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use execute::KeptRequest;
use object::Kept;
use parking_lot::{Mutex, MutexGuard};
use vote::{Place, RequestInfo, RequestResult};

use crate::Corrupted;
use crate::boundary::BoundaryWork;
use crate::checkpoint::CheckpointHead;
use crate::copying::StateCopy;
use crate::ordered::Control;

/// One request, for the workers.
#[derive(Clone)]
pub struct Job<R> {
    pub(crate) work: Work<R>,
    /// The request as ordered bytes, for a state transfer that finds it still waiting.
    pub(crate) ordered: Bytes,
    /// Checksum of the ordered bytes, made before they were decoded.
    pub(crate) checksum: u32,
    /// The slot for the result; none for a request that the service started itself.
    pub(crate) result: Option<ResultSlot>,
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

/// The slot for one request's result.
#[derive(Clone)]
pub(crate) struct ResultSlot {
    pub batch: Arc<InFlight>,
    pub request: u16,
    /// Whether this replica owes a client the reply.
    pub mine: bool,
    /// Whether a client sent it, and not the pipeline itself.
    pub of_client: bool,
    /// Checksum of the ordered request.
    pub checksum: u32,
    /// The request's position in the schedule. Until its turn: that at which it is to run first.
    pub position: u64,
    /// Ordered time at which the request runs; 0 until its turn.
    pub time_us: u64,
}

impl ResultSlot {
    /// The request that the result answers; the service determines its kind.
    pub fn request_info(&self) -> RequestInfo {
        RequestInfo {
            position: self.position,
            time_us: self.time_us,
            checksum: self.checksum,
            mine: self.mine,
            of_client: self.of_client,
            kind: 0,
        }
    }

    pub fn place(&self) -> Place {
        Place::new(self.batch.batch, self.request)
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
    pub(crate) fn new(work: Work<R>, ordered: order::Request, result: Option<ResultSlot>) -> Self {
        Job { work, ordered: ordered.bytes, checksum: ordered.checksum, result }
    }

    /// A job of the pipeline itself, without ordered bytes.
    pub(crate) fn unordered(work: Work<R>) -> Self {
        Job { work, ordered: Bytes::new(), checksum: order::batch::checksum(&[]), result: None }
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

/// A batch whose requests are being executed.
pub(crate) struct InFlight {
    /// Number of the batch: without gaps, and equal at every replica.
    pub batch: u64,
    /// Ordered time of the batch.
    pub time_us: u64,
    /// The replica whose clients sent it.
    pub origin: u8,
    missing: AtomicUsize,
    results: Mutex<Vec<Option<(RequestResult, RunNotes)>>>,
    /// In verified mode: its requests that have changed something, by their numbers; those without one were started by
    /// others.
    kept: Mutex<Vec<(Option<u16>, KeptRequest)>>,
    /// In verified mode: buffers for what takes requests back.
    rooms: Mutex<Vec<Kept>>,
}

/// All results of a batch at this replica.
pub(crate) struct Executed {
    /// Number of the batch.
    pub batch: u64,
    /// The replica whose clients sent it, and wait.
    pub origin: u8,
    /// One result per request, in order.
    pub results: Vec<RequestResult>,
    /// How each request was run.
    pub runs: Vec<RunNotes>,
}

/// How a batch was run at this replica.
pub(crate) struct Runs {
    /// The replica whose clients sent it.
    pub origin: u8,
    /// How each request was run.
    pub of_requests: Vec<RunNotes>,
}

/// How a request was run at this replica: for evidence and for the no-majority rules, not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunNotes {
    /// The processor core it ended on: a core that is wrong repeatedly is visible in the evidence.
    pub core: u32,
    /// The kind of request ([`crate::Service::kind`]).
    pub kind: u16,
    /// It was run more than once, and two runs agreed.
    pub reproduced: bool,
}

impl InFlight {
    pub fn new(batch: u64, time_us: u64, origin: u8, requests: usize) -> Arc<Self> {
        let results = Mutex::new((0..requests).map(|_| None).collect());
        let (kept, rooms) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        Arc::new(InFlight {
            batch,
            time_us,
            origin,
            missing: AtomicUsize::new(requests),
            results,
            kept,
            rooms,
        })
    }

    /// In verified mode: gives its requests buffers for what takes them back.
    pub fn furnish(&self, rooms: Vec<Kept>) {
        *self.rooms.lock() = rooms;
    }

    /// In verified mode: the buffers that none of its requests needs.
    pub fn take_rooms(&self) -> Vec<Kept> {
        std::mem::take(&mut *self.rooms.lock())
    }

    /// In verified mode: buffers for what takes the next request back.
    pub fn room(&self) -> Kept {
        self.rooms.lock().pop().unwrap_or_default()
    }

    /// In verified mode: a request has ended, before its result is stored.
    pub fn keep(&self, request: Option<u16>, mut kept: KeptRequest) {
        if kept.kept.is_read_only() {
            self.rooms.lock().push(std::mem::take(&mut kept.kept));
        }
        self.kept.lock().push((request, kept));
    }

    /// In verified mode: what rolls back the requests that have ended so far.
    pub fn take_kept(&self) -> Vec<(Option<u16>, KeptRequest)> {
        std::mem::take(&mut *self.kept.lock())
    }

    /// In verified mode: the same, for a look at them.
    pub fn kept(&self) -> MutexGuard<'_, Vec<(Option<u16>, KeptRequest)>> {
        self.kept.lock()
    }

    /// Stores one result; returns all of them to the caller that stores the last one.
    ///
    /// # Errors
    /// When the batch has no such request, or it ended before: its number, or the worker's place, was corrupted.
    pub fn leave(
        &self,
        request: u16,
        result: RequestResult,
        ran: RunNotes,
    ) -> Result<Option<Executed>, Corrupted> {
        let mut results = self.results.lock();
        match results.get_mut(usize::from(request)) {
            Some(slot @ None) => *slot = Some((result, ran)),
            Some(Some(_)) | None => return Err(Corrupted::Results),
        }
        if self.missing.fetch_sub(1, Ordering::Relaxed) > 1 {
            return Ok(None);
        }
        // Not `unzip`: it does not know how many there are.
        let all = std::mem::take(&mut *results);
        let (mut results, mut runs) = (Vec::with_capacity(all.len()), Vec::with_capacity(all.len()));
        for (result, ran) in all.into_iter().flatten() {
            results.push(result);
            runs.push(ran);
        }
        Ok(Some(Executed { batch: self.batch, origin: self.origin, results, runs }))
    }
}

/// In verified mode: the batches that were scheduled and may still have to be rolled back.
#[derive(Default)]
pub(crate) struct UnstableBatches(Mutex<Batches>);

#[derive(Default)]
struct Batches {
    /// Oldest first.
    scheduled: VecDeque<Arc<InFlight>>,
    /// Those that the next boundary rolls back. Until then their last requests still run, also those that no client
    /// waits for, and find their batch here.
    leaving: Vec<Arc<InFlight>>,
}

impl UnstableBatches {
    /// A batch is scheduled.
    pub fn push(&self, batch: Arc<InFlight>) {
        self.0.lock().scheduled.push_back(batch);
    }

    /// The batch with this number, which runs.
    pub fn find(&self, batch: u64) -> Option<Arc<InFlight>> {
        let batches = self.0.lock();
        // None begins before those have left that are to be rolled back.
        let mut all = batches.leaving.iter().chain(&batches.scheduled);
        all.find(|one| one.batch == batch).cloned()
    }

    /// Batches up to `batch` stay.
    pub fn agree(&self, batch: u64) {
        self.0.lock().scheduled.retain(|one| one.batch > batch);
    }

    /// The batches after `batch`, oldest first, are to be rolled back.
    pub fn leave_after(&self, batch: u64) -> Vec<Arc<InFlight>> {
        let Batches { scheduled, leaving } = &mut *self.0.lock();
        let at = scheduled.partition_point(|one| one.batch <= batch);
        let gone: Vec<Arc<InFlight>> = scheduled.split_off(at).into();
        leaving.extend(gone.iter().cloned());
        gone
    }

    /// A boundary has taken them back: it has run alone, so none of their requests runs any more.
    pub fn have_left(&self) {
        self.0.lock().leaving.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vote::Pairs;

    /// A request that the service has started itself finds its batch by the number alone. It had lost what takes it
    /// back if it ended between the decision to go back and the boundary that does so.
    #[test]
    fn a_batch_is_found_until_it_was_rolled_back() {
        let batches = UnstableBatches::default();
        let of = |time_us| InFlight::new(7, time_us, 0, 0);
        batches.push(of(1));
        assert_eq!(batches.leave_after(7).len(), 0);
        assert_eq!(batches.leave_after(6).len(), 1);
        assert_eq!(batches.find(7).map(|batch| batch.time_us), Some(1));
        assert_eq!(batches.leave_after(6).len(), 0, "it leaves once");
        batches.have_left();
        assert!(batches.find(7).is_none());
        batches.push(of(2));
        assert_eq!(batches.find(7).map(|batch| batch.time_us), Some(2));
        batches.agree(7);
        assert!(batches.find(7).is_none());
    }

    #[test]
    fn the_last_result_brings_all_of_them_in_order() {
        let batch = InFlight::new(4, 0, 2, 3);
        let result = |reply: &'static str| {
            RequestResult::new(RequestInfo::default(), Pairs::new(), Bytes::from(reply))
        };
        let on = |core| RunNotes { core, kind: 0, reproduced: false };
        assert!(batch.leave(2, result("c"), on(7)).unwrap().is_none());
        assert!(batch.leave(0, result("a"), on(5)).unwrap().is_none());
        for wrong in [0, 2, 3, u16::MAX] {
            assert!(matches!(batch.leave(wrong, result("x"), on(1)), Err(Corrupted::Results)), "{wrong}");
        }
        let all = batch.leave(1, result("b"), on(6)).unwrap().unwrap();
        assert_eq!(
            all.results.iter().map(|result| result.reply.as_deref()).collect::<Vec<_>>(),
            [Some(&b"a"[..]), Some(b"b"), Some(b"c")]
        );
        assert_eq!(all.runs, [on(5), on(6), on(7)]);
    }
}
