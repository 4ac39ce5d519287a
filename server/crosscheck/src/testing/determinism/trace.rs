//! The results of one execution of a log, position by position, and the first difference to another one.

use std::collections::BTreeMap;
use std::fmt;

use object::{ObjectId, Pair, RegionId};
use schedule::{Footprint, LockId, Origin};

use super::{BATCH, Difference, PLAIN};
use crate::packed_state::PackedState;

/// Bytes of a reply that a message shows.
const SHOWN: usize = 80;

/// The operator's names of objects.
pub type Names = BTreeMap<(RegionId, ObjectId), String>;

/// The request at one position.
pub struct ExecutedRequest {
    /// Dispatch position.
    pub position: u64,
    /// The origin of the request.
    pub origin: Origin,
    /// Kind of the request; none where the state was digested.
    pub kind: Option<u16>,
    /// Its results.
    pub did: Did,
    /// Names of the existing objects.
    pub names: Names,
    /// The state after it.
    pub packed: Option<PackedState>,
}

/// All results of one position that replicas must agree on.
#[derive(PartialEq, Eq)]
pub struct Did {
    /// Locks that it may take.
    pub footprint: Footprint,
    /// How it ended.
    pub ended: Ended,
    /// The client's reply.
    pub reply: Vec<u8>,
    /// The objects that it touched.
    pub pairs: Vec<Pair>,
    /// Digests of all regions, where the state was digested.
    pub digests: Vec<u128>,
    /// The first object that differed after it was packed and unpacked, and how.
    pub repacked: Option<((RegionId, ObjectId), String)>,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Done,
    Missed(LockId),
    Panicked,
    Corrupted((RegionId, ObjectId)),
    Unreproducible,
    /// Its effects could not be rolled back.
    NotUndone,
    /// Its bytes, decoded again, gave no request.
    Undecodable,
}

impl Did {
    /// The results of a request that has done nothing yet.
    pub fn new(footprint: Footprint) -> Self {
        let (reply, pairs, digests) = (Vec::new(), Vec::new(), Vec::new());
        Did { footprint, ended: Ended::Done, reply, pairs, digests, repacked: None }
    }
}

/// One execution.
#[derive(Default)]
pub struct ExecutionTrace {
    at: BTreeMap<u64, (Origin, Option<u16>, Did)>,
    names: Names,
    /// The position at which it stopped, and the reason.
    stopped: Option<(u64, String)>,
}

impl ExecutionTrace {
    /// Collects the reports of the threads; also returns the position at which the state was packed, and the state.
    pub fn gather(seen: impl Iterator<Item = ExecutedRequest>) -> (Self, Option<(u64, PackedState)>) {
        let (mut trace, mut packed) = (ExecutionTrace::default(), None);
        for ExecutedRequest { position, origin, kind, did, names, packed: state } in seen {
            trace.at.insert(position, (origin, kind, did));
            trace.names.extend(names);
            packed = packed.or(state.map(|state| (position, state)));
        }
        (trace, packed)
    }

    /// After `position`, takes the results of another execution.
    pub fn go_on(&mut self, position: u64, other: ExecutionTrace) {
        self.at.retain(|at, _| *at <= position);
        self.at.extend(other.at.into_iter().filter(|(at, _)| *at > position));
    }

    /// After `position` there are no results, for this reason.
    pub fn stop(&mut self, position: u64, why: String) {
        self.at.retain(|at, _| *at <= position);
        self.stopped = Some((position, why));
    }

    /// Finds an object that fails its check without a fault.
    pub fn first_corrupted(&self) -> Result<(), Difference> {
        let corrupted = self.at.iter().find_map(|(position, (_, _, did))| match did.ended {
            Ended::Corrupted(object) => Some((position, object)),
            _ => None,
        });
        let Some((position, object)) = corrupted else { return Ok(()) };
        let what = format!(
            "{} does not fit its checksum, although nothing has damaged it: does its `Summed` sum what `pack` packs?",
            self.name(object)
        );
        Err(self.difference(*position, PLAIN.name, what))
    }

    /// Finds the first position at which `other` differs from this execution.
    pub fn compare(&self, other: &ExecutionTrace, variant: &'static str) -> Result<(), Difference> {
        let mut positions: Vec<u64> = self.at.keys().chain(other.at.keys()).copied().collect();
        positions.sort_unstable();
        positions.dedup();
        for position in positions {
            let what = match (self.at.get(&position), other.at.get(&position)) {
                (Some(mine), Some(theirs)) if mine == theirs => continue,
                (Some((.., mine)), Some((.., theirs))) => self.describe(mine, theirs),
                (Some(_), None) => match &other.stopped {
                    Some((_, why)) => why.clone(),
                    None => "it does not run at its position".to_owned(),
                },
                (None, _) => "a request runs behind it that did not run before".to_owned(),
            };
            return Err(self.difference(position, variant, what));
        }
        Ok(())
    }

    fn describe(&self, mine: &Did, theirs: &Did) -> String {
        if let Some((object, what)) = &theirs.repacked {
            return format!("{} {what}", self.name(*object));
        }
        if mine.ended != theirs.ended {
            return format!("it {} instead of {}", self.end(theirs.ended), self.end(mine.ended));
        }
        if mine.reply != theirs.reply {
            return format!("the reply is {} instead of {}", shown(&theirs.reply), shown(&mine.reply));
        }
        if mine.footprint != theirs.footprint {
            return format!("its locks are {} instead of {}", Locks(theirs.footprint), Locks(mine.footprint));
        }
        let mut pairs = theirs.pairs.iter().filter(|pair| !mine.pairs.contains(pair));
        let mut missing = mine.pairs.iter().filter(|pair| !theirs.pairs.contains(pair));
        if let Some(pair) = pairs.next().or_else(|| missing.next()) {
            return format!("{} is another one when it ends", self.name((pair.region_id, pair.id)));
        }
        let region_id = mine.digests.iter().zip(&theirs.digests).position(|(mine, theirs)| mine != theirs);
        match region_id {
            Some(region_id) => format!("the state behind lock {region_id} is another one afterwards"),
            None => "another request runs at its position".to_owned(),
        }
    }

    fn end(&self, ended: Ended) -> String {
        match ended {
            Ended::Done => "is done".to_owned(),
            Ended::Missed(lock) => format!("misses lock {lock}"),
            Ended::Panicked => "panics".to_owned(),
            Ended::Corrupted(object) => format!("finds {} corrupted", self.name(object)),
            Ended::NotUndone => "cannot be undone".to_owned(),
            Ended::Undecodable => "cannot be decoded a second time".to_owned(),
            Ended::Unreproducible => "comes to something else each time it runs".to_owned(),
        }
    }

    fn name(&self, object: (RegionId, ObjectId)) -> String {
        let (region_id, id) = object;
        match self.names.get(&object) {
            Some(name) => format!("{name} (object {region_id}:{id})"),
            None => format!("object {region_id}:{id}"),
        }
    }

    /// A difference at this position, or after the last one.
    fn difference(&self, position: u64, variant: &'static str, what: String) -> Difference {
        let Some((&at, (_, kind, _))) = self.at.range(..=position).next_back() else {
            return Difference { request: 0, is_started: false, kind: 0, variant, what };
        };
        // Where only the state was digested, it is the result of the last request before.
        let at = match kind {
            Some(_) => at,
            None => self.at.range(..at).rfind(|(_, (_, kind, _))| kind.is_some()).map_or(at, |(&at, _)| at),
        };
        let kind = self.at[&at].1.unwrap_or(0);
        let (request, is_started) = self.root(at);
        Difference { request, is_started, kind, variant, what }
    }

    /// The request of the log that led to the request at a position, and whether that is another one.
    fn root(&self, mut position: u64) -> (usize, bool) {
        let mut is_started = false;
        loop {
            match self.at.get(&position).map(|(origin, ..)| *origin) {
                Some(Origin::Entry { index, request }) => {
                    return ((index as usize - 1) / 2 * BATCH + request as usize, is_started);
                }
                Some(Origin::Spawned { position: by, .. } | Origin::Timer { position: by, .. }) => {
                    is_started = true;
                    position = by;
                }
                None => return (0, is_started),
            }
        }
    }
}

/// A reply, for a message.
fn shown(reply: &[u8]) -> String {
    let rest = if reply.len() > SHOWN { "..." } else { "" };
    format!("\"{}{rest}\"", reply[..reply.len().min(SHOWN)].escape_ascii())
}

/// Locks, for a message.
struct Locks(Footprint);

impl fmt::Display for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_all() {
            return write!(f, "all");
        }
        f.debug_list().entries(self.0.iter().map(|(lock, _)| lock)).finish()
    }
}
