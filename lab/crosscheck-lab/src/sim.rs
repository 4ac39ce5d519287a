//! `crosscheck-lab sim`: whole clusters in one thread from one seed, with faults, and a checker for every promise.

mod campaign;

use std::panic;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use sim::memcached::OfMemcached;
use sim::mutation::{Caught, MUTATIONS, SEEDS, caught};
use sim::report::{self, CampaignTotals};
use sim::{Faults, Options, RunSummary, fault, run, shrink};
use wire::mix;

use node::outcome::{CommandOutcome, CommandVerdict, misuse, say};
use node::signals::Ending;
use node::view::ProgressLine;

/// What `sim --help` begins with.
pub const ABOUT: &str = "Runs whole clusters (replicas, clients, network, clock) in one thread each, every \
    step decided by one seed, with the code that ships, while faults strike at most f replicas at a time; \
    one checker per promise looks after every step. A run first meets faults, then must heal, answer \
    everything and become bit-identical. The same seed gives the same run, to the bit.";

/// Options of `sim`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck-lab sim                                      100 new seeds
  crosscheck-lab sim --seeds 10000 --first 1 --jobs 2     these very seeds, two at a time
  crosscheck-lab sim --faults none --requests 100000      no fault: any alarm is a false one
  crosscheck-lab sim --faults flip,crash --replicas 5     two replicas at a time, these faults only
  crosscheck-lab sim --workers 3 --faults all             replicas with one, two and three workers, which must agree
  crosscheck-lab sim --twice                              one node that runs each request twice
  crosscheck-lab sim --verified --workers 3               mode R0GV: execute first, verify afterwards
  crosscheck-lab sim --verified --workers 2 --dense --clients 60 --faults interleave   replicas whose states differ
  crosscheck-lab sim --disk --faults blackout,disk-flip   logs on disk, all power lost at once, bits flipped at rest
  crosscheck-lab sim --copies --replicas 5 --faults none  strikes at each step of a copy of the state
  crosscheck-lab sim --replay 4711 --trace                one seed again, with everything that happened
  crosscheck-lab sim --replay 4711 --shrink               the smallest run of it that still fails
  crosscheck-lab sim --campaign results --minutes 60 --jobs 2   an hour of everything, added to what is in results/
  crosscheck-lab sim --campaign results --seeds 0         only the summary of what is in results/, merged
  crosscheck-lab sim --mutations                          break each promise on purpose: does its checker notice?
  crosscheck-lab sim --promises                           what is promised, and how it is checked
  crosscheck-lab sim --catalogue                          each fault: what happens, who notices, who repairs
  crosscheck-lab sim --catalogue --seeds 20 --first 1     the same, measured: 20 runs of each fault alone, and of all

Exit code: 0 when every promise was kept (with --mutations: every checker noticed), 1 when one was broken.")]
pub struct Args {
    /// How many seeds [default: 100; with --campaign and --minutes, as many as fit; with --catalogue, none]
    #[arg(long, value_name = "N")]
    pub seeds: Option<u64>,
    /// Run seeds over all clusters and fault sets in turn (3 and 5 replicas, logs in memory and on disk), and
    /// keep what they came to in DIR, beside what earlier invocations found: summary.md, summary.json.gz
    #[arg(long, value_name = "DIR", conflicts_with_all = ["replay", "mutations", "promises", "catalogue"])]
    pub campaign: Option<PathBuf>,
    /// Only those clusters and fault sets that have TEXT in their name, such as `storms` or `5 replicas`
    #[arg(long, value_name = "TEXT", requires = "campaign")]
    pub cells: Option<String>,
    /// End the campaign after this many minutes
    #[arg(long, value_name = "N", requires = "campaign")]
    pub minutes: Option<f64>,
    /// The first seed [default: one that is drawn]
    #[arg(long, value_name = "S")]
    pub first: Option<u64>,
    /// Runs at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub jobs: u64,
    /// Commands per run, at least; clients go on while faults strike
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub requests: u64,
    /// Clients per run
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub clients: usize,
    /// Replicas, 3 or 5: faults strike one of them at a time, or two. With --verified also 2, of which one has
    /// corrupted memory at a time
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub replicas: u8,
    /// One node that compares with itself (mode 00GT); of the faults, those in one run of a handler
    #[arg(long, conflicts_with_all = ["replicas", "disk", "evict", "campaign", "catalogue", "mutations"])]
    pub twice: bool,
    /// Replicas execute a batch first and verify it afterwards (mode R0GV). Of the faults, those of processes, of the
    /// network, in single requests and in what that mode adds
    #[arg(long, conflicts_with_all = ["twice", "disk", "campaign", "catalogue", "mutations"])]
    pub verified: bool,
    /// Logs on disk: a replica that restarts comes back from its own
    #[arg(long)]
    pub disk: bool,
    /// Replicas have 1 to N workers, not all the same number; who overtakes whom is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub workers: usize,
    /// Clients think for a moment only, so that batches have many requests
    #[arg(long)]
    pub dense: bool,
    /// How much there is of what.
    #[command(flatten)]
    pub amounts: Amounts,
    /// none, all, network, memory (or its parts: at-rest, mended), disk, or names with commas between, as
    /// `--catalogue` lists them
    #[arg(long, value_name = "WHICH", default_value = "all")]
    pub faults: String,
    /// Episodes of faults per run; between two everything heals
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub episodes: u64,
    /// Faults per episode at most, all at the same f replicas; with hundreds, one repair follows the other
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub strokes: u64,
    /// Leave out these episodes, by number from 0 (what shrinking prints)
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    pub without: Vec<u64>,
    /// Run this seed alone
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "first", "jobs"])]
    pub replay: Option<u64>,
    /// Print everything that happens
    #[arg(long, requires = "replay")]
    pub trace: bool,
    /// Make a failing run smaller
    #[arg(long, requires = "replay")]
    pub shrink: bool,
    /// Break each promise on purpose, and show which checkers notice
    #[arg(long, conflicts_with_all = ["replay", "promises", "catalogue"])]
    pub mutations: bool,
    /// Print every promise, how it is checked, and what shows that its checker can fail
    #[arg(long, conflicts_with_all = ["replay", "catalogue"])]
    pub promises: bool,
    /// Print the page of faults; with --seeds, what each fault alone and all together did in so many runs
    #[arg(long, conflicts_with = "replay")]
    pub catalogue: bool,
}

/// How much memory there is, and how long logs are.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Amounts {
    /// Memory is short, and clients write more than fits: items are evicted
    #[arg(long)]
    pub evict: bool,
    /// Logs are as long, and states in as large pieces, as shipped; else only with one seed in eight
    #[arg(long)]
    pub real_sizes: bool,
    /// Episodes are chains of strikes: each comes while the victim of the one before recovers, and hits as many
    /// replicas as the group says that may fail. No other faults
    #[arg(long)]
    pub chains: bool,
    /// Episodes hit a copy of the state while it is made and while it arrives: whoever orders, makes or receives it
    /// ends, stops, or has it corrupted. No other faults
    #[arg(long, conflicts_with_all = ["chains", "twice", "campaign"])]
    pub copies: bool,
    /// All machines have more and more else to do: a request takes up to 100 ms. With --verified all replicas have as
    /// many workers
    #[arg(long)]
    pub busy: bool,
}

/// Runs what was asked for.
pub fn run_command(args: &Args) -> CommandOutcome {
    if args.promises {
        say(report::promises().trim_end())?;
        return Ok(CommandVerdict::Holds);
    }
    // A handler that panics on corrupted objects is a fault like others: it is caught, and seen by the checkers.
    panic::set_hook(Box::new(|_| {}));
    if args.mutations {
        return mutations();
    }
    let options = options(args)?;
    if args.catalogue {
        return catalogue(args, &options);
    }
    match (args.replay, &args.campaign) {
        (Some(seed), _) => replay(args, seed, &options),
        (None, Some(directory)) => campaign::run_campaign(args, directory),
        (None, None) => sample(args, &options),
    }
}

impl Args {
    fn seeds(&self) -> u64 {
        // A measured catalogue takes hours: only on request.
        self.seeds.unwrap_or(if self.catalogue { 0 } else { 100 })
    }

    fn seeds_of_campaign(&self) -> u64 {
        self.seeds.unwrap_or(if self.minutes.is_some() { u64::MAX >> 1 } else { 100 })
    }
}

fn options(args: &Args) -> anyhow::Result<Options> {
    if !matches!((args.replicas, args.verified), (3 | 5, _) | (2, true)) {
        return Err(misuse(format!("--replicas {}: use 3 or 5, or 2 with --verified", args.replicas)));
    }
    if args.clients == 0 || args.jobs == 0 {
        return Err(misuse("--clients and --jobs need at least 1"));
    }
    if !(1..=16).contains(&args.workers) {
        return Err(misuse(format!("--workers {}: use 1 to 16", args.workers)));
    }
    if args.twice && args.workers > 1 {
        return Err(misuse(
            "--twice --workers: in mode 00GT several workers take locks in any order, and the model knows one order; \
                leave out --workers",
        ));
    }
    Ok(Options {
        workers: args.workers,
        evicts: args.amounts.evict,
        dense: args.dense,
        replicas: if args.twice { 1 } else { args.replicas },
        twice: args.twice,
        verified: args.verified,
        requests: args.requests,
        clients: args.clients,
        faults: Faults::parse(&args.faults).map_err(misuse)?,
        episodes: args.episodes,
        strokes: args.strokes.max(1),
        without: args.without.iter().copied().collect(),
        disk: args.disk,
        real_sizes: args.amounts.real_sizes,
        chains: args.amounts.chains,
        copies: args.amounts.copies,
        busy: args.amounts.busy,
        trace: args.trace,
        ..Options::default()
    })
}

fn sample(args: &Args, options: &Options) -> CommandOutcome {
    let first = args.first.unwrap_or_else(|| mix(clock()) >> 40);
    let mut sum = CampaignTotals::default();
    let ending = Ending::catch()?;
    let over = || ending.asked();
    runs(
        (first, args.seeds()),
        args.jobs,
        |_| options.clone(),
        &over,
        |summary| {
            sum.add(&summary);
            if summary.violation.is_some() {
                say(&reported(&summary))?;
                say(&format!("  again: {}", command(summary.seed, options)))?;
            }
            Ok(())
        },
    )?;
    say(&format!(
        "seeds {first} to {}: {} runs, {} broken; {} replies compared, {} faults and {} messages struck, \
            {:.0} simulated seconds, longest heal {:.2} s",
        first + sum.runs.saturating_sub(1),
        sum.runs,
        sum.failed,
        sum.answered,
        sum.injected(),
        sum.faulty_chunks,
        sum.simulated_us as f64 / 1e6,
        sum.longest_heal_us as f64 / 1e6
    ))?;
    if options.copies {
        say(&sum
            .chains
            .strikes
            .iter()
            .map(|(what, count)| format!("{count} {what}"))
            .collect::<Vec<_>>()
            .join(", "))?;
    }
    if options.verified {
        let sim::Verified {
            stable,
            diverged,
            differed,
            rolled_back,
            followed,
            view,
            took_states,
            local_reads,
        } = sum.verified;
        say(&format!(
            "{stable} batches stable; states differed after {differed}; {diverged} times a replica had another state \
                than the agreed one; replicas took batches back {rolled_back} times, followed another view {followed} \
                times, and took a whole state in place of theirs {took_states} times; {view} views after the first; \
                {local_reads} reads took no batch"
        ))?;
    }
    Ok(CommandVerdict::of(sum.failed == 0))
}

/// A moment, as a number to draw a seed from.
fn clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64
}

/// Runs `seeds` seeds from `first` on, `jobs` at a time, until they are done or it is `over`; they arrive as they end.
fn runs(
    (first, seeds): (u64, u64),
    jobs: u64,
    options: impl Fn(u64) -> Options + Sync,
    over: &(impl Fn() -> bool + Sync),
    mut each: impl FnMut(RunSummary) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicU64::new(0);
    let (done, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (next, done, options) = (&next, done.clone(), &options);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seeds || over() {
                        return;
                    }
                    let seed = first + number;
                    if done.send(run(seed, &options(seed))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        // As many as fit into a time: their number is unknown.
        let progress = ProgressLine::of((seeds < u64::MAX >> 1).then_some(seeds));
        let mut broken = 0;
        for summary in results {
            broken += u64::from(summary.violation.is_some());
            progress.step();
            progress.doing(format!("seeds, {broken} broken"));
            progress.aside(|| each(summary))?;
        }
        Ok(())
    })
}

fn replay(args: &Args, seed: u64, options: &Options) -> CommandOutcome {
    let summary = run(seed, options);
    say(&reported(&summary))?;
    if args.shrink && summary.violation.is_some() {
        let (smaller, summary) = shrink::shrink(&OfMemcached::default(), seed, options, &summary, 60);
        say(&reported(&summary))?;
        say(&format!("  again: {}", command(seed, &smaller)))?;
    }
    Ok(CommandVerdict::of(summary.violation.is_none()))
}

/// A run in a line.
fn reported(summary: &RunSummary) -> String {
    let faults: Vec<String> = summary
        .faults
        .iter()
        .map(|(fault, count)| format!("{} {}", count.injected, fault.entry().name))
        .collect();
    let how = match &summary.violation {
        Some(broken) => {
            format!("BROKEN {} at {:.3} s: {}", broken.promise, broken.at_us as f64 / 1e6, broken.how)
        }
        None => "all promises kept".to_owned(),
    };
    format!(
        "seed {}: {how}; {} replies in {:.1} simulated seconds; faults: {}; trace {:016x}",
        summary.seed,
        summary.answered,
        summary.simulated_us as f64 / 1e6,
        if faults.is_empty() { "none".to_owned() } else { faults.join(", ") },
        summary.hash
    )
}

/// The command that runs a seed again.
fn command(seed: u64, options: &Options) -> String {
    let faults = match &options.faults {
        Faults::None => "none".to_owned(),
        Faults::All => "all".to_owned(),
        Faults::Only(faults) => faults.iter().map(|fault| fault.entry().name).collect::<Vec<_>>().join(","),
    };
    let without: Vec<String> = options.without.iter().map(u64::to_string).collect();
    let without =
        if without.is_empty() { String::new() } else { format!(" --without {}", without.join(",")) };
    let disk = if options.disk { " --disk" } else { "" };
    let evict = if options.evicts { " --evict" } else { "" };
    let amounts = [
        (options.real_sizes, " --real-sizes"),
        (options.chains, " --chains"),
        (options.copies, " --copies"),
        (options.busy, " --busy"),
    ];
    let sizes: String = amounts.into_iter().filter(|(is_on, _)| *is_on).map(|(_, flag)| flag).collect();
    let workers = if options.workers > 1 { format!(" --workers {}", options.workers) } else { String::new() };
    let verified = match (options.verified, options.dense) {
        (true, true) => " --verified --dense",
        (true, false) => " --verified",
        (false, true) => " --dense",
        (false, false) => "",
    };
    let group = match options.twice {
        true => "--twice".to_owned(),
        false => format!("--replicas {}{verified}", options.replicas),
    };
    format!(
        "crosscheck-lab sim --replay {seed} {group} --requests {} --clients {} --episodes {} --strokes \
            {}{disk}{workers}{evict}{sizes} --faults {faults}{without} --trace",
        options.requests, options.clients, options.episodes, options.strokes
    )
}

fn mutations() -> CommandOutcome {
    let mut all = true;
    for mutation in &MUTATIONS {
        let Caught { broken, seed } = caught(mutation, SEEDS);
        let noticed = broken.contains(mutation.expects);
        all &= noticed;
        let names: Vec<&str> = broken.into_iter().collect();
        let verdict = if noticed { "noticed" } else { "NOT NOTICED" };
        let by = format!("{verdict} by {} (expected: {}), seed {seed}", names.join(", "), mutation.expects);
        say(&format!("{:14} {:72} {by}", mutation.name, mutation.what))?;
    }
    Ok(CommandVerdict::of(all))
}

fn catalogue(args: &Args, options: &Options) -> CommandOutcome {
    let first = args.first.unwrap_or(1);
    let ending = Ending::catch()?;
    let measure = |faults: Faults, disk: bool| -> anyhow::Result<CampaignTotals> {
        let mut sum = CampaignTotals::default();
        let verified = matches!(&faults, Faults::Only(of) if of.iter().all(|one| one.needs_verification()));
        let options = Options { faults: faults.clone(), disk, verified, ..options.clone() };
        let options = if verified { Options { workers: 2, ..options } } else { options };
        // Whether states differ depends on who overtakes whom in a batch.
        let is_dense = matches!(&faults, Faults::Only(of) if of.iter().all(|one| one.needs_large_batches()));
        let options = if is_dense { Options { dense: true, clients: 60, ..options } } else { options };
        runs(
            (first, args.seeds()),
            args.jobs,
            |_| options.clone(),
            &|| ending.asked(),
            |summary| {
                sum.add(&summary);
                Ok(())
            },
        )?;
        Ok(sum)
    };
    let mut alone = Vec::new();
    for entry in &fault::CATALOGUE {
        let disk = options.disk || entry.fault.needs_disk();
        alone.push((entry.fault, measure(Faults::Only(vec![entry.fault]), disk)?));
    }
    let mut all = measure(Faults::All, false)?;
    all.merge(&measure(Faults::All, true)?);
    let command = match args.seeds() {
        0 => "crosscheck-lab sim --catalogue".to_owned(),
        seeds => format!("crosscheck-lab sim --catalogue --first {first} --seeds {seeds}"),
    };
    say(report::faults(&alone, &all, &command).trim_end())?;
    let failed = alone.iter().map(|(_, campaign)| campaign.failed).sum::<u64>() + all.failed;
    Ok(CommandVerdict::of(failed == 0))
}
