//! The sending side: the last state that was made here or is being made, until nobody asks for it any more.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::{DIGESTS, Message, Offer, StateEnd, copy_of};
use crate::limits::{self, OTHER_RECEIVERS};
use crate::packed_state::PackedState;

/// The states that receivers can fetch here: one at a time.
#[derive(Debug, Default)]
pub struct Donor {
    offered: Option<Offered>,
    /// The receivers that have asked, by replica.
    receivers: BTreeMap<u8, Asker>,
}

/// A state that can be fetched, perhaps before all of it is there.
#[derive(Debug)]
struct Offered {
    copy: u64,
    /// Digests of all pieces so far.
    digests: Vec<u128>,
    /// The last pieces.
    pieces: VecDeque<Bytes>,
    /// Bytes of all pieces so far.
    length: u64,
    end: Option<StateEnd>,
    /// When it was made, or a receiver asked for it last; microseconds.
    used_us: u64,
    /// A receiver has asked for a piece.
    is_fetched: bool,
}

/// What a receiver has told last.
#[derive(Debug)]
struct Asker {
    at_least: u64,
    /// The state that it fetches, and the pieces of it that it has put in place.
    copy: u64,
    taken: u32,
    /// The state that it was told of last, and the pieces of it whose digests it has got.
    told: (u64, u32),
    asked_us: u64,
    /// It waits for a state that was not made yet.
    waits: bool,
}

impl Offered {
    fn new(copy: u64, now_us: u64) -> Self {
        let (digests, pieces) = (Vec::new(), VecDeque::new());
        Offered { copy, digests, pieces, length: 0, end: None, used_us: now_us, is_fetched: false }
    }

    fn add(&mut self, more: &PackedState) {
        self.length += more.length();
        self.digests.extend_from_slice(more.digests());
        self.pieces.extend(more.pieces().iter().cloned());
    }

    /// Number of the first piece that is still here.
    fn first(&self) -> u32 {
        (self.digests.len() - self.pieces.len()) as u32
    }

    fn end_after(&mut self, index: u64) {
        self.end = Some(StateEnd { index, pieces: self.digests.len() as u32, length: self.length });
    }

    /// What a receiver does not know that knows the digests of so many pieces.
    fn offer(&self, known: u32, alone: bool) -> Offer {
        let new = self.digests.get(known as usize..).unwrap_or_default();
        let digests = new[..new.len().min(DIGESTS)].to_vec();
        Offer { copy: self.copy, alone, end: self.end, first: known, digests }
    }
}

impl Donor {
    /// Offers a state that was packed at once, after the entry at `index`, in place of the one before. Returns what to
    /// send to whom.
    pub fn offer(&mut self, index: u64, state: &PackedState, now_us: u64) -> Vec<(u8, Message)> {
        let mut offered = Offered::new(copy_of(index), now_us);
        offered.add(state);
        offered.end_after(index);
        self.offered = Some(offered);
        self.announce(now_us)
    }

    /// A state is being made in parts, and is offered in place of the one before. Returns the log index of that one.
    pub fn begin(&mut self, copy: u64, now_us: u64) -> Option<u64> {
        let before = self.offered.replace(Offered::new(copy, now_us));
        before.and_then(|before| before.end).map(|end| end.index)
    }

    /// Its next pieces. Returns what to send to whom.
    pub fn add(&mut self, copy: u64, more: &PackedState, now_us: u64) -> Vec<(u8, Message)> {
        let Some(offered) = self.offered.as_mut().filter(|offered| offered.copy == copy) else {
            return Vec::new();
        };
        offered.add(more);
        let kept = limits::COPY_RING.max(more.pieces().len());
        offered.pieces.drain(..offered.pieces.len().saturating_sub(kept));
        self.announce(now_us)
    }

    /// Its last pieces: it is the state after the entry at `index`. Returns what to send to whom.
    pub fn end(&mut self, copy: u64, index: u64, rest: &PackedState, now_us: u64) -> Vec<(u8, Message)> {
        let Some(offered) = self.offered.as_mut().filter(|offered| offered.copy == copy) else {
            return Vec::new();
        };
        offered.add(rest);
        offered.end_after(index);
        self.announce(now_us)
    }

    /// The state with this name will not be finished.
    pub fn abandon(&mut self, copy: u64) {
        self.offered.take_if(|offered| offered.copy == copy && offered.end.is_none());
    }

    /// Frees a state that nobody has asked for during [`limits::OFFER_KEPT`]. Returns its log index.
    pub fn free_unused(&mut self, now_us: u64) -> Option<u64> {
        let kept_us = limits::OFFER_KEPT.as_micros() as u64;
        self.receivers.retain(|_, asker| asker.waits || now_us.saturating_sub(asker.asked_us) <= kept_us);
        let is_unused =
            |offered: &mut Offered| offered.end.is_some() && now_us.saturating_sub(offered.used_us) > kept_us;
        self.offered.take_if(is_unused)?.end.map(|end| end.index)
    }

    /// Whether a receiver is fetching the state: another one in its place would cost it what it has.
    pub fn is_fetched(&self) -> bool {
        self.offered.as_ref().is_some_and(|offered| offered.is_fetched)
    }

    /// How many further pieces of an unfinished state may be made before the receivers have taken some: as many as are
    /// kept. Those that have been silent are not waited for.
    pub fn room(&self, copy: u64, now_us: u64) -> CopyRoom {
        let taken = self.fetching(copy, now_us).map(|asker| asker.taken).min();
        let made = self.offered.as_ref().filter(|offered| offered.copy == copy);
        let made = made.map_or(0, |offered| offered.digests.len());
        let ahead = made.saturating_sub(taken.unwrap_or_default() as usize);
        CopyRoom { has_receiver: taken.is_some(), is_full: ahead >= limits::COPY_AHEAD }
    }

    /// Answers a receiver at replica `from`. This replica is `alone` if it leads and can order nothing without others.
    pub fn on_message(&mut self, from: u8, message: &Message, alone: bool, now_us: u64) -> Option<Message> {
        match *message {
            Message::AskState { at_least, copy, known, taken } => {
                let waits = self.receivers.get(&from).is_some_and(|asker| asker.waits);
                let asker = Asker { at_least, copy, taken, told: (copy, known), asked_us: now_us, waits };
                self.receivers.insert(from, asker);
                let offer = self.offer_to(from, alone, now_us);
                Some(offer.map_or(Message::Nothing { copy }, Message::Offer))
            }
            Message::AskPiece { copy, piece } => {
                Some(self.piece(copy, piece, now_us).unwrap_or(Message::Nothing { copy }))
            }
            Message::Offer(_)
            | Message::Piece { .. }
            | Message::Nothing { .. }
            | Message::AskObjects { .. }
            | Message::Objects { .. }
            | Message::AskHealth { .. }
            | Message::Healthy { .. } => None,
        }
    }

    /// Log index of the state that can be fetched; none before the first one.
    pub fn offered(&self) -> Option<u64> {
        self.offered.as_ref()?.end.map(|end| end.index)
    }

    /// Digests of its pieces.
    pub fn digests(&self) -> &[u128] {
        self.offered.as_ref().map_or(&[], |offered| &offered.digests)
    }

    /// Whether this receiver waits for a state that was not made yet.
    pub fn is_awaited_by(&self, peer: u8) -> bool {
        self.receivers.get(&peer).is_some_and(|asker| asker.waits)
    }

    fn fetching(&self, copy: u64, now_us: u64) -> impl Iterator<Item = &Asker> {
        let silent_us = limits::RECEIVER_SILENT.as_micros() as u64;
        let is_there =
            move |asker: &&Asker| asker.copy == copy && now_us.saturating_sub(asker.asked_us) <= silent_us;
        self.receivers.values().filter(is_there)
    }

    /// What there is for a receiver that has asked; none if it can do nothing with it.
    fn offer_to(&mut self, peer: u8, alone: bool, now_us: u64) -> Option<Offer> {
        let asker = self.receivers.get_mut(&peer)?;
        let offered = self.offered.as_mut();
        let offered = offered.filter(|offered| offered.end.is_none_or(|end| end.index >= asker.at_least));
        // With its first pieces gone, one that has not begun cannot begin.
        let offered = offered.filter(|offered| offered.copy == asker.told.0 || offered.first() == 0);
        asker.waits = offered.as_ref().is_none_or(|offered| offered.end.is_none());
        let offered = offered?;
        offered.used_us = now_us;
        let known = if asker.told.0 == offered.copy { asker.told.1 } else { 0 };
        let offer = offered.offer(known, alone);
        asker.told = (offered.copy, known + offer.digests.len() as u32);
        Some(offer)
    }

    /// Tells the receivers that are there what is new. Those that are no replicas ask.
    fn announce(&mut self, now_us: u64) -> Vec<(u8, Message)> {
        let peers: Vec<u8> =
            self.receivers.keys().copied().take_while(|peer| *peer < OTHER_RECEIVERS).collect();
        let offer = |peer| Some((peer, Message::Offer(self.offer_to(peer, false, now_us)?)));
        peers.into_iter().filter_map(offer).collect()
    }

    fn piece(&mut self, copy: u64, piece: u32, now_us: u64) -> Option<Message> {
        let offered = self.offered.as_mut().filter(|offered| offered.copy == copy)?;
        let at = piece.checked_sub(offered.first())?;
        let bytes = offered.pieces.get(at as usize)?.clone();
        (offered.used_us, offered.is_fetched) = (now_us, true);
        Some(Message::Piece { copy, piece, bytes })
    }
}

/// Whether further pieces of a state may be made ([`Donor::room`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRoom {
    /// A receiver fetches the state.
    pub has_receiver: bool,
    /// As many pieces are ahead of it as are kept.
    pub is_full: bool,
}

impl CopyRoom {
    /// Whether a receiver fetches the state, or one could still begin.
    pub fn is_of_use(self) -> bool {
        self.has_receiver || !self.is_full
    }
}
