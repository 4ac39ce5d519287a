//! From which version on reads that take no batch may run here.
//!
//! A read that one replica answers from its own state has to see every write whose reply left anywhere before the read
//! arrived, and every version that an earlier read has shown. The paper executes such reads at several replicas and
//! accepts matching replies (Eve, section 6); replies that match may be stale, and may show batches that are taken
//! back. Here:
//!
//! 1. After the read has arrived, its executor asks all verifiers for their records. The answers of a quorum give the
//!    number n of the newest one: of the highest view, and in it of the highest number.
//! 2. The read runs between two batches, at a version whose number is n or higher.
//! 3. Its reply leaves when that version is stable here. If it is rolled back before, the read runs again.
//!
//! *Why n is high enough.* Let version w be stable at some executor before the read arrived: a quorum had recorded it
//! in view v, and one of those verifiers, x, is in the quorum that answers.
//!
//! - x has its memory. Its record never goes back in rank, view before number. In view v its number is w or higher. A
//!   later view starts from a version that continues w (rule 1, `verifier.rs`), so it is w or higher there too. The
//!   record of highest rank among the answers is at least that of x, and the same holds for it: so n >= w. (The highest
//!   *number* would do as well. It may be that of a record which a later view has dropped, and the read would wait for
//!   a batch that may never come.)
//! - x had recorded w in an earlier incarnation, and has recovered since. A member y of the quorum of w is among those
//!   from which it has adopted its record. If y recorded w after it knew of the new incarnation of x, its RECORDED has
//!   told the executor so, and that of x did not count. Else the answer of y has w, and so has the record of x now.
//! - x has no memory: it does not answer, and is not in the quorum.
//!
//! *Why the reply is right.* Stable versions are one chain, so what is read at a stable version with a number >= n
//! continues w. A write that is sent after the reply left is in a later batch. A later read asks a quorum that has
//! recorded the version of this one. So all reads and writes are as if each read ran directly behind the batch of its
//! version.
//!
//! None of this depends on how many verifiers there are, or on which of them execute: it holds with five replicas and
//! with a witness. It does not hold in a pair, where a quorum is one ([`Layout::reads_locally`]).
//!
//! [`Layout::reads_locally`]: crate::Layout::reads_locally

use std::collections::BTreeMap;

use crate::message::VerifyMessage;
use crate::slots::{CrashVector, Slot};
use crate::verifier::Recipients;

use super::{Executor, ExecutorCommand, Out};

/// The last question on behalf of reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ReadRound {
    /// Counts the questions: an answer to an earlier one was given before some of the reads arrived.
    round: u64,
    /// While answers are missing: those that have come.
    answers: Option<BTreeMap<Slot, ReadAnswer>>,
}

/// The answer of one verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ReadAnswer {
    /// View and number of its record.
    rank: (u64, u64),
    /// The verifier's incarnation.
    incarnation: u16,
}

impl Executor {
    /// Asks the verifiers on behalf of all reads that wait now.
    pub(super) fn ask_for_reads(&mut self, out: &mut Out<'_>) {
        if !self.config.layout.reads_locally() {
            return;
        }
        self.reads.round += 1;
        self.reads.answers = Some(BTreeMap::new());
        let (incarnation, round) = (self.config.incarnation, self.reads.round);
        out.send(Recipients::Verifiers, VerifyMessage::ReadWhere { incarnation, round });
    }

    /// A verifier's record, with its view and number as `rank`; `of` is the incarnation and the round of the question.
    pub(super) fn on_read_here(
        &mut self,
        from: Slot,
        of: (u64, u64),
        rank: (u64, u64),
        crashes: &CrashVector,
        out: &mut Out<'_>,
    ) {
        let layout = self.config.layout;
        let is_right = from < layout.verifiers() && crashes.counts().len() == layout.verifiers() as usize;
        if !is_right || of != (self.config.incarnation, self.reads.round) {
            return;
        }
        self.crashes.join(crashes);
        let by_quorum = self.config.rules.read_quorum;
        if !by_quorum && from != self.config.me {
            return;
        }
        let Some(answers) = &mut self.reads.answers else { return };
        answers.insert(from, ReadAnswer { rank, incarnation: crashes.of_slot(from) });
        // As of every quorum: none of its members has lost its memory since, as far as is known here.
        let counted =
            answers.iter().filter(|(slot, answer)| answer.incarnation >= self.crashes.of_slot(**slot));
        let (count, newest) =
            counted.fold((0, (0, 0)), |(count, newest), (_, answer)| (count + 1, answer.rank.max(newest)));
        let enough = if by_quorum { layout.quorum() } else { 1 };
        if count >= enough {
            self.reads.answers = None;
            out.commands.push(ExecutorCommand::ReadFrom { number: newest.1 });
        }
    }
}
