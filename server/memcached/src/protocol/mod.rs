//! One client connection: memcached's text and meta protocol, incremental and without I/O, answered for any
//! bytes at all.

mod binary;
mod binary_rendering;
mod line;
mod login;
mod meta;
pub mod numbers;
mod rendering;
mod stats;
mod text;

use std::sync::Arc;

use crosscheck::{Action, ClientCounters, Passwords, Progress, Protocol};

use crate::command::binary::{REQUEST, opcode};
use crate::command::{Command, Key, KeyHash, List, encode, encode_get, encode_with_value};
use crate::limits::{
    GET_LINE_BYTES, ITEM_BYTES_MAX, LINE_BYTES, LIST_PARTS, LISTED_AT_ONCE, REPLY_BYTES, REPLY_LINE_BYTES,
};
use crate::protocol::binary::Decoded;
use crate::protocol::line::Line;
use crate::stats::Stats;
use crate::watch::{WatchKinds, Watcher};

/// The answer to `version`: the stock release whose behaviour this crate follows, and this crate's.
pub const VERSION: &str = concat!("1.6.18-crosscheck-", env!("CARGO_PKG_VERSION"));

/// The protocol state of one client connection.
///
/// Pass the received bytes to [`Protocol::next`]; it never waits for more than one request's bytes and keeps none of
/// them. Where a request ends depends on the bytes alone, not on how they were cut into packets.
#[derive(Clone)]
pub struct Connection {
    stats: Arc<Stats>,
    clients: Arc<ClientCounters>,
    /// Bytes of an unwanted value that are still to be skipped.
    skip: u64,
    /// Who may use the cache; none where everybody may.
    passwords: Option<Arc<Passwords>>,
    /// Whether the client may use the cache.
    may_ask: bool,
    /// The parts of a list that are still to be asked for.
    listing: Option<ListParts>,
    /// What the client watches.
    watcher: Option<Arc<Watcher>>,
    /// Whether the client speaks the binary protocol; its first byte decides, which `None` waits for.
    is_binary: Option<bool>,
    /// Bytes at the start of the input that are known to hold no line end.
    scanned: usize,
    /// Estimated length of the reply to the last ordered request. It is not part of the client's protocol state.
    expected: usize,
}

impl PartialEq for Connection {
    fn eq(&self, other: &Connection) -> bool {
        let same = |connection: &Connection| {
            let Connection { skip, may_ask, listing, watcher, is_binary, scanned, .. } = connection;
            let watched = watcher.as_ref().map(|watcher| watcher.kinds());
            (*skip, *may_ask, *listing, watched, *is_binary, *scanned)
        };
        same(self) == same(other)
            && Arc::ptr_eq(&self.stats, &other.stats)
            && Arc::ptr_eq(&self.clients, &other.clients)
            && self.passwords.as_ref().map(Arc::as_ptr) == other.passwords.as_ref().map(Arc::as_ptr)
    }
}

/// The part of a list that is asked for next. A step consumes input, so the client's line is consumed in as many
/// pieces.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ListParts {
    next: u32,
    of: u32,
    /// Bytes of the line that are not consumed.
    rest: usize,
}

/// The action for a command line.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Answered here.
    Reply(Vec<u8>),
    /// An error or an answer that `noreply` suppresses.
    Nothing,
    /// Ordered.
    Order(Command),
    /// Ordered once `length` bytes of value and their end have arrived; if `loud`, errors are answered.
    Value {
        /// The command, with an empty value.
        command: Command,
        /// Bytes of the value.
        length: usize,
        /// What follows the value.
        end: &'static [u8],
        /// Whether a bad value is answered.
        loud: bool,
    },
    /// Done at once; then this many bytes are skipped.
    Skip {
        /// The action.
        now: Box<Step>,
        /// Bytes to skip.
        bytes: u64,
    },
    /// The client ends the connection, or the bytes that follow cannot be decoded.
    Close(Vec<u8>),
}

impl Connection {
    /// The state of a new connection.
    pub fn new(stats: Arc<Stats>, clients: Arc<ClientCounters>) -> Self {
        Connection {
            stats,
            clients,
            skip: 0,
            passwords: None,
            may_ask: true,
            listing: None,
            watcher: None,
            is_binary: None,
            scanned: 0,
            expected: 0,
        }
    }

    /// The same, for clients that must log in first.
    #[must_use]
    pub fn asking_for(self, passwords: Arc<Passwords>) -> Self {
        Connection { passwords: Some(passwords), may_ask: false, ..self }
    }

    /// Length of the first line without its `\n`; `None` while it has not arrived.
    fn find_line(&mut self, input: &[u8]) -> Result<Option<usize>, ()> {
        let limit = if is_retrieval(input) { GET_LINE_BYTES } else { LINE_BYTES };
        let unseen = self.scanned.min(input.len());
        match memchr::memchr(b'\n', &input[unseen..]) {
            Some(at) if unseen + at <= limit + 1 => {
                self.scanned = 0;
                Ok(Some(unseen + at))
            }
            None if input.len() <= limit + 1 => {
                self.scanned = input.len();
                Ok(None)
            }
            _ => Err(()),
        }
    }

    /// Estimated length of an item in a reply.
    fn expect_item(&self, hash: KeyHash, key_bytes: usize) -> usize {
        match self.stats.sizes.expected(hash) {
            0 => 0,
            value => value + key_bytes + REPLY_LINE_BYTES,
        }
    }

    /// Estimated length of the reply to a command.
    fn expect(&self, command: &Command) -> usize {
        let of = |key: &Key| self.expect_item(key.hash(), key.bytes().len());
        match command {
            Command::Get { keys, .. } => keys.iter().map(of).sum::<usize>().min(REPLY_BYTES),
            Command::Binary { command, .. } => self.expect(command),
            Command::MetaGet { key, meta } if meta.value => of(key) + meta.tokens.len(),
            Command::MetaArithmetic { meta, .. } | Command::MetaGet { meta, .. } => {
                REPLY_LINE_BYTES + meta.tokens.len()
            }
            _ => REPLY_LINE_BYTES,
        }
    }

    /// Asks for the next part of a list.
    fn list_part(&mut self, parts: ListParts) -> Progress {
        let ListParts { next, of, rest } = parts;
        let is_last = next + 1 >= of || rest <= 1;
        self.listing = (!is_last).then(|| ListParts { next: next + 1, of, rest: rest - 1 });
        let command = Command::List { list: List::Metadump { part: next, of } };
        // An estimate: keys of 40 bytes, with what a line has besides.
        let items = usize::try_from(self.stats.items()).unwrap_or(usize::MAX) / of as usize;
        self.expected = items.saturating_mul(2 * REPLY_LINE_BYTES).min(REPLY_BYTES);
        let used = if is_last { rest } else { 1 };
        Progress::Done { used, action: Action::Order(encode(&command)) }
    }

    /// `watch [KIND...]`: from now on the client is told of events of these kinds; of what is read, unless it names
    /// some.
    fn watch(&mut self, line: &Line<'_>) -> Step {
        let named = line.tokens_from(1).map(WatchKinds::named);
        let Some(kinds) = named.collect::<Option<Vec<_>>>() else { return Step::Reply(line::error("ERROR")) };
        let kinds = match kinds.into_iter().reduce(WatchKinds::and) {
            Some(kinds) => kinds,
            None => WatchKinds::FETCHERS,
        };
        self.watcher = Some(Arc::new(Watcher::new(&self.stats.watch, kinds)));
        Step::Reply(line::error("OK"))
    }

    /// The next packet of a client that speaks the binary protocol.
    fn next_packet(&mut self, input: &[u8]) -> Progress {
        let (step, used) = match binary::next(input, self.may_ask) {
            Decoded::NeedMore(wanted) => return Progress::NeedMore(wanted),
            Decoded::Step { step, used } => (step, used),
            Decoded::Own(packet) => {
                let step = match packet.head.opcode {
                    opcode::STAT => stats::packets(&packet, &self.stats, &self.clients),
                    opcode::SASL_LIST_MECHS | opcode::SASL_AUTH | opcode::SASL_STEP => {
                        let (reply, accepted) = login::by_packet(self.passwords.as_deref(), &packet);
                        self.may_ask |= accepted;
                        Step::Reply(reply)
                    }
                    _ => binary::own(&packet),
                };
                (step, packet.bytes())
            }
        };
        self.step(step, used, input)
    }

    fn step(&mut self, step: Step, line: usize, input: &[u8]) -> Progress {
        let (used, action) = match step {
            Step::Reply(bytes) => (line, Action::Reply(bytes)),
            Step::Nothing => (line, Action::Nothing),
            Step::Order(command) => {
                self.expected = self.expect(&command);
                (line, Action::Order(encode(&command)))
            }
            Step::Close(bytes) => (line, Action::Close(bytes)),
            Step::Skip { now, bytes } => {
                self.skip = bytes;
                return self.step(*now, line, input);
            }
            Step::Value { command, length, end, loud } => {
                let whole = line + length + end.len();
                let Some(block) = input.get(line..whole) else { return Progress::NeedMore(whole) };
                let (value, after) = block.split_at(length);
                let action = match after {
                    after if after == end => {
                        // A `get` that follows in the same input is estimated with the new length.
                        command.keys().iter().for_each(|key| self.stats.sizes.raise(key.hash(), length));
                        self.expected = self.expect(&command);
                        Action::Order(encode_with_value(&command, value))
                    }
                    _ if loud => Action::Reply(line::error("CLIENT_ERROR bad data chunk")),
                    _ => Action::Nothing,
                };
                (whole, action)
            }
        };
        Progress::Done { used, action }
    }
}

impl Protocol for Connection {
    fn rendered(&self, input: &[u8], ordered: &[u8]) -> Option<usize> {
        match self.is_binary {
            _ if self.skip > 0 => None,
            Some(true) => binary_rendering::rendered(input, ordered, ITEM_BYTES_MAX),
            _ => rendering::rendered(input, ordered, ITEM_BYTES_MAX),
        }
    }

    fn unsolicited(&mut self, room: usize) -> Vec<u8> {
        self.watcher.as_ref().map_or_else(Vec::new, |watcher| watcher.news(room))
    }

    fn reply_bytes(&self) -> usize {
        self.expected
    }

    fn next(&mut self, input: &[u8]) -> Progress {
        if input.is_empty() {
            return Progress::NeedMore(1);
        }
        if self.skip > 0 {
            let used = usize::try_from(self.skip).unwrap_or(usize::MAX).min(input.len());
            self.skip -= used as u64;
            return Progress::Done { used, action: Action::Nothing };
        }
        if let Some(parts) = self.listing {
            return self.list_part(parts);
        }
        if *self.is_binary.get_or_insert(input[0] == REQUEST) {
            return self.next_packet(input);
        }
        if self.may_ask
            && let Some((key, used)) = line::single_get(input)
        {
            self.scanned = 0;
            self.expected = self.expect_item(KeyHash::of(key), key.len());
            return Progress::Done { used, action: Action::Order(encode_get(key)) };
        }
        let end = match self.find_line(input) {
            Ok(Some(end)) => end,
            Ok(None) => return Progress::NeedMore(input.len() + 1),
            Err(()) => {
                let action = Action::Close(line::error("CLIENT_ERROR line too long"));
                return Progress::Done { used: input.len(), action };
            }
        };
        let line = Line::new(&input[..end]);
        if !self.may_ask
            && let Some(passwords) = &self.passwords
        {
            let (progress, accepted) = login::by_line(passwords, &line, end + 1, input);
            self.may_ask = accepted;
            return progress;
        }
        let step = match line.name() {
            [b'm', letter] => meta::step(*letter, &line),
            b"watch" => self.watch(&line),
            b"stats" => stats::step(&line, &self.stats, &self.clients),
            name => text::step(name, &line),
        };
        if let Step::Order(Command::List { list: List::Metadump { .. } }) = step {
            let wanted = self.stats.items() / LISTED_AT_ONCE + 1;
            let of = u32::try_from(wanted.next_power_of_two()).unwrap_or(u32::MAX);
            let of = of.min(LIST_PARTS).min(self.stats.shards());
            return self.list_part(ListParts { next: 0, of, rest: end + 1 });
        }
        self.step(step, end + 1, input)
    }
}

/// Whether the input begins like a retrieval, whose line may be long. Decided by the first bytes only, so that it does
/// not change while more of the line arrives.
fn is_retrieval(input: &[u8]) -> bool {
    if !matches!(input, [b' ' | b'g', ..]) {
        return false;
    }
    let spaces = input.iter().take(LINE_BYTES).take_while(|byte| **byte == b' ').count();
    let name = &input[spaces..];
    [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|retrieval| name.starts_with(retrieval))
}
