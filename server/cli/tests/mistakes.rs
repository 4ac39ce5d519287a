//! Mistakes that operators make in a configuration: each is refused with exit code 2, or warned of, by
//! `serve --check` and at the start; the message names the field and a remedy.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a replica may take to say something.
const PATIENCE: Duration = Duration::from_secs(30);
/// Configurations that are tested at the same time.
const AT_ONCE: usize = 4;

/// What has to happen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Exit code 2, both times.
    Refused,
    /// Exit code 0 of `--check`, and a replica that starts; both warn.
    Warned,
}
use Outcome::{Refused, Warned};

/// A mistake in the right configuration: its name, the text that is replaced, and by what; then what has to happen, and
/// the parts of the message: the field, and the remedy.
type Mistake = (&'static str, (&'static str, &'static str), Outcome, &'static str, &'static str);

/// A right configuration of replica 1. DIR is a directory of this user alone, and HERE an address of this machine that
/// no other test uses.
const RIGHT: &str = r#"this_replica = 1
listen = "HERE:CLIENTS"
admin = "DIR/run/admin.sock"
group_key = "DIR/group.key"
mode = "RDGX"
durability = "disk"
data_dir = "DIR/data"
memory_limit_mb = 64
[[replica]]
number = 1
address = "HERE:PEERS"
[[replica]]
number = 2
address = "127.0.47.2:24422"
[[replica]]
number = 3
address = "127.0.47.3:24422"
"#;
const HERE: &str = "127.0.47.1";

/// The first 36 are those of a review of how this program is operated. 192.0.2.1 is an address of no machine
/// (RFC 5737), and `invalid` a domain in which no name resolves (RFC 2606).
const MISTAKES: [Mistake; 44] = [
    (
        "a typo in a field",
        ("memory_limit_mb", "memory_limit_mbs"),
        Refused,
        "memory_limit_mbs",
        "`memory_limit_mb`?",
    ),
    (
        "a unit",
        ("_mb = 64", "_mb = \"64M\""),
        Refused,
        "memory_limit_mb",
        "a whole number from 1 to 1048576 MiB",
    ),
    ("a negative number", ("_mb = 64", "_mb = -1"), Refused, "memory_limit_mb", "a whole number from 1 to"),
    ("zero", ("_mb = 64", "_mb = 0"), Refused, "memory_limit_mb", "a whole number from 1 to 1048576 MiB"),
    ("1 TiB of memory", ("_mb = 64", "_mb = 1048576"), Warned, "memory_limit_mb", "write less than"),
    ("an unknown mode", ("RDGX", "RDXG"), Refused, "mode", "`crosscheck modes` explains them"),
    ("a mode in lower case", ("RDGX", "rdgx"), Refused, "mode", "`crosscheck modes` explains them"),
    (
        "replica 4 of 3",
        ("replica = 1", "replica = 4"),
        Refused,
        "this_replica",
        "one of the [[replica]] sections",
    ),
    ("replica 0", ("replica = 1", "replica = 0"), Refused, "this_replica", "a whole number from 1 to 7"),
    (
        "two with one number",
        ("er = 2", "er = 1"),
        Refused,
        "replica[2].number",
        "number the replicas 1, 2, 3",
    ),
    (
        "one address twice",
        ("47.3:24422", "47.2:24422"),
        Refused,
        "replica[3].address",
        "give every replica its own",
    ),
    (
        "two replicas",
        ("[[replica]]\nnumber = 3\naddress = \"127.0.47.3:24422\"\n", ""),
        Refused,
        "replica",
        "use 1 or 3: 2f+1 replicas",
    ),
    ("no port", ("47.2:24422", "47.2"), Refused, "replica[2].address", "write `address = \"HOST:PORT\"`"),
    (
        "port 99999",
        ("47.2:24422", "47.2:99999"),
        Refused,
        "replica[2].address",
        "write `address = \"HOST:PORT\"`",
    ),
    (
        "one port for all",
        ("HERE:CLIENTS", "HERE:PEERS"),
        Refused,
        "listen",
        "give clients a port of their own",
    ),
    (
        "another machine's listen",
        ("HERE:CLIENTS", "192.0.2.1:24421"),
        Refused,
        "listen",
        "one that `ip address` lists",
    ),
    ("a key that all can read", ("/group.key", "/open.key"), Refused, "group_key", "chmod 600 DIR/open.key"),
    (
        "a key that is none",
        ("/group.key", "/bad.key"),
        Refused,
        "group_key",
        "`crosscheck key new --out DIR/bad.key`",
    ),
    (
        "a short key",
        ("/group.key", "/short.key"),
        Refused,
        "group_key",
        "`crosscheck key new --out DIR/short.key`",
    ),
    (
        "no key",
        ("group_key = \"DIR/group.key\"\n", ""),
        Refused,
        "group_key",
        "`crosscheck key new --out FILE`",
    ),
    ("durability misspelt", ("\"disk\"", "\"disc\""), Refused, "durability", "write \"memory\" or \"disk\""),
    ("data_dir with memory", ("\"disk\"", "\"memory\""), Refused, "data_dir", "or remove data_dir"),
    (
        "data_dir is a file",
        ("DIR/data", "DIR/bad.key"),
        Refused,
        "data_dir",
        "use another directory, or move that",
    ),
    (
        "nothing can be made there",
        ("DIR/data", "/proc/x/y"),
        Refused,
        "data_dir",
        "directory that is there, or can be",
    ),
    (
        "an open admin directory",
        ("DIR/run", "DIR/open"),
        Refused,
        "admin",
        "a directory of its own that only this",
    ),
    ("a long path of admin", ("DIR/run", "DIR/LONG"), Refused, "admin", "a directory with a shorter path"),
    ("no TOML", ("\"RDGX\"", "RDGX"), Refused, "not TOML", "`crosscheck serve --example-config`"),
    (
        "a field twice",
        ("mode = ", "mode = \"RDGX\"\nmode = "),
        Refused,
        "not TOML",
        "serve --example-config`",
    ),
    ("reversed times", ("mode", "election_ms = [600, 300]\nmode"), Refused, "election_ms", "[LOW, HIGH]"),
    (
        "an item of 1g",
        ("mode", "item_size_max = \"1g\"\nmode"),
        Refused,
        "item_size_max",
        "from 4096 to 3145728 bytes",
    ),
    ("100 workers", ("mode", "workers = 100\nmode"), Refused, "workers", "a whole number from 1 to 64"),
    (
        "too many files",
        ("mode", "max_connections = 5000\nmode"),
        Refused,
        "max_connections",
        "raise the limit",
    ),
    (
        "another server's field",
        ("mode", "maxmemory = \"1gb\"\nmode"),
        Refused,
        "maxmemory",
        "remove it; known here are",
    ),
    (
        "a field too low",
        ("7.3:24422\"", "7.3:24422\"\nworkers = 2"),
        Refused,
        "replica[3].workers",
        "remove it; known",
    ),
    (
        "a name that is none",
        ("127.0.47.2", "no.invalid"),
        Warned,
        "replica[2].address",
        "see the name server",
    ),
    (
        "eight replicas",
        ("number = 3", "number = 8\naddress = \"127.0.47.8:1\"\n[[replica]]\nnumber = 3"),
        Refused,
        "replica[3].number",
        "a whole number from 1 to 7",
    ),
    (
        "another machine's replica",
        ("HERE:PEERS", "192.0.2.1:1"),
        Refused,
        "replica[1].address",
        "or this_replica if",
    ),
    (
        "a file for admin",
        ("run/admin.sock", "bad.key"),
        Refused,
        "admin",
        "move it away, or choose another path",
    ),
    ("admin below nothing", ("DIR/run", "DIR/no/run"), Refused, "admin", "a directory of its own"),
    (
        "an IPv6 port of nobody",
        ("HERE:CLIENTS", "[2001:db8::1]:1"),
        Refused,
        "listen",
        "one that `ip address` lists",
    ),
    (
        "no directory for a client socket",
        ("mode", "client_socket = \"DIR/no/clients.sock\"\nmode"),
        Refused,
        "client_socket",
        "make it, or choose another path",
    ),
    (
        "no passwords",
        ("mode", "password_file = \"DIR/no\"\nmode"),
        Refused,
        "password_file",
        "lines NAME:PASSWORD",
    ),
    (
        "items above memory",
        ("_mb = 64", "_mb = 1"),
        Refused,
        "memory_limit_mb",
        "use at least 4 MiB, or a smaller",
    ),
    (
        "1 TiB of buffers",
        ("mode", "buffer_limit_mb = 1048576\nmode"),
        Warned,
        "buffer_limit_mb",
        "write less than",
    ),
];

#[test]
fn every_mistake_is_refused_or_warned_of_with_its_field_and_a_remedy() {
    assert_eq!(TestDirectory::new().check(RIGHT), (Some(0), String::new()), "the right one");
    // Most of the time is spent on starting processes.
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let parts = MISTAKES.chunks(MISTAKES.len().div_ceil(AT_ONCE));
        let tests: Vec<_> = parts.map(|part| scope.spawn(|| wrong_outcomes(part))).collect();
        tests.into_iter().flat_map(|test| test.join().expect("it ends")).collect()
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), MISTAKES.len(), wrong.join("\n"));
}

fn wrong_outcomes(mistakes: &[Mistake]) -> Vec<String> {
    let place = TestDirectory::new();
    mistakes.iter().filter_map(|mistake| place.test(mistake).err()).collect()
}

/// A port in use is no mistake of the file: a check may run beside the replica. A start ends with code 1, because the
/// other process may end.
#[test]
fn an_address_in_use_is_named_and_another_start_may_help() {
    let place = TestDirectory::new();
    let held = TcpListener::bind((HERE, 0)).expect("a port");
    let address = held.local_addr().expect("bound").to_string();
    for (field, written) in [("listen", "HERE:CLIENTS"), ("replica[1].address", "HERE:PEERS")] {
        let text = RIGHT.replacen(written, &address, 1);
        let reported =
            format!("{field}: another process listens on {address}. Remedy: if that is this replica");
        let (code, said) = place.check(&text);
        assert!(code == Some(0) && said.contains(&reported), "{code:?} {said}");
        let (code, said) = place.serve(&text);
        assert!(code == Some(1) && said.contains(&reported), "{code:?} {said}");
    }
}

/// A directory with the files that the configurations name.
struct TestDirectory(tempfile::TempDir);

impl TestDirectory {
    fn new() -> Self {
        let place = TestDirectory(tempfile::tempdir().expect("a directory"));
        let key = format!("cluster = \"mistakes\"\nkey = \"{}\"\n", "7a".repeat(32));
        let keys = [("group", key.as_str(), 0o600), ("open", &key, 0o644)];
        let wrong = [("bad", "hello\n", 0o600), ("short", "cluster = \"a\"\nkey = \"abcd\"\n", 0o600)];
        for (name, text, mode) in keys.into_iter().chain(wrong) {
            let path = place.0.path().join(format!("{name}.key"));
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
        }
        let open = place.0.path().join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("set");
        place
    }

    /// A text with the names of this place.
    fn filled(&self, text: &str) -> String {
        let port = || TcpListener::bind((HERE, 0)).and_then(|held| held.local_addr()).expect("a port").port();
        let directory = self.0.path().to_str().expect("text");
        let text = text.replace("DIR", directory).replace("LONG", &"x".repeat(100)).replace("HERE", HERE);
        text.replace("CLIENTS", &port().to_string()).replace("PEERS", &port().to_string())
    }

    /// `serve` with this configuration.
    fn command(&self, text: &str) -> Command {
        let file = self.0.path().join("node.toml");
        fs::write(&file, self.filled(text)).expect("written");
        serve(&file)
    }

    fn check(&self, text: &str) -> (Option<i32>, String) {
        ended(self.command(text).arg("--check"))
    }

    fn serve(&self, text: &str) -> (Option<i32>, String) {
        ended(&mut self.command(text))
    }

    /// What did not happen as it should.
    fn test(&self, (name, (right, wrong), outcome, field, remedy): &Mistake) -> Result<(), String> {
        assert!(RIGHT.contains(right), "{name}: the right configuration has no `{right}`");
        let text = RIGHT.replacen(right, wrong, 1);
        let remedy = self.filled(remedy);
        // The one field that is checked against the process, and so has no line, has its value behind it.
        let fields = [format!(" {field}: "), format!(" {field} = ")];
        let is_named = |what: &str| fields.iter().any(|field| what.contains(field));
        let names = |said: &str| {
            let mut parts = said.lines().filter_map(|line| line.split_once(". Remedy: "));
            parts.any(|(what, told)| is_named(what) && told.contains(&remedy))
        };
        let wanted = if *outcome == Refused { Some(2) } else { Some(0) };
        let (code, said) = self.check(&text);
        if code != wanted || !names(&said) {
            return Err(format!("{name}: --check ends with {code:?}: {said}"));
        }
        if *outcome == Warned {
            let told = Running::start(self.command(&text)).says(names);
            // The next one may find no directory.
            let _ = fs::remove_dir_all(self.data());
            return told.map_err(|said| format!("{name}: the start says {said}"));
        }
        let (code, said) = self.serve(&text);
        if code != Some(2) || !names(&said) {
            return Err(format!("{name}: the start ends with {code:?}: {said}"));
        }
        // What is refused has changed nothing.
        if self.data().exists() { Err(format!("{name}: it has made a directory")) } else { Ok(()) }
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }
}

fn serve(config: &Path) -> Command {
    let mut command = Command::new("sh");
    // Some machines allow a million open files.
    command.args(["-c", "ulimit -n 4096 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_crosscheck"), "serve"]);
    command.arg("--config").arg(config);
    command
}

/// The exit code and the messages of a command that ends by itself.
fn ended(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A replica that was started.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Self {
        Running(command.stderr(Stdio::piped()).spawn().expect("it starts"))
    }

    /// Waits for such a line; otherwise the error is what it said.
    fn says(&mut self, is_it: impl Fn(&str) -> bool) -> Result<(), String> {
        let stderr = BufReader::new(self.0.stderr.take().expect("piped"));
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).take_while(|line| send.send(line.clone()).is_ok()).count()
        });
        let mut said = String::new();
        while let Ok(line) = lines.recv_timeout(PATIENCE) {
            if is_it(&line) {
                return Ok(());
            }
            said = format!("{said}{line}\n");
        }
        Err(said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
