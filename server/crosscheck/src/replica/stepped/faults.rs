//! Faults that a simulation injects into a replica that it steps: it corrupts state that is no object, and breaks
//! promises.

use object::{ObjectId, RegionId};
use verify::Rules;

use super::Stepped;
use crate::admin::Corruption;
use crate::faults::{OverlookedKeys, Sabotage, Slowness};
use crate::replica::Input;
use crate::replica::agree::{AgreementFault, PeerNews};
use crate::service::Service;
use crate::world::World;

/// About the number of numbers in an order engine, without those that it has for each replica.
const NUMBERS: usize = 18;
const NUMBERS_PER_PEER: usize = 8;

impl<S: Service, W: World> Stepped<S, W> {
    /// From now on a request of the service takes as long as `slowness` determines.
    pub fn take_time(&self, slowness: Slowness) {
        self.replica.core.env.hooks.set_slowness(slowness);
    }

    /// Breaks a promise on purpose from now on.
    pub fn sabotage(&self, sabotage: Sabotage) {
        self.replica.core.env.hooks.sabotage(sabotage);
    }

    /// Faults that were armed and have not been injected yet.
    pub fn pending_faults(&self) -> Vec<Corruption> {
        self.replica.core.env.hooks.kinds()
    }

    /// Arms a fault for its next occasion.
    pub fn arm_next(&self, kind: Corruption, seed: u64) {
        self.replica.core.env.hooks.arm_next(kind, seed);
    }

    /// Disarms faults whose occasion may never come; returns how many.
    pub fn disarm(&self, kind: Corruption) -> usize {
        self.replica.core.env.hooks.disarm(kind)
    }

    /// The objects that faults have damaged before their seal since the last call, with their locks. A seal covers all
    /// of an object except the unchanged members: damage there is found when it is next read.
    pub fn take_damaged(&self) -> Vec<(RegionId, ObjectId)> {
        self.replica.core.env.hooks.take_damaged()
    }

    /// Flips a bit of one of the last ordered entries in the log's memory; false when there is none.
    pub fn corrupt_entry(&mut self, seed: u64) -> bool {
        let last = self.replica.core.order.orderer.engine_status().last_index;
        let index = last.saturating_sub(seed % 64);
        self.replica.core.order.orderer.engine_mut().faults().corrupt_entry(index, (seed >> 32) as usize % 16)
    }

    /// Flips a bit of one of the order engine's own numbers; false when there is none.
    pub fn corrupt_number(&mut self, seed: u64) -> bool {
        let numbers = NUMBERS + NUMBERS_PER_PEER * self.replica.core.env.settings.peers.len();
        let engine = self.replica.core.order.orderer.engine_mut();
        engine.faults().corrupt_number((seed >> 32) as usize % numbers, seed as u32).is_some()
    }

    /// Flips a bit of its clock's offset from the monotonic time: an injected fault.
    pub fn corrupt_clock(&mut self, bit: u32) {
        self.replica.core.time.clock.corrupt(bit);
    }

    /// Flips a bit of the next stamp that this replica gives as a leader: an injected fault. False if it does not lead.
    pub fn corrupt_stamp(&mut self, bit: u32) -> bool {
        let leads = self.replica.core.order.orderer.engine_status().is_leader;
        if leads {
            self.replica.core.order.orderer.corrupt_stamp(1 << (bit % 64));
        }
        leads
    }

    /// In verified mode: the mixer misses keys in these batches.
    pub fn overlook(&self, keys: OverlookedKeys) {
        self.replica.core.env.hooks.overlook(keys);
    }

    /// In verified mode: flips a bit of a token that the verifier has counted; false while it has none.
    pub fn corrupt_tally(&mut self, seed: u64) -> bool {
        self.inject_agreement(AgreementFault::Tally { seed })
    }

    /// In verified mode: flips a bit of a leaf of the tree over the objects, or of a node above the leaves; false while
    /// there is none.
    pub fn corrupt_tree(&mut self, of_leaves: bool, seed: u64) -> bool {
        self.inject_agreement(AgreementFault::Tree { of_leaves, seed })
    }

    /// In verified mode: loses the bodies of all batches that were delivered.
    pub fn lose_bodies(&mut self) -> bool {
        self.replica.core.order.orderer.engine_mut().faults().lose_entries()
    }

    /// In verified mode: its verifier wants another view.
    pub fn want_view(&mut self) {
        self.replica.agreement.on_peer(PeerNews::LeaderFails, &mut self.replica.core);
    }

    /// In verified mode: its verifier has lost its memory, and continues as another one with this number.
    pub fn forget_verifier(&mut self, incarnation: u64) {
        self.inject_agreement(AgreementFault::ForgetVerifier { incarnation });
    }

    /// In verified mode: removes rules of the verification stage.
    pub fn weaken(&mut self, rules: Rules) {
        self.inject_agreement(AgreementFault::Weaken(rules));
    }

    fn inject_agreement(&mut self, fault: AgreementFault) -> bool {
        self.replica.agreement.inject(fault, &mut self.replica.core)
    }

    /// Puts the last request of a client into the queue a second time, as if the queue's length had changed: an
    /// injected fault. False if there was none.
    pub fn corrupt_queue(&mut self) -> bool {
        let again = self.last.clone();
        let hit = again.is_some();
        again.into_iter().for_each(|again| self.mailbox.send(Input::Submissions(vec![again])));
        hit
    }
}
