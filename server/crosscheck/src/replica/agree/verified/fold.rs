//! The end of a batch: its effects and outputs become a token, which the verifiers get.

use execute::{KeptRequest, Speculation};
use object::{Kept, RegionId};
use schedule::EntryEnd;
use verify::{ExecutorEvent, Version};
use vote::{Failure, RequestResult};

use super::{Speculator, Verified, unstable};
use crate::Corrupted;
use crate::boundary::{self, OwnedRegions};
use crate::hooks::{self, FaultPoint, Hooks, Rule};
use crate::service::Service;
use crate::state::{self, StateProof};
use crate::world::{Observation, World};

/// The batches of a service that nothing has run on since `batch`.
///
/// # Errors
/// When its objects are not those of that version.
pub(super) fn begin<S: Service>(
    service: &mut S,
    batch: u64,
    proof: StateProof,
) -> Result<Speculation, String> {
    let mut regions = OwnedRegions(service.locks_mut());
    boundary::speculation_of(regions.0.len() as RegionId, &mut regions, batch, proof)
}

impl Verified {
    /// All results of a batch are there.
    pub(super) fn on_executed(&mut self, batch: u64, results: Vec<RequestResult>) {
        if let Some(batch) = unstable(&mut self.unstable, batch) {
            batch.results = Some(results);
        }
    }

    /// Whether results that come now are of batches that are being rolled back, or of a state that is given up: those
    /// that stay were complete before.
    pub(super) fn is_rolling_back(&self) -> bool {
        self.rolling_back.is_some() || self.taking.is_some()
    }

    /// Folds the next batch if it has ended. Returns its version and the one before; none if a number or the list of
    /// results is wrong.
    fn fold_next(&mut self, me: u8, hooks: &hooks::Active) -> Option<Folding> {
        let Some(speculation) = self.speculation.as_mut() else { return Some(Folding::Waits) };
        let before = speculation.version();
        let next = unstable(&mut self.unstable, before.number + 1);
        let Some((batch, ended)) = next.and_then(|batch| batch.ended.map(|ended| (batch, ended))) else {
            return Some(Folding::Waits);
        };
        let results = batch.results.as_ref()?;
        speculation.take_rooms_back(batch.running.take_rooms());
        let mut kept = Vec::with_capacity(results.len());
        let mut of_requests: Vec<Option<KeptRequest>> = results.iter().map(|_| None).collect();
        let mut started = Vec::new();
        for (request, one) in batch.running.take_kept() {
            match request.map(|request| of_requests.get_mut(usize::from(request))) {
                Some(Some(slot)) => *slot = Some(one),
                Some(None) => return None,
                None => started.push(one),
            }
        }
        // They ran one at a time, before the others.
        started.sort_by_key(|one| one.stamp);
        let started_len = started.len();
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
        let order = if cfg!(feature = "inject") { order_of(&kept[started_len..]) } else { Vec::new() };
        for one in &mut kept {
            hooks.at(FaultPoint::UndoStamp(&mut one.stamp));
        }
        let token = speculation.fold(kept, state::context(&batch.order, ended.schedule));
        let version = Version { number: ended.index, token };
        batch.version = Some(version);
        batch.parts = speculation.parts();
        Some(Folding::Folded { version, before, order })
    }
}

/// The numbers of a batch's requests in an order in which they may have run one at a time.
fn order_of(kept: &[KeptRequest]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..kept.len() as u32).collect();
    order.sort_by_key(|number| kept[*number as usize].stamp);
    order
}

impl<S: Service, W: World> Speculator<'_, S, W> {
    /// All requests of a batch have ended: its token goes to the verifiers, once those before have ended too. Two
    /// workers may tell the ends of two batches in the other order, and that of a batch which was dropped late.
    pub(super) fn on_batch_ended(&mut self, ended: EntryEnd) {
        let of_number = self.stage.unstable.binary_search_by_key(&ended.number, |one| one.appended);
        let Some(batch) = of_number.ok().and_then(|at| self.stage.unstable.get_mut(at)) else { return };
        batch.ended = Some(ended);
        self.fold_ended();
    }

    /// Folds the batches that have ended, in their order.
    pub(super) fn fold_ended(&mut self) {
        while !self.stage.is_rolling_back() && !self.finds_itself_wrong() {
            let folding = self.stage.fold_next(self.core.env.settings.me, &self.core.env.hooks);
            if let Some(Folding::Folded { version, before, order }) = &folding {
                let (version, parent) = (*version, before.token);
                self.core.env.world.see(Observation::Folded { version, parent, order });
            }
            match folding {
                Some(Folding::Waits) => return self.repair().answer_next(),
                Some(Folding::Folded { version, .. }) if self.stage.is_compared() => {
                    self.on_ran_again(version);
                }
                Some(Folding::Folded { version, before, .. }) => {
                    let view = self.stage.view;
                    self.on_executor_event(ExecutorEvent::Executed { view, version, parent: before.token });
                    if !self.core.env.hooks.keeps(Rule::WaitsForVerifiers) {
                        self.on_stable(version);
                    }
                }
                // A batch that has ended has all results.
                None => return self.core.env.replace(Corrupted::Results),
            }
        }
    }
}

/// What became of the next batch.
enum Folding {
    /// It has not ended.
    Waits,
    /// It has a version.
    Folded { version: Version, before: Version, order: Vec<u32> },
}
