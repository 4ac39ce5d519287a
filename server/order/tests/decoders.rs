//! The decoders handle any bytes; they never panic, and never wait for bytes that a corrupt length announces.

use bytes::Bytes;
use order::{Batch, Decoder, Encoded, FrameKind, Request, State, batch, frame};
use proptest::prelude::*;

/// Feeds everything in pieces; returns the bodies seen before the end or the first error.
fn decode_all(bytes: &[u8], piece: usize) -> (Vec<Bytes>, bool) {
    let mut decoder = Decoder::new(1, 1 << 20);
    let mut bodies = Vec::new();
    for chunk in bytes.chunks(piece.max(1)) {
        decoder.feed(chunk);
        loop {
            match decoder.next() {
                Ok(Some(frame)) => bodies.push(frame.body),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(error.peer(), 1);
                    return (bodies, false);
                }
            }
        }
        assert!(decoder.capacity() <= 2 * bytes.len() + 4096, "grows only by what arrived");
    }
    (bodies, true)
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000), piece in 1usize..300) {
        decode_all(&bytes, piece);
        let bytes = Bytes::from(bytes);
        let _ = State::decode(bytes.clone());
        let _ = Encoded::split(bytes.clone()).map(|encoded| Batch::decode(&encoded));
        order::fuzzing::raft_message(bytes.clone());
        order::fuzzing::control(bytes.clone());
        order::fuzzing::primary_message(&bytes);
        order::fuzzing::primary_control(&bytes);
        order::fuzzing::segment(&bytes, true);
        order::fuzzing::beside_log(&bytes);
    }

    #[test]
    fn frames_survive_any_cut_and_a_mutation_never_yields_another_frame(
        bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..8),
        piece in 1usize..300,
        at in any::<prop::sample::Index>(),
        value in 1u8..=255,
    ) {
        let mut bytes = Vec::new();
        bodies.iter().for_each(|body| frame::encode(FrameKind::Repair, 1, body, &mut bytes));
        let (seen, intact) = decode_all(&bytes, piece);
        prop_assert!(intact);
        prop_assert_eq!(&seen, &bodies.iter().map(|body| Bytes::copy_from_slice(body)).collect::<Vec<_>>());
        let at = at.index(bytes.len());
        bytes[at] ^= value;
        let (after, intact) = decode_all(&bytes, piece);
        prop_assert!(!intact && after.len() < bodies.len());
        prop_assert_eq!(&after[..], &seen[..after.len()]);
    }

    #[test]
    fn batches_survive_the_trip_and_no_mutation_of_them_does(
        requests in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..100), any::<u32>()), 1..20),
        streams in any::<bool>(),
        at in any::<prop::sample::Index>(),
        value in 1u8..=255,
    ) {
        let requests: Vec<Request> = requests
            .into_iter()
            .map(|(bytes, stream)| {
                let stream = if streams { stream } else { 0 };
                Request { checksum: batch::checksum(&bytes), stream, bytes: bytes.into() }
            })
            .collect();
        let encoded = Batch::of(3, 5, 7, &requests, streams).unwrap().encode().stamped(11, 13, true).unwrap();
        let back = Batch::decode(&encoded).unwrap();
        prop_assert_eq!(back.requests().collect::<Vec<_>>(), requests);
        let mut bytes = [&encoded.head[..], &encoded.body[..]].concat();
        let at = at.index(bytes.len());
        bytes[at] ^= value;
        let broken = Encoded::split(bytes.into()).unwrap();
        prop_assert!(Batch::decode(&broken).is_err());
    }
}
