//! The end of a batch: its effects and outputs become a token, which the verifiers get.

use execute::{KeptRequest, Speculation};
use object::{Home, Kept};
use order::OrderEngine;
use schedule::EntryEnd;
use tree::{Tree, TreeShape};
use verify::{ExecutorEvent, Version};
use vote::{Failure, RequestResult};

use super::{SpeculateStage, Speculator};
use crate::Corrupted;
use crate::service::Service;
use crate::world::World;

/// Leaves of the tree over all objects (docs/design.md): 512 KiB, and a few nodes.
const LEAVES: u32 = 65_536;
/// Seed of the digest of what belongs to a version besides the objects and outputs.
const CONTEXT: &[u8] = b"version";

/// The batches of a service that nothing has run on since `stable`.
pub(in crate::replica) fn begin<S: Service>(service: &mut S, stable: Version) -> Speculation {
    let mut locks = service.locks_mut();
    let mut tree = Tree::new(TreeShape::even(locks.len() as u32, LEAVES));
    for (home, lock) in locks.iter_mut().enumerate() {
        let mut objects = Vec::new();
        lock.region_mut().objects(&mut |listed| objects.push((listed.id, listed.sum)));
        tree.recompute(home as Home, objects);
    }
    Speculation::new(tree, stable)
}

impl SpeculateStage {
    /// All results of a batch are there.
    pub(in crate::replica) fn on_executed(&mut self, batch: u64, results: Vec<RequestResult>) {
        if let Some(batch) = self.unstable.iter_mut().find(|one| one.number == batch) {
            batch.results = Some(results);
        }
    }

    /// Whether the batch was dropped before it ended: it is being taken back.
    pub(in crate::replica) fn is_dropped(&self, batch: u64) -> bool {
        self.going_back.is_some() && !self.unstable.iter().any(|one| one.number == batch)
    }

    /// A batch has ended. Returns its version and the one before; none if the batch is not the next one to end.
    fn fold(&mut self, ended: EntryEnd, me: u8) -> Option<(Version, Version)> {
        let speculation = self.speculation.as_mut()?;
        let before = speculation.version();
        let batch = self.unstable.iter_mut().find(|one| one.number == ended.index)?;
        if ended.index != before.number + 1 {
            return None;
        }
        let results = batch.results.as_ref()?;
        let mut kept = Vec::with_capacity(results.len());
        let mut of_requests: Vec<Option<KeptRequest>> = results.iter().map(|_| None).collect();
        let mut started = Vec::new();
        for (request, one) in batch.in_flight.take_kept() {
            match request.map(|request| of_requests.get_mut(usize::from(request))) {
                Some(Some(slot)) => *slot = Some(one),
                Some(None) => return None,
                None => started.push(one),
            }
        }
        // They ran one at a time, before the others.
        started.sort_by_key(|one| one.stamp);
        kept.extend(started);
        for (number, (result, one)) in results.iter().zip(of_requests).enumerate() {
            let answer = match result.failure {
                // No other replica has this answer, and none has the batch's token.
                Some(failure) if failure != Failure::Invalid => {
                    vote::digest::abandoned(ended.index, number as u16, me)
                }
                _ => result.digest,
            };
            let one = one.unwrap_or_else(|| KeptRequest { stamp: 0, answer: 0, kept: Kept::new() });
            kept.push(KeptRequest { answer, ..one });
        }
        let mut context = batch.order.encode();
        context.extend_from_slice(CONTEXT);
        context.extend_from_slice(&ended.schedule.to_le_bytes());
        let token = speculation.fold(kept, vote::digest::content(&context));
        let version = Version { number: ended.index, token };
        batch.version = Some(version);
        Some((version, before))
    }
}

impl<S: Service, E: OrderEngine, W: World> Speculator<'_, S, E, W> {
    /// All requests of a batch have ended: its token goes to the verifiers.
    pub(in crate::replica) fn on_batch_ended(&mut self, ended: EntryEnd) {
        let me = self.env.settings.me;
        let stage = &mut *self.stage;
        if stage.going_back.is_some() {
            return;
        }
        let view = stage.view;
        match stage.fold(ended, me) {
            Some((version, _)) if stage.repairing.is_some() => self.on_ran_again(version),
            Some((version, before)) => {
                self.on_executor_event(ExecutorEvent::Executed { view, version, parent: before.token });
            }
            // Batches end in their order, with all results: a number or the list of them is wrong.
            None => self.env.replace(Corrupted::Results),
        }
    }
}
