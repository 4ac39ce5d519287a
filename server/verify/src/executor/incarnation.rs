//! Which incarnation of its process an executor is in. An earlier one may have sent tokens that this one does not know
//! of.
//!
//! An executor sends one token for each view, batch and parent. An incarnation without memory cannot know what earlier
//! ones sent, so it abstains where they may have sent any: in views up to the present one, for batches up to a window
//! beyond the newest record. Both follow from answers to this incarnation of a quorum of verifiers:
//!
//! - *View.* An earlier incarnation followed view v on RECORDED of a quorum. One of those verifiers is in the quorum
//!   that answers, and has promised v or more.
//! - *Batch.* An earlier incarnation ran at most [`WINDOW`] batches beyond a version that was stable in view v: a
//!   quorum had recorded it, so the highest record among the answers continues it.
//!
//! One that gets another state in place, in the same incarnation, need not abstain. What matters is not which state it
//! has, but that it knows what it has sent: `Executor::sent` has that for the present view, and does not belong to the
//! state. For a batch and parent for which it has sent a token it sends that one or none. Batches up to the state's own
//! are stable, and no token is sent for them. In a later view it has sent nothing.
//!
//! The first incarnation need not abstain. A verifier that took part in the group's founding knows the incarnations
//! that did (`verifier/recover.rs`).

use std::collections::BTreeMap;

use crate::limits::WINDOW;
use crate::message::Here;
use crate::slots::Slot;

use super::{Executor, Out};

/// What an executor knows about earlier incarnations of its process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Incarnation {
    /// Nothing yet; the answers so far: promised view, record's number, incarnation of the verifier.
    Unknown(BTreeMap<Slot, (u64, u64, u16)>),
    /// There was none.
    First,
    /// An earlier incarnation may have sent tokens in views up to this one, for batches up to this number.
    Later {
        /// The view.
        view: u64,
        /// The batch.
        number: u64,
    },
}

impl Default for Incarnation {
    fn default() -> Self {
        Incarnation::Unknown(BTreeMap::new())
    }
}

impl Incarnation {
    pub(super) fn may_vote(&self, in_view: u64, batch: u64, abstains: bool) -> bool {
        match self {
            Incarnation::First => true,
            Incarnation::Unknown(_) => !abstains,
            Incarnation::Later { view, number } => !abstains || in_view > *view || batch > *number,
        }
    }

    pub(super) fn is_known(&self) -> bool {
        !matches!(self, Incarnation::Unknown(_))
    }
}

impl Executor {
    /// An answer to WHERE.
    pub(super) fn learn_incarnation(&mut self, from: Slot, here: &Here, out: &mut Out<'_>) {
        let (Some((promised, record)), true) = (here.memory, here.incarnation == self.config.incarnation)
        else {
            return;
        };
        if from >= self.config.layout.verifiers() || self.incarnation == Incarnation::First {
            return;
        }
        // A verifier that learned from another one that the group has begun does not know of this incarnation. One that
        // does may answer after it.
        if here.founding == self.config.incarnation {
            self.incarnation = Incarnation::First;
            return self.vote_again(out);
        }
        let Incarnation::Unknown(answers) = &mut self.incarnation else { return };
        answers.insert(from, (promised, record.version.number, here.crashes.of_slot(from)));
        let consistent =
            answers.iter().filter(|(verifier, answer)| answer.2 >= self.crashes.of_slot(**verifier));
        let (count, view, number) = consistent.fold((0, 0, 0), |(count, view, number), (_, answer)| {
            (count + 1, view.max(answer.0), number.max(answer.1))
        });
        if count >= self.config.layout.quorum() {
            self.incarnation = Incarnation::Later { view, number: number.saturating_add(WINDOW) };
            self.vote_again(out);
        }
    }
}
