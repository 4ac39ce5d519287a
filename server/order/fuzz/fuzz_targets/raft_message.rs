//! Any bytes are an engine or founding message, or an error.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: Vec<u8>| {
    let bytes = Bytes::from(bytes);
    order::fuzzing::raft_message(bytes.clone());
    order::fuzzing::control(bytes);
});
