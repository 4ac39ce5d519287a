//! Two replicas without a third verifier: the primary of a view is its verifier, and a quorum is one (Eve, section
//! 6.2, without its risk of two primaries).
//!
//! In the paper both go on alone after silence, and a cut link makes two primaries. Here:
//!
//! - A view of both executors needs both tokens. So the primary records nothing without the backup's.
//! - After silence the backup takes over, and *keeps every batch that it has sent a token for*: the primary may have
//!   released these, and no others.
//! - The primary goes on alone only on a proof that the backup's process has ended, and with it its memory, which comes
//!   before the backup can have taken over. Else it waits for its peer, or for the operator.
//!
//! Views of process 0 are even, those of process 1 odd. A primary begins its next view by 2. It can be one view ahead
//! of what its backup knows, not two: to leave a view of both it needs the backup's token in it. A takeover adds 3, so
//! it is above both, and the highest view wins wherever the two meet. What a primary recorded in views of both up to
//! then is in the backup's start. Both are alone at no time: a proof comes only of a process that is gone, and what is
//! gone does not take over. A process that comes back without memory takes over from no view up to the one that it
//! finds, and is the primary only of views that this life has begun.

use crate::limits::{PAIR_ASK_US, PAIR_PROOF_US, PAIR_SILENCE_US};
use crate::message::{AskRound, Lineup, Reason, TokenRecord, VerifyMessage};
use crate::slots::{Slot, Slots};
use crate::version::Version;

use super::tick::has_passed;
use super::{Layout, Out, Recipients, Verifier, VerifierCommand};

/// What the verifier of a pair knows about its peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PairState {
    /// The last version of this view that the own executor has sent a token for.
    sent: Option<Version>,
    /// When the peer was last heard, in microseconds.
    heard: Option<u64>,
    /// When the question was sent that waits for its answer. Only one does, so that an answer belongs to it.
    asked: Option<u64>,
    /// When the last question was sent that the peer has answered: it cannot have taken over before this time and the
    /// silence that it keeps.
    confirmed: Option<u64>,
    /// The peer may have taken over, and its memory is lost.
    waits: bool,
    /// The view that this life has begun last.
    began: Option<u64>,
}

impl Verifier {
    /// Whether this verifier records. In a pair only the primary's does, and not in a view that an earlier life of it
    /// has begun: late messages may tell of such a view at any time.
    pub(super) fn decides(&self) -> bool {
        let began = self.pair.began == Some(self.record.view);
        self.changes_by_quorum()
            || (self.record.lineup.primary == self.config.me && began && !self.is_blank())
    }

    /// Whether views begin by a quorum of verifiers.
    pub(super) fn changes_by_quorum(&self) -> bool {
        self.config.layout != Layout::Pair
    }

    /// Whether this life knows every token that its process has sent in this view. In views up to the one that it found
    /// when it recovered, an earlier life may have sent some.
    fn is_backup(&self) -> bool {
        let Lineup { primary, executors, .. } = self.record.lineup;
        let is_known = !self.is_blank() && self.leads_after.is_none_or(|last| self.record.view > last);
        is_known && primary != self.config.me && executors.contains(self.config.me)
    }

    /// A view begins with this life as its primary, or from its memory on disk.
    pub(super) fn pair_begins(&mut self, view: u64) {
        self.pair.began = Some(view);
    }

    fn needs_both(&self) -> bool {
        self.decides() && self.record.lineup.executors.len() > 1
    }

    /// Begins the primary's next view, because tokens differ or because the backup is back.
    pub(super) fn pair_change(&mut self, reason: Reason, out: &mut Out<'_>) {
        let mut executors = self.record.lineup.executors;
        if !self.decides() {
            return;
        }
        if reason == Reason::Joined {
            executors = executors.or(self.caught_up(self.record.version));
            // The backup cannot take over before it knows of this view.
            self.pair.confirmed = Some(out.now_us);
        }
        let sequential = matches!(reason, Reason::Diverged | Reason::Extra);
        self.lead_pair(2, self.record.version, executors, sequential, out);
    }

    fn lead_pair(
        &mut self,
        by: u64,
        version: Version,
        executors: Slots,
        sequential: bool,
        out: &mut Out<'_>,
    ) {
        let lineup = Lineup { primary: self.config.me, executors, sequential, extra: false };
        let view = self.record.view.saturating_add(by);
        self.pair.waits = false;
        self.pair.sent = None;
        self.pair_begins(view);
        self.install(TokenRecord { view, version, lineup }, out);
    }

    fn take_over(&mut self, out: &mut Out<'_>) {
        let recorded = self.record.version;
        let sent = self.pair.sent.filter(|sent| sent.number > recorded.number);
        let base = sent.filter(|_| self.config.rules.keep_sent).unwrap_or(recorded);
        self.lead_pair(3, base, Slots::one(self.config.me), false, out);
    }

    fn go_alone(&mut self, out: &mut Out<'_>) {
        self.lead_pair(2, self.record.version, Slots::one(self.config.me), false, out);
    }

    /// Notes that the peer was heard.
    pub(super) fn pair_hears(&mut self, from: Slot, out: &Out<'_>) {
        if !self.changes_by_quorum() && from != self.config.me {
            self.pair.heard = Some(out.now_us);
        }
    }

    /// Notes that the peer has answered a question.
    pub(super) fn pair_on_answer(&mut self) {
        if let Some(asked) = self.pair.asked.take() {
            self.pair.confirmed = Some(asked);
        }
    }

    /// The own executor's tokens are what a takeover keeps.
    pub(super) fn pair_on_verify(&mut self, from: Slot, view: u64, version: Version) {
        let newer = self.pair.sent.is_none_or(|sent| sent.number < version.number);
        if !self.changes_by_quorum() && from == self.config.me && view == self.record.view && newer {
            self.pair.sent = Some(version);
        }
    }

    /// The backup follows its primary.
    pub(super) fn pair_on_recorded(&mut self, from: Slot, record: TokenRecord, out: &mut Out<'_>) {
        let of_peer = !self.changes_by_quorum() && from != self.config.me;
        if of_peer && !self.is_blank() && self.leader(record.view) == from {
            self.catch_up(record, out);
        }
    }

    /// The backup's view is left for another one.
    pub(super) fn pair_follows(&mut self) {
        self.pair.sent = None;
        self.pair.waits = false;
    }

    pub(super) fn pair_on_silence(&mut self, out: &mut Out<'_>) {
        if self.changes_by_quorum() {
            return;
        }
        if self.is_backup() {
            self.take_over(out);
        } else if self.needs_both() && self.config.alone_after_silence {
            self.go_alone(out);
        }
    }

    /// A process has ended.
    pub(super) fn on_process_gone(&mut self, slot: Slot, out: &mut Out<'_>) {
        if self.changes_by_quorum() || slot == self.config.me {
            return self.on_disconnected(slot, out);
        }
        self.pair.asked = None;
        if self.is_backup() {
            // The primary is not alone: that would take a proof that this process has ended.
            return self.take_over(out);
        }
        if !self.needs_both() {
            return;
        }
        let late = |at: u64| out.now_us.saturating_sub(at) > PAIR_PROOF_US;
        let in_time = self.pair.confirmed.is_some_and(|at| !late(at)) || !self.config.rules.proof_in_time;
        if in_time {
            self.go_alone(out);
        } else if !std::mem::replace(&mut self.pair.waits, true) {
            out.commands.push(VerifierCommand::WaitsForPeer { version: self.record.version });
        }
    }

    pub(super) fn on_go_alone(&mut self, out: &mut Out<'_>) {
        if self.changes_by_quorum() {
            return;
        }
        if self.is_backup() {
            self.take_over(out);
        } else if self.decides() {
            self.go_alone(out);
        } else if !self.is_blank() {
            // What the peer has released without this process is lost; the operator knows.
            let by = if self.leader(self.record.view) == self.config.me { 2 } else { 3 };
            self.lead_pair(by, self.record.version, Slots::one(self.config.me), false, out);
        }
    }

    pub(super) fn pair_on_connected(&mut self, slot: Slot, out: &mut Out<'_>) {
        if !self.changes_by_quorum() && slot != self.config.me {
            self.pair.asked = None;
            self.pair_ask(out);
        }
    }

    fn pair_ask(&mut self, out: &mut Out<'_>) {
        if self.is_blank() || self.pair.asked.is_some() {
            return;
        }
        self.pair.asked = Some(out.now_us);
        let (life, round, crashes) = (self.config.life, AskRound::Alive, self.crashes);
        let peer = 1 - self.config.me.min(1);
        out.send(Recipients::One(peer), VerifyMessage::Where { life, round, crashes });
    }

    pub(super) fn pair_tick(&mut self, out: &mut Out<'_>) {
        let now_us = out.now_us;
        let heard = *self.pair.heard.get_or_insert(now_us);
        if has_passed(self.pair.confirmed, PAIR_ASK_US, now_us) || self.pair.confirmed.is_none() {
            self.pair_ask(out);
        }
        if now_us.saturating_sub(heard) >= PAIR_SILENCE_US {
            self.pair_on_silence(out);
        }
    }

    /// The peer has answered once, as if the pair had been together for a while.
    #[cfg(any(test, feature = "unprotected"))]
    pub(super) fn pair_is_confirmed(&mut self) {
        self.pair.confirmed = Some(0);
    }
}
