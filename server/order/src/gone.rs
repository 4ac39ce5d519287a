//! Processes of replicas that others hold for gone: a part of the order's state, so that all count the same. What
//! follows from it is the host's: connections of clients that were there have ended.
//!
//! One replica alone may be cut off, or faulty: a process is held for gone once a number of replicas say so
//! ([`crate::Orderer::want_gone`]). Nothing needs this when a replica has a new process: the first batch of that says
//! that the one before is over ([`crate::Session`]).

use wire::{Malformed, Put, Reader};

use crate::limits;
use crate::wishes::Wishes;

/// A process of a replica: one incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaProcess {
    /// The replica.
    pub replica: u8,
    /// The incarnation that its batches name.
    pub incarnation: u64,
}

/// Who says so of which process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GoneProcesses {
    wishes: Wishes<ReplicaProcess>,
}

impl GoneProcesses {
    /// Which processes replicas hold for gone at this time, each with the replica that says so.
    pub fn wished(&self, now_us: u64) -> impl Iterator<Item = (u8, &ReplicaProcess)> {
        self.wishes.fresh(now_us)
    }

    /// An origin holds this process for gone. Returns whether it is the `needed`-th one.
    pub(crate) fn want(&mut self, origin: u8, process: ReplicaProcess, needed: usize, now_us: u64) -> bool {
        if [origin, process.replica].into_iter().any(|slot| usize::from(slot) >= limits::SLOTS) {
            return false;
        }
        let is_gone = self.wishes.add(origin, process, now_us) >= needed;
        if is_gone {
            self.wishes.retain(|other| other.replica != process.replica);
        }
        is_gone
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.wishes.is_empty()
    }

    /// Appends it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.wishes.encode(out, |out, ReplicaProcess { replica, incarnation }| {
            out.put8(*replica).put64(*incarnation);
        });
    }

    /// Reads what [`GoneProcesses::encode`] has written.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let wishes = Wishes::decode(reader, 9, |reader| {
            Ok(ReplicaProcess { replica: reader.u8()?, incarnation: reader.u64()? })
        })?;
        if wishes.is_empty() {
            return Err(Malformed("what no replica holds for gone is not written"));
        }
        Ok(GoneProcesses { wishes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_once_enough_replicas_say_so_at_about_the_same_time() {
        let process = |incarnation| ReplicaProcess { replica: 2, incarnation };
        let late_us = 6 + limits::WISH.as_micros() as u64;
        let mut gone = GoneProcesses::default();
        assert!(!gone.want(0, process(7), 2, 5) && !gone.want(0, process(7), 2, 6), "one replica");
        assert!(!gone.want(1, process(8), 2, 6), "who means another process");
        assert!(!gone.want(1, process(7), 2, late_us), "that was long ago");
        assert!(gone.want(0, process(7), 2, late_us) && gone.is_empty());
        assert!(!gone.want(16, process(7), 1, 5), "no such replica");
    }
}
