//! Any bytes as an ordered request: refused, or decoded to a command that encodes to the same bytes.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use memcached::command::{decode, encode};

fuzz_target!(|ordered: &[u8]| {
    let ordered = Bytes::copy_from_slice(ordered);
    if let Ok(command) = decode(&ordered) {
        assert_eq!(encode(&command), ordered);
        assert!(command.keys().iter().all(|key| (1..=250).contains(&key.bytes().len())));
    }
});
