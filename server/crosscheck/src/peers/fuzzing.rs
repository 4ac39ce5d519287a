//! Access for the fuzz target to the peers' handshake, whose parts are private.

use super::hello::{Hello, PROTOCOL};
use super::records::{Records, SealedRecord};
use super::secure::{self, Channel, Dialling, Secret};

fn hello(replica: u8) -> Hello {
    Hello { settings: vec![("mode".into(), "RDGX".into())], ..Hello::sample(replica) }
}

fn secret(seed: u64) -> Secret {
    Secret { key: [7; 32], seed: Some(seed) }
}

/// The records in `bytes`, fed in pieces of `piece` bytes; bytes after an invalid record are ignored.
fn records(bytes: &[u8], piece: usize) -> Vec<(u64, Vec<u8>)> {
    let (mut records, mut found) = (Records::default(), Vec::new());
    for chunk in bytes.chunks(piece.max(1)) {
        records.feed(chunk);
        loop {
            match records.next() {
                Ok(Some(record)) => found.push((record.number, record.sealed.to_vec())),
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    found
}

/// Two ends after a handshake.
fn meet() -> (Channel, Channel) {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let dialling = Dialling::begin(&mut secret(1), &hello(1), &mut first).expect("it begins");
    let said = records(&first, first.len());
    let (_, accepted) =
        secure::answer(&mut secret(2), |_| hello(0), &said[0].1, &mut second).expect("it is answered");
    let said = records(&second, second.len());
    let (_, dialled) = dialling.finish(&said[0].1).expect("it is understood");
    (dialled, accepted)
}

/// Any bytes are decoded as a hello or refused, and a hello is encoded to the bytes that it was decoded from.
pub fn a_hello(bytes: &[u8]) {
    if let Ok(hello) = Hello::decode(bytes)
        && hello.protocol == PROTOCOL
    {
        assert_eq!(Hello::decode(&hello.encode()).as_ref(), Ok(&hello));
        assert_eq!(hello.differs_from(&hello), None);
    }
}

/// A process without the key gets no answer, whether it dialled or was dialled.
pub fn a_stranger(bytes: &[u8], piece: usize) {
    let mut out = Vec::new();
    for (_, sealed) in records(bytes, piece) {
        assert!(secure::answer(&mut secret(3), |_| hello(0), &sealed, &mut out).is_err());
        let dialling = Dialling::begin(&mut secret(4), &hello(1), &mut Vec::new()).expect("it begins");
        assert!(dialling.finish(&sealed).is_err());
    }
    assert!(out.is_empty());
}

/// Sealed bytes, with one change and cut anywhere: all opened records were sealed, in that order.
pub fn a_stream(plain: &[u8], piece: usize, at: usize, change: u8) {
    let (mut sender, mut receiver) = meet();
    let (mut stream, mut said) = (Vec::new(), Vec::new());
    for part in plain.chunks(64) {
        stream.extend(sender.sealed(part));
        said.push(part.to_vec());
    }
    let length = stream.len().max(1);
    if let Some(byte) = stream.get_mut(at % length) {
        *byte ^= change;
    }
    let mut left = said.iter();
    for (number, mut sealed) in records(&stream, piece) {
        match receiver.open(SealedRecord { number, sealed: &mut sealed }) {
            Ok(Some(opened)) => assert!(left.any(|said| said == opened), "the other end has not sealed this"),
            Ok(None) => {}
            Err(_) => break,
        }
    }
    assert!(change != 0 || left.next().is_none(), "nothing was changed, and something is missing");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fuzzed_holds_for_some_inputs() {
        a_hello(&hello(2).encode());
        let mut first = Vec::new();
        let stranger = Secret { key: [8; 32], seed: Some(1) };
        Dialling::begin(&mut stranger.clone(), &hello(2), &mut first).expect("it begins");
        (1..60).for_each(|piece| a_stranger(&first, piece));
        let plain: Vec<u8> = (0..200).collect();
        (0..400).for_each(|at| a_stream(&plain, 1 + at % 50, at, 1 << (at % 8)));
        a_stream(&plain, 7, 0, 0);
    }
}
