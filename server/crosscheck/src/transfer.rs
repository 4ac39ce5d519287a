//! State transfer: a replica without state takes it from its peers in pieces, each accepted only on the digest that
//! f+1 of them agree on. No replica trusts a single peer's snapshot (docs/design.md, section 7).
//!
//! No socket and no clock: [`Donor`] and [`Receiver`] turn messages into messages. Pieces travel on the peers' ordinary
//! connection, a few at a time: small messages next to bulk data took 33 us one way, against 21 us on a connection and
//! thread of their own (docs/design.md, section 5). This gain does not justify another thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use object::{ObjectId, RegionId};
use vote::{Content, Packed};
use wire::{Malformed, Put, Reader};

use crate::limits;
use crate::packed_state::{self, PackedState};

/// Pieces that were requested and have not arrived: 8 MiB, or 250 MB/s where an answer takes 32 ms, as beside a load.
const WINDOW: usize = 32;

/// The messages between donors and receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A receiver requests the manifest of a state at log index `at_least` or later.
    AskManifest {
        /// Log index below which a state is of no use.
        at_least: u64,
    },
    /// A donor's manifest.
    Manifest {
        /// The state that it has.
        manifest: Manifest,
        /// It leads, and can order nothing without the receiver: nobody else may be able to offer the same.
        alone: bool,
    },
    /// A receiver requests a piece.
    AskPiece {
        /// Log index of the checkpoint.
        index: u64,
        /// Number of the piece, from 0.
        piece: u32,
    },
    /// A donor's piece.
    Piece {
        /// Log index of the checkpoint.
        index: u64,
        /// Number of the piece, from 0.
        piece: u32,
        /// Its bytes, accepted only if their digest is that of the manifest.
        bytes: Bytes,
    },
    /// The donor does not have the requested state (any more).
    Nothing {
        /// The requested log index.
        index: u64,
    },
    /// In verified mode: a replica whose objects are corrupted requests them as they were after a batch.
    AskObjects {
        /// Number of the batch.
        batch: u64,
        /// The objects, at most `limits::ASKED_OBJECTS`; [`ObjectId::NONE`] for all of a region.
        objects: Vec<(RegionId, ObjectId)>,
    },
    /// The objects as they were then; none of them if one is not known.
    Objects {
        /// Number of the batch.
        batch: u64,
        /// Their contents, accepted only if they fit the tree of the version.
        objects: Vec<Packed>,
    },
    /// In verified mode: one of two replicas is about to give up its state, and asks whether all objects of the other
    /// one are right.
    AskHealth {
        /// The asker's time of the question, by which the answer names it; microseconds.
        requested_us: u64,
    },
    /// They are, as a check has found since the question.
    Healthy {
        /// That of the question.
        requested_us: u64,
    },
}

/// The description of a state: equal at every healthy replica that made the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manifest {
    /// Log index of the checkpoint: the state holds the effect of every entry up to it.
    pub index: u64,
    /// Length of the whole state in bytes.
    pub length: u64,
    /// Digest of each piece; none has more than `limits::TRANSFER_PIECE` bytes (`limits::PipelineScale`).
    pub pieces: Vec<u128>,
}

impl Manifest {
    fn of(index: u64, state: &PackedState) -> Self {
        Manifest { index, length: state.length(), pieces: state.digests().to_vec() }
    }

    fn is_consistent(&self, piece: usize) -> bool {
        self.length.div_ceil(piece as u64) <= self.pieces.len() as u64
    }
}

impl Message {
    /// The message as the body of a TRANSFER frame.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Message::AskManifest { at_least } => out.put8(1).put64(*at_least),
            Message::Manifest { manifest: Manifest { index, length, pieces }, alone } => {
                let head = out.put8(2).put64(*index).put64(*length).put8(u8::from(*alone));
                pieces.iter().fold(head, |out, digest| out.put128(*digest))
            }
            Message::AskPiece { index, piece } => out.put8(3).put64(*index).put32(*piece),
            Message::Piece { index, piece, bytes } => out.put8(4).put64(*index).put32(*piece).put(bytes),
            Message::Nothing { index } => out.put8(5).put64(*index),
            Message::AskObjects { batch, objects } => {
                let head = out.put8(6).put64(*batch);
                objects.iter().fold(head, |out, (region_id, id)| out.put32(*region_id).put64(id.to_bits()))
            }
            Message::Objects { batch, objects } => objects.iter().fold(out.put8(7).put64(*batch), put_object),
            Message::AskHealth { requested_us } => out.put8(8).put64(*requested_us),
            Message::Healthy { requested_us } => out.put8(9).put64(*requested_us),
        };
        out.into()
    }

    /// The message in `body`; `None` if it is none.
    pub fn decode(body: Bytes) -> Option<Message> {
        let mut reader = Reader::shared(&body);
        let kind = reader.u8().ok()?;
        let index = reader.u64().ok()?;
        let message = match kind {
            1 => Message::AskManifest { at_least: index },
            2 => {
                let length = reader.u64().ok()?;
                let alone = reader.flag().ok()?;
                let mut pieces = Vec::with_capacity(reader.remaining() / 16);
                while !reader.is_empty() {
                    pieces.push(reader.u128().ok()?);
                }
                Message::Manifest { manifest: Manifest { index, length, pieces }, alone }
            }
            3 => Message::AskPiece { index, piece: reader.u32().ok()? },
            4 => Message::Piece { index, piece: reader.u32().ok()?, bytes: reader.rest_bytes() },
            5 => Message::Nothing { index },
            6 => {
                let mut objects = Vec::new();
                while !reader.is_empty() && objects.len() < limits::ASKED_OBJECTS {
                    objects.push((reader.u32().ok()?, ObjectId::from_bits(reader.u64().ok()?)));
                }
                Message::AskObjects { batch: index, objects }
            }
            7 => {
                let mut objects = Vec::new();
                while !reader.is_empty() {
                    objects.push(object(&mut reader).ok()?);
                }
                Message::Objects { batch: index, objects }
            }
            8 => Message::AskHealth { requested_us: index },
            9 => Message::Healthy { requested_us: index },
            _ => return None,
        };
        reader.is_empty().then_some(message)
    }
}

/// An object; one that does not exist has no bytes, since a packed one always has some.
fn put_object<'o>(out: &'o mut Vec<u8>, object: &Packed) -> &'o mut Vec<u8> {
    let content = match &object.content {
        Content::Present(bytes) => bytes.as_ref(),
        Content::Absent | Content::Damaged => &[],
    };
    out.put32(object.region_id).put64(object.id.to_bits()).put_sized(|out| {
        out.put(content);
    })
}

fn object(reader: &mut Reader<'_, &Bytes>) -> Result<Packed, Malformed> {
    let (region_id, id) = (reader.u32()?, ObjectId::from_bits(reader.u64()?));
    let length = reader.length32()?;
    let bytes = reader.take(length)?;
    let content =
        if bytes.is_empty() { Content::Absent } else { Content::Present(Bytes::copy_from_slice(bytes)) };
    Ok(Packed { region_id, id, content })
}

/// The sending side: the last checkpoint that was made, until nobody asks for it any more.
#[derive(Debug, Default)]
pub struct Donor {
    checkpoint: Option<Offered>,
    /// Receivers that requested a state that was not made yet, with its least log index. A receiver that has got it
    /// from another donor meanwhile drops the manifest.
    waiting: BTreeMap<u8, u64>,
}

/// A checkpoint that can be fetched.
#[derive(Debug)]
struct Offered {
    manifest: Manifest,
    state: PackedState,
    /// When it was made, or a receiver asked for it last; microseconds.
    used_us: u64,
    /// A receiver has asked for a piece.
    is_fetched: bool,
}

impl Donor {
    /// Offers `state`, made after the entry at `index`, in place of the one before. Returns its manifest and the
    /// receivers that wait for it.
    pub fn offer(&mut self, index: u64, state: PackedState, now_us: u64) -> Option<(Message, Vec<u8>)> {
        let manifest = Manifest::of(index, &state);
        let offered = Offered { manifest, state, used_us: now_us, is_fetched: false };
        let Offered { manifest, .. } = self.checkpoint.insert(offered);
        let served: Vec<u8> =
            self.waiting.extract_if(.., |_, at_least| *at_least <= index).map(|(peer, _)| peer).collect();
        (!served.is_empty()).then(|| (Message::Manifest { manifest: manifest.clone(), alone: false }, served))
    }

    /// Frees a checkpoint that nobody has asked for during [`limits::OFFER_KEPT`]. Returns its log index.
    pub fn free_unused(&mut self, now_us: u64) -> Option<u64> {
        let kept_us = limits::OFFER_KEPT.as_micros() as u64;
        let unused = self.checkpoint.take_if(|offered| now_us.saturating_sub(offered.used_us) > kept_us)?;
        Some(unused.manifest.index)
    }

    /// Whether a receiver is fetching the checkpoint: another one in its place would cost it what it has.
    pub fn is_fetched(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|offered| offered.is_fetched)
    }

    /// Answers a receiver at replica `from`. This replica is `alone` if it leads and can order nothing without others.
    pub fn on_message(&mut self, from: u8, message: &Message, alone: bool, now_us: u64) -> Option<Message> {
        match *message {
            Message::AskManifest { at_least } => Some(match &mut self.checkpoint {
                Some(offered) if offered.manifest.index >= at_least => {
                    offered.used_us = now_us;
                    Message::Manifest { manifest: offered.manifest.clone(), alone }
                }
                _ => {
                    self.waiting.insert(from, at_least);
                    Message::Nothing { index: at_least }
                }
            }),
            Message::AskPiece { index, piece } => {
                Some(self.piece(index, piece, now_us).unwrap_or(Message::Nothing { index }))
            }
            Message::Manifest { .. }
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
        self.checkpoint.as_ref().map(|offered| offered.manifest.index)
    }

    /// Whether this receiver waits for a state that was not made yet.
    pub fn is_awaited_by(&self, peer: u8) -> bool {
        self.waiting.contains_key(&peer)
    }

    fn piece(&mut self, index: u64, piece: u32, now_us: u64) -> Option<Message> {
        let offered = self.checkpoint.as_mut().filter(|offered| offered.manifest.index == index)?;
        let bytes = offered.state.pieces().get(piece as usize)?.clone();
        (offered.used_us, offered.is_fetched) = (now_us, true);
        Some(Message::Piece { index, piece, bytes })
    }
}

/// The receiving side, until it has a state that f+1 peers agree on.
#[derive(Debug)]
pub struct Receiver {
    me: u8,
    replicas: u8,
    at_least: u64,
    /// Bytes of a piece.
    size: usize,
    manifests: BTreeMap<u8, Manifest>,
    agreed: Option<Arc<Manifest>>,
    pieces: Vec<Option<Bytes>>,
    missing: usize,
    /// The first piece that was never requested.
    next_piece: u32,
    /// A donor that is trusted without the agreement of others.
    trusted: Option<u8>,
    /// The leader's state, if the leader says that nothing can be ordered without this replica; and since when.
    lonely: Option<(u8, Manifest, Option<u64>)>,
    /// The donor whose state is taken although nobody else has offered the same.
    believes: Option<u8>,
    /// For each requested piece, when it is requested again, and its donor.
    requested: BTreeMap<u32, (u64, u8)>,
    requested_manifests_us: Option<u64>,
}

impl Receiver {
    /// A receiver at replica `me` of `replicas`, for a state of log index `at_least` or later.
    pub fn new(me: u8, replicas: u8, at_least: u64) -> Self {
        Receiver {
            me,
            replicas,
            at_least,
            size: limits::TRANSFER_PIECE,
            manifests: BTreeMap::new(),
            agreed: None,
            pieces: Vec::new(),
            missing: 0,
            next_piece: 0,
            trusted: None,
            lonely: None,
            believes: None,
            requested: BTreeMap::new(),
            requested_manifests_us: None,
        }
    }

    /// In pieces of so many bytes, as all replicas make them.
    pub fn in_pieces_of(self, size: usize) -> Self {
        Receiver { size, ..self }
    }

    /// Log index this receiver was made for.
    pub fn wanted(&self) -> u64 {
        self.at_least
    }

    /// Trusts this donor alone, as an operator decided: no other replica has the state any more.
    pub fn trust(&mut self, donor: u8) {
        self.trusted = Some(donor);
        self.requested_manifests_us = None;
    }

    /// The donor whose state is taken on its word alone: f+1 others do not have the same.
    pub fn believes(&self) -> Option<u8> {
        self.believes
    }

    /// Pieces that have arrived, and pieces of the whole state; both 0 before there is agreement on it.
    pub fn arrived(&self) -> (usize, usize) {
        (self.pieces.len() - self.missing, self.pieces.len())
    }

    /// Whether enough donors have offered the same state.
    pub fn is_agreed(&self) -> bool {
        self.agreed.is_some()
    }

    /// Donors that have offered a state.
    pub fn named(&self) -> impl Iterator<Item = u8> + '_ {
        self.manifests.keys().copied()
    }

    /// Whether the donors have made a later checkpoint than the requested one.
    pub fn is_overtaken(&self) -> bool {
        self.agreed.as_ref().is_some_and(|manifest| manifest.index > self.at_least)
    }

    /// Another peer is connected. It gets a request at once, since f+1 manifests are needed.
    pub fn on_up(&mut self) {
        self.requested_manifests_us = None;
    }

    /// Messages to send at `now_us`: requests that were never sent, and those that were sent too long ago.
    pub fn poll(&mut self, now_us: u64) -> Vec<(u8, Message)> {
        let patience = limits::TRANSFER_PATIENCE.as_micros() as u64;
        self.believe(now_us);
        let Some(manifest) = self.agreed.clone() else {
            // Donors send a manifest once they have made the checkpoint. It may get lost, so the request is repeated.
            if self.requested_manifests_us.is_some_and(|requested| now_us < requested + patience / 20) {
                return Vec::new();
            }
            self.requested_manifests_us = Some(now_us);
            let at_least = self.at_least;
            let peers = (0..self.replicas).filter(|peer| *peer != self.me);
            return peers.map(|peer| (peer, Message::AskManifest { at_least })).collect();
        };
        let mut asks = Vec::new();
        for (piece, (again_us, donor)) in &mut self.requested {
            if now_us >= *again_us {
                *again_us = now_us + patience;
                *donor = next_donor(&self.manifests, &manifest, *donor);
                asks.push((*donor, Message::AskPiece { index: manifest.index, piece: *piece }));
            }
        }
        let count = manifest.pieces.len() as u32;
        while self.next_piece < count && self.requested.len() < WINDOW {
            let piece = self.next_piece;
            let donor = next_donor(&self.manifests, &manifest, (piece % u32::from(self.replicas)) as u8);
            self.requested.insert(piece, (now_us + patience, donor));
            asks.push((donor, Message::AskPiece { index: manifest.index, piece }));
            self.next_piece += 1;
        }
        asks
    }

    /// Takes the state of the leader alone, if that has said for a while that nothing can be ordered without this
    /// replica, and no f+1 donors have offered the same. Another member may be back by then, and vouch for a state.
    fn believe(&mut self, now_us: u64) {
        let Some((donor, manifest, since_us)) = self.lonely.as_mut().filter(|_| self.agreed.is_none()) else {
            return;
        };
        let since_us = *since_us.get_or_insert(now_us);
        if now_us >= since_us + limits::ALONE_PATIENCE.as_micros() as u64 {
            self.believes = Some(*donor);
            let manifest = manifest.clone();
            self.agree_on(manifest);
        }
    }

    /// Takes a donor's answer, which may come from the leader. Returns the whole state and its log index when the last
    /// piece has arrived.
    pub fn on_message(&mut self, from: u8, message: Message, is_leader: bool) -> Option<(u64, PackedState)> {
        match message {
            Message::Manifest { manifest, alone } => self.on_manifest(from, manifest, alone && is_leader),
            Message::Piece { index, piece, bytes } => self.on_piece(index, piece, bytes),
            Message::Nothing { index } => self.on_nothing(from, index),
            Message::AskManifest { .. }
            | Message::AskPiece { .. }
            | Message::AskObjects { .. }
            | Message::Objects { .. }
            | Message::AskHealth { .. }
            | Message::Healthy { .. } => None,
        }
    }

    /// The f+1 rule of state transfer: this replica has no state, so f+1 *others* must offer the same one.
    fn on_manifest(&mut self, from: u8, manifest: Manifest, is_alone: bool) -> Option<(u64, PackedState)> {
        if self.agreed.is_some()
            || manifest.index < self.at_least
            || !manifest.is_consistent(self.size)
            || from == self.me
        {
            return None;
        }
        self.manifests.insert(from, manifest.clone());
        let known = self.lonely.take();
        self.lonely = match known {
            Some((donor, before, since_us)) if donor != from || (is_alone && before == manifest) => {
                Some((donor, before, since_us))
            }
            _ => is_alone.then(|| (from, manifest.clone(), None)),
        };
        let same = self.manifests.values().filter(|other| **other == manifest).count();
        if same <= usize::from(self.replicas - 1) / 2 && self.trusted != Some(from) {
            return None;
        }
        self.agree_on(manifest);
        self.finish()
    }

    fn agree_on(&mut self, manifest: Manifest) {
        self.pieces = vec![None; manifest.pieces.len()];
        (self.missing, self.next_piece) = (manifest.pieces.len(), 0);
        self.agreed = Some(Arc::new(manifest));
    }

    fn on_piece(&mut self, index: u64, piece: u32, bytes: Bytes) -> Option<(u64, PackedState)> {
        let manifest = self.agreed.clone()?;
        let wanted = *manifest.pieces.get(piece as usize)?;
        if manifest.index != index || self.pieces[piece as usize].is_some() {
            return None;
        }
        if packed_state::digest(&bytes) != wanted {
            // The next poll sends the request to another donor.
            if let Some((again_us, _)) = self.requested.get_mut(&piece) {
                *again_us = 0;
            }
            return None;
        }
        self.requested.remove(&piece);
        // They came as a part of a larger buffer, of which nothing else is to be kept.
        self.pieces[piece as usize] = Some(Bytes::copy_from_slice(&bytes));
        self.missing -= 1;
        self.finish()
    }

    /// A donor has made another checkpoint: start again with the states that are offered now.
    fn on_nothing(&mut self, from: u8, index: u64) -> Option<(u64, PackedState)> {
        if self.agreed.as_ref().is_some_and(|agreed| agreed.index == index) {
            self.manifests.remove(&from);
            (self.lonely, self.believes) = (None, None);
            let agreed = self.agreed.take()?;
            if self.manifests.values().any(|manifest| *manifest == *agreed) {
                self.agreed = Some(agreed);
                // A donor that still has the state gets the request at once.
                let its = self.requested.values_mut().filter(|(_, requested)| *requested == from);
                its.for_each(|(again_us, _)| *again_us = 0);
            } else {
                self.pieces.clear();
                self.missing = 0;
                self.requested.clear();
                self.requested_manifests_us = None;
            }
        }
        None
    }

    fn finish(&mut self) -> Option<(u64, PackedState)> {
        let manifest = self.agreed.as_ref().filter(|_| self.missing == 0)?;
        let pieces: Vec<Bytes> = std::mem::take(&mut self.pieces).into_iter().flatten().collect();
        let state = PackedState::of(pieces, manifest.pieces.clone());
        (state.length() == manifest.length).then_some((manifest.index, state))
    }
}

/// The donor after `last` among those that offer `wanted`.
fn next_donor(manifests: &BTreeMap<u8, Manifest>, wanted: &Manifest, last: u8) -> u8 {
    let offers = || manifests.iter().filter(|(_, manifest)| *manifest == wanted).map(|(peer, _)| *peer);
    offers().find(|peer| *peer > last).or_else(|| offers().next()).unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offer of this state, by a donor that is not alone.
    fn manifest(index: u64, state: &PackedState) -> Message {
        Message::Manifest { manifest: Manifest::of(index, state), alone: false }
    }

    fn packed(bytes: &[u8]) -> PackedState {
        let mut writer = packed_state::PackWriter::default();
        writer.put(bytes);
        writer.finish()
    }

    fn state(seed: u8) -> PackedState {
        let bytes = (0..3 * limits::TRANSFER_PIECE + 17).map(|i| (i as u8).wrapping_mul(31) ^ seed);
        packed(&bytes.collect::<Vec<_>>())
    }

    fn donor(index: u64, seed: u8) -> Donor {
        let mut donor = Donor::default();
        donor.offer(index, state(seed), 0);
        donor
    }

    /// Runs the receiver against two donors; `tamper` sees every message of a donor.
    fn run(
        mut donors: [Donor; 2],
        tamper: impl Fn(u8, Message) -> Option<Message>,
    ) -> Option<(u64, PackedState)> {
        let mut receiver = Receiver::new(2, 3, 5);
        let mut now_us = 1;
        for _ in 0..200 {
            for (to, ask) in receiver.poll(now_us) {
                let ask = Message::decode(ask.encode()).unwrap();
                let answer = donors[usize::from(to)]
                    .on_message(2, &ask, false, now_us)
                    .and_then(|answer| tamper(to, answer));
                if let Some(answer) = answer
                    && let Some(done) =
                        receiver.on_message(to, Message::decode(answer.encode()).unwrap(), to == 0)
                {
                    return Some(done);
                }
            }
            now_us += limits::TRANSFER_PATIENCE.as_micros() as u64 / 4;
        }
        None
    }

    #[test]
    fn two_agreeing_donors_fill_the_third() {
        let (a, b) = (donor(9, 1), donor(9, 1));
        assert_eq!(run([a, b], |_, message| Some(message)), Some((9, state(1))));
    }

    #[test]
    fn donors_that_differ_are_not_believed() {
        let (a, b) = (donor(9, 1), donor(9, 2));
        assert_eq!(run([a, b], |_, message| Some(message)), None);
    }

    #[test]
    fn a_single_donor_is_not_believed() {
        let (a, b) = (donor(9, 1), Donor::default());
        assert_eq!(run([a, b], |_, message| Some(message)), None);
    }

    #[test]
    fn corrupt_and_lost_pieces_come_from_the_other_donor() {
        let (a, b) = (donor(9, 1), donor(9, 1));
        let tamper = |from: u8, message: Message| match message {
            Message::Piece { index, piece, bytes } if from == 0 => {
                let mut wrong = bytes.to_vec();
                wrong[7] ^= 4;
                (piece != 1).then(|| Message::Piece { index, piece, bytes: wrong.into() })
            }
            other => Some(other),
        };
        assert_eq!(run([a, b], tamper), Some((9, state(1))));
    }

    #[test]
    fn a_donor_that_has_gone_on_is_not_waited_for() {
        let (mut a, mut b) = (donor(9, 1), donor(9, 1));
        let mut receiver = Receiver::new(2, 3, 5);
        // At the start of a process, when its clock has not reached the timeout for a piece.
        let answered = |receiver: &mut Receiver, donors: [&mut Donor; 2], now_us: u64| {
            let mut done = None;
            for (to, ask) in receiver.poll(now_us) {
                let answer = donors[usize::from(to)].on_message(2, &ask, false, now_us);
                done = done.or(answer.and_then(|answer| receiver.on_message(to, answer, to == 0)));
            }
            done
        };
        assert_eq!(answered(&mut receiver, [&mut a, &mut b], 1), None, "the manifests");
        a.offer(11, state(2), 0);
        let done = (2..10).find_map(|now_us| answered(&mut receiver, [&mut a, &mut b], now_us));
        assert_eq!(done, Some((9, state(1))), "from the other donor, without waiting");
    }

    #[test]
    fn a_donor_announces_its_checkpoint_once() {
        let mut donor = donor(3, 1);
        assert_eq!(
            donor.on_message(1, &Message::AskManifest { at_least: 5 }, false, 0),
            Some(Message::Nothing { index: 5 })
        );
        assert_eq!(
            donor.on_message(2, &Message::AskManifest { at_least: 9 }, false, 0),
            Some(Message::Nothing { index: 9 })
        );
        assert_eq!(donor.offer(4, state(1), 0), None, "too old for both");
        let reported = donor.offer(6, state(2), 0);
        assert_eq!(reported, Some((manifest(6, &state(2)), vec![1])));
        assert_eq!(donor.offer(7, state(2), 0), None);
        assert_eq!(donor.offer(9, state(3), 0).map(|(_, peers)| peers), Some(vec![2]));
    }

    #[test]
    fn a_donor_keeps_a_checkpoint_as_long_as_somebody_asks_for_it() {
        let kept_us = limits::OFFER_KEPT.as_micros() as u64;
        let mut donor = donor(9, 1);
        let ask = |donor: &mut Donor, message, now_us| donor.on_message(1, &message, false, now_us);
        assert_eq!((donor.free_unused(kept_us), donor.is_fetched()), (None, false));
        ask(&mut donor, Message::AskManifest { at_least: 9 }, kept_us);
        assert_eq!((donor.free_unused(2 * kept_us), donor.is_fetched()), (None, false));
        ask(&mut donor, Message::AskPiece { index: 9, piece: 3 }, 2 * kept_us);
        assert_eq!((donor.free_unused(3 * kept_us), donor.is_fetched()), (None, true));
        ask(&mut donor, Message::AskPiece { index: 8, piece: 3 }, 3 * kept_us);
        assert_eq!(donor.free_unused(3 * kept_us + 1), Some(9), "nobody asked for it");
        assert_eq!((donor.offered(), donor.is_fetched()), (None, false));
        let nothing = ask(&mut donor, Message::AskPiece { index: 9, piece: 0 }, 0);
        assert_eq!(nothing, Some(Message::Nothing { index: 9 }));
    }

    #[test]
    fn damaged_messages_are_no_messages() {
        let good = manifest(3, &packed(b"abc")).encode();
        for cut in 0..good.len() {
            // A prefix with fewer pieces is a message too: a frame has a length and a checksum.
            let is_consistent = |message| match message {
                Message::Manifest { manifest, .. } => manifest.is_consistent(limits::TRANSFER_PIECE),
                _ => true,
            };
            assert!(Message::decode(good.slice(..cut)).is_none_or(|message| !is_consistent(message)));
        }
        assert_eq!(Message::decode(Bytes::from_static(&[10; 20])), None);
    }

    /// Lets `receiver` poll until `until_us`, with an offer of the leader, replica 0, at each poll.
    fn offered(receiver: &mut Receiver, until_us: u64, manifest: &Manifest, alone: bool) {
        for now_us in (0..=until_us).step_by(100_000) {
            receiver.poll(now_us);
            receiver.on_message(0, Message::Manifest { manifest: manifest.clone(), alone }, true);
        }
    }

    #[test]
    fn the_leader_alone_is_believed_after_a_while_if_it_says_that_nobody_else_can_help() {
        let manifest = Manifest::of(9, &packed(b"state"));
        let patience_us = limits::ALONE_PATIENCE.as_micros() as u64;
        let mut receiver = Receiver::new(2, 3, 9);
        offered(&mut receiver, patience_us + 500_000, &manifest, false);
        assert!(!receiver.is_agreed(), "it does not say so");
        let mut receiver = Receiver::new(2, 3, 9);
        offered(&mut receiver, patience_us - 100_000, &manifest, true);
        assert!(!receiver.is_agreed(), "too early");
        offered(&mut receiver, patience_us + 500_000, &manifest, true);
        assert_eq!((receiver.is_agreed(), receiver.believes()), (true, Some(0)));
        let piece = Message::Piece { index: 9, piece: 0, bytes: Bytes::from_static(b"state") };
        assert_eq!(receiver.on_message(0, piece, true), Some((9, packed(b"state"))));
    }

    #[test]
    fn one_that_does_not_lead_is_not_believed_alone_and_two_that_agree_come_first() {
        let (manifest, other) = (Manifest::of(9, &packed(b"state")), Manifest::of(9, &packed(b"wrong")));
        let patience_us = limits::ALONE_PATIENCE.as_micros() as u64;
        let mut receiver = Receiver::new(2, 3, 9);
        for now_us in (0..3 * patience_us).step_by(100_000) {
            receiver.poll(now_us);
            receiver.on_message(1, Message::Manifest { manifest: other.clone(), alone: true }, false);
        }
        assert!(!receiver.is_agreed());
        offered(&mut receiver, 100_000, &manifest, true);
        receiver.on_message(1, Message::Manifest { manifest: manifest.clone(), alone: false }, false);
        assert_eq!((receiver.is_agreed(), receiver.believes()), (true, None));
    }

    #[test]
    fn messages_about_objects_are_read_as_written_or_not_at_all() {
        let (one, other) = (ObjectId::from_bits(7), ObjectId::from_bits(u64::MAX));
        let present =
            Packed { region_id: 3, id: one, content: Content::Present(Bytes::from_static(b"packed")) };
        let absent = Packed { region_id: 4, id: other, content: Content::Absent };
        let messages = [
            Message::AskObjects { batch: 9, objects: vec![(3, one), (4, other)] },
            Message::Objects { batch: 9, objects: vec![present, absent] },
            Message::Objects { batch: 9, objects: Vec::new() },
            Message::AskHealth { requested_us: 9 },
            Message::Healthy { requested_us: 9 },
        ];
        for message in messages {
            let bytes = message.encode();
            assert_eq!(Message::decode(bytes.clone()), Some(message));
            for cut in 0..bytes.len() {
                // A prefix with fewer objects is a message too: a frame has a length and a checksum.
                let shorter = Message::decode(bytes.slice(..cut));
                assert!(shorter.is_none_or(|shorter| shorter.encode().len() == cut));
            }
        }
        let many = vec![(1, one); limits::ASKED_OBJECTS + 1];
        assert_eq!(Message::decode(Message::AskObjects { batch: 1, objects: many }.encode()), None);
    }
}
