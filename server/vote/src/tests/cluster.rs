//! A whole group in one thread: voters, services, an order, and a network that loses, duplicates and reorders messages.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use object::{ObjectId, RegionId};
use wire::SplitMix64;

use super::service::{Entry, Op, REGION_IDS, Slip, State, checksum};
use crate::record::Record;
use crate::{
    Command, Config, Dropped, Event, Evidence, Message, Place, Protections, Reexecution, Replica,
    RequestResult, To, Voter,
};

/// One replica.
pub(crate) struct Node {
    pub voter: Voter,
    pub state: State,
    /// Next batch to execute, and the next request in it.
    pub at: Place,
    results: Vec<RequestResult>,
    /// State before each request, for re-execution.
    images: BTreeMap<Place, State>,
    pub waits_for_install: Option<Place>,
    pub up: bool,
    pub released: BTreeMap<Place, Bytes>,
    pub dropped: Vec<(Place, Dropped)>,
    pub held: Vec<Place>,
    pub evidence: Vec<Evidence>,
    pub replace: Vec<Command>,
    pub given_up: u32,
    pub passed: u32,
    pub not_settled: Vec<(RegionId, ObjectId)>,
    /// The errors of requests, by place.
    pub slips: BTreeMap<Place, Slip>,
    /// Applied to a batch's results before the voter gets them: faults in stored results.
    pub tamper: BTreeMap<Place, fn(&mut RequestResult)>,
    /// Applied to the voter's stored data, after it has voted and before it receives other votes.
    pub strike: BTreeMap<Place, fn(&mut Record, usize)>,
}

/// The group.
pub(crate) struct Cluster {
    pub nodes: Vec<Node>,
    pub log: Vec<Vec<Entry>>,
    pub network: VecDeque<(Replica, Replica, Message)>,
    pub now_us: u64,
    pub chance: SplitMix64,
    /// One in so many messages is lost or duplicated; 0 for never.
    pub loss: u64,
    pub reorder: bool,
    /// Whether requests can be run again; a pipeline keeps before-images only while replicas are absent.
    pub keeps_images: bool,
    /// Changes or drops messages in transit; `None` drops.
    #[allow(clippy::type_complexity)]
    pub on_wire: Box<dyn FnMut(Replica, Replica, Message) -> Option<Message>>,
    pub transcript: Vec<String>,
}

impl Cluster {
    pub(crate) fn new(replicas: u8, seed: u64) -> Cluster {
        Cluster::with_protections(replicas, seed, Protections::ALL)
    }

    pub(crate) fn with_protections(replicas: u8, seed: u64, protections: Protections) -> Cluster {
        Cluster::configured(replicas, seed, |config| config.with_protections(protections))
    }

    pub(crate) fn configured(replicas: u8, seed: u64, configure: impl Fn(Config) -> Config) -> Cluster {
        let node = |me| Node {
            voter: Voter::new(configure(Config::new(replicas, me, REGION_IDS, 0))),
            state: State::default(),
            at: Place::default(),
            results: Vec::new(),
            images: BTreeMap::new(),
            waits_for_install: None,
            up: true,
            released: BTreeMap::new(),
            dropped: Vec::new(),
            held: Vec::new(),
            evidence: Vec::new(),
            replace: Vec::new(),
            given_up: 0,
            passed: 0,
            not_settled: Vec::new(),
            slips: BTreeMap::new(),
            tamper: BTreeMap::new(),
            strike: BTreeMap::new(),
        };
        Cluster {
            nodes: (0..replicas).map(node).collect(),
            log: Vec::new(),
            network: VecDeque::new(),
            now_us: 1,
            chance: SplitMix64::new(seed),
            loss: 0,
            reorder: false,
            keeps_images: true,
            on_wire: Box::new(|_, _, message| Some(message)),
            transcript: Vec::new(),
        }
    }

    pub(crate) fn replicas(&self) -> u8 {
        self.nodes.len() as u8
    }

    /// Appends a batch of requests to the order.
    pub(crate) fn order(&mut self, ops: &[Op]) -> u64 {
        self.log.push(ops.iter().copied().map(Entry::Op).collect());
        self.log.len() as u64 - 1
    }

    /// Executes up to one batch at every replica that is up and not waiting.
    pub(crate) fn execute(&mut self) {
        for replica in 0..self.replicas() {
            self.execute_at(replica);
        }
    }

    pub(crate) fn execute_at(&mut self, replica: Replica) {
        let node = &self.nodes[replica as usize];
        let batch = node.at.batch;
        if !node.up || node.waits_for_install.is_some() {
            return;
        }
        if let Some(entries) = self.log.get(batch as usize).cloned() {
            self.run_batch(replica, batch, &entries);
        }
    }

    fn run_batch(&mut self, replica: Replica, batch: u64, entries: &[Entry]) {
        let replicas = self.replicas() as u64;
        let owner = |place: Place| ((place.batch + place.request as u64) % replicas) as u8;
        while (self.nodes[replica as usize].at.request as usize) < entries.len() {
            let place = self.nodes[replica as usize].at;
            let mine = owner(place) == replica;
            let node = &mut self.nodes[replica as usize];
            match &entries[place.request as usize] {
                Entry::Op(op) => {
                    node.images.insert(place, node.state.clone());
                    let slip = node.slips.get(&place).copied().unwrap_or(Slip::None);
                    let result = node.state.run(*op, mine, slip);
                    node.results.push(result);
                    node.at.request += 1;
                }
                Entry::Recover(recover) => {
                    let overwrites = recover.overwrites_at(replica);
                    let packed = if overwrites { Vec::new() } else { node.state.pack(recover) };
                    node.at.request += 1;
                    node.results.push(node.state.recovered(recover));
                    if overwrites {
                        node.waits_for_install = Some(place);
                    }
                    let (turn, time_us, recover) = (place, batch * 1000, recover.clone());
                    self.handle(replica, Event::RecoverTurn { turn, time_us, recover, packed });
                    if self.nodes[replica as usize].waits_for_install.is_some() {
                        return;
                    }
                }
            }
        }
        let node = &mut self.nodes[replica as usize];
        let mut requests = std::mem::take(&mut node.results);
        for (index, result) in requests.iter_mut().enumerate() {
            if let Some(tamper) = node.tamper.get(&Place::new(batch, index as u16)) {
                tamper(result);
            }
        }
        node.at = Place::new(batch + 1, 0);
        let count = requests.len();
        self.handle(replica, Event::Executed { batch, requests });
        let node = &mut self.nodes[replica as usize];
        for index in 0..count {
            if let (Some(strike), Some(record)) =
                (node.strike.get(&Place::new(batch, index as u16)), node.voter.stored_mut(batch))
            {
                strike(record, index);
            }
        }
    }

    /// Handles one event at one replica, and all resulting commands.
    pub(crate) fn handle(&mut self, replica: Replica, event: Event) {
        let mut commands = Vec::new();
        let voter = &mut self.nodes[replica as usize].voter;
        voter.handle(event, self.now_us, &mut commands);
        voter.flush(self.now_us, &mut commands);
        let over = voter.loads().into_iter().find(|load| load.holds > load.bound);
        assert!(over.is_none(), "replica {replica}: {over:?}");
        for command in commands {
            self.perform(replica, command);
        }
    }

    fn perform(&mut self, replica: Replica, command: Command) {
        self.note(replica, &command);
        let node = &mut self.nodes[replica as usize];
        match command {
            Command::Send { to, message } => self.send(replica, to, message),
            Command::Release { place, reply, digest } | Command::ReplyRepaired { place, reply, digest } => {
                let Entry::Op(op) = self.log[place.batch as usize][place.request as usize] else {
                    panic!("{place} is no client's request")
                };
                assert_eq!(crate::digest::reply(checksum(op), &reply), digest);
                assert!(node.released.insert(place, reply).is_none(), "reply {place} left twice");
            }
            Command::DropReply { place, why } => node.dropped.push((place, why)),
            Command::ProposeRecover(recover) => self.log.push(vec![Entry::Recover(recover)]),
            Command::Install { turn, objects } => {
                node.state.install(&objects);
                self.pass(replica, turn);
            }
            Command::RecheckObjects { place, objects } => {
                let corrupt = objects.into_iter().filter(|at| !node.state.is_intact(*at)).collect();
                self.handle(replica, Event::Rechecked { place, corrupt });
            }
            Command::Reexecute { place } if !self.keeps_images => {
                self.handle(replica, Event::Reexecuted { place, outcome: Reexecution::NotKept });
            }
            Command::Reexecute { place } => {
                let Entry::Op(op) = self.log[place.batch as usize][place.request as usize] else { return };
                let mut image = self.nodes[replica as usize].images[&place].clone();
                let outcome = Reexecution::Digest(image.run(op, false, Slip::None).digest);
                self.handle(replica, Event::Reexecuted { place, outcome });
            }
            Command::Evidence(evidence) => node.evidence.push(*evidence),
            Command::Held { place, .. } => node.held.push(place),
            Command::Resumed { place } => node.held.retain(|held| *held != place),
            Command::GiveUpRepair { turn } => {
                node.given_up += 1;
                self.pass(replica, turn);
            }
            Command::PassTurn { turn } => {
                node.passed += 1;
                self.pass(replica, turn);
            }
            Command::NotSettled { region_id, id, .. } => node.not_settled.push((region_id, id)),
            Command::ManyRepairs { .. } => {}
            Command::ReplaceSelf(_) | Command::PeerBeyondRepair { .. } => node.replace.push(command),
        }
    }

    /// Passes the turn of a RECOVER; its result has the present objects.
    fn pass(&mut self, replica: Replica, turn: Place) {
        let Entry::Recover(recover) = &self.log[turn.batch as usize][turn.request as usize] else {
            panic!("{turn} is no RECOVER")
        };
        let node = &mut self.nodes[replica as usize];
        assert_eq!(node.waits_for_install, Some(turn));
        node.waits_for_install = None;
        node.results[turn.request as usize] = node.state.recovered(recover);
    }

    fn send(&mut self, from: Replica, to: To, message: Message) {
        let mut wire = Vec::new();
        message.encode(&mut wire);
        let message = Message::decode(&Bytes::from(wire)).expect("what we send can be read");
        for peer in 0..self.replicas() {
            let meant = match to {
                To::All => peer != from,
                To::One(one) => peer == one,
            };
            if meant && self.nodes[peer as usize].up {
                self.network.push_back((from, peer, message.clone()));
            }
        }
    }

    /// Delivers one message; false when there is none.
    pub(crate) fn deliver(&mut self) -> bool {
        let waiting = self.network.len() as u64;
        if waiting == 0 {
            return false;
        }
        let index = if self.reorder { self.chance.modulo(waiting) as usize } else { 0 };
        let Some((from, to, message)) = self.network.remove(index) else { return false };
        if self.loss > 0 && self.chance.once_in(self.loss) {
            if self.chance.once_in(2) {
                return true;
            }
            self.network.push_back((from, to, message.clone()));
        }
        if let (true, Some(message)) = (self.nodes[to as usize].up, (self.on_wire)(from, to, message)) {
            self.handle(to, Event::Message { from, message });
        }
        true
    }

    /// Advances time for every live replica.
    pub(crate) fn tick(&mut self, by_us: u64) {
        self.now_us += by_us;
        for replica in 0..self.replicas() {
            if self.nodes[replica as usize].up {
                self.handle(replica, Event::Tick);
            }
        }
    }

    pub(crate) fn down(&mut self, replica: Replica) {
        self.nodes[replica as usize].up = false;
        self.network.retain(|(_, to, _)| *to != replica);
        for peer in (0..self.replicas()).filter(|peer| *peer != replica) {
            self.handle(peer, Event::PeerDown(replica));
        }
    }

    pub(crate) fn up(&mut self, replica: Replica) {
        self.nodes[replica as usize].up = true;
        for peer in (0..self.replicas()).filter(|peer| *peer != replica) {
            self.handle(peer, Event::PeerUp(replica));
        }
    }

    /// Executes, delivers and advances time until there is no more work.
    pub(crate) fn run(&mut self) {
        for _ in 0..200 {
            for _ in 0..self.log.len() + 2 {
                self.execute();
                while self.deliver() {}
            }
            if self.is_quiet() {
                return;
            }
            self.tick(60_000);
        }
    }

    fn is_quiet(&self) -> bool {
        let end = self.log.len() as u64;
        let quiet = |node: &Node| !node.up || (node.at.batch == end && node.voter.is_settled());
        self.network.is_empty() && self.nodes.iter().all(quiet)
    }

    fn note(&mut self, replica: Replica, command: &Command) {
        if let Some(line) = super::transcript::line(replica, command) {
            self.transcript.push(line);
        }
    }

    /// The replies and the final state of a fault-free service.
    pub(crate) fn oracle(&self) -> (State, BTreeMap<Place, Bytes>) {
        let mut state = State::default();
        let mut replies = BTreeMap::new();
        for (batch, entries) in self.log.iter().enumerate() {
            for (index, entry) in entries.iter().enumerate() {
                if let Entry::Op(op) = entry {
                    let result = state.run(*op, true, Slip::None);
                    let reply = result.reply.expect("it ran");
                    replies.insert(Place::new(batch as u64, index as u16), reply);
                }
            }
        }
        (state, replies)
    }

    /// The promise: no wrong byte was released, every reply was released, and every live replica ends like a fault-free
    /// one.
    pub(crate) fn assert_as_if_fault_free(&self) {
        let (state, replies) = self.oracle();
        let mut left = 0;
        for (replica, node) in self.nodes.iter().enumerate() {
            for (place, reply) in &node.released {
                assert_eq!(reply, &replies[place], "replica {replica} let a wrong reply {place} leave");
            }
            left += node.released.len();
            assert!(node.dropped.is_empty(), "replica {replica} dropped {:?}", node.dropped);
            assert!(node.held.is_empty(), "replica {replica} holds {:?}", node.held);
            assert_eq!(node.state, state, "state of replica {replica}");
        }
        assert_eq!(left, replies.len(), "replies that left");
    }

    /// All evidence accuses one of `faulty`.
    pub(crate) fn assert_blames_only(&self, faulty: &[Replica]) {
        for (replica, node) in self.nodes.iter().enumerate() {
            for evidence in &node.evidence {
                assert!(faulty.contains(&evidence.replica), "replica {replica} blames {evidence:?}");
            }
        }
    }
}
