//! A data directory that is put back from an older copy: its replica finds out before it answers any client, gives the
//! copy up, and joins as a new incarnation.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{Cluster, Service};
use order::{FileLog, FileOptions, LogStore, Record, State};
use tempfile::TempDir;

const SMALL: FileOptions = FileOptions { segment_bytes: 32 << 10, limit_bytes: 64 << 20, spares: 2 };

type Cuts = BTreeMap<u64, (State, Service)>;

fn root() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

fn data(root: &TempDir, slot: u8) -> PathBuf {
    root.path().join(slot.to_string())
}

fn open(root: &TempDir, slot: u8) -> (Box<dyn LogStore>, Vec<Record>) {
    let (log, records) = FileLog::open(&data(root, slot), slot, SMALL).expect("the log opens");
    (Box::new(log), records)
}

fn established(root: &TempDir, seed: u64) -> Cluster {
    let stores = (0..3).map(|slot| open(root, slot)).collect();
    let mut cluster = Cluster::with_stores(seed, stores);
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster
}

fn load(cluster: &mut Cluster, milliseconds: u64) {
    for _ in 0..milliseconds {
        for slot in cluster.running() {
            if cluster.replica(slot).stopped.is_none() && cluster.rng.chance(200) {
                cluster.submit(slot);
            }
        }
        cluster.step();
    }
}

fn restart(cluster: &mut Cluster, root: &TempDir, slot: u8, cuts: Cuts) {
    let (log, records) = open(root, slot);
    cluster.start(slot, log, records, cuts);
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let place = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &place);
        } else {
            fs::copy(entry.path(), place).unwrap();
        }
    }
}

/// A cluster in which replica `slot` is down, `processes` processes after a copy of its data was made.
fn copied(root: &TempDir, seed: u64, slot: u8, processes: u32) -> (Cluster, Cuts) {
    let mut cluster = established(root, seed);
    load(&mut cluster, 200);
    let cuts = cluster.kill(slot).cuts;
    copy(&data(root, slot), &root.path().join("copy"));
    for _ in 0..processes {
        restart(&mut cluster, root, slot, cuts.clone());
        load(&mut cluster, 200);
        cluster.run_until_idle();
        cluster.kill(slot);
        load(&mut cluster, 50);
    }
    (cluster, cuts)
}

/// Starts the replica from the copy, checks that it gives it up, and starts it again.
fn is_given_up(cluster: &mut Cluster, root: &TempDir, slot: u8) {
    cluster.run_until(3_000, "it finds out", |cluster| cluster.replica(slot).stopped.is_some());
    let why = cluster.replica(slot).stopped.clone().unwrap();
    assert!(why.starts_with("an older copy: entry "), "{why}");
    assert!(!cluster.replica(slot).orderer.can_accept());
    cluster.check();
    let cuts = cluster.kill(slot).cuts;
    load(cluster, 100);
    restart(cluster, root, slot, cuts);
    cluster.run_until(5_000, "a new incarnation", |cluster| {
        cluster.replica(slot).joined && cluster.replica(slot).members.is_voter(slot)
    });
    load(cluster, 200);
    cluster.run_until_idle();
}

#[test]
fn an_older_copy_is_given_up_however_many_incarnations_have_passed() {
    for (seed, processes) in [(1, 1), (2, 2), (3, 3), (4, 1), (5, 2)] {
        for slot in 0..3 {
            let root = root();
            let (mut cluster, cuts) = copied(&root, seed, slot, processes);
            copy(&root.path().join("copy"), &data(&root, slot));
            restart(&mut cluster, &root, slot, cuts);
            // Clients come at once, before it has caught up.
            (0..3).for_each(|_| assert!(cluster.submit(slot)));
            is_given_up(&mut cluster, &root, slot);
        }
    }
}

/// Its first request equals the one of the process that the copy does not know: the same bytes, with the same number.
#[test]
fn a_request_that_an_unknown_incarnation_has_sent_too_is_not_taken_for_answered() {
    let root = root();
    let slot = 1;
    let (mut cluster, cuts) = copied(&root, 11, slot, 0);
    restart(&mut cluster, &root, slot, cuts.clone());
    cluster.run_until_idle();
    cluster.submit_checkpoint(slot);
    cluster.run_until_idle();
    cluster.kill(slot);
    load(&mut cluster, 100);
    copy(&root.path().join("copy"), &data(&root, slot));
    restart(&mut cluster, &root, slot, cuts);
    cluster.submit_checkpoint(slot);
    is_given_up(&mut cluster, &root, slot);
}

/// No batch of the unknown process is left in the log, but the state of a checkpoint counts its batches.
#[test]
fn a_state_that_counts_batches_of_an_unknown_incarnation_tells_too() {
    let root = root();
    let slot = 2;
    let (mut cluster, _) = copied(&root, 21, slot, 1);
    // Its state is later than the end of its log, as if only the log had been put back.
    restart(&mut cluster, &root, slot, BTreeMap::new());
    load(&mut cluster, 100);
    cluster.submit_checkpoint(slot);
    cluster.run_until_idle();
    let later = cluster.kill(slot).cuts;
    let (state, _) = later.last_key_value().unwrap().1;
    let session = state.sessions[&slot];
    let mut state = state.clone();
    // The next start of this replica has its batches in there already.
    state.sessions.insert(slot, order::Session { incarnation: session.incarnation + 1, ..session });
    let service = later.last_key_value().unwrap().1.1.clone();
    let cuts = BTreeMap::from([(state.index, (state, service))]);
    restart(&mut cluster, &root, slot, cuts);
    cluster.submit(slot);
    is_given_up(&mut cluster, &root, slot);
}

/// The copy is from before the replica joined as a new incarnation: the group has forgotten the id under which it would
/// act.
#[test]
fn a_copy_of_before_a_new_incarnation_in_the_group_is_given_up() {
    let root = root();
    let slot = 1;
    let mut cluster = established(&root, 31);
    load(&mut cluster, 200);
    let cuts = cluster.kill(slot).cuts;
    copy(&data(&root, slot), &root.path().join("copy"));
    fs::remove_dir_all(data(&root, slot)).unwrap();
    restart(&mut cluster, &root, slot, BTreeMap::new());
    cluster.run_until(5_000, "a new incarnation", |cluster| {
        cluster.replica(slot).joined && cluster.replica(slot).members.is_voter(slot)
    });
    load(&mut cluster, 200);
    cluster.run_until_idle();
    cluster.kill(slot);
    copy(&root.path().join("copy"), &data(&root, slot));
    restart(&mut cluster, &root, slot, cuts);
    cluster.run_until(5_000, "it finds out", |cluster| cluster.replica(slot).stopped.is_some());
    assert_eq!(cluster.replica(slot).stopped.as_deref(), Some("removed"));
    let cuts = cluster.kill(slot).cuts;
    restart(&mut cluster, &root, slot, cuts);
    cluster.run_until(5_000, "another incarnation", |cluster| {
        cluster.replica(slot).joined && cluster.replica(slot).members.is_voter(slot)
    });
    cluster.run_until_idle();
}

/// A copy of the last process lacks its acknowledged entries, but none of them has the mark of the next process.
#[test]
fn incarnations_that_the_copy_knows_do_not_stop_it() {
    let root = root();
    let (mut cluster, cuts) = copied(&root, 41, 0, 0);
    load(&mut cluster, 200);
    restart(&mut cluster, &root, 0, cuts);
    load(&mut cluster, 200);
    cluster.run_until_idle();
    assert_eq!(cluster.replica(0).stopped, None);
    assert!(!cluster.replica(0).joined);
}
