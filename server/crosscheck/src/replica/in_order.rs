//! Which connections have requests in the order: a read behind one of them is ordered too, so that it sees it.

use std::collections::BTreeMap;

use crate::clients::ReplyTo;

/// By slot of a connection: which connection it is, and how many of its requests are not answered.
#[derive(Debug, Default)]
pub(super) struct ByConnection(BTreeMap<u32, (u32, u32)>);

impl ByConnection {
    /// A request of this connection begins.
    pub(super) fn begin(&mut self, to: ReplyTo) {
        let (generation, count) = self.0.entry(to.slot).or_default();
        if *count > 0 && generation.wrapping_sub(to.generation) as i32 > 0 {
            // The last request of a connection that is gone: the next one has its slot already.
            return;
        }
        if *generation != to.generation {
            // Replies to a connection that was in this slot before go nowhere.
            (*generation, *count) = (to.generation, 0);
        }
        *count += 1;
    }

    /// A request of this connection is answered.
    pub(super) fn end(&mut self, to: ReplyTo) {
        let Some((generation, count)) = self.0.get_mut(&to.slot) else { return };
        if *generation == to.generation {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.0.remove(&to.slot);
            }
        }
    }

    /// Whether a request of this connection is not answered.
    pub(super) fn has(&self, to: ReplyTo) -> bool {
        self.0.get(&to.slot).is_some_and(|(generation, count)| *generation == to.generation && *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_requests_until_all_are_answered() {
        let to = |generation| ReplyTo { slot: 3, generation, sequence: 0, cost: 0 };
        let mut requests = ByConnection::default();
        requests.begin(to(1));
        requests.begin(to(1));
        requests.end(to(1));
        assert!(requests.has(to(1)) && !requests.has(to(2)));
        requests.end(to(1));
        assert!(!requests.has(to(1)) && requests.0.is_empty());
        // The next connection in that slot has nothing of the one before.
        requests.begin(to(1));
        requests.begin(to(2));
        requests.end(to(1));
        assert!(requests.has(to(2)) && !requests.has(to(1)));
        // The last request of the connection before comes late.
        requests.begin(to(1));
        assert!(requests.has(to(2)));
        requests.end(to(2));
        requests.end(to(2));
        assert!(requests.0.is_empty());
    }
}
