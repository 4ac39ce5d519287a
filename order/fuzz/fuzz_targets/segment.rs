//! Any file is a log, a torn one, or a corrupt one; and any file beside it says whose it is and how far it is
//! durable, or nothing.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, bool)| {
    let (bytes, last) = input;
    order::fuzzing::beside_log(&bytes);
    order::fuzzing::segment(&Bytes::from(bytes), last);
});
