//! The batches in execution: what all requests of a batch share, and their results until the last of them has ended.

use std::collections::VecDeque;
use std::sync::Arc;

use execute::KeptRequest;
use object::Kept;
use parking_lot::{Mutex, MutexGuard};
use vote::RequestResult;

use crate::Corrupted;

/// A batch whose requests are being executed.
pub(crate) struct RunningBatch {
    /// Number of the batch: without gaps, and equal at every replica.
    pub batch: u64,
    /// Ordered time of the batch.
    pub time_us: u64,
    /// The replica whose clients sent it.
    pub origin: u8,
    results: Mutex<Results>,
    /// In verified mode: its requests that have changed something, by their numbers; those without one were started by
    /// others.
    kept: Mutex<Vec<(Option<u16>, KeptRequest)>>,
    /// In verified mode: buffers for what takes requests back.
    rooms: Mutex<Vec<Kept>>,
}

/// The results of a batch so far.
struct Results {
    /// Requests that have not ended.
    missing: usize,
    /// By the numbers of the requests.
    of_requests: Vec<Option<RequestResult>>,
    runs: Vec<RunNotes>,
}

/// The result of a request of a batch, and how it was run.
pub(crate) struct Ended {
    /// Number of the request.
    pub request: u16,
    /// Its result.
    pub result: RequestResult,
    /// How it was run.
    pub ran: RunNotes,
}

/// What one of several workers has of the batch that it runs, until it comes to another batch or has to wait: so that
/// workers do not write to the same memory for every request.
#[derive(Default)]
pub(crate) struct Share {
    batch: Option<Arc<RunningBatch>>,
    ended: Vec<Ended>,
    /// The number of results, counted once more.
    count: usize,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunNotes {
    /// The processor core it ended on: a core that is wrong repeatedly is visible in the evidence.
    pub core: u32,
    /// The kind of request ([`crate::Service::kind`]).
    pub kind: u16,
    /// It was run more than once, and two runs agreed.
    pub reproduced: bool,
}

impl RunningBatch {
    /// A batch of so many requests.
    pub fn new(batch: u64, time_us: u64, origin: u8, requests: usize) -> Arc<Self> {
        let of_requests = (0..requests).map(|_| None).collect();
        let results = Results { missing: requests, of_requests, runs: vec![RunNotes::default(); requests] };
        let (kept, rooms) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        Arc::new(RunningBatch { batch, time_us, origin, results: Mutex::new(results), kept, rooms })
    }

    /// Whether it waits for the results of so many requests. With a wrong number it would never have all of them, while
    /// later batches go on: only the clients of this one would wait, and no watchdog would notice (V52).
    pub fn awaits(&self, requests: usize) -> bool {
        let Results { missing, of_requests, runs } = &*self.results.lock();
        [*missing, of_requests.len(), runs.len()] == [requests; 3]
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

    /// Stores results; returns all of them to the caller that stores the last one.
    ///
    /// # Errors
    /// When the batch has no such request, or it ended before, or one has not ended that was counted: its number, the
    /// worker's place or the count was corrupted.
    pub fn leave(&self, ended: impl IntoIterator<Item = Ended>) -> Result<Option<Executed>, Corrupted> {
        let mut results = self.results.lock();
        let Results { missing, of_requests, runs } = &mut *results;
        for Ended { request, result, ran } in ended {
            let number = usize::from(request);
            match (of_requests.get_mut(number), runs.get_mut(number)) {
                (Some(place @ None), Some(run)) => (*place, *run) = (Some(result), ran),
                _ => return Err(Corrupted::Results),
            }
            *missing = missing.wrapping_sub(1);
        }
        if *missing > 0 {
            return Ok(None);
        }
        let results: Option<Vec<RequestResult>> = std::mem::take(of_requests).into_iter().collect();
        let (results, runs) = (results.ok_or(Corrupted::Results)?, std::mem::take(runs));
        Ok(Some(Executed { batch: self.batch, origin: self.origin, results, runs }))
    }
}

impl Share {
    /// Whether it has nothing of another batch than that of a request, which is none for one of no batch.
    pub fn is_of(&self, batch: Option<&Arc<RunningBatch>>) -> bool {
        match (&self.batch, batch) {
            (Some(own), Some(batch)) => Arc::ptr_eq(own, batch),
            (own, _) => own.is_none(),
        }
    }

    /// A request of `batch` has ended here.
    pub fn add(&mut self, batch: &Arc<RunningBatch>, ended: Ended) {
        self.batch.get_or_insert_with(|| batch.clone());
        self.count += 1;
        self.ended.push(ended);
    }

    /// Stores the results in their batch; returns all of that batch if they were the last ones.
    ///
    /// # Errors
    /// As [`RunningBatch::leave`], and when a result was lost here.
    pub fn leave(&mut self) -> Result<Option<Executed>, Corrupted> {
        let Some(batch) = self.batch.take() else { return Ok(None) };
        // With too few results the batch would never end, while later ones go on.
        let is_whole = std::mem::take(&mut self.count) == self.ended.len();
        let executed = batch.leave(self.ended.drain(..));
        if is_whole { executed } else { Err(Corrupted::Results) }
    }
}

/// In verified mode: the batches that were scheduled and may still have to be rolled back.
#[derive(Default)]
pub(crate) struct UnstableBatches(Mutex<Batches>);

#[derive(Default)]
struct Batches {
    /// Oldest first.
    scheduled: VecDeque<Arc<RunningBatch>>,
    /// Those that the next boundary rolls back. Until then their last requests still run, also those that no client
    /// waits for, and find their batch here.
    leaving: Vec<Arc<RunningBatch>>,
}

impl UnstableBatches {
    /// A batch is scheduled.
    pub fn push(&self, batch: Arc<RunningBatch>) {
        self.0.lock().scheduled.push_back(batch);
    }

    /// The batch with this number, which runs.
    pub fn find(&self, batch: u64) -> Option<Arc<RunningBatch>> {
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
    pub fn leave_after(&self, batch: u64) -> Vec<Arc<RunningBatch>> {
        let Batches { scheduled, leaving } = &mut *self.0.lock();
        let at = scheduled.partition_point(|one| one.batch <= batch);
        let gone: Vec<Arc<RunningBatch>> = scheduled.split_off(at).into();
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
    use bytes::Bytes;
    use vote::{Pairs, RequestInfo};

    /// A request that the service has started itself finds its batch by the number alone. It had lost what takes it
    /// back if it ended between the decision to go back and the boundary that does so.
    #[test]
    fn a_batch_is_found_until_it_was_rolled_back() {
        let batches = UnstableBatches::default();
        let of = |time_us| RunningBatch::new(7, time_us, 0, 0);
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
        let batch = RunningBatch::new(4, 0, 2, 3);
        assert!(batch.awaits(3) && !batch.awaits(2));
        batch.results.lock().missing = 19;
        assert!(!batch.awaits(3), "its count is corrupted");
        batch.results.lock().missing = 3;
        let result = |reply: &'static str| {
            RequestResult::new(RequestInfo::default(), Pairs::new(), Bytes::from(reply))
        };
        let ran = |core| RunNotes { core, kind: 0, reproduced: false };
        let ended = |request, reply, core| Some(Ended { request, result: result(reply), ran: ran(core) });
        assert!(batch.leave(ended(2, "c", 7)).unwrap().is_none());
        assert!(batch.leave(ended(0, "a", 5)).unwrap().is_none());
        for wrong in [0, 2, 3, u16::MAX] {
            assert!(matches!(batch.leave(ended(wrong, "x", 1)), Err(Corrupted::Results)), "{wrong}");
        }
        let all = batch.leave(ended(1, "b", 6)).unwrap().unwrap();
        assert_eq!(
            all.results.iter().map(|result| result.reply.as_deref()).collect::<Vec<_>>(),
            [Some(&b"a"[..]), Some(b"b"), Some(b"c")]
        );
        assert_eq!(all.runs, [ran(5), ran(6), ran(7)]);
    }

    #[test]
    fn several_workers_bring_their_shares_and_none_is_lost() {
        let batch = RunningBatch::new(4, 0, 2, 3);
        let add = |share: &mut Share, request, core| {
            let result = RequestResult::new(RequestInfo::default(), Pairs::new(), Bytes::new());
            share.add(&batch, Ended { request, result, ran: RunNotes { core, ..RunNotes::default() } });
        };
        let mut shares: [Share; 2] = Default::default();
        let other = RunningBatch::new(5, 0, 2, 1);
        assert!(shares[0].is_of(None) && shares[0].is_of(Some(&batch)));
        add(&mut shares[0], 2, 20);
        add(&mut shares[1], 1, 11);
        add(&mut shares[0], 0, 10);
        assert!(!shares[0].is_of(None) && shares[0].is_of(Some(&batch)) && !shares[0].is_of(Some(&other)));
        assert!(shares[0].leave().unwrap().is_none());
        assert!(shares[0].is_of(Some(&other)) && shares[0].leave().unwrap().is_none());
        let all = shares[1].leave().unwrap().unwrap();
        assert_eq!(all.runs.iter().map(|run| run.core).collect::<Vec<_>>(), [10, 11, 20]);

        let batch = RunningBatch::new(6, 0, 2, 2);
        let result = RequestResult::new(RequestInfo::default(), Pairs::new(), Bytes::new());
        shares[0].add(&batch, Ended { request: 1, result, ran: RunNotes::default() });
        shares[0].ended.clear();
        assert!(matches!(shares[0].leave(), Err(Corrupted::Results)), "a result was lost");
    }
}
