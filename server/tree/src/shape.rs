//! Which leaf an object has: fixed by the service's locks, so that it is the same on all replicas.

use object::{ObjectId, RegionId};

/// Leaves of each region, one region behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeShape {
    /// First leaf of each region, and behind the last one the number of all leaves.
    first: Vec<u32>,
}

impl TreeShape {
    /// Regions with so many leaves each, rounded up to powers of two, in the order of their locks.
    ///
    /// # Panics
    /// If there are 2^32 leaves or more: a service's locks are fixed when it is written.
    pub fn new(leaves: impl IntoIterator<Item = u32>) -> TreeShape {
        let mut first = vec![0u32];
        for leaves in leaves {
            let begin = first[first.len() - 1];
            let end = leaves.max(1).checked_next_power_of_two().and_then(|leaves| begin.checked_add(leaves));
            first.push(end.expect("fewer than 2^32 leaves"));
        }
        TreeShape { first }
    }

    /// `regions` regions that share at most `leaves` leaves evenly; each has at least one.
    pub fn even(regions: u32, leaves: u32) -> TreeShape {
        let of_each = leaves.checked_div(regions).and_then(u32::checked_ilog2).map_or(1, |bits| 1 << bits);
        TreeShape::new((0..regions).map(|_| of_each))
    }

    /// How many leaves there are.
    pub fn leaves(&self) -> u32 {
        self.first[self.first.len() - 1]
    }

    /// The leaves of a region; none if there is no such region.
    pub fn of(&self, region_id: RegionId) -> std::ops::Range<u32> {
        let bound = |region_id: usize| self.first.get(region_id).copied();
        match (bound(region_id as usize), bound(region_id as usize + 1)) {
            (Some(first), Some(end)) => first..end,
            _ => 0..0,
        }
    }

    /// The leaf of an object; none if its region is none of the service's, as a corrupted number may be.
    pub fn leaf(&self, region_id: RegionId, id: ObjectId) -> Option<u32> {
        let leaves = self.of(region_id);
        let bits = leaves.end.checked_sub(leaves.start)?.checked_ilog2()?;
        // The high bits: the low ones of consecutive ids are less well spread.
        Some(leaves.start + id.spread().checked_shr(u64::BITS - bits).unwrap_or(0) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_has_a_leaf_of_its_region() {
        let shape = TreeShape::new([1, 5, 0, 64]);
        assert_eq!(shape.leaves(), 1 + 8 + 1 + 64);
        assert_eq!(shape.of(1), 1..9);
        assert_eq!(shape.of(4), 0..0);
        for region_id in 0..4 {
            let leaves = shape.of(region_id);
            let mut met = vec![false; leaves.len()];
            for position in 0..2_000 {
                let leaf =
                    shape.leaf(region_id, ObjectId::new(position, 0)).expect("a region of the service");
                assert!(leaves.contains(&leaf));
                met[(leaf - leaves.start) as usize] = true;
            }
            assert!(
                met.iter().all(|met| *met),
                "consecutive ids are spread over all leaves of region {region_id}"
            );
        }
        assert_eq!(shape.leaf(4, ObjectId::new(1, 0)), None);
        assert_eq!(shape.leaf(RegionId::MAX, ObjectId::new(1, 0)), None);
    }

    #[test]
    fn regions_share_leaves_evenly() {
        assert_eq!(TreeShape::even(1_000, 65_536).leaves(), 64_000);
        assert_eq!(TreeShape::even(3, 1).leaves(), 3);
        assert_eq!(TreeShape::even(0, 16).leaves(), 0);
    }
}
