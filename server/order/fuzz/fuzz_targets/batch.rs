//! Any bytes are an intact batch, which encodes to the same bytes, or an error.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use order::{Batch, Encoded, State, batch};

fuzz_target!(|input: (Vec<u8>, bool)| {
    let (mut bytes, intact) = input;
    if intact && bytes.len() >= batch::HEAD {
        // Repair both checksums, so that the fields behind them are reached.
        let crc = crc(&bytes[batch::HEAD..]);
        bytes[48..52].copy_from_slice(&crc.to_le_bytes());
        let crc = self::crc(&bytes[4..batch::HEAD]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
    }
    let bytes = Bytes::from(bytes);
    let _ = State::decode(bytes.clone());
    let Ok(encoded) = Encoded::split(bytes) else { return };
    let _ = encoded.stamped(1, 2, true);
    if let Ok(batch) = Batch::decode(&encoded) {
        assert_eq!(batch.requests().count(), batch.len());
        assert_eq!(batch.encode(), encoded);
    }
});

fn crc(bytes: &[u8]) -> u32 {
    batch::checksum(bytes)
}
