//! Who is owed the replies to the requests that this replica has handed to the log. A reply that goes to
//! nobody is waited for, and one that goes to somebody else is wrong, so nothing is taken on trust: each
//! entry carries the tag of its request.

use std::collections::VecDeque;

use crate::clients::ReplyTo;

/// Who is owed what comes of an own request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipient {
    /// A client connection.
    Client(ReplyTo),
    /// Nobody: one of the pipeline's own requests.
    Nobody,
}

impl Recipient {
    /// The client connection, if it is one.
    pub(super) fn client(&self) -> Option<ReplyTo> {
        match self {
            Recipient::Client(to) => Some(*to),
            Recipient::Nobody => None,
        }
    }

    /// What a client sends over one connection is answered as if it ran in that order, in every mode.
    pub(super) fn stream(&self) -> Option<u64> {
        self.client().map(|to| u64::from(to.slot))
    }
}

/// An own request that is executed or voted on.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingReply {
    /// Who is owed its reply, as this replica remembers it.
    pub owner: Recipient,
    /// Its checksum, as the log has it: the owner must have asked for just this.
    pub asked: u32,
}

impl PendingReply {
    pub(super) const NOTHING: PendingReply = PendingReply { owner: Recipient::Nobody, asked: 0 };
}

/// The own requests that the log has not delivered yet, in the order of their tags.
#[derive(Debug, Default)]
pub(super) struct PendingReplies {
    waiting: VecDeque<(u64, Recipient)>,
    /// Tag of the first.
    first: u64,
}

impl PendingReplies {
    /// The tag of the next request.
    pub(super) fn next_tag(&self) -> u64 {
        self.first + self.waiting.len() as u64
    }

    /// The log has taken the next request.
    pub(super) fn push(&mut self, owner: Recipient) {
        self.waiting.push_back((self.next_tag(), owner));
    }

    /// The log delivers own requests in the order they were submitted in.
    ///
    /// # Panics
    /// When it does not, or when this queue does not have who waits there: the replica cannot know any more
    /// whose replies are whose.
    pub(super) fn take(&mut self, tag: u64) -> Recipient {
        assert_eq!(tag, self.first, "own requests are delivered in the order they were submitted in");
        let Some((asked, owner)) = self.waiting.pop_front() else {
            panic!("somebody asked for what is delivered as own request {tag}");
        };
        assert_eq!(asked, tag, "who asked for a request waits at its place");
        self.first += 1;
        owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(sequence: u64) -> Recipient {
        Recipient::Client(ReplyTo { slot: 1, generation: 0, sequence, cost: 0 })
    }

    fn two_wait() -> PendingReplies {
        let mut owners = PendingReplies::default();
        owners.push(client(7));
        owners.push(client(8));
        owners
    }

    #[test]
    fn owners_come_back_in_the_order_of_their_tags() {
        let mut owners = two_wait();
        assert_eq!((owners.next_tag(), owners.take(0), owners.take(1)), (2, client(7), client(8)));
        assert_eq!(owners.next_tag(), 2);
    }

    /// V20 in docs/vulnerabilities.md: the queue's head was corrupted. From then on replies went to the owner that its
    /// memory happened to name, and this replica's clients waited for ever.
    #[test]
    #[should_panic(expected = "waits at its place")]
    fn a_queue_that_has_lost_its_place_is_noticed() {
        let mut owners = two_wait();
        owners.waiting.rotate_left(1);
        owners.take(0);
    }

    #[test]
    #[should_panic(expected = "own request 2")]
    fn a_queue_that_has_lost_an_entry_is_noticed() {
        let mut owners = two_wait();
        owners.take(0);
        owners.take(1);
        owners.take(2);
    }
}
