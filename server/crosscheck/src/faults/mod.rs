//! Fault injection: faults that the admin socket arms, and promises that a simulation makes a replica break. Only in
//! builds with the feature `inject`, never in production.

mod caller;
mod objects;
mod overlooked;
mod pending;
mod points;
mod sabotage;
mod slow_disk;

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use execute::SealHook;
use object::{ObjectId, RegionId, SealBroken, SealedQueue};
use schedule::{Lock, Turn};

use crate::admin::{Corruption, Inject, Injected};
use crate::hooks::{Arming, FaultPoint, Hooks, Rule, SlowDisk, TurnPoint};
use crate::job::Job;
use crate::service::Service;
use objects::InRequest;
use overlooked::Overlooked;
use pending::{Armed, Occasion, PendingFaults, Target};
use sabotage::{Sabotaged, broken_by};

pub use crate::hooks::ThreadRole;
pub use caller::Caller;
pub use overlooked::OverlookedKeys;
pub use sabotage::Sabotage;

/// Wrong results of a core that is wrong repeatedly.
const WRONG_IN_A_ROW: u64 = 8;

/// The time that the request at a position takes. One of several workers waits for so long; for any other thread, the
/// time passes before the function returns.
pub type Slowness = Arc<dyn Fn(u64, ThreadRole) -> Duration + Send + Sync>;

/// The injector of one replica. Its clones share the armed faults.
#[derive(Clone, Default)]
pub(crate) struct Injector(Arc<Faults>);

#[derive(Default)]
struct Faults {
    pending: PendingFaults,
    sabotaged: Sabotaged,
    overlooked: Overlooked,
    /// The slowness of the service's requests, in a simulation.
    slowness: OnceLock<Slowness>,
}

/// For simulations.
impl Injector {
    /// From now on requests take as long as `slowness` determines.
    pub fn set_slowness(&self, slowness: Slowness) {
        // It is set once per process of the replica.
        let _ = self.0.slowness.set(slowness);
    }

    /// Breaks a promise from now on.
    pub fn sabotage(&self, sabotage: Sabotage) {
        self.0.sabotaged.begin(sabotage);
    }

    /// A fault that waits for its next occasion.
    pub fn arm_next(&self, kind: Corruption, seed: u64) {
        self.0.pending.arm(Armed::at_next(kind, seed));
    }

    /// In verified mode: the mixer misses keys in these batches.
    pub fn overlook(&self, keys: OverlookedKeys) {
        self.0.overlooked.set(keys);
    }

    /// Faults that wait for their occasion.
    pub fn kinds(&self) -> Vec<Corruption> {
        self.0.pending.kinds()
    }

    /// Disarms the faults of a kind; returns how many.
    pub fn disarm(&self, kind: Corruption) -> usize {
        self.0.pending.disarm(kind)
    }

    /// The objects that were damaged before their seal since the last call, with their locks.
    pub fn take_damaged(&self) -> Vec<(RegionId, ObjectId)> {
        self.0.pending.take_damaged()
    }

    fn take<R>(&self, turn: &Turn<'_, R>, kind: Corruption) -> Option<Armed> {
        let pending = &self.0.pending;
        let counted = pending.requests();
        pending.take(|armed| {
            armed.kind == kind && armed.is_due(counted, |region_id| turn.footprint().allows(region_id, false))
        })
    }

    /// Arms faults of a core that is wrong some times in a row: at equal intervals, or at varying ones.
    fn arm_repeatedly(&self, inject: &Inject, region_id: RegionId) {
        let pending = &self.0.pending;
        let every = 2 + inject.seed % 14;
        let gap = |number: u64| match inject.kind {
            Corruption::Sticky => every,
            _ => 1 + inject.seed.rotate_left(number as u32 * 5) % 24,
        };
        let mut at = pending.requests();
        for number in 0..WRONG_IN_A_ROW {
            at += gap(number);
            let seed = inject.seed.wrapping_add(number * 977);
            let target = Target { seed, ..Target::of(inject, region_id) };
            pending.arm(Armed { kind: inject.kind, occasion: Occasion::Later(at), target });
        }
    }
}

impl Hooks for Injector {
    fn arm<S: Service>(&self, inject: &Inject, service: Option<(&S, u32)>) -> Arming {
        let Some((service, locks)) = service else {
            return Arming::Refused("this replica has no state yet; try again");
        };
        let region_id = match inject.object.as_deref() {
            None => Some((inject.seed % u64::from(locks)) as u32),
            Some(name) => match objects::class_of(name) {
                Some(class) => objects::region_with(&service.locks(), class, inject.seed),
                None => service.region_id_of(name),
            },
        };
        let Some(region_id) = region_id else {
            return Arming::Refused(
                "there is no object or class of this name; `inject --help` has the names",
            );
        };
        match inject.kind {
            Corruption::Flip
            | Corruption::MultiFlip
            | Corruption::Checksum
            | Corruption::Id
            | Corruption::Length
            | Corruption::Lost
            | Corruption::Stray
            | Corruption::Reseal
            | Corruption::Doubled => return Arming::NeedsTurn(region_id),
            // The object of a name is known at an ordered turn only.
            Corruption::InRequest if inject.object.is_some() => return Arming::NeedsTurn(region_id),
            Corruption::Sticky | Corruption::Erratic => {
                self.arm_repeatedly(inject, region_id);
                return Arming::Armed("armed; it happens again and again");
            }
            _ => {}
        }
        let occasion = if inject.object.is_some() { Occasion::RequestOnRegion } else { Occasion::AnyRequest };
        self.0.pending.arm(Armed { kind: inject.kind, occasion, target: Target::of(inject, region_id) });
        Arming::Armed(match inject.kind {
            Corruption::Message => "the next frame to a peer will be corrupt",
            Corruption::Check | Corruption::Repair => "the next such message will carry a wrong value",
            _ => "armed; it happens at the next occasion",
        })
    }

    fn arm_at_turn(&self, ticket: u64, inject: &Inject, region_id: RegionId) {
        let (occasion, target) = (Occasion::Noop(ticket), Target::of(inject, region_id));
        self.0.pending.arm(Armed { kind: inject.kind, occasion, target });
    }

    fn armed(&self) -> usize {
        self.0.pending.count()
    }

    fn keeps(&self, rule: Rule) -> bool {
        !self.0.sabotaged.has(broken_by(rule))
    }

    fn at(&self, point: FaultPoint<'_>) -> bool {
        let Faults { pending, sabotaged, overlooked, .. } = &*self.0;
        match point {
            FaultPoint::Submit(request) => points::submit(pending, request),
            FaultPoint::Delivered(delivered, executed) => return !sabotaged.skips(delivered, executed),
            FaultPoint::Batch(batch) => points::batch(pending, sabotaged, batch),
            FaultPoint::Request(batch, request) => sabotaged.request(batch, request),
            FaultPoint::Footprint(footprint, locks) => {
                *footprint = pending.wrong_footprint(*footprint, locks)
            }
            FaultPoint::Executed(batch, results, leave) => sabotaged.executed(batch, results, leave),
            FaultPoint::Release(place, reply) => sabotaged.released(place, reply),
            FaultPoint::TurnsSkipped => pending.skip_turns(),
            FaultPoint::Progress(requests) if sabotaged.has(Sabotage::CountsBatches) => *requests = 0,
            FaultPoint::Progress(_) => {}
            FaultPoint::Piece(piece) => points::piece(pending, piece),
            FaultPoint::Copy(copy, region_id) => points::copy(pending, copy, region_id),
            FaultPoint::Part(packed) => points::part(pending, packed),
            FaultPoint::VoteMessage(message, body) => {
                return points::vote_message(pending, sabotaged, message, body);
            }
            FaultPoint::Install(objects) => sabotaged.installed(objects),
            FaultPoint::Keys(place) => return !overlooked.has(place),
            FaultPoint::Plan(plan) => points::plan(pending, plan),
            FaultPoint::Sequential(sequential) => points::sequential(pending, sabotaged, sequential),
            FaultPoint::VerifyMessage(message, body) => points::verify_message(pending, message, body),
            FaultPoint::Token(token, second) => *second = sabotaged.second_token(token),
            FaultPoint::Kept(place, kept) => {
                sabotaged.kept(place, kept);
                points::kept(pending, kept);
            }
            FaultPoint::UndoStamp(stamp) if sabotaged.has(Sabotage::UndoesUnsorted) => {
                *stamp = u64::MAX - *stamp
            }
            FaultPoint::UndoStamp(_) => {}
            FaultPoint::Evidence(record, replicas) => sabotaged.evidence(record, replicas),
            FaultPoint::Frame(frame) => points::frame(pending, frame),
        }
        true
    }

    fn at_turn<R>(&self, turn: &mut Turn<'_, R>, point: TurnPoint<'_>) {
        match point {
            // A worker counts one position too many, from this request on.
            TurnPoint::Begins => {
                if self.take(turn, Corruption::Position).is_some() {
                    turn.lose_count();
                }
            }
            TurnPoint::Bytes(are_damaged) => *are_damaged = self.take(turn, Corruption::Request).is_some(),
            TurnPoint::Runs(runs) => {
                self.0.pending.note_request();
                let skipped = self.take(turn, Corruption::Skip).map(|_| 0);
                *runs = skipped.or_else(|| self.take(turn, Corruption::Twice).map(|_| 2));
            }
            TurnPoint::Reply(reply) => {
                if !reply.is_empty()
                    && let Some(armed) = self.take(turn, Corruption::Reply)
                {
                    points::flip_bit(reply, armed.target.seed);
                }
            }
            TurnPoint::Digest(wrong_bits) => {
                let armed = self.take(turn, Corruption::Digest);
                *wrong_bits = armed.map_or(0, |armed| 1 << (armed.target.seed % 128));
            }
            TurnPoint::Ends if self.0.sabotaged.loses_started(turn.position()) => turn.lose_started(),
            TurnPoint::Ends => {}
        }
    }

    fn next_waiting<T>(&self, waiting: &mut SealedQueue<T>) -> Result<Option<T>, SealBroken> {
        let trusts = self.0.sabotaged.has(Sabotage::BelievesQueue);
        waiting.pop().or_else(|broken| if trusts { Ok(waiting.pop_unchecked()) } else { Err(broken) })
    }

    fn slow_disk(directory: &Path) -> Option<SlowDisk> {
        slow_disk::read(directory)
    }

    fn delay(&self, position: u64, thread: ThreadRole) -> Duration {
        self.0.slowness.get().map_or(Duration::ZERO, |slowness| slowness(position, thread))
    }

    fn seal_hook(&self) -> impl SealHook + '_ {
        InRequest(&self.0.pending)
    }

    fn on_noop<S: Service>(
        &self,
        service: &S,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        ticket: u64,
    ) -> Option<Injected> {
        let armed = self.0.pending.take(|armed| armed.occasion == Occasion::Noop(ticket))?;
        Some(objects::at_turn(&self.0.pending, service, turn, locks, armed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_injector_keeps_every_rule() {
        let fresh = Injector::default();
        assert!(Rule::ALL.into_iter().all(|rule| fresh.keeps(rule)));
        let numbers = Rule::ALL.map(|rule| rule as usize);
        assert_eq!(numbers, std::array::from_fn(|number| number), "all rules are there, each once");
        assert_eq!(Rule::ALL.last(), Some(&Rule::ConfirmsStarted), "the last one of the list");
    }

    #[test]
    fn a_broken_promise_breaks_one_rule() {
        for broken in Rule::ALL {
            let injector = Injector::default();
            injector.sabotage(broken_by(broken));
            let kept: Vec<Rule> = Rule::ALL.into_iter().filter(|rule| injector.keeps(*rule)).collect();
            let others: Vec<Rule> = Rule::ALL.into_iter().filter(|rule| *rule != broken).collect();
            assert_eq!(kept, others);
        }
    }
}
