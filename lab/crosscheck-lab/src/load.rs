//! `crosscheck-lab load`: the generator of `bench` on servers that run already, or with --check the load that compares
//! every byte of every reply with a model.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::{Amount, Dialect, Generator, Op, Pattern, Setup, Workload};
use hdrhistogram::Histogram;
use memcached_client::load::{CheckedLoad, LoadCounts};
use node::cluster::ClusterTarget;
use node::outcome::{CommandOutcome, CommandVerdict, misuse, say, say_json};
use node::signals::Ending;
use node::view::{grouped, micros};
use serde_json::json;

/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// How long a checking connection waits for a server before it connects to the next.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest latency that is reported exactly, in microseconds: a minute.
const LONGEST_US: u64 = 60_000_000;

/// The beginning of `load --help`.
pub const ABOUT: &str = "Sends requests over many connections, each waiting for its replies before it sends again \
(closed loop), and reports requests per second and latencies. With --check every connection has keys of its own, and \
some that all share, sends every command in both syntaxes, and compares every byte of every reply with what is \
possible, also across broken connections: acknowledged writes must be there, and no `incr` may be lost or counted \
twice.";

/// Options of `load`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck-lab load                                        16 connections, 10 s, 10% writes
  crosscheck-lab load --connections 64 --pipeline 8 --sets 50
  crosscheck-lab load --check --seconds 60                   while you inject faults or kill replicas
  crosscheck-lab load --server 127.0.0.1:11211               any memcached server, for comparison
  crosscheck-lab load --json >> figures.jsonl

Exit code: 0 when every reply was right, 1 when one was wrong or no request was answered.")]
pub struct Args {
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterTarget,
    /// Servers to use instead of a cluster's replicas; connections are spread over them
    #[arg(long, value_name = "HOST:PORT")]
    pub server: Vec<String>,
    /// Connections at the same time
    #[arg(
        long,
        short,
        value_name = "N",
        default_value_t = 16,
        value_parser = clap::value_parser!(u64).range(1..=10_000),
    )]
    pub connections: u64,
    /// How long to measure, in seconds
    #[arg(long, short, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Seconds before measuring begins
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub warmup: u64,
    /// Keys: all together, or of each connection with --check [default: 10000, or 100 with --check]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub keys: Option<u64>,
    /// Bytes of a value; with --check of the longest one
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=1 << 20),
    )]
    pub value_size: u64,
    /// Percent of requests that store
    #[arg(
        long,
        value_name = "%",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(0..=100),
        conflicts_with = "check",
    )]
    pub sets: u64,
    /// Percent of requests that increment a counter
    #[arg(
        long,
        value_name = "%",
        default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(0..=100),
        conflicts_with = "check",
    )]
    pub incrs: u64,
    /// Requests that each connection sends together, at most
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub pipeline: u64,
    /// Send every command, and compare every byte of every reply with a model
    #[arg(long)]
    pub check: bool,
    /// Decides which requests are sent: the same seed sends the same ones
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What a load came to.
struct Figures {
    /// Replies while it was measured.
    answered: u64,
    took: Duration,
    /// In microseconds.
    latencies: Histogram<u64>,
    counts: LoadCounts,
    /// Reads that found nothing; a checking load knows whether that is right.
    missed: Option<u64>,
}

/// Runs the load and prints its figures.
pub fn run(args: &Args) -> CommandOutcome {
    if args.sets + args.incrs > 100 {
        return Err(misuse("--sets and --incrs together are more than 100 percent"));
    }
    let addresses = addresses(args)?;
    let ending = Ending::catch()?;
    let figures =
        if args.check { checked(args, &addresses, &ending)? } else { measured(args, addresses, &ending)? };
    report(args, &figures)?;
    Ok(CommandVerdict::of(figures.counts.wrong == 0 && figures.answered > 0))
}

/// Every connection compares what it receives; at the end all keys are read once more.
fn checked(args: &Args, addresses: &[SocketAddr], ending: &Ending) -> anyhow::Result<Figures> {
    let load = CheckedLoad {
        clients: usize::try_from(args.connections)?,
        keys: usize::try_from(args.keys.unwrap_or(100))?,
        pipeline: usize::try_from(args.pipeline)?,
        longest_value: usize::try_from(args.value_size)?,
        patience: PATIENCE,
        // Values that an earlier checked load left would count as wrong.
        prefix: format!("c{:x}.{:x}:", args.seed, std::process::id()),
        seed: args.seed,
        ..CheckedLoad::on(addresses)
    };
    let running = load.try_start()?;
    ending.sleep(Duration::from_secs(args.warmup));
    let (before, start) = (running.answered(), Instant::now());
    running.tally().take_latencies();
    ending.sleep(Duration::from_secs(args.seconds));
    let (took, latencies) = (start.elapsed(), running.tally().take_latencies());
    let answered = running.answered() - before;
    let reachable = |address: &&SocketAddr| std::net::TcpStream::connect_timeout(address, PATIENCE).is_ok();
    let server: Vec<SocketAddr> = addresses.iter().find(reachable).copied().into_iter().collect();
    let counts = running.stop_and_audit(&server).counts();
    Ok(Figures { answered, took, latencies, counts, missed: None })
}

/// Measures the servers with the generator of `bench`.
fn measured(args: &Args, addresses: Vec<SocketAddr>, ending: &Ending) -> anyhow::Result<Figures> {
    let gets = (100 - args.sets - args.incrs) as f64;
    let mix = BTreeMap::from([(Op::Get, gets), (Op::Set, args.sets as f64), (Op::Incr, args.incrs as f64)]);
    let keys = usize::try_from(args.keys.unwrap_or(10_000))?;
    let setup = Setup {
        dialect: Dialect::Memcached,
        addresses,
        workload: Workload::plain("load", KEY_BYTES, Amount::Fixed(args.value_size), mix, keys),
        connections: usize::try_from(args.connections)?,
        pipeline: usize::try_from(args.pipeline)?,
        rate: None,
        verify: false,
        seed: args.seed,
        timeline: false,
        restarts: true,
    };
    let mut generator = Generator::prepare(setup, &Arc::new(Pattern::default()))?;
    generator.warm_up(Duration::from_secs(args.warmup))?;
    let (mut took, mut answered, mut missed) = (Duration::ZERO, 0, 0);
    let mut latencies = Histogram::new_with_bounds(1, LONGEST_US, 3)?;
    // Second by second: who ends it has the figures until then.
    while took < Duration::from_secs(args.seconds) && !ending.asked() {
        took += generator.measure(Duration::from_secs(1))?.0;
        let seen = generator.seen();
        (answered, missed) = (answered + seen.completed, missed + seen.misses);
        for value in seen.latencies.iter_recorded() {
            let us = (value.value_iterated_to() / 1000).max(1);
            latencies.saturating_record_n(us, value.count_at_value());
        }
    }
    let seen = generator.finish()?;
    let (wrong, refused, broken) = (seen.wrong, seen.refused, seen.broken);
    let counts = LoadCounts { answered, wrong, refused, broken, words: seen.words };
    Ok(Figures { answered, took, latencies, counts, missed: Some(missed) })
}

fn addresses(args: &Args) -> anyhow::Result<Vec<SocketAddr>> {
    if args.server.is_empty() {
        let found: Vec<SocketAddr> =
            args.target.replicas()?.iter().filter_map(|replica| replica.clients).collect();
        if found.is_empty() {
            return Err(misuse("--admin does not tell where clients connect; give --server HOST:PORT"));
        }
        return Ok(found);
    }
    let resolve = |server: &String| {
        let found = server.to_socket_addrs().ok().and_then(|mut found| found.next());
        found.ok_or_else(|| misuse(format!("--server {server}: not an address; write HOST:PORT")))
    };
    args.server.iter().map(resolve).collect()
}

fn report(args: &Args, figures: &Figures) -> anyhow::Result<()> {
    let Figures { answered, took, latencies, counts, missed } = figures;
    let rate = (*answered as f64 / took.as_secs_f64()).round();
    let shares = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
    if args.json {
        let percentiles: serde_json::Map<_, _> = shares
            .iter()
            .map(|(name, share)| (format!("{name}_us"), json!(latencies.value_at_quantile(*share))))
            .collect();
        return say_json(&json!({
            "requests_per_s": rate, "latency": percentiles, "longest_us": latencies.max(),
            "seen": counts, "missed": missed, "connections": args.connections, "pipeline": args.pipeline,
            "sets": args.sets, "incrs": args.incrs, "value_size": args.value_size, "seconds": args.seconds,
            "check": args.check,
        }));
    }
    say(&format!("{} requests/s over {} connections", grouped(rate as u64), args.connections))?;
    let percentiles: Vec<String> = shares
        .iter()
        .map(|(name, share)| format!("{name} {}", micros(latencies.value_at_quantile(*share))))
        .collect();
    say(&format!("latency  {}  longest {}", percentiles.join("  "), micros(latencies.max())))?;
    let compared = if args.check { "every byte compared" } else { "not compared; see --check" };
    let found = missed.map(|missed| format!("  found nothing {}", grouped(missed))).unwrap_or_default();
    say(&format!(
        "replies {} ({compared})  wrong {}{found}  refused {}  broken connections {}",
        grouped(counts.answered),
        counts.wrong,
        counts.refused,
        counts.broken
    ))?;
    counts.words.iter().try_for_each(|words| Ok(say(&format!("  {words}"))?))
}
