//! The run's own knowledge, which no replica has: every command and its outcome, the order as it developed, and the
//! corrupted replicas. The checkers judge by it, and by the model ([`crate::reference`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use verify::{StateToken, Version};
use vote::Place;
use xxhash_rust::xxh3::xxh3_128;

use crate::client::SentCommand;
use crate::reference::Executed;
use crate::workload::Workload;
use crate::world::{Observed, Ordered, RequestOutcome, What};

/// Batches whose results are kept for the checkers, behind the slowest replica.
const KEPT: u64 = 100_000;

/// A request as the service encodes it: its command, and how often it was sent and delivered.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Number of the first command with this encoding.
    pub command: usize,
    /// How often clients sent it.
    pub sent: u64,
    /// How often it has a position.
    pub ordered: u64,
}

/// Versions whose orders are remembered; far more than the distance between any two replicas.
const ORDERS_KEPT: usize = 50_000;

/// All of it.
#[derive(Debug)]
pub struct Facts {
    /// Replicas in the group, 2f+1.
    pub replicas: u8,
    /// The run's clock.
    pub now_us: u64,
    /// Every command.
    pub sent_commands: Vec<SentCommand>,
    /// By digest of the encoding.
    pub sent: BTreeMap<u128, Sent>,
    /// By batch: the digest of its stamp and requests as first delivered.
    pub order: BTreeMap<u64, u128>,
    /// The last batch that any replica took from the order.
    pub last_batch: u64,
    /// In verified mode, by batch and token: the order in which a replica that no fault has hit ran its requests.
    orders: BTreeMap<(u64, StateToken), Vec<u32>>,
    /// In verified mode: the version of the batch that is delivered next.
    agreed: Version,
    /// In verified mode, by place: the place in the order in which the requests of a batch count as executed.
    planned: BTreeMap<Place, Place>,
    /// By batch: its results, per replica.
    pub results: BTreeMap<u64, Vec<Option<Vec<RequestOutcome>>>>,
    /// In verified mode, and two replicas, by batch that a verifier has recorded: how many of them have to come to one
    /// state.
    lineups: BTreeMap<u64, u8>,
    /// By replica: the last batch it took from the order, over all its processes.
    pub delivered: Vec<u64>,
    /// Replicas that may be faulty: faults may be injected into them now, or were since all were equal.
    pub victims: BTreeSet<u8>,
    /// Replicas that chains of strikes have hit since all were equal: their processes may end. None is corrupted.
    pub chain_victims: BTreeSet<u8>,
    /// Replicas that never come back.
    pub gone: BTreeSet<u8>,
    /// The victims of the episode that has begun, until its first fault: until then what any replica does is right.
    pub next_victims: BTreeSet<u8>,
    /// Replicas whose memory, computation or messages were corrupted at some time.
    pub corrupted: BTreeSet<u8>,
    /// Objects that faults have hit, at rest or before their seal: replica, lock and id.
    hit: BTreeSet<(u8, String)>,
    /// Locks behind which an object's id was changed: it may have any id.
    pub renamed: BTreeSet<(u8, String)>,
    /// Replicas where a fault has hit an object that cannot be named beforehand.
    pub unknown: BTreeSet<u8>,
    /// All machines have more and more else to do.
    pub busy: bool,
    /// Whether any fault took effect.
    pub disturbed: bool,
    /// All faults since everything was healed were in computations, so that messages and processes are not disturbed.
    pub only_computes: bool,
    /// Highest place of a command whose answer reached its client.
    pub answered: Option<Place>,
    /// No more writes: every client reads every key.
    pub reading: bool,
}

impl Facts {
    /// Of a group before its first request.
    pub fn new(replicas: u8) -> Self {
        Facts {
            replicas,
            now_us: 0,
            sent_commands: Vec::new(),
            sent: BTreeMap::new(),
            order: BTreeMap::new(),
            last_batch: 0,
            orders: BTreeMap::new(),
            agreed: Version::default(),
            planned: BTreeMap::new(),
            results: BTreeMap::new(),
            lineups: BTreeMap::new(),
            delivered: vec![0; usize::from(replicas)],
            corrupted: BTreeSet::new(),
            victims: BTreeSet::new(),
            chain_victims: BTreeSet::new(),
            gone: BTreeSet::new(),
            next_victims: BTreeSet::new(),
            hit: BTreeSet::new(),
            renamed: BTreeSet::new(),
            unknown: BTreeSet::new(),
            disturbed: false,
            busy: false,
            only_computes: true,
            answered: None,
            reading: false,
        }
    }

    /// A group begins again, empty, on an operator's command: the earlier data of its replicas is lost, and no replica
    /// is expected to have it.
    pub fn begin_anew(&mut self) {
        for sent in &mut self.sent_commands {
            (sent.floor, sent.place) = (None, None);
        }
        self.order.clear();
        self.planned.clear();
        self.results.clear();
        self.delivered.fill(0);
        self.last_batch = 0;
        self.answered = None;
    }

    /// The record of a request, by its encoding.
    pub fn sent_as(&self, encoding: &[u8]) -> Option<&Sent> {
        self.sent.get(&xxh3_128(encoding))
    }

    /// A client sent `encoding`, which is the command with this number.
    pub fn record_sent(&mut self, encoding: &[u8], command: usize) {
        let new = || Sent { command, sent: 0, ordered: 0 };
        self.sent.entry(xxh3_128(encoding)).or_insert_with(new).sent += 1;
    }

    /// A fault has hit the object `id` behind the lock `region_id` at a replica.
    pub fn record_hit(&mut self, replica: u8, region_id: impl Display, id: impl Display) {
        self.hit.insert((replica, format!("{region_id}:{id}")));
    }

    /// Whether faults have hit objects of this replica, since everything was healed.
    pub fn has_hit_objects(&self, replica: u8) -> bool {
        let at = |hit: &(u8, String)| hit.0 == replica;
        self.unknown.contains(&replica) || self.hit.iter().any(at) || self.renamed.iter().any(at)
    }

    /// Whether a fault has hit an object, given as `lock:id`, at a replica.
    pub fn was_hit(&self, replica: u8, object: &str) -> bool {
        let (lock, id) = object.split_once(':').unwrap_or_default();
        // Root of a region: a scrub's own result names the region by it, for any finding in it.
        if id.starts_with('g') {
            return self.corrupted.contains(&replica);
        }
        self.hit.contains(&(replica, object.to_owned()))
            || self.renamed.contains(&(replica, lock.to_owned()))
            || self.unknown.contains(&replica)
    }

    /// f, of 2f+1 replicas.
    pub fn faults(&self) -> usize {
        usize::from(self.replicas) / 2
    }

    /// How many replicas must have come to one state after a batch before its replies leave: f+1. Of two, both, unless
    /// one goes on alone.
    pub fn must_agree(&self, batch: u64) -> usize {
        match self.replicas {
            2 => self.lineups.range(batch..).next().map_or(2, |(_, executors)| usize::from(*executors)),
            _ => self.faults() + 1,
        }
    }

    /// How many verifiers must have recorded a version: f+1, and one of two.
    pub fn must_record(&self) -> usize {
        if self.replicas == 2 { 1 } else { self.faults() + 1 }
    }

    /// The place at which the request with this one counts as executed: another one in verified mode only, in the same
    /// batch.
    pub fn planned(&self, place: Place) -> Place {
        self.planned.get(&place).copied().unwrap_or(place)
    }

    /// Records an action of a replica; the model executes each batch that is new.
    pub fn record<W: Workload>(&mut self, observed: &Observed, model: &mut Executed<W>) {
        let replica = usize::from(observed.replica);
        match &observed.what {
            What::Delivered { batch, ordered } => {
                self.delivered[replica] = self.delivered[replica].max(*batch);
                if *batch == self.last_batch + 1 {
                    self.last_batch = *batch;
                    self.order.insert(*batch, digest_of(ordered));
                    self.execute(*batch, ordered, model);
                }
                self.forget(model);
            }
            What::Folded { version, order, .. } if !self.victims.contains(&observed.replica) => {
                self.orders.entry((version.number, version.token)).or_insert_with(|| order.clone());
                if self.orders.len() > ORDERS_KEPT {
                    self.orders.pop_first();
                }
            }
            What::Agreed(version) => self.agreed = *version,
            What::Recorded { version, executors } if self.replicas == 2 => {
                let least = self.lineups.entry(version.number).or_insert(*executors);
                *least = (*least).min(*executors);
                if self.lineups.len() > ORDERS_KEPT {
                    self.lineups.pop_first();
                }
            }
            What::Traced(run) => {
                model.record_traced(run, observed.replica, !self.victims.contains(&observed.replica));
            }
            What::Ran { batch, outcomes } => {
                let replicas = usize::from(self.replicas);
                self.results.entry(*batch).or_insert_with(|| vec![None; replicas])[replica] =
                    Some(outcomes.clone());
            }
            What::Executed { batch, outcomes } => {
                let replicas = usize::from(self.replicas);
                let row = self.results.entry(*batch).or_insert_with(|| vec![None; replicas]);
                row[replica] = Some(outcomes.clone());
                model.record_run(*batch, outcomes);
            }
            _ => {}
        }
    }

    /// A request that does not fit its checksum in the log itself is invalid: no replica runs it.
    fn execute<W: Workload>(&mut self, batch: u64, ordered: &Ordered, model: &mut Executed<W>) {
        model.begin_batch(batch, ordered.time_us);
        let is_valid = |request: &order::Request| order::batch::checksum(&request.bytes) == request.checksum;
        let all = 0..ordered.requests.len();
        // A replica that runs requests in another order may come to the same state, but not its clients to theirs.
        let healthy = self.orders.get(&(self.agreed.number, self.agreed.token));
        let healthy = healthy.filter(|_| ordered.plan.is_some() && self.agreed.number == batch);
        let plan = match healthy.or(ordered.plan.as_ref()) {
            Some(plan) => plan.iter().map(|number| *number as usize).collect(),
            None => all.collect::<Vec<_>>(),
        };
        for (turn, number) in plan.into_iter().enumerate() {
            // The pipeline may have added requests of its own behind them.
            let Some(request) = ordered.requests.get(number).filter(|request| is_valid(request)) else {
                continue;
            };
            if ordered.plan.is_some() {
                self.planned.insert(Place::new(batch, number as u16), Place::new(batch, turn as u16));
            }
            if let (Some(behavior), Some(origin)) =
                (crosscheck::behavior::wanted_by(&request.bytes), ordered.origins.get(number))
            {
                // Of two one is enough: where one goes on alone, no other one is left.
                let needed = self.must_record() as u32;
                model.want((*origin, behavior), needed, Place::new(batch, number as u16));
            }
            if let Some(sent) = self.sent.get_mut(&xxh3_128(&request.bytes)) {
                sent.ordered += 1;
                model.apply(sent.command, Place::new(batch, number as u16));
            }
        }
        model.end_batch(batch);
    }

    /// Forgets records that every replica passed long ago.
    fn forget<W: Workload>(&mut self, model: &mut Executed<W>) {
        let oldest = self.delivered.iter().min().copied().unwrap_or(0).saturating_sub(KEPT);
        while self.results.first_key_value().is_some_and(|(batch, _)| *batch < oldest) {
            let Some((batch, _)) = self.results.pop_first() else { return };
            model.forget(batch);
            self.order.remove(&batch);
            self.planned = self.planned.split_off(&Place::new(batch + 1, 0));
        }
    }
}

/// A digest of a batch: its stamp and its requests.
pub fn digest_of(batch: &Ordered) -> u128 {
    let mut bytes = Vec::new();
    for number in [u64::from(batch.origin), batch.named.0, batch.named.1, batch.time_us, batch.seed] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for request in batch.requests() {
        bytes.extend_from_slice(&(request.bytes.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&request.bytes);
    }
    xxh3_128(&bytes)
}

/// Whether a request is a control request of the pipeline (`crosscheck::Action::Order` has the rule).
pub fn is_own(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| *first >= 0xf0)
}
