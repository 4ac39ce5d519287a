//! Collections with damaged objects: each error is found when the object is visited, and repaired from another replica.

use crate::common::shelves::{Book, Label, Model, Shelf, contents, grown, options};
use object::{Corrupted, How, Injection, ObjectId, Protect, Region, ScopeOptions, request};
use std::panic::{AssertUnwindSafe, catch_unwind};
use wire::SplitMix64;

/// What a request that visits everything finds.
fn found(shelf: &Shelf, options: ScopeOptions) -> Result<Model, Corrupted> {
    request::begin(options);
    let outcome = catch_unwind(AssertUnwindSafe(|| shelf.contents()));
    request::abandon();
    outcome.map_err(|payload| match object::corrupted(&*payload) {
        Some(corrupted) => *corrupted,
        None => std::panic::resume_unwind(payload),
    })
}

fn ids(shelf: &Shelf) -> Vec<ObjectId> {
    let mut all = Vec::new();
    shelf.objects(&mut |listed| all.push(listed.id));
    all
}

#[test]
fn a_flipped_byte_in_any_object_is_found_at_its_visit_and_repaired() {
    let (mut shelf, model) = grown(1, 120);
    let (healthy, _) = grown(1, 120);
    let all = ids(&shelf);
    assert!(all.len() > 200);
    for (number, id) in all.into_iter().enumerate() {
        // An empty text has no byte that could be another one.
        let damaged = shelf.inject(id, &Injection::Byte { seed: number as u64 });
        damaged.or_else(|| shelf.inject(id, &Injection::Sum { bit: 5 })).expect("every object has a sum");
        let corrupted = found(&shelf, options(1_000)).expect_err("it is damaged");
        assert_eq!((corrupted.object, corrupted.how), (id, How::Checksum));
        shelf.replace(id, healthy.pack(id).as_deref()).expect("the replica has the same classes");
        assert_eq!(shelf.digest(), healthy.digest());
    }
    assert_eq!(contents(&shelf, 1_001), model);
    assert_eq!(shelf.scrub(9), []);
}

#[test]
fn a_lost_object_is_missed_at_its_visit_and_repaired() {
    let (mut shelf, model) = grown(2, 120);
    let (healthy, _) = grown(2, 120);
    for id in ids(&shelf).into_iter().filter(|id| *id != healthy.root()) {
        shelf.inject(id, &Injection::Lose).expect("it is in a store");
        let corrupted = found(&shelf, options(1_000)).expect_err("it is missing");
        assert_eq!((corrupted.object, corrupted.how), (id, How::Missing));
        assert_eq!(shelf.scrub(9), [object::ScrubFinding::Lost(id)]);
        shelf.replace(id, healthy.pack(id).as_deref()).expect("the replica has the same classes");
    }
    assert_eq!(contents(&shelf, 1_001), model);
    assert_eq!(shelf.digest(), healthy.digest());
}

/// Errors that no checksum shows, because the object was sealed with them or because nothing is checked: every
/// operation ends, with a result or with a report, and never with a panic of its own.
#[test]
fn what_no_checksum_shows_ends_every_operation() {
    let mut reported = 0;
    for seed in 0..400 {
        let (mut shelf, _) = grown(3, 30);
        let mut random = SplitMix64::new(seed);
        let all = ids(&shelf);
        for _ in 0..3 {
            let id = *random.one_of(&all).expect("there are some");
            let injection = match random.below(3) {
                0 => Injection::Reseal { seed: random.next_u64() },
                1 => Injection::Length { seed: random.next_u64() },
                _ => Injection::Byte { seed: random.next_u64() },
            };
            shelf.inject(id, &injection);
        }
        let protect = if seed % 2 == 0 { Protect::Check } else { Protect::Nothing };
        let options = ScopeOptions { position: 1_000, protect, keep_before_images: true };
        reported += usize::from(found(&shelf, options).is_err());
        for position in 1_000..1_020 {
            request::begin(ScopeOptions { position, ..options });
            let steps = AssertUnwindSafe(|| (0..20).for_each(|_| poke(&mut shelf, &mut random)));
            if let Err(payload) = catch_unwind(steps)
                && object::corrupted(&*payload).is_none()
            {
                panic!("seed {seed}: a panic of its own");
            }
            shelf.undo();
            request::abandon();
        }
    }
    assert!(reported > 100, "{reported}");
}

/// A random operation, whatever it returns.
fn poke(shelf: &mut Shelf, random: &mut SplitMix64) {
    let (number, key) = (random.below(400), (random.below(5) as u32, random.below(400)));
    let (word, label) = (number.to_string(), Label(random.below(3_000) as u16));
    match random.below(20) {
        0 => drop(shelf.numbers_mut().insert(key, number)),
        1 => drop(shelf.numbers_mut().remove(&key)),
        2 => drop(shelf.numbers_mut().pop_first()),
        3 => drop(shelf.numbers_mut().pop_last()),
        4 => drop(shelf.numbers().range(key..).count()),
        5 => drop(shelf.numbers().range_back(..key).count()),
        6 => drop(shelf.numbers_mut().get_mut(&key).map(|value| *value += 1)),
        7 => drop(shelf.words_mut().insert(word, vec![1; number as usize])),
        8 => drop(shelf.words_mut().change(word.as_str(), |all| all.push(1))),
        9 => drop(shelf.words_mut().remove_some(20)),
        10 => drop(shelf.words().prefix(&word[..1]).count()),
        11 => drop(shelf.labels_mut().insert(label)),
        12 => drop(shelf.labels_mut().remove(&label)),
        13 => shelf.queue_mut().push_back(1),
        14 => drop(shelf.queue_mut().remove_some(20)),
        15 => shelf.texts_mut().push_back(word),
        16 => drop(shelf.texts().iter().count()),
        17 => drop(shelf.books_mut().insert(number, Book::new("text"))),
        18 => drop(shelf.books_mut().remove(&number)),
        _ => drop(shelf.titles().iter().count()),
    }
}
