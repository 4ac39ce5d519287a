//! Runs one definition: every side in turn, repeatedly, so that a drift of the machine affects all of them alike.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use crosscheck::admin::client::Link;
use crosscheck::admin::{AdminCommand, EvidenceList, Sent, Status, Traffic};
use rustix::process::Pid;
use wire::mix;

use super::definition::{Definition, Side, SweepFaults, SweepVictim, Workload};
use super::failures::{self, FailureInjector};
use super::faults::Injector;
use super::generator::{Generator, MeasuredCounts, Pattern, Setup};
use super::measure::{Cpu, EventLoopCycles, Wire, cpu_of, cycles_of, peak_memory_of, threads_of};
use super::memaslap;
use super::progress::BenchProgress;
use super::repairs::{self, RepairFigures};
use super::results::{BenchRun, Errors, Figures, Independent, Latency, Measurement, ProcessFigures, Skipped};
use super::servers::{self, Running};
use node::cluster::{ReplicaHandle, once};
use node::outcome::error_text;
use node::signals::Ending;

/// Share of a core above which the generator may be what limits the throughput.
pub const BUSY_GENERATOR: f64 = 0.9;

/// A replica with thousands of evidence records answers within this.
const ANSWER: Duration = Duration::from_secs(5);

/// One cell of the plan.
#[derive(Clone, Copy, Debug)]
struct Cell<'d> {
    repetition: usize,
    workload: &'d Workload,
    clients: usize,
    side: &'d Side,
}

/// A definition that is being measured.
#[derive(Debug)]
pub struct BenchCampaign<'e> {
    run: BenchRun,
    keeps_times: bool,
    results: PathBuf,
    data: PathBuf,
    pattern: Arc<Pattern>,
    ending: &'e Ending,
}

impl<'e> BenchCampaign<'e> {
    /// Results go to `results`, what sides store below `data`.
    pub fn new(
        definition: Definition,
        changed: Vec<String>,
        results: &Path,
        data: &Path,
        ending: &'e Ending,
    ) -> Self {
        let mut versions = BTreeMap::new();
        let mut skipped = Vec::new();
        for side in &definition.sides {
            if let Some(why) = servers::missing(side) {
                skipped.push(Skipped { side: side.clone(), workload: None, why });
                continue;
            }
            versions.insert(side.clone(), servers::version(side));
            for workload in &definition.workloads {
                let lacks = workload.mix.iter().find(|(op, share)| **share > 0.0 && !side.offers(**op));
                if let Some((op, _)) = lacks {
                    let why = format!("it has no `{}`", op.name());
                    skipped.push(Skipped { side: side.clone(), workload: Some(workload.name.clone()), why });
                }
            }
        }
        if definition.memaslap && memaslap::program().is_none() {
            print_note(&format!("skipped: {}", memaslap::INSTALL));
        }
        let mut run = BenchRun::begin(definition, changed, versions);
        run.settings.skipped = skipped;
        BenchCampaign {
            run,
            keeps_times: false,
            results: results.to_owned(),
            data: data.to_owned(),
            pattern: Arc::new(Pattern::default()),
            ending,
        }
    }

    /// With the time of every repair in the result.
    #[must_use]
    pub fn keeping_times(self, keeps_times: bool) -> Self {
        BenchCampaign { keeps_times, ..self }
    }

    /// Measures everything; returns the file and the run. A side that fails once is reported and tried again in the
    /// next repetition.
    ///
    /// # Errors
    /// Results cannot be written, or the operator ended the command; what was measured until then is kept.
    pub fn run(mut self, progress: &mut BenchProgress) -> anyhow::Result<(PathBuf, BenchRun)> {
        let definition = self.run.settings.definition.clone();
        let plan = plan(&definition, &self.run.settings.skipped);
        progress.begin(&definition, &self.run.settings.skipped, plan.len());
        let mut path = self.run.path(&self.results);
        for (index, cell) in plan.iter().enumerate() {
            progress.start(index, cell.repetition, &cell.workload.name, cell.clients, cell.side);
            let outcome = self.measure(&definition, *cell);
            if self.ending.asked() {
                let kept = if self.run.measurements.is_empty() {
                    "nothing was measured".to_owned()
                } else {
                    format!("what was measured is in {}", path.display())
                };
                bail!("ended by the operator; {kept}");
            }
            let (figures, failed) = match outcome {
                Ok(figures) => (Some(figures), None),
                Err(error) => (None, Some(error_text(&error))),
            };
            let measurement = Measurement {
                repetition: cell.repetition,
                workload: cell.workload.name.clone(),
                clients: cell.clients,
                side: cell.side.clone(),
                figures,
                failed,
            };
            progress.end(&measurement)?;
            self.run.measurements.push(measurement);
            let shortened = (!self.keeps_times).then(|| self.run.clone().without_single_times());
            path = shortened.as_ref().unwrap_or(&self.run).write(&self.results)?;
        }
        Ok((path, self.run))
    }

    fn measure(&self, definition: &Definition, cell: Cell<'_>) -> anyhow::Result<Figures> {
        // What an earlier cell stored must neither fill the disk nor be found by the next one.
        let data = tempfile::Builder::new().prefix("crosscheck-bench-").tempdir_in(&self.data)?;
        let begin = Instant::now();
        let mut running = Running::start(cell.side, definition, cell.workload, data.path(), self.ending)?;
        let start_seconds = begin.elapsed().as_secs_f64();
        let measured = self.load(definition, cell, &mut running, start_seconds);
        let trouble = running.trouble();
        let killed = running.stop();
        if let Some(trouble) = trouble {
            bail!("{trouble}");
        }
        if !killed.is_empty() {
            print_note(&format!("{}: {} had to be killed", cell.side, killed.join(", ")));
        }
        measured
    }

    fn load(
        &self,
        definition: &Definition,
        cell: Cell<'_>,
        running: &mut Running,
        start_seconds: f64,
    ) -> anyhow::Result<Figures> {
        let failing = match cell.workload.failure {
            Some(failure) => {
                let pid = running.expect(failure).and_then(|pid| Pid::from_raw(pid as i32));
                Some((failure, pid.context("there is no replica that could fail")?))
            }
            None => None,
        };
        let setup = Setup {
            dialect: running.dialect,
            addresses: running.addresses.clone(),
            workload: cell.workload.clone(),
            connections: cell.clients,
            pipeline: definition.pipeline,
            rate: definition.rate,
            verify: definition.verify,
            seed: cell.seed(),
            timeline: cell.workload.faults.is_some() || failing.is_some(),
            restarts: false,
        };
        let mut generator = Generator::prepare(setup, &self.pattern)?;
        generator.heed(self.ending);
        generator.warm_up(Duration::from_secs_f64(definition.warmup_seconds))?;
        let damage = PlacedFaults::begin(cell, running)?;
        let before = Usage::now(cell.side, running)?;
        let (replicas, leader) = running.replicas();
        let replicas = replicas.to_vec();
        // Roles are those of the beginning. One that changed under load would be another failure than the file says.
        let has_roles = before.statuses.iter().all(|status| status.leader == leader);
        ensure!(failing.is_none() || has_roles, "the primary changed before a replica failed");
        let injector =
            failing.map(|(failure, pid)| FailureInjector::start(failure, pid, replicas)).transpose()?;
        let (span, own) = generator.measure(Duration::from_secs_f64(definition.seconds))?;
        let after = Usage::now(cell.side, running)?;
        let seen = generator.finish()?;
        let memory = running.processes.iter().map(|(_, pid)| peak_memory_of(*pid)).collect::<Vec<_>>();
        let mut figures = figures(&seen, span, own, &before, &after);
        if let Some(damage) = damage {
            figures.repairs = Some(damage.end(&seen, &before, &after)?);
        }
        if let (Some(times), Some(timeline)) = (injector.map(FailureInjector::finish), &seen.timeline) {
            figures.failure = failures::of(times, timeline, span.as_secs_f64());
            ensure!(figures.failure.is_some(), "the replica did not fail");
        }
        figures.start_seconds = Some(start_seconds);
        let used = after.cpu_since(&before).into_iter().zip(after.threads_since(&before));
        for (((name, _), peak_memory), (cpu, threads)) in running.processes.iter().zip(memory).zip(used) {
            figures.processes.push(ProcessFigures { name: name.clone(), cpu, peak_memory, threads });
        }
        if definition.memaslap && cell.side.speaks_memcached() {
            figures.memaslap = self.independent(definition, cell, running)?;
        }
        Ok(figures)
    }

    fn independent(
        &self,
        definition: &Definition,
        cell: Cell<'_>,
        running: &Running,
    ) -> anyhow::Result<Option<Independent>> {
        if memaslap::program().is_none() {
            return Ok(None);
        }
        memaslap::run(definition, cell.workload, cell.clients, &running.addresses, &self.data, self.ending)
    }
}

impl Cell<'_> {
    /// Decides what is drawn: the same requests for every side, other ones in every repetition.
    fn seed(&self) -> u64 {
        mix(self.repetition as u64 ^ ((self.clients as u64) << 32))
    }
}

/// Faults on their way into one replica.
struct PlacedFaults {
    injector: Injector,
    faults: SweepFaults,
    victim: ReplicaHandle,
    link: Link,
    /// Number of the victim's last evidence record before.
    known: u64,
}

impl PlacedFaults {
    /// Begins to place the faults of a cell, if it has any.
    fn begin(cell: Cell<'_>, running: &Running) -> anyhow::Result<Option<Self>> {
        let Some(faults) = cell.workload.faults.filter(|faults| faults.per_second > 0.0) else {
            return Ok(None);
        };
        let (replicas, leader) = running.replicas();
        let wanted = |replica: &&ReplicaHandle| match faults.victim {
            SweepVictim::Leader => Some(replica.number) == leader,
            SweepVictim::Follower => Some(replica.number) != leader,
        };
        let victim = replicas.iter().find(wanted).cloned().context("there is no replica to be damaged")?;
        let mut link = Link::new(victim.admin.clone());
        let known = evidence(&mut link, 0)?.records.last().map_or(0, |record| record.number);
        let injector = Injector::start(&victim, faults, cell.workload, cell.seed())?;
        Ok(Some(PlacedFaults { injector, faults, victim, link, known }))
    }

    /// Ends it, and returns what it did.
    fn end(mut self, seen: &MeasuredCounts, before: &Usage, after: &Usage) -> anyhow::Result<RepairFigures> {
        let placed = self.injector.finish();
        let records = evidence(&mut self.link, self.known)?.records;
        let number = self.victim.number;
        let repaired = after.repaired(number).saturating_sub(before.repaired(number));
        Ok(repairs::of(self.faults, placed, repaired, &records, number, seen.timeline.as_ref()))
    }
}

/// What a replica knows of disagreements after record number `after`.
fn evidence(link: &mut Link, after: u64) -> anyhow::Result<EvidenceList> {
    link.ask(&AdminCommand::Evidence { after }, ANSWER).context("asking for evidence")
}

/// Every cell in its order: sides turn fastest, repetitions slowest, so that a run that is ended early has
/// whole repetitions.
fn plan<'d>(definition: &'d Definition, skipped: &[Skipped]) -> Vec<Cell<'d>> {
    let mut plan = Vec::new();
    for repetition in 1..=definition.repetitions {
        for workload in &definition.workloads {
            for &clients in &definition.clients {
                for side in &definition.sides {
                    let left_out = |one: &Skipped| {
                        one.side == *side && one.workload.as_ref().is_none_or(|name| *name == workload.name)
                    };
                    if !skipped.iter().any(left_out) {
                        plan.push(Cell { repetition, workload, clients, side });
                    }
                }
            }
        }
    }
    plan
}

/// Prints something that is no measurement.
fn print_note(text: &str) {
    use std::io::Write as _;
    // A user who closed stderr does not want the message.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// What processes and the wire have used so far.
#[derive(Debug)]
struct Usage {
    cpu: Vec<Cpu>,
    /// By kind, of each process.
    threads: Vec<BTreeMap<String, Cpu>>,
    /// Of a hardened program that is built to count them.
    cycles: Option<EventLoopCycles>,
    wire: Option<Wire>,
    /// The status reports of our replicas.
    statuses: Vec<Status>,
}

impl Usage {
    fn now(side: &Side, running: &Running) -> anyhow::Result<Self> {
        let cpu = running.processes.iter().map(|(_, pid)| cpu_of(*pid).unwrap_or_default()).collect();
        let threads = running.processes.iter().map(|(_, pid)| threads_of(*pid)).collect();
        let cycles = match (side, running.addresses.first()) {
            (Side::Hardened(_), Some(&address)) => {
                cycles_of(address).with_context(|| format!("asking {side} for its statistics"))?
            }
            _ => None,
        };
        let wire = Wire::now();
        let rows = once(running.replicas().0);
        let statuses = rows.into_iter().filter_map(|row| row.seen.ok()).collect();
        Ok(Usage { cpu, threads, cycles, wire, statuses })
    }

    /// The traffic between our replicas since `before`; none if there is only one replica.
    fn sent_since(&self, before: &Usage) -> Option<Sent> {
        if self.statuses.len() < 2 || self.statuses.len() != before.statuses.len() {
            return None;
        }
        let sum = |part: fn(&Sent) -> Traffic| {
            let pairs = self.statuses.iter().zip(&before.statuses);
            pairs.fold(Traffic::default(), |sum, (after, before)| {
                let (after, before) = (part(&after.sent), part(&before.sent));
                Traffic {
                    messages: sum.messages + after.messages.saturating_sub(before.messages),
                    bytes: sum.bytes + after.bytes.saturating_sub(before.bytes),
                }
            })
        };
        Some(Sent {
            order: sum(|sent| sent.order),
            check: sum(|sent| sent.check),
            repair: sum(|sent| sent.repair),
            other: sum(|sent| sent.other),
        })
    }

    /// Objects that `replica` had repaired so far.
    fn repaired(&self, replica: u8) -> u64 {
        self.statuses.iter().find(|status| status.replica == replica).map_or(0, |status| status.repairs)
    }

    fn cpu_since(&self, before: &Usage) -> Vec<Cpu> {
        self.cpu.iter().zip(&before.cpu).map(|(after, before)| after.since(*before)).collect()
    }

    fn threads_since(&self, before: &Usage) -> Vec<BTreeMap<String, Cpu>> {
        self.threads.iter().zip(&before.threads).map(|(after, before)| since(after, before)).collect()
    }
}

/// What the threads of a process have used since `before`.
fn since(after: &BTreeMap<String, Cpu>, before: &BTreeMap<String, Cpu>) -> BTreeMap<String, Cpu> {
    let used = |(name, cpu): (&String, &Cpu)| {
        (name.clone(), cpu.since(before.get(name).copied().unwrap_or_default()))
    };
    after.iter().map(used).collect()
}

fn figures(seen: &MeasuredCounts, span: Duration, own: Duration, before: &Usage, after: &Usage) -> Figures {
    let seconds = span.as_secs_f64();
    let reads = seen.hits + seen.misses;
    Figures {
        seconds,
        requests: seen.completed,
        latency: Latency::of(seen),
        miss_ratio: (reads > 0).then(|| seen.misses as f64 / reads as f64),
        errors: Errors {
            refused: seen.refused,
            wrong: seen.wrong,
            lost: seen.lost,
            broken: seen.broken,
            unanswered: seen.unanswered,
            words: seen.words.clone(),
        },
        processes: Vec::new(),
        generator_cpu_share: own.as_secs_f64() / seconds,
        wire: after.wire.zip(before.wire).map(|(after, before)| after.since(before)),
        client_bytes: seen.bytes_sent + seen.bytes_received,
        start_seconds: None,
        memaslap: None,
        cycles: after.cycles.zip(before.cycles).map(|(after, before)| after.since(before)),
        sent: after.sent_since(before),
        repairs: None,
        failure: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::parse;

    #[test]
    fn sides_turn_fastest_and_repetitions_slowest() {
        let text = "title = 't'\nabout = 'a'\nmodes = ['RD00', 'RDGX']\npeers = ['etcd']\nclients = [1, \
            2]\nseconds = 1.0\n\
                    repetitions = 2\n[[workload]]\nname = 'w'\nkey_bytes = 10\nvalue_bytes = 1\nmix = { \
                    incr = 1 }\nkeys = 5\n";
        let definition = parse("x", "x.toml", text).expect("right");
        let etcd = Skipped { side: Side::Etcd, workload: Some("w".into()), why: "no incr".into() };
        let reported: Vec<String> = plan(&definition, &[etcd])
            .iter()
            .map(|cell| format!("{}/{}/{}", cell.repetition, cell.clients, cell.side))
            .collect();
        assert_eq!(
            reported,
            ["1/1/RD00", "1/1/RDGX", "1/2/RD00", "1/2/RDGX", "2/1/RD00", "2/1/RDGX", "2/2/RD00", "2/2/RDGX"]
        );
    }
}
