//! One setting of a workload that is measured with several values: each value becomes a workload of its own, in
//! addition to the others.

use crosscheck::admin::Corruption;
use serde::{Deserialize, Serialize};

/// Faults that are placed while it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepFaults {
    /// Faults per second, at equal intervals.
    pub per_second: f64,
    /// The corruption, `flip` or `in-request`: always of an item, drawn like the keys of requests.
    pub fault: Corruption,
    /// The victim.
    pub victim: SweepVictim,
}

/// The victim; the same replica during a whole measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SweepVictim {
    /// A follower at the beginning of the load.
    #[default]
    Follower,
    /// The leader at the beginning of the load.
    Leader,
}

/// The position of a workload among those that differ from it in one setting only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// The name that the file gives to all of them.
    pub family: String,
    /// The setting.
    pub axis: Axis,
    /// Its value, or the number of the value if values are names.
    pub x: f64,
    /// The value as text, with its unit.
    pub label: String,
}

/// A setting that can be swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// [`super::Workload::work_us`].
    WorkUs,
    /// [`SweepFaults::per_second`].
    FaultsPerSecond,
    /// [`super::Workload::guarded_classes`].
    Classes,
}

impl Axis {
    /// Name of a plot's axis.
    pub fn label(self) -> &'static str {
        match self {
            Axis::WorkUs => "additional execution time of a request, µs",
            Axis::FaultsPerSecond => "faults per second",
            Axis::Classes => "protected classes",
        }
    }

    /// A value with its unit.
    pub fn value(self, x: f64) -> String {
        match self {
            Axis::WorkUs => format!("+{x} µs"),
            Axis::FaultsPerSecond => format!("{x} faults/s"),
            Axis::Classes => x.to_string(),
        }
    }
}

/// One number or several, as a file gives them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Numbers {
    /// One.
    One(f64),
    /// Several; each is measured.
    Many(Vec<f64>),
}

impl Numbers {
    /// All of them.
    pub fn list(&self) -> &[f64] {
        match self {
            Numbers::One(number) => std::slice::from_ref(number),
            Numbers::Many(numbers) => numbers,
        }
    }
}

/// One word or several, as a file gives them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Words {
    /// One.
    One(String),
    /// Several; each is measured.
    Many(Vec<String>),
}

impl Words {
    /// All of them.
    pub fn list(&self) -> &[String] {
        match self {
            Words::One(word) => std::slice::from_ref(word),
            Words::Many(words) => words,
        }
    }
}
