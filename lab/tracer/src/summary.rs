//! The result of a campaign: counts in every group of the report, and the full records of the runs that failed.
//!
//! The report reads summaries alone. A file of raw records is summarized when it is read, so that the summary in the
//! repository and the records from which it was made give the same tables.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::hooks;
use crate::record::{InjectionClass, InjectionRecord};
use crate::records::{self, Origin, Records};
use crate::sei_table;

/// Incremented when old files can no longer be read.
const FORMAT: u32 = 1;
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

/// One campaign, or several together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Summary {
    /// The campaigns that were counted.
    pub campaigns: Vec<Origin>,
    /// All runs.
    pub all: Counts,
    /// The same runs in groups. A table that lacks a part is not included.
    pub tables: BTreeMap<By, Group>,
    /// How many of the smaller groups of a table are not included.
    pub left_out: BTreeMap<By, u64>,
    /// Zeros where no states were compared.
    pub compared: ClusterComparison,
    /// Full records: every failure, and the first ones that were latent or made no progress.
    pub full_records: Records,
}

impl Summary {
    /// Counts `records`, which are all of one campaign.
    pub fn of(origin: Origin, records: Records) -> Self {
        let mut summary = Summary {
            campaigns: vec![origin.of(&records)],
            all: Counts::new(),
            tables: BTreeMap::new(),
            left_out: BTreeMap::new(),
            compared: ClusterComparison::default(),
            full_records: Records::Native(Vec::new()),
        };
        match &records {
            Records::Native(records) => records.iter().for_each(|record| summary.count_flip(record)),
            Records::Hooks(records) => records.iter().for_each(|record| summary.count_hook(record)),
        }
        summary.full_records = match records {
            Records::Native(records) => Records::Native(worth_keeping(records, |record| record.class)),
            Records::Hooks(records) => Records::Hooks(worth_keeping(records, |record| record.class)),
        };
        summary
    }

    /// Reads a summary, or the raw records of a campaign.
    ///
    /// # Errors
    /// When the file is neither.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = records::text(path)?;
        if is_summary(&text) {
            serde_json::from_str(&text).with_context(|| format!("summary {}", path.display()))
        } else {
            let (origin, records) = records::parse(path, &text)?;
            Ok(Summary::of(origin, records))
        }
    }

    /// Adds the runs of another campaign.
    ///
    /// # Errors
    /// When it is of the other injector.
    pub fn add(&mut self, other: Summary) -> anyhow::Result<()> {
        match (&mut self.full_records, other.full_records) {
            (Records::Native(records), Records::Native(more)) => records.extend(more),
            (Records::Hooks(records), Records::Hooks(more)) => records.extend(more),
            _ => bail!("flips in instructions and hooks share no table: name the files of one kind only"),
        }
        self.campaigns.extend(other.campaigns);
        add_counts(&mut self.all, &other.all);
        for (by, group) in other.tables {
            let sums = self.tables.entry(by).or_default();
            for (name, counts) in group {
                add_counts(sums.entry(name).or_default(), &counts);
            }
        }
        // A sum over incomplete groups would look like one over all of them.
        for (by, count) in other.left_out {
            *self.left_out.entry(by).or_default() += count;
        }
        for by in self.left_out.keys() {
            self.tables.remove(by);
        }
        let (sum, more) = (&mut self.compared, other.compared);
        sum.runs += more.runs;
        sum.noticed += more.noticed;
        sum.differ += more.differ;
        sum.equal += more.equal;
        sum.latent += more.latent;
        Ok(())
    }

    /// A version for a file in the repository: without small groups, and with long quotations cut.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        // The groups of SEI's table are few, and each of them is a part of its sums.
        for (by, group) in self.tables.iter_mut().filter(|(by, _)| **by != By::Sei) {
            let largest = largest(group);
            let small = largest.len().saturating_sub(LARGEST) as u64;
            if small > 0 {
                *group = largest
                    .into_iter()
                    .take(LARGEST)
                    .map(|(name, counts)| (name.clone(), counts.clone()))
                    .collect();
                *self.left_out.entry(*by).or_default() += small;
            }
        }
        let longest = (WORDS / self.full_records.len().max(1)).max(FEWEST_WORDS);
        match &mut self.full_records {
            Records::Native(records) => {
                for record in records {
                    record.subclass = folded(&record.subclass);
                    shorten(&mut record.told, longest);
                }
            }
            Records::Hooks(records) => {
                for record in records {
                    record.subclass = folded(&record.subclass);
                    shorten(&mut record.told, longest);
                }
            }
        }
        self
    }

    /// Runs, lost ones included.
    pub fn records(&self) -> u64 {
        self.all.values().sum()
    }

    fn count_flip(&mut self, record: &InjectionRecord) {
        let class = record.class;
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

    fn count_hook(&mut self, record: &hooks::HookRecord) {
        let class = record.class;
        self.count(By::Kind, record.name(), class);
        self.count(By::Ending, ending(class, &record.subclass), class);
        self.count_run(class, record.states_equal, !record.noticed.is_empty());
    }

    fn count(&mut self, by: By, name: String, class: InjectionClass) {
        *self.tables.entry(by).or_default().entry(name).or_default().entry(class).or_default() += 1;
    }

    fn count_run(&mut self, class: InjectionClass, states_equal: Option<bool>, noticed: bool) {
        *self.all.entry(class).or_default() += 1;
        let Some(equal) = states_equal.filter(|_| class != InjectionClass::Lost) else { return };
        let compared = &mut self.compared;
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

/// The full record of run `name`, such as `wreg/17`, from a file of raw records or from a summary.
///
/// # Errors
/// When the file cannot be read, has no such run, or several.
pub fn find(path: &Path, name: &str) -> anyhow::Result<InjectionRecord> {
    let text = records::text(path)?;
    let (records, advice) = if is_summary(&text) {
        (Summary::read(path)?.full_records, " (a summary has the runs that failed, and a few others)")
    } else {
        (records::parse(path, &text)?.1, "")
    };
    let Records::Native(records) = records else {
        bail!("hooks have no replay: `crosscheck inject KIND --seed S` places one again");
    };
    let mut found = records.into_iter().filter(|record| format!("{}/{}", record.fault, record.id) == name);
    let record =
        found.next().with_context(|| format!("{} has no record of run {name}{advice}", path.display()))?;
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
    let told = |(part, count): &(&str, u32)| {
        if *count > 1 { format!("{part} ({count} times)") } else { (*part).to_owned() }
    };
    parts.iter().map(told).collect::<Vec<_>>().join(", ")
}

/// Whether the text is a summary: both kinds of files begin with an object, and only a summary with this one.
fn is_summary(text: &str) -> bool {
    text.trim_start()
        .strip_prefix('{')
        .is_some_and(|rest| rest.trim_start().starts_with("\"summary_format\""))
}

fn worth_keeping<R>(records: Vec<R>, class: impl Fn(&R) -> InjectionClass) -> Vec<R> {
    let mut others = 0;
    let mut is_kept = |class: InjectionClass| {
        others += usize::from(class.is_suspicious() && !class.is_failure());
        class.is_failure() || class.is_suspicious() && others <= OTHERS_IN_FULL
    };
    records.into_iter().filter(|record| is_kept(class(record))).collect()
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
        Fault::Cf => "instruction pointer",
        Fault::Wreg | Fault::Rreg => "register",
        Fault::Waddr | Fault::Raddr => "address",
        Fault::Wval | Fault::Rval => return "memory".into(),
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

/// A summary in its file's format: each group's counts are in the order of `classes`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    summary_format: u32,
    campaigns: Vec<Origin>,
    classes: Vec<InjectionClass>,
    all: Vec<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    compared: ClusterComparison,
    tables: BTreeMap<By, BTreeMap<String, Vec<u64>>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    left_out: BTreeMap<By, u64>,
    full_records: Records,
}

fn is_default(compared: &ClusterComparison) -> bool {
    *compared == ClusterComparison::default()
}

impl From<Summary> for Form {
    fn from(summary: Summary) -> Self {
        let classes: Vec<InjectionClass> = summary.all.keys().copied().collect();
        let columns = |counts: &Counts| -> Vec<u64> {
            classes.iter().map(|class| counts.get(class).copied().unwrap_or(0)).collect()
        };
        let rows =
            |group: &Group| group.iter().map(|(name, counts)| (name.clone(), columns(counts))).collect();
        Form {
            summary_format: FORMAT,
            all: columns(&summary.all),
            compared: summary.compared,
            tables: summary.tables.iter().map(|(by, group)| (*by, rows(group))).collect(),
            left_out: summary.left_out,
            full_records: summary.full_records,
            campaigns: summary.campaigns,
            classes,
        }
    }
}

impl TryFrom<Form> for Summary {
    type Error = String;

    fn try_from(form: Form) -> Result<Self, String> {
        if form.summary_format != FORMAT {
            return Err(format!("format {}, not {FORMAT}", form.summary_format));
        }
        let classes = &form.classes;
        let counts = |columns: &Vec<u64>| -> Result<Counts, String> {
            if columns.len() != classes.len() {
                return Err(format!("{} counts in a row for {} outcomes", columns.len(), classes.len()));
            }
            let pairs = classes.iter().copied().zip(columns.iter().copied());
            Ok(pairs.filter(|(_, count)| *count > 0).collect())
        };
        let group = |rows: &BTreeMap<String, Vec<u64>>| -> Result<Group, String> {
            rows.iter().map(|(name, columns)| Ok((name.clone(), counts(columns)?))).collect()
        };
        Ok(Summary {
            all: counts(&form.all)?,
            tables: form
                .tables
                .iter()
                .map(|(by, rows)| Ok((*by, group(rows)?)))
                .collect::<Result<_, String>>()?,
            campaigns: form.campaigns,
            left_out: form.left_out,
            compared: form.compared,
            full_records: form.full_records,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::inject::Flip;
    use crate::report::{Titled, page, table};

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

    /// The summary of a campaign without a description.
    pub fn summary(records: Records) -> Summary {
        Summary::of(Origin::default(), records)
    }

    /// A campaign on a cluster with every outcome, fault type and kind of bit, more functions than a table shows, and
    /// runs with long texts.
    fn campaign() -> Vec<InjectionRecord> {
        let classes =
            InjectionClass::ALL.into_iter().filter(|class| *class != InjectionClass::Undetected).cycle();
        let record = |(id, class): (usize, InjectionClass)| {
            let mut record = flip(Fault::ALL[id % 7].name(), class);
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
            record.told = "got: ä | right: ö; ".repeat(id % 400);
            record.noticed = vec![1; id % 2];
            record.states_equal = (id % 4 > 0).then_some(id % 3 > 0);
            record
        };
        (0..3_000).zip(classes).map(record).collect()
    }

    /// The text of a summary's file, and the summary that is read from it.
    fn kept(summary: &Summary) -> (String, Summary) {
        let text = serde_json::to_string(&summary.clone().shortened()).expect("JSON");
        let read = serde_json::from_str(&text).expect("a summary");
        (text, read)
    }

    fn titled(summary: &Summary) -> [Titled; 1] {
        [Titled { title: "t".into(), file: "t.json".into(), summary: summary.clone() }]
    }

    #[test]
    fn a_summary_gives_the_tables_of_the_records_that_it_was_made_of() {
        let hooks = ["flip", "reply", "check"]
            .into_iter()
            .zip(InjectionClass::ALL)
            .map(|(kind, class)| hook(kind, class));
        for records in [Records::Native(campaign()), Records::Hooks(hooks.collect())] {
            let dir = tempfile::tempdir().unwrap();
            let (raw, file) = (dir.path().join("raw.jsonl"), dir.path().join("kept.json"));
            let mut out =
                records::create(&raw, &Origin { commit: "abc".into(), ..Origin::default() }).unwrap();
            match &records {
                Records::Native(records) => {
                    records.iter().for_each(|one| records::append(&mut out, one).unwrap())
                }
                Records::Hooks(records) => {
                    records.iter().for_each(|one| records::append(&mut out, one).unwrap())
                }
            }
            let of_raw = Summary::read(&raw).unwrap();
            std::fs::write(&file, kept(&of_raw).0).unwrap();
            let of_file = Summary::read(&file).unwrap();
            assert_eq!(table(&titled(&of_file)), table(&titled(&of_raw)));
            assert_eq!(of_file.campaigns, of_raw.campaigns);
            assert_eq!(of_file.campaigns[0].records, records.len() as u64);
            assert_eq!(kept(&of_file).1, of_file, "what is kept is not shortened again");
            let lists = |summary: &Summary| page(&titled(summary)).matches("<li>").count();
            assert_eq!(lists(&of_file), lists(&of_raw));
        }
    }

    #[test]
    fn every_failure_is_kept_in_full_and_a_hundred_of_the_others() {
        let records = campaign();
        let failures: Vec<InjectionRecord> =
            records.iter().filter(|one| one.class.is_failure()).cloned().collect();
        let (_, read) = kept(&summary(Records::Native(records)));
        let Records::Native(kept) = read.full_records else { panic!("flips") };
        let of = |wanted: fn(InjectionClass) -> bool| kept.iter().filter(|one| wanted(one.class)).count();
        assert_eq!(
            (of(InjectionClass::is_failure), of(|class| !class.is_failure())),
            (failures.len(), OTHERS_IN_FULL)
        );
        for (kept, record) in kept.iter().filter(|one| one.class.is_failure()).zip(&failures) {
            let words = &kept.told;
            assert!(words == &record.told || words.len() <= FEWEST_WORDS, "{words}");
            let expected = InjectionRecord {
                told: words.clone(),
                subclass: "Status from the victim (3 times)".into(),
                ..record.clone()
            };
            assert_eq!(kept, &expected);
        }
        let mut alone = flip("cf", InjectionClass::WrongReply);
        alone.told = "word ".repeat(1_000);
        let (_, read) = self::kept(&summary(Records::Native(vec![alone.clone()])));
        assert_eq!(read.full_records, Records::Native(vec![alone]), "a single one is told in full");
    }

    #[test]
    fn campaigns_together_are_their_sums_without_tables_that_lack_groups() {
        let records = campaign();
        let (one, two) = records.split_at(1_000);
        let whole = summary(Records::Native(records.clone()));
        let part = |records: &[InjectionRecord]| summary(Records::Native(records.to_vec()));
        let mut sum = part(one);
        sum.add(part(two)).unwrap();
        assert_eq!((&sum.all, &sum.tables, &sum.compared), (&whole.all, &whole.tables, &whole.compared));
        assert_eq!(sum.campaigns.iter().map(|one| one.records).collect::<Vec<_>>(), [1_000, 2_000]);

        let mut sum = kept(&part(one)).1;
        sum.add(part(two)).unwrap();
        let mut expected = whole.tables.clone();
        expected.remove(&By::Function);
        assert_eq!(sum.tables, expected, "there are more functions than a summary keeps");
        assert!(sum.add(summary(Records::Hooks(Vec::new()))).is_err());
    }

    #[test]
    fn a_run_is_found_in_records_and_in_summaries() {
        let dir = tempfile::tempdir().unwrap();
        let (raw, file) = (dir.path().join("raw.jsonl"), dir.path().join("kept.json"));
        let mut out = records::create(&raw, &Origin::default()).unwrap();
        let records = [
            flip("cf", InjectionClass::Masked),
            flip("wreg", InjectionClass::WrongReply),
            flip("wval", InjectionClass::NoProgress),
        ];
        records.iter().for_each(|record| records::append(&mut out, record).unwrap());
        let of_raw = Summary::read(&raw).unwrap();
        std::fs::write(&file, kept(&of_raw).0).unwrap();
        assert_eq!(find(&raw, "cf/0").unwrap(), records[0]);
        assert_eq!(find(&file, "wreg/0").unwrap(), records[1]);
        let error = find(&file, "cf/0").unwrap_err().to_string();
        assert!(
            error.contains("has no record of run cf/0") && error.contains("the runs that failed"),
            "{error}"
        );
        let mut twice = of_raw.clone();
        twice.add(of_raw).unwrap();
        std::fs::write(&file, kept(&twice).0).unwrap();
        assert!(find(&file, "wreg/0").unwrap_err().to_string().contains("several campaigns"));
    }

    #[test]
    fn a_damaged_summary_is_refused() {
        let (text, _) = kept(&summary(Records::Native(vec![flip("cf", InjectionClass::Masked)])));
        for (from, to) in [
            ("\"summary_format\":1", "\"summary_format\":9"),
            ("\"all\":[1]", "\"all\":[1,0]"),
            ("\"full_records\"", "\"left\""),
        ] {
            assert!(text.contains(from), "{text}");
            assert!(serde_json::from_str::<Summary>(&text.replace(from, to)).is_err(), "{from}");
        }
    }

    #[test]
    fn a_repeated_part_is_told_once() {
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
