//! The mixer: which requests of a batch may run beside each other, equally on every replica.
//!
//! Eve (OSDI 2012, section 4.1): a batch becomes a sequence of parallel batches, one after the other. Inside of one,
//! requests run concurrently and in any order. Each request goes into the first parallel batch in which no request
//! conflicts with it, else into a new one. Keys are a hint of the service: a conflict that they miss may make replicas
//! differ, which is found and repaired afterwards; one that they invent costs parallelism. Where a request is follows
//! from the batch alone.
//!
//! Requests of one connection keep their order, since its client may rely on it: none goes before its predecessor.
//! Parallel batches are bits of a word. What does not fit into [`Mixer::MOST`] of them runs behind them, one request
//! at a time.

use crate::footprint::Footprint;

/// What a request touches, as far as its service can tell before it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    keys: Vec<(u64, KeyUse)>,
    is_alone: bool,
}

/// How a request uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyUse {
    /// Conflicts with what writes or joins.
    Read,
    /// Conflicts with every other use.
    Write,
    /// Conflicts with every use but its own kind: of many that each change a part of something, and name that part by
    /// another key.
    Join,
}

impl Keys {
    /// No key: the request conflicts with none.
    pub const fn new() -> Keys {
        Keys { keys: Vec::new(), is_alone: false }
    }

    /// Removes all keys, and keeps the room.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.is_alone = false;
    }

    /// The request reads what this key stands for. Keys are hashes, equal on all replicas.
    pub fn read(&mut self, key: u64) {
        self.keys.push((key, KeyUse::Read));
    }

    /// The request changes what this key stands for.
    pub fn write(&mut self, key: u64) {
        self.keys.push((key, KeyUse::Write));
    }

    /// The request changes a part of what this key stands for, and no other part: it also writes that part's key. It
    /// conflicts with a reader of the whole, and not with a change of another part.
    pub fn join(&mut self, key: u64) {
        self.keys.push((key, KeyUse::Join));
    }

    /// The request conflicts with every other one.
    pub fn alone(&mut self) {
        self.is_alone = true;
    }

    /// The locks of a footprint as keys. Of one that is partly forecast, not all are known before the request runs: it
    /// runs alone.
    pub fn of_footprint(&mut self, footprint: &Footprint) {
        if footprint.is_all() || footprint.kind().is_some() {
            self.alone();
        }
        let uses = footprint
            .iter()
            .map(|(lock, shared)| (u64::from(lock), if shared { KeyUse::Read } else { KeyUse::Write }));
        self.keys.extend(uses);
    }
}

/// A request as the mixer sees it.
#[derive(Clone, Copy, Debug)]
pub struct Mixed<'a> {
    /// What it touches.
    pub keys: &'a Keys,
    /// Its connection; `None` keeps no order.
    pub stream: Option<u32>,
}

/// The parallel batches that a batch becomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParallelBatches {
    /// Numbers of the requests in the batch: those of the first parallel batch first, and in each the order of
    /// arrival. A run of one request at a time in this order is one that the parallel batches allow.
    pub order: Vec<u32>,
    /// Where each parallel batch ends in `order`.
    pub ends: Vec<u32>,
}

impl ParallelBatches {
    /// A plan that runs so many requests one at a time, in the order of arrival.
    pub fn in_arrival_order(requests: usize) -> Self {
        ParallelBatches { order: (0..requests as u32).collect(), ends: (1..=requests as u32).collect() }
    }

    /// The same plan, one request at a time. If the keys miss no conflict, it has the same effects.
    pub fn sequential(self) -> Self {
        ParallelBatches { ends: (1..=self.order.len() as u32).collect(), ..self }
    }

    /// The parallel batches, one behind the other.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.order[begin as usize..*end as usize])
    }
}

/// Plans batches; its tables are used again for each.
#[derive(Debug, Default)]
pub struct Mixer {
    keys: StampedTable<KeyUses>,
    /// The first parallel batch that each connection's next request may be in, + 1.
    streams: StampedTable<u32>,
    batch: u32,
    /// The parallel batch of each request.
    places: Vec<u32>,
}

/// In which parallel batches a key is used, one bit each, the tail included.
#[derive(Clone, Copy, Debug, Default)]
struct KeyUses {
    read: u64,
    write: u64,
    join: u64,
}

impl Mixer {
    /// Parallel batches whose requests run beside each other; a further one has the rest, one at a time.
    pub const MOST: u32 = 63;

    /// A mixer without tables.
    pub fn new() -> Mixer {
        Mixer::default()
    }

    /// Plans a batch.
    pub fn mix(&mut self, batch: &[Mixed<'_>]) -> ParallelBatches {
        self.batch = self.batch.wrapping_add(1);
        if self.batch == 0 {
            // Slots of the batch with this number, four thousand million batches ago, would count.
            *self = Mixer { batch: 1, ..Mixer::new() };
        }
        let keys = batch.iter().map(|request| request.keys.keys.len()).sum();
        self.keys.make_room(keys);
        self.streams.make_room(batch.len());
        self.places.clear();
        // No request goes before `floor`: behind one that is alone. From `free` on there is no request yet.
        let (mut floor, mut free) = (0, 0);
        for request in batch {
            let place = self.place_of(request, floor, free);
            free = free.max(place + 1).min(Self::MOST);
            if request.keys.is_alone {
                floor = (place + 1).min(Self::MOST);
            }
            self.take(request, place);
            self.places.push(place);
        }
        self.sorted()
    }

    fn place_of(&mut self, request: &Mixed<'_>, floor: u32, free: u32) -> u32 {
        let after = request
            .stream
            .map_or(0, |stream| (*self.streams.at(u64::from(stream), self.batch)).saturating_sub(1));
        let from = floor.max(after);
        if request.keys.is_alone {
            return from.max(free);
        }
        let mut taken = 0;
        for (key, key_use) in &request.keys.keys {
            let of = *self.keys.at(*key, self.batch);
            taken |= match key_use {
                KeyUse::Read => of.write | of.join,
                KeyUse::Write => of.read | of.write | of.join,
                KeyUse::Join => of.read | of.write,
            };
        }
        // The tail is one to the masks, but its requests run one after the other.
        let open = !taken & (u64::MAX << from) | 1 << Self::MOST;
        open.trailing_zeros()
    }

    fn take(&mut self, request: &Mixed<'_>, place: u32) {
        for (key, key_use) in &request.keys.keys {
            let of = self.keys.at(*key, self.batch);
            let uses = match key_use {
                KeyUse::Read => &mut of.read,
                KeyUse::Write => &mut of.write,
                KeyUse::Join => &mut of.join,
            };
            *uses |= 1 << place;
        }
        if let Some(stream) = request.stream {
            // Its next request may be beside it only in the tail.
            *self.streams.at(u64::from(stream), self.batch) = (place + 1).min(Self::MOST) + 1;
        }
    }

    /// Requests by parallel batch, and in each by arrival.
    fn sorted(&self) -> ParallelBatches {
        let mut order: Vec<u32> = (0..self.places.len() as u32).collect();
        order.sort_by_key(|&request| self.places[request as usize]);
        let mut ends = Vec::new();
        for (at, &request) in order.iter().enumerate() {
            let place = self.places[request as usize];
            let next = order.get(at + 1).map(|&next| self.places[next as usize]);
            if next != Some(place) || place == Self::MOST {
                ends.push(at as u32 + 1);
            }
        }
        ParallelBatches { order, ends }
    }
}

/// Values by key, forgotten with each batch without being cleared: open addressing with a fixed hash, so that no run
/// differs from another.
#[derive(Debug, Default)]
struct StampedTable<T> {
    slots: Vec<StampedSlot<T>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct StampedSlot<T> {
    key: u64,
    /// The batch whose value this is.
    batch: u32,
    value: T,
}

impl<T: Copy + Default> StampedTable<T> {
    /// At most a quarter of the slots will be used.
    fn make_room(&mut self, keys: usize) {
        let slots = (keys.max(1) * 4).next_power_of_two();
        if slots > self.slots.len() {
            self.slots = vec![StampedSlot::default(); slots];
        }
    }

    fn at(&mut self, key: u64, batch: u32) -> &mut T {
        let mask = self.slots.len() - 1;
        let mut place = (wire::mix(key) >> 32) as usize & mask;
        while self.slots[place].batch == batch && self.slots[place].key != key {
            place = (place + 1) & mask;
        }
        let slot = &mut self.slots[place];
        if slot.batch != batch {
            *slot = StampedSlot { key, batch, value: T::default() };
        }
        &mut slot.value
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SplitMix64;

    /// A request of the test: its keys, and its connection.
    type Request = (Keys, Option<u32>);

    fn mix(requests: &[Request]) -> Vec<Vec<u32>> {
        let mut mixer = Mixer::new();
        let batch: Vec<Mixed<'_>> =
            requests.iter().map(|(keys, stream)| Mixed { keys, stream: *stream }).collect();
        let places = mixer.mix(&batch);
        // Whatever the tables had before.
        for _ in 0..3 {
            assert_eq!(mixer.mix(&batch), places);
        }
        places.iter().map(<[u32]>::to_vec).collect()
    }

    fn keys(make: impl FnOnce(&mut Keys)) -> Request {
        let mut keys = Keys::new();
        make(&mut keys);
        (keys, None)
    }

    /// Whether two requests may not run beside each other: written without masks.
    fn conflict(one: &Keys, other: &Keys) -> bool {
        let differs = |(key, left): &(u64, KeyUse)| {
            other.keys.iter().any(|(same, right)| {
                let is_free = left == right && *left != KeyUse::Write;
                key == same && !is_free
            })
        };
        one.is_alone || other.is_alone || one.keys.iter().any(differs)
    }

    #[test]
    fn readers_run_beside_each_other_and_writers_do_not() {
        let read = || keys(|keys| keys.read(1));
        let write = || keys(|keys| keys.write(1));
        assert_eq!(mix(&[read(), write(), read(), write()]), [vec![0, 2], vec![1], vec![3]]);
        let other = || keys(|keys| keys.write(2));
        assert_eq!(mix(&[write(), other(), write(), other()]), [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn parts_of_a_whole_change_beside_each_other() {
        let change = |part: u64| {
            keys(|keys| {
                keys.join(1);
                keys.write(part);
            })
        };
        let scan = || keys(|keys| keys.read(1));
        assert_eq!(mix(&[change(10), change(11), change(10), scan()]), [vec![0, 1], vec![2], vec![3]]);
    }

    #[test]
    fn a_request_that_is_alone_has_its_place() {
        let write = || keys(|keys| keys.write(1));
        let alone = || keys(Keys::alone);
        let none = || keys(|_| ());
        assert_eq!(
            mix(&[write(), write(), alone(), none(), alone()]),
            [vec![0], vec![1], vec![2], vec![3], vec![4]]
        );
        let mut all = Keys::new();
        all.of_footprint(&Footprint::all());
        assert_eq!(mix(&[none(), (all, None), none()]), [vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn a_connection_keeps_its_order() {
        let mut requests =
            vec![keys(|keys| keys.write(1)), keys(|keys| keys.write(1)), keys(|keys| keys.write(2))];
        assert_eq!(mix(&requests), [vec![0, 2], vec![1]]);
        requests[1].1 = Some(7);
        requests[2].1 = Some(7);
        assert_eq!(mix(&requests), [vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn what_does_not_fit_runs_one_at_a_time() {
        let requests: Vec<Request> = (0..100).map(|_| keys(|keys| keys.write(1))).collect();
        let places = mix(&requests);
        assert_eq!(places, (0..100).map(|request| vec![request]).collect::<Vec<_>>());
        assert!(mix(&[]).is_empty());
    }

    fn request(random: &mut SplitMix64) -> Request {
        let mut keys = Keys::new();
        for _ in 0..random.below(4) {
            let key = random.below(12);
            match random.below(4) {
                0 => keys.write(key),
                1 => keys.join(key),
                _ => keys.read(key),
            }
        }
        if random.below(40) == 0 {
            keys.alone();
        }
        (keys, (random.below(2) == 0).then(|| random.below(5) as u32))
    }

    /// The place of each request by the rule itself, request against request.
    fn first_fit(requests: &[Request]) -> Vec<u32> {
        let mut places: Vec<u32> = Vec::new();
        for (number, (keys, stream)) in requests.iter().enumerate() {
            let before = || places.iter().copied().zip(requests);
            let behind = |(place, _): (u32, &Request)| place + 1;
            let alone = before().filter(|(_, other)| other.0.is_alone).map(behind).max().unwrap_or(0);
            let of_stream = before().filter(|(_, other)| stream.is_some() && other.1 == *stream);
            let mut from = alone.max(of_stream.map(behind).max().unwrap_or(0)).min(Mixer::MOST);
            if keys.is_alone {
                from = from.max(before().map(behind).max().unwrap_or(0)).min(Mixer::MOST);
            }
            let fits = |place: u32| {
                let conflicts = |(other, (theirs, _)): (u32, &Request)| {
                    other == place && !keys.is_alone && conflict(keys, theirs)
                };
                place == Mixer::MOST || !before().any(conflicts)
            };
            places.push((from..=Mixer::MOST).find(|place| fits(*place)).expect("the tail fits"));
            assert_eq!(places.len(), number + 1);
        }
        places
    }

    proptest! {
        #[test]
        fn each_request_is_in_the_first_place_that_fits(seed: u64, size in 0usize..200) {
            let mut random = SplitMix64::new(seed);
            let requests: Vec<Request> = (0..size).map(|_| request(&mut random)).collect();
            let mut mixer = Mixer::new();
            let batch: Vec<Mixed<'_>> =
                requests.iter().map(|(keys, stream)| Mixed { keys, stream: *stream }).collect();
            mixer.mix(&batch);
            prop_assert_eq!(&mixer.places, &first_fit(&requests));
        }

        #[test]
        fn nothing_conflicts_and_no_connection_has_another_order(seed: u64, size in 0usize..300) {
            let mut random = SplitMix64::new(seed);
            let requests: Vec<Request> = (0..size).map(|_| request(&mut random)).collect();
            let places = mix(&requests);
            let mut place = vec![None; size];
            for (number, parallel) in places.iter().enumerate() {
                prop_assert!(!parallel.is_empty() && parallel.is_sorted());
                for (at, one) in parallel.iter().enumerate() {
                    prop_assert_eq!(place[*one as usize].replace(number), None, "once");
                    for other in &parallel[..at] {
                        prop_assert!(!conflict(&requests[*one as usize].0, &requests[*other as usize].0));
                    }
                }
            }
            for (one, request) in requests.iter().enumerate() {
                prop_assert!(place[one].is_some(), "each request has a place");
                for other in 0..one {
                    let same = request.1.is_some() && requests[other].1 == request.1;
                    prop_assert!(!same || place[other] < place[one], "{} before {}", other, one);
                    let alone = request.0.is_alone || requests[other].0.is_alone;
                    prop_assert!(!alone || place[other] < place[one], "one of them is alone");
                }
            }
        }
    }
}
