//! Numbers formatted for people.

use std::time::Duration;

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds with the unit that leaves few digits: `87 us`, `1.20 ms`, `3.00 s`.
pub fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..10_000 => format!("{:.2} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

/// A duration like [`micros`].
pub fn millis(duration: Duration) -> String {
    micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        let shown = [0, 7, 999, 1000, 123_456, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "7", "999", "1,000", "123,456", "1,234,567"]);
    }

    #[test]
    fn times_choose_their_unit() {
        let shown = [0, 999, 1_200, 45_600, 3_000_000].map(micros);
        assert_eq!(shown, ["0 us", "999 us", "1.20 ms", "45.6 ms", "3.00 s"]);
        assert_eq!(millis(Duration::from_millis(2)), "2.00 ms");
    }
}
