//! A member without a checksum fails the build, with a message that names the remedy.
use object::critical;

#[critical]
struct Table {
    sound: u64,
    index: std::collections::HashMap<u64, u64>,
    borrowed: &'static [u8],
    cell: std::cell::Cell<u64>,
    float: f64,
}

fn main() {}
