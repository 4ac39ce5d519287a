//! Replicas are killed and stopped under load: no acknowledged write is lost, no increment is counted twice, and the
//! replica comes back with an equal state.

use crate::support::cluster::{Cluster, PATIENCE, Wish};
use memcached_client::load::{CheckedLoad, RunningLoad};
use memcached_client::{Client, Failure, KeyCommand, TextReply};
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

/// How long a client waits for a reply before it connects to another replica.
const CLIENT_PATIENCE: Duration = Duration::from_secs(2);

/// The failure of a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Blow {
    /// SIGKILL: its memory is lost.
    Kill,
    /// SIGSTOP, and SIGCONT after the others have made progress.
    Pause,
}

#[test]
fn a_follower_is_killed() {
    for disk in [false, true] {
        strike(disk, false, Blow::Kill);
    }
}

#[test]
fn the_leader_is_killed() {
    for disk in [false, true] {
        strike(disk, true, Blow::Kill);
    }
}

#[test]
fn a_follower_is_stopped_and_goes_on() {
    for disk in [false, true] {
        strike(disk, false, Blow::Pause);
    }
}

#[test]
fn the_leader_is_stopped_and_goes_on() {
    for disk in [false, true] {
        strike(disk, true, Blow::Pause);
    }
}

/// One after another: each replica that comes back must work as before.
#[test]
fn every_replica_is_killed_in_turn() {
    let cluster = Cluster::up(&Wish { workers: 1, ..Wish::default() });
    let running = load(&cluster).start();
    for victim in [0, 1, 2, 1] {
        running.must_go_on(1_000, &format!("before replica {} is killed", victim + 1));
        kill_and_wait(&cluster, victim);
    }
    end_right(cluster, running);
}

/// With the log on disk, even the death of all replicas at once loses no acknowledged write.
#[test]
fn all_replicas_are_killed_at_once_with_the_log_on_disk() {
    let cluster = Cluster::up(&Wish { disk: true, ..Wish::default() });
    let running = load(&cluster).start();
    running.must_go_on(2_000, "before the blow");
    let before: Vec<u32> = (0..3).map(|replica| cluster.pid(replica)).collect();
    (0..3).for_each(|replica| cluster.signal(replica, Signal::KILL));
    cluster.wait_until("`up` has started all again", |cluster| {
        (0..3).all(|replica| cluster.pid(replica) != before[replica])
    });
    cluster.wait_serving();
    running.must_go_on(1_000, "after the blow");
    end_right(cluster, running);
}

/// A log on disk keeps the repairs of a corrupted process. The next process executes all entries again, with right
/// objects, and must not wait for repairs that no replica keeps for it any more: it would end itself, and so would each
/// process after it.
#[test]
fn a_replica_that_was_repaired_comes_back_from_its_log_on_disk() {
    let cluster = Cluster::up(&Wish { disk: true, workers: 1, ..Wish::default() });
    let running = load(&cluster).start();
    running.must_go_on(2_000, "before the faults");
    let victim = (cluster.leader() + 1) % 3;
    for seed in 0..40 {
        cluster.ask(victim, &json!({"cmd": "inject", "kind": "flip", "seed": seed}));
    }
    cluster.wait_until("objects were repaired", |cluster| {
        cluster.status(victim).is_some_and(|status| status["repairs"].as_u64() > Some(5))
    });
    running.must_go_on(2_000, "after the faults");
    kill_and_wait(&cluster, victim);
    assert_eq!(cluster.replaced(), Vec::<String>::new(), "it came back at the first try");
    running.must_go_on(2_000, "after the blow");
    end_right(cluster, running);
}

/// A replica that is asked to stop executes no request without answering it, and the others go on under another leader.
#[test]
fn a_replica_that_is_asked_to_stop_answers_what_it_has_read() {
    for (leader, workers) in [(false, 1), (true, 1), (true, 2)] {
        let cluster = Cluster::up(&Wish { workers, ..Wish::default() });
        let first = cluster.leader();
        let (victim, other) = if leader { (first, (first + 1) % 3) } else { ((first + 1) % 3, first) };
        let counts: Vec<_> = (0..40)
            .map(|client| {
                let key = format!("count{client}");
                let mut there = Client::connect(cluster.clients()[other], PATIENCE).unwrap();
                there.set(&key, 0, b"0").unwrap();
                let victim = Client::connect(cluster.clients()[victim], PATIENCE).unwrap();
                (there, key.clone(), std::thread::spawn(move || count_until_it_ends(victim, &key)))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        cluster.signal(victim, Signal::TERM);
        let mut all = 0;
        for (mut there, key, counting) in counts {
            let answered = counting.join().unwrap();
            assert_eq!(there.incr(&key, 0).unwrap(), Some(answered), "{key}, the leader stops: {leader}");
            all += answered;
        }
        assert!(all > 0, "something was counted");
        cluster.finish();
    }
}

/// All replicas are asked to stop at once: those without clients stay until the other one has answered its own.
#[test]
fn a_group_that_is_asked_to_stop_at_once_answers_what_it_has_read() {
    for (from_leader, workers) in [(0, 1), (1, 1), (2, 2)] {
        // After the stop the log on disk tells what was counted.
        let cluster = Cluster::up(&Wish { workers, disk: true, ..Wish::default() });
        let served = (cluster.leader() + from_leader) % 3;
        let connect = |replica: usize| Client::connect(cluster.clients()[replica], PATIENCE).unwrap();
        let counts: Vec<_> = (0..40)
            .map(|client| {
                let key = format!("count{client}");
                let mut there = connect(served);
                there.set(&key, 0, b"0").unwrap();
                (key.clone(), std::thread::spawn(move || count_until_it_ends(there, &key)))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let before: Vec<u32> = (0..3).map(|replica| cluster.pid(replica)).collect();
        (0..3).for_each(|replica| cluster.signal(replica, Signal::TERM));
        let answered: Vec<(String, u64)> =
            counts.into_iter().map(|(key, counting)| (key, counting.join().unwrap())).collect();
        cluster.wait_until("`up` has started all again", |cluster| {
            (0..3).all(|replica| cluster.pid(replica) != before[replica])
        });
        cluster.wait_serving();
        let mut there = connect(served);
        for (key, answered) in &answered {
            assert_eq!(there.incr(key, 0).unwrap(), Some(*answered), "{key}, {from_leader} after the leader");
        }
        assert!(answered.iter().map(|(_, answered)| answered).sum::<u64>() > 0, "something was counted");
        cluster.finish();
    }
}

/// Increments a counter, three requests at once, until the replica ends the connection. Returns the number of replies.
fn count_until_it_ends(mut client: Client, key: &str) -> u64 {
    let mut answered = 0;
    loop {
        (0..3).for_each(|_| client.queue(key, KeyCommand::Count { up: true, by: 1 }));
        // What is sent to a connection that has ended is not executed.
        if client.flush().is_err() {
            return answered;
        }
        for _ in 0..3 {
            let taken = client.take(|reply| Ok(matches!(reply, TextReply::Number(_)).then_some(())));
            match taken {
                Ok(()) => answered += 1,
                Err(Failure::Connection(_)) => return answered,
                Err(other) => panic!("{other:?} to an incr of {key}"),
            }
        }
    }
}

fn strike(disk: bool, leader: bool, blow: Blow) {
    let cluster = Cluster::up(&Wish { disk, workers: if disk == leader { 1 } else { 2 }, ..Wish::default() });
    let running = load(&cluster).start();
    running.must_go_on(2_000, "before the blow");
    let first = cluster.leader();
    let victim = if leader { first } else { (first + 1) % 3 };
    running.forget_gaps();
    match blow {
        Blow::Kill => kill_and_wait(&cluster, victim),
        Blow::Pause => {
            cluster.signal(victim, Signal::STOP);
            // Long enough for clients of the stopped replica to time out and for a new leader.
            std::thread::sleep(CLIENT_PATIENCE * 2);
            let went_on = running.wait_for(2_000, PATIENCE);
            cluster.signal(victim, Signal::CONT);
            assert!(went_on, "the others did not go on without replica {}", victim + 1);
            cluster.wait_serving();
        }
    }
    println!(
        "disk {disk}, leader {leader}, {blow:?}: longest time without any reply {:?}",
        running.longest_gap()
    );
    running.must_go_on(2_000, "after the blow");
    let report = running.stop_and_audit(cluster.clients());
    println!("{report}");
    report.assert_right();
    assert!(report.disconnects + report.timeouts > 0, "nobody noticed the blow: {report}");
    assert!(report.counters.iter().all(|counter| counter.acknowledged > 0), "nobody counted: {report}");
    cluster.assert_equal_state();
    cluster.finish();
}

fn kill_and_wait(cluster: &Cluster, victim: usize) {
    kill_while(cluster, victim, || ());
}

/// Kills a process, does something while it is down, and waits until it serves again.
pub(crate) fn kill_while(cluster: &Cluster, victim: usize, while_down: impl FnOnce()) {
    let before = cluster.pid(victim);
    cluster.signal(victim, Signal::KILL);
    while_down();
    cluster.wait_until("`up` has started the replica again", |cluster| cluster.pid(victim) != before);
    cluster.wait_serving();
}

/// Ends the load: every acknowledged write is there, and all replicas have the same state.
pub(crate) fn end_right(cluster: Cluster, running: RunningLoad) {
    let report = running.stop_and_audit(cluster.clients());
    println!("{report}");
    report.assert_right();
    cluster.assert_equal_state();
    cluster.finish();
}

/// Clients that connect to another replica when one does not answer.
pub(crate) fn load(cluster: &Cluster) -> CheckedLoad {
    CheckedLoad { patience: CLIENT_PATIENCE, ..CheckedLoad::on(cluster.clients()) }
}
