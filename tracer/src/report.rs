//! Tables of campaigns: counts beside every percentage, 95 % Wilson intervals, as text and as one self-contained page.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use flate2::read::MultiGzDecoder;
use serde::de::DeserializeOwned;

use crate::fault::Fault;
use crate::hooks;
use crate::record::{Class, Record};

/// The records of one campaign. Flips of instructions and hooks say different things: no table has both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Records {
    /// Of flipped bits in single instructions.
    Native(Vec<Record>),
    /// Of faults that a replica did to itself.
    Hooks(Vec<hooks::Record>),
}

/// A campaign: its title and records.
pub type Titled = (String, Records);

/// The 97.5 % quantile of the normal distribution.
const Z: f64 = 1.959_963_985;
/// Lists of runs are cut here.
const LONGEST_LIST: usize = 200;

/// Reads the records of a campaign; those of a file whose name ends in `.gz` are compressed.
///
/// # Errors
/// When the file is not one of records.
pub fn read(path: &Path) -> anyhow::Result<Records> {
    let text = text(path).with_context(|| format!("records {}", path.display()))?;
    let first = text.lines().next().unwrap_or("");
    if serde_json::from_str::<hooks::Record>(first).is_ok() {
        Ok(Records::Hooks(lines(path, &text)?))
    } else {
        Ok(Records::Native(lines(path, &text)?))
    }
}

fn lines<R: DeserializeOwned>(path: &Path, text: &str) -> anyhow::Result<Vec<R>> {
    let line = |(number, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{}:{}: not a record", path.display(), number + 1))
    };
    text.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(line).collect()
}

fn text(path: &Path) -> std::io::Result<String> {
    if path.extension().is_none_or(|extension| extension != "gz") {
        return fs::read_to_string(path);
    }
    let mut text = String::new();
    MultiGzDecoder::new(fs::File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}

/// The Wilson score interval of `count` in `all`, in percent (Wilson 1927).
pub fn wilson(count: u64, all: u64) -> (f64, f64) {
    if all == 0 {
        return (0.0, 100.0);
    }
    let (n, p) = (all as f64, count as f64 / all as f64);
    let middle = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 100.0 / (1.0 + Z * Z / n);
    (((middle - half) * scale).max(0.0), ((middle + half) * scale).min(100.0))
}

/// One line of a table.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    name: String,
    counts: BTreeMap<Class, u64>,
}

impl Row {
    fn of(name: String, classes: impl Iterator<Item = Class>) -> Self {
        let mut counts = BTreeMap::new();
        for class in classes {
            *counts.entry(class).or_default() += 1;
        }
        Row { name, counts }
    }

    fn count(&self, wanted: impl Fn(Class) -> bool) -> u64 {
        self.counts.iter().filter(|(class, _)| wanted(**class)).map(|(_, count)| count).sum()
    }

    /// Runs whose fault struck.
    fn runs(&self) -> u64 {
        self.count(|class| class != Class::Lost)
    }

    fn cells(&self, classes: &[Class]) -> Vec<String> {
        let (manifested, failed) = (self.count(Class::is_manifested), self.count(Class::is_failure));
        let mut cells = vec![self.name.clone(), self.runs().to_string()];
        cells.extend(classes.iter().map(|class| self.count(|other| other == *class).to_string()));
        cells.extend([manifested.to_string(), rate(failed, manifested), rate(failed, self.runs())]);
        cells
    }
}

fn rate(count: u64, all: u64) -> String {
    if all == 0 {
        return "-".into();
    }
    let (low, high) = wilson(count, all);
    format!("{count}/{all} {:.2} % [{low:.2}, {high:.2}]", 100.0 * count as f64 / all as f64)
}

/// A heading and its lines.
type Section = (String, Vec<Row>);

/// The records in groups of one key, the largest 25 groups, the largest first.
fn by<R>(records: &[R], class: impl Fn(&R) -> Class, key: impl Fn(&R) -> String) -> Vec<Row> {
    let mut groups: BTreeMap<String, Vec<Class>> = BTreeMap::new();
    for record in records {
        groups.entry(key(record)).or_default().push(class(record));
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, classes)| std::cmp::Reverse(classes.len()));
    groups.into_iter().take(25).map(|(name, classes)| Row::of(name, classes.into_iter())).collect()
}

fn sections(records: &Records) -> Vec<Section> {
    match records {
        Records::Native(records) => sections_of_flips(records),
        Records::Hooks(records) => sections_of_hooks(records),
    }
}

fn sections_of_flips(records: &[Record]) -> Vec<Section> {
    let by = |key: &dyn Fn(&Record) -> String| by(records, |record| record.class, key);
    let row = |name: String, wanted: &dyn Fn(&Record) -> bool| {
        Row::of(name, records.iter().filter(|record| wanted(record)).map(|record| record.class))
    };
    let mut types: Vec<Row> = Fault::ALL
        .into_iter()
        .map(|fault| row(fault.to_string(), &|record| record.fault == fault))
        .filter(|row| !row.counts.is_empty())
        .collect();
    let group = |name: &str, faults: &[Fault]| row(name.into(), &|record| faults.contains(&record.fault));
    types.push(group("DF", &[Fault::Wreg, Fault::Wval, Fault::Waddr, Fault::Raddr]));
    types.push(group("RD", &[Fault::Rreg, Fault::Rval]));
    types.push(row("all".into(), &|_| true));
    let mut rooms = by(&|record| room(record).to_owned());
    let checker = |record: &Record| CHECKER.contains(&room(record));
    if records.iter().any(checker) {
        rooms.push(row(format!("the checker's own code ({})", CHECKER.join(", ")), &checker));
    }
    let symbol = |record: &Record| match record.symbol.as_str() {
        "" => format!("{} (no symbol)", record.module),
        symbol => symbol.chars().take(70).collect(),
    };
    let ended = |record: &Record| ending(record.class, &record.subclass);
    vec![
        ("by fault type (DF, RD: SEI's sums)".into(), types),
        ("by room: whose function was struck, or the nearest one of ours that had called it".into(), rooms),
        ("by module".into(), by(&|record| record.module.clone())),
        ("by function, the 25 most struck".into(), by(&symbol)),
        ("by flipped bit".into(), by(&bit_range)),
        ("by how it ended".into(), by(&ended)),
    ]
}

fn sections_of_hooks(records: &[hooks::Record]) -> Vec<Section> {
    let mut kinds: Vec<Row> = by(records, |record| record.class, hooks::Record::name);
    kinds.sort_by(|one, other| one.name.cmp(&other.name));
    kinds.push(Row::of("all".into(), records.iter().map(|record| record.class)));
    let ended = by(records, |record| record.class, |record| ending(record.class, &record.subclass));
    vec![("by what was corrupted".into(), kinds), ("by how it ended".into(), ended)]
}

fn ending(class: Class, subclass: &str) -> String {
    format!("{}: {}", class.name(), folded(subclass))
}

/// What both shapes of records have.
struct Run {
    class: Class,
    noticed: bool,
    states_equal: Option<bool>,
    /// Where and how it ended, for a list.
    words: String,
}

fn runs(title: &str, records: &Records) -> Vec<Run> {
    match records {
        Records::Native(records) => records.iter().map(|record| run_of_flip(title, record)).collect(),
        Records::Hooks(records) => records.iter().map(run_of_hook).collect(),
    }
}

fn run_of_flip(title: &str, record: &Record) -> Run {
    let flip =
        record.flip.as_ref().map_or_else(String::new, |flip| format!("{} bit {}", flip.place, flip.bit));
    let words = format!(
        "{} at {}+{:#x} {}: {} ({flip})  crosscheck inject replay --run {title}.jsonl:{}/{}",
        told(record.class, &record.subclass, &record.told),
        record.module,
        record.offset,
        record.symbol,
        record.text,
        record.fault,
        record.id
    );
    let (class, states_equal) = (record.class, record.states_equal);
    Run { class, noticed: !record.noticed.is_empty(), states_equal, words }
}

fn run_of_hook(record: &hooks::Record) -> Run {
    let how = told(record.class, &record.subclass, &record.told);
    let words = format!("{how} after {} {} ({})", record.name(), record.id, record.hit);
    let (class, states_equal) = (record.class, record.states_equal);
    Run { class, noticed: !record.noticed.is_empty(), states_equal, words }
}

fn told(class: Class, subclass: &str, told: &str) -> String {
    format!("{}: {} {}", class.name(), folded(subclass), told.escape_debug())
}

/// One and the same part again and again, as of a replica that gives one wrong reply after the other, is told once.
fn folded(subclass: &str) -> String {
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

/// Rooms that exist to check others: what strikes them strikes the checker.
const CHECKER: [&str; 3] = ["object", "execute", "vote"];

/// The crate of this workspace that the struck function belongs to; of a library's function, the nearest on the stack.
fn room(record: &Record) -> &'static str {
    const ROOMS: [&str; 7] = ["object", "order", "schedule", "vote", "execute", "crosscheck", "memcached"];
    let of = |name: &str| {
        let path = name.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        let path = path.split("::").next().unwrap_or("");
        ROOMS.into_iter().find(|room| *room == path)
    };
    let names = std::iter::once(&record.symbol).chain(&record.callers);
    names.map(String::as_str).find_map(of).unwrap_or("none")
}

fn bit_range(record: &Record) -> String {
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

/// Of a cluster: who could have known of the wrong replies, and of states that differ.
fn comparisons(runs: &[Run]) -> Option<String> {
    let judged: Vec<&Run> =
        runs.iter().filter(|run| run.class != Class::Lost && run.states_equal.is_some()).collect();
    if judged.is_empty() {
        return None;
    }
    let count = |wrong: bool, noticed: bool, equal: bool| {
        let is = |run: &&&Run| {
            (run.class == Class::WrongReply) == wrong
                && run.noticed == noticed
                && run.states_equal == Some(equal)
        };
        judged.iter().filter(is).count()
    };
    let noticed = count(true, true, true) + count(true, true, false);
    let (differ, silent) = (count(true, false, false), count(true, false, true));
    Some(format!(
        "Wrong replies in {} of {} runs: {noticed} noticed by a replica, {differ} unnoticed with states that differ in the end (a hash of the \
         whole state tells, afterwards), {silent} unnoticed with equal states (only the client could know). Right replies, but states that \
         differ in the end and nobody noticed: {}.",
        noticed + differ + silent,
        judged.len(),
        count(false, false, false)
    ))
}

fn classes_of(runs: &[Run]) -> Vec<Class> {
    Class::ALL.into_iter().filter(|class| runs.iter().any(|run| run.class == *class)).collect()
}

fn heading(classes: &[Class]) -> Vec<String> {
    let mut cells = vec![String::new(), "runs".into()];
    cells.extend(classes.iter().map(|class| class.name().to_owned()));
    cells.extend(
        ["manifested", "failures of manifested [95 %]", "failures of runs [95 %]"].map(str::to_owned),
    );
    cells
}

/// The tables as text.
pub fn table(campaigns: &[Titled]) -> String {
    let mut text = String::new();
    for (title, records) in campaigns {
        let runs = runs(title, records);
        let classes = classes_of(&runs);
        let _ = writeln!(text, "{title}: {} records", runs.len());
        for (name, rows) in sections(records) {
            let mut lines = vec![heading(&classes)];
            lines[0][0] = name;
            lines.extend(rows.iter().map(|row| row.cells(&classes)));
            let widths: Vec<usize> = (0..lines[0].len())
                .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
                .collect();
            for line in lines {
                let first = format!("{:<width$}", line[0], width = widths[0]);
                let rest = line.iter().zip(&widths).skip(1).map(|(cell, width)| format!("{cell:>width$}"));
                let all: Vec<String> = std::iter::once(first).chain(rest).collect();
                let _ = writeln!(text, "  {}", all.join("  ").trim_end());
            }
            text.push('\n');
        }
        if let Some(told) = comparisons(&runs) {
            let _ = writeln!(text, "  {told}\n");
        }
    }
    text.trim_end().to_owned()
}

/// The tables as a page that needs nothing else.
pub fn page(campaigns: &[Titled]) -> String {
    let mut body = String::new();
    for (title, records) in campaigns {
        let runs = runs(title, records);
        let classes = classes_of(&runs);
        let _ = write!(body, "<h2>{}: {} records</h2>", escape(title), runs.len());
        for (name, rows) in sections(records) {
            let _ = write!(body, "<h3>{}</h3><div class=w><table><tr>", escape(&name));
            for cell in heading(&classes) {
                let _ = write!(body, "<th>{}</th>", escape(&cell));
            }
            body.push_str("<th>share</th></tr>");
            for row in &rows {
                body.push_str("<tr>");
                for cell in row.cells(&classes) {
                    let _ = write!(body, "<td>{}</td>", escape(&cell));
                }
                let _ = write!(body, "<td>{}</td></tr>", bar(row));
            }
            body.push_str("</table></div>");
        }
        if let Some(told) = comparisons(&runs) {
            let _ = write!(body, "<p>{}</p>", escape(&told));
        }
        list(&mut body, &runs);
    }
    PAGE.replace("{body}", &body)
}

/// How the runs of a row ended, as a stacked bar.
fn bar(row: &Row) -> String {
    let runs = row.runs().max(1) as f64;
    let mut at = 0.0;
    let mut bar = String::from("<svg width=240 height=12>");
    for (class, count) in row.counts.iter().filter(|(class, _)| **class != Class::Lost) {
        let width = 240.0 * *count as f64 / runs;
        let _ = write!(
            bar,
            "<rect x={at:.1} width={width:.1} height=12 fill=\"{}\"><title>{} {count}</title></rect>",
            color(*class),
            class.name()
        );
        at += width;
    }
    bar.push_str("</svg>");
    bar
}

fn color(class: Class) -> &'static str {
    match class {
        Class::Masked | Class::Late | Class::Lost => "#b8c4ce",
        Class::Detected | Class::Repaired => "#4c9f70",
        Class::Otherwise | Class::Replaced => "#5b8db8",
        Class::Latent | Class::NoProgress => "#d9a441",
        Class::Undetected | Class::WrongReply => "#c0392b",
    }
}

fn list(body: &mut String, runs: &[Run]) {
    let bad = |run: &&Run| run.class.is_failure() || matches!(run.class, Class::Latent | Class::NoProgress);
    let all = runs.iter().filter(bad).count();
    if all == 0 {
        return;
    }
    let _ = write!(
        body,
        "<details><summary>{all} runs that failed, are latent, or stopped the cluster</summary><ol>"
    );
    for run in runs.iter().filter(bad).take(LONGEST_LIST) {
        let _ = write!(body, "<li><code>{}</code></li>", escape(&run.words));
    }
    body.push_str("</ol></details>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const PAGE: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>Fault injection</title><style>
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:82rem;padding:0 1rem;color:#1f2933}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid #e4e7eb;white-space:nowrap}
td:first-child,th:first-child{text-align:left}.w{overflow-x:auto}code{font-size:12px}h3{margin:1.2rem 0 .3rem}
</style><h1>Fault injection</h1><p>One fault per run: a flipped bit in one instruction, or what a replica did to itself. Manifested: everything but masked and late. Failures: a wrong reply
that nobody noticed. Intervals: Wilson, 95 %.</p>{body}</html>
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_and_again_is_told_once() {
        assert_eq!(folded("a, a, a, b, a"), "a (3 times), b, a");
        assert_eq!(folded(""), "");
    }

    #[test]
    fn intervals_are_those_of_the_papers_numbers() {
        // mc-sei of SEI's table 2: CF 4 of 6,515, DF 30 of 20,264.
        let (low, high) = wilson(4, 6_515);
        assert!((low - 0.024).abs() < 0.001 && (high - 0.158).abs() < 0.001, "{low} {high}");
        let (low, high) = wilson(0, 100);
        assert!(low == 0.0 && (high - 3.70).abs() < 0.01, "{low} {high}");
    }

    fn masked() -> Record {
        let line = r#"{"id":0,"seed":1,"fault":"rreg","bits":{"low":0,"high":9},"flips":true,"profile":"","index":0,
            "address":0,"module":"m","offset":0,"symbol":"","text":"","hits":1,"flip":null,"class":"masked",
            "subclass":"","message":null,"told":"","signal":null,"exit":null,"start_us":0,"total_us":0,"retries":0}"#;
        serde_json::from_str(line).expect("a record")
    }

    #[test]
    fn compressed_records_are_read_and_damaged_ones_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records.jsonl.gz");
        let line = serde_json::to_string(&masked()).unwrap();
        let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut file, format!("{line}\n{line}\n").as_bytes()).unwrap();
        let mut bytes = file.finish().unwrap();
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(read(&path).unwrap(), Records::Native(records) if records.len() == 2));
        let last = bytes.len() - 6;
        bytes[last] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(read(&path).is_err(), "its checksum does not hold");
    }

    #[test]
    fn hooks_have_tables_of_their_own() {
        let line = r#"{"id":3,"seed":1,"kind":"multi-flip","hit":"an item","class":"repaired","subclass":"noticed by 1",
            "told":"","states_equal":true,"noticed":[1],"struck_us":1,"total_us":2}"#;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hooks.jsonl");
        fs::write(&path, line.replace('\n', "")).unwrap();
        let records = read(&path).unwrap();
        assert!(
            matches!(&records, Records::Hooks(records) if records[0].name() == "multi-flip"),
            "{records:?}"
        );
        let told = table(&[("hooks".into(), records)]);
        assert!(told.contains("by what was corrupted") && !told.contains("by fault type"), "{told}");
    }

    #[test]
    fn who_could_have_known_is_told_of_clusters() {
        let record = |class, noticed: &[u8], states_equal| Run {
            class,
            noticed: !noticed.is_empty(),
            states_equal: Some(states_equal),
            words: String::new(),
        };
        assert_eq!(
            comparisons(&[run_of_flip("", &masked())]),
            None,
            "an old record, or one of a single server"
        );
        let told = comparisons(&[
            record(Class::WrongReply, &[1, 3], true),
            record(Class::WrongReply, &[], false),
            record(Class::WrongReply, &[], false),
            record(Class::WrongReply, &[], true),
            record(Class::Latent, &[], false),
            record(Class::Repaired, &[1], true),
            record(Class::Lost, &[], true),
        ]);
        let told = told.expect("records of a cluster");
        assert!(
            told.starts_with("Wrong replies in 4 of 6 runs: 1 noticed by a replica, 2 unnoticed"),
            "{told}"
        );
        assert!(
            told.contains("1 unnoticed with equal states") && told.ends_with("nobody noticed: 1."),
            "{told}"
        );
    }

    #[test]
    fn a_librarys_function_counts_for_who_called_it() {
        let record = |symbol: &str, callers: &[&str]| -> Record {
            let mut record = masked();
            record.symbol = symbol.into();
            record.callers = callers.iter().map(|name| (*name).to_owned()).collect();
            record
        };
        assert_eq!(
            room(&record("<memcached::protocol::Connection as crosscheck::service::Protocol>::next", &[])),
            "memcached"
        );
        assert_eq!(room(&record("", &["__memmove", "object::walk::seal_object", "crosscheck::x"])), "object");
        assert_eq!(room(&record("raft::raft::Raft<T>::step", &[])), "none");
        let all = sections_of_flips(&[record("vote::voter::check", &[]), record("order::x", &[])]);
        let rooms = &all[1].1;
        assert_eq!(
            rooms.last().map(|row| (row.name.starts_with("the checker"), row.runs())),
            Some((true, 1))
        );
    }
}
