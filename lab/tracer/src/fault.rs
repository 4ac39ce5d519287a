//! The seven fault types: one flipped bit at one dynamic instruction (Behrens et al., NSDI 2015, section 6;
//! as built and measured in SEI's fault model).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where the flipped bit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TracerFault {
    /// Control flow: the instruction pointer, before the instruction is executed.
    Cf,
    /// A register that the instruction has written.
    Wreg,
    /// The memory that it has written.
    Wval,
    /// The address of the memory that it writes.
    Waddr,
    /// The address of the memory that it reads.
    Raddr,
    /// A register that it reads; the wrong value stays.
    Rreg,
    /// The memory that it reads; the wrong value stays.
    Rval,
}

impl TracerFault {
    /// All of them, in the order of the tables.
    pub const ALL: [TracerFault; 7] = [
        TracerFault::Cf,
        TracerFault::Wreg,
        TracerFault::Wval,
        TracerFault::Waddr,
        TracerFault::Raddr,
        TracerFault::Rreg,
        TracerFault::Rval,
    ];

    /// Its bit in a set of faults.
    pub fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Its number, which separates its random streams from those of other types.
    pub fn number(self) -> u64 {
        self as u64
    }

    /// Its name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            TracerFault::Cf => "cf",
            TracerFault::Wreg => "wreg",
            TracerFault::Wval => "wval",
            TracerFault::Waddr => "waddr",
            TracerFault::Raddr => "raddr",
            TracerFault::Rreg => "rreg",
            TracerFault::Rval => "rval",
        }
    }
}

impl fmt::Display for TracerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TracerFault {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        TracerFault::ALL.into_iter().find(|fault| fault.name() == word).ok_or_else(|| {
            format!("there is no fault {word}; there are cf, wreg, wval, waddr, raddr, rreg and rval")
        })
    }
}

/// The range of bits of instruction pointers, registers and addresses that are flipped. Memory has no width of its own:
/// any of its bits is flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bits {
    /// The lowest.
    pub low: u32,
    /// The highest; for wider or narrower registers the range is clipped.
    pub high: u32,
}

impl Bits {
    /// All bits, those of wide vector registers included.
    pub const FULL: Bits = Bits { low: 0, high: u32::MAX };

    /// The bits of something `width` wide: the first, and how many. If the range contains none of them, all bits are
    /// used.
    pub fn within(self, width: u32) -> (u32, u32) {
        let high = self.high.min(width - 1);
        if self.low > high { (0, width) } else { (self.low, high - self.low + 1) }
    }
}

impl FromStr for Bits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "full" {
            return Ok(Bits::FULL);
        }
        let parsed = text.split_once("..=").or_else(|| text.split_once("..")).and_then(|(low, high)| {
            let (low, high) = (low.parse().ok()?, high.parse().ok()?);
            (low <= high).then_some(Bits { low, high })
        });
        parsed.ok_or_else(|| {
            format!("{text} is not a range of bits: \"full\", or LOW..HIGH with both included, as in 0..15")
        })
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Bits::FULL => f.write_str("full"),
            Bits { low, high } => write!(f, "{low}..{high}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for fault in TracerFault::ALL {
            assert_eq!(fault.name().parse(), Ok(fault));
        }
        assert!("flip".parse::<TracerFault>().is_err());
        let set: u8 = TracerFault::ALL.iter().map(|fault| fault.bit()).sum();
        assert_eq!(set, 0x7f, "each has a bit of its own");
    }

    #[test]
    fn ranges_of_bits_are_read_and_cut() {
        let low: Bits = "0..15".parse().unwrap();
        assert_eq!(low.within(64), (0, 16));
        assert_eq!(low.within(8), (0, 8));
        assert_eq!("16..63".parse::<Bits>().unwrap().within(64), (16, 48));
        assert_eq!("16..63".parse::<Bits>().unwrap().within(8), (0, 8), "a byte has no such bits");
        assert_eq!("full".parse::<Bits>().unwrap().within(128), (0, 128));
        assert!("15..0".parse::<Bits>().is_err());
        assert_eq!(low.to_string().parse(), Ok(low));
    }
}
