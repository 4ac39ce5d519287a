//! Repair without interruption: from the wrong objects of a FAILED replica to the bytes that overwrite them.

mod collect;
mod install;
mod recover;
mod serve;
mod settle;

pub use recover::{Recover, Scope};
pub(crate) use settle::{RecoverStatus, Settling};

use object::{ObjectId, RegionId};

use crate::command::{BeyondRepair, Command};
use crate::config::{Config, Protections, Replica, Set};
use crate::event::{Packed, Place};
use crate::evidence::VoteCounters;
use crate::limits::MAX_REPLICAS;
use crate::message::RepairPart;
use crate::sizes::VotersByBatch;
use crate::voter::Round;
use collect::Case;
use install::Installs;
use serve::Served;
use wire::ReplicaId;

/// The repair part of one replica: it collects wrong objects of its peers and proposes RECOVERs, serves packed objects
/// to a faulty peer, and accepts them when it is the faulty one itself.
#[derive(Debug)]
pub(crate) struct Repairs {
    me: Replica,
    sizes: VotersByBatch,
    region_ids: RegionId,
    limit: usize,
    /// The cases, by faulty replica.
    cases: [Case; MAX_REPLICAS],
    served: Served,
    installs: Installs,
}

impl Repairs {
    pub(crate) fn new(config: &Config) -> Self {
        let protections: Protections = config.protections;
        Repairs {
            me: config.me(),
            sizes: config.sizes,
            region_ids: config.region_ids(),
            limit: config.repair_limit(),
            cases: Default::default(),
            served: Served::default(),
            installs: Installs::new(config.me(), config.sizes, protections.repair_quorum),
        }
    }

    /// The group has grown or shrunk.
    pub(crate) fn resize(&mut self, sizes: VotersByBatch) {
        self.sizes = sizes;
        self.installs.resize(sizes);
    }

    /// Wrong objects of `faulty`, found in the request at `place`. `proposers` are the replicas that were not wrong
    /// there: a replica that is wrong itself leaves the case to them. If it kept the case, the case would stay for ever
    /// when they have closed the vote long ago.
    pub(crate) fn add(
        &mut self,
        faulty: Replica,
        place: Place,
        objects: &[(RegionId, ObjectId)],
        proposers: Set,
        now_us: u64,
    ) {
        if faulty == self.me || !proposers.contains(self.me) {
            return;
        }
        let region_ids = self.region_ids;
        let real = objects.iter().copied().filter(|object| is_real(*object, region_ids));
        self.cases[faulty as usize].add(place, real, proposers, now_us);
    }

    /// Whether a RECOVER may list any of these objects.
    pub(crate) fn can_repair(&self, objects: &[(RegionId, ObjectId)]) -> bool {
        objects.iter().any(|object| is_real(*object, self.region_ids))
    }

    /// Proposes a RECOVER for every replica with wrong objects, if it is this replica's turn to propose.
    pub(crate) fn propose(&mut self, live: Set, round: &mut Round<'_>) {
        if self.cases.iter().all(Case::is_quiet) {
            return;
        }
        let mut wrong = Set::EMPTY;
        for replica in (0..self.sizes.now()).filter(|replica| !self.cases[*replica as usize].is_quiet()) {
            wrong.insert(replica);
        }
        for faulty in wrong.and(live).without(self.me).iter() {
            let senders = live.without(faulty);
            // Fewer senders could never send f+1 equal digests, and the turn would wait for ever.
            if senders.len() <= u32::from(self.sizes.now() / 2) {
                continue;
            }
            let proposed = self.cases[faulty as usize].propose(self.me, faulty, senders, round.now_us);
            if let Some(recover) = proposed {
                round.commands.push(Command::ProposeRecover(recover));
            }
        }
    }

    /// A RECOVER has its turn: its case is closed, healthy replicas send objects, the faulty one begins to wait.
    pub(crate) fn on_turn(
        &mut self,
        turn: Place,
        time_us: u64,
        recover: Recover,
        packed: Vec<Packed>,
        live: Set,
        round: &mut Round<'_>,
    ) {
        let Scope::Faulty(faulty) = recover.scope else { return };
        if faulty >= self.sizes.at(turn.batch) {
            return;
        }
        let too_many = self.cases[faulty as usize].on_turn(turn, time_us, &recover, self.limit, round.now_us);
        if self.cases[faulty as usize].is_news_of_many(time_us) {
            round.commands.push(Command::ManyRepairs { replica: faulty });
        }
        if too_many && faulty == self.me {
            round.commands.push(Command::ReplaceSelf(BeyondRepair::TooManyRepairs));
        } else if too_many {
            let why = BeyondRepair::TooManyRepairs;
            round.commands.push(Command::PeerBeyondRepair { replica: faulty, why });
        }
        if faulty == self.me {
            self.installs.on_turn(turn, &recover, live, round);
        } else {
            let pushes = live.without(faulty).lowest() == Some(self.me);
            self.served.on_turn(turn, faulty, packed, pushes, round);
        }
    }

    /// A RECOVER by which the group settles on one version has its turn. Whether this replica takes part is already
    /// decided.
    pub(crate) fn on_settling(
        &mut self,
        turn: Place,
        recover: &Recover,
        packed: Vec<Packed>,
        takes_part: bool,
        live: Set,
        round: &mut Round<'_>,
    ) {
        let others = (0..self.sizes.at(turn.batch)).filter(|replica| recover.overwrites_at(*replica));
        if takes_part {
            others.clone().for_each(|replica| self.cases[replica as usize].on_overwritten(turn, recover));
        }
        if recover.packs_at(self.me) {
            others.for_each(|replica| self.served.on_turn(turn, replica, packed.clone(), true, round));
        } else if takes_part {
            self.installs.on_turn(turn, recover, live, round);
        } else {
            self.installs.pass(turn, round);
        }
    }

    /// REPAIR from a peer.
    pub(crate) fn on_repair(
        &mut self,
        from: Replica,
        turn: Place,
        parts: Vec<RepairPart>,
        round: &mut Round<'_>,
    ) {
        self.installs.on_repair(from, turn, parts, round);
    }

    /// The faulty replica is done.
    pub(crate) fn on_repaired(&mut self, from: Replica, turn: Place) {
        self.served.on_repaired(turn, from);
    }

    /// A faulty peer requests a piece.
    pub(crate) fn on_ask(
        &mut self,
        from: Replica,
        turn: Place,
        target: (RegionId, ObjectId),
        piece: u32,
        round: &mut Round<'_>,
    ) {
        self.served.on_ask((turn, from), target, piece, round);
    }

    pub(crate) fn on_peer_replaced(&mut self, replica: Replica, first_batch: u64) {
        self.cases[replica as usize].on_replaced(first_batch);
        self.served.on_peer_replaced(replica, first_batch);
    }

    pub(crate) fn tick(&mut self, live: Set, counters: &mut VoteCounters, round: &mut Round<'_>) {
        counters.asks_sent += self.installs.tick(live, round);
    }

    /// A description of a repair that is still due at a live replica, or awaited here.
    pub(crate) fn open(&self, live: Set) -> Option<String> {
        if !self.installs.is_idle() {
            return Some("a repair of this replica is awaited".into());
        }
        let due = |replica: Replica| {
            let what = self.cases[replica as usize].due()?;
            Some(format!("a repair of replica {} is due: {what}", ReplicaId(replica)))
        };
        live.iter().find_map(due)
    }

    /// Objects and regions installed here.
    pub(crate) fn installed(&self) -> u64 {
        self.installs.installed
    }

    /// Senders of packed bytes that did not match their digest, since the last call.
    pub(crate) fn take_bad_pieces(&mut self) -> Vec<(Replica, Place)> {
        std::mem::take(&mut self.installs.bad)
    }
}

/// A corrupted region number names no lock; the majority's pairs name the regions that are really affected.
fn is_real((region_id, id): (RegionId, ObjectId), region_ids: RegionId) -> bool {
    region_id < region_ids && !id.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two of five are wrong in one request: each would wait for ever for a case that the other three may have settled
    /// without it.
    #[test]
    fn who_is_wrong_itself_keeps_no_case_against_another() {
        let wrong = [(1, ObjectId::new(7, 0))];
        let healthy = Set::first(5).without(0).without(3);
        let open_at = |me: Replica| {
            let mut repairs = Repairs::new(&Config::new(5, me, 4, 0));
            repairs.add(3, Place::new(9, 0), &wrong, healthy, 100);
            repairs.open(Set::first(5)).is_some()
        };
        assert_eq!((0..5).map(open_at).collect::<Vec<_>>(), [false, true, true, false, true]);
    }
}
