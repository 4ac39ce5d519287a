//! Exponentials and logarithms from sums and products alone, which all processors compute alike; a library's may
//! differ from host to host. They are computed with twice the digits, so that rounding gives the nearest number, as
//! good libraries do.

use std::ops::{Add, Mul, Neg, Sub};

/// A number as the sum of two, the second of which is smaller than the last digit of the first.
#[derive(Clone, Copy, Debug)]
struct LongReal {
    high: f64,
    low: f64,
}

/// The natural logarithm of 2.
const LN2: LongReal = LongReal { high: std::f64::consts::LN_2, low: 2.319_046_813_846_299_6e-17 };
/// Terms of a series until they are too small to count: its ratio is below 1/8 from the start.
const TERMS: u32 = 24;

impl LongReal {
    const ZERO: LongReal = LongReal { high: 0.0, low: 0.0 };

    /// The exact sum of two numbers (D. E. Knuth).
    fn sum(a: f64, b: f64) -> Self {
        let high = a + b;
        let part = high - a;
        LongReal { high, low: (a - (high - part)) + (b - part) }
    }

    fn over(self, other: LongReal) -> Self {
        let first = self.high / other.high;
        let rest = self - other * LongReal::from(first);
        let second = rest.high / other.high;
        let rest = rest - other * LongReal::from(second);
        LongReal::sum(first, second) + LongReal::from(rest.high / other.high)
    }

    fn rounded(self) -> f64 {
        self.high + self.low
    }
}

impl From<f64> for LongReal {
    fn from(high: f64) -> Self {
        LongReal { high, low: 0.0 }
    }
}

impl Add for LongReal {
    type Output = LongReal;

    fn add(self, other: LongReal) -> LongReal {
        let (high, low) = (LongReal::sum(self.high, other.high), LongReal::sum(self.low, other.low));
        let first = LongReal::sum(high.high, high.low + low.high);
        LongReal::sum(first.high, first.low + low.low)
    }
}

impl Neg for LongReal {
    type Output = LongReal;

    fn neg(self) -> LongReal {
        LongReal { high: -self.high, low: -self.low }
    }
}

impl Sub for LongReal {
    type Output = LongReal;

    fn sub(self, other: LongReal) -> LongReal {
        self + -other
    }
}

impl Mul for LongReal {
    type Output = LongReal;

    fn mul(self, other: LongReal) -> LongReal {
        let high = self.high * other.high;
        // What the product lost when it was rounded: exact by the definition of this operation.
        let lost = self.high.mul_add(other.high, -high);
        LongReal::sum(high, lost + (self.high * other.low + self.low * other.high))
    }
}

/// 2 to a whole power, which may be too large or too small.
fn power_of_two(power: i32) -> f64 {
    match power {
        -1022..=1023 => f64::from_bits(((power + 1023) as u64) << 52),
        1024.. => f64::INFINITY,
        _ => 0.0,
    }
}

fn exp_of(x: LongReal) -> f64 {
    if x.high.is_nan() || x.high > 710.0 {
        return if x.high.is_nan() { x.high } else { f64::INFINITY };
    }
    if x.high < -746.0 {
        return 0.0;
    }
    let power = (x.high / LN2.high).round();
    let rest = x - LN2 * LongReal::from(power);
    let (mut sum, mut term) = (LongReal::from(1.0), LongReal::from(1.0));
    for step in 1..TERMS {
        term = (term * rest).over(LongReal::from(f64::from(step)));
        sum = sum + term;
    }
    // In two steps: the power alone may be out of range.
    let half = power as i32 / 2;
    sum.rounded() * power_of_two(half) * power_of_two(power as i32 - half)
}

fn ln_of(x: f64) -> LongReal {
    // A number too small for a full mantissa is made larger first.
    let (x, shift) = if x < f64::MIN_POSITIVE { (x * power_of_two(54), -54) } else { (x, 0) };
    let bits = x.to_bits();
    let mut power = (bits >> 52) as i32 - 1023 + shift;
    let mut mantissa = f64::from_bits(bits & (u64::MAX >> 12) | 1023 << 52);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        power += 1;
    }
    // Twice the area tangent.
    let ratio = LongReal::sum(mantissa, -1.0).over(LongReal::sum(mantissa, 1.0));
    let (square, mut odd, mut sum) = (ratio * ratio, ratio, LongReal::ZERO);
    for step in 0..TERMS {
        sum = sum + odd.over(LongReal::from(f64::from(2 * step + 1)));
        odd = odd * square;
    }
    sum + sum + LN2 * LongReal::from(f64::from(power))
}

/// e to the power of `x`.
pub fn exp(x: f64) -> f64 {
    exp_of(LongReal::from(x))
}

/// The natural logarithm of a number above 0.
pub fn ln(x: f64) -> f64 {
    if x.is_finite() { ln_of(x).rounded() } else { x }
}

/// The logarithm of a number above 0 to a base above 0 that is not 1.
pub fn log(base: f64, x: f64) -> f64 {
    if x.is_finite() && base.is_finite() { ln_of(x).over(ln_of(base)).rounded() } else { ln(x) / ln(base) }
}

/// A number above 0 to any power.
pub fn power(base: f64, exponent: f64) -> f64 {
    if base.is_finite() && exponent.is_finite() {
        return exp_of(ln_of(base) * LongReal::from(exponent));
    }
    exp(exponent * ln(base))
}
