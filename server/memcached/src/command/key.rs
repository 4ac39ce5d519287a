//! A client's key and its hash: computed once, the same on every replica, and the only thing placement depends on.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::limits::KEY_BYTES;

/// Seed of the key hash. Fixed: it decides in which shard and bucket a key lives, on every replica alike.
const SEED: u64 = 0x6d65_6d63_6163_6865;

/// A valid key: 1 to [`KEY_BYTES`] bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    hash: KeyHash,
    bytes: Bytes,
}

/// The key's hash, which decides its shard and bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyHash(u64);

impl Key {
    /// A key of any bytes, as a decoded binary key has them; `None` when it is empty or too long.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        Self::of(bytes, Bytes::copy_from_slice)
    }

    /// The key that `bytes`, a part of `whole`, are; shares them.
    pub fn within(whole: &Bytes, bytes: &[u8]) -> Option<Self> {
        Self::of(bytes, |bytes| whole.slice_ref(bytes))
    }

    fn of(bytes: &[u8], keep: impl FnOnce(&[u8]) -> Bytes) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > KEY_BYTES {
            return None;
        }
        Some(Key { hash: KeyHash::of(bytes), bytes: keep(bytes) })
    }

    /// A key as a command line has it: without spaces and NUL. The protocol document also forbids control
    /// characters, but stock takes them, and memaslap's keys begin with them.
    pub fn text(bytes: &[u8]) -> Option<Self> {
        if memchr::memchr2(0, b' ', bytes).is_some() { None } else { Self::new(bytes) }
    }

    /// The key's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its hash.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }
}

impl KeyHash {
    /// The hash of a key's bytes: XXH3-64 with a fixed seed.
    pub fn of(key: &[u8]) -> Self {
        KeyHash(xxh3_64_with_seed(key, SEED))
    }

    /// The shard out of `shards`, a power of two. Taken from the upper half, so that it is independent of the tag.
    pub fn shard(self, shards: u32) -> u32 {
        debug_assert!(shards.is_power_of_two());
        ((self.0 >> 32) as u32) & (shards - 1)
    }

    /// Another hash of the same key, which cannot be computed without the secret.
    pub fn mixed_with(self, secret: u64) -> u64 {
        let mixed = (self.0 ^ secret).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 29)).wrapping_mul(secret | 1)
    }

    /// The part of the hash that a bucket keeps: its low bits choose the bucket, the others distinguish entries of one
    /// bucket.
    pub fn tag(self) -> u32 {
        self.0 as u32
    }
}
