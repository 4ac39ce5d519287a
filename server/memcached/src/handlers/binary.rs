//! Requests of the binary protocol on a shard, and the two forms in which a found item is answered.

use crate::command::binary::{BinaryHead, ResponseContent, ResponseStatus};
use crate::command::{Command, Key, StoreMode};
use crate::handlers::{Counted, CounterStep, StoreArguments, Stored, count, retrieve, store, too_large};
use crate::protocol::numbers::push_decimal;
use crate::stats::Stats;
use crate::store::expiry::deadline;
use crate::store::{Item, Marks, NewItem, Shard, ShardTurn, delete_item, find};

/// The most bytes of an item in a reply besides its key and value.
pub(crate) const BESIDE_VALUE: usize = 64;

/// How a found item is written into a reply.
#[derive(Clone, Copy)]
pub(crate) enum ItemForm<'h> {
    /// `VALUE` and its line, with the unique or without.
    Text {
        /// Whether the reply has the unique.
        with_unique: bool,
    },
    /// A packet.
    Binary(&'h BinaryHead),
}

impl ItemForm<'_> {
    #[inline]
    pub(super) fn push(self, item: &Item, reply: &mut Vec<u8>) {
        match self {
            ItemForm::Text { with_unique } => push_line(item, with_unique, reply),
            ItemForm::Binary(head) => push_packet(item, head, reply),
        }
    }
}

/// In line: nearly all items that are read are answered in this form.
#[inline]
fn push_line(item: &Item, with_unique: bool, reply: &mut Vec<u8>) {
    let (key, value) = item.key_and_value();
    reply.reserve(value.len() + key.len() + BESIDE_VALUE);
    reply.extend_from_slice(b"VALUE ");
    reply.extend_from_slice(key);
    reply.push(b' ');
    push_decimal(reply, u64::from(item.flags()));
    reply.push(b' ');
    push_decimal(reply, value.len() as u64);
    if with_unique {
        reply.push(b' ');
        push_decimal(reply, item.unique());
    }
    reply.extend_from_slice(b"\r\n");
    reply.extend_from_slice(value);
    reply.extend_from_slice(b"\r\n");
}

#[inline(never)]
fn push_packet(item: &Item, head: &BinaryHead, reply: &mut Vec<u8>) {
    let (key, value) = item.key_and_value();
    let content = ResponseContent {
        unique: item.unique(),
        flags: Some(item.flags()),
        key: if head.wants_key() { key } else { b"" },
        value: if head.wants_value() { value } else { b"" },
    };
    head.respond(ResponseStatus::Ok, content, reply);
}

/// A binary request with one key.
pub(crate) fn binary(
    shard: &mut Shard,
    head: &BinaryHead,
    command: &Command,
    turn: ShardTurn<'_>,
    reply: &mut Vec<u8>,
) {
    match command {
        Command::Get { keys, touch, .. } => {
            keys.iter().for_each(|key| read(shard, head, key, *touch, turn, reply));
        }
        Command::Touch { key, expiry, .. } => read(shard, head, key, Some(*expiry), turn, reply),
        Command::TooLarge { key, .. } => {
            too_large(shard, key, turn);
            head.fail(ResponseStatus::TooLarge, reply);
        }
        Command::Delete { key, .. } => delete(shard, head, key, turn, reply),
        Command::Arithmetic { key, up, delta, .. } => {
            let step =
                CounterStep { key, up: *up, delta: *delta, compare: Some(head.compare), unique: turn.unique };
            arithmetic(shard, head, &step, turn, reply);
        }
        Command::Store { mode, key, flags, value, .. } if shard.is_too_large(key, *flags, value.len()) => {
            if *mode == StoreMode::Set {
                too_large(shard, key, turn);
            }
            head.fail(ResponseStatus::TooLarge, reply);
        }
        Command::Store { mode, key, flags, expiry, value, .. } => {
            let replaces = matches!(mode, StoreMode::Set | StoreMode::Add | StoreMode::Replace);
            let wish = StoreArguments {
                mode: if replaces && head.compare != 0 { StoreMode::Cas } else { *mode },
                key,
                value,
                flags: *flags,
                expires_us: deadline(*expiry, turn.now_us),
                compare: Some(head.compare),
                unique: turn.unique,
                accept_stale: false,
                binary_key: false,
            };
            let failure = match store(shard, &wish, turn) {
                Stored::Done => {
                    return head.succeed(
                        ResponseContent { unique: turn.unique, ..ResponseContent::default() },
                        reply,
                    );
                }
                Stored::Exists => ResponseStatus::Exists,
                Stored::Missing => ResponseStatus::NotFound,
                Stored::Refused => match mode {
                    StoreMode::Add => ResponseStatus::Exists,
                    StoreMode::Replace => ResponseStatus::NotFound,
                    _ => ResponseStatus::NotStored,
                },
            };
            head.fail(failure, reply);
        }
        // The decoding has refused all others.
        _ => head.fail(ResponseStatus::Internal, reply),
    }
}

/// `get`, `gat`, `touch`: a hit is answered by quiet requests too, and no miss is.
fn read(
    shard: &mut Shard,
    head: &BinaryHead,
    key: &Key,
    touch: Option<i64>,
    turn: ShardTurn<'_>,
    reply: &mut Vec<u8>,
) {
    let start = reply.len();
    let touch = touch.map(|expiry| deadline(expiry, turn.now_us));
    retrieve(shard, key, ItemForm::Binary(head), touch, turn, reply);
    if reply.len() == start {
        miss(head, key, reply);
    }
}

/// The answer to a read that found nothing.
pub(crate) fn miss(head: &BinaryHead, key: &Key, reply: &mut Vec<u8>) {
    match (head.is_quiet(), head.wants_key()) {
        (true, _) => {}
        (false, true) => {
            head.respond(
                ResponseStatus::NotFound,
                ResponseContent { key: key.bytes(), ..ResponseContent::default() },
                reply,
            );
        }
        (false, false) => head.fail(ResponseStatus::NotFound, reply),
    }
}

fn delete(shard: &mut Shard, head: &BinaryHead, key: &Key, turn: ShardTurn<'_>, reply: &mut Vec<u8>) {
    let Some(found) = find(shard, key, turn, false) else {
        Stats::count(&turn.counters.delete_misses);
        return head.fail(ResponseStatus::NotFound, reply);
    };
    if head.compare != 0 && head.compare != shard.item(found).unique() {
        return head.fail(ResponseStatus::Exists, reply);
    }
    delete_item(shard, found, turn);
    head.succeed(ResponseContent::default(), reply);
}

fn arithmetic(
    shard: &mut Shard,
    head: &BinaryHead,
    step: &CounterStep<'_>,
    turn: ShardTurn<'_>,
    reply: &mut Vec<u8>,
) {
    let number = match count(shard, step, turn) {
        Counted::Yes(_, number) => number,
        Counted::NonNumeric => return head.fail(ResponseStatus::NonNumeric, reply),
        Counted::Mismatch => return head.fail(ResponseStatus::Exists, reply),
        Counted::NotFound => {
            let Some((initial, expiry)) = head.initial else {
                return head.fail(ResponseStatus::NotFound, reply);
            };
            let mut value = Vec::new();
            push_decimal(&mut value, initial);
            let expires_us = deadline(i64::from(expiry), turn.now_us);
            let (unique, marks) = (turn.unique, Marks::default());
            turn.sizes.note(step.key.hash(), value.len());
            shard.insert(step.key, &NewItem { value: &value, flags: 0, expires_us, unique, marks }, turn);
            initial
        }
    };
    let value = number.to_be_bytes();
    head.succeed(ResponseContent { unique: turn.unique, value: &value, ..ResponseContent::default() }, reply);
}
