//! The whole state of a replica at one position, as bytes: what a CHECKPOINT keeps and a state transfer brings.

use bytes::Bytes;
use schedule::{Access, DispatcherState, Turn};

use crate::job::{Job, Work};
use crate::service::Service;

/// What belongs to a checkpoint besides the objects.
#[derive(Clone, Debug)]
pub struct Head {
    /// Log index of the checkpoint.
    pub index: u64,
    /// Number of its batch.
    pub batch: u64,
    /// What delivery depends on from here on.
    pub order: order::State,
}

/// Where a loaded state stands: its head, and the schedule's state behind it.
pub type Base<S> = (Head, DispatcherState<Job<<S as Service>::Request>>);

const VERSION: u8 = 1;

/// Packs the state in an exclusive turn.
///
/// # Errors
/// When the turn is not exclusive, or turns are not ordered: there is no such state then.
pub fn pack<S: Service>(
    turn: &mut Turn<'_, Job<S::Request>>,
    service: &S,
    head: &Head,
) -> Result<Bytes, &'static str> {
    let dispatcher = turn.dispatcher_state().ok_or("a checkpoint runs alone, in ordered turns")?;
    let mut out = vec![VERSION];
    out.extend_from_slice(&head.index.to_le_bytes());
    out.extend_from_slice(&head.batch.to_le_bytes());
    put_block(&mut out, &head.order.encode());
    let mut schedule = Vec::new();
    dispatcher.encode(&mut schedule, |job, out| out.extend_from_slice(&job.ordered));
    put_block(&mut out, &schedule);
    turn.take_all();
    turn.visit_regions(&service.locks(), |_, access| {
        let packed = match access {
            Access::Exclusive(region) => region.pack_all(),
            Access::Shared(region) => region.pack_all(),
        };
        put_block(&mut out, &packed);
    });
    Ok(out.into())
}

/// Loads a packed state into a service that nobody else can reach.
///
/// # Errors
/// What does not fit; the service is then of no use.
pub fn load<S: Service>(service: &mut S, packed: &[u8]) -> Result<Base<S>, String> {
    let mut rest = packed;
    let head = take_head(&mut rest)?;
    let waiting = |ordered: &[u8]| {
        let ordered = Bytes::copy_from_slice(ordered);
        let request = service.decode(&ordered).ok()?;
        Some(Job { work: Work::Service(request), ordered, result: None })
    };
    let dispatcher =
        DispatcherState::decode(take_block(&mut rest)?, waiting).map_err(|error| error.to_string())?;
    for (home, lock) in service.locks_mut().into_iter().enumerate() {
        let block = take_block(&mut rest)?;
        lock.region_mut().load_all(block).map_err(|error| format!("region {home}: {error}"))?;
    }
    if !rest.is_empty() {
        return Err("it has more regions than the service".into());
    }
    Ok((head, dispatcher))
}

/// Where a packed state stands, without loading it.
///
/// # Errors
/// What does not fit.
pub fn head(packed: &[u8]) -> Result<Head, String> {
    take_head(&mut &*packed)
}

fn take_head(rest: &mut &[u8]) -> Result<Head, String> {
    if take(rest, 1)? != [VERSION] {
        return Err("it is of another version".into());
    }
    let index = take_u64(rest)?;
    let batch = take_u64(rest)?;
    let order = Bytes::copy_from_slice(take_block(rest)?);
    let order = order::State::decode(order).map_err(|error| error.to_string())?;
    Ok(Head { index, batch, order })
}

fn put_block(out: &mut Vec<u8>, block: &[u8]) {
    out.extend_from_slice(&(block.len() as u64).to_le_bytes());
    out.extend_from_slice(block);
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    let (taken, left) = rest.split_at_checked(count).ok_or("it ends too early")?;
    *rest = left;
    Ok(taken)
}

fn take_u64(rest: &mut &[u8]) -> Result<u64, String> {
    let bytes = take(rest, 8)?;
    bytes.try_into().map(u64::from_le_bytes).map_err(|_| "it ends too early".into())
}

fn take_block<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let length = take_u64(rest)?;
    take(rest, usize::try_from(length).map_err(|_| "a block is too long")?)
}
