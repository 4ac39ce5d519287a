//! A replica's counters for `stats`: never part of its state, never compared, and allowed to differ between replicas.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::config::Config;
use crate::limits::SHARDS_MAX;
use crate::sizes::Sizes;
use crate::store::Limits;
use crate::watch::WatchLog;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one replica's service, in memcached's names.
        ///
        /// Requests that run twice (a retry, a replay) count twice.
        #[derive(Debug, Default)]
        pub struct ServiceCounters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl ServiceCounters {
            /// Every counter with its name, in the order of `stats`.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, &AtomicU64)> {
                [$((stringify!($name), &self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Keys looked up by retrieval commands.
    cmd_get,
    /// Storage commands.
    cmd_set,
    /// `flush_all` commands.
    cmd_flush,
    /// Keys looked up to change their expiry time.
    cmd_touch,
    /// Meta commands.
    cmd_meta,
    /// Keys found by retrieval commands.
    get_hits,
    /// Keys not found by retrieval commands.
    get_misses,
    /// Of these, those that had expired.
    get_expired,
    /// Of these, those that had been flushed.
    get_flushed,
    /// Deletions that found nothing.
    delete_misses,
    /// Deletions that deleted.
    delete_hits,
    /// Increments of a missing item.
    incr_misses,
    /// Increments.
    incr_hits,
    /// Decrements of a missing item.
    decr_misses,
    /// Decrements.
    decr_hits,
    /// `cas` on a missing item.
    cas_misses,
    /// `cas` that stored.
    cas_hits,
    /// `cas` with another unique than the item's.
    cas_badval,
    /// Expiry times changed.
    touch_hits,
    /// Expiry times of missing items not changed.
    touch_misses,
    /// Values beyond the item limit.
    store_too_large,
    /// Items stored since the start.
    total_items,
    /// Items removed for others while they were still valid.
    evictions,
    /// Of these, those that had never been read.
    evicted_unfetched,
    /// Expired or flushed items whose memory was freed.
    reclaimed,
}

/// Counters, and the last reported size of each shard.
#[derive(Debug)]
pub struct Stats {
    /// Counters.
    pub counters: ServiceCounters,
    /// Never shown: a request that runs several times counts all runs but one here.
    pub uncounted: ServiceCounters,
    /// The estimated lengths of values.
    pub sizes: Sizes,
    /// What clients watch.
    pub watch: Arc<WatchLog>,
    /// As many as there can be shards: how many there are may show only when a replica gets the state of its group.
    gauges: Box<[Gauge]>,
    shards: AtomicU32,
    /// The settings of the founding, until requests have shown those of the group.
    founding: [AtomicU64; 2],
    item_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Gauge {
    items: AtomicU64,
    bytes: AtomicU64,
    limit: AtomicU64,
}

impl Stats {
    /// Zeros for a service with these settings.
    pub fn new(config: Config) -> Self {
        // From here on `uptime` counts.
        let _ = crosscheck::host_time();
        let stats = Stats {
            counters: ServiceCounters::default(),
            uncounted: ServiceCounters::default(),
            sizes: Sizes::default(),
            watch: Arc::default(),
            gauges: (0..SHARDS_MAX).map(|_| Gauge::default()).collect(),
            shards: AtomicU32::new(0),
            founding: Default::default(),
            item_bytes: AtomicU64::new(0),
        };
        stats.begin(config);
        stats
    }

    /// The service has these settings from here on, and has not run a request.
    pub fn begin(&self, config: Config) {
        self.shards.store(config.shards, Relaxed);
        self.founding[0].store(config.memory, Relaxed);
        self.founding[1].store(config.item_bytes as u64, Relaxed);
    }

    /// Adds one to a counter.
    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    /// Notes how full a shard is; set, not added, so that a repaired or transferred shard needs no correction.
    pub fn note_shard(&self, shard: u32, items: u64, bytes: u64, limits: Limits) {
        self.item_bytes.store(limits.item_bytes, Relaxed);
        if let Some(gauge) = self.gauges.get(shard as usize) {
            gauge.limit.store(limits.memory, Relaxed);
            gauge.items.store(items, Relaxed);
            gauge.bytes.store(bytes, Relaxed);
        }
    }

    /// Items in all shards.
    pub fn items(&self) -> u64 {
        self.gauges().map(|gauge| gauge.items.load(Relaxed)).sum()
    }

    /// Bytes in all shards.
    pub fn bytes(&self) -> u64 {
        self.gauges().map(|gauge| gauge.bytes.load(Relaxed)).sum()
    }

    /// The memory limit in bytes; that of the founding before requests on all shards have shown theirs.
    pub fn limit(&self) -> u64 {
        let limits = || self.gauges().map(|gauge| gauge.limit.load(Relaxed));
        let are_shown = limits().all(|limit| limit > 0);
        if are_shown { limits().sum() } else { self.founding[0].load(Relaxed) }
    }

    /// The longest item in bytes; that of the founding before a request has shown it.
    pub fn item_bytes(&self) -> u64 {
        match self.item_bytes.load(Relaxed) {
            0 => self.founding[1].load(Relaxed),
            shown => shown,
        }
    }

    /// How many shards there are.
    pub fn shards(&self) -> u32 {
        self.shards.load(Relaxed)
    }

    fn gauges(&self) -> impl Iterator<Item = &Gauge> {
        self.gauges.iter().take(self.shards() as usize)
    }

    /// `stats reset`: counters become zero; stored items stay counted.
    pub fn reset(&self) {
        self.counters.all().for_each(|(_, counter)| counter.store(0, Relaxed));
    }
}
