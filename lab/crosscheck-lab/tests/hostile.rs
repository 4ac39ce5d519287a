//! The quick attacks of `crosscheck-lab trial run hostile` on real replicas hold; a long run includes all others.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output};

use report::results::ResultFile;
use serde_json::Value;

/// The attacks that take some seconds each. The others take long, or need the machine for themselves.
const QUICK: &str = "http,settings,strangers,descriptors,files,tls";

fn hostile(more: &[&str], out: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_crosscheck-lab"))
        .args(["trial", "run", "hostile", "--out"])
        .arg(out)
        .args(more)
        .output()
        .expect("the crosscheck command starts");
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn what_is_attacked_holds() {
    let out = tempfile::tempdir().expect("a temporary directory");
    let is_long = std::env::var_os("CROSSCHECK_LONG").is_some();
    let output = hostile(if is_long { &[] } else { &["--only", QUICK] }, out.path());
    // A missed time limit is for people to judge: other tests run at the same time.
    assert!(matches!(output.status.code(), Some(0 | 1)), "it was not carried out");
    let folder =
        std::fs::read_dir(out.path()).expect("results").next().expect("one run").expect("a folder").path();
    assert!(folder.join("result.md").is_file() && folder.join("replicas.log").is_file());
    let file = ResultFile::of_kind(&folder.join("result.json"), "hostile").expect("a result");
    let (_, (), _, attacks) = file.parts::<_, Value, Value>().expect("attacks");
    assert_eq!(attacks.len(), if is_long { 11 } else { QUICK.split(',').count() });
    for attack in &attacks {
        let cases = attack["cases"].as_array().expect("cases").iter();
        let checks: Vec<&Value> = cases.filter_map(|case| case["checks"].as_array()).flatten().collect();
        let holds = |check: &&Value| check["holds"] == true || check["timed"] == true;
        assert!(checks.len() >= 12 && checks.iter().all(holds), "{attack:#}");
    }
}

#[test]
fn an_attack_that_is_none_is_refused_with_the_names_of_those_that_are() {
    let out = tempfile::tempdir().expect("a temporary directory");
    let output = hostile(&["--only", "clocks"], out.path());
    let reported = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{reported}");
    assert!(reported.contains("no attack clocks") && reported.contains("wrong-replica"), "{reported}");
    assert_eq!(std::fs::read_dir(out.path()).expect("a folder").count(), 0);
}
