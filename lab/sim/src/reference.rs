//! The model of a run: it executes the commands in the order of the log, and judges the replies. The promises know it
//! only as [`Reference`], for any service.
//!
//! Where requests may miss a lock ([`Workload::may_miss_locks`]), a request that missed one runs once more at a later
//! position, and others that are behind it in the log run before it. In such services the model executes the commands
//! by the positions at which f+1 replicas ran them. All of these are known at the end, so all replies are judged then.

use std::collections::BTreeMap;

use bytes::Bytes;
use crosscheck::Service;
use vote::Place;

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
    /// The comparisons postponed until the end, where requests may miss locks.
    later: Option<Later>,
    /// Where replicas may answer reads without a batch: what is kept for these.
    past: Option<PastModels<W>>,
    /// By the number of such a command: the expected answer; none if it was read before states were kept.
    reads: BTreeMap<usize, Option<<W::Model as ReferenceModel>::Expected>>,
}

/// The model after each of the last batches, once a client has sent a command that only reads: a copy for each batch
/// takes much memory, and most services have no such command.
struct PastModels<W: Workload> {
    /// Decodes requests.
    service: W::Service,
    /// The last batch that the model has executed.
    batch: u64,
    /// Models are kept from this batch on.
    since: Option<u64>,
    of_batches: BTreeMap<u64, PastModel<W::Model>>,
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

/// What the model runs of an ordered batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OrderedItem {
    /// The command with this number.
    Command(usize),
    /// The group acts as this from here on.
    ActAs(u16),
}

/// Records of commands that the model has yet to execute.
#[derive(Default)]
struct Later {
    /// By place: what is to run, and the ordered time of its batch in microseconds since 1970.
    ordered: BTreeMap<Place, (OrderedItem, u64)>,
    /// By place: position and time at which replicas ran it, and how many.
    runs: BTreeMap<Place, BTreeMap<(u64, u64), u8>>,
    /// By place: number of the command that a client sent, and its reply.
    replies: BTreeMap<Place, Vec<(usize, Vec<u8>)>>,
}

impl Later {
    /// All by the position where most replicas ran it, each with its place and its time.
    fn by_position(&self) -> Vec<(u64, Place, OrderedItem, u64)> {
        let mut last = 0;
        let mut commands = Vec::with_capacity(self.ordered.len());
        for (place, (ran, time_us)) in &self.ordered {
            let runs = self.runs.get(place);
            let most = runs.and_then(|runs| runs.iter().max_by_key(|(_, count)| **count));
            // A command that no process reported before its end ran at its place in the log.
            let (position, time_us) = most.map_or((last, *time_us), |(run, _)| *run);
            last = position;
            commands.push((position, *place, *ran, time_us));
        }
        commands.sort_unstable();
        commands
    }
}

impl<W: Workload> Executed<W> {
    /// Empty; if there may be reads that take no batch, it `keeps_past` states.
    pub fn new(workload: &W, keeps_past: bool) -> Self {
        Executed {
            model: workload.model(),
            commands: Vec::new(),
            expected: BTreeMap::new(),
            time_us: 0,
            behavior: crosscheck::behavior::FIRST,
            acting: order::Acting::default(),
            later: workload.may_miss_locks().then(Later::default),
            past: keeps_past.then(|| PastModels::new(workload)),
            reads: BTreeMap::new(),
        }
    }

    /// A batch with this ordered time begins.
    pub fn begin_batch(&mut self, time_us: u64) {
        self.time_us = time_us;
        if self.later.is_none() {
            self.model.begin_batch(time_us);
        }
    }

    /// Executes the command with this number at `place` of the batch that has begun.
    pub fn apply(&mut self, command: usize, place: Place) {
        match &mut self.later {
            Some(later) => {
                later.ordered.insert(place, (OrderedItem::Command(command), self.time_us));
            }
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
            later.ordered.insert(place, (OrderedItem::ActAs(acts_as), self.time_us));
        }
        self.behavior = acts_as;
    }

    /// What the group acts as now.
    pub fn behavior(&self) -> u16 {
        self.behavior
    }

    /// A client sends a command, which the service encodes as `request`.
    pub fn sent(&mut self, request: &[u8]) {
        let Some(past) = self.past.as_mut().filter(|past| past.since.is_none()) else { return };
        let decoded = past.service.decode(&Bytes::copy_from_slice(request));
        if decoded.is_ok_and(|request| past.service.reads_only(&request)) {
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
        let Some(later) = &mut self.later else { return };
        for (number, outcome) in (0..).zip(outcomes).filter(|(_, outcome)| !outcome.failed) {
            let runs = later.runs.entry(Place::new(batch, number)).or_default();
            *runs.entry((outcome.position, outcome.time_us)).or_default() += 1;
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
        self.later = self.later.take().map(|_| Later::default());
    }

    /// Objects that the service was seen to evict.
    pub fn evicted(&self) -> u64 {
        self.model.evicted()
    }
}

impl<W: Workload> PastModels<W> {
    fn new(workload: &W) -> Self {
        // panics: a replica of a workload whose service does not start would end the run in the same way
        let (service, _) = workload.start().expect("the service starts");
        PastModels { service, batch: 0, since: None, of_batches: BTreeMap::new() }
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
        if let Some(later) = &mut self.later {
            later.ordered.get(&place)?;
            later.replies.entry(place).or_default().push((command, reply.to_vec()));
            return Some(Ok(()));
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
        let Some(mut later) = self.later.take() else { return Ok(()) };
        let (mut now_us, mut behavior) = (0, crosscheck::behavior::FIRST);
        for (position, place, ran, time_us) in later.by_position() {
            let command = match ran {
                OrderedItem::Command(command) => command,
                OrderedItem::ActAs(newer) => {
                    behavior = newer;
                    continue;
                }
            };
            if time_us > now_us {
                now_us = time_us;
                self.model.begin_batch(time_us);
            }
            let expected = self.model.apply(&self.commands[command], Turn { place, time_us, behavior });
            for (sent, reply) in later.replies.remove(&place).unwrap_or_default() {
                self.model
                    .compare(&expected, place, &reply)
                    .map_err(|why| format!("{:?} at position {position}: {why}", self.commands[sent]))?;
            }
        }
        self.later = Some(Later::default());
        Ok(())
    }
}
