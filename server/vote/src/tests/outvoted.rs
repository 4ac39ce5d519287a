//! A replica that is outvoted repeatedly is replaced, even if there is nothing to repair.

use super::cluster::Cluster;
use super::service::{Entry, Op, Slip, key};
use crate::limits::OUTVOTED_BEFORE_REPLACE;
use crate::{BeyondRepair, Command, Event, Place, Recover, Replica, Scope};

const LIMIT: u64 = OUTVOTED_BEFORE_REPLACE as u64;
const FAULTY: usize = 1;

/// A group in which every object exists.
fn group() -> Cluster {
    let mut cluster = Cluster::new(3, 9);
    cluster.order(&[Op::Set(0, 1), Op::Set(1, 2), Op::Set(2, 3)]);
    cluster.run();
    cluster
}

/// Orders so many batches in which the faulty replica slips in every request.
fn slip(cluster: &mut Cluster, batches: u64, slip: Slip) {
    for _ in 0..batches {
        let batch = cluster.order(&[Op::Get(0), Op::Get(1), Op::Set(2, 4)]);
        for request in 0..3 {
            cluster.nodes[FAULTY].slips.insert(Place::new(batch, request), slip);
        }
    }
    cluster.run();
}

fn right(cluster: &mut Cluster) {
    cluster.order(&[Op::Get(0)]);
    cluster.run();
}

/// How often the faulty replica replaced itself, and how often the others reported it as beyond repair.
fn replaced(cluster: &Cluster) -> [usize; 3] {
    let is_outvoted = |command: &&Command| match command {
        Command::ReplaceSelf(why) => *why == BeyondRepair::Outvoted,
        Command::PeerBeyondRepair { replica, why } => (*replica, *why) == (1, BeyondRepair::Outvoted),
        _ => false,
    };
    let count = |node: usize| {
        let commands = &cluster.nodes[node].replace;
        assert_eq!(commands.iter().filter(is_outvoted).count(), commands.len(), "{commands:?}");
        commands.len()
    };
    [count(0), count(1), count(2)]
}

#[test]
fn wrong_replies_in_a_row_replace_the_replica_at_the_limit() {
    let mut cluster = group();
    slip(&mut cluster, LIMIT - 1, Slip::Reply);
    assert_eq!(replaced(&cluster), [0, 0, 0]);
    slip(&mut cluster, 1, Slip::Reply);
    assert_eq!(replaced(&cluster), [1, 1, 1]);
    slip(&mut cluster, 20, Slip::Reply);
    assert_eq!(replaced(&cluster), [1, 1, 1], "each operator is told once");
    cluster.assert_as_if_fault_free();
    assert_eq!(
        BeyondRepair::Outvoted.to_string(),
        "f+1 others outvoted it 256 times in a row",
        "how often, in plain words"
    );
}

#[test]
fn failed_requests_and_wrong_votes_count_as_well() {
    let mut cluster = group();
    slip(&mut cluster, LIMIT, Slip::Panic);
    assert_eq!(replaced(&cluster)[FAULTY], 0, "what it left undone is repaired");
    let mut cluster = group();
    for batch in 1..=LIMIT {
        cluster.nodes[FAULTY].tamper.insert(Place::new(batch, 0), |result| result.digest ^= 1 << 70);
    }
    for _ in 0..LIMIT {
        cluster.order(&[Op::Get(0)]);
    }
    cluster.run();
    assert_eq!(replaced(&cluster), [1, 1, 1], "it disagrees about everything");
}

#[test]
fn one_right_batch_in_between_begins_the_count_again() {
    let mut cluster = group();
    for _ in 0..3 {
        slip(&mut cluster, LIMIT - 1, Slip::Reply);
        right(&mut cluster);
    }
    assert_eq!(replaced(&cluster), [0, 0, 0]);
}

/// Scrubs and repairs have no reply: a replica that answers every client wrongly is right about them.
#[test]
fn the_pipelines_own_requests_do_not_count() {
    let mut cluster = group();
    slip(&mut cluster, LIMIT - 1, Slip::Reply);
    let (objects, cause) = (vec![key(0)], Place::default());
    let recover =
        Recover { id: 7, proposer: 0, scope: Scope::Faulty(2), cause, objects, regions: Vec::new() };
    cluster.log.push(vec![Entry::Recover(recover)]);
    cluster.run();
    slip(&mut cluster, 1, Slip::Reply);
    assert_eq!(replaced(&cluster), [1, 1, 1]);
}

/// An object that every request reads is wrong; its RECOVER comes late, since the group has ordered many requests in
/// the meantime.
#[test]
fn batches_that_one_repair_explains_count_once() {
    let mut cluster = group();
    cluster.nodes[FAULTY].state.objects.get_mut(&key(0)).expect("it exists").value ^= 4;
    for _ in 0..3 * LIMIT {
        cluster.order(&[Op::Get(0), Op::Add(1, 0)]);
    }
    cluster.run();
    right(&mut cluster);
    let blamed = cluster.nodes[0].voter.counters().blamed[FAULTY];
    assert!(blamed > LIMIT, "it was outvoted {blamed} times");
    assert_eq!(replaced(&cluster), [0, 0, 0]);
    cluster.assert_as_if_fault_free();
}

#[test]
fn repairs_that_do_not_help_replace_the_replica() {
    let mut cluster = group();
    let repair = |cluster: &mut Cluster| slip(cluster, 1, Slip::Value(8));
    (1..LIMIT).for_each(|_| repair(&mut cluster));
    assert_eq!(replaced(&cluster), [0, 0, 0]);
    repair(&mut cluster);
    assert_eq!(replaced(&cluster), [1, 1, 1]);
}

/// One of its peers seems absent: the other one alone cannot send it a state.
#[test]
fn a_replica_that_nobody_could_fill_stays() {
    let mut cluster = group();
    slip(&mut cluster, LIMIT - 1, Slip::Reply);
    let away: Replica = 2;
    cluster.handle(FAULTY as Replica, Event::PeerDown(away));
    slip(&mut cluster, 2, Slip::Reply);
    assert_eq!(replaced(&cluster), [1, 0, 1]);
    cluster.handle(FAULTY as Replica, Event::PeerUp(away));
    slip(&mut cluster, 1, Slip::Reply);
    assert_eq!(replaced(&cluster), [1, 1, 1]);
}
