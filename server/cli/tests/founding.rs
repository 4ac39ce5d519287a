//! More memories are lost than a group can lose: no replica begins a new group by itself, all report what they wait
//! for, and an operator has a command to decide. (The review's 2.6.)

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use crate::support::cluster::{Cluster, PATIENCE, Wish};
use rustix::process::Signal;

/// Sends text, and reads `lines` lines of the answer.
fn say(address: SocketAddr, text: &str, lines: usize) -> Vec<String> {
    let mut stream = TcpStream::connect(address).expect("the replica takes clients");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(text.as_bytes()).expect("sent");
    BufReader::new(stream).lines().take(lines).map(|line| line.expect("a line")).collect()
}

fn stored(cluster: &Cluster, replica: usize) -> Vec<String> {
    say(cluster.clients()[replica], "get kept\r\n", 1)
}

/// Ends processes together, and waits until others have replaced them.
fn lose(cluster: &Cluster, replicas: &[usize]) {
    let before: Vec<u32> = replicas.iter().map(|&replica| cluster.pid(replica)).collect();
    replicas.iter().for_each(|&replica| cluster.signal(replica, Signal::KILL));
    cluster.wait_until("`up` has started them again", |cluster| {
        replicas.iter().zip(&before).all(|(&replica, before)| {
            cluster.status(replica).is_some_and(|status| status["pid"].as_u64() != Some(u64::from(*before)))
        })
    });
}

/// Waits until a replica reports, in `status` and on its stderr, that it waits, with these words.
fn waits(cluster: &Cluster, replica: usize, words: &str) {
    cluster.wait_until(&format!("replica {} says: {words}", replica + 1), |cluster| {
        let reported =
            cluster.status(replica).and_then(|status| Some(status["waits_for"].as_str()?.contains(words)));
        let said = |line: &String| line.contains("this replica waits") && line.contains(words);
        reported == Some(true) && cluster.lines(replica).iter().any(said)
    });
}

/// A restart looks like a loss for a moment: the command that gives data up is named a minute later, and not before.
fn remedy_comes_later(cluster: &Cluster, replica: usize, remedy: &str) {
    let waits = |cluster: &Cluster| cluster.status(replica)?["waits_for"].as_str().map(str::to_owned);
    let named = |cluster: &Cluster| waits(cluster).is_some_and(|reported| reported.contains(remedy));
    let reported = waits(cluster).expect("it waits");
    assert!(!reported.contains("`crosscheck") && reported.contains("for a minute"), "{reported}");
    // Twice the usual time: half of it passes until the remedy may be named.
    let start = std::time::Instant::now();
    while !named(cluster) && start.elapsed() < PATIENCE {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    cluster.wait_until(&format!("replica {} says: {remedy}", replica + 1), named);
}

#[test]
fn an_operator_has_the_group_go_on_with_the_memory_that_is_left() {
    for workers in [1, 2] {
        let cluster = Cluster::up(&Wish { workers, ..Wish::default() });
        assert_eq!(say(cluster.clients()[0], "set kept 0 0 3\r\nabc\r\n", 1), ["STORED"]);
        lose(&cluster, &[0, 1]);
        waits(&cluster, 0, "to be let into the group of replica 3");
        waits(&cluster, 2, "replicas 1 and 2 are here without data");
        let (code, reported) = cluster.command(&["group", "keep", "3"]);
        assert!(code == 1 && reported.contains("would keep what replica 3 has"), "{reported}");
        let (code, reported) = cluster.command(&["group", "begin"]);
        assert!(
            code == 1 && reported.contains("replica 3 belongs to a group already; nothing was begun"),
            "{reported}"
        );
        let (code, reported) = cluster.command(&["group", "keep", "1", "--yes"]);
        assert!(
            code == 1 && reported.contains("this replica has no data of a group; nothing was changed"),
            "{reported}"
        );
        let (code, reported) = cluster.command(&["group", "keep", "3", "--yes"]);
        assert!(code == 0 && reported.contains("the group serves: 3 of 3 replicas"), "{reported}");
        for replica in 0..3 {
            assert_eq!(stored(&cluster, replica), ["VALUE kept 0 3"], "at replica {}", replica + 1);
        }
        assert_eq!(say(cluster.clients()[1], "set more 0 0 3\r\nabc\r\n", 1), ["STORED"]);
        cluster.assert_equal_state();
        // The group is complete again: it survives the loss of one replica.
        lose(&cluster, &[2]);
        cluster.wait_serving();
        assert_eq!(stored(&cluster, 2), ["VALUE kept 0 3"]);
        cluster.finish();
    }
}

#[test]
fn a_group_whose_memories_are_all_lost_begins_anew_only_at_an_operators_word() {
    let cluster = Cluster::up(&Wish::default());
    assert_eq!(say(cluster.clients()[0], "set kept 0 0 3\r\nabc\r\n", 1), ["STORED"]);
    // The sequence of the review: two are lost, and then the third is restarted.
    lose(&cluster, &[0, 1]);
    waits(&cluster, 1, "to be let into the group of replica 3");
    lose(&cluster, &[2]);
    for replica in 0..3 {
        waits(&cluster, replica, "no replica has data of a group");
        assert!(TcpStream::connect(cluster.clients()[replica]).is_err(), "nobody serves an empty group");
    }
    let (code, reported) = cluster.command(&["status"]);
    assert!(code == 1 && reported.contains("0 of 3 serve"), "{reported}");
    remedy_comes_later(&cluster, 0, "`crosscheck group begin`");
    let (code, reported) = cluster.command(&["group", "begin"]);
    assert!(code == 0 && reported.contains("the group serves: 3 of 3 replicas"), "{reported}");
    assert_eq!(stored(&cluster, 0), ["END"]);
    assert_eq!(say(cluster.clients()[1], "set kept 0 0 3\r\nabc\r\n", 1), ["STORED"]);
    cluster.finish();
}

/// With logs on disk: two disks are lost. The remaining replica is the group, and the entries of its log were
/// acknowledged.
#[test]
fn an_operator_has_the_group_go_on_with_the_disk_that_is_left() {
    let cluster = Cluster::up(&Wish { disk: true, ..Wish::default() });
    assert_eq!(say(cluster.clients()[0], "set kept 0 0 3\r\nabc\r\n", 1), ["STORED"]);
    let before: Vec<u32> = [0, 1].iter().map(|&replica| cluster.pid(replica)).collect();
    for replica in [0, 1] {
        cluster.signal(replica, Signal::STOP);
        std::fs::remove_dir_all(cluster.data_of(replica)).expect("its data is deleted");
        cluster.signal(replica, Signal::KILL);
    }
    cluster.wait_until("`up` has started them again", |cluster| {
        (0..2).all(|replica| {
            let pid = cluster.status(replica).and_then(|status| status["pid"].as_u64());
            pid.is_some_and(|pid| pid != u64::from(before[replica]))
        })
    });
    waits(&cluster, 2, "replicas 1 and 2 are here without data");
    let (code, reported) = cluster.command(&["group", "keep", "3", "--yes"]);
    assert!(code == 0 && reported.contains("the group serves: 3 of 3 replicas"), "{reported}");
    (0..3).for_each(|replica| assert_eq!(stored(&cluster, replica), ["VALUE kept 0 3"]));
    // The decision is in the logs: the group starts by itself after all processes have ended.
    lose(&cluster, &[0, 1, 2]);
    cluster.wait_serving();
    (0..3).for_each(|replica| assert_eq!(stored(&cluster, replica), ["VALUE kept 0 3"]));
    cluster.assert_equal_state();
    cluster.finish();
}
