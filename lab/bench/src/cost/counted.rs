//! Runs every process of a side under callgrind, and reads its counters around a known number of requests. What a
//! process does on its own, with no client, is counted too and subtracted: under valgrind a second has so few requests
//! that periodic work would be a large part of each. It is subtracted once per tick of the process's clock, and not by
//! the time that has passed: a busy process, and one on a busy machine, ticks more rarely. For the same reason its
//! replicas have no supervisor, which would ask them for their status.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::callgrind::{Counter, Totals, under_callgrind};
use super::load::{Clients, Kind, Load};
use super::{Args, PerRequest, Role};
use crate::definition::{Definition, Op, Side};
use crate::servers::{Peer, stock_command};
use cli::service::{ClusterOptions, ClusterPlan, MemcachedOptions};
use node::cluster::{ReplicaHandle, ReplicaRow, once};
use node::signals::Ending;

/// Starting and stopping take longer under valgrind.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long processes are counted without clients.
const IDLE: Duration = Duration::from_secs(3);
/// So long after the last reply other replicas may still work on the last requests. What all do by themselves in that
/// time is in the count, and subtracted.
const SETTLE: Duration = Duration::from_millis(200);
/// Open files that valgrind keeps to itself, of those that a process may have.
const VALGRINDS_FILES: u64 = 12;
/// A slow leader must not lose its office, nor a slow order thread its life.
const ELECTION_MS: (u64, u64) = (10_000, 20_000);
const WATCHDOG_MS: u64 = 120_000;

/// Counts requests to `side` under every load, of every kind, at each of its processes.
///
/// # Errors
/// valgrind is missing, a process fails, or the leader changes.
pub fn count(
    side: &Side,
    args: &Args,
    definition: &Definition,
    ending: &Ending,
) -> anyhow::Result<Vec<PerRequest>> {
    let folder = tempfile::Builder::new().prefix("crosscheck-cost-").tempdir()?;
    let files = args.keep.as_deref().unwrap_or(folder.path());
    std::fs::create_dir_all(files).with_context(|| format!("making {}", files.display()))?;
    let mut counted = match side {
        Side::Ours(mode) => {
            let server = args.server.clone().map_or_else(std::env::current_exe, Ok)?;
            CountedSide::ours(mode, &server, definition, (folder.path(), files), ending)?
        }
        _ => CountedSide::memcached(definition, (folder.path(), files), ending)?,
    };
    let found = counted.all(side, args.requests, definition, ending);
    // The group ends also where a measurement failed.
    let killed = counted.stop();
    let found = found?;
    if !killed.is_empty() {
        bail!("{} had to be killed", killed.join(", "));
    }
    Ok(found)
}

/// The processes of a side, all of them under callgrind.
struct CountedSide {
    peers: Vec<Peer>,
    counters: Vec<Counter>,
    roles: Vec<Role>,
    /// Where all clients connect.
    address: SocketAddr,
    /// The files and replicas of a cluster of ours.
    plan: Option<ClusterPlan>,
}

/// The counters of each process after a number of requests, or after a time without any.
struct CounterSample {
    totals: Vec<Totals>,
    seconds: f64,
}

impl CountedSide {
    /// Starts a cluster in `mode`; clients will connect to a replica that does not lead, if there is one.
    fn ours(
        mode: &str,
        server: &Path,
        definition: &Definition,
        (data, files): (&Path, &Path),
        ending: &Ending,
    ) -> anyhow::Result<Self> {
        let mode: crosscheck::Mode = mode.parse().map_err(anyhow::Error::msg)?;
        let wish = ClusterOptions {
            mode,
            port: Some(0),
            workers: Some(definition.workers),
            service: MemcachedOptions {
                memory_limit_mb: definition.memory_mb,
                ..MemcachedOptions::default()
            },
            ..ClusterOptions::default()
        };
        let mut plan = ClusterPlan::new(&wish)?;
        let configs = plan.write()?;
        let (mut peers, mut counters) = (Vec::new(), Vec::new());
        for (number, config) in (1u8..).zip(&configs) {
            plan.reconfigure(number, |node| {
                (node.election_ms, node.watchdog_ms) = (ELECTION_MS, WATCHDOG_MS);
            })?;
            let mut serve = Command::new(server);
            serve.arg("serve").arg("--config").arg(config);
            if number == 1 {
                serve.arg("--begin-group");
            }
            let output = files.join(format!("{mode}-replica-{number}"));
            let peer = start(&format!("replica {number}"), &serve, &output, data)?;
            counters.push(Counter::new(peer.process().1, output));
            peers.push(peer);
        }
        let replicas = plan.replicas();
        let leader = until_ready(&replicas, &mut peers, ending)?;
        let contacted =
            replicas.iter().rev().find(|replica| replica.number != leader).unwrap_or(&replicas[0]);
        let address = contacted.clients.context("a replica has no address for clients")?;
        let role = |replica: &ReplicaHandle| match replica.number {
            _ if replicas.len() == 1 => Role::Server,
            number if number == contacted.number => Role::Contacted,
            number if number == leader => Role::Leader,
            _ => Role::Other,
        };
        let roles = replicas.iter().map(role).collect();
        Ok(CountedSide { peers, counters, roles, address, plan: Some(plan) })
    }

    fn memcached(
        definition: &Definition,
        (data, files): (&Path, &Path),
        ending: &Ending,
    ) -> anyhow::Result<Self> {
        let (mut command, address) = stock_command(definition)?;
        if rustix::process::geteuid().is_root() {
            // callgrind's files belong to the user who starts it, and are written until the end.
            command.args(["-u", "root"]);
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        // memcached sets its limit of open files to this number, and valgrind permits only the one that is left.
        let left = limit.maximum.unwrap_or(1024).saturating_sub(VALGRINDS_FILES);
        command.arg("-c").arg(left.to_string());
        let output = files.join("memcached");
        let mut peer = start("memcached", &command, &output, data)?;
        peer.until_within(PATIENCE, ending, || std::net::TcpStream::connect(address).is_ok())?;
        let counters = vec![Counter::new(peer.process().1, output)];
        Ok(CountedSide { peers: vec![peer], counters, roles: vec![Role::Server], address, plan: None })
    }

    /// Every load and kind.
    fn all(
        &mut self,
        side: &Side,
        requests: u32,
        definition: &Definition,
        ending: &Ending,
    ) -> anyhow::Result<Vec<PerRequest>> {
        let leader = self.leader();
        let mut samples = Vec::new();
        for (load, first) in Load::ALL.into_iter().zip((0..).step_by(requests as usize)) {
            let mut clients = Clients::connect(load, self.address, &definition.workloads[0])?;
            let keys = |kind: Kind| (0..requests).map(|number| kind.key(first, number)).collect::<Vec<_>>();
            clients.ask(Op::Set, &keys(Kind::Set))?;
            for kind in Kind::ALL {
                if kind == Kind::HotGet {
                    // The reads that still are recorded.
                    clients.ask(kind.op(), &keys(kind)[..requests.min(50) as usize])?;
                }
                let keys = keys(kind);
                samples.push((load, kind, self.sample(|| clients.ask(kind.op(), &keys))?));
                if let Some(trouble) = self.peers.iter_mut().find_map(Peer::trouble) {
                    bail!(trouble);
                }
            }
        }
        let idle = self.sample(|| match ending.sleep(IDLE) {
            true => bail!("ended by the operator"),
            false => Ok(()),
        })?;
        if self.leader() != leader {
            bail!("the leader changed while requests were counted");
        }
        let each = |(load, kind, sample): &(Load, Kind, CounterSample)| {
            let per_process = self.roles.iter().zip(&sample.totals).zip(&idle.totals);
            let figures = per_process.map(|((role, totals), alone)| {
                let own = match (totals.ticks, alone.ticks) {
                    (ticks, idle_ticks) if ticks > 0 && idle_ticks > 0 => ticks as f64 / idle_ticks as f64,
                    _ => sample.seconds / idle.seconds,
                };
                let net =
                    |with: u64, alone: u64| (with as f64 - alone as f64 * own).max(0.0) / f64::from(requests);
                PerRequest {
                    side: side.clone(),
                    role: *role,
                    load: *load,
                    kind: *kind,
                    requests,
                    instructions: net(totals.instructions, alone.instructions),
                    // A process that stores items allocates: zero calls mean that the symbols are missing.
                    allocations: (totals.allocations > 0).then(|| net(totals.allocations, alone.allocations)),
                }
            });
            figures.collect::<Vec<_>>()
        };
        Ok(samples.iter().flat_map(each).collect())
    }

    /// What each process executes while `work` goes on.
    fn sample(&mut self, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<CounterSample> {
        let settle = if self.peers.len() > 1 { SETTLE } else { Duration::ZERO };
        // What was asked before this sample ends, too.
        std::thread::sleep(settle);
        self.counters.iter_mut().try_for_each(Counter::zero)?;
        let begin = Instant::now();
        work()?;
        std::thread::sleep(settle);
        let seconds = begin.elapsed().as_secs_f64();
        let totals = self.counters.iter_mut().map(Counter::read).collect::<anyhow::Result<_>>()?;
        Ok(CounterSample { totals, seconds })
    }

    fn leader(&self) -> Option<u8> {
        let rows = self.plan.as_ref().map(|plan| once(&plan.replicas()))?;
        rows.iter().find_map(|row| row.serving()?.leader)
    }

    fn stop(self) -> Vec<String> {
        let killed = self.peers.into_iter().filter_map(|peer| peer.stop_within(PATIENCE)).collect();
        if let Some(plan) = &self.plan {
            plan.layout.clean();
        }
        killed
    }
}

/// Starts `command` under callgrind.
fn start(name: &str, command: &Command, output: &Path, data: &Path) -> anyhow::Result<Peer> {
    Peer::start(name, under_callgrind(command, output)?, data.join(format!("{name}.log")))
}

/// Waits until all replicas serve; returns the leader.
fn until_ready(replicas: &[ReplicaHandle], peers: &mut [Peer], ending: &Ending) -> anyhow::Result<u8> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let rows = once(replicas);
        if rows.iter().all(ReplicaRow::is_ready) {
            return rows.iter().find_map(|row| row.serving()?.leader).context("no replica knows a leader");
        }
        if let Some(trouble) = peers.iter_mut().find_map(Peer::trouble) {
            bail!(trouble);
        }
        if ending.sleep(Duration::from_millis(200)) {
            bail!("ended by the operator");
        }
        if Instant::now() > deadline {
            bail!("not ready after {} s", PATIENCE.as_secs());
        }
    }
}
