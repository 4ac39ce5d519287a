//! Any byte stream, cut anywhere, is frames or an error that names the peer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use order::{Decoder, FrameKind, frame};

fuzz_target!(|input: (u8, Vec<u8>, bool)| {
    let (cut, mut bytes, intact) = input;
    if intact {
        // Otherwise the checksum keeps the fuzzer from getting past the first frame.
        let mut framed = Vec::new();
        frame::encode(FrameKind::Check, 1, &bytes, &mut framed);
        framed.extend_from_slice(&bytes);
        bytes = framed;
    }
    let mut decoder = Decoder::new(1, 1 << 20);
    for chunk in bytes.chunks(usize::from(cut) + 1) {
        decoder.feed(chunk);
        loop {
            match decoder.next() {
                Ok(Some(frame)) => assert!(frame.body.len() <= bytes.len()),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(error.peer(), 1);
                    return;
                }
            }
        }
    }
});
