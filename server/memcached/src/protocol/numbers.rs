//! Numbers as memcached's clients write and read them: the C library's rules, without its silent truncation.

/// Appends `number` in decimal; `write!` costs several times as much, and this runs per request.
pub fn push_decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(decimal(number, &mut [0; DIGITS]));
}

/// The most digits that a number has.
pub(super) const DIGITS: usize = u64::MAX.ilog10() as usize + 1;

/// `number` in decimal, written to the end of `digits`.
pub(super) fn decimal(number: u64, digits: &mut [u8; DIGITS]) -> &[u8] {
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    &digits[at..]
}

/// A number as `strtoull` reads it: leading and trailing white space and `+` are fine, a minus only before zero.
///
/// `None` for anything else, and for values beyond 64 bits.
pub fn unsigned(token: &[u8]) -> Option<u64> {
    let (negative, magnitude) = sign_and_magnitude(token)?;
    if negative && magnitude != 0 { None } else { Some(magnitude) }
}

/// A number of at most 32 bits; stock memcached 1.6.18 would silently drop the higher bits.
pub fn unsigned_32(token: &[u8]) -> Option<u32> {
    u32::try_from(unsigned(token)?).ok()
}

/// A signed number as `strtoll` reads it.
pub fn signed(token: &[u8]) -> Option<i64> {
    let (negative, magnitude) = sign_and_magnitude(token)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

fn sign_and_magnitude(token: &[u8]) -> Option<(bool, u64)> {
    plain(token).map(|magnitude| (false, magnitude)).or_else(|| by_rules(token))
}

/// Digits and nothing else, too few for an overflow: as nearly all numbers are.
#[inline]
fn plain(token: &[u8]) -> Option<u64> {
    if token.is_empty() || token.len() >= DIGITS {
        return None;
    }
    token
        .iter()
        .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0')))
}

#[cold]
fn by_rules(token: &[u8]) -> Option<(bool, u64)> {
    let start = token.iter().position(|byte| !is_c_space(*byte))?;
    let (negative, digits) = match token[start] {
        b'-' => (true, &token[start + 1..]),
        b'+' => (false, &token[start + 1..]),
        _ => (false, &token[start..]),
    };
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 || digits.get(end).is_some_and(|byte| !is_c_space(*byte)) {
        return None;
    }
    let mut magnitude = 0u64;
    for digit in &digits[..end] {
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some((negative, magnitude))
}

/// `isspace` of the C locale.
fn is_c_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_is_what_the_standard_library_writes() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            push_decimal(&mut out, number);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }

    #[test]
    fn numbers_follow_the_c_library() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(unsigned(b"0000000000000000000000012"), Some(12));
        assert_eq!(unsigned(b" 12 "), Some(12));
        assert_eq!(unsigned(b"12 x"), Some(12));
        assert_eq!(unsigned(b"12x"), None);
        assert_eq!(unsigned(b"+5"), Some(5));
        assert_eq!(unsigned(b"-0"), Some(0));
        assert_eq!(unsigned(b"-5"), None);
        assert_eq!(unsigned(b""), None);
        assert_eq!(unsigned(b" "), None);
        assert_eq!(unsigned(b"-"), None);
        assert_eq!(unsigned_32(b"4294967295"), Some(u32::MAX));
        assert_eq!(unsigned_32(b"4294967296"), None);
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"-9223372036854775809"), None);
        assert_eq!(signed(b"9223372036854775808"), None);
        assert_eq!(signed(b"-1"), Some(-1));
    }
}
