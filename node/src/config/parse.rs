//! From the text of a configuration file to a checked [`NodeConfig`], or to every problem in it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crosscheck::admin::{Endpoint, Token};
use crosscheck::{Address, Durability, GroupKey, Mode, OnDetection};
use toml::de::DeTable;

use super::NodeConfig;
use super::problem::{Problem, Problems, line_of, meant};
use super::read::TableReader;
use crate::program::{self, text};
use crate::{ServiceOptions, Wrong};

/// Every field of the file's top level except the service's; the example documents each (a test compares).
const FIELDS: [&str; 19] = [
    "this_replica",
    "listen",
    "admin",
    "admin_token_file",
    "group_key",
    "mode",
    "workers",
    "durability",
    "data_dir",
    "max_connections",
    "idle_timeout_s",
    "buffer_limit_mb",
    "election_ms",
    "watchdog_ms",
    "before_images",
    "replies",
    "on_detection",
    "alone_after_silence",
    "replica",
];
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
    let mut reader = TableReader::new(text, root.get_ref(), "", None, &known::<O>());
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
    let buffer_limit_mb = reader.integer("buffer_limit_mb", 32..=1 << 20, "MiB");
    let election_ms = reader.span_of("election_ms", 50..=60_000, "ms");
    let watchdog_ms = reader.integer("watchdog_ms", 100..=600_000, "ms");
    let before_images = read_either(reader, "before_images", "kept", "none");
    let hold_replies = read_either(reader, "replies", "held", "free");
    let on_detection = read_on_detection(reader, mode);
    if mode.twice && before_images == Some(false) {
        let what = format!("mode {mode} undoes the first run of each request, which needs before-images");
        reader.report(reader.offset("before_images"), "before_images", &what, "write \"kept\"");
    }
    if mode.verified && matches!(durability, Some(Durability::Disk(_))) {
        let what = format!("mode {mode} keeps no log on disk");
        reader.report(reader.offset("durability"), "durability", &what, "write \"memory\", or use mode RDGX");
    }
    let alone_after_silence = read_either(reader, "alone_after_silence", "yes", "no").unwrap_or_default();
    let (replicas, witness) = read_replicas(text, reader);
    check_count(reader, mode, (replicas.len(), witness), this_replica);
    if alone_after_silence && !(mode.verified && replicas.len() == 2) {
        let what = "is for two replicas without a witness, in a mode with V";
        reader.report(reader.offset("alone_after_silence"), "alone_after_silence", what, "remove it");
    }
    check_ports(reader, listen, admin.as_ref().map(|(endpoint, _)| endpoint), &replicas, this_replica);

    let small = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let (admin, token_file) = admin?;
    let mut config = NodeConfig::new(u8::try_from(this_replica?).ok()?, Vec::new(), listen?, admin);
    config.replicas = replicas;
    config.admin_token_file = token_file;
    config.mode = mode;
    (config.group_key_file, config.group_key) = group_key.unzip();
    config.durability = durability?;
    config.workers = workers.map_or(config.workers, small);
    config.max_connections = max_connections.map(small);
    config.idle_timeout_s = idle_timeout_s.unwrap_or(config.idle_timeout_s);
    config.buffer_limit_mb = buffer_limit_mb.unwrap_or(config.buffer_limit_mb);
    config.election_ms = election_ms.unwrap_or(config.election_ms);
    config.watchdog_ms = watchdog_ms.unwrap_or(config.watchdog_ms);
    config.before_images = before_images.unwrap_or(config.before_images);
    config.hold_replies = hold_replies.unwrap_or(config.hold_replies);
    config.on_detection = on_detection;
    (config.witness, config.alone_after_silence) = (witness, alone_after_silence);
    config.service = service;
    if let Err(Wrong { field, what, remedy, .. }) = config.service.check() {
        reader.report(reader.offset(field), field, &what, &remedy);
    }
    Some(config)
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
fn read_either(reader: &mut TableReader<'_>, field: &'static str, yes: &str, no: &str) -> Option<bool> {
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
mod tests {
    use std::fmt::Write as _;

    use super::super::example;
    use super::*;

    type NodeConfig = super::NodeConfig<Shelf>;

    /// Settings of a service for tests.
    #[derive(Clone, Debug, Default, PartialEq, clap::Args)]
    struct Shelf {
        #[arg(skip)]
        books: u64,
    }

    impl ServiceOptions for Shelf {
        const FIELDS: &'static [&'static str] = &["books"];
        const EXAMPLE: &'static str = "# How many books the shelf takes, 0 to 9. default: 0\nbooks = 3\n";

        fn read(file: &mut TableReader<'_>) -> Self {
            Shelf { books: file.integer("books", 0..=9, "books").unwrap_or_default() }
        }

        fn write(&self, file: &mut String) {
            let _ = writeln!(file, "books = {}", self.books);
        }

        fn check(&self) -> Result<(), Wrong> {
            if self.books != 7 {
                return Ok(());
            }
            let (what, remedy) = ("7 books do not stand".to_owned(), "take 6 or 8".to_owned());
            Err(Wrong { field: "books", flag: "--books", what, remedy })
        }

        fn equal_on_all_replicas(&self) -> Vec<(String, String)> {
            vec![("books".to_owned(), self.books.to_string())]
        }
    }

    fn shelf() -> String {
        example::<Shelf>()
    }

    /// Reads a configuration; the name of a secret's file decides its content.
    fn parse(file: &str, text: &str) -> Result<NodeConfig, Problems> {
        super::parse(file, text, &|path| match path.to_str() {
            Some("admin.token") => Ok("0123456789abcdef0123456789abcdef\n".to_owned()),
            Some("group.key" | "/etc/crosscheck/group.key") => Ok(key().to_text()),
            Some("short") => Ok("0123\n".to_owned()),
            other => Err((format!("{other:?} cannot be read"), "give another file".to_owned())),
        })
    }

    fn key() -> GroupKey {
        GroupKey { cluster: "test".to_owned(), key: [7; 32] }
    }

    /// Reads the example with one line replaced, and returns the text of its only problem.
    fn problem_with(line: &str, instead: &str) -> String {
        assert!(shelf().contains(line), "the example has no line `{line}`");
        let text = shelf().replacen(line, instead, 1);
        let problems = parse("node.toml", &text).expect_err(instead);
        let shown = problems.to_string();
        assert_eq!(problems.list.len(), 1, "{shown}");
        assert!(shown.contains("Remedy: "), "{shown}");
        shown
    }

    fn line_in_example(line: &str) -> usize {
        1 + shelf().lines().position(|other| other == line).expect("a line of the example")
    }

    #[test]
    fn the_example_parses_and_documents_every_field() {
        let example = shelf();
        let config = parse("example", &example).expect("the example");
        assert_eq!(config.this_replica, 1);
        assert_eq!(config.replicas.len(), 3);
        assert_eq!(config.service, Shelf { books: 3 });
        for field in known::<Shelf>().iter().filter(|field| **field != "replica").chain(&REPLICA_FIELDS) {
            // A field that contradicts the rest of the example is commented out there.
            let is_it = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{field} = "));
            let at = example.lines().position(is_it);
            let at = at.unwrap_or_else(|| panic!("`{field}` is not in the example"));
            let above = example.lines().nth(at - 1).unwrap_or_default();
            assert!(above.starts_with("# "), "`{field}` has no comment above it");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut config = parse("example", &shelf()).expect("the example");
        assert_eq!(parse("copy", &config.to_toml()), Ok(config.clone()));
        config.durability = Durability::Disk(PathBuf::from("/a \"b\"\\c"));
        config.mode = "RD00".parse().expect("a mode");
        config.election_ms = (70, 80);
        assert_eq!(parse("copy", &config.to_toml()), Ok(config.clone()));
        let port = "admin = \"127.0.0.1:11311\"\nadmin_token_file = \"admin.token\"";
        let text = shelf().replacen("admin = \"/run/crosscheck/admin.sock\"", port, 1);
        let config = parse("example", &text).expect("a port with a secret");
        assert!(matches!(config.admin, Endpoint::Tcp { .. }));
        assert_eq!(parse("copy", &config.to_toml()), Ok(config));
    }

    #[test]
    fn the_admin_endpoint_is_a_short_path_or_a_local_port_with_a_secret() {
        let with = |instead: &str| problem_with("admin = \"/run/crosscheck/admin.sock\"", instead);
        let long = format!("admin = \"/{}\"", "a".repeat(107));
        assert!(with(&long).contains("admin: /aaaa") && with(&long).contains("108 bytes"));
        assert!(with("admin = \"admin\"").contains("write a path"));
        assert!(with("admin = \"0.0.0.0:11311\"").contains("loopback"));
        let bare = with("admin = \"127.0.0.1:11311\"");
        assert!(bare.contains("admin_token_file: is missing") && bare.contains("secret"), "{bare}");
        let port = |file: &str| with(&format!("admin = \"127.0.0.1:11311\"\nadmin_token_file = \"{file}\""));
        assert!(port("missing").contains("admin_token_file: Some(\"missing\") cannot be read"));
        assert!(port("short").contains("has 4 characters; use 32 to 1024. Remedy: (umask 077;"));
        let both = with("admin = \"/run/a.sock\"\nadmin_token_file = \"admin.token\"");
        assert!(both.contains("needs no secret"), "{both}");
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let required = "this_replica = 1\nlisten = \"0.0.0.0:1\"\nadmin = \"./a.sock\"\ngroup_key = \"group.key\"\n\
                        [[replica]]\nnumber = 1\naddress = \"127.0.0.1:3\"\n";
        let config = parse("short", required).expect("only what is required");
        for (name, value) in [
            ("mode", format!("{:?}", config.mode.to_string())),
            ("workers", config.workers.to_string()),
            ("books", config.service.books.to_string()),
            ("max_connections", config.settings().max_connections.to_string()),
            ("idle_timeout_s", config.idle_timeout_s.to_string()),
            ("buffer_limit_mb", config.buffer_limit_mb.to_string()),
            ("election_ms", format!("[{}, {}]", config.election_ms.0, config.election_ms.1)),
            ("watchdog_ms", config.watchdog_ms.to_string()),
        ] {
            let example = shelf();
            let head = example.split(&format!("\n{name} = ")).next().unwrap_or_default();
            let told = head.rsplit("default: ").next().and_then(|rest| rest.lines().next());
            assert_eq!(told, Some(value.as_str()), "default of {name}");
        }
        assert_eq!(config.durability, Durability::Memory);
        assert_eq!(parse("copy", &config.to_toml()), Ok(config));
    }

    #[test]
    fn the_example_of_a_service_without_settings_is_whole() {
        let example = example::<()>();
        let parsed = super::parse::<()>("example", &example, &|_| Ok(key().to_text())).expect("the example");
        assert!(!example.contains('{') && !example.contains("\n\n\n"), "{example}");
        assert_eq!(parsed.settings().service, [("before_images".to_owned(), "kept".to_owned())]);
    }

    #[test]
    fn fields_of_the_service_are_checked_with_the_others() {
        let line = line_in_example("books = 3");
        let shown = problem_with("books = 3", "books = 7");
        let told = "books: 7 books do not stand. Remedy: take 6 or 8";
        assert_eq!(shown, format!("node.toml:{line}: {told}"));
        assert!(problem_with("books = 3", "books = 10").contains("from 0 to 9 books"));
        assert!(problem_with("books = 3", "bocks = 3").contains("did you mean `books`?"));
        let settings = parse("example", &shelf()).expect("the example").settings();
        let expected = [("books", "3"), ("before_images", "kept")];
        assert_eq!(settings.service, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line_and_a_guess() {
        let shown = problem_with("workers = 1", "worker = 4");
        let line = line_in_example("workers = 1");
        assert_eq!(
            shown,
            format!("node.toml:{line}: worker: there is no such field. Remedy: did you mean `workers`?")
        );
        assert!(problem_with("workers = 1", "colour = 4").contains("known here are this_replica, "));
        assert!(problem_with("number = 2", "number = 2\nadress = \"x\"").contains("did you mean `address`?"));
    }

    #[test]
    fn a_wrong_value_is_named_with_its_line_range_and_type() {
        let line = line_in_example("workers = 1");
        let shown = problem_with("workers = 1", "workers = 0");
        assert!(shown.starts_with(&format!("node.toml:{line}: workers: 0 is out of range")), "{shown}");
        assert!(shown.ends_with("from 1 to 64"), "{shown}");
        let shown = problem_with("workers = 1", "workers = \"four\"");
        assert!(shown.contains("expected a whole number, found the string \"four\""), "{shown}");
        assert!(problem_with("workers = 1", "workers = -1").contains("-1 is out of range"));
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
        assert!(problem_with("this_replica = 1", "this_replica = 4").contains("no replica 4"));
        assert!(problem_with("number = 3", "number = 2").contains("2 is taken"));
        assert!(problem_with("number = 3", "number = 5").contains("without gaps"));
        assert!(problem_with("10.0.0.3:12211", "10.0.0.2:12211").contains("is taken"));
        let example = shelf();
        let two = example.rsplit_once("[[replica]]").expect("a last section").0;
        let shown = parse("node.toml", two).expect_err("two replicas").to_string();
        assert!(shown.contains("use 1 or 3"), "{shown}");
    }

    #[test]
    fn two_replicas_verify_each_other_alone_or_with_a_witness() {
        let verified = shelf()
            .replacen("mode = \"RDGX\"", "mode = \"R0GV\"", 1)
            .replacen("durability = \"disk\"", "", 1)
            .replacen("data_dir = \"/var/lib/crosscheck\"", "", 1);
        let (two, third) = verified.rsplit_once("[[replica]]").expect("a last section");
        let pair = parse("pair", two).expect("two replicas").settings();
        assert!(pair.is_pair() && !pair.alone_after_silence && pair.executors() == 2);
        let alone = two.replacen("# alone_after_silence = \"no\"", "alone_after_silence = \"yes\"", 1);
        let config = parse("pair", &alone).expect("two replicas");
        assert!(config.settings().alone_after_silence);
        assert_eq!(parse("copy", &config.to_toml()), Ok(config));
        let witness = format!("{two}[[replica]]{third}\npart = \"witness\"\n");
        let config = parse("witness", &witness).expect("two replicas and a witness");
        let settings = config.settings();
        assert!(
            settings.witness && settings.executors() == 2 && !settings.is_witness() && !settings.is_pair()
        );
        assert_eq!(parse("copy", &config.to_toml()), Ok(config));
        let told = |text: &str| parse("node.toml", text).expect_err("a problem").to_string();
        let first = witness.replacen("number = 1", "number = 1\npart = \"witness\"", 1);
        assert!(told(&first).contains("the highest number"), "{}", told(&first));
        let crossed = witness.replacen("\"R0GV\"", "\"RDGX\"", 1);
        assert!(told(&crossed).contains("with V"), "{}", told(&crossed));
        let alone = verified.replacen("# alone_after_silence = \"no\"", "alone_after_silence = \"yes\"", 1);
        assert!(told(&alone).contains("for two replicas"), "{}", told(&alone));
    }

    /// A file for one node in mode 00GT, with these lines.
    fn alone_twice(more: &str) -> String {
        let example = shelf();
        let alone = example.rsplitn(3, "[[replica]]").last().expect("one section");
        let fields = alone.replacen("mode = \"RDGX\"", "mode = \"00GT\"", 1);
        fields.replacen("replies = \"held\"", &format!("replies = \"held\"\n{more}"), 1)
    }

    #[test]
    fn a_node_that_compares_with_itself_answers_or_exits_and_keeps_before_images() {
        for (more, expected) in [
            ("", OnDetection::Answer),
            ("on_detection = \"answer\"", OnDetection::Answer),
            ("on_detection = \"exit\"", OnDetection::Exit),
        ] {
            let config = parse("alone", &alone_twice(more)).expect(more);
            assert_eq!((config.settings().on_detection, config.mode.twice), (expected, true), "{more}");
            assert_eq!(parse("copy", &config.to_toml()), Ok(config), "{more}");
        }
        let told = |text: &str| parse("node.toml", text).expect_err("a problem").to_string();
        assert!(told(&alone_twice("on_detection = \"abort\"")).contains("`abort` is neither"));
        let example = shelf().replacen("replies =", "on_detection = \"exit\"\nreplies =", 1);
        assert!(told(&example).contains("on_detection: mode RDGX does not compare a node with itself"));
        let without = alone_twice("").replacen("before_images = \"kept\"", "before_images = \"none\"", 1);
        assert!(told(&without).contains("before_images: mode 00GT undoes"), "{}", told(&without));
        assert!(problem_with("mode = \"RDGX\"", "mode = \"00GT\"").contains("does not replicate"));
        assert!(problem_with("mode = \"RDGX\"", "mode = \"RDGT\"").contains("one replica alone"));
    }

    #[test]
    fn every_socket_has_an_address_of_its_own() {
        let listen =
            |address: &str| problem_with("listen = \"0.0.0.0:11211\"", &format!("listen = \"{address}\""));
        assert!(
            listen("10.0.0.2:12211")
                .contains("listen: 10.0.0.2:12211 is the address of replica 2 for its peers")
        );
        assert!(listen("0.0.0.0:12211").contains("is the address of replica 1 for its peers"));
        assert!(listen("0.0.0.0:0").contains("listen: `0.0.0.0:0` has port 0"));
        assert!(
            problem_with("10.0.0.3:12211", "10.0.0.3:0")
                .contains("replica[3].address: `10.0.0.3:0` has port 0")
        );
        let admin = |address: &str| {
            let instead = format!("admin = \"{address}\"\nadmin_token_file = \"admin.token\"");
            problem_with("admin = \"/run/crosscheck/admin.sock\"", &instead)
        };
        assert!(admin("127.0.0.1:11211").contains("admin: 127.0.0.1:11211 is where clients are served"));
        assert!(admin("127.0.0.1:0").contains("has port 0"));
    }

    #[test]
    fn a_peers_host_name_is_kept_and_a_malformed_one_is_a_problem() {
        let named = shelf().replacen("10.0.0.2:12211", "no-such-host.invalid:12211", 1);
        let config = parse("node.toml", &named).expect("peers' names are resolved when they are dialled");
        assert_eq!(config.replicas[1].to_string(), "no-such-host.invalid:12211");
        assert_eq!(parse("copy", &config.to_toml()), Ok(config));
        for malformed in ["10.0.0.300:12211", "no such host:12211", "no-such-host"] {
            let told = problem_with("10.0.0.2:12211", malformed);
            assert!(told.contains("replica[2].address: ") && told.contains("is no address: "), "{told}");
        }
        let same = problem_with("10.0.0.3:12211", "10.0.0.2:12211");
        assert!(same.contains("10.0.0.2:12211 is taken"), "{same}");
    }

    #[test]
    fn a_name_that_this_replica_listens_on_may_resolve_later_unless_something_else_is_wrong() {
        let listen = ("listen = \"0.0.0.0:11211\"", "listen = \"no-such-host.invalid:11211\"");
        let text = shelf().replacen(listen.0, listen.1, 1);
        let problems = parse("node.toml", &text).expect_err("it does not resolve");
        assert!(problems.may_pass(), "{problems}");
        let told = problems.to_string();
        assert!(told.contains("listen: `no-such-host.invalid:11211` does not resolve: "), "{told}");
        let text = text.replacen("workers = 1", "workers = 0", 1);
        assert!(!parse("node.toml", &text).expect_err("two problems").may_pass());
    }

    #[test]
    fn replicas_that_know_each_other_need_a_key() {
        let line = "group_key = \"/etc/crosscheck/group.key\"";
        let told = problem_with(line, "");
        assert!(
            told.contains("group_key: is missing") && told.contains("crosscheck key new --out FILE"),
            "{told}"
        );
        let told = problem_with(line, "group_key = \"lost\"");
        assert!(told.contains("cannot be read") && told.contains("crosscheck key new --out lost"), "{told}");
        let told = problem_with(line, "group_key = \"short\"");
        assert!(told.contains("group_key: short: line 1 is not") && !told.contains("0123"), "{told}");
        let config = parse("example", &shelf()).expect("the example");
        assert_eq!(config.settings().group_key, Some(key()));
        // A single server has no peers to authenticate; the same file works for it.
        let example = shelf();
        let alone = example.rsplitn(3, "[[replica]]").last().expect("one section");
        let alone = alone.replacen("mode = \"RDGX\"", "mode = \"00G0\"", 1);
        for text in [alone.replacen(line, "", 1), alone] {
            assert_eq!(parse("alone", &text).expect("no key is needed").settings().group_key, None);
        }
    }

    #[test]
    fn limits_of_clients_reach_the_pipeline() {
        let idle = shelf().replacen("idle_timeout_s = 0", "idle_timeout_s = 60", 1);
        let settings = |text: &str| parse("example", text).expect("the example").settings();
        assert_eq!(settings(&shelf()).idle_timeout, None);
        assert_eq!(settings(&idle).idle_timeout, Some(std::time::Duration::from_secs(60)));
        assert_eq!(settings(&shelf()).buffer_limit, 128 << 20);
        assert!(
            problem_with("idle_timeout_s = 0", "idle_timeout_s = 86401").contains("from 0 to 86400 seconds")
        );
        assert!(
            problem_with("buffer_limit_mb = 128", "buffer_limit_mb = 31").contains("from 32 to 1048576 MiB")
        );
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
