//! A derived copy would share the object's id and skip its check.
use object::critical;

#[critical]
#[derive(Clone)]
pub struct Account {
    balance: u64,
}

fn main() {}
