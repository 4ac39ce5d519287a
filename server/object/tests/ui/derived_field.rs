//! Each field that cannot be summed is one error of `derive(Summed)`.
use object::{Summed, critical};

#[critical]
struct Account {
    balance: u64,
}

#[derive(Summed)]
struct Address {
    address: std::net::IpAddr,
    accounts: Vec<Account>,
}

#[derive(Summed)]
enum Weight<T> {
    Known(f64),
    Unknown(T),
}

#[derive(Summed)]
struct Borrowed<'a>(&'a str);

fn main() {}
