//! A breadth-first search of all states, which knows visited ones by 128 bits of hash, and tells the shortest way to a
//! broken one.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_128;

/// States in one piece of those whose turn has not come.
const PIECE: usize = 65_536;

/// What is searched.
pub trait Model {
    /// One state. Its bytes tell it from all others.
    type State: Copy + AsBytes;

    /// The first state.
    fn initial(&mut self) -> Self::State;

    /// All states after this one, each with the number of its step.
    fn steps(&mut self, state: &Self::State, next: &mut Vec<(u32, Self::State)>);

    /// What is wrong with it, if anything.
    fn broken(&self, state: &Self::State) -> bool;

    /// The name of a step.
    fn name(&self, step: u32) -> String;
}

/// The bytes of a state.
pub trait AsBytes {
    /// Writes them.
    fn write(&self, bytes: &mut Vec<u8>);
}

/// What a search found.
pub struct Outcome {
    /// Different states.
    pub states: usize,
    /// Steps to the last state that was found.
    pub depth: usize,
    /// The shortest way to a broken state, if there is one.
    pub way: Option<Vec<String>>,
    /// Whether all states were seen.
    pub is_complete: bool,
}

impl Outcome {
    /// One line: what was explored, its states, the steps to the last one, and the result.
    pub fn line(&self, what: &str) -> String {
        let (states, depth) = (self.states, self.depth);
        let outcome = match (&self.way, self.is_complete) {
            (Some(way), _) => format!("disagreement after {} steps", way.len()),
            (None, true) => "none".to_owned(),
            (None, false) => "not all states seen".to_owned(),
        };
        format!("| {what} | {states} | {depth} | {outcome} |")
    }

    /// Prints the line, and the way to a broken state.
    pub fn print(&self, what: &str) {
        println!("{}", self.line(what));
        for (index, step) in self.way.iter().flatten().enumerate() {
            println!("  {:>2}. {step}", index + 1);
        }
    }

    /// All states were seen and none is broken.
    pub fn assert_none(&self, what: &str) {
        self.print(what);
        assert!(self.way.is_none(), "{what}: disagreement");
        assert!(self.is_complete, "{what}: too many states");
    }

    /// A broken state was found.
    pub fn assert_disagreement(&self, what: &str) {
        self.print(what);
        assert!(self.way.is_some(), "{what}: the wrong rule was not found out");
    }
}

/// Searches until a state is broken or `most` states were seen.
pub fn search<M: Model>(model: &mut M, most: usize) -> Outcome {
    let mut visited: HashSet<u128, BuildHasherDefault<Truncate>> = HashSet::default();
    // For each state its predecessor and the step to it.
    let mut ways: Vec<(u32, u32)> = vec![(0, 0)];
    let mut bytes = Vec::new();
    let mut hash = |state: &M::State| {
        bytes.clear();
        state.write(&mut bytes);
        xxh3_128(&bytes)
    };
    let first = model.initial();
    visited.insert(hash(&first));
    // In pieces, which are freed as they are done: most memory is that of states whose turn has not come.
    let (mut present, mut following) = (vec![vec![(0u32, first)]], Vec::new());
    let (mut next, mut depth) = (Vec::new(), 0);
    while !present.is_empty() {
        for (from, state) in std::mem::take(&mut present).into_iter().flatten() {
            next.clear();
            model.steps(&state, &mut next);
            for (step, state) in next.drain(..) {
                if !visited.insert(hash(&state)) {
                    continue;
                }
                let index = ways.len() as u32;
                ways.push((from, step));
                if model.broken(&state) {
                    let way = Some(way_to(index, &ways, model));
                    return Outcome { states: ways.len(), depth: depth + 1, way, is_complete: false };
                }
                push(&mut following, (index, state));
            }
            if ways.len() >= most {
                return Outcome { states: ways.len(), depth: depth + 1, way: None, is_complete: false };
            }
        }
        present = std::mem::take(&mut following);
        present.retain(|piece| !piece.is_empty());
        depth += usize::from(!present.is_empty());
    }
    Outcome { states: ways.len(), depth, way: None, is_complete: true }
}

fn push<T>(pieces: &mut Vec<Vec<T>>, value: T) {
    match pieces.last_mut().filter(|piece| piece.len() < PIECE) {
        Some(piece) => piece.push(value),
        None => pieces.push(vec![value]),
    }
}

fn way_to<M: Model>(mut index: u32, ways: &[(u32, u32)], model: &M) -> Vec<String> {
    let mut names = Vec::new();
    while index != 0 {
        let (from, step) = ways[index as usize];
        names.push(model.name(step));
        index = from;
    }
    names.reverse();
    names
}

/// The keys are hashes already.
#[derive(Default)]
struct Truncate(u64);

impl Hasher for Truncate {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u128");
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
