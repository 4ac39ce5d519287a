//! RESP, the protocol of Redis; a write and the `WAIT` after it are one request with two replies.

use std::borrow::Cow;

use memcached::protocol::numbers::push_decimal;

use super::{Reply, Taken, WireRequest, line, number};
use crate::definition::Op;

/// Milliseconds that `WAIT` waits: longer than any time of a benchmark, so that a lost replica becomes an error.
const WAIT_MS: u64 = 2000;

/// Appends a request.
pub fn write(request: &WireRequest<'_>, wait: u8, out: &mut Vec<u8>) {
    match request.op {
        Op::Get | Op::Gets => array(&[b"GET", request.key], out),
        Op::Delete => array(&[b"DEL", request.key], out),
        Op::Incr => array(&[b"INCR", request.key], out),
        Op::Set | Op::Cas | Op::Add => store(request, out),
    }
    if waits(request.op, wait) {
        let mut milliseconds = Vec::new();
        push_decimal(&mut milliseconds, WAIT_MS);
        array(&[b"WAIT", &[b'0' + wait], &milliseconds], out);
    }
}

fn waits(op: Op, wait: u8) -> bool {
    wait > 0 && !matches!(op, Op::Get | Op::Gets)
}

fn store(request: &WireRequest<'_>, out: &mut Vec<u8>) {
    let mut words: Vec<&[u8]> = vec![b"SET", request.key, request.value];
    if request.op == Op::Add {
        words.push(b"NX");
    }
    let mut ttl = Vec::new();
    if request.ttl > 0 {
        push_decimal(&mut ttl, u64::from(request.ttl));
        words.push(b"EX");
        words.push(&ttl);
    }
    array(&words, out);
}

fn array(words: &[&[u8]], out: &mut Vec<u8>) {
    out.push(b'*');
    push_decimal(out, words.len() as u64);
    out.extend_from_slice(b"\r\n");
    for word in words {
        out.push(b'$');
        push_decimal(out, word.len() as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Takes the reply to `op`, and to the `WAIT` after it, from the front of `bytes`.
pub fn take(op: Op, wait: u8, bytes: &[u8]) -> Taken<'_> {
    let (used, reply) = match one(op, bytes) {
        Taken::Whole(used, reply) => (used, reply),
        other => return other,
    };
    if !waits(op, wait) {
        return Taken::Whole(used, reply);
    }
    let Some((head, more)) = line(&bytes[used..]) else { return Taken::Incomplete };
    match head.strip_prefix(b":").and_then(number) {
        Some(reached) if reached >= u64::from(wait) => Taken::Whole(used + more, reply),
        Some(_) => Taken::Whole(used + more, Reply::Refused(Cow::Borrowed(b"WAIT reached too few replicas"))),
        None if head.starts_with(b"-") => Taken::Whole(used + more, Reply::Refused(Cow::Borrowed(head))),
        None => Taken::Nonsense("not a number after WAIT"),
    }
}

fn one(op: Op, bytes: &[u8]) -> Taken<'_> {
    let Some((head, used)) = line(bytes) else { return Taken::Incomplete };
    match (op, head.split_first()) {
        (_, Some((b'-', _))) => Taken::Whole(used, Reply::Refused(Cow::Borrowed(head))),
        (Op::Set | Op::Add | Op::Cas, Some((b'+', b"OK"))) => Taken::Whole(used, Reply::Stored),
        (Op::Set | Op::Add | Op::Cas, Some((b'$', b"-1"))) => Taken::Whole(used, Reply::NotStored),
        (Op::Get | Op::Gets, Some((b'$', b"-1"))) => Taken::Whole(used, Reply::Missing),
        (Op::Get | Op::Gets, Some((b'$', digits))) => bulk(digits, used, bytes),
        (Op::Delete, Some((b':', b"0"))) => Taken::Whole(used, Reply::Missing),
        (Op::Delete, Some((b':', _))) => Taken::Whole(used, Reply::Deleted),
        (Op::Incr, Some((b':', digits))) => match number(digits) {
            Some(number) => Taken::Whole(used, Reply::Number(number)),
            None => Taken::Nonsense("not a number after INCR"),
        },
        _ => Taken::Nonsense("a line that does not answer this command"),
    }
}

fn bulk<'b>(digits: &[u8], begin: usize, bytes: &'b [u8]) -> Taken<'b> {
    let length = number(digits).and_then(|length| usize::try_from(length).ok());
    let Some(end) = length.and_then(|length| begin.checked_add(length)) else {
        return Taken::Nonsense("a value without a length");
    };
    let Some(tail) = end.checked_add(2).and_then(|stop| bytes.get(end..stop)) else {
        return Taken::Incomplete;
    };
    if tail != b"\r\n" {
        return Taken::Nonsense("a value that is longer or shorter than it says");
    }
    Taken::Whole(end + 2, Reply::Value { key: None, bytes: Cow::Borrowed(&bytes[begin..end]), unique: 0 })
}
