//! Bytes in a line of JSON, two hexadecimal digits each.

use std::fmt;

use bytes::Bytes;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hexadecimal::{bytes_of, digits_of};

/// Bytes that travel as hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HexBytes(pub Bytes);

impl Serialize for HexBytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&digits_of(&self.0))
    }
}

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Digits;
        impl Visitor<'_> for Digits {
            type Value = HexBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("hexadecimal digits, two for each byte")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<HexBytes, E> {
                bytes_of(text)
                    .map(|bytes| HexBytes(bytes.into()))
                    .ok_or_else(|| E::custom("no hexadecimal digits"))
            }
        }
        from.deserialize_str(Digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_written_and_other_text_is_refused() {
        let bytes = HexBytes((0..=255u8).collect::<Vec<u8>>().into());
        let text = serde_json::to_string(&bytes).expect("a text");
        assert!(text.starts_with("\"000102") && text.ends_with("fdfeff\""), "{text}");
        assert_eq!(serde_json::from_str::<HexBytes>(&text).expect("bytes"), bytes);
        for text in ["\"0\"", "\"0g\"", "\"\u{e9}\"", "7", "\"000\""] {
            assert!(serde_json::from_str::<HexBytes>(text).is_err(), "{text}");
        }
    }
}
