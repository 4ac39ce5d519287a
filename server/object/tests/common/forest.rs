//! Objects inside of objects, in two regions, and requests of random steps on them.

use std::collections::BTreeMap;

use object::{
    Kept, ObjectId, Protect, Ref, Region, RegionId, ScopeOptions, Store, critical, genesis, request,
};
use wire::SplitMix64;

use super::{Leaf, REVERSIBLE, at};

/// Objects inside of objects: a store in a store's objects, and a member that is an object.
#[critical]
pub struct Forest {
    groves: Store<Grove>,
    order: Vec<Ref<Grove>>,
    record: Record,
}

#[critical]
pub struct Grove {
    name: String,
    record: Record,
    leaves: Store<Leaf>,
    order: Vec<Ref<Leaf>>,
    #[hot]
    visits: u32,
}

#[critical]
pub struct Record {
    entries: u64,
}

#[critical]
impl Record {
    pub fn new() -> Self {
        Self { entries: 0 }
    }
    pub fn add(&mut self) {
        self.entries += 1;
    }
}

#[critical]
impl Grove {
    pub fn new(name: String) -> Self {
        Self { name, record: Record::new(), leaves: Store::new(), order: Vec::new(), visits: 0 }
    }
    pub fn name(&self) -> &str {
        &self.name
    }
    pub fn grow(&mut self, leaf: Leaf) {
        let leaf = self.leaves.insert(leaf);
        self.order.push(leaf);
    }
    pub fn shed(&mut self, at: usize) -> Option<Leaf> {
        let at = at.checked_rem(self.order.len())?;
        let leaf = self.order.remove(at);
        Some(self.leaves.expect_remove(leaf))
    }
    pub fn paint(&mut self, at: usize, flags: u32) {
        if let Some(at) = at.checked_rem(self.order.len()) {
            let leaf = self.order[at];
            self.leaves.expect_mut(leaf).set_flags(flags);
        }
    }
    #[hot]
    pub fn visit(&mut self, number: u32) {
        *self.visits = number;
    }
    pub fn write(&mut self) {
        self.record.add();
    }
}

#[critical]
impl Forest {
    pub fn new() -> Self {
        Self { groves: Store::new(), order: Vec::new(), record: Record::new() }
    }
    pub fn plant(&mut self, grove: Grove) {
        let grove = self.groves.insert(grove);
        self.order.push(grove);
        self.record.add();
    }
    pub fn fell(&mut self, at: usize) -> Option<Grove> {
        let at = at.checked_rem(self.order.len())?;
        let grove = self.order.remove(at);
        Some(self.groves.expect_remove(grove))
    }
    pub fn name(&self, at: usize) -> Option<&str> {
        Some(self.groves.expect(*self.order.get(at)?).name())
    }
    pub fn len(&self) -> usize {
        self.order.len()
    }
    pub fn grove(&mut self, at: usize) -> Option<&mut Grove> {
        let at = at.checked_rem(self.order.len())?;
        Some(self.groves.expect_mut(self.order[at]))
    }
}

pub const REGION_IDS: [RegionId; 2] = [3, 4];

/// Two regions, as behind two locks.
pub struct World {
    pub regions: [Forest; 2],
    pub position: u64,
    pub protect: Protect,
}

/// Checksums of all objects, as a tree over them would know them.
pub type Sums = BTreeMap<(RegionId, ObjectId), u64>;

impl World {
    pub fn new(protect: Protect) -> World {
        World { regions: REGION_IDS.map(|region_id| genesis(region_id, Forest::new)), position: 1, protect }
    }

    pub fn sums(&self) -> Sums {
        let mut sums = Sums::new();
        for (region_id, region) in REGION_IDS.iter().zip(&self.regions) {
            region.objects(&mut |listed| {
                assert_eq!(listed.sum, listed.recomputed, "{region_id} {}: sealed", listed.id);
                sums.insert((*region_id, listed.id), listed.sum);
            });
        }
        sums
    }

    pub fn packed(&self) -> [Vec<u8>; 2] {
        [0, 1].map(|region| self.regions[region].pack_all())
    }

    /// Runs a request of random steps on both regions, and keeps it.
    pub fn run(&mut self, random: &mut SplitMix64) -> Kept {
        request::begin_with_whole_images(at(
            self.position,
            ScopeOptions { protect: self.protect, ..REVERSIBLE },
        ));
        self.position += 1;
        for _ in 0..random.below(7) {
            self.step(random);
        }
        REGION_IDS.iter().zip(&mut self.regions).for_each(|(region_id, region)| region.seal(*region_id));
        let (touched, kept) = request::finish_keeping(Kept::new());
        for change in kept.changes() {
            // What the other replicas compare is the same.
            let pair = touched.iter().find(|pair| (pair.region_id, pair.id) == (change.region_id, change.id));
            assert!(pair.is_none_or(|pair| pair.sum == change.new), "{change:?} {pair:?}");
        }
        kept
    }

    pub fn step(&mut self, random: &mut SplitMix64) {
        let [one, other] = &mut self.regions;
        let (region, other) = if random.below(2) == 0 { (one, other) } else { (other, one) };
        let [first, second] = [random.below(50) as usize, random.below(50) as usize];
        match random.below(10) {
            0 | 1 => {
                let mut grove = Grove::new(format!("{first}"));
                grove.grow(Leaf::new(b"born with it", &[3; 20]));
                grove.write();
                region.plant(grove);
            }
            2 => drop(region.fell(first)),
            // Comes back with everything inside of it, and some of that changed meanwhile.
            3 => {
                if let Some(mut grove) = region.fell(first) {
                    match second % 5 {
                        0 => grove.write(),
                        1 => grove.paint(second, 8),
                        2 => grove.grow(Leaf::new(b"another", b"")),
                        3 => drop(grove.shed(second)),
                        _ => {}
                    }
                    region.plant(grove);
                }
            }
            4 => {
                if let Some(grove) = region.grove(first) {
                    grove.grow(Leaf::new(b"key", &vec![first as u8; second * 100]));
                }
            }
            5 => {
                let shed = region.grove(first).and_then(|grove| grove.shed(second));
                // To another grove of this region or of the other one, or nowhere.
                let region = if second % 3 == 0 { other } else { region };
                if let (Some(leaf), Some(grove)) = (shed, region.grove(second / 3)) {
                    grove.grow(leaf);
                }
            }
            6 => region.grove(first).into_iter().for_each(|grove| grove.paint(second, first as u32)),
            7 => region.grove(first).into_iter().for_each(Grove::write),
            8 => drop(region.name(first).map(str::len)),
            _ => {
                let mut grove = Grove::new("passing".to_owned());
                grove.write();
                region.plant(grove);
                drop(region.fell(region.len() - 1));
            }
        }
    }

    pub fn roll_back(&mut self, kept: &mut Kept) {
        self.regions.iter_mut().for_each(|region| region.roll_back(kept));
        assert!(kept.is_rolled_back(), "{kept:?}");
        self.position -= 1;
    }
}
