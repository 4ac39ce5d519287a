//! One replica of a CrossCheck service, and the interface that a service author imports.
//!
//! A service implements [`Service`] and [`Protocol`] with protected objects ([`object`]) behind deterministic locks
//! ([`schedule`]); [`serve`] runs it as one replica of a group. ARCHITECTURE.md has the path of a request.

mod address;
pub mod admin;
mod admin_server;
mod archive;
mod ascending;
pub mod backup;
pub mod behavior;
mod boundary;
mod checkpoint;
mod clients;
mod clock;
mod connections;
mod copying;
mod counters;
mod cx;
mod decoding;
mod evidence;
mod explain;
#[cfg(feature = "inject")]
pub mod faults;
mod founding;
mod group_key;
mod group_settings;
mod hexadecimal;
mod hooks;
mod host_time;
mod image;
mod job;
#[cfg(feature = "lab")]
mod lab;
mod later;
pub mod limits;
mod mailbox;
mod message;
mod moved_note;
mod naming;
mod ordered;
mod outcome;
mod overwrite;
mod packed_state;
mod passwords;
mod peers;
mod pipeline_settings;
pub mod private;
mod program;
mod reads;
mod replace;
mod replica;
mod reply;
mod running;
mod self_check;
mod service;
mod settings;
mod shapes;
pub mod short;
mod slow;
pub mod snapshot;
mod socket_errors;
mod socket_file;
mod state;
mod state_writer;
mod stepped_workers;
#[cfg(feature = "testing")]
pub mod testing;
mod traced;
mod transfer;
mod worker;
mod world;

/// Access for the fuzz targets to items that are private otherwise. Not for use.
#[doc(hidden)]
pub use peers::fuzzing;

pub use address::Address;
pub use behavior::Behaviors;
pub use clients::certificate::{ClientTls, TlsProblem};
pub use clients::listing::{ClientAddress, ConnectionInfo, ConnectionState};
pub use connections::{ConnectionId, ConnectionsOfReplica};
pub use counters::ClientCounters;
pub use cx::Cx;
pub use explain::RepairedObject;
pub use group_key::GroupKey;
pub use group_settings::{GroupSetting, SettingsReply};
pub use host_time::{HostTime, ProcessorTime, host_time, processor_time};
pub use job::Job;
#[cfg(feature = "lab")]
pub use lab::without_reply_gate;
pub use later::Owed;
pub use message::message;
pub use object;
pub use outcome::{BrokenHardware, ServeError, Stop};
pub use passwords::{PasswordError, Passwords};
pub use peers::hello::SERVICE;
pub use reads::NeedsBatch;
pub use replace::{Corrupted, ReplaceReason};
pub use replica::stepped;
pub use schedule;
pub use service::{Action, MakeProtocol, NewConnection, ObjectPart, Progress, Protocol, Service};
pub use settings::{ClientAccess, Durability, Mode, OnDetection, Reads, Settings};
pub use socket_file::SocketPath;
pub use wire::Malformed;

/// Whether this build can inject faults into its replicas.
pub const HAS_INJECTOR: bool = cfg!(feature = "inject");

/// How to build with the injector.
pub const WITH_INJECTOR: &str =
    "build with `--features inject` (`cargo run --release --features inject -- up`)";

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use clients::Clients;
use clients::accepting::Acceptor;
use clients::thread::{ClientThread, ThreadInput};
use mailbox::Mailbox;
use order::Orderer;
use parking_lot::Mutex;
use peers::probe::Probe;
use replica::{Engine, Frontend, Input, Judged, Replica, Watchdog};
use slow::SlowBatch;

/// Stops a running replica from another thread.
#[derive(Clone)]
pub struct Stopper(Mailbox<Input>);

impl Stopper {
    /// Asks the replica to stop cleanly.
    pub fn stop(&self) {
        self.0.send(Input::Stop);
    }
}

/// Runs one replica of `service` until it is stopped, or must be replaced. Blocks; `started` receives a handle to stop
/// it as soon as its sockets are open.
///
/// # Errors
/// [`ServeError`] has the cause and the remedy.
pub fn serve<S: Service, P: Protocol>(
    settings: Settings,
    service: S,
    make_protocol: MakeProtocol<P>,
    started: impl FnOnce(Stopper),
) -> Result<Stop, ServeError> {
    let (me, replicas) = (settings.me, settings.ordering());
    let config = order::Config::new(me, replicas, replica::seed());
    let mut service = service;
    let mut settings = settings;
    settings.service.extend(shapes::of(&service));
    if let Some(why) = shapes::beyond(&service.locks(), S::BEHAVIORS.newest) {
        return Err(ServeError::Operator(why));
    }
    if settings.mode.twice && (!settings.mode.guarded || settings.mode.replicated) {
        let why = "the letter T (a node compares with itself) needs the letter G, and no R: use mode 00GT";
        return Err(ServeError::Operator(why.into()));
    }
    if settings.restore.is_some() && (!settings.mode.replicated || settings.mode.verified) {
        let why = format!("a group of mode {} cannot begin with a backup yet: use mode RDGX", settings.mode);
        return Err(ServeError::Operator(why));
    }
    if !settings.mode.replicated {
        let engine = Engine::Single(order::SingleEngine::new(me, 1, 0));
        let orderer = Orderer::new(config, engine, order::State::default());
        return run(settings, service, None, orderer, make_protocol, started);
    }
    if settings.mode.verified {
        if settings.durability != Durability::Memory {
            let why = "a mode with the letter V keeps no log on disk yet: set durability = \"memory\"";
            return Err(ServeError::Operator(why.into()));
        }
        let started_us = world::wall_us();
        let incarnation = u32::try_from(started_us / 1_000_000).unwrap_or(u32::MAX);
        let start = (started_us % 1_000_000) as u32 + 1;
        let engine =
            order::PrimaryEngine::new(order::PrimaryConfig { slot: me, replicas, incarnation, start }, 0);
        let engine = Engine::Primary(Box::new(engine));
        let config = order::Config { rewinds: true, streams: true, ..config };
        let orderer = Orderer::new(config, engine, order::State::default());
        return run(settings, service, None, orderer, make_protocol, started);
    }
    match settings.durability.clone() {
        Durability::Memory => {
            let (base, begins_with) = backup::load(&mut service, &settings)?;
            let engine = Engine::raft(&settings, order::MemoryLog, Vec::new(), (0, begins_with))?;
            let orderer = Orderer::new(config, engine, order::State::default());
            run(settings, service, base, orderer, make_protocol, started)
        }
        Durability::Disk(directory) => {
            let (base, orderer) = open_disk(&directory, config, &mut service, &mut settings)?;
            run(settings, service, base, orderer, make_protocol, started)
        }
    }
}

/// The last state on disk in the service, if there is one, and the log behind it. Without a log, a group that is
/// founded begins with the backup that the settings name.
fn open_disk<S: Service>(
    directory: &Path,
    config: order::Config,
    service: &mut S,
    settings: &mut Settings,
) -> Result<(Option<state::SavedBase<S>>, Orderer<Engine>), ServeError> {
    let (log, records) = order::FileLog::open(directory, settings.me, order::FileOptions::default())?;
    snapshot::restrict(&order::System, directory)?;
    settings.has_data = !records.is_empty();
    match settings.has_data {
        false => {
            note_founding(directory, settings, 0)?;
        }
        true => recall_founding(directory, service, settings)?,
    }
    if let Some(backup) = &settings.restore {
        if records.is_empty() {
            let (base, begins_with) = backup::load(service, settings)?;
            note_founding(directory, settings, begins_with.index)?;
            let engine = Engine::raft(settings, log, records, (0, begins_with))?;
            return Ok((base, Orderer::new(config, engine, order::State::default())));
        }
        message(format_args!(
            "this replica has data of a group and goes on with it: the backup {} is not used. To begin with the \
                backup, start with empty data directories",
            backup.display()
        ));
        settings.restore = None;
    }
    let unloadable = |why| snapshot::SnapshotError::unloadable(directory, why);
    let mut base = match snapshot::for_log(&order::System, directory, records.is_empty())? {
        Some(saved) => Some(state::load_saved(service, saved).map_err(unloadable)?),
        None => None,
    };
    if let Some(((head, _), _)) = &mut base {
        let sizes = std::mem::take(&mut head.order.sizes);
        head.order.sizes = founding::sizes_at(head.index, &settings.founding, sizes);
    }
    let order_state = base.as_ref().map_or_else(order::State::default, |((head, _), _)| head.order.clone());
    let begins_with = order::BeginningState::default();
    let engine = Engine::raft(settings, log, records, (order_state.index, begins_with))?;
    Ok((base, Orderer::new(config, engine, order_state)))
}

/// Notes what counts at the founding, before there is data of a group: it begins behind this entry of the log.
fn note_founding(directory: &Path, settings: &Settings, begun_after: u64) -> Result<(), ServeError> {
    let pair = |name: &str, value: String| (name.to_owned(), value);
    let of_group = [
        pair(founding::REPLICAS, settings.peers.len().to_string()),
        pair(founding::BEGUN_AFTER, begun_after.to_string()),
    ];
    let noted: Vec<_> = settings.founding.iter().cloned().chain(of_group).collect();
    Ok(founding::write(&order::System, directory, &noted)?)
}

/// Takes over what is noted of the founding. An earlier release has not noted the number of replicas: then its size had
/// never changed, and is that of the configuration.
fn recall_founding<S: Service>(
    directory: &Path,
    service: &mut S,
    settings: &mut Settings,
) -> Result<(), ServeError> {
    let noted = founding::read(&order::System, directory)?;
    let is_of_size =
        |(name, _): &(String, String)| [founding::REPLICAS, founding::BEGUN_AFTER].contains(&name.as_str());
    let (of_group, founded): (Vec<_>, Vec<_>) =
        noted.iter().flatten().cloned().partition(|pair| is_of_size(pair));
    if noted.is_some() {
        service.founded_with(&founded).map_err(ServeError::Operator)?;
    }
    settings.founding.retain(|pair| !is_of_size(pair));
    if of_group.is_empty() && noted.is_some() {
        let noted = Settings { founding: founded, ..settings.clone() };
        return note_founding(directory, &noted, 0);
    }
    settings.founding.extend(of_group);
    Ok(())
}

fn run<S: Service, P: Protocol>(
    settings: Settings,
    service: S,
    base: Option<state::SavedBase<S>>,
    orderer: Orderer<Engine>,
    make_protocol: MakeProtocol<P>,
    started: impl FnOnce(Stopper),
) -> Result<Stop, ServeError> {
    let counters = Arc::new(ClientCounters::of(&settings));
    let slow = match &settings.durability {
        Durability::Disk(directory) => SlowBatch::open(directory),
        Durability::Memory => SlowBatch::default(),
    };
    if let Some(reported) = slow.reported() {
        message(format_args!("{reported}"));
    }
    let (admin, watchdog, is_solo) = (settings.admin.clone(), settings.watchdog, settings.is_solo());
    let (address, access) = (settings.clients, settings.access.clone());
    if let Some(file) = &access.socket {
        file.make_way()?;
    }
    // The file is made once clients are served, and removed when this function ends.
    let client_socket = Arc::new(Mutex::new(None));
    let guard = client_socket.clone();
    let bounds = clients::Bounds {
        connections: settings.max_connections,
        request: settings.max_request,
        twice: settings.mode.compares(),
        shares: clients::Shares::of(settings.buffer_limit / 2, counters.threads().len()),
        idle: settings.idle_timeout,
    };
    let executors = settings.peers[..settings.executors()].to_vec();
    let mut probe = Probe::new(peers::Identity::of(&settings, None)?, executors);
    let mut replica = Replica::new(settings, service, base, orderer, counters.clone(), slow.unwatched())?;
    probe.follow(replica.redirections());
    let mailbox = replica.mailbox();
    let calls = mailbox.clone();
    let call = move |call| calls.send(Input::Call(call));
    let _socket_file = admin_server::listen(&admin, admin_server::Bounds::default(), call)?;
    let submissions = mailbox.clone();
    let submit = move |requests: &mut Vec<clients::Submission>| {
        submissions.send(Input::Submissions(std::mem::take(requests)));
    };
    let open_clients = Box::new(move |world: &world::Os| {
        let mut acceptor = Acceptor::bind(address)?.refuses_for::<P>(access.tls.is_some());
        if let Some(path) = &access.socket {
            let (listening, file) = acceptor.listens_on(path)?;
            acceptor = listening;
            *guard.lock() = Some(file);
        }
        let (mut acceptor, excess) = (Some(acceptor), clients::ExcessRights::default());
        let registry = if is_solo { Some(world.poll.registry().try_clone()?) } else { None };
        open_clients(registry, counters.threads().len(), submit, |registry, thread, others| {
            let acceptor = acceptor.take().map(|acceptor| acceptor.deals_out_to(others));
            let thread = (thread, &excess);
            let make_protocol = make_protocol.clone();
            let clients = Clients::new(registry, acceptor, thread, make_protocol, counters.clone(), bounds)?;
            Ok(clients.speaks(access.tls.clone()))
        })
    });
    started(Stopper(mailbox));
    let stop = watch(replica, open_clients, watchdog, slow, probe);
    client_socket.lock().take();
    stop
}

/// Opens the client side: one part on the order thread, with the `registry` of its poll, or so many `threads`, each
/// with one part. `part` opens the part of a thread; the first is asked first, with the mailboxes of the others.
fn open_clients<C: clients::ClientSide + 'static>(
    registry: Option<mio::Registry>,
    threads: usize,
    submit: impl FnMut(&mut Vec<clients::Submission>) + Clone + Send + 'static,
    mut part: impl FnMut(mio::Registry, usize, Vec<Mailbox<ThreadInput>>) -> io::Result<C>,
) -> io::Result<Frontend> {
    if let Some(registry) = registry {
        return Ok(Frontend::Here(Box::new(part(registry, 0, Vec::new())?)));
    }
    let threads: Vec<ClientThread> = (0..threads).map(|_| ClientThread::new()).collect::<Result<_, _>>()?;
    let mailboxes: Vec<_> = threads.iter().map(ClientThread::mailbox).collect();
    let numbered = threads.iter().enumerate();
    let parts = numbered.map(|(number, thread)| part(thread.registry()?, number, mailboxes[1..].to_vec()));
    let parts: Vec<C> = parts.collect::<Result<_, _>>()?;
    // The first one accepts: it starts when the others are there.
    for (number, (thread, part)) in threads.into_iter().zip(parts).enumerate().rev() {
        if let Err(error) = thread.start(number, part, submit.clone()) {
            mailboxes.iter().for_each(|mailbox| mailbox.send(ThreadInput::Stop));
            return Err(error);
        }
    }
    Ok(Frontend::Threads(mailboxes))
}

/// Runs the replica on its order thread, and detects if that thread makes no progress for longer than `limit` while its
/// peers do, as `probe` learns.
fn watch<S: Service>(
    replica: Replica<S>,
    open_clients: replica::OpenClients<world::Os>,
    limit: Duration,
    mut slow: SlowBatch,
    mut probe: Probe,
) -> Result<Stop, ServeError> {
    let watchdog_view = replica.watchdog_view();
    let mut watchdog = Watchdog::new(watchdog_view.clone(), limit, slow.unwatched());
    let (ended, end) = mpsc::channel();
    let order = std::thread::Builder::new().name("order".into());
    let order = order.spawn(move || replica.run(open_clients, &ended))?;
    loop {
        match end.recv_timeout(limits::WATCH) {
            Ok(outcome) => {
                // Its sockets are closed when its thread ends. If that takes too long, they are closed with the
                // process.
                let _ = end.recv_timeout(limit);
                return outcome;
            }
            // The thread cannot be ended from here; it ends with the process.
            Err(RecvTimeoutError::Timeout) if watchdog.is_hung() => {
                match watchdog.judge(probe.others(limits::PROBE), watchdog_view.executed()) {
                    Judged::Waits { is_news: true } => message(format_args!(
                        "the order thread has worked on one thing for longer than watchdog_ms. This replica goes \
                            on, because f+1 others have not executed more, do not answer, or took as long lately"
                    )),
                    Judged::Waits { is_news: false } => {}
                    Judged::Hangs => {
                        return Ok(Stop::Replace(ReplaceReason::OrderThreadHangs));
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => slow.look(watchdog_view.oldest()),
            Err(RecvTimeoutError::Disconnected) => match order.join() {
                // A healthy thread would have reported how it ended.
                Ok(()) => return Ok(Stop::Replace(ReplaceReason::Corrupted(Corrupted::MainLoop))),
                Err(payload) => std::panic::resume_unwind(payload),
            },
        }
    }
}
