//! Execute: reads that take no batch, in a turn between two batches that has every lock.
//!
//! In verified mode no other replica computes their replies. So each is read twice there, from its ordered bytes on: a
//! fault in the processor or in the request does not hit both runs alike. Objects are compared with their checksums.
//! What differs, or meets a wrong object, has no reply here: it is ordered, and the replicas find what is wrong.

use execute::{ReadEnd, Runner};
use schedule::{Lock, Turn};

use super::{Context, Report};
use crate::Corrupted;
use crate::job::Job;
use crate::reads::{NeedsBatch, ReadReply, ReadsDone, RunningReads};
use crate::reply::Replies;
use crate::service::Service;

impl<S: Service> Context<S> {
    /// Runs reads on the state between two batches.
    pub(super) fn read(
        &self,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        reads: &RunningReads,
        replies: &mut Replies,
    ) -> ReadsDone {
        let mut first = Vec::with_capacity(reads.requests.len());
        for (number, request) in reads.requests.iter().enumerate() {
            turn.repeat(number < reads.own);
            let digest = self.read_one(turn, locks, (request, reads.latest_us), replies);
            first.push(digest.and_then(|digest| Some(ReadReply { bytes: replies.keep()?, digest })));
        }
        if self.mode.verified {
            turn.repeat(false);
            for (request, reply) in reads.requests.iter().zip(&mut first) {
                let Some(ReadReply { digest, .. }) = reply else { continue };
                if self.read_one(turn, locks, (request, reads.latest_us), replies) != Some(*digest) {
                    *reply = None;
                }
            }
        }
        ReadsDone { epoch: reads.epoch, batch: turn.entry_index(), replies: first }
    }

    /// Reads once. Returns the digest of the current reply; none if the request has no reply here.
    fn read_one(
        &self,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        (request, latest_us): (&order::Request, u64),
        replies: &mut Replies,
    ) -> Option<u128> {
        replies.begin();
        let decoded = self.service.decode(&request.bytes).ok().filter(|_| request.is_intact())?;
        let runner = Runner { locks, protection: self.protection(), seal_hook: &() };
        let end = runner.read_only(turn, &mut replies.current, |cx, reply| -> Result<(), NeedsBatch> {
            self.service.read(&self.cx(cx), latest_us, &decoded, reply)
        });
        match end {
            ReadEnd::Done => Some(vote::digest::reply(request.checksum, &replies.current)),
            ReadEnd::Refused => None,
            ReadEnd::NotUndone => {
                (self.report)(Report::Corrupted(Corrupted::NotUndone));
                None
            }
        }
    }
}
