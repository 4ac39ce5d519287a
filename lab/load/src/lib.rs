//! `crosscheck-lab load`: a closed-loop load that measures throughput and latency, and with --check compares every byte
//! of every reply with a model.

mod model;
mod tally;
mod worker;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use serde_json::json;

pub use tally::{LoadCounts, LoadTally};
pub use worker::{PARTS, Shape, Worker};

use node::cluster::ClusterTarget;
use node::outcome::{CommandOutcome, CommandVerdict, misuse, say, say_json};
use node::signals::Ending;
use node::view::{grouped, micros};

/// Stack of a connection's thread: thousands of them must fit.
const STACK: usize = 256 << 10;

/// The beginning of `load --help`.
pub const ABOUT: &str = "Sends requests over many connections, each waiting for its replies before it sends again \
(closed loop), and reports requests per second and latencies. With --check every connection has keys of its own and \
compares every byte of every reply with what it stored, also across broken connections: acknowledged \
writes must be there, and no `incr` may be lost or counted twice.";

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
    /// Bytes of a value
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=64 << 20),
    )]
    pub value_size: u64,
    /// Percent of requests that store
    #[arg(long, value_name = "%", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub sets: u64,
    /// Percent of requests that increment a counter
    #[arg(long, value_name = "%", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub incrs: u64,
    /// Requests that each connection sends together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub pipeline: u64,
    /// Compare every byte of every reply with a model
    #[arg(long)]
    pub check: bool,
    /// Decides which requests are sent: the same seed sends the same ones
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A load that runs in the background until it is ended.
pub struct Load {
    /// Its counts so far.
    pub tally: Arc<LoadTally>,
    connections: Vec<JoinHandle<Histogram<u64>>>,
}

impl Load {
    /// Starts `connections` connections, spread over `addresses`.
    ///
    /// # Errors
    /// Without `check`, the keys are stored first, which may fail; the operating system may have no more threads.
    pub fn start(
        shape: &Shape,
        connections: usize,
        addresses: &[SocketAddr],
        seed: u64,
    ) -> anyhow::Result<Self> {
        let tally = Arc::new(LoadTally::default());
        let worker = |number| Worker::new(number, shape, addresses, seed, Arc::clone(&tally));
        let mut workers: Vec<Worker> = (0..connections).map(worker).collect();
        if !shape.check {
            fill(&mut workers, shape.keys)?;
        }
        let spawn = |worker: Worker| {
            thread::Builder::new().name("load".into()).stack_size(STACK).spawn(move || worker.run())
        };
        let started: Result<Vec<_>, _> = workers.into_iter().map(spawn).collect();
        let started = started.inspect_err(|_| tally.end());
        Ok(Load { tally, connections: started.context("starting a thread per connection")? })
    }

    /// Ends it and returns all measured latencies, in microseconds.
    pub fn end(self) -> Histogram<u64> {
        self.tally.end();
        let mut all = worker::no_latencies();
        for connection in self.connections {
            match connection.join() {
                Ok(latencies) => all.add(&latencies).expect("all histograms have the same bounds"),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    }
}

/// Stores every key, using a few connections.
fn fill(workers: &mut [Worker], keys: usize) -> anyhow::Result<()> {
    let fillers = workers.len().min(16);
    thread::scope(|scope| {
        let fill = |(number, worker): (usize, &'_ mut Worker)| worker.fill((number..keys).step_by(fillers));
        let each = workers[..fillers].iter_mut().enumerate();
        let filling: Vec<_> = each.map(|filler| scope.spawn(move || fill(filler))).collect();
        filling.into_iter().try_for_each(|filled| match filled.join() {
            Ok(filled) => filled.context("storing the keys before the load"),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

/// Runs the load and prints its figures.
pub fn run(args: &Args) -> CommandOutcome {
    if args.sets + args.incrs > 100 {
        return Err(misuse("--sets and --incrs together are more than 100 percent"));
    }
    let shape = Shape {
        keys: usize::try_from(args.keys.unwrap_or(if args.check { 100 } else { 10_000 }))?,
        value_size: usize::try_from(args.value_size)?,
        sets: args.sets * PARTS / 100,
        incrs: args.incrs * PARTS / 100,
        pipeline: usize::try_from(args.pipeline)?,
        check: args.check,
    };
    let addresses = addresses(args)?;
    let ending = Ending::catch()?;
    // Values that an earlier checked load left would count as wrong.
    let seed = args.seed ^ if args.check { u64::from(std::process::id()) << 8 } else { 0 };
    let load = Load::start(&shape, usize::try_from(args.connections)?, &addresses, seed)?;
    ending.sleep(Duration::from_secs(args.warmup));
    let before = load.tally.seen();
    load.tally.measure(true);
    let start = Instant::now();
    ending.sleep(Duration::from_secs(args.seconds));
    load.tally.measure(false);
    let took = start.elapsed();
    let answered = load.tally.seen().answered - before.answered;
    let tally = Arc::clone(&load.tally);
    let latencies = load.end();
    let seen = tally.seen();
    report(args, answered as f64 / took.as_secs_f64(), &latencies, &seen)?;
    Ok(CommandVerdict::of(seen.wrong == 0 && answered > 0))
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

fn report(args: &Args, rate: f64, latencies: &Histogram<u64>, seen: &LoadCounts) -> anyhow::Result<()> {
    let shares = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
    if args.json {
        let percentiles: serde_json::Map<_, _> = shares
            .iter()
            .map(|(name, share)| (format!("{name}_us"), json!(latencies.value_at_quantile(*share))))
            .collect();
        return say_json(&json!({
            "requests_per_s": rate.round(), "latency": percentiles, "longest_us": latencies.max(),
            "seen": seen, "connections": args.connections, "pipeline": args.pipeline, "sets": args.sets,
            "incrs": args.incrs, "value_size": args.value_size, "seconds": args.seconds, "check": args.check,
        }));
    }
    say(&format!("{} requests/s over {} connections", grouped(rate.round() as u64), args.connections))?;
    let percentiles: Vec<String> = shares
        .iter()
        .map(|(name, share)| format!("{name} {}", micros(latencies.value_at_quantile(*share))))
        .collect();
    say(&format!("latency  {}  longest {}", percentiles.join("  "), micros(latencies.max())))?;
    let compared = if args.check { "every byte compared" } else { "not compared; see --check" };
    say(&format!(
        "replies {} ({compared})  wrong {}  found nothing {}  refused {}  broken connections {}",
        grouped(seen.answered),
        seen.wrong,
        grouped(seen.missed),
        seen.refused,
        seen.broken
    ))?;
    seen.words.iter().try_for_each(|words| Ok(say(&format!("  {words}"))?))
}

#[cfg(test)]
mod tests;
