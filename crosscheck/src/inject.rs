//! Faults on purpose: what the admin socket arms, and the workers let strike. Never in a release build of `serve`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use object::{Home, ObjectId};
use parking_lot::Mutex;
use schedule::Footprint;

use crate::admin::Kind;

/// A fault that waits for its occasion.
#[derive(Clone, Debug)]
pub(crate) struct Armed {
    /// What it does.
    pub kind: Kind,
    /// When.
    pub occasion: Occasion,
    /// To what.
    pub target: Target,
}

impl Armed {
    /// A fault of the next request that has any lock.
    pub fn at_next(kind: Kind) -> Self {
        let target = Target { home: 0, name: None, id: None, bit: None, member: None, seed: 0 };
        Armed { kind, occasion: Occasion::AnyRequest, target }
    }
}

/// When an armed fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// At the ordered turn with this ticket.
    Noop(u64),
    /// At the next request that has the target's lock.
    RequestOnHome,
    /// At the next request that has any lock.
    AnyRequest,
    /// At a request that has any lock, when so many have been counted.
    Later(u64),
}

/// What an armed fault strikes.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Lock of the object.
    pub home: Home,
    /// The service's name of the object; none = any object of the region, chosen by `seed`.
    pub name: Option<String>,
    /// That object, once an ordered turn has looked it up.
    pub id: Option<ObjectId>,
    /// Which bit; none = chosen by `seed`.
    pub bit: Option<u64>,
    /// Which tracked member; none = chosen by `seed`.
    pub member: Option<u8>,
    /// Decides everything left open.
    pub seed: u64,
}

impl Target {
    /// The damage to the object that `kind` means.
    pub fn injection(&self, kind: Kind) -> object::Injection {
        use object::Injection;
        let (seed, bit) = (self.seed, self.bit.unwrap_or(self.seed) as u32);
        match kind {
            Kind::MultiFlip => Injection::Bits { count: 2 + (seed % 7) as u32, seed },
            Kind::Checksum => Injection::Sum { bit },
            Kind::Id => Injection::Id { bit },
            Kind::Length => Injection::Length { seed },
            Kind::Stray => Injection::Byte { seed },
            Kind::Lost => Injection::Lose,
            Kind::Doubled => Injection::Double,
            _ => Injection::Flip { member: self.member.map(usize::from), bit: self.bit, seed },
        }
    }
}

/// Which thread runs a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// One of several workers.
    Worker,
    /// The order thread, which has the only worker.
    Order,
    /// The helper, to which the order thread has lent the only worker.
    Helper,
}

/// How long the request at a position takes. One of several workers waits for so long; whoever else asks lets
/// the time pass before it is told.
pub type Slowness = Arc<dyn Fn(u64, Runner) -> Duration + Send + Sync>;

/// The armed faults of one replica. Empty, it costs a request one relaxed load.
#[derive(Default)]
pub(crate) struct Armory {
    /// Of the service's requests, in a simulation.
    slowness: OnceLock<Slowness>,
    count: AtomicUsize,
    /// Requests that ran while faults were armed.
    requests: AtomicU64,
    armed: Mutex<Vec<Armed>>,
}

impl Armory {
    /// From now on requests take as long as `slowness` says.
    pub fn set_slowness(&self, slowness: Slowness) {
        // There is one for a life of the replica.
        let _ = self.slowness.set(slowness);
    }

    /// How long the request at this position still has to take.
    pub fn takes(&self, position: u64, runner: Runner) -> Duration {
        self.slowness.get().map_or(Duration::ZERO, |slowness| slowness(position, runner))
    }

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

    /// Requests that ran while faults were armed.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Faults that wait for their occasion.
    pub fn kinds(&self) -> Vec<Kind> {
        self.armed.lock().iter().map(|armed| armed.kind).collect()
    }

    /// A footprint as a flipped bit leaves it, if that is armed: another lock instead of one of its own.
    pub fn wrong_footprint(&self, footprint: Footprint, locks: u32) -> Footprint {
        if footprint.is_all() || footprint.iter().next().is_none() {
            return footprint;
        }
        let Some(armed) = self.take(|armed| armed.kind == Kind::Footprint) else { return footprint };
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

    /// A client's request on its way into the log, if that is armed with another checksum than its bytes have.
    pub fn wrong_sum(&self, request: order::Request) -> order::Request {
        let Some(armed) = self.take(|armed| armed.kind == Kind::Asked) else { return request };
        order::Request { checksum: request.checksum ^ 1 << (armed.target.seed % 32), ..request }
    }

    /// Gives up on the faults of a kind; says on how many.
    pub fn disarm(&self, kind: Kind) -> usize {
        std::iter::from_fn(|| self.take(|armed| armed.kind == kind)).count()
    }

    /// Takes the first fault whose occasion this is.
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
