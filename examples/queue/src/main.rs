//! The work queue's program.

use std::process::ExitCode;

use queue::QueueProgram;

fn main() -> ExitCode {
    node::main::<QueueProgram>()
}
