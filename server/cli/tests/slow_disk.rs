//! Checkpoints that take long to reach the disk, and disks that fail: no replica ends.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::failover::{end_right, load};
use crate::support::cluster::{Cluster, Wish};

/// Log entries between two checkpoints.
const ENTRIES: u64 = 1_500;
/// Milliseconds that a sync takes longer: several checkpoints fall due meanwhile, or few.
const PAUSES_MS: [u64; 3] = [50, 250, 2_000];

/// The file of a replica's last checkpoint, to see when there is another one.
fn checkpoint(cluster: &Cluster, replica: usize) -> Option<u64> {
    fs::metadata(cluster.data_of(replica).join("state.cut")).ok().map(|file| file.ino())
}

fn slow_down(cluster: &Cluster, replica: usize, pause_ms: u64) {
    let file = cluster.data_of(replica).join("slow-disk");
    fs::write(file, format!("{pause_ms} {ENTRIES}")).expect("a file in the data directory");
}

/// Waits until each replica has written so many checkpoints.
fn wait_for_checkpoints(cluster: &Cluster, count: usize) {
    let mut seen = [None; 3];
    let mut changes = [0; 3];
    cluster.wait_until("every replica has written checkpoints", |cluster| {
        for replica in 0..3 {
            let now = checkpoint(cluster, replica);
            changes[replica] += usize::from(now != seen[replica]);
            seen[replica] = now;
        }
        changes.iter().all(|changes| *changes > count)
    });
}

/// Three replicas whose disks are differently slow, under load: all write one checkpoint after the other, and one that
/// loses its disk meanwhile is filled, and says so. Beside each other the writes ended two of three replicas.
#[test]
fn replicas_with_slow_disks_go_on_and_fill_one_that_lost_its_disk() {
    let cluster = Cluster::up(&Wish { disk: true, ..Wish::default() });
    for (replica, pause_ms) in PAUSES_MS.into_iter().enumerate() {
        slow_down(&cluster, replica, pause_ms);
    }
    let pids: Vec<u32> = (0..3).map(|replica| cluster.pid(replica)).collect();
    let running = load(&cluster).start();
    wait_for_checkpoints(&cluster, 3);
    assert_eq!(pids, (0..3).map(|replica| cluster.pid(replica)).collect::<Vec<_>>(), "nobody has ended");
    let victim = (cluster.leader() + 1) % 3;
    let moved: PathBuf = cluster.data_of(victim).with_extension("moved");
    cluster.signal(victim, Signal::KILL);
    fs::rename(cluster.data_of(victim), &moved).expect("the disk is taken away");
    fs::create_dir(cluster.data_of(victim)).expect("an empty disk");
    slow_down(&cluster, victim, 2_000);
    cluster.wait_until("the replica says how far the state is that it receives", |cluster| {
        let receiving = cluster.status(victim).map(|status| status["receiving"].clone());
        receiving.is_some_and(|copy| copy["total"].as_u64() > Some(0) && copy["received"].as_u64() > Some(0))
    });
    assert_ne!(cluster.pid(victim), pids[victim], "it is another process");
    cluster.wait_serving();
    let status = cluster.status(victim).expect("a status");
    assert_eq!(status["receiving"], Value::Null, "the state is in its place");
    running.must_go_on(2_000, "after the disk was lost");
    for replica in (0..3).filter(|replica| *replica != victim) {
        assert_eq!(cluster.pid(replica), pids[replica], "replica {} has ended", replica + 1);
    }
    end_right(cluster, running);
}

/// A checkpoint that cannot be written costs nothing but a longer log, and is written when the obstacle is gone.
#[test]
fn a_checkpoint_that_cannot_be_written_ends_nobody() {
    let cluster = Cluster::up(&Wish { disk: true, ..Wish::default() });
    let obstacle = cluster.data_of(1).join("state.cut.new");
    fs::create_dir(&obstacle).expect("a directory in its place");
    (0..3).for_each(|replica| slow_down(&cluster, replica, 0));
    let pids: Vec<u32> = (0..3).map(|replica| cluster.pid(replica)).collect();
    let running = load(&cluster).start();
    cluster.wait_until("the others have checkpoints, and replica 2 says that it has none", |cluster| {
        let reported = cluster.said().iter().any(|line| line.contains("could not be written"));
        reported && checkpoint(cluster, 0).is_some() && checkpoint(cluster, 2).is_some()
    });
    running.must_go_on(2_000, "without a checkpoint");
    assert_eq!(checkpoint(&cluster, 1), None);
    fs::remove_dir(&obstacle).expect("the obstacle is taken away");
    cluster.wait_until("replica 2 has a checkpoint too", |cluster| checkpoint(cluster, 1).is_some());
    assert_eq!(pids, (0..3).map(|replica| cluster.pid(replica)).collect::<Vec<_>>(), "nobody has ended");
    end_right(cluster, running);
}

/// Few entries, but large ones: the log is shortened by its bytes too, since all of it is in memory. First the whole
/// state is written, then what has changed.
#[test]
fn a_log_of_large_entries_is_shortened_in_time() {
    const VALUE: usize = 500_000;
    const ITEMS: u64 = 60;
    let cluster = Cluster::up(&Wish { disk: true, ..Wish::default() });
    let status = cluster.status(0).expect("a status");
    let half = status["buffers"]["limit"].as_u64().expect("the bound of buffers") / 2;
    let mut client = TcpStream::connect(cluster.clients()[0]).expect("a client's connection");
    let value = "v".repeat(VALUE);
    let mut exceed_half = |items: u64| {
        for number in 0..=half / VALUE as u64 {
            write!(client, "set large-{} 0 0 {VALUE}\r\n{value}\r\n", number % items)
                .expect("a request is sent");
            let mut answer = [0; 8];
            client.read_exact(&mut answer).expect("an answer");
            assert_eq!(&answer, b"STORED\r\n");
        }
        cluster.wait_until("no replica has more than half of its buffers of the log in memory", |cluster| {
            let log = |replica| cluster.status(replica).and_then(|status| status["buffers"]["log"].as_u64());
            (0..3).all(|replica| log(replica).is_some_and(|log| log <= half))
        });
        (0..3).map(|replica| checkpoint(&cluster, replica)).collect::<Vec<_>>()
    };
    let whole = exceed_half(ITEMS);
    assert!(whole.iter().all(Option::is_some), "a checkpoint was the reason");
    for file in ["state.cut.1", "state.cut.2"] {
        assert_eq!(exceed_half(ITEMS / 6), whole, "the whole state is not written again");
        assert!(
            (0..3).all(|replica| cluster.data_of(replica).join(file).exists()),
            "what has changed is: {file}"
        );
    }
    cluster.assert_equal_state();
    cluster.finish();
}
