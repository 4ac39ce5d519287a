//! Requests that copy the whole file out of the group or into it, as clients write them and as they are in the log.
//!
//! Clients write them as queries that are no SQL, `CROSSCHECK` and a few words, so that they pass like all others.

use crosscheck::object::Summed;

use crate::database::PAGE_BYTES;

/// Pages of one reply or request at most, so that others do not wait for long: 1 MiB, and half of that as a client's
/// query has it, two digits for each byte.
pub const PAGES_OUT: usize = 255;
/// See [`PAGES_OUT`].
pub const PAGES_IN: usize = 96;

/// Copies pages.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub enum FileRequest {
    /// Pages that were written after the first `since` writes, in the order of their numbers.
    Changed {
        /// How many writes the client knows of.
        since: u64,
        /// The first page to look at, from 0.
        from: u32,
    },
    /// Removes what a load that was not finished has brought, some pages at a time; then another one begins.
    Begin {
        /// The number of the load that begins; 0 if none does.
        load: u64,
    },
    /// The next pages of a load.
    Pages {
        /// The number of the load.
        load: u64,
        /// The number of the first page, from 0.
        from: u32,
        /// Their bytes.
        bytes: Vec<u8>,
    },
    /// The file is complete: from now on it is the database, if it is whole.
    End {
        /// The number of the load.
        load: u64,
        /// How many pages it has.
        count: u32,
    },
}

impl FileRequest {
    /// The request that a client's query is; none if it is another one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix("CROSSCHECK ")?.split(' ');
        let mut word = || words.next();
        let request = match word()? {
            "CHANGED" => FileRequest::Changed { since: word()?.parse().ok()?, from: word()?.parse().ok()? },
            "LOAD" => match word()? {
                "BEGIN" => FileRequest::Begin { load: word()?.parse().ok()? },
                "PAGES" => FileRequest::Pages {
                    load: word()?.parse().ok()?,
                    from: word()?.parse().ok()?,
                    bytes: from_hex(word()?)?,
                },
                "END" => FileRequest::End { load: word()?.parse().ok()?, count: word()?.parse().ok()? },
                _ => return None,
            },
            _ => return None,
        };
        word().is_none().then_some(request)
    }

    /// The query that is this request.
    pub fn text(&self) -> String {
        match self {
            FileRequest::Changed { since, from } => format!("CROSSCHECK CHANGED {since} {from}"),
            FileRequest::Begin { load } => format!("CROSSCHECK LOAD BEGIN {load}"),
            FileRequest::Pages { load, from, bytes } => {
                format!("CROSSCHECK LOAD PAGES {load} {from} {}", to_hex(bytes))
            }
            FileRequest::End { load, count } => format!("CROSSCHECK LOAD END {load} {count}"),
        }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let digit = |number: u8| char::from(DIGITS[usize::from(number)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Whole pages, as many as one request may have.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let is_whole = !digits.is_empty() && digits.len().is_multiple_of(2 * PAGE_BYTES);
    if !is_whole || digits.len() > 2 * PAGES_IN * PAGE_BYTES {
        return None;
    }
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|number| number as u8);
    digits.chunks_exact(2).map(|two| Some(digit(two[0])? << 4 | digit(two[1])?)).collect()
}

/// What a reply to [`FileRequest::Changed`] has in front of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedHead {
    /// How many writes there have been.
    pub changes: u64,
    /// How many pages the file has.
    pub count: u32,
    /// The first page that was not looked at; none if all were.
    pub next: Option<u32>,
}

impl ChangedHead {
    /// Its bytes in a reply.
    pub fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.changes.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.count.to_be_bytes());
        bytes[12..].copy_from_slice(&self.next.unwrap_or(u32::MAX).to_be_bytes());
        bytes
    }

    /// Reads its bytes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 16] = bytes.try_into().ok()?;
        let number = |at: usize| bytes[at..].first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let changes = u64::from_be_bytes(*bytes.first_chunk()?);
        Some(ChangedHead {
            changes,
            count: number(8)?,
            next: number(12)?.checked_add(1).map(|next| next - 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_is_read_from_its_text_and_other_queries_are_none() {
        let bytes: Vec<u8> = (0..PAGE_BYTES).map(|at| (at * 31 % 256) as u8).collect();
        for request in [
            FileRequest::Changed { since: 7, from: 9 },
            FileRequest::Begin { load: u64::MAX },
            FileRequest::Pages { load: 3, from: 96, bytes },
            FileRequest::End { load: 3, count: 1 },
        ] {
            assert_eq!(FileRequest::parse(&request.text()), Some(request.clone()));
            assert_eq!(FileRequest::parse(&format!("{} ", request.text())), None);
        }
        let long = "00".repeat((PAGES_IN + 1) * PAGE_BYTES);
        for text in ["SELECT 1", "CROSSCHECK LOAD PAGES 1 0 00", &format!("CROSSCHECK LOAD PAGES 1 0 {long}")]
        {
            assert_eq!(FileRequest::parse(text), None);
        }
    }

    proptest! {
        #[test]
        fn any_head_is_read_from_its_bytes(changes: u64, count: u32, next in proptest::option::of(0..u32::MAX)) {
            let head = ChangedHead { changes, count, next };
            prop_assert_eq!(ChangedHead::parse(&head.bytes()), Some(head));
        }
    }
}
