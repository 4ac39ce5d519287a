//! Bytes as hexadecimal digits, two for each, in lower case.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The digits of some bytes.
pub(crate) fn digits_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The bytes of such a text; none if it is another one.
pub(crate) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| DIGITS.iter().position(|one| *one == byte).map(|digit| digit as u8);
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_written_and_other_text_is_refused() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text = digits_of(&bytes);
        assert!(text.starts_with("000102") && text.ends_with("fdfeff"), "{text}");
        assert_eq!(bytes_of(&text), Some(bytes));
        for text in ["0", "0g", "0A", "\u{e9}", "000"] {
            assert_eq!(bytes_of(text), None, "{text}");
        }
    }
}
