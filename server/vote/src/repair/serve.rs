//! The healthy side of a repair: packed objects are cut into pieces, whose digests and bytes are sent, and are kept for
//! a while.

use std::collections::BTreeMap;

use bytes::Bytes;
use object::{ObjectId, RegionId};

use crate::config::Replica;
use crate::digest::{RepairHeader, repair_piece};
use crate::event::{Content, Packed, Place};
use crate::limits::*;
use crate::message::{Message, RepairPart};
use crate::voter::Round;

/// The objects that this replica has packed for faulty ones.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// The packed objects, by turn and faulty replica.
    turns: BTreeMap<(Place, Replica), ServedTurn>,
    /// Their bytes in all turns.
    bytes: usize,
}

#[derive(Debug)]
struct ServedTurn {
    turn: Place,
    /// Content of each object (none: it does not exist) and the digests of its pieces.
    objects: BTreeMap<(RegionId, ObjectId), (Option<Bytes>, Vec<u128>)>,
}

impl Served {
    /// Sends the digest of every piece to a replica that overwrites its objects (EDCC'16 Table III); one
    /// sender, `pushes`, adds the bytes of the first ones. All of it is one message, if it is not too long. The rest
    /// is pulled.
    pub(super) fn on_turn(
        &mut self,
        turn: Place,
        faulty: Replica,
        packed: Vec<Packed>,
        pushes: bool,
        round: &mut Round<'_>,
    ) {
        let mut objects = BTreeMap::new();
        for Packed { region_id, id, content } in packed {
            let content = match content {
                Content::Present(bytes) => Some(bytes),
                Content::Absent => None,
                // It failed its own check here: this replica sends no digest of it.
                Content::Damaged => continue,
            };
            let pieces = pieces_of(content.as_ref());
            if pieces <= MAX_PIECES {
                let digest = |piece| piece_digest(turn, (region_id, id), content.as_ref(), piece);
                let digests = (0..pieces).map(digest).collect();
                objects.insert((region_id, id), (content, digests));
            }
        }
        let served = ServedTurn { turn, objects };
        let (mut pushed, mut bytes, mut parts) = (0, 0, Vec::new());
        for (target, (content, digests)) in &served.objects {
            for piece in 0..digests.len() as u32 {
                let length = content.as_ref().map_or(0, |content| piece_bytes(content, piece).len());
                let with_bytes = pushes && pushed + length <= REPAIR_PUSH_BYTES;
                pushed += if with_bytes { length } else { 0 };
                let Some(part) = served.part(*target, piece, with_bytes) else { continue };
                let more = REPAIR_PART_BYTES + part.bytes.as_ref().map_or(0, Bytes::len);
                if parts.len() == MAX_PARTS_PER_REPAIR
                    || (!parts.is_empty() && bytes + more > REPAIR_MESSAGE_BYTES)
                {
                    round.send_one(faulty, Message::Repair { turn, parts: std::mem::take(&mut parts) });
                    bytes = 0;
                }
                bytes += more;
                parts.push(part);
            }
        }
        if !parts.is_empty() {
            round.send_one(faulty, Message::Repair { turn, parts });
        }
        self.keep(faulty, served);
    }

    /// Keeps a turn; the oldest ones are dropped if there is no room.
    fn keep(&mut self, faulty: Replica, served: ServedTurn) {
        let newest = (served.turn, faulty);
        self.bytes += served.bytes();
        if let Some(old) = self.turns.insert(newest, served) {
            self.bytes -= old.bytes();
        }
        while self.turns.len() > 1 && (self.turns.len() > SERVED_TURNS || self.bytes > SERVED_BYTES) {
            let oldest = self.turns.keys().copied().find(|key| *key != newest);
            let Some(served) = oldest.and_then(|key| self.turns.remove(&key)) else { return };
            self.bytes -= served.bytes();
        }
    }

    /// Sends one piece with its bytes.
    pub(super) fn on_ask(
        &mut self,
        (turn, from): (Place, Replica),
        target: (RegionId, ObjectId),
        piece: u32,
        round: &mut Round<'_>,
    ) {
        let served = self.turns.get(&(turn, from));
        if let Some(part) = served.and_then(|served| served.part(target, piece, true)) {
            round.send_one(from, Message::Repair { turn, parts: vec![part] });
        }
    }

    /// The faulty replica was replaced; it waits for nothing before `first_batch`.
    pub(super) fn on_peer_replaced(&mut self, replica: Replica, first_batch: u64) {
        // With its log on disk, the next process executes the turns again that this one held.
        self.turns.retain(|(turn, faulty), _| *faulty != replica || turn.batch >= first_batch);
        self.bytes = self.turns.values().map(ServedTurn::bytes).sum();
    }

    pub(super) fn on_repaired(&mut self, turn: Place, from: Replica) {
        if let Some(served) = self.turns.remove(&(turn, from)) {
            self.bytes -= served.bytes();
        }
    }
}

impl ServedTurn {
    fn bytes(&self) -> usize {
        let content = |content: &Option<Bytes>| content.as_ref().map_or(0, Bytes::len);
        self.objects.values().map(|(bytes, _)| content(bytes) + SERVED_OBJECT_BYTES).sum()
    }

    fn part(&self, target: (RegionId, ObjectId), piece: u32, with_bytes: bool) -> Option<RepairPart> {
        let (content, digests) = self.objects.get(&target)?;
        let digest = *digests.get(piece as usize)?;
        let bytes = content.as_ref().filter(|_| with_bytes).map(|content| piece_bytes(content, piece));
        Some(RepairPart {
            region_id: target.0,
            id: target.1,
            present: content.is_some(),
            piece,
            pieces: digests.len() as u32,
            digest,
            bytes,
        })
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

fn piece_digest(
    turn: Place,
    (region_id, id): (RegionId, ObjectId),
    content: Option<&Bytes>,
    piece: u32,
) -> u128 {
    let header = RepairHeader {
        batch: turn.batch,
        request: turn.request,
        region_id,
        id: id.to_bits(),
        piece,
        pieces: pieces_of(content),
        present: content.is_some(),
    };
    repair_piece(&header, &content.map_or(Bytes::new(), |content| piece_bytes(content, piece)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    /// The numbers of pieces, and whether they have bytes, of the messages that a donor sends.
    fn messages(pushes: bool, lengths: &[usize]) -> Vec<Vec<bool>> {
        let packed = |(slot, length): (u16, &usize)| Packed {
            region_id: 1,
            id: ObjectId::new(4, slot),
            content: Content::Present(vec![7; *length].into()),
        };
        let mut commands = Vec::new();
        let round = &mut Round { now_us: 0, commands: &mut commands };
        let packed = (0..).zip(lengths).map(packed).collect();
        Served::default().on_turn(Place::new(9, 0), 2, packed, pushes, round);
        let with_bytes = |command| match command {
            Command::Send { message: Message::Repair { parts, .. }, .. } => {
                let mut wire = Vec::new();
                let message = Message::Repair { turn: Place::new(9, 0), parts: parts.clone() };
                message.encode(&mut wire);
                assert!(wire.len() <= MAX_PIECE_BYTES + REPAIR_PART_BYTES + 16, "{} bytes", wire.len());
                assert_eq!(Message::decode(&wire.into()), Ok(message));
                parts.iter().map(|part| part.bytes.is_some()).collect()
            }
            other => panic!("{other:?}"),
        };
        commands.into_iter().map(with_bytes).collect()
    }

    #[test]
    fn all_objects_go_into_one_message_unless_it_is_too_long() {
        assert_eq!(messages(true, &[100, 0, 4000]), [vec![true; 3]]);
        assert_eq!(messages(false, &[100, MAX_PIECE_BYTES, 4 * MAX_PIECE_BYTES]), [vec![false; 6]]);
        let long = MAX_PIECE_BYTES - 1000;
        assert_eq!(messages(true, &[long, 900, 900]), [vec![true, true], vec![true]]);
        assert_eq!(messages(true, &[MAX_PIECE_BYTES, MAX_PIECE_BYTES]), [[true], [true]]);
        let most = vec![1; MAX_PARTS_PER_REPAIR + 1];
        assert_eq!(messages(true, &most).iter().map(Vec::len).collect::<Vec<_>>(), [MAX_PARTS_PER_REPAIR, 1]);
        // More than is pushed: the digests of the rest are behind it.
        assert_eq!(
            messages(true, &[MAX_PIECE_BYTES; 5]),
            [[true; 1]; 4].iter().map(|one| one.to_vec()).chain([vec![false]]).collect::<Vec<_>>()
        );
    }

    /// A replica that lost its memory is filled with a later state; one that has its log on disk executes the turns
    /// again.
    #[test]
    fn a_new_incarnation_finds_what_was_packed_for_turns_it_will_come_to() {
        let mut served = Served::default();
        let object = (Some(Bytes::from_static(b"right")), vec![7]);
        for batch in [10, 20] {
            let turn = Place::new(batch, 0);
            let objects = BTreeMap::from([((1, ObjectId::new(4, 2)), object.clone())]);
            served.keep(2, ServedTurn { turn, objects });
        }
        served.on_peer_replaced(1, 100);
        assert_eq!(served.turns.len(), 2, "another replica's");
        served.on_peer_replaced(2, 15);
        assert_eq!(served.turns.keys().map(|(turn, _)| turn.batch).collect::<Vec<_>>(), [20]);
        assert_eq!(served.bytes, served.turns.values().map(ServedTurn::bytes).sum::<usize>());
    }
}
