//! Repair in detail: pieces, regions, settled requests, proposers, limits, late and lost messages.

use bytes::Bytes;
use object::ObjectId;
use wire::SplitMix64;

use super::cluster::Cluster;
use super::service::{Entry, Op, REGION_IDS, Slip, key};
use crate::limits::*;
use crate::{
    BeyondRepair, Command, Config, Content, Event, Message, Packed, Place, Recover, Scope, To, Voter,
};

fn group() -> Cluster {
    let mut cluster = Cluster::new(3, 11);
    cluster.order(&[Op::Set(0, 1), Op::Set(1, 2), Op::Set(2, 3), Op::Set(3, 4)]);
    cluster.run();
    cluster
}

fn recovers(cluster: &Cluster) -> Vec<&Recover> {
    let entries = cluster.log.iter().flatten();
    entries
        .filter_map(|entry| if let Entry::Recover(recover) = entry { Some(recover) } else { None })
        .collect()
}

#[test]
fn what_one_round_finds_goes_into_one_recover() {
    let mut cluster = group();
    for request in 0..3 {
        cluster.nodes[1].slips.insert(Place::new(1, request), Slip::Value(1));
    }
    cluster.order(&[Op::Set(0, 9), Op::Set(1, 9), Op::Set(3, 9)]);
    cluster.run();
    let recovers = recovers(&cluster);
    assert!(recovers.len() <= 2, "{recovers:?}");
    assert!(recovers.iter().all(|recover| (recover.scope, recover.proposer) == (Scope::Faulty(1), 0)));
    let mut named: Vec<_> = recovers.iter().flat_map(|recover| recover.objects.clone()).collect();
    named.sort_unstable();
    named.dedup();
    assert_eq!(
        named,
        [key(0), key(1), key(3)]
            .into_iter()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    );
    cluster.assert_as_if_fault_free();
}

#[test]
fn a_donor_sends_all_objects_of_a_recover_in_one_message() {
    let mut cluster = group();
    let counted = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let counts = std::rc::Rc::clone(&counted);
    cluster.on_wire = Box::new(move |from, _, message| {
        if let Message::Repair { turn, parts } = &message {
            counts.borrow_mut().push((*turn, from, parts.len()));
        }
        Some(message)
    });
    let objects: Vec<_> = std::collections::BTreeSet::from([0, 1, 2, 3].map(key)).into_iter().collect();
    let cause = Place::new(0, 0);
    let recover =
        Recover { id: 1, proposer: 0, scope: Scope::Faulty(2), cause, objects, regions: Vec::new() };
    cluster.log.push(vec![Entry::Recover(recover)]);
    cluster.run();
    let turn = Place::new(1, 0);
    assert_eq!(*counted.borrow(), [(turn, 0, 4), (turn, 1, 4)]);
    cluster.assert_as_if_fault_free();
}

#[test]
fn requests_before_the_turn_are_settled_by_it() {
    let mut cluster = group();
    cluster.nodes[2].slips.insert(Place::new(1, 0), Slip::Value(1));
    // The wrong value is read repeatedly before the RECOVER gets its turn.
    for _ in 0..20 {
        cluster.order(&[Op::Get(0), Op::Set(0, 4)]);
    }
    cluster.nodes[2].slips.insert(Place::new(5, 1), Slip::Value(2));
    for _ in 0..20 {
        for replica in 0..3 {
            cluster.execute_at(replica);
        }
    }
    cluster.run();
    assert_eq!(recovers(&cluster).len(), 1, "all twenty mismatches lie before the turn");
    cluster.assert_as_if_fault_free();
}

#[test]
fn the_next_replica_proposes_when_the_lowest_does_not() {
    let mut cluster = group();
    cluster.nodes[2].slips.insert(Place::new(1, 0), Slip::Value(1));
    cluster.order(&[Op::Set(0, 9)]);
    // The proposals of replica 0 are lost.
    for _ in 0..10 {
        cluster.execute();
        while cluster.deliver() {}
        cluster.log.retain(|entries| !matches!(entries[..], [Entry::Recover(Recover { proposer: 0, .. })]));
        cluster.tick(60_000);
    }
    cluster.run();
    assert!(recovers(&cluster).iter().any(|recover| recover.proposer == 1));
    cluster.assert_as_if_fault_free();
}

#[test]
fn a_region_repaired_again_and_again_is_repaired_as_a_whole() {
    let mut cluster = group();
    let before = REPAIRS_BEFORE_REGION as u64;
    for round in 0..before + 3 {
        let batch = cluster.order(&[Op::Set(0, round)]);
        cluster.nodes[1].slips.insert(Place::new(batch, 0), Slip::Value(1));
        cluster.run();
    }
    let recovers = recovers(&cluster);
    let regions: Vec<usize> = recovers.iter().map(|recover| recover.regions.len()).collect();
    let expected: Vec<usize> = (0..before + 3).map(|round| (round == before) as usize).collect();
    assert_eq!(regions, expected);
    cluster.assert_as_if_fault_free();
}

#[test]
fn too_many_repairs_replace_the_replica() {
    let limit = 10;
    let mut cluster = group();
    for (me, node) in (0..).zip(&mut cluster.nodes) {
        node.voter = Voter::new(Config::new(3, me, REGION_IDS, 1).with_repair_limit(limit));
    }
    let repair_once = |cluster: &mut Cluster, round: u64| {
        let batch = cluster.order(&[Op::Set((round % 4) as u8, round)]);
        cluster.nodes[1].slips.insert(Place::new(batch, 0), Slip::Value(1));
        cluster.run();
    };
    for round in 0..limit as u64 {
        repair_once(&mut cluster, round);
    }
    assert!(
        cluster.nodes.iter().all(|node| node.replace.is_empty()),
        "up to the limit, objects are repaired"
    );
    repair_once(&mut cluster, 1);
    let why = BeyondRepair::TooManyRepairs;
    assert!(matches!(cluster.nodes[1].replace[..], [Command::ReplaceSelf(reason)] if reason == why));
    for peer in [0, 2] {
        assert!(matches!(cluster.nodes[peer].replace[..],
            [Command::PeerBeyondRepair { replica: 1, why: reason }] if reason == why));
    }
}

/// Drives voters directly: one RECOVER of large objects at replica 2, with messages lost and reordered.
fn transfer(packed: Vec<Packed>, recover: Recover, loss: u64) -> Option<Vec<Packed>> {
    let turn = Place::new(0, 0);
    let mut voters: Vec<Voter> = (0..3).map(|me| Voter::new(Config::new(3, me, 4, 0))).collect();
    let mut chance = SplitMix64::new(loss);
    let (mut network, mut installed, mut now_us) = (Vec::new(), None, 0);
    let event = |packed| Event::RecoverTurn { turn, time_us: 0, recover: recover.clone(), packed };
    let mut events: Vec<(u8, Event)> =
        vec![(0, event(packed.clone())), (1, event(packed)), (2, event(Vec::new()))];
    for _ in 0..20_000 {
        for (to, event) in events.drain(..) {
            let mut commands = Vec::new();
            voters[to as usize].handle(event, now_us, &mut commands);
            for command in commands {
                match command {
                    Command::Send { to: whom, message } => {
                        let meant = |peer: &u8| *peer != to && (whom == To::All || whom == To::One(*peer));
                        (0..3).filter(meant).for_each(|peer| network.push((to, peer, message.clone())));
                    }
                    Command::Install { objects, .. } => installed = Some(objects),
                    _ => {}
                }
            }
        }
        if installed.is_some() {
            return installed;
        }
        if network.is_empty() {
            now_us += ASK_AFTER_US;
            events.push((2, Event::Tick));
            continue;
        }
        let (from, to, message) = network.swap_remove(chance.modulo(network.len() as u64) as usize);
        if loss == 0 || !chance.once_in(loss) {
            events.push((to, Event::Message { from, message }));
        }
    }
    None
}

#[test]
fn large_objects_and_whole_regions_go_in_pieces() {
    let bytes = |length: usize, salt: u8| {
        Bytes::from((0..length).map(|at| (at / 7) as u8 ^ salt).collect::<Vec<u8>>())
    };
    let id = |counter| ObjectId::new(5, counter);
    let packed = vec![
        Packed { region_id: 1, id: id(0), content: Content::Present(bytes(3 * MAX_PIECE_BYTES + 17, 1)) },
        Packed { region_id: 1, id: id(1), content: Content::Absent },
        Packed { region_id: 1, id: id(2), content: Content::Present(Bytes::new()) },
        Packed { region_id: 1, id: id(3), content: Content::Present(bytes(MAX_PIECE_BYTES, 2)) },
        Packed {
            region_id: 2,
            id: ObjectId::NONE,
            content: Content::Present(bytes(11 * MAX_PIECE_BYTES + 1, 3)),
        },
    ];
    let recover = Recover {
        id: 1,
        proposer: 0,
        scope: Scope::Faulty(2),
        cause: Place::new(0, 0),
        objects: (0..4).map(|counter| (1, id(counter))).collect(),
        regions: vec![2],
    };
    for loss in [0, 3, 10, 50] {
        let mut installed = transfer(packed.clone(), recover.clone(), loss).expect("it arrives");
        installed.sort_by_key(|packed| (packed.region_id, packed.id));
        assert!(installed == packed, "loss 1 in {loss}");
    }
}

#[test]
fn a_damaged_copy_has_no_say() {
    let recover = Recover {
        id: 1,
        proposer: 0,
        scope: Scope::Faulty(2),
        cause: Place::new(0, 0),
        objects: vec![(1, ObjectId::new(5, 0))],
        regions: vec![],
    };
    let damaged = vec![Packed { region_id: 1, id: ObjectId::new(5, 0), content: Content::Damaged }];
    assert_eq!(transfer(damaged, recover, 0), None, "nothing but damaged copies: the turn is held");
}

#[test]
fn a_replica_that_was_paused_releases_its_replies_and_is_compared() {
    let mut cluster = group();
    cluster.down(2);
    for _ in 0..200 {
        cluster.order(&[Op::Add(0, 1), Op::Get(0), Op::Get(1)]);
    }
    cluster.run();
    cluster.up(2);
    cluster.run();
    cluster.assert_as_if_fault_free();
    cluster.assert_blames_only(&[]);
}

#[test]
fn a_replica_that_was_paused_and_is_wrong_is_replaced() {
    let mut cluster = group();
    cluster.down(2);
    cluster.nodes[2].slips.insert(Place::new(3, 0), Slip::Value(1));
    for _ in 0..200 {
        cluster.order(&[Op::Add(0, 1), Op::Get(0), Op::Get(1)]);
    }
    cluster.run();
    cluster.up(2);
    cluster.run();
    let (_, replies) = cluster.oracle();
    assert!(cluster.nodes[2].released.iter().all(|(place, reply)| replies[place] == *reply));
    assert!(
        cluster.nodes[2].replace.iter().any(|c| matches!(c, Command::ReplaceSelf(BeyondRepair::TooLate)))
    );
}

#[test]
fn a_replica_that_lost_one_peer_for_a_while_and_is_wrong_is_repaired() {
    let mut cluster = group();
    cluster.keeps_images = false;
    cluster.on_wire = Box::new(|from, to, message| (from == 0 || to == 0 || from == to).then_some(message));
    cluster.handle(1, Event::PeerDown(2));
    cluster.handle(2, Event::PeerDown(1));
    cluster.nodes[2].slips.insert(Place::new(3, 0), Slip::Value(1));
    for _ in 0..200 {
        cluster.order(&[Op::Add(0, 1), Op::Get(0), Op::Get(1)]);
    }
    // For a short time only: details are kept for some seconds.
    for _ in 0..200 {
        cluster.execute();
        while cluster.deliver() {}
    }
    cluster.on_wire = Box::new(|_, _, message| Some(message));
    cluster.handle(1, Event::PeerUp(2));
    cluster.handle(2, Event::PeerUp(1));
    cluster.run();
    cluster.assert_as_if_fault_free();
    cluster.assert_blames_only(&[2]);
    assert!(
        cluster.nodes[2].replace.is_empty(),
        "its one lost peer has dropped the details, the other one has them"
    );
}

#[test]
fn repairs_for_a_turn_not_reached_yet_wait() {
    let mut cluster = group();
    cluster.nodes[2].slips.insert(Place::new(1, 0), Slip::Value(1));
    cluster.order(&[Op::Set(0, 9)]);
    cluster.execute();
    while cluster.deliver() {}
    // The healthy ones reach the RECOVER first.
    cluster.execute_at(0);
    cluster.execute_at(1);
    while cluster.deliver() {}
    let before = cluster.network.len();
    cluster.execute_at(2);
    assert_eq!((before, cluster.nodes[2].waits_for_install), (0, None), "all it needs was there already");
    cluster.run();
    cluster.assert_as_if_fault_free();
}

#[test]
fn lost_repairs_are_asked_for_and_given_up_in_the_end() {
    let mut cluster = group();
    cluster.on_wire =
        Box::new(|_, _, message| (!matches!(message, Message::Repair { .. })).then_some(message));
    cluster.nodes[2].slips.insert(Place::new(1, 0), Slip::Value(1));
    cluster.order(&[Op::Set(0, 9)]);
    cluster.run();
    let gave_up: Vec<_> = cluster.nodes.iter().map(|node| node.given_up > 0).collect();
    assert_eq!(gave_up, [false, false, true]);
    assert!(cluster.nodes[2].voter.counters().asks_sent > 0);
    cluster.on_wire = Box::new(|_, _, message| Some(message));
    // The next request that touches a wrong object detects it.
    cluster.order(&[Op::Get(0)]);
    cluster.run();
    cluster.assert_as_if_fault_free();
}

/// The faulty replica waits at one repair while the others continue: the objects for its next repairs must still be
/// kept when it reaches them, even if every first message was lost.
#[test]
fn a_replica_far_behind_gets_every_repair_it_missed() {
    let mut cluster = group();
    let lost = std::rc::Rc::new(std::cell::Cell::new(true));
    let loses = std::rc::Rc::clone(&lost);
    cluster.on_wire = Box::new(move |_, _, message| {
        (!(loses.get() && matches!(message, Message::Repair { .. }))).then_some(message)
    });
    for id in 0..200 {
        let objects = vec![key((id % 4) as u8)];
        let cause = Place::new(0, 0);
        let recover =
            Recover { id, proposer: 0, scope: Scope::Faulty(2), cause, objects, regions: Vec::new() };
        cluster.log.push(vec![Entry::Recover(recover)]);
        cluster.execute_at(0);
        cluster.execute_at(1);
        while cluster.deliver() {}
    }
    lost.set(false);
    cluster.run();
    assert_eq!(cluster.nodes[2].given_up, 0);
    cluster.assert_as_if_fault_free();
}
