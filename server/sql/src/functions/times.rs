//! Functions of dates and times, which are text in UTC: parts of them, their beginnings, and intervals added.

use jiff::civil::Date;
use rusqlite::types::Value;

use super::{Args, FunctionResult, Strict};
use crate::error::SqlError;
use crate::types::PgType;
use crate::values::{
    DAY_US, Decimal, Interval, Moment, date_of, date_text, days_of_date, time_text, timestamp_text,
    timestamptz_text,
};

/// Microseconds from 1970 to 2000.
const EPOCH_US: i64 = 946_684_800_000_000;
const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;

/// The functions.
pub const FUNCTIONS: &[Strict] = &[
    ("extract_pg", 2, extract),
    ("date_trunc_pg", 2, truncate),
    ("add_days_pg", 2, |args| {
        let days = days_of(args, 0)?.checked_add(args.integer(1)?);
        days.and_then(date_text).map(Value::Text).ok_or_else(|| out_of_range("date"))
    }),
    ("to_timestamp", 1, |args| {
        let us = (args.real(0)? * 1e6).round_ties_even();
        let us = if us.abs() < 1e18 { us as i64 - EPOCH_US } else { i64::MAX };
        timestamptz_text(us).map(Value::Text).ok_or_else(|| out_of_range("timestamp"))
    }),
    ("make_date", 3, |args| {
        let part = |at| Ok(i16::try_from(args.integer(at)?).unwrap_or(-1));
        let (year, month, day) = (part(0)?, part(1)?, part(2)?);
        let date = match (i8::try_from(month), i8::try_from(day)) {
            (Ok(month), Ok(day)) if year > 0 => Date::new(year, month, day).ok(),
            _ => None,
        };
        let error =
            || SqlError::plain("22008", format!("date field value out of range: {year}-{month:02}-{day:02}"));
        date.and_then(|date| date_text(days_of_date(date))).map(Value::Text).ok_or_else(error)
    }),
];

fn out_of_range(what: &str) -> SqlError {
    SqlError::plain("22008", format!("{what} out of range"))
}

/// The time of the request.
pub fn now(us: u64) -> Result<String, SqlError> {
    let us = i64::try_from(us).unwrap_or(i64::MAX).saturating_sub(EPOCH_US);
    timestamptz_text(us).ok_or_else(|| out_of_range("timestamp"))
}

/// A stored value, of which its text tells the type.
struct When {
    of: PgType,
    /// Since the beginning of 2000; of a time, since the day began.
    us: i64,
    text: String,
}

fn when(args: &Args<'_>, at: usize) -> Result<When, SqlError> {
    let text = args.text(at)?.into_owned();
    let moment = Moment::parse(&text, PgType::Timestamptz)?;
    let of = match (moment.days, moment.time_us, moment.ahead_s) {
        (Some(_), None, _) => PgType::Date,
        (Some(_), _, Some(_)) => PgType::Timestamptz,
        (Some(_), _, None) => PgType::Timestamp,
        (None, ..) => PgType::Time,
    };
    let us = match moment.time_us {
        Some(us) if of == PgType::Time => us,
        _ => moment.since_epoch_us(&text, of)?,
    };
    Ok(When { of, us, text })
}

impl When {
    fn date(&self) -> Result<Date, SqlError> {
        if self.of == PgType::Time {
            return Err(self.lacks("date"));
        }
        date_of(self.us.div_euclid(DAY_US)).ok_or_else(|| out_of_range("timestamp"))
    }

    fn lacks(&self, part: &str) -> SqlError {
        SqlError::plain("0A000", format!("unit \"{part}\" not supported for \"{}\"", self.text))
    }

    /// Of its type, with another time.
    fn with(&self, us: i64) -> FunctionResult {
        let text = match self.of {
            PgType::Time => Some(time_text(us.rem_euclid(DAY_US))),
            PgType::Timestamptz => timestamptz_text(us),
            _ => timestamp_text(us),
        };
        text.map(Value::Text).ok_or_else(|| out_of_range("timestamp"))
    }
}

fn days_of(args: &Args<'_>, at: usize) -> Result<i64, SqlError> {
    let when = when(args, at)?;
    when.date()?;
    Ok(when.us.div_euclid(DAY_US))
}

/// A number with six digits behind the point.
fn millionths(us: i64) -> FunctionResult {
    let digits = us.unsigned_abs().to_string().bytes().map(|byte| byte - b'0').collect();
    let decimal = Decimal::from_digits(us < 0, digits, 6);
    match decimal.text(0).parse() {
        Ok(whole) => Ok(Value::Integer(whole)),
        Err(_) => Ok(Value::Real(us as f64 / 1e6)),
    }
}

/// A part of a date or time: `extract_pg('year', x)`.
fn extract(args: &Args<'_>) -> FunctionResult {
    let (part, when) = (args.text(0)?.to_ascii_lowercase(), when(args, 1)?);
    let time = when.us.rem_euclid(DAY_US);
    if when.of == PgType::Date && matches!(part.as_str(), "hour" | "minute" | "second" | "timezone") {
        return Err(when.lacks(&part));
    }
    let number = match part.as_str() {
        "hour" | "hours" => time / HOUR_US,
        "minute" | "minutes" => time / MINUTE_US % 60,
        "second" | "seconds" => return millionths(time % MINUTE_US),
        "millisecond" | "milliseconds" => return millionths(time % MINUTE_US * 1000),
        "microsecond" | "microseconds" => time % MINUTE_US,
        "epoch" if when.of == PgType::Time => return millionths(when.us),
        "epoch" => return millionths(when.us + EPOCH_US),
        "timezone" | "timezone_hour" | "timezone_minute" if when.of == PgType::Timestamptz => 0,
        part => of_date(part, &when)?,
    };
    Ok(Value::Integer(number))
}

fn of_date(part: &str, when: &When) -> Result<i64, SqlError> {
    let date = when.date()?;
    let year = i64::from(date.year());
    Ok(match part {
        "year" | "years" => year,
        "month" | "months" => date.month().into(),
        "day" | "days" => date.day().into(),
        "quarter" => (i64::from(date.month()) + 2) / 3,
        "dow" => date.weekday().to_sunday_zero_offset().into(),
        "isodow" => date.weekday().to_monday_one_offset().into(),
        "doy" => date.day_of_year().into(),
        "week" => date.iso_week_date().week().into(),
        "isoyear" => date.iso_week_date().year().into(),
        "decade" => year / 10,
        "century" => (year + 99) / 100,
        "millennium" => (year + 999) / 1000,
        "julian" => when.us.div_euclid(DAY_US) + 2_451_545,
        part => {
            let message = format!("unit \"{part}\" not recognized for type timestamp with time zone");
            return Err(SqlError::plain("22023", message));
        }
    })
}

/// The beginning of a unit: `date_trunc_pg('month', x)`.
fn truncate(args: &Args<'_>) -> FunctionResult {
    let (unit, mut when) = (args.text(0)?.to_ascii_lowercase(), when(args, 1)?);
    if when.of == PgType::Date {
        when.of = PgType::Timestamptz;
    }
    let date = when.date()?;
    let first = |year: i64, month: i8| {
        let date = Date::new(year as i16, month, 1).ok().filter(|date| date.year() > 0);
        date.map(|date| days_of_date(date) * DAY_US).ok_or_else(|| out_of_range("timestamp"))
    };
    let year = i64::from(date.year());
    let us = match unit.as_str() {
        "microsecond" | "microseconds" => when.us,
        "millisecond" | "milliseconds" => when.us.div_euclid(1000) * 1000,
        "second" | "seconds" => when.us.div_euclid(SECOND_US) * SECOND_US,
        "minute" | "minutes" => when.us.div_euclid(MINUTE_US) * MINUTE_US,
        "hour" | "hours" => when.us.div_euclid(HOUR_US) * HOUR_US,
        "day" | "days" => when.us.div_euclid(DAY_US) * DAY_US,
        "week" => {
            let days = when.us.div_euclid(DAY_US) - i64::from(date.weekday().to_monday_zero_offset());
            days * DAY_US
        }
        "month" | "months" => first(year, date.month())?,
        "quarter" => first(year, (date.month() - 1) / 3 * 3 + 1)?,
        "year" | "years" => first(year, 1)?,
        "decade" => first(year / 10 * 10, 1)?,
        "century" => first((year - 1) / 100 * 100 + 1, 1)?,
        "millennium" => first((year - 1) / 1000 * 1000 + 1, 1)?,
        unit => {
            let message = format!("unit \"{unit}\" not recognized for type timestamp with time zone");
            return Err(SqlError::plain("22023", message));
        }
    };
    when.with(us)
}

/// The first argument, a point in time, so many months, days and microseconds later.
pub fn moved(args: &Args<'_>, interval: Interval) -> FunctionResult {
    let when = when(args, 0)?;
    let error = || out_of_range("timestamp");
    if when.of == PgType::Time {
        return when.with(when.us.checked_add(interval.us).ok_or_else(error)?);
    }
    let date = when.date()?;
    let months = i64::from(date.year()) * 12 + i64::from(date.month()) - 1;
    let months = months
        .checked_add(interval.months)
        .filter(|months| (12..120_000).contains(months))
        .ok_or_else(error)?;
    let first = Date::new((months / 12) as i16, (months % 12 + 1) as i8, 1).map_err(|_| error())?;
    // The 31st of a month with 30 days is its last.
    let day = date.day().min(first.days_in_month());
    let days = days_of_date(first) + i64::from(day) - 1;
    let us = days
        .checked_add(interval.days)
        .and_then(|days| days.checked_mul(DAY_US))
        .and_then(|us| us.checked_add(when.us.rem_euclid(DAY_US)))
        .and_then(|us| us.checked_add(interval.us));
    when.with(us.ok_or_else(error)?)
}
