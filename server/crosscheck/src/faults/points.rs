//! What an armed fault, or a broken promise, does at the places that a replica passes (`Hooks::at`).

use bytes::Bytes;
use object::RegionId;
use order::Request;
use schedule::ParallelBatches;
use verify::VerifyMessage;
use vote::Message;

use super::pending::{Armed, PendingFaults};
use super::sabotage::{Sabotage, Sabotaged};
use crate::admin::Corruption;
use crate::copying::StateCopy;

/// A client's request gets another checksum than its bytes have.
pub(super) fn submit(pending: &PendingFaults, request: &mut Request) {
    if let Some(armed) = pending.take_kind(Corruption::Asked) {
        request.checksum ^= 1 << (armed.target.seed % 32);
    }
}

/// A worker counts one position too many, from some request on.
pub(super) fn batch(pending: &PendingFaults, sabotaged: &Sabotaged, batch: u64) {
    if sabotaged.loses_count(batch) {
        pending.arm(Armed::at_next(Corruption::Position, 0));
    }
}

pub(super) fn piece(pending: &PendingFaults, piece: &mut Bytes) {
    let Some(armed) = pending.take_kind(Corruption::Piece) else { return };
    let mut bytes = piece.to_vec();
    flip_bit(&mut bytes, armed.target.seed);
    *piece = bytes.into();
}

/// A fault that finds nothing to hit in this region waits for the next one.
pub(super) fn copy(pending: &PendingFaults, copy: &StateCopy, region_id: RegionId) {
    let Some(copy) = copy.region(region_id).filter(|_| pending.count() > 0) else { return };
    for kind in [Corruption::Unnamed, Corruption::Cursor] {
        let Some(armed) = pending.take_kind(kind) else { continue };
        let seed = armed.target.seed;
        let is_hit = match kind {
            Corruption::Unnamed => copy.lock().forget_changed(seed),
            _ => copy.lock().corrupt_cursor(seed as u32),
        };
        if !is_hit {
            pending.arm(armed);
        }
    }
}

pub(super) fn part(pending: &PendingFaults, packed: &mut [u8]) {
    if !packed.is_empty()
        && let Some(armed) = pending.take_kind(Corruption::Part)
    {
        flip_bit(packed, armed.target.seed);
    }
}

/// A CHECK or a REPAIR leaves with a wrong value under a right frame checksum. False if a CHECK does not leave at all.
pub(super) fn vote_message(
    pending: &PendingFaults,
    sabotaged: &Sabotaged,
    message: &Message,
    body: &mut [u8],
) -> bool {
    let kind = match message {
        Message::Check { .. } if sabotaged.has(Sabotage::MutesVotes) => return false,
        Message::Check { .. } => Corruption::Check,
        Message::Repair { .. } => Corruption::Repair,
        _ => return true,
    };
    if let Some(last) = body.last_mut()
        && let Some(armed) = pending.take_kind(kind)
    {
        // The last byte belongs to a digest or to an object's bytes, never to the message's shape.
        *last ^= 1 << (armed.target.seed % 8);
    }
    true
}

/// A plan of several parallel batches loses an end: requests run beside each other that conflict.
pub(super) fn plan(pending: &PendingFaults, plan: &mut ParallelBatches) {
    if plan.ends.len() > 1
        && let Some(armed) = pending.take_kind(Corruption::Groups)
    {
        plan.ends.remove(armed.target.seed as usize % (plan.ends.len() - 1));
    }
}

pub(super) fn sequential(pending: &PendingFaults, sabotaged: &Sabotaged, sequential: &mut bool) {
    *sequential = *sequential
        && !sabotaged.has(Sabotage::IgnoresSequential)
        && pending.take_kind(Corruption::Flag).is_none();
}

pub(super) fn verify_message(pending: &PendingFaults, message: &VerifyMessage, body: &mut [u8]) {
    if matches!(message, VerifyMessage::Verify { .. })
        && let Some(armed) = pending.take_kind(Corruption::Check)
    {
        let bit = armed.target.seed as usize % (body.len().max(1) * 8);
        body[bit / 8] ^= 1 << (bit % 8);
    }
}

/// A fault that finds nothing to hit in what takes this request back waits for the next one.
pub(super) fn kept(pending: &PendingFaults, kept: &mut execute::KeptRequest) {
    if let Some(armed) = pending.take_kind(Corruption::Kept)
        && !kept.kept.damage(armed.target.seed)
    {
        pending.arm(armed);
    }
}

pub(super) fn frame(pending: &PendingFaults, frame: &mut [u8]) {
    if let Some(armed) = pending.take_kind(Corruption::Message) {
        flip_bit(frame, armed.target.seed);
    }
}

/// Flips a bit of some bytes, of which there is one at least.
pub(super) fn flip_bit(bytes: &mut [u8], seed: u64) {
    let bit = seed % (bytes.len() as u64 * 8);
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
}
