//! Decode: what a client sent becomes requests. With cross-checking, twice, from two copies that never meet.
//!
//! The bytes of a client have no checksum: nothing could tell later that a request is not what its client
//! sent, and all replicas would agree on a wrong one. So the kernel gives them twice, each copy is decoded by
//! itself, and a request is ordered only if both come to the same, checksum included. A bit that changes in
//! one copy, in what its protocol remembers, or a mistake in one decoding, shows here.

use std::io::{self, Read};

use mio::net::TcpStream;

use crate::limits;
use crate::service::{Action, Progress, Protocol};

/// Bytes from a client, how many of them are done with, and what the protocol remembers of those.
struct InputBuffer<P> {
    bytes: Vec<u8>,
    done: usize,
    protocol: P,
}

impl<P> InputBuffer<P> {
    fn new(protocol: P) -> Self {
        InputBuffer { bytes: Vec::new(), done: 0, protocol }
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.done..).unwrap_or_default()
    }

    /// What is done with is forgotten.
    fn forget(&mut self) {
        self.bytes.drain(..self.done.min(self.bytes.len()));
        self.done = 0;
        if self.bytes.is_empty() && self.bytes.capacity() > limits::KEPT_INPUT {
            self.bytes = Vec::new();
        }
    }

    /// The step that was made of the rest is taken; none if it consumes what is not there, or nothing at all.
    fn take(&mut self, step: &InputStep) -> Option<()> {
        let used = step.used()?;
        (used <= self.rest().len()).then(|| self.done += used)
    }
}

/// What has come from a client and is not done with. The copies have nothing in common, not even how far they
/// are done with.
pub(super) struct Input<P> {
    heard: InputBuffer<P>,
    /// The same bytes, as the kernel gave them a second time; unused without cross-checking.
    again: InputBuffer<P>,
}

/// What the input comes to, and how much of it; a request with its checksum.
#[derive(PartialEq, Eq)]
pub(super) enum InputStep {
    NeedMore(usize),
    Nothing(usize),
    Order(usize, order::Request),
    Reply(usize, Vec<u8>),
    Close(usize, Vec<u8>),
}

impl InputStep {
    /// Bytes that it consumes. Only waiting for more consumes none; of any other step that is corrupted.
    fn used(&self) -> Option<usize> {
        match *self {
            InputStep::NeedMore(_) => Some(0),
            InputStep::Nothing(used)
            | InputStep::Order(used, _)
            | InputStep::Reply(used, _)
            | InputStep::Close(used, _) => Some(used).filter(|used| *used > 0),
        }
    }

    fn of(progress: Progress) -> InputStep {
        match progress {
            Progress::NeedMore(wanted) => InputStep::NeedMore(wanted),
            Progress::Done { used, action: Action::Nothing } => InputStep::Nothing(used),
            Progress::Done { used, action: Action::Reply(reply) } => InputStep::Reply(used, reply),
            Progress::Done { used, action: Action::Close(reply) } => InputStep::Close(used, reply),
            Progress::Done { used, action: Action::Order(request) } => {
                InputStep::Order(used, crate::ordered::summed(request.into()))
            }
        }
    }
}

impl<P: Protocol> Input<P> {
    pub fn new(protocol: P) -> Self {
        Input { heard: InputBuffer::new(protocol.clone()), again: InputBuffer::new(protocol) }
    }

    #[cfg(test)]
    pub fn of(bytes: &[u8], protocol: P) -> Self {
        let mut input = Input::new(protocol);
        (input.heard.bytes, input.again.bytes) = (bytes.to_vec(), bytes.to_vec());
        input
    }

    /// Bytes that are not done with.
    pub fn len(&self) -> usize {
        self.heard.rest().len().max(self.again.rest().len())
    }

    /// The most that one [`Input::fill`] takes through `scratch`: each of two copies has half of it.
    pub fn most(scratch: &[u8], twice: bool) -> usize {
        scratch.len() >> u32::from(twice)
    }

    /// Memory that the copies take.
    pub fn capacity(&self) -> usize {
        self.heard.bytes.capacity() + self.again.bytes.capacity()
    }

    /// Makes budget for `length` bytes in each copy, and for no more.
    pub fn reserve(&mut self, length: usize, twice: bool) {
        let copies = [Some(&mut self.heard), Some(&mut self.again).filter(|_| twice)];
        for heard in copies.into_iter().flatten() {
            heard.forget();
            heard.bytes.reserve_exact(length.saturating_sub(heard.bytes.len()));
        }
    }

    /// Gives back the memory that a long request took.
    pub fn release(&mut self) {
        for heard in [&mut self.heard, &mut self.again] {
            heard.forget();
            heard.bytes.shrink_to(limits::KEPT_INPUT);
        }
    }

    /// Gives back what is done with, if that is nearly everything and there is no long request: a client that
    /// is silent from now on keeps little memory.
    pub fn tidy(&mut self, is_long: bool) {
        if self.len() == 0 {
            self.heard.forget();
            self.again.forget();
        } else if !is_long && self.len() <= limits::FREE_INPUT && self.capacity() > 2 * limits::KEPT_INPUT {
            self.release();
        }
    }

    /// How many bytes its protocol expects the reply to the last ordered request to have.
    pub fn reply_bytes(&self) -> usize {
        self.heard.protocol.reply_bytes()
    }

    /// Reads at most `most` bytes of what has come; 0 when the client has sent its last byte.
    ///
    /// # Errors
    /// As reading the socket; `WouldBlock` when nothing has come.
    pub fn fill(
        &mut self,
        stream: &mut TcpStream,
        scratch: &mut [u8],
        most: usize,
        twice: bool,
    ) -> io::Result<usize> {
        self.heard.forget();
        self.again.forget();
        if !twice {
            let read = stream.read(&mut scratch[..most])?;
            self.heard.bytes.extend_from_slice(&scratch[..read]);
            return Ok(read);
        }
        let (first, second) = scratch.split_at_mut(scratch.len() / 2);
        let peeked = stream.peek(&mut first[..most])?;
        // The kernel gives all that it has shown. Each copy goes by its own count: a wrong one would cut both alike.
        let read = stream.read(&mut second[..peeked])?;
        self.again.bytes.extend_from_slice(&first[..peeked]);
        self.heard.bytes.extend_from_slice(&second[..read]);
        Ok(read)
    }

    /// Takes the next step; with `twice`, only if both copies come to it. `None` when they do not, and not at
    /// a second try either; or when the step consumes what is not there.
    pub fn next(&mut self, twice: bool) -> Option<InputStep> {
        if !twice {
            let InputBuffer { bytes, done, protocol } = &mut self.heard;
            let step = InputStep::of(protocol.next(bytes.get(*done..).unwrap_or_default()));
            self.heard.take(&step)?;
            return Some(step);
        }
        let (bytes, again) = (self.heard.rest(), self.again.rest());
        let mut agreed = None;
        for _ in 0..2 {
            let (mut its, mut other) = (self.heard.protocol.clone(), self.again.protocol.clone());
            let second = InputStep::of(other.next(again));
            let first = InputStep::of(its.next(bytes));
            let is_same = its == other && bytes.len() == again.len();
            if is_same && first == second {
                agreed = Some((first, its, second, other));
                break;
            }
            // What is answered here and now may differ from one time to the next (statistics), but not that it is.
            let are_answers = matches!((&first, &second), (InputStep::Reply(..), InputStep::Reply(..)));
            agreed = (is_same && are_answers && bytes == again).then_some((first, its, second, other));
        }
        let (step, its, second, other) = agreed?;
        self.heard.take(&step)?;
        self.again.take(&second)?;
        (self.heard.protocol, self.again.protocol) = (its, other);
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::tests::Lines;

    #[test]
    fn both_copies_are_taken_step_by_step() {
        let mut input = Input::of(b"one\ntwo\nth", Lines);
        for left in [6, 2] {
            assert!(matches!(input.next(true), Some(InputStep::Order(4, _))));
            assert_eq!(input.len(), left);
        }
        assert!(matches!(input.next(true), Some(InputStep::NeedMore(_))));
        assert_eq!(input.len(), 2);
    }

    /// As a struck processor leaves it: one copy is thought to be further, or less far, than it is.
    #[test]
    fn a_copy_that_lost_its_place_decides_nothing() {
        let strikes: [fn(&mut Input<Lines>); 5] = [
            |input| input.heard.done ^= 8,
            |input| input.again.done ^= 8,
            |input| input.again.done ^= 1 << 40,
            |input| input.heard.bytes.truncate(8),
            // Both would take the same step here, and answer what comes behind it once too often.
            |input| _ = input.again.bytes.drain(..4),
        ];
        for (number, strike) in strikes.into_iter().enumerate() {
            let mut input = Input::of(b"one\none\none\none\n", Lines);
            assert!(input.next(true).is_some());
            strike(&mut input);
            assert!(input.next(true).is_none(), "{number}");
            assert!(input.len() > 0, "{number}: it is noticed without waiting for more");
        }
    }
}
