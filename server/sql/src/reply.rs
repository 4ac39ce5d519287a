//! Replies as PostgreSQL's clients read them: messages of its protocol, version 3 (PostgreSQL's documentation, *Message
//! Formats*).

use rusqlite::types::ValueRef;

use crate::error::SqlError;
use crate::query::QueryFailure;
use crate::types::PgType;
use crate::values::{self, Format};

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

    /// The columns of the rows that follow. Returns where their types are, so that they can be set later.
    pub fn row_description<'n>(
        &mut self,
        columns: impl ExactSizeIterator<Item = (&'n str, PgType)>,
        are_binary: &[bool],
    ) -> Vec<usize> {
        let mut places = Vec::with_capacity(columns.len());
        self.message(b'T', |out| {
            out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
            for (column, (name, of)) in columns.enumerate() {
                put_text(name, out);
                // Of no table.
                out.extend_from_slice(&[0; 6]);
                places.push(out.len());
                out.extend_from_slice(&of.number().to_be_bytes());
                out.extend_from_slice(&of.length().to_be_bytes());
                out.extend_from_slice(&of.modifier().to_be_bytes());
                out.extend_from_slice(&u16::from(format(are_binary, column) == Format::Binary).to_be_bytes());
            }
        });
        places
    }

    /// Sets a column's type.
    pub fn set_type(&mut self, place: usize, of: PgType) {
        self.out[place..place + 4].copy_from_slice(&of.number().to_be_bytes());
        self.out[place + 4..place + 6].copy_from_slice(&of.length().to_be_bytes());
    }

    /// The columns of a statement that is not executed yet, or that it has none.
    pub fn describe(&mut self, columns: Option<&[(String, PgType)]>, are_binary: &[bool]) {
        match columns {
            Some(columns) => {
                let columns = columns.iter().map(|(name, of)| (name.as_str(), *of));
                self.row_description(columns, are_binary);
            }
            None => self.message(b'n', |_| {}),
        }
    }

    /// The types of a statement's parameters.
    pub fn parameters(&mut self, types: &[PgType]) {
        self.message(b't', |out| {
            out.extend_from_slice(&(types.len() as u16).to_be_bytes());
            types.iter().for_each(|of| out.extend_from_slice(&of.number().to_be_bytes()));
        });
    }

    /// A row of columns of these types.
    ///
    /// # Errors
    /// If a value cannot be had, or is none of its type.
    pub fn data_row<'r>(
        &mut self,
        columns: &[PgType],
        are_binary: &[bool],
        mut value: impl FnMut(usize) -> Result<ValueRef<'r>, rusqlite::Error>,
    ) -> Result<(), QueryFailure> {
        let mut result = Ok(());
        self.message(b'D', |out| {
            out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
            for (column, of) in columns.iter().enumerate() {
                let put = value(column)
                    .map_err(QueryFailure::from)
                    .and_then(|value| Ok(put_value(value, *of, format(are_binary, column), out)?));
                if put.is_err() {
                    result = put;
                    return;
                }
            }
        });
        result
    }

    /// A row as text. `types` is told the types of the values: `text` where those of a column differ.
    ///
    /// # Errors
    /// If a value cannot be had.
    pub fn untyped_row<'r>(
        &mut self,
        types: &mut [Option<PgType>],
        mut value: impl FnMut(usize) -> Result<ValueRef<'r>, rusqlite::Error>,
    ) -> Result<(), QueryFailure> {
        let mut found = Vec::with_capacity(types.len());
        for (column, known) in types.iter_mut().enumerate() {
            let own = type_of(value(column)?);
            if let Some(own) = own {
                let known = known.get_or_insert(own);
                if *known != own {
                    *known = PgType::Text;
                }
            }
            found.push(own.unwrap_or(PgType::Text));
        }
        self.data_row(&found, &[], value)
    }

    /// As many rows as the client asked for: there may be more.
    pub fn suspended(&mut self) {
        self.message(b's', |_| {});
    }

    /// A statement is prepared.
    pub fn parsed(&mut self) {
        self.message(b'1', |_| {});
    }

    /// A portal is open.
    pub fn bound(&mut self) {
        self.message(b'2', |_| {});
    }

    /// A statement or portal is forgotten.
    pub fn closed(&mut self) {
        self.message(b'3', |_| {});
    }

    /// Rows in the format of COPY follow, to the client or from it, with so many fields.
    pub fn copy_begins(&mut self, is_to_client: bool, fields: usize) {
        self.message(if is_to_client { b'H' } else { b'G' }, |out| {
            out.push(0);
            out.extend_from_slice(&(fields as u16).to_be_bytes());
            (0..fields).for_each(|_| out.extend_from_slice(&[0; 2]));
        });
    }

    /// A line of COPY.
    pub fn copy_line(&mut self, line: &[u8]) {
        self.message(b'd', |out| out.extend_from_slice(line));
    }

    /// All lines of COPY were sent.
    pub fn copy_ends(&mut self) {
        self.message(b'c', |_| {});
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
            let position = error.position.map(|position| position.to_string());
            let always = [(b'S', "ERROR"), (b'V', "ERROR"), (b'C', &error.code), (b'M', &error.message)];
            let hint = error.hint.as_deref().map(|hint| (b'H', hint));
            let position = position.as_deref().map(|position| (b'P', position));
            let about = error.about.iter().map(|field| (field.letter, field.name.as_str()));
            for (field, text) in always.into_iter().chain(hint).chain(position).chain(about) {
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

fn put_value(value: ValueRef<'_>, of: PgType, format: Format, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let length = match value {
        ValueRef::Null => -1,
        value => {
            values::to_result(value, of, format, out)?;
            (out.len() - at - 4) as i32
        }
    };
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// The form of a column: none said is text, one said is that of all.
fn format(are_binary: &[bool], column: usize) -> Format {
    let said = if are_binary.len() == 1 { are_binary.first() } else { are_binary.get(column) };
    if said == Some(&true) { Format::Binary } else { Format::Text }
}

/// The type of a value of SQLite's; none of NULL.
fn type_of(value: ValueRef<'_>) -> Option<PgType> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(_) => Some(PgType::Int8),
        ValueRef::Real(_) => Some(PgType::Double),
        ValueRef::Blob(_) => Some(PgType::Bytea),
        ValueRef::Text(_) => Some(PgType::Text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_bytes_of_the_protocol() {
        let mut out = Vec::new();
        let mut reply = ReplyWriter::new(&mut out);
        reply.complete("SELECT 3");
        let row = [ValueRef::Integer(7), ValueRef::Null];
        assert!(reply.data_row(&[PgType::Int4, PgType::Text], &[], |column| Ok(row[column])).is_ok());
        reply.error(&SqlError::plain("42601", "no\0end"));
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
