//! Pointers and boxed traits have no meaning on another replica.
use object::critical;

#[critical]
struct Node {
    raw: *const u8,
    boxed: Box<dyn Fn() + Send>,
}

fn main() {}
