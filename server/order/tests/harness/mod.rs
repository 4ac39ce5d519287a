//! A whole cluster in one thread from one seed: replicas, a network that misbehaves as configured, and the checkers of
//! our promises.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use order::{
    Config, Decoder, Delivered, LogStore, MemoryLog, Orderer, Output, RaftConfig, RaftEngine, State, frame,
};
use wire::SplitMix64;

pub type Engine = RaftEngine<Box<dyn LogStore>>;

/// A client's request as it was decoded.
pub fn request(bytes: Bytes) -> order::Request {
    order::Request { checksum: order::batch::checksum(&bytes), stream: 0, bytes }
}

/// How the network misbehaves, in frames per thousand.
#[derive(Clone, Copy, Default)]
pub struct Weather {
    pub drop: u64,
    pub duplicate: u64,
    /// Flips a random bit: the receiver resets the connection.
    pub corrupt: u64,
    /// Milliseconds a frame takes at most; beyond 0 frames overtake each other if `reorder`.
    pub delay: u64,
    pub reorder: bool,
}

/// The requests that one replica's service has executed: their ids, in order.
pub type Service = Vec<u64>;

pub struct Replica {
    pub orderer: Orderer<Engine>,
    pub service: Service,
    pub last_time: u64,
    /// States at cuts, as the pipeline would keep them for transfers and on disk.
    pub cuts: BTreeMap<u64, (State, Service)>,
    pub fetching: Option<(u64, u64)>,
    /// States that were offered without a CHECKPOINT in the log.
    pub unordered_cuts: u32,
    pub stopped: Option<String>,
    /// Index at which its log ended when its leader assumed that it continues.
    pub lacking: Option<u64>,
    /// Leaders against which it called an election because of their stamps.
    pub stamps_refused: Vec<u8>,
    /// Difference of its clock from the others', in microseconds.
    pub clock_us: i64,
    /// Begin and end of its log, and the entry of its state, if it could not use the log.
    pub dropped: Option<(u64, u64, u64)>,
    /// Takes no delivery, as when its executors hang.
    pub stuck: bool,
    /// Takes no batch of others: it is up, and orders nothing for them.
    pub deaf: bool,
    pub leader: Option<u8>,
    pub joined: bool,
    pub members: order::MemberSet,
}

pub struct Cluster {
    pub rng: SplitMix64,
    pub now: u64,
    pub replicas: Vec<Option<Replica>>,
    pub weather: Weather,
    /// Pairs that receive nothing from each other.
    pub cut_links: BTreeSet<(u8, u8)>,
    pub acked: BTreeSet<u64>,
    pub submitted: u64,
    pub compacting: bool,
    /// Bytes of the log that replicas which start from now on keep for members that lack them.
    pub kept_bytes: u64,
    pub transfer_ms: u64,
    /// How much later than now a stamp may be, in microseconds; none: any stamp is accepted.
    pub latest_us: Option<u64>,
    /// Whether replicas that start from now on seal the engine's numbers.
    pub seals_numbers: bool,
    /// How replicas that start from now on leave out the requests of their followers' own batches.
    pub own_entries: order::OwnEntries,
    /// Bytes of the bodies of all frames of this sender, receiver and kind.
    pub sent: BTreeMap<(u8, u8, order::FrameKind), u64>,
    /// Whether replicas that start from now on get the command to begin the group.
    pub founds: bool,
    /// The state that a group of replicas which start from now on begins with.
    pub begins_with: Option<(State, Service)>,
    wire: BTreeMap<(u64, u64), (u8, u8, Vec<u8>)>,
    last_arrival: BTreeMap<(u8, u8), u64>,
    sequence: u64,
    processes: u64,
}

impl Cluster {
    pub fn new(replicas: u8, seed: u64) -> Self {
        let stores = (0..replicas).map(|_| (Box::new(MemoryLog) as Box<dyn LogStore>, vec![])).collect();
        Self::with_stores(seed, stores)
    }

    pub fn with_stores(seed: u64, stores: Vec<(Box<dyn LogStore>, Vec<order::Record>)>) -> Self {
        let mut cluster = Cluster {
            rng: SplitMix64::new(seed),
            now: 0,
            replicas: stores.iter().map(|_| None).collect(),
            weather: Weather::default(),
            cut_links: BTreeSet::new(),
            acked: BTreeSet::new(),
            submitted: 0,
            compacting: false,
            kept_bytes: order::limits::KEPT_BYTES,
            transfer_ms: 30,
            latest_us: Some(500_000),
            seals_numbers: true,
            own_entries: order::OwnEntries::default(),
            sent: BTreeMap::new(),
            founds: true,
            begins_with: None,
            wire: BTreeMap::new(),
            last_arrival: BTreeMap::new(),
            sequence: 0,
            processes: 0,
        };
        for (slot, (store, records)) in (0u8..).zip(stores) {
            cluster.start(slot, store, records, BTreeMap::new());
        }
        cluster
    }

    pub fn size(&self) -> u8 {
        self.replicas.len() as u8
    }

    /// Starts a process in `slot` with the contents of its disk: a log and states at checkpoints.
    pub fn start(
        &mut self,
        slot: u8,
        store: Box<dyn LogStore>,
        records: Vec<order::Record>,
        cuts: BTreeMap<u64, (State, Service)>,
    ) {
        let size = self.size();
        let nonce = self.rng.next_u64();
        self.processes += 1;
        let (state, mut service) = cuts.last_key_value().map(|(_, cut)| cut.clone()).unwrap_or_default();
        let begins_with = self.begins_with.as_ref().map(|(state, _)| order::BeginningState {
            digest: 1 + state.index,
            index: state.index,
            incarnation: state.last_incarnation(),
        });
        let raft = RaftConfig {
            window: 256,
            seals_numbers: self.seals_numbers,
            own_entries: self.own_entries,
            found: self.founds,
            begins_with: begins_with.unwrap_or_default(),
            scale: order::limits::EngineScale { kept_bytes: self.kept_bytes, ..Default::default() },
            ..RaftConfig::new(slot, size, nonce, nonce)
        };
        let engine = RaftEngine::new(raft, store, records, state.index).expect("the log opens");
        let config = Config { window: 256, ..Config::new(slot, size, nonce) };
        let mut last_time = state.time_us;
        let mut orderer = Orderer::new(config, engine, state);
        if let Some((state, begun)) = self.begins_with.clone() {
            (last_time, service) = (state.time_us, begun);
            orderer.begin_after(state);
        }
        cuts.keys().for_each(|&cut| orderer.state_available(cut));
        self.replicas[usize::from(slot)] = Some(Replica {
            orderer,
            service,
            last_time,
            cuts,
            fetching: None,
            unordered_cuts: 0,
            stopped: None,
            lacking: None,
            stamps_refused: Vec::new(),
            clock_us: 0,
            dropped: None,
            stuck: false,
            deaf: false,
            leader: None,
            joined: false,
            members: order::MemberSet::default(),
        });
        for peer in 0..size {
            if peer != slot && self.replicas[usize::from(peer)].is_some() {
                self.reconnect(slot, peer);
            }
        }
    }

    pub fn start_empty(&mut self, slot: u8) {
        self.start(slot, Box::new(MemoryLog), vec![], BTreeMap::new());
    }

    /// SIGKILL: the process and its connections are gone.
    pub fn kill(&mut self, slot: u8) -> Replica {
        let gone = self.replicas[usize::from(slot)].take().expect("it runs");
        self.wire.retain(|_, (from, to, _)| *from != slot && *to != slot);
        for peer in (0..self.size()).filter(|&peer| peer != slot) {
            if let Some(replica) = &mut self.replicas[usize::from(peer)] {
                replica.orderer.peer_down(slot);
            }
        }
        gone
    }

    pub fn replica(&mut self, slot: u8) -> &mut Replica {
        self.replicas[usize::from(slot)].as_mut().expect("it runs")
    }

    pub fn running(&self) -> Vec<u8> {
        (0..self.size()).filter(|&slot| self.replicas[usize::from(slot)].is_some()).collect()
    }

    /// The replica that leads in the highest term.
    pub fn leader(&self) -> Option<u8> {
        let engine_status =
            |slot: &u8| self.replicas[usize::from(*slot)].as_ref().unwrap().orderer.engine_status();
        self.running()
            .into_iter()
            .filter(|slot| engine_status(slot).is_leader)
            .max_by_key(|slot| engine_status(slot).term)
    }

    /// For so many milliseconds, each replica that runs submits a request with this chance in each of them.
    pub fn load(&mut self, milliseconds: u64, per_mille: u64) {
        for _ in 0..milliseconds {
            for slot in self.running() {
                if self.rng.chance(per_mille) {
                    self.submit(slot);
                }
            }
            self.step();
        }
    }

    pub fn submit(&mut self, slot: u8) -> bool {
        self.submit_long(slot, 0)
    }

    /// Submits a request of so many bytes.
    pub fn submit_long(&mut self, slot: u8, len: usize) -> bool {
        let id = self.submitted + 1;
        let mut bytes = [&[0u8][..], &id.to_le_bytes()].concat();
        bytes.resize(len.max(bytes.len()), 7);
        let taken = self.submit_bytes(slot, bytes.into(), id);
        self.submitted += u64::from(taken);
        taken
    }

    pub fn submit_checkpoint(&mut self, slot: u8) {
        self.submit_bytes(slot, Bytes::from_static(b"\x01cut"), 0);
    }

    fn submit_bytes(&mut self, slot: u8, bytes: Bytes, tag: u64) -> bool {
        let cost = bytes.len();
        self.replica(slot).orderer.submit(request(bytes), tag, cost).is_ok()
    }

    pub fn reconnect(&mut self, a: u8, b: u8) {
        self.wire.retain(|_, (from, to, _)| (*from, *to) != (a, b) && (*from, *to) != (b, a));
        for (slot, peer) in [(a, b), (b, a)] {
            if let Some(replica) = &mut self.replicas[usize::from(slot)] {
                replica.orderer.peer_down(peer);
                replica.orderer.peer_up(peer);
            }
        }
    }

    /// One millisecond passes.
    pub fn step(&mut self) {
        self.now += 1;
        self.deliver_frames();
        for slot in self.running() {
            if (self.now + u64::from(slot) * 7).is_multiple_of(25) {
                let latest_us = self.latest_us;
                let now_us = 1_000 * self.now + 1_000_000_000;
                let replica = self.replica(slot);
                if let Some(latest_us) = latest_us {
                    replica.orderer.accept_stamps(now_us + latest_us);
                }
                replica.orderer.tick();
                self.compact(slot);
            }
            self.fetch_state(slot);
            self.drive(slot);
        }
    }

    pub fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.step();
        }
    }

    /// Steps until `done` returns true; panics after `limit` milliseconds.
    pub fn run_until(&mut self, limit: u64, what: &str, done: impl Fn(&mut Cluster) -> bool) -> u64 {
        let start = self.now;
        while !done(self) {
            assert!(self.now - start < limit, "{what}: not within {limit} ms; {}", self.describe());
            self.step();
        }
        self.now - start
    }

    /// Ends the network faults and waits until every request submitted to live replicas is executed everywhere.
    pub fn run_until_idle(&mut self) {
        self.weather = Weather { delay: 1, ..Weather::default() };
        self.cut_links.clear();
        self.run_until(20_000, "settling", |cluster| {
            let lengths: BTreeSet<usize> =
                cluster.replicas.iter().flatten().map(|r| r.service.len()).collect();
            let idle = |r: &Replica| r.orderer.waiting() == (0, 0, 0) && r.fetching.is_none();
            let voters = cluster.replicas.iter().flatten().map(|r| r.members.voters.count_ones()).min();
            let enough = voters.unwrap_or(0) as usize >= cluster.running().len();
            let ends =
                |r: &Replica| [r.orderer.engine_status().commit_index, r.orderer.engine_status().last_index];
            let ends: BTreeSet<u64> = cluster.replicas.iter().flatten().flat_map(ends).collect();
            cluster.leader().is_some()
                && ends.len() == 1
                && lengths.len() == 1
                && enough
                && cluster.replicas.iter().flatten().all(idle)
        });
        self.check();
    }

    /// The promises: agreement, exactly once, no acknowledged request is lost.
    pub fn check(&self) {
        let longest = self.replicas.iter().flatten().map(|r| &r.service).max_by_key(|s| s.len()).unwrap();
        for replica in self.replicas.iter().flatten() {
            assert_eq!(replica.service[..], longest[..replica.service.len()], "agreement");
        }
        let once: BTreeSet<u64> = longest.iter().copied().collect();
        assert_eq!(once.len(), longest.len(), "exactly once");
        let lost: Vec<u64> = self.acked.difference(&once).copied().collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    }

    pub fn describe(&self) -> String {
        let mut text = format!("at {} ms", self.now);
        for (slot, replica) in self.replicas.iter().enumerate() {
            let Some(r) = replica else { continue };
            let s = r.orderer.engine_status();
            text += &format!(
                "\n  {slot}: leader {:?} term {} log {}..{} commit {} delivered {} executed {} waiting {:?} \
                    members {:?} stopped {:?} fetching {:?}",
                s.leader,
                s.term,
                s.first_index,
                s.last_index,
                s.commit_index,
                r.orderer.state().index,
                r.service.len(),
                r.orderer.waiting(),
                s.members,
                r.stopped,
                r.fetching
            );
        }
        text
    }

    /// Whether the next millisecond brings frames to this replica.
    pub fn has_frames_for(&self, slot: u8) -> bool {
        self.wire.iter().any(|(key, (_, to, _))| key.0 <= self.now + 1 && *to == slot)
    }

    pub fn deliver_frames(&mut self) {
        while let Some(entry) = self.wire.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (from, to, bytes) = entry.remove();
            let Some(replica) = &mut self.replicas[usize::from(to)] else { continue };
            let mut decoder = Decoder::new(from, order::limits::FRAME_BODY);
            decoder.feed(&bytes);
            match decoder.next() {
                Ok(Some(frame)) if replica.deaf && frame.kind == order::FrameKind::Forward => {}
                Ok(Some(frame)) => {
                    let _ = replica.orderer.on_frame(from, frame.kind, frame.body);
                }
                Ok(None) => unreachable!("frames arrive whole"),
                Err(error) => {
                    assert_eq!(error.peer(), from);
                    self.reconnect(from, to);
                }
            }
        }
    }

    fn drive(&mut self, slot: u8) {
        let now_us = 1_000 * self.now + 1_000_000_000;
        let replica = self.replica(slot);
        replica.orderer.pump(now_us.saturating_add_signed(replica.clock_us));
        self.perform(slot);
        if self.replica(slot).orderer.needs_persist() {
            self.replica(slot).orderer.persist();
            self.perform(slot);
        }
        while !self.replica(slot).stuck
            && let Some(delivered) = self.replica(slot).orderer.poll_delivery()
        {
            self.execute(slot, delivered);
        }
    }

    fn perform(&mut self, slot: u8) {
        while let Some(output) = self.replica(slot).orderer.poll_output() {
            match output {
                Output::Send { to, kind, body, .. } => {
                    let mut bytes = Vec::new();
                    *self.sent.entry((slot, to, kind)).or_default() += body.joined().len() as u64;
                    frame::encode(kind, slot, &body.joined(), &mut bytes);
                    self.transmit(slot, to, bytes);
                }
                Output::LeaderChanged { leader, .. } => self.replica(slot).leader = leader,
                Output::Established { joined, .. } => self.replica(slot).joined = joined,
                Output::Membership { members, .. } => self.replica(slot).members = members,
                Output::CheckpointWanted { ordered: true } => self.submit_checkpoint(slot),
                Output::CheckpointWanted { ordered: false } => self.cut_unordered(slot),
                Output::NeedState { index, .. } => {
                    let done = self.now + self.transfer_ms;
                    self.replica(slot).fetching = Some((index, done));
                }
                // Executed, though no reply can reach the client: the checker still expects each of them once.
                Output::Skipped { tags } => self.acked.extend(tags.into_iter().filter(|&tag| tag != 0)),
                Output::StampsRefused { leader, .. } => {
                    let replica = self.replica(slot);
                    replica.stamps_refused.push(leader);
                }
                Output::Lacking { last, .. } => self.replica(slot).lacking = Some(last),
                Output::LogDropped { begins_after, ends_at, state } => {
                    self.replica(slot).dropped = Some((begins_after, ends_at, state));
                }
                Output::Removed => self.give_up_log(slot, "removed".into()),
                Output::OlderCopy { index, incarnation, number } => {
                    let (incarnation, start) = incarnation;
                    let why = format!(
                        "an older copy: entry {index} is batch {number} of start {start} of incarnation {incarnation}"
                    );
                    self.give_up_log(slot, why);
                }
                Output::FailStop(reason) => self.replica(slot).stopped = Some(reason.to_string()),
            }
        }
    }

    /// The state as it is, which nobody else makes at this entry.
    fn cut_unordered(&mut self, slot: u8) {
        let replica = self.replica(slot);
        let (index, state) = (replica.orderer.state().index, replica.orderer.state().clone());
        let service = replica.service.clone();
        replica.cuts.insert(index, (state, service));
        replica.unordered_cuts += 1;
        replica.orderer.state_available(index);
    }

    fn give_up_log(&mut self, slot: u8, why: String) {
        let replica = self.replica(slot);
        replica.orderer.forget().expect("the log can be deleted");
        replica.stopped = Some(why);
    }

    fn execute(&mut self, slot: u8, delivered: Delivered) {
        let state = self.replica(slot).orderer.state().clone();
        let replica = self.replica(slot);
        assert!(delivered.batch.time_us > replica.last_time, "ordered time grows");
        replica.last_time = delivered.batch.time_us;
        let mut cut = false;
        for request in delivered.batch.requests() {
            assert!(request.is_intact());
            match request.bytes[0] {
                0 => replica.service.push(u64::from_le_bytes(request.bytes[1..9].try_into().unwrap())),
                _ => cut = true,
            }
        }
        if cut {
            let service = replica.service.clone();
            replica.cuts.insert(delivered.index, (state, service));
            while replica.cuts.len() > 2 {
                replica.cuts.pop_first();
            }
            replica.orderer.state_available(delivered.index);
        }
        self.acked.extend(delivered.tags.into_iter().filter(|&tag| tag != 0));
    }

    fn fetch_state(&mut self, slot: u8) {
        let Some((index, done)) = self.replica(slot).fetching else { return };
        if self.now < done {
            return;
        }
        let found = self.replicas.iter().flatten().find_map(|r| r.cuts.get(&index).cloned());
        let replica = self.replica(slot);
        replica.fetching = None;
        let Some((state, service)) = found else { return replica.orderer.state_lost(index) };
        if replica.orderer.installed(index, state.clone()) {
            replica.last_time = state.time_us;
            replica.service = service.clone();
            replica.cuts = BTreeMap::from([(index, (state, service))]);
        }
    }

    fn compact(&mut self, slot: u8) {
        if self.compacting {
            let replica = self.replica(slot);
            let to = replica.cuts.last_key_value().map_or(0, |(&cut, _)| cut);
            while replica.orderer.compact_to(to) {}
        }
    }

    fn transmit(&mut self, from: u8, to: u8, mut bytes: Vec<u8>) {
        let Weather { drop, duplicate, corrupt, delay, reorder } = self.weather;
        if self.cut_links.contains(&(from, to)) || self.rng.chance(drop) {
            return;
        }
        if self.rng.chance(corrupt) {
            let bit = self.rng.modulo(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = 1 + u64::from(self.rng.chance(duplicate));
        for _ in 0..copies {
            let mut at = self.now + self.rng.modulo(delay + 1);
            let last = self.last_arrival.entry((from, to)).or_default();
            if !reorder {
                at = at.max(*last);
                *last = at;
            }
            self.sequence += 1;
            self.wire.insert((at, self.sequence), (from, to, bytes.clone()));
        }
    }
}
