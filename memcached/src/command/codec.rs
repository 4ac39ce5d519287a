//! The ordered encoding of a request: compact, canonical, and decoded without trusting a single byte of it.

use bytes::Bytes;
use crosscheck::Malformed;

use crate::command::{Command, Key, Keys, Meta, StoreMode};
use crate::limits::{ITEM_BYTES_MAX, META_FLAG_BYTES};

const GET: u8 = 1;
const STORE: u8 = 2;
const TOO_LARGE: u8 = 3;
const DELETE: u8 = 4;
const ARITHMETIC: u8 = 5;
const TOUCH: u8 = 6;
const FLUSH_ALL: u8 = 7;
const META_GET: u8 = 8;
const META_SET: u8 = 9;
const META_DELETE: u8 = 10;
const META_ARITHMETIC: u8 = 11;
const META_DEBUG: u8 = 12;

impl Command {
    /// The first byte of its encoding: which kind of command it is.
    pub fn code(&self) -> u8 {
        match self {
            Command::Get { .. } => GET,
            Command::Store { .. } => STORE,
            Command::TooLarge { .. } => TOO_LARGE,
            Command::Delete { .. } => DELETE,
            Command::Arithmetic { .. } => ARITHMETIC,
            Command::Touch { .. } => TOUCH,
            Command::FlushAll { .. } => FLUSH_ALL,
            Command::MetaGet { .. } => META_GET,
            Command::MetaSet { .. } => META_SET,
            Command::MetaDelete { .. } => META_DELETE,
            Command::MetaArithmetic { .. } => META_ARITHMETIC,
            Command::MetaDebug { .. } => META_DEBUG,
        }
    }
}

/// Encodes `command`; [`decode`] gives it back.
pub fn encode(command: &Command) -> Vec<u8> {
    encode_with_value(command, &[])
}

/// Encodes `command`, whose own value is empty, with `value` in its place: spares a copy of what may be a megabyte.
pub fn encode_with_value(command: &Command, value: &[u8]) -> Vec<u8> {
    let length = encoded_len(command) + value.len();
    let mut out = Vec::with_capacity(length);
    put(&mut out, command);
    out.extend_from_slice(value);
    debug_assert_eq!(out.len(), length, "{command:?}");
    out
}

fn put(out: &mut Vec<u8>, command: &Command) {
    match command {
        Command::Get { keys, with_unique, touch } => {
            out.extend([GET, flags([*with_unique, touch.is_some()])]);
            out.extend(touch.iter().flat_map(|expiry| expiry.to_le_bytes()));
            keys.iter().for_each(|key| put_key(out, key));
        }
        Command::Store { mode, key, flags: client_flags, expiry, unique, value, quiet } => {
            out.extend([STORE, flags([*quiet]), *mode as u8]);
            out.extend(client_flags.to_le_bytes());
            out.extend(expiry.to_le_bytes());
            if *mode == StoreMode::Cas {
                out.extend(unique.to_le_bytes());
            }
            put_key(out, key);
            out.extend_from_slice(value);
        }
        Command::TooLarge { key, quiet } => put_simple(out, TOO_LARGE, flags([*quiet]), key),
        Command::Delete { key, quiet } => put_simple(out, DELETE, flags([*quiet]), key),
        Command::Arithmetic { key, up, delta, quiet } => {
            put_simple(out, ARITHMETIC, flags([*quiet, *up]), key);
            out.extend(delta.to_le_bytes());
        }
        Command::Touch { key, expiry, quiet } => {
            put_simple(out, TOUCH, flags([*quiet]), key);
            out.extend(expiry.to_le_bytes());
        }
        Command::FlushAll { delay, quiet } => {
            out.extend([FLUSH_ALL, flags([*quiet])]);
            out.extend(delay.to_le_bytes());
        }
        Command::MetaGet { key, meta } => put_meta(out, META_GET, key, meta),
        Command::MetaSet { key, meta, value } => {
            put_meta(out, META_SET, key, meta);
            out.extend_from_slice(value);
        }
        Command::MetaDelete { key, meta } => put_meta(out, META_DELETE, key, meta),
        Command::MetaArithmetic { key, meta } => put_meta(out, META_ARITHMETIC, key, meta),
        Command::MetaDebug { key } => put_simple(out, META_DEBUG, 0, key),
    }
}

/// Decodes an ordered request. Keys and values share its bytes.
///
/// # Errors
/// [`Malformed`] for anything that [`encode`] does not produce; what is accepted is safe to execute.
pub fn decode(ordered: &Bytes) -> Result<Command, Malformed> {
    let mut input = Reader { whole: ordered, rest: ordered };
    let command = match input.byte()? {
        GET => decode_get(&mut input)?,
        STORE => decode_store(&mut input)?,
        TOO_LARGE => {
            let [quiet] = input.flags()?;
            Command::TooLarge { key: input.key()?, quiet }
        }
        DELETE => {
            let [quiet] = input.flags()?;
            Command::Delete { key: input.key()?, quiet }
        }
        ARITHMETIC => {
            let [quiet, up] = input.flags()?;
            Command::Arithmetic { key: input.key()?, up, delta: input.u64()?, quiet }
        }
        TOUCH => {
            let [quiet] = input.flags()?;
            Command::Touch { key: input.key()?, expiry: input.i64()?, quiet }
        }
        FLUSH_ALL => {
            let [quiet] = input.flags()?;
            Command::FlushAll { delay: input.i64()?, quiet }
        }
        META_GET => {
            let (key, meta) = input.meta()?;
            Command::MetaGet { key, meta }
        }
        META_SET => {
            let (key, meta) = input.meta()?;
            meta.store_mode().ok_or(Malformed("mode of ms"))?;
            Command::MetaSet { key, meta, value: input.value()? }
        }
        META_DELETE => {
            let (key, meta) = input.meta()?;
            Command::MetaDelete { key, meta }
        }
        META_ARITHMETIC => {
            let (key, meta) = input.meta()?;
            meta.adds().ok_or(Malformed("mode of ma"))?;
            Command::MetaArithmetic { key, meta }
        }
        META_DEBUG => {
            let [] = input.flags()?;
            Command::MetaDebug { key: input.key()? }
        }
        _ => return Err(Malformed("unknown command")),
    };
    if input.rest.is_empty() { Ok(command) } else { Err(Malformed("bytes after the command")) }
}

fn decode_get(input: &mut Reader<'_>) -> Result<Command, Malformed> {
    let [with_unique, touches] = input.flags()?;
    let touch = if touches { Some(input.i64()?) } else { None };
    let mut keys = Keys::new();
    while !input.rest.is_empty() {
        keys.push(input.key()?);
    }
    Ok(Command::Get { keys, with_unique, touch })
}

fn decode_store(input: &mut Reader<'_>) -> Result<Command, Malformed> {
    let [quiet] = input.flags()?;
    let mode = *StoreMode::ALL.get(usize::from(input.byte()?)).ok_or(Malformed("store mode"))?;
    let flags = u32::from_le_bytes(input.array()?);
    let expiry = input.i64()?;
    let unique = if mode == StoreMode::Cas { input.u64()? } else { 0 };
    let key = input.key()?;
    Ok(Command::Store { mode, key, flags, expiry, unique, value: input.value()?, quiet })
}

fn flags<const N: usize>(bits: [bool; N]) -> u8 {
    bits.iter().enumerate().fold(0, |byte, (index, bit)| byte | (u8::from(*bit) << index))
}

fn put_simple(out: &mut Vec<u8>, code: u8, flags: u8, key: &Key) {
    out.extend([code, flags]);
    put_key(out, key);
}

fn put_key(out: &mut Vec<u8>, key: &Key) {
    out.push(key.bytes().len() as u8);
    out.extend_from_slice(key.bytes());
}

fn put_meta(out: &mut Vec<u8>, code: u8, key: &Key, meta: &Meta) {
    out.push(code);
    put_key(out, key);
    out.extend((meta.tokens.len() as u16).to_le_bytes());
    out.extend_from_slice(&meta.tokens);
}

/// Exactly as many bytes as the encoding takes: a vector with no more room becomes shared bytes as it is.
fn encoded_len(command: &Command) -> usize {
    let keys: usize = command.keys().iter().map(|key| key.bytes().len() + 1).sum();
    let word = |there: bool| if there { size_of::<u64>() } else { 0 };
    let rest = match command {
        Command::Get { touch, .. } => 2 + word(touch.is_some()),
        Command::Store { mode, value, .. } => 15 + word(*mode == StoreMode::Cas) + value.len(),
        Command::TooLarge { .. } | Command::Delete { .. } | Command::MetaDebug { .. } => 2,
        Command::Arithmetic { .. } | Command::Touch { .. } | Command::FlushAll { .. } => 10,
        Command::MetaGet { meta, .. }
        | Command::MetaDelete { meta, .. }
        | Command::MetaArithmetic { meta, .. } => 3 + meta.tokens.len(),
        Command::MetaSet { value, meta, .. } => 3 + meta.tokens.len() + value.len(),
    };
    keys + rest
}

/// The ordered bytes, and what is left of them.
struct Reader<'a> {
    whole: &'a Bytes,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed("ends inside a field"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| Malformed("ends inside a field"))
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    fn flags<const N: usize>(&mut self) -> Result<[bool; N], Malformed> {
        let byte = self.byte()?;
        if u32::from(byte) >= 1 << N {
            return Err(Malformed("unknown flag bit"));
        }
        Ok(std::array::from_fn(|index| byte & (1 << index) != 0))
    }

    fn key(&mut self) -> Result<Key, Malformed> {
        let length = self.byte()?;
        let bytes = self.take(usize::from(length))?;
        Key::within(self.whole, bytes).ok_or(Malformed("key length"))
    }

    fn meta(&mut self) -> Result<(Key, Box<Meta>), Malformed> {
        let key = self.key()?;
        let length = usize::from(u16::from_le_bytes(self.array()?));
        if length > META_FLAG_BYTES {
            return Err(Malformed("meta flags too long"));
        }
        let meta = Meta::from_tokens(self.take(length)?).map_err(|_| Malformed("meta flags"))?;
        Ok((key, Box::new(meta)))
    }

    fn value(&mut self) -> Result<Bytes, Malformed> {
        if self.rest.len() > ITEM_BYTES_MAX {
            return Err(Malformed("value beyond the largest item"));
        }
        Ok(self.whole.slice_ref(std::mem::take(&mut self.rest)))
    }
}
