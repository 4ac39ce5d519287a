//! Classes that a benchmark leaves out are neither checked nor named in the state delta; the others are. The
//! switches are for the whole process, so these tests have one of their own.

use object::{Health, Injection, Region, Store, critical, exempt, genesis, request};

#[critical]
struct Note {
    text: Vec<u8>,
}

#[critical]
impl Note {
    fn new(text: &[u8]) -> Self {
        Self { text: text.to_vec() }
    }

    fn write(&mut self, text: &[u8]) {
        self.text = text.to_vec();
    }

    fn length(&self) -> usize {
        self.text.len()
    }
}

#[critical]
struct Board {
    notes: Store<Note>,
    changes: u64,
}

#[critical]
impl Board {
    fn new() -> Self {
        Self { notes: Store::new(), changes: 0 }
    }

    fn pin(&mut self, text: &[u8]) -> object::Ref<Note> {
        self.changes += 1;
        self.notes.insert(Note::new(text))
    }

    fn change(&mut self, note: object::Ref<Note>, text: &[u8]) -> usize {
        self.changes += 1;
        self.notes.expect_mut(note).write(text);
        self.notes.expect(note).length()
    }
}

fn options(position: u64) -> request::ScopeOptions {
    request::ScopeOptions { position, protect: request::Protect::Check, keep_before_images: true }
}

#[test]
fn a_class_that_is_left_out_costs_no_check_and_the_rest_is_protected() {
    assert_eq!(exempt::protect_only::<Board>(&["Board"]), ["Board", "Note"]);
    exempt::without_before_images();
    let mut board = genesis(0, Board::new);
    request::begin(options(1));
    let note = board.pin(b"bread");
    board.seal(0);
    assert_eq!(request::finish().pairs().len(), 1, "the board only");
    assert!(board.inject(note.id(), &Injection::Flip { member: Some(0), bit: Some(3), seed: 1 }).is_some());
    request::begin(options(2));
    assert_eq!(board.change(note, b"butter"), 6, "nobody looks at the note's checksum");
    board.seal(0);
    let delta = request::finish();
    assert_eq!(delta.pairs().len(), 1);
    let root = board.object_id();
    assert_eq!(board.check(root), Health::Intact);
    assert!(board.inject(root, &Injection::Flip { member: Some(1), bit: Some(0), seed: 1 }).is_some());
    assert_ne!(board.check(root), Health::Intact, "the board is still protected");
}
