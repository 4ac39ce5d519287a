//! The transcript of a recovery: thirty lines from the corrupted object to the repaired one.

use super::cluster::Cluster;
use super::service::{Op, key};
use crate::{Command, Content, Message, RepairPart, Replica, Scope, To};

/// One line per important command.
pub(crate) fn line(replica: Replica, command: &Command) -> Option<String> {
    let reported = match command {
        Command::Send { to, message } => {
            let to = match to {
                To::All => "all".to_string(),
                To::One(peer) => peer.to_string(),
            };
            format!("-> {to}: {}", message_line(message))
        }
        Command::Release { place, reply, .. } => {
            format!("reply {place} leaves: {}", String::from_utf8_lossy(reply))
        }
        Command::ReplyRepaired { place, reply, .. } => {
            format!("reply {place} leaves, with a peer's bytes: {}", String::from_utf8_lossy(reply))
        }
        Command::ProposeRecover(recover) => {
            let whose = match recover.scope {
                Scope::Faulty(faulty) => format!("of replica {faulty}"),
                Scope::SettleOn(source) => format!("that settles on replica {source}"),
            };
            format!("proposes RECOVER {whose}: {} objects", recover.objects.len())
        }
        Command::Install { turn, objects } => {
            let absent = objects.iter().filter(|packed| packed.content == Content::Absent).count();
            format!("turn {turn}: overwrites {} objects, drops {absent}", objects.len() - absent)
        }
        Command::Evidence(evidence) => format!(
            "evidence: replica {}, request {}/{}, {}, {:?}, {:?}",
            evidence.replica,
            evidence.batch,
            evidence.request.map_or("-".to_string(), |request| request.to_string()),
            evidence.subject(),
            evidence.stage,
            evidence.class
        ),
        other => format!("{other:?}"),
    };
    Some(format!("{replica} {reported}"))
}

fn message_line(message: &Message) -> String {
    match message {
        Message::Check { first, digests } => format!("CHECK {first} ({} digests)", digests.len()),
        Message::Digests { batch, digests } => format!("DIGESTS {batch} ({} requests)", digests.len()),
        Message::Pairs { place, pairs, .. } => format!("PAIRS {place} ({} pairs)", pairs.len()),
        Message::SelfBlame { place, failure } => format!("SELF-BLAME {place} {failure:?}"),
        Message::Repair { parts, .. } => {
            let part = |part: &RepairPart| {
                let with = if part.bytes.is_some() { "bytes" } else { "digest only" };
                let RepairPart { region_id, id, piece, pieces, .. } = part;
                format!("{region_id}:{id} piece {}/{pieces} ({with})", piece + 1)
            };
            format!("REPAIR {}", parts.iter().map(part).collect::<Vec<_>>().join(", "))
        }
        Message::Repaired { turn } => format!("REPAIRED {turn}"),
        Message::Reply { place, bytes, .. } => format!("REPLY {place} ({} bytes)", bytes.len()),
        other => format!("{other:?}"),
    }
}

#[test]
fn from_a_corrupted_object_to_a_repaired_one() {
    let mut cluster = Cluster::new(3, 1);
    cluster.order(&[Op::Set(2, 40)]);
    cluster.run();
    cluster.transcript.clear();

    cluster.transcript.push("* a bit flips in object 0:1.2 of replica 1".to_string());
    cluster.nodes[1].state.objects.get_mut(&key(2)).expect("it was set").value ^= 1 << 9;
    cluster.order(&[Op::Add(2, 3)]);
    cluster.run();
    cluster.transcript.push("* the object is right again; another request runs".to_string());
    cluster.order(&[Op::Get(2)]);
    cluster.run();

    let reported = cluster.transcript.join("\n");
    let expected = include_str!("transcript.txt");
    assert_eq!(reported.trim(), expected.trim(), "the story has changed:\n{reported}");
    cluster.assert_as_if_fault_free();
}
