//! The requests that a service has started itself and that have not run: each has to run once, not before its time, and
//! a timer before the requests of a batch that is later.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use crosscheck::Service;
use crosscheck::stepped::TracedRun;

use super::later::RunKey;
use crate::workload::Workload;

/// How late a request may be at the end of the run, in microseconds of ordered time.
const LATE_US: u64 = 2_000_000;

/// Requests that were started, and have yet to run.
#[derive(Default)]
pub(super) struct StartedRequests {
    /// By the earliest time at which they may run, in microseconds since 1970, and a number.
    pending: BTreeMap<(u64, u64), Pending>,
    /// By what they are.
    by_request: BTreeMap<Bytes, BTreeSet<(u64, u64)>>,
    numbered: u64,
    /// How many have run.
    pub ran: u64,
}

/// A request that was started.
struct Pending {
    /// Where the request ran that has started it.
    key: RunKey,
    is_timer: bool,
    /// In words.
    shown: String,
}

impl StartedRequests {
    /// A request has run, and has started others.
    pub fn has_started<W: Workload>(&mut self, run: &TracedRun, key: RunKey, service: &W::Service) {
        for started in &run.started {
            self.numbered += 1;
            let from_us = started.at_us.map_or(run.time_us, |at_us| at_us.max(run.time_us));
            let shown = shown::<W>(&started.request, service);
            let by = shown_run::<W>(run, service);
            let shown = match started.at_us {
                Some(at_us) => format!("{shown}, which {by} has started for {at_us} us,"),
                None => format!("{shown}, which {by} has started,"),
            };
            let pending = Pending { key, is_timer: started.at_us.is_some(), shown };
            self.pending.insert((from_us, self.numbered), pending);
            self.by_request.entry(started.request.clone()).or_default().insert((from_us, self.numbered));
        }
    }

    /// A request has run that the service had started itself.
    ///
    /// # Errors
    /// If it had not, or for a later time.
    pub fn has_run<W: Workload>(&mut self, run: &TracedRun, service: &W::Service) -> Result<(), String> {
        let at = self.by_request.get_mut(&run.request).and_then(|all| {
            let first = all.first().copied().filter(|(from_us, _)| *from_us <= run.time_us)?;
            all.remove(&first);
            Some(first)
        });
        if at.and_then(|at| self.pending.remove(&at)).is_some() {
            self.ran += 1;
            return Ok(());
        }
        let (shown, time_us) = (shown_run::<W>(run, service), run.time_us);
        Err(format!("{shown} ran at {time_us} us, and nothing had started it, or only for a later time"))
    }

    /// A request of the log runs at this ordered time, in a batch before which all timers were known that had been
    /// started before `known`.
    ///
    /// # Errors
    /// If a timer has not run that was due before.
    pub fn before(&self, time_us: u64, known: Option<&RunKey>) -> Result<(), String> {
        let due = self.pending.range(..=(time_us, u64::MAX)).map(|(_, pending)| pending);
        let mut late =
            due.filter(|pending| pending.is_timer && known.is_some_and(|known| pending.key < *known));
        late.next().map_or(Ok(()), |pending| Err(format!("{} has not run by {time_us} us", pending.shown)))
    }

    /// The run has ended at this ordered time: what could not have run by then is dropped.
    pub fn end(&mut self, time_us: u64) {
        let _in_time = self.pending.split_off(&(time_us.saturating_sub(LATE_US), 0));
        self.by_request.clear();
    }

    /// At the end: whether all has run.
    ///
    /// # Errors
    /// The first one that has not.
    pub fn are_done(&self) -> Result<(), String> {
        match self.pending.values().next() {
            Some(pending) => Err(format!("{} has not run by the end", pending.shown)),
            None => Ok(()),
        }
    }
}

/// A run, in words.
pub(super) fn shown_run<W: Workload>(run: &TracedRun, service: &W::Service) -> String {
    format!("{} at position {} of batch {}", shown::<W>(&run.request, service), run.position, run.batch)
}

/// A request, in words: its kind and its first bytes.
fn shown<W: Workload>(request: &Bytes, service: &W::Service) -> String {
    const BYTES: usize = 32;
    let kind = service.decode(request).map_or(0, |request| service.kind(&request));
    let kind = W::Service::kind_name(kind).map_or_else(|| format!("kind {kind}"), str::to_owned);
    let bytes: String = request.iter().take(BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{kind} ({bytes})")
}

#[cfg(test)]
mod tests {
    use crosscheck::stepped::StartedRequest;
    use vote::Place;

    use super::*;
    use crate::memcached::OfMemcached;

    fn run(position: u64, time_us: u64, request: &'static str, started: &[(u64, &'static str)]) -> TracedRun {
        let start = |(at_us, request): &(u64, &'static str)| StartedRequest {
            at_us: (*at_us > 0).then_some(*at_us),
            request: Bytes::from_static(request.as_bytes()),
        };
        TracedRun {
            place: None,
            behind: Place::default(),
            batch: 1,
            position,
            time_us,
            request: Bytes::from_static(request.as_bytes()),
            is_done: true,
            started: started.iter().map(start).collect(),
        }
    }

    #[test]
    fn a_request_runs_once_not_before_its_time_and_not_after_a_later_batch() {
        let (service, _) = OfMemcached::default().start().unwrap();
        let mut all = StartedRequests::default();
        let key = |position| (position, 0, 0);
        let has_run = |all: &mut StartedRequests, time_us, request| {
            all.has_run::<OfMemcached>(&run(9, time_us, request, &[]), &service)
        };
        assert!(has_run(&mut all, 5, "soon").is_err(), "nothing has started it");
        let begins = run(3, 100, "begins", &[(0, "soon"), (0, "soon"), (200, "later")]);
        all.has_started::<OfMemcached>(&begins, key(3), &service);
        assert_eq!(has_run(&mut all, 100, "soon"), Ok(()));
        assert_eq!(has_run(&mut all, 101, "soon"), Ok(()));
        assert!(has_run(&mut all, 102, "soon").is_err(), "a third time");
        assert!(has_run(&mut all, 199, "later").is_err(), "before its time");
        assert_eq!(all.before(199, Some(&key(4))), Ok(()), "it is not due");
        assert_eq!(all.before(300, Some(&key(3))), Ok(()), "the schedule does not know it yet");
        assert!(all.before(300, Some(&key(4))).is_err(), "a later batch begins");
        assert_eq!(has_run(&mut all, 300, "later"), Ok(()));
        assert_eq!(all.before(300, Some(&key(4))), Ok(()));
    }

    #[test]
    fn what_is_left_at_the_end_and_was_due_before_is_named() {
        let (service, _) = OfMemcached::default().start().unwrap();
        for (at_us, is_left) in [(1_000, true), (LATE_US, false)] {
            let mut all = StartedRequests::default();
            let begins = run(3, 100, "begins", &[(at_us, "later")]);
            all.has_started::<OfMemcached>(&begins, (3, 0, 0), &service);
            all.end(LATE_US + 5_000);
            assert_eq!(all.are_done().is_err(), is_left, "{at_us}");
        }
    }
}
