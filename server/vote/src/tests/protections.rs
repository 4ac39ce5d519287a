//! Each protection removed, and the loss that follows: this shows that each one is necessary.

use bytes::Bytes;

use super::cluster::Cluster;
use super::service::{Entry, Op, Slip, key};
use crate::{Message, Place, Protections, Recover, Scope};

/// A wrong value at replica 1, written by request 1/0 and read by request 1/1 whose reply it owes (1+1 mod 3
/// = 2) and 1/0.
fn wrong_value(protections: Protections) -> Cluster {
    let mut cluster = Cluster::with_protections(3, 5, protections);
    cluster.order(&[Op::Set(0, 1)]);
    cluster.run();
    cluster.nodes[1].slips.insert(Place::new(1, 0), Slip::Value(8));
    cluster.order(&[Op::Set(0, 5), Op::Get(1), Op::Get(1), Op::Get(0)]);
    cluster.run();
    cluster
}

fn wrong_replies(cluster: &Cluster) -> usize {
    let (_, replies) = cluster.oracle();
    cluster
        .nodes
        .iter()
        .flat_map(|node| &node.released)
        .filter(|(place, reply)| replies[place] != **reply)
        .count()
}

#[test]
fn with_everything_on_nothing_is_lost() {
    let cluster = wrong_value(Protections::ALL);
    cluster.assert_as_if_fault_free();
}

#[test]
fn without_digest_comparison_the_error_stays_and_leaves() {
    let cluster = wrong_value(Protections { digest_comparison: false, ..Protections::ALL });
    let (state, _) = cluster.oracle();
    assert_ne!(cluster.nodes[1].state.objects[&key(0)], state.objects[&key(0)], "nobody noticed");
    assert_eq!(wrong_replies(&cluster), 1, "request 1/3 read the wrong value and answered it");
}

#[test]
fn without_the_reply_gate_the_wrong_reply_leaves_before_the_repair() {
    let cluster = wrong_value(Protections { reply_gate: false, ..Protections::ALL });
    let (state, _) = cluster.oracle();
    assert_eq!(cluster.nodes[1].state, state, "repair works as before");
    assert_eq!(wrong_replies(&cluster), 1, "but the client has its wrong byte");
}

#[test]
fn without_the_settle_check_whoever_proposes_it_makes_all_take_one_version() {
    let value_at = |protections| {
        let mut cluster = Cluster::with_protections(3, 5, protections);
        cluster.order(&[Op::Set(0, 1)]);
        cluster.run();
        // Replica 0 is wrong, and no replica has detected it; replica 2 makes all others take its version.
        cluster.nodes[0].state.run(Op::Set(0, 666), false, Slip::None);
        let (scope, cause, objects) = (Scope::SettleOn(0), Place::new(0, 0), vec![key(0)]);
        let recover = Recover { id: 1, proposer: 2, scope, cause, objects, regions: Vec::new() };
        cluster.log.push(vec![Entry::Recover(recover)]);
        cluster.run();
        cluster.nodes[1].state.objects[&key(0)].value
    };
    assert_eq!(
        value_at(Protections { settle_check: false, ..Protections::ALL }),
        666,
        "the error has spread"
    );
    assert_eq!(value_at(Protections::ALL), 1);
}

#[test]
fn without_the_repair_quorum_one_wrong_sender_is_believed() {
    let install_wrong = |protections| {
        let mut cluster = Cluster::with_protections(3, 5, protections);
        cluster.order(&[Op::Set(0, 1)]);
        cluster.run();
        cluster.on_wire = Box::new(|from, _, mut message| {
            if let (0, Message::Repair { turn, parts }) = (from, &mut message) {
                let repair = &mut parts[0];
                let mut bytes = repair.id.to_bits().to_le_bytes().to_vec();
                bytes.extend_from_slice(&[6; 8]);
                repair.digest = repair.digest_of(*turn, &bytes);
                repair.bytes = Some(Bytes::from(bytes));
            }
            Some(message)
        });
        cluster.nodes[1].slips.insert(Place::new(1, 0), Slip::Value(8));
        cluster.order(&[Op::Set(0, 5)]);
        for _ in 0..10 {
            cluster.execute();
            while cluster.deliver() {}
            cluster.tick(60_000);
        }
        cluster.nodes[1].state.objects[&key(0)].value
    };
    let six = u64::from_le_bytes([6; 8]);
    assert_eq!(
        install_wrong(Protections { repair_quorum: false, ..Protections::ALL }),
        six,
        "garbage was installed"
    );
    assert_ne!(install_wrong(Protections::ALL), six);
}
