//! The classic commands: their tokens, and memcached's answers to wrong ones.

use bytes::Bytes;

use crate::command::{Command, Key, Keys, List, StoreMode};
use crate::limits::{ITEM_BYTES_MAX, MEMORY_MB_MAX, stock_overhead};
use crate::protocol::line::{Line, error};
use crate::protocol::numbers::{signed, unsigned, unsigned_32};
use crate::protocol::{Step, VERSION};

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";

/// The request of the command `name` with these tokens.
pub(super) fn step(name: &[u8], line: &Line<'_>) -> Step {
    let arguments = line.arguments();
    match (name, arguments) {
        (b"get" | b"bget", 1..) => retrieve(line, false, 1),
        (b"gets", 1..) => retrieve(line, true, 1),
        (b"gat", 1..) => touch_and_retrieve(line, false),
        (b"gats", 1..) => touch_and_retrieve(line, true),
        (b"set", 4..=5) => store(StoreMode::Set, line),
        (b"add", 4..=5) => store(StoreMode::Add, line),
        (b"replace", 4..=5) => store(StoreMode::Replace, line),
        (b"append", 4..=5) => store(StoreMode::Append, line),
        (b"prepend", 4..=5) => store(StoreMode::Prepend, line),
        (b"cas", 5..=6) => store(StoreMode::Cas, line),
        (b"delete", 1..=3) => delete(line),
        (b"incr", 2..=3) => arithmetic(line, true),
        (b"decr", 2..=3) => arithmetic(line, false),
        (b"touch", 2..=3) => touch(line),
        (b"flush_all", 0..=2) => flush_all(line),
        (b"cache_memlimit", 1..=2) => memory_limit(line),
        (b"lru_crawler", 2) if line.token(1) == b"metadump" => metadump(line),
        (b"verbosity", 1..=2) => verbosity(line),
        (b"slabs", 2..) if line.token(1) == b"automove" => slabs_automove(line),
        (b"version", _) => Step::Reply(error(&format!("VERSION {VERSION}"))),
        (b"quit", _) => Step::Close(Vec::new()),
        (b"shutdown", _) => Step::Reply(error("ERROR: shutdown not enabled")),
        _ if is_http(line) => Step::Close(Vec::new()),
        _ => Step::Reply(error("ERROR")),
    }
}

/// Whether this is a line of an HTTP request. A web page can have its reader's browser send one to any
/// address, with commands in its body: stock closes at the version, and Redis at the two other words.
fn is_http(line: &Line<'_>) -> bool {
    let is = |word: &[u8]| line.name().eq_ignore_ascii_case(word);
    line.token(line.arguments()).starts_with(b"HTTP/") || is(b"POST") || is(b"Host:")
}

/// An error, unless the client sent `noreply`.
fn fail(line: &Line<'_>, text: &str) -> Step {
    if line.is_quiet() { Step::Nothing } else { Step::Reply(error(text)) }
}

fn retrieve(line: &Line<'_>, with_unique: bool, first_key: usize) -> Step {
    let mut keys = Keys::new();
    for token in line.tokens_from(first_key) {
        let Some(key) = Key::text(token) else { return Step::Reply(error(BAD_FORMAT)) };
        keys.push(key);
    }
    Step::Order(Command::Get { keys, with_unique, touch: None })
}

fn touch_and_retrieve(line: &Line<'_>, with_unique: bool) -> Step {
    let Some(expiry) = signed(line.token(1)) else { return Step::Reply(error(BAD_EXPTIME)) };
    match retrieve(line, with_unique, 2) {
        Step::Order(Command::Get { keys, with_unique, .. }) => {
            Step::Order(Command::Get { keys, with_unique, touch: Some(expiry) })
        }
        refused => refused,
    }
}

fn store(mode: StoreMode, line: &Line<'_>) -> Step {
    let quiet = line.is_quiet();
    let Some(key) = Key::text(line.token(1)) else { return fail(line, BAD_FORMAT) };
    let numbers = (unsigned_32(line.token(2)), signed(line.token(3)), value_length(line.token(4)));
    let (Some(flags), Some(expiry), Some(length)) = numbers else { return fail(line, BAD_FORMAT) };
    let unique = match mode {
        StoreMode::Cas => unsigned(line.token(5)),
        _ => Some(0),
    };
    let Some(unique) = unique else { return fail(line, BAD_FORMAT) };
    if is_too_large(&key, flags, length) {
        let now = match mode {
            StoreMode::Set => Step::Order(Command::TooLarge { key, quiet }),
            _ => fail(line, TOO_LARGE),
        };
        return Step::Skip { now: Box::new(now), bytes: length as u64 + 2 };
    }
    let command = Command::Store { mode, key, flags, expiry, unique, value: Bytes::new(), quiet };
    Step::Value { command, length, end: b"\r\n", loud: !quiet }
}

/// The answer to a value beyond the item limit.
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";

/// The length of a value that a command line announces: at most 2^31 - 3, as in memcached.
pub(super) fn value_length(token: &[u8]) -> Option<usize> {
    let length = i32::try_from(signed(token)?).ok()?;
    if length > i32::MAX - 2 { None } else { usize::try_from(length).ok() }
}

/// Whether an item is too large for whatever limit a group may have; one that is too large for its own is refused at
/// the request's position.
pub(super) fn is_too_large(key: &Key, flags: u32, length: usize) -> bool {
    stock_overhead(flags) + key.bytes().len() + length > ITEM_BYTES_MAX
}

fn delete(line: &Line<'_>) -> Step {
    let quiet = line.is_quiet();
    // Old clients send a hold time after the key; only 0 is still accepted.
    let zero = line.token(2) == b"0";
    let valid = match line.arguments() {
        1 => true,
        2 => zero || quiet,
        _ => zero && quiet,
    };
    if !valid {
        return fail(line, BAD_DELETE);
    }
    let quiet = quiet && line.arguments() > 1;
    match Key::text(line.token(1)) {
        Some(key) => Step::Order(Command::Delete { key, quiet }),
        None => fail(line, BAD_FORMAT),
    }
}

fn arithmetic(line: &Line<'_>, up: bool) -> Step {
    let Some(key) = Key::text(line.token(1)) else { return fail(line, BAD_FORMAT) };
    match unsigned(line.token(2)) {
        Some(delta) => Step::Order(Command::Arithmetic { key, up, delta, quiet: line.is_quiet() }),
        None => fail(line, BAD_DELTA),
    }
}

fn touch(line: &Line<'_>) -> Step {
    let Some(key) = Key::text(line.token(1)) else { return fail(line, BAD_FORMAT) };
    match signed(line.token(2)) {
        Some(expiry) => Step::Order(Command::Touch { key, expiry, quiet: line.is_quiet() }),
        None => fail(line, BAD_EXPTIME),
    }
}

fn flush_all(line: &Line<'_>) -> Step {
    let quiet = line.is_quiet();
    if line.arguments() == usize::from(quiet) {
        return Step::Order(Command::FlushAll { delay: 0, quiet });
    }
    match signed(line.token(1)) {
        Some(delay) => Step::Order(Command::FlushAll { delay, quiet }),
        None => fail(line, BAD_EXPTIME),
    }
}

/// `cache_memlimit MIB`. A limit in bytes, given by mistake, is refused as stock refuses it; one that is too small for
/// the group is, at the request's position.
fn memory_limit(line: &Line<'_>) -> Step {
    let Some(megabytes) = unsigned_32(line.token(1)) else { return fail(line, "ERROR") };
    if megabytes > MEMORY_MB_MAX {
        return fail(line, "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes");
    }
    Step::Order(Command::MemoryLimit { megabytes, quiet: line.is_quiet() })
}

/// `lru_crawler metadump CLASS[,CLASS...]`, `all` or `hash`. All items are of class 1.
fn metadump(line: &Line<'_>) -> Step {
    let mut classes = line.token(2).split(|byte| *byte == b',');
    if matches!(line.token(2), b"all" | b"hash") || classes.any(|class| class == b"1") {
        Step::Order(Command::List { list: List::Metadump { part: 0, of: 1 } })
    } else {
        Step::Reply(error("END"))
    }
}

/// Checked as stock does, without effect: memory is not cut into slabs, so there is nothing to move between them.
fn slabs_automove(line: &Line<'_>) -> Step {
    match unsigned_32(line.token(2)) {
        None => fail(line, BAD_FORMAT),
        Some(0..=2) => fail(line, "OK"),
        Some(_) => fail(line, "ERROR"),
    }
}

/// Accepted without effect: the operator, not a client, decides about the log messages of a replica.
fn verbosity(line: &Line<'_>) -> Step {
    if unsigned(line.token(1)).is_none() {
        return fail(line, BAD_FORMAT);
    }
    fail(line, "OK")
}
