//! The native injection commands where they work: Linux on x86-64.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tracer::campaign::Campaign;
use tracer::fault::{Bits, TracerFault};
use tracer::hooks;
use tracer::parts::parts;
use tracer::profile::Profile;
use tracer::record::{InjectionClass, InjectionRecord};
use tracer::report::{self, Titled};
use tracer::result::{self, CampaignSettings, InjectionResult};
use tracer::sample::SampledInjection;
use tracer::sei_table;
use tracer::single::SingleInjection;
use tracer::symbols::Symbols;
use tracer::target::{RunPlace, Target};
use tracer::trace::Trace;

use super::{Golden, Hooks, Many, Native, OutArgs, Replay, ReportArgs, Tables, TargetArgs};
use ::report::results::{Origin, name_of};
use node::outcome::{CommandOutcome, CommandVerdict, misuse, say};
use node::signals::Ending;
use node::view::{ProgressLine, grouped};

/// Where results go by default, seen from the workspace; git ignores what is there.
const FOLDER: &str = "lab/bench/results/raw/inject";
/// How often the result so far is written.
const SAVED_EVERY: Duration = Duration::from_secs(20);

pub fn run(native: &Native) -> CommandOutcome {
    match native {
        Native::Golden(args) => golden(args),
        Native::Profile(args) => profile(args),
        Native::Null(args) => many(args, false),
        Native::Campaign(args) => many(args, true),
        Native::Hooks(args) => in_process(args),
        Native::Replay(args) => replay(args),
        Native::Report(args) => print_report(args),
    }
}

fn golden(args: &Golden) -> CommandOutcome {
    let target = single(&args.server)?;
    let trace = Trace::new(&target.trace);
    let mut runs = Vec::new();
    for number in 0..args.repeat.max(1) {
        let dir = tempfile::tempdir()?;
        let profile = Profile::record(&target, &trace, &RunPlace::new(dir.path(), u64::from(number)))?;
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
    Ok(CommandVerdict::of(same_replies))
}

fn profile(args: &Golden) -> CommandOutcome {
    let target = single(&args.server)?;
    let profile = obtain(&target, &Trace::new(&target.trace), args.profile.as_deref())?;
    let all = profile.steps.len();
    say(&format!(
        "{}: {} instructions, {} different, hash {}",
        target.title,
        grouped(all as u64),
        grouped(profile.codes.len() as u64),
        profile.head.hash
    ))?;
    for fault in TracerFault::ALL {
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
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    for part in parts(&profile, &mut Symbols::default()) {
        *counts.entry(part).or_default() += 1;
    }
    for (part, count) in counts {
        let part = part.to_string();
        say(&format!("  {part:<27} {:>12}  {:5.1} %", grouped(count as u64), share(count, all)))?;
    }
    Ok(CommandVerdict::Holds)
}

fn share(part: usize, all: usize) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

fn many(args: &Many, flips: bool) -> CommandOutcome {
    let target = load(&args.server)?;
    let faults: Vec<TracerFault> =
        args.fault.iter().map(|word| word.parse().map_err(misuse)).collect::<Result<_, _>>()?;
    let bits: Bits = args.bits.parse().map_err(misuse)?;
    if target.is_sampled() {
        let plan = SampledInjection { target: &target, seed: args.seed, bits, flips };
        return sampled(args, &plan, &faults);
    }
    let trace = Trace::new(&target.trace);
    let profile = obtain(&target, &trace, args.profile.as_deref())?;
    let parts = parts(&profile, &mut Symbols::default());
    let plan = SingleInjection {
        target: &target,
        trace: &trace,
        profile: &profile,
        parts: &parts,
        seed: args.seed,
        bits,
        flips,
        steps_only: args.steps_only,
    };
    let campaign = Campaign { plan, faults: &faults, runs: args.runs, jobs: args.jobs };
    let mut out = Out::of_flips(args, flips)?;
    campaign.run(|record| {
        out.result.count_flip(record);
        out.tell(record.class)
    })?;
    let all_masked = out.close(&target)?;
    Ok(CommandVerdict::of(flips || all_masked))
}

/// A cluster, or one process with several worker threads.
fn sampled(args: &Many, plan: &SampledInjection<'_>, faults: &[TracerFault]) -> CommandOutcome {
    let mut out = Out::of_flips(args, plan.flips)?;
    let tell = |record: &InjectionRecord| {
        out.result.count_flip(record);
        out.tell(record.class)
    };
    match plan.target.threads {
        Some(_) => tracer::threads::campaign(plan, faults, args.runs, tell)?,
        None => tracer::cluster::campaign(plan, faults, args.runs, tell)?,
    }
    let all_masked = out.close(plan.target)?;
    Ok(CommandVerdict::of(plan.flips || all_masked))
}

fn in_process(args: &Hooks) -> CommandOutcome {
    let target = load(&args.server)?;
    let kinds = match args.kind.as_slice() {
        [] => hooks::kinds(mode(&target)),
        words => words.iter().map(|word| hooks::kind(word).map_err(misuse)).collect::<Result<_, _>>()?,
    };
    let plan = hooks::HookInjection { target: &target, seed: args.seed };
    let mut out = Out::create(result::HOOKS, "hooks-", &args.server, args.seed, &args.result)?;
    hooks::campaign(&plan, &kinds, args.runs, |record| {
        out.result.count_hook(record);
        out.tell(record.class)
    })?;
    out.close(&target)?;
    Ok(CommandVerdict::Holds)
}

/// The mode that a cluster's target asks `up` for.
fn mode(target: &Target) -> &str {
    let named = target.argv.windows(2).find(|words| words[0] == "--mode");
    named.map_or("RDGX", |words| &words[1])
}

/// The result of a campaign, on its way into a file.
struct Out {
    result: InjectionResult,
    path: PathBuf,
    watch: CampaignWatch,
    saved: Instant,
}

impl Out {
    fn of_flips(args: &Many, flips: bool) -> anyhow::Result<Self> {
        let what = if flips { "" } else { "null-" };
        Out::create(result::FLIPS, what, &args.server, args.seed, &args.result)
    }

    /// Of the file that was asked for, or a new one whose name begins with `what`.
    fn create(
        kind: &str,
        what: &str,
        server: &TargetArgs,
        seed: u64,
        args: &OutArgs,
    ) -> anyhow::Result<Self> {
        let target =
            server.target.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let origin = Origin::now(kind);
        let new = || origin.path(Path::new(FOLDER), &format!("{what}{target}-{seed}"));
        let path = args.out.clone().unwrap_or_else(new);
        let settings = CampaignSettings { target, seed, origin, ..CampaignSettings::default() };
        let out = Out {
            result: InjectionResult::new(settings, args.full),
            path,
            watch: CampaignWatch::new(args.seconds)?,
            saved: Instant::now(),
        };
        // That it cannot be written must not be found at the end.
        out.result.write(&out.path)?;
        Ok(out)
    }

    /// A run was counted; false when no more runs shall begin.
    fn tell(&mut self, class: InjectionClass) -> anyhow::Result<bool> {
        if self.saved.elapsed() >= SAVED_EVERY {
            self.result.write(&self.path)?;
            self.saved = Instant::now();
        }
        Ok(self.watch.tell(class))
    }

    /// Writes the file and prints the tables; whether all runs were masked.
    fn close(self, target: &Target) -> anyhow::Result<bool> {
        drop(self.watch);
        self.result.write(&self.path)?;
        let file = self.path.display().to_string();
        let titled = Titled { title: target.title.clone(), file, result: self.result };
        say(&report::table(std::slice::from_ref(&titled)))?;
        say(&format!("result: {}", titled.file))?;
        Ok(titled.result.totals.all.keys().all(|class| *class == InjectionClass::Masked))
    }
}

/// Tells of progress, and when it is enough.
struct CampaignWatch {
    begun: Instant,
    progress: ProgressLine,
    limit: Option<Duration>,
    counts: BTreeMap<&'static str, u64>,
    ending: Ending,
}

impl CampaignWatch {
    pub fn new(seconds: Option<u64>) -> anyhow::Result<Self> {
        let (begun, progress) = (Instant::now(), ProgressLine::of(None));
        let limit = seconds.map(Duration::from_secs);
        Ok(CampaignWatch { begun, progress, limit, counts: BTreeMap::new(), ending: Ending::catch()? })
    }

    /// False when no more runs shall begin.
    pub fn tell(&mut self, class: InjectionClass) -> bool {
        *self.counts.entry(class.name()).or_default() += 1;
        let counts: Vec<String> = self.counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        self.progress.step();
        self.progress.doing(format!("runs: {}", counts.join(", ")));
        !self.ending.sleep(Duration::ZERO) && self.limit.is_none_or(|limit| self.begun.elapsed() < limit)
    }
}

fn replay(args: &Replay) -> CommandOutcome {
    let (file, name) = args
        .run
        .rsplit_once(':')
        .ok_or_else(|| misuse("--run is FILE:TYPE/NUMBER, as in mc.json:wreg/17"))?;
    let record = result::find(Path::new(file), name)?;
    let target = load(&args.server)?;
    if target.cluster.is_some() {
        return replay_in_cluster(args, &target, &record);
    }
    if target.threads.is_some() {
        return Err(misuse(
            "a process with worker threads never runs the same way again: nothing repeats its runs",
        ));
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
    let parts = parts(&profile, &mut Symbols::default());
    let plan = SingleInjection {
        target: &target,
        trace: &trace,
        profile: &profile,
        parts: &parts,
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
    Ok(CommandVerdict::of(same))
}

/// The same bit of the same instruction, as often as wanted: how often does it end as recorded?
fn replay_in_cluster(args: &Replay, target: &Target, record: &InjectionRecord) -> CommandOutcome {
    let plan = SampledInjection { target, seed: record.seed, bits: record.bits, flips: record.flips };
    let mut watch = CampaignWatch::new(None)?;
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    tracer::cluster::again(&plan, record, args.times, |again| {
        *counts.entry(again.class.name()).or_default() += 1;
        let words = if again.details.is_empty() { String::new() } else { format!("; {}", again.details) };
        let flip =
            again.flip.as_ref().map_or(String::new(), |flip| format!(" at {} bit {}", flip.place, flip.bit));
        let reported = format!("{}{flip} {}{words}", again.class.name(), again.subclass);
        watch.progress.aside(|| say(&reported))?;
        Ok(watch.tell(again.class))
    })?;
    drop(watch);
    let repeated = counts.get(record.class.name()).copied().unwrap_or(0);
    say(&format!("{repeated} of {} runs ended as recorded: {}", args.times, record.class.name()))?;
    Ok(CommandVerdict::of(repeated > 0))
}

/// A file's name without its endings.
fn title_of(path: &Path) -> String {
    name_of(path).unwrap_or_else(|| path.display().to_string())
}

fn all_of(files: &[PathBuf]) -> anyhow::Result<InjectionResult> {
    let mut files = files.iter();
    let first = files.next().context("no file is named")?;
    let mut all = InjectionResult::read(first)?;
    for file in files {
        all.add(InjectionResult::read(file)?).with_context(|| file.display().to_string())?;
    }
    Ok(all)
}

fn print_report(args: &ReportArgs) -> CommandOutcome {
    let titled = |path: &PathBuf| {
        let file = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        anyhow::Ok(Titled { title: title_of(path), file, result: InjectionResult::read(path)? })
    };
    let campaigns: Vec<Titled> = if args.together {
        let titles: Vec<String> = args.files.iter().map(|path| title_of(path)).collect();
        vec![Titled { title: titles.join(" and "), file: "FILE".into(), result: all_of(&args.files)? }]
    } else {
        args.files.iter().map(titled).collect::<Result<_, _>>()?
    };
    let (text, html) = match args.table {
        Tables::All => (report::table(&campaigns), report::page(&campaigns)),
        Tables::Sei => {
            let page = sei_table::page(&campaigns);
            (page.plain(), page.html())
        }
    };
    say(&text)?;
    if let Some(path) = &args.html {
        fs::write(path, html).with_context(|| path.display().to_string())?;
    }
    Ok(CommandVerdict::Holds)
}

fn load(args: &TargetArgs) -> anyhow::Result<Target> {
    let mut target = Target::load(&args.target)?;
    if let Some(program) = args.program.as_ref().filter(|_| target.has_open_program()) {
        target.argv[0] = std::path::absolute(program)?.display().to_string();
    }
    Ok(target)
}

fn single(args: &TargetArgs) -> anyhow::Result<Target> {
    let target = load(args)?;
    if target.cluster.is_some() {
        return Err(misuse("a cluster has no golden run: there are `null`, `campaign` and `replay` for it"));
    }
    if target.threads.is_some() {
        return Err(misuse(
            "a process with worker threads has no golden run: there are `null` and `campaign` for it",
        ));
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
    let progress = ProgressLine::of(None);
    progress.tell(&format!(
        "stepping through the golden run of {}: about 20 s per million instructions",
        target.title
    ));
    let dir = tempfile::tempdir()?;
    let profile = Profile::record(target, trace, &RunPlace::new(dir.path(), 0))?;
    if let Some(path) = kept {
        profile.save(path)?;
    }
    Ok(profile)
}
