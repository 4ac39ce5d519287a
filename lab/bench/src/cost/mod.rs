//! `crosscheck-lab bench cost`: figures that do not depend on how busy a machine is: instructions and allocator calls
//! per request, as valgrind counts them, and memory per object.

mod callgrind;
mod ceilings;
mod client;
mod counted;
mod load;
mod memory;

use std::path::{Path, PathBuf};

use report::results::{Origin, ResultFile, write};
use serde::{Deserialize, Serialize};

use ceilings::Ceilings;
pub use load::{Kind, Load};

use super::OutputArgs;
use super::definition::{self, Definition, Side};
use super::servers;
use node::outcome::{CommandOutcome, CommandVerdict, error_text, say, say_json};
use node::signals::Ending;

/// The workload: the paper's lengths.
const SHAPE: &str = r#"
title = "Cost of a request and of an object"
about = "Instructions and calls of the allocator per request, memory per object."
modes = ["0000", "00G0", "00GT", "RD00", "RDGX"]
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

/// The workload, read.
pub(super) fn shape() -> anyhow::Result<Definition> {
    definition::parse("cost", "cost", SHAPE).map_err(anyhow::Error::msg)
}

/// Options of `bench cost`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Every process of a side runs under valgrind (callgrind), so all are slow; the figures do not depend on that. A request
is counted under three loads (1 client; 1 client that sends 16 together; 50 clients), and a read that records its access
apart from one that does not. What a process does without clients is measured for three seconds and subtracted.

Examples:
  crosscheck-lab bench cost --only 00G0,memcached            two sides
  crosscheck-lab bench cost --only RDGX --keep /tmp/cost     keep callgrind's files, for callgrind_annotate
  crosscheck-lab bench cost --server target/release/crosscheck --no-memory    the program that ships
  crosscheck-lab bench cost --ceilings lab/bench/cost.toml     exit 1 where a request became dearer in two runs
  crosscheck-lab bench cost --record lab/bench/cost.toml       write that table again, after a change that is meant")]
pub struct Args {
    /// Only these modes and peers, separated by commas
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    only: Vec<Side>,
    /// Requests that are counted, per load and kind
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2_000,
        value_parser = clap::value_parser!(u32).range(100..=1_000_000),
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
    /// Count the replicas of this `crosscheck` instead of this program's own; without memory per object
    #[arg(long, value_name = "PROGRAM", requires = "no_memory")]
    server: Option<PathBuf>,
    /// Leave memory per object out
    #[arg(long)]
    no_memory: bool,
    /// Compare with this table; fail where a request is dearer than it allows
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    ceilings: Option<PathBuf>,
    /// Write such a table
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Keep callgrind's files in this folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// What made them.
    pub origin: Origin,
    /// What was to be measured.
    pub settings: CostSettings,
    /// Results per side and operation.
    pub requests: Vec<PerRequest>,
    /// Results per side.
    pub objects: Vec<PerObject>,
}

/// What was to be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostSettings {
    /// The keys, values and settings.
    pub definition: Definition,
    /// Measurements that failed, and why.
    pub failed: Vec<String>,
}

/// A row of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum CostRow {
    Request(PerRequest),
    Object(PerObject),
}

/// What a process is in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It has no group.
    Server,
    /// The replica to which all clients connect; it does not lead.
    #[serde(rename = "asked")]
    Contacted,
    /// The leader, or primary.
    Leader,
    /// Neither.
    Other,
}

impl Role {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Contacted => "follower with the clients",
            Role::Leader => "leader",
            Role::Other => "other follower",
        }
    }
}

/// The cost of one request in one process, as a mean over many requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerRequest {
    /// The side.
    pub side: Side,
    /// Which of its processes.
    pub role: Role,
    /// How requests came.
    pub load: Load,
    /// What was asked.
    pub kind: Kind,
    /// How many were counted.
    pub requests: u32,
    /// Instructions in user mode, less those of the idle process; system calls count up to their entry.
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

/// The kind of these results, and how the names of their files begin.
pub const KIND: &str = "cost";

/// Counts everything and writes the result.
pub fn run(args: &Args) -> CommandOutcome {
    super::refuse_unoptimised(args.output.unoptimised || args.server.is_some())?;
    let ending = Ending::catch()?;
    let mut cost = Cost::begin()?;
    let wanted = |side: &&Side| args.only.is_empty() || args.only.contains(side);
    let sides: Vec<Side> = cost.settings.definition.sides.iter().filter(wanted).cloned().collect();
    for side in &sides {
        if let Some(why) = servers::missing(side) {
            cost.settings.failed.push(format!("{side}: {why}"));
            continue;
        }
        if matches!(side, Side::Ours(_) | Side::Memcached) {
            match counted::count(side, args, &cost.settings.definition, &ending) {
                Ok(found) => cost.requests.extend(found),
                Err(error) => cost.settings.failed.push(format!("{side}: {}", error_text(&error))),
            }
        }
        if args.no_memory {
            continue;
        }
        match memory::measure(side, args.objects, &cost.settings.definition, &ending) {
            Ok(found) => cost.objects.push(found),
            Err(error) => cost.settings.failed.push(format!("{side}, memory: {}", error_text(&error))),
        }
    }
    let path = cost.write(&args.output.out)?;
    if args.output.json {
        say_json(&cost)?;
    } else {
        for line in cost.lines() {
            say(&line)?;
        }
        say(&format!("results: {}", path.display()))?;
    }
    let dearer = match &args.ceilings {
        Some(file) => dearer(&Ceilings::read(file)?, &mut cost, args, &ending)?,
        None => Vec::new(),
    };
    if let Some(file) = &args.record {
        if cost.settings.failed.is_empty() {
            Ceilings::of(&cost.requests).write(file)?;
            say(&format!("table: {}", file.display()))?;
        } else {
            say("no table was written: a side was not measured")?;
        }
    }
    Ok(CommandVerdict::of(cost.settings.failed.is_empty() && dearer.is_empty()))
}

/// What is dearer than the table allows, reported to the user. A side that is gets a second measurement, and each
/// figure is then the lower one: what a process does by itself does not always fall into the same requests.
fn dearer(ceilings: &Ceilings, cost: &mut Cost, args: &Args, ending: &Ending) -> anyhow::Result<Vec<String>> {
    let mut sides: Vec<Side> = Vec::new();
    for one in &cost.requests {
        if ceilings.why_dearer(one)?.is_some() && !sides.contains(&one.side) {
            sides.push(one.side.clone());
        }
    }
    for side in &sides {
        say(&format!("{side} is dearer than the table allows; it is measured once more"))?;
        let again = counted::count(side, args, &cost.settings.definition, ending)?;
        for one in cost.requests.iter_mut().filter(|one| one.side == *side) {
            let is_same = |other: &&PerRequest| other.process() == one.process() && other.kind == one.kind;
            if let Some(other) = again.iter().find(is_same) {
                one.instructions = one.instructions.min(other.instructions);
            }
        }
    }
    let found = ceilings.exceeded(&cost.requests)?;
    for what in &found {
        say(&format!("dearer: {what}"))?;
    }
    if found.is_empty() {
        say("no request is dearer than the table allows")?;
    }
    Ok(found)
}

impl Args {
    /// Options for a full measurement.
    pub(super) fn of_everything(output: OutputArgs) -> Self {
        Args {
            only: Vec::new(),
            requests: 2_000,
            objects: 100_000,
            server: None,
            no_memory: false,
            ceilings: None,
            record: None,
            keep: None,
            output,
        }
    }
}

impl PerRequest {
    /// The process and its load.
    fn process(&self) -> (&Side, Role, Load) {
        (&self.side, self.role, self.load)
    }
}

impl Cost {
    fn begin() -> anyhow::Result<Self> {
        let settings = CostSettings { definition: shape()?, failed: Vec::new() };
        Ok(Cost { origin: Origin::now(KIND), settings, requests: Vec::new(), objects: Vec::new() })
    }

    fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let path = self.origin.path(folder, KIND);
        let requests = self.requests.iter().cloned().map(CostRow::Request);
        let rows: Vec<CostRow> = requests.chain(self.objects.iter().cloned().map(CostRow::Object)).collect();
        write(&path, &self.origin, &self.settings, &(), &rows)?;
        Ok(path)
    }

    /// The result in a file.
    ///
    /// # Errors
    /// It is of another form.
    pub fn of(file: ResultFile) -> anyhow::Result<Self> {
        let (origin, settings, (), rows) = file.parts()?;
        let mut cost = Cost { origin, settings, requests: Vec::new(), objects: Vec::new() };
        for row in rows {
            match row {
                CostRow::Request(one) => cost.requests.push(one),
                CostRow::Object(one) => cost.objects.push(one),
            }
        }
        Ok(cost)
    }

    /// The counted requests, those of one process under one load together.
    pub fn processes(&self) -> Vec<(&PerRequest, Vec<&PerRequest>)> {
        let mut groups: Vec<(&PerRequest, Vec<&PerRequest>)> = Vec::new();
        for one in &self.requests {
            match groups.iter_mut().find(|(first, _)| first.process() == one.process()) {
                Some((_, figures)) => figures.push(one),
                None => groups.push((one, vec![one])),
            }
        }
        groups
    }

    /// The results, as lines of text.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (one, figures) in self.processes() {
            let load = one.load.name();
            let figures: Vec<String> =
                figures.iter().map(|one| format!("{} {:>6.0}", one.kind.name(), one.instructions)).collect();
            lines.push(format!("{:<9} {:<25} {load:<11}  {}", one.side, one.role.name(), figures.join("  ")));
        }
        for one in &self.objects {
            let beyond = one.resident - one.payload as f64;
            lines.push(format!(
                "{:<9} {:>6.0} B per object of {} B: {beyond:.0} B beyond key and value",
                one.side, one.resident, one.payload
            ));
        }
        lines.extend(self.settings.failed.iter().map(|why| format!("not measured: {why}")));
        lines
    }
}
