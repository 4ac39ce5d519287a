//! The lock service as its users see it: clients wait for locks, and a lock passes on when the client that has it lets
//! go, ends its connection, or is on a replica that dies, also for good.

#![allow(clippy::disallowed_methods, reason = "a test may do what a handler may not")]

#[path = "../../support/group.rs"]
mod group;
#[path = "../../support/resp_client.rs"]
#[allow(dead_code, reason = "the bank's tests use all of it")]
mod resp_client;

use std::thread;
use std::time::Duration;

use group::{Group, wait_until};
use resp_client::Client;
use rustix::process::Signal;

const LOCKS: &str = env!("CARGO_BIN_EXE_locks");

/// A client that has asked for the lock, and waits.
fn waits(group: &Group, replica: usize) -> Client {
    let mut client = group.client(replica);
    client.send("LOCK x").expect("it is connected");
    // Requests of different clients are ordered as they come: those after this one are behind it.
    thread::sleep(Duration::from_millis(200));
    client
}

#[test]
fn a_lock_passes_on_in_every_mode() {
    for mode in ["RDGX", "R0GV", "RD00", "00GT"] {
        let alone = mode.starts_with('0');
        let count = if alone { "1" } else { "3" };
        let group = Group::up_of(LOCKS, &["--mode", mode, "--replicas", count]);
        let at = |replica: usize| if alone { 1 } else { replica };
        let mut first = group.client(at(1));
        assert_eq!(first.ask("LOCK x"), "+OK");
        let (mut second, mut third) = (waits(&group, at(2)), waits(&group, at(3)));
        assert_eq!(group.client(at(2)).ask("UNLOCK x"), ":0", "who does not have it");
        assert_eq!(group.client(at(3)).ask("LOCK y"), "+OK", "another lock");
        assert_eq!(first.ask("UNLOCK x"), ":1");
        assert_eq!(second.receive().as_deref(), Some("+OK"), "{mode}");
        let mut fourth = waits(&group, at(1));
        drop(second);
        assert_eq!(third.receive().as_deref(), Some("+OK"), "{mode}: its connection has ended");
        // One that waits and goes away is passed over.
        drop(waits(&group, at(2)));
        let mut last = waits(&group, at(3));
        assert_eq!(third.ask("UNLOCK x"), ":1");
        assert_eq!(fourth.receive().as_deref(), Some("+OK"), "{mode}");
        assert_eq!(fourth.ask("UNLOCK x"), ":1");
        assert_eq!(last.receive().as_deref(), Some("+OK"), "{mode}");
        assert_eq!(first.ask("FROB"), "-ERR unknown command 'frob'");
        assert_eq!(first.ask("LOCK"), "-ERR wrong number of arguments; use LOCK name");
    }
}

#[test]
fn the_locks_of_a_replica_that_dies_are_passed_on() {
    for mode in ["RDGX", "R0GV"] {
        let group = Group::up_of(LOCKS, &["--mode", mode]);
        for replica in [1, 2, 3] {
            let mut holder = group.client(replica);
            assert_eq!(holder.ask("LOCK x"), "+OK");
            let mut others: Vec<Client> =
                (1..=3).filter(|one| *one != replica).map(|one| waits(&group, one)).collect();
            group.signal(replica, Signal::KILL);
            assert_eq!(holder.receive(), None);
            for other in &mut others {
                assert_eq!(other.receive().as_deref(), Some("+OK"), "{mode}, {replica} killed");
                assert_eq!(other.ask("UNLOCK x"), ":1");
            }
            wait_until("all serve", || group.command(&["status"]).contains("3 of 3 serve"));
        }
    }
}

#[test]
fn the_locks_of_a_replica_that_stays_away_are_passed_on_and_one_that_was_cut_off_begins_anew() {
    for mode in ["RDGX", "R0GV"] {
        let group = Group::up_of(LOCKS, &["--mode", mode]);
        let mut holder = group.client(2);
        assert_eq!(holder.ask("LOCK x"), "+OK");
        let mut other = waits(&group, 3);
        // It is there, sends nothing, and `up` does not start another one.
        group.signal(2, Signal::STOP);
        assert_eq!(other.receive().as_deref(), Some("+OK"), "{mode}: it has sent nothing for too long");
        group.signal(2, Signal::CONT);
        assert_eq!(holder.receive(), None, "its connection has ended for the service");
        wait_until("all serve", || group.command(&["status"]).contains("3 of 3 serve"));
        assert_eq!(other.ask("UNLOCK x"), ":1");
        assert_eq!(group.client(2).ask("LOCK x"), "+OK");
    }
}

#[test]
fn a_flipped_bit_in_the_queues_is_outvoted_and_repaired() {
    let group = Group::up_of(LOCKS, &[]);
    let mut first = group.client(1);
    for round in 0..12 {
        assert_eq!(first.ask("LOCK x"), "+OK");
        let mut second = waits(&group, 2);
        let replica = (1 + round % 3).to_string();
        // The queue itself, which is in a part of the state that the seed has to name; or the root of that part.
        let nodes = "class:MapNode<String, VecDeque<(ConnectionId, Owed)>>";
        let object = if round % 2 == 0 { "key:x" } else { nodes };
        let is_placed = (0..200).any(|seed: u32| {
            let seed = (1000 * round + seed).to_string();
            let flip = ["inject", "flip", "--replica", &replica, "--object", object, "--seed", &seed];
            !group.command(&flip).contains("NOT PLACED")
        });
        assert!(is_placed, "round {round}");
        assert_eq!(first.ask("UNLOCK x"), ":1", "round {round}");
        assert_eq!(second.receive().as_deref(), Some("+OK"), "round {round}");
        assert_eq!(second.ask("UNLOCK x"), ":1");
    }
    group.wait_until_equal();
}
