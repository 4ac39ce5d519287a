//! From the text of a configuration file to a checked [`NodeConfig`], or to every problem in it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crosscheck::admin::{Endpoint, Token};
use crosscheck::{Address, Durability, GroupKey, Mode, OnDetection, Reads};
use toml::de::DeTable;

use super::problem::{Problem, Problems, line_of, meant};
use super::read::TableReader;
use super::{DEFAULT_BUFFER_MB, DEFAULT_WORKERS, LEAST_BUFFER_MB, NodeConfig, access, check_client_threads};
use crate::program::{self, text};
use crate::{ServiceOptions, Wrong};

/// Every field of the file's top level except the service's; the example documents each (a test compares).
const FIELDS: [&str; 24] = [
    "this_replica",
    "listen",
    "client_socket",
    "client_socket_mode",
    "tls_cert",
    "tls_key",
    "admin",
    "admin_token_file",
    "group_key",
    "mode",
    "workers",
    "client_threads",
    "durability",
    "data_dir",
    "max_connections",
    "idle_timeout_s",
    "buffer_limit_mb",
    "election_ms",
    "watchdog_ms",
    "faults_per_10s",
    "on_detection",
    "extra_protection",
    "reads",
    "replica",
];
/// Fields of the laboratory's builds.
const LAB_FIELDS: [&str; 2] = ["before_images", "replies"];
const REPLICA_FIELDS: [&str; 3] = ["number", "address", "part"];
/// Replica numbers are small: the vote is quadratic in their count, and no known deployment needs more than f = 4.
pub const MOST_REPLICAS: u64 = crosscheck::limits::REPLICAS as u64;

/// How the file of a secret is read: the result is its text, or the problem and its remedy.
pub type ReadSecret<'r> = &'r dyn Fn(&Path) -> Result<String, (String, String)>;

/// Reads the text of the file called `file`; `secret` reads the secrets that it names.
///
/// # Errors
/// Every problem found, each with its line and remedy.
pub fn parse<O: ServiceOptions>(
    file: &str,
    text: &str,
    secret: ReadSecret<'_>,
) -> Result<NodeConfig<O>, Problems> {
    let fail = |mut list: Vec<Problem>| {
        list.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        Problems { file: file.to_owned(), list }
    };
    let root = DeTable::parse(text).map_err(|error| fail(vec![syntax(text, &error)]))?;
    let lab = [&LAB_FIELDS, O::LAB_FIELDS].concat();
    let mut reader = TableReader::of_file(text, root.get_ref(), &known::<O>(), &lab);
    let config = read(text, &mut reader, secret);
    match config {
        Some(config) if reader.problems.is_empty() => Ok(config),
        _ => Err(fail(reader.problems)),
    }
}

/// Every field that the file may have.
fn known<O: ServiceOptions>() -> Vec<&'static str> {
    FIELDS.iter().chain(O::FIELDS).copied().collect()
}

fn syntax(text: &str, error: &toml::de::Error) -> Problem {
    Problem {
        line: error.span().map(|span| line_of(text, span.start)),
        field: String::new(),
        what: format!("not TOML: {}", error.message().replace('\n', "; ")),
        remedy: format!("compare with `{} serve --example-config`", program::name()),
        may_pass: false,
    }
}

/// Reads every field before giving up, so that one run shows every problem.
fn read<O: ServiceOptions>(
    text: &str,
    reader: &mut TableReader<'_>,
    secret: ReadSecret<'_>,
) -> Option<NodeConfig<O>> {
    let this_replica = reader.integer("this_replica", 1..=MOST_REPLICAS, "");
    let this_replica = reader.require("this_replica", this_replica, "1");
    let example = format!("\"0.0.0.0:{}\"", program::program().port);
    let listen = reader.resolved("listen", &format!("write `listen = \"HOST:PORT\"`, for example {example}"));
    let listen = reader.require("listen", listen, &example);
    let admin = read_admin(reader, secret);
    let endpoint = admin.as_ref().map(|(endpoint, _)| endpoint);
    let access = access::read(reader, endpoint);
    let mode = reader
        .parsed("mode", &format!("`{} modes` explains them", program::name()), |letters| letters.parse());
    let is_replicated = mode.map_or(reader.offset("mode").is_none(), |mode: Mode| mode.replicated);
    let mode = mode.unwrap_or_default();
    let group_key = if is_replicated { read_group_key(reader, secret) } else { None };
    let durability = read_durability(reader);
    let workers = reader.integer("workers", 1..=64, "");
    let service = O::read(reader);
    let max_connections = reader.integer("max_connections", 1..=1_000_000, "");
    let idle_timeout_s = reader.integer("idle_timeout_s", 0..=86_400, "seconds");
    let buffer_limit_mb = reader.integer("buffer_limit_mb", LEAST_BUFFER_MB..=1 << 20, "MiB");
    let client_threads = read_client_threads(reader, workers, buffer_limit_mb);
    let election_ms = reader.span_of("election_ms", 50..=60_000, "ms");
    let watchdog_ms = reader.integer("watchdog_ms", 100..=600_000, "ms");
    let faults_per_10s = reader.integer("faults_per_10s", 0..=1_000_000, "faults");
    #[cfg(feature = "lab")]
    let left_out = super::LeftOut::read(reader, mode);
    let on_detection = read_on_detection(reader, mode);
    if mode.verified && matches!(durability, Some(Durability::Disk(_))) {
        let what = format!("mode {mode} keeps no log on disk");
        reader.report(reader.offset("durability"), "durability", &what, "write \"memory\", or use mode RDGX");
    }
    let extra_protection = read_either(reader, "extra_protection", "yes", "no");
    if extra_protection.is_some() && !mode.verified {
        let what = format!("mode {mode} compares each request, and has no batches that wait");
        reader.report(reader.offset("extra_protection"), "extra_protection", &what, "remove it");
    }
    let (replicas, witness) = read_replicas(text, reader);
    check_count(reader, mode, (replicas.len(), witness), this_replica);
    let reads = read_reads(reader, mode, (replicas.len(), witness));
    check_ports(reader, listen, endpoint, &replicas, this_replica);

    let small = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let (admin, token_file) = admin?;
    let mut config = NodeConfig::new(u8::try_from(this_replica?).ok()?, Vec::new(), listen?, admin);
    (config.replicas, config.access) = (replicas, access);
    config.admin_token_file = token_file;
    config.mode = mode;
    (config.group_key_file, config.group_key) = group_key.unzip();
    config.durability = durability?;
    config.workers = workers.map_or(config.workers, small);
    config.client_threads = client_threads;
    config.max_connections = max_connections.map(small);
    config.idle_timeout_s = idle_timeout_s.unwrap_or(config.idle_timeout_s);
    config.buffer_limit_mb = buffer_limit_mb.unwrap_or(config.buffer_limit_mb);
    config.election_ms = election_ms.unwrap_or(config.election_ms);
    config.watchdog_ms = watchdog_ms.unwrap_or(config.watchdog_ms);
    config.faults_per_10s = faults_per_10s.map_or(config.faults_per_10s, |faults| faults as u32);
    #[cfg(feature = "lab")]
    {
        config.left_out = left_out;
    }
    config.on_detection = on_detection;
    (config.witness, config.extra_protection) = (witness, extra_protection);
    (config.reads, config.service) = (reads, service);
    if let Err(Wrong { field, what, remedy, .. }) = config.service.check() {
        reader.report(reader.offset(field), field, &what, &remedy);
    }
    Some(config)
}

/// How many threads serve client connections, with what was read of workers and memory.
fn read_client_threads(
    reader: &mut TableReader<'_>,
    workers: Option<u64>,
    buffer_limit_mb: Option<u64>,
) -> Option<usize> {
    let threads = usize::try_from(reader.integer("client_threads", 1..=64, "")?).ok()?;
    if workers.is_none() && reader.offset("workers").is_some() {
        // That number is wrong, and this one may fit the right one.
        return None;
    }
    let workers = workers.map_or(DEFAULT_WORKERS, |workers| usize::try_from(workers).unwrap_or(usize::MAX));
    let memory = buffer_limit_mb.unwrap_or(DEFAULT_BUFFER_MB);
    if let Err((what, remedy)) = check_client_threads(threads, workers, memory) {
        reader.report(reader.offset("client_threads"), "client_threads", &what, &remedy);
    }
    Some(threads)
}

/// How requests that only read are answered, in a group of so many processes, perhaps with a witness.
fn read_reads(reader: &mut TableReader<'_>, mode: Mode, (processes, witness): (usize, bool)) -> Reads {
    let is_local = read_either(reader, "reads", "local", "batch").unwrap_or_default();
    if is_local && let Err(what) = may_read_locally(mode, processes, witness) {
        reader.report(reader.offset("reads"), "reads", what, "remove it");
    }
    if is_local { Reads::Local } else { Reads::Batch }
}

/// Whether replicas of such a group may answer reads without a batch.
///
/// # Errors
/// For whom this setting is.
pub fn may_read_locally(mode: Mode, processes: usize, witness: bool) -> Result<(), &'static str> {
    let has_third = processes > 2 || (witness && processes == 2);
    let what =
        "\"local\" is for three or more replicas in a mode with X and G or V; with V also two and a witness";
    let can_read = if mode.verified { has_third } else { mode.compares_reads() && processes > 2 };
    can_read.then_some(()).ok_or(what)
}

/// What mode `00GT` does about a fault; another mode cannot have the field.
fn read_on_detection(reader: &mut TableReader<'_>, mode: Mode) -> OnDetection {
    let answers = read_either(reader, "on_detection", "answer", "exit");
    let at = reader.offset("on_detection");
    if at.is_some() && !mode.twice {
        let what = format!("mode {mode} does not compare a node with itself");
        reader.report(at, "on_detection", &what, "remove it, or use mode 00GT");
    }
    if answers == Some(false) { OnDetection::Exit } else { OnDetection::Answer }
}

/// Whether a field has the value `yes` or the value `no`.
pub(super) fn read_either(
    reader: &mut TableReader<'_>,
    field: &'static str,
    yes: &str,
    no: &str,
) -> Option<bool> {
    reader.parsed(field, &format!("write \"{yes}\" or \"{no}\""), |word| match word {
        word if word == yes => Ok(true),
        word if word == no => Ok(false),
        other => Err(format!("`{other}` is neither")),
    })
}

/// The admin endpoint, and the file of its secret if it is a port.
fn read_admin(reader: &mut TableReader<'_>, secret: ReadSecret<'_>) -> Option<(Endpoint, Option<PathBuf>)> {
    let example = text("\"/run/{program}/admin.sock\"");
    let written = reader.text("admin");
    let written = reader.require("admin", written, &example)?;
    let file = reader.text("admin_token_file").map(PathBuf::from);
    if Endpoint::is_path(written) {
        if file.is_some() {
            let what = "is set, but the admin socket is a file, which needs no secret";
            let remedy = "remove it, or write admin = \"127.0.0.1:11311\"";
            reader.report(reader.offset("admin_token_file"), "admin_token_file", what, remedy);
        }
        let endpoint = Endpoint::unix(written);
        let endpoint =
            endpoint.map_err(|(what, remedy)| reader.report(reader.offset("admin"), "admin", &what, &remedy));
        return Some((endpoint.ok()?, None));
    }
    let address = admin_port(reader)?;
    let Some(file) = file else {
        let what = "is missing, and an admin port requires a secret";
        let remedy = format!("add `admin_token_file = \"PATH\"`, or use a socket file: admin = {example}");
        reader.report(reader.offset("admin"), "admin_token_file", what, &remedy);
        return None;
    };
    let remedy = format!("(umask 077; head -c 32 /dev/urandom | base64 > {})", file.display());
    let token = secret(&file).and_then(|text| Token::parse(&text).map_err(|what| (what, remedy)));
    match token {
        Ok(token) => Some((Endpoint::Tcp { address, token }, Some(file))),
        Err((what, remedy)) => {
            reader.report(reader.offset("admin_token_file"), "admin_token_file", &what, &remedy);
            None
        }
    }
}

/// A loopback port.
fn admin_port(reader: &mut TableReader<'_>) -> Option<SocketAddr> {
    let remedy =
        text("write a path, admin = \"/run/{program}/admin.sock\", or a port, admin = \"127.0.0.1:11311\"");
    let address = reader.resolved("admin", &remedy)?;
    if address.ip().is_loopback() {
        return Some(address);
    }
    let what = format!("{address} is not a loopback address, and a client of this port can stop the replica");
    let remedy = "use a socket file, or 127.0.0.1:PORT or [::1]:PORT, and reach it over ssh";
    reader.report(reader.offset("admin"), "admin", &what, remedy);
    None
}

/// The group's key, and the file from which it was read.
fn read_group_key(reader: &mut TableReader<'_>, secret: ReadSecret<'_>) -> Option<(PathBuf, GroupKey)> {
    let Some(file) = reader.text("group_key").map(PathBuf::from) else {
        if reader.offset("group_key").is_none() {
            let what = "is missing, and the replicas of a group authenticate each other by it";
            let remedy = text(
                "make a key with `{program} key new --out FILE`, copy it to every replica, and add \
                 `group_key = \"FILE\"`",
            );
            reader.report(None, "group_key", what, &remedy);
        }
        return None;
    };
    let make = format!("make a key with `{} key new --out {}`", program::name(), file.display());
    let text = secret(&file).map_err(|(what, remedy)| (what, format!("{remedy}; {make} if there is none")));
    let wrong = |what| (format!("{}: {what}", file.display()), make.clone());
    match text.and_then(|text| GroupKey::parse(&text).map_err(wrong)) {
        Ok(key) => Some((file, key)),
        Err((what, remedy)) => {
            reader.report(reader.offset("group_key"), "group_key", &what, &remedy);
            None
        }
    }
}

fn read_durability(reader: &mut TableReader<'_>) -> Option<Durability> {
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
            // The path would be the directory in which the process is started, whichever that is.
            reader.report(
                reader.offset("data_dir"),
                "data_dir",
                "is empty, and durability = \"disk\" needs a directory",
                &text("write `data_dir = \"/var/lib/{program}\"`, or use durability = \"memory\""),
            );
            None
        }
        ("disk", Some(directory)) => Some(Durability::Disk(PathBuf::from(directory))),
        ("disk", None) => {
            reader.report(
                reader.offset("durability"),
                "data_dir",
                "is missing, and durability = \"disk\" needs it",
                &text("add `data_dir = \"/var/lib/{program}\"`, or use durability = \"memory\""),
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

/// The addresses, in the order of the replicas' numbers, and whether the last one is a witness.
fn read_replicas(text: &str, reader: &mut TableReader<'_>) -> (Vec<Address>, bool) {
    let mut numbered: Vec<(u64, Address)> = Vec::new();
    let mut witnesses = Vec::new();
    for (index, (table, at)) in reader.tables("replica").into_iter().enumerate() {
        let prefix = format!("replica[{}].", index + 1);
        let mut section = TableReader::new(text, table, &prefix, Some(line_of(text, at)), &REPLICA_FIELDS);
        let number = section.integer("number", 1..=MOST_REPLICAS, "");
        let number = section.require("number", number, &(index + 1).to_string());
        let address = section.address("address");
        let address = section.require("address", address, "\"10.0.0.1:12211\"");
        if read_either(&mut section, "part", "witness", "replica") == Some(true) {
            witnesses.extend(number);
        }
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
    if reader.problems.is_empty() && !witnesses.is_empty() && witnesses != [highest] {
        let what = "is \"witness\" in another section than the last one";
        reader.report(None, "part", what, "give the witness the highest number; there is one at most");
    }
    (numbered.into_iter().map(|(_, address)| address).collect(), !witnesses.is_empty())
}

fn check_count(reader: &mut TableReader<'_>, mode: Mode, (count, witness): (usize, bool), me: Option<u64>) {
    if !reader.problems.is_empty() {
        return;
    }
    let at = reader.offset("mode");
    if let Err((what, remedy)) = check_group(mode, count - usize::from(witness), witness) {
        reader.report(at, "replica", &what, &remedy);
    } else if me.is_some_and(|me| me > count as u64) {
        let what = format!("there is no replica {} among the {count} sections", me.unwrap_or_default());
        let remedy = "use the number of one of the [[replica]] sections";
        reader.report(reader.offset("this_replica"), "this_replica", &what, remedy);
    }
}

/// Clients, peers and admin commands of this replica each need an address of their own. The clients' address must
/// differ from those of the other replicas, too.
fn check_ports(
    reader: &mut TableReader<'_>,
    listen: Option<SocketAddr>,
    admin: Option<&Endpoint>,
    replicas: &[Address],
    me: Option<u64>,
) {
    // Without all sections it is not known which replica has which address.
    if !reader.problems.is_empty() {
        return;
    }
    // A host name may resolve to another address later; if its port is in use then, the start fails.
    let fixed = |address: &Address| match address {
        Address::Fixed(address) => Some(*address),
        Address::Named { .. } => None,
    };
    let own = me.and_then(|me| replicas.get(usize::try_from(me).ok()?.checked_sub(1)?)).and_then(fixed);
    let same = |one: SocketAddr, other: SocketAddr| {
        let any = one.ip().is_unspecified() || other.ip().is_unspecified();
        one.port() == other.port() && (any || one.ip() == other.ip())
    };
    let peer = listen.and_then(|listen| {
        let is_peer =
            |address: SocketAddr| address == listen || (own == Some(address) && same(listen, address));
        Some((listen, replicas.iter().position(|address| fixed(address).is_some_and(is_peer))? + 1))
    });
    if let Some((listen, number)) = peer {
        let what = format!("{listen} is the address of replica {number} for its peers");
        reader.report(reader.offset("listen"), "listen", &what, "give clients a port of their own");
    }
    let Some(Endpoint::Tcp { address, .. }) = admin else { return };
    for (name, other) in [("clients are served (listen)", listen), ("the other replicas connect", own)] {
        if other.is_some_and(|other| same(*address, other)) {
            let what = format!("{address} is where {name}");
            reader.report(reader.offset("admin"), "admin", &what, "give admin commands a port of their own");
        }
    }
}

/// Whether a group of `count` replicas, and perhaps a witness, can run `mode`; otherwise the problem and its remedy.
pub fn check_group(mode: Mode, count: usize, witness: bool) -> Result<(), (String, String)> {
    let remedy = |text: &str| text.to_owned();
    match (mode.replicated, count) {
        _ if witness && (count != 2 || !mode.verified) => Err((
            format!(
                "a witness is the third verifier of two replicas with V, and there are {count} in mode {mode}"
            ),
            remedy("use two replicas and a witness in mode R0GV, or leave the witness out"),
        )),
        (_, 0) => Err((remedy("there is no replica"), remedy("add a [[replica]] section for each"))),
        (false, 1) => Ok(()),
        (false, _) => Err((
            format!("mode {mode} does not replicate, but there are {count} replicas"),
            remedy("use one replica, or a mode that begins with R"),
        )),
        (true, 1) if mode.verified => Err((
            format!("mode {mode} compares replicas, and there is one"),
            remedy("use two or three, or a mode without V"),
        )),
        (true, 2) if mode.verified => Ok(()),
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
mod tests;
