//! Idle connections use all open files that they can get: peers, admin commands and the log keep theirs, and clients
//! that are silent for too long are disconnected.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::lab::{HostileRun, REPLICAS, Setup};
use super::outcome::Case;
use super::watch::HostileWatch;
use super::{ms, wire};
use cli::service::NodeConfig;
use memcached_client::Client;
use node::cluster::Dress;

/// The usual limit of a process.
const FILES: usize = 1024;
/// Idle connections to each replica: nearly the limit of open files.
const IDLE: usize = 1012;
/// Values that are stored meanwhile, and their length: enough for the log to begin new files.
const VALUES: (usize, usize) = (40, 900_000);
/// How long a replica that is restarted meanwhile may take until it serves.
const BACK: Duration = Duration::from_secs(10);
/// Idle timeout of the case that has one.
const TIMEOUT_S: u64 = 2;

/// Runs the attack.
pub fn run(run: &HostileRun<'_>) -> anyhow::Result<()> {
    too_few(run)?;
    flood(run)?;
    silent(run)
}

/// Tests a limit below the files that a replica needs for itself.
fn too_few(run: &HostileRun<'_>) -> anyhow::Result<()> {
    let mut case = Case::new("`ulimit -n 64`, and a replica is started");
    let scratch = tempfile::tempdir()?;
    let nowhere = node::cluster::ports::loopback(1);
    let clients = node::cluster::ports::loopback(2);
    let admin = crosscheck::admin::Endpoint::Unix(scratch.path().join("admin.sock"));
    let mut node = NodeConfig::new(1, vec![nowhere], clients, admin);
    node.mode = "00G0".parse().unwrap_or_default();
    let config = scratch.path().join("node.toml");
    std::fs::write(&config, node.to_toml())?;
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$@\"", "sh"]).arg(std::env::current_exe()?);
    let ended = command.args(["serve", "--check", "--config"]).arg(&config).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    case.check(ended.status.code() == Some(2), "it is refused with exit code 2", format!("{}", ended.status));
    case.check(said.contains("Remedy: raise the limit"), "with the remedy", said);
    run.record_case(case);
    Ok(())
}

fn flood(run: &HostileRun<'_>) -> anyhow::Result<()> {
    let mut case = Case::new(format!(
        "`ulimit -n {FILES}`, logs on disk: {IDLE} idle connections to each replica, then 36 MB of writes; \
            replica 3 is killed and started again"
    ));
    let dress = Dress { shell: Some(format!("ulimit -n {FILES}")), ..Dress::default() };
    let dress = REPLICAS.map(|number| (number, dress.clone())).into();
    // Enough memory for all values, however their keys are distributed over the shards.
    let change = |node: &mut NodeConfig, _: &std::path::Path| node.service.memory_limit_mb = 512;
    let lab = run.cluster(Setup { disk: true, dress, change: &change, ..Setup::default() })?;
    let lowered = REPLICAS.map(|number| lab.said(number, "max_connections is lowered").len());
    case.check(lowered == [1; 3], "the lowered max_connections is said once", format!("{lowered:?} times"));
    let watch = HostileWatch::start(&lab)?;
    let mut client = lab.client(1)?;
    let idle: Vec<Vec<_>> = REPLICAS.map(|number| wire::connect_all(lab.clients(number), IDLE)).into();
    case.add_note(format!(
        "{:?} connections were accepted or wait",
        idle.iter().map(Vec::len).collect::<Vec<_>>()
    ));
    for number in 0..VALUES.0 {
        client.set(&format!("large-{number}"), 0, &vec![b'v'; VALUES.1])?;
    }
    let began = Instant::now();
    let answers = REPLICAS.iter().filter(|number| lab.status(**number).is_some()).count();
    case.check(
        answers == 3,
        "admin commands are answered",
        format!("{answers} of 3 in {}", ms(began.elapsed())),
    );
    lab.down(&[3]);
    lab.up(&[3]);
    let back = lab.until_served(&REPLICAS, BACK)?;
    let seen = back.map_or_else(|| lab.seen(), |after| format!("after {}", ms(after)));
    case.check(back.is_some(), format!("peers are let in: it serves within {}", ms(BACK)), seen);
    let mut found = 0;
    for number in 0..VALUES.0 {
        let value = client.get(&format!("large-{number}"))?;
        found += usize::from(value.is_some_and(|value| value.bytes.len() == VALUES.1));
    }
    case.check(found == VALUES.0, "what was written is there", format!("{found} of {} values", VALUES.0));
    watch.finish().check_waits(&mut case, &[1, 2]);
    lab.check_alive(&mut case);
    drop(idle);
    run.record_case(case);
    Ok(())
}

fn silent(run: &HostileRun<'_>) -> anyhow::Result<()> {
    let mut case = Case::new(format!(
        "max_connections = 100, idle_timeout_s = {TIMEOUT_S}: 100 silent connections, and one that asks"
    ));
    let change = |node: &mut NodeConfig, _: &std::path::Path| {
        (node.max_connections, node.idle_timeout_s) = (Some(100), TIMEOUT_S);
    };
    let lab = run.cluster(Setup { change: &change, ..Setup::default() })?;
    let mut busy = lab.client(1)?;
    let idle = wire::connect_all(lab.clients(1), 100);
    let began = Instant::now();
    let (mut failed, mut full) = (0, false);
    let let_in = lab.until(Duration::from_secs(TIMEOUT_S + 3), |lab| {
        failed += usize::from(busy.set("busy", 0, b"1").is_err());
        let newcomer = Client::connect(lab.clients(1), Duration::from_secs(1));
        let is_served = newcomer.is_ok_and(|mut client| client.get("busy").is_ok());
        full |= !is_served;
        is_served && began.elapsed() > Duration::from_secs(1)
    })?;
    let seen =
        let_in.map_or_else(|| "not within 5,000 ms".to_owned(), |after| format!("after {}", ms(after)));
    case.check(
        full,
        "they prevent new connections at first",
        if full { "a new connection was refused" } else { "no connection was refused" },
    );
    case.check(let_in.is_some(), "they are closed, and others are served", seen);
    let closed = |lab: &super::lab::Lab<'_>| lab.status(1).map_or(0, |status| status.buffers.idle);
    let all = lab.until(Duration::from_secs(2), |lab| closed(lab) >= 99)?;
    case.check(all.is_some(), "`status` counts them", format!("{} closed as idle", closed(&lab)));
    case.check(
        failed == 0,
        "a client that sends requests is not closed",
        format!("{failed} requests failed"),
    );
    drop(idle);
    run.record_case(case);
    Ok(())
}
