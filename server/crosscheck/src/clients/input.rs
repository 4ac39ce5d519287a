//! Decode: a client's bytes become requests. With cross-checking, each request is judged twice, from two independent
//! copies.
//!
//! The bytes of a client have no checksum: no later check could detect that a request is not the one that its client
//! sent, and all replicas would agree on a wrong one. So they are read from the kernel twice; with TLS, copied twice
//! from where they were decrypted, which the text in [`super::tls`] says more of. A request is decoded from one copy,
//! and ordered if the other copy has exactly the bytes by which a client asks for it
//! ([`Protocol::rendered`]). Where the protocol does not find that, a second decoding of the other copy must have the
//! same result, including the checksum. A bit flip in one copy or in the state of its protocol, or an error in one
//! decoding, is detected here; an error that repeats itself in both decodings is not.

use std::io;

use super::stream::ClientStream;
use crate::limits;
use crate::service::{Action, Progress, Protocol};

/// Bytes from a client, how many of them are consumed, and the protocol's state after those.
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

    /// Drops the consumed bytes.
    fn forget(&mut self) {
        self.bytes.drain(..self.done.min(self.bytes.len()));
        self.done = 0;
        if self.bytes.is_empty() && self.bytes.capacity() > limits::KEPT_INPUT {
            self.bytes = Vec::new();
        }
    }

    /// Applies a step over the rest; none if it consumes more bytes than there are, or none at all.
    fn take(&mut self, step: &InputStep) -> Option<()> {
        let used = step.used()?;
        (used <= self.rest().len()).then(|| self.done += used)
    }
}

/// The bytes from a client that are not consumed. The copies share nothing, not even the number of consumed bytes.
pub(super) struct Input<P> {
    received: InputBuffer<P>,
    /// The same bytes, read from the kernel a second time; unused without cross-checking.
    again: InputBuffer<P>,
}

/// The action of a step, with the number of consumed bytes; a request with its checksum.
#[derive(PartialEq, Eq)]
pub(super) enum InputStep {
    NeedMore(usize),
    Nothing(usize),
    Order(usize, order::Request),
    Reply(usize, Vec<u8>),
    Close(usize, Vec<u8>),
    StartTls(usize, Vec<u8>),
}

impl InputStep {
    /// Bytes that it consumes. Only a step that waits for more consumes none; any other step that does is corrupted.
    fn used(&self) -> Option<usize> {
        match *self {
            InputStep::NeedMore(_) => Some(0),
            InputStep::Nothing(used)
            | InputStep::Order(used, _)
            | InputStep::Reply(used, _)
            | InputStep::Close(used, _)
            | InputStep::StartTls(used, _) => Some(used).filter(|used| *used > 0),
        }
    }

    fn of(progress: Progress) -> InputStep {
        match progress {
            Progress::NeedMore(wanted) => InputStep::NeedMore(wanted),
            Progress::Done { used, action: Action::Nothing } => InputStep::Nothing(used),
            Progress::Done { used, action: Action::Reply(reply) } => InputStep::Reply(used, reply),
            Progress::Done { used, action: Action::Close(reply) } => InputStep::Close(used, reply),
            Progress::Done { used, action: Action::StartTls(reply) } => InputStep::StartTls(used, reply),
            Progress::Done { used, action: Action::Order(request) } => {
                InputStep::Order(used, crate::ordered::summed(request.into()))
            }
        }
    }
}

impl<P: Protocol> Input<P> {
    pub fn new(protocol: P) -> Self {
        Input { received: InputBuffer::new(protocol.clone()), again: InputBuffer::new(protocol) }
    }

    #[cfg(test)]
    pub fn of(bytes: &[u8], protocol: P) -> Self {
        let mut input = Input::new(protocol);
        (input.received.bytes, input.again.bytes) = (bytes.to_vec(), bytes.to_vec());
        input
    }

    /// Injects a fault into one of the two copies.
    #[cfg(test)]
    pub fn corrupt(&mut self, copy: usize, bit: usize) {
        let bytes = if copy == 0 { &mut self.received.bytes } else { &mut self.again.bytes };
        bytes[bit / 8] ^= 1 << (bit % 8);
    }

    /// The number of bytes that are not consumed.
    pub fn len(&self) -> usize {
        self.received.rest().len().max(self.again.rest().len())
    }

    /// The most that one [`Input::fill`] takes through `scratch`: each of two copies has half of it.
    pub fn most(scratch: &[u8], twice: bool) -> usize {
        scratch.len() >> u32::from(twice)
    }

    /// Memory that the copies take.
    pub fn capacity(&self) -> usize {
        self.received.bytes.capacity() + self.again.bytes.capacity()
    }

    /// Reserves memory for `length` bytes in each copy, and no more.
    pub fn reserve(&mut self, length: usize, twice: bool) {
        let copies = [Some(&mut self.received), Some(&mut self.again).filter(|_| twice)];
        for received in copies.into_iter().flatten() {
            received.forget();
            received.bytes.reserve_exact(length.saturating_sub(received.bytes.len()));
        }
    }

    /// Frees the memory that a long request took.
    pub fn release(&mut self) {
        for received in [&mut self.received, &mut self.again] {
            received.forget();
            received.bytes.shrink_to(limits::KEPT_INPUT);
        }
    }

    /// Frees the consumed bytes, if they are nearly all and there is no long request: a client that is silent from now
    /// on keeps little memory.
    pub fn tidy(&mut self, is_long: bool) {
        if self.len() == 0 {
            self.received.forget();
            self.again.forget();
        } else if !is_long && self.len() <= limits::FREE_INPUT && self.capacity() > 2 * limits::KEPT_INPUT {
            self.release();
        }
    }

    /// Whether its client may ask for something already.
    pub fn is_let_in(&self) -> bool {
        self.received.protocol.is_let_in()
    }

    /// What its protocol orders at the end, if both copies ask for the same.
    pub fn closed(&mut self, twice: bool) -> Option<order::Request> {
        let farewell = self.received.protocol.closed();
        let is_certain = !twice || self.again.protocol.closed() == farewell;
        farewell.filter(|_| is_certain).map(|request| crate::ordered::summed(request.into()))
    }

    /// What its protocol sends without a request.
    pub fn unsolicited(&mut self, room: usize) -> Vec<u8> {
        self.received.protocol.unsolicited(room)
    }

    /// The number of bytes that its protocol expects in the reply to the last ordered request.
    pub fn reply_bytes(&self) -> usize {
        self.received.protocol.reply_bytes()
    }

    /// Reads at most `most` received bytes, and with TLS what was decrypted with them, which waits nowhere else; 0 when
    /// the client has sent its last byte.
    ///
    /// # Errors
    /// Those of reading the socket; `WouldBlock` when nothing has come.
    pub fn fill(
        &mut self,
        stream: &mut ClientStream,
        scratch: &mut [u8],
        most: usize,
        twice: bool,
    ) -> io::Result<usize> {
        self.received.forget();
        self.again.forget();
        let mut all = self.copy(stream, scratch, most, twice)?;
        while stream.unread() > 0 {
            all += self.copy(stream, scratch, Self::most(scratch, twice), twice)?;
        }
        Ok(all)
    }

    fn copy(
        &mut self,
        stream: &mut ClientStream,
        scratch: &mut [u8],
        most: usize,
        twice: bool,
    ) -> io::Result<usize> {
        if !twice {
            let read = stream.read(&mut scratch[..most])?;
            self.received.bytes.extend_from_slice(&scratch[..read]);
            return Ok(read);
        }
        let (first, second) = scratch.split_at_mut(scratch.len() / 2);
        let peeked = stream.peek(&mut first[..most])?;
        // The kernel returns all the bytes that it returned for the peek. Each copy uses its own count: a wrong count
        // for both would cut both alike.
        let read = stream.read(&mut second[..peeked])?;
        self.again.bytes.extend_from_slice(&first[..peeked]);
        self.received.bytes.extend_from_slice(&second[..read]);
        Ok(read)
    }

    /// Takes the next step; with `twice`, only if both copies agree on it. `None` when they do not, in two decodings of
    /// each, or when the step consumes more bytes than there are.
    pub fn next(&mut self, twice: bool) -> Option<InputStep> {
        if !twice {
            let InputBuffer { bytes, done, protocol } = &mut self.received;
            let step = InputStep::of(protocol.next(bytes.get(*done..).unwrap_or_default()));
            self.received.take(&step)?;
            return Some(step);
        }
        if self.received.rest().is_empty() && self.again.rest().is_empty() {
            return Some(InputStep::NeedMore(1));
        }
        let (bytes, again) = (self.received.rest(), self.again.rest());
        let mut agreed = None;
        for _ in 0..2 {
            let mut its = self.received.protocol.clone();
            let first = InputStep::of(its.next(bytes));
            if let Some(used) = self.rendered(&first, &its) {
                self.received.take(&first)?;
                self.again.done += used;
                self.received.protocol = its;
                return Some(first);
            }
            let mut other = self.again.protocol.clone();
            let second = InputStep::of(other.next(again));
            let is_same = its == other && bytes.len() == again.len();
            if is_same && first == second {
                agreed = Some((first, its, second, other));
                break;
            }
            // The text of an immediate answer may differ between two calls (statistics), but not the kind of step.
            let are_answers = matches!((&first, &second), (InputStep::Reply(..), InputStep::Reply(..)));
            agreed = (is_same && are_answers && bytes == again).then_some((first, its, second, other));
        }
        let (step, its, second, other) = agreed?;
        self.received.take(&step)?;
        self.again.take(&second)?;
        (self.received.protocol, self.again.protocol) = (its, other);
        Some(step)
    }

    /// The bytes of the second copy that ask for the request in `first`, by the second copy's own count; none unless
    /// they are as many as were decoded and the request leaves the protocol, `its` now, in the state in which it was.
    fn rendered(&self, first: &InputStep, its: &P) -> Option<usize> {
        let InputStep::Order(used, request) = first else { return None };
        let again = self.again.rest();
        if again.len() != self.received.rest().len() || *its != self.again.protocol {
            return None;
        }
        let fits = self.again.protocol.rendered(again, &request.bytes)?;
        // Each copy advances by a count of its own: a wrong one for both would cut both alike. The checksum was
        // computed once, so it is compared once: a wrong one would reach all replicas.
        let fits = std::hint::black_box(fits);
        (fits == *used && fits > 0 && std::hint::black_box(request).is_intact()).then_some(fits)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::clients::tests::Lines;

    /// [`Lines`] that can be rendered. `wrong` makes its decodings wrong. It counts decodings and renderings.
    #[derive(Clone, Debug, Default)]
    struct RenderedLines {
        wrong: bool,
        decoded: Arc<AtomicU32>,
        renderings: Arc<AtomicU32>,
    }

    impl PartialEq for RenderedLines {
        fn eq(&self, other: &Self) -> bool {
            self.wrong == other.wrong
        }
    }

    impl Protocol for RenderedLines {
        fn next(&mut self, input: &[u8]) -> Progress {
            self.decoded.fetch_add(1, Relaxed);
            match Lines.next(input) {
                Progress::Done { used, action: Action::Order(mut line) } if self.wrong => {
                    line[0] ^= 1;
                    Progress::Done { used, action: Action::Order(line) }
                }
                progress => progress,
            }
        }

        fn rendered(&self, input: &[u8], ordered: &[u8]) -> Option<usize> {
            self.renderings.fetch_add(1, Relaxed);
            let fits = input.strip_prefix(ordered)?.starts_with(b"\n");
            fits.then_some(ordered.len() + 1)
        }
    }

    #[test]
    fn a_request_that_is_rendered_is_decoded_once_and_taken_from_both_copies() {
        let protocol = RenderedLines::default();
        let (decoded, renderings) = (protocol.decoded.clone(), protocol.renderings.clone());
        let counts = || [&decoded, &renderings].map(|count| count.load(Relaxed));
        let mut input = Input::of(b"one\ntwo\nnow x\n", protocol);
        for (times, left) in [(1, 10), (2, 6)] {
            assert!(matches!(input.next(true), Some(InputStep::Order(4, _))));
            assert_eq!([input.received.rest().len(), input.again.rest().len()], [left; 2]);
            assert_eq!(counts(), [times, times]);
        }
        assert!(matches!(input.next(true), Some(InputStep::Reply(6, _))), "an answer is no request");
        assert_eq!(counts(), [4, 2]);
        assert!(matches!(input.next(true), Some(InputStep::NeedMore(1))));
    }

    #[test]
    fn a_decoding_that_is_wrong_in_one_copy_only_decides_nothing() {
        for copy in [0, 1] {
            let mut input = Input::of(b"one\n", RenderedLines::default());
            let state = if copy == 0 { &mut input.received.protocol } else { &mut input.again.protocol };
            state.wrong = true;
            assert!(input.next(true).is_none(), "copy {copy}");
            assert_eq!(input.len(), 4, "nothing is consumed");
        }
    }

    #[test]
    fn a_flipped_bit_in_either_copy_decides_nothing() {
        for bit in 0..4 * 8 {
            for copy in [0, 1] {
                let mut input = Input::of(b"one\n", RenderedLines::default());
                let bytes = if copy == 0 { &mut input.received.bytes } else { &mut input.again.bytes };
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(input.next(true).is_none(), "bit {bit} of copy {copy}");
            }
        }
    }

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

    /// The effects of a fault: the position in one copy is too large or too small.
    #[test]
    fn a_copy_that_lost_its_place_decides_nothing() {
        no_step_of_a_copy_that_lost_its_place(Lines);
        no_step_of_a_copy_that_lost_its_place(RenderedLines::default());
    }

    fn no_step_of_a_copy_that_lost_its_place<P: Protocol>(protocol: P) {
        let faults: [fn(&mut Input<P>); 5] = [
            |input| input.received.done ^= 8,
            |input| input.again.done ^= 8,
            |input| input.again.done ^= 1 << 40,
            |input| input.received.bytes.truncate(8),
            // Both copies would take the same step here, and answer the next request once too often.
            |input| _ = input.again.bytes.drain(..4),
        ];
        for (number, inject) in faults.into_iter().enumerate() {
            let mut input = Input::of(b"one\none\none\none\n", protocol.clone());
            assert!(input.next(true).is_some());
            inject(&mut input);
            assert!(input.next(true).is_none(), "{number}");
            assert!(input.len() > 0, "{number}: it is noticed without waiting for more");
        }
    }
}
