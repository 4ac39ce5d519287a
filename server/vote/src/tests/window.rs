//! The window of open batches: a replica that is up and does not vote fills it, and no client waits because of it.

use super::cluster::Cluster;
use super::service::{Op, Slip, State};
use crate::event::Pairs;
use crate::limits::{BATCHES_PER_TICK, IN_EXECUTION_BATCHES, WINDOW_BATCHES};
use crate::message::Ask;
use crate::{BeyondRepair, Command, Config, Event, Message, Place, RequestResult, Voter};

/// Three replicas. The last one is up and never votes. Replica 1 is a batch ahead of replica 0.
fn with_a_mute_one(batches: u64) -> Cluster {
    let mut cluster = Cluster::new(3, 7);
    cluster.on_wire = Box::new(|from, _, message| Some(message).filter(|_| from != 2));
    for _ in 0..batches {
        cluster.order(&[Op::Get(0), Op::Get(1), Op::Get(2)]);
        cluster.execute_at(1);
        while cluster.deliver() {}
        cluster.execute_at(0);
        while cluster.deliver() {}
    }
    cluster
}

/// Replies that clients of replicas 0 and 1 wait for: a third of three per batch each.
fn assert_all_left(cluster: &Cluster) {
    let batches = cluster.log.len();
    for node in &cluster.nodes[..2] {
        assert_eq!(node.released.len(), batches);
        assert!(node.dropped.is_empty() && node.evidence.is_empty() && node.replace.is_empty());
    }
}

#[test]
fn a_full_window_has_room_for_votes_of_peers_that_are_ahead() {
    assert_all_left(&with_a_mute_one(WINDOW_BATCHES + 500));
}

#[test]
fn a_lost_vote_that_a_client_waits_for_is_asked_for_before_older_ones() {
    let mut cluster = with_a_mute_one(2 * BATCHES_PER_TICK as u64);
    let lost = cluster.log.len() as u64;
    cluster.on_wire = Box::new(move |from, _, message| {
        let is_lost = matches!(message, Message::Check { first, .. } if first == lost);
        Some(message).filter(|_| from != 2 && !is_lost)
    });
    cluster.order(&[Op::Get(0), Op::Get(1), Op::Get(2)]);
    for replica in [1, 0] {
        cluster.execute_at(replica);
        while cluster.deliver() {}
    }
    cluster.on_wire = Box::new(|from, _, message| Some(message).filter(|_| from != 2));
    cluster.tick(60_000);
    while cluster.deliver() {}
    assert_all_left(&cluster);
}

/// A voter that has executed batches 0 to 9.
fn ten() -> (Voter, impl FnMut(&mut Voter, u64) -> bool) {
    let mut state = State::default();
    let mut commands = Vec::new();
    let mut execute = move |voter: &mut Voter, batch: u64| {
        let result: RequestResult = state.run(Op::Get(0), false, Slip::None);
        commands.clear();
        voter.handle(Event::Executed { batch, requests: vec![result] }, 1, &mut commands);
        !commands.iter().any(|one| matches!(one, Command::ReplaceSelf(BeyondRepair::Miscounted)))
    };
    let mut voter = Voter::new(Config::new(3, 0, super::service::REGION_IDS, 0));
    assert!((0..10).all(|batch| execute(&mut voter, batch)));
    (voter, execute)
}

/// The effect of a corrupted number: no other replica can detect it, since none knows what was executed here.
#[test]
fn results_under_a_wrong_number_end_the_replica() {
    let (mut voter, mut execute) = ten();
    assert!(!execute(&mut voter, 5), "a second time");
    let (mut voter, mut execute) = ten();
    voter.close_executed();
    assert!(!execute(&mut voter, 5), "a second time, and long closed");
    let (mut voter, mut execute) = ten();
    assert!(!execute(&mut voter, 10 | 1 << 25), "from far ahead");
    assert!(execute(&mut voter, 9 + IN_EXECUTION_BATCHES), "the last that may be in execution");
    let (mut voter, mut execute) = ten();
    let mut behind = 11..=10 + IN_EXECUTION_BATCHES;
    assert_eq!(
        behind.find(|batch| !execute(&mut voter, *batch)),
        Some(10 + IN_EXECUTION_BATCHES),
        "10 never comes"
    );
    let (mut voter, mut execute) = ten();
    voter.close_below(10 + WINDOW_BATCHES);
    assert!(execute(&mut voter, 10), "its peers may be that far ahead");
    voter.close_below(1 << 22);
    assert!(!execute(&mut voter, 11), "what nobody has executed is closed");
}

/// A peer may still find its own copy of a reply corrupt, and request these. A fault may have hit the number on its way
/// into the CHECK.
#[test]
fn a_check_of_batches_far_ahead_takes_nothing_from_those_who_ask() {
    let (mut voter, _) = ten();
    let mut commands = Vec::new();
    let mut receive = |from, message| {
        commands.clear();
        voter.handle(Event::Message { from, message }, 1, &mut commands);
        std::mem::take(&mut commands)
    };
    let mut state = State::default();
    for batch in 0..10 {
        let result = state.run(Op::Get(0), false, Slip::None);
        let digest = crate::digest::batch(batch, [result.digest].into_iter(), &mut Vec::new());
        for from in [1, 2] {
            receive(from, Message::Check { first: batch, digests: [digest].into_iter().collect() });
        }
    }
    receive(1, Message::Check { first: WINDOW_BATCHES - 1, digests: [7].into_iter().collect() });
    let reported = receive(2, Message::Ask(Ask::Digests { batch: 0 }));
    let has_reported = |one: &Command| matches!(one, Command::Send { message: Message::Digests { .. }, .. });
    assert!(reported.iter().any(has_reported), "{reported:?}");
}

#[test]
fn a_peer_that_repeats_itself_takes_no_more_room() {
    let (mut voter, _) = ten();
    let result = State::default().run(Op::Set(0, 1), false, Slip::None);
    let pairs = || Pairs::from_slice(&result.pairs);
    let mut holds = Vec::new();
    for _ in 0..3 {
        let (place, answer) = (Place::new(9, 0), result.answer());
        let message =
            Message::Pairs { place, answer, total: result.pairs.len() as u32, first: 0, pairs: pairs() };
        voter.handle(Event::Message { from: 1, message }, 1, &mut Vec::new());
        holds.push(voter.loads()[2].holds);
    }
    assert_eq!(holds[0], holds[2]);
    assert!(!result.pairs.is_empty());
}
