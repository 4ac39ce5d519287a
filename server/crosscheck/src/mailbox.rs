//! A queue into a thread that sleeps in its poll: the first item wakes it, later ones cost no system call.

use std::sync::Arc;

use mio::{Token, Waker};
use parking_lot::Mutex;

/// The only token of a poll that belongs to no socket: a mailbox of its thread has an item.
pub const MAILBOX: Token = Token(0);

/// The receiving thread's end is [`Mailbox::take`]; every clone is a sending end.
///
/// It has no bound of its own: each sender has a bound on its items in flight (`limits`).
pub struct Mailbox<T> {
    shared: Arc<MailboxState<T>>,
}

struct MailboxState<T> {
    queue: Mutex<Vec<T>>,
    /// None where the receiver is stepped and sleeps in no poll.
    waker: Option<Arc<Waker>>,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Mailbox { shared: self.shared.clone() }
    }
}

impl<T> Mailbox<T> {
    /// A mailbox of the thread whose poll `waker` wakes. A poll has one waker, which its mailboxes share.
    pub fn new(waker: &Arc<Waker>) -> Self {
        Self::waking(Some(waker.clone()))
    }

    /// A mailbox whose receiver checks it when it is stepped.
    pub fn silent() -> Self {
        Self::waking(None)
    }

    fn waking(waker: Option<Arc<Waker>>) -> Self {
        Mailbox { shared: Arc::new(MailboxState { queue: Mutex::new(Vec::new()), waker }) }
    }

    /// Sends one item.
    pub fn send(&self, item: T) {
        self.send_all(std::iter::once(item));
    }

    /// Sends several items with at most one wake-up.
    pub fn send_all(&self, items: impl IntoIterator<Item = T>) {
        let (was_empty, is_empty) = {
            let mut queue = self.shared.queue.lock();
            let was_empty = queue.is_empty();
            queue.extend(items);
            (was_empty, queue.is_empty())
        };
        if was_empty
            && !is_empty
            && let Some(waker) = &self.shared.waker
        {
            // A failed wake-up only delays the items: the receiver checks again after `limits::IDLE`.
            let _ = waker.wake();
        }
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.shared.queue.lock().is_empty()
    }

    /// Moves all items sent so far into `into`, which must be empty.
    pub fn take(&self, into: &mut Vec<T>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut *self.shared.queue.lock(), into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll, Token};
    use std::time::Duration;

    #[test]
    fn the_first_item_wakes_and_all_arrive_in_order() {
        let mut poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), Token(7)).unwrap());
        let mailbox = Mailbox::new(&waker);
        let sender = mailbox.clone();
        std::thread::spawn(move || sender.send_all(0..100)).join().unwrap();
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
        assert_eq!(events.iter().next().map(|event| event.token()), Some(Token(7)));
        let mut items = Vec::new();
        mailbox.take(&mut items);
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
