//! Changes to a definition from the command line, with a note for the results: a changed run must not be mistaken for
//! the whole one.

use super::definition::{Definition, Side};
use node::outcome::misuse;

/// Options that change definitions.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Changes to the definitions (noted in the results)")]
pub struct Overrides {
    /// Seconds measured per repetition
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Seconds of load before measuring begins
    #[arg(long, value_name = "S", value_parser = seconds)]
    warmup: Option<f64>,
    /// Repetitions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: Option<u16>,
    /// Numbers of connections, separated by commas
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: Vec<u16>,
    /// Only these modes and peers, separated by commas
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    only: Vec<Side>,
    /// Only these workloads, separated by commas
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    workload: Vec<String>,
    /// Workers of each of our replicas, and threads of memcached
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: Option<u8>,
    /// Compare every reply with a model
    #[arg(long)]
    verify: bool,
    /// Open loop with this many requests per second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: Option<u32>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.0..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("write a number from 0 to 3600".into()) }
}

impl Overrides {
    /// Changes the definition; returns the changes as text.
    ///
    /// # Errors
    /// No measurement would be left.
    pub fn apply(&self, mut definition: Definition) -> anyhow::Result<(Definition, Vec<String>)> {
        let mut changed = Vec::new();
        let mut add = |what: String| changed.push(what);
        if let Some(seconds) = self.seconds {
            add(format!("seconds = {seconds}"));
            // A duration of zero cannot be divided by.
            definition.seconds = seconds.max(0.05);
        }
        if let Some(seconds) = self.warmup {
            add(format!("warmup_seconds = {seconds}"));
            definition.warmup_seconds = seconds;
        }
        if let Some(repetitions) = self.repetitions {
            add(format!("repetitions = {repetitions}"));
            definition.repetitions = usize::from(repetitions);
        }
        if let Some(workers) = self.workers {
            add(format!("workers = {workers}"));
            definition.workers = usize::from(workers);
        }
        if let Some(rate) = self.rate {
            add(format!("rate = {rate}"));
            definition.rate = Some(f64::from(rate));
        }
        if self.verify && !definition.verify {
            add("verify = true".into());
            definition.verify = true;
        }
        if !self.clients.is_empty() {
            definition.clients = self.clients.iter().copied().map(usize::from).collect();
            add(format!("clients = {:?}", definition.clients));
        }
        if !self.only.is_empty() {
            definition.sides.retain(|side| self.only.contains(side));
            add(format!("sides = {}", join(&definition.sides)));
        }
        if !self.workload.is_empty() {
            definition.workloads.retain(|workload| {
                let family = workload.sweep.as_ref().map(|sweep| &sweep.family);
                self.workload.contains(&workload.name)
                    || family.is_some_and(|family| self.workload.contains(family))
            });
            add(format!("workloads = {}", self.workload.join(", ")));
        }
        if definition.sides.is_empty() || definition.workloads.is_empty() {
            let name = &definition.name;
            return Err(misuse(format!(
                "{name}: --only or --workload leaves nothing to measure; `crosscheck-lab bench list --json` \
                    shows what it has"
            )));
        }
        let measured = |side: &Side| definition.sides.contains(side);
        definition.ratios.retain(|ratio| measured(&ratio.of) && measured(&ratio.to));
        let has_workload = |name: &String| definition.workloads.iter().any(|workload| workload.name == *name);
        definition.figures.retain(|figure| {
            measured(&figure.of) && figure.to.as_ref().is_none_or(measured) && has_workload(&figure.workload)
        });
        Ok((definition, changed))
    }
}

fn join(sides: &[Side]) -> String {
    sides.iter().map(Side::to_string).collect::<Vec<_>>().join(", ")
}
