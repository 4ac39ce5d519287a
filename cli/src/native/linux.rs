//! The native injection commands where they work: Linux on x86-64.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use tracer::campaign::Campaign;
use tracer::fault::{Bits, Fault};
use tracer::hooks;
use tracer::profile::Profile;
use tracer::record::{self, Class, Record};
use tracer::report::{self, Records};
use tracer::single::Plan;
use tracer::symbols::Symbols;
use tracer::target::{Place, Target};
use tracer::trace::Trace;

use super::{Golden, Hooks, Many, Native, Replay, Report};
use crate::outcome::{Outcome, Verdict, misuse, say};
use crate::signals::Ending;
use crate::view::grouped;

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

pub fn run(native: &Native) -> Outcome {
    match native {
        Native::Golden(args) => golden(args),
        Native::Profile(args) => profile(args),
        Native::Null(args) => many(args, false),
        Native::Campaign(args) => many(args, true),
        Native::Hooks(args) => in_process(args),
        Native::Replay(args) => replay(args),
        Native::Report(args) => tell(args),
    }
}

fn golden(args: &Golden) -> Outcome {
    let target = single(&args.target, args.program.as_deref())?;
    let trace = Trace::new(&target.trace);
    let mut runs = Vec::new();
    for number in 0..args.repeat.max(1) {
        let dir = tempfile::tempdir()?;
        let profile = Profile::record(&target, &trace, &Place::new(dir.path(), u64::from(number)))?;
        say(&format!(
            "run {}: {} instructions, {} different, hash {}, {} replies",
            number + 1,
            grouped(profile.steps.len() as u64),
            grouped(profile.codes.len() as u64),
            profile.head.hash,
            profile.head.golden.len()
        ))?;
        runs.push(profile);
    }
    let same_replies = runs.iter().all(|run| run.head.golden == runs[0].head.golden);
    let same_path = runs.iter().all(|run| run.head.hash == runs[0].head.hash);
    say(match (same_replies, same_path) {
        (true, true) => "repeatable: the same instructions, the same replies",
        (true, false) => {
            "the same replies by different instructions: a few landings will be lost and tried again"
        }
        (false, _) => "NOT repeatable: the replies differ, so no run can be judged by them",
    })?;
    if let Some(path) = &args.profile {
        runs[0].save(path)?;
    }
    Ok(Verdict::of(same_replies))
}

fn profile(args: &Golden) -> Outcome {
    let target = single(&args.target, args.program.as_deref())?;
    let profile = obtain(&target, &Trace::new(&target.trace), args.profile.as_deref())?;
    let all = profile.steps.len();
    say(&format!(
        "{}: {} instructions, {} different, hash {}",
        target.title,
        grouped(all as u64),
        grouped(profile.codes.len() as u64),
        profile.head.hash
    ))?;
    for fault in Fault::ALL {
        let carriers = profile.carriers(fault);
        say(&format!(
            "  can carry {:<6} {:>12}  {:5.1} %",
            fault.name(),
            grouped(carriers as u64),
            share(carriers, all)
        ))?;
    }
    for (module, count) in profile.by_module() {
        say(&format!("  in {module:<24} {:>12}  {:5.1} %", grouped(count as u64), share(count, all)))?;
    }
    Ok(Verdict::Holds)
}

fn share(part: usize, all: usize) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

fn many(args: &Many, flips: bool) -> Outcome {
    let target = load(&args.target, args.program.as_deref())?;
    let faults: Vec<Fault> =
        args.fault.iter().map(|word| word.parse().map_err(misuse)).collect::<Result<_, _>>()?;
    let bits: Bits = args.bits.parse().map_err(misuse)?;
    if target.cluster.is_some() {
        return cluster(args, &target, &faults, bits, flips);
    }
    let trace = Trace::new(&target.trace);
    let profile = obtain(&target, &trace, args.profile.as_deref())?;
    let plan = Plan {
        target: &target,
        trace: &trace,
        profile: &profile,
        seed: args.seed,
        bits,
        flips,
        steps_only: args.steps_only,
    };
    let campaign = Campaign { plan, faults: &faults, runs: args.runs, jobs: args.jobs };
    let mut watch = Watch::new(args.seconds)?;
    let records = campaign.run(args.out.as_deref(), |record| watch.on_record(record.class))?;
    let all_masked = records.iter().all(|record| record.class == Class::Masked);
    say(&report::table(&[(target.title.clone(), Records::Native(records))]))?;
    Ok(Verdict::of(flips || all_masked))
}

fn cluster(args: &Many, target: &Target, faults: &[Fault], bits: Bits, flips: bool) -> Outcome {
    let plan = tracer::cluster::Plan { target, seed: args.seed, bits, flips };
    let mut file = args.out.as_deref().map(record::create).transpose()?;
    let mut watch = Watch::new(args.seconds)?;
    let mut records = Vec::new();
    tracer::cluster::campaign(&plan, faults, args.runs, |record| {
        if let Some(file) = &mut file {
            record::append(file, record)?;
        }
        records.push(record.clone());
        Ok(watch.on_record(record.class))
    })?;
    let all_masked = records.iter().all(|record| record.class == Class::Masked);
    say(&report::table(&[(target.title.clone(), Records::Native(records))]))?;
    Ok(Verdict::of(flips || all_masked))
}

fn in_process(args: &Hooks) -> Outcome {
    let target = load(&args.target, args.program.as_deref())?;
    let kinds = match args.kind.as_slice() {
        [] => hooks::kinds(mode(&target)),
        words => words.iter().map(|word| hooks::kind(word).map_err(misuse)).collect::<Result<_, _>>()?,
    };
    let plan = hooks::Plan { target: &target, seed: args.seed };
    let mut file = args.out.as_deref().map(record::create).transpose()?;
    let mut watch = Watch::new(args.seconds)?;
    let mut records = Vec::new();
    hooks::campaign(&plan, &kinds, args.runs, |record| {
        if let Some(file) = &mut file {
            record::append(file, record)?;
        }
        records.push(record.clone());
        Ok(watch.on_record(record.class))
    })?;
    say(&report::table(&[(target.title.clone(), Records::Hooks(records))]))?;
    Ok(Verdict::Holds)
}

/// The mode that a cluster's target asks `up` for.
fn mode(target: &Target) -> &str {
    let named = target.argv.windows(2).find(|words| words[0] == "--mode");
    named.map_or("RDGX", |words| &words[1])
}

/// Tells of progress, and when it is enough.
struct Watch {
    begun: Instant,
    told: Instant,
    limit: Option<Duration>,
    counts: BTreeMap<&'static str, u64>,
    ending: Ending,
}

impl Watch {
    pub fn new(seconds: Option<u64>) -> anyhow::Result<Self> {
        let now = Instant::now();
        let limit = seconds.map(Duration::from_secs);
        Ok(Watch { begun: now, told: now, limit, counts: BTreeMap::new(), ending: Ending::catch()? })
    }

    /// False when no more runs shall begin.
    pub fn on_record(&mut self, class: Class) -> bool {
        *self.counts.entry(class.name()).or_default() += 1;
        if self.told.elapsed() > PROGRESS {
            self.told = Instant::now();
            let done: u64 = self.counts.values().sum();
            let counts: Vec<String> =
                self.counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            eprintln!("{:4} s  {done} runs: {}", self.begun.elapsed().as_secs(), counts.join(", "));
        }
        !self.ending.sleep(Duration::ZERO) && self.limit.is_none_or(|limit| self.begun.elapsed() < limit)
    }
}

fn replay(args: &Replay) -> Outcome {
    let (file, name) = args
        .run
        .rsplit_once(':')
        .ok_or_else(|| misuse("--run is FILE:TYPE/NUMBER, as in mc.jsonl:wreg/17"))?;
    let Records::Native(records) = report::read(Path::new(file))? else {
        return Err(misuse("hooks have no replay: `crosscheck inject KIND --seed S` places one again"));
    };
    let record = records
        .into_iter()
        .find(|record| format!("{}/{}", record.fault, record.id) == name)
        .ok_or_else(|| anyhow!("{file} has no run {name}"))?;
    let target = load(&args.target, args.program.as_deref())?;
    if target.cluster.is_some() {
        return replay_in_cluster(args, &target, &record);
    }
    let trace = Trace::new(&target.trace);
    let profile = obtain(&target, &trace, args.profile.as_deref())?;
    if profile.head.hash != record.profile {
        bail!(
            "the target's golden run is another now ({}, recorded {}): another build or file",
            profile.head.hash,
            record.profile
        );
    }
    let plan = Plan {
        target: &target,
        trace: &trace,
        profile: &profile,
        seed: record.seed,
        bits: record.bits,
        flips: record.flips,
        steps_only: false,
    };
    let dir = tempfile::tempdir()?;
    let again = plan.inject(record.fault, record.id, dir.path(), 0, &mut Symbols::default())?;
    say(&serde_json::to_string_pretty(&again)?)?;
    let same = again.essence() == record.essence();
    say(if same {
        "repeated: the same site, flip and outcome"
    } else {
        "NOT repeated: something recorded differs"
    })?;
    Ok(Verdict::of(same))
}

/// The same bit of the same instruction, as often as wanted: how often does it end as recorded?
fn replay_in_cluster(args: &Replay, target: &Target, record: &Record) -> Outcome {
    let plan = tracer::cluster::Plan { target, seed: record.seed, bits: record.bits, flips: record.flips };
    let mut watch = Watch::new(None)?;
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    tracer::cluster::again(&plan, record, args.times, |again| {
        *counts.entry(again.class.name()).or_default() += 1;
        let words = if again.told.is_empty() { String::new() } else { format!("; {}", again.told) };
        let flip =
            again.flip.as_ref().map_or(String::new(), |flip| format!(" at {} bit {}", flip.place, flip.bit));
        say(&format!("{}{flip} {}{words}", again.class.name(), again.subclass))?;
        Ok(watch.on_record(again.class))
    })?;
    let repeated = counts.get(record.class.name()).copied().unwrap_or(0);
    say(&format!("{repeated} of {} runs ended as recorded: {}", args.times, record.class.name()))?;
    Ok(Verdict::of(repeated > 0))
}

fn tell(args: &Report) -> Outcome {
    let mut campaigns = Vec::new();
    for path in &args.records {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let title = name.trim_end_matches(".gz").trim_end_matches(".jsonl").to_owned();
        campaigns.push((title, report::read(path)?));
    }
    say(&report::table(&campaigns))?;
    if let Some(path) = &args.html {
        fs::write(path, report::page(&campaigns)).with_context(|| path.display().to_string())?;
    }
    Ok(Verdict::Holds)
}

fn load(path: &Path, program: Option<&Path>) -> anyhow::Result<Target> {
    let mut target = Target::load(path)?;
    if let Some(program) = program.filter(|_| target.argv[0] == tracer::target::CROSSCHECK) {
        target.argv[0] = std::path::absolute(program)?.display().to_string();
    }
    Ok(target)
}

fn single(path: &Path, program: Option<&Path>) -> anyhow::Result<Target> {
    let target = load(path, program)?;
    if target.cluster.is_some() {
        return Err(misuse("a cluster has no golden run: there are `null`, `campaign` and `replay` for it"));
    }
    Ok(target)
}

/// The kept profile, or a new one.
fn obtain(target: &Target, trace: &Trace, kept: Option<&Path>) -> anyhow::Result<Profile> {
    if let Some(path) = kept.filter(|path| path.exists())
        && let Some(profile) = Profile::load(path, &target.identity()?)?
    {
        return Ok(profile);
    }
    eprintln!("stepping through the golden run of {}: about 20 s per million instructions", target.title);
    let dir = tempfile::tempdir()?;
    let profile = Profile::record(target, trace, &Place::new(dir.path(), 0))?;
    if let Some(path) = kept {
        profile.save(path)?;
    }
    Ok(profile)
}
