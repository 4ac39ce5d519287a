//! A worker of lagged ordered turns: runs the positions that are assigned to it, and passes their turns.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use crate::chain::Writer;
use crate::cx::{Pass, Run, RunKind, Seed};
use crate::dispatch::{Dispatcher, Found, Part};
use crate::entry::Origin;
use crate::footprint::Footprint;
use crate::log::{FootprintOf, Worker};
use crate::predict::Lesson;
use crate::start::Starts;
use crate::state::{Again, DispatcherState, Due};
use crate::turn::{Drive, EntryEnd, Outcome, Scheduler, Step, Turn};
use crate::turn_state::{TurnState, Want};

/// A worker of ordered turns; with a single worker no tickets are needed, and the order is the same.
pub(crate) struct TurnWorker<R> {
    turns: Arc<TurnState>,
    run: Run,
    starts: Starts<R>,
    dispatcher: Dispatcher<R>,
    outcomes: Writer<Arc<Due<R>>>,
    footprint: FootprintOf<R>,
    want: Want,
    ended: bool,
}

enum Advance {
    Run,
    Idle,
    Closed,
}

impl<R: Any + Send + Sync> TurnWorker<R> {
    pub fn all(turns: &Arc<TurnState>, footprint: &FootprintOf<R>, parts: Vec<Part<R>>) -> Vec<Worker<R>> {
        let make = |(worker, (dispatcher, outcomes))| {
            Box::new(TurnWorker {
                turns: Arc::clone(turns),
                run: Run::new(Arc::clone(turns), worker),
                starts: Starts::new(),
                dispatcher,
                outcomes,
                footprint: Arc::clone(footprint),
                want: Want::Appended { seen: 0 },
                ended: false,
            }) as Worker<R>
        };
        parts.into_iter().enumerate().map(make).collect()
    }

    fn advance(&mut self) -> Advance {
        let (turns, me) = (&*self.turns, self.run.worker);
        turns.may_pause(me);
        if turns.is_aborted() || self.ended {
            self.ended = true;
            return Advance::Closed;
        }
        match self.dispatcher.find(turns, &mut self.run) {
            Found::Mine => {
                turns.publish(me, self.dispatcher.position);
                turns.wake_noticed();
                turns.begin(me, self.dispatcher.position);
                Advance::Run
            }
            Found::Wait(want) => {
                self.want = want;
                turns.publish(me, self.dispatcher.position);
                turns.wake();
                Advance::Idle
            }
            Found::Corrupted => {
                self.ended = true;
                turns.abort_corrupted();
                Advance::Closed
            }
            Found::End => {
                self.ended = true;
                turns.publish(me, self.dispatcher.position);
                turns.wake();
                Advance::Closed
            }
        }
    }

    /// Waits for turns the handler did not take, and passes all of them. `false` after an abort.
    fn pass_turns(&self) -> bool {
        if self.run.kind != RunKind::Ordered {
            return true;
        }
        let turns = &self.run.turns;
        for slot in self.run.slots.iter().filter(|slot| !slot.is_passed()) {
            let (lock, ticket, shared) = (slot.lock, slot.ticket, slot.shared);
            if !slot.is_owned() && !turns.is_turn(lock, ticket, shared) {
                let arrived = turns.wait(self.run.worker, Want::Turn { lock, ticket, shared });
                if !arrived {
                    return false;
                }
            }
            turns.may_pause(self.run.worker);
            slot.set_passed();
            turns.pass(lock, ticket, shared);
        }
        true
    }

    /// The effect of the outcome on later positions; usually none.
    fn outcome(&self, outcome: Outcome) -> Option<Due<R>> {
        let position = self.dispatcher.due_position();
        match outcome {
            Outcome::Done => {
                let lesson = match self.starts.forgets_lessons() {
                    true => Some(Lesson::FORGET_ALL),
                    false => self.dispatcher.lesson(&self.run.slots),
                };
                if lesson.is_none() && self.starts.is_empty() {
                    return None;
                }
                let (spawned, timers) = self.starts.take(&self.run, &*self.footprint);
                Some(Due { position, again: None, spawned, timers, lesson })
            }
            Outcome::Mispredicted(retry) if self.run.kind != RunKind::Alone => {
                let mut footprint = *self.dispatcher.footprint();
                footprint.add(retry.lock, retry.shared);
                let again = Again {
                    source: self.dispatcher.source(),
                    footprint,
                    attempt: self.run.attempt + 1,
                    time_us: self.run.time_us,
                    seed: self.run.seed.get(),
                    entry_index: self.run.entry_index,
                };
                let (spawned, timers) = (Vec::new(), Vec::new());
                Some(Due { position, again: Some(again), spawned, timers, lesson: None })
            }
            // A run that had every lock cannot have missed one; a handler that reports a miss then is not run for ever.
            Outcome::Mispredicted(_) | Outcome::Abandoned => None,
        }
    }
}

impl<R: Any + Send + Sync> Scheduler<R> for TurnWorker<R> {
    fn next(&mut self) -> Step<'_, R> {
        match self.advance() {
            Advance::Run => Step::Run(Turn::new(self)),
            Advance::Idle => Step::Idle,
            Advance::Closed => Step::Closed,
        }
    }

    fn wait(&mut self) {
        self.run.turns.wait(self.run.worker, self.want);
    }

    fn next_blocking(&mut self) -> Option<Turn<'_, R>> {
        loop {
            match self.advance() {
                Advance::Run => return Some(Turn::new(self)),
                Advance::Idle => self.wait(),
                Advance::Closed => return None,
            }
        }
    }
}

impl<R: Any + Send + Sync> Drive<R> for TurnWorker<R> {
    #[cfg(feature = "inject")]
    fn lose_count(&mut self) {
        self.dispatcher.position += 1;
        self.run.position += 1;
    }

    fn run(&self) -> &Run {
        &self.run
    }

    fn starts(&self) -> &Starts<R> {
        &self.starts
    }

    fn request(&self) -> &R {
        self.dispatcher.request()
    }

    fn footprint(&self) -> &Footprint {
        self.dispatcher.footprint()
    }

    fn resolve(&mut self, outcome: Outcome) -> Option<EntryEnd> {
        let passed = !self.run.turns.is_aborted() && self.pass_turns();
        if passed {
            // Before the watermark: a worker that sees the position resolved finds its outcome.
            if let Some(due) = self.outcome(outcome) {
                self.outcomes.push(Arc::new(due));
            }
            self.run.turns.may_pause(self.run.worker);
            self.dispatcher.step_over();
            self.run.turns.publish(self.run.worker, self.dispatcher.position);
            self.run.turns.wake();
        }
        self.starts.forget();
        self.run.turns.end(self.run.worker);
        None
    }

    fn state(&self) -> Option<DispatcherState<R>> {
        (self.run.kind == RunKind::Alone).then(|| self.dispatcher.state())
    }
}

impl<R> Drop for TurnWorker<R> {
    /// A worker that ends before its log would leave the others waiting for its turns for ever.
    fn drop(&mut self) {
        if !self.ended {
            self.run.turns.abort();
        }
    }
}

impl Run {
    pub fn new(turns: Arc<TurnState>, worker: usize) -> Self {
        Run {
            turns,
            worker,
            kind: RunKind::Ready,
            position: 0,
            attempt: 0,
            time_us: 0,
            seed: Seed::Is(0),
            origin: Origin::Entry { index: 0, request: 0 },
            entry_index: 0,
            slots: Vec::new(),
            released: Cell::new(false),
            rng_calls: Cell::new(0),
            pass: Cell::new(Pass::Only),
        }
    }
}
