//! Control-flow gates: one flag between two phases, so that a jump over a boundary, forward or backward, is seen.
//!
//! NSDI'15, Fig. 4a: the end of the earlier phase aborts if the flag is set, and sets it; the end of the later phase
//! aborts if it is not set. Each test and each set stands in its phase's own code: tests that all stand in one place
//! would separate nothing.

use crate::fail::Reason;
use crate::mutate::{Protection, kept};

/// The boundaries between the phases I, E1, R, E2, V and the end of the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Between I and E1.
    Begun = 0,
    /// Between E1 and R.
    First = 1,
    /// Between R and E2.
    Reset = 2,
    /// Between E2 and V.
    Second = 3,
    /// Between V and the end.
    Valid = 4,
}

/// What the end of the earlier phase checks, per gate.
const CLEAR: [Protection; 5] = [
    Protection::Gate1Clear,
    Protection::Gate2Clear,
    Protection::Gate3Clear,
    Protection::Gate4Clear,
    Protection::Gate5Clear,
];

/// What the end of the later phase checks, per gate.
const SET: [Protection; 5] = [
    Protection::Gate1Set,
    Protection::Gate2Set,
    Protection::Gate3Set,
    Protection::Gate4Set,
    Protection::Gate5Set,
];

/// The flags of one thread, each with its complement: one flipped bit is neither set nor clear.
#[derive(Clone, Debug)]
pub struct Gates {
    flags: [[u8; 2]; 5],
}

const OPEN: [u8; 2] = [0x00, 0xff];
const PASSED: [u8; 2] = [0xa5, 0x5a];

impl Gates {
    /// All clear.
    pub const fn new() -> Self {
        Self { flags: [OPEN; 5] }
    }

    /// Clears all flags, in phase I.
    pub fn reset(&mut self) {
        self.flags = [OPEN; 5];
    }

    /// At the end of the phase before the gate.
    ///
    /// # Errors
    /// The gate was passed before.
    #[inline(always)]
    pub fn pass(&mut self, gate: Gate) -> Result<(), Reason> {
        if self.flags[gate as usize] != OPEN && kept(CLEAR[gate as usize]) {
            return Err(Reason::GateAlreadyPassed);
        }
        self.flags[gate as usize] = PASSED;
        Ok(())
    }

    /// At the end of the phase after the gate.
    ///
    /// # Errors
    /// The gate was not passed.
    #[inline(always)]
    pub fn was_passed(&self, gate: Gate) -> Result<(), Reason> {
        if self.flags[gate as usize] != PASSED && kept(SET[gate as usize]) {
            return Err(Reason::GateNotPassed);
        }
        Ok(())
    }
}

impl Default for Gates {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ALL: [Gate; 5] = [Gate::Begun, Gate::First, Gate::Reset, Gate::Second, Gate::Valid];

    #[test]
    fn in_order_all_gates_open() {
        let mut gates = Gates::new();
        for gate in ALL {
            gates.pass(gate).unwrap();
            gates.was_passed(gate).unwrap();
        }
    }

    #[test]
    fn a_skipped_and_a_repeated_phase_are_seen() {
        for gate in ALL {
            let mut gates = Gates::new();
            assert_eq!(gates.was_passed(gate), Err(Reason::GateNotPassed));
            gates.pass(gate).unwrap();
            assert_eq!(gates.pass(gate), Err(Reason::GateAlreadyPassed));
        }
    }

    #[cfg(feature = "mutate")]
    #[test]
    fn without_its_test_or_set_a_gate_lets_a_jump_pass() {
        for gate in ALL {
            let at = gate as usize;
            let without = |protection, jump: fn(&mut Gates, Gate) -> Result<(), Reason>| {
                let jumped = std::thread::spawn(move || {
                    crate::mutate::remove(protection);
                    jump(&mut Gates::new(), gate)
                });
                jumped.join().unwrap().unwrap();
            };
            without(CLEAR[at], |gates, gate| gates.pass(gate).and_then(|()| gates.pass(gate)));
            without(SET[at], |gates, gate| gates.was_passed(gate));
        }
    }

    #[test]
    fn a_flipped_bit_is_neither() {
        for bit in 0..8 {
            let mut gates = Gates::new();
            gates.flags[0][0] ^= 1 << bit;
            assert!(gates.pass(Gate::Begun).is_err());
            assert!(gates.was_passed(Gate::Begun).is_err());
        }
    }
}
