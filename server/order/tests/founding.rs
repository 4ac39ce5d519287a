//! How a group begins, and how it continues when more logs are lost than it can survive: only an operator decides.

use std::collections::BTreeMap;

use crate::harness::{Cluster, Service};
use order::{Decision, DecisionError, FileLog, FileOptions, LogStore, Record, State};
use tempfile::TempDir;

fn established(replicas: u8, seed: u64) -> Cluster {
    let mut cluster = Cluster::new(replicas, seed);
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster.founds = false;
    cluster.load(300, 200);
    cluster
}

/// Processes end with their memory, and are started again.
fn lose(cluster: &mut Cluster, slots: &[u8]) {
    slots.iter().for_each(|&slot| _ = cluster.kill(slot));
    slots.iter().for_each(|&slot| cluster.start_empty(slot));
}

fn decide(cluster: &mut Cluster, slot: u8, decision: Decision) -> Result<(), DecisionError> {
    cluster.replica(slot).orderer.decide(decision)
}

/// No replica belongs to a group, and none gets into one by itself.
fn assert_none_begins(cluster: &mut Cluster) {
    cluster.run(5_000);
    assert!(cluster.leader().is_none());
    assert!(
        (0..cluster.size()).all(|slot| cluster.replica(slot).orderer.engine_status().incarnation.is_none())
    );
}

fn forget(cluster: &mut Cluster) {
    cluster.acked.clear();
}

#[test]
fn a_group_whose_memories_are_all_lost_begins_anew_only_on_command() {
    for (seed, replicas) in [(1, 3), (2, 5)] {
        let mut cluster = established(replicas, seed);
        let all: Vec<u8> = (0..replicas).collect();
        lose(&mut cluster, &all);
        assert_none_begins(&mut cluster);
        let outside = cluster.replica(0).orderer.engine_status().outside;
        assert_eq!((outside.fresh, outside.members), ((1 << replicas) - 2, 0));
        assert_eq!(decide(&mut cluster, 1, Decision::Found), Err(DecisionError::NotFirst));
        assert_eq!(decide(&mut cluster, 1, Decision::TakeOver), Err(DecisionError::NoData));
        assert_eq!(decide(&mut cluster, 0, Decision::Found), Ok(()));
        forget(&mut cluster);
        cluster.run_until(3_000, "a leader", |cluster| cluster.leader().is_some());
        cluster.load(300, 200);
        cluster.run_until_idle();
    }
}

/// The review's 2.6: two memories are lost, then the third is restarted as well. Its peers knew of a group.
#[test]
fn memories_lost_one_after_the_other_leave_a_group_that_can_begin_anew() {
    let mut cluster = established(3, 3);
    lose(&mut cluster, &[0, 1]);
    cluster.run(2_000);
    assert_eq!(cluster.leader(), None, "one of three leads nobody");
    assert_eq!(cluster.replica(0).orderer.engine_status().outside.members, 0b100);
    assert_eq!(decide(&mut cluster, 0, Decision::Found), Err(DecisionError::OtherBelongs(2)));
    lose(&mut cluster, &[2]);
    assert_none_begins(&mut cluster);
    assert_eq!(decide(&mut cluster, 0, Decision::Found), Ok(()));
    forget(&mut cluster);
    cluster.run_until(3_000, "a leader", |cluster| cluster.leader().is_some());
    cluster.load(300, 200);
    cluster.run_until_idle();
}

#[test]
fn a_word_that_was_given_before_a_group_began_is_not_kept_for_a_later_one() {
    let mut cluster = established(3, 4);
    cluster.founds = true;
    lose(&mut cluster, &[0, 1]);
    cluster.run(2_000);
    cluster.founds = false;
    lose(&mut cluster, &[2]);
    assert_none_begins(&mut cluster);
}

/// Under load, so that its log ends with entries that it does not know to be committed: they are, if the leader had
/// them.
#[test]
fn a_leader_that_is_left_alone_goes_on_and_loses_nothing_that_was_acknowledged() {
    for (seed, replicas) in [(5, 3), (6, 5), (7, 3), (8, 3)] {
        let mut cluster = established(replicas, seed);
        cluster.load(200, 200);
        let left = cluster.leader().expect("there is one");
        let others: Vec<u8> = (0..replicas).filter(|slot| *slot != left).collect();
        lose(&mut cluster, &others);
        cluster.run(2_000);
        assert_eq!(cluster.leader(), None);
        assert_eq!(decide(&mut cluster, left, Decision::TakeOver), Ok(()));
        cluster.run_until(5_000, "all are in again", |cluster| {
            let voters = cluster.replica(left).orderer.engine_status().members.voters;
            voters.count_ones() == u32::from(replicas)
        });
        cluster.load(500, 200);
        cluster.run_until_idle();
        assert_eq!(decide(&mut cluster, left, Decision::Found), Err(DecisionError::Belongs));
        assert!(matches!(decide(&mut cluster, left, Decision::TakeOver), Err(DecisionError::Led(_))));
    }
}

#[test]
fn a_follower_or_a_replica_that_is_catching_up_can_go_on_as_well() {
    for seed in 10..14 {
        let mut cluster = established(3, seed);
        cluster.run_until_idle();
        let left = (0..3).find(|slot| Some(*slot) != cluster.leader()).expect("two follow");
        if seed % 2 == 0 {
            // Its state is here, and it does not vote yet.
            lose(&mut cluster, &[left]);
            cluster.run_until(5_000, "it has its state", |cluster| {
                cluster.replica(left).orderer.engine_status().members.is_learner(left)
            });
        }
        let others: Vec<u8> = (0..3).filter(|slot| *slot != left).collect();
        lose(&mut cluster, &others);
        cluster.run(1_500);
        assert_eq!(decide(&mut cluster, left, Decision::TakeOver), Ok(()), "{seed}");
        cluster.run_until(5_000, "all are in again", |cluster| {
            cluster.replica(left).orderer.engine_status().members.voters == 0b111
        });
        cluster.load(300, 200);
        cluster.run_until_idle();
    }
}

/// Replicas that an operator gave up as lost return after all, with all their data: they are members of no group.
#[test]
fn who_was_given_up_for_lost_and_turns_up_disturbs_nobody() {
    let mut cluster = established(3, 20);
    cluster.run_until_idle();
    let left = cluster.leader().expect("there is one");
    let others: Vec<u8> = (0..3).filter(|slot| *slot != left).collect();
    others.iter().for_each(|&other| cluster.cut_links.extend([(left, other), (other, left)]));
    cluster.run(2_000);
    assert_eq!(decide(&mut cluster, left, Decision::TakeOver), Ok(()));
    cluster.run(500);
    assert!(cluster.replica(left).orderer.engine_status().is_leader, "alone");
    let before = cluster.replica(left).service.clone();
    cluster.cut_links.clear();
    cluster.load(2_000, 200);
    assert!(
        cluster.replica(left).orderer.engine_status().is_leader && cluster.replica(left).stopped.is_none()
    );
    assert!(cluster.replica(left).service.starts_with(&before));
    let members = cluster.replica(left).orderer.engine_status().members;
    assert_eq!(members.voters, 1 << left, "they are not let in with what they have");
    let mut elsewhere = |slot: u8| cluster.replica(slot).orderer.engine_status().outside.elsewhere;
    assert!(others.iter().any(|&other| elsewhere(other) == 1 << left), "one leads the others, and knows why");
    assert_ne!(elsewhere(left), 0);
    // Once they have given up their data, they are.
    forget(&mut cluster);
    lose(&mut cluster, &others);
    cluster.run_until(5_000, "all are in again", |cluster| {
        cluster.replica(left).orderer.engine_status().members.voters == 0b111
    });
    cluster.run_until_idle();
}

fn open(root: &TempDir, slot: u8) -> (Box<dyn LogStore>, Vec<Record>) {
    let small = FileOptions { segment_bytes: 32 << 10, limit_bytes: 64 << 20, spares: 2 };
    let (log, records) =
        FileLog::open(&root.path().join(slot.to_string()), slot, small).expect("the log opens");
    (Box::new(log), records)
}

/// With logs on disk: two disks are lost, and the operator's decision survives further restarts of all.
#[test]
fn a_log_on_disk_remembers_that_its_replica_went_on_alone() {
    let root = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
    let stores = (0..3).map(|slot| open(&root, slot)).collect();
    let mut cluster = Cluster::with_stores(30, stores);
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster.founds = false;
    cluster.compacting = true;
    cluster.load(300, 200);
    cluster.submit_checkpoint(0);
    cluster.load(300, 200);
    let left = cluster.leader().expect("there is one");
    let start = |cluster: &mut Cluster, slot: u8, cuts: BTreeMap<u64, (State, Service)>| {
        let (log, records) = open(&root, slot);
        cluster.start(slot, log, records, cuts);
    };
    let others: Vec<u8> = (0..3).filter(|slot| *slot != left).collect();
    for &slot in &others {
        cluster.kill(slot);
        std::fs::remove_dir_all(root.path().join(slot.to_string())).unwrap();
        start(&mut cluster, slot, BTreeMap::new());
    }
    cluster.run(1_000);
    for restarts in 0..2 {
        // The second time it has been restarted meanwhile, as an operator would try first.
        let cuts = cluster.kill(left).cuts;
        start(&mut cluster, left, cuts);
        cluster.run(2_000);
        if restarts == 0 {
            assert_eq!(cluster.leader(), None);
            assert_eq!(decide(&mut cluster, left, Decision::TakeOver), Ok(()));
        }
        cluster.run_until(8_000, "all are in again", |cluster| {
            cluster.replica(left).orderer.engine_status().members.voters == 0b111
        });
        cluster.load(300, 200);
    }
    cluster.run_until_idle();
    for slot in 0..3 {
        let cuts = cluster.kill(slot).cuts;
        start(&mut cluster, slot, cuts);
        cluster.load(300, 200);
    }
    cluster.run_until_idle();
}

/// An operator keeps one replica, which is away, then another one, and a third comes back empty: two groups,
/// whose logs never mix.
#[test]
fn two_replicas_that_were_both_kept_are_two_groups() {
    for seed in 40..60 {
        let mut cluster = established(3, seed);
        cluster.run_until_idle();
        cluster.cut_links.extend([(1, 2), (2, 1)]);
        lose(&mut cluster, &[0]);
        cluster.kill(0);
        cluster.run(2_000);
        assert_eq!(cluster.leader(), None);
        for slot in [1, 2] {
            assert_eq!(decide(&mut cluster, slot, Decision::TakeOver), Ok(()));
            cluster.run(500);
        }
        forget(&mut cluster);
        cluster.load(300, 200);
        cluster.cut_links.clear();
        cluster.start_empty(0);
        cluster.load(4_000, 200);
        let of = |cluster: &mut Cluster, slot: u8| cluster.replica(slot).service.clone();
        let (third, kept) = (of(&mut cluster, 0), [of(&mut cluster, 1), of(&mut cluster, 2)]);
        let joined = kept.iter().position(|one| {
            third.len().min(one.len()) > 500 && {
                let both = third.len().min(one.len());
                third[..both] == one[..both]
            }
        });
        let joined = joined.unwrap_or_else(|| panic!("{seed}: it is in neither group"));
        assert!(!kept[1 - joined].starts_with(&third[..400]), "{seed}: the logs have mixed");
    }
}

/// An election is on its way: an operator who is too fast gets an error, because a majority is up with its data.
#[test]
fn a_replica_does_not_take_over_from_a_majority() {
    for seed in 70..76 {
        let mut cluster = established(3, seed);
        let leader = cluster.leader().expect("there is one");
        let others: Vec<u8> = (0..3).filter(|slot| *slot != leader).collect();
        cluster.kill(leader);
        cluster.run_until(2_000, "nobody leads", |cluster| {
            cluster.replica(others[0]).orderer.engine_status().leader.is_none()
        });
        assert_eq!(
            decide(&mut cluster, others[0], Decision::TakeOver),
            Err(DecisionError::Election),
            "{seed}"
        );
        // No message of this one arrives, so that no replica is elected; but it receives those of the other one.
        cluster.cut_links.insert((others[0], others[1]));
        cluster.run(2_500);
        assert_eq!(cluster.leader(), None);
        assert_eq!(
            decide(&mut cluster, others[0], Decision::TakeOver),
            Err(DecisionError::Majority(2)),
            "{seed}"
        );
        cluster.cut_links.clear();
        cluster.run_until(3_000, "a leader", |cluster| cluster.leader().is_some());
        cluster.load(300, 200);
        cluster.start_empty(leader);
        cluster.run_until_idle();
    }
}

/// A replica is let in, and before it has a vote the group goes on with one replica by an operator's decision. To the
/// new group it is a stranger, and it would wait for the old one for ever: without a state, and with one.
#[test]
fn a_replica_that_was_let_in_without_a_vote_finds_the_group_that_went_on() {
    for (seed, has_state) in (80..100).map(|seed| (seed, seed % 2 == 0)) {
        let mut cluster = established(3, seed);
        cluster.load(100, 200);
        cluster.run_until_idle();
        let kept = cluster.leader().expect("there is one");
        let others: Vec<u8> = (0..3).filter(|slot| *slot != kept).collect();
        lose(&mut cluster, &[others[0]]);
        cluster.run_until(5_000, "it is let in", |cluster| {
            let status = cluster.replica(others[0]).orderer.engine_status();
            status.incarnation.is_some() && (status.last_index > 0) == has_state
        });
        let status = cluster.replica(others[0]).orderer.engine_status();
        assert_eq!(status.members.voters >> others[0] & 1, 0, "{seed}");
        cluster.cut_links.extend([(kept, others[0]), (others[0], kept)]);
        lose(&mut cluster, &[others[1]]);
        cluster.run(3_000);
        assert_eq!(decide(&mut cluster, kept, Decision::TakeOver), Ok(()), "{seed}");
        forget(&mut cluster);
        cluster.cut_links.clear();
        cluster.run_until(8_000, "it gives up its place in the group of before", |cluster| {
            cluster.replica(others[0]).stopped.as_deref() == Some("removed")
        });
        lose(&mut cluster, &[others[0]]);
        cluster.run_until(20_000, "all are in again", |cluster| {
            cluster.replica(kept).orderer.engine_status().members.voters == 0b111
        });
        cluster.load(300, 200);
        cluster.run_until_idle();
    }
}

/// One replica alone may be wrong about the name of the group, so a replica with a state stays, and says that it has no
/// leader.
#[test]
fn a_replica_with_a_state_is_not_forgotten_on_the_word_of_one() {
    for seed in 100..106 {
        let mut cluster = established(3, seed);
        cluster.load(100, 200);
        cluster.run_until_idle();
        let kept = cluster.leader().expect("there is one");
        let others: Vec<u8> = (0..3).filter(|slot| *slot != kept).collect();
        lose(&mut cluster, &[others[0]]);
        cluster.run_until(5_000, "it has a state", |cluster| {
            cluster.replica(others[0]).orderer.engine_status().last_index > 0
        });
        cluster.cut_links.extend([(kept, others[0]), (others[0], kept)]);
        cluster.kill(others[1]);
        cluster.run(3_000);
        assert_eq!(decide(&mut cluster, kept, Decision::TakeOver), Ok(()), "{seed}");
        forget(&mut cluster);
        cluster.cut_links.clear();
        cluster.run(8_000);
        let status = cluster.replica(others[0]).orderer.engine_status();
        assert_eq!((status.leader, status.outside.elsewhere), (None, 1 << kept), "{seed}");
        assert_eq!(cluster.replica(others[0]).stopped, None);
        cluster.start_empty(others[1]);
        cluster.run_until(20_000, "two say so", |cluster| {
            cluster.replica(others[0]).stopped.as_deref() == Some("removed")
        });
    }
}
