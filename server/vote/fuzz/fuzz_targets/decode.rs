//! Any bytes are a message or an error; and a decoded message is encoded to the same bytes.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use vote::{Message, Recover};

fuzz_target!(|data: &[u8]| {
    let frame = Bytes::copy_from_slice(data);
    if let Ok(message) = Message::decode(&frame) {
        let mut wire = Vec::new();
        message.encode(&mut wire);
        assert_eq!(wire, data);
    }
    if let Ok(recover) = Recover::decode(&frame) {
        let mut wire = Vec::new();
        recover.encode(&mut wire);
        assert_eq!(wire, data);
    }
});
