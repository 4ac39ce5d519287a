//! The recipients of the replies to the requests that this replica has handed to the log. A client waits for ever for a
//! reply that goes to no recipient, and a reply that goes to another client is wrong. So nothing is trusted: each entry
//! carries the tag of its request.

use object::SealedQueue;

use crate::Corrupted;
use crate::clients::ReplyTo;

/// The recipient of the reply to an own request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipient {
    /// A client connection.
    Client(ReplyTo),
    /// An operator, whose command has this ticket ([`super::calls`]).
    Operator(u64),
    /// None: the request is one of the pipeline itself.
    NoClient,
}

impl Recipient {
    /// The client connection, if the recipient is one.
    pub(super) fn client(&self) -> Option<ReplyTo> {
        match self {
            Recipient::Client(to) => Some(*to),
            Recipient::Operator(_) | Recipient::NoClient => None,
        }
    }

    /// The connection. In every mode, requests of one connection are answered as if they ran in the order in which they
    /// were sent.
    pub(super) fn stream(&self) -> Option<u64> {
        self.client().map(|to| u64::from(to.slot))
    }
}

/// An own request that is executed or voted on.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingReply {
    /// The recipient of its reply, as this replica recorded it.
    pub owner: Recipient,
    /// Its checksum, as the log has it: the owner must have sent exactly this request.
    pub request_checksum: u32,
}

impl PendingReply {
    pub(super) const NOTHING: PendingReply = PendingReply { owner: Recipient::NoClient, request_checksum: 0 };
}

/// The own requests that the log has not delivered yet, under their tags.
#[derive(Debug, Default)]
pub(super) struct PendingReplies {
    waiting: SealedQueue<Recipient>,
}

impl PendingReplies {
    /// The tag of the next request.
    pub(super) fn next_tag(&self) -> u64 {
        self.waiting.next_number()
    }

    /// The tag of the first request whose recipient was not taken.
    pub(super) fn first_tag(&self) -> u64 {
        self.waiting.first_number()
    }

    /// The log has taken the next request.
    pub(super) fn push(&mut self, owner: Recipient) {
        self.waiting.push(owner);
    }

    /// Whether the number of waiting recipients is that of pushed and not taken ones.
    pub(super) fn is_intact(&self) -> bool {
        self.waiting.is_intact()
    }

    /// Takes the next recipient: the log delivers own requests in the order in which they were submitted.
    ///
    /// # Errors
    /// When the log does not, or when this queue has lost the recipient: the replica cannot know any more which reply
    /// belongs to which recipient.
    pub(super) fn take(&mut self, tag: u64) -> Result<Recipient, Corrupted> {
        if tag != self.waiting.first_number() {
            return Err(Corrupted::PendingReplies);
        }
        self.waiting.pop().ok().flatten().ok_or(Corrupted::PendingReplies)
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
        assert_eq!(owners.next_tag(), 2);
        assert_eq!((owners.take(0), owners.take(1)), (Ok(client(7)), Ok(client(8))));
        assert_eq!((owners.next_tag(), owners.is_intact()), (2, true));
    }

    #[test]
    fn a_request_that_was_not_submitted_is_found() {
        let mut owners = two_wait();
        assert_eq!(owners.take(1), Err(Corrupted::PendingReplies), "out of order");
        assert!(owners.take(0).is_ok() && owners.take(1).is_ok());
        assert_eq!(owners.take(2), Err(Corrupted::PendingReplies), "from nowhere");
        assert!(owners.is_intact());
    }

    /// V20 in docs/vulnerabilities.md, and similar faults: from then on replies went to the owner that the queue's
    /// memory happened to contain, and this replica's clients waited for ever.
    #[test]
    fn a_queue_that_has_lost_its_place_gives_no_recipient() {
        type Corruption = (&'static str, fn(&mut SealedQueue<Recipient>));
        let corruptions: [Corruption; 5] = [
            ("its head is lost", |waiting| waiting.entries_mut().rotate_left(1)),
            ("an entry is lost", |waiting| _ = waiting.entries_mut().pop_front()),
            ("an entry is doubled", |waiting| {
                let first = waiting.entries_mut()[0];
                waiting.entries_mut().push_front(first);
            }),
            ("all are lost", |waiting| waiting.entries_mut().clear()),
            ("an end is wrong", |waiting| *waiting.ends_mut().1 += 1),
        ];
        for (what, corrupt) in corruptions {
            let mut owners = two_wait();
            corrupt(&mut owners.waiting);
            assert_eq!(owners.take(0), Err(Corrupted::PendingReplies), "{what}");
        }
    }
}
