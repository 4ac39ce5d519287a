//! Replies as PostgreSQL's clients read them: messages of its protocol, version 3, values as text (PostgreSQL's
//! documentation, *Message Formats*).

use rusqlite::types::ValueRef;

/// A type of columns, as clients know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// `bigint`
    Integer,
    /// `double precision`
    Real,
    /// `bytea`
    Bytes,
    /// `text`
    Text,
}

impl ColumnType {
    /// The type of a value; none of NULL.
    pub fn of(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Null => None,
            ValueRef::Integer(_) => Some(ColumnType::Integer),
            ValueRef::Real(_) => Some(ColumnType::Real),
            ValueRef::Blob(_) => Some(ColumnType::Bytes),
            ValueRef::Text(_) => Some(ColumnType::Text),
        }
    }

    /// What SQLite keeps in a column that is declared so (its documentation, *Datatypes*, 3.1).
    pub fn declared(name: &str) -> Self {
        let name = name.to_ascii_uppercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        match () {
            () if has(&["INT"]) => ColumnType::Integer,
            () if has(&["CHAR", "CLOB", "TEXT"]) => ColumnType::Text,
            () if has(&["BLOB"]) => ColumnType::Bytes,
            () if has(&["REAL", "FLOA", "DOUB"]) => ColumnType::Real,
            () => ColumnType::Text,
        }
    }

    /// Its number in PostgreSQL's `pg_type`, and how many bytes a value has there.
    fn numbers(self) -> (u32, i16) {
        match self {
            ColumnType::Integer => (20, 8),
            ColumnType::Real => (701, 8),
            ColumnType::Bytes => (17, -1),
            ColumnType::Text => (25, -1),
        }
    }
}

/// An error for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    /// SQLSTATE: five letters or digits.
    pub code: &'static str,
    /// What happened.
    pub message: String,
    /// What to do instead.
    pub hint: Option<String>,
}

impl SqlError {
    /// An error with what to do instead.
    pub fn new(code: &'static str, message: impl Into<String>, hint: &str) -> Self {
        SqlError { code, message: message.into(), hint: Some(hint.to_owned()) }
    }

    /// Of a query in a transaction that has failed.
    pub fn aborted() -> Self {
        let message = "current transaction is aborted, commands ignored until end of transaction block";
        SqlError { code: "25P02", message: message.to_owned(), hint: None }
    }
}

/// What a client is told with the end of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No transaction is open.
    Idle = b'I' as isize,
    /// One is open.
    Open = b'T' as isize,
    /// One is open, and has failed: only its end is expected.
    Failed = b'E' as isize,
}

/// Appends messages to a reply.
pub struct ReplyWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> ReplyWriter<'a> {
    /// Behind what is in `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        ReplyWriter { out }
    }

    /// How many bytes there are.
    pub fn length(&self) -> usize {
        self.out.len()
    }

    /// A message, whose length is put in when it is complete.
    fn message(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(kind);
        let at = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        body(self.out);
        let length = (self.out.len() - at) as u32;
        self.out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// The columns of the rows that follow. Returns where their types are, which are `text` before they are set.
    pub fn row_description(&mut self, names: &[&str]) -> Vec<usize> {
        let mut places = Vec::with_capacity(names.len());
        self.message(b'T', |out| {
            out.extend_from_slice(&(names.len() as u16).to_be_bytes());
            for name in names {
                out.extend_from_slice(name.as_bytes());
                out.push(0);
                // Of no table.
                out.extend_from_slice(&[0; 6]);
                places.push(out.len());
                let (number, bytes) = ColumnType::Text.numbers();
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&bytes.to_be_bytes());
                // Without a modifier, in text.
                out.extend_from_slice(&(-1_i32).to_be_bytes());
                out.extend_from_slice(&[0; 2]);
            }
        });
        places
    }

    /// Sets a column's type.
    pub fn set_type(&mut self, place: usize, of: ColumnType) {
        let (number, bytes) = of.numbers();
        self.out[place..place + 4].copy_from_slice(&number.to_be_bytes());
        self.out[place + 4..place + 6].copy_from_slice(&bytes.to_be_bytes());
    }

    /// A row.
    ///
    /// # Errors
    /// Of SQLite, if a value cannot be had.
    pub fn data_row<'r>(
        &mut self,
        columns: usize,
        mut value: impl FnMut(usize) -> Result<ValueRef<'r>, rusqlite::Error>,
    ) -> Result<(), rusqlite::Error> {
        let mut failed = None;
        self.message(b'D', |out| {
            out.extend_from_slice(&(columns as u16).to_be_bytes());
            for column in 0..columns {
                match value(column) {
                    Ok(value) => put_value(value, out),
                    Err(error) => failed = Some(error),
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }

    /// A statement is complete: `SELECT 3`, `INSERT 0 1`.
    pub fn complete(&mut self, tag: &str) {
        self.message(b'C', |out| put_text(tag, out));
    }

    /// A query without a statement.
    pub fn empty(&mut self) {
        self.message(b'I', |_| {});
    }

    /// A statement has failed.
    pub fn error(&mut self, error: &SqlError) {
        self.message(b'E', |out| {
            let severity = [(b'S', "ERROR"), (b'V', "ERROR"), (b'C', error.code), (b'M', &error.message)];
            for (field, text) in severity.into_iter().chain(error.hint.as_deref().map(|hint| (b'H', hint))) {
                out.push(field);
                put_text(text, out);
            }
            out.push(0);
        });
    }

    /// Only this version of the protocol is spoken, and no option.
    pub fn only_version(&mut self, version: u32) {
        self.message(b'v', |out| {
            out.extend_from_slice(&version.to_be_bytes());
            out.extend_from_slice(&[0; 4]);
        });
    }

    /// The client is let in, and learns these parameters of the server.
    pub fn welcome(&mut self, parameters: &[(&str, &str)]) {
        self.message(b'R', |out| out.extend_from_slice(&[0; 4]));
        for (name, value) in parameters {
            self.message(b'S', |out| {
                put_text(name, out);
                put_text(value, out);
            });
        }
        // Requests to cancel are ignored, so their key does not matter.
        self.message(b'K', |out| out.extend_from_slice(&[0; 8]));
    }

    /// The next query may come.
    pub fn ready(&mut self, status: TransactionStatus) {
        self.message(b'Z', |out| out.push(status as u8));
    }
}

/// Text that ends with a zero; one within it ends it.
fn put_text(text: &str, out: &mut Vec<u8>) {
    out.extend(text.bytes().take_while(|byte| *byte != 0));
    out.push(0);
}

fn put_value(value: ValueRef<'_>, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    match value {
        ValueRef::Null => {
            out[at..].copy_from_slice(&(-1_i32).to_be_bytes());
            return;
        }
        ValueRef::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        ValueRef::Real(number) => out.extend_from_slice(real(number).as_bytes()),
        // SQLite's text may be any bytes.
        ValueRef::Text(bytes) => out.extend_from_slice(String::from_utf8_lossy(bytes).as_bytes()),
        ValueRef::Blob(bytes) => {
            out.extend_from_slice(b"\\x");
            bytes.iter().for_each(|byte| out.extend_from_slice(format!("{byte:02x}").as_bytes()));
        }
    }
    let length = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// A number as PostgreSQL writes a `double precision`: the shortest text that gives the same number, with an exponent
/// from 1e15 on, and below 1e-4.
fn real(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let shortest = format!("{number:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        -4..15 => format!("{number}"),
        exponent if exponent < 0 => format!("{mantissa}e-{:02}", -exponent),
        exponent => format!("{mantissa}e+{exponent:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 answers to `SELECT x::float8`.
    #[test]
    fn numbers_are_written_as_postgresql_writes_them() {
        let cases = [
            (0.0, "0"),
            (1.5, "1.5"),
            (-2.0, "-2"),
            (0.1, "0.1"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (f64::NEG_INFINITY, "-Infinity"),
            (123_456.789, "123456.789"),
            (-1e-7, "-1e-07"),
            (f64::NAN, "NaN"),
            (-0.0, "-0"),
        ];
        for (number, text) in cases {
            assert_eq!(real(number), text);
        }
    }

    #[test]
    fn messages_have_the_bytes_of_the_protocol() {
        let mut out = Vec::new();
        let mut reply = ReplyWriter::new(&mut out);
        reply.complete("SELECT 3");
        reply.data_row(2, |column| Ok([ValueRef::Integer(7), ValueRef::Null][column])).unwrap();
        reply.error(&SqlError { code: "42601", message: "no\0end".into(), hint: None });
        reply.ready(TransactionStatus::Idle);
        let expected: [&[u8]; 4] = [
            b"C\0\0\0\x0dSELECT 3\0",
            b"D\0\0\0\x0f\0\x02\0\0\0\x017\xff\xff\xff\xff",
            b"E\0\0\0\x1eSERROR\0VERROR\0C42601\0Mno\0\0",
            b"Z\0\0\0\x05I",
        ];
        assert_eq!(out.escape_ascii().to_string(), expected.concat().escape_ascii().to_string());
    }
}
