//! The authenticated stream between two replicas: a handshake that only holders of the group's key can take part in,
//! and records that no other process can have written.
//!
//! Noise (revision 34) with the pattern `NNpsk0`: both ends prove that they have the key, and fresh random numbers of
//! both make the keys of this connection, so that nothing of an earlier one can be replayed into it. The crate `snow`
//! implements the handshake. Its keys then seal and open records ([`super::records`]) in their place, which `snow` does
//! not offer: by the same cipher of the crate `ring`, with Noise's nonces.
//!
//! Numbers grow from record to record; each is the nonce of its record, and none is accepted twice. The two messages of
//! the handshake are records with the number 0.
//!
//! The end that dialled proves its identity only with the first sealed record: its first message alone could be a
//! recorded one.

use std::collections::VecDeque;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use snow::resolvers::{CryptoResolver, DefaultResolver, RingResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use wire::SplitMix64;

use super::hello::{HELLO_BYTES, Hello};
use super::records::{self, HEADER, PLAIN, SealedRecord, TAG};

/// The protocol that both ends must have in common.
const PROLOGUE: &[u8] = b"crosscheck peers, records of Noise";
const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// The reasons not to trust bytes from the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
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

    fn state(&mut self, is_initiator: bool) -> Result<HandshakeState, Untrusted> {
        let resolver = Box::new(Resolver(self.next_seed()));
        let pattern = PATTERN.parse().map_err(|_| Untrusted::Key)?;
        let builder = Builder::with_resolver(pattern, resolver).psk(0, &self.key);
        let builder = builder.and_then(|builder| builder.prologue(PROLOGUE)).map_err(|_| Untrusted::Key)?;
        let built = if is_initiator { builder.build_initiator() } else { builder.build_responder() };
        built.map_err(|_| Untrusted::Key)
    }
}

/// The handshake at the end that dialled, while it waits for the answer.
pub struct Dialling(HandshakeState);

impl Dialling {
    /// Begins a handshake: writes the first record, with `hello`, to `out`.
    ///
    /// # Errors
    /// When there are no random numbers.
    pub fn begin(secret: &mut Secret, hello: &Hello, out: &mut Vec<u8>) -> Result<Self, Untrusted> {
        let mut state = secret.state(true)?;
        write_message(&mut state, hello, out)?;
        Ok(Dialling(state))
    }

    /// Completes the handshake with the other end's answer, the sealed bytes of a record.
    ///
    /// # Errors
    /// When it does not have the key, or its message is invalid.
    pub fn finish(mut self, sealed: &[u8]) -> Result<(Hello, Channel), Untrusted> {
        let hello = read_message(&mut self.0, sealed)?;
        Ok((hello, Channel::new(self.0)?))
    }
}

/// Answers the first record of the end that dialled, with this replica's `hello` to that one. The channel must not be
/// trusted before its first record.
///
/// # Errors
/// When the other end does not have the key, or its message is invalid; then nothing must be sent.
pub fn answer(
    secret: &mut Secret,
    hello: impl FnOnce(&Hello) -> Hello,
    sealed: &[u8],
    out: &mut Vec<u8>,
) -> Result<(Hello, Channel), Untrusted> {
    let mut state = secret.state(false)?;
    let theirs = read_message(&mut state, sealed)?;
    write_message(&mut state, &hello(&theirs), out)?;
    Ok((theirs, Channel::new(state)?))
}

fn write_message(state: &mut HandshakeState, hello: &Hello, out: &mut Vec<u8>) -> Result<(), Untrusted> {
    let mut message = vec![0; HELLO_BYTES + 256];
    let hello = hello.encode();
    let length = state.write_message(&hello, &mut message).map_err(|_| Untrusted::Key)?;
    out.extend_from_slice(&records::header(0, length));
    out.extend_from_slice(&message[..length]);
    Ok(())
}

fn read_message(state: &mut HandshakeState, sealed: &[u8]) -> Result<Hello, Untrusted> {
    let mut plain = vec![0; sealed.len()];
    let length = state.read_message(sealed, &mut plain).map_err(|_| Untrusted::Key)?;
    Hello::decode(&plain[..length]).map_err(|_| Untrusted::Hello)
}

/// Most records in a row that are skipped because later ones were accepted before, and by how many numbers they may be
/// behind. A connection delivers each record once and in order: beyond these bounds a number is corrupted, and without
/// a new connection no record would be accepted any more.
const PASSED_OVER: u64 = 64;
const BEHIND: u64 = 4096;

/// The key of one direction.
struct DirectionKey(LessSafeKey);

impl DirectionKey {
    fn new(key: &[u8; 32]) -> Result<Self, Untrusted> {
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| Untrusted::Key)?;
        Ok(DirectionKey(LessSafeKey::new(key)))
    }

    /// As Noise makes it of a record's number. It is used once: a sender's numbers grow, and end before they repeat.
    fn nonce(number: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Both directions of a connection after the handshake.
pub struct Channel {
    sends_with: DirectionKey,
    takes_with: DirectionKey,
    /// Number of the next record that is sent, and the lowest number that is accepted.
    sends: u64,
    takes: u64,
    /// Records in a row that were skipped.
    passed_over: u64,
}

impl Channel {
    fn new(mut state: HandshakeState) -> Result<Self, Untrusted> {
        if !state.is_handshake_finished() {
            return Err(Untrusted::Key);
        }
        // The crate calls it dangerous, because a caller may use a nonce twice.
        let (of_initiator, of_responder) = state.dangerously_get_raw_split();
        let (of_initiator, of_responder) =
            (DirectionKey::new(&of_initiator)?, DirectionKey::new(&of_responder)?);
        let (sends_with, takes_with) =
            if state.is_initiator() { (of_initiator, of_responder) } else { (of_responder, of_initiator) };
        Ok(Channel { sends_with, takes_with, sends: 1, takes: 1, passed_over: 0 })
    }

    /// Appends `plain` to `out` as records: at least one, so that an empty message can be sent.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let mut rest = plain;
        loop {
            let (now, later) = rest.split_at(rest.len().min(PLAIN));
            let start = out.len();
            out.extend_from_slice(&[0; HEADER]);
            out.extend_from_slice(now);
            self.seal_in_place(out, start);
            rest = later;
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Makes a record of what `out` has from `start` on: space for its head, and at most [`PLAIN`] bytes.
    pub fn seal_in_place(&mut self, out: &mut Vec<u8>, start: usize) {
        let body = start + HEADER;
        out.truncate(body + PLAIN);
        let nonce = DirectionKey::nonce(self.sends);
        match self.sends_with.0.seal_in_place_separate_tag(nonce, Aad::empty(), &mut out[body..]) {
            Ok(tag) => out.extend_from_slice(tag.as_ref()),
            // Only for more bytes than any record has. Nothing leaves unsealed: the other end finds that this is no
            // record, and dials again.
            Err(_) => {
                out[body..].fill(0);
                out.extend_from_slice(&[0; TAG]);
            }
        }
        let head = records::header(self.sends, out.len() - body);
        out[start..body].copy_from_slice(&head);
        self.sends += 1;
    }

    /// The same for messages that are rare.
    pub fn sealed(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.seal(plain, &mut out);
        out
    }

    /// Opens a record in its place; none if one with this number or a later one was accepted before.
    ///
    /// # Errors
    /// When it is not a record that the other end has sealed, or too many such were skipped.
    pub fn open<'a>(&mut self, record: SealedRecord<'a>) -> Result<Option<&'a [u8]>, Untrusted> {
        if record.number < self.takes {
            self.passed_over += 1;
            let is_odd = self.passed_over > PASSED_OVER || self.takes - record.number > BEHIND;
            return if is_odd { Err(Untrusted::Record) } else { Ok(None) };
        }
        let nonce = DirectionKey::nonce(record.number);
        let opened = self.takes_with.0.open_in_place(nonce, Aad::empty(), record.sealed);
        let plain = opened.map_err(|_| Untrusted::Key)?;
        (self.takes, self.passed_over) = (record.number + 1, 0);
        Ok(Some(plain))
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
    pub fn is_new(&self, sealed: &[u8]) -> Result<(), Untrusted> {
        if self.0.iter().any(|before| before == sealed) { Err(Untrusted::Recorded) } else { Ok(()) }
    }

    /// Records that it was answered.
    pub fn note(&mut self, sealed: &[u8]) {
        if self.0.len() >= Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back(sealed.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::Records;
    use super::*;

    fn hello(replica: u8) -> Hello {
        Hello::sample(replica)
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
        let (received, accepted) = answer(&mut ours, |_| hello(0), &only(&first), &mut second).unwrap();
        assert_eq!(received, hello(2));
        let (received, dialled) = dialling.finish(&only(&second)).unwrap();
        assert_eq!(received, hello(0));
        (dialled, accepted)
    }

    fn open(channel: &mut Channel, bytes: &[u8]) -> Result<Vec<u8>, Untrusted> {
        let (mut records, mut all) = (Records::default(), Vec::new());
        records.feed(bytes);
        while let Some(record) = records.next()? {
            all.extend_from_slice(channel.open(record)?.unwrap_or_default());
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
        let refused = answer(&mut secret(7, 2), |_| hello(0), &only(&first), &mut second);
        assert_eq!((refused.err(), second.len()), (Some(Untrusted::Key), 0));
        // A server with another key, or none.
        let mut first = Vec::new();
        let dialling = Dialling::begin(&mut secret(7, 1), &hello(2), &mut first).unwrap();
        assert_eq!(dialling.finish(&[9; 80]).err(), Some(Untrusted::Key));
    }

    /// A stranger who recorded a whole connection replays it: the answer has other keys, so nothing that was recorded
    /// after it is trusted.
    #[test]
    fn a_recorded_connection_cannot_be_replayed() {
        let (mut theirs, mut ours) = (secret(7, 1), secret(7, 2));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let dialling = Dialling::begin(&mut theirs, &hello(2), &mut first).unwrap();
        let (_, mut accepted) = answer(&mut ours, |_| hello(0), &only(&first), &mut second).unwrap();
        let (_, mut dialled) = dialling.finish(&only(&second)).unwrap();
        let third = dialled.sealed(b"flush_all");
        assert!(open(&mut accepted, &third).is_ok());
        let (_, mut again) = answer(&mut ours, |_| hello(0), &only(&first), &mut Vec::new()).unwrap();
        assert_eq!(open(&mut again, &third), Err(Untrusted::Key));
        assert_eq!(open(&mut accepted, &third).unwrap(), b"", "nor into the same connection");
    }

    /// The records are those of Noise: the crate that made the keys opens them, and this one opens those of the crate.
    #[test]
    fn records_are_sealed_as_noise_has_it() {
        let (mut theirs, mut ours) = (secret(7, 1), secret(7, 2));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let dialling = Dialling::begin(&mut theirs, &hello(2), &mut first).unwrap();
        let mut state = ours.state(false).unwrap();
        read_message(&mut state, &only(&first)).unwrap();
        write_message(&mut state, &hello(0), &mut second).unwrap();
        let (_, mut dialled) = dialling.finish(&only(&second)).unwrap();
        let noise = state.into_stateless_transport_mode().unwrap();
        for (number, text) in [&b""[..], b"hello", &[7; 1000]].into_iter().enumerate() {
            let number = number as u64 + 1;
            let (mut plain, mut sealed) = (vec![0; 2000], vec![0; 2000]);
            let length = noise.read_message(number, &only(&dialled.sealed(text)), &mut plain).unwrap();
            assert_eq!(&plain[..length], text);
            let length = noise.write_message(number, text, &mut sealed).unwrap();
            let opened = dialled.open(SealedRecord { number, sealed: &mut sealed[..length] });
            assert_eq!(opened.unwrap(), Some(text));
        }
    }

    /// Frames that are added and written in pieces, as many as one record carries or more, all arrive in order.
    #[test]
    fn what_waits_is_sealed_and_written_in_order() {
        use super::super::outgoing::Outgoing;
        let (mut dialled, mut accepted) = meet();
        let (mut out, mut stream, mut said) = (Outgoing::default(), Vec::new(), Vec::new());
        for round in 0..400usize {
            let text = vec![round as u8; round * 37 % 300 + if round % 50 == 7 { 3 * PLAIN } else { 0 }];
            out.frames().extend_from_slice(&text);
            assert!(out.unsent() >= text.len());
            said.extend(text);
            if out.unwritten().is_empty() {
                out.seal_some(&mut dialled);
            }
            let taken = out.unwritten().len().min(round * 6_100 % 40_000);
            stream.extend_from_slice(&out.unwritten()[..taken]);
            out.wrote(taken);
            out.forget_sealed();
        }
        while out.unsent() > 0 {
            stream.extend_from_slice(out.unwritten());
            out.wrote(out.unwritten().len());
            out.seal_some(&mut dialled);
        }
        assert!(!out.seal_some(&mut dialled) && out.frames().len() == HEADER);
        assert!(open(&mut accepted, &stream).unwrap() == said);
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
