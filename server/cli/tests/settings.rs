//! Settings of a group that are changed while it serves: at one position, at all replicas, without a restart; and what
//! a replica's own file says afterwards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::failover::{end_right, kill_while, load};
use crate::support::cluster::{Cluster, PATIENCE, Wish};
use memcached_client::{Client, Failure};
use rustix::process::Signal;
use serde_json::{Value, json};
use wire::SplitMix64;

/// Keys, and the bytes of each value: more than the memory that a group begins with.
const KEYS: u64 = 20_000;
const BYTES: usize = 2_000;
/// Memory that a group begins with, in MiB.
const MEMORY_MB: u64 = 16;
/// Bytes of a value that the usual item limit refuses.
const LONG: usize = 3 << 19;

fn client(cluster: &Cluster, replica: usize) -> Client {
    Client::connect(cluster.clients()[replica], PATIENCE).expect("the replica takes clients")
}

fn value(key: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(key);
    (0..BYTES).map(|_| b'a' + (random.next_u64() % 26) as u8).collect()
}

fn set(cluster: &Cluster, name: &str, value: &str) -> (i32, String) {
    cluster.command(&["group", "set", name, value])
}

/// The setting is changed; returns the position.
fn must_set(cluster: &Cluster, name: &str, value: u64) -> u64 {
    let (code, reported) = set(cluster, name, &value.to_string());
    assert!(code == 0 && reported.contains(&format!("{name} is {value} from position ")), "{reported}");
    settings(cluster)[name].1
}

/// Values that are numbers, and positions.
fn settings(cluster: &Cluster) -> BTreeMap<String, (u64, u64)> {
    let (code, reported) = cluster.command(&["group", "get", "--json"]);
    assert_eq!(code, 0, "{reported}\n{}", cluster.seen());
    let parse = |line: &str| {
        let setting: Value = serde_json::from_str(line).expect("JSON");
        let (name, set_at) = (setting["name"].as_str().expect("a name"), setting["set_at"].as_u64());
        let value = setting["value"].as_str().expect("a text").parse().ok()?;
        Some((name.to_owned(), (value, set_at.expect("a position"))))
    };
    reported.lines().filter_map(parse).collect()
}

/// What each replica says of its settings by itself.
fn assert_equal_settings(cluster: &Cluster, expected: &BTreeMap<String, (u64, u64)>) {
    for replica in 0..cluster.clients().len() {
        let answer = cluster.ask(replica, &json!({"cmd": "settings"}));
        assert_eq!(answer["replica"], replica + 1, "{answer}");
        for (name, (value, set_at)) in expected {
            let expected = json!({"name": name, "value": value.to_string(), "set_at": set_at});
            let listed = answer["settings"].as_array().expect("a list");
            assert!(listed.contains(&expected), "replica {}: {answer}, not {expected}", replica + 1);
        }
    }
}

/// `stats`: the memory limit, and what is used.
fn memory(cluster: &Cluster, replica: usize) -> (u64, u64) {
    let mut client = memcached_stats(cluster, replica);
    let mut of = |name: &str| client.remove(name).expect("a line").parse().expect("a number");
    (of("limit_maxbytes"), of("bytes"))
}

fn memcached_stats(cluster: &Cluster, replica: usize) -> BTreeMap<String, String> {
    use std::io::{BufRead, BufReader, Write};
    let mut socket = std::net::TcpStream::connect(cluster.clients()[replica]).expect("connected");
    socket.write_all(b"stats\r\n").expect("sent");
    let lines = BufReader::new(socket).lines().map(|line| line.expect("a line"));
    let pair = |line: String| {
        let mut words = line.splitn(3, ' ').skip(1).map(str::to_owned);
        Some((words.next()?, words.next()?))
    };
    lines.take_while(|line| line != "END").filter_map(pair).collect()
}

/// Clients of all replicas that store and read keys, of which many are evicted: what is there is right.
struct Evicting {
    ends: AtomicBool,
    stored: AtomicU64,
    found: AtomicU64,
}

impl Evicting {
    fn during(cluster: &Cluster, work: impl FnOnce(&Evicting)) {
        let evicting =
            Evicting { ends: AtomicBool::new(false), stored: AtomicU64::new(0), found: AtomicU64::new(0) };
        std::thread::scope(|scope| {
            for replica in 0..cluster.clients().len() {
                let (evicting, mut client) = (&evicting, client(cluster, replica));
                scope.spawn(move || evicting.go_on(replica, &mut client));
            }
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&evicting)));
            evicting.ends.store(true, Ordering::SeqCst);
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        assert!(evicting.found.load(Ordering::SeqCst) > 1_000, "the reads found something");
    }

    fn go_on(&self, replica: usize, client: &mut Client) {
        let mut random = SplitMix64::new(replica as u64);
        let mut draw = || random.next_u64() % KEYS;
        while !self.ends.load(Ordering::SeqCst) {
            let keys: Vec<u64> = (0..50).map(|_| draw()).collect();
            keys.iter().for_each(|key| client.queue_set(&format!("key{key}"), 0, &value(*key)));
            client.flush().expect("sent");
            keys.iter().for_each(|_| client.take_stored().expect("stored"));
            self.stored.fetch_add(50, Ordering::SeqCst);
            let keys: Vec<u64> = (0..50).map(|_| draw()).collect();
            let names: Vec<String> = keys.iter().map(|key| format!("key{key}")).collect();
            for (key, found) in keys.iter().zip(client.gets(&names).expect("an answer")) {
                if let Some(found) = found {
                    assert_eq!(found.bytes, value(*key), "key{key} at replica {}", replica + 1);
                    self.found.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    }

    /// Waits until all replicas use so much memory, under this limit.
    fn until_used(&self, cluster: &Cluster, limit_mb: u64, used: std::ops::Range<u64>) {
        let what = format!("all replicas use {used:?} bytes under a limit of {limit_mb} MiB");
        cluster.wait_until(&what, |cluster| {
            (0..cluster.clients().len()).all(|replica| {
                let (limit, bytes) = memory(cluster, replica);
                limit == limit_mb << 20 && used.contains(&bytes)
            })
        });
    }
}

fn assert_unharmed(cluster: &Cluster, pids: &[u32]) {
    cluster.assert_equal_state();
    for (replica, pid) in pids.iter().enumerate() {
        assert_eq!(cluster.pid(replica), *pid, "replica {} was restarted\n{}", replica + 1, cluster.seen());
        assert_eq!(cluster.evidence(replica, 0), Vec::<Value>::new(), "replica {}", replica + 1);
    }
}

/// The memory limit goes up and down under eviction, in each kind of group.
#[test]
fn memory_is_raised_and_lowered_under_load_without_a_restart() {
    let modes = [("RDGX", false, 2), ("RDGX", true, 1), ("R0GV", false, 2)];
    for (mode, disk, workers) in modes {
        let cluster = Cluster::up(&Wish { mode, disk, workers, memory_mb: MEMORY_MB, ..Wish::default() });
        let pids: Vec<u32> = (0..3).map(|replica| cluster.pid(replica)).collect();
        assert_eq!(settings(&cluster)["memory_limit_mb"], (MEMORY_MB, 0), "as it was founded");
        Evicting::during(&cluster, |evicting| {
            evicting.until_used(&cluster, MEMORY_MB, 12 << 20..16 << 20 | 1);
            let raised = must_set(&cluster, "memory_limit_mb", 64);
            evicting.until_used(&cluster, 64, 32 << 20..64 << 20);
            let lowered = must_set(&cluster, "memory_limit_mb", 8);
            assert!(0 < raised && raised < lowered, "{raised} {lowered}");
            evicting.until_used(&cluster, 8, 4 << 20..8 << 20 | 1);
        });
        assert_equal_settings(&cluster, &settings(&cluster));
        assert_unharmed(&cluster, &pids);
        cluster.finish();
    }
}

/// Whether a value of the usual limit's excess is stored, by each replica.
fn takes_long_items(cluster: &Cluster) -> Vec<bool> {
    let store = |replica| match client(cluster, replica).set("long", 0, &vec![b'x'; LONG]) {
        Ok(()) => true,
        Err(Failure::Refused(line)) => {
            assert_eq!(line, "SERVER_ERROR object too large for cache");
            false
        }
        Err(other) => panic!("{other}"),
    };
    (0..3).map(store).collect()
}

#[test]
fn the_longest_item_is_one_thing_at_all_replicas_and_wrong_values_are_refused() {
    for mode in ["RDGX", "R0GV"] {
        let cluster = Cluster::up(&Wish { mode, memory_mb: MEMORY_MB, ..Wish::default() });
        let pids: Vec<u32> = (0..3).map(|replica| cluster.pid(replica)).collect();
        assert_eq!(takes_long_items(&cluster), [false; 3]);
        for (name, value, said) in [
            ("memory_limit_mb", "0", "from 1 to 1048576 MiB"),
            ("memory_limit_mb", "-5", "from 1 to 1048576 MiB"),
            ("memory_limit_mb", "much", "`much` is no whole number"),
            ("memory_limit_mb", "1048577", "from 1 to 1048576 MiB"),
            ("memory_limit_mb", "1", "Use at least 8 MiB"),
            ("item_size_max", "4095", "from 4096 to 3145728 bytes"),
            ("item_size_max", "3145729", "from 4096 to 3145728 bytes"),
            ("item_size_max", "3145728", "need at least 24 MiB for such items, and memory_limit_mb is 16"),
            ("memory_limit", "64", "there are memory_limit_mb and item_size_max"),
            (&"x".repeat(65), "1", "at most 64 bytes"),
            ("item_size_max", &"1".repeat(65), "at most 64"),
        ] {
            let args = ["group", "set", name, value];
            let args =
                [&args[..2], if value.starts_with('-') { &["--"][..] } else { &[] }, &args[2..]].concat();
            let (code, reported) = cluster.command(&args);
            assert!(
                code == 1 && reported.contains(said) && reported.contains("Nothing was changed"),
                "{reported}"
            );
        }
        assert!(settings(&cluster).values().all(|(_, set_at)| *set_at == 0), "nothing was changed");
        must_set(&cluster, "item_size_max", 2 << 20);
        assert_eq!(takes_long_items(&cluster), [true; 3]);
        must_set(&cluster, "item_size_max", 4 << 10);
        let there = client(&cluster, 1).get("long").expect("an answer").expect("it is there");
        assert_eq!(there.bytes.len(), LONG, "what is stored stays");
        assert_eq!(takes_long_items(&cluster), [false; 3]);
        assert!(client(&cluster, 2).get("long").expect("an answer").is_none(), "no client reads stale data");
        let (code, reported) = set(&cluster, "memory_limit_mb", "1048576");
        assert!(
            code == 0 && reported.contains("warning: memory_limit_mb: 1048576 MiB are more than"),
            "{reported}"
        );
        assert_equal_settings(&cluster, &settings(&cluster));
        let (code, reported) = cluster.command(&["group", "get", "memory"]);
        assert!(code == 2 && reported.contains("there are memory_limit_mb, item_size_max"), "{reported}");
        assert_unharmed(&cluster, &pids);
        cluster.finish();
    }
}

/// Kills replicas, and changes their files before they start again.
fn kill_with_other_file(cluster: &Cluster, victims: std::ops::Range<usize>, memory_mb: u64) {
    for replica in victims.clone() {
        let file = cluster.config_of(replica);
        let text = std::fs::read_to_string(&file).expect("the file");
        let is_memory = |line: &&str| line.starts_with("memory_limit_mb = ");
        let line = text.lines().find(is_memory).expect("a line");
        std::fs::write(&file, text.replace(line, &format!("memory_limit_mb = {memory_mb}")))
            .expect("written");
    }
    let before: Vec<u32> = victims.clone().map(|replica| cluster.pid(replica)).collect();
    victims.clone().for_each(|replica| cluster.signal(replica, Signal::KILL));
    cluster.wait_until("`up` has started them again", |cluster| {
        victims.clone().zip(&before).all(|(replica, before)| cluster.pid(replica) != *before)
    });
    cluster.wait_serving();
}

fn wait_said(cluster: &Cluster, replica: usize, text: &str) {
    cluster.wait_until(&format!("replica {} says: {text}", replica + 1), |cluster| {
        cluster.lines(replica).iter().any(|line| line.contains(text))
    });
}

/// A replica whose file says something else joins, with another number of shards by its file; and so do all replicas at
/// once, which execute their logs from the beginning.
#[test]
fn the_value_of_the_group_counts_whatever_a_file_says_later() {
    for (mode, disk) in [("RDGX", false), ("RDGX", true), ("R0GV", false)] {
        let cluster = Cluster::up(&Wish { mode, disk, memory_mb: MEMORY_MB, ..Wish::default() });
        (0..100)
            .for_each(|key| client(&cluster, 0).set(&format!("key{key}"), 0, &value(key)).expect("stored"));
        kill_with_other_file(&cluster, 1..2, 128);
        let founded = "128 in this replica's configuration, and 16 in the group (since its founding)";
        wait_said(&cluster, 1, &format!("memory_limit_mb is {founded}"));
        let position = must_set(&cluster, "memory_limit_mb", 48);
        kill_with_other_file(&cluster, 2..3, 256);
        let set = format!(
            "memory_limit_mb is 256 in this replica's configuration, and 48 in the group (set at position {position})"
        );
        wait_said(&cluster, 2, &set);
        if disk {
            kill_with_other_file(&cluster, 0..3, 512);
            (0..3)
                .for_each(|replica| wait_said(&cluster, replica, "memory_limit_mb is 512 in this replica's"));
        }
        let expected = BTreeMap::from([
            ("memory_limit_mb".to_owned(), (48, position)),
            ("item_size_max".to_owned(), (1 << 20, 0)),
        ]);
        assert_equal_settings(&cluster, &expected);
        for replica in 0..3 {
            let found = client(&cluster, replica).get("key7").expect("an answer").expect("it is there");
            assert_eq!(found.bytes, value(7));
            assert_eq!(cluster.evidence(replica, 0), Vec::<Value>::new());
        }
        cluster.assert_equal_state();
        cluster.finish();
    }
}

fn take_backup(cluster: &Cluster, folder: &Path) -> PathBuf {
    let file = folder.join("state.backup");
    let (code, reported) = cluster.command(&["backup", "--to", file.to_str().expect("a path")]);
    assert_eq!(code, 0, "{reported}");
    file
}

/// The backup has the settings, and another number of shards than the configuration of the new group would make.
#[test]
fn a_group_that_begins_with_a_backup_has_its_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = Cluster::up(&Wish { memory_mb: MEMORY_MB, ..Wish::default() });
    client(&cluster, 0).set("key", 0, b"value").expect("stored");
    must_set(&cluster, "item_size_max", 64 << 10);
    must_set(&cluster, "memory_limit_mb", 200);
    let (before, file) = (settings(&cluster), take_backup(&cluster, folder.path()));
    cluster.finish();
    for disk in [false, true] {
        let restore = Some(file.clone());
        let cluster = Cluster::up(&Wish { memory_mb: 1024, disk, restore, ..Wish::default() });
        assert_equal_settings(&cluster, &before);
        assert_eq!(client(&cluster, 2).get("key").expect("an answer").expect("it is there").bytes, b"value");
        for replica in 0..3 {
            wait_said(
                &cluster,
                replica,
                "memory_limit_mb is 1024 in this replica's configuration, and 200 in",
            );
        }
        cluster.assert_equal_state();
        cluster.finish();
    }
}

/// Two of three are stopped: the command ends all the same, and says what may come of it.
#[test]
fn a_group_that_orders_nothing_says_that_the_change_may_come_later() {
    let cluster = Cluster::up(&Wish { memory_mb: MEMORY_MB, ..Wish::default() });
    let others: Vec<usize> = (0..3).filter(|replica| *replica != cluster.leader()).collect();
    others.iter().for_each(|replica| cluster.signal(*replica, Signal::STOP));
    let (code, reported) = set(&cluster, "memory_limit_mb", "32");
    assert!(code == 1 && reported.contains("The change may still take effect"), "{reported}");
    others.iter().for_each(|replica| cluster.signal(*replica, Signal::CONT));
    cluster.wait_serving();
    cluster.wait_until("the change has taken effect", |cluster| settings(cluster)["memory_limit_mb"].0 == 32);
    std::thread::sleep(Duration::from_millis(100));
    assert_equal_settings(&cluster, &settings(&cluster));
    cluster.assert_equal_state();
    cluster.finish();
}

/// Reads without a batch are switched on and off under load: what each client reads is right throughout.
#[test]
fn checked_reads_are_switched_for_the_whole_group_under_load() {
    switch_reads("RDGX");
}

/// The same where batches are verified after they have run.
#[test]
fn reads_are_switched_for_the_whole_group_under_load() {
    switch_reads("R0GV");
}

fn switch_reads(mode: &'static str) {
    let cluster = Cluster::up(&Wish { mode, ..Wish::default() });
    let pids: Vec<u32> = (0..3).map(|replica| cluster.pid(replica)).collect();
    let local_reads = |cluster: &Cluster| -> Vec<u64> {
        let count = |replica| cluster.status(replica)?["reads"]["local"].as_u64();
        (0..3).map(|replica| count(replica).unwrap_or(0)).collect()
    };
    let running = load(&cluster).start();
    running.must_go_on(500, "while all reads take a batch");
    assert_eq!(local_reads(&cluster), [0; 3]);
    let (code, reported) = set(&cluster, "reads", "local");
    assert!(code == 0 && reported.contains("reads is local from position "), "{reported}");
    cluster.wait_until("each replica answers reads itself", |cluster| {
        local_reads(cluster).iter().all(|count| *count > 100)
    });
    running.must_go_on(500, "while reads take none");
    let (code, reported) = set(&cluster, "reads", "batch");
    assert!(code == 0 && reported.contains("reads is batch from position "), "{reported}");
    cluster.assert_equal_state();
    running.must_go_on(100, "until all replicas have it");
    let before = local_reads(&cluster);
    running.must_go_on(500, "while all reads take a batch again");
    assert_eq!(local_reads(&cluster), before);
    // A replica that was away learns what the group has; its file does not know.
    let (code, _) = set(&cluster, "reads", "local");
    assert_eq!(code, 0);
    kill_while(&cluster, 1, || running.must_go_on(100, "while a replica is down"));
    wait_said(
        &cluster,
        1,
        "reads is batch in this replica's configuration, and local in the group (set at position",
    );
    // The clients of the load have gone elsewhere.
    let mut again = client(&cluster, 1);
    cluster.wait_until("it answers reads itself", |cluster| {
        again.get("key").expect("an answer");
        local_reads(cluster)[1] > 10
    });
    assert_eq!(cluster.pid(0), pids[0], "only the one that was killed was restarted");
    for (value, said) in [("some", "`some` is none of batch, local"), ("", "none of batch, local")] {
        let (code, reported) = set(&cluster, "reads", value);
        assert!(code == 1 && reported.contains(said), "{reported}");
    }
    end_right(cluster, running);
}

/// In a group that is founded with reads without a batch, that is its setting; and where there is no such thing, the
/// command says so.
#[test]
fn a_group_has_the_reads_of_its_founding() {
    let cluster = Cluster::up(&Wish { mode: "R0GV", reads: "local", ..Wish::default() });
    cluster.wait_until("the founding is ordered", |cluster| {
        let (_, reported) = cluster.command(&["group", "get", "reads"]);
        reported.contains("local") && reported.contains("since the founding")
    });
    kill_while(&cluster, 2, || {});
    assert!(cluster.lines(2).iter().all(|line| !line.contains("in this replica's configuration, and")));
    cluster.assert_equal_state();
    cluster.finish();
    for (mode, replicas, said) in [
        ("RD00", 3, "a setting of modes with X and G, or with V, and this group has mode RD00"),
        ("R0GV", 2, "two replicas cannot read without a batch"),
    ] {
        let cluster = Cluster::up(&Wish { mode, replicas, ..Wish::default() });
        let (code, reported) = set(&cluster, "reads", "local");
        assert!(code == 1 && reported.contains(said), "{reported}");
        cluster.finish();
    }
}
