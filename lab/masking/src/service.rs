//! The service: 64 counters in a database, changed by several threads at once, and copied into objects.
//!
//! An addition has no key that conflicts with another addition's, so the mixer lets all of a batch run beside each
//! other, as in the first column of the paper's Fig. 9. It runs in two steps. First, without a lock, the database adds.
//! Then it asks for the counter's lock, which is not in its footprint: it runs again, with the lock, and copies the row
//! into the object. The last addition to a row that copies it sees all others, so the state after a batch is the same
//! whatever the order was. Only a bug makes replicas differ.
//!
//! The database is no object. Where the framework restores objects, the next request begins another database, whose
//! rows get the values of the objects when they are first used.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crosscheck::object::{Kinds, Members, ObjectId, RegionId, Shape, Summed, from_bytes, genesis, to_bytes};
use crosscheck::schedule::{DetMutex, Footprint, Keys, Lock, Locks, Retry};
use crosscheck::{Cx, Malformed, Service};

use crate::engine::{ROWS, Rows};
use crate::region::{CopiedRow, Restored};
use crate::witnessed::Witnessed;

/// The key of the whole table, for the mixer; those of rows are their numbers.
const TABLE: u64 = u64::MAX;
/// The reply where the database does not find a row, or a handler fails.
const ERROR: &[u8] = b"ERROR\n";

/// What clients ask for.
#[derive(Clone, Copy, Debug, Kinds, PartialEq, Eq, Summed)]
pub enum RowRequest {
    /// Adds 1 to a row.
    Add(u32),
    /// Reads a row.
    Get(u32),
}

/// Which additions the mixer keeps apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mix {
    /// None: all of a batch run beside each other.
    #[default]
    All,
    /// Those to the same row.
    Rows,
}

/// Makes a table whose rows are 0.
pub type MakeRows = Box<dyn Fn() -> Box<dyn Rows> + Send + Sync>;

/// A database, and which of its rows have the values of their objects. It is given up as a whole when objects were
/// restored: rows that it has lost do not come back, and additions that are rolled back would stay.
struct FilledRows {
    rows: Box<dyn Rows>,
    /// How often objects had been restored when it was made.
    restored: u64,
    /// A row is filled from its object when it is first used.
    filled: Vec<AtomicBool>,
    witnessed: Witnessed,
}

impl FilledRows {
    fn new(rows: Box<dyn Rows>, restored: u64, witnessed: Witnessed) -> Arc<Self> {
        let filled = (0..ROWS).map(|_| AtomicBool::new(restored == 0)).collect();
        Arc::new(FilledRows { rows, restored, filled, witnessed })
    }

    fn is_filled(&self, row: u32) -> bool {
        self.filled[row as usize].load(Ordering::Acquire)
    }

    fn fill(&self, row: u32, value: u64) {
        self.rows.set(row, value);
        self.witnessed.set(row, value);
        self.filled[row as usize].store(true, Ordering::Release);
    }

    fn add(&self, row: u32) {
        self.witnessed.adding(row, || self.rows.add(row));
    }

    fn value(&self, batch_us: u64, row: u32) -> Option<u64> {
        self.witnessed.reading(batch_us, row, || self.rows.value(row))
    }
}

/// The counters.
pub struct RowService {
    make: MakeRows,
    current: RwLock<Arc<FilledRows>>,
    copies: Vec<DetMutex<CopiedRow>>,
    restored: Restored,
    /// The time of a batch in which a row was not found; 0: none was. The next batch has another database.
    broken_us: AtomicU64,
    mix: Mix,
    /// No objects, no locks: the database alone, behind the same front.
    is_plain: bool,
}

thread_local! {
    /// The addition that this thread has done and not copied: its position, and how often objects had been restored.
    static ADDED: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

impl RowService {
    /// A service over rows that are 0.
    pub fn new(make: MakeRows, witnessed: Witnessed, mix: Mix, is_plain: bool) -> Self {
        let restored = Restored::default();
        let copy = |id: u32| DetMutex::new(id, genesis(id, || CopiedRow::new(&restored)));
        RowService {
            current: RwLock::new(FilledRows::new(make(), 0, witnessed)),
            copies: (0..ROWS).map(copy).collect(),
            make,
            restored,
            broken_us: AtomicU64::new(0),
            mix,
            is_plain,
        }
    }

    /// The database for a request of this batch: a new one if objects were restored since it was made. That happens
    /// between batches, when no request is under way.
    fn current(&self, batch_us: u64) -> Arc<FilledRows> {
        let broken_us = self.broken_us.load(Ordering::Acquire);
        if broken_us != 0 && broken_us != batch_us {
            let is_first = self.broken_us.compare_exchange(broken_us, 0, Ordering::AcqRel, Ordering::Relaxed);
            is_first.into_iter().for_each(|_| self.restored.note());
        }
        let restored = self.restored.times();
        let current = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        if current.restored == restored {
            return current;
        }
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.restored != restored {
            *current = FilledRows::new((self.make)(), restored, current.witnessed.of_next());
        }
        Arc::clone(&current)
    }

    /// Adds 1; returns whether the row was there.
    fn add(&self, cx: &Cx<'_, Self>, row: u32) -> Result<bool, Retry> {
        let current = self.current(cx.now_us());
        let this = (cx.position(), current.restored);
        // What this thread had added before objects were restored is gone with its database.
        let mut is_added = ADDED.take() == Some(this);
        if cx.attempt() == 0 && current.is_filled(row) {
            current.add(row);
            is_added = true;
            ADDED.set(Some(this));
        }
        // Here the first attempt ends.
        let mut copy = cx.lock(&self.copies[row as usize])?;
        ADDED.set(None);
        if !current.is_filled(row) {
            current.fill(row, copy.row.value());
        }
        if !is_added {
            current.add(row);
        }
        let value = current.value(cx.now_us(), row);
        match value {
            Some(value) => copy.row.set(value),
            None => self.broken_us.store(cx.now_us(), Ordering::Release),
        }
        Ok(value.is_some())
    }
}

impl Locks for RowService {
    fn add<'locks>(&'locks self, to: &mut Vec<&'locks dyn Lock>) {
        self.copies.add(to);
    }

    fn add_mut<'locks>(&'locks mut self, to: &mut Vec<&'locks mut dyn Lock>) {
        self.copies.add_mut(to);
    }
}

impl Service for RowService {
    type Request = RowRequest;

    fn decode(&self, ordered: &bytes::Bytes) -> Result<RowRequest, Malformed> {
        let request = from_bytes(ordered)?;
        match request {
            RowRequest::Add(row) | RowRequest::Get(row) if row < ROWS => Ok(request),
            _ => Err(Malformed("a row number is below 64")),
        }
    }

    fn encode(&self, request: &RowRequest) -> Vec<u8> {
        to_bytes(request)
    }

    fn shape_of_requests(shape: &mut Shape) {
        shape.add::<RowRequest>();
    }

    fn footprint(&self, request: &RowRequest, footprint: &mut Footprint) {
        match *request {
            // Its lock comes with the second attempt.
            RowRequest::Add(_) => {}
            RowRequest::Get(row) => footprint.write(row),
        }
    }

    fn keys(&self, request: &RowRequest, _footprint: &Footprint, keys: &mut Keys) {
        match (request, self.mix) {
            (RowRequest::Add(_), Mix::All) => keys.join(TABLE),
            // Which additions a read comes behind is nobody's bug: it runs beside none.
            (RowRequest::Get(_), Mix::All) => keys.read(TABLE),
            (RowRequest::Add(row) | RowRequest::Get(row), Mix::Rows) => keys.write(u64::from(*row)),
        }
    }

    fn execute(&self, cx: &Cx<'_, Self>, request: &RowRequest, reply: &mut Vec<u8>) -> Result<(), Retry> {
        match *request {
            RowRequest::Add(row) => {
                let is_there = if self.is_plain {
                    self.current(0).add(row);
                    true
                } else {
                    self.add(cx, row)?
                };
                reply.extend_from_slice(if is_there { b"OK\n" } else { ERROR });
            }
            RowRequest::Get(row) => {
                let value = if self.is_plain {
                    self.current(0).value(cx.now_us(), row)
                } else {
                    Some(cx.lock(&self.copies[row as usize])?.row.value())
                };
                match value {
                    Some(value) => reply.extend_from_slice(format!("{value}\n").as_bytes()),
                    None => reply.extend_from_slice(ERROR),
                }
            }
        }
        Ok(())
    }

    fn panicked(&self, _request: &RowRequest, reply: &mut Vec<u8>) {
        reply.extend_from_slice(ERROR);
    }

    fn kind(&self, request: &RowRequest) -> u16 {
        request.kind()
    }

    fn kind_name(kind: u16) -> Option<&'static str> {
        RowRequest::kind_name(kind)
    }

    fn name_of(_object: &Members<'_>) -> Option<String> {
        None
    }

    fn region_id_of(&self, name: &str) -> Option<RegionId> {
        name.strip_prefix("row:")?.parse().ok().filter(|row| *row < ROWS)
    }

    fn find(&self, cx: &Cx<'_, Self>, name: &str) -> Option<ObjectId> {
        let row = self.region_id_of(name)?;
        Some(cx.lock(&self.copies[row as usize]).ok()?.row.object_id())
    }
}
