//! Counts how often in a row a replica is outvoted: one that stays wrong is replaced, even if there is no object to
//! repair.

use super::{Ballots, Round};
use crate::command::{BeyondRepair, Command};
use crate::config::{Replica, Set};
use crate::limits::{MAX_REPLICAS, OUTVOTED_BEFORE_REPLACE};
use crate::record::Record;

/// The counts for one replica since f+1 replicas, including it, last agreed about a batch.
///
/// A wrong object can make any number of batches wrong until its RECOVER has its turn, even if the replica computes
/// correctly. So batches that name wrong objects count only once per RECOVER; batches that name none count each. So the
/// count is the number of times that neither a right result came nor a repair helped.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    in_a_row: u32,
    /// A batch named wrong objects, and no RECOVER has had its turn since.
    awaits_repair: bool,
    /// The operator was informed.
    is_reported: bool,
}

impl Streak {
    fn is_clear(&self) -> bool {
        self.in_a_row == 0 && !self.awaits_repair
    }
}

/// The counts by replica, including this one.
#[derive(Debug, Default)]
pub(super) struct Streaks([Streak; MAX_REPLICAS]);

impl Streaks {
    /// A replica was replaced.
    pub(super) fn forget(&mut self, replica: Replica) {
        self.0[replica as usize] = Streak::default();
    }

    /// Ends the streak of each replica that is among f+1 with equal digests of a batch. Batches are counted in the
    /// order in which they are decided here: results come out of order, and any right one ends the streak.
    pub(super) fn count_agreeing(&mut self, batch: u64, ballots: &mut Ballots) {
        let (me, quorum) = (ballots.config.me(), ballots.config.sizes.quorum_at(batch));
        let Some(record) = ballots.window.get_mut(batch) else { return };
        if record.known.len() < quorum {
            return;
        }
        let with_me = record.agreeing_with(me);
        let agreeing = if with_me.len() >= quorum { with_me } else { record.largest_agreement() };
        let fresh = agreeing.minus(record.counted);
        if agreeing.len() < quorum || fresh.is_empty() {
            return;
        }
        record.counted = record.counted.or(fresh);
        if self.0.iter().all(Streak::is_clear) || !is_of_clients(record) {
            return;
        }
        fresh.iter().for_each(|replica| self.0[replica as usize] = Streak::default());
    }

    /// f+1 others agree with each other about a batch and not with `replica`, with or without wrong objects.
    pub(super) fn count_outvoted(
        &mut self,
        batch: u64,
        replica: Replica,
        names_objects: bool,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        let Some(record) = ballots.window.get_mut(batch) else { return };
        if record.counted.contains(replica) || !is_of_clients(record) {
            return;
        }
        record.counted.insert(replica);
        let streak = &mut self.0[replica as usize];
        streak.awaits_repair |= names_objects;
        streak.in_a_row += u32::from(!names_objects);
        self.judge_streak(replica, ballots, round);
    }

    /// The results of `replica` are right. Counts it as outvoted if its batch digest is not the one that f+1 others
    /// agree on.
    pub(super) fn count_wrong_vote(
        &mut self,
        batch: u64,
        replica: Replica,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        let Some(record) = ballots.window.get(batch) else { return };
        let agreed = record.largest_agreement();
        if agreed.len() >= ballots.config.sizes.quorum_at(batch)
            && record.known.contains(replica)
            && !agreed.contains(replica)
        {
            self.count_outvoted(batch, replica, false, ballots, round);
        }
    }

    /// A RECOVER of `replica` has its turn: it explains the batches before it that named wrong objects.
    pub(super) fn count_repair(&mut self, replica: Replica, ballots: &mut Ballots, round: &mut Round<'_>) {
        let Some(streak) = self.0.get_mut(replica as usize) else { return };
        if std::mem::take(&mut streak.awaits_repair) {
            streak.in_a_row += 1;
            self.judge_streak(replica, ballots, round);
        }
    }

    fn judge_streak(&mut self, replica: Replica, ballots: &mut Ballots, round: &mut Round<'_>) {
        let can_begin_anew = ballots.can_begin_anew(Set::EMPTY);
        let streak = &mut self.0[replica as usize];
        if streak.in_a_row < OUTVOTED_BEFORE_REPLACE {
            return;
        }
        let why = BeyondRepair::Outvoted;
        if replica != ballots.config.me() {
            if !std::mem::replace(&mut streak.is_reported, true) {
                round.commands.push(Command::PeerBeyondRepair { replica, why });
            }
        } else if can_begin_anew {
            *streak = Streak::default();
            round.commands.push(Command::ReplaceSelf(why));
        }
    }
}

/// The pipeline's own requests have no reply: a replica that answers every client wrongly is right about them.
fn is_of_clients(record: &Record) -> bool {
    record.requests().iter().any(|result| result.request_info.of_client)
}
