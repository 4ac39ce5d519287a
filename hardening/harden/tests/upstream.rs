//! memcached's own tests, which nobody here wrote, on the hardened binaries: no script does worse than on the unit
//! without protection. A long run only: some scripts take minutes.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harden::compile::Variant;

use crate::support::{built, places, skipped};

/// Scripts about what no variant has, and what that is.
const NOT_APPLICABLE: [(&str, &str); 9] = [
    ("extstore", "extstore is not compiled"),
    ("proxy", "the proxy is not compiled"),
    ("ssl_", "TLS is not compiled"),
    ("sasl", "SASL is not compiled"),
    ("binary.t", "the binary protocol is off"),
    ("udp.t", "UDP is off"),
    ("slabs_reassign.t", "the slab mover is off"),
    ("slabs-reassign", "the slab mover is off"),
    ("lru-maintainer.t", "the LRU maintainer is off"),
];

/// Scripts that fill more memory than `-m` says, which memcached allows for the first page of each size of items. What
/// `dup` has two copies of is set aside at the start, so that it has no more.
const HARD_LIMIT: [&str; 4] = ["chunked-items.t", "dyn-maxbytes.t", "getset.t", "issue_41.t"];
/// The baseline, and what is compared with it.
const VARIANTS: [Variant; 3] = [Variant::Native, Variant::Sei, Variant::Dup];
/// Scripts that run at a time.
const WORKERS: usize = 4;
/// How often a script that does worse is tried again: several of them depend on time.
const TRIES: usize = 3;
/// How long one script may run.
const PATIENCE: Duration = Duration::from_secs(180);

/// In place of upstream's program, which limits the time of another one: the options are left out that ask for what is
/// not compiled, or that the scripts add for UDP.
const TIMEDRUN: &str = r#"#!/bin/sh
shift
program=$1
shift
left=$#
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    case "$word $1" in
        "-o relaxed_privileges" | "-U "[1-9]*) shift; left=$((left - 1)) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec "$program" "$@"
"#;

/// What a script printed: tests that passed, tests that did not, and whether it came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    passed: usize,
    failed: usize,
    has_ended: bool,
}

impl Outcome {
    fn is_worse_than(self, native: Outcome) -> bool {
        self.passed < native.passed || self.failed > native.failed || (native.has_ended && !self.has_ended)
    }

    fn reported(self) -> String {
        let end = if self.has_ended { "" } else { ", did not end" };
        match self.failed {
            0 => format!("{} ok{end}", self.passed),
            failed => format!("{} ok, {failed} not{end}", self.passed),
        }
    }
}

#[test]
fn upstreams_own_tests_find_nothing_that_is_worse_than_without_protection() {
    if std::env::var_os("CROSSCHECK_LONG").is_none() {
        return;
    }
    let perl = Command::new("perl").args(["-MTest::More", "-e", "1"]).status();
    if !perl.is_ok_and(|status| status.success()) {
        return skipped("Perl with Test::More is not installed: apt-get install perl");
    }
    let mut folders = Vec::new();
    for variant in VARIANTS {
        let Some(program) = built("memcached", variant) else { return };
        folders.push(folder(&program, variant.name()));
    }
    let scripts = scripts(&folders[0]);
    assert!(scripts.len() > 45, "{scripts:?}");
    let first = run_all(&folders, &scripts);
    let intact = first.iter().filter(|outcomes| outcomes[0].has_ended && outcomes[0].failed == 0).count();
    assert!(intact > 35, "only {intact} scripts pass without protection");
    let mut worse = Vec::new();
    for (script, mut outcomes) in scripts.iter().zip(first) {
        for _ in 1..TRIES {
            for at in compared(script) {
                if outcomes[at].is_worse_than(outcomes[0]) {
                    outcomes[0] = run(&folders[0], script);
                    outcomes[at] = run(&folders[at], script);
                }
            }
        }
        let reported: Vec<String> = VARIANTS
            .iter()
            .zip(&outcomes)
            .map(|(variant, outcome)| format!("{variant}: {}", outcome.reported()))
            .collect();
        println!("{script:<28} {}", reported.join("; "));
        if compared(script).any(|at| outcomes[at].is_worse_than(outcomes[0])) {
            worse.push(format!("{script} {}", reported.join("; ")));
        }
    }
    assert_eq!(worse, Vec::<String>::new());
}

/// The variants that must do as well as the first one.
fn compared(script: &str) -> impl Iterator<Item = usize> {
    let is_limited = HARD_LIMIT.contains(&script);
    (1..VARIANTS.len()).filter(move |&at| !(is_limited && VARIANTS[at] == Variant::Dup))
}

/// The outcomes of each script with each variant. Scripts wait most of the time, so several run beside each other.
fn run_all(folders: &[PathBuf], scripts: &[String]) -> Vec<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![vec![Outcome::default(); folders.len()]; scripts.len()]);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let (script, variant) = (job / folders.len(), job % folders.len());
                    let Some(name) = scripts.get(script) else { break };
                    let outcome = run(&folders[variant], name);
                    outcomes.lock().expect("no worker panics")[script][variant] = outcome;
                }
            });
        }
    });
    outcomes.into_inner().expect("no worker panics")
}

/// A folder in which scripts find this program and their files.
fn folder(program: &Path, name: &str) -> PathBuf {
    let source = places().out.join("memcached/source");
    let folder = places().out.join("upstream").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("t")).expect("made");
    for file in fs::read_dir(&source).expect("the source").map(|file| file.expect("an entry")) {
        if file.file_name() != "t" {
            symlink(file.path(), folder.join(file.file_name())).expect("linked");
        }
    }
    let copied = Command::new("cp").arg("-r").arg(source.join("t")).arg(&folder).status();
    assert!(copied.expect("cp runs").success());
    fs::copy(program, folder.join("memcached-debug")).expect("copied");
    let timedrun = folder.join("timedrun");
    fs::write(&timedrun, TIMEDRUN).expect("written");
    fs::set_permissions(&timedrun, fs::Permissions::from_mode(0o755)).expect("its mode is set");
    // Below the ports that the kernel assigns.
    let module = folder.join("t/lib/MemcachedTest.pm");
    let text = fs::read_to_string(&module).expect("the scripts' module");
    let random = "int(rand(20000)) + 30000";
    assert!(text.contains(random), "upstream chooses ports in another way");
    fs::write(&module, text.replace(random, "int(rand(50)) + 23050")).expect("written");
    folder
}

/// Names of the scripts that apply.
fn scripts(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("t")).expect("the scripts").map(|entry| entry.expect("an entry"));
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut scripts: Vec<String> = names.filter(|name| name.ends_with(".t")).collect();
    scripts.sort();
    scripts.retain(|name| {
        let reason = NOT_APPLICABLE.iter().find(|(part, _)| name.contains(part));
        if let Some((_, reason)) = reason {
            println!("{name}: not applicable: {reason}");
        }
        reason.is_none()
    });
    scripts
}

/// Runs a script to its end, or to that of the patience.
fn run(folder: &Path, script: &str) -> Outcome {
    let log = folder.join(format!("{script}.out"));
    let file = File::create(&log).expect("made");
    let mut command = Command::new("perl");
    command.arg(format!("t/{script}")).current_dir(folder).stdin(Stdio::null()).process_group(0);
    command.stdout(file.try_clone().expect("a file")).stderr(file);
    let mut child = command.spawn().expect("perl starts");
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break Some(status),
            None if Instant::now() > end => break None,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    if status.is_none() {
        // The group has the servers that the script started.
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = child.wait();
    }
    let bytes = fs::read(&log).expect("the output");
    let text = String::from_utf8_lossy(&bytes);
    let count = |begin: &str| text.lines().filter(|line| line.starts_with(begin)).count();
    Outcome {
        passed: count("ok "),
        failed: count("not ok "),
        // A script's status is the number of its failed tests; one that died says that it planned more.
        has_ended: status.is_some()
            && !text.contains("# Looks like your test exited")
            && !text.contains("# Looks like you planned"),
    }
}

#[test]
fn outcomes_are_compared() {
    let native = Outcome { passed: 20, failed: 1, has_ended: true };
    assert!(!native.is_worse_than(native));
    assert!(!Outcome { passed: 21, failed: 0, has_ended: true }.is_worse_than(native));
    for worse in [
        Outcome { passed: 19, ..native },
        Outcome { failed: 2, ..native },
        Outcome { has_ended: false, ..native },
    ] {
        assert!(worse.is_worse_than(native), "{worse:?}");
    }
    assert!(native.is_worse_than(Outcome { passed: 21, failed: 0, has_ended: true }));
}
