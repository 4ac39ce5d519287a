//! The result of a campaign: counts in every group of the report, and the full records of the runs that failed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use report::results::{Origin, ResultFile, write};
use serde::{Deserialize, Serialize};

use crate::fault::TracerFault;
use crate::hooks;
use crate::record::{InjectionClass, InjectionRecord};
use crate::sei_table;

/// The kind of a result about flipped bits in single instructions.
pub const FLIPS: &str = "injection";
/// The kind of a result about faults that a replica placed in itself.
pub const HOOKS: &str = "injection-hooks";
/// The number of groups of one table, the largest ones, that a report shows and a file contains.
pub const LARGEST: usize = 25;
/// Full records of runs that did not fail, but left a wrong state or stopped the cluster.
const OTHERS_IN_FULL: usize = 100;
/// Bytes for the text of all full records together: a few runs are quoted at length, hundreds are not.
const WORDS: usize = 32 * 1024;
/// Bytes that each of them gets at least.
const FEWEST_WORDS: usize = 120;
/// Crates whose code checks other code: a fault in them is a fault in the checker.
pub const CHECKER: [&str; 3] = ["object", "execute", "vote"];

/// Runs, by how they ended.
pub type Counts = BTreeMap<InjectionClass, u64>;
/// Runs with a common property, under its name.
pub type Group = BTreeMap<String, Counts>;

/// The common property of a group, in the order of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The fault's type.
    Fault,
    /// The kind of fault that a replica injected into itself.
    Kind,
    /// Of a hardened program: the fault's type, and how the run ended in the words of SEI's tables.
    Sei,
    /// Of a hardened program: the part of a handler that was hit.
    Part,
    /// The crate of the instruction, or of its nearest caller in this workspace.
    Room,
    /// The module of the instruction.
    Module,
    /// Its function.
    Function,
    /// The flipped bit, and its place.
    Bit,
    /// How the run ended, with the details.
    Ending,
}

/// Of clusters: by which comparison wrong replies and different states could have been detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterComparison {
    /// Runs whose final states were compared.
    pub runs: u64,
    /// Wrong replies that a replica detected.
    pub noticed: u64,
    /// Wrong replies that no replica detected, with states that differ in the end.
    pub differ: u64,
    /// The same, with equal states.
    pub equal: u64,
    /// Right replies, with states that differ in the end, which no replica detected.
    pub latent: u64,
}

/// The description of a campaign, for every reader of its figures and for repetitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CampaignSettings {
    /// The target, by the name of its file.
    pub target: String,
    /// The campaign's seed.
    pub seed: u64,
    /// Runs, lost ones included.
    pub records: u64,
    /// Further information for readers.
    #[serde(default)]
    pub remark: String,
    /// What made it.
    pub origin: Origin,
}

/// Records of one kind. Flips in instructions and hooks measure different things: no table contains both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Records {
    /// Of flipped bits in single instructions.
    Native(Vec<InjectionRecord>),
    /// Of faults that a replica placed in itself.
    Hooks(Vec<hooks::HookRecord>),
}

/// What was counted over all runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InjectionTotals {
    /// All runs.
    pub all: Counts,
    /// The same runs in groups. A table that lacks a part is not included.
    pub tables: BTreeMap<By, Group>,
    /// How many of the smaller groups of a table are not included.
    #[serde(default)]
    pub left_out: BTreeMap<By, u64>,
    /// Zeros where no states were compared.
    #[serde(default)]
    pub compared: ClusterComparison,
}

/// One campaign, or several together.
#[derive(Clone, Debug, PartialEq)]
pub struct InjectionResult {
    /// The campaigns that were counted.
    pub campaigns: Vec<CampaignSettings>,
    /// The counts.
    pub totals: InjectionTotals,
    /// Full records: every failure, and the first ones that were latent or made no progress.
    pub full_records: Records,
    /// Whether each run has a full record.
    pub is_full: bool,
}

impl InjectionResult {
    /// Of a campaign without any run yet; its kind says what is injected.
    pub fn new(campaign: CampaignSettings, is_full: bool) -> Self {
        let full_records = match campaign.origin.kind.as_str() {
            HOOKS => Records::Hooks(Vec::new()),
            _ => Records::Native(Vec::new()),
        };
        InjectionResult {
            campaigns: vec![campaign],
            totals: InjectionTotals::default(),
            full_records,
            is_full,
        }
    }

    /// Reads a result.
    ///
    /// # Errors
    /// When it cannot be read, or is that of another command.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let file = ResultFile::read(path)?;
        let (campaigns, totals, full_records) = match file.origin.kind.as_str() {
            FLIPS => {
                let (_, campaigns, totals, rows) = file.parts()?;
                (campaigns, totals, Records::Native(rows))
            }
            HOOKS => {
                let (_, campaigns, totals, rows) = file.parts()?;
                (campaigns, totals, Records::Hooks(rows))
            }
            kind => bail!("{} is a result of kind {kind}, and not of an injection", path.display()),
        };
        Ok(InjectionResult { campaigns, totals, full_records, is_full: false })
    }

    /// Writes it in place of the old file: unless it is full, without small groups, and with long quotations cut.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let shortened = (!self.is_full).then(|| self.clone().shortened());
        let InjectionResult { campaigns, totals, full_records, .. } = shortened.as_ref().unwrap_or(self);
        let origin = &campaigns.first().context("no campaign")?.origin;
        match full_records {
            Records::Native(rows) => write(path, origin, campaigns, totals, rows),
            Records::Hooks(rows) => write(path, origin, campaigns, totals, rows),
        }
    }

    /// Adds the runs of another campaign.
    ///
    /// # Errors
    /// When it is of the other injector.
    pub fn add(&mut self, other: InjectionResult) -> anyhow::Result<()> {
        match (&mut self.full_records, other.full_records) {
            (Records::Native(records), Records::Native(more)) => records.extend(more),
            (Records::Hooks(records), Records::Hooks(more)) => records.extend(more),
            _ => bail!("flips in instructions and hooks share no table: name the files of one kind only"),
        }
        self.campaigns.extend(other.campaigns);
        let (sum, more) = (&mut self.totals, other.totals);
        add_counts(&mut sum.all, &more.all);
        for (by, group) in more.tables {
            let sums = sum.tables.entry(by).or_default();
            for (name, counts) in group {
                add_counts(sums.entry(name).or_default(), &counts);
            }
        }
        // A sum over incomplete groups would look like one over all of them.
        for (by, count) in more.left_out {
            *sum.left_out.entry(by).or_default() += count;
        }
        for by in sum.left_out.keys() {
            sum.tables.remove(by);
        }
        let (sum, more) = (&mut sum.compared, more.compared);
        sum.runs += more.runs;
        sum.noticed += more.noticed;
        sum.differ += more.differ;
        sum.equal += more.equal;
        sum.latent += more.latent;
        Ok(())
    }

    /// Without small groups, and with long quotations cut.
    #[must_use]
    fn shortened(mut self) -> Self {
        // The groups of SEI's table are few, and each of them is a part of its sums.
        for (by, group) in self.totals.tables.iter_mut().filter(|(by, _)| **by != By::Sei) {
            let largest = largest(group);
            let small = largest.len().saturating_sub(LARGEST) as u64;
            if small > 0 {
                *group = largest
                    .into_iter()
                    .take(LARGEST)
                    .map(|(name, counts)| (name.clone(), counts.clone()))
                    .collect();
                *self.totals.left_out.entry(*by).or_default() += small;
            }
        }
        let count = match &self.full_records {
            Records::Native(records) => records.len(),
            Records::Hooks(records) => records.len(),
        };
        let longest = (WORDS / count.max(1)).max(FEWEST_WORDS);
        match &mut self.full_records {
            Records::Native(records) => {
                for record in records {
                    record.subclass = folded(&record.subclass);
                    shorten(&mut record.details, longest);
                }
            }
            Records::Hooks(records) => {
                for record in records {
                    record.subclass = folded(&record.subclass);
                    shorten(&mut record.details, longest);
                }
            }
        }
        self
    }

    /// Runs, lost ones included.
    pub fn records(&self) -> u64 {
        self.totals.all.values().sum()
    }

    /// Counts a run with a flipped bit.
    pub fn count_flip(&mut self, record: &InjectionRecord) {
        let class = record.class;
        let is_kept = self.keeps(class);
        if let Records::Native(records) = &mut self.full_records {
            records.extend(is_kept.then(|| record.clone()));
        }
        self.count(By::Fault, record.fault.to_string(), class);
        if let Some(name) = sei_table::counted_as(record) {
            self.count(By::Sei, name, class);
        }
        if let Some(part) = record.part {
            self.count(By::Part, part.to_string(), class);
        }
        self.count(By::Room, room(record).to_owned(), class);
        self.count(By::Module, record.module.clone(), class);
        self.count(By::Function, function(record), class);
        self.count(By::Bit, bit_range(record), class);
        self.count(By::Ending, ending(class, &record.subclass), class);
        self.count_run(class, record.states_equal, !record.noticed.is_empty());
    }

    /// Counts a run in which a replica placed a fault.
    pub fn count_hook(&mut self, record: &hooks::HookRecord) {
        let class = record.class;
        let is_kept = self.keeps(class);
        if let Records::Hooks(records) = &mut self.full_records {
            records.extend(is_kept.then(|| record.clone()));
        }
        self.count(By::Kind, record.name(), class);
        self.count(By::Ending, ending(class, &record.subclass), class);
        self.count_run(class, record.states_equal, !record.noticed.is_empty());
    }

    /// Whether the next run, which ended so, has a full record.
    fn keeps(&self, class: InjectionClass) -> bool {
        let others = self.totals.all.iter().filter(|(class, _)| class.is_suspicious() && !class.is_failure());
        let others: u64 = others.map(|(_, count)| count).sum();
        self.is_full || class.is_failure() || class.is_suspicious() && others < OTHERS_IN_FULL as u64
    }

    fn count(&mut self, by: By, name: String, class: InjectionClass) {
        *self.totals.tables.entry(by).or_default().entry(name).or_default().entry(class).or_default() += 1;
    }

    fn count_run(&mut self, class: InjectionClass, states_equal: Option<bool>, noticed: bool) {
        *self.totals.all.entry(class).or_default() += 1;
        if let Some(campaign) = self.campaigns.first_mut() {
            campaign.records += 1;
        }
        let Some(equal) = states_equal.filter(|_| class != InjectionClass::Lost) else { return };
        let compared = &mut self.totals.compared;
        compared.runs += 1;
        match (class == InjectionClass::WrongReply, noticed, equal) {
            (true, true, _) => compared.noticed += 1,
            (true, false, false) => compared.differ += 1,
            (true, false, true) => compared.equal += 1,
            (false, false, false) => compared.latent += 1,
            (false, ..) => {}
        }
    }
}

/// The full record of run `name`, such as `wreg/17`, from a result.
///
/// # Errors
/// When the file cannot be read, has no such run, or several.
pub fn find(path: &Path, name: &str) -> anyhow::Result<InjectionRecord> {
    let Records::Native(records) = InjectionResult::read(path)?.full_records else {
        bail!("hooks have no replay: `crosscheck inject KIND --seed S` places one again");
    };
    let mut found = records.into_iter().filter(|record| format!("{}/{}", record.fault, record.id) == name);
    let record = found.next().with_context(|| {
        let advice = "without --full, a result has the runs that failed, and a few others";
        format!("{} has no record of run {name} ({advice})", path.display())
    })?;
    ensure!(
        found.next().is_none(),
        "{} has several campaigns with a run {name}; name the file of one of them",
        path.display()
    );
    Ok(record)
}

/// The groups of a table, the largest first.
pub fn largest(group: &Group) -> Vec<(&String, &Counts)> {
    let mut groups: Vec<_> = group.iter().collect();
    groups.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.values().sum::<u64>()));
    groups
}

/// How a run ended, as a table shows it.
pub fn ending(class: InjectionClass, subclass: &str) -> String {
    format!("{}: {}", class.name(), folded(subclass))
}

/// A part that is repeated, as by a replica that sends one wrong reply after another, is shown once, with its count.
pub fn folded(subclass: &str) -> String {
    let mut parts: Vec<(&str, u32)> = Vec::new();
    for part in subclass.split(", ") {
        match parts.last_mut() {
            Some((last, count)) if *last == part => *count += 1,
            _ => parts.push((part, 1)),
        }
    }
    let shown = |(part, count): &(&str, u32)| {
        if *count > 1 { format!("{part} ({count} times)") } else { (*part).to_owned() }
    };
    parts.iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn add_counts(sum: &mut Counts, more: &Counts) {
    for (class, count) in more {
        *sum.entry(*class).or_default() += count;
    }
}

fn shorten(words: &mut String, longest: usize) {
    const CUT: char = '…';
    if words.len() > longest {
        words.truncate(words.floor_char_boundary(longest - CUT.len_utf8()));
        words.push(CUT);
    }
}

/// The crate of this workspace that contains the function; of a library's function, the nearest one on the stack.
fn room(record: &InjectionRecord) -> &'static str {
    const ROOMS: [&str; 7] = ["object", "order", "schedule", "vote", "execute", "crosscheck", "memcached"];
    let of = |name: &str| {
        let path = name.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        let path = path.split("::").next().unwrap_or("");
        ROOMS.into_iter().find(|room| *room == path)
    };
    let names = std::iter::once(&record.symbol).chain(&record.callers);
    names.map(String::as_str).find_map(of).unwrap_or("none")
}

fn function(record: &InjectionRecord) -> String {
    match record.symbol.as_str() {
        "" => format!("{} (no symbol)", record.module),
        symbol => symbol.chars().take(70).collect(),
    }
}

fn bit_range(record: &InjectionRecord) -> String {
    let Some(flip) = &record.flip else { return "none".into() };
    let kind = match record.fault {
        _ if flip.place == "flags" => return "flags".into(),
        TracerFault::Cf => "instruction pointer",
        TracerFault::Wreg | TracerFault::Rreg => "register",
        TracerFault::Waddr | TracerFault::Raddr => "address",
        TracerFault::Wval | TracerFault::Rval => return "memory".into(),
    };
    let range = match flip.bit {
        0..8 => "0-7",
        8..16 => "8-15",
        16..32 => "16-31",
        32..64 => "32-63",
        _ => "64 and higher",
    };
    format!("{kind}, bits {range}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::inject::Flip;
    use crate::report::{Titled, page, table};
    use report::machine::Commit;

    /// A record without anything special.
    pub fn flip(fault: &str, class: InjectionClass) -> InjectionRecord {
        let line = r#"{"id":0,"seed":1,"fault":"rreg","bits":{"low":0,"high":9},"flips":true,"profile":"","index":0,
            "address":0,"module":"m","offset":0,"symbol":"","text":"","hits":1,"flip":null,"class":"masked",
            "subclass":"","message":null,"told":"","signal":null,"exit":null,"start_us":0,"total_us":0,"retries":0}"#;
        let record: InjectionRecord = serde_json::from_str(line).expect("a record");
        InjectionRecord { fault: fault.parse().expect("a fault type"), class, ..record }
    }

    /// The same for the other injector.
    pub fn hook(kind: &str, class: InjectionClass) -> hooks::HookRecord {
        let line = r#"{"id":3,"seed":1,"kind":"flip","hit":"an item","class":"repaired","subclass":"noticed by 1",
            "told":"","states_equal":true,"noticed":[1],"struck_us":1,"total_us":2}"#;
        let record: hooks::HookRecord = serde_json::from_str(line).expect("a record");
        hooks::HookRecord { kind: hooks::kind(kind).expect("a kind"), class, ..record }
    }

    /// The result of a campaign without a description.
    pub fn result(records: Records) -> InjectionResult {
        let kind = if matches!(records, Records::Hooks(_)) { HOOKS } else { FLIPS };
        let origin = Origin {
            kind: kind.into(),
            commit: Commit { id: "abc".into(), changed: false },
            ..Origin::default()
        };
        let mut result =
            InjectionResult::new(CampaignSettings { origin, ..CampaignSettings::default() }, false);
        match records {
            Records::Native(records) => records.iter().for_each(|one| result.count_flip(one)),
            Records::Hooks(records) => records.iter().for_each(|one| result.count_hook(one)),
        }
        result
    }

    /// A campaign on a cluster with every outcome, fault type and kind of bit, more functions than a table shows, and
    /// runs with long texts.
    fn campaign() -> Vec<InjectionRecord> {
        let classes =
            InjectionClass::ALL.into_iter().filter(|class| *class != InjectionClass::Undetected).cycle();
        let record = |(id, class): (usize, InjectionClass)| {
            let mut record = flip(TracerFault::ALL[id % 7].name(), class);
            record.id = id as u64;
            record.seed = 77;
            record.symbol = match id % 3 {
                0 => String::new(),
                1 => format!("order::node::step_{}", id % 40),
                _ => format!("vote::voter::check_{}", id % 50),
            };
            record.callers = vec!["object::walk::seal".into()];
            record.flip = (id % 5 > 0).then(|| Flip {
                place: if id % 11 == 0 { "flags" } else { "rax" }.into(),
                bit: id as u32 % 70,
                old: "0".into(),
                new: "1".into(),
                nowhere: false,
            });
            record.subclass = ["Status from the victim"; 3].join(", ");
            record.details = "got: ä | right: ö; ".repeat(id % 400);
            record.noticed = vec![1; id % 2];
            record.states_equal = (id % 4 > 0).then_some(id % 3 > 0);
            record
        };
        (0..3_000).zip(classes).map(record).collect()
    }

    /// What is read from a result's file.
    fn kept(result: &InjectionResult) -> InjectionResult {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept.json");
        result.write(&path).unwrap();
        InjectionResult::read(&path).unwrap()
    }

    fn titled(result: &InjectionResult) -> [Titled; 1] {
        [Titled { title: "t".into(), file: "t.json".into(), result: result.clone() }]
    }

    #[test]
    fn a_file_gives_the_tables_of_the_runs_that_were_counted() {
        let hooks = ["flip", "reply", "check"]
            .into_iter()
            .zip(InjectionClass::ALL)
            .map(|(kind, class)| hook(kind, class));
        for records in [Records::Native(campaign()), Records::Hooks(hooks.collect())] {
            let counted = result(records);
            let of_file = kept(&counted);
            assert_eq!(table(&titled(&of_file)), table(&titled(&counted)));
            assert_eq!(of_file.campaigns, counted.campaigns);
            assert_eq!(of_file.campaigns[0].records, counted.records());
            assert_eq!(kept(&of_file), of_file, "what is kept is not shortened again");
            let lists = |result: &InjectionResult| page(&titled(result)).matches("<li>").count();
            assert_eq!(lists(&of_file), lists(&counted));
        }
    }

    #[test]
    fn a_full_result_has_every_run() {
        let records = campaign();
        let mut full = InjectionResult { is_full: true, ..result(Records::Native(Vec::new())) };
        records.iter().for_each(|record| full.count_flip(record));
        assert_eq!(kept(&full).full_records, Records::Native(records));
    }

    #[test]
    fn every_failure_is_kept_in_full_and_a_hundred_of_the_others() {
        let records = campaign();
        let failures: Vec<InjectionRecord> =
            records.iter().filter(|one| one.class.is_failure()).cloned().collect();
        let read = kept(&result(Records::Native(records)));
        let Records::Native(kept) = read.full_records else { panic!("flips") };
        let of = |wanted: fn(InjectionClass) -> bool| kept.iter().filter(|one| wanted(one.class)).count();
        assert_eq!(
            (of(InjectionClass::is_failure), of(|class| !class.is_failure())),
            (failures.len(), OTHERS_IN_FULL)
        );
        for (kept, record) in kept.iter().filter(|one| one.class.is_failure()).zip(&failures) {
            let words = &kept.details;
            assert!(words == &record.details || words.len() <= FEWEST_WORDS, "{words}");
            let expected = InjectionRecord {
                details: words.clone(),
                subclass: "Status from the victim (3 times)".into(),
                ..record.clone()
            };
            assert_eq!(kept, &expected);
        }
        let mut alone = flip("cf", InjectionClass::WrongReply);
        alone.details = "word ".repeat(1_000);
        let read = self::kept(&result(Records::Native(vec![alone.clone()])));
        assert_eq!(read.full_records, Records::Native(vec![alone]), "a single one is kept in full");
    }

    #[test]
    fn campaigns_together_are_their_sums_without_tables_that_lack_groups() {
        let records = campaign();
        let (one, two) = records.split_at(1_000);
        let whole = result(Records::Native(records.clone()));
        let part = |records: &[InjectionRecord]| result(Records::Native(records.to_vec()));
        let mut sum = part(one);
        sum.add(part(two)).unwrap();
        assert_eq!(sum.totals, whole.totals);
        assert_eq!(sum.campaigns.iter().map(|one| one.records).collect::<Vec<_>>(), [1_000, 2_000]);

        let mut sum = kept(&part(one));
        sum.add(part(two)).unwrap();
        let mut expected = whole.totals.tables.clone();
        expected.remove(&By::Function);
        assert_eq!(sum.totals.tables, expected, "there are more functions than a file keeps");
        assert!(sum.add(result(Records::Hooks(Vec::new()))).is_err());
    }

    #[test]
    fn a_run_is_found_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kept.json.gz");
        let records = [
            flip("cf", InjectionClass::Masked),
            flip("wreg", InjectionClass::WrongReply),
            flip("wval", InjectionClass::NoProgress),
        ];
        let counted = result(Records::Native(records.to_vec()));
        counted.write(&file).unwrap();
        assert_eq!(find(&file, "wreg/0").unwrap(), records[1]);
        let error = find(&file, "cf/0").unwrap_err().to_string();
        assert!(
            error.contains("has no record of run cf/0") && error.contains("the runs that failed"),
            "{error}"
        );
        let mut twice = counted.clone();
        twice.add(counted).unwrap();
        twice.write(&file).unwrap();
        assert!(find(&file, "wreg/0").unwrap_err().to_string().contains("several campaigns"));
    }

    #[test]
    fn a_repeated_part_is_shown_once() {
        assert_eq!(folded("a, a, a, b, a"), "a (3 times), b, a");
        assert_eq!(folded("a (3 times), b, a"), "a (3 times), b, a");
        assert_eq!(folded(""), "");
    }

    #[test]
    fn a_librarys_function_counts_for_its_caller() {
        let of = |symbol: &str, callers: &[&str]| -> &'static str {
            let mut record = flip("rreg", InjectionClass::Masked);
            record.symbol = symbol.into();
            record.callers = callers.iter().map(|name| (*name).to_owned()).collect();
            room(&record)
        };
        assert_eq!(
            of("<memcached::protocol::Connection as crosscheck::service::Protocol>::next", &[]),
            "memcached"
        );
        assert_eq!(of("", &["__memmove", "object::walk::seal_object", "crosscheck::x"]), "object");
        assert_eq!(of("raft::raft::Raft<T>::step", &[]), "none");
    }
}
