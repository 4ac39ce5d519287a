//! Actions that depend on time: lost messages are requested again, and batches that were kept long enough are dropped.

use super::dispute::{find, right_delta};
use super::{Ballots, Round, Voter};
use crate::classify::{Status, classify};
use crate::config::{Replica, Set};
use crate::event::Place;
use crate::limits::*;
use crate::message::{Ask, Message};
use crate::record::Record;

impl Voter {
    pub(super) fn on_tick(&mut self, round: &mut Round<'_>) {
        self.ask_again(round);
        self.replies.tick_fetches(&mut self.ballots, round);
        self.tick_settling(round);
        self.repairs.tick(self.ballots.live, &mut self.ballots.counters, round);
        self.ballots.unpark(round);
        self.advance(round);
    }

    /// Requests the data that unfinished batches lack: first for those with a reply that a client waits for, then for
    /// the oldest.
    fn ask_again(&mut self, round: &mut Round<'_>) {
        let now_us = round.now_us;
        let open = self.ballots.window.base()..self.ballots.window.end();
        let parked: Vec<u64> = self.ballots.window.parked.keys().copied().collect();
        let due = |record: &Record| {
            let since = record.executed_us.max(record.requested_us);
            record.own.is_some() && !record.finished && now_us.saturating_sub(since) >= ASK_AFTER_US
        };
        let is_awaited = |batch: &u64| {
            self.ballots.window.get(*batch).is_some_and(|record| record.owed > 0 && due(record))
        };
        let awaited = parked.iter().copied().chain(open.clone()).filter(is_awaited);
        let awaited: Vec<u64> = awaited.take(BATCHES_PER_TICK).collect();
        let oldest = parked.into_iter().chain(open).take(BATCHES_PER_TICK);
        let mut asks: Vec<(Replica, Ask)> = Vec::new();
        for batch in awaited.into_iter().chain(oldest) {
            if asks.len() >= ASKS_PER_TICK {
                break;
            }
            let Some(record) = self.ballots.window.get_mut(batch).filter(|record| due(record)) else {
                continue;
            };
            record.requested_us = now_us;
            self.ballots.lacking(batch, &mut asks);
        }
        self.ballots.counters.asks_sent += asks.len() as u64;
        for (replica, ask) in asks {
            round.send_one(replica, Message::Ask(ask));
        }
    }
}

impl Ballots {
    /// Drops batches with a mismatch that have been decided, and that no peer has requested for long enough.
    fn unpark(&mut self, round: &mut Round<'_>) {
        let over =
            |record: &Record| record.finished && round.now_us.saturating_sub(record.details_us) >= LINGER_US;
        let old: Vec<u64> =
            self.window.parked.iter().filter(|(_, r)| over(r)).map(|(batch, _)| *batch).collect();
        for batch in old {
            if let Some(record) = self.window.parked.remove(&batch) {
                self.window.on_gone(batch, &record);
            }
        }
    }

    /// The data that one batch lacks, and the replicas that could send it.
    fn lacking(&self, batch: u64, asks: &mut Vec<(Replica, Ask)>) {
        let me = self.config.me();
        let Some(record) = self.window.get(batch) else { return };
        let peers = self.live_at(batch).minus(record.gone).without(me);
        peers.minus(record.known).iter().for_each(|replica| ask_check(asks, replica, batch));
        let Some(details) = record.details.as_ref() else { return };
        let agreeing = record.agreeing_with(me);
        for replica in peers.minus(agreeing).iter().filter(|r| details.stated[*r as usize].is_none()) {
            asks.push((replica, Ask::Digests { batch }));
        }
        for (request, _) in details.disputes.iter().filter(|(_, dispute)| !dispute.done) {
            self.lacking_pairs(record, Place::new(batch, *request), peers, asks);
        }
    }

    fn lacking_pairs(&self, record: &Record, place: Place, peers: Set, asks: &mut Vec<(Replica, Ask)>) {
        let votes = self.votes(record, place.request);
        let verdict = classify(&votes, self.config.sizes.quorum_at(place.batch));
        let Some(dispute) = find(record, place.request) else { return };
        let unknown =
            verdict.majority.is_none_or(|agreed| right_delta(record, place.request, agreed).is_none());
        let wanted = if unknown { peers } else { peers.minus(verdict.with(Status::Valid)) };
        for replica in wanted.minus(dispute.closed).iter() {
            let delta = dispute.deltas[replica as usize].as_ref().filter(|delta| {
                // Complete and still not the agreed delta: a fault hit it in transit, so it is requested from the
                // beginning again.
                !(delta.is_complete()
                    && delta.is_whole()
                    && verdict.of(replica) == Status::Valid
                    && delta.digest() != verdict.majority)
            });
            if !delta.is_some_and(|delta| delta.is_complete()) && !votes[replica as usize].is_blamed() {
                let first = delta.map_or(0, |delta| delta.pairs.len() as u32);
                asks.push((replica, Ask::Pairs { place, first }));
            }
            let silent = !votes[replica as usize].is_blamed() && !dispute.stands.contains(replica);
            if verdict.majority.is_none() && silent {
                asks.push((replica, Ask::Stance { place }));
            }
        }
    }
}

/// Requests a batch digest; consecutive ones of one replica share an ask.
fn ask_check(asks: &mut Vec<(Replica, Ask)>, replica: Replica, batch: u64) {
    let last = asks.iter_mut().rev().find(|(to, ask)| *to == replica && matches!(ask, Ask::Checks { .. }));
    if let Some((_, Ask::Checks { first, count })) = last
        && *first + *count as u64 == batch
        && (*count as usize) < MAX_DIGESTS_PER_CHECK
    {
        *count += 1;
        return;
    }
    asks.push((replica, Ask::Checks { first: batch, count: 1 }));
}
