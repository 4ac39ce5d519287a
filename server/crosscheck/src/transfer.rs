//! State transfer: a replica without state takes it from its peers in pieces, each accepted only on the digest that
//! f+1 of them agree on. No replica trusts a single peer's snapshot (docs/design.md, section 7).
//!
//! A donor offers pieces as soon as they are packed, while requests run and later pieces are not yet made, and keeps
//! only the last ones: the leader packs no faster than the receiver takes them.
//!
//! No socket and no clock: [`Donor`] and [`Receiver`] turn messages into messages. Pieces travel on the peers' ordinary
//! connection, a few at a time: small messages next to bulk data took 33 us one way, against 21 us on a connection and
//! thread of their own (docs/design.md, section 5). This gain does not justify another thread.

mod donor;
mod receiver;
#[cfg(test)]
mod transfer_tests;

use bytes::Bytes;
use object::{ObjectId, RegionId};
use vote::{Content, Packed};
use wire::{Malformed, Put, Reader};

pub use donor::{CopyRoom, Donor};
pub use receiver::{Progress, Receiver, TakenPiece};

use crate::limits;

/// Set in the name of a state that was packed at once.
const WHOLE: u64 = 1 << 63;
/// Digests in a message, at most.
const DIGESTS: usize = 1 << 15;

/// The messages between donors and receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A receiver requests a state at log index `at_least` or later, and tells how much of one it has.
    AskState {
        /// Log index below which a state is of no use; 0 if any is.
        at_least: u64,
        /// The state that it fetches ([`copy_of`]); 0 for none.
        copy: u64,
        /// Pieces whose digests it knows from this donor.
        known: u32,
        /// Pieces that it has put in place.
        taken: u32,
    },
    /// A donor's state, or what there is of it so far.
    Offer(Offer),
    /// A receiver requests a piece.
    AskPiece {
        /// The state.
        copy: u64,
        /// Number of the piece, from 0.
        piece: u32,
    },
    /// A donor's piece.
    Piece {
        /// The state.
        copy: u64,
        /// Number of the piece, from 0.
        piece: u32,
        /// Its bytes, accepted only on the digest that f+1 donors have offered.
        bytes: Bytes,
    },
    /// The donor does not have the requested state (any more).
    Nothing {
        /// The state; 0 if it has none that the receiver could begin with.
        copy: u64,
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

/// A donor's state, or what there is of it so far: equal at every healthy replica that makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The state ([`copy_of`]).
    pub copy: u64,
    /// It leads, and can order nothing without the receiver: nobody else may be able to offer the same.
    pub alone: bool,
    /// The end, once all pieces are there.
    pub end: Option<StateEnd>,
    /// The number of the first piece of `digests`.
    pub first: u32,
    /// Digests of the pieces that the receiver does not know from this donor, at most [`DIGESTS`] at a time.
    pub digests: Vec<u128>,
}

/// Where a state ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateEnd {
    /// Log index of the checkpoint: the state holds the effect of every entry up to it.
    pub index: u64,
    /// Number of its pieces.
    pub pieces: u32,
    /// Length of the whole state in bytes.
    pub length: u64,
}

/// The name of a state that was packed at once, after the entry at `index`. One that is made in parts is named by the
/// log index at which that began, which is no such name.
pub fn copy_of(index: u64) -> u64 {
    index | WHOLE
}

impl Message {
    /// The message as the body of a TRANSFER frame.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Message::AskState { at_least, copy, known, taken } => {
                out.put8(1).put64(*at_least).put64(*copy).put32(*known).put32(*taken)
            }
            Message::Offer(Offer { copy, alone, end, first, digests }) => {
                let head = out.put8(2).put64(*copy).put8(u8::from(*alone)).put8(u8::from(end.is_some()));
                let head = match end {
                    Some(StateEnd { index, pieces, length }) => {
                        head.put64(*index).put32(*pieces).put64(*length)
                    }
                    None => head,
                };
                digests.iter().fold(head.put32(*first), |out, digest| out.put128(*digest))
            }
            Message::AskPiece { copy, piece } => out.put8(3).put64(*copy).put32(*piece),
            Message::Piece { copy, piece, bytes } => out.put8(4).put64(*copy).put32(*piece).put(bytes),
            Message::Nothing { copy } => out.put8(5).put64(*copy),
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
        // Every message begins with a number.
        let number = reader.u64().ok()?;
        let message = match kind {
            1 => Message::AskState {
                at_least: number,
                copy: reader.u64().ok()?,
                known: reader.u32().ok()?,
                taken: reader.u32().ok()?,
            },
            2 => Message::Offer(take_offer(number, &mut reader).ok()?),
            3 => Message::AskPiece { copy: number, piece: reader.u32().ok()? },
            4 => Message::Piece { copy: number, piece: reader.u32().ok()?, bytes: reader.rest_bytes() },
            5 => Message::Nothing { copy: number },
            6 => {
                let mut objects = Vec::new();
                while !reader.is_empty() && objects.len() < limits::ASKED_OBJECTS {
                    objects.push((reader.u32().ok()?, ObjectId::from_bits(reader.u64().ok()?)));
                }
                Message::AskObjects { batch: number, objects }
            }
            7 => {
                let mut objects = Vec::new();
                while !reader.is_empty() {
                    objects.push(object(&mut reader).ok()?);
                }
                Message::Objects { batch: number, objects }
            }
            8 => Message::AskHealth { requested_us: number },
            9 => Message::Healthy { requested_us: number },
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

fn take_offer(copy: u64, reader: &mut Reader<'_, &Bytes>) -> Result<Offer, Malformed> {
    let alone = reader.flag()?;
    let end = match reader.flag()? {
        true => Some(StateEnd { index: reader.u64()?, pieces: reader.u32()?, length: reader.u64()? }),
        false => None,
    };
    let first = reader.u32()?;
    let mut digests = Vec::with_capacity(reader.remaining() / 16);
    while !reader.is_empty() {
        digests.push(reader.u128()?);
    }
    Ok(Offer { copy, alone, end, first, digests })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_states_are_read_as_written_or_not_at_all() {
        let end = Some(StateEnd { index: 1, pieces: 2, length: 3 });
        let offer = Offer { copy: copy_of(1), alone: true, end, first: 4, digests: vec![5, u128::MAX] };
        let messages = [
            Message::AskState { at_least: 1, copy: 2, known: 3, taken: 4 },
            Message::Offer(offer.clone()),
            Message::Offer(Offer { end: None, alone: false, digests: Vec::new(), ..offer }),
            Message::AskPiece { copy: 1, piece: 2 },
            Message::Piece { copy: 1, piece: 2, bytes: Bytes::from_static(b"piece") },
            Message::Nothing { copy: 1 },
        ];
        for message in messages {
            let bytes = message.encode();
            assert_eq!(Message::decode(bytes.clone()), Some(message));
            for cut in 0..bytes.len() {
                // A prefix with fewer bytes or digests is a message too: a frame has a length and a checksum.
                let shorter = Message::decode(bytes.slice(..cut));
                assert!(shorter.is_none_or(|shorter| shorter.encode().len() == cut));
            }
        }
        assert_eq!(Message::decode(Bytes::from_static(&[10; 20])), None);
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
