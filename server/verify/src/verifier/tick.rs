//! What a verifier waits for. Time only repeats messages and asks for another view; it decides nothing.

use crate::limits::{EXTRA_PATIENCE_US, PRIMARY_GONE_US};
use crate::message::Reason;
use crate::slots::Slot;

use super::Verifier;
use super::events::{Out, Recipients, Timer};
use super::recorder::VerifierPhase;
use super::times::has_passed;

impl Verifier {
    pub(super) fn on_connected(&mut self, slot: Slot, out: &mut Out<'_>) {
        let recorder = &mut self.recorder;
        recorder.down = recorder.down.without(slot);
        if recorder.needs(slot) {
            recorder.times.primary_gone = None;
        }
        if slot == recorder.config.me {
            return;
        }
        if recorder.is_blank() {
            return self.recovery.ask(recorder, Recipients::One(slot), out);
        }
        if recorder.phase == VerifierPhase::Normal && recorder.decides() {
            // Its executor may have missed the start of this view.
            let message = recorder.recorded();
            out.send(Recipients::One(slot), message);
        }
        if !recorder.is_by_quorum() {
            self.pair.on_connected(recorder, out);
        }
    }

    pub(super) fn on_disconnected(&mut self, slot: Slot, out: &mut Out<'_>) {
        let recorder = &mut self.recorder;
        recorder.down = recorder.down.with(slot);
        recorder.doubt(slot);
        if recorder.needs(slot) {
            recorder.times.primary_gone.get_or_insert(out.now_us);
        }
        // Its tokens will not come.
        self.step(out);
    }

    pub(super) fn on_tick(&mut self, out: &mut Out<'_>) {
        let now_us = out.now_us;
        self.recorder.times.tick(now_us);
        if self.recorder.times.may_ask(now_us) {
            self.on_elapsed(Timer::Resend, out);
        }
        let recorder = &mut self.recorder;
        if !recorder.is_by_quorum() {
            if self.pair.on_tick(recorder, out) {
                self.on_elapsed(Timer::Silence, out);
            }
            return;
        }
        if recorder.is_blank() {
            return;
        }
        if recorder.waits_for_extra() {
            let since = *recorder.times.extra.get_or_insert(now_us);
            if now_us.saturating_sub(since) >= EXTRA_PATIENCE_US {
                self.on_elapsed(Timer::Extra, out);
            }
        }
        let recorder = &mut self.recorder;
        let normal = recorder.phase == VerifierPhase::Normal;
        if normal && has_passed(recorder.times.primary_gone, PRIMARY_GONE_US, now_us) {
            recorder.times.primary_gone = None;
            return self.change(Reason::PrimaryGone, out);
        }
        let patience_us = recorder.patience_us(now_us);
        if has_passed(recorder.times.waiting, patience_us, now_us) {
            self.on_elapsed(Timer::ViewChange, out);
        }
    }

    pub(super) fn on_elapsed(&mut self, timer: Timer, out: &mut Out<'_>) {
        let recorder = &mut self.recorder;
        match timer {
            Timer::Resend => self.repeat(out),
            Timer::ViewChange if !recorder.is_blank() && recorder.is_by_quorum() => {
                let reason = recorder.why_late(out);
                self.change(reason, out)
            }
            // To roll back would free no replica that hangs.
            Timer::Extra if recorder.waits_for_extra() => {
                recorder.extra.forgive();
                self.step(out);
            }
            Timer::Silence if !recorder.is_by_quorum() => {
                let view = self.pair.on_silence(recorder);
                self.lead_pair(view, out);
            }
            Timer::ViewChange | Timer::Extra | Timer::Silence => {}
        }
    }

    /// Sends again what may have been lost.
    fn repeat(&mut self, out: &mut Out<'_>) {
        self.announce_view(out);
        let recorder = &mut self.recorder;
        match recorder.phase {
            VerifierPhase::Blank => self.recovery.ask(recorder, Recipients::Verifiers, out),
            VerifierPhase::Changing => self.send_wish(out),
            // The others may have recorded what this verifier waits for.
            VerifierPhase::Normal if recorder.times.is_impatient(recorder.config.layout, out.now_us) => {
                recorder.times.asked = None;
                recorder.ask_to_catch_up(out);
            }
            VerifierPhase::Normal => {}
        }
    }
}
