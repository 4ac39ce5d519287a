//! A command line cut into tokens, and the lines that answer it.

use smallvec::SmallVec;

/// A command line: tokens between single or repeated spaces, and nothing else separates them.
pub(super) struct Line<'a> {
    tokens: SmallVec<[&'a [u8]; 12]>,
}

impl<'a> Line<'a> {
    /// Cuts `line`, which has no `\n`; one `\r` at its end belongs to the line end, unless it is all there is.
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
        for space in memchr::memchr_iter(b' ', line) {
            add(&line[begin..space]);
            begin = space + 1;
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

/// A line of its own.
pub(super) fn error(text: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(text.len() + 2);
    line.extend_from_slice(text.as_bytes());
    line.extend_from_slice(b"\r\n");
    line
}
