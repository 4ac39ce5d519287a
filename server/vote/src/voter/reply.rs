//! Replies that are wrong or missing here are replaced by a peer's bytes that match the agreed digest.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{Ballots, Case, Round};
use crate::command::{Command, Dropped};
use crate::config::{Replica, Set};
use crate::digest::{self, Answer};
use crate::event::{Place, RequestInfo};
use crate::evidence::FaultStage;
use crate::limits::*;
use crate::message::{Ask, Message};
use crate::record::Delta;

/// The replies that this replica owes its clients: they leave, are fetched from peers where they are wrong here, or
/// are dropped.
#[derive(Debug, Default)]
pub(crate) struct OwedReplies {
    /// The replies that are fetched.
    open: BTreeMap<Place, Fetch>,
    /// Those that wait to be fetched.
    waiting: BTreeSet<Place>,
    /// The number of those that are being fetched now.
    running: usize,
    /// Bytes of those that are being fetched now.
    bytes: u64,
}

/// One reply that is being fetched.
#[derive(Debug)]
struct Fetch {
    /// This replica's checksum of the request, and once it is known that of the right answer: bytes that answer another
    /// request are not accepted.
    request_checksum: u32,
    /// Length and digest that f+1 replicas agreed on; unknown until a peer's pairs have come.
    wanted: Option<(u64, u128)>,
    got: Vec<u8>,
    /// Replicas that agree on the reply.
    sources: Set,
    /// Replicas that reported that they do not keep its bytes.
    struck_off: Set,
    tried: Set,
    source: Option<Replica>,
    is_running: bool,
    since_us: u64,
    requested_us: u64,
}

impl OwedReplies {
    /// The first request whose reply is fetched.
    pub(super) fn first(&self) -> Option<Place> {
        self.open.keys().next().copied()
    }

    /// Bytes of the replies that are being fetched now.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes one, because it is given up or complete.
    pub(super) fn remove(&mut self, place: Place) -> Option<Vec<u8>> {
        let fetch = self.open.remove(&place)?;
        self.waiting.remove(&place);
        if fetch.is_running {
            self.running -= 1;
            self.bytes -= fetch.length();
        }
        Some(fetch.got)
    }

    /// Starts the next one, if there is room for another.
    fn start_next(&mut self) -> Option<Place> {
        let place = *self.waiting.first()?;
        let fetch = self.open.get_mut(&place)?;
        if self.running == FETCHES || self.bytes + fetch.length() > FETCH_BYTES as u64 {
            return None;
        }
        fetch.is_running = true;
        self.running += 1;
        self.bytes += fetch.length();
        self.waiting.pop_first()
    }
}

impl Fetch {
    fn new(request_checksum: u32, now_us: u64) -> Self {
        Fetch {
            request_checksum,
            wanted: None,
            got: Vec::new(),
            sources: Set::EMPTY,
            struck_off: Set::EMPTY,
            tried: Set::EMPTY,
            source: None,
            is_running: false,
            since_us: now_us,
            requested_us: now_us,
        }
    }

    fn length(&self) -> u64 {
        self.wanted.map_or(0, |(length, _)| length)
    }

    /// Whether the right digest is known and no replica that agrees on it keeps the bytes.
    fn has_no_source(&self) -> bool {
        self.wanted.is_some() && self.sources.minus(self.struck_off).is_empty()
    }
}

impl OwedReplies {
    /// Begins to fetch a reply, or continues when its digest has become known.
    pub(super) fn fetch(
        &mut self,
        place: Place,
        right: Option<&Delta>,
        valid: Set,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        let me = ballots.config.me();
        let own = ballots
            .window
            .get(place.batch)
            .and_then(|record| record.requests().get(usize::from(place.request)));
        let Some(request_checksum) = own.map(|own| own.request_info.checksum) else { return };
        let fetch = self.open.entry(place).or_insert_with(|| Fetch::new(request_checksum, round.now_us));
        fetch.sources = fetch.sources.or(valid.without(me));
        if fetch.wanted.is_some() {
            return;
        }
        let Some(Answer { request_checksum: right, bytes, digest, .. }) = right.map(|right| right.answer)
        else {
            return;
        };
        fetch.wanted = Some((bytes, digest));
        fetch.request_checksum = right;
        // The others' answer belongs to another request than that of this replica's client: this replica has exchanged
        // two requests. And no replica keeps a long reply for another one.
        let is_other = !digest::are_of_one_request(right, request_checksum);
        if is_other || bytes > KEPT_REPLY_BYTES_MAX as u64 || fetch.has_no_source() {
            return self.drop_reply(place, Dropped::NotFetched, ballots, round);
        }
        if bytes == 0 && digest::reply(right, &[]) == digest {
            return self.reply_repaired(place, ballots, round);
        }
        self.waiting.insert(place);
    }

    /// Starts waiting fetches as far as there is room.
    pub(super) fn start_fetches(&mut self, ballots: &mut Ballots, round: &mut Round<'_>) {
        while let Some(place) = self.start_next() {
            self.fetch_from_next(place, ballots, round);
        }
    }

    /// A part of a reply. Parts come in order from one source; any other part is requested again.
    pub(super) fn on_reply(
        &mut self,
        from: Replica,
        place: Place,
        (total, offset): (u32, u32),
        bytes: &Bytes,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        let Some(fetch) = self.open.get_mut(&place) else { return };
        let Some((length, digest)) = fetch.wanted else { return };
        if fetch.source != Some(from) || offset as usize != fetch.got.len() {
            return;
        }
        let end = offset as u64 + bytes.len() as u64;
        if total as u64 == length && end <= length && !bytes.is_empty() {
            // f+1 replicas agreed on the length.
            fetch.got.reserve_exact(length as usize - fetch.got.len());
            fetch.got.extend_from_slice(bytes);
            if end < length {
                fetch.requested_us = round.now_us;
                return round.send_one(from, Message::Ask(Ask::Reply { place, offset: end as u32 }));
            }
            if digest::reply(fetch.request_checksum, &fetch.got) == digest {
                return self.reply_repaired(place, ballots, round);
            }
        }
        let case =
            Case { batch: place.batch, request: Some(place.request), kind: 0, stage: FaultStage::Message };
        ballots.evidence(from, case, None, &[], round);
        self.fetch_from_next(place, ballots, round);
    }

    fn reply_repaired(&mut self, place: Place, ballots: &mut Ballots, round: &mut Round<'_>) {
        let digest = self.open.get(&place).and_then(|fetch| fetch.wanted).map(|(_, digest)| digest);
        let Some(reply) = self.remove(place).map(Bytes::from) else { return };
        if let Some(digest) = digest
            && ballots.close_owed(place)
        {
            ballots.counters.replies_repaired += 1;
            round.commands.push(Command::ReplyRepaired { place, reply, digest });
        }
        ballots.finish(place.batch);
    }

    /// Requests the reply from the next source from the beginning, if it is being fetched now.
    fn fetch_from_next(&mut self, place: Place, ballots: &mut Ballots, round: &mut Round<'_>) {
        let live = ballots.live;
        let Some(fetch) = self.open.get_mut(&place).filter(|fetch| fetch.is_running) else { return };
        fetch.got.clear();
        let candidates = fetch.sources.minus(fetch.struck_off).and(live);
        if candidates.minus(fetch.tried).is_empty() {
            // All sources were tried; a lost message may have been the only reason.
            fetch.tried = Set::EMPTY;
        }
        fetch.source = candidates.minus(fetch.tried).lowest();
        fetch.requested_us = round.now_us;
        if let Some(source) = fetch.source {
            fetch.tried.insert(source);
            ballots.counters.asks_sent += 1;
            round.send_one(source, Message::Ask(Ask::Reply { place, offset: 0 }));
        }
    }

    /// A source has no details of a batch any more: it does not have its replies.
    pub(super) fn fetch_elsewhere(
        &mut self,
        from: Replica,
        batch: u64,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        let of_batch = Place::new(batch, 0)..=Place::new(batch, u16::MAX);
        let places: Vec<Place> = self.open.range(of_batch).map(|(place, _)| *place).collect();
        places.into_iter().for_each(|place| self.on_reply_gone(from, place, ballots, round));
    }

    /// A source does not keep the bytes of one reply: another one may.
    pub(super) fn on_reply_gone(
        &mut self,
        from: Replica,
        place: Place,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        let Some(fetch) = self.open.get_mut(&place) else { return };
        fetch.struck_off.insert(from);
        if fetch.has_no_source() {
            self.drop_reply(place, Dropped::NotFetched, ballots, round);
        } else if fetch.source == Some(from) {
            self.fetch_from_next(place, ballots, round);
        }
    }

    pub(super) fn tick_fetches(&mut self, ballots: &mut Ballots, round: &mut Round<'_>) {
        let now_us = round.now_us;
        let is_over = |fetch: &Fetch| now_us.saturating_sub(fetch.since_us) >= FETCH_GIVE_UP_US;
        for place in self.fetches_that(is_over) {
            self.drop_reply(place, Dropped::NotFetched, ballots, round);
        }
        let is_due = |fetch: &Fetch| {
            let waits = fetch.wanted.is_some() && !fetch.is_running;
            !waits && now_us.saturating_sub(fetch.requested_us) >= ASK_AFTER_US
        };
        for place in self.fetches_that(is_due).into_iter().take(ASKS_PER_TICK) {
            let Some(fetch) = self.open.get_mut(&place) else { continue };
            if fetch.wanted.is_none() {
                // Any agreeing peer's pairs have the digest of the right reply; they were lost, or never sent.
                fetch.requested_us = now_us;
                let sources = fetch.sources.and(ballots.live);
                ballots.counters.asks_sent += sources.len() as u64;
                sources
                    .iter()
                    .for_each(|peer| round.send_one(peer, Message::Ask(Ask::Pairs { place, first: 0 })));
            } else {
                self.fetch_from_next(place, ballots, round);
            }
        }
    }

    fn fetches_that(&self, hold: impl Fn(&Fetch) -> bool) -> Vec<Place> {
        self.open.iter().filter(|(_, fetch)| hold(fetch)).map(|(place, _)| *place).collect()
    }

    pub(super) fn drop_reply(
        &mut self,
        place: Place,
        why: Dropped,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        self.remove(place);
        if ballots.close_owed(place) {
            round.commands.push(Command::DropReply { place, why });
        }
        ballots.resume(place, round);
        ballots.finish(place.batch);
    }

    /// Drops every reply of a batch that is still owed.
    pub(super) fn drop_replies(&mut self, batch: u64, ballots: &mut Ballots, round: &mut Round<'_>) {
        let count = ballots.window.get(batch).map_or(0, |record| record.requests().len());
        for request in 0..count as u16 {
            self.drop_reply(Place::new(batch, request), Dropped::WindowClosed, ballots, round);
        }
    }
}

impl Ballots {
    /// This replica has failed at a request that it need not answer, and the right reply has parts: one of them may be
    /// for a client here. Returns whether the reply is owed now.
    pub(super) fn owe_parts(&mut self, place: Place, right: Option<&Delta>) -> bool {
        let Some(record) = self.window.get_mut(place.batch) else { return false };
        let own = record.own.as_mut().and_then(|own| own.get_mut(usize::from(place.request)));
        let (Some(own), Some(right)) = (own, right) else { return false };
        let RequestInfo { checksum, mine, .. } = &mut own.request_info;
        let has_parts = right.answer.request_checksum == digest::with_parts(*checksum);
        if has_parts && !*mine {
            *mine = true;
            record.owed += 1;
        }
        has_parts
    }

    /// Marks a reply as no longer owed, and drops this replica's bytes of it; false when it was not owed.
    fn close_owed(&mut self, place: Place) -> bool {
        let Some(record) = self.window.get_mut(place.batch) else { return false };
        let Some(result) = record.own.as_mut().and_then(|own| own.get_mut(place.request as usize)) else {
            return false;
        };
        let owed = std::mem::replace(&mut result.request_info.mine, false);
        record.owed -= owed as u16;
        if owed {
            self.window.take_owed(place);
        }
        owed
    }
}
