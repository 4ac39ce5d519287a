//! What SQLite sees while a request is executed: the file's pages, the time, and random numbers, all of them from the
//! ordered log.

use wire::SplitMix64;

use crate::database::{Database, MAX_PAGES, PAGE_BYTES};
use crate::open_transactions::Drawn;

/// Milliseconds from the epoch of Julian days, noon on 24 November 4714 BC, to 1970: SQLite counts from there.
const JULIAN_1970_MS: i64 = 210_866_760_000_000;
/// Where a file has the sixteen bytes by which SQLite sees that another one has changed it: its change counter.
const CHANGE_COUNTER: u64 = 24;
const CHANGE_COUNTER_BYTES: usize = 16;
/// Where it has the number of its schema.
const SCHEMA_COOKIE: usize = 40;

/// The database, as far as the request may use it.
pub enum Pages<'a> {
    /// To read.
    Shared(&'a Database),
    /// To read and write.
    Exclusive(&'a mut Database),
}

/// Why a part of the file is not read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is behind the end, and was read as zeros.
    ShortRead,
    /// The request may only read.
    Shared,
    /// The file would have more than [`MAX_PAGES`].
    Full,
    /// It is no whole page.
    Unaligned,
}

/// What SQLite sees while a request is executed.
pub struct Guest<'a> {
    pages: Pages<'a>,
    now_us: u64,
    rng: SplitMix64,
    /// What SQLite's own generator begins with, together with the number of the statement.
    seed: u64,
    statement: u64,
    /// It was used since it began anew.
    has_drawn: bool,
    wants_to_write: bool,
    /// Parts of the file that were read or written.
    uses: u64,
    /// Pages that SQLite was given where they lie, and has not given back.
    fetched: u64,
}

impl<'a> Guest<'a> {
    /// What a request sees that draws this.
    pub fn new(pages: Pages<'a>, Drawn { now_us, seed }: Drawn) -> Self {
        let rng = SplitMix64::new(seed);
        let (statement, has_drawn, wants_to_write) = (0, false, false);
        Guest { pages, now_us, rng, seed, statement, has_drawn, wants_to_write, uses: 0, fetched: 0 }
    }

    /// From now on the query of a transaction runs that draws this.
    pub(crate) fn draw(&mut self, Drawn { now_us, seed }: Drawn) {
        (self.now_us, self.seed, self.rng) = (now_us, seed, SplitMix64::new(seed));
        self.statement = 0;
    }

    /// Whether it may only read and has tried to write.
    pub fn wants_to_write(&self) -> bool {
        self.wants_to_write
    }

    /// How many parts of the file were read or written.
    pub fn uses(&self) -> u64 {
        self.uses
    }

    /// The digest of the schema.
    pub fn schema(&self) -> u64 {
        self.database().schema()
    }

    fn database(&self) -> &Database {
        match &self.pages {
            Pages::Shared(database) => database,
            Pages::Exclusive(database) => database,
        }
    }

    fn database_mut(&mut self) -> Result<&mut Database, Fault> {
        match &mut self.pages {
            Pages::Exclusive(database) => Ok(database),
            Pages::Shared(_) => {
                self.wants_to_write = true;
                Err(Fault::Shared)
            }
        }
    }

    /// SQLite's number of the schema, in the file: it may come again after a request was undone.
    pub(crate) fn schema_cookie(&self) -> u32 {
        let cookie = self.database().page(0).and_then(|page| page.get(SCHEMA_COOKIE..)?.first_chunk::<4>());
        cookie.copied().map_or(0, u32::from_be_bytes)
    }

    /// The schema has changed: this is a digest of it.
    pub(crate) fn set_schema(&mut self, schema: u64) {
        if let Ok(database) = self.database_mut() {
            database.set_schema(schema);
        }
    }

    /// Bytes of the file.
    pub(crate) fn size(&self) -> u64 {
        u64::from(self.database().count()) * PAGE_BYTES as u64
    }

    /// Reads a part of one page, checked.
    pub(crate) fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.uses += 1;
        let (number, within) = (offset / PAGE_BYTES as u64, (offset % PAGE_BYTES as u64) as usize);
        out.fill(0);
        let number = u32::try_from(number).map_err(|_| Fault::ShortRead)?;
        let page = self.database().page(number).ok_or(Fault::ShortRead)?;
        let part = page.get(within..within + out.len()).ok_or(Fault::Unaligned)?;
        out.copy_from_slice(part);
        if offset == CHANGE_COUNTER && out.len() == CHANGE_COUNTER_BYTES {
            // What no file has: SQLite takes it for a changed one, and forgets the pages that it has kept. What it
            // keeps is no object, and is not checked.
            out.fill(0xff);
        }
        Ok(())
    }

    /// A page where it lies, checked, for SQLite to read until it gives it back. None where the database may change
    /// meanwhile, or what is asked for is no page: then it is read.
    pub(crate) fn fetch(&mut self, offset: u64, length: usize) -> Option<&[u8]> {
        let Pages::Shared(database) = self.pages else { return None };
        let number = u32::try_from(offset / PAGE_BYTES as u64).ok()?;
        let is_page = length == PAGE_BYTES && offset.is_multiple_of(PAGE_BYTES as u64);
        let page = database.page(number).filter(|_| is_page)?;
        self.fetched += 1;
        Some(page)
    }

    /// SQLite gives a page back.
    pub(crate) fn unfetch(&mut self) {
        self.fetched = self.fetched.saturating_sub(1);
    }

    /// Whether SQLite has pages that it was given where they lie.
    pub(crate) fn has_fetched(&self) -> bool {
        self.fetched > 0
    }

    /// Writes a page.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.uses += 1;
        if bytes.len() != PAGE_BYTES || !offset.is_multiple_of(PAGE_BYTES as u64) {
            return Err(Fault::Unaligned);
        }
        let number = offset / PAGE_BYTES as u64;
        let database = self.database_mut()?;
        if number >= u64::from(MAX_PAGES) {
            return Err(Fault::Full);
        }
        database.write(number as u32, bytes);
        Ok(())
    }

    /// Makes the file shorter.
    pub(crate) fn truncate(&mut self, size: u64) -> Result<(), Fault> {
        let count = u32::try_from(size.div_ceil(PAGE_BYTES as u64)).unwrap_or(u32::MAX);
        self.database_mut()?.truncate(count);
        Ok(())
    }

    /// The ordered time, in microseconds since 1970.
    pub(crate) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// The ordered time, in milliseconds, as SQLite counts it.
    pub(crate) fn julian_ms(&self) -> i64 {
        JULIAN_1970_MS + (self.now_us / 1000) as i64
    }

    /// The next random bytes of the request.
    pub(crate) fn fill_random(&mut self, out: &mut [u8]) {
        fill(&mut self.rng, out);
    }

    /// What SQLite's own generator begins with.
    pub(crate) fn fill_seed(&mut self, out: &mut [u8]) {
        self.has_drawn = true;
        fill(&mut SplitMix64::new(self.seed.wrapping_add(self.statement)), out);
    }

    /// SQLite's own generator begins anew.
    pub(crate) fn begin_generator(&mut self) {
        self.has_drawn = false;
    }

    /// Whether it was used since.
    pub(crate) fn has_drawn(&self) -> bool {
        self.has_drawn
    }

    /// The next statement of the request is executed.
    pub(crate) fn begin_statement(&mut self) {
        self.statement += 1;
    }
}

fn fill(rng: &mut SplitMix64, out: &mut [u8]) {
    for part in out.chunks_mut(8) {
        let bytes = rng.next_u64().to_le_bytes();
        part.copy_from_slice(&bytes[..part.len()]);
    }
}
