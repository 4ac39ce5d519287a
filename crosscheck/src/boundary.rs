//! With V: work that has the whole state alone, between two batches or to go back behind one.

use std::sync::Arc;

use execute::{NotTakenBack, Regions, Speculation};
use object::{Home, Region};
use schedule::{Access, Lock, Turn};
use tree::{Tree, TreeShape};
use verify::Version;

use crate::job::InFlight;

/// Leaves of the tree over all objects (docs/design.md): 512 KiB, and a few nodes.
const LEAVES: u32 = 65_536;

/// What is to be done.
pub(crate) enum BoundaryWork {
    /// Take back every batch after a version.
    TakeBack(Box<TakingBack>),
}

/// What has been done.
pub(crate) enum BoundaryDone {
    /// The state is that of a version, unless a step failed.
    TookBack {
        /// The batches that are left.
        speculation: Box<Speculation>,
        /// The version.
        version: Result<Version, NotTakenBack>,
        /// Whether the tree is the one of the objects; computed in builds with fault injection only.
        is_right: Option<bool>,
    },
}

/// Every batch after a version is to be taken back.
pub(crate) struct TakingBack {
    /// The batches that have ended.
    pub speculation: Speculation,
    /// Scheduled batches that were not folded into it, oldest first: most of them have not begun.
    pub running: Vec<Arc<InFlight>>,
    /// Number of the batch of the version.
    pub to: u64,
}

impl BoundaryWork {
    /// Does it, in a turn that has every lock.
    pub fn perform<R>(self, turn: &mut Turn<'_, R>, locks: &[&dyn Lock]) -> BoundaryDone {
        turn.take_all();
        let homes = locks.len() as Home;
        let mut regions = HeldRegions { turn, locks };
        match self {
            BoundaryWork::TakeBack(taking_back) => taking_back.perform(homes, &mut regions),
        }
    }
}

impl TakingBack {
    fn perform(self, homes: Home, regions: &mut dyn Regions) -> BoundaryDone {
        let TakingBack { mut speculation, running, to } = self;
        let mut version = Ok(speculation.version());
        for batch in running.iter().rev() {
            let kept = batch.take_kept().into_iter().map(|(_, kept)| kept).collect();
            version = version.and_then(|version| {
                speculation.take_back_running(kept, regions)?;
                Ok(version)
            });
        }
        let version = version.and_then(|_| speculation.take_back(to, regions));
        let is_right = cfg!(feature = "inject").then(|| is_tree_of(&mut speculation, homes, regions));
        BoundaryDone::TookBack { speculation: Box::new(speculation), version, is_right }
    }
}

/// Whether the tree is the one that the checksums of all objects give.
fn is_tree_of(speculation: &mut Speculation, homes: Home, regions: &mut dyn Regions) -> bool {
    tree_of(homes, regions).root() == speculation.tree().root()
}

/// The tree over all objects, by their checksums.
pub(crate) fn tree_of(homes: Home, regions: &mut dyn Regions) -> Tree {
    let mut tree = Tree::new(TreeShape::even(homes, LEAVES));
    for home in 0..homes {
        let mut objects = Vec::new();
        regions
            .visit(home, &mut |region| region.objects(&mut |listed| objects.push((listed.id, listed.sum))));
        tree.recompute(home, objects);
    }
    tree
}

/// The regions of a service that no other thread can reach.
pub(crate) struct OwnedRegions<'s>(pub Vec<&'s mut dyn Lock>);

impl Regions for OwnedRegions<'_> {
    fn visit(&mut self, home: Home, work: &mut dyn FnMut(&mut dyn Region)) {
        if let Some(lock) = self.0.get_mut(home as usize) {
            work(lock.region_mut());
        }
    }
}

/// The regions of a service, of which one request holds all locks.
struct HeldRegions<'h, 'w, R> {
    turn: &'h mut Turn<'w, R>,
    locks: &'h [&'h dyn Lock],
}

impl<R> Regions for HeldRegions<'_, '_, R> {
    fn visit(&mut self, home: Home, work: &mut dyn FnMut(&mut dyn Region)) {
        self.turn.visit_region(self.locks, home, |access| {
            if let Access::Exclusive(region) = access {
                work(region);
            }
        });
    }
}
