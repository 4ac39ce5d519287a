//! Sets of replicas as bits, and what messages to the operator call them.

use wire::ReplicaId;

/// The replicas of a bit set, as text.
pub(super) fn names(replicas: u16) -> String {
    let numbers: Vec<String> =
        (0..16).filter(|slot| replicas >> slot & 1 == 1).map(|slot| ReplicaId(slot).to_string()).collect();
    match &numbers[..] {
        [] => "no replica".to_owned(),
        [one] => format!("replica {one}"),
        [firsts @ .., last] => format!("replicas {} and {last}", firsts.join(", ")),
    }
}

/// The same, as the beginning of a sentence about them.
pub(super) fn are(replicas: u16) -> String {
    format!("{} {}", names(replicas), if replicas.count_ones() == 1 { "is" } else { "are" })
}

/// The same, as the beginning of a sentence about what they have.
pub(super) fn has(replicas: u16) -> String {
    format!("{} {}", names(replicas), if replicas.count_ones() == 1 { "has" } else { "have" })
}

/// A bit per replica.
pub(super) fn bits(replicas: impl Iterator<Item = u8>) -> u16 {
    replicas.fold(0, |bits, replica| bits | 1 << replica)
}
