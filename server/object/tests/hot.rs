//! Hot members: kept and summed apart from the others, with the outcome of a change of the whole object.

use crate::common::{BARE, PROTECTED, REGION_ID, REVERSIBLE, at, run};
use object::{
    Health, How, Injection, ObjectId, Protect, Ref, Region, ScopeOptions, Store, critical, genesis, request,
};
use wire::SplitMix64;

#[critical]
struct Page {
    text: Vec<u8>,
    #[hot]
    seen_s: u32,
    edits: u64,
    #[hot]
    views: u32,
}

#[critical]
impl Page {
    fn new(text: &[u8]) -> Self {
        Self { text: text.to_vec(), seen_s: 0, edits: 0, views: 0 }
    }
    #[hot]
    fn see(&mut self, now_s: u32) -> usize {
        *self.seen_s = now_s;
        *self.views = self.views.wrapping_add(1);
        self.text.len()
    }
    /// The same without the mark.
    fn see_whole(&mut self, now_s: u32) -> usize {
        self.seen_s = now_s;
        self.views = self.views.wrapping_add(1);
        self.text.len()
    }
    fn edit(&mut self, text: &[u8]) {
        self.text = text.to_vec();
        self.edits += 1;
    }
    fn views(&self) -> u32 {
        self.views
    }
}

#[critical]
struct Book {
    pages: Store<Page>,
}

#[critical]
impl Book {
    fn new() -> Self {
        Self { pages: Store::new() }
    }
    #[through]
    fn page(&mut self, number: u32) -> &mut Page {
        let page = Ref::numbered(ObjectId::new(ObjectId::genesis_position(REGION_ID), 0), number);
        self.pages.expect_mut(page)
    }
    /// Adds a page that is changed before it is in the book.
    fn add_edited(&mut self, text: &[u8]) {
        let mut page = Page::new(&[]);
        page.see(1);
        page.edit(text);
        let (book, number) = (self.object_id(), self.pages.len() as u32);
        self.pages.insert_numbered(book, number, page);
    }
    fn add(&mut self, text: &[u8]) {
        let number = self.pages.len() as u32;
        let book = self.object_id();
        self.pages.insert_numbered(book, number, Page::new(text));
    }
}

fn id(number: u32) -> ObjectId {
    ObjectId::numbered(ObjectId::new(ObjectId::genesis_position(REGION_ID), 0), number)
}

fn book() -> Book {
    genesis(REGION_ID, || {
        let mut book = Book::new();
        for length in [0usize, 3, 40, 900, 9_000] {
            book.add(&vec![7; length]);
        }
        book
    })
}

/// A step of a request, on a book whose hot members are changed apart, or on one where they are not.
fn step(book: &mut Book, random: &mut SplitMix64, apart: bool) {
    let (number, time_s) = (random.below(5) as u32, random.next_u64() as u32);
    match random.below(8) {
        0 => book.page(number).edit(&time_s.to_le_bytes()),
        1 => _ = book.page(number).views(),
        _ if apart => _ = book.page(number).see(time_s),
        _ => _ = book.page(number).see_whole(time_s),
    }
}

#[test]
fn a_hot_change_has_the_outcome_of_a_change_of_the_whole_object() {
    let (mut apart, mut whole) = (book(), book());
    for seed in 0..400 {
        let options = at(5 + seed, if seed % 3 == 0 { PROTECTED } else { REVERSIBLE });
        let deltas = [(&mut apart, true), (&mut whole, false)].map(|(book, apart)| {
            let mut random = SplitMix64::new(seed);
            run(book, options, |book| (0..random.below(9)).for_each(|_| step(book, &mut random, apart)))
                .unwrap()
                .1
        });
        assert_eq!(deltas[0], deltas[1], "request {seed}");
    }
    assert_eq!(apart.digest(), whole.digest());
    assert_eq!((apart.scrub(9), whole.scrub(9)), (vec![], vec![]));
}

#[test]
fn requests_of_hot_and_other_changes_are_undone_before_and_after_their_seal() {
    let mut book = book();
    for seed in 0..400 {
        let (before, mut random) = (book.digest(), SplitMix64::new(seed));
        request::begin(at(5 + seed, REVERSIBLE));
        for _ in 0..random.below(4) {
            (0..random.below(5)).for_each(|_| step(&mut book, &mut random, true));
            // As where a request is run twice: it goes on after a seal.
            if random.below(2) == 0 {
                book.seal(REGION_ID);
                assert_eq!(book.digest(), book.digest_of_intact());
            }
        }
        book.undo();
        assert!(request::is_undone());
        request::abandon();
        assert_eq!(book.digest(), before, "request {seed}");
        assert_eq!(book.scrub(9), [], "request {seed}");
        run(&mut book, at(5 + seed, REVERSIBLE), |book| step(book, &mut random, true)).unwrap();
    }
}

/// A bit of the text of page 2 flips after its check, before the request is sealed. A whole change makes that part of
/// the new checksum.
#[test]
fn an_error_in_other_members_before_the_seal_is_found_after_a_hot_change() {
    let flip_after = |change: fn(&mut Page) -> usize| {
        let mut book = book();
        request::begin(at(5, REVERSIBLE));
        change(book.page(2));
        assert_eq!(request::changed(), [id(2)], "what an injector may strike before the seal");
        book.inject(id(2), &Injection::Flip { member: Some(0), bit: Some(100), seed: 1 }).unwrap();
        // A request that is given up before its seal names the object, too.
        let blamed = book.blame();
        book.seal(REGION_ID);
        request::finish();
        assert_eq!(blamed == [id(2)], book.check(id(2)) == Health::Damaged);
        (book.check(id(2)), run(&mut book, at(6, REVERSIBLE), |book| book.page(2).see(9)).map(drop))
    };
    let (health, next) = flip_after(|page| page.see(4));
    assert_eq!(health, Health::Damaged);
    let (corrupted, _) = next.unwrap_err();
    assert_eq!((corrupted.object, corrupted.how), (id(2), How::Checksum));
    assert_eq!(
        flip_after(|page| page.see_whole(4)).0,
        Health::Intact,
        "the error is part of the new checksum"
    );
}

/// A request that is run twice masks a fault in its first run only if undoing that run rolls back the fault as well.
#[test]
fn with_images_of_whole_objects_an_error_in_them_is_undone_too() {
    for (begin, health) in [
        (request::begin as fn(ScopeOptions), Health::Damaged),
        (request::begin_with_whole_images, Health::Intact),
    ] {
        let mut book = book();
        let before = book.digest();
        begin(at(5, REVERSIBLE));
        book.page(2).see(4);
        book.inject(id(2), &Injection::Flip { member: Some(0), bit: Some(100), seed: 1 }).unwrap();
        book.seal(REGION_ID);
        book.undo();
        assert!(request::is_undone());
        request::abandon();
        assert_eq!((book.check(id(2)), book.digest() == before), (health, health == Health::Intact));
    }
}

#[test]
fn corrupted_hot_members_are_found_like_others() {
    for (member, bit) in [(1, 0), (1, 31), (3, 7)] {
        let mut book = book();
        run(&mut book, at(5, REVERSIBLE), |book| book.page(1).see(4)).unwrap();
        book.inject(id(1), &Injection::Flip { member: Some(member), bit: Some(bit), seed: 1 }).unwrap();
        let (corrupted, _) = run(&mut book, at(6, REVERSIBLE), |book| book.page(1).see(5)).unwrap_err();
        assert_eq!(corrupted.object, id(1));
    }
}

#[test]
fn where_checksums_are_off_or_only_renewed_hot_changes_leave_none_that_is_wrong() {
    for (protect, is_renewed) in [(Protect::Nothing, false), (Protect::Seal, true)] {
        let mut book = book();
        let options = ScopeOptions { protect, ..REVERSIBLE };
        let (_, delta) = run(&mut book, at(5, options), |book| book.page(3).see(4)).unwrap();
        assert_eq!(delta.pairs().len(), usize::from(is_renewed));
        assert_eq!(book.check(id(3)), if is_renewed { Health::Intact } else { Health::Unsealed });
        run(&mut book, at(6, REVERSIBLE), |book| book.page(3).see(5)).unwrap();
        assert_eq!(book.check(id(3)), Health::Intact);
        // Without before-images nothing is noted at all.
        run(&mut book, at(7, BARE), |book| book.page(3).see(6)).unwrap();
        run(&mut book, at(8, PROTECTED), |book| book.page(3).see(7)).unwrap();
        assert_eq!((book.page(3).views(), book.scrub(9)), (4, vec![]));
    }
}

/// What is kept of them can be shown to other replicas as it was.
#[test]
fn requests_that_are_kept_keep_whole_objects() {
    let mut book = book();
    let before = book.pack(id(2)).unwrap();
    request::begin_with_whole_images(at(5, REVERSIBLE));
    book.page(2).see(4);
    book.seal(REGION_ID);
    let (_, mut kept) = request::finish_keeping(object::Kept::new());
    assert_eq!(book.pack_before(&kept, id(2)), object::ObjectBefore::Was(before));
    book.roll_back(&mut kept);
    assert_eq!(book.page(2).views(), 0);
}

/// A table whose slots are not its numbers, as after a repair: every object is found all the same.
#[test]
fn numbered_objects_are_found_wherever_they_lie() {
    let (mut book, mut other) = (book(), book());
    let packed = book.pack(id(1)).unwrap();
    book.inject(id(1), &Injection::Lose).unwrap();
    let (missing, _) = run(&mut book, at(5, REVERSIBLE), |book| book.page(1).views()).unwrap_err();
    assert_eq!((missing.object, missing.how), (id(1), How::Missing));
    // Another page takes its slot.
    for book in [&mut book, &mut other] {
        run(book, at(6, REVERSIBLE), |book| book.add(b"new")).unwrap();
    }
    book.replace(id(1), Some(&packed)).unwrap();
    for number in 0..6 {
        let deltas = [&mut book, &mut other]
            .map(|book| run(book, at(7, REVERSIBLE), |book| book.page(number).see(number)).unwrap().1);
        assert_eq!(deltas[0], deltas[1], "page {number}");
    }
    assert_eq!(book.digest(), other.digest());
    assert_eq!(book.scrub(9), []);
}

#[test]
fn a_page_that_was_changed_before_it_got_its_number_is_one_object_and_is_undone() {
    let mut book = book();
    let before = book.digest();
    for (count, protect) in [(1, Protect::Check), (20, Protect::Check), (1, Protect::Nothing)] {
        request::begin(at(5, ScopeOptions { protect, ..REVERSIBLE }));
        (0..count).for_each(|_| book.add_edited(b"edited"));
        book.undo();
        assert!(request::is_undone(), "{count} pages, {protect:?}");
        request::abandon();
        assert_eq!((book.digest(), book.scrub(9)), (before, vec![]));
    }
    let (_, delta) = run(&mut book, at(6, REVERSIBLE), |book| book.add_edited(b"edited")).unwrap();
    assert_eq!((delta.pairs().len(), delta.unclaimed()), (2, 0), "the book and the page");
    assert_eq!(book.check(id(5)), Health::Intact);
}
