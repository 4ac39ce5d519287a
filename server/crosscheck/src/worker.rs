//! Execute: the body of a worker thread. It runs the turns that the schedule assigns to it, one after the other.

mod handler;
mod reads;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::{KeptRequest, Pause};
#[cfg(feature = "testing")]
pub(crate) use handler::{ScheduleCx, decode_again};
use object::{CopiedPart, Kept, ObjectId, RegionDigest, RegionId};
use schedule::{Access, EntryEnd, Lock, Outcome, Turn, Worker};
use vote::{Content, Failure, Packed, Pairs, Place, Recover, RequestInfo, RequestResult};

use crate::admin::{Injected, Position};
use crate::behavior::Acting;
use crate::boundary::{self, BoundaryDone, BoundaryWork};
use crate::copying::{CurrentCopy, StateCopy};
use crate::hooks::{self, FaultPoint, Hooks, Rule, ThreadRole, TurnPoint};
use crate::job::{InBatch, Job, Work};
use crate::naming::{self, Named, region_of};
use crate::ordered::Control;
use crate::overwrite::{Overwritten, overwrite};
use crate::packed_state::{PackWriter, PackedState};
use crate::reply::{KeptReplies, Replies};
use crate::running::{Ended, Executed, RunNotes, Share, UnstableBatches};
use crate::service::{Service, words_of};
use crate::settings::Mode;
use crate::state;
use crate::stepped_workers::SteppedWorker;
use crate::traced::{LastPlace, TracedRun};
use crate::{Corrupted, limits, shapes, traced};

/// The reports of a worker to the order thread.
pub(crate) enum Report {
    /// A batch has all its results.
    Executed(Executed),
    /// Data of a worker that is no object was corrupted.
    Corrupted(Corrupted),
    /// A RECOVER has its turn.
    RecoverTurn {
        /// Its place.
        turn: Place,
        /// Ordered time of its batch.
        time_us: u64,
        /// The request, with the objects to repair.
        recover: Recover,
        /// The objects, packed; nothing at a replica that overwrites its own.
        packed: Vec<Packed>,
        /// At a replica that overwrites its own: the channel for the right objects.
        install: Option<mpsc::Sender<Vec<Packed>>>,
    },
    /// Wrong objects were overwritten.
    Installed {
        /// Place of the RECOVER.
        turn: Place,
        /// Per object: its class, and the wrong bits of each member; or why it could not be replaced.
        overwritten: Overwritten,
    },
    /// The state as of a batch.
    Checkpoint {
        /// The checkpoint's head.
        head: Arc<state::CheckpointHead>,
        /// The whole state.
        state: PackedState,
    },
    /// A part of a copy was packed.
    CopyPart {
        /// Session of the copy.
        session: u64,
        /// Number of the part.
        number: u32,
        /// Objects of each region.
        part: Vec<(RegionId, CopiedPart)>,
        /// How long it took.
        took: Duration,
    },
    /// The last part of a copy was packed, which is the checkpoint.
    Cut {
        /// Session of the copy.
        session: u64,
        /// The checkpoint's head.
        head: Arc<state::CheckpointHead>,
        /// What was left of each region.
        rest: Vec<(RegionId, CopiedPart)>,
        /// The end of the packed state.
        end: PackedState,
    },
    /// Too much of a copy is left for its last part.
    TooMuchLeft {
        /// Session of the copy.
        session: u64,
    },
    /// The digest of a region, for one of the whole state.
    Digest {
        /// The digest of the whole state that it is a part of.
        position: Position,
        /// The region.
        region_id: RegionId,
        /// Its digest.
        digest: RegionDigest,
    },
    /// An ordered turn on a lock has passed; with the result of an injected fault.
    Nudged {
        /// The ticket of the waiting caller.
        ticket: u64,
        /// The result of the injection.
        injected: Injected,
    },
    /// Suspected objects were checked.
    Rechecked {
        /// The request in question.
        place: Place,
        /// Those that do not fit their checksums.
        corrupt: Vec<(RegionId, ObjectId)>,
    },
    /// A region was checked as a whole, and has errors.
    Scrubbed {
        /// Place of the SCRUB.
        place: Place,
        /// The region.
        region_id: RegionId,
        /// The errors.
        findings: Vec<object::ScrubFinding>,
    },
    /// The duration of a SCRUB here: it determines the time until the next ones.
    ScrubTook(Duration),
    /// One of three runs of a request differed from the other two.
    Masked {
        /// The request.
        place: Place,
        /// The processor core.
        core: u32,
        /// The kind of request ([`Service::kind`]).
        kind: u16,
    },
    /// A request that the service has started itself has made a reply that has parts.
    StartedReply {
        /// The batch in which it ran.
        batch: u64,
        /// The reply.
        reply: Bytes,
        /// Its digest.
        digest: u128,
    },
    /// Such a request has failed here, or there was no room for its reply.
    StartedReplyLost,
    /// Names of suspected objects.
    Named(Vec<Named>),
    /// A region has objects that are too large: the largest one of each class.
    Large {
        /// The region.
        region_id: RegionId,
        /// The objects.
        objects: Vec<object::Large>,
    },
    /// A request has run that the service had started itself, or that has started others; only in a simulation.
    Traced(Box<TracedRun>),
    /// A request of a worker has ended; only while the order thread asks for it.
    TurnEnded,
    /// In verified mode: all requests of a batch have ended. Its results were reported before.
    BatchEnded(EntryEnd),
    /// In verified mode: objects that were to be packed behind a batch are corrupted.
    Damaged {
        /// Number of the batch.
        batch: u64,
        /// The objects.
        objects: Vec<(RegionId, ObjectId)>,
    },
    /// In verified mode: a boundary has had the state alone.
    Boundary(BoundaryDone),
    /// The helper has returned the only worker (`replica::solo`).
    Returned,
    /// This worker runs nothing more.
    Ended,
}

/// The receiver of a worker's reports.
pub(crate) type ReportSink = Box<dyn Fn(Report) + Send + Sync>;

/// One worker's share of the schedule.
pub(crate) type WorkerContext<S> = Worker<Job<<S as Service>::Request>>;

/// The result of one of the pipeline's own requests: the pairs that the vote compares, or the failure for which this
/// replica blames itself.
type ControlResult = Result<Pairs, Failure>;

/// The data that a worker needs in addition to its share of the schedule.
pub(crate) struct Context<S: Service> {
    pub service: Arc<S>,
    pub me: u8,
    pub mode: Mode,
    /// Bytes of a piece of a checkpoint.
    pub piece: usize,
    /// What the replica acts as.
    pub acting: Arc<Acting>,
    /// The copy of the state that is being made.
    pub copy: Arc<CurrentCopy>,
    /// Too few replicas are connected for a vote to find the wrong one: run every request twice.
    pub alone: Arc<AtomicBool>,
    /// Replies wait for requests that run: report when one has ended.
    pub reports_ends: Arc<AtomicBool>,
    /// The memory that all replies take together.
    pub kept: Arc<KeptReplies>,
    /// In verified mode: the batches that may be rolled back.
    pub unstable: Arc<UnstableBatches>,
    /// Results of the batch that it runs, for one of several workers. In verified mode none: the end of a batch is
    /// reported by the worker that ends its last request, and by then all have left their results.
    pub share: Option<RefCell<Share>>,
    pub report: ReportSink,
    /// In a simulation, which traces what the service starts itself: shared by the workers.
    pub last_place: Option<Arc<LastPlace>>,
    /// The worker's place in a simulation that steps it.
    pub seat: Option<SteppedWorker>,
    pub hooks: hooks::Active,
    /// The thread that runs the requests.
    pub thread: ThreadRole,
}

/// Runs until the schedule is closed or aborted.
pub(crate) fn run<S: Service>(mut worker: WorkerContext<S>, context: &Context<S>) {
    let _last_words = LastWords(&*context.report);
    let locks = context.service.locks();
    let mut replies = Replies::new(context.kept.clone());
    let run = |turn: Turn<'_, Job<S::Request>>| {
        context.run_turn(turn, &locks, &mut replies);
        context.report_end();
    };
    execute::run_all(&mut worker, run, || context.leave_share());
}

/// Runs jobs up to some request after batch `last`, and returns the worker; none when the schedule was closed or
/// aborted, or the worker unwinds.
pub(crate) fn run_until<S: Service>(
    mut worker: WorkerContext<S>,
    last: &AtomicU64,
    context: &Context<S>,
) -> Option<WorkerContext<S>> {
    let last_words = LastWords(&*context.report);
    let locks = context.service.locks();
    let mut replies = Replies::new(context.kept.clone());
    let pause = execute::run_rows(&mut worker, |turn| {
        let batch = turn.entry_index();
        context.run_turn(turn, &locks, &mut replies);
        if batch > last.load(Ordering::Acquire) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if pause == Pause::Closed {
        return None;
    }
    std::mem::forget(last_words);
    Some(worker)
}

/// Reports the end of the worker in all cases: a replica without workers must not appear to serve.
struct LastWords<'a>(&'a (dyn Fn(Report) + Send + Sync));

impl Drop for LastWords<'_> {
    fn drop(&mut self) {
        (self.0)(Report::Ended);
    }
}

impl<S: Service> Context<S> {
    /// Runs one request to its end.
    pub fn run_turn(&self, mut turn: Turn<'_, Job<S::Request>>, locks: &[&dyn Lock], replies: &mut Replies) {
        replies.begin();
        let batch = turn.request().place.as_ref().map(|place| &place.batch);
        if self.share.as_ref().is_some_and(|share| !share.borrow().is_of(batch)) {
            self.leave_share();
        }
        if matches!(turn.request().work, Work::Service(_)) {
            let time = self.hooks.delay(turn.position(), self.thread);
            if let (Some(seat), false) = (&self.seat, time.is_zero()) {
                seat.linger(time.as_micros() as u64);
            }
        }
        self.hooks.at_turn(&mut turn, TurnPoint::Begins);
        let outcome = self.step(&mut turn, locks, replies);
        let traced = self.last_place.as_ref().and_then(|last| traced::trace(&turn, outcome, last));
        traced.into_iter().for_each(|run| (self.report)(Report::Traced(run)));
        self.hooks.at_turn(&mut turn, TurnPoint::Ends);
        if let Some(ended) = turn.finish(outcome) {
            (self.report)(Report::BatchEnded(ended));
        }
    }

    /// Reports that a request has ended, if replies wait for that.
    fn report_end(&self) {
        if self.mode.twice {
            // Pairs with the fence in `Execution::report_ends`: either the order thread finds the request ended, or
            // this finds that it asks.
            fence(Ordering::SeqCst);
            if self.reports_ends.load(Ordering::Relaxed) {
                (self.report)(Report::TurnEnded);
            }
        }
    }

    /// Runs one request up to the point where its turns can be passed.
    fn step(
        &self,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        replies: &mut Replies,
    ) -> Outcome {
        let position = turn.position();
        if self.mode.twice && turn.request().place.as_ref().is_some_and(|place| place.position != position) {
            // Both runs would agree on it: positions are inputs of the handler.
            (self.report)(Report::Corrupted(Corrupted::Schedule));
            return Outcome::Abandoned;
        }
        let mut are_damaged = false;
        if matches!(turn.request().work, Work::Service(_)) {
            self.hooks.at_turn(turn, TurnPoint::Bytes(&mut are_damaged));
        }
        match &turn.request().work {
            Work::Service(_) if are_damaged => self.abandon(turn, Failure::Request),
            Work::Service(_) => self.handle(turn, locks, replies),
            Work::Control(control) | Work::CopyPart(_, control) => {
                let control = control.clone();
                self.control(turn, locks, &control)
            }
            Work::Cut(head, copy, limit) => {
                let (head, copy, limit) = (head.clone(), copy.clone(), *limit);
                self.cut(turn, locks, (head, &copy), limit);
                Outcome::Done
            }
            Work::Damaged => self.abandon(turn, Failure::Request),
            Work::Invalid => self.abandon(turn, Failure::Invalid),
            Work::Checkpoint(head) => {
                let head = head.clone();
                self.checkpoint(turn, locks, head);
                Outcome::Done
            }
            Work::Boundary(work) => {
                let work = work.lock().take();
                let done = work.map(|work| match work {
                    BoundaryWork::Read(reads) => BoundaryDone::Read(self.read(turn, locks, &reads, replies)),
                    work => {
                        let rolls_back = matches!(work, BoundaryWork::RollBack(_) | BoundaryWork::Install(_));
                        let done = work.perform(turn, locks, &words_of::<S>(), &self.copy);
                        if rolls_back {
                            self.unstable.have_left();
                        }
                        done
                    }
                });
                if let Some(done) = done {
                    (self.report)(Report::Boundary(done));
                }
                Outcome::Done
            }
        }
    }

    /// Runs a request of the pipeline itself.
    fn control(
        &self,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        control: &Control,
    ) -> Outcome {
        turn.take_all();
        if matches!(control, Control::Recover(_)) {
            // The replica that is repaired may have learned other locks of requests than its peers.
            turn.forget_lessons();
        }
        // Damage of a structure may show only as a panic: then this replica blames itself, as in a handler.
        let performed = catch_unwind(AssertUnwindSafe(|| self.perform(turn, locks, control)));
        let compared = performed.unwrap_or_else(|payload| {
            if let Control::Noop { ticket, .. } = control {
                let what = "something that is damaged already is in the way".into();
                let injected = Injected { done: false, what, home: None, id: None };
                (self.report)(Report::Nudged { ticket: *ticket, injected });
            }
            let region_id = turn.footprint().first().unwrap_or(0);
            Err(match object::corrupted(&*payload) {
                Some(corrupted) if corrupted.how == object::How::Missing => {
                    Failure::Missing { region_id, id: corrupted.object }
                }
                Some(corrupted) => Failure::Check { region_id, id: corrupted.object },
                None => Failure::Panic,
            })
        });
        if self.mode.verified {
            // It changes nothing that could be undone; its stamp says behind which requests it ran.
            self.keep(turn, Some(KeptRequest { stamp: turn.stamp(), answer: 0, kept: Kept::new() }));
        }
        self.leave(turn, |request_info| match compared {
            Ok(pairs) => RequestResult::new(request_info, pairs, Bytes::new()),
            Err(failure) => RequestResult::abandoned(request_info, failure),
        })
    }

    /// The group acts as this behavior from here on, and objects that are written become those of its version.
    fn act_as(&self, turn: &mut Turn<'_, Job<S::Request>>, locks: &[&dyn Lock], behavior: u16) {
        let is_sealed = self.mode.guarded || self.mode.verified;
        if behavior != self.acting.get() && !is_sealed && shapes::have_versions(locks) {
            // The members that a newer version has follow from the others when an object is sealed. Where requests
            // seal nothing, this does it before a handler reads them.
            turn.visit_regions(locks, |_, access| {
                if let Access::Exclusive(region) = access {
                    region.seal_unsealed();
                }
            });
        }
        self.acting.set(behavior);
    }

    /// Executes the request; the vote compares the returned pairs.
    fn perform(
        &self,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        control: &Control,
    ) -> ControlResult {
        let place = turn.request().place.as_ref().map(InBatch::of_vote);
        let mut compared = Ok(Pairs::new());
        match control {
            Control::Recover(recover) => {
                if let Some(place) = place {
                    compared = self.recover(turn, locks, recover, place);
                }
            }
            Control::Noop { ticket, .. } => {
                if let Some(injected) = self.hooks.on_noop(&*self.service, turn, locks, *ticket) {
                    (self.report)(Report::Nudged { ticket: *ticket, injected });
                }
            }
            Control::Scrub { .. } => compared = self.scrub(turn, locks, place),
            Control::Digest { ticket, begun, .. } => {
                let index = if *begun == 0 { turn.entry_index() } else { *begun };
                let position = Position { index, ticket: *ticket };
                turn.visit_regions(locks, |region_id, access| {
                    let mut digest = region_of(&access).digest_and_count();
                    if !self.mode.guarded {
                        // Without a checksum, nothing is damaged.
                        digest.damaged = 0;
                    }
                    (self.report)(Report::Digest { position, region_id, digest });
                });
            }
            Control::Recheck { by, place, objects } if *by == self.me => {
                let corrupt = recheck(turn, locks, objects);
                (self.report)(Report::Rechecked { place: *place, corrupt });
            }
            Control::CopyPart { session, number, .. } => {
                self.copy_part(turn, locks, (*session, *number), place);
            }
            Control::ActAs { behavior } => self.act_as(turn, locks, *behavior),
            Control::Recheck { .. }
            | Control::Checkpoint { .. }
            | Control::CopyWanted
            | Control::Set { .. }
            | Control::Move { .. }
            | Control::Size(_)
            | Control::Gone { .. }
            | Control::Answered { .. } => {}
        }
        compared
    }

    /// Packs the next objects of some regions, if this replica takes part in the copy. Objects that do not fit their
    /// checksums are repaired as after a scrub; until then this replica's copy is not that of the others.
    fn copy_part(
        &self,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        (session, number): (u64, u32),
        place: Option<Place>,
    ) {
        let Work::CopyPart(copy, _) = &turn.request().work else { return };
        let (copy, begun) = (copy.clone(), Instant::now());
        let mut part: Vec<(RegionId, CopiedPart)> = Vec::new();
        let mut room = self.piece;
        turn.visit_regions(locks, |region_id, access| {
            if room == 0 && !part.is_empty() {
                return;
            }
            self.hooks.at(FaultPoint::Copy(&copy, region_id));
            let mut packed = copy.pack(region_id, region_of(&access), room.max(1));
            self.hooks.at(FaultPoint::Part(&mut packed.bytes));
            room = room.saturating_sub(packed.bytes.len());
            part.push((region_id, packed));
        });
        self.report_damaged(turn.entry_index(), place, &part);
        (self.report)(Report::CopyPart { session, number, part, took: begun.elapsed() });
    }

    /// The checkpoint without a copy: the whole state, alone.
    fn checkpoint(
        &self,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        head: Arc<state::CheckpointHead>,
    ) {
        // In verified mode, there is no vote on it, and replicas that pack corrupted objects never offer the same
        // state.
        let region_ids = 0..locks.len() as RegionId;
        let damaged = match self.mode.verified {
            true => boundary::corrupted(region_ids, &mut *turn, locks),
            false => Vec::new(),
        };
        if !damaged.is_empty() {
            return (self.report)(Report::Damaged { batch: head.batch, objects: damaged });
        }
        match state::pack(turn, &*self.service, &head, PackWriter::new(self.piece)) {
            Ok(state) => (self.report)(Report::Checkpoint { head, state }),
            Err(why) => log_no_checkpoint(why),
        }
    }

    /// The checkpoint: what is left of the copy, alone.
    fn cut(
        &self,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        (head, copy): (Arc<state::CheckpointHead>, &StateCopy),
        limit: usize,
    ) {
        let (session, left) = (copy.session(), copy.left());
        if !left.are_all_listed || left.objects > limit {
            return (self.report)(Report::TooMuchLeft { session });
        }
        let end = match state::put_end(turn, &head) {
            Ok(end) => end,
            Err(why) => return log_no_checkpoint(why),
        };
        turn.take_all();
        let mut rest = Vec::new();
        turn.visit_regions(locks, |region_id, access| {
            self.hooks.at(FaultPoint::Copy(copy, region_id));
            let part =
                copy.pack_rest(region_id, region_of(&access)).filter(|_| self.hooks.keeps(Rule::KeepsRest));
            rest.extend(part.map(|part| (region_id, part)));
        });
        self.report_damaged(head.batch, None, &rest);
        (self.report)(Report::Cut { session, head, rest, end });
    }

    /// Objects of a part that do not fit their checksums. In verified mode the batch runs again when they are repaired.
    fn report_damaged(&self, batch: u64, place: Option<Place>, part: &[(RegionId, CopiedPart)]) {
        let damaged = part.iter().filter(|(_, part)| !part.damaged.is_empty());
        if self.mode.verified {
            let of_region = |(region_id, part): &(RegionId, CopiedPart)| {
                let region_id = *region_id;
                part.damaged.clone().into_iter().map(move |id| (region_id, id))
            };
            let objects: Vec<_> = damaged.flat_map(of_region).take(limits::ASKED_OBJECTS).collect();
            if !objects.is_empty() {
                (self.report)(Report::Damaged { batch, objects });
            }
        } else if let Some(place) = place.filter(|_| self.mode.guarded) {
            for (region_id, part) in damaged {
                let findings = part.damaged.iter().map(|id| object::ScrubFinding::Damaged(*id));
                let findings = findings.take(limits::SCRUB_FINDINGS).collect();
                (self.report)(Report::Scrubbed { place, region_id: *region_id, findings });
            }
        }
    }

    /// RECOVER at its turn: some replicas pack the objects; those that overwrite their own wait for them.
    fn recover(
        &self,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        recover: &Recover,
        place: Place,
    ) -> ControlResult {
        let time_us = turn.request().place.as_ref().map_or(0, |place| place.batch.time_us);
        let recover = recover.clone();
        recover.targets().for_each(|(region_id, id)| self.copy.on_repaired(region_id, id));
        if recover.packs_at(self.me) {
            let packed = pack(turn, locks, &recover);
            self.name(turn, locks, &packed);
            (self.report)(Report::RecoverTurn {
                turn: place,
                time_us,
                recover: recover.clone(),
                packed,
                install: None,
            });
        } else {
            let (install, awaited) = mpsc::channel();
            let report = Report::RecoverTurn {
                turn: place,
                time_us,
                recover: recover.clone(),
                packed: Vec::new(),
                install: Some(install),
            };
            (self.report)(report);
            // The turn is held: no request enters the objects before they are right. The sender is dropped when the
            // replica stops.
            let objects = match &self.seat {
                Some(seat) => seat.receive(&awaited),
                None => awaited.recv().ok(),
            };
            if let Some(objects) = objects {
                let overwritten = overwrite(turn, locks, &objects, &words_of::<S>());
                self.name(turn, locks, &objects);
                (self.report)(Report::Installed { turn: place, overwritten });
            }
        }
        repaired_pairs(turn, locks, &recover)
    }

    /// Reports the names of packed objects.
    fn name(&self, turn: &mut Turn<'_, Job<S::Request>>, locks: &[&dyn Lock], objects: &[Packed]) {
        let names = naming::of_packed(turn, locks, objects, &S::name_of);
        if !names.is_empty() {
            (self.report)(Report::Named(names));
        }
    }

    /// Checks every object of a region, including those that no request touches: wrong ones are repaired, and the vote
    /// compares the region as a whole. A replica that found errors blames itself.
    fn scrub(
        &self,
        turn: &mut Turn<'_, Job<S::Request>>,
        locks: &[&dyn Lock],
        place: Option<Place>,
    ) -> ControlResult {
        let mut compared = Ok(Pairs::new());
        let begun = Instant::now();
        turn.visit_regions(locks, |region_id, access| {
            let region = region_of(&access);
            let mut large: Vec<object::Large> = Vec::new();
            let findings =
                region.scrub_sizes(limits::SCRUB_FINDINGS, &mut |one| keep_largest(&mut large, one));
            if !large.is_empty() {
                (self.report)(Report::Large { region_id, objects: large });
            }
            if findings.is_empty() {
                let sum = region.digest_of_intact() as u64;
                compared = Ok(Pairs::from_slice(&[object::Pair { region_id, id: region.root(), sum }]));
            } else {
                compared = Err(Failure::Check { region_id, id: region.root() });
                if let Some(place) = place {
                    (self.report)(Report::Scrubbed { place, region_id, findings });
                }
            }
        });
        (self.report)(Report::ScrubTook(begun.elapsed()));
        compared
    }

    /// Stores a result in its batch; with the last one the whole batch goes to the vote. A request that the service
    /// started itself has none.
    fn leave(
        &self,
        turn: &Turn<'_, Job<S::Request>>,
        result: impl FnOnce(RequestInfo) -> RequestResult,
    ) -> Outcome {
        self.leave_ran(turn, RunNotes { core: core(), kind: 0, reproduced: false }, result)
    }

    /// The same for a request that has no effect here.
    fn abandon(&self, turn: &Turn<'_, Job<S::Request>>, failure: Failure) -> Outcome {
        self.leave(turn, |request_info| RequestResult::abandoned(request_info, failure))
    }

    fn leave_ran(
        &self,
        turn: &Turn<'_, Job<S::Request>>,
        ran: RunNotes,
        result: impl FnOnce(RequestInfo) -> RequestResult,
    ) -> Outcome {
        if let Some(place) = &turn.request().place {
            let result = result(place.request_info(turn.position(), turn.time_us()));
            let ended = Ended { request: place.number, result, ran };
            match &self.share {
                Some(share) => share.borrow_mut().add(&place.batch, ended),
                None => self.report_left(place.batch.leave([ended])),
            }
        }
        Outcome::Done
    }

    /// Stores the results that this worker has of the batch that it has run.
    fn leave_share(&self) {
        if let Some(share) = &self.share {
            self.report_left(share.borrow_mut().leave());
        }
    }

    fn report_left(&self, left: Result<Option<Executed>, Corrupted>) {
        match left {
            Ok(None) => {}
            Ok(Some(executed)) => (self.report)(Report::Executed(executed)),
            Err(what) => (self.report)(Report::Corrupted(what)),
        }
    }
}

/// The processor core of this thread, or 0 where the system does not report it: for evidence only, it reaches no state
/// and no reply.
fn core() -> u32 {
    #[cfg(target_os = "linux")]
    return rustix::thread::sched_getcpu() as u32;
    #[cfg(not(target_os = "linux"))]
    0
}

/// Keeps the largest object of each class.
fn keep_largest(all: &mut Vec<object::Large>, one: object::Large) {
    match all.iter_mut().find(|known| known.class == one.class) {
        Some(known) if known.bytes < one.bytes => *known = one,
        Some(_) => {}
        None => all.push(one),
    }
}

/// Those of the objects that do not fit their checksums.
fn recheck<R>(
    turn: &mut Turn<'_, R>,
    locks: &[&dyn Lock],
    objects: &[(RegionId, ObjectId)],
) -> Vec<(RegionId, ObjectId)> {
    let mut corrupt = Vec::new();
    turn.visit_regions(locks, |held, access| {
        let region = region_of(&access);
        let wrong = |id| region.check(id) == object::Health::Damaged;
        corrupt.extend(objects.iter().filter(|(region_id, id)| *region_id == held && wrong(*id)));
    });
    corrupt
}

/// The objects that a RECOVER names, with this replica's content.
fn pack<R>(turn: &mut Turn<'_, R>, locks: &[&dyn Lock], recover: &Recover) -> Vec<Packed> {
    let mut packed = Vec::new();
    turn.visit_regions(locks, |held, access| {
        let region = region_of(&access);
        for (region_id, id) in recover.targets().filter(|(region_id, _)| *region_id == held) {
            packed.push(Packed { region_id, id, content: content(region, id) });
        }
    });
    packed
}

/// An object that fails its own check is not sent: this replica's version of it does not count.
fn content(region: &dyn object::Region, id: ObjectId) -> Content {
    if id.is_none() {
        let intact = region.scrub(1).is_empty();
        return if intact { Content::Present(region.pack_all().into()) } else { Content::Damaged };
    }
    match region.check(id) {
        object::Health::Damaged | object::Health::Unsealed => Content::Damaged,
        object::Health::Absent => Content::Absent,
        object::Health::Intact => {
            region.pack(id).map_or(Content::Absent, |packed| Content::Present(packed.into()))
        }
    }
}

/// The repaired objects go into the state delta of the RECOVER, so that the vote detects whether they are right now. (A
/// region that was replaced as a whole is checked by its next SCRUB.)
fn repaired_pairs<R>(turn: &mut Turn<'_, R>, locks: &[&dyn Lock], recover: &Recover) -> ControlResult {
    let mut compared = Ok(Pairs::new());
    turn.visit_regions(locks, |held, access| {
        let region = region_of(&access);
        for &(region_id, id) in recover.objects.iter().filter(|(region_id, _)| *region_id == held) {
            if matches!(region.check(id), object::Health::Damaged | object::Health::Unsealed) {
                compared = Err(Failure::Check { region_id, id });
            } else if let Ok(pairs) = &mut compared {
                let digest = |packed: Vec<u8>| vote::digest::content(&packed) as u64;
                pairs.push(object::Pair {
                    region_id,
                    id,
                    sum: region.pack(id).map_or(object::Pair::REMOVED, digest),
                });
            }
        }
    });
    compared
}

fn log_no_checkpoint(why: &str) {
    crate::message(format_args!("the checkpoint for another replica failed: {why}"));
}
