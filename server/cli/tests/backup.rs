//! Backups of real groups: taken under load, everything destroyed, and a group that begins with the backup.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::failover::{end_right, kill_while, load};
use crate::support::cluster::{Cluster, PATIENCE, Wish};
use memcached_client::Client;
use memcached_client::load::CheckedLoad;
use rustix::process::Signal;
use serde_json::{Value, json};
use wire::SplitMix64;

/// Keys whose values are known, and the bytes of each.
const KEYS: u64 = 3_000;
const BYTES: usize = 2_000;
const AT_ONCE: u64 = 100;
const COUNTERS: usize = 4;

fn client(cluster: &Cluster, replica: usize) -> Client {
    Client::connect(cluster.clients()[replica], PATIENCE).expect("the replica takes clients")
}

fn value(key: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(key);
    (0..BYTES).map(|_| b'a' + (random.next_u64() % 26) as u8).collect()
}

/// The keys, so many at a time: one request after the other takes long on a busy machine.
fn keys() -> impl Iterator<Item = Vec<(String, Vec<u8>)>> {
    let named = |key| (format!("key{key}"), value(key));
    (0..KEYS / AT_ONCE).map(move |chunk| (chunk * AT_ONCE..(chunk + 1) * AT_ONCE).map(named).collect())
}

fn fill(cluster: &Cluster) {
    let mut client = client(cluster, 0);
    for chunk in keys() {
        chunk.iter().for_each(|(key, value)| client.queue_set(key, 7, value));
        client.flush().expect("sent");
        chunk.iter().for_each(|_| client.take_stored().expect("stored"));
    }
}

fn assert_filled(cluster: &Cluster, replica: usize) {
    let mut client = client(cluster, replica);
    for chunk in keys() {
        let names: Vec<String> = chunk.iter().map(|(key, _)| key.clone()).collect();
        let found = client.gets(&names).expect("an answer");
        for ((key, value), found) in chunk.into_iter().zip(found) {
            let found = found.expect("it is there");
            assert!(found.bytes == value && found.flags == 7, "{key} at replica {}", replica + 1);
        }
    }
}

/// Takes a backup by the command; returns what it says of it.
fn take(cluster: &Cluster, to: &Path, more: &[&str]) -> Value {
    let to = to.to_str().expect("a path");
    let (code, reported) = cluster.command(&[&["backup", "--json", "--to", to], more].concat());
    assert_eq!(code, 0, "{reported}\n{}", cluster.seen());
    let line = reported.lines().find(|line| line.starts_with('{')).expect("JSON");
    serde_json::from_str(line).expect("JSON")
}

fn verify(cluster: &Cluster, file: &Path) -> (i32, String) {
    cluster.command(&["backup", "verify", file.to_str().expect("a path")])
}

/// Counters that clients increment: what was acknowledged last, of each.
struct Counting {
    ends: AtomicBool,
    acknowledged: [AtomicU64; COUNTERS],
}

impl Counting {
    fn now(&self) -> Vec<u64> {
        self.acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }

    /// Runs `work` while clients count; returns what it returns, and what was acknowledged before and after it.
    fn during<T>(cluster: &Cluster, work: impl FnOnce() -> T) -> (T, Vec<u64>, Vec<u64>) {
        let acknowledged = [const { AtomicU64::new(0) }; COUNTERS];
        let counting = Counting { ends: AtomicBool::new(false), acknowledged };
        std::thread::scope(|scope| {
            for (number, acknowledged) in counting.acknowledged.iter().enumerate() {
                let (ends, mut client) = (&counting.ends, client(cluster, number % 3));
                let key = format!("tally{number}");
                client.set(&key, 0, b"0").expect("stored");
                scope.spawn(move || {
                    while !ends.load(Ordering::SeqCst) {
                        let counted = client.incr(&key, 1).expect("an answer").expect("it is there");
                        assert_eq!(counted, 1 + acknowledged.load(Ordering::SeqCst), "counted once");
                        acknowledged.store(counted, Ordering::SeqCst);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(500));
            let before = counting.now();
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            counting.ends.store(true, Ordering::SeqCst);
            let done = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (done, before, counting.now())
        })
    }
}

/// A backup of a group under load, which is destroyed then.
fn backup_under_load(wish: &Wish, file: &Path) -> (Value, Vec<u64>, Vec<u64>) {
    let cluster = Cluster::up(wish);
    fill(&cluster);
    let running = load(&cluster).start();
    running.must_go_on(200, "before the backup");
    let (taken, before, after) = Counting::during(&cluster, || take(&cluster, file, &[]));
    running.must_go_on(200, "after the backup");
    let (code, reported) = verify(&cluster, file);
    assert!(code == 0 && reported.contains("intact"), "{reported}");
    assert!((0..3).all(|replica| cluster.evidence(replica, 0).is_empty()), "a backup is no fault");
    end_right(cluster, running);
    (taken, before, after)
}

#[test]
fn a_destroyed_group_begins_again_with_its_backup() {
    for (disk, restored_disk, workers) in [(false, false, 1), (true, true, 2), (false, true, 1)] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("state.backup");
        let wish = Wish { disk, workers, ..Wish::default() };
        let (taken, before, after) = backup_under_load(&wish, &file);
        assert_eq!((&taken["agreed_by"], &taken["replicas"]), (&json!(2), &json!(3)));
        let wish = Wish { disk: restored_disk, workers, restore: Some(file.clone()), ..Wish::default() };
        let cluster = Cluster::up(&wish);
        cluster.assert_equal_state();
        (0..3).for_each(|replica| assert_filled(&cluster, replica));
        for number in 0..COUNTERS {
            let counted = client(&cluster, number % 3).incr(&format!("tally{number}"), 0);
            let counted = counted.expect("an answer").expect("it is there");
            let range = before[number]..=after[number] + 1;
            assert!(range.contains(&counted), "counter {number}: {counted}, and acknowledged were {range:?}");
        }
        // The order goes on where it was, in time as well.
        let again = take(&cluster, &folder.path().join("again"), &[]);
        for name in ["position", "batch", "ordered_time_us"] {
            assert!(again[name].as_u64() > taken[name].as_u64(), "{name}: {again} after {taken}");
        }
        // The group is whole: a replica that lost its memory is filled, and all may end if there are logs.
        let running = CheckedLoad { prefix: "later-".into(), ..load(&cluster) }.start();
        running.must_go_on(500, "in the group that began with a backup");
        kill_while(&cluster, 1, || running.must_go_on(300, "while a replica is down"));
        end_of_all(&cluster, restored_disk);
        running.must_go_on(300, "at the end");
        assert_filled(&cluster, 1);
        end_right(cluster, running);
    }
}

/// With logs on disk, all processes end at once and start again.
fn end_of_all(cluster: &Cluster, is_on_disk: bool) {
    if is_on_disk {
        let before: Vec<u32> = (0..3).map(|replica| cluster.pid(replica)).collect();
        (0..3).for_each(|replica| cluster.signal(replica, Signal::KILL));
        cluster.wait_until("`up` has started all again", |cluster| {
            (0..3).all(|replica| cluster.pid(replica) != before[replica])
        });
        cluster.wait_serving();
    }
}

/// A piece that is wrong before it is digested, and one that is wrong after: the first is outvoted, the second does not
/// fit what was agreed on.
#[test]
fn what_one_replica_packs_or_sends_wrongly_is_not_in_the_backup() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = Cluster::up(&Wish::default());
    fill(&cluster);
    let mut files = Vec::new();
    for (number, kind) in ["part", "piece"].iter().enumerate() {
        let file = folder.path().join(kind);
        let victim = number % 3;
        let injected = cluster.ask(victim, &json!({"cmd": "inject", "kind": kind, "seed": number}));
        assert_eq!(injected["done"], true, "{injected}");
        // On a busy machine the others may have vouched for all before this one sends anything.
        cluster.wait_until("the fault was placed", |cluster| {
            let _ = std::fs::remove_file(&file);
            take(cluster, &file, &[]);
            cluster.status(victim).is_some_and(|status| status["armed"] == 0)
        });
        files.push(file);
    }
    cluster.finish();
    for file in files {
        let cluster = Cluster::up(&Wish { restore: Some(file), ..Wish::default() });
        (0..3).for_each(|replica| assert_filled(&cluster, replica));
        cluster.assert_equal_state();
        cluster.finish();
    }
}

#[test]
fn fewer_than_f_plus_one_replicas_vouch_for_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = Cluster::up(&Wish::default());
    let file = folder.path().join("state.backup");
    let to = file.to_str().expect("a path");
    let (one, two) = (cluster.admin_of(0), cluster.admin_of(1));
    for admins in [vec!["--admin", &one], vec!["--admin", &one, "--admin", &one]] {
        let (code, reported) = cluster.command(&[&["backup", "--to", to][..], &admins].concat());
        assert!(code == 1 && reported.contains("2 of 3 replicas have to vouch"), "{reported}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "nothing is left");
    }
    let two = ["--admin", &one, "--admin", &two];
    take(&cluster, &file, &two);
    let good = std::fs::read(&file).expect("the backup");
    let (code, reported) = cluster.command(&["backup", "--to", to]);
    assert!(code == 2 && reported.contains("is there already") && reported.contains("--force"), "{reported}");
    assert_eq!(std::fs::read(&file).expect("the backup"), good);
    take(&cluster, &file, &["--force"]);
    assert_ne!(std::fs::read(&file).expect("the backup"), good);
    flips_are_found(&cluster, &good, &folder.path().join("bad"));
    cluster.finish();
}

/// Of a real backup: random flips, cuts and additions, by the library; and some by the command.
fn flips_are_found(cluster: &Cluster, good: &[u8], path: &Path) {
    let is_intact = |bytes: &[u8]| {
        std::fs::write(path, bytes).expect("written");
        crosscheck::backup::verify(path).is_ok()
    };
    assert!(is_intact(good));
    let mut random = SplitMix64::new(3);
    let mut bad = good.to_vec();
    for round in 0..3_000 {
        let bit = random.next_u64() as usize % (good.len() * 8);
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_intact(&bad), "bit {bit}");
        if round % 1_000 == 0 {
            let (code, reported) = verify(cluster, path);
            assert_eq!(code, 1, "{reported}");
        }
        bad[bit / 8] = good[bit / 8];
    }
    for _ in 0..200 {
        let cut = random.next_u64() as usize % good.len();
        assert!(!is_intact(&good[..cut]), "{cut} of {} bytes", good.len());
    }
    assert!(!is_intact(&[good, b"\n"].concat()));
}

/// A damaged file is refused before anything starts, and so is one that is not there.
#[test]
fn no_group_begins_with_a_damaged_backup() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("state.backup");
    let cluster = Cluster::up(&Wish::default());
    take(&cluster, &file, &[]);
    let mut bytes = std::fs::read(&file).expect("the backup");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = folder.path().join("damaged");
    std::fs::write(&damaged, bytes).expect("written");
    let up = |more: &[&str], file: &PathBuf| {
        let restore = ["up", "--port", "0", "--restore", file.to_str().expect("a path")];
        cluster.command(&[&restore[..], more].concat())
    };
    let (code, reported) = up(&[], &damaged);
    assert!(code == 2 && reported.contains("is corrupt at byte"), "{reported}");
    let (code, reported) = up(&[], &folder.path().join("absent"));
    assert!(code == 2 && reported.contains("absent"), "{reported}");
    let (code, reported) = up(&["--mode", "RDG0"], &file);
    assert!(code != 0 && reported.contains("start the replicas in mode RDGX"), "{reported}");
    cluster.finish();
}

/// One replica vouches for itself.
#[test]
fn a_single_replica_has_backups() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("state.backup");
    let wish = Wish { replicas: 1, workers: 1, ..Wish::default() };
    let cluster = Cluster::up(&wish);
    fill(&cluster);
    let taken = take(&cluster, &file, &[]);
    assert_eq!(taken["agreed_by"], 1, "{taken}");
    assert!(taken["bytes"].as_u64() > Some(KEYS * BYTES as u64), "{taken}");
    cluster.finish();
    let cluster = Cluster::up(&Wish { restore: Some(file), ..wish });
    assert_filled(&cluster, 0);
    cluster.finish();
}

#[test]
fn modes_without_backups_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("state.backup");
    let cluster = Cluster::up(&Wish { mode: "R0GV", ..Wish::default() });
    let (code, reported) = cluster.command(&["backup", "--to", file.to_str().expect("a path")]);
    assert!(code == 1 && reported.contains("verified mode have no backups yet"), "{reported}");
    assert!(!file.exists());
    cluster.finish();
}
