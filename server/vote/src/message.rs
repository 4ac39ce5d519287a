//! The messages between voters, and their form on the wire. The decoder is total: peers' bytes are never trusted.

use bytes::Bytes;
use object::{ObjectId, Pair, RegionId};
use smallvec::SmallVec;
use wire::{Malformed, Put, Reader, SharedReader};

use crate::digest::{Answer, RepairHeader, repair_piece};
use crate::event::{Failure, Pairs, Place};
use crate::limits::*;

/// A message between voters. Any may be lost, duplicated, delayed or reordered; none has to be ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// CHECK: digests of consecutive batches (EDCC'16 Table II; this CHECK has one digest instead of all pairs).
    Check {
        /// Index of the first batch.
        first: u64,
        /// Its digest and those of the following ones; never empty.
        digests: SmallVec<[u128; 2]>,
    },
    /// Digests of the requests of a batch whose digests differ.
    Digests {
        /// The batch.
        batch: u64,
        /// One per request; `None` for an abandoned one.
        digests: Vec<Option<u128>>,
    },
    /// State delta of one request whose digests differ, or a part of it.
    Pairs {
        /// The request.
        place: Place,
        /// The answer and its request.
        answer: Answer,
        /// Pairs in all parts together.
        total: u32,
        /// Index of the first pair in this part.
        first: u32,
        /// The pairs of this part.
        pairs: Pairs,
    },
    /// A replica blames itself for a request.
    SelfBlame {
        /// The request.
        place: Place,
        /// Why.
        failure: Failure,
    },
    /// No majority was found, and this replica examined itself and stands by its result.
    Confirm {
        /// The request.
        place: Place,
    },
    /// A message was lost or is needed again.
    Ask(Ask),
    /// The requested details are gone: the sender has closed the batch, or its process begins after it.
    Forgotten {
        /// The batch.
        batch: u64,
        /// The digest that f+1 agreed on, if the sender took part and still has it.
        digest: Option<u128>,
    },
    /// The sender does not have the requested reply: it never kept its bytes, or has dropped them.
    ReplyGone {
        /// The request.
        place: Place,
    },
    /// A part of a reply's bytes.
    Reply {
        /// The request.
        place: Place,
        /// Length of the whole reply in bytes.
        total: u32,
        /// Where this part begins.
        offset: u32,
        /// The part.
        bytes: Bytes,
    },
    /// REPAIR: pieces of packed objects, or only their digests (EDCC'16 Table III). A donor sends all that it has for
    /// one RECOVER in one message, as far as it fits.
    Repair {
        /// Place of the RECOVER. Pieces are named by it, never by the RECOVER's id: the same RECOVER ordered twice
        /// packs two different states.
        turn: Place,
        /// The pieces; never empty.
        parts: Vec<RepairPart>,
    },
    /// The faulty replica has installed everything: packed objects need no longer be kept.
    Repaired {
        /// Place of the RECOVER.
        turn: Place,
    },
}

/// The requested data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Batch digests.
    Checks {
        /// First batch.
        first: u64,
        /// Their number, at most [`MAX_DIGESTS_PER_CHECK`].
        count: u16,
    },
    /// Request digests of a batch.
    Digests {
        /// The batch.
        batch: u64,
    },
    /// Pairs of a request from one on.
    Pairs {
        /// The request.
        place: Place,
        /// Index of the first requested pair.
        first: u32,
    },
    /// A reply's bytes from an offset on.
    Reply {
        /// The request.
        place: Place,
        /// The first requested byte.
        offset: u32,
    },
    /// Whether the peer stands by its result or blames itself.
    Stance {
        /// The request.
        place: Place,
    },
    /// A piece of a packed object, with its bytes.
    Repair {
        /// Place of the RECOVER.
        turn: Place,
        /// Region.
        region_id: RegionId,
        /// The object, or [`ObjectId::NONE`].
        id: ObjectId,
        /// The piece.
        piece: u32,
    },
}

/// One piece of one packed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPart {
    /// Region.
    pub region_id: RegionId,
    /// The object, or [`ObjectId::NONE`] for the region.
    pub id: ObjectId,
    /// Whether it exists.
    pub present: bool,
    /// This piece.
    pub piece: u32,
    /// Pieces in all, at least 1.
    pub pieces: u32,
    /// [`digest::repair_piece`](crate::digest::repair_piece) of all of it.
    pub digest: u128,
    /// The bytes; `None` when this sender only votes.
    pub bytes: Option<Bytes>,
}

impl RepairPart {
    /// The digest that fits these bytes, in answer to the RECOVER at `turn`.
    pub(crate) fn digest_of(&self, turn: Place, bytes: &[u8]) -> u128 {
        let header = RepairHeader {
            batch: turn.batch,
            request: turn.request,
            region_id: self.region_id,
            id: self.id.to_bits(),
            piece: self.piece,
            pieces: self.pieces,
            present: self.present,
        };
        repair_piece(&header, bytes)
    }
}

/// A count, size or value that no replica sends.
pub(crate) const BOUND: Malformed = Malformed("a count or size is beyond its bound");
/// A kind or tag that does not exist.
const KIND: Malformed = Malformed("unknown kind");

const CHECK: u8 = 1;
const DIGESTS: u8 = 2;
const PAIRS: u8 = 3;
const SELF_BLAME: u8 = 4;
const CONFIRM: u8 = 5;
const ASK: u8 = 6;
const FORGOTTEN: u8 = 7;
const REPLY: u8 = 8;
const REPAIR: u8 = 9;
const REPAIRED: u8 = 10;
const REPLY_GONE: u8 = 11;

impl Message {
    /// The batch that it is about, if it is about a single one.
    pub(crate) fn batch(&self) -> Option<u64> {
        match self {
            Message::Digests { batch, .. } | Message::Forgotten { batch, .. } => Some(*batch),
            Message::Pairs { place, .. }
            | Message::SelfBlame { place, .. }
            | Message::Confirm { place }
            | Message::ReplyGone { place }
            | Message::Reply { place, .. } => Some(place.batch),
            Message::Repair { turn, .. } | Message::Repaired { turn } => Some(turn.batch),
            Message::Check { .. } | Message::Ask(_) => None,
        }
    }

    /// Appends the wire form. A CHECK of one batch takes 27 bytes, each further batch 16.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Check { first, digests } => {
                out.put8(CHECK).put64(*first).put16(digests.len() as u16);
                for digest in digests {
                    out.put128(*digest);
                }
            }
            Message::Digests { batch, digests } => {
                out.put8(DIGESTS).put64(*batch).put16(digests.len() as u16);
                for digest in digests {
                    out.put8(digest.is_some() as u8).put128(digest.unwrap_or(0));
                }
            }
            Message::Pairs { place, answer, total, first, pairs } => {
                out.put8(PAIRS)
                    .put(&place.to_bytes())
                    .put64(answer.position)
                    .put64(answer.time_us)
                    .put32(answer.request_checksum);
                out.put64(answer.bytes).put128(answer.digest).put128(answer.started);
                out.put32(*total).put32(*first);
                out.put16(pairs.len() as u16);
                for pair in pairs {
                    out.put(&crate::digest::pair_bytes(pair));
                }
            }
            Message::SelfBlame { place, failure } => {
                out.put8(SELF_BLAME).put(&place.to_bytes());
                encode_failure(out, failure);
            }
            Message::Confirm { place } => {
                out.put8(CONFIRM).put(&place.to_bytes());
            }
            Message::Ask(ask) => encode_ask(out, ask),
            Message::Forgotten { batch, digest } => {
                out.put8(FORGOTTEN).put64(*batch).put8(digest.is_some() as u8).put128(digest.unwrap_or(0));
            }
            Message::ReplyGone { place } => {
                out.put8(REPLY_GONE).put(&place.to_bytes());
            }
            Message::Reply { place, total, offset, bytes } => {
                out.put8(REPLY).put(&place.to_bytes()).put32(*total).put32(*offset).put(bytes);
            }
            Message::Repair { turn, parts } => encode_repair(out, *turn, parts),
            Message::Repaired { turn } => {
                out.put8(REPAIRED).put(&turn.to_bytes());
            }
        }
    }

    /// Decodes one whole message; large contents stay slices of `frame`.
    ///
    /// # Errors
    /// [`Malformed`] for anything that [`Message::encode`] does not write within this crate's limits.
    pub fn decode(frame: &Bytes) -> Result<Message, Malformed> {
        let mut r = Reader::shared(frame);
        let message = match r.u8()? {
            CHECK => decode_check(&mut r)?,
            DIGESTS => decode_digests(&mut r)?,
            PAIRS => decode_pairs(&mut r)?,
            SELF_BLAME => {
                Message::SelfBlame { place: Place::read(&mut r)?, failure: decode_failure(&mut r)? }
            }
            CONFIRM => Message::Confirm { place: Place::read(&mut r)? },
            ASK => Message::Ask(decode_ask(&mut r)?),
            FORGOTTEN => Message::Forgotten { batch: r.u64()?, digest: decode_optional(&mut r)? },
            REPLY_GONE => Message::ReplyGone { place: Place::read(&mut r)? },
            REPLY => decode_reply(&mut r)?,
            REPAIR => decode_repair(&mut r)?,
            REPAIRED => Message::Repaired { turn: Place::read(&mut r)? },
            _ => return Err(KIND),
        };
        r.end()?;
        Ok(message)
    }
}

fn decode_check(r: &mut SharedReader<'_>) -> Result<Message, Malformed> {
    let first = r.u64()?;
    let count = r.count16(MAX_DIGESTS_PER_CHECK, 16)?;
    if count == 0 || first.checked_add(count as u64).is_none() {
        return Err(BOUND);
    }
    let mut digests = SmallVec::with_capacity(count);
    for _ in 0..count {
        digests.push(r.u128()?);
    }
    Ok(Message::Check { first, digests })
}

fn decode_digests(r: &mut SharedReader<'_>) -> Result<Message, Malformed> {
    let batch = r.u64()?;
    let count = r.count16(MAX_REQUESTS_PER_BATCH, 17)?;
    let mut digests = Vec::with_capacity(count);
    for _ in 0..count {
        digests.push(decode_optional(r)?);
    }
    Ok(Message::Digests { batch, digests })
}

fn decode_pairs(r: &mut SharedReader<'_>) -> Result<Message, Malformed> {
    let place = Place::read(r)?;
    let (position, time_us, request_checksum) = (r.u64()?, r.u64()?, r.u32()?);
    let (bytes, digest, started) = (r.u64()?, r.u128()?, r.u128()?);
    let answer = Answer { position, time_us, request_checksum, bytes, digest, started };
    let (total, first) = (r.u32()?, r.u32()?);
    let count = r.count16(MAX_PAIRS_PER_MESSAGE, crate::digest::PAIR_BYTES)?;
    let end = first.checked_add(count as u32).ok_or(BOUND)?;
    if end > total || total as usize > MAX_PAIRS_PER_REQUEST || (count == 0 && total != 0) {
        return Err(BOUND);
    }
    let mut pairs = Pairs::with_capacity(count);
    for _ in 0..count {
        pairs.push(Pair { region_id: r.u32()?, id: ObjectId::from_bits(r.u64()?), sum: r.u64()? });
    }
    Ok(Message::Pairs { place, answer, total, first, pairs })
}

fn decode_reply(r: &mut SharedReader<'_>) -> Result<Message, Malformed> {
    let (place, total, offset) = (Place::read(r)?, r.u32()?, r.u32()?);
    let bytes = r.rest_bytes();
    let end = (offset as u64) + bytes.len() as u64;
    if bytes.len() > MAX_PIECE_BYTES || total as usize > KEPT_REPLY_BYTES_MAX || end > total as u64 {
        return Err(BOUND);
    }
    Ok(Message::Reply { place, total, offset, bytes })
}

fn decode_optional(r: &mut SharedReader<'_>) -> Result<Option<u128>, Malformed> {
    let present = r.flag()?;
    let digest = r.u128()?;
    match (present, digest) {
        (false, 0) => Ok(None),
        (false, _) => Err(BOUND),
        (true, _) => Ok(Some(digest)),
    }
}

fn encode_ask(out: &mut Vec<u8>, ask: &Ask) {
    out.put8(ASK);
    match *ask {
        Ask::Checks { first, count } => {
            out.put8(0).put64(first).put16(count);
        }
        Ask::Digests { batch } => {
            out.put8(1).put64(batch);
        }
        Ask::Pairs { place, first } => {
            out.put8(2).put(&place.to_bytes()).put32(first);
        }
        Ask::Reply { place, offset } => {
            out.put8(3).put(&place.to_bytes()).put32(offset);
        }
        Ask::Stance { place } => {
            out.put8(5).put(&place.to_bytes());
        }
        Ask::Repair { turn, region_id, id, piece } => {
            out.put8(4).put(&turn.to_bytes()).put32(region_id).put64(id.to_bits()).put32(piece);
        }
    }
}

fn decode_ask(r: &mut SharedReader<'_>) -> Result<Ask, Malformed> {
    Ok(match r.u8()? {
        0 => {
            let (first, count) = (r.u64()?, r.u16()?);
            let fits = first.checked_add(count as u64).is_some();
            if count as usize > MAX_DIGESTS_PER_CHECK || !fits {
                return Err(BOUND);
            }
            Ask::Checks { first, count }
        }
        1 => Ask::Digests { batch: r.u64()? },
        2 => Ask::Pairs { place: Place::read(r)?, first: r.u32()? },
        3 => Ask::Reply { place: Place::read(r)?, offset: r.u32()? },
        5 => Ask::Stance { place: Place::read(r)? },
        4 => {
            let (turn, region_id, id) = (Place::read(r)?, r.u32()?, ObjectId::from_bits(r.u64()?));
            Ask::Repair { turn, region_id, id, piece: r.u32()? }
        }
        _ => return Err(KIND),
    })
}

fn encode_repair(out: &mut Vec<u8>, turn: Place, parts: &[RepairPart]) {
    out.put8(REPAIR).put(&turn.to_bytes()).put16(parts.len() as u16);
    for part in parts {
        out.put32(part.region_id).put64(part.id.to_bits()).put8(part.present as u8);
        out.put32(part.piece).put32(part.pieces).put8(part.bytes.is_some() as u8);
        let bytes = part.bytes.as_deref().unwrap_or_default();
        out.put32(bytes.len() as u32).put128(part.digest).put(bytes);
    }
}

fn decode_repair(r: &mut SharedReader<'_>) -> Result<Message, Malformed> {
    let turn = Place::read(r)?;
    let count = r.count16(MAX_PARTS_PER_REPAIR, REPAIR_PART_BYTES)?;
    if count == 0 {
        return Err(BOUND);
    }
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let (region_id, id, present) = (r.u32()?, ObjectId::from_bits(r.u64()?), r.flag()?);
        let (piece, pieces, has_bytes) = (r.u32()?, r.u32()?, r.flag()?);
        let (length, digest) = (r.u32()? as usize, r.u128()?);
        let is_beyond = piece >= pieces || pieces > MAX_PIECES || length > MAX_PIECE_BYTES;
        if is_beyond || (!present && pieces != 1) || (!has_bytes && length != 0) {
            return Err(BOUND);
        }
        let bytes = r.bytes(length)?;
        let bytes = has_bytes.then_some(bytes);
        parts.push(RepairPart { region_id, id, present, piece, pieces, digest, bytes });
    }
    Ok(Message::Repair { turn, parts })
}

pub(crate) fn encode_failure(out: &mut Vec<u8>, failure: &Failure) {
    match *failure {
        Failure::Check { region_id, id } => {
            out.put8(0).put32(region_id).put64(id.to_bits());
        }
        Failure::Missing { region_id, id } => {
            out.put8(1).put32(region_id).put64(id.to_bits());
        }
        Failure::Panic => {
            out.put8(2);
        }
        Failure::Request => {
            out.put8(3);
        }
        Failure::Hang => {
            out.put8(4);
        }
        Failure::Unreproducible => {
            out.put8(5);
        }
        Failure::Invalid => {
            out.put8(6);
        }
    }
}

pub(crate) fn decode_failure(r: &mut SharedReader<'_>) -> Result<Failure, Malformed> {
    Ok(match r.u8()? {
        0 => Failure::Check { region_id: r.u32()?, id: ObjectId::from_bits(r.u64()?) },
        1 => Failure::Missing { region_id: r.u32()?, id: ObjectId::from_bits(r.u64()?) },
        2 => Failure::Panic,
        3 => Failure::Request,
        4 => Failure::Hang,
        5 => Failure::Unreproducible,
        6 => Failure::Invalid,
        _ => return Err(KIND),
    })
}
