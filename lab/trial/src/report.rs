//! What a run leaves behind: JSON for programs, Markdown and a summary for people.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use ::report::results::{Origin, write_with_page};
use ::report::{Page, Table};
use memcached_client::history::check::Checked;
use serde::Serialize;
use serde_json::json;

use crate::announce::{Foreseen, Gap, Unanswered, Window, foreseen};
use crate::client::SharedRun;
use crate::keeper::{Death, Totals};
use crate::plan::Plan;
use crate::run::{Episode, Options, TrialCluster};
use crate::sql::BankReport;

/// The kind of these results.
pub const KIND: &str = "trial";
/// Failures that are listed one by one.
const SHOWN: usize = 50;

/// Everything about one run; of a file, the totals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What made it.
    #[serde(skip)]
    pub origin: Origin,
    /// What was done.
    #[serde(skip)]
    pub plan: Plan,
    /// Decides order, victims, faults, requests and lost packets.
    #[serde(skip)]
    pub seed: u64,
    /// Why there were no namespaces; none: there were.
    #[serde(skip)]
    pub confined: Option<String>,
    /// How long troubles came.
    pub seconds: f64,
    /// Requests sent.
    pub requests: u64,
    /// Requests answered.
    pub answered: u64,
    /// Connections made.
    pub connections: u64,
    /// Requests without an answer.
    pub failed: Failed,
    /// What the checker found.
    pub checked: Checked,
    /// What the bank shows, if there is one.
    pub bank: Option<BankReport>,
    /// Keys whose histories are in the timeline.
    pub findings: usize,
    /// Faults due and placed.
    pub faults: (u64, u64),
    /// Longest times without an answer.
    pub waits: LongestWaits,
    /// Packets between the hosts: delivered, lost, late on purpose.
    pub packets: Option<(u64, u64, u64)>,
    /// What the replicas report in their status.
    pub replicas: Vec<Totals>,
    /// Lines in which replicas gave up their state for their peers'.
    pub replaced: Vec<String>,
    /// Processes that ended by themselves.
    pub deaths: Vec<Death>,
    /// The digest that all replicas had in the end, or why there is none.
    pub final_digest: Result<String, String>,
    /// Every trouble.
    #[serde(skip)]
    pub episodes: Vec<Episode>,
    /// Announced windows.
    pub windows: Vec<Window>,
    /// Whether everything is as promised.
    pub holds: bool,
}

/// Requests without an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// In windows that were announced before they began.
    pub announced: u64,
    /// At a replica that replaced itself, outside of such windows.
    pub replaced: u64,
    /// Outside of all windows.
    pub unforeseen: u64,
    /// The first of those that were not announced.
    pub shown: Vec<Unanswered>,
}

/// Longest times without an answer, in milliseconds, of any client.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LongestWaits {
    /// That meet an announced window.
    pub announced_ms: f64,
    /// That meet a replacement.
    pub replaced_ms: f64,
    /// That meet none; 0 when all were shorter than 100 ms.
    pub unforeseen_ms: f64,
    /// Those of each client, in its order: announced, replaced, unforeseen.
    pub by_client_ms: Vec<(f64, f64, f64)>,
}

impl Report {
    /// Makes the report of the results.
    #[allow(clippy::too_many_arguments)] // only `run` has every part, and only here
    pub fn new(
        options: &Options,
        cluster: &TrialCluster<'_>,
        shared: &SharedRun,
        seconds: f64,
        episodes: Vec<Episode>,
        final_digest: Result<String, String>,
        (checked, findings): (Checked, usize),
        bank: Option<BankReport>,
    ) -> Self {
        let windows = cluster.announcer.windows();
        let failures = shared.failures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let gaps = shared.gaps.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
        let keeper = &cluster.keeper;
        let said = |number| keeper.said(number, "has to be replaced");
        let sum = |of: fn(&Episode) -> u64| sum_of(&episodes, of);
        let mut report = Report {
            origin: options.origin.clone(),
            plan: cluster.plan.clone(),
            seed: options.seed,
            confined: cluster.testbed.confined.clone(),
            seconds,
            requests: count(&shared.sent),
            answered: count(&shared.answered),
            connections: count(&shared.connected),
            failed: Failed::of(&failures, &windows),
            checked,
            bank,
            findings,
            faults: (sum(|episode| episode.faults_due), sum(|episode| episode.faults)),
            waits: LongestWaits::of(&gaps, &windows, usize::from(cluster.plan.all_clients())),
            packets: cluster.testbed.switch.as_ref().map(|switch| {
                let traffic = switch.traffic();
                (count(&traffic.delivered), count(&traffic.lost), count(&traffic.delayed))
            }),
            replicas: (0..keeper.size()).map(|number| keeper.totals(number)).collect(),
            replaced: (0..keeper.size()).flat_map(said).collect(),
            deaths: keeper.deaths(),
            final_digest,
            episodes,
            windows,
            holds: false,
        };
        report.holds = report.judge();
        report
    }

    /// Replies or histories that no correct server gives.
    pub fn wrong(&self) -> u64 {
        self.checked.wrong_keys + self.checked.impossible + self.bank.as_ref().map_or(0, BankReport::wrong)
    }

    fn judge(&self) -> bool {
        if self.plan.expect_wrong {
            return self.wrong() > 0;
        }
        self.wrong() == 0
            && self.checked.undecided == 0
            && self.checked.keys > 0
            && self.failed.unforeseen == 0
            && self.final_digest.is_ok()
            && self.bank.as_ref().is_none_or(BankReport::holds)
            && !self.episodes.is_empty()
            && self
                .episodes
                .iter()
                .all(|episode| episode.healed_after.is_some() && episode.blamed_others.is_empty())
    }

    /// Writes `result.json` and `result.md` into `folder`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let settings = json!({ "plan": self.plan, "seed": self.seed, "confined": self.confined });
        write_with_page(folder, &self.origin, &settings, self, &self.episodes, &self.page())
    }

    /// The run on a page.
    pub fn page(&self) -> Page {
        let mut page = Page::new(format!("Trial `{}`: {}", self.plan.name, self.plan.title));
        page.text(&self.plan.about).text(self.origin.made_by()).lines(self.summary());
        page.text("Troubles, one after the other; corruption of the same replica goes on meanwhile:");
        let row = |episode: &Episode| {
            let healed = match (episode.healed_after, &episode.unwell) {
                (Some(after), _) => format!("{after:.1} s"),
                (None, why) => format!("**not**: {}", why.as_deref().unwrap_or("")),
            };
            [
                episode.number.to_string(),
                episode.trouble.clone(),
                format!("{}{}", episode.victim, if episode.led { " (leader)" } else { "" }),
                format!("{:.1} s", episode.trouble_at),
                format!("{:.1} s", episode.ended - episode.trouble_at),
                healed,
                episode.faults.to_string(),
                episode.answered.to_string(),
            ]
        };
        let head = ["#", "Trouble", "Replica", "From", "For", "Healed after", "Faults", "Answered"];
        page.table(Table::new("", head).rows(self.episodes.iter().map(row)));
        page
    }

    /// The run in some lines.
    pub fn summary(&self) -> String {
        let mut lines = Vec::new();
        let (failed, checked, waits) = (&self.failed, &self.checked, &self.waits);
        let per_second = self.answered as f64 / self.seconds.max(0.001);
        lines.push(format!(
            "{:.0} s, seed {}, {} replicas in mode {}, {} clients: {} requests, {} answered ({per_second:.0}/s)",
            self.seconds,
            self.seed,
            self.plan.replicas,
            self.plan.mode,
            self.plan.all_clients(),
            self.requests,
            self.answered
        ));
        lines.push(format!("troubles                {}: {}", self.episodes.len(), self.by_kind()));
        let longest = self.episodes.iter().filter_map(|episode| episode.healed_after).fold(0.0, f64::max);
        let unhealed = self.episodes.iter().filter(|episode| episode.healed_after.is_none()).count();
        lines.push(format!("not healed              {unhealed}; longest healing {longest:.1} s"));
        lines.push(format!("corruptions placed      {} of {} due", self.faults.1, self.faults.0));
        lines.push(format!(
            "wrong                   {} (keys not linearizable {}, impossible replies {})",
            self.wrong(),
            checked.wrong_keys,
            checked.impossible
        ));
        lines.push(format!(
            "checked                 {} keys, {} operations, {} of unknown outcome, {} late reads; undecided {}",
            checked.keys, checked.operations, checked.unknown, checked.late_reads, checked.undecided
        ));
        lines.extend(self.bank.iter().flat_map(BankReport::lines));
        lines.push(format!(
            "failed                  {} outside of windows; {} announced, {} at a replica that replaced itself or \
                its state",
            failed.unforeseen, failed.announced, failed.replaced
        ));
        lines.push(format!(
            "longest without answer  {:.0} ms outside of windows; {:.0} ms announced, {:.0} ms at a replacement",
            waits.unforeseen_ms, waits.announced_ms, waits.replaced_ms
        ));
        let total = |of: fn(&Totals) -> u64| self.replicas.iter().map(of).sum::<u64>();
        lines.push(format!(
            "replicas say            {} mismatches, {} repairs, {} failed checks, {} dropped frames, {} \
                state transfers",
            total(|totals| totals.mismatches),
            total(|totals| totals.repairs),
            total(|totals| totals.failed_checks),
            total(|totals| totals.dropped_frames),
            total(|totals| totals.state_transfers)
        ));
        lines.push(format!(
            "ended by themselves     {} processes, {} of them to be replaced",
            self.deaths.len(),
            self.replaced.len()
        ));
        let others = self.episodes.iter().map(|episode| episode.blamed_others.len()).sum::<usize>();
        let late = sum_of(&self.episodes, |episode| episode.blamed_late);
        lines.push(format!("blamed wrongly          {others}; {late} records blame the victim before, late"));
        lines.push(match &self.final_digest {
            Ok(digest) => format!("digests in the end      equal: {digest}"),
            Err(why) => format!("digests in the end      NOT EQUAL: {why}"),
        });
        lines.push(match (self.holds, self.plan.expect_wrong) {
            (true, false) => "everything held".to_owned(),
            (true, true) => "wrong on purpose, and the checker noticed".to_owned(),
            (false, true) => "WRONG ON PURPOSE, AND THE CHECKER DID NOT NOTICE".to_owned(),
            (false, false) => "NOT EVERYTHING HELD".to_owned(),
        });
        lines.join("\n") + "\n"
    }

    fn by_kind(&self) -> String {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for episode in &self.episodes {
            *kinds.entry(&episode.kind).or_default() += 1;
        }
        kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
    }
}

fn sum_of(episodes: &[Episode], of: fn(&Episode) -> u64) -> u64 {
    episodes.iter().map(of).sum()
}

impl Failed {
    fn of(failures: &[Unanswered], windows: &[Window]) -> Self {
        let mut failed = Failed::default();
        for failure in failures {
            match foreseen(windows, failure.replica, failure.sent, failure.ended) {
                Foreseen::Announced => {
                    failed.announced += 1;
                    continue;
                }
                Foreseen::Replaced => failed.replaced += 1,
                Foreseen::No => failed.unforeseen += 1,
            }
            if failed.shown.len() < SHOWN {
                failed.shown.push(failure.clone());
            }
        }
        failed
    }
}

impl LongestWaits {
    fn of(gaps: &[Gap], windows: &[Window], clients: usize) -> Self {
        let mut waits =
            LongestWaits { by_client_ms: vec![(0.0, 0.0, 0.0); clients], ..LongestWaits::default() };
        for gap in gaps {
            let ms = (gap.to - gap.from) as f64 / 1e6;
            let own = &mut waits.by_client_ms[usize::from(gap.client)];
            let (own, all) = match foreseen(windows, gap.replica, gap.from, gap.to) {
                Foreseen::Announced => (&mut own.0, &mut waits.announced_ms),
                Foreseen::Replaced => (&mut own.1, &mut waits.replaced_ms),
                Foreseen::No => (&mut own.2, &mut waits.unforeseen_ms),
            };
            *own = own.max(ms);
            *all = all.max(ms);
        }
        waits
    }
}

/// An episode in a line.
pub fn episode_line(episode: &Episode) -> String {
    let healed = match (episode.healed_after, &episode.unwell) {
        (Some(after), _) => format!("healed after {after:.1} s"),
        (None, why) => format!("NOT HEALED: {}", why.as_deref().unwrap_or("")),
    };
    let others = match episode.blamed_others.len() {
        0 => String::new(),
        count => format!("; {count} RECORDS BLAME OTHERS"),
    };
    let note = episode.note.as_ref().map_or_else(String::new, |note| format!(" ({note})"));
    format!(
        "{:>3}. replica {}{}: {}{note}, {:.1} s; {} faults; {healed}{others}",
        episode.number,
        episode.victim,
        if episode.led { " (leader)" } else { "" },
        episode.trouble,
        episode.ended - episode.trouble_at,
        episode.faults
    )
}
