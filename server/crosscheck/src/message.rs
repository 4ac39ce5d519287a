//! Messages to the operator on stderr, which may be closed together with its terminal, or with the process that read
//! it.

use std::fmt;
use std::io::Write;

/// Writes one message as one line, in one system call. If stderr is closed, the message is lost, and this process
/// continues: `eprintln!` would panic.
pub fn message(what: fmt::Arguments<'_>) {
    let line = format!("crosscheck: {what}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
