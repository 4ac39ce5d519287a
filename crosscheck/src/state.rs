//! The whole state of a replica at one position, as bytes: a CHECKPOINT keeps it and a state transfer sends it.

use bytes::Bytes;
use schedule::{Access, DispatcherState, Turn};
use verify::StateToken;
use wire::{Malformed, Put, Reader};

pub use crate::checkpoint::CheckpointHead;
use crate::job::Job;
use crate::service::Service;

/// The position of a loaded state: its head, and the schedule's state after it.
pub type Base<S> = (CheckpointHead, DispatcherState<Job<<S as Service>::Request>>);

const VERSION: u8 = 1;
/// Bytes of a token.
const TOKEN_BYTES: usize = 16;

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

/// With V: a packed state, and the token of the version that it is the state of.
pub fn with_token(token: StateToken, packed: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(TOKEN_BYTES + packed.len());
    out.put128(token.0).put(packed);
    out.into()
}

/// With V: the token, and the packed state.
///
/// # Errors
/// When there is no token.
pub fn split_token(bytes: &Bytes) -> Result<(StateToken, Bytes), String> {
    let token = Reader::new(bytes).u128().map_err(text)?;
    Ok((StateToken(token), bytes.slice(TOKEN_BYTES..)))
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
