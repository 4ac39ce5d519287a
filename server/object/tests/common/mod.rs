//! A small service of protected objects, and how an executor would run requests on it.
#![allow(unreachable_pub)]

pub mod forest;
pub mod releases;
pub mod shelves;

use object::{
    Corrupted, ObjectId, Pieces, Ref, Region, ScopeOptions, Store, Summed, Touched, critical, request,
};
use std::collections::VecDeque;

pub const REGION_ID: object::RegionId = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Summed)]
pub enum Colour {
    Plain,
    Mixed { red: u8, green: u8 },
    Named(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub struct Stamp {
    pub at: u64,
    pub by: String,
}

/// One object with a member of every kind.
#[critical]
#[derive(Debug)]
pub struct Leaf {
    key: Box<[u8]>,
    value: Pieces,
    flags: u32,
    colour: Colour,
    stamp: Stamp,
    tags: Vec<u16>,
    marks: [u8; 5],
    pair: (i64, bool),
    maybe: Option<u64>,
    queue: VecDeque<u8>,
    letter: char,
    next: Ref<Leaf>,
    owner: ObjectId,
    #[uncritical]
    hits: std::cell::Cell<u64>,
}

#[critical]
impl Leaf {
    pub fn new(key: &[u8], value: &[u8]) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
            flags: 7,
            colour: Colour::Mixed { red: 1, green: 2 },
            stamp: Stamp { at: 99, by: "someone".to_owned() },
            tags: vec![1, 2, 3],
            marks: [9; 5],
            pair: (-1, true),
            maybe: Some(5),
            queue: VecDeque::from([1, 2]),
            letter: 'x',
            next: Ref::NONE,
            owner: ObjectId::NONE,
            hits: std::cell::Cell::new(0),
        }
    }

    pub fn flags(&self) -> u32 {
        self.hits.set(self.hits.get() + 1);
        self.flags
    }

    pub fn value(&self) -> &[u8] {
        self.value.whole()
    }

    pub fn part(&self, range: std::ops::Range<usize>) -> &[u8] {
        self.value.part(range)
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    pub fn next(&self) -> Ref<Leaf> {
        self.next
    }

    pub fn set_flags(&mut self, flags: u32) {
        self.flags = flags;
    }

    pub fn set_next(&mut self, next: Ref<Leaf>) {
        self.next = next;
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.value.write(offset, bytes);
    }

    pub fn replace_after(&mut self, kept: usize, bytes: &[u8]) {
        self.value.replace_after(kept, bytes);
    }

    pub fn append(&mut self, bytes: &[u8]) {
        self.value.append(bytes);
        self.flags += 1;
    }

    pub fn prepend(&mut self, bytes: &[u8]) {
        self.value.prepend(bytes);
    }
}

/// A critical member of the root.
#[critical]
pub struct Counters {
    reads: u64,
    writes: u64,
}

#[critical]
impl Counters {
    fn new() -> Self {
        Self { reads: 0, writes: 0 }
    }
    pub fn wrote(&mut self) {
        self.writes += 1;
    }
    pub fn writes(&self) -> u64 {
        self.writes
    }
}

/// The root of a region.
#[critical]
pub struct Tree {
    name: String,
    leaves: Store<Leaf>,
    first: Ref<Leaf>,
    order: Vec<Ref<Leaf>>,
    counters: Counters,
}

#[critical]
impl Tree {
    pub fn new() -> Self {
        Self {
            name: "oak".to_owned(),
            leaves: Store::new(),
            first: Ref::NONE,
            order: Vec::new(),
            counters: Counters::new(),
        }
    }

    pub fn grow(&mut self, key: &[u8], value: &[u8]) -> Ref<Leaf> {
        let leaf = self.leaves.insert(Leaf::new(key, value));
        self.order.push(leaf);
        self.first = leaf;
        self.counters.wrote();
        leaf
    }

    pub fn shed(&mut self, leaf: Ref<Leaf>) -> Vec<u8> {
        let Self { leaves, order, .. } = self;
        let gone = leaves.expect_remove(leaf);
        order.retain(|&other| other != leaf);
        gone.value().to_vec()
    }

    pub fn leaf(&self, at: usize) -> &Leaf {
        self.leaves.expect(self.order[at])
    }

    pub fn leaf_mut(&mut self, at: usize) -> &mut Leaf {
        self.leaves.expect_mut(self.order[at])
    }

    /// The same without opening the tree.
    #[through]
    pub fn leaf_through(&mut self, at: usize) -> &mut Leaf {
        self.leaves.expect_mut(self.order[at])
    }

    pub fn reference(&self, at: usize) -> Ref<Leaf> {
        self.order[at]
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    pub fn writes(&self) -> u64 {
        self.counters.writes()
    }

    pub fn len(&self) -> usize {
        self.leaves.len()
    }
}

pub const PROTECTED: ScopeOptions =
    ScopeOptions { position: 1, protect: request::Protect::Check, keep_before_images: false };
pub const REVERSIBLE: ScopeOptions =
    ScopeOptions { position: 1, protect: request::Protect::Check, keep_before_images: true };
pub const BARE: ScopeOptions =
    ScopeOptions { position: 1, protect: request::Protect::Nothing, keep_before_images: false };

pub fn tree() -> Tree {
    object::genesis(REGION_ID, || {
        let mut tree = Tree::new();
        for (key, value) in [("a", vec![1u8; 40]), ("b", vec![2; 9000]), ("c", vec![])] {
            tree.grow(key.as_bytes(), &value);
        }
        tree
    })
}

/// Runs one request as an executor does: seals at the end, or reports what was found corrupted.
pub fn run<T: Region, R>(
    region: &mut T,
    options: ScopeOptions,
    handler: impl FnOnce(&mut T) -> R,
) -> Result<(R, Touched), (Corrupted, Vec<ObjectId>)> {
    request::begin(options);
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handler(region))) {
        Ok(result) => {
            region.seal(REGION_ID);
            Ok((result, request::finish()))
        }
        Err(payload) => match object::corrupted(&*payload) {
            Some(corrupted) => {
                let blamed = region.blame();
                let corrupted = *corrupted;
                region.undo();
                request::abandon();
                Err((corrupted, blamed))
            }
            None => {
                region.undo();
                request::abandon();
                std::panic::resume_unwind(payload)
            }
        },
    }
}

/// A request at a position.
pub fn at(position: u64, options: ScopeOptions) -> ScopeOptions {
    ScopeOptions { position, ..options }
}
