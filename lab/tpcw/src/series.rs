//! `series`: Fig. 3's questions, each side several times and in turn, and the tables of `lab/bench/results/tpcw.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use crate::mix::{Mix, RequestType};
use crate::populate::populate;
use crate::population::Scale;
use crate::run::{self, RunReport, percentile};
use crate::servers::{GroupCounts, Programs, RunningServer, ServerKind};

/// The side that all others are compared with.
const BASE: &str = "`00G0`, 1 worker";

/// Options of `series`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where the servers are.
    #[command(flatten)]
    pub programs: Programs,
    /// Measurements of each side; the sides take turns
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repetitions: u64,
    /// How long each takes
    #[arg(long, value_name = "S", default_value_t = 20)]
    pub seconds: u64,
    /// Clients, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub clients: u64,
    /// How often each interaction comes; a table for each
    #[arg(long, value_enum, default_values = ["browsing"], num_args = 1..)]
    pub mix: Vec<Mix>,
    /// Only sides whose name contains one of these, and the first
    #[arg(long, value_name = "TEXT", num_args = 1..)]
    pub only: Vec<String>,
    /// Of which size the population is.
    #[command(flatten)]
    pub scale: Scale,
    /// Commit of the program `crosscheck-sql`, for the heading
    #[arg(long, value_name = "COMMIT")]
    pub commit: String,
    /// A sentence on the machine and on what else ran, for the heading
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub machine: String,
    /// File for the tables, in Markdown
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// One side, and what it has shown.
struct Side {
    name: &'static str,
    kind: ServerKind,
    samples: Vec<SeriesSample>,
    /// Repetitions without a result.
    errors: Vec<String>,
}

/// One measurement.
struct SeriesSample {
    repetition: u64,
    report: RunReport,
    counts: Option<GroupCounts>,
}

fn sides() -> Vec<Side> {
    let side = |name, kind| Side { name, kind, samples: Vec::new(), errors: Vec::new() };
    let ours = |name, mode, replicas, workers| side(name, ServerKind::CrossCheck { mode, replicas, workers });
    let postgres = |name, is_durable| side(name, ServerKind::PostgreSql { is_durable });
    vec![
        ours(BASE, "00G0", 1, 1),
        ours("`00G0`, 2 workers", "00G0", 1, 2),
        ours("`RDGX`, 3 replicas", "RDGX", 3, 1),
        ours("`R0GV`, pair", "R0GV", 2, 1),
        ours("`R0GV`, pair, 2 workers", "R0GV", 2, 2),
        ours("`R0GV`, 3 replicas", "R0GV", 3, 1),
        postgres("PostgreSQL, in memory", false),
        postgres("PostgreSQL, durable", true),
    ]
}

/// Runs the series, and prints or writes the tables.
///
/// # Errors
/// An answer was wrong; or the tables cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut done = heading(args);
    let mut wrong = 0;
    for mix in &args.mix {
        let mut sides = sides_of(args);
        for repetition in 1..=args.repetitions {
            one_repetition(args, *mix, &mut sides, repetition);
            // A series that is stopped keeps what it has.
            if let Some(file) = &args.out {
                fs::write(file, format!("{done}{}", tables(*mix, &sides)))
                    .with_context(|| file.display().to_string())?;
            }
        }
        let samples = sides.iter().flat_map(|side| &side.samples);
        wrong += samples.map(|sample| sample.report.wrong.len()).sum::<usize>();
        done += &tables(*mix, &sides);
    }
    if args.out.is_none() {
        print!("{done}");
    }
    anyhow::ensure!(wrong == 0, "{wrong} answers were wrong");
    Ok(())
}

/// The sides that were asked for.
fn sides_of(args: &Args) -> Vec<Side> {
    let is_asked = |side: &Side| {
        let is_there =
            args.programs.postgres.is_some() || !matches!(side.kind, ServerKind::PostgreSql { .. });
        let is_named = args.only.is_empty() || args.only.iter().any(|part| side.name.contains(part));
        side.name == BASE || is_there && is_named
    };
    sides().into_iter().filter(is_asked).collect()
}

/// One measurement of each side.
fn one_repetition(args: &Args, mix: Mix, sides: &mut [Side], repetition: u64) {
    for side in sides {
        let name = format!("{}, {}, repetition {repetition}", mix.name(), side.name);
        match one_sample(args, mix, side.kind, repetition) {
            Ok(sample) => {
                eprint!("{name}: {}", sample.report.text());
                side.samples.push(sample);
            }
            Err(error) => {
                eprintln!("{name}: {error:#}");
                side.errors.push(format!("{error:#}"));
            }
        }
    }
}

/// One measurement of new servers with a new population.
fn one_sample(args: &Args, mix: Mix, kind: ServerKind, repetition: u64) -> anyhow::Result<SeriesSample> {
    let server = RunningServer::start(&args.programs, kind)?;
    let address = server.addresses();
    populate(&address[0], args.scale, false)?;
    let report = run::measure(&run::Args {
        address,
        clients: args.clients,
        seconds: args.seconds,
        warm_up: 2,
        mix,
        pids: server.processes()?,
        choices: repetition,
        scale: args.scale,
    })?;
    Ok(SeriesSample { repetition, report, counts: server.counts()? })
}

/// How to read the tables; it precedes them.
const HOW_TO_READ: &str = "\
A closed loop: each client has one connection and one request at a time, and does not pause. Replicas share the
clients. The sides take turns; each measurement has new servers and a new population, and begins after 2 s. Every
answer is checked, and the whole database after each measurement.

Clients and servers share the machine, so that *processor time* is the main figure: of the servers' processes
(`/proc/PID/stat`: user and system, all replicas), over the interactions that ended in the time measured. An
*interaction* is one of TPC-W's 14 (a visit of the cart without a cart is two requests). Medians, with the smallest
and the largest as (a..b); a ratio compares two sides of one repetition.

| Servers | What an acknowledged purchase survives | Wrong bytes in memory |
|---|---|---|
| `00G0` | nothing: in memory, one process | an error, mostly |
| `RDGX` | one of three replicas crashed or corrupted | masked and repaired |
| `R0GV`, pair | a crash of one of two | noticed, taken back |
| `R0GV`, 3 replicas | one of three replicas crashed or corrupted | masked and repaired |
| PostgreSQL, in memory | nothing: `fsync`, `synchronous_commit`, `full_page_writes` off | no check |
| PostgreSQL, durable | a crash of its machine: its default settings | no check in memory |

Every transaction is serializable at every side (PostgreSQL: `default_transaction_isolation = serializable`).
";

fn heading(args: &Args) -> String {
    let scale = args.scale;
    let Args { repetitions, seconds, clients, commit, machine, .. } = args;
    let Scale { items, ebs, seed } = scale;
    format!(
        "# TPC-W: Fig. 3's questions\n\n\
         Written by `tpcw series --repetitions {repetitions} --seconds {seconds} --clients {clients} \
         --items {items} --ebs {ebs} --seed {seed}`.\n\
         `crosscheck-sql` of commit {commit}. {items} books, {} customers, {} orders.\n{machine}\n\n{HOW_TO_READ}",
        scale.customers(),
        scale.orders()
    )
}

/// The median of numbers, with the smallest and the largest; a dash for none.
fn spread(mut numbers: Vec<f64>, digits: usize) -> String {
    numbers.sort_by(f64::total_cmp);
    match (numbers.first(), numbers.get(numbers.len() / 2), numbers.last()) {
        (Some(least), Some(middle), Some(most)) => {
            format!("{middle:.digits$} ({least:.digits$}..{most:.digits$})")
        }
        _ => "-".to_owned(),
    }
}

/// A figure of each sample of a side, over that of the first side in the same repetition.
fn ratios(side: &Side, base: &Side, figure: impl Fn(&RunReport) -> Option<f64>) -> Vec<f64> {
    let of_base = |repetition| base.samples.iter().find(|sample| sample.repetition == repetition);
    let ratio = |sample: &SeriesSample| {
        let base = figure(&of_base(sample.repetition)?.report)?;
        Some(figure(&sample.report)? / base)
    };
    side.samples.iter().filter_map(ratio).collect()
}

fn tables(mix: Mix, sides: &[Side]) -> String {
    // Writing to a string cannot fail.
    let mut text = format!("\n## {}\n\n", mix.name());
    let _ = writeln!(
        text,
        "| Servers | Processor time per interaction, us | over {BASE} | Interactions per second | over {BASE} \
         | Cores that the servers had |\n|---|---|---|---|---|---|"
    );
    for side in sides {
        let of = |figure: fn(&RunReport) -> Option<f64>| {
            side.samples.iter().filter_map(|sample| figure(&sample.report)).collect::<Vec<f64>>()
        };
        let rate = |report: &RunReport| Some(report.rate());
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            side.name,
            spread(of(RunReport::cost_us), 0),
            spread(ratios(side, &sides[0], RunReport::cost_us), 2),
            spread(of(rate), 0),
            spread(ratios(side, &sides[0], rate), 2),
            spread(of(|report| Some(report.processor_seconds? / report.seconds)), 2)
        );
    }
    text += &outcomes(sides);
    text += &times(sides);
    text
}

fn outcomes(sides: &[Side]) -> String {
    let mut text = "\nAll measurements together; *rolled back*: batches of `R0GV` that a replica took back; *divided*: \
                    requests on which\nreplicas disagreed; *equal*: measurements after which all replicas were \
                    bit-identical.\n\n\
                    | Servers | Interactions | Retries after 40001 | Failures | Wrong | Rolled back | Divided \
                    | Repairs | Equal | No result |\n|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for side in sides {
        let sum = |figure: fn(&RunReport) -> u64| {
            side.samples.iter().map(|sample| figure(&sample.report)).sum::<u64>()
        };
        let counts: Vec<GroupCounts> = side.samples.iter().filter_map(|sample| sample.counts).collect();
        let counted = |figure: fn(&GroupCounts) -> u64| match counts.is_empty() {
            true => "-".to_owned(),
            false => counts.iter().map(figure).sum::<u64>().to_string(),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} of {} | {} |",
            side.name,
            sum(|report| report.interactions),
            sum(|report| report.retries),
            sum(|report| report.failures.len() as u64),
            sum(|report| report.wrong.len() as u64),
            counted(|counts| counts.rollbacks),
            counted(|counts| counts.mismatches),
            counted(|counts| counts.repairs),
            counts.iter().filter(|counts| counts.is_equal).count(),
            counts.len(),
            side.errors.len()
        );
    }
    text
}

/// The median time of each request at each side, of all measurements together.
fn times(sides: &[Side]) -> String {
    let mut text =
        "\nMedian and 99 % of the time of a request at its client, us, of all measurements:\n\n| Request |"
            .to_owned();
    for side in sides {
        let _ = write!(text, " {} |", side.name);
    }
    let _ = write!(text, "\n|---|{}\n", "---|".repeat(sides.len()));
    for request in RequestType::ALL {
        let _ = write!(text, "| {} |", request.name());
        for side in sides {
            let each =
                side.samples.iter().flat_map(|sample| sample.report.times[request as usize].iter().copied());
            let mut all: Vec<u32> = each.collect();
            all.sort_unstable();
            let _ = write!(text, " {}, {} |", percentile(&all, 50), percentile(&all, 99));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(repetition: u64, interactions: u64) -> SeriesSample {
        let report = RunReport {
            seconds: 2.0,
            interactions,
            times: vec![vec![5, 7, 9]; RequestType::ALL.len()],
            processor_seconds: Some(1.0),
            retries: 1,
            failures: Vec::new(),
            wrong: Vec::new(),
        };
        SeriesSample { repetition, report, counts: None }
    }

    fn side(name: &'static str, samples: Vec<SeriesSample>) -> Side {
        Side { name, kind: ServerKind::PostgreSql { is_durable: true }, samples, errors: Vec::new() }
    }

    #[test]
    fn a_ratio_compares_two_sides_of_one_repetition() {
        let base = side(BASE, vec![sample(1, 100), sample(2, 200)]);
        let other = side("b", vec![sample(2, 100), sample(3, 100)]);
        assert_eq!(ratios(&other, &base, |report| Some(report.rate())), [0.5]);
        assert_eq!(ratios(&other, &base, RunReport::cost_us), [2.0]);
    }

    #[test]
    fn a_spread_is_the_median_and_both_ends() {
        assert_eq!(spread(vec![3.0, 1.0, 2.0], 1), "2.0 (1.0..3.0)");
        assert_eq!(spread(Vec::new(), 1), "-");
    }

    #[test]
    fn the_tables_have_a_row_per_side_and_request_with_as_many_cells_as_heads() {
        let sides = [side(BASE, vec![sample(1, 100)]), side("b", Vec::new())];
        let text = tables(Mix::Browsing, &sides);
        for table in text.split("\n\n").filter(|part| part.starts_with('|')) {
            let cells: Vec<usize> = table.lines().map(|line| line.matches('|').count()).collect();
            assert!(cells.iter().all(|count| *count == cells[0]), "{table}");
        }
        assert!(text.contains("| DO_BUY_CONFIRM | 7, 9 | 0, 0 |"), "{text}");
    }
}
