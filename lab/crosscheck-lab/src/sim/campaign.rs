//! `crosscheck-lab sim --campaign DIR`: many seeds over all cells, kept in a folder that can be continued and merged.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sim::campaign::{CELLS, CampaignShare, Cell, Invocation, page};
use wire::mix;

use super::{Args, clock, command, runs};
use node::outcome::{CommandOutcome, CommandVerdict, say};
use node::signals::Ending;
use report::results::{Origin, ResultFile, replace, write};

/// The kind of these results.
const KIND: &str = "simulation";
/// The file of all parts together.
const SUMMARY: &str = "summary.json.gz";
/// How often the results so far are written.
const SAVED_EVERY: Duration = Duration::from_secs(20);

/// Runs until `--seeds` or `--minutes` are reached, and writes `part-FIRST.json`; then `summary.json.gz` and
/// `summary.md` of all parts in the directory and of the parts in the previous summary there.
pub fn run_campaign(args: &Args, directory: &Path) -> CommandOutcome {
    let cells = cells_with(args.cells.as_deref().unwrap_or_default())?;
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let first = args.first.unwrap_or_else(|| mix(clock()) >> 24);
    let ending = Ending::catch()?;
    let begun = Instant::now();
    let until = args.minutes.map(|minutes| begun + Duration::from_secs_f64(minutes * 60.0));
    let origin = Origin::now(KIND);
    let commit = &origin.commit;
    let mut part = CampaignShare::of(Invocation {
        commit: format!("{}{}", commit.id, if commit.changed { " (changed)" } else { "" }),
        command: invocation(args, first),
        first,
        jobs: args.jobs,
        ..Invocation::default()
    });
    let save = |part: &mut CampaignShare, path: &Path| {
        part.invocations.iter_mut().for_each(|one| one.seconds = begun.elapsed().as_secs());
        write(path, &origin, &part.invocations, &part.broken, &part.rows())
    };
    let path = directory.join(format!("part-{first}.json"));
    let mut saved = begun;
    let cell_of = |seed: u64| cells[((seed - first) % cells.len() as u64) as usize];
    let over = || until.is_some_and(|until| Instant::now() >= until);
    let seeds = args.seeds_of_campaign();
    runs(
        (first, seeds),
        args.jobs,
        |seed| cell_of(seed).options(),
        &|| ending.asked() || over(),
        |summary| {
            let cell = cell_of(summary.seed);
            let again = || command(summary.seed, &cell.options());
            part.add(cell, &summary, again);
            if let Some(broken) = &summary.violation {
                say(&format!("seed {}: BROKEN {}: {}", summary.seed, broken.promise, broken.how))?;
                say(&format!("  again: {}", again()))?;
            }
            if saved.elapsed() >= SAVED_EVERY {
                saved = Instant::now();
                save(&mut part, &path)?;
            }
            Ok(())
        },
    )?;
    if part.total().runs > 0 {
        save(&mut part, &path)?;
    }
    let parts = read_parts(directory)?;
    let all = CampaignShare::merged(&parts);
    write(&directory.join(SUMMARY), &origin, &all.invocations, &all.broken, &all.rows())?;
    replace(&directory.join("summary.md"), page(&parts).as_bytes())?;
    let total = all.total();
    say(&format!(
        "{}: {} parts, {} runs, {} broken; {} replies compared, {} activated faults; see summary.md",
        directory.display(),
        all.invocations.len(),
        total.runs,
        total.failed,
        total.answered,
        total.activated()
    ))?;
    Ok(CommandVerdict::of(total.failed == 0))
}

/// The cells whose names contain `wanted`.
fn cells_with(wanted: &str) -> anyhow::Result<Vec<&'static Cell>> {
    let cells: Vec<&Cell> = CELLS.iter().filter(|cell| cell.name.contains(wanted)).collect();
    if cells.is_empty() {
        let names: Vec<&str> = CELLS.iter().map(|cell| cell.name).collect();
        bail!(
            "no cluster and set of faults has `{wanted}` in its name; there are:\n  {}",
            names.join("\n  ")
        );
    }
    Ok(cells)
}

/// The command that repeats a part; the same seeds give the same runs, but how many fit into the minutes may differ.
fn invocation(args: &Args, first: u64) -> String {
    let seeds = args.seeds.map(|seeds| format!(" --seeds {seeds}")).unwrap_or_default();
    let minutes = args.minutes.map(|minutes| format!(" --minutes {minutes}")).unwrap_or_default();
    let cells = args.cells.as_ref().map(|cells| format!(" --cells '{cells}'")).unwrap_or_default();
    format!("crosscheck-lab sim --campaign DIR{cells} --first {first}{seeds}{minutes} --jobs {}", args.jobs)
}

fn read_parts(directory: &Path) -> anyhow::Result<Vec<CampaignShare>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    paths.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("part-") && name.ends_with(".json")
    });
    paths.sort();
    let read = |path: &PathBuf| -> anyhow::Result<CampaignShare> {
        let (_, invocations, broken, rows) = ResultFile::of_kind(path, KIND)?.parts()?;
        Ok(CampaignShare::of_rows(invocations, broken, rows))
    };
    let parts = paths.iter().map(read).collect::<anyhow::Result<Vec<CampaignShare>>>()?;
    let summary = directory.join(SUMMARY);
    let summary = summary.exists().then(|| read(&summary)).transpose()?;
    Ok(CampaignShare::to_be_merged(summary, parts))
}
