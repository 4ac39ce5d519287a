//! What a request starts, as a timer, is in no object: a replica that starts others is found, and replaced.

use super::cluster::Cluster;
use super::service::{Op, Slip, key};
use crate::{BeyondRepair, Command, FaultStage, Place, Protections};

fn group(protections: Protections) -> Cluster {
    let mut cluster = Cluster::with_protections(3, 7, protections);
    cluster.order(&[Op::Set(0, 1), Op::Set(1, 2)]);
    cluster.run();
    cluster
}

/// The replicas that replace themselves since they started others.
fn replaced(cluster: &Cluster) -> Vec<usize> {
    let own = |c: &Command| matches!(c, Command::ReplaceSelf(BeyondRepair::StartedOthers));
    (0..cluster.nodes.len()).filter(|at| cluster.nodes[*at].replace.iter().any(own)).collect()
}

/// Replicas without the timers of the others.
fn without_timers(cluster: &Cluster) -> Vec<usize> {
    let (right, _) = cluster.oracle();
    (0..cluster.nodes.len()).filter(|at| cluster.nodes[*at].state.timers != right.timers).collect()
}

/// A handler that does all of its work and sets no timer.
fn a_timer_is_not_set(faulty: usize, protections: Protections) -> Cluster {
    let mut cluster = group(protections);
    cluster.nodes[faulty].slips.insert(Place::new(1, 1), Slip::Starts);
    cluster.order(&[Op::Get(0), Op::Start(1), Op::Get(0)]);
    cluster.run();
    cluster
}

/// An object is corrupted that the request meets.
fn a_request_is_abandoned(faulty: usize, op: Op, protections: Protections) -> Cluster {
    let mut cluster = group(protections);
    cluster.nodes[faulty].state.objects.get_mut(&key(0)).expect("set").value ^= 4;
    cluster.order(&[op, Op::Get(1)]);
    cluster.run();
    cluster.assert_blames_only(&[faulty as u8]);
    assert_eq!(cluster.nodes[faulty].state.objects, cluster.oracle().0.objects, "they are repaired");
    cluster
}

#[test]
fn a_replica_that_starts_others_is_found_and_replaces_itself() {
    for faulty in 0..3 {
        let cluster = a_timer_is_not_set(faulty, Protections::ALL);
        assert_eq!(without_timers(&cluster), [faulty]);
        assert_eq!(replaced(&cluster), [faulty]);
        cluster.assert_blames_only(&[faulty as u8]);
        for node in &cluster.nodes {
            assert!(node.evidence.iter().all(|one| one.stage == FaultStage::Schedule), "{:?}", node.evidence);
            assert_eq!(node.evidence.len(), 1);
        }
        assert_eq!(cluster.log.len(), 2, "no object is wrong, so nothing is recovered");
    }
}

#[test]
fn a_replica_that_abandons_a_request_that_starts_something_replaces_itself() {
    for faulty in 0..3 {
        let cluster = a_request_is_abandoned(faulty, Op::Start(0), Protections::ALL);
        assert_eq!(without_timers(&cluster), [faulty]);
        assert_eq!(replaced(&cluster), [faulty]);
    }
}

#[test]
fn a_replica_that_abandons_a_request_that_starts_nothing_is_repaired() {
    for faulty in 0..3 {
        let cluster = a_request_is_abandoned(faulty, Op::Add(0, 1), Protections::ALL);
        cluster.assert_as_if_fault_free();
        assert!(cluster.nodes.iter().all(|node| node.replace.is_empty()));
    }
}

#[test]
fn without_the_check_a_timer_is_lost_for_ever() {
    let protections = Protections { started_check: false, ..Protections::ALL };
    for faulty in 0..3 {
        for cluster in [
            a_timer_is_not_set(faulty, protections),
            a_request_is_abandoned(faulty, Op::Start(0), protections),
        ] {
            assert_eq!(without_timers(&cluster), [faulty], "its objects are right, and its timer is missing");
            assert!(replaced(&cluster).is_empty());
        }
    }
}
