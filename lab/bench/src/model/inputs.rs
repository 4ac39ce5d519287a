//! What the model takes from a results file of `bench executor`, and the sides of that file that judge it.
//!
//! Times of requests come from sides with one worker. What one worker cannot show, barriers and the processor time of a
//! request that sleeps, comes from the side with four waiting workers. Neither says anything about the sides that judge
//! the model beyond one worker: two burning workers, sixteen waiting ones, and conflicts.

use anyhow::Context;
use node::outcome::misuse;
use wire::derive;

use super::sample::MeasuredTimes;
use super::simulate::{ModelCase, ModelPart, ModelTimes};
use crate::executor::{
    AHEAD, ExecutorCase, ExecutorFigure, ExecutorFigures, ExecutorRun, ExecutorSide, RequestWork, StageTimes,
};
use report::stats::Spread;

/// Workers of the side from which barriers are taken.
const BARRIER_WORKERS: usize = 4;
/// Workers of the waiting sides that judge the model.
const MOST_WORKERS: usize = 16;

/// A side that was measured, and what the model has to say about it.
#[derive(Clone, Debug)]
pub struct JudgedSide {
    /// Its figure and name.
    pub name: String,
    /// Throughput of all rounds.
    pub measured: Spread,
    /// The same side in the model.
    pub case: ModelCase,
}

/// A results file as the model reads it.
#[derive(Clone, Debug)]
pub struct ModelInputs<'r> {
    run: &'r ExecutorRun,
    /// The sides of Fig. 4: all that inputs are taken from.
    sides: Vec<ExecutorSide>,
    without: Vec<ModelPart>,
}

impl<'r> ModelInputs<'r> {
    /// Of a results file, for a model without some of its parts.
    pub fn new(run: &'r ExecutorRun, without: &[ModelPart]) -> ModelInputs<'r> {
        let sides = ExecutorFigure::Fig4.plan(run.settings.scale).sides;
        ModelInputs { run, sides, without: without.to_vec() }
    }

    /// The sides of the file that judge the model: one and two burning workers, 16 waiting ones, and 16 waiting ones
    /// with conflicts.
    ///
    /// # Errors
    /// The file lacks a side that gives times.
    pub fn judged(&self) -> anyhow::Result<Vec<JudgedSide>> {
        let of_fig4 = self.sides.iter().filter(|side| {
            let setup = side.case.setup;
            setup.work.burn_us > 0 || setup.workers == MOST_WORKERS
        });
        let mut judged: Vec<JudgedSide> = of_fig4
            .filter_map(|side| self.side(ExecutorFigure::Fig4, side).transpose())
            .collect::<Result<_, _>>()?;
        for side in &ExecutorFigure::Fig7.plan(self.run.settings.scale).sides {
            let is_accurate =
                side.case.setup.errors.imagines == 0.0 && side.case.setup.workers == MOST_WORKERS;
            if is_accurate && let Some(one) = self.side(ExecutorFigure::Fig7, side)? {
                judged.push(one);
            }
        }
        Ok(judged)
    }

    /// None if the side was not measured.
    fn side(&self, figure: ExecutorFigure, side: &ExecutorSide) -> anyhow::Result<Option<JudgedSide>> {
        let Some(measured) = self.run.spread(figure, &side.name, |one| Some(one.throughput())) else {
            return Ok(None);
        };
        let case = self.case(&side.case, self.run.origin.machine.cores, figure)?;
        Ok(Some(JudgedSide { name: format!("{}: {}", figure.name(), side.name), measured, case }))
    }

    /// A side of an executor on so many cores.
    ///
    /// # Errors
    /// The file lacks a side that gives times.
    pub fn case(
        &self,
        case: &ExecutorCase,
        cores: usize,
        figure: ExecutorFigure,
    ) -> anyhow::Result<ModelCase> {
        Ok(ModelCase {
            workers: case.setup.workers,
            cores,
            plans: case.parallel_batches(derive(1, figure as u64))?,
            times: self.times(case.setup.work)?,
            ahead: AHEAD,
            token_ns: 0,
            without: self.without.clone(),
        })
    }

    /// The cases of Fig. 4 with one burning worker: one for each work of a request.
    pub fn burning(&self) -> impl Iterator<Item = &ExecutorSide> {
        self.sides.iter().filter(|side| side.case.setup.work.burn_us > 0 && side.case.setup.workers == 1)
    }

    /// Whether the file has distributions of times, and not only their means.
    pub fn has_distributions(&self) -> bool {
        has_distributions(self.run)
    }

    /// Times of requests with this work.
    fn times(&self, work: RequestWork) -> anyhow::Result<ModelTimes> {
        let alone = self.of(work, 1)?;
        let waits = RequestWork { burn_us: 0, hold_us: work.burn_us.max(work.hold_us) };
        let several = self.of(waits, BARRIER_WORKERS)?;
        let is_sleeping = work.burn_us == 0;
        if !self.has_distributions() {
            return Ok(self.means(&alone, &several, is_sleeping));
        }
        let times = |rounds: &[&ExecutorFigures], part: fn(&StageTimes) -> &[f64]| {
            MeasuredTimes::of_rounds(rounds.iter().filter_map(|one| one.times.as_ref()).map(part))
        };
        Ok(ModelTimes {
            request: times(&alone, |times| &times.request),
            busy: is_sleeping.then(|| times(&several, |times| &times.busy)),
            between: times(&alone, |times| &times.between),
            opening: times(&several, |times| &times.opening),
            waking: times(&several, |times| &times.waking),
            folding: times(&alone, |times| &times.folding),
            mixing: mean(&alone, |one| one.mixing_us),
        })
    }

    /// The same from a file of an older program, without barriers and steps: it did not measure them.
    fn means(
        &self,
        alone: &[&ExecutorFigures],
        several: &[&ExecutorFigures],
        is_sleeping: bool,
    ) -> ModelTimes {
        let batch = self.run.settings.scale.batch.max(1) as f64;
        let busy = mean(several, |one| one.processor_s * 1e6 / one.requests.max(1) as f64);
        ModelTimes {
            request: mean(alone, |one| one.handling_us / batch),
            busy: is_sleeping.then_some(busy),
            folding: mean(alone, |one| one.folding_us),
            mixing: mean(alone, |one| one.mixing_us),
            ..ModelTimes::default()
        }
    }

    /// All rounds of the side of Fig. 4 with this work and so many workers.
    fn of(&self, work: RequestWork, workers: usize) -> anyhow::Result<Vec<&ExecutorFigures>> {
        let is_it = |side: &&ExecutorSide| side.case.setup.work == work && side.case.setup.workers == workers;
        let side = self.sides.iter().find(is_it).context("no side of Fig. 4 has this work")?;
        let rounds: Vec<_> =
            self.run.of(ExecutorFigure::Fig4, &side.name).map(|(_, figures)| figures).collect();
        if rounds.is_empty() {
            let name = &side.name;
            return Err(misuse(format!(
                "the file has no measurement of fig4: {name}; measure it: `crosscheck-lab bench executor fig4 fig7`"
            )));
        }
        Ok(rounds)
    }
}

/// Whether Fig. 4 was measured by a program that keeps times of single requests.
pub fn has_distributions(run: &ExecutorRun) -> bool {
    run.measurements.iter().any(|one| one.figure == ExecutorFigure::Fig4 && one.figures.times.is_some())
}

/// A time that is always the median of the rounds' means.
fn mean(rounds: &[&ExecutorFigures], us: impl Fn(&ExecutorFigures) -> f64) -> MeasuredTimes {
    let each: Vec<f64> = rounds.iter().map(|one| us(one)).collect();
    Spread::of(&each).map_or(MeasuredTimes::default(), |spread| MeasuredTimes::of_mean(spread.median))
}
