//! Short trials of real replicas under real failures: the checker accepts the replies, and rejects them where the
//! replicas are wrong on purpose; groups that are hit again and again come back, and one that cannot is called hung.
#![cfg(target_os = "linux")]

use report::results::ResultFile;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use skipped::skipped;

#[path = "../../../hardening/sei/tests/support/skipped.rs"]
mod skipped;

/// Runs a plan.
fn command(plan: &str, more: &[&str], out: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_crosscheck-lab"))
        .args(["trial", "run", plan, "--seed", "1", "--out"])
        .arg(out)
        .args(more)
        .output()
        .expect("the crosscheck command starts");
    let reported = String::from_utf8_lossy(&output.stdout);
    println!("{reported}{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The folder of the only plan that was run.
fn folder(out: &Path) -> PathBuf {
    std::fs::read_dir(out).expect("results").next().expect("one plan").expect("a folder").path()
}

/// The totals and the rows of a result.
fn result(out: &Path) -> (Value, Vec<Value>) {
    let folder = folder(out);
    assert!(folder.join("result.md").is_file());
    let file = ResultFile::read(&folder.join("result.json")).expect("a result");
    let (_, _, totals, rows) = file.parts::<Value, Value, Value>().expect("its parts");
    (totals, rows)
}

/// Runs a plan and returns whether everything held, with the totals and the episodes.
fn trial(plan: &str, more: &[&str], out: &Path) -> (bool, Value, Vec<Value>) {
    let output = command(plan, more, out);
    assert!(folder(out).join("timeline.jsonl").is_file());
    let (totals, episodes) = result(out);
    (output.status.success(), totals, episodes)
}

/// In namespaces where they are allowed, on loopback (without the partition) elsewhere.
#[test]
fn a_cluster_in_trouble_answers_as_one_correct_server() {
    let out = tempfile::tempdir().expect("a temporary directory");
    let (holds, result, episodes) = trial("quick", &[], out.path());
    assert!(holds, "not everything held: {result:#}");
    assert!(result["checked"]["operations"].as_u64() > Some(1_000), "{}", result["checked"]);
    assert_eq!(result["checked"]["wrong_keys"], 0);
    assert_eq!(result["failed"]["unforeseen"], 0);
    assert!(episodes.len() >= 2);
}

/// Without protection the same corruption reaches clients, and the checker reports that.
#[test]
fn replicas_without_protection_are_caught() {
    let out = tempfile::tempdir().expect("a temporary directory");
    let (noticed, result, _) = trial("control", &["--loopback", "--seconds", "8"], out.path());
    assert!(noticed, "corruption reached clients, and the checker saw nothing: {result:#}");
    let checked = &result["checked"];
    assert!(
        checked["wrong_keys"].as_u64() > Some(0) || checked["impossible"].as_u64() > Some(0),
        "{checked}"
    );
}

/// Whether the program of the SQL service, which another crate builds, is not there; the test is skipped then.
fn lacks_sql() -> bool {
    let program = Path::new(env!("CARGO_BIN_EXE_crosscheck-lab")).with_file_name("crosscheck-sql");
    let is_missing = !program.is_file();
    if is_missing {
        skipped("no crosscheck-sql is beside crosscheck-lab; `cargo test -p sql --no-run` builds it");
    }
    is_missing
}

/// The SQL service, which is a program of its own: rows and the bank.
#[test]
fn acknowledged_transactions_outlive_kills_and_corruption() {
    if lacks_sql() {
        return;
    }
    let out = tempfile::tempdir().expect("a temporary directory");
    let (holds, result, episodes) = trial("sql-quick", &[], out.path());
    assert!(holds, "not everything held: {result:#}");
    let bank = &result["bank"];
    assert!(bank["acknowledged"].as_u64() > Some(20) && bank["sums"].as_u64() > Some(10), "{bank:#}");
    let comparisons = bank["comparisons"].as_array().expect("rows were compared");
    assert!(comparisons.len() > 3, "after a kill, and at each of three replicas in the end: {bank:#}");
    assert!(episodes.len() >= 2);
}

/// Without protection wrong rows reach clients, and the checkers report that.
#[test]
fn sql_replicas_without_protection_are_caught() {
    if lacks_sql() {
        return;
    }
    let out = tempfile::tempdir().expect("a temporary directory");
    let (noticed, result, _) = trial("sql-control", &["--loopback"], out.path());
    assert!(noticed, "corruption reached clients, and the checkers saw nothing: {result:#}");
}

/// Runs the quick pairs of strikes in some kinds of groups, and returns whether everything held, with the groups.
fn recovery(groups: &str, more: &[&str]) -> (bool, Vec<Value>) {
    let out = tempfile::tempdir().expect("a temporary directory");
    let more = [&["--quick", "--only", groups], more].concat();
    let output = command("recovery", &more, out.path());
    (output.status.success(), result(out.path()).1)
}

fn must_recover(groups: &str) {
    let (holds, all) = recovery(groups, &[]);
    assert_eq!(all.len(), groups.split(',').count());
    for one in all {
        assert_eq!(one["verdict"], "held", "{one:#}");
        assert_eq!(one["pairs"].as_array().expect("a list").len(), 3);
        assert!(one["checked"]["operations"].as_u64() > Some(300), "{}", one["checked"]);
        let strikes =
            one["pairs"].as_array().into_iter().flatten().flat_map(|pair| pair["strikes"].as_array());
        assert!(strikes.flatten().all(|strike| strike["permitted"] == true), "{one:#}");
    }
    assert!(holds);
}

/// A second replica is hit as soon as the group says that it tolerates that, three times in each kind of group.
#[test]
fn a_group_with_a_vote_before_replies_comes_back_from_every_strike_that_it_tolerates() {
    must_recover("rdgx,rdgx-disk,five");
}

#[test]
fn a_group_that_verifies_comes_back_from_every_strike_that_it_tolerates() {
    must_recover("r0gv,r00v,pair,witness");
}

/// Two of three memories are lost at once, which no group tolerates and this one has not said that it does.
#[test]
fn a_group_beyond_its_tolerance_is_not_reported_as_recovered() {
    let (holds, all) = recovery("rdgx", &["--blindly", "--pairs", "1"]);
    let one = &all[0];
    assert!(!holds && one["verdict"] != "held", "{one:#}");
    let strikes =
        |pairs: &Value| pairs[0]["strikes"].as_array().or(pairs[0]["pair"]["strikes"].as_array()).cloned();
    let strikes = strikes(&one["hung"]).or(strikes(&one["pairs"])).expect("the strikes");
    assert_eq!(strikes[1]["permitted"], false, "{strikes:#?}");
}
