//! etcd's JSON gateway over HTTP/1.1 with persistent connections: more work for the server than its gRPC, and far less
//! for us.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memcached::protocol::numbers::push_decimal;

use super::{Reply, Taken, WireRequest, line, number};
use crate::definition::Op;

/// Longest head of an answer that is accepted.
const LONGEST_HEAD: usize = 16 << 10;

/// Appends a request. Only reads, writes and removals occur here: [`crate::definition::Side::offers`].
pub fn write(request: &WireRequest<'_>, out: &mut Vec<u8>) {
    let (path, stores) = match request.op {
        Op::Get | Op::Gets => ("/v3/kv/range", false),
        Op::Delete => ("/v3/kv/deleterange", false),
        Op::Set | Op::Add | Op::Cas | Op::Incr => ("/v3/kv/put", true),
    };
    let mut body = String::with_capacity(64 + (request.key.len() + request.value.len()) * 4 / 3);
    body.push_str("{\"key\":\"");
    STANDARD.encode_string(request.key, &mut body);
    if stores {
        body.push_str("\",\"value\":\"");
        STANDARD.encode_string(request.value, &mut body);
    }
    body.push_str("\"}");
    for piece in ["POST ", path, " HTTP/1.1\r\nHost: localhost\r\nContent-Length: "] {
        out.extend_from_slice(piece.as_bytes());
    }
    push_decimal(out, body.len() as u64);
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(body.as_bytes());
}

/// Takes the answer to `op` from the front of `bytes`.
pub fn take(op: Op, bytes: &[u8]) -> Taken<'_> {
    let head = match AnswerHead::read(bytes) {
        Ok(Some(head)) => head,
        Ok(None) => return Taken::Incomplete,
        Err(what) => return Taken::Nonsense(what),
    };
    let rest = &bytes[head.used..];
    let body = match head.length {
        Some(length) => rest.get(..length).map(|body| (Cow::Borrowed(body), length)),
        None => match chunks(rest) {
            Ok(body) => body.map(|(body, used)| (Cow::Owned(body), used)),
            Err(what) => return Taken::Nonsense(what),
        },
    };
    let Some((body, used)) = body else { return Taken::Incomplete };
    let used = head.used + used;
    if !head.good {
        let words = String::from_utf8_lossy(&body).chars().take(200).collect::<String>();
        return Taken::Whole(used, Reply::Refused(Cow::Owned(words.into_bytes())));
    }
    match answer(op, &body) {
        Some(reply) => Taken::Whole(used, reply),
        None => Taken::Nonsense("JSON that does not answer this request"),
    }
}

/// The needed part of an answer's head.
struct AnswerHead {
    used: usize,
    good: bool,
    /// None: the body comes in chunks.
    length: Option<usize>,
}

impl AnswerHead {
    fn read(bytes: &[u8]) -> Result<Option<AnswerHead>, &'static str> {
        let mut head = AnswerHead { used: 0, good: false, length: None };
        let mut chunked = false;
        loop {
            let Some((content, used)) = line(&bytes[head.used..]) else {
                return if bytes.len() > LONGEST_HEAD { Err("an endless HTTP head") } else { Ok(None) };
            };
            if head.used == 0 {
                if !content.starts_with(b"HTTP/1.1 ") {
                    return Err("not HTTP/1.1");
                }
                head.good = content[9..].starts_with(b"200");
            }
            head.used += used;
            if content.is_empty() {
                return if chunked || head.length.is_some() {
                    Ok(Some(head))
                } else {
                    Err("an answer without a length")
                };
            }
            let Some(colon) = content.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = (&content[..colon], content[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"content-length") {
                head.length = Some(number(value).and_then(|n| usize::try_from(n).ok()).ok_or("no length")?);
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                chunked = value.eq_ignore_ascii_case(b"chunked");
            }
        }
    }
}

/// A complete body of chunks, and its length on the wire.
fn chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, &'static str> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let Some((size, used)) = line(&bytes[at..]) else { return Ok(None) };
        let size =
            std::str::from_utf8(size).ok().and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        let size = size.ok_or("a chunk without a size")?;
        at += used;
        let Some(end) = at.checked_add(size).filter(|end| end.saturating_add(2) <= bytes.len()) else {
            return Ok(None);
        };
        body.extend_from_slice(&bytes[at..end]);
        at = end + 2;
        if size == 0 {
            return Ok(Some((body, at)));
        }
    }
}

fn answer(op: Op, body: &[u8]) -> Option<Reply<'static>> {
    match op {
        Op::Set | Op::Add | Op::Cas | Op::Incr => {
            memchr::memmem::find(body, b"\"revision\"").map(|_| Reply::Stored)
        }
        Op::Delete => {
            // The gateway omits numbers that are zero.
            let found = field(body, b"\"deleted\":\"").is_some();
            Some(if found { Reply::Deleted } else { Reply::Missing })
        }
        Op::Get | Op::Gets => match field(body, b"\"value\":\"") {
            Some(text) => {
                let bytes = STANDARD.decode(text).ok()?;
                Some(Reply::Value { key: None, bytes: Cow::Owned(bytes), unique: 0 })
            }
            None => memchr::memmem::find(body, b"\"revision\"").map(|_| Reply::Missing),
        },
    }
}

/// The string after `name`. Keys and values are base64, so no other field can contain the name.
fn field<'b>(body: &'b [u8], name: &[u8]) -> Option<&'b [u8]> {
    let from = memchr::memmem::find(body, name)? + name.len();
    let length = memchr::memchr(b'"', &body[from..])?;
    Some(&body[from..from + length])
}
