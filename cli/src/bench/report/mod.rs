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

use super::results::{self, Run};
use crate::outcome::{Outcome, Verdict, misuse, say};

/// Options of `bench report`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Result files [default: the newest of every definition in the results' folder]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder of the results
    #[arg(long, value_name = "DIR", default_value = results::FOLDER)]
    results: PathBuf,
    /// Where report.md and report.html go [default: the results' folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Writes both reports.
pub fn run(args: &Args) -> Outcome {
    let files = if args.files.is_empty() { newest(&args.results)? } else { args.files.clone() };
    let runs = files.iter().map(|file| Run::read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let blocks = content::of(&runs);
    let out = args.out.as_ref().unwrap_or(&args.results);
    fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
    for (name, text) in [("report.md", markdown::render(&blocks)), ("report.html", html::render(&blocks))] {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        say(&path.display().to_string())?;
    }
    Ok(Verdict::Holds)
}

/// The newest file of each definition: names end with the time, so that the order of names is the order of time.
fn newest(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let none =
        || misuse(format!("{} holds no results; `crosscheck bench run quick` makes some", folder.display()));
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(|_| none())? {
        let path = entry?.path();
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        // NAME-YYYYMMDD-HHMMSS
        let name: Vec<&str> = stem.rsplitn(3, '-').collect();
        if path.extension().is_some_and(|ending| ending == "json")
            && let [time, day, name] = name[..]
        {
            let key = (name.to_owned(), format!("{day}-{time}"));
            found.insert(key, path);
        }
    }
    // Of each name the last is the newest.
    let newest: BTreeMap<String, PathBuf> = found.into_iter().map(|((name, _), path)| (name, path)).collect();
    if newest.is_empty() { Err(none()) } else { Ok(newest.into_values().collect()) }
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
