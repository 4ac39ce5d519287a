//! A debugging mode: duplicated state is write-protected while no handler runs, so that what writes to it outside of
//! handlers is found at the write (`SEI_STATE_GUARD=1`).
//!
//! Such a write reaches the first copy only. Without this mode the next handler that reads the word ends the process as
//! if a fault had been there, and nothing says who wrote.

/// Bytes of a page, the unit of protection.
pub const PAGE_BYTES: usize = 4096;

/// What is to be done with the pages of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAccess {
    /// As they are.
    Unchanged,
    /// Everything may write.
    Writable,
    /// Nothing may write.
    Protected,
}

/// When the state is protected: once it is initialised, and while no thread runs a handler.
#[derive(Debug, Default)]
pub struct StateGuard {
    is_initialised: bool,
    handlers: usize,
}

impl StateGuard {
    /// Not yet initialised.
    pub const fn new() -> Self {
        Self { is_initialised: false, handlers: 0 }
    }

    /// More state is registered: the program is going to initialise it.
    pub fn add(&mut self) -> PageAccess {
        self.is_initialised = false;
        PageAccess::Writable
    }

    /// The state is initialised.
    pub fn sync(&mut self) -> PageAccess {
        self.is_initialised = true;
        if self.handlers == 0 { PageAccess::Protected } else { PageAccess::Unchanged }
    }

    /// A thread begins a handler.
    pub fn begin(&mut self) -> PageAccess {
        self.handlers += 1;
        if self.handlers == 1 { PageAccess::Writable } else { PageAccess::Unchanged }
    }

    /// A thread has ended its handler.
    pub fn end(&mut self) -> PageAccess {
        self.handlers = self.handlers.saturating_sub(1);
        let is_last = self.handlers == 0 && self.is_initialised;
        if is_last { PageAccess::Protected } else { PageAccess::Unchanged }
    }
}

/// Address and bytes of the pages that a range lies in. They may hold other variables, too.
pub fn pages(begin: usize, length: usize) -> (usize, usize) {
    let first = begin / PAGE_BYTES * PAGE_BYTES;
    (first, (begin + length).next_multiple_of(PAGE_BYTES) - first)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn state_is_protected_between_handlers_once_it_is_initialised() {
        let mut guard = StateGuard::new();
        assert_eq!(guard.add(), PageAccess::Writable);
        assert_eq!((guard.begin(), guard.end()), (PageAccess::Writable, PageAccess::Unchanged));
        assert_eq!(guard.sync(), PageAccess::Protected);
        assert_eq!((guard.begin(), guard.begin()), (PageAccess::Writable, PageAccess::Unchanged));
        assert_eq!(guard.sync(), PageAccess::Unchanged, "a handler runs");
        assert_eq!((guard.end(), guard.end()), (PageAccess::Unchanged, PageAccess::Protected));
        assert_eq!(guard.add(), PageAccess::Writable);
    }

    #[test]
    fn a_range_lies_in_whole_pages() {
        assert_eq!(pages(8192, 4096), (8192, 4096));
        assert_eq!(pages(8191, 2), (4096, 8192));
        assert_eq!(pages(8200, 1), (8192, 4096));
    }
}
