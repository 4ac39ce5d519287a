//! What verifiers cannot decide, and an operator does: the group goes on with what one process has.
//!
//! That process begins the next *identity* of the group, the upper half of a view's number, at the version that it
//! has. No view of an identity before comes after it. A verifier with a memory of one before takes the new view over
//! like any later one, and an executor that has more, or does not know that it has the same, gives it up
//! ([`ExecutorCommand::Contradiction`](crate::ExecutorCommand)).
//!
//! **A majority without memory.** Where verifiers decide by majority and too few have a memory, none of the others can
//! recover. They found the new identity together with the one that is kept. It tells them so as the founder of a group
//! does (`recover.rs`), by their incarnations, and by the same argument that is safe: an incarnation that was without
//! memory when the identity began has said nothing in it, and neither has an earlier incarnation of that process. Any
//! later incarnation of it recovers from a quorum with memory, as always. With the one that is kept they are a quorum,
//! so that the identity before has none any more: whoever comes back with a memory of it is one of the other u.

use std::collections::BTreeMap;

use crate::config::Layout;
use crate::limits::IDENTITY_VIEWS;
use crate::message::{Lineup, TokenRecord, VerifyMessage};
use crate::slots::{CrashVector, Slot, Slots};
use crate::version::Version;

use super::Verifier;
use super::events::{Out, Recipients, VerifierCommand};
use super::recorder::Recorder;

/// The first view that this verifier leads in the next identity of the group.
pub(super) fn next_identity(recorder: &Recorder) -> u64 {
    let first =
        (recorder.promised.max(recorder.record.view) / IDENTITY_VIEWS + 1).saturating_mul(IDENTITY_VIEWS);
    let verifiers = u64::from(recorder.config.layout.verifiers());
    let own = |view: &u64| recorder.leader(*view) == recorder.config.me;
    (first..first.saturating_add(verifiers)).find(own).unwrap_or(first)
}

impl Verifier {
    /// The operator lets the group go on with the version that this process has; `blank` are incarnations of others
    /// that have told that they are without memory. Of two executors this one is alone at first.
    pub(super) fn on_go_alone(&mut self, has: Version, blank: &BTreeMap<Slot, u64>, out: &mut Out<'_>) {
        let recorder = &mut self.recorder;
        if !recorder.is_by_quorum() {
            let view = self.pair.on_go_alone(recorder, has);
            return self.lead_pair(view, out);
        }
        let (layout, me) = (recorder.config.layout, recorder.config.me);
        let mut founding = blank.clone();
        founding.retain(|slot, _| *slot < layout.verifiers());
        founding.insert(me, recorder.config.incarnation);
        let is_quorum = founding.len() >= layout.quorum();
        if recorder.is_blank() || (layout != Layout::PairWithWitness && !is_quorum) {
            return;
        }
        let executors = match layout.leaves_out() {
            true => Slots::one(me),
            false => Slots::first(layout.executors()),
        };
        let lineup =
            Lineup { primary: me, executors, joining: Slots::EMPTY, sequential: false, extra: false };
        let record = TokenRecord { view: next_identity(recorder), version: has, lineup };
        recorder.began = Some(record.view);
        self.founding = founding;
        self.install(record, out);
        self.announce_view(out);
    }

    /// Tells the other verifiers of a view that an operator has begun here, again and again: they need not ask for it.
    pub(super) fn announce_view(&self, out: &mut Out<'_>) {
        let recorder = &self.recorder;
        if recorder.is_by_quorum() && recorder.began == Some(recorder.record.view) && !recorder.is_blank() {
            let (record, crashes) = (recorder.record, recorder.crashes);
            out.send(Recipients::Verifiers, VerifyMessage::NewView { record, crashes });
        }
    }

    /// A verifier without memory is told that this incarnation of it takes part in the group's beginning. That of a
    /// later identity than the first is not its genesis: it takes over what the founder has.
    pub(super) fn found_with(
        &mut self,
        incarnations: BTreeMap<Slot, u64>,
        founder: Option<TokenRecord>,
        crashes: &CrashVector,
        out: &mut Out<'_>,
    ) {
        match founder.filter(|record| record.view >= IDENTITY_VIEWS) {
            Some(record) => {
                self.founding = incarnations;
                self.recorder.crashes.join(crashes);
                out.commands.push(VerifierCommand::Recovered);
                self.install(record, out);
            }
            None => self.found(incarnations, out),
        }
    }
}
