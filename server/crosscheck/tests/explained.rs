//! What a service says of a repaired object is in the evidence, whatever it is and whatever else is corrupted.

use bytes::Bytes;
use crosscheck::object::{Injection, ObjectId, Reader, Ref, RegionId, Store, critical, genesis};
use crosscheck::schedule::{DetMutex, Footprint, Locks, Retry};
use crosscheck::testing::Replica;
use crosscheck::{Cx, Malformed, RepairedObject, Service, limits};

#[critical]
struct Book {
    number: u32,
    pages: u64,
}

#[critical]
impl Book {
    fn new(number: u32, pages: u64) -> Self {
        Self { number, pages }
    }
    fn set(&mut self, pages: u64) {
        self.pages = pages;
    }
}

#[critical]
struct Library {
    books: Store<Book>,
}

#[critical]
impl Library {
    fn new() -> Self {
        Self { books: Store::new() }
    }
    fn put(&mut self, number: u32, pages: u64) {
        let me = self.object_id();
        match self.books.get_mut(Ref::numbered(me, number)) {
            Some(book) => book.set(pages),
            None => _ = self.books.insert_numbered(me, number, Book::new(number, pages)),
        }
    }
}

/// Its requests put a book of so many pages.
#[derive(Locks)]
struct Libraries {
    library: DetMutex<Library>,
}

impl Service for Libraries {
    type Request = (u32, u64);

    fn decode(&self, ordered: &Bytes) -> Result<(u32, u64), Malformed> {
        crosscheck::object::from_bytes(ordered)
    }
    fn encode(&self, request: &(u32, u64)) -> Vec<u8> {
        crosscheck::object::to_bytes(request)
    }
    fn footprint(&self, _request: &(u32, u64), footprint: &mut Footprint) {
        footprint.write(0);
    }
    fn execute(&self, cx: &Cx<'_, Self>, request: &(u32, u64), _reply: &mut Vec<u8>) -> Result<(), Retry> {
        cx.lock(&self.library)?.put(request.0, request.1);
        Ok(())
    }
    fn panicked(&self, _request: &(u32, u64), _reply: &mut Vec<u8>) {}
    fn region_id_of(&self, _name: &str) -> Option<RegionId> {
        Some(0)
    }
    fn find(&self, _cx: &Cx<'_, Self>, name: &str) -> Option<ObjectId> {
        let root = ObjectId::new(ObjectId::genesis_position(0), 0);
        name.parse().ok().map(|number| ObjectId::numbered(root, number))
    }

    /// By the number of pages that are right: several faults of an explanation.
    fn explain(repaired: &RepairedObject<'_>) -> Option<String> {
        let pages = |members: &crosscheck::object::Members<'_>| Reader::new(members.get("pages")?).u64().ok();
        let (wrong, right) = (pages(&repaired.wrong)?, pages(&repaired.right)?);
        let beside = |number| ObjectId::numbered(repaired.root(), number);
        match right {
            0 => None,
            1 => Some("much ".repeat(1000)),
            2 => Some("two\nlines".to_owned()),
            3 => panic!("the explanation fails"),
            4 => {
                let looks = (0..100_000).filter(|_| repaired.look_at(beside(0), |_| ()).is_some());
                Some(format!("{} looks", looks.count()))
            }
            _ => {
                let next = repaired.look_at(beside(1), |members| pages(members));
                Some(format!("{wrong} for {right}, beside {next:?}"))
            }
        }
    }
}

/// A replica with books of so many pages; the number of a book is its place.
fn with_books(pages: &[u64]) -> Replica<Libraries> {
    let mut one = Replica::new(Libraries { library: DetMutex::new(0, genesis(0, Library::new)) });
    for (number, pages) in pages.iter().enumerate() {
        one.run(&crosscheck::object::to_bytes(&(number as u32, *pages)));
    }
    one
}

fn book(one: &mut Replica<Libraries>, number: u32) -> (ObjectId, Vec<u8>) {
    let (_, id) = one.find(&number.to_string()).expect("any number has an id");
    (id, one.with_region(0, |region| region.pack(id)).expect("the book is there"))
}

fn flip(one: &mut Replica<Libraries>, id: ObjectId) {
    let injection = Injection::Flip { member: Some(1), bit: Some(5), seed: 0 };
    one.with_region(0, |region| region.inject(id, &injection)).expect("it is there");
}

/// The note on the first book after its repair.
fn note(pages: &[u64]) -> String {
    let mut one = with_books(pages);
    let right = book(&mut one, 0);
    flip(&mut one, right.0);
    let notes = one.repair(0, &[right]);
    assert_eq!(notes.len(), 1, "{notes:?}");
    notes.concat()
}

#[test]
fn the_evidence_has_the_explanation_behind_the_bits() {
    let text = note(&[100, 7]);
    assert!(text.ends_with("field pages: bit 5 wrong (68 for 100, beside Some(Some(7)))"), "{text}");
    assert!(note(&[0]).ends_with("field pages: bit 5 wrong"), "without one nothing follows");
}

#[test]
fn an_object_that_is_wrong_is_not_shown_and_one_that_was_repaired_with_it_is() {
    let mut one = with_books(&[100, 7]);
    let (first, second) = (book(&mut one, 0), book(&mut one, 1));
    [first.0, second.0].iter().for_each(|id| flip(&mut one, *id));
    let alone = one.repair(0, std::slice::from_ref(&first)).concat();
    assert!(alone.ends_with("(68 for 100, beside None)"), "{alone}");
    flip(&mut one, first.0);
    let both = one.repair(0, &[first, second]);
    assert!(both[0].ends_with("(68 for 100, beside Some(Some(7)))"), "{both:?}");
}

#[test]
fn an_explanation_is_one_short_line_and_its_panic_costs_only_itself() {
    let text = note(&[1]);
    assert!(text.chars().count() < limits::EXPLANATION_CHARACTERS + 100 && text.ends_with(" ...)"), "{text}");
    assert!(note(&[2]).ends_with("(two lines)"));
    assert!(note(&[3]).ends_with("bit 5 wrong"));
}

#[test]
fn the_objects_that_explanations_look_at_are_counted() {
    let looked = format!("({} looks)", limits::EXPLAINING_LOOKS);
    assert!(note(&[4]).ends_with(&looked), "{}", note(&[4]));
}

#[test]
fn a_repair_of_many_objects_explains_the_first_ones() {
    let mut one = with_books(&[2; limits::EXPLAINED_OBJECTS + 3]);
    let right: Vec<_> =
        (0..limits::EXPLAINED_OBJECTS as u32 + 3).map(|number| book(&mut one, number)).collect();
    right.iter().for_each(|(id, _)| flip(&mut one, *id));
    let notes = one.repair(0, &right);
    assert_eq!(notes.len(), right.len());
    let explained = notes.iter().filter(|note| note.ends_with("(two lines)")).count();
    assert_eq!(explained, limits::EXPLAINED_OBJECTS);
}
