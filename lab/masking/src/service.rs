//! The service: 64 counters in a database, changed by several threads at once, and copied into objects.
//!
//! An addition has no key that conflicts with another addition's, so the mixer lets all of a batch run beside each
//! other, as in the first column of the paper's Fig. 9. It runs in two steps. First, without a lock, the database adds.
//! Then it asks for the counter's lock, which is not in its footprint: it runs again, with the lock, and copies the row
//! into the object. The last addition to a row that copies it sees all others, so the state after a batch is the same
//! whatever the order was. Only a bug makes replicas differ.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crosscheck::object::{Members, ObjectId, RegionId, Shape, Summed, from_bytes, genesis, to_bytes};
use crosscheck::schedule::{DetMutex, Footprint, Keys, Lock, Retry};
use crosscheck::{Cx, Malformed, Service};

use crate::engine::{ROWS, Rows};
use crate::region::{CopiedRow, Restored};
use crate::witnessed::Witnessed;

/// The key of the whole table, for the mixer; those of rows are their numbers.
const TABLE: u64 = u64::MAX;

/// Of a row that has to be filled, however often objects were restored.
const NEVER: u64 = u64::MAX;

/// What clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Summed)]
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

/// The counters.
pub struct RowService {
    rows: Box<dyn Rows>,
    copies: Vec<DetMutex<CopiedRow>>,
    restored: Restored,
    /// How often objects had been restored when each row was last given the value of its object.
    filled: Vec<AtomicU64>,
    witnessed: Witnessed,
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
    pub fn new(rows: Box<dyn Rows>, witnessed: Witnessed, mix: Mix, is_plain: bool) -> Self {
        let restored = Restored::default();
        let copy = |id: u32| DetMutex::new(id, genesis(id, || CopiedRow::new(&restored)));
        RowService {
            rows,
            copies: (0..ROWS).map(copy).collect(),
            filled: (0..ROWS).map(|_| AtomicU64::new(0)).collect(),
            restored,
            witnessed,
            mix,
            is_plain,
        }
    }

    fn add_in_database(&self, row: u32) {
        self.witnessed.adding(row, || self.rows.add(row));
    }

    /// # Panics
    /// If the database has lost the row. Then the request is undone, and the row is filled from its object again.
    fn read_database(&self, batch_us: u64, row: u32) -> u64 {
        let value = self.witnessed.reading(batch_us, row, || self.rows.value(row));
        value.unwrap_or_else(|| {
            self.filled[row as usize].store(NEVER, Ordering::Release);
            panic!("row {row} is not in the database");
        })
    }

    fn add(&self, cx: &Cx<'_, Self>, row: u32) -> Result<(), Retry> {
        let (id, restored) = (row as usize, self.restored.times());
        let is_filled = || self.filled[id].load(Ordering::Acquire) == restored;
        // What this thread had added before objects were restored is gone: the row is filled again.
        let mut is_added = ADDED.take() == Some((cx.position(), restored));
        if cx.attempt() == 0 && is_filled() {
            self.add_in_database(row);
            is_added = true;
            ADDED.set(Some((cx.position(), restored)));
        }
        // Here the first attempt ends.
        let mut copy = cx.lock(&self.copies[id])?;
        ADDED.set(None);
        if !is_filled() {
            let value = copy.row.value();
            self.rows.set(row, value);
            self.witnessed.set(row, value);
            self.filled[id].store(restored, Ordering::Release);
        }
        if !is_added {
            self.add_in_database(row);
        }
        let value = self.read_database(cx.now_us(), row);
        copy.row.set(value);
        Ok(())
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
                if self.is_plain {
                    self.add_in_database(row);
                } else {
                    self.add(cx, row)?;
                }
                reply.extend_from_slice(b"OK\n");
            }
            RowRequest::Get(row) => {
                let value = if self.is_plain {
                    self.read_database(cx.now_us(), row)
                } else {
                    cx.lock(&self.copies[row as usize])?.row.value()
                };
                reply.extend_from_slice(format!("{value}\n").as_bytes());
            }
        }
        Ok(())
    }

    fn locks(&self) -> Vec<&dyn Lock> {
        self.copies.iter().map(|copy| copy as &dyn Lock).collect()
    }

    fn locks_mut(&mut self) -> Vec<&mut dyn Lock> {
        self.copies.iter_mut().map(|copy| copy as &mut dyn Lock).collect()
    }

    fn panicked(&self, _request: &RowRequest, reply: &mut Vec<u8>) {
        reply.extend_from_slice(b"ERROR\n");
    }

    fn kind(&self, request: &RowRequest) -> u16 {
        match request {
            RowRequest::Add(_) => 1,
            RowRequest::Get(_) => 2,
        }
    }

    fn kind_name(kind: u16) -> Option<&'static str> {
        [None, Some("add"), Some("get")].get(usize::from(kind)).copied().flatten()
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
