//! COPY: rows as lines of text or of CSV, to the client and from it (PostgreSQL's documentation, *COPY*, File Formats).

use rusqlite::types::{Value, ValueRef};

use crate::dialect::{CopyFormat, Translated};
use crate::error::SqlError;
use crate::perform::Performer;
use crate::plan;
use crate::query::QueryFailure;
use crate::reply::ReplyWriter;
use crate::rows::{self, Asked};
use crate::types::PgType;
use crate::values::{self, Format};

/// Bytes of a line at most.
const MAX_LINE_BYTES: usize = 1 << 20;

/// How far a COPY from the client has come.
#[derive(Clone, Debug, Default)]
pub struct CopyProgress {
    /// The beginning of a line whose end is still to come.
    rest: Vec<u8>,
    /// Lines so far.
    lines: u64,
    /// Rows so far.
    rows: u64,
    /// `\.` says that nothing follows.
    is_over: bool,
}

impl Performer<'_> {
    /// The client may send its lines.
    pub(crate) fn copy_begins(
        &mut self,
        step: &Translated,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), QueryFailure> {
        self.context.copy = CopyProgress::default();
        // That it can be prepared is known before anything is sent.
        let statement = self.connected.prepare(&step.sql)?;
        self.begin_implicit(true, !statement.readonly())?;
        reply.copy_begins(false, step.parameters.len());
        Ok(())
    }

    /// Lines of the client's, the last of which may go on in what follows.
    pub(crate) fn copy_data(
        &mut self,
        (step, format): (&Translated, &CopyFormat),
        data: &[u8],
        is_last: bool,
    ) -> Result<(), QueryFailure> {
        let mut bytes = std::mem::take(&mut self.context.copy.rest);
        bytes.extend_from_slice(data);
        let mut statement = self.connected.prepare(&step.sql)?;
        self.begin_implicit(true, !statement.readonly())?;
        let mut rest = &bytes[..];
        while !rest.is_empty() && !self.context.copy.is_over {
            let Some((line, behind)) =
                first_line(rest, format).or_else(|| is_last.then_some((rest, &[][..])))
            else {
                break;
            };
            rest = behind;
            let copy = &mut self.context.copy;
            copy.lines += 1;
            if line == b"\\." {
                copy.is_over = true;
            } else if !(copy.lines == 1 && format.has_header) {
                copy.rows += 1;
                let number = copy.lines;
                let values = fields(line, format).and_then(|fields| inputs(&fields, &step.parameters));
                let values = values.map_err(|error| SqlError {
                    message: format!("{} (line {number} of COPY)", error.message),
                    ..error
                })?;
                plan::bind(&mut statement, &values)?;
                rows::each(&mut statement, Asked::SIMPLE, |_| Ok(()))?;
            }
        }
        if rest.len() > MAX_LINE_BYTES {
            let message = format!("a line of COPY has more than {} MiB", MAX_LINE_BYTES >> 20);
            return Err(SqlError::plain("54000", message).into());
        }
        self.context.copy.rest = rest.to_vec();
        Ok(())
    }

    /// All lines are there.
    pub(crate) fn copy_ends(
        &mut self,
        what: (&Translated, &CopyFormat),
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), QueryFailure> {
        self.copy_data(what, &[], true)?;
        reply.complete(&format!("COPY {}", self.context.copy.rows));
        Ok(())
    }

    /// Sends the rows of a query.
    pub(crate) fn copy_out(
        &mut self,
        step: &Translated,
        format: &CopyFormat,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<String, QueryFailure> {
        let columns = step.columns.as_deref().unwrap_or_default();
        let mut statement = self.connected.prepare(&step.sql)?;
        reply.copy_begins(true, columns.len());
        if format.has_header {
            let names: Vec<_> = columns.iter().map(|(name, _)| Some(name.clone().into_bytes())).collect();
            reply.copy_line(&line_of(&names, format));
        }
        let mut count = 0_u64;
        rows::each(&mut statement, Asked::SIMPLE, |row| {
            count += 1;
            rows::room_for(row, columns.len(), reply)?;
            let field = |(column, (_, of)): (usize, &(String, PgType))| match row.get_ref(column)? {
                ValueRef::Null => Ok(None),
                value => {
                    let mut text = Vec::new();
                    values::to_result(value, *of, Format::Text, &mut text)?;
                    Ok::<_, QueryFailure>(Some(text))
                }
            };
            let fields: Vec<_> = columns.iter().enumerate().map(field).collect::<Result<_, _>>()?;
            reply.copy_line(&line_of(&fields, format));
            Ok(())
        })?;
        reply.copy_ends();
        Ok(format!("COPY {count}"))
    }
}

/// The first line without its end, and what is behind it; none if its end is not there. In CSV, a line goes on where it
/// ends within quotes.
fn first_line<'b>(bytes: &'b [u8], format: &CopyFormat) -> Option<(&'b [u8], &'b [u8])> {
    let mut is_quoted = false;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match *byte {
            b'\n' if !is_quoted => {
                let line = &bytes[..at];
                return Some((line.strip_suffix(b"\r").unwrap_or(line), &bytes[at + 1..]));
            }
            // What is behind a backslash is no end.
            b'\\' if !format.is_csv => at += 1,
            byte if format.is_csv && byte == escape(format) && is_quoted && byte != quote(format) => at += 1,
            byte if format.is_csv && byte == quote(format) => is_quoted = !is_quoted,
            _ => {}
        }
        at += 1;
    }
    None
}

fn quote(format: &CopyFormat) -> u8 {
    format.quote as u8
}

fn escape(format: &CopyFormat) -> u8 {
    format.escape as u8
}

/// The fields of a line; none of them is NULL.
fn fields(line: &[u8], format: &CopyFormat) -> Result<Vec<Option<String>>, SqlError> {
    let parts = if format.is_csv { csv_fields(line, format)? } else { text_fields(line, format) };
    let text = |part: Option<Vec<u8>>| {
        let text = part.map(String::from_utf8).transpose();
        text.map_err(|_| SqlError::plain("22021", "text must be in UTF-8"))
    };
    parts.into_iter().map(text).collect()
}

fn text_fields(line: &[u8], format: &CopyFormat) -> Vec<Option<Vec<u8>>> {
    let (mut parts, mut raw) = (Vec::new(), Vec::new());
    let mut bytes = line.iter();
    let mut add = |raw: &mut Vec<u8>| {
        let raw = std::mem::take(raw);
        parts.push((raw != format.null.as_bytes()).then(|| unescaped(&raw)));
    };
    while let Some(byte) = bytes.next() {
        if *byte == format.delimiter as u8 {
            add(&mut raw);
            continue;
        }
        raw.push(*byte);
        if *byte == b'\\' {
            raw.extend(bytes.next());
        }
    }
    add(&mut raw);
    parts
}

/// What the backslashes in a field mean.
fn unescaped(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let Some((letter, behind)) = rest.split_first() else { break };
        rest = behind;
        let digits = |radix: u32, most: usize, from: &[u8]| {
            from.iter().take(most).take_while(|digit| char::from(**digit).is_digit(radix)).count()
        };
        let number = |digits: &[u8], radix| {
            std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| u32::from_str_radix(digits, radix).ok())
                .unwrap_or(0)
        };
        match *letter {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'x' if digits(16, 2, rest) > 0 => {
                let (code, behind) = rest.split_at(digits(16, 2, rest));
                out.push(number(code, 16) as u8);
                rest = behind;
            }
            b'0'..=b'7' => {
                let behind = digits(8, 2, rest);
                let code = [&[*letter], &rest[..behind]].concat();
                out.push(number(&code, 8) as u8);
                rest = &rest[behind..];
            }
            other => out.push(other),
        }
    }
    out
}

fn csv_fields(line: &[u8], format: &CopyFormat) -> Result<Vec<Option<Vec<u8>>>, SqlError> {
    let (mut parts, mut field, mut was_quoted, mut is_quoted) = (Vec::new(), Vec::new(), false, false);
    let mut add = |field: &mut Vec<u8>, was_quoted: &mut bool| {
        let field = std::mem::take(field);
        let is_null = !std::mem::take(was_quoted) && field == format.null.as_bytes();
        parts.push((!is_null).then_some(field));
    };
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let next_is_special =
            bytes.peek().is_some_and(|next| *next == quote(format) || *next == escape(format));
        if is_quoted && byte == escape(format) && next_is_special {
            field.extend(bytes.next());
        } else if byte == quote(format) {
            (is_quoted, was_quoted) = (!is_quoted, true);
        } else if byte == format.delimiter as u8 && !is_quoted {
            add(&mut field, &mut was_quoted);
        } else {
            field.push(byte);
        }
    }
    if is_quoted {
        return Err(SqlError::plain("22P04", "a quoted field of CSV has no end"));
    }
    add(&mut field, &mut was_quoted);
    Ok(parts)
}

/// The values of a line's fields.
fn inputs(fields: &[Option<String>], types: &[PgType]) -> Result<Vec<Value>, SqlError> {
    if fields.len() != types.len() {
        let (are, wants) = (fields.len(), types.len());
        return Err(SqlError::plain("22P04", format!("there are {are} fields for {wants} columns")));
    }
    let one = |(field, of): (&Option<String>, &PgType)| match field {
        None => Ok(Value::Null),
        Some(text) => values::input(text, *of),
    };
    fields.iter().zip(types).map(one).collect()
}

/// A line with these fields, and its end.
fn line_of(fields: &[Option<Vec<u8>>], format: &CopyFormat) -> Vec<u8> {
    let mut line = Vec::new();
    for (number, field) in fields.iter().enumerate() {
        if number > 0 {
            line.push(format.delimiter as u8);
        }
        match field {
            None => line.extend_from_slice(format.null.as_bytes()),
            Some(field) if format.is_csv => put_csv(field, format, fields.len() == 1, &mut line),
            Some(field) => put_escaped(field, format, &mut line),
        }
    }
    line.push(b'\n');
    line
}

fn put_csv(field: &[u8], format: &CopyFormat, is_alone: bool, line: &mut Vec<u8>) {
    let special = [format.delimiter as u8, quote(format), b'\n', b'\r'];
    let needs_quotes = field.iter().any(|byte| special.contains(byte))
        || field == format.null.as_bytes()
        || (is_alone && field == b"\\.");
    if !needs_quotes {
        return line.extend_from_slice(field);
    }
    line.push(quote(format));
    for byte in field {
        if *byte == quote(format) || *byte == escape(format) {
            line.push(escape(format));
        }
        line.push(*byte);
    }
    line.push(quote(format));
}

fn put_escaped(field: &[u8], format: &CopyFormat, line: &mut Vec<u8>) {
    for byte in field {
        match *byte {
            8 => line.extend_from_slice(b"\\b"),
            11 => line.extend_from_slice(b"\\v"),
            12 => line.extend_from_slice(b"\\f"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            b'\\' => line.extend_from_slice(b"\\\\"),
            byte if byte == format.delimiter as u8 => line.extend_from_slice(&[b'\\', byte]),
            byte => line.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn format(is_csv: bool) -> CopyFormat {
        let (delimiter, null) = if is_csv { (',', "") } else { ('\t', "\\N") };
        CopyFormat { is_csv, has_header: false, delimiter, null: null.to_owned(), quote: '"', escape: '"' }
    }

    proptest! {
        /// What is written is read again as it was, whatever is in the fields.
        #[test]
        fn a_line_is_read_as_it_was_written(
            is_csv in any::<bool>(),
            fields in prop::collection::vec(prop::option::of("[a-zA-Z0-9 ,\"\\\\\\n\\r\\t.é]{0,12}"), 1..5),
        ) {
            let format = format(is_csv);
            let bytes: Vec<_> = fields.iter().map(|field| field.clone().map(String::into_bytes)).collect();
            let line = [&line_of(&bytes, &format)[..], b"next\n"].concat();
            let (first, behind) = first_line(&line, &format).unwrap();
            prop_assert_eq!(behind, b"next\n");
            prop_assert_eq!(super::fields(first, &format).unwrap(), fields);
        }

        /// Any line is split, and no byte of it is looked at twice.
        #[test]
        fn any_line_does_no_harm(is_csv in any::<bool>(), line in prop::collection::vec(any::<u8>(), 0..60)) {
            let format = format(is_csv);
            let _ = super::fields(&line, &format);
            let _ = first_line(&line, &format);
        }
    }

    #[test]
    fn backslashes_mean_what_postgresql_says() {
        assert_eq!(unescaped(b"a\\tb\\\\\\x41\\101\\q\\"), b"a\tb\\AAq");
        assert_eq!(
            text_fields(b"\\N\t\\\\N\t", &format(false)),
            [None, Some(b"\\N".to_vec()), Some(Vec::new())]
        );
    }
}
