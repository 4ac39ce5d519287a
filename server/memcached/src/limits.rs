//! Every bound of the service, with the relations between them checked when it is compiled.

/// Longest key in bytes, as in memcached.
pub const KEY_BYTES: usize = 250;
/// Longest command line in bytes, without its end, except for retrievals. Stock memcached gives up at the same length.
pub const LINE_BYTES: usize = 2048;
/// Longest command line of a retrieval (`get`, `gets`, `gat`, `gats`): over a thousand of the longest keys.
pub const GET_LINE_BYTES: usize = 256 << 10;
/// Tokens of a meta command, with its name and its key. One less than stock memcached's count, which has an end marker.
pub const META_TOKENS: usize = 19;
/// Items up to which a list of all is one request: some 50 ms of work.
pub const LISTED_AT_ONCE: u64 = 20_000;
/// Parts in which a longer list is made, at most; each is a request.
pub const LIST_PARTS: u32 = 16;
/// Items beyond which a list, or a part of one, is refused: while it is made, nothing else is.
pub const LISTED_AT_MOST: u64 = 200_000;
/// Events kept for clients that watch, and their bytes.
pub const WATCHED_KEPT: usize = 4096;
/// Bytes of events kept for clients that watch.
pub const WATCHED_BYTES: usize = 1 << 20;
/// Longest opaque token of a meta command, with its letter.
pub const OPAQUE_TOKEN_BYTES: usize = 32;
/// Flag tokens of one meta command in the ordered encoding, in bytes.
pub const META_FLAG_BYTES: usize = LINE_BYTES;

/// Largest item (key, value and [`stock_overhead`]) unless configured otherwise.
pub const ITEM_BYTES_DEFAULT: usize = 1 << 20;
/// Smallest item limit that may be configured.
pub const ITEM_BYTES_MIN: usize = 4 << 10;
/// Largest item limit that may be configured: one request must fit into one log entry.
pub const ITEM_BYTES_MAX: usize = 3 << 20;
/// Longest reply to one request; a retrieval that would exceed it is answered with an error instead.
pub const REPLY_BYTES: usize = 64 << 20;

/// Expected length of a reply line besides key and value, in bytes.
pub const REPLY_LINE_BYTES: usize = 48;

/// Memory for items unless configured otherwise.
pub const MEMORY_DEFAULT: u64 = 1 << 30;
/// Most memory, in MiB.
pub const MEMORY_MB_MAX: u32 = 1 << 20;
/// Most shards: each has a lock, and a request on all of them touches every one.
pub const SHARDS_MAX: u32 = 4096;
/// With more memory there are more shards, each of at most this many bytes.
pub const SHARD_BYTES: u64 = 4 << 20;
/// Shards unless there is more memory, or so little that a shard could not hold its longest items.
pub const SHARDS_DEFAULT: u32 = 256;
/// A shard has memory for at least this many items of the largest size, so that one of them cannot empty it.
pub const LARGEST_ITEMS_PER_SHARD: u64 = 4;

/// Seconds after which a read that takes no batch has to note its access: memcached's `ITEM_UPDATE_INTERVAL`.
pub const ACCESS_NOTED_S: u64 = 60;
/// Relative expiry times end here; larger numbers are Unix time. 30 days in seconds, as in memcached.
pub const RELATIVE_EXPIRY_S: i64 = 60 * 60 * 24 * 30;

/// Bytes that stock memcached counts for an item besides key and value: header, unique, terminator, line end, client
/// flags.
///
/// The item limit is compared with this sum, so that the same values are too large here and there.
pub const fn stock_overhead(flags: u32) -> usize {
    48 + 8 + 1 + 2 + if flags == 0 { 0 } else { 4 }
}

const _: () = assert!(KEY_BYTES < LINE_BYTES && KEY_BYTES <= u8::MAX as usize);
const _: () = assert!(LINE_BYTES < GET_LINE_BYTES);
const _: () = assert!(META_FLAG_BYTES <= u16::MAX as usize);
const _: () = assert!(ITEM_BYTES_MIN <= ITEM_BYTES_DEFAULT && ITEM_BYTES_DEFAULT <= ITEM_BYTES_MAX);
const _: () = assert!(ITEM_BYTES_MAX < REPLY_BYTES);
const _: () =
    assert!(ITEM_BYTES_MAX + 2 * LINE_BYTES <= crosscheck::limits::REQUEST, "any item can be stored");
const _: () = assert!(SHARDS_DEFAULT <= SHARDS_MAX);
