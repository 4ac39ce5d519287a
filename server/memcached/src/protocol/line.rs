//! A command line cut into tokens, and the lines that answer it.

use smallvec::SmallVec;

use crate::limits::KEY_BYTES;

/// A command line: tokens between single or repeated spaces, and nothing else separates them.
pub(super) struct Line<'a> {
    tokens: SmallVec<[&'a [u8]; 12]>,
}

impl<'a> Line<'a> {
    /// Cuts `line`, which has no `\n`; one `\r` at its end belongs to the line end, unless it is all there is.
    #[inline]
    pub(super) fn new(line: &'a [u8]) -> Self {
        let line = match line {
            [rest @ .., b'\r'] if !rest.is_empty() => rest,
            line => line,
        };
        let mut tokens = SmallVec::new();
        let mut begin = 0;
        let mut add = |token: &'a [u8]| {
            if !token.is_empty() {
                tokens.push(token);
            }
        };
        while let Some(length) = find_space(&line[begin..]) {
            add(&line[begin..begin + length]);
            begin += length + 1;
        }
        add(&line[begin..]);
        Line { tokens }
    }

    /// The command's name; empty for an empty line.
    pub(super) fn name(&self) -> &'a [u8] {
        self.token(0)
    }

    /// The number of tokens behind the name.
    pub(super) fn arguments(&self) -> usize {
        self.tokens.len().saturating_sub(1)
    }

    /// The token of that number, 0 being the name; empty when there is none.
    pub(super) fn token(&self, number: usize) -> &'a [u8] {
        self.tokens.get(number).copied().unwrap_or_default()
    }

    /// The tokens from that number on.
    pub(super) fn tokens_from(&self, number: usize) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.tokens.iter().skip(number).copied()
    }

    /// Whether the last token is `noreply`.
    pub(super) fn is_quiet(&self) -> bool {
        self.arguments() > 0 && self.tokens.last().is_some_and(|token| *token == b"noreply")
    }
}

/// The place of the first space. What is behind a key is so short that the call of a search costs more than a loop.
#[inline]
fn find_space(bytes: &[u8]) -> Option<usize> {
    const SHORT: usize = 16;
    if bytes.len() < SHORT {
        return bytes.iter().position(|byte| *byte == b' ');
    }
    memchr::memchr(b' ', bytes)
}

/// The key of the line `get KEY` with which the input begins, and the length of the line with its end. `None` for other
/// requests and other spellings of this one: [`Line`] is for all of them. Most requests are of this kind.
#[inline]
pub(super) fn single_get(input: &[u8]) -> Option<(&[u8], usize)> {
    const NAME: &[u8] = b"get ";
    let rest = input.strip_prefix(NAME)?;
    let within = &rest[..rest.len().min(KEY_BYTES + 2)];
    let end = memchr::memchr3(b'\n', b' ', 0, within).filter(|at| within[*at] == b'\n')?;
    let key = within[..end].strip_suffix(b"\r").unwrap_or(&within[..end]);
    (1..=KEY_BYTES).contains(&key.len()).then_some((key, NAME.len() + end + 1))
}

/// A line of its own.
pub(super) fn error(text: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(text.len() + 2);
    line.extend_from_slice(text.as_bytes());
    line.extend_from_slice(b"\r\n");
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::command::{encode, encode_get};
    use crate::protocol::{Step, text};

    /// The ordered bytes of the first line, if all its tokens are looked at.
    fn by_tokens(input: &[u8]) -> Option<(Vec<u8>, usize)> {
        let end = input.iter().position(|byte| *byte == b'\n')?;
        let line = Line::new(&input[..end]);
        match text::step(line.name(), &line) {
            Step::Order(command) => Some((encode(&command), end + 1)),
            _ => None,
        }
    }

    #[test]
    fn each_key_that_is_permitted_is_taken_at_once() {
        for length in 1..=KEY_BYTES {
            let key = vec![b'k'; length];
            for end in [&b"\n"[..], b"\r\n", b"\r\nget j\r\n"] {
                let input = [b"get ", &key[..], end].concat();
                let (found, used) = single_get(&input).expect("a plain one");
                assert_eq!(found, key);
                assert_eq!(Some((encode_get(found), used)), by_tokens(&input));
            }
        }
        for other in
            ["get k", "get k ", "get  k\n", " get k\n", "gets k\n", "get k j\n", "get \r\n", "get \n"]
        {
            assert_eq!(single_get(other.as_bytes()), None, "{other:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_taken_at_once_is_what_the_tokens_say(
            name in prop_oneof![9 => Just("get ".to_owned()), 1 => "[gets ]{0,6}"],
            key in prop_oneof![4 => "[k \r\u{0}\u{ff}]{0,12}", 1 => "k{247,253}"],
            end in "[ \r\n]{0,4}",
            behind in "[k \r\n]{0,9}",
        ) {
            let input = [name.as_bytes(), key.as_bytes(), end.as_bytes(), behind.as_bytes()].concat();
            if let Some((key, used)) = single_get(&input) {
                prop_assert_eq!(Some((encode_get(key), used)), by_tokens(&input));
            }
        }
    }
}
