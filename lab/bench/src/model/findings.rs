//! What the model says: its comparison with the measured sides, and executors on more cores than were measured.

use serde::Serialize;

use super::inputs::ModelInputs;
use super::simulate::{ModelCase, ModelPart};
use crate::executor::{ExecutorFigure, ExecutorRun, ExecutorSide};

/// The model may be so far from a measured side, as a share of what was measured.
pub const TOLERANCE: f64 = 0.1;
/// Workers in the model, on as many cores.
const WORKERS: [usize; 6] = [1, 2, 4, 8, 12, 16];
/// Probabilities of a conflict, of two requests of a batch.
const CONFLICTS: [f64; 4] = [0.0, 0.001, 0.01, 0.1];
/// Work of a request in the tables of conflicts: the paper's, in microseconds.
const WORK_US: u32 = 1_000;
/// From a token to the agreement on it, in milliseconds.
const TOKEN_MS: [f64; 5] = [0.0, 0.4, 2.0, 10.0, 50.0];

/// All that `bench model eve` says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EveModel {
    /// Always "model": no figure here but those called measured was measured.
    pub kind: &'static str,
    /// The results file's commit.
    pub commit: String,
    /// Cores of the machine that was measured.
    pub measured_cores: usize,
    /// Whether times vary as measured; otherwise each is its mean, and barriers take no time.
    pub has_distributions: bool,
    /// What the draws follow from.
    pub seed: u64,
    /// Parts that were left out.
    pub without: Vec<ModelPart>,
    /// Model and measurement, side by side.
    pub validation: Vec<ValidatedSide>,
    /// Throughput by work of a request and workers.
    pub by_work: Vec<ModelRow>,
    /// Throughput by conflicts and workers, at 1 ms per request.
    pub by_conflicts: Vec<ModelRow>,
    /// Throughput by the time that an agreement takes, with the most workers and the least work.
    pub by_token: Vec<ModelRow>,
}

/// The model against a measured side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValidatedSide {
    /// The side.
    pub side: String,
    /// Requests per second in the model.
    pub model: f64,
    /// Requests per second, median of the measured rounds.
    pub measured: f64,
    /// Lowest round.
    pub measured_min: f64,
    /// Highest round.
    pub measured_max: f64,
    /// Of the model, as a share of what was measured.
    pub difference: f64,
    /// Whether that is within [`TOLERANCE`].
    pub holds: bool,
}

/// One executor in the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelRow {
    /// What distinguishes it.
    pub name: String,
    /// Workers, and cores.
    pub workers: usize,
    /// Parallel batches per batch.
    pub parallel_batches: f64,
    /// Requests per second.
    pub throughput: f64,
    /// That, divided by the first row's of the same name.
    pub speed_up: f64,
}

impl EveModel {
    /// Simulates everything.
    ///
    /// # Errors
    /// The file lacks a side that gives times.
    pub fn of(run: &ExecutorRun, without: &[ModelPart], seed: u64) -> anyhow::Result<EveModel> {
        let inputs = ModelInputs::new(run, without);
        Ok(EveModel {
            kind: "model",
            commit: run.origin.commit.id.clone(),
            measured_cores: run.origin.machine.cores,
            has_distributions: inputs.has_distributions(),
            seed,
            without: without.to_vec(),
            validation: validation(&inputs, seed)?,
            by_work: by_work(&inputs, seed)?,
            by_conflicts: by_conflicts(&inputs, seed)?,
            by_token: by_token(&inputs, seed)?,
        })
    }

    /// Whether the model is near enough to every measured side.
    pub fn holds(&self) -> bool {
        !self.validation.is_empty() && self.validation.iter().all(|side| side.holds)
    }
}

fn validation(inputs: &ModelInputs<'_>, seed: u64) -> anyhow::Result<Vec<ValidatedSide>> {
    let judged = inputs.judged()?;
    let validated = judged.into_iter().filter_map(|side| {
        let model = side.case.throughput(seed)?;
        let measured = side.measured;
        let difference = model / measured.median - 1.0;
        Some(ValidatedSide {
            side: side.name,
            model: rounded(model),
            measured: rounded(measured.median),
            measured_min: rounded(measured.min),
            measured_max: rounded(measured.max),
            difference,
            holds: difference.abs() <= TOLERANCE,
        })
    });
    Ok(validated.collect())
}

fn by_work(inputs: &ModelInputs<'_>, seed: u64) -> anyhow::Result<Vec<ModelRow>> {
    let mut rows = Vec::new();
    for side in inputs.burning() {
        let name = side.name.split(',').next().unwrap_or(&side.name);
        rows.extend(by_workers(inputs, side, name, seed)?);
    }
    Ok(rows)
}

fn by_conflicts(inputs: &ModelInputs<'_>, seed: u64) -> anyhow::Result<Vec<ModelRow>> {
    let mut rows = Vec::new();
    for side in inputs.burning().filter(|side| side.case.setup.work.burn_us == WORK_US) {
        for conflicts in CONFLICTS {
            let mut side = side.clone();
            side.case.shape.conflicts = conflicts;
            rows.extend(by_workers(inputs, &side, &format!("{} % conflicts", conflicts * 100.0), seed)?);
        }
    }
    Ok(rows)
}

/// A side with each number of workers, on as many cores.
fn by_workers(
    inputs: &ModelInputs<'_>,
    side: &ExecutorSide,
    name: &str,
    seed: u64,
) -> anyhow::Result<Vec<ModelRow>> {
    let mut first = None;
    let mut rows = Vec::new();
    for workers in WORKERS {
        let mut case = side.case;
        case.setup.workers = workers;
        let case = inputs.case(&case, workers, ExecutorFigure::Fig4)?;
        rows.extend(row(name.to_owned(), &case, &mut first, seed));
    }
    Ok(rows)
}

fn by_token(inputs: &ModelInputs<'_>, seed: u64) -> anyhow::Result<Vec<ModelRow>> {
    let Some(side) = inputs.burning().last() else { return Ok(Vec::new()) };
    let mut first = None;
    let mut rows = Vec::new();
    for ms in TOKEN_MS {
        let mut case = side.case;
        case.setup.workers = WORKERS[WORKERS.len() - 1];
        let mut case = inputs.case(&case, case.setup.workers, ExecutorFigure::Fig4)?;
        case.ahead = verify::limits::WINDOW;
        case.token_ns = (ms * 1e6) as u64;
        rows.extend(row(format!("{ms} ms"), &case, &mut first, seed));
    }
    Ok(rows)
}

/// None if the log is empty.
fn row(name: String, case: &ModelCase, first: &mut Option<f64>, seed: u64) -> Option<ModelRow> {
    let throughput = case.throughput(seed)?;
    let parallel: usize = case.plans.iter().map(Vec::len).sum();
    Some(ModelRow {
        name,
        workers: case.workers,
        parallel_batches: parallel as f64 / case.plans.len() as f64,
        throughput: rounded(throughput),
        speed_up: throughput / *first.get_or_insert(throughput),
    })
}

/// To a tenth of a request.
fn rounded(throughput: f64) -> f64 {
    (throughput * 10.0).round() / 10.0
}
