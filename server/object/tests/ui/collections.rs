//! Where a collection cannot be, what cannot be in it, and what an author who wants a generic type has instead.
use object::{Map, Queue, Set, Table, critical};

struct Plain(u64);

#[critical]
struct Shelf {
    maps: Vec<Map<u64, u64>>,
    weights: Map<u64, f64>,
    plain: Queue<Plain>,
    objects: Table<u64, u64>,
    inner: Set<Note>,
}

#[critical]
struct Note {
    text: String,
}

#[critical]
struct Generic<V> {
    value: V,
}

fn main() {}
