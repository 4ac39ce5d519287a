//! What came of the pairs: one result per configuration, the evidence of each group that hung, and the table of all.

use std::collections::BTreeMap;

use ::report::results::Origin;
use ::report::{Page, Table};
use memcached_client::history::check::Checked;
use serde::Serialize;
use serde_json::{Value, json};

use super::Configuration;
use crate::announce::{Foreseen, Gap, Window, foreseen};
use crate::keeper::Death;
use crate::run::TrialCluster;

/// Lines of each replica's output that are kept of a group that hung.
const LAST_LINES: usize = 15;

/// One strike.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StrikeRecord {
    /// A short description.
    pub trouble: String,
    /// The replica, from 1.
    pub victim: u8,
    /// Whether it led the group.
    pub led: bool,
    /// When, in seconds of the group's run.
    pub at_s: f64,
    /// How long the trouble lasts, in seconds.
    pub lasts_s: f64,
    /// What the group tolerated.
    pub tolerated: u8,
    /// Whether it tolerated one more than had been hit without its knowledge.
    pub permitted: bool,
}

impl StrikeRecord {
    fn line(&self) -> String {
        format!(
            "replica {}{}: {}, {:.1} s{}",
            self.victim,
            if self.led { " (leader)" } else { "" },
            self.trouble,
            self.lasts_s,
            if self.permitted { "" } else { " (NOT PERMITTED)" }
        )
    }
}

/// Two strikes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// From 1.
    pub number: usize,
    /// The strikes so far.
    pub strikes: Vec<StrikeRecord>,
    /// Seconds from the end of the first trouble until the group tolerated the second; none where it did before.
    pub waited_s: Option<f64>,
    /// Seconds from the end of the last trouble until the group was whole, and every client had a reply.
    pub whole_after_s: f64,
}

impl Pair {
    pub(super) fn new(number: usize) -> Self {
        Pair { number, strikes: Vec::new(), waited_s: None, whole_after_s: 0.0 }
    }

    fn strikes_line(&self) -> String {
        let lines: Vec<String> = self.strikes.iter().map(StrikeRecord::line).collect();
        if lines.is_empty() { "before its first strike".to_owned() } else { lines.join(", then ") }
    }

    /// It in a line.
    pub fn line(&self) -> String {
        let waited = self.waited_s.map_or_else(String::new, |waited| format!("second after {waited:.2} s; "));
        format!(
            "{:>3}. {}; {waited}whole after {:.2} s",
            self.number,
            self.strikes_line(),
            self.whole_after_s
        )
    }
}

/// A pair after which the group did not come back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hang {
    /// The pair as far as it came.
    pub pair: Pair,
    /// How it was seen.
    pub why: String,
    /// The last status of each replica, and its age in seconds.
    pub statuses: Vec<Value>,
    /// The last lines of each replica's output.
    pub said: Vec<Vec<String>>,
}

impl Hang {
    pub(super) fn of(pair: Pair, why: String, cluster: &TrialCluster<'_>) -> Self {
        let keeper = &cluster.keeper;
        let status = |number: usize| {
            let last = keeper.last_status(number);
            last.map_or(Value::Null, |(age, status)| json!({ "age_s": age.as_secs_f64(), "status": status }))
        };
        let said = |number| keeper.last_lines(number, LAST_LINES);
        Hang {
            pair,
            why,
            statuses: (0..keeper.size()).map(status).collect(),
            said: (0..keeper.size()).map(said).collect(),
        }
    }

    /// It in a line.
    pub fn line(&self) -> String {
        format!("{:>3}. {}; HUNG: {}", self.pair.number, self.pair.strikes_line(), self.why)
    }
}

/// The verdict on a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryVerdict {
    /// All pairs are done, and everything held.
    Held,
    /// A reply was wrong.
    Wrong,
    /// A history could not be decided.
    Undecided,
    /// A group did not come back.
    Hung,
    /// States differ in the end.
    Unequal,
    /// A strike fell that the group did not tolerate.
    NotPermitted,
    /// The operator ended the run.
    Unfinished,
}

impl RecoveryVerdict {
    /// It in words.
    pub fn words(self) -> &'static str {
        match self {
            RecoveryVerdict::Held => "held",
            RecoveryVerdict::Wrong => "WRONG",
            RecoveryVerdict::Undecided => "UNDECIDED",
            RecoveryVerdict::Hung => "HUNG",
            RecoveryVerdict::Unequal => "STATES DIFFER",
            RecoveryVerdict::NotPermitted => "NOT PERMITTED",
            RecoveryVerdict::Unfinished => "UNFINISHED",
        }
    }
}

/// What came of one configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recovered {
    /// Its name.
    pub name: &'static str,
    /// The group in a few words.
    pub title: &'static str,
    /// Pairs that were asked for.
    #[serde(rename = "asked")]
    pub requested: usize,
    /// Pairs after which the group was whole.
    pub pairs: Vec<Pair>,
    /// Pairs after which it was not.
    pub hung: Vec<Hang>,
    /// Requests answered.
    pub answered: u64,
    /// What the checker found, in all groups.
    pub checked: Checked,
    /// The longest time without a reply of a client whose replicas were not hit, in milliseconds; 0 when all were
    /// shorter than 100 ms.
    pub longest_gap_ms: f64,
    /// The same of any client.
    pub longest_wait_ms: f64,
    /// Groups whose states differed in the end.
    pub unequal: Vec<String>,
    /// Processes that ended by themselves.
    pub deaths: Vec<Death>,
    /// Why there were no namespaces.
    pub confined: Option<String>,
    /// The verdict.
    pub verdict: RecoveryVerdict,
}

impl Recovered {
    pub(super) fn new(configuration: &Configuration, requested: usize) -> Self {
        Recovered {
            name: configuration.name,
            title: configuration.title,
            requested,
            pairs: Vec::new(),
            hung: Vec::new(),
            answered: 0,
            checked: Checked::default(),
            longest_gap_ms: 0.0,
            longest_wait_ms: 0.0,
            unequal: Vec::new(),
            deaths: Vec::new(),
            confined: None,
            verdict: RecoveryVerdict::Unfinished,
        }
    }

    /// Records the gaps of one group. A client counts as one of a victim from the strike until that
    /// replica serves again.
    pub(super) fn take_gaps(&mut self, gaps: &[Gap], windows: &[Window]) {
        for gap in gaps {
            let ms = (gap.to - gap.from) as f64 / 1e6;
            self.longest_wait_ms = self.longest_wait_ms.max(ms);
            let of_a_victim = windows.iter().any(|window| {
                let is_its_own = window.planned && [gap.before, gap.replica].contains(&window.replica);
                let one = std::slice::from_ref(window);
                is_its_own && foreseen(one, window.replica, gap.from, gap.to) != Foreseen::No
            });
            if !of_a_victim {
                self.longest_gap_ms = self.longest_gap_ms.max(ms);
            }
        }
    }

    pub(super) fn take_checked(&mut self, checked: &Checked) {
        let sum = &mut self.checked;
        sum.keys += checked.keys;
        sum.operations += checked.operations;
        sum.unknown += checked.unknown;
        sum.late_reads += checked.late_reads;
        sum.wrong_keys += checked.wrong_keys;
        sum.impossible += checked.impossible;
        sum.impossible_words.extend(checked.impossible_words.iter().cloned());
        sum.undecided += checked.undecided;
        sum.longest = sum.longest.max(checked.longest);
    }

    /// The verdict, once all groups are over.
    pub(super) fn conclude(&mut self) {
        let strikes = || {
            let hung = self.hung.iter().map(|hang| &hang.pair);
            self.pairs.iter().chain(hung).flat_map(|pair| &pair.strikes)
        };
        self.verdict = if self.checked.wrong_keys + self.checked.impossible > 0 {
            RecoveryVerdict::Wrong
        } else if !self.hung.is_empty() {
            RecoveryVerdict::Hung
        } else if !self.unequal.is_empty() {
            RecoveryVerdict::Unequal
        } else if strikes().any(|strike| !strike.permitted) {
            RecoveryVerdict::NotPermitted
        } else if self.checked.undecided > 0 {
            RecoveryVerdict::Undecided
        } else if self.pairs.len() < self.requested || self.checked.keys == 0 {
            RecoveryVerdict::Unfinished
        } else {
            RecoveryVerdict::Held
        };
    }

    /// Whether everything is as promised.
    pub fn holds(&self) -> bool {
        self.verdict == RecoveryVerdict::Held
    }

    fn waits(&self) -> (usize, f64) {
        let waits = || self.pairs.iter().filter_map(|pair| pair.waited_s);
        (waits().count(), waits().fold(0.0, f64::max))
    }

    fn by_kind(&self) -> String {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for strike in self.pairs.iter().flat_map(|pair| &pair.strikes) {
            let kind = strike.trouble.split([' ', ':']).next().unwrap_or_default();
            *kinds.entry(kind).or_default() += 1;
        }
        kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
    }

    /// It in some lines, with the evidence of every group that hung.
    pub fn summary(&self) -> String {
        let (checked, (waits, longest)) = (&self.checked, self.waits());
        let whole = self.pairs.iter().map(|pair| pair.whole_after_s).fold(0.0, f64::max);
        let mut lines = vec![
            format!("{}: {}", self.title, self.verdict.words()),
            format!(
                "  pairs                 {} of {} done, {} hung",
                self.pairs.len(),
                self.requested,
                self.hung.len()
            ),
            format!("  strikes               {}", self.by_kind()),
            format!(
                "  waited for tolerates  {waits} times, {longest:.2} s at most after the first trouble's end"
            ),
            format!("  whole again           {whole:.2} s after the last trouble's end at most"),
            format!(
                "  longest gap           {:.0} ms of clients of replicas that were not struck; {:.0} ms of any",
                self.longest_gap_ms, self.longest_wait_ms
            ),
            format!(
                "  checked               {} operations on {} keys, {} of unknown outcome: {} keys wrong, {} impossible \
                    replies, {} undecided",
                checked.operations,
                checked.keys,
                checked.unknown,
                checked.wrong_keys,
                checked.impossible,
                checked.undecided
            ),
            format!("  ended by themselves   {} processes", self.deaths.len()),
        ];
        lines.extend(self.unequal.iter().map(|why| format!("  states                {why}")));
        lines.extend(checked.impossible_words.iter().map(|what| format!("  impossible            {what}")));
        for hang in &self.hung {
            lines.push(format!("  hung {}", hang.line().trim_start()));
            for (number, (status, said)) in hang.statuses.iter().zip(&hang.said).enumerate() {
                lines.push(format!("    replica {}: {status}", number + 1));
                lines.extend(said.iter().map(|line| format!("      {line}")));
            }
        }
        lines.join("\n") + "\n"
    }

    fn row(&self) -> [String; 9] {
        let (waits, longest) = self.waits();
        let whole = self.pairs.iter().map(|pair| pair.whole_after_s).fold(0.0, f64::max);
        [
            self.title.to_owned(),
            format!("{} of {}", self.pairs.len(), self.requested),
            self.hung.len().to_string(),
            format!("{waits}, {longest:.2} s"),
            format!("{whole:.2} s"),
            format!("{:.0} ms", self.longest_gap_ms),
            self.checked.operations.to_string(),
            (self.checked.wrong_keys + self.checked.impossible).to_string(),
            self.verdict.words().to_owned(),
        ]
    }
}

/// The page of a campaign.
pub fn page(origin: &Origin, seed: u64, all: &[Recovered]) -> Page {
    let mut page = Page::new("Recovery: strike after strike, as soon as the group tolerates it");
    page.text(origin.made_by());
    page.text(format!(
        "Seed {seed}. A second replica is struck as soon as the group says that it tolerates one more failure. Waits \
            and times to be whole are counted from the end of the trouble; gaps are those of clients whose replicas \
            were not struck, 0 where all were shorter than 100 ms."
    ));
    let head = [
        "Group",
        "Pairs",
        "Hung",
        "Waited for tolerates",
        "Whole after",
        "Longest gap",
        "Operations checked",
        "Wrong",
        "Verdict",
    ];
    page.table(Table::new("", head).rows(all.iter().map(Recovered::row)));
    page
}

#[cfg(test)]
mod tests {
    use super::super::CONFIGURATIONS;
    use super::*;

    fn strike(permitted: bool) -> StrikeRecord {
        StrikeRecord {
            trouble: "kill -9, and a restart".into(),
            victim: 1,
            led: false,
            at_s: 0.0,
            lasts_s: 0.1,
            tolerated: u8::from(permitted),
            permitted,
        }
    }

    fn found(permitted: bool) -> Recovered {
        let mut found = Recovered::new(&CONFIGURATIONS[0], 1);
        found.checked.keys = 1;
        found.pairs.push(Pair { strikes: vec![strike(true), strike(permitted)], ..Pair::new(1) });
        found
    }

    fn verdict(change: impl FnOnce(&mut Recovered)) -> RecoveryVerdict {
        let mut found = found(true);
        change(&mut found);
        found.conclude();
        assert_eq!(found.holds(), found.verdict == RecoveryVerdict::Held);
        found.verdict
    }

    #[test]
    fn only_what_held_in_every_way_holds() {
        let hang = || Hang { pair: Pair::new(1), why: String::new(), statuses: Vec::new(), said: Vec::new() };
        assert_eq!(verdict(|_| ()), RecoveryVerdict::Held);
        assert_eq!(verdict(|one| one.hung.push(hang())), RecoveryVerdict::Hung);
        assert_eq!(verdict(|one| one.checked.wrong_keys = 1), RecoveryVerdict::Wrong);
        assert_eq!(verdict(|one| one.checked.impossible = 1), RecoveryVerdict::Wrong);
        assert_eq!(verdict(|one| one.checked.undecided = 1), RecoveryVerdict::Undecided);
        assert_eq!(verdict(|one| one.checked.keys = 0), RecoveryVerdict::Unfinished);
        assert_eq!(verdict(|one| one.requested = 2), RecoveryVerdict::Unfinished);
        assert_eq!(verdict(|one| one.unequal.push("x".into())), RecoveryVerdict::Unequal);
        assert_eq!(verdict(|one| *one = found(false)), RecoveryVerdict::NotPermitted);
    }

    #[test]
    fn gaps_of_clients_of_a_victim_do_not_count() {
        let window = Window { begin: 100, end: Some(200), replica: 2, planned: true, why: String::new() };
        let gap = |before: u8, replica: u8, from: u64, to: u64| Gap {
            client: 0,
            before,
            replica,
            from: from * 1_000_000,
            to: to * 1_000_000,
        };
        let window = Window { begin: 100_000_000, end: Some(200_000_000), ..window };
        let longest = |gap: Gap| {
            let mut one = found(true);
            one.take_gaps(&[gap], std::slice::from_ref(&window));
            (one.longest_gap_ms, one.longest_wait_ms)
        };
        assert_eq!(longest(gap(2, 3, 150, 450)), (0.0, 300.0), "it moved away from the struck one");
        assert_eq!(longest(gap(1, 2, 150, 450)), (0.0, 300.0));
        assert_eq!(longest(gap(1, 3, 150, 450)), (300.0, 300.0));
        assert_eq!(longest(gap(2, 2, 250, 450)), (200.0, 200.0), "the replica was back");
    }

    #[test]
    fn a_hang_is_reported_with_its_evidence() {
        let mut one = found(true);
        one.hung.push(Hang {
            pair: Pair { strikes: vec![strike(true)], ..Pair::new(2) },
            why: "the group never tolerates a second strike".into(),
            statuses: vec![json!({ "phase": "joining" })],
            said: vec![vec!["waits for replica 2".into()]],
        });
        one.conclude();
        let summary = one.summary();
        for what in ["HUNG", "never tolerates", "kill -9", "joining", "waits for replica 2"] {
            assert!(summary.contains(what), "{what}: {summary}");
        }
    }
}
