//! Tells the operator how far a run is: one line per measurement, with what it found and how long the rest will take.

use std::time::{Duration, Instant};

use super::campaign::BUSY_GENERATOR;
use super::definition::{Definition, Side};
use super::results::{Measurement, Skipped};
use node::outcome::say_json;
use node::view::{ProgressLine, grouped, micros, roughly};

/// Writes to stderr, so that stdout holds results only.
#[derive(Debug)]
pub struct BenchProgress {
    json: bool,
    line: ProgressLine,
    total: usize,
    done: usize,
    begin: Instant,
    repetitions: usize,
    /// Which definition this is, and of how many.
    part: (usize, usize),
    /// Seconds that the ones after it will take, roughly.
    later: f64,
}

impl BenchProgress {
    /// With `json`, every measurement also goes to stdout as one line of JSON. `part` says which definition
    /// this is and of how many, `later` how many seconds those after it will take.
    pub fn new(json: bool, part: (usize, usize), later: f64) -> Self {
        let line = ProgressLine::of(Some(0));
        BenchProgress { json, line, total: 0, done: 0, begin: Instant::now(), repetitions: 0, part, later }
    }

    /// Tells what is coming.
    pub fn begin(&mut self, definition: &Definition, skipped: &[Skipped], total: usize) {
        (self.total, self.done, self.begin, self.repetitions) =
            (total, 0, Instant::now(), definition.repetitions);
        self.line = ProgressLine::of(Some(total as u64));
        let (number, count) = self.part;
        let part = if count > 1 { format!("({number} of {count}) ") } else { String::new() };
        let time = roughly(Duration::from_secs_f64(each(definition) * total as f64));
        let name = &definition.name;
        self.line.tell(&format!("{part}{name}: {}. {total} measurements, roughly {time}", definition.title));
        for one in skipped {
            let of = one.workload.as_ref().map(|name| format!(" for {name}")).unwrap_or_default();
            self.line.tell(&format!("skipped{of}: {}: {}", one.side, one.why));
        }
    }

    /// Shows what is being measured.
    pub fn start(&mut self, index: usize, repetition: usize, workload: &str, clients: usize, side: &Side) {
        self.line.doing(self.head(index, repetition, workload, clients, side));
    }

    /// Tells what was found.
    ///
    /// # Errors
    /// The reader of the JSON went away.
    pub fn end(&mut self, one: &Measurement) -> anyhow::Result<()> {
        let head = self.head(self.done, one.repetition, &one.workload, one.clients, &one.side);
        self.done += 1;
        let rest = self.begin.elapsed().mul_f64((self.total - self.done) as f64 / self.done as f64);
        let found = match (&one.figures, &one.failed) {
            (Some(figures), _) => {
                let mut found = format!(
                    "{:>9}/s  p50 {}  p99 {}  generator {:.0}%",
                    grouped(figures.throughput().round() as u64),
                    micros(figures.latency.p50_us as u64),
                    micros(figures.latency.p99_us as u64),
                    figures.generator_cpu_share * 100.0
                );
                if figures.generator_cpu_share > BUSY_GENERATOR {
                    found += " (it may be the bottleneck)";
                }
                if let Some(other) = &figures.memaslap {
                    found += &format!("  memaslap {}/s", grouped(other.throughput.round() as u64));
                }
                if figures.error_count() > 0 {
                    found +=
                        &format!("  ERRORS {}: {}", figures.error_count(), figures.errors.words.join("; "));
                }
                found
            }
            (None, why) => format!("FAILED: {}", why.as_deref().unwrap_or("unknown")),
        };
        self.line.step();
        let all = rest + Duration::from_secs_f64(self.later);
        let later = if self.later > 0.0 { format!(", {} in all", roughly(all)) } else { String::new() };
        self.line.tell(&format!("{head} {found}  ({} left{later})", roughly(rest)));
        if self.json { self.line.aside(|| say_json(one)) } else { Ok(()) }
    }

    fn head(&self, index: usize, repetition: usize, workload: &str, clients: usize, side: &Side) -> String {
        let width = self.total.to_string().len();
        let of = self.repetitions;
        let total = self.total;
        let number = index + 1;
        format!("[{number:>width$}/{total}] {repetition}/{of} {workload:<8} {clients:>4} clients {side:<9}")
    }
}

/// Seconds that a definition takes, roughly.
pub fn estimate(definition: &Definition) -> f64 {
    let cells = definition.sides.len() * definition.workloads.len() * definition.clients.len();
    each(definition) * (cells * definition.repetitions) as f64
}

/// Seconds of one measurement: starting and stopping a side takes about two, storing the keys one.
fn each(definition: &Definition) -> f64 {
    definition.seconds + definition.warmup_seconds + 3.0
}
