//! One item: a key, its value, and memcached's data about it. Clients would see its corruption first.

use crosscheck::object::{HotWord, Pieces, Ref, Summed, critical};

use crate::limits::{ACCESS_NOTED_S, stock_overhead};
use crate::store::expiry::{Deadline, is_over, seconds};
use crate::store::fifo::QueuePlace;

/// The memory of an item besides key and value, in bytes: the object itself, its slot, its entries in bucket and queue,
/// and the allocator's share.
pub const ITEM_OVERHEAD: u64 = 160;

const _: () = assert!(Pieces::HEAD > u8::MAX as usize, "every key is in front of the pieces");

/// A stored item.
#[critical]
pub struct Item {
    /// The key, and the value behind it: one stretch of memory for both. Of a long value the key is in front of all
    /// pieces ([`Pieces::HEAD`]), so a look at it checks none of them.
    content: Pieces,
    /// Changes with every store; what `cas` compares.
    unique: u64,
    expires_us: Deadline,
    /// Client flags.
    flags: u32,
    /// The shard's flush epoch when it was stored; in another epoch the item is dead.
    epoch: u32,
    /// Bytes of the key.
    key_len: u8,
    /// Ordered time of the last access in seconds.
    #[hot]
    accessed_s: u32,
    #[hot]
    marks: Marks,
    /// Where in which queue it waits for eviction.
    place: QueuePlace,
}

/// Small facts about an item, in one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Summed)]
pub struct Marks(u8);

const _: () =
    assert!(size_of::<Option<Item>>() == 72, "every byte here is there as often as there are items");

/// The data to store under a key, before it is an item.
pub struct NewItem<'a> {
    /// The value.
    pub value: &'a [u8],
    /// Client flags.
    pub flags: u32,
    /// When it expires.
    pub expires_us: Deadline,
    /// Its unique.
    pub unique: u64,
    /// Marks it starts with.
    pub marks: Marks,
}

impl HotWord for Marks {
    #[inline]
    fn to_word(self) -> u32 {
        u32::from(self.0)
    }
    #[inline]
    fn from_word(word: u32) -> Self {
        Marks(word as u8)
    }
}

impl Marks {
    /// Hits counted for eviction: 0 to this.
    const HITS: u8 = 3;
    /// It was read since it was stored.
    pub const FETCHED: Marks = Marks(1 << 2);
    /// `md I` or `ms I` made it stale.
    pub const STALE: Marks = Marks(1 << 3);
    /// A client was told to recache it.
    pub const WON: Marks = Marks(1 << 4);
    /// The key came in base64, and is returned in base64.
    pub const BINARY: Marks = Marks(1 << 5);

    /// Whether all of `other` are set.
    pub fn has(self, other: Marks) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and `other`, if `condition`.
    #[must_use]
    pub fn with(self, other: Marks, condition: bool) -> Self {
        if condition { Marks(self.0 | other.0) } else { self }
    }

    /// These without `other`.
    #[must_use]
    pub fn without(self, other: Marks) -> Self {
        Marks(self.0 & !other.0)
    }

    /// Hits since it was last passed over.
    pub fn hits(self) -> u8 {
        self.0 & Self::HITS
    }

    fn with_hits(self, hits: u8) -> Self {
        Marks((self.0 & !Self::HITS) | hits.min(Self::HITS))
    }

    fn one_more_hit(self) -> Self {
        self.with_hits(self.hits() + 1)
    }
}

#[critical]
impl Item {
    /// An item that is not yet in any queue.
    pub fn new(key: &[u8], new: &NewItem<'_>, epoch: u32, now_us: u64) -> Self {
        Self {
            content: Pieces::joined(key, new.value),
            unique: new.unique,
            expires_us: new.expires_us,
            flags: new.flags,
            epoch,
            key_len: key.len() as u8,
            accessed_s: seconds(now_us),
            marks: new.marks.with_hits(0),
            place: QueuePlace::default(),
        }
    }

    /// Puts another value in its place; key and place in the queue remain.
    pub fn replace(&mut self, new: &NewItem<'_>, epoch: u32, now_us: u64) {
        let hits = self.marks.one_more_hit().hits();
        self.content.replace_after(usize::from(self.key_len), new.value);
        self.unique = new.unique;
        self.expires_us = new.expires_us;
        self.flags = new.flags;
        self.epoch = epoch;
        self.accessed_s = seconds(now_us);
        self.marks = new.marks.with_hits(hits);
    }

    /// Overwrites the value with one of the same length: marks and expiry remain.
    pub fn overwrite(&mut self, value: &[u8], unique: u64, now_us: u64) {
        self.content.replace_after(usize::from(self.key_len), value);
        self.unique = unique;
        self.accessed_s = seconds(now_us);
    }

    /// Notes an access. Cheap to call: see [`Item::access_changes`].
    #[hot]
    pub fn access(&mut self, now_us: u64) {
        *self.marks = self.marks.one_more_hit().with(Marks::FETCHED, true);
        *self.accessed_s = seconds(now_us);
    }

    /// Whether [`Item::access`] would change anything: a hot item is written at most once a second.
    pub fn access_changes(&self, now_us: u64) -> bool {
        self.marks.hits() < Marks::HITS
            || !self.marks.has(Marks::FETCHED)
            || self.accessed_s != seconds(now_us)
    }

    /// Whether a read at this time has to note its access: the next eviction would take the item, or the last access
    /// was noted a minute before, as memcached has it. So an item that is read stays; how often it was read, and `mg`'s
    /// flags of accesses, may be a minute old.
    pub fn must_note(&self, now_us: u64) -> bool {
        self.marks.hits() == 0 || self.idle_s(now_us) >= ACCESS_NOTED_S
    }

    /// Counts a hit for eviction only (`add` on an existing item).
    #[hot]
    pub fn promote(&mut self, now_us: u64) {
        *self.marks = self.marks.one_more_hit();
        *self.accessed_s = seconds(now_us);
    }

    /// Passes it over once: one hit less. Returns whether there was one.
    #[hot]
    pub fn spend_hit(&mut self) -> bool {
        let hits = self.marks.hits();
        *self.marks = self.marks.with_hits(hits.saturating_sub(1));
        hits > 0
    }

    /// Gives it another deadline.
    pub fn set_deadline(&mut self, expires_us: Deadline) {
        self.expires_us = expires_us;
    }

    /// Marks it as stale: the reply to the next reader asks it to recache the item.
    pub fn mark_stale(&mut self, unique: u64) {
        self.marks = self.marks.with(Marks::STALE, true).without(Marks::WON);
        self.unique = unique;
    }

    /// Notes that a reader was told to recache it.
    #[hot]
    pub fn mark_won(&mut self) {
        *self.marks = self.marks.with(Marks::WON, true);
    }

    /// Sets its place in the queue.
    pub fn set_place(&mut self, place: QueuePlace) {
        self.place = place;
    }

    /// Its place in the queue.
    pub fn place(&self) -> QueuePlace {
        self.place
    }

    /// Whether it has this key.
    pub fn has_key(&self, key: &[u8]) -> bool {
        self.key() == key
    }

    /// Its key.
    pub fn key(&self) -> &[u8] {
        self.content.part(0..self.key_len())
    }

    /// Length of the key in bytes.
    pub fn key_len(&self) -> usize {
        usize::from(self.key_len)
    }

    /// Key and value; a large value is checked once for both, piece by piece.
    pub fn key_and_value(&self) -> (&[u8], &[u8]) {
        self.content.whole().split_at(self.key_len())
    }

    /// Its unique.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// When it expires.
    pub fn deadline(&self) -> Deadline {
        self.expires_us
    }

    /// Client flags.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Its marks.
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// Whether it has expired.
    pub fn is_expired(&self, now_us: u64) -> bool {
        is_over(self.expires_us, now_us)
    }

    /// Whether it belongs to another flush epoch.
    pub fn is_flushed(&self, epoch: u32) -> bool {
        self.epoch != epoch
    }

    /// Whether it is gone for clients: expired, or of another epoch.
    pub fn is_dead(&self, epoch: u32, now_us: u64) -> bool {
        self.is_expired(now_us) || self.is_flushed(epoch)
    }

    /// Seconds since the last access.
    pub fn idle_s(&self, now_us: u64) -> u64 {
        u64::from(seconds(now_us).saturating_sub(self.accessed_s))
    }

    /// Length of the value in bytes.
    pub fn value_len(&self) -> usize {
        self.content.len() - self.key_len()
    }

    /// The value; a large one is checked here, piece by piece.
    pub fn value(&self) -> &[u8] {
        self.content.part(self.key_len()..self.content.len())
    }

    /// Bytes it is charged with against the shard's memory.
    pub fn charge(&self) -> u64 {
        charge(self.key_len(), self.value_len())
    }

    /// Size that stock memcached would report.
    pub fn stock_size(&self) -> usize {
        stock_overhead(self.flags) + self.content.len()
    }
}

/// Bytes an item of these lengths is charged with.
pub fn charge(key: usize, value: usize) -> u64 {
    (key + value) as u64 + ITEM_OVERHEAD
}

/// A reference to an item.
pub type ItemRef = Ref<Item>;
