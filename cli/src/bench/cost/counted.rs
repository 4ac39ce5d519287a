//! Runs one of our processes under valgrind with a fixed number of requests, twice: the cost that both runs share,
//! mainly of starting, cancels.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::PerRequest;
use super::callgrind::{self, Totals};
use super::client::CostClient;
use crate::bench::definition::{Definition, Op, Side};
use crate::bench::servers::{Peer, find};
use crate::service::{ClusterOptions, ClusterPlan, MemcachedOptions};
use node::cluster::{ReplicaRow, once};
use node::signals::Ending;

/// Keys in use; all are stored first, in both runs.
const KEYS: u32 = 1000;
/// Requests in progress.
const TOGETHER: usize = 16;
/// Requests of the shorter run.
const FEW: u32 = 1000;
/// Starting and stopping take longer under valgrind.
const PATIENCE: Duration = Duration::from_secs(120);

/// Counts the cost of one request in one replica in `mode`; the others of its group run without valgrind.
///
/// # Errors
/// valgrind is missing, or a process fails.
pub fn count(
    mode: &str,
    op: Op,
    requests: u32,
    definition: &Definition,
    ending: &Ending,
) -> anyhow::Result<PerRequest> {
    let few = totals(mode, op, FEW, definition, ending)?;
    let many = totals(mode, op, FEW + requests, definition, ending)?;
    let each = |many: u64, few: u64| many.saturating_sub(few) as f64 / f64::from(requests);
    let allocations = each(many.allocations, few.allocations);
    Ok(PerRequest {
        side: Side::Ours(mode.to_owned()),
        op,
        requests,
        instructions: each(many.instructions, few.instructions),
        // A process allocates when it starts in any case: zero calls mean that the symbols are missing.
        allocations: (many.allocations > 0).then_some(allocations),
    })
}

fn totals(
    mode: &str,
    op: Op,
    requests: u32,
    definition: &Definition,
    ending: &Ending,
) -> anyhow::Result<Totals> {
    let folder = tempfile::Builder::new().prefix("crosscheck-cost-").tempdir()?;
    let mode: crosscheck::Mode = mode.parse().map_err(anyhow::Error::msg)?;
    let wish = ClusterOptions {
        mode,
        port: Some(0),
        workers: Some(definition.workers),
        service: MemcachedOptions { memory_limit_mb: definition.memory_mb, ..MemcachedOptions::default() },
        ..ClusterOptions::default()
    };
    let plan = ClusterPlan::new(&wish)?;
    let configs = plan.write()?;
    let output = folder.path().join("callgrind");
    let mut peers = Vec::new();
    // The last replica is the slow one, so that another one becomes the leader.
    for (number, config) in (1..).zip(&configs) {
        let slow = number == configs.len();
        let command = if slow { under_valgrind(&output)? } else { Command::new(std::env::current_exe()?) };
        peers.push(serve(command, number, config, folder.path())?);
    }
    let asked = ask(&plan, op, requests, definition, &mut peers, ending);
    let killed: Vec<String> = peers.into_iter().filter_map(|peer| peer.stop_within(PATIENCE)).collect();
    plan.layout.clean();
    asked?;
    if !killed.is_empty() {
        bail!("{} had to be killed", killed.join(", "));
    }
    let text = std::fs::read_to_string(&output).context("reading what callgrind wrote")?;
    callgrind::parse(&text).context("callgrind wrote no totals")
}

fn under_valgrind(output: &Path) -> anyhow::Result<Command> {
    let valgrind =
        find("valgrind").context("valgrind is not installed; install it with: apt-get install valgrind")?;
    let mut command = Command::new(valgrind);
    let mut file = std::ffi::OsString::from("--callgrind-out-file=");
    file.push(output);
    command.args(["--tool=callgrind", "--fair-sched=try", "--quiet"]).arg(file);
    command.arg(std::env::current_exe()?);
    Ok(command)
}

fn serve(mut command: Command, number: usize, config: &Path, folder: &Path) -> anyhow::Result<Peer> {
    command.arg("serve").arg("--config").arg(config);
    if number == 1 {
        command.arg("--begin-group");
    }
    Peer::start(&format!("replica {number}"), command, folder.join(format!("log-{number}")))
}

/// Waits until all serve, stores the keys, and sends the requests through the replica that is counted.
fn ask(
    plan: &ClusterPlan,
    op: Op,
    requests: u32,
    definition: &Definition,
    peers: &mut [Peer],
    ending: &Ending,
) -> anyhow::Result<()> {
    let replicas = plan.replicas();
    let deadline = Instant::now() + PATIENCE;
    while !once(&replicas).iter().all(ReplicaRow::is_ready) {
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
    let address = replicas.last().and_then(|replica| replica.clients).context("no replica has clients")?;
    let mut client = CostClient::connect(address, &definition.workloads[0])?;
    client.ask(Op::Set, 0..KEYS, TOGETHER)?;
    client.ask(op, (0..requests).map(|number| number.wrapping_mul(7919) % KEYS), TOGETHER)
}
