//! `crosscheck bench cost`: figures that do not depend on how busy a machine is: instructions and allocator calls per
//! request, as valgrind counts them, and memory per object.

mod callgrind;
mod client;
mod counted;
mod memory;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::definition::{self, Definition, Op, Side};
use super::measure::{Commit, Machine};
use super::results::{self, stamp};
use super::servers;
use node::outcome::{CommandOutcome, CommandVerdict, error_text, say, say_json};
use node::signals::Ending;

/// The workload: the paper's lengths.
const SHAPE: &str = r#"
title = "Cost of a request and of an object"
about = "Instructions and calls of the allocator per request, memory per object."
modes = ["0000", "00G0", "00GT", "RDGX"]
peers = ["memcached"]
clients = [1]
seconds = 1.0
repetitions = 1
memory_mb = 1024

[[workload]]
name = "objects"
key_bytes = 100
value_bytes = 400
mix = { get = 1, set = 1 }
keys = 200000
prefill_percent = 0
"#;

/// Options of `bench cost`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Only these modes and peers, separated by commas
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    only: Vec<Side>,
    /// Requests that are counted, per operation
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(100..=10_000_000),
    )]
    requests: u32,
    /// Objects whose memory is measured
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1000..=150_000),
    )]
    objects: u32,
    /// Folder for the result
    #[arg(long, value_name = "DIR", default_value = results::RAW)]
    out: PathBuf,
    /// Count although this binary was built without optimisation
    #[arg(long)]
    unoptimised: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Distinguishes this format from that of a run.
    pub cost_format: u32,
    /// When it began, in seconds since 1970.
    pub started_s: u64,
    /// The machine.
    pub machine: Machine,
    /// The commit that was measured.
    pub commit: Commit,
    /// Whether the binary was built with optimisation.
    pub optimised: bool,
    /// The keys, values and settings.
    pub definition: Definition,
    /// Results per side and operation.
    pub requests: Vec<PerRequest>,
    /// Results per side.
    pub objects: Vec<PerObject>,
    /// Measurements that failed, and why.
    pub failed: Vec<String>,
}

/// The cost of one request in one process, as a mean over many requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerRequest {
    /// The side; for a replicated one, a single replica that all clients use.
    pub side: Side,
    /// The operation.
    pub op: Op,
    /// Requests over which the difference was computed.
    pub requests: u32,
    /// Instructions in user mode; system calls count up to their entry.
    pub instructions: f64,
    /// Calls that allocate memory or change the size of an allocation; none where the program's symbols are missing.
    pub allocations: Option<f64>,
}

/// The memory of one object in one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerObject {
    /// The side.
    pub side: Side,
    /// Objects over which the difference was computed.
    pub objects: u32,
    /// Bytes of key and value.
    pub payload: u64,
    /// Resident memory per object, in bytes; the mean of the replicas.
    pub resident: f64,
}

/// Incremented when old files can no longer be read.
const FORMAT: u32 = 1;

/// Counts everything and writes the result.
pub fn run(args: &Args) -> CommandOutcome {
    super::refuse_unoptimised(args.unoptimised)?;
    let ending = Ending::catch()?;
    let mut cost = Cost::begin()?;
    let wanted = |side: &&Side| args.only.is_empty() || args.only.contains(side);
    let sides: Vec<Side> = cost.definition.sides.iter().filter(wanted).cloned().collect();
    for side in &sides {
        if let Some(why) = servers::missing(side) {
            cost.failed.push(format!("{side}: {why}"));
            continue;
        }
        if let Side::Ours(mode) = side {
            for op in [Op::Get, Op::Set] {
                match counted::count(mode, op, args.requests, &cost.definition, &ending) {
                    Ok(found) => cost.requests.push(PerRequest { side: side.clone(), ..found }),
                    Err(error) => cost.failed.push(format!("{side}, {}: {}", op.name(), error_text(&error))),
                }
            }
        }
        match memory::measure(side, args.objects, &cost.definition, &ending) {
            Ok(found) => cost.objects.push(found),
            Err(error) => cost.failed.push(format!("{side}, memory: {}", error_text(&error))),
        }
    }
    let path = cost.write(&args.out)?;
    if args.json {
        say_json(&cost)?;
    } else {
        for line in cost.lines() {
            say(&line)?;
        }
        say(&format!("results: {}", path.display()))?;
    }
    Ok(CommandVerdict::of(cost.failed.is_empty()))
}

impl Args {
    /// Options for a full measurement, into `out`.
    pub fn into_folder(out: &Path, unoptimised: bool) -> Self {
        let (requests, objects) = (10_000, 100_000);
        Args { only: Vec::new(), requests, objects, out: out.to_owned(), unoptimised, json: false }
    }
}

impl Cost {
    fn begin() -> anyhow::Result<Self> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(Cost {
            cost_format: FORMAT,
            started_s: now.map_or(0, |since| since.as_secs()),
            machine: Machine::this(),
            commit: Commit::here(),
            optimised: !cfg!(debug_assertions),
            definition: definition::parse("cost", "cost", SHAPE).map_err(anyhow::Error::msg)?,
            requests: Vec::new(),
            objects: Vec::new(),
            failed: Vec::new(),
        })
    }

    fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let path = folder.join(format!("cost-{}.json", stamp(self.started_s)));
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Reads a file; none when it is the result of another command.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> anyhow::Result<Option<Self>> {
        let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let cost = serde_json::from_slice::<Cost>(&text).ok();
        Ok(cost.filter(|cost| cost.cost_format == FORMAT))
    }

    /// The results, as lines of text.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for one in &self.requests {
            let allocations =
                one.allocations.map_or(String::new(), |count| format!(", {count:.2} allocations"));
            let op = one.op.name();
            lines
                .push(format!("{:<9} {op:<3} {:>9.0} instructions{allocations}", one.side, one.instructions));
        }
        for one in &self.objects {
            let beyond = one.resident - one.payload as f64;
            lines.push(format!(
                "{:<9} {:>6.0} B per object of {} B: {beyond:.0} B beyond key and value",
                one.side, one.resident, one.payload
            ));
        }
        lines.extend(self.failed.iter().map(|why| format!("not measured: {why}")));
        lines
    }
}
