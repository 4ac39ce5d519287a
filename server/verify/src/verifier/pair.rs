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
//! finds, and is the primary only of views that this incarnation has begun.

use crate::limits::{PAIR_ASK_US, PAIR_PROOF_US, PAIR_SILENCE_US};
use crate::message::{AskRound, Lineup, Reason, TokenRecord, VerifyMessage};
use crate::slots::{Slot, Slots};
use crate::version::{StateToken, Version};

use super::Verifier;
use super::events::{Out, Recipients, VerifierCommand};
use super::operator::next_identity;
use super::recorder::Recorder;
use super::times::has_passed;

/// What the verifier of a pair knows about its peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PairState {
    /// The last version of this view that the own executor has sent a token for.
    sent: Option<Version>,
    /// The own executor joins in this view, and has sent what shows that it has the view's start.
    is_level: bool,
    /// When the peer was last heard, in microseconds.
    last_received: Option<u64>,
    /// How long it has been silent, of which only a short time counts between two ticks: when this process was stopped
    /// itself, what its peer has sent meanwhile waits to be read.
    silent_us: u64,
    /// When time passed last.
    ticked: Option<u64>,
    /// When the question was sent that waits for its answer. Only one does, so that an answer belongs to it.
    asked: Option<u64>,
    /// When the last question was sent that the peer has answered: it cannot have taken over before this time and the
    /// silence that it keeps.
    confirmed: Option<u64>,
    /// The peer may have taken over, and its memory is lost.
    waits: bool,
}

/// A view that a process of a pair begins.
pub(super) struct PairView {
    /// How much higher its number is than that of the present one.
    by: u64,
    version: Version,
    executors: Slots,
    joining: Slots,
    sequential: bool,
}

impl PairState {
    /// Notes that the peer was heard.
    pub(super) fn receives(&mut self, now_us: u64) {
        (self.last_received, self.silent_us) = (Some(now_us), 0);
    }

    /// Notes that the peer has answered the question.
    pub(super) fn is_answered(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.confirmed = Some(asked);
        }
    }

    /// The own executor's tokens are what a takeover keeps.
    pub(super) fn sends(&mut self, record: &TokenRecord, view: u64, version: Version, parent: StateToken) {
        let is_next = version.number == record.version.number.saturating_add(1);
        let has_start = version == record.version || (is_next && parent == record.version.token);
        self.is_level |= view == record.view && has_start;
        let is_newer = self.sent.is_none_or(|sent| sent.number < version.number);
        if view == record.view && is_newer {
            self.sent = Some(version);
        }
    }

    /// The view is left for another one.
    pub(super) fn leaves(&mut self) {
        (self.sent, self.is_level) = (None, false);
        self.waits = false;
    }

    /// The primary's next view, because tokens differ or because the backup is back.
    pub(super) fn change(&mut self, recorder: &Recorder, reason: Reason, out: &Out<'_>) -> Option<PairView> {
        let mut executors = recorder.record.lineup.executors;
        let joins = reason == Reason::Joined;
        let is_ahead = needs_both(recorder) && !joins && recorder.count().received != executors;
        if !recorder.decides() || is_ahead {
            // Two views ahead of the backup would be more than a takeover adds.
            return None;
        }
        let version = recorder.record.version;
        if joins {
            let before = executors;
            executors = before.or(recorder.caught_up(version));
            if executors != before {
                // The backup cannot take over before it knows of this view.
                self.confirmed = Some(out.now_us);
            }
        }
        let joining = executors.minus(recorder.copies(&recorder.record, executors));
        let sequential = matches!(reason, Reason::Diverged | Reason::Extra);
        Some(PairView { by: 2, version, executors, joining, sequential })
    }

    /// Whether this incarnation knows every token that its process has sent in this view, and has what the view began
    /// with. In views up to the one that it found when it recovered, an earlier incarnation may have sent some. One
    /// that was taken in before it was level has not what its primary has released alone, until it has shown that it
    /// has.
    fn is_backup(&self, recorder: &Recorder) -> bool {
        let Lineup { primary, executors, joining, .. } = recorder.record.lineup;
        let (me, view) = (recorder.config.me, recorder.record.view);
        let is_known = !recorder.is_blank() && recorder.leads_after.is_none_or(|last| view > last);
        is_known && primary != me && executors.contains(me) && (self.is_level || !joining.contains(me))
    }

    fn takeover(&self, recorder: &Recorder) -> PairView {
        let recorded = recorder.record.version;
        let sent = self.sent.filter(|sent| sent.number > recorded.number);
        let version = sent.filter(|_| recorder.config.rules.keep_sent).unwrap_or(recorded);
        alone(recorder, 3, version)
    }

    /// The peer was not heard for long.
    pub(super) fn on_silence(&self, recorder: &Recorder) -> Option<PairView> {
        self.is_backup(recorder).then(|| self.takeover(recorder))
    }

    /// The peer's process has ended.
    pub(super) fn on_gone(&mut self, recorder: &Recorder, out: &mut Out<'_>) -> Option<PairView> {
        self.asked = None;
        if self.is_backup(recorder) {
            // The primary is not alone: that would take a proof that this process has ended.
            return Some(self.takeover(recorder));
        }
        if !needs_both(recorder) {
            return None;
        }
        let in_time = self.is_sure(out.now_us) || !recorder.config.rules.proof_in_time;
        let version = recorder.record.version;
        if in_time {
            return Some(alone(recorder, 2, version));
        }
        if !std::mem::replace(&mut self.waits, true) {
            out.commands.push(VerifierCommand::WaitsForPeer { version });
        }
        None
    }

    /// The operator decides.
    pub(super) fn on_go_alone(&self, recorder: &Recorder, has: Version) -> Option<PairView> {
        if recorder.is_blank() {
            return None;
        }
        if self.is_backup(recorder) {
            return Some(self.takeover(recorder));
        }
        // Where the peer went on without this process, what it has released is lost; the operator knows.
        if has.number < recorder.record.version.number {
            let by = next_identity(recorder).saturating_sub(recorder.record.view);
            return Some(alone(recorder, by, has));
        }
        let is_own = recorder.leader(recorder.record.view) == recorder.config.me;
        Some(alone(recorder, if is_own { 2 } else { 3 }, recorder.record.version))
    }

    /// Another connection: what was asked on the last one is not answered.
    pub(super) fn on_connected(&mut self, recorder: &Recorder, out: &mut Out<'_>) {
        self.asked = None;
        self.ask(recorder, out);
    }

    fn ask(&mut self, recorder: &Recorder, out: &mut Out<'_>) {
        if recorder.is_blank() || self.asked.is_some() {
            return;
        }
        self.asked = Some(out.now_us);
        let (incarnation, round, crashes) = (recorder.config.incarnation, AskRound::Alive, recorder.crashes);
        let peer = 1 - recorder.config.me.min(1);
        out.send(Recipients::One(peer), VerifyMessage::Where { incarnation, round, crashes });
    }

    /// Asks the peer from time to time. Returns whether it was silent for too long.
    pub(super) fn on_tick(&mut self, recorder: &Recorder, out: &mut Out<'_>) -> bool {
        let now_us = out.now_us;
        let last_received = *self.last_received.get_or_insert(now_us);
        let passed_us = now_us.saturating_sub(self.ticked.replace(now_us).unwrap_or(now_us));
        self.silent_us = self.silent_us.saturating_add(passed_us.min(PAIR_SILENCE_US / 4));
        if has_passed(self.confirmed, PAIR_ASK_US, now_us) || self.confirmed.is_none() {
            self.ask(recorder, out);
        }
        // The primary counts on the whole time since it was heard last.
        now_us.saturating_sub(last_received) >= PAIR_SILENCE_US && self.silent_us >= PAIR_SILENCE_US
    }

    /// Whether the primary may go on alone on a proof that comes now.
    pub(super) fn is_sure(&self, now_us: u64) -> bool {
        self.confirmed.is_some_and(|at_us| now_us.saturating_sub(at_us) <= PAIR_PROOF_US)
    }

    /// The peer has answered once, as if the pair had been together for a while.
    #[cfg(any(test, feature = "unprotected"))]
    pub(super) fn is_confirmed(&mut self) {
        self.confirmed = Some(0);
    }
}

fn alone(recorder: &Recorder, by: u64, version: Version) -> PairView {
    let (executors, joining) = (Slots::one(recorder.config.me), Slots::EMPTY);
    PairView { by, version, executors, joining, sequential: false }
}

fn needs_both(recorder: &Recorder) -> bool {
    recorder.decides() && recorder.record.lineup.executors.len() > 1
}

impl Verifier {
    /// Begins a view of a pair.
    pub(super) fn lead_pair(&mut self, view: Option<PairView>, out: &mut Out<'_>) {
        let Some(PairView { by, version, executors, joining, sequential }) = view else { return };
        let primary = self.recorder.config.me;
        let lineup = Lineup { primary, executors, joining, sequential, extra: false };
        let view = self.recorder.record.view.saturating_add(by);
        self.pair.leaves();
        self.recorder.began = Some(view);
        self.install(TokenRecord { view, version, lineup }, out);
    }

    /// The backup follows its primary.
    pub(super) fn on_recorded(&mut self, from: Slot, record: TokenRecord, out: &mut Out<'_>) {
        let recorder = &self.recorder;
        let of_peer = !recorder.is_by_quorum() && from != recorder.config.me;
        if of_peer && !recorder.is_blank() && recorder.leader(record.view) == from {
            self.catch_up(record, out);
        }
    }

    pub(super) fn on_process_gone(&mut self, slot: Slot, out: &mut Out<'_>) {
        if self.recorder.is_by_quorum() || slot == self.recorder.config.me {
            return self.on_disconnected(slot, out);
        }
        let view = self.pair.on_gone(&self.recorder, out);
        self.lead_pair(view, out);
    }
}
