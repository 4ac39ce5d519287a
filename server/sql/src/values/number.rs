//! Numbers as PostgreSQL reads and writes them: integers in their range, the shortest text of a real number, and
//! decimals of 15 digits, which SQLite keeps as integers or real numbers without a change.

use rusqlite::types::Value;

use super::{bad_syntax, is_space, type_family};
use crate::error::SqlError;
use crate::types::{MAX_PRECISION, PgType};

/// Digits that a number may be written with: more are an attack on memory.
const MAX_DIGITS: usize = 131_072;

fn bounds(of: PgType) -> (i64, i64) {
    match of {
        PgType::Int2 => (i16::MIN.into(), i16::MAX.into()),
        PgType::Int4 => (i32::MIN.into(), i32::MAX.into()),
        PgType::Oid => (0, u32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    }
}

/// The number, if the type has it.
pub fn in_range(number: i64, of: PgType) -> Result<i64, SqlError> {
    let (least, most) = bounds(of);
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(out_of_range(of))
}

pub fn out_of_range(of: PgType) -> SqlError {
    SqlError::plain("22003", format!("{} out of range", type_family(of)))
}

pub fn integer(text: &str, of: PgType) -> Result<i64, SqlError> {
    let trimmed = text.trim_matches(is_space);
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad_syntax("22P02", of, text));
    }
    let (least, most) = bounds(of);
    match trimmed.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        // PostgreSQL reads an oid as C's strtoul does: -1 is the largest.
        Ok(number) if of == PgType::Oid && number >= i32::MIN.into() && number < 0 => {
            Ok(i64::from(number as u32))
        }
        _ => {
            let message = format!("value \"{text}\" is out of range for type {}", type_family(of));
            Err(SqlError::plain("22003", message))
        }
    }
}

pub fn float(text: &str, of: PgType) -> Result<f64, SqlError> {
    let trimmed = text.trim_matches(is_space);
    let number: f64 = trimmed.parse().map_err(|_| bad_syntax("22P02", of, text))?;
    let is_digits = trimmed.bytes().any(|byte| byte.is_ascii_digit());
    let mantissa = trimmed.split(['e', 'E']).next().unwrap_or("");
    let is_zero = !mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    let single = number as f32;
    let (is_lost, is_infinite) = match of {
        PgType::Real => (single == 0.0, single.is_infinite()),
        _ => (number == 0.0, number.is_infinite()),
    };
    if is_digits && (is_infinite || is_lost && !is_zero) {
        let message = format!("\"{trimmed}\" is out of range for type {}", type_family(of));
        return Err(SqlError::plain("22003", message));
    }
    if of == PgType::Real { not_nan(f64::from(single)) } else { not_nan(number) }
}

/// SQLite would keep NULL instead.
pub fn not_nan(number: f64) -> Result<f64, SqlError> {
    if number.is_nan() {
        return Err(SqlError::unsupported("NaN is not supported", "Use NULL for a number that is none."));
    }
    Ok(number)
}

/// A number as PostgreSQL writes a `double precision`: the shortest text that gives the same number, with an exponent
/// from 1e15 on, and below 1e-4.
pub fn real(number: f64) -> String {
    match special(number) {
        Some(word) => word.to_owned(),
        None => with_exponent(&format!("{number:e}"), &format!("{number}"), 15),
    }
}

/// The same of a `real`, whose exponents begin at 1e6.
pub fn real_single(number: f32) -> String {
    match special(number.into()) {
        Some(word) => word.to_owned(),
        None => with_exponent(&format!("{number:e}"), &format!("{number}"), 6),
    }
}

fn special(number: f64) -> Option<&'static str> {
    match () {
        () if number.is_nan() => Some("NaN"),
        () if number.is_infinite() => Some(if number > 0.0 { "Infinity" } else { "-Infinity" }),
        () => None,
    }
}

fn with_exponent(shortest: &str, plain: &str, digits: i32) -> String {
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent if (-4..digits).contains(&exponent) => plain.to_owned(),
        exponent if exponent < 0 => format!("{mantissa}e-{:02}", -exponent),
        exponent => format!("{mantissa}e+{exponent:02}"),
    }
}

/// A decimal number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    /// Of values 0 to 9, without zeros at the beginning; none for zero.
    digits: Vec<u8>,
    /// How many digits stand behind the point. They may be more than there are: 0.01 has two, of which one is kept.
    scale: usize,
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Self {
        let digits = number.unsigned_abs().to_string().bytes().map(|byte| byte - b'0').collect();
        Decimal { negative: number < 0, digits, scale: 0 }.without_leading_zeros()
    }
}

impl Decimal {
    /// From its digits, of which `scale` stand behind the point.
    pub fn from_digits(negative: bool, digits: Vec<u8>, scale: usize) -> Self {
        Decimal { negative, digits, scale }.without_leading_zeros()
    }

    fn without_leading_zeros(mut self) -> Self {
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
        self.negative &= !self.digits.is_empty();
        self
    }

    /// PostgreSQL's text of a `numeric`.
    ///
    /// # Errors
    /// 22P02; 22003 for more digits than PostgreSQL has; 0A000 for NaN and infinities.
    pub fn input(text: &str) -> Result<Self, SqlError> {
        let of = PgType::Numeric { precision: MAX_PRECISION, scale: 0 };
        let trimmed = text.trim_matches(is_space);
        let error = || bad_syntax("22P02", of, text);
        let (negative, rest) = match trimmed.as_bytes().first() {
            Some(b'-') => (true, &trimmed[1..]),
            Some(b'+') => (false, &trimmed[1..]),
            _ => (false, trimmed),
        };
        if ["nan", "inf", "infinity"].iter().any(|word| word.eq_ignore_ascii_case(rest)) {
            let hint = "Use NULL, or double precision for infinities.";
            return Err(SqlError::unsupported(format!("numeric {trimmed} is not supported"), hint));
        }
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(error());
                }
                (mantissa, exponent.parse::<i32>().unwrap_or(i32::MAX))
            }
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = whole.bytes().chain(fraction.bytes());
        if whole.len() + fraction.len() == 0 || !all.clone().all(|byte| byte.is_ascii_digit()) {
            return Err(error());
        }
        if exponent.unsigned_abs() as usize > MAX_DIGITS || whole.len() + fraction.len() > MAX_DIGITS {
            return Err(SqlError::plain("22003", "value overflows numeric format"));
        }
        let digits: Vec<u8> = all.map(|byte| byte - b'0').collect();
        let mut decimal = Decimal { negative, digits, scale: fraction.len() }.without_leading_zeros();
        if exponent >= 0 {
            return Ok(decimal.shifted(exponent as usize));
        }
        decimal.scale += exponent.unsigned_abs() as usize;
        Ok(decimal)
    }

    /// From a real number that stands for a decimal: its first 15 digits.
    ///
    /// # Errors
    /// 22003 if `scale` digits behind the point are more than it has exactly, 0A000 for infinities.
    pub fn from_real(number: f64, scale: u8) -> Result<Self, SqlError> {
        if !number.is_finite() {
            return Err(SqlError::unsupported("numeric has no infinity here", "Use double precision."));
        }
        if number.abs() * 10_f64.powi(scale.into()) >= 1e15 {
            return Err(too_many_digits());
        }
        Decimal::input(&format!("{number:.14e}"))
    }

    /// Rounded to so many digits behind the point, half away from zero.
    pub fn rounded(mut self, scale: usize) -> Self {
        if self.scale <= scale {
            return self;
        }
        let dropped = self.scale - scale;
        self.scale = scale;
        let Some(kept) = self.digits.len().checked_sub(dropped) else {
            self.digits.clear();
            return self.without_leading_zeros();
        };
        let up = self.digits[kept] >= 5;
        self.digits.truncate(kept);
        if up {
            let nines = self.digits.iter().rev().take_while(|digit| **digit == 9).count();
            let at = kept - nines;
            self.digits[at..].fill(0);
            match at.checked_sub(1) {
                Some(last) => self.digits[last] += 1,
                None => self.digits.insert(0, 1),
            }
        }
        self.without_leading_zeros()
    }

    /// Times ten to the power of `places`.
    pub fn shifted(mut self, places: usize) -> Self {
        let zeros = places.saturating_sub(self.scale);
        self.scale = self.scale.saturating_sub(places);
        if !self.digits.is_empty() {
            self.digits.resize(self.digits.len() + zeros, 0);
        }
        self
    }

    /// Rounded to what `numeric(precision, scale)` holds.
    ///
    /// # Errors
    /// 22003 if it is too large.
    pub fn fit(self, precision: u8, scale: u8) -> Result<Self, SqlError> {
        let rounded = self.rounded(scale.into());
        let before_point = rounded.digits.len().saturating_sub(rounded.scale);
        let most = usize::from(precision.saturating_sub(scale));
        if before_point > most {
            let less = format!("must round to an absolute value less than 10^{most}");
            let hint = format!("A field with precision {precision}, scale {scale} {less}.");
            return Err(SqlError::new("22003", "numeric field overflow", &hint));
        }
        Ok(rounded)
    }

    /// Without zeros at the end of the digits behind the point.
    fn shortest(mut self) -> Self {
        while self.scale > 0 && self.digits.last().is_none_or(|digit| *digit == 0) {
            self.digits.pop();
            self.scale -= 1;
        }
        self
    }

    /// As SQLite keeps it.
    ///
    /// # Errors
    /// 22003 if it has more than 15 digits.
    pub fn value(self) -> Result<Value, SqlError> {
        let short = self.shortest();
        if short.digits.len() > MAX_PRECISION.into() || short.scale > 300 {
            return Err(too_many_digits());
        }
        let text = short.text(0);
        let integer = text.parse().map(Value::Integer);
        integer.or_else(|_| text.parse().map(Value::Real)).map_err(|_| too_many_digits())
    }

    /// As a whole number, if it is one that an `i64` holds.
    pub fn whole(&self) -> Option<i64> {
        if self.scale > 0 { None } else { self.text(0).parse().ok() }
    }

    /// As text with at least `scale` digits behind the point, and more if it has more.
    pub fn text(&self, scale: u8) -> String {
        let mut short = self.clone().shortest();
        let missing = usize::from(scale).saturating_sub(short.scale);
        if !short.digits.is_empty() {
            short.digits.resize(short.digits.len() + missing, 0);
        }
        short.scale += missing;
        short.written()
    }

    /// As text with the digits behind the point that it has, zeros too.
    pub fn written(&self) -> String {
        let mut out = String::with_capacity(self.digits.len() + self.scale + 3);
        if self.negative {
            out.push('-');
        }
        let (whole, behind) = self.parts();
        if whole.is_empty() {
            out.push('0');
        }
        out.extend(whole.iter().map(|digit| char::from(b'0' + digit)));
        if self.scale > 0 {
            out.push('.');
            out.extend(std::iter::repeat_n('0', self.scale - behind.len()));
            out.extend(behind.iter().map(|digit| char::from(b'0' + digit)));
        }
        out
    }

    /// The digits before the point and those behind it, of which zeros at the beginning are left out.
    fn parts(&self) -> (&[u8], &[u8]) {
        self.digits.split_at(self.digits.len().saturating_sub(self.scale))
    }

    /// PostgreSQL's binary form, with at least `scale` digits behind the point.
    pub fn put_binary(&self, scale: u8, out: &mut Vec<u8>) {
        let text = self.text(scale);
        let text = text.trim_start_matches('-');
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let places = fraction.len();
        // Groups of four digits, counted from the point.
        let mut digits = vec![b'0'; (4 - whole.len() % 4) % 4];
        digits.extend_from_slice(whole.as_bytes());
        let mut weight = digits.len() as i16 / 4 - 1;
        digits.extend_from_slice(fraction.as_bytes());
        digits.resize(digits.len().next_multiple_of(4), b'0');
        let number =
            |group: &[u8]| group.iter().fold(0, |sum: u16, digit| sum * 10 + u16::from(digit - b'0'));
        let mut groups: Vec<u16> = digits.chunks(4).map(number).collect();
        while groups.last() == Some(&0) {
            groups.pop();
        }
        let zeros = groups.iter().take_while(|group| **group == 0).count();
        groups.drain(..zeros);
        weight = if groups.is_empty() { 0 } else { weight - zeros as i16 };
        let sign: u16 = if self.negative { 0x4000 } else { 0 };
        let head = [groups.len() as u16, weight as u16, sign, places as u16];
        head.iter().chain(&groups).for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    }
}

fn too_many_digits() -> SqlError {
    let message = format!("a numeric has at most {MAX_PRECISION} digits");
    SqlError::new("22003", message, "Round it, or use bigint for a smaller unit, or double precision.")
}
