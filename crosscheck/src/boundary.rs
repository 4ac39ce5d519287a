//! With V: work that has the whole state alone, between two batches or to go back behind one.

use std::sync::Arc;

use execute::{NotTakenBack, Regions, Speculation};
use object::{Home, Region};
use schedule::{Access, Lock, Turn};
use verify::Version;

use crate::job::InFlight;

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
        let mut regions = HeldRegions { turn, locks };
        match self {
            BoundaryWork::TakeBack(taking_back) => taking_back.perform(&mut regions),
        }
    }
}

impl TakingBack {
    fn perform(self, regions: &mut dyn Regions) -> BoundaryDone {
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
        BoundaryDone::TookBack { speculation: Box::new(speculation), version }
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
