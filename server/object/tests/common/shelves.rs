//! A region with a collection of each kind, random requests on it, and the same in the standard library's collections.

use object::{
    Map, Protect, Queue, Region, ScopeOptions, Set, Store, Summed, Table, critical, genesis, request,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::SplitMix64;

pub const REGION_ID: object::RegionId = 4;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Summed)]
pub struct Label(pub u16);

/// An object of a table.
#[critical]
pub struct Book {
    text: String,
}

#[critical]
impl Book {
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned() }
    }
    pub fn text(&self) -> &str {
        &self.text
    }
    pub fn set_text(&mut self, text: &str) {
        text.clone_into(&mut self.text);
    }
    pub fn into_text(self) -> String {
        self.text
    }
}

/// The root.
#[critical]
pub struct Shelf {
    numbers: Map<(u32, u64), u64>,
    words: Map<String, Vec<u8>>,
    labels: Set<Label>,
    queue: Queue<u32>,
    texts: Queue<String>,
    books: Table<u64, Book>,
    titles: Table<String, Book>,
    others: Store<Book>,
}

#[critical]
impl Shelf {
    pub fn new() -> Self {
        Self {
            numbers: Map::new(),
            words: Map::new(),
            labels: Set::new(),
            queue: Queue::new(),
            texts: Queue::new(),
            books: Table::new(),
            titles: Table::new(),
            others: Store::new(),
        }
    }
    pub fn numbers(&self) -> &Map<(u32, u64), u64> {
        &self.numbers
    }
    pub fn numbers_mut(&mut self) -> &mut Map<(u32, u64), u64> {
        &mut self.numbers
    }
    pub fn words(&self) -> &Map<String, Vec<u8>> {
        &self.words
    }
    pub fn words_mut(&mut self) -> &mut Map<String, Vec<u8>> {
        &mut self.words
    }
    pub fn labels(&self) -> &Set<Label> {
        &self.labels
    }
    pub fn labels_mut(&mut self) -> &mut Set<Label> {
        &mut self.labels
    }
    pub fn queue(&self) -> &Queue<u32> {
        &self.queue
    }
    pub fn queue_mut(&mut self) -> &mut Queue<u32> {
        &mut self.queue
    }
    pub fn texts(&self) -> &Queue<String> {
        &self.texts
    }
    pub fn texts_mut(&mut self) -> &mut Queue<String> {
        &mut self.texts
    }
    pub fn books(&self) -> &Table<u64, Book> {
        &self.books
    }
    pub fn books_mut(&mut self) -> &mut Table<u64, Book> {
        &mut self.books
    }
    pub fn titles(&self) -> &Table<String, Book> {
        &self.titles
    }
    pub fn titles_mut(&mut self) -> &mut Table<String, Book> {
        &mut self.titles
    }
    /// Visits everything, and returns it as the standard library has it.
    pub fn contents(&self) -> Model {
        Model {
            numbers: self.numbers.iter().map(|(key, value)| (*key, *value)).collect(),
            words: self.words.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            labels: self.labels.iter().cloned().collect(),
            queue: self.queue.iter().copied().collect(),
            texts: self.texts.iter().cloned().collect(),
            books: self.books.iter().map(|(key, book)| (*key, book.text().to_owned())).collect(),
            titles: self.titles.iter().map(|(key, book)| (key.clone(), book.text().to_owned())).collect(),
        }
    }
}

/// What a shelf should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub numbers: BTreeMap<(u32, u64), u64>,
    pub words: BTreeMap<String, Vec<u8>>,
    pub labels: BTreeSet<Label>,
    pub queue: VecDeque<u32>,
    pub texts: VecDeque<String>,
    pub books: BTreeMap<u64, String>,
    pub titles: BTreeMap<String, String>,
}

pub fn shelf() -> Shelf {
    genesis(REGION_ID, Shelf::new)
}

pub fn options(position: u64) -> ScopeOptions {
    ScopeOptions { position, protect: Protect::Check, keep_before_images: true }
}

/// How many of 100 steps put something in.
pub type Share = u64;

/// One random step on the shelf, and the same one on the model; its results have to be equal.
pub fn step(shelf: &mut Shelf, model: &mut Model, random: &mut SplitMix64, share: Share) {
    let puts = random.below(100) < share;
    match random.below(8) {
        0..=1 => step_numbers(shelf.numbers_mut(), &mut model.numbers, random, puts),
        2..=3 => step_words(shelf.words_mut(), &mut model.words, random, puts),
        4 => {
            let label = Label(random.below(3_000) as u16);
            let (labels, expected) = (shelf.labels_mut(), &mut model.labels);
            if puts {
                assert_eq!(labels.insert(label.clone()), expected.insert(label));
            } else if random.below(2) == 0 {
                assert_eq!(labels.remove(&label), expected.remove(&label));
            } else {
                assert_eq!(labels.pop_first(), expected.pop_first());
            }
            assert_eq!((labels.len(), labels.last()), (expected.len(), expected.last()));
        }
        5 => {
            let value = random.below(1 << 32) as u32;
            if puts {
                shelf.queue_mut().push_back(value);
                model.queue.push_back(value);
                let text = text(random, 300);
                shelf.texts_mut().push_back(text.clone());
                model.texts.push_back(text);
            } else {
                assert_eq!(shelf.queue_mut().pop_front(), model.queue.pop_front());
                assert_eq!(shelf.texts_mut().pop_front(), model.texts.pop_front());
            }
            assert_eq!(shelf.queue().front(), model.queue.front());
            assert_eq!(shelf.texts().front(), model.texts.front());
            assert_eq!(shelf.queue().len(), model.queue.len());
        }
        6 => step_table(shelf.books_mut(), &mut model.books, random.below(400), random, puts),
        _ => {
            let key = format!("title {}", random.below(400));
            step_table(shelf.titles_mut(), &mut model.titles, key, random, puts);
        }
    }
}

fn step_numbers(
    map: &mut Map<(u32, u64), u64>,
    model: &mut BTreeMap<(u32, u64), u64>,
    random: &mut SplitMix64,
    puts: bool,
) {
    let key = (random.below(5) as u32, random.below(400));
    let value = random.below(1_000);
    match random.below(5) {
        0..=2 if puts => assert_eq!(map.insert(key, value), model.insert(key, value)),
        0 => assert_eq!(map.pop_first(), model.pop_first()),
        1 => assert_eq!(map.pop_last(), model.pop_last()),
        2 => assert_eq!(map.remove(&key), model.remove(&key)),
        3 => {
            let changed = |found: Option<&mut u64>| {
                found.map(|value| {
                    *value += 1;
                    *value
                })
            };
            assert_eq!(changed(map.get_mut(&key)), changed(model.get_mut(&key)));
        }
        _ => {
            let (low, high) = (key, (key.0 + 1, value % 400));
            assert!(map.range(low..high).eq(model.range(low..high)));
            assert!(map.range_back(low..=high).eq(model.range(low..=high).rev()));
            assert!(map.range_back(..low).take(9).eq(model.range(..low).rev().take(9)));
        }
    }
    assert_eq!(map.len(), model.len());
    assert_eq!((map.first(), map.last()), (model.first_key_value(), model.last_key_value()));
    assert_eq!(map.get(&key), model.get(&key));
}

fn step_words(
    map: &mut Map<String, Vec<u8>>,
    model: &mut BTreeMap<String, Vec<u8>>,
    random: &mut SplitMix64,
    puts: bool,
) {
    // Long keys now and then, and values that may be longer than a node.
    let key = format!("{}{}", random.below(600), "x".repeat([0, 0, 0, 40, 700][random.below(5) as usize]));
    let most = [10, 100, 100, 300, 2_000][random.below(5) as usize];
    let length = random.below(most) as usize;
    let value = vec![random.below(256) as u8; length];
    match random.below(4) {
        0..=1 if puts => assert_eq!(map.insert(key.clone(), value.clone()), model.insert(key.clone(), value)),
        0 => assert_eq!(map.remove(key.as_str()), model.remove(&key)),
        1 => assert_eq!(map.remove_some(2), {
            model.pop_first();
            model.pop_first();
            !model.is_empty()
        }),
        2 => {
            let change = |all: &mut Vec<u8>| {
                all.resize(length, 7);
                all.len()
            };
            assert_eq!(map.change(key.as_str(), change), model.get_mut(&key).map(change));
        }
        _ => {
            let prefix = &key[..1 + key.len().min(3) / 2];
            let expected = model.iter().filter(|(key, _)| key.starts_with(prefix));
            assert!(map.prefix(prefix).eq(expected));
        }
    }
    assert_eq!(map.contains_key(key.as_str()), model.contains_key(&key));
}

fn step_table<K: Summed + Ord + Clone>(
    table: &mut Table<K, Book>,
    model: &mut BTreeMap<K, String>,
    key: K,
    random: &mut SplitMix64,
    puts: bool,
) {
    let text = text(random, 30);
    if puts {
        let before = table.insert(key.clone(), Book::new(&text)).map(Book::into_text);
        assert_eq!(before, model.insert(key.clone(), text));
    } else if random.below(3) == 0 {
        let book = table.get_mut(&key).map(|book| book.set_text(&text));
        assert_eq!(book, model.get_mut(&key).map(|before| *before = text));
    } else {
        assert_eq!(table.remove(&key).map(Book::into_text), model.remove(&key));
    }
    assert_eq!(table.len(), model.len());
    assert_eq!(table.get(&key).map(Book::text), model.get(&key).map(String::as_str));
}

fn text(random: &mut SplitMix64, most: u64) -> String {
    "t".repeat(random.below(most) as usize)
}

/// A request of some random steps, which is undone or counts.
pub fn run(shelf: &mut Shelf, model: &mut Model, position: u64, random: &mut SplitMix64, share: Share) {
    request::begin(options(position));
    let mut after = model.clone();
    for _ in 0..=random.below(12) {
        step(shelf, &mut after, random, share);
    }
    if random.below(3) == 0 {
        shelf.undo();
        assert!(request::is_undone());
        request::abandon();
    } else {
        shelf.seal(REGION_ID);
        request::finish();
        *model = after;
    }
}

/// A shelf after some hundred requests, all of which count.
pub fn grown(seed: u64, requests: u64) -> (Shelf, Model) {
    let (mut shelf, mut model, mut random) = (shelf(), Model::default(), SplitMix64::new(seed));
    for position in 1..=requests {
        request::begin(options(position));
        for _ in 0..8 {
            step(&mut shelf, &mut model, &mut random, 80);
        }
        shelf.seal(REGION_ID);
        request::finish();
    }
    (shelf, model)
}

/// Runs a request that visits everything.
pub fn contents(shelf: &Shelf, position: u64) -> Model {
    request::begin(options(position));
    let contents = shelf.contents();
    shelf.note(REGION_ID);
    request::finish();
    contents
}
