//! The whole state of a replica at one position, as bytes: a CHECKPOINT keeps it and a state transfer sends it.

mod parts;

use bytes::Bytes;
use execute::{Regions, TokenParts};
use object::{Region, RegionId};
use schedule::{Access, DispatcherState, Turn};
use verify::{StateToken, Version};
use wire::{Malformed, Put, Reader};

use crate::boundary::OwnedRegions;
pub use crate::checkpoint::CheckpointHead;
use crate::job::Job;
use crate::packed_state::{PackReader, PackWriter, PackedState};
use crate::service::Service;
use crate::snapshot::{Saved, SavedSize};
pub(crate) use parts::{LoadedState, LoadingState, PartsScan, begin_parts, put_end, put_parts};

/// The position of a loaded state: its head, and the schedule's state after it.
pub type Base<S> = (CheckpointHead, DispatcherState<Job<<S as Service>::Request>>);

const VERSION: u8 = 1;
/// Of a state that was packed in parts.
const VERSION_IN_PARTS: u8 = 2;
/// Bytes of a token and of what it is computed from.
const TOKEN_BYTES: usize = 64;
/// Seed of the digest of what belongs to a version besides the objects and outputs.
const CONTEXT: &[u8] = b"version";

/// Packs the state in an exclusive turn.
///
/// # Errors
/// When the turn is not exclusive, or turns are not ordered: there is no such state then.
pub fn pack<S: Service>(
    turn: &mut Turn<'_, Job<S::Request>>,
    service: &S,
    head: &CheckpointHead,
    mut out: PackWriter,
) -> Result<PackedState, &'static str> {
    out.put(&[VERSION]);
    put_head(turn, head, &mut out)?;
    turn.take_all();
    // All regions in turn: fresh memory for each would cost more than to pack them.
    let mut packed = Vec::new();
    turn.visit_regions(&service.locks(), |_, access| {
        packed.clear();
        match access {
            Access::Exclusive(region) => region.pack_all_into(&mut packed),
            Access::Shared(region) => region.pack_all_into(&mut packed),
        }
        out.put_block(&packed);
    });
    Ok(out.finish())
}

fn put_head<R>(
    turn: &mut Turn<'_, Job<R>>,
    head: &CheckpointHead,
    out: &mut PackWriter,
) -> Result<(), &'static str> {
    let dispatcher = turn.dispatcher_state().ok_or("a checkpoint runs alone, in ordered turns")?;
    out.put(&head.index.to_le_bytes());
    out.put(&head.batch.to_le_bytes());
    out.put_block(&head.order.encode());
    let mut schedule = Vec::new();
    dispatcher.encode(&mut schedule, |job, out| out.extend_from_slice(&job.ordered));
    out.put_block(&schedule);
    Ok(())
}

/// In verified mode: the version that a packed state is the state of, and what the version's token is computed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateProof {
    /// The token.
    pub token: StateToken,
    /// With the state itself, all that it is computed from.
    pub parts: TokenParts,
}

impl StateProof {
    /// Whether the token stands for this position in the order. Of the objects, their tree tells.
    pub fn fits<R>(&self, head: &CheckpointHead, dispatcher: &DispatcherState<R>) -> bool {
        self.parts.context == context(&head.order, dispatcher.digest())
    }

    /// The version, of this batch.
    pub fn version(&self, batch: u64) -> Version {
        Version { number: batch, token: self.token }
    }
}

/// In verified mode: digest of what belongs to a version besides the objects and outputs: the state of the order, and a
/// digest of that of the schedule.
pub fn context(order: &order::State, schedule: u64) -> u128 {
    let mut context = order.encode();
    context.extend_from_slice(CONTEXT);
    context.extend_from_slice(&schedule.to_le_bytes());
    vote::digest::content(&context)
}

/// In verified mode: a packed state, and what proves of which version it is. Of one that is sent while it is made, that
/// is known at the end.
pub fn with_proof(proof: StateProof, packed: PackedState) -> PackedState {
    let mut out = Vec::with_capacity(TOKEN_BYTES);
    let StateProof { token, parts: TokenParts { outputs, context, before } } = proof;
    out.put128(token.0).put128(outputs).put128(context).put128(before.0);
    packed.before(out.into())
}

/// In verified mode: the proof, and the packed state.
///
/// # Errors
/// When there is no proof.
pub fn split_proof(packed: PackedState) -> Result<(StateProof, PackedState), String> {
    let (proof, packed) = packed.split_end().ok_or("it has no proof")?;
    Ok((take_proof(&proof)?, packed))
}

fn take_proof(proof: &[u8]) -> Result<StateProof, String> {
    let mut reader = Reader::new(proof);
    let mut next = || reader.u128().map_err(text);
    let (token, outputs, context, before) = (StateToken(next()?), next()?, next()?, StateToken(next()?));
    reader.end().map_err(text)?;
    let parts = TokenParts { outputs, context, before };
    Ok(StateProof { token, parts })
}

/// Loads a packed state into a service that no other thread can reach. Each piece is freed as soon as it is loaded.
///
/// # Errors
/// The part that does not fit; the service is then not usable.
pub fn load<S: Service>(service: &mut S, packed: impl Into<PackReader>) -> Result<Base<S>, String> {
    let packed = packed.into();
    if version_of(&packed) == Some(VERSION_IN_PARTS) {
        let mut loading = LoadingState::new(service);
        loading.put_all(service, packed)?;
        return Ok(loading.finish()?.base);
    }
    let (base, regions) = open(service, packed)?;
    service.take_locks(regions.count()?);
    let locks = service.locks_mut();
    let region_ids = locks.len() as RegionId;
    regions.install(region_ids, &mut OwnedRegions(locks))?;
    Ok(base)
}

/// The position of a state that was loaded from the disk, and what it takes there.
pub type SavedBase<S> = (Base<S>, SavedSize);

/// Loads the last checkpoint on disk: a whole state, and then what each later checkpoint has changed.
///
/// # Errors
/// As [`load`].
pub fn load_saved<S: Service>(service: &mut S, saved: Saved) -> Result<SavedBase<S>, String> {
    let size = saved.size();
    let mut files = saved.files.into_iter();
    let mut base = load(service, files.next().unwrap_or_default())?;
    for changes in files {
        let mut loading = LoadingState::of_changes();
        loading.put_all(service, changes.into())?;
        base = loading.finish()?.base;
    }
    Ok((base, size))
}

/// The packed regions of a state.
#[derive(Clone, Debug)]
pub struct PackedRegions {
    /// Each a block; of a state that was packed in parts, what follows its version.
    regions: PackReader,
    are_in_parts: bool,
}

impl PackedRegions {
    /// How many there are.
    ///
    /// # Errors
    /// When this is no state.
    fn count(&self) -> Result<RegionId, String> {
        if self.are_in_parts {
            return parts::count(self.regions.clone()).map_err(text);
        }
        let (mut regions, mut count) = (self.regions.clone(), 0);
        while !regions.is_empty() {
            let length = regions.array().map(u64::from_le_bytes).map_err(text)?;
            regions.skip(length).map_err(text)?;
            count += 1;
        }
        Ok(count)
    }

    /// Puts them in the place of those of a service that has so many.
    ///
    /// # Errors
    /// The part that does not fit.
    pub fn install(self, region_ids: RegionId, to: &mut dyn Regions) -> Result<(), String> {
        let PackedRegions { mut regions, are_in_parts } = self;
        if are_in_parts {
            return parts::install(regions, region_ids, to);
        }
        for region_id in 0..region_ids {
            if regions.is_empty() {
                return Err(format!("it has {region_id} regions, and the service {region_ids}"));
            }
            let region = |why| format!("region {region_id}: {why}");
            let packed = regions.block().map_err(text).map_err(region)?;
            visit(region_id, to, |to| to.load_all(&packed)).map_err(region)?;
        }
        match regions.is_empty() {
            true => Ok(()),
            false => Err(format!("it has more regions than the service's {region_ids}")),
        }
    }
}

/// Changes a region.
fn visit(
    region_id: RegionId,
    regions: &mut dyn Regions,
    mut change: impl FnMut(&mut dyn Region) -> Result<(), Malformed>,
) -> Result<(), String> {
    let mut outcome = Err(String::from("there is no such lock"));
    regions.visit(region_id, &mut |region| outcome = change(region).map_err(text));
    outcome
}

/// The position of a packed state, and its packed regions. The service is as before.
///
/// # Errors
/// The part that does not fit.
pub fn open<S: Service>(
    service: &S,
    packed: impl Into<PackReader>,
) -> Result<(Base<S>, PackedRegions), String> {
    let mut reader = packed.into();
    let are_in_parts = match version_of(&reader) {
        Some(VERSION) => false,
        Some(VERSION_IN_PARTS) => true,
        _ => return Err("it is of another version".into()),
    };
    reader.skip(1).map_err(text)?;
    if are_in_parts {
        let mut end = reader.clone();
        parts::skip(&mut end).map_err(text)?;
        return Ok((take_base(service, &mut end)?, PackedRegions { regions: reader, are_in_parts }));
    }
    let base = take_base(service, &mut reader)?;
    Ok((base, PackedRegions { regions: reader, are_in_parts }))
}

/// The version of a packed state's format.
fn version_of(packed: &PackReader) -> Option<u8> {
    packed.clone().array().ok().map(|[version]| version)
}

/// The position, as [`put_head`] writes it.
fn take_base<S: Service>(service: &S, reader: &mut PackReader) -> Result<Base<S>, String> {
    let head = take_head(reader)?;
    let waiting = |ordered: &[u8]| {
        let ordered = Bytes::copy_from_slice(ordered);
        let request = service.decode(&ordered).ok()?;
        Some(Job::internal(request, ordered))
    };
    let schedule = reader.block().map_err(text)?;
    let dispatcher = DispatcherState::decode(&schedule, waiting).map_err(text)?;
    Ok((head, dispatcher))
}

/// The position of a packed state, without loading it.
///
/// # Errors
/// The part that does not fit.
pub fn head(packed: PackedState) -> Result<CheckpointHead, String> {
    let mut reader = packed.into();
    let version = version_of(&reader);
    reader.skip(1).map_err(text)?;
    match version {
        Some(VERSION) => {}
        Some(VERSION_IN_PARTS) => parts::skip(&mut reader).map_err(text)?,
        _ => return Err("it is of another version".into()),
    }
    take_head(&mut reader)
}

fn take_head(reader: &mut PackReader) -> Result<CheckpointHead, String> {
    let mut number = || reader.array().map(u64::from_le_bytes).map_err(text);
    let (index, batch) = (number()?, number()?);
    // A copy: what is kept of it must not keep a piece of the state.
    let order = Bytes::copy_from_slice(&reader.block().map_err(text)?);
    let order = order::State::decode(order).map_err(text)?;
    Ok(CheckpointHead { index, batch, order })
}

fn text(error: Malformed) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_read_as_written_and_binds_the_position_in_the_order() {
        let order = order::State::default();
        let dispatcher = DispatcherState::<()>::genesis();
        let context = context(&order, dispatcher.digest());
        let parts = TokenParts { outputs: 1, context, before: StateToken(2) };
        let proof = StateProof { token: StateToken(3), parts };
        let packed = PackWriter::default().finish();
        let proven = with_proof(proof, packed.clone());
        let bytes = proven.pieces()[0].clone();
        assert_eq!(split_proof(proven), Ok((proof, packed)));
        (0..TOKEN_BYTES)
            .for_each(|cut| assert!(split_proof(PackedState::default().before(bytes.slice(..cut))).is_err()));
        let head = CheckpointHead { index: 5, batch: 1, order: order.clone() };
        assert!(proof.fits(&head, &dispatcher));
        let elsewhere = CheckpointHead { order: order::State { index: order.index + 1, ..order }, ..head };
        assert!(!proof.fits(&elsewhere, &dispatcher), "another position is not the one that was agreed on");
    }
}
