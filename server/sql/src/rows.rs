//! Runs a statement of SQLite's, and appends its rows and its tag to a reply.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, Statement};

use crate::error::SqlError;
use crate::query::QueryFailure;
use crate::reply::ReplyWriter;
use crate::types::PgType;
use crate::words::leading_words;

/// Bytes of a reply at most.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// How a client wants rows.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Which columns are binary: none said is none, one said is all.
    pub are_binary: &'a [bool],
    /// A description of the columns goes before them.
    pub is_described: bool,
    /// Rows that the client has already.
    pub skip: u64,
    /// Rows that it wants at most; 0 for all.
    pub limit: u32,
}

impl Asked<'_> {
    /// As text, all of them, and described.
    pub const SIMPLE: Asked<'static> = Asked { are_binary: &[], is_described: true, skip: 0, limit: 0 };
}

/// Rows of a cursor that were not fetched yet.
pub struct Cursor {
    /// Names and types.
    pub columns: Vec<(String, PgType)>,
    /// In order, the next one first.
    pub rows: std::collections::VecDeque<Vec<Value>>,
}

/// How many rows a statement has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsEnd {
    /// All that there are: so many.
    All(u64),
    /// As many as were asked for, and there are more.
    Suspended,
}

/// Passes the rows of a statement whose parameters are bound to `write`.
///
/// # Errors
/// Of SQLite or of `write`.
pub fn each(
    statement: &mut Statement<'_>,
    asked: Asked<'_>,
    mut write: impl FnMut(&Row<'_>) -> Result<(), QueryFailure>,
) -> Result<RowsEnd, QueryFailure> {
    let (mut count, mut passed) = (0_u64, 0_u64);
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        if passed < asked.skip {
            passed += 1;
            continue;
        }
        if asked.limit != 0 && count == u64::from(asked.limit) {
            return Ok(RowsEnd::Suspended);
        }
        count += 1;
        write(row)?;
    }
    Ok(RowsEnd::All(count))
}

/// Appends the rows of a statement, whose columns have these types.
///
/// # Errors
/// Of SQLite, of a value that its type cannot have, or if the reply is too long.
pub fn typed(
    statement: &mut Statement<'_>,
    columns: &[PgType],
    asked: Asked<'_>,
    reply: &mut ReplyWriter<'_>,
) -> Result<RowsEnd, QueryFailure> {
    let count = statement.column_count();
    if count != columns.len() {
        return Err(SqlError::plain("XX000", "the columns are other ones than were described").into());
    }
    each(statement, asked, |row| {
        room_for(row, count, reply)?;
        reply.data_row(columns, asked.are_binary, |column| row.get_ref(column))
    })
}

/// Runs a statement in SQLite's dialect. Columns have the types of their values, if they are not described before, and
/// `text` where those are mixed.
///
/// # Errors
/// Of SQLite, or if the reply is too long.
pub fn of_sqlite(
    connection: &Connection,
    statement: &mut Statement<'_>,
    asked: Asked<'_>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), QueryFailure> {
    let sql = statement.expanded_sql().unwrap_or_default();
    let count = statement.column_count();
    let declared = declared(statement);
    let end = if asked.is_described {
        let mut places = Vec::new();
        if count > 0 {
            places = reply.row_description(statement.column_names().map(|name| (name, PgType::Text)), &[]);
        }
        let mut types = vec![None; count];
        let end = each(statement, asked, |row| {
            room_for(row, count, reply)?;
            reply.untyped_row(&mut types, |column| row.get_ref(column))
        })?;
        for ((place, found), declared) in places.into_iter().zip(types).zip(declared) {
            reply.set_type(place, found.unwrap_or(declared));
        }
        end
    } else {
        typed(statement, &declared, asked, reply)?
    };
    match end {
        RowsEnd::Suspended => reply.suspended(),
        RowsEnd::All(count) => reply.complete(&tag(&sql, count, connection.changes())),
    }
    Ok(())
}

/// Types of columns by their declarations.
pub fn declared(statement: &Statement<'_>) -> Vec<PgType> {
    let of = |column: rusqlite::Column<'_>| column.decl_type().map_or(PgType::Text, PgType::declared);
    statement.columns().map(of).collect()
}

/// Whether anything more fits into the reply.
///
/// # Errors
/// If nothing does.
pub fn room(reply: &ReplyWriter<'_>) -> Result<(), QueryFailure> {
    room_of(0, reply)
}

/// Whether a row fits into the reply.
///
/// # Errors
/// If it does not.
pub fn room_for(row: &Row<'_>, columns: usize, reply: &ReplyWriter<'_>) -> Result<(), QueryFailure> {
    let length = |column| row.get_ref(column).map_or(0, |value| 2 * value.as_bytes().map_or(16, <[u8]>::len));
    room_of((0..columns).map(length).sum(), reply)
}

fn room_of(bytes: usize, reply: &ReplyWriter<'_>) -> Result<(), QueryFailure> {
    if reply.length() + bytes > MAX_REPLY_BYTES {
        let message = format!("the reply has more than {} MiB", MAX_REPLY_BYTES >> 20);
        return Err(SqlError::new("54000", message, "Ask for fewer rows at a time, with LIMIT.").into());
    }
    Ok(())
}

/// What a statement in SQLite's dialect has done.
fn tag(sql: &str, count: u64, changed: u64) -> String {
    let (words, _) = leading_words(sql);
    let word = |number: usize| words.get(number).map_or("", String::as_str);
    let (first, second) = (word(0), word(1));
    match first {
        "INSERT" | "REPLACE" => format!("INSERT 0 {changed}"),
        "UPDATE" | "DELETE" => format!("{first} {changed}"),
        "SELECT" | "VALUES" | "WITH" | "EXPLAIN" => format!("SELECT {count}"),
        "CREATE" if second == "UNIQUE" => format!("CREATE {}", word(2)),
        "CREATE" | "DROP" | "ALTER" => format!("{first} {second}"),
        "END" => "COMMIT".to_owned(),
        _ => first.to_owned(),
    }
}
