//! Any bytes are messages or an error; and decoded messages are encoded to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use verify::{SAVED_BYTES, SavedRecord, VerifyMessage};

fuzz_target!(|data: &[u8]| {
    if let Ok(messages) = VerifyMessage::decode_all(data) {
        let mut body = Vec::new();
        messages.iter().for_each(|message| message.encode(&mut body));
        assert_eq!(body, data);
    }
    if let Some(Ok(bytes)) = data.get(..SAVED_BYTES).map(<[u8; SAVED_BYTES]>::try_from) {
        let _ = SavedRecord::decode(&bytes);
    }
});
