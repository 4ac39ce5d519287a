//! Faults that were armed and wait for their occasions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use object::{ObjectId, RegionId};
use parking_lot::Mutex;
use schedule::Footprint;

use crate::admin::{Corruption, Inject};
use crate::service::ObjectPart;

/// Most damaged objects that are recorded until they are taken. Only a simulation takes them.
const REMEMBERED: usize = 64;

/// A fault that waits for its occasion.
#[derive(Clone, Debug)]
pub(crate) struct Armed {
    /// Its kind.
    pub kind: Corruption,
    /// Its occasion.
    pub occasion: Occasion,
    /// Its target.
    pub target: Target,
}

impl Armed {
    /// A fault of the next occasion, whatever the lock.
    pub fn at_next(kind: Corruption, seed: u64) -> Self {
        let target = Target { region_id: 0, name: None, id: None, bit: None, member: None, part: None, seed };
        Armed { kind, occasion: Occasion::AnyRequest, target }
    }

    /// Whether it is injected at a request that `holds` locks, after so many that have been `counted`.
    pub fn is_due(&self, counted: u64, holds: impl Fn(RegionId) -> bool) -> bool {
        match self.occasion {
            Occasion::Noop(_) => false,
            Occasion::RequestOnRegion => holds(self.target.region_id),
            Occasion::AnyRequest => true,
            Occasion::Later(at) => counted >= at,
        }
    }
}

/// The occasion at which an armed fault is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// At the ordered turn with this ticket.
    Noop(u64),
    /// At the next request that has the target's lock.
    RequestOnRegion,
    /// At the next request that has any lock.
    AnyRequest,
    /// At a request that has any lock, when so many have been counted.
    Later(u64),
}

/// The target of an armed fault.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Lock of the object.
    pub region_id: RegionId,
    /// The service's name of the object; none = any object of the region, chosen by `seed`.
    pub name: Option<String>,
    /// The object's id, once an ordered turn has looked it up.
    pub id: Option<ObjectId>,
    /// The bit; none = chosen by `seed`.
    pub bit: Option<u64>,
    /// The tracked member; none = chosen by `seed`.
    pub member: Option<u8>,
    /// Member and bit that are left open, once an ordered turn has found what the name means.
    pub part: Option<(usize, u64)>,
    /// Chooses all values that are not set.
    pub seed: u64,
}

impl Target {
    /// The target that an operator requested, with an object behind lock `region_id`.
    pub fn of(inject: &Inject, region_id: RegionId) -> Self {
        let Inject { bit, member, seed, .. } = *inject;
        Target { region_id, name: inject.object.clone(), id: None, bit, member, part: None, seed }
    }

    /// A bit whose place is left open falls into a part of the object.
    pub fn narrow(&mut self, part: &ObjectPart) {
        if self.member.is_none()
            && self.bit.is_none()
            && let Some(offset) = self.seed.checked_rem(part.bits.end.saturating_sub(part.bits.start))
        {
            self.part = Some((usize::from(part.member), part.bits.start + offset));
        }
    }

    /// The damage to the object for `kind`.
    pub fn injection(&self, kind: Corruption) -> object::Injection {
        use object::Injection;
        let (seed, bit) = (self.seed, self.bit.unwrap_or(self.seed) as u32);
        match kind {
            Corruption::MultiFlip => Injection::Bits { count: 2 + (seed % 7) as u32, seed },
            Corruption::Checksum => Injection::Sum { bit },
            Corruption::Id => Injection::Id { bit },
            Corruption::Length => Injection::Length { seed },
            Corruption::Stray => Injection::Byte { seed },
            Corruption::Reseal => Injection::Reseal { seed },
            Corruption::Lost => Injection::Lose,
            Corruption::Doubled => Injection::Double,
            _ => match self.part {
                Some((member, bit)) => Injection::Flip { member: Some(member), bit: Some(bit), seed },
                None => Injection::Flip { member: self.member.map(usize::from), bit: self.bit, seed },
            },
        }
    }
}

/// The armed faults of one replica. While there are none, a request costs one relaxed load.
#[derive(Default)]
pub(crate) struct PendingFaults {
    count: AtomicUsize,
    /// Requests that ran while faults were armed.
    requests: AtomicU64,
    armed: Mutex<Vec<Armed>>,
    /// Objects that were damaged before their seal, until they are taken: of the last [`REMEMBERED`] such faults.
    damaged: Mutex<VecDeque<(RegionId, ObjectId)>>,
}

impl PendingFaults {
    pub fn arm(&self, armed: Armed) {
        self.armed.lock().push(armed);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// A request runs.
    pub fn note_request(&self) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of faults that wait for their occasion.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Requests that ran while faults were armed.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Faults that wait for their occasion.
    pub fn kinds(&self) -> Vec<Corruption> {
        self.armed.lock().iter().map(|armed| armed.kind).collect()
    }

    /// A footprint after a bit flip, if that is armed: another lock instead of one of its own.
    pub fn wrong_footprint(&self, footprint: Footprint, locks: u32) -> Footprint {
        if footprint.is_all() || footprint.iter().next().is_none() {
            return footprint;
        }
        let Some(armed) = self.take_kind(Corruption::Footprint) else { return footprint };
        let mut wrong = Footprint::new();
        let hit = armed.target.seed as usize % footprint.iter().count();
        for (number, (lock, shared)) in footprint.iter().enumerate() {
            let lock = if number == hit { (lock ^ 1) % locks } else { lock };
            if shared {
                wrong.read(lock)
            } else {
                wrong.write(lock)
            };
        }
        wrong
    }

    /// Disarms the faults of a kind; returns how many.
    pub fn disarm(&self, kind: Corruption) -> usize {
        std::iter::from_fn(|| self.take_kind(kind)).count()
    }

    /// Disarms the faults that wait for an ordered turn.
    pub fn skip_turns(&self) {
        while self.take(|armed| matches!(armed.occasion, Occasion::Noop(_))).is_some() {}
    }

    /// An object was damaged before its seal.
    pub fn note_damaged(&self, region_id: RegionId, id: ObjectId) {
        let mut damaged = self.damaged.lock();
        if damaged.len() == REMEMBERED {
            damaged.pop_front();
        }
        damaged.push_back((region_id, id));
    }

    /// The objects that were damaged before their seal since the last call.
    pub fn take_damaged(&self) -> Vec<(RegionId, ObjectId)> {
        std::mem::take(&mut *self.damaged.lock()).into()
    }

    /// Takes the first fault of a kind.
    pub fn take_kind(&self, kind: Corruption) -> Option<Armed> {
        self.take(|armed| armed.kind == kind)
    }

    /// Takes the first fault that is due on this occasion.
    pub fn take(&self, is_now: impl Fn(&Armed) -> bool) -> Option<Armed> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut armed = self.armed.lock();
        let index = armed.iter().position(is_now)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(armed.remove(index))
    }
}
