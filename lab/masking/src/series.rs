//! A series of runs of every configuration, and the table that sums it up.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use node::outcome::{CommandOutcome, CommandVerdict, say};
use node::signals::Ending;
use report::stats::rate;

use crate::load::AddLoad;
use crate::options::Bug;
use crate::service::Mix;
use crate::trial::{BugConfiguration, BugGroup, RunOutcome, WORKERS};

/// File in the directory of raw data: a line per run.
const RUNS: &str = "runs.jsonl";

/// Options of `series`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Runs of each configuration; a third of them of each control
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub runs: u64,
    /// Only configurations whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Requests of a run
    #[arg(long, value_name = "N", default_value_t = 6_000)]
    pub requests: u64,
    /// Connections, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub connections: usize,
    /// How many of the 64 rows are asked for: fewer collide more often
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub rows: u32,
    /// So many of 100,000 additions are racy where the bug is seeded
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub seeded: u64,
    /// Directory for a line of JSON per run; made if missing
    #[arg(long, value_name = "DIR", default_value = "target/masking")]
    pub raw: PathBuf,
    /// Run nothing, and make the tables of the runs in --raw
    #[arg(long)]
    pub again: bool,
    /// File for the table, in Markdown
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// A configuration with its name, and what it has shown.
struct SeriesRow {
    name: &'static str,
    configuration: BugConfiguration,
    outcomes: Vec<RunOutcome>,
    /// Runs without an outcome, since the group did not come up or stopped answering.
    failed: u64,
}

fn rows(args: &Args) -> Vec<SeriesRow> {
    let of = |name, bug, group, mix, extra, seeded| SeriesRow {
        name,
        configuration: BugConfiguration { bug, seeded, group, mix, extra },
        outcomes: Vec::new(),
        failed: 0,
    };
    let seeded = args.seeded;
    let all = vec![
        of("turso, alone", Bug::Turso, BugGroup::Alone, Mix::All, true, 0),
        of("turso, three replicas", Bug::Turso, BugGroup::Three, Mix::All, true, 0),
        of("turso, pair", Bug::Turso, BugGroup::Pair, Mix::All, true, 0),
        of("seeded, alone", Bug::Seeded, BugGroup::Alone, Mix::All, true, seeded),
        of("seeded, three replicas", Bug::Seeded, BugGroup::Three, Mix::All, true, seeded),
        of("seeded, pair", Bug::Seeded, BugGroup::Pair, Mix::All, true, seeded),
        // Controls, with a third of the runs.
        of("turso, three, no extra protection", Bug::Turso, BugGroup::Three, Mix::All, false, 0),
        of("turso, three, exact mixer", Bug::Turso, BugGroup::Three, Mix::Rows, true, 0),
        of("no bug, three", Bug::Seeded, BugGroup::Three, Mix::All, true, 0),
    ];
    all.into_iter().filter(|row| row.name.contains(&args.only)).collect()
}

/// Runs the series.
///
/// # Errors
/// A file cannot be written, or the operator ended it.
pub fn run(args: &Args) -> CommandOutcome {
    let ending = Ending::catch()?;
    let mut rows = rows(args);
    if args.again {
        read(&mut rows, &args.raw.join(RUNS))?;
        return tell(&rows, args);
    }
    fs::create_dir_all(&args.raw).with_context(|| args.raw.display().to_string())?;
    let mut raw = String::new();
    // In turns, so that whatever else the machine does hits all configurations alike.
    for number in 0..args.runs {
        for row in rows.iter_mut().filter(|row| number % 3 == 0 || !row.is_control()) {
            let Args { connections, requests, rows, .. } = *args;
            let load = AddLoad { connections, requests, rows, seed: number };
            match row.configuration.run(load, &ending) {
                Ok(outcome) => {
                    say(&format!("{number:>3}  {:<36} {}", row.name, in_words(&outcome)))?;
                    let line = serde_json::json!({ "name": row.name, "run": number, "outcome": &outcome });
                    let _ = writeln!(raw, "{line}");
                    row.outcomes.push(outcome);
                }
                Err(_) if ending.asked() => return Ok(CommandVerdict::Fails),
                Err(error) => {
                    say(&format!("{number:>3}  {:<36} no result: {error:#}", row.name))?;
                    let why = format!("{error:#}");
                    let line = serde_json::json!({ "name": row.name, "run": number, "failed": why });
                    let _ = writeln!(raw, "{line}");
                    row.failed += 1;
                }
            }
            fs::write(args.raw.join(RUNS), &raw)?;
        }
    }
    tell(&rows, args)
}

/// Adds the outcomes of an earlier series.
fn read(rows: &mut [SeriesRow], path: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    for line in text.lines() {
        let run: serde_json::Value = serde_json::from_str(line)?;
        let named = rows.iter_mut().find(|row| run["name"] == row.name);
        let row = named.with_context(|| format!("no configuration has the name of {line}"))?;
        if run["failed"].is_string() {
            row.failed += 1;
        } else {
            row.outcomes.push(serde_json::from_value(run["outcome"].clone())?);
        }
    }
    Ok(())
}

fn tell(rows: &[SeriesRow], args: &Args) -> CommandOutcome {
    let text = table(rows, args);
    say(&text)?;
    if let Some(path) = &args.out {
        write(path, &text)?;
    }
    Ok(CommandVerdict::Holds)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

fn in_words(outcome: &RunOutcome) -> String {
    let RunOutcome { additions, lost, missing, wrong, unanswered, batches, rollbacks, died, seconds, .. } =
        outcome;
    let verdict = match (outcome.is_hit(), outcome.is_right()) {
        (false, true) => "not hit",
        (true, true) => "masked",
        (_, false) => "WRONG",
    };
    format!(
        "{verdict:<7} {additions} additions in {seconds:.1} s; {lost} lost and {missing} not found in the databases; \
         batches hit at one {}, at several {}, at all alike {}; {rollbacks} taken back; {wrong} wrong, {unanswered} \
         unanswered, {died} died",
        batches.one, batches.several, batches.alike
    )
}

/// The tables, in Markdown.
fn table(rows: &[SeriesRow], args: &Args) -> String {
    let Args { runs, requests, connections, rows: asked, seeded, .. } = args;
    let mut text = format!(
        "# A concurrency bug, masked\n\n\
         Written by `masking series --runs {runs} --requests {requests} --connections {connections} --rows {asked} \
         --seeded {seeded}`.\n\
         {WORKERS} workers per replica. Intervals: Wilson, 95 %.\n\n\
         A run is *hit* if a database lost a committed addition or a row at any replica, or a client read a wrong \
         value.\nIt is *masked* if every reply that came, and at the end every counter at every replica, was right.\n\n\
         | Configuration | Runs | Hit | Masked, of those hit | The same, never all replicas alike | Wrong values | \
         Requests without a reply (runs) |\n|---|---|---|---|---|---|---|\n"
    );
    rows.iter().for_each(|row| text.push_str(&runs_line(row)));
    text.push_str(
        "\nBatches, by what the databases really lost; one that is hit at all replicas alike cannot be seen.\n\n\
         | Configuration | Hit at one replica | At several | At all alike | Taken back | Lost, of additions executed \
         | Rows not found | Additions per second |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    rows.iter().for_each(|row| text.push_str(&batches_line(row)));
    let failed: u64 = rows.iter().map(|row| row.failed).sum();
    let died: u64 = rows.iter().flat_map(|row| &row.outcomes).map(|outcome| outcome.died).sum();
    let _ = writeln!(text, "\nRuns without a result: {failed}. Processes that ended during a run: {died}.");
    text
}

fn runs_line(row: &SeriesRow) -> String {
    let sum = |of: fn(&RunOutcome) -> u64| -> u64 { row.outcomes.iter().map(of).sum() };
    let masked = |may_be_alike: bool| {
        let is_meant =
            |outcome: &&RunOutcome| outcome.is_hit() && (may_be_alike || outcome.batches.alike == 0);
        let hit: Vec<_> = row.outcomes.iter().filter(is_meant).collect();
        (hit.iter().filter(|outcome| outcome.is_right()).count() as u64, hit.len() as u64)
    };
    let (all, unlike) = (masked(true), masked(false));
    let runs = row.outcomes.len() as u64;
    // A single server is always like itself.
    let unlike = if row.is_alone() { "-".to_owned() } else { rate(unlike.0, unlike.1) };
    format!(
        "| {} | {runs} | {} | {} | {unlike} | {} | {} ({}) |\n",
        row.name,
        rate(all.1, runs),
        rate(all.0, all.1),
        sum(|outcome| outcome.wrong),
        sum(|outcome| outcome.unanswered),
        row.outcomes.iter().filter(|outcome| outcome.unanswered > 0).count(),
    )
}

fn batches_line(row: &SeriesRow) -> String {
    let sum = |of: fn(&RunOutcome) -> u64| -> u64 { row.outcomes.iter().map(of).sum() };
    let executors = match row.configuration.group {
        BugGroup::Alone => 1,
        BugGroup::Three => 3,
        BugGroup::Pair => 2,
    };
    let additions = sum(|outcome| outcome.additions);
    let seconds: f64 = row.outcomes.iter().map(|outcome| outcome.seconds).sum();
    let batches = match row.is_alone() {
        true => "- | - | -".to_owned(),
        false => format!(
            "{} | {} | {}",
            sum(|outcome| outcome.batches.one),
            sum(|outcome| outcome.batches.several),
            sum(|outcome| outcome.batches.alike)
        ),
    };
    format!(
        "| {} | {batches} | {} | {} of {} | {} | {:.0} |\n",
        row.name,
        sum(|outcome| outcome.rollbacks),
        sum(|outcome| outcome.lost),
        executors * additions,
        sum(|outcome| outcome.missing),
        additions as f64 / seconds.max(f64::MIN_POSITIVE),
    )
}

impl SeriesRow {
    /// Whether it shows what the others are to be compared with, and not what is claimed.
    fn is_control(&self) -> bool {
        let BugConfiguration { bug, seeded, mix, extra, .. } = self.configuration;
        mix == Mix::Rows || !extra || bug == Bug::Seeded && seeded == 0
    }

    fn is_alone(&self) -> bool {
        self.configuration.group == BugGroup::Alone
    }
}
