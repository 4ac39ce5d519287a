//! A replica without state, or without a batch that no replica holds any more, takes the state at a checkpoint.
//!
//! So does one whose state is wrong although it has every batch: it asks for the state in place of its own.
//!
//! It asks all others. Each that can offer a checkpoint with the batches after it does so; the primary has one ordered
//! if it cannot. Where no batch becomes stable without that replica, a checkpoint would not either: then each that is
//! asked packs the state after the batch that is stable. The state itself travels outside of this crate:
//! [`Output::NeedState`] asks the host for it.

use std::collections::BTreeMap;

use crate::engine::Output;
use crate::frame::FrameKind;
use crate::limits;
use crate::primary::control::PrimaryControl;
use crate::primary::{PrimaryEngine, end_of, number_of};

/// A state that this replica waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedState {
    /// States up to this index are of no use.
    floor: u64,
    /// Those up to this one are not asked for now: what could not be fetched is asked for again if nobody makes a later
    /// one.
    above: u64,
    /// Tick at which a state could not be fetched last.
    lost: u64,
    /// The host was told to fetch the state at this index.
    offered: Option<u64>,
    /// Tick at which others were asked last.
    asked: u64,
    /// It takes the place of a state that is wrong: that batches come does not help.
    replaces: bool,
}

impl WantedState {
    /// One after this batch.
    pub fn above(number: u64, ticks: u64) -> Self {
        let floor = end_of(number);
        WantedState { floor, above: floor, lost: ticks, offered: None, asked: ticks, replaces: false }
    }

    /// Whether it is wanted no more, once the deliveries stand after entry `index`.
    pub fn is_over_at(&self, index: u64) -> bool {
        !self.replaces || index > self.above
    }

    /// Ticks between two requests. A state that is wrong stays so until another one has come.
    fn pause(&self) -> u64 {
        if self.replaces { limits::ASK_TICKS } else { limits::STATE_TICKS }
    }
}

/// What this replica can offer to others, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    /// Index of the newest checkpoint that others can fetch here.
    newest: Option<u64>,
    /// Replicas that wait for a checkpoint beyond an index.
    waiting: BTreeMap<u8, u64>,
    /// Tick at which the host was told to make a checkpoint.
    ordered: Option<u64>,
    /// Tick since when a replica has waited in vain, with no batch having become stable.
    in_vain: Option<u64>,
    /// The host was told last to make one without ordering it.
    is_unordered: bool,
}

impl Offers {
    /// Another view begins: who still waits asks again.
    pub fn begin_view(&mut self) {
        self.waiting.clear();
        self.ordered = None;
    }

    /// A batch has become stable: the checkpoint may be on its way.
    pub fn on_stable(&mut self) {
        (self.in_vain, self.is_unordered) = (None, false);
    }

    /// A replica has what it waited for, or is gone.
    pub fn forget(&mut self, peer: u8) {
        self.waiting.remove(&peer);
    }

    /// A replica has all batches up to this one.
    pub fn moved(&mut self, peer: u8, last: u64) {
        if self.waiting.get(&peer).is_some_and(|above| last > number_of(*above)) {
            self.waiting.remove(&peer);
        }
    }
}

impl PrimaryEngine {
    /// This replica cannot go on from what it has.
    pub(super) fn want_state(&mut self) {
        if self.wanted.is_none() {
            self.wanted = Some(WantedState::above(self.due - 1, self.ticks));
            self.ask_for_state();
        }
    }

    /// The state here is wrong: it wants one after a later batch than `number` in its place.
    pub(super) fn want_state_in_place(&mut self, number: u64) {
        let wanted = WantedState::above(number, self.ticks);
        self.wanted = Some(WantedState { replaces: true, ..wanted });
        self.ask_for_state();
    }

    /// Once per tick.
    pub(super) fn tick_states(&mut self) {
        // It knows of no view. If there is one, others have the state.
        if self.view.is_none() && self.taken == 0 && self.ticks >= limits::STATE_TICKS {
            self.want_state();
        }
        if self.wanted.is_some_and(|wanted| wanted.asked + wanted.pause() <= self.ticks) {
            self.ask_for_state();
        }
        if !self.offers.waiting.is_empty() {
            self.make_checkpoint();
        }
    }

    /// ASK-STATE.
    pub(super) fn on_ask_state(&mut self, from: u8, above: u64) {
        if self.view.is_none() || above > end_of(self.last) {
            return;
        }
        self.peers[usize::from(from)].follows = true;
        if !self.offer(from, above) {
            self.offers.waiting.insert(from, above);
            self.offers.in_vain.get_or_insert(self.ticks);
            self.make_checkpoint();
        }
    }

    /// OFFER-STATE.
    pub(super) fn on_offer(&mut self, from: u8, index: u64) {
        if let Some(wanted) = &mut self.wanted
            && wanted.offered.is_none()
            && index > wanted.above
        {
            wanted.offered = Some(index);
            self.ready.outputs.push_back(Output::NeedState { index, from });
        }
    }

    /// Others can fetch the state at this index, which is stable.
    pub(super) fn offer_to_waiting(&mut self, index: u64) {
        self.offers.newest = self.offers.newest.max(Some(index));
        self.offers.ordered = None;
        for (peer, above) in self.offers.waiting.clone() {
            if self.offer(peer, above) {
                self.offers.waiting.remove(&peer);
            }
        }
    }

    /// The state at this index cannot be fetched any more.
    pub(super) fn withdraw(&mut self, index: u64) {
        self.offers.newest.take_if(|newest| *newest == index);
    }

    /// Whether the state at this index, which was fetched, takes the place of what is here.
    pub(super) fn install(&mut self, index: u64) -> bool {
        let number = number_of(index);
        let is_wanted = self.wanted.is_some_and(|wanted| wanted.offered == Some(index));
        if !is_wanted || number < self.due {
            return false;
        }
        self.wanted = None;
        self.joined = true;
        self.ready.committed.clear();
        (self.taken, self.delivered, self.due) = (index, number, number + 1);
        self.last = self.last.max(number);
        self.stable = self.stable.max(number);
        self.asking.restart();
        self.forget();
        self.hand_on();
        self.ask_missing();
        true
    }

    /// The state at this index could not be fetched.
    pub(super) fn lose_state(&mut self, index: u64) {
        if let Some(wanted) = self.wanted.as_mut().filter(|wanted| wanted.offered == Some(index)) {
            (wanted.offered, wanted.above, wanted.lost) = (None, wanted.above.max(index), self.ticks);
            self.ask_for_state();
        }
    }

    /// Asks all others, if a state is wanted and none was offered.
    pub(super) fn ask_for_state(&mut self) {
        let Some(wanted) = self.wanted.as_mut().filter(|wanted| wanted.offered.is_none()) else { return };
        if wanted.lost + limits::STATE_TICKS <= self.ticks {
            wanted.above = wanted.floor;
        }
        wanted.asked = self.ticks;
        let body = PrimaryControl::AskState { above: wanted.above }.encode();
        for to in super::slots(self.peers_up) {
            self.ready.send(to, FrameKind::Control, body.clone());
        }
    }

    /// Offers a replica the newest checkpoint, if that is of use to it and it can go on from there.
    fn offer(&mut self, to: u8, above: u64) -> bool {
        let Some(index) = self.offers.newest.filter(|index| *index > above) else { return false };
        let next = number_of(index) + 1;
        if next < self.due && self.held.get(next).is_none() {
            return false;
        }
        self.peers[usize::from(to)].offered = number_of(index);
        self.ready.send(to, FrameKind::Control, PrimaryControl::OfferState { index }.encode());
        true
    }

    /// The primary has a checkpoint ordered. Where nothing becomes stable before the waiting replica has the state, any
    /// replica that lacks nothing itself makes one of the batch that is stable.
    fn make_checkpoint(&mut self) {
        let in_vain = self.offers.in_vain.is_some_and(|since| since + limits::IN_VAIN_TICKS <= self.ticks);
        let ordered = !(in_vain && self.wanted.is_none() && self.stable > 0);
        let is_due = self.offers.ordered.is_none_or(|ordered| ordered + limits::STATE_TICKS <= self.ticks);
        let is_first_in_vain = !ordered && !self.offers.is_unordered;
        self.offers.is_unordered |= !ordered;
        if (is_due || is_first_in_vain) && (!ordered || self.is_primary()) {
            self.offers.ordered = Some(self.ticks);
            self.ready.outputs.push_back(Output::CheckpointWanted { ordered });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{OrderEngine, PrimaryView};
    use crate::primary::Progress;
    use crate::primary::tests::{
        Pumped, batch, deliver, engine, gone_of, outside, part, pumped, receive, report, say, view,
    };

    /// Requests for a state, and offers, with their receivers.
    fn said(pumped: &Pumped) -> Vec<(u8, PrimaryControl)> {
        let control = |output: &Output| match output {
            Output::Send { to, kind: FrameKind::Control, body, .. } => {
                Some((*to, PrimaryControl::decode(&body.joined()).unwrap()))
            }
            _ => None,
        };
        let is_other = |said: &(u8, PrimaryControl)| !matches!(said.1, PrimaryControl::Progress(_));
        pumped.others.iter().filter_map(control).filter(is_other).collect()
    }

    fn needs(pumped: &Pumped) -> Vec<(u64, u8)> {
        let need = |output: &Output| match output {
            Output::NeedState { index, from } => Some((*index, *from)),
            _ => None,
        };
        pumped.others.iter().filter_map(need).collect()
    }

    fn tell(engine: &mut PrimaryEngine, from: u8, control: PrimaryControl) {
        engine.on_frame(from, FrameKind::Control, control.encode()).unwrap();
    }

    fn ask(number: u64) -> PrimaryControl {
        PrimaryControl::AskState { above: end_of(number) }
    }

    #[test]
    fn who_comes_without_memory_asks_for_the_state_and_continues_after_it() {
        let mut joiner = outside(1);
        joiner.begin_view(view(4, 0, 31));
        let began = pumped(&mut joiner);
        assert!(matches!(began.others[0], Output::Established { joined: true, .. }));
        assert_eq!((said(&began), began.asked()), (vec![(0, ask(0)), (2, ask(0))], vec![]));
        let (index, later) = (24 << 4 | 3, 29 << 4);
        tell(&mut joiner, 2, PrimaryControl::OfferState { index: 15 });
        assert!(needs(&pumped(&mut joiner)).is_empty(), "it is of no use");
        tell(&mut joiner, 2, PrimaryControl::OfferState { index });
        tell(&mut joiner, 0, PrimaryControl::OfferState { index: later });
        assert_eq!(needs(&pumped(&mut joiner)), [(index, 2)], "one at a time");
        joiner.state_lost(index);
        assert_eq!(said(&pumped(&mut joiner))[0], (0, PrimaryControl::AskState { above: index }));
        tell(&mut joiner, 0, PrimaryControl::OfferState { index: later });
        assert_eq!(needs(&pumped(&mut joiner)), [(later, 0)]);
        assert!(!joiner.installed(index), "another is wanted by now");
        assert!(joiner.installed(later) && !joiner.installed(later));
        assert_eq!(pumped(&mut joiner).asked(), [(0, 30)]);
        receive(&mut joiner, 0, &batch(3, 30)).unwrap();
        receive(&mut joiner, 0, &batch(4, 31)).unwrap();
        assert_eq!(pumped(&mut joiner).numbers(), [30, 31]);
    }

    #[test]
    fn a_state_that_is_wrong_is_replaced_although_no_batch_is_missing() {
        let mut backup = engine(1);
        (1..=3).for_each(|number| receive(&mut backup, 0, &batch(1, number)).unwrap());
        let delivered = pumped(&mut backup);
        deliver(&mut backup, &delivered);
        backup.stable(2);
        backup.want_state_after(2);
        assert_eq!(said(&pumped(&mut backup)), [(0, ask(2)), (2, ask(2))]);
        receive(&mut backup, 0, &batch(1, 4)).unwrap();
        backup.rewind_to(2 << 4);
        (0..limits::ASK_TICKS).for_each(|_| backup.tick());
        assert_eq!(said(&pumped(&mut backup)).len(), 2, "it has every batch, and asks again");
        tell(&mut backup, 0, PrimaryControl::OfferState { index: 2 << 4 });
        assert_eq!(needs(&pumped(&mut backup)), [], "no later one");
        tell(&mut backup, 0, PrimaryControl::OfferState { index: 6 << 4 });
        assert_eq!(needs(&pumped(&mut backup)), [(6 << 4, 0)]);
        // The host has it in place.
        backup.rewind_to(6 << 4);
        receive(&mut backup, 0, &batch(1, 7)).unwrap();
        assert_eq!(pumped(&mut backup).numbers(), [7]);
        (0..limits::STATE_TICKS).for_each(|_| backup.tick());
        assert_eq!(said(&pumped(&mut backup)), [], "it wants none any more");
    }

    #[test]
    fn what_no_replica_holds_is_replaced_by_a_state() {
        let behind = || {
            let mut backup = engine(1);
            report(&mut backup, 0, Progress { incarnation: 1, view: 1, last: 3, stable: 2 }).unwrap();
            say(&mut backup, 0, gone_of(1)).unwrap();
            assert_eq!(said(&pumped(&mut backup)), [], "the other may have it");
            backup
        };
        let mut backup = behind();
        say(&mut backup, 2, gone_of(1)).unwrap();
        assert_eq!(said(&pumped(&mut backup)), [(0, ask(0)), (2, ask(0))]);
        tell(&mut backup, 0, PrimaryControl::OfferState { index: 2 << 4 });
        receive(&mut backup, 2, &batch(1, 1)).unwrap();
        assert!(!backup.installed(2 << 4), "one had it after all");
        // The other hangs: the request is repeated, and others are asked for a state after a while.
        let mut backup = behind();
        (1..limits::STATE_TICKS).for_each(|_| backup.tick());
        assert_eq!(said(&pumped(&mut backup)), []);
        backup.tick();
        assert_eq!(said(&pumped(&mut backup)).len(), 2);
        (0..limits::STATE_TICKS).for_each(|_| backup.tick());
        assert_eq!(said(&pumped(&mut backup)).len(), 2, "again");
    }

    #[test]
    fn the_primary_has_a_checkpoint_ordered_and_offers_it_with_what_follows() {
        let mut primary = engine(0);
        let number_one = |primary: &mut PrimaryEngine| {
            primary.propose(part(0, 1)).unwrap();
            let numbered = pumped(primary);
            deliver(primary, &numbered);
        };
        (0..4).for_each(|_| number_one(&mut primary));
        let ordered = |primary: &mut PrimaryEngine| {
            pumped(primary)
                .others
                .iter()
                .filter(|output| **output == Output::CheckpointWanted { ordered: true })
                .count()
        };
        tell(&mut primary, 1, ask(7));
        assert_eq!(ordered(&mut primary), 0, "no replica has come so far");
        tell(&mut primary, 1, ask(0));
        tell(&mut primary, 2, ask(0));
        assert_eq!(ordered(&mut primary), 1);
        (0..limits::STATE_TICKS).for_each(|_| primary.tick());
        assert_eq!(ordered(&mut primary), 1, "once more if nothing comes of it");
        primary.stable(3);
        primary.state_available(3 << 4);
        let offer = PrimaryControl::OfferState { index: 3 << 4 };
        assert_eq!(said(&pumped(&mut primary)), [(1, offer), (2, offer)]);
        number_one(&mut primary);
        primary.stable(5);
        assert_eq!(primary.held.first_number(), Some(4), "what follows the checkpoint");
        tell(&mut primary, 1, ask(0));
        assert_eq!(said(&pumped(&mut primary)), [(1, offer)], "at once");
        (0..limits::STATE_TICKS).for_each(|_| primary.tick());
        assert_eq!(ordered(&mut primary), 0, "no replica waits");
        // What follows is gone: another is needed.
        let progress = Progress { incarnation: 1, view: 1, last: 5, stable: 5 };
        [1, 2].iter().for_each(|peer| report(&mut primary, *peer, progress).unwrap());
        assert_eq!(primary.held.first_number(), None);
        tell(&mut primary, 1, ask(2));
        let answer = pumped(&mut primary);
        assert_eq!(said(&answer), []);
        assert!(answer.others.contains(&Output::CheckpointWanted { ordered: true }));
    }

    #[test]
    fn where_nothing_becomes_stable_without_a_replica_whoever_has_the_stable_state_gives_it() {
        let mut backup = engine(1);
        (1..=5).for_each(|number| receive(&mut backup, 0, &batch(1, number)).unwrap());
        let delivered = pumped(&mut backup);
        deliver(&mut backup, &delivered);
        backup.stable(3);
        let wanted = |backup: &mut PrimaryEngine| {
            let is_wanted = |output: &&Output| matches!(output, Output::CheckpointWanted { .. });
            pumped(backup).others.iter().filter(is_wanted).cloned().collect::<Vec<_>>()
        };
        tell(&mut backup, 2, ask(0));
        (1..limits::IN_VAIN_TICKS).for_each(|_| backup.tick());
        assert_eq!(wanted(&mut backup), [], "the primary may have one ordered");
        backup.stable(4);
        tell(&mut backup, 2, ask(0));
        (1..limits::IN_VAIN_TICKS).for_each(|_| backup.tick());
        assert_eq!(wanted(&mut backup), [], "batches become stable");
        backup.tick();
        assert_eq!(wanted(&mut backup), [Output::CheckpointWanted { ordered: false }]);
        backup.begin_view(PrimaryView { primary: 1, executors: 0b110, ..view(2, 0, 6) });
        tell(&mut backup, 2, ask(0));
        assert_eq!(
            wanted(&mut backup),
            [Output::CheckpointWanted { ordered: false }],
            "no view changes that"
        );
        backup.rewind_to(4 << 4);
        backup.state_available(4 << 4);
        assert_eq!(said(&pumped(&mut backup)), [(2, PrimaryControl::OfferState { index: 4 << 4 })]);
        (0..limits::STATE_TICKS).for_each(|_| backup.tick());
        assert_eq!(wanted(&mut backup), [], "no replica waits");
    }

    #[test]
    fn a_replica_without_a_view_asks_after_a_while_and_a_view_that_is_reported_late_is_no_error() {
        let mut joiner = outside(2);
        (1..limits::STATE_TICKS).for_each(|_| joiner.tick());
        assert_eq!(said(&pumped(&mut joiner)), []);
        joiner.tick();
        assert_eq!(said(&pumped(&mut joiner)).len(), 2);
        tell(&mut joiner, 0, PrimaryControl::OfferState { index: 9 << 4 });
        assert!(joiner.installed(9 << 4));
        joiner.begin_view(view(1, 0, 1));
        let began = pumped(&mut joiner);
        assert!(!began.stops() && matches!(began.others[1], Output::Established { joined: true, .. }));
        receive(&mut joiner, 0, &batch(1, 10)).unwrap();
        assert_eq!(pumped(&mut joiner).numbers(), [10]);
    }
}
