//! The whole file, copied out of the group or into it while it serves: what the requests of
//! [`crate::file_request`] do.
//!
//! *Out.* Each page has the number of the write that was its last one. A client takes the pages in rounds: in the first
//! one all of them, in each further one those that were written since the round before began. A round of one reply
//! leaves it with the file as it was at that reply's position.
//!
//! *In.* The pages of a load are the database's from the beginning, so that nothing is copied at its end; until then
//! all queries are refused. Each request does a bounded part, but for the last one: it checks all of the file.

use crate::btree::{TreePage, u16_at, u32_at};
use crate::database::{Database, MAX_PAGES, PAGE_BYTES};
use crate::engine;
use crate::error::SqlError;
use crate::file_request::{ChangedHead, FileRequest, PAGES_OUT};
use crate::guest::{Guest, Pages};
use crate::open_transactions::Drawn;
use crate::query;
use crate::reply::{ReplyWriter, TransactionStatus};

/// Pages that one request removes at most: all of them are kept until it ends.
const REMOVED: u32 = 4096;

/// The error of queries while a load is not finished.
pub fn refused(database: &Database) -> Option<SqlError> {
    let hint = "Wait until `crosscheck-sql load` has ended; if it was stopped, run it again.";
    let is_loading = database.load() != 0;
    is_loading.then(|| SqlError::new("57P03", "a file is being loaded into the database", hint))
}

fn answer(result: Result<String, SqlError>, reply: &mut Vec<u8>) {
    let mut reply = ReplyWriter::new(reply);
    match result {
        Ok(tag) => reply.complete(&tag),
        Err(error) => reply.error(&error),
    }
    reply.ready(TransactionStatus::Idle);
}

/// Appends the pages that were written after the first `since` writes, from page `from` on.
pub fn changed(database: &Database, since: u64, from: u32, reply: &mut Vec<u8>) {
    if let Some(error) = refused(database) {
        return answer(Err(error), reply);
    }
    let mut numbers = (from..database.count()).filter(|number| database.has_changed(*number, since));
    let chosen: Vec<u32> = numbers.by_ref().take(PAGES_OUT).collect();
    let head = ChangedHead { changes: database.changes(), count: database.count(), next: numbers.next() };
    // A copy in binary form, of one column.
    message(b'H', &[&[1, 0, 1, 0, 1]], reply);
    message(b'd', &[&head.bytes()], reply);
    for number in &chosen {
        let bytes = database.page(*number).unwrap_or_default();
        message(b'd', &[&number.to_be_bytes(), bytes], reply);
    }
    message(b'c', &[], reply);
    answer(Ok(format!("COPY {}", chosen.len())), reply);
}

/// A message of PostgreSQL's protocol.
fn message(kind: u8, parts: &[&[u8]], reply: &mut Vec<u8>) {
    let length = 4 + parts.iter().map(|part| part.len()).sum::<usize>();
    reply.push(kind);
    reply.extend_from_slice(&(length as u32).to_be_bytes());
    parts.iter().for_each(|part| reply.extend_from_slice(part));
}

/// Executes a request of a load.
pub fn load(database: &mut Database, request: &FileRequest, drawn: Drawn, reply: &mut Vec<u8>) {
    let result = match request {
        FileRequest::Begin { load } => begin(database, *load),
        FileRequest::Pages { load, from, bytes } => pages(database, *load, *from, bytes),
        FileRequest::End { load, count } => end(database, *load, *count, drawn),
        FileRequest::Changed { .. } => Ok("COPY 0".to_owned()),
    };
    answer(result, reply);
}

/// Whether nothing is defined in the database.
fn is_empty(database: &Database) -> bool {
    let schema = database.page(0).and_then(|page| TreePage::parse(page, 1, PAGE_BYTES));
    database.count() == 0 || schema.is_some_and(|schema| schema.kind().is_leaf() && schema.count() == 0)
}

/// The reply says how many pages are left to remove.
fn begin(database: &mut Database, load: u64) -> Result<String, SqlError> {
    if database.load() == 0 && !is_empty(database) {
        let hint = "Drop everything that is in it, or load the file into another group.";
        return Err(SqlError::new("55006", "a file can be loaded into an empty database only", hint));
    }
    // What connections know of the schema of an empty file.
    database.set_schema(0);
    database.truncate(database.count().saturating_sub(REMOVED));
    let left = database.count();
    // A file without some of its pages is no database: as long as any are left, queries are refused.
    database.set_load(if left > 0 { load.max(1) } else { load });
    Ok(format!("LOAD {left}"))
}

fn pages(database: &mut Database, load: u64, from: u32, bytes: &[u8]) -> Result<String, SqlError> {
    is_of(database, load, from)?;
    if from == 0 {
        check_header(bytes)?;
    }
    let count = (bytes.len() / PAGE_BYTES) as u64;
    if u64::from(from) + count > u64::from(MAX_PAGES) {
        let message = format!("the file has more than {MAX_PAGES} pages");
        return Err(SqlError::new("53100", message, "Remove what is not needed, and run VACUUM."));
    }
    (from..).zip(bytes.chunks_exact(PAGE_BYTES)).for_each(|(number, page)| database.write(number, page));
    Ok(format!("LOAD {}", database.count()))
}

/// Whether a request belongs to the load, and comes next.
fn is_of(database: &Database, load: u64, count: u32) -> Result<(), SqlError> {
    if load == 0 || database.load() != load || database.count() != count {
        let message = "this load was ended by another one, or a part of it is missing";
        return Err(SqlError::new("55000", message, "Load one file at a time, from its beginning."));
    }
    Ok(())
}

/// Whether a file with this first page can be the database.
fn check_header(page: &[u8]) -> Result<(), SqlError> {
    let refuse = |message: &str, hint: &str| Err(SqlError::new("22023", message, hint));
    if !page.starts_with(b"SQLite format 3\0") {
        return refuse("this is no file of SQLite's", "Give the database itself, not a text of statements.");
    }
    if u16_at(page, 16) != Some(PAGE_BYTES) || page.get(20) != Some(&0) {
        let hint = "Change it with sqlite3: PRAGMA page_size = 4096; VACUUM;";
        return refuse("the pages of the file do not have 4,096 bytes", hint);
    }
    if page.get(18..20) != Some(&[1, 1]) {
        let hint = "Change it with sqlite3: PRAGMA journal_mode = DELETE;";
        return refuse("the file has a log beside it, or is of a later version", hint);
    }
    if u32_at(page, 56) != Some(1) {
        let hint = "Make a new file with sqlite3, from the text that its command .dump writes.";
        return refuse("the texts in the file are not in UTF-8", hint);
    }
    Ok(())
}

fn end(database: &mut Database, load: u64, count: u32, drawn: Drawn) -> Result<String, SqlError> {
    is_of(database, load, count)?;
    let found = engine::check(&mut Guest::new(Pages::Exclusive(database), drawn));
    let found = found.unwrap_or_else(|error| match query::abandoned(&error) {
        // The other replicas outvote it.
        Some(why) => panic!("no reply of this replica: {why:?}"),
        None => Err(error.to_string()),
    });
    match found {
        Ok(schema) => {
            database.set_schema(schema);
            database.set_load(0);
            Ok(format!("LOAD {count}"))
        }
        Err(found) => {
            let hint = "Check the file with sqlite3: PRAGMA integrity_check;";
            Err(SqlError::new("XX001", format!("the file is not a whole database: {found}"), hint))
        }
    }
}
