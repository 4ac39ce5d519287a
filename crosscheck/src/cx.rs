//! What a handler sees: the schedule ([`schedule::Cx`]), and a typed way to start requests of its own service.

use std::ops::Deref;

use bytes::Bytes;
use schedule::Spawn;

use crate::job::Job;
use crate::service::Service;

/// The running request's view of locks, time and random numbers, and what it can start. Dereferences to
/// [`schedule::Cx`], which has `lock`, `read`, `write`, `lock_two`, `now_us` and `rng`.
pub struct Cx<'a, S: Service> {
    schedule: schedule::Cx<'a, Job<S::Request>>,
    service: &'a S,
}

impl<'a, S: Service> Cx<'a, S> {
    /// The view of a handler that runs on `service` in a turn with `schedule`: for those who run handlers themselves.
    pub fn new(schedule: schedule::Cx<'a, Job<S::Request>>, service: &'a S) -> Self {
        Cx { schedule, service }
    }

    /// Starts a request of this service if the running one succeeds. It runs [`schedule::LAG`] positions later, or
    /// soon after, and answers no client.
    pub fn spawn(&self, request: S::Request) {
        self.schedule.spawn(self.job(request));
    }

    /// Starts a request of this service with the first batch whose [time](schedule::Cx::now_us) is at least `time_us`
    /// (microseconds), if the running one succeeds.
    pub fn at(&self, time_us: u64, request: S::Request) {
        self.schedule.at(time_us, self.job(request));
    }

    fn job(&self, request: S::Request) -> Job<S::Request> {
        let ordered = Bytes::from(self.service.encode(&request));
        Job::internal(request, ordered)
    }
}

impl<'a, S: Service> Deref for Cx<'a, S> {
    type Target = schedule::Cx<'a, Job<S::Request>>;

    fn deref(&self) -> &Self::Target {
        &self.schedule
    }
}

impl<S: Service> Spawn<S::Request> for Cx<'_, S> {
    fn spawn(&self, request: S::Request) {
        Cx::spawn(self, request);
    }
}
