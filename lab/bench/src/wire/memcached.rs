//! memcached's text protocol, for our replicas and for stock memcached.

use std::borrow::Cow;

use memcached::protocol::numbers::push_decimal;

use super::{Reply, Taken, WireRequest, line, number};
use crate::definition::Op;

/// Appends a request.
pub fn write(request: &WireRequest<'_>, out: &mut Vec<u8>) {
    match request.op {
        Op::Get => command(b"get ", request.key, out),
        Op::Gets => command(b"gets ", request.key, out),
        Op::Delete => command(b"delete ", request.key, out),
        Op::Incr => {
            out.extend_from_slice(b"incr ");
            out.extend_from_slice(request.key);
            out.extend_from_slice(b" 1\r\n");
        }
        Op::Set => store(b"set ", request, out),
        Op::Add => store(b"add ", request, out),
        Op::Cas => store(b"cas ", request, out),
    }
}

fn command(name: &[u8], key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

fn store(name: &[u8], request: &WireRequest<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(request.key);
    out.extend_from_slice(b" 0 ");
    push_decimal(out, u64::from(request.ttl));
    out.push(b' ');
    push_decimal(out, request.value.len() as u64);
    if request.op == Op::Cas {
        out.push(b' ');
        push_decimal(out, request.unique);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(request.value);
    out.extend_from_slice(b"\r\n");
}

/// Takes the reply to `op` from the front of `bytes`.
pub fn take(op: Op, bytes: &[u8]) -> Taken<'_> {
    let Some((head, used)) = line(bytes) else { return Taken::Incomplete };
    match (op, head) {
        (Op::Get | Op::Gets, b"END") => Taken::Whole(used, Reply::Missing),
        (Op::Get | Op::Gets, _) if head.starts_with(b"VALUE ") => value(head, used, bytes),
        (Op::Set | Op::Add | Op::Cas, b"STORED") => Taken::Whole(used, Reply::Stored),
        (Op::Add, b"NOT_STORED") | (Op::Cas, b"EXISTS") => Taken::Whole(used, Reply::NotStored),
        (Op::Cas | Op::Delete | Op::Incr, b"NOT_FOUND") => Taken::Whole(used, Reply::Missing),
        (Op::Delete, b"DELETED") => Taken::Whole(used, Reply::Deleted),
        _ if refused(head) => Taken::Whole(used, Reply::Refused(Cow::Borrowed(head))),
        (Op::Incr, digits) => match number(digits) {
            Some(number) => Taken::Whole(used, Reply::Number(number)),
            None => Taken::Nonsense("not a number after incr"),
        },
        _ => Taken::Nonsense("a line that does not answer this command"),
    }
}

fn refused(head: &[u8]) -> bool {
    head == b"ERROR" || head.starts_with(b"SERVER_ERROR") || head.starts_with(b"CLIENT_ERROR")
}

/// `VALUE key flags length [unique]`, the bytes, and `END`.
fn value<'b>(head: &'b [u8], begin: usize, bytes: &'b [u8]) -> Taken<'b> {
    let mut words = head.split(|byte| *byte == b' ').skip(1);
    let key = words.next();
    let _flags = words.next();
    let Some(length) = words.next().and_then(number) else {
        return Taken::Nonsense("VALUE without a length");
    };
    let unique = words.next().and_then(number).unwrap_or(0);
    let Some(end) = usize::try_from(length).ok().and_then(|length| begin.checked_add(length)) else {
        return Taken::Nonsense("VALUE with an impossible length");
    };
    const TAIL: &[u8] = b"\r\nEND\r\n";
    let Some(tail) = end.checked_add(TAIL.len()).and_then(|stop| bytes.get(end..stop)) else {
        return Taken::Incomplete;
    };
    if tail != TAIL {
        return Taken::Nonsense("a value that is longer or shorter than it says");
    }
    Taken::Whole(end + TAIL.len(), Reply::Value { key, bytes: Cow::Borrowed(&bytes[begin..end]), unique })
}
