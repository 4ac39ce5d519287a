//! The authenticated stream between two replicas: a handshake that only holders of the group's key can take part in,
//! and records that no other process can have written.
//!
//! Noise (revision 34) with the pattern `NNpsk0`: both ends prove that they have the key, and fresh random numbers of
//! both make the keys of this connection, so that nothing of an earlier one can be replayed into it. The crate `snow`
//! implements it, with the ciphers of `ring`.
//!
//! ```text
//! record: length u16 | check u16 | number u64 | sealed bytes (length)
//! ```
//!
//! `check` is the low half of the CRC-32C of length and number: a corrupted length is detected at once, instead of
//! making the receiver wait for bytes that never come. Numbers grow from record to record; each is the nonce of its
//! record, and none is accepted twice. The two messages of the handshake are records with the number 0.
//!
//! The end that dialled proves its identity only with the first sealed record: its first message alone could be a
//! recorded one.

use std::collections::VecDeque;

use snow::resolvers::{CryptoResolver, DefaultResolver, RingResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState, StatelessTransportState};
use wire::SplitMix64;

use super::hello::{HELLO_BYTES, Hello};

/// Bytes before the sealed ones.
pub const HEADER: usize = 12;
/// Bytes that sealing adds.
const TAG: usize = 16;
/// Most bytes that one record carries.
const PLAIN: usize = 65_535 - TAG;
/// The protocol that both ends must have in common.
const PROLOGUE: &[u8] = b"crosscheck peers, records of Noise";
const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// The reasons not to trust bytes from the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsound {
    /// No record begins here: another protocol, an earlier release, or corruption.
    #[error("it does not speak this protocol: an earlier release, or a stranger")]
    Record,
    /// The bytes were not sealed with this group's key, or have changed since.
    #[error("it does not have this group's key")]
    Key,
    /// The sealed bytes are no hello.
    #[error("its first message is none of this protocol")]
    Hello,
    /// It left, or was replaced by others, before it had sent its identity.
    #[error("it did not say who it is")]
    Silent,
    /// The same bytes were received before.
    #[error("its first message is one that was sent before: a recording")]
    Recorded,
}

/// The secret of a group, and the source of random numbers.
#[derive(Clone)]
pub struct Secret {
    /// Shared by all replicas of the group.
    pub key: [u8; 32],
    /// A seed, in a simulation; none: the operating system's randomness.
    pub seed: Option<u64>,
}

/// The crate's ciphers, with random numbers of a seed where there is one.
struct Resolver(Option<u64>);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        match self.0 {
            Some(seed) => Some(Box::new(Seeded(SplitMix64::new(seed)))),
            None => RingResolver.resolve_rng(),
        }
    }

    fn resolve_dh(&self, choice: &snow::params::DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &snow::params::HashChoice) -> Option<Box<dyn Hash>> {
        RingResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &snow::params::CipherChoice) -> Option<Box<dyn Cipher>> {
        RingResolver.resolve_cipher(choice)
    }
}

/// For a simulation only: its secrets are predictable.
struct Seeded(SplitMix64);

impl Random for Seeded {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        for chunk in dest.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.next_u64().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

impl Secret {
    /// The next seed, if there is one: no two connections have the same numbers.
    fn next_seed(&mut self) -> Option<u64> {
        let seed = self.seed.as_mut()?;
        *seed = seed.wrapping_add(0xD1B5_4A32_D192_ED03);
        Some(*seed)
    }

    fn state(&mut self, is_initiator: bool) -> Result<HandshakeState, Unsound> {
        let resolver = Box::new(Resolver(self.next_seed()));
        let pattern = PATTERN.parse().map_err(|_| Unsound::Key)?;
        let builder = Builder::with_resolver(pattern, resolver).psk(0, &self.key);
        let builder = builder.and_then(|builder| builder.prologue(PROLOGUE)).map_err(|_| Unsound::Key)?;
        let built = if is_initiator { builder.build_initiator() } else { builder.build_responder() };
        built.map_err(|_| Unsound::Key)
    }
}

/// The handshake at the end that dialled, while it waits for the answer.
pub struct Dialling(HandshakeState);

impl Dialling {
    /// Begins a handshake: writes the first record, with `hello`, to `out`.
    ///
    /// # Errors
    /// When there are no random numbers.
    pub fn begin(secret: &mut Secret, hello: &Hello, out: &mut Vec<u8>) -> Result<Self, Unsound> {
        let mut state = secret.state(true)?;
        write_message(&mut state, hello, out)?;
        Ok(Dialling(state))
    }

    /// Completes the handshake with the other end's answer, the sealed bytes of a record.
    ///
    /// # Errors
    /// When it does not have the key, or its message is invalid.
    pub fn finish(mut self, sealed: &[u8]) -> Result<(Hello, Channel), Unsound> {
        let hello = read_message(&mut self.0, sealed)?;
        Ok((hello, Channel::new(self.0)?))
    }
}

/// Answers the first record of the end that dialled, with this replica's `hello`. The channel must not be trusted
/// before its first record.
///
/// # Errors
/// When the other end does not have the key, or its message is invalid; then nothing must be sent.
pub fn answer(
    secret: &mut Secret,
    hello: &Hello,
    sealed: &[u8],
    out: &mut Vec<u8>,
) -> Result<(Hello, Channel), Unsound> {
    let mut state = secret.state(false)?;
    let theirs = read_message(&mut state, sealed)?;
    write_message(&mut state, hello, out)?;
    Ok((theirs, Channel::new(state)?))
}

fn write_message(state: &mut HandshakeState, hello: &Hello, out: &mut Vec<u8>) -> Result<(), Unsound> {
    let mut message = vec![0; HELLO_BYTES + 256];
    let hello = hello.encode();
    let length = state.write_message(&hello, &mut message).map_err(|_| Unsound::Key)?;
    out.extend_from_slice(&header(0, length));
    out.extend_from_slice(&message[..length]);
    Ok(())
}

fn read_message(state: &mut HandshakeState, sealed: &[u8]) -> Result<Hello, Unsound> {
    let mut plain = vec![0; sealed.len()];
    let length = state.read_message(sealed, &mut plain).map_err(|_| Unsound::Key)?;
    Hello::decode(&plain[..length]).map_err(|_| Unsound::Hello)
}

/// Most records in a row that are skipped because later ones were accepted before, and by how many numbers they may be
/// behind. A connection delivers each record once and in order: beyond these bounds a number is corrupted, and without
/// a new connection no record would be accepted any more.
const PASSED_OVER: u64 = 64;
const BEHIND: u64 = 4096;

/// Both directions of a connection after the handshake.
pub struct Channel {
    state: StatelessTransportState,
    /// Number of the next record that is sent, and the lowest number that is accepted.
    sends: u64,
    takes: u64,
    /// Records in a row that were skipped.
    passed_over: u64,
}

impl Channel {
    fn new(state: HandshakeState) -> Result<Self, Unsound> {
        let state = state.into_stateless_transport_mode().map_err(|_| Unsound::Key)?;
        Ok(Channel { state, sends: 1, takes: 1, passed_over: 0 })
    }

    /// Appends `plain` to `out` as records: at least one, so that an empty message can be sent.
    pub fn seal(&mut self, plain: &[u8], out: &mut Sealed) {
        let mut rest = plain;
        loop {
            let (now, later) = rest.split_at(rest.len().min(PLAIN));
            let length = now.len() + TAG;
            let (head, body) = out.place(HEADER + length).split_at_mut(HEADER);
            head.copy_from_slice(&header(self.sends, length));
            // It fails only if the record is too long or the buffer too short.
            let sealed = self.state.write_message(self.sends, now, body);
            debug_assert_eq!(sealed.ok(), Some(length));
            self.sends += 1;
            rest = later;
            if rest.is_empty() {
                return;
            }
        }
    }

    /// The same for messages that are rare.
    pub fn sealed(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = Sealed::default();
        self.seal(plain, &mut out);
        out.unwritten().to_vec()
    }

    /// Opens a record into `plain`, which is at least as long as the record; none if one with this number or a later
    /// one was accepted before.
    ///
    /// # Errors
    /// When it is not a record that the other end has sealed, or too many such were skipped.
    pub fn open(&mut self, record: &SealedRecord<'_>, plain: &mut [u8]) -> Result<Option<usize>, Unsound> {
        if record.number < self.takes {
            self.passed_over += 1;
            let is_odd = self.passed_over > PASSED_OVER || self.takes - record.number > BEHIND;
            return if is_odd { Err(Unsound::Record) } else { Ok(None) };
        }
        let opened = self.state.read_message(record.number, record.sealed, plain);
        let length = opened.map_err(|_| Unsound::Key)?;
        (self.takes, self.passed_over) = (record.number + 1, 0);
        Ok(Some(length))
    }

    /// Injects a fault into the number of the next record that is accepted, and of the next that is sent.
    #[cfg(test)]
    pub fn inject_fault(&mut self, takes: u64, sends: u64) {
        (self.takes, self.sends) = (self.takes ^ takes, self.sends ^ sends);
    }
}

/// First messages that were answered: a process that sends one of them again has recorded it, and gets no answer.
#[derive(Default)]
pub struct Answered(VecDeque<Vec<u8>>);

impl Answered {
    /// Most messages that are remembered: a live peer sends a few during a replica's process.
    const MOST: usize = 256;

    /// Whether the first message with these sealed bytes is a new one.
    ///
    /// # Errors
    /// When it was answered before.
    pub fn is_new(&self, sealed: &[u8]) -> Result<(), Unsound> {
        if self.0.iter().any(|before| before == sealed) { Err(Unsound::Recorded) } else { Ok(()) }
    }

    /// Records that it was answered.
    pub fn note(&mut self, sealed: &[u8]) {
        if self.0.len() >= Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back(sealed.to_vec());
    }
}

/// Records to be sent. The next ones overwrite those that were written: so a buffer grows and is zeroed once, and not
/// for every record.
#[derive(Default)]
pub struct Sealed {
    bytes: Vec<u8>,
    /// The place of the next record, and the end of the written ones.
    end: usize,
    written: usize,
}

impl Sealed {
    /// The bytes that are not written yet.
    pub fn unwritten(&self) -> &[u8] {
        &self.bytes[self.written..self.end]
    }

    /// So many of these bytes have been written.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.end {
            (self.written, self.end) = (0, 0);
        }
    }

    fn place(&mut self, length: usize) -> &mut [u8] {
        let start = self.end;
        self.end += length;
        if self.bytes.len() < self.end {
            self.bytes.resize(self.end, 0);
        }
        &mut self.bytes[start..self.end]
    }
}

impl From<Vec<u8>> for Sealed {
    fn from(bytes: Vec<u8>) -> Self {
        Sealed { end: bytes.len(), bytes, written: 0 }
    }
}

/// One whole record.
pub struct SealedRecord<'a> {
    /// Its place in its direction.
    pub number: u64,
    /// The sealed bytes.
    pub sealed: &'a [u8],
}

/// Turns the bytes of one direction back into records, however they are cut. It holds at most one incomplete record and
/// the bytes that came with it.
#[derive(Default)]
pub struct Records {
    buffer: Vec<u8>,
    done: usize,
}

impl Records {
    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..std::mem::take(&mut self.done));
        if self.buffer.is_empty() && self.buffer.capacity() > 4 * PLAIN {
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes that it holds.
    pub fn len(&self) -> usize {
        self.buffer.len() - self.done
    }

    /// The next whole record; none while it is incomplete.
    ///
    /// # Errors
    /// When no record begins here.
    pub fn next(&mut self) -> Result<Option<SealedRecord<'_>>, Unsound> {
        let rest = &self.buffer[self.done..];
        let Some(head) = rest.first_chunk::<HEADER>() else { return Ok(None) };
        let [l0, l1, c0, c1, number @ ..] = *head;
        let (length, number) = (u16::from_le_bytes([l0, l1]), u64::from_le_bytes(number));
        if check(number, length) != u16::from_le_bytes([c0, c1]) || number == u64::MAX {
            return Err(Unsound::Record);
        }
        let end = HEADER + usize::from(length);
        if rest.len() < end {
            return Ok(None);
        }
        let start = self.done + HEADER;
        self.done += end;
        Ok(Some(SealedRecord { number, sealed: &self.buffer[start..self.done] }))
    }
}

fn check(number: u64, length: u16) -> u16 {
    let [l0, l1] = length.to_le_bytes();
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&[l0, l1]);
    order::batch::checksum(&bytes) as u16
}

fn header(number: u64, length: usize) -> [u8; HEADER] {
    let length = length as u16;
    let mut header = [0; HEADER];
    header[..2].copy_from_slice(&length.to_le_bytes());
    header[2..4].copy_from_slice(&check(number, length).to_le_bytes());
    header[4..].copy_from_slice(&number.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::super::hello::{PROTOCOL, Purpose};
    use super::*;

    fn hello(replica: u8) -> Hello {
        Hello {
            protocol: PROTOCOL,
            purpose: Purpose::Link,
            replica,
            replicas: 3,
            cluster: "one".into(),
            release: "1".into(),
            settings: Vec::new(),
        }
    }

    fn secret(key: u8, seed: u64) -> Secret {
        Secret { key: [key; 32], seed: Some(seed) }
    }

    /// The one record in `bytes`.
    fn only(bytes: &[u8]) -> Vec<u8> {
        let mut records = Records::default();
        records.feed(bytes);
        let sealed = records.next().unwrap().expect("a whole record").sealed.to_vec();
        assert_eq!(records.len(), 0);
        sealed
    }

    fn meet() -> (Channel, Channel) {
        let (mut theirs, mut ours) = (secret(7, 1), secret(7, 2));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let dialling = Dialling::begin(&mut theirs, &hello(2), &mut first).unwrap();
        let (heard, accepted) = answer(&mut ours, &hello(0), &only(&first), &mut second).unwrap();
        assert_eq!(heard, hello(2));
        let (heard, dialled) = dialling.finish(&only(&second)).unwrap();
        assert_eq!(heard, hello(0));
        (dialled, accepted)
    }

    fn open(channel: &mut Channel, bytes: &[u8]) -> Result<Vec<u8>, Unsound> {
        let (mut records, mut all) = (Records::default(), Vec::new());
        records.feed(bytes);
        while let Some(record) = records.next()? {
            let mut plain = vec![0; record.sealed.len()];
            let length = channel.open(&record, &mut plain)?;
            all.extend_from_slice(&plain[..length.unwrap_or(0)]);
        }
        Ok(all)
    }

    #[test]
    fn holders_of_the_key_meet_and_talk_in_both_directions() {
        let (mut dialled, mut accepted) = meet();
        let long: Vec<u8> = (0..200_000).map(|at| at as u8).collect();
        for text in [&b""[..], b"hello", &long] {
            let sealed = dialled.sealed(text);
            assert_eq!(open(&mut accepted, &sealed).unwrap(), text);
            let sealed = accepted.sealed(text);
            assert_eq!(open(&mut dialled, &sealed).unwrap(), text);
        }
    }

    #[test]
    fn who_lacks_the_key_learns_nothing_and_is_not_answered() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        Dialling::begin(&mut secret(8, 1), &hello(2), &mut first).unwrap();
        let refused = answer(&mut secret(7, 2), &hello(0), &only(&first), &mut second);
        assert_eq!((refused.err(), second.len()), (Some(Unsound::Key), 0));
        // A server with another key, or none.
        let mut first = Vec::new();
        let dialling = Dialling::begin(&mut secret(7, 1), &hello(2), &mut first).unwrap();
        assert_eq!(dialling.finish(&[9; 80]).err(), Some(Unsound::Key));
    }

    /// A stranger who recorded a whole connection replays it: the answer has other keys, so nothing that was recorded
    /// after it is trusted.
    #[test]
    fn a_recorded_connection_cannot_be_replayed() {
        let (mut theirs, mut ours) = (secret(7, 1), secret(7, 2));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let dialling = Dialling::begin(&mut theirs, &hello(2), &mut first).unwrap();
        let (_, mut accepted) = answer(&mut ours, &hello(0), &only(&first), &mut second).unwrap();
        let (_, mut dialled) = dialling.finish(&only(&second)).unwrap();
        let third = dialled.sealed(b"flush_all");
        assert!(open(&mut accepted, &third).is_ok());
        let (_, mut again) = answer(&mut ours, &hello(0), &only(&first), &mut Vec::new()).unwrap();
        assert_eq!(open(&mut again, &third), Err(Unsound::Key));
        assert_eq!(open(&mut accepted, &third).unwrap(), b"", "nor into the same connection");
    }

    /// A buffer that is written in pieces and filled again holds exactly the unwritten bytes.
    #[test]
    fn what_is_written_makes_room_for_what_comes_next() {
        let (mut dialled, mut accepted) = meet();
        let (mut out, mut stream, mut said) = (Sealed::default(), Vec::new(), Vec::new());
        for round in 0..200usize {
            let text = vec![round as u8; round * 37 % 300];
            dialled.seal(&text, &mut out);
            said.extend(text);
            let taken = out.unwritten().len().min(round * 61 % 400);
            stream.extend_from_slice(&out.unwritten()[..taken]);
            out.wrote(taken);
        }
        stream.extend_from_slice(out.unwritten());
        assert_eq!(open(&mut accepted, &stream).unwrap(), said);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (mut dialled, mut accepted) = meet();
        let sealed = dialled.sealed(b"these bytes");
        for bit in 0..sealed.len() * 8 {
            let mut broken = sealed.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&mut accepted, &broken).is_err(), "bit {bit}");
        }
        assert_eq!(open(&mut accepted, &sealed).unwrap(), b"these bytes");
    }

    #[test]
    fn records_come_out_however_the_bytes_are_cut_and_late_ones_are_left_out() {
        let (mut dialled, mut accepted) = meet();
        let (one, two) = (dialled.sealed(b"one"), dialled.sealed(b"two"));
        let both = [&one[..], &two].concat();
        for cut in 1..both.len() {
            let mut records = Records::default();
            let mut numbers = Vec::new();
            for chunk in both.chunks(cut) {
                records.feed(chunk);
                while let Some(record) = records.next().unwrap() {
                    numbers.push(record.number);
                }
            }
            assert_eq!(numbers, [1, 2]);
        }
        assert_eq!(open(&mut accepted, &[&two[..], &one, &two].concat()).unwrap(), b"two");
    }
}
