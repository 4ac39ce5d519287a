//! The meta commands on a shard.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::command::{Echo, Key, Meta, StoreMode};
use crate::handlers::{
    Counted, CounterStep, NON_NUMERIC, StoreArguments, Stored, TOO_LARGE_LINE, count, store, too_large,
};
use crate::protocol::numbers::push_decimal;
use crate::stats::Stats;
use crate::store::expiry::{NEVER, deadline, is_over, remaining_s};
use crate::store::{
    Item, ItemRef, Marks, NewItem, Shard, ShardTurn, access, delete_item, find, set_deadline, sweep_at_times,
};

/// `mg`.
pub(crate) fn meta_get(shard: &mut Shard, key: &Key, meta: &Meta, turn: ShardTurn<'_>, reply: &mut Vec<u8>) {
    let counters = turn.counters;
    Stats::count(&counters.cmd_meta);
    let touches = meta.expiry.is_some();
    Stats::count(if touches { &counters.cmd_touch } else { &counters.cmd_get });
    sweep_at_times(shard, turn);
    let (item, created) = match find(shard, key, turn, true) {
        Some(found) => (found, false),
        None if meta.vivify.is_some() => (shard.insert(key, &vivified(meta, b"", turn), turn), true),
        None => {
            Stats::count(if touches { &counters.touch_misses } else { &counters.get_misses });
            turn.sizes.note_absent(key.hash());
            if !meta.quiet {
                reply.extend_from_slice(b"EN");
                push_identity(key, meta, reply);
                reply.extend_from_slice(b"\r\n");
            }
            return;
        }
    };
    Stats::count(if touches { &counters.touch_hits } else { &counters.get_hits });
    push_status(meta, shard.item(item).value_len(), reply);
    let mut won = false;
    for echo in &meta.echoes {
        match echo {
            Echo::Recache(within) => {
                let old = shard.item(item);
                let before = deadline(*within, turn.now_us);
                let soon = old.deadline() != NEVER && old.deadline() < before;
                won |= soon && !created && !old.marks().has(Marks::WON);
            }
            Echo::Vivify => won |= created,
            _ => {}
        }
        apply_echo(shard, item, echo, meta, created, turn, reply);
    }
    let marks = shard.item(item).marks();
    if marks.has(Marks::WON) {
        reply.extend_from_slice(b" Z");
    }
    if marks.has(Marks::STALE) {
        reply.extend_from_slice(b" X");
        won |= !marks.has(Marks::WON);
    }
    if won {
        reply.extend_from_slice(b" W");
        shard.item_mut(item).mark_won();
    }
    reply.extend_from_slice(b"\r\n");
    if meta.value {
        let value = shard.item(item).value();
        turn.sizes.note(key.hash(), value.len());
        reply.extend_from_slice(value);
        reply.extend_from_slice(b"\r\n");
    }
    if !meta.no_update {
        access(shard, item, turn.now_us);
    }
}

/// `ms`.
pub(crate) fn meta_set(
    shard: &mut Shard,
    key: &Key,
    meta: &Meta,
    value: &[u8],
    turn: ShardTurn<'_>,
    reply: &mut Vec<u8>,
) {
    if shard.is_too_large(key, meta.client_flags, value.len()) {
        too_large(shard, key, turn);
        return reply.extend_from_slice(TOO_LARGE_LINE);
    }
    Stats::count(&turn.counters.cmd_meta);
    let mode = meta.store_mode().unwrap_or(StoreMode::Set);
    let unique = meta.unique.unwrap_or(turn.unique);
    let wish = StoreArguments {
        mode,
        key,
        value,
        flags: meta.client_flags,
        expires_us: deadline(meta.expiry.unwrap_or(0), turn.now_us),
        compare: meta.compare,
        unique,
        accept_stale: meta.stale && mode == StoreMode::Cas,
        binary_key: meta.binary_key,
    };
    let stored = store(shard, &wish, turn);
    if stored == Stored::Done && meta.quiet {
        return;
    }
    reply.extend_from_slice(match stored {
        Stored::Done => b"HD",
        Stored::Refused => b"NS",
        Stored::Exists => b"EX",
        Stored::Missing => b"NF",
    });
    for echo in &meta.echoes {
        match echo {
            Echo::Opaque(token) => push_opaque(token, reply),
            Echo::Key => push_key(key.bytes(), meta.binary_key, reply),
            Echo::Unique => push_number(b'c', if stored == Stored::Done { unique } else { 0 }, reply),
            _ => {}
        }
    }
    reply.extend_from_slice(b"\r\n");
}

/// `md`.
pub(crate) fn meta_delete(
    shard: &mut Shard,
    key: &Key,
    meta: &Meta,
    turn: ShardTurn<'_>,
    reply: &mut Vec<u8>,
) {
    let counters = turn.counters;
    Stats::count(&counters.cmd_meta);
    let status: &[u8] = match find(shard, key, turn, false) {
        None => {
            Stats::count(&counters.delete_misses);
            b"NF"
        }
        Some(found) if meta.compare.is_some_and(|asked| asked != shard.item(found).unique()) => {
            Stats::count(&counters.delete_misses);
            b"EX"
        }
        Some(found) => {
            if meta.stale {
                shard.item_mut(found).mark_stale(meta.unique.unwrap_or(turn.unique));
                if let Some(expiry) = meta.expiry {
                    set_deadline(shard, found, deadline(expiry, turn.now_us));
                }
            } else {
                delete_item(shard, found, turn);
            }
            if meta.quiet {
                return;
            }
            b"HD"
        }
    };
    reply.extend_from_slice(status);
    push_identity(key, meta, reply);
    reply.extend_from_slice(b"\r\n");
}

/// `ma`.
pub(crate) fn meta_arithmetic(
    shard: &mut Shard,
    key: &Key,
    meta: &Meta,
    turn: ShardTurn<'_>,
    reply: &mut Vec<u8>,
) {
    Stats::count(&turn.counters.cmd_meta);
    let unique = meta.unique.unwrap_or(turn.unique);
    let up = meta.adds().unwrap_or(true);
    let step = CounterStep { key, up, delta: meta.delta.unwrap_or(1), compare: meta.compare, unique };
    let (item, number, created) = match count(shard, &step, turn) {
        Counted::Yes(item, number) => (item, number, false),
        Counted::NotFound if meta.vivify.is_some() => {
            let mut text = Vec::new();
            push_decimal(&mut text, meta.initial);
            (shard.insert(key, &vivified(meta, &text, turn), turn), meta.initial, true)
        }
        Counted::NonNumeric => return reply.extend_from_slice(NON_NUMERIC),
        nothing => {
            reply.extend_from_slice(if matches!(nothing, Counted::Mismatch) { b"EX" } else { b"NF" });
            push_identity(key, meta, reply);
            return reply.extend_from_slice(b"\r\n");
        }
    };
    let mut text = Vec::new();
    push_decimal(&mut text, number);
    // The quiet flag hides a step, not a creation.
    let start = reply.len();
    push_status(meta, text.len(), reply);
    for echo in &meta.echoes {
        match echo {
            Echo::Key => push_key(key.bytes(), meta.binary_key, reply),
            // Only `mg` answers these.
            Echo::Size | Echo::ClientFlags | Echo::LastAccess | Echo::Hit => {}
            echo => apply_echo(shard, item, echo, meta, created, turn, reply),
        }
    }
    reply.extend_from_slice(b"\r\n");
    if meta.value {
        reply.extend_from_slice(&text);
        reply.extend_from_slice(b"\r\n");
    }
    if meta.quiet && !created {
        reply.truncate(start);
    }
}

/// `me`.
pub(crate) fn debug(shard: &mut Shard, key: &Key, turn: ShardTurn<'_>, reply: &mut Vec<u8>) {
    Stats::count(&turn.counters.cmd_meta);
    let Some(found) = find(shard, key, turn, false) else { return reply.extend_from_slice(b"EN\r\n") };
    let item = shard.item(found);
    reply.extend_from_slice(b"ME ");
    push_key_text(item.key(), item.marks().has(Marks::BINARY), reply);
    // A negative number of seconds until the item expires, and -1 for never, is how memcached writes it.
    reply.extend_from_slice(b" exp=-");
    push_decimal(reply, remaining_s(item.deadline(), turn.now_us).unwrap_or(1));
    reply.extend_from_slice(b" la=");
    push_decimal(reply, item.idle_s(turn.now_us));
    reply.extend_from_slice(b" cas=");
    push_decimal(reply, item.unique());
    reply.extend_from_slice(if item.marks().has(Marks::FETCHED) { b" fetch=yes" } else { b" fetch=no" });
    reply.extend_from_slice(b" cls=1 size=");
    push_decimal(reply, item.stock_size() as u64);
    reply.extend_from_slice(b"\r\n");
}

/// Performs and answers one flag of `mg` or `ma`, in the order of the flags.
fn apply_echo(
    shard: &mut Shard,
    item: ItemRef,
    echo: &Echo,
    meta: &Meta,
    created: bool,
    turn: ShardTurn<'_>,
    reply: &mut Vec<u8>,
) {
    let now_us = turn.now_us;
    match echo {
        Echo::NewExpiry => {
            set_deadline(shard, item, deadline(meta.expiry.unwrap_or(0), now_us));
        }
        Echo::Vivify if created => {
            set_deadline(shard, item, deadline(meta.vivify.unwrap_or(0), now_us));
        }
        Echo::Vivify | Echo::Recache(_) => {}
        Echo::Opaque(token) => push_opaque(token, reply),
        other => push_fact(shard.item(item), other, now_us, reply),
    }
}

fn push_fact(item: &Item, echo: &Echo, now_us: u64, reply: &mut Vec<u8>) {
    match echo {
        Echo::Size => push_number(b's', item.value_len() as u64, reply),
        Echo::Unique => push_number(b'c', item.unique(), reply),
        Echo::ClientFlags => push_number(b'f', u64::from(item.flags()), reply),
        Echo::LastAccess => push_number(b'l', item.idle_s(now_us), reply),
        Echo::Hit => push_number(b'h', u64::from(item.marks().has(Marks::FETCHED)), reply),
        Echo::Key => push_key(item.key(), item.marks().has(Marks::BINARY), reply),
        Echo::Remaining => match remaining_s(item.deadline(), now_us) {
            None => reply.extend_from_slice(b" t-1"),
            Some(_) if is_over(item.deadline(), now_us) => push_number(b't', 0, reply),
            Some(seconds) => push_number(b't', seconds, reply),
        },
        _ => {}
    }
}

/// An item made on a miss.
fn vivified<'a>(meta: &Meta, value: &'a [u8], turn: ShardTurn<'_>) -> NewItem<'a> {
    NewItem {
        value,
        flags: 0,
        expires_us: NEVER,
        unique: meta.unique.unwrap_or(turn.unique),
        marks: Marks::default().with(Marks::BINARY, meta.binary_key),
    }
}

fn push_status(meta: &Meta, length: usize, reply: &mut Vec<u8>) {
    if meta.value {
        reply.extend_from_slice(b"VA ");
        push_decimal(reply, length as u64);
    } else {
        reply.extend_from_slice(b"HD");
    }
}

/// The flags that identify the request in a reply without an item.
fn push_identity(key: &Key, meta: &Meta, reply: &mut Vec<u8>) {
    for echo in &meta.echoes {
        match echo {
            Echo::Opaque(token) => push_opaque(token, reply),
            Echo::Key => push_key(key.bytes(), meta.binary_key, reply),
            _ => {}
        }
    }
}

fn push_number(letter: u8, number: u64, reply: &mut Vec<u8>) {
    reply.extend_from_slice(&[b' ', letter]);
    push_decimal(reply, number);
}

fn push_opaque(token: &[u8], reply: &mut Vec<u8>) {
    reply.push(b' ');
    reply.extend_from_slice(token);
}

fn push_key(key: &[u8], binary: bool, reply: &mut Vec<u8>) {
    reply.extend_from_slice(b" k");
    push_key_text(key, binary, reply);
    if binary {
        reply.extend_from_slice(b" b");
    }
}

fn push_key_text(key: &[u8], binary: bool, reply: &mut Vec<u8>) {
    if binary {
        reply.extend_from_slice(STANDARD.encode(key).as_bytes());
    } else {
        reply.extend_from_slice(key);
    }
}
