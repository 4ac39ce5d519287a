//! In verified mode: how much a run executed first and verified afterwards, for its summary, and versions in the trace.

use std::collections::BTreeMap;

use crosscheck::admin::Corruption;
use crosscheck::faults::OverlookedKeys;
use serde::{Deserialize, Serialize};
use verify::{StateToken, Version};
use wire::SplitMix64;

use super::{Event, Run};
use crate::fault::SimFault;
use crate::workload::Workload;
use crate::world::What;

/// In verified mode: what was executed first and verified afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Batches that became stable at some replica.
    pub stable: u64,
    /// Times a replica's state was not the agreed one.
    pub diverged: u64,
    /// Batches after which two replicas came to different states from the same one before.
    #[serde(default)]
    pub differed: u64,
    /// Times a replica took batches back.
    pub rolled_back: u64,
    /// Times a replica followed another view than the one before.
    pub followed: u64,
    /// The last view.
    pub view: u64,
    /// Times a replica took the whole state of the others in place of its own.
    #[serde(default)]
    pub took_states: u64,
    /// Reads that were answered without a batch.
    #[serde(default)]
    pub local_reads: u64,
}

/// The states that replicas have come to lately, by the batch, its view and the state before.
#[derive(Default)]
pub(super) struct Tokens {
    /// The keys that all replicas overlook, those too that start later.
    pub(super) overlooked: Option<OverlookedKeys>,
    came_to: BTreeMap<(u64, u64, StateToken), (StateToken, bool)>,
    /// By replica.
    views: BTreeMap<u8, u64>,
}

impl Tokens {
    const KEPT: usize = 20_000;

    /// Whether this is the first one that differs there.
    fn is_first_to_differ(&mut self, replica: u8, version: &Version, parent: StateToken) -> bool {
        let Version { number, token } = *version;
        let view = self.views.get(&replica).copied().unwrap_or(0);
        let (first, differs) = self.came_to.entry((number, view, parent)).or_insert((token, false));
        let is_new = *first != token && !*differs;
        *differs |= is_new;
        if self.came_to.len() > Self::KEPT {
            self.came_to.pop_first();
        }
        is_new
    }
}

impl Verified {
    pub(super) fn record(&mut self, replica: u8, what: &What, tokens: &mut Tokens) {
        match what {
            What::Folded { version, parent, .. } => {
                let differs = tokens.is_first_to_differ(replica, version, *parent);
                self.differed += u64::from(differs);
            }
            What::Stable { version, .. } => self.stable = self.stable.max(version.number),
            What::Diverged(_) => self.diverged += 1,
            What::ReadHere { .. } => self.local_reads += 1,
            What::TookBack { .. } => self.rolled_back += 1,
            What::Installed { in_place: true, .. } => self.took_states += 1,
            What::Followed { view, .. } => {
                tokens.views.insert(replica, *view);
                self.followed += 1;
                self.view = self.view.max(*view);
            }
            _ => {}
        }
    }

    /// Adds another run; the views are added up.
    pub fn add(&mut self, other: &Verified) {
        self.stable += other.stable;
        self.diverged += other.diverged;
        self.differed += other.differed;
        self.rolled_back += other.rolled_back;
        self.followed += other.followed;
        self.view += other.view;
        self.took_states += other.took_states;
        self.local_reads += other.local_reads;
    }
}

/// A version in the trace.
pub(super) struct ShownVersion<'a>(pub(super) &'a verify::Version);

impl std::fmt::Display for ShownVersion<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{:04x}", self.0.number, self.0.token.0 as u16)
    }
}

/// Faults in what V adds to a replica.
impl<W: Workload> Run<W> {
    /// In state that is no object.
    pub(super) fn corrupt_verification(&mut self, victim: u8, fault: SimFault, seed: u64) {
        let slot = &mut self.slots[usize::from(victim)];
        slot.wake_us = slot.wake_us.min(self.now_us);
        let Some(replica) = slot.process.as_mut().map(|process| &mut process.replica) else { return };
        let armed = |kind| {
            replica.arm_next(kind, seed);
            true
        };
        let hit = match fault {
            SimFault::Token => armed(Corruption::Check),
            SimFault::Kept => armed(Corruption::Kept),
            SimFault::Groups => armed(Corruption::Groups),
            SimFault::Flag => armed(Corruption::Flag),
            SimFault::Tally => replica.corrupt_tally(seed),
            SimFault::Leaf | SimFault::Node => replica.corrupt_tree(fault == SimFault::Leaf, seed),
            SimFault::BodyLost => replica.lose_bodies(),
            _ => {
                replica.forget_verifier(seed);
                true
            }
        };
        if matches!(fault, SimFault::Leaf | SimFault::Node | SimFault::Kept) {
            let slot = &mut self.slots[usize::from(victim)];
            slot.hidden_in = Some(slot.incarnation);
        }
        if fault.is_of_memory() {
            self.summary.faults.entry(fault).or_default().injected += u64::from(hit);
        }
    }

    /// A fault in a tree or in a before-image is found when it is used. No check looks for it before: no scrub compares
    /// trees with objects. So that it does not meet a fault of another replica, the operator restarts this one.
    pub(super) fn restart_hidden(&mut self) {
        for replica in 0..self.options.replicas {
            let slot = &mut self.slots[usize::from(replica)];
            let is_hidden = slot.hidden_in.take() == Some(slot.incarnation) && slot.process.is_some();
            if is_hidden {
                self.stop(replica, 0);
            }
        }
    }

    /// The service's keys miss conflicts, in some of the next batches and at all replicas: who overtakes whom decides
    /// what a request writes.
    pub(super) fn overlook(&mut self, draws: &mut SplitMix64) {
        let from = self.facts.last_batch + 1;
        let keys = OverlookedKeys { from, to: from + draws.within(1_000, 12_000), seed: draws.next_u64() };
        self.tokens.overlooked = Some(keys);
        for process in self.slots.iter().filter_map(|slot| slot.process.as_ref()) {
            process.replica.overlook(keys);
        }
    }

    /// A verifier wants one view after the other.
    pub(super) fn storm(&mut self, victim: u8, more: u64) {
        if let Some(process) = &mut self.slots[usize::from(victim)].process {
            process.replica.want_view();
        }
        let slot = &mut self.slots[usize::from(victim)];
        slot.wake_us = slot.wake_us.min(self.now_us);
        slot.calm_us = slot.calm_us.max(self.now_us);
        if more > 0 {
            let after_us = self.rng.within(500, 60_000);
            self.at(after_us, Event::Storm { victim, more: more - 1 });
        }
    }
}
