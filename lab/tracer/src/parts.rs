//! The part of a hardened handler that each instruction of the golden run belongs to: a fault in a handler, which runs
//! twice, is another thing than one outside of handlers, which do not.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::profile::Profile;
use crate::symbols::Symbols;

/// A part of a handler, after the phases of Behrens et al., NSDI 2015, section 4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandlerPart {
    /// No handler: event loop, input and output.
    Outside,
    /// The input message is checked, and the handler begins (phase I).
    Begin,
    /// The first run (phase E1).
    FirstRun,
    /// The first run's writes are undone (phase R).
    Reset,
    /// The second run (phase E2).
    SecondRun,
    /// The two runs are compared, and the handler ends (phase V).
    Validation,
}

/// Checks the input message, before the handler begins.
const PREPARE: &str = "sei_prepare";
/// Begins a handler, and returns once for each run.
const BEGIN: &str = "_ITM_beginTransaction";
/// Ends a run, and returns when the handler ends.
const COMMIT: &str = "_ITM_commitTransaction";

impl fmt::Display for HandlerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HandlerPart::Outside => "outside of handlers",
            HandlerPart::Begin => "handler: begin (I)",
            HandlerPart::FirstRun => "handler: first run (E1)",
            HandlerPart::Reset => "handler: reset (R)",
            HandlerPart::SecondRun => "handler: second run (E2)",
            HandlerPart::Validation => "handler: validation (V)",
        })
    }
}

/// The part of each step of `profile`; none where the program is not hardened.
pub fn parts(profile: &Profile, symbols: &mut Symbols) -> Vec<HandlerPart> {
    let mut address = |name| {
        let place = |module: &&crate::memory::Module| symbols.begin(&module.path, name).is_some();
        let module = profile.head.modules.iter().find(place)?;
        Some(module.base + symbols.begin(&module.path, name)?)
    };
    let (Some(prepare), Some(begin), Some(commit)) = (address(PREPARE), address(BEGIN), address(COMMIT))
    else {
        return Vec::new();
    };
    follow(
        [prepare, begin, commit],
        (0..profile.steps.len()).map(|step| {
            let code = profile.code(step);
            (code.address, code.address + code.instruction.len() as u64)
        }),
    )
}

/// Follows the steps, each the address of an instruction and that of the one behind it.
fn follow([prepare, begin, commit]: [u64; 3], steps: impl Iterator<Item = (u64, u64)>) -> Vec<HandlerPart> {
    let mut part = HandlerPart::Outside;
    // Where the last call of BEGIN and that of COMMIT return to; `behind` is the end of the step before.
    let (mut begun, mut done, mut behind) = (0, 0, 0);
    let part_of = |(address, end)| {
        part = match part {
            _ if address == prepare => HandlerPart::Begin,
            _ if address == begin => {
                begun = behind;
                HandlerPart::Begin
            }
            HandlerPart::FirstRun | HandlerPart::SecondRun if address == commit => {
                done = behind;
                if part == HandlerPart::FirstRun { HandlerPart::Reset } else { HandlerPart::Validation }
            }
            HandlerPart::Begin if address == begun => HandlerPart::FirstRun,
            HandlerPart::Reset if address == begun => HandlerPart::SecondRun,
            HandlerPart::Validation if address == done => HandlerPart::Outside,
            same => same,
        };
        behind = end;
        part
    };
    steps.map(part_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of one byte each at these addresses.
    fn parts_of(addresses: &[u64]) -> String {
        let letter = |part| match part {
            HandlerPart::Outside => 'o',
            HandlerPart::Begin => 'I',
            HandlerPart::FirstRun => '1',
            HandlerPart::Reset => 'R',
            HandlerPart::SecondRun => '2',
            HandlerPart::Validation => 'V',
        };
        let steps = addresses.iter().map(|&address| (address, address + 1));
        follow([0x70, 0x80, 0x90], steps).into_iter().map(letter).collect()
    }

    #[test]
    fn a_handler_has_its_parts_in_their_order() {
        // 1 calls the check of the message, 2 the begin, 3 is the handler, 4 calls the commit, 5 is behind it.
        let handler = [1, 0x70, 2, 0x80, 0x81, 3, 4, 0x90, 0x91, 3, 4, 0x90, 0x91, 5];
        assert_eq!(parts_of(&handler), "oIIII11RR22VVo");
        let twice: Vec<u64> = handler.iter().chain(&handler).copied().collect();
        assert_eq!(parts_of(&twice), "oIIII11RR22VVo".repeat(2));
    }

    #[test]
    fn instructions_of_a_program_without_handlers_are_outside() {
        assert_eq!(parts_of(&[1, 2, 3, 0x91]), "oooo");
    }
}
