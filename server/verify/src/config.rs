//! The members of the verification stage, and the rules that they keep.

use crate::limits::{EXTRA_AFTER_BATCHES, MAX_SLOTS};
use crate::slots::{Slot, Slots};
use crate::version::StateToken;

/// Who executes and who verifies. All of them tolerate crashes only (in the paper's terms r = 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// Two replicas; the primary verifies. Either goes on alone when the other is gone.
    Pair,
    /// Two replicas, and a third verifier without a service, the *witness*.
    PairWithWitness,
    /// 2u+1 replicas that execute and verify, of which u may fail.
    Crash {
        /// u: 1 to 7.
        failures: u8,
    },
}

impl Layout {
    /// Executors: the processes from 0.
    pub const fn executors(self) -> u8 {
        match self {
            Layout::Pair | Layout::PairWithWitness => 2,
            Layout::Crash { failures } => 2 * failures + 1,
        }
    }

    /// Processes with a verifier, from 0. Of the pair's two, only the primary's decides.
    pub const fn verifiers(self) -> u8 {
        match self {
            Layout::Pair => 2,
            Layout::PairWithWitness => 3,
            Layout::Crash { failures } => 2 * failures + 1,
        }
    }

    /// Verifiers that have to record a version before it is stable. Any two quorums have a common member.
    pub const fn quorum(self) -> usize {
        match self {
            Layout::Pair => 1,
            Layout::PairWithWitness => 2,
            Layout::Crash { failures } => failures as usize + 1,
        }
    }

    /// Equal tokens that a verifier has to see in a view of these executors: max(u, r) + 1, and in a pair all.
    pub const fn tokens(self, executors: Slots) -> usize {
        match self {
            Layout::Pair | Layout::PairWithWitness => executors.len() as usize,
            Layout::Crash { failures } => failures as usize + 1,
        }
    }

    /// Whether an executor may answer reads itself ([`crate::ExecutorEvent::Read`]). In a pair a quorum is one, so that
    /// two quorums of different views need not have a common member: a primary that was cut off would read its own
    /// record, and not learn that its backup has taken over.
    pub const fn reads_locally(self) -> bool {
        !matches!(self, Layout::Pair)
    }

    /// Whether a view may go on with fewer executors than there are.
    pub(crate) const fn leaves_out(self) -> bool {
        matches!(self, Layout::Pair | Layout::PairWithWitness)
    }
}

/// What a machine of this crate needs to know. A process gives the same to its verifier and its executor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    pub(crate) layout: Layout,
    pub(crate) me: Slot,
    pub(crate) incarnation: u64,
    pub(crate) genesis: StateToken,
    pub(crate) begins: bool,
    pub(crate) extra_after: Option<u32>,
    pub(crate) rules: Rules,
}

impl Config {
    /// Process `me` of a group. `incarnation` is a number that no other process of this group ever has or had: random,
    /// and not 0. `genesis` is the token of the state before the first batch.
    ///
    /// # Panics
    /// When `me` is no process of the layout, or the layout has more than [`MAX_SLOTS`]: the operator misconfigured the
    /// group.
    pub fn new(layout: Layout, me: Slot, incarnation: u64, genesis: StateToken) -> Config {
        if let Layout::Crash { failures } = layout {
            assert!((1..=7).contains(&failures), "a group tolerates 1 to 7 failures, not {failures}");
        }
        assert!(me < layout.verifiers() && layout.verifiers() as usize <= MAX_SLOTS, "no process {me}");
        let extra_after = Some(EXTRA_AFTER_BATCHES);
        Config { layout, me, incarnation, genesis, begins: false, extra_after, rules: Rules::ALL }
    }

    /// The same process, with the operator's permission to begin a new group where nobody has one.
    pub fn that_begins(mut self) -> Config {
        self.begins = true;
        self
    }

    /// The same process, whose verifier waits for the tokens of all executors once so many batches in a row had them
    /// all in time (Eve, section 6.3); with none, it never does.
    pub fn with_extra_protection(mut self, after_batches: Option<u32>) -> Config {
        self.extra_after = after_batches;
        self
    }

    /// The same process without some rules, to show their effect.
    #[cfg(any(test, feature = "unprotected"))]
    pub fn with_rules(mut self, rules: Rules) -> Config {
        self.rules = rules;
        self
    }

    /// Who executes and verifies.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// This process.
    pub fn me(&self) -> Slot {
        self.me
    }
}

/// The rules on which agreement rests. All are kept; only a test can remove one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Executors act on RECORDED of a quorum. Without it one is enough.
    pub quorum: bool,
    /// The same for the first message of a view only, as the paper can be read (section 6.1: r+1 responses).
    pub quorum_at_start: bool,
    /// A view starts from the record of the highest view. Without it from that of the highest number, as the paper
    /// says.
    pub view_first: bool,
    /// A verifier that lost its memory is told from the one it was. Without it, the newest state of a quorum is
    /// adopted.
    pub crash_vectors: bool,
    /// A group begins after two rounds in which nobody has a memory. Without it, after one.
    pub found_twice: bool,
    /// A record that was adopted with the promise of a later view is not counted as recorded in its own view.
    pub adopted_apart: bool,
    /// An executor that lost its memory sends no token where an earlier incarnation may have sent one.
    pub abstention: bool,
    /// Tokens agree only if they continue the record. Without it, only the batch's number is compared.
    pub parents: bool,
    /// The backup of a pair that takes over keeps every batch it has sent a token for. Without it, every stable one.
    pub keep_sent: bool,
    /// The primary of a pair goes on alone only on a proof that comes before the backup can have taken over.
    pub proof_in_time: bool,
    /// A process of a pair is primary only of views that its present incarnation has begun. Without it, of those of
    /// former incarnations too.
    pub own_views: bool,
    /// An executor that was taken in before it had reached the view's start is no copy of it: it does not take over,
    /// and is not kept alone.
    pub level: bool,
    /// What an executor has reached is forgotten with its connection: its memory may be lost.
    pub reports_end: bool,
    /// A verifier's patience follows the time that batches take. Without it, it is the same on every machine.
    pub measured_patience: bool,
    /// A local read is bound by the answers of a quorum of verifiers. Without it, by that of the own one.
    pub read_quorum: bool,
}

impl Rules {
    /// All of them.
    pub const ALL: Rules = Rules {
        quorum: true,
        quorum_at_start: true,
        view_first: true,
        crash_vectors: true,
        found_twice: true,
        adopted_apart: true,
        abstention: true,
        parents: true,
        keep_sent: true,
        proof_in_time: true,
        own_views: true,
        level: true,
        reports_end: true,
        measured_patience: true,
        read_quorum: true,
    };
}
