//! The messages of a primary's batches, and how their bytes become them again.
//!
//! ```text
//! EXECUTE-BATCH: 1 u8 | view u64 | n u64 | flags u8 | parts u8 | parts x { length u32, head, body }
//! ASK-BATCH    : 2 u8 | view u64 | n u64
//! GONE         : 3 u8 | view u64 | n u64
//! ```
//!
//! Little endian, under the checksum of the frame; each part has its own checksums besides (`batch.rs`).

use bytes::Bytes;
use wire::{Malformed, Put, Reader};

use crate::batch::{Batch, Encoded, HEAD};
use crate::limits;

/// Bytes of an EXECUTE-BATCH before its parts.
pub(crate) const EXECUTE_HEAD: usize = 19;
const EXECUTE: u8 = 1;
const ASK: u8 = 2;
const GONE: u8 = 3;
const FLAG_SEQUENTIAL: u8 = 1;
const FLAG_DRAIN: u8 = 2;

/// A batch of a primary: batches of several origins under one number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PrimaryBatch {
    /// The view in which it was numbered.
    pub view: u64,
    /// Its number.
    pub number: u64,
    /// Its requests run one after the other.
    pub sequential: bool,
    /// The batches of origins in their order, at least one; they share `message`.
    pub parts: Vec<Encoded>,
    /// The EXECUTE-BATCH message with it.
    pub message: Bytes,
}

impl PrimaryBatch {
    /// Joins the parts into one buffer, which is sent, and kept to be sent again.
    pub fn new(view: u64, number: u64, sequential: bool, parts: &[Encoded]) -> Result<Self, Malformed> {
        let bytes: usize = parts.iter().map(|part| 4 + part.len()).sum();
        let mut out = Vec::with_capacity(EXECUTE_HEAD + bytes);
        let drain =
            parts.last().and_then(|last| Encoded::claimed_size(&last.head)).is_some_and(|size| size.1);
        let flags = (u8::from(sequential) * FLAG_SEQUENTIAL) | (u8::from(drain) * FLAG_DRAIN);
        out.put8(EXECUTE).put64(view).put64(number).put8(flags).put8(parts.len() as u8);
        for part in parts {
            out.put32(part.len() as u32).put(&part.head).put(&part.body);
        }
        match BatchMessage::decode(&out.into())? {
            BatchMessage::Execute(batch) => Ok(batch),
            BatchMessage::Ask { .. } | BatchMessage::Gone { .. } => Err(Malformed("not a batch")),
        }
    }

    /// Whether its parts are intact, and could be numbered by a healthy primary of so many replicas. Returns the latest
    /// stamp of a part, in microseconds since 1970.
    pub fn verify(&self, replicas: u8) -> Result<u64, Malformed> {
        let (mut requests, mut latest_us) = (0, 0);
        for part in &self.parts {
            let batch = Batch::decode(part)?;
            if batch.origin >= replicas
                || batch.incarnation == 0
                || batch.number == 0
                || batch.number == u64::MAX
            {
                return Err(Malformed("a part names an origin or a number that cannot be"));
            }
            requests += batch.len();
            latest_us = batch.time_us.max(latest_us);
        }
        if requests > limits::PRIMARY_REQUESTS {
            return Err(Malformed("more requests than a primary joins"));
        }
        Ok(latest_us)
    }
}

/// A message of kind [`crate::FrameKind::Batch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BatchMessage {
    /// EXECUTE-BATCH.
    Execute(PrimaryBatch),
    /// ASK-BATCH: the sender, which is in this view, lacks this batch.
    Ask { view: u64, number: u64 },
    /// The answer where it is not held (any more).
    Gone { view: u64, number: u64 },
}

impl BatchMessage {
    pub fn encode(&self) -> Bytes {
        let (tag, view, number) = match *self {
            BatchMessage::Execute(ref batch) => return batch.message.clone(),
            BatchMessage::Ask { view, number } => (ASK, view, number),
            BatchMessage::Gone { view, number } => (GONE, view, number),
        };
        let mut out = Vec::with_capacity(17);
        out.put8(tag).put64(view).put64(number);
        out.into()
    }

    /// Reads a message; the parts of a batch are not verified yet ([`PrimaryBatch::verify`]).
    pub fn decode(body: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::shared(body);
        let (tag, view, number) = (reader.u8()?, reader.u64()?, reader.u64()?);
        if view == 0 || view >= limits::TERM_LIMIT {
            return Err(Malformed("a view out of range"));
        }
        if number == 0 || number >= limits::TERM_LIMIT {
            return Err(Malformed("a number of a batch out of range"));
        }
        let message = match tag {
            ASK => BatchMessage::Ask { view, number },
            GONE => BatchMessage::Gone { view, number },
            EXECUTE => {
                let flags = reader.u8()?;
                if flags & !(FLAG_SEQUENTIAL | FLAG_DRAIN) != 0 {
                    return Err(Malformed("unknown flags of a batch"));
                }
                let count = usize::from(reader.u8()?);
                if count == 0 || count > limits::PRIMARY_PARTS {
                    return Err(Malformed("a batch of no parts or too many"));
                }
                let mut parts = Vec::with_capacity(count);
                for _ in 0..count {
                    let length = reader.length32()?;
                    let body_len =
                        length.checked_sub(HEAD).ok_or(Malformed("a part is shorter than its head"))?;
                    parts.push(Encoded { head: reader.bytes(HEAD)?, body: reader.bytes(body_len)? });
                }
                let sequential = flags & FLAG_SEQUENTIAL != 0;
                BatchMessage::Execute(PrimaryBatch { view, number, sequential, parts, message: body.clone() })
            }
            _ => return Err(Malformed("an unknown message about batches")),
        };
        reader.end()?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Request, checksum};
    use crate::primary::tests::part;

    #[test]
    fn messages_survive_the_trip_and_no_shorter_or_longer_bytes_are_one() {
        let batch = PrimaryBatch::new(3, 7, true, &[part(0, 1), part(2, 9)]).unwrap();
        assert_eq!(batch.verify(3), Ok(5));
        let (view, number) = (3, 7);
        let messages = [
            BatchMessage::Execute(batch),
            BatchMessage::Ask { view, number },
            BatchMessage::Gone { view, number },
        ];
        for message in messages {
            let bytes = message.encode();
            assert_eq!(BatchMessage::decode(&bytes), Ok(message));
            for len in 0..bytes.len() {
                assert!(BatchMessage::decode(&bytes.slice(..len)).is_err());
            }
            assert!(BatchMessage::decode(&[&bytes[..], &[0]].concat().into()).is_err());
        }
    }

    #[test]
    fn absurd_fields_are_refused() {
        let good = PrimaryBatch::new(3, 7, false, &[part(0, 1)]).unwrap().message;
        let with = |at: usize, byte: u8| {
            let mut bytes = good.to_vec();
            bytes[at] = byte;
            BatchMessage::decode(&bytes.into())
        };
        assert!(with(0, 1).is_ok(), "nothing is changed");
        // Tag, view 0 and beyond the bound, number likewise, flags, counts of parts, length of a part.
        for (at, byte) in
            [(0, 0), (0, 4), (1, 0), (8, 9), (9, 0), (16, 9), (17, 4), (18, 0), (18, 17), (20, 9)]
        {
            assert!(with(at, byte).is_err(), "byte {at} is {byte}");
        }
        assert!(PrimaryBatch::new(3, 7, false, &[]).is_err());
        assert!(PrimaryBatch::new(3, 7, false, &vec![part(0, 1); 17]).is_err());
    }

    #[test]
    fn parts_that_no_healthy_primary_numbers_are_refused() {
        let verify = |parts: &[Encoded]| PrimaryBatch::new(3, 7, false, parts).unwrap().verify(3);
        assert_eq!(verify(&[part(2, 1)]), Ok(5));
        assert!(verify(&[part(3, 1)]).is_err(), "no such replica");
        assert!(verify(&[part(0, 0)]).is_err(), "batches count from 1");
        assert!(verify(&[part(0, u64::MAX)]).is_err(), "none is the last");
        let mut broken = part(0, 1);
        broken.body = Bytes::from_static(b"\x02\0\0\0other bytes");
        assert!(verify(&[broken]).is_err(), "not what its head says");
        let request = Request { checksum: checksum(b"x"), stream: 0, bytes: Bytes::from_static(b"x") };
        let full = Batch::new(0, 1, 1, &vec![request; limits::BATCH_REQUESTS]).encode();
        assert_eq!(verify(&vec![full.clone(); 8]), Ok(0));
        assert!(verify(&vec![full; 9]).is_err(), "1,152 requests");
    }
}
