//! Execute: how a handler of the service is run in its turn, once or until two runs agree, and the result that it
//! leaves.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use execute::{End, KeptRequest, Protection, Repeat, Reproduced, Runner, Stopped};
use object::{Kept, ObjectId, Protect};
use schedule::{Lock, Outcome, Retry, Turn};
use vote::digest::{self, Answer};
use vote::{Failure, Pairs, RequestInfo, RequestResult, RunDigests};

use super::{Context, Report, core};
use crate::copying::CopySeal;
use crate::hooks::{FaultPoint, Hooks, Rule, TurnPoint};
use crate::job::{InBatch, Job, Work};
use crate::later::{HasParts, Owed};
use crate::naming::Named;
use crate::reply::Replies;
use crate::running::RunNotes;
use crate::service::{Service, declared};
use crate::{Corrupted, Cx};

/// The schedule's interface for a handler of `S`.
pub(crate) type ScheduleCx<'a, S> = schedule::Cx<'a, Job<<S as Service>::Request>>;

/// How the runs of a request ended.
struct Ran {
    end: End,
    outcome: Outcome,
    /// None if it was to run once.
    reproduced: Option<Reproduced>,
    /// What two runs left, if they agreed.
    runs: RunDigests,
    /// In verified mode: what takes the request back.
    kept: Option<KeptRequest>,
    /// Whether the reply has parts for other clients.
    parts: HasParts,
}

impl<S: Service> Context<S> {
    /// Runs a request of the service: its handler runs on checked objects, which are then sealed.
    pub(super) fn handle(
        &self,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        replies: &mut Replies,
    ) -> Outcome {
        let mut ran = self.run(turn, locks, &mut replies.current);
        // In verified mode, a retry keeps its position: a wrong one only takes time.
        let confirms = self.mode.guarded && self.mode.replicated && !self.mode.verified;
        if matches!(ran.end, End::Retry(_)) && confirms {
            let confirmed = self.confirm_retry(turn, locks, &mut replies.current);
            match confirmed {
                Ok((end, outcome, parts)) => ran = Ran { end, outcome, parts, ..ran },
                Err(failure) => {
                    self.abandon(turn, failure);
                    return Outcome::Abandoned;
                }
            }
        }
        let Ran { end, outcome, reproduced, runs, kept, parts } = ran;
        let kind = self.kind(turn);
        let ran = RunNotes {
            core: core(),
            kind,
            reproduced: matches!(reproduced, Some(Reproduced::Same | Reproduced::Masked)),
        };
        if let (Some(place), Some(Reproduced::Masked)) = (&turn.request().place, reproduced) {
            (self.report)(Report::Masked { place: place.of_vote(), core: ran.core, kind });
        }
        let failure = match end {
            End::Retry(_) => return outcome,
            End::Done(touched) => {
                self.keep(turn, kept);
                let wrong_bits = self.strike(turn, &mut replies.current);
                if parts.any && turn.request().place.is_none() {
                    self.report_started_reply(turn, replies, runs, parts);
                }
                let started = self.started(turn);
                self.leave_ran(turn, ran, |request_info| {
                    let request_info = parts.request_info(RequestInfo { kind, ..request_info });
                    let mut result = self.result(request_info, touched.into_pairs(), replies, runs, parts);
                    result.set_started(started);
                    result.digest ^= wrong_bits;
                    result
                });
                return outcome;
            }
            End::Panicked => {
                // A panic is a function of the ordered log, so every healthy replica gives this same answer.
                let runs = self.refuse(turn, replies);
                self.leave_ran(turn, ran, |request_info| {
                    let request_info = RequestInfo { kind, ..request_info };
                    self.result(request_info, Pairs::new(), replies, runs, HasParts::default())
                });
                return outcome;
            }
            End::Corrupted(corrupted, wrong) => {
                let (region_id, id) = wrong.first().copied().unwrap_or((0, ObjectId::NONE));
                if id == corrupted.object && !id.is_none() {
                    // The right name comes with the right bytes.
                    let class = object::short_name(corrupted.class);
                    (self.report)(Report::Named(vec![Named { region_id, id, class, name: None }]));
                }
                let is_missing = corrupted.how == object::How::Missing && id == corrupted.object;
                if is_missing { Failure::Missing { region_id, id } } else { Failure::Check { region_id, id } }
            }
            End::Unreproducible => Failure::Unreproducible,
            End::Undecodable => Failure::Request,
            End::NotUndone => {
                (self.report)(Report::Corrupted(Corrupted::NotUndone));
                return outcome;
            }
        };
        self.leave_failed(turn, ran, failure, replies);
        outcome
    }

    /// A request that the service has started itself has made a reply for clients that wait.
    fn report_started_reply(
        &self,
        turn: &Turn<'_, Job<S::Request>>,
        replies: &mut Replies,
        runs: RunDigests,
        parts: HasParts,
    ) {
        let checksum = parts.checksum(turn.request().checksum);
        let of_run = if runs.reply == 0 { digest::reply(checksum, &replies.current) } else { runs.reply };
        (self.report)(match replies.keep() {
            Some(reply) => Report::StartedReply { batch: turn.entry_index(), reply, digest: of_run },
            None => Report::StartedReplyLost,
        });
    }

    /// Stores the result of a request that this replica abandons.
    fn leave_failed(
        &self,
        turn: &Turn<'_, Job<S::Request>>,
        ran: RunNotes,
        failure: Failure,
        replies: &mut Replies,
    ) {
        if turn.request().place.is_none() {
            (self.report)(Report::StartedReplyLost);
        }
        let refused = self.mode.twice.then(|| self.refuse(turn, replies));
        self.leave_ran(turn, ran, |request_info| {
            let request_info = RequestInfo { kind: ran.kind, ..request_info };
            let none = HasParts::default();
            let reported = refused.map(|runs| self.result(request_info, Pairs::new(), replies, runs, none));
            RequestResult {
                failure: Some(failure),
                ..reported.unwrap_or_else(|| RequestResult::abandoned(request_info, failure))
            }
        });
    }

    /// The digest of what a request has started, where the vote compares it: in verified mode the digest of the
    /// schedule has it, and two runs have made it. A request without a result has no vote.
    fn started(&self, turn: &Turn<'_, Job<S::Request>>) -> u128 {
        let is_compared = self.mode.crosschecked && turn.request().place.is_some();
        if is_compared { execute::started(turn, Job::bytes) } else { 0 }
    }

    /// A reply was rendered, where a fault may hit it. Returns the bits of the result's digest that a fault inverts.
    fn strike(&self, turn: &mut Turn<'_, Job<S::Request>>, reply: &mut [u8]) -> u128 {
        self.hooks.at_turn(turn, TurnPoint::Reply(reply));
        let mut wrong_bits = 0;
        self.hooks.at_turn(turn, TurnPoint::Digest(&mut wrong_bits));
        wrong_bits
    }

    /// The result of a request: digested for the vote, or with the digests of its two runs, or only the part that is
    /// needed where nothing is compared.
    fn result(
        &self,
        request_info: RequestInfo,
        touched: Pairs,
        replies: &mut Replies,
        runs: RunDigests,
        parts: HasParts,
    ) -> RequestResult {
        if self.mode.crosschecked || self.mode.verified {
            // What V compares of the state is the root over all objects.
            let pairs = if self.mode.verified { Pairs::new() } else { touched };
            let is_kept = if self.mode.verified {
                request_info.mine
            } else {
                vote::keeps_reply(request_info.mine, replies.current.len())
            };
            return match is_kept.then(|| replies.keep()).flatten() {
                Some(reply) => RequestResult::new(request_info, pairs, reply),
                None => RequestResult::without_reply(request_info, pairs, &replies.current),
            };
        }
        let reply = if request_info.mine { replies.keep() } else { Some(Bytes::new()) };
        if self.mode.twice {
            return RequestResult::of_two_runs(request_info, touched, reply, runs);
        }
        // Nothing else shows that it has parts.
        let of_parts = reply.as_ref().filter(|_| parts.any);
        let reply_digest = of_parts.map_or(0, |reply| digest::reply(request_info.checksum, reply));
        RequestResult { reply, reply_digest, ..RequestResult::unvoted(request_info, Bytes::new()) }
    }

    /// Runs the handler once; or until two runs agree, where no vote could show which replica is wrong.
    fn run(&self, turn: &mut Turn<'_, Job<S::Request>>, locks: &[&dyn Lock], reply: &mut Vec<u8>) -> Ran {
        let seal_hook = self.copy_seal();
        let runner = Runner { locks, protection: self.protection(), seal_hook: &seal_hook };
        let mut wrong_runs = None;
        self.hooks.at_turn(turn, TurnPoint::Runs(&mut wrong_runs));
        let (wrong_runs, parts) = (Cell::new(wrong_runs), Cell::new(HasParts::default()));
        let own = turn.request().place.as_ref().and_then(InBatch::owed);
        let execute =
            |cx: &ScheduleCx<'_, S>, job: &Job<S::Request>, request: &S::Request, reply: &mut Vec<u8>| {
                // Once, where no fault is injected.
                for _ in 0..wrong_runs.take().unwrap_or(1) {
                    parts.set(self.execute(cx, request, (own, job.checksum), reply)?);
                }
                Ok(())
            };
        if self.mode.twice || self.alone.load(Ordering::Relaxed) {
            let handler = |run: u8, cx: &ScheduleCx<'_, S>, job: &Job<S::Request>, reply: &mut Vec<u8>| {
                match job.request() {
                    Some(request) if run == 1 => execute(cx, job, request, reply)?,
                    Some(_) => execute(cx, job, &decode_again(&*self.service, job)?, reply)?,
                    None => {}
                }
                Ok(parts.get().checksum(job.checksum))
            };
            let repeat = Repeat { handler, started: Job::bytes };
            let (end, outcome, how, runs) = runner.reproduced(turn, reply, &repeat);
            return Ran { end, outcome, reproduced: Some(how), runs, kept: None, parts: parts.get() };
        }
        let handler = |cx: &ScheduleCx<'_, S>, job: &Job<S::Request>, reply: &mut Vec<u8>| {
            job.request().map_or(Ok(()), |request| execute(cx, job, request, reply))
        };
        let runs = RunDigests::default();
        if self.mode.verified {
            let place = turn.request().place.as_ref();
            let room = place.map_or_else(Kept::new, |place| place.batch.room());
            let (end, outcome, kept) = runner.once_keeping(turn, reply, room, handler);
            // While the locks are held: it is behind every request that it has seen.
            let kept = Some(KeptRequest { stamp: turn.stamp(), answer: 0, kept });
            return Ran { end, outcome, reproduced: None, runs, kept, parts: parts.get() };
        }
        let (end, outcome) = runner.once(turn, reply, handler);
        Ran { end, outcome, reproduced: None, runs, kept: None, parts: parts.get() }
    }

    /// Runs the handler once, for a request with this ordered checksum; `own` is its reply, if that comes later.
    #[inline(always)]
    fn execute(
        &self,
        cx: &ScheduleCx<'_, S>,
        request: &S::Request,
        (own, checksum): (Option<Owed>, u32),
        reply: &mut Vec<u8>,
    ) -> Result<HasParts, Retry> {
        reply.clear();
        let cx = self.cx(cx).answering(own);
        self.service.execute(&cx, request, reply)?;
        Ok(cx.end(self.me, checksum, reply))
    }

    /// The context of a handler that runs now.
    pub(super) fn cx<'a>(&'a self, cx: &ScheduleCx<'a, S>) -> Cx<'a, S> {
        Cx::acting_as(*cx, &*self.service, self.acting.get())
    }

    /// What happens between a handler and the end of its turn.
    fn copy_seal(&self) -> CopySeal<'_, impl execute::SealHook + '_> {
        CopySeal {
            hook: self.hooks.seal_hook(),
            copy: &self.copy,
            names_changes: self.hooks.keeps(Rule::NamesChanges),
        }
    }

    /// What this mode protects objects with.
    pub(super) fn protection(&self) -> Protection {
        let protect = match (self.mode.guarded, self.mode.verified) {
            (true, _) => Protect::Check,
            (false, true) => Protect::Seal,
            // Who names what it has changed has sealed it.
            (false, false) if self.copy.is_active() => Protect::Seal,
            (false, false) => Protect::Nothing,
        };
        Protection { protect, undo: true }
    }

    /// In verified mode: a request has ended, and can be rolled back.
    pub(super) fn keep(&self, turn: &Turn<'_, Job<S::Request>>, kept: Option<KeptRequest>) {
        let Some(mut kept) = kept else { return };
        let place = turn.request().place.as_ref();
        self.hooks.at(FaultPoint::Kept(place.map(InBatch::of_vote), &mut kept));
        match place {
            Some(place) => place.batch.keep(Some(place.number), kept),
            None => match self.unstable.find(turn.entry_index()) {
                Some(batch) => batch.keep(None, kept),
                // Nothing could take it back.
                None => (self.report)(Report::Corrupted(Corrupted::Schedule)),
            },
        }
    }

    /// The handler requested a lock outside its footprint. Normally this follows from the log alone, and the request
    /// runs again at a later position, at every replica. But if the footprint, or the request itself, no longer matches
    /// the ordered bytes, only this replica would retry, and all later requests would have other positions here than at
    /// its peers. So the bytes are decoded once more: with the same footprint the handler runs again, on the request as
    /// it is in the log; with another one there are no turns to run it in, and this replica blames itself.
    fn confirm_retry(
        &self,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        reply: &mut Vec<u8>,
    ) -> Result<(End, Outcome, HasParts), Failure> {
        let Ok(request) = self.service.decode(&turn.request().ordered) else { return Err(Failure::Request) };
        if turn.request().place.is_some() {
            let declared = declared(&*self.service, &request);
            let held = turn.footprint();
            let fits = |(lock, shared)| held.allows(lock, shared);
            if (declared.is_all() && !held.is_all()) || !declared.iter().all(fits) {
                return Err(Failure::Request);
            }
        }
        let seal_hook = self.copy_seal();
        let runner = Runner { locks, protection: self.protection(), seal_hook: &seal_hook };
        turn.repeat(false);
        let (own, mut parts) = (turn.request().place.as_ref().and_then(InBatch::owed), HasParts::default());
        let handler = |cx: &ScheduleCx<'_, S>, job: &Job<S::Request>, reply: &mut Vec<u8>| {
            parts = self.execute(cx, &request, (own, job.checksum), reply)?;
            Ok(())
        };
        let (end, outcome) = runner.once(turn, reply, handler);
        Ok((end, outcome, parts))
    }

    /// Replaces the current reply by the one of a request that has no effect. Where a node compares with itself, it is
    /// made twice: for the request as it was decoded, and for its ordered bytes decoded again.
    fn refuse(&self, turn: &Turn<'_, Job<S::Request>>, replies: &mut Replies) -> RunDigests {
        let Work::Service(request) = &turn.request().work else { return RunDigests::default() };
        let (true, Some(place)) = (self.mode.twice, &turn.request().place) else {
            self.service.panicked(request, &mut replies.current);
            return RunDigests::default();
        };
        let (position, time_us) = (turn.position(), turn.time_us());
        let mut made = |run: u8, request: &S::Request, checksum: u32| {
            replies.current.clear();
            self.service.panicked(request, &mut replies.current);
            let answer = Answer::new(position, time_us, checksum, &replies.current);
            (digest::run(run, digest::request(&[], &answer)), answer.digest)
        };
        let (first, reply) = made(1, request, place.checksum);
        // Without a second digest no reply leaves, and the client's connection is closed.
        let again = decode_again(&*self.service, turn.request());
        let second = again.map_or(0, |again| made(2, &again, turn.request().checksum).0);
        RunDigests { first, second, reply, started: 0 }
    }

    /// The kind of request, for evidence.
    fn kind(&self, turn: &Turn<'_, Job<S::Request>>) -> u16 {
        turn.request().request().map_or(0, |request| self.service.kind(request))
    }
}

/// The request, decoded from its ordered bytes once more: a fault in the first decoding, or in the decoded request, is
/// not in this one.
pub(crate) fn decode_again<S: Service>(service: &S, job: &Job<S::Request>) -> Result<S::Request, Stopped> {
    if order::batch::checksum(&job.ordered) != job.checksum {
        return Err(Stopped::Undecodable);
    }
    service.decode(&job.ordered).map_err(|_| Stopped::Undecodable)
}
