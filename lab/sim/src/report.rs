//! The pages that `crosscheck-lab sim` prints: promises from the checkers, faults from the catalogue and a campaign.

use std::collections::BTreeMap;

use report::Page;
use serde::{Deserialize, Serialize};

use crate::fault::{CATALOGUE, SimFault};
use crate::mutation::MUTATIONS;
use crate::promises;
use crate::run::{Chains, Count, RunSummary, Verified};

/// What the checkers do not cover.
const NOT_CHECKED: [&str; 5] = [
    "That the objects which a vote finds different are those where an error began: errors of a handler spread \
        under valid checksums, and only damage at rest is compared with what was hit.",
    "The code between the gate and the socket (`server/crosscheck/src/clients`): the simulation hands over whole \
        replies.",
    "Which item is evicted: only that it was not a fresh one, that it stays gone, and that all replicas agree.",
    "Several workers overtake each other where one of them takes or passes a turn, looks for its next request or \
        ends one, not between any two instructions: what happens in between is loom's \
        (`server/schedule/src/model.rs`).",
    "In mode R0GV: errors at rest that only a vote on a scrub finds, and in trees; losses of more than f \
        memories; groups of two; requests that miss a lock. Verifiers without crash vectors, without the rule of the \
        highest view, or whose executor votes again after a loss of memory are seen to fail in `server/verify/tests` \
        (explorations of all interleavings); random runs hardly find them.",
];

/// What `sim --promises` prints.
pub fn promises() -> String {
    let mut page = Page::new("Promises");
    page.text(
        "What CrossCheck promises, and the checker in the deterministic simulation that looks after every step \
            (`lab/sim/src/promises`, one file each). Each checker is seen to fail: `crosscheck-lab sim --mutations` \
            breaks the promise on purpose and shows who notices.",
    );
    let abouts = promises::all().iter().map(|promise| promise.about()).collect::<Vec<_>>();
    for about in abouts.into_iter().chain(promises::OF_THE_RUN) {
        let mutations: Vec<String> = MUTATIONS
            .iter()
            .filter(|mutation| mutation.expects == about.name)
            .map(|mutation| format!("`{}` ({})", mutation.name, mutation.what))
            .collect();
        page.heading(2, about.name).text(about.promise).list([
            format!("Source: {}.", about.section),
            format!("Checked: {}", about.check),
            format!("Seen to fail with: {}.", mutations.join(", ")),
        ]);
    }
    page.heading(2, "Not checked yet").list(NOT_CHECKED);
    page.markdown()
}

/// What a campaign came to, added up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CampaignTotals {
    /// Runs.
    pub runs: u64,
    /// Runs in which a promise broke.
    pub failed: u64,
    /// Commands answered, every byte compared.
    pub answered: u64,
    /// Commands whose connection or replica was gone.
    pub unanswered: u64,
    /// Items that were seen to be evicted.
    #[serde(default)]
    pub evicted: u64,
    /// Simulated microseconds.
    pub simulated_us: u64,
    /// Longest time until everything had healed.
    pub longest_heal_us: u64,
    /// By kind.
    pub faults: BTreeMap<SimFault, Count>,
    /// Network chunks that met a fault.
    #[serde(rename = "chunks_struck")]
    pub faulty_chunks: u64,
    /// Evidence by the stage that noticed.
    pub evidence: BTreeMap<String, u64>,
    /// Replicas that replaced themselves, by reason.
    pub replaced: BTreeMap<String, u64>,
    /// In verified mode.
    #[serde(default)]
    pub verified: Verified,
    /// Of chains of strikes.
    #[serde(default)]
    pub chains: Chains,
}

impl CampaignTotals {
    /// Adds a run.
    pub fn add(&mut self, run: &RunSummary) {
        self.runs += 1;
        self.verified.add(&run.verified);
        self.chains.add(&run.chains);
        self.failed += u64::from(run.violation.is_some());
        self.answered += run.answered;
        self.unanswered += run.unanswered;
        self.evicted += run.evicted;
        self.simulated_us += run.simulated_us;
        self.longest_heal_us = self.longest_heal_us.max(run.longest_heal_us);
        self.faulty_chunks += run.faulty_chunks;
        for (fault, count) in &run.faults {
            let sum = self.faults.entry(*fault).or_default();
            sum.tried += count.tried;
            sum.injected += count.injected;
        }
        for (stage, count) in &run.evidence {
            *self.evidence.entry(stage.clone()).or_default() += count;
        }
        for (why, count) in &run.replaced {
            *self.replaced.entry(why.clone()).or_default() += count;
        }
    }

    /// Adds what another one came to.
    pub fn merge(&mut self, other: &CampaignTotals) {
        self.runs += other.runs;
        self.verified.add(&other.verified);
        self.chains.add(&other.chains);
        self.failed += other.failed;
        self.answered += other.answered;
        self.unanswered += other.unanswered;
        self.evicted += other.evicted;
        self.simulated_us += other.simulated_us;
        self.longest_heal_us = self.longest_heal_us.max(other.longest_heal_us);
        self.faulty_chunks += other.faulty_chunks;
        for (fault, count) in &other.faults {
            let sum = self.faults.entry(*fault).or_default();
            sum.tried += count.tried;
            sum.injected += count.injected;
        }
        for (stage, count) in &other.evidence {
            *self.evidence.entry(stage.clone()).or_default() += count;
        }
        for (why, count) in &other.replaced {
            *self.replaced.entry(why.clone()).or_default() += count;
        }
    }

    /// All faults that took effect: injected faults, and affected chunks of the network.
    pub fn activated(&self) -> u64 {
        self.injected() + self.faulty_chunks
    }

    /// Corruptions of memory, computation and messages that were injected.
    pub fn corruptions(&self) -> u64 {
        let corrupts = |(fault, _): &(&SimFault, &Count)| fault.is_of_memory();
        self.faults.iter().filter(corrupts).map(|(_, count)| count.injected).sum()
    }

    /// Faults that were injected.
    pub fn injected(&self) -> u64 {
        self.faults.values().map(|count| count.injected).sum()
    }
}

/// How the page of faults begins, before and after the name of the command.
const FAULTS: [&str; 3] = [
    "What can go wrong in the deterministic simulation, who notices, who repairs, and what was measured: every \
        kind alone, then all kinds mixed. Generated by",
    "the same command gives the same figures.",
    "A fault is *activated* when it took effect: a corruption has changed a bit of an object, a digest, a reply, a \
        request or a frame (one that found no fitting object, or whose process ended before its occasion, is \
        not counted); a process ended or stood still; a disk lost, tore, refused or changed something; a chunk \
        of the network was lost, doubled, overtaken or changed. *Struck* counts the activated faults of a kind, \
        without the network's chunks. *Replies* were compared byte by byte. *Evidence* counts records at all \
        replicas, by where the error was noticed. *Heal* is the longest simulated time from the end of an \
        episode until all replicas served and were bit-identical, with all votes closed. *Broken* counts runs \
        in which any promise broke (`sim --promises`); a wrong reply would be one.",
];

/// What `sim --catalogue` prints: one campaign per kind of fault, alone, and one with all of them; `command` made it.
pub fn faults(alone: &[(SimFault, CampaignTotals)], all: &CampaignTotals, command: &str) -> String {
    let mut page = Page::new("Faults");
    page.text(format!("{} `{command}`; {}", FAULTS[0], FAULTS[1])).text(FAULTS[2]);
    for (fault, campaign) in alone {
        let entry = fault.entry();
        page.heading(2, entry.name).list([
            format!("What happens: {}.", entry.what),
            format!("Who notices: {}.", entry.notices),
            format!("Who repairs: {}.", entry.repairs),
            measured(campaign),
        ]);
    }
    page.heading(2, "All kinds mixed");
    if all.runs == 0 {
        page.text("Not measured in this campaign.");
        return page.markdown();
    }
    page.text(format!(
        "All {} kinds mixed, half of the runs with logs in memory and half with logs on disk: {} runs, {} \
            faults struck ({} messages besides), {} replies compared, {} commands without an answer (their \
            replica or connection was gone), {:.0} simulated seconds, longest heal {:.2} s, {} runs with a \
            broken promise.",
        CATALOGUE.len(),
        all.runs,
        all.injected(),
        all.faulty_chunks,
        all.answered,
        all.unanswered,
        all.simulated_us as f64 / 1e6,
        all.longest_heal_us as f64 / 1e6,
        all.failed,
    ));
    page.list([
        format!("Evidence: {}.", listed(&all.evidence)),
        format!("Replicas that replaced themselves: {}.", listed(&all.replaced)),
    ]);
    page.markdown()
}

/// The results of one kind of fault alone.
fn measured(campaign: &CampaignTotals) -> String {
    if campaign.runs == 0 {
        return "Not measured in this campaign.".to_owned();
    }
    format!(
        "Measured: {} runs, {} struck, {} replies, evidence: {}, heal {:.2} s, {} broken.",
        campaign.runs,
        campaign.injected(),
        campaign.answered,
        listed(&campaign.evidence),
        campaign.longest_heal_us as f64 / 1e6,
        campaign.failed
    )
}

pub(crate) fn listed(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "none".into();
    }
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}
