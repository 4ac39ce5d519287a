//! `crosscheck-lab bench profile`: the processor time of a request, stage by stage, and as a flame graph.
//!
//! `perf` samples every process of a side under full load with its call stacks. Each sample belongs to one stage of a
//! request's path ([`stacks::StackStage`]); samples are converted to microseconds per request, so that two sides can be
//! compared.

mod flame;
mod stacks;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;

use super::OutputArgs;
use super::cost;
use super::definition::{Amount, Definition, Op, Side, Workload};
use super::generator::{Generator, Pattern, Setup};
use super::servers::{self, Running};
use cli::service::DEFAULT_MEMORY_MB;
use node::outcome::{CommandOutcome, CommandVerdict, misuse, say, say_json};
use node::signals::Ending;
use stacks::{Stack, StackStage};

/// Samples per second and core; not a multiple of the frequency of timers.
const FREQUENCY: u32 = 499;
/// Bytes of each stack that are kept: enough for the pipeline's depth.
const STACK: &str = "dwarf,8192";
/// The message when it is missing.
const INSTALL: &str = "perf is not installed; install it with: apt-get install linux-perf";

/// The load: the paper's lengths, as in `bench cost`, and its mix.
fn shape() -> anyhow::Result<Definition> {
    let mix = BTreeMap::from([(Op::Get, 75.0), (Op::Set, 25.0)]);
    let workload = Workload::plain("mixed", 100, Amount::Fixed(400), mix, 10_000);
    Ok(Definition { workers: 1, memory_mb: DEFAULT_MEMORY_MB, workloads: vec![workload], ..cost::shape()? })
}

/// Options of `bench profile`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck-lab bench profile                          RD00 and RDGX: a table, and a flame graph for each
  crosscheck-lab bench profile --only 0000,memcached    one process each
  crosscheck-lab bench profile --only RDGX --clients 1  what a lone client's request costs

In a flame graph the width of a frame is the processor time of it and of what it calls, and its colour the stage of a
request's path; hold the pointer over a frame for its name and its time. Needs perf and the right to use it.")]
pub struct Args {
    /// Modes and peers, separated by commas
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',', default_value = "RD00,RDGX")]
    only: Vec<Side>,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Seconds to sample
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    /// Options for one process without replicas, and three of them without and with all protections.
    pub(super) fn of_everything(output: OutputArgs) -> Self {
        let only = ["0000", "RD00", "RDGX"].map(|mode| Side::Ours(mode.to_owned())).to_vec();
        Args { only, clients: 100, seconds: 5, output }
    }
}

/// Processor time of one side.
#[derive(Clone, Debug, Serialize)]
struct Profile {
    side: Side,
    clients: u32,
    requests_per_second: f64,
    samples: usize,
    /// Microseconds per request, all processes together.
    stages: BTreeMap<StackStage, Time>,
}

/// Microseconds per request.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Time {
    user: f64,
    kernel: f64,
}

/// Profiles one side after the other.
pub fn run(args: &Args) -> CommandOutcome {
    super::refuse_unoptimised(args.output.unoptimised)?;
    let perf = servers::find("perf").ok_or_else(|| misuse(INSTALL))?;
    let ending = Ending::catch()?;
    let definition = shape()?;
    fs::create_dir_all(&args.output.out).with_context(|| format!("making {}", args.output.out.display()))?;
    let mut profiles = Vec::new();
    for side in &args.only {
        if let Some(why) = servers::missing(side) {
            return Err(misuse(why));
        }
        let (profile, stacks) = sample(&perf, side, args, &definition, &ending)?;
        let path = args.output.out.join(format!("profile-{side}.svg"));
        let us = profile.us_per_sample(args.seconds);
        fs::write(&path, flame::svg(&profile.title(), &stacks, us))
            .with_context(|| format!("writing {}", path.display()))?;
        if !args.output.json {
            profile.lines().iter().try_for_each(|line| say(line))?;
            say(&format!("flame graph: {}\n", path.display()))?;
        }
        profiles.push(profile);
    }
    if args.output.json {
        say_json(&profiles)?;
    }
    Ok(CommandVerdict::Holds)
}

/// Runs the side under load and samples it.
fn sample(
    perf: &Path,
    side: &Side,
    args: &Args,
    definition: &Definition,
    ending: &Ending,
) -> anyhow::Result<(Profile, Vec<Stack>)> {
    let workload = &definition.workloads[0];
    let data = tempfile::Builder::new().prefix("crosscheck-profile-").tempdir()?;
    let mut running = Running::start(side, definition, workload, data.path(), ending)?;
    let setup = Setup {
        dialect: running.dialect,
        addresses: running.addresses.clone(),
        workload: workload.clone(),
        connections: args.clients as usize,
        pipeline: 1,
        rate: None,
        verify: false,
        seed: 1,
        timeline: false,
        restarts: false,
    };
    let mut generator = Generator::prepare(setup, &Arc::new(Pattern::default()))?;
    generator.heed(ending);
    generator.warm_up(Duration::from_secs(1))?;
    let file = data.path().join("samples");
    let recorder = record(perf, &file, &running, args.seconds)?;
    let (span, _) = generator.measure(Duration::from_secs(u64::from(args.seconds)))?;
    let recorded = recorder.wait_with_output()?;
    let seen = generator.finish()?;
    let trouble = running.trouble();
    running.stop();
    if let Some(trouble) = trouble {
        bail!(trouble);
    }
    if !recorded.status.success() {
        bail!("perf record failed: {}", String::from_utf8_lossy(&recorded.stderr).trim());
    }
    let reported = Command::new(perf)
        .args(["script", "--no-inline", "-F", "comm,ip,sym,dso", "-i"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()?;
    let stacks = stacks::parse(&String::from_utf8_lossy(&reported.stdout));
    if stacks.is_empty() {
        bail!("perf saw no samples: {}", String::from_utf8_lossy(&reported.stderr).trim());
    }
    let requests_per_second = seen.completed as f64 / span.as_secs_f64();
    Ok((Profile::of(side, args, requests_per_second, &stacks), stacks))
}

fn record(perf: &Path, file: &Path, running: &Running, seconds: u32) -> anyhow::Result<Child> {
    let pids: Vec<String> = running.processes.iter().map(|(_, pid)| pid.to_string()).collect();
    Command::new(perf)
        .args(["record", "-q", "-e", "cpu-clock", "-F", &FREQUENCY.to_string(), "--call-graph", STACK])
        .args(["-p", &pids.join(","), "-o"])
        .arg(file)
        .args(["--", "sleep", &seconds.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", perf.display()))
}

impl Profile {
    fn of(side: &Side, args: &Args, requests_per_second: f64, stacks: &[Stack]) -> Self {
        let mut profile = Profile {
            side: side.clone(),
            clients: args.clients,
            requests_per_second,
            samples: stacks.len(),
            stages: BTreeMap::new(),
        };
        let us = profile.us_per_sample(args.seconds);
        for stack in stacks {
            let time = profile.stages.entry(stack.stage()).or_default();
            *if stack.in_kernel { &mut time.kernel } else { &mut time.user } += us;
        }
        profile
    }

    /// Microseconds of a request's processor time that one sample represents.
    fn us_per_sample(&self, seconds: u32) -> f64 {
        1e6 / (f64::from(FREQUENCY) * f64::from(seconds) * self.requests_per_second)
    }

    fn sum(&self, part: fn(&Time) -> f64) -> f64 {
        self.stages.values().map(part).sum()
    }

    fn title(&self) -> String {
        format!(
            "{}, {} clients, 75:25: {:.0} requests/s; {:.1} µs of processor time per request ({:.1} user, \
                {:.1} kernel)",
            self.side,
            self.clients,
            self.requests_per_second,
            self.sum(|time| time.user + time.kernel),
            self.sum(|time| time.user),
            self.sum(|time| time.kernel),
        )
    }

    fn lines(&self) -> Vec<String> {
        let row = |(stage, time): (&StackStage, &Time)| {
            format!("  {:<12} {:>6.2} user {:>6.2} kernel", stage.name(), time.user, time.kernel)
        };
        let mut lines = vec![self.title()];
        lines.extend(self.stages.iter().map(row));
        lines
    }
}
