//! A short trial of real replicas under real failures: the checker accepts the replies, and rejects them where the
//! replicas are wrong on purpose.
#![cfg(target_os = "linux")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs a plan and returns whether everything held, with its result.
fn trial(plan: &str, more: &[&str], out: &Path) -> (bool, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_crosscheck"))
        .args(["trial", "run", plan, "--seed", "1", "--out"])
        .arg(out)
        .args(more)
        .output()
        .expect("the crosscheck command starts");
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{told}{}", String::from_utf8_lossy(&output.stderr));
    let folder = std::fs::read_dir(out).expect("results").next().expect("one plan").expect("a folder").path();
    assert!(folder.join("result.md").is_file() && folder.join("timeline.jsonl").is_file());
    let text = std::fs::read_to_string(folder.join("result.json")).expect("a result");
    (output.status.success(), serde_json::from_str(&text).expect("JSON"))
}

/// In namespaces where they are allowed, on loopback (without the partition) elsewhere.
#[test]
fn a_cluster_in_trouble_answers_as_one_correct_server() {
    let out = tempfile::tempdir().expect("a temporary directory");
    let (holds, result) = trial("quick", &[], out.path());
    assert!(holds, "not everything held: {result:#}");
    assert!(result["checked"]["operations"].as_u64() > Some(1_000), "{}", result["checked"]);
    assert_eq!(result["checked"]["wrong_keys"], 0);
    assert_eq!(result["failed"]["unforeseen"], 0);
    assert!(result["episodes"].as_array().is_some_and(|episodes| episodes.len() >= 2));
}

/// Without protection the same corruption reaches clients, and the checker reports that.
#[test]
fn replicas_without_protection_are_caught() {
    let out = tempfile::tempdir().expect("a temporary directory");
    let (noticed, result) = trial("control", &["--loopback", "--seconds", "8"], out.path());
    assert!(noticed, "corruption reached clients, and the checker saw nothing: {result:#}");
    let checked = &result["checked"];
    assert!(
        checked["wrong_keys"].as_u64() > Some(0) || checked["impossible"].as_u64() > Some(0),
        "{checked}"
    );
}
