//! `crosscheck-lab trial soak`: nothing is wrong, and nothing may be reported. Pipelined clients check every
//! reply in every mode while replicas are restarted and leaders change; whatever a replica then reports is a
//! false alarm.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::announce::Announcer;
use crate::keeper::{Keeper, Totals};
use crate::plan::Plan;
use crate::testbed::Testbed;
use anyhow::{Context, bail};
use report::Page;
use report::results::{Origin, write_with_page};
use serde::Serialize;
use serde_json::json;
use wire::mix;

use bench::{Amount, Dialect, Generator, Op, Pattern, Setup, Workload};
use node::outcome::{CommandOutcome, CommandVerdict, error_text, misuse, say};
use node::signals::Ending;
use node::view::grouped;

/// Every mode.
const MODES: [&str; 8] = ["0000", "00G0", "00GT", "R000", "RD00", "RDG0", "RDGX", "R0GV"];
/// How long a cluster may take until it serves, and until it has healed after a restart.
const START: Duration = Duration::from_secs(60);
/// How long a replica may take to stop.
const STOP: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Requests are counted in spans of this length.
const SPAN: Duration = Duration::from_millis(500);
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// A replica stays down for so long.
const DOWN: Duration = Duration::from_millis(700);
/// A replica is paused for so long: several election timeouts.
const PAUSED: Duration = Duration::from_millis(2_500);
/// The same where no peer could fill it: at 300,000 requests per second the log that is kept for it (64 MiB) lasts some
/// two seconds.
const PAUSED_BRIEFLY: Duration = Duration::from_millis(1_000);

/// Options of `trial soak`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Requests of all modes together
    #[arg(long, value_name = "N", default_value_t = 6_000_000)]
    pub requests: u64,
    /// Which modes, each with its share of the requests
    #[arg(long, value_name = "MODE,MODE", value_delimiter = ',', default_values = MODES)]
    pub modes: Vec<String>,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub clients: usize,
    /// Requests on their way per connection
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub pipeline: usize,
    /// Replicas of the replicated modes, 3 or 5
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub replicas: usize,
    /// Worker threads of each replica
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub workers: usize,
    /// Seconds between two times that a replica is killed, stopped or paused; 0: none is
    #[arg(long, value_name = "N", default_value_t = 15.0)]
    pub away_every: f64,
    /// Decides requests [default: one that is drawn]
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Folder for the results
    #[arg(long, value_name = "DIR", default_value = crate::command::FOLDER)]
    pub out: PathBuf,
}

/// How a replica is away for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    /// `kill -9`, and a start.
    Killed,
    /// Stopped as an operator would, and started.
    Stopped,
    /// SIGSTOP, and SIGCONT when the others have elected another leader.
    Paused,
}

impl Away {
    const ALL: [Away; 3] = [Away::Killed, Away::Stopped, Away::Paused];

    fn word(self) -> &'static str {
        match self {
            Away::Killed => "killed",
            Away::Stopped => "stopped",
            Away::Paused => "paused",
        }
    }

    fn take(self, keeper: &Keeper, victim: usize, paused: Duration) {
        match self {
            Away::Killed => keeper.keep_down(victim, true),
            Away::Stopped => keeper.shut_down(victim, STOP),
            Away::Paused => keeper.freeze(victim, true),
        }
        thread::sleep(if self == Away::Paused { paused } else { DOWN });
        match self {
            Away::Killed | Away::Stopped => keeper.keep_down(victim, false),
            Away::Paused => keeper.freeze(victim, false),
        }
    }
}

/// What one mode came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Soaked {
    mode: String,
    requests: u64,
    seconds: f64,
    /// Replies that no correct server gives.
    wrong: u64,
    /// Values that had gone.
    lost: u64,
    /// Requests that the server refused.
    refused: u64,
    /// Connections that restarts broke.
    broken: u64,
    /// Keys about which any reply was taken in the end: a request about them was on its way when its connection broke.
    adrift: usize,
    /// The first complaints.
    words: Vec<String>,
    /// Times that a replica was away, by how.
    away: BTreeMap<&'static str, u64>,
    /// Of these, times that it lost its memory.
    restarts: u64,
    /// Of these, times that it led the others.
    leader_changes: u64,
    /// Why the mode could not be soaked to the end.
    failed: Option<String>,
    /// Added up over the replicas.
    mismatches: u64,
    repairs: u64,
    failed_checks: u64,
    dropped_frames: u64,
    /// Times that batches were taken back. A view that begins, since a replica is away, takes some back too.
    rollbacks: u64,
    /// Evidence records.
    evidence: Vec<String>,
    /// State transfers beyond one per restart.
    transfers_unasked: u64,
    /// Processes that ended by themselves.
    deaths: u64,
    /// Digests in the end; none where replicas may differ, or there is one.
    digests: Option<Result<String, String>>,
}

impl Soaked {
    /// Everything that should be 0.
    fn alarms(&self) -> u64 {
        self.mismatches
            + self.repairs
            + self.failed_checks
            + self.dropped_frames
            + self.evidence.len() as u64
            + self.transfers_unasked
            + self.deaths
            + if self.away.is_empty() { self.rollbacks } else { 0 }
            + u64::from(matches!(self.digests, Some(Err(_))))
    }

    fn holds(&self) -> bool {
        self.failed.is_none() && self.wrong + self.lost + self.refused + self.alarms() == 0
    }

    fn line(&self) -> String {
        if let Some(why) = &self.failed {
            return format!("{:<5} NOT SOAKED: {why}", self.mode);
        }
        let times: u64 = self.away.values().sum();
        format!(
            "{:<5} {:>13} requests in {:>6.1} s ({}/s), {times} times a replica away ({} the leader): {} \
                wrong, {} lost, {} refused, {} mismatches, {} repairs, {} failed checks, {} rollbacks, {} \
                evidence, {} transfers unasked, {} deaths{}",
            self.mode,
            grouped(self.requests),
            self.seconds,
            grouped((self.requests as f64 / self.seconds.max(0.001)) as u64),
            self.leader_changes,
            self.wrong,
            self.lost,
            self.refused,
            self.mismatches,
            self.repairs,
            self.failed_checks,
            self.rollbacks,
            self.evidence.len(),
            self.transfers_unasked,
            self.deaths,
            match &self.digests {
                None => String::new(),
                Some(Ok(_)) => ", digests equal".to_owned(),
                Some(Err(why)) => format!(", DIGESTS: {why}"),
            }
        )
    }
}

/// Soaks every mode in turn.
pub fn run(args: &Args) -> CommandOutcome {
    for mode in &args.modes {
        if !MODES.contains(&mode.as_str()) {
            return Err(misuse(format!("there is no mode {mode}; there are {}", MODES.join(", "))));
        }
    }
    if !matches!(args.replicas, 3 | 5) || args.clients == 0 || args.pipeline == 0 || args.workers == 0 {
        return Err(misuse("--replicas is 3 or 5; --clients, --pipeline and --workers are at least 1"));
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = args.seed.unwrap_or_else(|| mix(since.as_nanos() as u64) >> 40);
    let out = args.out.join(format!("soak-{}-{seed}", since.as_secs()));
    std::fs::create_dir_all(&out).with_context(|| format!("making {}", out.display()))?;
    let ending = Ending::catch()?;
    let origin = Origin::now("soak");
    say(&format!("soak, seed {seed}, results in {}", out.display()))?;
    let share = args.requests.div_ceil(args.modes.len() as u64);
    let mut done = Vec::new();
    for mode in &args.modes {
        if ending.asked() {
            break;
        }
        let soaked = Soak { args, mode, share, seed, ending: &ending, out: &out }.run();
        let failed = |why| Soaked { mode: mode.clone(), failed: Some(error_text(&why)), ..Soaked::default() };
        let soaked = soaked.unwrap_or_else(failed);
        say(&soaked.line())?;
        for word in soaked.words.iter().chain(&soaked.evidence).take(10) {
            say(&format!("      {word}"))?;
        }
        done.push(soaked);
        write(&out, &origin, seed, &done)?;
    }
    let requests: u64 = done.iter().map(|soaked| soaked.requests).sum();
    let holds = done.len() == args.modes.len() && done.iter().all(Soaked::holds);
    let alarms: u64 = done.iter().map(Soaked::alarms).sum();
    let wrong: u64 = done.iter().map(|soaked| soaked.wrong + soaked.lost).sum();
    say(&format!("{} requests, {wrong} wrong or lost replies, {alarms} false alarms", grouped(requests)))?;
    Ok(CommandVerdict::of(holds))
}

fn write(out: &std::path::Path, origin: &Origin, seed: u64, done: &[Soaked]) -> anyhow::Result<()> {
    let mut page = Page::new("Soak: no fault, restarts and leader changes, every reply checked");
    let lines: Vec<String> = done.iter().map(Soaked::line).collect();
    page.text(origin.made_by()).lines(lines.join("\n"));
    write_with_page(out, origin, &json!({ "seed": seed }), &(), done, &page)
}

/// One mode.
struct Soak<'a> {
    args: &'a Args,
    mode: &'a str,
    share: u64,
    seed: u64,
    ending: &'a Ending,
    out: &'a std::path::Path,
}

impl Soak<'_> {
    fn run(&self) -> anyhow::Result<Soaked> {
        let mode: crosscheck::Mode = self.mode.parse().map_err(anyhow::Error::msg)?;
        let replicas = if mode.replicated { self.args.replicas } else { 1 };
        let plan = self.plan(replicas);
        let dir = tempfile::tempdir().context("a directory for the soak")?;
        let testbed =
            Arc::new(Testbed::loopback(replicas, dir.path(), None, "a soak needs no network".into())?);
        let log = |number: usize| self.out.join(format!("{}-replica-{}.log", self.mode, number + 1));
        let announcer = Arc::new(Announcer::new(Instant::now()));
        let keeper = Keeper::start(&testbed, &plan, None, dir.path(), log, &announcer)?;
        self.until_well(&keeper)?;
        let addresses = keeper.replicas().iter().filter_map(|replica| replica.clients).collect();
        let mut generator = Generator::prepare(self.setup(addresses), &Arc::new(Pattern::default()))?;
        generator.heed(self.ending);
        let over = AtomicBool::new(false);
        let (loaded, took_away) = thread::scope(|scope| {
            let remover =
                scope.spawn(|| self.take_away_in_turn(&keeper, mode.deterministic || mode.verified, &over));
            let loaded = self.load(&mut generator);
            over.store(true, Ordering::Relaxed);
            // A panic of the thread is a bug here and goes on as one.
            (loaded, remover.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let mut soaked = took_away;
        (soaked.requests, soaked.seconds) = loaded?;
        soaked.adrift = generator.adrift();
        let seen = generator.finish()?;
        (soaked.wrong, soaked.lost, soaked.refused, soaked.broken) =
            (seen.wrong, seen.lost, seen.refused, seen.broken);
        soaked.words = seen.words;
        self.conclude(&keeper, mode, &mut soaked)?;
        keeper.stop();
        Ok(soaked)
    }

    fn plan(&self, replicas: usize) -> Plan {
        Plan { workers: self.args.workers, memory_mb: 256, ..Plan::bare(self.mode, replicas) }
    }

    fn setup(&self, addresses: Vec<std::net::SocketAddr>) -> Setup {
        let mix = [
            (Op::Get, 46.0),
            (Op::Gets, 6.0),
            (Op::Set, 24.0),
            (Op::Add, 4.0),
            (Op::Cas, 4.0),
            (Op::Delete, 4.0),
            (Op::Incr, 12.0),
        ];
        let values = Amount::Between { from: 8, to: 400 };
        let keys = 2_000 * self.args.clients;
        let workload =
            Workload { zipf: 0.9, ..Workload::plain("soak", 16, values, mix.into_iter().collect(), keys) };
        Setup {
            dialect: Dialect::Memcached,
            addresses,
            workload,
            connections: self.args.clients,
            pipeline: self.args.pipeline,
            rate: None,
            verify: true,
            seed: self.seed,
            timeline: false,
            restarts: true,
        }
    }

    fn load(&self, generator: &mut Generator) -> anyhow::Result<(u64, f64)> {
        let begun = Instant::now();
        let mut reported_at = begun;
        let mut requests = 0;
        generator.warm_up(LOOK)?;
        while requests < self.share && !self.ending.asked() {
            generator.measure(SPAN)?;
            requests += generator.seen().completed;
            if reported_at.elapsed() > PROGRESS {
                reported_at = Instant::now();
                let rate = requests as f64 / begun.elapsed().as_secs_f64();
                say(&format!(
                    "{:<5} {} of {} requests, {rate:.0}/s",
                    self.mode,
                    grouped(requests),
                    grouped(self.share)
                ))?;
            }
        }
        Ok((requests, begun.elapsed().as_secs_f64()))
    }

    /// Takes one replica after the other away for a moment, the leader every second time; each waits until the one
    /// before is back. Replicas of `R000` may differ, so that no peer could fill one that lost its memory: they are
    /// only paused.
    fn take_away_in_turn(&self, keeper: &Keeper, is_deterministic: bool, over: &AtomicBool) -> Soaked {
        let mut soaked = Soaked { mode: self.mode.to_owned(), ..Soaked::default() };
        let every = Duration::from_secs_f64(self.args.away_every);
        // A single node that is restarted has lost its memory, as memcached has: there is nothing to check then.
        if every.is_zero() || keeper.size() == 1 {
            return soaked;
        }
        let mut next = Instant::now() + every;
        for number in 0.. {
            while Instant::now() < next || keeper.unwell().is_some() {
                if over.load(Ordering::Relaxed) {
                    return soaked;
                }
                thread::sleep(LOOK);
            }
            read_evidence(keeper, &mut soaked);
            let Some(leader) = keeper.leader() else { continue };
            let follower = (leader + 1 + number / 4 % (keeper.size() - 1)) % keeper.size();
            let victim = if number % 2 == 0 { leader } else { follower };
            let away = if is_deterministic { Away::ALL[number / 2 % Away::ALL.len()] } else { Away::Paused };
            away.take(keeper, victim, if is_deterministic { PAUSED } else { PAUSED_BRIEFLY });
            *soaked.away.entry(away.word()).or_default() += 1;
            soaked.restarts += u64::from(away != Away::Paused);
            soaked.leader_changes += u64::from(victim == leader);
            next = Instant::now() + every;
        }
        soaked
    }

    fn until_well(&self, keeper: &Keeper) -> anyhow::Result<()> {
        let deadline = Instant::now() + START;
        while let Some(why) = keeper.unwell() {
            if self.ending.asked() {
                bail!("ended by the operator");
            }
            if Instant::now() > deadline {
                bail!("mode {}: not ready after {} s: {why}", self.mode, START.as_secs());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn conclude(&self, keeper: &Keeper, mode: crosscheck::Mode, soaked: &mut Soaked) -> anyhow::Result<()> {
        self.until_well(keeper)?;
        if (mode.deterministic || mode.verified) && keeper.size() > 1 {
            let mut digests = keeper.digests(0);
            let deadline = Instant::now() + START;
            // A replica that was filled just now has no digest of a position before that.
            while digests.is_err() && Instant::now() < deadline {
                thread::sleep(4 * LOOK);
                digests = keeper.digests(0);
            }
            soaked.digests = Some(digests.map(|digest| digest.digest));
        }
        read_evidence(keeper, soaked);
        let totals: Vec<Totals> = (0..keeper.size()).map(|number| keeper.totals(number)).collect();
        let sum = |of: fn(&Totals) -> u64| totals.iter().map(of).sum::<u64>();
        soaked.mismatches = sum(|totals| totals.mismatches);
        soaked.repairs = sum(|totals| totals.repairs);
        soaked.failed_checks = sum(|totals| totals.failed_checks);
        soaked.dropped_frames = sum(|totals| totals.dropped_frames);
        soaked.rollbacks = sum(|totals| totals.rollbacks);
        soaked.transfers_unasked = sum(|totals| totals.state_transfers).saturating_sub(soaked.restarts);
        soaked.deaths = keeper.deaths().len() as u64;
        Ok(())
    }
}

/// Takes down what replicas recorded: they lose it when they are restarted.
fn read_evidence(keeper: &Keeper, soaked: &mut Soaked) {
    for number in 0..keeper.size() {
        let (_, records) = keeper.evidence(number, (0, 0));
        for record in records {
            let line =
                format!("replica {}: {}", number + 1, serde_json::to_string(&record).unwrap_or_default());
            if !soaked.evidence.contains(&line) && soaked.evidence.len() < 1000 {
                soaked.evidence.push(line);
            }
        }
    }
}
