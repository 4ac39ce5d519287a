//! memaslap, an independent load generator, on the same servers: if its figures and ours disagree, one of the two
//! measures wrongly.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::definition::{Amount, Definition, Op, Workload};
use super::results::Independent;
use super::servers;
use node::signals::Ending;

/// Its names: upstream's and Debian's.
const PROGRAMS: [&str; 2] = ["memaslap", "memcaslap"];
/// The message when it is missing.
pub const INSTALL: &str = "memaslap is not installed; install it with: apt-get install libmemcached-tools";
/// How much longer than requested it may take: it fills its windows first.
const PATIENCE: Duration = Duration::from_secs(60);
/// Its shortest key.
const SHORTEST_KEY: usize = 16;

/// Its file, if it is installed.
pub fn program() -> Option<PathBuf> {
    PROGRAMS.iter().find_map(|name| servers::find(name))
}

/// Runs it for as long as our generator measured; none when it cannot produce this workload.
///
/// It draws its keys uniformly from a window per connection, so the figures agree only roughly in general, and closely
/// for uniform workloads.
///
/// # Errors
/// It fails, or its output cannot be parsed.
pub fn run(
    definition: &Definition,
    workload: &Workload,
    clients: usize,
    addresses: &[SocketAddr],
    data: &Path,
    ending: &Ending,
) -> anyhow::Result<Option<Independent>> {
    // It requires a thread per server and as many connections to each of them.
    let threads = addresses.len();
    let connections = clients / threads * threads;
    let Some(config) = config(workload).filter(|_| connections == clients && definition.pipeline == 1) else {
        return Ok(None);
    };
    let file = tempfile::Builder::new().prefix("memaslap-").tempfile_in(data)?;
    std::fs::write(file.path(), config)?;
    let servers: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let window = (workload.keys / clients / 1024).max(1);
    let seconds = definition.seconds.ceil() as u64;
    // Its output goes to a file: it can be longer than a pipe holds, and would wait for a reader.
    let said = tempfile::Builder::new().prefix("memaslap-").tempfile_in(data)?;
    let child = Command::new(program().context(INSTALL)?)
        .args(["-s", &servers.join(","), "-T", &threads.to_string(), "-c", &connections.to_string()])
        .args(["-t", &format!("{seconds}s"), "-w", &format!("{window}k"), "-F"])
        .arg(file.path())
        .stdin(Stdio::null())
        .stdout(said.reopen()?)
        .stderr(Stdio::null())
        .spawn()
        .context("starting memaslap")?;
    let status = wait(child, Duration::from_secs(seconds) + PATIENCE, ending)?;
    let text = std::fs::read(said.path())?;
    let text = String::from_utf8_lossy(&text);
    if !status.success() {
        bail!("memaslap failed ({status}): {}", text.lines().last().unwrap_or(""));
    }
    understood(&text).map(Some)
}

/// Waits for its end, and kills it after a timeout.
fn wait(mut child: Child, patience: Duration, ending: &Ending) -> anyhow::Result<ExitStatus> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if ending.sleep(Duration::from_millis(20)) || Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            bail!("memaslap did not end in time");
        }
    }
}

/// Its configuration; it supports reads and writes, and neither lifetimes nor popularity.
fn config(workload: &Workload) -> Option<String> {
    let share = |op| workload.mix.get(&op).copied().unwrap_or(0.0);
    let (gets, sets) = (share(Op::Get), share(Op::Set));
    let total: f64 = workload.mix.values().sum();
    let known = (gets + sets - total).abs() < 1e-9 && workload.key_bytes >= SHORTEST_KEY;
    if !known || workload.ttl_seconds.highest() > 0 {
        return None;
    }
    let mut text = format!("key\n{0} {0} 1\nvalue\n", workload.key_bytes);
    match &workload.value_bytes {
        Amount::Fixed(size) => writeln!(text, "{size} {size} 1").ok()?,
        Amount::Between { from, to } => writeln!(text, "{from} {to} 1").ok()?,
        Amount::Weighted(pairs) => {
            let sum: f64 = pairs.iter().map(|pair| pair.1).sum();
            for (size, weight) in pairs {
                writeln!(text, "{size} {size} {:.4}", weight / sum).ok()?;
            }
        }
    }
    writeln!(text, "cmd\n0 {:.4}\n1 {:.4}", sets / total, gets / total).ok()?;
    Some(text)
}

/// Parses its last lines: `get_misses: 0` and `Run time: 2.0s Ops: 74555 TPS: 37273 Net_rate: 21.4M/s`. It counts
/// refused requests as completed, and only prints them.
fn understood(text: &str) -> anyhow::Result<Independent> {
    if let Some(refused) = text.lines().find(|line| line.contains("ERROR")) {
        bail!("memaslap was refused: {refused}");
    }
    let after = |name: &str| text.rsplit_once(name)?.1.split_whitespace().next()?.parse::<f64>().ok();
    let throughput = after("TPS:").context("memaslap reported no TPS")?;
    Ok(Independent { throughput, misses: after("get_misses:").unwrap_or(0.0) as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition;

    #[test]
    fn its_last_line_is_understood() {
        let text = "cmd_get: 5\nget_misses: 3\n\nRun time: 2.0s Ops: 74555 TPS: 37273 Net_rate: 21.4M/s\n";
        let found = understood(text).expect("understood");
        assert_eq!((found.throughput, found.misses), (37_273.0, 3));
        assert!(understood("Please specify the item window size.").is_err());
        let refused = understood(&format!("<16 CLIENT_ERROR bad command line format\n{text}"));
        assert!(refused.is_err(), "what is refused was not measured");
    }

    #[test]
    fn it_gets_only_what_it_supports() {
        let text = |mix: &str| {
            format!(
                "title = 't'\nabout = 'a'\npeers = ['memcached']\nclients = [1]\nseconds = 1.0\nrepetitions = 1\n\
                 [[workload]]\nname = 'w'\nkey_bytes = 100\nvalue_bytes = 400\nmix = {mix}\nkeys = 5000\n"
            )
        };
        let workload = |mix| definition::parse("x", "x", &text(mix)).expect("right").workloads[0].clone();
        let config = config(&workload("{ get = 3, set = 1 }")).expect("known");
        assert_eq!(config, "key\n100 100 1\nvalue\n400 400 1\ncmd\n0 0.2500\n1 0.7500\n");
        assert_eq!(super::config(&workload("{ get = 3, incr = 1 }")), None);
    }
}
