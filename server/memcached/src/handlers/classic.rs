//! The classic commands on a shard.

use crosscheck::NeedsBatch;

use crate::command::{Key, StoreMode};
use crate::handlers::{Counted, CounterStep, ItemForm, NON_NUMERIC, StoreArguments, Stored, count, store};
use crate::limits::REPLY_BYTES;
use crate::protocol::numbers::push_decimal;
use crate::stats::Stats;
use crate::store::expiry::{Deadline, deadline};
use crate::store::{
    ItemLookup, Shard, ShardTurn, access, delete_item, find, note_read, set_deadline, sweep_at_times,
};

/// One key of `get`, `gets`, `gat`, `gats`: appends the item if there is one.
///
/// Returns false when the reply would become longer than [`REPLY_BYTES`].
pub(crate) fn retrieve(
    shard: &mut Shard,
    key: &Key,
    form: ItemForm<'_>,
    touch: Option<Deadline>,
    turn: ShardTurn<'_>,
    reply: &mut Vec<u8>,
) -> bool {
    let counters = turn.counters;
    Stats::count(if touch.is_some() { &counters.cmd_touch } else { &counters.cmd_get });
    sweep_at_times(shard, turn);
    let Some(found) = find(shard, key, turn, true) else {
        Stats::count(if touch.is_some() { &counters.touch_misses } else { &counters.get_misses });
        turn.sizes.note_absent(key.hash());
        return true;
    };
    Stats::count(if touch.is_some() { &counters.touch_hits } else { &counters.get_hits });
    if let Some(expires_us) = touch {
        set_deadline(shard, found, expires_us);
    }
    access(shard, found, turn.now_us);
    let item = shard.item(found);
    turn.sizes.note(key.hash(), item.value_len());
    if reply.len() + item.stock_size() > REPLY_BYTES {
        return false;
    }
    form.push(item, reply);
    true
}

/// One key of `get` or `gets` that takes no batch: appends the item if there is one, as [`retrieve`] does, and changes
/// nothing. A dead item stays until another request finds it.
///
/// # Errors [`NeedsBatch`] if the access has to be noted ([`Item::must_note`]); if the item is alive at the time of the
/// last batch and is not at `latest_us`: only a batch decides that it is gone; and when the reply would become longer
/// than [`REPLY_BYTES`].
pub(crate) fn read(
    shard: &Shard,
    key: &Key,
    form: ItemForm<'_>,
    turn: ShardTurn<'_>,
    latest_us: u64,
    reply: &mut Vec<u8>,
) -> Result<(), NeedsBatch> {
    let counters = turn.counters;
    let now = shard.lookup(key, turn.now_us);
    let found = match (now, shard.lookup(key, latest_us.max(turn.now_us))) {
        (ItemLookup::Live(found), ItemLookup::Live(_)) => found,
        (ItemLookup::Live(_), _) => return Err(NeedsBatch),
        (dead, _) => {
            note_read(shard, key, dead, turn);
            Stats::count(&counters.cmd_get);
            Stats::count(&counters.get_misses);
            match dead {
                ItemLookup::Expired(_) => Stats::count(&counters.get_expired),
                ItemLookup::Flushed(_) => Stats::count(&counters.get_flushed),
                ItemLookup::Nothing | ItemLookup::Live(_) => turn.sizes.note_absent(key.hash()),
            }
            return Ok(());
        }
    };
    let item = shard.item(found);
    if item.must_note(latest_us) || reply.len() + item.stock_size() > REPLY_BYTES {
        return Err(NeedsBatch);
    }
    if turn.watch.is_some() {
        note_read(shard, key, now, turn);
    }
    Stats::count(&counters.cmd_get);
    Stats::count(&counters.get_hits);
    turn.sizes.note(key.hash(), item.value_len());
    form.push(item, reply);
    Ok(())
}

/// The arguments of a storage command.
pub(crate) struct StorageRequest<'a> {
    pub(crate) mode: StoreMode,
    pub(crate) key: &'a Key,
    pub(crate) flags: u32,
    pub(crate) expiry: i64,
    pub(crate) unique: u64,
    pub(crate) value: &'a [u8],
}

/// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
pub(crate) fn storage(shard: &mut Shard, command: &StorageRequest<'_>, turn: ShardTurn<'_>) -> &'static [u8] {
    if shard.is_too_large(command.key, command.flags, command.value.len()) {
        if command.mode == StoreMode::Set {
            too_large(shard, command.key, turn);
        }
        return TOO_LARGE_LINE;
    }
    let wish = StoreArguments {
        mode: command.mode,
        key: command.key,
        value: command.value,
        flags: command.flags,
        expires_us: deadline(command.expiry, turn.now_us),
        compare: (command.mode == StoreMode::Cas).then_some(command.unique),
        unique: turn.unique,
        accept_stale: false,
        binary_key: false,
    };
    match store(shard, &wish, turn) {
        Stored::Done => b"STORED\r\n",
        Stored::Refused => b"NOT_STORED\r\n",
        Stored::Exists => b"EXISTS\r\n",
        Stored::Missing => b"NOT_FOUND\r\n",
    }
}

/// The answer to a value beyond the item limit.
pub(crate) const TOO_LARGE_LINE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";

/// A value beyond the item limit: the item that it should have replaced is stale now, and is removed.
pub(crate) fn too_large(shard: &mut Shard, key: &Key, turn: ShardTurn<'_>) {
    Stats::count(&turn.counters.store_too_large);
    if let Some(found) = find(shard, key, turn, false) {
        shard.remove(found);
    }
}

/// `delete`.
pub(crate) fn delete(shard: &mut Shard, key: &Key, turn: ShardTurn<'_>) -> &'static [u8] {
    match find(shard, key, turn, false) {
        Some(found) => {
            delete_item(shard, found, turn);
            b"DELETED\r\n"
        }
        None => {
            Stats::count(&turn.counters.delete_misses);
            b"NOT_FOUND\r\n"
        }
    }
}

/// `incr`, `decr`.
pub(crate) fn arithmetic(
    shard: &mut Shard,
    key: &Key,
    up: bool,
    delta: u64,
    turn: ShardTurn<'_>,
    reply: &mut Vec<u8>,
) {
    let step = CounterStep { key, up, delta, compare: None, unique: turn.unique };
    match count(shard, &step, turn) {
        Counted::Yes(_, number) => {
            push_decimal(reply, number);
            reply.extend_from_slice(b"\r\n");
        }
        Counted::NotFound | Counted::Mismatch => reply.extend_from_slice(b"NOT_FOUND\r\n"),
        Counted::NonNumeric => reply.extend_from_slice(NON_NUMERIC),
    }
}

/// `touch`.
pub(crate) fn touch(shard: &mut Shard, key: &Key, expiry: i64, turn: ShardTurn<'_>) -> &'static [u8] {
    Stats::count(&turn.counters.cmd_touch);
    match find(shard, key, turn, false) {
        Some(found) => {
            Stats::count(&turn.counters.touch_hits);
            set_deadline(shard, found, deadline(expiry, turn.now_us));
            access(shard, found, turn.now_us);
            b"TOUCHED\r\n"
        }
        None => {
            Stats::count(&turn.counters.touch_misses);
            b"NOT_FOUND\r\n"
        }
    }
}

#[cfg(test)]
mod tests {
    use crosscheck::object::genesis;

    use super::*;
    use crate::sizes::Sizes;
    use crate::stats::ServiceCounters;
    use crate::store::{Limits, Marks, NewItem};

    /// What a read without a batch gets at this time of the last batch and this present time, in seconds, of an item
    /// that was stored and read so many times in the last batch, and expires after 100.
    fn read_at(reads: u8, now_s: u64, latest_s: u64) -> Result<String, NeedsBatch> {
        let (counters, sizes) = (ServiceCounters::default(), Sizes::default());
        let turn = ShardTurn {
            now_us: now_s * 1_000_000,
            unique: 7,
            counters: &counters,
            sizes: &sizes,
            watch: None,
        };
        let mut shard = genesis(0, || Shard::new(Limits::of_founding(1 << 20, 1 << 20)));
        let key = Key::new(b"k").expect("a key");
        let new =
            NewItem { value: b"v", flags: 3, expires_us: 100_000_000, unique: 7, marks: Marks::default() };
        let item = shard.insert(&key, &new, turn);
        (0..reads).for_each(|_| access(&mut shard, item, turn.now_us));
        let mut reply = Vec::new();
        read(&shard, &key, ItemForm::Text { with_unique: true }, turn, latest_s * 1_000_000, &mut reply)?;
        assert_eq!((shard.count(), shard.item(item).marks().hits()), (1, reads), "nothing has changed");
        Ok(String::from_utf8(reply).expect("text"))
    }

    #[test]
    fn a_read_without_a_batch_leaves_it_to_a_batch_that_an_item_has_just_expired() {
        assert_eq!(read_at(3, 50, 99).as_deref(), Ok("VALUE k 3 1 7\r\nv\r\n"));
        assert_eq!(read_at(3, 50, 100), Err(NeedsBatch), "no batch has this time yet");
        assert_eq!(read_at(3, 100, 100).as_deref(), Ok(""), "a batch has it");
        assert_eq!(read_at(3, 100, 1).as_deref(), Ok(""), "the own clock is late");
    }

    /// So that items that are read are not evicted before others.
    #[test]
    fn a_read_whose_access_has_to_be_noted_takes_a_batch() {
        assert_eq!(read_at(0, 1, 1), Err(NeedsBatch), "the next eviction would take it");
        assert!(read_at(1, 1, 60).is_ok());
        assert_eq!(read_at(1, 1, 61), Err(NeedsBatch), "the last access was noted a minute before");
    }
}
