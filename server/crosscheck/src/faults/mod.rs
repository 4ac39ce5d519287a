//! Fault injection: faults that the admin socket arms, and promises that a simulation makes a replica break. Only in
//! builds with the feature `inject`, never in production.

mod caller;
mod objects;
mod overlooked;
mod pending;
mod sabotage;
mod slow_disk;

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use execute::{KeptRequest, SealHook};
use object::{ObjectId, RegionId, SealBroken, SealedQueue};
use order::{Delivered, Request};
use schedule::{Footprint, Lock, ParallelBatches, Turn};
use verify::{StateToken, VerifyMessage};
use vote::{Message, Packed, Place, RequestResult};

use crate::admin::{Corruption, EvidenceRecord, Inject, Injected};
use crate::copying::StateCopy;
use crate::hooks::{Arming, Hooks};
use crate::job::Job;
use crate::service::Service;
use objects::InRequest;
use overlooked::Overlooked;
use pending::{Armed, Occasion, PendingFaults, Target};
use sabotage::Sabotaged;

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
        let region_id = match inject.object.as_deref().map(|name| service.region_id_of(name)) {
            Some(None) => {
                return Arming::Refused("no such object name; use item:KEY, slot:KEY, queue:N or shard:N");
            }
            Some(Some(region_id)) => region_id,
            None => (inject.seed % u64::from(locks)) as u32,
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

    fn trusts_any_clock(&self) -> bool {
        self.0.sabotaged.has(Sabotage::BelievesClocks)
    }

    fn accuses_in_doubt(&self) -> bool {
        self.0.sabotaged.has(Sabotage::AccusesInDoubt)
    }

    fn gives_unordered(&self) -> bool {
        !self.0.sabotaged.has(Sabotage::OrdersFirst)
    }

    fn advises_first(&self) -> bool {
        self.0.sabotaged.has(Sabotage::AdvisesFirst)
    }

    fn next_waiting<T>(&self, waiting: &mut SealedQueue<T>) -> Result<Option<T>, SealBroken> {
        let trusts = self.0.sabotaged.has(Sabotage::BelievesQueue);
        waiting.pop().or_else(|broken| if trusts { Ok(waiting.pop_unchecked()) } else { Err(broken) })
    }

    fn submits_twice(&self) -> bool {
        self.0.sabotaged.has(Sabotage::SubmitsTwice)
    }

    /// A client's request with another checksum than its bytes have.
    fn on_submit(&self, request: Request) -> Request {
        let Some(armed) = self.0.pending.take_kind(Corruption::Asked) else { return request };
        Request { checksum: request.checksum ^ 1 << (armed.target.seed % 32), ..request }
    }

    fn skips(&self, delivered: &Delivered, executed: u64) -> bool {
        self.0.sabotaged.skips(delivered, executed)
    }

    fn skip_turns(&self) {
        self.0.pending.skip_turns();
    }

    fn on_batch(&self, batch: u64) {
        if self.0.sabotaged.loses_count(batch) {
            self.0.pending.arm(Armed::at_next(Corruption::Position, 0));
        }
    }

    fn on_request(&self, batch: u64, request: Request) -> Request {
        self.0.sabotaged.request(batch, request)
    }

    fn on_footprint(&self, footprint: Footprint, locks: u32) -> Footprint {
        self.0.pending.wrong_footprint(footprint, locks)
    }

    fn on_executed(&self, batch: u64, results: &mut [RequestResult]) -> Vec<(Place, Bytes)> {
        self.0.sabotaged.executed(batch, results)
    }

    fn on_piece(&self, piece: Bytes) -> Bytes {
        let Some(armed) = self.0.pending.take_kind(Corruption::Piece) else { return piece };
        let mut bytes = piece.to_vec();
        flip_bit(&mut bytes, armed.target.seed);
        bytes.into()
    }

    fn takes_from_one(&self) -> bool {
        self.0.sabotaged.has(Sabotage::TakesFromOne)
    }

    fn forgets_runs(&self) -> bool {
        !self.0.sabotaged.has(Sabotage::Hoards)
    }

    fn sync_pause(directory: &Path) -> Duration {
        slow_disk::read(directory).map_or(Duration::ZERO, |slow| slow.sync_pause)
    }

    fn entries_per_snapshot(directory: &Path) -> Option<u64> {
        slow_disk::read(directory).map(|slow| slow.entries_per_snapshot)
    }

    fn writes_in_turn(&self) -> bool {
        !self.0.sabotaged.has(Sabotage::WritesTogether)
    }

    fn waits_for_verifiers(&self) -> bool {
        !self.0.sabotaged.has(Sabotage::BelievesItself)
    }

    fn reads_wait_until_stable(&self) -> bool {
        !self.0.sabotaged.has(Sabotage::ReadsUnstable)
    }

    fn rewinds_sessions(&self) -> bool {
        !self.0.sabotaged.has(Sabotage::KeepsSessions)
    }

    fn overlooks(&self, place: Place) -> bool {
        self.0.overlooked.has(place)
    }

    fn keeps_streams(&self) -> bool {
        !self.0.sabotaged.has(Sabotage::ForgetsStreams)
    }

    fn runs_sequentially(&self, sequential: bool) -> bool {
        sequential
            && !self.0.sabotaged.has(Sabotage::IgnoresSequential)
            && self.0.pending.take_kind(Corruption::Flag).is_none()
    }

    /// A plan of several parallel batches loses an end: requests run beside each other that conflict.
    fn on_plan(&self, mut plan: ParallelBatches) -> ParallelBatches {
        if plan.ends.len() > 1
            && let Some(armed) = self.0.pending.take_kind(Corruption::Groups)
        {
            plan.ends.remove(armed.target.seed as usize % (plan.ends.len() - 1));
        }
        plan
    }

    fn on_verify_message(&self, message: &VerifyMessage, body: &mut [u8]) {
        if matches!(message, VerifyMessage::Verify { .. })
            && let Some(armed) = self.0.pending.take_kind(Corruption::Check)
        {
            let bit = armed.target.seed as usize % (body.len().max(1) * 8);
            body[bit / 8] ^= 1 << (bit % 8);
        }
    }

    fn second_token(&self, token: StateToken) -> Option<StateToken> {
        self.0.sabotaged.second_token(token)
    }

    fn on_kept(&self, place: Option<Place>, kept: KeptRequest) -> KeptRequest {
        let mut kept = self.0.sabotaged.kept(place, kept);
        if let Some(armed) = self.0.pending.take_kind(Corruption::Kept)
            && !kept.kept.damage(armed.target.seed)
        {
            self.0.pending.arm(armed);
        }
        kept
    }

    fn undo_stamp(&self, stamp: u64) -> u64 {
        if self.0.sabotaged.has(Sabotage::UndoesUnsorted) { u64::MAX - stamp } else { stamp }
    }

    fn receives_votes(&self) -> bool {
        !self.0.sabotaged.has(Sabotage::MutesVotes)
    }

    /// A CHECK or a REPAIR leaves with a wrong value under a right frame checksum.
    fn on_vote_message(&self, message: &Message, body: &mut [u8]) -> bool {
        let kind = match message {
            Message::Check { .. } if self.0.sabotaged.has(Sabotage::MutesVotes) => return false,
            Message::Check { .. } => Corruption::Check,
            Message::Repair { .. } => Corruption::Repair,
            _ => return true,
        };
        if let Some(last) = body.last_mut()
            && let Some(armed) = self.0.pending.take_kind(kind)
        {
            // The last byte belongs to a digest or to an object's bytes, never to the message's shape.
            *last ^= 1 << (armed.target.seed % 8);
        }
        true
    }

    fn on_release(&self, place: Place, reply: Bytes) -> (Place, Bytes) {
        self.0.sabotaged.released(place, reply)
    }

    fn proposes_repairs(&self) -> bool {
        !self.0.sabotaged.has(Sabotage::NeverRepairs)
    }

    fn on_install(&self, objects: Vec<Packed>) -> Vec<Packed> {
        self.0.sabotaged.installed(objects)
    }

    fn on_evidence(&self, record: &mut EvidenceRecord, replicas: usize) {
        self.0.sabotaged.evidence(record, replicas);
    }

    fn on_frame(&self, frame: &mut [u8]) {
        if let Some(armed) = self.0.pending.take_kind(Corruption::Message) {
            flip_bit(frame, armed.target.seed);
        }
    }

    fn asks_others(&self) -> bool {
        !self.0.sabotaged.has(Sabotage::AsksNobody)
    }

    fn on_progress(&self, requests: u64) -> u64 {
        if self.0.sabotaged.has(Sabotage::CountsBatches) { 0 } else { requests }
    }

    fn delay(&self, position: u64, thread: ThreadRole) -> Duration {
        self.0.slowness.get().map_or(Duration::ZERO, |slowness| slowness(position, thread))
    }

    /// Makes a worker count one position too many, from this request on.
    fn on_turn<R>(&self, turn: &mut Turn<'_, R>) {
        if self.take(turn, Corruption::Position).is_some() {
            turn.lose_count();
        }
    }

    fn damages_request<R>(&self, turn: &Turn<'_, R>) -> bool {
        self.take(turn, Corruption::Request).is_some()
    }

    fn runs<R>(&self, turn: &Turn<'_, R>) -> Option<u32> {
        self.0.pending.note_request();
        let skipped = self.take(turn, Corruption::Skip).map(|_| 0);
        skipped.or_else(|| self.take(turn, Corruption::Twice).map(|_| 2))
    }

    fn seal_hook(&self) -> impl SealHook + '_ {
        InRequest(&self.0.pending)
    }

    fn on_reply<R>(&self, turn: &Turn<'_, R>, reply: &mut [u8]) {
        if !reply.is_empty()
            && let Some(armed) = self.take(turn, Corruption::Reply)
        {
            flip_bit(reply, armed.target.seed);
        }
    }

    fn wrong_digest_bits<R>(&self, turn: &Turn<'_, R>) -> u128 {
        self.take(turn, Corruption::Digest).map_or(0, |armed| 1 << (armed.target.seed % 128))
    }

    fn names_changes(&self) -> bool {
        !self.0.sabotaged.has(Sabotage::ForgetsChanges)
    }

    /// A fault that finds nothing to hit in this region waits for the next one.
    fn before_part(&self, copy: &StateCopy, region_id: RegionId) {
        let pending = &self.0.pending;
        let Some(copy) = copy.region(region_id).filter(|_| pending.count() > 0) else { return };
        for kind in [Corruption::Unnamed, Corruption::Cursor] {
            let Some(armed) = pending.take_kind(kind) else { continue };
            let seed = armed.target.seed;
            let is_hit = match kind {
                Corruption::Unnamed => copy.lock().forget_changed(seed),
                _ => copy.lock().corrupt_cursor(seed as u32),
            };
            if !is_hit {
                pending.arm(armed);
            }
        }
    }

    fn on_part(&self, packed: &mut [u8]) {
        if !packed.is_empty()
            && let Some(armed) = self.0.pending.take_kind(Corruption::Part)
        {
            flip_bit(packed, armed.target.seed);
        }
    }

    fn keeps_rest(&self) -> bool {
        !self.0.sabotaged.has(Sabotage::DropsRest)
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

/// Flips a bit of some bytes, of which there is one at least.
fn flip_bit(bytes: &mut [u8], seed: u64) {
    let bit = seed % (bytes.len() as u64 * 8);
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
}
