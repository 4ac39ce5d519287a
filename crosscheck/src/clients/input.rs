//! Decode: what a client sent becomes requests. With cross-checking, twice, from two copies that never meet.
//!
//! The bytes of a client have no checksum: nothing could tell later that a request is not what its client sent, and all replicas
//! would agree on a wrong one. So the kernel gives them twice, each copy is decoded by itself, and a request is ordered only if
//! both come to the same, checksum included. A bit that changes in one copy, or a mistake in one decoding, shows here.

use std::io::{self, Read};

use mio::net::TcpStream;

use crate::limits;
use crate::service::{Action, Progress, Protocol};

/// What has come from a client and is not done with.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// The same bytes, as the kernel gave them a second time; unused without cross-checking.
    again: Vec<u8>,
    /// Bytes of both that are done with.
    consumed: usize,
}

/// What the input comes to, and how much of it; a request with its checksum.
#[derive(PartialEq, Eq)]
pub(super) enum Step {
    NeedMore(usize),
    Nothing(usize),
    Order(usize, order::Request),
    Reply(usize, Vec<u8>),
    Close(usize, Vec<u8>),
}

impl Step {
    fn of(progress: Progress) -> Step {
        match progress {
            Progress::NeedMore(wanted) => Step::NeedMore(wanted),
            Progress::Done { used, action: Action::Nothing } => Step::Nothing(used),
            Progress::Done { used, action: Action::Reply(reply) } => Step::Reply(used, reply),
            Progress::Done { used, action: Action::Close(reply) } => Step::Close(used, reply),
            Progress::Done { used, action: Action::Order(request) } => {
                Step::Order(used, crate::ordered::summed(request.into()))
            }
        }
    }
}

impl Input {
    #[cfg(test)]
    pub fn of(bytes: &[u8]) -> Self {
        Input { bytes: bytes.to_vec(), again: bytes.to_vec(), consumed: 0 }
    }

    /// Bytes that are not done with.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.consumed
    }

    /// So many bytes are done with.
    pub fn consume(&mut self, used: usize) {
        self.consumed += used;
    }

    /// The most that one [`Input::fill`] takes through `scratch`: each of two copies has half of it.
    pub fn most(scratch: &[u8], twice: bool) -> usize {
        scratch.len() >> u32::from(twice)
    }

    /// Reads what has come; 0 when the client has sent its last byte.
    ///
    /// # Errors
    /// As reading the socket; `WouldBlock` when nothing has come.
    pub fn fill(&mut self, stream: &mut TcpStream, scratch: &mut [u8], twice: bool) -> io::Result<usize> {
        for bytes in [&mut self.bytes, &mut self.again] {
            bytes.drain(..self.consumed.min(bytes.len()));
            if bytes.is_empty() && bytes.capacity() > limits::READ_PER_TURN {
                *bytes = Vec::new();
            }
        }
        self.consumed = 0;
        if !twice {
            let read = stream.read(scratch)?;
            self.bytes.extend_from_slice(&scratch[..read]);
            return Ok(read);
        }
        let (first, second) = scratch.split_at_mut(scratch.len() / 2);
        let peeked = stream.peek(first)?;
        let read = stream.read(&mut second[..peeked])?;
        self.again.extend_from_slice(&first[..read]);
        self.bytes.extend_from_slice(&second[..read]);
        Ok(read)
    }

    /// The next step; with `twice`, only if both copies come to it. `None` when they do not, and not at a second try either.
    pub fn next<P: Protocol>(&self, protocol: &mut P, twice: bool) -> Option<Step> {
        let bytes = &self.bytes[self.consumed..];
        if !twice {
            return Some(Step::of(protocol.next(bytes)));
        }
        let again = self.again.get(self.consumed..)?;
        let mut last = None;
        for _ in 0..2 {
            // Each decodes with a copy of its own: one that was not made as it should be is not the other's.
            let (mut its, mut other) = (protocol.clone(), protocol.clone());
            let first = Step::of(other.next(again));
            let second = Step::of(its.next(bytes));
            if its == other && first == second {
                *protocol = its;
                return Some(second);
            }
            // What is answered here and now may differ from one time to the next (statistics), but not that it is.
            let are_answers = matches!((&first, &second), (Step::Reply(..), Step::Reply(..)));
            last = (its == other && are_answers && bytes == again).then_some((its, second));
        }
        let (its, step) = last?;
        *protocol = its;
        Some(step)
    }
}
