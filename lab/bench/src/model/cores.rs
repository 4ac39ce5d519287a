//! `bench model cores`: what a group would serve with more cores per replica than were measured, from the processor
//! time that each kind of its threads took per request.

use ::report::{Block, Page, Table};
use node::view::grouped;
use serde::Serialize;

use super::findings::TOLERANCE;
use crate::cells::BenchCell;
use crate::definition::{Definition, Side};
use crate::measure::Cpu;
use crate::results::{BenchRun, Figures};

/// Cores of each replica in the model.
const CORES: [usize; 5] = [1, 2, 4, 8, 16];

/// Processor time per request of the group, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StageTimes {
    /// Of the order thread of the replica where it takes most: every replica orders every request.
    pub order_us: f64,
    /// Of the workers of a replica; none with a single worker, which the order thread runs.
    pub worker_us: f64,
    /// Of the client threads of all replicas together: a request passes those of one.
    pub clients_us: f64,
    /// Of all other threads, together.
    pub other_us: f64,
    /// Of the generator.
    pub generator_us: f64,
    /// The number of replicas.
    pub replicas: usize,
}

/// One side under one workload, measured with some workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Mode and workload.
    pub name: String,
    /// Workers of each replica.
    pub workers: usize,
    /// Requests per second that were measured.
    pub throughput: f64,
    /// Its times.
    pub times: StageTimes,
}

/// A group in the model: each replica has a machine of its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// Cores of each replica.
    pub cores: usize,
    /// Its workers, chosen for the highest throughput.
    pub workers: usize,
    /// Its client threads, chosen likewise.
    pub client_threads: usize,
    /// Requests per second of the group.
    pub throughput: f64,
    /// What limits it.
    pub limit: &'static str,
}

/// The times of the second file's workers against a measurement with another number of workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validated {
    /// Mode and workload.
    pub name: String,
    /// Workers of the measurement that is compared.
    pub workers: usize,
    /// Requests per second in the model.
    pub model: f64,
    /// Requests per second that were measured.
    pub measured: f64,
}

/// All that `bench model cores` says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CoresModel {
    /// Always "model".
    pub kind: &'static str,
    /// Where the times are from: measured with several workers.
    pub from: Vec<Measured>,
    /// Model and measurement.
    pub validation: Vec<Validated>,
    /// By mode and workload.
    pub predicted: Vec<(String, Vec<Predicted>)>,
}

impl StageTimes {
    fn of(figures: &Figures) -> Option<Self> {
        let requests = figures.requests as f64;
        let us = |seconds: f64| seconds * 1e6 / requests;
        let spent = |cpu: &Cpu| us(cpu.user_s + cpu.system_s);
        let mut times = StageTimes {
            replicas: figures.processes.len(),
            generator_us: us(figures.generator_cpu_share * figures.seconds),
            ..StageTimes::default()
        };
        for process in &figures.processes {
            for (kind, cpu) in &process.threads {
                match kind.as_str() {
                    "order" => times.order_us = times.order_us.max(spent(cpu)),
                    "worker" => times.worker_us += spent(cpu) / figures.processes.len() as f64,
                    "clients" => times.clients_us += spent(cpu),
                    _ => times.other_us += spent(cpu),
                }
            }
        }
        (requests > 0.0 && times.order_us > 0.0).then_some(times)
    }

    /// What each replica spends on a request of the group, on average.
    fn of_replica_us(&self) -> f64 {
        self.order_us + self.worker_us + (self.clients_us + self.other_us) / self.replicas as f64
    }

    /// A group whose replicas have a machine with so many cores each.
    fn predict(&self, cores: usize) -> Predicted {
        let of = |workers: usize, client_threads: usize| {
            // A single worker runs on the order thread.
            let (order, workers_us) = if workers == 1 {
                (self.order_us + self.worker_us, 0.0)
            } else {
                (self.order_us, self.worker_us)
            };
            let stages = [
                ("all cores", self.of_replica_us() / cores as f64),
                ("order thread", order),
                ("workers", workers_us / workers as f64),
                ("client threads", self.clients_us / self.replicas as f64 / client_threads as f64),
            ];
            let most = stages.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
            let (limit, us) = most.unwrap_or(("nothing", f64::INFINITY));
            Predicted { cores, workers, client_threads, throughput: 1e6 / us, limit }
        };
        // A single worker needs no core of its own; several leave at least one to the client threads.
        let several = (2..cores.saturating_sub(1)).map(|workers| of(workers, cores - 1 - workers));
        let one = of(1, cores.saturating_sub(1).max(1));
        several.fold(one, |best, split| if split.throughput > best.throughput { split } else { best })
    }

    /// All replicas and the generator on one machine that they saturate.
    fn together(&self, cores: usize) -> f64 {
        let replicas = self.replicas as f64 * self.of_replica_us();
        cores as f64 * 1e6 / (replicas + self.generator_us)
    }
}

impl CoresModel {
    /// The model of `several`, measured with several workers, compared with `one`, measured with one.
    ///
    /// # Errors
    /// Neither has sides whose threads were measured.
    pub fn of(several: &BenchRun, one: &BenchRun) -> Result<Self, String> {
        let (from, single) = (measured(several), measured(one));
        if from.is_empty() || several.settings.definition.workers < 2 || one.settings.definition.workers != 1
        {
            return Err(
                "the first file must be of at least two workers and the second of one, both with the times \
                of threads: `bench run two-workers`, and the same with `--workers 1`"
                    .into(),
            );
        }
        let cores = several.origin.machine.cores;
        let mut validation = Vec::new();
        for side in &from {
            for other in single.iter().chain(&from).filter(|other| other.name == side.name) {
                validation.push(Validated {
                    name: side.name.clone(),
                    workers: other.workers,
                    model: side.times.together(cores),
                    measured: other.throughput,
                });
            }
        }
        let of = |side: &Measured| (side.name.clone(), CORES.map(|cores| side.times.predict(cores)).to_vec());
        let predicted = from.iter().map(of).collect();
        Ok(CoresModel { kind: "model", from, validation, predicted })
    }

    /// Whether the model is within the tolerance of every measurement.
    pub fn holds(&self) -> bool {
        self.validation.iter().all(Validated::holds)
    }

    /// The model as a page.
    pub fn page(&self) -> Page {
        let us = |us: f64| format!("{us:.2}");
        let times = self.from.iter().map(|side| {
            let StageTimes { order_us, worker_us, clients_us, other_us, generator_us, .. } = side.times;
            let times = [order_us, worker_us, clients_us, other_us, generator_us];
            [vec![side.name.clone()], times.map(us).to_vec()].concat()
        });
        let head = [
            "",
            "Order thread, slowest",
            "Workers of a replica",
            "Client threads, all",
            "Others, all",
            "Generator",
        ];
        let checks = self.validation.iter().map(|one| {
            let (model, measured) = (grouped(one.model as u64), grouped(one.measured as u64));
            let difference = format!("{:+.1} %", one.difference() * 100.0);
            vec![one.name.clone(), one.workers.to_string(), model, measured, difference]
        });
        let mut rows = Vec::new();
        for (name, predicted) in &self.predicted {
            rows.extend(predicted.iter().map(|one| {
                let Predicted { cores, workers, client_threads, throughput, limit } = *one;
                let numbers = [cores, workers, client_threads].map(|number| number.to_string());
                [vec![name.clone()], numbers.to_vec(), vec![grouped(throughput as u64), limit.into()]]
                    .concat()
            }));
        }
        let mut page = Page::new("");
        page.extend([
            Block::Heading(2, "Model: more cores per replica".into()),
            Block::Text(ABOUT.into()),
            Block::Table(Table::new("Measured: processor time per request, µs", head.to_vec()).rows(times)),
            Block::Table(
                Table::new(
                    "All replicas and the generator on the measured machine",
                    vec!["", "Workers", "Model: requests/s", "Measured", "Difference"],
                )
                .rows(checks),
            ),
            Block::Table(
                Table::new(
                    "Model: each replica on a machine of its own",
                    vec!["", "Cores", "Workers", "Client threads", "Requests/s", "Limit"],
                )
                .rows(rows),
            ),
        ]);
        page
    }
}

/// What every reader needs to interpret the figures.
const ABOUT: &str = "Nothing here was measured except what says so. A stage is as fast as its threads: the highest \
    throughput is that at which the slowest stage is busy all the time. Cores share neither caches nor memory \
    bandwidth in it, no thread waits for a lock, and the network costs what it did on the loopback device.";

impl Validated {
    fn difference(&self) -> f64 {
        self.model / self.measured - 1.0
    }

    fn holds(&self) -> bool {
        self.difference().abs() <= TOLERANCE
    }
}

/// Our sides whose threads were measured, with the most clients: the median repetition of each workload.
fn measured(run: &BenchRun) -> Vec<Measured> {
    let Definition { clients, workloads, workers, .. } = &run.settings.definition;
    let most = clients.iter().max().copied().unwrap_or(0);
    let mut cells = BenchCell::measured(run, &workloads.iter().collect::<Vec<_>>());
    cells.retain(|cell| cell.clients == most && matches!(cell.side, Side::Ours(_)));
    let of = |cell: &BenchCell<'_>| {
        let mut figures: Vec<&Figures> = cell.figures().collect();
        figures.sort_by(|one, other| one.throughput().total_cmp(&other.throughput()));
        let median = figures.get(figures.len() / 2)?;
        let name = format!("{} {}", cell.side, cell.workload.name);
        let (throughput, times) = (median.throughput(), StageTimes::of(median)?);
        Some(Measured { name, workers: *workers, throughput, times })
    };
    cells.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: StageTimes = StageTimes {
        order_us: 3.0,
        worker_us: 2.0,
        clients_us: 6.0,
        other_us: 0.0,
        generator_us: 1.0,
        replicas: 3,
    };

    #[test]
    fn the_slowest_stage_limits_and_cores_are_given_to_it() {
        let near =
            |one: Predicted, throughput: f64| assert!((one.throughput - throughput).abs() < 1.0, "{one:?}");
        near(TIMES.predict(1), 1e6 / 7.0);
        near(TIMES.predict(2), 1e6 / 5.0);
        let four = TIMES.predict(4);
        near(four, 1e6 / 3.0);
        assert_eq!((four.workers, four.limit), (2, "order thread"));
        near(TIMES.predict(16), 1e6 / 3.0);
        let slow_handlers = StageTimes { worker_us: 60.0, ..TIMES };
        let sixteen = slow_handlers.predict(16);
        assert_eq!((sixteen.workers, sixteen.client_threads), (14, 1));
        near(sixteen, 14e6 / 60.0);
    }

    #[test]
    fn on_one_machine_all_of_it_is_shared() {
        assert!((TIMES.together(2) - 2e6 / 22.0).abs() < 1.0);
    }
}
