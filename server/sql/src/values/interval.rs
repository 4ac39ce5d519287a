//! Lengths of time: `INTERVAL '1 day 2 hours'`.

use crate::error::SqlError;
use crate::values::{DAY_US, Decimal};

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;

/// Months, days and microseconds, which are added in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Whole months.
    pub months: i64,
    /// Whole days.
    pub days: i64,
    /// The rest, in microseconds.
    pub us: i64,
}

impl Interval {
    /// `1 day`, `-2 hours 30 minutes`, `1 year 2 mons 3 days 04:05:06.5`, and `ago` at the end.
    ///
    /// # Errors
    /// 22007 if it is none, 22015 if it is too large.
    pub fn parse(text: &str) -> Result<Self, SqlError> {
        let bad = || SqlError::plain("22007", format!("invalid input syntax for type interval: \"{text}\""));
        let lower = text.to_ascii_lowercase();
        let (body, is_ago) = match lower.trim().strip_suffix("ago") {
            Some(body) => (body, true),
            None => (lower.as_str(), false),
        };
        let spaced = spaced(body.trim().trim_start_matches('@'));
        let mut words = spaced.split_ascii_whitespace().peekable();
        let mut interval = Interval::default();
        if words.peek().is_none() {
            return Err(bad());
        }
        while let Some(word) = words.next() {
            let part = if word.contains(':') {
                clock(word).ok_or_else(bad)?
            } else {
                let unit = words.next_if(|next| next.starts_with(|c: char| c.is_ascii_alphabetic()));
                measured(word, unit.unwrap_or("seconds")).ok_or_else(bad)?
            };
            interval = interval.plus(part).ok_or_else(|| too_large(text))?;
        }
        if is_ago { interval.times(-1).ok_or_else(|| too_large(text)) } else { Ok(interval) }
    }

    fn plus(self, other: Interval) -> Option<Self> {
        Some(Interval {
            months: self.months.checked_add(other.months)?,
            days: self.days.checked_add(other.days)?,
            us: self.us.checked_add(other.us)?,
        })
    }

    fn times(self, by: i64) -> Option<Self> {
        Some(Interval {
            months: self.months.checked_mul(by)?,
            days: self.days.checked_mul(by)?,
            us: self.us.checked_mul(by)?,
        })
    }
}

fn too_large(text: &str) -> SqlError {
    SqlError::plain("22015", format!("interval field value out of range: \"{text}\""))
}

/// With a blank between a number and the unit that follows it.
fn spaced(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut before = ' ';
    for character in text.chars() {
        if before.is_ascii_digit() && character.is_ascii_alphabetic() {
            out.push(' ');
        }
        out.push(character);
        before = character;
    }
    out
}

/// A number in millionths, which it must have exactly.
fn in_millionths(word: &str) -> Option<i64> {
    let decimal = Decimal::input(word).ok()?.rounded(6);
    decimal.shifted(6).whole()
}

/// `HH:MM`, `HH:MM:SS.ffffff`, with a sign or without.
fn clock(word: &str) -> Option<Interval> {
    let (sign, rest) = match word.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, word.strip_prefix('+').unwrap_or(word)),
    };
    let mut parts = rest.split(':');
    let mut number = || parts.next().map(in_millionths);
    let (hours, minutes, seconds) = (number()??, number()??, number().unwrap_or(Some(0))?);
    if parts.next().is_some()
        || minutes >= 60_000_000
        || seconds >= 60_000_000
        || hours.min(minutes).min(seconds) < 0
    {
        return None;
    }
    let us = hours.checked_mul(3600)?.checked_add(minutes * 60 + seconds)?;
    Some(Interval { us: us * sign, ..Interval::default() })
}

/// A number of units. Parts of months are not defined, parts of days are hours.
fn measured(number: &str, unit: &str) -> Option<Interval> {
    let millionths = in_millionths(number)?;
    let unit = unit.trim_end_matches(',');
    let of_us = |us: i64| {
        let exact = i128::from(millionths) * i128::from(us) / 1_000_000;
        Some(Interval { us: i64::try_from(exact).ok()?, ..Interval::default() })
    };
    let of_days = |days: i64| {
        let all = millionths.checked_mul(days)?;
        let (days, part) = (all / 1_000_000, all % 1_000_000);
        Some(Interval { days, us: part * (DAY_US / 1_000_000), months: 0 })
    };
    let of_months = |months: i64| {
        let all = millionths.checked_mul(months)?;
        (all % 1_000_000 == 0).then_some(Interval { months: all / 1_000_000, ..Interval::default() })
    };
    match unit {
        "microsecond" | "microseconds" | "us" | "usec" => of_us(1),
        "millisecond" | "milliseconds" | "ms" | "msec" => of_us(1000),
        "second" | "seconds" | "sec" | "secs" | "s" => of_us(SECOND_US),
        "minute" | "minutes" | "min" | "mins" | "m" => of_us(MINUTE_US),
        "hour" | "hours" | "hr" | "hrs" | "h" => of_us(HOUR_US),
        "day" | "days" | "d" => of_days(1),
        "week" | "weeks" | "w" => of_days(7),
        "month" | "months" | "mon" | "mons" => of_months(1),
        "year" | "years" | "yr" | "yrs" | "y" => of_months(12),
        "decade" | "decades" => of_months(120),
        "century" | "centuries" => of_months(1200),
        _ => None,
    }
}
