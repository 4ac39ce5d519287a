//! The case of one faulty replica: its wrong objects, when they are proposed for repair, and when single repairs end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use object::{ObjectId, RegionId};

use super::{Recover, Scope};
use crate::config::{Replica, Set};
use crate::event::Place;
use crate::limits::*;

/// The repair case of one faulty replica.
///
/// The findings of one round of the loop go into one RECOVER, and while that is being ordered, later findings are
/// collected for the next. The first finding is proposed at once; where repairs follow each other so closely that the
/// faulty replica would do nothing else, those after it are gathered for [`GATHER_US`], or until they are
/// [`GATHER_OBJECTS`].
#[derive(Debug, Default)]
pub(super) struct Case {
    /// Wrong objects and the latest request that showed each.
    wrong: BTreeMap<(RegionId, ObjectId), Place>,
    /// Regions with too many wrong objects, and the latest request that showed it.
    regions: BTreeMap<RegionId, Place>,
    /// A request that showed an error.
    cause: Place,
    /// Replicas that may propose.
    proposers: Set,
    since_us: u64,
    in_flight_us: Option<u64>,
    /// When a RECOVER had its turn here last.
    turned_us: Option<u64>,
    /// Turns of past repairs by object; they settle later messages about earlier requests.
    repaired: BTreeMap<(RegionId, ObjectId), Place>,
    /// Turns of past repairs of whole regions.
    repaired_regions: BTreeMap<RegionId, Place>,
    /// Repairs of a region in a row, and the batch of the last one.
    streaks: BTreeMap<RegionId, (u32, u64)>,
    /// Ordered times of recent repairs, and their ids: in the order of time, which never goes back.
    recent: VecDeque<(u64, u64)>,
    /// The same ids.
    recent_ids: BTreeSet<u64>,
    /// Ordered time at which the operator was informed that they are many.
    reported_us: Option<u64>,
    /// Ordered times of recent repairs of whole regions.
    recent_regions: BTreeMap<RegionId, VecDeque<u64>>,
}

impl Case {
    /// Whether there is nothing to repair.
    pub(super) fn is_quiet(&self) -> bool {
        self.wrong.is_empty() && self.regions.is_empty()
    }

    /// A description of a repair that is due.
    pub(super) fn due(&self) -> Option<String> {
        let object = self
            .wrong
            .iter()
            .next()
            .map(|((region_id, id), place)| format!("{region_id}:{id} since {place}"));
        object.or_else(|| {
            self.regions.iter().next().map(|(region_id, place)| format!("region {region_id} since {place}"))
        })
    }

    pub(super) fn add(
        &mut self,
        place: Place,
        objects: impl Iterator<Item = (RegionId, ObjectId)>,
        proposers: Set,
        now_us: u64,
    ) {
        let quiet = self.is_quiet();
        for (region_id, id) in objects {
            if self.is_settled(region_id, id, place) {
                continue;
            }
            if let Some(latest) = self.regions.get_mut(&region_id) {
                *latest = place.max(*latest);
                continue;
            }
            let latest = self.wrong.entry((region_id, id)).or_insert(place);
            *latest = place.max(*latest);
        }
        if self.wrong.len() > MAX_WRONG_OBJECTS {
            self.give_up_objects();
        }
        if quiet && !self.is_quiet() {
            (self.cause, self.since_us, self.proposers) = (place, now_us, proposers);
        } else {
            self.proposers = self.proposers.and(proposers);
        }
    }

    /// The replica was replaced, with the state before `first_batch`: errors that earlier requests showed are gone with
    /// its old memory. Errors that later ones showed are not: its first votes may come before its first heartbeat.
    pub(super) fn on_replaced(&mut self, first_batch: u64) {
        let old = std::mem::take(self);
        let is_new = |place: &Place| place.batch >= first_batch;
        self.wrong = old.wrong.into_iter().filter(|(_, place)| is_new(place)).collect();
        self.regions = old.regions.into_iter().filter(|(_, place)| is_new(place)).collect();
        self.repaired = old.repaired.into_iter().filter(|(_, turn)| is_new(turn)).collect();
        self.repaired_regions = old.repaired_regions.into_iter().filter(|(_, turn)| is_new(turn)).collect();
        (self.cause, self.proposers, self.since_us) = (old.cause, old.proposers, old.since_us);
    }

    /// A RECOVER after `place` has repaired the object: the request counts as settled (REPAIRED).
    fn is_settled(&self, region_id: RegionId, id: ObjectId, place: Place) -> bool {
        let object = self.repaired.get(&(region_id, id)).is_some_and(|turn| *turn > place);
        object || self.repaired_regions.get(&region_id).is_some_and(|turn| *turn > place)
    }

    fn give_up_objects(&mut self) {
        for ((region_id, _), place) in std::mem::take(&mut self.wrong) {
            let latest = self.regions.entry(region_id).or_insert(place);
            *latest = place.max(*latest);
        }
    }

    /// The lowest-numbered live replica that was not wrong itself proposes at once; each further one waits longer, in
    /// case that one does not. Nothing is proposed while a RECOVER of this replica is being ordered.
    pub(super) fn propose(
        &mut self,
        me: Replica,
        faulty: Replica,
        senders: Set,
        now_us: u64,
    ) -> Option<Recover> {
        let candidates = self.proposers.and(senders);
        if self.is_quiet() || !candidates.contains(me) {
            return None;
        }
        let rank = candidates.iter().filter(|replica| *replica < me).count() as u64;
        let waited = now_us.saturating_sub(self.since_us);
        let on_its_way = self.in_flight_us.is_some_and(|at| now_us.saturating_sub(at) < PROPOSE_AGAIN_US);
        let is_soon = self.turned_us.is_some_and(|at| now_us.saturating_sub(at) < GATHER_US);
        let is_gathering = is_soon && self.regions.is_empty() && self.wrong.len() < GATHER_OBJECTS;
        if on_its_way || is_gathering || waited < rank * PROPOSE_AFTER_US {
            return None;
        }
        self.in_flight_us = Some(now_us);
        Some(self.recover(me, faulty))
    }

    /// As much of the case as one RECOVER holds. A region that was repaired several times in a row is repaired as a
    /// whole.
    fn recover(&self, me: Replica, faulty: Replica) -> Recover {
        let stubborn = |region_id: &RegionId| {
            self.streaks.get(region_id).is_some_and(|(count, _)| *count >= REPAIRS_BEFORE_REGION)
        };
        let of_objects = self.wrong.keys().map(|(region_id, _)| *region_id).filter(stubborn);
        let regions: BTreeSet<RegionId> = self.regions.keys().copied().chain(of_objects).collect();
        let regions: Vec<RegionId> = regions.into_iter().take(MAX_REGIONS_PER_RECOVER).collect();
        let single = |(region_id, _): &(RegionId, ObjectId)| regions.binary_search(region_id).is_err();
        let objects = self.wrong.keys().copied().filter(single).take(MAX_OBJECTS_PER_RECOVER).collect();
        let scope = Scope::Faulty(faulty);
        Recover { id: 0, proposer: me, scope, cause: self.cause, objects, regions }.named()
    }

    /// Closes what the RECOVER at `turn` repairs. True when there were too many repairs: the result is equal at every
    /// replica, because it depends on ordered data only.
    pub(super) fn on_turn(
        &mut self,
        turn: Place,
        time_us: u64,
        recover: &Recover,
        limit: usize,
        now_us: u64,
    ) -> bool {
        self.on_overwritten(turn, recover);
        self.count_streaks(turn, recover);
        (self.in_flight_us, self.since_us, self.turned_us) = (None, now_us, Some(now_us));
        if let Some((_, latest)) = self.wrong.iter().next() {
            self.cause = *latest;
        }
        let stubborn = self.is_stubborn(time_us, recover);
        self.is_too_often(time_us, recover.id, limit) || stubborn
    }

    /// The objects in the RECOVER at `turn` are correct from there on.
    pub(super) fn on_overwritten(&mut self, turn: Place, recover: &Recover) {
        let listed = |region_id: &RegionId| recover.regions.contains(region_id);
        self.wrong.retain(|(region_id, id), latest| {
            let repaired = listed(region_id) || recover.objects.binary_search(&(*region_id, *id)).is_ok();
            !(repaired && *latest < turn)
        });
        self.regions.retain(|region_id, latest| !(listed(region_id) && *latest < turn));
        self.remember(turn, recover);
    }

    /// Whether a region is wrong repeatedly, however often it is repaired as a whole.
    fn is_stubborn(&mut self, time_us: u64, recover: &Recover) -> bool {
        let mut stubborn = false;
        for region_id in &recover.regions {
            let times = self.recent_regions.entry(*region_id).or_default();
            times.retain(|at| time_us.saturating_sub(*at) <= REPAIR_RATE_US);
            times.push_back(time_us);
            stubborn |= times.len() > REGION_REPAIRS_BEFORE_REPLACE;
        }
        if stubborn {
            self.recent_regions.clear();
        }
        stubborn
    }

    fn remember(&mut self, turn: Place, recover: &Recover) {
        self.repaired.extend(recover.objects.iter().map(|object| (*object, turn)));
        self.repaired_regions.extend(recover.regions.iter().map(|region_id| (*region_id, turn)));
        // Requests this far back have left the window; no more messages about them will come.
        let old = |place: &Place| place.batch + WINDOW_BATCHES < turn.batch;
        if self.repaired.len() > MAX_WRONG_OBJECTS {
            self.repaired.retain(|_, place| !old(place));
        }
        while self.repaired.len() > 2 * MAX_WRONG_OBJECTS {
            self.repaired.pop_first();
        }
    }

    fn count_streaks(&mut self, turn: Place, recover: &Recover) {
        for region_id in recover.region_ids() {
            let (count, last) = self.streaks.entry(region_id).or_default();
            let in_a_row = turn.batch.saturating_sub(*last) <= IN_A_ROW_BATCHES;
            *count = if in_a_row { *count + 1 } else { 1 };
            *last = turn.batch;
        }
        self.streaks.retain(|region_id, (_, last)| {
            !recover.regions.contains(region_id) && turn.batch.saturating_sub(*last) <= IN_A_ROW_BATCHES
        });
    }

    /// Whether the repairs of the last interval are too many for healthy hardware, and this was not said in it.
    pub(super) fn is_news_of_many(&mut self, time_us: u64) -> bool {
        let is_said = self.reported_us.is_some_and(|at| time_us.saturating_sub(at) <= REPAIR_RATE_US);
        let is_news = !is_said && self.recent.len() > REPAIRS_BEFORE_REPORT;
        if is_news {
            self.reported_us = Some(time_us);
        }
        is_news
    }

    fn is_too_often(&mut self, time_us: u64, id: u64, limit: usize) -> bool {
        while let Some((at, old)) = self.recent.front().copied()
            && time_us.saturating_sub(at) > REPAIR_RATE_US
        {
            self.recent.pop_front();
            self.recent_ids.remove(&old);
        }
        // The same proposal ordered twice counts once.
        if self.recent_ids.insert(id) {
            self.recent.push_back((time_us, id));
        }
        let too_often = self.recent.len() > limit;
        if too_often {
            self.recent.clear();
            self.recent_ids.clear();
        }
        too_often
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replica that comes back is wrong again, and this is known before its first heartbeat. For example a bit in the
    /// checksum's own table: repairs go from single objects to the region, then to the replica.
    #[test]
    fn a_region_that_stays_wrong_however_often_it_is_filled_is_given_up_with_its_replica() {
        let filled_every = |pause_us: u64| {
            let mut case = Case::default();
            (0..20_000u64).find(|batch| {
                let objects = [(3, ObjectId::new(*batch, 0))];
                case.add(Place::new(2 * batch, 0), objects.into_iter(), Set::first(2), 0);
                let now_us = batch * (GATHER_US + 1);
                let recover = case.propose(0, 2, Set::first(2), now_us).expect("something is wrong");
                case.on_turn(Place::new(2 * batch + 1, 0), batch * pause_us, &recover, usize::MAX, now_us)
            })
        };
        let each = u64::from(REPAIRS_BEFORE_REGION) + 1;
        assert_eq!(filled_every(1_000), Some(each * (REGION_REPAIRS_BEFORE_REPLACE as u64 + 1) - 1));
        assert_eq!(filled_every(20_000), None, "as faults that come one by one would need it");
    }

    #[test]
    fn more_repairs_than_healthy_hardware_needs_are_said_once_per_interval() {
        let said = |pause_us: u64| {
            let mut case = Case::default();
            let mut repair = |number: u64| {
                let objects = vec![(1, ObjectId::new(number, 0))];
                let scope = Scope::Faulty(2);
                let cause = Place::new(number, 0);
                let recover = Recover { id: number, proposer: 0, scope, cause, objects, regions: Vec::new() };
                case.on_turn(Place::new(number, 1), number * pause_us, &recover, usize::MAX, 0);
                case.is_news_of_many(number * pause_us)
            };
            (0..1000).filter(|number| repair(*number)).collect::<Vec<_>>()
        };
        let every = REPAIRS_BEFORE_REPORT as u64;
        assert_eq!(said(REPAIR_RATE_US / every + 1), [], "just as many");
        assert_eq!(said(REPAIR_RATE_US / 500), [every, every + 501]);
    }

    #[test]
    fn the_first_finding_is_repaired_at_once_and_close_ones_after_it_together() {
        let mut case = Case::default();
        let find = |case: &mut Case, number: u64, now_us: u64| {
            let objects = [(1, ObjectId::new(number, 0))];
            case.add(Place::new(number, 0), objects.into_iter(), Set::first(2), now_us);
            case.propose(0, 2, Set::first(2), now_us)
        };
        let first = find(&mut case, 10, 100).expect("nothing was repaired lately");
        case.on_turn(Place::new(11, 0), 0, &first, usize::MAX, 1_000);
        assert_eq!(find(&mut case, 12, 1_100), None);
        assert_eq!(find(&mut case, 13, 1_000 + GATHER_US - 1), None);
        let both = case.propose(0, 2, Set::first(2), 1_000 + GATHER_US).expect("the time is over");
        assert_eq!(both.objects.len(), 2);
        case.on_turn(Place::new(14, 0), 0, &both, usize::MAX, 10_000);
        for number in 20..20 + GATHER_OBJECTS as u64 - 1 {
            assert_eq!(find(&mut case, number, 10_001), None);
        }
        assert!(find(&mut case, 19, 10_001).is_some(), "they are many");
    }

    #[test]
    fn what_a_new_incarnation_has_shown_is_not_forgotten_with_the_old_one() {
        let mut case = Case::default();
        let proposers = Set::EMPTY.with(0).with(1);
        let (old, new) = ((1, ObjectId::new(5, 0)), (1, ObjectId::new(6, 0)));
        case.add(Place::new(9, 0), [old].into_iter(), proposers, 100);
        case.add(Place::new(12, 0), [new].into_iter(), proposers, 200);
        case.on_replaced(10);
        let recover = case.propose(0, 2, proposers, 300).unwrap();
        assert_eq!(recover.objects, [new]);
        case.on_replaced(13);
        assert!(case.is_quiet());
    }

    /// Pairs of a request before the turn may arrive after it: their object is right again, and is not repaired twice.
    #[test]
    fn late_news_of_a_request_before_the_turn_is_settled() {
        let object = (1, ObjectId::new(4, 2));
        let mut case = Case::default();
        case.add(Place::new(3, 0), [object].into_iter(), Set::first(2), 0);
        let recover = case.propose(0, 2, Set::first(2), 0).expect("something is wrong");
        assert!(!case.on_turn(Place::new(5, 1), 0, &recover, 10, 0));
        assert!(case.is_quiet());
        case.add(Place::new(5, 0), [object].into_iter(), Set::first(2), 0);
        assert!(case.is_quiet(), "request 5/0 stands before the turn 5/1");
        case.add(Place::new(5, 2), [object].into_iter(), Set::first(2), 0);
        assert!(!case.is_quiet(), "request 5/2 stands behind it: the object is wrong again");
    }
}
