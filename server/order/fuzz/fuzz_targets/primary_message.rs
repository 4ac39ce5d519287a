//! Any bytes are a message about a primary's batches or about progress and states, or an error.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use order::batch::{HEAD, checksum};

fuzz_target!(|input: (Vec<u8>, bool)| {
    let (mut bytes, intact) = input;
    // Where the first part of an EXECUTE-BATCH begins, behind its length.
    const PART: usize = 19 + 4;
    if intact && bytes.len() >= PART + HEAD {
        // Repair length and checksums of a single part, so that the fields behind them are reached.
        (bytes[0], bytes[18]) = (1, 1);
        let length = (bytes.len() - PART) as u32;
        bytes[19..PART].copy_from_slice(&length.to_le_bytes());
        let crc = checksum(&bytes[PART + HEAD..]);
        bytes[PART + 48..][..4].copy_from_slice(&crc.to_le_bytes());
        let crc = checksum(&bytes[PART + 4..PART + HEAD]);
        bytes[PART..][..4].copy_from_slice(&crc.to_le_bytes());
    }
    let bytes = Bytes::from(bytes);
    order::fuzzing::primary_message(&bytes);
    order::fuzzing::primary_control(&bytes);
});
