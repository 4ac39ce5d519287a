//! The program as an operator runs it: three replicas, psql at each of them, and a flipped bit in a page.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use node::cluster::DetachedCluster;
use tempfile::TempDir;

use crate::skipped;

/// Generous: machines of CI are slow, not wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// `crosscheck-sql up`, which never outlives the test.
pub struct Group {
    up: DetachedCluster,
    directory: TempDir,
}

impl Group {
    fn up() -> Self {
        Group::up_with(&[])
    }

    /// With more options.
    pub fn up_with(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = program(&directory);
        command.args(["up", "--json", "--port", "0", "--replicas", "3"]).args(options);
        let up = DetachedCluster::start(&mut command, PATIENCE).expect("the group is ready");
        Group { up, directory }
    }

    /// The output of another command of the program for this group.
    pub fn command(&self, arguments: &[&str]) -> String {
        self.command_with(&[], arguments)
    }

    /// The same, with environment variables.
    pub fn command_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> String {
        let mut command = program(&self.directory);
        let output = command.args(arguments).envs(variables.iter().copied()).output();
        let output = output.expect("the program starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Where a replica, from 1, serves clients.
    pub fn clients(&self, replica: usize) -> SocketAddr {
        self.up.replicas[replica - 1].clients.expect("it serves clients")
    }

    /// The output of psql at a replica, from 1.
    fn psql(&self, replica: usize, query: &str) -> String {
        let address = self.clients(replica);
        let output = Command::new("psql")
            .args(["--no-psqlrc", "-At", "-h", &address.ip().to_string(), "-p", &address.port().to_string()])
            .args(["-U", "anybody", "-d", "anything", "-c", query])
            .output()
            .expect("psql starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim_end().to_owned()
    }
}

fn program(directory: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crosscheck-sql"));
    command.env("XDG_RUNTIME_DIR", directory.path());
    command
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn psql_gets_right_answers_before_and_after_a_flipped_page_is_repaired() {
    if Command::new("psql").arg("--version").output().is_err() {
        return skipped::skipped("psql is not installed; install it with: apt-get install postgresql-client");
    }
    let group = Group::up();
    assert_eq!(
        group.psql(1, "CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT, balance INT)"),
        "CREATE TABLE"
    );
    assert_eq!(group.psql(2, "INSERT INTO accounts VALUES (17, 'ann', 100), (18, 'bob', 50)"), "INSERT 0 2");
    assert_eq!(group.psql(3, "SELECT * FROM accounts ORDER BY id"), "17|ann|100\n18|bob|50");
    let drawn = group
        .psql(1, "UPDATE accounts SET balance = (random() * 1000000)::int WHERE id = 18 RETURNING balance");
    let drawn = drawn.lines().next().expect("a number").to_owned();
    assert!(
        (1..=3).all(|replica| group.psql(replica, "SELECT balance FROM accounts WHERE id = 18") == drawn)
    );

    let injected = group.command(&["inject", "flip", "--replica", "2", "--object", "row:accounts:17"]);
    assert!(injected.contains("Page"), "{injected}");
    assert!((1..=3).all(|replica| group.psql(replica, "SELECT owner FROM accounts WHERE id = 17") == "ann"));
    wait_until("the page is repaired", || group.command(&["evidence"]).contains("repaired"));
    for expected in ["page 2 (Page", "(table accounts, key 17, column "] {
        let printed = [group.command(&["evidence"]), group.command(&["evidence", "--json"])];
        assert!(printed.iter().all(|printed| printed.contains(expected)), "{expected}: {printed:?}");
    }
    wait_until("the replicas are equal", || group.command(&["digest"]).contains("bit-identical"));
    let refused = group.psql(1, "LISTEN news");
    assert!(refused.contains("ERROR") && refused.contains("HINT"), "{refused}");
}

/// The commands of the README's first section, as a newcomer types them, at the ports that this group has.
#[test]
fn the_readme_leads_from_nothing_to_a_repaired_page() {
    if Command::new("psql").arg("--version").output().is_err() {
        return skipped::skipped("psql is not installed; install it with: apt-get install postgresql-client");
    }
    let readme = include_str!("../README.md");
    let section = readme.split("\n## ").nth(1).expect("a first section");
    assert!(section.starts_with("From nothing to a repaired page"));
    let group = Group::up();
    let port = |replica| group.clients(replica).port().to_string();
    let mut printed = Vec::new();
    // The group is up already.
    for line in section.lines().filter_map(|line| line.strip_prefix("    ")).skip(2) {
        let Some((program_name, arguments)) = line.split_once(' ') else { panic!("no command: {line}") };
        if arguments.starts_with("up ") {
            continue;
        }
        let command = match program_name {
            "psql" => {
                let replica =
                    [2, 3].into_iter().find(|n| line.contains(&format!("-p {}", 5431 + n))).unwrap_or(1);
                let plain = line.replace(&format!("-p {}", 5431 + replica), "");
                plain.replacen(
                    "psql",
                    &format!("psql --no-psqlrc -At -U anybody -d anything -p {}", port(replica)),
                    1,
                )
            }
            "target/release/crosscheck-sql" => {
                line.replacen(program_name, env!("CARGO_BIN_EXE_crosscheck-sql"), 1)
            }
            other => panic!("{other} in the README"),
        };
        if line.contains("evidence") {
            wait_until("the page is repaired", || group.command(&["evidence"]).contains("repaired"));
        }
        if line.contains("digest") {
            wait_until("the replicas are equal", || group.command(&["digest"]).contains("bit-identical"));
        }
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &command]).env("XDG_RUNTIME_DIR", group.directory.path()).output();
        let output = output.expect("a shell");
        let both = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{line}\n{both}");
        printed.push(both);
    }
    let [created, inserted, before, injected, after, evidence, digest] = &printed[..] else {
        panic!("{printed:?}")
    };
    assert_eq!((created.trim(), inserted.trim()), ("CREATE TABLE", "INSERT 0 2"));
    assert_eq!((before.trim(), before), ("17|ann|100\n18|bob|50", after));
    assert!(
        injected.contains("Page") && evidence.contains("(table accounts, key 17, column "),
        "{printed:?}"
    );
    assert!(digest.contains("bit-identical"), "{digest}");
}

/// Each case of the clients' table passes, or is refused with a remedy: tests/clients.py.
#[test]
fn clients_written_by_others_are_served_or_told_what_to_do() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../../target/clients-venv/bin/python");
    let has_clients = |python: &Path| {
        let output =
            Command::new(python).args(["-c", "import psycopg, asyncpg, sqlalchemy, django"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !has_clients(&python) {
        let install = "pip install --requirement server/sql/tests/clients.txt, in target/clients-venv";
        return skipped::skipped(&format!(
            "PostgreSQL's clients for Python are missing; install them: {install}"
        ));
    }
    // Queries that only read run beside each other.
    let group = Group::up_with(&["--workers", "2"]);
    let port = group.clients(1).port();
    let output = Command::new(&python)
        .arg(root.join("tests/clients.py"))
        .arg(port.to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let (cases, summary) = printed.trim_end().rsplit_once('\n').expect("cases and their number");
    assert!(output.status.success(), "{summary}\n{cases}");
    let refused = cases.lines().filter(|line| line.starts_with("refused")).count();
    assert!(refused <= 9, "{printed}");
    wait_until("the replicas are equal", || group.command(&["digest"]).contains("bit-identical"));
    let evidence = group.command(&["evidence", "--json"]);
    assert!(!evidence.contains("replica"), "replicas have disagreed: {evidence}");
}

/// The same for PostgreSQL's driver for Java: tests/client_cases/Jdbc.java.
#[test]
fn the_driver_for_java_is_served() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let driver = root.join("../../target/jdbc/postgresql.jar");
    if !driver.exists() || Command::new("java").arg("-version").output().is_err() {
        return skipped::skipped(
            "Java and PostgreSQL's driver for it are missing; `.ci/run full` installs them",
        );
    }
    let group = Group::up();
    let mut java = Command::new("java");
    java.arg("-cp").arg(&driver).arg(root.join("tests/client_cases/Jdbc.java"));
    let output = java.arg(group.clients(2).port().to_string()).output().expect("Java starts");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let count = |word: &str| printed.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!((count("ok"), count("refused"), count("FAIL")), (12, 1, 0), "{printed}");
}

#[test]
fn a_dump_is_equal_at_all_replicas_and_is_loaded_into_another_group() {
    if Command::new("psql").arg("--version").output().is_err() {
        return skipped::skipped("psql is not installed; install it with: apt-get install postgresql-client");
    }
    let group = Group::up();
    let path = |name: &str| group.directory.path().join(name).display().to_string();
    group.psql(1, "CREATE TABLE a (id INTEGER PRIMARY KEY, text TEXT)");
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)";
    let inserted =
        group.psql(1, &format!("INSERT INTO a {numbers} SELECT i, lpad(i::text, 500, '0') FROM n"));
    assert_eq!(inserted, "INSERT 0 5000");
    let dumps: Vec<Vec<u8>> = ["1", "2", "3"]
        .into_iter()
        .map(|replica| {
            let file = path(&format!("{replica}.sqlite"));
            let printed = group.command(&["dump", "--replica", replica, &file]);
            assert!(printed.contains("written"), "{printed}");
            std::fs::read(&file).expect("the file is there")
        })
        .collect();
    assert!(dumps[0] == dumps[1] && dumps[1] == dumps[2]);
    let refused = group.command(&["load", &path("1.sqlite")]);
    assert!(refused.contains("55006") && refused.contains("empty"), "{refused}");
    assert_eq!(group.psql(3, "SELECT count(*) FROM a"), "5000");

    let other = Group::up();
    let printed = other.command(&["load", "--replica", "2", &path("2.sqlite")]);
    assert!(printed.contains("loaded"), "{printed}");
    let answers = (1..=3).map(|replica| other.psql(replica, "SELECT count(*), max(text) FROM a"));
    assert!(answers.into_iter().all(|answer| answer == group.psql(1, "SELECT count(*), max(text) FROM a")));
    wait_until("the replicas are equal", || other.command(&["digest"]).contains("bit-identical"));
    let again = path("again.sqlite");
    let address = other.up.replicas[2].clients.expect("it serves clients").to_string();
    other.command(&["dump", "--clients", &address, &again]);
    assert!(std::fs::read(&again).expect("the file is there") == dumps[0], "nothing else was written");
}
