//! A dispatcher's state as bytes and back: equal states give equal bytes on all replicas, and no bytes make it panic.

use std::sync::Arc;

use wire::{Malformed, Put, Reader};

use crate::entry::{Internal, Origin, Source};
use crate::footprint::Footprint;
use crate::predict::Lesson;
use crate::state::{Again, DispatcherState, Due, Timers};

/// Layout of the bytes; another layout gets another number.
const VERSION: u8 = 2;
/// In place of a footprint's length: every lock.
const ALL: u8 = 0xff;

impl<R> DispatcherState<R> {
    /// Appends the state to `out`; `request` appends one request.
    pub fn encode(&self, out: &mut Vec<u8>, mut request: impl FnMut(&R, &mut Vec<u8>)) {
        out.put8(VERSION).put64(self.position).put64(self.entry_index).put64(self.time_us);
        out.put32(self.request_index);
        out.push(u8::from(self.draining) | u8::from(self.opened) << 1);
        put_len(out, self.due.len());
        for due in &self.due {
            out.put64(due.position).put8(u8::from(due.again.is_some()));
            if let Some(again) = &due.again {
                out.put32(again.attempt).put64(again.time_us).put64(again.entry_index);
                put_footprint(out, &again.footprint);
                let (origin, declared) = (again.source.origin(), again.source.declared());
                put_task(out, origin, again.seed, declared, again.source.request(), &mut request);
            }
            put_internals(out, &due.spawned, &mut request);
            put_timers(out, &due.timers, &mut request);
            out.push(u8::from(due.lesson.is_some()));
            due.lesson.iter().for_each(|lesson| put_lesson(out, lesson));
        }
        put_internals(out, &self.internal, &mut request);
        put_timers(out, &self.timers, &mut request);
        put_len(out, self.kinds());
        self.predictor.lessons().for_each(|lesson| put_lesson(out, lesson));
    }

    /// The state that `bytes` describe, all of them; `request` decodes one request.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not what [`DispatcherState::encode`] gives.
    pub fn decode(bytes: &[u8], mut request: impl FnMut(&[u8]) -> Option<R>) -> Result<Self, Malformed> {
        let mut input = Input { reader: Reader::new(bytes), request: &mut request };
        if input.reader.u8()? != VERSION {
            return Err(Malformed("unknown version"));
        }
        let mut state = DispatcherState::genesis();
        state.position = input.reader.u64()?;
        state.entry_index = input.reader.u64()?;
        state.time_us = input.reader.u64()?;
        state.request_index = input.reader.u32()?;
        let flags = input.reader.u8()?;
        if flags > 3 || state.position == 0 {
            return Err(Malformed("fields out of range"));
        }
        (state.draining, state.opened) = (flags & 1 == 1, flags & 2 == 2);
        for _ in 0..input.reader.u32()? {
            let due = input.due()?;
            let after = state.due.last().map_or(state.position, |last| last.position + 1);
            if due.position < after || due.position == u64::MAX {
                return Err(Malformed("outcomes out of order"));
            }
            state.due.push(Arc::new(due));
        }
        state.internal = input.internals()?;
        state.timers = input.timers()?;
        for _ in 0..input.reader.u32()? {
            if !state.predictor.restore(&input.lesson()?) {
                return Err(Malformed("lessons out of order"));
            }
        }
        input.reader.end()?;
        Ok(state)
    }
}

/// Numbers of pending requests stay far below 2^32: the lag and the memory bound them.
fn put_len(out: &mut Vec<u8>, len: usize) {
    out.put32(u32::try_from(len).unwrap_or(u32::MAX));
}

fn put_task<R>(
    out: &mut Vec<u8>,
    origin: Origin,
    seed: u64,
    footprint: &Footprint,
    request: &R,
    encode: &mut dyn FnMut(&R, &mut Vec<u8>),
) {
    let (kind, of, number) = match origin {
        Origin::Entry { index, request } => (0, index, request),
        Origin::Spawned { position, number } => (1, position, number),
        Origin::Timer { position, number } => (2, position, number),
    };
    out.put8(kind).put64(of).put32(number).put64(seed);
    put_footprint(out, footprint);
    out.put_sized(|out| encode(request, out));
}

fn put_footprint(out: &mut Vec<u8>, footprint: &Footprint) {
    out.push(if footprint.is_all() { ALL } else { footprint.len() as u8 });
    for (lock, shared) in footprint.iter() {
        out.put32(lock).put8(u8::from(shared));
    }
    out.push(u8::from(footprint.kind().is_some()));
    footprint.kind().into_iter().for_each(|kind| _ = out.put32(kind));
}

fn put_lesson(out: &mut Vec<u8>, lesson: &Lesson) {
    out.put32(lesson.kind);
    put_footprint(out, &lesson.locks);
}

fn put_internals<R>(out: &mut Vec<u8>, all: &[Arc<Internal<R>>], encode: &mut dyn FnMut(&R, &mut Vec<u8>)) {
    put_len(out, all.len());
    for one in all {
        put_task(out, one.origin, one.seed, &one.footprint, &one.request, encode);
    }
}

fn put_timers<R>(out: &mut Vec<u8>, all: &Timers<R>, encode: &mut dyn FnMut(&R, &mut Vec<u8>)) {
    put_len(out, all.len());
    for (deadline, one) in all {
        out.put64(*deadline);
        put_task(out, one.origin, one.seed, &one.footprint, &one.request, encode);
    }
}

/// The bytes that are left to decode.
struct Input<'i, R> {
    reader: Reader<'i>,
    request: &'i mut dyn FnMut(&[u8]) -> Option<R>,
}

impl<R> Input<'_, R> {
    fn due(&mut self) -> Result<Due<R>, Malformed> {
        let position = self.reader.u64()?;
        let again = if self.reader.flag()? { Some(self.again()?) } else { None };
        let (spawned, timers) = (self.internals()?, self.timers()?);
        let lesson = if self.reader.flag()? { Some(self.lesson()?) } else { None };
        Ok(Due { position, again, spawned, timers, lesson })
    }

    fn lesson(&mut self) -> Result<Lesson, Malformed> {
        let (kind, locks) = (self.reader.u32()?, self.footprint()?);
        match locks.kind() {
            None => Ok(Lesson { kind, locks }),
            Some(_) => Err(Malformed("fields out of range")),
        }
    }

    fn again(&mut self) -> Result<Again<R>, Malformed> {
        let (attempt, time_us, entry_index) = (self.reader.u32()?, self.reader.u64()?, self.reader.u64()?);
        let (footprint, task) = (self.footprint()?, self.task()?);
        let seed = task.seed;
        Ok(Again { source: Source::Internal(Arc::new(task)), footprint, attempt, time_us, seed, entry_index })
    }

    fn internals(&mut self) -> Result<Vec<Arc<Internal<R>>>, Malformed> {
        let len = self.reader.u32()?;
        // Collected one by one: the length comes from a peer, and the bytes behind it may be missing.
        let mut all = Vec::new();
        for _ in 0..len {
            all.push(Arc::new(self.task()?));
        }
        Ok(all)
    }

    fn timers(&mut self) -> Result<Timers<R>, Malformed> {
        let len = self.reader.u32()?;
        let mut all = Vec::new();
        for _ in 0..len {
            let (deadline, task) = (self.reader.u64()?, self.task()?);
            if !matches!(task.origin, Origin::Timer { .. }) {
                return Err(Malformed("a timer that is none"));
            }
            all.push((deadline, Arc::new(task)));
        }
        Ok(all)
    }

    fn task(&mut self) -> Result<Internal<R>, Malformed> {
        let (kind, of, number, seed) =
            (self.reader.u8()?, self.reader.u64()?, self.reader.u32()?, self.reader.u64()?);
        let origin = match kind {
            0 => Origin::Entry { index: of, request: number },
            1 => Origin::Spawned { position: of, number },
            2 => Origin::Timer { position: of, number },
            _ => return Err(Malformed("fields out of range")),
        };
        let footprint = self.footprint()?;
        let len = self.reader.length32()?;
        let request = (self.request)(self.reader.take(len)?).ok_or(Malformed("a request does not decode"))?;
        Ok(Internal { request, footprint, seed, origin })
    }

    fn footprint(&mut self) -> Result<Footprint, Malformed> {
        let len = self.reader.u8()?;
        let mut footprint = if len == ALL { Footprint::all() } else { Footprint::new() };
        for _ in 0..if len == ALL { 0 } else { len } {
            let (lock, shared) = (self.reader.u32()?, self.reader.u8()?);
            footprint.add(lock, shared != 0);
        }
        // One way to write a footprint only: states are compared by their bytes.
        if len != ALL && footprint.len() != len as usize {
            return Err(Malformed("a footprint is out of order"));
        }
        if self.reader.flag()? {
            footprint.predict(self.reader.u32()?);
        }
        Ok(footprint)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn sample() -> DispatcherState<u8> {
        let internal = |request, origin| {
            let mut footprint: Footprint = [3, 9].into_iter().collect();
            if request % 2 == 0 {
                footprint.predict(u32::from(request));
            }
            Arc::new(Internal { request, footprint, seed: 77, origin })
        };
        let timer = (900, internal(5, Origin::Timer { position: 4, number: 1 }));
        let again = Again {
            source: Source::Internal(internal(8, Origin::Entry { index: 12, request: 3 })),
            footprint: Footprint::all(),
            attempt: 2,
            time_us: 44,
            seed: 6,
            entry_index: 12,
        };
        let spawned = vec![internal(1, Origin::Spawned { position: 90, number: 0 })];
        let lesson = |kind| Lesson { kind, locks: [kind, 4].into_iter().collect() };
        let (timers, lessons) = (vec![timer.clone()], [5, 6, 7].map(lesson));
        let due = Due { position: 120, again: Some(again), spawned, timers, lesson: Some(lesson(5)) };
        let mut state = DispatcherState::genesis();
        (state.position, state.entry_index, state.request_index, state.opened) = (101, 13, 2, true);
        (state.draining, state.time_us) = (true, 555);
        state.due = vec![Arc::new(due)];
        state.internal = vec![internal(2, Origin::Spawned { position: 91, number: 7 })];
        state.timers = vec![timer];
        lessons.iter().for_each(|lesson| state.predictor.learn(lesson));
        state.predictor.learn(&Lesson { kind: 8, locks: Footprint::all() });
        state
    }

    fn encoded(state: &DispatcherState<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        state.encode(&mut out, |request, out| out.push(*request));
        out
    }

    fn decoded(bytes: &[u8]) -> Result<DispatcherState<u8>, Malformed> {
        DispatcherState::decode(bytes, |bytes| (bytes.len() == 1).then(|| bytes[0]))
    }

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_shorter_or_longer() {
        let bytes = encoded(&sample());
        let state = decoded(&bytes).unwrap();
        assert_eq!(encoded(&state), bytes);
        assert_eq!((state.position(), state.entry_index(), state.request_index()), (101, 13, 2));
        assert_eq!(state.kinds(), 4);
        for len in 0..bytes.len() {
            assert!(decoded(&bytes[..len]).is_err(), "{len} bytes are enough");
        }
        assert!(decoded(&[bytes.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn no_flip_of_a_byte_panics() {
        let bytes = encoded(&sample());
        for at in 0..bytes.len() {
            for flip in 1..=255 {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                if let Ok(state) = decoded(&damaged) {
                    let again = encoded(&state);
                    assert!(again.len() == bytes.len(), "byte {at} ^ {flip}");
                }
            }
        }
    }
}
