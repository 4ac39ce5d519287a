//! Collections against those of the standard library, what their operations touch, and how they are packed and undone.

use crate::common::shelves::{Book, Model, REGION_ID, Shelf, contents, grown, options, run, shelf, step};
use object::{
    Kept, Map, NODE_BYTES, ObjectId, Orphans, Queue, Region, Table, Touched, critical, genesis, request,
};
use std::collections::BTreeSet;
use std::time::Instant;
use wire::SplitMix64;

/// What an object has beside its entries: class, id, owner, and the lengths of its members.
const AROUND: usize = 64;

fn objects(region: &dyn Region) -> Vec<(ObjectId, &'static str)> {
    let mut all = Vec::new();
    region.objects(&mut |listed| all.push((listed.id, listed.class)));
    all
}

/// The largest object, packed.
fn largest(region: &dyn Region) -> usize {
    let size = |id| region.pack(id).expect("it is there").len();
    objects(region).into_iter().map(|(id, _)| size(id)).max().expect("the root at least")
}

fn request_on<T: Region, R>(region: &mut T, position: u64, work: impl FnOnce(&mut T) -> R) -> (R, Touched) {
    request::begin(options(position));
    let result = work(region);
    region.seal(REGION_ID);
    (result, request::finish())
}

/// Grows and shrinks several times; a third of the requests are undone.
#[test]
fn collections_do_what_those_of_the_standard_library_do() {
    for seed in 0..6 {
        let (mut shelf, mut model, mut random) = (shelf(), Model::default(), SplitMix64::new(seed));
        let mut position = 0;
        for (requests, share) in [(250, 80), (150, 20), (150, 70), (300, 5)] {
            for _ in 0..requests {
                position += 1;
                run(&mut shelf, &mut model, position, &mut random, share);
                if position % 50 == 0 {
                    assert_eq!(shelf.scrub(9), [], "seed {seed}, position {position}");
                    assert_eq!(
                        contents(&shelf, 1 << 40 | position),
                        model,
                        "seed {seed}, position {position}"
                    );
                }
            }
        }
    }
}

/// Undo leaves the same bytes, and a request that is run again has the same result as one that ran once.
#[test]
fn an_undone_request_leaves_nothing() {
    let (mut shelf, mut model) = grown(7, 200);
    let mut random = SplitMix64::new(8);
    for position in 1_000..1_200 {
        let (before, seed) = (shelf.pack_all(), random.next_u64());
        let share = [80, 20, 3][position as usize % 3];
        let attempt = |shelf: &mut Shelf, model: &mut Model| {
            request::begin(options(position));
            let mut random = SplitMix64::new(seed);
            (0..30).for_each(|_| step(shelf, model, &mut random, share));
            shelf.seal(REGION_ID);
        };
        attempt(&mut shelf, &mut model.clone());
        let after = shelf.pack_all();
        shelf.undo();
        assert!(request::is_undone());
        request::abandon();
        assert!(shelf.pack_all() == before, "position {position}");
        attempt(&mut shelf, &mut model);
        request::finish();
        assert!(shelf.pack_all() == after, "position {position}");
    }
    assert_eq!(shelf.scrub(9), []);
}

/// Requests that have ended are rolled back too, newest first.
#[test]
fn rolled_back_requests_leave_nothing() {
    let (mut shelf, model) = grown(9, 200);
    let mut random = SplitMix64::new(10);
    for round in 0..20 {
        let (mut past, mut after) = (Vec::new(), model.clone());
        for number in 0..5 {
            let before = shelf.pack_all();
            let position = 1_000 + round * 5 + number;
            request::begin_with_whole_images(options(position));
            (0..20).for_each(|_| step(&mut shelf, &mut after, &mut random, [80, 10][round as usize % 2]));
            shelf.seal(REGION_ID);
            let (_, kept) = request::finish_keeping(Kept::new());
            past.push((before, kept));
        }
        for (before, mut kept) in past.into_iter().rev() {
            shelf.roll_back(&mut kept);
            assert!(shelf.pack_all() == before, "round {round}");
        }
    }
    assert_eq!(contents(&shelf, 2_000), model);
}

/// No object is left over, in whatever way the entries went.
#[test]
fn an_emptied_collection_has_no_objects() {
    let (mut shelf, mut model) = grown(11, 300);
    let mut random = SplitMix64::new(12);
    assert!(objects(&shelf).len() > 400, "{} objects", objects(&shelf).len());
    for position in 1_000..1_300 {
        run(&mut shelf, &mut model, position, &mut random, 5);
    }
    let mut position = 2_000;
    loop {
        position += 1;
        let (has_more, _) = request_on(&mut shelf, position, |shelf| {
            shelf.labels_mut().remove_some(50)
                | shelf.numbers_mut().remove_some(50)
                | shelf.words_mut().remove_some(50)
                | shelf.queue_mut().remove_some(50)
                | shelf.texts_mut().remove_some(50)
                | shelf.books_mut().remove_some(50)
                | shelf.titles_mut().remove_some(50)
        });
        if !has_more {
            break;
        }
    }
    assert_eq!(contents(&shelf, 5_000), Model::default());
    assert_eq!(objects(&shelf), [(shelf.root(), "all::common::shelves::Shelf")]);
    assert_eq!(shelf.digest(), self::shelf().digest(), "as one that was never filled");
}

#[test]
fn objects_stay_small() {
    let (shelf, _) = grown(21, 600);
    // A value of 2,000 bytes is in a node alone, or with one long key; of keys a node above has a few.
    assert!(largest(&shelf) <= NODE_BYTES + 3 * 2_100, "{}", largest(&shelf));

    let mut numbers = genesis(REGION_ID, Numbers::new);
    for position in 0..200 {
        request_on(&mut numbers, position, |numbers| {
            (0..100).for_each(|number| numbers.put(mixed(position * 100 + number), number));
        });
    }
    assert!(largest(&numbers) <= NODE_BYTES + AROUND, "{}", largest(&numbers));
    // Nodes of random keys are two thirds full, and those of ascending keys are full.
    let bytes_of_entries = 20_000 * 16;
    assert!(objects(&numbers).len() < bytes_of_entries / (NODE_BYTES / 2), "{}", objects(&numbers).len());
    let mut ascending = genesis(REGION_ID, Numbers::new);
    for position in 0..200 {
        request_on(&mut ascending, position, |numbers| {
            (0..100).for_each(|number| numbers.put(position * 100 + number, number));
        });
    }
    assert!(
        objects(&ascending).len() < bytes_of_entries / (NODE_BYTES * 9 / 10),
        "{}",
        objects(&ascending).len()
    );
}

/// A region with a map, a queue and a table of many entries.
#[critical]
struct Numbers {
    map: Map<u64, u64>,
    queue: Queue<u64>,
    table: Table<u64, Book>,
}

#[critical]
impl Numbers {
    fn new() -> Self {
        Self { map: Map::new(), queue: Queue::new(), table: Table::new() }
    }
    fn put(&mut self, key: u64, value: u64) {
        self.map.insert(key, value);
    }
    fn map(&self) -> &Map<u64, u64> {
        &self.map
    }
    fn map_mut(&mut self) -> &mut Map<u64, u64> {
        &mut self.map
    }
    fn queue_mut(&mut self) -> &mut Queue<u64> {
        &mut self.queue
    }
    fn table_mut(&mut self) -> &mut Table<u64, Book> {
        &mut self.table
    }
}

/// Numbers in no order, each once.
fn mixed(number: u64) -> u64 {
    ObjectId::from_bits(number).spread()
}

/// With 100,000 entries a map of numbers has three levels, and a table four.
#[test]
fn an_operation_touches_few_objects() {
    let mut numbers = genesis(REGION_ID, Numbers::new);
    let count = 100_000;
    for position in 1..=count / 100 {
        request_on(&mut numbers, position, |numbers| {
            for number in (position - 1) * 100..position * 100 {
                numbers.put(mixed(number), number);
                numbers.queue_mut().push_back(number);
                numbers.table_mut().insert(number, Book::new("text"));
            }
        });
    }
    let (root, levels, mut most) = (1, 3, [0; 8]);
    for number in 0..1_000 {
        let position = 10_000 + number * 8;
        let key = mixed(number * 97);
        let mut touched = |at: usize, work: &mut dyn FnMut(&mut Numbers)| {
            let (_, touched) = request_on(&mut numbers, position + at as u64, |numbers| work(numbers));
            most[at] = touched.pairs().len().max(most[at]);
        };
        touched(0, &mut |numbers| {
            // The lowest keys leave below.
            assert!(numbers.map().get(&key).is_none_or(|value| *value == number * 97));
        });
        touched(1, &mut |numbers| assert!(numbers.map_mut().insert(key ^ 1 << 40, 0).is_none()));
        touched(2, &mut |numbers| _ = numbers.map_mut().remove(&key));
        touched(3, &mut |numbers| assert!(numbers.map_mut().pop_first().is_some()));
        touched(4, &mut |numbers| numbers.queue_mut().push_back(number));
        touched(5, &mut |numbers| assert!(numbers.queue_mut().pop_front().is_some()));
        touched(6, &mut |numbers| assert!(numbers.table_mut().get_mut(&(number * 31)).is_some()));
        touched(7, &mut |numbers| assert!(numbers.table_mut().remove(&(number * 31)).is_some()));
    }
    let neighbours = levels - 1;
    assert_eq!((most[0], numbers.map().len() / 10_000), (root + levels, 9));
    assert!(most[1] <= root + levels + neighbours + 1, "{most:?}");
    assert!(most[2] <= root + levels + neighbours && most[3] <= root + levels + neighbours, "{most:?}");
    assert!(most[4] <= root + 2 && most[5] <= root + 1, "{most:?}");
    let (in_table, book) = (4, 1);
    assert_eq!(most[6], root + in_table + book);
    assert!(most[7] <= root + in_table + neighbours + 1 + book, "{most:?}");
    assert_eq!(numbers.scrub(9), []);
}

/// All at once, and in parts; what was loaded goes on as the original does.
#[test]
fn a_packed_region_is_the_same_elsewhere() {
    let (mut original, mut model) = grown(31, 250);
    let packed = original.pack_all();
    let mut loaded = grown(32, 40).0;
    loaded.load_all(&packed).expect("it was packed by a region of the same type");
    let mut copied = grown(33, 40).0;
    copied.empty();
    let (all, mut from, mut orphans) = (original.locate_all(), 0, Orphans::default());
    while from < all.len() {
        let (mut part, mut damaged) = (Vec::new(), Vec::new());
        from += original.pack_listed(&all[from..], 5_000, &mut part, &mut damaged);
        copied.install_part(&part, true, &mut orphans).expect("it was packed by a region of the same type");
    }
    assert!(orphans.is_empty());
    let mut random = SplitMix64::new(34);
    for position in 1_000..1_100 {
        for other in [&loaded, &copied] {
            assert!(other.pack_all() == original.pack_all() && other.digest() == original.digest());
        }
        let (mut same, mut again) = (random.clone(), model.clone());
        run(&mut loaded, &mut again, position, &mut same, 50);
        (same, again) = (random.clone(), model.clone());
        run(&mut copied, &mut again, position, &mut same, 50);
        run(&mut original, &mut model, position, &mut random, 50);
    }
    assert_eq!(contents(&copied, 2_000), model);
    assert!(original.scrub(9).is_empty() && loaded.scrub(9).is_empty() && copied.scrub(9).is_empty());
}

/// What depends on an address, on a random seed of the process, or on an earlier request of the thread would differ.
#[test]
fn two_replicas_are_equal() {
    let one = std::thread::spawn(|| grown(41, 200).0.pack_all()).join().expect("no panic");
    let in_the_way: Vec<Vec<u8>> = (1..200).map(|length| vec![0; length * 7]).collect();
    assert!(one == grown(41, 200).0.pack_all());
    drop(in_the_way);
}

/// A digest that a build of before has computed: the order of a table's entries and the division of nodes are part of
/// the state, so no release may change them.
#[test]
fn the_form_of_collections_stays() {
    let (shelf, _) = grown(51, 100);
    assert_eq!((shelf.digest(), objects(&shelf).len()), (310647638603051887047997221237517281206, 238));
}

#[test]
fn classes_are_named_after_what_is_in_them() {
    let (shelf, _) = grown(61, 100);
    let names: BTreeSet<&str> = objects(&shelf).into_iter().map(|(_, class)| class).collect();
    let expected = [
        "MapNode<(u32, u64), u64>",
        "MapNode<Hashed<String>, Ref>",
        "MapNode<Hashed<u64>, Ref>",
        "MapNode<Label, ()>",
        "MapNode<String, Vec<u8>>",
        "QueueBlock<String>",
        "QueueBlock<u32>",
        "all::common::shelves::Book",
        "all::common::shelves::Shelf",
    ];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), expected);
    for (id, class) in objects(&shelf) {
        let packed = shelf.pack(id).expect("it is there");
        let members = shelf.members(&packed).expect("a class of the region");
        assert!(class.ends_with(members.class) && !members.members.is_empty(), "{class}: {members:?}");
    }
    let mut shapes = BTreeSet::new();
    Shelf::classes(&mut |class| {
        let mut shape = object::Shape::default();
        (class.shape)(&mut shape);
        shapes.insert((class.tag, shape.digest()))
    });
    assert_eq!(shapes.len(), expected.len());
}

/// A node of one map is not taken for that of another one with other types.
#[test]
fn a_node_goes_into_a_map_of_its_types_only() {
    let (mut shelf, _) = grown(62, 100);
    let of = |shelf: &Shelf, name: &str| {
        objects(shelf).into_iter().find(|(_, class)| *class == name).expect("there are some").0
    };
    let (number, label) = (of(&shelf, "MapNode<(u32, u64), u64>"), of(&shelf, "MapNode<Label, ()>"));
    let mut packed = shelf.pack(label).expect("it is there");
    let (class, id_and_place) = (1..5, 5..22);
    let other = shelf.pack(number).expect("it is there");
    packed[id_and_place.clone()].copy_from_slice(&other[id_and_place]);
    let refused = shelf.replace(number, Some(&packed)).expect_err("another class");
    assert!(refused.to_string().contains("other types of keys or values"), "{refused}");
    packed[class.clone()].copy_from_slice(&other[class]);
    assert!(shelf.replace(number, Some(&packed)).is_err());
}

#[critical(version = 2)]
struct Older {
    number: u64,
    #[since(2)]
    map: Map<u64, String>,
}

#[critical]
impl Older {
    fn new() -> Self {
        Self { number: 1, map: Map::new() }
    }
    fn put(&mut self, key: u64) {
        self.number += 1;
        if self.stored_version() >= 2 {
            self.map.insert(key, "text".to_owned());
        }
    }
    fn len(&self) -> usize {
        self.map.len()
    }
}

/// A collection may come with a later version of its owner, as a store may.
#[test]
fn a_collection_comes_with_a_later_version() {
    let mut older = genesis(REGION_ID, Older::new);
    for (position, behavior, expected) in [(1, 1, 0), (2, 2, 1), (3, 2, 2)] {
        request::begin(options(position));
        request::act_as(behavior);
        older.put(position);
        older.seal(REGION_ID);
        request::finish();
        assert_eq!(older.len(), expected);
        let mut other = genesis(REGION_ID, Older::new);
        other.load_all(&older.pack_all()).expect("the same class");
        assert_eq!((other.digest(), other.len()), (older.digest(), expected));
    }
}

/// `cargo test --release -p object --test all collections::microseconds -- --ignored --nocapture`
#[test]
#[ignore = "prints a figure of this machine"]
fn microseconds_per_put() {
    #[critical]
    struct Jobs {
        ready: Map<(u32, u64), u64>,
    }
    #[critical]
    impl Jobs {
        fn new() -> Self {
            Self { ready: Map::new() }
        }
        fn put(&mut self, priority: u32, id: u64) {
            self.ready.insert((priority, id), id);
        }
        fn reserve(&mut self) -> Option<((u32, u64), u64)> {
            self.ready.pop_first()
        }
    }
    let (jobs, rounds) = (100_000, 100_000);
    let mut queue = genesis(REGION_ID, Jobs::new);
    let mut position = 0;
    let mut timed = |what: &str, count: u64, work: &mut dyn FnMut(&mut Jobs, u64)| {
        let start = Instant::now();
        for _ in 0..count {
            position += 1;
            request_on(&mut queue, position, |queue| work(queue, position));
        }
        println!("{what}: {:.2} us", start.elapsed().as_secs_f64() * 1e6 / count as f64);
    };
    let priority = |position: u64| (mixed(position) >> 40) as u32;
    timed("put, up to 100,000 jobs", jobs, &mut |queue, position| queue.put(priority(position), position));
    timed("put and reserve, 100,000 jobs", rounds, &mut |queue, position| {
        queue.put(priority(position), position);
        assert!(queue.reserve().is_some());
    });
    timed("put, 100,000 to 200,000 jobs", jobs, &mut |queue, position| {
        queue.put(priority(position), position)
    });
    timed("reserve, 200,000 to 100,000 jobs", jobs, &mut |queue, _| assert!(queue.reserve().is_some()));

    let mut numbers = genesis(REGION_ID, Numbers::new);
    let mut position = 0;
    let mut timed = |what: &str, count: u64, work: &mut dyn FnMut(&mut Numbers, u64)| {
        let start = Instant::now();
        for number in 0..count {
            position += 1;
            request_on(&mut numbers, position, |numbers| work(numbers, number));
        }
        println!("{what}: {:.2} us", start.elapsed().as_secs_f64() * 1e6 / count as f64);
    };
    timed("push into a queue", jobs, &mut |numbers, number| numbers.queue_mut().push_back(number));
    timed("pop from a queue", jobs, &mut |numbers, _| assert!(numbers.queue_mut().pop_front().is_some()));
    timed("insert into a table, up to 100,000", jobs, &mut |numbers, number| {
        assert!(numbers.table_mut().insert(number, Book::new("text")).is_none());
    });
    timed("change an object of a table of 100,000", jobs, &mut |numbers, number| {
        numbers.table_mut().get_mut(&(mixed(number) % jobs)).expect("it is there").set_text("other");
    });
}
