//! The tokens that executors sent for batches that are not recorded yet, and what they add up to.

use std::collections::BTreeMap;

use crate::limits::{TALLY_BATCHES, TOKENS_PER_BATCH};
use crate::slots::{Slot, Slots};
use crate::version::{StateToken, Version};

/// Tokens by view and batch. Those of one later view than the present one wait until it begins here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tallies {
    votes: BTreeMap<(u64, u64), Vec<TokenVote>>,
}

/// What one executor sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct TokenVote {
    executor: Slot,
    parent: StateToken,
    token: StateToken,
}

/// The tokens for the batch after a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// The token that most executors have, if any continues the record.
    pub(crate) token: Option<StateToken>,
    /// Who sent it.
    pub(crate) agreeing: Slots,
    /// Who sent any token for this batch. One that continues another version is received and lost.
    pub(crate) received: Slots,
    /// Whether tokens that continue the record differ.
    pub(crate) differs: bool,
}

impl Tallies {
    /// Keeps the token, if it is the executor's first for this view, batch and parent, and there is room. `record` is
    /// the record in the present view.
    pub(crate) fn insert(
        &mut self,
        executor: Slot,
        view: u64,
        version: Version,
        parent: StateToken,
        present: (u64, u64),
    ) -> bool {
        let (present_view, recorded) = present;
        if view == present_view {
            if version.number <= recorded || version.number > recorded.saturating_add(TALLY_BATCHES) {
                return false;
            }
        } else if !self.has_room_ahead(view, present_view) {
            return false;
        }
        let votes = self.votes.entry((view, version.number)).or_default();
        let of_executor = || votes.iter().filter(|vote| vote.executor == executor);
        if of_executor().any(|vote| vote.parent == parent) || of_executor().count() == TOKENS_PER_BATCH {
            return false;
        }
        votes.push(TokenVote { executor, parent, token: version.token });
        votes.sort_unstable();
        true
    }

    /// Of later views only the highest is kept, and of that one no more batches than of the present one.
    fn has_room_ahead(&mut self, view: u64, present_view: u64) -> bool {
        let highest = self.votes.keys().next_back().map_or(present_view, |key| key.0);
        if view < present_view || view < highest {
            return false;
        }
        if view > highest {
            self.votes.retain(|key, _| key.0 <= present_view);
        }
        self.votes.range((view, 0)..).count() < TALLY_BATCHES as usize
    }

    /// Flips a bit of one of the tokens; false if there is none: an injected fault.
    #[cfg(any(test, feature = "unprotected"))]
    pub(crate) fn corrupt(&mut self, seed: u64) -> bool {
        let votes = self.votes.values_mut().flatten();
        let Some(at) = (seed >> 8).checked_rem(votes.count() as u64) else { return false };
        let hit = self.votes.values_mut().flatten().nth(at as usize);
        hit.map(|vote| vote.token.0 ^= 1 << (seed % 128)).is_some()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.votes.values().map(Vec::len).sum()
    }

    /// Drops what is recorded or of an earlier view.
    pub(crate) fn drop_until(&mut self, view: u64, number: u64) {
        self.votes.retain(|key, _| *key > (view, number));
    }

    /// Whether a batch after the record is known in this view.
    pub(crate) fn knows_more(&self, view: u64) -> bool {
        self.votes.range((view, 0)..=(view, u64::MAX)).next().is_some()
    }

    /// The tokens for the batch after `record`.
    pub(crate) fn count(&self, view: u64, record: Version, executors: Slots, parents: bool) -> Count {
        let mut count = Count::default();
        let Some(votes) = self.votes.get(&(view, record.number.saturating_add(1))) else { return count };
        let mut by_token: BTreeMap<StateToken, Slots> = BTreeMap::new();
        for vote in votes.iter().filter(|vote| executors.contains(vote.executor)) {
            count.received = count.received.with(vote.executor);
            if vote.parent == record.token || !parents {
                let agreeing = by_token.entry(vote.token).or_default();
                *agreeing = agreeing.with(vote.executor);
            }
        }
        count.differs = by_token.len() > 1;
        for (token, agreeing) in by_token {
            if agreeing.len() > count.agreeing.len() {
                (count.token, count.agreeing) = (Some(token), agreeing);
            }
        }
        count
    }
}
