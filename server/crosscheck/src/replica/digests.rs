//! Digests of the whole state, which an operator compares between replicas: one digest of each region, at a position of
//! its own, so that no request waits for more than one region. Every replica makes the same ones and puts them
//! together; the replica that was asked orders the next region when it has executed the one before.

use std::collections::BTreeMap;

use object::{RegionDigest, RegionId};

use crate::admin::Position;
use crate::limits;
use crate::ordered::Control;

/// The digests that are being made.
#[derive(Default)]
pub(super) struct Digests {
    parts: BTreeMap<Position, RegionDigests>,
}

/// The digests of regions, for one of the whole state.
struct RegionDigests {
    /// By region; none for a region that was digested before this replica executed anything, or not yet.
    regions: Vec<Option<RegionDigest>>,
    /// The region that was ordered last.
    ordered: RegionId,
}

/// What follows from the digest of a region.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DigestProgress {
    /// Nothing here: another replica orders the next one, or it is ordered already.
    Waits,
    /// The next one is to be ordered.
    Next(Control),
    /// It was the last one.
    Done {
        /// The digest of the whole state; none if this replica has not executed all of them.
        digest: Option<u128>,
        /// Objects in all regions.
        objects: u64,
    },
}

impl Digests {
    /// The digest of a region, of so many, as part of the one at `position`; `orders` tells whether this replica orders
    /// the next one. A batch that was rolled back and executed again reports its regions again, and these count.
    pub(super) fn on_region(
        &mut self,
        position: Position,
        (region_id, regions): (RegionId, u32),
        digest: RegionDigest,
        orders: bool,
    ) -> DigestProgress {
        let parts = self
            .parts
            .entry(position)
            .or_insert_with(|| RegionDigests { regions: vec![None; regions as usize], ordered: region_id });
        let Some(part) = parts.regions.get_mut(region_id as usize) else { return DigestProgress::Waits };
        *part = Some(digest);
        let next = region_id + 1;
        if next == regions {
            let parts = self.parts.remove(&position);
            let all: Option<Vec<RegionDigest>> = parts.and_then(|parts| parts.regions.into_iter().collect());
            let objects = all.iter().flatten().map(|part| part.objects).sum();
            return DigestProgress::Done { digest: all.map(|all| folded(&all)), objects };
        }
        if orders && next > parts.ordered {
            parts.ordered = next;
            let Position { index, ticket } = position;
            return DigestProgress::Next(Control::Digest { ticket, begun: index, region_id: next });
        }
        // One that another replica has begun and will not finish.
        if self.parts.len() > limits::DIGESTS_KEPT {
            self.parts.pop_first();
        }
        DigestProgress::Waits
    }

    /// Whether the digest at `position` has begun here.
    pub(super) fn has_begun(&self, position: &Position) -> bool {
        self.parts.contains_key(position)
    }

    /// This replica goes on behind positions that it has not executed.
    pub(super) fn forget(&mut self) {
        self.parts.clear();
    }
}

/// Folds the digests of all regions in the order of their locks. Where objects are guarded, the number of those that do
/// not fit their checksums is part of it: a replica that has such objects differs from the others.
fn folded(regions: &[RegionDigest]) -> u128 {
    let mut bytes = Vec::new();
    for (region_id, part) in (0u32..).zip(regions) {
        bytes.extend_from_slice(&region_id.to_le_bytes());
        bytes.extend_from_slice(&part.digest.to_le_bytes());
        bytes.extend_from_slice(&part.damaged.to_le_bytes());
    }
    vote::digest::content(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGIONS: u32 = 3;
    const POSITION: Position = Position { index: 7, ticket: 9 };

    fn part(digest: u128) -> RegionDigest {
        RegionDigest { digest, objects: 10, damaged: 0 }
    }

    fn next(region_id: RegionId) -> DigestProgress {
        DigestProgress::Next(Control::Digest { ticket: 9, begun: 7, region_id })
    }

    /// Digests of all regions, of which some are reported once more with another value first; and the last outcome.
    fn all(orders: bool, again: &[RegionId]) -> DigestProgress {
        let mut digests = Digests::default();
        for region_id in 0..REGIONS {
            let mut progress = digests.on_region(POSITION, (region_id, REGIONS), part(1), orders);
            if again.contains(&region_id) {
                let repeated = digests.on_region(POSITION, (region_id, REGIONS), part(2), orders);
                assert_eq!(repeated, DigestProgress::Waits, "the next one is ordered only once");
            }
            if region_id + 1 < REGIONS {
                assert!(digests.has_begun(&POSITION));
                assert_eq!(progress, if orders { next(region_id + 1) } else { DigestProgress::Waits });
            } else {
                progress = match progress {
                    DigestProgress::Done { digest, objects } => {
                        assert!(!digests.has_begun(&POSITION));
                        DigestProgress::Done { digest, objects }
                    }
                    other => panic!("{other:?}"),
                };
                return progress;
            }
        }
        unreachable!("the last region returns")
    }

    #[test]
    fn one_replica_orders_each_region_and_all_put_the_same_digest_together() {
        let done = all(true, &[]);
        assert_eq!(done, all(false, &[]));
        assert!(matches!(done, DigestProgress::Done { digest: Some(_), objects: 30 }));
        assert_ne!(done, all(false, &[1]), "what was executed again counts");
    }

    #[test]
    fn a_replica_that_has_not_executed_all_of_them_has_no_digest() {
        let mut digests = Digests::default();
        digests.on_region(POSITION, (1, REGIONS), part(1), false);
        let done = digests.on_region(POSITION, (2, REGIONS), part(1), false);
        assert_eq!(done, DigestProgress::Done { digest: None, objects: 0 });
    }

    #[test]
    fn damaged_objects_are_part_of_the_digest_and_so_is_the_region_of_an_object() {
        let of = |parts: [RegionDigest; 2]| folded(&parts);
        let damaged = RegionDigest { damaged: 1, ..part(1) };
        assert_ne!(of([part(1), part(2)]), of([part(2), part(1)]));
        assert_ne!(of([part(1), part(2)]), of([damaged, part(2)]));
    }

    #[test]
    fn those_that_nobody_finishes_are_bounded() {
        let mut digests = Digests::default();
        for index in 1..1000 {
            digests.on_region(Position { index, ticket: 1 }, (0, REGIONS), part(1), false);
        }
        assert_eq!(digests.parts.len(), limits::DIGESTS_KEPT);
    }
}
