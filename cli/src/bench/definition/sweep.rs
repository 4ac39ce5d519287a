//! One setting of a workload that is measured with several values: each value becomes a workload of its own,
//! beside the others.

use serde::{Deserialize, Serialize};

/// Faults that are placed while it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepFaults {
    /// How many, at even distances.
    pub per_second: f64,
    /// What they are.
    pub fault: SweepFault,
    /// Which replica they hit.
    pub victim: SweepVictim,
}

/// What is damaged: always an item, drawn like the keys of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SweepFault {
    /// A bit of its value while no request uses it: found by the check at the next touch.
    #[default]
    Flip,
    /// A bit while a request changes it: found by the other replicas only, as the paper's fault.
    InRequest,
}

/// Which replica is hit; always the same one during a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SweepVictim {
    /// One that follows when the load begins.
    #[default]
    Follower,
    /// The one that leads when the load begins.
    Leader,
}

/// Where a workload stands among those that differ from it in one setting only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// The name that the file gives to all of them.
    pub family: String,
    /// The setting.
    pub axis: Axis,
    /// Its value, or the number of one that is a name.
    pub x: f64,
    /// The value in words, with its unit.
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
    /// Several, to be measured each.
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
    /// Several, to be measured each.
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
