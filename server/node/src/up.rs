//! `up`: a local cluster of separate processes, kept running and shown until the operator ends it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use crosscheck::{Mode, OnDetection, Reads};
use serde_json::json;

use crate::ServiceOptions;
use crate::cluster::{
    ClusterOptions, ClusterPlan, Keeper, KeeperOptions, Layout, ReplicaRow, SupervisorEvent,
};
use crate::config::DEFAULT_WORKERS;
#[cfg(feature = "lab")]
use crate::config::LeftOut;
use crate::outcome::{CommandOutcome, CommandVerdict, misuse, say};
use crate::program::text;
use crate::signals::Ending;
use crate::view::{Live, Paint, Tone, live_block, millis, one_line, row_json};

/// Between two looks at what happened.
const TICK: Duration = Duration::from_millis(25);
/// Between two drawings of the live block.
const REDRAW: Duration = Duration::from_millis(250);
/// Between two lines into a pipe when nothing but progress changed.
const QUIET_LINE: Duration = Duration::from_secs(5);
/// The same while a replica waits for the state of the others.
const COPY_LINE: Duration = Duration::from_secs(2);
/// How long replicas may take to stop before they are killed.
pub const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// What `up --help` begins with.
pub const ABOUT: &str = "Starts a cluster of separate processes on this machine, on loopback addresses, and keeps it \
running: a replica that dies is started again and rejoins. Replica i serves clients on port P+i-1. Prints \
where clients connect, then a line that begins with `ready` when all of them serve, then a live status. Ctrl-C (or \
SIGTERM) stops everything; replicas never outlive this command.";

const PORT_HELP: &str = "Port for the clients of replica 1; 0 takes any free ports [default: {port}]";
const MODE_HELP: &str = "Protections that are on; see `{program} modes`";

/// Options of `up`; `O` are those of the service.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)] // the options of a service may be called `Args`, too
#[command(after_long_help = text("Examples:
  {program} up                                          three replicas, all protections, ports {port} to {third_port}
  {program} up --replicas 5 --port 12000                survives two faulty replicas
  {program} up --mode 0000                              one unprotected server, to compare speed with
  {program} up --mode R0GV --replicas 2 --witness       two replicas that execute first, and a third verifier
  {program} up --durability disk --data /var/lib/cc     acknowledged writes survive the death of all replicas
  {program} up --restore FILE                           begins with the state of a backup
  {program} up --tls-cert cert.pem --tls-key key.pem    clients speak TLS
  {program} up --json | jq .event                       one JSON value per line: replica, started, ready, status,
                                                         said, died, drained, stopped
Then, elsewhere:
  {program} top; {program} inject --random; {program} evidence --follow"))]
pub struct Args<O: ServiceOptions> {
    /// How many replicas: 2f+1 survive f faulty ones; in verified mode also 2 [default: 3; 1 for the modes 0000, 00G0
    /// and 00GT; 2 with --witness]
    #[arg(long, short = 'n', value_name = "N")]
    pub replicas: Option<u8>,
    /// Port for the clients of replica 1; 0 takes any free ports
    #[arg(long, short, value_name = "P", help = text(PORT_HELP))]
    pub port: Option<u16>,
    /// Directory in which replica N serves clients of this machine on the socket file replica-N.sock, besides its port
    #[arg(long, value_name = "DIR")]
    pub client_sockets: Option<PathBuf>,
    /// Serve TLS on the ports, in the place of plain text: the certificate of all replicas, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Protections that are on
    #[arg(long, short, default_value = "RDGX", value_parser = mode, help = text(MODE_HELP))]
    pub mode: Mode,
    /// Threads per replica that execute requests; a single one does everything else too, which is fastest for short
    /// requests on few cores, and what fault coverage was measured with
    #[arg(
        long,
        short,
        value_name = "W",
        default_value_t = DEFAULT_WORKERS as u64,
        value_parser = clap::value_parser!(u64).range(1..=64),
    )]
    pub workers: u64,
    /// Threads per replica that serve client connections, where there are several workers [default: as many, up to 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub client_threads: Option<u64>,
    /// Where the ordered log lives
    #[arg(long, value_enum, default_value_t = Durable::Memory)]
    pub durability: Durable,
    /// Directory for the logs of --durability disk; made if missing
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Begin with the state of this backup: with logs on disk if the data directory is empty, else it is not used
    #[arg(long, value_name = "FILE")]
    pub restore: Option<PathBuf>,
    /// With mode 00GT: what happens when a fault is detected that is not masked
    #[arg(long, value_enum, value_name = "ACTION")]
    pub on_detection: Option<Detected>,
    /// With --mode R0GV and two replicas: a third process that verifies, and has no service and no clients. With it,
    /// one of the two goes on without the other whatever happened, and no operator has to decide
    #[arg(long)]
    pub witness: bool,
    /// With --mode R0GV: whether a batch waits a moment for the results of all replicas, so that a bug that shows in
    /// some interleavings and hits a majority alike is seen [default: yes with several workers, no with one]
    #[arg(long, value_name = "yes|no", value_parser = clap::builder::BoolishValueParser::new())]
    pub extra_protection: Option<bool>,
    /// With --mode R0GV, and three or more replicas or a witness: how requests that only read are answered
    #[arg(long, value_enum, value_name = "HOW", default_value_t = ReadBy::Batch)]
    pub reads: ReadBy,
    /// What the service adds.
    #[command(flatten)]
    pub service: O,
    /// A replica in which more faults than this were found within 10 s ends as broken hardware, if the others can do
    /// without it, and is not started again; 0 = never [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub faults_per_10s: Option<u32>,
    /// Start a dead replica again after this many milliseconds, always [default: after 100 ms, and after
    /// twice as long each time that it dies again soon]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub restart_after: Option<u64>,
    /// Let replies leave before they are compared, to measure what a comparison that comes afterwards would have missed
    #[cfg(feature = "lab")]
    #[arg(long, hide = true)]
    pub free_replies: bool,
    /// Print JSON, one value per line
    #[arg(long)]
    pub json: bool,
}

/// Where the log lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Durable {
    /// A replica that dies comes back empty and is filled by its peers
    Memory,
    /// Synced before it is acknowledged; needs --data
    Disk,
}

/// How requests that only read are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ReadBy {
    /// In a batch, as all others: the replicas compare the replies
    Batch,
    /// By the replica of the client alone, from its own state, after it has asked the others how far they are. The
    /// replies stay linearizable, and no other replica compares them
    Local,
}

impl From<ReadBy> for Reads {
    fn from(by: ReadBy) -> Self {
        match by {
            ReadBy::Batch => Reads::Batch,
            ReadBy::Local => Reads::Local,
        }
    }
}

/// What mode `00GT` does about a detected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Detected {
    /// The request is undone, and its client gets an error; the default
    Answer,
    /// The process ends, and starts again without its state
    Exit,
}

impl From<Detected> for OnDetection {
    fn from(detected: Detected) -> Self {
        match detected {
            Detected::Answer => OnDetection::Answer,
            Detected::Exit => OnDetection::Exit,
        }
    }
}

/// Reads a mode, for clap.
pub fn mode(letters: &str) -> Result<Mode, String> {
    letters.parse().map_err(|error| match crate::config::meant(letters, &Mode::ALL) {
        Some(meant) => format!("{error}; did you mean {meant}?"),
        None => error,
    })
}

/// Runs the cluster until the operator ends it.
///
/// # Errors
/// The cluster cannot be planned, or a replica does not come up.
pub fn run<O: ServiceOptions>(args: &Args<O>) -> CommandOutcome {
    let wish = ClusterOptions {
        replicas: args.replicas,
        port: args.port,
        client_sockets: args.client_sockets.clone(),
        tls: args.tls_cert.clone().zip(args.tls_key.clone()),
        mode: args.mode,
        workers: Some(usize::try_from(args.workers)?),
        client_threads: args.client_threads.map(usize::try_from).transpose()?,
        on_disk: args.durability == Durable::Disk,
        data: args.data.clone(),
        service: args.service.clone(),
        #[cfg(feature = "lab")]
        left_out: LeftOut { reply_gate: args.free_replies, before_images: false },
        faults_per_10s: args.faults_per_10s,
        on_detection: args.on_detection.map(OnDetection::from),
        witness: args.witness,
        extra_protection: args.extra_protection,
        reads: args.reads.into(),
    };
    let ending = Ending::catch()?;
    let mut plan = ClusterPlan::new(&wish)?;
    if let Some(backup) = &args.restore {
        let backup = std::path::absolute(backup).with_context(|| backup.display().to_string())?;
        crosscheck::backup::verify(&backup).map_err(|why| misuse(why.to_string()))?;
        plan.restore_from(&backup);
    }
    let restart_after = args.restart_after.map(Duration::from_millis);
    let options = KeeperOptions { restart_after, ..KeeperOptions::new(STOP_PATIENCE) };
    let keeper = Keeper::start_with(&plan, options)?;
    let mut reporter = Reporter::new(args.json);
    reporter.places(&plan.layout);
    let tick = restart_after.map_or(TICK, |pause| pause.min(TICK));
    let outcome = watch(&keeper, &plan.layout, &mut reporter, &ending, tick);
    reporter.stopping();
    let killed = keeper.stop();
    reporter.stopped(&killed);
    Ok(match outcome? {
        CommandVerdict::Holds => CommandVerdict::of(killed.is_empty()),
        CommandVerdict::Fails => CommandVerdict::Fails,
    })
}

fn watch(
    keeper: &Keeper,
    layout: &Layout,
    reporter: &mut Reporter,
    ending: &Ending,
    tick: Duration,
) -> CommandOutcome {
    let start = Instant::now();
    let mut ready = false;
    loop {
        let now = Instant::now();
        for event in keeper.events.take() {
            reporter.event(&event);
            if let SupervisorEvent::Hopeless { replica, why, misconfigured } = event {
                let text = format!("replica {replica} does not come up: {why}");
                // A supervisor of this command must not start it again either.
                return Err(if misconfigured { misuse(text) } else { anyhow::Error::msg(text) });
            }
        }
        let rows = keeper.observer.rows();
        if !ready && rows.iter().all(ReplicaRow::is_ready) {
            ready = true;
            reporter.ready(layout, now - start);
        }
        reporter.status(&rows, now, ready);
        if ending.sleep(tick) {
            return Ok(CommandVerdict::Holds);
        }
    }
}

/// Tells what happens: a live block on a terminal, lines into a pipe, JSON when asked.
///
/// A reader that goes away does not end the cluster: what cannot be told is left out.
struct Reporter {
    json: bool,
    live: Option<Live>,
    drawn: Instant,
    news: String,
}

impl Reporter {
    fn new(json: bool) -> Self {
        let live = if json { None } else { Live::on_terminal() };
        Reporter { json, live, drawn: Instant::now(), news: String::new() }
    }

    fn line(&mut self, text: &str, json: serde_json::Value) {
        let _ = match &self.live {
            Some(live) => live.say(text),
            None if self.json => say(&json.to_string()),
            None => say(text),
        };
    }

    fn places(&mut self, layout: &Layout) {
        for place in &layout.places {
            let text = match place.witness {
                false => format!("replica {}: clients connect to {}", place.number, place.clients),
                true => format!("replica {}: the witness, which has no clients", place.number),
            };
            let json = json!({
                "event": "replica", "replica": place.number, "clients": place.clients, "admin": place.admin,
                "peers": place.peers, "witness": place.witness,
            });
            self.line(&text, json);
        }
    }

    fn ready(&mut self, layout: &Layout, after: Duration) {
        let count = layout.places.iter().filter(|place| !place.witness).count();
        let with = if count < layout.places.len() { ", and a witness verifies," } else { "" };
        let noun = if count == 1 { "replica serves" } else { "replicas serve" };
        let text = format!(
            "ready: {count} {noun}{with} in mode {} after {}; Ctrl-C stops {}",
            layout.mode,
            millis(after),
            if count == 1 { "it" } else { "them" }
        );
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        let mode = layout.mode.to_string();
        self.line(&text, json!({"event": "ready", "replicas": count, "mode": mode, "after_ms": after_ms}));
    }

    fn event(&mut self, event: &SupervisorEvent) {
        let text = match event {
            SupervisorEvent::Started { replica, pid } => format!("replica {replica}: started, process {pid}"),
            SupervisorEvent::Died { replica, how, pause_ms } => {
                let pause = millis(Duration::from_millis(*pause_ms));
                format!("replica {replica}: ended with {how}; starts again in {pause}")
            }
            SupervisorEvent::Drained { replica, .. } => {
                format!("replica {replica}: ended, and is not started again: its hardware is broken")
            }
            SupervisorEvent::Hopeless { replica, why, .. } => format!("replica {replica}: {why}"),
            SupervisorEvent::Said { replica, line } => format!("replica {replica}: {line}"),
        };
        self.line(&text, json!(event));
    }

    fn status(&mut self, rows: &[ReplicaRow], now: Instant, ready: bool) {
        let since = now.saturating_duration_since(self.drawn);
        if let Some(live) = &self.live {
            if since >= REDRAW {
                live.draw(&live_block(rows));
                self.drawn = now;
            }
            return;
        }
        let (line, news) = one_line(rows);
        let is_copying = rows.iter().any(ReplicaRow::is_filled);
        let pause = if is_copying { COPY_LINE } else { QUIET_LINE };
        let changed = ready && news != self.news && since >= REDRAW;
        if changed || ((ready || is_copying) && since >= pause) {
            let rows: Vec<_> = rows.iter().map(row_json).collect();
            self.line(&line, json!({"event": "status", "replicas": rows}));
            self.news = news;
            self.drawn = now;
        }
    }

    fn stopping(&mut self) {
        if let Some(live) = &self.live {
            live.end();
        }
        self.line("stopping", json!({"event": "stopping"}));
    }

    fn stopped(&mut self, killed: &[u8]) {
        let text = match killed {
            [] => "stopped".to_owned(),
            _ => {
                let reported = format!("stopped; had to kill replicas {killed:?}");
                Paint::for_stdout().printed(&Tone::Bad.line(reported))
            }
        };
        self.line(&text, json!({"event": "stopped", "killed": killed}));
    }
}
