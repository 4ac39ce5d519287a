//! Forecasts a request's locks from those that the latest request of its kind took (docs/determinism.md, section 8).
//!
//! A footprint that [names a kind](Footprint::predict) is its declared part plus the lesson of the kind. The known
//! lessons are a function of the log, as everything else at a position: the lesson of position p is part of p's
//! outcome, in the same list, and counts when p + lag is dispatched. So all workers of all replicas know the same
//! lessons at each position, and no message is needed. A forecast that proves too small is an ordinary miss: the
//! request runs again with the lock, and gives a new lesson when it is done. One that was too large costs waiting,
//! once.
//!
//! A lesson is what the handler took *beyond* its declared part. Otherwise the next request would also wait for locks
//! that only the last one needed: among requests that declare the lock of their key, the lock of another key.
//!
//! A replica that abandons a request which the others finish (its check failed) misses the lesson, and one that runs it
//! wrongly learns another one: its schedule may then differ from the others', at a request of that kind that may come
//! much later. No comparison of objects shows that. So the request that repairs the replica makes all replicas forget
//! all lessons ([`Turn::forget_lessons`](crate::Turn::forget_lessons)).

use crate::cell::{Slot, Use};
use crate::footprint::Footprint;

/// Kinds that are known at the same time, at most. Each kind has one place, by a hash of its number; two kinds with the
/// same place replace each other there, and the replaced one is forecast by its declared part alone until one of its
/// requests is done again. Places of up to this many consecutive kinds hardly ever coincide.
pub const PREDICTED_KINDS: usize = 1 << KIND_BITS;

const KIND_BITS: u32 = 10;

/// The locks that a kind's request took beyond its declared part, when it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lesson {
    pub kind: u32,
    /// Names no kind itself; [`Footprint::all`] if there were too many locks.
    pub locks: Footprint,
}

impl Lesson {
    /// No lesson of any kind is known any more: that of a kind which no other lesson has.
    pub const FORGET_ALL: Lesson = Lesson { kind: u32::MAX, locks: Footprint::new() };
}

/// The latest lesson of each kind that has a place.
#[derive(Clone)]
pub(crate) struct Predictor {
    /// Not allocated until a request uses a forecast.
    places: Vec<Option<Lesson>>,
}

impl Predictor {
    /// Without lessons.
    pub const fn new() -> Self {
        Predictor { places: Vec::new() }
    }

    /// The declared footprint and the lesson of its kind.
    #[cold]
    pub fn forecast(&self, declared: &Footprint) -> Footprint {
        let mut footprint = *declared;
        let known = declared.kind().and_then(|kind| self.known(kind));
        if let Some(locks) = known {
            if locks.is_all() {
                footprint.make_all();
            }
            locks.iter().for_each(|(lock, shared)| footprint.add(lock, shared));
        }
        footprint
    }

    /// Stores a lesson; it replaces the earlier one of its kind.
    pub fn learn(&mut self, lesson: &Lesson) {
        if *lesson == Lesson::FORGET_ALL {
            return self.places.clear();
        }
        if !lesson.locks.is_empty() {
            self.places.resize(PREDICTED_KINDS, None);
            self.places[place(lesson.kind)] = Some(*lesson);
        } else if self.known(lesson.kind).is_some() {
            // An empty lesson takes no place, and displaces no other kind.
            self.places[place(lesson.kind)] = None;
        }
    }

    /// All known lessons, in an order that is the same for equal lessons.
    pub fn lessons(&self) -> impl Iterator<Item = &Lesson> {
        self.places.iter().flatten()
    }

    /// Stores one of the [lessons](Predictor::lessons) of another predictor, which come in their order; `false` if it
    /// is not one of them.
    pub fn restore(&mut self, lesson: &Lesson) -> bool {
        let at = place(lesson.kind);
        let in_order = self.places.iter().skip(at).all(Option::is_none);
        let intact = in_order && !lesson.locks.is_empty();
        if intact {
            self.learn(lesson);
        }
        intact
    }

    fn known(&self, kind: u32) -> Option<&Footprint> {
        self.places
            .get(place(kind))?
            .as_ref()
            .filter(|lesson| lesson.kind == kind)
            .map(|lesson| &lesson.locks)
    }
}

/// The place of a kind: multiplicative hashing (Knuth, TAOCP 3, 6.4), which spreads consecutive numbers evenly.
fn place(kind: u32) -> usize {
    (kind.wrapping_mul(0x9e37_79b9) >> (u32::BITS - KIND_BITS)) as usize
}

/// The lesson of a request that is done, if its footprint names a kind.
#[cold]
pub(crate) fn lesson(declared: &Footprint, slots: &[Slot]) -> Option<Lesson> {
    let kind = declared.kind()?;
    let mut locks = Footprint::new();
    for slot in slots {
        let shared = match slot.used() {
            Use::None => continue,
            Use::Read => true,
            Use::Write => false,
        };
        // A request that is declared to run alone still gives a lesson: another one of its kind may declare less.
        if declared.is_all() || !declared.allows(slot.lock, shared) {
            locks.add(slot.lock, shared);
        }
    }
    Some(Lesson { kind, locks })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn lesson_of(kind: u32, locks: &[u32]) -> Lesson {
        Lesson { kind, locks: locks.iter().copied().collect() }
    }

    fn forecast(predictor: &Predictor, kind: u32) -> Vec<u32> {
        let mut declared = Footprint::new();
        declared.predict(kind);
        predictor.forecast(&declared).iter().map(|(lock, _)| lock).collect()
    }

    /// Another kind with the place of `kind`.
    fn rival(kind: u32) -> u32 {
        (kind + 1..).find(|&other| place(other) == place(kind)).unwrap()
    }

    #[test]
    fn the_latest_lesson_of_a_kind_counts_and_joins_the_declared_part() {
        let mut predictor = Predictor::new();
        assert!(forecast(&predictor, 7).is_empty());
        predictor.learn(&lesson_of(7, &[1, 2]));
        predictor.learn(&lesson_of(7, &[3]));
        assert_eq!(forecast(&predictor, 7), [3]);
        assert!(forecast(&predictor, 8).is_empty());
        let mut declared = Footprint::one(9);
        assert_eq!(predictor.forecast(&declared), declared, "no kind, no forecast");
        declared.predict(7);
        assert_eq!(predictor.forecast(&declared).iter().map(|(lock, _)| lock).collect::<Vec<_>>(), [3, 9]);
        predictor.learn(&lesson_of(7, &[]));
        assert!(forecast(&predictor, 7).is_empty());
    }

    #[test]
    fn a_forecast_of_more_locks_than_fit_runs_alone() {
        let mut predictor = Predictor::new();
        predictor.learn(&Lesson { kind: 1, locks: Footprint::all() });
        predictor.learn(&lesson_of(2, &(0..16).collect::<Vec<_>>()));
        let declared = |kind| {
            let mut declared = Footprint::one(40);
            declared.predict(kind);
            declared
        };
        assert!(predictor.forecast(&declared(1)).is_all());
        assert!(predictor.forecast(&declared(2)).is_all(), "sixteen and one");
        assert_eq!(predictor.forecast(&declared(2)).kind(), Some(2), "it goes on learning");
    }

    #[test]
    fn kinds_of_one_place_replace_each_other_and_the_table_does_not_grow() {
        let mut predictor = Predictor::new();
        let (kind, rival) = (5, rival(5));
        predictor.learn(&lesson_of(kind, &[1]));
        predictor.learn(&lesson_of(rival, &[]));
        assert_eq!(forecast(&predictor, kind), [1], "nothing to know needs no place");
        predictor.learn(&lesson_of(rival, &[2]));
        assert!(forecast(&predictor, kind).is_empty());
        assert_eq!(forecast(&predictor, rival), [2]);
        (0..100_000).for_each(|kind| predictor.learn(&lesson_of(kind, &[3])));
        assert_eq!(predictor.lessons().count(), PREDICTED_KINDS);
        assert_eq!(predictor.places.len(), PREDICTED_KINDS);
    }

    #[test]
    fn consecutive_kinds_have_places_of_their_own() {
        for first in [0, 1_000, u32::MAX - 200] {
            let mut places: Vec<_> = (0..512).map(|kind| place(first.wrapping_add(kind))).collect();
            places.sort_unstable();
            places.dedup();
            assert!(places.len() > 500, "{} of 512 from {first}", places.len());
        }
    }

    #[test]
    fn lessons_are_restored_in_their_order_only() {
        let mut predictor = Predictor::new();
        (0..50).for_each(|kind| predictor.learn(&lesson_of(kind, &[kind])));
        let lessons: Vec<Lesson> = predictor.lessons().copied().collect();
        let mut restored = Predictor::new();
        assert!(lessons.iter().all(|lesson| restored.restore(lesson)));
        assert!(restored.lessons().eq(predictor.lessons()));
        let mut wrong = Predictor::new();
        assert!(wrong.restore(&lessons[1]));
        assert!(!wrong.restore(&lessons[0]), "before the last one");
        assert!(!wrong.restore(&lessons[1]), "twice");
        assert!(!wrong.restore(&lesson_of(lessons[2].kind, &[])), "nothing to know");
        assert!(wrong.restore(&lessons[2]));
    }
}
