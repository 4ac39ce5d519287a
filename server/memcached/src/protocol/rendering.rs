//! The inverse of decoding, as a check of it: the command line that a client sends to mean an ordered request.
//!
//! A request that was decoded from one copy of a client's bytes is rendered again and compared with the other copy,
//! which costs a tenth of a second decoding. It shares nothing with the decoder but the format of ordered requests and
//! the limits, so an error of the decoder does not fit it. Only the common commands in their common form are rendered;
//! for all others there is no answer, and they are decoded twice.

use wire::Reader;

use crate::command::{ARITHMETIC, DELETE, GET, STORE, TOUCH};
use crate::limits::{GET_LINE_BYTES, KEY_BYTES, LINE_BYTES, stock_overhead};
use crate::protocol::numbers::{DIGITS, decimal};

/// The bytes at the beginning of `input` that a client sends to mean `ordered`, where items have at most `item_bytes`.
pub(super) fn rendered(input: &[u8], ordered: &[u8], item_bytes: usize) -> Option<usize> {
    let mut unmatched = Unmatched { rest: input, line: 0 };
    render(&mut unmatched, &mut Reader::new(ordered), item_bytes)?;
    let is_get = ordered.first() == Some(&GET);
    let limit = if is_get { GET_LINE_BYTES } else { LINE_BYTES };
    let length = input.len() - unmatched.rest.len();
    // Without its line feed; a carriage return does not count.
    (unmatched.line <= limit + 2).then_some(length)
}

/// The bytes that are not compared yet.
struct Unmatched<'i> {
    rest: &'i [u8],
    /// Length of the command line with its end.
    line: usize,
}

impl Unmatched<'_> {
    /// They begin with these, which are taken away.
    fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(bytes)?;
        self.line += bytes.len();
        Some(())
    }

    /// A space and the number in decimal digits.
    fn number(&mut self, number: u64) -> Option<()> {
        self.bytes(b" ")?;
        self.bytes(decimal(number, &mut [0; DIGITS]))
    }

    /// A number that is not negative; others are not common.
    fn signed(&mut self, number: i64) -> Option<()> {
        self.number(u64::try_from(number).ok()?)
    }

    /// A space and the key, which has nothing in it that would end it.
    fn key(&mut self, ordered: &mut Reader<'_>) -> Option<()> {
        let length = ordered.u8().ok()?;
        let key = ordered.take(usize::from(length)).ok()?;
        if key.is_empty() || key.len() > KEY_BYTES || memchr::memchr3(0, b' ', b'\n', key).is_some() {
            return None;
        }
        self.bytes(b" ")?;
        self.bytes(key)
    }

    /// The end of a command line.
    fn line_end(&mut self, quiet: bool) -> Option<()> {
        self.bytes(if quiet { b" noreply\r\n" } else { b"\r\n" })
    }

    /// The bytes of a value and its line end, which are in no line.
    fn value(&mut self, value: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(value)?.strip_prefix(b"\r\n")?;
        Some(())
    }
}

fn render(input: &mut Unmatched<'_>, ordered: &mut Reader<'_>, item_bytes: usize) -> Option<()> {
    let (kind, flags) = (ordered.u8().ok()?, ordered.u8().ok()?);
    match (kind, flags) {
        (GET, 0 | 1) => {
            input.bytes(if flags == 1 { b"gets" } else { b"get" })?;
            input.key(ordered)?;
            while !ordered.is_empty() {
                input.key(ordered)?;
            }
            input.line_end(false)?;
        }
        (STORE, 0 | 1) => return store(input, ordered, flags == 1, item_bytes),
        (DELETE, 0 | 1) => {
            input.bytes(b"delete")?;
            input.key(ordered)?;
            input.line_end(flags == 1)?;
        }
        (ARITHMETIC, 0..=3) => {
            input.bytes(if flags & 2 == 0 { b"decr" } else { b"incr" })?;
            input.key(ordered)?;
            input.number(ordered.u64().ok()?)?;
            input.line_end(flags & 1 == 1)?;
        }
        (TOUCH, 0 | 1) => {
            input.bytes(b"touch")?;
            input.key(ordered)?;
            input.signed(ordered.i64().ok()?)?;
            input.line_end(flags == 1)?;
        }
        _ => return None,
    }
    ordered.end().ok()
}

fn store(input: &mut Unmatched<'_>, ordered: &mut Reader<'_>, quiet: bool, item_bytes: usize) -> Option<()> {
    const NAMES: [&[u8]; 6] = [b"set", b"add", b"replace", b"append", b"prepend", b"cas"];
    let mode = usize::from(ordered.u8().ok()?);
    let (client_flags, expiry) = (ordered.u32().ok()?, ordered.i64().ok()?);
    let name = *NAMES.get(mode)?;
    let unique = if name == b"cas" { Some(ordered.u64().ok()?) } else { None };
    input.bytes(name)?;
    let before_key = input.line;
    input.key(ordered)?;
    let key_length = input.line - before_key - 1;
    input.number(u64::from(client_flags))?;
    input.signed(expiry)?;
    let value = ordered.rest();
    input.number(value.len() as u64)?;
    if let Some(unique) = unique {
        input.number(unique)?;
    }
    input.line_end(quiet)?;
    if stock_overhead(client_flags) + key_length + value.len() > item_bytes {
        return None;
    }
    input.value(value)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crosscheck::{Action, Progress, Protocol};

    use super::rendered;
    use crate::config::Config;
    use crate::protocol::Connection;
    use crate::stats::Stats;

    fn ordered(input: &[u8]) -> Vec<u8> {
        let mut connection = Connection::new(Arc::new(Stats::new(Config::default())), Arc::default());
        match connection.next(input) {
            Progress::Done { used, action: Action::Order(request) } if used == input.len() => request,
            other => panic!("{}: {other:?}", String::from_utf8_lossy(input)),
        }
    }

    fn is_rendering(input: &[u8], ordered: &[u8]) -> bool {
        rendered(input, ordered, 1 << 20) == Some(input.len())
    }

    const COMMON: [&str; 16] = [
        "get key\r\n",
        "gets key\r\n",
        "get a bb ccc\r\n",
        "set key 0 0 5\r\nvalue\r\n",
        "set key 4294967295 2592001 0 noreply\r\n\r\n",
        "add key 1 10 2\r\n\r\n\r\n",
        "replace key 7 0 1\r\nx\r\n",
        "append key 0 0 1\r\nx\r\n",
        "prepend key 0 0 1 noreply\r\nx\r\n",
        "cas key 0 0 1 18446744073709551615\r\nx\r\n",
        "cas key 0 0 1 5 noreply\r\nx\r\n",
        "delete key\r\n",
        "delete key noreply\r\n",
        "incr key 18446744073709551615\r\n",
        "decr key 1 noreply\r\n",
        "touch key 100\r\n",
    ];

    #[test]
    fn common_commands_are_rendered_and_no_flipped_bit_fits() {
        for input in COMMON {
            let ordered = ordered(input.as_bytes());
            assert!(is_rendering(input.as_bytes(), &ordered), "{input:?}");
            for bit in 0..ordered.len() * 8 {
                let mut wrong = ordered.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert!(!is_rendering(input.as_bytes(), &wrong), "{input:?}: bit {bit} of what is ordered");
            }
            for bit in 0..input.len() * 8 {
                let mut wrong = input.as_bytes().to_vec();
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert!(!is_rendering(&wrong, &ordered), "{input:?}: bit {bit} of the input");
            }
            for length in 0..input.len() {
                assert!(!is_rendering(&input.as_bytes()[..length], &ordered), "{input:?}: {length} bytes");
            }
        }
    }

    #[test]
    fn other_forms_are_left_to_a_second_decoding() {
        for input in [
            "get  key\r\n",
            "get key\n",
            "bget key\r\n",
            "gat 10 key\r\n",
            "set key 00 0 1\r\nx\r\n",
            "set key 0 -1 1\r\nx\r\n",
            "delete key 0\r\n",
            "incr key 01\r\n",
            "mg key v\r\n",
            "ms key 1\r\nx\r\n",
            "flush_all\r\n",
        ] {
            assert!(!is_rendering(input.as_bytes(), &ordered(input.as_bytes())), "{input:?}");
        }
        assert!(!is_rendering(b"", b""));
    }

    /// What the decoder refuses or answers by itself is not rendered either, should it ever decode it to a request.
    #[test]
    fn what_is_beyond_a_limit_is_not_rendered() {
        let input = b"set key 0 0 5\r\nvalue\r\n";
        let least = super::stock_overhead(0) + 3 + 5;
        assert_eq!(rendered(input, &ordered(input), least), Some(input.len()));
        assert_eq!(rendered(input, &ordered(input), least - 1), None);

        let get = |length: usize| {
            let key = "k".repeat(length);
            let encoded = [&[super::GET, 0, length as u8][..], key.as_bytes()].concat();
            is_rendering(format!("get {key}\r\n").as_bytes(), &encoded)
        };
        assert!(get(250));
        assert!((251..256).all(|length| !get(length)));

        let gets = |count: usize| {
            let keys = " k".repeat(count);
            let encoded = [&[super::GET, 0][..], &[1, b'k'].repeat(count)].concat();
            is_rendering(format!("get{keys}\r\n").as_bytes(), &encoded)
        };
        let most = (crate::limits::GET_LINE_BYTES - 3) / 2;
        assert!(gets(most));
        assert!(!gets(most + 2));
    }

    #[test]
    fn what_follows_is_not_counted() {
        let input = b"get key\r\nget other\r\n";
        assert_eq!(rendered(input, &ordered(&input[..9]), 1 << 20), Some(9));
    }
}
