//! The results of a run, as a file of their own kind: every measurement of every side, with machine and commit.

use std::path::{Path, PathBuf};

use report::results::{Origin, ResultFile, write};
use serde::{Deserialize, Serialize};

use super::figures::{ExecutorFigure, FigureScale};
use super::measure::{ExecutorFigures, ExecutorSpan};
use report::stats::Spread;

/// The kind of these results, and how the names of their files begin.
pub const KIND: &str = "executor";

/// One run of `bench executor`.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutorRun {
    /// What made it.
    pub origin: Origin,
    /// What was to be measured.
    pub settings: ExecutorSettings,
    /// All measurements, in their order.
    pub measurements: Vec<ExecutorMeasurement>,
}

/// What was to be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorSettings {
    /// Rounds: in each, every side is measured once.
    pub repetitions: usize,
    /// How long each side was measured.
    pub span: ExecutorSpan,
    /// Requests of a batch, and what else the command line decides for all sides.
    pub scale: FigureScale,
    /// Figures that this machine cannot measure, and why.
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
        let settings = ExecutorSettings { repetitions, span, scale, left_out: Vec::new() };
        ExecutorRun { origin: Origin::now(KIND), settings, measurements: Vec::new() }
    }

    /// Writes the file again.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let path = self.origin.path(folder, KIND);
        write(&path, &self.origin, &self.settings, &(), &self.measurements)?;
        Ok(path)
    }

    /// The run in a file.
    ///
    /// # Errors
    /// It is of another form.
    pub fn of_file(file: ResultFile) -> anyhow::Result<ExecutorRun> {
        let (origin, settings, (), measurements) = file.parts()?;
        Ok(ExecutorRun { origin, settings, measurements })
    }

    /// Whether it was measured with an optimised program, and with all the work that the sides' names tell.
    pub fn is_whole(&self) -> bool {
        self.origin.optimised && self.settings.scale.less_work == 1
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
