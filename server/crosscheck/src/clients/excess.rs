//! The right to exceed a client thread's part of the memory for clients, which one thread has at a time. A request that
//! is larger than half of a pool, or a long input, may need more than the part. If all threads took more at once, the
//! replica would hold several times as much as it should.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Which thread has the right.
#[derive(Debug, Default)]
struct ExcessHolder {
    /// Number of the thread, from 1; 0 for none.
    holder: AtomicU32,
    /// Another thread waits for it.
    is_wanted: AtomicBool,
}

/// The two rights of a replica: one for requests with their replies, one for input.
#[derive(Clone, Debug, Default)]
pub struct ExcessRights {
    request: Arc<ExcessHolder>,
    input: Arc<ExcessHolder>,
}

impl ExcessRights {
    /// Those of one thread, from 0.
    pub fn of_thread(&self, thread: usize) -> [OwnExcess; 2] {
        let of = |shared: &Arc<ExcessHolder>| OwnExcess {
            shared: shared.clone(),
            me: thread as u32 + 1,
            wanted_since: None,
        };
        [of(&self.request), of(&self.input)]
    }

    /// Whether only threads that exist, of so many, have a right: another one never gives it back.
    pub fn is_valid(&self, threads: usize) -> bool {
        [&self.request, &self.input].iter().all(|shared| shared.holder.load(Relaxed) as usize <= threads)
    }
}

/// A right as one thread sees it.
#[derive(Debug)]
pub struct OwnExcess {
    shared: Arc<ExcessHolder>,
    me: u32,
    /// The tick at which this thread, which has it, saw first that another waits for it.
    wanted_since: Option<u64>,
}

impl OwnExcess {
    /// Takes it, or has it already. If another thread has it, that one learns that it is waited for.
    pub fn take(&self) -> bool {
        let before = self.shared.holder.compare_exchange(0, self.me, Relaxed, Relaxed);
        let is_mine = before.map_or_else(|holder| holder == self.me, |_| true);
        if !is_mine {
            self.shared.is_wanted.store(true, Relaxed);
        }
        is_mine
    }

    /// Gives it back, if this thread has it.
    pub fn give_back(&mut self) {
        if self.shared.holder.load(Relaxed) == self.me {
            self.wanted_since = None;
            self.shared.is_wanted.store(false, Relaxed);
            self.shared.holder.store(0, Relaxed);
        }
    }

    /// Whether this thread has it, and another has waited for it for at least so many ticks.
    pub fn is_overdue(&mut self, tick: u64, patience: u64) -> bool {
        if self.shared.holder.load(Relaxed) != self.me || !self.shared.is_wanted.load(Relaxed) {
            self.wanted_since = None;
            return false;
        }
        let wanted_since = *self.wanted_since.get_or_insert(tick);
        tick.saturating_sub(wanted_since) >= patience
    }

    /// Another thread waits anew.
    pub fn wait_again(&mut self) {
        self.wanted_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_has_it_and_learns_that_another_waits() {
        let excess = ExcessRights::default();
        let ([mut first, _], [mut second, input]) = (excess.of_thread(0), excess.of_thread(1));
        assert!(first.take() && first.take() && !first.is_overdue(10, 0));
        assert!(!second.take() && !second.take() && input.take());
        second.give_back();
        assert!(!first.is_overdue(10, 5) && !first.is_overdue(14, 5) && first.is_overdue(15, 5));
        assert!(!second.is_overdue(100, 0), "it does not have it");
        first.give_back();
        assert!(second.take() && !second.is_overdue(16, 0) && !first.take());
    }

    #[test]
    fn a_thread_that_does_not_exist_has_no_right() {
        let excess = ExcessRights::default();
        assert!(excess.of_thread(2)[0].take() && excess.is_valid(3));
        assert!(!excess.is_valid(2));
    }
}
