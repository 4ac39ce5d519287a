//! The effect of each command on a shard, and the exact bytes of its reply.

mod binary;
mod classic;
mod list;
mod meta;

use crate::command::{Key, StoreMode};
use crate::protocol::numbers::{push_decimal, unsigned};
use crate::stats::Stats;
use crate::store::expiry::{Deadline, remaining_s};
use crate::store::{ItemRef, Marks, NewItem, Shard, ShardTurn, find, replace, sweep};
use crate::watch::WatchKinds;

pub(crate) use binary::{BESIDE_VALUE, ItemForm, binary, miss};
pub(crate) use classic::{
    StorageRequest, TOO_LARGE_LINE, arithmetic, delete, read, retrieve, storage, too_large, touch,
};
pub(crate) use list::Listing;
pub(crate) use meta::{debug, meta_arithmetic, meta_delete, meta_get, meta_set};

pub(crate) const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

/// The arguments of a store, from either protocol.
struct StoreArguments<'a> {
    mode: StoreMode,
    key: &'a Key,
    value: &'a [u8],
    flags: u32,
    expires_us: Deadline,
    /// The unique that the item must have, if the request names one.
    compare: Option<u64>,
    /// The unique that the item gets.
    unique: u64,
    /// An older unique is good enough, and makes the item stale (`ms I`).
    accept_stale: bool,
    binary_key: bool,
}

/// The result of a store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    /// It is stored.
    Done,
    /// The mode's condition is not met.
    Refused,
    /// The unique is another one.
    Exists,
    /// There is no item whose unique could be compared.
    Missing,
}

/// The result of an increment.
enum Counted {
    Yes(ItemRef, u64),
    NotFound,
    Mismatch,
    NonNumeric,
}

/// The comparison of an item's unique with the client's.
#[derive(PartialEq, Eq)]
enum Comparison {
    NotAsked,
    Match,
    Stale,
    Bad,
}

/// Stores what a client wishes, and tells clients that watch.
fn store(shard: &mut Shard, wish: &StoreArguments<'_>, turn: ShardTurn<'_>) -> Stored {
    let stored = store_unwatched(shard, wish, turn);
    if let Some(watch) = turn.watch {
        let status = match stored {
            Stored::Done => "stored",
            Stored::Refused => "not_stored",
            Stored::Exists => "exists",
            Stored::Missing => "not_found",
        };
        let command = ["set", "add", "replace", "append", "prepend", "cas"][wish.mode as usize];
        let ttl = remaining_s(wish.expires_us, turn.now_us).unwrap_or(0);
        let size = wish.value.len();
        let rest = format_args!("status={status} cmd={command} ttl={ttl} clsid=1 size={size}");
        watch.note(WatchKinds::MUTATIONS, "item_store", wish.key.bytes(), rest);
    }
    stored
}

fn store_unwatched(shard: &mut Shard, wish: &StoreArguments<'_>, turn: ShardTurn<'_>) -> Stored {
    let counters = turn.counters;
    Stats::count(&counters.cmd_set);
    sweep(shard, turn);
    let Some(old) = find(shard, wish.key, turn, false) else {
        return match wish.mode {
            StoreMode::Set | StoreMode::Add => {
                turn.sizes.note(wish.key.hash(), wish.value.len());
                shard.insert(wish.key, &wish.as_new(), turn);
                Stored::Done
            }
            StoreMode::Cas => {
                Stats::count(&counters.cas_misses);
                Stored::Missing
            }
            StoreMode::Replace | StoreMode::Append | StoreMode::Prepend => Stored::Refused,
        };
    };
    let comparison = wish.compare_with(shard.item(old).unique());
    match wish.mode {
        StoreMode::Add => {
            shard.item_mut(old).promote(turn.now_us);
            Stored::Refused
        }
        StoreMode::Set | StoreMode::Replace => {
            turn.sizes.note(wish.key.hash(), wish.value.len());
            replace(shard, old, &wish.as_new(), turn);
            Stored::Done
        }
        StoreMode::Cas => compare_and_store(shard, wish, old, &comparison, turn),
        StoreMode::Append | StoreMode::Prepend => match comparison {
            Comparison::NotAsked | Comparison::Match => extend(shard, wish, old, turn),
            Comparison::Stale | Comparison::Bad => Stored::Exists,
        },
    }
}

fn compare_and_store(
    shard: &mut Shard,
    wish: &StoreArguments<'_>,
    old: ItemRef,
    comparison: &Comparison,
    turn: ShardTurn<'_>,
) -> Stored {
    let counters = turn.counters;
    match comparison {
        Comparison::Match => {
            Stats::count(&counters.cas_hits);
            turn.sizes.note(wish.key.hash(), wish.value.len());
            replace(shard, old, &wish.as_new(), turn);
            Stored::Done
        }
        // The value is new enough to serve, but a client still has to store a fresh one: expiry time and token remain.
        Comparison::Stale => {
            let item = shard.item(old);
            let mut new = wish.as_new();
            new.expires_us = item.deadline();
            new.marks = new.marks.with(Marks::STALE, true).with(Marks::WON, item.marks().has(Marks::WON));
            turn.sizes.note(wish.key.hash(), wish.value.len());
            replace(shard, old, &new, turn);
            Stored::Done
        }
        Comparison::NotAsked | Comparison::Bad => {
            Stats::count(&counters.cas_badval);
            Stored::Exists
        }
    }
}

/// Appends or prepends: client flags, expiry time and the form of the key remain.
fn extend(shard: &mut Shard, wish: &StoreArguments<'_>, old: ItemRef, turn: ShardTurn<'_>) -> Stored {
    let item = shard.item(old);
    let length = item.value_len() + wish.value.len();
    if shard.is_too_large(wish.key, item.flags(), length) {
        return Stored::Refused;
    }
    turn.sizes.note(wish.key.hash(), length);
    let mut value = Vec::with_capacity(length);
    if wish.mode == StoreMode::Prepend {
        value.extend_from_slice(wish.value);
    }
    value.extend_from_slice(item.value());
    if wish.mode == StoreMode::Append {
        value.extend_from_slice(wish.value);
    }
    let new = NewItem {
        value: &value,
        flags: item.flags(),
        expires_us: item.deadline(),
        unique: wish.unique,
        marks: Marks::default().with(Marks::BINARY, item.marks().has(Marks::BINARY)),
    };
    replace(shard, old, &new, turn);
    Stored::Done
}

impl<'a> StoreArguments<'a> {
    fn as_new(&self) -> NewItem<'a> {
        NewItem {
            value: self.value,
            flags: self.flags,
            expires_us: self.expires_us,
            unique: self.unique,
            marks: Marks::default().with(Marks::BINARY, self.binary_key),
        }
    }

    fn compare_with(&self, unique: u64) -> Comparison {
        match self.compare {
            // 0 is never an item's unique by itself; memcached takes it for "not given".
            None | Some(0) => Comparison::NotAsked,
            Some(asked) if asked == unique => Comparison::Match,
            Some(asked) if self.accept_stale && asked < unique => Comparison::Stale,
            Some(_) => Comparison::Bad,
        }
    }
}

/// A step of a counter.
struct CounterStep<'a> {
    key: &'a Key,
    up: bool,
    delta: u64,
    /// The unique that the item must have; `None` or 0 for any.
    compare: Option<u64>,
    /// The unique that the item gets.
    unique: u64,
}

fn count(shard: &mut Shard, step: &CounterStep<'_>, turn: ShardTurn<'_>) -> Counted {
    let counters = turn.counters;
    let Some(found) = find(shard, step.key, turn, false) else {
        Stats::count(if step.up { &counters.incr_misses } else { &counters.decr_misses });
        return Counted::NotFound;
    };
    let item = shard.item(found);
    if item.value_len() == 0 {
        return Counted::NonNumeric;
    }
    if step.compare.is_some_and(|asked| asked != 0 && asked != item.unique()) {
        return Counted::Mismatch;
    }
    let Some(number) = unsigned(item.value()) else { return Counted::NonNumeric };
    Stats::count(if step.up { &counters.incr_hits } else { &counters.decr_hits });
    let number = if step.up { number.wrapping_add(step.delta) } else { number.saturating_sub(step.delta) };
    let room = item.value_len();
    let mut value = Vec::with_capacity(room.max(20));
    push_decimal(&mut value, number);
    if value.len() <= room {
        // A shorter number is padded, as memcached does: the length remains.
        value.resize(room, b' ');
        shard.item_mut(found).overwrite(&value, step.unique, turn.now_us);
    } else {
        let item = shard.item(found);
        let new = NewItem {
            value: &value,
            flags: item.flags(),
            expires_us: item.deadline(),
            unique: step.unique,
            marks: Marks::default().with(Marks::BINARY, item.marks().has(Marks::BINARY)),
        };
        replace(shard, found, &new, turn);
    }
    Counted::Yes(found, number)
}
