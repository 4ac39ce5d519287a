//! RECOVER: the ordered request that lists objects to be overwritten, the replicas concerned, and the source of the
//! version (EDCC'16 section IV-C).

use bytes::Bytes;
use object::{ObjectId, RegionId};
use wire::{Malformed, Put, Reader};
use xxhash_rust::xxh3::xxh3_64;

use crate::config::Replica;
use crate::event::Place;
use crate::limits::{MAX_OBJECTS_PER_RECOVER, MAX_REGIONS_PER_RECOVER, MAX_REPLICAS};
use crate::message::BOUND;

/// The replicas whose objects a RECOVER overwrites, and the source of the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The objects of this faulty replica, with the version of f+1 others.
    Faulty(Replica),
    /// The objects of all other replicas, with this one's version: no f+1 agree about them. A replica takes part only
    /// if its own voter knows of a request that showed this.
    SettleOn(Replica),
}

/// Overwrites these objects. It takes a position in the order; its footprint is [`Recover::region_ids`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recover {
    /// Identifies the proposal: equal proposals by one replica have equal ids.
    pub id: u64,
    /// Its proposer.
    pub proposer: Replica,
    /// The replicas concerned, and the source of the version.
    pub scope: Scope,
    /// A request that showed the errors.
    pub cause: Place,
    /// The objects, sorted, at most [`MAX_OBJECTS_PER_RECOVER`], none in a listed region.
    pub objects: Vec<(RegionId, ObjectId)>,
    /// Regions that are repaired as a whole, sorted, at most [`MAX_REGIONS_PER_RECOVER`].
    pub regions: Vec<RegionId>,
}

impl Recover {
    /// The same RECOVER, with an id made from its content.
    pub(super) fn named(self) -> Recover {
        let mut bytes = Vec::new();
        let unnamed = Recover { id: 0, ..self };
        unnamed.encode(&mut bytes);
        Recover { id: xxh3_64(&bytes), ..unnamed }
    }

    /// Whether `replica` overwrites its objects: it holds the turn until they have arrived.
    pub fn overwrites_at(&self, replica: Replica) -> bool {
        match self.scope {
            Scope::Faulty(faulty) => faulty == replica,
            Scope::SettleOn(source) => source != replica,
        }
    }

    /// Whether `replica` packs its objects for those that overwrite theirs.
    pub fn packs_at(&self, replica: Replica) -> bool {
        !self.overwrites_at(replica)
    }

    /// The locks this request needs, sorted, each once.
    pub fn region_ids(&self) -> Vec<RegionId> {
        let mut region_ids: Vec<RegionId> = self
            .objects
            .iter()
            .map(|(region_id, _)| *region_id)
            .chain(self.regions.iter().copied())
            .collect();
        region_ids.sort_unstable();
        region_ids.dedup();
        region_ids
    }

    /// Objects and regions together: the targets that REPAIR has to deliver. A region has the id [`ObjectId::NONE`].
    pub fn targets(&self) -> impl Iterator<Item = (RegionId, ObjectId)> {
        self.objects.iter().copied().chain(self.regions.iter().map(|region_id| (*region_id, ObjectId::NONE)))
    }

    /// Appends the wire form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put64(self.id).put8(self.proposer).put8(self.scope.to_byte()).put(&self.cause.to_bytes());
        out.put16(self.objects.len() as u16).put16(self.regions.len() as u16);
        for (region_id, id) in &self.objects {
            out.put32(*region_id).put64(id.to_bits());
        }
        for region_id in &self.regions {
            out.put32(*region_id);
        }
    }

    /// Decodes one whole RECOVER.
    ///
    /// # Errors
    /// [`Malformed`] for anything that [`Recover::encode`] does not write within this crate's limits. Region ids are
    /// not checked against the service's number of regions; the caller does that when it takes the locks.
    pub fn decode(bytes: &Bytes) -> Result<Recover, Malformed> {
        let mut r = Reader::new(bytes);
        let (id, proposer, scope, cause) =
            (r.u64()?, r.u8()?, Scope::of_byte(r.u8()?)?, Place::read(&mut r)?);
        let objects = r.count16(MAX_OBJECTS_PER_RECOVER, 12)?;
        let regions = r.count16(MAX_REGIONS_PER_RECOVER, 4)?;
        if proposer as usize >= MAX_REPLICAS || objects + regions == 0 {
            return Err(BOUND);
        }
        let mut recover = Recover {
            id,
            proposer,
            scope,
            cause,
            objects: Vec::with_capacity(objects),
            regions: Vec::with_capacity(regions),
        };
        for _ in 0..objects {
            recover.objects.push((r.u32()?, ObjectId::from_bits(r.u64()?)));
        }
        for _ in 0..regions {
            recover.regions.push(r.u32()?);
        }
        r.end()?;
        recover.is_canonical().then_some(recover).ok_or(BOUND)
    }

    /// Whether it is sorted, without duplicates, and without objects of a region that is listed as a whole.
    fn is_canonical(&self) -> bool {
        let objects = self.objects.windows(2).all(|two| two[0] < two[1]);
        let regions = self.regions.windows(2).all(|two| two[0] < two[1]);
        let apart = |(region_id, id): &(RegionId, ObjectId)| {
            !id.is_none() && self.regions.binary_search(region_id).is_err()
        };
        objects && regions && self.objects.iter().all(apart)
    }
}

/// Marks a settling in the byte that holds the replica: logs from before settlings existed are decoded alike.
const SETTLE: u8 = 0x80;

impl Scope {
    /// The replica it names.
    pub fn replica(self) -> Replica {
        match self {
            Scope::Faulty(replica) | Scope::SettleOn(replica) => replica,
        }
    }

    fn to_byte(self) -> u8 {
        match self {
            Scope::Faulty(faulty) => faulty,
            Scope::SettleOn(source) => source | SETTLE,
        }
    }

    fn of_byte(byte: u8) -> Result<Scope, Malformed> {
        let replica = byte & !SETTLE;
        match (usize::from(replica) < MAX_REPLICAS, byte & SETTLE != 0) {
            (false, _) => Err(BOUND),
            (true, false) => Ok(Scope::Faulty(replica)),
            (true, true) => Ok(Scope::SettleOn(replica)),
        }
    }
}
