//! The bank's program, of the present release.

use std::process::ExitCode;

use bank::Program;

fn main() -> ExitCode {
    node::main::<Program<2>>()
}
