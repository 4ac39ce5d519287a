//! `crosscheck-lab inject golden`, `profile`, `null`, `campaign`, `replay`, `report`: faults in single machine
//! instructions of any server, from outside. `hooks`: campaigns of the faults that our own replicas place in themselves
//! on request.

use std::path::PathBuf;

use node::outcome::CommandOutcome;

/// The beginning of `inject --help`.
pub const ABOUT: &str = "Injectors of faults in campaigns. Golden to replay flip bits in single instructions of any \
    server, by a tracer, and the server needs no help for it. `hooks` lets our own replicas place faults in \
    themselves. One fault at a time in a running cluster: `crosscheck inject`.";

/// The commands.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Native {
    /// Runs the target fault-free several times and reports whether its instructions and replies are repeatable
    #[command(after_long_help = "Example:
  crosscheck-lab inject golden --target lab/tracer/targets/memcached.toml --repeat 3")]
    Golden(Golden),
    /// Single-steps the target through its measured part once and records the sequence of its instructions
    #[command(after_long_help = "Example:
  crosscheck-lab inject profile --target lab/tracer/targets/memcached.toml --profile mc.profile")]
    Profile(Golden),
    /// Does everything except the flip: every run must be masked, or the tracer itself disturbs the target
    #[command(after_long_help = "Example:
  crosscheck-lab inject null --target lab/tracer/targets/memcached.toml --runs 400

Exit code: 0 when all runs were masked.")]
    Null(Many),
    /// Flips one bit per run, in one dynamic instruction, and judges each run by the client's replies
    #[command(
        after_long_help = "Fault types (Behrens et al., NSDI 2015): cf instruction pointer; wreg, rreg a \
            register written,
read; wval, rval memory written, read; waddr, raddr the address written to, read from.

Examples:
  crosscheck-lab inject campaign --target lab/tracer/targets/memcached.toml --runs 1000 --out mc.json
  crosscheck-lab inject campaign --target lab/tracer/targets/single-00G0.toml --fault wreg,wval --bits 0..15 --seed 7
  crosscheck-lab inject campaign --target lab/tracer/targets/cluster-RDGX.toml --runs 200 --out rdgx.json
Then:
  crosscheck-lab inject report mc.json --html mc.html
  crosscheck-lab inject replay --target lab/tracer/targets/memcached.toml --run mc.json:wreg/17"
    )]
    Campaign(Many),
    /// Lets one replica inject one fault into itself per run, and judges each run as `campaign` does
    #[command(
        after_long_help = "Kinds: those of `crosscheck inject --help`, and stray (bytes of an object that \
            were meant for another
one), sticky, erratic (a core that is wrong every n-th time, or sometimes), skip, twice (a handler
that does not run, or runs again), image (a before-image), footprint (another lock), position (the
count of turns); in mode R0GV also kept (what a request would be rolled back with), groups, flag (a
plan, or a batch, that runs in another order). Without --kind: all that the target's mode has a target
for, except those that affect more than one replica (asked, repair), kept, groups and flag.

The target's file needs a [cluster] section, which may have one replica.

Examples:
  crosscheck-lab inject hooks --target lab/tracer/targets/cluster-RDGX.toml --runs 500 --out hooks-RDGX.json
  crosscheck-lab inject hooks --target lab/tracer/targets/alone-00G0.toml --kind flip,reply
Then:
  crosscheck-lab inject report hooks-RDGX.json"
    )]
    Hooks(Hooks),
    /// Repeats one injection of a campaign exactly (a cluster: the same site and bit, at its next execution)
    #[command(after_long_help = "Examples:
  crosscheck-lab inject replay --target lab/tracer/targets/memcached.toml --run mc.json:wreg/17
  crosscheck-lab inject replay --target lab/tracer/targets/cluster-RDGX.toml --run rdgx.json:wval/92 --times 50

Exit code: 0 when everything recorded repeats, 1 when not. Of a cluster: 0 when some run ended as recorded.")]
    Replay(Replay),
    /// Prints tables of one or more campaigns, with 95 % Wilson intervals; also as HTML
    #[command(after_long_help = "Examples:
  crosscheck-lab inject report lab/bench/results/inject/*.json* --html coverage.html
  crosscheck-lab inject report --together lab/bench/results/inject/cluster-RD00*
  crosscheck-lab inject report --table sei native.json sei.json")]
    Report(ReportArgs),
}

/// The server that faults are injected into.
#[derive(Clone, Debug, clap::Args)]
pub struct TargetArgs {
    /// The target's file, TOML
    #[arg(long, short, value_name = "FILE")]
    pub target: PathBuf,
    /// Program instead of {crosscheck} or {harden}/... in the target's file
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
}

/// The result of a campaign, and its end.
#[derive(Clone, Debug, clap::Args)]
pub struct OutArgs {
    /// File for the result; compressed if the name ends in .gz [default: a new file in lab/bench/results/raw/inject]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Keep the full record of every run, and not only of those that failed and the first ones that were latent or made
    /// no progress
    #[arg(long)]
    pub full: bool,
    /// Stop beginning new runs after this many seconds
    #[arg(long, value_name = "S")]
    pub seconds: Option<u64>,
}

/// Options of `golden` and `profile`.
#[derive(Clone, Debug, clap::Args)]
pub struct Golden {
    /// The server.
    #[command(flatten)]
    pub server: TargetArgs,
    /// Number of runs (golden)
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub repeat: u32,
    /// File for the profile
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
}

/// Options of `null` and `campaign`.
#[derive(Clone, Debug, clap::Args)]
pub struct Many {
    /// The server.
    #[command(flatten)]
    pub server: TargetArgs,
    /// Fault types, separated by commas
    #[arg(
        long,
        value_name = "TYPES",
        default_value = "cf,wreg,wval,waddr,raddr,rreg,rval",
        value_delimiter = ','
    )]
    pub fault: Vec<String>,
    /// Runs of each type
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub runs: u64,
    /// Decides every site and bit
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Runs at the same time (a cluster: always one)
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub jobs: usize,
    /// Bits of instruction pointer, registers and addresses that are flipped: "full", or LOW..HIGH with both included
    #[arg(long, value_name = "BITS", default_value = "full")]
    pub bits: String,
    /// File of the profile; it is made first if it does not exist or belongs to another target
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Reach the site by single steps alone: slow, to verify the use of breakpoints
    #[arg(long)]
    pub steps_only: bool,
    /// The result.
    #[command(flatten)]
    pub result: OutArgs,
}

/// Options of `hooks`.
#[derive(Clone, Debug, clap::Args)]
pub struct Hooks {
    /// The server.
    #[command(flatten)]
    pub server: TargetArgs,
    /// Kinds of faults, separated by commas [default: those that the target's mode has a target for]
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub kind: Vec<String>,
    /// Runs of each kind
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub runs: u64,
    /// Decides where and when each fault is injected
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// The result.
    #[command(flatten)]
    pub result: OutArgs,
}

/// Options of `replay`.
#[derive(Clone, Debug, clap::Args)]
pub struct Replay {
    /// The server.
    #[command(flatten)]
    pub server: TargetArgs,
    /// FILE:TYPE/NUMBER, as in the report; without --full, a result has the runs that failed
    #[arg(long, value_name = "RUN")]
    pub run: String,
    /// Number of repetitions (a cluster: no two runs are the same)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub times: u64,
    /// File of the profile; it is made first if it does not exist or belongs to another target
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
}

/// Options of `report`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportArgs {
    /// Results of campaigns; compressed ones end in .gz
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// One set of tables over all files, without those that a file contains incompletely
    #[arg(long)]
    pub together: bool,
    /// Also write a self-contained HTML page to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Which tables: all, or the one in which SEI's paper counts errors, beside the paper's figures
    #[arg(long, value_enum, default_value_t = Tables::All)]
    pub table: Tables,
}

/// The tables of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Tables {
    /// By fault type, module, function, bit and end.
    All,
    /// Errors that are undetected, detected by the program itself, and detected otherwise.
    Sei,
}

/// Runs one of the commands.
#[cfg(all(feature = "inject", target_os = "linux", target_arch = "x86_64"))]
pub fn run(native: &Native) -> CommandOutcome {
    linux::run(native)
}

/// Reports why the command cannot run.
#[cfg(not(all(feature = "inject", target_os = "linux", target_arch = "x86_64")))]
pub fn run(_: &Native) -> CommandOutcome {
    Err(node::outcome::misuse(format!(
        "this build carries no native fault injection: it needs Linux on x86-64, since it is built on ptrace \
                and debug registers, and the feature `inject`: {}",
        cli::WITH_INJECTOR
    )))
}

#[cfg(all(feature = "inject", target_os = "linux", target_arch = "x86_64"))]
mod linux;
