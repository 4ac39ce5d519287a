//! Lists of what is stored, at one position of the order: keys for tools that dump or count them, sizes for operators.
//!
//! Stock memcached's crawler walks while others write; here a list is one request, and so a consistent copy, or a few
//! requests where there are many items: no request may keep others waiting for long.

use std::collections::BTreeMap;

use crate::command::List;
use crate::limits::REPLY_BYTES;
use crate::protocol::numbers::push_decimal;
use crate::store::expiry::{NEVER, seconds};
use crate::store::{Item, Marks};
use crate::watch::push_escaped;

/// Longest list of keys in the form of `stats cachedump`, in bytes, as in stock memcached.
const CACHEDUMP_BYTES: usize = 2 << 20;
/// `stats sizes` counts items in steps of so many bytes.
const SIZE_STEP: usize = 32;

/// A list that is being written.
pub(crate) struct Listing<'r> {
    what: List,
    reply: &'r mut Vec<u8>,
    start: usize,
    listed: u32,
    /// Items per step of size.
    sizes: BTreeMap<usize, u64>,
    now_us: u64,
}

impl<'r> Listing<'r> {
    pub(crate) fn new(what: List, now_us: u64, reply: &'r mut Vec<u8>) -> Self {
        Listing { what, start: reply.len(), reply, listed: 0, sizes: BTreeMap::new(), now_us }
    }

    /// Adds a live item. Returns whether more fit.
    pub(crate) fn add(&mut self, item: &Item) -> bool {
        let length = self.reply.len() - self.start;
        match self.what {
            List::Metadump { .. } => {
                self.metadump(item);
                length < REPLY_BYTES
            }
            List::Cachedump { limit } => {
                let fits = (limit == 0 || self.listed < limit) && length < CACHEDUMP_BYTES;
                if fits {
                    self.cachedump(item);
                }
                fits
            }
            List::Sizes => {
                *self.sizes.entry(item.stock_size().div_ceil(SIZE_STEP)).or_default() += 1;
                true
            }
            #[cfg(feature = "lab")]
            List::Behavior => false,
        }
    }

    /// A line of `lru_crawler metadump`. Its line ends are those of stock memcached.
    fn metadump(&mut self, item: &Item) {
        self.reply.extend_from_slice(b"key=");
        push_escaped(item.key(), self.reply);
        self.reply.extend_from_slice(b" exp=");
        match item.deadline() {
            NEVER => self.reply.extend_from_slice(b"-1"),
            deadline => push_decimal(self.reply, u64::from(seconds(deadline))),
        }
        let accessed = u64::from(seconds(self.now_us)).saturating_sub(item.idle_s(self.now_us));
        self.number(b" la=", accessed);
        self.number(b" cas=", item.unique());
        let fetched = item.marks().has(Marks::FETCHED);
        self.reply.extend_from_slice(if fetched { b" fetch=yes cls=1" } else { b" fetch=no cls=1" });
        self.number(b" size=", item.stock_size() as u64);
        self.reply.push(b'\n');
    }

    /// A line of `stats cachedump`.
    fn cachedump(&mut self, item: &Item) {
        self.listed += 1;
        self.reply.extend_from_slice(b"ITEM ");
        self.reply.extend_from_slice(item.key());
        self.number(b" [", item.value_len() as u64);
        self.number(b" b; ", u64::from(seconds(item.deadline())));
        self.reply.extend_from_slice(b" s]\r\n");
    }

    fn number(&mut self, before: &[u8], number: u64) {
        self.reply.extend_from_slice(before);
        push_decimal(self.reply, number);
    }

    /// Ends the list, or the part of it; one that is too long becomes an error.
    pub(crate) fn end(mut self) {
        for (step, count) in std::mem::take(&mut self.sizes) {
            self.number(b"STAT ", (step * SIZE_STEP) as u64);
            self.number(b" ", count);
            self.reply.extend_from_slice(b"\r\n");
        }
        if self.reply.len() - self.start > REPLY_BYTES {
            self.reply.truncate(self.start);
            self.reply.extend_from_slice(b"SERVER_ERROR the list of keys is longer than 64 MiB\r\n");
        } else if !matches!(self.what, List::Metadump { part, of } if part + 1 < of) {
            self.reply.extend_from_slice(b"END\r\n");
        }
    }
}
