//! `crosscheck-lab bench report`: turns results into Markdown and into one HTML page that needs nothing else.

mod content;
mod failures;
mod sweeps;
mod tables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::cost::{self, Cost};
use super::executor::{self, ExecutorRun};
use super::results::{self, BenchRun};
use node::outcome::{CommandOutcome, CommandVerdict, misuse, say};
use report::results::{ResultFile, files, replace};
use report::{Block, Page};

/// Options of `bench report`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Results [default: of every definition in the folders the newest whole run]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folders of results, with commas between them
    #[arg(long, value_name = "DIRS", value_delimiter = ',', default_values = [results::FOLDER, results::RAW])]
    results: Vec<PathBuf>,
    /// Every run in the folders, also older ones of the same definition
    #[arg(long, conflicts_with = "files")]
    every: bool,
    /// Where report.md and report.html go
    #[arg(long, value_name = "DIR", default_value = results::RAW)]
    out: PathBuf,
}

impl Args {
    /// Of what is in this folder.
    pub fn of_folder(folder: &Path) -> Self {
        Args { files: Vec::new(), results: vec![folder.to_owned()], every: false, out: folder.to_owned() }
    }
}

/// Writes both reports.
pub fn run(args: &Args) -> CommandOutcome {
    let files: Vec<PathBuf> = match &args.files[..] {
        [] => files(&args.results)?.into_values().collect(),
        named => named.to_vec(),
    };
    if files.is_empty() {
        let folders: Vec<String> = args.results.iter().map(|folder| folder.display().to_string()).collect();
        return Err(misuse(format!(
            "there are no results in {}; `crosscheck-lab bench run --quick` makes some",
            folders.join(" and ")
        )));
    }
    let (mut runs, mut costs, mut executors) = (Vec::new(), Vec::new(), Vec::new());
    for path in &files {
        let file = ResultFile::read(path)?;
        match file.origin.kind.as_str() {
            cost::KIND => costs.push(Cost::of(file)?),
            executor::KIND => executors.push(ExecutorRun::of_file(file)?),
            results::KIND => runs.push(BenchRun::of(file)?),
            other => return Err(misuse(format!("{} is a result of kind {other}", path.display()))),
        }
    }
    if args.files.is_empty() && !args.every {
        runs = best(runs);
        costs.drain(..costs.len().saturating_sub(1));
        executors = best_of_each_figure(executors);
    }
    let page = content::of(&runs, &costs, &executors);
    for (name, text) in [("report.md", page.markdown()), ("report.html", page.html())] {
        let path = args.out.join(name);
        replace(&path, text.as_bytes())?;
        say(&path.display().to_string())?;
    }
    Ok(CommandVerdict::Holds)
}

/// One run of each definition: the newest one with exactly the measurements of the definition, or the newest if there
/// is none.
fn best(runs: Vec<BenchRun>) -> Vec<BenchRun> {
    let rank = |run: &BenchRun| (run.is_as_defined(), run.origin.started_s);
    let mut found: BTreeMap<String, BenchRun> = BTreeMap::new();
    for run in runs {
        match found.get(&run.settings.definition.name) {
            Some(other) if rank(other) > rank(&run) => {}
            _ => drop(found.insert(run.settings.definition.name.clone(), run)),
        }
    }
    found.into_values().collect()
}

/// The runs of executors, each without the figures that a better one has: a whole one, or else a newer one.
fn best_of_each_figure(mut runs: Vec<ExecutorRun>) -> Vec<ExecutorRun> {
    runs.sort_by_key(|run| (run.is_whole(), run.origin.started_s));
    let mut found: Vec<ExecutorRun> = Vec::new();
    for mut run in runs.into_iter().rev() {
        run.measurements.retain(|one| !found.iter().any(|better| better.has().contains(&one.figure)));
        if !run.measurements.is_empty() {
            found.insert(0, run);
        }
    }
    found
}

/// The sides of a run and their ratios, for the terminal.
pub fn short(run: &BenchRun) -> Page {
    let mut page = Page::new("");
    for workload in &run.settings.definition.workloads {
        page.push(tables::sides(run, &[workload])).extend(tables::ratios(run, &[workload]));
    }
    page.extend(content::doubts(run).into_iter().map(Block::Warning));
    page
}

/// Both forms of the report of a run of executors.
#[cfg(test)]
pub fn texts_of_executor(run: &ExecutorRun) -> [String; 2] {
    let page = content::of(&[], &[], std::slice::from_ref(run));
    [page.markdown(), page.html()]
}

/// Both forms of the report of some runs.
#[cfg(test)]
pub fn texts(runs: &[BenchRun]) -> [String; 2] {
    let page = content::of(runs, &[], &[]);
    [page.markdown(), page.html()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::parse;
    use crate::executor::{ExecutorFigure, ExecutorFigures, ExecutorMeasurement, ExecutorSpan, FigureScale};
    use ::report::results::Origin;

    fn run(name: &str, started_s: u64, changed: &[&str]) -> BenchRun {
        let text = "title = 't'\nabout = 'a'\nmodes = ['RD00']\nclients = [1]\nseconds = 1.0\nrepetitions = 1\n\
                    [[workload]]\nname = 'w'\nkey_bytes = 10\nvalue_bytes = 1\nmix = { get = 1 }\nkeys = 5\n";
        let definition = parse(name, "x.toml", text).expect("right");
        let changed = changed.iter().map(|what| (*what).to_owned()).collect();
        let run = BenchRun::begin(definition, changed, BTreeMap::new());
        let measured = crate::results::Measurement {
            repetition: 1,
            workload: "w".into(),
            clients: 1,
            side: "RD00".parse().expect("a side"),
            figures: None,
            failed: None,
        };
        let origin = Origin { started_s, optimised: true, ..run.origin };
        BenchRun { origin, measurements: vec![measured], ..run }
    }

    #[test]
    fn of_each_figure_of_executors_a_whole_run_is_shown_or_else_the_newest() {
        let of = |started_s, is_whole, figures: &[ExecutorFigure]| {
            let measurement = |figure: &ExecutorFigure| ExecutorMeasurement {
                figure: *figure,
                side: "s".into(),
                repetition: 1,
                figures: ExecutorFigures::default(),
            };
            let scale = FigureScale { batch: 100, less_work: if is_whole { 1 } else { 10 }, any_order: true };
            let run = ExecutorRun::begin(1, ExecutorSpan { seconds: 0.0, batches: 1, rollbacks: 1 }, scale);
            let measurements = figures.iter().map(measurement).collect();
            let origin = Origin { started_s, optimised: true, ..run.origin };
            ExecutorRun { origin, measurements, ..run }
        };
        let [fig4, fold, rollback] = [ExecutorFigure::Fig4, ExecutorFigure::Fold, ExecutorFigure::Rollback];
        let runs = vec![
            of(1, true, &[fig4, rollback]),
            of(2, true, &[rollback]),
            of(3, false, &[fig4, fold]),
            of(4, false, &[fold]),
        ];
        let reported: Vec<_> =
            best_of_each_figure(runs).iter().map(|run| (run.origin.started_s, run.has())).collect();
        assert_eq!(reported, [(4, vec![fold]), (1, vec![fig4]), (2, vec![rollback])]);
    }

    #[test]
    fn of_each_definition_the_newest_run_without_changes_is_shown() {
        let mut ended_early = run("b", 9, &[]);
        ended_early.measurements.clear();
        let runs = vec![
            run("a", 1, &[]),
            run("a", 2, &[]),
            run("a", 3, &["seconds = 1"]),
            run("b", 5, &["seconds = 1"]),
            run("b", 4, &[]),
            ended_early,
            run("c", 7, &["seconds = 1"]),
        ];
        let reported: Vec<(String, u64)> =
            best(runs).into_iter().map(|run| (run.settings.definition.name, run.origin.started_s)).collect();
        assert_eq!(reported, [("a".to_owned(), 2), ("b".to_owned(), 4), ("c".to_owned(), 7)]);
    }
}
