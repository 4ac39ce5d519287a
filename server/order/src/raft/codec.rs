//! The engine's messages as bytes, by hand: every field is read with a bound, and protobuf's parser never
//! sees a peer's bytes.
//!
//! ```text
//! group u64 | delivered u64 | floor u64
//! | type u8 | reject u8 | transfer u8 | to u64 | from u64 | term u64 | log_term u64 | index u64 | commit u64
//! | commit_term u64 | hint u64
//! | append:   count u32, count x { type u8 | term u64 | index u64 | head_len u32 | body_len u32 | head | body }
//! | snapshot: index u64 | term u64 | configuration
//! ```
//!
//! The body of a batch that the receiver has handed over itself may be left out (`body_len` 0): see `node/own.rs`.

use ::raft::eraftpb::{Entry, EntryType, Message, MessageType, Snapshot};
use bytes::Bytes;
use wire::{Malformed, Put, Reader, SharedReader};

use crate::body::{BodyWriter, FrameBody};
use crate::limits;
use crate::raft::members::Configuration;

/// The engine's name for a vote request that hands the leadership over; the only context it uses here.
pub(crate) const TRANSFER: &[u8] = b"CampaignTransfer";

/// The fields that accompany every engine message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Envelope {
    /// The group of both sides, by its founding.
    pub group: u64,
    /// The index up to which the sender's pipeline took delivery.
    pub delivered: u64,
    /// From a leader: no member needs entries up to here. From any other replica: the first entry of its log.
    pub floor: u64,
}

/// An engine message as received; the snapshot's membership is kept next to the message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Received {
    pub envelope: Envelope,
    pub message: Message,
    pub configuration: Option<Configuration>,
}

/// Bytes in front of an entry's own bytes.
const ENTRY: usize = 25;

/// The message kinds that are sent, with the byte for each.
const KINDS: [(u8, MessageType); 9] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgSnapshot),
    (6, MessageType::MsgHeartbeat),
    (7, MessageType::MsgHeartbeatResponse),
    (8, MessageType::MsgRequestPreVote),
    (9, MessageType::MsgRequestPreVoteResponse),
];
const TIMEOUT_NOW: (u8, MessageType) = (10, MessageType::MsgTimeoutNow);

fn kinds() -> impl Iterator<Item = (u8, MessageType)> {
    KINDS.into_iter().chain([TIMEOUT_NOW])
}

/// The bytes of a message; `None` for kinds that never leave a replica. Entries whose bodies the receiver `has` travel
/// without them.
pub(crate) fn encode(
    envelope: &Envelope,
    message: &Message,
    has: impl Fn(&Entry) -> bool,
) -> Option<FrameBody> {
    let (kind, _) = kinds().find(|&(_, kind)| kind == message.get_msg_type())?;
    let count = message.entries.len();
    let mut body = BodyWriter::with_capacity(128 + ENTRY * count, 2 * count);
    let out = body.fields();
    out.put64(envelope.group).put64(envelope.delivered).put64(envelope.floor);
    out.put8(kind).put8(u8::from(message.reject)).put8(u8::from(message.context == TRANSFER));
    out.put64(message.to).put64(message.from).put64(message.term).put64(message.log_term);
    out.put64(message.index).put64(message.commit).put64(message.commit_term).put64(message.reject_hint);
    match message.get_msg_type() {
        MessageType::MsgAppend => {
            out.put32(message.entries.len() as u32);
            for entry in &message.entries {
                let data = if has(entry) { &Bytes::new() } else { &entry.data };
                put_entry_head(entry, data.len(), body.fields());
                body.share(&entry.context);
                body.share(data);
            }
        }
        MessageType::MsgSnapshot => {
            let snapshot = message.get_snapshot();
            let metadata = snapshot.get_metadata();
            out.put64(metadata.index).put64(metadata.term).put(&snapshot.data);
        }
        _ => {}
    }
    Some(body.finish())
}

/// Reads a message. The result is well formed, but not yet plausible: see `check`.
pub(crate) fn decode(body: Bytes) -> Result<Received, Malformed> {
    let mut reader = Reader::shared(&body);
    let envelope = Envelope { group: reader.u64()?, delivered: reader.u64()?, floor: reader.u64()? };
    let byte = reader.u8()?;
    let (_, kind) = kinds().find(|&(known, _)| known == byte).ok_or(Malformed("unknown message type"))?;
    let mut message = Message::default();
    message.set_msg_type(kind);
    message.reject = reader.flag()?;
    if reader.flag()? {
        message.context = Bytes::from_static(TRANSFER);
    }
    message.to = reader.u64()?;
    message.from = reader.u64()?;
    message.term = reader.u64()?;
    message.log_term = reader.u64()?;
    message.index = reader.u64()?;
    message.commit = reader.u64()?;
    message.commit_term = reader.u64()?;
    message.reject_hint = reader.u64()?;
    let mut configuration = None;
    match kind {
        MessageType::MsgAppend => {
            let count = reader.count32(limits::APPEND_ENTRIES, ENTRY)?;
            let entries: Result<Vec<Entry>, Malformed> =
                (0..count).map(|_| decode_entry(&mut reader)).collect();
            message.set_entries(entries?.into());
        }
        MessageType::MsgSnapshot => {
            let (index, term) = (reader.u64()?, reader.u64()?);
            let data = reader.rest_bytes();
            let mut reader = Reader::new(&data);
            let membership = Configuration::decode(&mut reader)?;
            reader.end()?;
            message.set_snapshot(snapshot(index, term, &membership, data));
            configuration = Some(membership);
        }
        _ => {}
    }
    reader.end()?;
    Ok(Received { envelope, message, configuration })
}

/// A snapshot that is metadata only: the state itself is transferred separately, verified by f+1 replicas.
pub(crate) fn snapshot(index: u64, term: u64, configuration: &Configuration, data: Bytes) -> Snapshot {
    let mut snapshot = Snapshot { data, ..Snapshot::default() };
    let metadata = snapshot.mut_metadata();
    metadata.index = index;
    metadata.term = term;
    metadata.set_conf_state(configuration.conf_state());
    snapshot
}

/// An entry, in a message and in the log alike.
pub(crate) fn encode_entry(entry: &Entry, out: &mut Vec<u8>) {
    put_entry_head(entry, entry.data.len(), out);
    out.put(&entry.context).put(&entry.data);
}

fn put_entry_head(entry: &Entry, body: usize, out: &mut Vec<u8>) {
    out.put8(match entry.get_entry_type() {
        EntryType::EntryNormal => 0,
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => 1,
    });
    out.put64(entry.term).put64(entry.index);
    out.put32(entry.context.len() as u32).put32(body as u32);
}

pub(crate) fn decode_entry(reader: &mut SharedReader<'_>) -> Result<Entry, Malformed> {
    let mut entry = Entry::default();
    entry.set_entry_type(if reader.flag()? { EntryType::EntryConfChange } else { EntryType::EntryNormal });
    entry.term = reader.u64()?;
    entry.index = reader.u64()?;
    let (head, body) = (reader.u32()? as usize, reader.u32()? as usize);
    entry.context = reader.bytes(head)?;
    entry.data = reader.bytes(body)?;
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(kind: MessageType) -> Message {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.to, message.from, message.term, message.index) = (0x101, 0x102, 7, 9);
        (message.log_term, message.commit, message.reject_hint) = (6, 8, 5);
        match kind {
            MessageType::MsgAppend => {
                let mut entry = Entry::default();
                (entry.term, entry.index) = (7, 10);
                entry.context = Bytes::from_static(b"head");
                entry.data = Bytes::from_static(b"some body");
                message.set_entries(vec![entry.clone(), entry].into());
            }
            MessageType::MsgSnapshot => {
                let configuration = Configuration::founding(&[1, 2, 3], 1);
                let mut data = Vec::new();
                configuration.encode(&mut data);
                message.set_snapshot(snapshot(9, 7, &configuration, data.into()));
            }
            MessageType::MsgRequestVote => message.context = Bytes::from_static(TRANSFER),
            _ => message.reject = true,
        }
        message
    }

    #[test]
    fn every_kind_survives_the_trip_and_no_cut_of_it_does() {
        let envelope = Envelope { group: 3, delivered: 4, floor: 2 };
        for (_, kind) in kinds() {
            let message = sample(kind);
            let bytes = encode(&envelope, &message, |_| false).unwrap().joined();
            let back = decode(bytes.clone()).unwrap();
            assert_eq!((back.envelope, back.message), (envelope, message));
            for len in 0..bytes.len() {
                assert!(decode(bytes.slice(..len)).is_err());
            }
        }
        assert_eq!(
            encode(&envelope, &sample(MessageType::MsgPropose), |_| false),
            None,
            "proposals are not forwarded"
        );
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(bytes.into());
        }

        #[test]
        fn mutated_messages_never_panic(pick in 0usize..10, at in any::<usize>(), value in any::<u8>()) {
            let message = sample(kinds().nth(pick).unwrap().1);
            let mut bytes = encode(&Envelope::default(), &message, |_| false).unwrap().joined().to_vec();
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = decode(bytes.into());
        }
    }
}
