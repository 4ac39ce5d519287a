//! The binary of a plain release build, named by `CROSSCHECK_PRODUCTION`: it has no fault injector, refuses an operator
//! who requests one, and reports how to get it. `.ci/run` builds it; elsewhere these tests report that they skip.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use node::cluster::Process;

const PATIENCE: Duration = Duration::from_secs(30);
/// Messages of the injector and of experiments, and the names of the injector's functions, which the linker keeps in a
/// build that has them.
const TRACES: [&str; 5] = [
    "armed; it happens at the next occasion",
    "10crosscheck6faults",
    "6object6inject",
    "PendingFaults",
    "only these classes are protected",
];

/// The binary to be tested.
fn production() -> Option<PathBuf> {
    let named = std::env::var_os("CROSSCHECK_PRODUCTION").map(PathBuf::from);
    if named.is_none() {
        assert!(std::env::var_os("CI").is_none(), "set CROSSCHECK_PRODUCTION to target/release/crosscheck");
        eprintln!("skipped: CROSSCHECK_PRODUCTION names no binary of `cargo build --release`");
    }
    named
}

fn traces_in(binary: &Path) -> Vec<&'static str> {
    let bytes = std::fs::read(binary).unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
    let has = |trace: &&str| bytes.windows(trace.len()).any(|window| window == trace.as_bytes());
    TRACES.into_iter().filter(has).collect()
}

fn run(binary: &Path, args: &[&str]) -> Output {
    Command::new(binary).args(args).output().expect("it runs")
}

#[test]
fn the_injector_is_not_in_a_production_binary() {
    let tested = Path::new(env!("CARGO_BIN_EXE_crosscheck"));
    assert_eq!(traces_in(tested), TRACES, "these tests have the injector, and its traces show");
    let Some(production) = production() else { return };
    assert_eq!(traces_in(&production), [""; 0], "{}", production.display());
}

#[test]
fn commands_that_need_the_injector_say_how_to_build_it() {
    let Some(production) = production() else { return };
    let flip = ["inject", "flip", "--replica", "1"];
    for args in [&flip[..], &["demo"], &["harden", "check", "x.c"]] {
        let output = run(&production, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("--features inject"), "{args:?}: {said}");
        let help = run(&production, &["--help"]);
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        assert!(!help.lines().any(|line| line.trim_start().starts_with(args[0])), "{}: {help}", args[0]);
    }
}

#[test]
fn a_production_server_has_no_setting_of_an_experiment() {
    let Some(production) = production() else { return };
    let example = run(&production, &["serve", "--example-config"]);
    let example = String::from_utf8_lossy(&example.stdout).into_owned();
    let folder = tempfile::tempdir().expect("a directory");
    let config = folder.path().join("node.toml");
    for (field, value) in [
        ("work_us", "5"),
        ("guarded_classes", "\"Item\""),
        ("before_images", "\"none\""),
        ("replies", "\"free\""),
    ] {
        assert!(!example.lines().any(|line| line.contains(&format!("{field} = "))), "{field}: {example}");
        std::fs::write(&config, format!("{field} = {value}\n{example}")).expect("written");
        let output = run(&production, &["serve", "--config", &config.to_string_lossy()]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{field}: {said}");
        assert!(said.contains(&format!("{field}: is for experiments")), "{field}: {said}");
        assert!(said.contains("crosscheck-lab"), "{field}: {said}");
    }
}

#[test]
fn a_production_server_refuses_to_corrupt_itself_and_serves_on() {
    let Some(production) = production() else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let free = || TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr()).expect("a port");
    let admin = folder.path().join("admin.sock");
    let text = format!(
        "this_replica = 1\nlisten = \"{}\"\nadmin = \"{}\"\nmode = \"00G0\"\nworkers = 1\n\
         memory_limit_mb = 16\n[[replica]]\nnumber = 1\naddress = \"{}\"\n",
        free(),
        admin.display(),
        free()
    );
    let config = folder.path().join("node.toml");
    std::fs::write(&config, text).expect("written");
    let mut serve = Command::new(&production);
    serve.arg("serve").arg("--config").arg(&config);
    let _running = Process::spawn(serve, Stdio::null(), Stdio::null()).expect("it starts");
    let deadline = Instant::now() + PATIENCE;
    let mut stream = loop {
        match UnixStream::connect(&admin) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "no admin socket: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let mut answers = BufReader::new(stream.try_clone().expect("a second handle")).lines();
    let mut ask = |line: &str| {
        writeln!(stream, "{line}").expect("it listens");
        answers.next().expect("an answer").expect("text")
    };
    for kind in ["flip", "reply", "message"] {
        let refused = ask(&format!("{{\"cmd\":\"inject\",\"kind\":\"{kind}\"}}"));
        assert!(refused.contains("error") && refused.contains("--features inject"), "{kind}: {refused}");
    }
    let status = ask("{\"cmd\":\"status\"}");
    assert!(status.contains("\"armed\":0"), "{status}");
}
