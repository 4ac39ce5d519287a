//! View changes: who starts the next view, from which record, and with which executors.

use crate::message::{Lineup, Reason, TokenRecord, VerifyMessage};
use crate::slots::{CrashVector, Slot, Slots};
use crate::version::Version;

use super::{ExtraState, Out, Recipients, Verifier, VerifierCommand, VerifierPhase};

/// A verifier's VIEW-CHANGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wish {
    /// The promised view.
    pub(crate) view: u64,
    pub(crate) reason: Reason,
    pub(crate) record: TokenRecord,
    /// Which life of the verifier sent it.
    pub(crate) life: u16,
}

impl Verifier {
    /// The host wants another view.
    pub(super) fn suspect(&mut self, reason: Reason, out: &mut Out<'_>) {
        if !self.is_blank() && self.changes_by_quorum() {
            self.change(reason, out);
        }
    }

    /// Promises the next view whose leader can be reached.
    pub(super) fn change(&mut self, reason: Reason, out: &mut Out<'_>) {
        if !self.changes_by_quorum() {
            return self.pair_change(reason, out);
        }
        let verifiers = u64::from(self.config.layout.verifiers());
        let next = self.promised.saturating_add(1);
        let live = |view: &u64| !self.down.contains(self.leader(*view));
        let view = (next..next.saturating_add(verifiers)).find(live).unwrap_or(next);
        self.promise(view, reason, out);
    }

    /// The verifier that starts a view.
    pub(super) fn leader(&self, view: u64) -> Slot {
        (view % u64::from(self.config.layout.verifiers())) as Slot
    }

    fn promise(&mut self, view: u64, reason: Reason, out: &mut Out<'_>) {
        self.promised = view;
        self.phase = VerifierPhase::Changing;
        self.times.promised(out.now_us);
        let life = self.crashes.of_slot(self.config.me);
        let wish = Wish { view, reason, record: self.record, life };
        self.wishes.insert(self.config.me, wish);
        let wishes = std::mem::take(&mut self.wishes);
        let matters = |(slot, wish): &(Slot, Wish)| *slot == self.config.me || self.matters(wish);
        self.wishes = wishes.into_iter().filter(matters).collect();
        self.persist(out);
        self.send_wish(out);
        self.try_to_lead(out);
    }

    /// Sends the own VIEW-CHANGE (again).
    pub(super) fn send_wish(&mut self, out: &mut Out<'_>) {
        let Some(own) = self.wishes.get(&self.config.me) else { return };
        let (view, reason, record, crashes) = (own.view, own.reason, own.record, self.crashes);
        out.send(Recipients::Verifiers, VerifyMessage::ViewChange { view, reason, record, crashes });
    }

    pub(super) fn on_view_change(
        &mut self,
        from: Slot,
        mut wish: Wish,
        crashes: &CrashVector,
        out: &mut Out<'_>,
    ) {
        let of_other = from != self.config.me && self.changes_by_quorum();
        if self.is_blank() || !of_other || !self.admit(from, crashes) {
            return;
        }
        wish.life = crashes.of_slot(from);
        if wish.view <= self.record.view {
            // The other one has missed that this view began.
            return self.on_where(from, 0, crate::message::AskRound::CatchUp, crashes, out);
        }
        let known = self.wishes.get(&from).map_or((0, 0), |known| (known.life, known.view));
        if (wish.life, wish.view) <= known || !self.matters(&wish) {
            return;
        }
        self.wishes.insert(from, wish);
        let others = self.wishes.iter().filter(|(slot, other)| {
            **slot != self.config.me && other.view == wish.view && self.is_of_this_life(**slot, other)
        });
        let enough = others.count() + 1 >= self.config.layout.quorum();
        if wish.view > self.promised && (enough || self.times.is_impatient(out.now_us)) {
            return self.promise(wish.view, wish.reason, out);
        }
        self.try_to_lead(out);
    }

    /// Whether a wish may still have an effect: its view is a later one, or this verifier is to start it.
    fn matters(&self, wish: &Wish) -> bool {
        let starts = self.phase == VerifierPhase::Changing && self.leader(wish.view) == self.config.me;
        wish.view > self.promised || (wish.view == self.promised && starts)
    }

    fn is_of_this_life(&self, slot: Slot, wish: &Wish) -> bool {
        wish.life >= self.crashes.of_slot(slot)
    }

    /// Starts the promised view, if it is this verifier's to start and a quorum has promised it.
    fn try_to_lead(&mut self, out: &mut Out<'_>) {
        let (view, me) = (self.promised, self.config.me);
        let led_before = self.leads_after.is_some_and(|last| view <= last);
        if self.phase != VerifierPhase::Changing || self.leader(view) != me || led_before {
            return;
        }
        let promises: Vec<Wish> = (self.wishes.iter())
            .filter(|(slot, wish)| wish.view == view && self.is_of_this_life(**slot, wish))
            .map(|(_, wish)| *wish)
            .collect();
        if promises.len() < self.config.layout.quorum() {
            return;
        }
        let Some(base) = promises.iter().map(|wish| wish.record).max_by_key(|record| self.rank(record))
        else {
            return;
        };
        let reasons: Vec<Reason> = promises.iter().map(|wish| wish.reason).collect();
        let lineup = self.next_lineup(&base, &reasons);
        let record = TokenRecord { view, version: base.version, lineup };
        out.send(Recipients::Verifiers, VerifyMessage::NewView { record, crashes: self.crashes });
        self.install(record, out);
    }

    /// Rule 1: by view, then by number. The paper says by number, which is wrong where batches are recorded before a
    /// quorum has those before.
    pub(super) fn rank(&self, record: &TokenRecord) -> (u64, u64) {
        let (view, number) = (record.view, record.version.number);
        if self.config.rules.view_first { (view, number) } else { (number, view) }
    }

    pub(super) fn on_new_view(
        &mut self,
        from: Slot,
        record: TokenRecord,
        crashes: &CrashVector,
        out: &mut Out<'_>,
    ) {
        let is_leader = self.leader(record.view) == from && from != self.config.me;
        if self.is_blank() || !is_leader || !self.changes_by_quorum() || !self.admit(from, crashes) {
            return;
        }
        if record.view >= self.promised && record.view > self.record.view {
            self.install(record, out);
        }
    }

    /// Takes part in a view. That is recording its start in it.
    pub(super) fn install(&mut self, record: TokenRecord, out: &mut Out<'_>) {
        self.promised = record.view;
        self.record = record;
        self.phase = VerifierPhase::Normal;
        self.undecided = false;
        let streak = self.config.extra_after.filter(|_| record.lineup.extra).unwrap_or(0);
        self.extra = ExtraState { streak, ..ExtraState::default() };
        self.outsiders.clear();
        let view = record.view;
        self.wishes.retain(|_, wish| wish.view > view);
        self.tallies.drop_until(view, record.version.number);
        let primary_is_down = self.down.contains(record.lineup.primary);
        self.times.installed(self.tallies.knows_more(view), primary_is_down, out.now_us);
        out.commands.push(VerifierCommand::ViewBegan { record });
        self.announce(out);
        self.step(out);
    }

    /// Where only tokens differed, the primary stays: it is no suspect, and requests need not be handed over. Where one
    /// can go on with fewer executors, those that are late or gone are left out.
    fn next_lineup(&self, base: &TokenRecord, reasons: &[Reason]) -> Lineup {
        let has = |reason: Reason| reasons.contains(&reason);
        let rotates = has(Reason::Late) || has(Reason::PrimaryGone);
        let mut executors = base.lineup.executors;
        if self.config.layout.leaves_out() {
            if has(Reason::Joined) {
                executors = executors.or(self.caught_up(base.version));
            }
            let staying = executors.minus(self.late(base));
            if rotates && !staying.is_empty() {
                executors = staying;
            }
        }
        let mut primary = base.lineup.primary;
        if rotates || !executors.contains(primary) {
            let live = executors.minus(self.down);
            let candidates = if live.is_empty() { executors } else { live };
            primary = candidates.next_after(primary).unwrap_or(primary);
        }
        let extra = has(Reason::Extra) && self.config.extra_after.is_some();
        Lineup { primary, executors, sequential: has(Reason::Diverged) || has(Reason::Extra), extra }
    }

    /// Executors that have sent no token for the batch after the record while others have, or whose connection ended.
    fn late(&self, base: &TokenRecord) -> Slots {
        let executors = base.lineup.executors;
        let parents = self.config.rules.parents;
        let count = self.tallies.count(base.view, base.version, executors, parents);
        let silent = if count.received.is_empty() { Slots::EMPTY } else { executors.minus(count.received) };
        silent.or(self.down)
    }
}

/// Executors that were left out of the view.
impl Verifier {
    /// A token of an executor whose tokens do not count in this view tells how far it is.
    pub(super) fn on_outsider(&mut self, from: Slot, version: Version, out: &mut Out<'_>) {
        self.outsiders.insert(from, version);
        self.welcome_outsiders(out);
    }

    /// Takes executors in again that have reached the record, by another view.
    pub(super) fn welcome_outsiders(&mut self, out: &mut Out<'_>) {
        if self.phase == VerifierPhase::Normal
            && self.decides()
            && !self.caught_up(self.record.version).is_empty()
        {
            self.change(Reason::Joined, out);
        }
    }

    pub(super) fn caught_up(&self, version: Version) -> Slots {
        let reached = self.outsiders.iter().filter(|(_, reached)| **reached == version);
        reached.fold(Slots::EMPTY, |slots, (slot, _)| slots.with(*slot)).minus(self.down)
    }
}
