//! How often `up` starts a replica again: at once after a single death, no more than every 5 s if each start ends soon,
//! and not at all where no start can help.

use std::fs;
use std::path::Path;
use std::process::Command;

use node::cluster::SupervisorEvent;
use rustix::process::Signal;

use crate::support::cluster::{Cluster, Wish};

/// The longest pause, in milliseconds.
const LONGEST_MS: u64 = 5_000;

#[test]
fn a_replica_that_dies_at_each_start_is_started_every_five_seconds_at_last() {
    let cluster =
        Cluster::up(&Wish { replicas: 1, mode: "00G0", workers: 1, restart_after: None, ..Wish::default() });
    let mut killed = Vec::new();
    cluster.wait_until("two of the longest pauses have begun", |cluster| {
        let pid = cluster.pid(0);
        if !killed.contains(&pid) {
            cluster.signal(0, Signal::KILL);
            killed.push(pid);
        }
        pauses(cluster).iter().filter(|pause| **pause == LONGEST_MS).count() == 2
    });
    let pauses = pauses(&cluster);
    assert_eq!(pauses[..6], [100, 200, 400, 800, 1_600, 3_200]);
    assert_eq!(pauses[6..], [LONGEST_MS; 2], "shorter ones come never again");
    cluster.finish();
}

#[test]
fn up_ends_with_two_where_no_start_can_help() {
    let folder = tempfile::tempdir().expect("a directory");
    let data = folder.path().join("data");
    let up = |data: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosscheck"));
        command.args(["up", "--port", "0", "--durability", "disk", "--data"]).arg(data);
        let output = command.env("XDG_RUNTIME_DIR", folder.path()).output().expect("it ends");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    fs::create_dir_all(data.join("replica-2")).expect("made");
    fs::write(data.join("replica-2/identity"), "mine").expect("written");
    let (code, said) = up(&data);
    assert!(code == Some(2) && said.contains("is not a file of this program"), "{code:?} {said}");
    let (code, said) = up(&data.join("replica-2/identity"));
    assert!(code == Some(2) && said.contains("cannot be made"), "{code:?} {said}");
}

/// The pauses before the starts of replica 1, in milliseconds.
fn pauses(cluster: &Cluster) -> Vec<u64> {
    let pause = |event| match event {
        SupervisorEvent::Died { pause_ms, .. } => Some(pause_ms),
        _ => None,
    };
    cluster.events().into_iter().filter_map(pause).collect()
}
