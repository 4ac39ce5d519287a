//! `crosscheck bench report`: turns results into Markdown and into one HTML page that needs nothing else.

mod beside;
mod content;
mod html;
mod markdown;
mod plot;
mod sweeps;
mod tables;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::cost::Cost;
use super::results::{self, Run};
use crate::outcome::{Outcome, Verdict, misuse, say};
pub use html::escaped;

/// Options of `bench report`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Result files [default: of every definition in the results' folder the newest whole run]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder of the results
    #[arg(long, value_name = "DIR", default_value = results::FOLDER)]
    results: PathBuf,
    /// Every run in the folder, also older ones of the same definition
    #[arg(long, conflicts_with = "files")]
    every: bool,
    /// Where report.md and report.html go [default: the results' folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Args {
    /// Of what is in this folder.
    pub fn of_folder(folder: &Path) -> Self {
        Args { files: Vec::new(), results: folder.to_owned(), every: false, out: None }
    }
}

/// Writes both reports.
pub fn run(args: &Args) -> Outcome {
    let files = if args.files.is_empty() { files(&args.results)? } else { args.files.clone() };
    let (mut runs, mut costs) = (Vec::new(), Vec::new());
    for file in &files {
        match Cost::read(file)? {
            Some(cost) => costs.push(cost),
            None => runs.push(Run::read(file)?),
        }
    }
    if args.files.is_empty() && !args.every {
        runs = best(runs);
        costs.drain(..costs.len().saturating_sub(1));
    }
    let blocks = content::of(&runs, &costs);
    let out = args.out.as_ref().unwrap_or(&args.results);
    fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
    for (name, text) in [("report.md", markdown::render(&blocks)), ("report.html", html::render(&blocks))] {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        say(&path.display().to_string())?;
    }
    Ok(Verdict::Holds)
}

/// Every result in the folder, by name: names end with the time, so that of each definition the last is the newest.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let none = || {
        misuse(format!("{} holds no results; `crosscheck bench run --quick` makes some", folder.display()))
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|_| none())? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() { Err(none()) } else { Ok(found) }
}

/// One run of each definition: the newest one that measured what the definition says, or the newest where none did.
fn best(runs: Vec<Run>) -> Vec<Run> {
    let rank = |run: &Run| (run.is_as_defined(), run.started_s);
    let mut found: BTreeMap<String, Run> = BTreeMap::new();
    for run in runs {
        match found.get(&run.definition.name) {
            Some(other) if rank(other) > rank(&run) => {}
            _ => drop(found.insert(run.definition.name.clone(), run)),
        }
    }
    found.into_values().collect()
}

/// A piece of a report, the same for both forms.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A heading of this level, from 1.
    Heading(usize, String),
    /// A paragraph.
    Text(String),
    /// Something the reader must know before believing a figure.
    Warning(String),
    /// A list.
    List(Vec<String>),
    /// A table; all rows have as many cells as the head. The first column is text, the others are figures.
    Table {
        /// What it shows.
        caption: String,
        /// Names of the columns.
        head: Vec<String>,
        /// Its cells.
        rows: Vec<Vec<String>>,
    },
    /// Figures of the paper beside ours; the HTML form only, since a table has them too.
    Beside {
        /// What it shows.
        title: String,
        /// Unit of the axis.
        unit: String,
        /// Its rows.
        rows: Vec<beside::Row>,
    },
    /// Plots that belong beside each other; the HTML form only.
    Plots(Vec<plot::Plot>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::definition::parse;

    fn run(name: &str, started_s: u64, changed: &[&str]) -> Run {
        let text = "title = 't'\nabout = 'a'\nmodes = ['RD00']\nclients = [1]\nseconds = 1.0\nrepetitions = 1\n\
                    [[workload]]\nname = 'w'\nkey_bytes = 10\nvalue_bytes = 1\nmix = { get = 1 }\nkeys = 5\n";
        let definition = parse(name, "x.toml", text).expect("right");
        let changed = changed.iter().map(|what| (*what).to_owned()).collect();
        let run = Run::begin(definition, changed, BTreeMap::new());
        let measured = crate::bench::results::Measurement {
            repetition: 1,
            workload: "w".into(),
            clients: 1,
            side: "RD00".parse().expect("a side"),
            figures: None,
            failed: None,
        };
        Run { started_s, optimised: true, measurements: vec![measured], ..run }
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
        let told: Vec<(String, u64)> =
            best(runs).into_iter().map(|run| (run.definition.name, run.started_s)).collect();
        assert_eq!(told, [("a".to_owned(), 2), ("b".to_owned(), 4), ("c".to_owned(), 7)]);
    }
}
