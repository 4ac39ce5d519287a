//! Replies that come later than their request: blocking reads, watches, locks that another client holds.
//!
//! A handler that cannot answer yet keeps an [`Owed`] in its state; the handler of a later request answers it. That
//! reply is a part of the later request's own: its bytes stand behind those for its client, with an index. So
//! everything that protects a reply protects it as well: the second run, the vote, the gate, the rollback of a batch.
//! The replica whose client waits keeps such a result like one for its own clients, and cuts it into parts once it may
//! leave ([`split`]).
//!
//! Which results have parts is in their digest: it is made as if the request had another checksum
//! ([`digest::with_parts`]). A reply whose bytes look like an index by chance, or on purpose, is therefore never cut,
//! and one with an index never leaves as a whole.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use object::Summed;
use vote::{Place, RequestInfo, digest};
use wire::{Put, Reader};

/// The reply that a client waits for, as a value that a service keeps in its state: made by
/// [`Cx::owe_reply`](crate::Cx::owe_reply), answered by [`Cx::reply_to`](crate::Cx::reply_to).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Summed)]
pub struct Owed {
    /// The replica whose client waits.
    replica: u8,
    /// Batch of the request.
    batch: u64,
    /// Number of the request in it.
    request: u16,
}

impl Owed {
    /// A reply that no client waits for: what a request owes that the service has started itself.
    pub const NOTHING: Owed = Owed { replica: u8::MAX, batch: 0, request: 0 };

    /// The reply to the request at `place`, which a client of `replica` has sent.
    pub(crate) fn to(replica: u8, place: Place) -> Self {
        Owed { replica, batch: place.batch, request: place.request }
    }

    /// The place of the request.
    pub(crate) fn place(self) -> Place {
        Place::new(self.batch, self.request)
    }

    /// Whether a client of this replica waits for it.
    pub(crate) fn is_of(self, replica: u8) -> bool {
        self.replica == replica
    }
}

/// What the running request does with replies besides its own.
#[derive(Debug)]
pub(crate) struct Collected {
    /// What its own reply would be; none if no client has sent it.
    own: Option<Owed>,
    owes: Cell<bool>,
    replies: RefCell<Vec<(Owed, Vec<u8>)>>,
}

/// Whether the reply that a run has left has parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HasParts {
    /// It has.
    pub any: bool,
    /// One of them is for a client of this replica.
    pub for_here: bool,
}

impl HasParts {
    /// What the result says of the request that has left such a reply.
    pub fn request_info(self, request_info: RequestInfo) -> RequestInfo {
        let checksum = self.checksum(request_info.checksum);
        RequestInfo { checksum, mine: request_info.mine || self.for_here, ..request_info }
    }

    /// The checksum by which the digest of the reply is made.
    pub fn checksum(self, request_checksum: u32) -> u32 {
        if self.any { digest::with_parts(request_checksum) } else { request_checksum }
    }
}

impl Collected {
    /// Nothing so far, in the request with this reply.
    pub const fn new(own: Option<Owed>) -> Self {
        Collected { own, owes: Cell::new(false), replies: RefCell::new(Vec::new()) }
    }

    /// See [`Cx::owe_reply`](crate::Cx::owe_reply).
    pub fn owe(&self) -> Owed {
        self.owes.set(self.own.is_some());
        self.own.unwrap_or(Owed::NOTHING)
    }

    /// See [`Cx::reply_to`](crate::Cx::reply_to).
    pub fn reply_to(&self, owed: Owed, reply: &[u8]) {
        if owed != Owed::NOTHING {
            self.replies.borrow_mut().push((owed, reply.to_vec()));
        }
    }

    /// The handler of the request with this checksum has succeeded at replica `me`, with this reply to its own client:
    /// the other parts are put behind it.
    #[inline]
    pub fn end(self, me: u8, request_checksum: u32, reply: &mut Vec<u8>) -> HasParts {
        let replies = self.replies.into_inner();
        if replies.is_empty() && !self.owes.get() {
            return HasParts::default();
        }
        if self.owes.get() {
            reply.clear();
        }
        let for_here = replies.iter().any(|(owed, _)| owed.is_of(me));
        append(reply, request_checksum, self.owes.get(), &replies);
        HasParts { any: true, for_here }
    }
}

/// The last bytes of a reply with parts.
const END: u64 = 0x4c61_7465_7250_6172;
/// Bytes of the index per part: replica, batch, request, length.
const ENTRY: usize = 1 + 8 + 2 + 4;
/// Bytes behind the index: length of the own part, checksum of the request, number of other parts, whether the own
/// reply comes later, [`END`].
const TAIL: usize = 4 + 4 + 4 + 1 + 8;

/// Puts `replies` behind the own `reply`, and their index.
fn append(reply: &mut Vec<u8>, request_checksum: u32, owes: bool, replies: &[(Owed, Vec<u8>)]) {
    let own = reply.len() as u32;
    for (_, bytes) in replies {
        reply.extend_from_slice(bytes);
    }
    for (owed, bytes) in replies {
        reply.put8(owed.replica).put64(owed.batch).put16(owed.request).put32(bytes.len() as u32);
    }
    reply.put32(own).put32(request_checksum).put32(replies.len() as u32).put8(u8::from(owes)).put64(END);
}

/// A reply with parts, cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplyParts {
    /// Checksum of the request that made them.
    pub request_checksum: u32,
    /// The reply to its own client, and its digest; none if it comes later.
    pub own: Option<(Bytes, u128)>,
    /// Replies that others waited for.
    pub later: Vec<(Owed, Bytes)>,
}

/// Cuts a reply that may leave, if it has parts: `voted` is the digest that was voted on, or that its runs have made.
pub(crate) fn split(reply: &Bytes, voted: u128) -> Option<ReplyParts> {
    let index_end = reply.len().checked_sub(TAIL)?;
    let mut tail = Reader::new(reply.get(index_end..)?);
    let (own, request_checksum) = (tail.u32().ok()? as usize, tail.u32().ok()?);
    let (count, owes, end) = (tail.u32().ok()? as usize, tail.u8().ok()?, tail.u64().ok()?);
    if end != END || owes > 1 {
        return None;
    }
    // The digest of a part is made before the whole is compared: bytes that change afterwards do not fit it.
    let own_bytes = reply.get(..own)?;
    let own_digest = digest::reply(request_checksum, own_bytes);
    if digest::reply(digest::with_parts(request_checksum), reply) != voted {
        return None;
    }
    let index_begin = index_end.checked_sub(count.checked_mul(ENTRY)?)?;
    let mut index = Reader::new(reply.get(index_begin..index_end)?);
    let mut at = own;
    let mut later = Vec::with_capacity(count);
    for _ in 0..count {
        let owed = Owed { replica: index.u8().ok()?, batch: index.u64().ok()?, request: index.u16().ok()? };
        let end = at.checked_add(index.u32().ok()? as usize).filter(|end| *end <= index_begin)?;
        later.push((owed, reply.slice(at..end)));
        at = end;
    }
    (at == index_begin).then(|| ReplyParts {
        request_checksum,
        own: (owes == 0).then(|| (reply.slice(..own), own_digest)),
        later,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKSUM: u32 = 77;

    fn owed(replica: u8, batch: u64) -> Owed {
        Owed::to(replica, Place::new(batch, 3))
    }

    /// What a handler leaves that answers these, at replica 1; and the digest of that.
    fn left(owes: bool, own: &[u8], replies: &[(Owed, &[u8])]) -> (Bytes, HasParts, u128) {
        let collected = Collected::new(Some(owed(0, 9)));
        if owes {
            assert_eq!(collected.owe(), owed(0, 9));
        }
        replies.iter().for_each(|(owed, bytes)| collected.reply_to(*owed, bytes));
        let mut reply = own.to_vec();
        let parts = collected.end(1, CHECKSUM, &mut reply);
        let digest = digest::reply(parts.checksum(CHECKSUM), &reply);
        (reply.into(), parts, digest)
    }

    #[test]
    fn a_reply_without_parts_stays_as_it_is() {
        let (reply, parts, digest) = left(false, b"STORED", &[(Owed::NOTHING, b"no client waits")]);
        assert_eq!((&reply[..], parts), (&b"STORED"[..], HasParts::default()));
        assert_eq!(split(&reply, digest), None);
    }

    #[test]
    fn every_part_comes_back_with_what_it_answers() {
        let replies: [(Owed, &[u8]); 3] = [(owed(1, 4), b"first"), (owed(2, 5), b""), (owed(1, 6), b"third")];
        for (owes, own) in [(false, &b"STORED"[..]), (false, b""), (true, b"")] {
            let (reply, parts, voted) = left(owes, own, &replies);
            assert_eq!(parts, HasParts { any: true, for_here: true });
            let parts = split(&reply, voted).expect("it has parts");
            let own_part = (Bytes::copy_from_slice(own), digest::reply(CHECKSUM, own));
            assert_eq!(parts.own, (!owes).then_some(own_part));
            let later: Vec<(Owed, &[u8])> = parts.later.iter().map(|(of, bytes)| (*of, &bytes[..])).collect();
            assert_eq!((parts.request_checksum, later), (CHECKSUM, replies.to_vec()));
        }
        let elsewhere = left(false, b"", &[(owed(2, 5), b"x")]).1;
        assert_eq!(elsewhere, HasParts { any: true, for_here: false });
        let (waits, ..) = left(true, b"dropped", &[]);
        assert_eq!(waits.len(), TAIL, "what the handler had appended is dropped");
    }

    #[test]
    fn no_corrupt_reply_is_cut() {
        let (reply, _, voted) = left(false, b"STORED", &[(owed(1, 4), b"first"), (owed(2, 5), b"second")]);
        for bit in 0..8 * reply.len() {
            let mut wrong = reply.to_vec();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(split(&wrong.into(), voted), None, "bit {bit}");
        }
        for length in 0..reply.len() {
            assert_eq!(split(&reply.slice(..length), voted), None, "{length} bytes");
        }
    }

    /// A client may store whatever it likes: it gets its bytes back, and no other client gets a part of them.
    #[test]
    fn bytes_that_look_like_parts_are_a_reply_as_any_other() {
        let (forged, ..) = left(false, b"value", &[(owed(1, 4), b"for another client")]);
        let (reply, parts, voted) = left(false, &forged, &[]);
        assert_eq!((&reply, parts.any), (&forged, false));
        assert_eq!(split(&reply, voted), None);
    }
}
