//! The results of a run, as a file of their own kind: every measurement of every side, with machine and commit.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::figures::{ExecutorFigure, FigureScale};
use super::measure::{ExecutorFigures, ExecutorSpan};
use crate::measure::{Commit, Machine};
use crate::results::stamp;
use crate::stats::Spread;
use report::json_rows;

/// Incremented when old files can no longer be read.
const FORMAT: u32 = 1;

/// One run of `bench executor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorRun {
    /// Distinguishes this format from that of other results.
    pub executor_format: u32,
    /// When it began, in seconds since 1970.
    pub started_s: u64,
    /// The machine.
    pub machine: Machine,
    /// The commit that was measured.
    pub commit: Commit,
    /// Whether the binary was built with optimisation.
    pub optimised: bool,
    /// Rounds: in each, every side is measured once.
    pub repetitions: usize,
    /// How long each side was measured.
    pub span: ExecutorSpan,
    /// Requests of a batch, and what else the command line decides for all sides.
    pub scale: FigureScale,
    /// All measurements, in their order.
    pub measurements: Vec<ExecutorMeasurement>,
    /// Figures that this machine cannot measure, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<(ExecutorFigure, String)>,
}

/// One side of a figure, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorMeasurement {
    /// The figure.
    pub figure: ExecutorFigure,
    /// The side's name.
    pub side: String,
    /// The round, from 1.
    pub repetition: usize,
    /// What was measured.
    #[serde(flatten)]
    pub figures: ExecutorFigures,
}

impl ExecutorRun {
    /// An empty run, beginning now.
    pub fn begin(repetitions: usize, span: ExecutorSpan, scale: FigureScale) -> ExecutorRun {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        ExecutorRun {
            executor_format: FORMAT,
            started_s: now.map_or(0, |since| since.as_secs()),
            machine: Machine::this(),
            commit: Commit::here(),
            optimised: !cfg!(debug_assertions),
            repetitions,
            span,
            scale,
            measurements: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Writes the file again.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let path = folder.join(format!("executor-{}.json", stamp(self.started_s)));
        json_rows::write(&path, &json_rows::layout(self, 2)?)?;
        Ok(path)
    }

    /// Reads a file; none when it is the result of another command.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> anyhow::Result<Option<ExecutorRun>> {
        let run = serde_json::from_slice::<ExecutorRun>(&json_rows::read(path)?).ok();
        Ok(run.filter(|run| run.executor_format == FORMAT))
    }

    /// Whether it was measured with an optimised program, and with all the work that the sides' names tell.
    pub fn is_whole(&self) -> bool {
        self.optimised && self.scale.less_work == 1
    }

    /// The figures that it has, in their order.
    pub fn has(&self) -> Vec<ExecutorFigure> {
        let mut figures: Vec<ExecutorFigure> = self.measurements.iter().map(|one| one.figure).collect();
        figures.sort_unstable();
        figures.dedup();
        figures
    }

    /// A value of a side in all rounds.
    pub fn spread(
        &self,
        figure: ExecutorFigure,
        side: &str,
        value: impl Fn(&ExecutorFigures) -> Option<f64>,
    ) -> Option<Spread> {
        let values: Vec<f64> = self.of(figure, side).filter_map(|(_, figures)| value(figures)).collect();
        Spread::of(&values)
    }

    /// What the figure compares of a side, throughput or bytes per request, divided by another's, round by round.
    pub fn ratio(&self, figure: ExecutorFigure, of: &str, to: &str) -> Option<Spread> {
        let value = |figures: &ExecutorFigures| {
            if figure.compares_bytes() { figures.bytes_per_request() } else { Some(figures.throughput()) }
        };
        let values: Vec<f64> = self
            .of(figure, of)
            .filter_map(|(round, figures)| {
                let (_, other) = self.of(figure, to).find(|(number, _)| *number == round)?;
                Some(value(figures)? / value(other)?)
            })
            .collect();
        Spread::of(&values)
    }

    /// The rounds of a side, with their numbers.
    pub fn of<'r>(
        &'r self,
        figure: ExecutorFigure,
        side: &'r str,
    ) -> impl Iterator<Item = (usize, &'r ExecutorFigures)> {
        let is_it = move |one: &&ExecutorMeasurement| one.figure == figure && one.side == side;
        self.measurements.iter().filter(is_it).map(|one| (one.repetition, &one.figures))
    }
}
