//! The model of a run: it executes the commands in the order of the log, and judges the replies. The promises know it
//! only as [`Reference`], for any service.
//!
//! Where requests may miss a lock ([`Workload::may_miss_locks`]), a request that missed one runs once more at a later
//! position, and others that are behind it in the log run before it. Where the service starts requests itself
//! ([`Workload::starts_requests`]), these run between those of the log. In such services the model executes everything
//! by the positions at which replicas ran it. All of these are known at the end, so all replies are judged then.

mod later;
mod started;

use std::collections::BTreeMap;

use bytes::Bytes;
use crosscheck::Service;
use crosscheck::stepped::TracedRun;
use later::{Later, OrderedItem};
use started::StartedRequests;
use vote::Place;

use crate::plan;
use crate::run::Options;
use crate::workload::{ReferenceModel, Turn, Workload};
use crate::world::RequestOutcome;

/// The interface of the model for promises.
pub trait Reference {
    /// The command with this number, as text.
    fn shown(&self, command: usize) -> String;

    /// Compares the reply to a command at `place` with the model's answer there; `None` if nothing was
    /// expected there.
    fn compare(&mut self, command: usize, place: Place, reply: &[u8]) -> Option<Result<(), String>>;

    /// Compares the reply to a command of [`Workload::final_reads`] with the data at the end.
    ///
    /// # Errors
    /// The difference, as text.
    fn compare_final(&self, command: usize, place: Place, reply: &[u8]) -> Result<(), String>;

    /// Compares the replies that [`Reference::compare`] has postponed, now that the run has ended.
    ///
    /// # Errors
    /// The first difference, with its command, as text.
    fn compare_rest(&mut self) -> Result<(), String>;

    /// At the end of the run, behind [`Reference::compare_rest`]: all has run that the service started itself.
    ///
    /// # Errors
    /// What has not, as text.
    fn all_has_run(&self) -> Result<(), String>;
}

/// The order in which replicas run requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunOrder {
    /// By their positions in the schedule.
    Positions,
    /// In verified mode: batch by batch, what the service started itself before the requests of the log.
    Batches,
    /// As the only worker of the only replica comes to them.
    Arrival,
}

impl RunOrder {
    fn of(options: &Options) -> Self {
        match (options.verified, options.twice) {
            (true, _) => RunOrder::Batches,
            (false, true) => RunOrder::Arrival,
            (false, false) => RunOrder::Positions,
        }
    }
}

/// The model of a workload, every command that clients sent, and the expected answers.
pub struct Executed<W: Workload> {
    model: W::Model,
    /// By number.
    pub commands: Vec<W::Command>,
    /// By place: the expected answer there.
    expected: BTreeMap<Place, <W::Model as ReferenceModel>::Expected>,
    /// Ordered time of the last batch in microseconds since 1970.
    time_us: u64,
    /// What the group acts as after the last command, and what replicas want that to become.
    behavior: u16,
    acting: order::Acting,
    /// The comparisons postponed until the end, where requests may miss locks or the service starts some itself.
    later: Option<Later>,
    /// What the service has started itself, and no replica has run.
    started: StartedRequests,
    /// The first request that the service has started itself although its workload does not say that it does so.
    is_unannounced: bool,
    /// Decodes requests, where that is needed.
    service: Option<W::Service>,
    /// Where replicas may answer reads without a batch: what is kept for these.
    past: Option<PastModels<W::Model>>,
    /// By the number of such a command: the expected answer; none if it was read before states were kept.
    reads: BTreeMap<usize, Option<<W::Model as ReferenceModel>::Expected>>,
}

/// The model after each of the last batches, once a client has sent a command that only reads: a copy for each batch
/// takes much memory, and most services have no such command.
struct PastModels<M> {
    /// The last batch that the model has executed.
    batch: u64,
    /// Models are kept from this batch on.
    since: Option<u64>,
    of_batches: BTreeMap<u64, PastModel<M>>,
}

/// The model after a batch.
struct PastModel<M> {
    model: M,
    /// Ordered time of the batch.
    time_us: u64,
    /// What the group acted as.
    behavior: u16,
}

/// Batches after which a read is compared; far more than the distance between any two replicas.
const PAST_KEPT: usize = 3_000;

/// The place of a read that took no batch: behind all requests of the batch that it has seen.
pub fn read_place(batch: u64) -> Place {
    Place::new(batch, u16::MAX)
}

impl<W: Workload> Executed<W> {
    /// Empty, for the run of `seed`.
    ///
    /// # Panics
    /// If the service does not start.
    pub fn new(workload: &W, seed: u64, options: &Options) -> Self {
        // Of f+1 replicas one is healthy.
        let (order, enough) = (RunOrder::of(options), u32::from(options.replicas) / 2 + 1);
        // There may be reads that take no batch.
        let keeps_past = plan::reads(seed, options) == crosscheck::Reads::Local;
        let is_postponed = workload.may_miss_locks() || workload.starts_requests();
        let service = (is_postponed || keeps_past)
            .then(|| workload.start().unwrap_or_else(|why| panic!("the service does not start: {why}")).0);
        Executed {
            model: workload.model(),
            commands: Vec::new(),
            expected: BTreeMap::new(),
            time_us: 0,
            behavior: crosscheck::behavior::FIRST,
            acting: order::Acting::default(),
            later: is_postponed.then(|| Later::new(order, enough)),
            started: StartedRequests::default(),
            is_unannounced: false,
            service,
            // The model of a run that is judged at its end has not executed anything before.
            past: (keeps_past && !is_postponed).then(PastModels::new),
            reads: BTreeMap::new(),
        }
    }

    /// A batch with this ordered time begins.
    pub fn begin_batch(&mut self, batch: u64, time_us: u64) {
        self.time_us = time_us;
        match &mut self.later {
            Some(later) => later.begin_batch(batch, time_us),
            None => self.model.begin_batch(time_us),
        }
    }

    /// Executes the command with this number at `place` of the batch that has begun.
    pub fn apply(&mut self, command: usize, place: Place) {
        match &mut self.later {
            Some(later) => later.order(place, OrderedItem::Command(command)),
            None => {
                let turn = Turn { place, time_us: self.time_us, behavior: self.behavior };
                let expected = self.model.apply(&self.commands[command], turn);
                self.expected.insert(place, expected);
            }
        }
    }

    /// A replica says at `place` of the batch that has begun what the group is to act as, which takes `needed` of them.
    pub fn want(&mut self, (origin, behavior): (u8, u16), needed: u32, place: Place) {
        self.acting.want(origin, behavior, needed);
        let acts_as = self.acting.behavior.max(crosscheck::behavior::FIRST);
        if let Some(later) = self.later.as_mut().filter(|_| acts_as != self.behavior) {
            later.order(place, OrderedItem::ActAs(acts_as));
        }
        self.behavior = acts_as;
    }

    /// What the group acts as now.
    pub fn behavior(&self) -> u16 {
        self.behavior
    }

    /// A client sends a command, which the service encodes as `request`.
    pub fn sent(&mut self, request: &[u8]) {
        let past = self.past.as_mut().filter(|past| past.since.is_none());
        let (Some(past), Some(service)) = (past, &self.service) else { return };
        let decoded = service.decode(&Bytes::copy_from_slice(request));
        if decoded.is_ok_and(|request| service.reads_only(&request)) {
            past.since = Some(past.batch);
            self.keep_past();
        }
    }

    /// All commands of a batch are executed.
    pub fn end_batch(&mut self, batch: u64) {
        if let Some(past) = &mut self.past {
            past.batch = batch;
            self.keep_past();
        }
    }

    /// Keeps the model as it is now, if reads may need it.
    fn keep_past(&mut self) {
        let Self { model, time_us, behavior, past: Some(past), .. } = self else { return };
        if past.since.is_some() {
            let model = PastModel { model: model.for_reads(), time_us: *time_us, behavior: *behavior };
            past.of_batches.insert(past.batch, model);
        }
        if past.of_batches.len() > PAST_KEPT {
            past.of_batches.pop_first();
        }
    }

    /// The reply to a command leaves that was read from the state after a batch.
    pub fn read(&mut self, command: usize, batch: u64) {
        let Some(past) = &self.past else { return };
        // Before the first batch there is nothing to read.
        let PastModel { mut model, time_us, behavior } = match past.of_batches.get(&batch) {
            Some(PastModel { model, time_us, behavior }) => {
                PastModel { model: model.clone(), time_us: *time_us, behavior: *behavior }
            }
            None if batch == 0 => {
                let mut model = self.model.clone();
                model.clear();
                PastModel { model, time_us: 0, behavior: crosscheck::behavior::FIRST }
            }
            // The replica was behind the first one when the first such command was sent.
            None if past.since.is_none_or(|since| batch < since) => {
                self.reads.insert(command, None);
                return;
            }
            None => return,
        };
        let turn = Turn { place: read_place(batch), time_us, behavior };
        let expected = model.apply(&self.commands[command], turn);
        self.reads.insert(command, Some(expected));
    }

    /// A replica has run a batch.
    pub fn record_run(&mut self, batch: u64, outcomes: &[RequestOutcome]) {
        if let Some(later) = &mut self.later {
            later.record_run(batch, outcomes);
        }
    }

    /// A replica, from 0, has run what the service had started itself, or what has started something.
    pub fn record_traced(&mut self, run: &TracedRun, replica: u8, is_healthy: bool) {
        match &mut self.later {
            Some(later) => later.record_traced(run, replica, is_healthy),
            None => self.is_unannounced = true,
        }
    }

    /// Drops the expected answers up to a batch.
    pub fn forget(&mut self, batch: u64) {
        while self.expected.first_key_value().is_some_and(|(place, _)| place.batch <= batch) {
            self.expected.pop_first();
        }
    }

    /// The group begins again without data.
    pub fn clear(&mut self) {
        self.model.clear();
        self.expected.clear();
        self.past.iter_mut().for_each(PastModels::clear);
        self.reads.clear();
        (self.behavior, self.acting) = (crosscheck::behavior::FIRST, order::Acting::default());
        self.later = self.later.take().map(|later| later.emptied());
        self.started = StartedRequests::default();
    }

    /// How many requests the service has started itself, of those that were judged.
    pub fn started(&self) -> u64 {
        self.started.ran
    }

    /// Objects that the service was seen to evict.
    pub fn evicted(&self) -> u64 {
        self.model.evicted()
    }
}

impl<M> PastModels<M> {
    fn new() -> Self {
        PastModels { batch: 0, since: None, of_batches: BTreeMap::new() }
    }

    /// The group begins again without data, at its first batch.
    fn clear(&mut self) {
        self.of_batches.clear();
        (self.batch, self.since) = (0, self.since.map(|_| 0));
    }
}

impl<W: Workload> Reference for Executed<W> {
    fn shown(&self, command: usize) -> String {
        format!("{:?}", self.commands[command])
    }

    fn compare(&mut self, command: usize, place: Place, reply: &[u8]) -> Option<Result<(), String>> {
        if self.is_unannounced {
            return Some(Err(UNANNOUNCED.to_owned()));
        }
        if let Some(later) = &mut self.later {
            return later.answered(command, place, reply).then_some(Ok(()));
        }
        let expected = match place.request {
            u16::MAX => match self.reads.remove(&command)? {
                Some(expected) => expected,
                None => return Some(Ok(())),
            },
            _ => self.expected.get(&place)?.clone(),
        };
        Some(self.model.compare(&expected, place, reply))
    }

    fn compare_final(&self, command: usize, place: Place, reply: &[u8]) -> Result<(), String> {
        if self.later.is_some() {
            return Ok(());
        }
        let turn = Turn { place, time_us: self.time_us, behavior: self.behavior };
        self.model.compare_final(&self.commands[command], turn, reply)
    }

    fn compare_rest(&mut self) -> Result<(), String> {
        let Self { later: Some(later), model, commands, service: Some(service), started, .. } = self else {
            return Ok(());
        };
        let emptied = later.emptied();
        *started = std::mem::replace(later, emptied).judge::<W>(model, commands, service)?;
        Ok(())
    }

    fn all_has_run(&self) -> Result<(), String> {
        self.started.are_done()
    }
}

/// Why no reply can be judged.
const UNANNOUNCED: &str = "the service starts requests itself, and `Workload::starts_requests` does not say so: the \
    model is not given these requests";
