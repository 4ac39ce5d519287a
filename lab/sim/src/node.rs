//! One replica of the simulated cluster, with its clients' connections: everything that is lost when its process ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crosscheck::faults::ThreadRole;
use crosscheck::stepped::{ReplyTo, Startup, Stepped};
use crosscheck::{
    Action, ClientAccess, ClientAddress, ClientCounters, ConnectionId, Durability, GroupKey, MakeProtocol,
    Mode, NewConnection, Progress, Protocol, Settings,
};
use order::{MemoryLog, RaftConfig};
use wire::SplitMix64;

use crate::disk::SimDisk;
use crate::log::{DATA, Opened};
use crate::net::{Port, SimNetwork};
use crate::rng::stream;
use crate::slow::Slow;
use crate::workload::Workload;
use crate::world::{Journal, RunScale, Surroundings};

/// A client's connection at its replica.
struct ClientSession<P> {
    protocol: P,
    input: Vec<u8>,
    generation: u32,
    /// Commands whose answers have not left, in order, and their answers.
    places: VecDeque<(usize, Option<Bytes>)>,
    /// Sequence number of the first of them.
    first: u64,
}

/// A command for the pipeline.
pub struct Submitted {
    /// Its number.
    pub number: usize,
    /// The service's encoding of it.
    pub request: Vec<u8>,
}

/// A result on a client connection.
#[derive(Debug)]
pub enum ClientAnswer {
    /// The reply to the command with this number.
    Reply(usize, Bytes),
    /// The connection ends; no reply follows.
    Closed,
}

/// A replica's process.
pub struct Process<W: Workload> {
    me: u8,
    /// The shipped pipeline.
    pub replica: Stepped<W::Service, Surroundings>,
    make_protocol: MakeProtocol<W::Protocol>,
    counters: Arc<ClientCounters>,
    /// When it started.
    pub born_us: u64,
    sessions: BTreeMap<u32, ClientSession<W::Protocol>>,
    /// Number of the command of every pending reply.
    owed: BTreeMap<(u32, u64), usize>,
}

/// A setting of a replica that differs from its peers'.
#[derive(Clone, Debug)]
pub enum Unlike<W> {
    /// The setting of the service with this name, with this workload's value.
    Service(String, W),
    /// The enabled protections.
    Mode,
    /// Name of the group.
    Cluster,
}

impl<W: Workload> Unlike<W> {
    /// All of them.
    pub fn all(workload: &W) -> Vec<Self> {
        let of_service = workload.variants().into_iter().map(|(name, other)| Unlike::Service(name, other));
        of_service.chain([Unlike::Mode, Unlike::Cluster]).collect()
    }

    /// The operator's name for the setting.
    pub fn name(&self) -> &str {
        match self {
            Unlike::Service(name, _) => name,
            Unlike::Mode => "mode",
            Unlike::Cluster => "cluster",
        }
    }
}

/// How a process is started.
#[derive(Clone, Debug)]
pub struct Role<W> {
    /// The service, with the settings of its peers.
    pub workload: W,
    /// The replica, and the number of replicas.
    pub me: u8,
    /// See [`Role::me`].
    pub replicas: u8,
    /// It compares with itself: mode `00GT`.
    pub twice: bool,
    /// It executes first and verifies afterwards: mode `R0GV`.
    pub verified: bool,
    /// Counts its processes, from 1.
    pub incarnation: u64,
    /// Threads that run handlers.
    pub workers: usize,
    /// Bounds of logs and states.
    pub scale: RunScale,
    /// Error of its wall clock in microseconds.
    pub skew_us: i64,
    /// It gets the command to begin the group.
    pub begins: bool,
    /// A setting that differs from its peers'.
    pub unlike: Option<Unlike<W>>,
    /// On purpose: it does not send the service's settings.
    pub is_silent: bool,
    /// On purpose: its group's key is publicly known.
    pub is_open: bool,
    /// How requests that only read are answered.
    pub reads: crosscheck::Reads,
    /// What its release can act as.
    pub behaviors: crosscheck::Behaviors,
}

/// The key of the group, and the key of strangers.
pub const KEYS: [u8; 2] = [7, 8];

impl<W: Workload> Role<W> {
    /// The service, with the settings that this replica has.
    fn service(&self) -> &W {
        match &self.unlike {
            Some(Unlike::Service(_, other)) => other,
            _ => &self.workload,
        }
    }

    /// The pipeline's settings, of a replica with its log on disk or in memory.
    pub fn settings(&self, on_disk: bool) -> Settings {
        let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let service = self.service();
        let cluster = if matches!(self.unlike, Some(Unlike::Cluster)) { "another" } else { "sim" };
        let guarded = Mode { crosschecked: false, ..Mode::default() };
        let mode = match &self.unlike {
            Some(Unlike::Mode) => guarded,
            _ if self.verified => Mode { deterministic: false, verified: true, ..guarded },
            _ if self.twice => Mode { replicated: false, deterministic: false, twice: true, ..guarded },
            _ => Mode::default(),
        };
        Settings {
            me: self.me,
            peers: vec![nowhere.into(); usize::from(self.replicas)],
            clients: nowhere,
            access: ClientAccess::default(),
            admin: crosscheck::admin::Endpoint::Unix("admin.sock".into()),
            mode,
            workers: self.workers,
            client_threads: 1,
            durability: if on_disk { Durability::Disk(DATA.into()) } else { Durability::Memory },
            max_connections: 1024,
            max_request: service.request_bytes(),
            idle_timeout: None,
            buffer_limit: crosscheck::limits::BUFFERS,
            service: if self.is_silent { Vec::new() } else { service.settings() },
            founding: Vec::new(),
            has_data: false,
            group_key: Some(GroupKey {
                cluster: cluster.to_owned(),
                key: [KEYS[usize::from(self.is_open)]; 32],
            }),
            begins: self.verified && self.begins,
            restore: None,
            election: (Duration::from_millis(300), Duration::from_millis(600)),
            watchdog: Duration::from_secs(5),
            witness: false,
            extra_protection: self.workers > 1,
            reads: self.reads,
            // Runs have more faults than any machine.
            faults_per_10s: 0,
            behaviors: self.behaviors,
            on_detection: crosscheck::OnDetection::default(),
        }
    }
}

impl<W: Workload> Process<W> {
    /// A process that starts now, with what was `opened` on its disk, or with nothing.
    ///
    /// # Errors
    /// When the pipeline cannot start.
    pub fn start(
        role: &Role<W>,
        (network, slow): (&SimNetwork, &Slow),
        rng: &mut SplitMix64,
        journal: &Journal,
        (opened, disk): (Option<Opened>, Option<SimDisk>),
    ) -> Result<Self, String> {
        let Role { me, replicas, skew_us, begins, .. } = *role;
        let (service, make_protocol) = role.service().start()?;
        let engine = RaftConfig {
            found: begins,
            scale: role.scale.order,
            window: role.scale.window,
            learner_lag: role.scale.learner_lag,
            ..RaftConfig::new(me, replicas, rng.next_u64(), rng.next_u64())
        };
        let world =
            Surroundings::new(me, network.clone(), skew_us, stream(rng.next_u64(), 1), journal.clone())
                .with_scale(role.scale)
                .with_disk(disk);
        let net = Port { me, network: network.clone() };
        let settings = role.settings(opened.is_some());
        let in_memory = || Opened { log: Box::new(MemoryLog), records: Vec::new(), state: None };
        let Opened { log, records, state } = opened.unwrap_or_else(in_memory);
        let birth = Startup { engine, incarnation: role.incarnation as u32, log, records, state };
        network.set_alive(me, true);
        let replica =
            Stepped::new(settings, service, world, net, birth).map_err(|error| error.to_string())?;
        let (sessions, owed) = (BTreeMap::new(), BTreeMap::new());
        let (slow, late) = (slow.clone(), network.clone());
        replica.take_time(Arc::new(move |position, thread| {
            let time_us = slow.takes_us(me, position, thread == ThreadRole::Helper);
            if time_us > 0 && thread != ThreadRole::Worker {
                late.fall_behind(me, time_us, thread == ThreadRole::Order);
            }
            Duration::from_micros(time_us)
        }));
        let (counters, born_us) = (Arc::new(ClientCounters::default()), network.now_us());
        Ok(Process { me, replica, make_protocol, counters, born_us, sessions, owed })
    }

    /// Opens a client's connection; returns its generation.
    pub fn open(&mut self, slot: u32, generation: u32) {
        let number = u64::from(generation) << 32 | u64::from(slot);
        let id = ConnectionId::new(self.me, self.replica.process(), number);
        let (counters, peer) = (self.counters.clone(), ClientAddress::Unix);
        let accepted = NewConnection { id, peer, counters, offers_tls: false };
        let protocol = (self.make_protocol)(&accepted);
        let session =
            ClientSession { protocol, input: Vec::new(), generation, places: VecDeque::new(), first: 0 };
        self.sessions.insert(slot, session);
    }

    /// Bytes of one command arrive on a connection, cut into two packets at `cut`; returns the requests to be ordered.
    ///
    /// # Errors
    /// When the protocol answers without ordering: all commands of the simulation are ordered.
    pub fn receive(
        &mut self,
        slot: u32,
        number: usize,
        text: &[u8],
        cut: usize,
    ) -> Result<Option<Submitted>, String> {
        let Some(session) = self.sessions.get_mut(&slot) else { return Ok(None) };
        let (first, second) = text.split_at(cut.min(text.len()));
        for packet in [first, second] {
            session.input.extend_from_slice(packet);
            if session.input.is_empty() {
                continue;
            }
            match session.protocol.next(&session.input) {
                Progress::NeedMore(_) => {}
                Progress::Done { used, action: Action::Order(request) } if used == text.len() => {
                    session.input.clear();
                    let sequence = session.first + session.places.len() as u64;
                    session.places.push_back((number, None));
                    self.owed.insert((slot, sequence), number);
                    let to = ReplyTo { slot, generation: session.generation, sequence, cost: 0 };
                    self.replica.submit(to, request.clone());
                    return Ok(Some(Submitted { number, request }));
                }
                Progress::Done { used, action } => {
                    return Err(format!("{used} bytes of {:?}: {action:?}", String::from_utf8_lossy(text)));
                }
            }
        }
        Err(format!("the protocol waits for more than {:?}", String::from_utf8_lossy(text)))
    }

    /// Number of the command that a reply belongs to.
    pub fn command_of(&self, to: ReplyTo) -> Option<usize> {
        let session = self.sessions.get(&to.slot)?;
        let number = self.owed.get(&(to.slot, to.sequence))?;
        (session.generation == to.generation).then_some(*number)
    }

    /// Answers that leave now: per connection in the order of its commands.
    pub fn answers(&mut self) -> Vec<(u32, u32, ClientAnswer)> {
        let mut leaving = Vec::new();
        for (to, reply) in self.replica.take_answers() {
            let Some(session) = self.sessions.get_mut(&to.slot) else { continue };
            if session.generation != to.generation {
                continue;
            }
            self.owed.remove(&(to.slot, to.sequence));
            let Some(reply) = reply else {
                self.sessions.remove(&to.slot);
                leaving.push((to.slot, to.generation, ClientAnswer::Closed));
                continue;
            };
            if let Some(place) = session.places.get_mut((to.sequence - session.first) as usize) {
                place.1 = Some(reply);
            }
            while let Some((number, Some(reply))) = session.places.front().cloned() {
                session.places.pop_front();
                session.first += 1;
                leaving.push((to.slot, to.generation, ClientAnswer::Reply(number, reply)));
            }
        }
        leaving
    }

    /// Whether a connection is open.
    pub fn has(&self, slot: u32, generation: u32) -> bool {
        self.sessions.get(&slot).is_some_and(|session| session.generation == generation)
    }

    /// The client hung up.
    pub fn hang_up(&mut self, slot: u32) {
        self.sessions.remove(&slot);
        self.owed.retain(|(of, _), _| *of != slot);
    }
}
