//! A member that code outside of the module could reach would skip the check.
use object::critical;

#[critical]
pub struct Account {
    pub balance: u64,
    pub(crate) owner: u64,
    number: u64,
}

fn main() {}
