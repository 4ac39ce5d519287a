//! Faults in what mode `R0GV` adds to a replica, for simulations: in a plan, a token on its way, a before-image.

use std::sync::atomic::{AtomicUsize, Ordering};

use execute::KeptRequest;
use parking_lot::Mutex;
use schedule::ParallelBatches;
use verify::VerifyMessage;
use vote::Place;
use wire::mix;

/// Flips a bit of a message, under a right frame checksum.
pub(crate) fn flip(body: &mut [u8], seed: u64) {
    let bit = seed as usize % (body.len().max(1) * 8);
    body[bit / 8] ^= 1 << (bit % 8);
}

/// A fault that waits for its occasion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifiedFault {
    /// A bit of the next VERIFY to a peer, under a right frame checksum.
    Token,
    /// A bit of the before-images of the next request that has kept some.
    Kept,
    /// The next plan of several parallel batches loses an end: requests run beside each other that conflict.
    Groups,
    /// The next batch that is to run one request at a time runs as any other.
    Flag,
}

/// Batches in which the mixer does not know the keys of some requests: a service whose keys are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlookedKeys {
    /// The first batch.
    pub from: u64,
    /// The last one.
    pub to: u64,
    /// Chooses the requests, at all replicas alike.
    pub seed: u64,
}

/// Those of one replica. While there are none, an occasion costs one relaxed load.
#[derive(Default)]
pub(crate) struct VerifiedFaults {
    count: AtomicUsize,
    armed: Mutex<Vec<(VerifiedFault, u64)>>,
    overlooked: Mutex<Option<OverlookedKeys>>,
}

impl VerifiedFaults {
    pub fn arm(&self, fault: VerifiedFault, seed: u64) {
        self.armed.lock().push((fault, seed));
        self.count.fetch_add(1, Ordering::Release);
    }

    pub fn overlook(&self, keys: OverlookedKeys) {
        if self.overlooked.lock().replace(keys).is_none() {
            self.count.fetch_add(1, Ordering::Release);
        }
    }

    /// Disarms what has not happened.
    pub fn disarm(&self) {
        let mut armed = self.armed.lock();
        self.count.fetch_sub(armed.len(), Ordering::Relaxed);
        armed.clear();
    }

    fn take(&self, fault: VerifiedFault) -> Option<u64> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut armed = self.armed.lock();
        let at = armed.iter().position(|(of, _)| *of == fault)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(armed.remove(at).1)
    }

    /// Whether the mixer misses the keys of this request: seven of eight.
    pub fn overlooks(&self, place: Place) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let Some(keys) = *self.overlooked.lock() else { return false };
        let number = place.batch << 16 | u64::from(place.request);
        (keys.from..=keys.to).contains(&place.batch) && !mix(keys.seed ^ number).is_multiple_of(8)
    }

    /// A plan, before it runs.
    pub fn plan(&self, mut plan: ParallelBatches) -> ParallelBatches {
        if plan.ends.len() > 1
            && let Some(seed) = self.take(VerifiedFault::Groups)
        {
            plan.ends.remove(seed as usize % (plan.ends.len() - 1));
        }
        plan
    }

    /// Whether a batch that is to run one request at a time does so.
    pub fn keeps_flag(&self) -> bool {
        self.take(VerifiedFault::Flag).is_none()
    }

    /// A message to a peer, as it leaves.
    pub fn message(&self, message: &VerifyMessage, body: &mut [u8]) {
        if matches!(message, VerifyMessage::Verify { .. })
            && let Some(seed) = self.take(VerifiedFault::Token)
        {
            flip(body, seed);
        }
    }

    /// A request's effects, as they are kept.
    pub fn kept(&self, kept: &mut KeptRequest) {
        if let Some(seed) = self.take(VerifiedFault::Kept)
            && !kept.kept.damage(seed)
        {
            self.arm(VerifiedFault::Kept, seed);
        }
    }
}
