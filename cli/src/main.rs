//! The `crosscheck` command.
fn main() {}
