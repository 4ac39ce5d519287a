//! The protocols between generator and servers: one form of requests, one form of replies, three dialects.

mod etcd;
mod memcached;
mod redis;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use memcached_client::reply::number;

use super::definition::Op;

/// One request, ready to be written in any dialect.
#[derive(Clone, Copy, Debug)]
pub struct WireRequest<'a> {
    /// The operation.
    pub op: Op,
    /// The key.
    pub key: &'a [u8],
    /// The value to store; empty for operations that store nothing.
    pub value: &'a [u8],
    /// Lifetime in seconds, 0 for ever.
    pub ttl: u32,
    /// For `cas`: the unique number from a `gets`.
    pub unique: u64,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<'b> {
    /// Stored.
    Stored,
    /// Not stored: the key existed (`add`), or its value had changed (`cas`).
    NotStored,
    /// A value, with its key where the dialect repeats it, and its number for `cas` (0 where there is none).
    Value {
        /// The key as the server repeats it.
        key: Option<&'b [u8]>,
        /// The bytes.
        bytes: Cow<'b, [u8]>,
        /// The number for `cas`.
        unique: u64,
    },
    /// There is nothing under this key.
    Missing,
    /// Removed.
    Deleted,
    /// The counter's new value.
    Number(u64),
    /// The server refuses, with this message.
    Refused(Cow<'b, [u8]>),
}

/// The content of the bytes received so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken<'b> {
    /// An incomplete reply.
    Incomplete,
    /// A reply of this many bytes.
    Whole(usize, Reply<'b>),
    /// Bytes that do not answer the request.
    Nonsense(&'static str),
}

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// memcached's text protocol.
    Memcached,
    /// RESP; a write is followed by `WAIT` for this many replicas.
    Redis {
        /// Replicas that must have a write before it counts as answered.
        wait: u8,
    },
    /// etcd's JSON gateway.
    Etcd,
}

impl Dialect {
    /// Appends a request.
    pub fn write(self, request: &WireRequest<'_>, out: &mut Vec<u8>) {
        match self {
            Dialect::Memcached => memcached::write(request, out),
            Dialect::Redis { wait } => redis::write(request, wait, out),
            Dialect::Etcd => etcd::write(request, out),
        }
    }

    /// Takes the reply to an operation from the front of `bytes`.
    pub fn take(self, op: Op, bytes: &[u8]) -> Taken<'_> {
        match self {
            Dialect::Memcached => memcached::take(op, bytes),
            Dialect::Redis { wait } => redis::take(op, wait, bytes),
            Dialect::Etcd => etcd::take(op, bytes),
        }
    }
}

/// The first line of `bytes` without its end, and the length with it.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr::memchr(b'\n', bytes)?;
    let content = &bytes[..end];
    Some((content.strip_suffix(b"\r").unwrap_or(content), end + 1))
}
