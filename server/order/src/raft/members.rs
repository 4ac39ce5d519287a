//! The members of the group: slots are fixed, the incarnation of the replica in a slot changes.
//!
//! A replica that lost its log must never act under its old id: its empty log could elect a leader that
//! misses committed entries. So an engine id names one incarnation: `incarnation << 8 | slot + 1`. Changes are
//! single steps (remove one, add one learner, promote one), so there is never a joint configuration to get
//! stuck in.

use std::collections::{BTreeMap, BTreeSet};

use ::raft::eraftpb::{ConfChange, ConfChangeType, ConfState};
use bytes::Bytes;
use wire::{Malformed, Put, Reader};

use crate::engine::MemberSet;
use crate::limits;

/// Engine id of one incarnation of the replica in a slot.
pub(crate) fn engine_id(slot: u8, incarnation: u32) -> u64 {
    u64::from(incarnation) << 8 | (u64::from(slot) + 1)
}

/// Slot of an engine id; `None` when no slot has such an id.
pub(crate) fn slot_of(id: u64) -> Option<u8> {
    let slot = (id as u8).checked_sub(1)?;
    let intact = usize::from(slot) < limits::SLOTS && id >> 40 == 0 && id >> 8 > 0;
    intact.then_some(slot)
}

/// Incarnation of an engine id.
pub(crate) fn incarnation_of(id: u64) -> u32 {
    (id >> 8) as u32
}

/// The incarnation of a slot that was let in last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Incarnation {
    pub incarnation: u32,
    /// The nonce of that incarnation before it had an id; makes joining idempotent.
    pub nonce: u64,
}

/// The membership as of one log index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Configuration {
    pub voters: BTreeSet<u64>,
    pub learners: BTreeSet<u64>,
    /// The latest incarnation of each slot, also of removed ones: incarnations are never used twice.
    pub incarnations: BTreeMap<u8, Incarnation>,
    /// The name of the group, since an operator last let it continue with one replica's log.
    pub group: Option<u64>,
}

/// One committed change of the membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Remove {
        id: u64,
    },
    AddLearner {
        id: u64,
        nonce: u64,
    },
    Promote {
        id: u64,
    },
    /// An operator's decision: all others leave, and the group gets this name.
    TakeOver {
        id: u64,
        group: u64,
    },
}

impl Configuration {
    /// The group at its founding: all replicas vote, in this incarnation.
    pub fn founding(nonces: &[u64], incarnation: u32) -> Self {
        let mut configuration = Configuration::default();
        for (slot, &nonce) in (0u8..).zip(nonces) {
            configuration.voters.insert(engine_id(slot, incarnation));
            configuration.incarnations.insert(slot, Incarnation { incarnation, nonce });
        }
        configuration
    }

    pub fn contains(&self, id: u64) -> bool {
        self.voters.contains(&id) || self.learners.contains(&id)
    }

    /// Ids of members in a slot: usually one, none while an incarnation is being replaced.
    pub fn in_slot(&self, slot: u8) -> Option<u64> {
        self.voters.iter().chain(&self.learners).copied().find(|&id| slot_of(id) == Some(slot))
    }

    /// The configuration after a change; `None` when the change is not possible here, on which all replicas agree.
    pub fn after(&self, change: Change) -> Option<Self> {
        let mut next = self.clone();
        match change {
            Change::Remove { id } => {
                let removed = next.voters.remove(&id) || next.learners.remove(&id);
                (removed && !next.voters.is_empty()).then_some(next)
            }
            Change::AddLearner { id, nonce } => {
                let slot = slot_of(id)?;
                let incarnation = incarnation_of(id);
                let later =
                    self.incarnations.get(&slot).is_none_or(|latest| incarnation > latest.incarnation);
                next.learners.insert(id);
                next.incarnations.insert(slot, Incarnation { incarnation, nonce });
                (later && self.in_slot(slot).is_none()).then_some(next)
            }
            Change::Promote { id } => {
                let was_learner = next.learners.remove(&id);
                next.voters.insert(id);
                was_learner.then_some(next)
            }
            Change::TakeOver { id, group } => {
                next.voters = BTreeSet::from([id]);
                next.learners.clear();
                next.group = Some(group);
                self.contains(id).then_some(next)
            }
        }
    }

    pub fn members(&self) -> MemberSet {
        let bits = |ids: &BTreeSet<u64>| {
            ids.iter().filter_map(|&id| slot_of(id)).fold(0u16, |bits, slot| bits | 1 << slot)
        };
        MemberSet { voters: bits(&self.voters), learners: bits(&self.learners) }
    }

    pub fn conf_state(&self) -> ConfState {
        ConfState {
            voters: self.voters.iter().copied().collect(),
            learners: self.learners.iter().copied().collect(),
            ..ConfState::default()
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        for ids in [&self.voters, &self.learners] {
            out.put32(ids.len() as u32);
            ids.iter().for_each(|&id| _ = out.put64(id));
        }
        out.put32(self.incarnations.len() as u32);
        for (&slot, latest) in &self.incarnations {
            out.put8(slot).put32(latest.incarnation).put64(latest.nonce);
        }
        // Last, and only where there is one: releases before this field left it out.
        self.group.iter().for_each(|&group| _ = out.put64(group));
    }

    /// Reads the output of `encode`, to the end, and refuses any membership that no sequence of changes leads to.
    pub fn decode<W>(reader: &mut Reader<'_, W>) -> Result<Self, Malformed> {
        let mut configuration = Configuration::default();
        for ids in [&mut configuration.voters, &mut configuration.learners] {
            for _ in 0..reader.count32(limits::SLOTS, 8)? {
                let id = reader.u64()?;
                if ids.last().is_some_and(|&last| id <= last) {
                    return Err(Malformed("ids are not in order"));
                }
                ids.insert(id);
            }
        }
        for _ in 0..reader.count32(limits::SLOTS, 13)? {
            let slot = reader.u8()?;
            let latest = Incarnation { incarnation: reader.u32()?, nonce: reader.u64()? };
            configuration.incarnations.insert(slot, latest);
        }
        configuration.group = (!reader.is_empty()).then(|| reader.u64()).transpose()?;
        if configuration.is_intact() { Ok(configuration) } else { Err(Malformed("an impossible membership")) }
    }

    fn is_intact(&self) -> bool {
        let mut seen = 0u16;
        let all = self.voters.iter().chain(&self.learners);
        !self.voters.is_empty()
            && all.into_iter().all(|&id| {
                let Some(slot) = slot_of(id) else { return false };
                let fresh = seen >> slot & 1 == 0;
                seen |= 1 << slot;
                fresh
                    && self
                        .incarnations
                        .get(&slot)
                        .is_some_and(|latest| latest.incarnation == incarnation_of(id))
            })
    }
}

impl Change {
    /// With its own checksum: it stays in the log as long as batches do.
    pub fn encode(self) -> Bytes {
        let (kind, id, nonce) = match self {
            Change::Remove { id } => (1, id, 0),
            Change::AddLearner { id, nonce } => (2, id, nonce),
            Change::Promote { id } => (3, id, 0),
            Change::TakeOver { id, group } => (4, id, group),
        };
        let mut out = Vec::with_capacity(21);
        out.put8(kind).put64(id).put64(nonce);
        let crc = wire::crc32c(&out);
        out.put32(crc);
        out.into()
    }

    pub fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let (kind, id, nonce) = (reader.u8()?, reader.u64()?, reader.u64()?);
        let crc = reader.u32()?;
        reader.end()?;
        if wire::crc32c(&bytes[..17]) != crc {
            return Err(Malformed("membership change does not match its checksum"));
        }
        match (kind, nonce) {
            _ if slot_of(id).is_none() => Err(Malformed("membership change names no slot")),
            (1, 0) => Ok(Change::Remove { id }),
            (2, _) => Ok(Change::AddLearner { id, nonce }),
            (3, 0) => Ok(Change::Promote { id }),
            (4, group) => Ok(Change::TakeOver { id, group }),
            _ => Err(Malformed("unknown membership change")),
        }
    }

    /// The same change as the engine's type.
    pub fn conf_change(self) -> ConfChange {
        let (kind, id) = match self {
            Change::Remove { id } => (ConfChangeType::RemoveNode, id),
            Change::AddLearner { id, .. } => (ConfChangeType::AddLearnerNode, id),
            Change::Promote { id } | Change::TakeOver { id, .. } => (ConfChangeType::AddNode, id),
        };
        let mut change = ConfChange::default();
        change.set_change_type(kind);
        change.node_id = id;
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_is_replaced_in_three_steps_and_its_id_never_returns() {
        let start = Configuration::founding(&[10, 11, 12], 1);
        let (old, new) = (engine_id(1, 1), engine_id(1, 2));
        assert_eq!(
            start.after(Change::AddLearner { id: new, nonce: 5 }),
            None,
            "the old incarnation is still in"
        );
        let removed = start.after(Change::Remove { id: old }).unwrap();
        assert_eq!(removed.after(Change::AddLearner { id: old, nonce: 11 }), None, "ids are used once");
        let learning = removed.after(Change::AddLearner { id: new, nonce: 5 }).unwrap();
        assert!(learning.members().is_learner(1));
        let promoted = learning.after(Change::Promote { id: new }).unwrap();
        assert_eq!(promoted.members(), MemberSet { voters: 0b111, learners: 0 });
        assert_eq!(promoted.after(Change::Promote { id: new }), None);
    }

    #[test]
    fn configurations_and_changes_survive_their_bytes() {
        let configuration = Configuration::founding(&[1, 2, 3, 4, 5], 1);
        let mut bytes = Vec::new();
        configuration.encode(&mut bytes);
        let before = bytes.len();
        assert_eq!(Configuration::decode(&mut Reader::new(&bytes)), Ok(configuration.clone()));
        let renamed = configuration.after(Change::TakeOver { id: engine_id(3, 1), group: 77 }).unwrap();
        assert_eq!((renamed.voters.len(), renamed.incarnations.len(), renamed.group), (1, 5, Some(77)));
        let mut bytes = Vec::new();
        renamed.encode(&mut bytes);
        assert_eq!(bytes.len(), before - 4 * 8 + 8);
        assert_eq!(Configuration::decode(&mut Reader::new(&bytes)), Ok(renamed));
        assert_eq!(configuration.after(Change::TakeOver { id: engine_id(3, 2), group: 77 }), None);
        for change in [
            Change::Remove { id: engine_id(0, 7) },
            Change::AddLearner { id: engine_id(2, 9), nonce: 4 },
            Change::Promote { id: engine_id(1, 1) },
            Change::TakeOver { id: engine_id(1, 1), group: 12 },
        ] {
            let bytes = change.encode();
            assert_eq!(Change::decode(&bytes), Ok(change));
            for bit in 0..bytes.len() * 8 {
                let mut broken = bytes.to_vec();
                broken[bit / 8] ^= 1 << (bit % 8);
                assert!(Change::decode(&broken.into()).is_err());
            }
        }
    }
}
