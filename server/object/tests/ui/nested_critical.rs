//! A critical type is an object of its own: inside of another value the error names the container to use.
use object::{Store, critical};

#[critical]
struct Account {
    balance: u64,
}

#[critical]
struct Bank {
    accounts: Vec<Account>,
    first: Option<Account>,
    by_name: std::collections::BTreeMap<String, Box<Account>>,
    stores: Vec<Store<Account>>,
    plain: Store<u64>,
}

fn main() {}
