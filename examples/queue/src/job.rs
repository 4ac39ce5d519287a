//! A job: a critical struct. Its body is in pieces, so that a change of its state does not sum a long one.

use crosscheck::ConnectionId;
use crosscheck::object::{Pieces, Ref, Summed, critical};

use crate::tube::Tube;

/// Id of a job: the position of its `put`, times the number of regions, plus its tube's region. So a job that was put
/// later has a higher one, in any tube.
pub type JobId = u64;

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Summed)]
#[allow(missing_docs, reason = "times are ordered ones, in microseconds")]
pub enum JobState {
    Ready,
    Reserved {
        by: ConnectionId,
        until_us: u64,
    },
    Delayed {
        until_us: u64,
    },
    /// Behind those with a lower place.
    Buried {
        place: u64,
    },
}

/// How often something happened to a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Summed)]
#[allow(missing_docs, reason = "named as in `stats-job`")]
pub struct Tallies {
    pub reserves: u32,
    pub timeouts: u32,
    pub releases: u32,
    pub buries: u32,
    pub kicks: u32,
}

/// One job.
#[critical]
pub struct QueuedJob {
    id: JobId,
    tube: Ref<Tube>,
    pri: u32,
    /// Seconds.
    delay: u32,
    /// Seconds.
    ttr: u32,
    put_us: u64,
    state: JobState,
    tallies: Tallies,
    body: Pieces,
}

#[critical]
impl QueuedJob {
    /// A job that is in no list yet; `pri` is followed by delay and ttr, in seconds.
    pub fn new(
        id: JobId,
        tube: Ref<Tube>,
        (pri, delay, ttr): (u32, u32, u32),
        put_us: u64,
        body: &[u8],
    ) -> Self {
        let (state, tallies, body) = (JobState::Ready, Tallies::default(), Pieces::from(body));
        Self { id, tube, pri, delay, ttr: ttr.max(1), put_us, state, tallies, body }
    }

    /// What lists of its tube know it by: its priority and its id.
    pub fn key(&self) -> (u32, JobId) {
        (self.pri, self.id)
    }

    /// Its tube.
    pub fn tube(&self) -> Ref<Tube> {
        self.tube
    }

    /// Where it is.
    pub fn state(&self) -> JobState {
        self.state
    }

    /// The job itself: what clients put.
    pub fn body(&self) -> &[u8] {
        self.body.whole()
    }

    /// When a reservation ends that begins now.
    pub fn deadline(&self, now_us: u64) -> u64 {
        now_us + u64::from(self.ttr) * 1_000_000
    }

    /// Notes where it is from now on.
    pub fn set_state(&mut self, state: JobState) {
        self.state = state;
    }

    /// Another priority and, of a released job, another delay.
    pub fn set_order(&mut self, pri: u32, delay: Option<u32>) {
        self.pri = pri;
        self.delay = delay.unwrap_or(self.delay);
    }

    /// Counts something.
    pub fn count(&mut self, add: impl FnOnce(&mut Tallies)) {
        add(&mut self.tallies);
    }

    /// The text of `stats-job`, for a job of this tube.
    pub fn stats(&self, tube: &str, now_us: u64) -> String {
        let (state, left_us) = match self.state {
            JobState::Ready => ("ready", 0),
            JobState::Reserved { until_us, .. } => ("reserved", until_us.saturating_sub(now_us)),
            JobState::Delayed { until_us } => ("delayed", until_us.saturating_sub(now_us)),
            JobState::Buried { .. } => ("buried", 0),
        };
        let Tallies { reserves, timeouts, releases, buries, kicks } = self.tallies;
        let (id, pri, delay, ttr) = (self.id, self.pri, self.delay, self.ttr);
        let (age, left) = (now_us.saturating_sub(self.put_us) / 1_000_000, left_us / 1_000_000);
        format!(
            "---\nid: {id}\ntube: {tube}\nstate: {state}\npri: {pri}\nage: {age}\ndelay: {delay}\nttr: {ttr}\n\
             time-left: {left}\nfile: 0\nreserves: {reserves}\ntimeouts: {timeouts}\nreleases: {releases}\n\
             buries: {buries}\nkicks: {kicks}\n"
        )
    }
}
