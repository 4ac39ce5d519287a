//! Long campaigns: a fixed rotation of clusters and fault sets over many seeds, kept in files that can be
//! continued and merged.

use std::collections::BTreeMap;

use report::{Block, Page, Table};
use serde::{Deserialize, Serialize};

use crate::fault::{CATALOGUE, CatalogueRow};
use crate::plan::Faults;
use crate::report::{CampaignTotals, listed};
use crate::run::{Options, RunSummary};

/// One kind of cluster under one set of faults.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its name in the summary.
    pub name: &'static str,
    /// As `--faults` names them.
    faults: &'static str,
    replicas: u8,
    disk: bool,
    requests: u64,
    clients: usize,
    episodes: u64,
    strokes: u64,
    workers: usize,
    evicts: bool,
}

/// The rotation: seed `first + n` runs in cell `n` of it, or of those that were asked for, counted round and round.
pub const CELLS: [Cell; 20] = [
    cell("3 replicas, memory: all faults", "all", 3, false, (5_000, 8, 12, 24)),
    cell("3 replicas, memory: storms of corruption", "memory", 3, false, (5_000, 4, 200, 960)),
    cell("3 replicas, 1 to 3 workers: all faults", "all", 3, false, (5_000, 6, 6, 24)).with_workers(3),
    cell("3 replicas, disk: all faults", "all", 3, true, (5_000, 8, 10, 12)),
    cell("3 replicas, disk: storms of all faults", "all", 3, true, (5_000, 6, 6, 240)),
    cell("3 replicas, disk: storms of corruption", "memory", 3, true, (5_000, 4, 8, 960)),
    cell("5 replicas, memory: all faults", "all", 5, false, (5_000, 10, 12, 24)),
    cell("5 replicas, memory: storms of corruption", "memory", 5, false, (5_000, 5, 8, 960)),
    cell("5 replicas, disk: all faults", "all", 5, true, (5_000, 10, 10, 12)),
    cell("3 replicas, 1 to 4 workers: storms of corruption", "memory", 3, false, (2_000, 4, 4, 960))
        .with_workers(4),
    cell("3 replicas, 1 to 2 workers, short of memory: all faults", "all", 3, false, (10_000, 8, 4, 24))
        .with_workers(2)
        .short_of_memory(),
    cell("3 replicas, short of memory: storms of corruption", "memory", 3, false, (10_000, 4, 8, 960))
        .short_of_memory(),
    cell("3 replicas, memory: storms of what is mended", "mended", 3, false, (20_000, 4, 40, 960)),
    cell("3 replicas, disk: storms of what is mended", "mended", 3, true, (20_000, 4, 40, 960)),
    cell("5 replicas, memory: storms of what is mended", "mended", 5, false, (20_000, 5, 20, 960)),
    cell("3 replicas, memory: storms at rest", "at-rest", 3, false, (20_000, 4, 40, 960)),
    cell("3 replicas, 1 to 2 workers: storms at rest", "at-rest", 3, false, (2_000, 4, 8, 960))
        .with_workers(2),
    cell("3 replicas, disk: disks", "disk", 3, true, (5_000, 6, 12, 6)),
    cell("3 replicas, memory: network", "network", 3, false, (5_000, 8, 12, 12)),
    cell("3 replicas, memory: no fault", "none", 3, false, (60_000, 24, 1, 1)),
];

const fn cell(
    name: &'static str,
    faults: &'static str,
    replicas: u8,
    disk: bool,
    (requests, clients, episodes, strokes): (u64, usize, u64, u64),
) -> Cell {
    Cell { name, faults, replicas, disk, requests, clients, episodes, strokes, workers: 1, evicts: false }
}

impl Cell {
    const fn with_workers(self, workers: usize) -> Self {
        Cell { workers, ..self }
    }

    const fn short_of_memory(self) -> Self {
        Cell { evicts: true, ..self }
    }

    /// How its runs are made.
    pub fn options(&self) -> Options {
        Options {
            replicas: self.replicas,
            requests: self.requests,
            clients: self.clients,
            faults: Faults::parse(self.faults).unwrap_or(Faults::None),
            episodes: self.episodes,
            strokes: self.strokes,
            disk: self.disk,
            workers: self.workers,
            evicts: self.evicts,
            ..Options::default()
        }
    }
}

/// A run in which a promise broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenRun {
    /// Its seed.
    pub seed: u64,
    /// Name of its cell.
    pub cell: String,
    /// The first promise that broke.
    pub promise: String,
    /// How.
    pub how: String,
    /// The command that runs it again.
    pub again: String,
}

/// One invocation of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    /// The command.
    pub command: String,
    /// The source it was built from.
    pub commit: String,
    /// Its first seed; the others follow.
    pub first: u64,
    /// Runs.
    pub runs: u64,
    /// Runs at the same time.
    pub jobs: u64,
    /// Seconds it took.
    pub seconds: u64,
}

/// The cells of one or more invocations of a campaign.
#[derive(Clone, Debug, Default)]
pub struct CampaignShare {
    /// The invocations that it counts.
    pub invocations: Vec<Invocation>,
    /// By cell.
    pub cells: BTreeMap<String, CampaignTotals>,
    /// Runs in which a promise broke.
    pub broken: Vec<BrokenRun>,
}

/// A cell as a row of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellRow {
    /// The cell's name.
    pub cell: String,
    /// What its runs came to.
    #[serde(flatten)]
    pub totals: CampaignTotals,
}

impl CampaignShare {
    /// Of an invocation that has no run yet.
    pub fn of(invocation: Invocation) -> Self {
        CampaignShare { invocations: vec![invocation], ..CampaignShare::default() }
    }

    /// From a file.
    pub fn of_rows(invocations: Vec<Invocation>, broken: Vec<BrokenRun>, rows: Vec<CellRow>) -> Self {
        CampaignShare {
            invocations,
            broken,
            cells: rows.into_iter().map(|row| (row.cell, row.totals)).collect(),
        }
    }

    /// The rows of a file.
    pub fn rows(&self) -> Vec<CellRow> {
        let row = |(cell, totals): (&String, &CampaignTotals)| CellRow {
            cell: cell.clone(),
            totals: totals.clone(),
        };
        self.cells.iter().map(row).collect()
    }

    /// Adds a run of `cell`; `again` runs it once more.
    pub fn add(&mut self, cell: &Cell, run: &RunSummary, again: impl FnOnce() -> String) {
        self.invocations.iter_mut().take(1).for_each(|one| one.runs += 1);
        self.cells.entry(cell.name.to_owned()).or_default().add(run);
        if let Some(violation) = &run.violation {
            self.broken.push(BrokenRun {
                seed: run.seed,
                cell: cell.name.to_owned(),
                promise: violation.promise.to_owned(),
                how: violation.how.clone(),
                again: again(),
            });
        }
    }

    /// All cells in one.
    pub fn total(&self) -> CampaignTotals {
        let mut total = CampaignTotals::default();
        self.cells.values().for_each(|cell| total.merge(cell));
        total
    }

    /// Several invocations as one.
    pub fn merged(parts: &[CampaignShare]) -> CampaignShare {
        let mut all = CampaignShare::default();
        for part in parts {
            all.invocations.extend(part.invocations.iter().cloned());
            for (name, cell) in &part.cells {
                all.cells.entry(name.clone()).or_default().merge(cell);
            }
            all.broken.extend(part.broken.iter().cloned());
        }
        all.invocations.sort_by_key(|one| one.first);
        all
    }

    /// What a campaign is summed up from: the files of its invocations; and, of those whose files are gone,
    /// the summary that has them.
    pub fn to_be_merged(summary: Option<CampaignShare>, mut parts: Vec<CampaignShare>) -> Vec<CampaignShare> {
        let has = |part: &CampaignShare, first: u64| part.invocations.iter().any(|one| one.first == first);
        let is_there = |one: &Invocation| parts.iter().any(|part| has(part, one.first));
        if let Some(summary) = summary.filter(|summary| !summary.invocations.iter().all(is_there)) {
            parts.retain(|part| !part.invocations.iter().any(|one| has(&summary, one.first)));
            parts.insert(0, summary);
        }
        parts
    }
}

/// The summary of all invocations, as Markdown.
pub fn page(parts: &[CampaignShare]) -> String {
    let all = CampaignShare::merged(parts);
    let total = all.total();
    let mut page = Page::new("A simulation campaign");
    page.text(format!(
        "{} runs, {} with a broken promise. {} replies compared, byte by byte; {} activated faults ({} \
            corruptions of memory, computation or messages, {} of processes, power and disks, {} of the \
            network's chunks); {} items were seen to be evicted; {:.0} simulated seconds; longest heal {:.2} s. \
            `sim --catalogue` prints what counts as activated, `sim --promises` what is checked after every step.",
        total.runs,
        total.failed,
        total.answered,
        total.activated(),
        total.corruptions(),
        total.injected() - total.corruptions(),
        total.faulty_chunks,
        total.evicted,
        total.simulated_us as f64 / 1e6,
        total.longest_heal_us as f64 / 1e6
    ));
    let invocation = |one: &Invocation| {
        let Invocation { command, commit, first, runs, jobs, seconds } = one;
        format!(
            "`{command}`: commit {commit}, first seed {first}, {runs} runs, {jobs} at a time, {seconds} s."
        )
    };
    page.heading(2, "Invocations").list(all.invocations.iter().map(invocation));
    let cell = |(name, cell): (&String, &CampaignTotals)| {
        format!(
            "**{name}**: {} runs, {} broken; {} replies, {} unanswered; {} activated faults. Evidence: {}. \
                Replaced themselves: {}.",
            cell.runs,
            cell.failed,
            cell.answered,
            cell.unanswered,
            cell.activated(),
            listed(&cell.evidence),
            listed(&cell.replaced)
        )
    };
    page.heading(2, "Clusters and faults").list(all.cells.iter().map(cell));
    page.heading(2, "Faults").text("Who notices and who repairs each: `sim --catalogue`.");
    let fault = |entry: &CatalogueRow| {
        let count = total.faults.get(&entry.fault)?;
        Some([entry.name.to_owned(), count.tried.to_string(), count.injected.to_string()])
    };
    let faults = CATALOGUE.iter().filter_map(fault);
    page.table(Table::new("", ["Fault", "Tried", "Activated"]).rows(faults));
    page.heading(2, "Broken promises");
    if all.broken.is_empty() {
        page.text("No promise broke.");
    }
    for broken in &all.broken {
        let BrokenRun { seed, promise, how, again, .. } = broken;
        let how = how.trim_end_matches([' ', ';', '.']);
        page.list([format!("Seed {seed}, `{promise}`: {how}. Again:")]).push(Block::Command(again.clone()));
    }
    page.markdown()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::run;

    #[test]
    fn parts_are_kept_merged_and_reported() {
        let cell = cell("3 replicas, disk: all faults", "all", 3, true, (50, 3, 1, 6));
        let mut parts = [1, 2].map(|first| CampaignShare::of(Invocation { first, ..Invocation::default() }));
        for (seed, part) in (1..).zip(&mut parts) {
            part.add(&cell, &run(seed, &cell.options()), String::new);
        }
        let read = parts.clone().map(|part| {
            let rows = serde_json::to_value(part.rows()).unwrap();
            CampaignShare::of_rows(part.invocations, part.broken, serde_json::from_value(rows).unwrap())
        });
        let merged = CampaignShare::merged(&read).total();
        assert_eq!(merged.runs, 2);
        assert_eq!(merged.answered, parts[0].total().answered + parts[1].total().answered);
        assert!(page(&read).contains("2 runs, 0 with a broken promise"), "{}", page(&read));
    }

    #[test]
    fn a_summary_stands_for_the_parts_whose_files_are_gone() {
        let cell = cell("3 replicas, disk: all faults", "all", 3, true, (50, 3, 1, 6));
        let part = |first: u64| {
            let command = format!("from {first}");
            let mut part = CampaignShare::of(Invocation { first, command, ..Invocation::default() });
            part.add(&cell, &run(first, &cell.options()), String::new);
            part
        };
        let (one, two, three) = (part(1), part(2), part(3));
        let summary = CampaignShare::merged(&[one.clone(), two.clone()]);
        let runs = |summary: Option<&CampaignShare>, parts: &[&CampaignShare]| {
            let parts = parts.iter().map(|part| (*part).clone()).collect();
            let merged = CampaignShare::merged(&CampaignShare::to_be_merged(summary.cloned(), parts));
            let firsts: Vec<u64> = merged.invocations.iter().map(|one| one.first).collect();
            assert_eq!(merged.total().runs, firsts.len() as u64, "none is counted twice");
            firsts
        };
        assert_eq!(runs(None, &[&one, &three]), [1, 3]);
        assert_eq!(runs(Some(&summary), &[]), [1, 2]);
        assert_eq!(runs(Some(&summary), &[&three, &two]), [1, 2, 3]);
        assert_eq!(runs(Some(&summary), &[&one, &two, &three]), [1, 2, 3]);
        let whole = page(&[one.clone(), two.clone(), three.clone()]);
        assert_eq!(page(&CampaignShare::to_be_merged(Some(summary), vec![three])), whole);
    }

    #[test]
    fn every_cell_has_faults_and_its_own_name() {
        for (row, cell) in CELLS.iter().enumerate() {
            assert!(Faults::parse(cell.faults).is_ok() && cell.clients > 0);
            assert!(CELLS[..row].iter().all(|other| other.name != cell.name));
        }
    }
}
