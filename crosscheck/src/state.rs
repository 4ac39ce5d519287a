//! The whole state of a replica at one position, as bytes: a CHECKPOINT keeps it and a state transfer sends it.

use bytes::Bytes;
use execute::TokenParts;
use schedule::{Access, DispatcherState, Turn};
use verify::{StateToken, Version};
use wire::{Malformed, Put, Reader};

pub use crate::checkpoint::CheckpointHead;
use crate::job::Job;
use crate::service::Service;

/// The position of a loaded state: its head, and the schedule's state after it.
pub type Base<S> = (CheckpointHead, DispatcherState<Job<<S as Service>::Request>>);

const VERSION: u8 = 1;
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
) -> Result<Bytes, &'static str> {
    let mut out = begin(turn, head)?;
    turn.take_all();
    turn.visit_regions(&service.locks(), |_, access| {
        let packed = match access {
            Access::Exclusive(region) => region.pack_all(),
            Access::Shared(region) => region.pack_all(),
        };
        add_region(&mut out, &packed);
    });
    Ok(out.into())
}

/// What a packed state begins with: everything but the regions, which follow in their order ([`add_region`]).
///
/// # Errors
/// As [`pack`].
pub fn begin<R>(turn: &mut Turn<'_, Job<R>>, head: &CheckpointHead) -> Result<Vec<u8>, &'static str> {
    let dispatcher = turn.dispatcher_state().ok_or("a checkpoint runs alone, in ordered turns")?;
    let mut out = vec![VERSION];
    out.put64(head.index).put64(head.batch);
    put_block(&mut out, &head.order.encode());
    let mut schedule = Vec::new();
    dispatcher.encode(&mut schedule, |job, out| out.extend_from_slice(&job.ordered));
    put_block(&mut out, &schedule);
    Ok(out)
}

/// Adds the next packed region.
pub fn add_region(out: &mut Vec<u8>, packed: &[u8]) {
    put_block(out, packed);
}

/// With V: the version that a packed state is the state of, and what the version's token is computed from.
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

/// With V: digest of what belongs to a version besides the objects and outputs: the state of the order, and a digest of
/// that of the schedule.
pub fn context(order: &order::State, schedule: u64) -> u128 {
    let mut context = order.encode();
    context.extend_from_slice(CONTEXT);
    context.extend_from_slice(&schedule.to_le_bytes());
    vote::digest::content(&context)
}

/// With V: a packed state, and what proves of which version it is.
pub fn with_proof(proof: StateProof, packed: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(TOKEN_BYTES + packed.len());
    let StateProof { token, parts: TokenParts { outputs, context, before } } = proof;
    out.put128(token.0).put128(outputs).put128(context).put128(before.0).put(packed);
    out.into()
}

/// With V: the proof, and the packed state.
///
/// # Errors
/// When there is no proof.
pub fn split_proof(bytes: &Bytes) -> Result<(StateProof, Bytes), String> {
    let mut reader = Reader::new(bytes);
    let mut next = || reader.u128().map_err(text);
    let (token, outputs, context, before) = (StateToken(next()?), next()?, next()?, StateToken(next()?));
    let parts = TokenParts { outputs, context, before };
    Ok((StateProof { token, parts }, bytes.slice(TOKEN_BYTES..)))
}

/// Loads a packed state into a service that no other thread can reach.
///
/// # Errors
/// The part that does not fit; the service is then not usable.
pub fn load<S: Service>(service: &mut S, packed: &[u8]) -> Result<Base<S>, String> {
    let (base, regions) = open(service, packed)?;
    let locks = service.locks_mut();
    if regions.len() != locks.len() {
        return Err(format!("it has {} regions, and the service {}", regions.len(), locks.len()));
    }
    for ((home, lock), packed) in locks.into_iter().enumerate().zip(regions) {
        lock.region_mut().load_all(packed).map_err(|error| format!("region {home}: {error}"))?;
    }
    Ok(base)
}

/// The position of a packed state, and its packed regions. The service is as before.
///
/// # Errors
/// The part that does not fit.
pub fn open<'p, S: Service>(service: &S, packed: &'p [u8]) -> Result<(Base<S>, Vec<&'p [u8]>), String> {
    let mut reader = Reader::new(packed);
    let head = take_head(&mut reader)?;
    let waiting = |ordered: &[u8]| {
        let ordered = Bytes::copy_from_slice(ordered);
        let request = service.decode(&ordered).ok()?;
        Some(Job::internal(request, ordered))
    };
    let dispatcher = DispatcherState::decode(take_block(&mut reader)?, waiting).map_err(text)?;
    let mut regions = Vec::new();
    while !reader.is_empty() {
        regions.push(take_block(&mut reader)?);
    }
    Ok(((head, dispatcher), regions))
}

/// The position of a packed state, without loading it.
///
/// # Errors
/// The part that does not fit.
pub fn head(packed: &[u8]) -> Result<CheckpointHead, String> {
    take_head(&mut Reader::new(packed))
}

fn take_head(reader: &mut Reader<'_>) -> Result<CheckpointHead, String> {
    if reader.u8().map_err(text)? != VERSION {
        return Err("it is of another version".into());
    }
    let (index, batch) = (reader.u64().map_err(text)?, reader.u64().map_err(text)?);
    let order = Bytes::copy_from_slice(take_block(reader)?);
    let order = order::State::decode(order).map_err(text)?;
    Ok(CheckpointHead { index, batch, order })
}

fn put_block(out: &mut Vec<u8>, block: &[u8]) {
    out.put64(block.len() as u64).put(block);
}

fn take_block<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], String> {
    let length = reader.u64().map_err(text)?;
    reader.take(usize::try_from(length).map_err(|_| "a block is too long")?).map_err(text)
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
        let bytes = with_proof(proof, b"packed");
        assert_eq!(split_proof(&bytes), Ok((proof, Bytes::from_static(b"packed"))));
        (0..TOKEN_BYTES).for_each(|cut| assert!(split_proof(&bytes.slice(..cut)).is_err()));
        let head = CheckpointHead { index: 5, batch: 1, order: order.clone() };
        assert!(proof.fits(&head, &dispatcher));
        let elsewhere = CheckpointHead { order: order::State { index: order.index + 1, ..order }, ..head };
        assert!(!proof.fits(&elsewhere, &dispatcher), "another position is not the one that was agreed on");
    }
}
