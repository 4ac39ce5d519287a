//! The ordered encoding of a request: compact, canonical, and decoded without trusting a single byte of it.

use bytes::Bytes;
use wire::{Malformed, Put, Reader, SharedReader};

use crate::command::binary::BinaryHead;
use crate::command::{Command, Key, Keys, List, Meta, SettingChange, StoreMode};
use crate::limits::{ITEM_BYTES_MAX, ITEM_BYTES_MIN, META_FLAG_BYTES};

pub(crate) const GET: u8 = 1;
pub(crate) const STORE: u8 = 2;
const TOO_LARGE: u8 = 3;
pub(crate) const DELETE: u8 = 4;
pub(crate) const ARITHMETIC: u8 = 5;
pub(crate) const TOUCH: u8 = 6;
const FLUSH_ALL: u8 = 7;
const META_GET: u8 = 8;
const META_SET: u8 = 9;
const META_DELETE: u8 = 10;
const META_ARITHMETIC: u8 = 11;
const META_DEBUG: u8 = 12;
pub(crate) const BINARY: u8 = 13;
const LIST: u8 = 14;
const MEMORY_LIMIT: u8 = 15;
const SETTINGS: u8 = 16;

impl Command {
    /// The kind of command: the first byte of its encoding, for a binary request that of its command.
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
            Command::Binary { command, .. } => command.code(),
            Command::List { .. } => LIST,
            Command::MemoryLimit { .. } => MEMORY_LIMIT,
            Command::Settings { .. } => SETTINGS,
        }
    }
}

/// The operators' name for the kind of command with this [code](Command::code); `None` for other numbers. All storage
/// commands are one kind.
pub fn kind_name(kind: u16) -> Option<&'static str> {
    Some(match u8::try_from(kind).ok()? {
        GET => "get",
        STORE => "set",
        TOO_LARGE => "set too large",
        DELETE => "delete",
        ARITHMETIC => "incr or decr",
        TOUCH => "touch",
        FLUSH_ALL => "flush_all",
        META_GET => "mg",
        META_SET => "ms",
        META_DELETE => "md",
        META_ARITHMETIC => "ma",
        META_DEBUG => "me",
        LIST => "list of items",
        MEMORY_LIMIT => "cache_memlimit",
        SETTINGS => "group set or get",
        _ => return None,
    })
}

/// Encodes `command`; [`decode`] is the inverse.
pub fn encode(command: &Command) -> Vec<u8> {
    encode_with_value(command, &[])
}

/// Encodes `command`, whose own value is empty, with `value` in its place: spares a copy of what may be a megabyte.
pub fn encode_with_value(command: &Command, value: &[u8]) -> Vec<u8> {
    let length = encoded_len(command) + value.len();
    let mut out = Vec::with_capacity(length);
    put(&mut out, command);
    out.put(value);
    debug_assert_eq!(out.len(), length, "{command:?}");
    out
}

/// Encodes a `get` of one valid key, as [`encode`] does, without a [`Command`] of it.
pub(crate) fn encode_get(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(3 + key.len());
    out.put(&[GET, flags([false, false]), key.len() as u8]).put(key);
    out
}

fn put(out: &mut Vec<u8>, command: &Command) {
    match command {
        Command::Get { keys, with_unique, touch } => {
            out.put8(GET).put8(flags([*with_unique, touch.is_some()]));
            touch.iter().for_each(|expiry| _ = out.put(&expiry.to_le_bytes()));
            keys.iter().for_each(|key| put_key(out, key));
        }
        Command::Store { mode, key, flags: client_flags, expiry, unique, value, quiet } => {
            out.put8(STORE).put8(flags([*quiet])).put8(*mode as u8);
            out.put32(*client_flags).put(&expiry.to_le_bytes());
            if *mode == StoreMode::Cas {
                out.put64(*unique);
            }
            put_key(out, key);
            out.put(value);
        }
        Command::TooLarge { key, quiet } => put_simple(out, TOO_LARGE, flags([*quiet]), key),
        Command::Delete { key, quiet } => put_simple(out, DELETE, flags([*quiet]), key),
        Command::Arithmetic { key, up, delta, quiet } => {
            put_simple(out, ARITHMETIC, flags([*quiet, *up]), key);
            out.put64(*delta);
        }
        Command::Touch { key, expiry, quiet } => {
            put_simple(out, TOUCH, flags([*quiet]), key);
            out.put(&expiry.to_le_bytes());
        }
        Command::FlushAll { delay, quiet } => {
            out.put8(FLUSH_ALL).put8(flags([*quiet])).put(&delay.to_le_bytes());
        }
        Command::MetaGet { key, meta } => put_meta(out, META_GET, key, meta),
        Command::MetaSet { key, meta, value } => {
            put_meta(out, META_SET, key, meta);
            out.put(value);
        }
        Command::MetaDelete { key, meta } => put_meta(out, META_DELETE, key, meta),
        Command::MetaArithmetic { key, meta } => put_meta(out, META_ARITHMETIC, key, meta),
        Command::MetaDebug { key } => put_simple(out, META_DEBUG, 0, key),
        Command::List { list } => {
            let (form, first, second) = match list {
                List::Metadump { part, of } => (0, *part, *of),
                List::Cachedump { limit } => (1, *limit, 0),
                List::Sizes => (2, 0, 0),
                #[cfg(feature = "lab")]
                List::Behavior => (3, 0, 0),
            };
            out.put8(LIST).put8(form).put32(first).put32(second);
        }
        Command::MemoryLimit { megabytes, quiet } => {
            out.put8(MEMORY_LIMIT).put8(flags([*quiet])).put32(*megabytes);
        }
        Command::Settings { change } => {
            let (form, value) = match change {
                None => (0, 0),
                Some(SettingChange::Memory { megabytes }) => (1, *megabytes),
                Some(SettingChange::Item { bytes }) => (2, *bytes),
            };
            out.put8(SETTINGS).put8(form).put32(value);
        }
        Command::Binary { head, command } => {
            out.put8(BINARY).put8(head.opcode).put32(head.opaque).put64(head.compare);
            out.put8(flags([head.initial.is_some()]));
            if let Some((initial, expiry)) = head.initial {
                out.put64(initial).put32(expiry);
            }
            put(out, command);
        }
    }
}

/// Decodes an ordered request. Keys and values share its bytes.
///
/// # Errors
/// [`Malformed`] for anything that [`encode`] does not produce; an accepted request is safe to execute.
pub fn decode(ordered: &Bytes) -> Result<Command, Malformed> {
    let mut input = Reader::shared(ordered);
    let command = match input.u8()? {
        GET => decode_get(&mut input)?,
        STORE => decode_store(&mut input)?,
        TOO_LARGE => {
            let [quiet] = read_flags(&mut input)?;
            Command::TooLarge { key: read_key(&mut input)?, quiet }
        }
        DELETE => {
            let [quiet] = read_flags(&mut input)?;
            Command::Delete { key: read_key(&mut input)?, quiet }
        }
        ARITHMETIC => {
            let [quiet, up] = read_flags(&mut input)?;
            Command::Arithmetic { key: read_key(&mut input)?, up, delta: input.u64()?, quiet }
        }
        TOUCH => {
            let [quiet] = read_flags(&mut input)?;
            Command::Touch { key: read_key(&mut input)?, expiry: input.i64()?, quiet }
        }
        FLUSH_ALL => {
            let [quiet] = read_flags(&mut input)?;
            Command::FlushAll { delay: input.i64()?, quiet }
        }
        META_GET => {
            let (key, meta) = read_meta(&mut input)?;
            Command::MetaGet { key, meta }
        }
        META_SET => {
            let (key, meta) = read_meta(&mut input)?;
            meta.store_mode().ok_or(Malformed("mode of ms"))?;
            Command::MetaSet { key, meta, value: read_value(&mut input)? }
        }
        META_DELETE => {
            let (key, meta) = read_meta(&mut input)?;
            Command::MetaDelete { key, meta }
        }
        META_ARITHMETIC => {
            let (key, meta) = read_meta(&mut input)?;
            meta.adds().ok_or(Malformed("mode of ma"))?;
            Command::MetaArithmetic { key, meta }
        }
        META_DEBUG => {
            let [] = read_flags(&mut input)?;
            Command::MetaDebug { key: read_key(&mut input)? }
        }
        LIST => {
            let list = match (input.u8()?, input.u32()?, input.u32()?) {
                (0, part, of) if part < of => List::Metadump { part, of },
                (1, limit, 0) => List::Cachedump { limit },
                (2, 0, 0) => List::Sizes,
                #[cfg(feature = "lab")]
                (3, 0, 0) => List::Behavior,
                _ => return Err(Malformed("form of a list")),
            };
            Command::List { list }
        }
        MEMORY_LIMIT => {
            let [quiet] = read_flags(&mut input)?;
            Command::MemoryLimit { megabytes: input.u32()?, quiet }
        }
        SETTINGS => {
            let change = match (input.u8()?, input.u32()?) {
                (0, 0) => None,
                (1, megabytes) => Some(SettingChange::Memory { megabytes }),
                (2, bytes) if (ITEM_BYTES_MIN..=ITEM_BYTES_MAX).contains(&(bytes as usize)) => {
                    Some(SettingChange::Item { bytes })
                }
                _ => return Err(Malformed("form of settings")),
            };
            Command::Settings { change }
        }
        BINARY => decode_binary(&mut input)?,
        _ => return Err(Malformed("unknown command")),
    };
    input.end()?;
    Ok(command)
}

fn decode_binary(input: &mut SharedReader<'_>) -> Result<Command, Malformed> {
    let (opcode, opaque, compare) = (input.u8()?, input.u32()?, input.u64()?);
    let [creates] = read_flags(input)?;
    let initial = if creates { Some((input.u64()?, input.u32()?)) } else { None };
    let head = BinaryHead { opcode, opaque, compare, initial };
    let classic = input.rest_bytes();
    if classic.first() == Some(&BINARY) {
        return Err(Malformed("a binary request in another"));
    }
    let command = Box::new(decode(&classic)?);
    if !head.fits(&command) {
        return Err(Malformed("command of a binary request"));
    }
    Ok(Command::Binary { head, command })
}

fn decode_get(input: &mut SharedReader<'_>) -> Result<Command, Malformed> {
    let [with_unique, touches] = read_flags(input)?;
    let touch = if touches { Some(input.i64()?) } else { None };
    let mut keys = Keys::new();
    while !input.is_empty() {
        keys.push(read_key(input)?);
    }
    Ok(Command::Get { keys, with_unique, touch })
}

fn decode_store(input: &mut SharedReader<'_>) -> Result<Command, Malformed> {
    let [quiet] = read_flags(input)?;
    let mode = *StoreMode::ALL.get(usize::from(input.u8()?)).ok_or(Malformed("store mode"))?;
    let flags = input.u32()?;
    let expiry = input.i64()?;
    let unique = if mode == StoreMode::Cas { input.u64()? } else { 0 };
    let key = read_key(input)?;
    Ok(Command::Store { mode, key, flags, expiry, unique, value: read_value(input)?, quiet })
}

fn flags<const N: usize>(bits: [bool; N]) -> u8 {
    bits.iter().enumerate().fold(0, |byte, (index, bit)| byte | (u8::from(*bit) << index))
}

fn put_simple(out: &mut Vec<u8>, code: u8, flags: u8, key: &Key) {
    out.put8(code).put8(flags);
    put_key(out, key);
}

fn put_key(out: &mut Vec<u8>, key: &Key) {
    out.put8(key.bytes().len() as u8).put(key.bytes());
}

fn put_meta(out: &mut Vec<u8>, code: u8, key: &Key, meta: &Meta) {
    out.put8(code);
    put_key(out, key);
    out.put16(meta.tokens.len() as u16).put(&meta.tokens);
}

/// Exactly as many bytes as the encoding takes: a vector without spare capacity becomes shared bytes without a copy.
fn encoded_len(command: &Command) -> usize {
    if let Command::Binary { head, command } = command {
        let initial = if head.initial.is_some() { size_of::<u64>() + size_of::<u32>() } else { 0 };
        return 15 + initial + encoded_len(command);
    }
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
        Command::List { .. } => 10,
        Command::MemoryLimit { .. } | Command::Settings { .. } => 6,
        Command::Binary { .. } => 0,
    };
    keys + rest
}

fn read_flags<const N: usize>(input: &mut SharedReader<'_>) -> Result<[bool; N], Malformed> {
    let byte = input.u8()?;
    if u32::from(byte) >= 1 << N {
        return Err(Malformed("unknown flag bit"));
    }
    Ok(std::array::from_fn(|index| byte & (1 << index) != 0))
}

fn read_key(input: &mut SharedReader<'_>) -> Result<Key, Malformed> {
    let length = input.u8()?;
    let bytes = input.take(usize::from(length))?;
    Key::within(input.whole(), bytes).ok_or(Malformed("key length"))
}

fn read_meta(input: &mut SharedReader<'_>) -> Result<(Key, Box<Meta>), Malformed> {
    let key = read_key(input)?;
    let length = usize::from(input.u16()?);
    if length > META_FLAG_BYTES {
        return Err(Malformed("meta flags too long"));
    }
    let meta = Meta::from_tokens(input.take(length)?).map_err(|_| Malformed("meta flags"))?;
    Ok((key, Box::new(meta)))
}

fn read_value(input: &mut SharedReader<'_>) -> Result<Bytes, Malformed> {
    if input.remaining() > ITEM_BYTES_MAX {
        return Err(Malformed("value beyond the largest item"));
    }
    Ok(input.rest_bytes())
}
