//! The service: which locks a command needs, and its execution on the shards behind them.

use std::sync::Arc;

use bytes::Bytes;
#[cfg(feature = "lab")]
use crosscheck::Behaviors;
use crosscheck::object::{Members, ObjectId, Region, RegionId, Sealed, Shape};
use crosscheck::schedule::{DetMutex, Footprint, Locks, Retry};
use crosscheck::{Cx, Malformed, NeedsBatch, Service};

use crate::command::binary::{BinaryHead, ResponseContent, ResponseStatus};
use crate::command::{self, Command, Key, List, Meta, SettingChange, StoreMode, decode, encode};
use crate::config::{Config, ConfigError};
use crate::handlers::{self, ItemForm, Listing, StorageRequest};
use crate::limits::{LISTED_AT_MOST, REPLY_BYTES};
use crate::settings::{self, shards_of};
use crate::stats::{ServiceCounters, Stats};
use crate::store::expiry::{PAST, deadline};
use crate::store::{Misshapen, Shard, ShardTurn};
#[cfg(feature = "lab")]
use crate::work;

/// The end of a retrieval's reply.
const END: &[u8] = b"END\r\n";
/// From this length on, the first value of a retrieval reserves memory for as many values as there are keys.
const LONG_VALUE: usize = 64 << 10;
/// Bytes of a key that evidence shows; keys have 250 at most, and a line should stay readable.
const SHOWN_KEY_BYTES: usize = 64;

/// A memcached server's state and handlers. Make its connections with [`crate::Connection::new`] and the same
/// [`Stats`].
#[derive(Locks)]
pub struct Memcached {
    /// Read without a check; the replica checks at every tick whether it is intact.
    #[locks(skip)]
    config: Sealed<Config>,
    #[locks(skip)]
    stats: Arc<Stats>,
    shards: Box<[DetMutex<Shard>]>,
}

impl Memcached {
    /// An empty cache.
    ///
    /// # Errors
    /// [`ConfigError`] for settings that cannot work.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let shards = shards_of(config, 0..config.shards).into();
        Ok(Memcached { config: Sealed::new(config), stats: Arc::new(Stats::new(config)), shards })
    }

    /// Its settings.
    pub fn config(&self) -> Config {
        *self.config.as_is()
    }

    /// Its shards.
    pub(crate) fn shards(&self) -> &[DetMutex<Shard>] {
        &self.shards
    }

    /// Its counters, for its connections.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Checks the shape of one shard as a whole; for tests and simulation.
    ///
    /// # Errors
    /// [`Retry`] if the shard is outside the footprint; otherwise the first error that is found.
    pub fn audit(&self, cx: &Cx<'_, Self>, region_id: RegionId) -> Result<Result<(), Misshapen>, Retry> {
        Ok(cx.lock(&self.shards[region_id as usize])?.audit())
    }

    fn region_id(&self, key: &Key) -> RegionId {
        key.hash().shard(self.config.as_is().shards)
    }

    /// Runs `body` on the shard of `key`.
    fn on_shard<R>(
        &self,
        cx: &Cx<'_, Self>,
        key: &Key,
        body: impl FnOnce(&mut Shard, ShardTurn<'_>) -> R,
    ) -> Result<R, Retry> {
        let region_id = self.region_id(key);
        let mut shard = cx.lock(&self.shards[region_id as usize])?;
        let result = body(&mut shard, self.turn(cx));
        self.stats.note_shard(region_id, shard.count(), shard.bytes(), shard.limits());
        Ok(result)
    }

    /// The counters for a request, so that a request that is run several times is counted once.
    fn counters(&self, cx: &Cx<'_, Self>) -> &ServiceCounters {
        if cx.is_counted() { &self.stats.counters } else { &self.stats.uncounted }
    }

    fn turn(&self, cx: &Cx<'_, Self>) -> ShardTurn<'_> {
        let (counters, sizes) = (self.counters(cx), &self.stats.sizes);
        let watch = self.stats.watch.watched().filter(|_| cx.is_counted());
        ShardTurn { now_us: cx.now_us(), unique: cx.position(), counters, sizes, watch }
    }

    fn retrieve(
        &self,
        cx: &Cx<'_, Self>,
        keys: &[Key],
        with_unique: bool,
        touch: Option<i64>,
        reply: &mut Vec<u8>,
    ) -> Result<(), Retry> {
        let start = reply.len();
        let touch = touch.map(|expiry| deadline(expiry, cx.now_us()));
        for (index, key) in keys.iter().enumerate() {
            let is_first = reply.len() == start;
            let fits = self.on_shard(cx, key, |shard, turn| {
                handlers::retrieve(shard, key, ItemForm::Text { with_unique }, touch, turn, reply)
            })?;
            if is_first {
                reserve(reply, reply.len() - start, keys.len() - index - 1);
            }
            if !fits {
                reply.truncate(start);
                reply.extend_from_slice(b"SERVER_ERROR out of memory writing get response\r\n");
                return Ok(());
            }
        }
        reply.extend_from_slice(END);
        Ok(())
    }

    fn flush_all(&self, cx: &Cx<'_, Self>, delay: i64) -> Result<(), Retry> {
        Stats::count(&self.counters(cx).cmd_flush);
        let begin_us = if delay <= 0 { PAST } else { deadline(delay, cx.now_us()) };
        for shard in &self.shards {
            cx.lock(shard)?.flush(begin_us, cx.now_us());
        }
        Ok(())
    }

    fn list(&self, cx: &Cx<'_, Self>, list: List, reply: &mut Vec<u8>) -> Result<(), Retry> {
        let shards = || self.listed(list).filter_map(|region_id| self.shards.get(region_id as usize));
        // Dead ones too: they have to be looked at.
        let (mut items, mut looked_at) = (0, 0);
        for shard in shards() {
            items += cx.lock(shard)?.count();
        }
        let may_end_early = matches!(list, List::Cachedump { .. });
        if items > LISTED_AT_MOST && !may_end_early {
            reply.extend_from_slice(b"SERVER_ERROR too many items for a list at one position\r\n");
            return Ok(());
        }
        let mut listing = Listing::new(list, cx.now_us(), reply);
        for shard in shards() {
            let shard = cx.lock(shard)?;
            looked_at += shard.count();
            if looked_at > LISTED_AT_MOST || !shard.visit_live(cx.now_us(), &mut |item| listing.add(item)) {
                break;
            }
        }
        listing.end();
        Ok(())
    }

    /// The shards whose items a list has.
    fn listed(&self, list: List) -> std::ops::Range<RegionId> {
        let shards = self.config.as_is().shards;
        match list {
            List::Metadump { part, of } => {
                let begin =
                    |part: u32| (u64::from(part) * u64::from(shards) / u64::from(of.max(1))) as RegionId;
                begin(part)..begin(part.saturating_add(1))
            }
            List::Cachedump { .. } | List::Sizes => 0..shards,
            #[cfg(feature = "lab")]
            List::Behavior => 0..0,
        }
    }

    fn run_binary(
        &self,
        cx: &Cx<'_, Self>,
        head: &BinaryHead,
        command: &Command,
        reply: &mut Vec<u8>,
    ) -> Result<(), Retry> {
        match (command, command.keys()) {
            (Command::FlushAll { delay, .. }, _) => {
                self.flush_all(cx, *delay)?;
                head.succeed(ResponseContent::default(), reply);
                Ok(())
            }
            (_, [key, ..]) => self.on_shard(cx, key, |shard, turn| {
                handlers::binary(shard, head, command, turn, reply);
            }),
            // The decoding has refused all others.
            (_, []) => {
                head.fail(ResponseStatus::Internal, reply);
                Ok(())
            }
        }
    }

    fn run(&self, cx: &Cx<'_, Self>, command: &Command, reply: &mut Vec<u8>) -> Result<(), Retry> {
        match command {
            Command::Get { keys, with_unique, touch } => self.retrieve(cx, keys, *with_unique, *touch, reply),
            Command::Store { mode, key, flags, expiry, unique, value, .. } => {
                let storage = StorageRequest {
                    mode: *mode,
                    key,
                    flags: *flags,
                    expiry: *expiry,
                    unique: *unique,
                    value,
                };
                self.on_shard(cx, key, |shard, turn| {
                    reply.extend_from_slice(handlers::storage(shard, &storage, turn));
                })
            }
            Command::TooLarge { key, .. } => {
                self.on_shard(cx, key, |shard, turn| handlers::too_large(shard, key, turn))?;
                reply.extend_from_slice(handlers::TOO_LARGE_LINE);
                Ok(())
            }
            Command::Delete { key, .. } => self.on_shard(cx, key, |shard, turn| {
                reply.extend_from_slice(handlers::delete(shard, key, turn));
            }),
            Command::Arithmetic { key, up, delta, .. } => self.on_shard(cx, key, |shard, turn| {
                handlers::arithmetic(shard, key, *up, *delta, turn, reply);
            }),
            Command::Touch { key, expiry, .. } => self.on_shard(cx, key, |shard, turn| {
                reply.extend_from_slice(handlers::touch(shard, key, *expiry, turn));
            }),
            Command::FlushAll { delay, .. } => {
                self.flush_all(cx, *delay)?;
                reply.extend_from_slice(b"OK\r\n");
                Ok(())
            }
            #[cfg(feature = "lab")]
            Command::List { list: List::Behavior } => {
                reply.extend_from_slice(format!("{}\r\n", cx.behavior()).as_bytes());
                Ok(())
            }
            Command::List { list } => self.list(cx, *list, reply),
            Command::MemoryLimit { megabytes, .. } => {
                match self.limit_memory(cx, *megabytes)? {
                    Ok(()) => reply.extend_from_slice(b"OK\r\n"),
                    Err(least) => {
                        let refused =
                            format!("MEMLIMIT_TOO_SMALL cannot set maxbytes to less than {least}m\r\n");
                        reply.extend_from_slice(refused.as_bytes());
                    }
                }
                Ok(())
            }
            Command::Settings { change } => self.settings(cx, *change, reply),
            Command::Binary { head, command } => self.run_binary(cx, head, command, reply),
            Command::MetaGet { key, meta } => {
                self.on_shard(cx, key, |shard, turn| handlers::meta_get(shard, key, meta, turn, reply))
            }
            Command::MetaSet { key, meta, value } => self.on_shard(cx, key, |shard, turn| {
                handlers::meta_set(shard, key, meta, value, turn, reply);
            }),
            Command::MetaDelete { key, meta } => {
                self.on_shard(cx, key, |shard, turn| handlers::meta_delete(shard, key, meta, turn, reply))
            }
            Command::MetaArithmetic { key, meta } => {
                self.on_shard(cx, key, |shard, turn| handlers::meta_arithmetic(shard, key, meta, turn, reply))
            }
            Command::MetaDebug { key } => {
                self.on_shard(cx, key, |shard, turn| handlers::debug(shard, key, turn, reply))
            }
        }
    }
}

impl Service for Memcached {
    /// Builds of the laboratory have a second one, for tests of upgrades.
    #[cfg(feature = "lab")]
    const BEHAVIORS: Behaviors = Behaviors::up_to(2);

    type Request = Command;

    fn decode(&self, ordered: &Bytes) -> Result<Command, Malformed> {
        decode(ordered)
    }

    fn encode(&self, command: &Command) -> Vec<u8> {
        encode(command)
    }

    fn settings_request(&self, change: Option<(&str, &str)>) -> Result<Command, String> {
        settings::request(change)
    }

    fn founded_with(&mut self, founding: &[(String, String)]) -> Result<(), String> {
        let config = settings::founding(founding, self.config())?;
        self.shards = shards_of(config, 0..config.shards).into();
        self.config = Sealed::new(config);
        self.stats.begin(config);
        Ok(())
    }

    fn take_locks(&mut self, count: u32) {
        if !settings::is_number_of_shards(count) || count as usize == self.shards.len() {
            return;
        }
        let config = Config { shards: count, ..self.config() };
        let mut shards = std::mem::take(&mut self.shards).into_vec();
        shards.truncate(count as usize);
        shards.extend(shards_of(config, shards.len() as RegionId..count));
        self.shards = shards.into();
        self.config = Sealed::new(config);
        self.stats.begin(config);
    }

    fn shape_of_requests(shape: &mut Shape) {
        shape.add::<Command>();
        shape.add::<StoreMode>();
        shape.add::<Meta>();
        shape.add::<BinaryHead>();
        shape.add::<List>();
        shape.add::<SettingChange>();
    }

    fn footprint(&self, command: &Command, footprint: &mut Footprint) {
        match command.classic() {
            Command::List { list } => self.listed(*list).for_each(|region_id| footprint.write(region_id)),
            Command::FlushAll { .. }
            | Command::MemoryLimit { .. }
            | Command::Settings { change: Some(_) } => {
                footprint.make_all();
            }
            Command::Settings { change: None } => footprint.write(0),
            command => command.keys().iter().for_each(|key| footprint.write(self.region_id(key))),
        }
    }

    fn execute(&self, cx: &Cx<'_, Self>, command: &Command, reply: &mut Vec<u8>) -> Result<(), Retry> {
        let start = reply.len();
        #[cfg(feature = "lab")]
        work::burn();
        self.run(cx, command, reply)?;
        if command.is_quiet() {
            reply.truncate(start);
        }
        Ok(())
    }

    /// `get` and `gets`: the other retrievals change an item, or show its marks, which a read without a batch leaves
    /// as they are.
    fn reads_only(&self, command: &Command) -> bool {
        matches!(command.classic(), Command::Get { touch: None, .. })
    }

    fn read(
        &self,
        cx: &Cx<'_, Self>,
        latest_us: u64,
        command: &Command,
        reply: &mut Vec<u8>,
    ) -> Result<(), NeedsBatch> {
        let Command::Get { keys, with_unique, touch: None } = command.classic() else {
            return Err(NeedsBatch);
        };
        let (form, start) = (form_of(command, *with_unique), reply.len());
        #[cfg(feature = "lab")]
        work::burn();
        let turn = self.turn(cx);
        for key in keys {
            let shard = cx.lock(&self.shards[self.region_id(key) as usize])?;
            handlers::read(&shard, key, form, turn, latest_us, reply)?;
        }
        match (command, keys.as_slice()) {
            (Command::Binary { head, .. }, [key]) if reply.len() == start => handlers::miss(head, key, reply),
            (Command::Binary { .. }, _) => {}
            _ => reply.extend_from_slice(END),
        }
        Ok(())
    }

    fn is_valid(&self) -> bool {
        self.config.is_intact() && self.config.as_is().shards as usize == self.shards.len()
    }

    fn kind(&self, command: &Command) -> u16 {
        u16::from(command.code())
    }

    fn kind_name(kind: u16) -> Option<&'static str> {
        command::kind_name(kind)
    }

    fn panicked(&self, command: &Command, reply: &mut Vec<u8>) {
        if let Command::Binary { head, .. } = command {
            head.fail(ResponseStatus::Internal, reply);
        } else if !command.is_quiet() {
            reply.extend_from_slice(b"SERVER_ERROR internal error\r\n");
        }
    }

    fn name_of(object: &Members<'_>) -> Option<String> {
        let content = object.byte_string("content").filter(|_| object.class == "Item")?;
        let key = content.get(..usize::from(*object.get("key_len")?.first()?))?;
        let shown = key.get(..SHOWN_KEY_BYTES).unwrap_or(key).escape_ascii();
        let rest = if key.len() > SHOWN_KEY_BYTES { "..." } else { "" };
        Some(format!("item \"{shown}{rest}\""))
    }

    fn region_id_of(&self, name: &str) -> Option<RegionId> {
        match Name::parse(name)? {
            Name::OfKey(_, key) => Some(self.region_id(&key)),
            Name::Shard(region_id) | Name::Queue(region_id) => {
                (region_id < self.config.as_is().shards).then_some(region_id)
            }
        }
    }

    fn find(&self, cx: &Cx<'_, Self>, name: &str) -> Option<ObjectId> {
        let shard = cx.lock(self.shards.get(self.region_id_of(name)? as usize)?).ok()?;
        match Name::parse(name)? {
            Name::OfKey(what, key) => shard.name(what, &key),
            Name::Shard(_) => Some(shard.root()),
            Name::Queue(_) => shard.queue_head(),
        }
    }
}

/// How the items that a retrieval finds are answered.
fn form_of(command: &Command, with_unique: bool) -> ItemForm<'_> {
    match command {
        Command::Binary { head, .. } => ItemForm::Binary(head),
        _ => ItemForm::Text { with_unique },
    }
}

/// Reserves memory for this many more values of this length, if it is long. A reply of many megabytes that grew by
/// doubling would be copied repeatedly, and need twice its memory meanwhile. If the other values are shorter, the
/// kernel never provides the pages that are not written.
fn reserve(reply: &mut Vec<u8>, length: usize, more: usize) {
    if length >= LONG_VALUE {
        let more = length.saturating_mul(more).min(REPLY_BYTES.saturating_sub(length));
        reply.reserve(more + handlers::BESIDE_VALUE + END.len());
    }
}

/// An operator's name for an object.
enum Name<'a> {
    /// `item:KEY` or `slot:KEY`.
    OfKey(&'a str, Key),
    /// `shard:N`: the shard's root.
    Shard(RegionId),
    /// `queue:N`: the queue page of shard N with the next item to evict.
    Queue(RegionId),
}

impl<'a> Name<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let (what, rest) = name.split_once(':')?;
        match what {
            "item" | "slot" => Some(Name::OfKey(what, Key::new(rest.as_bytes())?)),
            "shard" => Some(Name::Shard(rest.parse().ok()?)),
            "queue" => Some(Name::Queue(rest.parse().ok()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reply_finds_room_at_once_and_never_more_than_the_longest() {
        let mut reply = vec![0; LONG_VALUE];
        reserve(&mut reply, LONG_VALUE, 99);
        let (place, room) = (reply.as_ptr(), reply.capacity());
        assert!((100 * LONG_VALUE..101 * LONG_VALUE).contains(&room), "{room}");
        for _ in 0..99 {
            reply.reserve(LONG_VALUE + handlers::BESIDE_VALUE - 20);
            reply.resize(reply.len() + LONG_VALUE, 0);
        }
        reply.extend_from_slice(END);
        assert_eq!(place, reply.as_ptr(), "it is not copied");
        let mut longest = vec![0; LONG_VALUE];
        reserve(&mut longest, LONG_VALUE, 1 << 20);
        assert!(longest.capacity() <= REPLY_BYTES + 1024, "{}", longest.capacity());
        let mut short = vec![0; 100];
        let room = short.capacity();
        reserve(&mut short, LONG_VALUE - 1, 99);
        assert_eq!(short.capacity(), room);
    }

    #[test]
    fn every_kind_of_request_has_a_name() {
        let get = Command::Get { keys: crate::command::Keys::new(), with_unique: false, touch: None };
        let cache = Memcached::new(Config::with_memory(64 << 20)).expect("a usable size");
        assert_eq!(Memcached::kind_name(cache.kind(&get)), Some("get"));
        assert_eq!(
            Memcached::kind_name(u16::from(Command::FlushAll { delay: 0, quiet: false }.code())),
            Some("flush_all")
        );
        assert_eq!(Memcached::kind_name(0), None);
        assert_eq!(Memcached::kind_name(256 + 1), None);
    }

    #[test]
    fn evidence_calls_an_item_by_its_key_whatever_the_bytes() {
        let name = |class, key: &[u8]| {
            let packed = [&(key.len() as u32 + 5).to_le_bytes(), key, b"value"].concat();
            let length = [key.len() as u8];
            Memcached::name_of(&Members { class, members: vec![("content", &packed), ("key_len", &length)] })
        };
        assert_eq!(name("Item", b"k").as_deref(), Some("item \"k\""));
        assert_eq!(name("Item", b"a\"\n\xff").as_deref(), Some("item \"a\\\"\\n\\xff\""));
        let long = name("Item", &[b'x'; 250]).expect("a name");
        assert!(long.len() < 80 && long.ends_with("x...\""), "{long}");
        assert_eq!(name("Queue", b"k"), None);
        for (content, length) in [(&b"\x09\0\0\0k"[..], b"\x01"), (b"\x01\0\0\0k", b"\x02")] {
            let torn = Members { class: "Item", members: vec![("content", content), ("key_len", length)] };
            assert_eq!(Memcached::name_of(&torn), None);
        }
        assert_eq!(Memcached::name_of(&Members { class: "Item", members: Vec::new() }), None);
    }

    #[test]
    fn as_many_locks_as_a_state_has_regions_if_that_can_be() {
        let mut cache = Memcached::new(Config::with_memory(64 << 20)).expect("a usable size");
        for count in [32, 4, 4096] {
            cache.take_locks(count);
            assert_eq!((cache.locks().len(), cache.stats().shards()), (count as usize, count));
            assert!(cache.is_valid());
        }
        for impossible in [0, 4097, u32::MAX] {
            cache.take_locks(impossible);
            assert_eq!(cache.locks().len(), 4096);
        }
        let founding = |memory: &str| vec![(settings::MEMORY.to_owned(), memory.to_owned())];
        assert_eq!(cache.founded_with(&founding("16")), Ok(()));
        assert_eq!((cache.config().shards, cache.config().memory), (4, 16 << 20));
        assert!(cache.founded_with(&founding("1")).is_err() && cache.founded_with(&founding("x")).is_err());
        assert_eq!(cache.config().shards, 4, "it is as before");
    }

    #[test]
    fn a_changed_setting_is_noticed() {
        let cache = || Memcached::new(Config::with_memory(64 << 20)).expect("a usable size");
        assert!(cache().is_valid());
        let mut more_shards = cache();
        more_shards.config.corrupt(|config| config.shards ^= 1 << 26);
        assert!(!more_shards.is_valid());
        let mut fewer = cache();
        fewer.shards = fewer.shards.into_vec().into_iter().skip(1).collect();
        assert!(!fewer.is_valid());
    }
}
