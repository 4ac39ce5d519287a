//! `durability = "disk"`: acknowledged entries survive every process, torn tails are cut, corruption is distinguished
//! and reported.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{Cluster, Service};
use order::{FileLog, FileOptions, LogError, LogStore, Record, State};
use tempfile::TempDir;

const SMALL: FileOptions = FileOptions { segment_bytes: 32 << 10, limit_bytes: 64 << 20, spares: 2 };

/// In memory where the system offers it: the tests are about the order of writes, not about the disk's speed.
fn root() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

fn open(root: &TempDir, slot: u8) -> (Box<dyn LogStore>, Vec<Record>) {
    let (log, records) = FileLog::open(&data(root, slot), slot, SMALL).expect("the log opens");
    (Box::new(log), records)
}

/// The data directory of a replica.
fn data(root: &TempDir, slot: u8) -> PathBuf {
    root.path().join(slot.to_string())
}

/// The directory of its log's files.
fn directory(root: &TempDir, slot: u8) -> PathBuf {
    data(root, slot).join("log")
}

/// As after a power failure that came before the kernel wrote this file out.
fn remove_claims(root: &TempDir, slot: u8) {
    fs::remove_file(directory(root, slot).join("synced")).unwrap();
}

fn established(root: &TempDir, seed: u64) -> Cluster {
    let stores = (0..3).map(|slot| open(root, slot)).collect();
    let mut cluster = Cluster::with_stores(seed, stores);
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster
}

/// Kills a process and returns what its disk has besides the log: the states at checkpoints.
fn kill(cluster: &mut Cluster, slot: u8) -> BTreeMap<u64, (State, Service)> {
    cluster.kill(slot).cuts
}

fn restart(cluster: &mut Cluster, root: &TempDir, slot: u8, cuts: BTreeMap<u64, (State, Service)>) {
    let (log, records) = open(root, slot);
    cluster.start(slot, log, records, cuts);
}

fn last_segment(path: &Path) -> PathBuf {
    let mut logs: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    logs.pop().unwrap()
}

/// Offset of the last byte that is not zero.
fn written(path: &Path) -> usize {
    fs::read(path).unwrap().iter().rposition(|&byte| byte != 0).unwrap()
}

#[test]
fn a_restarted_replica_keeps_its_id_and_replays_its_log() {
    let root = root();
    let mut cluster = established(&root, 1);
    cluster.load(300, 200);
    for slot in 0..3 {
        let cuts = kill(&mut cluster, slot);
        cluster.load(300, 200);
        restart(&mut cluster, &root, slot, cuts);
        cluster.load(200, 200);
        assert!(!cluster.replica(slot).joined, "no new incarnation");
    }
    cluster.run_until_idle();
}

#[test]
fn all_replicas_at_once_lose_their_power_and_nothing_acknowledged() {
    let root = root();
    let mut cluster = established(&root, 2);
    for round in 0..4 {
        cluster.load(300, 200);
        if round == 1 {
            cluster.compacting = true;
            cluster.submit_checkpoint(0);
            cluster.load(300, 200);
        }
        let disks: Vec<_> = (0..3).map(|slot| kill(&mut cluster, slot)).collect();
        for (slot, cuts) in (0u8..).zip(disks) {
            restart(&mut cluster, &root, slot, cuts);
        }
        cluster.run_until(3_000, "a leader", |cluster| cluster.leader().is_some());
    }
    cluster.run_until_idle();
    assert!(cluster.acked.len() > 300);
    let first = cluster.replica(0).orderer.engine_status().first_index;
    assert!(first > 100, "the log was compacted and still replays: it begins at {first}");
}

#[test]
fn files_that_compaction_superseded_are_reused() {
    let root = root();
    let mut cluster = established(&root, 3);
    cluster.compacting = true;
    for _ in 0..6 {
        cluster.load(600, 200);
        cluster.submit_checkpoint(0);
    }
    cluster.run_until_idle();
    let names: Vec<PathBuf> =
        fs::read_dir(directory(&root, 0)).unwrap().map(|entry| entry.unwrap().path()).collect();
    let segments = names.iter().filter(|name| name.extension().is_some());
    assert!(segments.count() <= 6, "{names:?}");
    assert!(last_segment(&directory(&root, 0)) > directory(&root, 0).join("00000003.log"));
    let cuts = kill(&mut cluster, 0);
    cluster.load(200, 200);
    restart(&mut cluster, &root, 0, cuts);
    cluster.run_until_idle();
}

#[test]
fn a_torn_tail_is_cut_at_every_length_and_the_replica_catches_up() {
    let root = root();
    let mut cluster = established(&root, 4);
    cluster.load(200, 200);
    for torn in [1, 7, 8, 23, 24, 60, 200] {
        let cuts = kill(&mut cluster, 1);
        let path = last_segment(&directory(&root, 1));
        let end = (written(&path) + 1).next_multiple_of(8);
        let synced = fs::read(&path).unwrap();
        // The next records, if there had been time to write and sync them.
        let (mut log, records) = FileLog::open(&data(&root, 1), 1, SMALL).unwrap();
        records.iter().rev().take(3).for_each(|record| log.append(record).unwrap());
        log.sync().unwrap();
        drop(log);
        let whole = fs::read(&path).unwrap();
        assert!(written(&path) > end + 200, "the three fit in the file");
        let mut bytes = synced;
        bytes[end..end + torn].copy_from_slice(&whole[end..end + torn]);
        fs::write(&path, bytes).unwrap();
        cluster.load(50, 200);
        restart(&mut cluster, &root, 1, cuts);
        cluster.load(50, 200);
        assert!(!cluster.replica(1).joined);
        cluster.run_until_idle();
    }
}

#[test]
fn corruption_of_synced_records_is_reported_wherever_it_is() {
    let root = root();
    let mut cluster = established(&root, 5);
    cluster.load(900, 200);
    let cuts = kill(&mut cluster, 1);
    let path = directory(&root, 1);
    let last = last_segment(&path);
    let first = path.join("00000001.log");
    assert_ne!(first, last, "several files");
    for (file, at) in
        [(&first, 4), (&first, 700), (&first, written(&first) - 5), (&last, 30), (&last, written(&last) / 2)]
    {
        let intact = fs::read(file).unwrap();
        let mut broken = intact.clone();
        broken[at] ^= 0x10;
        fs::write(file, &broken).unwrap();
        match FileLog::open(&data(&root, 1), 1, SMALL) {
            Err(LogError::Corrupt { .. }) => {}
            other => panic!("byte {at} of {}: {:?}", file.display(), other.map(|(_, records)| records.len())),
        }
        // Also when a whole block became zeros.
        broken = intact.clone();
        broken[at & !7..][..24].fill(0);
        fs::write(file, &broken).unwrap();
        assert!(
            matches!(FileLog::open(&data(&root, 1), 1, SMALL), Err(LogError::Corrupt { .. })),
            "zeros at {at}"
        );
        fs::write(file, intact).unwrap();
    }
    fs::rename(&first, path.join("elsewhere")).unwrap();
    let second = path.join("00000002.log");
    if second != last {
        let saved = fs::read(&second).unwrap();
        fs::remove_file(&second).unwrap();
        fs::rename(path.join("elsewhere"), &first).unwrap();
        assert!(
            matches!(FileLog::open(&data(&root, 1), 1, SMALL), Err(LogError::Corrupt { .. })),
            "a missing file"
        );
        fs::write(&second, saved).unwrap();
    } else {
        fs::rename(path.join("elsewhere"), &first).unwrap();
    }
    restart(&mut cluster, &root, 1, cuts);
    cluster.run_until_idle();
}

/// Without a claim that they were durable, bad records at the end look like a torn write and are cut off. The replica
/// then has fewer entries than it acknowledged, and its leader's commit index is beyond its log.
#[test]
fn a_log_that_lost_its_synced_end_is_filled_up_by_a_leader_that_believes_it_whole() {
    for (seed, lost) in (20..26).flat_map(|seed| [200, 400, 900].map(|lost| (seed, lost))) {
        let root = root();
        let mut cluster = established(&root, seed);
        cluster.load(300, 200);
        let leader = cluster.leader().expect("there is one");
        let victim = (leader + 1) % 3;
        cluster.run_until_idle();
        let acknowledged = cluster.replica(victim).orderer.engine_status().last_index;
        let cuts = kill(&mut cluster, victim);
        let path = last_segment(&directory(&root, victim));
        let mut bytes = fs::read(&path).unwrap();
        let end = written(&path);
        bytes[end - lost..=end].fill(0);
        fs::write(&path, bytes).unwrap();
        remove_claims(&root, victim);
        // The leader tries to send it new entries, and takes its silence for a lost message.
        cluster.load(100, 200);
        restart(&mut cluster, &root, victim, cuts);
        cluster.run_until_idle();
        assert!(!cluster.replica(victim).joined);
        assert!(cluster.replica(victim).lacking.is_some_and(|last| last < acknowledged), "it is told of");
        assert_eq!(cluster.leader(), Some(leader), "a new leader would have asked anew how far it is");
    }
}

/// Damage that used to be cut off silently is refused with the remedy, which then works.
#[test]
fn a_log_that_lost_its_synced_end_is_refused_and_the_peers_fill_its_replica() {
    for (seed, lost) in (40..44).flat_map(|seed| [1, 400, 20_000].map(|lost| (seed, lost))) {
        let root = root();
        let mut cluster = established(&root, seed);
        cluster.load(300, 200);
        let victim = (cluster.leader().expect("there is one") + 1) % 3;
        cluster.run_until_idle();
        cluster.run(200);
        kill(&mut cluster, victim);
        let path = last_segment(&directory(&root, victim));
        let mut bytes = fs::read(&path).unwrap();
        let end = written(&path);
        bytes[end.saturating_sub(lost).max(24)..=end].fill(0);
        fs::write(&path, bytes).unwrap();
        cluster.load(100, 200);
        let refused = FileLog::open(&data(&root, victim), victim, SMALL).map(|_| ()).unwrap_err();
        assert!(matches!(refused, LogError::EndLost { .. }) && refused.is_operators(), "{refused}");
        fs::rename(data(&root, victim), root.path().join("away")).unwrap();
        restart(&mut cluster, &root, victim, BTreeMap::new());
        cluster.run_until(5_000, "a new incarnation", |cluster| cluster.replica(victim).joined);
        cluster.run_until_idle();
    }
}

#[test]
fn a_replica_that_lost_its_disk_joins_anew() {
    let root = root();
    let mut cluster = established(&root, 6);
    cluster.load(300, 200);
    kill(&mut cluster, 2);
    fs::remove_dir_all(directory(&root, 2)).unwrap();
    cluster.load(300, 200);
    restart(&mut cluster, &root, 2, BTreeMap::new());
    cluster.run_until(5_000, "a voter again", |cluster| {
        cluster.replica(2).joined && cluster.replica(2).members.is_voter(2)
    });
    // Its new log serves it as the old one did.
    cluster.submit_checkpoint(0);
    cluster.load(200, 200);
    let cuts = kill(&mut cluster, 2);
    restart(&mut cluster, &root, 2, cuts);
    cluster.run_until_idle();
    assert!(!cluster.replica(2).joined);
}

#[test]
fn a_log_that_begins_after_the_state_at_hand_is_given_up() {
    let root = root();
    let mut cluster = established(&root, 7);
    cluster.compacting = true;
    cluster.load(500, 200);
    cluster.submit_checkpoint(0);
    cluster.load(500, 200);
    kill(&mut cluster, 1);
    restart(&mut cluster, &root, 1, BTreeMap::new()); // its states at cuts were lost
    cluster.run_until(5_000, "a new incarnation", |cluster| cluster.replica(1).joined);
    assert!(matches!(cluster.replica(1).dropped, Some((1.., 1.., 0))), "its operator is told");
    cluster.run_until_idle();
}

/// Only the state next to it shows how far it was durable.
#[test]
fn a_log_that_ends_before_the_state_at_hand_is_given_up() {
    let root = root();
    let mut cluster = established(&root, 17);
    cluster.load(300, 200);
    cluster.submit_checkpoint(1);
    cluster.run_until_idle();
    let cuts = kill(&mut cluster, 1);
    let cut = *cuts.last_key_value().unwrap().0;
    let path = last_segment(&directory(&root, 1));
    let mut bytes = fs::read(&path).unwrap();
    let end = written(&path);
    bytes[end - 900..=end].fill(0);
    fs::write(&path, bytes).unwrap();
    remove_claims(&root, 1);
    restart(&mut cluster, &root, 1, cuts);
    cluster.run_until(5_000, "a new incarnation", |cluster| cluster.replica(1).joined);
    let (_, last, state) = cluster.replica(1).dropped.expect("its operator is told");
    assert!(state == cut && last < cut, "{last} and {cut}");
    cluster.run_until_idle();
}

#[test]
fn a_log_that_its_replica_gave_up_is_not_read_again() {
    let root = root();
    let mut cluster = established(&root, 10);
    cluster.load(300, 200);
    cluster.replica(1).orderer.forget().unwrap();
    assert!(!cluster.replica(1).orderer.can_accept());
    let cuts = kill(&mut cluster, 1);
    restart(&mut cluster, &root, 1, cuts); // the states at its checkpoints are still there, and useless
    cluster.run_until(5_000, "a new incarnation", |cluster| cluster.replica(1).joined);
    cluster.run_until_idle();
}

#[test]
fn a_full_disk_stops_its_replica_cleanly_and_loses_nothing() {
    let root = root();
    let tiny = FileOptions { segment_bytes: 32 << 10, limit_bytes: 96 << 10, spares: 0 };
    let stores = (0..3)
        .map(|slot| {
            let options = if slot == 1 { tiny } else { SMALL };
            let (log, records) = FileLog::open(&data(&root, slot), slot, options).unwrap();
            (Box::new(log) as Box<dyn LogStore>, records)
        })
        .collect();
    let mut cluster = Cluster::with_stores(8, stores);
    cluster.run_until(3_000, "a leader", |cluster| cluster.leader().is_some());
    for _ in 0..3_000 {
        cluster.load(1, 200);
        if cluster.replica(1).stopped.is_some() {
            break;
        }
    }
    let reason = cluster.replica(1).stopped.clone().expect("it stops");
    assert!(reason.contains("cannot write the log: no space left"), "{reason}");
    let cuts = kill(&mut cluster, 1);
    cluster.load(500, 200);
    restart(&mut cluster, &root, 1, cuts); // with free space again
    cluster.run_until_idle();
}

#[test]
fn two_processes_cannot_use_one_log() {
    let root = root();
    let held = FileLog::open(root.path(), 0, SMALL).unwrap();
    let error = FileLog::open(root.path(), 0, SMALL).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    drop(held);
    FileLog::open(root.path(), 0, SMALL).unwrap();
}

#[test]
fn without_the_sync_before_the_acknowledgement_a_power_failure_loses_acknowledged_writes() {
    // The negative control: a store that reports a sync that it did not make. The checker has to find the loss.
    struct Liar;
    impl LogStore for Liar {
        fn append(&mut self, _: &Record) -> Result<(), LogError> {
            Ok(())
        }
        fn needs_sync(&self) -> bool {
            false
        }
        fn sync(&mut self) -> Result<(), LogError> {
            Ok(())
        }
        fn release(&mut self, _: u64) -> Result<(), LogError> {
            Ok(())
        }
        fn wipe(&mut self) -> Result<(), LogError> {
            Ok(())
        }
    }
    let stores = (0..3).map(|_| (Box::new(Liar) as Box<dyn LogStore>, vec![])).collect();
    let mut cluster = Cluster::with_stores(9, stores);
    cluster.run_until(3_000, "a leader", |cluster| cluster.leader().is_some());
    cluster.load(300, 200);
    assert!(!cluster.acked.is_empty());
    for slot in 0..3 {
        cluster.kill(slot);
    }
    for slot in 0..3 {
        cluster.start(slot, Box::new(Liar), vec![], BTreeMap::new());
    }
    cluster.run_until(3_000, "a leader", |cluster| cluster.leader().is_some());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cluster.check()));
    assert!(caught.is_err(), "the loss went unnoticed");
}
