//! One fault of every kind, in a small group: it is detected, blamed on the right replica and repaired, and no wrong
//! reply leaves.

use bytes::Bytes;

use super::cluster::Cluster;
use super::service::{Op, Slip, key};
use crate::record::Record;
use crate::{
    BeyondRepair, Command, FaultClass, FaultStage, Message, Place, RequestInfo, RequestResult, digest,
};

const OPS: [Op; 3] = [Op::Set(0, 5), Op::Add(1, 0), Op::Get(0)];

fn group(replicas: u8) -> Cluster {
    let mut cluster = Cluster::new(replicas, 7);
    cluster.order(&[Op::Set(0, 1), Op::Set(1, 2), Op::Set(2, 3), Op::Set(3, 4)]);
    cluster.run();
    cluster
}

/// All other replicas blame `faulty`, at this stage, and no replica blames another one.
fn assert_found(cluster: &Cluster, faulty: u8, stage: FaultStage) {
    cluster.assert_as_if_fault_free();
    cluster.assert_blames_only(&[faulty]);
    let found =
        cluster.nodes.iter().flat_map(|node| &node.evidence).filter(|evidence| evidence.stage == stage);
    assert!(found.count() > 0, "no evidence of {stage:?}: {:#?}", cluster.nodes[0].evidence);
}

#[test]
fn without_a_fault_nothing_is_said() {
    for replicas in [1, 3, 5, 7] {
        let mut cluster = group(replicas);
        for _ in 0..100 {
            cluster.order(&OPS);
        }
        cluster.run();
        cluster.assert_as_if_fault_free();
        for node in &cluster.nodes {
            assert!(node.evidence.is_empty() && node.replace.is_empty());
            let counters = node.voter.counters();
            assert_eq!((counters.mismatched_batches, counters.asks_sent, counters.recovers_done), (0, 0, 0));
        }
    }
}

#[test]
fn object_at_rest() {
    for faulty in 0..3 {
        let mut cluster = group(3);
        cluster.nodes[faulty].state.objects.get_mut(&key(0)).expect("set").value ^= 4;
        cluster.order(&[Op::Get(1), Op::Add(0, 1), Op::Get(2)]);
        cluster.run();
        assert_found(&cluster, faulty as u8, FaultStage::Passive);
        assert_eq!(cluster.nodes[faulty].voter.counters().objects_installed, 2);
    }
}

#[test]
fn result_within_the_request() {
    for slip in [Slip::Value(1 << 40), Slip::Removes, Slip::Creates, Slip::Panic] {
        for faulty in 0..3 {
            let mut cluster = group(3);
            cluster.nodes[faulty].slips.insert(Place::new(1, 0), slip);
            cluster.order(&OPS);
            cluster.run();
            assert_found(&cluster, faulty as u8, FaultStage::InRequest);
            assert!(
                cluster
                    .nodes
                    .iter()
                    .flat_map(|node| &node.evidence)
                    .all(|e| e.class == FaultClass::HardwareLike)
            );
        }
    }
}

#[test]
fn error_that_spreads_before_the_repair() {
    let mut cluster = group(3);
    cluster.nodes[2].slips.insert(Place::new(1, 0), Slip::Value(8));
    cluster.order(&[Op::Set(0, 5)]);
    cluster.order(&[Op::Add(1, 0)]);
    cluster.order(&[Op::Add(3, 1), Op::Add(2, 0)]);
    cluster.run();
    assert_found(&cluster, 2, FaultStage::InRequest);
}

#[test]
fn reply_before_it_is_digested() {
    for faulty in 0..3 {
        let mut cluster = group(3);
        for request in 0..3 {
            cluster.nodes[faulty].slips.insert(Place::new(1, request), Slip::Reply);
        }
        cluster.order(&OPS);
        cluster.run();
        assert_found(&cluster, faulty as u8, FaultStage::Reply);
        assert_eq!(cluster.nodes[faulty].voter.counters().replies_repaired, 1, "the one it owes");
        assert_eq!(cluster.log.len(), 2, "no object is wrong, so nothing is recovered");
    }
}

/// A fault in data stored between execution and release.
fn tampered(tamper: fn(&mut RequestResult), faulty: usize) -> Cluster {
    let mut cluster = group(3);
    for request in 0..3 {
        cluster.nodes[faulty].tamper.insert(Place::new(1, request), tamper);
    }
    cluster.order(&OPS);
    cluster.run();
    assert_eq!(cluster.log.len(), 2, "no object is wrong, so nothing is recovered");
    cluster
}

#[test]
fn reply_after_it_was_digested() {
    fn flip(result: &mut RequestResult) {
        let mut bytes = result.reply.take().expect("kept").to_vec();
        bytes[0] ^= 1;
        result.reply = Some(Bytes::from(bytes));
    }
    for faulty in 0..3 {
        assert_found(&tampered(flip, faulty), faulty as u8, FaultStage::Reply);
    }
}

#[test]
fn request_digest() {
    for faulty in 0..3 {
        let cluster = tampered(|result| result.digest ^= 1 << 100, faulty);
        assert_found(&cluster, faulty as u8, FaultStage::Digest);
        let subject = cluster.nodes[(faulty + 1) % 3].evidence[0].subject();
        assert_eq!(subject, "digest/vote");
    }
}

#[test]
fn stored_pair() {
    for faulty in 0..3 {
        let cluster = tampered(|result| result.pairs[0].sum ^= 1, faulty);
        assert_found(&cluster, faulty as u8, FaultStage::Digest);
    }
}

#[test]
fn stored_reply_digest() {
    for faulty in 0..3 {
        // The reply itself is intact: the gate computes the agreed digest from it, and it leaves unharmed.
        let cluster = tampered(|result| result.reply_digest ^= 1, faulty);
        cluster.assert_as_if_fault_free();
        cluster.assert_blames_only(&[faulty as u8]);
    }
}

/// The same result as the answer to another request.
fn answering(request_info: RequestInfo, result: &RequestResult) -> RequestResult {
    RequestResult::new(request_info, result.pairs.clone(), result.reply.clone().expect("kept"))
}

#[test]
fn right_bytes_for_another_request() {
    // The replica exchanges the request at this position for another one: its effects and reply are the same, but its
    // client must not get the reply.
    fn mistake(result: &mut RequestResult) {
        let request_info = RequestInfo { checksum: result.request_info.checksum ^ 1, ..result.request_info };
        *result = answering(request_info, result);
    }
    for faulty in 0..3u8 {
        let cluster = tampered(mistake, usize::from(faulty));
        cluster.assert_blames_only(&[faulty]);
        for (replica, node) in (0..).zip(&cluster.nodes) {
            assert_eq!(replica == faulty, !node.dropped.is_empty(), "replica {replica}");
            let left = node.released.keys().any(|place| place.batch == 1);
            assert_eq!(replica != faulty, left, "replica {replica}");
        }
    }
}

#[test]
fn right_results_at_another_position_or_time() {
    // The schedule of this replica has skipped a position: its results are right, but new objects would have other ids.
    fn lose_count(result: &mut RequestResult) {
        let request_info = RequestInfo { position: result.request_info.position + 1, ..result.request_info };
        *result = answering(request_info, result);
    }
    // Its time is too far ahead: its objects would expire too early.
    fn go_ahead(result: &mut RequestResult) {
        let request_info =
            RequestInfo { time_us: result.request_info.time_us ^ 1 << 55, ..result.request_info };
        *result = answering(request_info, result);
    }
    for (faulty, tamper) in
        (0..3u8).flat_map(|faulty| [(faulty, lose_count as fn(&mut _)), (faulty, go_ahead)])
    {
        let cluster = tampered(tamper, usize::from(faulty));
        assert_found(&cluster, faulty, FaultStage::Schedule);
        let why = BeyondRepair::OutOfStep;
        for (replica, node) in (0..).zip(&cluster.nodes) {
            let own = |c: &Command| matches!(c, Command::ReplaceSelf(reason) if *reason == why);
            assert_eq!(replica == faulty, node.replace.iter().any(own), "replica {replica}");
        }
    }
}

/// A fault in the voter's stored data between its vote and the others' votes.
fn struck(strike: fn(&mut Record, usize), faulty: usize, others_too: bool) -> Cluster {
    let mut cluster = group(3);
    for request in 0..3 {
        cluster.nodes[faulty].strike.insert(Place::new(1, request), strike);
    }
    if others_too {
        // In addition the link repeats an old vote wrongly, so that the group compares one level down.
        let mut hit = false;
        cluster.on_wire = Box::new(move |from, to, mut message| {
            if let (true, false, Message::Check { digests, .. }) =
                (from == faulty as u8 && to != from, hit, &mut message)
            {
                digests[0] ^= 2;
                hit = true;
            }
            Some(message)
        });
    }
    cluster.order(&OPS);
    cluster.run();
    cluster.assert_as_if_fault_free();
    cluster.assert_blames_only(&[faulty as u8]);
    assert_eq!(cluster.log.len(), 2, "no object is wrong, so nothing is recovered");
    cluster
}

#[test]
fn memory_of_the_voter() {
    let strikes: [fn(&mut Record, usize); 6] = [
        |record, index| record.own.as_mut().expect("executed")[index].digest ^= 1 << 3,
        |record, index| record.own.as_mut().expect("executed")[index].pairs[0].sum ^= 1 << 3,
        |record, index| record.own.as_mut().expect("executed")[index].reply_digest ^= 1 << 3,
        |record, index| {
            let result = &mut record.own.as_mut().expect("executed")[index];
            result.reply = Some(Bytes::from_static(b"garbage"));
        },
        |record, index| record.own.as_mut().expect("executed")[index].reply_len ^= 1 << 3,
        |record, _| record.digests.iter_mut().for_each(|digest| *digest ^= 1 << 3),
    ];
    for strike in strikes {
        for faulty in 0..3 {
            for others_too in [false, true] {
                struck(strike, faulty, others_too);
            }
        }
    }
}

#[test]
fn check_message() {
    let mut cluster = group(3);
    let mut hit = false;
    cluster.on_wire = Box::new(move |from, to, mut message| {
        if let (1, 2, false, Message::Check { digests, .. }) = (from, to, hit, &mut message) {
            digests[0] ^= 2;
            hit = true;
        }
        Some(message)
    });
    cluster.order(&OPS);
    cluster.run();
    assert_found(&cluster, 1, FaultStage::Digest);
    assert_eq!(cluster.log.len(), 2, "no object repair for a wrong vote");
}

#[test]
fn reply_message() {
    for hits in 1..4 {
        let mut cluster = group(3);
        let mut left = hits;
        cluster.on_wire = Box::new(move |_, _, mut message| {
            if let (true, Message::Reply { bytes, .. }) = (left > 0, &mut message) {
                *bytes = Bytes::from(bytes.iter().map(|byte| byte ^ 1).collect::<Vec<u8>>());
                left -= 1;
            }
            Some(message)
        });
        for request in 0..3 {
            cluster.nodes[1].slips.insert(Place::new(1, request), Slip::Reply);
        }
        cluster.order(&OPS);
        cluster.run();
        cluster.assert_as_if_fault_free();
        let bad =
            cluster.nodes[1].evidence.iter().filter(|e| e.stage == FaultStage::Message && e.replica != 1);
        assert_eq!(bad.count(), hits, "each corrupt reply is dropped, counted and asked for elsewhere");
    }
}

#[test]
fn repair_message() {
    for hits in 1..6 {
        let mut cluster = group(3);
        let mut left = hits;
        cluster.on_wire = Box::new(move |_, _, mut message| {
            if let Message::Repair { parts, .. } = &mut message {
                for part in parts.iter_mut().filter(|_| left > 0) {
                    let Some(bytes) = &part.bytes else { continue };
                    let mut bytes = bytes.to_vec();
                    bytes[9] ^= 2;
                    part.bytes = Some(Bytes::from(bytes));
                    left -= 1;
                    break;
                }
            }
            Some(message)
        });
        cluster.nodes[2].slips.insert(Place::new(1, 0), Slip::Value(8));
        cluster.order(&OPS);
        cluster.run();
        cluster.assert_as_if_fault_free();
        assert!(cluster.nodes[2].evidence.iter().any(|e| e.stage == FaultStage::Message && e.replica != 2));
    }
}

#[test]
fn repair_digest() {
    let mut cluster = group(3);
    cluster.on_wire = Box::new(|from, _, mut message| {
        if let (0, Message::Repair { turn, parts }) = (from, &mut message) {
            for part in parts {
                // The sender's packed state is consistently wrong: bytes and digest fit each other.
                part.bytes = Some(Bytes::from(vec![7; 16]));
                part.digest = part.digest_of(*turn, &[7; 16]);
            }
        }
        Some(message)
    });
    cluster.nodes[2].slips.insert(Place::new(1, 0), Slip::Value(8));
    cluster.order(&OPS);
    for _ in 0..10 {
        cluster.execute();
        while cluster.deliver() {}
        cluster.tick(60_000);
    }
    assert!(
        cluster.nodes[2].waits_for_install.is_some(),
        "one replica alone convinces nobody: the turn is held"
    );
    cluster.on_wire = Box::new(|_, _, message| Some(message));
    cluster.run();
    cluster.assert_as_if_fault_free();
}

#[test]
fn abandonments_never_agree_with_each_other() {
    let abandoned: std::collections::BTreeSet<u128> =
        (0..7).map(|replica| digest::abandoned(4, 2, replica)).collect();
    assert_eq!(abandoned.len(), 7, "f+1 replicas without a result must not look like f+1 equal results");
}

#[test]
fn two_of_five_at_once() {
    let mut cluster = group(5);
    cluster.nodes[1].slips.insert(Place::new(1, 0), Slip::Value(8));
    cluster.nodes[4].slips.insert(Place::new(1, 0), Slip::Value(16));
    cluster.nodes[4].state.objects.get_mut(&key(3)).expect("set").value ^= 1;
    cluster.order(&OPS);
    cluster.order(&[Op::Get(3), Op::Add(3, 0)]);
    cluster.run();
    cluster.assert_as_if_fault_free();
    cluster.assert_blames_only(&[1, 4]);
}
