//! `check_deterministic` finds each way in which a service breaks determinism, and names the request.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use crosscheck::object::{ObjectId, Reader, RegionId, Summed, Summer, critical, genesis};
use crosscheck::schedule::{DetMutex, Footprint, Locks, Retry};
use crosscheck::testing::{Difference, check_deterministic};
use crosscheck::{Behaviors, Cx, Malformed, Service};

/// The additional action of a request of kind [`TRAP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trap {
    Nothing,
    WallClock,
    WallClockSeconds,
    HashMapOrder,
    StackAddress,
    HeapAddress,
    StaticCounter,
    ThreadName,
    Hidden,
    Heap,
    Unsummed,
    /// The value of a member that came follows from one that is not packed.
    Later,
    Stored,
    Started,
}

const TRAP: u8 = 7;
/// Index of the first request of that kind.
const AT: usize = 21;

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// A collection that is packed in sorted order, but whose behaviour depends on the order of insertion.
#[derive(Debug, Default, PartialEq, Eq)]
struct Bag(Vec<u64>);

impl Summed for Bag {
    fn sum(&self, summer: &mut Summer) {
        self.sorted().sum(summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.sorted().pack(out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Vec::unpack(from).map(Bag)
    }
    fn blank() -> Self {
        Bag::default()
    }
}

impl Bag {
    fn sorted(&self) -> Vec<u64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted
    }
}

/// Two numbers. One is summed but not packed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Partly(u64, u64);

impl Summed for Partly {
    fn sum(&self, summer: &mut Summer) {
        (self.0, self.1).sum(summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.0.pack(out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        u64::unpack(from).map(|number| Partly(number, 0))
    }
    fn blank() -> Self {
        Partly::default()
    }
}

#[critical(version = 2)]
struct Shelf {
    numbers: Vec<u64>,
    bag: Bag,
    partly: Partly,
    #[uncritical]
    falls: u64,
    #[since(2, default = self.falls)]
    fallen: u64,
}

#[critical]
impl Shelf {
    fn new() -> Self {
        Self { numbers: Vec::new(), bag: Bag::default(), partly: Partly::default(), falls: 0, fallen: 0 }
    }
    fn put(&mut self, number: u64) {
        self.numbers.push(number);
    }
    fn total(&self) -> u64 {
        self.numbers.iter().fold(0, |sum, number| sum.wrapping_mul(31).wrapping_add(*number))
    }
    /// Removes the number that was added last; two others are left.
    fn swap(&mut self, number: u64) -> u64 {
        if self.bag.0.is_empty() {
            self.bag.0.extend([3, 1, 2]);
        }
        let last = self.bag.0.pop().unwrap_or(0);
        self.bag.0.insert(0, number);
        last
    }
    fn fall(&mut self) -> u64 {
        self.falls += 1;
        self.fallen
    }
    fn hide(&mut self, number: u64) {
        self.partly.1 = number;
    }
}

/// A service whose requests are a kind and the number of a shelf.
#[derive(Locks)]
struct Faulty {
    shelves: Vec<DetMutex<Shelf>>,
    /// The hidden state, by shelf and position.
    #[locks(skip)]
    hidden: Mutex<HashSet<(RegionId, u64)>>,
    #[locks(skip)]
    trap: Trap,
}

impl Faulty {
    fn new(trap: Trap) -> Self {
        let shelf = |region_id| DetMutex::new(region_id, genesis(region_id, Shelf::new));
        Faulty { shelves: (0..4).map(shelf).collect(), hidden: Mutex::default(), trap }
    }

    /// The number that the trap adds to the reply.
    fn fall(&self, cx: &Cx<'_, Self>, region_id: RegionId, shelf: &mut Shelf) -> u64 {
        let local = 0u8;
        match self.trap {
            Trap::Nothing => 0,
            Trap::WallClock => nanos(),
            Trap::WallClockSeconds => nanos() / 1_000_000_000,
            Trap::HashMapOrder => {
                let map: HashMap<u64, u64> = (0..20).map(|number| (number, number)).collect();
                map.values().fold(0, |all: u64, value| all.wrapping_mul(31).wrapping_add(*value))
            }
            Trap::StackAddress => std::ptr::from_ref(&local).addr() as u64,
            Trap::HeapAddress => std::ptr::from_ref(&*Box::new(local)).addr() as u64,
            Trap::StaticCounter => COUNTER.fetch_add(1, Ordering::Relaxed),
            Trap::ThreadName => thread::current().name().map_or(0, |name| name.bytes().map(u64::from).sum()),
            Trap::Hidden => {
                let mut hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
                // The access is ordered by the shelf's lock, and is not counted twice: only a replica that was filled
                // lacks this state.
                hidden.insert((region_id, cx.position()));
                hidden.iter().filter(|(other, _)| *other == region_id).count() as u64
            }
            Trap::Heap => shelf.swap(cx.position()),
            Trap::Unsummed => {
                shelf.hide(cx.position());
                0
            }
            Trap::Later => shelf.fall(),
            Trap::Stored => {
                shelf.put(nanos());
                0
            }
            Trap::Started => {
                cx.spawn([TRAP + 1, 0]);
                0
            }
        }
    }
}

fn nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

impl Service for Faulty {
    type Request = [u8; 2];

    const BEHAVIORS: Behaviors = Behaviors::up_to(2);

    fn decode(&self, ordered: &Bytes) -> Result<[u8; 2], Malformed> {
        ordered.as_ref().try_into().map_err(|_| Malformed("not two bytes"))
    }

    fn encode(&self, request: &[u8; 2]) -> Vec<u8> {
        request.to_vec()
    }

    fn footprint(&self, request: &[u8; 2], footprint: &mut Footprint) {
        footprint.write(u32::from(request[1] % 4));
    }

    fn execute(&self, cx: &Cx<'_, Self>, request: &[u8; 2], reply: &mut Vec<u8>) -> Result<(), Retry> {
        let [kind, shelf] = *request;
        let mut guard = cx.lock(&self.shelves[usize::from(shelf % 4)])?;
        guard.put(u64::from(kind));
        let more = match kind {
            TRAP => self.fall(cx, RegionId::from(shelf % 4), &mut guard),
            // A request that the service starts itself has no reply; its effect on the state counts.
            8 => {
                guard.put(nanos());
                0
            }
            // This lock is not declared: the request runs again with it.
            6 => {
                cx.lock(&self.shelves[usize::from((shelf + 1) % 4)])?.put(9);
                0
            }
            5 => panic!("a handler's panic is a function of the log"),
            _ => 0,
        };
        reply.extend_from_slice(format!("{} {more}", guard.total()).as_bytes());
        Ok(())
    }

    fn panicked(&self, _request: &[u8; 2], reply: &mut Vec<u8>) {
        reply.extend_from_slice(b"panicked");
    }

    fn kind(&self, request: &[u8; 2]) -> u16 {
        u16::from(request[0])
    }

    fn region_id_of(&self, _name: &str) -> Option<RegionId> {
        None
    }

    fn find(&self, _cx: &Cx<'_, Self>, _name: &str) -> Option<ObjectId> {
        None
    }
}

/// Executes requests of kinds 0 to 6, and from [`AT`] on some of the kind of the trap.
fn check(trap: Trap) -> Result<(), Difference> {
    let kind = |index: usize| if index >= AT && index % 5 == AT % 5 { TRAP } else { (index % 7) as u8 };
    let log: Vec<Vec<u8>> = (0..90).map(|index| vec![kind(index), (index / 3) as u8]).collect();
    check_deterministic(|| Faulty::new(trap), &log)
}

fn caught(trap: Trap) -> Difference {
    match check(trap) {
        Err(difference) => {
            println!("{trap:?}: {difference}");
            difference
        }
        Ok(()) => panic!("{trap:?} was not noticed"),
    }
}

#[test]
fn a_service_that_is_a_function_of_the_log_passes() {
    if let Err(difference) = check(Trap::Nothing) {
        panic!("{difference}");
    }
}

#[test]
fn clocks_hash_order_addresses_counters_and_threads_are_caught_at_their_first_use() {
    for trap in [
        Trap::WallClock,
        Trap::WallClockSeconds,
        Trap::HashMapOrder,
        Trap::StackAddress,
        Trap::HeapAddress,
        Trap::StaticCounter,
        Trap::ThreadName,
        Trap::Stored,
    ] {
        let difference = caught(trap);
        assert_eq!((difference.request, difference.kind), (AT, u16::from(TRAP)), "{trap:?}: {difference}");
        assert!(!difference.is_started, "{trap:?}: {difference}");
    }
}

#[test]
fn state_outside_of_objects_is_caught_behind_a_state_transfer() {
    let difference = caught(Trap::Hidden);
    assert!(difference.variant.contains("state transfer"), "{difference}");
    assert!(difference.request > AT && difference.kind == u16::from(TRAP), "{difference}");
}

#[test]
fn a_type_that_packs_less_than_it_is_is_caught_by_unpacking_it() {
    // To undo a request unpacks objects as well, which every variant does for requests that run again.
    let heap = caught(Trap::Heap);
    let variants = ["packed and unpacked", "undone"];
    assert!(variants.iter().any(|variant| heap.variant.contains(variant)), "{heap}");
    assert!(heap.what.contains("the reply is"), "{heap}");
    let unsummed = caught(Trap::Unsummed);
    assert!(unsummed.what.contains("checksum"), "{unsummed}");
}

#[test]
fn a_new_member_that_follows_from_more_than_its_object_is_caught() {
    let later = caught(Trap::Later);
    assert_eq!((later.request, later.kind), (AT, u16::from(TRAP)), "{later}");
    assert!(later.variant.contains("undone"), "{later}");
}

#[test]
fn a_request_that_the_service_starts_is_named_by_the_one_that_started_it() {
    let difference = caught(Trap::Started);
    assert!(difference.is_started && difference.kind == u16::from(TRAP) + 1, "{difference}");
    assert_eq!(difference.request, AT, "{difference}");
}
