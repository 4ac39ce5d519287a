//! The events of a run, as a hash that is equal in two runs of a seed, and as lines for a reader.

use std::fmt::{self, Write};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The hash of all events so far; prints them on request.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    hash: u64,
    /// Empty between two lines.
    line: String,
    /// Lines hashed.
    pub steps: u64,
    /// Whether lines go to stdout.
    pub prints: bool,
}

impl Trace {
    /// An empty one; `prints` sends its lines to stdout.
    pub fn new(prints: bool) -> Self {
        Trace { prints, ..Trace::default() }
    }

    /// Adds an event.
    pub fn record(&mut self, now_us: u64, what: fmt::Arguments<'_>) {
        let line = &mut self.line;
        // Writing into a string does not fail.
        let _ = line.write_fmt(what);
        self.hash = xxh3_64_with_seed(line.as_bytes(), self.hash ^ now_us);
        self.steps += 1;
        if self.prints {
            println!("{:>10}.{:03} {line}", now_us / 1000, now_us % 1000);
        }
        line.clear();
    }

    /// The hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}
