//! On which core a second run is made, so that a core which always computes an operation wrongly is found out.
//!
//! Both runs on one core compute the same wrong value, and agree. With `sei_rotate(n)` every n-th handler of a thread
//! makes its second run on the next core that the thread may run on, and the thread goes on from there: so it comes by
//! all of them, and each is compared with its neighbours.

use crate::mutate::{Protection, kept};

/// Cores that the kernel's set of a thread has room for.
pub const CORES: usize = 1024;

/// Cores of a thread, as the kernel has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CoreSet([u64; CORES / 64]);

/// Which cores share what computes: two hardware threads of one core are wrong alike.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// Of each core the first one that it shares with. A core beyond shares with none.
    first: Vec<usize>,
}

/// Where the second run is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextCore {
    /// On this core.
    Other(usize),
    /// On this one, which shares what computes with the first run's, since there is no other.
    Shared(usize),
    /// There is no other one.
    None,
}

/// Both runs of a handler are on different cores.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// The core of the first run.
    pub from: usize,
    /// That of the second one.
    pub to: usize,
    /// Where the thread may run.
    pub permitted: CoreSet,
}

/// What a process says once, where second runs cannot be made on another core, or hardly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// There is no other core.
    OneCore,
    /// They share what computes.
    SharedCore,
    /// The kernel refused.
    Refused,
}

impl CoreSet {
    /// None.
    pub const fn new() -> Self {
        Self([0; CORES / 64])
    }

    /// The set with one core.
    pub fn one(core: usize) -> Self {
        let mut set = Self::new();
        set.add(core);
        set
    }

    /// Adds a core, if there is room for it.
    pub fn add(&mut self, core: usize) {
        if let Some(word) = self.0.get_mut(core / 64) {
            *word |= 1 << (core % 64);
        }
    }

    /// Whether it is there.
    pub fn has(&self, core: usize) -> bool {
        self.0.get(core / 64).is_some_and(|word| word >> (core % 64) & 1 == 1)
    }
}

impl Default for CoreSet {
    fn default() -> Self {
        Self::new()
    }
}

impl Topology {
    /// As `siblings` tells for each core: a list of cores that begins with the first one, such as `0-1` or `0,64`.
    pub fn read(siblings: impl Fn(usize) -> Option<String>) -> Self {
        let first_of = |core| siblings(core).and_then(|list| number_in_front(&list)).unwrap_or(core);
        let known = (0..CORES).take_while(|&core| core == 0 || siblings(core).is_some());
        Self { first: known.map(first_of).collect() }
    }

    fn first(&self, core: usize) -> usize {
        self.first.get(core).copied().unwrap_or(core)
    }

    /// The next permitted core behind `now`, around the end.
    pub fn next(&self, permitted: &CoreSet, now: usize) -> NextCore {
        let others = || (1..CORES).map(|step| (now + step) % CORES).filter(|&core| permitted.has(core));
        match others().find(|&core| self.first(core) != self.first(now)) {
            Some(core) => NextCore::Other(core),
            None => others().next().map_or(NextCore::None, NextCore::Shared),
        }
    }
}

impl Complaint {
    /// The line for the operator.
    pub fn text(self) -> &'static str {
        match self {
            Self::OneCore => {
                "sei: sei_rotate: this thread may run on one core only, so its second runs stay there, and a core \
                 that is always wrong is not found. Permit it another one (taskset, cpuset), or leave sei_rotate out."
            }
            Self::SharedCore => {
                "sei: sei_rotate: this thread may run on hardware threads of one core only. Second runs go from one to \
                 the other, but both share what computes. Permit it another core (taskset, cpuset)."
            }
            Self::Refused => {
                "sei: sei_rotate: the kernel does not move this thread to another core (sched_setaffinity), so its \
                 second runs stay where they are."
            }
        }
    }
}

/// Whether the handler whose first run has ended is the `every`-th since the last one; 0: none is.
#[inline(always)]
pub fn is_due(since: &mut u32, every: u32) -> bool {
    if every == 0 || !kept(Protection::Rotation) {
        return false;
    }
    *since += 1;
    if *since < every {
        return false;
    }
    *since = 0;
    true
}

fn number_in_front(list: &str) -> Option<usize> {
    list.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn set(cores: &[usize]) -> CoreSet {
        let mut set = CoreSet::new();
        cores.iter().for_each(|&core| set.add(core));
        set
    }

    #[test]
    fn every_permitted_core_is_come_by() {
        let topology = Topology::default();
        let permitted = set(&[1, 5, 1000]);
        let mut now = 5;
        let mut visited = Vec::new();
        for _ in 0..6 {
            let NextCore::Other(next) = topology.next(&permitted, now) else { panic!("there are others") };
            visited.push(next);
            now = next;
        }
        assert_eq!(visited, [1000, 1, 5, 1000, 1, 5]);
    }

    #[test]
    fn hardware_threads_of_one_core_are_the_last_choice() {
        let lists = ["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"];
        let topology = Topology::read(|core| lists.get(core).map(|&list| list.to_owned()));
        assert_eq!(topology.next(&set(&[0, 4, 5]), 0), NextCore::Other(5));
        assert_eq!(topology.next(&set(&[0, 4]), 4), NextCore::Shared(0));
        assert_eq!(topology.next(&set(&[4]), 4), NextCore::None);
        let pairs = ["0-1\n", "0-1\n", "2-3\n", "2-3\n"];
        let topology = Topology::read(|core| pairs.get(core).map(|&list| list.to_owned()));
        assert_eq!(topology.next(&set(&[0, 1, 2, 3]), 0), NextCore::Other(2));
    }

    #[test]
    fn without_the_kernels_lists_each_core_is_its_own() {
        let topology = Topology::read(|_| None);
        assert_eq!(topology.next(&set(&[0, 1]), 0), NextCore::Other(1));
        assert_eq!(topology.next(&set(&[0, 1]), 1), NextCore::Other(0));
    }

    #[test]
    fn every_nth_handler_is_due() {
        let due = |every| {
            let mut since = 0;
            (1..=7).filter(|_| is_due(&mut since, every)).count()
        };
        assert_eq!([due(0), due(1), due(2), due(3), due(7), due(8)], [0, 7, 3, 2, 1, 0]);
    }
}
