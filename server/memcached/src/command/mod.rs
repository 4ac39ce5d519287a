//! A client's request in the form that is ordered: all that a replica needs to execute it and to render the reply.

pub mod binary;
mod codec;
mod key;
mod meta;

use bytes::Bytes;
use crosscheck::object::Shaped;
use smallvec::SmallVec;

use crate::command::binary::{BinaryHead, opcode};

pub(crate) use codec::{ARITHMETIC, BINARY, DELETE, GET, STORE, TOUCH, encode_get};
pub use codec::{decode, encode, encode_with_value, kind_name};
pub use key::{Key, KeyHash};
pub use meta::{Echo, Meta, MetaError};

/// The keys of a retrieval: mostly one.
pub type Keys = SmallVec<[Key; 1]>;

/// One ordered request.
#[derive(Clone, PartialEq, Eq, Debug, Shaped)]
pub enum Command {
    /// `get`, `gets`, `gat`, `gats`: one atomic read of all keys.
    Get {
        /// The keys in the client's order, repetitions included.
        keys: Keys,
        /// Whether the reply carries each item's unique (`gets`, `gats`).
        with_unique: bool,
        /// The new expiry time (`gat`, `gats`), as the client wrote it.
        touch: Option<i64>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store {
        /// The mode: what happens to an existing item.
        mode: StoreMode,
        /// The key.
        key: Key,
        /// The client's flags.
        flags: u32,
        /// Expiry time as the client wrote it: see [`crate::store::expiry::deadline`].
        expiry: i64,
        /// The unique that the item must have (`cas` only, 0 otherwise).
        unique: u64,
        /// The value.
        value: Bytes,
        /// `noreply`.
        quiet: bool,
    },
    /// A `set` or `ms` whose value exceeds the item limit: the old item is removed, so that no client reads stale data.
    TooLarge {
        /// The key.
        key: Key,
        /// `noreply`.
        quiet: bool,
    },
    /// `delete`.
    Delete {
        /// The key.
        key: Key,
        /// `noreply`.
        quiet: bool,
    },
    /// `incr`, `decr`.
    Arithmetic {
        /// The key.
        key: Key,
        /// Whether to add.
        up: bool,
        /// By how much.
        delta: u64,
        /// `noreply`.
        quiet: bool,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: Key,
        /// The new expiry time as the client wrote it.
        expiry: i64,
        /// `noreply`.
        quiet: bool,
    },
    /// `flush_all`: everything stored before it (or before `delay` has passed) is gone.
    FlushAll {
        /// Seconds or Unix time as for expiry; 0 and below mean now.
        delay: i64,
        /// `noreply`.
        quiet: bool,
    },
    /// `mg`.
    MetaGet {
        /// The key, decoded.
        key: Key,
        /// The flags.
        meta: Box<Meta>,
    },
    /// `ms`.
    MetaSet {
        /// The key, decoded.
        key: Key,
        /// The flags.
        meta: Box<Meta>,
        /// The value.
        value: Bytes,
    },
    /// `md`.
    MetaDelete {
        /// The key, decoded.
        key: Key,
        /// The flags.
        meta: Box<Meta>,
    },
    /// `ma`.
    MetaArithmetic {
        /// The key, decoded.
        key: Key,
        /// The flags.
        meta: Box<Meta>,
    },
    /// `me`.
    MetaDebug {
        /// The key, decoded.
        key: Key,
    },
    /// A list of all items or of a part of them, at one position.
    List {
        /// The list.
        list: List,
    },
    /// `cache_memlimit`: another memory limit.
    MemoryLimit {
        /// In MiB.
        megabytes: u32,
        /// `noreply`.
        quiet: bool,
    },
    /// The settings of the group, of which one is changed first: an operator's request.
    Settings {
        /// The change.
        change: Option<SettingChange>,
    },
    /// A request of the binary protocol: one of the classic commands, never quiet, of one key.
    Binary {
        /// What the binary protocol adds.
        head: BinaryHead,
        /// The command.
        command: Box<Command>,
    },
}

/// A list of what is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Shaped)]
pub enum List {
    /// `lru_crawler metadump`: keys, times, uniques and sizes of the items in one of `of` parts of the shards.
    Metadump {
        /// Number of the part, from 0.
        part: u32,
        /// How many parts there are, at least one.
        of: u32,
    },
    /// `stats cachedump`: keys, lengths and times.
    Cachedump {
        /// How many items at most; 0 for as many as fit into a reply of that kind.
        limit: u32,
    },
    /// `stats sizes`: how many items there are of which size.
    Sizes,
    /// `stats behavior`: no items, but the behavior as which the group acts at this position
    /// ([`crosscheck::Service::BEHAVIORS`]). It is all in which the behaviors of a laboratory's build differ.
    #[cfg(feature = "lab")]
    Behavior,
}

/// A setting of the group, and its new value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Shaped)]
pub enum SettingChange {
    /// The memory limit.
    Memory {
        /// In MiB.
        megabytes: u32,
    },
    /// The longest item.
    Item {
        /// In bytes.
        bytes: u32,
    },
}

/// The mode of a storage command, for an existing or a missing item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Shaped)]
pub enum StoreMode {
    /// Store in any case.
    Set,
    /// Only when there is none.
    Add,
    /// Only when there is one.
    Replace,
    /// After the existing value.
    Append,
    /// Before the existing value.
    Prepend,
    /// Only when the existing item has the given unique.
    Cas,
}

impl StoreMode {
    /// Every mode; the index is its code in the ordered encoding.
    pub const ALL: [StoreMode; 6] = [
        StoreMode::Set,
        StoreMode::Add,
        StoreMode::Replace,
        StoreMode::Append,
        StoreMode::Prepend,
        StoreMode::Cas,
    ];
}

impl Command {
    /// The keys it reads or changes, in order; empty for what concerns all items.
    pub fn keys(&self) -> &[Key] {
        match self.classic() {
            Command::Get { keys, .. } => keys,
            // No binary request is in another.
            Command::FlushAll { .. }
            | Command::List { .. }
            | Command::MemoryLimit { .. }
            | Command::Settings { .. }
            | Command::Binary { .. } => &[],
            Command::Store { key, .. }
            | Command::TooLarge { key, .. }
            | Command::Delete { key, .. }
            | Command::Arithmetic { key, .. }
            | Command::Touch { key, .. }
            | Command::MetaGet { key, .. }
            | Command::MetaSet { key, .. }
            | Command::MetaDelete { key, .. }
            | Command::MetaArithmetic { key, .. }
            | Command::MetaDebug { key } => std::slice::from_ref(key),
        }
    }

    /// The command itself, without what the binary protocol adds.
    pub fn classic(&self) -> &Command {
        if let Command::Binary { command, .. } = self { command } else { self }
    }

    /// Whether the client wants no reply at all (`noreply`; the quiet flag of meta commands depends on the result).
    pub fn is_quiet(&self) -> bool {
        match self {
            Command::Store { quiet, .. }
            | Command::TooLarge { quiet, .. }
            | Command::Delete { quiet, .. }
            | Command::Arithmetic { quiet, .. }
            | Command::Touch { quiet, .. }
            | Command::FlushAll { quiet, .. }
            | Command::MemoryLimit { quiet, .. } => *quiet,
            _ => false,
        }
    }
}

impl BinaryHead {
    /// Whether a request with this head can have this command.
    fn fits(&self, command: &Command) -> bool {
        use opcode::*;
        let operation_fits = match command {
            Command::Get { keys, with_unique: true, touch: None } => {
                keys.len() == 1 && matches!(self.opcode, GET | GETQ | GETK | GETKQ)
            }
            Command::Get { keys, with_unique: true, touch: Some(_) } => {
                keys.len() == 1 && matches!(self.opcode, GAT | GATQ | GATK | GATKQ)
            }
            Command::Store { mode, .. } => match mode {
                StoreMode::Set => matches!(self.opcode, SET | SETQ),
                StoreMode::Add => matches!(self.opcode, ADD | ADDQ),
                StoreMode::Replace => matches!(self.opcode, REPLACE | REPLACEQ),
                StoreMode::Append => matches!(self.opcode, APPEND | APPENDQ),
                StoreMode::Prepend => matches!(self.opcode, PREPEND | PREPENDQ),
                StoreMode::Cas => false,
            },
            Command::TooLarge { .. } => matches!(self.opcode, SET | SETQ),
            Command::Delete { .. } => matches!(self.opcode, DELETE | DELETEQ),
            Command::Arithmetic { up: true, .. } => matches!(self.opcode, INCREMENT | INCREMENTQ),
            Command::Arithmetic { up: false, .. } => matches!(self.opcode, DECREMENT | DECREMENTQ),
            Command::Touch { .. } => self.opcode == TOUCH,
            Command::FlushAll { .. } => matches!(self.opcode, FLUSH | FLUSHQ),
            _ => false,
        };
        let may_create = matches!(command, Command::Arithmetic { .. });
        operation_fits && !command.is_quiet() && (may_create || self.initial.is_none())
    }
}
