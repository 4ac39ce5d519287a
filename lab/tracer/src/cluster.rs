//! Faults in one replica of a running cluster, under clients that check every reply against a model.
//!
//! Timing makes every run of a cluster different, so that nothing is repeated exactly: sites are drawn from a sample of
//! the instructions that the victim's thread executes under this load, and the fault is injected at the next execution
//! after a random pause. A repetition of a recorded run ([`again`]) has the same site and the same bit, any number of
//! times. One cluster takes many injections; a victim that died is restarted and receives its state from the others.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use wire::SplitMix64;

use crate::callers::names;
use crate::code::Code;
use crate::draw;
use crate::fault::TracerFault;
use crate::group::Cluster;
use crate::inject::Flip;
use crate::judge::{BACK, Judged, WatchedCluster};
use crate::profile::{file_name, module_of};
use crate::record::InjectionRecord;
use crate::sample::{Sample, SampledInjection, Windows};
use crate::series::Series;
use crate::symbols::Symbols;

/// Draws after which an injection is given up, if no drawn instruction can carry it.
const DRAWS: u32 = 100_000;
/// Runs `runs` injections of each of `faults`, or until `on_record`, which receives each record, returns `false`.
///
/// # Errors
/// When no cluster comes up.
pub fn campaign(
    plan: &SampledInjection<'_>,
    faults: &[TracerFault],
    runs: u64,
    on_record: impl FnMut(&InjectionRecord) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let kinds = faults.len() as u64;
    let mut symbols = Symbols::default();
    let one = |watch: &WatchedCluster<'_>, sample: &Sample, number: u64| {
        let fault = faults[(number % kinds) as usize];
        ClusterRun { plan, watch }.inject(sample, fault, number / kinds, &mut symbols)
    };
    series(plan, runs * kinds).run(|watch| sample(plan, watch), one, on_record)
}

/// Repeats the injection of `record` `times` times: the same bit of the same instruction, at its next execution.
///
/// # Errors
/// When no cluster comes up, or the program is another than the recorded one.
pub fn again(
    plan: &SampledInjection<'_>,
    record: &InjectionRecord,
    times: u64,
    on_record: impl FnMut(&InjectionRecord) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let stream = stream_after_draw(plan, record)?;
    let mut symbols = Symbols::default();
    let one = |watch: &WatchedCluster<'_>, sample: &Sample, _| {
        let drawn = Drawn {
            fault: record.fault,
            id: record.id,
            index: record.index,
            code: sample.first(),
            stream: stream.clone(),
        };
        ClusterRun { plan, watch }.carry_out(sample, drawn, &mut symbols)
    };
    series(plan, times).run(|watch| recorded_site(plan, watch.cluster, record), one, on_record)
}

/// The random numbers of a recorded injection after its site was drawn: its bit comes from the next ones.
fn stream_after_draw(plan: &SampledInjection<'_>, record: &InjectionRecord) -> anyhow::Result<SplitMix64> {
    let series = series(plan, 1);
    let group = series.group()?;
    let steps = u64::from(group.windows) * u64::from(group.window_steps);
    let mut stream = draw::stream(record.seed, record.fault.number(), record.id);
    // The draws before it hit instructions that cannot carry the fault, or are spared.
    let found = (0..DRAWS).any(|_| stream.below(steps) == record.index);
    if found {
        Ok(stream)
    } else {
        bail!("the target samples {steps} instructions; the recorded one another number")
    }
}

/// The traced thread of the victim: its process and its own id.
fn victim_thread(plan: &SampledInjection<'_>, cluster: &Cluster, victim: u8) -> anyhow::Result<(i32, i32)> {
    let process = *cluster.processes(victim).last().context("the victim has no process")?;
    for task in fs::read_dir(format!("/proc/{process}/task")).context("the victim's threads")? {
        let path = task?.path();
        if fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == plan.target.thread) {
            let id = path.file_name().and_then(|name| name.to_str()?.parse().ok());
            return Ok((process, id.context("a thread without a number")?));
        }
    }
    bail!("replica {victim} has no thread {:?}", plan.target.thread)
}

/// Steps the victim's thread through windows of its execution, at random moments under load.
///
/// Stepping is ten thousand times slower, and leaves the victim behind the others: before the next window its client
/// must have received its replies again. Otherwise a follower only catches up, and the code that serves clients is
/// missing from the sample.
fn sample(plan: &SampledInjection<'_>, watch: &WatchedCluster<'_>) -> anyhow::Result<Sample> {
    let group = watch.group;
    let (process, thread) = victim_thread(plan, watch.cluster, group.victim)?;
    let windows = Windows { count: group.windows, steps: group.window_steps };
    let mut sample = Sample::take(process, &[thread], windows, &mut draw::stream(plan.seed, 99, 0), || {
        if !watch.await_victims_client(&watch.before()?) {
            bail!("the victim does not serve its client while it is sampled");
        }
        Ok(())
    })?;
    sample.strike_only(&group.only, &mut Symbols::default());
    Ok(sample)
}

/// The site of a recorded injection, in a cluster of the same program.
fn recorded_site(
    plan: &SampledInjection<'_>,
    cluster: &Cluster,
    record: &InjectionRecord,
) -> anyhow::Result<Sample> {
    let series = series(plan, 1);
    let group = series.group()?;
    Sample::of_site(victim_thread(plan, cluster, group.victim)?.0, record)
}

fn series<'a>(plan: &SampledInjection<'a>, runs: u64) -> Series<'a> {
    Series { target: plan.target, seed: plan.seed, runs }
}

/// A plan, and the running cluster on which it is carried out.
struct ClusterRun<'a> {
    plan: &'a SampledInjection<'a>,
    watch: &'a WatchedCluster<'a>,
}

/// One injection, drawn.
struct Drawn<'a> {
    fault: TracerFault,
    id: u64,
    /// Number of the step in the sample.
    index: u64,
    code: &'a Code,
    /// Decides the remaining choices: the pause and the bit.
    stream: SplitMix64,
}

impl ClusterRun<'_> {
    /// Draws an injection and carries it out.
    fn inject(
        &self,
        sample: &Sample,
        fault: TracerFault,
        id: u64,
        symbols: &mut Symbols,
    ) -> anyhow::Result<(InjectionRecord, bool)> {
        let mut stream = draw::stream(self.plan.seed, fault.number(), id);
        let (index, code) = sample.draw(fault, &mut stream).context("no instruction carries this fault")?;
        self.carry_out(sample, Drawn { fault, id, index: index as u64, code, stream }, symbols)
    }

    /// Returns the record, and whether the cluster can take another injection.
    fn carry_out(
        &self,
        sample: &Sample,
        drawn: Drawn<'_>,
        symbols: &mut Symbols,
    ) -> anyhow::Result<(InjectionRecord, bool)> {
        let begun = Instant::now();
        let Drawn { fault, id, index, code, mut stream } = drawn;
        if !self.watch.cluster.all_serve(BACK) {
            bail!("the cluster does not serve before an injection");
        }
        let before = self.watch.before()?;
        std::thread::sleep(Duration::from_micros(stream.below(10_000)));
        let injected = self.inject_at_site(sample, fault, code, &mut stream);
        let injected_us = begun.elapsed().as_micros() as u64;
        let judged = match &injected {
            Err(why) => self.watch.with_all_serving(Judged::lost(why.clone())),
            Ok(_) => self.watch.judge(&before),
        };
        let (module, offset) = module_of(sample.modules(), code.address);
        let record = InjectionRecord {
            id,
            seed: self.plan.seed,
            fault,
            bits: self.plan.bits,
            flips: self.plan.flips,
            profile: "sample".into(),
            index,
            address: code.address,
            module: file_name(module).to_owned(),
            offset,
            symbol: symbols.name(module, offset),
            callers: injected
                .as_ref()
                .map_or_else(|_| Vec::new(), |(_, callers)| names(callers, sample.modules(), symbols)),
            part: None,
            text: code.text(),
            hits: 1,
            flip: injected.ok().map(|(flip, _)| flip),
            class: judged.class,
            subclass: judged.subclass,
            message: None,
            details: judged.details,
            states_equal: judged.states_equal,
            noticed: judged.noticed,
            signal: None,
            exit: None,
            start_us: injected_us,
            total_us: begun.elapsed().as_micros() as u64,
            retries: 0,
        };
        Ok((record, judged.healthy))
    }

    fn inject_at_site(
        &self,
        sample: &Sample,
        fault: TracerFault,
        code: &Code,
        stream: &mut SplitMix64,
    ) -> Result<(Flip, Vec<u64>), String> {
        let (process, thread) = victim_thread(self.plan, self.watch.cluster, self.watch.victim())
            .map_err(|error| error.to_string())?;
        sample.inject(self.plan.fault_in(fault, code), process, thread, stream)
    }
}
