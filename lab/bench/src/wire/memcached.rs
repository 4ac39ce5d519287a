//! memcached's text protocol, for our replicas and for stock memcached.

use std::borrow::Cow;

use memcached_client::reply::{self, LONGEST, number};
use memcached_client::{KeyCommand, StoreVerb};

use super::{Reply, Taken, WireRequest};
use crate::definition::Op;

/// Appends a request.
pub fn write(request: &WireRequest<'_>, out: &mut Vec<u8>) {
    let (flags, expiry, value) = (0, i64::from(request.ttl), Cow::Borrowed(request.value));
    let command = match request.op {
        Op::Get => KeyCommand::GET,
        Op::Gets => KeyCommand::GETS,
        Op::Delete => KeyCommand::Delete,
        Op::Incr => KeyCommand::Count { up: true, by: 1 },
        Op::Set => KeyCommand::Store { verb: StoreVerb::Set, flags, expiry, value },
        Op::Add => KeyCommand::Store { verb: StoreVerb::Add, flags, expiry, value },
        Op::Cas => KeyCommand::Cas { unique: request.unique, flags, expiry, value },
    };
    command.classic().write(request.key, out);
}

/// Takes the reply to `op` from the front of `bytes`.
pub fn take(op: Op, bytes: &[u8]) -> Taken<'_> {
    use reply::TextReply as Found;
    let (used, found) = match reply::take(bytes, LONGEST) {
        reply::TakenReply::Incomplete
            if !matches!(op, Op::Get | Op::Gets) && bytes.starts_with(b"VALUE ") =>
        {
            return Taken::Nonsense("a value that answers no read");
        }
        reply::TakenReply::Incomplete => return Taken::Incomplete,
        reply::TakenReply::Malformed(why) => return Taken::Nonsense(why),
        reply::TakenReply::Whole(used, found) => (used, found),
    };
    let reply = match (op, found) {
        (Op::Get | Op::Gets, Found::Values(mut values)) => match (values.next(), values.next()) {
            (None, _) => Reply::Missing,
            (Some(value), None) => Reply::Value {
                key: Some(value.key),
                bytes: Cow::Borrowed(value.data),
                unique: value.unique.and_then(number).unwrap_or(0),
            },
            _ => return Taken::Nonsense("several values of one key"),
        },
        (Op::Set | Op::Add | Op::Cas, Found::Word(b"STORED")) => Reply::Stored,
        (Op::Add, Found::Word(b"NOT_STORED")) | (Op::Cas, Found::Word(b"EXISTS")) => Reply::NotStored,
        (Op::Cas | Op::Delete | Op::Incr, Found::Word(b"NOT_FOUND")) => Reply::Missing,
        (Op::Delete, Found::Word(b"DELETED")) => Reply::Deleted,
        (_, Found::Error(line)) => Reply::Refused(Cow::Borrowed(line)),
        (Op::Incr, Found::Number(digits)) => match number(digits) {
            Some(number) => Reply::Number(number),
            None => return Taken::Nonsense("a number that is too large after incr"),
        },
        _ => return Taken::Nonsense("a line that does not answer this command"),
    };
    Taken::Whole(used, reply)
}
