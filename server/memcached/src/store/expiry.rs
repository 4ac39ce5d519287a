//! Expiry times: clients' numbers, converted to ordered time.

use crate::limits::RELATIVE_EXPIRY_S;

/// A point in ordered time after which an item is gone, in microseconds since 1970; 0 means never.
pub type Deadline = u64;

/// Never.
pub const NEVER: Deadline = 0;
/// A point in time that is always in the past.
pub const PAST: Deadline = 1;

const US_PER_S: u64 = 1_000_000;

/// The deadline that a client's number means at `now_us`: 0 never, negative at once, up to 30 days from now on, and
/// above that Unix time. All of it in seconds.
pub fn deadline(client: i64, now_us: u64) -> Deadline {
    match u64::try_from(client) {
        Err(_) => PAST,
        Ok(0) => NEVER,
        Ok(seconds) if client <= RELATIVE_EXPIRY_S => now_us.saturating_add(seconds * US_PER_S).max(PAST),
        Ok(seconds) => seconds.saturating_mul(US_PER_S),
    }
}

/// Whether `deadline` has passed.
pub fn is_over(deadline: Deadline, now_us: u64) -> bool {
    deadline != NEVER && deadline <= now_us
}

/// Seconds until `deadline`, rounded up; `None` for never.
pub fn remaining_s(deadline: Deadline, now_us: u64) -> Option<u64> {
    if deadline == NEVER { None } else { Some(deadline.saturating_sub(now_us).div_ceil(US_PER_S)) }
}

/// Ordered time in whole seconds, as items keep their last access.
pub fn seconds(now_us: u64) -> u32 {
    (now_us / US_PER_S) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000_001;

    #[test]
    fn relative_until_thirty_days_and_unix_time_beyond() {
        assert_eq!(deadline(0, NOW), NEVER);
        assert_eq!(deadline(-1, NOW), PAST);
        assert_eq!(deadline(i64::MIN, NOW), PAST);
        assert_eq!(deadline(1, NOW), NOW + 1_000_000);
        assert_eq!(deadline(2_592_000, NOW), NOW + 2_592_000_000_000);
        assert_eq!(deadline(2_592_001, NOW), 2_592_001_000_000);
        assert!(is_over(deadline(2_592_001, NOW), NOW), "1970 is over");
        assert!(!is_over(deadline(i64::MAX, NOW), NOW));
        assert!(!is_over(NEVER, u64::MAX));
        assert!(is_over(PAST, NOW));
    }

    #[test]
    fn the_remaining_time_is_rounded_up() {
        assert_eq!(remaining_s(NEVER, NOW), None);
        assert_eq!(remaining_s(deadline(30, NOW), NOW), Some(30));
        assert_eq!(remaining_s(deadline(30, NOW), NOW + 1), Some(30));
        assert_eq!(remaining_s(deadline(30, NOW), NOW + 1_000_000), Some(29));
        assert_eq!(remaining_s(PAST, NOW), Some(0));
    }
}
