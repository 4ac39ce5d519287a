//! The expected form of a reply, byte by byte: literal text, with captured numbers where only the server knows them.

/// A piece of an expected reply.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPiece {
    /// Exactly these bytes.
    Bytes(Vec<u8>),
    /// A decimal number of 1 to 20 digits that is not the one given: the CAS unique of a changed item.
    FreshNumber(Option<u64>),
}

/// One whole reply that would be right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern(Vec<PatternPiece>);

/// How received bytes match a pattern.
#[derive(Debug, PartialEq, Eq)]
pub enum Match {
    /// The first `usize` bytes are the reply; with the captured number, if the pattern has one.
    Full(usize, Option<u64>),
    /// Right so far; more must come.
    Partial,
    /// At least one byte is wrong.
    No,
}

impl Pattern {
    /// A reply that is this text.
    pub fn text(text: impl AsRef<[u8]>) -> Self {
        Pattern::default().and(text)
    }

    /// Followed by this text.
    pub fn and(mut self, text: impl AsRef<[u8]>) -> Self {
        if let Some(PatternPiece::Bytes(last)) = self.0.last_mut() {
            last.extend_from_slice(text.as_ref());
        } else {
            self.0.push(PatternPiece::Bytes(text.as_ref().to_vec()));
        }
        self
    }

    /// Followed by a number that cannot be predicted; only that it is not `stale`.
    pub fn fresh_number(mut self, stale: Option<u64>) -> Self {
        self.0.push(PatternPiece::FreshNumber(stale));
        self
    }

    /// Whether the right reply is no byte at all.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, PatternPiece::Bytes(bytes) if bytes.is_empty()))
    }

    /// Compares from the start of `received`.
    pub fn compare(&self, received: &[u8]) -> Match {
        let mut at = 0;
        let mut number = None;
        for piece in &self.0 {
            let rest = &received[at..];
            match piece {
                PatternPiece::Bytes(bytes) => {
                    let common = bytes.len().min(rest.len());
                    if bytes[..common] != rest[..common] {
                        return Match::No;
                    }
                    if common < bytes.len() {
                        return Match::Partial;
                    }
                    at += common;
                }
                PatternPiece::FreshNumber(stale) => {
                    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
                    if digits > 20 || (digits == 0 && !rest.is_empty()) {
                        return Match::No;
                    }
                    if digits == rest.len() {
                        return Match::Partial;
                    }
                    number =
                        std::str::from_utf8(&rest[..digits]).ok().and_then(|text| text.parse::<u64>().ok());
                    if number.is_none() || number == *stale {
                        return Match::No;
                    }
                    at += digits;
                }
            }
        }
        Match::Full(at, number)
    }

    /// The only bytes that fit; none if a number in them cannot be predicted.
    pub fn bytes(mut self) -> Option<Vec<u8>> {
        match self.0.pop() {
            None => Some(Vec::new()),
            Some(PatternPiece::Bytes(bytes)) => self.0.is_empty().then_some(bytes),
            Some(PatternPiece::FreshNumber(_)) => None,
        }
    }

    /// For messages: escaped, cut after 120 characters.
    pub fn shown(&self) -> String {
        let text: String = self
            .0
            .iter()
            .map(|piece| match piece {
                PatternPiece::Bytes(bytes) => shown(bytes),
                PatternPiece::FreshNumber(stale) => format!("<number, not {stale:?}>"),
            })
            .collect();
        text.chars().take(120).collect()
    }
}

/// Bytes for messages: escaped, cut after 120 bytes.
pub fn shown(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(120)].escape_ascii().to_string();
    if bytes.len() > 120 { format!("{text}… ({} bytes)", bytes.len()) } else { text }
}
