//! The table in which SEI's paper counts errors, of our campaigns and beside the paper's figures (Behrens et al., NSDI
//! 2015, tables 2 and 3).

use report::stats::rate;
use report::{Page, Table};

use crate::fault::TracerFault;
use crate::record::{InjectionClass, InjectionRecord};
use crate::report::{Titled, list};
use crate::result::{By, InjectionResult, InjectionTotals};

/// Fault types that are counted together, under the name of the group.
const GROUPS: [(&str, &[TracerFault]); 9] = [
    ("CF", &[TracerFault::Cf]),
    ("DF", &[TracerFault::Wreg, TracerFault::Wval, TracerFault::Waddr, TracerFault::Raddr]),
    ("RD", &[TracerFault::Rreg, TracerFault::Rval]),
    ("WREG", &[TracerFault::Wreg]),
    ("WVAL", &[TracerFault::Wval]),
    ("WADDR", &[TracerFault::Waddr]),
    ("RADDR", &[TracerFault::Raddr]),
    ("RREG", &[TracerFault::Rreg]),
    ("RVAL", &[TracerFault::Rval]),
];

/// How a manifested fault ended, in the order of the columns.
const ENDS: [&str; 8] =
    ["undetected", "detected", "invalid message", "crash", "exit", "hang", "closed", "wrong reply seen"];
/// The ends that are detections by the hardened program, and by other means.
const BY_SEI: [&str; 2] = ["detected", "invalid message"];
const BY_OTHERS: [&str; 5] = ["crash", "exit", "hang", "closed", "wrong reply seen"];

/// The paper's row: group, how its file is named here, variant, percentages undetected, detected by SEI and otherwise,
/// and how many errors there were.
type PaperRow = (&'static str, &'static str, &'static str, [f64; 3], u32);
const TABLE_2: [PaperRow; 9] = [
    ("CF", "native", "mc", [9.66, 0.0, 90.34], 6_690),
    ("CF", "sei", "mc-sei", [0.06, 14.70, 85.23], 6_515),
    ("CF", "dup", "mc-sei-dup", [0.0, 9.87, 90.13], 6_594),
    ("DF", "native", "mc", [44.18, 0.0, 55.82], 15_180),
    ("DF", "sei", "mc-sei", [0.15, 57.55, 42.29], 20_264),
    ("DF", "dup", "mc-sei-dup", [0.0, 45.81, 54.19], 15_991),
    ("RD", "native", "mc", [33.04, 0.0, 66.95], 10_614),
    ("RD", "sei", "mc-sei", [0.52, 46.78, 52.70], 11_508),
    ("RD", "dup", "mc-sei-dup", [0.0, 49.13, 50.87], 11_442),
];
const TABLE_3: [PaperRow; 4] = [
    ("CF", "sei", "mc-sei", [0.02, 13.78, 86.20], 6_366),
    ("CF", "seil", "mc-seil", [0.05, 12.84, 87.11], 6_330),
    ("DF", "sei", "mc-sei", [0.16, 58.58, 41.26], 19_484),
    ("DF", "seil", "mc-seil", [0.28, 58.61, 41.11], 19_088),
];

/// The name under which a result counts a run; none if the fault did not manifest, or hit a cluster.
pub fn counted_as(record: &InjectionRecord) -> Option<String> {
    Some(format!("{} {}", record.fault, end(record.class, &record.subclass)?))
}

fn end(class: InjectionClass, subclass: &str) -> Option<&'static str> {
    let named = |name: &str| ENDS.into_iter().find(|end| *end == name);
    match class {
        InjectionClass::Undetected => named("undetected"),
        InjectionClass::Detected => named(subclass).or(named("detected")),
        InjectionClass::Otherwise => named(match subclass {
            crash if crash.starts_with("signal-") => "crash",
            exit if exit.starts_with("exit-") => "exit",
            "stall" | "hang" => "hang",
            "closed" => "closed",
            _ => "wrong reply seen",
        }),
        _ => None,
    }
}

/// The table over these campaigns, one row for each of them in each group.
pub fn page(campaigns: &[Titled]) -> Page {
    let mut page = Page::new("Fault injection as SEI's paper counts it");
    page.text(
        "Percentages of the manifested faults. Undetected: a valid reply that is wrong. Det/SEI: the program ended \
        itself, or its client saw by the CRC that a message is invalid. Det/other: crash (a signal), exit with another \
        status, hang, closed connection, or a reply that a client sees to be wrong (an error, another key, no reply of \
        the protocol). Intervals: Wilson, 95 %. DF is WREG, WVAL, WADDR and RADDR; RD is RREG and RVAL.",
    );
    let rows = GROUPS.iter().flat_map(|(group, faults)| {
        let row = move |campaign: &Titled| cells(group, faults, campaign);
        campaigns.iter().map(row)
    });
    page.table(Table::new("errors, and the paper's".to_owned(), heading()).rows(rows));
    for Titled { file, result, .. } in campaigns {
        page.extend(list(file, result));
    }
    page
}

fn heading() -> Vec<String> {
    let mut cells = vec!["group", "campaign", "runs", "errors", "undetected [95 %]", "Det/SEI", "Det/other"];
    cells.extend(&ENDS[2..]);
    cells.extend(["paper: undetected", "Det/SEI", "Det/other", "errors"]);
    cells.into_iter().map(str::to_owned).collect()
}

fn cells(group: &str, faults: &[TracerFault], Titled { title, result, .. }: &Titled) -> Vec<String> {
    let count =
        |ends: &[&str]| -> u64 { faults.iter().map(|fault| counted(&result.totals, *fault, ends)).sum() };
    let errors = count(&ENDS);
    let share = |count: u64| format!("{count} {:.2} %", 100.0 * count as f64 / errors.max(1) as f64);
    let mut cells =
        vec![group.to_owned(), title.clone(), runs(&result.totals, faults).to_string(), errors.to_string()];
    cells.push(rate(count(&ENDS[..1]), errors));
    cells.extend([share(count(&BY_SEI)), share(count(&BY_OTHERS))]);
    cells.extend(ENDS[2..].iter().map(|end| count(&[end]).to_string()));
    match papers_row(group, result) {
        Some((_, _, variant, shares, errors)) => {
            cells.push(format!("{variant} {:.2} %", shares[0]));
            cells.extend(shares[1..].iter().map(|share| format!("{share:.2} %")));
            cells.push(errors.to_string());
        }
        None => cells.extend(["", "", "", ""].map(str::to_owned)),
    }
    cells
}

fn counted(totals: &InjectionTotals, fault: TracerFault, ends: &[&str]) -> u64 {
    let Some(table) = totals.tables.get(&By::Sei) else { return 0 };
    let of = |end: &&str| table.get(&format!("{fault} {end}")).map_or(0, |counts| counts.values().sum());
    ends.iter().map(of).sum()
}

/// Runs whose fault was injected.
fn runs(totals: &InjectionTotals, faults: &[TracerFault]) -> u64 {
    let Some(table) = totals.tables.get(&By::Fault) else { return 0 };
    let of = |fault: &TracerFault| table.get(fault.name()).into_iter().flatten();
    let injected =
        |(class, count): (&InjectionClass, &u64)| (*class != InjectionClass::Lost).then_some(*count);
    faults.iter().flat_map(of).filter_map(injected).sum()
}

/// The paper's figures for a campaign, whose target's name ends with the variant.
fn papers_row(group: &str, result: &InjectionResult) -> Option<PaperRow> {
    let target = result.campaigns.first()?.target.as_str();
    let table: &[PaperRow] = if target.contains("threads") { &TABLE_3 } else { &TABLE_2 };
    let is_row = |row: &&PaperRow| {
        row.0 == group && target.strip_suffix(row.1).is_some_and(|rest| rest.ends_with('-'))
    };
    target.starts_with("memcached").then(|| table.iter().find(is_row).copied()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Records;
    use crate::result::tests::{flip, result};

    fn titled(target: &str, records: Vec<InjectionRecord>) -> Titled {
        let mut result = result(Records::Native(records));
        result.campaigns[0].target = target.into();
        Titled { title: "t".into(), file: "t.json".into(), result }
    }

    fn ended(fault: &str, class: InjectionClass, subclass: &str) -> InjectionRecord {
        let mut record = flip(fault, class);
        record.subclass = subclass.into();
        record
    }

    #[test]
    fn each_run_is_counted_once_and_in_its_column() {
        let records = vec![
            ended("wreg", InjectionClass::Undetected, "value"),
            ended("wval", InjectionClass::Detected, "exit-86"),
            ended("wval", InjectionClass::Detected, "invalid message"),
            ended("waddr", InjectionClass::Otherwise, "signal-11"),
            ended("raddr", InjectionClass::Otherwise, "exit-1"),
            ended("wreg", InjectionClass::Otherwise, "stall"),
            ended("wreg", InjectionClass::Otherwise, "closed"),
            ended("wreg", InjectionClass::Otherwise, "error-reply"),
            ended("wreg", InjectionClass::Masked, ""),
            ended("wreg", InjectionClass::Late, "exit-86"),
            ended("wreg", InjectionClass::Lost, "late"),
            ended("cf", InjectionClass::Detected, "exit-86"),
        ];
        let campaign = titled("memcached-unit-sei", records);
        let row = cells(GROUPS[1].0, GROUPS[1].1, &campaign);
        assert_eq!(row[..4], ["DF", "t", "10", "8"], "two had no effect, and one was lost");
        assert!(row[4].starts_with("1/8 12.50 % ["), "{row:?}");
        assert_eq!(row[5..7], ["2 25.00 %", "5 62.50 %"]);
        assert_eq!(row[7..13], ["1", "1", "1", "1", "1", "1"]);
        assert_eq!(row[13..], ["mc-sei 0.15 %", "57.55 %", "42.29 %", "20264"]);
        assert_eq!(heading().len(), row.len());
        let html = page(&[campaign]).html();
        assert!(html.contains("RREG") && html.contains("1 runs that failed"), "{html}");
    }

    #[test]
    fn a_campaign_stands_beside_the_papers_row_of_its_variant() {
        let of = |target, group| papers_row(group, &titled(target, vec![]).result).map(|row| row.2);
        assert_eq!(of("memcached-unit-native", "RD"), Some("mc"));
        assert_eq!(of("memcached-threads-seil", "DF"), Some("mc-seil"));
        assert_eq!(of("memcached-unit-seil", "DF"), None, "table 2 has no such row");
        assert_eq!(of("dnscache-sei", "DF"), None, "another program");
        assert_eq!(of("memcached-unit-sei", "RREG"), None);
    }

    #[test]
    fn the_papers_rows_are_whole() {
        for (group, _, variant, shares, _) in TABLE_2.iter().chain(&TABLE_3) {
            let sum: f64 = shares.iter().sum();
            assert!((sum - 100.0).abs() < 0.02, "{group} {variant}: {sum}");
        }
    }
}
