//! The operator's settings: memory, item size, shards; a combination that cannot work is an error that names it.

use crosscheck::object::{Code, Sealable};

use crate::limits::{
    GET_LINE_BYTES, ITEM_BYTES_DEFAULT, ITEM_BYTES_MAX, ITEM_BYTES_MIN, LARGEST_ITEMS_PER_SHARD, LINE_BYTES,
    MEMORY_DEFAULT, SHARD_BYTES, SHARDS_DEFAULT, SHARDS_MAX,
};

/// Settings of the service. All replicas of a group need the same: they decide what is evicted and what is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Memory for items and their administration, in bytes.
    pub memory: u64,
    /// Largest item in bytes, counted as stock memcached counts it.
    pub item_bytes: usize,
    /// Shards, each with its own lock; a power of two.
    pub shards: u32,
}

/// A combination of settings that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The item limit is out of range.
    #[error("item limit of {0} bytes: use {ITEM_BYTES_MIN} to {ITEM_BYTES_MAX}")]
    ItemBytes(usize),
    /// The number of shards is not usable.
    #[error("{0} shards: use a power of two up to {SHARDS_MAX}")]
    Shards(u32),
    /// A shard could not hold its largest items.
    #[error(
        "{memory} bytes in {shards} shards: each needs at least {needed}; use fewer shards or more memory"
    )]
    Memory {
        /// Configured memory in bytes.
        memory: u64,
        /// Configured shards.
        shards: u32,
        /// Bytes each shard needs.
        needed: u64,
    },
}

impl Sealable for Config {
    fn mix(&self, code: &mut Code) {
        let Config { memory, item_bytes, shards } = self;
        [*memory, *item_bytes as u64, u64::from(*shards)].into_iter().for_each(|setting| code.word(setting));
    }
}

impl Default for Config {
    fn default() -> Self {
        Config { memory: MEMORY_DEFAULT, item_bytes: ITEM_BYTES_DEFAULT, shards: SHARDS_DEFAULT }
    }
}

impl Config {
    /// Settings for `memory` bytes and items of the default length.
    pub fn with_memory(memory: u64) -> Self {
        Config::new(memory, ITEM_BYTES_DEFAULT)
    }

    /// Settings for `memory` bytes and items of at most `item_bytes`. There are so many shards that none has more than
    /// [`SHARD_BYTES`], as far as [`SHARDS_MAX`] and the longest item allow: a scrub or a digest of a shard holds up
    /// the requests on it.
    pub fn new(memory: u64, item_bytes: usize) -> Self {
        let wanted = memory.div_ceil(SHARD_BYTES).max(u64::from(SHARDS_DEFAULT)).next_power_of_two();
        let shards = u32::try_from(wanted).map_or(SHARDS_MAX, |wanted| wanted.min(SHARDS_MAX));
        let mut config = Config { memory, item_bytes, shards };
        while config.shards > 1 && config.check().is_err() {
            config.shards /= 2;
        }
        config
    }

    /// Refuses combinations that cannot work.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(ITEM_BYTES_MIN..=ITEM_BYTES_MAX).contains(&self.item_bytes) {
            return Err(ConfigError::ItemBytes(self.item_bytes));
        }
        if !self.shards.is_power_of_two() || self.shards > SHARDS_MAX {
            return Err(ConfigError::Shards(self.shards));
        }
        let needed = LARGEST_ITEMS_PER_SHARD * self.item_bytes as u64;
        if self.shard_memory() < needed {
            return Err(ConfigError::Memory { memory: self.memory, shards: self.shards, needed });
        }
        Ok(())
    }

    /// The least memory, in bytes, to which the limit can be set while the service runs and items have at most
    /// `item_bytes`: each shard has room for its longest item and its administration.
    pub fn least_memory(&self, item_bytes: u64) -> u64 {
        const ADMINISTRATION: u64 = 16 << 10;
        u64::from(self.shards) * (2 * item_bytes).max(item_bytes + ADMINISTRATION)
    }

    /// Memory of one shard in bytes.
    pub fn shard_memory(&self) -> u64 {
        self.memory / u64::from(self.shards)
    }

    /// Most bytes that a connection must be able to buffer for one request: that of the longest item to which a group
    /// can set its limit, since only at a request's position it is known whether its item is too long.
    pub const fn request_bytes() -> usize {
        let item = LINE_BYTES + ITEM_BYTES_MAX;
        if item > GET_LINE_BYTES { item + 4 } else { GET_LINE_BYTES + 4 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_memory_means_fewer_shards() {
        assert_eq!(Config::with_memory(MEMORY_DEFAULT), Config::default());
        assert_eq!(Config::with_memory(64 << 20).shards, 16);
        assert_eq!(Config::with_memory(64 << 20).check(), Ok(()));
        let tiny = Config::with_memory(1 << 20);
        assert_eq!(tiny.shards, 1);
        assert!(matches!(tiny.check(), Err(ConfigError::Memory { .. })));
    }

    #[test]
    fn much_memory_means_more_shards_up_to_the_limit() {
        let of = |memory_gb: u64, item_bytes| Config::new(memory_gb << 30, item_bytes).shards;
        assert_eq!([1, 2, 8, 16, 100].map(|gb| of(gb, ITEM_BYTES_DEFAULT)), [256, 512, 2048, 4096, 4096]);
        assert_eq!(of(8, 3 << 20), 512, "each has room for four of the longest items");
    }

    #[test]
    fn impossible_settings_are_named() {
        let config = Config::default();
        assert_eq!(Config { shards: 3, ..config }.check(), Err(ConfigError::Shards(3)));
        assert_eq!(Config { shards: 0, ..config }.check(), Err(ConfigError::Shards(0)));
        assert_eq!(Config { item_bytes: 5, ..config }.check(), Err(ConfigError::ItemBytes(5)));
    }
}
