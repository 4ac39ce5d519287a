//! A tube: a critical struct with the lists of its jobs.

use crosscheck::object::{Map, Ref, Set, critical};

use crate::DEFAULT_TUBE;
use crate::job::{JobId, JobState, QueuedJob};

/// Priorities below this are urgent.
pub const URGENT: u32 = 1_024;

/// One tube.
#[critical]
pub struct Tube {
    name: String,
    /// By priority and id.
    ready: Map<(u32, JobId), Ref<QueuedJob>>,
    /// By the time at which they become ready, and id.
    delayed: Map<(u64, JobId), Ref<QueuedJob>>,
    /// By their places.
    buried: Map<u64, Ref<QueuedJob>>,
    /// Places of the clients that wait for a job, in the order in which they came.
    waiting: Set<u64>,
    urgent: u64,
    reserved: u64,
    /// Connections that use it, and that watch it.
    using: u64,
    watching: u64,
    total: u64,
    deletes: u64,
    pauses: u64,
    /// Seconds of the present pause; 0 for none.
    pause: u32,
    /// When that ends.
    paused_until_us: u64,
}

#[critical]
impl Tube {
    /// An empty tube.
    pub fn new(name: &str) -> Self {
        let (ready, delayed, buried, waiting) = (Map::new(), Map::new(), Map::new(), Set::new());
        let (urgent, reserved, using, watching, total, deletes) = (0, 0, 0, 0, 0, 0);
        let (name, pauses, pause, paused_until_us) = (name.to_owned(), 0, 0, 0);
        #[rustfmt::skip] // a line for each kind
        return Self {
            name, ready, delayed, buried, waiting,
            urgent, reserved, using, watching, total, deletes, pauses,
            pause, paused_until_us,
        };
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether nothing needs it: it has no jobs, and no connection refers to it.
    pub fn is_unused(&self) -> bool {
        let entries = self.ready.len() + self.delayed.len() + self.buried.len() + self.waiting.len();
        entries == 0 && self.reserved + self.using + self.watching == 0 && self.name != DEFAULT_TUBE
    }

    /// A job comes into this state.
    pub fn add(&mut self, job: Ref<QueuedJob>, (pri, id): (u32, JobId), state: JobState) {
        match state {
            JobState::Ready => {
                self.urgent += u64::from(pri < URGENT);
                self.ready.insert((pri, id), job);
            }
            JobState::Reserved { .. } => self.reserved += 1,
            JobState::Delayed { until_us } => _ = self.delayed.insert((until_us, id), job),
            JobState::Buried { place } => _ = self.buried.insert(place, job),
        }
    }

    /// A job leaves this state.
    pub fn take(&mut self, (pri, id): (u32, JobId), state: JobState) {
        match state {
            JobState::Ready => {
                self.urgent -= u64::from(pri < URGENT);
                self.ready.remove(&(pri, id));
            }
            JobState::Reserved { .. } => self.reserved -= 1,
            JobState::Delayed { until_us } => _ = self.delayed.remove(&(until_us, id)),
            JobState::Buried { place } => _ = self.buried.remove(&place),
        }
    }

    /// The most urgent of the ready jobs, with its key.
    pub fn first_ready(&self) -> Option<((u32, JobId), Ref<QueuedJob>)> {
        self.ready.first().map(|(key, job)| (*key, *job))
    }

    /// The delayed job that becomes ready first.
    pub fn first_delayed(&self) -> Option<Ref<QueuedJob>> {
        self.delayed.first().map(|(_, job)| *job)
    }

    /// The job that was buried first.
    pub fn first_buried(&self) -> Option<Ref<QueuedJob>> {
        self.buried.first().map(|(_, job)| *job)
    }

    /// The client that has waited longest.
    pub fn first_waiting(&self) -> Option<u64> {
        self.waiting.first().copied()
    }

    /// A client at this place waits for a job, or does so no more.
    pub fn wait(&mut self, place: u64, more: bool) {
        if more {
            self.waiting.insert(place);
        } else {
            self.waiting.remove(&place);
        }
    }

    /// Whether jobs can be reserved now.
    pub fn is_open(&self, now_us: u64) -> bool {
        self.paused_until_us <= now_us
    }

    /// Nothing is reserved for so many seconds. Returns when that ends.
    pub fn pause(&mut self, seconds: u32, now_us: u64) -> u64 {
        self.pauses += 1;
        (self.pause, self.paused_until_us) = (seconds, now_us + u64::from(seconds) * 1_000_000);
        self.paused_until_us
    }

    /// The end of a pause may have come.
    pub fn unpause(&mut self, now_us: u64) {
        if self.is_open(now_us) {
            (self.pause, self.paused_until_us) = (0, 0);
        }
    }

    /// A job was put.
    pub fn count_put(&mut self) {
        self.total += 1;
    }

    /// A job was deleted.
    pub fn count_delete(&mut self) {
        self.deletes += 1;
    }

    /// One connection more uses or watches it, or one less.
    pub fn refer(&mut self, watches: bool, more: bool) {
        let count = if watches { &mut self.watching } else { &mut self.using };
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
    }

    /// The text of `stats-tube`.
    pub fn stats(&self, now_us: u64) -> String {
        let left = self.paused_until_us.saturating_sub(now_us) / 1_000_000;
        format!(
            "---\nname: {}\ncurrent-jobs-urgent: {}\ncurrent-jobs-ready: {}\ncurrent-jobs-reserved: {}\n\
             current-jobs-delayed: {}\ncurrent-jobs-buried: {}\ntotal-jobs: {}\ncurrent-using: {}\n\
             current-watching: {}\ncurrent-waiting: {}\ncmd-delete: {}\ncmd-pause-tube: {}\npause: {}\n\
             pause-time-left: {left}\n",
            self.name,
            self.urgent,
            self.ready.len(),
            self.reserved,
            self.delayed.len(),
            self.buried.len(),
            self.total,
            self.using,
            self.watching,
            self.waiting.len(),
            self.deletes,
            self.pauses,
            self.pause,
        )
    }
}
