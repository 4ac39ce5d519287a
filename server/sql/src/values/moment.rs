//! Dates and times, which are kept as PostgreSQL writes them in UTC, so that their texts sort as they do.
//!
//! Years 1 to 9999 only, whose texts have one length. No time zone's rules are used: they change, and two hosts might
//! know different ones.

use jiff::Span;
use jiff::civil::{self, Date};
use rusqlite::types::ValueRef;

use super::{bad_syntax, is_space, misfit, stored_text, type_family};
use crate::error::SqlError;
use crate::types::PgType;

/// Microseconds of a day.
pub const DAY_US: i64 = 86_400_000_000;
/// PostgreSQL counts days and microseconds from here.
const EPOCH: Date = civil::date(2000, 1, 1);
/// Days from there to the first one and the last one that are supported.
const DAYS: std::ops::RangeInclusive<i64> = -730_119..=2_921_939;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// The parts of a text that says when something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Days since 1 January 2000.
    pub days: Option<i64>,
    /// Microseconds since the day began; a whole day for 24:00.
    pub time_us: Option<i64>,
    /// Seconds that the clock is ahead of UTC.
    pub ahead_s: Option<i64>,
}

/// Days since 1 January 2000.
pub fn days_of_date(date: Date) -> i64 {
    i64::from(EPOCH.until(date).map_or(0, |span| span.get_days()))
}

/// The day so many days after 1 January 2000, in years 1 to 9999.
pub fn date_of(days: i64) -> Option<Date> {
    if !DAYS.contains(&days) {
        return None;
    }
    EPOCH.checked_add(Span::new().try_days(days).ok()?).ok()
}

/// A date: `YYYY-MM-DD`.
pub fn date_text(days: i64) -> Option<String> {
    let date = date_of(days)?;
    Some(format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day()))
}

/// A time of day: `HH:MM:SS`, and a fraction without zeros at its end.
pub fn time_text(time_us: i64) -> String {
    let (seconds, fraction) = (time_us / 1_000_000, time_us % 1_000_000);
    let whole = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction == 0 {
        return whole;
    }
    format!("{whole}.{fraction:06}").trim_end_matches('0').to_owned()
}

/// Microseconds since the beginning of 2000 as a `timestamp`; none outside of years 1 to 9999.
pub fn timestamp_text(us: i64) -> Option<String> {
    let date = date_text(us.div_euclid(DAY_US))?;
    Some(format!("{date} {}", time_text(us.rem_euclid(DAY_US))))
}

/// The same as a `timestamptz`.
pub fn timestamptz_text(us: i64) -> Option<String> {
    timestamp_text(us).map(|text| text + "+00")
}

/// The microseconds of a text that has a date and perhaps a time, in UTC if it says how far ahead its clock is.
///
/// # Errors
/// 22007 if it has none.
pub fn timestamp_of(text: &str) -> Result<i64, SqlError> {
    Moment::parse(text, PgType::Timestamptz)?.since_epoch_us(text, PgType::Timestamptz)
}

/// A stored value of such a type.
pub fn stored(value: ValueRef<'_>, of: PgType) -> Result<Moment, SqlError> {
    let text = stored_text(value, of)?;
    let moment = Moment::parse(text, of).map_err(|_| misfit(value, of))?;
    let has_parts = match of {
        PgType::Time => moment.time_us.is_some(),
        _ => moment.days.is_some(),
    };
    if has_parts { Ok(moment) } else { Err(misfit(value, of)) }
}

fn out_of_range(text: &str) -> SqlError {
    SqlError::plain("22008", format!("date/time field value out of range: \"{text}\""))
}

impl Moment {
    /// ISO 8601, with a blank or a T between date and time, each of which may be missing.
    ///
    /// # Errors
    /// 22007, 22008; 0A000 for what PostgreSQL reads and this does not.
    pub fn parse(text: &str, of: PgType) -> Result<Self, SqlError> {
        let trimmed = text.trim_matches(is_space);
        let mut cursor = Cursor { rest: trimmed.as_bytes(), text };
        let mut moment = Moment::default();
        if !cursor.begins_with_time() {
            let Some(days) = cursor.date()? else {
                return Err(refuse(trimmed, text, of));
            };
            moment.days = Some(days);
            let is_separated = cursor.blanks() | cursor.take(b'T') | cursor.take(b't');
            if !is_separated || !cursor.begins_with_time() {
                return cursor.end(moment, of);
            }
        }
        moment.time_us = Some(cursor.time(of)?);
        cursor.blanks();
        moment.ahead_s = cursor.offset()?;
        cursor.end(moment, of)
    }

    /// Microseconds since the beginning of 2000, in UTC.
    ///
    /// # Errors
    /// If there is no date, or one out of range.
    pub fn since_epoch_us(&self, text: &str, of: PgType) -> Result<i64, SqlError> {
        let days = self.days.ok_or_else(|| bad_syntax("22007", of, text))?;
        let us = days * DAY_US + self.time_us.unwrap_or(0);
        let us = if of == PgType::Timestamptz { us - self.ahead_s.unwrap_or(0) * 1_000_000 } else { us };
        if DAYS.contains(&us.div_euclid(DAY_US)) { Ok(us) } else { Err(out_of_range(text)) }
    }

    /// As a value of the type is kept; `text` is where it comes from, for errors.
    ///
    /// # Errors
    /// If a part is missing or out of range.
    pub fn text(&self, text: &str, of: PgType) -> Result<String, SqlError> {
        let result = match of {
            PgType::Date => {
                let days = self.days.ok_or_else(|| bad_syntax("22007", of, text))?;
                date_text(days)
            }
            PgType::Time => Some(time_text(self.time_us.ok_or_else(|| bad_syntax("22007", of, text))?)),
            PgType::Timestamptz => timestamptz_text(self.since_epoch_us(text, of)?),
            _ => timestamp_text(self.since_epoch_us(text, of)?),
        };
        result.ok_or_else(|| out_of_range(text))
    }
}

/// Why a text that does not begin with a date or a time is none.
fn refuse(trimmed: &str, text: &str, of: PgType) -> SqlError {
    let word = trimmed.to_ascii_lowercase();
    let hint = match word.as_str() {
        "now" | "today" | "tomorrow" | "yesterday" | "allballs" | "epoch" => {
            "Use now() or current_date, or write the date."
        }
        "infinity" | "-infinity" => "Use NULL, or the year 9999.",
        _ if MONTHS.iter().any(|month| word.contains(month)) && word.bytes().any(|b| b.is_ascii_digit()) => {
            "Write dates as YYYY-MM-DD."
        }
        _ if word.contains('/') => "Write dates as YYYY-MM-DD.",
        _ => return bad_syntax("22007", of, text),
    };
    SqlError::unsupported(format!("{} \"{text}\" is not supported", type_family(of)), hint)
}

/// What is still to be read of a text.
struct Cursor<'a> {
    rest: &'a [u8],
    text: &'a str,
}

impl Cursor<'_> {
    fn take(&mut self, byte: u8) -> bool {
        let found = self.rest.first() == Some(&byte);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    /// Digits, how many and their number; at most nine count.
    fn digits(&mut self) -> Option<(usize, i64)> {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
        (1..=9).contains(&count).then_some((count, number))
    }

    fn blanks(&mut self) -> bool {
        let before = self.rest.len();
        self.rest = self.rest.trim_ascii_start();
        self.rest.len() < before
    }

    /// One or two digits and a colon.
    fn begins_with_time(&self) -> bool {
        matches!(self.rest, [b'0'..=b'9', b':', ..] | [b'0'..=b'9', b'0'..=b'9', b':', ..])
    }

    /// `YYYY-MM-DD` or `YYYYMMDD`, as days; none for what is written otherwise.
    fn date(&mut self) -> Result<Option<i64>, SqlError> {
        let Some((length, first)) = self.digits() else { return Ok(None) };
        let (year, month, day) = if length == 8 {
            (first / 10_000, first / 100 % 100, first % 100)
        } else {
            if length < 3 || !self.take(b'-') {
                return Ok(None);
            }
            let Some((_, month)) = self.digits() else { return Ok(None) };
            if !self.take(b'-') {
                return Ok(None);
            }
            let Some((_, day)) = self.digits() else { return Ok(None) };
            (first, month, day)
        };
        if year > 9999 {
            let hint = "Years are 1 to 9999.";
            return Err(SqlError::unsupported(
                format!("the year of \"{}\" is not supported", self.text),
                hint,
            ));
        }
        let date = Date::new(year as i16, month.min(99) as i8, day.min(99) as i8).ok();
        match date.filter(|_| year > 0) {
            Some(date) => Ok(Some(days_of_date(date))),
            None => Err(out_of_range(self.text)),
        }
    }

    /// `HH:MM`, `HH:MM:SS`, `HH:MM:SS.ffffff`, as microseconds: more digits are rounded.
    fn time(&mut self, of: PgType) -> Result<i64, SqlError> {
        let text = self.text;
        let error = || bad_syntax("22007", of, text);
        let Some((_, hours)) = self.digits() else { return Err(error()) };
        self.take(b':');
        let Some((2, minutes)) = self.digits() else { return Err(error()) };
        let (mut seconds, mut fraction_us) = (0, 0);
        if self.take(b':') {
            let Some((2, number)) = self.digits() else { return Err(error()) };
            seconds = number;
            if self.take(b'.') {
                fraction_us = self.fraction_us();
            }
        }
        let us = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction_us;
        if minutes > 59 || seconds > 60 || us > DAY_US {
            return Err(out_of_range(text));
        }
        Ok(us)
    }

    fn fraction_us(&mut self) -> i64 {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        let digit = |at: usize| digits.get(at).map_or(0, |digit| i64::from(digit - b'0'));
        let us = (0..6).fold(0, |sum, at| sum * 10 + digit(at));
        us + i64::from(digit(6) >= 5)
    }

    /// `Z`, `UTC`, `+HH`, `-HH:MM`, `+HHMM`, `+HH:MM:SS`, as seconds.
    fn offset(&mut self) -> Result<Option<i64>, SqlError> {
        for word in ["utc", "gmt", "zulu", "z"] {
            if self.rest.eq_ignore_ascii_case(word.as_bytes()) {
                self.rest = &[];
                return Ok(Some(0));
            }
        }
        let sign = match self.rest.first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Ok(None),
        };
        self.rest = &self.rest[1..];
        let Some((length, first)) = self.digits() else { return Ok(None) };
        let (mut hours, mut minutes, mut seconds) = (first, 0, 0);
        if length == 4 {
            (hours, minutes) = (first / 100, first % 100);
        } else if self.take(b':') {
            minutes = self.digits().map_or(99, |(_, number)| number);
            if self.take(b':') {
                seconds = self.digits().map_or(99, |(_, number)| number);
            }
        }
        if hours > 15 || minutes > 59 || seconds > 59 {
            let message = format!("time zone displacement out of range: \"{}\"", self.text);
            return Err(SqlError::plain("22009", message));
        }
        Ok(Some(sign * ((hours * 60 + minutes) * 60 + seconds)))
    }

    /// Nothing may follow.
    fn end(&mut self, moment: Moment, of: PgType) -> Result<Moment, SqlError> {
        self.blanks();
        if self.rest.is_empty() {
            return Ok(moment);
        }
        let after = String::from_utf8_lossy(self.rest).to_ascii_lowercase();
        let (what, hint) = match after.as_str() {
            "bc" | "ad" => ("an era", "Years are 1 to 9999."),
            "am" | "pm" => ("half a day", "Write hours 0 to 23."),
            _ if after.len() > 2 && after.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'/') => {
                ("a time zone's name", "Write an offset from UTC: +01, -05:30.")
            }
            _ => return Err(bad_syntax("22007", of, self.text)),
        };
        Err(SqlError::unsupported(format!("{what} in \"{}\" is not supported", self.text), hint))
    }
}
