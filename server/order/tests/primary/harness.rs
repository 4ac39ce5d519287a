//! Replicas with a primary in one thread from one seed. The harness plays the part of the agreement: it decides which
//! batches are stable, and when a view begins after which one.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use order::{
    Config, Decoder, Delivered, FrameKind, Orderer, Output, PrimaryConfig, PrimaryEngine, PrimaryView,
    Request, State, frame,
};
use wire::{SplitMix64, mix};

use crate::harness::{Weather, request};

/// Batches that a replica executes beyond the stable one.
pub const AHEAD: usize = 8;

/// What a replica has after one batch of the primary.
#[derive(Clone, Debug, Default)]
pub struct Version {
    pub number: u64,
    /// Equal for equal histories.
    pub token: u64,
    pub state: State,
    /// Requests of this batch.
    pub ids: Vec<u64>,
    /// Own requests of this batch.
    pub tags: Vec<u64>,
    pub sequential: bool,
}

pub struct Replica {
    pub orderer: Orderer<PrimaryEngine>,
    /// The stable version, and those beyond it.
    pub versions: Vec<Version>,
    /// The version in work: some parts of its batch were delivered.
    part: Option<Version>,
    pub view: u64,
    pub stopped: Option<String>,
    pub skipped: Vec<u64>,
    pub blamed: Vec<order::Blame>,
    /// Takes no delivery, as when its executors hang.
    pub stuck: bool,
    /// Checkpoints that it has ordered, by number.
    pub cuts: BTreeMap<u64, Version>,
    pub fetching: Option<u64>,
    /// States that it took instead of batches.
    pub installed: usize,
    next_id: u64,
}

impl Replica {
    pub fn last(&self) -> &Version {
        self.versions.last().expect("the stable one is there")
    }

    pub fn stable(&self) -> u64 {
        self.versions[0].number
    }

    /// Takes back everything after `number`.
    fn roll_back(&mut self, number: u64, forged: Option<fn(&State, &State) -> State>) {
        let newest = self.part.take().map_or_else(|| self.last().state.clone(), |part| part.state);
        self.versions.retain(|version| version.number <= number);
        let state = self.last().state.clone();
        self.orderer.rewind(forged.map_or(state.clone(), |forge| forge(&state, &newest)));
    }
}

pub struct Cluster {
    pub rng: SplitMix64,
    pub now: u64,
    pub replicas: Vec<Option<Replica>>,
    pub weather: Weather,
    pub cut_links: BTreeSet<(u8, u8)>,
    pub view: PrimaryView,
    /// What was agreed on: token and requests of each batch, from number 1.
    pub chain: Vec<(u64, Vec<u64>)>,
    /// Requests whose replies could leave.
    pub acked: BTreeSet<u64>,
    pub submitted: BTreeSet<u64>,
    /// Requests of replicas that died: they may be executed or not.
    pub orphans: BTreeSet<u64>,
    /// Replicas beyond the first that need the same token.
    pub quorum: usize,
    /// A protection that is removed: what a rewind gives instead of the right state, from that and the newest.
    pub forged: Option<fn(&State, &State) -> State>,
    /// Kinds of frames of the engine that are lost, by their first byte.
    pub loses: Option<(FrameKind, u8)>,
    /// Whether replicas keep their batches until they are stable.
    pub keeps: bool,
    /// Whether anything becomes stable.
    pub agrees: bool,
    /// It learns of no view.
    pub late: Option<u8>,
    begin: BTreeMap<(u64, u8), PrimaryView>,
    wire: BTreeMap<(u64, u64), (u8, u8, Vec<u8>)>,
    last_arrival: BTreeMap<(u8, u8), u64>,
    sequence: u64,
    incarnations: u32,
}

impl Cluster {
    pub fn new(replicas: u8, seed: u64) -> Self {
        Cluster::with(replicas, seed, true)
    }

    pub fn with(replicas: u8, seed: u64, keeps: bool) -> Self {
        let executors = (1u16 << replicas) - 1;
        let mut cluster = Cluster {
            rng: SplitMix64::new(seed),
            now: 0,
            replicas: (0..replicas).map(|_| None).collect(),
            weather: Weather::default(),
            cut_links: BTreeSet::new(),
            view: PrimaryView { number: 1, primary: 0, executors, next: 1, sequential: false },
            chain: Vec::new(),
            acked: BTreeSet::new(),
            submitted: BTreeSet::new(),
            orphans: BTreeSet::new(),
            quorum: 1,
            forged: None,
            loses: None,
            keeps,
            agrees: true,
            late: None,
            begin: BTreeMap::new(),
            wire: BTreeMap::new(),
            last_arrival: BTreeMap::new(),
            sequence: 0,
            incarnations: 0,
        };
        for slot in 0..replicas {
            cluster.start(slot);
        }
        cluster
    }

    /// A process without memory begins in `slot`; it learns of the view some milliseconds later.
    pub fn start(&mut self, slot: u8) {
        self.incarnations += 1;
        let size = self.replicas.len() as u8;
        let config =
            Config { rewinds: self.keeps, streams: true, ..Config::new(slot, size, self.rng.next_u64()) };
        let engine = PrimaryEngine::new(
            PrimaryConfig { slot, replicas: size, incarnation: self.incarnations, start: 1 },
            0,
        );
        self.replicas[usize::from(slot)] = Some(Replica {
            orderer: Orderer::new(config, engine, State::default()),
            versions: vec![Version::default()],
            part: None,
            view: 0,
            stopped: None,
            skipped: Vec::new(),
            blamed: Vec::new(),
            stuck: false,
            cuts: BTreeMap::new(),
            fetching: None,
            installed: 0,
            next_id: u64::from(self.incarnations) << 32,
        });
        for peer in (0..size).filter(|peer| *peer != slot) {
            if self.replicas[usize::from(peer)].is_some() {
                self.reconnect(slot, peer);
            }
        }
        // It may learn where the view began, or only what was agreed on last.
        let knows_last = self.now > 0 && self.rng.chance(500);
        let next = if knows_last { self.chain.len() as u64 + 1 } else { self.view.next };
        let at = self.now + 1 + self.rng.modulo(5);
        if self.late != Some(slot) {
            self.begin.insert((at, slot), PrimaryView { next, ..self.view });
        }
    }

    /// SIGKILL: the process and its connections are gone.
    pub fn kill(&mut self, slot: u8) {
        let gone = self.replicas[usize::from(slot)].take().expect("it runs");
        let incarnation = gone.next_id >> 32;
        let unanswered =
            self.submitted.iter().filter(|id| **id >> 32 == incarnation && !self.acked.contains(id));
        self.orphans.extend(unanswered.copied().collect::<Vec<_>>());
        self.wire.retain(|_, (from, to, _)| *from != slot && *to != slot);
        self.begin.retain(|(_, of), _| *of != slot);
        for peer in (0..self.replicas.len() as u8).filter(|peer| *peer != slot) {
            if let Some(replica) = &mut self.replicas[usize::from(peer)] {
                replica.orderer.peer_down(slot);
            }
        }
    }

    pub fn replica(&mut self, slot: u8) -> &mut Replica {
        self.replicas[usize::from(slot)].as_mut().expect("it runs")
    }

    pub fn running(&self) -> Vec<u8> {
        (0..self.replicas.len() as u8).filter(|slot| self.replicas[usize::from(*slot)].is_some()).collect()
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

    pub fn submit(&mut self, slot: u8) {
        let replica = self.replica(slot);
        let id = replica.next_id + 1;
        let bytes = Bytes::copy_from_slice(&[&[0u8][..], &id.to_le_bytes()].concat());
        let request = Request { checksum: order::batch::checksum(&bytes), stream: stream_of(id), bytes };
        if replica.orderer.submit(request, id, 9).is_ok() {
            replica.next_id = id;
            self.submitted.insert(id);
        }
    }

    /// Submits at random replicas while `milliseconds` pass.
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

    /// The number up to which some running replica has executed what was agreed on, and beyond it in this view.
    pub fn executed(&self) -> u64 {
        let in_view = self.replicas.iter().flatten().filter(|replica| replica.view == self.view.number);
        in_view.map(|replica| replica.last().number).max().unwrap_or(0)
    }

    /// A view begins after batch `base`: the agreed one, or one that a running replica in this view has executed.
    pub fn change_view(&mut self, primary: u8, base: u64, executors: u16) {
        let in_view =
            self.replicas.iter().flatten().filter(|replica| replica.view == self.view.number && base > 0);
        let chosen: Vec<Version> = in_view
            .filter(|replica| replica.last().number >= base)
            .map(|replica| replica.versions.clone())
            .next()
            .unwrap_or_default();
        assert!(base >= self.chain.len() as u64);
        for version in chosen.iter().filter(|version| version.number <= base) {
            if version.number == self.chain.len() as u64 + 1 {
                self.chain.push((version.token, version.ids.clone()));
            }
        }
        assert_eq!(self.chain.len() as u64, base, "somebody has executed it");
        let number = self.view.number + 1 + self.rng.modulo(3);
        self.view = PrimaryView { number, primary, executors, next: base + 1, sequential: true };
        let late = self.late;
        for slot in self.running().into_iter().filter(|slot| Some(*slot) != late) {
            let at = self.now + self.rng.modulo(20);
            self.begin.insert((at, slot), self.view);
        }
    }

    /// One millisecond passes.
    pub fn step(&mut self) {
        self.now += 1;
        self.deliver_frames();
        while let Some(entry) = self.begin.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let ((_, slot), view) = entry.remove_entry();
            self.begin_view(slot, view);
        }
        for slot in self.running() {
            if (self.now + u64::from(slot) * 7).is_multiple_of(25) {
                self.replica(slot).orderer.tick();
            }
            self.drive(slot);
        }
        if self.agrees {
            self.agree();
        }
    }

    pub fn run(&mut self, milliseconds: u64) {
        (0..milliseconds).for_each(|_| self.step());
    }

    /// Steps until `done`; returns whether it was within `limit` milliseconds.
    pub fn within(&mut self, limit: u64, done: impl Fn(&Cluster) -> bool) -> bool {
        (0..limit).any(|_| {
            self.step();
            done(self)
        })
    }

    /// Whether every request of a running replica was answered, and all are equally far.
    pub fn is_idle(&self) -> bool {
        let owed = self.submitted.difference(&self.acked).all(|id| self.orphans.contains(id));
        let stable = |replica: &Replica| {
            replica.stable() == self.chain.len() as u64 && replica.last().number == replica.stable()
        };
        owed && self.replicas.iter().flatten().all(stable)
    }

    /// Ends the network's faults, waits until all is done, and checks that each request was executed once.
    pub fn run_until_idle(&mut self) {
        self.weather = Weather { delay: 1, ..Weather::default() };
        self.cut_links.clear();
        assert!(self.within(20_000, Cluster::is_idle), "not settled {}", self.describe());
        self.check();
    }

    pub fn check(&self) {
        let ids: Vec<u64> = self.chain.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
        let once: BTreeSet<u64> = ids.iter().copied().collect();
        assert_eq!(once.len(), ids.len(), "each request once");
        let lost: Vec<&u64> = self.acked.difference(&once).collect();
        assert!(lost.is_empty(), "answered and lost: {lost:x?}");
        for replica in self.replicas.iter().flatten() {
            assert_eq!(replica.stopped, None, "{}", self.describe());
            assert_eq!(replica.blamed.first(), None, "{}", self.describe());
        }
    }

    pub fn describe(&self) -> String {
        let mut text = format!("at {} ms, stable {}, {:?}", self.now, self.chain.len(), self.view);
        for (slot, replica) in self.replicas.iter().enumerate() {
            let Some(r) = replica else { continue };
            text += &format!(
                "\n  {slot}: view {} executed {} stable {} waiting {:?} engine {:?} stopped {:?} fetching {:?} \
                    blamed {:?}",
                r.view,
                r.last().number,
                r.stable(),
                r.orderer.waiting(),
                r.orderer.engine_status(),
                r.stopped,
                r.fetching,
                r.blamed.last()
            );
        }
        text
    }

    /// The agreement: `quorum` + 1 replicas in the view have the same token for the next batch.
    fn agree(&mut self) {
        loop {
            let number = self.chain.len() as u64 + 1;
            let mut votes: BTreeMap<u64, (usize, Vec<u64>)> = BTreeMap::new();
            for replica in self.replicas.iter().flatten().filter(|r| r.view == self.view.number) {
                if let Some(version) = replica.versions.iter().find(|version| version.number == number) {
                    votes.entry(version.token).or_insert_with(|| (0, version.ids.clone())).0 += 1;
                }
            }
            let Some((token, (_, ids))) = votes.into_iter().find(|(_, (count, _))| *count > self.quorum)
            else {
                break;
            };
            self.chain.push((token, ids));
        }
        for slot in self.running() {
            if self.replica(slot).view == self.view.number {
                self.release(slot);
            }
        }
    }

    /// A replica learns what is stable: its own clients get their replies.
    fn release(&mut self, slot: u8) {
        let agreed = self.chain.len() as u64;
        let chain = std::mem::take(&mut self.chain);
        let replica = self.replica(slot);
        let mut replies = Vec::new();
        let mut made = Vec::new();
        while let Some(next) = replica.versions.get(1).filter(|next| next.number <= agreed) {
            assert_eq!(
                next.token,
                chain[next.number as usize - 1].0,
                "{slot} executed another {}",
                next.number
            );
            replies.extend_from_slice(&next.tags);
            replica.versions.remove(0);
            let number = replica.stable();
            replica.orderer.stable(number);
            if replica.cuts.contains_key(&number) {
                made.push(number);
            }
        }
        for number in made {
            let index = replica.cuts[&number].state.index;
            replica.orderer.state_available(index);
        }
        self.chain = chain;
        for tag in replies {
            assert!(self.acked.insert(tag), "{tag:x} was answered twice");
        }
    }

    fn begin_view(&mut self, slot: u8, view: PrimaryView) {
        let agreed: Vec<u64> = self.chain.iter().map(|(token, _)| *token).collect();
        let forged = self.forged;
        let Some(replica) = &mut self.replicas[usize::from(slot)] else { return };
        if replica.view >= view.number || view.number != self.view.number {
            return;
        }
        let fits = |version: &&Version| {
            version.number < view.next
                && (version.number == 0 || agreed[version.number as usize - 1] == version.token)
        };
        let common = replica.versions.iter().take_while(fits).last().expect("the stable one fits").number;
        if replica.last().number > common || replica.part.is_some() {
            replica.roll_back(common, forged);
        }
        replica.view = view.number;
        replica.orderer.begin_view(view);
    }

    /// A replica rolls back batches in the middle of a view, as when its own token differs from the agreed one.
    pub fn roll_back(&mut self, slot: u8, number: u64) {
        let forged = self.forged;
        self.replica(slot).roll_back(number, forged);
    }

    fn deliver_frames(&mut self) {
        while let Some(entry) = self.wire.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (from, to, bytes) = entry.remove();
            let Some(replica) = &mut self.replicas[usize::from(to)] else { continue };
            let mut decoder = Decoder::new(from, order::limits::FRAME_BODY);
            decoder.feed(&bytes);
            match decoder.next() {
                Ok(Some(frame)) => {
                    let is_lost = |(kind, tag)| frame.kind == kind && frame.body.first() == Some(&tag);
                    if !self.loses.is_some_and(is_lost) {
                        let outcome = replica.orderer.on_frame(from, frame.kind, frame.body);
                        replica.blamed.extend(outcome.err());
                    }
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
        let fetched = self.replica(slot).fetching.take();
        if let Some(index) = fetched {
            self.fetch(slot, index);
        }
        self.replica(slot).orderer.pump(now_us);
        while let Some(output) = self.replica(slot).orderer.poll_output() {
            match output {
                Output::Send { to, kind, body, .. } => {
                    let mut bytes = Vec::new();
                    frame::encode(kind, slot, &body.joined(), &mut bytes);
                    self.transmit(slot, to, bytes);
                }
                Output::CheckpointWanted { .. } => {
                    let bytes = Bytes::from_static(b"\x01cut");
                    let _ = self.replica(slot).orderer.submit(request(bytes), 0, 4);
                }
                Output::NeedState { index, .. } => self.replica(slot).fetching = Some(index),
                Output::Skipped { tags } => {
                    self.acked.extend(tags.iter().filter(|tag| **tag != 0));
                    self.replica(slot).skipped.extend(tags);
                }
                Output::FailStop(reason) => self.replica(slot).stopped = Some(reason.to_string()),
                Output::OlderCopy { .. } => self.replica(slot).stopped = Some("an older copy".into()),
                _ => {}
            }
        }
        let replica = self.replica(slot);
        // A batch is taken whole, unless a view begins in the middle of it.
        while !replica.stuck && (replica.part.is_some() || replica.versions.len() <= AHEAD) {
            let Some(delivered) = replica.orderer.poll_delivery() else { break };
            execute(replica, delivered);
        }
    }

    fn fetch(&mut self, slot: u8, index: u64) {
        let found = self.replicas.iter().flatten().find_map(|replica| {
            let cut = replica.cuts.values().find(|version| version.state.index == index)?;
            (cut.number <= replica.stable()).then(|| cut.clone())
        });
        let replica = self.replica(slot);
        let Some(version) = found else { return replica.orderer.state_lost(index) };
        if replica.orderer.installed(index, version.state.clone()) {
            replica.installed += 1;
            replica.part = None;
            let before =
                std::mem::replace(&mut replica.versions, vec![Version { tags: Vec::new(), ..version }]);
            // Executed here, and their replies are in no later version.
            let tags: Vec<u64> = before.into_iter().skip(1).flat_map(|version| version.tags).collect();
            self.acked.extend(tags);
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
        for _ in 0..1 + u64::from(self.rng.chance(duplicate)) {
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

/// The connection that a request came over.
fn stream_of(id: u64) -> u32 {
    mix(id) as u32
}

/// Runs one part of a batch.
fn execute(replica: &mut Replica, delivered: Delivered) {
    let before = replica.last().clone();
    let version = replica.part.get_or_insert_with(|| Version {
        number: delivered.number,
        token: mix(before.token ^ mix(delivered.number)),
        sequential: delivered.sequential,
        ..Version::default()
    });
    assert_eq!(version.number, before.number + 1, "the numbers have no gap");
    assert_eq!((version.number, version.sequential), (delivered.number, delivered.sequential));
    assert!(delivered.batch.time_us > before.state.time_us || delivered.batch.is_empty());
    let mut cut = false;
    for request in delivered.batch.requests() {
        assert!(request.is_intact());
        let id = match request.bytes.split_first() {
            Some((0, id)) => u64::from_le_bytes(id.try_into().expect("eight bytes")),
            _ => 0,
        };
        cut |= id == 0;
        assert!(id == 0 || request.stream == stream_of(id));
        version.token = mix(version.token ^ mix(id));
        version.ids.extend(Some(id).filter(|id| *id != 0));
    }
    version.tags.extend(delivered.tags.into_iter().filter(|tag| *tag != 0));
    version.state = replica.orderer.state().clone();
    if cut {
        replica.cuts.insert(version.number, Version::default());
    }
    if delivered.ends {
        let version = replica.part.take().expect("it has begun");
        // A client's requests run in the order in which it sent them.
        assert!(version.tags.is_sorted(), "{:x?}", version.tags);
        if let Some(cut) = replica.cuts.get_mut(&version.number) {
            *cut = version.clone();
        }
        replica.versions.push(version);
    }
}
