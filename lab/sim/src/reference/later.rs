//! What is known of a run only at its end: where replicas ran the requests that may miss a lock, and those that the
//! service started itself. So the model executes all of them then, and the replies are compared then.

use std::collections::BTreeMap;

use bytes::Bytes;
use crosscheck::Service;
use crosscheck::schedule::{LAG, MAX_ATTEMPTS};
use crosscheck::stepped::TracedRun;
use vote::Place;

use super::started::{StartedRequests, shown_run};
use super::{RunOrder, read_place};
use crate::workload::{ReferenceModel, Turn, Workload};
use crate::world::RequestOutcome;

/// Where a request ran among all others.
pub(super) type RunKey = (u64, u64, u64);

/// What the model runs of an ordered batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum OrderedItem {
    /// The command with this number.
    Command(usize),
    /// The group acts as this from here on.
    ActAs(u16),
}

/// An item at a place of the log.
struct Ordered {
    item: OrderedItem,
    /// Ordered time of its batch in microseconds since 1970.
    time_us: u64,
    /// Its place among the items of its batch in the order in which they count as executed.
    rank: u64,
}

/// The replicas that have reported a run.
#[derive(Clone, Copy, Debug, Default)]
struct Reporters {
    /// A bit for each of them.
    replicas: u64,
    /// Whether one of them was no victim of faults.
    has_healthy: bool,
}

/// Records of what the model has yet to execute.
pub(super) struct Later {
    order: RunOrder,
    /// Replicas of which one is healthy.
    enough: u32,
    ordered: BTreeMap<Place, Ordered>,
    /// Ordered time of each batch in microseconds since 1970.
    times: BTreeMap<u64, u64>,
    /// By place: position and time at which replicas ran it, and how many.
    runs: BTreeMap<Place, BTreeMap<(u64, u64), u8>>,
    /// By place, or by where they ran: requests that the service started, or that have started others.
    traced: BTreeMap<(Option<Place>, RunKey), BTreeMap<TracedRun, Reporters>>,
    /// By place: number of the command that a client sent, and its reply.
    replies: BTreeMap<Place, Vec<(usize, Vec<u8>)>>,
    /// By the batch whose state was read: the same for reads that took no batch.
    reads: BTreeMap<u64, Vec<(usize, Vec<u8>)>>,
}

/// One step of the model.
struct ModelStep {
    key: RunKey,
    time_us: u64,
    action: ModelAction,
    /// What replicas have reported of it.
    traced: Option<TracedRun>,
}

/// The action of a step.
enum ModelAction {
    Ordered(Place, OrderedItem),
    /// The service has started it itself.
    Started,
}

/// A reply that was read from the state before one of some steps.
struct OpenRead {
    from: usize,
    to: usize,
    batch: u64,
    command: usize,
    reply: Vec<u8>,
}

impl Later {
    /// Of a group in which `enough` replicas have one that is healthy.
    pub fn new(order: RunOrder, enough: u32) -> Self {
        Later {
            order,
            enough,
            ordered: BTreeMap::new(),
            times: BTreeMap::new(),
            runs: BTreeMap::new(),
            traced: BTreeMap::new(),
            replies: BTreeMap::new(),
            reads: BTreeMap::new(),
        }
    }

    /// Nothing is known, as at the beginning.
    pub fn emptied(&self) -> Self {
        Later::new(self.order, self.enough)
    }

    /// A batch begins.
    pub fn begin_batch(&mut self, batch: u64, time_us: u64) {
        self.times.insert(batch, time_us);
    }

    /// The next item of the batch that has begun, in the order in which they count as executed.
    pub fn order(&mut self, place: Place, item: OrderedItem) {
        let rank = self.ordered.len() as u64;
        let time_us = self.times.get(&place.batch).copied().unwrap_or(0);
        self.ordered.insert(place, Ordered { item, time_us, rank });
    }

    /// A replica has run a batch.
    pub fn record_run(&mut self, batch: u64, outcomes: &[RequestOutcome]) {
        for (number, outcome) in (0..).zip(outcomes).filter(|(_, outcome)| !outcome.failed) {
            let runs = self.runs.entry(Place::new(batch, number)).or_default();
            *runs.entry((outcome.position, outcome.time_us)).or_default() += 1;
        }
    }

    /// A replica, from 0, has run what the service had started itself, or what has started something.
    pub fn record_traced(&mut self, run: &TracedRun, replica: u8, is_healthy: bool) {
        let key = if run.place.is_some() { (0, 0, 0) } else { self.key_of_started(run) };
        // With several workers each replica has another one.
        let run = TracedRun { behind: Place::default(), ..run.clone() };
        let reporters = self.traced.entry((run.place, key)).or_default().entry(run).or_default();
        reporters.replicas |= 1 << replica;
        reporters.has_healthy |= is_healthy;
    }

    /// A client has this reply to the command that has this place. False if it has none.
    pub fn answered(&mut self, command: usize, place: Place, reply: &[u8]) -> bool {
        let replies = match place.request {
            u16::MAX => self.reads.entry(place.batch).or_default(),
            _ if self.ordered.contains_key(&place) => self.replies.entry(place).or_default(),
            _ => return false,
        };
        replies.push((command, reply.to_vec()));
        true
    }

    fn key_of_started(&self, run: &TracedRun) -> RunKey {
        match self.order {
            RunOrder::Positions => (run.position, 0, 0),
            RunOrder::Batches => (run.batch, 0, run.position),
            RunOrder::Arrival => (run.behind.batch, u64::from(run.behind.request) + 1, run.position),
        }
    }

    /// Whether replicas have reported a run as it was.
    fn is_credible(&self, reporters: &Reporters) -> bool {
        reporters.has_healthy || reporters.replicas.count_ones() >= self.enough
    }

    /// All that replicas have run, in its order.
    fn steps(&mut self) -> Vec<ModelStep> {
        let mut traced = BTreeMap::new();
        for (at, runs) in std::mem::take(&mut self.traced) {
            let runs = runs.into_iter().filter(|(_, reporters)| self.is_credible(reporters));
            if let Some((run, _)) = runs.max_by_key(|(_, reporters)| reporters.replicas.count_ones()) {
                traced.insert(at, run);
            }
        }
        let mut last = 0;
        let mut steps = Vec::with_capacity(self.ordered.len() + traced.len());
        for (place, Ordered { item, time_us, rank }) in &self.ordered {
            let runs = self.runs.get(place);
            let most = runs.and_then(|runs| runs.iter().max_by_key(|(_, count)| **count));
            // A command that no process reported before its end ran at its place in the log.
            let (position, time_us) = most.map_or((last, *time_us), |(run, _)| *run);
            last = position;
            let key = match self.order {
                RunOrder::Positions => (position, 0, 0),
                RunOrder::Batches => (place.batch, 1, *rank),
                RunOrder::Arrival => (place.batch, u64::from(place.request) + 1, 0),
            };
            let action = ModelAction::Ordered(*place, *item);
            steps.push(ModelStep { key, time_us, action, traced: traced.remove(&(Some(*place), (0, 0, 0))) });
        }
        for ((place, key), run) in traced {
            if place.is_none() {
                steps.push(ModelStep {
                    key,
                    time_us: run.time_us,
                    action: ModelAction::Started,
                    traced: Some(run),
                });
            }
        }
        // Stable: what has one key is in the order of the log.
        steps.sort_by_key(|step| step.key);
        steps
    }

    /// The model executes everything, and the replies are compared. Returns what has been started and not run.
    ///
    /// # Errors
    /// The first difference, with its command, as text.
    pub fn judge<W: Workload>(
        mut self,
        model: &mut W::Model,
        commands: &[W::Command],
        service: &W::Service,
    ) -> Result<StartedRequests, String> {
        let steps = self.steps();
        let mut reads = self.open_reads(&steps);
        let known = self.known(&steps);
        let mut started = StartedRequests::default();
        let (mut now_us, mut behavior) = (0, crosscheck::behavior::FIRST);
        for (at, step) in steps.iter().enumerate() {
            self.compare_reads::<W>(&mut reads, at, (model, commands), behavior)?;
            let ModelStep { key, time_us, action, traced } = step;
            if *time_us > now_us {
                now_us = *time_us;
                model.begin_batch(now_us);
            }
            let place = match action {
                ModelAction::Ordered(place, _) => *place,
                ModelAction::Started => read_place(traced.as_ref().map_or(0, |run| run.batch)),
            };
            let turn = Turn { place, time_us: *time_us, behavior };
            match action {
                ModelAction::Ordered(_, OrderedItem::ActAs(newer)) => behavior = *newer,
                ModelAction::Ordered(_, OrderedItem::Command(command)) => {
                    let shown = || format!("{:?} at position {}", commands[*command], key.0);
                    started
                        .before(*time_us, known.get(&place.batch))
                        .map_err(|why| format!("{} of batch {} began: {why}", shown(), place.batch))?;
                    let expected = model.apply(&commands[*command], turn);
                    for (sent, reply) in self.replies.remove(&place).unwrap_or_default() {
                        let compared = model.compare(&expected, place, &reply);
                        compared
                            .map_err(|why| format!("{:?} at position {}: {why}", commands[sent], key.0))?;
                    }
                }
                ModelAction::Started => {}
            }
            let Some(run) = traced else { continue };
            if run.place.is_none() {
                started.has_run::<W>(run, service)?;
                if run.is_done {
                    execute_started::<W>(run, turn, model, service)?;
                }
            }
            started.has_started::<W>(run, *key, service);
        }
        self.compare_reads::<W>(&mut reads, steps.len(), (model, commands), behavior)?;
        started.end(self.times.last_key_value().map_or(0, |(_, time_us)| *time_us));
        Ok(started)
    }

    /// For each batch: the key up to which all requests have run whose timers are known when it begins.
    ///
    /// With positions, what a request starts comes into the schedule `LAG` positions later, and a request that missed a
    /// lock has run `LAG` positions later, up to three times.
    fn known(&self, steps: &[ModelStep]) -> BTreeMap<u64, RunKey> {
        let mut firsts: BTreeMap<u64, u64> = BTreeMap::new();
        for step in steps {
            if let ModelAction::Ordered(place, _) = step.action {
                let first = firsts.entry(place.batch).or_insert(u64::MAX);
                *first = (*first).min(step.key.0);
            }
        }
        let mut known = BTreeMap::new();
        let mut highest = 0;
        for (batch, first) in firsts {
            let key = match self.order {
                RunOrder::Positions => (highest, 0, 0),
                RunOrder::Batches | RunOrder::Arrival => (batch, 0, 0),
            };
            known.insert(batch, key);
            highest = highest.max(first.saturating_sub((1 + u64::from(MAX_ATTEMPTS)) * LAG));
        }
        known
    }

    /// The reads that took no batch, by the steps between which the state was that after their batch. What the service
    /// has started may have run before the read, or not.
    fn open_reads(&mut self, steps: &[ModelStep]) -> Vec<OpenRead> {
        let mut open = Vec::new();
        for (batch, reads) in std::mem::take(&mut self.reads) {
            let is_before = |step: &ModelStep| match step.action {
                ModelAction::Ordered(place, _) => place.batch <= batch,
                ModelAction::Started => self.order != RunOrder::Positions && step.key.0 <= batch,
            };
            let is_behind = |step: &ModelStep| match step.action {
                ModelAction::Ordered(place, _) => place.batch > batch,
                ModelAction::Started => self.order != RunOrder::Positions && step.key.0 > batch,
            };
            let from = steps.iter().rposition(is_before).map_or(0, |last| last + 1);
            let to = steps[from..].iter().position(is_behind).map_or(steps.len(), |first| from + first);
            let read = |(command, reply)| OpenRead { from, to, batch, command, reply };
            open.extend(reads.into_iter().map(read));
        }
        open
    }

    /// Compares the reads that may have taken place before this step.
    fn compare_reads<W: Workload>(
        &self,
        open: &mut Vec<OpenRead>,
        at: usize,
        (model, commands): (&W::Model, &[W::Command]),
        behavior: u16,
    ) -> Result<(), String> {
        let mut wrong = None;
        open.retain(|read| {
            if !(read.from..=read.to).contains(&at) {
                return true;
            }
            let place = read_place(read.batch);
            let time_us = self.times.get(&read.batch).copied().unwrap_or(0);
            let mut copy = model.clone();
            let expected = copy.apply(&commands[read.command], Turn { place, time_us, behavior });
            match copy.compare(&expected, place, &read.reply) {
                Ok(()) => false,
                Err(_) if at < read.to => true,
                Err(why) => {
                    let shown = &commands[read.command];
                    wrong.get_or_insert(format!("{shown:?} behind batch {}: {why}", read.batch));
                    false
                }
            }
        });
        wrong.map_or(Ok(()), Err)
    }
}

/// The model executes a request that the service has started itself.
fn execute_started<W: Workload>(
    run: &TracedRun,
    turn: Turn,
    model: &mut W::Model,
    service: &W::Service,
) -> Result<(), String> {
    let request = decode::<W>(&run.request, service)?;
    W::started(model, &request, turn).map_err(|why| format!("{}: {why}", shown_run::<W>(run, service)))
}

fn decode<W: Workload>(
    bytes: &Bytes,
    service: &W::Service,
) -> Result<<W::Service as Service>::Request, String> {
    service.decode(bytes).map_err(|why| format!("the service cannot decode what it has started: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(position: u64, request: &'static str) -> TracedRun {
        TracedRun {
            place: None,
            behind: Place::new(3, 1),
            batch: 4,
            position,
            time_us: 70,
            request: Bytes::from_static(request.as_bytes()),
            is_done: true,
            started: Vec::new(),
        }
    }

    fn requests(later: &mut Later) -> Vec<Bytes> {
        later.steps().into_iter().filter_map(|step| Some(step.traced?.request)).collect()
    }

    #[test]
    fn a_run_that_only_a_victim_of_faults_reports_does_not_count() {
        let mut later = Later::new(RunOrder::Positions, 2);
        later.record_traced(&run(9, "of a victim alone"), 0, false);
        later.record_traced(&run(8, "of a healthy one"), 1, true);
        for replica in [0, 2] {
            later.record_traced(&run(7, "of two victims, one of which is healthy"), replica, false);
        }
        later.record_traced(&run(7, "another one there"), 1, false);
        assert_eq!(requests(&mut later), ["of two victims, one of which is healthy", "of a healthy one"]);
        later.record_traced(&run(9, "twice by one"), 0, false);
        later.record_traced(&run(9, "twice by one"), 0, false);
        assert_eq!(requests(&mut later), [] as [&str; 0]);
    }

    #[test]
    fn what_was_started_runs_between_requests_of_the_log() {
        for (order, first) in [(RunOrder::Positions, 1), (RunOrder::Batches, 0), (RunOrder::Arrival, 1)] {
            let mut later = Later::new(order, 1);
            for batch in [3, 4] {
                later.begin_batch(batch, batch * 10);
                later.order(Place::new(batch, 1), OrderedItem::Command(0));
                let outcome = RequestOutcome {
                    digest: 0,
                    reply_digest: 0,
                    request_checksum: 0,
                    position: batch * 100,
                    time_us: batch * 10,
                    locks: 0,
                    failed: false,
                };
                later.record_run(batch, &[RequestOutcome { failed: true, ..outcome.clone() }, outcome]);
            }
            // In verified mode it is of the batch before whose requests it runs.
            let batch = if order == RunOrder::Batches { 3 } else { 4 };
            later.record_traced(&TracedRun { batch, ..run(350, "started") }, 0, true);
            let at = later.steps().iter().position(|step| step.traced.is_some());
            assert_eq!(at, Some(first), "{order:?}");
        }
    }
}
