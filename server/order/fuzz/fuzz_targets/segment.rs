//! Any file is a log, a torn one, or a corrupt one; and any file next to it names the owner and how far the log is
//! durable, or is refused.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, bool)| {
    let (bytes, last) = input;
    order::fuzzing::beside_log(&bytes);
    order::fuzzing::segment(&Bytes::from(bytes), last);
});
