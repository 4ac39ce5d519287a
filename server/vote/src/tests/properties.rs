//! Random groups, requests, schedules and single faults: never a wrong reply, always the right replica blamed, always
//! an end.

use bytes::Bytes;
use wire::SplitMix64;

use super::cluster::Cluster;
use super::service::{Op, Slip};
use crate::{Message, Place, Replica, RequestResult};

fn random_op(chance: &mut SplitMix64) -> Op {
    let (a, b) = (chance.modulo(6) as u8, chance.modulo(6) as u8);
    match chance.modulo(8) {
        0..=2 => Op::Set(a, chance.next_u64() % 1000),
        3..=4 => Op::Add(a, b),
        5..=6 => Op::Get(a),
        _ => Op::Remove(a),
    }
}

/// Kinds of fault that one replica may suffer; `plant` puts one into a run.
const KINDS: u64 = 13;

fn plant(cluster: &mut Cluster, faulty: Replica, kind: u64, place: Place) {
    let bit = 1u64 << cluster.chance.modulo(60);
    let node = &mut cluster.nodes[faulty as usize];
    match kind {
        0 => drop(node.slips.insert(place, Slip::Value(bit))),
        1 => drop(node.slips.insert(place, Slip::Reply)),
        2 => drop(node.slips.insert(place, Slip::Panic)),
        3 => drop(node.slips.insert(place, Slip::Removes)),
        4 => drop(node.slips.insert(place, Slip::Creates)),
        5 => drop(node.tamper.insert(place, |result| result.digest ^= 1 << 77)),
        6 => drop(node.tamper.insert(place, |result| {
            if let Some(pair) = result.pairs.first_mut() {
                pair.sum ^= 1 << 13;
            }
        })),
        7 => drop(node.tamper.insert(place, flip_reply)),
        8 => {
            let count = node.state.objects.len() as u64;
            if let Some(object) = node.state.objects.values_mut().nth((bit % count.max(1)) as usize) {
                object.value ^= bit;
            }
        }
        9 => drop(node.strike.insert(place, |record, index| {
            record.own.as_mut().expect("executed")[index].digest ^= 1 << 99;
        })),
        10 => drop(node.strike.insert(place, |record, index| {
            flip_reply(&mut record.own.as_mut().expect("executed")[index]);
        })),
        11 => drop(node.strike.insert(place, |record, _| {
            record.digests.iter_mut().for_each(|digest| *digest ^= 1 << 99);
        })),
        _ => {
            let mut left = 1 + cluster.chance.modulo(3);
            let mut chance = SplitMix64::new(bit);
            cluster.on_wire = Box::new(move |from, _, message| {
                let hit = from == faulty && left > 0 && chance.once_in(3);
                left -= hit as u64;
                Some(if hit { corrupt(message, &mut chance) } else { message })
            });
        }
    }
}

fn flip_reply(result: &mut RequestResult) {
    let mut bytes = result.reply.take().unwrap_or_default().to_vec();
    if let Some(byte) = bytes.first_mut() {
        *byte ^= 32;
    }
    result.reply = Some(Bytes::from(bytes));
}

/// Changes the contents of a message but not its subject, like a fault in its sender's memory.
fn corrupt(mut message: Message, chance: &mut SplitMix64) -> Message {
    let flip = 1u128 << chance.modulo(128);
    match &mut message {
        Message::Check { digests, .. } => digests[0] ^= flip,
        Message::Digests { digests, .. } => {
            let at = chance.modulo(digests.len().max(1) as u64) as usize;
            if let Some(Some(digest)) = digests.get_mut(at) {
                *digest ^= flip;
            }
        }
        Message::Pairs { pairs, answer, .. } => match pairs.first_mut() {
            Some(pair) if chance.once_in(2) => pair.sum ^= flip as u64,
            _ => answer.digest ^= flip,
        },
        Message::Reply { bytes, .. } if !bytes.is_empty() => {
            let mut changed = bytes.to_vec();
            changed[0] ^= 1;
            *bytes = Bytes::from(changed);
        }
        Message::Repair { parts, .. } => {
            let at = chance.modulo(parts.len() as u64) as usize;
            parts[at].digest ^= flip;
        }
        _ => {}
    }
    message
}

/// One random run; returns the number of evidence records and of RECOVERs.
fn run(seed: u64, replicas: u8, faults: usize) -> (usize, u64) {
    let mut chance = SplitMix64::new(seed);
    let mut cluster = Cluster::new(replicas, seed ^ 0xabcd);
    cluster.reorder = chance.once_in(2);
    cluster.loss = [0, 0, 20, 6][chance.modulo(4) as usize];
    cluster.order(&(0..6).map(|k| Op::Set(k, k as u64)).collect::<Vec<_>>());
    cluster.run();
    let batches = 4 + chance.modulo(8);
    let mut faulty: Vec<Replica> = (0..replicas).collect();
    while faulty.len() > faults {
        faulty.swap_remove(chance.modulo(faulty.len() as u64) as usize);
    }
    for replica in &faulty {
        let place = Place::new(1 + chance.modulo(batches), chance.modulo(3) as u16);
        plant(&mut cluster, *replica, chance.modulo(KINDS), place);
    }
    for _ in 0..batches {
        let ops: Vec<Op> = (0..3 + chance.modulo(3)).map(|_| random_op(&mut chance)).collect();
        cluster.order(&ops);
        for _ in 0..chance.modulo(30) {
            match chance.modulo(4) {
                0 => cluster.execute_at(chance.modulo(replicas as u64) as u8),
                _ => drop(cluster.deliver()),
            }
        }
        if chance.once_in(4) {
            cluster.tick(20_000);
        }
    }
    cluster.run();
    // A scrub: an object at rest that no request reads stays corrupt until one does.
    cluster.order(&(0..6).map(Op::Get).collect::<Vec<_>>());
    cluster.run();
    cluster.assert_as_if_fault_free();
    cluster.assert_blames_only(&faulty);
    let evidence = cluster.nodes.iter().map(|node| node.evidence.len()).sum();
    (evidence, cluster.nodes[0].voter.counters().recovers_done)
}

fn many(seeds: std::ops::Range<u64>, replicas: u8, faults: usize) {
    let (mut evidence, mut recovers) = (0, 0);
    for seed in seeds.clone() {
        let outcome = std::panic::catch_unwind(|| run(seed, replicas, faults));
        match outcome {
            Ok((found, done)) => (evidence, recovers) = (evidence + found, recovers + done),
            Err(cause) => {
                println!("seed {seed}, {replicas} replicas, {faults} faults");
                std::panic::resume_unwind(cause);
            }
        }
    }
    assert_eq!(faults > 0, evidence > 0, "faults are found, and only faults are");
    assert_eq!(faults > 0, recovers > 0);
}

#[test]
fn no_fault_no_alarm() {
    many(0..300, 3, 0);
    many(0..100, 5, 0);
}

#[test]
fn one_of_three() {
    many(0..2000, 3, 1);
}

#[test]
fn one_of_five() {
    many(0..400, 5, 1);
}

#[test]
fn two_of_five() {
    many(0..600, 5, 2);
}

#[test]
fn three_of_seven() {
    many(0..150, 7, 3);
}

#[test]
#[ignore = "takes minutes; the runs above are its beginning"]
fn long_run() {
    many(10_000..70_000, 3, 1);
    many(10_000..25_000, 5, 2);
    many(10_000..13_000, 7, 3);
}
