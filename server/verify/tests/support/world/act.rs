//! What executors act on, where they are not real machines but whatever the rules allow.

use verify::{CrashVector, Slot, VerifyMessage, Version};

use crate::support::table::prefix;

use super::{Posted, Tables, World, WorldState};

impl World {
    /// Whether executors may follow a view: a quorum has recorded a version in it.
    pub(super) fn has_begun(&self, state: &WorldState, view: u64) -> bool {
        let needed = if self.rules.quorum && self.rules.quorum_at_start { self.layout.quorum() } else { 1 };
        view == 0
            || state.messages.iter().any(|message| match &self.tables.messages.value(message).message {
                VerifyMessage::Recorded { record, .. } if record.view == view => {
                    self.is_recorded(state, view, record.version, needed)
                }
                _ => false,
            })
    }

    /// A new RECORDED: is its version acted on?
    pub(super) fn act_on_quorum(&self, state: &mut WorldState, message: u32) {
        let VerifyMessage::Recorded { record, .. } = &self.tables.messages.value(message).message else {
            return;
        };
        let needed = if self.rules.quorum { self.layout.quorum() } else { 1 };
        let at_start = needed > 1 && !self.rules.quorum_at_start;
        if self.is_recorded(state, record.view, record.version, needed)
            || (at_start && record.view > 0 && is_start(state, &self.tables, record.view, record.version))
        {
            act(state, record.version);
        }
    }

    /// Whether so many verifiers have recorded this, in messages that are crash-consistent.
    pub(super) fn is_recorded(&self, state: &WorldState, view: u64, version: Version, needed: usize) -> bool {
        let recorded: Vec<(Slot, CrashVector)> = state
            .messages
            .iter()
            .filter_map(|message| match self.tables.messages.value(message) {
                Posted { from, message: VerifyMessage::Recorded { record, crashes }, .. }
                    if record.view == view && record.version == version =>
                {
                    Some((*from, *crashes))
                }
                _ => None,
            })
            .collect();
        has_consistent(&recorded, &mut Vec::new(), needed)
    }
}

/// Whether no record of this view has a lower number: the version is what the view began with.
fn is_start(state: &WorldState, tables: &Tables, view: u64, version: Version) -> bool {
    state.messages.iter().all(|message| match &tables.messages.value(message).message {
        VerifyMessage::Recorded { record, .. } => {
            record.view != view || record.version.number >= version.number
        }
        _ => true,
    })
}

/// Whether `chosen` can be completed to so many messages of different verifiers, none of which is older than another
/// one knows.
fn has_consistent(
    from: &[(Slot, CrashVector)],
    chosen: &mut Vec<(Slot, CrashVector)>,
    needed: usize,
) -> bool {
    if chosen.len() == needed {
        return true;
    }
    let Some(((slot, crashes), rest)) = from.split_first() else { return false };
    let fits = chosen.iter().all(|(other, others)| {
        other != slot
            && crashes.of_slot(*slot) >= others.of_slot(*slot)
            && others.of_slot(*other) >= crashes.of_slot(*other)
    });
    if fits {
        chosen.push((*slot, *crashes));
        if has_consistent(rest, chosen, needed) {
            return true;
        }
        chosen.pop();
    }
    has_consistent(rest, chosen, needed)
}

/// An executor acts on a version: all that were acted on have to form one chain.
pub(super) fn act(state: &mut WorldState, version: Version) {
    let shorter = version.number.min(state.acted.number);
    if prefix(version.token, shorter) != prefix(state.acted.token, shorter) {
        state.broken = true;
    }
    if version.number > state.acted.number {
        state.acted = version;
    }
}
