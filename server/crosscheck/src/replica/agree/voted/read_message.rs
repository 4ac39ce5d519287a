//! What replicas say to each other of reads that take no batch (`reads.rs`).

use bytes::Bytes;
use order::Request;
use wire::{Malformed, Put, Reader};

use crate::limits;

/// A message between two replicas. Each question has a number of its own, which its answers repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadMessage {
    /// How far are you?
    Ask { number: u64 },
    /// The batch that was delivered last here.
    At { number: u64, batch: u64 },
    /// Read these, on the state after batch `from` or a later one.
    Read { number: u64, from: u64, requests: Vec<Request> },
    /// They were read on the state after this batch: the digest of each reply; none of one that has no reply.
    Were { number: u64, batch: u64, digests: Vec<Option<u128>> },
}

impl ReadMessage {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            ReadMessage::Ask { number } => _ = out.put8(1).put64(*number),
            ReadMessage::At { number, batch } => _ = out.put8(2).put64(*number).put64(*batch),
            ReadMessage::Read { number, from, requests } => {
                out.put8(3).put64(*number).put64(*from).put16(requests.len() as u16);
                for Request { checksum, bytes, .. } in requests {
                    out.put32(*checksum).put32(bytes.len() as u32);
                    out.put(bytes);
                }
            }
            ReadMessage::Were { number, batch, digests } => {
                out.put8(4).put64(*number).put64(*batch).put16(digests.len() as u16);
                for digest in digests {
                    out.put8(u8::from(digest.is_some())).put128(digest.unwrap_or_default());
                }
            }
        }
        out
    }

    /// # Errors
    /// When these are no bytes that a replica sends.
    pub fn decode(body: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::shared(body);
        let (kind, number) = (reader.u8()?, reader.u64()?);
        let message = match kind {
            1 => ReadMessage::Ask { number },
            2 => ReadMessage::At { number, batch: reader.u64()? },
            3 => {
                let from = reader.u64()?;
                let count = reader.count16(limits::READS_PER_TURN, 8)?;
                let requests =
                    (0..count).map(|_| read_request(&mut reader)).collect::<Result<_, Malformed>>()?;
                ReadMessage::Read { number, from, requests }
            }
            4 => {
                let batch = reader.u64()?;
                let count = reader.count16(limits::READS_PER_TURN, 17)?;
                let digests =
                    (0..count).map(|_| read_digest(&mut reader)).collect::<Result<_, Malformed>>()?;
                ReadMessage::Were { number, batch, digests }
            }
            _ => return Err(Malformed("unknown message about reads")),
        };
        reader.end()?;
        Ok(message)
    }
}

fn read_request<'b>(reader: &mut Reader<'b, &'b Bytes>) -> Result<Request, Malformed> {
    let (checksum, length) = (reader.u32()?, reader.length32()?);
    Ok(Request { checksum, stream: 0, bytes: reader.bytes(length)? })
}

fn read_digest<'b>(reader: &mut Reader<'b, &'b Bytes>) -> Result<Option<u128>, Malformed> {
    let (is_there, digest) = (reader.flag()?, reader.u128()?);
    Ok(is_there.then_some(digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ordered::summed;

    fn messages() -> [ReadMessage; 4] {
        let requests =
            ["get a\r\n", "", "gets b\r\n"].map(|text| summed(Bytes::from_static(text.as_bytes())));
        [
            ReadMessage::Ask { number: 7 },
            ReadMessage::At { number: 7, batch: u64::MAX },
            ReadMessage::Read { number: 8, from: 31, requests: requests.to_vec() },
            ReadMessage::Were { number: 8, batch: 32, digests: vec![Some(5), None, Some(u128::MAX)] },
        ]
    }

    #[test]
    fn a_message_is_read_as_it_was_written_and_a_part_of_one_is_none() {
        for message in messages() {
            let bytes = Bytes::from(message.encode());
            assert_eq!(ReadMessage::decode(&bytes), Ok(message));
            for length in 0..bytes.len() {
                assert!(ReadMessage::decode(&bytes.slice(..length)).is_err());
            }
            let longer = Bytes::from([&bytes[..], &[0]].concat());
            assert!(ReadMessage::decode(&longer).is_err());
        }
    }

    /// Frames have checksums, and the sender may be wrong: any bytes are a message or an error.
    #[test]
    fn no_bytes_end_a_replica() {
        let mut random = wire::SplitMix64::new(1);
        for message in messages() {
            for _ in 0..5_000 {
                let mut bytes = message.encode();
                for _ in 0..random.within(1, 3) {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = random.below(256) as u8;
                }
                if let Ok(other) = ReadMessage::decode(&bytes.clone().into()) {
                    assert!(other.encode().len() <= bytes.len());
                }
            }
        }
    }
}
