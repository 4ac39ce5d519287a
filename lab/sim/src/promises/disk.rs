//! Synced data is on the disk, and no other data is accepted.

use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::log::Reopened;

/// Compares the records that a process reads from its log with those that earlier ones wrote.
pub struct Disk;

impl Promise for Disk {
    fn about(&self) -> About {
        About {
            name: "disk",
            section: "server/order/src/log/segment.rs (scan); ARCHITECTURE.md, State transfer",
            promise: "With its log on disk, a replica comes back with everything it acknowledged, whatever \
                a power failure left of the rest, and believes no record that was never written.",
            check: "Whenever a process opens its log: every record read was appended since the log was last \
                empty, and the last one that was synced is among them. A log whose bits did not flip at \
                rest is never found corrupt.",
        }
    }

    fn reopened(&mut self, replica: u8, reopened: &Reopened<'_>) -> Broken {
        let me = ReplicaId(replica);
        let read = match reopened.found {
            Ok(read) => read,
            Err(_) if reopened.flipped => return Ok(()),
            Err(why) => return Err(format!("replica {me} finds its log corrupt, and no bit flipped: {why}")),
        };
        if let Some(number) = read.iter().position(|record| !reopened.written.contains(record)) {
            return Err(format!("replica {me} believes record {number} of its log, which was never written"));
        }
        // A flipped bit in the last synced data looks like a torn write: it is cut off.
        let lost = reopened.synced.filter(|last| !reopened.flipped && !read.contains(last));
        if lost.is_some() {
            return Err(format!(
                "replica {me} had synced a record and does not read it again ({} are there)",
                read.len()
            ));
        }
        Ok(())
    }
}
