//! What an experiment changes in the service: slower requests, and classes that the letter G leaves out.

use std::fmt::Write as _;

use crosscheck::Behaviors;
use node::config::{TableReader, quoted};

/// The variable with the number of the release that this process is, from 1: release 3 can act as behaviors 1 to 3.
pub const RELEASE: &str = "CROSSCHECK_LAB_RELEASE";

/// What the release of this process can act as; the first release without the variable.
///
/// # Errors
/// The variable has no such number.
pub fn behaviors() -> Result<Behaviors, String> {
    let Some(release) = std::env::var_os(RELEASE) else { return Ok(Behaviors::FIRST) };
    let number = release.to_str().and_then(|text| text.parse().ok()).filter(|newest| *newest > 0);
    let wrong = || format!("{RELEASE}={} is the number of no release; use 1 to 65535", release.display());
    number.map(Behaviors::up_to).ok_or_else(wrong)
}

/// Nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Experiment {
    /// Processor time that every request uses in its handler in addition, in microseconds.
    pub work_us: u32,
    /// Classes that the letter G protects; none = all.
    pub guarded_classes: Option<Vec<String>>,
}

impl Experiment {
    /// Reads the fields.
    pub(super) fn read(file: &mut TableReader<'_>) -> Self {
        let work = file.integer("work_us", 0..=100_000, "µs");
        let remedy = "write \"all\", \"none\", or some of the classes, separated by commas";
        let classes = file.parsed("guarded_classes", remedy, read_classes);
        Experiment { work_us: work.map_or(0, |us| us as u32), guarded_classes: classes.unwrap_or_default() }
    }

    /// Appends the fields that change something: a file without them is one that the product reads too.
    pub(super) fn write(&self, file: &mut String) {
        // Writing to a string cannot fail.
        if self.work_us > 0 {
            let _ = writeln!(file, "work_us = {}", self.work_us);
        }
        if let Some(names) = &self.guarded_classes {
            let _ = writeln!(file, "guarded_classes = {}", quoted(&written(names)));
        }
    }

    /// What must be equal on all replicas.
    pub(super) fn equal_settings(&self) -> Option<(String, String)> {
        self.guarded_classes.as_ref().map(|names| ("guarded_classes".to_owned(), written(names)))
    }

    /// Makes this process run the experiment, before its first request.
    pub(super) fn apply(&self) {
        memcached::work::per_request(self.work_us);
        if let Some(names) = &self.guarded_classes {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            memcached::protect_only(&names);
            crosscheck::message(format_args!("only these classes are protected: {names:?}"));
        }
    }
}

/// Classes in the file's format.
fn written(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

/// `all`, `none`, or classes of the service, separated by commas.
fn read_classes(text: &str) -> Result<Option<Vec<String>>, String> {
    match text {
        "all" => Ok(None),
        "none" => Ok(Some(Vec::new())),
        names => {
            let names: Vec<&str> = names.split(',').map(str::trim).collect();
            match names.iter().find(|name| !memcached::CLASSES.contains(name)) {
                Some(unknown) => Err(format!("there is no class `{unknown}`")),
                None => Ok(Some(names.into_iter().map(str::to_owned).collect())),
            }
        }
    }
}
