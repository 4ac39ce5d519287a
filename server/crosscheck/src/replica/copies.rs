//! A checkpoint in parts: the leader orders parts of a copy of the state, a few regions at a time, and at last the
//! checkpoint, which contains what is left. Every replica packs the same parts at the same positions and puts them
//! together in their order. So no request waits for more than one part and, at the checkpoint, for what little is left.
//!
//! With logs on disk every replica writes the copy there, and goes on to note what changes. The next checkpoint that is
//! to shorten the log is a copy of these changes alone: they are written behind the state before. What a replica writes
//! then is its own matter: it is neither compared nor fetched.
//!
//! Receivers take the pieces while the copy is being made. Donors keep the last ones only: if a receiver is slow, the
//! leader waits with the next part.
//!
//! In verified mode a part is packed behind its batch, which may be rolled back: then its objects, and those that the
//! batch has changed, are packed again later. The same part may come twice, or not at all, and a donor's parts need not
//! be those of the others: the state after the checkpoint is the same. The checkpoint counts once its batch is stable.
//! If it is rolled back, the copy goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use object::{CopiedPart, RegionId};

use super::environment::Environment;
use super::execution::Execution;
use super::order_stage::OrderStage;
use super::state_transfer::StateTransfer;
use crate::admin::CopyGiven;
use crate::checkpoint::CheckpointHead;
use crate::copying::{CurrentCopy, StateCopy, is_of_changes, session_of_changes};
use crate::job::Work;
use crate::limits;
use crate::ordered::Control;
use crate::packed_state::{PackWriter, PackedState};
use crate::service::Service;
use crate::snapshot::Extent;
use crate::state;
use crate::transfer::CopyRoom;
use crate::world::World;

/// The copy of the state that is being made.
#[derive(Default)]
pub(super) struct Copies {
    running: Option<Running>,
    /// At a leader that orders the parts.
    ordering: Option<Ordering>,
    /// The copy that is on disk, or about to be: it has learned what has changed since.
    kept: Option<Arc<StateCopy>>,
    /// How many copies have begun here.
    begun: u64,
}

/// A copy at this replica.
struct Running {
    copy: Arc<StateCopy>,
    /// Number of the next part in the order.
    next: u32,
    /// Ordered time of the last part, and the time here.
    part_us: (u64, u64),
    /// The parts, put together in their order.
    stream: PackWriter,
    /// Parts that are in `stream`, and how many objects and bytes they have.
    joined: u32,
    packed: (u64, u64),
    /// The last region of the last part.
    region_id: RegionId,
    /// Parts that were packed before an earlier one.
    early: BTreeMap<u32, Vec<(RegionId, CopiedPart)>>,
    /// What is left is in `stream`, and this is behind it.
    end: Option<CopyEnd>,
    /// In verified mode: parts are packed in the order in which they come, whatever their numbers.
    is_in_turn: bool,
}

/// Where a copy ends, unless that is rolled back.
pub(super) struct CopyEnd {
    /// Number of the checkpoint's batch, and its log index.
    pub(super) batch: u64,
    pub(super) index: u64,
    /// What is in no region.
    pub(super) packed: PackedState,
}

/// A copy that is whole.
pub(super) struct WholeCopy {
    /// Its session, and the log index of its checkpoint.
    pub(super) copy: (u64, u64),
    /// The pieces that were not taken.
    pub(super) last: PackedState,
}

/// What the leader of a copy orders next.
struct Ordering {
    session: u64,
    /// Number of the next part.
    next: u32,
    /// The region with which it begins.
    region_id: RegionId,
    /// How many regions it covers at most: about as many as the last one has packed.
    count: u32,
    /// Rounds over all regions that are complete.
    rounds: u32,
    /// What was ordered last, until it is executed here, and when.
    awaited_since_us: Option<u64>,
    /// No part is ordered before.
    due_us: u64,
    /// Since when no part is ordered because no receiver has taken the last ones.
    full_since_us: Option<u64>,
}

impl Copies {
    /// A state is needed: the leader begins a copy, named after the last entry of its log, or goes on with one that an
    /// earlier leader has begun. One that no receiver can take any more is given up for the new one.
    /// If the log is to be shortened, a copy of the changes will do, where there is a copy of the rest.
    pub(super) fn want(
        &mut self,
        extent: Extent,
        (last_index, now_us): (u64, u64),
        room: impl Fn(u64) -> CopyRoom,
    ) {
        let of_changes = extent == Extent::Changes && self.has_kept();
        let silent_us = limits::RECEIVER_SILENT.as_micros() as u64;
        let ordering = self.ordering.as_ref();
        // Receivers can do nothing with changes.
        let ordering =
            ordering.filter(|ordering| extent == Extent::Changes || !is_of_changes(ordering.session));
        if let Some(Ordering { session, full_since_us, .. }) = ordering {
            let is_full = full_since_us.is_some_and(|since_us| now_us > since_us + silent_us);
            if !is_full || room(*session).has_receiver {
                return;
            }
        }
        let running = self.running.as_ref().filter(|_| self.ordering.is_none());
        let running = running.map(|running| (running.copy.session(), running.next));
        let running = running.filter(|(session, _)| is_of_changes(*session) == of_changes);
        let fresh = if of_changes { session_of_changes(last_index) } else { last_index };
        let (session, next) = running.filter(|(session, _)| room(*session).is_of_use()).unwrap_or((fresh, 0));
        self.ordering = Some(Ordering::from(session, next));
    }

    /// The leader goes on with a stalled copy, since its leader has changed or a part was lost: it ends, even if no
    /// replica needs it any more.
    fn resume(&mut self, now_us: u64, room: impl Fn(u64) -> CopyRoom) {
        let Some(Running { copy, next, part_us, .. }) = self.running.as_ref() else { return };
        let is_stalled = now_us > part_us.1 + limits::COPY_PATIENCE.as_micros() as u64;
        if self.ordering.is_none() && is_stalled && room(copy.session()).is_of_use() {
            self.ordering = Some(Ordering::from(copy.session(), *next));
        }
    }

    /// This replica does not lead any more, or what it has ordered may be lost.
    pub(super) fn forget_ordering(&mut self) {
        self.ordering = None;
    }

    /// What the leader orders next, if it is due.
    pub(super) fn next_control(
        &mut self,
        regions: u32,
        now_us: u64,
        room: impl Fn(u64) -> CopyRoom,
    ) -> Option<Control> {
        self.resume(now_us, &room);
        let ordering = self.ordering.as_mut()?;
        let is_over = |since_us: u64, limit: Duration| now_us > since_us + limit.as_micros() as u64;
        if let Some(since_us) = ordering.awaited_since_us {
            if is_over(since_us, limits::COPY_PATIENCE) {
                // It was lost with a leader; whoever needs the state asks again.
                self.ordering = None;
            }
            return None;
        }
        if now_us < ordering.due_us {
            return None;
        }
        if room(ordering.session).is_full {
            if is_over(*ordering.full_since_us.get_or_insert(now_us), limits::COPY_PAUSE) {
                self.ordering = None;
            }
            return None;
        }
        (ordering.full_since_us, ordering.awaited_since_us) = (None, Some(now_us));
        let running = self.running.as_ref().filter(|running| running.copy.session() == ordering.session);
        if let Some(running) = running
            && ordering.rounds > 0
            && ordering.region_id == 0
        {
            let left = running.copy.left();
            // Writes may be faster than a copy. Then a checkpoint that takes longer ends it.
            let extra = ordering.rounds.saturating_sub(limits::COPY_ROUNDS).min(16);
            let limit = running.cut_objects() << extra;
            if left.are_all_listed && left.objects <= limit.div_ceil(2) {
                return Some(Control::Checkpoint { session: ordering.session, limit: limit as u32 });
            }
        }
        let count = ordering.count.min(regions - ordering.region_id);
        Some(Control::CopyPart {
            session: ordering.session,
            number: ordering.next,
            region_id: ordering.region_id,
            count: count as u16,
        })
    }

    /// When the next part is due, if this replica orders it and does not wait for a receiver.
    pub(super) fn due_us(&self) -> Option<u64> {
        let waits =
            |ordering: &&Ordering| ordering.awaited_since_us.is_some() || ordering.full_since_us.is_some();
        Some(self.ordering.as_ref().filter(|ordering| !waits(ordering))?.due_us)
    }

    /// How far the copy is that is being made here.
    pub(super) fn given(&self, regions: u32) -> Option<CopyGiven> {
        let running = self.running.as_ref().filter(|running| !is_of_changes(running.copy.session()));
        let Running { copy, region_id, .. } = running?;
        let left = copy.left();
        let begun = if left.are_all_listed { regions } else { *region_id };
        Some(CopyGiven { session: copy.session(), begun, regions, left: left.objects as u64 })
    }

    /// The copy that is being made here.
    pub(super) fn session(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.copy.session())
    }

    /// The pieces of the copy that are full by now.
    pub(super) fn take_pieces(&mut self) -> Option<(u64, PackedState)> {
        let running = self.running.as_mut()?;
        Some((running.copy.session(), running.stream.take_full()))
    }

    /// A part has its position. Returns the copy, if this replica takes part in it: it has executed every part before,
    /// or does not have to (`is_in_turn`).
    pub(super) fn on_delivered(
        &mut self,
        (session, number): (u64, u32),
        (regions, piece, is_in_turn): (u32, usize, bool),
        (time_us, now_us): (u64, u64),
        current: &CurrentCopy,
    ) -> Option<Arc<StateCopy>> {
        let pause_us = limits::COPY_PAUSE.as_micros() as u64;
        let is_over = |running: &Running| match is_of_changes(session) {
            // What has been packed of the changes is not packed again, whichever session it was in.
            true => !is_of_changes(running.copy.session()),
            false => {
                running.copy.session() != session || time_us > running.part_us.0.saturating_add(pause_us)
            }
        };
        if self.running.as_ref().is_some_and(is_over) {
            self.end(current);
        }
        match &mut self.running {
            Some(running) if running.copy.session() != session && number == 0 => {
                running.copy.go_on_in(session);
                (running.next, running.joined, running.early) = (0, 0, BTreeMap::new());
            }
            None if number == 0 => {
                let copy = match (is_of_changes(session), self.kept.take()) {
                    (false, _) => Arc::new(StateCopy::new(session, regions)),
                    (true, Some(kept)) => kept,
                    (true, None) => return None,
                };
                copy.go_on_in(session);
                current.set(Some(copy.clone()));
                self.begun += 1;
                self.running = Some(Running::new(copy, (time_us, now_us), piece, is_in_turn));
            }
            _ => {}
        }
        let running = self
            .running
            .as_mut()
            .filter(|running| running.copy.session() == session && (is_in_turn || running.next == number))?;
        running.next = number + 1;
        running.part_us = (time_us, now_us);
        Some(running.copy.clone())
    }

    /// The session of the copy that is being made, and its parts so far.
    pub(super) fn marks(&self) -> Option<(u64, u32)> {
        self.running.as_ref().map(|running| (running.copy.session(), running.next))
    }

    /// The checkpoint of this session has its position. A replica that has not executed every part only
    /// takes the turn: what comes later has the same position at every replica, and so the same ids.
    pub(super) fn checkpoint_delivered<R>(
        &self,
        session: u64,
        limit: u32,
        head: Arc<CheckpointHead>,
    ) -> Work<R> {
        // The leader has found that little has changed. There may be more that this replica has not packed.
        let is_own = self.ordering.as_ref().is_some_and(|ordering| ordering.session == session);
        let has_limit = is_own || !is_of_changes(session);
        match self.running.as_ref().filter(|running| running.copy.session() == session) {
            Some(running) => {
                let limit = if has_limit { limit as usize } else { usize::MAX };
                Work::Cut(head, running.copy.clone(), limit)
            }
            None => Work::Control(Control::Checkpoint { session, limit }),
        }
    }

    /// A part was packed here, which took so long.
    pub(super) fn on_part(
        &mut self,
        (session, number): (u64, u32),
        part: Vec<(RegionId, CopiedPart)>,
        (took, now_us): (Duration, u64),
        regions: u32,
    ) {
        let Some(running) = self.running.as_mut().filter(|running| running.copy.session() == session) else {
            return;
        };
        let last = part.last().map(|(region_id, _)| *region_id);
        let packed = part.len() as u32;
        running.region_id = last.unwrap_or(running.region_id);
        if running.is_in_turn {
            (running.joined, running.end) = (number, None);
        }
        running.early.insert(number, part);
        running.join();
        if let Some(ordering) = self.ordering.as_mut().filter(|ordering| ordering.session == session) {
            ordering.next = ordering.next.max(number + 1);
            ordering.awaited_since_us = None;
            ordering.due_us = now_us + (took * limits::COPY_REST).as_micros() as u64;
            ordering.count = (2 * packed).clamp(1, limits::COPY_REGIONS);
            if let Some(last) = last {
                let goes_on = ordering.rounds == 0 && !running.copy.is_round_over(last);
                ordering.region_id = if goes_on { last } else { last + 1 };
                if ordering.region_id >= regions {
                    (ordering.region_id, ordering.rounds) = (0, ordering.rounds + 1);
                }
            }
        }
    }

    /// The checkpoint was made here: what was left, and the end behind it. None if its batch is being rolled back.
    pub(super) fn on_cut(&mut self, session: u64, rest: &[(RegionId, CopiedPart)], end: Option<CopyEnd>) {
        if let Some(running) = self.running.as_mut().filter(|running| running.copy.session() == session) {
            state::put_parts(rest, &mut running.stream);
            running.end = end;
        }
    }

    /// The checkpoint of this batch counts. None if it was of no copy, or this replica lacks a part. If it is being
    /// written to the disk (`is_written`), what changes from now on is noted.
    pub(super) fn on_stable(
        &mut self,
        batch: u64,
        is_written: bool,
        current: &CurrentCopy,
    ) -> Option<WholeCopy> {
        let running = self.running.as_mut()?;
        let end = running.end.take_if(|end| end.batch == batch)?;
        let session = running.copy.session();
        self.ordering.take_if(|ordering| ordering.session == session);
        if !running.is_in_turn && running.joined != running.next {
            self.end(current);
            return None;
        }
        let mut running = match is_written {
            true => self.running.take()?,
            false => self.end(current)?,
        };
        self.kept = is_written.then(|| running.copy.clone());
        end.packed.pieces().iter().for_each(|piece| running.stream.put(piece));
        Some(WholeCopy { copy: (session, end.index), last: running.stream.finish() })
    }

    /// In verified mode: batches after this one are rolled back. What was ordered in them may never be executed.
    pub(super) fn on_rolled_back(&mut self, batch: u64) {
        if let Some(running) = &mut self.running {
            running.end.take_if(|end| end.batch > batch);
        }
        if let Some(ordering) = &mut self.ordering {
            ordering.awaited_since_us = None;
        }
    }

    /// The copy is given up here. Returns its session.
    pub(super) fn give_up(&mut self, current: &CurrentCopy) -> Option<u64> {
        let session = self.end(current).map(|running| running.copy.session());
        self.ordering.take_if(|ordering| Some(ordering.session) == session);
        session
    }

    /// At the checkpoint too much was left: the leader orders further parts.
    pub(super) fn on_too_much(&mut self, session: u64, now_us: u64) {
        if let Some(ordering) = self.ordering.as_mut().filter(|ordering| ordering.session == session) {
            (ordering.awaited_since_us, ordering.due_us) = (None, now_us);
            ordering.rounds += 1;
        }
    }

    /// Nobody has ordered a part for so long that the copy will not be finished: it is freed. Returns its session.
    pub(super) fn free_abandoned(&mut self, now_us: u64, current: &CurrentCopy) -> Option<u64> {
        let pause_us = 2 * limits::COPY_PAUSE.as_micros() as u64;
        // The next session goes on with changes.
        let running = self.running.as_ref().filter(|running| !is_of_changes(running.copy.session()));
        let since_us = running?.part_us.1;
        let is_over = now_us > since_us.saturating_add(pause_us);
        if is_over { self.give_up(current) } else { None }
    }

    /// Whether what has changed since the last checkpoint on disk is known.
    pub(super) fn has_kept(&self) -> bool {
        self.kept.is_some() || self.session().is_some_and(is_of_changes)
    }

    /// The state of so many regions is on disk as it is now, before anything is executed.
    pub(super) fn begin_kept(&mut self, regions: u32, current: &CurrentCopy) {
        let copy = Arc::new(StateCopy::of_kept(regions));
        current.set(Some(copy.clone()));
        self.kept = Some(copy);
    }

    /// The copy could not be written to the disk: the next one there has to be of the whole state.
    pub(super) fn on_not_written(&mut self, current: &CurrentCopy) {
        if self.has_kept() {
            self.end(current);
        }
    }

    fn end(&mut self, current: &CurrentCopy) -> Option<Running> {
        current.set(None);
        self.kept = None;
        self.running.take()
    }
}

impl Ordering {
    fn from(session: u64, next: u32) -> Self {
        let (awaited_since_us, full_since_us, due_us) = (None, None, 0);
        let (region_id, count, rounds) = (0, limits::COPY_REGIONS, 0);
        Ordering { session, next, region_id, count, rounds, awaited_since_us, due_us, full_since_us }
    }
}

impl Running {
    fn new(copy: Arc<StateCopy>, part_us: (u64, u64), piece: usize, is_in_turn: bool) -> Self {
        let mut stream = PackWriter::new(piece);
        state::begin_parts(&mut stream);
        let (packed, early) = ((0, 0), BTreeMap::new());
        let (next, joined, region_id, end) = (0, 0, 0, None);
        Running { copy, next, part_us, stream, joined, packed, region_id, early, end, is_in_turn }
    }

    fn join(&mut self) {
        while let Some(part) = self.early.remove(&self.joined) {
            state::put_parts(&part, &mut self.stream);
            self.joined += 1;
            for (_, CopiedPart { objects, bytes, .. }) in &part {
                self.packed = (self.packed.0 + *objects as u64, self.packed.1 + bytes.len() as u64);
            }
        }
    }

    /// Objects that the last part may have.
    fn cut_objects(&self) -> usize {
        let (objects, bytes) = self.packed;
        let size = bytes.checked_div(objects).unwrap_or_default().max(1);
        ((limits::CUT_BYTES / size) as usize).clamp(1, limits::CUT_OBJECTS)
    }
}

/// A part of a copy was delivered, in a batch of this time, or that one is wanted. The work that it is here.
pub(super) fn delivered<S: Service, W: World>(
    (control, time_us): (Control, u64),
    execution: &Execution<S>,
    (copies, transfer): (&mut Copies, &mut StateTransfer),
    (order, env): (&mut OrderStage, &mut Environment<W>),
) -> Work<S::Request> {
    let Control::CopyPart { session, number, .. } = control else {
        transfer.want_checkpoint(env);
        return Work::Control(control);
    };
    if number == 0 && is_of_changes(session) && copies.kept.is_some() && !transfer.begin_changes(env) {
        // The disk has another state to write first. What has changed is packed for the next checkpoint.
        return Work::Control(control);
    }
    let (before, begun) = (copies.session(), copies.begun);
    let shape = (execution.locks(), env.world.scale().piece, env.settings.mode.verified);
    let times_us = (time_us, env.world.now_us());
    let copy = copies.on_delivered((session, number), shape, times_us, &execution.copy);
    if copies.begun != begun {
        before.into_iter().for_each(|session| transfer.abandon_copy(session));
        if !is_of_changes(session) {
            transfer.begin_copy(session, order, env);
        }
    } else if copies.session().is_none() {
        before.into_iter().for_each(|session| transfer.abandon_copy(session));
    }
    match copy {
        Some(copy) => Work::CopyPart(copy, control),
        None => Work::Control(control),
    }
}

#[cfg(test)]
mod tests;
