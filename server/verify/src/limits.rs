//! All bounds and times of this crate in one place, so that no peer can make it grow or wait without end.
//!
//! No time decides latency while replicas answer: tokens that can no longer agree start a view at once.

/// Processes that a group may have; a set of them is a mask of 16 bits.
pub const MAX_SLOTS: usize = 16;

/// Batches that an executor runs beyond the stable one. It begins no further one before.
pub const WINDOW: u64 = 8;
/// Batches beyond its record of which a verifier keeps tokens, and beyond the stable one of which an executor keeps
/// what verifiers told: whoever is a window ahead is not lost.
pub const TALLY_BATCHES: u64 = 2 * WINDOW;
/// An executor that was left out of a view is taken in again when it is so many batches behind, or fewer.
pub const JOIN_LAG_BATCHES: u64 = WINDOW;
/// Tokens of one executor for one batch that a verifier keeps: each continues another version, and a repaired executor
/// sends one more.
pub const TOKENS_PER_BATCH: usize = 4;
/// Messages in one body: all of one round share a frame.
pub const MESSAGES_PER_BODY: usize = 64;

/// How long a batch may be known and not recorded before a verifier asks for another view, in microseconds, where
/// batches take no time. Doubled with each view in which nothing was recorded, up to [`VIEW_PATIENCE_MAX_US`].
pub const VIEW_PATIENCE_US: u64 = 150_000;
/// The same, in times of what the slowest batch within [`SLOWNESS_KEPT_US`] took.
pub const VIEW_PATIENCE_FACTOR: u64 = 4;
/// The slowest batch counts for so long, in microseconds.
pub const SLOWNESS_KEPT_US: u64 = 10_000_000;
/// Most patience in the first view because of slow batches, in microseconds: a primary that has stopped is replaced
/// within 2 s.
pub const SLOW_PATIENCE_US: u64 = 1_200_000;
/// The same of two executors with a witness, which leave out one that has stopped within 1 s.
pub const SLOW_PATIENCE_OF_TWO_US: u64 = 600_000;
/// Between two ticks no more time than this counts as waiting, in microseconds: a process that does not run itself
/// finds later what its peers have sent meanwhile.
pub const WAITED_PER_TICK_US: u64 = 25_000;
/// Most patience, in microseconds.
pub const VIEW_PATIENCE_MAX_US: u64 = 2_400_000;
/// Views of one group identity, as the upper half of a view's number: an operator who lets the group go on from an
/// earlier batch than it has agreed on begins the next one. No view of the one before comes after it.
pub const IDENTITY_VIEWS: u64 = 1 << 32;
/// How long the connection of the primary may be gone before a verifier asks for another view, in microseconds. The
/// kernel ends connections of a killed process at once.
pub const PRIMARY_GONE_US: u64 = 20_000;
/// After so long without an answer, tokens that are not stable and questions are sent again, in microseconds.
pub const RESEND_US: u64 = 50_000;
/// How long extra protection waits for the tokens that are missing, in microseconds.
pub const EXTRA_PATIENCE_US: u64 = 5_000;
/// Batches in a row with equal tokens of all executors after which extra protection begins.
pub const EXTRA_AFTER_BATCHES: u32 = 16;
/// The backup of a pair takes over after so long without a message of its primary, in microseconds.
pub const PAIR_SILENCE_US: u64 = 250_000;
/// The primary of a pair goes on alone only on a proof that comes within this time of sending a question that the
/// backup answered, in microseconds: the backup cannot have taken over by then, even with a clock that is a quarter
/// faster.
pub const PAIR_PROOF_US: u64 = 200_000;
/// The primary of a pair asks its backup that often, in microseconds.
pub const PAIR_ASK_US: u64 = 25_000;

// Relations between them.
const _: () = assert!(TALLY_BATCHES > WINDOW, "an executor that is a window ahead finds room");
const _: () = assert!(PRIMARY_GONE_US < RESEND_US && RESEND_US < VIEW_PATIENCE_US / 2);
const _: () = assert!(EXTRA_PATIENCE_US < VIEW_PATIENCE_US / 2, "silence is forgiven before a view changes");
const _: () =
    assert!(VIEW_PATIENCE_MAX_US.is_multiple_of(VIEW_PATIENCE_US) && VIEW_PATIENCE_MAX_US > VIEW_PATIENCE_US);
const _: () =
    assert!(PAIR_PROOF_US + PAIR_PROOF_US / 4 <= PAIR_SILENCE_US, "a proof comes before a takeover");
const _: () =
    assert!(VIEW_PATIENCE_US < SLOW_PATIENCE_OF_TWO_US && SLOW_PATIENCE_OF_TWO_US < SLOW_PATIENCE_US);
const _: () = assert!(SLOW_PATIENCE_US < VIEW_PATIENCE_MAX_US);
const _: () = assert!(4 * PAIR_ASK_US <= PAIR_PROOF_US, "some questions may be lost");
