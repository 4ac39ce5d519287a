//! Replies that are about to leave on a connection: the last check of each before the kernel has it.
//!
//! A reply that was exchanged, lost, or sent twice answers the wrong request, and no vote detects it any more. So each
//! has a digest and the number of its place, and the sent bytes are counted in two ways.

use std::io::IoSlice;

use bytes::Bytes;
use object::{SealBroken, SealedQueue};

use crate::reply;

/// Most replies that one system call writes.
const SLICES: usize = 64;

/// Longest part of one reply that a check covers: for a slow reader, a much longer reply is checked part by part. A
/// list with so many bytes ends: bytes that a full socket does not accept are checked again.
const STRETCH: usize = 1 << 20;

/// Replaces a request's checksum, in the digest of a reply to a command that is not ordered.
const NOT_ORDERED: u32 = 0;

/// A reply, and the digest that verifies it.
#[derive(Default)]
pub(super) struct VerifiedReply {
    pub bytes: Bytes,
    /// The checksum of its request, and its digest: the one that was voted on, or one computed where the reply was
    /// made. None without cross-checking.
    pub digest: Option<(u32, u128)>,
}

impl VerifiedReply {
    /// A reply of this connection itself, to a command that is not ordered.
    pub fn here(bytes: impl Into<Bytes>, twice: bool) -> Self {
        let bytes = bytes.into();
        let digest = twice.then(|| (NOT_ORDERED, vote::digest::reply(NOT_ORDERED, &bytes)));
        VerifiedReply { bytes, digest }
    }

    /// Whether the bytes still are the reply; with cross-checking, bytes without a digest are not.
    fn is_right(&self, twice: bool) -> bool {
        let fits = |(request_checksum, digest)| vote::digest::reply(request_checksum, &self.bytes) == digest;
        self.digest.map_or(!twice, fits)
    }
}

/// A reply whose turn has come.
struct Unsent {
    reply: VerifiedReply,
    /// Bytes of it that have left.
    sent: usize,
    /// Its bytes have an allocation of their own: see [`Leaving::set_apart`].
    is_apart: bool,
    /// Digests of the parts of a long reply, computed when the whole reply was right.
    stretches: Vec<u128>,
}

impl Unsent {
    fn new(reply: VerifiedReply, twice: bool) -> Self {
        let stretch = |bytes: &[u8]| vote::digest::reply(NOT_ORDERED, bytes);
        let is_long = twice && reply.bytes.len() > STRETCH;
        let mut stretches = Vec::new();
        if is_long {
            stretches.extend(reply.bytes.chunks(STRETCH).map(stretch));
            if !reply.is_right(twice) {
                // Without parts it is checked as a whole, and does not leave.
                stretches.clear();
            }
        }
        Unsent { reply, sent: 0, is_apart: false, stretches }
    }

    /// Bytes that have not left.
    fn left(&self) -> usize {
        self.reply.bytes.len().saturating_sub(self.sent)
    }

    /// The end of the part of the reply that leaves next.
    fn end(&self) -> usize {
        let len = self.reply.bytes.len();
        if self.stretches.is_empty() { len } else { len.min((self.sent / STRETCH + 1) * STRETCH) }
    }

    /// The bytes that leave next: all the rest, unless it is long.
    fn rest(&self) -> &[u8] {
        self.reply.bytes.get(self.sent..self.end()).unwrap_or_default()
    }

    /// Whether the bytes that leave next are those that were voted on.
    fn is_right(&self, twice: bool) -> bool {
        if self.stretches.is_empty() {
            return self.reply.is_right(twice);
        }
        let (number, end) = (self.sent / STRETCH, self.end());
        let bytes = self.reply.bytes.get(number * STRETCH..end).unwrap_or_default();
        self.stretches.get(number) == Some(&vote::digest::reply(NOT_ORDERED, bytes))
    }
}

/// The replies whose turn has come.
#[derive(Default)]
pub(super) struct Leaving {
    /// Each reply, under the number of its place. Every place is entered here, also one without bytes: a gap is a lost
    /// reply.
    unsent: SealedQueue<Unsent>,
    /// Bytes of them that have not left.
    bytes: usize,
}

impl Leaving {
    /// Bytes that have not left.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that are held for them: a reply that has left in part is held as a whole.
    pub fn held(&self) -> usize {
        self.unsent.as_is().next().map_or(0, |unsent| unsent.sent).saturating_add(self.bytes)
    }

    /// Whether everything has left.
    pub fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }

    /// The socket accepts no more for now. Each short reply gets an allocation of its own: before, it was in a block
    /// with those of other clients (`reply::Replies`), and kept the memory of all of them.
    pub fn set_apart(&mut self) {
        for unsent in self.unsent.as_is_mut().rev().take_while(|unsent| !unsent.is_apart) {
            unsent.is_apart = true;
            if unsent.reply.bytes.len() < reply::LARGE {
                unsent.reply.bytes = Bytes::copy_from_slice(&unsent.reply.bytes);
            }
        }
    }

    /// Adds the reply of the place with this number.
    pub fn push(&mut self, number: u64, reply: VerifiedReply, twice: bool) {
        self.bytes += reply.bytes.len();
        self.unsent.push_as(number, Unsent::new(reply, twice));
    }

    /// Removes replies without bytes, which no call can send; false if one should have bytes, or if the queue does not
    /// hold all unsent replies before the place `next`.
    pub fn pass_empty(&mut self, next: u64, twice: bool) -> bool {
        loop {
            match self.unsent.pop_if(|front| front.left() == 0 && front.reply.is_right(twice)) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(SealBroken) => return false,
            }
        }
        let is_wrong = |front: &Unsent| front.left() == 0;
        !self.unsent.as_is().next().is_some_and(is_wrong) && (!twice || self.adds_up(next))
    }

    /// Whether the queue holds all collected replies that have not left: the right number of replies, and of bytes.
    /// After one that was lost or is sent again, replies would be taken for those to other requests.
    fn adds_up(&self, next: u64) -> bool {
        let bytes: usize = self.unsent.as_is().map(Unsent::left).sum();
        self.unsent.is_intact() && self.unsent.next_number() == next && bytes == self.bytes
    }

    /// So many bytes have left. Removes replies that have left as a whole.
    pub fn sent(&mut self, mut count: usize) {
        // The next check detects a wrong count.
        self.bytes = self.bytes.wrapping_sub(count);
        while count > 0
            && let Ok(Some(front)) = self.unsent.front_mut()
        {
            let left = front.left();
            if count < left {
                front.sent += count;
                return;
            }
            count -= left;
            if self.unsent.pop().is_err() {
                return;
            }
        }
    }

    /// Whether the next `count` bytes still are those that may leave.
    pub fn is_right(&self, count: usize, next: u64, twice: bool) -> bool {
        self.slices(next, twice).iter().map(|slice| slice.len()).sum::<usize>() >= count
    }

    /// The list that the system call will read, up to the first reply that differs from the one voted on. This is the
    /// last check: after it only the kernel reads the bytes.
    ///
    /// The list is made first and checked afterwards, in memory: an entry that was not written, and still has the value
    /// of an earlier list, refers to another reply. The counts are compared only then: the list was made from the sent
    /// bytes of each reply.
    pub fn slices(&self, next: u64, twice: bool) -> Vec<IoSlice<'_>> {
        // Nothing leaves after a reply that leaves in part.
        let (mut follows, mut held) = (true, 0);
        let is_next = |unsent: &&Unsent| {
            let is_next = follows && held < STRETCH;
            follows = unsent.end() == unsent.reply.bytes.len();
            held += unsent.rest().len();
            is_next
        };
        let next_ones = self.unsent.as_is().take(SLICES).take_while(is_next);
        let mut slices: Vec<IoSlice<'_>> = next_ones.map(|unsent| IoSlice::new(unsent.rest())).collect();
        let listed = std::hint::black_box(&slices).iter().zip(self.unsent.iter());
        let is_right = |(slice, unsent): &(&IoSlice<'_>, Result<&Unsent, SealBroken>)| {
            let Ok(unsent) = *unsent else { return false };
            let bytes = &unsent.reply.bytes;
            let is_its_own = slice.as_ptr() as usize == bytes.as_ptr() as usize + unsent.sent
                && slice.len() + unsent.sent == unsent.end();
            is_its_own && unsent.is_right(twice)
        };
        slices.truncate(listed.take_while(is_right).count());
        if twice && !self.adds_up(next) {
            slices.clear();
        }
        slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsent(text: &'static str, vouched: &'static str) -> Unsent {
        let digest = Some((7, vote::digest::reply(7, vouched.as_bytes())));
        Unsent {
            reply: VerifiedReply { bytes: Bytes::from_static(text.as_bytes()), digest },
            sent: 0,
            is_apart: false,
            stretches: vec![],
        }
    }

    /// The bytes that would leave, of replies numbered from 5.
    fn leaves(replies: Vec<(u64, Unsent)>, twice: bool) -> String {
        let bytes = replies.iter().map(|(_, unsent)| unsent.rest().len()).sum();
        let next = 5 + replies.len() as u64;
        let mut unsent = SealedQueue::starting_at(5);
        replies.into_iter().for_each(|(number, reply)| unsent.push_as(number, reply));
        let leaving = Leaving { unsent, bytes };
        let list = leaving.slices(next, twice);
        list.iter().map(|slice| String::from_utf8_lossy(slice).into_owned()).collect()
    }

    #[test]
    fn right_replies_leave_and_partly_sent_ones_go_on() {
        let mut begun = unsent("first\n", "first\n");
        begun.sent = 2;
        assert_eq!(
            leaves(vec![(5, begun), (6, unsent("", "")), (7, unsent("next\n", "next\n"))], true),
            "rst\nnext\n"
        );
        let own = Unsent::new(VerifiedReply::here("ERROR\n", true), true);
        assert_eq!(leaves(vec![(5, own)], true), "ERROR\n");
    }

    /// The replies `one`, none, and `two` of places 0 to 2, of which the kernel took so many bytes.
    fn three(taken: usize) -> Leaving {
        let mut leaving = Leaving::default();
        for (number, text) in ["one\n", "", "two\n"].into_iter().enumerate() {
            leaving.push(number as u64, unsent(text, text).reply, true);
        }
        assert!(leaving.pass_empty(3, true));
        leaving.sent(taken);
        leaving
    }

    #[test]
    fn short_replies_that_a_full_socket_leaves_behind_keep_no_others() {
        let block = Bytes::from(b"one\ntwo\nthree\n".to_vec());
        let mut leaving = Leaving::default();
        for (number, range) in [(0, 0..4), (1, 4..8)] {
            let digest = Some((7, vote::digest::reply(7, &block[range.clone()])));
            leaving.push(number, VerifiedReply { bytes: block.slice(range), digest }, true);
        }
        assert!(!block.is_unique());
        leaving.sent(2);
        leaving.set_apart();
        assert!(block.is_unique());
        let left: Vec<u8> = leaving.slices(2, true).iter().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!(left, b"e\ntwo\n");
    }

    /// With TLS the cipher reads the bytes after they were compared.
    #[test]
    fn bytes_that_changed_while_they_were_sealed_are_noticed() {
        let mut leaving = three(0);
        assert!((0..=8).all(|count| leaving.is_right(count, 3, true)));
        let last = leaving.unsent.as_is_mut().last().unwrap();
        last.reply.bytes = Bytes::from_static(b"tWo\n");
        let right: Vec<usize> = (0..=8).filter(|count| leaving.is_right(*count, 3, true)).collect();
        assert_eq!(right, [0, 1, 2, 3, 4], "what was taken of the first reply alone may leave");
        assert!(leaving.is_right(4, 3, true) && !leaving.is_right(4, 4, true), "a reply is missing");
    }

    #[test]
    fn a_list_ends_when_it_holds_enough() {
        let mut leaving = Leaving::default();
        for number in 0..3 {
            leaving.push(number, VerifiedReply::here(vec![b'x'; STRETCH / 2 + 1], true), true);
        }
        assert_eq!(leaving.slices(3, true).len(), 2);
    }

    #[test]
    fn what_has_left_is_forgotten_and_replies_without_bytes_are_passed_over() {
        for taken in 0..=8 {
            let mut leaving = three(taken);
            assert!(leaving.pass_empty(3, true), "{taken}");
            let left: String =
                leaving.slices(3, true).iter().map(|slice| String::from_utf8_lossy(slice)).collect();
            assert_eq!(left, "one\ntwo\n"[taken..]);
            assert_eq!(leaving.is_empty(), taken == 8);
        }
    }

    /// A client that has read most of a long reply would request the next one while this one still takes its budget.
    #[test]
    fn a_reply_is_held_as_a_whole_until_all_of_it_has_left() {
        for (taken, held) in [(0, 8), (3, 8), (4, 4), (7, 4), (8, 0)] {
            let leaving = three(taken);
            assert_eq!((leaving.bytes(), leaving.held()), (8 - taken, held), "{taken}");
        }
    }

    /// The effects of a fault: one reply is lost, sent again, or counted as empty.
    #[test]
    fn nothing_leaves_where_the_replies_do_not_add_up() {
        type Corrupt = fn(&mut Leaving);
        let corruptions: [(&str, Corrupt); 8] = [
            ("one is forgotten", |leaving| _ = leaving.unsent.entries_mut().pop_front()),
            ("the first count is wrong", |leaving| *leaving.unsent.ends_mut().0 += 1),
            ("the last count is wrong", |leaving| *leaving.unsent.ends_mut().1 += 1),
            ("two are exchanged", |leaving| leaving.unsent.entries_mut().swap(0, 2)),
            ("one is doubled", |leaving| {
                let again = unsent("two\n", "two\n");
                leaving.unsent.entries_mut().push_back((2, again));
            }),
            ("there are fewer bytes", |leaving| leaving.bytes -= 2),
            ("more has left", |leaving| leaving.unsent.entries_mut()[0].1.sent += 1),
            ("one has no bytes", |leaving| leaving.unsent.entries_mut()[0].1.reply.bytes.clear()),
        ];
        for (what, corrupt) in corruptions {
            let mut leaving = three(2);
            corrupt(&mut leaving);
            assert!(leaving.slices(3, true).is_empty(), "{what}: corrupted after the first look");
            assert!(!leaving.pass_empty(3, true), "{what}");
        }
        assert!(!three(2).pass_empty(4, true), "a place was taken and its reply did not come here");
    }

    /// A place that was lost before it came here, and bytes that look like a reply and are none: nothing after them
    /// leaves.
    #[test]
    fn nothing_leaves_behind_a_gap_or_a_reply_that_nobody_vouches_for() {
        let right = || unsent("right\n", "right\n");
        assert_eq!(leaves(vec![(5, right()), (7, right())], true), "right\n");
        assert_eq!(leaves(vec![(6, right())], true), "");
        assert_eq!(leaves(vec![(5, unsent("wrong\n", "right\n"))], true), "");
        let nobodys =
            || Unsent::new(VerifiedReply { bytes: Bytes::from_static(b"memory"), digest: None }, true);
        assert_eq!(leaves(vec![(5, nobodys())], true), "");
        assert_eq!(leaves(vec![(5, nobodys())], false), "memory");
        let mut begun = unsent("wrong\n", "right\n");
        begun.sent = 3;
        assert_eq!(leaves(vec![(5, begun)], true), "");
    }

    /// A reply of two and a half parts, and one after it.
    fn long(bytes: Vec<u8>, digest_of: &[u8]) -> Leaving {
        let mut leaving = Leaving::default();
        let digest = Some((7, vote::digest::reply(7, digest_of)));
        leaving.push(0, VerifiedReply { bytes: bytes.into(), digest }, true);
        leaving.push(1, unsent("next\n", "next\n").reply, true);
        leaving
    }

    #[test]
    fn a_long_reply_leaves_stretch_by_stretch_and_only_what_is_right_of_it() {
        let whole: Vec<u8> = (0..5 * STRETCH / 2).map(|at| (at / 1000) as u8).collect();
        let mut leaving = long(whole.clone(), &whole);
        let mut left = Vec::new();
        while !leaving.is_empty() {
            assert!(leaving.pass_empty(2, true));
            let given: Vec<u8> = leaving.slices(2, true).iter().flat_map(|slice| slice.to_vec()).collect();
            assert!(!given.is_empty() && given.len() <= STRETCH + 5);
            // The kernel accepts fewer bytes than it was given.
            let taken = given.len().min(700_000);
            left.extend_from_slice(&given[..taken]);
            leaving.sent(taken);
        }
        assert!(left == [&whole[..], b"next\n"].concat());

        let mut wrong = whole.clone();
        wrong[2 * STRETCH] ^= 1;
        assert!(long(wrong, &whole).slices(2, true).is_empty(), "wrong from the start");
        let mut leaving = long(whole.clone(), &whole);
        leaving.sent(STRETCH + 10);
        leaving.unsent.entries_mut()[0].1.stretches.swap(1, 2);
        assert!(leaving.slices(2, true).is_empty(), "wrong when its stretch is to leave");
        let mut leaving = long(whole.clone(), &whole);
        leaving.sent(STRETCH + 10);
        leaving.unsent.entries_mut()[0].1.sent -= STRETCH;
        assert!(leaving.slices(2, true).is_empty(), "a stretch again");
    }
}
