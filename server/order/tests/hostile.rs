//! Messages of a corrupted peer, with right checksums and the group's key, are checked for plausibility: no term,
//! incarnation or request to join is accepted that no healthy replica can have.

use crate::harness::{Cluster, request};
use bytes::Bytes;
use order::batch::{Batch, Request, checksum};
use order::{FrameKind, Output};
use wire::SplitMix64;

fn established(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(3, seed);
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster.load(200, 100);
    cluster
}

/// The group orders as before, under the same leader, and no replica has stopped.
fn assert_goes_on(cluster: &mut Cluster, leader: u8) {
    let acked = cluster.acked.len();
    cluster.load(1_000, 100);
    assert_eq!(cluster.leader(), Some(leader));
    assert!(cluster.acked.len() > acked + 100);
    assert!((0..3).all(|slot| cluster.replica(slot).stopped.is_none()));
    cluster.run_until_idle();
}

/// The group's number, from a frame of the engine.
fn group_of(cluster: &mut Cluster, leader: u8) -> u64 {
    let orderer = &mut cluster.replica(leader).orderer;
    orderer.submit(request(Bytes::from_static(b"\0abcdefgh")), 0, 9).unwrap();
    orderer.pump(1_000_000_000);
    let mut group = None;
    while let Some(output) = orderer.poll_output() {
        if let Output::Send { kind: FrameKind::Order, body, .. } = output {
            group = body.joined().first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        }
    }
    group.expect("the leader appends")
}

fn engine_id(slot: u8) -> u64 {
    1 << 8 | (u64::from(slot) + 1)
}

/// A request for a vote that hands the leadership over, in this term.
fn vote_request(group: u64, (from, to): (u8, u8), term: u64) -> Bytes {
    let mut bytes: Vec<u8> = [group, 0, 0].into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.extend([3, 0, 1]);
    let fields = [engine_id(to), engine_id(from), term, 1, 1 << 40, 0, 0, 0];
    bytes.extend(fields.into_iter().flat_map(u64::to_le_bytes));
    bytes.into()
}

#[test]
fn a_term_that_only_one_peer_claims_is_not_believed() {
    for term in [(1 << 48) - 1, 1 << 40, 1 << 21] {
        let mut cluster = established(7);
        let leader = cluster.leader().unwrap();
        let corrupt = (leader + 1) % 3;
        let group = group_of(&mut cluster, leader);
        for to in (0..3).filter(|to| *to != corrupt) {
            for _ in 0..10 {
                let said = vote_request(group, (corrupt, to), term);
                let refused = cluster.replica(to).orderer.on_frame(corrupt, FrameKind::Order, said);
                assert!(refused.is_err(), "{term}");
            }
        }
        assert_goes_on(&mut cluster, leader);
        assert!(cluster.replica(leader).orderer.engine_status().term < 1 << 20);
    }
}

/// If each replica measured the step from its own term, a term that only some accept would divide the group for ever.
#[test]
fn a_term_that_a_quorum_has_come_to_is_believed() {
    let mut cluster = established(8);
    let leader = cluster.leader().unwrap();
    let late = (leader + 1) % 3;
    let group = group_of(&mut cluster, leader);
    let said = |cluster: &mut Cluster, from: u8| {
        let frame = vote_request(group, (from, late), 1 << 30);
        cluster.replica(late).orderer.on_frame(from, FrameKind::Order, frame).is_ok()
    };
    assert!(!said(&mut cluster, leader));
    assert!(said(&mut cluster, (leader + 2) % 3));
}

#[test]
fn a_batch_of_an_incarnation_that_was_never_let_in_is_not_taken() {
    for incarnation in [1 << 62, 2 << 32, 1 << 32 | 1 << 30] {
        let mut cluster = established(9);
        let leader = cluster.leader().unwrap();
        let victim = (leader + 1) % 3;
        let request =
            Request { checksum: checksum(b"flush_all"), stream: 0, bytes: Bytes::from_static(b"flush_all") };
        let batch = Batch::new(victim, incarnation, 1, &[request]).encode();
        let frame: Bytes = [&batch.head[..], &batch.body[..]].concat().into();
        let taken = cluster.replica(leader).orderer.on_frame(victim, FrameKind::Forward, frame);
        assert!(taken.is_err(), "{incarnation:x}");
        assert_goes_on(&mut cluster, leader);
    }
}

#[test]
fn who_is_in_and_asks_to_be_let_in_is_not_thrown_out() {
    let mut cluster = established(10);
    let leader = cluster.leader().unwrap();
    for corrupt in (0..3).filter(|slot| *slot != leader) {
        for nonce in [1u64, u64::MAX, 77] {
            let join: Bytes = [&[5][..], &nonce.to_le_bytes(), &[0; 16]].concat().into();
            assert!(cluster.replica(leader).orderer.on_frame(corrupt, FrameKind::Control, join).is_err());
        }
    }
    assert_goes_on(&mut cluster, leader);
    assert_eq!(cluster.replica(leader).members.voters, 0b111);
}

/// Bytes of any kind, with right checksums of their frames: no replica stops.
#[test]
fn random_bodies_stop_nobody() {
    let mut cluster = established(11);
    let leader = cluster.leader().unwrap();
    let group = group_of(&mut cluster, leader);
    let mut rng = SplitMix64::new(3);
    for round in 0..40_000u64 {
        let (from, to) = (rng.modulo(3) as u8, rng.modulo(3) as u8);
        if from == to {
            continue;
        }
        let mut body: Vec<u8> = (0..rng.modulo(120)).map(|_| rng.next_u64() as u8).collect();
        if rng.chance(500)
            && let Some(head) = body.first_chunk_mut()
        {
            *head = group.to_le_bytes();
        }
        if rng.chance(300) {
            // A batch that is intact, with one field or another that is not.
            let wild =
                |rng: &mut SplitMix64| if rng.chance(500) { 1 + rng.modulo(300) } else { rng.next_u64() };
            let request = Request { checksum: checksum(b"x"), stream: 0, bytes: Bytes::from_static(b"x") };
            let origin = if rng.chance(700) { from } else { rng.next_u64() as u8 };
            let (incarnation, number) = (wild(&mut rng), wild(&mut rng));
            let batch = Batch::new(origin, incarnation, number, &[request]).encode();
            body = [&batch.head[..], &batch.body[..]].concat();
        }
        let kinds = [FrameKind::Order, FrameKind::Forward, FrameKind::Control];
        let kind = kinds[rng.modulo(3) as usize];
        let _ = cluster.replica(to).orderer.on_frame(from, kind, body.into());
        if round % 40 == 0 {
            cluster.step();
        }
    }
    assert!((0..3).all(|slot| cluster.replica(slot).stopped.is_none()), "{}", cluster.describe());
    cluster.load(2_000, 100);
    cluster.run_until_idle();
}
