//! Removes one protection of the library for a test, which then must see the loss. Constant without the feature
//! `mutate`.

/// The protections that a test can remove (section 6.2 of the design).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named after what is left out
#[rustfmt::skip]
pub enum Protection {
    AppendBeforeStore, ReverseReset, LogComparison, OldValues, StateIsNew,
    Gate1Clear, Gate2Clear, Gate3Clear, Gate4Clear, Gate5Clear,
    Gate1Set, Gate2Set, Gate3Set, Gate4Set, Gate5Set,
    InputAtBegin, InputInV, InputAfterReset, OutputInV, OutputSeed, EmptyPop,
    StackFilterOfWrites, StackFilterOfLocals,
    ReplayAllocation, ReplayWord, ReplayValue, ReplayBytes,
    DeferredFree, DeferredSend, DeferredRelease, OwnerCheck, Barrier, Retry, DeferredAdd,
    CopyTranslation, CopyRefresh, Rotation,
}

#[cfg(feature = "mutate")]
mod chosen {
    use super::Protection;
    use std::cell::OnceCell;

    thread_local! {
        static REMOVED: OnceCell<String> = const { OnceCell::new() };
    }

    /// Whether this thread runs without the protection: by `remove`, else by the variable SEI_MUTATE.
    pub fn is_removed(protection: Protection) -> bool {
        REMOVED.with(|name| {
            let name = name.get_or_init(|| std::env::var("SEI_MUTATE").unwrap_or_default());
            !name.is_empty() && *name == format!("{protection:?}")
        })
    }

    /// From now on this thread runs without the protection. Once per thread, before its first handler.
    pub fn remove(protection: Protection) {
        REMOVED.with(|name| name.set(format!("{protection:?}"))).expect("once per thread");
    }
}

#[cfg(feature = "mutate")]
pub use chosen::remove;

/// Whether the protection is there.
#[inline(always)]
pub fn kept(protection: Protection) -> bool {
    #[cfg(feature = "mutate")]
    return !chosen::is_removed(protection);
    #[cfg(not(feature = "mutate"))]
    {
        let _ = protection;
        true
    }
}
