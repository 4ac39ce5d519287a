//! No f+1 agree although all are up: after a while the group settles on one version, and no faulty proposer can make it
//! do so.

use super::cluster::Cluster;
use super::service::{Entry, Op, REGION_IDS, Slip, State, key};
use crate::limits::{REPAIR_GIVE_UP_US, SETTLE_AFTER_US, SETTLE_MEMORY_US, SETTLE_TRIES, UNDECIDED_REQUESTS};
use crate::{
    Command, Config, Dropped, Event, Evidence, FaultClass, FaultStage, Held, Message, Place, Recover,
    Reexecution, Replica, RequestResult, Scope, Voter, digest,
};

/// A group that cannot run requests again, so that every replica stands by its result.
fn group(replicas: u8) -> Cluster {
    let mut cluster = Cluster::new(replicas, 21);
    cluster.keeps_images = false;
    cluster.order(&[Op::Set(0, 1), Op::Set(1, 2), Op::Set(2, 3), Op::Set(3, 4)]);
    cluster.run();
    cluster
}

/// A request has another value at each replica.
fn differs(cluster: &mut Cluster, place: Place) {
    for (replica, node) in (0..).zip(&mut cluster.nodes) {
        node.slips.insert(place, Slip::Value(1 << replica));
    }
}

/// A batch whose first request is not deterministic.
fn order_one(cluster: &mut Cluster, ops: &[Op]) -> Place {
    let place = Place::new(cluster.order(ops), 0);
    differs(cluster, place);
    place
}

fn deliver_all(cluster: &mut Cluster) {
    for _ in 0..cluster.log.len() {
        cluster.execute();
        while cluster.deliver() {}
    }
}

fn pass_time(cluster: &mut Cluster, us: u64) {
    for _ in 0..us / 50_000 {
        cluster.tick(50_000);
        deliver_all(cluster);
    }
}

fn recovers(cluster: &Cluster) -> Vec<Recover> {
    let recover = |entry: &Entry| match entry {
        Entry::Recover(recover) => Some(recover.clone()),
        Entry::Op(_) => None,
    };
    cluster.log.iter().flatten().filter_map(recover).collect()
}

fn dropped(cluster: &Cluster) -> Vec<(Place, Dropped)> {
    let mut dropped: Vec<_> = cluster.nodes.iter().flat_map(|node| node.dropped.iter().copied()).collect();
    dropped.sort_unstable_by_key(|(place, _)| *place);
    dropped
}

fn settled(evidence: &[Evidence]) -> Vec<&Evidence> {
    evidence.iter().filter(|one| one.settled_on.is_some()).collect()
}

fn assert_equal_states(cluster: &Cluster) {
    for node in &cluster.nodes[1..] {
        assert_eq!(node.state, cluster.nodes[0].state);
    }
}

/// Another request on all objects: all replicas agree, and there is no evidence.
fn assert_agreed(cluster: &mut Cluster) {
    let before: Vec<_> = cluster.nodes.iter().map(|node| node.voter.counters().mismatched_batches).collect();
    let batch = cluster.order(&[Op::Get(0), Op::Get(1), Op::Get(2), Op::Get(3), Op::Add(0, 3)]);
    cluster.run();
    let after: Vec<_> = cluster.nodes.iter().map(|node| node.voter.counters().mismatched_batches).collect();
    assert_eq!(before, after);
    let left = cluster.nodes.iter().flat_map(|node| node.released.keys()).filter(|at| at.batch == batch);
    assert_eq!(left.count(), 5);
    assert_equal_states(cluster);
    for node in &cluster.nodes {
        assert!(node.held.is_empty() && node.replace.is_empty() && node.given_up == 0);
        assert!(node.voter.is_settled());
    }
}

#[test]
fn a_request_that_is_not_deterministic_is_settled_within_the_bound() {
    for replicas in [3, 5] {
        let mut cluster = group(replicas);
        let place = order_one(&mut cluster, &[Op::Set(0, 500), Op::Get(1)]);
        deliver_all(&mut cluster);
        assert!(cluster.nodes.iter().all(|node| node.held == [place]));
        pass_time(&mut cluster, SETTLE_AFTER_US - 100_000);
        assert_eq!((recovers(&cluster), dropped(&cluster)), (vec![], vec![]), "it may be decided yet");
        pass_time(&mut cluster, 200_000);
        assert_eq!(dropped(&cluster), [(place, Dropped::NoMajority)], "the other reply has left");
        let [recover] = &recovers(&cluster)[..] else { panic!("{:?}", recovers(&cluster)) };
        assert_eq!((recover.scope, recover.cause, recover.proposer), (Scope::SettleOn(0), place, 0));
        assert_eq!((&recover.objects[..], &recover.regions[..]), (&[key(0)][..], &[][..]));
        assert_eq!(cluster.nodes[2].state.objects[&key(0)].value, 500 ^ 1, "what replica 0 came to");
        for node in &cluster.nodes {
            let [one] = settled(&node.evidence)[..] else { panic!("{:?}", node.evidence) };
            assert_eq!((one.class, one.settled_on), (FaultClass::Nondeterminism, Some(0)));
            assert_eq!((one.batch, one.request, one.wrong_total), (place.batch, Some(0), 1));
            assert_eq!((one.wrong[0].region_id, one.wrong[0].id), key(0));
            assert_eq!((node.voter.counters().settled, node.voter.counters().recovers_refused), (1, 0));
        }
        assert_agreed(&mut cluster);
    }
}

/// Requests on the object continue meanwhile, and each differs again.
#[test]
fn one_settling_closes_all_requests_before_it() {
    let mut cluster = group(3);
    let first = order_one(&mut cluster, &[Op::Set(0, 500)]);
    for _ in 0..30 {
        cluster.order(&[Op::Get(0), Op::Add(2, 0)]);
    }
    cluster.run();
    assert_eq!(recovers(&cluster).len(), 1, "objects of one region go together: {:?}", recovers(&cluster));
    let dropped = dropped(&cluster);
    assert_eq!(dropped.len(), 61);
    assert!(dropped.iter().all(|(place, why)| *place >= first && *why == Dropped::NoMajority));
    assert!(cluster.nodes.iter().all(|node| settled(&node.evidence).len() == 1));
    assert_agreed(&mut cluster);
}

#[test]
fn more_requests_than_are_kept_are_closed_as_well() {
    let mut cluster = group(3);
    order_one(&mut cluster, &[Op::Set(0, 500)]);
    let more = UNDECIDED_REQUESTS / 10 + 20;
    for _ in 0..more {
        cluster.order(&[Op::Get(0); 10]);
    }
    cluster.run();
    assert_eq!(recovers(&cluster).len(), 1);
    assert_eq!(dropped(&cluster).len(), 1 + 10 * more);
    assert_agreed(&mut cluster);
}

#[test]
fn replies_that_differ_alone_are_dropped_alone() {
    let mut cluster = group(3);
    let tampers: [fn(&mut RequestResult); 3] =
        [|one| answer(one, b'a'), |one| answer(one, b'b'), |one| answer(one, b'c')];
    let place = Place::new(cluster.order(&[Op::Get(0), Op::Get(1)]), 0);
    for (node, tamper) in cluster.nodes.iter_mut().zip(tampers) {
        node.tamper.insert(place, tamper);
    }
    pass_time(&mut cluster, SETTLE_AFTER_US - 100_000);
    assert_eq!(dropped(&cluster), []);
    cluster.run();
    assert_eq!(dropped(&cluster), [(place, Dropped::NoMajority)]);
    assert_eq!(recovers(&cluster), [], "no object differs");
    assert_agreed(&mut cluster);
}

fn answer(result: &mut RequestResult, byte: u8) {
    *result = RequestResult::new(result.request_info, result.pairs.clone(), vec![byte; 4].into());
}

#[test]
fn two_of_three_that_differ_do_not_settle() {
    let mut cluster = group(3);
    cluster.down(2);
    let place = order_one(&mut cluster, &[Op::Set(0, 500)]);
    pass_time(&mut cluster, 5 * SETTLE_AFTER_US);
    assert_eq!((recovers(&cluster), dropped(&cluster)), (vec![], vec![]));
    assert!(cluster.nodes[..2].iter().all(|node| node.held == [place]));
    // The third has the value of replica 1.
    cluster.nodes[2].slips.insert(place, Slip::Value(2));
    cluster.up(2);
    cluster.run();
    assert_eq!(dropped(&cluster), []);
    assert!(recovers(&cluster).iter().all(|recover| recover.scope == Scope::Faulty(0)));
    assert_equal_states(&cluster);
    assert_eq!(cluster.nodes[0].state.objects[&key(0)].value, 500 ^ 2);
}

/// The third is back and differs too: then all are up.
#[test]
fn what_the_third_replica_does_not_decide_is_settled() {
    let mut cluster = group(3);
    cluster.down(2);
    order_one(&mut cluster, &[Op::Set(0, 500)]);
    pass_time(&mut cluster, 3 * SETTLE_AFTER_US);
    cluster.up(2);
    cluster.run();
    assert_eq!(recovers(&cluster).len(), 1);
    assert_agreed(&mut cluster);
}

/// A handler with another result at each replica, whenever it runs on this object.
#[test]
fn an_object_that_differs_again_and_again_is_left_to_the_operator() {
    let mut cluster = group(3);
    for round in 0..SETTLE_TRIES + 3 {
        let place = order_one(&mut cluster, &[Op::Set(0, 500 + u64::from(round) * 64)]);
        cluster.run();
        assert_eq!(dropped(&cluster).last(), Some(&(place, Dropped::NoMajority)), "no client waits for ever");
    }
    let regions: Vec<usize> = recovers(&cluster).iter().map(|recover| recover.regions.len()).collect();
    assert_eq!(regions, [0, 1, 1], "as a whole from the second time on");
    for evidence in cluster.nodes.iter().flat_map(|node| settled(&node.evidence)) {
        assert_eq!(
            (evidence.wrong[0].region_id, evidence.wrong[0].id),
            key(0),
            "the object is named all the same"
        );
    }
    for node in &cluster.nodes {
        assert_eq!(node.not_settled, [key(0)], "each operator is told once");
        assert!(node.voter.is_settled() && node.held.is_empty());
    }
    // Other objects are settled nevertheless; this one counts again after a long time without differences.
    order_one(&mut cluster, &[Op::Set(1, 500)]);
    cluster.run();
    assert_eq!(recovers(&cluster).len(), 4);
    cluster.tick(SETTLE_MEMORY_US);
    order_one(&mut cluster, &[Op::Set(0, 9000)]);
    cluster.run();
    assert_agreed(&mut cluster);
}

/// A SCRUB compares a digest of the whole region under the id of its root.
#[test]
fn what_a_request_of_the_pipeline_shows_is_settled_by_regions() {
    let mut cluster = group(3);
    let place = order_one(&mut cluster, &[Op::Set(0, 500)]);
    for node in &mut cluster.nodes {
        node.tamper.insert(place, |result| result.request_info.of_client = false);
    }
    cluster.run();
    let [recover] = &recovers(&cluster)[..] else { panic!("{:?}", recovers(&cluster)) };
    assert_eq!((&recover.objects[..], &recover.regions[..]), (&[][..], &[key(0).0][..]));
    assert_agreed(&mut cluster);
}

fn settle_on(
    source: Replica,
    proposer: Replica,
    cause: Place,
    objects: Vec<(u32, object::ObjectId)>,
) -> Recover {
    Recover { id: 7, proposer, scope: Scope::SettleOn(source), cause, objects, regions: Vec::new() }
}

/// Replica 0 is wrong about an object, and no replica has detected it; then this RECOVER has its turn.
fn with_a_wrong_source(cluster: &mut Cluster, recover: Recover) {
    let mut other = Cluster::new(1, 0).nodes.remove(0).state;
    other.run(Op::Set(0, 666), false, Slip::None);
    cluster.nodes[0].state.objects.insert(key(0), other.objects[&key(0)].clone());
    cluster.log.push(vec![Entry::Recover(recover)]);
    deliver_all(cluster);
}

fn assert_refused(cluster: &Cluster, proposer: Replica) {
    for node in &cluster.nodes[1..] {
        assert_eq!(node.state.objects[&key(0)].value, 1, "a healthy object was overwritten");
        let reported = |one: &&Evidence| (one.replica, one.stage) == (proposer, FaultStage::Message);
        assert_eq!(node.evidence.iter().filter(reported).count(), 1, "{:?}", node.evidence);
        assert_eq!((node.passed, node.given_up, node.voter.counters().recovers_refused), (1, 0, 1));
        assert_eq!(node.voter.counters().settled, 0);
    }
}

#[test]
fn a_settling_without_a_disagreement_is_refused() {
    for cause in [Place::default(), Place::new(0, 3), Place::new(77, 0)] {
        let mut cluster = group(3);
        with_a_wrong_source(&mut cluster, settle_on(0, 2, cause, vec![key(0)]));
        assert_refused(&cluster, 2);
    }
}

/// There is a disagreement, but about another object, or with another source, or not about whole regions.
#[test]
fn a_settling_of_something_else_is_refused() {
    let cause = Place::new(1, 0);
    let other_object = settle_on(0, 0, cause, vec![key(0)]);
    let both = settle_on(0, 0, cause, vec![key(0), key(1)]);
    let other_cause = settle_on(0, 0, Place::new(0, 0), vec![key(1)]);
    let region =
        Recover { objects: Vec::new(), regions: vec![key(0).0], ..settle_on(0, 0, cause, Vec::new()) };
    for recover in [other_object, both, other_cause, region] {
        let mut cluster = group(3);
        order_one(&mut cluster, &[Op::Set(1, 500)]);
        deliver_all(&mut cluster);
        with_a_wrong_source(&mut cluster, recover);
        assert_refused(&cluster, 0);
    }
    let mut cluster = group(3);
    order_one(&mut cluster, &[Op::Set(1, 500)]);
    deliver_all(&mut cluster);
    cluster.log.push(vec![Entry::Recover(settle_on(2, 2, cause, vec![key(1)]))]);
    deliver_all(&mut cluster);
    assert!(cluster.nodes.iter().all(|node| node.voter.counters().recovers_refused == 1));
    assert_eq!(cluster.nodes[1].state.objects[&key(1)].value, 500 ^ 2, "its own version");
}

/// One disputed object is no reason to take a whole region from one replica, before that object was settled once.
#[test]
fn a_settling_of_the_whole_region_is_refused_at_first() {
    let mut cluster = group(3);
    let cause = order_one(&mut cluster, &[Op::Set(0, 500)]);
    deliver_all(&mut cluster);
    cluster.nodes[0].state.run(Op::Set(2, 666), false, Slip::None);
    let (objects, regions) = (Vec::new(), vec![key(0).0]);
    let recover = Recover { objects, regions, ..settle_on(0, 2, cause, Vec::new()) };
    cluster.log.push(vec![Entry::Recover(recover)]);
    deliver_all(&mut cluster);
    for node in &cluster.nodes[1..] {
        assert_eq!(node.state.objects[&key(2)].value, 3, "nobody disagreed about it");
        assert_eq!(node.voter.counters().recovers_refused, 1);
    }
}

/// All stood by their results, and one is absent: it may come back as another process that decides.
#[test]
fn nothing_is_settled_while_a_replica_is_away() {
    let mut cluster = group(3);
    order_one(&mut cluster, &[Op::Set(0, 500)]);
    deliver_all(&mut cluster);
    cluster.down(2);
    pass_time(&mut cluster, 3 * SETTLE_AFTER_US);
    assert_eq!((recovers(&cluster), dropped(&cluster)), (vec![], vec![]));
    cluster.up(2);
    cluster.run();
    assert_agreed(&mut cluster);
}

/// A difference at a replica is gone with its old memory; the next request on the object shows whether it still
/// differs.
#[test]
fn what_a_replica_held_in_an_earlier_incarnation_is_not_settled() {
    let mut cluster = group(3);
    let cause = order_one(&mut cluster, &[Op::Set(0, 500)]);
    deliver_all(&mut cluster);
    for peer in [0, 1] {
        cluster.handle(peer, Event::PeerReplaced { replica: 2, first_batch: cause.batch + 1 });
    }
    for _ in 0..100 {
        for peer in [0, 1] {
            cluster.now_us += 50_000;
            cluster.handle(peer, Event::Tick);
        }
    }
    assert_eq!(recovers(&cluster), []);
    cluster.log.push(vec![Entry::Recover(settle_on(0, 0, cause, vec![key(0)]))]);
    deliver_all(&mut cluster);
    let reported = |at: usize| cluster.nodes[at].voter.counters().recovers_refused;
    assert_eq!(
        (reported(0), reported(1), cluster.nodes[1].passed),
        (0, 0, 1),
        "it was proposed before, and comes too late"
    );
}

/// The vote of replica 1 was corrupted in transit: its object is equal to that of replica 0.
#[test]
fn what_is_decided_after_all_is_not_settled() {
    let mut voter = Voter::new(Config::new(3, 0, REGION_IDS, 0));
    let mut commands = Vec::new();
    let mut states: Vec<State> = (0..3).map(|_| State::default()).collect();
    let results: Vec<RequestResult> =
        (0..3u64).map(|at| states[at as usize].run(Op::Set(0, 5), true, Slip::Value(1 << at))).collect();
    let place = Place::new(0, 0);
    let mut now_us = 0;
    let mut tell = |event: Event| {
        now_us += 100;
        voter.handle(event, now_us, &mut commands);
    };
    tell(Event::Executed { batch: 0, requests: vec![results[0].clone()] });
    for from in [1, 2] {
        let result = &results[usize::from(from)];
        let (answer, pairs) = (result.answer(), result.pairs.clone());
        let total = pairs.len() as u32;
        let digests = vec![Some(result.digest)];
        tell(Event::Message { from, message: Message::Digests { batch: 0, digests } });
        tell(Event::Message { from, message: Message::Pairs { place, answer, total, first: 0, pairs } });
        tell(Event::Message { from, message: Message::Confirm { place } });
    }
    tell(Event::Rechecked { place, corrupt: Vec::new() });
    tell(Event::Reexecuted { place, outcome: Reexecution::NotKept });
    let digest = digest::batch(0, [results[0].digest].into_iter(), &mut Vec::new());
    tell(Event::Message {
        from: 1,
        message: Message::Check { first: 0, digests: [digest].into_iter().collect() },
    });
    let is_held = |command: &Command| matches!(command, Command::Held { why: Held::EverybodyStands, .. });
    assert!(commands.iter().any(is_held), "{commands:?}");
    assert!(commands.iter().any(|command| matches!(command, Command::Release { .. })), "{commands:?}");
    commands.clear();
    voter.handle(Event::Tick, 2 * SETTLE_AFTER_US, &mut commands);
    let settles =
        |command: &Command| matches!(command, Command::ProposeRecover(_) | Command::DropReply { .. });
    assert!(!commands.iter().any(settles), "{commands:?}");
    let recover = settle_on(0, 1, place, vec![key(0)]);
    let (turn, packed) = (Place::new(1, 0), Vec::new());
    voter.handle(
        Event::RecoverTurn { turn, time_us: 0, recover, packed },
        2 * SETTLE_AFTER_US,
        &mut commands,
    );
    assert_eq!((voter.counters().settled, voter.counters().recovers_refused), (0, 0), "it came too late");
}

/// The source was right when the group settled; a later fault there must not spread by the same RECOVER again.
#[test]
fn the_same_settling_ordered_twice_settles_once() {
    let mut cluster = group(3);
    order_one(&mut cluster, &[Op::Set(0, 500)]);
    cluster.run();
    let again = recovers(&cluster)[0].clone();
    with_a_wrong_source(&mut cluster, again);
    for node in &cluster.nodes[1..] {
        assert_eq!(node.state.objects[&key(0)].value, 500 ^ 1);
        assert_eq!(
            (node.passed, node.voter.counters().recovers_refused),
            (1, 0),
            "it is no news, and no lie"
        );
    }
    assert_agreed(&mut cluster);
}

#[test]
fn the_next_replica_proposes_when_the_lowest_does_not() {
    let mut cluster = group(3);
    order_one(&mut cluster, &[Op::Set(0, 500)]);
    for _ in 0..40 {
        deliver_all(&mut cluster);
        cluster.tick(50_000);
        cluster.log.retain(|entries| !matches!(entries[..], [Entry::Recover(Recover { proposer: 0, .. })]));
    }
    cluster.run();
    assert_eq!(recovers(&cluster)[0].proposer, 1);
    assert_agreed(&mut cluster);
}

/// The objects of the source do not arrive. All others wait for them, and none of them may blame itself for that.
#[test]
fn a_silent_source_is_not_waited_for() {
    let mut cluster = group(3);
    order_one(&mut cluster, &[Op::Set(0, 500)]);
    let is_repair = |message: &Message| matches!(message, Message::Repair { .. });
    cluster.on_wire = Box::new(move |_, _, message| (!is_repair(&message)).then_some(message));
    pass_time(&mut cluster, SETTLE_AFTER_US + REPAIR_GIVE_UP_US + 200_000);
    for node in &cluster.nodes[1..] {
        assert_eq!((node.passed, node.given_up, node.waits_for_install), (1, 0, None));
    }
    cluster.on_wire = Box::new(|_, _, message| Some(message));
    cluster.order(&[Op::Get(0)]);
    cluster.run();
    assert_agreed(&mut cluster);
}

/// Random requests of which some are not deterministic, over links that lose, duplicate and reorder messages.
#[test]
fn whatever_is_lost_on_the_way_the_group_settles() {
    for seed in 0..60 {
        let mut cluster = Cluster::new(if seed % 3 == 0 { 5 } else { 3 }, seed);
        cluster.keeps_images = false;
        (cluster.reorder, cluster.loss) = (seed % 2 == 0, [0, 20, 6][seed as usize % 3]);
        cluster.order(&[Op::Set(0, 1), Op::Set(1, 2), Op::Set(2, 3), Op::Set(3, 4)]);
        cluster.run();
        for _ in 0..3 {
            let key = cluster.chance.modulo(4) as u8;
            order_one(&mut cluster, &[Op::Set(key, 640), Op::Add(key, 3), Op::Get(2)]);
            if cluster.chance.once_in(2) {
                cluster.run();
            }
        }
        cluster.run();
        cluster.order(&[Op::Get(0), Op::Get(1), Op::Get(2), Op::Get(3)]);
        cluster.run();
        assert_equal_states(&cluster);
        let left: usize = cluster.nodes.iter().map(|node| node.released.len()).sum();
        assert_eq!(left + dropped(&cluster).len(), 4 + 3 * 3 + 4, "seed {seed}: each client has an end");
        let refused: u64 = cluster.nodes.iter().map(|node| node.voter.counters().recovers_refused).sum();
        assert_eq!(refused, 0, "seed {seed}");
        assert!(
            cluster.nodes.iter().all(|node| node.voter.is_settled() && node.held.is_empty()),
            "seed {seed}"
        );
    }
}
