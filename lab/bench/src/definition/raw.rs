//! A definition file as it is written, before it is checked: every value keeps its position, so that an error can name
//! the line.

use std::collections::BTreeMap;

use crosscheck::admin::Corruption;
use serde::Deserialize;
use toml::Spanned;

use super::failure::ReplicaFailure;
use super::sweep::{Numbers, SweepVictim, Words};
use super::{Amount, Connect, Measure, SideStorage};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFile {
    pub title: Spanned<String>,
    pub about: String,
    pub source: Option<String>,
    pub modes: Option<Vec<Spanned<String>>>,
    pub peers: Option<Vec<Spanned<String>>>,
    pub replicas: Option<Spanned<u8>>,
    pub workers: Option<Spanned<usize>>,
    pub durability: Option<SideStorage>,
    pub memory_mb: Option<Spanned<u64>>,
    pub connect: Option<Connect>,
    pub clients: Spanned<Vec<usize>>,
    pub pipeline: Option<Spanned<usize>>,
    pub seconds: Spanned<f64>,
    pub warmup_seconds: Option<Spanned<f64>>,
    pub repetitions: Spanned<usize>,
    pub rate: Option<Spanned<f64>>,
    #[serde(default)]
    pub verify: bool,
    #[serde(default)]
    pub memaslap: bool,
    #[serde(default)]
    pub ratios: Vec<Spanned<(String, String)>>,
    pub workload: Spanned<Vec<Spanned<RawWorkload>>>,
    #[serde(default)]
    pub figure: Vec<Spanned<RawFigure>>,
}

/// One `[[workload]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawWorkload {
    pub name: String,
    pub key_bytes: Spanned<usize>,
    pub value_bytes: Spanned<Amount>,
    pub mix: Spanned<BTreeMap<Spanned<String>, f64>>,
    pub keys: Spanned<usize>,
    pub zipf: Option<Spanned<f64>>,
    pub ttl_seconds: Option<Spanned<Amount>>,
    pub prefill_percent: Option<Spanned<f64>>,
    pub work_us: Option<Spanned<Numbers>>,
    pub faults_per_second: Option<Spanned<Numbers>>,
    pub fault: Option<Spanned<Corruption>>,
    pub victim: Option<SweepVictim>,
    pub failure: Option<Spanned<ReplicaFailure>>,
    pub guarded_classes: Option<Spanned<Words>>,
    pub before_images: Option<Spanned<bool>>,
    pub extra_protection: Option<Spanned<bool>>,
}

/// One `[[figure]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFigure {
    pub workload: Spanned<String>,
    pub clients: Spanned<usize>,
    pub measure: Option<Measure>,
    pub of: Spanned<String>,
    pub to: Option<Spanned<String>>,
    pub paper: Option<(f64, f64)>,
    pub target: Option<f64>,
    pub says: String,
}
