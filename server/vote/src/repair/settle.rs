//! Requests that no f+1 agree about: the objects that differ between replicas, and the replica on whose version the
//! group settles.

use std::collections::{BTreeMap, BTreeSet};

use object::{ObjectId, RegionId};

use super::{Recover, Scope};
use crate::config::Replica;
use crate::event::Place;
use crate::limits::*;

/// An object, or a whole region with [`ObjectId::NONE`].
type SettleTarget = (RegionId, ObjectId);

/// One voter's data on undecided requests, and on settled objects. Both are bounded.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    undecided: BTreeMap<Place, Undecided>,
    /// The number of targets of all of them.
    targets: usize,
    settled: BTreeMap<SettleTarget, Settled>,
    /// When the last RECOVER was proposed, until one has its turn.
    proposed_us: Option<u64>,
    /// When the last one had its turn.
    turned_us: u64,
    /// There was no room for an undecided request.
    is_full: bool,
}

/// One request: all replicas are up and stand by their results, and no f+1 agree.
#[derive(Debug)]
struct Undecided {
    /// The targets that differ between replicas, sorted; empty if only their replies differ.
    targets: Vec<SettleTarget>,
    /// The replica whose version is taken: by a rule with the same result at all replicas.
    source: Replica,
    since_us: u64,
    /// A majority was found after all, or a replica was replaced after it. It is kept to distinguish a RECOVER that
    /// comes late from one without a reason.
    is_decided: bool,
}

/// A target on whose version the group has settled.
#[derive(Clone, Copy, Debug)]
struct Settled {
    turn: Place,
    /// How often the group settled on it, with less than [`SETTLE_MEMORY_US`] in between.
    tries: u32,
    at_us: u64,
    is_reported: bool,
}

/// What a voter knows of a RECOVER that would settle on a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoverStatus {
    /// It names objects that this voter itself found undecided.
    Known,
    /// It came a second time, or the request was decided in the meantime.
    Over,
    /// It names objects about which this voter knows of no disagreement.
    Unknown,
}

impl Settling {
    pub(crate) fn is_idle(&self) -> bool {
        self.undecided.is_empty() && !self.is_full
    }

    pub(crate) fn knows(&self, place: Place) -> bool {
        self.undecided.contains_key(&place)
    }

    /// Adds an undecided request. If there is no room for it, it is noted again when there is.
    pub(crate) fn note(&mut self, place: Place, targets: Vec<SettleTarget>, source: Replica, now_us: u64) {
        while self.lacks_room(targets.len()) {
            let decided = self.undecided.iter().find(|(_, one)| one.is_decided).map(|(place, _)| *place);
            let Some(decided) = decided else {
                self.is_full = true;
                return;
            };
            self.remove(decided);
        }
        self.targets += targets.len();
        self.undecided.insert(place, Undecided { targets, source, since_us: now_us, is_decided: false });
    }

    fn lacks_room(&self, targets: usize) -> bool {
        self.undecided.len() >= UNDECIDED_REQUESTS || self.targets + targets > UNDECIDED_OBJECTS
    }

    /// Whether requests without room before may be noted now; true once for each time that it was full.
    pub(crate) fn has_room_again(&mut self) -> bool {
        let has_room = self.undecided.len() < UNDECIDED_REQUESTS / 2 && self.targets < UNDECIDED_OBJECTS / 2;
        has_room && std::mem::take(&mut self.is_full)
    }

    pub(crate) fn on_decided(&mut self, place: Place) {
        if let Some(undecided) = self.undecided.get_mut(&place) {
            undecided.is_decided = true;
        }
    }

    pub(crate) fn remove(&mut self, place: Place) {
        self.targets -= self.undecided.remove(&place).map_or(0, |undecided| undecided.targets.len());
    }

    /// A peer was replaced after this batch: differences there are gone with its old memory.
    pub(crate) fn on_peer_replaced(&mut self, first_batch: u64) {
        let before = self.undecided.range_mut(..Place::new(first_batch, 0));
        before.for_each(|(_, undecided)| undecided.is_decided = true);
    }

    /// Whether all of these were overwritten after `place`: differences that a request there showed are settled.
    pub(crate) fn is_settled(&self, place: Place, mut targets: impl Iterator<Item = SettleTarget>) -> bool {
        let after =
            |target: SettleTarget| self.settled.get(&target).is_some_and(|settled| settled.turn > place);
        targets.all(|(region_id, id)| after((region_id, id)) || after((region_id, ObjectId::NONE)))
    }

    /// Requests that were held for long enough and whose objects cannot be settled: only replies differ, or the group
    /// has settled on these objects too often.
    pub(crate) fn given_up(&self, now_us: u64) -> Vec<Place> {
        let is_given_up = |one: &Undecided| one.targets.is_empty() || self.exhausted(one, now_us).is_some();
        let overdue = self.undecided.iter().filter(|(_, one)| self.is_overdue(one, now_us));
        overdue.filter(|(_, one)| is_given_up(one)).map(|(place, _)| *place).collect()
    }

    fn is_overdue(&self, undecided: &Undecided, now_us: u64) -> bool {
        !undecided.is_decided && now_us.saturating_sub(undecided.since_us) >= SETTLE_AFTER_US
    }

    /// A target on which the group has settled too often.
    fn exhausted(&self, undecided: &Undecided, now_us: u64) -> Option<SettleTarget> {
        let is_exhausted = |target: &&SettleTarget| self.tries(target, now_us) >= SETTLE_TRIES;
        undecided.targets.iter().find(is_exhausted).copied()
    }

    fn tries(&self, target: &SettleTarget, now_us: u64) -> u32 {
        let settled = self.settled.get(target);
        let recent = settled.filter(|settled| now_us.saturating_sub(settled.at_us) < SETTLE_MEMORY_US);
        recent.map_or(0, |settled| settled.tries)
    }

    /// The target that keeps this request from being settled, if it was not reported to the operator yet.
    pub(crate) fn take_unreported(&mut self, place: Place, now_us: u64) -> Option<SettleTarget> {
        let target = self.exhausted(self.undecided.get(&place)?, now_us)?;
        let settled = self.settled.get_mut(&target)?;
        (!std::mem::replace(&mut settled.is_reported, true)).then_some(target)
    }

    /// The RECOVER that settles the oldest overdue request, with all others in the same regions. The lowest-numbered
    /// replica proposes at once, each further one waits longer, in case that one does not. One at a time is being
    /// ordered.
    pub(crate) fn propose(&mut self, me: Replica, now_us: u64) -> Option<Recover> {
        let is_on_its_way = self.proposed_us.is_some_and(|at| now_us.saturating_sub(at) < PROPOSE_AGAIN_US);
        let overdue = |one: &Undecided| self.is_overdue(one, now_us) && !one.targets.is_empty();
        let ready = |one: &Undecided| overdue(one) && self.exhausted(one, now_us).is_none();
        let (cause, first) = self.undecided.iter().find(|(_, one)| ready(one))?;
        let since_us = self.turned_us.max(first.since_us + SETTLE_AFTER_US);
        if is_on_its_way || now_us.saturating_sub(since_us) < u64::from(me) * PROPOSE_AFTER_US {
            return None;
        }
        let recover = self.recover(*cause, first, me, now_us);
        self.proposed_us = Some(now_us);
        let is_empty = recover.objects.is_empty() && recover.regions.is_empty();
        (!is_empty).then_some(recover)
    }

    /// Objects link to each other within a region: all undecided objects in the regions of `first` are included, so
    /// that they fit together. A region that was settled object by object before is included as a whole.
    fn recover(&self, cause: Place, first: &Undecided, me: Replica, now_us: u64) -> Recover {
        let mut region_ids: Vec<RegionId> = first.targets.iter().map(|(region_id, _)| *region_id).collect();
        let mut targets: Vec<SettleTarget> = Vec::new();
        for one in self.undecided.values().filter(|one| !one.is_decided && one.source == first.source) {
            if one.targets.iter().any(|(region_id, _)| region_ids.contains(region_id)) {
                region_ids.extend(one.targets.iter().map(|(region_id, _)| *region_id));
                targets.extend(&one.targets);
            }
        }
        sort(&mut region_ids);
        sort(&mut targets);
        let again = targets.iter().any(|target| target.1.is_none() || self.tries(target, now_us) > 0);
        let (mut objects, mut regions) = (targets, Vec::new());
        if again || objects.len() > MAX_OBJECTS_PER_RECOVER {
            objects.clear();
            region_ids
                .retain(|region_id| !self.is_settled(cause, std::iter::once((*region_id, ObjectId::NONE))));
            regions = region_ids.into_iter().take(MAX_REGIONS_PER_RECOVER).collect();
        }
        Recover { id: 0, proposer: me, scope: Scope::SettleOn(first.source), cause, objects, regions }.named()
    }

    /// Whether this voter itself found the objects of the RECOVER at `turn` undecided: no proposal alone may make this
    /// replica take the version of one other.
    pub(crate) fn recover_status(&self, turn: Place, recover: &Recover) -> RecoverStatus {
        let Some(cause) = self.undecided.get(&recover.cause).filter(|cause| {
            let scope = Scope::SettleOn(cause.source);
            recover.cause < turn && recover.scope == scope
        }) else {
            let is_over = self.is_settled(recover.cause, recover.targets());
            return if is_over { RecoverStatus::Over } else { RecoverStatus::Unknown };
        };
        let before =
            self.undecided.range(..turn).map(|(_, one)| one).filter(|one| one.source == cause.source);
        let (decided, open): (Vec<&Undecided>, Vec<&Undecided>) = before.partition(|one| one.is_decided);
        match (self.is_named(&open, recover), self.is_named(&[open, decided].concat(), recover)) {
            (true, _) if !cause.is_decided => RecoverStatus::Known,
            (_, true) => RecoverStatus::Over,
            (_, false) => RecoverStatus::Unknown,
        }
    }

    /// Whether these requests name all targets of the RECOVER.
    fn is_named(&self, requests: &[&Undecided], recover: &Recover) -> bool {
        let names =
            |target: &SettleTarget| requests.iter().any(|one| one.targets.binary_search(target).is_ok());
        let concerns = |region_id: &RegionId| {
            requests.iter().any(|one| one.targets.iter().any(|(own, _)| own == region_id))
        };
        recover.objects.iter().all(names)
            && recover.regions.iter().all(concerns)
            && (recover.regions.is_empty() || self.may_be_whole(requests, recover))
    }

    /// Whether there is a reason to take whole regions: one of them is undecided as a whole, was settled
    /// before, or has very many undecided objects.
    fn may_be_whole(&self, requests: &[&Undecided], recover: &Recover) -> bool {
        let of_requests = requests.iter().flat_map(|one| &one.targets);
        let listed: BTreeSet<&SettleTarget> =
            of_requests.filter(|target| recover.regions.contains(&target.0)).collect();
        // Another voter may know some more objects at this time.
        listed.len() > MAX_OBJECTS_PER_RECOVER / 2
            || listed.iter().any(|target| target.1.is_none() || self.settled.contains_key(target))
    }

    /// The targets that the RECOVER at `turn` overwrites and that requests before it have shown to differ, sorted.
    pub(crate) fn differing(&self, turn: Place, recover: &Recover) -> Vec<SettleTarget> {
        let listed = |target: &SettleTarget| {
            recover.objects.binary_search(target).is_ok() || recover.regions.contains(&target.0)
        };
        let before = self.undecided.range(..turn).flat_map(|(_, one)| one.targets.iter().copied());
        let mut targets: Vec<SettleTarget> = before.filter(listed).collect();
        sort(&mut targets);
        targets
    }

    /// The RECOVER at `turn` settles its targets. Returns the requests before it that are thereby settled.
    pub(crate) fn on_turn(&mut self, turn: Place, recover: &Recover, now_us: u64) -> Vec<Place> {
        (self.proposed_us, self.turned_us) = (None, now_us);
        let targets = self.differing(turn, recover);
        for target in recover.regions.iter().map(|region_id| (*region_id, ObjectId::NONE)) {
            let fresh = Settled { turn, tries: 0, at_us: now_us, is_reported: false };
            self.settled.entry(target).or_insert(fresh).turn = turn;
        }
        for target in targets {
            let tries = self.tries(&target, now_us) + 1;
            let is_reported =
                tries > 1 && self.settled.get(&target).is_some_and(|settled| settled.is_reported);
            self.settled.insert(target, Settled { turn, tries, at_us: now_us, is_reported });
        }
        self.forget_settled(now_us);
        let is_over = |(place, one): &(&Place, &Undecided)| {
            !one.targets.is_empty() && self.is_settled(**place, one.targets.iter().copied())
        };
        let over: Vec<Place> =
            self.undecided.range(..turn).filter(is_over).map(|(place, _)| *place).collect();
        over.iter().for_each(|place| self.remove(*place));
        over
    }

    fn forget_settled(&mut self, now_us: u64) {
        if self.settled.len() > SETTLED_OBJECTS {
            self.settled.retain(|_, settled| now_us.saturating_sub(settled.at_us) < SETTLE_MEMORY_US);
        }
        while self.settled.len() > SETTLED_OBJECTS {
            self.settled.pop_first();
        }
    }
}

fn sort<T: Ord>(list: &mut Vec<T>) {
    list.sort_unstable();
    list.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Replica = 0;

    fn recover(cause: Place, objects: Vec<SettleTarget>, regions: Vec<RegionId>) -> Recover {
        Recover { id: 0, proposer: 0, scope: Scope::SettleOn(SOURCE), cause, objects, regions }
    }

    fn objects(of: std::ops::Range<u16>) -> Vec<SettleTarget> {
        of.map(|at| (1, ObjectId::new(4, at))).collect()
    }

    /// Many requests on one object are no reason to take its whole region; many objects are.
    #[test]
    fn very_many_objects_are_settled_with_their_regions() {
        let turn = Place::new(9000, 0);
        let mut settling = Settling::default();
        for batch in 0..UNDECIDED_REQUESTS as u64 {
            settling.note(Place::new(batch, 0), objects(0..1), SOURCE, 0);
        }
        let whole = recover(Place::default(), Vec::new(), vec![1]);
        assert_eq!(settling.recover_status(turn, &whole), RecoverStatus::Unknown);
        let mut settling = Settling::default();
        for batch in 0..4u16 {
            settling.note(Place::new(batch.into(), 0), objects(batch * 300..batch * 300 + 300), SOURCE, 0);
        }
        let proposed = settling.propose(0, SETTLE_AFTER_US).expect("it is overdue");
        assert_eq!((proposed.objects.len(), &proposed.regions[..]), (0, &[1][..]));
        assert_eq!(settling.recover_status(turn, &proposed), RecoverStatus::Known);
        assert_eq!(settling.on_turn(turn, &proposed, SETTLE_AFTER_US).len(), 4);
        assert_eq!((settling.is_idle(), settling.targets), (true, 0));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut settling = Settling::default();
        let place = |at: usize| Place::new(at as u64, 0);
        (0..2 * UNDECIDED_REQUESTS).for_each(|at| settling.note(place(at), objects(0..2), SOURCE, 0));
        assert_eq!(settling.undecided.len(), UNDECIDED_REQUESTS);
        assert!(!settling.has_room_again() && settling.is_full);
        settling.on_peer_replaced(UNDECIDED_REQUESTS as u64 / 2);
        settling.note(place(9999), objects(0..UNDECIDED_OBJECTS as u16 / 2), SOURCE, 0);
        assert!(settling.knows(place(9999)), "what is decided makes room");
        assert!(settling.undecided.len() <= UNDECIDED_REQUESTS && settling.targets <= UNDECIDED_OBJECTS);
        for turn in 0..40 {
            let at = turn * 1000;
            let one = recover(place(at), objects(at as u16..at as u16 + 1000), Vec::new());
            settling.undecided.clear();
            settling.targets = 0;
            settling.note(place(at), one.objects.clone(), SOURCE, 0);
            settling.on_turn(Place::new(at as u64, 1), &one, 0);
        }
        assert_eq!(settling.settled.len(), SETTLED_OBJECTS);
    }
}
