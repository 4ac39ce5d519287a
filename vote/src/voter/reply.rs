//! Replies that are wrong or missing here are replaced by a peer's bytes that match the agreed digest.

use bytes::Bytes;

use super::{Case, Round, Voter};
use crate::command::{Command, Dropped};
use crate::config::{Replica, Set};
use crate::digest::{self, Answer};
use crate::event::Place;
use crate::evidence::FaultStage;
use crate::limits::*;
use crate::message::{Ask, Message};
use crate::record::Delta;

/// One reply that is being fetched.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// Checksum of the request, as this replica has it: bytes that answer another one are not taken.
    asked: u32,
    /// Length and digest that f+1 replicas agreed on; unknown until a peer's pairs have come.
    wanted: Option<(u64, u128)>,
    got: Vec<u8>,
    /// Replicas that agree on the reply.
    sources: Set,
    tried: Set,
    source: Option<Replica>,
    since_us: u64,
    asked_us: u64,
}

impl Voter {
    /// Begins to fetch a reply, or goes on when its digest has become known.
    pub(super) fn fetch(&mut self, place: Place, right: Option<&Delta>, valid: Set, round: &mut Round<'_>) {
        let me = self.config.me();
        let now_us = round.now_us;
        let own =
            self.window.get(place.batch).and_then(|record| record.requests().get(usize::from(place.request)));
        let Some(asked) = own.map(|own| own.asked.checksum) else { return };
        let fetch = self.fetches.entry(place).or_insert_with(|| Fetch {
            asked,
            wanted: None,
            got: Vec::new(),
            sources: Set::EMPTY,
            tried: Set::EMPTY,
            source: None,
            since_us: now_us,
            asked_us: now_us,
        });
        fetch.sources = fetch.sources.or(valid.without(me));
        if fetch.wanted.is_some() {
            return;
        }
        let Some(Answer { asked: right, bytes, digest, .. }) = right.map(|right| right.answer) else {
            return;
        };
        fetch.wanted = Some((bytes, digest));
        // What the others answer is not what this replica's client asked: it has mistaken one request for another.
        if right != asked || bytes > MAX_REPLY_BYTES as u64 {
            return self.drop_reply(place, Dropped::NotFetched, round);
        }
        self.fetch_from_next(place, round);
    }

    /// A part of a reply. Parts come in order from one source; anything else is asked for again.
    pub(super) fn on_reply(
        &mut self,
        from: Replica,
        place: Place,
        (total, offset): (u32, u32),
        bytes: &Bytes,
        round: &mut Round<'_>,
    ) {
        let Some(fetch) = self.fetches.get_mut(&place) else { return };
        let Some((length, digest)) = fetch.wanted else { return };
        if fetch.source != Some(from) || offset as usize != fetch.got.len() {
            return;
        }
        let end = offset as u64 + bytes.len() as u64;
        if total as u64 == length && end <= length && !bytes.is_empty() {
            fetch.got.extend_from_slice(bytes);
            if end < length {
                fetch.asked_us = round.now_us;
                return round.send_one(from, Message::Ask(Ask::Reply { place, offset: end as u32 }));
            }
            if digest::reply(fetch.asked, &fetch.got) == digest {
                return self.reply_repaired(place, round);
            }
        }
        self.counters.bad_messages += 1;
        let case =
            Case { batch: place.batch, request: Some(place.request), kind: 0, stage: FaultStage::Message };
        self.evidence(from, case, None, &[], round);
        self.fetch_from_next(place, round);
    }

    fn reply_repaired(&mut self, place: Place, round: &mut Round<'_>) {
        let Some(fetch) = self.fetches.remove(&place) else { return };
        if let Some((_, digest)) = fetch.wanted
            && self.settle_owed(place)
        {
            self.counters.replies_repaired += 1;
            round.commands.push(Command::ReplyRepaired { place, reply: Bytes::from(fetch.got), digest });
        }
        self.finish(place.batch);
    }

    /// Asks the next source from the beginning, or gives up.
    fn fetch_from_next(&mut self, place: Place, round: &mut Round<'_>) {
        let live = self.live;
        let Some(fetch) = self.fetches.get_mut(&place) else { return };
        let Some((length, digest)) = fetch.wanted else { return };
        fetch.got.clear();
        if length == 0 && digest::reply(fetch.asked, &[]) == digest {
            return self.reply_repaired(place, round);
        }
        let candidates = fetch.sources.and(live);
        if candidates.minus(fetch.tried).is_empty() {
            // Once around; a lost message may have been the only reason.
            fetch.tried = Set::EMPTY;
        }
        fetch.source = candidates.minus(fetch.tried).lowest();
        fetch.asked_us = round.now_us;
        if let Some(source) = fetch.source {
            fetch.tried.insert(source);
            self.counters.asks_sent += 1;
            round.send_one(source, Message::Ask(Ask::Reply { place, offset: 0 }));
        }
    }

    /// A source has no details any more: its reply is not to be had.
    pub(super) fn fetch_elsewhere(&mut self, from: Replica, batch: u64, round: &mut Round<'_>) {
        let of_batch = Place::new(batch, 0)..=Place::new(batch, u16::MAX);
        let places: Vec<Place> = self.fetches.range(of_batch).map(|(place, _)| *place).collect();
        for place in places {
            let Some(fetch) = self.fetches.get_mut(&place) else { continue };
            fetch.sources.remove(from);
            if fetch.source == Some(from) {
                fetch.source = None;
            }
            match fetch.sources.is_empty() && fetch.wanted.is_some() {
                true => self.drop_reply(place, Dropped::NotFetched, round),
                false => self.fetch_from_next(place, round),
            }
        }
    }

    pub(super) fn tick_fetches(&mut self, round: &mut Round<'_>) {
        let now_us = round.now_us;
        let due = |fetch: &Fetch| now_us.saturating_sub(fetch.asked_us) >= ASK_AFTER_US;
        let late: Vec<Place> =
            self.fetches.iter().filter(|(_, fetch)| due(fetch)).map(|(place, _)| *place).collect();
        for place in late.into_iter().take(ASKS_PER_TICK) {
            let Some(fetch) = self.fetches.get_mut(&place) else { continue };
            if now_us.saturating_sub(fetch.since_us) >= FETCH_GIVE_UP_US {
                self.drop_reply(place, Dropped::NotFetched, round);
            } else if fetch.wanted.is_none() {
                // Which reply is right stands in any agreeing peer's pairs; they were lost, or never sent.
                fetch.asked_us = now_us;
                let sources = fetch.sources.and(self.live);
                self.counters.asks_sent += sources.len() as u64;
                sources
                    .iter()
                    .for_each(|peer| round.send_one(peer, Message::Ask(Ask::Pairs { place, first: 0 })));
            } else {
                self.fetch_from_next(place, round);
            }
        }
    }

    pub(super) fn drop_reply(&mut self, place: Place, why: Dropped, round: &mut Round<'_>) {
        self.fetches.remove(&place);
        if self.settle_owed(place) {
            self.counters.replies_dropped += 1;
            round.commands.push(Command::DropReply { place, why });
        }
        self.resume(place, round);
        self.finish(place.batch);
    }

    /// Drops every reply of a batch that is still owed.
    pub(super) fn drop_replies(&mut self, batch: u64, round: &mut Round<'_>) {
        let count = self.window.get(batch).map_or(0, |record| record.requests().len());
        for request in 0..count as u16 {
            self.drop_reply(Place::new(batch, request), Dropped::WindowClosed, round);
        }
    }

    /// Marks a reply as no longer owed; false when it was not owed.
    fn settle_owed(&mut self, place: Place) -> bool {
        let Some(record) = self.window.get_mut(place.batch) else { return false };
        let Some(result) = record.own.as_mut().and_then(|own| own.get_mut(place.request as usize)) else {
            return false;
        };
        let owed = std::mem::replace(&mut result.asked.mine, false);
        record.owed -= owed as u16;
        owed
    }
}
