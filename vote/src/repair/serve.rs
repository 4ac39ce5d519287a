//! The healthy side of a repair: packed objects are cut into pieces, voted for, sent and kept for a while.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use object::{Home, ObjectId};

use crate::config::Replica;
use crate::digest::{RepairHeader, repair_piece};
use crate::event::{Content, Packed, Place};
use crate::limits::*;
use crate::message::{Message, Repair};
use crate::voter::Round;

/// What this replica has packed for faulty ones.
#[derive(Debug, Default)]
pub(super) struct Served {
    turns: VecDeque<ServedTurn>,
}

#[derive(Debug)]
struct ServedTurn {
    turn: Place,
    faulty: Replica,
    /// Content of each object (none: it does not exist) and the digests of its pieces.
    objects: BTreeMap<(Home, ObjectId), (Option<Bytes>, Vec<u128>)>,
}

impl Served {
    /// Sends the digest of every piece to the faulty replica (EDCC'16 Table III); one replica, `pushes`, adds the bytes of
    /// the first ones, so that a small repair takes one message. The rest is pulled.
    pub(super) fn on_turn(
        &mut self,
        turn: Place,
        faulty: Replica,
        packed: Vec<Packed>,
        pushes: bool,
        round: &mut Round<'_>,
    ) {
        let mut objects = BTreeMap::new();
        for Packed { home, id, content } in packed {
            let content = match content {
                Content::Present(bytes) => Some(bytes),
                Content::Absent => None,
                // It failed its own check here: no say about it.
                Content::Damaged => continue,
            };
            let pieces = pieces_of(content.as_ref());
            if pieces <= MAX_PIECES {
                let digest = |piece| piece_digest(turn, (home, id), content.as_ref(), piece);
                let digests = (0..pieces).map(digest).collect();
                objects.insert((home, id), (content, digests));
            }
        }
        let served = ServedTurn { turn, faulty, objects };
        let mut pushed = 0;
        for (target, (content, digests)) in &served.objects {
            for piece in 0..digests.len() as u32 {
                let length = content.as_ref().map_or(0, |content| piece_bytes(content, piece).len());
                let with_bytes = pushes && pushed + length <= REPAIR_PUSH_BYTES;
                pushed += if with_bytes { length } else { 0 };
                if let Some(message) = served.message(*target, piece, with_bytes) {
                    round.send_one(faulty, message);
                }
            }
        }
        self.turns.push_back(served);
        let bytes = |turns: &VecDeque<ServedTurn>| turns.iter().map(ServedTurn::bytes).sum::<usize>();
        while self.turns.len() > SERVED_TURNS || (self.turns.len() > 1 && bytes(&self.turns) > SERVED_BYTES) {
            self.turns.pop_front();
        }
    }

    /// Sends one piece with its bytes.
    pub(super) fn on_ask(
        &mut self,
        from: Replica,
        turn: Place,
        target: (Home, ObjectId),
        piece: u32,
        round: &mut Round<'_>,
    ) {
        let served = self.turns.iter().find(|served| served.turn == turn && served.faulty == from);
        if let Some(message) = served.and_then(|served| served.message(target, piece, true)) {
            round.send_one(from, message);
        }
    }

    /// The faulty replica was rebuilt; it waits for nothing any more.
    pub(super) fn on_peer_replaced(&mut self, replica: Replica) {
        self.turns.retain(|served| served.faulty != replica);
    }

    pub(super) fn on_repaired(&mut self, from: Replica, turn: Place) {
        self.turns.retain(|served| !(served.turn == turn && served.faulty == from));
    }
}

impl ServedTurn {
    fn bytes(&self) -> usize {
        self.objects.values().map(|(content, _)| content.as_ref().map_or(0, Bytes::len)).sum()
    }

    fn message(&self, target: (Home, ObjectId), piece: u32, with_bytes: bool) -> Option<Message> {
        let (content, digests) = self.objects.get(&target)?;
        let digest = *digests.get(piece as usize)?;
        let bytes = content.as_ref().filter(|_| with_bytes).map(|content| piece_bytes(content, piece));
        Some(Message::Repair(Repair {
            turn: self.turn,
            home: target.0,
            id: target.1,
            present: content.is_some(),
            piece,
            pieces: digests.len() as u32,
            digest,
            bytes,
        }))
    }
}

fn pieces_of(content: Option<&Bytes>) -> u32 {
    let length = content.map_or(0, Bytes::len);
    u32::try_from(length.div_ceil(MAX_PIECE_BYTES).max(1)).unwrap_or(u32::MAX)
}

fn piece_bytes(content: &Bytes, piece: u32) -> Bytes {
    let begin = piece as usize * MAX_PIECE_BYTES;
    content.slice(begin.min(content.len())..content.len().min(begin + MAX_PIECE_BYTES))
}

fn piece_digest(turn: Place, (home, id): (Home, ObjectId), content: Option<&Bytes>, piece: u32) -> u128 {
    let header = RepairHeader {
        batch: turn.batch,
        request: turn.request,
        home,
        id: id.to_bits(),
        piece,
        pieces: pieces_of(content),
        present: content.is_some(),
    };
    repair_piece(&header, &content.map_or(Bytes::new(), |content| piece_bytes(content, piece)))
}
