//! The leader's side: batches of all origins wait here, each proposed once per term and stamped as it leaves.

use std::collections::{BTreeMap, VecDeque};

use wire::mix;

use crate::batch::{Batch, Encoded};
use crate::engine::OrderEngine;
use crate::limits;
use crate::sessions::State;

/// The batches that the leader has to propose. Empty at a follower.
#[derive(Debug, Default)]
pub(crate) struct LeaderQueue {
    waiting: VecDeque<Encoded>,
    /// Per origin and incarnation: the last number that was queued in this term.
    queued: BTreeMap<(u8, u64), u64>,
    seed: u64,
    stamps: u64,
    /// Changes the next stamp: an injected fault.
    #[cfg(feature = "inject")]
    pub wrong_stamp: Option<u64>,
}

impl LeaderQueue {
    pub fn new(seed: u64) -> Self {
        LeaderQueue { seed, ..LeaderQueue::default() }
    }

    /// Another term: the new leader starts with an empty queue, and the origins hand over again.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.queued.clear();
        self.correct_stamps();
    }

    /// Batches that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Queues a verified batch if it is the origin's next one; repeats and gaps are dropped (the origin tries again).
    pub fn push(&mut self, batch: &Batch, encoded: Encoded, delivered: &State) -> bool {
        let key = (batch.origin, batch.incarnation);
        let Some(next_delivered) = delivered.next_number(batch.origin, batch.incarnation) else {
            return false;
        };
        let next = self.queued.get(&key).map_or(next_delivered, |&last| next_delivered.max(last + 1));
        if batch.number != next || self.waiting.len() >= limits::LEADER_QUEUE {
            return false;
        }
        // One incarnation per origin: an earlier one proposes nothing more.
        self.queued
            .retain(|&(origin, incarnation), _| origin != batch.origin || incarnation >= batch.incarnation);
        self.queued.insert(key, batch.number);
        self.waiting.push_back(encoded);
        true
    }

    /// Stamps and proposes the waiting batches, while no live replica falls behind by more than `window` entries.
    pub fn propose(&mut self, engine: &mut impl OrderEngine, now_us: u64, window: u64) {
        while engine.backlog() < window {
            let Some(encoded) = self.waiting.front() else { break };
            // `State::admit` makes time grow from batch to batch, at every replica alike.
            let time_us = self.stamp_us(now_us);
            let drain = self.waiting.len() == 1;
            let seed = mix(self.seed ^ mix(self.stamps));
            let Ok(stamped) = encoded.stamped(time_us, seed, drain) else {
                // It was corrupted while it waited here: the origin still has it and hands it over again.
                self.clear();
                break;
            };
            if engine.propose(stamped).is_err() {
                break;
            }
            self.waiting.pop_front();
            self.correct_stamps();
            self.stamps += 1;
        }
    }

    fn stamp_us(&self, now_us: u64) -> u64 {
        #[cfg(feature = "inject")]
        return now_us ^ self.wrong_stamp.unwrap_or(0);
        #[cfg(not(feature = "inject"))]
        now_us
    }

    fn correct_stamps(&mut self) {
        #[cfg(feature = "inject")]
        {
            self.wrong_stamp = None;
        }
    }
}
