//! Calls that leave the program's memory: the first run does and records them, the second is given the same results,
//! and what others would see happens once, after both runs agree.
//!
//! NSDI'15, section 5, "libsei internals": arguments and results are kept in a queue in E1 and compared in E2.

use crate::fail::Reason;
use crate::limits;
use crate::mutate::{Protection, kept};

/// What is called: the address of a constant name, or of the function that does a deferred call.
pub type Function = usize;

/// How a call is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory that the first run allocates; the second is given the same.
    Allocate,
    /// Memory that is freed after both runs agree.
    Free,
    /// A call whose result the second run is given.
    Recorded,
    /// The same for a call that takes something from outside, such as bytes of a socket: a handler that has made one
    /// cannot begin again.
    Taken,
    /// A call that is made after both runs agree.
    Deferred,
    /// An addition to a shared counter, made after both runs agree.
    Add,
    /// A connection's context that is freed after both runs agree.
    FreeContext,
}

/// One call of the first run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// How it is treated.
    pub kind: Kind,
    /// What is called.
    pub function: Function,
    /// Its arguments, as the shim passes them.
    pub arguments: [u64; 3],
    /// What it returned.
    pub result: u64,
    /// `errno` behind it.
    pub errno: i32,
    /// Where its bytes are: those that it wrote, or those that it is to send.
    bytes: (usize, usize),
    /// CRC-32C of the bytes that it is to send, by the first run.
    crc: u32,
}

/// The calls of one handler.
#[derive(Default)]
pub struct Calls {
    calls: Vec<RecordedCall>,
    /// How many the second run has made.
    replayed: usize,
    /// Bytes of recorded calls (first run), then of deferred ones (second run).
    bytes: Vec<u8>,
    /// Frequent calls in short: locks, and words that are read without one.
    words: Vec<u64>,
    words_replayed: usize,
}

impl Calls {
    /// The first run makes this call.
    ///
    /// # Errors
    /// It made too many.
    pub fn first(
        &mut self,
        kind: Kind,
        function: Function,
        arguments: [u64; 3],
    ) -> Result<&mut RecordedCall, Reason> {
        if self.calls.len() >= limits::CALLS {
            return Err(Reason::CallsFull);
        }
        self.calls.push(RecordedCall {
            kind,
            function,
            arguments,
            result: 0,
            errno: 0,
            bytes: (0, 0),
            crc: 0,
        });
        self.calls.last_mut().ok_or(Reason::CallsFull)
    }

    /// The second run makes this call.
    ///
    /// # Errors
    /// The first run made another one, or none, at this place.
    pub fn second(
        &mut self,
        kind: Kind,
        function: Function,
        arguments: [u64; 3],
    ) -> Result<&RecordedCall, Reason> {
        let call = self.calls.get(self.replayed).ok_or(Reason::CallsDiffer)?;
        if (call.kind, call.function, call.arguments) != (kind, function, arguments) {
            return Err(Reason::CallsDiffer);
        }
        self.replayed += 1;
        Ok(call)
    }

    /// The first run does something that one word describes.
    ///
    /// # Errors
    /// It did too much.
    #[inline]
    pub fn first_word(&mut self, word: u64) -> Result<(), Reason> {
        if self.words.len() >= limits::CALLS {
            return Err(Reason::CallsFull);
        }
        self.words.push(word);
        Ok(())
    }

    /// What the first run did at this place.
    ///
    /// # Errors
    /// It did nothing.
    #[inline]
    pub fn next_word(&mut self) -> Result<u64, Reason> {
        let word = self.words.get(self.words_replayed).ok_or(Reason::CallsDiffer)?;
        self.words_replayed += 1;
        Ok(*word)
    }

    /// Keeps the bytes that the latest recorded call of the first run wrote.
    ///
    /// # Errors
    /// They are too many.
    pub fn keep_bytes(&mut self, written: &[u8]) -> Result<(), Reason> {
        if written.len() > limits::CALL_BYTES - self.bytes.len() {
            return Err(Reason::CallsFull);
        }
        let call = self.calls.last_mut().ok_or(Reason::CallsDiffer)?;
        // A call may write several pieces: its result, and the address of its sender.
        if call.bytes.1 == 0 {
            call.bytes.0 = self.bytes.len();
        }
        call.bytes.1 += written.len();
        self.bytes.extend_from_slice(written);
        Ok(())
    }

    /// The bytes of the call that the second run has just made, from `skip` on.
    ///
    /// # Errors
    /// The first run kept fewer.
    pub fn kept_bytes(&self, skip: usize, length: usize) -> Result<&[u8], Reason> {
        let call =
            self.replayed.checked_sub(1).and_then(|at| self.calls.get(at)).ok_or(Reason::CallsDiffer)?;
        if skip + length > call.bytes.1 {
            return Err(Reason::CallsDiffer);
        }
        let begin = call.bytes.0 + skip;
        self.bytes.get(begin..begin + length).ok_or(Reason::CallsDiffer)
    }

    /// The first run defers a call that sends these bytes: their CRC is kept.
    ///
    /// # Errors
    /// There are too many calls.
    pub fn defer_first(
        &mut self,
        function: Function,
        arguments: [u64; 3],
        sent: &[u8],
    ) -> Result<(), Reason> {
        let crc = crc32c::crc32c(sent);
        self.first(Kind::Deferred, function, arguments)?.crc = crc;
        Ok(())
    }

    /// The second run defers it: its bytes are kept, to be sent if their CRC is that of the first run.
    ///
    /// # Errors
    /// The runs differ, or the bytes are too many.
    pub fn defer_second(
        &mut self,
        function: Function,
        arguments: [u64; 3],
        sent: &[u8],
    ) -> Result<(), Reason> {
        self.second(Kind::Deferred, function, arguments)?;
        if sent.len() > limits::CALL_BYTES - self.bytes.len() {
            return Err(Reason::CallsFull);
        }
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(sent);
        let call = self.calls.get_mut(self.replayed - 1).ok_or(Reason::CallsDiffer)?;
        call.bytes = (begin, sent.len());
        if crc32c::crc32c(sent) != call.crc && kept(Protection::DeferredSend) {
            return Err(Reason::SentBytesDiffer);
        }
        Ok(())
    }

    /// V: the second run made as many calls as the first.
    ///
    /// # Errors
    /// It made fewer.
    pub fn are_all_replayed(&self) -> Result<(), Reason> {
        let all = self.replayed == self.calls.len() && self.words_replayed == self.words.len();
        if all { Ok(()) } else { Err(Reason::CallsMissing) }
    }

    /// The calls of this kind with the bytes that they send, which are checked once more.
    ///
    /// # Errors
    /// Bytes that are not those of the first run.
    pub fn deferred(&self) -> impl Iterator<Item = Result<(&RecordedCall, &[u8]), Reason>> {
        self.calls.iter().filter(|call| call.kind == Kind::Deferred).map(|call| {
            let sent =
                self.bytes.get(call.bytes.0..call.bytes.0 + call.bytes.1).ok_or(Reason::SentBytesDiffer)?;
            if crc32c::crc32c(sent) != call.crc && kept(Protection::DeferredSend) {
                return Err(Reason::SentBytesDiffer);
            }
            Ok((call, sent))
        })
    }

    /// The calls of this kind, in order.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &RecordedCall> {
        self.calls.iter().filter(move |call| call.kind == kind)
    }

    /// Whether this run has deferred a call so far with this key: its first argument, or, for keys from 2^63 on, its
    /// third one, too.
    pub fn waits(&self, key: u64, is_second_run: bool) -> bool {
        let so_far = if is_second_run { self.replayed } else { self.calls.len() };
        let places = if key >> 63 == 1 { &[0, 2][..] } else { &[0] };
        self.calls[..so_far]
            .iter()
            .any(|call| call.kind == Kind::Deferred && places.iter().any(|&at| call.arguments[at] == key))
    }

    /// Whether there was any call.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether there is nothing to forget.
    pub fn has_none(&self) -> bool {
        self.calls.is_empty() && self.words.is_empty()
    }

    /// Forgets all calls; much memory is given back.
    pub fn clear(&mut self) {
        self.replayed = 0;
        self.words_replayed = 0;
        self.words.clear();
        self.calls.clear();
        self.bytes.clear();
        if self.bytes.capacity() > limits::KEPT_BYTES {
            self.bytes = Vec::new();
        }
        if self.words.capacity() > limits::KEPT_WORDS {
            self.words = Vec::new();
        }
        if self.calls.capacity() > limits::KEPT_CALLS {
            self.calls = Vec::new();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_second_run_is_given_what_the_first_one_got() {
        let mut calls = Calls::default();
        let call = calls.first(Kind::Recorded, 1, [4, 100, 0]).unwrap();
        (call.result, call.errno) = (5, 11);
        calls.keep_bytes(b"hel").unwrap();
        calls.keep_bytes(b"lo").unwrap();
        let call = calls.second(Kind::Recorded, 1, [4, 100, 0]).unwrap();
        assert_eq!((call.result, call.errno), (5, 11));
        assert_eq!(calls.kept_bytes(0, 3).unwrap(), b"hel");
        assert_eq!(calls.kept_bytes(3, 2).unwrap(), b"lo");
        assert_eq!(calls.kept_bytes(3, 3), Err(Reason::CallsDiffer));
        calls.are_all_replayed().unwrap();
    }

    #[test]
    fn another_call_an_extra_and_a_missing_one_are_seen() {
        let mut calls = Calls::default();
        calls.first(Kind::Free, 1, [4, 0, 0]).unwrap();
        assert_eq!(calls.are_all_replayed(), Err(Reason::CallsMissing));
        for (kind, function, argument) in [(Kind::Allocate, 1, 4), (Kind::Free, 2, 4), (Kind::Free, 1, 5)] {
            assert_eq!(calls.second(kind, function, [argument, 0, 0]).unwrap_err(), Reason::CallsDiffer);
        }
        calls.second(Kind::Free, 1, [4, 0, 0]).unwrap();
        assert_eq!(calls.second(Kind::Free, 1, [4, 0, 0]).unwrap_err(), Reason::CallsDiffer);
    }

    #[test]
    fn deferred_bytes_are_the_second_runs_and_must_be_the_firsts() {
        let mut calls = Calls::default();
        calls.defer_first(1, [3, 0, 0], b"abc").unwrap();
        calls.defer_second(1, [3, 0, 0], b"abc").unwrap();
        assert_eq!(calls.deferred().next().unwrap().unwrap().1, b"abc");
        calls.bytes[0] ^= 1;
        assert_eq!(calls.deferred().next().unwrap().unwrap_err(), Reason::SentBytesDiffer);

        let mut calls = Calls::default();
        calls.defer_first(1, [3, 0, 0], b"abc").unwrap();
        assert_eq!(calls.defer_second(1, [3, 0, 0], b"abd"), Err(Reason::SentBytesDiffer));
    }
}
