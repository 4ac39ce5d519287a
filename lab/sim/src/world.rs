//! The environment of a simulated replica: the run's one clock and drawn durations; and the replica's actions for the
//! checkers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use crosscheck::admin::{EvidenceRecord, Position};
use crosscheck::limits;
use crosscheck::snapshot::{Extent, Unfinished};
use crosscheck::stepped::{Observation, ReplyTo, StateSink, TracedRun, World, WriteEnd};
use verify::{StateToken, Version};
use vote::{Packed, Place, digest};
use wire::SplitMix64;
use xxhash_rust::xxh3::xxh3_64;

use crate::disk::{self, SimDisk, SimDiskFile};
use crate::net::{Port, SimNetwork};

/// 2026-01-01, when every run begins.
pub const EPOCH_US: u64 = 1_767_225_600_000_000;

/// How long logs and absences are that make replicas drop, pack and transfer what they have.
#[derive(Clone, Copy, Debug)]
pub struct RunScale {
    /// Bounds of the pipeline.
    pub pipeline: limits::PipelineScale,
    /// Bounds of its ordering engine.
    pub order: order::limits::EngineScale,
    /// Entries by which the leader may be ahead.
    pub window: u64,
    /// Entries that a learner may lack when it is promoted.
    pub learner_lag: u64,
    /// Log entries between two checkpoints of a replica with its log on disk.
    pub entries_per_snapshot: u64,
}

impl RunScale {
    /// As shipped; but logs on disk are shortened in short runs.
    pub fn real() -> Self {
        RunScale {
            pipeline: limits::PipelineScale::default(),
            order: order::limits::EngineScale::default(),
            window: order::limits::WINDOW_ENTRIES,
            learner_lag: order::limits::LEARNER_LAG,
            entries_per_snapshot: 1000,
        }
    }

    /// So small that a pause of a second or two, or a lost memory, reaches all of them.
    pub fn small() -> Self {
        let pipeline = limits::PipelineScale {
            log_kept: 32,
            log_share: 2048,
            piece: 1024,
            until_advice: Duration::from_secs(2),
        };
        let order = order::limits::EngineScale {
            // 20,000 entries per simulated second: twice what the replicas order in it.
            compact_step: 64,
            probed_ticks: 40,
            offer_ticks: 40,
            kept_bytes: 128 << 10,
            primary_window: 16,
            held_bytes: 64 << 10,
            lost_ticks: 40,
        };
        RunScale { pipeline, order, window: 64, learner_lag: 8, entries_per_snapshot: 250 }
    }
}

/// The result of one request at one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestOutcome {
    /// Digest of the objects it touched, and of its reply.
    pub digest: u128,
    /// Digest of its reply.
    pub reply_digest: u128,
    /// Checksum of the request it answers.
    pub request_checksum: u32,
    /// Its position in the schedule.
    pub position: u64,
    /// Ordered time at which it ran, in microseconds since 1970.
    pub time_us: u64,
    /// Digest of the locks whose objects it touched.
    pub locks: u64,
    /// Whether this replica could not execute it.
    pub failed: bool,
}

impl RequestOutcome {
    fn of(result: &vote::RequestResult) -> Self {
        RequestOutcome {
            // Computed from its parts: a fault may have hit the stored digest.
            digest: digest::request(&result.pairs, &result.answer()),
            reply_digest: result.reply_digest,
            request_checksum: result.request_info.checksum,
            position: result.request_info.position,
            time_us: result.request_info.time_us,
            locks: locks(&result.pairs),
            failed: result.failure.is_some(),
        }
    }
}

/// A batch as a replica took it from the order.
#[derive(Clone, Debug)]
pub struct Ordered {
    /// The replica whose clients sent it; of several parts, that of the last one.
    pub origin: u8,
    /// Incarnation and number that the origin gave to it.
    pub named: (u64, u64),
    /// Ordered time in microseconds since 1970.
    pub time_us: u64,
    /// Ordered randomness.
    pub seed: u64,
    /// Its requests.
    pub requests: Vec<order::Request>,
    /// The replicas whose clients sent them.
    pub origins: Vec<u8>,
    /// In verified mode: numbers of the requests in an order in which they may have run one at a time. Else they run in
    /// their order.
    pub plan: Option<Vec<u32>>,
}

impl Ordered {
    /// Of the parts of one batch, in order.
    fn of<'a>(parts: impl IntoIterator<Item = &'a order::Batch>) -> Self {
        let mut ordered = Ordered {
            origin: 0,
            named: (0, 0),
            time_us: 0,
            seed: 0,
            requests: Vec::new(),
            origins: Vec::new(),
            plan: None,
        };
        for part in parts {
            ordered.requests.extend(part.requests());
            ordered.origins.resize(ordered.requests.len(), part.origin);
            ordered.origin = part.origin;
            ordered.named = (part.incarnation, part.number);
            (ordered.time_us, ordered.seed) = (part.time_us, part.seed);
        }
        ordered
    }

    /// Its requests, in order.
    pub fn requests(&self) -> impl Iterator<Item = &order::Request> {
        self.requests.iter()
    }
}

/// An action of a replica ([`Observation`], kept).
#[derive(Clone, Debug)]
pub enum What {
    /// A batch was taken from the order.
    Delivered {
        /// Its number.
        batch: u64,
        /// Its stamp and requests.
        ordered: Ordered,
    },
    /// A batch has all its results. In verified mode: and stays.
    Executed {
        /// Its number.
        batch: u64,
        /// Per request.
        outcomes: Vec<RequestOutcome>,
    },
    /// A request has run that the service had started itself, or that has started others. In verified mode: in a batch
    /// that stays.
    Traced(TracedRun),
    /// A reply passed the gate.
    Released {
        /// The request.
        place: Place,
        /// The replica of its client.
        to: Option<ReplyTo>,
        /// The bytes.
        reply: Bytes,
    },
    /// In verified mode: the reply to a read leaves that took no batch.
    ReadHere {
        /// It is that of the state after this batch.
        batch: u64,
        /// The replica's client.
        to: ReplyTo,
        /// The bytes.
        reply: Bytes,
    },
    /// Objects packed at the turn of a RECOVER.
    Packed {
        /// The turn.
        turn: Place,
        /// Them.
        objects: Vec<Packed>,
    },
    /// Objects that overwrite this replica's.
    Installing {
        /// The turn.
        turn: Place,
        /// Them.
        objects: Vec<Packed>,
    },
    /// The state's digest at a position.
    Digest {
        /// Where.
        position: Position,
        /// All of it.
        digest: u128,
    },
    /// A state can be fetched from this replica.
    StateMade {
        /// Its log index.
        index: u64,
        /// The digest of each piece.
        digests: Vec<u128>,
    },
    /// This replica takes a state of others.
    StateTaken {
        /// Its log index.
        index: u64,
        /// The digest of each piece.
        digests: Vec<u128>,
    },
    /// In verified mode: a state of others is not the one that its proof stands for.
    StateRefused {
        /// The replica that had it alone; none if f+1 had the same.
        from: Option<u8>,
    },
    /// A record of evidence.
    Evidence(EvidenceRecord),
    /// A message to its operator.
    Said(String),
    /// In verified mode: a batch was scheduled, and the order's state after it has this digest.
    Speculated {
        /// Its number.
        batch: u64,
        /// The digest.
        order: u128,
    },
    /// In verified mode: a batch has all its results, and may be rolled back.
    Ran {
        /// Its number.
        batch: u64,
        /// Per request.
        outcomes: Vec<RequestOutcome>,
    },
    /// In verified mode: a batch has ended, with a version.
    Folded {
        /// It.
        version: Version,
        /// The token before.
        parent: StateToken,
        /// Numbers of its requests in an order in which they may have run one at a time.
        order: Vec<u32>,
    },
    /// In verified mode: this replica's executor sends its token.
    Voted {
        /// The view.
        view: u64,
        /// The version.
        version: Version,
        /// The token before.
        parent: StateToken,
    },
    /// In verified mode: a batch stays.
    Stable {
        /// Its version.
        version: Version,
        /// Whether this very version was agreed on.
        is_agreed: bool,
    },
    /// In verified mode: a batch is about to count as delivered and executed, since this version is stable.
    Agreed(Version),
    /// In verified mode: this replica's verifier has recorded this version.
    Recorded {
        /// The version.
        version: Version,
        /// How many executors have to come to it.
        executors: u8,
    },
    /// In verified mode: this replica follows another view, after this version.
    Followed {
        /// The view.
        view: u64,
        /// The version.
        version: Version,
        /// Whether its first batch runs one request at a time.
        sequential: bool,
    },
    /// In verified mode: batches could not be rolled back.
    NotRolledBack {
        /// Whether what takes them back was there.
        was_kept: bool,
    },
    /// In verified mode: its state is not the agreed one.
    Diverged(Version),
    /// In verified mode: batches were rolled back, and whether the tree is that of the objects.
    TookBack {
        /// The version that is left.
        version: Version,
        /// Whether it is.
        is_right: Option<bool>,
    },
    /// In verified mode: the order continues after this batch.
    Rewound {
        /// The batch.
        batch: u64,
        /// The digest of the order's state.
        order: u128,
    },
    /// In verified mode: the state came from other replicas, or is the first one.
    Installed {
        /// Its version.
        version: Version,
        /// The digest of the order's state.
        order: u128,
        /// It takes the place of another one.
        in_place: bool,
    },
}

/// An action of a replica, and the replica.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The replica, from 0.
    pub replica: u8,
    /// The action.
    pub what: What,
}

/// All replicas' actions, collected until the checkers read them.
pub type Journal = Arc<Mutex<Vec<Observed>>>;

type WriteDone = Box<dyn FnOnce(WriteEnd) + Send>;

/// A checkpoint whose bytes are written and not durable yet.
struct SlowWrite {
    /// When it will be, on the clock of the run.
    due_us: u64,
    unfinished: Unfinished<SimDiskFile>,
    index: u64,
    done: WriteDone,
}

/// Takes a checkpoint's pieces, and writes each one at once.
struct SimSink {
    disk: SimDisk,
    network: SimNetwork,
    /// The last sync takes so long.
    sync_us: u64,
    /// The write, until it has ended or failed.
    write: Option<(Unfinished<SimDiskFile>, WriteDone)>,
    /// The process's other writes. Without the process nothing is given up: its file stays as it is.
    writes: Weak<Mutex<Vec<SlowWrite>>>,
}

impl StateSink for SimSink {
    fn put(&mut self, piece: Bytes) {
        let Some((mut unfinished, done)) = self.write.take() else { return };
        match unfinished.append(&self.disk, &piece) {
            Ok(()) => self.write = Some((unfinished, done)),
            Err(error) => done(WriteEnd::Failed(error)),
        }
    }

    fn end(mut self: Box<Self>, index: u64) {
        if let (Some((unfinished, done)), Some(writes)) = (self.write.take(), self.writes.upgrade()) {
            let due_us = self.network.now_us() + self.sync_us;
            writes.lock().expect("nothing panics beside it").push(SlowWrite {
                due_us,
                unfinished,
                index,
                done,
            });
        }
    }

    fn unwritten(&self) -> u64 {
        0
    }
}

impl Drop for SimSink {
    fn drop(&mut self) {
        if let (Some((unfinished, done)), Some(_)) = (self.write.take(), self.writes.upgrade()) {
            unfinished.give_up(&self.disk);
            done(WriteEnd::GivenUp);
        }
    }
}

/// The environment of one process of one replica.
pub struct Surroundings {
    me: u8,
    network: SimNetwork,
    born_us: u64,
    /// Error of its wall clock in microseconds.
    pub skew_us: i64,
    /// Microseconds for which its machine was suspended.
    pub asleep_us: u64,
    rng: RefCell<SplitMix64>,
    journal: Journal,
    scale: RunScale,
    disk: Option<SimDisk>,
    /// Checkpoints on their way to the disk.
    writes: Arc<Mutex<Vec<SlowWrite>>>,
    /// In verified mode.
    is_verified: bool,
    /// In verified mode: the batches that are scheduled and not stable.
    unstable: BTreeMap<u64, UnstableBatch>,
}

/// In verified mode: a batch that may be rolled back, and what its execution has left so far.
struct UnstableBatch {
    ordered: Ordered,
    outcomes: Vec<RequestOutcome>,
    traced: Vec<TracedRun>,
}

impl Surroundings {
    /// The environment of a process that begins now.
    pub fn new(me: u8, network: SimNetwork, skew_us: i64, rng: SplitMix64, journal: Journal) -> Self {
        let born_us = network.now_us();
        Surroundings {
            me,
            network,
            born_us,
            skew_us,
            asleep_us: 0,
            rng: RefCell::new(rng),
            journal,
            scale: RunScale::real(),
            disk: None,
            writes: Arc::default(),
            is_verified: false,
            unstable: BTreeMap::new(),
        }
    }

    /// With a disk to write states to.
    pub fn with_disk(self, disk: Option<SimDisk>) -> Self {
        Surroundings { disk, ..self }
    }

    /// With these bounds.
    pub fn with_scale(self, scale: RunScale) -> Self {
        Surroundings { scale, ..self }
    }

    /// Ends the writes of checkpoints whose time has come.
    pub fn end_writes(&self) {
        let Some(disk) = &self.disk else { return };
        let now_us = self.network.now_us();
        let mut writes = self.writes.lock().expect("nothing panics beside it");
        let due: Vec<SlowWrite> = writes.extract_if(.., |write| write.due_us <= now_us).collect();
        drop(writes);
        for SlowWrite { unfinished, index, done, .. } in due {
            done(unfinished.finish(disk).map_or_else(WriteEnd::Failed, |()| WriteEnd::Kept(index)));
        }
    }

    /// The run's clock, as far as this replica's step has come.
    fn local_us(&self) -> u64 {
        self.network.now_us() + self.network.late_us(self.me)
    }

    /// A batch has all its results. In verified mode it may be rolled back.
    fn on_executed(&mut self, batch: u64, results: &[vote::RequestResult]) -> What {
        let outcomes: Vec<RequestOutcome> = results.iter().map(RequestOutcome::of).collect();
        match self.unstable.get_mut(&batch) {
            Some(unstable) => {
                unstable.outcomes.clone_from(&outcomes);
                What::Ran { batch, outcomes }
            }
            None => What::Executed { batch, outcomes },
        }
    }

    fn record(&self, what: What) {
        // After its power has failed a process does nothing, although its step goes on.
        if self.disk.as_ref().is_some_and(SimDisk::is_dead) {
            return;
        }
        let mut journal = self.journal.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        journal.push(Observed { replica: self.me, what });
    }
}

/// Digest of a state of the order.
fn of_order(state: &order::State) -> u128 {
    digest::content(&state.encode())
}

/// Digest of the locks behind which these objects are.
fn locks(pairs: &vote::Pairs) -> u64 {
    let mut locks: Vec<u32> = pairs.iter().map(|pair| pair.region_id).collect();
    locks.dedup(); // Pairs are sorted by them.
    let bytes: Vec<u8> = locks.into_iter().flat_map(u32::to_le_bytes).collect();
    xxh3_64(&bytes)
}

impl World for Surroundings {
    type Net = Port;

    fn now_us(&self) -> u64 {
        // At the start of a suspension `asleep_us` may exceed the elapsed time.
        (self.local_us() - self.born_us).saturating_sub(self.asleep_us)
    }

    fn wall_us(&self) -> u64 {
        (EPOCH_US + self.local_us()).saturating_add_signed(self.skew_us)
    }

    /// The durations of handlers are drawn, so that slices of the order thread's time end anywhere.
    fn stopwatch(&self) -> impl Fn() -> Duration {
        let elapsed = RefCell::new(0);
        let begun_us = self.network.late_us(self.me);
        move || {
            let mut elapsed = elapsed.borrow_mut();
            *elapsed += self.rng.borrow_mut().within(1, 120);
            Duration::from_micros(*elapsed + self.network.late_us(self.me) - begun_us)
        }
    }

    fn measured(&self, _time: Duration) -> Duration {
        Duration::from_micros(100)
    }

    fn say(&self, what: fmt::Arguments<'_>) {
        self.record(What::Said(what.to_string()));
    }

    fn keep(
        &self,
        directory: &Path,
        extent: Extent,
        done: impl FnOnce(WriteEnd) + Send + 'static,
    ) -> io::Result<Box<dyn StateSink>> {
        let Some(disk) = self.disk.clone() else { return Err(io::ErrorKind::NotFound.into()) };
        let write: Option<(_, WriteDone)> = match Unfinished::begin(&disk, directory, extent) {
            Ok(unfinished) => Some((unfinished, Box::new(done))),
            Err(error) => {
                done(WriteEnd::Failed(error));
                None
            }
        };
        let sync_us = disk::draw_sync_us(&mut self.rng.borrow_mut());
        let (network, writes) = (self.network.clone(), Arc::downgrade(&self.writes));
        Ok(Box::new(SimSink { disk, network, sync_us, write, writes }))
    }

    fn entries_per_snapshot(&self) -> u64 {
        self.scale.entries_per_snapshot
    }

    fn scale(&self) -> limits::PipelineScale {
        self.scale.pipeline
    }

    fn see(&mut self, seen: Observation<'_>) {
        let what = match seen {
            Observation::Delivered { batch, requests } => {
                What::Delivered { batch, ordered: Ordered::of([requests]) }
            }
            Observation::Executed { batch, results } => self.on_executed(batch, results),
            Observation::Traced(run) => match self.unstable.get_mut(&run.batch) {
                Some(unstable) => return unstable.traced.push(run.clone()),
                // Its batch has been rolled back.
                None if self.is_verified => return,
                None => What::Traced(run.clone()),
            },
            Observation::Released { place, to, reply } => What::Released { place, to, reply: reply.clone() },
            Observation::ReadHere { batch, to, reply } => What::ReadHere { batch, to, reply: reply.clone() },
            Observation::Packed { turn, objects } => What::Packed { turn, objects: objects.to_vec() },
            Observation::Installing { turn, objects } => What::Installing { turn, objects: objects.to_vec() },
            Observation::Digest { position, digest } => What::Digest { position, digest },
            Observation::StateMade { index, digests } => What::StateMade { index, digests: digests.to_vec() },
            Observation::StateTaken { index, digests } => {
                What::StateTaken { index, digests: digests.to_vec() }
            }
            Observation::StateRefused { from } => What::StateRefused { from },
            Observation::Evidence(record) => What::Evidence(record.clone()),
            Observation::Speculated { batch, parts, order } => {
                let ordered = Ordered::of(parts.iter().map(|part| &part.batch));
                let unstable = UnstableBatch { ordered, outcomes: Vec::new(), traced: Vec::new() };
                self.unstable.insert(batch, unstable);
                What::Speculated { batch, order: of_order(order) }
            }
            Observation::Folded { version, parent, order } => {
                let order = order.to_vec();
                if let Some(unstable) = self.unstable.get_mut(&version.number) {
                    unstable.ordered.plan = Some(order.clone());
                }
                What::Folded { version, parent, order }
            }
            Observation::Voted { view, version, parent } => What::Voted { view, version, parent },
            Observation::NotRolledBack { was_kept } => What::NotRolledBack { was_kept },
            Observation::Stable { version, is_agreed } => {
                // What is stable is what the checkers of other modes see when it is delivered and executed.
                let batch = version.number;
                if let Some(UnstableBatch { ordered, outcomes, traced }) = self.unstable.remove(&batch) {
                    self.record(What::Agreed(version));
                    self.record(What::Delivered { batch, ordered });
                    traced.into_iter().for_each(|run| self.record(What::Traced(run)));
                    self.record(What::Executed { batch, outcomes });
                }
                What::Stable { version, is_agreed }
            }
            Observation::Recorded(record) => {
                What::Recorded { version: record.version, executors: record.lineup.executors.len() }
            }
            Observation::Followed { view, version, sequential } => {
                What::Followed { view, version, sequential }
            }
            Observation::Diverged(version) => What::Diverged(version),
            Observation::TookBack { version, is_right } => What::TookBack { version, is_right },
            Observation::Rewound { batch, order } => {
                let _dropped = self.unstable.split_off(&(batch + 1));
                What::Rewound { batch, order: of_order(order) }
            }
            Observation::Installed { version, order, in_place } => {
                self.is_verified = true;
                self.unstable.clear();
                What::Installed { version, order: of_order(order), in_place }
            }
        };
        self.record(what);
    }
}
