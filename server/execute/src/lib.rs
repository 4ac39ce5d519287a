//! Runs a handler on protected objects and returns its reply and its state delta.
//!
//! The effects of a request are known only after its objects are sealed, and they are sealed before the request passes
//! its turn (docs/design.md, section 3). So the scope of the request, the seal and the end of the turn are in one
//! place, [`Runner`].

mod reproduce;
mod speculate;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};

use object::request::{self, Protect, ScopeOptions};
use object::{Corrupted, Kept, ObjectId, RegionId, Touched};
use schedule::{Access, Cx, Lock, LockId, Outcome, Retry, Turn};

pub use reproduce::{Repeat, Reproduced, Stopped, started};
pub use speculate::{KeptRequest, NotRolledBack, Regions, Speculation, TokenParts, checksums};
pub use worker::{Pause, run_all, run_rows};

/// The protections of an execution, from the letters of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// G: check objects at first touch and seal them at the end. Without it, verification after execution still needs
    /// the seals.
    pub protect: Protect,
    /// Keep before-images, so that a handler that requests another lock, or panics, can be undone.
    pub undo: bool,
}

/// How a handler ended.
#[derive(Debug)]
pub enum End {
    /// It succeeded; the objects that it touched are in the state delta.
    Done(Touched),
    /// It requested a lock outside its footprint. It was undone and runs again.
    Retry(Retry),
    /// It panicked, and was undone.
    Panicked,
    /// An object failed its check: this replica abandons the request, which was undone. The objects of the request that
    /// do not fit their checksums (or are missing), at least the one that stopped it.
    Corrupted(Corrupted, Vec<(RegionId, ObjectId)>),
    /// No two of its runs agreed, and all were undone: this replica abandons the request.
    Unreproducible,
    /// Two runs could not decode the request from its ordered bytes again: this replica abandons it.
    Undecodable,
    /// Its effects could not be undone: the state of this replica cannot be trusted any more.
    NotUndone,
}

/// How a handler ended that only reads ([`Runner::read_only`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// It succeeded.
    Done,
    /// It gave up, panicked, met an object that fails its check, or changed an object, which was undone. There is no
    /// reply.
    Refused,
    /// It changed an object, and that could not be undone.
    NotUndone,
}

/// A hook between a request's handler and its seal, for the fault injector.
pub trait SealHook {
    /// Gets the regions that the request holds, after the handler and before the seal.
    fn before_seal(&self, _lock: LockId, _access: &mut Access<'_>) {}
    /// All regions are sealed, and the request still holds them ([`request::changed_objects`]).
    fn after_seal(&self) {}
}

/// No hook.
impl SealHook for () {}

/// The data that every run of a handler needs in addition to its turn.
#[derive(Clone, Copy)]
pub struct Runner<'a, B> {
    /// The service's locks; `locks[i]` has the number i.
    pub locks: &'a [&'a dyn Lock],
    /// The protections that are on.
    pub protection: Protection,
    /// The hook between a handler and its seal.
    pub seal_hook: &'a B,
}

impl<B: SealHook> Runner<'_, B> {
    /// Runs `handler` once in `turn`, seals the objects that it touched, and returns how the turn has to be finished.
    ///
    /// `reply` holds the handler's reply after [`End::Done`]; otherwise it is unchanged.
    pub fn once<R>(
        &self,
        turn: &mut Turn<'_, R>,
        reply: &mut Vec<u8>,
        handler: impl FnOnce(&Cx<'_, R>, &R, &mut Vec<u8>) -> Result<(), Retry>,
    ) -> (End, Outcome) {
        let start = reply.len();
        let handler = |cx: &Cx<'_, R>, request: &R, reply: &mut Vec<u8>| Ok(handler(cx, request, reply)?);
        let ran = self.run(turn, reply, request::begin, handler);
        let touched = self.touched(&ran);
        self.conclude(turn, ran, touched, reply, start)
    }

    /// [`Runner::once`] for a request that may have to be rolled back later: after [`End::Done`] the third value does
    /// that. `room` has buffers for it.
    pub fn once_keeping<R>(
        &self,
        turn: &mut Turn<'_, R>,
        reply: &mut Vec<u8>,
        room: Kept,
        handler: impl FnOnce(&Cx<'_, R>, &R, &mut Vec<u8>) -> Result<(), Retry>,
    ) -> (End, Outcome, Kept) {
        let start = reply.len();
        let handler = |cx: &Cx<'_, R>, request: &R, reply: &mut Vec<u8>| Ok(handler(cx, request, reply)?);
        match self.run(turn, reply, request::begin_with_whole_images, handler) {
            Ran::Sealed(()) => {
                let (touched, kept) = request::finish_keeping(room);
                (End::Done(touched), Outcome::Done, kept)
            }
            ran => {
                let (end, outcome) = self.conclude(turn, ran, Touched::default(), reply, start);
                (end, outcome, room.emptied())
            }
        }
    }

    /// Runs a handler that only reads: `handler` gets objects that are compared with their checksums, and `reply` gets
    /// what it appends. Nothing is sealed, since nothing may have changed, so that many of them may share a turn.
    pub fn read_only<R, T>(
        &self,
        turn: &mut Turn<'_, R>,
        reply: &mut Vec<u8>,
        handler: impl FnOnce(&Cx<'_, R>, &mut Vec<u8>) -> Result<(), T>,
    ) -> ReadEnd {
        let start = reply.len();
        let options =
            ScopeOptions { position: turn.position(), protect: Protect::Check, keep_before_images: true };
        request::begin(options);
        // What stopped it is found again by a request that does more than read.
        let looked = catch_unwind(AssertUnwindSafe(|| handler(&turn.cx(), reply)));
        if matches!(looked, Ok(Ok(()))) && request::is_undone() {
            request::abandon();
            return ReadEnd::Done;
        }
        reply.truncate(start);
        if self.undo(turn) { ReadEnd::Refused } else { ReadEnd::NotUndone }
    }

    /// Opens the scope of the request by `begin`, runs the handler and seals the objects that it touched. The scope
    /// stays open.
    fn run<R, T>(
        &self,
        turn: &mut Turn<'_, R>,
        reply: &mut Vec<u8>,
        begin: fn(ScopeOptions),
        handler: impl FnOnce(&Cx<'_, R>, &R, &mut Vec<u8>) -> Result<T, Stopped>,
    ) -> Ran<T> {
        begin(ScopeOptions {
            position: turn.position(),
            protect: self.protection.protect,
            keep_before_images: self.protection.undo,
        });
        let handled = catch_unwind(AssertUnwindSafe(|| handler(&turn.cx(), turn.request(), reply)));
        let ended = match handled {
            Ok(Ok(reported)) => catch_unwind(AssertUnwindSafe(|| self.seal(turn))).map(|()| reported),
            Ok(Err(Stopped::Retry(retry))) => return Ran::Retry(retry),
            Ok(Err(Stopped::Undecodable)) => return Ran::Undecodable,
            Err(payload) => Err(payload),
        };
        match ended {
            Ok(reported) => Ran::Sealed(reported),
            Err(payload) => match object::corrupted(&*payload) {
                Some(corrupted) => Ran::Corrupted(*corrupted, self.blame(turn, corrupted)),
                None => Ran::Panicked,
            },
        }
    }

    /// The state delta of a request that was sealed; otherwise none.
    fn touched<T>(&self, ran: &Ran<T>) -> Touched {
        if let Ran::Sealed(_) = ran { request::so_far() } else { Touched::default() }
    }

    /// After a request that was sealed, whose state delta is `touched`, the scope is closed and the effects stay. After
    /// any other they are undone, together with its reply. Returns how the turn has to be finished.
    fn conclude<R, T>(
        &self,
        turn: &mut Turn<'_, R>,
        ran: Ran<T>,
        touched: Touched,
        reply: &mut Vec<u8>,
        start: usize,
    ) -> (End, Outcome) {
        if let Ran::Sealed(_) = ran {
            request::abandon();
            return (End::Done(touched), Outcome::Done);
        }
        reply.truncate(start);
        if !self.undo(turn) {
            return (End::NotUndone, Outcome::Abandoned);
        }
        match ran {
            Ran::Retry(retry) => (End::Retry(retry), Outcome::Mispredicted(retry)),
            Ran::Corrupted(corrupted, wrong) => (End::Corrupted(corrupted, wrong), Outcome::Abandoned),
            Ran::Undecodable => (End::Undecodable, Outcome::Abandoned),
            Ran::Panicked | Ran::Sealed(_) => (End::Panicked, Outcome::Abandoned),
        }
    }

    /// The seal: every object the request opened gets its new checksum, before the turn is passed.
    fn seal<R>(&self, turn: &mut Turn<'_, R>) {
        turn.visit_regions(self.locks, |lock, mut access| {
            self.seal_hook.before_seal(lock, &mut access);
            match access {
                Access::Exclusive(region) => region.seal(lock),
                Access::Shared(region) => region.note(lock),
            }
        });
        self.seal_hook.after_seal();
    }

    /// The wrong objects of the request.
    fn blame<R>(&self, turn: &mut Turn<'_, R>, corrupted: &Corrupted) -> Vec<(RegionId, ObjectId)> {
        let mut wrong = Vec::new();
        let mut holder: Option<(RegionId, bool)> = None;
        turn.visit_regions(self.locks, |lock, access| {
            let region: &dyn object::Region = match &access {
                Access::Exclusive(region) => &**region,
                Access::Shared(region) => *region,
            };
            wrong.extend(region.blame().into_iter().map(|id| (lock, id)));
            let holds = region.check(corrupted.object) != object::Health::Absent;
            if holder.is_none_or(|(_, sure)| holds && !sure) {
                holder = Some((lock, holds));
            }
        });
        // A missing object cannot be found; all that is known is that its region is one of those searched. If a damaged
        // object was found, it is the wrong one: naming it behind another lock as well would request the repair of an
        // object that no replica has.
        if let (true, false, Some((lock, _))) = (wrong.is_empty(), corrupted.object.is_none(), holder) {
            wrong.push((lock, corrupted.object));
        }
        wrong
    }

    /// Undoes the request, as far as before-images were kept, and ends its scope; false if an effect is left. What
    /// fails is tried once more: a fault in the undo does not hit it twice.
    fn undo<R>(&self, turn: &mut Turn<'_, R>) -> bool {
        for _ in 0..2 {
            turn.visit_regions(self.locks, |_, access| {
                if let Access::Exclusive(region) = access {
                    region.undo();
                }
            });
            if request::is_undone() {
                break;
            }
        }
        let is_undone = request::is_undone();
        request::abandon();
        is_undone
    }
}

/// How the handler ran, while its effects can still be undone.
enum Ran<T> {
    /// To its end; with what the handler returned.
    Sealed(T),
    Retry(Retry),
    Undecodable,
    Panicked,
    Corrupted(Corrupted, Vec<(RegionId, ObjectId)>),
}
