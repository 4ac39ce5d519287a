//! Any bytes at the peers' port: a hello or none; no answer to a process without the key; and from a stream only sealed
//! records.
#![no_main]

use crosscheck::fuzzing::{a_hello, a_stranger, a_stream};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u16, u8, &[u8])| {
    let (piece, at, change, bytes) = input;
    a_hello(bytes);
    a_stranger(bytes, usize::from(piece));
    a_stream(&bytes[..bytes.len().min(1024)], usize::from(piece), usize::from(at), change);
});
