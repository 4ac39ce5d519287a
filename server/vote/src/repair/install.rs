//! The faulty side of a repair: packed objects are accepted on f+1 equal digests, and only then overwrite anything.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use object::{ObjectId, RegionId};

use super::{Recover, Scope};
use crate::command::{Command, To};
use crate::config::{Replica, Set};
use crate::event::{Content, Packed, Place};
use crate::limits::*;
use crate::message::{Ask, Message, RepairPart};
use crate::sizes::VotersByBatch;
use crate::voter::Round;

/// The RECOVERs whose turn this replica, the faulty one, holds.
#[derive(Debug)]
pub(super) struct Installs {
    me: Replica,
    sizes: VotersByBatch,
    /// Off only to show the effect of the f+1 rule.
    quorum_rule: bool,
    waiting: BTreeMap<Place, Install>,
    /// REPAIRs for turns this replica has not reached: healthy replicas may be ahead.
    early: VecDeque<(Replica, Place, Vec<RepairPart>)>,
    early_bytes: usize,
    /// Turns that are done; late REPAIRs for them are ignored.
    done: VecDeque<Place>,
    /// Senders of bytes that did not match their digest.
    pub bad: Vec<(Replica, Place)>,
    /// Objects and regions installed.
    pub installed: u64,
}

/// One RECOVER that waits for its objects.
#[derive(Debug)]
struct Install {
    belief: Belief,
    targets: BTreeMap<(RegionId, ObjectId), InstallTarget>,
    since_us: u64,
    requested_us: u64,
    /// Counts requests, so that each round goes to another peer.
    round_robin: usize,
}

/// One object or region.
#[derive(Debug, Default)]
struct InstallTarget {
    pieces: BTreeMap<u32, Piece>,
    /// Accepted number of pieces and existence, once the first piece is.
    shape: Option<Claim>,
    accepted: Option<Packed>,
}

#[derive(Debug, Default)]
struct Piece {
    /// The claim of each peer.
    claims: [Option<Claim>; MAX_REPLICAS],
    /// Bytes that match any peer's claim, by digest.
    bytes: Option<(u128, Bytes)>,
    is_requested: bool,
}

/// A peer's claim about a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    present: bool,
    pieces: u32,
    digest: u128,
}

/// The replicas that a replica trusts about objects that overwrite its own.
#[derive(Clone, Copy, Debug)]
enum Belief {
    /// Replicas other than `me` with equal claims, if they are `quorum`.
    Quorum { me: Replica, quorum: u32 },
    /// This one alone: no f+1 agree, and the group settles on its version.
    Source(Replica),
}

impl Belief {
    /// The replicas that can be asked for the objects.
    fn senders(self, live: Set) -> Set {
        match self {
            Belief::Quorum { me, .. } => live.without(me),
            Belief::Source(source) => live.and(Set::EMPTY.with(source)),
        }
    }

    /// Whether enough of them are up.
    fn has_senders(self, live: Set) -> bool {
        match self {
            Belief::Quorum { quorum, .. } => self.senders(live).len() >= quorum,
            Belief::Source(_) => !self.senders(live).is_empty(),
        }
    }
}

/// The f+1 rule on REPAIR: the claim that f+1 different replicas make, the faulty replica itself never among them.
///
/// At most f replicas are wrong, the faulty one included, so among f+1 others with equal claims at least one is right.
/// Where the group settles on one version, the claim of its source.
fn agreed_claim(claims: &[Option<Claim>; MAX_REPLICAS], belief: Belief) -> Option<Claim> {
    let (me, quorum) = match belief {
        Belief::Quorum { me, quorum } => (me, quorum),
        Belief::Source(source) => return claims[usize::from(source)],
    };
    let others =
        || claims.iter().enumerate().filter(|(from, _)| *from != me as usize).filter_map(|(_, claim)| *claim);
    others().find(|claim| others().filter(|other| other == claim).count() as u32 >= quorum)
}

impl Installs {
    pub(super) fn new(me: Replica, sizes: VotersByBatch, quorum_rule: bool) -> Self {
        Installs {
            me,
            sizes,
            quorum_rule,
            waiting: BTreeMap::new(),
            early: VecDeque::new(),
            early_bytes: 0,
            done: VecDeque::new(),
            bad: Vec::new(),
            installed: 0,
        }
    }

    /// The group has grown or shrunk.
    pub(super) fn resize(&mut self, sizes: VotersByBatch) {
        self.sizes = sizes;
    }

    /// The turn is held from now on; it is passed at once if not enough trusted replicas are up.
    pub(super) fn on_turn(&mut self, turn: Place, recover: &Recover, live: Set, round: &mut Round<'_>) {
        let belief = match recover.scope {
            Scope::Faulty(_) => {
                let quorum = if self.quorum_rule { self.sizes.quorum_at(turn.batch) } else { 1 };
                Belief::Quorum { me: self.me, quorum }
            }
            Scope::SettleOn(source) => Belief::Source(source),
        };
        let targets = recover.targets().map(|target| (target, InstallTarget::default())).collect();
        let (since_us, requested_us) = (round.now_us, round.now_us);
        let install = Install { belief, targets, since_us, requested_us, round_robin: 0 };
        self.waiting.insert(turn, install);
        let (now, later): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.early).into_iter().partition(|(_, of, _)| *of == turn);
        self.early_bytes = later.iter().map(|(_, _, parts)| length(parts)).sum();
        self.early = later;
        for (from, _, parts) in now {
            self.on_repair(from, turn, parts, round);
        }
        if !belief.has_senders(live) {
            // The objects stay wrong, and are still known to be wrong.
            self.give_up(turn, round);
        }
    }

    /// REPAIR: the function that receives it.
    pub(super) fn on_repair(
        &mut self,
        from: Replica,
        turn: Place,
        parts: Vec<RepairPart>,
        round: &mut Round<'_>,
    ) {
        if !self.waiting.contains_key(&turn) {
            return self.keep_early(from, turn, parts);
        }
        for part in parts {
            self.on_part(from, turn, part, round);
        }
    }

    /// One piece. The turn may have been passed with an earlier one.
    fn on_part(&mut self, from: Replica, turn: Place, part: RepairPart, round: &mut Round<'_>) {
        let Some(install) = self.waiting.get_mut(&turn) else { return };
        let belief = install.belief;
        let Some(target) = install.targets.get_mut(&(part.region_id, part.id)) else { return };
        if target.accepted.is_some() {
            return;
        }
        if !self.quorum_rule && target.pieces.is_empty() && part.bytes.is_none() && part.present {
            return;
        }
        let claim = Claim { present: part.present, pieces: part.pieces, digest: part.digest };
        if let Some(bytes) = &part.bytes
            && part.digest_of(turn, bytes) != part.digest
        {
            // Corrupted in transit or in the sender's memory: dropped, and requested again.
            self.bad.push((from, turn));
            return;
        }
        let piece = target.pieces.entry(part.piece).or_default();
        piece.claims[from as usize] = Some(claim);
        if let Some(bytes) = part.bytes {
            let before = piece.bytes.as_ref().map(|(digest, _)| *digest);
            let agreed = agreed_claim(&piece.claims, belief).map(|claim| claim.digest);
            if before.is_none() || before != agreed {
                piece.bytes = Some((part.digest, bytes));
            }
            piece.is_requested = false;
        } else if !part.present && part.digest_of(turn, &[]) == part.digest {
            piece.bytes = Some((part.digest, Bytes::new()));
        }
        self.accept(turn, (part.region_id, part.id), round);
    }

    /// Assembles a target when every piece has f+1 equal digests and bytes that match.
    fn accept(&mut self, turn: Place, key: (RegionId, ObjectId), round: &mut Round<'_>) {
        let Some(install) = self.waiting.get_mut(&turn) else { return };
        let belief = install.belief;
        let Some(target) = install.targets.get_mut(&key) else { return };
        if target.shape.is_none() {
            target.shape = target.pieces.values().find_map(|piece| agreed_claim(&piece.claims, belief));
        }
        let Some(shape) = target.shape else { return };
        if (target.pieces.len() as u32) < shape.pieces {
            return pull(install, turn, key, round);
        }
        let mut whole: Vec<&Bytes> = Vec::with_capacity(shape.pieces as usize);
        for (index, piece) in (0..shape.pieces).zip(target.pieces.range(0..shape.pieces)) {
            let claim = agreed_claim(&piece.1.claims, belief);
            let fits = |claim: &Claim| (claim.present, claim.pieces) == (shape.present, shape.pieces);
            let bytes = piece.1.bytes.as_ref();
            match (claim.filter(fits), bytes) {
                (Some(claim), Some((digest, bytes))) if *piece.0 == index && *digest == claim.digest => {
                    whole.push(bytes);
                }
                _ => return pull(install, turn, key, round),
            }
        }
        let content = if shape.present { Content::Present(join(&whole)) } else { Content::Absent };
        target.accepted = Some(Packed { region_id: key.0, id: key.1, content });
        target.pieces.clear();
        self.finish(turn, round);
    }

    /// All objects have arrived: the corrupted ones are overwritten, and the turn may be passed.
    fn finish(&mut self, turn: Place, round: &mut Round<'_>) {
        let Some(install) = self.waiting.get(&turn) else { return };
        if install.targets.values().any(|target| target.accepted.is_none()) {
            return;
        }
        let Some(install) = self.waiting.remove(&turn) else { return };
        let objects: Vec<Packed> =
            install.targets.into_values().filter_map(|target| target.accepted).collect();
        self.installed += objects.len() as u64;
        self.close(turn);
        round.commands.push(Command::Install { turn, objects });
        round.send(To::All, Message::Repaired { turn });
    }

    /// Closes a turn: later messages for it are ignored.
    fn close(&mut self, turn: Place) {
        self.done.push_back(turn);
        if self.done.len() > DONE_TURNS {
            self.done.pop_front();
        }
    }

    /// Passes the turn without a repair.
    fn give_up(&mut self, turn: Place, round: &mut Round<'_>) {
        let Some(install) = self.waiting.remove(&turn) else { return };
        self.close(turn);
        round.commands.push(match install.belief {
            Belief::Quorum { .. } => Command::GiveUpRepair { turn },
            // All others wait for the same source: they must not all report themselves as beyond repair at once.
            Belief::Source(_) => Command::PassTurn { turn },
        });
    }

    /// The turn of a RECOVER in which this replica does not take part.
    pub(super) fn pass(&mut self, turn: Place, round: &mut Round<'_>) {
        self.early.retain(|(_, of, _)| *of != turn);
        self.early_bytes = self.early.iter().map(|(_, _, parts)| length(parts)).sum();
        self.close(turn);
        round.commands.push(Command::PassTurn { turn });
    }

    /// Requests missing data again; gives up in the end.
    pub(super) fn tick(&mut self, live: Set, round: &mut Round<'_>) -> u64 {
        let now_us = round.now_us;
        let mut asks = 0;
        let overdue = |install: &Install| now_us.saturating_sub(install.since_us) >= REPAIR_GIVE_UP_US;
        let late: Vec<Place> =
            self.waiting.iter().filter(|(_, install)| overdue(install)).map(|(turn, _)| *turn).collect();
        late.into_iter().for_each(|turn| self.give_up(turn, round));
        for (turn, install) in &mut self.waiting {
            if now_us.saturating_sub(install.requested_us) < ASK_AFTER_US {
                continue;
            }
            install.requested_us = now_us;
            install.round_robin += 1;
            let (belief, round_robin) = (install.belief, install.round_robin);
            for (key, target) in install.targets.iter_mut().filter(|(_, target)| target.accepted.is_none()) {
                let room = ASKS_PER_TICK as u64 - asks;
                asks += ask_again(*turn, *key, target, (live, belief), round_robin, room, round);
            }
        }
        asks
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps a REPAIR that comes before its turn. The oldest one is dropped if there is no room: it is for a turn that
    /// was given up, or is requested again.
    fn keep_early(&mut self, from: Replica, turn: Place, parts: Vec<RepairPart>) {
        if self.done.contains(&turn) {
            return;
        }
        self.early_bytes += length(&parts);
        self.early.push_back((from, turn, parts));
        while self.early.len() > EARLY_REPAIRS || self.early_bytes > EARLY_REPAIR_BYTES {
            let Some((_, _, oldest)) = self.early.pop_front() else { return };
            self.early_bytes -= length(&oldest);
        }
    }
}

/// Requests the next pieces whose digest is agreed on and whose bytes no replica has sent.
fn pull(install: &mut Install, turn: Place, (region_id, id): (RegionId, ObjectId), round: &mut Round<'_>) {
    let belief = install.belief;
    let Some(target) = install.targets.get_mut(&(region_id, id)) else { return };
    let mut open = target.pieces.values().filter(|piece| piece.is_requested).count();
    for (index, piece) in &mut target.pieces {
        let Some(claim) = agreed_claim(&piece.claims, belief) else { continue };
        let there = piece.bytes.as_ref().is_some_and(|(digest, _)| *digest == claim.digest);
        if there || piece.is_requested {
            continue;
        }
        if open >= REPAIR_PULL_PIECES {
            return;
        }
        let source = (0..MAX_REPLICAS).find(|from| piece.claims[*from] == Some(claim));
        if let Some(source) = source {
            open += 1;
            piece.is_requested = true;
            round.send_one(
                source as Replica,
                Message::Ask(Ask::Repair { turn, region_id, id, piece: *index }),
            );
        }
    }
}

/// Requests missing digests from every peer, and missing bytes from one peer after the other.
fn ask_again(
    turn: Place,
    (region_id, id): (RegionId, ObjectId),
    target: &mut InstallTarget,
    (live, belief): (Set, Belief),
    round_robin: usize,
    room: u64,
    round: &mut Round<'_>,
) -> u64 {
    let mut asks = 0;
    let pieces = target.shape.map_or(1, |shape| shape.pieces);
    let peers: Vec<Replica> = belief.senders(live).iter().collect();
    for index in 0..pieces {
        let piece = target.pieces.entry(index).or_default();
        let agreed = agreed_claim(&piece.claims, belief);
        let there = |claim: Claim| piece.bytes.as_ref().is_some_and(|(digest, _)| *digest == claim.digest);
        let whom: Vec<Replica> = match agreed {
            Some(claim) if there(claim) => continue,
            Some(claim) => {
                let sources: Vec<Replica> = peers
                    .iter()
                    .copied()
                    .filter(|peer| piece.claims[*peer as usize] == Some(claim))
                    .collect();
                sources.get(round_robin % sources.len().max(1)).copied().into_iter().collect()
            }
            None => peers.clone(),
        };
        if asks + whom.len() as u64 > room {
            return asks;
        }
        asks += whom.len() as u64;
        for peer in whom {
            round.send_one(peer, Message::Ask(Ask::Repair { turn, region_id, id, piece: index }));
        }
    }
    asks
}

fn length(parts: &[RepairPart]) -> usize {
    size_of_val(parts) + parts.iter().filter_map(|part| part.bytes.as_ref()).map(Bytes::len).sum::<usize>()
}

fn join(parts: &[&Bytes]) -> Bytes {
    if let [only] = parts {
        return (*only).clone();
    }
    let mut whole = BytesMut::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    whole.freeze()
}
