//! From the text of a configuration file to a checked [`NodeConfig`], or to every problem in it.

use std::net::SocketAddr;
use std::path::PathBuf;

use crosscheck::{Durability, Mode};
use memcached::limits::{ITEM_BYTES_MAX, ITEM_BYTES_MIN, LARGEST_ITEMS_PER_SHARD};
use toml::de::DeTable;

use super::NodeConfig;
use super::problem::{Problem, Problems, line_of, meant};
use super::read::Reader;

/// Every field of the file's top level; the example documents each (a test compares).
const FIELDS: [&str; 17] = [
    "this_replica",
    "listen",
    "admin",
    "mode",
    "workers",
    "durability",
    "data_dir",
    "memory_limit_mb",
    "item_size_max",
    "max_connections",
    "election_ms",
    "watchdog_ms",
    "work_us",
    "guarded_classes",
    "before_images",
    "replies",
    "replica",
];
const REPLICA_FIELDS: [&str; 2] = ["number", "address"];
/// Replica numbers are small: the vote is quadratic in their count, and f = 4 is more than anybody has asked for.
pub const MOST_REPLICAS: u64 = 9;

/// Reads the text of the file called `file`.
///
/// # Errors
/// Every problem found, each with its line and remedy.
pub fn parse(file: &str, text: &str) -> Result<NodeConfig, Problems> {
    let fail = |mut list: Vec<Problem>| {
        list.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        Problems { file: file.to_owned(), list }
    };
    let root = DeTable::parse(text).map_err(|error| fail(vec![syntax(text, &error)]))?;
    let mut reader = Reader::new(text, root.get_ref(), "", None, &FIELDS);
    let config = read(text, &mut reader);
    match config {
        Some(config) if reader.problems.is_empty() => Ok(config),
        _ => Err(fail(reader.problems)),
    }
}

fn syntax(text: &str, error: &toml::de::Error) -> Problem {
    Problem {
        line: error.span().map(|span| line_of(text, span.start)),
        field: String::new(),
        what: format!("not TOML: {}", error.message().replace('\n', "; ")),
        remedy: "compare with `crosscheck serve --example-config`".to_owned(),
    }
}

/// Reads every field before giving up, so that one run shows every problem.
fn read(text: &str, reader: &mut Reader<'_>) -> Option<NodeConfig> {
    let this_replica = reader.integer("this_replica", 1..=MOST_REPLICAS, "");
    let this_replica = reader.require("this_replica", this_replica, "1");
    let listen = reader.address("listen");
    let listen = reader.require("listen", listen, "\"0.0.0.0:11211\"");
    let admin = read_admin(reader);
    let mode = reader.parsed("mode", "`crosscheck modes` explains them", |letters| letters.parse());
    let mode = mode.unwrap_or_default();
    let durability = read_durability(reader);
    let workers = reader.integer("workers", 1..=64, "");
    let memory = reader.integer("memory_limit_mb", 1..=1 << 20, "MiB");
    let item_size_max =
        reader.integer("item_size_max", ITEM_BYTES_MIN as u64..=ITEM_BYTES_MAX as u64, "bytes");
    let max_connections = reader.integer("max_connections", 1..=1_000_000, "");
    let election_ms = reader.span_of("election_ms", 50..=60_000, "ms");
    let watchdog_ms = reader.integer("watchdog_ms", 100..=600_000, "ms");
    let work_us = reader.integer("work_us", 0..=100_000, "µs");
    let guarded_classes = reader.parsed("guarded_classes", "name them as the example does", read_classes);
    let before_images = read_either(reader, "before_images", "kept", "none");
    let hold_replies = read_either(reader, "replies", "held", "free");
    let replicas = read_replicas(text, reader);
    check_count(reader, mode, replicas.len(), this_replica);

    let small = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let mut config = NodeConfig::new(u8::try_from(this_replica?).ok()?, replicas, listen?, admin?);
    config.mode = mode;
    config.durability = durability?;
    config.workers = workers.map_or(config.workers, small);
    config.memory_limit_mb = memory.unwrap_or(config.memory_limit_mb);
    config.item_size_max = item_size_max.unwrap_or(config.item_size_max);
    config.max_connections = max_connections.map_or(config.max_connections, small);
    config.election_ms = election_ms.unwrap_or(config.election_ms);
    config.watchdog_ms = watchdog_ms.unwrap_or(config.watchdog_ms);
    config.work_us = work_us.map_or(config.work_us, |us| us as u32);
    config.guarded_classes = guarded_classes.unwrap_or_default();
    config.before_images = before_images.unwrap_or(config.before_images);
    config.hold_replies = hold_replies.unwrap_or(config.hold_replies);
    check_memory(reader, &config);
    Some(config)
}

/// Whether a field is the word `yes` or the word `no`.
fn read_either(reader: &mut Reader<'_>, field: &'static str, yes: &str, no: &str) -> Option<bool> {
    reader.parsed(field, &format!("write \"{yes}\" or \"{no}\""), |word| match word {
        word if word == yes => Ok(true),
        word if word == no => Ok(false),
        other => Err(format!("`{other}` is neither")),
    })
}

/// `all`, `none`, or classes of the service with commas between them.
fn read_classes(text: &str) -> Result<Option<Vec<String>>, String> {
    match text {
        "all" => Ok(None),
        "none" => Ok(Some(Vec::new())),
        names => {
            let names: Vec<&str> = names.split(',').map(str::trim).collect();
            match names.iter().find(|name| !memcached::CLASSES.contains(name)) {
                Some(unknown) => Err(format!("there is no class `{unknown}`")),
                None => Ok(Some(names.into_iter().map(str::to_owned).collect())),
            }
        }
    }
}

/// Memory must hold a few of the longest items, or they could never be stored.
fn check_memory(reader: &mut Reader<'_>, config: &NodeConfig) {
    if let Err((what, remedy)) = check_service(config) {
        reader.report(reader.offset("memory_limit_mb"), "memory_limit_mb", &what, &remedy);
    }
}

/// Whether the service can work with these limits; what is wrong and the remedy otherwise.
pub fn check_service(config: &NodeConfig) -> Result<(), (String, String)> {
    config.service().check().map_err(|error| {
        let needed = (LARGEST_ITEMS_PER_SHARD * config.item_size_max).div_ceil(1 << 20);
        (error.to_string(), format!("use at least {needed} MiB, or a smaller item_size_max"))
    })
}

fn read_admin(reader: &mut Reader<'_>) -> Option<SocketAddr> {
    let admin = reader.address("admin");
    let admin = reader.require("admin", admin, "\"127.0.0.1:11311\"")?;
    if !admin.ip().is_loopback() {
        let remedy = "use 127.0.0.1:PORT or [::1]:PORT and reach it over ssh";
        let what = format!("{admin} is not a loopback address, and whoever reaches it may stop the replica");
        reader.report(reader.offset("admin"), "admin", &what, remedy);
        return None;
    }
    Some(admin)
}

fn read_durability(reader: &mut Reader<'_>) -> Option<Durability> {
    let kinds = ["memory", "disk"];
    let kind = reader.parsed("durability", "write \"memory\" or \"disk\"", |text| {
        let guess = meant(text, &kinds).map(|meant| format!(" (did you mean `{meant}`?)"));
        let unknown = || format!("unknown durability `{text}`{}", guess.unwrap_or_default());
        kinds.into_iter().find(|kind| *kind == text).ok_or_else(unknown)
    });
    if kind.is_none() && reader.offset("durability").is_some() {
        return None;
    }
    let directory = reader.text("data_dir");
    match (kind.unwrap_or("memory"), directory) {
        ("disk", Some(directory)) if directory.trim().is_empty() => {
            // It would be whatever directory the process is started in.
            reader.report(
                reader.offset("data_dir"),
                "data_dir",
                "is empty, and durability = \"disk\" needs a directory",
                "write `data_dir = \"/var/lib/crosscheck\"`, or use durability = \"memory\"",
            );
            None
        }
        ("disk", Some(directory)) => Some(Durability::Disk(PathBuf::from(directory))),
        ("disk", None) => {
            reader.report(
                reader.offset("durability"),
                "data_dir",
                "is missing, and durability = \"disk\" needs it",
                "add `data_dir = \"/var/lib/crosscheck\"`, or use durability = \"memory\"",
            );
            None
        }
        (_, Some(_)) => {
            reader.report(
                reader.offset("data_dir"),
                "data_dir",
                "is set, but durability is \"memory\" and would never write there",
                "write durability = \"disk\", or remove data_dir",
            );
            None
        }
        (_, None) => Some(Durability::Memory),
    }
}

/// The addresses in the order of the replicas' numbers.
fn read_replicas(text: &str, reader: &mut Reader<'_>) -> Vec<SocketAddr> {
    let mut numbered: Vec<(u64, SocketAddr)> = Vec::new();
    for (index, (table, at)) in reader.tables("replica").into_iter().enumerate() {
        let prefix = format!("replica[{}].", index + 1);
        let mut section = Reader::new(text, table, &prefix, Some(line_of(text, at)), &REPLICA_FIELDS);
        let number = section.integer("number", 1..=MOST_REPLICAS, "");
        let number = section.require("number", number, &(index + 1).to_string());
        let address = section.address("address");
        let address = section.require("address", address, "\"10.0.0.1:12211\"");
        if let (Some(number), Some(address)) = (number, address) {
            if numbered.iter().any(|(other, _)| *other == number) {
                let at = section.offset("number");
                section.report(
                    at,
                    "number",
                    &format!("{number} is taken"),
                    "number the replicas 1, 2, 3 ...",
                );
            } else if numbered.iter().any(|(_, other)| *other == address) {
                let at = section.offset("address");
                section.report(at, "address", &format!("{address} is taken"), "give every replica its own");
            }
            numbered.push((number, address));
        }
        reader.problems.append(&mut section.problems);
    }
    numbered.sort_unstable();
    let highest = numbered.last().map_or(0, |(number, _)| *number);
    if reader.problems.is_empty() && highest != numbered.len() as u64 {
        let what = format!("the highest number is {highest}, but there are {} sections", numbered.len());
        reader.report(None, "replica", &what, "number the replicas 1, 2, 3 ... without gaps");
    }
    numbered.into_iter().map(|(_, address)| address).collect()
}

fn check_count(reader: &mut Reader<'_>, mode: Mode, count: usize, me: Option<u64>) {
    if !reader.problems.is_empty() {
        return;
    }
    let at = reader.offset("mode");
    if let Err((what, remedy)) = check_group(mode, count) {
        reader.report(at, "replica", &what, &remedy);
    } else if me.is_some_and(|me| me > count as u64) {
        let what = format!("there is no replica {} among the {count} sections", me.unwrap_or_default());
        let remedy = "use the number of one of the [[replica]] sections";
        reader.report(reader.offset("this_replica"), "this_replica", &what, remedy);
    }
}

/// Whether a group of `count` replicas can run `mode`; what is wrong and the remedy otherwise.
pub fn check_group(mode: Mode, count: usize) -> Result<(), (String, String)> {
    let remedy = |text: &str| text.to_owned();
    match (mode.replicated, count) {
        (_, 0) => Err((remedy("there is no replica"), remedy("add a [[replica]] section for each"))),
        (false, 1) => Ok(()),
        (false, _) => Err((
            format!("mode {mode} does not replicate, but there are {count} replicas"),
            remedy("use one replica, or a mode that begins with R"),
        )),
        (true, count) if count % 2 == 0 => Err((
            format!("{count} replicas have no majority over {} faulty ones", count / 2),
            format!("use {} or {}: 2f+1 replicas survive f faulty ones", count - 1, count + 1),
        )),
        (true, count) if count as u64 > MOST_REPLICAS => {
            Err((format!("{count} replicas are too many"), format!("use at most {MOST_REPLICAS}")))
        }
        (true, _) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::EXAMPLE;
    use super::*;

    /// The example with one line replaced, read again: the only problem's text.
    fn problem_with(line: &str, instead: &str) -> String {
        assert!(EXAMPLE.contains(line), "the example has no line `{line}`");
        let text = EXAMPLE.replacen(line, instead, 1);
        let problems = parse("node.toml", &text).expect_err(instead);
        let shown = problems.to_string();
        assert_eq!(problems.list.len(), 1, "{shown}");
        assert!(shown.contains("Remedy: "), "{shown}");
        shown
    }

    fn line_in_example(line: &str) -> usize {
        1 + EXAMPLE.lines().position(|other| other == line).expect("a line of the example")
    }

    #[test]
    fn the_example_parses_and_documents_every_field() {
        let config = parse("example", EXAMPLE).expect("the example");
        assert_eq!(config.this_replica, 1);
        assert_eq!(config.replicas.len(), 3);
        for field in FIELDS.iter().filter(|field| **field != "replica").chain(&REPLICA_FIELDS) {
            let at = EXAMPLE.lines().position(|line| line.starts_with(&format!("{field} = ")));
            let at = at.unwrap_or_else(|| panic!("`{field}` is not in the example"));
            let above = EXAMPLE.lines().nth(at - 1).unwrap_or_default();
            assert!(above.starts_with("# "), "`{field}` has no comment above it");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut config = parse("example", EXAMPLE).expect("the example");
        assert_eq!(parse("copy", &config.to_toml()), Ok(config.clone()));
        config.durability = Durability::Disk(PathBuf::from("/a \"b\"\\c"));
        config.mode = "RD00".parse().expect("a mode");
        config.election_ms = (70, 80);
        assert_eq!(parse("copy", &config.to_toml()), Ok(config));
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let required = "this_replica = 1\nlisten = \"0.0.0.0:1\"\nadmin = \"[::1]:2\"\n\
                        [[replica]]\nnumber = 1\naddress = \"127.0.0.1:3\"\n";
        let config = parse("short", required).expect("only what is required");
        for (name, value) in [
            ("mode", format!("{:?}", config.mode.to_string())),
            ("workers", config.workers.to_string()),
            ("memory_limit_mb", config.memory_limit_mb.to_string()),
            ("item_size_max", config.item_size_max.to_string()),
            ("max_connections", config.max_connections.to_string()),
            ("election_ms", format!("[{}, {}]", config.election_ms.0, config.election_ms.1)),
            ("watchdog_ms", config.watchdog_ms.to_string()),
            ("work_us", config.work_us.to_string()),
        ] {
            let head = EXAMPLE.split(&format!("\n{name} = ")).next().unwrap_or_default();
            let told = head.rsplit("default: ").next().and_then(|rest| rest.lines().next());
            assert_eq!(told, Some(value.as_str()), "default of {name}");
        }
        assert_eq!(config.durability, Durability::Memory);
    }

    #[test]
    fn the_documented_item_sizes_are_the_services() {
        assert!(EXAMPLE.contains(&format!("in bytes, {ITEM_BYTES_MIN} to {ITEM_BYTES_MAX}.")));
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line_and_a_guess() {
        let shown = problem_with("workers = 4", "worker = 4");
        let line = line_in_example("workers = 4");
        assert_eq!(
            shown,
            format!("node.toml:{line}: worker: there is no such field. Remedy: did you mean `workers`?")
        );
        assert!(problem_with("workers = 4", "colour = 4").contains("known here are this_replica, "));
        assert!(problem_with("number = 2", "number = 2\nadress = \"x\"").contains("did you mean `address`?"));
    }

    #[test]
    fn a_wrong_value_is_named_with_its_line_range_and_type() {
        let line = line_in_example("workers = 4");
        let shown = problem_with("workers = 4", "workers = 0");
        assert!(shown.starts_with(&format!("node.toml:{line}: workers: 0 is out of range")), "{shown}");
        assert!(shown.ends_with("from 1 to 64"), "{shown}");
        let shown = problem_with("workers = 4", "workers = \"four\"");
        assert!(shown.contains("expected a whole number, found the string \"four\""), "{shown}");
        assert!(problem_with("workers = 4", "workers = -1").contains("-1 is out of range"));
        assert!(
            problem_with("election_ms = [300, 600]", "election_ms = [600, 300]").contains("more than 300")
        );
        assert!(problem_with("election_ms = [300, 600]", "election_ms = 300").contains("[LOW, HIGH]"));
        assert!(problem_with("mode = \"RDGX\"", "mode = \"RDXG\"").contains("unknown mode `RDXG`"));
        assert!(
            problem_with("durability = \"disk\"", "durability = \"disc\"").contains("did you mean `disk`")
        );
        assert!(problem_with("listen = \"0.0.0.0:11211\"", "listen = \"11211\"").contains("no address"));
    }

    #[test]
    fn fields_are_checked_against_each_other() {
        assert!(problem_with("data_dir = \"/var/lib/crosscheck\"", "").contains("data_dir: is missing"));
        assert!(problem_with("durability = \"disk\"", "").contains("would never write there"));
        let line = line_in_example("data_dir = \"/var/lib/crosscheck\"");
        for empty in ["", " "] {
            let shown =
                problem_with("data_dir = \"/var/lib/crosscheck\"", &format!("data_dir = \"{empty}\""));
            assert!(shown.starts_with(&format!("node.toml:{line}: data_dir: is empty")), "{shown}");
        }
        assert!(problem_with("mode = \"RDGX\"", "mode = \"00G0\"").contains("does not replicate"));
        let needed = format!("at least {LARGEST_ITEMS_PER_SHARD} MiB");
        assert!(problem_with("memory_limit_mb = 1024", "memory_limit_mb = 1").contains(&needed));
        assert!(problem_with("this_replica = 1", "this_replica = 4").contains("no replica 4"));
        assert!(problem_with("number = 3", "number = 2").contains("2 is taken"));
        assert!(problem_with("number = 3", "number = 5").contains("without gaps"));
        assert!(problem_with("10.0.0.3:12211", "10.0.0.2:12211").contains("is taken"));
        assert!(problem_with("127.0.0.1:11311", "0.0.0.0:11311").contains("loopback"));
        let two = EXAMPLE.rsplit_once("[[replica]]").expect("a last section").0;
        let shown = parse("node.toml", two).expect_err("two replicas").to_string();
        assert!(shown.contains("use 1 or 3"), "{shown}");
    }

    #[test]
    fn everything_wrong_is_told_at_once_in_the_files_order() {
        let text = "mode = \"X\"\nworkers = 0\nthis_replica = 1\nlisten = \"127.0.0.1:1\"\n";
        let problems = parse("node.toml", text).expect_err("much is wrong");
        let fields: Vec<&str> = problems.list.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, ["mode", "workers", "admin"]);
        let broken = parse("node.toml", "mode = \n").expect_err("not TOML").to_string();
        assert!(broken.starts_with("node.toml:1: not TOML: "), "{broken}");
    }
}
