//! `crosscheck-lab inject hooks`: faults that replicas inject into themselves have visible effects where replicas are
//! not compared, and are repaired where they are.
#![cfg(all(feature = "inject", target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;
use std::process::Command;

use tracer::hooks::HookRecord;
use tracer::record::InjectionClass;
use tracer::result::{InjectionResult, Records};

const RUNS: usize = 3;

/// A small campaign on a shipped target, with the program under test.
fn campaign(target: &str, kinds: &str) -> Vec<HookRecord> {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("hooks.json");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tracer/targets").join(target);
    let reported = Command::new(env!("CARGO_BIN_EXE_crosscheck-lab"))
        .args(["inject", "hooks", "--seed", "7", "--kind", kinds, "--runs", &RUNS.to_string(), "--full"])
        .arg("--target")
        .arg(file)
        .arg("--out")
        .arg(&out)
        .output()
        .expect("the campaign");
    assert!(reported.status.success(), "{}", String::from_utf8_lossy(&reported.stderr));
    let result = InjectionResult::read(&out).expect("its result");
    let Records::Hooks(records) = result.full_records else {
        panic!("they are records of hooks");
    };
    let campaign = &result.campaigns[0];
    assert_eq!((campaign.seed, campaign.target.as_str()), (7, target.trim_end_matches(".toml")));
    assert!(campaign.origin.command.starts_with("inject hooks --seed 7"), "{campaign:?}");
    assert_eq!(records.len(), RUNS * kinds.split(',').count());
    records
}

#[test]
fn a_reply_that_nobody_compares_is_wrong_and_one_that_is_compared_is_not() {
    let alone = campaign("alone-00G0.toml", "reply");
    let undetected = alone.iter().filter(|record| record.class == InjectionClass::Undetected).count();
    assert!(undetected > 0, "checksums of objects see no reply: {alone:?}");
    let compared = campaign("cluster-RDGX.toml", "reply,flip,digest");
    for record in compared {
        assert!(matches!(record.class, InjectionClass::Repaired | InjectionClass::Replaced), "{record:?}");
        assert_eq!(record.states_equal, Some(true), "{record:?}");
        assert!(!record.noticed.is_empty(), "{record:?}");
    }
}

/// Without the second run and its comparison, replies of handlers that are skipped, doubled or wrong reach the client:
/// the same kinds on `alone-00G0.toml` come to undetected replies.
#[test]
fn a_node_that_compares_with_itself_lets_no_wrong_reply_leave() {
    let kinds = "request,reply,digest,footprint,skip,twice,in-request,erratic,image,position";
    let twice = campaign("alone-00GT.toml", kinds);
    // A wrong before-image leaves no state to go on from, a wrong position no place in the log: the node ends by
    // itself.
    let is_detected = |record: &HookRecord| {
        let has_ended =
            ["image", "position"].contains(&record.name().as_str()) && record.subclass == "exit code 1";
        record.class == InjectionClass::Detected || (record.class == InjectionClass::Otherwise && has_ended)
    };
    for record in &twice {
        assert!(record.class == InjectionClass::Masked || is_detected(record), "{record:?}");
    }
    for kind in kinds.split(',').filter(|kind| *kind != "twice") {
        // A handler that runs twice on the same state often has the same result.
        let mut noticed = twice.iter().filter(|record| record.name() == kind);
        assert!(noticed.any(&is_detected), "{kind}: {twice:?}");
    }
    let once = campaign("alone-00G0.toml", "skip,erratic");
    assert!(once.iter().any(|record| record.class == InjectionClass::Undetected), "{once:?}");
}

#[test]
fn a_kind_that_is_none_is_refused_with_the_word() {
    let reported = Command::new(env!("CARGO_BIN_EXE_crosscheck-lab"))
        .args(["inject", "hooks", "--kind", "flop", "--target"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tracer/targets/cluster-RDGX.toml"))
        .output()
        .expect("its answer");
    assert_eq!(reported.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&reported.stderr).contains("there is no kind flop"));
}
