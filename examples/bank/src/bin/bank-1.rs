//! The bank's program of the release before, from which tests upgrade a group.

use std::process::ExitCode;

use bank::Program;

fn main() -> ExitCode {
    node::main::<Program<1>>()
}
