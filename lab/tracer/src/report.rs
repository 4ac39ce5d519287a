//! Tables of campaigns: counts next to every percentage, 95 % Wilson intervals, as text and as one self-contained page.

use report::stats::rate;
use report::{Bar, Block, Page, Table};

use crate::fault::TracerFault;
use crate::hooks;
use crate::record::{InjectionClass, InjectionRecord};
use crate::result::{
    By, CHECKER, ClusterComparison, Counts, Group, InjectionResult, InjectionTotals, LARGEST, Records,
    ending, largest,
};

/// What a report shows under one title.
#[derive(Clone, Debug)]
pub struct Titled {
    /// Its title.
    pub title: String,
    /// Name of the file that `crosscheck-lab inject replay` finds its runs in.
    pub file: String,
    /// Its counts.
    pub result: InjectionResult,
}

/// Lists of runs are cut here.
const LONGEST_LIST: usize = 200;

/// One line of a table.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    name: String,
    counts: Counts,
}

impl Row {
    fn of(name: &str, counts: &Counts) -> Self {
        Row { name: name.to_owned(), counts: counts.clone() }
    }

    /// The sum of those groups whose names are wanted.
    fn sum(name: String, group: &Group, wanted: &[&str]) -> Self {
        let mut counts = Counts::new();
        for (_, more) in group.iter().filter(|(name, _)| wanted.contains(&name.as_str())) {
            for (class, count) in more {
                *counts.entry(*class).or_default() += count;
            }
        }
        Row { name, counts }
    }

    fn count(&self, wanted: impl Fn(InjectionClass) -> bool) -> u64 {
        self.counts.iter().filter(|(class, _)| wanted(**class)).map(|(_, count)| count).sum()
    }

    /// Runs whose fault was placed.
    fn runs(&self) -> u64 {
        self.count(|class| class != InjectionClass::Lost)
    }

    fn cells(&self, classes: &[InjectionClass]) -> Vec<String> {
        let (manifested, failed) =
            (self.count(InjectionClass::is_manifested), self.count(InjectionClass::is_failure));
        let mut cells = vec![self.name.clone(), self.runs().to_string()];
        cells.extend(classes.iter().map(|class| self.count(|other| other == *class).to_string()));
        cells.extend([manifested.to_string(), rate(failed, manifested), rate(failed, self.runs())]);
        cells
    }
}

/// A heading and its lines.
type Section = (String, Vec<Row>);

/// The tables of a campaign.
fn sections(totals: &InjectionTotals) -> Vec<Section> {
    let section = |(by, group): (&By, &Group)| (heading_of(*by).to_owned(), rows(*by, group, &totals.all));
    // The counts of SEI's table are shown in its form alone.
    totals.tables.iter().filter(|(by, _)| **by != By::Sei).map(section).collect()
}

fn heading_of(by: By) -> &'static str {
    match by {
        By::Fault => "by fault type (DF, RD: SEI's sums)",
        By::Kind => "by what was corrupted",
        By::Sei => "by fault type and end",
        By::Part => "by part of a hardened handler",
        By::Room => "by room: whose function had the fault, or the nearest one of ours that had called it",
        By::Module => "by module",
        By::Function => "by function, the 25 with most faults",
        By::Bit => "by flipped bit",
        By::Ending => "by how it ended",
    }
}

fn rows(by: By, group: &Group, all: &Counts) -> Vec<Row> {
    let mut rows: Vec<Row> = match by {
        By::Kind => group.iter().map(|(name, counts)| Row::of(name, counts)).collect(),
        By::Fault => {
            let row = |fault: TracerFault| Some(Row::of(fault.name(), group.get(fault.name())?));
            TracerFault::ALL.into_iter().filter_map(row).collect()
        }
        _ => largest(group).into_iter().take(LARGEST).map(|(name, counts)| Row::of(name, counts)).collect(),
    };
    match by {
        By::Kind => rows.push(Row::of("all", all)),
        By::Fault => {
            let sum = |name: &str, faults: &[TracerFault]| {
                Row::sum(name.to_owned(), group, &faults.iter().map(|fault| fault.name()).collect::<Vec<_>>())
            };
            rows.push(sum(
                "DF",
                &[TracerFault::Wreg, TracerFault::Wval, TracerFault::Waddr, TracerFault::Raddr],
            ));
            rows.push(sum("RD", &[TracerFault::Rreg, TracerFault::Rval]));
            rows.push(Row::of("all", all));
        }
        By::Room => {
            let name = format!("the checker's own code ({})", CHECKER.join(", "));
            let checker = Row::sum(name, group, &CHECKER);
            rows.extend((!checker.counts.is_empty()).then_some(checker));
        }
        _ => {}
    }
    rows
}

/// The runs of which there are full records: where and how each ended.
fn words(file: &str, records: &Records) -> Vec<String> {
    match records {
        Records::Native(records) => records.iter().map(|record| words_on_flip(file, record)).collect(),
        Records::Hooks(records) => records.iter().map(words_on_hook).collect(),
    }
}

fn words_on_flip(file: &str, record: &InjectionRecord) -> String {
    let flip =
        record.flip.as_ref().map_or_else(String::new, |flip| format!("{} bit {}", flip.place, flip.bit));
    let part = record.part.map_or_else(String::new, |part| format!(", {part}"));
    format!(
        "{} at {}+{:#x} {}{part}: {} ({flip})  crosscheck-lab inject replay --run {file}:{}/{}",
        description(record.class, &record.subclass, &record.details),
        record.module,
        record.offset,
        record.symbol,
        record.text,
        record.fault,
        record.id
    )
}

fn words_on_hook(record: &hooks::HookRecord) -> String {
    let how = description(record.class, &record.subclass, &record.details);
    format!("{how} after {} {} ({})", record.name(), record.id, record.hit)
}

fn description(class: InjectionClass, subclass: &str, details: &str) -> String {
    format!("{} {}", ending(class, subclass), details.escape_debug())
}

/// Of a cluster: who could have known of the wrong replies, and of states that differ.
fn comparisons(compared: &ClusterComparison) -> Option<String> {
    let ClusterComparison { runs, noticed, differ, equal, latent } = compared;
    (*runs > 0).then(|| {
        format!(
            "Wrong replies in {} of {runs} runs: {noticed} noticed by a replica, {differ} unnoticed with \
                states that differ in the end (a hash of the whole state tells, afterwards), {equal} \
                unnoticed with equal states (only the client could know). Right replies, but states that \
                differ in the end, unnoticed: {latent}.",
            noticed + differ + equal,
        )
    })
}

fn heading(classes: &[InjectionClass]) -> Vec<String> {
    let mut cells = vec![String::new(), "runs".into()];
    cells.extend(classes.iter().map(|class| class.name().to_owned()));
    cells.extend(
        ["manifested", "failures of manifested [95 %]", "failures of runs [95 %]"].map(str::to_owned),
    );
    cells
}

/// What the page begins with.
const ABOUT: &str = "One fault per run: a flipped bit in one instruction, or what a replica did to itself. Manifested: \
    everything but masked and late. Failures: a wrong reply that no check noticed. Intervals: Wilson, 95 %.";

/// The tables as text.
pub fn table(campaigns: &[Titled]) -> String {
    let mut page = Page::new("");
    campaigns.iter().for_each(|campaign| add(&mut page, campaign));
    page.plain()
}

/// The tables as a page that needs nothing else.
pub fn page(campaigns: &[Titled]) -> String {
    let mut page = Page::new("Fault injection");
    page.text(ABOUT);
    campaigns.iter().for_each(|campaign| add(&mut page, campaign));
    page.html()
}

fn add(page: &mut Page, Titled { title, file, result }: &Titled) {
    let classes: Vec<InjectionClass> = result.totals.all.keys().copied().collect();
    page.heading(2, format!("{title}: {} records", result.records()));
    for (name, rows) in sections(&result.totals) {
        let cells = rows.iter().map(|row| row.cells(&classes));
        let table = Table::new(name, heading(&classes)).rows(cells);
        page.table(table.bars("share", rows.iter().map(bar)));
    }
    if let Some(sentence) = comparisons(&result.totals.compared) {
        page.text(sentence);
    }
    page.extend(list(file, result));
}

/// How the runs of a row ended.
fn bar(row: &Row) -> Vec<Bar> {
    let runs = row.runs().max(1) as f64;
    let placed = row.counts.iter().filter(|(class, _)| **class != InjectionClass::Lost);
    let piece = |(class, count): (&InjectionClass, &u64)| Bar {
        share: *count as f64 / runs,
        colour: colour(*class),
        tooltip: format!("{} {count}", class.name()),
    };
    placed.map(piece).collect()
}

fn colour(class: InjectionClass) -> &'static str {
    match class {
        InjectionClass::Masked | InjectionClass::Late | InjectionClass::Lost => "#b8c4ce",
        InjectionClass::Detected | InjectionClass::Repaired => "#4c9f70",
        InjectionClass::Otherwise | InjectionClass::Replaced => "#5b8db8",
        InjectionClass::Latent | InjectionClass::NoProgress => "#d9a441",
        InjectionClass::Undetected | InjectionClass::WrongReply => "#c0392b",
    }
}

/// The runs that a reader looks at one by one.
pub fn list(file: &str, result: &InjectionResult) -> Option<Block> {
    let suspicious = result.totals.all.iter().filter(|(class, _)| class.is_suspicious());
    let all: u64 = suspicious.map(|(_, count)| count).sum();
    let mut lines = words(file, &result.full_records);
    lines.truncate(LONGEST_LIST);
    let summary = format!("{all} runs that failed, are latent, or stopped the cluster");
    (all > 0).then_some(Block::Folded { summary, lines })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::{flip, hook, result};

    fn text(result: InjectionResult) -> String {
        table(&[Titled { title: "t".into(), file: "t.json".into(), result }])
    }

    #[test]
    fn fault_types_stand_in_their_order_with_their_sums() {
        let records =
            ["rreg", "wreg", "cf", "wreg"].map(|fault| flip(fault, InjectionClass::Masked)).to_vec();
        let page = text(result(Records::Native(records)));
        let first: Vec<&str> =
            page.lines().skip(2).take(6).filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(first, ["cf", "wreg", "rreg", "DF", "RD", "all"], "{page}");
        assert!(page.contains("  DF ") && page.starts_with("t: 4 records\n"), "{page}");
    }

    #[test]
    fn hooks_have_tables_of_their_own() {
        let page = text(result(Records::Hooks(vec![hook("multi-flip", InjectionClass::Repaired)])));
        assert!(page.contains("by what was corrupted") && !page.contains("by fault type"), "{page}");
        assert!(page.contains("multi-flip"), "{page}");
    }

    #[test]
    fn clusters_have_a_line_on_who_could_have_noticed() {
        assert_eq!(
            comparisons(&ClusterComparison::default()),
            None,
            "old records, or those of a single server"
        );
        let record = |class, noticed: &[u8], states_equal| {
            let mut record = flip("rreg", class);
            record.noticed = noticed.to_vec();
            record.states_equal = Some(states_equal);
            record
        };
        let records = vec![
            record(InjectionClass::WrongReply, &[1, 3], true),
            record(InjectionClass::WrongReply, &[], false),
            record(InjectionClass::WrongReply, &[], false),
            record(InjectionClass::WrongReply, &[], true),
            record(InjectionClass::Latent, &[], false),
            record(InjectionClass::Repaired, &[1], true),
            record(InjectionClass::Lost, &[], true),
        ];
        let page =
            comparisons(&result(Records::Native(records)).totals.compared).expect("records of a cluster");
        assert!(
            page.starts_with("Wrong replies in 4 of 6 runs: 1 noticed by a replica, 2 unnoticed"),
            "{page}"
        );
        assert!(
            page.contains("1 unnoticed with equal states") && page.ends_with("in the end, unnoticed: 1."),
            "{page}"
        );
    }

    #[test]
    fn the_checkers_own_code_stands_apart() {
        let of = |symbol: &str| {
            let mut record = flip("rreg", InjectionClass::Masked);
            record.symbol = symbol.into();
            record
        };
        let records = vec![of("vote::voter::check"), of("object::walk::seal"), of("order::x")];
        let totals = result(Records::Native(records)).totals;
        let rooms = rows(By::Room, &totals.tables[&By::Room], &totals.all);
        let last = rooms.last().expect("a row");
        assert!(last.name.starts_with("the checker's own code") && last.runs() == 2, "{last:?}");
    }

    #[test]
    fn the_page_names_the_file_that_a_run_is_repeated_from() {
        let result = result(Records::Native(vec![flip("wval", InjectionClass::WrongReply)]));
        let page = page(&[Titled { title: "t".into(), file: "t.json.gz".into(), result }]);
        assert!(page.contains("crosscheck-lab inject replay --run t.json.gz:wval/0"), "{page}");
        assert!(page.contains("1 runs that failed"), "{page}");
    }
}
