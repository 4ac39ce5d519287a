//! Durations of requests that faults make slow: at one replica, or the same request at several.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use wire::mix;

/// Positions that are remembered, for replicas that are behind.
const KEPT: usize = 64;

/// By how much positions differ at most between two views in which a batch begins: requests of the pipeline itself,
/// which are not slow, may come before those of clients in one of them.
const SHIFT: u64 = 16;

/// Microseconds that each request takes longer than the one before, on machines that get busier, up to that.
const BUSIER_US: u64 = 500;
const BUSY_US: u64 = 100_000;

/// All replicas' slowness, shared by the run and the handlers.
#[derive(Clone, Default)]
pub struct Slow(Arc<Mutex<SlowState>>);

#[derive(Default)]
struct SlowState {
    /// All machines have more and more else to do: each request takes a while, at all replicas.
    is_busy: bool,
    /// Requests that are slow at several replicas, once they are known: for how long, and at which replicas.
    next: VecDeque<(u64, BTreeSet<u8>)>,
    /// By position.
    shared: BTreeMap<u64, (u64, BTreeSet<u8>)>,
    /// Last position that each process has begun.
    begun: BTreeMap<u8, u64>,
    /// By replica: the durations of its next requests.
    own: BTreeMap<u8, VecDeque<u64>>,
}

impl Slow {
    fn state(&self) -> MutexGuard<'_, SlowState> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// All machines have more and more else to do, from now on.
    pub fn keep_busy(&self) {
        self.state().is_busy = true;
    }

    /// The next request that no replica has begun takes this many microseconds at these replicas, once at each.
    pub fn share(&self, time_us: u64, replicas: BTreeSet<u8>) {
        self.state().next.push_back((time_us, replicas));
    }

    /// The next requests of one replica take this long.
    pub fn slow_down(&self, replica: u8, times_us: impl Iterator<Item = u64>) {
        self.state().own.entry(replica).or_default().extend(times_us);
    }

    /// The process ends: its next requests are not slow any more.
    pub fn end_process(&self, replica: u8) {
        let mut state = self.state();
        state.own.remove(&replica);
        state.begun.remove(&replica);
    }

    /// Additional microseconds of the request at this position at this replica. A helper runs to its end before any
    /// other thread: a slow request at one replica alone waits until the worker is back.
    pub fn takes_us(&self, replica: u8, position: u64, is_helper: bool) -> u64 {
        let mut state = self.state();
        let is_new = state.begun.values().all(|begun| *begun < position);
        let begun = state.begun.entry(replica).or_default();
        *begun = position.max(*begun);
        if let Some(next) = is_new.then(|| state.next.pop_front()).flatten() {
            state.shared.insert(position, next);
            if state.shared.len() > KEPT {
                state.shared.pop_first();
            }
        }
        let mut near = state.shared.range_mut(position.saturating_sub(SHIFT)..=position);
        let of_all_us = near
            .find_map(|(_, (time_us, replicas))| replicas.remove(&replica).then_some(*time_us))
            .unwrap_or(0);
        let busy_us = if state.is_busy { busy_us(replica, position) } else { 0 };
        let of_all_us = of_all_us + busy_us;
        if is_helper {
            return of_all_us;
        }
        of_all_us + state.own.get_mut(&replica).and_then(VecDeque::pop_front).unwrap_or(0)
    }
}

/// How much longer a request takes on a busy machine: a quarter of the most or more, not the same everywhere.
fn busy_us(replica: u8, position: u64) -> u64 {
    let quarter_us = (position * BUSIER_US).min(BUSY_US) / 4;
    quarter_us + quarter_us * 3 * (mix(position << 8 | u64::from(replica)) % 1024) / 1024
}
