//! Batches that a replica lacks: it asks the primary for them first, and others when the primary does not answer.
//!
//! Frames are lost with a connection, and a primary that dies has sent its last batch to some executors only. Any
//! executor that has a batch answers with the message that the primary sent.

use crate::engine::Blame;
use crate::frame::FrameKind;
use crate::limits;
use crate::primary::PrimaryEngine;
use crate::primary::message::BatchMessage;

/// The replicas that this one asks, in one view.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// The replica that is asked now.
    source: Option<u8>,
    /// Replicas that were asked for anything.
    asked: u16,
    /// Replicas that do not hold the batch that is due next.
    gone: u16,
    /// The last batch that the source was asked for.
    asked_to: u64,
    /// Tick at which it was asked first, or since when batches came.
    since: u64,
    /// Tick at which a batch that was due came last.
    moved: u64,
}

impl Asking {
    /// Nothing was asked in this view yet.
    pub fn begin(ticks: u64) -> Self {
        Asking { since: ticks, moved: ticks, ..Asking::default() }
    }

    /// Whether the replica was asked for a batch in this view.
    pub fn was_asked(&self, peer: u8) -> bool {
        self.asked >> peer & 1 == 1
    }

    /// Another batch is due than before.
    pub fn restart(&mut self) {
        (self.source, self.gone, self.asked_to) = (None, 0, 0);
    }

    /// The batch that was due has come.
    pub fn moved(&mut self, ticks: u64) {
        (self.gone, self.since, self.moved) = (0, ticks, ticks);
    }
}

impl PrimaryEngine {
    /// Asks for all batches that are known to exist and missing here, and were not asked for yet.
    pub(super) fn ask_missing(&mut self) {
        let Some(view) = self.view.filter(|_| !self.failed && self.wanted.is_none()) else { return };
        let end = self.last.min(self.delivered + self.scale.primary_window);
        if self.due > end {
            // The next time the primary is asked first again.
            (self.asking.source, self.asking.asked_to) = (None, 0);
            return;
        }
        let Some(source) =
            self.asking.source.filter(|source| self.is_up(*source)).or_else(|| self.source(None))
        else {
            return;
        };
        if self.asking.source != Some(source) {
            (self.asking.source, self.asking.asked_to) = (Some(source), 0);
        }
        for number in self.due.max(self.asking.asked_to + 1)..=end {
            if self.held.get(number).is_none() {
                if self.asking.asked_to < self.due {
                    self.asking.since = self.ticks;
                }
                let ask = BatchMessage::Ask { view: view.number, number };
                self.ready.send(source, FrameKind::Batch, ask.encode());
                self.asking.asked |= 1 << source;
                self.asking.asked_to = number;
            }
        }
    }

    /// Once per tick: asks another replica for what has not come.
    pub(super) fn ask_another(&mut self) {
        // Somebody does not hold it, and others are connected and say nothing.
        let is_stuck = self.asking.gone != 0 && self.asking.moved + limits::STATE_TICKS <= self.ticks;
        if self.asking.source.is_none() {
            self.ask_missing();
        } else if is_stuck {
            self.want_state();
        } else if self.asking.since + limits::ASK_TICKS <= self.ticks {
            self.turn_to_another();
        }
    }

    /// ASK-BATCH. A replica in another view is answered when it is in this one.
    pub(super) fn on_ask(&mut self, from: u8, view: u64, number: u64) {
        if self.view.is_none_or(|current| current.number != view) {
            return;
        }
        let held = self.held.get(number);
        // What was corrupted here is lost here.
        let intact = held.filter(|batch| batch.verify(self.config.replicas).is_ok());
        let answer = intact
            .map_or_else(|| BatchMessage::Gone { view, number }.encode(), |batch| batch.message.clone());
        let peer = &mut self.peers[usize::from(from)];
        peer.follows = true;
        // Requests are short and answers long, so a faulty peer could fill our memory with them.
        if peer.answered < limits::ANSWERED_BYTES {
            peer.answered += answer.len();
            self.ready.send(from, FrameKind::Batch, answer);
        }
    }

    /// GONE.
    pub(super) fn on_gone(&mut self, from: u8, view: u64, number: u64) -> Result<(), Blame> {
        if self.view.is_none_or(|current| current.number != view) {
            return Ok(());
        }
        if !self.asking.was_asked(from) {
            return Err(Blame::new(from, "it lacks a batch that it was not asked for"));
        }
        if number == self.due {
            self.asking.gone |= 1 << from;
            if self.sources() & !self.asking.gone == 0 {
                self.want_state();
            } else if self.asking.source == Some(from) {
                self.turn_to_another();
            }
        }
        Ok(())
    }

    fn turn_to_another(&mut self) {
        let next = self.source(self.asking.source);
        (self.asking.source, self.asking.asked_to, self.asking.since) = (next, 0, self.ticks);
        self.ask_missing();
    }

    /// Connected executors.
    fn sources(&self) -> u16 {
        self.view.map_or(0, |view| view.executors & self.peers_up)
    }

    /// One after the other: the primary first, then the others by slot, and again from the first.
    fn source(&self, after: Option<u8>) -> Option<u8> {
        let (view, sources) = (self.view?, self.sources());
        let others = (0..self.config.replicas).filter(|slot| *slot != view.primary);
        let is_source = |slot: &u8| sources >> *slot & 1 == 1;
        let order: Vec<u8> = std::iter::once(view.primary).chain(others).filter(is_source).collect();
        let place = after.and_then(|after| order.iter().position(|slot| *slot == after));
        let next = place.map_or(0, |place| place + 1);
        order.get(next).or(order.first()).copied()
    }
}
