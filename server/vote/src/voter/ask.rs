//! Answers to peers that have lost a message or are late.

use smallvec::SmallVec;

use super::dispute::find;
use super::{Ballots, Round, Voter};
use crate::command::To;
use crate::config::Replica;
use crate::event::{Place, keeps_reply};
use crate::limits::*;
use crate::message::{Ask, Message};

impl Voter {
    /// Sends the requested data to a peer again, if it is still stored.
    pub(super) fn on_ask(&mut self, from: Replica, ask: Ask, round: &mut Round<'_>) {
        match ask {
            Ask::Checks { first, count } => answer_checks(&self.ballots, from, first, count, round),
            Ask::Digests { batch } => match self.ballots.own_digests(batch) {
                Some(message) => round.send_one(from, message),
                None => answer_gone(&self.ballots, from, batch, round),
            },
            Ask::Pairs { place, first } => answer_pairs(&self.ballots, from, place, first, round),
            Ask::Reply { place, offset } => answer_reply(&self.ballots, from, place, offset, round),
            Ask::Stance { place } => answer_stance(&self.ballots, from, place, round),
            Ask::Repair { turn, region_id, id, piece } => {
                self.repairs.on_ask(from, turn, (region_id, id), piece, round)
            }
        }
    }
}

fn answer_checks(ballots: &Ballots, from: Replica, first: u64, count: u16, round: &mut Round<'_>) {
    let count = (count as usize).min(MAX_DIGESTS_PER_CHECK) as u64;
    let mut digests: SmallVec<[u128; 2]> = SmallVec::new();
    let mut begin = first;
    for batch in first..first.saturating_add(count) {
        match own_digest(ballots, batch) {
            Some(digest) => digests.push(digest),
            None => {
                if !digests.is_empty() {
                    round.send_one(
                        from,
                        Message::Check { first: begin, digests: std::mem::take(&mut digests) },
                    );
                }
                begin = batch + 1;
                if batch == first {
                    answer_gone(ballots, from, batch, round);
                }
            }
        }
    }
    if !digests.is_empty() {
        round.send_one(from, Message::Check { first: begin, digests });
    }
}

fn own_digest(ballots: &Ballots, batch: u64) -> Option<u128> {
    let me = ballots.config.me();
    match ballots.window.get(batch) {
        Some(record) => record.known.contains(me).then(|| record.digests[me as usize]),
        None => ballots.window.remembered(batch),
    }
}

/// Reports that details are gone; sends nothing about batches that are still to come.
fn answer_gone(ballots: &Ballots, from: Replica, batch: u64, round: &mut Round<'_>) {
    if batch < ballots.window.base() && ballots.window.get(batch).is_none_or(|record| record.own.is_none()) {
        let digest = ballots.window.remembered(batch);
        round.send_one(from, Message::Forgotten { batch, digest });
    }
}

fn answer_pairs(ballots: &Ballots, from: Replica, place: Place, first: u32, round: &mut Round<'_>) {
    let record = ballots.window.get(place.batch);
    match record.and_then(|record| record.requests().get(place.request as usize)) {
        None => answer_gone(ballots, from, place.batch, round),
        Some(own) => match own.failure {
            Some(failure) => round.send_one(from, Message::SelfBlame { place, failure }),
            None => ballots.send_pairs(To::One(from), place, first, round),
        },
    }
}

fn answer_reply(ballots: &Ballots, from: Replica, place: Place, offset: u32, round: &mut Round<'_>) {
    let record = ballots.window.get(place.batch);
    let Some(own) = record.and_then(|record| record.requests().get(place.request as usize)) else {
        return answer_gone(ballots, from, place.batch, round);
    };
    // Longer ones are kept for this replica's own clients only: no peer can request them.
    let Some(reply) = own.reply.as_ref().filter(|reply| keeps_reply(false, reply.len())) else {
        return round.send_one(from, Message::ReplyGone { place });
    };
    let offset = offset as usize;
    if offset < reply.len() {
        let bytes = reply.slice(offset..reply.len().min(offset + MAX_PIECE_BYTES));
        let total = reply.len() as u32;
        round.send_one(from, Message::Reply { place, total, offset: offset as u32, bytes });
    }
}

fn answer_stance(ballots: &Ballots, from: Replica, place: Place, round: &mut Round<'_>) {
    let me = ballots.config.me();
    let Some(record) = ballots.window.get(place.batch) else {
        return answer_gone(ballots, from, place.batch, round);
    };
    let Some(own) = record.requests().get(place.request as usize) else { return };
    let dispute = find(record, place.request);
    let failure = own.failure.or(dispute.and_then(|dispute| dispute.failures[me as usize]));
    match failure {
        Some(failure) => round.send_one(from, Message::SelfBlame { place, failure }),
        None if dispute.is_some_and(|dispute| dispute.stands.contains(me)) => {
            round.send_one(from, Message::Confirm { place });
        }
        None => {}
    }
}
