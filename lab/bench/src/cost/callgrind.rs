//! callgrind: how a program is run under it, its counters read while the program runs, and its output: the total number
//! of instructions, how often other code called the allocator, and how often the clock of a replica has ticked.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::servers::find;

/// Functions that allocate memory: mimalloc's functions that Rust's allocator calls, and the C library's.
const ALLOCATING: [&str; 11] = [
    "mi_malloc",
    "mi_malloc_aligned",
    "mi_zalloc",
    "mi_zalloc_aligned",
    "mi_realloc",
    "mi_realloc_aligned",
    "malloc",
    "calloc",
    "realloc",
    "aligned_alloc",
    "posix_memalign",
];

/// How the name ends of the function that a replica calls whenever its clock ticks.
const TICK: &str = "::on_tick";

/// The totals of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Instructions.
    pub instructions: u64,
    /// Calls of the allocator; 0 where symbols are missing.
    pub allocations: u64,
    /// Ticks of its clock; 0 for a program that is no replica, or where symbols are missing.
    pub ticks: u64,
}

/// The same command under callgrind, which writes to files that begin with `output`.
///
/// # Errors
/// valgrind is not installed.
pub fn under_callgrind(command: &Command, output: &Path) -> anyhow::Result<Command> {
    let valgrind = installed("valgrind")?;
    let mut file = OsString::from("--callgrind-out-file=");
    file.push(output);
    let mut under = Command::new(valgrind);
    under.args(["--tool=callgrind", "--fair-sched=try", "--quiet"]).arg(file);
    under.arg(command.get_program()).args(command.get_args());
    Ok(under)
}

/// The counters of one process that runs under callgrind.
#[derive(Debug)]
pub struct Counter {
    pid: u32,
    output: PathBuf,
    /// Files that callgrind has written so far; it numbers them.
    written: u32,
}

impl Counter {
    /// Those of the process `pid`, which writes to files that begin with `output`.
    pub fn new(pid: u32, output: PathBuf) -> Self {
        Counter { pid, output, written: 0 }
    }

    /// Begins to count from zero.
    ///
    /// # Errors
    /// The process cannot be asked.
    pub fn zero(&mut self) -> anyhow::Result<()> {
        self.ask("zero")
    }

    /// What was counted since; the counters are zero afterwards.
    ///
    /// # Errors
    /// The process cannot be asked, or its file makes no sense.
    pub fn read(&mut self) -> anyhow::Result<Totals> {
        self.ask("dump")?;
        self.written += 1;
        let mut file = self.output.clone().into_os_string();
        file.push(format!(".{}", self.written));
        let file = PathBuf::from(file);
        let text = std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        parse(&String::from_utf8_lossy(&text)).with_context(|| format!("{} has no totals", file.display()))
    }

    fn ask(&self, what: &str) -> anyhow::Result<()> {
        let mut vgdb = Command::new(installed("vgdb")?);
        vgdb.arg(format!("--pid={}", self.pid)).arg(what).stdin(Stdio::null());
        let said = vgdb.output().context("starting vgdb")?;
        if !said.status.success() {
            bail!("vgdb {what} of process {}: {}", self.pid, String::from_utf8_lossy(&said.stderr).trim());
        }
        Ok(())
    }
}

fn installed(program: &str) -> anyhow::Result<PathBuf> {
    find(program)
        .with_context(|| format!("{program} is not installed; install it with: apt-get install valgrind"))
}

/// Reads the file's text; none when it has no totals, because the process did not end by itself.
pub fn parse(text: &str) -> Option<Totals> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut totals = Totals::default();
    let mut known = false;
    let (mut caller, mut called) = ("", "");
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            caller = resolve(name, &mut names);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            called = resolve(name, &mut names);
        } else if let Some(calls) = line.strip_prefix("calls=") {
            let count = calls.split(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
            if ALLOCATING.contains(&called) && !is_allocator(caller) {
                totals.allocations += count;
            } else if called.ends_with(TICK) {
                totals.ticks += count;
            }
        } else if let Some(count) = line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")) {
            totals.instructions = count.split(' ').next()?.parse().ok()?;
            known = true;
        }
    }
    known.then_some(totals)
}

/// `(12) name` gives a name its number, `(12)` uses it; the name of a recursive call ends in `'2`.
fn resolve<'t>(text: &'t str, names: &mut HashMap<&'t str, &'t str>) -> &'t str {
    let name = match text.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(text).copied().unwrap_or(text),
    };
    name.split_once('\'').map_or(name, |(name, _)| name)
}

fn is_allocator(name: &str) -> bool {
    name.starts_with("mi_") || name.starts_with("_mi_") || ALLOCATING.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "version: 1\nevents: Ir\n\nfn=(1) run\n10 5\ncfn=(2) mi_malloc_aligned\ncalls=3 10\n10 90\n\
                        fn=(3) _mi_page_fresh\n1 1\ncfn=(2)\ncalls=7 1\n1 1\nfn=(4) other\ncfn=(2)\ncalls=2 4\n2 2\n\
                        cfn=(5) realloc'2\ncalls=1 4\n2 2\ncfn=(6) mi_free\ncalls=9 1\n1 1\n\
                        cfn=(7) replica::Replica<S>::on_tick\ncalls=4 1\n1 1\ntotals: 1234\n";

    #[test]
    fn instructions_ticks_and_calls_from_outside_of_the_allocator_are_counted() {
        assert_eq!(parse(TEXT), Some(Totals { instructions: 1234, allocations: 6, ticks: 4 }));
        assert_eq!(parse("events: Ir\nfn=(1) run\n"), None);
    }
}
