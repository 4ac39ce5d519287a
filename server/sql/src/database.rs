//! The database as protected objects: pages of 4 KiB, which together are a SQLite file.
//!
//! SQLite reads and writes them through [`crate::vfs`]. So every byte that it keeps between two requests, of rows,
//! indexes, the schema and the list of free pages, is checked before it is used, and named and repaired page by page.

use crosscheck::object::{ObjectId, Pieces, Ref, Store, critical};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Pages at most: 1 GiB. SQLite keeps the page behind that for locks of files, and skips it.
pub const MAX_PAGES: u32 = 262_144;

/// A page of the file.
#[critical]
pub struct Page {
    /// Its number in the file, from 0.
    number: u32,
    bytes: Pieces,
    /// What [`Database::changes`] was when it was written last.
    changed: u64,
}

#[critical]
impl Page {
    fn new(number: u32, bytes: &[u8], changed: u64) -> Self {
        Self { number, bytes: Pieces::joined(bytes, &[]), changed }
    }

    /// Its [`PAGE_BYTES`] bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.whole()
    }

    fn changed(&self) -> u64 {
        self.changed
    }

    fn replace(&mut self, bytes: &[u8], changed: u64) {
        self.bytes.replace(bytes);
        self.changed = changed;
    }
}

/// The file.
#[critical]
pub struct Database {
    /// How many pages it has.
    count: u32,
    /// A digest of the schema: what connections have learned of it holds for one value.
    schema: u64,
    /// How many pages were written so far: those that have changed since a copy of some of them are found by it.
    changes: u64,
    /// The load that is not finished yet; 0 while there is none.
    load: u64,
    pages: Store<Page>,
}

#[critical]
impl Database {
    /// An empty file, as the state of a region ([`crosscheck::object::genesis`]).
    #[allow(clippy::new_without_default, reason = "only the state of a region is made so")]
    pub fn new() -> Self {
        Self { count: 0, schema: 0, changes: 0, load: 0, pages: Store::new() }
    }

    /// How many pages it has.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The digest of the schema.
    pub fn schema(&self) -> u64 {
        self.schema
    }

    /// Sets the digest of the schema.
    pub fn set_schema(&mut self, schema: u64) {
        self.schema = schema;
    }

    /// The bytes of page `number`, from 0, checked; none behind the end.
    pub fn page(&self, number: u32) -> Option<&[u8]> {
        let is_there = number < self.count;
        is_there.then(|| self.pages.expect(Ref::numbered(self.object_id(), number)).bytes())
    }

    /// How many pages were written so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether page `number`, from 0, was written after the first `since` writes.
    pub fn has_changed(&self, number: u32, since: u64) -> bool {
        number < self.count && self.pages.expect(Ref::numbered(self.object_id(), number)).changed() > since
    }

    /// The load that is not finished yet; 0 while there is none.
    pub fn load(&self) -> u64 {
        self.load
    }

    /// Sets the load that is not finished yet.
    pub fn set_load(&mut self, load: u64) {
        self.load = load;
    }

    /// Overwrites page `number`, from 0, with [`PAGE_BYTES`] bytes. The file grows up to there, with pages of zeros
    /// between.
    pub fn write(&mut self, number: u32, bytes: &[u8]) {
        let me = self.object_id();
        self.changes += 1;
        let changed = self.changes;
        if number < self.count {
            return self.pages.expect_mut(Ref::numbered(me, number)).replace(bytes, changed);
        }
        for between in self.count..number {
            self.pages.insert_numbered(me, between, Page::new(between, &[0; PAGE_BYTES], changed));
        }
        self.pages.insert_numbered(me, number, Page::new(number, bytes, changed));
        self.count = number + 1;
    }

    /// Removes the pages from number `count` on.
    pub fn truncate(&mut self, count: u32) {
        for number in (count..self.count).rev() {
            self.pages.expect_remove(Ref::numbered(self.object_id(), number));
        }
        self.count = self.count.min(count);
    }

    /// The object of page `number`, from 0, for an operator; none behind the end.
    pub fn object_of(&self, number: u32) -> Option<ObjectId> {
        (number < self.count).then(|| ObjectId::numbered(self.object_id(), number))
    }
}
