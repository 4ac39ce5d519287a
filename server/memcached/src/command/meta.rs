//! The flags of meta commands: parsed once from the client's tokens, kept in the client's order, because the
//! reply repeats it.

use crosscheck::object::Shaped;
use smallvec::SmallVec;

use crate::command::{Key, StoreMode};
use crate::limits::{META_FLAG_BYTES, OPAQUE_TOKEN_BYTES};
use crate::protocol::numbers::{signed, unsigned, unsigned_32};

/// Flags of one `mg`, `ms`, `md` or `ma`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Shaped)]
pub struct Meta {
    /// The tokens as the client sent them, with single spaces between: the ordered encoding carries these.
    pub tokens: Vec<u8>,
    /// The flags that the reply repeats and those that change the item, in the client's order.
    pub echoes: SmallVec<[Echo; 8]>,
    /// `b`: the key came in base64.
    pub binary_key: bool,
    /// `v`: the reply carries the value.
    pub value: bool,
    /// `q`: no reply in the nominal case.
    pub quiet: bool,
    /// `u`: the read counts neither as an access nor as a hit.
    pub no_update: bool,
    /// `I`: mark as stale (`md`), or accept an older unique and mark as stale (`ms`).
    pub stale: bool,
    /// `T`: new expiry time.
    pub expiry: Option<i64>,
    /// `N`: create on a miss, with this expiry time.
    pub vivify: Option<i64>,
    /// `C`: the unique that the item must have.
    pub compare: Option<u64>,
    /// `E`: the unique to give to the item.
    pub unique: Option<u64>,
    /// `F`: client flags.
    pub client_flags: u32,
    /// `M`: the mode's letter.
    pub mode: Option<u8>,
    /// `J`: initial value.
    pub initial: u64,
    /// `D`: delta, 1 when absent.
    pub delta: Option<u64>,
}

/// A flag that is executed in the client's order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Echo {
    /// `T`: change the expiry time at this place, so that a `t` before it shows the old one.
    NewExpiry,
    /// `N`: give a created item its expiry time.
    Vivify,
    /// `R`: win when less time than this remains.
    Recache(i64),
    /// `s`: size of the value.
    Size,
    /// `t`: seconds that remain, or -1.
    Remaining,
    /// `c`: the unique.
    Unique,
    /// `f`: client flags.
    ClientFlags,
    /// `l`: seconds since the last access.
    LastAccess,
    /// `h`: whether it was hit before.
    Hit,
    /// `k`: the key.
    Key,
    /// `O`: the client's own token, with its letter.
    Opaque(SmallVec<[u8; 32]>),
}

/// Why flags are refused, with memcached's texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MetaError {
    /// The same letter twice, or a letter outside of ASCII.
    #[error("duplicate flag")]
    Duplicate,
    /// An unknown letter.
    #[error("invalid flag")]
    Unknown,
    /// `b`, and the key is not base64.
    #[error("error decoding key")]
    Key,
    /// `T`, `N`, `R`, `C` or `E` without a number.
    #[error("bad token in command line format")]
    Number,
    /// `F` without a number.
    #[error("bad command line format")]
    ClientFlags,
    /// A plain key with a NUL, or too long.
    #[error("bad command line format")]
    PlainKey,
    /// `M` needs exactly one letter.
    #[error("incorrect length for M token")]
    ModeLength,
    /// `J` without a number.
    #[error("invalid numeric initial value")]
    Initial,
    /// `D` without a number.
    #[error("invalid numeric delta value")]
    Delta,
    /// `O` with more than 31 bytes.
    #[error("opaque token too long")]
    Opaque,
}

impl Meta {
    /// Parses flag tokens.
    ///
    /// As in stock memcached a bad number is remembered and parsing goes on, so the last such error is reported, but a
    /// duplicate or unknown letter ends it at once. `opaque too long` counts as found last.
    pub fn parse<'a>(tokens: impl Iterator<Item = &'a [u8]>) -> Result<Self, MetaError> {
        let mut meta = Meta::default();
        let mut seen = 0u128;
        let mut error = None;
        let mut opaque_error = None;
        for token in tokens {
            let Some(&letter) = token.first() else { return Err(MetaError::Unknown) };
            if letter >= 127 || seen & (1 << letter) != 0 {
                return Err(MetaError::Duplicate);
            }
            seen |= 1 << letter;
            if !meta.tokens.is_empty() {
                meta.tokens.push(b' ');
            }
            meta.tokens.extend_from_slice(token);
            match meta.take(letter, &token[1..]) {
                Ok(()) => {}
                Err(MetaError::Unknown) => return Err(MetaError::Unknown),
                Err(MetaError::Opaque) => opaque_error = Some(MetaError::Opaque),
                Err(other) => error = Some(other),
            }
        }
        if meta.tokens.len() > META_FLAG_BYTES {
            return Err(MetaError::Unknown);
        }
        match error.or(opaque_error) {
            Some(error) => Err(error),
            None => Ok(meta),
        }
    }

    fn take(&mut self, letter: u8, rest: &[u8]) -> Result<(), MetaError> {
        match letter {
            b'b' => self.binary_key = true,
            b'v' => self.value = true,
            b'q' => self.quiet = true,
            b'u' => self.no_update = true,
            b'I' => self.stale = true,
            // Reserved for proxies: known, and ignored.
            b'L' | b'P' => {}
            b's' => self.echoes.push(Echo::Size),
            b't' => self.echoes.push(Echo::Remaining),
            b'c' => self.echoes.push(Echo::Unique),
            b'f' => self.echoes.push(Echo::ClientFlags),
            b'l' => self.echoes.push(Echo::LastAccess),
            b'h' => self.echoes.push(Echo::Hit),
            b'k' => self.echoes.push(Echo::Key),
            b'O' => self.echoes.push(opaque(rest)?),
            b'T' => {
                self.expiry = Some(signed(rest).ok_or(MetaError::Number)?);
                self.echoes.push(Echo::NewExpiry);
            }
            b'N' => {
                self.vivify = Some(signed(rest).ok_or(MetaError::Number)?);
                self.echoes.push(Echo::Vivify);
            }
            b'R' => self.echoes.push(Echo::Recache(signed(rest).ok_or(MetaError::Number)?)),
            b'C' => self.compare = Some(unsigned(rest).ok_or(MetaError::Number)?),
            b'E' => self.unique = Some(unsigned(rest).ok_or(MetaError::Number)?),
            b'F' => self.client_flags = unsigned_32(rest).ok_or(MetaError::ClientFlags)?,
            b'J' => self.initial = unsigned(rest).ok_or(MetaError::Initial)?,
            b'D' => self.delta = Some(unsigned(rest).ok_or(MetaError::Delta)?),
            b'M' => match rest {
                [mode] => self.mode = Some(*mode),
                _ => return Err(MetaError::ModeLength),
            },
            _ => return Err(MetaError::Unknown),
        }
        Ok(())
    }

    /// Parses the tokens of an encoded request again; [`Meta::tokens`] is the inverse.
    pub fn from_tokens(tokens: &[u8]) -> Result<Self, MetaError> {
        if tokens.is_empty() {
            return Ok(Meta::default());
        }
        Self::parse(tokens.split(|byte| *byte == b' '))
    }

    /// The key that `token` stands for.
    pub fn key(&self, token: &[u8]) -> Result<Key, MetaError> {
        if self.binary_key {
            let decoded = decode_base64(token).ok_or(MetaError::Key)?;
            Key::new(&decoded).ok_or(MetaError::Key)
        } else {
            Key::text(token).ok_or(MetaError::PlainKey)
        }
    }

    /// The mode of an `ms`, or `None` for an unknown one. A unique to compare with turns a store into a `cas`.
    pub fn store_mode(&self) -> Option<StoreMode> {
        let mode = match self.mode {
            None | Some(b'S') => StoreMode::Set,
            Some(b'E') => StoreMode::Add,
            Some(b'A') => StoreMode::Append,
            Some(b'P') => StoreMode::Prepend,
            Some(b'R') => StoreMode::Replace,
            Some(_) => return None,
        };
        let upgraded = self.compare.is_some() && matches!(mode, StoreMode::Set | StoreMode::Replace);
        Some(if upgraded { StoreMode::Cas } else { mode })
    }

    /// Whether an `ma` adds, or `None` for an unknown mode.
    pub fn adds(&self) -> Option<bool> {
        match self.mode {
            None | Some(b'I' | b'+') => Some(true),
            Some(b'D' | b'-') => Some(false),
            Some(_) => None,
        }
    }
}

fn opaque(rest: &[u8]) -> Result<Echo, MetaError> {
    if rest.len() + 1 > OPAQUE_TOKEN_BYTES {
        return Err(MetaError::Opaque);
    }
    let mut token = SmallVec::new();
    token.push(b'O');
    token.extend_from_slice(rest);
    Ok(Echo::Opaque(token))
}

/// Decodes a base64 key as stock memcached does: padding is needed, and unused trailing bits are ignored.
pub fn decode_base64(token: &[u8]) -> Option<Vec<u8>> {
    use base64::Engine;
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    const LOOSE: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    LOOSE.decode(token).ok().filter(|key| !key.is_empty())
}
