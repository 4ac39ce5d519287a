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

/// Bytes with the unit that leaves few digits: `17 B`, `1.2 GB`, `412 MB`.
pub fn bytes(count: u64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB"].into_iter();
    let mut sizes = units.zip((1..).map(|power| count as f64 / 1e3_f64.powi(power)));
    match sizes.find(|(unit, size)| *size < 999.5 || *unit == "PB") {
        Some((unit, size)) if count >= 1_000 => {
            format!("{size:.*} {unit}", usize::from(size < 9.95))
        }
        _ => format!("{count} B"),
    }
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
    fn bytes_choose_their_unit() {
        let shown = [0, 999, 1_000, 1_250_000, 9_960_000, 412_000_000, 999_600_000, 1_234_567_890].map(bytes);
        assert_eq!(shown, ["0 B", "999 B", "1.0 kB", "1.2 MB", "10 MB", "412 MB", "1.0 GB", "1.2 GB"]);
        assert_eq!(bytes(u64::MAX), "18447 PB");
    }

    #[test]
    fn times_choose_their_unit() {
        let shown = [0, 999, 1_200, 45_600, 3_000_000].map(micros);
        assert_eq!(shown, ["0 us", "999 us", "1.20 ms", "45.6 ms", "3.00 s"]);
        assert_eq!(millis(Duration::from_millis(2)), "2.00 ms");
    }
}
