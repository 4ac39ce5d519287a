//! The request that a worker without tickets runs: one of the open entry, or a stored one. With ordinary locks and with
//! mixed batches alike, it keeps its position when it runs again, and forecasts are the worker's own.

use std::sync::Arc;

use crate::cell::Slot;
use crate::cx::{Retry, Run, Seed};
use crate::entry::{Entry, Origin, Source};
use crate::footprint::Footprint;
use crate::predict::{Predictor, lesson};
use crate::state::Again;

/// What a worker runs, and what it knows of the locks of requests. The open entry is its caller's.
pub(crate) struct CurrentRequest<R> {
    /// None while a request of the open entry runs.
    stored: Option<Again<R>>,
    /// Number of that request in the entry.
    number: usize,
    /// The locks that this worker's requests took; without common positions a lesson counts at once.
    predictor: Predictor,
    /// The footprint of what runs, if `is_predicted`; otherwise the request has it.
    forecast: Footprint,
    is_predicted: bool,
}

impl<R> CurrentRequest<R> {
    /// Nothing runs yet.
    pub fn new(predictor: Predictor) -> Self {
        CurrentRequest { stored: None, number: 0, predictor, forecast: Footprint::new(), is_predicted: false }
    }

    /// The request with this number in the open entry begins, at the position that `run` has.
    pub fn begin_open(&mut self, run: &mut Run, entry: &Entry<R>, number: usize, time_us: u64) {
        run.attempt = 0;
        run.time_us = time_us;
        run.seed = Seed::of_entry(entry.seed, entry.index, number);
        run.origin = Origin::Entry { index: entry.index, request: number as u32 };
        run.entry_index = entry.index;
        (self.stored, self.number) = (None, number);
    }

    /// A stored request begins, at the position that `run` has.
    pub fn begin_stored(&mut self, run: &mut Run, again: Again<R>) {
        again.fill(run);
        self.stored = Some(again);
    }

    /// The locks that the attempt begins with.
    pub fn forecast(&mut self, entry: Option<&Arc<Entry<R>>>, attempt: u32) -> Footprint {
        self.is_predicted = attempt == 0 && self.declared(entry).kind().is_some();
        if self.is_predicted {
            self.forecast = self.predictor.forecast(self.declared(entry));
        }
        *self.footprint(entry)
    }

    /// The attempt has every lock, whatever was forecast.
    pub fn drop_forecast(&mut self) {
        self.is_predicted = false;
    }

    /// The request is done: the locks that it took are learned.
    pub fn learn(&mut self, entry: Option<&Arc<Entry<R>>>, slots: &[Slot]) {
        if let Some(lesson) = lesson(self.declared(entry), slots) {
            self.predictor.learn(&lesson);
        }
    }

    /// The attempt that follows a miss.
    pub fn next_attempt(&self, entry: Option<&Arc<Entry<R>>>, run: &Run, missed: Retry) -> Option<Again<R>> {
        let mut footprint = *self.footprint(entry);
        footprint.add(missed.lock, missed.shared);
        self.source(entry).map(|source| Again {
            source,
            footprint,
            attempt: run.attempt + 1,
            time_us: run.time_us,
            seed: run.seed.get(),
            entry_index: run.entry_index,
        })
    }

    /// The request.
    pub fn request<'r>(&'r self, entry: Option<&'r Arc<Entry<R>>>) -> &'r R {
        match (&self.stored, entry) {
            (Some(again), _) => again.source.request(),
            (None, Some(entry)) => &entry.rows[self.number].request,
            // panics: a reference has to be returned; the worker catches it and is replaced
            (None, None) => unreachable!("a request runs"),
        }
    }

    /// The locks forecast for this attempt.
    pub fn footprint<'r>(&'r self, entry: Option<&'r Arc<Entry<R>>>) -> &'r Footprint {
        match &self.stored {
            _ if self.is_predicted => &self.forecast,
            Some(again) => &again.footprint,
            None => self.declared(entry),
        }
    }

    fn declared<'r>(&'r self, entry: Option<&'r Arc<Entry<R>>>) -> &'r Footprint {
        match (&self.stored, entry) {
            (Some(again), _) => again.source.declared(),
            (None, Some(entry)) => &entry.rows[self.number].footprint,
            // panics: a reference has to be returned; the worker catches it and is replaced
            (None, None) => unreachable!("a request runs"),
        }
    }

    fn source(&self, entry: Option<&Arc<Entry<R>>>) -> Option<Source<R>> {
        let open = || entry.map(|entry| Source::Entry(Arc::clone(entry), self.number as u32));
        self.stored.as_ref().map(|again| again.source.clone()).or_else(open)
    }
}
