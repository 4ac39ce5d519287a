//! Messages that count only together are received together: an argued reduction ([`World::together`]).

use std::collections::BTreeMap;

use verify::{Layout, Slot, VerifyMessage, Version};

use super::{Machine, NEW_INCARNATIONS, Posted, World, WorldState};

/// The batch or version that messages are about: view, number, token.
type Topic = (u64, u64, u128);
/// Who sent a message, and what else tells it from another one of the same sender.
type Sender = (Slot, u128);

impl World {
    /// Whether a message only counts together with others.
    pub(super) fn counts(&self, message: u32) -> bool {
        let message = &self.tables.messages.value(message).message;
        match message {
            VerifyMessage::Verify { .. } => self.together && !self.notes_matter(),
            VerifyMessage::Recorded { .. } => self.together,
            VerifyMessage::Here(here) => self.together && here.incarnation > NEW_INCARNATIONS,
            _ => false,
        }
    }

    /// Whether tokens matter before there are enough of them: where extra protection may forgive that some are missing,
    /// and where an executor that is late is left out. There they are received one by one.
    fn notes_matter(&self) -> bool {
        self.extra_after.is_some() || self.layout == Layout::PairWithWitness
    }

    /// The lists of messages that may have an effect together at a machine: tokens for the next batch of a verifier, or
    /// RECORDED of one version at an executor.
    pub(super) fn bundles(&self, state: &WorldState, part: usize) -> Vec<Vec<u32>> {
        if !self.together {
            return Vec::new();
        }
        let key = |message_number: u32| {
            let Posted { from, message, .. } = self.tables.messages.value(message_number);
            if !self.counts(message_number) {
                return None;
            }
            match (message, self.tables.machines.value(state.parts[part])) {
                (VerifyMessage::Verify { view, version, parent, .. }, Machine::Verifier(verifier)) => {
                    let record = verifier.record().filter(|_| !verifier.is_changing())?;
                    let next = (record.view, record.version.number + 1);
                    ((*view, version.number) == next).then_some((next.0, next.1, 0, (*from, parent.0)))
                }
                (VerifyMessage::Recorded { record, .. }, Machine::Executor(executor)) => {
                    let is_new = executor.view().is_none_or(|view| {
                        (record.view, record.version.number) > (view, executor.stable().number)
                    });
                    let Version { number, token } = record.version;
                    is_new.then_some((record.view, number, token.0, (*from, 0)))
                }
                (VerifyMessage::Here(_), Machine::Executor(executor)) => {
                    (!executor.knows_its_incarnation()).then_some((u64::MAX, 0, 0, (*from, 0)))
                }
                (VerifyMessage::Here(here), Machine::Verifier(verifier)) => {
                    let is_blank = verifier.record().is_none() && self.concerns(part, message_number);
                    is_blank.then_some((u64::MAX, here.round as u64, 0, (*from, 0)))
                }
                _ => None,
            }
        };
        let mut groups: BTreeMap<Topic, Vec<(Sender, u32)>> = BTreeMap::new();
        for message in state.messages.iter() {
            if let Some((view, number, token, sender)) = key(message) {
                groups.entry((view, number, token)).or_default().push((sender, message));
            }
        }
        let is_verifier = part < self.verifiers();
        let one_is_enough = !self.rules.quorum || !self.rules.quorum_at_start;
        // Answers to WHERE have an effect together too.
        let least = if is_verifier || one_is_enough { 1 } else { self.layout.quorum() };
        let most = if is_verifier { usize::MAX } else { self.layout.quorum() };
        groups.values().flat_map(|group| lists(group, least, most)).collect()
    }
}

/// All lists of so many messages with different senders.
fn lists<K: PartialEq>(from: &[(K, u32)], least: usize, most: usize) -> Vec<Vec<u32>> {
    let of_mask = |mask: u32| {
        let chosen: Vec<&(K, u32)> = from
            .iter()
            .enumerate()
            .filter(|(index, _)| mask & (1 << index) != 0)
            .map(|(_, one)| one)
            .collect();
        let differ = chosen
            .iter()
            .enumerate()
            .all(|(index, one)| chosen[..index].iter().all(|other| other.0 != one.0));
        (differ && (least..=most).contains(&chosen.len())).then(|| chosen.iter().map(|one| one.1).collect())
    };
    (1..1u32 << from.len().min(12)).filter_map(of_mask).collect()
}

/// Whether more has happened than that messages were noted.
pub(super) fn has_effect(before: &Machine, after: &Machine) -> bool {
    match (before, after) {
        (Machine::Verifier(before), Machine::Verifier(after)) => {
            before.record() != after.record() || before.promised() != after.promised()
        }
        (Machine::Executor(before), Machine::Executor(after)) => {
            (before.view(), before.stable(), before.wanted())
                != (after.view(), after.stable(), after.wanted())
        }
        _ => true,
    }
}
