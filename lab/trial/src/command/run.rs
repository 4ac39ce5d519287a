//! `crosscheck-lab trial run` and `list`: plans from names or files, changed by the command line, one after another.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::plan::Plan;
use crate::report;
use crate::run::Options;
use ::report::results::Origin;
use wire::mix;

use super::recovery;
use crate::hostile;
use node::outcome::{CommandOutcome, CommandVerdict, error_text, misuse, say};
use node::signals::Ending;

/// Options of `trial run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Names of plans (see `trial list`), or files that end in .toml
    #[arg(value_name = "PLAN", default_value = "everything")]
    pub plans: Vec<String>,
    /// Seconds during which troubles come, for each plan [default: the plan's]
    #[arg(long, value_name = "N")]
    pub seconds: Option<f64>,
    /// Decides order, victims, faults, requests and lost packets [default: a random one]
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Concurrent clients [default: the plan's]
    #[arg(long, value_name = "N")]
    pub clients: Option<u16>,
    /// Number of replicas, 3 or 5 [default: the plan's]
    #[arg(long, value_name = "N")]
    pub replicas: Option<usize>,
    /// Worker threads of each replica [default: the plan's]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Requests per second, of all clients together [default: the plan's]
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// Only these attacks of `hostile`, or groups of `recovery` (see `trial list`) [default: all]
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub only: Vec<String>,
    /// `recovery`: pairs of strikes in each kind of group [default: 100; 3 with --quick]
    #[arg(long, value_name = "N")]
    pub pairs: Option<usize>,
    /// `recovery`: values of 20 bytes, pauses and cuts of at most 0.8 s, few requests
    #[arg(long)]
    pub quick: bool,
    /// `recovery`: strikes the second one at once, whatever the group tolerates; the command then has to fail
    #[arg(long, hide = true)]
    pub blindly: bool,
    /// The program of the plan's service, where it is not this one [default: crosscheck-sql beside this program]
    #[arg(long, value_name = "FILE")]
    pub server: Option<PathBuf>,
    /// All hosts on this machine's loopback addresses, as where namespaces are not allowed: no trouble of the network,
    /// no full disks
    #[arg(long)]
    pub loopback: bool,
    /// Folder for the results; each plan gets one of its own below it
    #[arg(long, value_name = "DIR", default_value = super::FOLDER)]
    pub out: PathBuf,
}

/// Runs the plans.
pub fn run(args: &Args) -> CommandOutcome {
    let has = |wanted: &str| args.plans.iter().any(|name| name == wanted);
    let (is_hostile, is_recovery) = (has(hostile::NAME), has(recovery::NAME));
    let named: Vec<&String> =
        args.plans.iter().filter(|name| ![hostile::NAME, recovery::NAME].contains(&name.as_str())).collect();
    fits(args, is_hostile, is_recovery, named.is_empty())?;
    let mut plans = Vec::new();
    for name in named {
        let mut plan = Plan::load(name).map_err(|why| misuse(error_text(&why)))?;
        change(&mut plan, args);
        plan.check().map_err(|why| misuse(format!("{name}: {}", error_text(&why))))?;
        plans.push(plan);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = args.seed.unwrap_or_else(|| mix(since.as_nanos() as u64) >> 40);
    let ending = Ending::catch()?;
    let mut holds = true;
    for plan in plans {
        if ending.asked() {
            break;
        }
        let out = args.out.join(format!("{}-{}-{seed}", plan.name, since.as_secs()));
        say(&format!("plan {} ({}), seed {seed}, results in {}", plan.name, plan.title, out.display()))?;
        for trouble in &plan.troubles {
            say(&format!("  {}, {:?}, {:?} s", trouble.description(), trouble.victim, trouble.seconds))?;
        }
        let origin = Origin::now(report::KIND);
        let server = plan.service.program(args.server.as_deref()).map_err(|why| misuse(error_text(&why)))?;
        let options = Options { plan, server, seed, out, loopback: args.loopback, origin };
        // If the pipe is closed, the run continues without output.
        let report = crate::run::run(&options, ending.flag(), &|line| drop(say(line)))?;
        say(report.summary().trim_end())?;
        holds &= report.holds;
    }
    if is_hostile && !ending.asked() {
        let out = args.out.join(format!("{}-{}", hostile::NAME, since.as_secs()));
        say(&format!("{} ({}), results in {}", hostile::NAME, hostile::TITLE, out.display()))?;
        holds &= hostile::run(&args.only, &out, Origin::now(hostile::NAME), &ending)?;
    }
    if is_recovery && !ending.asked() {
        let out = args.out.join(format!("{}-{}-{seed}", recovery::NAME, since.as_secs()));
        std::fs::create_dir_all(&out)?;
        say(&format!("{} ({}), seed {seed}, results in {}", recovery::NAME, recovery::TITLE, out.display()))?;
        holds &= recovery::run(args, seed, &out, &Origin::now(recovery::NAME), &ending)?;
    }
    Ok(CommandVerdict::of(holds))
}

/// Checks for options that have no meaning for these plans.
fn fits(args: &Args, is_hostile: bool, is_recovery: bool, is_alone: bool) -> anyhow::Result<()> {
    if !args.only.is_empty() && is_hostile == is_recovery {
        let which = if is_hostile { "name only one of them" } else { "add one of them" };
        return Err(misuse(format!(
            "--only chooses attacks of `{}` or groups of `{}`; {which}: trial run NAME --only ...",
            hostile::NAME,
            recovery::NAME
        )));
    }
    if !is_recovery && (args.pairs.is_some() || args.quick || args.blindly) {
        return Err(misuse(format!(
            "--pairs and --quick are for `{0}`; add it: trial run {0}",
            recovery::NAME
        )));
    }
    if args.pairs == Some(0) {
        return Err(misuse("--pairs is at least 1"));
    }
    let of_plans = args.seconds.is_some()
        || args.clients.is_some()
        || args.replicas.is_some()
        || args.workers.is_some()
        || args.rate.is_some();
    if is_recovery && is_alone && of_plans {
        let name = recovery::NAME;
        return Err(misuse(format!("`{name}` has its own groups and clients; see trial run --help")));
    }
    if is_hostile && !is_recovery && is_alone && (of_plans || args.seed.is_some() || args.loopback) {
        return Err(misuse(format!("`{}` has no options but --only and --out", hostile::NAME)));
    }
    if is_recovery {
        return recovery::chosen(&args.only).map(drop);
    }
    hostile::check(&args.only)
}

fn change(plan: &mut Plan, args: &Args) {
    let set = |from: Option<f64>, to: &mut f64| *to = from.unwrap_or(*to);
    set(args.seconds, &mut plan.seconds);
    set(args.rate, &mut plan.requests_per_second);
    plan.clients = args.clients.unwrap_or(plan.clients);
    plan.replicas = args.replicas.unwrap_or(plan.replicas);
    plan.workers = args.workers.unwrap_or(plan.workers);
}

/// Lists the plans.
pub fn list() -> CommandOutcome {
    for plan in Plan::shipped()? {
        say(&format!(
            "{:<12} {} ({:.0} s, {} troubles)",
            plan.name,
            plan.title,
            plan.seconds,
            plan.troubles.len()
        ))?;
    }
    say(&format!("{:<12} {}:", hostile::NAME, hostile::TITLE))?;
    for (name, title) in hostile::attacks() {
        say(&format!("  {name:<14} {title}"))?;
    }
    say(&format!("{:<12} {}:", recovery::NAME, recovery::TITLE))?;
    for (name, title) in recovery::configurations() {
        say(&format!("  {name:<14} {title}"))?;
    }
    Ok(CommandVerdict::Holds)
}
