//! Times of single requests and of the steps between them: what the model of more cores draws from (`bench model`).

use serde::{Deserialize, Serialize};

/// The points of a distribution that are kept, in thousandths.
pub const TIME_POINTS: [u64; 9] = [0, 100, 250, 500, 750, 900, 990, 999, 1000];
/// Batches of a side whose times are kept: the first ones that are measured.
pub const TRACED_BATCHES: usize = 400;

/// One request as a worker ran it. Times are in nanoseconds since the executor began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTrace {
    /// The worker.
    pub worker: u32,
    /// When its handler began.
    pub begun_ns: u64,
    /// When its result was left.
    pub ended_ns: u64,
    /// Processor time that the worker had used when it began.
    pub used_ns: u64,
}

/// One batch as the workers ran it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchTrace {
    /// The batch.
    pub number: u64,
    /// Where its parallel batches end.
    pub ends: Vec<u32>,
    /// Its requests, in the order in which they ended.
    pub requests: Vec<RequestTrace>,
    /// How long it was folded.
    pub folding_ns: u64,
}

/// Distributions of a side's times: microseconds at each of [`TIME_POINTS`]; empty where nothing was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTimes {
    /// A handler, with checks, seals, keeping and digest, and with the work of the request.
    pub request: Vec<f64>,
    /// Processor time of a worker from the beginning of a request to that of its next one in the parallel batch.
    pub busy: Vec<f64>,
    /// From a request to the next one of the same worker in the parallel batch.
    pub between: Vec<f64>,
    /// The barrier: from the end of a parallel batch to the beginning of the first request of the next one.
    pub opening: Vec<f64>,
    /// From the beginning of a parallel batch's first requests to that of the next one on another worker.
    pub waking: Vec<f64>,
    /// Folding a batch.
    pub folding: Vec<f64>,
}

impl StageTimes {
    /// Of batches in their order, run by so many workers.
    pub fn of(batches: &[BatchTrace], workers: usize) -> StageTimes {
        let mut seen = SeenTimes::default();
        let mut before = None;
        for batch in batches {
            seen.folding.push(batch.folding_ns);
            let opened = before.filter(|(number, _)| number + 1 == batch.number).map(|(_, ended)| ended);
            before = seen.batch(batch, opened, workers).map(|ended| (batch.number, ended));
        }
        StageTimes {
            request: points(seen.request),
            busy: points(seen.busy),
            between: points(seen.between),
            opening: points(seen.opening),
            waking: points(seen.waking),
            folding: points(seen.folding),
        }
    }
}

/// All times, in nanoseconds.
#[derive(Default)]
struct SeenTimes {
    request: Vec<u64>,
    busy: Vec<u64>,
    between: Vec<u64>,
    opening: Vec<u64>,
    waking: Vec<u64>,
    folding: Vec<u64>,
}

impl SeenTimes {
    /// Adds a batch whose first parallel batch was opened then; returns when its last request ended.
    fn batch(&mut self, batch: &BatchTrace, mut opened: Option<u64>, workers: usize) -> Option<u64> {
        let mut requests = batch.requests.clone();
        // A parallel batch begins when the one before has ended.
        requests.sort_by_key(|one| one.begun_ns);
        let mut begin = 0;
        for &end in &batch.ends {
            let parallel = requests.get(begin..end as usize)?;
            begin = end as usize;
            self.parallel_batch(parallel, opened, workers);
            opened = parallel.iter().map(|one| one.ended_ns).max();
        }
        opened
    }

    fn parallel_batch(&mut self, requests: &[RequestTrace], opened: Option<u64>, workers: usize) {
        self.request.extend(requests.iter().map(|one| one.ended_ns.saturating_sub(one.begun_ns)));
        if let (Some(opened), Some(first), true) = (opened, requests.first(), workers > 1) {
            self.opening.push(first.begun_ns.saturating_sub(opened));
            // One worker folds the batch before, and comes later.
            let woken = requests.iter().take(workers - 1);
            self.waking
                .extend(woken.clone().skip(1).zip(woken).map(|(one, before)| one.begun_ns - before.begun_ns));
        }
        let mut last: Vec<Option<&RequestTrace>> = vec![None; workers];
        for one in requests {
            let Some(before) = last.get_mut(one.worker as usize) else { continue };
            if let Some(before) = before.replace(one) {
                self.between.push(one.begun_ns.saturating_sub(before.ended_ns));
                self.busy.push(one.used_ns.saturating_sub(before.used_ns));
            }
        }
    }
}

/// The points of a distribution, in microseconds with three digits; by rank, without interpolation.
fn points(mut times: Vec<u64>) -> Vec<f64> {
    times.sort_unstable();
    let Some(last) = times.len().checked_sub(1) else { return Vec::new() };
    let of = |point: &u64| {
        let time = times[(last as u64 * point / 1000) as usize];
        let step = if time < 100_000 { 100 } else { 10u64.pow(time.ilog10() - 3) };
        ((time + step / 2) / step * step) as f64 / 1e3
    };
    TIME_POINTS.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(worker: u32, begun_us: u64, ended_us: u64) -> RequestTrace {
        let [begun_ns, ended_ns] = [begun_us, ended_us].map(|us| us * 1000);
        RequestTrace { worker, begun_ns, ended_ns, used_ns: begun_ns / 2 }
    }

    #[test]
    fn steps_between_requests_are_distinguished_from_barriers() {
        let first = BatchTrace {
            number: 1,
            ends: vec![2],
            requests: vec![request(0, 0, 10), request(1, 0, 12)],
            folding_ns: 5_000,
        };
        let requests = vec![request(1, 20, 30), request(0, 24, 35), request(1, 33, 43), request(0, 50, 60)];
        let second = BatchTrace { number: 2, ends: vec![3, 4], requests, folding_ns: 7_000 };
        let times = StageTimes::of(&[first, second], 3);
        let ends = |points: &[f64]| (points[0], points[TIME_POINTS.len() - 1]);
        assert_eq!(ends(&times.request), (10.0, 12.0));
        assert_eq!(ends(&times.opening), (7.0, 8.0), "12 to 20, and 43 to 50");
        assert_eq!(ends(&times.waking), (4.0, 4.0), "20 to 24; the third is not one of the first");
        assert_eq!(ends(&times.between), (3.0, 3.0), "worker 1 from 30 to 33");
        assert_eq!(ends(&times.busy), (6.5, 6.5));
        assert_eq!(ends(&times.folding), (5.0, 7.0));
    }

    #[test]
    fn points_are_ranks_with_few_digits() {
        assert_eq!(points(Vec::new()), Vec::<f64>::new());
        let found = points((0..=1000).map(|thousandth| thousandth * 1_234).collect());
        assert_eq!(found, [0.0, 123.4, 308.5, 617.0, 925.5, 1111.0, 1222.0, 1233.0, 1234.0]);
    }
}
