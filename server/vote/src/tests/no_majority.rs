//! No f+1 agree: no replica guesses, one that cannot reproduce its result blames itself, and other requests continue.

use super::cluster::Cluster;
use super::service::{Op, Slip, key};
use crate::classify::by_elimination;
use crate::config::{Replica, Set};
use crate::{
    BeyondRepair, Command, Config, Dropped, Event, Failure, FaultClass, Held, Message, Pairs, Place,
    Reexecution, RequestInfo, RequestResult, Voter, Votes,
};
use bytes::Bytes;

fn group() -> Cluster {
    let mut cluster = Cluster::new(3, 3);
    cluster.order(&[Op::Set(0, 1), Op::Set(1, 2), Op::Set(2, 3)]);
    cluster.run();
    cluster
}

#[test]
fn one_down_and_one_wrong_the_wrong_one_steps_back() {
    let mut cluster = group();
    cluster.down(1);
    cluster.nodes[2].slips.insert(Place::new(1, 0), Slip::Value(8));
    cluster.order(&[Op::Set(0, 5), Op::Get(1), Op::Get(2), Op::Get(1)]);
    cluster.run();
    let (_, replies) = cluster.oracle();
    for node in [0, 2] {
        for (place, reply) in &cluster.nodes[node].released {
            assert_eq!(reply, &replies[place]);
        }
        let own = (0..4)
            .map(|request| Place::new(1, request))
            .filter(|place| (place.request as usize + 1) % 3 == node);
        for place in own {
            assert!(cluster.nodes[node].released.contains_key(&place), "{place} was decided by elimination");
        }
    }
    cluster.assert_blames_only(&[2]);
    assert_eq!(cluster.log.len(), 2, "two replicas cannot give f+1 REPAIRs, so no turn waits for them");
}

#[test]
fn the_third_replica_comes_back_and_everything_is_repaired() {
    let mut cluster = group();
    cluster.down(1);
    cluster.nodes[2].slips.insert(Place::new(1, 0), Slip::Value(8));
    cluster.order(&[Op::Set(0, 5), Op::Get(1), Op::Get(2), Op::Get(1)]);
    cluster.run();
    cluster.up(1);
    cluster.run();
    cluster.assert_as_if_fault_free();
    cluster.assert_blames_only(&[2]);
}

/// Delivers all messages, without advancing time.
fn deliver_all(cluster: &mut Cluster) {
    for _ in 0..cluster.log.len() {
        cluster.execute();
        while cluster.deliver() {}
    }
}

/// Each replica has another object, and reproduces its own result, because its image differs as well.
fn all_different() -> Cluster {
    let mut cluster = group();
    for (replica, node) in cluster.nodes.iter_mut().enumerate() {
        let mut other = Cluster::new(1, 0).nodes.remove(0).state;
        other.run(Op::Set(0, 100 + replica as u64), false, Slip::None);
        node.state.objects.insert(key(0), other.objects[&key(0)].clone());
    }
    cluster
}

#[test]
fn two_that_differ_accuse_no_handler_before_the_third_is_there() {
    let mut cluster = all_different();
    cluster.down(1);
    cluster.order(&[Op::Get(0)]);
    deliver_all(&mut cluster);
    let held = |cluster: &Cluster, why: Held| {
        cluster.transcript.iter().filter(|line| line.contains(&format!("{why:?}"))).count()
    };
    assert_eq!((held(&cluster, Held::TooFewLive), held(&cluster, Held::EverybodyStands)), (2, 0));
    assert!([0, 2].iter().all(|node| cluster.nodes[*node].evidence.is_empty()), "any two may be faulty");
    cluster.up(1);
    cluster.run();
    assert_eq!(held(&cluster, Held::EverybodyStands), 3, "each operator is told");
    assert!(cluster.nodes.iter().all(|node| node.evidence[0].class == FaultClass::Nondeterminism));
}

/// The third replica begins anew after the batch, and has no vote on it.
#[test]
fn two_that_differ_accuse_no_handler_if_the_third_vote_is_lost() {
    let mut cluster = all_different();
    cluster.down(1);
    cluster.order(&[Op::Get(0)]);
    deliver_all(&mut cluster);
    for node in [0, 2] {
        cluster.handle(node, Event::PeerReplaced { replica: 1, first_batch: 2 });
        cluster.handle(node, Event::PeerUp(1));
        assert!(cluster.nodes[node as usize].evidence.is_empty(), "any two may have been faulty");
    }
    let held = |why: Held| cluster.transcript.iter().any(|line| line.contains(&format!("{why:?}")));
    assert!(held(Held::VoteLost) && !held(Held::EverybodyStands));
}

#[test]
fn all_different_and_all_stand_by_it() {
    let mut cluster = all_different();
    cluster.order(&[Op::Add(2, 1), Op::Get(0), Op::Get(1)]);
    deliver_all(&mut cluster);
    let held = Place::new(1, 1);
    for node in &cluster.nodes {
        assert_eq!(node.held, [held]);
        assert!(!node.released.contains_key(&held), "a reply nobody can vouch for must not leave");
        assert_eq!(node.evidence[0].class, FaultClass::Nondeterminism);
    }
    let reported: Vec<_> = cluster
        .transcript
        .iter()
        .filter(|line| line.contains(&format!("{:?}", Held::EverybodyStands)))
        .collect();
    assert_eq!(reported.len(), 3, "each operator is told once");
    // Other requests continue, in the same batch and in later ones.
    assert!(cluster.nodes[1].released.contains_key(&Place::new(1, 0)));
    assert!(cluster.nodes[0].released.contains_key(&Place::new(1, 2)));
    for _ in 0..100 {
        cluster.order(&[Op::Get(1), Op::Add(2, 1)]);
    }
    deliver_all(&mut cluster);
    let left: usize = cluster.nodes.iter().map(|node| node.released.len()).sum();
    assert_eq!(left, 3 + 2 + 200);
}

/// The second of three requests panics at every replica.
fn abandoned_by_all() -> Cluster {
    let mut cluster = group();
    for node in &mut cluster.nodes {
        node.slips.insert(Place::new(1, 1), Slip::Panic);
    }
    cluster.order(&[Op::Get(0), Op::Get(1), Op::Get(2)]);
    cluster.run();
    cluster
}

#[test]
fn everybody_abandons_the_request() {
    let cluster = abandoned_by_all();
    let dropped = (Place::new(1, 1), Dropped::NoResult);
    assert_eq!(cluster.nodes[2].dropped, [dropped], "no reply exists anywhere");
    for node in &cluster.nodes {
        assert_eq!(node.evidence.iter().map(|e| e.class).collect::<Vec<_>>(), [FaultClass::SoftwareBug]);
    }
    assert!(cluster.nodes[1].released.contains_key(&Place::new(1, 0)));
}

/// Found by a simulation: long after that, the others were silent for a while. The remaining replica took their votes
/// for undecided, held the request, blamed itself, and waited for ever for a decision.
#[test]
fn what_nobody_has_a_result_for_is_not_asked_again_when_replicas_go() {
    let mut cluster = abandoned_by_all();
    cluster.down(0);
    cluster.down(1);
    cluster.run();
    assert_eq!(cluster.nodes[2].held, []);
    assert_eq!(cluster.nodes[2].evidence.len(), 1);
}

#[test]
fn two_of_three_abandon_it() {
    let mut cluster = group();
    for replica in [0, 1] {
        cluster.nodes[replica].slips.insert(Place::new(1, 1), Slip::Panic);
    }
    cluster.order(&[Op::Get(0), Op::Get(1), Op::Get(2)]);
    cluster.run();
    assert!(cluster.nodes[2].released.keys().all(|place| place.batch == 0), "one result is not f+1");
    assert!(cluster.nodes.iter().all(|node| node.held == [Place::new(1, 1)]));
    assert!(
        cluster.nodes.iter().all(|node| node.evidence.iter().any(|e| e.class == FaultClass::SoftwareBug))
    );
}

#[test]
fn elimination_needs_somebody_who_stepped_back() {
    let mut votes = Votes::default();
    votes[0].add_value(7);
    votes[1].add_value(7);
    let (live, stands) = (Set::first(2), Set::first(2));
    assert_eq!(by_elimination(&votes, live, stands, 2), None, "two of five that agree are not three");
    votes[2].blame();
    assert_eq!(by_elimination(&votes, live, stands, 2), Some(7));
    assert_eq!(
        by_elimination(&votes, live, stands.without(1), 2),
        None,
        "replica 1 has not examined itself yet"
    );
    votes[3].blame();
    votes[4].blame();
    assert_eq!(by_elimination(&votes, live, stands, 2), None, "f+1 that step back are a bug, not faults");
}

/// Two of five are wrong: replica 2, which has a result of its own, and replica 3, which blames itself. The other three
/// send the messages of `others`, and nothing more. Returns the commands of replica 2.
fn left_over(others: impl Fn(Replica) -> Vec<Event>) -> Vec<Command> {
    let mut voter = Voter::new(Config::new(5, 2, 4, 0));
    let mut commands = Vec::new();
    let place = Place::new(0, 0);
    let mut tell = |event| voter.handle(event, 0, &mut commands);
    let request_info = RequestInfo { mine: true, ..RequestInfo::default() };
    let requests = vec![RequestResult::new(request_info, Pairs::new(), Bytes::from_static(b"wrong"))];
    let own = requests[0].digest;
    tell(Event::Executed { batch: 0, requests });
    tell(Event::Message { from: 3, message: Message::SelfBlame { place, failure: Failure::Panic } });
    [0, 1, 4].into_iter().flat_map(others).for_each(&mut tell);
    tell(Event::Rechecked { place, corrupt: Vec::new() });
    tell(Event::Reexecuted { place, outcome: Reexecution::Digest(own) });
    let left = commands.iter().any(|command| matches!(command, Command::Release { .. }));
    assert!(!left, "a reply that nobody else has must not leave");
    let blames_others = |command: &Command| match command {
        Command::Evidence(evidence) => ![2, 3].contains(&evidence.replica),
        _ => false,
    };
    assert!(!commands.iter().any(blames_others), "{commands:?}");
    commands
}

fn begins_anew(commands: &[Command]) -> bool {
    commands.iter().any(|command| matches!(command, Command::ReplaceSelf(BeyondRepair::TooLate)))
}

/// Found by seed 40000011 of the simulation: a replica that was left over with a peer that blames itself took its own
/// result for the right one, and blamed the replicas that had closed the batch.
#[test]
fn who_is_left_over_after_the_others_have_closed_decides_nothing() {
    for digest in [Some(7), None] {
        let gone = |from| vec![Event::Message { from, message: Message::Forgotten { batch: 0, digest } }];
        assert!(begins_anew(&left_over(gone)));
    }
}

#[test]
fn who_is_left_over_after_the_others_began_anew_decides_nothing() {
    assert!(begins_anew(&left_over(|replica| vec![Event::PeerReplaced { replica, first_batch: 5 }])));
}

/// They voted, and are absent before they can send the details.
#[test]
fn who_is_left_over_by_those_who_voted_otherwise_decides_nothing() {
    let away = |from| {
        let message = Message::Check { first: 0, digests: [7].into_iter().collect() };
        vec![Event::Message { from, message }, Event::PeerDown(from)]
    };
    let commands = left_over(away);
    assert!(!begins_anew(&commands), "nobody is there to fill it");
    assert!(commands.iter().any(|command| matches!(command, Command::Held { .. })));
}
