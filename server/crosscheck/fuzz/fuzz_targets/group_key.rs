//! Any text is a group's key or an error; and a key is written as exactly the text that it was read from.
#![no_main]

use crosscheck::GroupKey;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(key) = GroupKey::parse(text) {
        assert_eq!(key.to_text().trim_end(), text.trim_end());
    }
});
