//! Reads that take no batch. Which state they may run on, and when their replies leave, is in
//! `replica/agree/voted/reads.rs`, and for verified mode in `replica/agree/verified/reads.rs`.

use bytes::Bytes;
use schedule::Retry;

/// A request that only reads cannot be answered without a batch ([`crate::Service::read`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsBatch;

/// All locks may be taken while it reads; a lock that is not there is none of the service.
impl From<Retry> for NeedsBatch {
    fn from(_: Retry) -> Self {
        NeedsBatch
    }
}

/// Reads that run between two batches.
pub(crate) struct RunningReads {
    /// When they were handed over: those of before a rollback mean nothing after it.
    pub epoch: u64,
    /// The ordered time that a batch would have now, in microseconds since 1970.
    pub latest_us: u64,
    /// The requests as clients sent them, with the checksums of these bytes.
    pub requests: Vec<order::Request>,
    /// So many of them, from the first on, are of own clients: the service's counters count these.
    pub own: usize,
}

/// What became of them.
#[derive(Debug)]
pub(crate) struct ReadsDone {
    /// That of the [`RunningReads`].
    pub epoch: u64,
    /// They have seen the state after this batch.
    pub batch: u64,
    /// Their replies; none for one that is to be ordered.
    pub replies: Vec<Option<ReadReply>>,
}

/// The reply to a read.
#[derive(Clone, Debug)]
pub(crate) struct ReadReply {
    pub bytes: Bytes,
    /// Their digest, in verified mode when two runs had made the same: it is compared until they have left.
    pub digest: u128,
}
