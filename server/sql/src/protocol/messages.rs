//! Where messages of PostgreSQL's protocol begin and end, and the fields in them (PostgreSQL's documentation, *Message
//! Formats*). Total and bounded: a length is only believed up to [`MAX_MESSAGE_BYTES`].

use crate::error::SqlError;

/// Bytes of a message at most, with its length.
pub const MAX_MESSAGE_BYTES: usize = (1 << 20) - 64;

/// The message at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framed<'a> {
    /// A whole one.
    Message {
        /// Its first byte.
        kind: u8,
        /// What is behind its length.
        body: &'a [u8],
        /// Its bytes in all.
        used: usize,
    },
    /// It goes on behind the input: so many bytes are needed, or more.
    NeedMore(usize),
    /// It says that it has so many bytes.
    TooLong(usize),
}

/// Finds the first message.
pub fn framed(input: &[u8]) -> Framed<'_> {
    let [kind, a, b, c, d, ..] = *input else { return Framed::NeedMore(5) };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if !(4..=MAX_MESSAGE_BYTES).contains(&length) {
        return Framed::TooLong(length);
    }
    match input.get(5..1 + length) {
        Some(body) => Framed::Message { kind, body, used: 1 + length },
        None => Framed::NeedMore(1 + length),
    }
}

/// The fields of a message, one after the other.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Of this message.
    pub fn of(body: &'a [u8]) -> Self {
        Fields(body)
    }

    /// Text, which ends with a zero.
    pub fn text(&mut self) -> Result<&'a str, SqlError> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        std::str::from_utf8(text).map_err(|_| SqlError::plain("22021", "text must be in UTF-8"))
    }

    /// Text, and nothing behind it.
    pub fn only_text(&mut self) -> Result<&'a str, SqlError> {
        let text = self.text()?;
        self.end()?;
        Ok(text)
    }

    /// A byte.
    pub fn byte(&mut self) -> Result<u8, SqlError> {
        let (first, rest) = self.0.split_first().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    /// A number of two bytes.
    pub fn short(&mut self) -> Result<u16, SqlError> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*number))
    }

    /// A number of four bytes.
    pub fn long(&mut self) -> Result<u32, SqlError> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*number))
    }

    /// A value: its length and its bytes, none for NULL.
    pub fn value(&mut self) -> Result<Option<&'a [u8]>, SqlError> {
        let length = self.long()? as i32;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| malformed())?;
        let (value, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(Some(value))
    }

    /// Numbers of two bytes, of which the first number says how many there are.
    pub fn shorts(&mut self) -> Result<Vec<u16>, SqlError> {
        (0..self.short()?).map(|_| self.short()).collect()
    }

    /// Nothing may follow.
    pub fn end(&self) -> Result<(), SqlError> {
        if self.0.is_empty() { Ok(()) } else { Err(malformed()) }
    }
}

fn malformed() -> SqlError {
    SqlError::plain("08P01", "a message's fields do not fit its length")
}
