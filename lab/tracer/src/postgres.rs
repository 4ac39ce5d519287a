//! PostgreSQL's protocol as the campaigns need it: simple queries, the end of a reply, and how a wrong one deviates.

use crate::protocol::{ReplyFrame, Wrong};

/// Version 3.0, in the first message.
const VERSION: u32 = 196_608;
/// The longest message that is accepted.
const LONGEST: usize = 1 << 20;
/// Kinds of messages that a server may send in a campaign.
const KINDS: &[u8] = b"RSKNETDCIZ";

/// The first message of a connection.
pub fn startup() -> Vec<u8> {
    let body = [&VERSION.to_be_bytes()[..], b"user\0lab\0database\0lab\0\0"].concat();
    [&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat()
}

/// A simple query.
pub fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"].concat())
}

/// The right reply of a statement that gives no rows: its tag, and the end.
pub fn done(tag: &str) -> Vec<u8> {
    [message(b'C', &[tag.as_bytes(), b"\0"].concat()), message(b'Z', b"I")].concat()
}

/// The type of a column in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// `text`.
    Text,
    /// `bigint`.
    Bigint,
}

/// The right reply of a SELECT; a value that is none is NULL.
pub fn rows(columns: &[(&str, ColumnType)], rows: &[Vec<Option<String>>]) -> Vec<u8> {
    let mut described = (columns.len() as u16).to_be_bytes().to_vec();
    for (name, of) in columns {
        let (id, size): (u32, i16) = if *of == ColumnType::Text { (25, -1) } else { (20, 8) };
        described.extend_from_slice(name.as_bytes());
        // No table, no column of it; no modifier; as text.
        described.extend_from_slice(&[0; 7]);
        described.extend_from_slice(&id.to_be_bytes());
        described.extend_from_slice(&size.to_be_bytes());
        described.extend_from_slice(&(-1_i32).to_be_bytes());
        described.extend_from_slice(&[0; 2]);
    }
    let mut reply = message(b'T', &described);
    for row in rows {
        let mut body = (row.len() as u16).to_be_bytes().to_vec();
        for value in row {
            let length = value.as_ref().map_or(-1, |value| value.len() as i32);
            body.extend_from_slice(&length.to_be_bytes());
            body.extend_from_slice(value.as_deref().unwrap_or_default().as_bytes());
        }
        reply.extend(message(b'D', &body));
    }
    reply.extend(done(&format!("SELECT {}", rows.len())));
    reply
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// One message of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServerMessage<'a> {
    kind: u8,
    body: &'a [u8],
}

/// The first message of `bytes`, and its length; none while it is incomplete.
fn first(bytes: &[u8]) -> Result<Option<(ServerMessage<'_>, usize)>, ()> {
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
    if !KINDS.contains(&kind) {
        return Err(());
    }
    let Some(length) = rest.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if !(4..=LONGEST).contains(&length) {
        return Err(());
    }
    let body = rest.get(4..length);
    Ok(body.map(|body| (ServerMessage { kind, body }, 1 + length)))
}

/// Classifies the beginning of `bytes`: a reply ends with ReadyForQuery.
pub fn frame(bytes: &[u8]) -> ReplyFrame {
    let mut at = 0;
    loop {
        match first(&bytes[at..]) {
            Err(()) => return ReplyFrame::Malformed,
            Ok(None) => return ReplyFrame::Part,
            Ok(Some((ServerMessage { kind: b'Z', .. }, length))) => return ReplyFrame::Whole(at + length),
            Ok(Some((_, length))) => at += length,
        }
    }
}

fn messages(mut bytes: &[u8]) -> Vec<ServerMessage<'_>> {
    let mut found = Vec::new();
    while let Ok(Some((message, length))) = first(bytes) {
        found.push(message);
        bytes = &bytes[length..];
    }
    found
}

/// How a whole reply deviates from another one. Rows count most: a client believes them.
pub fn difference(right: &[u8], got: &[u8]) -> Wrong {
    let (right, got) = (messages(right), messages(got));
    let of = |messages: &[ServerMessage<'_>], kind| {
        messages.iter().filter(|message| message.kind == kind).map(|message| message.body.to_vec()).collect()
    };
    let has = |messages: &[ServerMessage<'_>], kind| messages.iter().any(|message| message.kind == kind);
    if has(&got, b'E') && !has(&right, b'E') {
        return Wrong::ErrorReply;
    }
    let [right_rows, got_rows]: [Vec<Vec<u8>>; 2] = [of(&right, b'D'), of(&got, b'D')];
    let columns = right.iter().find(|message| message.kind == b'T').and_then(|message| count(message.body));
    if got_rows.iter().any(|row| !is_row(row, columns)) {
        return Wrong::Malformed;
    }
    let lacks = |one: &[Vec<u8>], other: &[Vec<u8>]| one.iter().any(|row| !other.contains(row));
    match (lacks(&right_rows, &got_rows), lacks(&got_rows, &right_rows)) {
        (true, true) => Wrong::Value,
        (true, false) => Wrong::Missing,
        (false, true) => Wrong::Extra,
        // The same rows in another order, or another number of times.
        (false, false) if right_rows != got_rows => Wrong::Value,
        // Names and types of columns, the tag, or the state of the transaction.
        (false, false) => Wrong::Status,
    }
}

fn count(body: &[u8]) -> Option<u16> {
    body.first_chunk::<2>().map(|count| u16::from_be_bytes(*count))
}

/// Whether a client can take a row of so many columns apart.
fn is_row(body: &[u8], columns: Option<u16>) -> bool {
    let Some(values) = count(body).filter(|values| columns.is_none_or(|columns| *values == columns)) else {
        return false;
    };
    let mut rest = &body[2..];
    for _ in 0..values {
        let Some((length, after)) = rest.split_first_chunk::<4>() else { return false };
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        let Some(after) = after.get(length..) else { return false };
        rest = after;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [(&str, ColumnType); 2] = [("v", ColumnType::Text), ("n", ColumnType::Bigint)];

    fn reply(values: &[(&str, &str)]) -> Vec<u8> {
        let row = |(v, n): &(&str, &str)| vec![Some((*v).to_owned()), Some((*n).to_owned())];
        rows(&COLUMNS, &values.iter().map(row).collect::<Vec<_>>())
    }

    /// Recorded from the service.
    #[test]
    fn a_reply_of_the_model_has_the_bytes_of_the_service() {
        let service = b"T\0\0\0.\0\x02v\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0n\0\0\0\0\0\0\0\0\0\0\x14\
            \0\x08\xff\xff\xff\xff\0\0D\0\0\0\x14\0\x02\0\0\0\x05hello\0\0\0\x015C\0\0\0\rSELECT 1\0Z\0\0\0\x05I";
        assert_eq!(reply(&[("hello", "5")]), service);
        assert_eq!(done("INSERT 0 1"), b"C\0\0\0\x0fINSERT 0 1\0Z\0\0\0\x05I");
    }

    #[test]
    fn a_reply_ends_with_ready_for_query_and_garbage_is_none() {
        let one = reply(&[("a", "1"), ("b", "2")]);
        for part in 0..one.len() {
            assert_eq!(frame(&one[..part]), ReplyFrame::Part, "{part} bytes");
        }
        assert_eq!(frame(&[&one[..], b"T\0"].concat()), ReplyFrame::Whole(one.len()));
        assert_eq!(frame(b"\x94\0\0\0\x05I"), ReplyFrame::Malformed);
        assert_eq!(frame(b"C\xff\0\0\0"), ReplyFrame::Malformed);
        assert_eq!(frame(b"C\0\0\0\x01"), ReplyFrame::Malformed);
    }

    #[test]
    fn every_deviation_has_its_name() {
        let right = reply(&[("a", "1"), ("b", "2")]);
        let against = |got: &[u8]| difference(&right, got);
        assert_eq!(against(&reply(&[("a", "1"), ("b", "3")])), Wrong::Value);
        assert_eq!(against(&reply(&[("b", "2"), ("a", "1")])), Wrong::Value);
        assert_eq!(against(&reply(&[("a", "1")])), Wrong::Missing);
        assert_eq!(against(&reply(&[("a", "1"), ("b", "2"), ("c", "3")])), Wrong::Extra);
        assert_eq!(against(&done("SELECT 2")), Wrong::Missing);
        let error = [message(b'E', b"SERROR\0CXX000\0Minternal error\0\0"), message(b'Z', b"I")].concat();
        assert_eq!(against(&error), Wrong::ErrorReply);
        let mut length = right.clone();
        let row = right.windows(2).position(|two| two == b"D\0").expect("a row");
        length[row + 10] ^= 1;
        assert_eq!(against(&length), Wrong::Malformed);
        let mut tag = right.clone();
        let last = right.len();
        tag[last - 8] ^= 1;
        assert_eq!(against(&tag), Wrong::Status);
    }
}
