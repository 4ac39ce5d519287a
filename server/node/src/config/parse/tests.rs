//! What the file may contain, and the messages about mistakes.

use std::fmt::Write as _;

use crosscheck::SocketPath;

use super::super::example;
use super::*;

type NodeConfig = super::NodeConfig<Shelf>;

/// The service and its version, which settings that must be equal begin with.
const SERVICE: &str = concat!("crosscheck ", env!("CARGO_PKG_VERSION"));

/// Settings of a service for tests.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
struct Shelf {
    #[arg(skip)]
    books: u64,
}

impl ServiceOptions for Shelf {
    const FIELDS: &'static [&'static str] = &["books"];
    const LAB_FIELDS: &'static [&'static str] = &["lent"];
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
fn a_socket_file_for_clients_is_read_with_its_mode() {
    let line = "# client_socket = \"/run/crosscheck/clients.sock\"";
    let read = |instead: &str| parse("node.toml", &shelf().replacen(line, instead, 1));
    let socket = |instead: &str| read(instead).expect(instead).access.socket;
    let at = |mode| Some(SocketPath { path: "/run/c.sock".into(), mode });
    assert_eq!(socket("client_socket = \"/run/c.sock\""), at(0o700));
    assert_eq!(socket("client_socket = \"/run/c.sock\"\nclient_socket_mode = \"0660\""), at(0o660));
    assert_eq!(socket(line), None);
    for (instead, why) in [
        ("client_socket = \"c.sock\"", "no slash"),
        ("client_socket_mode = \"0770\"", "there is no client_socket"),
        (
            "client_socket = \"/run/c.sock\"\nclient_socket_mode = \"0070\"",
            "with which this user can connect",
        ),
        ("client_socket = \"/run/c.sock\"\nclient_socket_mode = \"rwx\"", "no octal number"),
        ("client_socket = \"/run/crosscheck/admin.sock\"", "is the admin socket"),
    ] {
        let reported = problem_with(line, instead);
        assert!(reported.contains(why), "{instead}: {reported}");
    }
    let long = format!("client_socket = \"/{}\"", "a".repeat(107));
    assert!(problem_with(line, &long).contains("108 bytes"));
}

#[test]
fn tls_needs_both_files_and_each_problem_is_that_of_its_line() {
    let line = "# tls_cert = \"/etc/crosscheck/cert.pem\"";
    let folder = tempfile::tempdir().expect("a directory");
    let (certificate, key) = super::super::made_certificate(folder.path());
    let (certificate, key) = (certificate.display(), key.display());
    let both = format!("tls_cert = \"{certificate}\"\ntls_key = \"{key}\"");
    let config = parse("node.toml", &shelf().replacen(line, &both, 1)).expect("both are right");
    assert!(config.settings().access.tls.is_some());
    assert_eq!(parse("copy", &config.to_toml()), Ok(config));
    for (instead, field, why) in [
        (format!("tls_cert = \"{certificate}\""), "tls_cert", "file of its key is missing"),
        (format!("tls_key = \"{key}\""), "tls_key", "file of the certificate is missing"),
        (format!("tls_cert = \"{key}\"\ntls_key = \"{key}\""), "tls_cert", "key.pem holds no certificate"),
        (format!("tls_cert = \"{certificate}\"\ntls_key = \"/none\""), "tls_key", "/none cannot be read"),
    ] {
        let reported = problem_with(line, &instead);
        assert!(reported.contains(&format!("{field}: ")) && reported.contains(why), "{instead}: {reported}");
    }
}

#[test]
fn what_is_written_reads_back() {
    let mut config = parse("example", &shelf()).expect("the example");
    assert_eq!(parse("copy", &config.to_toml()), Ok(config.clone()));
    config.durability = Durability::Disk(PathBuf::from("/a \"b\"\\c"));
    config.mode = "RD00".parse().expect("a mode");
    config.election_ms = (70, 80);
    config.access.socket = Some(SocketPath { path: "/run/a \"b\".sock".into(), mode: 0o770 });
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
        ("faults_per_10s", config.faults_per_10s.to_string()),
    ] {
        let example = shelf();
        let head = example.split(&format!("\n{name} = ")).next().unwrap_or_default();
        let reported = head.rsplit("default: ").next().and_then(|rest| rest.lines().next());
        assert_eq!(reported, Some(value.as_str()), "default of {name}");
    }
    assert_eq!(config.durability, Durability::Memory);
    assert_eq!(parse("copy", &config.to_toml()), Ok(config));
}

#[test]
fn client_threads_need_workers_and_memory() {
    let with = |lines: &str| shelf().replacen("workers = 1", &format!("workers = 8\n{lines}"), 1);
    let threads = |text: &str| parse("node.toml", text).expect("it is allowed").settings().client_threads();
    assert_eq!(threads(&with("client_threads = 3")), 3);
    assert_eq!(threads(&with("")), 4, "as many as 128 MiB are enough for");
    let more = with("").replacen("buffer_limit_mb = 128", "buffer_limit_mb = 512", 1);
    assert_eq!(threads(&more), 8, "as many as workers");
    let config = parse("node.toml", &with("client_threads = 3")).expect("it is allowed");
    assert_eq!(parse("copy", &config.to_toml()), Ok(config));
    let problem = |text: &str| parse("node.toml", text).expect_err("it is refused").to_string();
    let many = problem(&with("client_threads = 5"));
    assert!(many.contains("each thread needs 32 MiB of buffer_limit_mb, which is 128"), "{many}");
    assert!(many.contains("set it to 4 or less, or buffer_limit_mb to 160 or more"), "{many}");
    let one = problem_with("workers = 1", "workers = 1\nclient_threads = 2");
    assert!(one.contains("with one worker serves its clients on the same thread"), "{one}");
    // A wrong number of workers is one problem, and not two.
    let both = problem_with("workers = 1", "workers = 100\nclient_threads = 2");
    assert!(both.contains("workers: 100 is out of range") && !both.contains("client_threads"), "{both}");
    assert!(problem(&with("client_threads = 65")).contains("client_threads: 65 is out of range"));
}

#[test]
fn the_example_of_a_service_without_settings_is_whole() {
    let example = example::<()>();
    let parsed = super::parse::<()>("example", &example, &|_| Ok(key().to_text())).expect("the example");
    assert!(!example.contains('{') && !example.contains("\n\n\n"), "{example}");
    let expected = [("service", SERVICE)];
    assert_eq!(parsed.settings().service, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn fields_of_the_service_are_checked_with_the_others() {
    let line = line_in_example("books = 3");
    let shown = problem_with("books = 3", "books = 7");
    let reported = "books: 7 books do not stand. Remedy: take 6 or 8";
    assert_eq!(shown, format!("node.toml:{line}: {reported}"));
    assert!(problem_with("books = 3", "books = 10").contains("from 0 to 9 books"));
    assert!(problem_with("books = 3", "bocks = 3").contains("did you mean `books`?"));
    let settings = parse("example", &shelf()).expect("the example").settings();
    let expected = [("service", SERVICE), ("books", "3")];
    assert_eq!(settings.service, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[cfg(not(feature = "lab"))]
#[test]
fn a_field_of_an_experiment_is_refused_with_the_build_that_has_it() {
    for line in ["before_images = \"none\"", "replies = \"free\"", "lent = 2"] {
        let reported = parse("node.toml", &format!("{line}\n{}", shelf())).expect_err(line).to_string();
        let (field, _) = line.split_once(' ').expect("a field");
        assert!(reported.starts_with(&format!("node.toml:1: {field}: is for experiments")), "{reported}");
        assert!(reported.contains("crosscheck-lab") && !reported.contains("did you mean"), "{reported}");
    }
}

#[cfg(feature = "lab")]
#[test]
fn what_an_experiment_leaves_out_is_read_and_equal_on_all_replicas() {
    let text = format!("before_images = \"none\"\nreplies = \"free\"\n{}", shelf());
    let config = parse("node.toml", &text).expect("an experiment");
    assert_eq!(config.left_out, super::super::LeftOut { before_images: true, reply_gate: true });
    let expected = ("before_images".to_owned(), "none".to_owned());
    assert_eq!(config.settings().service.last(), Some(&expected));
    assert_eq!(parse("copy", &config.to_toml()), Ok(config));
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
    assert!(problem_with("election_ms = [300, 600]", "election_ms = [600, 300]").contains("more than 300"));
    assert!(problem_with("election_ms = [300, 600]", "election_ms = 300").contains("[LOW, HIGH]"));
    assert!(problem_with("mode = \"RDGX\"", "mode = \"RDXG\"").contains("unknown mode `RDXG`"));
    assert!(problem_with("durability = \"disk\"", "durability = \"disc\"").contains("did you mean `disk`"));
    assert!(problem_with("listen = \"0.0.0.0:11211\"", "listen = \"11211\"").contains("no address"));
}

#[test]
fn fields_are_checked_against_each_other() {
    assert!(problem_with("data_dir = \"/var/lib/crosscheck\"", "").contains("data_dir: is missing"));
    assert!(problem_with("durability = \"disk\"", "").contains("would never write there"));
    let line = line_in_example("data_dir = \"/var/lib/crosscheck\"");
    for empty in ["", " "] {
        let shown = problem_with("data_dir = \"/var/lib/crosscheck\"", &format!("data_dir = \"{empty}\""));
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
    assert!(pair.is_pair() && pair.executors() == 2);
    let mut config = parse("three", &verified).expect("three replicas");
    for workers in [1, 2] {
        config.workers = workers;
        assert_eq!(config.settings().extra_protection, workers > 1);
    }
    let sooner = verified.replacen("# extra_protection = \"yes\"", "extra_protection = \"no\"", 1);
    let config = parse("three", &sooner).expect("three replicas");
    assert!(!config.settings().extra_protection);
    assert_eq!(parse("copy", &config.to_toml()), Ok(config));
    assert!(
        problem_with("# extra_protection", "extra_protection").contains("mode RDGX compares each request")
    );
    let witness = format!("{two}[[replica]]{third}\npart = \"witness\"\n");
    let config = parse("witness", &witness).expect("two replicas and a witness");
    let settings = config.settings();
    assert!(settings.witness && settings.executors() == 2 && !settings.is_witness() && !settings.is_pair());
    assert_eq!(parse("copy", &config.to_toml()), Ok(config));
    let reported = |text: &str| parse("node.toml", text).expect_err("a problem").to_string();
    let first = witness.replacen("number = 1", "number = 1\npart = \"witness\"", 1);
    assert!(reported(&first).contains("the highest number"), "{}", reported(&first));
    let crossed = witness.replacen("\"R0GV\"", "\"RDGX\"", 1);
    assert!(reported(&crossed).contains("with V"), "{}", reported(&crossed));
    for value in ["yes", "no"] {
        let old = reported(&format!("alone_after_silence = \"{value}\"\n{two}"));
        assert!(old.contains("alone_after_silence: was removed") && old.contains("a witness"), "{old}");
    }
    let local = |text: &str| text.replacen("# reads = \"batch\"", "reads = \"local\"", 1);
    for text in [&verified, &witness, &shelf()] {
        let config = parse("local", &local(text)).expect("others can be asked");
        let settings = config.settings();
        assert!(settings.reads == crosscheck::Reads::Local && settings.group_reads_locally());
        assert_eq!(parse("copy", &config.to_toml()), Ok(config));
    }
    for text in [two, &shelf().replacen("mode = \"RDGX\"", "mode = \"RD00\"", 1)] {
        assert!(reported(&local(text)).contains("in a mode with X and G"), "{}", reported(&local(text)));
    }
}

/// A file for one node in mode 00GT, with these lines.
fn alone_twice(more: &str) -> String {
    let example = shelf();
    let alone = example.rsplitn(3, "[[replica]]").last().expect("one section");
    format!("{more}\n{}", alone.replacen("mode = \"RDGX\"", "mode = \"00GT\"", 1))
}

#[test]
fn a_node_that_compares_with_itself_answers_or_exits() {
    for (more, expected) in [
        ("", OnDetection::Answer),
        ("on_detection = \"answer\"", OnDetection::Answer),
        ("on_detection = \"exit\"", OnDetection::Exit),
    ] {
        let config = parse("alone", &alone_twice(more)).expect(more);
        assert_eq!((config.settings().on_detection, config.mode.twice), (expected, true), "{more}");
        assert_eq!(parse("copy", &config.to_toml()), Ok(config), "{more}");
    }
    let reported = |text: &str| parse("node.toml", text).expect_err("a problem").to_string();
    assert!(reported(&alone_twice("on_detection = \"abort\"")).contains("`abort` is neither"));
    let example = format!("on_detection = \"exit\"\n{}", shelf());
    assert!(reported(&example).contains("on_detection: mode RDGX does not compare a node with itself"));
    if cfg!(feature = "lab") {
        let without = reported(&alone_twice("before_images = \"none\""));
        assert!(without.contains("before_images: mode 00GT undoes"), "{without}");
    }
    assert!(problem_with("mode = \"RDGX\"", "mode = \"00GT\"").contains("does not replicate"));
    assert!(problem_with("mode = \"RDGX\"", "mode = \"RDGT\"").contains("one replica alone"));
}

#[test]
fn every_socket_has_an_address_of_its_own() {
    let listen =
        |address: &str| problem_with("listen = \"0.0.0.0:11211\"", &format!("listen = \"{address}\""));
    assert!(
        listen("10.0.0.2:12211").contains("listen: 10.0.0.2:12211 is the address of replica 2 for its peers")
    );
    assert!(listen("0.0.0.0:12211").contains("is the address of replica 1 for its peers"));
    assert!(listen("0.0.0.0:0").contains("listen: `0.0.0.0:0` has port 0"));
    assert!(
        problem_with("10.0.0.3:12211", "10.0.0.3:0").contains("replica[3].address: `10.0.0.3:0` has port 0")
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
        let reported = problem_with("10.0.0.2:12211", malformed);
        assert!(
            reported.contains("replica[2].address: ") && reported.contains("is no address: "),
            "{reported}"
        );
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
    let reported = problems.to_string();
    assert!(reported.contains("listen: `no-such-host.invalid:11211` does not resolve: "), "{reported}");
    let text = text.replacen("workers = 1", "workers = 0", 1);
    assert!(!parse("node.toml", &text).expect_err("two problems").may_pass());
}

#[test]
fn replicas_that_know_each_other_need_a_key() {
    let line = "group_key = \"/etc/crosscheck/group.key\"";
    let reported = problem_with(line, "");
    assert!(
        reported.contains("group_key: is missing") && reported.contains("crosscheck key new --out FILE"),
        "{reported}"
    );
    let reported = problem_with(line, "group_key = \"lost\"");
    assert!(
        reported.contains("cannot be read") && reported.contains("crosscheck key new --out lost"),
        "{reported}"
    );
    let reported = problem_with(line, "group_key = \"short\"");
    assert!(reported.contains("group_key: short: line 1 is not") && !reported.contains("0123"), "{reported}");
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
    assert!(problem_with("idle_timeout_s = 0", "idle_timeout_s = 86401").contains("from 0 to 86400 seconds"));
    assert!(problem_with("buffer_limit_mb = 128", "buffer_limit_mb = 31").contains("from 32 to 1048576 MiB"));
}

#[test]
fn everything_wrong_is_reported_at_once_in_the_files_order() {
    let text = "mode = \"X\"\nworkers = 0\nthis_replica = 1\nlisten = \"127.0.0.1:1\"\n";
    let problems = parse("node.toml", text).expect_err("much is wrong");
    let fields: Vec<&str> = problems.list.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, ["mode", "workers", "admin"]);
    let broken = parse("node.toml", "mode = \n").expect_err("not TOML").to_string();
    assert!(broken.starts_with("node.toml:1: not TOML: "), "{broken}");
}
