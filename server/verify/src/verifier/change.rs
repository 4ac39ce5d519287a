//! View changes: who starts the next view, from which record, and with which executors.

use std::collections::BTreeMap;

use crate::message::{AskRound, Lineup, Reason, TokenRecord, VerifyMessage};
use crate::slots::{CrashVector, Slot, Slots};

use super::Verifier;
use super::events::{Out, Recipients};
use super::recorder::{Recorder, VerifierPhase};

/// A verifier's VIEW-CHANGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wish {
    /// The promised view.
    pub(super) view: u64,
    pub(super) reason: Reason,
    pub(super) record: TokenRecord,
    /// Which incarnation of the verifier sent it.
    pub(super) incarnation: u16,
}

/// The newest VIEW-CHANGE of each verifier that may still have an effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Wishes(BTreeMap<Slot, Wish>);

impl Wishes {
    /// Whether it is newer than what is known of this verifier.
    fn is_news(&self, from: Slot, wish: &Wish) -> bool {
        let known = self.0.get(&from).map_or((0, 0), |known| (known.incarnation, known.view));
        (wish.incarnation, wish.view) > known
    }

    /// Those for this view of verifiers that have not lost their memory since.
    fn of(&self, view: u64, crashes: &CrashVector) -> impl Iterator<Item = (Slot, &Wish)> {
        let incarnations = move |(slot, wish): &(&Slot, &Wish)| wish.incarnation >= crashes.of_slot(**slot);
        self.0
            .iter()
            .filter(move |(_, wish)| wish.view == view)
            .filter(incarnations)
            .map(|(slot, wish)| (*slot, wish))
    }
}

impl Verifier {
    /// The host wants another view.
    pub(super) fn suspect(&mut self, reason: Reason, out: &mut Out<'_>) {
        if !self.recorder.is_blank() {
            self.change(reason, out);
        }
    }

    /// Promises the next view whose leader can be reached. In a pair the primary begins its next view.
    pub(super) fn change(&mut self, reason: Reason, out: &mut Out<'_>) {
        let recorder = &self.recorder;
        if !recorder.is_by_quorum() {
            let view = self.pair.change(recorder, reason, out);
            return self.lead_pair(view, out);
        }
        let verifiers = u64::from(recorder.config.layout.verifiers());
        let next = recorder.promised.saturating_add(1);
        let live = |view: &u64| !recorder.down.contains(recorder.leader(*view));
        let view = (next..next.saturating_add(verifiers)).find(live).unwrap_or(next);
        self.promise(view, reason, out);
    }

    fn promise(&mut self, view: u64, reason: Reason, out: &mut Out<'_>) {
        let recorder = &mut self.recorder;
        let me = recorder.config.me;
        recorder.promised = view;
        recorder.phase = VerifierPhase::Changing;
        recorder.times.promised(out.now_us);
        let incarnation = recorder.crashes.of_slot(me);
        self.wishes.0.insert(me, Wish { view, reason, record: recorder.record, incarnation });
        let recorder = &self.recorder;
        self.wishes.0.retain(|slot, wish| *slot == me || matters(recorder, wish));
        recorder.persist(out);
        self.send_wish(out);
        self.try_to_lead(out);
    }

    /// Sends the own VIEW-CHANGE (again).
    pub(super) fn send_wish(&self, out: &mut Out<'_>) {
        let Some(own) = self.wishes.0.get(&self.recorder.config.me) else { return };
        let Wish { view, reason, record, .. } = *own;
        let crashes = self.recorder.crashes;
        out.send(Recipients::Verifiers, VerifyMessage::ViewChange { view, reason, record, crashes });
    }

    pub(super) fn on_view_change(
        &mut self,
        from: Slot,
        wish: Wish,
        crashes: &CrashVector,
        out: &mut Out<'_>,
    ) {
        let recorder = &mut self.recorder;
        let of_other = from != recorder.config.me && recorder.is_by_quorum();
        if recorder.is_blank() || !of_other || !recorder.admit(from, crashes) {
            return;
        }
        if wish.view <= recorder.record.view {
            // The other one has missed that this view began.
            return self.on_where(from, 0, AskRound::CatchUp, crashes, out);
        }
        if !self.wishes.is_news(from, &wish) || !matters(recorder, &wish) {
            return;
        }
        self.wishes.0.insert(from, wish);
        let me = recorder.config.me;
        let others = self.wishes.of(wish.view, &recorder.crashes).filter(|(slot, _)| *slot != me);
        let enough = others.count() + 1 >= recorder.config.layout.quorum();
        if wish.view > recorder.promised
            && (enough || recorder.times.is_impatient(recorder.config.layout, out.now_us))
        {
            return self.promise(wish.view, wish.reason, out);
        }
        self.try_to_lead(out);
    }

    /// Starts the promised view, if it is this verifier's to start and a quorum has promised it.
    pub(super) fn try_to_lead(&mut self, out: &mut Out<'_>) {
        let recorder = &self.recorder;
        let (view, me) = (recorder.promised, recorder.config.me);
        let led_before = recorder.leads_after.is_some_and(|last| view <= last);
        if recorder.phase != VerifierPhase::Changing || recorder.leader(view) != me || led_before {
            return;
        }
        let promises: Vec<&Wish> = self.wishes.of(view, &recorder.crashes).map(|(_, wish)| wish).collect();
        if promises.len() < recorder.config.layout.quorum() {
            return;
        }
        let records = promises.iter().map(|wish| wish.record);
        let Some(base) = records.max_by_key(|record| recorder.rank(record)) else { return };
        let reasons: Vec<Reason> = promises.iter().map(|wish| wish.reason).collect();
        let Some(lineup) = next_lineup(recorder, &base, &reasons) else { return };
        let record = TokenRecord { view, version: base.version, lineup };
        out.send(Recipients::Verifiers, VerifyMessage::NewView { record, crashes: recorder.crashes });
        self.install(record, out);
    }

    pub(super) fn on_new_view(
        &mut self,
        from: Slot,
        record: TokenRecord,
        crashes: &CrashVector,
        out: &mut Out<'_>,
    ) {
        let recorder = &mut self.recorder;
        let is_leader = recorder.leader(record.view) == from && from != recorder.config.me;
        if recorder.is_blank() || !is_leader || !recorder.is_by_quorum() || !recorder.admit(from, crashes) {
            return;
        }
        if record.view >= recorder.promised && record.view > recorder.record.view {
            self.install(record, out);
        }
    }

    /// Takes part in a view.
    pub(super) fn install(&mut self, record: TokenRecord, out: &mut Out<'_>) {
        self.wishes.0.retain(|_, wish| wish.view > record.view);
        self.recorder.enter(record, out);
        self.step(out);
    }
}

/// Whether a wish may still have an effect: its view is a later one, or this verifier is to start it.
fn matters(recorder: &Recorder, wish: &Wish) -> bool {
    let starts =
        recorder.phase == VerifierPhase::Changing && recorder.leader(wish.view) == recorder.config.me;
    wish.view > recorder.promised || (wish.view == recorder.promised && starts)
}

/// Where only tokens differed, the primary stays: it is no suspect, and requests need not be handed over. Where one
/// can go on with fewer executors, those that are late or gone are left out. None while no executor that has what the
/// view would begin with can be reached: nobody could run the next batch.
fn next_lineup(recorder: &Recorder, base: &TokenRecord, reasons: &[Reason]) -> Option<Lineup> {
    let has = |reason: Reason| reasons.contains(&reason);
    let rotates = has(Reason::Late) || has(Reason::PrimaryGone);
    let mut executors = base.lineup.executors;
    if recorder.config.layout.leaves_out() {
        if has(Reason::Joined) {
            executors = executors.or(recorder.caught_up(base.version));
        }
        let copies = recorder.copies(base, executors);
        let staying = executors.minus(late(recorder, base));
        if rotates && !staying.and(copies).is_empty() {
            executors = staying;
        } else if copies.minus(recorder.down).is_empty() && recorder.config.rules.level {
            return None;
        }
    }
    let copies = recorder.copies(base, executors);
    let mut primary = base.lineup.primary;
    if rotates || !copies.contains(primary) {
        let live = copies.minus(recorder.down);
        let candidates = if live.is_empty() { copies } else { live };
        primary = candidates.next_after(primary).unwrap_or(primary);
    }
    let joining = executors.minus(copies);
    let extra = has(Reason::Extra) && recorder.config.extra_after.is_some();
    let sequential = has(Reason::Diverged) || has(Reason::Extra);
    Some(Lineup { primary, executors, joining, sequential, extra })
}

/// Executors that have sent no token for the batch after the record while others have, or whose connection ended.
fn late(recorder: &Recorder, base: &TokenRecord) -> Slots {
    let executors = base.lineup.executors;
    let parents = recorder.config.rules.parents;
    let count = recorder.tallies.count(base.view, base.version, executors, parents);
    let silent = if count.received.is_empty() { Slots::EMPTY } else { executors.minus(count.received) };
    silent.or(recorder.down)
}
