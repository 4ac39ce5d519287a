//! Groups that grow and shrink while they order: who is added follows the log without a vote at first, who is let go
//! leaves, and no acknowledged request is lost on the way.

use crate::harness::{Cluster, Weather};
use order::GroupSize;

/// All that run have this size from now on.
fn resize(cluster: &mut Cluster, known: u8, voting: u8) {
    for slot in cluster.running() {
        let excludes_others = known < cluster.size();
        cluster.replica(slot).orderer.resize(GroupSize { known, voting, excludes_others });
    }
}

fn voters(cluster: &mut Cluster) -> u16 {
    let leader = cluster.leader().expect("it has one");
    cluster.replica(leader).orderer.engine_status().members.voters
}

fn begun(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(3, seed);
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster.load(200, 200);
    cluster
}

/// Two more are added, follow the log without a vote, and then get one.
fn grown(seed: u64, weather: Weather) -> Cluster {
    let mut cluster = begun(seed);
    cluster.weather = weather;
    cluster.replicas.extend([None, None]);
    resize(&mut cluster, 5, 3);
    for slot in [3, 4] {
        cluster.start_empty(slot);
        cluster.replica(slot).orderer.resize(GroupSize { known: 5, voting: 3, excludes_others: false });
    }
    cluster.load(1_500, 200);
    assert_eq!(voters(&mut cluster), 0b111, "who is being added has no vote");
    resize(&mut cluster, 5, 5);
    cluster.load(1_500, 200);
    cluster
}

#[test]
fn a_group_grows_while_it_orders_and_any_two_of_five_may_fail_then() {
    for seed in 0..6 {
        let weather = Weather { delay: 8, reorder: seed % 2 == 0, drop: 5, ..Weather::default() };
        let mut cluster = grown(seed, weather);
        cluster.weather = Weather::default();
        cluster.run_until(3_000, "five voters", |cluster| voters(cluster) == 0b1_1111);
        let leader = cluster.leader().unwrap();
        for slot in [leader, (leader + 1 + seed as u8 % 4) % 5] {
            cluster.kill(slot);
            cluster.run_until(3_000, "the next leader", |cluster| cluster.leader().is_some());
            cluster.load(500, 200);
        }
        cluster.check();
    }
}

/// With three voters in memory, a follower commits what it has got. Behind a promotion, that would be two copies of
/// four.
#[test]
fn a_leader_that_fails_while_the_fourth_gets_its_vote_loses_nothing() {
    for seed in 0..40 {
        let mut cluster = begun(100 + seed);
        cluster.weather = Weather { delay: 12, ..Weather::default() };
        cluster.replicas.extend([None, None]);
        resize(&mut cluster, 5, 3);
        [3, 4].into_iter().for_each(|slot| cluster.start_empty(slot));
        cluster.load(800, 200);
        resize(&mut cluster, 5, 5);
        // This one has not delivered yet that there are five.
        let late = (cluster.leader().expect("it has one") + 1) % 3;
        let three = GroupSize { known: 3, voting: 3, excludes_others: false };
        cluster.replica(late).orderer.resize(three);
        cluster.load(seed * 3, 200);
        let leader = cluster.leader();
        if let Some(leader) = leader {
            // Of all others, only one receives what it still sends.
            for other in (0..5).filter(|other| *other != leader && *other != late) {
                cluster.cut_links.extend([(leader, other), (other, leader)]);
            }
            cluster.load(20, 200);
            cluster.kill(leader);
        }
        cluster.cut_links.clear();
        resize(&mut cluster, 5, 5);
        cluster.load(1_500, 200);
        cluster.check();
    }
}

#[test]
fn those_that_are_let_go_leave_also_if_one_leads() {
    for seed in 0..5 {
        let mut cluster = grown(200 + seed, Weather { delay: 5, ..Weather::default() });
        cluster.run_until(3_000, "five voters", |cluster| voters(cluster) == 0b1_1111);
        // Each of the five leads once.
        let next = seed as u8;
        cluster.run_until(10_000, "it leads", |cluster| {
            let leader = cluster.leader();
            if leader != Some(next) && cluster.now.is_multiple_of(200) {
                cluster.replica(next).orderer.call_election();
            }
            leader == Some(next)
        });
        cluster.load(200, 200);
        resize(&mut cluster, 3, 3);
        cluster.run_until(5_000, "three voters", |cluster| {
            cluster.leader().is_some_and(|leader| leader < 3) && voters(cluster) == 0b111
        });
        [3, 4].into_iter().for_each(|slot| _ = cluster.kill(slot));
        cluster.load(300, 200);
        cluster.replicas.truncate(3);
        cluster.run_until_idle();
    }
}

/// One that has lost its memory and does not know of the growth founds nothing, and is let in.
#[test]
fn a_replica_that_knows_three_is_let_in_by_five() {
    let mut cluster = grown(300, Weather { delay: 5, ..Weather::default() });
    cluster.run_until(3_000, "five voters", |cluster| voters(cluster) == 0b1_1111);
    cluster.kill(1);
    cluster.load(500, 200);
    cluster.start_empty(1);
    cluster.replica(1).orderer.resize(GroupSize { known: 3, voting: 3, excludes_others: false });
    cluster.load(1_000, 200);
    cluster.replica(1).orderer.resize(GroupSize { known: 5, voting: 5, excludes_others: false });
    cluster.run_until(5_000, "five voters again", |cluster| voters(cluster) == 0b1_1111);
    cluster.run_until_idle();
}

/// A state from before the growth does not say that there was one: who begins with it would count by what a file says.
/// A checkpoint is offered only to those that are members in it, and who is added is none before the growth.
#[test]
fn who_is_added_begins_with_no_state_from_before_the_growth() {
    for seed in 0..5 {
        let mut cluster = begun(500 + seed);
        // One that joins leaves a checkpoint that is offered.
        cluster.kill(2);
        cluster.start_empty(2);
        cluster.run_until(5_000, "three voters", |cluster| {
            cluster.leader().is_some() && voters(cluster) == 0b111 && cluster.replica(2).joined
        });
        cluster.load(100, 200);
        cluster.replicas.extend([None, None]);
        let least =
            (0..3).map(|slot| cluster.replica(slot).orderer.state().index).min().expect("there are three");
        resize(&mut cluster, 5, 3);
        for slot in [3, 4] {
            cluster.start_empty(slot);
            cluster.run_until(5_000, "it has a state", |cluster| !cluster.replica(slot).cuts.is_empty());
            let first = *cluster.replica(slot).cuts.keys().next().expect("it has one");
            assert!(
                first >= least,
                "it began with the state after entry {first}, and the growth began at {least}"
            );
        }
        cluster.load(300, 200);
        cluster.check();
    }
}

/// A growth is given up: those that were being added leave, and three voters commit early again.
#[test]
fn learners_that_are_not_added_after_all_leave() {
    let mut cluster = begun(400);
    cluster.replicas.extend([None, None]);
    resize(&mut cluster, 5, 3);
    [3, 4].into_iter().for_each(|slot| cluster.start_empty(slot));
    cluster.run_until(5_000, "two learners", |cluster| {
        let leader = cluster.leader();
        leader.is_some_and(|leader| {
            cluster.replica(leader).orderer.engine_status().members.learners == 0b1_1000
        })
    });
    [3, 4].into_iter().for_each(|slot| _ = cluster.kill(slot));
    resize(&mut cluster, 3, 3);
    cluster.load(300, 200);
    cluster.run_until(5_000, "no learners", |cluster| {
        let leader = cluster.leader();
        leader.is_some_and(|leader| cluster.replica(leader).orderer.engine_status().members.learners == 0)
    });
    cluster.replicas.truncate(3);
    cluster.run_until_idle();
}
