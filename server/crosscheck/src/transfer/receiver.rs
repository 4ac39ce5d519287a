//! The receiving side, until it has a state that f+1 peers agree on.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{DIGESTS, Message, Offer, StateEnd, WHOLE};
use crate::limits;
use crate::packed_state;

/// Pieces that were requested and have not arrived: 8 MiB, or 250 MB/s where an answer takes 32 ms, as beside a load.
const WINDOW: u32 = 32;
/// Pieces after which donors are told that they were taken.
const TOLD: u32 = 16;

/// Takes a state from donors that do not have to be trusted.
#[derive(Debug)]
pub struct Receiver {
    me: u8,
    replicas: u8,
    /// Log index below which a state is of no use; 0 while it is not known which one is needed.
    at_least: u64,
    offers: BTreeMap<u8, Offered>,
    fetching: Option<Fetching>,
    /// The state that was given up last: it is not begun again.
    given_up: Option<u64>,
    /// A donor that is trusted without the agreement of others.
    trusted: Option<u8>,
    /// The leader, with its state, if it says that nothing can be ordered without this replica; and since when.
    lonely: Option<(u8, u64, Option<u64>)>,
    /// The donor whose state is taken although nobody else has offered the same.
    believes: Option<u8>,
    /// The state proves itself at its end: any donor may be the one that is believed.
    proves: bool,
    /// A donor that has offered a wrong one: another one comes first.
    distrusted: Option<u8>,
    /// Since when no f+1 donors have offered alike what one of them has.
    differ_since_us: Option<u64>,
    /// States before this log index are of no use, whichever one is needed.
    floor: u64,
    /// When the donors were asked last, and how many pieces were taken then.
    asked: Option<(u64, u32)>,
}

/// What a donor has offered.
#[derive(Debug)]
struct Offered {
    copy: u64,
    /// Of its pieces so far.
    digests: Vec<u128>,
    end: Option<StateEnd>,
}

/// The state that is being fetched.
#[derive(Debug)]
struct Fetching {
    copy: u64,
    /// Digests of its pieces, and its end, as far as f+1 donors have agreed.
    agreed: Vec<u128>,
    end: Option<StateEnd>,
    /// Pieces that the caller has got, and their bytes.
    taken: u32,
    bytes: u64,
    /// Later pieces that have arrived.
    arrived: BTreeMap<u32, Bytes>,
    /// The first piece that was never requested.
    next: u32,
    /// For each requested piece, when it is requested again, and its donor.
    requested: BTreeMap<u32, (u64, u8)>,
}

/// How far a state has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Donors, from 0, that offer it.
    pub from: Vec<u8>,
    /// Bytes that have come.
    pub bytes: u64,
    /// Pieces that have come.
    pub pieces: u32,
    /// Where it ends; none while that is not known.
    pub end: Option<StateEnd>,
}

/// A piece that f+1 donors agree on.
#[derive(Debug)]
pub struct TakenPiece {
    /// It belongs to a state that was packed at once.
    pub is_packed_at_once: bool,
    /// Its number.
    pub number: u32,
    /// Its bytes.
    pub bytes: Bytes,
}

impl Receiver {
    /// A receiver at replica `me` of `replicas`, for a state of log index `at_least` or later.
    pub fn new(me: u8, replicas: u8, at_least: u64) -> Self {
        Receiver {
            me,
            replicas,
            at_least,
            offers: BTreeMap::new(),
            fetching: None,
            given_up: None,
            trusted: None,
            lonely: None,
            believes: None,
            proves: false,
            distrusted: None,
            differ_since_us: None,
            floor: 0,
            asked: None,
        }
    }

    /// The state proves itself at its end: what one donor alone offers is taken if f+1 have not offered the same for a
    /// while. Rather not from the `distrusted` one.
    pub fn believe_one(&mut self, distrusted: Option<u8>) {
        (self.proves, self.distrusted) = (true, distrusted);
    }

    /// States before this log index are of no use, whichever one is needed.
    pub fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        self.drop_late();
    }

    /// Log index this receiver was made for; 0 if that is not known yet.
    pub fn wanted(&self) -> u64 {
        self.at_least
    }

    /// It is known now that the state at log index `at_least` is needed.
    pub fn need(&mut self, at_least: u64) {
        (self.at_least, self.asked) = (at_least, None);
        self.drop_late();
    }

    fn is_late(&self, end: Option<StateEnd>) -> bool {
        end.is_some_and(|end| end.index < self.at_least.max(self.floor))
    }

    fn drop_late(&mut self) {
        let mut offers = std::mem::take(&mut self.offers);
        offers.retain(|_, offer| !self.is_late(offer.end));
        self.offers = offers;
        if self.fetching.as_ref().is_some_and(|fetching| self.is_late(fetching.end)) {
            (self.fetching, self.believes) = (None, None);
        }
    }

    /// Trusts this donor alone, as an operator decided: no other replica has the state any more.
    pub fn trust(&mut self, donor: u8) {
        self.trusted = Some(donor);
        self.asked = None;
    }

    /// The donor whose state is taken on its word alone: f+1 others do not have the same.
    pub fn believes(&self) -> Option<u8> {
        self.believes
    }

    /// How far the state has come; none before there is agreement on one.
    pub fn progress(&self) -> Option<Progress> {
        let Fetching { copy, taken, bytes, arrived, end, .. } = self.fetching.as_ref()?;
        Some(Progress {
            from: self.donors_of(*copy).collect(),
            bytes: bytes + arrived.values().map(|piece| piece.len() as u64).sum::<u64>(),
            pieces: taken + arrived.len() as u32,
            end: *end,
        })
    }

    /// Whether enough donors have offered the same state, as far as it has come.
    pub fn is_agreed(&self) -> bool {
        let agrees = |fetching: &Fetching| {
            let all = fetching.end.map(|end| end.pieces as usize);
            fetching.agreed.len() > fetching.taken as usize || all == Some(fetching.agreed.len())
        };
        self.fetching.as_ref().is_some_and(agrees)
    }

    /// The digests of its pieces that were agreed on.
    pub fn digests(&self) -> &[u128] {
        self.fetching.as_ref().map_or(&[], |fetching| &fetching.agreed)
    }

    /// Donors that have offered a state.
    pub fn named(&self) -> impl Iterator<Item = u8> + '_ {
        self.offers.keys().copied()
    }

    /// Whether the donors have made a later checkpoint than the requested one; its log index.
    pub fn overtaken_by(&self) -> Option<u64> {
        let end = self.fetching.as_ref()?.end?;
        (self.at_least > 0 && end.index > self.at_least).then_some(end.index)
    }

    /// Gives up the state that is being fetched: its donors differ.
    pub fn give_up(&mut self) {
        self.given_up = self.fetching.take().map(|fetching| fetching.copy).or(self.given_up);
        (self.lonely, self.believes, self.asked) = (None, None, None);
        self.differ_since_us = None;
    }

    /// Another peer is connected. It gets a request at once, since f+1 donors are needed.
    pub fn on_up(&mut self) {
        self.asked = None;
    }

    /// Messages to send at `now_us`: requests that were never sent, and those that were sent too long ago.
    pub fn poll(&mut self, now_us: u64) -> Vec<(u8, Message)> {
        self.believe(now_us);
        self.choose();
        self.extend_agreed();
        self.settle_on_one(now_us);
        let mut asks = self.ask(now_us);
        let Some(mut fetching) = self.fetching.take() else { return asks };
        let patience_us = limits::TRANSFER_PATIENCE.as_micros() as u64;
        let copy = fetching.copy;
        for (piece, (again_us, donor)) in &mut fetching.requested {
            if now_us >= *again_us {
                *again_us = now_us + patience_us;
                *donor = self.next_donor(&fetching.agreed, (copy, *piece), *donor);
                asks.push((*donor, Message::AskPiece { copy, piece: *piece }));
            }
        }
        while fetching.next < (fetching.taken + WINDOW).min(fetching.agreed.len() as u32) {
            let piece = fetching.next;
            let first = (piece % u32::from(self.replicas)) as u8;
            let donor = self.next_donor(&fetching.agreed, (copy, piece), first);
            fetching.requested.insert(piece, (now_us + patience_us, donor));
            asks.push((donor, Message::AskPiece { copy, piece }));
            fetching.next += 1;
        }
        self.fetching = Some(fetching);
        asks
    }

    /// Takes a donor's answer, which may come from the leader.
    pub fn on_message(&mut self, from: u8, message: Message, is_leader: bool) {
        match message {
            Message::Offer(offer) => self.on_offer(from, offer, is_leader),
            Message::Piece { copy, piece, bytes } => self.on_piece(copy, piece, &bytes),
            Message::Nothing { copy } => self.on_nothing(from, copy),
            Message::AskState { .. }
            | Message::AskPiece { .. }
            | Message::AskObjects { .. }
            | Message::Objects { .. }
            | Message::AskHealth { .. }
            | Message::Healthy { .. } => {}
        }
    }

    /// The number of the next piece, if it has come, and whether its state was packed at once.
    pub fn next_piece(&self) -> Option<(u32, bool)> {
        let Fetching { copy, taken, arrived, .. } = self.fetching.as_ref()?;
        arrived.contains_key(taken).then_some((*taken, copy & WHOLE != 0))
    }

    /// The next piece, in order, that f+1 donors agree on. A state that begins again begins with piece 0.
    pub fn take_piece(&mut self) -> Option<TakenPiece> {
        let fetching = self.fetching.as_mut()?;
        let bytes = fetching.arrived.remove(&fetching.taken)?;
        fetching.taken += 1;
        fetching.bytes += bytes.len() as u64;
        Some(TakenPiece { is_packed_at_once: fetching.copy & WHOLE != 0, number: fetching.taken - 1, bytes })
    }

    /// The end of the state, if all of its pieces were taken.
    pub fn ended(&self) -> Option<StateEnd> {
        let fetching = self.fetching.as_ref()?;
        let end = fetching.end?;
        (end.pieces == fetching.taken && end.length == fetching.bytes).then_some(end)
    }

    /// Asks every peer for what is new, and tells them how much was taken.
    fn ask(&mut self, now_us: u64) -> Vec<(u8, Message)> {
        let taken = self.fetching.as_ref().map_or(0, |fetching| fetching.taken);
        let is_due = self.asked.is_none_or(|(asked_us, told)| {
            let pause_us = limits::TRANSFER_PATIENCE.as_micros() as u64 / 20;
            now_us >= asked_us + pause_us || taken >= told.saturating_add(TOLD)
        });
        if !is_due {
            return Vec::new();
        }
        self.asked = Some((now_us, taken));
        let ask = |peer| {
            let offer = self.offers.get(&peer);
            let copy = self.fetching.as_ref().map(|fetching| fetching.copy);
            let known = offer.filter(|offer| Some(offer.copy) == copy);
            let known = known.map_or(0, |offer| offer.digests.len() as u32);
            let copy = copy.unwrap_or_default();
            (peer, Message::AskState { at_least: self.at_least.max(self.floor), copy, known, taken })
        };
        (0..self.replicas).filter(|peer| *peer != self.me).map(ask).collect()
    }

    /// Takes the state of the leader alone, if that has said for a while that nothing can be ordered without this
    /// replica, and no f+1 donors have offered the same. Another member may be back by then, and vouch for a state.
    fn believe(&mut self, now_us: u64) {
        let Some((donor, copy, since_us)) = self.lonely.as_mut().filter(|_| self.fetching.is_none()) else {
            return;
        };
        let since_us = *since_us.get_or_insert(now_us);
        if now_us >= since_us + limits::ALONE_PATIENCE.as_micros() as u64 {
            self.believes = Some(*donor);
            self.fetching = Some(Fetching::new(*copy));
        }
    }

    /// Where the state proves itself: donors may differ, since some have rolled back what others have not. Goes on with
    /// one that offers what has been taken so far, and more.
    fn settle_on_one(&mut self, now_us: u64) {
        let goes_on = |offered: &Offered| match &self.fetching {
            Some(Fetching { copy, agreed, end, .. }) => {
                let is_same = offered.copy == *copy && offered.digests.starts_with(agreed);
                is_same && (offered.digests.len() > agreed.len() || offered.end.is_some() && end.is_none())
            }
            None => self.given_up != Some(offered.copy) && !offered.digests.is_empty(),
        };
        let waits = self.proves && self.believes.is_none() && !self.is_agreed();
        let of_use = self.offers.iter().filter(|(_, offered)| waits && goes_on(offered));
        let donor = of_use.map(|(donor, _)| *donor).min_by_key(|donor| Some(*donor) == self.distrusted);
        let Some(donor) = donor else {
            self.differ_since_us = None;
            return;
        };
        let since_us = *self.differ_since_us.get_or_insert(now_us);
        if now_us >= since_us + limits::ALONE_PATIENCE.as_micros() as u64 {
            self.believes = Some(donor);
            let copy = self.offers[&donor].copy;
            self.fetching.get_or_insert_with(|| Fetching::new(copy));
            self.extend_agreed();
        }
    }

    /// Begins with a state whose first piece f+1 donors offer alike.
    fn choose(&mut self) {
        if self.fetching.is_some() {
            return;
        }
        let is_offered = |copy: &u64| self.given_up != Some(*copy) && self.agreed_digest(*copy, 0).is_some();
        let copy = self.offers.values().map(|offer| offer.copy).find(is_offered);
        self.fetching = copy.map(Fetching::new);
    }

    /// The f+1 rule of state transfer: this replica has no state, so f+1 *others* must offer the same piece.
    fn agreed_digest(&self, copy: u64, piece: u32) -> Option<u128> {
        self.agreed(copy, |offer| offer.digests.get(piece as usize).copied())
    }

    /// Remembers what f+1 donors agree on: then each of them may go on to another state.
    fn extend_agreed(&mut self) {
        let Some(mut fetching) = self.fetching.take() else { return };
        while let Some(digest) = self.agreed_digest(fetching.copy, fetching.agreed.len() as u32) {
            fetching.agreed.push(digest);
            self.differ_since_us = None;
        }
        fetching.end = fetching.end.or_else(|| self.agreed(fetching.copy, |offer| offer.end));
        self.fetching = Some(fetching);
    }

    /// What f+1 donors say of a state, or the one that is taken at its word.
    fn agreed<T: PartialEq + Copy>(&self, copy: u64, of: impl Fn(&Offered) -> Option<T>) -> Option<T> {
        let said = |donor: u8| self.offers.get(&donor).filter(|offer| offer.copy == copy).and_then(&of);
        let alone = [self.believes, self.trusted].into_iter().flatten().find_map(said);
        alone.or_else(|| {
            let said: Vec<T> = self.donors_of(copy).filter_map(said).collect();
            let count = |one: &T| said.iter().filter(|other| *other == one).count();
            said.iter().find(|one| count(one) > usize::from(self.replicas - 1) / 2).copied()
        })
    }

    fn donors_of(&self, copy: u64) -> impl Iterator<Item = u8> + '_ {
        self.offers.iter().filter(move |(_, offer)| offer.copy == copy).map(|(donor, _)| *donor)
    }

    /// The donor after `last` among those that offer this piece as it was agreed on.
    fn next_donor(&self, agreed: &[u128], (copy, piece): (u64, u32), last: u8) -> u8 {
        let digest = |digests: &[u128]| digests.get(piece as usize).copied();
        let has = |donor: &u8| digest(&self.offers[donor].digests) == digest(agreed);
        let offers = || self.donors_of(copy).filter(has);
        offers().find(|donor| *donor > last).or_else(|| offers().next()).unwrap_or(last)
    }

    fn on_offer(&mut self, from: u8, offer: Offer, is_leader: bool) {
        let Offer { copy, alone, end, first, digests } = offer;
        if from == self.me || self.is_late(end) || digests.len() > DIGESTS {
            return;
        }
        let is_alone = alone && is_leader && end.is_some() && !self.proves;
        let known = self.lonely.take();
        self.lonely = match known {
            Some((donor, before, since_us)) if donor != from || (is_alone && before == copy) => {
                Some((donor, before, since_us))
            }
            _ => is_alone.then_some((from, copy, None)),
        };
        let fresh = || Offered { copy, digests: Vec::new(), end: None };
        let known = self.offers.entry(from).or_insert_with(fresh);
        if known.copy != copy {
            *known = fresh();
        }
        known.end = known.end.or(end);
        // Whatever is missing before is asked for again.
        if let Some(overlap) = known.digests.len().checked_sub(first as usize)
            && known.digests.len() < limits::COPY_PIECES
        {
            known.digests.extend(digests.into_iter().skip(overlap));
        }
        self.leave_if_gone();
        self.choose();
        self.extend_agreed();
    }

    fn on_piece(&mut self, copy: u64, piece: u32, bytes: &Bytes) {
        let Some(fetching) = self.fetching.as_mut().filter(|fetching| fetching.copy == copy) else { return };
        if !fetching.requested.contains_key(&piece) {
            return;
        }
        let wanted = fetching.agreed.get(piece as usize).copied();
        if wanted != Some(packed_state::digest(bytes)) {
            // The next poll sends the request to another donor.
            if let Some((again_us, _)) = fetching.requested.get_mut(&piece) {
                *again_us = 0;
            }
            return;
        }
        fetching.requested.remove(&piece);
        // It came as a part of a larger buffer, of which nothing else is to be kept.
        fetching.arrived.insert(piece, Bytes::copy_from_slice(bytes));
    }

    /// A donor has another state by now: what is left of this one comes from others, or it begins again.
    fn on_nothing(&mut self, from: u8, copy: u64) {
        if self.offers.get(&from).is_some_and(|offer| offer.copy == copy || copy == 0) {
            self.offers.remove(&from);
        }
        if let Some(fetching) = &mut self.fetching
            && fetching.copy == copy
        {
            // A donor that still has the state gets the request at once.
            let its = fetching.requested.values_mut().filter(|(_, donor)| *donor == from);
            its.for_each(|(again_us, _)| *again_us = 0);
        }
        if self.believes == Some(from) {
            (self.lonely, self.believes) = (None, None);
        }
        self.leave_if_gone();
    }

    /// The state that is being fetched begins again if nobody offers it any more.
    fn leave_if_gone(&mut self) {
        let copy = self.fetching.as_ref().map(|fetching| fetching.copy);
        if copy.is_some_and(|copy| self.donors_of(copy).next().is_none()) {
            (self.fetching, self.asked) = (None, None);
            (self.lonely, self.believes) = (None, None);
        }
    }
}

impl Fetching {
    fn new(copy: u64) -> Self {
        let (arrived, requested) = (BTreeMap::new(), BTreeMap::new());
        let (agreed, end) = (Vec::new(), None);
        Fetching { copy, agreed, end, taken: 0, bytes: 0, arrived, next: 0, requested }
    }
}
