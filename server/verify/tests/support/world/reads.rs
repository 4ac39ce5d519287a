//! Reads that one replica answers: what the verifiers would tell it in a state.

use verify::TokenRecord;

use crate::support::table::prefix;

use super::{Machine, World, WorldState};

impl World {
    /// Whether verifiers that are enough to bind a read may answer so that it misses what executors have acted on.
    ///
    /// The answers of a round are given at different times. A state in which a record is too old is found at the time
    /// of that answer: records only grow in rank, so all answers of a round are covered by the states in which they are
    /// given, if in each of them every record is compared with every other one.
    pub(super) fn reads_may_be_stale(&self, state: &WorldState) -> bool {
        let enough = if self.rules.read_quorum { self.layout.quorum() } else { 1 };
        let record = |part: usize| match self.tables.machines.value(state.parts[part]) {
            Machine::Verifier(verifier) => verifier.record(),
            Machine::Executor(_) => None,
        };
        let records: Vec<TokenRecord> = (0..self.verifiers()).filter_map(record).collect();
        let continues = |record: &TokenRecord| {
            let acted = state.acted;
            record.version.number >= acted.number
                && prefix(record.version.token, acted.number) == prefix(acted.token, acted.number)
        };
        (0u32..1 << records.len()).filter(|chosen| chosen.count_ones() as usize == enough).any(|chosen| {
            let chosen = records.iter().enumerate().filter(|(at, _)| chosen & (1 << at) != 0);
            let newest = chosen.map(|(_, record)| record).max_by_key(|one| (one.view, one.version.number));
            newest.is_some_and(|newest| !continues(newest))
        })
    }
}
