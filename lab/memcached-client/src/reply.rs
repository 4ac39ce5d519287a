//! Takes replies of memcached's text protocol off received bytes, which may be incomplete.

/// What the beginning of the received bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenReply<'b> {
    /// An incomplete reply.
    Incomplete,
    /// A reply of this many bytes.
    Whole(usize, TextReply<'b>),
    /// No reply begins like this.
    Malformed(&'static str),
}

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextReply<'b> {
    /// The only line, which is one of the protocol's words, such as `STORED`.
    Word(&'b [u8]),
    /// The only line, which is a number: the digits.
    Number(&'b [u8]),
    /// The only line, with which the server reports an error.
    Error(&'b [u8]),
    /// Values up to the line `END`; none if nothing was found.
    Values(Values<'b>),
}

impl TextReply<'_> {
    /// Whether it is this word.
    pub fn is(&self, word: &str) -> bool {
        *self == TextReply::Word(word.as_bytes())
    }
}

/// The values of a reply that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values<'b>(&'b [u8]);

/// A value of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRead<'b> {
    /// Its key.
    pub key: &'b [u8],
    /// Its flags, in digits.
    pub flags: &'b [u8],
    /// Its number for `cas`, in digits, where the reply has one.
    pub unique: Option<&'b [u8]>,
    /// Its bytes.
    pub data: &'b [u8],
}

/// The longest line and the longest value that are accepted: longer ones are wrong bytes that look like a length.
#[derive(Clone, Copy, Debug)]
pub struct Longest {
    /// A line, with its end, in bytes.
    pub line: usize,
    /// A value, in bytes.
    pub value: usize,
}

/// What servers with any settings send.
pub const LONGEST: Longest = Longest { line: 4096, value: 128 << 20 };

/// Lines that are whole replies.
const WORDS: [&[u8]; 9] =
    [b"STORED", b"NOT_STORED", b"EXISTS", b"NOT_FOUND", b"DELETED", b"TOUCHED", b"OK", b"MN", b"RESET"];
const ERRORS: [&[u8]; 3] = [b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR"];
const END: &[u8] = b"END";

/// Takes the first reply.
pub fn take(bytes: &[u8], longest: Longest) -> TakenReply<'_> {
    let mut at = 0;
    loop {
        let content = match line(&bytes[at..], longest.line) {
            FirstLine::Part => return TakenReply::Incomplete,
            FirstLine::Malformed(why) => return TakenReply::Malformed(why),
            FirstLine::Whole(content) => content,
        };
        let begin = at;
        at += content.len() + 2;
        if content == END {
            return TakenReply::Whole(at, TextReply::Values(Values(&bytes[..begin])));
        }
        if let Some(header) = content.strip_prefix(b"VALUE ") {
            let Some((_, length)) = value(header).filter(|(_, length)| *length <= longest.value) else {
                return TakenReply::Malformed("VALUE without flags and a length");
            };
            match bytes.get(at + length..at + length + 2) {
                Some(b"\r\n") => at += length + 2,
                Some(_) => return TakenReply::Malformed("a value that is longer or shorter than it says"),
                None => return TakenReply::Incomplete,
            }
        } else if begin > 0 {
            return TakenReply::Malformed("a line that is neither a value nor their end");
        } else {
            return match single(content) {
                Some(reply) => TakenReply::Whole(at, reply),
                None => TakenReply::Malformed("a line that is no reply"),
            };
        }
    }
}

fn single(content: &[u8]) -> Option<TextReply<'_>> {
    if WORDS.contains(&content) {
        Some(TextReply::Word(content))
    } else if is_number(content) {
        Some(TextReply::Number(content))
    } else {
        ERRORS.iter().any(|word| content.starts_with(word)).then_some(TextReply::Error(content))
    }
}

enum FirstLine<'b> {
    Part,
    Whole(&'b [u8]),
    Malformed(&'static str),
}

fn line(bytes: &[u8], longest: usize) -> FirstLine<'_> {
    match memchr::memchr(b'\n', &bytes[..bytes.len().min(longest)]) {
        Some(end) => match bytes[..end].strip_suffix(b"\r") {
            Some(content) => FirstLine::Whole(content),
            None => FirstLine::Malformed("a line that ends without a carriage return"),
        },
        None if bytes.len() >= longest => FirstLine::Malformed("a line without an end"),
        None => FirstLine::Part,
    }
}

/// A value without its bytes, and their number, from `key flags length [unique]`.
fn value(header: &[u8]) -> Option<(ValueRead<'_>, usize)> {
    let mut words = header.split(|&byte| byte == b' ');
    let (key, flags, length) = (words.next()?, words.next()?, words.next()?);
    let unique = words.next();
    let is_valid =
        !key.is_empty() && is_number(flags) && unique.is_none_or(is_number) && words.next().is_none();
    let length = number(length).and_then(|length| usize::try_from(length).ok())?;
    is_valid.then_some((ValueRead { key, flags, unique, data: &[] }, length))
}

fn is_number(digits: &[u8]) -> bool {
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// The number that these digits are; none where they are anything else, or too large.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

impl<'b> Iterator for Values<'b> {
    type Item = ValueRead<'b>;

    fn next(&mut self) -> Option<ValueRead<'b>> {
        let FirstLine::Whole(content) = line(self.0, usize::MAX) else { return None };
        let (read, length) = value(content.strip_prefix(b"VALUE ")?)?;
        let (data, rest) = self.0[content.len() + 2..].split_at_checked(length)?;
        self.0 = rest.get(2..)?;
        Some(ValueRead { data, ..read })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> TakenReply<'_> {
        take(text.as_bytes(), LONGEST)
    }

    #[test]
    fn replies_are_taken_when_their_last_byte_is_there_and_not_before() {
        for whole in [
            "STORED\r\n",
            "12\r\n",
            "SERVER_ERROR out of memory\r\n",
            "END\r\n",
            "VALUE a 0 3\r\nx\r\n\r\nEND\r\n",
            "VALUE a 1 0 7\r\n\r\nVALUE b 2 5 8\r\nEND\r\n\r\nEND\r\n",
        ] {
            for cut in 0..whole.len() {
                assert_eq!(taken(&whole[..cut]), TakenReply::Incomplete, "{whole:?} cut at {cut}");
            }
            let more = format!("{whole}OK\r\n");
            assert!(
                matches!(taken(&more), TakenReply::Whole(length, _) if length == whole.len()),
                "{whole:?}"
            );
        }
    }

    #[test]
    fn wrong_bytes_are_no_reply() {
        for wrong in [
            "STOLED\r\n",
            "STORED\n",
            "1a\r\n",
            "VALUE a 0 3\r\nxyzzy\r\nEND\r\n",
            "VALUE a 0 3\r\nxyz\r\nSTORED\r\n",
            "VALUE a 0 3\r\nxyz\r\nENE\r\n",
            "VALUE a x 3\r\nxyz\r\nEND\r\n",
            "VALUE a 0 3 y\r\nxyz\r\nEND\r\n",
            "VALUE a 0 3 1 1\r\nxyz\r\nEND\r\n",
            "VALUE a 0\r\nxyz\r\nEND\r\n",
            "VALUE  0 3\r\nxyz\r\nEND\r\n",
            "VALUE a 0 99999999999999999999\r\n",
            "VALUE a 0 999999999999\r\n",
        ] {
            assert!(matches!(taken(wrong), TakenReply::Malformed(_)), "{wrong:?}");
        }
        assert!(matches!(taken(&"x".repeat(LONGEST.line)), TakenReply::Malformed(_)));
    }

    #[test]
    fn values_are_read_with_every_byte() {
        let TakenReply::Whole(_, TextReply::Values(values)) =
            taken("VALUE a 1 4\r\na\r\nb\r\nVALUE b 2 0 8\r\n\r\nEND\r\n")
        else {
            panic!("these are values");
        };
        let read = |key, flags, unique, data| ValueRead { key, flags, unique, data };
        assert_eq!(
            values.collect::<Vec<_>>(),
            [read(&b"a"[..], &b"1"[..], None, &b"a\r\nb"[..]), read(b"b", b"2", Some(&b"8"[..]), b"")]
        );
        assert_eq!(taken("END\r\n"), TakenReply::Whole(5, TextReply::Values(Values(b""))));
    }
}
